"""Band matrices are solved as the dense ones that they stand for, from their diagonals."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from fmepy.compiled import band_lu
from fmepy.compiled.c_loops import address


def band(n, lower, upper, seed=0):
    """Return a random band J by rows, zero outside the matrix, and J."""
    rng = np.random.default_rng(seed)
    J, rows = np.zeros((n, n)), np.zeros((n, lower + 1 + upper))
    for i in range(n):
        for j in range(max(0, i - lower), min(n, i + upper + 1)):
            rows[i, j - i + lower] = J[i, j] = rng.normal()
    return rows.ravel(), J


def compiled(lower, upper, moves):
    """Return the functions of a band in machine code."""
    pointer, whole = ctypes.c_void_p, ctypes.c_int64
    kinds = [ctypes.c_double, pointer, pointer, whole, pointer], [*[pointer] * 4, whole, whole], [*[pointer] * 6, whole]
    return [ctypes.CFUNCTYPE(None, *k)(at) for k, at in zip(kinds, band_lu.band_code(lower, upper, moves), strict=True)]


BANDS = [(n, lower, upper) for n in (1, 2, 3, 4, 9, 30) for lower, upper in ((1, 1), (0, 0), (2, 1), (0, 3), (3, 2))]


@pytest.mark.parametrize("moves", [True, False])
@pytest.mark.parametrize("m", [1, 5, 6])
@pytest.mark.parametrize(("n", "lower", "upper"), BANDS)
def test_solutions_are_those_of_the_dense_system(n, lower, upper, m, moves):
    rows, J = band(n, lower, upper)
    rng, W = np.random.default_rng(1), 4.0 * np.eye(n) - J
    order, room, good = rng.permutation(n) if moves else np.arange(n), np.zeros(4 * n), np.zeros(1)
    LU, compiled_LU = np.full((2, len(rows)), np.nan)
    factor, solve, _ = compiled(lower, upper, moves)
    factor(4.0, address(rows), address(compiled_LU), n, address(good))
    assert band_lu.factor_band(4.0, rows, n, lower, upper, LU) == bool(good[0])
    X = rng.normal(size=(m, n))
    known, by_machine = np.empty((m, n)), X.copy()
    known[:, order] = np.linalg.solve(W, X[:, order].T).T
    solve(address(compiled_LU), address(order), address(room), address(by_machine), n, m)
    for p in range(0, m, 4):  # the kernel itself, as Python
        more = [None] * 3 if p == m - 1 else [X[min(p + k, m - 1)] for k in (1, 2, 3)]
        own = (order, room) if moves else (None, X[p] if p == m - 1 else room)
        band_lu.solve_band(LU, lower, upper, *own, X[p], *more)
    np.testing.assert_allclose(X, known, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(by_machine, known, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize(("lower", "upper"), [(1, 1), (2, 1), (0, 3)])
def test_factors_are_known_to_be_good_where_the_diagonal_is_the_largest(lower, upper):
    width, diagonal = lower + 1 + upper, np.arange(4) * (lower + 1 + upper) + lower
    for g, is_good in ((width - 1.0, True), (width - 1.1, False), (np.nan, False)):  # of ones beside the diagonal
        LU, rows = np.zeros(4 * width), np.ones(4 * width)
        rows[diagonal] = 0.0
        assert band_lu.factor_band(g, rows, 4, lower, upper, LU) == is_good


@pytest.mark.parametrize("moves", [True, False])
@pytest.mark.parametrize(("n", "lower", "upper"), BANDS)
def test_products_are_those_of_the_dense_matrix(n, lower, upper, moves):
    rows, J = band(n, lower, upper)
    rng = np.random.default_rng(2)
    x, order, both = rng.normal(size=n), rng.permutation(n) if moves else np.arange(n), np.ones((2, 2, n))
    room = np.empty(n)
    band_lu.add_band_product(rows, lower, upper, *((order, room) if moves else (None, x)), x, *both[0])
    compiled(lower, upper, moves)[2](
        address(rows), address(order), address(room), address(x), *map(address, both[1]), n
    )
    for out, sizes in both:
        np.testing.assert_allclose(out[order], 1 + J @ x[order], rtol=1e-13, atol=1e-14)
        np.testing.assert_allclose(sizes[order], 1 + np.abs(J) @ np.abs(x[order]), rtol=1e-13)


def test_a_pivot_of_zero_comes_as_no_number():
    x, LU = np.ones(2), np.zeros(6)
    with np.errstate(all="ignore"):
        band_lu.factor_band(1.0, np.array([0.0, 1.0, 1.0, 1.0, 1.0, 0.0]), 2, 1, 1, LU)  # [[0, -1], [-1, 0]]
        band_lu.solve_band(LU, 1, 1, np.arange(2), np.zeros(8), x, None, None, None)
    assert not np.isfinite(x).all()
