# mypy: disallow-untyped-defs=false, allow-untyped-calls
"""Rodas5P, the stiff method of the compiled engine: a Rosenbrock method of orders 5 and 4 with eight stages.

One step of M y' = f(t, y) from (t, y) of size h, with W = M/(h gamma) - J, J = df/dy and f_t = df/dt at (t, y)::

    W U_s = f(t + c_s h, Y_s) + (M/h) sum_j C_sj U_j + h d_s f_t      Y_s = y + sum_j A_sj U_j,   s = 0, ..., 7
    y_new = Y_7 + U_7                                                 error = U_7

and between t and t + h, with K_r = sum_s H_rs U_s, the solution is y + x (y_new - y + (1 - x)(K_0 + x (K_1 + x K_2))).
It is stiffly accurate and a one-step method, so restarting after an event costs nothing.

Sensitivities are the exact derivative of the step at fixed h, with the same factors of W. For the parameter q and
S = dy/dq::

    W dU_s = J(Y_s) dY_s + f_q(Y_s) + (M/h) sum_j C_sj dU_j + (d/dy (J k + h d_s f_t)) S + d/dq (J k + h d_s f_t)

at k = U_s: the matrix in brackets, of second derivatives, is the same for all parameters.

A model is a set of C functions ``void f(double t, double* z, double* inputs, double* out)``:

    field      the rates of the states
    jacobian   the nonzero entries of J, followed by f_t
    slopes     the nonzero entries of J, followed by those of df/dq
    bend       z = [y, k, a, s] -> the entries of d/dy (J k + a f_t), followed by those of d/dq; s is the stage

For models of loops over arrays (`compiled.array_loop`) `slopes` and `bend` only prepare what `advance` needs.

`run` is compiled once for all models; everything specific to a model is in its plan.

References
----------
Steinebach, G. (2023). Construction of Rosenbrock-Wanner method Rodas5P. BIT Numer. Math. 63:27.
Hairer, E. and Wanner, G. (1996). Solving Ordinary Differential Equations II, 2nd ed., section IV.7.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from fmepy.compiled.dialect.types import structure
from fmepy.compiled.kernels import call, doubles, inner
from fmepy.compiled.rodas5p import D1, GAMMA, begin_stage, combine, time_of, weight_of
from fmepy.compiled.sparse_lu import (
    Pattern,
    add_product,
    add_row,
    factor,
    factor_block,
    misfit,
    solve,
    solve_all,
    solve_block,
    solve_block_all,
)
from fmepy.types import IntMatrix, IntVector

MOST_MISFIT, MOST_OFF = 1e-9, 1e-3
"""Largest residual of the equations of the first stage, relative and in units of the tolerance. Above both, W is
factored again with pivoting, and if that is no better a shorter step is tried."""
MOST_FULL = 400
"""Most states for which W is factored as a full matrix, which then takes some 10 ms."""

LENIENCE = 0.1
"""Weight of the errors of sensitivities; they then come out as small as those of the states, which stay well within."""

STEP, POLYNOMIAL = 0, 1
"""The tasks of `run`."""
T, H, UNTIL, RTOL, IS_KNOWN, FASTEST, IS_STIFF, ALWAYS, STEPS, WAIT, CALM, END, IS_FULL = range(13)
"""Indices in the room: the step; whether J is that at its start (1; -1: no powers of J are available either); the
largest |lambda|; the memory of the driver; whether the last step factored W as a full matrix."""
MEMORY = 13


class Stiff(NamedTuple):
    """The stiff method as a driver needs it: the address of `run` (0: none), that of a plan, and room."""

    run: int
    plan: int
    room: Any


def is_on(stiff):
    """Tell whether a run is currently using the stiff method."""
    return stiff.room[IS_STIFF] > 0.0


def take_step(stiff, t, h, t_new, inputs, y, y_new, k, c, rtol, atol):
    """Take a step, see `run`."""
    stiff.room[T], stiff.room[H], stiff.room[UNTIL], stiff.room[RTOL] = t, h, t_new, rtol
    call(stiff.run, STEP, stiff.plan, stiff.room, inputs, y, y_new, k, c, atol)


def prepare_stiff(stiff, inputs, y, y_new, k, c):
    """Set the coefficients c of the polynomial within the last step, and k[1] to its error, see `_set_error_inside`."""
    call(stiff.run, POLYNOMIAL, stiff.plan, stiff.room, inputs, y, y_new, k, c, c)


class StiffPlan(NamedTuple):
    """Everything that is specific to a model.

    Attributes
    ----------
    loop, size, n_algebraic : int
        The address of `run`, the size of a run's room, the number of algebraic states; a driver reads these three.
    field, jacobian, slopes, bend, advance, factor, solve, multiply : int
        Addresses of the model's functions, and of those of `compiled.unrolled_lu` or `compiled.band_lu`; 0: none.
    n, n_params, row, column : int
        States, parameters with sensitivities, and the strides of rows and columns of the sensitivities: parameters vary
        fastest, padded to an even number, but for a band states do.
    scales_at : int
        Index among the inputs where the scales of the sensitivities begin.
    lower, upper : int
        Diagonals of J below and above the main one if J is banded (`compiled.band_lu`), else -1.
    at : ndarray of int
        Where the arrays of a `Workspace` begin, see `compiled.stiff_plan.Entries.places`.
    order : ndarray of int, shape (n,) or (0,)
        Order of the states in the band.
    pattern : Pattern
    rows, cols : ndarray of int
        Rows and columns of the entries of J.
    of_f, of_bend_y, of_bend_q : ndarray of int, shape (2, n_entries)
        Rows and columns of the entries of df/dq, and of the two parts of `bend`.
    mass : ndarray of int, shape (n,)
        The diagonal of M: 1, or 0 for an algebraic state, whose equation is f_i = 0.
    """

    loop: int
    size: int
    n_algebraic: int
    field: int
    jacobian: int
    slopes: int
    bend: int
    advance: int
    factor: int
    solve: int
    multiply: int
    n: int
    n_params: int
    row: int
    column: int
    scales_at: int
    lower: int
    upper: int
    at: IntVector
    order: IntVector
    pattern: Pattern
    rows: IntVector
    cols: IntVector
    of_f: IntMatrix
    of_bend_y: IntMatrix
    of_bend_q: IntMatrix
    mass: IntVector


class Workspace(NamedTuple):
    """Arrays of a step.

    Attributes
    ----------
    inputs, scales, numbers : ndarray
        Inputs of the model; the scales of the sensitivities among them; the block that holds all arrays below.
    J : ndarray
        Entries of the Jacobian, then df/dt.
    LU, b, rest, v : ndarray
        The factors of W, scratch, scratch, the vector of the power iteration with J.
    full : ndarray, shape (n (n + 1),) or (0,)
        Factors of W as a full matrix, and its pivots.
    point : ndarray, shape (2 n + 2,)
        The argument of `bend`.
    U, V : ndarray, shape (8, n), (8, m)
        Stages of the states, and of the sensitivities.
    S, X : ndarray, shape (m,)
        Sensitivities at the start of the step, and at a stage.
    G, D : ndarray
        Output of `slopes` and of `bend`; for a band G is scratch.
    """

    inputs: Any
    scales: Any
    numbers: Any
    J: Any
    LU: Any
    b: Any
    rest: Any
    v: Any
    full: Any
    point: Any
    U: Any
    V: Any
    S: Any
    X: Any
    G: Any
    D: Any


def run(what: int, plan: int, room: int, inputs: int, y: int, y_new: int, stages: int, c: int, atol: int) -> None:
    """Take a step, or compute the polynomial of the last one; arrays are passed as addresses.

    The room holds the step to take. From y and the rates there, stages[0], it sets y_new, the rates there, stages[6],
    and the error, c[0]; all have an entry for each state, followed by those for each sensitivity. If the step cannot be
    taken the error is NaN.
    """
    p = structure(plan, StiffPlan)
    n, n_params, at = p.n, p.n_params, p.at
    m = at[8] - at[7]
    n_z, q = n * (1 + n_params), doubles(inputs, p.scales_at + n_params)
    M, R = doubles(room, MEMORY), doubles(room + 8 * MEMORY, at[13])
    w = Workspace(
        q, q[p.scales_at :], R, R[: at[1]], R[at[1] : at[2]], R[at[2] : at[3]], R[at[3] : at[4]], R[at[4] : at[5]],
        R[at[12] : at[13]], R[at[5] : at[6]], R[at[6] : at[7]].reshape((8, n)), R[at[7] : at[8]].reshape((8, m // 8)),
        R[at[8] : at[9]], R[at[9] : at[10]], R[at[10] : at[11]], R[at[11] : at[12]],
    )  # fmt: skip
    Y, Y_new, k, C = doubles(y, n_z), doubles(y_new, n_z), doubles(stages, 7, n_z), doubles(c, 4, n_z)
    if what == STEP:
        if M[IS_KNOWN] < 1.0:
            _begin(M, p, w, Y)
        if not _step(M, p, w, Y[:n], Y_new, k[0], C, k[6], doubles(atol, n)):
            C[0, 0] = math.nan
    else:
        _polynomial(p, w, Y, Y_new, C)
        _set_error_inside(M, p, w, Y, C, k[1], k[2])


def _begin(M, p, w, y):
    """Evaluate J and f_t at the start of a step, copy the sensitivities, and do one power iteration for |lambda|."""
    n = p.n
    call(p.jacobian, M[T], y, w.inputs, w.J)
    for i in range(n):
        w.point[i] = y[i]
        w.b[i] = 0.0
        w.v[i] = w.v[i] if M[IS_KNOWN] == 0.0 else 0.0
        for q in range(p.n_params):
            w.S[i * p.row + q * p.column] = y[(1 + q) * n + i]
    _multiply(p, w, w.v, w.b, w.rest)
    size, length = math.sqrt(inner(w.b, w.b, 0, n)), math.sqrt(n)
    M[FASTEST] = size if M[IS_KNOWN] == 0.0 else math.inf  # not known yet
    for i in range(n):
        w.v[i] = w.b[i] / size if size > 0.0 else (1.0 - 2.0 * (i % 2) + 0.1 * (i % 5)) / length
    M[IS_KNOWN] = 1.0


def _step(M, p, w, y, y_new, f, C, f_new, atol):
    """Take the step; return whether it could be taken. C[1] and C[2] are scratch."""
    n, n_params, U, V, S, X, error = p.n, p.n_params, w.U, w.V, w.S, w.X, C[0]
    t, h, n_J = M[T], M[H], len(w.J) - n
    g, inverse, x = 1.0 / (h * GAMMA), 1.0 / h, C[1][:n]
    J, f_t = w.J[:n_J], w.J[n_J:]
    for i in range(n):
        x[i], w.b[i] = y[i], f[i] + h * D1 * f_t[i]
    if not _first_stage(M, p, w, g, J, y, C[2], atol):
        return False
    if n_params > 0:
        begin_stage(0, inverse, S, V, X, V[0])
        _stage_of_sensitivities(0, t, t, h * D1, M, p, w, x, V[0])
    for s in range(1, 8):
        at, d = M[UNTIL] if s > 4 else t + h * time_of(s), h * weight_of(s)
        begin_stage(s, inverse, y, U, x, U[s])
        if M[ALWAYS] > 0.0:
            for i in range(n):
                U[s, i] = U[s, i] if p.mass[i] != 0 else 0.0
        call(p.field, at, x, w.inputs, w.rest)
        for i in range(n):
            U[s, i] += w.rest[i]
        if d != 0.0:
            for i in range(n):
                U[s, i] += d * f_t[i]
        _solve(M, p, w, U[s])
        if n_params > 0:
            begin_stage(s, inverse, S, V, X, V[s])
            _stage_of_sensitivities(s, t, at, d, M, p, w, x, V[s])
    for i in range(n):
        y_new[i] = x[i] + U[7, i]
        error[i] = U[7, i]
    for q in range(n_params):
        for i in range(n):
            j = i * p.row + q * p.column
            y_new[(1 + q) * n + i] = X[j] + V[7, j]
            error[(1 + q) * n + i] = LENIENCE * V[7, j]
    call(p.field, M[UNTIL], y_new, w.inputs, f_new)
    for i in range(n):  # noqa: SIM110    # a kernel has no all()
        if not abs(f_new[i]) < math.inf:
            return False
    return True


def _first_stage(M, p, w, g, J, y, size, atol):
    """Factor W and solve W U_0 = b; return whether the residual is small enough. `size` is scratch."""
    n = len(y)
    for attempt in range(2):
        M[IS_FULL], is_good = attempt, False
        if attempt > 0:
            if len(w.full) == 0:
                return False
            _factor_full(p, w, g, J, w.full[: n * n].reshape((n, n)))
        elif p.lower >= 0:
            call(p.factor, g, J, w.LU, n, w.rest)
            is_good = w.rest[0] > 0.0
        elif p.factor != 0:
            call(p.factor, g, J, J, w.LU)
        else:
            factor(g, p.mass, J, p.pattern, w.LU, w.rest)
        for i in range(n):
            w.U[0, i] = w.b[i]
        _solve(M, p, w, w.U[0])
        if is_good:
            return True
        for i in range(n):
            size[i] = g * MOST_OFF / MOST_MISFIT * (atol[i] + M[RTOL] * abs(y[i]))
            w.rest[i] = 0.0
        _multiply(p, w, w.U[0], w.rest, size)
        if misfit(g, p.mass, w.U[0], w.b, w.rest, size) <= MOST_MISFIT:
            return True
    return False


def _multiply(p, w, x, out, sizes):
    """Add J x to `out`, and |J| |x| to `sizes`."""
    if p.lower >= 0:
        call(p.multiply, w.J, p.order, w.G, x, out, sizes, p.n)
    else:
        add_product(w.J, p.rows, p.cols, x, out, sizes)


def _factor_full(p, w, g, J, B):
    """Factor W as a full matrix, with partial pivoting."""
    n = len(B)
    for i in range(n):
        for j in range(n):
            B[i, j] = 0.0
        B[i, i] = g if p.mass[i] != 0 else 0.0
    for e in range(len(J)):
        B[p.rows[e], p.cols[e]] -= J[e]
    factor_block(B, w.full[n * n :], w.rest)


def _solve(M, p, w, x):
    """Solve W u = x in place."""
    n = len(x)
    if M[IS_FULL] > 0.0:
        solve_block(w.full[: n * n].reshape((n, n)), w.full[n * n :], x)
    elif p.lower >= 0:
        call(p.solve, w.LU, p.order, w.rest, x, n, 1)
    elif p.solve != 0:
        call(p.solve, 0.0, w.LU, w.LU, x)
    else:
        solve(p.pattern, w.LU, x, w.rest)


def _stage_of_sensitivities(s, t, at, d, M, p, w, x, B):
    """Set B to dU_s, for every parameter, from its sum over stages; w.X is the derivative of the stage's argument x."""
    n = p.n
    w.point[2 * n], w.point[2 * n + 1] = d, s
    for i in range(n):
        w.point[n + i] = w.U[s, i]
        if p.mass[i] == 0:
            for q in range(p.n_params):
                B[i * p.row + q * p.column] = 0.0
    if s == 0 or p.lower < 0:  # for a band `field` has just computed them at x
        call(p.slopes, at, x, w.inputs, w.G)
    call(p.bend, t, w.point, w.inputs, w.D)
    _advance(M, p, w, B)


def _advance(M, p, w, B):
    """Replace B by the solution of W x = B + J X + df/dq + D S + ...; G holds J and df/dq, D the second derivatives."""
    n, n_J, n_by = p.n, len(p.rows), p.of_bend_y.shape[1]
    if p.lower >= 0:
        call(p.advance, 0.0, w.numbers, w.inputs, B)
        call(p.solve, w.LU, p.order, w.G, B, n, p.n_params)
        return
    if p.advance != 0 and M[IS_FULL] == 0.0:
        call(p.advance, 0.0, w.numbers, w.inputs, B)
        return
    by_row, X, S = B.reshape((n, p.row)), w.X.reshape((n, p.row)), w.S.reshape((n, p.row))
    for e in range(n_J):
        add_row(by_row, p.rows[e], w.G[e], X, p.cols[e])
    for e in range(p.of_f.shape[1]):
        by_row[p.of_f[0, e], p.of_f[1, e]] += w.G[n_J + e] * w.scales[p.of_f[1, e]]
    for e in range(n_by):
        add_row(by_row, p.of_bend_y[0, e], w.D[e], S, p.of_bend_y[1, e])
    for e in range(p.of_bend_q.shape[1]):
        by_row[p.of_bend_q[0, e], p.of_bend_q[1, e]] += w.D[n_by + e] * w.scales[p.of_bend_q[1, e]]
    if M[IS_FULL] > 0.0:
        solve_block_all(w.full[: n * n].reshape((n, n)), w.full[n * n :], None, by_row)
    else:
        solve_all(p.pattern, w.LU, by_row)


def _polynomial(p, w, y, y_new, c):
    """Set the coefficients of the polynomial of the last step, in the form of `dormand_prince.dense`."""
    n = p.n
    for i in range(len(y)):
        c[0, i] = y_new[i] - y[i]
    combine(w.U, 0, 1, c[1, :n], c[2, :n], c[3, :n])
    for q in range(p.n_params):
        a, b = (1 + q) * n, (2 + q) * n
        combine(w.V, q * p.column, p.row, c[1, a:b], c[2, a:b], c[3, a:b])


def _set_error_inside(M, p, w, y, c, error, x):
    """Estimate the error of the polynomial in the middle of the step; x is scratch.

    Stiff components are right at the end of a step of any length, so the error there says nothing about the inside. The
    defect in the middle (slope of the polynomial less the rates) does, after solving the equations of a stage with it.
    """
    n, middle = p.n, M[T] + 0.5 * M[H]
    for i in range(len(y)):
        x[i] = y[i] + 0.5 * (c[0, i] + 0.5 * (c[1, i] + 0.5 * (c[2, i] + 0.5 * c[3, i])))
        error[i] = (c[0, i] + 0.25 * c[2, i]) / M[H] if p.mass[i % n] != 0 else 0.0
    call(p.field, middle, x, w.inputs, w.b)
    for i in range(n):
        error[i] -= w.b[i]
    _solve(M, p, w, error[:n])
    if p.n_params == 0:
        return
    B = w.V[0]
    for q in range(p.n_params):
        for i in range(n):
            at = i * p.row + q * p.column
            w.X[at], B[at] = x[(1 + q) * n + i], -error[(1 + q) * n + i]
    for e in range(len(w.D)):
        w.D[e] = 0.0
    call(p.slopes, middle, x, w.inputs, w.G)
    _advance(M, p, w, B)
    for i in range(n):
        for q in range(p.n_params):
            error[(1 + q) * n + i] = B[i * p.row + q * p.column]
