# mypy: ignore-errors
"""Kernels of difference models: states, outputs and their exact sensitivities.

A model's functions are addresses of C functions ``void f(double t, double* x, double* q, double* out)``, where q holds
parameters and forcings; arrays are passed as addresses. `failed_at` is set to -1, or to the step at which a state
became NaN or infinite.
"""

from __future__ import annotations

from fmepy.compiled.kernels import call, doubles, integers


def _is_finite(x, n):
    total = 0.0
    for i in range(n):
        total += 0.0 * x[i]  # NaN if any is infinite or NaN
    return total == 0.0


def _clear(B):
    for i in range(B.shape[0]):
        for j in range(B.shape[1]):
            B[i, j] = 0.0


def _add_entries(B, A, v, at):
    """Add M A to B, where M has the entries v at the rows and columns `at`."""
    for e in range(at.shape[0]):
        i, j = at[e, 0], at[e, 1]
        for k in range(B.shape[1]):
            B[i, k] += v[e] * A[j, k]


def _add_direct(B, v, at):
    """Add the entries v to B at the rows and columns `at`."""
    for e in range(at.shape[0]):
        B[at[e, 0], at[e, 1]] += v[e]


def run(
    step: int, write: int, n: int, n_out: int, n_p: int, n_u: int, n_par: int, n_F: int, n_D: int, n_G: int, n_H: int,
    n_rows: int, t0: float, dt: float, q: int, forcings: int, keep: int, places: int,
    x_work: int, S_work: int, v_work: int, w_work: int, out: int, slopes: int, failed_at: int,
):  # fmt: skip
    """Run a model, with sensitivities S[k] = F S[k-1] + D to n_par parameters unless n_par is 0.

    `step` sets the next states, then the entries of F = df/dx and D = df/dp; `write` sets the outputs, then the entries
    of G = dh/dx and H = dh/dp. Their rows and columns are `places`, shape (n_F + n_D + n_G + n_H, 2).

    q : parameters, and room for the forcings;  keep : the steps that become rows, increasing;
    x_work, S_work : shapes (n,) and (2, n, n_par), on entry the initial states and, in the first half, initial S;
    out, slopes : shapes (n_rows, n + n_out) and (n_rows, n + n_out, n_par).
    """
    steps, Q = integers(keep, n_rows), doubles(q, n_p + n_u)
    last = steps[n_rows - 1]
    U, rows, ended = doubles(forcings, last + 1, n_u), doubles(out, n_rows, n + n_out), doubles(failed_at, 1, 1)
    x, S = doubles(x_work, n), doubles(S_work, 2 * n, n_par)
    v, w = doubles(v_work, n + n_F + n_D), doubles(w_work, n_out + n_G + n_H)
    at, all_slopes = integers(places, n_F + n_D + n_G + n_H, 2), doubles(slopes, n_rows * (n + n_out), n_par)
    F, D, G, H = at[:n_F], at[n_F : n_F + n_D], at[n_F + n_D : n_F + n_D + n_G], at[n_F + n_D + n_G :]
    A, B, row = S[:n], S[n:], 0
    ended[0, 0] = -1.0
    for k in range(last + 1):
        for i in range(n_u):
            Q[n_p + i] = U[k, i]
        if k > 0:
            call(step, t0 + dt * k, x, Q, v)
            _clear(B)
            _add_entries(B, A, v[n:], F)
            _add_direct(B, v[n + n_F :], D)
            A, B = B, A
            for i in range(n):
                x[i] = v[i]
            if not _is_finite(x, n):
                ended[0, 0] = k
                return
        if steps[row] == k:
            call(write, t0 + dt * k, x, Q, w)
            here = all_slopes[row * (n + n_out) : (row + 1) * (n + n_out)]
            for i in range(n):
                rows[row, i] = x[i]
            for i in range(n_out):
                rows[row, n + i] = w[i]
            _clear(here)
            for i in range(n):
                for j in range(n_par):
                    here[i, j] = A[i, j]
            _add_entries(here[n:], A, w[n_out:], G)
            _add_direct(here[n:], w[n_out + n_G :], H)
            row += 1
