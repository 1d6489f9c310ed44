"""Which outputs change with which inputs, found by trying; Jacobians and systems of that structure."""

import numpy as np
import pytest

from fmepy.numerics.structure import Banded, Dense, Sparse, Structure, difference_jacobian, found_structure


def dense(structure, values):
    out = np.zeros((structure.n, structure.n))
    out[structure.rows, structure.columns] = values
    return out


def three_species(n, v=0.3):
    """Return the rates of three species that react in every cell, the last one carried at velocity v."""

    def rates(y):
        A, B, C = y.reshape(3, n)
        reaction = A * B / (C + 1)
        spread = [np.diff(np.r_[1.0, x, x[-1]], 2) for x in (A, B)]
        return np.concatenate([spread[0] - reaction, spread[1] - reaction, reaction - v * np.diff(np.r_[0.0, C])])

    return rates


def truth(rates, y):
    return np.stack([rates(y + 1e-6 * e) - rates(y - 1e-6 * e) for e in np.eye(len(y))], axis=1) / 2e-6


@pytest.mark.parametrize("blocks", [1, 3])
def test_the_structure_of_species_in_cells_is_found_and_the_band_is_narrow(blocks):
    calls, rates = [], three_species(40)
    found = found_structure(lambda y: (calls.append(1), rates(y))[1], np.full(120, 0.5), blocks)
    at = np.random.default_rng(1).uniform(0.5, 2, 120)
    expected = np.abs(truth(rates, at)) > 1e-9
    np.testing.assert_array_equal(dense(found, 1.0) > 0, expected | np.eye(120, dtype=bool))
    assert found.n_colours <= 10
    assert sum(found.band[1:]) <= 10  # species after species it would be 160
    assert len(calls) < 400


def test_zeros_by_accident_hide_nothing():
    n = 30

    def rates(y, v=0.0):  # nothing flows, nothing is there, half of it is switched off
        A, B = y.reshape(2, n)
        return np.concatenate([-v * np.diff(np.r_[0.0, A]) - A * B, np.where(A > 5, B, 0.0) * np.r_[B[1:], 0]])

    found = found_structure(rates, np.zeros(2 * n))
    entries = dense(found, 1.0) > 0
    assert entries[5, 4]  # the upper neighbour, though the velocity is zero
    assert entries[5, n + 5]  # A * B, though both are zero
    assert entries[n + 5, n + 6]


def test_everything_may_depend_on_everything():
    assert found_structure(lambda y: y.sum() * y, np.ones(50)).is_dense
    assert len(found_structure(lambda y: y, np.ones(5)).rows) == 25  # few inputs are not tried


def test_a_function_that_fears_nan_is_tried_by_steps():
    def rates(y):
        if not np.isfinite(y).all():
            return np.full(len(y), np.nan)
        return np.diff(np.r_[1.0, y, y[-1]], 2)

    found = found_structure(rates, np.ones(40))
    assert found.n_colours == 3
    assert found.band[1:] == (1, 1)


def test_a_function_without_any_value_has_a_dense_structure():
    assert found_structure(lambda y: np.full(len(y), np.nan), np.ones(30)).is_dense


@pytest.mark.parametrize("central", [False, True])
def test_the_jacobian_by_colours_is_that_by_columns(central):
    rates = three_species(20)
    y = np.random.default_rng(2).uniform(0.5, 2, 60)
    structure = found_structure(rates, y, 3)
    values = difference_jacobian(rates, y, rates(y), structure, y, central=central)
    np.testing.assert_allclose(dense(structure, values), truth(rates, y), atol=1e-8 if central else 1e-6)


def test_positive_inputs_are_not_moved_below_zero():
    lowest = []

    def rates(y):
        lowest.append(y.min())
        return np.sqrt(y) * y

    y = np.array([0.0, 1e-9, 4.0])
    structure = Structure.dense(3)
    values = difference_jacobian(rates, y, rates(y), structure, np.ones(3), central=True, positive=True)
    assert min(lowest) >= 0
    assert dense(structure, values)[2, 2] == pytest.approx(3.0, rel=1e-7)


@pytest.mark.parametrize("kind", [Dense, Banded, Sparse])
def test_systems_are_solved_in_every_form(kind):
    rng = np.random.default_rng(3)
    structure = found_structure(three_species(25), np.full(75, 0.5), 3)
    values = rng.normal(size=len(structure.rows)) + 5.0 * (structure.rows == structure.columns)
    A = dense(structure, values * 10.0 ** (structure.rows % 7))
    b, B = rng.normal(size=75), rng.normal(size=(75, 4))
    ready = kind(structure)(A[structure.rows, structure.columns])
    np.testing.assert_allclose(A @ ready.solve(b), b, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(A @ ready.solve(B), B, rtol=1e-9, atol=1e-9)
    assert ready.pivots > 1e-6


@pytest.mark.parametrize("kind", [Dense, Banded, Sparse])
def test_a_singular_system_is_seen(kind):
    structure = Structure.of(np.eye(20) + np.eye(20, k=1))
    values = np.where(structure.rows == 7, 0.0, 1.0)
    assert kind(structure)(values).pivots == 0


def test_a_wide_system_is_solved_as_sparse_and_a_small_one_as_dense():
    ring = np.eye(200) + np.eye(200, k=1) + np.eye(200, k=100) + np.eye(200, k=-100)
    far = Structure.of(ring[np.random.default_rng(4).permutation(200)][:, np.random.default_rng(5).permutation(200)])
    assert isinstance(far.solver, Sparse | Banded)
    assert isinstance(Structure.of(np.eye(20)).solver, Dense)
    assert isinstance(Structure.of(np.eye(100) + np.eye(100, k=1)).solver, Banded)
