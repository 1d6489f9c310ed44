"""The map of modules as a page: what it says of a variable, that it asks nothing of a network, and its search."""

from __future__ import annotations

import re

import numpy as np
import pytest

from fmepy.dmi import Database, ModularModel, Module, item
from fmepy.workflow.command import main
from fmepy.workflow.report.module_map import map_page
from tests.workflow import browser
from tests.workflow.test_commands import FILES


@pytest.fixture
def case(tmp_path):
    (tmp_path / "db").mkdir()
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def row_of(page, name):
    """Return the text of a variable's row, tags away."""
    row = re.search(rf'<tr id="v-{name}">.*?</tr>', page, re.DOTALL)[0]
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", row)).strip()


def test_the_command_writes_it_beside_the_map(case, capsys):
    assert main(["map", str(case / "model.toml"), "--html", "--out", str(case / "out")]) == 0
    assert "variable_map.html" in capsys.readouterr().out
    page = (case / "out" / "variable_map.html").read_text(encoding="utf-8")
    assert row_of(page, "eaten").startswith("eaten computed")
    assert "eaten = a * N * P hunt , hunt.fme:1 a , N , P N , P" in row_of(page, "eaten")
    assert "d(N)/dt = r * N * (1 - N / K) - eaten" in row_of(page, "N")
    assert "initial value:" in row_of(page, "N")
    assert row_of(page, "K").startswith("K constant 150")
    assert "N → eaten → N" in page
    assert not re.search(r"(?:href|src)=\"(?!#|data:)", page)
    assert main(["map", str(case / "model.toml"), "--output", str(case / "plain")]) == 0
    assert not (case / "plain" / "variable_map.html").exists()


def test_values_are_the_last_ones_and_units_those_of_the_data_base():
    data = Database({"k": item(0.5, unit="1/day"), "u": ([0, 10], [1, 3])})
    model = ModularModel([Module("a&b", "dims v[8]\nv = k * u * [1, 2, 3, 4, 5, 6, 7, 8]")], data, times=[0, 10], dt=1)
    page = map_page(model, "A <title>")
    assert "A &lt;title&gt;" in page
    assert "<title>A <" not in page
    assert row_of(page, "v").startswith("v[8] computed [1.5, 3, 4.5, 6, 7.5, 9, …]")
    assert row_of(page, "k").startswith("k constant 1/day 0.5")
    assert row_of(page, "u").startswith("u series 3")
    assert "There is none." in page


def test_a_model_that_does_not_run_has_a_page_that_says_why():
    with pytest.warns(UserWarning, match="missing"):
        model = ModularModel([Module("m", "d(x)/dt = -k * x\nx(0) = 1")], times=[0, 1], dt=0.5)
    page = map_page(model, "broken")
    assert "The model does not run, so that there are no values: The model cannot run, for data are missing" in page
    assert "missing: k is read" in page


def large(n):
    """Return n modules of ten variables, each of which reads from its neighbours."""
    texts = [
        f"d(stock_{i})/dt = flow_{i} - stock_{i} / life\nstock_{i}(0) = 1\nflow_{i} = 0.1 * stock_{(i - 1) % n}\n"
        + "\n".join(f"more_{i}_{k} = {k} * stock_{i} + flow_{(i + k) % n}" for k in range(8))
        for i in range(n)
    ]
    modules = [Module(f"sector_{i}", text) for i, text in enumerate(texts)]
    return ModularModel(modules, {"life": 10.0}, times=np.arange(0, 11.0), dt=1)


def test_of_two_hundred_modules_a_browser_finds_a_variable(tmp_path):
    path = browser.found()
    if path is None:
        pytest.skip("no Chromium is installed: the map is not tried in a browser")
    file = tmp_path / "map.html"
    file.write_text(map_page(large(200), "large"), encoding="utf-8")
    chromium = browser.Browser(path)
    try:
        chromium.open(file)
        shown = "[...document.querySelectorAll('table.searched tbody tr')].filter(r => !r.hidden).length"
        everything = chromium.of(shown)
        assert everything > 2_200
        chromium.of("(f => { f.value = 'more_17_3 flow_20'; f.dispatchEvent(new Event('input')); })(field)")
        assert 1 <= chromium.of(shown) < 6
        assert chromium.of("document.getElementById('v-more_17_3').hidden") is False
        chromium.of("location.hash = '#v-stock_5'")
        chromium.of("new Promise(done => setTimeout(done, 200))")
        assert chromium.of(shown) == everything
        assert chromium.requests() == [file.as_uri()]
        assert chromium.complaints() == []
    finally:
        chromium.close()
