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
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from fmepy.compiled.explicit_runs import CHANGES, Course, Stretch
from fmepy.errors import EndedRunError, SimulationError
from fmepy.models.engines.base import Stepper
from fmepy.models.running.crossings import Crossings
from fmepy.models.running.events import Event, kinds_of
from fmepy.models.running.forcings import Forcing, forcing_knots, forcing_lines, forcing_values
from fmepy.models.running.system import InputLayout, System, system_rates
from fmepy.models.running.time_switches import planned_crossings, planned_modes, plans_depend_on_parameters
from fmepy.models.running.watch_table import watch_table
from fmepy.numerics.finite import all_finite
from fmepy.types import IntVector, Matrix, Vector


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
        return cls(
            start, rows, forcings, events, first, int(rows[0] == start), forcing_knots(forcings, start, float(rows[-1]))
        )

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
        out, row, stops = [], self.n_at_start, np.array(edges[1:])
        ends = np.searchsorted(self.rows, stops, side="right").tolist()
        lines = forcing_lines(self.forcings, np.array(edges[:-1]), stops).tolist()
        events, flips = defaultdict[float, list[int]](list), defaultdict[float, list[int]](list)
        for i, t in enumerate(self.event_times.tolist()):
            events[t].append(i)
        for t, i in crossings:
            flips[float(t)].append(i)
        for k, ((a, b), end) in enumerate(zip(itertools.pairwise(edges), ends, strict=True)):
            times = self.rows[row:end] if end > row else stops[k : k + 1]  # there may be a hundred thousand
            if times[-1] != b:
                times = np.append(times, b)
            here = tuple(events.get(b, ())) if b < last else ()
            out.append(Segment(a, b, times, slice(row, end), lines[k], here, tuple(flips.get(b, ()))))
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
    crossings: Crossings | None = None,
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
    crossings : Crossings, optional
        The conditions and root events; made here of a system with conditions alone.

    Raises
    ------
    SimulationError
        The engine failed, or a state is not finite.
    """
    out = np.empty((len(timeline.rows), len(z)))
    out[: timeline.n_at_start] = z
    if timeline.first_events:
        z = apply_events(timeline.first_events, z)
    if crossings is None and system is not None and system.switches:
        rates, size = system_rates(system), layout.size
        crossings = Crossings(
            watch_table(system), inputs, lambda t, z: rates(t, z.tolist(), inputs[:size].tolist()), timeline
        )
    if segments is None:
        segments = timeline.segments(known_crossings(system, inputs, timeline))
    if crossings is not None:
        crossings.begin(segments)
    advance_into = getattr(stepper, "advance_into", None)
    for i, segment in enumerate(segments):
        if layout.n_forcings:
            inputs[layout.lines] = segment.lines
            inputs[layout.origin] = segment.start
        n, rows = segment.rows.stop - segment.rows.start, None
        if crossings is None and advance_into is not None and len(segment.times) == n:
            z = advance_into(out[segment.rows], segment.start, z, inputs, segment.times)[-1].copy()
        elif crossings is None:
            _, rows = stepper.advance(segment.start, z, inputs, segment.times)
            z = rows[-1]
        else:
            crossings.read(i, segment.start, z)
            try:
                rows, z = crossings.advance(stepper, segment, z)
            except EndedRunError as ended:
                ended.rows = np.vstack((out[: segment.rows.start], ended.rows[:-1][:n], ended.rows[-1:]))
                raise
        if rows is not None:
            out[segment.rows] = finite_rows(rows, segment.times)[:n]
        if segment.flips and crossings is not None and i + 1 < len(segments):
            for switch in segment.flips:
                z = crossings.flip(switch, segment.end, z, i + 1)
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
    if p is None and plans_depend_on_parameters(system):
        return None
    at = np.zeros(system.layout.n_parameters) if p is None else p
    segments = timeline.segments(known_crossings(system, at, timeline))
    modes = np.zeros((len(segments), len(system.switches)))  # those of the others are read where a stretch begins
    modes[:, system.planned] = planned_modes(system, at, [(s.start, s.end) for s in segments])
    lines = np.array([s.lines for s in segments]).reshape(len(segments), 2 * len(timeline.forcings))
    starts = np.array([s.start for s in segments])
    stretches = tuple(
        Stretch(s.start, s.times, s.rows.stop - s.rows.start, constants)
        for s, constants in zip(segments, np.column_stack([lines, starts, modes]), strict=True)
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
