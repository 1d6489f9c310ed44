"""Events at given times, and what changes of states do to z = [y, S]."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import groupby
from math import isfinite
from typing import Any

import numpy as np

from fmepy.compiled.python_code import scalar_function
from fmepy.errors import SimulationError
from fmepy.language.derivatives import derivative
from fmepy.language.equations import names_in, symbol, symbols
from fmepy.models.definition.definition import Definition
from fmepy.models.definition.values import ValueTable
from fmepy.models.running.events import GIVEN, Event, RootChange, kinds_of
from fmepy.models.running.forcings import forcing_values
from fmepy.types import Vector

Apply = Callable[[Sequence[int], Vector], Vector]
Settle = Callable[[float, Vector], Vector]


class EventTable:
    """Events of a model, ready to be applied to z = [y, scaled sensitivities]; see `models.running.events`.

    Parameters
    ----------
    definition : Definition
    names : tuple of str
        The parameters with sensitivities.
    """

    def __init__(self, definition: Definition, names: tuple[str, ...]) -> None:
        d, self.events, self._n = definition, definition.events, len(definition.states)
        kinds, of, self._numbers = kinds_of(d.events)
        functions = [_function(kind, d.groups, names) for kind in kinds]
        self._values = [functions[k] for k in of]
        self._forced: list[list[float]] = forcing_values(d.forcings, np.array([e.time for e in d.events])).T.tolist()
        used = names_in(e.value for e in d.events) & set(d.extra_names)
        self._extras, self._nothing = (d.function if used else None), [0.0] * len(d.extra_names)

    def prepared(self, p: list[float], scales: Vector | None, settle: Settle | None = None) -> Apply:
        """Return ``apply(indices, z) -> z`` for one run.

        scales : ndarray or None
            The sensitivities' (None: there are none).
        settle : callable, optional
            ``settle(t, z)`` makes algebraic states consistent after the events of one order.
        """
        events, n = self.events, self._n

        def made(i: int, z: Vector) -> tuple[float, Any]:
            """Return the value of an event at z, and the derivatives of that."""
            e, u = events[i], self._forced[i]
            extras = self._nothing if self._extras is None else [*self._extras.extras(e.time, z[:n], p, u).values()]
            v, *slopes = self._values[i]((e.time,), z[:n].tolist(), p, u, extras, (self._numbers[i],))
            if not isfinite(v):
                raise SimulationError("an initial or event value is not finite", time=e.time)
            if scales is None:
                return v, None
            return v, np.array(slopes[:n]) @ z[n:].reshape(-1, n).T + np.array(slopes[n:]) * scales

        def apply(indices: Sequence[int], z: Vector) -> Vector:
            return changed_states(z, n, [(i, events[i]) for i in indices], made, settle)

        return apply


def changed_states(
    z: Vector,
    n: int,
    changes: Sequence[tuple[int, Any]],
    made: Callable[[int, Vector], tuple[float, Any]],
    settle: Settle | None = None,
) -> Vector:
    """Return z, n states and their sensitivities, after changes (`Event` or `RootChange`), each with its number.

    Those of one order see the same z, for which ``made(number, z)`` returns a value and its (scaled) derivatives (None:
    there are none); `settle` is called after each order, at the time of the events.
    """
    in_order = sorted(changes, key=lambda one: one[1].order)
    for _, together in groupby(in_order, key=lambda one: one[1].order):
        values, z = [(c, *made(i, z)) for i, c in together], z.copy()
        for c, v, dv in values:
            s = z[n + c.state :: n]  # sensitivities of this state (a view), one a parameter
            old = z[c.state]
            z[c.state] = v if c.method == "replace" else old + v if c.method == "add" else old * v
            if dv is not None:
                s[:] = dv if c.method == "replace" else s + dv if c.method == "add" else v * s + old * dv
        if settle is not None:
            z = settle(values[0][0].time, z)
    return z


def sizes_set(events: Sequence[Event | RootChange], definition: Definition, p: list[float]) -> Vector:
    """Return the largest value that each state is set to by events whose values are known before a run."""
    out, known = np.zeros(len(definition.states)), set(definition.parameters)
    for e in {(e.state, e.value): e for e in events if e.method != "multiply"}.values():
        if isinstance(e.value, float) or names_in([e.value]) <= known:
            with suppress(SimulationError):  # one that has no value fails in the run
                (value,) = ValueTable([e.value], definition.parameters).value(p)
                out[e.state] = max(out[e.state], abs(value))
    return out


@lru_cache(maxsize=256)
def _function(value: Any, groups: tuple[tuple[str, ...], ...], names: tuple[str, ...]) -> Callable[..., list[float]]:
    """Return the value of a kind of event, and its derivatives to the states and the parameters `names`."""
    slopes = [derivative(value, symbol(k)) for k in (*groups[1], *names)] if names else []
    return scalar_function(symbols(*groups, (GIVEN,)), [value, *slopes])
