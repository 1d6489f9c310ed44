"""SimulationCost is modCost prepared once and evaluated exactly, with an exact Jacobian."""

import pickle
import sys

import numpy as np
import pandas as pd
import pytest

from fmepy.costs import Cost, SimulationCost, modCost
from fmepy.errors import ArgumentError, DataError, ParameterError, SimulationError

OFF_GRID = pd.DataFrame({"time": [0.5, 1.3, 2.0, 3.9], "A": [8.0, 5.0, 4.0, np.nan], "B": [2.0, np.nan, 6.5, 8.0]})
ON_GRID = pd.DataFrame({"time": [0.0, 1, 3, 4], "A": [9.0, 6.0, np.nan, 1.0], "B": [0.5, np.nan, 8.0, 8.0]})


def differences(f, theta, h=1e-6):
    return np.stack([(f(theta + h * e) - f(theta - h * e)) / (2 * h) for e in np.eye(len(theta))], axis=1)


def same(a, b, rel=1e-10):
    assert a.model == pytest.approx(b.model, rel=rel)
    assert a.minlogp == pytest.approx(b.minlogp, rel=rel)
    pd.testing.assert_frame_equal(a.var, b.var, rtol=rel)
    pd.testing.assert_frame_equal(a.residuals, b.residuals, rtol=rel)
    pd.testing.assert_frame_equal(a.dropped, b.dropped)


@pytest.mark.parametrize("weight", ["none", "std", "mean"])
@pytest.mark.parametrize("scaleVar", [False, True])
def test_exact_grid_and_modcost_agree_when_all_observations_lie_on_the_grid(decay, weight, scaleVar):
    args = {"weight": weight, "scaleVar": scaleVar}
    expected = modCost(decay({"k": 0.4}), ON_GRID, **args)
    same(SimulationCost(decay, ON_GRID, **args)({"k": 0.4}), expected)
    same(SimulationCost(decay, ON_GRID, interpolate="grid", **args)({"k": 0.4}), expected)


def test_grid_is_modcost_off_the_grid_too_and_exact_is_the_model_itself(decay):
    same(SimulationCost(decay, OFF_GRID, interpolate="grid")(), modCost(decay(), OFF_GRID))
    exact = SimulationCost(decay, OFF_GRID)().residuals
    A = exact[exact.name == "A"]
    assert A["mod"].tolist() == pytest.approx(list(10 * np.exp(-0.5 * A["x"])), rel=1e-14)


def test_long_data_with_errors_keep_their_order(decay):
    long = {"v": ["B", "A", "B"], "t": [3.0, 1.0, 2.0], "y": [8.0, 6.0, 6.0], "sd": [0.1, 0.2, 0.4]}
    bound = SimulationCost(decay, long, x="t", y="y", err="sd").bind()
    assert bound.names == ("B", "B", "A")
    assert bound.x.tolist() == [3.0, 2.0, 1.0]
    assert bound.weights.tolist() == pytest.approx([10, 2.5, 5])
    assert bound.groups.tolist() == [0, 0, 1]
    assert bound.group_names == ("B", "A")
    assert bound.residuals(bound.theta0)[2] == pytest.approx((10 * np.exp(-0.5) - 6.0) / 0.2)


@pytest.mark.parametrize("interpolate", ["exact", "grid"])
@pytest.mark.parametrize("transform", [None, "log", {"A": "log", "B": "sqrt"}])
@pytest.mark.parametrize("names", [None, ["k"], ["k", "A0"]])
def test_the_jacobian_is_that_of_the_residuals(decay, interpolate, transform, names):
    cost = SimulationCost(decay, OFF_GRID, weight="std", interpolate=interpolate, transform=transform)
    bound = cost.bind(names)
    theta = bound.theta0 * 1.1
    assert bound.jacobian(theta) == pytest.approx(differences(bound.residuals, theta), rel=1e-7, abs=1e-7)
    assert bound.jacobian(theta).shape == (len(bound.names), len(bound.parameter_names))


def test_residuals_before_and_after_a_jacobian_are_the_same(decay):
    bound = SimulationCost(decay, OFF_GRID).bind(["k"])
    theta = np.array([0.3])
    before = bound.residuals(theta)
    bound.jacobian(theta)
    assert np.array_equal(bound.residuals(theta), before)


def test_all_quantities_derive_from_the_bound_cost(decay):
    cost = SimulationCost(decay, OFF_GRID, weight="mean", scaleVar=True)
    bound = cost.bind(["k"])
    theta = np.array([0.3])
    r, value = bound.residuals(theta), cost({"k": 0.3})
    assert value.model == pytest.approx(np.sum((bound.scales[bound.groups] ** 1.5 * r) ** 2), rel=1e-13)
    assert bound.minus2loglik(theta) == pytest.approx(2 * value.minlogp, rel=1e-13)
    same(bound.modcost(theta), value)
    assert r.tolist() == pytest.approx(value.residuals["res"].tolist())
    assert bound.lower.tolist() == [-np.inf]
    assert (bound.is_scalar, bound.has_jacobian, bound.retries) == (False, True, 0)


def test_a_transform_compares_transformed_values_with_errors_on_that_scale(decay):
    data = {"time": [1.0, 2.0], "A": [5.0, 4.0], "B": [4.0, 6.0], "sd": [0.1, 0.2]}
    cost = SimulationCost(decay, data, err="sd", transform={"A": "log"})()
    A = cost.residuals.iloc[:2]
    assert A["obs"].tolist() == pytest.approx(np.log([5.0, 4.0]).tolist())
    assert A["res.unweighted"].tolist() == pytest.approx((np.log(10) - 0.5 * A["x"] - A["obs"]).tolist())
    assert A["res"].tolist() == pytest.approx((A["res.unweighted"] / [0.1, 0.2]).tolist())
    assert cost.residuals.iloc[2:]["obs"].tolist() == [4.0, 6.0]


def test_the_square_root_of_a_start_at_zero_that_nothing_moves_has_a_derivative_of_zero(decay):
    bound = SimulationCost(decay, {"time": [0.0, 1.0], "B": [0.0, 4.0]}, transform="sqrt").bind(["k"])
    assert bound.jacobian(np.array([0.5]))[0, 0] == 0.0
    assert bound.residuals(np.array([0.5]))[0] == 0.0
    moved = SimulationCost(decay, {"time": [0.0, 1.0], "A": [0.0, 4.0]}, transform="sqrt").bind(["A0"])
    with pytest.raises(SimulationError, match="square root has no derivative"):
        moved.jacobian(np.array([0.0]))


def test_without_x_the_means_are_compared(decay):
    cost = SimulationCost(decay, {"A": [4.0, 6.0], "B": [5.0, 7.0]}, x=None, weight="mean")
    same(cost(), modCost(decay(), {"A": [4.0, 6.0], "B": [5.0, 7.0]}, x=None, weight="mean"))
    bound = cost.bind()
    assert bound.jacobian(bound.theta0) == pytest.approx(differences(bound.residuals, bound.theta0), rel=1e-7)


# -------------------------------------------------------------------------------------------------------- wrong input


def test_an_unknown_variable_is_told_with_the_nearest(decay):
    with pytest.raises(DataError, match=r"'Aa' is not a variable of the model. Did you mean 'A'\?"):
        SimulationCost(decay, {"time": [1], "Aa": [1.0]})


def test_an_unknown_parameter_is_told_with_the_nearest(growth):
    cost = SimulationCost(growth, {"time": [1], "N": [1.0]})
    for wrong in (lambda: cost({"N_0": 0.3}), lambda: cost.bind(["N_0"])):
        with pytest.raises(ParameterError, match="Did you mean 'N0'"):
            wrong()
    with pytest.raises(ParameterError, match="has no names"):
        cost([1.0, 2.0, 3.0])


def test_observations_outside_the_times_of_the_model_are_an_error_or_counted(decay):
    data = {"time": [-1.0, 1.0, 4.5], "A": [1.0, 2.0, 3.0]}
    with pytest.raises(DataError, match=r"2 of 3 observations of 'A' .*from -1 to 4.5, that of the model from 0 to 4"):
        SimulationCost(decay, data)
    cost = SimulationCost(decay, data, outside="drop")
    assert cost().dropped["outside"].tolist() == [2]
    assert "2 dropped" in repr(cost)
    with pytest.raises(DataError, match="No observations of 'A' are left"):
        SimulationCost(decay, {"time": [9.0], "A": [1.0]}, outside="drop")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"weight": "sd"}, "'std'"),
        ({"interpolate": "exakt"}, "Did you mean 'exact'"),
        ({"outside": "dropp"}, "Did you mean 'drop'"),
        ({"transform": "ln"}, "'log', 'sqrt'"),
        ({"transform": {"a": "log"}}, "'a' is not an observed variable. Did you mean 'A'"),
        ({"transform": {"A": "loq"}}, "Did you mean 'log'"),
        ({"transform": 3}, "got int"),
    ],
)
def test_unknown_words_are_told(decay, args, message):
    with pytest.raises(ArgumentError, match=message):
        SimulationCost(decay, {"time": [1.0], "A": [1.0]}, **args)


@pytest.mark.parametrize(("transform", "value"), [("log", 0.0), ("log", -1.0), ("sqrt", -1.0)])
def test_data_that_cannot_be_transformed_are_told_by_variable_row_and_value(decay, transform, value):
    with pytest.raises(DataError, match=f"observation of 'A' in row 1 is {value:g}, which has no {transform}"):
        SimulationCost(decay, {"time": [0.0, 1.0], "A": [1.0, value]}, transform=transform)


def test_a_model_value_that_cannot_be_transformed_is_a_failed_run(decay):
    bound = SimulationCost(decay, {"time": [0.0, 1.0], "B": [1.0, 4.0]}, transform="log").bind(["k"])
    with pytest.raises(SimulationError, match=r"value of 'B' at time = 0 is 0, which has no log") as failure:
        bound.residuals(np.array([0.7]))
    assert failure.value.parameters == {"A0": 10.0, "k": 0.7}
    assert failure.value.time == 0.0
    with pytest.raises(SimulationError, match="has no log"):
        bound.jacobian(np.array([0.7]))


def test_a_compared_value_that_is_not_finite_is_a_failed_run_that_names_variable_and_time(decay):
    cost = SimulationCost(decay, {"time": [1.0, 3.0], "logA": [1.0, 2.0]})
    with pytest.raises(SimulationError, match=r"value of 'logA' at time = 1 is nan") as failure:
        cost({"A0": -1.0})
    assert failure.value.parameters == {"A0": -1.0, "k": 0.5}
    bound = cost.bind(["A0"])
    with pytest.raises(SimulationError, match="'logA'"):
        bound.jacobian(np.array([0.0]))
    again = pickle.loads(pickle.dumps(failure.value))
    assert again.parameters == failure.value.parameters


def test_values_that_nobody_compares_may_be_what_they_like(decay):
    assert np.isnan(decay()["broken"]).all()
    assert np.isfinite(SimulationCost(decay, OFF_GRID)().model)


def test_large_but_finite_values_are_not_taken_for_a_failure(decay):
    bound = SimulationCost(decay, {"time": [0.0], "A": [1.0]}).bind(["A0"])
    assert bound.residuals(np.array([1e200])).tolist() == [1e200]


def test_a_failed_run_of_the_model_passes_through(decay):
    with pytest.raises(SimulationError, match="The run failed"):
        SimulationCost(decay, OFF_GRID)({"k": 1000.0})


def test_a_function_in_place_of_a_model_is_told_what_to_do():
    with pytest.raises(ArgumentError, match="return modCost"):
        SimulationCost(lambda p: p, OFF_GRID)
    with pytest.raises(ArgumentError, match="got DataFrame"):
        SimulationCost(OFF_GRID, OFF_GRID)


# ---------------------------------------------------------------------------------------------------------- contract


def test_it_is_a_cost_and_pickles(decay):
    cost = SimulationCost(decay, OFF_GRID, transform="sqrt")
    assert isinstance(cost, Cost)
    value = cost()
    again = pickle.loads(pickle.dumps(cost))
    assert "_bound" in vars(cost)
    assert "_bound" not in vars(again)
    same(again(), value)
    assert pickle.loads(pickle.dumps(cost.bind(["k"]))).residuals(np.array([0.5])) == pytest.approx(
        value.residuals["res"].to_numpy()
    )


def test_it_cannot_be_changed_from_outside(decay):
    data = OFF_GRID.copy()
    cost = SimulationCost(decay, data)
    before = cost().model
    own = cost.parms
    own["k"] = 99.0
    data["A"] = 0.0
    assert cost().model == before
    with pytest.raises(AttributeError):
        cost.weight = "std"


def test_replace_changes_arguments_merges_dicts_and_refuses_unknown_ones(decay):
    cost = SimulationCost(decay, OFF_GRID, transform={"A": "log"})
    both = cost.replace(transform={"B": "sqrt"}, weight="std")
    assert both.transform == {"A": "log", "B": "sqrt"}
    assert both.weight == "std"
    assert cost.weight == "none"
    assert both.replace(model=decay.replace(parms={"k": 0.1})).parms["k"] == 0.1
    with pytest.raises(ArgumentError, match="Did you mean 'weight'"):
        cost.replace(wieght="std")


def test_hold_engine_reaches_the_model(decay):
    SimulationCost(decay, OFF_GRID).bind(["k"], hold_engine=True)
    assert decay.bindings[-1] == (("k",), True)


def test_only_the_observation_times_are_run_in_exact_mode(decay):
    bound = SimulationCost(decay, OFF_GRID).bind()
    bound.residuals(bound.theta0)
    assert decay.runs[-1][1].tolist() == [0.5, 1.3, 2.0, 3.9]


@pytest.mark.parametrize("transform", [None, "log"])
def test_an_evaluation_adds_few_calls_to_the_run(decay, transform):
    t = np.linspace(0.1, 4, 60)
    data = {"time": t, "A": 10 * np.exp(-0.5 * t), "B": 10 - 10 * np.exp(-0.5 * t)}
    bound = SimulationCost(decay, data, transform=transform).bind()
    model = bound.predictions.bound
    Y = model.simulate(bound.theta0)
    model.simulate = lambda theta: Y
    theta = bound.theta0
    bound.residuals(theta)
    calls = []
    sys.setprofile(lambda frame, event, argument: calls.append(event) if event in ("call", "c_call") else None)
    try:
        bound.residuals(theta)
    finally:
        sys.setprofile(None)
    assert len(calls) < 25, "a handful of numpy's functions: pandas or a loop over data would be hundreds"
