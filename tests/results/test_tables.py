"""A result says once what it shows; terminal and notebook follow from it."""

from __future__ import annotations

import pandas as pd
import pytest

import fmepy as fme
from fmepy.results.tables import Part, Shown, bullets, long_table, table

FRAME = pd.DataFrame({"x": [1.5, 2.5]})


class Page(Shown):
    def shown(self):
        return ["Head <a>", "", table(FRAME, "{:.2f}"), *bullets(["One & two", "word " * 40]), *bullets([]), "tail"]


def test_text_has_the_parts_one_below_another():
    lines = repr(Page()).splitlines()
    assert lines[:5] == ["Head <a>", "", "     x", "0 1.50", "1 2.50"]
    assert lines[5] == "  - One & two"
    assert lines[7].startswith("    word")  # a long sentence goes on under itself
    assert lines[-1] == "tail"
    assert max(map(len, lines)) <= 100


def test_a_notebook_shows_the_same_parts_and_no_name_becomes_markup():
    html = Page()._repr_html_()
    assert html.startswith("<p>Head &lt;a&gt;</p><table")
    assert "<td>2.50</td>" in html
    assert "<ul><li>One &amp; two</li>" in html
    assert html.endswith("<p>tail</p>")
    assert "<p></p>" not in html  # empty lines are for the terminal


def test_a_long_table_shows_its_ends_and_says_how_long_it_is():
    shown = long_table(pd.DataFrame({"x": range(90)}))
    assert isinstance(shown, Part)
    assert shown.text.splitlines()[-1] == "[90 rows; `frame` holds them all]"
    assert "90 rows" in shown.html


def test_a_column_that_a_result_has_not_is_answered_with_those_it_has():
    model = fme.OdeModel("d(B)/dt = -r*B", state={"B": 1.0}, times=[0, 1], parms={"r": 0.5})
    runs = fme.sensRange(model, parRange={"r": (0.1, 0.9)}, num=3, seed=1)
    with pytest.raises(KeyError, match="table of this SensRange has no 'B'; it has 'r', 'B0', 'B1'"):
        runs["B"]
