# mypy: disallow-untyped-defs=false, allow-untyped-calls
"""The loop of a filter that keeps factors of covariances: safe where the plain loop breaks down, and every update.

The same schedule, the same functions and the same result as `filtering.loop`; the covariance is P = L L' throughout
(`filtering.arrays`). With l_k the columns of L, f the map of one step (for fixed steps the whole scheme) and
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

from typing import NamedTuple

import numpy as np

from fmepy.compiled.kernels import are_finite, call, copy, new
from fmepy.compiled.triangular import lower_factor
from fmepy.filtering.arrays import (
    copy_matrix,
    covariance_of,
    error_factor,
    fill_array,
    has_converged,
    multiply,
    semidefinite_lower,
    solve_from_right,
    solve_innovations,
    update_columns,
    write_excess,
)
from fmepy.filtering.limits import matched_moments, plain_rows
from fmepy.filtering.loop import change_state, follow, most_rows, read
from fmepy.filtering.loop_arguments import COVARIANCE_NOT_FINITE, LoopArguments
from fmepy.filtering.transition import (
    DIFFERENCE,
    EULER,
    MOMENTS,
    MOMENTS_BY_FUNCTION,
    RK4,
    TransitionWorkspace,
    carries_covariance,
    factor_of_noise,
    transition,
    workspace,
)
from fmepy.types import Cube, Matrix, Vector

UPDATES = ("ekf", "iterated", "second_order", "unscented")
EKF, ITERATED, SECOND_ORDER, UNSCENTED = range(4)
MOST_PASSES = 3


class _State(NamedTuple):
    """The factor of the covariance and working arrays of the loop."""

    w: TransitionWorkspace
    L: Matrix
    Phi: Matrix
    S: Matrix
    C: Matrix
    D: Matrix
    W: Matrix
    y: Vector
    mean: Vector
    bias: Vector
    points: Matrix
    Y: Matrix
    FF: Cube
    T: Cube
    z: Vector
    H: Matrix
    sd: Vector
    delta: Vector
    errors: Vector
    e: Vector
    rows: Matrix
    R: Matrix
    CR: Matrix
    HH: Cube
    HC: Matrix
    h_bias: Vector
    z_mean: Vector
    Z: Matrix
    ZW: Matrix
    H_point: Matrix
    sd_point: Vector


def _has_curvature(job):
    """Tell whether steps need a correction for curvature; a solver of moments has it in its equations."""
    return job.update == SECOND_ORDER and job.model.kind not in (MOMENTS, MOMENTS_BY_FUNCTION)


def _has_points(job):
    return job.update == UNSCENTED and job.model.kind not in (MOMENTS, MOMENTS_BY_FUNCTION)


def _curvature(job, a, t, h, u):
    """Set the bias of the step just taken from points[0], write the columns of its curvature; return how many."""
    m, w, n = job.model, a.w, a.y.shape[0]
    x = a.points[0]
    call(m.curvature, t, h, x, job.p, u[0], a.FF[:n])
    copy_matrix(a.L, a.T[0])
    for i in range(1, a.T.shape[0]):
        at = 2 if i == 3 else 1
        width = 0.5 * at * h
        multiply(w.F[0 if i == 1 else i + 2], a.L, n, a.T[i], 0)
        for j in range(n):
            a.y[j] = x[j] + width * w.f[i - 1, j]
            for k in range(n):
                a.T[i, j, k] = a.L[j, k] + width * a.T[i, j, k]
        call(m.curvature, t + width, h, a.y, job.p, u[at], a.FF[i * n : (i + 1) * n])
    return curvature_columns(m.kind, h, w.F, a.T, a.FF, a.bias, a.W, n)


def _predict(job, a, step, x):
    """Carry mean and factor over a step."""
    m, schedule, n = job.model, job.schedule, x.shape[0]
    t, h, u = schedule.step_times[step], schedule.step_lengths[step], schedule.step_inputs[step]
    pointed, carried, width = _has_points(job), carries_covariance(m.kind), n
    centre, side = 1.0, 0.0
    if pointed:
        centre, side = sigma_points(x, a.L, a.points)
    else:
        copy(x, a.points[0])
    for point in range((a.points.shape[0] if pointed else 1) - 1, -1, -1):  # the centre last: the noise is its own
        if carried:
            covariance_of(a.L, a.S)
        transition(m, t, h, u, a.points[point], job.p, a.Y[point], a.Phi, a.S, a.w, None, None)
    for i in range(n):
        a.bias[i] = 0.0
        a.mean[i] = a.Y[0, i]
    if pointed:
        moments(a.Y, centre, side, a.mean, a.W, a.D)
        solve_from_right(a.D, a.L, n, a.Phi)
        width = a.points.shape[0]
    else:
        multiply(a.Phi, a.L, n, a.W, 0)
        if _has_curvature(job):
            width += _curvature(job, a, t, h, u)
    for i in range(n):
        x[i] = a.mean[i] + a.bias[i]
    if carried:
        return 0 if semidefinite_lower(a.S, a.L, n) else COVARIANCE_NOT_FINITE
    factor = factor_of_noise(m.kind, m.per_step, h)
    columns = m.n_noise if factor > 0.0 else n
    if factor == 0.0 and not semidefinite_lower(a.S, a.C, n):
        return COVARIANCE_NOT_FINITE
    for i in range(n):
        for j in range(columns):
            a.W[i, width + j] = factor * a.w.A[0, i, j] if factor > 0.0 else a.C[i, j]
    lower_factor(a.W, n, width + columns)
    copy_matrix(a.W, a.L)
    return 0


def _is_sound(a):
    return are_finite(a.L.reshape((a.L.shape[0] * a.L.shape[0],)))


def _write_covariance(a, P):
    covariance_of(a.L, P)


def _spread(job, a, node, x):
    """Set what the spread of the state adds to the readings, by curvature or at points; return the array's width."""
    m, schedule, n = job.model, job.schedule, x.shape[0]
    t, u, width = schedule.times[node], schedule.inputs[node], n
    for i in range(a.z.shape[0]):
        a.h_bias[i] = 0.0
        a.z_mean[i] = a.z[i]
    centre, side = 1.0, 0.0
    if job.update == SECOND_ORDER:
        call(m.curvature_of_readings, t, x, job.p, u, a.HH)
        curvature_columns(DIFFERENCE, 0.0, a.w.F, a.L.reshape((1, n, n)), a.HH, a.h_bias, a.HC, 0)
        width = n + a.HC.shape[1]
    elif job.update == UNSCENTED:
        centre, side = sigma_points(x, a.L, a.points)
        width = a.points.shape[0]
        for point in range(width):
            call(m.observe, t, a.points[point], job.p, u, a.Z[point], a.H_point, a.sd_point)
        moments(a.Z, centre, side, a.z_mean, a.ZW, a.D)
        solve_from_right(a.D, a.L, a.z.shape[0], a.H)
    return width, centre, side


def _linearised_again(job, a, node, x, y):
    """Set the readings' mean and H by their tangent at y."""
    call(job.model.observe, job.schedule.times[node], y, job.p, job.schedule.inputs[node], a.z, a.H, a.sd_point)
    for i in range(a.z.shape[0]):
        a.z_mean[i] = a.z[i]
        for j in range(x.shape[0]):
            a.z_mean[i] += a.H[i, j] * (x[j] - y[j])


def _correct(job, a, node, first, count, x, X):
    """Update by the rows of a node; return the one whose variance is not positive, or -1."""
    schedule, record, n, update = job.schedule, job.record, x.shape[0], job.update
    variables, y, W = schedule.row_vars, a.y, a.W
    read(job, node, first, count, x, a.z, a.H, a.sd, a.delta, a.errors)
    rows, count = count, plain_rows(schedule.row_marks, first, count)
    error_factor(count, first, a.errors, job.correlation, variables, a.R, a.CR)
    width, centre, side = _spread(job, a, node, x)
    copy(x, y)
    for one in range(MOST_PASSES if update == ITERATED else 1):
        if one > 0:
            _linearised_again(job, a, node, x, y)
        for i in range(count):
            var = variables[first + i]
            a.delta[i] = schedule.row_values[first + i] - a.z_mean[var] - a.h_bias[var]
            copy(a.H[var], a.rows[i])
        fill_array(count, a.CR, a.rows, a.L, W)
        if update == UNSCENTED:
            fill_array_of_points(count, first, variables, x, a.points, centre, side, a.ZW, W)
        elif update == SECOND_ORDER:
            fill_array_of_curvature(count, first, variables, a.HC, n, W)
        if job.recorded and update in (SECOND_ORDER, UNSCENTED):
            write_excess(W, count, width, a.rows, a.L, first, record.excess)
        lower_factor(W, count + n, count + width)
        copy(y, a.mean)
        bad = solve_innovations(W, count, first, a.delta, x, y, a.e, job.nu, job.s)
        if bad >= 0:
            return bad
        if has_converged(a.L, y, a.mean):
            break
    if job.recorded:
        for i in range(count):
            record.predictions[first + i] = schedule.row_values[first + i] - a.delta[i]
            copy(a.rows[i], record.gradients[first + i])
    update_columns(W, count, first, a.rows, X, a.e, job.v)
    for i in range(n):
        for j in range(n):
            a.L[i, j] = W[count + i, count + j]
    for row in range(count, rows):
        if not _update_by_limit(job, a, first + row, a.errors[row], schedule.row_values[first + row], x, y):
            return row
    copy(y, x)
    return -1


def _update_by_limit(job, a, row, error, limit, x, y):
    """Update y and the factor by a limit, as P <- L (I - g f f') (I - g f f')' L'; tell whether it has a variance.

    f = L'h, linearised at x (Potter).
    """
    var, n, e, s = job.schedule.row_vars[row], x.shape[0], limit - a.z[job.schedule.row_vars[row]], error * error
    for j in range(n):
        a.bias[j] = 0.0
        for i in range(n):
            a.bias[j] += a.L[i, j] * a.H[var, i]
        e -= a.H[var, j] * (y[j] - x[j])
        s += a.bias[j] * a.bias[j]
    job.nu[row], job.s[row] = e, s
    if not (s > 0.0 and s < np.inf):
        return False
    moved, share = matched_moments(job.schedule.row_marks[row], e, s)
    g = share / s / (1.0 + np.sqrt(max(1.0 - share * (s - error * error) / s, 0.0)))
    for i in range(n):
        c = 0.0
        for j in range(n):
            c += a.L[i, j] * a.bias[j]
        y[i] += c / s * moved
        for j in range(n):
            a.W[i, j] = a.L[i, j] - g * c * a.bias[j]
    lower_factor(a.W, n, n)
    copy_matrix(a.W, a.L)
    return True


def _change(job, a, event, x):
    """Change a state, with its row of L."""
    i = job.schedule.event_states[event]
    factor = change_state(job.schedule.event_kinds[event], i, job.event_values[event], x)
    if factor != 1.0:
        for j in range(x.shape[0]):
            a.L[i, j] *= factor
    return factor


def run(job: LoopArguments) -> None:
    """Run a filter that keeps factors of covariances."""
    m, update = job.model, job.update
    n, variables, most = job.x.shape[0], m.n_variables, most_rows(job.schedule)
    pairs = n * (n + 1) // 2 if update == SECOND_ORDER else 0
    n_points = 2 * n + 1 if update == UNSCENTED else 1
    spread = n + pairs if update == SECOND_ORDER else max(n, n_points)
    stages = (4 if m.kind == RK4 else 1) if _has_curvature(job) else 0
    a = _State(
        workspace(m.kind, n, m.n_noise, job.schedule.step_inputs.shape[2]),
        new(n, n), new(n, n), new(n, n), new(n, n), new(max(n, variables), n),
        new(most + n, most + spread + max(m.n_noise, n) + n),
        new(n), new(n), new(n), new(n_points, n), new(n_points, n), new(stages * n, n, n), new(stages, n, n),
        new(variables), new(variables, n), new(variables), new(most), new(most), new(most),
        new(most, n), new(most, most), new(most, most),
        new(variables if update == SECOND_ORDER else 0, n, n), new(variables, pairs), new(variables), new(variables),
        new(n_points, variables), new(variables, n_points), new(variables, n), new(variables),
    )  # fmt: skip
    x, X = new(n), new(n, job.X.shape[1])
    copy(job.x, x)
    copy_matrix(job.X, X)
    if not semidefinite_lower(job.P, a.L, n):
        job.outcome[0], job.outcome[1], job.outcome[2] = 0, COVARIANCE_NOT_FINITE, 0
        return
    follow(job, x, X, a.Phi, a, _predict, _is_sound, _write_covariance, _correct, _change)


# --- points on the columns of a factor, and their moments


def sigma_points(x, L, points):
    """Set the points, the centre first, then x + c l_k and x - c l_k; return the centre's weight and the others'."""
    n = x.shape[0]
    kappa = max(3.0 - n, 0.0)
    c = np.sqrt(n + kappa)
    for i in range(n):
        points[0, i] = x[i]
        for k in range(n):
            points[1 + k, i] = x[i] + c * L[i, k]
            points[1 + n + k, i] = x[i] - c * L[i, k]
    return kappa / (n + kappa), 0.5 / (n + kappa)


def moments(Y, centre, side, mean, W, D):
    """Set the mean of Y, shape (2 n + 1, r), write its weighted spread into W and D = sum of weighted differences."""
    n, r = (Y.shape[0] - 1) // 2, Y.shape[1]
    for i in range(r):
        mean[i] = Y[0, i]  # differences to the centre: exact where nothing varies
        for k in range(1, 2 * n + 1):
            mean[i] += side * (Y[k, i] - Y[0, i])
    root, c = np.sqrt(side), np.sqrt(0.5 / side)
    for i in range(r):
        W[i, 0] = np.sqrt(centre) * (Y[0, i] - mean[i])
        for k in range(1, 2 * n + 1):
            W[i, k] = root * (Y[k, i] - mean[i])
        for k in range(n):
            D[i, k] = side * c * (Y[1 + k, i] - Y[1 + n + k, i])


def fill_array_of_points(count, first, variables, x, points, centre, side, ZW, W):
    """Replace H L and L by the weighted spread of readings and points."""
    for j in range(points.shape[0]):
        for i in range(count):
            W[i, count + j] = ZW[variables[first + i], j]
        root = np.sqrt(centre if j == 0 else side)
        for i in range(x.shape[0]):
            W[count + i, count + j] = root * (points[j, i] - x[i])


def second_derivative(FF, a, b, w):
    """Set w_i to sum FF_ijk a_j b_k."""
    n = a.shape[0]
    for i in range(FF.shape[0]):
        w[i] = 0.0
        for j in range(n):
            for k in range(n):
                if FF[i, j, k] != 0.0:
                    w[i] += FF[i, j, k] * a[j] * b[k]


def _write_curvature(values, is_square, bias, W, column):
    """Write a column of the curvature, and its part of the bias."""
    for i in range(values.shape[0]):
        W[i, column] = values[i] / np.sqrt(2.0) if is_square else values[i]
        if is_square:
            bias[i] += 0.5 * values[i]


def curvature_columns(kind, h, F, T, FF, bias, W, column):
    """Set the bias of a step, or of readings, and write its curvature into W from `column` on; return the columns.

    F, FF are those of the stages, FF one below the other; T the derivatives of the stages along the columns of L.
    Readings are as a step of one stage (DIFFERENCE) to their values.
    """
    n, m = T.shape[1], bias.shape[0]
    stages = 4 if kind == RK4 else 1
    a, b, w, last, total = new(n), new(n), new(m), new(m), new(m)
    for i in range(m):
        bias[i] = 0.0
    count = 0
    for p in range(n):
        for q in range(p + 1):
            for s in range(stages):
                for i in range(n):
                    a[i], b[i] = T[s, i, p], T[s, i, q]
                second_derivative(FF[s * m : (s + 1) * m], a, b, w)
                if s > 0:
                    width = h if s == 3 else 0.5 * h
                    for i in range(m):
                        for j in range(n):
                            w[i] += width * F[s, i, j] * last[j]
                part = 1.0
                if kind == EULER:
                    part = h
                elif kind == RK4:
                    part = h / 6 if s == 0 or s == 3 else h / 3
                for i in range(m):
                    last[i] = w[i]
                    total[i] = part * w[i] + (total[i] if s > 0 else 0.0)
            _write_curvature(total, p == q, bias, W, column + count)
            count += 1
    return count


def fill_array_of_curvature(count, first, variables, HC, n, W):
    """Add the columns of the readings' curvature."""
    for j in range(HC.shape[1]):
        for i in range(count):
            W[i, count + n + j] = HC[variables[first + i], j]
        for i in range(n):
            W[count + i, count + n + j] = 0.0
