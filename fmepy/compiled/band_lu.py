# mypy: disallow-untyped-defs=false, allow-untyped-calls
"""Matrices W = g I - J whose J is a band, factored L U = W without exchange of rows: kernels.

A band of `lower` diagonals below and `upper` above the main one is kept by diagonals, each as long as the matrix: the
entry (i, j) stands at ``(j - i + lower) n + i``, and what lies outside the matrix is zero. The factors are kept by
rows; U has ones on its diagonal and L the pivots, of which the reciprocals are kept; of more than three diagonals the
rows of L are multiplied by them.

Every row of a solution waits for the one before. So three diagonals are eliminated from both ends at once, down to the
row in the middle (the twisted factors of Parlett and Dhillon), and products are kept that need not be waited for.

References
----------
Parlett, B. N. and Dhillon, I. S. (1997). Fernando's solution to Wilkinson's problem: an application of double
factorization. Linear Algebra Appl. 267, 247-279.
"""

from __future__ import annotations

from fmepy.compiled.kernels import multiply_add, new


def add_band_product(J, lower, upper, x, out, sizes):
    """Add J x to out, and to sizes what the products of a row come to, whatever their signs."""
    n = len(x)
    for d in range(lower + 1 + upper):
        diagonal, ahead = J[d * n :], d - lower
        for i in range(max(0, -ahead), min(n, n - ahead)):
            term = diagonal[i] * x[i + ahead]
            out[i] += term
            sizes[i] += abs(term)


def factor_band(g, J, n, lower, upper, LU):
    """Set LU to the factors of g I - J; what cannot be divided comes as NaN or infinite.

    Return whether they are known to be good: of three diagonals, where the main one is as large as the others together.
    """
    if lower == 1 and upper == 1:
        return _factor_three(g, J[:n], J[n : 2 * n], J[2 * n :], LU)
    width = lower + 1 + upper
    for d in range(width):
        for i in range(n):
            LU[i * width + d] = -J[d * n + i]
    for k in range(n):
        pivot = k * width + lower
        inverse = 1.0 / (LU[pivot] + g)
        LU[pivot] = inverse
        for j in range(1, lower + 1):
            LU[pivot - j] *= inverse
        for j in range(1, upper + 1):
            LU[pivot + j] *= inverse
        for i in range(1, min(lower, n - 1 - k) + 1):
            at = (k + i) * width + lower - i
            a = LU[at]
            for j in range(1, upper + 1):
                LU[at + j] -= a * LU[pivot + j]
    return False


def _factor_three(g, low, main, high, LU):
    """Do so; above and below are the pivots next to it, of the upper and the lower part."""
    n = len(main)
    middle = n // 2
    first, last, above, below, is_good = (1 if 2 * middle == n else 0), n - 1, 1.0, 1.0, True
    for i in range(middle):
        j = n - 1 - i + first
        above = g - main[i] - (low[i] * high[i - 1] if i > 0 else 0.0) / above
        LU[3 * i + 1] = above
        if i >= first:
            below = g - main[j] - (high[j] * low[j + 1] if j < last else 0.0) / below
            LU[3 * j + 1] = below
    pivot = g - main[middle] - (low[middle] * high[middle - 1] if middle > 0 else 0.0) / above
    LU[3 * middle + 1] = pivot - (high[middle] * low[middle + 1] if middle < last else 0.0) / below
    for i in range(n):
        inverse = 1.0 / LU[3 * i + 1]
        LU[3 * i], LU[3 * i + 1], LU[3 * i + 2] = -low[i] * inverse, inverse, -high[i] * inverse
        is_good = is_good and g - main[i] >= abs(low[i]) + abs(high[i])
    return is_good


def solve_band(LU, lower, upper, x):
    """Replace x by the solution of L U x = x."""
    n, width = len(x), lower + 1 + upper
    if lower == 1 and upper == 1:
        _solve_three(LU, x)
        return
    x[0] *= LU[lower]
    last = x[0]  # what has to be waited for comes last, and from no place in memory
    for i in range(1, n):
        at = i * width + lower - i
        total = x[i] * LU[at + i]
        for j in range(max(0, i - lower), i - 1):
            total = multiply_add(-LU[at + j], x[j], total)
        last = multiply_add(-LU[at + i - 1], last, total) if lower > 0 else total
        x[i] = last
    for i in range(n - 2, -1, -1):
        at, total = i * width + lower - i, x[i]
        for j in range(min(n - 1, i + upper), i + 1, -1):
            total = multiply_add(-LU[at + j], x[j], total)
        last = multiply_add(-LU[at + i + 1], last, total) if upper > 0 else total
        x[i] = last


def solve_band_all(LU, lower, upper, X):
    """Do so for every column of X, whose number is even: no column waits for another."""
    n, width = len(X), lower + 1 + upper
    if lower == 1 and upper == 1:
        x = new(n)
        for p in range(X.shape[1]):
            for i in range(n):
                x[i] = X[i, p]
            _solve_three(LU, x)
            for i in range(n):
                X[i, p] = x[i]
        return
    for i in range(n):
        at = i * width + lower - i
        for p in range(0, X.shape[1], 2):
            a, b = X[i, p] * LU[at + i], X[i, p + 1] * LU[at + i]
            for j in range(max(0, i - lower), i):
                a, b = multiply_add(-LU[at + j], X[j, p], a), multiply_add(-LU[at + j], X[j, p + 1], b)
            X[i, p], X[i, p + 1] = a, b
    for i in range(n - 2, -1, -1):
        at = i * width + lower - i
        for p in range(0, X.shape[1], 2):
            a, b = X[i, p], X[i, p + 1]
            for j in range(min(n - 1, i + upper), i, -1):  # what has to be waited for comes last
                a, b = multiply_add(-LU[at + j], X[j, p], a), multiply_add(-LU[at + j], X[j, p + 1], b)
            X[i, p], X[i, p + 1] = a, b


def _solve_three(LU, x):
    n = len(x)
    middle, above, below = n // 2, 0.0, 0.0
    if 2 * middle == n:  # the lower part is shorter
        x[0] *= LU[1]
        above = x[0]
    first = 1 if 2 * middle == n else 0
    for i in range(first, middle):
        j = n - 1 - i + first
        above = multiply_add(-LU[3 * i], above, x[i] * LU[3 * i + 1])
        below = multiply_add(-LU[3 * j + 2], below, x[j] * LU[3 * j + 1])
        x[i], x[j] = above, below
    at = 3 * middle
    above = x[middle] * LU[at + 1] - LU[at] * above - LU[at + 2] * below
    below = above
    x[middle] = above
    for k in range(1, middle + 1 - first):
        i, j = middle - k, middle + k
        above = multiply_add(-LU[3 * i + 2], above, x[i])
        below = multiply_add(-LU[3 * j], below, x[j])
        x[i], x[j] = above, below
    if first > 0:
        x[0] = multiply_add(-LU[2], above, x[0])
