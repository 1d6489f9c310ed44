"""Screening finds planted errors of data, leaves good data and the given cost alone, and reports jumps of states."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fmepy import datasets
from fmepy.errors import ArgumentError, SimulationError
from fmepy.fimlof.bad_data import screen_bad_data
from fmepy.fimlof.cost import FimlofCost
from fmepy.fitting import modFit
from fmepy.models.difference import DifferenceModel
from tests.fimlof.simulated import panel


def walk(seed=1, n=60):
    """Return data of a random walk, two sensors, and its cost's arguments."""
    rng = np.random.default_rng(seed)
    x = np.cumsum(rng.normal(size=n))
    data = pd.DataFrame({"time": np.arange(1, n + 1), "y": x + rng.normal(size=n), "z": x + rng.normal(size=n)})
    model = DifferenceModel("next(x) = a * x", state={"x": 0.0}, parms={"a": 1.0}, times=[0, n],
                            outputs={"y": "x", "z": "x"})  # fmt: skip
    return model, data


def cost_of(model, data, **arguments):
    return FimlofCost(model, data, process_noise={"x": 1.0}, measurement_noise={"y": 1.0, "z": 1.0}, **arguments)


def test_clean_data_stay_as_they_are():
    screened = screen_bad_data(cost_of(*walk()))
    assert len(screened.log) == 0
    assert screened.cost.nobs == 120
    assert "Nothing is beyond 4 sd in 120 data" in repr(screened)


def test_planted_errors_are_set_missing_one_by_one_and_the_given_cost_is_not_changed():
    model, data = walk()
    data.index = [f"row {i}" for i in range(60)]
    data.loc["row 20", "y"] += 15
    data.loc["row 21", "z"] -= 9
    data.loc["row 45", "z"] *= 10
    cost = cost_of(model, data)
    before = cost()
    screened = screen_bad_data(cost)
    log = screened.log
    assert set(zip(log["name"], log["time"], strict=True)) == {("y", 21.0), ("z", 22.0), ("z", 46.0)}
    assert set(log["row"]) == {"row 20", "row 21", "row 45"}
    assert (log["action"] == "set missing").all()
    assert log["round"].is_monotonic_increasing
    assert screened.cost.nobs == 117
    assert screened.filtered.nobs == 117
    assert cost() == before
    assert data.notna().all().all()
    assert len(screen_bad_data(screened.cost).log) == 0
    remaining = data.copy()
    for _, row in log.iterrows():
        assert row["value"] == data.loc[row["row"], row["name"]]
        remaining.loc[row["row"], row["name"]] = np.nan
    assert screened.cost() == pytest.approx(cost_of(model, remaining)(), abs=1e-10)


def test_long_tables_with_whole_numbers_and_entities_are_screened():
    model, data = walk()
    data.loc[30, "y"] = 500.0
    long = data.round().astype(int).melt(id_vars="time", var_name="what", value_name="value")[["what", "time", "value"]]
    long["who"] = "only"
    cost = FimlofCost(model, long[["what", "time", "value", "who"]], y="value", entity="who", process_noise={"x": 1.0},
                      measurement_noise={"y": 1.1, "z": 1.1})  # fmt: skip
    screened = screen_bad_data(cost)
    assert screened.log[["who", "time", "name", "value"]].iloc[0].tolist() == ["only", 31.0, "y", 500.0]
    assert screened.cost.nobs == 119


def test_transformed_data_are_found_again_in_the_table():
    model, data = walk()
    positive = data.assign(y=np.exp(0.1 * data["y"]), z=np.exp(0.1 * data["z"]))
    positive.loc[12, "z"] *= 1000
    level = model.replace(outputs={"y": "exp(0.1 * x)", "z": "exp(0.1 * x)"})
    cost = FimlofCost(level, positive, transform="log", process_noise={"x": 1.0},
                      measurement_noise={"y": 0.1, "z": 0.1})  # fmt: skip
    log = screen_bad_data(cost).log
    assert log["row"].tolist() == [12]
    assert log["value"].iloc[0] == positive.loc[12, "z"]


def test_a_jump_of_the_state_is_reported_and_no_datum_is_deleted():
    model, data = walk()
    data.loc[30:, ["y", "z"]] += 12.0
    screened = screen_bad_data(cost_of(model, data))
    log = screened.log
    assert log["kind"].tolist() == ["state"]
    assert log["time"].tolist() == [31.0]
    assert log["action"].tolist() == ["reported"]
    assert screened.cost.nobs == 120
    assert "1 jump of a state reported" in screened.message


def test_the_nile_has_its_outlier_of_1913_and_its_shift_of_1899():
    # the findings of de Jong and Penzer (1998) and of Durbin and Koopman: the dam of Aswan was begun in 1898
    nile = datasets.load("Nile")
    model = DifferenceModel("next(level) = level", state={"level": 0.0}, times=nile["year"], outputs={"flow": "level"})
    cost = FimlofCost(model, nile, x="year", initial="diffuse", process_noise={"level": 1469.1**0.5},
                      measurement_noise={"flow": 15099**0.5})  # fmt: skip
    log = screen_bad_data(cost, 3.0).log
    assert log[["time", "name", "kind"]].to_numpy().tolist() == [[1913.0, "flow", "datum"], [1899.0, "level", "state"]]
    assert (log["magnitude"] < -3).all()
    assert log["row"].iloc[0] == 42


def test_what_cannot_be_told_apart_is_not_deleted():
    # all states read, no later data used: a typo looks like a jump
    cost = panel(np.random.default_rng(9), 1, 20, typo=10.0)
    assert screen_bad_data(cost).log["name"].iloc[0] == "a"
    unsmoothed = screen_bad_data(cost, smooth=False).log
    assert (unsmoothed["action"] == "reported").all()
    assert ("a", 10.0) in set(zip(unsmoothed["name"], unsmoothed["time"], strict=True))


def test_refitting_goes_on_until_nothing_more_is_found():
    model, data = walk()
    data.loc[20, "y"] += 15
    calls = []

    def refit(cost, parms):
        calls.append(cost.nobs)
        return pd.Series({"a": 0.99})

    screened = screen_bad_data(cost_of(model, data), refit=refit)
    assert calls == [119]
    assert screened.parms["a"] == 0.99
    assert screened.filtered.parms["a"] == 0.99


def test_what_cannot_be_screened_is_refused():
    cost = cost_of(*walk())
    with pytest.raises(ArgumentError, match="positive number"):
        screen_bad_data(cost, 0.0)
    with pytest.raises(ArgumentError, match=r"`refit` must be a function.*fme.modFit\(cost, p\); got bool"):
        screen_bad_data(cost, refit=True)
    with pytest.raises(ArgumentError, match="FimlofCost"):
        screen_bad_data(lambda p: p)
    with pytest.raises(SimulationError, match="cannot be screened"):
        screen_bad_data(cost, parms={"a": 1e200})


def test_parameters_or_a_fit_may_stand_in_the_second_place():
    model = DifferenceModel("next(x) = a*x", state={"x": 1.0}, times=range(9), parms={"a": 1.0})
    cost = FimlofCost(
        model, {"time": range(1, 9), "x": [1.1, 0.9, 1.2, 1.0, 9.1, 1.2, 1.0, 0.9]}, process_noise={"x": 0.1},
        measurement_noise={"x": 0.2},
    )  # fmt: skip
    fit = modFit(cost, {"a": 1.0}, hessian=False)
    expected = screen_bad_data(cost, parms=fit.par)
    for given in (fit.par, fit.par.to_dict(), fit):
        found = screen_bad_data(cost, given)
        pd.testing.assert_frame_equal(found.log, expected.log)
        assert found.parms["a"] == fit.par["a"]
        assert found.threshold == 4.0
    with pytest.raises(ArgumentError, match=r"screen_bad_data\(cost, parms=fit.par\)"):
        screen_bad_data(cost, fit.par, parms=fit.par)
