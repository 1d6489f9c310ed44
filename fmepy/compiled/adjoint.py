# mypy: ignore-errors
"""Discrete adjoint: the gradient of a scalar by all parameters from one run and one sweep back along its steps.

A number L is a function of the rows Y of a run, with W = dL/dY. The sweep carries lambda = dL/dy backwards through each
step as it was taken, at fixed h: so the gradient is exactly that of the computed numbers, at the cost of a few runs for
any number of parameters. For an explicit step (`compiled.dormand_prince`), with kbar_i = dL/dk_i::

    a = J(Y_i)' kbar_i      ybar += a      kbar_j += h a_ij a      g += f_p(Y_i)' kbar_i          i = 7, ..., 1

for a stiff one (`compiled.rosenbrock`), with Ubar_s = dL/dU_s, from W' v = Ubar_s::

    a = J(Y_s)' v           ybar += a + d/dy (v' (J U_s + h d_s f_t))
    Ubar_j += A_sj a + C_sj v / h          g += f_p(Y_s)' v + d/dp (v' (J U_s + h d_s f_t))       s = 7, ..., 0

and for a change z_i = u, z_i + u or z_i u at the end of a stretch, with u(t, z, p) and ubar = lambda_i, lambda_i,
lambda_i z_i::

    lambda_i = 0, lambda_i, u lambda_i     lambda += ubar du/dz      g += ubar du/dp

The run records its steps: t, h, the stretch, 1 if stiff, y; the first row holds their number.

References
----------
Hager, W. W. (2000). Runge-Kutta methods in optimal control and the transformed adjoint system. Numer. Math. 87,
247-282.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fmepy.compiled import dormand_prince, rodas5p
from fmepy.compiled.courses import CourseTables, RunArrays, prepare
from fmepy.compiled.dormand_prince import step
from fmepy.compiled.explicit_loop import begin_stiff, rates_of, run_once
from fmepy.compiled.kernels import call, copy, integers, new
from fmepy.compiled.rodas5p import GAMMA, begin_stage, time_of, weight_of
from fmepy.compiled.rosenbrock import IS_STIFF, Stiff
from fmepy.compiled.sparse_lu import factor_block, solve_block, solve_block_transposed
from fmepy.types import IntVector, Matrix, Vector

OF_STEP = 4
"""Number of entries before y in a recorded step."""


def _table(rows, shape):
    out = np.zeros(shape)
    for i, row in enumerate(rows):
        out[i, : len(row)] = row
    return out


def _triangle(rows, first, n):
    return np.vstack([np.zeros((first, n)), _table(rows, (len(rows), n))])


EXPLICIT = _triangle(
    [(1 / 5,), dormand_prince.A3, dormand_prince.A4, dormand_prince.A5, dormand_prince.A6, dormand_prince.A7], 1, 7
)
"""a_ij of the explicit method; the last row belongs to the new y."""
STIFF = np.stack([_triangle(rodas5p.A, 1, 8), _triangle(rodas5p.C, 1, 8)])
POLYNOMIAL = np.vstack([_table([dormand_prince.D], (1, 8)), _table(rodas5p.H, (3, 8))])
TIMES = np.array([0, 1 / 5, 3 / 10, 4 / 5, 8 / 9, 1, 1])


class AdjointTables(NamedTuple):
    """Functions of a model and coefficients of the methods, for the sweep back.

    Attributes
    ----------
    pull, bend, outputs, values, jacobian : int
        Addresses of functions: the derivatives by (y, p) of v'f at z = [y, v]; of v'(J k + a f_t) at z = [y, k, v, a];
        of v'o (o the outputs) at z = [y, v], with parameters and then forcings as inputs; the derivatives by p of
        v'y_0 at z = v; the entries of J followed by f_t.
    n, n_params, n_outputs : int
    rows, cols : ndarray of int
        Rows and columns of the entries of J.
    changes : ndarray of int, shape (n_changes,)
        Addresses of functions: the derivatives by (y, p) of the value of each change, at z = y.
    explicit, stiff, polynomial, times : ndarray
        The coefficients of the methods.
    """

    pull: int
    bend: int
    outputs: int
    values: int
    jacobian: int
    n: int
    n_params: int
    n_outputs: int
    rows: IntVector
    cols: IntVector
    changes: IntVector
    explicit: Matrix
    stiff: Vector
    polynomial: Matrix
    times: Vector


class Sweep(NamedTuple):
    """Arrays that a sweep reads and writes.

    Attributes
    ----------
    steps : ndarray, shape (n_step + 1, OF_STEP + n)
        The recorded steps.
    weights : ndarray, shape (n_row, n + n_outputs)
        dL/dY of states and outputs.
    gradient : ndarray, shape (n_params,)
        dL/dp, to which the sweep adds.
    """

    steps: Matrix
    weights: Matrix
    gradient: Vector


def _record(model, t, h, y, c):
    """Record a step; return False if there is no room for it."""
    steps, room = model[3], model[5]
    i = int(steps[0, 0]) + 1
    if i >= len(steps):
        return False
    steps[0, 0] = i
    steps[i, 0], steps[i, 1], steps[i, 2], steps[i, 3] = t, h, model[4], room[IS_STIFF]
    copy(y, steps[i, OF_STEP:])
    return True


def run_recorded(c: CourseTables, runs: RunArrays, sweep: Sweep):
    """Run a model once and record its steps."""
    plan = integers(c.plan, 3)
    stiff = Stiff(plan[0], c.plan, new(plan[1]))
    begin_stiff(stiff, c, plan)
    sweep.steps[0, 0] = 0.0
    ended = runs.ended[0]
    ended[0], ended[1], ended[2] = run_once(None, _record, sweep.steps, c, runs, runs.inputs[0], runs.out[0], stiff)


class _Room(NamedTuple):
    point: Vector  # input of the model's functions
    pulled: Vector  # their output
    y_new: Vector
    arg: Vector
    k: Matrix  # stages
    Y: Matrix  # arguments of the stages
    bar: Matrix  # dL/dk
    of_argument: Matrix  # dL/dY
    B: Matrix  # W
    exchange: Vector
    J: Vector


def sweep_back(c: CourseTables, runs: RunArrays, a: AdjointTables, sweep: Sweep):
    """Add dL/dp to the gradient."""
    n, m, inputs, g, lam = a.n, a.n_params, runs.inputs[0], sweep.gradient, new(a.n)
    w = _Room(
        new(3 * n + 1), new(n + m), new(n), new(n), new(8, n), new(8, n), new(8, n), new(8, n), new(n, n), new(n),
        new(len(a.rows) + n),
    )  # fmt: skip
    prepare(c, runs, inputs)
    _add_outputs(c, a, runs, sweep, w)
    row, stretch = len(sweep.weights) - 1, -1
    for i in range(int(sweep.steps[0, 0]), 0, -1):
        s = sweep.steps[i]
        t, h, y = s[0], s[1], s[OF_STEP:]
        is_last, stretch = int(s[2]) != stretch, int(s[2])
        if is_last:
            copy(c.constants[stretch], inputs[c.n_parameters :])
        for j in range(8):
            for e in range(n):
                w.bar[j, e] = 0.0
        if s[3] > 0.0:
            _take_stiff(c, a, w, t, h, y, inputs)
        else:
            _take_explicit(c, w, t, h, y, inputs)
        if is_last:
            if s[3] > 0.0:
                for e in range(n):
                    w.y_new[e] = w.Y[7, e] + w.k[7, e]
            _sweep_changes(c, a, w, stretch, w.y_new, inputs, lam, g)
        before = row
        while row >= 0 and c.rows[row] > t:
            row -= 1
        copy(lam, w.arg)  # dL/dy_new
        for e in range(n):
            lam[e] = 0.0
        for r in range(row + 1, before + 1):
            x = min((c.rows[r] - t) / h, 1.0)
            if s[3] > 0.0:
                _read_stiff(a, w, x, sweep.weights[r], lam)
            else:
                _read_explicit(a, w, h, x, sweep.weights[r], lam)
        if s[3] > 0.0:
            _sweep_stiff(a, w, t, h, y, inputs, lam, g)
        else:
            _sweep_explicit(a, w, t, h, inputs, lam, g)
    if len(a.changes) > 0:
        call(c.values, c.start, w.point, inputs, runs.values)
        _sweep_changes(c, a, w, -1, runs.values[:n], inputs, lam, g)
    for r in range(row + 1):
        for e in range(n):
            lam[e] += sweep.weights[r, e]
    copy(lam, w.point)
    call(a.values, c.start, w.point, inputs, w.pulled)
    for q in range(m):
        g[q] += w.pulled[q]


def _add_outputs(c, a, runs, sweep, w):
    """Propagate dL/d(outputs) to the states of the same rows and to the parameters."""
    if a.n_outputs == 0:
        return
    n, n_p, read, z = a.n, c.n_parameters, new(c.n_parameters + c.forced.shape[1]), new(a.n + a.n_outputs)
    for r in range(len(sweep.weights)):
        copy(runs.inputs[0, :n_p], read)
        copy(c.forced[r], read[n_p:])
        copy(runs.out[0, r, :n], z)
        copy(sweep.weights[r, n:], z[n:])
        call(a.outputs, c.rows[r], z, read, w.pulled)
        for e in range(n):
            sweep.weights[r, e] += w.pulled[e]
        for q in range(a.n_params):
            sweep.gradient[q] += w.pulled[n + q]


def _add_pulled(a, w, address, t, inputs, out, g):
    """Call a function, and add its derivatives by y to `out` and those by p to the gradient."""
    call(address, t, w.point, inputs, w.pulled)
    for e in range(a.n):
        out[e] += w.pulled[e]
    for q in range(a.n_params):
        g[q] += w.pulled[a.n + q]


def _sweep_changes(c, a, w, k, z, inputs, lam, g):
    """Carry lambda back over the changes at the end of stretch k; z is the state before them."""
    n, changes, first, t = a.n, c.changes, 0, c.start if k < 0 else c.times[c.bounds[k, 1] - 1]
    while changes[first, 0] < k:
        first += 1
    last = first
    while changes[last, 0] == k:
        last += 1
    if last == first:
        return
    before, old, values = new(last - first, n), new(last - first), new(last - first)
    e = first
    while e < last:  # as in `courses.make_changes`
        end = e
        while end < last and changes[end, 3] == changes[e, 3]:
            copy(z, before[end - first])
            copy(c.change_inputs[end], inputs[c.behind :])
            call(changes[end, 4], t, z, inputs, values[end - first :])
            end += 1
        for one in range(e, end):
            state, how, u = changes[one, 1], changes[one, 2], values[one - first]
            old[one - first] = z[state]
            z[state] = u if how == 0 else z[state] + u if how == 1 else z[state] * u
        e = end
    while e > first:
        end = e
        for i in range(n):
            w.arg[i] = 0.0
        while e > first and changes[e - 1, 3] == changes[end - 1, 3]:
            e -= 1
            state, how, by = changes[e, 1], changes[e, 2], lam[changes[e, 1]]
            if how == 0:
                lam[state] = 0.0
            elif how == 2:
                lam[state], by = by * values[e - first], by * old[e - first]
            copy(c.change_inputs[e], inputs[c.behind :])
            call(a.changes[e], t, before[e - first], inputs, w.pulled)
            for i in range(n):
                w.arg[i] += by * w.pulled[i]
            for q in range(a.n_params):
                g[q] += by * w.pulled[n + q]
        for i in range(n):
            lam[i] += w.arg[i]


# --- explicit steps


def _take_explicit(c, w, t, h, y, inputs):
    """Repeat an explicit step to recover its stages."""
    call(c.rates, t, y, inputs, w.k[0])
    step(rates_of, (c.rates, c.watch, inputs), t, h, t + h, y, w.y_new, w.arg, w.k[:7])
    copy(y, w.Y[0])


def _read_explicit(a, w, h, x, weight, lam):
    """Propagate the weight of a row within a step to its stages, its start (`lam`) and its end (`w.arg`)."""
    r = 1.0 - x
    Q, R, T = x * r, x * x * r, x * x * r * r
    P = x - Q + 2.0 * R
    for e in range(a.n):
        v = weight[e]
        w.arg[e] += P * v
        lam[e] += (1.0 - P) * v
        w.bar[0, e] += h * (Q - R) * v
        w.bar[6, e] -= h * R * v
        for j in range(7):
            w.bar[j, e] += h * T * a.polynomial[0, j] * v


def _sweep_explicit(a, w, t, h, inputs, lam, g):
    n, y_bar = a.n, w.arg
    for i in range(6, -1, -1):
        argument = w.Y[i]
        for e in range(n):
            total = w.Y[0, e]
            for j in range(i):
                total += h * a.explicit[i, j] * w.k[j, e]
            argument[e] = total
        copy(argument, w.point)
        copy(w.bar[i], w.point[n:])
        out = w.of_argument[i]
        for e in range(n):
            out[e] = 0.0
        _add_pulled(a, w, a.pull, t + a.times[i] * h, inputs, out, g)
        for e in range(n):
            v = out[e] + (y_bar[e] if i == 6 else 0.0)  # the argument of the last stage is the new y
            lam[e] += v
            for j in range(i):
                w.bar[j, e] += h * a.explicit[i, j] * v


# --- stiff steps


def _take_stiff(c, a, w, t, h, y, inputs):
    """Repeat a stiff step to recover its stages, with W factored as a full matrix."""
    n, inverse, x = a.n, 1.0 / h, w.arg
    call(a.jacobian, t, y, inputs, w.J)
    for i in range(n):
        for j in range(n):
            w.B[i, j] = 0.0
        w.B[i, i] = 1.0 / (h * GAMMA)
    for e in range(len(a.rows)):
        w.B[a.rows[e], a.cols[e]] -= w.J[e]
    factor_block(w.B, w.exchange, w.y_new)
    copy(y, x)
    for s in range(8):
        begin_stage(s, inverse, y, w.k, x, w.k[s])
        copy(x, w.Y[s])
        call(c.rates, t + h if s > 4 else t + h * time_of(s), x, inputs, w.y_new)
        for i in range(n):
            w.k[s, i] += w.y_new[i] + h * weight_of(s) * w.J[len(a.rows) + i]
        solve_block(w.B, w.exchange, w.k[s])


def _read_stiff(a, w, x, weight, lam):
    for e in range(a.n):
        v = weight[e]
        w.arg[e] += x * v
        lam[e] += (1.0 - x) * v
        for s in range(8):
            K = a.polynomial[1, s] + x * (a.polynomial[2, s] + x * a.polynomial[3, s])
            w.bar[s, e] += x * (1.0 - x) * K * v


def _sweep_stiff(a, w, t, h, y, inputs, lam, g):
    n, n_pairs = a.n, 64
    for s in range(8):
        for e in range(n):
            w.of_argument[s, e] = 0.0
    for e in range(n):  # y_new = Y_7 + U_7
        w.of_argument[7, e] = w.arg[e]
        w.bar[7, e] += w.arg[e]
    for s in range(7, -1, -1):
        v, out = w.bar[s], w.of_argument[s]
        solve_block_transposed(w.B, w.exchange, v)
        copy(w.Y[s], w.point)
        copy(v, w.point[n:])
        _add_pulled(a, w, a.pull, t + h if s > 4 else t + h * time_of(s), inputs, out, g)
        copy(y, w.point)
        copy(w.k[s], w.point[n:])
        copy(v, w.point[2 * n :])
        w.point[3 * n] = h * weight_of(s)
        _add_pulled(a, w, a.bend, t, inputs, lam, g)
        for e in range(n):
            if s > 5:  # the argument of the last two stages is that of the stage before plus that stage
                w.of_argument[s - 1, e] += out[e]
            else:
                lam[e] += out[e]
            for j in range(s):
                w.bar[j, e] += a.stiff[8 * s + j] * out[e] + a.stiff[n_pairs + 8 * s + j] * v[e] / h
