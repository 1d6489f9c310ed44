"""The contract of costs: what every cost offers, and what a new kind of cost must provide.

A **cost** is a model compared with data. Any callable ``f(p)`` that returns a `ModCost`, a residual vector or -2 log L
is one. fmepy's own costs also offer a *fast path*: ``cost.bind(names)`` gives a `BoundCost`, a function of a vector.

A new kind of cost provides

1. ``parms`` (Series), ``lower`` and ``upper`` (Series: declared bounds, infinite where there is none);
2. ``__call__(parms=None)``: a `ModCost` (least squares) or a float, -2 log L;
3. ``bind(names=None, *, hold_engine=False)``; `hold_engine` has the same meaning as for a model, and is passed on;
4. ``replace(**arguments)``, and ``a + b`` in the order written.

Costs are immutable. What is fixed at preparation (which observations are used, their weights, their groups) never
changes from one evaluation to the next, so that residual vectors keep their length.

Quantities, for observation i of group j (a group is a row of ``ModCost.var``: one variable of one cost)::

    residuals   r_i = (mod_i - obs_i) * weights_i          weights = 1 / error;  after `transform` on both sides
    scaled      scales_j^(3/2) * r_i                       their sum of squares is FME's field `model`
    -2 log L    sum_i r_i^2 + log(2 pi) - 2 log weights_i  twice FME's `minlogp`

A bound cost that is one number, -2 log L, may be a *scored* one, which also has

* ``score(theta, rough=False)``, d log L / d theta, and ``information(theta, rough=False)``, its expected covariance;
  `rough` may be cheaper and good for a direction only;
* ``nobs``, the data that count, and ``sensitivity_rows(theta) -> (names, x, rows)`` with rows'rows = information;
* ``scale_parameters``, a mask of the parameters that scale noise: a search moves their logarithms, or ends at zero;
* ``inflated(factor)``, the same with the sds of its process noise times `factor` (None without process noise).

* optionally ``standardised(theta) -> (names, r)``, with r = (mod - obs) / sd of every datum;
* optionally ``log_densities(theta)``, of every datum in its own units, see `log_densities`.

A number that nevertheless has residuals, such as the likelihood of a simulation with its own noise, has
``gives_modcost`` true and ``modcost(theta)``.

The constants of the data are one field, `data`, a `CostData`. A bound cost written elsewhere may offer them as
attributes of the same names instead; `cost_data` reads either.

Any bound cost may offer ``tightened()``, the same at tolerances a hundred times smaller (None if no solver has any), by
which fits and chains measure the effect of the solver's error, see `fmepy.costs.solver_error`. It may also offer
``residuals_many(Theta)`` and, if it is one number, ``minus2loglik_many(Theta)``, which evaluate the members of an
ensemble together, and ``with_slopes(theta)``, value and slopes from one run; see the functions of these names here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pandas as pd

from fmepy.costs.data_fingerprint import ObservedData
from fmepy.errors import ArgumentError, SimulationError
from fmepy.journal.encoding import Stored
from fmepy.models.base import OfRuns, engine_of, tightened
from fmepy.types import IntVector, Matrix, UserParameters, Vector

# ----------------------------------------------------------------------------------------- what is fixed at preparation


@dataclass(frozen=True, slots=True, eq=False)
class CostData(Stored):
    """Constants of the data, fixed when a cost is prepared; all empty if the cost is one number.

    Attributes
    ----------
    names : tuple of str, length n_obs
        Variable of every observation.
    x, weights : ndarray, shape (n_obs,)
        Where it was observed; 1 / error.
    groups : ndarray of int, shape (n_obs,)
        Row of ``var`` that the observation belongs to.
    scales : ndarray, shape (n_group,)
        1/n_j under ``scaleVar``, else 1.
    group_names : tuple of str, length n_group
    """

    names: tuple[str, ...]
    x: Vector
    weights: Vector
    groups: IntVector
    scales: Vector
    group_names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.weights)

    @property
    def observed(self) -> ObservedData | None:
        """The data that the likelihood belongs to, see `fmepy.costs.data_fingerprint`; None if unknown."""
        return None


@dataclass(frozen=True, slots=True, eq=False)
class KnownData(CostData):
    """Constants of the data, together with the data themselves, `observed`."""

    observed: ObservedData | None = None

    @classmethod
    def of_number(cls, observed: ObservedData | None = None) -> KnownData:
        """Return the (empty) constants of a cost that is one number, -2 log L."""
        return cls.unweighted(0, observed)

    @classmethod
    def unweighted(cls, n_obs: int, observed: ObservedData | None = None) -> KnownData:
        """Return the constants of `n_obs` residuals without further information: one group, weights 1."""
        groups, scales = np.zeros(n_obs, dtype=np.intp), np.ones(min(n_obs, 1))
        return cls((), np.full(n_obs, np.nan), np.ones(n_obs), groups, scales, (), observed)


def cost_data(bound: Any) -> CostData:
    """Return the constants of a bound cost's data, from its field `data` or from its separate attributes."""
    data = getattr(bound, "data", None)
    if isinstance(data, CostData):
        return data
    if bound.is_scalar:
        return KnownData.of_number(data)
    return KnownData(
        tuple(bound.names),
        np.asarray(bound.x, dtype=float),
        np.asarray(bound.weights, dtype=float),
        np.asarray(bound.groups, dtype=np.intp),
        np.asarray(bound.scales, dtype=float),
        tuple(bound.group_names),
        data,
    )


def joined_data(pieces: Sequence[CostData]) -> dict[str, Any]:
    """Return the fields of several `CostData` joined in order; no two pieces share a group."""
    first_group = np.cumsum([0, *(len(p.group_names) for p in pieces)])
    return {
        "names": tuple(chain.from_iterable(p.names for p in pieces)),
        "x": np.concatenate([p.x for p in pieces]),
        "weights": np.concatenate([p.weights for p in pieces]),
        "groups": np.concatenate([p.groups + k for p, k in zip(pieces, first_group, strict=False)]),
        "scales": np.concatenate([p.scales for p in pieces]),
        "group_names": tuple(chain.from_iterable(p.group_names for p in pieces)),
    }


def _field(name: str) -> Any:
    return property(lambda bound: getattr(bound.data, name), doc=f"See `CostData.{name}`.")


class OfData:
    """A mixin that offers the fields of `data` as its own: ``bound.weights`` is ``bound.data.weights``."""

    data: Any  # a CostData
    names: tuple[str, ...] = _field("names")
    x: Vector = _field("x")
    weights: Vector = _field("weights")
    groups: IntVector = _field("groups")
    scales: Vector = _field("scales")
    group_names: tuple[str, ...] = _field("group_names")


class Reboundable(OfRuns):
    """A wrapper whose runs are made by another object, `bound`, which can be replaced."""

    def forget(self) -> None:
        """Clear values cached from the previous `bound`."""

    def around(self, bound: Any) -> Any:
        """Return a copy that wraps another `bound`."""
        out = copy(self)
        out.bound = bound
        out.forget()
        return out

    def tightened(self) -> Any:
        """Return the same at smaller tolerances, see `fmepy.models.base.tightened`; None if there are none."""
        bound = tightened(self.bound)
        return None if bound is None else self.around(bound)


class AroundBound(Reboundable, OfData):
    """A wrapper around another bound cost, `bound`, which shares its data and number of observations."""

    @cached_property
    def data(self) -> CostData:
        """Constants of the data."""
        return cost_data(self.bound)

    @property
    def gives_modcost(self) -> bool:
        """Whether there is a ModCost."""
        return gives_modcost(self.bound)

    @property
    def nobs(self) -> float:
        """Number of data, see `nobs_of`."""
        return nobs_of(self.bound)


def nobs_of(bound: Any) -> float:
    """Return the number of data: of residuals, or the `nobs` of a cost that is one number (NaN if it has none)."""
    return float(getattr(bound, "nobs", np.nan)) if bound.is_scalar else float(len(cost_data(bound)))


class OfSeveral:
    """A mixin of objects whose runs are made by several others, `parts`."""

    parts: Any

    @property
    def exact(self) -> Any:
        """True if the derivatives of all parts are exact sensitivities."""
        return all(part.exact for part in self.parts)

    @property
    def retries(self) -> int:
        """Runs so far that the first engine could not finish and another one did."""
        return sum(int(part.retries) for part in self.parts)

    @property
    def engine(self) -> str:
        """The engines that run the models, as far as known."""
        return ", ".join(dict.fromkeys(filter(None, map(engine_of, self.parts))))


def errors_unknown(data: CostData) -> ArgumentError | None:
    """Return the error if residuals cannot join a likelihood, since the size of their errors is unknown; else None."""
    observed = data.observed
    if observed is None or not np.isnan(observed.errors).any():
        return None
    name = next(n for n, e in zip(observed.names, observed.errors, strict=True) if np.isnan(e))
    return ArgumentError(
        f"A part of this sum is a likelihood, but another part, a sum of squares, does not state the errors of "
        f"{name!r}, so that they cannot be added. Give that part measurement_noise="
        f"{{{name!r}: 'estimate'}} too, or a number, or the column of errors, err=."
    )


def is_scored(bound: Any) -> bool:
    """Tell whether a bound cost has the score and the expected information of its likelihood."""
    return callable(getattr(bound, "score", None)) and hasattr(bound, "information")


def gives_modcost(bound: Any) -> bool:
    """Tell whether a bound cost can give a ModCost: if it has residuals, or says so."""
    return bool(getattr(bound, "gives_modcost", not bound.is_scalar))


def modcost_at(cost: Any, bound: Any, theta: Vector) -> Any:
    """Return the ModCost at theta, from the bound cost if it offers one, else from `cost`; None for a plain number."""
    if not gives_modcost(bound):
        return None
    if callable(getattr(bound, "modcost", None)):
        return bound.modcost(theta)
    return cost(dict(zip(bound.parameter_names, map(float, theta), strict=True)))


def standardised(bound: Any, theta: Vector) -> tuple[Sequence[str], Vector] | None:
    """Return variables and standardised residuals of a likelihood without a ModCost; None if it has none."""
    found = getattr(bound, "standardised", None)
    return found(theta) if callable(found) else None


def log_densities(bound: Any, theta: Vector) -> Vector | None:
    """Return the log density of every reading in its own units, shape (n_obs,); None if the cost does not know them.

    They add up to -1/2 of -2 log L, and the `log_jacobian` of the data where these are transformed.
    """
    if bound.is_scalar:
        own = getattr(bound, "log_densities", None)
        densities: Vector | None = None if own is None else own(theta)
    else:
        data = cost_data(bound)
        densities = densities_of_residuals(data, bound.residuals(theta), data.weights**-2.0)
    return densities


def with_slopes(bound: Any, theta: Vector) -> tuple[Any, Any]:
    """Return residuals and their Jacobian, or -2 log L and its gradient of a scored cost, from one run if possible."""
    own = getattr(bound, "with_slopes", None)
    if own is not None:
        found: tuple[Any, Any] = own(theta)
        return found
    if bound.is_scalar:
        return bound.minus2loglik(theta), -2.0 * np.asarray(bound.score(theta))
    return bound.residuals(theta), bound.jacobian(theta)


def densities_of_residuals(data: CostData, r: Any, variances: Any) -> Any:
    """Return the log densities of readings with weighted residuals r, and variances of the unweighted residuals."""
    squares = (r / data.weights) ** 2
    own = 0.0 if data.observed is None else data.observed.log_slopes
    return own - 0.5 * (squares / variances + np.log(2 * np.pi * variances))


# ------------------------------------------------------------------------------------------------------- the contracts


class BoundCost(Protocol):
    """A cost as a function of a plain vector.

    Attributes
    ----------
    parameter_names : tuple of str
        The parameters that ``theta`` holds, in order.
    theta0, lower, upper : ndarray, shape (n_par,)
        The cost's own values of them, and the bounds that it declares.
    is_scalar : bool
        True if it only gives `minus2loglik`: there are no residuals, and its data are empty.
    has_jacobian : bool
        True if `jacobian` is better than differences of `residuals` (exact, or with a step fit for the solver).
    data : CostData
        What is fixed of the data. Its fields ``names, x, weights, groups, scales, group_names`` are also the bound
        cost's own (`OfData` does that).
    exact : bool or None, optional
        True if `jacobian` is of the model's exact sensitivities, False if of its differences; None: nobody says.
    retries : int
        Runs so far that the first engine could not finish and another one did.

    Examples
    --------
    >>> from fmepy.costs.simulation import SimulationCost
    >>> from fmepy.models.ode import OdeModel
    >>> model = OdeModel("d(A)/dt = -k*A", state={"A": 2.0}, times=[0, 1, 2], parms={"k": 0.5})
    >>> bound = SimulationCost(model, {"time": [1, 2], "A": [1.2, 0.7]}).bind(["k"])
    >>> bound.residuals([0.5]).round(3).tolist(), bound.jacobian([0.5]).round(3).tolist()
    ([0.013, 0.036], [[-1.213], [-1.472]])
    """

    parameter_names: tuple[str, ...]
    theta0: Vector
    lower: Vector
    upper: Vector
    is_scalar: bool
    has_jacobian: bool

    @property
    def data(self) -> CostData: ...

    @property
    def retries(self) -> int: ...

    def residuals(self, theta: Vector) -> Vector:
        """Return r, shape (n_obs,): weighted, not scaled. Raise SimulationError if the model fails there."""

    def jacobian(self, theta: Vector) -> Matrix:
        """Return dr/dtheta, shape (n_obs, n_par)."""

    def minus2loglik(self, theta: Vector) -> float:
        """Return -2 log L."""


@runtime_checkable
class Cost(Protocol):
    """A model compared with data.

    Every cost of fmepy fulfils this, and so may one of your own: `parms`, its bounds, a call that returns a `ModCost`
    or -2 log L, and `bind`, the fast path (`BoundCost`).

    Examples
    --------
    >>> from fmepy.costs.simulation import SimulationCost
    >>> from fmepy.models.ode import OdeModel
    >>> model = OdeModel("d(A)/dt = -k*A", state={"A": 2.0}, times=[0, 1, 2], parms={"k": 0.5})
    >>> cost = SimulationCost(model, {"time": [1, 2], "A": [1.2, 0.7]})
    >>> isinstance(cost, Cost), round(cost({"k": 0.5}).model, 4)
    (True, 0.0014)
    """

    @property
    def parms(self) -> pd.Series: ...

    @property
    def lower(self) -> pd.Series: ...

    @property
    def upper(self) -> pd.Series: ...

    def __call__(self, parms: UserParameters = None) -> Any:
        """Return a ModCost (least squares) or -2 log L (a float)."""

    def bind(self, names: Sequence[str] | None = None, *, hold_engine: bool = False) -> BoundCost:
        """Return the cost as a function of the parameters `names` (None: all)."""

    def replace(self, **arguments: Any) -> Cost:
        """Return a copy with some arguments of the constructor changed; dicts are merged."""


def residuals_many(bound: Any, Theta: Matrix) -> tuple[Matrix, Any]:
    """Return r at many theta, shape (n, n_obs), and why they failed, shape (n,): a sentence, "" where they did not.

    A bound cost may offer ``residuals_many(Theta)`` itself; of others it is a loop. The rows of failures are NaN.
    """
    if callable(getattr(bound, "residuals_many", None)):
        found: tuple[Matrix, Any] = bound.residuals_many(Theta)
        return found
    return _one_by_one(bound.residuals, Theta, np.full((len(Theta), len(bound.weights)), np.nan))


def _one_by_one(function: Callable[[Vector], Any], Theta: Matrix, out: Any) -> tuple[Any, Any]:
    """Return the function of every theta, written into `out`, and why it failed."""
    why = np.full(len(Theta), "", dtype=object)
    for i, theta in enumerate(Theta):
        try:
            out[i] = function(theta)
        except SimulationError as error:
            why[i] = str(error)
        except ArithmeticError as error:
            why[i] = f"{type(error).__name__}: {error}"
    return out, why


def minus2loglik_many(bound: Any, Theta: Matrix) -> tuple[Vector, Any]:
    """Return -2 log L at many theta, shape (n,), and why they failed, as `residuals_many` does."""
    if callable(getattr(bound, "minus2loglik_many", None)):
        found: tuple[Vector, Any] = bound.minus2loglik_many(Theta)
        return found
    if not bound.is_scalar:
        R, why = residuals_many(bound, Theta)
        with np.errstate(over="ignore"):
            return (R**2).sum(axis=1) + R.shape[1] * np.log(2 * np.pi) - 2 * np.log(cost_data(bound).weights).sum(), why
    return _one_by_one(bound.minus2loglik, Theta, np.full(len(Theta), np.nan))


def minus2loglik_of_squares(r: Vector, weights: Vector) -> float:
    """Return -2 log L of weighted residuals whose errors are known up to a factor, which is estimated: ssr / n."""
    squares, n = float(r @ r), r.size
    if not squares > 0:
        return -np.inf
    return float(n * np.log(2 * np.pi * squares / n) + n - 2 * np.log(weights).sum())


def variances(data: CostData, r: Vector) -> dict[str, pd.Series]:
    """Return SSR / N by variable (names may repeat), of weighted residuals r: scaled, unscaled, unweighted."""
    n, index = np.bincount(data.groups, minlength=len(data.group_names)), pd.Index(list(data.group_names))
    unscaled, unweighted = (np.bincount(data.groups, weights=q**2, minlength=len(n)) / n for q in (r, r / data.weights))
    found = {"var_ms": unscaled * data.scales**2, "var_ms_unscaled": unscaled, "var_ms_unweighted": unweighted}
    return {name: pd.Series(values, index=index) for name, values in found.items()}
