"""Readings beyond a limit are open triangles at the limit, in every picture that shows data."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

import fmepy as fme

DATA = pd.DataFrame({"time": [1.0, 2, 3, 4], "A": [7.0, 4.0, 2.0, 2.0], "mark": [">", "", None, "<"]})
LONG = pd.DataFrame({"name": ["A"] * 4, "time": DATA["time"], "val": DATA["A"], "mark": DATA["mark"]})


@pytest.fixture(autouse=True)
def _closed():
    yield
    plt.close("all")


def drawn(ax) -> dict[str, int]:
    """Return the number of points by marker."""
    lines = [line for line in ax.lines if line.get_marker() not in ("None", None, "")]
    return {str(line.get_marker()): len(line.get_xdata()) for line in lines}


@pytest.mark.parametrize("data", [DATA, LONG])
def test_observations_show_their_marks(data) -> None:
    (ax,) = fme.obsplot(data, label="seen")
    assert drawn(ax) == {"o": 2, "v": 1, "^": 1}
    below = next(line for line in ax.lines if line.get_marker() == "v")
    assert below.get_markerfacecolor() == "none"
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["seen", "below limit", "above limit"]
    (ax,) = fme.obsplot(data, xyswap=True)
    assert drawn(ax) == {"o": 2, "<": 1, ">": 1}


def test_costs_fits_predictions_and_ranges_show_them() -> None:
    model = fme.DifferenceModel("next(A) = k * A", state={"A": 10.0}, times=range(6), parms={"k": 0.65})
    cost = fme.SimulationCost(model, DATA, measurement_noise={"A": "estimate"}, censored="mark")
    fit = fme.modFit(cost)
    beyond = {"o": 2, "v": 1, "^": 1}
    assert drawn(fit.cost.plot()) == beyond
    panels = fit.plot()
    assert drawn(panels[0]) == beyond
    assert panels[-1].get_ylabel() == "-2 log likelihood"
    assert drawn(fit.predict(model).plot(obs=DATA)[0]) == beyond
    assert drawn(fme.plot_model(model(), obs=DATA, which="A")[0]) == beyond
    ranges = fme.sensRange(model, parRange={"k": (0.6, 0.7)}, num=5, seed=1)
    assert drawn(np.atleast_1d(ranges.summary().plot(obs=DATA))[0]) == beyond
    assert drawn(cost.plot()[0]) == beyond


def test_text_that_is_no_mark_stays_what_it_was() -> None:
    with pytest.raises(fme.errors.DataError, match="'note' holds 'a' in row 0"):
        fme.obsplot(DATA.assign(mark=1.0, note=["a", "b", "<", ""]))


def test_marks_in_a_wide_table_are_of_the_variable_that_their_column_names() -> None:
    data = DATA.assign(B=[1.0, 2, 3, 4], mark_B=["", "", "", ">"]).rename(columns={"mark": "A_mark"})
    of_a, of_b = fme.obsplot(data)
    assert drawn(of_a) == {"o": 2, "v": 1, "^": 1}
    assert drawn(of_b) == {"o": 3, "^": 1}
    _, of_b = fme.obsplot(data.drop(columns="mark_B"))
    assert drawn(of_b) == {"o": 4}
    of_m, _ = fme.obsplot(DATA.rename(columns={"A": "m"}).assign(B=1.0)[["time", "m", "B", "mark"]])
    assert drawn(of_m) == {"o": 4}
