# mypy: disallow-untyped-defs=false, allow-untyped-calls
"""Noisy paths of a model, drawn from the equations of a filter.

A path follows the schedule of a filter, made once for all of them. In every step it takes the same map as the filter,
and adds C xi with C C' the covariance of the step's noise at the path's own state, xi standard normal; events change it
at their nodes. Steps of an adaptive solver reach from node to node: their noise is that of the equations along the path
without noise between the two.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fmepy.compiled.c_loops import address, c_loop
from fmepy.compiled.kernels import copy, new, packed
from fmepy.filtering.arrays import clear, semidefinite_lower
from fmepy.filtering.loop import change_state
from fmepy.filtering.loop_arguments import LoopModel
from fmepy.filtering.run import LoopInputs, Scheme, Start
from fmepy.filtering.schedule import Schedule, ScheduleArrays
from fmepy.filtering.transition import factor_of_noise, transition, workspace
from fmepy.numerics.covariance import semidefinite_factor
from fmepy.types import Cube, Matrix, Vector


class Paths(NamedTuple):
    """Arguments of the loop.

    Attributes
    ----------
    x : ndarray, shape (n_path, n)
        Where the paths begin.
    p, event_values : ndarray
    xi : ndarray, shape (n_path, n_step, n_draw)
        Standard normal.
    out : ndarray, shape (n_path, n_node, n)
        The states at the nodes, before their events: the result.
    """

    model: LoopModel
    schedule: ScheduleArrays
    x: Matrix
    p: Vector
    event_values: Vector
    xi: Cube
    out: Cube


def _add_noise(m, h, w, S, C, xi, x):
    """Add C xi with C C' the covariance of the step's noise."""
    n, factor = x.shape[0], factor_of_noise(m.kind, m.per_step, h)
    if factor > 0.0:
        for i in range(n):
            for j in range(m.n_noise):
                x[i] += factor * w.A[0, i, j] * xi[j]
        return
    if not semidefinite_lower(S, C, n):
        x[0] = np.nan
    for i in range(n):
        for j in range(i + 1):
            x[i] += C[i, j] * xi[j]


def run(job: Paths) -> None:
    """Draw the paths, one after the other."""
    m, schedule, n = job.model, job.schedule, job.x.shape[1]
    x, y, Phi, S, C = new(n), new(n), new(n, n), new(n, n), new(n, n)
    w = workspace(m.kind, n, m.n_noise, schedule.step_inputs.shape[2])
    for path in range(job.x.shape[0]):
        w.last[0] = 0.0  # no path depends on the steps of those before it
        if m.crossings.loop != 0:
            m.crossings.ended[0, 1] = 0.0
        copy(job.x[path], x)
        for node in range(schedule.times.shape[0]):
            for step in range(schedule.step_at[node], schedule.step_at[node + 1]):
                t, h, u = schedule.step_times[step], schedule.step_lengths[step], schedule.step_inputs[step]
                clear(S)
                transition(m, t, h, u, x, job.p, y, Phi, S, w, None, None)
                copy(y, x)
                _add_noise(m, h, w, S, C, job.xi[path, step], x)
            copy(x, job.out[path, node])
            for e in range(schedule.event_at[node], schedule.event_at[node + 1]):
                change_state(schedule.event_kinds[e], schedule.event_states[e], job.event_values[e], x)


def draw_paths(
    scheme: Scheme, schedule: Schedule, start: Start, inputs: LoopInputs, n: int, rng: np.random.Generator
) -> Cube:
    """Return the states at the nodes along n paths, shape (n, n_node, n_state); not finite after a breakdown.

    Parameters
    ----------
    start : Start
        The paths begin at draws of it.
    p, event_values : ndarray
        As in `run_filter`.
    rng : Generator
    """
    k, f = len(start.x), scheme.functions
    x = start.x + rng.standard_normal((n, k)) @ semidefinite_factor(start.P).T
    xi = rng.standard_normal((n, len(schedule.step_times), max(k, f.n_noise)))
    out = np.empty((n, len(schedule.times), k))
    with f.workspace(inputs.p, schedule.times) as crossings:
        events = inputs.event_values[schedule.event_places]
        job = Paths(scheme.model(crossings), schedule.arrays, x, inputs.p, events, xi, out)
        words = packed(job)
        c_loop(run, "the loop of noisy paths")(address(words))
    f.raise_errors()
    return out
