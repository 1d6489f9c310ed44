# mypy: disallow-untyped-defs=false, allow-untyped-calls
"""Arrays made triangular by orthogonal matrices that are never written down: a kernel for kernels."""

from __future__ import annotations

import numpy as np

ROUNDING = 1e-15
"""A pivot smaller than this part of its row is what rounding left of zero."""


def inner(W, i, k, begin, end):
    """Return the scalar product of two rows between two columns: four sums at once, as one waits for itself."""
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    whole = begin + 4 * ((end - begin) // 4)
    for j in range(begin, whole, 4):
        a += W[i, j] * W[k, j]
        b += W[i, j + 1] * W[k, j + 1]
        c += W[i, j + 2] * W[k, j + 2]
        d += W[i, j + 3] * W[k, j + 3]
    for j in range(whole, end):
        a += W[i, j] * W[k, j]
    return (a + b) + (c + d)


def lower_factor(W, rows, columns):
    """Make the first `rows` and `columns` of W lower triangular by Householder reflections from the right.

    A row that depends on those above it has no pivot, and the next row takes the column (echelon form).
    """
    pivot = 0
    for i in range(rows):
        if pivot >= columns:
            break
        before, beyond = inner(W, i, i, 0, pivot), inner(W, i, i, pivot, columns)
        size = np.sqrt(beyond)
        if size <= ROUNDING * np.sqrt(beyond + before):
            for j in range(pivot, columns):
                W[i, j] = 0.0
            continue
        if W[i, pivot] > 0.0:
            size = -size
        W[i, pivot] -= size  # the row now holds v = row - size e, with v'v = -2 size v_pivot
        scale = -1.0 / (size * W[i, pivot])
        for k in range(i + 1, rows):
            dot = scale * inner(W, k, i, pivot, columns)
            for j in range(pivot, columns):
                W[k, j] -= dot * W[i, j]
        if size < 0.0:  # a positive pivot
            for k in range(i + 1, rows):
                W[k, pivot] = -W[k, pivot]
            size = -size
        W[i, pivot] = size
        for j in range(pivot + 1, columns):
            W[i, j] = 0.0
        pivot += 1
