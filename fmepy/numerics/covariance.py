"""Factors of covariances, singular ones too."""

from __future__ import annotations

import numpy as np

from fmepy.types import Matrix

__all__ = ["semidefinite_factor"]


def semidefinite_factor(matrix: Matrix) -> Matrix:
    """Return C with C C' = matrix, lower triangular; a matrix that is not a covariance gives NaN.

    Rows of zero variance are allowed.
    """
    n = len(matrix)
    C = np.zeros((n, n))
    floor = 1e-14 * max(float(np.max(np.diag(matrix), initial=0.0)), 0.0)
    for i in range(n):
        for j in range(i + 1):
            total = matrix[i, j] - C[i, :j] @ C[j, :j]
            if i == j:
                if total < -floor:
                    return np.full((n, n), np.nan)
                C[i, i] = np.sqrt(max(total, 0.0)) if total > floor else 0.0
            elif C[j, j] > 0:
                C[i, j] = total / C[j, j]
    return C
