"""Differences that fit the noise of a function: how derivatives are taken where nobody gives them.

The step fits the noise of the function. The noise of a computed function (an ODE solver's tolerance, say) is read off a
table of differences of seven evaluations along one line (Hamming; Moré and Wild 2011)::

    eps_k^2 = (k!)^2 / (2k)!  mean_i (Delta^k f_i)^2,     eps = median over k = 4, 5, 6

for a smooth function high differences vanish, so what is left is noise. An adaptive solver is smooth in patches: the
table reaches 1.2 % from the start, and is made once more where a search ends; the larger noise counts, since too large
a step costs little accuracy and too small a one all of it. With ``e`` = eps relative to the response of f
to its parameters:

    e < 1e-13   "noise free": forward differences, step max(1.5e-8, 2 e^(1/2)) of the parameter's size
    else        central differences, step 0.3 e^(1/3) of the parameter's size, at most 1e-2

The cube root balances rounding against curvature (noise / step against step^2); the factor 0.3 leans to the small side,
since fitted logarithms vary over less than their size.

References
----------
Moré, J. J. and Wild, S. M. (2011). Estimating computational noise. SIAM J. Sci. Comput. 33, 1292-1314.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import factorial
from typing import Any

import numpy as np

from fmepy.errors import SimulationError
from fmepy.types import Matrix, Vector

__all__ = ["NOISE_FREE", "Differences", "difference_table_noise", "magnitudes", "probe"]

NOISE_FREE = 1e-13
_FORWARD_STEP = 1.5e-8  # about the square root of the machine epsilon


def magnitudes(theta: Vector, lower: Vector, upper: Vector) -> Vector:
    """Return the size of every parameter, positive: its absolute value; for a start at 0 a tenth of its box, else 1.

    Examples
    --------
    >>> magnitudes(np.array([-3.0, 0.0, 0.0]), np.full(3, -np.inf), np.array([np.inf, np.inf, 5.0]))
    array([3., 1., 1.])
    """
    size = np.abs(theta)
    box = 0.1 * (upper - lower)
    return np.where(size > 0, size, np.where(np.isfinite(box) & (box > 0), box, 1.0))


@dataclass(frozen=True, slots=True, eq=False)
class Differences:
    """How derivatives are taken by differences.

    Attributes
    ----------
    noise : float
        Noise of the function, relative to its response to the parameters (dimensionless).
    step : float
        Step of first derivatives, relative to a parameter's size.
    central : bool
        Central differences; else forward ones.
    absolute : float
        The noise itself, in the unit of the function.
    """

    noise: float
    step: float
    central: bool
    absolute: float = 0.0

    @classmethod
    def for_noise(cls, noise: float, absolute: float = 0.0) -> Differences:
        """Return the differences that fit a relative noise."""
        if noise < NOISE_FREE:
            return cls(noise, max(_FORWARD_STEP, 2 * noise**0.5), False, absolute)
        return cls(noise, float(min(1e-2, 0.3 * noise ** (1 / 3))), True, absolute)


def probe(function: Callable[[Vector], Any], theta: Vector, j: int, h: float) -> tuple[float, Any] | None:
    """Return (the step really taken, the value there), or None if it failed."""
    point = theta.copy()
    point[j] += h
    try:
        return float(point[j] - theta[j]), np.asarray(function(point), dtype=float)
    except SimulationError:
        return None


def difference_table_noise(values: Matrix) -> float:
    """Return the noise of a function tabulated at equal distances along axis 0, root mean square over axis 1.

    Examples
    --------
    >>> x = np.linspace(0, 1e-3, 7)[:, None]
    >>> bool(difference_table_noise(np.exp(x)) < 1e-15)
    True
    """
    estimates = []
    for k in range(4, values.shape[0]):
        factor = factorial(k) ** 2 / factorial(2 * k)
        estimates.append(factor * float(np.mean(np.diff(values, k, axis=0) ** 2)))
    return float(np.sqrt(np.median(estimates)))
