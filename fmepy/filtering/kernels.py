# mypy: disallow-untyped-defs=false, allow-untyped-calls
"""The arithmetic of one prediction and one update, on arrays in place.

In the letters of the code, n states, q noise inputs, d diffuse columns::

    predict     P <- F P F' + A A'          A A' = G Q G';  X <- F X
    update      for each row i of a sample: h = H_i
        c = P h',  s = h c + r_i,  nu = delta_i - h (x - x(n|n-1)),  k = c / s
        x <- x + k nu,  P <- P - c c' / s,  X <- X - k (h X)

With k = c / s the scalar Joseph form P - k c' - c k' + k s k' is P - c c' / s, symmetric to the last bit as it is
written here. A covariance that loses its sign all the same is watched for (below), and left to factors.

All rows of a sample are linearised at the same state, so that their order does not matter. The columns X = dx/dx0
belong to the components of the start of which nothing is known. Correlated measurement errors are made independent
first: with R = L D L' (L unit lower) the rows of z and H are multiplied by L^-1; variances D.
The conditional innovations nu_i and their variances s_i are then those of the joint update, S = L_S diag(s) L_S'.

Nothing here raises: what has no value becomes NaN or infinite, and the loop (`filtering.loop`) looks. A reading too
sharp for this arithmetic counts as one without variance: the pass is then repeated with factors of the covariances.
"""

from __future__ import annotations

import numpy as np

from fmepy.compiled.kernels import copy, lanes_at, set_lanes
from fmepy.filtering.arrays import add_multiple, clear, copy_matrix, set_zero
from fmepy.filtering.limits import matched_moments
from fmepy.filtering.tangents import update_slopes

ILL_CONDITIONED = 7.2e10
"""exp(25): a reading that shrinks a variance by more than this asks for `filtering.square_root_loop`."""


def covariance_to_next(P, F, S, M, T):
    """Set P to F P F' + S, and T to P F' of the P before; M is work space.

    Rows of P, S, M and T are of a padded length.
    """
    n = F.shape[0]
    clear(M)
    _add_product(F, P, M)
    for i in range(n):
        for j in range(n):
            T[i, j] = M[j, i]
    copy_matrix(S, P)
    _add_product(F, T, P)
    for i in range(n):
        for j in range(i):
            P[j, i] = P[i, j]


def _add_product(F, X, out):
    """Add F X to `out`, rows of a padded length. Zeros of F are skipped."""
    for i in range(F.shape[0]):
        for k in range(F.shape[1]):
            if F[i, k] != 0.0:
                add_multiple(out[i], F[i, k], X[k])


def independent_rows(count, delta, H, C, r):
    """Turn rows whose errors have the covariance C C', C lower, into rows with independent errors of variances r.

    delta (m,) and H (m, n) are changed in place.
    """
    for i in range(count):
        r[i] = C[i, i] * C[i, i]
        for j in range(i):
            if C[i, j] != 0.0:
                w = C[i, j] / C[j, j]
                delta[i] -= w * delta[j]
                for k in range(H.shape[1]):
                    H[i, k] -= w * H[j, k]


def sequential_update(job, m, first, x, P, X, delta, H, which, r, x0, c, k, sd, t):
    """Update by m rows, one after the other; return the number of the row whose variance is not positive, or -1.

    Row i is H[which[first + i]], or H[i] where `which` is empty. x, P, X are changed in place; x0, c, k are work space
    (n,), but rows of P, c and k are of a padded length. Results are nu, s and v = dnu/dx0 of the job, from row `first`
    on. With `t`, the `tangents`, their derivatives are updated too; `sd` are the sds of all variables.
    """
    n, d, nu, s, v = x.shape[0], X.shape[1], job.nu, job.s, job.v
    direct = which.shape[0] > 0
    copy(x, x0)
    for row in range(m):
        at = which[first + row] if direct else row
        set_zero(c)
        e = delta[row]
        for j in range(n):
            w = H[at, j]
            if w != 0.0:
                e -= w * (x[j] - x0[j])
                add_multiple(c, w, P[j])
        variance = r[row]
        for j in range(n):
            w = H[at, j]
            if w != 0.0:
                variance += w * c[j]
        nu[first + row] = e
        s[first + row] = variance
        if not (variance > 0.0 and variance < np.inf) or (r[row] > 0.0 and variance > ILL_CONDITIONED * r[row]):
            return row
        inverse = 1.0 / variance
        moved, share = matched_moments(job.schedule.row_marks[first + row], e, variance)
        for i in range(n):
            k[i] = c[i] * inverse
        if t is not None:
            update_slopes(job, t, first + row, sd, H[at], x, x0, P, c, k, e, variance, moved, share)
        for i in range(n):
            x[i] += k[i] * moved
        for i in range(n):
            for j in range(0, c.shape[0], 4):  # the same to the last bit on both sides of the diagonal
                set_lanes(P[i], j, lanes_at(P[i], j, 4) - (c[i] * lanes_at(c, j, 4)) * (share * inverse))
        for j in range(d):
            total = 0.0
            for i in range(n):
                total += H[at, i] * X[i, j]
            v[first + row, j] = -total
            for i in range(n):
                X[i, j] -= k[i] * total
    return -1
