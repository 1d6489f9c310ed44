"""Costs of some parameters while others are held at values of one's choice."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fmepy.models.base import bound_to, keep_within, tightened
from fmepy.parameters.named import Parameters, merge_parameters
from fmepy.types import IntVector, Matrix, UserParameters, Vector

__all__ = ["HeldCost", "held_function"]


def held_function(
    f: Callable[..., Any],
    parameters: Parameters,
    theta: Vector,
    names: Sequence[str],
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
) -> Callable[[Any], Any]:
    """Return `f` as a function of the parameters `names` alone; the others stay at `theta`.

    Examples
    --------
    >>> from fmepy.parameters.named import as_parameters
    >>> whole = as_parameters({"a": 1.0, "b": 2.0})
    >>> held_function(lambda p: p["a"] + p["b"], whole, whole.values, ["b"])({"b": 5.0})
    6.0
    """
    at = [parameters.names.index(n) for n in names]

    def of_some(given: Any) -> Any:
        full = np.array(theta, dtype=float)
        full[at] = [given[n] for n in names] if isinstance(given, Mapping) else np.asarray(given, dtype=float)
        return f(parameters.given(full), *args, **(kwargs or {}))

    return of_some


class HeldCost:
    """A fmepy cost whose own values are others; see `fmepy.costs.base.Cost` for what it offers.

    Parameters
    ----------
    cost : Cost
    values : Series
        Values of some or all of its parameters.
    """

    def __init__(self, cost: Any, values: pd.Series) -> None:
        self.cost = cost
        self.parms: pd.Series = merge_parameters(cost.parms, values)
        self.lower: pd.Series = cost.lower
        self.upper: pd.Series = cost.upper
        self.values = values

    @property
    def transforms(self) -> dict[str, str]:
        """How the parameters of the cost are transformed, by name."""
        return dict(getattr(self.cost, "transforms", {}))

    def __call__(self, parms: UserParameters = None) -> Any:
        """Return what the cost gives."""
        return self.cost(merge_parameters(self.parms, parms))

    def bind(self, names: Sequence[str] | None = None, *, hold_engine: bool = False, runs: int = 1) -> Any:
        """Return the cost as a function of the parameters `names` (None: all), the others at the values given."""
        names = list(map(str, self.parms.index)) if names is None else list(names)
        moved = [n for n in map(str, self.values.index) if n not in names and self.values[n] != self.cost.parms[n]]
        inner = bound_to(self.cost, [*names, *moved], runs=runs, hold_engine=hold_engine)
        return _BoundHeld(inner, len(names), self.parms[[*names, *moved]].to_numpy(dtype=float))

    def replace(self, **arguments: Any) -> HeldCost:
        """Return a copy with some arguments of the cost's constructor changed."""
        return HeldCost(self.cost.replace(**arguments), self.values)


class _BoundHeld:
    """A bound cost of the first parameters of another one; the rest stays as it is."""

    def __init__(self, inner: Any, n: int, theta: Vector) -> None:
        self._inner, self._n, self._tail = inner, n, theta[n:]
        self.parameter_names: tuple[str, ...] = tuple(inner.parameter_names[:n])
        self.theta0: Vector = theta[:n]
        self.lower, self.upper = inner.lower[:n], inner.upper[:n]
        self.is_scalar, self.has_jacobian = inner.is_scalar, inner.has_jacobian
        self.names, self.x, self.weights = inner.names, inner.x, inner.weights
        self.scales, self.group_names = inner.scales, inner.group_names
        self.groups: IntVector = inner.groups
        if callable(getattr(inner, "score", None)) and hasattr(inner, "information"):
            self.score = lambda theta, rough=False: inner.score(self._full(theta), rough)[:n]
            self.information = lambda theta, rough=False: inner.information(self._full(theta), rough)[:n, :n]
            self.nobs = inner.nobs
            self.scale_parameters = inner.scale_parameters[:n]
            self.inflated = lambda factor: self._of(inner.inflated(factor))
            self.sensitivity_rows = lambda theta: _first_columns(inner.sensitivity_rows(self._full(theta)), n)

    @property
    def retries(self) -> int:
        """Runs so far that the first engine could not finish and another one did."""
        return int(self._inner.retries)

    def keep_within(self, lower: Vector, upper: Vector) -> None:
        """Keep the runs of differences inside these bounds; what is held is not to move."""
        keep_within(self._inner, np.concatenate((lower, self._tail)), np.concatenate((upper, self._tail)))

    def tightened(self) -> Any:
        """Return the same at smaller tolerances, see `fmepy.models.base.tightened`."""
        return self._of(tightened(self._inner))

    @property
    def data(self) -> Any:
        """Which data the likelihood is of."""
        return getattr(self._inner, "data", None)

    def residuals(self, theta: Vector) -> Vector:
        """Return r, shape (n_obs,)."""
        r: Vector = self._inner.residuals(self._full(theta))
        return r

    def jacobian(self, theta: Vector) -> Matrix:
        """Return dr/dtheta, shape (n_obs, n_par)."""
        J: Matrix = self._inner.jacobian(self._full(theta))
        return J[:, : self._n]

    def minus2loglik(self, theta: Vector) -> float:
        """Return -2 log L."""
        return float(self._inner.minus2loglik(self._full(theta)))

    def modcost(self, theta: Vector) -> Any:
        """Return the ModCost."""
        return self._inner.modcost(self._full(theta))

    def _of(self, inner: Any) -> Any:
        return None if inner is None else _BoundHeld(inner, self._n, np.concatenate((self.theta0, self._tail)))

    def _full(self, theta: Vector) -> Vector:
        return np.concatenate((theta, self._tail)) if self._tail.size else np.asarray(theta, dtype=float)


def _first_columns(found: tuple[Any, Vector, Matrix], n: int) -> tuple[Any, Vector, Matrix]:
    names, x, rows = found
    return names, x, rows[:, :n]
