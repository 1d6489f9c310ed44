# mypy: disallow-untyped-defs=false, allow-untyped-calls
"""Second derivatives along the columns of a factor: what an update of second order adds to mean and covariance."""

from __future__ import annotations

import numpy as np

from fmepy.compiled.kernels import new
from fmepy.filtering.transition import EULER, RK4


def bent(FF, a, b, w):
    """Set w_i to sum FF_ijk a_j b_k."""
    n = a.shape[0]
    for i in range(FF.shape[0]):
        w[i] = 0.0
        for j in range(n):
            for k in range(n):
                if FF[i, j, k] != 0.0:
                    w[i] += FF[i, j, k] * a[j] * b[k]


def curved_step(kind, h, F, T, FF, L, bias, W, column):
    """Set the bias of a step and write the columns of its curvature into W from `column` on; return how many.

    F, T, FF are those of the stages, FF one below the other.
    """
    n = L.shape[0]
    stages = 4 if kind == RK4 else 1
    a, b, w, last, total = new(n), new(n), new(n), new(n), new(n)
    for i in range(n):
        bias[i] = 0.0
    count = 0
    for p in range(n):
        for q in range(p + 1):
            for s in range(stages):
                for i in range(n):
                    a[i], b[i] = L[i, p], L[i, q]
                if s > 0:
                    for i in range(n):
                        a[i], b[i] = 0.0, 0.0
                        for j in range(n):
                            a[i] += T[s, i, j] * L[j, p]
                            b[i] += T[s, i, j] * L[j, q]
                bent(FF[s * n : (s + 1) * n], a, b, w)
                if s > 0:
                    width = h if s == 3 else 0.5 * h
                    for i in range(n):
                        for j in range(n):
                            w[i] += width * F[s, i, j] * last[j]
                part = 1.0
                if kind == EULER:
                    part = h
                elif kind == RK4:
                    part = h / 6 if s == 0 or s == 3 else h / 3
                for i in range(n):
                    last[i] = w[i]
                    total[i] = part * w[i] + (total[i] if s > 0 else 0.0)
            for i in range(n):
                W[i, column + count] = total[i] if p != q else total[i] / np.sqrt(2.0)
                if p == q:
                    bias[i] += 0.5 * total[i]
            count += 1
    return count


def curved_readings(HH, L, bias, W):
    """Set the bias of all readings and W, shape (n_var, n (n + 1) / 2), to the columns of their curvature."""
    n, m = L.shape[0], HH.shape[0]
    w, a, b = new(m), new(n), new(n)
    for v in range(m):
        bias[v] = 0.0
    count = 0
    for p in range(n):
        for q in range(p + 1):
            for i in range(n):
                a[i], b[i] = L[i, p], L[i, q]
            bent(HH, a, b, w)
            for v in range(m):
                W[v, count] = w[v] if p != q else w[v] / np.sqrt(2.0)
                if p == q:
                    bias[v] += 0.5 * w[v]
            count += 1


def fill_array_of_curvature(count, first, variables, HC, n, W):
    """Add the columns of the readings' curvature."""
    for j in range(HC.shape[1]):
        for i in range(count):
            W[i, count + n + j] = HC[variables[first + i], j]
        for i in range(n):
            W[count + i, count + n + j] = 0.0
