"""as_objective: whatever the user gave becomes one objective."""

import lmfit
import numpy as np
import pandas as pd
import pytest

import fmepy as fme
from fmepy.costs.mapped import transformed
from fmepy.costs.sum import SumCost
from fmepy.costs.user_function import as_objective
from fmepy.errors import ArgumentError, ParameterError, SimulationError
from fmepy.numerics.differences import Differences, magnitudes

X = np.array([1.0, 2.0, 3.0, 4.0])


def decay(p):
    return p["a"] * np.exp(-p["k"] * X) - np.array([0.7, 0.4, 0.3, 0.1])


def slopes(p):
    return np.column_stack([np.exp(-p["k"] * X), -p["a"] * X * np.exp(-p["k"] * X)])


START = {"a": 1.0, "k": 0.5}


def test_the_kind_is_found_by_one_evaluation():
    calls = []

    def f(p):
        calls.append(p)
        return decay(p)

    objective = as_objective(f, START)
    assert (objective.kind, objective.n_obs, objective.is_scalar) == ("vector", 4, False)
    assert len(calls) == 1
    objective.residuals(objective.theta0)
    assert len(calls) == 1, "the evaluation at the start is not done twice"
    assert as_objective(lambda p: 3.0, START).kind == "number"
    assert as_objective(lambda p: np.float64(3.0), START).is_scalar
    assert as_objective(lambda p: pd.Series([1.0, 2.0]), START).kind == "vector"
    assert as_objective(lambda p: [1.0, 2.0], START).n_obs == 2
    assert as_objective(lambda p: np.array([3.0]), START).kind == "vector", "length one is still residuals"


def test_a_modcost_brings_its_groups_scales_and_weights():
    run = pd.DataFrame({"time": [0.0, 1, 2, 3], "A": 1.0, "B": 2.0})
    obs = pd.DataFrame({"time": [1.0, 2.0, 3.0], "A": [1.5, 0.5, np.nan], "B": [1.0, 1.0, 2.0]})

    def f(p):
        table = run.assign(A=run.A * p["s"], B=run.B * p["s"])
        return fme.modCost(table, obs, weight="mean", scaleVar=True)

    objective = as_objective(f, {"s": 1.0})
    cost = f({"s": 1.0})
    assert objective.kind == "modcost"
    assert objective.names == ("A", "A", "B", "B", "B")
    assert objective.groups.tolist() == [0, 0, 1, 1, 1]
    assert objective.group_names == ("A", "B")
    np.testing.assert_allclose(objective.scales, [1 / 2, 1 / 3])
    np.testing.assert_array_equal(objective.x, [1, 2, 1, 2, 3])
    assert objective.value(objective.theta0) == pytest.approx(cost.model, rel=1e-13)
    assert objective.minus2loglik(objective.theta0) == pytest.approx(2 * cost.minlogp, rel=1e-13)
    assert objective.modcost(objective.theta0).model == cost.model
    r = objective.scaled_residuals(objective.theta0)
    assert r @ r == pytest.approx(cost.model, rel=1e-13)


def test_a_fmepy_cost_is_bound_once_and_gives_its_own_jacobian():
    model = fme.OdeModel("d(N)/dt = -k * N", state={"N": "N0"}, times=np.linspace(0, 4, 9), parms={"k": 0.5, "N0": 2.0})
    cost = fme.SimulationCost(model, pd.DataFrame({"time": [1.0, 2.0, 3.5], "N": [1.0, 0.8, 0.4]}))
    objective = as_objective(cost, ["k"])
    assert objective.kind == "cost"
    assert objective.parameter_names == ("k",)
    assert objective.has_jacobian
    t = np.array([1.0, 2.0, 3.5])
    np.testing.assert_allclose(objective.jacobian(objective.theta0)[:, 0], -2 * t * np.exp(-0.5 * t), rtol=1e-4)
    assert objective.modcost(objective.theta0).model == pytest.approx(cost().model, rel=1e-6)
    by_hand = as_objective(cost, ["k"], jac=lambda p: np.full((3, 1), p["k"]))
    np.testing.assert_array_equal(by_hand.jacobian(by_hand.theta0), np.full((3, 1), 0.5))
    with pytest.raises(ParameterError, match="Did you mean 'N0'"):
        as_objective(cost, ["n0"])
    with pytest.raises(ArgumentError, match="for functions of your own"):
        as_objective(cost, ["k"], args=(1,))
    with pytest.raises(ArgumentError, match="`f` is a model"):
        as_objective(model, ["k"])


def test_tied_parameters_of_a_fmepy_cost_follow_the_chain_rule():
    model = fme.OdeModel("d(N)/dt = -k * N", state={"N": "N0"}, times=np.linspace(0, 4, 9), parms={"k": 0.5, "N0": 2.0})
    cost = fme.SimulationCost(model, pd.DataFrame({"time": [1.0, 2.0, 3.5], "N": [1.0, 0.8, 0.4]}))
    q = lmfit.Parameters()
    q.add("k", value=0.5, min=0.1)
    q.add("N0", expr="4 * k")
    objective = as_objective(cost, q)
    assert objective.parameter_names == ("k",)
    assert objective.lower.tolist() == [0.1]
    t = np.array([1.0, 2.0, 3.5])
    exact = (4 - 4 * 0.5 * t) * np.exp(-0.5 * t)
    np.testing.assert_allclose(objective.jacobian(objective.theta0)[:, 0], exact, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("start", [START, {"a": 1e-6, "k": 500.0}, {"a": 0.0, "k": 0.5}, {"a": -3.0, "k": 0.0}])
def test_differences_of_a_smooth_function_are_good_to_six_digits(start):
    objective = as_objective(decay, start)
    theta = objective.theta0
    exact = slopes(dict(zip(start, theta, strict=True)))
    np.testing.assert_allclose(objective.jacobian(theta), exact, rtol=2e-6, atol=2e-7 * max(1, np.abs(exact).max()))
    assert not objective.differences.central


@pytest.mark.parametrize("noise", [1e-10, 1e-8, 1e-6])
def test_the_noise_of_a_function_is_found_and_its_derivatives_survive_it(noise):
    def noisy(p):
        # a hash of the parameters: the same at the same point, unrelated at the next
        wobble = np.sin(1e9 * p["a"] * (1 + X) + 3e9 * p["k"] * X)
        return decay(p) + noise * wobble

    objective = as_objective(noisy, START)
    found = objective.differences
    assert found.central
    response = np.sqrt(np.mean((slopes(START) @ [1.0, 0.6 * 0.5]) ** 2))
    assert 0.2 < found.noise * response / (noise / np.sqrt(2)) < 5
    error = np.abs(objective.jacobian(objective.theta0) - slopes(START)).max()
    assert error < 20 * noise ** (2 / 3)


def test_steps_fit_the_noise():
    assert not Differences.for_noise(1e-16).central
    assert Differences.for_noise(1e-16).step == pytest.approx(2e-8, rel=0.5)
    assert Differences.for_noise(1e-6).central
    assert Differences.for_noise(1e-6).step == pytest.approx(3e-3)
    assert Differences.for_noise(1.0).step == 1e-2


def test_differences_stay_inside_the_bounds():
    seen = []

    def f(p):
        seen.append(p["a"])
        return decay(p)

    objective = as_objective(f, START)
    objective.lower, objective.upper = np.array([1.0, -np.inf]), np.array([1.0 + 1e-3, np.inf])
    objective.jacobian(objective.theta0)
    assert min(seen) >= 1.0
    assert max(seen) <= 1.001


def test_a_probe_that_fails_is_taken_on_the_other_side():
    def f(p):
        if p["a"] > 1:
            raise ValueError("beyond")
        return decay(p)

    objective = as_objective(f, START)
    np.testing.assert_allclose(objective.jacobian(objective.theta0), slopes(START), rtol=1e-3, atol=1e-3)
    assert objective.failures > 0


@pytest.mark.parametrize(
    ("f", "p", "says"),
    [
        (lambda p: [p[0], 1.0], {"a": 1.0}, r"KeyError: 0\. It gets a dict, p\['k'\], for `p` has names"),
        (lambda p: [{**p}["a"]], [1.0], r"It gets an array, p\[0\], for `p` has no names"),
        (lambda p: [1.0, np.nan], [1.0], r"1 residual not finite .* leave out readings that are missing"),
        (lambda p: np.array([1j, 2.0]), [1.0], "`f` returned complex numbers"),
    ],
)
def test_what_fails_at_the_start_is_told(f, p, says):
    with pytest.raises(ArgumentError, match=says):
        as_objective(f, p)


def test_failures_are_simulation_errors_counted_and_told():
    def f(p):
        if p["a"] > 2:
            raise ZeroDivisionError("too large")
        if p["a"] < 0:
            return np.array([np.nan, 1.0, np.nan, 1.0])
        return decay(p)

    objective = as_objective(f, START)
    with pytest.raises(SimulationError, match="ZeroDivisionError: too large") as caught:
        objective.value(np.array([3.0, 0.5]))
    assert caught.value.parameters == {"a": 3.0, "k": 0.5}
    with pytest.raises(SimulationError, match="2 residuals that are not finite"):
        objective.value(np.array([-1.0, 0.5]))
    assert objective.failures == 2
    assert "not finite" in objective.last_failure


def test_ctrl_c_is_no_failure():
    def f(p):
        if p["a"] != 1.0:
            raise KeyboardInterrupt
        return decay(p)

    objective = as_objective(f, START)
    with pytest.raises(KeyboardInterrupt):
        objective.value(np.array([2.0, 0.5]))
    assert objective.failures == 0


def test_residuals_that_change_their_number_are_an_error():
    objective = as_objective(lambda p: np.ones(3 if p["a"] < 2 else 4), {"a": 1.0})
    with pytest.raises(ArgumentError, match=r"4 residuals at .* but 3 residuals at the start"):
        objective.residuals(np.array([2.5]))


@pytest.mark.parametrize(
    ("f", "words"),
    [
        (lambda p: np.ones((2, 2)), r"shape \(2, 2\)"),
        (lambda p: "text", "returned str"),
        (lambda p: np.array([]), "no residuals"),
        (lambda p: None, "not finite|NoneType|gives nan"),
        (lambda p: p["b"], r"fails at the start .*KeyError: 'b'\. It gets a dict.* Try f"),
        (lambda p: {"time": [0, 1]}, r"returned dict; .*in a calibration file by its sections \[data\] and \[cost\]"),
        (3, "must be a fmepy cost or a function"),
    ],
)
def test_what_is_no_cost_is_refused_in_plain_words(f, words):
    with pytest.raises(ArgumentError, match=words):
        as_objective(f, START)


def test_the_function_gets_what_the_user_gave():
    seen = []

    def f(p, *args, **kwargs):
        seen.append((p, args, kwargs))
        return np.ones(2)

    as_objective(f, [1.0, 2.0], args=(7,), kwargs={"c": 1})
    as_objective(f, pd.Series({"a": 1.0}))
    as_objective(f, pd.Series({"p1": 1.0, "p2": 2.0}))
    assert isinstance(seen[0][0], np.ndarray)
    assert seen[0][1:] == ((7,), {"c": 1})
    assert seen[1][0] == {"a": 1.0}
    assert isinstance(seen[2][0], np.ndarray)


def test_the_best_and_the_last_evaluation_are_remembered():
    objective = as_objective(decay, START)
    best, other = np.array([1.0, 0.45]), np.array([5.0, 0.1])
    for theta in (best, other, best, other, best):
        objective.value(theta)
    assert objective.evaluations == 3


def test_sizes_are_positive():
    np.testing.assert_array_equal(
        magnitudes(np.array([-2.0, 0.0, 0.0]), np.array([-5.0, 0, -np.inf]), np.array([5.0, 4, 1])), [2.0, 0.4, 1.0]
    )


def test_a_cost_written_elsewhere_gives_its_constants_one_by_one():
    class Bound:
        parameter_names, theta0 = ("a",), np.array([2.0])
        lower, upper = np.array([-np.inf]), np.array([np.inf])
        is_scalar, has_jacobian, retries = False, False, 0
        names, x, weights, groups = ["y", "z"], [0.0, 1.0], [2.0, 4.0], [0, 1]
        scales, group_names = [1.0, 0.5], ["y", "z"]

        def residuals(self, theta):
            return [2 * (theta[0] - 1), 4 * theta[0]]

        def minus2loglik(self, theta):
            return 0.0

    class Elsewhere:
        parms = pd.Series({"a": 2.0})
        lower, upper = pd.Series({"a": -np.inf}), pd.Series({"a": np.inf})

        def __call__(self, parms=None):
            return "a ModCost"

        def bind(self, names=None, *, hold_engine=False):
            return Bound()

        def replace(self, **arguments):
            return self

    objective = as_objective(Elsewhere(), ["a"])
    assert objective.data.weights.tolist() == [2.0, 4.0]
    assert (objective.names, objective.group_names) == (("y", "z"), ("y", "z"))
    assert objective.residuals(np.array([2.0])).tolist() == [2.0, 8.0]
    assert objective.modcost(np.array([2.0])) == "a ModCost"
    bound = transformed(Elsewhere(), "log").bind()
    assert bound.residuals(np.log([2.0])) == pytest.approx([2.0, 8.0])
    assert bound.data.groups.tolist() == [0, 1]
    assert bound.modcost(bound.theta0) == "a ModCost"
    assert SumCost((Elsewhere(),)).bind().weights.tolist() == [2.0, 4.0]
