"""A start from the stationary distribution: likelihoods of whole normal vectors, and of SARIMAX in closed form."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.linalg import toeplitz

import fmepy as fme
from fmepy.errors import ArgumentError

AR2 = {"step": "next(x) = a1*x + a2*z + c\nnext(z) = x", "state": {"x": 9, "z": 9}}


def autoregression(**words):
    """Return a series of 40, and its cost by an AR(2) of the given parameters."""
    y = np.random.default_rng(1).normal(1, 1.5, 40)
    model = fme.DifferenceModel(**AR2, parms={"a1": 0.5, "a2": 0.3, "c": 0.3}, times=np.arange(40))
    given = {"process_noise": {"x": "s"}, "measurement_noise": {"x": 1e-7}, "parms": {"s": 1.1}}
    data = pd.DataFrame({"time": np.arange(40), "x": y})
    return y, fme.FimlofCost(model, data, initial="stationary", **{**given, **words})


def autocovariances(a1, a2, s, n):
    """Return those of an AR(2) by Yule and Walker's equations."""
    rho = [1.0, a1 / (1 - a2)]
    for _ in range(n - 2):
        rho.append(a1 * rho[-1] + a2 * rho[-2])
    return np.array(rho) * s**2 / (1 - a1 * rho[1] - a2 * rho[2])


def test_an_autoregression_has_the_likelihood_of_its_covariances():
    y, cost = autoregression()
    covariance = toeplitz(autocovariances(0.5, 0.3, 1.1, 40))
    expected = stats.multivariate_normal.logpdf(y, np.full(40, 0.3 / 0.2), covariance)
    assert cost() == pytest.approx(-2 * expected, rel=1e-9)


@pytest.mark.parametrize("sd", [1e-7, 0.5])  # by square roots of covariances, and by tangents of the filter
def test_its_score_follows_the_start(sd):
    bound = autoregression(measurement_noise={"x": sd})[1].bind(["a1", "a2", "c", "s"])
    theta = bound.theta0
    beside = [bound.minus2loglik(theta + h) - bound.minus2loglik(theta - h) for h in np.eye(4) * 1e-5]
    np.testing.assert_allclose(-2 * bound.score(theta), np.array(beside) / 2e-5, rtol=1e-6)


def test_a_process_in_continuous_time_between_readings_at_any_times():
    t = np.cumsum(np.random.default_rng(2).exponential(0.5, 30))
    x = np.random.default_rng(3).normal(2, 1, 30)
    model = fme.OdeModel("d(x)/dt = k*(mu - x)", state={"x": 0}, parms={"k": 0.8, "mu": 2.0}, times=np.r_[0, t])
    words = {"process_noise": {"x": 0.9}, "measurement_noise": {"x": 0.3}, "initial": "stationary"}
    data = pd.DataFrame({"time": t, "x": x})
    cost = fme.FimlofCost(model, data, **words)
    covariance = 0.81 / 1.6 * np.exp(-0.8 * np.abs(np.subtract.outer(t, t))) + 0.09 * np.eye(30)
    assert cost() == pytest.approx(-2 * stats.multivariate_normal.logpdf(x, np.full(30, 2.0), covariance), rel=1e-8)
    assert cost({"k": -0.1}) == np.inf
    assert "stationary" in str(cost.filter().summary())
    for wrong, message in (
        ({"initial_sd": {"x": 1.0}}, "leave `initial_sd` out"),
        ({"noise_kind": "per_step"}, "brown"),
    ):
        with pytest.raises(ArgumentError, match=message):
            fme.FimlofCost(model, data, **{**words, "propagation": "rk4", "dt": 0.1, **wrong})
    bent = fme.OdeModel("d(x)/dt = k*x*(mu - x)", state={"x": 1}, parms={"k": 0.8, "mu": 2.0}, times=np.r_[0, t])
    with pytest.raises(ArgumentError, match="linear in their states"):
        fme.FimlofCost(bent, data, **words)


@pytest.mark.parametrize(("a1", "there_is_one"), [(0.699, True), (0.7, False), (1.0, False)])
def test_on_the_border_of_stability_there_is_none(a1, there_is_one):
    assert np.isfinite(autoregression()[1]({"a1": a1})) == there_is_one


def test_drawn_histories_begin_with_the_stationary_spread():
    cost = autoregression()[1]
    first = [cost.simulate(seed=i)["x"].iloc[0] for i in range(300)]
    sd = autocovariances(0.5, 0.3, 1.1, 3)[0] ** 0.5
    assert np.mean(first) == pytest.approx(1.5, abs=4 * sd / 300**0.5)
    assert np.std(first) == pytest.approx(sd, rel=0.15)
