"""Priors of parameters: densities of single parameters or of all, as -2 log density of a plain vector."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from fmepy.errors import ArgumentError, ParameterError, listed
from fmepy.parameters.densities import Slope, density_with_slope, kink_of, log_density
from fmepy.parameters.named import Parameters, by_parameter
from fmepy.types import BoolVector, Vector


@dataclass(frozen=True, slots=True, eq=False)
class Prior:
    """A prior of parameters, as -2 log density.

    Attributes
    ----------
    minus2log : callable
        ``minus2log(theta) -> float``.
    normal : tuple of (int, float, float)
        Position, mean and standard deviation of every parameter with a normal prior; these can join least squares as
        residuals ``(theta_i - mean) / sd``.
    all_normal : bool
        True if the whole prior is of that kind.
    parts : tuple of Density or None
        That of every parameter, where they are independent; None of a function of them all.
    """

    minus2log: Callable[[Vector], float]
    normal: tuple[tuple[int, float, float], ...]
    all_normal: bool
    parts: tuple[Density, ...] | None = None

    def narrowed(self, lower: Vector, upper: Vector, names: Sequence[str]) -> tuple[Vector, Vector]:
        """Return bounds that lie inside the support of the prior; ParameterError where nothing is left to fit."""
        lower, upper = lower.copy(), upper.copy()
        for d in self.parts or ():
            low, high = max(lower[d.at], d.lower), min(upper[d.at], d.upper)
            if not low < high:
                raise ParameterError(
                    f"The bounds of {names[d.at]!r}, [{lower[d.at]:g}, {upper[d.at]:g}], and the support of its prior, "
                    f"[{d.lower:g}, {d.upper:g}], leave nothing to fit. Change one of them."
                )
            lower[d.at], upper[d.at] = low, high
        return lower, upper

    @property
    def kinked(self) -> tuple[Density, ...]:
        """The densities that have a kink."""
        return tuple(d for d in self.parts or () if d.has_kink)

    def at_kink(self, theta: Vector) -> BoolVector:
        """Return which parameters are at the kink of their prior, where -2 log density has no second derivative."""
        is_at = np.zeros(theta.size, dtype=bool)
        for d in self.kinked:
            is_at[d.at] = theta[d.at] == d.kink
        return is_at

    def slope(self, theta: Vector) -> Vector:
        """Return the derivatives of `minus2log`, of priors that are independent."""
        slope = np.zeros(theta.size)
        for d in self.parts or ():
            slope[d.at] -= 2.0 * d.with_slope(float(theta[d.at]))[1]
        return slope

    def check_support(self, values: Vector, names: Sequence[str], *, argument: str = "p") -> None:
        """Raise a ParameterError if a start lies outside the support of its prior."""
        for d in self.parts or ():
            if not d.lower <= values[d.at] <= d.upper:
                raise ParameterError(
                    f"`{argument}`: the start of {names[d.at]!r} is {values[d.at]:g}, outside the support of its "
                    f"prior, [{d.lower:g}, {d.upper:g}]. Move the start inside, or give a wider prior."
                )


def _number_of(prior: Callable[[Any], Any], parameters: Parameters, theta: Vector) -> float:
    """Return the value of a user's prior at theta; ArgumentError if that is no number."""
    try:
        result = prior(parameters.for_user(theta))
    except KeyError as error:
        raise ArgumentError(f"`prior` asks for {error}; there are {listed(parameters.names)}.") from error
    try:
        (value,) = np.ravel(result).tolist()
        return float(value)
    except (TypeError, ValueError):
        raise ArgumentError(f"`prior` returned {result!r}; -2 log density is needed, one number.") from None


@dataclass(frozen=True, slots=True, eq=False)
class Density:
    """The prior of one parameter, which does not depend on the others.

    Attributes
    ----------
    at : int
        Position of the parameter.
    lower, upper : float
        Its support; a finite end has a density, neither zero nor infinite.
    width : float
        Its width, positive: between its quartiles; infinite if it has none.
    with_slope : callable
        Its log density at a number, and the slope of that.
    kink : float
        Where the slope jumps, as Laplace's does in the middle; NaN of a density that is smooth.
    """

    at: int
    lower: float
    upper: float
    width: float
    with_slope: Callable[[float], Slope]
    kink: float = np.nan

    @property
    def has_kink(self) -> bool:
        """True if it has a kink."""
        return not np.isnan(self.kink)

    @classmethod
    def of(cls, at: int, name: str, distribution: Any) -> Density:
        """Return the density of a frozen distribution of scipy.stats, or of what has the same methods."""
        support, quantile = getattr(distribution, "support", None), getattr(distribution, "ppf", None)
        try:
            lower, upper = (-np.inf, np.inf) if support is None else map(float, support())
            width = np.inf if quantile is None else float(quantile(0.75)) - float(quantile(0.25))
            if getattr(distribution, "dim", 1) != 1:  # a vector's density takes one number for all of it
                raise ValueError
        except (TypeError, ValueError):
            raise ParameterError(
                f"`prior`: that of {name!r} must be a distribution of one number. Of several together it is a function "
                "that returns -2 log density: prior=lambda p: -2 * joint.logpdf([p['a'], p['b']])."
            ) from None
        if not lower < upper:
            raise ParameterError(
                f"`prior`: the distribution of {name!r} has no support ([{lower:g}, {upper:g}]); check its arguments."
            )
        # a search must not reach an end where the density is zero or infinite, or is so by rounding
        inward = 1e-12 * (width if 0 < width < np.inf else 1.0)
        if np.isfinite(lower) and not np.isfinite(distribution.logpdf(lower)):
            lower += max(inward, 1e-15 * abs(lower))
        if np.isfinite(upper) and not np.isfinite(distribution.logpdf(upper)):
            upper -= max(inward, 1e-15 * abs(upper))
        width = width if width > 0 else np.inf
        return cls(at, lower, upper, width, density_with_slope(distribution, width), kink_of(distribution))


def as_prior(prior: Any, parameters: Parameters) -> Prior | None:
    """Return a prior as -2 log density of theta; None stays None.

    Parameters
    ----------
    prior : None, mapping of name to frozen scipy.stats distribution, or callable
        A callable receives what the user's function would (dict or ndarray) and returns -2 log density.
    """
    if prior is None:
        return None
    if callable(prior) and not isinstance(prior, Mapping):
        return Prior(partial(_number_of, prior, parameters), (), False)
    if not isinstance(prior, Mapping):
        raise ParameterError(
            "`prior` must be a dict of scipy.stats distributions by parameter name, or a function "
            f"that returns -2 log density; got {type(prior).__name__}."
        )
    parts = [(parameters.names.index(k), d) for k, d in by_parameter(prior, parameters.names, "prior").items()]
    for i, d in parts:
        if not hasattr(d, "logpdf"):
            raise ParameterError(
                f"`prior`: {parameters.names[i]!r} has {d!r}; a frozen scipy.stats distribution is "
                "needed, such as scipy.stats.norm(0.6, 0.1)."
            )
    each = tuple(Density.of(i, parameters.names[i], d) for i, d in parts)
    normal = tuple(
        (i, float(d.mean()), float(d.std()))
        for i, d in parts
        if getattr(getattr(d, "dist", None), "name", "") == "norm"
    )

    densities = [(i, log_density(d)) for i, d in parts]

    def minus2log(theta: Vector) -> float:
        values = theta.tolist()
        return -2.0 * sum([density(values[i]) for i, density in densities])

    return Prior(minus2log, normal, len(normal) == len(parts), each)
