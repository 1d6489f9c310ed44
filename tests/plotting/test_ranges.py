"""Pictures of ensembles show the numbers of the ensemble, and say what their bands are."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from fmepy.errors import ArgumentError
from fmepy.montecarlo import modCRL, sensRange
from fmepy.plotting.ranges import local_lines

X = np.arange(5.0)


def two(p):
    return pd.DataFrame({"depth": X, "y": p["a"] + X, "z": p["a"] * X})


@pytest.fixture(scope="module")
def runs():
    return sensRange(two, {"a": 0.0}, parRange={"a": (0, 1)}, dist="grid", num=11)


def vertices(collection):
    return collection.get_paths()[0].vertices


def test_runs_are_lines_one_panel_a_variable(runs):
    panels = runs.plot()
    assert [ax.get_ylabel() for ax in panels] == ["y", "z"]
    segments = panels[1].collections[0].get_segments()
    assert len(segments) == 11
    np.testing.assert_allclose(segments[-1], np.column_stack((X, X)))
    low, high = panels[0].get_ylim()
    assert low <= 0 < 5 <= high


def test_failed_runs_are_not_drawn(caplog):
    failed = sensRange(lambda p: two({"a": p["a"] / (p["a"] != 0.5)}) if p["a"] != 0.5 else None, {"a": 0.1},
                       parRange={"a": (0, 1)}, dist="grid", num=3)  # fmt: skip
    assert len(failed.failures) == 1
    assert len(failed.plot()[0].collections[0].get_segments()) == 2


@pytest.mark.parametrize(
    ("quant", "names", "labels"),
    [
        (False, ("Min", "Max"), ["Min to Max", "Mean ± Sd", "Mean"]),
        (True, ("q05", "q95"), ["q05 to q95", "q25 to q75", "median"]),
    ],
)
def test_bands_are_those_of_the_summary(runs, quant, names, labels):
    summary = runs.summary()
    (ax,) = summary.plot(which="z", quant=quant)
    rows = summary.frame[summary.frame["var"] == "z"]
    outer = vertices(ax.collections[0])
    for x, low, high in zip(X, rows[names[0]], rows[names[1]], strict=True):
        at = outer[outer[:, 0] == x, 1]
        assert at.min() == pytest.approx(low)
        assert at.max() == pytest.approx(high)
    middle = rows["q50"] if quant else rows["Mean"]
    np.testing.assert_allclose(ax.lines[0].get_ydata(), middle)
    assert [t.get_text() for t in ax.get_legend().get_texts()] == labels


def test_the_legend_says_what_the_band_is(runs):
    assert runs.summary().plot()[0].get_legend().get_title().get_text() == "parameter uncertainty"
    panels = runs.with_error({"y": 1.0}, seed=1).summary().plot()
    assert [ax.get_legend().get_title().get_text() for ax in panels] == ["prediction", "parameter uncertainty"]
    assert runs.summary().plot(legpos=None)[0].get_legend() is None


@pytest.mark.parametrize(
    "obs",
    [
        {"depth": [1.0, 2.0], "y": [0.5, np.nan]},
        {"y": [0.5], "depth": [1.0]},
        {"name": ["y", "other"], "depth": [1.0, 3], "value": [0.5, 9]},
        pd.DataFrame({"animal": ["rat"], "depth": [1.0], "y": [0.5]}),
        [{"depth": [1.0], "y": [0.5]}],
    ],
    ids=["wide", "x not first", "long", "a column of text", "a list"],
)
def test_observations_lie_on_top(runs, obs):
    panels = runs.summary().plot(obs=obs, obspar={"color": "red"})
    seen = panels[0].lines[-1]
    assert (np.asarray(seen.get_xdata()).tolist(), np.asarray(seen.get_ydata()).tolist()) == ([1], [0.5])
    assert seen.get_color() == "red"
    assert len(panels[1].lines) == 1


def test_observations_of_nothing_shown_are_told(runs):
    with pytest.raises(ArgumentError, match="none of the variables shown"):
        runs.summary().plot(obs={"depth": [1.0], "w": [0.5]})
    with pytest.raises(ArgumentError, match="must be a table or a list"):
        runs.summary().plot(obs=3)


def test_axes_swap_for_profiles(runs):
    for panels in (runs.plot(xyswap=True), runs.summary().plot(xyswap=True)):
        assert panels[0].yaxis_inverted()
        assert (panels[0].get_xlabel(), panels[0].get_ylabel()) == ("y", "depth")
    ax = runs.summary().plot(xyswap=True, xlabel="O2", ylabel="depth, cm")[0]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("O2", "depth, cm")


def test_given_axes_are_drawn_on(runs):
    figure, grid = plt.subplots(1, 2)
    runs.plot(axes=grid)
    runs.summary().plot(axes=grid, color="C3")
    assert plt.get_fignums() == [figure.number]


def test_a_single_x_gives_boxes_and_dots():
    runs = sensRange(lambda p: {"u": p["a"], "v": 2 * p["a"]}, parRange={"a": (0, 1)}, dist="grid", num=5)
    assert [ax.get_ylabel() for ax in runs.plot()] == ["u", "v"]
    panels = runs.summary().plot()
    assert [ax.get_xlabel() for ax in panels] == ["u", "v"]
    assert panels[1].lines[0].get_xdata()[0] == 1.0
    runs.plot(xyswap=True)


@pytest.fixture(scope="module")
def crl():
    return modCRL(lambda p: {"u": p["a"] ** 2, "v": p["b"]}, {"a": 1.0, "b": 1.0}, dist="latin",
                  parRange={"a": (0, 1), "b": (0, 1)}, num=60, seed=1)  # fmt: skip


def test_every_output_against_every_parameter(crl):
    panels = crl.plot()
    told = [(ax.get_xlabel(), ax.get_ylabel()) for ax in panels]
    assert told == [("a", "u"), ("b", "u"), ("a", "v"), ("b", "v")]
    np.testing.assert_array_equal(panels[0].lines[0].get_ydata(), crl["u"])
    assert len(crl.plot(which="u")) == 2
    assert len(crl.plot(which="a")) == 2
    (one,) = crl.plot(which=["a", "u"], trace=True)
    at, line = one.lines[1].get_data()
    np.testing.assert_allclose(line, at**2, atol=0.15)


def test_pairs_tell_correlations_of_all_rows(crl):
    panels = crl.pairs(nsample=10)
    assert panels.shape == (4, 4)
    assert panels[2, 0].texts[0].get_text() == f"{crl.frame['a'].corr(crl.frame['u']):.2f}"
    assert len(panels[0, 2].lines[0].get_xdata()) == 10
    np.testing.assert_array_equal(crl.pairs()[0, 2].lines[0].get_xdata(), crl["u"])
    assert [panels[i, i].get_title() for i in range(4)] == ["a", "b", "u", "v"]
    with pytest.raises(ArgumentError, match="at least two columns"):
        crl.pairs(which="a")


def test_histograms_count_all_runs(crl):
    panels = crl.hist(bins=5)
    assert [ax.get_xlabel() for ax in panels] == ["a", "b", "u", "v"]
    assert sum(bar.get_height() for bar in panels[0].patches) == 60
    assert len(crl.hist(which=["u"])) == 1


def test_local_lines_follow_a_line_and_bear_repeated_x():
    x = np.repeat([0.0, 1.0, 2.0], 10)
    np.testing.assert_allclose(local_lines(x, 2 * x + 1, np.array([0.0, 0.5, 2.0])), [1, 2, 5])
    assert local_lines(np.zeros(5), np.arange(5.0), np.zeros(1)).tolist() == [2]
