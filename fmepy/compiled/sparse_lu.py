# mypy: disallow-untyped-defs=false, allow-untyped-calls
"""Sparse matrices W = g M - J of one pattern, M a diagonal of zeros and ones, factored L U = W again and again.

Beforehand, in Python, the order of the pivots is chosen on the diagonal (Markowitz: the fewest multiplications next,
of equals the first, so that a band stays one), and with it the entries of L and U. The kernels then run over tables,
the same for all models. Rows of L and U stand one after the other in the order of the pivots; a row holds its entries
of L, its pivot (of which the reciprocal is kept), its entries of U. What is left last of W fills up; from where it has
(`with_block`) it is a block, a full matrix by rows, and of the rows that go through it the tables hold only what stands
left of it.

There is no exchange of rows: `misfit` says how well a solution fulfils its equations. Who solves then factors the whole
as one block, with exchange, or takes a shorter step, whose W is nearer to a multiple of I.

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

from fmepy.compiled.kernels import inner
from fmepy.types import IntVector

FULL = 0.25
"""A pattern with more than this part of all entries is taken as full, in its own order."""
MOST_ENTRIES = 4_000_000
"""Entries of L and U that are worth a try."""
FILLED, LEAST_BLOCK = 0.9, 8
"""A block has at least this part of all entries, and rows."""
EQUAL = 0.1
"""A pivot on the diagonal stays if it is no smaller than this part of the largest, each by the largest of its row."""


class Pattern(NamedTuple):
    """The entries of L and U.

    Attributes
    ----------
    order : ndarray, shape (n,)
        The row of W that is the k-th.
    low : ndarray, shape (n + 1,)
        Where the k-th row begins.
    diag : ndarray, shape (n - rows of the block,)
        Where its pivot stands.
    col : ndarray, shape (n_entries of L and U before the block,)
        Columns, counted in that order too.
    place : ndarray, shape (n_entries of J,)
        Where an entry of J stands.
    """

    order: IntVector
    low: IntVector
    diag: IntVector
    col: IntVector
    place: IntVector

    @property
    def n_entries(self) -> int:
        """Of L and U, with those of the block."""
        return len(self.col) + (len(self.order) - len(self.diag)) ** 2


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
        col += rank[whole].tolist()
        low.append(len(col))
        if len(col) > MOST_ENTRIES:
            raise MemoryError(f"the factors of the Jacobian have more than {MOST_ENTRIES} entries")
    place = [places[i, j] for i, j in zip(rows, cols, strict=True)]
    return Pattern(*(np.array(a, dtype=np.int64) for a in (order, low, diag, col, place)))


def with_block(pattern: Pattern) -> Pattern:
    """Return the same with the last rows and columns as a block, as many of them as are nearly full."""
    order, low, _, col, place = pattern
    n = len(order)
    rows = np.repeat(np.arange(n), np.diff(low))
    inside = np.cumsum(np.bincount(np.minimum(rows, col), minlength=n)[::-1])[::-1]  # entries of every such block
    full = np.flatnonzero(inside >= FILLED * (n - np.arange(n)) ** 2)
    first = int(full[0]) if len(full) else n
    m = n - first
    if m < LEAST_BLOCK:
        return pattern
    outside = (rows < first) | (col < first)
    begins = np.concatenate([[0], np.cumsum(np.bincount(rows[outside], minlength=n))])
    at = np.where(outside, np.cumsum(outside) - 1, begins[-1] + (rows - first) * m + col - first)
    return Pattern(order, begins, at[pattern.diag[:first]], col[outside], at[place])


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
    n, first, low, col = len(row), len(pattern.diag), pattern.low, pattern.col
    m = n - first
    for e in range(len(LU)):
        LU[e] = 0.0
    for e in range(len(J)):
        LU[pattern.place[e]] = -J[e]
    for k in range(first):
        pivot = pattern.diag[k]
        if mass[pattern.order[k]] != 0:
            LU[pivot] += g
        if low[k] < pivot:
            for e in range(low[k], low[k + 1]):
                row[col[e]] = LU[e]
            _eliminate(pattern, LU, row, low[k], pivot)
            for e in range(pivot, low[k + 1]):
                LU[e] = row[col[e]]
        LU[pivot] = 1.0 / LU[pivot]
    block = LU[low[n] :].reshape((m, m))
    for i in range(m):
        k = first + i
        if mass[pattern.order[k]] != 0:
            block[i, i] += g
        if low[k] < low[k + 1]:
            for e in range(low[k], low[k + 1]):
                row[col[e]] = LU[e]
            for j in range(m):
                row[first + j] = block[i, j]
            _eliminate(pattern, LU, row, low[k], low[k + 1])
            for j in range(m):
                block[i, j] = row[first + j]
    factor_block(block, None, row)


def _eliminate(pattern, LU, row, begin, end):
    """Set the entries of L in a row of W, and take from the row what their rows of U bring."""
    for e in range(begin, end):
        j = pattern.col[e]
        a = row[j] * LU[pattern.diag[j]]
        LU[e] = a
        for s in range(pattern.diag[j] + 1, pattern.low[j + 1]):
            row[pattern.col[s]] -= a * LU[s]


def factor_block(B, exchange, scale):
    """Replace a full matrix by its factors.

    With `exchange` rows are exchanged where a pivot is small by the largest entry of its row; exchange[k] is set to the
    row that was exchanged with the k-th. `scale` is room.
    """
    m = len(B)
    if exchange is not None:
        for i in range(m):
            scale[i] = 0.0
            for j in range(m):
                scale[i] = max(scale[i], abs(B[i, j]))
    for k in range(m):
        if exchange is not None:
            p, largest = k, abs(B[k, k]) / scale[k] / EQUAL
            for i in range(k + 1, m):
                if abs(B[i, k]) / scale[i] > largest:
                    p, largest = i, abs(B[i, k]) / scale[i]
            exchange[k] = p
            scale[k], scale[p] = scale[p], scale[k]
            for j in range(m):
                B[k, j], B[p, j] = B[p, j], B[k, j]
        u = B[k]
        inverse = 1.0 / u[k]
        u[k] = inverse
        for i in range(k + 1, m):
            v = B[i]
            a = v[k] * inverse
            v[k] = a
            for j in range(k + 1, m):
                v[j] -= a * u[j]


def solve(pattern, LU, x, b):
    """Replace x by the solution of L U x = x; b is room for it."""
    n, first, low, diag = len(x), len(pattern.diag), pattern.low, pattern.diag
    for k in range(n):
        b[k] = x[pattern.order[k]]
    for k in range(n):
        b[k] -= _inner(pattern, LU, b, low[k], diag[k] if k < first else low[k + 1])
    solve_block(LU[low[n] :].reshape((n - first, n - first)), None, b[first:])
    for k in range(first - 1, -1, -1):
        b[k] = (b[k] - _inner(pattern, LU, b, diag[k] + 1, low[k + 1])) * LU[diag[k]]
    for k in range(n):
        x[pattern.order[k]] = b[k]


def _inner(pattern, LU, b, begin, end):
    out = 0.0
    for e in range(begin, end):
        out += LU[e] * b[pattern.col[e]]
    return out


def solve_block(B, exchange, b):
    """Do so with the factors of a full matrix."""
    m = len(B)
    if exchange is not None:
        for k in range(m):
            p = int(exchange[k])
            b[k], b[p] = b[p], b[k]
    for k in range(m):
        b[k] -= inner(B[k], b, 0, k)
    for k in range(m - 1, -1, -1):
        b[k] = (b[k] - inner(B[k], b, k + 1, m)) * B[k, k]


def solve_block_transposed(B, exchange, b):
    """Replace b by the solution with the transposed matrix."""
    m = len(B)
    for k in range(m):
        for j in range(k):
            b[k] -= B[j, k] * b[j]
        b[k] *= B[k, k]
    for k in range(m - 1, -1, -1):
        for j in range(k + 1, m):
            b[k] -= B[j, k] * b[j]
    for k in range(m - 1, -1, -1):
        p = int(exchange[k])
        b[k], b[p] = b[p], b[k]


def solve_all(pattern, LU, X):
    """Do so for every column of X, whose number is even."""
    n, first, order, low, diag = len(X), len(pattern.diag), pattern.order, pattern.low, pattern.diag
    for k in range(n):
        for e in range(low[k], diag[k] if k < first else low[k + 1]):
            add_row(X, order[k], -LU[e], X, order[pattern.col[e]])
    solve_block_all(LU[low[n] :].reshape((n - first, n - first)), None, order[first:], X)
    for k in range(first - 1, -1, -1):
        for e in range(diag[k] + 1, low[k + 1]):
            add_row(X, order[k], -LU[e], X, order[pattern.col[e]])
        for p in range(X.shape[1]):
            X[order[k], p] *= LU[diag[k]]


def solve_block_all(B, exchange, at, X):
    """Do so with the factors of a full matrix, for the rows of X at `at` (None: all as they stand)."""
    m = len(B)
    if exchange is not None:
        for k in range(m):
            q = int(exchange[k])
            for p in range(X.shape[1]):
                X[k, p], X[q, p] = X[q, p], X[k, p]
    for k in range(m):
        i = k if at is None else at[k]
        for j in range(k):
            add_row(X, i, -B[k, j], X, j if at is None else at[j])
    for k in range(m - 1, -1, -1):
        i = k if at is None else at[k]
        for j in range(k + 1, m):
            add_row(X, i, -B[k, j], X, j if at is None else at[j])
        for p in range(X.shape[1]):
            X[i, p] *= B[k, k]


def add_row(A, i, factor, B, j):
    """Add a multiple of a row of B to one of A, two entries at once."""
    for p in range(0, A.shape[1], 2):
        a, b = A[i, p] + factor * B[j, p], A[i, p + 1] + factor * B[j, p + 1]
        A[i, p], A[i, p + 1] = a, b


def add_product(J, rows, cols, x, out, sizes):
    """Add J x to out, and to sizes what the products of a row come to, whatever their signs."""
    for e in range(len(rows)):
        term = J[e] * x[cols[e]]
        out[rows[e]] += term
        sizes[rows[e]] += abs(term)


def misfit(g, mass, x, b, rest, size):
    """Return how far x is from fulfilling (g M - J) x = b, as the change of an entry of W or b that would do.

    It is relative to the entry (Oettli and Prager), so that units do not matter; rest comes as J x, and size as the sum
    of what J x adds up, and of what else makes a rest small: where large terms cancel to nearly nothing, nothing else
    would do.
    """
    worst = 0.0
    for i in range(len(x)):
        term = g * x[i] if mass[i] != 0 else 0.0
        rest[i] += b[i] - term
        size[i] += abs(b[i]) + abs(term)
        if not abs(rest[i]) < math.inf:
            return math.inf
        if abs(rest[i]) > worst * size[i]:
            worst = abs(rest[i]) / size[i]
    return worst
