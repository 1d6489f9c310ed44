"""Sparse factors are those of dense matrices, and who asks hears when they are not."""

from __future__ import annotations

import numpy as np
import pytest

from fmepy.compiled import sparse_lu


def factored(J, g, block=False):
    """Return entries, pattern and factors of g I - J."""
    rows, cols = np.nonzero(J)
    pattern = sparse_lu.eliminated(len(J), rows.tolist(), cols.tolist())
    pattern = sparse_lu.with_block(pattern) if block else pattern
    LU = np.full(pattern.n_entries, np.nan)  # whatever was there before
    with np.errstate(all="ignore"):
        sparse_lu.factor(g, np.ones(len(J)), J[rows, cols], pattern, LU, np.zeros(len(J)))
    return rows, cols, pattern, LU


@pytest.mark.parametrize("part", [0.0, 0.03, 0.1, 0.6])
@pytest.mark.parametrize(("n", "block"), [(1, False), (2, False), (7, False), (40, False), (40, True)])
def test_solutions_are_those_of_the_dense_system(n, block, part):
    rng = np.random.default_rng(n)
    J = rng.normal(size=(n, n)) * (rng.random((n, n)) < part)
    g = 2 * np.sqrt(n) + 1
    W = g * np.eye(n) - J
    _, _, pattern, LU = factored(J, g, block)
    b, B = rng.normal(size=n), rng.normal(size=(n, 8))
    x, X = b.copy(), B.copy()
    sparse_lu.solve(pattern, LU, x, np.zeros(n))
    sparse_lu.solve_all(pattern, LU, X)
    np.testing.assert_allclose(x, np.linalg.solve(W, b), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(X, np.linalg.solve(W, B), rtol=1e-9, atol=1e-12)
    assert misfit(g, J, x, b) < 1e-14
    x[0] *= 1 + 1e-6
    assert misfit(g, J, x, b) > 1e-10


def misfit(g, J, x, b):
    (rows, cols), rest, size = np.nonzero(J), np.zeros(len(x)), np.zeros(len(x))
    sparse_lu.add_product(J[rows, cols], rows, cols, x, rest, size)
    return sparse_lu.misfit(g, np.ones(len(J)), x, b, rest, size)


def entries(cells):
    """Return (n, rows, columns) of a matrix drawn in text."""
    drawn = np.array([list(line) for line in cells]) == "x"
    return len(drawn), *(a.tolist() for a in np.nonzero(drawn))


def test_a_band_stays_a_band_and_an_arrow_fills_nothing():
    n = 50
    i = np.arange(n - 1)
    band = sparse_lu.eliminated(n, [*i, *(i + 1)], [*(i + 1), *i])
    np.testing.assert_array_equal(band.order, np.arange(n))
    assert len(band.col) == 3 * n - 2
    arrow = sparse_lu.eliminated(*entries(["xxxxx", "xx   ", "x x  ", "x  x ", "x   x"]))
    assert len(arrow.col) == 13
    assert arrow.order[0] != 0


def test_what_is_nearly_full_is_taken_as_full():
    pattern = sparse_lu.eliminated(*entries(["x" * 30] * 30))
    np.testing.assert_array_equal(pattern.order, np.arange(30))
    assert len(pattern.col) == 900


def test_what_fills_up_at_last_is_a_block():
    rng = np.random.default_rng(3)
    n = 60
    J = np.diag(np.ones(n - 1), 1) + np.diag(np.ones(n - 1), -1) + (rng.random((n, n)) < 0.04)
    rows, cols = (a.tolist() for a in np.nonzero(J))
    plain = sparse_lu.eliminated(n, rows, cols)
    pattern = sparse_lu.with_block(plain)
    m = n - len(pattern.diag)
    assert sparse_lu.LEAST_BLOCK <= m < n
    assert len(plain.col) <= pattern.n_entries <= len(plain.col) + (1 - sparse_lu.FILLED) * m**2
    full = sparse_lu.with_block(sparse_lu.eliminated(*entries(["x" * 30] * 30)))
    assert (len(full.diag), len(full.col), full.n_entries) == (0, 0, 900)
    few = sparse_lu.eliminated(*entries(["x" * 7] * 7))
    assert sparse_lu.with_block(few) is few


@pytest.mark.parametrize("n", [1, 2, 9, 30])
def test_a_full_matrix_is_factored_with_exchange_of_rows_whatever_their_units(n):
    rng = np.random.default_rng(n)
    W = rng.normal(size=(n, n)) * 10.0 ** rng.uniform(-8, 8, size=(n, 1))
    W[0, 0] = W[0, 0] if n == 1 else 0.0
    B, exchange, b, X = W.copy(), np.zeros(n), rng.normal(size=n), rng.normal(size=(n, 4))
    with np.errstate(all="ignore"):
        sparse_lu.factor_block(B, exchange, np.zeros(n))
    x, Y = b.copy(), X.copy()
    sparse_lu.solve_block(B, exchange, x)
    sparse_lu.solve_block_all(B, exchange, None, Y)
    for ours, theirs in ((x, np.linalg.solve(W, b)), (Y, np.linalg.solve(W, X))):
        np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=1e-9 * np.abs(theirs).max())
    u = b.copy()
    sparse_lu.solve_block_transposed(B, exchange, u)
    np.testing.assert_allclose((u[:, None] * W).sum(axis=0), b, rtol=1e-6, atol=1e-6)


def test_factors_too_large_are_refused(monkeypatch):
    monkeypatch.setattr(sparse_lu, "MOST_ENTRIES", 100)
    with pytest.raises(MemoryError, match="more than 100"):
        sparse_lu.eliminated(*entries(["x" * 30] * 30))
    with pytest.raises(MemoryError, match="more than 100"):
        sparse_lu.eliminated(60, [*range(59)], [*range(1, 60)])


@pytest.mark.parametrize(("g", "J"), [(1.0, [[1, -1], [-1, 1]]), (1e-20, [[0, -1], [-1, -1]])])
def test_a_pivot_of_zero_or_nearly_is_heard_of(g, J):
    J = np.array(J, dtype=float)
    _, _, pattern, LU = factored(J, g)
    b = np.array([1.0, 2.0])
    x = b.copy()
    with np.errstate(all="ignore"):
        sparse_lu.solve(pattern, LU, x, np.zeros(2))
        assert misfit(g, J, x, b) > 1e-3
