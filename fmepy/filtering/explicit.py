"""State, tangent and noise integral by an explicit method in compiled code: for equations that are not stiff.

Dormand and Prince's pair of orders 5 and 4 with local extrapolation (Hairer, Norsett & Wanner, II.5) on z = [x, Phi, S]
(see `filtering.adaptive`; S the noise integral or covariance in units of size^2)::

    x' = f,   Phi' = F Phi,   S' = F S + (F S)' + A A' / size^2

with the matrices as matrices, so that zeros of F cost nothing. A solver for stiff systems has to factorise a Jacobian
of n (n + 1) + n (n + 1) / 2 equations; this one is ten and more times faster where stability does not cut its steps.
Where they are it gives up after a number of steps, and another engine goes on.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numba import types

from fmepy.compiled.kernels import kernel
from fmepy.errors import SimulationError
from fmepy.filtering.loop import ADVANCE, compile_loop
from fmepy.filtering.triangular import products
from fmepy.types import Matrix, Vector

__all__ = ["ExplicitStepper"]

MOST_STEPS = 400
"""Steps in one stretch: more of them tell a stiff system."""
STIFF = 300.0
"""A stretch of so many of the fastest time constants is left to other engines at once."""

_NODES = np.array([0.0, 1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0, 1.0])
_STAGES = np.array(
    [
        [0, 0, 0, 0, 0, 0],
        [1 / 5, 0, 0, 0, 0, 0],
        [3 / 40, 9 / 40, 0, 0, 0, 0],
        [44 / 45, -56 / 15, 32 / 9, 0, 0, 0],
        [19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729, 0, 0],
        [9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656, 0],
        [35 / 384, 0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84],
    ]
)
_ERRORS = np.array([71 / 57600, 0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40])

_F = types.float64
_V, _M = _F[::1], _F[:, ::1]


@kernel
def _slope(advance, t, z, p, lines, origin, size, u, F, A, FS, k):  # type: ignore[no-untyped-def]
    """Set k to z'."""
    n = F.shape[0]
    for i in range(u.shape[0]):
        u[i] = lines[2 * i] + lines[2 * i + 1] * (t - origin)
    advance(t, 0.0, z[:n], p, u, k[:n], F, A)
    products(F, z[n : n + n * n].reshape((n, n)), n, k[n : n + n * n].reshape((n, n)), 0, 0)
    products(F, z[n + n * n :].reshape((n, n)), n, FS, 0, 0)
    for i in range(n):
        for j in range(i + 1):
            total = FS[i, j] + FS[j, i]
            for q in range(A.shape[1]):
                total += A[i, q] * A[j, q] / (size * size)
            k[n + n * n + i * n + j] = total
            k[n + n * n + j * n + i] = total


@kernel
def _fastest(F, B):  # type: ignore[no-untyped-def]
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


def _run(advance, start, end, z, p, lines, origin, size, n_noise, rtol, atol, most, stiff):  # type: ignore[no-untyped-def]
    """Carry z from start to end; return whether it could be done."""
    n = round((np.sqrt(1.0 + 8.0 * z.shape[0]) - 1.0) / 4.0)  # z has n + 2 n^2 entries
    k, y = np.empty((7, z.shape[0])), np.empty(z.shape[0])
    F, A, FS, u = np.zeros((n, n)), np.zeros((n, n_noise)), np.zeros((n, n)), np.zeros(lines.shape[0] // 2)
    _slope(advance, start, z, p, lines, origin, size, u, F, A, FS, k[0])
    if not _fastest(F, FS) * (end - start) < stiff:
        return False
    t, h = start, end - start
    for _ in range(most):
        h = min(h, end - t)
        if t + 1.01 * h >= end:  # no sliver is left
            h = end - t
        for s in range(1, 7):
            for i in range(z.shape[0]):
                total = 0.0
                for r in range(s):
                    total += _STAGES[s, r] * k[r, i]
                y[i] = z[i] + h * total
            _slope(advance, t + _NODES[s] * h, y, p, lines, origin, size, u, F, A, FS, k[s])
        worst = 0.0
        for i in range(z.shape[0]):
            total = 0.0
            for r in range(7):
                total += _ERRORS[r] * k[r, i]
            error = abs(h * total) / (atol[i] + rtol * max(abs(z[i]), abs(y[i])))
            if not error < 1e300:
                worst = 1e10
            worst = max(worst, error)
        if worst <= 1.0:
            t = end if h == end - t else t + h
            for i in range(z.shape[0]):
                z[i], k[0, i] = y[i], k[6, i]
            if t == end:
                return True
        h *= min(5.0, max(0.2, 0.9 * max(worst, 1e-10) ** -0.2))
        if not t + 1e-3 * h > t:
            return False
    return False


_SIGNATURE = types.boolean(
    types.FunctionType(ADVANCE), _F, _F, _V, _V, _V, _F, _F, types.int64, _F, _V, types.int64, _F
)


@lru_cache(maxsize=1)
def _compiled() -> Any:
    return compile_loop(_run, _SIGNATURE, "the explicit solver of filters")


class ExplicitStepper:
    """The explicit method on the system of one model; see `models.engines.base`.

    Parameters
    ----------
    advance : FunctionPointer
        The model's rates, tangent and noise.
    n_states, n_parameters, n_noise : int
        Of the model. Inputs are its parameters, the size of the noise, the lines of the forcings, their origin.
    rtol : float
    atol : ndarray
        By entry of [x, Phi, S], all of S.
    """

    name = "explicit"
    watches_switches = False

    def __init__(self, advance: Any, n_states: int, n_parameters: int, n_noise: int, rtol: float, atol: Vector) -> None:
        self._advance, self._n, self._k, self._q = advance, n_states, n_parameters, n_noise
        self._rtol, self._atol = rtol, atol
        self._low = np.tril_indices(n_states)

    def advance(self, start: float, z: Vector, inputs: Vector, times: Vector) -> tuple[Vector, Matrix]:
        """Return (times reached, z at them)."""
        n, k = self._n, self._k
        S = np.zeros((n, n))
        S[self._low] = z[n + n * n :]
        S += np.tril(S, -1).T
        whole = np.concatenate([z[: n + n * n], S.ravel()])
        p, lines = np.ascontiguousarray(inputs[:k]), np.ascontiguousarray(inputs[k + 1 : -1])
        rows = np.empty((len(times), len(z)))
        run, at = _compiled(), start
        for i, t in enumerate(times.tolist()):
            done = run(self._advance, at, t, whole, p, lines, inputs[-1], inputs[k], self._q,
                      self._rtol, self._atol, MOST_STEPS, STIFF)  # fmt: skip
            if not done:
                raise SimulationError("the explicit solver gave up", time=at)
            rows[i, : n + n * n] = whole[: n + n * n]
            rows[i, n + n * n :] = whole[n + n * n :].reshape(n, n)[self._low]
            at = t
        return times, rows
