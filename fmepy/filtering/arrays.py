# mypy: disallow-untyped-defs=false, allow-untyped-calls
"""Arithmetic on arrays of filters, and the array of one update with factors of covariances.

With R = C C' and P = L L' the rows of [C, H L; 0, L] are made lower triangular by an orthogonal matrix; what stands in
it then are the factor of S, the gain times it, and the factor of the updated covariance.

Arithmetic on factors of covariances, P = L L' with L lower triangular: all works on arrays in place.

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

from fmepy.compiled.kernels import lanes, lanes_at, new, set_lanes

ROUNDING = 1e-13
"""Of the largest entry of a row of factors: what is no more is nothing."""


def identity(T):
    """Set T to the identity."""
    n = T.shape[0]
    for i in range(n):
        for j in range(n):
            T[i, j] = 1.0 if i == j else 0.0


def clear(T):
    """Set T to zero."""
    for i in range(T.shape[0]):
        for j in range(T.shape[1]):
            T[i, j] = 0.0


def error_factor(count, first, errors, correlation, variables, R, C):
    """Set C to the lower factor of the covariance of the errors of one sample."""
    for i in range(count):
        for j in range(count):
            R[i, j] = 0.0
            if i == j:
                R[i, i] = errors[i] * errors[i]
            elif correlation.shape[0] > 0:
                a, b = variables[first + i], variables[first + j]
                R[i, j] = 0.0 if a == b else errors[i] * errors[j] * correlation[a, b]
    if not semidefinite_lower(R, C, count):
        for i in range(count):
            C[i, i] = np.nan


def solve_innovations(W, count, first, delta, x, y, e, nu, s):
    """From the triangular array set nu, s and the updated state y; return the row without variance, or -1."""
    n = x.shape[0]
    for i in range(count):
        total = delta[i]
        for j in range(i):
            total -= W[i, j] * e[j]
        nu[first + i] = total
        s[first + i] = W[i, i] * W[i, i]
        if not (s[first + i] > 0.0 and s[first + i] < np.inf):
            return i
        e[i] = total / W[i, i]
    for a in range(n):
        y[a] = x[a]
        for i in range(count):
            y[a] += W[count + a, i] * e[i]
    return -1


def update_columns(W, count, first, rows, X, e, v):
    """Update X = dx/dx0 and set v = dnu/dx0."""
    n, d = X.shape
    for c in range(d):
        for i in range(count):
            total = 0.0
            for j in range(n):
                total += rows[i, j] * X[j, c]
            for j in range(i):
                total -= W[i, j] * e[j]
            v[first + i, c] = -total
            e[i] = total / W[i, i]
        for a in range(n):
            for i in range(count):
                X[a, c] -= W[count + a, i] * e[i]


def covariance_of(L, P):
    """Set P to L L'."""
    n = L.shape[0]
    for i in range(n):
        for j in range(i + 1):
            total = 0.0
            for k in range(j + 1):
                total += L[i, k] * L[j, k]
            P[i, j] = total
            P[j, i] = total


def left_multiply(F, X, work):
    """Set X to F X."""
    multiply(F, X, F.shape[0], work, 0)
    copy_matrix(work, X)


def fill_array(count, C, rows, L, W):
    """Write [C, H L; 0, L]."""
    n = L.shape[0]
    for i in range(count):
        for j in range(count):
            W[i, j] = C[i, j]
    multiply(rows, L, count, W, count)
    for i in range(n):
        for j in range(count):
            W[count + i, j] = 0.0
        for j in range(n):
            W[count + i, count + j] = L[i, j]


def write_excess(W, count, width, rows, L, first, excess):
    """Write B B' - H P H' of one sample."""
    n = L.shape[0]
    HL = new(count, n)
    multiply(rows, L, count, HL, 0)
    for i in range(count):
        for j in range(count):
            total = 0.0
            for c in range(width):
                total += W[i, count + c] * W[j, count + c]
            for c in range(n):
                total -= HL[i, c] * HL[j, c]
            excess[first + i, j] = total


def has_converged(L, y, before):
    """Tell whether an update moved by less than 1e-10 of the state's sd."""
    for i in range(L.shape[0]):
        variance = 0.0
        for j in range(i + 1):
            variance += L[i, j] * L[i, j]
        if (y[i] - before[i]) ** 2 > 1e-20 * variance:
            return False
    return True


def copy_matrix(a, b):
    """Set b to the upper left part of a, as far as both have columns."""
    for i in range(b.shape[0]):
        for j in range(min(a.shape[1], b.shape[1])):
            b[i, j] = a[i, j]


def are_equal(a, b):
    """Tell whether two matrices of a shape hold the same numbers."""
    size = a.shape[0] * a.shape[1]
    return are_equal_vectors(a.reshape((size,)), b.reshape((size,)))


def are_equal_vectors(a, b):
    """Tell whether two vectors hold the same numbers."""
    unequal = 0
    for i in range(a.shape[0]):  # all of them, so that several are compared at once
        if a[i] != b[i]:
            unequal += 1
    return unequal == 0


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


def padded(n):
    """Return the least multiple of four that is not less: rows so long are worked on by four entries at once."""
    return 4 * ((n + 3) // 4)


def add_multiple(a, f, b):
    """Add f b to a vector of a padded length."""
    for q in range(0, a.shape[0], 4):
        set_lanes(a, q, lanes_at(a, q, 4) + f * lanes_at(b, q, 4))


def add_multiples(a, f, b, g, c):
    """Add f b + g c to a vector of a padded length."""
    for q in range(0, a.shape[0], 4):
        set_lanes(a, q, lanes_at(a, q, 4) + (f * lanes_at(b, q, 4) + g * lanes_at(c, q, 4)))


def add_vectors(a, b, c):
    """Set c to a + b, vectors of a padded length."""
    for q in range(0, a.shape[0], 4):
        set_lanes(c, q, lanes_at(a, q, 4) + lanes_at(b, q, 4))


def set_zero(a):
    """Set a vector of a padded length to zero."""
    for q in range(0, a.shape[0], 4):
        set_lanes(a, q, lanes(0.0, 0.0, 0.0, 0.0))


def move_vector(a, b):
    """Write a vector of a padded length into another one, and set it to zero."""
    for q in range(0, a.shape[0], 4):
        set_lanes(b, q, lanes_at(a, q, 4))
    set_zero(a)


def multiply(A, L, rows, W, column):
    """Write A L (its first `rows`) into W, from a column on."""
    for i in range(rows):
        for j in range(L.shape[1]):
            W[i, column + j] = 0.0
        for k in range(L.shape[0]):
            a = A[i, k]
            if a != 0.0:
                for j in range(L.shape[1]):
                    W[i, column + j] += a * L[k, j]


def solve_from_right(D, L, rows, F):
    """Change F as little as makes F L = D, L lower triangular: where L has no spread F stays what it is.

    What is a rounding error of its row is no spread.
    """
    n = L.shape[0]
    for j in range(n - 1, -1, -1):
        pivot = j
        while pivot < n and _is_rounding(L, pivot, j):
            pivot += 1
        if pivot == n:
            continue
        for i in range(rows):
            total = D[i, j]
            for k in range(pivot + 1, n):
                total -= F[i, k] * L[k, j]
            F[i, pivot] = total / L[pivot, j]


def _is_rounding(L, i, j):
    largest = 0.0
    for k in range(i + 1):
        largest = max(largest, abs(L[i, k]))
    return abs(L[i, j]) <= ROUNDING * largest
