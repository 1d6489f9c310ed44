"""Whatever the user gives as a model becomes one function of a plain vector."""

from __future__ import annotations

import pickle

import cloudpickle
import lmfit
import numpy as np
import pandas as pd
import pytest

import fmepy as fme
from fmepy.costs.user_function import as_simulator
from fmepy.errors import ArgumentError, ParameterError, SimulationError
from tests.models.problems import bacteria_model, hiv_model

X = np.arange(3.0)


def line(p):
    return pd.DataFrame({"x": X, "y": p["a"] + p["b"] * X, "z": p["b"]})


@pytest.fixture(scope="module")
def bact():
    return bacteria_model()


# --- fmepy models


def test_a_model_is_bound_to_the_varied_parameters(bact):
    simulator = as_simulator(bact, varied=["rB", "gmax"])
    assert simulator.names == ("rB", "gmax")
    assert simulator.theta0.tolist() == [0.01, 0.5]
    assert simulator.var_names == ("Bact", "Sub", "TOC")
    assert (simulator.x_name, simulator.is_single_row, simulator.rtol, simulator.exact) == ("time", False, 1e-6, True)
    table = bact({"rB": 0.02, "gmax": 0.6})
    np.testing.assert_allclose(simulator.run(np.array([0.02, 0.6])), table.iloc[:, 1:], rtol=1e-12)
    np.testing.assert_array_equal(simulator.x, table["time"])


def test_given_parms_are_where_the_others_stay(bact):
    simulator = as_simulator(bact, {"eff": 0.4, "gmax": 0.6}, varied=["gmax"])
    assert simulator.theta0.tolist() == [0.6]
    np.testing.assert_allclose(simulator.run(np.array([0.7])), bact({"eff": 0.4, "gmax": 0.7}).iloc[:, 1:], rtol=1e-12)
    assert simulator.parameters.series()["eff"] == 0.4
    assert as_simulator(bact, {"eff": 0.4, "gmax": 0.6}).names == ("eff", "gmax")
    assert as_simulator(bact, ["eff"]).names == ("eff",)
    assert as_simulator(bact).names == tuple(bact.parms.index)


def test_sensitivities_are_those_of_the_bound_model(bact):
    theta = np.array([0.55, 0.012])
    Y, S = as_simulator(bact, varied=["gmax", "dB"]).sensitivities(theta)
    expected = bact.bind(["gmax", "dB"]).sensitivities(theta)
    np.testing.assert_array_equal(Y, expected[0])
    np.testing.assert_array_equal(S, expected[1])


def test_a_transformed_model_keeps_its_scale(bact):
    logged = fme.transformed(bact, "log")
    simulator = as_simulator(logged, {"eff": np.log(0.4)}, varied=["gmax"])
    np.testing.assert_allclose(simulator.run(np.log([0.6])), bact({"eff": 0.4, "gmax": 0.6}).iloc[:, 1:], rtol=1e-5)
    Y, S = simulator.sensitivities(np.log([0.6]))
    assert S.shape == (*Y.shape, 1)
    assert simulator.rtol == 1e-6


def test_lmfit_ties_move_with_the_free_parameters(bact):
    p = lmfit.Parameters()
    p.add("gmax", 0.5)
    p.add("eff", 0.5, vary=False)
    p.add("rB", expr="gmax / 50")
    simulator = as_simulator(bact, p)
    assert simulator.names == ("gmax",)
    expected = bact({"gmax": 0.6, "rB": 0.012}).iloc[:, 1:]
    np.testing.assert_allclose(simulator.run(np.array([0.6])), expected, rtol=1e-12)


def test_models_with_fixed_steps_have_no_tolerance(bact):
    assert as_simulator(bact.replace(method="rk4")).rtol is None


def test_a_simulator_travels(bact):
    for simulator in (as_simulator(bact, varied=["eff"]), as_simulator(line, {"a": 1, "b": 2}, varied=["b"])):
        there = cloudpickle.loads(cloudpickle.dumps(simulator))
        np.testing.assert_array_equal(there.run(simulator.theta0), simulator.run(simulator.theta0))
        assert there.names == simulator.names


# --- functions


def test_a_table_gives_x_and_variables():
    simulator = as_simulator(line, {"a": 1, "b": 2}, varied=["b"])
    assert (simulator.var_names, simulator.x_name, simulator.x.tolist()) == (("y", "z"), "x", [0, 1, 2])
    assert simulator.run(np.array([3.0])).tolist() == [[1, 3], [4, 3], [7, 3]]
    assert not simulator.exact
    assert simulator.rtol is None
    with pytest.raises(ArgumentError, match="no sensitivities"):
        simulator.sensitivities(np.array([3.0]))


def test_map_says_which_column_is_x():
    by_name = as_simulator(line, {"a": 1, "b": 2}, map="y")
    assert (by_name.x_name, by_name.var_names) == ("y", ("x", "z"))
    by_position = as_simulator(line, {"a": 1, "b": 2}, map=2)
    assert (by_position.x_name, by_position.places([1]).tolist()) == ("z", [1])
    none = as_simulator(line, {"a": 1, "b": 2}, map=None)
    assert (none.x_name, none.x.tolist(), none.var_names) == ("x", [1, 2, 3], ("x", "y", "z"))


def test_a_model_knows_its_own_x(bact):
    assert as_simulator(bact, map="time").x_name == "time"
    with pytest.raises(ArgumentError, match=r"`map='tme'`: the model knows its own x, 'time'; leave `map` out"):
        as_simulator(bact, map="tme")


def test_positions_of_variables_count_x():
    simulator = as_simulator(line, {"a": 1, "b": 2})
    assert simulator.places([2, "y"]).tolist() == [1, 0]
    assert simulator.places(None).tolist() == [0, 1]
    with pytest.raises(ArgumentError, match="is 'x', which is x"):
        simulator.places(0)


@pytest.mark.parametrize(
    ("returned", "names"),
    [
        (lambda p: {"u": p["a"], "v": 1}, ("u", "v")),
        (lambda p: pd.Series({"u": p["a"], "v": 1}), ("u", "v")),
        (lambda p: p["a"], ("X1",)),
        (lambda p: np.array(p["a"]), ("X1",)),
        (lambda p: [p["a"], 1], ("X1", "X2")),
    ],
)
def test_one_row_in_any_form(returned, names):
    simulator = as_simulator(returned, {"a": 5.0})
    assert simulator.var_names == names
    assert simulator.is_single_row
    assert simulator.x.tolist() == [1]
    assert simulator.run(np.array([7.0]))[0, 0] == 7


def test_what_the_user_gave_is_what_the_function_receives():
    def checked(p, q, *, r):
        assert isinstance(p, np.ndarray)
        return p[0] * q + r

    simulator = as_simulator(checked, [1.0, 2.0], varied=["p1"], args=(10,), kwargs={"r": 1})
    assert simulator.run(np.array([3.0])).item() == 31


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.rename(columns={"y": "w"}), "the variables 'w', 'z', but 'y', 'z' at the start"),
        (lambda t: t.iloc[:2], "2 rows, but 3 at the start"),
        (lambda t: t.assign(x=t["x"] + 1), "other values of 'x'"),
        (lambda t: t.assign(y="a"), "'y' holds 'a' in row 0"),
        (lambda t: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_a_run_that_returns_something_else_is_a_failed_run(change, message):
    simulator = as_simulator(lambda p: line(p) if p["a"] < 2 else change(line(p)), {"a": 1.0, "b": 1.0})
    with pytest.raises(SimulationError, match=message) as told:
        simulator.run(np.array([2.0, 1.0]))
    assert told.value.parameters == {"a": 2.0, "b": 1.0}


@pytest.mark.parametrize(
    ("func", "given", "message"),
    [
        (lambda p: None, {}, "returned NoneType"),
        (lambda p: {"x": X, "y": X[:2]}, {}, "differ in length"),
        (lambda p: {"x": X, "y": 1.0}, {}, "differ in length"),
        (lambda p: {"x": X}, {}, "the only column is x"),
        (lambda p: {"x": ["a", "b"], "y": [1, 2]}, {}, "'x' holds .*'a'.* in row 0"),
        (lambda p: np.zeros((2, 2, 2)), {}, r"shape \(2, 2, 2\)"),
        (lambda p: pd.DataFrame({"x": [], "y": []}), {}, "has no rows"),
        (lambda p: {"x": X, "y": X}, {"map": "t"}, "no such column"),
        (lambda p: {"x": X, "y": X}, {"map": 2}, "positions go from 0 to 1"),
        (lambda p: 1 / 0, {}, "fails at the start"),
        (lambda p, q: q, {"args": "ab"}, "`args` must be a tuple"),
        (lambda p: 1, {"kwargs": [1]}, "`kwargs` must be a dict"),
        (3, {}, "got int"),
    ],
)
def test_what_is_no_model_is_told(func, given, message):
    with pytest.raises(ArgumentError, match=message):
        as_simulator(func, {"a": 1.0}, **given)


def test_costs_and_extra_arguments_to_models_are_told(bact):
    with pytest.raises(ArgumentError, match="`func` is a cost"):
        as_simulator(fme.SimulationCost(bact, {"time": [1.0], "Bact": [1.0]}))
    with pytest.raises(ArgumentError, match="takes parameters only"):
        as_simulator(bact, args=(1,))
    with pytest.raises(ParameterError, match="Did you mean 'gmax'"):
        as_simulator(bact, varied=["gmx"])
    with pytest.raises(ParameterError, match="`parms` is missing"):
        as_simulator(line)


def test_a_failed_run_of_a_model_carries_its_parameters():
    with pytest.raises(SimulationError) as told:
        as_simulator(hiv_model(), varied=["bet"]).run(np.array([1e300]))
    assert told.value.parameters["bet"] == 1e300


def test_a_model_of_tied_parameters_keeps_its_sensitivities(decay):
    p = lmfit.Parameters()
    p.add("k", value=0.3)
    p.add("A0", expr="20 * k")
    simulator = as_simulator(decay, p)
    assert (simulator.names, simulator.is_model) == (("k",), True)
    theta = simulator.theta0
    assert simulator.run(theta) == pytest.approx(decay.bind(["A0", "k"]).simulate(np.array([6.0, 0.3])), nan_ok=True)
    _, S = simulator.sensitivities(theta)
    differences = (simulator.run(theta + 1e-6) - simulator.run(theta - 1e-6)) / 2e-6
    assert S[:, :, 0] == pytest.approx(differences, rel=1e-5, abs=1e-7, nan_ok=True)
    again = pickle.loads(pickle.dumps(simulator))
    assert again.run(theta) == pytest.approx(simulator.run(theta), nan_ok=True)
