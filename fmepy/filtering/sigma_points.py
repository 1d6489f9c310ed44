# mypy: disallow-untyped-defs=false, allow-untyped-calls
"""Points on the columns of a factor, their moments, and the array of a sample whose readings are taken at them."""

from __future__ import annotations

import numpy as np


def sigma_points(x, L, points):
    """Set the points, the centre first, then x + c l_k and x - c l_k; return the centre's weight and the others'."""
    n = x.shape[0]
    kappa = max(3.0 - n, 0.0)
    c = np.sqrt(n + kappa)
    for i in range(n):
        points[0, i] = x[i]
        for k in range(n):
            points[1 + k, i] = x[i] + c * L[i, k]
            points[1 + n + k, i] = x[i] - c * L[i, k]
    return kappa / (n + kappa), 0.5 / (n + kappa)


def moments(Y, centre, side, mean, W, row, column, D):
    """Set the mean of Y, shape (2 n + 1, r), write its weighted spread into W and D = sum of weighted differences."""
    n, r = (Y.shape[0] - 1) // 2, Y.shape[1]
    for i in range(r):
        mean[i] = Y[0, i]  # differences to the centre: exact where nothing varies
        for k in range(1, 2 * n + 1):
            mean[i] += side * (Y[k, i] - Y[0, i])
    root, c = np.sqrt(side), np.sqrt(0.5 / side)
    for i in range(r):
        W[row + i, column] = np.sqrt(centre) * (Y[0, i] - mean[i])
        for k in range(1, 2 * n + 1):
            W[row + i, column + k] = root * (Y[k, i] - mean[i])
        for k in range(n):
            D[i, k] = side * c * (Y[1 + k, i] - Y[1 + n + k, i])


def fill_array_of_points(count, first, variables, x, points, centre, side, ZW, W):
    """Replace H L and L by the weighted spread of readings and points."""
    for j in range(points.shape[0]):
        for i in range(count):
            W[i, count + j] = ZW[variables[first + i], j]
        root = np.sqrt(centre if j == 0 else side)
        for i in range(x.shape[0]):
            W[count + i, count + j] = root * (points[j, i] - x[i])
