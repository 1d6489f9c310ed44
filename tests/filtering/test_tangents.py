"""Derivatives that go along with a pass are those of the pass."""

import numpy as np
import pytest

import fmepy as fme
from fmepy.filtering import run, statespace
from fmepy.fimlof import bound_filter, bound_likelihood
from tests.filtering.problems import accumulator_cost, ar1_cost, logistic_cost, oscillator_cost
from tests.filtering.test_fixed_steps import pendulum


def shaken(t, x, v, u, *, k, c, kick):
    return v, -k * x - c * v + u


def events(propagation="rk4", dt=0.1, noise="s"):
    """Return a model with all events, a forcing, missing and repeated readings, errors that depend on the state."""
    changes = [
        {"var": "v", "time": 1.5, "value": "kick", "method": "add"},
        {"var": "x", "time": 2.5, "value": "kick", "method": "multiply"},
        {"var": "v", "time": 3.5, "value": "0.3 * kick", "method": "replace"},
    ]
    model = fme.OdeModel(
        shaken, state={"x": "0.5 * kick", "v": 0.1}, times=np.arange(0, 6.1, 0.5),
        parms={"k": 2.0, "c": 0.3, "kick": 1.4}, forcings={"u": ([0, 1.2, 3.0, 6.0], [0.0, 1.0, -0.5, 0.2])},
        events=changes, outputs={"y": "x * v + x"},
    )  # fmt: skip
    data = {"time": [0.5, 1, 1.5, 2.5, 2.5, 4, 6], "x": [0.6, 0.2, np.nan, 0.4, 0.5, -0.2, 0.3],
            "y": [0.3, np.nan, 0.1, 0.2, 0.6, np.nan, 0.4]}  # fmt: skip
    return fme.FimlofCost(
        model, data, process_noise={"v": noise}, measurement_noise={"x": 0.2, "y": "0.1 + 0.1 * x**2"},
        parms={"s": 0.4}, initial_sd={"x": "0.2 * kick"}, propagation=propagation, dt=dt,
    )  # fmt: skip


def estimated(function=None, **options):
    return logistic_cost(sd_w="a", sd_v="b", parms={"a": 2.0, "b": 3.0}, **options)


def switching(**options):
    """Return rates with choices and powers, noise and errors that depend on states and parameters."""

    def rates(t, x, y, *, r, k, m, s):
        eaten = r * x * y / (1 + k * x**1.5)
        grown = m * np.minimum(x, 0.7 + 0.3 * x)
        return grown - eaten, eaten - np.where(y > 0.7, s * y**2, 0.5 * s * y)

    model = fme.OdeModel(rates, state={"x": 1.3, "y": 0.6}, times=np.arange(0, 5.1, 0.5), method="euler", dt=0.1,
                         parms={"r": 0.9, "k": 0.3, "m": 0.8, "s": 0.5})  # fmt: skip
    data = model().iloc[1:]
    data["y"] *= 1.1
    return fme.FimlofCost(model, data, process_noise={"x": "q * x", "y": "q"},
                          measurement_noise={"x": "v * sqrt(x)", "y": 0.1}, parms={"q": 0.2, "v": 0.1},
                          **options)  # fmt: skip


@pytest.mark.parametrize(
    "make",
    [
        ar1_cost,
        accumulator_cost,
        estimated,
        events,
        lambda: pendulum(propagation="rk4", dt=0.1),
        lambda: oscillator_cost(),
        lambda: events("ode", None),
        lambda: events("ode", None, "s * (1 + x**2)"),
        lambda: pendulum(propagation="ode"),
        switching,
    ],
    ids=["ar1", "accumulator", "logistic", "events", "pendulum", "exact", "ode events", "ode noise", "ode pendulum",
         "choices"],
)  # fmt: skip
@pytest.mark.parametrize("rough", [False, True])
def test_they_are_the_differences_of_passes(monkeypatch, make, rough):
    bound = make().bind()
    theta = bound.theta0
    used = []
    whole = bound_likelihood.innovation_slopes
    monkeypatch.setattr(bound_likelihood, "innovation_slopes", lambda *a: used.append(whole(*a)) or used[-1])
    ours = bound.sensitivity_rows(theta)[2]
    assert used
    assert used[-1] is not None
    _, found = bound._derivatives(theta, rough)
    bound._derived = None
    monkeypatch.setattr(bound_filter, "has_tangents", lambda scheme: False)
    theirs = bound.sensitivity_rows(theta)[2]
    bound._derived = None
    _, expected = bound._derivatives(theta, rough)
    near = 1e-6 if bound.spec.propagation != "ode" else 1e-5  # differences of adaptive runs are no better
    np.testing.assert_allclose(ours, theirs, rtol=near, atol=near * np.abs(theirs).max())
    for one, other in zip(found, expected, strict=True):
        for a, b in zip(one[:2], other[:2], strict=True):
            np.testing.assert_allclose(
                a, b, rtol=1e-3 if rough else near, atol=(1e-4 if rough else near) * np.abs(b).max()
            )


def one_state():
    """Return one state by the adaptive method, with noise of its size: F and A have but one entry."""
    model = fme.OdeModel("d(x)/dt = r*x*(1 - x/K)", state={"x": 1.0}, times=np.arange(6.0), parms={"r": 0.8, "K": 5.0})
    data = {"time": [1, 2, 3, 4, 5], "x": [2.2, 2.9, 4.4, 4.3, 5.2]}
    return fme.FimlofCost(model, data, process_noise={"x": "s*x"}, measurement_noise={"x": 0.3}, parms={"s": 0.1})


@pytest.mark.parametrize("make", [switching, one_state])
def test_they_are_exact(make):
    bound = make().bind()
    theta = bound.theta0
    expected = []
    for e in np.diag(1e-3 * theta):
        one, two = (bound.minus2loglik(theta + j * e) - bound.minus2loglik(theta - j * e) for j in (1, 2))
        expected.append(-0.5 * (8 * one - two) / (12 * e.sum()))
    near = 1e-8 if make is switching else 1e-5
    np.testing.assert_allclose(bound.score(theta), expected, rtol=near, atol=near)


@pytest.mark.parametrize(
    ("make", "exact"),
    [
        (ar1_cost, True),
        (switching, True),
        (lambda: events("ode", None), True),
        (events, False),
        (oscillator_cost, True),
        (lambda: switching(initial="diffuse", initial_sd={"y": 0.1}), False),
    ],
    ids=["difference", "euler", "ode", "rk4", "linear ode", "diffuse"],
)
def test_scores_are_exact_where_no_step_is_differenced(make, exact):
    assert make().bind().exact == exact


def test_exact_steps_of_many_lengths():
    rng, t = np.random.default_rng(1), np.cumsum(np.tile([0.1, 0.2, 0.3, 0.45, 0.5, 0.15], 4))
    equations = "d(x)/dt = v\nd(v)/dt = -k * x - c * v + a"
    model = fme.OdeModel(equations, state={"x": 1.0, "v": 0.0}, times=[0, *t], parms={"k": 2.0, "c": 0.3, "a": 0.5})
    data = {"time": t, "x": rng.standard_normal(t.size)}
    cost = fme.FimlofCost(model, data, process_noise={"v": "s"}, measurement_noise={"x": 0.5}, parms={"s": 0.4})
    bound, expected = cost.bind(), []
    for e in np.diag(1e-3 * bound.theta0):
        one, two = (bound.minus2loglik(bound.theta0 + j * e) - bound.minus2loglik(bound.theta0 - j * e) for j in (1, 2))
        expected.append(-0.5 * (8 * one - two) / (12 * e.sum()))
    np.testing.assert_allclose(bound.score(bound.theta0), expected, rtol=1e-7, atol=1e-8)


def test_hessians_are_of_exact_scores():
    cost = estimated()
    fit, bound = fme.modFit(cost, ["r", "K", "b"]), cost.bind(["r", "K", "b"])
    theta, expected = fit.par.to_numpy(), []
    for e in np.diag(1e-3 * theta):
        one, two = (bound.score(theta + j * e) - bound.score(theta - j * e) for j in (1, 2))
        expected.append(-2 * (8 * one - two) / (12 * e.sum()))
    np.testing.assert_allclose(fit.hessian, expected, rtol=1e-3, atol=1e-3)  # of values 0.01


def test_of_too_many_partial_derivatives_passes_are_differenced(monkeypatch):
    theirs = switching().bind()
    score = theirs.score(theirs.theta0)
    monkeypatch.setattr(statespace, "_MOST_PARTIALS", 30)
    monkeypatch.setattr(bound_filter, "passes_with_slopes", None)
    ours = switching().bind()
    np.testing.assert_allclose(ours.score(theirs.theta0), score, rtol=1e-6)


def test_of_very_many_models_none_is_derived_twice():
    model = fme.DifferenceModel("next(x) = a * x", state={"x": 1.0}, times=range(3), parms={"a": 0.5})
    cost = fme.FimlofCost(model, {"time": [1, 2], "x": [0.4, 0.3]}, process_noise={"x": 1}, measurement_noise={"x": 1})
    spaces = [cost.replace(threshold=3 + k).specification.space for k in range(70)]
    first = [space.partials() for space in spaces]
    assert all(space.partials() is one for space, one in zip(spaces, first, strict=True))


def test_parts_of_the_parameters_give_the_same_bits(monkeypatch):
    bound = events().bind()
    together = bound.score(bound.theta0)
    bound._derived = None
    monkeypatch.setattr(run, "TOGETHER", 2)
    np.testing.assert_array_equal(bound.score(bound.theta0), together)


def test_threads_and_the_order_of_questions_change_no_bit(monkeypatch):
    def panel():
        rng = np.random.default_rng(1)
        model = fme.OdeModel("dx/dt = -k * x**2", state={"x": 2.0}, times=np.arange(11.0), parms={"k": 0.3})
        t = np.tile(np.arange(1.0, 11.0), 3)
        data = {"time": t, "who": np.repeat([1, 2, 3], 10), "x": 2 / (1 + 0.6 * t) + 0.05 * rng.standard_normal(30)}
        noise = {"process_noise": {"x": 0.05}, "measurement_noise": {"x": "r"}, "parms": {"r": 0.1}}
        return fme.FimlofCost(model, data, entity="who", propagation="rk4", dt=0.25, **noise).bind(["k", "r"])

    alone = panel()
    score, theta = alone.score(alone.theta0), alone.theta0
    monkeypatch.setattr(run, "WORTH_THREADS", 0)
    asked_before = panel()
    value = asked_before.minus2loglik(theta)
    np.testing.assert_array_equal(asked_before.score(theta), score)
    carried = sum(one.loglik for one in asked_before._derivatives(theta)[0])
    assert -2 * carried == pytest.approx(value, rel=1e-13)


def test_what_is_stiff_is_differenced_by_passes(monkeypatch):
    def fast(t, x, y, *, k=1e4, a=0.5):
        return a - x, k * (x**2 - y)

    model = fme.OdeModel(fast, state={"x": 0.2, "y": 0.04}, times=np.arange(6.0))
    data = {"time": [1, 2, 3, 4, 5], "y": [0.15, 0.2, 0.24, 0.27, 0.22]}
    cost = fme.FimlofCost(model, data, process_noise={"x": "s"}, measurement_noise={"y": 0.05}, parms={"s": 0.1})
    bound, slopes = cost.bind(["a", "s"]), []
    whole = bound_likelihood.innovation_slopes
    monkeypatch.setattr(bound_likelihood, "innovation_slopes", lambda *a: slopes.append(whole(*a)) or slopes[-1])
    score = bound.score(bound.theta0)
    assert slopes == [None]
    h = 1e-4 * bound.theta0
    beside = [bound.minus2loglik(bound.theta0 + s * h * e) for e in np.eye(2) for s in (1, -1)]
    np.testing.assert_allclose(-2 * score, (np.array(beside[::2]) - beside[1::2]) / (2 * h), rtol=1e-3, atol=1e-4)


def test_those_of_the_adaptive_method_are_those_of_short_steps():
    adaptive, short = pendulum(propagation="ode").bind(), pendulum(propagation="rk4", dt=0.005).bind()
    rows = short.sensitivity_rows(short.theta0)[2]
    np.testing.assert_allclose(adaptive.sensitivity_rows(short.theta0)[2], rows, rtol=1e-7, atol=1e-7)
