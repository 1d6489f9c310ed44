"""Costs as functions of other parameters than their own: transformed, held at values, tied; and `transformed` itself.

With ``full(theta)`` a map of parameters (`fmepy.parameters.maps`) and D its derivative::

    r(theta) = r(full(theta))      J = J_full D      score = score_full D      information = D' I_full D
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fmepy.costs.base import (
    AddableCost,
    AroundBound,
    Cost,
    is_scored,
    minus2loglik_many,
    modcost_at,
    residuals_many,
    standardised,
)
from fmepy.costs.noise import SaidNoise, said_noise
from fmepy.errors import ArgumentError
from fmepy.models.base import Model, keep_within, tightened
from fmepy.models.mapped import MappedModel
from fmepy.numerics.sparse import scaled_columns
from fmepy.parameters.functions import TransformedFunction
from fmepy.parameters.mapped import Mapped, Transforms, transforms_of
from fmepy.parameters.maps import Elementwise, Map, many_of, pull_both
from fmepy.types import BoolVector, Matrix, UserParameters, Vector


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
        self._full = map.full  # both looked up once: a chain asks thousands of times
        self._residuals = getattr(bound, "residuals", None)  # a likelihood need not have any

    def keep_within(self, lower: Vector, upper: Vector) -> None:
        """Keep the runs of differences inside these bounds."""
        keep_within(self.bound, *self.map.box(lower, upper))

    def tightened(self) -> Any:
        """Return the same at smaller tolerances, see `fmepy.models.base.tightened`."""
        return self._of(tightened(self.bound))

    def residuals(self, theta: Vector) -> Vector:
        """Return r, shape (n_obs,)."""
        assert self._residuals is not None, "of costs with residuals only"
        r: Vector = self._residuals(self._full(theta))
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

    def minus2loglik(self, theta: Vector) -> float:
        """Return -2 log L."""
        return float(self.bound.minus2loglik(self._full(theta)))

    def modcost(self, theta: Vector) -> Any:
        """Return the `ModCost` at theta."""
        return modcost_at(self._cost, self.bound, self._full(theta))

    def _of(self, bound: Any) -> Any:
        return None if bound is None else type(self)(bound, self.map, self._cost)


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

    def inflated(self, factor: float) -> Any:
        """Return the same with the process noise inflated, see `fmepy.costs.base`; None where there is none."""
        return self._of(self.bound.inflated(factor) if hasattr(self.bound, "inflated") else None)


class MappedCost(Mapped, AddableCost):
    """A cost as a function of transformed parameters, or with other values of its own; made by `transformed`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.lower  # what has no bounds is told here

    @property
    def lower(self) -> pd.Series:
        """Lower bounds, mapped."""
        return self._bounds()[0]

    @property
    def upper(self) -> pd.Series:
        """Upper bounds, mapped."""
        return self._bounds()[1]

    def __call__(self, parms: UserParameters = None) -> Any:
        """Return what the inner cost returns, at mapped parameters."""
        return self.inner(self.inner_parms(parms))

    def bind(self, names: Sequence[str] | None = None, **words: Any) -> BoundMapped:
        """Return the cost as a function of the mapped parameters `names` (None: all)."""
        map = self.map(self.checked_names(names))
        return mapped(self.inner.bind(map.full_names, **words), map, self.inner)

    @property
    def said_noise(self) -> SaidNoise | None:
        """What is said of the noise, see `fmepy.costs.noise`."""
        said = said_noise(self.inner)
        return None if said is None else said.mapped(self.how.kinds, {str(k): v for k, v in self.parms.items()})

    def repeats(self, other: object) -> bool:
        """Tell whether another cost compares the same model with the same data."""
        inner = getattr(self.inner, "repeats", None)
        return isinstance(other, MappedCost) and inner is not None and bool(inner(other.inner))

    def _bounds(self) -> tuple[pd.Series, pd.Series]:
        own = self.inner.lower, self.inner.upper
        low, high = self.map().bounds(*(ends.to_numpy(dtype=float) for ends in own))
        return pd.Series(low, index=own[0].index), pd.Series(high, index=own[1].index)


def transformed(f: Any, how: str | Mapping[str, str], *, names: Sequence[str] | None = None) -> Any:
    """Return the same model, cost or function, as a function of transformed parameters.

    Parameters
    ----------
    f : Model, Cost or callable
        A fmepy model or cost gives one again, whose `parms` are the transformed values (names stay) and whose fast
        path follows the chain rule. Any other callable ``f(p)`` gives a callable that takes back what it is given
        (dict, Series or array; the type is kept) and calls `f`.
    how : {"log", "log10", "logit"}, or mapping of parameter to one of these
        A word transforms all parameters (or those of `names`).
    names : sequence of str, optional
        Transform these alone. Positional parameters of a plain callable are called p1, p2, ...

    Returns
    -------
    Model, Cost or callable
        Of the kind of `f`. Parameters that are not transformed, or not bound, stay as they are. It pickles if `f` does.

    Raises
    ------
    ParameterError
        An unknown name, or a parameter that cannot be transformed, such as the logarithm of zero.
    ArgumentError
        An unknown `how`, or an `f` that cannot be called.

    Notes
    -----
    Estimates, covariances and chains are then on the transformed scale, and a chain's flat prior is flat there. Values
    that give no finite parameter, such as exp(1000), are a failed run (`SimulationError`). Bounds of a cost are
    transformed too; those beyond the ends of a transform, such as a lower bound of zero under the logarithm, vanish.

    **Differs from FME**: there, users write ``exp(p)`` into their objective functions.

    Examples
    --------
    >>> import numpy as np
    >>> f = transformed(lambda p: p["a"] + p["b"], {"a": "log10"})
    >>> float(f({"a": 2.0, "b": 1.0}))
    101.0
    >>> g = transformed(lambda p: p, "log")
    >>> g(np.zeros(2))
    array([1., 1.])
    """
    if not callable(f):
        raise ArgumentError(f"`f` must be a model, a cost or a function; got {type(f).__name__}.")
    if isinstance(f, (Model, Cost)):
        kinds = Transforms(transforms_of(how, names, [str(n) for n in f.parms.index]))
        return MappedModel(f, kinds) if isinstance(f, Model) else MappedCost(f, kinds)
    transforms_of(how, names, None)
    chosen = None if names is None else (names,) if isinstance(names, str) else tuple(map(str, names))
    return TransformedFunction(f, dict(how) if isinstance(how, Mapping) else how, chosen)
