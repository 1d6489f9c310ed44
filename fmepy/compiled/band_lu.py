# mypy: disallow-untyped-defs=false, allow-untyped-calls
"""Matrices W = g I - J whose J is a band, factored without exchange of rows: kernels, compiled for each band.

A band of `lower` diagonals below and `upper` above the main one is kept by rows: the entry (i, j) stands at
``(lower + 1 + upper) i + j - i + lower``, and what lies outside the matrix is zero. So are the factors, with the
reciprocals of the pivots, by which the other entries of their rows are multiplied.

Every row of a solution waits for the one before. So rows are eliminated from both ends at once, down to those in the
middle (the twisted factors of Parlett and Dhillon), and a row takes what it waits for last, and from no place in
memory. Most bands are so narrow that loops over their widths cost more than what stands in them: the kernels are
compiled for the widths, and these loops are unrolled.

References
----------
Parlett, B. N. and Dhillon, I. S. (1997). Fernando's solution to Wilkinson's problem: an application of double
factorization. Linear Algebra Appl. 267, 247-279.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from fmepy.compiled.c_loops import loop_address
from fmepy.compiled.kernels import doubles, integers, lanes, lanes_at, multiply_add, set_lanes


@cache
def band_code(lower: int, upper: int, moves: bool) -> tuple[int, int, int]:
    """Return the addresses of C functions for bands of these widths; `moves`: in another order than that of the states.

    ``void factor(g, J, LU, n, good)`` sets LU to the factors of g I - J, and good to 1 where they are known to be good,
    else to 0. ``void solve(LU, order, room, X, n, m)`` replaces the m rows of X by the solutions of L U x = x, whose
    entries are ``x[order]``; of room there are 4 n. ``void multiply(J, order, room, x, out, sizes, n)``,
    see `add_band_product`.
    """
    width = lower + 1 + upper

    def factor(g: float, J: int, LU: int, n: int, good: int) -> None:
        is_good = factor_band(g, doubles(J, n * width), n, lower, upper, doubles(LU, n * width))
        doubles(good, 1)[0] = 1.0 if is_good else 0.0

    def solve(LU: int, order: int, room: int, X: int, n: int, m: int) -> None:
        factors, T, x = doubles(LU, n * width), doubles(room, 4 * n), doubles(X, m, n)
        for p in range(0, m, 4):
            r, s = min(p + 2, m - 1), min(p + 3, m - 1)
            if not moves and p == m - 1:
                solve_band(factors, lower, upper, None, x[p], x[p], None, None, None)
            elif not moves:
                solve_band(factors, lower, upper, None, T, x[p], x[p + 1], x[r], x[s])
            elif p == m - 1:
                solve_band(factors, lower, upper, integers(order, n), T, x[p], None, None, None)
            else:
                solve_band(factors, lower, upper, integers(order, n), T, x[p], x[p + 1], x[r], x[s])

    def multiply(J: int, order: int, room: int, x: int, out: int, sizes: int, n: int) -> None:
        j, v, a, b = doubles(J, n * width), doubles(x, n), doubles(out, n), doubles(sizes, n)
        if moves:
            add_band_product(j, lower, upper, integers(order, n), doubles(room, n), v, a, b)
        else:
            add_band_product(j, lower, upper, None, v, v, a, b)

    def at(kernel: Any) -> int:
        kernel.__name__ += f"_{lower}_{upper}_{'moved' if moves else 'own'}"
        return loop_address(kernel, "the solver of bands")

    return at(factor), at(solve), at(multiply)


def add_band_product(J, lower, upper, order, T, x, out, sizes):
    """Add J x to out, and to sizes what they come to whatever their signs; T is room, or x without order."""
    n, width = len(x), lower + 1 + upper
    if order is not None:
        for i in range(n):
            T[i] = x[order[i]]
    for i in range(n):
        if lower <= i < n - upper:  # a number of terms that is known: unrolled
            total, size = _product(J, width * i, T, i - lower, 0, width)
        else:
            total, size = _product(J, width * i, T, i - lower, max(0, lower - i), min(width, n - i + lower))
        out[_state(order, i)] += total
        sizes[_state(order, i)] += size


def _state(order, i):
    if order is None:
        return i
    return order[i]


def _product(J, at, T, begin, first, end):
    total = size = 0.0
    for d in range(first, end):
        term = J[at + d] * T[begin + d]
        total += term
        size += abs(term)
    return total, size


def factor_band(g, J, n, lower, upper, LU):
    """Set LU to the factors of g I - J; what cannot be divided comes as NaN or infinite.

    Return whether they are known to be good: where the main diagonal is as large as the others together.
    """
    if lower == 1 and upper == 1:
        return _factor_three(g, J.reshape((n, 3)), LU.reshape((n, 3)))
    width, n_below = lower + 1 + upper, max(0, (n - max(lower, upper)) // 2)
    n_above, is_good = n - n_below, True
    for i in range(n):
        at, others = i * width + lower, 0.0
        for j in range(at - lower, at):
            LU[j] = -J[j]
            others += abs(J[j])
        for j in range(at + 1, at + 1 + upper):
            LU[j] = -J[j]
            others += abs(J[j])
        LU[at] = g - J[at]
        is_good = is_good and LU[at] >= others
    for k in range(n_below):
        _eliminate(LU, k * width + lower, 1, lower, upper, lower, upper)
        _eliminate(LU, (n - 1 - k) * width + lower, -1, lower, upper, upper, lower)
    for k in range(n_below, n_above):
        _eliminate(LU, k * width + lower, 1, lower, upper, min(lower, n_above - 1 - k), min(upper, n_above - 1 - k))
    return is_good


def _factor_three(g, J, LU):
    """Do so with three diagonals, where a pivot waits for the one before and for nothing else."""
    n = len(J)
    n_below, above, below, is_good = (n - 1) // 2, 1.0, 1.0, True
    for i in range(n_below):
        j = n - 1 - i
        above = g - J[i, 1] - (J[i, 0] * J[i - 1, 2] if i > 0 else 0.0) / above
        below = g - J[j, 1] - (J[j, 2] * J[j + 1, 0] if i > 0 else 0.0) / below
        LU[i, 1], LU[j, 1] = above, below
    for i in range(n_below, n - n_below):
        above = g - J[i, 1] - (J[i, 0] * J[i - 1, 2] if i > 0 else 0.0) / above
        if n_below > 0 and i == n - n_below - 1:
            above -= J[i, 2] * J[i + 1, 0] / below
        LU[i, 1] = above
    for i in range(n):
        inverse = 1.0 / LU[i, 1]
        LU[i, 0], LU[i, 1], LU[i, 2] = -J[i, 0] * inverse, inverse, -J[i, 2] * inverse
        is_good = is_good and g - J[i, 1] >= abs(J[i, 0]) + abs(J[i, 2])
    return is_good


def _eliminate(LU, at, s, lower, upper, n_rows, n_cols):
    """Take the pivot at a place from the rows behind it, or before it (s = -1)."""
    inverse = 1.0 / LU[at]
    for i in range(1, n_rows + 1):
        there = at + s * i * (lower + upper)
        a = LU[there]
        for j in range(1, n_cols + 1):  # what the next pivot waits for is the reciprocal alone
            LU[there + s * j] = multiply_add(-inverse, a * LU[at + s * j], LU[there + s * j])
    LU[at] = inverse
    for j in range(at - lower, at):
        LU[j] *= inverse
    for j in range(at + 1, at + 1 + upper):
        LU[j] *= inverse


def solve_band(LU, lower, upper, order, T, a, b, c, d):
    """Replace a, or a, b, c and d at once, by the solutions; d is None: there is a alone. T is room.

    Without order, and with a alone, T is a.
    """
    n, width = len(a), lower + 1 + upper
    n_below = max(0, (n - max(lower, upper)) // 2)
    n_above = n - n_below
    u = _loaded(a, b, c, d, _state(order, 0))
    v = u
    for k in range(n_below):
        j = n - 1 - k
        at, to = k * width + lower, j * width + lower
        u = _eliminated(LU, T, at, k, 1, min(k, lower), d, _loaded(a, b, c, d, _state(order, k)) * LU[at], u)
        v = _eliminated(LU, T, to, j, -1, min(k, upper), d, _loaded(a, b, c, d, _state(order, j)) * LU[to], v)
        _set_entry(T, k, d, u)
        _set_entry(T, j, d, v)
    for k in range(n_below, n_above):
        at = k * width + lower
        x = _loaded(a, b, c, d, _state(order, k)) * LU[at]
        for j in range(n_above - k, min(upper, n - 1 - k) + 1):
            x = multiply_add(_entry(T, k + j, d), -LU[at + j], x)
        u = _eliminated(LU, T, at, k, 1, min(k, lower), d, x, u)
        _set_entry(T, k, d, u)
    for k in range(n_above - 1, n_below - 1, -1):
        u = _eliminated(LU, T, k * width + lower, k, -1, min(n_above - 1 - k, upper), d, _entry(T, k, d), u)
        _set_entry(T, k, d, u)
        _store(T, k, order, a, b, c, d)
    v = _entry(T, n_above - 1, d)
    for i in range(n_below):
        k, j = n_below - 1 - i, n_above + i
        u = _eliminated(LU, T, k * width + lower, k, -1, upper, d, _entry(T, k, d), u)
        v = _eliminated(LU, T, j * width + lower, j, 1, lower, d, _entry(T, j, d), v)
        _set_entry(T, k, d, u)
        _set_entry(T, j, d, v)
        _store(T, k, order, a, b, c, d)
        _store(T, j, order, a, b, c, d)


def _eliminated(LU, T, at, k, s, count, d, x, last):
    """Return x, of row k, less so many rows before it, or behind it (s = -1), by its factors; `last` is the nearest."""
    for j in range(count, 1, -1):
        x = multiply_add(_entry(T, k - s * j, d), -LU[at - s * j], x)
    return multiply_add(last, -LU[at - s], x) if count > 0 else x


def _loaded(a, b, c, d, i):
    if d is None:
        return a[i]
    return lanes(a[i], b[i], c[i], d[i])


def _entry(T, k, d):
    if d is None:
        return T[k]
    return lanes_at(T, 4 * k, 4)


def _set_entry(T, k, d, x):
    if d is None:
        T[k] = x
    else:
        set_lanes(T, 4 * k, x)


def _store(T, k, order, a, b, c, d):
    if d is None and order is None:
        return
    i = _state(order, k)
    if d is None:
        a[i] = T[k]
    else:
        a[i], b[i], c[i], d[i] = T[4 * k], T[4 * k + 1], T[4 * k + 2], T[4 * k + 3]
