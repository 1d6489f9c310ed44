"""The driver: one run from start to last row, cut into segments and handed to an engine piece by piece.

Everything that happens *between* smooth stretches is done here, the same for every engine: rows at given times, events,
kinks and jumps of forcings, switches. The conventions:

* the run starts at the model's first time; the row at an event time is the state before the event, as in R;
* no segment reaches over a kink or jump of a forcing, so that no solver can step over a pulse;
* a switch whose crossing time is known beforehand ends a segment; the others are watched by the engine, which comes
  back at the crossing. At both the mode flips and sensitivities get their jump (see `models.running.switches`).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import floor, isfinite
from typing import Any

import numpy as np

from fmepy.compiled.explicit_runs import CHANGES, Course, Stretch
from fmepy.errors import SimulationError
from fmepy.models.engines.base import Stepper
from fmepy.models.running.event_application import NEAR, RootRun, so_far
from fmepy.models.running.events import Event, kinds_of
from fmepy.models.running.forcings import Forcing, forcing_knots, forcing_lines, forcing_values
from fmepy.models.running.system import (
    InputLayout,
    System,
    switch_derivatives,
    switch_functions,
    system_rates,
    watched_functions,
)
from fmepy.models.running.time_switches import depends_on_parameters, planned_crossings, planned_modes
from fmepy.numerics.finite import all_finite
from fmepy.types import IntVector, Matrix, Vector

MOST_READINGS = 5
"""Of modes and algebraic states in turn, where both are read at the start of a stretch."""
JUMP = 1e-5
"""Relative change of an algebraic state at a crossing above which it has jumped."""
MOST_FLIPS = 1000
"""Crossings in one run after which it counts as sliding along a switch, which has no solution by stops."""
MANY, MANY_WITHIN = 20, 1e-6
"""So many of one switch within such a part of the run until now are enough."""
HOPELESS = 5.0
"""Times `MOST_FLIPS` that would be left of a run at its last pace: no other engine is asked then."""


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """A stretch without events, kinks or jumps.

    Attributes
    ----------
    start, end : float
    times : ndarray
        Rows in (start, end], and `end` if no row lies there.
    rows : slice
        Their places in the result.
    lines : list of float
        a and b of every forcing.
    events : tuple of int
        Events at `end`.
    flips : tuple of int
        Switches that cross at `end`.
    """

    start: float
    end: float
    times: Vector
    rows: slice
    lines: list[float]
    events: tuple[int, ...]
    flips: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Timeline:
    """Rows, forcings and events of a run.

    Attributes
    ----------
    start : float
    rows : ndarray
        Times of the rows wanted, increasing, none before `start`.
    forcings : tuple of Forcing
    event_times : ndarray
    first_events : tuple of int
        Events at the very start, which come after its row.
    n_at_start : int
        Rows at the very start: 0 or 1.
    knots : ndarray
        Where forcings have kinks or jumps.
    """

    start: float
    rows: Vector
    forcings: tuple[Forcing, ...]
    event_times: Vector
    first_events: tuple[int, ...]
    n_at_start: int
    knots: Vector

    @classmethod
    def of(cls, start: float, rows: Vector, forcings: tuple[Forcing, ...], event_times: Vector) -> Timeline:
        """Return a timeline whose events lie on the rows that they miss by rounding alone (0.7 and 7 * 0.1)."""
        events = snapped(event_times, np.append(rows, start))
        first = tuple(np.flatnonzero(events == start).tolist())
        return cls(start, rows, forcings, events, first, int(rows[0] == start), forcing_knots(forcings))

    def segments(self, crossings: Sequence[tuple[float, int]] = ()) -> tuple[Segment, ...]:
        """Return the run's segments; `crossings` are (time, switch) known beforehand."""
        last = float(self.rows[-1])
        marks = np.concatenate([self.rows, self.event_times, [self.start]])
        stops = np.concatenate([snapped(self.knots, marks), self.event_times])
        crossings = list(
            zip(snapped(np.array([t for t, _ in crossings]), marks), [i for _, i in crossings], strict=True)
        )
        stops = np.concatenate([stops, [t for t, _ in crossings]])
        inner = np.unique(stops[(stops > self.start) & (stops < last)])
        edges = [self.start, *inner.tolist(), last] if last > self.start else [self.start]
        out, row = [], self.n_at_start
        ends = np.searchsorted(self.rows, edges[1:], side="right").tolist()
        lines = forcing_lines(self.forcings, np.array(edges[:-1]), np.array(edges[1:])).tolist()
        events: dict[float, list[int]] = {}
        for i, t in enumerate(self.event_times.tolist()):
            events.setdefault(t, []).append(i)
        for k, ((a, b), end) in enumerate(zip(itertools.pairwise(edges), ends, strict=True)):
            times = self.rows[row:end]
            if not len(times) or times[-1] != b:
                times = np.append(times, b)
            here = tuple(events.get(b, ())) if b < last else ()
            flips = tuple(i for t, i in crossings if t == b)
            out.append(Segment(a, b, times, slice(row, end), lines[k], here, flips))
            row = end
        return tuple(out)


def snapped(times: Vector, marks: Vector) -> Vector:
    """Return times, moved to the mark that they miss by rounding alone: solvers refuse segments that short."""
    if not len(times) or not len(marks):
        return times
    marks = np.unique(marks)
    right = np.clip(np.searchsorted(marks, times), 1, len(marks) - 1) if len(marks) > 1 else np.zeros(len(times), int)
    nearest = np.where(np.abs(marks[right - 1] - times) < np.abs(marks[right] - times), marks[right - 1], marks[right])
    close = np.abs(nearest - times) <= 1e-13 * np.maximum(np.abs(times), marks[-1] - marks[0])
    return np.asarray(np.where(close, nearest, times))


def merged(times: Vector) -> Vector:
    """Return times, those that are one but for rounding (0.1 * 3 and 0.3) made the first of them."""
    if not len(times):
        return times
    marks = np.unique(times)
    gap = 1e-13 * np.maximum(np.abs(marks[1:]), marks[-1] - marks[0])
    return snapped(times, marks[np.concatenate([[True], np.diff(marks) > gap])])


def finite_rows(rows: Matrix, times: Vector) -> Matrix:
    """Return the rows of a run if they are finite; else raise a SimulationError with the time of the first."""
    if not all_finite(rows.ravel()):
        bad = int(np.flatnonzero(~np.isfinite(rows).all(axis=1))[0])
        raise SimulationError("a state became NaN or infinite", time=float(times[bad]))
    return rows


def run_segments(
    stepper: Stepper,
    system: System | None,
    layout: InputLayout,
    timeline: Timeline,
    segments: tuple[Segment, ...] | None,
    z: Vector,
    inputs: Vector,
    apply_events: Any,
    roots: RootRun | None = None,
) -> Matrix:
    """Return z at all rows, shape (n_row, n_z).

    Parameters
    ----------
    stepper : Stepper
    system : System or None
        None for models without equations, which have no switches.
    segments : tuple of Segment or None
        None: they depend on the parameters (planned switches) and are made here.
    z : ndarray
        Start, before the events of the first time.
    inputs : ndarray
        Parameters and scales are set; lines, modes and offsets are filled in here.
    apply_events : callable
        ``apply_events(indices, z)``.
    roots : RootRun, optional
        The root events.

    Raises
    ------
    SimulationError
        The engine failed, or a state is not finite.
    """
    out = np.empty((len(timeline.rows), len(z)))
    out[: timeline.n_at_start] = z
    if timeline.first_events:
        z = apply_events(timeline.first_events, z)
    happens = roots is not None or (system is not None and bool(system.switches))
    around = system if system is not None or roots is None else roots.table.system
    if segments is None:
        segments = timeline.segments(known_crossings(system, inputs, timeline))
    modes = None
    if happens and around is not None:
        modes = _Modes(around, inputs, timeline.start, segments, getattr(stepper, "constraints", None), roots)
    for i, segment in enumerate(segments):
        if layout.n_forcings:
            inputs[layout.lines] = segment.lines
            inputs[layout.origin] = segment.start
        if modes is None:
            _, rows = stepper.advance(segment.start, z, inputs, segment.times)
            z = rows[-1]
        else:
            modes.read(i, segment.start, z)
            rows, z = modes.advance(stepper, segment, z)
        finite_rows(rows, segment.times)
        n = segment.rows.stop - segment.rows.start
        out[segment.rows] = rows[:n]
        if segment.flips and modes is not None and i + 1 < len(segments):
            for switch in segment.flips:
                z = modes.flip(switch, segment.end, z, i + 1)
        if segment.events:
            z = apply_events(segment.events, z)
    return out


def known_crossings(system: System | None, inputs: Vector, timeline: Timeline) -> Sequence[tuple[float, int]]:
    """Return (time, switch) of the switches whose crossings are known beforehand."""
    if system is None or not system.planned:
        return ()
    p = inputs[: system.layout.n_parameters]
    return planned_crossings(system, p, timeline.start, float(timeline.rows[-1]))


def course_of(timeline: Timeline, system: System, events: Sequence[Event], p: Vector | None = None) -> Course | None:
    """Return what happens along every run, or at the parameters p; None where it depends on them and p is None."""
    if p is None and depends_on_parameters(system):
        return None
    at = np.zeros(system.layout.n_parameters) if p is None else p
    segments = timeline.segments(known_crossings(system, at, timeline))
    modes = planned_modes(system, at, [(s.start, s.end) for s in segments])
    stretches = tuple(
        Stretch(s.start, s.times, s.rows.stop - s.rows.start, [*s.lines, s.start, *m])
        for s, m in zip(segments, modes, strict=True)
    )
    table, numbers = _as_table(tuple(events))
    happening = [(-1, timeline.first_events), *((k, s.events) for k, s in enumerate(segments))]
    own = np.array([i for _, them in happening for i in them], dtype=np.intp)
    changes = np.column_stack([np.repeat([k for k, _ in happening], [len(them) for _, them in happening]), table[own]])
    order = np.lexsort([changes[:, 3], changes[:, 0]])  # stable: those of one order stay as they were given
    changes, own = changes[order], own[order]
    at_changes = forcing_values(timeline.forcings, np.array([events[i].time for i in own])).T
    given = np.column_stack([at_changes, numbers[own]])
    forced = forcing_values(timeline.forcings, timeline.rows).T
    n_parameters = system.layout.n_parameters
    return Course(timeline.start, timeline.rows, timeline.n_at_start, stretches, changes, given, forced, n_parameters)


@lru_cache(maxsize=64)
def _as_table(events: tuple[Event, ...]) -> tuple[IntVector, Vector]:
    """Return state, how, order and kind of every event, shape (n_event, 4), and its number."""
    _, kinds, numbers = kinds_of(events)
    rows = [(e.state, CHANGES[e.method], e.order, kind) for e, kind in zip(events, kinds, strict=True)]
    return np.array(rows, dtype=np.intp).reshape(-1, 4), np.array(numbers)


class _Modes:
    """The modes of a run: read at the start of every segment, changed at crossings; and its root events.

    Those of planned switches are read within a segment, where rounding cannot mislead, the others where the
    segment begins.
    """

    def __init__(
        self,
        system: System,
        inputs: Vector,
        start: float,
        segments: Sequence[Segment],
        constraints: Any,
        roots: RootRun | None,
    ) -> None:
        self.system, self.inputs, self._constraints, self.roots = system, inputs, constraints, roots
        self._start, self._end = start, segments[-1].end if segments else start
        self._at, self._offsets = system.layout.modes.start, system.layout.size
        self._planned: list[list[float]] = []
        if system.planned and segments:
            p = inputs[: system.layout.n_parameters]
            self._planned = planned_modes(system, p, [(s.start, s.end) for s in segments]).tolist()
        self._unknown: set[int] = set()
        self._flips: list[float] = []
        self._last: dict[int, list[float]] = {}  # of each switch

    @property
    def _plain(self) -> list[float]:
        """The inputs as they are, without the offsets behind them."""
        plain: list[float] = self.inputs[: self._offsets].tolist()
        return plain

    def _values(self, t: float, z: Vector) -> list[float]:
        return switch_functions(self.system)(t, z.tolist(), self._plain)

    def _f(self, t: float, z: Vector) -> Vector:
        if self._constraints is None:
            found = system_rates(self.system)(t, z.tolist(), self._plain)
        else:
            found = self._constraints.rates(t, z, self._plain)
        return np.array(found[: self.system.n_states], dtype=float)

    def _completed(self, t: float, z: Vector) -> Vector:
        """Return z with algebraic states that fulfil their equations by the present modes."""
        if self._constraints is None:
            return z
        return np.asarray(self._constraints.completed(t, z, self._plain))

    def _speeds(self, t: float, z: Vector, f: Vector) -> tuple[list[float], Matrix, Matrix]:
        """Return of all switches dg/dt along the run, dg/dy and the scaled dg/dp."""
        slopes, n = switch_derivatives(self.system)(t, z.tolist(), self._plain)[:, 1:], len(f)
        with np.errstate(all="ignore"):  # a condition may have no value where it has no say
            return (slopes[:, 0] + slopes[:, 1 : 1 + n] @ f).tolist(), slopes[:, 1 : 1 + n], slopes[:, 1 + n :]

    def read(self, segment: int, t: float, z: Vector) -> None:
        """Set every mode at the start of a segment."""
        for k, i in enumerate(self.system.planned):
            self.inputs[self._at + i] = self._planned[segment][k]
        self._read(self.system.watched, t, z)
        for _ in range(MOST_READINGS if self._constraints is not None else 0):
            z, before = self._completed(t, z), self._plain
            self._read(self.system.watched, t, z)
            if self._plain == before:
                break
        self._set_offsets(t, z)

    def _read(self, switches: Sequence[int], t: float, z: Vector) -> None:
        """Set modes from their g; where g is zero (or a whole number), from where it is going."""
        at_border = []
        values: list[float] | None = None
        for i in switches:
            values = self._values(t, z) if values is None else values
            g, is_level, before = values[i], self.system.switches[i].is_level, self.inputs[self._at + i]
            (self._unknown.discard if isfinite(g) else self._unknown.add)(i)
            if g != g:
                g = 0.0  # it has no say, or the rates have no value either
            self.inputs[self._at + i] = floor(g) if is_level and isfinite(g) else 1.0 if g > 0 else 0.0
            if i not in self._unknown and g == (self.inputs[self._at + i] if is_level else 0.0):
                at_border.append((i, is_level))
            if self.inputs[self._at + i] != before and self.system.dependents[i]:
                values = None  # those that follow hang on it
        for i, is_level in at_border:
            rises = self._speeds(t, z, self._f(t, z))[0][i]
            if is_level and rises < 0:
                self.inputs[self._at + i] -= 1.0
            elif not is_level and rises > 0:
                self.inputs[self._at + i] = 1.0

    def _set_offsets(self, t: float, z: Vector) -> None:
        """Shift what is watched a hair off zero where the run stands on one, towards the side of its mode."""
        if self.roots is not None:
            self.roots.read(t, z)
        watched = self.system.watched
        if not watched:
            return
        plain, f, moved, g = self._plain, self._f(t, z), z.copy(), watched_functions(self.system)
        later = NEAR * so_far(t, self._start)
        values, speeds = g(t, z.tolist(), plain), self._speeds(t, z, f)[0]
        moved[: len(f)] += later * f
        soon = g(t + later, moved.tolist(), plain)
        for k, i in enumerate(watched):
            changes = later * abs(speeds[i]), 2 * abs(soon[i] - values[i])  # a root begins with an infinite slope
            hair = max(min(filter(isfinite, changes), default=0.0), 1e-14)
            side = 1.0 if self.system.switches[i].is_level or self.inputs[self._at + i] == 1.0 else -1.0
            self.inputs[self._offsets + k] = values[i] - side * hair if side * values[i] < hair else 0.0

    def flip(self, i: int, t: float, z: Vector, segment: int | None = None) -> Vector:
        """Change mode i at its crossing, and those that hang on it, and give the sensitivities their jump.

        segment : int, optional
            The next one, if the crossing was planned.
        """
        n, switch, system = self.system.n_states, self.system.switches[i], self.system
        before = self._f(t, z)
        speed, g_y, g_p = (of_all[i] for of_all in self._speeds(t, z, before))
        if segment is None:
            mode = self.inputs[self._at + i]
            self.inputs[self._at + i] = mode + (1.0 if speed > 0 else -1.0) if switch.is_level else 1.0 - mode
        for j, value in zip(system.planned, self._planned[segment] if segment is not None else (), strict=False):
            if j == i or j in system.dependents[i]:
                self.inputs[self._at + j] = value
        self._read([j for j in system.watched if j != i and (j in system.dependents[i] or j in self._unknown)], t, z)
        after = z if self._constraints is None else self._jumped(i, t, z)
        if len(z) > n and speed != 0:
            with np.errstate(all="ignore"):
                S, jump = z[n:].reshape(-1, n), before - self._f(t, after)
                shift = -(S @ g_y + g_p) / speed
                after = np.concatenate((after[:n], (S + shift[:, None] * jump).ravel()))
        return after

    def _jumped(self, i: int, t: float, z: Vector) -> Vector:
        """Return z behind switch i, where algebraic states may have jumped, and other conditions of them with these."""
        system, n = self.system, self.system.n_states
        w = {system.z[k] for k in system.algebraic}
        others = [j for j in system.watched if j != i and system.switches[j].g.free_symbols & w]
        after = self._completed(t, z)
        for _ in range(MOST_READINGS):
            if (np.abs(after - z)[:n] <= JUMP * (np.abs(after) + np.abs(z))[:n]).all():
                break
            self._read(others, t, after)
            z, after = after, self._completed(t, after)
        return after

    def advance(self, stepper: Stepper, segment: Segment, z: Vector) -> tuple[Matrix, Vector]:
        """Return the rows of a segment, and z after its end: carried through the crossings in it."""
        times, start, roots = segment.times, segment.start, self.roots
        out = np.empty((len(times), len(z)))
        done = 0
        while done < len(times):
            reached, rows = stepper.advance(start, z, self.inputs, times[done:])
            early = stepper.watches_switches and (len(rows) < len(times) - done or reached[-1] < times[-1])
            n = len(rows) - 1 if early else len(rows)
            out[done : done + n] = rows[:n]
            done, z, start = done + n, rows[-1], float(reached[-1]) if early else segment.end
            if not early and roots is None:
                break
            if not np.isfinite(z).all():
                raise SimulationError("a state became NaN or infinite", time=start)
            fired = self._fired(start, z) if early else -1
            if roots is None:
                z = self._flipped(fired, start, z)
            else:
                k = fired - len(self.system.watched)
                if early and k >= 0:
                    least, most = (times[done - 1] if done else segment.start), times[min(done, len(times) - 1)]
                    start, z = roots.polished(k, start, z, least, most)
                near = NEAR * so_far(start, self._start)
                while done < len(times) and times[done] <= start + near:  # the state before the hit
                    out[done] = z
                    done += 1
                before = z
                z = roots.cross(start, z, k if early and k >= 0 else None, self._read_watched)
                if z is not before and roots.table.conditional:  # these show the state after it
                    out[:done][times[:done] >= start - near] = z
                if early and k < 0 and z is before:
                    z = self._flipped(fired, start, z)
            self._set_offsets(start, z)
        return out, z

    def _read_watched(self, t: float, z: Vector) -> None:
        """Read the modes of what is watched anew, after a jump of the states."""
        self._read(self.system.watched, t, z)

    def _flipped(self, k: int, t: float, z: Vector) -> Vector:
        """Return z after the k-th watched switch has crossed; SimulationError where that has no end."""
        self._flips.append(t)
        own = self._last[k] = [*self._last.get(k, [])[1 - MANY :], t]
        is_sliding = len(own) == MANY and t - own[0] < MANY_WITHIN * so_far(t, self._start)
        if is_sliding or len(self._flips) > MOST_FLIPS:
            switch = self.system.switches[self.system.watched[k]]
            told = f"floor({switch.g})" if switch.is_level else f"{switch.g} > 0"
            many = f"crossed {told} again and again at once" if is_sliding else f"crossed switches {MOST_FLIPS} times"
            is_hopeless = self._end - t > HOPELESS * (t - self._flips[0])
            raise SimulationError(
                f"the run {many}: it slides along it, which has no solution by stops",
                time=t,
                exploded=is_sliding or is_hopeless,
            )
        return self.flip(self.system.watched[k], t, z)

    def _fired(self, t: float, z: Vector) -> int:
        """Return which of the watched is nearest to its crossing, in time: a switch, or behind them a root."""
        away: list[float] = []
        if self.system.watched:
            values = watched_functions(self.system)(t, z.tolist(), self._plain)
            speeds = self._speeds(t, z, self._f(t, z))[0]
            for k, i in enumerate(self.system.watched):
                speed = abs(speeds[i]) + 1e-300
                apart = abs(values[i] - float(self.inputs[self._offsets + k])) / speed
                away.append(apart if apart == apart else np.inf)
        if self.roots is not None:
            away += self.roots.distances(t, z)
        return min(range(len(away)), key=away.__getitem__)
