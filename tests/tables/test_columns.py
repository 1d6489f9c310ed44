"""Columns of users' tables: what is no number is refused."""

import pandas as pd
import pytest

import fmepy as fme
from fmepy.errors import DataError, ModelError

DAYS = pd.date_range("2024-03-01", periods=3)


@pytest.mark.parametrize("days", [DAYS, DAYS.to_series(), list(DAYS), DAYS.to_numpy(), [d.date() for d in DAYS]])
def test_dates_as_times_are_refused_wherever_times_are_given(days):
    model = fme.OdeModel("dN/dt = -k * N", state={"N": 1.0}, parms={"k": 0.1}, times=[0, 1, 2])
    wrong = r"holds dates\. Models run in numbers: convert it, such as \(dates"
    with pytest.raises(ModelError, match=f"`times` {wrong}"):
        model.replace(times=days)
    with pytest.raises(ModelError, match=f"The time of the forcing 'u' {wrong}"):
        model.replace(forcings={"u": (days, [1.0, 2.0, 3.0])})
    with pytest.raises(DataError, match=f"`obs`: column 'time' {wrong}"):
        fme.SimulationCost(model, pd.DataFrame({"time": days, "N": [1.0, 0.9, 0.8]}))
