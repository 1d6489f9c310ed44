"""Maps of parameters: from the searched ones to all parameters of a model or a cost.

A map takes ``theta``, shape (n_par,), of its `names`, to ``full``, shape (n_full,), of its `full_names`, with
the derivative ``D = d full / d theta``. Functions of `full` then are functions of `theta`::

    value         f(full(theta))                                         SimulationError where they are not finite
    derivatives   J_theta = J_full D          `pull`; an expected information on both sides, D' I D (`pull_both`)
    start         theta0 = the theta of full0
    bounds        those of theta that the bounds of full leave, and back (`box`, for runs beside theta)
    scales        `scale_parameters`: which of theta scale noise (all that they move does, in proportion)

Kinds of maps, and who uses them:

    Elementwise   full_i = T_i^-1(theta_i), a logarithm or a logit       `transformed`
    Selected      full_i = theta_k(i), or a value that is held           held parameters, parts of a sum, entities
    Computed      some of full are expressions of theta                  cells of `conditions=`
    Tied          full = what lmfit's expressions make of theta          ``lmfit.Parameters``

A map of a map is a map of a mapped model or cost (`fmepy.costs.bound_mapped`, `fmepy.models.mapped`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from fmepy.errors import ParameterError, SimulationError
from fmepy.numerics.differences import central_differences
from fmepy.numerics.finite import all_finite
from fmepy.parameters.named import Parameters
from fmepy.parameters.names import as_theta
from fmepy.types import BoolVector, IntVector, Matrix, Vector


def pull_both(map: Map, theta: Vector, information: Matrix) -> Matrix:
    """Return ``D' I D``, shape (n_par, n_par), of a symmetric matrix of the full parameters."""
    return np.asarray(map.pull(theta, np.asarray(map.pull(theta, information)).T))


def many_of(map: Map, Theta: Matrix, many: Callable[[Matrix], tuple[Any, Any]]) -> tuple[Any, Any]:
    """Return ``many`` of the full parameters of every row of Theta, and why rows failed, see `fmepy.models.base`."""
    full, why = [], np.full(len(Theta), "", dtype=object)
    for i, theta in enumerate(Theta):
        try:
            full.append(map.full(theta))
        except SimulationError as error:
            why[i] = str(error)
    good = why == ""
    values, why[good] = many(np.array(full).reshape(len(full), len(map.full_names)))
    out = np.full((len(Theta), *values.shape[1:]), np.nan)
    out[good] = values
    return out, why


# -------------------------------------------------------------------------------------------------- one parameter each


def _logit(p: Vector) -> Vector:
    return np.log(p) - np.log1p(-p)


def _expit(theta: Any) -> Any:
    return np.exp(-np.logaddexp(0.0, -theta))  # scipy.special takes as long to import as all of fmepy


def _pow10(theta: Vector) -> Vector:
    return np.power(10.0, theta)


def _square(theta: Any) -> Any:
    return np.maximum(theta, 0.0) ** 2  # nothing is the square of less than zero


@dataclass(frozen=True, slots=True, eq=False)
class Transform:
    """One kind of transform T of a number p, 0 < p < upper_end: T, its inverse, and dp/dT at p, which is 1 / T'(p)."""

    forward: Callable[[Any], Any]
    back: Callable[[Any], Any]
    slope: Callable[[Any], Any]
    upper_end: float
    needed: str
    takes_zero: bool = False


TRANSFORMS = {
    "log": Transform(np.log, np.exp, lambda p: p, np.inf, "above zero"),
    "log10": Transform(np.log10, _pow10, lambda p: np.log(10.0) * p, np.inf, "above zero"),
    "logit": Transform(_logit, _expit, lambda p: p * (1.0 - p), 1.0, "between 0 and 1"),
    "sqrt": Transform(np.sqrt, _square, lambda p: 2.0 * np.sqrt(p), np.inf, "not below zero", takes_zero=True),
}
"""By word; those of readings are among them (`fmepy.costs.observation_scale`)."""


_SAFE = 300.0
"""Size below which no inverse overflows."""
TRANSFORM_NAMES = ("log", "log10", "logit")
"""The words for those of parameters."""


@dataclass(frozen=True, slots=True, eq=False)
class Elementwise:
    """A transform of some parameters, each by itself, under the same names.

    ::

        log     theta = log(p)              p = exp(theta)               dp/dtheta = p
        log10   theta = log10(p)            p = 10^theta                 dp/dtheta = log(10) p
        logit   theta = log(p / (1 - p))    p = 1 / (1 + exp(-theta))    dp/dtheta = p (1 - p)

    Attributes
    ----------
    names : tuple of str
        The parameters, in order.
    kinds : mapping of str to str
        Transform by parameter; those left out, of others, are as they are.
    """

    names: tuple[str, ...]
    kinds: Mapping[str, str]
    parts: tuple[tuple[str, IntVector], ...] = field(init=False)
    _back: Callable[[Any], Any] | None = field(init=False)

    def __post_init__(self) -> None:
        places = [(k, np.array([i for i, n in enumerate(self.names) if self.kinds.get(n) == k])) for k in TRANSFORMS]
        parts = [(kind, where) for kind, where in places if where.size]
        object.__setattr__(self, "parts", tuple(parts))
        whole = len(parts) == 1 and parts[0][1].size == len(self.names)  # quicker, at every evaluation of a chain
        object.__setattr__(self, "_back", TRANSFORMS[parts[0][0]].back if whole else None)

    @property
    def full_names(self) -> tuple[str, ...]:
        """The same names."""
        return self.names

    def full(self, theta: Vector) -> Vector:
        """Return the parameters themselves; raise SimulationError for a value too large to have any."""
        p = as_theta(theta, self.names)
        back = self.back if self._back is None or max(map(abs, p.tolist())) >= _SAFE else self._back
        p = np.asarray(back(p))
        if not all_finite(p):
            i = int(np.argmin(np.isfinite(p)))
            raise SimulationError(
                f"The transformed parameter {self.names[i]!r} = {theta[i]:g} is too large to be taken back.",
                parameters=dict(zip(self.names, map(float, theta), strict=True)),
            )
        return p

    def pull(self, theta: Vector, rows: Any) -> Any:
        """Return the rows times dp/dtheta."""
        p = self.full(theta)
        slopes = np.ones(p.size)
        for kind, where in self.parts:
            slopes[where] = TRANSFORMS[kind].slope(p[where])
        return rows * slopes

    def start(self, full: Vector) -> Vector:
        """Return the transformed parameters; raise ParameterError where there is none."""
        theta = np.array(full, dtype=float)
        for i, name in enumerate(self.names):
            if (kind := self.kinds.get(name)) is None:
                continue
            transform, value = TRANSFORMS[kind], theta[i]
            if not 0.0 < value < transform.upper_end:
                raise ParameterError(
                    f"Parameter {name!r} is {value:g}, which has no {kind}; it must be {transform.needed}. Leave it "
                    f"out with `names`, or transform by name: {{'other': {kind!r}}}."
                )
            theta[i] = transform.forward(value)
        return theta

    def bounds(self, lower: Vector, upper: Vector) -> tuple[Vector, Vector]:
        """Return the transformed bounds; at or beyond the ends of a transform there is none."""
        low, high = np.array(lower, dtype=float), np.array(upper, dtype=float)
        for i, name in enumerate(self.names):
            if (kind := self.kinds.get(name)) is None:
                continue
            if high[i] <= 0.0:
                raise ParameterError(
                    f"Parameter {name!r} has an upper bound of {high[i]:g}, below which nothing has a {kind}."
                )
            for ends in (low, high):
                value, transform = ends[i], TRANSFORMS[kind]
                inside = 0.0 < value < transform.upper_end
                ends[i] = transform.forward(value) if inside else -np.inf if value <= 0.0 else np.inf
        return low, high

    def box(self, lower: Vector, upper: Vector) -> tuple[Vector, Vector]:
        """Return the bounds of the parameters themselves, infinite where they are too large."""
        return self.back(lower), self.back(upper)

    def back(self, theta: Any) -> Any:
        """Return the parameters themselves, shape (..., n_par), infinite where they are too large."""
        p = np.array(theta, dtype=float)
        with np.errstate(over="ignore", invalid="ignore"):
            for kind, where in self.parts:
                p[..., where] = TRANSFORMS[kind].back(p[..., where])
        return p

    def scale_parameters(self, of_full: BoolVector, theta: Vector) -> BoolVector:
        """Tell which are not transformed and scale noise."""
        return np.asarray(of_full & np.array([n not in self.kinds for n in self.names], dtype=bool))


# ------------------------------------------------------------------------------------------------- picked, or held


@dataclass(frozen=True, slots=True, eq=False)
class Selected:
    """Every full parameter is one of theta, or held at a value.

    Attributes
    ----------
    names, full_names : tuple of str
    values : ndarray, shape (n_full,)
        Values of the full parameters: where those that are held are held, and the others start.
    place : ndarray of int, shape (n_full,)
        Which of theta it is; -1 where it is held. One of theta may serve several.

    Examples
    --------
    Subject 2 has an absorption rate of its own and shares the clearance; its dose is held:

    >>> subject = Selected.by_name(("cl", "ka[1]", "ka[2]"), {"cl": "cl", "ka": "ka[2]"}, pd.Series({"ka": 1.0, "dose":
    ...     10.0, "cl": 0.5}))
    >>> subject.full(np.array([0.4, 1.1, 1.2])).tolist()
    [1.2, 10.0, 0.4]
    >>> subject.pull(np.zeros(3), np.array([[7.0, 8.0, 9.0]])).tolist()
    [[9.0, 0.0, 7.0]]
    """

    names: tuple[str, ...]
    full_names: tuple[str, ...]
    values: Vector
    place: IntVector
    moving: IntVector = field(init=False)
    sources: IntVector = field(init=False)

    def __post_init__(self) -> None:
        moving = np.flatnonzero(self.place >= 0)
        object.__setattr__(self, "moving", moving)
        object.__setattr__(self, "sources", self.place[moving])

    @classmethod
    def by_name(
        cls, names: Sequence[str], source: Mapping[str, str], values: Mapping[str, float] | pd.Series
    ) -> Selected:
        """Return the map to the parameters of `values`, each from the one of `names` in `source`, or held."""
        own, at = {str(k): float(v) for k, v in values.items()}, {n: k for k, n in enumerate(names)}
        place = np.array([at[source[n]] if n in source else -1 for n in own], dtype=np.intp)
        return cls(tuple(names), tuple(own), np.array(list(own.values())), place)

    @property
    def is_identity(self) -> bool:
        """True if theta is the full vector."""
        return self.names == self.full_names and np.array_equal(self.place, np.arange(len(self.names)))

    @property
    def moves(self) -> BoolVector:
        """Which of theta have an influence."""
        out = np.zeros(len(self.names), dtype=bool)
        out[self.sources] = True
        return out

    def full(self, theta: Vector) -> Vector:
        """Return all parameters."""
        if self.moving.size == self.place.size:
            return as_theta(theta, self.names)[self.sources]
        out = self.values.copy()
        out[self.moving] = as_theta(theta, self.names)[self.sources]
        return out

    def pull(self, theta: Vector, rows: Any) -> Any:
        """Return the columns of the moving parameters, in the places of the theta that move them."""
        rows = np.asarray(rows)
        out = np.zeros((*rows.shape[:-1], len(self.names)))
        for i, j in zip(self.moving, self.sources, strict=True):  # not a product with D: zero times NaN is not zero
            out[..., j] += rows[..., i]
        return out

    def start(self, full: Vector) -> Vector:
        """Return the values of theta; NaN of one that moves nothing."""
        out = np.full(len(self.names), np.nan)
        out[self.sources] = self.values[self.moving]
        return out

    def bounds(self, lower: Vector, upper: Vector) -> tuple[Vector, Vector]:
        """Return the bounds of theta, the narrower where one moves several parameters."""
        low, high = np.full(len(self.names), -np.inf), np.full(len(self.names), np.inf)
        np.maximum.at(low, self.sources, np.asarray(lower, dtype=float)[self.moving])
        np.minimum.at(high, self.sources, np.asarray(upper, dtype=float)[self.moving])
        return low, high

    def box(self, lower: Vector, upper: Vector) -> tuple[Vector, Vector]:
        """Return the bounds; a held parameter has its value as both."""
        return self.full(lower), self.full(upper)

    def scale_parameters(self, of_full: BoolVector, theta: Vector) -> BoolVector:
        """Tell which move parameters that scale noise, and no others."""
        out = self.moves
        out[self.sources[~np.asarray(of_full, dtype=bool)[self.moving]]] = False
        return out


@dataclass(frozen=True, slots=True, eq=False)
class Computed:
    """Some full parameters are expressions of parameters, which theta moves or which are held; others are `Selected`.

    Attributes
    ----------
    names : tuple of str
    behind : Selected
        From theta, then the values of all expressions, to the full parameters.
    parms : ndarray
        All that the expressions may name, where what is held is held.
    at : ndarray of int, shape (n_par,)
        Which of them theta is.
    derived : tuple of (expression, places)
        With ``value(p)`` and ``slope(p)``, and where its p are among the `parms`.
    """

    names: tuple[str, ...]
    behind: Selected
    parms: Vector
    at: IntVector
    derived: tuple[tuple[Any, tuple[int, ...]], ...]

    @property
    def full_names(self) -> tuple[str, ...]:
        """The full parameters."""
        return self.behind.full_names

    @property
    def values(self) -> Vector:
        """Values of the full parameters, at those of `parms`."""
        return self.full(self.parms[self.at])

    def _each(self, theta: Vector, what: str) -> list[Any]:
        p = self.parms.copy()
        p[self.at] = as_theta(theta, self.names)
        return [getattr(e, what)(p[list(places)].tolist()) for e, places in self.derived]

    def full(self, theta: Vector) -> Vector:
        """Return all parameters; SimulationError where an expression has no value."""
        return self.behind.full(np.concatenate([theta, self._each(theta, "value")]))

    def pull(self, theta: Vector, rows: Any) -> Any:
        """Return rows times the derivatives of all to theta."""
        n, to_theta = len(self.names), np.full(len(self.parms), -1)
        to_theta[self.at] = np.arange(n)
        pulled = self.behind.pull(theta, rows)
        out = pulled[..., :n].copy()
        for k, ((_, places), slope) in enumerate(zip(self.derived, self._each(theta, "slope"), strict=True)):
            for i, one in zip(places, slope, strict=True):
                if to_theta[i] >= 0:
                    out[..., to_theta[i]] += pulled[..., n + k] * one
        return out

    def start(self, full: Vector) -> Vector:
        """Return the parameters' own values."""
        return self.parms[self.at].copy()

    def _with_derived(self, theta: Vector, value: float) -> Vector:
        return np.concatenate([theta, np.full(len(self.derived), value)])

    def bounds(self, lower: Vector, upper: Vector) -> tuple[Vector, Vector]:
        """Return the bounds of what is a full parameter itself."""
        low, high = self.behind.bounds(lower, upper)
        return low[: len(self.names)], high[: len(self.names)]

    def box(self, lower: Vector, upper: Vector) -> tuple[Vector, Vector]:
        """Return the bounds of all; expressions have none."""
        ends = ((lower, -np.inf), (upper, np.inf))
        low, high = (self.behind.full(self._with_derived(theta, end)) for theta, end in ends)
        return low, high

    def scale_parameters(self, of_full: BoolVector, theta: Vector) -> BoolVector:
        """Tell which move parameters that scale noise, and no others, nor expressions."""
        named = {i for _, places in self.derived for i in places}
        own = self.behind.scale_parameters(of_full, self._with_derived(theta, 0.0))[: len(self.names)]
        return np.asarray(own & np.array([i not in named for i in self.at.tolist()], dtype=bool))


# ------------------------------------------------------------------------------------------------------- tied together


@dataclass(frozen=True, slots=True, eq=False)
class Tied:
    """From the free parameters of lmfit to all of them: fixed values, and those tied to others by expressions."""

    parameters: Parameters
    full_names: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "full_names", tuple(self.parameters.expand(self.parameters.values)))

    @property
    def names(self) -> tuple[str, ...]:
        """The free parameters."""
        return self.parameters.names

    def full(self, theta: Vector) -> Vector:
        """Return all parameters."""
        return np.array(list(self.parameters.expand(theta).values()))

    def pull(self, theta: Vector, rows: Any) -> Any:
        """Return rows times the derivatives of all to the free ones, which are central differences (error 1e-10)."""
        steps = 6e-6 * np.maximum(np.abs(theta), 1e-8)
        return rows @ central_differences(self.full, theta, steps, self._own_bounds())

    def start(self, full: Vector) -> Vector:
        """Return the values that lmfit has."""
        return np.array(self.parameters.values, dtype=float)

    def bounds(self, lower: Vector, upper: Vector) -> tuple[Vector, Vector]:
        """Return the narrower of lmfit's bounds and these."""
        at = [self.full_names.index(n) for n in self.names]
        low, high = self._own_bounds()
        return np.maximum(low, np.asarray(lower)[at]), np.minimum(high, np.asarray(upper)[at])

    def box(self, lower: Vector, upper: Vector) -> tuple[Vector, Vector]:
        """Return the bounds of all; what lmfit fixes stays where it is."""
        assert self.parameters.lmfit is not None, "only lmfit fixes and ties parameters"
        free = dict(zip(self.names, zip(lower, upper, strict=True), strict=True))
        own = {
            q.name: (q.min, q.max) if q.expr is not None else (q.value, q.value) for q in self.parameters.lmfit.values()
        }
        low, high = zip(*({**own, **free}[name] for name in self.full_names), strict=True)
        return np.array(low, dtype=float), np.array(high, dtype=float)

    def scale_parameters(self, of_full: BoolVector, theta: Vector) -> BoolVector:
        """Tell, at theta, for which all that depends on them scales noise, in proportion to them."""
        out = np.zeros(theta.size, dtype=bool)
        for j in range(theta.size):
            there, half, gone = (theta.copy() for _ in range(3))
            there[j] = theta[j] if theta[j] != 0 else 1e-3
            half[j], gone[j] = 0.5 * there[j], 0.0
            whole, part, rest = self.full(there), self.full(half), self.full(gone)
            moves = whole != rest
            out[j] = bool(of_full[moves].all() and np.allclose(whole[moves], 2 * part[moves]) and not rest[moves].any())
        return out

    def _own_bounds(self) -> tuple[Vector, Vector]:
        lower, upper = self.parameters.lower, self.parameters.upper
        assert lower is not None, "lmfit's parameters have bounds"
        assert upper is not None, "lmfit's parameters have bounds"
        return lower, upper


def ties_of(parameters: Parameters) -> Tied | None:
    """Return the map to all of lmfit's parameters, None where all are free, or came otherwise."""
    return None if parameters.lmfit is None or len(parameters.lmfit) == len(parameters) else Tied(parameters)


Map: TypeAlias = Elementwise | Selected | Computed | Tied
"""From the searched parameters to all of a model or a cost, see the module."""
