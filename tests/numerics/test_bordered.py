"""Matrices of blocks and a border are inverted as such; Jacobians that are nearly empty answer as full ones do."""

import numpy as np
import pytest

from fmepy.numerics.covariance import Spectrum, blocks_with_border, inverse_of_bordered
from fmepy.numerics.sparse import column_lengths, normal_matrix, projected_length, sparse_jacobian


def jacobian(n_entity=60, n_local=2, n_shared=3, seed=1):
    """Return local derivatives, their columns, and the whole table."""
    rng = np.random.default_rng(seed)
    n_row, n_par = 8 * n_entity, n_entity * n_local + n_shared
    places = rng.permutation(n_par)
    local = rng.standard_normal((n_row, n_local + n_shared))
    of = np.repeat(np.arange(n_entity), 8)
    columns = places[np.column_stack([*(of * n_local + i for i in range(n_local)),
                                      *(np.full(n_row, n_par - 1 - j) for j in range(n_shared))])]  # fmt: skip
    J = np.zeros((n_row, n_par))
    np.put_along_axis(J, columns, local, axis=1)
    return local, columns, J


@pytest.mark.parametrize(("n_local", "n_shared"), [(1, 2), (2, 3), (3, 0), (1, 0)])
def test_the_inverse_is_that_of_the_whole(n_local, n_shared):
    _, _, J = jacobian(n_local=n_local, n_shared=n_shared)
    A = J.T @ J
    blocks, border = blocks_with_border(A)
    assert len(border) == n_shared
    np.testing.assert_allclose(inverse_of_bordered(A, blocks, border), np.linalg.inv(A), rtol=1e-9, atol=1e-12)
    A[7, 7] -= 100
    assert inverse_of_bordered(A, blocks, border) is None


def test_blocks_of_several_sizes_and_what_has_no_blocks():
    A = np.eye(90)
    A[0, 1] = A[1, 0] = A[5, 6] = A[6, 5] = A[6, 7] = A[7, 6] = 0.2
    blocks, border = blocks_with_border(A)
    assert {b.shape for b in blocks} == {(85, 1), (1, 2), (1, 3)}
    assert not len(border)
    np.testing.assert_allclose(inverse_of_bordered(A, blocks, border), np.linalg.inv(A), atol=1e-14)
    assert blocks_with_border(np.ones((90, 90)) + np.eye(90)) is None


@pytest.mark.parametrize("n_par", [70, 150])
@pytest.mark.parametrize("form", ["full", "bordered"])
def test_a_covariance_of_many_is_that_by_axes(form, n_par):
    rng = np.random.default_rng(2)
    J = rng.standard_normal((2 * n_par, n_par)) if form == "full" else jacobian(n_par, 1, 2)[2]
    J = J * 10.0 ** rng.uniform(-4, 4, J.shape[1])
    by_inverse, by_axes = Spectrum.of(2 * J.T @ J), Spectrum.of(2 * J.T @ J)
    by_axes.__dict__["_known_inverse"] = None
    assert by_inverse._known_inverse is not None
    assert by_inverse.rank == by_axes.rank == J.shape[1]
    assert by_inverse.is_definite
    assert by_inverse.undetermined([], np.empty(0)) == ""
    np.testing.assert_allclose(by_inverse.covariance, by_axes.covariance, rtol=1e-7, atol=1e-30)
    J[:, 3] = J[:, 4] + J[:, 5]
    assert Spectrum.of(2 * J.T @ J).rank == J.shape[1] - 1


def test_a_sparse_jacobian_answers_as_the_whole_one():
    local, columns, J = jacobian()
    found = sparse_jacobian(local, columns, J.shape[1])
    np.testing.assert_array_equal(found.toarray(), J)
    np.testing.assert_allclose(normal_matrix(found), J.T @ J, atol=1e-12)
    np.testing.assert_allclose(column_lengths(found), np.linalg.norm(J, axis=0))
    r = np.random.default_rng(3).standard_normal(len(J))
    along = J @ np.linalg.lstsq(J, r, rcond=None)[0]
    assert projected_length(found, r) == pytest.approx(np.linalg.norm(along), rel=1e-10)
    columns = columns.copy()
    columns[:, 0] = np.where(columns[:, 0] == columns[0, 0], -1, columns[:, 0])
    assert projected_length(sparse_jacobian(local, columns, J.shape[1]), r) is None  # one without influence
