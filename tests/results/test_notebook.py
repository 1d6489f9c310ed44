"""Models and costs show in a notebook what they consist of."""

import runpy
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fmepy as fme


class _Well(HTMLParser):
    """Every tag that opens closes, in order."""

    def __init__(self):
        super().__init__()
        self.open, self.texts = [], []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def texts_of(thing):
    page = _Well()
    page.feed(thing._repr_html_())
    assert not page.open
    return [t.strip() for t in page.texts if t.strip()]


@pytest.fixture(scope="module")
def model():
    text = "dN/dt = r*N*(1 - N/K)\nsmall = where(N < 1, 1, 0)"
    return fme.OdeModel(text, parms={"r": 0.6, "K": 10.0}, state={"N": 1.0}, times=np.arange(0.0, 60.0))


def test_a_model_shows_its_equations_and_parameters(model):
    texts = texts_of(model)
    assert texts[0].startswith("OdeModel of 1 state (N), 2 parameters")
    assert any(r"\frac{d\,N}{dt}" in t or "d(N)/dt" in t for t in texts)
    assert texts[texts.index("r") + 1] == "0.6"
    assert texts[texts.index("K") + 1] == "10.0"


def test_without_sympy_the_equations_are_text(model, monkeypatch):
    monkeypatch.setattr(type(model.equations), "_repr_latex_", lambda self: None)
    assert "<pre>d(N)/dt = " in model._repr_html_()
    assert "where(1 &gt; N, 1, 0)" in model._repr_html_()  # no markup of a user's


def test_a_steady_model_and_a_difference_model_do_so_too():
    steady = fme.SteadyModel("dN/dt = a - b*N", state={"N": 1.0}, parms={"a": 1.0, "b": 2.0})
    step = fme.DifferenceModel("next(N) = a*N", state={"N": 1.0}, parms={"a": 0.5}, times=np.arange(5))
    assert "SteadyModel of 1 state (N), 2 parameters" in texts_of(steady)
    assert texts_of(step)[0].startswith("DifferenceModel of 1 state (N), 1 parameter")


def test_costs_show_parameters_with_bounds_and_the_ends_of_the_data(model):
    data = model()[["time", "N"]]
    simulation = fme.SimulationCost(model, data, measurement_noise={"N": "sd"}, parms={"sd": 0.2})
    for cost in (simulation, fme.FimlofCost(model, data, process_noise={"N": "sd"}, measurement_noise={"N": 0.1},
                                            parms={"sd": 0.2})):  # fmt: skip
        texts = texts_of(cost)
        assert texts[0] == repr(cost)
        assert "Observations" in texts
        assert "60 rows × 2 columns" in texts
        row = texts[texts.index("sd") :]
        assert row[1:3] == ["0.2", "0.0"]  # its value, and its lower bound


def test_a_sum_shows_its_parts(model):
    cost = fme.SimulationCost(model, pd.DataFrame({"time": [1.0, 2.0], "N": [1.0, 2.0]}))
    texts = texts_of(cost + cost.replace(obs=pd.DataFrame({"time": [3.0, 4.0], "N": [1.0, 2.0]})))
    assert texts[0] == "Sum of costs:"
    assert texts[1] == texts[2] == repr(cost)


def test_the_script_of_a_user_runs(capsys):
    runpy.run_path(str(Path(__file__).parents[1] / "user_script.py"))
    assert "collinearity" in capsys.readouterr().out
