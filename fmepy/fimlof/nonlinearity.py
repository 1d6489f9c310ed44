"""How far a filter's linearisation can be trusted: the model moved by a standard deviation against its tangent.

With sd_j the filtered sd of state j, f the map to the next time with data and F its tangent, h the readings there::

    of the step      |f(x + sd_j e_j) - f(x) - F sd_j e_j|_i / sd_i(predicted)        the largest over i and +- sd_j
    of the reading   |h(x + sd_j e_j) - h(x) - H sd_j e_j|_v / sd of the innovation of v

Well below 1 the likelihood of an extended filter is good; near 1 or above, compare with another update.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from fmepy.errors import SimulationError
from fmepy.filtering.loop_arguments import PassRecord
from fmepy.filtering.run import Pass, Start, run_filter
from fmepy.filtering.schedule import Schedule
from fmepy.fimlof.bound_filter import BoundFilter
from fmepy.fimlof.side_steps import piece_of
from fmepy.types import Matrix, Vector


def nonlinearity(bound_filter: BoundFilter, schedule: Schedule, run: Pass, p: Vector) -> pd.DataFrame:
    """Return the nonlinearity of step and reading by state.

    Parameters
    ----------
    bound_filter : BoundFilter
    schedule : Schedule
        Of one entity.
    run : Pass
        With its record.
    p : ndarray
        The entity's parameters.

    Returns
    -------
    DataFrame
        Index: the states. Columns: step_mean, step_max, step_time (where it is largest, the start of that step),
        reading_mean, reading_max, reading_time.
    """
    if run.record is None or run.node >= 0:
        raise SimulationError("The nonlinearity is that of a filter that came to its end, with its record.")
    states, nodes, known = bound_filter.spec.space.states, range(len(schedule.times)), (run.record, p)
    pieces = [piece_of(bound_filter.spec, schedule, k, float(t)) for k, t in enumerate(schedule.times[1:])]
    rows = []
    for j in range(len(states)):
        of_step = np.array([_of_step(bound_filter, piece, *known, node, j) for node, piece in enumerate(pieces)])
        of_reading = np.array([_of_reading(bound_filter, schedule, *known, node, j) for node in nodes])
        rows.append((*_summary(of_step, schedule), *_summary(of_reading, schedule)))
    columns = ["step_mean", "step_max", "step_time", "reading_mean", "reading_max", "reading_time"]
    return pd.DataFrame(rows, index=pd.Index(states, name="state"), columns=columns)


def _summary(values: Vector, schedule: Schedule) -> tuple[float, float, float]:
    if not np.isfinite(values).any():
        return np.nan, np.nan, np.nan
    worst = int(np.nanargmax(values))
    return float(np.nanmean(values)), float(values[worst]), float(schedule.times[worst])


def _farthest(
    function: Callable[[Vector], tuple[Vector, Matrix]], x: Vector, P: Matrix, j: int, spread: Vector
) -> float:
    """Return how far values lie from their tangent, an sd of state j to either side of x; NaN where it has none."""
    sd = float(np.sqrt(max(P[j, j], 0.0)))
    if sd == 0.0:
        return np.nan
    centre, slopes = function(x)
    out = 0.0
    for step in (sd, -sd):
        y = x.copy()
        y[j] += step
        gap = np.abs(function(y)[0] - centre - step * slopes[:, j])
        out = max(out, float(np.max(np.divide(gap, spread, out=np.zeros_like(gap), where=spread > 0))))
    return out


def _of_step(bound_filter: BoundFilter, piece: Schedule, record: PassRecord, p: Vector, node: int, j: int) -> float:
    """Return the nonlinearity of the map from a node to the next, which is a piece of the schedule, along state j."""
    spread = np.sqrt(np.maximum(np.diag(record.P_predicted[node + 1]), 0.0))
    x, P = record.x_filtered[node], record.P_filtered[node]
    return _farthest(lambda y: _moved(bound_filter, piece, p, y), x, P, j, spread)


def _of_reading(
    bound_filter: BoundFilter, schedule: Schedule, record: PassRecord, p: Vector, node: int, j: int
) -> float:
    """Return the nonlinearity of the readings of a node along state j; NaN where there are none."""
    rows = slice(schedule.row_at[node], schedule.row_at[node + 1])
    if rows.start == rows.stop:
        return np.nan
    t, u, variables = float(schedule.times[node]), schedule.inputs[node], schedule.readings.variables[rows]

    def read(y: Vector) -> tuple[Vector, Matrix]:
        z, H, _ = bound_filter.observe_at(t, y, p, u)
        return z[variables], H[variables]

    x, P = record.x_predicted[node], record.P_predicted[node]
    H = read(x)[1]
    spread = np.sqrt(np.einsum("vi,ij,vj->v", H, P, H) + record.sds[rows] ** 2)
    return _farthest(read, x, P, j, spread)


def _moved(bound_filter: BoundFilter, piece: Schedule, p: Vector, x: Vector) -> tuple[Vector, Matrix]:
    """Return the next state from x, and the tangent; the covariance has no part in it."""
    start = Start(x, np.zeros((len(x), len(x))))
    run = run_filter(bound_filter.linear_scheme, piece, start, bound_filter.inputs(p), record=True)
    assert run.record is not None, "it was asked for"
    return run.record.x_predicted[1], run.record.transitions[1]
