"""Bound costs as functions of other parameters than their own: transformed, held at values, tied.

With ``full(theta)`` a map of parameters (`fmepy.parameters.maps`) and D its derivative::

    r(theta) = r(full(theta))      J = J_full D      score = score_full D      information = D' I_full D
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fmepy.costs.base import (
    AroundBound,
    is_scored,
    log_densities,
    minus2loglik_many,
    modcost_at,
    residuals_many,
    standardised,
    with_slopes,
)
from fmepy.models.base import keep_within
from fmepy.numerics.sparse import scaled_columns
from fmepy.parameters.maps import Elementwise, Map, many_of, pull_both
from fmepy.types import BoolVector, Matrix, Vector


def mapped(bound: Any, map: Map, cost: Any = None) -> BoundMapped:
    """Return a bound cost as a function of the parameters of `map`.

    Parameters
    ----------
    bound : BoundCost
        Of ``map.full_names``, in order.
    map : Map
    cost : Cost, optional
        The cost that was bound; asked for a `ModCost` where the bound one gives none.
    """
    return (BoundMappedLikelihood if is_scored(bound) else BoundMapped)(bound, map, cost)


class BoundMapped(AroundBound):
    """A bound cost as a function of other parameters; see `fmepy.costs.base.BoundCost`."""

    def __init__(self, bound: Any, map: Map, cost: Any = None) -> None:
        self.bound, self.map, self._cost = bound, map, cost
        self.parameter_names = tuple(map.names)
        self.theta0 = map.start(np.asarray(bound.theta0, dtype=float))
        self.lower, self.upper = map.bounds(np.asarray(bound.lower), np.asarray(bound.upper))
        self.is_scalar, self.has_jacobian = bool(bound.is_scalar), bool(bound.has_jacobian)
        self._full = map.full  # looked up once: a chain asks thousands of times

    def keep_within(self, lower: Vector, upper: Vector) -> None:
        """Keep the runs of differences inside these bounds."""
        keep_within(self.bound, *self.map.box(lower, upper))

    def residuals(self, theta: Vector) -> Vector:
        """Return r, shape (n_obs,)."""
        r: Vector = self.bound.residuals(self._full(theta))
        return r

    def residuals_many(self, Theta: Matrix) -> tuple[Matrix, Any]:
        """Return r of many theta, and why they failed, see `fmepy.costs.base.residuals_many`."""
        return many_of(self.map, Theta, lambda full: residuals_many(self.bound, full))

    def minus2loglik_many(self, Theta: Matrix) -> tuple[Vector, Any]:
        """Return -2 log L of many theta, and why they failed, see `fmepy.costs.base.minus2loglik_many`."""
        return many_of(self.map, Theta, lambda full: minus2loglik_many(self.bound, full))

    def jacobian(self, theta: Vector) -> Matrix:
        """Return dr/dtheta, shape (n_obs, n_par)."""
        return np.asarray(self.map.pull(theta, self.bound.jacobian(self._full(theta))))

    @property
    def is_sparse(self) -> bool:
        """True if the bound cost is, and parameters are mapped one by one."""
        return isinstance(self.map, Elementwise) and bool(getattr(self.bound, "is_sparse", False))

    def sparse_jacobian(self, theta: Vector) -> Any:
        """Return dr/dtheta as a sparse array, where `is_sparse`."""
        return scaled_columns(self.bound.sparse_jacobian(self._full(theta)), self.map.pull(theta, np.ones(len(theta))))

    def with_slopes(self, theta: Vector) -> tuple[Any, Any]:
        """Return values and slopes of one run, see `fmepy.costs.base.with_slopes`."""
        value, slopes = with_slopes(self.bound, self._full(theta))
        return value, np.asarray(self.map.pull(theta, slopes))

    @property
    def has_pull(self) -> bool:
        """True if `with_pull` takes less time than `with_slopes`."""
        return bool(getattr(self.bound, "has_pull", False))

    def with_pull(self, theta: Vector) -> tuple[Vector, Any]:
        """Return r, and ``pull(dL/dr)``, which returns dL/dtheta of a number L."""
        r, pull = self.bound.with_pull(self._full(theta))
        return r, lambda of_r: np.asarray(self.map.pull(theta, pull(of_r)))

    def minus2loglik(self, theta: Vector) -> float:
        """Return -2 log L."""
        return float(self.bound.minus2loglik(self._full(theta)))

    def log_densities(self, theta: Vector) -> Vector | None:
        """Return the log densities of all readings, see `fmepy.costs.base.log_densities`."""
        return log_densities(self.bound, self._full(theta))

    def modcost(self, theta: Vector) -> Any:
        """Return the `ModCost` at theta."""
        return modcost_at(self._cost, self.bound, self._full(theta))


class BoundMappedLikelihood(BoundMapped):
    """The same for a cost that has the score and the expected information of its likelihood."""

    def score(self, theta: Vector, rough: bool = False) -> Vector:
        """Return d log L / d theta, shape (n_par,)."""
        return np.asarray(self.map.pull(theta, self.bound.score(self._full(theta), rough)))

    def information(self, theta: Vector, rough: bool = False) -> Matrix:
        """Return the expected information of theta, shape (n_par, n_par)."""
        return pull_both(self.map, theta, self.bound.information(self._full(theta), rough))

    def sensitivity_rows(self, theta: Vector) -> tuple[list[str], Vector, Matrix]:
        """Return variable, x and row of what the expected information is made of."""
        names, x, rows = self.bound.sensitivity_rows(self._full(theta))
        return names, x, np.asarray(self.map.pull(theta, rows))

    def standardised(self, theta: Vector) -> tuple[Sequence[str], Vector] | None:
        """Return variable and standardised residual of every datum, see `fmepy.costs.base`."""
        return standardised(self.bound, self._full(theta))

    @property
    def scale_parameters(self) -> BoolVector:
        """Parameters that scale noise."""
        mine = getattr(self.bound, "scale_parameters", None)
        none = np.zeros(len(self.theta0), dtype=bool)
        return none if mine is None else self.map.scale_parameters(np.asarray(mine, dtype=bool), self.theta0)

    @property
    def has_kinks(self) -> bool:
        """Whether the likelihood has kinks."""
        return getattr(self.bound, "has_kinks", False)

    def inflated(self, factor: float) -> Any:
        """Return the same with the process noise inflated, see `fmepy.costs.base`; None where there is none."""
        bound = self.bound.inflated(factor) if hasattr(self.bound, "inflated") else None
        return None if bound is None else self.around(bound)
