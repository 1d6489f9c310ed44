# mypy: disallow-untyped-defs=false, allow-untyped-calls
"""State, covariance and their derivatives to all parameters over one step of the adaptive method: one system of rates.

With F, A of `filtering.transition` and a dot for the derivative along one parameter::

    x' = f,   P' = F P + P F' + A A'
    x.' = f.,   P.' = F P. + P. F' + F. P + P F.' + (A A').

f., F. and (A A'). are differences of the model's own functions along (x., 1). The steps are those that x and P ask for,
and so what comes out is the derivative of the numbers that come out, at steps that stay as they are. A pass without
derivatives carries Phi and the integral of the noise in the place of P, which is the same within the tolerance.
"""

from __future__ import annotations

from typing import NamedTuple

from fmepy.compiled.dormand_prince import drive
from fmepy.compiled.kernels import call, new
from fmepy.compiled.status import DONE, WORK
from fmepy.filtering.arrays import add_multiple, add_multiples, cleared, copied_vector, products
from fmepy.filtering.transition import MOST_STEPS, size_of_spread
from fmepy.types import Cube, Matrix, Vector

IGNORED = 1e300
"""The tolerance of derivatives, of which the steps know nothing."""


class MomentSpace(NamedTuple):
    """Where it works.

    Attributes
    ----------
    runs : ndarray, shape (WORK + 3, (n + n^2) (1 + width))
        See `transition.TransitionSpace`. A row is x, P by rows, and then the derivatives, parameters innermost.
    f, F, A : ndarray, shape (2, n), (2, n, n), (2, n, n_noise)
        What the model's functions give ahead and behind.
    x, M : ndarray, shape (n,), (3, n, n)
        Room.
    N : ndarray, shape (n, n, width)
    """

    runs: Matrix
    f: Matrix
    F: Cube
    A: Cube
    x: Vector
    M: Cube
    N: Cube


def moment_space(n, n_noise, width):
    """Return where a step works, of derivatives in rows of a padded length."""
    nz = (n + n * n) * (1 + width)
    return MomentSpace(
        new(WORK + 3, nz), new(2, n), new(2, n, n), new(2, n, n_noise), new(n), new(3, n, n), new(n, n, width)
    )


def carry_moments(m, p, at, dx, dP, t, h, u, x, P, y, w, k):
    """Carry x, to y, P and the derivatives over a step of length h; return whether the method could do it.

    m is a `loop_arguments.LoopModel`, `at` the `tangents.Directions`, u the forcings at the stages; of dP the lower
    triangles are read and written.
    """
    n, width = dx.shape
    begin, end = n + n * n, n + n * n + n * width
    z, done, atol = k.runs[WORK], k.runs[WORK + 1 : WORK + 2], k.runs[WORK + 2]
    size = size_of_spread(m, t, h, u, x, p, P, w)
    if size == 0.0:
        return False
    for i in range(z.shape[0]):
        atol[i] = m.atol[i] if i < n else m.atol[n * n + i] * size if i < begin else IGNORED
    _packed_moments(x, P, dx, dP, z)
    most = MOST_STEPS + int(min(h / m.max_step, 1e6))
    w.last[2] = t + h
    told, _, _, w.last[0] = drive(
        _moment_rates, None, (m.advance, p, at, u, t, h, w, k), t, min(w.last[0], h), z, w.last[2:3], 1,
        m.rtol, atol, m.max_step, most, done, k.runs, w.marks, None, None,
    )  # fmt: skip
    if told != DONE:
        w.last[0] = 0.0
        return False
    row = done[0]
    copied_vector(row[:n], y)
    for i in range(n):
        for j in range(n):
            P[i, j] = row[n + i * n + j]
            copied_vector(row[end + (i * n + j) * width : end + (i * n + j + 1) * width], dP[i, j])
        copied_vector(row[begin + i * width : begin + (i + 1) * width], dx[i])
    return True


def _packed_moments(x, P, dx, dP, z):
    n, width = dx.shape
    begin, end = n + n * n, n + n * n + n * width
    for i in range(n):
        z[i] = x[i]
        copied_vector(dx[i], z[begin + i * width :])
        for j in range(n):
            z[n + i * n + j] = P[i, j]
            copied_vector(dP[max(i, j), min(i, j)], z[end + (i * n + j) * width :])


def _moment_rates(t, z, model, out):
    """Set out to z'."""
    advance, p, at, u, start, h, w, k = model
    F, A, inputs, M = w.F[0], w.A[0], w.last[3:], k.M[0]
    n, n_par, width = F.shape[0], at.ahead.shape[0], k.N.shape[2]
    begin, end = n + n * n, n + n * n + n * width
    P, dx, dP = z[n:begin].reshape((n, n)), z[begin:end].reshape((n, width)), z[end:].reshape((n, n, width))
    to_P, to_dx, to_dP = (
        out[n:begin].reshape((n, n)), out[begin:end].reshape((n, width)), out[end:].reshape((n, n, width))
    )  # fmt: skip
    for i in range(inputs.shape[0]):  # a step reaches over no kink of a forcing: a straight line
        inputs[i] = u[0, i] + (u[2, i] - u[0, i]) * ((t - start) / h)
    call(advance, t, 0.0, z[:n], p, inputs, out[:n], F, A)
    products(F, P, n, M, 0)
    _symmetric(M, A, to_P)
    for i in range(n):
        cleared(k.N[i])
        for c in range(n):
            f = F[i, c]
            if f != 0.0:
                for j in range(n):
                    add_multiple(k.N[i, j], f, dP[c, j])
        for q in range(n_par, width):  # of nothing
            to_dx[i, q] = 0.0
            for j in range(i + 1):
                to_dP[i, j, q] = 0.0
    for q in range(n_par):
        _difference(t, z, advance, p, at, inputs, q, dx, P, out, w, k)
        for i in range(n):
            to_dx[i, q] = k.x[i]
            for j in range(i + 1):
                to_dP[i, j, q] = k.M[1, i, j]
    for i in range(n):
        for j in range(i + 1):
            add_multiples(to_dP[i, j], 1.0, k.N[i, j], 1.0, k.N[j, i])
            copied_vector(to_dP[i, j], to_dP[j, i])


def _symmetric(M, A, out):
    """Set out to M + M' + A A'."""
    for i in range(M.shape[0]):
        for j in range(i + 1):
            total = M[i, j] + M[j, i]
            for c in range(A.shape[1]):
                total += A[i, c] * A[j, c]
            out[i, j] = total
            out[j, i] = total


def _difference(t, z, advance, p, at, inputs, q, dx, P, out, w, k):
    """Set k.x to f. of parameter q, k.M[1] to F. P + P F.' + (A A')., its lower triangle."""
    n, width = P.shape[0], at.ahead[q] - at.behind[q]
    for side in range(2):
        distance, F, A = at.ahead[q] if side == 0 else at.behind[q], k.F[side], k.A[side]
        if distance == 0.0:
            copied_vector(out[:n], k.f[side])
            for i in range(n):
                copied_vector(w.F[0, i], F[i])
                copied_vector(w.A[0, i], A[i])
        else:
            for i in range(n):
                k.x[i] = z[i] + distance * dx[i, q]
            moved = at.p_ahead[q] if side == 0 else at.p_behind[q]
            call(advance, t, 0.0, k.x, moved, inputs, k.f[side], F, A)
    M, D = k.M[1], k.M[2]
    for i in range(n):
        k.x[i] = (k.f[0, i] - k.f[1, i]) / width
        for j in range(n):
            D[i, j] = 0.0
        for c in range(n):
            f = (k.F[0, i, c] - k.F[1, i, c]) / width
            if f != 0.0:
                for j in range(n):
                    D[i, j] += f * P[c, j]
    for i in range(n):
        for j in range(i + 1):
            total = D[i, j] + D[j, i]
            for c in range(k.A.shape[2]):
                total += (k.A[0, i, c] * k.A[0, j, c] - k.A[1, i, c] * k.A[1, j, c]) / width
            M[i, j] = total
