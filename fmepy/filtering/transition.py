# mypy: disallow-untyped-defs=false, allow-untyped-calls
"""One step of a filter's state: its next value, the tangent of the map, and the covariance of the noise in between.

For one time step h from x, with F = df/dx along the step and A A' = G Q G'::

    DIFFERENCE   f = next x, Phi = F;  S = A A'
    EULER        x + h f, Phi = I + h F;  S = A A' h (Brownian), A A' h^2 (per step)
    RK4          Runge and Kutta's step and its tangent; S by the same stages, S' = F S + S F' + A A' from S = 0
                 (Brownian: of fourth order in h), or A A' h^2 (per step)
    RK4_MOMENTS  the same for x; P' = F P + P F' + A A' by the same stages
    ADAPTIVE     x' = f, Phi' = F Phi, S' = F S + S F' + A A' together by Dormand and Prince's method
    MOMENTS      the same with S = P at the beginning
    EXACT        x' = M x + b with constant coefficients: exact, see `_exact`
    BY_FUNCTION  as DIFFERENCE; MOMENTS_BY_FUNCTION: A holds P and becomes the next P: solvers called from Python

In the kinds of moments S holds P and becomes the next P. Stiff steps, of more than STIFF of the fastest time constants
or of more than MOST_STEPS, are left to a solver that is called from Python.

References
----------
Van Loan (1978), IEEE Trans. Autom. Control 23:395. Osborne (1960), J. ACM 7:338. Moler & Van Loan (2003), SIAM Rev. 45.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fmepy.compiled.dormand_prince import drive
from fmepy.compiled.kernels import call, copy, new
from fmepy.compiled.status import DONE, WORK
from fmepy.filtering.arrays import are_equal, clear, copy_matrix, identity, left_multiply, multiply
from fmepy.types import Cube, Matrix, Vector

DIFFERENCE, EULER, RK4, RK4_MOMENTS, ADAPTIVE, MOMENTS, EXACT, BY_FUNCTION, MOMENTS_BY_FUNCTION = range(9)

CARRYING = (RK4_MOMENTS, MOMENTS, MOMENTS_BY_FUNCTION)
"""Kinds of steps that take P and return the next P."""
MOST_STEPS = 400
"""Most steps in one stretch: a system that needs more is stiff."""
STIFF = 300.0
"""Longest stretch, in units of the fastest time constant; longer ones are left to other engines at once."""
CACHED_STEPS = 16
"""Lengths of steps whose exact transition is stored."""
TERMS = 14
"""Terms of a series whose operator has a norm of 1/2: what is left out is smaller than 2^-15 / 15! < 1e-16."""


class StepTolerances(NamedTuple):
    """Tolerances of the explicit method; see `loop_arguments.LoopModel`."""

    rtol: float
    max_step: float
    atol: Vector


class TransitionWorkspace(NamedTuple):
    """Working arrays of a transition; F and A keep the zeros that a model never writes.

    Attributes
    ----------
    f : ndarray, shape (1 or 4, n)
        Rates at the stages.
    F : ndarray, shape (4 or 7, n, n)
        Tangents at the stages; behind those of Runge and Kutta's the derivatives of the later rates to x.
    A : ndarray, shape (1 or 4, n, n_noise)
    B : ndarray, shape (3, n, n)
    runs : ndarray, shape (WORK + 3, n + 2 n^2)
        Where the explicit method works; then its start, its end, its tolerances.
    marks : ndarray, shape (2, 0)
        Conditions, of which there are none.
    last : ndarray, shape (3 + n_forcing,)
        The last step of the explicit method; how many exact transitions were computed; where a step ends; forcings.
    exact : ndarray, shape (CACHED_STEPS, 2 n + 2, n)
        Phi, S, the shift, and the length they belong to.
    """

    f: Matrix
    F: Cube
    A: Cube
    B: Cube
    runs: Matrix
    marks: Matrix
    last: Vector
    exact: Cube


def workspace(kind, n, n_noise, n_forcings):
    """Return the working arrays of transitions of one kind."""
    stages = 4 if kind in (RK4, RK4_MOMENTS) else 1
    nz = n + 2 * n * n if is_adaptive(kind) else 0
    return TransitionWorkspace(
        new(stages, n),
        new(stages + 3, n, n),
        new(stages, n, n_noise),
        new(3, n, n),
        new(WORK + 3, nz),
        new(2, 0),
        new(3 + n_forcings),
        new(CACHED_STEPS if kind == EXACT else 0, 2 * n + 2, n),
    )


def carries_covariance(kind):
    """Tell whether a kind of step takes P and returns the next P."""
    return kind in CARRYING


def is_adaptive(kind):
    """Tell whether a kind of step is that of the explicit method."""
    return kind in (ADAPTIVE, MOMENTS)


def factor_of_noise(kind, per_step, h):
    """Return a with S = (a A) (a A)', where the model's own A gives the noise of a step; else 0."""
    if kind in (DIFFERENCE, BY_FUNCTION):
        return 1.0
    if kind == EULER or (kind == RK4 and per_step):
        return h if per_step else np.sqrt(h)
    return 0.0


def _noise_covariance(A, factor, S):
    """Set S to factor^2 A A'. Zeros of A are skipped."""
    n = S.shape[0]
    clear(S)
    for k in range(A.shape[1]):
        for i in range(n):
            a = factor * factor * A[i, k]
            if a != 0.0:
                for j in range(n):
                    S[i, j] += a * A[j, k]


def _tangent(F, T, h, K):
    """Set K to F (I + h T)."""
    n = F.shape[0]
    copy_matrix(F, K)
    for i in range(n):
        for k in range(n):
            f = h * F[i, k]
            if f != 0.0:
                for j in range(n):
                    K[i, j] += f * T[k, j]


def covariance_rate(F, A, S, K):
    """Set K to F S + S F' + A A'."""
    n = S.shape[0]
    multiply(F, S, n, K, 0)
    for i in range(n):
        for j in range(i + 1):
            total = K[i, j] + K[j, i]
            for k in range(A.shape[1]):
                total += A[i, k] * A[j, k]
            K[i, j] = total
            K[j, i] = total


def _covariance_by_stages(h, F, A, P, S, K, total):
    """Carry P by Runge and Kutta's step for P' = F P + P F' + A A', with F and A at the stages of the state's own step.

    From P = 0 it is the integral of the noise. S, K, total are work space of P's shape.
    """
    n = P.shape[0]
    for stage in range(4):
        width = h if stage == 3 else 0.5 * h
        for i in range(n):
            for j in range(n):
                S[i, j] = P[i, j] + (width * K[i, j] if stage > 0 else 0.0)
        covariance_rate(F[stage], A[stage], S, K)
        weight = h / 6 if stage == 0 or stage == 3 else h / 3
        for i in range(n):
            for j in range(n):
                total[i, j] = weight * K[i, j] + (total[i, j] if stage > 0 else 0.0)
    for i in range(n):
        for j in range(n):
            P[i, j] += total[i, j]


def _runge_kutta(advance, kind, per_step, t, h, u, x, p, y, Phi, S, w):
    n, f, F, K = x.shape[0], w.f, w.F, w.F[4:]
    call(advance, t, h, x, p, u[0], f[0], F[0], w.A[0])
    for i in range(1, 4):
        at = 2 if i == 3 else 1  # of the forcings: the middle, the middle, the end
        width = 0.5 * at * h
        for j in range(n):
            y[j] = x[j] + width * f[i - 1, j]
        call(advance, t + width, h, y, p, u[at], f[i], F[i], w.A[i])
        _tangent(F[i], F[0] if i == 1 else K[i - 2], width, K[i - 1])
    for i in range(n):
        y[i] = x[i] + h / 6 * (f[0, i] + 2 * (f[1, i] + f[2, i]) + f[3, i])
        for j in range(n):
            Phi[i, j] = h / 6 * (F[0, i, j] + 2 * (K[0, i, j] + K[1, i, j]) + K[2, i, j])
        Phi[i, i] += 1.0
    if kind == RK4 and per_step:
        _noise_covariance(w.A[0], h, S)
        return
    if kind == RK4:
        clear(S)
    _covariance_by_stages(h, F, w.A, S, w.B[0], w.B[1], w.B[2])


def _rates(t, z, model, out):
    """Set out to z', z = [x, Phi by rows, S by rows]."""
    advance, p, u, start, h, w = model
    F, A, inputs = w.F[0], w.A[0], w.last[3:]
    n = F.shape[0]
    at = n + n * n
    for i in range(inputs.shape[0]):  # a step reaches over no kink of a forcing: a straight line
        inputs[i] = u[0, i] + (u[2, i] - u[0, i]) * ((t - start) / h)
    call(advance, t, 0.0, z[:n], p, inputs, out[:n], F, A)
    multiply(F, z[n:at].reshape((n, n)), n, out[n:at].reshape((n, n)), 0)
    covariance_rate(F, A, z[at:].reshape((n, n)), out[at:].reshape((n, n)))


def _balanced_norm(F, B):
    """Return the norm of F in units that balance its rows and columns (Osborne 1960): a bound of its eigenvalues."""
    n = F.shape[0]
    for i in range(n):
        for j in range(n):
            B[i, j] = abs(F[i, j])
    for _ in range(5):
        for i in range(n):
            row, column = 0.0, 0.0
            for j in range(n):
                if j != i:
                    row += B[i, j]
                    column += B[j, i]
            if row > 0.0 and column > 0.0:
                unit = np.sqrt(row / column)
                for j in range(n):
                    if j != i:
                        B[i, j] /= unit
                        B[j, i] *= unit
    largest = 0.0
    for i in range(n):
        total = 0.0
        for j in range(n):
            total += B[i, j]
        largest = max(largest, total)
    return largest


def size_of_spread(m, t, h, u, x, p, P, w):
    """Return the largest variance of the noise of a step, or of P: entries are exact to a part of that; 0: stiff."""
    A, size = w.A[0], 0.0
    call(m.advance, t, 0.0, x, p, u[0], w.f[0], w.F[0], A)
    if not _balanced_norm(w.F[0], w.F[1]) * h < STIFF:
        return 0.0
    for i in range(P.shape[0]):
        total = 0.0
        for q in range(A.shape[1]):
            total += A[i, q] * A[i, q]
        size = max(size, total * h, P[i, i])
    return size if size > 0.0 and size < np.inf else 1.0


def _explicit(m, t, h, u, x, p, y, Phi, S, w, size):
    """Integrate state, tangent and noise (or P) over a step; return whether that succeeded."""
    n = x.shape[0]
    at, z, atol, done = n + n * n, w.runs[WORK], w.runs[WORK + 2], w.runs[WORK + 1 : WORK + 2]
    copy(x, z)
    identity(z[n:at].reshape((n, n)))
    copy_matrix(S, z[at:].reshape((n, n)))
    for i in range(z.shape[0]):
        atol[i] = m.atol[i] * (size if i >= at else 1.0)
    most = MOST_STEPS + int(min(h / m.max_step, 1e6))
    w.last[2] = t + h
    status, _, _, w.last[0] = drive(
        _rates, None, (m.advance, p, u, t, h, w), t, min(w.last[0], h), z, w.last[2:3], 1,
        m.rtol, atol, m.max_step, most, done, w.runs, w.marks, None, None,
    )  # fmt: skip
    if status != DONE:
        w.last[0] = 0.0
        return False
    end = done[0]
    copy(end[:n], y)
    copy_matrix(end[n:at].reshape((n, n)), Phi)
    copy_matrix(end[at:].reshape((n, n)), S)
    return True


def _through_conditions(m, t, h, u, x, p, y, Phi, S, w, size):
    """Integrate them over a step through the conditions of the model; return whether that succeeded."""
    n, g, inputs, z, end = x.shape[0], m.crossings, m.crossings.inputs[0], m.crossings.values, t + h
    at, n_cuts, k = n + n * n, g.cuts.shape[0], 0
    copy(x, z[:n])
    identity(z[n:at].reshape((n, n)))
    for i in range(n):
        for j in range(i + 1):
            z[at + i * (i + 1) // 2 + j] = S[i, j] / (size * size)
    copy(p[: g.n_parameters], inputs[: g.n_parameters])
    inputs[g.n_parameters] = size
    while k < n_cuts and g.cuts[k] <= t + 1e-12 * abs(t):
        k += 1
    begin = t
    while begin < end:
        next_cut = g.cuts[k] if k < n_cuts else end
        g.begins[0], g.ends[0] = begin, end if next_cut >= end - 1e-12 * abs(end) else next_cut
        for i in range(u.shape[1]):
            slope = (u[2, i] - u[0, i]) / h
            inputs[g.lines + 2 * i], inputs[g.lines + 2 * i + 1] = u[0, i] + slope * (begin - t), slope
        inputs[g.origin] = begin
        for i in range(g.planned.shape[0]):
            inputs[g.first_mode + g.planned[i]] = g.modes[k, i]
        call(g.loop, g.course, g.runs, g.switches)
        if g.ended[0, 0] != DONE:
            g.ended[0, 1] = 0.0
            return False
        begin = g.ends[0]
        k += 1
    copy(z[:n], y)
    copy_matrix(z[n:at].reshape((n, n)), Phi)
    for i in range(n):
        for j in range(i + 1):
            S[i, j] = z[at + i * (i + 1) // 2 + j] * (size * size)
            S[j, i] = S[i, j]
    return True


def exact_parts(M, b, A, h, E, B, C):
    """Set E, shape (2 n + 1, n), to Phi, S and the shift of x' = M x + b with noise A A' over a step of length h.

    For a step short enough (a norm of at most 1/4, halved so often) they are series,

        Phi = sum M^k h^k / k!,   shift = sum M^k b h^(k+1) / (k+1)!,   S = sum L^k(A A') h^(k+1) / (k+1)!

    with L(X) = M X + X M': the blocks of Van Loan's exponential, each for itself. The rest is doubling, S(2h) = S(h) +
    Phi S Phi', which keeps S a covariance however stiff M is. B, C are work space (n, n).
    """
    n = M.shape[0]
    Phi, S, shift = E[:n], E[n : 2 * n], E[2 * n]
    norm = 0.0
    for i in range(n):
        total = 0.0
        for j in range(n):
            total += abs(M[i, j])
        norm = max(norm, total * h)
    if not norm < 1e300:
        for i in range(2 * n + 1):
            for j in range(n):
                E[i, j] = np.nan
        return
    doublings = max(0, int(np.ceil(np.log2(4.0 * norm)))) if norm > 0.0 else 0
    short = h / 2.0**doublings
    _noise_covariance(A, np.sqrt(short), C)
    identity(Phi)
    copy_matrix(C, S)
    for i in range(n):
        shift[i] = short * b[i]
    for k in range(1, TERMS + 1):  # the terms of S
        multiply(M, C, n, B, 0)
        for i in range(n):
            for j in range(n):
                C[i, j] = (B[i, j] + B[j, i]) * (short / (k + 1))
                S[i, j] += C[i, j]
    identity(C)
    for k in range(1, TERMS + 1):  # those of Phi
        multiply(M, C, n, B, 0)
        for i in range(n):
            for j in range(n):
                C[i, j] = B[i, j] * (short / k)
                Phi[i, j] += C[i, j]
                shift[i] += C[i, j] * b[j] * (short / (k + 1))
    for _ in range(doublings):
        multiply(Phi, S, n, B, 0)
        for i in range(n):
            C[i, 0] = 0.0
            for j in range(n):
                C[i, 0] += Phi[i, j] * shift[j]
        for i in range(n):
            shift[i] += C[i, 0]
        for i in range(n):
            for j in range(i + 1):
                total = S[i, j]
                for k in range(n):
                    total += B[i, k] * Phi[j, k]
                S[i, j] = total
                S[j, i] = total
        left_multiply(Phi, Phi, B)


def _exact(advance, t, h, u, x, p, y, Phi, S, w):
    """Take the exact step; the parts that depend on its length alone are computed once in a pass."""
    n, known, slot = x.shape[0], int(w.last[1]), -1
    for i in range(min(known, CACHED_STEPS)):
        if w.exact[i, 2 * n + 1, 0] == h:
            slot = i
    if slot < 0:
        slot = known % CACHED_STEPS
        w.last[1] = known + 1
        E = w.exact[slot]
        E[2 * n + 1, 0] = h
        for i in range(n):
            y[i] = 0.0
        call(advance, t, 0.0, y, p, u[0], w.f[0], w.F[0], w.A[0])  # at x = 0: f = b, F = M
        exact_parts(w.F[0], w.f[0], w.A[0], h, E, w.F[1], w.F[2])
    E = w.exact[slot]
    copy_matrix(E[:n], Phi)
    copy_matrix(E[n : 2 * n], S)
    for i in range(n):
        y[i] = E[2 * n, i]
        for j in range(n):
            y[i] += Phi[i, j] * x[j]


def _by_solver(m, t, h, u, x, p, y, Phi, S, w):
    """Let another solver take the step: it sets Phi, and a factor of the noise's covariance (or P to the next P)."""
    Phi2, A = w.F[2], w.F[3]
    if m.kind == MOMENTS:
        copy_matrix(S, A)
    call(m.solver, t, h, x, p, u[0], w.f[0], Phi2, A)
    copy(w.f[0], y)
    copy_matrix(Phi2, Phi)
    if m.kind == MOMENTS:
        copy_matrix(A, S)
    else:
        _noise_covariance(A, 1.0, S)


def transition(m, t, h, u, x, p, y, Phi, S, w, known_A, known_S):
    """Set y to the next state, Phi to the tangent, S to the covariance of the noise (or from P to the next P).

    m is a `loop_arguments.LoopModel`, u the forcings at the stages of the step, w the working arrays; known_S is the
    covariance of a step of this length at known_A, or both are None.
    """
    n, kind, f, F, A = x.shape[0], m.kind, w.f, w.F[0], w.A[0]
    if is_adaptive(kind):
        if kind != MOMENTS:
            clear(S)
        size, is_done = size_of_spread(m, t, h, u, x, p, S, w), False
        if size > 0.0 and m.crossings.loop != 0:
            is_done = _through_conditions(m, t, h, u, x, p, y, Phi, S, w, size)
        elif size > 0.0:
            is_done = _explicit(m, t, h, u, x, p, y, Phi, S, w, size)
        if not is_done:
            _by_solver(m, t, h, u, x, p, y, Phi, S, w)
        return
    if kind == EXACT:
        _exact(m.advance, t, h, u, x, p, y, Phi, S, w)
        return
    if kind in (RK4, RK4_MOMENTS):
        _runge_kutta(m.advance, kind, m.per_step, t, h, u, x, p, y, Phi, S, w)
        return
    if kind == MOMENTS_BY_FUNCTION:
        copy_matrix(S, A)
    call(m.advance, t, h, x, p, u[0], f[0], F, A)
    if kind == MOMENTS_BY_FUNCTION:
        copy_matrix(A, S)
    elif known_A is not None and are_equal(A, known_A):
        copy_matrix(known_S, S)
    else:
        _noise_covariance(A, factor_of_noise(kind, m.per_step, h), S)
    for i in range(n):
        y[i] = x[i] + h * f[0, i] if kind == EULER else f[0, i]
        for j in range(n):
            Phi[i, j] = h * F[i, j] if kind == EULER else F[i, j]
        if kind == EULER:
            Phi[i, i] += 1.0
