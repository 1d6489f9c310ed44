"""Events along a run, at given times and where roots cross zero, and what they do to z = [y, S].

At a hit at time t* the states change by y+ = h(t, y-, p). Its time moves with the parameters, and sensitivities follow
(f- and f+ are the rates before and after; the saltation condition, Hairer, Norsett and Wanner, Solving Ordinary
Differential Equations I, section I.14)::

    dt*/dp = -(g_y S- + g_p) / (g_t + g_y f-)
    S+     = h_y (S- + f- dt*/dp) + h_p + h_t dt*/dp - f+ dt*/dp

Roots that cross at one time fire by the order of their changes and as they stand, each seeing what the one before left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property, lru_cache
from itertools import groupby, pairwise
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from fmepy.compiled.python_code import scalar_function
from fmepy.errors import SimulationError
from fmepy.language.derivatives import derivative
from fmepy.language.equations import names_in, symbol, symbols
from fmepy.language.nodes import as_node
from fmepy.models.definition.definition import Definition
from fmepy.models.definition.values import ValueTable
from fmepy.models.running.events import GIVEN, Event, Root, RootChange, kinds_of
from fmepy.models.running.forcings import forcing_values
from fmepy.models.running.system import System, with_slopes
from fmepy.types import Matrix, Vector

if TYPE_CHECKING:
    from fmepy.models.running.timeline import Timeline

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


# --- root events

MOST_HITS = 10_000
"""Crossings in one run, fired or not, after which it counts as one that does not end."""
MOST_AT_ONE_TIME = 100
"""Crossings one after the other at which time stands still."""
NEAR = 1e-10
"""Part of the run until now (`so_far`) within which two times are one: of hits, and of a hit and a row."""
_ENDLESS = 1e-8
"""Part of it below which hits at ever shorter distances have no end (a ball that comes to rest)."""
_MANY, _MANY_WITHIN = 20, 1e-6
"""So many hits of a root within such a part of it have no end either."""
_STILL = 1e-12
"""A root whose speed is less than this part of its terms only touches zero."""

Rates = Callable[[float, Vector], Vector]
Hit = tuple[float, int, Any]
"""Its time, the position of the root, and the derivatives of the time to the parameters asked for (or None)."""


def so_far(t: float, start: float) -> float:
    """Return how long a run has lasted at t, but no time that rounding of t would hide: the measure of what is near.

    Examples
    --------
    >>> so_far(3.0, 1.0), so_far(100.0, 100.0)
    (2.0, 0.01)
    """
    return max(t - start, 1e-4 * abs(t))


class RootTable:
    """The roots of a system, compiled: their values, their slopes, and the values of their changes.

    Parameters
    ----------
    system : System
    definition : Definition
    """

    def __init__(self, system: System, definition: Definition) -> None:
        self.roots: tuple[Root, ...] = system.roots
        self.system, self._extra_names = system, definition.extra_names
        used = names_in(e for r in self.roots for e in r.expressions) & set(self._extra_names)
        self._extras = definition.function if used else None

    def _function(self, expressions: Sequence[Any]) -> Callable[[float, Vector, Any], list[float]]:
        s, n, layout = self.system, self.system.n_states, self.system.layout
        groups = [[s.time], s.z[:n], s.inputs, *symbols(self._extra_names)]
        function, nothing = scalar_function(groups, expressions), [0.0] * len(self._extra_names)

        def values(t: float, z: Vector, inputs: Any) -> list[float]:
            given = inputs[: layout.size].tolist() if isinstance(inputs, np.ndarray) else inputs[: layout.size]
            extras = nothing
            if self._extras is not None:
                p, u = given[: layout.n_parameters], layout.forcing_values(t, given)
                found = self._extras.extras(t, np.asarray(z[:n]), np.array(p), np.array(u))
                extras = [found[k] for k in self._extra_names]
            return function((t,), list(map(float, z[:n])), given, extras)

        return values

    @cached_property
    def values(self) -> Callable[[float, Any, Any], list[float]]:
        """``values(t, z, inputs)``: all roots."""
        return self._function([r.g for r in self.roots])

    def _with_slopes(self, expressions: Sequence[Any]) -> Callable[[float, Any, Any], Matrix]:
        """Return expressions, and their derivatives to the time, the states and (scaled) the parameters, row by row."""
        function, width = self._function(with_slopes(self.system, expressions)), self.system.width
        return lambda t, z, inputs: np.array(function(t, z, inputs)).reshape(-1, width)

    @cached_property
    def slopes(self) -> Callable[[float, Any, Any], Matrix]:
        """``slopes(t, z, inputs)``: g, g_t, g_y and scaled g_p of all roots."""
        return self._with_slopes([r.g for r in self.roots])

    @cached_property
    def changes(self) -> list[Callable[[float, Any, Any], Matrix]]:
        """The values of the changes of each root, with the same slopes."""
        return [self._with_slopes([as_node(c.value) for c in r.changes]) for r in self.roots]


class RootRun:
    """The root events of one run.

    Parameters
    ----------
    table : RootTable
    inputs : ndarray
        Those of the run; behind them stand the offsets of what is watched, at the end those of the roots.
    rates : callable
        ``rates(t, z)``, those of all z.
    hits : list of Hit
        Gets what fires.
    settle : callable, optional
        ``settle(t, z)`` makes algebraic states consistent after a change.
    line : Timeline
    """

    def __init__(
        self,
        table: RootTable,
        inputs: Vector,
        rates: Rates,
        hits: list[Hit],
        settle: Settle | None = None,
        *,
        line: Timeline,
    ) -> None:
        self._start, self._span = line.start, float(line.rows[-1]) - line.start
        self.table, self.inputs, self.all_rates, self._hits = table, inputs, rates, hits
        self._settle: Settle = settle if settle is not None else lambda t, z: z
        self._n, self._sides = table.system.n_states, np.zeros(len(table.roots))
        self._crossed_at = np.zeros(len(table.roots))  # how far from zero those are, by the engine's error, that cross
        self._last: list[list[float]] = [[] for _ in table.roots]
        self._stops = self._at_one_time = 0
        self._stopped = -np.inf
        self._seen: tuple[float, Vector, tuple[Vector, Vector, Vector, Matrix, Vector]] | None = None

    def rates(self, t: float, z: Vector) -> Vector:
        """Return the rates of the states."""
        with np.errstate(all="ignore"):
            return np.asarray(self.all_rates(t, z), dtype=float)[: self._n]

    def _look(self, t: float, z: Vector) -> tuple[Vector, Vector, Vector, Matrix, Vector]:
        """Return g, its speed along the run, the size of the terms of that, the table of slopes, and the rates.

        What was seen is kept: a stop is looked at several times, before anything changes.
        """
        if self._seen is not None and self._seen[0] == t and self._seen[1] is z:
            return self._seen[2]
        table, f = self.table.slopes(t, z, self.inputs), self.rates(t, z)
        slopes = table[:, 1 : 2 + self._n]
        along = np.concatenate(([1.0], f))
        with np.errstate(all="ignore"):
            found = table[:, 0], slopes @ along, np.abs(slopes) @ np.abs(along), table, f
        self._seen = t, z, found
        return found

    def read(self, t: float, z: Vector) -> None:
        """Find out on which side of zero every root is; one at zero, where it is going. Shift those a hair off zero."""
        self._seen = None  # modes may have changed
        g, speed, size, table, _ = self._look(t, z)
        if not np.isfinite(g).all():
            root = self.table.roots[int(np.flatnonzero(~np.isfinite(g))[0])]
            raise SimulationError(f"{root.told} has no finite value", time=t)
        rounding = 1e-14 * (np.abs(table[:, 1] * t) + np.abs(table[:, 2 : 2 + self._n]) @ np.abs(z[: self._n]))
        hair = np.maximum(
            np.maximum(2 * NEAR * np.nan_to_num(np.abs(speed)) * so_far(t, self._start), rounding), 1e-300
        )
        for j, root in enumerate(self.table.roots):
            if abs(g[j]) > max(hair[j], self._crossed_at[j]):
                self._sides[j] = np.sign(g[j])
            elif abs(speed[j]) > _STILL * size[j]:
                self._sides[j] = np.sign(speed[j])
            else:  # of a side from which it cannot fire it may be without harm
                self._sides[j] = root.direction or self._ahead(j, t, z)
        offsets = np.where(self._sides * g < hair, g - self._sides * hair, 0.0)
        self.inputs[-len(offsets) :] = offsets
        self._offsets, self._crossed_at = offsets, np.zeros(len(g))

    def _ahead(self, j: int, t: float, z: Vector) -> float:
        """Return to which side a root goes that stands still at zero."""
        y, f = z[: self._n].copy(), self.rates(t, z)
        moving = (f != 0) & (y != 0)
        h = float(np.min(1e-3 * np.abs(y[moving] / f[moving]), initial=1e-6 * self._span))
        y += h * self.rates(t + 0.5 * h, np.concatenate((y + 0.5 * h * f, z[self._n :])))
        return 1.0 if self.table.values(t + h, y, self.inputs)[j] > 0 else -1.0

    def distances(self, t: float, z: Vector) -> list[float]:
        """Return how far, in time, each root is from where it ends a stretch."""
        g, speed, *_ = self._look(t, z)
        with np.errstate(all="ignore"):
            away = np.abs(g - self._offsets) / (np.abs(speed) + 1e-300)
        return [a if a == a else np.inf for a in away.tolist()]

    def polished(self, j: int, t: float, z: Vector, least: float, most: float) -> tuple[float, Vector]:
        """Return time and z at the crossing of root j, which an engine stopped beside by its own rounding."""
        (g, speed, size, *_), near = self._look(t, z), NEAR * so_far(t, self._start)
        if not abs(speed[j]) > _STILL * size[j] or abs(g[j]) > 1000 * near * abs(speed[j]):
            return t, z
        at = min(max(t - g[j] / speed[j], least), most)
        if abs(at - t) < 1e-3 * near:
            return t, z
        return at, z + (at - t) * np.asarray(self.all_rates(t, z), dtype=float)

    def cross(self, t: float, z: Vector, first: int | None, read_anew: Callable[[float, Vector], Any]) -> Vector:
        """Return z after all that fires at t: root `first`, and every other that crosses zero within rounding.

        read_anew : callable
            ``read_anew(t, z)`` is called after each change of the states, before rates are asked for again.
        """
        (g, speed, size, table, f), near = self._look(t, z), NEAR * so_far(t, self._start)
        crossing = (self._sides * speed < 0) & (self._sides * g <= np.abs(speed) * near)
        if first is not None:
            crossing[first] = True
        roots, n = self.table.roots, self._n
        through = np.flatnonzero(crossing).tolist()
        if not through:
            return z
        self._stops += 1
        self._at_one_time = self._at_one_time + 1 if t - self._stopped < near else 0
        self._stopped = t
        if self._stops > MOST_HITS or self._at_one_time > MOST_AT_ONE_TIME:
            names = "; ".join(self.table.roots[j].told for j in through)
            many = f"more than {MOST_HITS} crossings of roots" if self._stops > MOST_HITS else "time stands still"
            raise SimulationError(f"{many}, the last of {names}", time=t, exploded=True)
        self._crossed_at[through] = 2 * np.abs(g[through])
        S, shifts = z[n:].reshape(-1, n), {}
        for j in sorted(through, key=lambda j: (roots[j].changes[0].order, j)):
            if self._sides[j] * speed[j] > _STILL * size[j]:  # no crossing, but the error of a state at rest
                continue
            if roots[j].direction in (0, -self._sides[j]):
                if len(S) and not abs(speed[j]) > _STILL * size[j]:
                    raise SimulationError(f"{roots[j].told} only grazes zero: no sensitivities follow it", time=t)
                shifts[j] = -(S @ table[j, 2 : 2 + n] + table[j, 2 + n :]) / speed[j] if len(S) else None
        for j, shift in shifts.items():
            self._record(j, t, shift)
            z = self._settle(t, self._changed(j, t, z, shift, f))
            read_anew(t, z)
            f = self.rates(t, z)
            if shift is not None:
                z = self._settle(t, np.concatenate((z[:n], z[n:] - np.outer(shift, f).ravel())))
        return z

    def _changed(self, j: int, t: float, z: Vector, shift: Any, f: Vector) -> Vector:
        """Return z with the changes of a root made, as far as they do not hang on the rates after it."""
        n, z, root = self._n, z.copy(), self.table.roots[j]
        if shift is not None:
            z[n:] += np.outer(shift, f).ravel()

        def made(i: int, z: Vector) -> tuple[float, Any]:
            own = self.table.changes[j](t, z, self.inputs)[i]
            if not isfinite(own[0]):
                raise SimulationError(f"the value of {root.told} is not finite", time=t)
            dv = None if shift is None else z[n:].reshape(-1, n) @ own[2 : 2 + n] + own[2 + n :] + own[1] * shift
            return float(own[0]), dv

        return changed_states(z, n, list(enumerate(root.changes)), made)

    def _record(self, j: int, t: float, shift: Any) -> None:
        """Keep a hit; SimulationError where a root's hits come at ever shorter distances, which have no end."""
        self._hits.append((t, j, shift))
        lasted = so_far(t, self._start)
        last = self._last[j] = [*self._last[j][1 - _MANY :], t]
        apart = [b - a for a, b in pairwise(last[-4:])]
        shrinks = len(apart) == 3 and apart[0] > apart[1] > apart[2]
        if (shrinks and apart[2] < _ENDLESS * lasted and apart[1] < _MANY_WITHIN * lasted) or (
            len(last) == _MANY and t - last[0] < _MANY_WITHIN * lasted
        ):
            raise SimulationError(
                f"{self.table.roots[j].told} never ends: it fires at ever shorter distances, last at "
                f"{', '.join(f'{a:.12g}' for a in last[-4:])}",
                time=t,
                exploded=True,
            )
