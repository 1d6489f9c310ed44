"""Dates as times of data: datetimes and ISO texts, in a unit, since an origin or the first of them."""

import numpy as np
import pandas as pd
import pytest

import fmepy as fme
from fmepy.errors import ArgumentError, DataError

DAYS = pd.date_range("2024-03-01", periods=4, freq="12h")
MODEL = fme.OdeModel("dN/dt = -k * N", state={"N": 2.0}, parms={"k": 0.5}, times=np.linspace(0, 100, 201))
N = 2 * np.exp(-0.5 * 0.5 * np.arange(4))


@pytest.mark.parametrize("dates", [DAYS, DAYS.tz_localize("Europe/Paris"), DAYS.strftime("%Y-%m-%d %H:%M"), list(DAYS)])
@pytest.mark.parametrize(
    ("words", "times"),
    [
        ({"unit": "days"}, [0, 0.5, 1, 1.5]),
        ({"unit": "hours"}, [0, 12, 24, 36]),
        ({"unit": "days", "origin": pd.Timestamp("2024-02-28")}, [2, 2.5, 3, 3.5]),
    ],
)
def test_dates_count_in_a_unit_since_an_origin_in_every_cost(dates, words, times):
    if str(getattr(dates, "tz", None)) != "None" and "origin" in words:
        words = {**words, "origin": words["origin"].tz_localize("Europe/Paris")}
    data = pd.DataFrame({"date": dates, "N": N})
    cost = fme.SimulationCost(MODEL, data, x="date", **words)
    assert cost().residuals["x"].tolist() == times
    assert cost.obs["date"].tolist() == times
    assert data["date"].tolist() == list(dates), "the data stay as they were given"
    assert fme.modCost(MODEL(), data.rename(columns={"date": "time"}), **words).residuals["x"].tolist() == times
    filtered = fme.FimlofCost(MODEL, data, x="date", process_noise={"N": 0.1}, measurement_noise={"N": 0.1}, **words)
    assert filtered.filter().residuals["x"].tolist() == times
    predicted = fme.PredictionErrorCost(MODEL, data, x="date", gain=0.5, **words)
    assert predicted.obs["date"].tolist() == times


def test_a_cost_is_replaced_and_a_model_fitted_to_dates():
    cost = fme.SimulationCost(MODEL, {"time": DAYS, "N": N}, unit="days")
    assert fme.modFit(cost, {"k": 0.3}).par["k"] == pytest.approx(0.5, rel=1e-4)
    assert cost.replace(weight="std").obs["time"].tolist() == [0, 0.5, 1, 1.5]
    later = {"time": DAYS + pd.Timedelta("1D"), "N": N}
    assert cost.replace(obs=later, origin="2024-03-01").obs["time"].tolist() == [1, 1.5, 2, 2.5]


@pytest.mark.parametrize(
    ("words", "kind", "told"),
    [
        ({}, DataError, r"`obs`: column 'time' holds dates.*unit='days'"),
        ({"unit": "day"}, ArgumentError, r"`unit='day'` is not known.*Did you mean 'days'"),
        ({"origin": "2024-03-01"}, ArgumentError, "needs the unit in which dates count, such as unit='days'"),
        ({"unit": "days", "origin": "in March"}, ArgumentError, "`origin='in March'` is not a date such as '2001"),
    ],
)
def test_mistakes_of_dates_say_what_to_type(words, kind, told):
    with pytest.raises(kind, match=told):
        fme.SimulationCost(MODEL, {"time": DAYS, "N": N}, **words)


def test_a_cell_without_a_date_is_named():
    data = pd.DataFrame(
        {"time": ["2024-03-01", "2024-02-30"], "N": [2.0, 1.0]}, index=["a", "b"]
    )  # places count from 0
    with pytest.raises(DataError, match="`obs`, row 1: '2024-02-30' is not a date such as 2001-12-31 in col"):
        fme.SimulationCost(MODEL, data, unit="days")


def test_texts_that_may_be_dates_are_answered_with_the_unit():
    with pytest.raises(
        DataError, match=r"holds '2024-03-01' in row 0, which is not a number\. If it holds dates.*unit='days'"
    ):
        fme.SimulationCost(MODEL, {"time": ["2024-03-01", "2024-03-02"], "N": [2.0, 1.0]})


def test_a_copy_of_a_cost_counts_its_dates_anew():
    model = fme.OdeModel("dA/dt = -k*A", state={"A": 10.0}, times=np.arange(100.0), parms={"k": 0.1})
    data = pd.DataFrame({"day": [pd.Timestamp("2020-01-02"), pd.Timestamp("2020-01-03 12:00")], "A": [9.0, 8.0]})
    cost = fme.SimulationCost(model, data, x="day", unit="days", origin="2020-01-01")
    assert cost.replace(weight="mean").comparison.x.tolist() == [1.0, 2.5]
    assert cost.replace(unit="hours").comparison.x.tolist() == [24.0, 60.0]
    moved = cost.replace(origin="2019-12-31")
    assert moved.comparison.x.tolist() == [2.0, 3.5]
    assert moved.replace(unit="hours", origin="2020-01-01").comparison.x.tolist() == [24.0, 60.0]
    assert fme.SimulationCost(model, cost.obs, x="day", unit="hours").comparison.x.tolist() == [24.0, 60.0]
    noise = {"process_noise": {"A": 0.1}, "measurement_noise": {"A": 0.1}}
    noisy = fme.FimlofCost(model, data, x="day", unit="days", origin="2020-01-01", **noise)
    assert np.unique(noisy.replace(unit="hours").filter().residuals["x"]).tolist() == [24.0, 60.0]
    with pytest.raises(ArgumentError, match="origin='soon'"):
        cost.replace(origin="soon")
