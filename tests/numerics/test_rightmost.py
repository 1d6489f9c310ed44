"""The rightmost eigenvalue of a sparse matrix is that of the dense one."""

import numpy as np
import pytest
from scipy import sparse

from fmepy.numerics.rightmost import rightmost
from fmepy.numerics.structure import Structure


def found(J):
    J = sparse.csc_array(J)
    structure = Structure.of(J)
    return rightmost(structure, np.asarray(J.toarray()[structure.rows, structure.columns]))


def test_of_a_grid_it_is_that_of_the_slowest_wave():
    n = 1500
    J = sparse.diags_array([np.ones(n - 1), np.full(n, -2.0), np.ones(n - 1)], offsets=[-1, 0, 1]) * n**2
    slowest = -4 * n**2 * np.sin(np.pi / (2 * (n + 1))) ** 2
    assert found(J) == pytest.approx(slowest, rel=1e-6)


def test_of_a_large_system_that_swings_it_is_the_pair_of_the_swing():
    n = 600
    J = sparse.diags_array([np.ones(n - 1), np.full(n, -2.0), np.ones(n - 1)], offsets=[-1, 0, 1]).tolil()
    J[0, 0], J[0, 300], J[300, 0], J[300, 300] = 0.3, 40.0, -40.0, 0.3
    dense = np.linalg.eigvals(J.toarray())
    best = dense[np.argmax(dense.real)]
    assert abs(best.imag) > 30
    assert found(J) == pytest.approx(complex(best.real, abs(best.imag)), rel=1e-6)


def test_of_a_river_it_is_exact_however_long():
    n = 2000  # a Jordan block, whose eigenvalues no general method finds
    J = sparse.diags_array([np.ones(n - 1), np.full(n, -1.0)], offsets=[-1, 0])
    assert found(J) == -1


def test_parts_that_do_not_feed_back_have_eigenvalues_of_their_own():
    J = np.array([[-1.0, 5.0, 0, 0], [-5.0, -1.0, 0, 0], [3.0, 0, -0.5, 0], [0, 0, 7.0, -0.25]])
    assert found(J) == -0.25
    J[3, 3] = -9.0
    assert found(J) == -0.5


def test_a_matrix_without_values_has_none():
    assert np.isnan(found(np.array([[np.nan, 1.0], [1.0, 0.0]])))
