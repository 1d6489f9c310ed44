"""Noisy paths of a model: what a filter's equations say of the system, drawn.

A path follows the schedule of a filter, made once for all of them. In every step it takes the same map as the filter,
and adds C xi with C C' the covariance of the step's noise at the path's own state, xi standard normal; events change it
at their nodes. Steps of an adaptive solver reach from node to node: their noise is that of the equations along the path
without noise between the two.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numba import types

from fmepy.filtering.kernels import covariance_by_stages
from fmepy.filtering.loop import (
    ADVANCE,
    EULER,
    MOMENTS,
    RK4,
    RK4_MOMENTS,
    change_state,
    compile_loop,
)
from fmepy.filtering.run import Scheme, Start
from fmepy.filtering.schedule import Schedule
from fmepy.filtering.triangular import semidefinite_lower
from fmepy.numerics.covariance import semidefinite_factor
from fmepy.types import Cube, Vector

__all__ = ["draw_paths"]


def _loop(  # type: ignore[no-untyped-def]
    advance, runge_kutta, step_kind, per_step, n_noise, x, p, step_at, step_times, step_lengths, step_inputs,
    event_at, event_states, event_kinds, event_values, xi, out,
):  # fmt: skip
    """Write the states at the nodes, before their events, into `out`, shape (n_node, n); x is changed."""
    n = x.shape[0]
    rk = n if step_kind in (RK4, RK4_MOMENTS) else 0
    by_stages = step_kind == RK4_MOMENTS or (step_kind == RK4 and not per_step)
    f, y, k2, k3, k4 = np.empty(n), np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    F, A, C = np.zeros((n, n)), np.zeros((n, n_noise)), np.zeros((n, n))
    F2, F3, F4 = np.zeros((rk, rk)), np.zeros((rk, rk)), np.zeros((rk, rk))
    A2, A3, A4 = np.zeros((rk, n_noise)), np.zeros((rk, n_noise)), np.zeros((rk, n_noise))
    P, S, K, W = np.zeros((n, n)), np.zeros((n, n)), np.zeros((n, n)), np.zeros((n, n))
    for node in range(out.shape[0]):
        for step in range(step_at[node], step_at[node + 1]):
            t, h, u = step_times[step], step_lengths[step], step_inputs[step]
            if step_kind == MOMENTS:
                for i in range(n):
                    for j in range(n):
                        A[i, j] = 0.0
            advance(t, h, x, p, u[0], f, F, A)
            scale = 1.0
            if step_kind == EULER or rk > 0:
                scale = h if per_step else np.sqrt(h)
            if runge_kutta is not None and rk > 0:
                for i in range(n):
                    y[i] = x[i] + 0.5 * h * f[i]
                advance(t + 0.5 * h, h, y, p, u[1], k2, F2, A2)
                for i in range(n):
                    y[i] = x[i] + 0.5 * h * k2[i]
                advance(t + 0.5 * h, h, y, p, u[1], k3, F3, A3)
                for i in range(n):
                    y[i] = x[i] + h * k3[i]
                advance(t + h, h, y, p, u[2], k4, F4, A4)
                for i in range(n):
                    x[i] += h / 6 * (f[i] + 2 * (k2[i] + k3[i]) + k4[i])
            elif step_kind == EULER:
                for i in range(n):
                    x[i] += h * f[i]
            else:
                for i in range(n):
                    x[i] = f[i]
            if (runge_kutta is not None and by_stages) or step_kind == MOMENTS:
                if step_kind == MOMENTS:
                    for i in range(n):
                        for j in range(n):
                            P[i, j] = A[i, j]
                else:
                    for i in range(n):
                        for j in range(n):
                            P[i, j] = 0.0
                    covariance_by_stages(h, F, F2, F3, F4, A, A2, A3, A4, P, S, K, W)
                if not semidefinite_lower(P, C):
                    x[0] = np.nan
                for i in range(n):
                    for j in range(i + 1):
                        x[i] += C[i, j] * xi[step, j]
            else:
                for i in range(n):
                    for j in range(n_noise):
                        x[i] += scale * A[i, j] * xi[step, j]
        for i in range(n):
            out[node, i] = x[i]
        for e in range(event_at[node], event_at[node + 1]):
            change_state(event_kinds[e], event_states[e], event_values[e], x)


interpreted: Callable[..., None] = _loop
"""The loop as Python."""

_F, _I = types.float64, types.int64
_V, _M, _C, _W = _F[::1], _F[:, ::1], _F[:, :, ::1], _I[::1]


@lru_cache(maxsize=2)
def compiled(runge_kutta: bool) -> Any:
    """Return the loop in machine code: the model's function is given by function pointer."""
    option = types.boolean if runge_kutta else types.none
    signature = types.void(
        types.FunctionType(ADVANCE), option, _I, types.boolean, _I, _V, _V, _W, _V, _V, _C, _W, _W, _W, _V, _M, _M
    )
    return compile_loop(_loop, signature, "the loop of noisy paths")


def draw_paths(
    scheme: Scheme,
    by_pointer: bool,
    schedule: Schedule,
    start: Start,
    p: Vector,
    event_values: Vector,
    n: int,
    rng: Any,
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
    k = len(start.x)
    x = start.x + rng.standard_normal((n, k)) @ semidefinite_factor(start.P).T
    xi = rng.standard_normal((n, len(schedule.step_times), max(k, scheme.n_noise)))
    out = np.empty((n, len(schedule.times), k))
    is_rk = scheme.step_kind in (RK4, RK4_MOMENTS)
    loop = compiled(is_rk) if by_pointer else interpreted
    model = (scheme.advance, is_rk or None, scheme.step_kind, scheme.per_step, scheme.n_noise)
    steps = (schedule.step_at, schedule.step_times, schedule.step_lengths, schedule.step_inputs)
    events = (schedule.event_at, schedule.event_states, schedule.event_kinds, event_values[schedule.event_places])
    with np.errstate(all="ignore"):
        for i in range(n):
            loop(*model, x[i], p, *steps, *events, xi[i], out[i])
    return out
