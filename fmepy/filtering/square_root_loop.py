"""The loop of a filter that keeps factors of covariances: safe where the plain loop breaks down, and every update.

The same schedule, the same two functions and the same result as `filtering.loop`; the covariance is P = L L' throughout
(`filtering.triangular`). With l_k the columns of L, f the map of one step (for fixed steps the whole scheme) and
f''[a, b] its second derivative along a and b:

    EKF           f(x);  F L                     h(x);  H L
    ITERATED      as EKF                         Gauss-Newton: H and h at the last update, at most three times
    SECOND_ORDER  f(x) + 1/2 sum_k f''[l_k, l_k];  [F L, f''[l_k, l_k] / sqrt 2, f''[l_k, l_l] (k < l)], and so h
    UNSCENTED     mean and spread of f at the points x, x +- c l_k, and of h at new points

Points: c^2 = n + kappa, weights kappa / c^2 and 1 / (2 c^2), with kappa = 3 - n for n < 3 (fourth moments as a normal
distribution's), else 0 (cubature points); so no weight is ever negative. The noise of the process enters as in the
extended filter, A A' at the mean. What stands for F and H in the record is then the statistical linearisation,
F L = sum of weighted differences.

The likelihood of all of them is that of nu and s at the last linearisation. For linear models they are one filter.

References
----------
Jazwinski (1970), ch. 8-9. Bell & Cathey (1993), IEEE Trans. Autom. Control 38. Julier & Uhlmann (1997). Arasaratnam &
Haykin (2009), IEEE Trans. Autom. Control 54.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numba import types

from fmepy.compiled.kernels import kernel, kernel_by_pointer
from fmepy.filtering.arrays import (
    columns_updated,
    copied,
    copied_vector,
    covariance_of,
    error_factor,
    fill_array,
    is_finite,
    is_finite_vector,
    keep_row,
    left_multiplied,
    rests,
    solved,
    write_excess,
)
from fmepy.filtering.kernels import covariance_by_stages
from fmepy.filtering.loop import (
    ADVANCE,
    ARGUMENTS,
    COVARIANCE_NOT_FINITE,
    EULER,
    MOMENTS,
    OBSERVE,
    RK4,
    RK4_MOMENTS,
    STATE_NOT_FINITE,
    VARIANCE_NOT_POSITIVE,
    change_state,
    compile_loop,
)
from fmepy.filtering.second_order import curved_readings, curved_step, fill_array_of_curvature
from fmepy.filtering.sigma_points import fill_array_of_points, moments, sigma_points
from fmepy.filtering.triangular import lower_factor, products, right_solved, semidefinite_lower

__all__ = ["EKF", "ITERATED", "SECOND_ORDER", "UNSCENTED", "compiled", "interpreted", "no_curvature"]

EKF, ITERATED, SECOND_ORDER, UNSCENTED = range(4)
MOST_PASSES = 3
_F = types.float64
_V, _M, _C = _F[::1], _F[:, ::1], _F[:, :, ::1]
BEND = types.void(_F, _F, _V, _V, _V, _C)
"""``bend(t, h, x, p, u, FF)``: second derivatives of rates or next states."""
BEND_READINGS = types.void(_F, _V, _V, _V, _C)
"""``bend_readings(t, x, p, u, HH)``."""


@kernel
def _identity(T):  # type: ignore[no-untyped-def]
    n = T.shape[0]
    for i in range(n):
        for j in range(n):
            T[i, j] = 1.0 if i == j else 0.0


@kernel
def _stage(i, h, x, k, F, T, K, y):  # type: ignore[no-untyped-def]
    """Set y, where stage i of Runge and Kutta looks, and T[i] = dy/dx from the stage before."""
    n = x.shape[0]
    width = h if i == 3 else 0.5 * h
    products(F[i - 1], T[i - 1], n, K[i - 1], 0, 0)
    for a in range(n):
        y[a] = x[a] + width * k[i - 1, a]
        for b in range(n):
            T[i, a, b] = width * K[i - 1, a, b]
        T[i, a, a] += 1.0


@kernel
def _stepped(kind, h, x, k, F, T, K, y, Phi):  # type: ignore[no-untyped-def]
    """Set y to the next state and Phi to dy/dx, from the rates of all stages."""
    n = x.shape[0]
    if kind in (RK4, RK4_MOMENTS):
        products(F[3], T[3], n, K[3], 0, 0)
    for a in range(n):
        if kind == EULER:
            y[a] = x[a] + h * k[0, a]
        elif kind in (RK4, RK4_MOMENTS):
            y[a] = x[a] + h / 6 * (k[0, a] + 2 * (k[1, a] + k[2, a]) + k[3, a])
        else:
            y[a] = k[0, a]
        for b in range(n):
            if kind == EULER:
                Phi[a, b] = h * F[0, a, b]
            elif kind in (RK4, RK4_MOMENTS):
                Phi[a, b] = h / 6 * (K[0, a, b] + 2 * (K[1, a, b] + K[2, a, b]) + K[3, a, b])
            else:
                Phi[a, b] = F[0, a, b]
        if kind in (EULER, RK4, RK4_MOMENTS):
            Phi[a, a] += 1.0


@kernel
def _vector(n):  # type: ignore[no-untyped-def]
    return np.zeros(n)


@kernel
def _matrix(n, m):  # type: ignore[no-untyped-def]
    return np.zeros((n, m))


@kernel
def _cube(n, m, k):  # type: ignore[no-untyped-def]
    return np.zeros((n, m, k))


def _loop(  # type: ignore[no-untyped-def]
    advance,
    observe,
    bend,
    bend_readings,
    step_kind,
    per_step,
    update,
    n_noise,
    n_vars,
    x,
    P,
    X,
    p,
    times,
    step_at,
    step_times,
    step_lengths,
    step_inputs,
    row_at,
    row_vars,
    row_values,
    row_errors,
    inputs,
    event_at,
    event_states,
    event_kinds,
    event_values,
    correlation,
    nu,
    s,
    v,
    failed,
    x_predicted,
    P_predicted,
    x_filtered,
    P_filtered,
    transitions,
    row_predictions,
    row_gradients,
    row_sds,
    excess,
):
    """Run a filter; see `filtering.run` for the arguments. Return the node at which it broke down, or -1."""
    n, m, d = x.shape[0], n_vars, X.shape[1]
    recording = x_predicted.shape[0] > 0
    most = 1
    for node in range(times.shape[0]):
        most = max(most, row_at[node + 1] - row_at[node])
    pairs = n * (n + 1) // 2
    curved, pointed = update == SECOND_ORDER and step_kind != MOMENTS, update == UNSCENTED and step_kind != MOMENTS
    n_points = 2 * n + 1 if update == UNSCENTED else 1
    spread = n + pairs if update == SECOND_ORDER else max(n, n_points)
    L, Phi, D = _matrix(n, n), _matrix(n, n), _matrix(max(n, m), n)
    stages = 4 if step_kind in (RK4, RK4_MOMENTS) else 1
    by_stages = step_kind == RK4_MOMENTS or (step_kind == RK4 and not per_step)
    n_columns = n if by_stages else n_noise  # of the noise's factor
    W = _matrix(most + n, most + spread + n_columns + n)
    As, S, SK, SW, N = _cube(stages, n, n_noise), _matrix(n, n), _matrix(n, n), _matrix(n, n), _matrix(n, n)
    k, ys = _matrix(stages, n), _matrix(stages, n)
    F, T, K = _cube(stages, n, n), _cube(stages, n, n), _cube(stages, n, n)
    FF = np.zeros((stages if curved else 0, n, n, n))
    HH = _cube(m if update == SECOND_ORDER else 0, n, n)
    HC, h_bias = _matrix(m, pairs if update == SECOND_ORDER else 0), _vector(m)
    A = _matrix(n, n_noise)
    points, Y, Z = _matrix(n_points, n), _matrix(n_points, n), _matrix(n_points, m)
    y, bias, mean = _vector(n), _vector(n), _vector(n)
    z, z_mean, H, sd, H_point, sd_point = _vector(m), _vector(m), _matrix(m, n), _vector(m), _matrix(m, n), _vector(m)
    ZW = _matrix(m, n_points)
    delta, errors, e = _vector(most), _vector(most), _vector(most)
    rows, R, C = _matrix(most, n), _matrix(most, most), _matrix(most, most)
    transition, TW, XW = _matrix(n, n), _matrix(n, n), _matrix(n, d)
    _identity(T[0])
    if not semidefinite_lower(P, L):
        failed[0], failed[1] = COVARIANCE_NOT_FINITE, 0
        return 0

    for node in range(times.shape[0]):
        if recording:
            _identity(transition)
            if node > 0:
                for event in range(event_at[node - 1], event_at[node]):  # the map since the last node begins with them
                    if event_kinds[event] != 1:
                        for j in range(n):
                            transition[event_states[event], j] *= (
                                0.0 if event_kinds[event] == 0 else event_values[event]
                            )
        for step in range(step_at[node], step_at[node + 1]):
            t, h, u = step_times[step], step_lengths[step], step_inputs[step]
            centre, side = 1.0, 0.0
            if pointed:
                centre, side = sigma_points(x, L, points)
            else:
                for i in range(n):
                    points[0, i] = x[i]
            if step_kind == MOMENTS:
                covariance_of(L, A)
            for point in range((n_points if pointed else 1) - 1, -1, -1):  # the centre last: F, T, A stay those of it
                advance(t, h, points[point], p, u[0], k[0], F[0], A)
                if stages == 4:
                    for i in range(1, 4):
                        _stage(i, h, points[point], k, F, T, K, ys[i])
                        at = 2 if i == 3 else 1
                        advance(t + 0.5 * at * h, h, ys[i], p, u[at], k[i], F[i], As[i])
                _stepped(step_kind, h, points[point], k, F, T, K, Y[point], Phi)
            scale = 1.0
            if step_kind in (EULER, RK4):
                scale = h if per_step else np.sqrt(h)
            width = n
            for i in range(n):
                bias[i] = 0.0
                mean[i] = Y[0, i]
            if pointed:
                moments(Y, centre, side, mean, W, 0, 0, D)
                right_solved(D, L, n, Phi)
                width = n_points
            else:
                products(Phi, L, n, W, 0, 0)
                if curved:
                    bend(t, h, points[0], p, u[0], FF[0])
                    for i in range(1, stages):
                        at = 2 if i == 3 else 1
                        bend(t + 0.5 * at * h, h, ys[i], p, u[at], FF[i])
                    width += curved_step(step_kind, h, F, T, FF, L, bias, W, n)
            for i in range(n):
                x[i] = mean[i] + bias[i]
            if step_kind == MOMENTS:
                if not semidefinite_lower(A, L):
                    failed[0], failed[1] = COVARIANCE_NOT_FINITE, 0
                    return node
            elif step_kind == RK4_MOMENTS:
                covariance_of(L, N)
                covariance_by_stages(h, F[0], F[1], F[2], F[3], A, As[1], As[2], As[3], N, S, SK, SW)
                if not semidefinite_lower(N, L):
                    failed[0], failed[1] = COVARIANCE_NOT_FINITE, 0
                    return node
            else:
                if by_stages:
                    for i in range(n):
                        for j in range(n):
                            N[i, j] = 0.0
                    covariance_by_stages(h, F[0], F[1], F[2], F[3], A, As[1], As[2], As[3], N, S, SK, SW)
                    if not semidefinite_lower(N, S):
                        failed[0], failed[1] = COVARIANCE_NOT_FINITE, 0
                        return node
                    for i in range(n):
                        for j in range(n):
                            W[i, width + j] = S[i, j]
                else:
                    for i in range(n):
                        for j in range(n_noise):
                            W[i, width + j] = scale * A[i, j]
                lower_factor(W, n, width + n_columns)
                for i in range(n):
                    for j in range(n):
                        L[i, j] = W[i, j]
            if d > 0:
                left_multiplied(Phi, X, XW)
            if recording:
                left_multiplied(Phi, transition, TW)
        if not is_finite_vector(x):
            failed[0], failed[1] = STATE_NOT_FINITE, 0
            return node
        if not is_finite(L):
            failed[0], failed[1] = COVARIANCE_NOT_FINITE, 0
            return node
        if recording:
            keep_row(x, x_predicted, node)
            covariance_of(L, P_predicted[node])
            copied(transition, transitions[node])
        first, last = row_at[node], row_at[node + 1]
        count = last - first
        if count > 0:
            observe(times[node], x, p, inputs[node], z, H, sd)
            for i in range(count):
                errors[i] = abs(sd[row_vars[first + i]] * row_errors[first + i])
            error_factor(count, first, errors, correlation, row_vars, R, C)
            for i in range(m):
                h_bias[i] = 0.0
                z_mean[i] = z[i]
            width = n
            if update == SECOND_ORDER:
                bend_readings(times[node], x, p, inputs[node], HH)
                curved_readings(HH, L, h_bias, HC)
                width = n + pairs
            elif update == UNSCENTED:
                centre, side = sigma_points(x, L, points)
                for point in range(n_points):
                    observe(times[node], points[point], p, inputs[node], Z[point], H_point, sd_point)
                moments(Z, centre, side, z_mean, ZW, 0, 0, D)
                right_solved(D, L, m, H)
                width = n_points
            copied_vector(x, y)
            for one in range(MOST_PASSES if update == ITERATED else 1):
                if one > 0:
                    observe(times[node], y, p, inputs[node], z, H, sd_point)
                    for i in range(m):
                        z_mean[i] = z[i]
                        for j in range(n):
                            z_mean[i] += H[i, j] * (x[j] - y[j])
                for i in range(count):
                    var = row_vars[first + i]
                    delta[i] = row_values[first + i] - z_mean[var] - h_bias[var]
                    for j in range(n):
                        rows[i, j] = H[var, j]
                fill_array(count, first, row_vars, C, rows, L, W)
                if update == UNSCENTED:
                    fill_array_of_points(count, first, row_vars, x, points, centre, side, ZW, W)
                elif update == SECOND_ORDER:
                    fill_array_of_curvature(count, first, row_vars, HC, n, W)
                if recording and update in (SECOND_ORDER, UNSCENTED):
                    write_excess(W, count, width, rows, L, first, excess)
                lower_factor(W, count + n, count + width)
                copied_vector(y, mean)
                bad = solved(W, count, first, delta, x, y, e, nu, s)
                if bad >= 0:
                    failed[0], failed[1] = VARIANCE_NOT_POSITIVE, first + bad
                    return node
                if rests(L, y, mean):
                    break
            if recording:
                for i in range(count):
                    row_predictions[first + i] = row_values[first + i] - delta[i]
                    row_sds[first + i] = errors[i]
                    for j in range(n):
                        row_gradients[first + i, j] = rows[i, j]
            if d > 0:
                columns_updated(W, count, first, rows, X, e, v)
            for i in range(n):
                x[i] = y[i]
                for j in range(n):
                    L[i, j] = W[count + i, count + j]
        if recording:
            keep_row(x, x_filtered, node)
            covariance_of(L, P_filtered[node])
        for event in range(event_at[node], event_at[node + 1]):
            factor = change_state(event_kinds[event], event_states[event], event_values[event], x)
            if factor != 1.0:
                i = event_states[event]
                for j in range(n):
                    L[i, j] *= factor
                for j in range(d):
                    X[i, j] *= factor
    return -1


interpreted: Callable[..., int] = _loop
"""The loop as Python: the functions are any callables."""

_SIGNATURE = types.int64(*(types.FunctionType(f) for f in (ADVANCE, OBSERVE, BEND, BEND_READINGS)), *ARGUMENTS, _M)


@lru_cache(maxsize=1)
def compiled() -> Any:
    """Return the loop in machine code: the functions are given by function pointer."""
    return compile_loop(_loop, _SIGNATURE, "the filter's safe loop")


def _no_bend(t, h, x, p, u, FF):  # type: ignore[no-untyped-def]
    pass


def _no_bend_readings(t, x, p, u, HH):  # type: ignore[no-untyped-def]
    pass


@lru_cache(maxsize=2)
def no_curvature(by_pointer: bool) -> tuple[Any, Any]:
    """Return what stands for the second derivatives where nobody asks for them."""
    from fmepy.compiled.function_pointer import FunctionPointer

    if not by_pointer:
        return _no_bend, _no_bend_readings
    bend = kernel_by_pointer(BEND, _no_bend)
    return FunctionPointer(bend, BEND), FunctionPointer(
        kernel_by_pointer(BEND_READINGS, _no_bend_readings), BEND_READINGS
    )
