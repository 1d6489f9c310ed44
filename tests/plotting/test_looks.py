"""Pictures can be read: no text over text, nothing over data, whole years, panels of a size, colours that differ."""

from __future__ import annotations

import itertools
import pickle

import lmfit
import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex, to_rgb

import fmepy as fme
from fmepy.plotting.axes import COLORS, add_legend, color, get_ax, picture, title_legend
from fmepy.plotting.ranges import plot_pairs, write_correlation
from tests.journal.samples import SAMPLES, filtered_cost
from tests.plotting.inspect_figures import covered_panels, overlapping_texts, panel_sizes, tick_labels

YEARS = np.arange(1900, 1921)


@pytest.fixture(scope="module")
def cost():
    model = fme.OdeModel(
        "d(Hare)/dt = a*Hare - b*Hare*Lynx\nd(Lynx)/dt = b*Hare*Lynx - m*Lynx",
        state={"Hare": 30.0, "Lynx": 4.0},
        parms={"a": 0.5, "b": 0.025, "m": 0.8},
        times=np.linspace(1900, 1920, 101),
    )
    noise = 1 + 0.1 * np.cos(7.0 * YEARS)
    seen = model()[::5].reset_index(drop=True)
    data = pd.DataFrame({"year": YEARS, "Hare": seen["Hare"] * noise, "Lynx": seen["Lynx"] / noise})
    return fme.SimulationCost(model, data, x="year", weight="std")


@pytest.fixture(scope="module")
def fit(cost):
    return fme.modFit(cost, lower=0)


def responses(parameters: int, outputs: int):
    ranges = {f"parameter{k}": (0.5, 1.5) for k in range(parameters)}

    def model(p):
        return {f"output{k}": 1e5 * p["parameter0"] + k * p["parameter1"] for k in range(outputs)}

    return fme.modCRL(model, dict.fromkeys(ranges, 1.0), parRange=ranges, num=30, seed=1)


def columns(n: int) -> pd.DataFrame:
    names = ["gmax", "efficiency", "ks", "rB", "dB", "alpha", "beta", "gamma"]
    return pd.DataFrame(np.random.default_rng(1).normal(size=(30, n)), columns=names[:n])


PICTURES = {
    "fit": lambda cost, fit: fit.plot(),
    "residuals": lambda cost, fit: fit.cost.plot(),
    "filtered": lambda cost, fit: fme.modFit(filtered_cost(), {"q": 1.0, "s": 1.0}).plot(),
    "sensitivities": lambda cost, fit: fme.sensFun(cost, fit.par).plot(),
    "pairs": lambda cost, fit: fme.sensFun(cost, fit.par).pairs(which=["Hare", "Lynx"]),
    "summary": lambda cost, fit: fme.sensFun(cost, fit.par).summary(vars=True).plot(),
    "few sets": lambda cost, fit: fme.collin(columns(4)).plot(),
    "many sets": lambda cost, fit: fme.collin(columns(8)).plot(),
    "identifiability": lambda cost, fit: fme.identifiability(fme.sensFun(cost, fit.par)).plot(),
    "ranges": lambda cost, fit: fme.sensRange(cost.model, parRange={"a": (0.4, 0.6)}, num=5, seed=1).summary().plot(),
    "responses": lambda cost, fit: responses(6, 2).plot(trace=True),
    "responses of one": lambda cost, fit: responses(12, 1).plot(),
    "histograms": lambda cost, fit: responses(3, 2).hist(),
    "response pairs": lambda cost, fit: responses(6, 2).pairs(),
    "chain": lambda cost, fit: SAMPLES["ModMCMC"]().plot(Full=True),
    "chain quantiles": lambda cost, fit: SAMPLES["ModMCMC"]().cumuplot(),
    "chain pairs": lambda cost, fit: SAMPLES["ModMCMC"]().pairs(Full=True),
    "profile": lambda cost, fit: SAMPLES["Profile"]().plot(),
    "landscape": lambda cost, fit: SAMPLES["Landscape"]().plot(),
    "waterfall": lambda cost, fit: SAMPLES["MultiStart"]().plot(),
    "parameters by start": lambda cost, fit: SAMPLES["MultiStart"]().plot("parameters"),
    "comparison": lambda cost, fit: SAMPLES["FitComparison"]().plot(),
    "diagnostics": lambda cost, fit: SAMPLES["FilterResult"]().plot_diagnostics(),
    "forecast": lambda cost, fit: SAMPLES["Forecast"]().plot(),
    "scenarios": lambda cost, fit: SAMPLES["ScenarioSummary"]().plot(),
    "boundary": lambda cost, fit: SAMPLES["BoundaryFit"]().plot(),
    "bad data": lambda cost, fit: fme.screen_bad_data(filtered_cost(), 1.5).plot(),
}


@pytest.mark.parametrize("name", sorted(PICTURES))
def test_no_text_stands_over_text_and_no_legend_over_data(name, cost, fit):
    figure = np.ravel(np.asarray(PICTURES[name](cost, fit), dtype=object))[0].figure
    assert overlapping_texts(figure) == []
    assert covered_panels(figure) == []
    assert figure.get_figwidth() <= 13


def test_what_stands_over_something_else_is_seen(fit):
    _, ax = plt.subplots()
    ax.text(0.5, 0.5, "one text")
    ax.text(0.52, 0.5, "another")
    assert overlapping_texts(ax.figure) == [("one text", "another")]
    assert len(covered_panels(fit.cost.plot(legpos="center").figure)) == 1


# --- ticks


def test_years_are_whole_numbers_without_an_offset(fit):
    ax = fit.plot()[0]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("year", "Hare")
    assert tick_labels(ax.xaxis) == ["1900", "1905", "1910", "1915", "1920"]
    for first, last in ((2001, 2003), (2001.2, 2004.9), (1998, 2026)):
        (panel,) = fme.plot_model({"year": np.linspace(first, last, 50), "y": np.linspace(1e6, 1e6 + 3, 50)})
        labels = tick_labels(panel.xaxis)
        assert len(labels) >= 2
        assert all(label.isdigit() and len(label) == 4 for label in labels)
        values = [float(label) for label in tick_labels(panel.yaxis)]
        assert values[0] == pytest.approx(1e6, abs=1)
        assert panel.xaxis.get_offset_text().get_text() == panel.yaxis.get_offset_text().get_text() == ""


def test_curves_over_data_name_the_x_of_the_data(cost, fit):
    band, ranges = fit.predict(cost.model), fme.sensRange(cost.model, parRange={"a": (0.4, 0.6)}, num=5, seed=1)
    for curves in (band, ranges.summary()):
        assert {ax.get_xlabel() for ax in curves.plot(obs=cost.obs)} == {"year"}
        assert {ax.get_xlabel() for ax in curves.plot()} == {"time"}  # the model's own name


@pytest.mark.parametrize("top", [3e-9, 4e12])
def test_very_large_and_small_numbers_say_their_power_themselves(top):
    (panel,) = fme.plot_model({"x": np.linspace(0, top, 5), "y": np.linspace(0, 1, 5)})
    labels = [label.replace("\N{MINUS SIGN}", "-") for label in tick_labels(panel.xaxis)]
    assert float(labels[-1]) == pytest.approx(top, rel=0.4)
    assert labels[-1].endswith(f"e{int(np.floor(np.log10(top)))}")
    assert overlapping_texts(panel.figure) == []


def test_ticks_keep_apart_in_narrow_panels_and_those_of_users_stay():
    run = {"x": np.linspace(0.00021, 0.00029, 9), "y": np.arange(9.0)}
    _, narrow = plt.subplots(1, 4, figsize=(6, 2), layout="constrained")
    for ax in narrow:
        fme.plot_model(run, axes=ax)
    assert overlapping_texts(narrow[0].figure) == []
    assert all(len(tick_labels(ax.xaxis)) >= 1 for ax in narrow)
    (wide,) = fme.plot_model(run, xticks=[0.00022, 0.00023])
    assert tick_labels(wide.xaxis) == ["0.00022", "0.00023"]
    wide.set_xlim(0.0002, 0.0003)
    (few,) = fme.plot_model(run)
    few.locator_params(axis="x", nbins=2)
    assert len(tick_labels(few.xaxis)) <= 3


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ((0.9, 60.0), ["1", "2", "5", "10", "20", "50"]),
        ((1e-7, 1e-2), ["1e-7", "1e-6", "1e-5", "0.0001", "0.001", "0.01"]),
        ((108.0, 109.0), ["108", "108.2", "108.4", "108.6", "108.8", "109"]),
    ],
)
def test_logarithmic_axes_have_plain_numbers(limits, expected):
    (panel,) = fme.plot_model({"x": [0.0, 1.0], "y": np.array(limits)}, yscale="log", ylim=limits)
    assert tick_labels(panel.yaxis) == expected


# --- sizes


@pytest.mark.parametrize(("parameters", "outputs"), [(6, 2), (4, 3), (12, 1), (3, 4), (8, 2)])
def test_many_responses_have_panels_that_can_be_read(parameters, outputs):
    panels = responses(parameters, outputs).plot()
    assert len(panels) == parameters * outputs
    figure = panels[0].figure
    assert 11 < figure.get_figwidth() <= 13 or parameters < 6
    width, height = panel_sizes(figure).min(axis=0)
    assert width >= 1.5
    assert height >= 1.1


def test_a_grid_of_responses_is_labelled_along_its_sides():
    panels = responses(6, 2).plot().reshape(2, 6)
    assert [ax.get_ylabel() for ax in panels[:, 0]] == ["output0", "output1"]
    assert [ax.get_xlabel() for ax in panels[1]] == [f"parameter{k}" for k in range(6)]
    assert {ax.get_xlabel() for ax in panels[0]} == {ax.get_ylabel() for ax in panels[:, 1:].ravel()} == {""}


# --- colours

_SEEN_BY = {  # Machado, Oliveira and Fernandes (2009), severity 1: what linear RGB becomes
    "all": np.eye(3),
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}


def lab(colour: str, seen_by: str) -> np.ndarray:
    """Return a colour as CIE L*a*b*, as somebody sees it."""
    rgb = np.array(to_rgb(colour))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    linear = np.clip(np.array(_SEEN_BY[seen_by]) @ linear, 0, 1)
    to_xyz = [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.072175], [0.0193339, 0.119192, 0.9503041]]
    xyz = np.array(to_xyz) @ linear / [0.95047, 1, 1.08883]
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def nearest(colours, seen_by: str) -> float:
    values = [lab(c, seen_by) for c in colours]
    return min(float(np.linalg.norm(a - b)) for a, b in itertools.combinations(values, 2))


@pytest.mark.parametrize("seen_by", sorted(_SEEN_BY))
def test_everybody_tells_the_colours_apart(seen_by):
    assert nearest(COLORS, seen_by) > 15
    assert nearest(["#1f77b4", "#ff7f0e", "#2ca02c", "#d62728"], "deuteranopia") < 8  # as matplotlib's are not


def test_pictures_take_these_colours_and_those_of_a_users_style(fit):
    assert [to_hex(line.get_color()) for line in fit.cost.plot().lines[1:3]] == list(COLORS[:2])
    with mpl.rc_context({"axes.prop_cycle": mpl.cycler(color=["red", "blue"])}):
        ax = fit.cost.plot()
        assert [to_hex(line.get_color()) for line in ax.lines[1:3]] == ["#ff0000", "#0000ff"]
    assert color(0) == COLORS[0]


def test_a_legend_names_a_look_once_and_leaves_that_of_a_user_alone():
    @picture
    def two(*, ax=None):
        ax = get_ax(ax)
        ax.plot([1, 2])
        return ax

    _, ax = plt.subplots()
    ax.plot([2, 1], label="mine")
    two(ax=ax)
    assert ax.get_legend() is None  # the picture has labelled nothing
    run = {"t": [0, 1], "a": [1, 2], "b": [2, 3]}
    first, second = fme.plot_model(run, labels=["run"])
    assert [t.get_text() for t in first.get_legend().get_texts()] == ["run"]
    assert second.get_legend() is None


@pytest.mark.parametrize("width", [2.2, 2.85, 3.4, 5.0])
def test_a_legend_above_a_small_panel_keeps_inside_the_figure(width):
    figure, ax = plt.subplots(figsize=(width, 2.5), layout="constrained")
    ax.plot([1, 2], [1, 2], label="day 5")
    ax.plot([1, 2], [2, 2], label="day 17")
    told = ("prediction", "line median, shade q25 to q75, outline q05 to q95")
    for line in (*told, told[1]):
        title_legend(ax, line)  # also of a title that was wrapped before
        add_legend(ax)
    figure.canvas.draw()
    legend = ax.get_legend()
    assert legend.get_window_extent().x1 <= figure.bbox.x1
    assert " ".join(legend.get_title().get_text().split()) == " ".join(told)


def test_labels_of_wide_letters_get_fewer_columns():
    figure, ax = plt.subplots(figsize=(4.0, 2.5), layout="constrained")
    for label in ("WWWWWWWWWWWW", "MMMMMMMMMMMM", "WMWMWMWMWMWM"):
        ax.plot([1, 2], [1, 2], label=label)
    add_legend(ax)
    figure.canvas.draw()
    assert ax.get_legend().get_window_extent().x1 <= figure.bbox.x1


# --- fits


def test_a_fit_shows_data_curve_band_and_residuals(cost, fit):
    panels = fit.plot()
    assert [ax.get_title() for ax in panels] == ["", "", "Hare", "Lynx", "Marq: converged"]
    band = fit.predict(cost.model).frame
    for ax, name in zip(panels, ("Hare", "Lynx"), strict=False):
        rows = band[band["var"] == name]
        curve, seen = ax.lines
        np.testing.assert_array_equal(curve.get_ydata(), rows["fit"])
        np.testing.assert_array_equal(seen.get_xdata(), YEARS)
        ends = ax.collections[0].get_paths()[0].vertices[:, 1]
        assert (ends.min(), ends.max()) == (rows["lower"].min(), rows["upper"].max())
    assert [t.get_text() for t in panels[0].get_legend().get_texts()] == ["fit", "95 % of the model's value", "data"]
    np.testing.assert_array_equal(panels[2].lines[-1].get_ydata(), fit.cost.residuals["res"][:21])


def test_given_axes_for_residuals_and_trace_alone_a_fit_draws_only_these(fit):
    _, axes = plt.subplots(1, 3)
    panels = fit.plot(axes=axes)
    assert [ax.get_title() for ax in panels] == ["Hare", "Lynx", "Marq: converged"]


def test_a_fit_that_was_pickled_or_saved_draws_its_residuals(fit, tmp_path):
    for again in (pickle.loads(pickle.dumps(fit)), fme.load(fit.save(tmp_path / "fit.json"))):
        assert [ax.get_title() for ax in again.plot()] == ["Hare", "Lynx", "Marq: converged"]
        assert again.par.equals(fit.par)


def test_sums_entities_and_filters_show_their_curves(cost):
    tables = [rows[["x", "obs"]].rename(columns={"obs": name}) for name, rows in cost.readings.groupby("name")]
    first, second = (fme.SimulationCost(cost.model, table, x="x") for table in tables)
    both = fme.modFit(first + second, {"a": 0.5})
    assert [ax.get_ylabel() for ax in both.plot()[:2]] == ["Hare", "Lynx"]

    decay = fme.OdeModel("d(C)/dt = -k*C", state={"C": "C0"}, parms={"k": 0.3, "C0": 10.0}, times=np.linspace(0, 4, 9))
    places = itertools.product((("u", 9), ("v", 12)), (0.5, 2, 4))
    rows = [{"animal": who, "time": t, "C": c * np.exp(-0.3 * t) + 0.1 * t} for (who, c), t in places]
    fit = fme.modFit(fme.SimulationCost(decay, pd.DataFrame(rows), entity="animal", entity_parms=["C0"]))
    panels = fit.plot()
    assert [ax.get_title() for ax in panels[:3]] == ["animal u", "animal v", "C"]
    np.testing.assert_array_equal(panels[1].lines[1].get_ydata(), [r["C"] for r in rows[3:]])
    assert len(panels[0].collections) == 1

    tied = lmfit.Parameters()
    tied.add("a", 0.4)
    tied.add("m", expr="1.6 * a")
    tied = fme.modFit(cost, tied)
    curve = tied.plot()[0].lines[0].get_ydata()
    np.testing.assert_array_equal(curve, cost.model({"a": tied.par["a"], "m": 1.6 * tied.par["a"]})["Hare"])

    filtered = fme.modFit(filtered_cost(), {"q": 1.0, "s": 1.0})
    panel = filtered.plot()[0]
    flt = filtered_cost().filter(filtered.par)
    np.testing.assert_array_equal(panel.lines[0].get_ydata(), flt.smoothed["y"])
    ends = panel.collections[0].get_paths()[0].vertices[:, 1]
    assert ends.max() == pytest.approx((flt.smoothed["y"] + 1.959964 * flt.sd()["y"]).max(), rel=1e-6)


def test_a_cost_of_noise_alone_shows_its_curve_without_a_band():
    model = fme.OdeModel("d(A)/dt = -0.5*A", state={"A": 2.0}, times=np.arange(5.0), parms={})
    cost = fme.SimulationCost(model, {"time": [1.0, 2, 3], "A": [1.3, 0.6, 0.5]}, measurement_noise={"A": "estimate"})
    ax = fme.modFit(cost).plot()[0]
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), model()["A"])
    assert not ax.collections


# --- sensitivities


def test_sensitivities_have_a_panel_a_variable_and_the_name_of_x(cost, fit):
    panels = fme.sensFun(cost, fit.par).plot()
    assert [(ax.get_title(), ax.get_xlabel(), ax.get_ylabel()) for ax in panels] == [
        ("Hare", "year", "sensitivity"), ("Lynx", "year", "sensitivity")
    ]  # fmt: skip


def test_collinearity_is_shown_with_names_and_threshold():
    few = fme.collin(columns(3)).plot()
    assert [t.get_text() for t in few.get_yticklabels()] == ["gmax, efficiency", "gmax, ks", "efficiency, ks",
                                                             "gmax, efficiency, ks"]  # fmt: skip
    assert [t.get_text() for t in few.get_legend().get_texts()] == ["threshold 20"]
    found = fme.collin(columns(8))
    many = found.plot()
    assert many.get_xlabel() == "number of parameters, the least collinear set of each"
    pairs = found.frame[found["N"] == 2]
    best = found.sets()[int(pairs["collinearity"].idxmin())]
    assert many.get_xticklabels()[0].get_text() == "\n".join(["2", *best])
    assert many.get_xticklabels()[-1].get_text().endswith("+ 2 more")
    with pytest.raises(fme.errors.ArgumentError, match="`threshold='20'` must be a positive number"):
        found.plot(threshold="20")


def test_a_damaged_result_is_refused_in_words_when_it_is_drawn(cost, fit):
    summary = fme.sensFun(cost, fit.par).summary()
    del summary.frame["L2"]
    with pytest.raises(
        fme.errors.ArgumentError, match=r"plot_summary cannot draw this SensFunSummary \(KeyError: 'L2'\)"
    ):
        summary.plot()
    assert plt.get_fignums() == []


@pytest.mark.parametrize(
    ("noise", "text"), [(0.5, "0.86"), (0.1, "0.99"), (0.05, "0.998"), (0.03, "0.9994"), (0.0, "1.00")]
)
def test_a_correlation_near_one_is_none_of_one(noise, text):
    x = np.linspace(0, 1, 50)
    _, ax = plt.subplots()
    write_correlation(ax, x, 2 * x + noise * np.cos(9 * np.arange(50)))
    assert [t.get_text() for t in ax.texts] == [text]


def test_pairs_of_any_result_tell_a_strong_correlation_from_one():
    x = np.linspace(-1, 1, 50)
    frame = pd.DataFrame({"a": x, "b": 2 * x + 0.1 * np.cos(9 * np.arange(50))})
    panels = plot_pairs(frame)
    assert [t.get_text() for t in panels[1, 0].texts] == ["0.998"]


def test_a_quantity_that_varies_by_rounding_alone_has_ticks_that_differ():
    noise = 1 + 1e-13 * np.sin(np.arange(50))
    (panel,) = fme.plot_model({"x": np.arange(50.0), "y": 6.453990843 * noise})
    labels = tick_labels(panel.yaxis)
    assert len(labels) == len(set(labels)) >= 2


def test_counts_are_whole_numbers():
    panels = responses(3, 2).hist(bins=20)
    assert all(float(label) % 1 == 0 for ax in panels for label in tick_labels(ax.yaxis))


def test_data_look_the_same_everywhere(cost, fit):
    shown = [fit.plot()[0], fit.predict(cost.model).plot(obs=cost.obs)[0],
             fme.sensRange(cost.model, parInput=fit, num=3, seed=1).summary().plot(obs=cost.obs)[0],
             SAMPLES["BoundaryFit"]().plot()[0], SAMPLES["FilterResult"]().plot()[0],
             SAMPLES["Forecast"]().plot()[0]]  # fmt: skip
    seen = [next(line for line in ax.lines if line.get_label() == "data") for ax in shown]
    assert {(line.get_color(), line.get_marker(), line.get_markersize()) for line in seen} == {("0.2", "o", 3.5)}
