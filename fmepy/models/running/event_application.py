"""Events applied between two stretches of a run: the values of a group of them, then what they do to z = [y, S]."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from itertools import groupby
from math import isfinite
from typing import Any

import numpy as np

from fmepy.compiled.python_code import scalar_function
from fmepy.errors import SimulationError
from fmepy.language.derivatives import derivative
from fmepy.language.equations import names_in, symbol, symbols
from fmepy.models.definition.definition import Definition
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
        self.events, self._definition, self._names = definition.events, definition, names
        self._n, self._nothing = len(definition.states), [0.0] * len(definition.extra_names)

    @cached_property
    def _kinds(self) -> tuple[list[Callable[..., list[float]]], list[int], list[float]]:
        d = self._definition
        kinds, of, numbers = kinds_of(self.events)
        names = (d.time, d.states, d.parameters, tuple(f.name for f in d.forcings), d.extra_names)
        return [_function(kind, *names, self._names) for kind in kinds], of, numbers

    @cached_property
    def _forced(self) -> list[list[float]]:
        times = np.array([e.time for e in self.events])
        forced: list[list[float]] = forcing_values(self._definition.forcings, times).T.tolist()
        return forced

    @cached_property
    def _extras(self) -> Any:
        """What the user's function gives beside the rates, if a value is of that."""
        d = self._definition
        used = {s.name for e in self.events for s in getattr(e.value, "free_symbols", ())}
        return d.function if used & set(d.extra_names) else None

    def prepared(self, p: list[float], scales: Vector | None, settle: Settle | None = None) -> Apply:
        """Return ``apply(indices, z) -> z`` for one run.

        scales : ndarray or None
            The sensitivities' (None: there are none).
        settle : callable, optional
            ``settle(t, z)`` makes algebraic states consistent after the events of one order.
        """
        events, n = self.events, self._n

        def made(i: int, z: Vector) -> tuple[Event, float, Any]:
            """Return an event, its value at z, and the derivatives of that."""
            e, (functions, of, numbers) = events[i], self._kinds
            u = self._forced[i]
            extras = self._nothing if self._extras is None else [*self._extras.extras(e.time, z[:n], p, u).values()]
            v, *slopes = functions[of[i]]((e.time,), z[:n].tolist(), p, u, extras, (numbers[i],))
            if not isfinite(v):
                raise SimulationError("an initial or event value is not finite", time=e.time)
            if scales is None:
                return e, v, None
            return e, v, np.array(slopes[:n]) @ z[n:].reshape(-1, n).T + np.array(slopes[n:]) * scales

        def apply(indices: Sequence[int], z: Vector) -> Vector:
            for _, group in groupby(sorted(indices, key=lambda i: events[i].order), key=lambda i: events[i].order):
                values, z = [made(i, z) for i in group], z.copy()
                for e, v, dv in values:
                    change_state(z, n, e.state, e.method, v, dv)
                if settle is not None:
                    z = settle(values[0][0].time, z)
            return z

        return apply


def change_state(z: Vector, n: int, state: int, method: str, v: float, dv: Any) -> None:
    """Change a state in z, n states and their sensitivities, by v, whose (scaled) derivatives are dv (None: none)."""
    s = z[n + state :: n]  # sensitivities of this state (a view), one a parameter
    old = z[state]
    z[state] = v if method == "replace" else old + v if method == "add" else old * v
    if dv is not None:
        s[:] = dv if method == "replace" else s + dv if method == "add" else v * s + old * dv


def sizes_set(events: Sequence[Event | RootChange], definition: Definition, p: list[float]) -> Vector:
    """Return the largest value that each state is set to by events whose values are known before a run."""
    out, known = np.zeros(len(definition.states)), set(definition.parameters)
    for e in {(e.state, e.value): e for e in events if e.method != "multiply"}.values():
        if isinstance(e.value, float):
            value = e.value
        elif names_in([e.value]) <= known:
            value = _function(e.value, "", (), definition.parameters, (), (), ())((0.0,), (), p, (), (), (0.0,))[0]
        else:
            continue
        out[e.state] = max(out[e.state], abs(value) if isfinite(value) else 0.0)
    return out


@lru_cache(maxsize=256)
def _function(
    kind: Any,
    time: str,
    states: tuple[str, ...],
    parameters: tuple[str, ...],
    forcings: tuple[str, ...],
    extras: tuple[str, ...],
    names: tuple[str, ...],
) -> Callable[..., list[float]]:
    """Return the value of a kind of event, and its derivatives to the states and the parameters `names`."""
    value = kind
    slopes = [derivative(value, symbol(k)) for k in (*states, *names)] if names else []
    return scalar_function(symbols((time,), states, parameters, forcings, extras, (GIVEN,)), [value, *slopes])
