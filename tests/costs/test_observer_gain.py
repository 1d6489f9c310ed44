"""A gain may be written in several ways, and what is wrong with one is told."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fmepy.costs.observer_gain import read_gain
from fmepy.errors import ArgumentError

STATES, ONE, TWO = ["x", "v"], ["y"], ["y", "z"]


@pytest.mark.parametrize(
    "gain",
    [
        {"x": {"y": 1.0}, "v": {"y": "K2"}},
        {"x": 1, "v": "K2"},
        [1.0, "K2"],
        [[1.0], ["K2"]],
        np.array([[1.0], ["K2"]], dtype=object),
        pd.Series({"x": 1.0, "v": "K2"}),
        pd.DataFrame({"y": [1.0, "K2"]}, index=["x", "v"]),
    ],
    ids=lambda g: type(g).__name__,
)
def test_all_ways_to_write_a_gain_say_the_same(gain):
    assert [(s, v, str(k)) for s, v, k in read_gain(gain, STATES, ONE)] == [("x", "y", "1.0"), ("v", "y", "K2")]


def test_one_number_will_do_where_there_is_one_of_each():
    assert read_gain(0.5, ["x"], ONE) == (("x", "y", 0.5),)
    assert read_gain("1/4", ["x"], ONE) == (("x", "y", 0.25),)
    assert read_gain([0.5, 1], ["x"], TWO) == (("x", "y", 0.5), ("x", "z", 1.0))


@pytest.mark.parametrize(
    ("gain", "variables", "words"),
    [
        ({"velo": 1.0}, ONE, "'velo' is not a state"),
        ({"y": {"x": 1.0}}, ONE, "It is an observed variable: states come first"),
        ({"x": {"yy": 1.0}}, ONE, "'yy' is not observed.*Did you mean 'y'"),
        ({"x": 1.0}, TWO, "say of whose error"),
        ({}, ONE, "empty"),
        (1.0, ONE, "one number; a row for each"),
        ([1.0, 2.0, 3.0], ONE, r"shape \(2, 1\)"),
        ([[1.0, 2.0]], TWO, r"shape \(2, 2\)"),
        ([[1.0], [2.0, 3.0]], ONE, "a finite number"),
        ({"x": np.nan}, ONE, "a finite number"),
        ({"x": True}, ONE, "a finite number"),
        ({"x": {"y": None}}, ONE, "a finite number"),
        ({"x": "K +"}, ONE, "gain"),
        ("stationery", ONE, "Did you mean 'stationary'"),
    ],
)
def test_a_wrong_gain_is_refused(gain, variables, words):
    with pytest.raises(ValueError, match=words) as told:
        read_gain(gain, STATES, variables)
    assert isinstance(told.value, ArgumentError) or gain == {"x": "K +"}


@pytest.mark.parametrize(
    ("table", "told"),
    [
        (pd.DataFrame([[1.0], [2.0]], index=["x", "x"], columns=["y"]), "the row 'x'"),
        (pd.DataFrame([[1.0, 2.0]], index=["x"], columns=["y", "y"]), "the column 'y'"),
        (pd.Series([1.0, 2.0], index=["v", "v"]), "the row 'v'"),
    ],
)
def test_what_stands_twice_in_a_table_is_told(table, told):
    with pytest.raises(ArgumentError, match=f"{told} of the table stands more than once"):
        read_gain(table, ["x", "v"], ["y"])
