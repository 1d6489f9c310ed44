"""cross2long and gaussianWeights: R's tables, and what R gets wrong."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import fmepy as fme
from fmepy.errors import ArgumentError, DataError
from fmepy.tables.long_tables import cross2long, gaussianWeights
from tests.models.problems import cases, table

CASES = cases("tools.json")


def read(entry):
    """Return a reference table with NaN for NA."""
    return table(entry).map(lambda v: np.nan if isinstance(v, str) and v == "NA" else v)


# --- cross2long


@pytest.mark.parametrize("case", ["all", "select", "select_rep", "minus", "error", "na_keep", "na_rm"])
def test_the_long_table_is_that_of_r(case):
    entry = CASES[case]
    args = {k.replace(".", "_"): v for k, v in entry["inputs"]["args"].items()}
    long = cross2long(read(entry["inputs"]["data"]), **args)
    expected = read(entry["outputs"]["table"])
    assert list(long["name"].cat.categories) == entry["outputs"]["name_levels"]
    pd.testing.assert_frame_equal(long.astype({"name": str}), expected.astype({"name": str}), check_dtype=False,
                                  check_categorical=False)  # fmt: skip


def test_quirk_37_an_unknown_name_is_refused():
    wide = {"depth": [0, 1], "mud": [1.0, 2.0]}
    with pytest.raises(DataError, match=r"`select='mudd'` is not a column\. Did you mean 'mud'"):
        cross2long(wide, "depth", select=["mudd"])
    with pytest.raises(DataError, match="`x='dept'`"):
        cross2long(wide, "dept")
    with pytest.raises(DataError, match="`replicate='zone'`"):
        cross2long(wide, "depth", replicate="zone")


def test_quirk_37_columns_of_one_name_are_one_variable():
    data = CASES["duplicate"]["inputs"]["data"]
    wide = pd.DataFrame(data["matrix"], columns=data["columns_in_order"])
    long = cross2long(wide, "depth", select="mud")
    expected = read(CASES["duplicate"]["outputs"]["table"])
    assert set(long["name"]) == {"mud"}
    np.testing.assert_array_equal(long[["x", "y"]], expected[["x", "y"]])
    both = cross2long(wide, "depth")
    assert both["name"].tolist() == ["mud"] * 16 + ["silt"] * 8


def test_quirk_37_a_column_called_c_is_like_any_other():
    wide = pd.DataFrame({"x": [0, 1], "a": [1.0, 2.0], "b": [3.0, 4.0], "c": [5.0, 6.0]})
    assert set(cross2long(wide, "x", select=["a", "b"])["name"]) == {"a", "b"}


def test_minus_leaves_out():
    wide = pd.DataFrame({"x": [0, 1], "a": [1.0, 2.0], "b": [3.0, 4.0], "c": [5.0, 6.0]})
    assert set(cross2long(wide, "x", select=["-a"])["name"]) == {"b", "c"}
    with pytest.raises(DataError, match="No variable is selected"):
        cross2long(wide, "x", select=["-a", "-b", "-c"])


def test_text_is_no_variable():
    wide = {"x": [0, 1], "zone": ["a", "b"], "y": [1.0, 2.0]}
    with pytest.raises(DataError, match=r"'zone' holds 'a' in row 0, which is not a number.*`replicate`"):
        cross2long(wide, "x")
    assert cross2long(wide, "x", replicate="zone")["zone"].tolist() == ["a", "b"]


def test_long_to_wide_to_long_is_the_identity():
    wide = pd.DataFrame({"x": [0.0, 1.0, 2.0], "a": [1.0, 2.0, 3.0], "b": [3.0, 4.0, 5.0]})
    long = cross2long(wide, "x")
    back = long.pivot(index="x", columns="name", values="y").reset_index()
    back.columns = [str(c) for c in back.columns]
    pd.testing.assert_frame_equal(cross2long(back, "x"), long)


def test_the_long_table_is_what_a_cost_takes():
    wide = pd.DataFrame({"x": [0, 1, 2], "a": [1.0, np.nan, 3.0], "b": [3.0, 4.0, 5.0]})
    cost = fme.modCost(wide.fillna(2.0), cross2long(wide, "x", error=True, na_rm=True), x="x", y="y", err="err")
    assert cost.model == 0
    assert cost.var["N"].tolist() == [2, 3]


# --- gaussianWeights


@pytest.mark.parametrize("case", ["silt", "mean", "noxmodel"])
def test_the_spread_table_is_that_of_r(case):
    entry = CASES[case]
    args = dict(entry["inputs"]["args"])
    spread = gaussianWeights(read(entry["inputs"]["obs"]), args.pop("x"), args.pop("y"), **args)
    pd.testing.assert_frame_equal(spread, read(entry["outputs"]["table"]), check_dtype=False, rtol=1e-12)


def test_quirk_38_x_is_compared_with_room_for_rounding():
    obs = {"name": ["O2"] * 3, "x": [0.3, 0.6, 0.7], "y": [1.0, 2.0, 3.0]}
    grid = np.arange(0, 1.05, 0.1)
    assert 0.3 not in grid.tolist()
    assert len(gaussianWeights(obs, xmodel=grid, spread=0.01)) == 3
    with pytest.raises(DataError, match=r"these 'x' are not among `xmodel`: 0.6 \(nearest: 0.5\)"):
        gaussianWeights(obs, xmodel=[0.3, 0.5, 0.7], spread=0.1)


def test_quirk_38_the_default_aggregation_is_the_name_not_x():
    obs = pd.DataFrame({"name": ["b", "a"], "x": [1.0, 2.0], "y": [1.0, 2.0]})
    spread = gaussianWeights(obs, spread=0.5)
    assert list(spread.columns) == ["name", "x", "y", "err"]
    assert spread["name"].is_monotonic_increasing


def test_quirk_38_a_cost_counts_the_squares_of_the_weights():
    obs = {"name": ["y"], "x": [2.0], "y": [5.0]}
    spread = gaussianWeights(obs, xmodel=[1.0, 2.0, 3.0], spread=1.0)
    w = np.exp(-0.5 * np.array([1, 0, 1]))
    w /= w.sum()
    np.testing.assert_allclose(1 / spread["err"], w)
    model = {"x": [1.0, 2.0, 3.0], "y": [6.0, 6.0, 6.0]}
    assert fme.modCost(model, spread, x="x", y="y", err="err").model == pytest.approx((w**2).sum())


def test_sd_weights_scale_the_errors():
    obs = {"name": ["a", "a", "b", "b"], "x": [0, 1, 0, 1], "y": [1.0, 3.0, 10.0, 30.0]}
    plain = gaussianWeights(obs, spread=0.1)
    scaled = gaussianWeights(obs, spread=0.1, weight="sd")
    np.testing.assert_allclose(
        scaled["err"] / plain["err"], np.repeat([np.std([1, 3], ddof=1), np.std([10, 30], ddof=1)], 2)
    )


def test_other_columns_stay_and_may_order():
    obs = pd.DataFrame({"name": ["a", "a"], "x": [1.0, 1.0], "y": [1.0, 2.0], "zone": ["q", "p"]})
    assert gaussianWeights(obs, spread=0.1, ordering="zone")["zone"].tolist() == ["p", "q"]
    assert gaussianWeights(obs, spread=0.1)["zone"].tolist() == ["q", "p"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weight": "std"}, "`weight='std'`"),
        ({"x": "depth"}, "`x='depth'` is not a column"),
        ({"aggregation": "profile"}, "`aggregation='profile'` is not a column"),
        ({"spread": 0}, "`spread=0` must be positive|must be a positive number"),
        ({"xmodel": []}, "`xmodel` must hold"),
        ({"weight": "mean", "obs": {"name": ["a", "a"], "x": [1, 2], "y": [1.0, -1.0]}}, "mean of 'y' is 0"),
        ({"obs": {"name": ["a"], "x": [1], "y": [np.nan]}}, "row 0 has nan in 'y'"),
        ({"obs": [1, 2]}, "must be a table"),
    ],
)
def test_what_cannot_be_is_told(change, message):
    given = {"obs": {"name": ["a", "a"], "x": [1.0, 2.0], "y": [1.0, 2.0]}, "spread": 0.1, **change}
    with pytest.raises(ArgumentError, match=message):
        gaussianWeights(**given)
