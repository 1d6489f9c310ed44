# mypy: disallow-untyped-defs=false, allow-untyped-calls
"""Sparse matrices W = g M - J of one pattern, M a diagonal of zeros and ones, factored L U = W again and again.

Beforehand, in Python, the order of the pivots is chosen on the diagonal (Markowitz: the fewest multiplications next,
of equals the first, so that a band stays one), and with it the entries of L and U. The kernels then run over tables,
the same for all models. Rows of L and U stand one after the other in the order of the pivots; a row holds its entries
of L, its pivot (of which the reciprocal is kept), its entries of U. Unknowns keep their places: `col` and `order` are
those of W.

There is no exchange of rows: `misfit` says how well a solution fulfils its equations, and who solves then takes a
shorter step, whose W is nearer to a multiple of I.

References
----------
Duff, I. S., Erisman, A. M. and Reid, J. K. (2017). Direct Methods for Sparse Matrices, 2nd ed., sections 7.2, 10.
Oettli, W. and Prager, W. (1964). Compatibility of approximate solution of linear equations. Numer. Math. 6, 405-409.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fmepy.types import IntVector

FULL = 0.25
"""A pattern with more than this part of all entries is taken as full, in its own order."""
MOST_ENTRIES = 4_000_000
"""Entries of L and U that are worth a try."""


class Pattern(NamedTuple):
    """The entries of L and U.

    Attributes
    ----------
    order : ndarray, shape (n,)
        The row of W that is the k-th.
    rank : ndarray, shape (n,)
        Which row of L and U a column's pivot stands in.
    low : ndarray, shape (n + 1,)
        Where the k-th row begins.
    diag : ndarray, shape (n,)
        Where its pivot stands.
    col : ndarray, shape (n_entries of L and U,)
    place : ndarray, shape (n_entries of J,)
        Where an entry of J stands.
    """

    order: IntVector
    rank: IntVector
    low: IntVector
    diag: IntVector
    col: IntVector
    place: IntVector


def eliminated(n: int, rows: Sequence[int], cols: Sequence[int]) -> Pattern:
    """Return the pattern of L and U for entries of J at (rows, cols), each of them once.

    Raises
    ------
    MemoryError
        There are more than `MOST_ENTRIES`.
    """
    order, below, right = _chosen(n, rows, cols)
    rank = np.empty(n, dtype=np.int64)
    rank[order] = np.arange(n)
    low, diag, col, places = [0], [], [], {}
    for k in order:
        whole = [*below[k], k, *sorted(right[k], key=lambda j: int(rank[j]))]
        diag.append(low[-1] + len(below[k]))
        places.update({(k, j): low[-1] + at for at, j in enumerate(whole)})
        col += whole
        low.append(len(col))
        if len(col) > MOST_ENTRIES:
            raise MemoryError(f"the factors of the Jacobian have more than {MOST_ENTRIES} entries")
    place = [places[i, j] for i, j in zip(rows, cols, strict=True)]
    return Pattern(*(np.array(a, dtype=np.int64) for a in (order, rank, low, diag, col, place)))


def _chosen(n: int, rows: Sequence[int], cols: Sequence[int]) -> tuple[list[int], list[list[int]], list[set[int]]]:
    """Return the order of the pivots, and of each row the columns of its entries of L, in that order, and of U."""
    if len(rows) > FULL * n * n and n > 20:
        if n * n > MOST_ENTRIES:
            raise MemoryError(f"a full Jacobian of {n} states has more than {MOST_ENTRIES} entries")
        return list(range(n)), [list(range(k)) for k in range(n)], [set(range(k + 1, n)) for k in range(n)]
    across: list[set[int]] = [set() for _ in range(n)]  # what is left of each row and column, but for the diagonal
    down: list[set[int]] = [set() for _ in range(n)]
    for i, j in zip(rows, cols, strict=True):
        if i != j:
            across[i].add(j)
            down[j].add(i)
    below: list[list[int]] = [[] for _ in range(n)]
    order: list[int] = []
    waiting = [(len(across[k]) * len(down[k]), k) for k in range(n)]
    heapq.heapify(waiting)
    gone = [False] * n
    while waiting:
        cost, k = heapq.heappop(waiting)
        if gone[k] or cost != len(across[k]) * len(down[k]):
            continue
        gone[k] = True
        order.append(k)
        for i in down[k]:
            across[i].discard(k)
            across[i] |= across[k] - {i}
            below[i].append(k)
        for j in across[k]:
            down[j].discard(k)
            down[j] |= down[k] - {j}
        for i in across[k] | down[k]:
            heapq.heappush(waiting, (len(across[i]) * len(down[i]), i))
    return order, below, across


# --- kernels


def factor(g, mass, J, pattern, LU, row):
    """Set LU to the factors of g M - J, M being a diagonal, `mass`; `row` is room for one.

    What cannot be divided comes as NaN or infinite.
    """
    for e in range(len(LU)):
        LU[e] = 0.0
    for e in range(len(J)):
        LU[pattern.place[e]] = -J[e]
    for k in range(len(row)):
        begin, pivot, end = pattern.low[k], pattern.diag[k], pattern.low[k + 1]
        if mass[pattern.order[k]] != 0:
            LU[pivot] += g
        if begin < pivot:
            for e in range(begin, end):
                row[pattern.col[e]] = LU[e]
            for e in range(begin, pivot):
                j = pattern.rank[pattern.col[e]]
                a = row[pattern.col[e]] * LU[pattern.diag[j]]
                LU[e] = a
                for s in range(pattern.diag[j] + 1, pattern.low[j + 1]):
                    row[pattern.col[s]] -= a * LU[s]
            for e in range(pivot, end):
                LU[e] = row[pattern.col[e]]
        LU[pivot] = 1.0 / LU[pivot]


def solve(pattern, LU, x):
    """Replace x by the solution of L U x = x."""
    n = len(x)
    for k in range(n):
        i = pattern.order[k]
        x[i] -= _inner(pattern, LU, x, pattern.low[k], pattern.diag[k])
    for k in range(n - 1, -1, -1):
        i, pivot = pattern.order[k], pattern.diag[k]
        x[i] = (x[i] - _inner(pattern, LU, x, pivot + 1, pattern.low[k + 1])) * LU[pivot]


def _inner(pattern, LU, x, begin, end):
    """Return the product of a part of a row with x: two sums at once, as one waits for itself."""
    a, b, whole = 0.0, 0.0, begin + 2 * ((end - begin) // 2)
    for e in range(begin, whole, 2):
        a += LU[e] * x[pattern.col[e]]
        b += LU[e + 1] * x[pattern.col[e + 1]]
    for e in range(whole, end):
        a += LU[e] * x[pattern.col[e]]
    return a + b


def solve_all(pattern, LU, X):
    """Do so for every column of X, whose number is even."""
    n = len(X)
    for k in range(n):
        for e in range(pattern.low[k], pattern.diag[k]):
            add_row(X, pattern.order[k], -LU[e], X, pattern.col[e])
    for k in range(n - 1, -1, -1):
        i = pattern.order[k]
        for e in range(pattern.diag[k] + 1, pattern.low[k + 1]):
            add_row(X, i, -LU[e], X, pattern.col[e])
        for p in range(X.shape[1]):
            X[i, p] *= LU[pattern.diag[k]]


def add_row(A, i, factor, B, j):
    """Add a multiple of a row of B to one of A, two entries at once."""
    for p in range(0, A.shape[1], 2):
        a, b = A[i, p] + factor * B[j, p], A[i, p + 1] + factor * B[j, p + 1]
        A[i, p], A[i, p + 1] = a, b


def misfit(g, mass, J, rows, cols, x, b, rest, size):
    """Return how far x is from fulfilling (g M - J) x = b, as the change of an entry of W or b that would do.

    It is relative to the entry (Oettli and Prager), so that units do not matter; rest is room, shape (n,), and size
    comes as what else makes a rest small: where large terms cancel to nearly nothing, nothing else would do.
    """
    n, worst = len(x), 0.0
    for i in range(n):
        term = g * x[i] if mass[i] != 0 else 0.0
        rest[i] = b[i] - term
        size[i] += abs(b[i]) + abs(term)
    for e in range(len(J)):
        term = J[e] * x[cols[e]]
        rest[rows[e]] += term
        size[rows[e]] += abs(term)
    for i in range(n):
        if not abs(rest[i]) < math.inf:
            return math.inf
        if abs(rest[i]) > worst * size[i]:
            worst = abs(rest[i]) / size[i]
    return worst
