"""The rows of fits from many starts: each asserts what was found, then times it beside its peer."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import fmepy as fme
from benchmarks import boehm, hiv
from benchmarks.row import Row, at_least, within
from benchmarks.timing import side_by_side

STARTS, OF_PEER = 100, 5  # the peer takes too long for all of them
FACTOR = 3.0  # the box of the HIV fit: from a third of the truth to three times it
DECADES = 5.0  # that of Boehm's, log10


def timed(function: Any) -> tuple[float, Any]:
    """Return the seconds on the wall of one call, and what it gives."""
    began = time.perf_counter()
    found = function()
    return time.perf_counter() - began, found


def seconds_by_hand() -> float:
    """Return the seconds on the wall of the HIV cost by hand, by which goals are stretched."""
    plain = hiv.plain_residuals()
    return side_by_side(lambda: plain(hiv.TRUTH), clock=time.perf_counter)[0]


def by_lmfit(residuals: Any, low: dict[str, float], high: dict[str, float]) -> tuple[float, list[float]]:
    """Return the seconds that all starts would take lmfit, from some of them, and the sums of squares found."""
    import lmfit

    def one(values: Any) -> float:
        given = lmfit.Parameters()
        for name, value in zip(low, values, strict=True):
            given.add(name, value=value, min=low[name], max=high[name])
        # a user's answer to a run that fails: large residuals
        return float(lmfit.minimize(lambda p: np.nan_to_num(residuals(p.valuesdict()), nan=1e3), given).chisqr)

    points = np.random.default_rng(1).uniform(list(low.values()), list(high.values()), (OF_PEER, len(low)))
    seconds, found = timed(lambda: [one(row) for row in points])
    return seconds * STARTS / OF_PEER, found


def hiv_starts() -> Row:
    """Time a hundred starts in a box, beside lmfit on odeint by hand from some starts of such a box."""
    cost, plain = hiv.cost(hiv.model()), hiv.plain_residuals()
    truth = {k: hiv.TRUTH[k] for k in hiv.FITTED}
    low, high = ({k: v * f for k, v in truth.items()} for f in (1 / FACTOR, FACTOR))
    ask: dict[str, Any] = {"p": {k: 2 * v for k, v in truth.items()}, "lower": low, "upper": high, "seed": 1}
    fme.modFit(cost, **ask, starts=4, executor=2)  # what is compiled once is not what is timed
    hand = seconds_by_hand()
    ours, fit = timed(lambda: fme.modFit(cost, **ask, starts=STARTS, executor=2))
    assert abs(fit.ssr - 44.627) < 0.01, fit.ssr
    peer, found = by_lmfit(plain, low, high)
    assert min(found) < 44.64, found
    goals = [within(ours, 2, hand), at_least(peer / ours, 10, "{:.0f} times the speed of lmfit")]
    name = f"lmfit on odeint by hand, one core ({OF_PEER} starts, times {STARTS // OF_PEER})"
    return Row(f"{STARTS} starts of the HIV fit in a box, two workers", ours, name, peer, goals)


def boehm_starts() -> Row:
    """Time a hundred starts over ten decades, noise estimated, beside lmfit with sds of 10 from a few."""
    from scipy.integrate import odeint

    cost = boehm.noisy_cost()
    names = list(cost.parms.index)
    logs = fme.transformed(cost, dict.fromkeys(names, "log10"))
    ask: dict[str, Any] = {"p": dict.fromkeys(names, 0.0), "lower": -DECADES, "upper": DECADES, "seed": 1}
    fme.modFit(logs, **ask, starts=20, executor=2)  # compiled once here and once in every worker
    hand = seconds_by_hand()
    ours, fit = timed(lambda: fme.modFit(logs, **ask, starts=STARTS, executor=2))
    assert abs(fit.minus2loglik - boehm.MINUS2LOGLIK) < 0.01, fit.minus2loglik
    start, data = list(boehm.model()().iloc[0, 1:9]), np.concatenate(list(boehm.DATA.values()))

    def residuals(p: Any) -> Any:
        rates = {k: 10**v for k, v in p.items()}
        y = odeint(lambda y, t: boehm.dimers(t, *y, **rates), start, boehm.TIMES)
        return (np.concatenate(boehm.observed(*y.T[:5])) - data) / 10

    box = (dict.fromkeys(boehm.RATES, end) for end in (-DECADES, DECADES))
    peer, _ = by_lmfit(residuals, *box)
    reached = int(fit.multistart.reached)
    goals = [within(ours, 30, hand), at_least(reached, 1, "the best known optimum found {:.0f} times")]
    name = f"lmfit on odeint by hand, sds not estimated ({OF_PEER} starts, times {STARTS // OF_PEER})"
    return Row(f"{STARTS} starts of Boehm's fit, 9 parameters over ten decades, two workers", ours, name, peer, goals)


ROWS = [hiv_starts, boehm_starts]
