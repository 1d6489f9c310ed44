"""Sparse factors are those of dense matrices, and who asks hears when they are not."""

from __future__ import annotations

import numpy as np
import pytest

from fmepy.compiled import sparse_lu


def factored(J, g):
    """Return entries, pattern and factors of g I - J."""
    rows, cols = np.nonzero(J)
    pattern = sparse_lu.eliminated(len(J), rows.tolist(), cols.tolist())
    LU = np.full(len(pattern.col), np.nan)  # whatever was there before
    with np.errstate(all="ignore"):
        sparse_lu.factor(g, np.ones(len(J)), J[rows, cols], pattern, LU, np.zeros(len(J)))
    return rows, cols, pattern, LU


@pytest.mark.parametrize("part", [0.0, 0.03, 0.1, 0.6])
@pytest.mark.parametrize("n", [1, 2, 7, 40])
def test_solutions_are_those_of_the_dense_system(n, part):
    rng = np.random.default_rng(n)
    J = rng.normal(size=(n, n)) * (rng.random((n, n)) < part)
    g = 2 * np.sqrt(n) + 1
    W = g * np.eye(n) - J
    rows, cols, pattern, LU = factored(J, g)
    b, B = rng.normal(size=n), rng.normal(size=(n, 8))
    x, X = b.copy(), B.copy()
    sparse_lu.solve(pattern, LU, x)
    sparse_lu.solve_all(pattern, LU, X)
    np.testing.assert_allclose(x, np.linalg.solve(W, b), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(X, np.linalg.solve(W, B), rtol=1e-9, atol=1e-12)
    assert sparse_lu.misfit(g, np.ones(len(J)), J[rows, cols], rows, cols, x, b, np.zeros(n), np.zeros(n)) < 1e-14
    x[0] *= 1 + 1e-6
    assert sparse_lu.misfit(g, np.ones(len(J)), J[rows, cols], rows, cols, x, b, np.zeros(n), np.zeros(n)) > 1e-10


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


def test_factors_too_large_are_refused(monkeypatch):
    monkeypatch.setattr(sparse_lu, "MOST_ENTRIES", 100)
    with pytest.raises(MemoryError, match="more than 100"):
        sparse_lu.eliminated(*entries(["x" * 30] * 30))
    with pytest.raises(MemoryError, match="more than 100"):
        sparse_lu.eliminated(60, [*range(59)], [*range(1, 60)])


@pytest.mark.parametrize(("g", "J"), [(1.0, [[1, -1], [-1, 1]]), (1e-20, [[0, -1], [-1, -1]])])
def test_a_pivot_of_zero_or_nearly_is_heard_of(g, J):
    J = np.array(J, dtype=float)
    rows, cols, pattern, LU = factored(J, g)
    b = np.array([1.0, 2.0])
    x = b.copy()
    with np.errstate(all="ignore"):
        sparse_lu.solve(pattern, LU, x)
        assert sparse_lu.misfit(g, np.ones(len(J)), J[rows, cols], rows, cols, x, b, np.zeros(2), np.zeros(2)) > 1e-3
