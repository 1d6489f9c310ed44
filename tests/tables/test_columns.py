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


@pytest.mark.parametrize(
    ("values", "says"),
    [
        (
            ["<0.5", 1.0, 2.0],
            r"holds the limit, 0\.5, and another column, named by `censored`, the mark '<'",
        ),
        (["1,5", 1.0, 2.0], r"pd\.read_csv\(\.\.\., decimal=','\)"),
        (["", "<", ""], r"marks readings beyond a limit, pass censored='N'"),
        ([1 + 1j, 1.0, 2.0], r"holds \(1\+1j\) in row 0, which is not a number"),
    ],
)
def test_a_text_in_the_place_of_a_number_is_answered_by_what_it_looks_like(values, says):
    model = fme.OdeModel("dN/dt = -k * N", state={"N": 1.0}, parms={"k": 0.1}, times=[0, 1, 2])
    with pytest.raises(DataError, match=says):
        fme.SimulationCost(model, pd.DataFrame({"time": [0, 1, 2], "N": values}))


def test_data_as_a_path_and_a_forgotten_entity_say_what_to_type():
    model = fme.OdeModel("dN/dt = -k * N", state={"N": 1.0}, parms={"k": 0.1}, times=[0, 1, 2])
    with pytest.raises(DataError, match=r"Read the file: pd\.read_csv\('data\.csv'\)"):
        fme.SimulationCost(model, "data.csv")
    with pytest.raises(DataError, match="pass entity='subject'"):
        fme.SimulationCost(model, pd.DataFrame({"time": [0, 1], "N": [1.0, 0.9], "subject": [1, 2]}))
