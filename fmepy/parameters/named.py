"""Named parameter vectors: as users write them, as the numerics use them, as a user's function receives them.

The numerics work on a plain vector ``theta``. A `Parameters` keeps the names that belong to it, and knows the form in
which a user's own function wants it back: a dict for named parameters, an ndarray for positional ones (``p1, p2,
...``), a dict with fixed and tied values filled in where ``lmfit.Parameters`` were given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fmepy.errors import ArgumentError, ParameterError, did_you_mean, listed, repeated
from fmepy.parameters.names import normal_name, of_every_entity
from fmepy.parameters.scales import check_scale
from fmepy.types import UserBounds, UserParameters, Vector

if TYPE_CHECKING:
    import lmfit

DIFFERING = "differing"
"""The entry of ``attrs`` of a sum's `parms` that holds the parameters whose values differ between parts."""


def generated_names(n: int) -> tuple[str, ...]:
    """Return the names of `n` positional parameters: p1, p2, ..."""
    return tuple(f"p{i + 1}" for i in range(n))


@dataclass(frozen=True, slots=True, eq=False)
class Parameters:
    """A named parameter vector and the form in which a user's function receives it.

    Attributes
    ----------
    names : tuple of str
        Names of the free parameters, in the order of `values`.
    values : ndarray, shape (n_par,)
        Their values.
    positional : bool
        True if a user's function receives an ndarray (the names are then p1, p2, ...), False for a dict.
    lower, upper : ndarray or None
        Bounds that came with the parameters (lmfit), None if none did.
    lmfit : lmfit.Parameters or None
        The object they came from, with its fixed and tied parameters.
    """

    names: tuple[str, ...]
    values: Vector
    positional: bool = False
    lower: Vector | None = None
    upper: Vector | None = None
    lmfit: lmfit.Parameters | None = None

    def __len__(self) -> int:
        return len(self.names)

    def for_user(self, theta: Vector) -> Any:
        """Return `theta` as a user's function receives it: a dict of floats, or an ndarray (a copy)."""
        if self.lmfit is not None:
            return self.expand(theta)
        if self.positional:
            return np.array(theta, dtype=float)
        return dict(zip(self.names, map(float, theta), strict=True))

    def expand(self, theta: Vector) -> dict[str, float]:
        """Return all parameters by name; those that lmfit fixes or ties are filled in."""
        free = dict(zip(self.names, map(float, theta), strict=True))
        if self.lmfit is None:
            return free
        whole = self.lmfit.copy()
        for name, value in free.items():
            whole[name].set(value=value, min=-np.inf, max=np.inf)
        return {k: float(v) for k, v in whole.valuesdict().items()}

    def series(self, theta: Vector | None = None) -> pd.Series:
        """Return `theta` (default: the values) as a Series labelled by the names."""
        return pd.Series(np.array(self.values if theta is None else theta, dtype=float), index=list(self.names))


def as_parameters(p: UserParameters, own: pd.Series | None = None, *, argument: str = "p") -> Parameters:
    """Return the user's argument as named parameters.

    Parameters
    ----------
    p : dict, Series, one-row table, sequence, number, lmfit.Parameters, a fit, list of names, or None
        Names (and None for all) need `own`; of a fit the estimates are taken.
    own : Series, optional
        The parameters that a fmepy model or cost has; names are checked against it and their values are the default.
    argument : str
        The name of the argument in messages.

    Raises
    ------
    ParameterError
        An unknown or repeated name, a value that is not a finite number, no parameters at all.
    """
    if p is None:
        if own is None:
            raise ParameterError(f"`{argument}` is missing. Give the start: a dict of names and values, or a sequence.")
        _refuse_differing(own.attrs.get(DIFFERING, ()), own, f"`{argument}=None` means all parameters, but")
        return Parameters(tuple(map(str, own.index)), own.to_numpy(dtype=float, copy=True))
    p = estimates_of(p, argument)
    if _is_lmfit(p):
        return _from_lmfit(p, own, argument)
    if isinstance(p, pd.DataFrame):
        if len(p) != 1:
            raise ParameterError(
                f"`{argument}` is a table of {len(p)} rows; one set of parameters is needed here. "
                "Pass one row, such as table.iloc[0]."
            )
        p = p.iloc[0]
    if isinstance(p, str):
        p = [p]
    if isinstance(p, (Mapping, pd.Series)):
        names = tuple(str(k) for k in (p.index if isinstance(p, pd.Series) else p))
        values = _finite(_values_of(p), names, argument)
        if own is not None:
            value = dict(zip(map(normal_name, names), values, strict=True))
            pairs = of_every_entity(names, own.index)
            names = _check_own([k for k, _ in pairs], own, argument)
            values = np.array([value[name] for _, name in pairs])
            check_scale(p, own, argument)
        return _checked(names, values, own is None and names == generated_names(len(names)), argument)
    items = list(p) if isinstance(p, Iterable) else [p]
    if not items:
        raise ParameterError(f"`{argument}` is empty; give at least one parameter.")
    if all(isinstance(k, str) for k in items):
        if own is None:
            raise ParameterError(
                f"`{argument}` is a list of names, but only fmepy models and costs know their own "
                "parameter values. Give a dict of names and values."
            )
        names = _check_own([k for k, _ in of_every_entity(items, own.index)], own, argument)
        return _checked(names, values_by_name(own, names), False, argument)
    names = generated_names(len(items))
    if own is not None:
        raise ParameterError(
            f"`{argument}` has no names. A fmepy model or cost takes a dict, a Series or a list of "
            f"names; its parameters are {listed(own.index)}."
        )
    return _checked(names, _finite(items, names, argument), True, argument)


def estimates_of(p: Any, argument: str = "p") -> Any:
    """Return the estimates of a fit (those of lmfit with what is fixed and tied there); anything else as it is."""
    if isinstance(p, (pd.Series, pd.DataFrame)):
        return p
    if isinstance(getattr(p, "bestpar", None), pd.Series):
        raise ParameterError(
            f"`{argument}` is a chain; one set of parameters is needed. Give its best point, chain.bestpar, or the "
            "mean of its draws, chain.pars.mean()."
        )
    if not isinstance(getattr(p, "par", None), pd.Series):
        return p
    return p.par if getattr(p, "tied", None) is None else p.to_lmfit().params


def is_fit(p: Any) -> bool:
    """Tell whether `p` is a fit: estimates with a covariance."""
    return isinstance(getattr(p, "par", None), pd.Series) and hasattr(p, "cov_scaled")


def check_fit(fit: Any) -> None:
    """Raise an ArgumentError unless `fit` is a result of modFit."""
    if not is_fit(fit):
        raise ArgumentError(f"`fit` must be a result of modFit, such as modFit(f, p); got {type(fit).__name__}.")


def values_by_name(own: pd.Series, names: Sequence[str]) -> Vector:
    """Return the values of some entries of a Series, in the order of `names`; quicker than pandas for a few."""
    place = {name: k for k, name in enumerate(own.index.tolist())}
    return own.to_numpy(dtype=float)[[place[name] for name in names]]


def _check_own(names: Iterable[object], own: pd.Series, argument: str) -> tuple[str, ...]:
    """Return names as a model or cost spells them; ParameterError for the first that is none of its own."""
    normal = [normal_name(k) for k in names]
    _refuse_differing(normal, own, f"`{argument}`:")
    return check_names(normal, own.index, argument=argument)


def _refuse_differing(names: Iterable[str], own: pd.Series, beginning: str) -> None:
    """Raise an error for a parameter whose values differ between the parts of a sum, by ``own.attrs``."""
    differing = own.attrs.get(DIFFERING, {})
    for name in names:
        if name in differing:
            values = ", ".join(f"{v:g}" for v in dict.fromkeys(differing[name]))
            raise ParameterError(
                f"{beginning} the parts of this sum have different values of {name!r} ({values}), so it is not one "
                "parameter. Name the other parameters, and each part keeps its own value of it. To fit one value for "
                f"all parts, give their models the same one, model.replace(parms={{{name!r}: ...}}); to fit one each, "
                "give it another name in each model, or use a cost with `conditions=` where there is one."
            )


def _checked(names: tuple[str, ...], values: Vector, positional: bool, argument: str) -> Parameters:
    if not names:
        raise ParameterError(f"`{argument}` is empty; give at least one parameter.")
    if twice := repeated(names):
        raise ParameterError(f"`{argument}` names {listed(twice)} more than once.")
    return Parameters(names, values, positional)


def _finite(values: Iterable[Any], names: Sequence[str], argument: str) -> Vector:
    out = np.empty(len(names))
    for i, (name, value) in enumerate(zip(names, values, strict=True)):
        try:
            out[i] = float(value)
        except (TypeError, ValueError, OverflowError):
            raise ParameterError(f"`{argument}`: {name!r} is {value!r}; a number is needed.") from None
        if not np.isfinite(out[i]):
            raise ParameterError(f"`{argument}`: {name!r} is {out[i]}; a finite number is needed.")
    return out


def _is_lmfit(p: object) -> bool:
    """Tell whether `p` is an lmfit.Parameters without importing lmfit for those who do not use it."""
    return any(k.__name__ == "Parameters" and k.__module__.split(".")[0] == "lmfit" for k in type(p).__mro__)


def _from_lmfit(p: Any, own: pd.Series | None, argument: str) -> Parameters:
    if own is not None:
        _check_own(list(p), own, argument)
    free = [q for q in p.values() if q.vary and q.expr is None]
    if not free:
        raise ParameterError(f"`{argument}`: none of the lmfit parameters varies; set vary=True on those to be fitted.")
    names = tuple(q.name for q in free)
    return Parameters(
        names,
        _finite([q.value for q in free], names, argument),
        lower=np.array([q.min for q in free], dtype=float),
        upper=np.array([q.max for q in free], dtype=float),
        lmfit=p,
    )


def check_names(
    names: Iterable[object], known: Iterable[object], *, argument: str, what: str = "parameter"
) -> tuple[str, ...]:
    """Return names as the `known` are spelled; ParameterError for the first that is not, with the nearest that is."""
    have = {normal_name(k): str(k) for k in known}
    if not isinstance(names, Iterable):
        raise ParameterError(f"`{argument}={names!r}` must be names, as in [{next(iter(have), 'k')!r}].")
    names = list(names)
    spelled: list[str] = []
    for name in names:
        own = have.get(normal_name(name))
        if own is None:
            hint = did_you_mean(name, have)
            if name == "p1" and names == list(generated_names(len(names))):
                hint = f" Without names they are p1, p2, ...: write a dict, such as {{{next(iter(have), 'k')!r}: ...}}."
            elif have and have.keys() <= set(map(normal_name, names)):  # a fit's, say, with those of its noise
                hint = f" All others are known; leave it out, such as p[{[*have.values()]}]."
            raise ParameterError(f"`{argument}`: there is no {what} {str(name)!r}.{hint} There are {listed(have)}.")
        if own in spelled:
            raise ParameterError(f"`{argument}` names {str(name)!r} more than once.")
        spelled.append(own)
    return tuple(spelled)


def merge_parameters(own: pd.Series, parms: UserParameters, *, argument: str = "parms") -> pd.Series:
    """Return `own` with the values of `parms` in their place; a subset leaves the rest as it is."""
    if parms is None or (isinstance(parms, Mapping | pd.Series) and not len(parms)):
        return own
    new = as_parameters(parms, own, argument=argument)
    out, values = own.copy(), new.expand(new.values)
    for name, value in zip(check_names(values, own.index, argument=argument), values.values(), strict=True):
        out[name] = value
    return out


def as_bounds(
    lower: UserBounds,
    upper: UserBounds,
    names: Sequence[str],
    *,
    declared: tuple[Vector | None, Vector | None] = (None, None),
) -> tuple[Vector, Vector]:
    """Return lower and upper bounds as two vectors.

    Parameters
    ----------
    lower, upper : number, sequence, or mapping by name
        None and NaN mean no bound; names left out of a mapping are free.
    names : sequence of str
        The parameters, in order.
    declared : pair of vectors or None
        Bounds that a cost or lmfit declares; they hold where the user gave none (infinite on that side).

    Raises
    ------
    ParameterError
        Wrong length, unknown name, or lower >= upper.
    """
    low = _one_bound(lower, names, -np.inf, "lower")
    high = _one_bound(upper, names, np.inf, "upper")
    if declared[0] is not None:
        low = np.where(low == -np.inf, declared[0], low)
    if declared[1] is not None:
        high = np.where(high == np.inf, declared[1], high)
    for name, a, b in zip(names, low.tolist(), high.tolist(), strict=True):
        if a > b:
            raise ParameterError(f"The bounds of {name!r} are crossed: lower {a:g} is above upper {b:g}.")
        if a == b:
            raise ParameterError(
                f"The bounds of {name!r} are both {a:g}, which leaves nothing to fit. "
                "Leave the parameter out to keep it fixed."
            )
    return low, high


def _one_bound(bound: UserBounds, names: Sequence[str], free: float, argument: str) -> Vector:
    if bound is None:
        return np.full(len(names), free)
    if isinstance(bound, (Mapping, pd.Series)):
        by_name = by_parameter(bound, names, argument)
        values: list[Any] = [by_name.get(n, free) for n in names]
    elif isinstance(bound, (str, bytes)):
        raise ParameterError(f"`{argument}={bound!r}` is not a number, a sequence or a dict by name.")
    else:
        values = list(bound) if isinstance(bound, Iterable) else [bound] * len(names)
        if len(values) != len(names):
            raise ParameterError(
                f"`{argument}` has {len(values)} values for {len(names)} parameters "
                f"({listed(names)}). Give one number, one per parameter, or a dict by name."
            )
    try:
        out = np.array([free if v is None else float(v) for v in values])
    except (TypeError, ValueError, OverflowError):
        raise ParameterError(f"`{argument}` must hold numbers; got {bound!r}.") from None
    return np.where(np.isnan(out), free, out)


def by_parameter(mapping: Any, names: Sequence[str], argument: str) -> dict[str, Any]:
    """Return the values of a mapping by parameter, local names expanded; ParameterError for an unknown name."""
    value = dict(zip(map(normal_name, mapping.keys()), _values_of(mapping), strict=True))
    pairs = of_every_entity(mapping.keys(), names)
    return dict(
        zip(check_names([k for k, _ in pairs], names, argument=argument), [value[n] for _, n in pairs], strict=True)
    )


def _values_of(named: Any) -> list[Any]:
    return list(named) if isinstance(named, pd.Series) else list(named.values())


def check_inside(values: Vector, lower: Vector, upper: Vector, names: Sequence[str], *, argument: str = "p") -> None:
    """Raise a ParameterError if a start lies outside its bounds (on a bound is inside)."""
    for name, v, a, b in zip(names, values, lower, upper, strict=True):
        if not a <= v <= b:
            raise ParameterError(
                f"`{argument}`: the start of {name!r} is {v:g}, outside its bounds [{a:g}, {b:g}]. "
                "Move the start inside, or widen the bounds."
            )
