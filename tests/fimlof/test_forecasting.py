"""Forecasts go on from the end of the data: closed forms, scenarios, uncertain parameters, simulation."""

from __future__ import annotations

import contextlib
import json

import numpy as np
import pandas as pd
import pytest

from fmepy.errors import ArgumentError, ParameterError, SimulationError
from fmepy.fimlof.cost import FimlofCost
from fmepy.models.difference import DifferenceModel
from fmepy.models.ode import OdeModel


@pytest.fixture(scope="module")
def nile(reference):
    case = json.loads((reference / "fimlof" / "nile_local_level.json").read_text(encoding="utf-8"))
    model = DifferenceModel("next(level) = level", state={"level": 0.0}, times=[0, 99], outputs={"flow": "level"})
    cost = FimlofCost(model, {"time": np.arange(100), "flow": case["data"]}, process_noise={"level": "sd_w"},
                      measurement_noise={"flow": "sd_v"}, initial="diffuse",
                      parms={name: case["mle"][f"var_{name[-1]}"] ** 0.5 for name in ("sd_w", "sd_v")})  # fmt: skip
    return case, cost.filter()


def of(forecast, name):
    return forecast.frame[forecast.frame["name"] == name].reset_index(drop=True)


def decaying(a=0.7, n=6, **arguments):
    """Return a cost of x(t) = a x(t-1) + w read at 1..n."""
    model = DifferenceModel("next(x) = a * x", state={"x": 2.0}, parms={"a": a}, times=[0, n])
    z = 2 * a ** np.arange(1, n + 1) + 0.1 * np.cos(np.arange(n))
    settings = {"process_noise": {"x": 0.2}, "measurement_noise": {"x": 0.1}, **arguments}
    return FimlofCost(model, {"time": np.arange(1, n + 1), "x": z}, **settings)


def test_the_nile_ten_years_ahead_agrees_with_the_reference(nile):
    case, flt = nile
    rows = of(flt.forecast(10, level=0.9), "flow")
    np.testing.assert_allclose(rows["mean"], case["forecast10_at_mle"]["mean"], rtol=1e-8)
    np.testing.assert_allclose(rows["reading_sd"] ** 2, case["forecast10_at_mle"]["var_measurement"], rtol=1e-8)
    np.testing.assert_allclose(rows["upper"] - rows["mean"], 1.6448536 * rows["sd"], rtol=1e-6)
    np.testing.assert_allclose(rows["mean"] - rows["reading_lower"], 1.6448536 * rows["reading_sd"], rtol=1e-6)
    np.testing.assert_allclose(rows["reading_sd"] ** 2 - rows["sd"] ** 2, case["mle"]["var_v"], rtol=1e-8)
    assert rows["time"].tolist() == list(range(100, 110))


def test_an_unknown_start_that_is_never_forgotten_is_in_the_forecast():
    """A constant behind noise: its mean, known to sd / sqrt(n)."""
    z = [3.0, 5.0, 1.0, 4.0]
    model = DifferenceModel("next(x) = x + drift", state={"x": 100.0}, parms={"drift": 0.0}, times=[0, 4])
    cost = FimlofCost(model, {"time": np.arange(1, 5), "x": z}, process_noise={"x": "q"}, parms={"q": 0.0},
                      measurement_noise={"x": 2.0}, initial="diffuse")  # fmt: skip
    flt = cost.filter()
    rows = of(flt.forecast(2), "x")
    np.testing.assert_allclose(rows["mean"], np.mean(z), rtol=1e-12)
    np.testing.assert_allclose(rows["sd"], 2 / np.sqrt(4), rtol=1e-12)
    # with a slope of its own, of sd 1: the end of the line moves with it, for the mean of the data stays
    C = pd.DataFrame([[1.0]], index=["drift"], columns=["drift"])
    sloping = of(flt.forecast(2, parm_cov=C), "x")
    np.testing.assert_allclose(sloping["sd"] ** 2, 1 + np.array([2.5, 3.5]) ** 2, rtol=1e-6)
    # an sd that was estimated at zero has no variance, and stays there
    wider = pd.DataFrame(np.nan, index=["drift", "q"], columns=["drift", "q"])
    wider.loc["drift", "drift"] = 1.0
    pd.testing.assert_frame_equal(of(flt.forecast(2, parm_cov=wider), "x"), sloping)


def test_a_linear_forecast_is_the_closed_form():
    flt = decaying().filter()
    x, P = flt.filtered["x"].iloc[-1], flt.filtered_cov[-1, 0, 0]
    forecast = flt.forecast(3)
    for k in range(3):
        assert of(forecast, "x")["mean"][k] == pytest.approx(0.7 ** (k + 1) * x, rel=1e-12)
        P = 0.49 * P + 0.04
        assert forecast.cov[k, 0, 0] == pytest.approx(P, rel=1e-12)
    assert not forecast.with_parameters


def test_uncertain_parameters_add_what_the_whole_filter_and_forecast_owe_to_them():
    cost = decaying()
    flt = cost.filter()
    cov = pd.DataFrame([[0.01]], index=["a"], columns=["a"])
    h = 1e-5
    up, down = (of(cost.filter({"a": 0.7 + s * h}).forecast(4), "x")["mean"] for s in (1, -1))
    slope = (up - down) / (2 * h)
    plain, wide = of(flt.forecast(4), "x"), of(flt.forecast(4, parm_cov=cov), "x")
    np.testing.assert_allclose(wide["sd"] ** 2 - plain["sd"] ** 2, 0.01 * slope**2, rtol=1e-4)
    np.testing.assert_allclose(wide["reading_sd"] ** 2 - wide["sd"] ** 2, 0.01, rtol=1e-9)
    assert flt.forecast(4, parm_cov=cov).with_parameters


def test_simulation_agrees_with_linear_theory_where_the_model_is_linear():
    flt = decaying().filter()
    theory, drawn = of(flt.forecast(3), "x"), flt.forecast(3, draws=4000, seed=1)
    rows = of(drawn, "x")
    # Monte Carlo error of an sd of n draws: 1 / sqrt(2 n) = 1.1 %
    np.testing.assert_allclose(rows["sd"], theory["sd"], rtol=0.04)
    np.testing.assert_allclose(rows["reading_sd"], theory["reading_sd"], rtol=0.04)
    np.testing.assert_allclose(rows["mean"], theory["mean"], atol=4 * theory["sd"].max() / 4000**0.5)
    np.testing.assert_allclose(rows["upper"] - rows["lower"], theory["upper"] - theory["lower"], rtol=0.06)
    assert len(drawn.draws) == 3 * 4000
    assert list(drawn.draws.columns) == ["draw", "time", "x", "x (reading)"]
    pd.testing.assert_frame_equal(drawn.draws, flt.forecast(3, draws=4000, seed=1).draws)


def test_simulation_draws_parameters_too():
    flt = decaying(n=2).filter()
    cov = pd.DataFrame([[0.02]], index=["a"], columns=["a"])
    theory = of(flt.forecast(2, parm_cov=cov), "x")
    rows = of(flt.forecast(2, parm_cov=cov, draws=1500, seed=2), "x")
    np.testing.assert_allclose(rows["sd"], theory["sd"], rtol=0.08)
    assert (rows["sd"] > 1.02 * of(flt.forecast(2), "x")["sd"]).all()


def test_a_scenario_changes_the_future_and_not_the_past():
    model = OdeModel(lambda t, x, u: u - 0.5 * x, state={"x": 1.0}, times=np.arange(0, 5, 0.5), method="euler", dt=0.5,
                     forcings={"u": ([0.0, 100.0], [1.0, 1.0])})  # fmt: skip
    data = {"time": [1.0, 2.0, 3.0, 4.0], "x": [1.5, 1.6, 1.9, 1.8]}
    flt = FimlofCost(model, data, process_noise={"x": 0.1}, measurement_noise={"x": 0.1}).filter()
    end = flt.filtered["x"].iloc[-1]
    stopped = of(flt.forecast(times=[4.5, 5.0], forcings={"u": ([0.0, 100.0], [0.0, 0.0])}), "x")["mean"]
    np.testing.assert_allclose(stopped, [0.75 * end, 0.75**2 * end], rtol=1e-12)
    usual = of(flt.forecast(times=[4.5]), "x")["mean"]
    np.testing.assert_allclose(usual, [0.75 * end + 0.5], rtol=1e-12)
    assert of(flt.forecast(2), "x")["time"].tolist() == [5.0, 6.0]  # the median spacing of the samples is 1
    with pytest.raises(ArgumentError, match="Did you mean 'u'"):
        flt.forecast(1, forcings={"U": ([0, 1], [0, 0])})


def test_events_of_the_future_happen():
    events = pd.DataFrame({"var": ["x"], "time": [5.0], "value": [10.0], "method": ["replace"]})
    model = OdeModel(
        lambda t, x: 0.0 * x, state={"x": 1.0}, times=np.arange(9.0), method="euler", dt=1.0, events=events
    )
    flt = FimlofCost(model, {"time": [1, 2, 3], "x": [1.0, 1.1, 0.9]}, process_noise={"x": 0.1},
                     measurement_noise={"x": 0.1}).filter()  # fmt: skip
    rows = of(flt.forecast(times=[5.0, 6.0]), "x")
    assert rows["mean"][0] < 2
    assert rows["mean"][1] == 10.0
    assert rows["sd"][1] == pytest.approx(0.1)


def test_readings_of_a_transformed_variable_come_back_on_the_data_s_own_scale():
    flt = decaying(transform="log", measurement_noise={"x": 0.1}).filter()
    row = of(flt.forecast(1, level=0.9), "x").iloc[0]
    spread = np.log(row["reading_upper"] / row["reading_lower"]) / (2 * 1.6448536)
    assert spread == pytest.approx(row["reading_sd"], rel=1e-6)
    assert np.sqrt(row["reading_lower"] * row["reading_upper"]) == pytest.approx(row["mean"], rel=1e-9)


def test_sums_are_forecast_where_they_are_complete():
    model = DifferenceModel("next(x) = 0.8 * x", state={"x": 1.0}, times=[0, 12], outputs={"z": "2 * x"})
    data = {"time": [2, 5, 8, 12], "z": [3.0, 4.0, 0.5, 1.0]}
    cost = FimlofCost(model, data, process_noise={"x": 0.5}, measurement_noise={"z": 0.4}, accumulate={"z": 2})
    flt = cost.filter()
    rows = of(flt.forecast(5), "sum of z")
    assert np.isfinite(rows["mean"]).tolist() == [False, True, False, True, False]
    x = flt.filtered["x"].iloc[-1]
    np.testing.assert_allclose(rows["mean"][[1, 3]], [2 * x * (0.8 + 0.64), 2 * x * (0.8**3 + 0.8**4)], rtol=1e-12)
    # var(2 x1 + 2 x2) with x2 = 0.8 x1 + w
    P = flt.filtered_cov[-1, 0, 0]
    variance = (2 * 1.8) ** 2 * (0.64 * P + 0.25) + 4 * 0.25
    assert rows["sd"][1] ** 2 == pytest.approx(variance, rel=1e-10)
    assert rows["reading_sd"][1] ** 2 == pytest.approx(variance + 0.16, rel=1e-10)
    assert of(flt.forecast(5), "z")["reading_sd"].isna().all()
    drawn = of(flt.forecast(2, draws=3000, seed=4), "sum of z")
    assert drawn["sd"][1] == pytest.approx(rows["sd"][1], rel=0.05)
    mean = of(cost.replace(accumulate={"z": (2, "mean")}).filter().forecast(2), "mean of z")
    assert np.isfinite(mean["mean"]).tolist() == [False, True]


def test_every_entity_is_forecast_from_its_own_end():
    model = DifferenceModel("next(x) = 0.9 * x", state={"x": 1.0}, times=[0, 5])
    data = pd.DataFrame({"who": ["u", "u", "v"], "time": [1, 4, 2], "x": [1.0, 0.5, 0.9]})
    flt = FimlofCost(model, data, process_noise={"x": 0.1}, measurement_noise={"x": "sd"}, parms={"sd": 0.1},
                     entity="who").filter()  # fmt: skip
    rows = of(flt.forecast(2), "x")
    assert rows.groupby("who")["time"].apply(list).to_dict() == {"u": [5.0, 6.0], "v": [3.0, 4.0]}
    assert of(flt.of("v").forecast(2), "x")["mean"].tolist() == rows.query("who == 'v'")["mean"].tolist()
    cov = pd.DataFrame([[0.04]], index=["sd"], columns=["sd"])
    whole, one = flt.forecast(2, parm_cov=cov), flt.of("v").forecast(2, parm_cov=cov)
    assert of(one, "x")["sd"].tolist() == of(whole, "x").query("who == 'v'")["sd"].tolist()
    assert set(flt.of("v").forecast(2, parm_cov=cov, draws=3, seed=1).draws["who"]) == {"v"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "either `steps`"),
        ({"steps": 3, "times": [9.0]}, "either `steps`"),
        ({"steps": 0}, "at least 1"),
        ({"times": [1.0, 2.0]}, "beyond the data"),
        ({"steps": 1, "level": 1.0}, "between 0 and 1"),
        ({"steps": 1, "draws": -1}, "at least 0"),
        ({"steps": 1, "parm_cov": np.eye(1)}, "labelled"),
        ({"steps": 1, "parm_cov": pd.DataFrame([["x"]], index=["a"], columns=["a"])}, "must hold numbers"),
        ({"steps": 1, "parm_cov": pd.DataFrame([[1.0]], index=["b"], columns=["b"])}, "not a parameter"),
        ({"steps": 1, "parm_cov": pd.DataFrame([[np.nan]], index=["a"], columns=["a"])}, "covariance"),
    ],
)
def test_what_cannot_be_forecast_is_refused(arguments, words):
    with pytest.raises(ArgumentError, match=words):
        decaying().filter().forecast(**arguments)


def test_there_is_no_forecast_after_a_breakdown():
    flt = decaying().filter({"a": 1e300})
    assert flt.failure is not None
    with pytest.raises(SimulationError, match="broke down"):
        flt.forecast(1)


def test_a_forecast_prints_all_its_columns_and_what_the_bands_are_of():
    flt = decaying().filter()
    text = repr(flt.forecast(3, level=0.9))
    first, header, *rows = text.splitlines()
    assert first == ("Forecast, 90 % bands of the state or output (lower, upper) and of a reading; parameters taken as "
                     "known")  # fmt: skip
    assert header.split() == ["time", "name", "mean", "sd", "lower", "upper", "reading_sd", "reading_lower",
                              "reading_upper"]  # fmt: skip
    assert len(rows) == 3
    assert max(map(len, text.splitlines()[1:])) <= 100
    covariance = pd.DataFrame([[0.01]], index=["a"], columns=["a"])
    drawn = flt.forecast(90, parm_cov=covariance, draws=20, seed=1)
    assert "with the uncertainty of the parameters, from 20 draws" in repr(drawn)
    assert "[90 rows; `frame` holds them all]" in repr(drawn)
    assert "90 rows" in drawn._repr_html_()
    assert "reading_upper" in drawn._repr_html_()


def test_times_of_a_forecast_are_numbers():
    with pytest.raises(ArgumentError, match=r"`times` must hold numbers.*got \['soon'\]"):
        decaying().filter().forecast(times=["soon"])


@pytest.mark.parametrize("last", [20.0, 10.0])
@pytest.mark.parametrize("method", ["euler", "rk4"])
def test_fixed_steps_go_on_as_they_were_whatever_times_are_asked_for(method, last):
    model = OdeModel(lambda t, x: -0.3 * x * x, state={"x": 5.0}, times=np.arange(0.0, last + 1), method=method)
    cost = FimlofCost(model, {"time": [5, 10], "x": [1.2, 0.7]}, process_noise={"x": 0.1}, measurement_noise={"x": 0.2})
    flt = cost.filter()
    every = of(flt.forecast(times=np.arange(11.0, 16.0)), "x").iloc[-1]
    for one in (flt.forecast(times=[15.0]), flt.forecast(1)):  # the data are five apart
        assert of(one, "x")[["mean", "sd"]].to_numpy()[0] == pytest.approx(every[["mean", "sd"]].to_numpy(dtype=float))
    drawn = of(flt.forecast(times=[15.0], draws=400, seed=1), "x").iloc[0]
    assert abs(drawn["mean"] - every["mean"]) < 4 * every["sd"] / 20


@pytest.mark.parametrize("method", ["euler", "rk4"])
def test_fixed_steps_go_on_where_data_go_on_after_the_model_s_times(method):
    def cost(last):
        model = OdeModel(lambda t, x: -0.3 * x * x, state={"x": 5.0}, times=np.arange(0.0, last + 1), method=method)
        data = {"time": [5, 10, 15], "x": [1.2, 0.7, 0.2]}
        return FimlofCost(model, data, process_noise={"x": 0.1}, measurement_noise={"x": 0.2})

    assert cost(7.0)() == pytest.approx(cost(15.0)(), rel=1e-12)


def dated(**words):
    """Return a cost whose data have dates from 2020-01-01 on."""
    model = OdeModel("d(x)/dt = -k * x + u", state={"x": 1.0}, parms={"k": 0.3}, times=[0, 10],
                     forcings={"u": ([0, 5, 10], [1, 2, 3])})  # fmt: skip
    data = {"date": pd.date_range("2020-01-01", periods=10), "x": np.linspace(1, 3, 10)}
    return FimlofCost(model, data, x="date", process_noise={"x": 0.1}, measurement_noise={"x": 0.1}, **words)


@pytest.mark.parametrize("kind", [list, pd.DatetimeIndex])
@pytest.mark.parametrize("origin", [None, "2019-12-31"])
def test_times_ahead_may_be_dates_of_the_datas_calendar(kind, origin):
    dates = kind([pd.Timestamp("2020-01-10 12:00"), pd.Timestamp("2020-01-11")])
    flt = dated(unit="days", origin=origin).filter()
    last = 10.0 if origin is None else 11.0
    with pytest.warns(UserWarning, match="'u' ends at 10") if origin else contextlib.nullcontext():
        assert flt.forecast(times=dates)["time"].tolist() == [last - 0.5, last]
    assert last - 9.5 in flt.at(["2020-01-01 12:00"]).filtered["time"].tolist()


def test_dates_without_a_calendar_are_refused():
    flt = decaying().filter()
    for dates in (["2020-01-11"], pd.to_datetime(["2020-01-11"]), np.datetime64("2020-01-11")):
        for ask in (lambda d: flt.forecast(times=d), flt.at):
            with pytest.raises(ArgumentError, match=r"`times` (holds dates|must hold numbers)"):
                ask(dates)


def test_an_input_that_ends_before_the_forecast_is_named():
    flt = dated(unit="days").filter()
    with pytest.warns(UserWarning, match=r"until 12, and the forcing 'u' ends at 10: its last value, 3, is kept"):
        kept = flt.forecast(3)
    longer = flt.forecast(3, forcings={"u": ([0, 5, 10, 20], [1, 2, 3, 3])})
    pd.testing.assert_frame_equal(kept.frame, longer.frame)


def test_the_scale_of_reading_sd_is_printed():
    assert "reading_sd of 'x' is on the scale of log" in str(decaying(transform="log").filter().forecast(2))
    assert "on the scale" not in str(decaying().filter().forecast(2))


@pytest.mark.parametrize("name", ["sd_w", "sd_v"])
def test_an_sd_below_zero_is_refused(name):
    cost = decaying(process_noise={"x": "sd_w"}, measurement_noise={"x": "sd_v"}, parms={"sd_w": 0.2, "sd_v": 0.1})
    for ask in (cost, cost.filter, cost.simulate):
        with pytest.raises(ParameterError, match=rf"{name} = -3 is a standard deviation of noise"):
            ask({name: -3.0})
    assert np.isfinite(cost({"sd_w": 0.0}))


def test_dates_without_a_zone_are_of_the_zone_of_the_data():
    model = OdeModel("d(x)/dt = -k * x", state={"x": 1.0}, parms={"k": 0.1}, times=range(40))
    hours = pd.date_range("2022-07-01", periods=24, freq="h", tz="Europe/Berlin")
    data = pd.DataFrame({"at": hours, "x": np.exp(-0.1 * np.arange(24))})
    cost = FimlofCost(model, data, x="at", unit="hours", process_noise={"x": 0.1}, measurement_noise={"x": 0.1})
    flt = cost.filter()
    for date in ("2022-07-02 06:00", pd.Timestamp("2022-07-02 06:00", tz="Europe/Berlin"), "2022-07-02T04:00Z"):
        assert flt.forecast(times=[date])["time"].tolist() == [30.0]
    shifted = FimlofCost(model, data, x="at", unit="hours", origin="2022-06-30 22:00", process_noise={"x": 0.1},
                         measurement_noise={"x": 0.1})  # fmt: skip
    assert shifted.obs["at"].tolist()[:2] == [2.0, 3.0]
    with pytest.raises(ArgumentError, match=r"they differ in length\. Number the rows"):
        cost.replace(obs=data, unit="months")
