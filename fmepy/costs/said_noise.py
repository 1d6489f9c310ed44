"""What was said of the noise of readings, in words that stand in results: expressions, and what their names take.

A result holds numbers and texts, never a cost. With these it can say how far a reading scatters about a prediction::

    sd of a reading of y = expression(predictions, parameters, what is known at x)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fmepy.compiled.python_code import array_function
from fmepy.costs.noise import ERR
from fmepy.errors import ArgumentError
from fmepy.journal.encoding import Stored
from fmepy.language.equations import names_in, symbol
from fmepy.language.text import parse_expression
from fmepy.parameters.entities import EntityParameters
from fmepy.parameters.maps import Elementwise

Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class SaidSd(Stored):
    """How large the noise of some readings of a variable is.

    Attributes
    ----------
    expression : str
    takes : dict of str to (str or float)
        By name in the expression the parameter of the cost, or the number, that stands for it.
    entity : str or None
        Whose readings they are; None: everybody's.
    """

    expression: str
    takes: dict[str, str | float]
    entity: str | None = None

    @property
    def words(self) -> tuple[Any, ...]:
        """What makes it the same as another."""
        return self.expression, tuple(sorted(self.takes.items(), key=str))


@dataclass(frozen=True, slots=True, eq=False)
class SaidNoise(Stored):
    """The noise of the readings of a cost.

    Attributes
    ----------
    sds : dict of str to tuple of SaidSd
        By observed variable.
    scales : dict of str to (str or None)
        By observed variable the transform by which it is compared, in whose unit its sd is.
    values : dict of str to float
        The cost's own values of the parameters that are named.
    kinds : dict of str to str
        How those are transformed that are (`transformed`).
    """

    sds: dict[str, tuple[SaidSd, ...]]
    scales: dict[str, str | None]
    values: dict[str, float]
    kinds: dict[str, str]

    def sd(self, variable: str, entity: str | None, known: Values, parameters: Callable[[str], Any]) -> Any:
        """Return the sd of a reading of a variable, in the unit of comparison; None if nothing is said of it.

        Parameters
        ----------
        variable : str
        entity : str or None
            Whose it would be.
        known : mapping of str to array
            Predictions, time, forcings.
        parameters : callable
            Value of a parameter of the cost, on the cost's scale; KeyError of one that it does not know.

        Raises
        ------
        ArgumentError
            Readings of the variable differ in what their noise is; it depends on what is not known.
        """
        ways = [w for w in self.sds.get(variable, ()) if entity is None or w.entity in (None, entity)]
        if not ways:
            return None
        if len({w.words for w in ways}) > 1:
            raise ArgumentError(
                f"reading=True: the readings of {variable!r} differ in the noise that was said (entities, parts of a "
                "sum, or names by row). Predict one entity, predict(cost.model_of(entity), fit), or take the band of "
                "the model's value."
            )
        sd = parse_expression(ways[0].expression, where=f"the noise of {variable!r}")
        names = sorted(names_in([sd]))
        values = [self._value(n, ways[0], variable, known, parameters) for n in names]
        with np.errstate(all="ignore"):
            return array_function([[symbol(n) for n in names]], [sd])(values)[0]

    def _value(self, name: str, way: SaidSd, variable: str, known: Values, parameters: Callable[[str], Any]) -> Any:
        source = way.takes.get(name, name)
        if not isinstance(source, str):
            return source
        if name in known and name not in way.takes:
            return known[name]
        try:
            value = parameters(source)
        except KeyError:
            value = self.values.get(source)
        if value is None:
            err = " (the datum's own error, which differs between readings)" if name == ERR else ""
            raise ArgumentError(
                f"reading=True: the noise of {variable!r} depends on {name!r}{err}, of which nothing is known where it "
                "is predicted. Take the band of the model's value."
            )
        kind = self.kinds.get(source)
        if kind is None:
            return value
        flat = np.ravel(np.asarray(value, dtype=float))
        names = tuple(map(str, range(flat.size)))
        return Elementwise(names, dict.fromkeys(names, kind)).full(flat).reshape(np.shape(value))

    def mapped(self, kinds: Mapping[str, str], values: Mapping[str, float]) -> SaidNoise:
        """Return the same of a cost whose parameters are transformed, with its own values."""
        own = {name: float(values.get(name, value)) for name, value in self.values.items()}
        return replace(self, values=own, kinds={**self.kinds, **{n: k for n, k in kinds.items() if n in own}})


def said_noise_of(
    sds: Mapping[str, Any],
    scales: Mapping[str, str | None],
    errors: Mapping[str, float | None],
    parameters: EntityParameters,
    cases: Iterable[tuple[int, str | None, set[str]]],
) -> SaidNoise:
    """Return what is said of a cost's noise.

    Parameters
    ----------
    sds : mapping of variable to expression
    scales : mapping of variable to transform
    errors : mapping of variable to the error that all of its readings have, None where they differ
    parameters : EntityParameters
        Where those of every case come from.
    cases : iterable of (case, its entity, variables that are read)
    """
    names, found = list(parameters.parms.index), dict[str, dict[Any, SaidSd]]()
    for k, entity, read in cases:
        for variable in read & set(sds):
            takes: dict[str, str | float] = {}
            for name in names_in([sds[variable]]) & set(parameters.full_names):
                at = int(parameters.take[k, parameters.full_names.index(name)])
                takes[name] = str(names[at]) if at < len(names) else float(parameters.values[at])
            if (err := errors.get(variable)) is not None:
                takes[ERR] = err
            way = SaidSd(str(sds[variable]), takes, entity)
            found.setdefault(variable, {}).setdefault((entity, way.words), way)
    used = {v for ways in found.values() for w in ways.values() for v in w.takes.values() if isinstance(v, str)}
    values = {n: float(parameters.parms[n]) for n in names if n in used}
    return SaidNoise({v: tuple(ways.values()) for v, ways in found.items()}, dict(scales), values, {})


def joined_noise(parts: Iterable[SaidNoise | None]) -> SaidNoise | None:
    """Return what the parts of a sum say; None if nobody says anything."""
    known = [p for p in parts if p is not None]
    if not known:
        return None
    sds: dict[str, tuple[SaidSd, ...]] = {}
    for p in known:
        for variable, ways in p.sds.items():
            sds[variable] = (*sds.get(variable, ()), *ways)
    merged = [{k: v for p in known for k, v in getattr(p, field).items()} for field in ("scales", "values", "kinds")]
    return SaidNoise(sds, *merged)


def said_noise(f: Any) -> SaidNoise | None:
    """Return what a cost says of its noise, None of one that says nothing."""
    said = getattr(f, "said_noise", None)
    return said if isinstance(said, SaidNoise) else None
