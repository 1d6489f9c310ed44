# mypy: disallow-untyped-defs=false, allow-untyped-calls
"""The arithmetic of one prediction and one update, on arrays in place.

In the letters of the code, n states, q noise inputs, d diffuse columns::

    predict     P <- F P F' + A A'          A A' = G Q G';  X <- F X
    update      for each row i of a sample: h = H_i
        c = P h',  s = h c + r_i,  nu = delta_i - h (x - x(n|n-1)),  k = c / s
        x <- x + k nu,  P <- P - c c' / s,  X <- X - k (h X)

With k = c / s the scalar Joseph form P - k c' - c k' + k s k' is P - c c' / s, symmetric to the last bit as it is
written here. A covariance that loses its sign all the same is watched for (below), and left to factors.

The columns X = dx/dx0 belong to the components of the start of which nothing is known. Correlated measurement errors
are made independent first: with R = L D L' (L unit lower) the rows of z and H are multiplied by L^-1; variances D.
The conditional innovations nu_i and their variances s_i are then those of the joint update, S = L_S diag(s) L_S'.

Nothing here raises: what has no value becomes NaN or infinite, and the loop (`filtering.loop`) looks. A reading too
sharp for this arithmetic counts as one without variance: the pass is then repeated with factors of the covariances.
"""

from __future__ import annotations

import numpy as np

from fmepy.compiled.kernels import new
from fmepy.filtering.arrays import copied_vector, identity, products
from fmepy.filtering.tangents import update_slopes

ILL_CONDITIONED = 7.2e10
"""exp(25): a reading that shrinks a variance by more than this asks for `filtering.square_root_loop`."""


def covariance_to_next(P, F, S, M, T):
    """Set P to F P F' + S, and T to P F' of the P before; M is work space. Zeros of F are skipped."""
    n = P.shape[0]
    products(F, P, n, M, 0)
    for i in range(n):
        for j in range(n):
            T[i, j] = M[j, i]
    for i in range(n):
        for j in range(i + 1):
            P[i, j] = S[i, j]
        for k in range(n):
            f = F[i, k]
            if f != 0.0:
                for j in range(i + 1):
                    P[i, j] += f * T[k, j]
    for i in range(n):
        for j in range(i):
            P[j, i] = P[i, j]


def conditional_rows(m, first, delta, H, sd, correlation, variables, r, L):
    """Turn m rows with correlated errors into rows with independent ones of variances r.

    delta (m,), H (m, n) are changed in place; `sd` (m,) are the rows' error sds, `variables` from `first` on their
    places in `correlation`. L is work space.
    """
    n = H.shape[1]
    for i in range(m):
        for j in range(i):
            # rows of the same variable at the same time are repeated readings, with errors of their own
            a, b = variables[first + i], variables[first + j]
            total = 0.0 if a == b else sd[i] * sd[j] * correlation[a, b]
            for k in range(j):
                total -= L[i, k] * L[j, k] * r[k]
            L[i, j] = total / r[j] if r[j] > 0.0 else 0.0
        total = sd[i] * sd[i]
        for k in range(i):
            total -= L[i, k] * L[i, k] * r[k]
        r[i] = max(total, 0.0)
    for i in range(m):
        for j in range(i):
            w = L[i, j]
            if w != 0.0:
                delta[i] -= w * delta[j]
                for k in range(n):
                    H[i, k] -= w * H[j, k]


def sequential_update(job, m, first, x, P, X, delta, H, which, r, x0, c, k, sd, t):
    """Update by m rows, one after the other; return the number of the row whose variance is not positive, or -1.

    Row i is H[which[first + i]], or H[i] where `which` is empty. x, P, X are changed in place; x0, c, k are work space
    (n,). Results are nu, s and v = dnu/dx0 of the job, from row `first` on. With `t`, the `tangents`, their derivatives
    are updated too; `sd` are the sds of all variables.
    """
    n, d, nu, s, v = x.shape[0], X.shape[1], job.nu, job.s, job.v
    direct = which.shape[0] > 0
    copied_vector(x, x0)
    for row in range(m):
        at = which[first + row] if direct else row
        for i in range(n):
            c[i] = 0.0
        e = delta[row]
        for j in range(n):
            w = H[at, j]
            if w != 0.0:
                e -= w * (x[j] - x0[j])
                for i in range(n):
                    c[i] += w * P[j, i]
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
        for i in range(n):
            k[i] = c[i] / variance if t is not None else c[i] * inverse
        if t is not None:
            update_slopes(job, t, first + row, sd, H[at], x, x0, P, c, k, e, variance)
        for i in range(n):
            x[i] += k[i] * e
        for i in range(n):
            a = c[i]
            for j in range(n):
                # the same to the last bit on both sides of the diagonal; beside derivatives by the gain that they have
                P[i, j] -= k[max(i, j)] * c[min(i, j)] if t is not None else (a * c[j]) * inverse
        for j in range(d):
            total = 0.0
            for i in range(n):
                total += H[at, i] * X[i, j]
            v[first + row, j] = -total
            for i in range(n):
                X[i, j] -= k[i] * total
    return -1


def joint_update(m, first, x, P, X, delta, H, r, nu, s, v):
    """Update by all rows at once through S = L_S diag(s) L_S' and the full Joseph form; the rest as above."""
    n, d = X.shape
    C, S, L = new(n, m), new(m, m), new(m, m)
    for i in range(n):
        for a in range(m):
            for j in range(n):
                C[i, a] += P[i, j] * H[a, j]
    for a in range(m):
        for b in range(a + 1):
            for i in range(n):
                S[a, b] += H[a, i] * C[i, b]
        S[a, a] += r[a]
    for i in range(m):
        for j in range(i):
            total = S[i, j]
            for q in range(j):
                total -= L[i, q] * L[j, q] * s[first + q]
            L[i, j] = total / s[first + j]
        total = S[i, i]
        for q in range(i):
            total -= L[i, q] * L[i, q] * s[first + q]
        s[first + i] = total
        if not (total > 0.0 and total < np.inf) or (r[i] > 0.0 and total > ILL_CONDITIONED * r[i]):
            return i
    for i in range(m):
        nu[first + i] = delta[i]
        for q in range(i):
            nu[first + i] -= L[i, q] * nu[first + q]
    K = new(n, m)  # K S = C, row by row: forward, scale, back
    for i in range(n):
        for a in range(m):
            K[i, a] = C[i, a]
            for q in range(a):
                K[i, a] -= L[a, q] * K[i, q]
        for a in range(m):
            K[i, a] /= s[first + a]
        for a in range(m - 1, -1, -1):
            for q in range(a + 1, m):
                K[i, a] -= L[q, a] * K[i, q]
    B, N = new(n, n), new(n, n)
    identity(B)
    for i in range(n):
        for a in range(m):
            x[i] += K[i, a] * delta[a]
            for j in range(n):
                B[i, j] -= K[i, a] * H[a, j]
                N[i, j] += K[i, a] * r[a] * K[j, a]
    covariance_to_next(P, B, N, new(n, n), new(n, n))  # (I - K H) P (I - K H)' + K R K'
    for j in range(d):
        for i in range(m):
            total = 0.0
            for q in range(n):
                total -= H[i, q] * X[q, j]
            v[first + i, j] = total
        for i in range(n):
            for a in range(m):
                X[i, j] += K[i, a] * v[first + a, j]
        for i in range(m):  # to the conditional innovations
            for q in range(i):
                v[first + i, j] -= L[i, q] * v[first + q, j]
    return -1
