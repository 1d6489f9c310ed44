"""Second derivatives along the columns of a factor: what an update of second order adds to mean and covariance."""

from __future__ import annotations

import numpy as np

from fmepy.compiled.kernels import kernel
from fmepy.filtering.loop import EULER, RK4

__all__ = ["bent", "curved_readings", "curved_step", "fill_array_of_curvature"]


@kernel
def bent(FF, a, b, w):  # type: ignore[no-untyped-def]
    """Set w_i to sum FF_ijk a_j b_k."""
    n = a.shape[0]
    for i in range(FF.shape[0]):
        w[i] = 0.0
        for j in range(n):
            for k in range(n):
                if FF[i, j, k] != 0.0:
                    w[i] += FF[i, j, k] * a[j] * b[k]


@kernel
def curved_step(kind, h, F, T, FF, L, bias, W, column):  # type: ignore[no-untyped-def]
    """Set the bias of a step and write the columns of its curvature into W from `column` on; return how many."""
    n = L.shape[0]
    stages = 4 if kind == RK4 else 1
    a, b, w, last, total = np.empty(n), np.empty(n), np.empty(n), np.empty(n), np.empty(n)
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
                bent(FF[s], a, b, w)
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


@kernel
def curved_readings(HH, L, bias, W):  # type: ignore[no-untyped-def]
    """Set the bias of all readings and W, shape (n_var, n (n + 1) / 2), to the columns of their curvature."""
    n, m = L.shape[0], HH.shape[0]
    w, a, b = np.empty(m), np.empty(n), np.empty(n)
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


@kernel
def fill_array_of_curvature(count, first, variables, HC, n, W):  # type: ignore[no-untyped-def]
    """Add the columns of the readings' curvature."""
    for j in range(HC.shape[1]):
        for i in range(count):
            W[i, count + n + j] = HC[variables[first + i], j]
        for i in range(n):
            W[count + i, count + n + j] = 0.0
