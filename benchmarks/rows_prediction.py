"""The rows of prediction errors: a pendulum of a thousand samples, beside what a user would write with odeint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from scipy.integrate import odeint
from scipy.optimize import least_squares

import fmepy as fme
from benchmarks.row import Row, at_least, at_most
from benchmarks.timing import side_by_side

REFERENCE = Path(__file__).parent.parent / "tests" / "reference" / "fimlof" / "pendulum.json"
TIMES, START, G = np.linspace(0.1, 20, 1000), np.array([0.0, 3.0]), 9.82
TIGHT = 1e-9  # of odeint, whose runs are differenced with a step of 1e-5
K = np.array([0.02, 0.01])


def pendulum(t: Any, theta: Any, omega: Any, *, L: float = 0.7, g: float = G) -> Any:
    """Return the rates of a pendulum."""
    return omega, -g / L * np.sin(theta)


def readings() -> np.ndarray:
    """Return the exact readings of a pendulum with L = 1."""
    return np.array(json.loads(REFERENCE.read_text(encoding="utf-8"))["y"])


def cost(**words: Any) -> fme.PredictionErrorCost:
    """Return the cost of the pendulum."""
    model = fme.OdeModel(pendulum, state={"theta": 0, "omega": 3}, times=TIMES, outputs={"y": "theta"})
    return fme.PredictionErrorCost(model, {"time": TIMES, "y": readings()}, **words)


def by_hand(residuals: Any) -> float:
    """Return the length that least squares find from 0.7."""
    return float(least_squares(residuals, [0.7], diff_step=1e-5).x[0])


def observer_by_hand(p: Any) -> np.ndarray:
    """Return the errors of the continuous observer by odeint."""
    y = readings_once()

    def rates(x: Any, t: float) -> Any:
        return x[1] + np.interp(t, TIMES, y) - x[0], -G / p[0] * np.sin(x[0])

    return odeint(rates, START, TIMES, rtol=TIGHT, atol=TIGHT)[:, 0] - y


def causal_by_hand(p: Any) -> np.ndarray:
    """Return the errors of the causal predictor: odeint from sample to sample."""
    y, x, errors = readings_once(), START, []
    for i, seen in enumerate(y):
        if i:
            x = odeint(lambda x, t: (x[1], -G / p[0] * np.sin(x[0])), x, TIMES[i - 1 : i + 1], rtol=TIGHT, atol=TIGHT)[
                1
            ]
        errors.append(x[0] - seen)
        x = x - K * errors[-1]
    return np.array(errors)


_READ: list[np.ndarray] = []


def readings_once() -> np.ndarray:
    """Return the readings, read from the file once."""
    if not _READ:
        _READ.append(readings())
    return _READ[0]


def fitted(work: str, ours: fme.PredictionErrorCost, peer: Any, truth: float, seconds: float) -> Row:
    """Time a fit of the length from 0.7 beside the same by hand."""
    assert abs(fme.modFit(ours, ["L"]).par["L"] - truth) < 1e-6
    assert abs(by_hand(peer) - truth) < 1e-4
    mine, hand = side_by_side(lambda: fme.modFit(ours, ["L"]), lambda: by_hand(peer), rounds=3)
    goals = [at_most(mine, seconds, "{:.3f} s"), at_least(hand / mine, 10, "{:.1f} times the speed of odeint by hand")]
    return Row(work, mine, "odeint and least_squares by hand", hand, goals)


def observer() -> Row:
    """Fit by the continuous form."""
    ours = cost(gain={"theta": {"y": 1.0}}, form="observer")
    return fitted("pendulum, 1,000 samples, fitted by an observer", ours, observer_by_hand, 1.0000671654, 0.1)


def causal() -> Row:
    """Fit by the causal form."""
    ours = cost(gain={"theta": {"y": float(K[0])}, "omega": {"y": float(K[1])}})
    return fitted("the same, corrected at every sample", ours, causal_by_hand, 1.0, 0.3)


ROWS = [observer, causal]
