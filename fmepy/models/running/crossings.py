"""Crossings along a run: conditions of the states that change the rates, and root events, which change states.

Engines that watch (`models.engines.base`, 3.) stop where something crosses zero. If it is a condition, its *mode* flips
(see `models.running.switches`); if it is a root, it fires, and the states become h. The time t* of either depends on
the parameters, and sensitivities jump, with the rates f- and f+ before and after (h = y at a condition; the saltation
condition, Hairer, Norsett and Wanner, Solving Ordinary Differential Equations I, section I.14)::

    dt*/dp = -(g_y S- + g_p) / (g_t + g_y f-)
    S+     = h_y (S- + f- dt*/dp) + h_p + h_t dt*/dp - f+ dt*/dp

Roots that cross at the same time fire in the order of their changes, then of their rows; each sees the states that the
one before left. Those with a condition ``when`` also fire if another one makes it hold (`models.running.events`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import floor, isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from fmepy.compiled.root_events import ENDLESS, MANY, MANY_WITHIN, MOST_HITS, PACE, SLOW, STILL, TURN
from fmepy.compiled.switching import FAR, MOST_FLIPS
from fmepy.errors import EndedRunError, SimulationError
from fmepy.models.running.events import Root, Settle, changed_states
from fmepy.models.running.time_switches import planned_modes
from fmepy.models.running.watch_table import NEAR, WatchTable
from fmepy.types import Matrix, Vector

if TYPE_CHECKING:
    from fmepy.models.engines.base import Stepper
    from fmepy.models.running.timeline import Segment, Timeline

MOST_READINGS = 5
"""Alternating updates of modes and algebraic states at the start of a segment."""
JUMP = 1e-5
"""Relative change of an algebraic state at a crossing above which it has jumped."""
MOST_AT_ONE_TIME = 100
"""Successive crossings at the same time."""

Rates = Callable[[float, Vector], Any]
Hit = tuple[float, int, Any]
"""Time, position of the root, derivatives of the time to the parameters of the sensitivities (or None)."""


def elapsed(t: float, start: float) -> float:
    r"""Return how long a run has lasted at t, at least 1e-4 \|t\|: times are near relative to it.

    Examples
    --------
    >>> elapsed(3.0, 1.0), elapsed(100.0, 100.0)
    (2.0, 0.01)
    """
    return max(t - start, 1e-4 * abs(t))


def hits_before(times: Vector, hits: Sequence[Hit], roots: Sequence[Root], start: float) -> Matrix:
    """Return how many hits of each root come before each row, shape (n_time, n_root)."""
    out = np.zeros((len(times), len(roots)))
    for t, j, _ in hits:
        is_seen_at_once = roots[j].when is not None and roots[j].strict is False
        out[:, j] += times > t + (-1.0 if is_seen_at_once else 1.0) * NEAR * elapsed(t, start)
    return out


class Crossings:
    """The conditions and the root events of one run.

    Modes of planned switches are evaluated inside a segment, where rounding cannot mislead, the others at its start.

    Parameters
    ----------
    table : WatchTable
    inputs : ndarray
        Inputs of the run, followed by the offsets of what is watched.
    rates : callable
        ``rates(t, z)`` of all z, at the present values of the inputs.
    line : Timeline
    hits : list of Hit, optional
        Hits are appended to it.
    settle : callable, optional
        ``settle(t, z)`` makes algebraic states consistent after a change.
    constraints : Constraints, optional
        The algebraic equations, at the modes of the run.
    """

    def __init__(
        self,
        table: WatchTable,
        inputs: Vector,
        rates: Rates,
        line: Timeline,
        *,
        hits: list[Hit] | None = None,
        settle: Settle | None = None,
        constraints: Any = None,
    ) -> None:
        self.table, self.system, self.inputs, self._all_rates = table, table.system, inputs, rates
        self._hits, self._constraints = [] if hits is None else hits, constraints
        self._settle: Settle = settle if settle is not None else lambda t, z: z
        self._start, self._end = line.start, float(line.rows[-1])
        layout, self._n = self.system.layout, self.system.n_states
        self._at, self._size, self._offsets = layout.modes.start, layout.size, inputs[layout.size :]
        self._planned: list[list[float]] = []
        self._unknown: set[int] = set()
        self._flips: list[float] = []
        self._last: dict[int, list[float]] = {}  # times of what is watched
        self._sides = np.zeros(len(table.roots))
        self._crossed_at = np.zeros(len(table.roots))  # distance from zero at a crossing, by the engine's error
        self._touching: set[int] = set()
        self._fastest = np.zeros(len(table.roots))  # largest speed of each root at any stop
        self._stops = self._at_one_time = 0
        self._stopped, self._paced, self.is_seen_at_once = -np.inf, -np.inf, False
        self._cached: tuple[float, Vector, tuple[Vector, Vector, Vector]] | None = None

    def begin(self, segments: Sequence[Segment]) -> None:
        """Find the modes of the planned switches in every segment."""
        if self.system.planned and segments:
            p = self.inputs[: self.system.layout.n_parameters]
            self._planned = planned_modes(self.system, p, [(s.start, s.end) for s in segments]).tolist()

    # --- values along the run

    @property
    def _input_values(self) -> list[float]:
        """The inputs without the offsets that follow them."""
        values: list[float] = self.inputs[: self._size].tolist()
        return values

    def rates(self, t: float, z: Vector) -> Vector:
        """Return the rates of the states."""
        if self.table.is_large and self._constraints is None:
            return np.asarray(self.table.rates(t, z, self.inputs))
        with np.errstate(all="ignore"):
            return np.array(self._all_rates(t, z), dtype=float)[: self._n]

    def _completed(self, t: float, z: Vector) -> Vector:
        """Return z with algebraic states that fulfil their equations at the present modes."""
        return z if self._constraints is None else np.asarray(self._constraints.completed(t, z, self._input_values))

    def _speeds_at(self, t: float, z: Vector) -> tuple[Vector, Vector, Vector]:
        """Return g and its speed along the run, of all switches and then of the roots, and the rates.

        The last values are cached, since they are read several times at a stop before anything changes.
        """
        if self._cached is not None and self._cached[0] == t and self._cached[1] is z:
            return self._cached[2]
        f = self.rates(t, z)
        g, speeds = self._along(t, z, 1.0, f, np.zeros(len(self.system.names)))
        self._cached = t, z, (g, speeds, f)
        return self._cached[2]

    def _along(self, t: float, z: Vector, *way: Any) -> Matrix:
        with np.errstate(all="ignore"):  # a condition may have no value where it has no effect
            return np.array(self.table.along(t, z, self.inputs, np.hstack(way))).reshape(2, -1)

    def _roots_at(self, t: float, z: Vector) -> tuple[Vector, Vector, Vector, Matrix, Vector]:
        """Return of the roots g, its speed, the sum of the sizes of its terms, and the slopes; and the rates."""
        (g, speeds, f), k = self._speeds_at(t, z), len(self.system.switches)
        table = self.table.slopes(t, z, self.inputs)
        with np.errstate(all="ignore"):
            size = np.abs(table[:, 1 : 2 + self._n]) @ np.abs(np.concatenate(([1.0], f)))
        return g[k:], speeds[k:], size, table, f

    def fired(self, t: float, z: Vector) -> int:
        """Return which of the watched switches, then roots, has crossed: the one nearest in time to its crossing.

        One that only touches zero there may be nearer, but is still on its side.
        """
        if self.system.n_watched == 1:
            return 0
        speeds, watched, k = self._speeds_at(t, z)[1], list(self.system.watched), len(self.system.switches)
        own = np.concatenate([speeds[watched], speeds[k:]])
        is_above = self.system.are_levels | (self.inputs[[self._at + i for i in watched]] == 1.0)
        sides = np.concatenate([np.where(is_above, 1.0, -1.0), self._sides])
        with np.errstate(all="ignore"):
            ahead = sides * (self.table.values(t, z, self.inputs) - self._offsets)
            away = np.abs(ahead) / (np.abs(own) + 1e-300)
        away[np.isnan(away)] = np.inf
        return int(np.argmin(np.where(ahead <= 0, away, np.inf) if (ahead <= 0).any() else away))

    def _note_crossing(self, k: int, t: float) -> tuple[list[float], bool]:
        """Record the time of a crossing; return its last ones, and whether they are too many within a short time."""
        own = self._last[k] = [*self._last.get(k, [])[1 - MANY :], t]
        return own, len(own) == MANY and t - own[0] < MANY_WITHIN * elapsed(t, self._start)

    def advance(self, stepper: Stepper, segment: Segment, z: Vector) -> tuple[Matrix, Vector]:
        """Return the rows of a segment and z after its end, through all crossings in it."""
        times, start, has_roots = segment.times, segment.start, len(self.table.roots) > 0
        out = np.empty((len(times), len(z)))
        done, n_watched = 0, len(self.system.watched)
        while done < len(times):
            reached, rows = stepper.advance(start, z, self.inputs, times[done:])
            early = stepper.watches_switches and (len(rows) < len(times) - done or reached[-1] < times[-1])
            n = len(rows) - 1 if early else len(rows)
            out[done : done + n] = rows[:n]
            done, z, start = done + n, rows[-1], float(reached[-1]) if early else segment.end
            if not early and not has_roots:
                break
            if not np.isfinite(z).all():
                raise SimulationError("a state became NaN or infinite", time=start)
            fired = self.fired(start, z) if early else -1
            root = fired - n_watched if early else -1
            if root >= 0:
                least, most = (times[done - 1] if done else segment.start), times[min(done, len(times) - 1)]
                start, z = self._refined(root, start, z, least, most)
            near = NEAR * elapsed(start, self._start)
            is_exact = has_roots or self.system.are_of_time[self.system.watched[fired]]
            while is_exact and done < len(times) and times[done] <= start + near:  # the state before the hit
                out[done] = z
                done += 1
            before = z
            try:
                z = self.cross(start, z, root if root >= 0 else None) if has_roots else z
            except EndedRunError as ended:
                ended.rows = np.vstack((out[:done], before))
                raise
            if z is not before and self.is_seen_at_once:  # these rows show the state after the hit
                out[:done][times[:done] >= start - near] = z
            if early and root < 0 and z is before:
                self._note_flip(fired, start)
                speed = float(self._speeds_at(start, z)[1][self.system.watched[fired]])
                z = self.flip(self.system.watched[fired], start, z)
                self._check_direction(fired, start, z, speed)
            self._set_offsets(start, z)
        return out, z

    def _set_offsets(self, t: float, z: Vector) -> None:
        """Set offsets that move values at zero a hair away from it, towards the side of their mode."""
        if self.table.roots:
            self.read_sides(t, z)
        watched = self.system.watched
        if not watched:
            return
        later, (_, speeds, f), moved = NEAR * elapsed(t, self._start), self._speeds_at(t, z), z.copy()
        moved[: len(f)] += later * f
        m = len(watched)
        values = np.array(self.table.values(t, z, self.inputs))[:m]
        moves = 2 * np.abs(np.array(self.table.values(t + later, moved, self.inputs))[:m] - values)
        changes = np.array([later * np.abs(speeds[list(watched)]), moves])  # sqrt has an infinite slope at 0
        hair = np.min(changes, axis=0, initial=np.inf, where=np.isfinite(changes))
        hair = np.maximum(np.where(np.isinf(hair), 0.0, hair), 1e-14)
        modes = self.inputs[[self._at + i for i in watched]]
        side = np.where(self.system.are_levels | (modes == 1.0), 1.0, -1.0)
        self._offsets[:m] = np.where(side * values < hair, values - side * hair, 0.0)

    # --- conditions

    def _set_mode(self, i: int, mode: float) -> None:
        self.inputs[self._at + i], self._cached = mode, None

    def read(self, segment: int, t: float, z: Vector) -> None:
        """Set every mode at the start of a segment."""
        self._cached = None  # the lines of the forcings have changed
        for k, i in enumerate(self.system.planned):
            self._set_mode(i, self._planned[segment][k])
        self._update_modes(self.system.read_again if segment else self.system.watched, t, z)
        for _ in range(MOST_READINGS if self._constraints is not None else 0):
            z, before = self._completed(t, z), self._input_values
            self._update_modes(self.system.watched, t, z)
            if self._input_values == before:
                break
        self._set_offsets(t, z)

    def _update_modes(self, switches: Sequence[int], t: float, z: Vector, known: Any = None) -> None:
        """Set modes by their g, inner ones first; if g is zero (or a whole number), by its direction.

        known : sequence of float, optional
            Values of g of all switches; where g has not changed, the mode stays.
        """
        if not self._modes_of_g(switches, t, z, known):
            return
        for i in switches:
            g = float(self.table.conditions(t, z, self.inputs)[i])
            mode = self._border(i, g)
            if mode is None or (known is not None and g == known[i]):
                continue
            rises, is_level = self._speeds_at(t, z)[1][i], self.system.switches[i].is_level
            mode = mode - 1.0 if is_level and rises < 0 else 1.0 if not is_level and rises > 0 else mode
            if mode != self.inputs[self._at + i]:  # other directions may depend on it
                self._set_mode(i, mode)
                self._modes_of_g([j for j in self.system.dependents[i] if j not in self.system.planned], t, z, known)

    def _border(self, i: int, g: float) -> float | None:
        """Return the mode of a switch exactly at its border, as if it stayed there; None for any other."""
        if not self.system.switches[i].is_level:
            return 0.0 if g == 0.0 else None
        return g if isfinite(g) and g == floor(g) else None

    def _modes_of_g(self, switches: Sequence[int], t: float, z: Vector, known: Any = None) -> bool:
        """Set modes by their g, as if a g at its border stayed there; tell whether there is any."""
        is_any_at_border, values = False, None
        for i in switches:
            values = self.table.conditions(t, z, self.inputs) if values is None else values
            g, before = values[i], self.inputs[self._at + i]
            if known is not None and g == known[i]:
                continue
            (self._unknown.discard if isfinite(g) else self._unknown.add)(i)
            if g != g:
                g = 0.0  # it has no effect, or the rates have no value either
            elif self._border(i, g) is not None:
                is_any_at_border = True
            self._set_mode(i, floor(g) if self.system.switches[i].is_level and isfinite(g) else 1.0 if g > 0 else 0.0)
            if self.inputs[self._at + i] != before and self.system.dependents[i]:
                values = None  # later ones depend on it
        return is_any_at_border

    def flip(self, i: int, t: float, z: Vector, segment: int | None = None) -> Vector:
        """Return z after the crossing of switch i: its mode and those that depend on it change, sensitivities jump.

        segment : int, optional
            The next segment, if the crossing was planned.
        """
        n, switch, system = self._n, self.system.switches[i], self.system
        _, speeds, before = self._speeds_at(t, z)
        speed, S, k = speeds[i], z[n:].reshape(-1, n), self.inputs[system.layout.scales]
        moved = np.array([self._along(t, z, 0.0, s, k * (np.arange(len(k)) == j))[1] for j, s in enumerate(S)])
        moved = moved.reshape(len(S), len(speeds))
        simultaneous: list[int] = []
        if segment is None:
            mode = self.inputs[self._at + i]
            self._set_mode(i, mode + (1.0 if speed > 0 else -1.0) if switch.is_level else 1.0 - mode)
            g = self.table.conditions(t, z, self.inputs)
            simultaneous = [
                j for j in system.watched
                if j != i and not (switch.is_level or system.switches[j].is_level) and abs(g[j]) == abs(g[i]) < np.inf
                and abs(speeds[j]) == abs(speed) > 0 and j not in system.dependents[i]
                and (np.abs(moved[:, j]) == np.abs(moved[:, i])).all()  # else it crosses by itself
            ]  # fmt: skip
        for j in simultaneous:  # x > 0 and 0 > x cross together: no time passes between them
            self._set_mode(j, 1.0 if speeds[j] > 0 else 0.0)
        for j, value in zip(system.planned, self._planned[segment] if segment is not None else (), strict=False):
            if j == i or j in system.dependents[i]:
                self._set_mode(j, value)
        dependents = self._unknown.union(*(system.dependents[j] for j in (i, *simultaneous)))
        dependents.difference_update([i, *simultaneous, *system.planned])
        self._update_modes(sorted(dependents), t, z)
        after = z if self._constraints is None else self._jumped(i, t, z)
        if len(S) and speed != 0:
            with np.errstate(all="ignore"):
                jump = before - self.rates(t, after)
                after = np.concatenate((after[:n], (S - np.outer(moved[:, i], jump) / speed).ravel()))
        return after

    def _jumped(self, i: int, t: float, z: Vector) -> Vector:
        """Return z after switch i: algebraic states may jump, and with them other conditions that read them."""
        system, n = self.system, self.system.n_states
        w = {system.z[k] for k in system.algebraic}
        others = [j for j in system.watched if j != i and system.switches[j].g.free_symbols & w]
        after = self._completed(t, z)
        for _ in range(MOST_READINGS):
            if (np.abs(after - z)[:n] <= JUMP * (np.abs(after) + np.abs(z))[:n]).all():
                break
            self._update_modes(others, t, after)
            z, after = after, self._completed(t, after)
        return after

    def _note_flip(self, k: int, t: float) -> None:
        """Record a crossing of the k-th watched switch; SimulationError if it crosses without end."""
        self._flips.append(t)
        _, is_sliding = self._note_crossing(k, t)
        if is_sliding:
            raise self._sliding(k, t)
        if (n := len(self._flips)) % PACE == 0:
            lasted = t - self._flips[-PACE]
            if n + PACE * (self._end - t) / max(lasted, 1e-300) > MOST_FLIPS:
                raise SimulationError(
                    f"the run crossed switches {PACE} times within {lasted:.3g} of time: it slides along one, or "
                    f"swings about it so often that there would be more than {MOST_FLIPS:,} stops",
                    time=t,
                    exploded=True,
                )

    def _sliding(self, k: int, t: float) -> SimulationError:
        switch = self.system.switches[self.system.watched[k]]
        condition = f"floor({switch.g})" if switch.is_level else f"{switch.g} > 0"
        message = f"the run crossed {condition} again and again: it slides along it, which a run cannot follow by stops"
        return SimulationError(message, time=t, exploded=True)

    def _check_direction(self, k: int, t: float, z: Vector, speed: float) -> None:
        """Refuse a run that slides along the k-th watched switch: large rates after the crossing lead back.

        speed : the speed of g before the crossing
        """
        i, later = self.system.watched[k], NEAR * elapsed(t, self._start)
        _, speeds, f = self._speeds_at(t, z)
        side = 1.0 if self.inputs[self._at + i] == 1.0 else -1.0
        is_far = (later * np.abs(f) > FAR * np.abs(z[: len(f)])).any()
        if not self.system.are_levels[k] and side * speed > 0 > side * speeds[i] and is_far:
            raise self._sliding(k, t)

    # --- root events

    def read_sides(self, t: float, z: Vector) -> None:
        """Set the side of zero of every root, by its direction if it is at zero; offsets move the latter off zero."""
        self._cached = None  # modes may have changed
        g, speed, size, table, _ = self._roots_at(t, z)
        if not np.isfinite(g).all():
            root = self.table.roots[int(np.flatnonzero(~np.isfinite(g))[0])]
            raise SimulationError(f"{root.label} has no finite value", time=t)
        self._fastest = np.fmax(self._fastest, np.abs(speed))
        rounding = 1e-14 * (np.abs(table[:, 1] * t) + np.abs(table[:, 2 : 2 + self._n]) @ np.abs(z[: self._n]))
        hair = np.maximum(
            np.maximum(2 * NEAR * np.nan_to_num(np.abs(speed)) * elapsed(t, self._start), rounding), 1e-300
        )
        for j, root in enumerate(self.table.roots):
            if j in self._touching:
                continue
            if abs(g[j]) > max(hair[j], self._crossed_at[j]):
                self._sides[j] = np.sign(g[j])
            elif abs(speed[j]) > STILL * size[j]:
                self._sides[j] = np.sign(speed[j])
            elif root.when is not None:  # at its border the condition holds or does not
                holds = self.table.holding(t, z, self.inputs)[self.table.conditional.index(j)]
                self._sides[j] = 1.0 if holds > 0.5 else -1.0
            else:  # a side from which it cannot fire does no harm
                self._sides[j] = root.direction or self._ahead(j, t, z)
        offsets = np.where(self._sides * g < hair, g - self._sides * hair, 0.0)
        self._offsets[len(self.system.watched) :], self._crossed_at = offsets, np.zeros(len(g))
        self._touching = set()

    def set_sides(self, before: Vector) -> None:
        """Set the side of every root by its value before a crossing, since events may have moved it across zero."""
        self._sides = np.where(before > 0, 1.0, np.where(before < 0, -1.0, self._sides))

    def _ahead(self, j: int, t: float, z: Vector) -> float:
        """Return the side to which a root goes that is at zero with speed zero."""
        y, f = z[: self._n].copy(), self.rates(t, z)
        moving = (f != 0) & (y != 0)
        h = float(np.min(1e-3 * np.abs(y[moving] / f[moving]), initial=1e-6 * (self._end - self._start)))
        y += h * self.rates(t + 0.5 * h, np.concatenate((y + 0.5 * h * f, z[self._n :])))
        return 1.0 if self.table.values(t + h, y, self.inputs)[len(self.system.watched) + j] > 0 else -1.0

    def _turns(self, j: int, t: float, z: Vector, f: Vector, speed: float) -> bool:
        """Tell whether a root only touches zero: carried across it by rounding, it turns back at once."""
        h = TURN * elapsed(t, self._start)
        later = self._speeds_at(t + h, np.concatenate((z[: self._n] + h * f, z[self._n :])))[1][
            len(self.system.switches) + j
        ]
        self._cached = None
        return bool(later * speed < 0 and abs(later) > SLOW * abs(speed))

    def _set_speeds(
        self, t: float, z: Vector, f: Vector, speed: Vector, size: Vector, table: Matrix, g: Vector
    ) -> None:
        """Set the speeds before t of roots at rest on zero, which another part of their condition holds there."""
        still = [j for j in self.table.conditional if not abs(speed[j]) > STILL * size[j]]
        if any(abs(g[j]) <= NEAR * elapsed(t, self._start) * self._fastest[j] for j in still):
            h = TURN * elapsed(t, self._start)
            before = self._roots_at(t - h, np.concatenate((z[: self._n] - h * f, z[self._n :])))
            speed[still], size[still], table[still] = (v[still] for v in before[1:4])
            self._cached = None

    def _only_touching(self, through: Sequence[int], t: float, z: Vector, f: Vector, speed: Vector) -> set[int]:
        """Return the roots that touch zero while another part of their condition keeps it unchanged."""
        own = {j for j in through if self.table.roots[j].when is not None}
        if not own:
            return own
        h, k = TURN * elapsed(t, self._start), len(self.system.switches)
        later = np.concatenate((z[: self._n] + h * f, z[self._n :]))
        held = dict(zip(self.table.conditional, self.table.holding(t + h, later, self.inputs), strict=True))
        ahead, self._cached = self._speeds_at(t + h, later)[1][k:], None
        stands = np.abs(ahead) * SLOW < np.abs(speed)
        return {j for j in own if (held[j] > 0.5 if self._sides[j] > 0 else held[j] < 0.5 and stands[j])}

    def _refined(self, j: int, t: float, z: Vector, least: float, most: float) -> tuple[float, Vector]:
        """Return time and z at the crossing of root j, one Newton step from where the engine stopped."""
        (g, speed, size, *_), near = self._roots_at(t, z), NEAR * elapsed(t, self._start)
        if not abs(speed[j]) > STILL * size[j] or abs(g[j]) > 1000 * near * abs(speed[j]):
            return t, z
        at = min(max(t - g[j] / speed[j], least), most)
        if abs(at - t) < 1e-3 * near:
            return t, z
        return at, z + (at - t) * np.asarray(self._all_rates(t, z), dtype=float)

    def cross(self, t: float, z: Vector, first: int | None) -> Vector:
        """Return z after all roots that fire at t: `first`, and every other that crosses zero within rounding."""
        (g, speed, size, table, f), near = self._roots_at(t, z), NEAR * elapsed(t, self._start)
        self._set_speeds(t, z, f, speed, size, table, g)
        crossing = (self._sides * speed < 0) & (self._sides * g <= np.abs(speed) * near)
        if first is not None:
            crossing[first] = True
        roots, n = self.table.roots, self._n
        through = np.flatnonzero(crossing).tolist()
        if not through:
            return z
        self._at_one_time = self._at_one_time + 1 if t - self._stopped < near else 0
        self._stopped = t
        if self._at_one_time > MOST_AT_ONE_TIME or self._are_endless(t):
            names = "; ".join(self.table.roots[j].label for j in through)
            reason = f"there would be more than {MOST_HITS:,} crossings of roots"
            is_still = self._at_one_time > MOST_AT_ONE_TIME  # maybe by the solver's error alone: another may pass
            reason = "time stands still" if is_still else reason
            raise SimulationError(f"{reason}, the last of {names}", time=t, exploded=not is_still)
        slow = np.abs(speed) * SLOW < self._fastest  # slower than crossings are
        self._touching = {j for j in through if slow[j] and self._turns(j, t, z, f, speed[j])}
        self._touching |= self._only_touching(through, t, z, f, speed)
        if not (through := [j for j in through if j not in self._touching]):
            return z
        self._crossed_at[through] = 2 * np.abs(g[through])
        S, shifts = z[n:].reshape(-1, n), {}
        for j in sorted(through, key=lambda j: (roots[j].order, j)):
            if self._sides[j] * speed[j] > STILL * size[j]:  # not a crossing but the error of a state at rest
                continue
            if roots[j].direction in (0, -self._sides[j]):
                if len(S) and not abs(speed[j]) > STILL * size[j]:
                    raise SimulationError(f"{roots[j].label} only grazes zero: there are no sensitivities", time=t)
                shifts[j] = -(S @ table[j, 2 : 2 + n] + table[j, 2 + n :]) / speed[j] if len(S) else None
        self.is_seen_at_once = False
        if self.table.conditional:
            strict = self.table.strict(t, z, self.inputs)
            self.is_seen_at_once = any(roots[j].when is not None and strict[j] < 0.5 for j in shifts)
            return self._fire_waiting(t, z, shifts, f, through)
        for j, shift in shifts.items():
            z, f = self._fire(j, t, z, shift, f)
        return z

    def _fire(self, j: int, t: float, z: Vector, shift: Any, f: Vector, origin: Any = None) -> tuple[Vector, Vector]:
        """Return z after root j has fired, and the rates there; conditions that it has not moved keep their modes."""
        self._record(j, t, shift)
        before = self.table.conditions(t, z, self.inputs)
        z = self._settle(t, self._apply_changes(j, t, z, shift, f, origin))
        self._update_modes(self.system.watched, t, z, before)
        f = self.rates(t, z)
        if shift is not None:
            z = self._settle(t, np.concatenate((z[: self._n], z[self._n :] - np.outer(shift, f).ravel())))
        return z, f

    def _are_endless(self, t: float) -> bool:
        """Count a stop; tell whether there would be too many by the end at the present pace."""
        n, self._stops = self._stops, self._stops + 1
        if n % PACE:
            return False
        lasted, self._paced = max(t - self._paced, 1e-300), t
        return n > 0 and n + PACE * (self._end - t) / lasted > MOST_HITS

    def _fire_waiting(self, t: float, z: Vector, shifts: dict[int, Any], f: Vector, through: Sequence[int]) -> Vector:
        """Return z after the roots that cross, and after all whose conditions start to hold because of them."""
        roots, conditional, n_watched = self.table.roots, self.table.conditional, len(self.system.watched)

        def holding(z: Vector) -> dict[int, bool]:
            return {j: v > 0.5 for j, v in zip(conditional, self.table.holding(t, z, self.inputs), strict=True)}

        held = holding(z) | {j: bool(self._sides[j] < 0) for j in through if roots[j].when is not None}
        waiting = [(j, shift, (z, f)) for j, shift in shifts.items()]
        while waiting:
            ranks = self.table.priorities(t, z, self.inputs)
            waiting.sort(key=lambda one: (roots[one[0]].order, -ranks[one[0]]))
            j, shift, origin = waiting.pop(0)
            if not (roots[j].persistent or held.get(j, True)):
                continue
            g = self.table.values(t, z, self.inputs)[n_watched:]
            z, f = self._fire(j, t, z, shift, f, origin if roots[j].early else None)
            after, now = self.table.values(t, z, self.inputs)[n_watched:], holding(z)
            now |= {k: held[k] for k in through if k in now and after[k] == g[k]}  # still at zero, as before
            waiting += [(k, shift, (z, f)) for k in conditional if now[k] and not held[k]]
            held = now
        return z

    def _apply_changes(self, j: int, t: float, z: Vector, shift: Any, f: Vector, origin: Any = None) -> Vector:
        """Return z after the changes of a root, without the terms that depend on the rates after it.

        origin : (ndarray, ndarray), optional
            Another z, and its rates, from which the values are computed.
        """
        n, z, root = self._n, z.copy(), self.table.roots[j]
        z_values = None if origin is None else origin[0].copy()
        if shift is not None:
            z[n:] += np.outer(shift, f).ravel()
            if z_values is not None:
                z_values[n:] += np.outer(shift, origin[1]).ravel()

        def value_of(i: int, z: Vector) -> tuple[float, Any]:
            z = z if z_values is None else z_values
            own = self.table.changes[j](t, z, self.inputs)[i]
            if not isfinite(own[0]):
                raise SimulationError(f"the value of {root.label} is not finite", time=t)
            dv = None if shift is None else z[n:].reshape(-1, n) @ own[2 : 2 + n] + own[2 + n :] + own[1] * shift
            return float(own[0]), dv

        return changed_states(z, n, list(enumerate(root.changes)), value_of)

    def _record(self, j: int, t: float, shift: Any) -> None:
        """Record a hit; SimulationError if it is terminal before the last row, or if hits accumulate at a time."""
        self._hits.append((t, j, shift))
        lasted = elapsed(t, self._start)
        if self.table.roots[j].terminal and t < self._end - NEAR * lasted:
            raise EndedRunError(
                f"{self.table.roots[j].label} is terminal, but rows are wanted up to time {self._end:.6g}",
                time=t,
                exploded=True,
            )
        last, is_too_many = self._note_crossing(len(self.system.watched) + j, t)
        gaps = [b - a for a, b in pairwise(last[-4:])]
        shrinks = len(gaps) == 3 and gaps[0] > gaps[1] > gaps[2]
        if is_too_many or (shrinks and gaps[2] < ENDLESS * lasted and gaps[1] < MANY_WITHIN * lasted):
            raise SimulationError(
                f"{self.table.roots[j].label} never stops firing: its hits come ever closer, the last at "
                f"{', '.join(f'{a:.12g}' for a in last[-4:])}",
                time=t,
                exploded=True,
            )
