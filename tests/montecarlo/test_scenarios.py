"""A scenario is the run that its row says; the same sets in each, so that differences are paired."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

import fmepy as fme
from fmepy.errors import ArgumentError, InterruptedWarning, ModelError, ParameterError

TIMES = np.linspace(0, 6, 13)
DOSES = [{"var": "A", "time": 2.0, "value": "dose", "method": "add"}, {"var": "A", "time": 4.0, "value": 5.0}]
LIGHT = pd.DataFrame({"time": [0.0, 6.0], "light": [1.0, 3.0]})
DRAWS = pd.DataFrame({"k": [0.3, 0.5, 0.9], "dose": [8.0, 10.0, 12.0]})


def rhs(t, A, B, light, *, k=0.5, dose=10.0, gain=1.0):
    return -k * A, k * A + gain * light - 0.1 * B


def build(**words):
    return fme.OdeModel(rhs, **{
        "state": {"A": "dose", "B": 2.0}, "times": TIMES, "forcings": {"light": [(0, 1.0), (6, 1.0)]}, **words,
    })  # fmt: skip


@pytest.fixture(scope="module")
def model():
    return build()


TABLE = {
    "as it is": {},
    "fast": {"k": 2.0},
    "more": {"dose": 20.0, "gain": 0.0},
    "from five": {"A": 5.0, "B": 1.0},
    "again": {"events": DOSES},
    "bright": {"forcings": {"light": LIGHT}, "k": 0.1},
}


def by_hand(model, name, draw=None):
    """Return the run of one scenario as somebody would make it who knows no scenarios."""
    said = dict(TABLE[name])
    changes = {k: said.pop(k) for k in ("events", "forcings") if k in said}
    state = {k: said.pop(k) for k in ("A", "B") if k in said}
    return build(**changes, **({"state": {"A": "dose", "B": 2.0, **state}} if state else {}))(
        {**(draw or {}), **said} or None
    )


def cells(result, name, which=0):
    rows = result.frame[(result.frame["scenario"] == name) & (result.frame["set"] == which)]
    return rows[list(result.var)].to_numpy()


# --- right


def test_every_scenario_is_the_run_that_it_says(model):
    result = fme.scenarios(model, TABLE)
    assert list(result.columns) == ["scenario", "set", "x", "A", "B"]
    assert result.names == tuple(TABLE)
    assert len(result) == len(TABLE) * len(TIMES)
    for name in TABLE:
        np.testing.assert_allclose(cells(result, name), by_hand(model, name)[["A", "B"]], rtol=1e-5, atol=1e-6)


def test_the_same_sets_run_in_every_scenario_and_what_it_sets_wins(model):
    result = fme.scenarios(model, TABLE, parInput=DRAWS)
    pd.testing.assert_frame_equal(result.pars, DRAWS)
    for name in TABLE:
        for i, draw in enumerate(DRAWS.to_dict("records")):
            expected = by_hand(model, name, draw)[["A", "B"]]
            np.testing.assert_allclose(cells(result, name, i), expected, rtol=1e-5, atol=1e-5)


def test_differences_are_paired(model):
    result = fme.scenarios(model, TABLE, parInput=DRAWS)
    apart = result.difference("as it is")
    assert apart.names == tuple(TABLE)[1:]
    assert apart.base == "as it is"
    for name in apart.names:
        for i in range(3):
            np.testing.assert_array_equal(cells(apart, name, i), cells(result, name, i) - cells(result, "as it is", i))
    rows = apart.summary().frame.query("scenario == 'fast' and var == 'B'")
    own = np.stack([cells(apart, "fast", i)[:, 1] for i in range(3)])
    np.testing.assert_allclose(rows["Mean"], own.mean(axis=0))
    np.testing.assert_allclose(rows["Sd"], own.std(axis=0, ddof=1))
    np.testing.assert_allclose(rows["q25"], np.quantile(own, 0.25, axis=0))
    assert (rows["N"] == 3).all()


def test_what_all_share_does_not_blur_a_difference():
    """y = a + b with a uncertain: b's effect is exact, however uncertain a is."""
    result = fme.scenarios(lambda p: {"y": p["a"] + p["b"]}, {"low": {"b": 1.0}, "high": {"b": 3.0}},
                           parms={"a": 0.0, "b": 0.0}, parInput={"a": np.arange(50.0)})  # fmt: skip
    assert result.summary()["Sd"].min() > 14
    spread = result.difference("low").summary()
    assert (spread["Mean"].item(), spread["Sd"].item(), spread["N"].item()) == (2.0, 0.0, 50)


def test_the_parameters_of_all_scenarios(model):
    result = fme.scenarios(model, {"a": {}, "b": {"k": 1.0}}, parms={"gain": 3.0})
    np.testing.assert_allclose(cells(result, "b"), model({"gain": 3.0, "k": 1.0})[["A", "B"]], rtol=1e-6)


def test_results_do_not_depend_on_the_executor(model):
    table = {name: TABLE[name] for name in ("as it is", "from five", "again")}
    here = fme.scenarios(model, table, parInput=DRAWS)
    there = fme.scenarios(model, table, parInput=DRAWS, executor=2)
    pd.testing.assert_frame_equal(here.frame, there.frame, check_exact=True)


def test_a_model_is_compiled_once(model):
    from fmepy.models.engines import explicit

    before = explicit._functions.cache_info().misses
    fresh = build(parms={"k": 0.51})
    table = {f"s{i}": {"A": float(i), "k": 0.1 * i + 0.1} for i in range(6)}
    fme.scenarios(fresh, table)
    assert explicit._functions.cache_info().misses <= before + 1


def test_a_state_called_x_keeps_its_name():
    model = fme.DifferenceModel("next(x) = a*x", state={"x": 1.0}, times=[0, 1, 2], parms={"a": 2.0})
    result = fme.scenarios(model, {"one": {}, "two": {"x": 3.0}})
    assert list(result.columns) == ["scenario", "set", "time", "x"]
    assert result["x"].tolist() == [1, 2, 4, 3, 6, 12]
    assert result.summary()["q50"].tolist() == [1, 2, 4, 3, 6, 12]


def test_an_initial_value_that_is_a_parameter_is_that_parameter():
    model = fme.OdeModel("d(y)/dt = -k*y\nd(z)/dt = y", state={"y": "y0", "z": "2*z0"}, times=[0, 1],
                         parms={"k": 1.0, "y0": 3.0, "z0": 0.0})  # fmt: skip
    result = fme.scenarios(model, {"three": {}, "two": {"y": 2.0}}, parInput={"y0": [1.0, 5.0, 7.0]})
    start = result.frame[result.frame["x"] == 0]
    assert start["y"].tolist() == [1, 5, 7, 2, 2, 2]
    with pytest.raises(ParameterError, match="scenario 'both' sets 'y', and 'y0', which is its initial value"):
        fme.scenarios(model, {"both": {"y": 2.0, "y0": 1.0}})
    free = fme.scenarios(model, {"z": {"z": 1.0, "z0": 7.0}}).frame
    assert free["z"].iloc[0] == 1.0, "a number arrives as it was given"


def test_a_scenario_of_an_entity():
    table = pd.DataFrame({"who": ["a", "b"], "time": 1.0, "B": [3.0, 4.0]})
    cost = fme.SimulationCost(build(), table, entity="who", entity_parms=["k"])
    result = fme.scenarios(cost.models[1], {"as it is": {}, "fast": {"k[b]": 2.0, "gain": 0.0}, "five": {"A": 5.0}})
    by_itself = build()({"k": 2.0, "gain": 0.0})
    np.testing.assert_allclose(cells(result, "fast"), by_itself[["A", "B"]], rtol=1e-5, atol=1e-6)
    assert cells(result, "five")[0].tolist() == [5.0, 2.0]


def test_a_model_without_parameters_is_refused():
    model = fme.OdeModel("d(y)/dt = -y", state={"y": 1.0}, times=[0, 1])
    with pytest.raises(ArgumentError, match="The model has no parameters"):
        fme.scenarios(model, {"one": {}, "two": {"y": 2.0}})


# --- tables and draws


def test_a_table_with_gaps_says_what_a_dict_says(model):
    frame = pd.DataFrame(
        {"k": [np.nan, 2.0, None], "A": [None, None, 5.0], "events": [None, DOSES, []]}, index=["a", "b", "c"]
    )
    one = fme.scenarios(build(events=DOSES), frame)
    two = fme.scenarios(build(events=DOSES), {"a": {}, "b": {"k": 2.0, "events": DOSES}, "c": {"A": 5.0, "events": []}})
    pd.testing.assert_frame_equal(one.frame, two.frame)
    named = fme.scenarios(build(events=DOSES), frame.rename_axis("scenario").reset_index())
    pd.testing.assert_frame_equal(one.frame, named.frame)
    assert fme.scenarios(model, pd.DataFrame({"k": [0.1, 0.2]})).names == (0, 1)


def test_chains_ranges_and_draws_are_uncertainty(model):
    chain = fme.modMCMC(lambda p: ((p["k"] - 0.5) / 0.1) ** 2, {"k": 0.5}, niter=50, seed=1, jump=0.1)
    for given in (chain, chain.pars):
        result = fme.scenarios(model, {"a": {}}, parInput=given, num=7, seed=2)
        assert result.pars.index.names == ["chain", "iteration"]
        assert len(result.pars) == 7
        assert result.frame["set"].max() == 6
    ranges = pd.DataFrame({"min": [0.2, 1.0], "max": [0.4, 1.0]}, index=["k", "gain"])
    result = fme.scenarios(model, {"a": {}, "b": {}}, parInput=ranges, num=20, seed=2)
    assert result.pars["k"].between(0.2, 0.4).all()
    np.testing.assert_array_equal(result.values()[0], result.values()[1])
    again = fme.scenarios(model, {"a": {}, "b": {}}, parInput=ranges, num=20, seed=2)
    pd.testing.assert_frame_equal(result.frame, again.frame)


def test_draws_of_logarithms_go_into_the_model_of_logarithms(model):
    data = model()[["time", "B"]].assign(B=lambda d: d["B"] + 0.1 * np.sin(9 * d["time"]))
    cost = fme.transformed(fme.SimulationCost(model, data), "log", names=["k"])
    chain = fme.modMCMC(cost, {"k": np.log(0.5)}, niter=30, seed=1, jump=0.1, var0=1.0)
    logs = fme.transformed(model, "log", names=["k"])
    result = fme.scenarios(logs, {"a": {}, "b": {"gain": 0.0}}, parInput=chain, num=3)
    draw = np.exp(result.pars["k"].iloc[0])
    np.testing.assert_allclose(cells(result, "a"), model({"k": draw})[["A", "B"]], rtol=1e-5)
    with pytest.raises(ParameterError, match=r"`parInput` holds 'log\(k\)'"):
        fme.scenarios(model, {"a": {}}, parInput=chain)


# --- failures


def fragile(p):
    if p["a"] > 2:
        raise ValueError("too much")
    return {"x": [0.0, 1.0], "y": [p["a"], p["b"]]}


@pytest.mark.parametrize("executor", [None, 2])
def test_failures_are_kept_and_counted(executor, caplog):
    table = {"base": {}, "b": {"b": 5.0}, "all fail": {"a": 9.0}}
    result = fme.scenarios(
        fragile, table, parms={"a": 1.0, "b": 1.0}, parInput={"a": [1.0, 2.0, 3.0]}, executor=executor
    )
    assert result.failures["scenario"].tolist() == ["base", "b"] + ["all fail"] * 3
    assert result.failures["set"].tolist() == [2, 2, 0, 1, 2]
    assert result.failures["message"].unique().tolist() == ["ValueError: too much"]
    assert result.failures["parameters"].iloc[1] == {"a": 3.0, "b": 5.0}
    assert result.frame["y"].isna().sum() == 10
    summary = result.summary().frame.groupby("scenario", sort=False)["N"].first()
    assert summary.to_dict() == {"base": 2, "b": 2, "all fail": 0}
    assert result.difference("base").summary().frame["N"].tolist() == [2, 2, 0, 0]
    assert "5 runs failed" in repr(result)
    assert len(result.plot()[0].lines) == 3
    plt.close("all")


def test_ctrl_c_returns_what_is_done():
    def stopping(p):
        if p["a"] == 3:
            raise KeyboardInterrupt
        return p["a"]

    with pytest.warns(InterruptedWarning, match="2 of 6 runs were done"):
        result = fme.scenarios(stopping, {"one": {}, "two": {"b": 1.0}}, parms={"a": 0.0, "b": 0.0},
                               parInput={"a": [1.0, 2.0, 3.0]})  # fmt: skip
    assert result.interrupted
    assert result.frame["X1"].notna().sum() == 2
    assert result.failures["error"].unique().tolist() == ["Interrupted"]
    assert "4 runs not run (Ctrl-C)" in repr(result)
    assert "failed" not in repr(result)


# --- pictures


def test_a_picture_has_a_line_a_scenario_and_says_what_the_band_is(model):
    result = fme.scenarios(model, {"a": {}, "b": {"k": 2.0}}, parInput=DRAWS)
    panels = result.plot(xlabel="time, h", ylabel=["A, mg", "B, mg"])
    assert [(ax.get_xlabel(), ax.get_ylabel()) for ax in panels] == [("time, h", "A, mg"), ("time, h", "B, mg")]
    legend = panels[0].get_legend()
    assert [t.get_text() for t in legend.get_texts()] == ["a", "b"]
    assert legend.get_title().get_text() == "median, 5 to 95 %"
    rows = result.summary().frame.query("scenario == 'b' and var == 'B'")
    np.testing.assert_array_equal(panels[1].lines[1].get_ydata(), rows["q50"])
    assert len(panels[1].collections) == 2
    (ax,) = result.difference("a").plot(which="B")
    assert ax.get_ylabel() == "B, difference to 'a'"
    assert ax.lines[1].get_color() == panels[1].lines[1].get_color(), "a scenario keeps its colour"
    plain = fme.scenarios(model, {"a": {}, "b": {"k": 2.0}}).plot()
    assert not plain[0].collections
    plt.close("all")


def test_single_numbers_are_dots_below_each_other():
    result = fme.scenarios(lambda p: p["a"] * p["b"], {"one": {}, "two": {"b": 3.0}}, parms={"a": 1.0, "b": 2.0},
                           parInput={"a": [1.0, 2.0, 3.0]})  # fmt: skip
    (ax,) = result.plot()
    assert [t.get_text() for t in ax.get_yticklabels()] == ["one", "two"]
    assert ax.lines[0].get_xdata().tolist() == [4.0, 6.0]
    plt.close("all")


# --- bad input


@pytest.mark.parametrize(
    ("table", "error", "match"),
    [
        ({"a": {"kk": 1.0}}, ParameterError, "'kk' is neither a parameter nor a state, .* Did you mean 'k'"),
        ({"a": {"event": []}}, ParameterError, "Did you mean 'events'"),
        ({"a": {"k": "fast"}}, ParameterError, "scenario 'a' has 'fast' for 'k'; a finite number"),
        ({"a": {"k": np.inf}}, ParameterError, "has inf for 'k'"),
        ({"a": {"k": True}}, ParameterError, "has True for 'k'"),
        ({"a": {"A": [1.0, 2.0]}}, ParameterError, "for 'A'; a finite number"),
        ({"a": {"events": [{"var": "C", "time": 1, "value": 1}]}}, ModelError, "scenario 'a': .*'C' is not a state"),
        ({"a": {"forcings": {"lite": LIGHT}}}, ArgumentError, "scenario 'a': "),
        ({"k": 0.5}, ArgumentError, r"`table\['k'\]` must be a dict of what that scenario sets"),
        ({}, ArgumentError, "holds no scenario"),
        (pd.DataFrame({"k": []}), ArgumentError, "holds no scenario"),
        (pd.DataFrame({"k": [1.0, 2.0]}, index=["a", "a"]), ArgumentError, "more than one scenario 'a'"),
        (pd.DataFrame([[1.0, 2.0]], columns=["k", "k"]), ArgumentError, "more than one column 'k'"),
        (pd.DataFrame({"k": [1.0, 2.0]}, index=["a", None]), ArgumentError, "need one name each"),
        ([1.0], ArgumentError, "must be a DataFrame with a row a scenario"),
        (None, ArgumentError, "must be a DataFrame with a row a scenario"),
    ],
)  # fmt: skip
def test_a_table_that_cannot_be_is_told(model, table, error, match):
    with pytest.raises(error, match=match):
        fme.scenarios(model, table)


def test_other_bad_input_is_told(model):
    one = {"a": {}}
    with pytest.raises(ParameterError, match="two draws, or a range"):
        fme.scenarios(model, one, parInput={"k": (0.1, 0.2)})
    fit = fme.modFit(lambda p: [p["k"] - 1, p["k"] - 2], {"k": 1.0})
    assert len(fme.scenarios(model, one, parInput=fit, num=7, seed=1).pars) == 7
    with pytest.raises(ParameterError, match=r"`parInput`: there is no parameter 'gains'\. Did you mean 'gain'"):
        fme.scenarios(model, one, parInput={"gains": [1.0, 2.0, 3.0]})
    with pytest.raises(ArgumentError, match="Did you mean 'B'"):
        fme.scenarios(model, one, sensvar="b")
    with pytest.raises(ArgumentError, match="`num=0`"):
        fme.scenarios(model, one, num=0)
    with pytest.raises(ArgumentError, match="`model` is a cost"):
        fme.scenarios(fme.SimulationCost(model, model()[["time", "A"]]), one)
    with pytest.raises(ArgumentError, match="must be a fmepy model or a function"):
        fme.scenarios(3, one, parms={"k": 1.0})
    with pytest.raises(ParameterError, match="knows parameters only"):
        fme.scenarios(fragile, {"a": {"events": []}}, parms={"a": 1.0, "b": 1.0})
    with pytest.raises(ArgumentError, match="A variable is called 'set'"):
        fme.scenarios(lambda p: {"set": p["a"]}, {"a": {}}, parms={"a": 1.0})
    runs = fme.scenarios(model, {"base": {}, "k": {"k": 1.0}})
    with pytest.raises(ArgumentError, match="Did you mean 'base'"):
        runs.difference("bas")
    with pytest.raises(ArgumentError, match="differences already"):
        runs.difference("base").difference("k")
    with pytest.raises(ArgumentError, match="is the only scenario"):
        fme.scenarios(model, one).difference("a")


def test_a_checkpoint_gives_the_same_scenarios_without_running_them(tmp_path):
    calls = []

    def f(p):
        calls.append(p)
        return {"t": [0.0, 1.0], "y": [p["a"], p["a"] * p["b"]]}

    ask = {"table": {"as it is": {}, "twice": {"b": 2.0}}, "parms": {"a": 1.0, "b": 1.0}, "seed": 1}
    draws = pd.DataFrame({"a": [1.0, 2.0, 3.0]})
    whole = fme.scenarios(f, **ask, parInput=draws)
    first = fme.scenarios(f, **ask, parInput=draws, checkpoint=tmp_path / "c")
    calls.clear()
    again = fme.scenarios(f, **ask, parInput=draws, checkpoint=tmp_path / "c")
    assert len(calls) <= 2, "the function is looked at, and no run is"
    pd.testing.assert_frame_equal(first.frame, whole.frame)
    pd.testing.assert_frame_equal(again.frame, whole.frame)
    with pytest.raises(ArgumentError, match="another question"):
        fme.scenarios(f, **ask, parInput=2 * draws, checkpoint=tmp_path / "c")
