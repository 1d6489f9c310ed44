"""Data tables are read by variable, and what is wrong with them is told by variable and row."""

import numpy as np
import pandas as pd
import pytest

from fmepy.costs.observations import prepare, read_observations
from fmepy.errors import DataError


def columns(obs, **args):
    data = read_observations(obs, **args)
    return {v.name: (v.x.tolist(), v.values.tolist()) for v in data.variables}


def test_wide_long_mapping_and_series_mean_the_same():
    expected = {"B": ([1, 2], [5, 6]), "A": ([1, 2], [3, 4])}
    wide = pd.DataFrame({"B": [5, 6], "time": [1, 2], "A": [3, 4]})
    assert columns(wide) == expected
    assert columns({"B": [5, 6], "time": (1, 2), "A": np.array([3, 4])}) == expected
    assert columns(wide.to_records(index=False)) == expected
    long = {"what": ["B", "A", "B", "A"], "y": [5, 3, 6, 4], "time": [1, 1, 2, 2]}
    assert columns(long, y="y") == expected
    assert columns({"B": 5, "A": 3}, x=None) == {"B": ([0], [5]), "A": ([0], [3])}
    assert columns(pd.Series({"B": 5, "A": 3}), x=None) == {"B": ([0], [5]), "A": ([0], [3])}
    assert list(columns(long, y="y")) == ["B", "A"]


def test_names_of_a_long_table_may_be_categories_and_unused_ones_do_not_count():
    names = pd.Categorical(["A", "A"], categories=["Z", "A"])
    assert list(columns(pd.DataFrame({"name": names, "time": [1, 2], "y": [1.0, 2.0], "note": "x"}), y="y")) == ["A"]


def test_columns_of_the_same_name_are_replicates_of_one_variable():
    wide = pd.DataFrame([[1, 3.0, 3.5], [2, 4.0, np.nan]], columns=["time", "A", "A"])
    assert columns(wide) == {"A": ([1, 2, 1], [3.0, 4.0, 3.5])}


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA])
def test_missing_observations_are_dropped_with_their_errors_and_counted(missing):
    data = read_observations({"time": [1, 2, 3], "A": [1.0, missing, 3.0], "sd": [0.1, 0.2, 0.3]}, err="sd")
    (A,) = data.variables
    assert A.n_missing == 1
    assert A.errors.tolist() == [0.1, 0.3]
    assert A.rows == (0, 2)


def test_an_error_or_x_that_is_missing_beside_a_missing_observation_does_not_matter():
    data = read_observations({"time": [1, None, 3], "A": [1.0, None, 3.0], "sd": [0.1, None, 0.3]}, err="sd")
    assert data.variables[0].x.tolist() == [1, 3]


@pytest.mark.parametrize(
    ("obs", "args", "message"),
    [
        ({"time": [1, 2], "A": [1.0, np.inf]}, {}, "observation of 'A' in row 1 is inf"),
        ({"time": [1, 2], "A": [-np.inf, 1.0]}, {}, "in row 0 is -inf"),
        ({"time": [1, np.nan], "A": [1.0, 2.0]}, {}, "'time' of an observation of 'A' in row 1 is missing"),
        ({"time": [1, np.inf], "A": [1.0, 2.0]}, {}, "in row 1 is inf"),
        ({"time": [1, 2], "A": [np.nan, np.nan]}, {}, "No observations of 'A' are left: all 2 are missing"),
        ({"time": [1], "A": ["high"]}, {}, "column 'A' holds 'high' in row 0"),
        ({"time": [1], "A": [1.0], "sd": [np.inf]}, {"err": "sd"}, "error of 'A' in row 0 is inf"),
        ({"time": [1, 2], "A": [1.0]}, {}, "different lengths .'time' 2, 'A' 1."),
        ({"time": []}, {}, "no rows"),
        ({"time": [1]}, {}, "no column of observations"),
        ([1, 2], {}, "must be a table.*got list"),
        (np.ones((2, 2)), {}, "Columns need names"),
        ([{"time": 1, "y": 2.0}], {}, r"a list of rows\. Pass pd\.DataFrame\(obs\)"),
        (
            type("DataFrame", (), {"to_pandas": None, "__module__": "polars.frame"})(),
            {},
            r"polars\.DataFrame\. Pass obs\.to_pandas",
        ),
        ({"time": [1], "A": [1.0]}, {"err": "time"}, "column of `x`"),
        ({"time": pd.to_datetime(["2020-01-01"]), "A": [1.0]}, {}, "holds dates"),
        (pd.DataFrame({"A": [1.0]}, index=pd.Index([1.0], name="time")), {}, "reset_index"),
        (pd.DataFrame([[1, 2, 3.0]], columns=["time", "time", "A"]), {}, "2 columns of that name"),
        ({"A": [1.0]}, {"x": "when"}, "x=None for data without one"),
        ({"y": [1.0], "name": ["A"], "time": [1]}, {"y": "y"}, "`y='y'` is the first column"),
        ({"time": [1], "name": ["A"], "y": [1.0]}, {"y": "y"}, "`x='time'` is the first column"),
        (
            {"name": [None, "A"], "time": [1, 2], "y": [1.0, 2.0]},
            {"y": "y"},
            "name of the variable .* missing in row 0",
        ),
        ({"name": ["A"], "time": [1]}, {"y": "time"}, "column of `x`"),
    ],
)
def test_bad_tables_are_told(obs, args, message):
    with pytest.raises(DataError, match=message):
        read_observations(obs, **args)


def test_rows_are_told_by_the_label_of_the_table():
    data = pd.DataFrame({"time": [1, 2], "A": [1.0, np.inf]}, index=["first", "second"])
    with pytest.raises(DataError, match="in row second is inf"):
        read_observations(data)


def test_weights_are_of_the_observations_in_use_on_the_scale_of_comparison():
    data = read_observations({"time": [1, 2, 30], "A": [1.0, np.e, 50.0]})
    ranges = {"A": (0.0, 10.0)}
    c = prepare(data, ranges, weight="std", outside="drop", transforms={"A": "log"})
    assert c.obs.tolist() == pytest.approx([0.0, 1.0])
    assert c.weights.tolist() == pytest.approx([1 / np.sqrt(0.5)] * 2)
    c = prepare(data, ranges, weight="mean", outside="drop")
    assert c.weights.tolist() == pytest.approx([2 / (1 + np.e)] * 2)
    assert c.n_outside.tolist() == [1]


COPIED = pd.DataFrame([[1, 2.0, 2], [2, 3.0, 3], [3, np.nan, np.nan]], columns=["time", "A", "A"])


@pytest.mark.parametrize(
    "obs",
    [
        COPIED,
        pd.concat([COPIED.iloc[:, :2], pd.DataFrame({"B": [1.0, 2, 3]}), COPIED.iloc[:, 1:2]], axis=1),
        COPIED.set_axis(["time", 7, "7"], axis=1),  # one name, once they are text
    ],
)
def test_a_column_given_twice_is_refused(obs):
    with pytest.raises(DataError, match=r"the column '[A7]' twice, with equal values"):
        read_observations(obs)


def test_a_copy_is_seen_through_a_gap_and_a_last_bit():
    A = np.array([5.0, 4.0, 3.5, 3.1, 2.8, 2.6])
    for other in (np.where(np.arange(6) == 2, np.nan, A), A * (1 + 1e-15)):
        with pytest.raises(DataError, match="twice, with equal values"):
            read_observations(pd.DataFrame(np.column_stack([range(6), A, other]), columns=["time", "A", "A"]))


def test_columns_that_differ_in_one_reading_or_in_what_is_missing_are_replicates():
    for last in (4.0, np.nan):
        obs = pd.DataFrame([[1, 2.0, 2.0], [2, 3.0, 3.0], [3, 3.5, last]], columns=["time", "A", "A"])
        (A,) = read_observations(obs).variables
        assert A.x.tolist()[:5] == [1, 2, 3, 1, 2]


def test_a_table_stacked_on_itself_is_told():
    once = pd.DataFrame({"name": ["A"] * 3, "time": [1.0, 2, 3], "val": [5.0, 4, 3]})
    for obs, arguments in ((pd.concat([once] * 2), {"y": "val"}), (pd.concat([once.iloc[:, 1:]] * 3), {})):
        with pytest.warns(UserWarning, match=r"Every observation of '(A|val)' is in the table [23] times.*drop_dupl"):
            read_observations(obs, **arguments)


def test_replicates_of_which_some_are_equal_are_not_told():
    obs = {"name": ["A"] * 8, "time": [1, 1, 2, 2, 3, 3, 4, 4], "val": [5, 5, 4, 4, 3, 3, 2, 2.5]}
    (A,) = read_observations(obs, y="val").variables
    assert len(A.x) == 8
    read_observations({"time": [1, 1, 2, 2], "A": [5, 5, 4, 4]})  # two pairs may be chance
    read_observations({"A": [5, 5, 4, 4, 3, 3.0]}, x=None)  # only their mean counts
