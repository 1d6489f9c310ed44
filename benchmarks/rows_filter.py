"""Rows of the filter likelihood: one value, an estimate with standard errors, and what the first use takes."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np

import fmepy as fme
from benchmarks import market
from benchmarks.rows import Row, at_least, at_most
from benchmarks.timing import fresh_process, side_by_side

__all__ = ["ROWS"]


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
    rng = np.random.default_rng(1)

    def near() -> np.ndarray:
        return theta * (1 + 1e-3 * rng.standard_normal(theta.size))

    ours, plain, other = side_by_side(
        lambda: bound.minus2loglik(near()),
        lambda: market.numpy_minus2loglik(dict(zip(names, near(), strict=True))),
        lambda: market.filterpy_minus2loglik(dict(zip(names, near(), strict=True))),
        rounds=7,
    )
    goals = [
        at_most(1e3 * ours, 2, "{:.2f} ms"),
        at_least(plain / ours, 15, "{:.0f} times numpy's speed"),
        at_least(other / ours, 60, "{:.0f} times filterpy's"),
    ]
    return Row(
        "filter likelihood, 10 states, 10 measurements, 1,000 samples", ours, "numpy, model compiled", plain, goals
    )


def filter_estimate() -> Row:
    """Estimate thirteen parameters with standard errors, from ten per cent off."""
    cost, start = market.cost(), market.START()

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
    ours_seconds, peer = side_by_side(ours, quasi_newton, rounds=2)
    gap = 0.5 * (quasi_newton().deviance - fit.deviance)
    goals = [
        at_most(ours_seconds, 1.5, "{:.2f} s"),
        (f"{fit.evaluations} values and {fit.iterations} scores; BFGS ends {gap:.3g} below in log L", True),
    ]
    return Row(
        "FIMLOF estimate of 13 parameters on it, with standard errors", ours_seconds, "BFGS, no errors", peer, goals
    )


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
    ours, peer = side_by_side(lambda: flt.forecast(20, draws=200, seed=1), by_hand, rounds=7)
    goals = [at_most(1e3 * ours, 50, "{:.0f} ms")]
    return Row("forecast of an AR(1), 20 steps, 200 draws", ours, "a loop in Python, no table", peer, goals)


FIRST = """
import time
import fmepy as fme
import numba, sympy
from fmepy.filtering import loop
from benchmarks import market
{}
t = time.perf_counter()
value = market.cost()()
took = time.perf_counter() - t
assert abs(value) > 0
print(took)
"""


def filter_first_use() -> Row:
    """From the definition of a model to its first likelihood, in a new process: a new model, and one seen before."""
    new_model, news = FIRST.format("loop.compiled()"), []
    for _ in range(3):
        with tempfile.TemporaryDirectory() as folder:
            (first,) = fresh_process([new_model], rounds=1, XDG_CACHE_HOME=folder)
            (second,) = fresh_process([new_model], rounds=3, XDG_CACHE_HOME=folder)
            news.append((first, second))
    ours, again = np.min(news, axis=0)
    with tempfile.TemporaryDirectory() as folder:
        (ever,) = fresh_process([FIRST.format("")], rounds=1, XDG_CACHE_HOME=folder, NUMBA_CACHE_DIR=folder)
    goals = [
        at_most(ours, 5, "{:.2f} s"),
        at_most(again, 1, "{:.2f} s in a second process"),
        (f"{ever:.1f} s the very first time on a machine, when the filter's loop is compiled too", True),
    ]
    return Row("first use of a filter on a new model", ours, "the same in a second process", again, goals)


ROWS: list[Callable[[], Row]] = [filter_likelihood, filter_estimate, forecast_draws, filter_first_use]
