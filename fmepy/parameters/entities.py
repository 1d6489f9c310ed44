"""The parameters of several experiments with one model: shared, local, or set by condition.

Every experiment (*entity*) runs the model with all of its parameters, the *full* ones. Each of these comes from one of
the parameters of the whole, or is a number that stands fast::

    shared    full_j of entity k = theta_j                  the default
    local     full_j of entity k = theta_j[k]               a parameter each, called "ka[1]", "ka[2]", ...
    set       full_j of entity k = a number, or another parameter of the whole, by a table of conditions

With ``values`` = (parameters of the whole, then the numbers), ``full_k = values[take[k]]``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from fmepy.errors import ParameterError, did_you_mean, listed
from fmepy.parameters.maps import Computed, Selected
from fmepy.parameters.named import check_names
from fmepy.parameters.names import split_local
from fmepy.types import BoolVector, IntVector, Matrix, Vector

OF_CONDITION = "_of_condition"
"""Suffix of the parameter that is the start of a state, where a condition sets it."""


def entity_text(label: Any) -> str:
    """Return the name of an entity as text: 3, 3.0 and "3" are one.

    Examples
    --------
    >>> entity_text(3.0), entity_text("rat 4"), entity_text(0.5)
    ('3', 'rat 4', '0.5')
    """
    if isinstance(label, float | np.floating) and float(label).is_integer():
        return str(int(label))
    return str(label)


def local_name(name: str, label: Any) -> str:
    """Return the name of an entity's own parameter.

    Examples
    --------
    >>> local_name("ka", 3), split_local("ka[3]"), split_local("ka")
    ('ka[3]', ('ka', '3'), ('ka', None))
    """
    return f"{name}[{entity_text(label)}]"


def check_not_local(names: Sequence[str], known: Collection[str], what: str) -> None:
    """Raise an error for local parameters of entities where a model without entities is to run.

    It would run at its own value, which was not fitted.
    """
    named = set(names)
    for name in names:
        base, entity = split_local(name)
        if entity is not None and name not in known and base in known and base not in named:
            own = [n for n in names if split_local(n)[0] == base]
            raise ParameterError(
                f"{what} has {base!r} of every entity ({listed(own)}), and the model one that is none of these. The "
                f"model of an entity, with its conditions: cost.model_of({entity!r}). Give that."
            )


@dataclass(frozen=True, slots=True, eq=False)
class EntityParameters:
    """Where every parameter of every entity comes from, see the module's text.

    Attributes
    ----------
    labels : tuple of str, length n_entity
    full_names : tuple of str, length n_full
    parms : Series
        The parameters of the whole, with their own values.
    constants : ndarray
        The numbers of the conditions.
    take : ndarray of int, shape (n_entity, n_full)
        Places in ``[parms, constants, values of the expressions]``.
    derived : tuple of (expression, tuple of int)
        Expressions in conditions, and the places of what they name among the `parms`.
    """

    labels: tuple[str, ...]
    full_names: tuple[str, ...]
    parms: pd.Series
    constants: Vector
    take: IntVector
    derived: tuple[tuple[Any, tuple[int, ...]], ...] = ()
    _places: dict[str, int] = field(init=False)
    _known: dict[tuple[str, ...], IntVector] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_places", {str(n): i for i, n in enumerate(self.parms.index.tolist())})

    @property
    def values(self) -> Vector:
        """The parameters' own values, then the constants, then the values of the expressions."""
        own = self.parms.to_numpy(dtype=float)
        return np.concatenate([own, self.constants, [e.value(own[list(at)].tolist()) for e, at in self.derived]])

    @property
    def is_constant(self) -> BoolVector:
        """Tell which of the `values` are constants."""
        first = len(self.parms)
        at = np.arange(first + len(self.constants) + len(self.derived))
        return (at >= first) & (at < first + len(self.constants))

    def behind(self, columns: Sequence[int]) -> BoolVector:
        """Tell which of the `parms` move some of the full parameters, of whatever entity."""
        n, first = len(self.parms), len(self.parms) + len(self.constants)
        taken = np.isin(np.arange(first + len(self.derived)), self.take[:, columns])
        out = taken[:n].copy()
        for k, (_, places) in enumerate(self.derived):
            out[list(places)] |= taken[first + k]
        return out

    def own(self, k: int) -> dict[str, float]:
        """Return all parameters of an entity at the parameters' own values."""
        return dict(zip(self.full_names, self.values[self.take[k]].tolist(), strict=True))

    def checked(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return parameters of the whole as they are called; ParameterError for one that is not there."""
        if isinstance(names, tuple) and names in self._known:
            return names
        return check_names(names, self.parms.index, argument="names")

    def moved_by(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the full parameters that any of `names` moves, of whatever entity, so that all are bound alike."""
        moved = np.any(self._to(names)[self.take] >= 0, axis=0)
        return tuple(n for n, m in zip(self.full_names, np.asarray(moved).tolist(), strict=True) if m)

    def _to(self, names: tuple[str, ...]) -> IntVector:
        """Return by value of `values` which of `names` it is; -1 of the others."""
        places_of = self._known.get(names)
        if places_of is None:
            first = len(self.parms) + len(self.constants)
            places_of = np.full(first + len(self.derived), -1, dtype=np.intp)
            places_of[[self._places[n] for n in names]] = np.arange(len(names))
            for k, (_, places) in enumerate(self.derived):  # behind theta come the values of all expressions
                places_of[first + k] = len(names) + k if (places_of[list(places)] >= 0).any() else -1
            self._known.clear()  # all entities use the same
            self._known[names] = places_of
        return places_of

    def map(self, k: int, names: tuple[str, ...], full: Sequence[str]) -> Selected | Computed:
        """Return the map of an entity, from the parameters `names` of the whole to those of `full`."""
        (values,), (places,) = self.maps([k], names, full)
        if not (places >= len(names)).any():
            return Selected(names, tuple(full), values, places)
        behind = Selected((*names, *(str(e) for e, _ in self.derived)), tuple(full), values, places)
        at = np.array([self._places[n] for n in names], dtype=np.intp)
        return Computed(names, behind, self.parms.to_numpy(dtype=float), at, self.derived)

    def maps(self, which: Sequence[int], names: tuple[str, ...], full: Sequence[str]) -> tuple[Matrix, IntVector]:
        """Return values of several entities and their places in `names`, shape (n_which, n_full); -1: none."""
        take = self.take[np.ix_(which, [self.full_names.index(n) for n in full])]
        return self.values[take], self._to(names)[take]

    def transforms(self, kinds: Mapping[str, str]) -> dict[str, str]:
        """Return how parameters of the whole are transformed, from how the full ones are."""
        places = {i: name for name, i in self._places.items()}
        columns = [(kinds[n], column) for n, column in zip(self.full_names, self.take.T, strict=True) if n in kinds]
        return {places[t]: kind for kind, column in columns for t in column.tolist() if t in places}

    def taken_by(self, full: Collection[str]) -> tuple[str, ...]:
        """Return the parameters of the whole that give their value to these full ones, and to no others."""
        mine = np.array([name in full for name in self.full_names], dtype=bool)
        some = set(self.take[:, mine].ravel().tolist()) - set(self.take[:, ~mine].ravel().tolist())
        some -= {i for _, places in self.derived for i in places}
        return tuple(name for i, name in enumerate(self.parms.index) if i in some)


def entity_parameters(
    full: pd.Series,
    labels: Sequence[Any],
    *,
    local: Sequence[str] = (),
    conditions: Mapping[str, Sequence[Any]] | None = None,
    given: Mapping[str, float] | None = None,
) -> EntityParameters:
    """Return the parameters of several experiments.

    Parameters
    ----------
    full : Series
        All parameters of a run, with their values.
    labels : sequence
        The entities; one that is there several times has several runs.
    local : sequence of str
        Parameters that every entity has for itself.
    conditions : mapping of parameter to (sequence of numbers, names of parameters or expressions), length n_entity
        An expression has ``names``, and ``value`` and ``slope`` as functions of these.
    given : mapping of str to float
        Values of parameters that the model does not have: local ones, such as "ka[3]", and those that conditions name.

    Raises
    ------
    ParameterError
        Unknown names, a parameter that is local and set by condition, a name without a value.
    """
    conditions, given = conditions or {}, given or {}
    texts = tuple(map(entity_text, labels))
    known = tuple(map(str, full.index))
    local = _checked_local(local, known, conditions)
    parms: dict[str, float] = {}
    for name in known:
        value = float(full[name])
        if name in local:
            parms |= {local_name(name, t): float(given.get(local_name(name, t), value)) for t in texts}
        elif name not in conditions or any(name in _named(cell) for cell in conditions[name]):
            parms[name] = value
    for name, cells in conditions.items():
        for text, cell in zip(texts, cells, strict=True):
            for used in _named(cell):
                if used not in parms and used not in local:
                    if used not in given:
                        raise _unknown(used, name, text, [*parms, *local, *given])
                    parms[used] = float(given[used])
    check_names([n for n in given if split_local(n)[1] is not None], parms, argument="parms")
    places = {name: i for i, name in enumerate(parms)}
    constants: list[float] = []
    derived: dict[tuple[str, tuple[int, ...]], Any] = {}
    of_expressions: list[tuple[int, int, int]] = []
    take = np.empty((len(texts), len(known)), dtype=np.intp)
    for k, text in enumerate(texts):
        for j, name in enumerate(known):
            source = conditions[name][k] if name in conditions else name
            at = tuple(places[local_name(n, text) if n in local else n] for n in _named(source))
            if isinstance(source, str):
                take[k, j] = at[0]
            elif at:
                derived.setdefault((str(source), at), source)
                of_expressions.append((k, j, list(derived).index((str(source), at))))
            else:
                take[k, j] = len(parms) + len(constants)
                constants.append(source)
    for k, j, which in of_expressions:
        take[k, j] = len(parms) + len(constants) + which
    own = tuple((expression, at) for (_, at), expression in derived.items())
    return EntityParameters(texts, known, pd.Series(parms, dtype=float), np.array(constants), take, own)


def _named(cell: Any) -> tuple[str, ...]:
    """Return the names in a cell: itself, or those of an expression."""
    return (cell,) if isinstance(cell, str) else tuple(getattr(cell, "names", ()))


def _checked_local(local: Any, known: Sequence[str], conditions: Mapping[str, Any]) -> tuple[str, ...]:
    if isinstance(local, str):
        raise ParameterError(f"`entity_parms` must be a list of names, such as [{local!r}]; got the text {local!r}.")
    names = check_names(local, known, argument="entity_parms")
    for name in names:
        if name in conditions:
            raise ParameterError(
                f"{name!r} is in `entity_parms`, so that every entity has its own, and a column of `conditions`, which "
                "sets it. Leave it out of one of them."
            )
    return names


def _unknown(cell: str, name: str, text: str, known: Sequence[str]) -> ParameterError:
    near, name = did_you_mean(cell, known), name.removesuffix(OF_CONDITION)
    return ParameterError(
        f"`conditions`: {name!r} of entity {text!r} is {cell!r}, which is neither a number nor a parameter.{near} "
        f"A new parameter needs a value: parms={{{cell!r}: ...}}."
    )
