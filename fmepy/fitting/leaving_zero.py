"""Standard deviations at zero: which of them the data move away from it.

-2 log L is an even function of an sd of noise. At zero its slope vanishes, whatever the data say: a search by
derivatives that starts there, or comes there while the other parameters are still poor, takes it for an optimum. What
decides is the derivative to the variance::

    dF / d sd^2 = lim (F(sd) - F(0)) / sd^2

Its sign is looked at where F has first moved by an amount that can be seen. If F falls, the sd goes on along its own
axis as long as doubling it lowers F: from there every method can start.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fmepy.fitting.problem import Problem
from fmepy.numerics.differences import replaced
from fmepy.types import Vector

_SEEN = 1e-4
"""Changes of -2 log L below this are none: adaptive solvers err by about 1e-5."""
_MOST_TRIALS = 16
_MOST_DOUBLINGS = 100


def let_go(problem: Problem, theta: Vector) -> Vector:
    """Return theta with those sds moved off zero whose variance lowers the cost; theta itself if there are none."""
    if not problem.noise_scales.any():
        return theta
    zeros = np.flatnonzero(problem.noise_scales & (theta == 0) & (problem.upper > 0))
    if len(zeros) and not np.isfinite(problem.cost(theta)):
        theta = _first_value(problem, theta, zeros)
    for _ in range(3):  # one that leaves may set free another
        before = theta
        for j in _near_zero(problem, theta):
            theta = _moved(problem, theta, j)
        if np.array_equal(theta, before):
            break
    return theta


def settled(problem: Problem, theta: Vector) -> Vector:
    """Return theta with negligible sds set to zero, where the cost does not rise noticeably."""
    for j in _near_zero(problem, theta):
        at_zero = replaced(theta, j, 0.0)
        if theta[j] > 0 and problem.lower[j] <= 0 and problem.cost(at_zero) <= problem.cost(theta) + 0.01 * _SEEN:
            theta = at_zero
    return theta


def _near_zero(problem: Problem, theta: Vector) -> list[int]:
    """Return the sds that are zero, or so small that twice as much makes no difference."""
    found: list[int] = []
    if not problem.noise_scales.any():
        return found
    for j in np.flatnonzero(problem.noise_scales & (theta >= 0) & (theta < problem.upper)).tolist():
        twice = replaced(theta, j, min(2 * theta[j], problem.upper[j]))
        if theta[j] == 0 or abs(problem.cost(twice) - problem.cost(theta)) < _SEEN:
            found.append(j)
    return found


def _first_value(problem: Problem, theta: Vector, zeros: Any) -> Vector:
    """Return theta with its zeros where there is a likelihood: exact readings of an exact process have none."""
    for power in range(-3, 13, 3):
        trial = replaced(theta, zeros, np.minimum(10.0**power * problem.scale[zeros], problem.upper[zeros]))
        if np.isfinite(problem.cost(trial)):
            return trial
    return theta


def _moved(problem: Problem, theta: Vector, j: int) -> Vector:
    """Return theta with sd j where the cost is lower, along its axis; unchanged if the cost rises with the variance."""
    base, upper = problem.cost(theta), float(problem.upper[j])
    if not np.isfinite(base):
        return theta
    sd, change = min(max(theta[j], 1e-3 * problem.scale[j]), upper), 0.0
    for _ in range(_MOST_TRIALS):
        change = problem.cost(replaced(theta, j, sd)) - base
        if _SEEN <= abs(change) <= 100 * _SEEN:
            break
        factor = float(np.sqrt(10 * _SEEN / max(abs(change), 1e-300)))
        wanted = min(sd * min(max(factor, 1e-3), 1e3), upper)
        if wanted == sd:
            break
        sd = wanted
    if change > -_SEEN:
        return theta
    best, value = sd, base + change
    for _ in range(_MOST_DOUBLINGS):
        further = min(2 * best, upper)
        lower = problem.cost(replaced(theta, j, further))
        if not lower < value:
            break
        best, value = further, lower
    return replaced(theta, j, best)
