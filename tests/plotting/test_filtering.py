"""Pictures of a filter show what its tables hold, take the given axes and return them."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt
from numpy.testing import assert_allclose
from scipy.special import ndtri

from fmepy.errors import ArgumentError
from fmepy.fimlof.bad_data import screen_bad_data
from fmepy.fimlof.cost import FimlofCost
from fmepy.fitting.compare import compare_fits
from fmepy.fitting.modfit import modFit
from fmepy.models.difference import DifferenceModel
from fmepy.models.ode import OdeModel


@pytest.fixture(scope="module")
def cost():
    """Return a cost of two variables with one typo; `y` is the state `a` under another name."""
    rng = np.random.default_rng(2)
    model = DifferenceModel("next(a) = 0.9 * a + 0.3 * b\nnext(b) = 0.8 * b", state={"a": 0.0, "b": 0.0},
                            times=np.arange(61), outputs={"y": "a", "s": "a + b"})  # fmt: skip
    a = b = 0.0
    rows = []
    for n in range(1, 61):
        a, b = 0.9 * a + 0.3 * b + rng.normal(), 0.8 * b + rng.normal()
        rows.append((n, a + rng.normal(), a + b + rng.normal()))
    data = pd.DataFrame(rows, columns=["time", "y", "s"])
    data.loc[29, "s"] += 15
    return FimlofCost(model, data.rename(columns={"time": "day"}), x="day", process_noise={"a": 1.0, "b": 1.0},
                      measurement_noise={"y": 1.0, "s": 1.0})  # fmt: skip


@pytest.fixture(scope="module")
def flt(cost):
    return cost.filter()


def line(ax, label):
    return next(entry for entry in ax.lines if entry.get_label() == label)


def labels(ax):
    return [t.get_text() for t in ax.get_legend().get_texts()]


def test_states_are_drawn_with_their_band_and_the_data(flt):
    panels = flt.plot()
    assert [ax.get_ylabel() for ax in panels] == ["b", "y", "s"]  # a is read as y
    assert {ax.get_xlabel() for ax in panels} == {"day"}
    assert_allclose(line(panels[1], "smoothed").get_ydata(), flt.smoothed["y"])
    assert_allclose(line(panels[1], "data").get_ydata(), flt.residuals.query("name == 'y'")["obs"])
    band = panels[1].collections[0].get_paths()[0].vertices[:, 1]
    top = (flt.smoothed["y"] + 1.959964 * flt.sd()["y"]).max()
    assert band.max() == pytest.approx(top, rel=1e-6)
    assert line(panels[2], "suspected").get_xdata().tolist() == [30.0]


def test_a_title_stands_above_the_legend_and_a_wide_legend_takes_two_rows(flt):
    (ax,) = flt.plot("s")
    title = ax.set_title("a title")
    ax.figure.draw_without_rendering()
    legend = ax.get_legend().get_window_extent()
    assert title.get_window_extent().y0 >= legend.y1
    assert legend.y0 >= ax.bbox.y1
    figure, narrow = plt.subplots(1, 3, figsize=(9, 3))
    flt.plot("s", axes=narrow[0])
    flt.plot("s", axes=narrow[0])  # drawn again: no second spacer
    figure.draw_without_rendering()
    assert len(narrow[0].child_axes) == 1
    assert narrow[0].get_legend().get_window_extent().height > 1.5 * legend.height
    pickle.loads(pickle.dumps(figure))


def test_a_state_that_is_read_under_another_name_shows_its_data(flt):
    (panel,) = flt.plot("a", "filtered", level=0.5)
    assert_allclose(line(panel, "data").get_ydata(), flt.residuals.query("name == 'y'")["obs"])
    assert "50 % band of the state" in labels(panel)
    with pytest.raises(ArgumentError, match="kind='smoothd'"):
        flt.plot(kind="smoothd")
    with pytest.raises(ArgumentError, match="no variable 'q'"):
        flt.plot("q")


def test_given_axes_are_used(flt):
    _, axes = plt.subplots(3)
    assert list(flt.plot(axes=axes)) == list(axes)
    _, ax = plt.subplots()
    assert flt.sumsq_test().plot(ax=ax) is ax


def test_entities_are_lines_of_their_own():
    model = DifferenceModel("next(x) = 0.9 * x", state={"x": 1.0}, times=[0, 5])
    data = pd.DataFrame({"who": ["u", "u", "v"], "time": [1, 4, 2], "x": [1.0, 0.5, 0.9]})
    flt = FimlofCost(model, data, process_noise={"x": 0.1}, measurement_noise={"x": 0.1}, entity="who").filter()
    (panel,) = flt.plot()
    assert len({entry.get_color() for entry in panel.lines}) == 2
    assert not panel.collections
    (one,) = flt.of("u").plot()
    assert len(one.collections) == 1
    ahead = flt.forecast(2).plot()
    assert [ax.get_ylabel() for ax in ahead] == ["x, who u", "x, who v"]


def test_many_entities_are_named_and_told_apart():
    model = DifferenceModel("next(x) = 0.9 * x", state={"x": 1.0}, times=[0, 5])
    data = pd.DataFrame([{"who": f"u{i}", "time": t, "x": i / 7} for i in range(14) for t in (1, 4)])
    flt = FimlofCost(model, data, process_noise={"x": 0.1}, measurement_noise={"x": 0.1}, entity="who").filter()
    (panel,) = flt.plot()
    assert labels(panel)[:14] == [f"who u{i}" for i in range(14)]
    named = [entry for entry in panel.lines if entry.get_label().startswith("who")]
    assert len({(entry.get_color(), entry.get_linestyle()) for entry in named}) == 14


def test_a_fit_shows_residuals_at_their_times_and_searches_apart(cost):
    fit = modFit(cost.replace(process_noise={"a": "q", "b": 1.0}, parms={"q": 0.5}))
    *_, residuals, _, trace = fit.plot()
    assert residuals.get_xlabel() == "day"
    assert residuals.lines[-1].get_xdata().tolist() == list(range(1, 61))
    searches = [entry.get_ydata() for entry in trace.lines]
    assert len(searches) > 1
    assert all((np.diff(values) <= 0).all() for values in searches)
    np.testing.assert_array_equal(np.concatenate(searches), fit.rsstrace)


def test_innovations_have_limits_and_rings(flt):
    panels = flt.plot_innovations()
    assert_allclose(panels[1].lines[5].get_ydata(), flt.residuals.query("name == 's'")["standardized"])
    assert labels(panels[1]) == ["2 sd", "4 sd", "suspected"]
    assert labels(panels[0]) == ["2 sd", "4 sd"]


def test_correlations_are_stems_within_limits(flt):
    found = flt.correlations(5)
    (panel,) = found.plot("y")
    assert_allclose(line(panel, "with itself").get_ydata(), found.values[1:, 0, 0])
    assert_allclose(line(panel, "with the others, later").get_ydata(), found.values[1:, 0, 1])


def test_quantiles_periodogram_and_sums_show_their_numbers(flt):
    normality, periodogram, test = flt.normality(), flt.periodogram(), flt.sumsq_test()
    (quantiles,) = normality.plot("y")
    assert_allclose(quantiles.lines[1].get_ydata(), np.sort(normality.values["y"]))
    (cumulative,) = periodogram.plot("y")
    mine = periodogram.frame.query("variable == 'y'")
    assert_allclose(cumulative.lines[2].get_ydata(), mine["cumulative"])
    assert mine["cumulative"].iloc[-1] == pytest.approx(1.0)
    assert_allclose(test.plot().lines[-1].get_ydata()[-1], test.sumsq - len(test.squares))


def test_the_page_of_diagnostics_has_four_panels_a_variable(flt):
    panels = flt.plot_diagnostics("s")
    assert len(panels) == 4
    assert all(ax.get_xlabel() and ax.get_ylabel() for ax in panels)


def test_a_forecast_shows_both_bands_and_the_end_of_the_data(flt):
    ahead = flt.forecast(4, level=0.9)
    panels = ahead.plot(past=10)
    assert [ax.get_ylabel() for ax in panels] == ["y", "s"]  # what is observed
    assert labels(panels[0]) == ["estimate", "forecast", "90 % band of a reading", "90 % of the state", "data"]
    reading, state = (c.get_paths()[0].vertices for c in panels[0].collections)
    rows = ahead.frame.query("name == 'y'")
    assert reading[:, 1].max() == pytest.approx(rows["reading_upper"].max())
    assert state[state[:, 0] > 60, 1].min() == pytest.approx(rows["lower"].min())
    lower, upper = (end["y"].to_numpy() for end in flt.limits(level=0.9))  # both bands begin where the data end
    assert_allclose(sorted(set(state[state[:, 0] == 60, 1])), [lower[60], upper[60]])
    middle = flt.smoothed["y"][60]
    error = ndtri(0.95)  # of a reading, whose sd is 1
    ends = middle + np.array([-1, 1]) * np.hypot(error, upper[60] - middle)
    assert_allclose(sorted(set(reading[reading[:, 0] == 60, 1])), ends)
    assert "NaN" not in repr(ahead)
    assert len(line(panels[0], "data").get_xdata()) == 10
    (hidden,) = ahead.plot("b")
    assert len(hidden.collections) == 1


def test_a_screening_shows_what_was_found(cost):
    ax = screen_bad_data(cost).plot()
    assert [t.get_text() for t in ax.get_yticklabels()] == ["s at 30"]
    assert ax.patches[0].get_width() > 4
    nothing = screen_bad_data(cost, 100.0).plot()
    assert "nothing beyond" in nothing.texts[0].get_text()


def test_compared_fits_stand_beside_each_other():
    from tests.fitting.test_compare import fit

    both = compare_fits({"one": fit(-10.0, "x"), "two": fit(-7.0, "yz")})
    ax = both.plot()
    assert [t.get_text() for t in ax.get_yticklabels()] == ["two  (p = 2)", "one  (p = 1)"]
    assert ax.yaxis_inverted()
    assert_allclose(line(ax, "AIC").get_xdata(), [0.0, 4.0])


def test_sums_are_drawn_where_they_are_complete():
    model = DifferenceModel("next(x) = 0.8 * x", state={"x": 1.0}, times=np.arange(13), outputs={"z": "2 * x"})
    data = {"time": [2, 4, 7, 9, 12], "z": [3.0, 2.5, 4.0, 0.5, 1.0]}
    for kind in ("sum", "mean"):
        cost = FimlofCost(
            model, data, process_noise={"x": 0.5}, measurement_noise={"z": 0.4}, accumulate={"z": (2, kind)}
        )
        flt = cost.filter()
        (ahead,) = flt.forecast(5).plot()
        assert ahead.get_ylabel() == f"{kind} of z"
        assert line(ahead, "data").get_ydata().tolist() == data["z"]
        assert len(ahead.containers) == 2
    assert [ax.get_ylabel() for ax in flt.plot()] == ["x", "sum of z", "z"]


def test_matplotlib_s_short_keywords_are_understood_and_a_band_has_a_level(flt):
    (ax,) = flt.plot("s", lw=3, c="C2")
    drawn = line(ax, "smoothed")
    assert (drawn.get_linewidth(), drawn.get_color()) == (3, "C2")
    with pytest.raises(ArgumentError, match=r"'lw' and 'linewidth', which are aliases .* Give one of them"):
        flt.plot("s", lw=3, linewidth=2)
    with pytest.raises(ArgumentError, match=r"`level=95` must lie between 0 and 1, such as 0\.95"):
        flt.plot("s", level=95)


def sparse_predation(**noise):
    model = OdeModel(
        lambda t, x, y, *, a, b: (a * x - b * x * y, b * x * y - y), state={"x": 2.0, "y": 1.0},
        times=np.arange(0.0, 13.0, 2.0), parms={"a": 1.0, "b": 1.0},
    )  # fmt: skip
    t = np.arange(0.0, 13.0, 2.0)
    data = {"time": t, "x": model()["x"] * 1.1}
    return FimlofCost(model, data, process_noise=noise or {"x": "0.5*x", "y": "0.5*y"}, measurement_noise={"x": 0.5})


def test_lines_between_coarse_times_are_those_of_the_equations():
    flt = sparse_predation(x=0.1).filter()
    (ax,) = flt.plot("x")
    drawn = line(ax, "smoothed")
    t, y = drawn.get_xdata(), drawn.get_ydata()
    assert len(t) > 150
    assert np.abs(y - np.interp(t, flt.smoothed["time"], flt.smoothed["x"])).max() > 0.05
    assert set(flt.smoothed["time"]) <= set(t)
    band = ax.collections[0].get_paths()[0].vertices
    assert len(np.unique(band[:, 0])) > 150
    (ax,) = flt.forecast(2).plot("x", past=3)  # and up to a forecast, over its last three times
    before = ax.lines[0]
    assert before.get_xdata()[0] == 8.0
    assert before.get_xdata()[-1] == 12.0
    assert_allclose(np.interp(before.get_xdata(), t, y), before.get_ydata(), atol=1e-3)
    assert len(before.get_xdata()) > 50


def test_the_bands_of_what_cannot_be_negative_keep_above_zero():
    flt = sparse_predation().filter()
    assert flt.positive == {"x", "y"}
    for ax in [*flt.plot(), *flt.forecast(5).plot(["x", "y"])]:
        for part in ax.collections:
            if "state" in part.get_label():
                assert part.get_paths()[0].vertices[:, 1].min() > 0
    frame = flt.forecast(5).frame.query("name == 'x'")
    assert_allclose(frame["upper"] / frame["mean"], np.exp(1.959964 * frame["sd"] / frame["mean"]), rtol=1e-6)
    assert sparse_predation(x=0.1, y="0.1*y").filter().positive == {"y"}  # additive noise may take x below zero


def test_the_two_bands_of_a_forecast_differ_in_colour(flt):
    (ax,) = flt.forecast(4).plot("y")
    reading, state = (part.get_facecolor()[0][:3] for part in ax.collections)
    assert np.abs(reading - state).max() > 0.2
