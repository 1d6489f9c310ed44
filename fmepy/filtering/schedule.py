"""The schedule of a filter: nodes, steps, rows of data and events, the same for every evaluation.

A node is a time at which something happens. Between two nodes lie steps:

* difference equations: one step every `dt`; t is the time of the new state, forcings are those of it;
* fixed steps: the model's own times, the samples, the events and the jumps of forcings are grid points, each interval
  divided into equal steps no longer than `dt`; where samples lie on the model's grid these are the steps of
  `OdeModel(method="euler")`. Without `dt` the model's times are its steps, and beyond the last of them they go on with
  the last spacing;
* an adaptive solver: one step from node to node, cut at the kinks of forcings.

At a node data come first, then events: a row at an event time is the state before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from fmepy.compiled.kernels import packed_once
from fmepy.journal.encoding import Stored
from fmepy.models.engines.fixed import continued, fixed_grid
from fmepy.models.running.forcings import Forcing, forcing_jumps, forcing_knots, forcing_values, stage_values
from fmepy.models.running.timeline import snapped
from fmepy.types import BoolVector, Cube, IntVector, Matrix, Vector

EVENT_KINDS = {"replace": 0, "add": 1, "multiply": 2}


@dataclass(frozen=True, slots=True, eq=False)
class FilterReadings(Stored, formerly="Readings"):
    """The data of one entity, in order of time.

    Attributes
    ----------
    times : ndarray, shape (n_obs,)
        Not decreasing.
    variables : ndarray of int, shape (n_obs,)
        Which of the observed variables.
    values : ndarray, shape (n_obs,)
        On the scale of comparison.
    errors : ndarray, shape (n_obs,)
        What the sd of the variable is multiplied by: the datum's own error, or 1.
    places : tuple of int
        Where the row of every datum stands in its table.
    marks : ndarray of int, shape (n_obs,), or None
        -1 where the value is a limit below which the reading lies, 1 above, 0 of a plain one; None: all are plain.
        At one time limits come last.
    """

    times: Vector
    variables: IntVector
    values: Vector
    errors: Vector
    places: tuple[int, ...] = field(metadata={"formerly": "labels"})
    marks: IntVector | None = None

    @property
    def all_marks(self) -> IntVector:
        """The marks, zeros where there are none."""
        return np.zeros(len(self), dtype=np.int64) if self.marks is None else self.marks

    def __len__(self) -> int:
        return len(self.values)

    def only(self, keep: BoolVector) -> FilterReadings:
        """Return the data of a mask."""
        places = tuple(place for place, k in zip(self.places, keep, strict=True) if k)
        marks = None if self.marks is None else self.marks[keep]
        columns = self.times[keep], self.variables[keep], self.values[keep], self.errors[keep]
        return FilterReadings(*columns, places, marks)


@dataclass(frozen=True, slots=True, eq=False)
class StateChange:
    """A change of a state at a time: an event of the model, or the reset of an accumulator.

    Attributes
    ----------
    time : float
    state, kind : int
        See `EVENT_KINDS`.
    value : int or float
        Position of its value among the model's event values, or -1 for zero.
    """

    time: float
    state: int
    kind: int
    place: int = -1


class ScheduleArrays(NamedTuple):
    """A schedule as a compiled loop takes it; `row_vars`, ... `row_marks` are the readings'."""

    times: Vector
    step_at: IntVector
    step_times: Vector
    step_lengths: Vector
    step_inputs: Cube
    row_at: IntVector
    row_vars: IntVector
    row_values: Vector
    row_errors: Vector
    row_marks: IntVector
    inputs: Matrix
    event_at: IntVector
    event_states: IntVector
    event_kinds: IntVector


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Schedule(Stored):
    """Nodes, steps, rows and events of one entity, see the module's text.

    Attributes
    ----------
    times : ndarray, shape (n_node,)
    step_at, row_at, event_at : ndarray of int, shape (n_node + 1,)
        Where the steps that lead to a node, its rows and its events begin.
    step_times, step_lengths : ndarray, shape (n_step,)
    step_inputs : ndarray, shape (n_step, 1 or 3, n_forcing)
        Forcings at the stages of a step.
    readings : Readings
    inputs : ndarray, shape (n_node, n_forcing)
    event_states, event_kinds, event_places : ndarray of int, shape (n_event,)
    """

    times: Vector
    step_at: IntVector
    step_times: Vector
    step_lengths: Vector
    step_inputs: Cube
    row_at: IntVector
    readings: FilterReadings
    inputs: Matrix
    event_at: IntVector
    event_states: IntVector
    event_kinds: IntVector
    event_places: IntVector
    nodes_of_rows: IntVector = field(repr=False)

    @property
    def arrays(self) -> ScheduleArrays:
        """The arrays for a compiled loop, packed at the first pass."""
        if (found := _ARRAYS.get(self)) is None:
            r = self.readings
            found = _ARRAYS[self] = packed_once(
                ScheduleArrays(
                    *(self.times, self.step_at, self.step_times, self.step_lengths, self.step_inputs),
                    *(self.row_at, r.variables, r.values),
                    *(r.errors, r.all_marks, self.inputs),
                    *(self.event_at, self.event_states, self.event_kinds),
                )
            )
        return found


_ARRAYS: WeakKeyDictionary[Schedule, ScheduleArrays] = WeakKeyDictionary()


def build_schedule(
    kind: str,
    start: float,
    readings: FilterReadings,
    changes: Sequence[StateChange],
    forcings: tuple[Forcing, ...],
    *,
    rows: Vector,
    grid: Vector,
    dt: float | None,
    stages: int,
) -> Schedule:
    """Return the schedule of one entity.

    Parameters
    ----------
    kind : {"difference", "fixed", "adaptive"}
    start : float
        Where the start holds; the first node.
    readings : Readings
        None before `start`.
    changes : sequence of Change
        Those before `start` or after the last node are left out; at one time in the order given.
    rows : ndarray
        Further times wanted as nodes (results).
    grid : ndarray
        The model's times, grid points of fixed steps.
    dt : float or None
    stages : int
        Forcings looked at in a step: 1, or 3 (start, middle, end).
    """
    last = max(float(readings.times[-1]) if len(readings) else start, float(rows[-1]) if len(rows) else start)
    changes = [c for c in changes if start <= c.time <= last]
    if kind == "fixed" and dt is None:
        grid = continued(grid, last)
    marks = np.unique(np.concatenate([[start], grid, rows, readings.times]))
    marks = snapped(marks, np.unique(np.concatenate([[start], grid])))  # 0.1 * 3 and 0.3 are one node
    readings = replace(readings, times=snapped(readings.times, marks))
    rows = snapped(rows, marks)
    at: Vector = snapped(np.array([c.time for c in changes], dtype=float), marks)
    times = np.unique(np.concatenate([[start], readings.times, rows[(rows >= start) & (rows <= last)], at]))
    if kind == "difference":
        h = dt or 1.0
        ends: Vector = start + h * np.arange(1.0, round((last - start) / h) + 1)
        begins: Vector = ends
        lengths: Vector = np.ones(len(ends))  # a difference equation sees the time of the new state
        taken = np.floor((times - start) / h + 1e-6)
    else:
        knots = forcing_jumps if kind == "fixed" else forcing_knots  # none is stepped over
        own = snapped(knots(forcings, start, float(times[-1])), np.concatenate([marks, at]))
        inner = grid[(grid > start) & (grid < last)] if kind == "fixed" else own[(own > start) & (own < times[-1])]
        points = np.unique(np.concatenate([times, inner]))
        points = fixed_grid(points, dt, own) if kind == "fixed" else points
        begins, ends, lengths = points[:-1], points[1:], np.diff(points)
        taken = np.searchsorted(ends, times, side="right")
    inputs = stage_values(forcings, begins, ends)[:, :stages]
    step_at = np.concatenate([[0], taken]).astype(np.int64)
    order = np.argsort(at, kind="stable") if len(at) else np.empty(0, dtype=np.intp)
    chosen = [changes[i] for i in order]
    return Schedule(
        times=times,
        step_at=step_at,
        step_times=np.ascontiguousarray(begins, dtype=float),
        step_lengths=np.ascontiguousarray(lengths, dtype=float),
        step_inputs=np.ascontiguousarray(inputs, dtype=float),
        row_at=_offsets(readings.times, times),
        readings=readings,
        inputs=np.ascontiguousarray(forcing_values(forcings, times).T, dtype=float),
        event_at=_offsets(at[order], times),
        event_states=np.array([c.state for c in chosen], dtype=np.int64),
        event_kinds=np.array([c.kind for c in chosen], dtype=np.int64),
        event_places=np.array([c.place for c in chosen], dtype=np.int64),
        nodes_of_rows=np.searchsorted(times, readings.times).astype(np.intp),
    )


def _offsets(sorted_times: Vector, nodes: Vector) -> IntVector:
    """Return where the entries of every node begin, and behind the last one."""
    return np.append(np.searchsorted(sorted_times, nodes, side="left"), len(sorted_times)).astype(np.int64)
