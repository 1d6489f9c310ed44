# mypy: disallow-untyped-defs=false, allow-untyped-calls
"""Arrays made triangular by orthogonal matrices that are never written down: a kernel for kernels."""

from __future__ import annotations

import numpy as np

from fmepy.compiled.kernels import inner

ROUNDING = 1e-15
"""A pivot smaller than this part of its row is what rounding left of zero."""


def lower_factor(W, rows, columns):
    """Make the first `rows` and `columns` of W lower triangular by Householder reflections from the right.

    A row that depends on those above it has no pivot, and the next row takes the column (echelon form).
    """
    pivot = 0
    for i in range(rows):
        if pivot >= columns:
            break
        before, beyond = inner(W[i], W[i], 0, pivot), inner(W[i], W[i], pivot, columns)
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
            dot = scale * inner(W[k], W[i], pivot, columns)
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
