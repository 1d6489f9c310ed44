# mypy: disallow-untyped-defs=false, allow-untyped-calls
"""Arithmetic on factors of covariances, P = L L' with L lower triangular, on arrays in place.

A covariance is never formed from a difference, so it cannot lose its definiteness, and singular ones (a start that is
known, equations without noise, exact measurements) are like any other. With T an orthogonal matrix that is never
written down, prediction and update are each one triangularisation of an array (Bierman 1977, Morf & Kailath 1975)::

    predict     [F L, A] T = [L+, 0]                         L+ L+' = F P F' + A A'
    update      [ C   B ]     [ D  0   0 ]
                [ 0   E ] T = [ K  L+  0 ]                   C C' = R, E E' = P, B E' = H P, B B' = H P H' + more

D is the factor of S: s_i = D_ii^2, and e = D^-1 delta gives nu_i = D_ii e_i and the update x + K e. The extended filter
has B = H L, E = L; one of second order or of sigma points has further columns.
"""

from __future__ import annotations

import numpy as np


def semidefinite_lower(P, L, n):
    """Set L (lower, zeros above) so that L L' = P, their first n rows; return False if P is no covariance.

    Rows of no variance are zero.
    """
    for i in range(n):
        for j in range(n):
            L[i, j] = 0.0
    for i in range(n):
        for j in range(i + 1):
            total = P[i, j]
            for k in range(j):
                total -= L[i, k] * L[j, k]
            if i == j:
                if not (total > -1e-9 * abs(P[i, i]) or total == 0.0):
                    return False
                L[i, i] = np.sqrt(total) if total > 1e-14 * P[i, i] else 0.0
            elif L[j, j] > 0.0:
                L[i, j] = total / L[j, j]
    return True


def products(A, L, rows, W, row, column):
    """Write A L (its first `rows`) into W from (row, column) on."""
    for i in range(rows):
        for j in range(L.shape[1]):
            W[row + i, column + j] = 0.0
        for k in range(L.shape[0]):
            a = A[i, k]
            if a != 0.0:
                for j in range(L.shape[1]):
                    W[row + i, column + j] += a * L[k, j]


def right_solved(D, L, rows, F):
    """Change F as little as makes F L = D, L lower triangular: where L has no spread F stays what it is."""
    n = L.shape[0]
    for j in range(n - 1, -1, -1):
        pivot = j
        while pivot < n and L[pivot, j] == 0.0:
            pivot += 1
        if pivot == n:
            continue
        for i in range(rows):
            total = D[i, j]
            for k in range(pivot + 1, n):
                total -= F[i, k] * L[k, j]
            F[i, pivot] = total / L[pivot, j]
