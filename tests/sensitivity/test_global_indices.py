"""global_indices: SALib's indices of known functions, over outputs and over time, with failed runs told."""

from __future__ import annotations

import logging
import pickle
import sys

import numpy as np
import pandas as pd
import pytest

from fmepy.errors import ArgumentError, FmepyError, ParameterError, SimulationError
from fmepy.models.ode import OdeModel

pytest.importorskip("SALib")

from fmepy.montecarlo.samplers import as_ranges
from fmepy.sensitivity import global_indices
from fmepy.sensitivity.global_indices import _METHODS

UNIT = {"a": (0.0, 1.0), "b": (0.0, 1.0)}
ISHIGAMI = {k: (-np.pi, np.pi) for k in ("x1", "x2", "x3")}


def ishigami(p):
    return np.sin(p["x1"]) + 7 * np.sin(p["x2"]) ** 2 + 0.1 * p["x3"] ** 4 * np.sin(p["x1"])


EXACT = {"S1": [0.3139, 0.4424, 0.0], "ST": [0.5576, 0.4424, 0.2437]}  # Ishigami with 7 and 0.1


@pytest.mark.parametrize(("method", "num", "atol"), [("sobol", 1024, 0.06), ("fast", 257, 0.05)])
def test_indices_are_those_of_ishigamis_function(method, num, atol):
    found = global_indices(ishigami, ISHIGAMI, method=method, num=num, seed=1)
    for column, values in EXACT.items():  # fast: the bias of four harmonics, whatever the number of runs
        np.testing.assert_allclose(found[column], values, atol=atol)
    assert found.parameters == ("x1", "x2", "x3")
    assert found.runs == num * (5 if method == "sobol" else 3)
    if method == "sobol":
        assert (np.abs(found["S1"] - EXACT["S1"]) < 2 * found["S1_conf"] + 1e-3).all()
        assert list(found.columns) == ["var", "parameter", "S1", "S1_conf", "ST", "ST_conf"]


def test_sobols_indices_are_those_of_salib():
    from SALib.analyze import sobol

    rng = np.random.default_rng(1)
    kind = _METHODS["sobol"](as_ranges(ISHIGAMI), 64, rng)
    y = ishigami(dict(zip(ISHIGAMI, kind.design.T, strict=True))) + 3.0
    whole = sobol.analyze(kind.problem, y, calc_second_order=False, seed=7)
    ours = kind.analyse(y, np.ones(64, dtype=bool), 7)
    for name in ("S1", "S1_conf", "ST", "ST_conf"):
        np.testing.assert_allclose(ours[name], whole[name], rtol=1e-11, atol=1e-14)
    usable = np.arange(64) % 3 > 0
    part = sobol.analyze(kind.problem, y[np.repeat(usable, 5)], calc_second_order=False, seed=1)
    np.testing.assert_allclose(kind.analyse(y, usable, 0)["ST"], part["ST"], rtol=1e-12)


def test_elementary_effects_of_a_plane_are_its_slopes():
    found = global_indices(lambda p: 3 * p["a"] - 2 * p["b"] + 1, UNIT, method="morris", num=10, seed=1)
    np.testing.assert_allclose(found["mu"], [3, -2])
    np.testing.assert_allclose(found["mu_star"], [3, 2])
    np.testing.assert_allclose(found["sigma"], 0, atol=1e-12)
    assert found.runs == 30


def test_several_outputs_have_their_own_indices():
    found = global_indices(lambda p: {"u": p["a"], "v": p["b"]}, UNIT, num=128, seed=1)
    assert found["var"].tolist() == ["u", "u", "v", "v"]
    np.testing.assert_allclose(found["ST"], [1, 0, 0, 1], atol=0.02)
    assert found.xname is None
    one = global_indices(lambda p: {"u": p["a"], "v": p["b"]}, UNIT, sensvar="v", num=128, seed=1)
    assert one.var == ("v",)


def test_over_time_there_is_a_row_per_time_and_nothing_where_nothing_varies():
    model = OdeModel("d(A)/dt = -k * A\nA(0) = A0", times=[0, 1, 4], parms={"k": 0.5, "A0": 10.0})
    found = global_indices(model, {"k": (0.4, 0.6), "A0": (8, 12)}, num=128, seed=1)
    assert found.xname == "time"
    assert found["x"].tolist() == [0, 0, 1, 1, 4, 4]
    total = found.frame.pivot(index="x", columns="parameter", values="ST")
    assert total.loc[0].tolist() == pytest.approx([1, 0], abs=0.02)  # A0, k: at the start only A0 counts
    assert total["k"].is_monotonic_increasing
    fixed = global_indices(model, {"k": (0.4, 0.6)}, num=64, seed=1).frame
    assert np.isnan(fixed.loc[fixed["x"] == 0, "S1"]).all()
    np.testing.assert_allclose(fixed.loc[fixed["x"] > 0, "ST"], 1, atol=0.1)


def test_rows_go_by_variable_then_x_then_parameter():
    def course(p):
        return {"t": [1.0, 2.0], "u": [p["a"], p["b"]], "v": [p["b"], p["a"]]}

    found = global_indices(course, UNIT, num=64, seed=1)
    assert found["var"].tolist() == ["u"] * 4 + ["v"] * 4
    assert found["x"].tolist() == [1, 1, 2, 2] * 2
    assert found["parameter"].tolist() == ["a", "b"] * 4
    assert found.xname == "t"
    np.testing.assert_allclose(found["ST"], [1, 0, 0, 1, 0, 1, 1, 0], atol=0.03)


def test_other_parameters_stay_where_they_are():
    seen = []

    def f(p):
        seen.append(p["c"])
        return p["a"] * p["c"]

    global_indices(f, {"a": (0, 1)}, parms={"a": 0.5, "c": 7.0}, num=8, seed=1)
    assert set(seen) == {7.0}


def test_a_table_of_ranges_and_further_arguments_will_do():
    ranges = pd.DataFrame({"min": [0, 0], "max": [1, 1]}, index=["a", "b"])
    found = global_indices(lambda p, f, g: f * p["a"] + g, ranges, num=64, seed=1, args=(2.0,), kwargs={"g": 1.0})
    np.testing.assert_allclose(found["ST"], [1, 0], atol=0.05)


@pytest.mark.parametrize(("method", "num"), [("sobol", 32), ("morris", 8), ("fast", 65)])
def test_the_same_seed_gives_the_same_indices_and_numpys_own_state_is_left_alone(method, num):
    state = np.random.get_state()[1].copy()  # noqa: NPY002    # the state that must not be touched
    a, b, c = (global_indices(ishigami, ISHIGAMI, method=method, num=num, seed=s).frame for s in (0, 0, 1))
    pd.testing.assert_frame_equal(a, b)
    assert not a.equals(c)
    np.testing.assert_array_equal(state, np.random.get_state()[1])  # noqa: NPY002


def test_runs_on_threads_give_the_same():
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(2) as pool:
        spread = global_indices(ishigami, ISHIGAMI, num=32, seed=1, executor=pool)
    pd.testing.assert_frame_equal(spread.frame, global_indices(ishigami, ISHIGAMI, num=32, seed=1).frame)


# --- failed runs


def fragile(p):
    if p["a"] > 0.97:
        raise RuntimeError("the model blows up")
    return p["a"] + 2 * p["b"]


@pytest.mark.parametrize(("method", "num", "rows"), [("sobol", 256, 4), ("morris", 50, 3)])
def test_blocks_with_a_failed_run_are_left_out_and_told(method, num, rows, caplog):
    with caplog.at_level(logging.WARNING, logger="fmepy.sensitivity"):
        found = global_indices(fragile, UNIT, method=method, num=num, seed=1)
    assert found.dropped > 0
    assert found.blocks + found.dropped == num
    assert found.runs == num * rows
    assert len(found.failures) >= found.dropped
    assert all(p["a"] > 0.97 for p in found.failures["parameters"])
    assert found.failures["message"].str.contains("blows up").all()
    assert f"{found.dropped} of {num} blocks" in caplog.text
    assert "left out" in repr(found)
    if method == "sobol":  # a is uniform on 0..0.97: its share is 0.94 / (0.94 + 4)
        np.testing.assert_allclose(found["ST"], [0.19, 0.81], atol=0.06)
    else:
        np.testing.assert_allclose(found["mu"], [1.0, 2.0], rtol=1e-9)  # what is left of a plane has its slopes


def test_on_a_search_curve_a_failed_run_costs_that_parameter_its_indices():
    calls = []

    def one_fails(p):
        calls.append(1)
        return np.nan if len(calls) == 12 else p["a"] + 2 * p["b"]  # the first call is the try before the runs

    found = global_indices(one_fails, UNIT, method="fast", num=129, seed=1)
    assert np.isnan(found["S1"][0])
    assert found["ST"][1] == pytest.approx(0.8, abs=0.03)
    assert found.dropped == 1
    assert "'X1' is nan" in found.failures["message"][0]


def test_an_output_that_nobody_asked_for_may_be_anything():
    found = global_indices(lambda p: {"y": p["a"], "z": np.nan}, UNIT, sensvar="y", num=16, seed=1)
    assert found.dropped == 0


def test_if_hardly_a_run_succeeds_it_is_an_error():
    def hopeless(p):
        if p["a"] != 0.5:
            raise RuntimeError("no")
        return p["a"]

    with pytest.raises(SimulationError, match=r"leaves 0 of 16 blocks.*RuntimeError: no"):
        global_indices(hopeless, {"a": (0, 1)}, num=16, seed=1)


# --- the object, bad input


def test_it_prints_delegates_and_pickles():
    found = global_indices(lambda p: p["a"], UNIT, num=16, seed=1)
    assert "(sobol: 64 runs)" in repr(found)
    assert len(found) == 2
    pd.testing.assert_frame_equal(pickle.loads(pickle.dumps(found)).frame, found.frame)
    assert "<table" in found._repr_html_()


@pytest.mark.parametrize(
    ("ranges", "arguments", "error", "words"),
    [
        (UNIT, {"method": "sobl"}, ArgumentError, "Did you mean 'sobol'"),
        (UNIT, {"num": 1000}, ArgumentError, "a power of 2, such as 512 or 1024"),
        (UNIT, {"num": 1}, ArgumentError, "at least 2"),
        (UNIT, {"num": 64, "method": "fast"}, ArgumentError, "more than 64"),
        (UNIT, {"sensvar": "y", "num": 2}, ArgumentError, "no variable 'y'"),
        ({"a": (1, 0)}, {}, ParameterError, "min 1 above max 0"),
        ({"a": (1, 1)}, {}, ParameterError, "min < max"),
        ({"a": 1}, {}, ParameterError, r"two numbers \(min, max\)"),
        ({}, {}, ParameterError, "empty"),
        ([1, 2], {}, ParameterError, r"must be a dict of \(min, max\) by name, such as"),
        (3, {}, ParameterError, "must be a dict"),
        (pd.DataFrame({"lo": [0], "hi": [1]}), {}, ParameterError, "columns 'min' and 'max'"),
        (UNIT, {"parms": {"a": 1.0}, "num": 2}, ParameterError, "`parRange`: there is no parameter 'b'"),
    ],
)
def test_what_cannot_be_is_told(ranges, arguments, error, words):
    with pytest.raises(error, match=words):
        global_indices(lambda p: p["a"] * p["b"], ranges, **arguments)


def test_without_salib_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "SALib", None)
    monkeypatch.setitem(sys.modules, "SALib.analyze", None)
    with pytest.raises(FmepyError, match=r"pip install fmepy\[global\]"):
        global_indices(lambda p: p["a"], UNIT)
