"""States at times that fixed steps do not come to: side paths, which leave the filter's own path as it is.

A fixed step that ended at such a time would be another step, and the likelihood another one. So a shorter step goes
aside from the last point s of the path before t, and ends at t. With Phi its tangent and T the map from s to the next
node of the path, the map from t to that node is T Phi^-1: the composition, and with it all that lies on the path, stays
what it was, and data after t speak of the state at t through it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fmepy.filtering.loop_arguments import PassRecord
from fmepy.filtering.run import Pass, Start, run_filter
from fmepy.filtering.schedule import FilterReadings, Schedule, StateChange, build_schedule
from fmepy.fimlof.bound_filter import BoundFilter, kind_of_steps
from fmepy.fimlof.filter_model import FIXED, Specification
from fmepy.types import Vector

NO_READINGS = FilterReadings(np.empty(0), np.empty(0, dtype=np.int64), np.empty(0), np.empty(0), ())
_NEAR = 1e-9


def begins_of_side_paths(schedule: Schedule, times: Vector) -> Vector:
    """Return the last point of a schedule's steps before each time within it; NaN for those that are such points."""
    points = np.append(schedule.step_times, schedule.times[-1])
    place = np.clip(np.searchsorted(points, times, side="right") - 1, 0, len(points) - 1)
    near = _NEAR * max(float(points[-1] - points[0]), 1e-300)
    gaps = np.minimum(np.abs(times - points[place]), np.abs(times - points[np.minimum(place + 1, len(points) - 1)]))
    return np.where(gaps <= near, np.nan, points[place])


def piece_of(spec: Specification, schedule: Schedule, node: int, until: float) -> Schedule:
    """Return the schedule from a node, its events among it, to the next node or a time before that; without data."""
    start, events = float(schedule.times[node]), slice(schedule.event_at[node], schedule.event_at[node + 1])
    columns = (schedule.event_states, schedule.event_kinds, schedule.event_places)
    changes = [StateChange(start, *each) for each in zip(*(c[events].tolist() for c in columns), strict=True)]
    return build_schedule(
        *(kind_of_steps(spec), start, NO_READINGS, changes, spec.definition.forcings),
        rows=np.array([until]),
        grid=spec.grid,
        dt=spec.dt,
        stages=schedule.step_inputs.shape[1],
    )


def rows_of_path(spec: Specification, schedule: Schedule, rows: Vector) -> tuple[Vector, Vector]:
    """Return the rows that can be nodes without another step of the filter, and those that lie beside its path.

    Only fixed steps are changed by a further node, and only up to the last datum does that matter.
    """
    if spec.propagation not in FIXED:
        return rows, np.empty(0)
    own = np.isin(rows, spec.grid) | (rows > schedule.times[-1]) | (rows < schedule.times[0])
    begins = np.full(len(rows), np.nan)
    begins[~own] = begins_of_side_paths(schedule, rows[~own])
    aside = np.isfinite(begins)
    return np.union1d(rows[~aside], begins[aside]), rows[aside]


def with_side_paths(
    bound_filter: BoundFilter, schedule: Schedule, run: Pass, p: Vector, times: Vector
) -> tuple[Schedule, Pass]:
    """Return schedule and recorded pass with further nodes.

    Parameters
    ----------
    times : ndarray
        Increasing, within the schedule, none of them a point of its steps; the points before them are nodes.
    """
    record = run.record
    assert record is not None, "a recorded pass"
    spec, inputs_of_loop = bound_filter.spec, bound_filter.inputs(p)
    nodes = np.searchsorted(schedule.times, times, side="right") - 1
    transitions = record.transitions.copy()
    x, P, maps, inputs = [], [], [], []
    last = np.eye(record.x_predicted.shape[1])
    for k, (t, node) in enumerate(zip(times.tolist(), nodes.tolist(), strict=True)):
        own = piece_of(spec, schedule, node, t)
        start = Start(record.x_filtered[node], record.P_filtered[node])
        step = run_filter(bound_filter.scheme, own, start, inputs_of_loop, True).record
        assert step is not None, "a recorded pass"
        tangent = step.transitions[-1]
        again = k > 0 and nodes[k - 1] == node
        x.append(step.x_predicted[-1])
        P.append(step.P_predicted[-1])
        maps.append(tangent @ np.linalg.pinv(last) if again else tangent)
        inputs.append(own.inputs[-1])
        last = tangent
        transitions[node + 1] = record.transitions[node + 1] @ np.linalg.pinv(tangent)
    at = nodes + 1

    def insert(old: Any, new: list[Any]) -> Any:
        return np.insert(old, at, np.array(new), axis=0)

    wider = PassRecord(
        *(insert(record.x_predicted, x), insert(record.P_predicted, P)),
        *(insert(record.x_filtered, x), insert(record.P_filtered, P)),
        insert(transitions, maps),
        *(record.predictions, record.gradients, record.sds, record.excess),
    )
    merged = np.insert(schedule.times, at, times)
    wider_schedule = replace(
        schedule,
        times=merged,
        step_at=np.insert(schedule.step_at, at, schedule.step_at[at]),
        row_at=np.insert(schedule.row_at, at, schedule.row_at[at]),
        event_at=np.insert(schedule.event_at, at, schedule.event_at[at]),
        inputs=insert(schedule.inputs, inputs),
        nodes_of_rows=np.searchsorted(merged, schedule.readings.times).astype(np.intp),
    )
    return wider_schedule, replace(run, record=wider)


def rows_until(grid: Vector, data: Vector, wanted: Vector) -> Vector:
    """Return the times of a grid until the last datum, without those that are data's own but for rounding.

    Where states are asked for, at times without data, these too, and the grid until the last of them.
    """
    if len(wanted):
        grid = np.union1d(grid[grid <= max(wanted[-1], data[-1] if len(data) else -np.inf)], wanted)
        own = np.isin(grid, wanted)
        near = np.abs(grid[:, None] - wanted[None, :]).min(axis=1) <= 1e-9 * max(float(grid[-1] - grid[0]), 1e-300)
        grid = grid[own | ~near]
        if not len(data):
            return grid
        rows = grid
    elif not len(data):
        return grid[:1]
    else:
        rows = grid[grid <= data[-1]]
    place = np.searchsorted(data, rows)
    gap = np.minimum(np.abs(rows - data[place - 1]), np.abs(rows - data[np.minimum(place, len(data) - 1)]))
    return np.asarray(rows[gap > 1e-9 * max(float(data[-1] - grid[0]), 1e-4 * abs(float(data[-1])))])
