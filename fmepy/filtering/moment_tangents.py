# mypy: disallow-untyped-defs=false, allow-untyped-calls
"""State, covariance and their derivatives to all parameters over one step of the adaptive method: one system of rates.

With F, A of `filtering.transition` and a dot for the derivative along one parameter::

    x' = f,   P' = F P + P F' + A A'
    x.' = f.,   P.' = F P. + P. F' + F. P + P F.' + (A A').

f., F. and A. are sums of partial derivatives (`filtering.partials`). The steps are those that x and P ask for, and so
what comes out is the derivative of the numbers that come out, at steps that stay as they are. A pass without
derivatives carries Phi and the integral of the noise in the place of P, which is the same within the tolerance.
"""

from __future__ import annotations

from typing import NamedTuple

from fmepy.compiled.dormand_prince import drive
from fmepy.compiled.kernels import call, copy, new
from fmepy.compiled.status import DONE, WORK
from fmepy.filtering.arrays import add_multiple, add_vectors, clear
from fmepy.filtering.partials import OF_SLOPE, OF_VALUE, add_along, ends_entry, multiply_directions, partial
from fmepy.filtering.transition import MOST_STEPS, covariance_rate, size_of_spread
from fmepy.types import Cube, Matrix

IGNORED = 1e300
"""The tolerance of derivatives, of which the steps know nothing."""


class MomentWorkspace(NamedTuple):
    """Working arrays.

    Attributes
    ----------
    runs : ndarray, shape (WORK + 3, (n + n^2) (1 + width))
        See `transition.TransitionWorkspace`. A row is x, P by rows, and then the derivatives, parameters innermost.
    N : ndarray, shape (n, n, width)
        Half of P.'.
    entry : ndarray, shape (1, width)
        The derivatives of an entry of F or A.
    """

    runs: Matrix
    N: Cube
    entry: Matrix


def moment_workspace(n, width):
    """Return the working arrays of a step, for derivatives in rows of a padded length."""
    return MomentWorkspace(new(WORK + 3, (n + n * n) * (1 + width)), new(n, n, width), new(1, width))


def carry_moments(job, tangents, step, x, P, y, w):
    """Integrate x, to y, P and their derivatives over a step; return whether the adaptive method succeeded.

    `tangents` are the derivatives (`filtering.tangents`), of which the lower triangles of dP are read and written.
    """
    m, schedule, dx, dP, k = job.model, job.schedule, tangents.dx, tangents.dP, tangents.moments
    t, h, u, p = schedule.step_times[step], schedule.step_lengths[step], schedule.step_inputs[step], job.p
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
    status, _, _, w.last[0] = drive(
        _moment_rates, None, (m.advance, p, u, t, h, w, k.N, k.entry, tangents.of_steps, tangents.dp), t,
        min(w.last[0], h), z, w.last[2:3], 1, m.rtol, atol, m.max_step, most, done, k.runs, w.marks, None, None,
    )  # fmt: skip
    if status != DONE:
        w.last[0] = 0.0
        return False
    row = done[0]
    copy(row[:n], y)
    for i in range(n):
        for j in range(n):
            P[i, j] = row[n + i * n + j]
            copy(row[end + (i * n + j) * width : end + (i * n + j + 1) * width], dP[i, j])
        copy(row[begin + i * width : begin + (i + 1) * width], dx[i])
    return True


def _packed_moments(x, P, dx, dP, z):
    n, width = dx.shape
    begin, end = n + n * n, n + n * n + n * width
    for i in range(n):
        z[i] = x[i]
        copy(dx[i], z[begin + i * width :])
        for j in range(n):
            z[n + i * n + j] = P[i, j]
            copy(dP[max(i, j), min(i, j)], z[end + (i * n + j) * width :])


def _moment_rates(t, z, model, out):
    """Set out to z'."""
    advance, p, u, start, h, w, N, entry, d, dp = model
    F, A, inputs, n, width = w.F[0], w.A[0], w.last[3:], N.shape[0], N.shape[2]
    begin, end = n + n * n, n + n * n + n * width
    P, dx, dP = z[n:begin].reshape((n, n)), z[begin:end].reshape((n, width)), z[end:].reshape((n, n, width))
    to_P, to_dx, to_dP = (
        out[n:begin].reshape((n, n)), out[begin:end].reshape((n, width)), out[end:].reshape((n, n, width))
    )  # fmt: skip
    for i in range(inputs.shape[0]):  # a step reaches over no kink of a forcing: a straight line
        inputs[i] = u[0, i] + (u[2, i] - u[0, i]) * ((t - start) / h)
    call(advance, t, 0.0, z[:n], p, inputs, out[:n], F, A)
    covariance_rate(F, A, P, to_P)
    for i in range(n):
        clear(N[i])
        for c in range(n):
            f = F[i, c]
            if f != 0.0:
                for j in range(n):
                    add_multiple(N[i, j], f, dP[c, j])
    call(d.function, t, 0.0, z[:n], p, inputs, d.values)
    multiply_directions(F, dx, to_dx)
    for e in range(d.places.shape[0]):  # N becomes F P. + F. P + A. A'
        value, what, i, j, variable = partial(d, e)
        if what == OF_VALUE:
            add_along(to_dx[i], value, variable, dx, dp)
        else:
            add_along(entry[0], value, variable, dx, dp)
            if ends_entry(d, e):
                for c in range(n):
                    f = P[j, c] if what == OF_SLOPE else A[c, j]
                    if f != 0.0:
                        add_multiple(N[i, c], f, entry[0])
                clear(entry)
    for i in range(n):
        for j in range(i + 1):
            add_vectors(N[i, j], N[j, i], to_dP[i, j])
            copy(to_dP[i, j], to_dP[j, i])
