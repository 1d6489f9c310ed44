"""Log densities of scipy's distributions as plain functions of a number, with their slopes.

A frozen distribution of scipy.stats takes some 50 microseconds for one value, more than many models take for a run. The
ones that priors are made of have closed densities, up to a constant that one value at the median tells. Of any other
distribution the slope is a central difference.
"""

from __future__ import annotations

from collections.abc import Callable
from math import copysign, exp, inf, log, log1p
from typing import Any

Slope = tuple[float, float]
"""A log density and its derivative."""

_STEP = 1e-5  # of a difference, in widths


def _lognorm(x: float, s: float) -> Slope:
    u = log(x)
    return -0.5 * (u / s) ** 2 - u, -(1 + u / s**2) / x


def _logistic(x: float) -> Slope:
    e = exp(-abs(x))
    return -abs(x) - 2 * log1p(e), -copysign((1 - e) / (1 + e), x)


CLOSED: dict[str, Callable[..., Slope]] = {
    "norm": lambda x: (-0.5 * x * x, -x),
    "halfnorm": lambda x: (-0.5 * x * x, -x),
    "truncnorm": lambda x, a, b: (-0.5 * x * x, -x),
    "uniform": lambda x: (0.0, 0.0),
    "expon": lambda x: (-x, -1.0),
    "laplace": lambda x: (-abs(x), -copysign(1.0, x) if x else 0.0),
    "cauchy": lambda x: (-log1p(x * x), -2 * x / (1 + x * x)),
    "halfcauchy": lambda x: (-log1p(x * x), -2 * x / (1 + x * x)),
    "loguniform": lambda x, a, b: (-log(x), -1 / x),
    "reciprocal": lambda x, a, b: (-log(x), -1 / x),
    "lognorm": _lognorm,
    "logistic": _logistic,
    "gamma": lambda x, a: ((a - 1) * log(x) - x, (a - 1) / x - 1),
    "invgamma": lambda x, a: (-(a + 1) * log(x) - 1 / x, -(a + 1) / x + 1 / x**2),
    "beta": lambda x, a, b: ((a - 1) * log(x) + (b - 1) * log1p(-x), (a - 1) / x - (b - 1) / (1 - x)),
    "t": lambda x, df: (-0.5 * (df + 1) * log1p(x * x / df), -(df + 1) * x / (df + x * x)),
    "weibull_min": lambda x, c: ((c - 1) * log(x) - x**c, (c - 1) / x - c * x ** (c - 1)),
}
"""By the name in scipy.stats: log density of x = (value - loc) / scale up to a constant, and its derivative; the shape
parameters come after x."""


def log_density(distribution: Any, width: float = inf) -> Callable[[float], Slope]:
    """Return the log density of a frozen distribution, with its slope, as a function of a number inside its support.

    Parameters
    ----------
    distribution : frozen distribution of scipy.stats, or anything with ``logpdf``
    width : float
        What counts as its width, for differences; infinite where it does not say.

    Examples
    --------
    >>> from scipy.stats import gamma
    >>> density, slope = log_density(gamma(3, scale=2))(5.0)
    >>> bool(abs(density - gamma(3, scale=2).logpdf(5.0)) < 1e-12), round(slope, 12)
    (True, -0.1)
    """
    family = getattr(distribution, "dist", None)
    closed = CLOSED.get(getattr(family, "name", ""))
    if closed is None or family is None:
        return _by_differences(distribution, width)
    names = [*filter(None, (family.shapes or "").split(", ")), "loc", "scale"]
    given = {"loc": 0.0, "scale": 1.0} | dict(zip(names, distribution.args, strict=False)) | distribution.kwds
    *numbers, loc, scale = (float(given[name]) for name in names)
    middle = float(distribution.median())
    constant = float(distribution.logpdf(middle)) - closed((middle - loc) / scale, *numbers)[0]

    def at(value: float) -> Slope:
        try:
            density, slope = closed((value - loc) / scale, *numbers)
        except (ValueError, ZeroDivisionError, OverflowError):  # the logarithm of zero, at an end of the support
            return -inf, 0.0
        return density + constant, slope / scale

    return at


def _by_differences(distribution: Any, width: float) -> Callable[[float], Slope]:
    def at(value: float) -> Slope:
        h = _STEP * (width if width < inf else max(abs(value), 1e-3))
        density, above, below = (float(distribution.logpdf(v)) for v in (value, value + h, value - h))
        if above == -inf or below == -inf:  # beside an end of the support one side serves
            inner, sign = (below, -1.0) if above == -inf else (above, 1.0)
            return density, sign * (inner - density) / h
        return density, (above - below) / (2 * h)

    return at
