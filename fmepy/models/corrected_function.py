"""A model without equations that readings correct: the user's function, with the corrections around it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from fmepy.compiled.python_code import scalar_function
from fmepy.language.equations import names_in, symbols
from fmepy.language.nodes import as_node
from fmepy.models.definition.definition import Definition, Draft, Found
from fmepy.models.definition.given import Given
from fmepy.types import Vector


@dataclass(frozen=True, slots=True, eq=False)
class CorrectedFunction:
    """A source of a model (`models.definition.definition.Readable`), and the function that runs it.

    Attributes
    ----------
    definition : Definition
        Of the model as the user gave it.
    states, parameters, forcings : tuple of str
        Of the corrected one; the states copy by copy, its first ones those of the model.
    starts : tuple of tuple of Node
        Of a difference equation: by copy what a step starts from; empty: from the states as they are.
    added : tuple of Node
        What is added to the rates of the first copy; empty: nothing.
    before : tuple of str
        Names of the model's forcings of the step before.
    """

    definition: Definition
    states: tuple[str, ...]
    parameters: tuple[str, ...]
    forcings: tuple[str, ...]
    starts: tuple[tuple[Any, ...], ...]
    added: tuple[Any, ...]
    before: tuple[str, ...]

    def draft(self, given: Given) -> Draft:
        """Return what it holds."""
        d = self.definition
        found = Found(None, dict(d.outputs), d.extra_names, d.note)
        function: Any = self  # it runs as a RatesFunction does; readings are forcings, so that `of` is never asked for
        return Draft(self.states, given.parms, given.initial, lambda: found, d.time, None, function)

    def __call__(self, t: float, y: Any, p: Any, u: Any) -> Vector:
        """Return the rates (or next states) of all copies."""
        own, n = self._own, len(self.definition.states)
        extras = self._before(t, y, p, u) if self.starts else None
        made = self._expressions(t, y, p, u, extras)
        starts = np.array(made[: len(y)]) if self.starts else np.asarray(y, dtype=float)
        out = np.concatenate([own(t, x, p[: self._n_parms], u[: self._n_forcings]) for x in starts.reshape(-1, n)])
        if self.added:
            out[:n] += made
        return out

    def extras(self, t: float, y: Any, p: Any, u: Any) -> dict[str, float]:
        """Return the extra outputs of the model's own states."""
        x = np.asarray(y, dtype=float)[: len(self.definition.states)]
        found: dict[str, float] = self._own.extras(t, x, p[: self._n_parms], u[: self._n_forcings])
        return found

    @property
    def _own(self) -> Any:
        return self.definition.function

    @property
    def _n_parms(self) -> int:
        return len(self.definition.parms)

    @property
    def _n_forcings(self) -> int:
        return len(self.definition.forcings)

    def _first(self, y: Any) -> Vector:
        """Return the states of the first copy, the one that is corrected."""
        n = len(self.definition.states)
        return np.asarray(y, dtype=float)[n : 2 * n] if len(y) > n else np.asarray(y, dtype=float)

    def _before(self, t: float, y: Any, p: Any, u: Any) -> dict[str, float]:
        """Return the extra outputs of the first copy at the step before."""
        at = [self.forcings.index(k) for k in self.before]
        x = self._first(y)
        found: dict[str, float] = self._own.extras(t - 1, x, p[: self._n_parms], np.asarray(u, dtype=float)[at])
        return found

    def _expressions(self, t: float, y: Any, p: Any, u: Any, extras: dict[str, float] | None) -> list[float]:
        wanted = self.added or tuple(e for copy in self.starts for e in copy)
        if not wanted:
            return []
        names = self.definition.extra_names
        if extras is None and names_in(wanted) & set(names):
            extras = self._own.extras(t, self._first(y), p[: self._n_parms], u[: self._n_forcings])
        beside = [] if extras is None else [extras[k] for k in names]
        groups = ((self.definition.time,), self.states, self.parameters, self.forcings, names if beside else ())
        return _function(groups, wanted)((t,), list(y), list(p), list(u), beside)


@lru_cache(maxsize=64)
def _function(groups: tuple[tuple[str, ...], ...], wanted: tuple[Any, ...]) -> Callable[..., list[float]]:
    return scalar_function(symbols(*groups), [as_node(e) for e in wanted])
