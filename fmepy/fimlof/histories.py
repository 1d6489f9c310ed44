"""Noisy histories drawn from a filtered cost, in the form of its data.

A path is drawn of the start, the noise of the process and the errors of the readings (`fmepy.filtering.paths`), at the
data's own times; what was missing stays missing, and a limit stays one if what is drawn lies beyond it. Errors in
proportion to a reading are taken at the true one. Where the start is not given it needs a rule:

* ``initial="known"``: a draw of the model's initial values with their `initial_sd`; "stationary" of its own;
* ``initial="data"``: measured states start at their first data, taken as the truth; the data of that time are drawn
  anew around it;
* ``initial="diffuse"``: the states of whose start nothing is known start where the data at hand put them at these
  parameters (their smoothed values).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from fmepy.costs.drawn_data import with_drawn
from fmepy.errors import SimulationError
from fmepy.filtering.run import Start
from fmepy.filtering.schedule import FilterReadings, Schedule
from fmepy.filtering.smoothing import error_covariance
from fmepy.fimlof.bound_filter import BoundFilter
from fmepy.fimlof.bound_likelihood import BoundFimlof
from fmepy.fimlof.data import compared_readings
from fmepy.fimlof.outputs import StateFunctions
from fmepy.numerics.covariance import semidefinite_factor
from fmepy.types import Matrix, Vector


def simulated(cost: Any, theta: pd.Series, rng: np.random.Generator) -> pd.DataFrame:
    """Return the table of data of a cost with readings drawn anew.

    Parameters
    ----------
    cost : FimlofCost
    theta : Series
        All of its parameters.
    """
    starts = _diffuse_starts(cost, theta) if cost.specification.free_states else [None] * len(cost.entities)
    bound, p = cost.bind(), theta.to_numpy(dtype=float)
    drawn = [_readings(bound, k, p, start, rng) for k, start in enumerate(starts)]
    return with_drawn(cost, compared_readings(bound.spec, [e.readings for e in cost.entities]), np.concatenate(drawn))


def _diffuse_starts(cost: Any, theta: pd.Series) -> list[Vector]:
    """Return the smoothed values of the unknown states at the start, by entity."""
    flt = cost.filter(theta)
    if flt.failure is not None:
        raise SimulationError(f"There is no start to simulate from: {flt.failure}", parameters=flt.values)
    return [h.x_smoothed[0, list(cost.specification.free_states)] for h in flt.histories]


def _readings(bound: BoundFimlof, k: int, theta: Vector, unknown: Vector | None, rng: np.random.Generator) -> Vector:
    """Return readings of an entity along one path, in the order of its data, on the scale of comparison."""
    spec, bound_filter, steady = bound.spec, bound.filter_of(k), bound.steady_start(k, theta)
    (schedule, used), p = bound.schedules[k], bound.parameters_of(k, theta)
    if spec.definition.is_closed:  # without noise of the process there is but one path
        run, _ = bound.passes(theta, record=True)[k]
        assert run.record is not None, "asked for"
        states = run.record.x_predicted
    else:
        states = _path(bound_filter, schedule, used, p, steady, unknown, rng)
    if not np.isfinite(states).all():
        raise SimulationError(
            f"A path became NaN or infinite at time {schedule.times[~np.isfinite(states).all(axis=1)][0]:.6g}.",
            parameters=dict(zip(spec.parameters, p.tolist(), strict=True)),
        )
    read = StateFunctions(spec, [*spec.space.readings, *spec.space.sds])
    z, sds = np.split(read.at(schedule.times, states, p, schedule.inputs)[0], 2, axis=1)
    correlation = bound_filter.correlation(p)
    parts = [(used, np.zeros(len(used), dtype=np.intp))] if used is not None else []
    out = []
    for readings, nodes in (*parts, (schedule.readings, schedule.nodes_of_rows)):
        which = readings.variables
        errors = np.abs(sds[nodes, which] * readings.errors)
        noise = errors * rng.standard_normal(len(which))
        if len(correlation):
            for node in np.unique(nodes):
                rows = nodes == node
                C = semidefinite_factor(error_covariance(errors[rows], correlation, which[rows]))
                noise[rows] = C @ rng.standard_normal(int(rows.sum()))
        out.append(z[nodes, which] + noise)
    return np.concatenate(out)


def _path(
    bound_filter: BoundFilter,
    schedule: Schedule,
    used: FilterReadings | None,
    p: Vector,
    steady: Vector | None,
    unknown: Vector | None,
    rng: np.random.Generator,
) -> Matrix:
    """Return the states along a noisy path, shape (n_node, n)."""
    start = bound_filter.start(p, used, schedule, states=steady)
    x, P = start.x.copy(), start.P.copy()
    if unknown is not None:
        x[start.free] = unknown
    if used is not None:  # their first data are the truth
        own = [state for variable, state in bound_filter.spec.direct if variable in used.variables]
        P[own, :] = P[:, own] = 0.0
    out: Matrix = bound_filter.paths(schedule, Start(x, P), p, 1, rng)[0]
    return out
