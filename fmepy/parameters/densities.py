"""Log densities of scipy's distributions as plain functions of a number, with their slopes.

A frozen distribution of scipy.stats takes some 50 microseconds for one value, more than many models take for a run. The
common ones have closed densities, up to a constant that follows from one value at the median. Of any other
distribution the slope is a central difference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import copysign, exp, inf, isfinite, log, log1p, nan
from typing import Any

Slope = tuple[float, float]
"""A log density and its derivative."""

_STEP = 1e-5  # of a difference, in widths
_BESIDE = 1e-9  # of the way from an end to the median: where the slope is that at the end


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
    "loglaplace": lambda x, c: (-c * abs(log(x)) - log(x), -(copysign(c, log(x)) + 1) / x),
    "logistic": _logistic,
    "gamma": lambda x, a: ((a - 1) * log(x) - x, (a - 1) / x - 1),
    "chi2": lambda x, df: ((df / 2 - 1) * log(x) - x / 2, (df / 2 - 1) / x - 0.5),
    "rayleigh": lambda x: (log(x) - 0.5 * x * x, 1 / x - x),
    "invgamma": lambda x, a: (-(a + 1) * log(x) - 1 / x, -(a + 1) / x + 1 / x**2),
    "beta": lambda x, a, b: ((a - 1) * log(x) + (b - 1) * log1p(-x), (a - 1) / x - (b - 1) / (1 - x)),
    "t": lambda x, df: (-0.5 * (df + 1) * log1p(x * x / df), -(df + 1) * x / (df + x * x)),
    "weibull_min": lambda x, c: ((c - 1) * log(x) - x**c, (c - 1) / x - c * x ** (c - 1)),
}
"""By the name in scipy.stats: log density of x = (value - loc) / scale up to a constant, and its derivative; the shape
parameters come after x."""


_KINKS: dict[str, Callable[..., float]] = {
    "laplace": lambda: 0.0, "laplace_asymmetric": lambda kappa: 0.0, "loglaplace": lambda c: 1.0, "triang": lambda c: c,
}  # fmt: skip
"""By name: where a density has a kink, as (value - loc) / scale."""


def kink_of(distribution: Any) -> float:
    """Return where the density of a frozen distribution has a kink, NaN where it has none.

    Examples
    --------
    >>> from scipy.stats import laplace
    >>> kink_of(laplace(3, 0.5))
    3.0
    """
    known = getattr(distribution, "kink", None)
    if known is not None:
        return float(known)
    family = _family(distribution, _KINKS)
    if family is None:
        return nan
    numbers, loc, scale = _arguments(family, distribution)
    return loc + scale * _KINKS[family.name](*numbers)


def log_density(distribution: Any) -> Callable[[float], float]:
    """Return the log density of a frozen distribution as a function of a number, -inf outside its support.

    Parameters
    ----------
    distribution : frozen distribution of scipy.stats, or anything with ``logpdf``

    Examples
    --------
    >>> from scipy.stats import gamma
    >>> bool(abs(log_density(gamma(3, scale=2))(5.0) - gamma(3, scale=2).logpdf(5.0)) < 1e-12)
    True
    """
    closed = _closed(distribution)
    return partial(_plain, distribution) if closed is None else partial(_without_slope, closed)


def density_with_slope(distribution: Any, width: float = inf) -> Callable[[float], Slope]:
    """Return the log density of a frozen distribution, and its slope, as a function of a number.

    width : its width, for differences; infinite if it has none.

    Examples
    --------
    >>> from scipy.stats import gamma
    >>> round(density_with_slope(gamma(3, scale=2))(5.0)[1], 12)
    -0.1
    """
    return _closed(distribution) or partial(_by_differences, partial(_plain, distribution), width)


def _plain(distribution: Any, value: float) -> float:
    return float(distribution.logpdf(value))


def _without_slope(density: Callable[[float], Slope], value: float) -> float:
    return density(value)[0]


def _closed(distribution: Any) -> Callable[[float], Slope] | None:
    """Return a log density that is closed, with its slope; None of any other."""
    family = _family(distribution, CLOSED)
    if family is None:
        return None
    numbers, loc, scale = _arguments(family, distribution)
    lower, upper, middle = map(float, (*distribution.support(), distribution.median()))
    constant = float(distribution.logpdf(middle)) - CLOSED[family.name]((middle - loc) / scale, *numbers)[0]
    return partial(_at, distribution, numbers, (loc, scale, lower, middle, upper, constant))


def _family(distribution: Any, known: Mapping[str, Any]) -> Any:
    """Return the distribution of scipy.stats that is frozen here, None if it is another or not known by name."""
    family = getattr(distribution, "dist", None)
    is_scipys = type(family).__module__.startswith("scipy.stats")  # not a user's own of the same name
    return family if is_scipys and getattr(family, "name", "") in known else None


def _arguments(family: Any, distribution: Any) -> tuple[list[float], float, float]:
    """Return the shape parameters, the place and the scale."""
    names = [*filter(None, (family.shapes or "").split(", ")), "loc", "scale"]
    values = {"loc": 0.0, "scale": 1.0} | dict(zip(names, distribution.args, strict=False)) | distribution.kwds
    *numbers, loc, scale = (float(values[name]) for name in names)
    return numbers, loc, scale


def _at(distribution: Any, numbers: list[float], more: tuple[float, ...], value: float) -> Slope:
    """Return a closed density at a value, of its shape parameters and of its place, scale, support and constant."""
    loc, scale, lower, middle, upper, constant = more
    if not lower <= value <= upper or not isfinite(value):
        return -inf, 0.0
    try:
        density, slope = CLOSED[distribution.dist.name]((value - loc) / scale, *numbers)
    except (ValueError, ZeroDivisionError, OverflowError):  # the logarithm of zero, at an end: scipy takes the limit
        density = float(distribution.logpdf(value))
        beside = value + _BESIDE * (middle - value)
        return density, _at(distribution, numbers, more, beside)[1] if isfinite(density) and beside != value else 0.0
    return density + constant, slope / scale


def _by_differences(density: Callable[[float], float], width: float, value: float) -> Slope:
    h = _STEP * (width if width < inf else max(abs(value), 1e-3))
    here, above, below = density(value), density(value + h), density(value - h)
    if above == -inf or below == -inf:  # beside an end of the support one side serves
        inner, sign = (below, -1.0) if above == -inf else (above, 1.0)
        return here, sign * (inner - here) / h
    return here, (above - below) / (2 * h)
