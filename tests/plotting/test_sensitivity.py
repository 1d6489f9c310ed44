"""Pictures of sensitivities show what their numbers say, on the axes that were asked for."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

import fmepy as fme
from fmepy.errors import ArgumentError
from fmepy.sensitivity import collin, global_indices, identifiability, sensFun

PARMS = {"A0": 10.0, "k": 0.5, "z": 2.0}


def decay(p):
    t = np.array([0.0, 1.0, 2.0, 4.0])
    return {"time": t, "A": p["A0"] * np.exp(-p["k"] * t), "B": p["A0"] * (1 - np.exp(-p["k"] * t)) + p["z"]}


@pytest.fixture
def sens():
    return sensFun(decay, PARMS, varscale=1)


def texts(ax):
    legend = ax.get_legend()
    return [] if legend is None else [t.get_text() for t in legend.get_texts()]


def test_all_variables_share_a_single_axes(sens):
    (ax,) = sens.plot(axes=plt.subplots()[1])
    assert ax.get_title() == "All variables"
    assert ax.get_xlabel() == "time"
    lines = [line for line in ax.lines if len(line.get_xdata()) == 4]
    assert len(lines) == 6
    np.testing.assert_array_equal(lines[1].get_ydata(), sens.matrix["k"][:4])
    assert set(texts(ax)) == {"A0", "k", "z", "A", "B"}


def test_without_which_there_is_a_panel_per_variable(sens):
    assert [(ax.get_title(), ax.get_xlabel()) for ax in sens.plot()] == [("A", "time"), ("B", "time")]


def test_with_which_there_is_a_panel_per_variable(sens):
    panels = sens.plot(which=["B", 0], xlabel="day", linewidth=3)
    assert [ax.get_title() for ax in panels] == ["B", "A"]
    assert panels[0].get_xlabel() == "day"
    assert panels[0].lines[1].get_linewidth() == 3
    assert texts(panels[0]) == ["A0", "k", "z"]
    assert not texts(panels[1])


def test_no_legend_and_given_axes(sens):
    _, ax = plt.subplots()
    (drawn,) = sens.plot(legpos=None, axes=ax)
    assert drawn is ax
    assert not texts(ax)
    with pytest.raises(ArgumentError, match="legpos"):
        sens.plot(legpos="nowhere")
    with pytest.raises(ArgumentError, match="no variable 'C'"):
        sens.plot(which="C")


def test_one_row_is_drawn_as_points():
    (ax,) = sensFun(lambda p: {"y": p["a"] * p["b"]}, {"a": 1.0, "b": 2.0}).plot()
    assert [line.get_marker() for line in ax.lines[1:]] == ["o", "s"]


def test_pairs_show_points_above_and_correlations_below(sens):
    panels = sens.pairs()
    assert panels.shape == (3, 3)
    np.testing.assert_array_equal(panels[0, 1].lines[0].get_xdata(), sens.matrix["k"])
    np.testing.assert_array_equal(panels[0, 1].lines[0].get_ydata(), sens.matrix["A0"])
    assert panels[1, 1].get_title() == "k"
    assert panels[1, 0].texts[0].get_text() == f"{sens.matrix.corr().loc['A0', 'k']:.2f}"


def test_pairs_of_one_variable_have_its_points_alone(sens):
    panels = sens.pairs(which="A", color="green")
    assert len(panels[0, 1].lines) == 1
    assert panels[0, 1].lines[0].get_color() == "green"
    rows = sens.matrix[sens["var"] == "A"]
    assert panels[1, 0].texts[0].get_text() == f"{rows.corr().loc['A0', 'k']:.2f}"
    assert panels[2, 0].texts[0].get_text() == "-"  # z has no influence on A: no correlation
    both = sens.pairs(which=["A", "B"])
    assert texts(both[0, 1]) == ["A", "B"]
    np.testing.assert_array_equal(both[0, 1].lines[1].get_ydata(), sens.matrix["A0"][sens["var"] == "B"])
    with pytest.raises(ArgumentError, match="at least two"):
        sensFun(decay, PARMS, senspar="k", varscale=1).pairs()


def test_a_summary_is_five_dot_charts(sens):
    panels = sens.summary().plot()
    assert [ax.get_title() for ax in panels] == ["L1", "L2", "Mean", "Min", "Max"]
    np.testing.assert_array_equal(panels[1].lines[1].get_xdata(), sens.summary()["L2"])
    assert [t.get_text() for t in panels[0].get_yticklabels()] == ["A0", "k", "z"]
    assert panels[0].yaxis_inverted()  # the first parameter on top
    assert panels[0].lines[0].get_linestyle() == ":"


def test_a_summary_by_variable_has_a_mark_per_variable(sens):
    summary = sens.summary(vars=True)
    panels = summary.plot()
    frame = summary.frame
    np.testing.assert_array_equal(panels[0].lines[2].get_xdata(), frame.loc[frame["var"] == "B", "L1"])
    assert [t.get_text() for t in panels[0].get_yticklabels()] == ["A0", "k", "z"]
    assert texts(panels[0]) == ["A", "B"]
    _, given = plt.subplots(5)
    assert texts(summary.plot(axes=given)[0]) == ["A", "B"]
    one = sensFun(decay, PARMS, sensvar="B", varscale=1).summary(vars=True)
    assert [t.get_text() for t in one.plot()[0].get_yticklabels()] == ["A0", "k", "z"]


def test_a_ranking_has_the_largest_on_top_and_a_mark_per_variable():
    sens = sensFun(decay, {"z": 2.0, "k": 0.5, "A0": 10.0}, varscale=1)
    ax = sens.plot_ranking()
    ranked = sens.ranking("L2")
    assert list(ranked.index) == ["A0", "k", "z"]
    assert [t.get_text() for t in ax.get_yticklabels()] == list(ranked.index)
    assert [bar.get_width() for bar in ax.patches] == ranked.tolist()
    parts = sens.summary(vars=True).frame
    a = parts[parts["var"] == "A"]["L2"].to_numpy()
    by_name = dict(zip(["z", "k", "A0"], a, strict=True))
    np.testing.assert_array_equal(ax.lines[0].get_xdata(), [by_name[n] for n in ranked.index])
    with pytest.raises(ArgumentError, match="Did you mean 'L2'"):
        sens.plot_ranking("L22")


def test_collinearity_is_a_strip_chart_with_its_threshold():
    found = collin(np.random.default_rng(0).normal(size=(8, 5)))
    ax = found.plot(log=True, threshold=20)
    points = ax.lines[0]
    np.testing.assert_array_equal(points.get_ydata(), found["collinearity"])
    np.testing.assert_array_equal(np.round(points.get_xdata()), found["N"])
    assert ax.get_yscale() == "log"
    assert texts(ax) == ["threshold 20"]
    assert ax.get_xticks().tolist() == [2, 3, 4, 5]
    assert ax.get_xticklabels()[3].get_text() == "5\n" + "\n".join(found.parameters)
    plain = found.plot(log=False, threshold=None, color="C2")
    assert plain.get_yscale() == "linear"
    assert not texts(plain)


def test_infinite_collinearities_are_shown_above_all_others():
    found = collin(np.column_stack([np.eye(4)[:, :3], [1.0, 0, 0, 0]]))
    ax = found.plot(threshold=20)
    infinite = int(np.isinf(found["collinearity"]).sum())
    assert infinite == 4  # {1, 4} and all larger sets with both
    marks = ax.lines[-1]
    assert len(marks.get_xdata()) == infinite
    assert marks.get_xdata().min() > 20
    names = [t.get_text() for t in ax.get_yticklabels()]
    assert names == [", ".join(one) for one in found.sets()]  # few sets stand below each other
    beyond = found.frame.index[np.isinf(found["collinearity"])]
    assert [names[k] for k in marks.get_ydata()] == [", ".join(found.sets()[k]) for k in beyond]


def test_identifiability_shows_inflation_and_combinations():
    S = pd.DataFrame({"a": [1.0, 2, 3, 4], "b": [1.0, 2, 3, 4.01], "c": [1.0, 0, 0, 1]})
    found = identifiability(S)
    panels = found.plot()
    assert len(panels) == 2
    np.testing.assert_allclose([bar.get_width() for bar in panels[0].patches], found["vif"])
    np.testing.assert_allclose(
        [bar.get_width() for bar in panels[1].patches], found.combinations.iloc[0, 1:].astype(float)
    )
    exact = identifiability(S.assign(b=2 * S["a"])).plot()
    assert "infinite" in exact[0].get_title()
    assert [bool(bar.get_hatch()) for bar in exact[0].patches] == [True, True, False]
    assert exact[1].get_title() == "undetermined exactly"


@pytest.mark.parametrize(
    ("method", "num", "labels"),
    [
        ("sobol", 16, ["total", "first order"]),
        ("fast", 65, ["total", "first order"]),
        ("morris", 4, ["mean |effect|", "sd of effects"]),
    ],
)
def test_global_indices_are_bars(method, num, labels):
    pytest.importorskip("SALib")
    found = global_indices(
        lambda p: {"u": p["a"], "v": p["b"]}, {"a": (0, 1), "b": (0, 1)}, method=method, num=num, seed=1
    )
    panels = found.plot()
    assert [ax.get_title() for ax in panels] == ["u", "v"]
    assert texts(panels[0]) == labels
    assert [t.get_text() for t in panels[0].get_yticklabels()] == ["a", "b"]
    column = "mu_star" if method == "morris" else "ST"
    assert [bar.get_width() for bar in panels[0].patches[:2]] == found[column][:2].tolist()


def test_global_indices_over_time_are_lines():
    pytest.importorskip("SALib")
    model = fme.OdeModel("d(A)/dt = -k * A\nA(0) = A0", times=[0, 1, 4], parms={"k": 0.5, "A0": 10.0})
    found = global_indices(model, {"k": (0.4, 0.6), "A0": (8, 12)}, num=16, seed=1)
    (ax,) = found.plot(which="A", ylim=(-0.2, 1.2))
    assert texts(ax) == ["k, total", "k, first order", "A0"]
    assert ax.get_xlabel() == "time"
    np.testing.assert_array_equal(ax.lines[2].get_ydata(), found.frame.query("parameter == 'A0'")["ST"])


def test_experiments_have_courses_of_their_own():
    """Lines do not lead from the last reading of one subject to the first of the next, nor to and fro between them."""
    times = np.array([0.5, 1.0, 2.0, 4.0])
    model = fme.OdeModel("dN/dt = -k * N", state={"N": 10.0}, parms={"k": 0.5}, times=np.linspace(0, 5, 21))
    data = pd.concat([pd.DataFrame({"who": w, "time": times + 0.1 * w, "N": 10 * np.exp(-times / 2)}) for w in (1, 2)])
    cost = fme.SimulationCost(model, data, entity="who", entity_parms=("k",))
    (panel,) = fme.sensFun(cost, {"k[1]": 0.5, "k[2]": 0.6}).plot()
    for line in (line for line in panel.lines if line.get_label().startswith("k[")):
        assert np.isnan(line.get_xdata()).tolist() == [False] * 4 + [True] + [False] * 4


@pytest.mark.parametrize("noisy", [True, False])
def test_rows_of_the_spread_are_points_of_their_own(noisy):
    model = fme.OdeModel("dA/dt = -k*A", state={"A": 5.0}, times=range(6), parms={"k": 0.3})
    words = {"measurement_noise": {"A": "r"}, "parms": {"r": 0.2}}
    if noisy:
        cost = fme.FimlofCost(model, model(), process_noise={"A": 0.1}, **words)
    else:
        cost = fme.SimulationCost(model, model(), **words)
    sens = fme.sensFun(cost)
    np.testing.assert_array_equal(sens.spreads, np.arange(12) >= 6)
    (panel,) = sens.plot()
    curves = {line.get_label(): line for line in panel.lines}
    np.testing.assert_array_equal(curves["k"].get_ydata(), sens.matrix["k"][:6])
    points = [line.get_ydata() for line in panel.lines if line.get_marker() == "." and len(line.get_xdata())]
    np.testing.assert_array_equal(points, sens.matrix[6:].T)
    assert "of the spread" in curves


def test_counts_have_no_rows_of_the_spread():
    model = fme.OdeModel("dA/dt = -k*A", state={"A": 50.0}, times=range(6), parms={"k": 0.3})
    twice = pd.concat([model().round(), model().round().assign(A=lambda d: d["A"] + 1)])
    assert fme.sensFun(fme.SimulationCost(model, twice, likelihood="poisson")).spreads is None
