"""Fixed steps: those of Runge and Kutta are of fourth order in the noise too; all others stay what they are."""

import numpy as np
import pytest

import fmepy as fme
from fmepy.errors import ArgumentError
from tests.filtering.problems import outcome

TIMES = np.array([0.0, 0.4, 1.1, 1.5, 2.6, 3.0, 4.4])
READINGS = np.array([1.3, 0.9, 1.8, 0.4, 1.2, 2.0, 0.7])


def relaxes(t, x, *, th, mu):
    return th * (mu - x)


def swings(t, x, v, *, k, c):
    return v, -k * np.sin(x) - c * v + 0.3 * np.cos(t)


def ornstein(**options):
    model = fme.OdeModel(relaxes, state={"x": 1.5}, times=TIMES, parms={"th": 1.5, "mu": 1.0})
    return fme.FimlofCost(
        model, {"time": TIMES, "x": READINGS}, process_noise={"x": "s"}, measurement_noise={"x": 0.3},
        parms={"s": 0.8}, initial_sd={"x": 0.5}, **options,
    )  # fmt: skip


def pendulum(**options):
    model = fme.OdeModel(swings, state={"x": 1.0, "v": 0.2}, times=TIMES, parms={"k": 2.0, "c": 0.3})
    return fme.FimlofCost(
        model, {"time": TIMES, "x": READINGS}, process_noise={"v": "s * (1 + x**2)", "k": 0.2},
        measurement_noise={"x": 0.3}, parms={"s": 0.4}, initial_sd={"x": 0.3, "v": 0.2}, **options,
    )  # fmt: skip


@pytest.mark.parametrize("propagation", ["rk4", "rk4_moment"])
@pytest.mark.parametrize("cost", [ornstein, pendulum])
def test_the_likelihood_of_runge_and_kutta_s_steps_is_of_fourth_order(cost, propagation):
    exact = outcome(cost(propagation="ode" if cost is ornstein else "moment")).loglik
    if cost is pendulum:  # the adaptive solver's own error is 1e-8
        exact = outcome(cost(propagation=propagation, dt=0.005)).loglik
    gaps = [abs(outcome(cost(propagation=propagation, dt=dt)).loglik - exact) for dt in (0.2, 0.1, 0.05)]
    assert 10 < gaps[0] / gaps[1] < 40
    assert 10 < gaps[1] / gaps[2] < 40
    euler = [abs(outcome(cost(propagation="euler", dt=dt)).loglik - exact) for dt in (0.02, 0.01)]
    assert euler[0] / euler[1] == pytest.approx(2, rel=0.1)


def textbook(dt):
    """-2 log L with Runge and Kutta's step on (x, v, P) together."""

    def rates(t, y):
        x, v, P = y[0], y[1], y[2:].reshape(2, 2)
        F = np.array([[0, 1], [-2 * np.cos(x), -0.3]])
        A = np.array([[0, 0], [0.4 * (1 + x**2), -0.2 * np.sin(x)]])
        f = [v, -2 * np.sin(x) - 0.3 * v + 0.3 * np.cos(t)]
        return np.concatenate([f, (F @ P + P @ F.T + A @ A.T).ravel()])

    y, t, total = np.array([1.0, 0.2, 0.09, 0, 0, 0.04]), 0.0, 0.0
    for end, z in zip(TIMES, READINGS, strict=True):
        n = int(np.ceil((end - t) / dt * (1 - 1e-12)))
        h = (end - t) / n if n else 0.0
        for _ in range(n):
            a = rates(t, y)
            b = rates(t + h / 2, y + h / 2 * a)
            c = rates(t + h / 2, y + h / 2 * b)
            y = y + h / 6 * (a + 2 * b + 2 * c + rates(t + h, y + h * c))
            t += h
        t, P = end, y[2:].reshape(2, 2)
        s, e = P[0, 0] + 0.09, z - y[0]
        total += np.log(2 * np.pi * s) + e * e / s
        K = P[:, 0] / s
        y = np.concatenate([y[:2] + K * e, (P - np.outer(K, P[0])).ravel()])
    return total


@pytest.mark.parametrize("algorithm", ["sequential", "sqrt"])
def test_rk4_moment_is_runge_and_kutta_on_state_and_covariance_together(algorithm):
    cost = pendulum(propagation="rk4_moment", dt=0.25, algorithm=algorithm)
    assert cost() == pytest.approx(textbook(0.25), rel=1e-11)


@pytest.mark.parametrize("propagation", ["rk4", "rk4_moment"])
def test_factors_scores_and_smoothing_go_with_them(propagation):
    cost = pendulum(propagation=propagation, dt=0.1)
    assert cost.replace(algorithm="sqrt")() == pytest.approx(cost(), rel=1e-11)
    bound = cost.bind(["k", "s"])
    at, score = bound.theta0, bound.score(bound.theta0)
    for j, h in enumerate(np.eye(2) * 1e-5):
        slope = -0.5 * (bound.minus2loglik(at + h) - bound.minus2loglik(at - h)) / 2e-5
        assert score[j] == pytest.approx(slope, rel=1e-6)
    fine = pendulum(propagation="moment").filter()
    np.testing.assert_allclose(cost.filter().smoothed[["x", "v"]], fine.smoothed[["x", "v"]], atol=1e-3)
    np.testing.assert_allclose(cost.filter().sd()[["x", "v"]], fine.sd()[["x", "v"]], atol=1e-3)


@pytest.mark.parametrize("update", ["unscented", "second_order", "iterated"])
def test_other_updates_take_the_noise_by_stages_too(update):
    plain, other = (outcome(ornstein(propagation="rk4", dt=0.3, update=u)).loglik for u in ("ekf", update))
    assert other == pytest.approx(plain, rel=1e-9)


def test_noise_drawn_once_a_step_stays_what_it_was():
    model = fme.OdeModel(relaxes, state={"x": 1.5}, times=[0.0, 0.5], parms={"th": 1.5, "mu": 1.0})
    cost = fme.FimlofCost(
        model, {"time": [0.5], "x": [1.0]}, process_noise={"x": 0.8}, measurement_noise={"x": 0.3},
        noise_kind="per_step", propagation="rk4", dt=0.5,
    )  # fmt: skip
    assert outcome(cost).s[0] == pytest.approx(0.5**2 * 0.8**2 + 0.09, rel=1e-12)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"update": "unscented"}, "not 'rk4_moment'"),
        ({"update": "second_order"}, "pass propagation='rk4'"),
        ({"noise_kind": "per_step"}, "integrates Brownian noise"),
    ],
)
def test_what_rk4_moment_cannot_is_refused_with_what_can(options, words):
    with pytest.raises(ArgumentError, match=words):
        ornstein(propagation="rk4_moment", **options)
