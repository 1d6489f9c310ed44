"""Vectors are called finite if every value is, however large the values are."""

from __future__ import annotations

import numpy as np
import pytest

from fmepy.numerics.finite import all_finite


@pytest.mark.parametrize("values", [[], [1.0, -2.0], [1e200, 1e200], [0.0]])
def test_finite_values_are_finite_even_where_their_squares_overflow(values):
    assert all_finite(np.array(values))


@pytest.mark.parametrize("values", [[np.nan], [1.0, np.inf], [np.inf, -np.inf], [1e200, np.nan]])
def test_one_value_that_is_not_is_enough(values):
    assert not all_finite(np.array(values))
