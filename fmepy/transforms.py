"""Models and costs as functions of transformed parameters: logarithms, logits.

For a parameter p with transform T the new parameter is theta = T(p), under the same name::

    log     theta = log(p)              p = exp(theta)               dp/dtheta = p
    log10   theta = log10(p)            p = 10^theta                 dp/dtheta = log(10) p
    logit   theta = log(p / (1 - p))    p = 1 / (1 + exp(-theta))    dp/dtheta = p (1 - p)

Sensitivities, Jacobians and scores follow by the chain rule, an expected information on both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np
import pandas as pd

from fmepy.costs.base import BoundCost, Cost
from fmepy.costs.modcost import ModCost
from fmepy.costs.sum import AddableCost
from fmepy.errors import ArgumentError, ParameterError, SimulationError, check_choice
from fmepy.models.base import BoundModel, Model, bound_to, keep_within, tightened
from fmepy.parameters.named import check_names, generated_names, merge_parameters
from fmepy.parameters.scales import marked
from fmepy.types import BoolVector, Cube, IntVector, Matrix, UserParameters, Vector

__all__ = ["ParameterScale", "TransformedCost", "TransformedFunction", "TransformedModel", "transformed"]


# ------------------------------------------------------------------------------------------------- one parameter each


def _logit(p: Vector) -> Vector:
    return np.log(p) - np.log1p(-p)


def _expit(theta: Any) -> Any:
    return np.exp(-np.logaddexp(0.0, -theta))  # scipy.special takes as long to import as all of fmepy


def _pow10(theta: Vector) -> Vector:
    return np.power(10.0, theta)


_FORWARD: dict[str, Callable[[Any], Any]] = {"log": np.log, "log10": np.log10, "logit": _logit}
_BACK: dict[str, Callable[[Any], Any]] = {"log": np.exp, "log10": _pow10, "logit": _expit}
_UPPER_END = {"log": np.inf, "log10": np.inf, "logit": 1.0}


def _slope(kind: str, p: Any) -> Any:
    """Return dp/dtheta at p."""
    return {"log": p, "log10": np.log(10.0) * p, "logit": p * (1.0 - p)}[kind]


def _forward_one(name: str, kind: str, value: float) -> float:
    if not 0.0 < value < _UPPER_END[kind]:
        needed = "between 0 and 1" if kind == "logit" else "above zero"
        raise ParameterError(
            f"Parameter {name!r} is {value:g}, which has no {kind}; it must be {needed}. Leave it out with "
            f"`names`, or transform by name: {{'other': {kind!r}}}."
        )
    return float(_FORWARD[kind](value))


def _bound_one(kind: str, value: float) -> float:
    """Return a transformed bound; at or beyond the ends of the transform there is none."""
    if value <= 0.0:
        return -np.inf
    return np.inf if value >= _UPPER_END[kind] else float(_FORWARD[kind](value))


@dataclass(frozen=True, slots=True, eq=False)
class ParameterScale:
    """Which entries of a parameter vector are transformed, and how.

    Attributes
    ----------
    names : tuple of str
        The parameters, in order.
    parts : tuple of (str, ndarray of int)
        Kind of transform, and positions of the parameters that have it.
    """

    names: tuple[str, ...]
    parts: tuple[tuple[str, IntVector], ...]

    def back(self, theta: Vector) -> Vector:
        """Return the parameters themselves.

        Raises
        ------
        SimulationError
            A value so large that the parameter is not finite.
        """
        p = self.bounds_back(theta)
        with np.errstate(invalid="ignore"):
            total = p.sum()
        if not isfinite(total) and not np.isfinite(p).all():  # a finite sum has finite terms
            i = int(np.argmin(np.isfinite(p)))
            raise SimulationError(
                f"The transformed parameter {self.names[i]!r} = {theta[i]:g} is too large to be taken back.",
                parameters=dict(zip(self.names, map(float, theta), strict=True)),
            )
        return p

    def bounds_back(self, theta: Vector) -> Vector:
        """Return the bounds of the parameters themselves, infinite where they are too large."""
        p = np.array(theta, dtype=float)
        with np.errstate(over="ignore", invalid="ignore"):
            for kind, where in self.parts:
                p[where] = _BACK[kind](p[where])
        return p

    @property
    def is_identity(self) -> BoolVector:
        """Which parameters are as they are."""
        out = np.ones(len(self.names), dtype=bool)
        for _, where in self.parts:
            out[where] = False
        return out

    def slopes(self, p: Vector) -> Vector:
        """Return dp/dtheta of every parameter."""
        out = np.ones(len(p))
        for kind, where in self.parts:
            out[where] = _slope(kind, p[where])
        return out


def _scale(names: Sequence[str], kinds: Mapping[str, str]) -> ParameterScale:
    parts = []
    for kind in _FORWARD:
        where = np.array([i for i, n in enumerate(names) if kinds.get(n) == kind], dtype=np.intp)
        if where.size:
            parts.append((kind, where))
    return ParameterScale(tuple(names), tuple(parts))


def _kinds(how: Any, names: Sequence[str] | str | None, known: Sequence[str] | None) -> dict[str, str]:
    """Return the transform by parameter; `known` None: only what is named."""
    some = None if names is None else [names] if isinstance(names, str) else [str(n) for n in names]
    if isinstance(how, Mapping):
        kinds = {str(k): check_choice(v, _FORWARD, "how") for k, v in how.items()}
        if some is not None:
            kinds = {k: kinds[k] for k in check_names(some, kinds, argument="names")}
    else:
        kind = check_choice(how, _FORWARD, "how")
        kinds = dict.fromkeys(some if some is not None else known or [], kind)
    if known is not None:
        argument = "names" if some is not None and not isinstance(how, Mapping) else "how"
        kinds = dict(zip(check_names(kinds, known, argument=argument), kinds.values(), strict=True))
    return kinds


def _forward_vector(names: Sequence[str], values: Vector, kinds: Mapping[str, str]) -> Vector:
    pairs = zip(names, map(float, values), strict=True)
    return np.array([_forward_one(n, kinds[n], v) if n in kinds else v for n, v in pairs], dtype=float)


def _bound_vector(names: Sequence[str], values: Vector, kinds: Mapping[str, str]) -> Vector:
    pairs = zip(names, map(float, values), strict=True)
    return np.array([_bound_one(kinds[n], v) if n in kinds else v for n, v in pairs], dtype=float)


def _forward_series(parms: pd.Series, kinds: Mapping[str, str]) -> pd.Series:
    names = [str(n) for n in parms.index]
    out = pd.Series(_forward_vector(names, parms.to_numpy(dtype=float), kinds), index=parms.index)
    out.attrs.update(parms.attrs)  # what a sum says of its parts
    return marked(out, kinds)


def _bound_series(bounds: pd.Series, kinds: Mapping[str, str]) -> pd.Series:
    names = [str(n) for n in bounds.index]
    return pd.Series(_bound_vector(names, bounds.to_numpy(dtype=float), kinds), index=bounds.index)


# ------------------------------------------------------------------------------------------------------------- models


class BoundTransformedModel:
    """A bound model as a function of transformed parameters; see `fmepy.models.base.BoundModel`."""

    def __init__(self, inner: BoundModel, kinds: Mapping[str, str]):
        self.names = tuple(inner.names)
        self.theta0 = _forward_vector(self.names, inner.theta0, kinds)
        self.var_names = tuple(inner.var_names)
        self.times = inner.times
        self.exact = inner.exact
        self._inner, self._kinds = inner, kinds
        self._scale = _scale(self.names, kinds)

    @property
    def retries(self) -> int:
        """Runs so far that the first engine could not finish and another one did."""
        return self._inner.retries

    def keep_within(self, lower: Vector, upper: Vector) -> None:
        """Keep the runs of differences inside these bounds."""
        keep_within(self._inner, self._scale.bounds_back(lower), self._scale.bounds_back(upper))

    def tightened(self) -> BoundTransformedModel | None:
        """Return the same at smaller tolerances, see `fmepy.models.base.tightened`."""
        inner = tightened(self._inner)
        return None if inner is None else BoundTransformedModel(inner, self._kinds)

    def simulate(self, theta: Vector) -> Matrix:
        """Return Y, shape (n_time, n_var)."""
        return self._inner.simulate(self._scale.back(theta))

    def sensitivities(self, theta: Vector) -> tuple[Matrix, Cube]:
        """Return Y and S, the derivatives of Y to the transformed parameters."""
        p = self._scale.back(theta)
        Y, S = self._inner.sensitivities(p)
        return Y, S * self._scale.slopes(p)


@dataclass(frozen=True, eq=False, repr=False)
class TransformedModel:
    """A model as a function of transformed parameters; made by `transformed`.

    Attributes
    ----------
    inner : Model
        The model itself.
    transforms : dict of str to str
        Transform by parameter.
    """

    inner: Any
    transforms: dict[str, str]

    def __post_init__(self) -> None:
        _forward_series(self.inner.parms, self.transforms)

    @property
    def parms(self) -> pd.Series:
        """All parameters, transformed."""
        return _forward_series(self.inner.parms, self.transforms)

    @property
    def states(self) -> tuple[str, ...]:
        """The model's states."""
        return tuple(self.inner.states)

    @property
    def var_names(self) -> tuple[str, ...]:
        """States, then outputs."""
        return tuple(self.inner.var_names)

    @property
    def times(self) -> Vector:
        """The model's times."""
        times: Vector = self.inner.times
        return times

    @property
    def engine(self) -> str:
        """What runs the model."""
        return str(self.inner.engine)

    @property
    def engine_note(self) -> str:
        """Why not the faster engine."""
        return str(self.inner.engine_note)

    def __call__(self, parms: UserParameters = None, times: Any = None) -> pd.DataFrame:
        """Run the model at transformed parameters and return its table."""
        table: pd.DataFrame = self.inner(_inner_parms(self.parms, parms, self.transforms), times)
        return table

    def bind(
        self, names: Sequence[str] | None = None, *, times: Any = None, hold_engine: bool = False, runs: int = 1
    ) -> BoundTransformedModel:
        """Return the model as a function of the transformed parameters `names` (None: all)."""
        bound = bound_to(self.inner, names, runs=runs, times=times, hold_engine=hold_engine)
        return BoundTransformedModel(bound, self.transforms)

    def replace(self, **arguments: Any) -> TransformedModel:
        """Return a copy with some arguments of the inner model changed."""
        return TransformedModel(self.inner.replace(**arguments), self.transforms)

    def __repr__(self) -> str:
        return f"{self.inner!r}, as a function of {_told(self.transforms)}"


# -------------------------------------------------------------------------------------------------------------- costs


class BoundTransformedCost:
    """A bound cost as a function of transformed parameters; see `fmepy.costs.base.BoundCost`."""

    def __init__(self, inner: BoundCost, kinds: Mapping[str, str]):
        names = tuple(inner.parameter_names)
        self.parameter_names = names
        self.theta0 = _forward_vector(names, inner.theta0, kinds)
        self.lower = _bound_vector(names, inner.lower, kinds)
        self.upper = _bound_vector(names, inner.upper, kinds)
        self.is_scalar = inner.is_scalar
        self.has_jacobian = inner.has_jacobian
        self.names = inner.names
        self.x = inner.x
        self.weights = inner.weights
        self.groups = inner.groups
        self.scales = inner.scales
        self.group_names = inner.group_names
        self._inner: Any = inner
        self._scale = _scale(names, kinds)
        self._kinds = kinds
        self.exact: bool | None = getattr(inner, "exact", None)

    @property
    def retries(self) -> int:
        """Runs so far that the first engine could not finish and another one did."""
        return int(self._inner.retries)

    def keep_within(self, lower: Vector, upper: Vector) -> None:
        """Keep the runs of differences inside these bounds."""
        keep_within(self._inner, self._scale.bounds_back(lower), self._scale.bounds_back(upper))

    def tightened(self) -> BoundTransformedCost | None:
        """Return the same at smaller tolerances, see `fmepy.models.base.tightened`."""
        inner = tightened(self._inner)
        return None if inner is None else type(self)(inner, self._kinds)

    @property
    def data(self) -> Any:
        """Which data the likelihood is of."""
        return getattr(self._inner, "data", None)

    def residuals(self, theta: Vector) -> Vector:
        """Return r, shape (n_obs,)."""
        r: Vector = self._inner.residuals(self._scale.back(theta))
        return r

    def jacobian(self, theta: Vector) -> Matrix:
        """Return dr/dtheta, shape (n_obs, n_par)."""
        p = self._scale.back(theta)
        J: Matrix = self._inner.jacobian(p) * self._scale.slopes(p)
        return J

    def minus2loglik(self, theta: Vector) -> float:
        """Return -2 log L."""
        return float(self._inner.minus2loglik(self._scale.back(theta)))

    def modcost(self, theta: Vector) -> ModCost:
        """Return the `ModCost` at theta."""
        cost: ModCost = self._inner.modcost(self._scale.back(theta))
        return cost


class BoundTransformedLikelihood(BoundTransformedCost):
    """The same for a cost that has the score and the expected information of its likelihood."""

    def score(self, theta: Vector, rough: bool = False) -> Vector:
        """Return the derivative of the likelihood to the transformed parameters, shape (n_par,)."""
        p = self._scale.back(theta)
        score: Vector = self._inner.score(p, rough) * self._scale.slopes(p)
        return score

    def information(self, theta: Vector, rough: bool = False) -> Matrix:
        """Return the expected information of the transformed parameters, shape (n_par, n_par)."""
        p = self._scale.back(theta)
        d = self._scale.slopes(p)
        information: Matrix = self._inner.information(p, rough) * np.outer(d, d)
        return information

    @property
    def nobs(self) -> float:
        """Scalar data that count."""
        return float(self._inner.nobs)

    @property
    def scale_parameters(self) -> BoolVector:
        """Parameters that scale noise and are not transformed."""
        return np.asarray(self._inner.scale_parameters & self._scale.is_identity)

    def inflated(self, factor: float) -> BoundTransformedLikelihood | None:
        """Return the same with the process noise inflated, see `fmepy.costs.base`."""
        inner = self._inner.inflated(factor)
        return None if inner is None else BoundTransformedLikelihood(inner, self._kinds)

    def sensitivity_rows(self, theta: Vector) -> tuple[list[str], Vector, Matrix]:
        """Return variable, x and row of what the expected information is made of."""
        p = self._scale.back(theta)
        names, x, rows = self._inner.sensitivity_rows(p)
        return names, x, rows * self._scale.slopes(p)


@dataclass(frozen=True, eq=False, repr=False)
class TransformedCost(AddableCost):
    """A cost as a function of transformed parameters; made by `transformed`.

    Attributes
    ----------
    inner : Cost
        The cost itself.
    transforms : dict of str to str
        Transform by parameter.
    """

    inner: Any
    transforms: dict[str, str]

    def __post_init__(self) -> None:
        upper = self.inner.upper
        for name, value in self.parms.items():
            if name in self.transforms and upper[name] <= 0:
                raise ParameterError(
                    f"Parameter {name!r} = {value:g} has an upper bound of {upper[name]:g}, below which nothing has a "
                    f"{self.transforms[str(name)]}."
                )

    @property
    def parms(self) -> pd.Series:
        """All parameters, transformed."""
        return _forward_series(self.inner.parms, self.transforms)

    @property
    def lower(self) -> pd.Series:
        """Lower bounds, transformed."""
        return _bound_series(self.inner.lower, self.transforms)

    @property
    def upper(self) -> pd.Series:
        """Upper bounds, transformed."""
        return _bound_series(self.inner.upper, self.transforms)

    def __call__(self, parms: UserParameters = None) -> Any:
        """Return what the inner cost returns, at transformed parameters."""
        return self.inner(_inner_parms(self.parms, parms, self.transforms))

    def bind(
        self, names: Sequence[str] | None = None, *, hold_engine: bool = False, runs: int = 1
    ) -> BoundTransformedCost:
        """Return the cost as a function of the transformed parameters `names` (None: all)."""
        bound = bound_to(self.inner, names, runs=runs, hold_engine=hold_engine)
        scored = hasattr(bound, "score") and hasattr(bound, "information")
        return (BoundTransformedLikelihood if scored else BoundTransformedCost)(bound, self.transforms)

    def repeats(self, other: object) -> bool:
        """Tell whether another cost holds the same model against the same data."""
        inner = getattr(self.inner, "repeats", None)
        return isinstance(other, TransformedCost) and inner is not None and bool(inner(other.inner))

    def replace(self, **arguments: Any) -> TransformedCost:
        """Return a copy with some arguments of the inner cost changed."""
        return TransformedCost(self.inner.replace(**arguments), self.transforms)

    def __repr__(self) -> str:
        return f"{self.inner!r}, as a function of {_told(self.transforms)}"


def _inner_parms(own: pd.Series, parms: UserParameters, kinds: Mapping[str, str]) -> dict[str, float]:
    """Return the parameters themselves, from what the user gave on the transformed scale."""
    theta = merge_parameters(own, parms)
    names = [str(n) for n in theta.index]
    return dict(zip(names, map(float, _scale(names, kinds).back(theta.to_numpy(dtype=float))), strict=True))


def _told(kinds: Mapping[str, str]) -> str:
    return ", ".join(f"{kind}({name})" for name, kind in kinds.items())


# ---------------------------------------------------------------------------------------------------- plain functions


@dataclass(frozen=True, eq=False, repr=False)
class TransformedFunction:
    """A function of parameters, given transformed ones: takes them back and calls it; made by `transformed`.

    Attributes
    ----------
    inner : callable
        The function itself, ``f(p, ...)``.
    how : str or dict of str to str
        Transform of all parameters, or by name.
    names : tuple of str or None
        Those that are transformed; None: all that `how` speaks of.
    """

    inner: Callable[..., Any]
    how: Any
    names: tuple[str, ...] | None = None

    def __call__(self, p: Any, *args: Any, **kwargs: Any) -> Any:
        """Return ``f(p, ...)`` at the parameters taken back, in the type that `p` has."""
        return self.inner(self._back(p), *args, **kwargs)

    def _back(self, p: Any) -> Any:
        if isinstance(p, pd.Series):
            names = [str(n) for n in p.index]
            return pd.Series(self._values(names, p.to_numpy(dtype=float)), index=p.index, name=p.name)
        if isinstance(p, Mapping):
            names = [str(n) for n in p]
            return dict(zip(p, map(float, self._values(names, np.array(list(p.values()), dtype=float))), strict=True))
        values = np.atleast_1d(np.asarray(p, dtype=float))
        return self._values(list(generated_names(len(values))), values)

    def kinds_of(self, names: Sequence[str]) -> dict[str, str]:
        """Return how these parameters are transformed, of those that are."""
        return _kinds(self.how, self.names, names)

    def _values(self, names: Sequence[str], theta: Vector) -> Vector:
        return _scale(names, self.kinds_of(names)).back(theta)

    def __repr__(self) -> str:
        return f"{self.inner!r} of transformed parameters ({self.how})"


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
        kinds = _kinds(how, names, [str(n) for n in f.parms.index])
        return TransformedModel(f, kinds) if isinstance(f, Model) else TransformedCost(f, kinds)
    _kinds(how, names, None)
    chosen = None if names is None else (names,) if isinstance(names, str) else tuple(map(str, names))
    return TransformedFunction(f, dict(how) if isinstance(how, Mapping) else how, chosen)
