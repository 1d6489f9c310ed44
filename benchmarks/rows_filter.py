"""Rows of the filter likelihood: a value, a score, an estimate with standard errors, ODE models, a forecast."""

from __future__ import annotations

from functools import cache
from typing import Any
from unittest.mock import patch

import numpy as np

import fmepy as fme
from benchmarks import boehm, hiv, market
from benchmarks.row import Row, at_least, at_most, within
from benchmarks.timing import side_by_side
from fmepy.filtering import run


def filter_likelihood() -> Row:
    """Evaluate -2 log L of 1,000 samples, ten states, ten measurements."""
    cost = market.cost()
    bound = cost.bind(market.THIRTEEN)
    theta, names = bound.theta0, market.THIRTEEN
    at = dict(zip(names, theta, strict=True))
    assert cost.nobs == 10_000
    expected = bound.minus2loglik(theta)
    assert abs(market.numpy_minus2loglik(at) - expected) < 1e-6 * abs(expected)
    assert abs(market.filterpy_minus2loglik(at) - expected) < 1e-6 * abs(expected)
    rng, by_hand = np.random.default_rng(1), hiv.plain_residuals()

    def near() -> np.ndarray:
        return theta * (1 + 1e-3 * rng.standard_normal(theta.size))

    ours, plain, other, hand = side_by_side(
        lambda: bound.minus2loglik(near()),
        lambda: market.numpy_minus2loglik(dict(zip(names, near(), strict=True))),
        lambda: market.filterpy_minus2loglik(dict(zip(names, near(), strict=True))),
        lambda: by_hand(hiv.TRUTH),
        rounds=7,
    )
    goals = [within(ours, 1.2e-3, hand), at_least(other / ours, 60, "{:.0f} times filterpy's speed")]
    work = "filter likelihood, 10 states, 10 measurements, 1,000 samples"
    return Row(work, ours, "numpy, model compiled", plain, goals)


def filter_score() -> Row:
    """Its derivatives to thirteen parameters, on one thread, beside so many passes of the filter."""
    bound = market.cost().bind(market.THIRTEEN)
    theta, rng = bound.theta0, np.random.default_rng(1)
    j = market.THIRTEEN.index("DRAT")
    step = np.zeros(theta.size)
    step[j] = 1e-4 * theta[j]
    slope = (bound.minus2loglik(theta + step) - bound.minus2loglik(theta - step)) / (2 * step[j])
    assert abs(-2 * bound.score(theta)[j] - slope) < 1e-4 * abs(slope) + 1e-2

    def near() -> np.ndarray:
        return theta * (1 + 1e-3 * rng.standard_normal(theta.size))

    with patch.object(run, "WORTH_THREADS", np.inf):  # as the passes beside it: two threads may share one core
        ours, one = side_by_side(lambda: bound.score(near()), lambda: bound.minus2loglik(near()), rounds=7)
    goals = [at_most(ours / one, 8, "{:.1f} passes of the filter")]
    return Row("its score, 13 parameters", ours, "27 passes, central differences", 27 * one, goals)


def smoother() -> Row:
    """Filter and smooth 100,000 samples of four states; the peer is the way back alone, by hand in numpy."""
    n, states, rng = 100_000, list("abcd"), np.random.default_rng(1)
    F = np.array([[0.9, 0.1, 0, 0], [0, 0.8, 0.1, 0], [0, 0, 0.7, 0.1], [-0.05, 0, 0, 0.95]])
    rows = (" + ".join(f"{f} * {s}" for f, s in zip(row, states, strict=True)) for row in F.tolist())
    equations = "\n".join(f"next({s}) = {row}" for s, row in zip(states, rows, strict=True))
    model = fme.DifferenceModel(equations, state=dict.fromkeys(states, 1.0), times=range(n + 1))
    data = {"time": np.arange(1, n + 1), "a": rng.standard_normal(n)}
    cost = fme.FimlofCost(model, data, process_noise=dict.fromkeys(states, 0.3), measurement_noise={"a": "sd"},
                          parms={"sd": 0.5})  # fmt: skip
    flt, bound = cost.filter(), cost.bind(["sd"])
    filtered, predicted = (table[states].to_numpy()[-1000:] for table in (flt.filtered, flt.predicted))
    P, P_next = flt.filtered_cov[-1000:], flt.predicted_cov[-1000:]

    def by_hand() -> np.ndarray:
        out = filtered.copy()
        for k in range(len(out) - 2, -1, -1):
            out[k] += P[k] @ F.T @ np.linalg.solve(P_next[k + 1], out[k + 1] - predicted[k + 1])
        return out

    assert np.allclose(flt.smoothed[states].to_numpy()[-1000:], by_hand())
    ours, one, peer = side_by_side(
        cost.filter, lambda: bound.minus2loglik(0.5 + 1e-3 * rng.standard_normal(1)), by_hand, rounds=3
    )
    goals = [at_most(ours / one, 20, "{:.0f} values of the likelihood")]
    work = "filter with smoothing, 4 states, 100,000 samples"
    return Row(work, ours, "the way back alone, numpy", peer * n / 1000, goals)


def filter_estimate() -> Row:
    """Estimate thirteen parameters with standard errors, from ten per cent off."""
    cost, start, plain = market.cost(), market.START(), hiv.plain_residuals()

    def ours() -> Any:
        return fme.modFit(cost, start, seed=1)

    def quasi_newton() -> Any:
        return fme.modFit(cost, start, method="BFGS", hessian=False)

    fit = ours()
    assert fit.converged, fit.message
    assert np.isfinite(fit.std_error).all()
    truth = cost.parms[market.THIRTEEN]
    assert (((fit.par - truth) / fit.std_error).abs() < 4).all(), fit
    assert fit.deviance < cost()
    seconds, peer, hand = side_by_side(ours, quasi_newton, lambda: plain(hiv.TRUTH), rounds=3)
    told = f"{fit.evaluations} values and {fit.iterations} scores"
    goals = [within(seconds, 0.6, hand), (told, True)]
    work = "FIMLOF estimate of 13 parameters on it, with standard errors"
    return Row(work, seconds, "BFGS, no errors", peer, goals)


@cache
def lotka_volterra(propagation: str | None = None) -> fme.FimlofCost:
    """Return the likelihood of 40 readings of hare and lynx with noise in their growth, the start known."""

    def predation(t, H, L, *, r=0.5, a=0.03, e=0.02, m=0.8):
        return r * H - a * H * L, e * H * L - m * L

    model = fme.OdeModel(predation, state={"H": 30.0, "L": 10.0}, times=np.arange(21.0))
    rng, exact = np.random.default_rng(1), model()
    data = exact.iloc[1:].copy()
    data[["H", "L"]] *= np.exp(0.1 * rng.standard_normal((20, 2)))
    return fme.FimlofCost(
        model, data, process_noise={"H": "q_H", "L": "q_L"}, measurement_noise={"H": 3.0, "L": 2.0},
        parms={"q_H": 1.0, "q_L": 1.0}, propagation=propagation,
    )  # fmt: skip


def ode_filter() -> Row:
    """Fit six parameters of an ODE model with process noise; nothing said of the propagation."""
    cost, fixed, plain = lotka_volterra(), lotka_volterra("rk4"), hiv.plain_residuals()
    fit, coarse = fme.modFit(cost), fme.modFit(fixed)
    assert fit.converged, fit.message
    assert len(fit.par) == 6
    assert abs(fit.deviance - coarse.deviance) < 0.5, (fit.deviance, coarse.deviance)
    bound, turn = cost.bind(), iter(range(10**9))
    seconds, peer, hand, value, score = side_by_side(
        lambda: fme.modFit(cost),
        lambda: fme.modFit(fixed),
        lambda: plain(hiv.TRUTH),
        lambda: bound.minus2loglik(bound.theta0 * (1 + 1e-9 * next(turn))),
        lambda: bound.score(bound.theta0 * (1 + 1e-9 * next(turn))),
        rounds=2,
    )
    goals = [within(seconds, 0.5, hand), at_most(score / value, 6, "a score of {:.1f} values")]
    work = "FimlofCost of an ODE model, default propagation: Lotka-Volterra, 40 data, 6 parameters, fitted"
    return Row(work, seconds, 'propagation="rk4"', peer, goals)


def filter_conditions() -> Row:
    """Filter a reservoir that overflows: the default propagation stops where it does, the peer steps over that."""
    t, rng = np.arange(301.0), np.random.default_rng(1)
    model = fme.OdeModel("d(S)/dt = rain - k*S - max(S - c, 0)*q", state={"S": 2.0}, times=t,
                         parms={"k": 0.1, "c": 3.0, "q": 0.8}, outputs={"Q": "k*S + max(S - c, 0)*q"},
                         forcings={"rain": (t, np.maximum(rng.normal(0, 3, t.size), 0))})  # fmt: skip
    seen = model()[["time", "Q"]].iloc[1:]
    seen["Q"] += 0.1 * rng.standard_normal(len(seen))
    cost = fme.FimlofCost(model, seen, process_noise={"S": "w"}, measurement_noise={"Q": "v"},
                          parms={"w": 0.2, "v": 0.1})  # fmt: skip
    ours, peer = cost.bind(), cost.replace(propagation="rk4", dt=0.1).bind()
    theta = ours.theta0
    assert abs(ours.minus2loglik(theta) - peer.minus2loglik(theta)) < 0.1

    def near() -> np.ndarray:
        return theta * (1 + 1e-3 * rng.standard_normal(theta.size))

    seconds, fixed = side_by_side(lambda: ours.minus2loglik(near()), lambda: peer.minus2loglik(near()), rounds=7)
    goals = [at_most(seconds / fixed, 5, "{:.1f} times the fixed steps")]
    work = "filter likelihood of a model with a condition, 300 samples"
    return Row(work, seconds, "rk4, ten steps a sample", fixed, goals)


def no_process_noise() -> Row:
    """Evaluate value and score of a likelihood without process noise: a simulation is all there is to it."""
    cost = boehm.cost()
    bound, run = cost.bind(boehm.RATES), boehm.model().bind(boehm.RATES)
    theta, rng = bound.theta0, np.random.default_rng(1)
    assert abs(bound.minus2loglik(theta) - boehm.MINUS2LOGLIK) < 0.01, bound.minus2loglik(theta)

    def near() -> np.ndarray:
        return theta * (1 + 1e-3 * rng.standard_normal(theta.size))

    value, score, one = side_by_side(
        lambda: bound.minus2loglik(near()), lambda: bound.score(near()), lambda: run.simulate(near())
    )
    goals = [at_most(value / one, 2, "{:.1f} runs"), at_most(score / one, 12, "its score {:.1f} runs")]
    return Row("the same without process noise, Boehm's 8 states: a value", value, "one run", one, goals)


def estimated_noise() -> Row:
    """Evaluate value and gradient of nine parameters, three of them sds, of a simulation with noise of its own."""
    bound, run = boehm.noisy_cost().bind(), boehm.model().bind(boehm.RATES)
    theta, rng = bound.theta0, np.random.default_rng(1)
    assert abs(bound.minus2loglik(theta) - boehm.MINUS2LOGLIK) < 0.01, bound.minus2loglik(theta)

    def near() -> np.ndarray:
        return theta * (1 + 1e-3 * rng.standard_normal(theta.size))

    value, score, one = side_by_side(
        lambda: bound.minus2loglik(near()), lambda: bound.score(near()), lambda: run.simulate(near()[:6])
    )
    goals = [at_most(value / one, 2, "{:.1f} runs"), at_most(score / one, 12, "its gradient {:.1f} runs")]
    return Row("Boehm's likelihood with estimated sds: a value", value, "one run", one, goals)


def forecast_draws() -> Row:
    """Forecast an AR(1) twenty steps ahead by 200 simulated paths; the peer draws the same by hand, in numpy."""
    model = fme.DifferenceModel("next(x) = a*x", state={"x": 1.0}, times=range(101), parms={"a": 0.8})
    data = {"time": range(1, 101), "x": np.random.default_rng(0).standard_normal(100)}
    cost = fme.FimlofCost(model, data, process_noise={"x": 1.0}, measurement_noise={"x": 0.5})
    flt = cost.filter()
    (x,), P = flt.filtered[["x"]].to_numpy()[-1], float(flt.filtered_cov[-1, 0, 0])

    def by_hand() -> np.ndarray:
        rng = np.random.default_rng(1)
        paths = np.empty((200, 20))
        for i in range(200):
            state = x + np.sqrt(P) * rng.standard_normal()
            for n in range(20):
                state = 0.8 * state + rng.standard_normal()
                paths[i, n] = state
        return np.asarray(np.quantile(paths, [0.025, 0.975], axis=0))

    exact = flt.forecast(20).frame
    found = flt.forecast(20, draws=20_000, seed=1).frame
    assert np.allclose(found["sd"], exact["sd"], rtol=0.03)
    plain = hiv.plain_residuals()
    ours, peer, hand = side_by_side(
        lambda: flt.forecast(20, draws=200, seed=1), by_hand, lambda: plain(hiv.TRUTH), rounds=7
    )
    goals = [within(ours, 0.05, hand)]
    return Row("forecast of an AR(1), 20 steps, 200 draws", ours, "a loop in Python, no table", peer, goals)


ROWS = [
    filter_likelihood, filter_score, smoother, filter_estimate, ode_filter, no_process_noise, estimated_noise,
    forecast_draws, filter_conditions,
]  # fmt: skip
