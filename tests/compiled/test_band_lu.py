"""Band matrices are solved as the dense ones that they stand for, from their diagonals."""

from __future__ import annotations

import numpy as np
import pytest

from fmepy.compiled import band_lu


def band(n, lower, upper, seed=0):
    """Return random diagonals of J, zero outside the matrix, and J."""
    rng = np.random.default_rng(seed)
    J, diagonals = np.zeros((n, n)), np.zeros((lower + 1 + upper, n))
    for i in range(n):
        for j in range(max(0, i - lower), min(n, i + upper + 1)):
            diagonals[j - i + lower, i] = J[i, j] = rng.normal()
    return diagonals.ravel(), J


BANDS = [(n, lower, upper) for n in (1, 2, 3, 4, 9, 30) for lower, upper in ((1, 1), (0, 0), (2, 1), (0, 3), (3, 2))]


@pytest.mark.parametrize(("n", "lower", "upper"), BANDS)
def test_solutions_are_those_of_the_dense_system(n, lower, upper):
    diagonals, J = band(n, lower, upper)
    g, LU, b = 4.0, np.full(n * (lower + 1 + upper), np.nan), np.random.default_rng(1).normal(size=n)
    band_lu.factor_band(g, diagonals, n, lower, upper, LU)
    x = b.copy()
    band_lu.solve_band(LU, lower, upper, x)
    np.testing.assert_allclose(x, np.linalg.solve(g * np.eye(n) - J, b), rtol=1e-11, atol=1e-13)
    X = np.stack([b, 2 * b - 1], axis=1)
    known = np.linalg.solve(g * np.eye(n) - J, X)
    band_lu.solve_band_all(LU, lower, upper, X)
    np.testing.assert_allclose(X, known, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize(("n", "lower", "upper"), BANDS)
def test_products_are_those_of_the_dense_matrix(n, lower, upper):
    diagonals, J = band(n, lower, upper)
    x = np.random.default_rng(2).normal(size=n)
    out, sizes = np.ones(n), np.ones(n)
    band_lu.add_band_product(diagonals, lower, upper, x, out, sizes)
    np.testing.assert_allclose(out, 1 + J @ x, rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(sizes, 1 + np.abs(J) @ np.abs(x), rtol=1e-13)


def test_a_pivot_of_zero_comes_as_no_number():
    x, LU = np.ones(2), np.zeros(6)
    with np.errstate(all="ignore"):
        band_lu.factor_band(1.0, np.array([0.0, 1.0, 1.0, 1.0, 1.0, 0.0]), 2, 1, 1, LU)  # [[0, -1], [-1, 0]]
        band_lu.solve_band(LU, 1, 1, x)
    assert not np.isfinite(x).all()
