"""A run is read where the data are: by row, between rows, or as a mean."""

import numpy as np
import pytest

from fmepy.costs.interpolation import Lookup, brackets, merge_times, nearest_rows, stack

TIMES = np.array([0.0, 1.0, 2.0, 4.0])
Y = np.array([[0.0, 10.0], [1.0, 20.0], [4.0, np.nan], [16.0, 40.0]])


def test_times_that_differ_by_rounding_are_one_and_the_first_given_stands():
    merged = merge_times(np.array([0.3, 1.0]), np.array([0.1 * 3, 0.0]))
    assert merged.tolist() == [0.0, 0.3, 1.0]
    assert merge_times(np.array([0.1 * 3]), np.array([0.3])).tolist() == [0.1 * 3]
    assert merge_times(np.array([0.0, 1e-9, 1.0])).tolist() == [0.0, 1e-9, 1.0]


def test_the_nearest_row_is_found_at_and_beyond_both_ends():
    assert nearest_rows(TIMES, np.array([-1.0, 0.0, 0.9, 2.9, 3.1, 9.0])).tolist() == [0, 0, 1, 2, 3, 3]
    assert nearest_rows(np.array([5.0]), np.array([5.0])).tolist() == [0]


MEAN = Lookup(np.array([[1], [3]]), np.full((2, 1), 0.5))


def between(low, high, weight):
    return Lookup(np.stack([low, high]), np.stack([1 - weight, weight]))


def test_interpolation_is_numpys_and_a_row_that_is_met_stands_alone():
    x = np.array([0.0, 0.25, 1.0, 3.0, 4.0])
    low, high, w = brackets(TIMES, x)
    assert between(2 * low, 2 * high, w).values(Y).tolist() == pytest.approx(np.interp(x, TIMES, Y[:, 0]))
    second = between(2 * low + 1, 2 * high + 1, w).values(Y)
    assert second[2] == 20.0, "the missing value beside it does not matter"
    assert np.isnan(second[3])
    low, high, w = brackets(TIMES, np.array([np.nextafter(1.0, 2.0)]))
    assert between(2 * low + 1, 2 * high + 1, w).values(Y).tolist() == [20.0], "nor does a rounding of the time"


def test_readings_agree_on_sensitivities():
    S = np.random.default_rng(1).normal(size=(4, 2, 3))
    assert np.array_equal(Lookup(np.array([[1, 6]])).sensitivities(S), S[[0, 3], [1, 0]])
    assert np.allclose(MEAN.sensitivities(S), S[:2, 1:].mean(0))
    both = stack([Lookup(np.array([[1]])), MEAN])
    assert both.values(Y).tolist() == [10.0, 15.0]
    assert both.sensitivities(S).shape == (2, 3)
    assert stack([Lookup(np.array([[1]])), Lookup(np.array([[3]]))]).weights is None


def test_many_runs_are_read_at_once():
    runs = np.stack([Y, 2 * Y])
    for lookup in (Lookup(np.array([[1, 6]])), MEAN):
        assert np.array_equal(lookup.values(runs), [lookup.values(Y), lookup.values(2 * Y)], equal_nan=True)
