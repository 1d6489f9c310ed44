"""obsplot: wide and long tables, merged by variable, one symbol a data set."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fmepy.errors import ArgumentError, DataError
from fmepy.plotting.obsplot import obsplot
from tests.models.problems import cases, table

CASE = cases("tools.json")["accepts"]["inputs"]


def read(name):
    return table(CASE[name]).map(lambda v: np.nan if isinstance(v, str) and v == "NA" else v)


FIRST, SECOND, LONG = read("first").astype(float), read("second"), read("long")


def points(ax):
    return [(line.get_marker(), *(np.asarray(d).tolist() for d in line.get_data())) for line in ax.lines]


def test_a_wide_table_has_a_panel_a_variable():
    panels = obsplot(FIRST)
    assert [ax.get_ylabel() for ax in panels] == ["A", "B"]
    assert [ax.get_xlabel() for ax in panels] == ["t", "t"]
    assert points(panels[0]) == [("o", [1, 2, 3], [1, 2, 3])]  # the missing one is left out


def test_data_sets_are_merged_by_name_with_a_symbol_each():
    panels = obsplot(FIRST, SECOND, LONG)
    assert [ax.get_ylabel() for ax in panels] == ["A", "B", "C", "D"]
    assert points(panels[1]) == [("o", [1, 2, 4], [5, 6, 8]), ("s", [2.5, 6], [6.4, 9])]
    assert [m for m, *_ in points(panels[0])] == ["o", "D"]
    assert points(panels[3]) == [("D", [2], [7])]


def test_a_long_table_needs_no_other():
    panels = obsplot(LONG)
    assert [ax.get_ylabel() for ax in panels] == ["A", "D"]
    assert points(panels[0])[0][1:] == ([1, 3], [1.1, 3.1])


def test_columns_of_one_name_are_replicates():
    (ax,) = obsplot(pd.DataFrame([[0, 1, 2], [1, 3, 4]], columns=["t", "A", "A"]))
    assert [p[2] for p in points(ax)] == [[1, 3], [2, 4]]


def test_which_by_name_and_by_position():
    assert obsplot(FIRST, which="B")[0].get_ylabel() == "B"
    assert [ax.get_ylabel() for ax in obsplot(FIRST, which=[1, "A"])] == ["B", "A"]
    with pytest.raises(ArgumentError, match="no variable 'Z'"):
        obsplot(FIRST, which="Z")


def test_axes_swap_and_x_goes_down():
    panels = obsplot(FIRST, xyswap=[True, False])
    assert panels[0].yaxis_inverted()
    assert (panels[0].get_xlabel(), panels[0].get_ylabel()) == ("A", "t")
    assert not panels[1].yaxis_inverted()
    assert obsplot(FIRST, xyswap=True)[1].yaxis_inverted()


def test_keywords_per_panel_and_per_data_set():
    panels = obsplot(FIRST, SECOND, which=["A", "B"], xlim=[(0, 150), (0, 10)], color=["C3", "C5"], yscale="log",
                     title=["one", "two"], label=["mine", "yours"])  # fmt: skip
    assert panels[0].get_xlim() == (0, 150)
    assert panels[1].get_xlim() == (0, 10)
    assert [line.get_color() for line in panels[1].lines] == ["C3", "C5"]
    assert panels[0].get_yscale() == "log"
    assert panels[1].get_title() == "two"
    assert [t.get_text() for t in panels[1].get_legend().get_texts()] == ["mine", "yours"]
    assert obsplot(FIRST, xlim=(0, 5))[1].get_xlim() == (0, 5)
    with pytest.raises(ArgumentError, match="`title` has 3 values for 2 panels"):
        obsplot(FIRST, title=["a", "b", "c"])
    with pytest.raises(ArgumentError, match="`color` has 2 values for 1 data sets"):
        obsplot(FIRST, color=["a", "b"])


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ([1, 2], DataError, "must be a table"),
        (np.arange(3.0), DataError, "must be a table"),
        ({"t": [1, 2]}, DataError, "at least one variable"),
        ({"t": [1, 2], "A": ["a", "b"]}, DataError, "'A' holds 'a' in row 0"),
        ({"name": ["a", "b"], "x": [1, 2]}, DataError, "needs a column of values"),
    ],
)
def test_what_is_no_table_is_told(given, error, message):
    with pytest.raises(error, match=message):
        obsplot(given)


def test_without_a_table_the_sentence_is_that_of_any_other():
    with pytest.raises(DataError, match="`x` must be a table"):
        obsplot()
