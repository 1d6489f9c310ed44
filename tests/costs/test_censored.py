"""Readings beyond a limit: marks are read by row, their likelihood keeps its digits far out in the tail."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fmepy.costs.observations import concatenate, prepare, read_observations
from fmepy.errors import ArgumentError, DataError
from fmepy.numerics.tails import generalised, log_probability, steepness

LONG = pd.DataFrame({
    "name": ["A", "B", "A", "A", "B"],
    "time": [1.0, 1.0, 2.0, 3.0, 3.0],
    "val": [5.0, 7.0, 0.1, np.nan, 9.0],
    "mark": [None, "", " < ", np.nan, ">"],
})  # fmt: skip


def test_marks_of_a_long_table_go_with_their_readings() -> None:
    a, b = read_observations(LONG, y="val", censored="mark").variables
    assert a.marks.tolist() == [0, -1]
    assert b.marks.tolist() == [0, 1]
    both = prepare(read_observations(LONG, y="val", censored="mark"), {"A": (0, 9), "B": (0, 9)})
    assert both.marks.tolist() == [0, -1, 0, 1]
    assert concatenate([both, both]).marks.tolist() == 2 * [0, -1, 0, 1]
    assert both.observed.marks.tolist() == [0, -1, 0, 1]


def test_a_table_without_marks_is_plain() -> None:
    plain = LONG.assign(mark=np.nan)
    assert prepare(read_observations(plain, y="val", censored="mark"), {"A": (0, 9), "B": (0, 9)}).marks is None


def test_a_wide_table_has_a_column_of_marks_by_variable() -> None:
    wide = {"time": [1, 2, 3], "A": [1.0, 2.0, 3.0], "B": [4.0, 5.0, np.nan], "of_B": ["", "<", ""]}
    a, b = read_observations(wide, censored={"B": "of_B"}).variables
    assert a.marks is None
    assert b.marks.tolist() == [0, -1]


def test_one_column_of_marks_serves_rows_of_one_reading() -> None:
    wide = {"time": [1, 2, 3], "A": [1.0, np.nan, 3.0], "B": [np.nan, 5.0, np.nan], "mark": ["<", ">", ""]}
    a, b = read_observations(wide, censored="mark").variables
    assert (a.marks.tolist(), b.marks.tolist()) == ([-1, 0], [1])


def test_observations_outside_the_range_take_their_marks_along() -> None:
    data = {"time": [1.0, 2.0, 3.0], "A": [1.0, 2.0, 3.0], "mark": ["<", "", ">"]}
    read = read_observations(data, censored="mark")
    assert prepare(read, {"A": (1.5, 3.0)}, outside="drop").marks.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("data", "words", "told"),
    [
        ({"time": [1, 2], "A": [1.0, 2.0], "mark": ["", "<="]}, {"censored": "mark"}, r"'<=' in row 1.*'<'.*'>'.*'='"),
        ({"time": [1, 2], "A": [1.0, np.nan], "mark": ["", "<"]}, {"censored": "mark"}, "row 1, where there is no val"),
        ({"time": [1, 2], "A": [1.0, 2.0], "B": [1.0, 2.0], "mark": ["", "<"]}, {"censored": "mark"}, "has 2 values"),
        ({"time": [1, 2], "A": [1.0, 2.0]}, {"censored": "marks"}, "'marks'. is not a column"),
        ({"time": [1, 2], "A": [1.0, 2.0], "mark": ["", ""]}, {"censored": {"a": "mark"}}, "'a' is not an observed"),
    ],
)
def test_marks_that_cannot_be_are_told_with_their_row(data: dict, words: dict, told: str) -> None:
    with pytest.raises(DataError, match=told):
        read_observations(data, **words)


def test_marks_by_variable_are_for_wide_tables() -> None:
    with pytest.raises(ArgumentError, match="is for wide tables"):
        read_observations(LONG, y="val", censored={"A": "mark"})


def test_equal_limits_are_no_copies_of_rows() -> None:
    data = {"time": np.repeat([1.0, 2, 3], 2), "A": np.repeat([0.1, 0.1, 0.1], 2), "mark": ["<"] * 6}
    assert read_observations(data, censored="mark").variables[0].marks.tolist() == [-1] * 6


def test_errors_of_a_noisy_variable_may_be_left_out_of_a_long_table() -> None:
    data = LONG.assign(err=[np.nan, 0.1, np.nan, np.nan, 0.2])
    a, b = read_observations(data, y="val", err="err", censored="mark", noisy=["A"]).variables
    assert a.errors is None
    assert b.errors.tolist() == [0.1, 0.2]
    with pytest.raises(DataError, match="error of 'A' in row 0 is missing"):
        read_observations(data, y="val", err="err", censored="mark")


@pytest.mark.parametrize("mark", [-1, 1])
def test_the_generalised_residual_and_its_slope_are_derivatives_of_the_log_probability(mark: int) -> None:
    r = np.array([-30.0, -5.0, -1.0, 0.0, 0.7, 4.0, 30.0])
    marks = np.full(r.size, mark)
    h = 1e-6
    res = -(log_probability(mark * (r + h)) - log_probability(mark * (r - h))) / (2 * h)
    w = (generalised(r + h, marks) - generalised(r - h, marks)) / (2 * h)
    np.testing.assert_allclose(generalised(r, marks), res, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(steepness(r, marks), w, rtol=1e-6, atol=1e-9)


def test_far_beyond_the_limit_the_probability_keeps_its_digits() -> None:
    """There lam = t + 1/t and w = 1 - 1/t^2, t the distance, to first order."""
    r, mark = np.array([1e3, 1e6, 1e10]), np.full(3, -1)
    np.testing.assert_allclose(log_probability(-r), -(r**2) / 2 - np.log(r * np.sqrt(2 * np.pi)), rtol=1e-6)
    np.testing.assert_allclose(generalised(r, mark), r + 1 / r, rtol=1e-11)
    np.testing.assert_allclose(1 - steepness(r, mark), 1 / r**2, rtol=1e-3, atol=1e-15)
    assert generalised(-r, mark).tolist() == [0.0, 0.0, 0.0]


def test_a_limit_has_no_jacobian() -> None:
    """Of a transformed reading the density changes with the scale, of a limit the probability does not."""
    data = {"time": [1.0, 2.0], "A": [2.0, 5.0], "mark": ["", "<"]}
    read = read_observations(data, censored="mark")
    assert prepare(read, {"A": (0, 9)}, transforms={"A": "log"}).observed.log_jacobian == pytest.approx(-np.log(2.0))
