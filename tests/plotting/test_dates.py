"""Where the data give dates, axes of times show dates: of costs, fits, predictions, filters and forecasts."""

import numpy as np
import pandas as pd
import pytest

import fmepy as fme

MODEL = fme.OdeModel(
    "d(N)/dt = r * N * (1 - N / 10)", state={"N": 1.0}, times=np.linspace(0, 420, 31), parms={"r": 0.03}
)
DATES = pd.date_range("2020-03-01", periods=30, freq="14D")
DATA = pd.DataFrame({"day": DATES, "N": MODEL(times=14.0 * np.arange(30))["N"] + 0.2 * np.sin(np.arange(30.0) ** 2)})


@pytest.fixture(scope="module")
def cost():
    return fme.SimulationCost(MODEL, DATA, x="day", unit="days")


@pytest.fixture(scope="module")
def noisy():
    words = {"process_noise": {"N": 0.05}, "measurement_noise": {"N": 0.2}}
    return fme.FimlofCost(MODEL, DATA, x="day", unit="hours", origin="2020-01-01", **words)


def shown(ax):
    """Return the labels of the ticks of a panel, and where they stand."""
    return [t.get_text() for t in ax.get_xticklabels()], ax.get_xticks().tolist()


def check(ax, seconds, origin="2020-03-01"):
    labels, places = shown(ax)
    assert len(labels) >= 2
    np.testing.assert_allclose((pd.to_datetime(labels) - pd.Timestamp(origin)).total_seconds() / seconds, places)


def test_costs_fits_and_predictions(cost):
    fit = fme.modFit(cost)
    curve, residuals, trace = fit.plot()
    predicted = fit.predict(MODEL)
    for ax in (curve, residuals, *cost.plot(fit.par), *predicted.plot(), cost().plot(), *fme.sensFun(cost).plot()):
        check(ax, 86_400)
    assert "-" not in "".join(shown(trace)[0])
    (ax,) = predicted.plot(xticks=[0, 100], xlabel="days")
    assert shown(ax)[0] == ["0", "100"]


def test_filters_and_forecasts_in_hours_since_an_origin(noisy):
    flt = noisy.filter()
    for ax in (*flt.plot(), *flt.plot_innovations(), *flt.forecast(3).plot()):
        check(ax, 3_600, "2020-01-01")


def test_hours_are_written_as_such(noisy):
    (ax,) = noisy.filter().plot(xlim=(1464, 1500))
    assert shown(ax)[0][0] == "03-02 00:00"


def test_results_are_saved_with_their_dates(cost, noisy, tmp_path):
    for result in (noisy.filter().forecast(3), fme.modFit(cost).predict(MODEL)):
        loaded = fme.load(result.save(tmp_path / "result.json"))
        assert shown(loaded.plot()[0]) == shown(result.plot()[0])


def test_numbers_stay_and_so_do_results_of_files(noisy, tmp_path):
    plain = noisy.replace(unit=None, origin=None, obs=DATA.assign(day=14.0 * np.arange(30)))
    assert plain.calendar is None
    assert "-" not in "".join(shown(plain.filter().plot()[0])[0])
    fit = fme.modFit(noisy)
    loaded = fme.load(fit.save(tmp_path / "fit.json"))
    residuals = loaded.plot()[0]
    assert residuals.get_xlabel() == "x"  # a file has no cost
    np.testing.assert_array_equal(residuals.lines[-1].get_xdata(), fit.plot()[1].lines[-1].get_xdata())


def test_the_dated_data_of_a_fit_are_drawn_into_its_prediction(cost):
    (ax,) = fme.modFit(cost).predict(MODEL).plot(obs=DATA)
    points = ax.lines[-1]
    assert points.get_marker() == "o" or points.get_linestyle() == "None"
    assert points.get_xdata()[:2].tolist() == [0.0, 14.0]


def test_chains_profiles_and_transformed_costs_know_their_dates(cost, tmp_path):
    fit = fme.modFit(cost)
    chain = fme.modMCMC(cost, fit, niter=60, seed=1)
    loaded = fme.load(chain.save(tmp_path / "chain.json"))
    for draws in (chain, loaded):
        band = fme.predict(MODEL, draws, times=["2020-03-01", "2020-03-15", "2020-06-07"])
        assert band.frame["time"].tolist() == [0.0, 14.0, 98.0]
        check(band.plot()[0], 86_400)
    profile = fme.profile(cost, fit, prediction=("N", ["2020-03-15", "2020-06-07 12:00"]))
    assert list(profile.intervals.index) == ["N at 2020-03-15", "N at 2020-06-07 12:00"]
    check(fme.predict(MODEL, profile).plot()[0], 86_400)
    assert list(fme.profile(cost, fit, prediction=("N", 14)).intervals.index) == ["N at 14"]
    check(fme.modFit(fme.transformed(cost, "log")).plot()[0], 86_400)


def test_a_sum_has_dates_where_all_its_parts_count_alike(cost):
    wide = fme.SimulationCost(MODEL, DATA[::2], x="day", unit="days")
    both = fme.SimulationCost(MODEL, DATA[1:], x="day", unit="days", origin="2020-03-01") + wide
    fit = fme.modFit(both)
    for ax in (both().plot(), *fit.plot()[:2], *fme.sensFun(both).plot(), *fme.predict(MODEL, fit).plot(obs=DATA)):
        check(ax, 86_400)
    hours = cost.replace(model=MODEL.replace(times=np.linspace(0, 10_080, 31), parms={"r": 0.03 / 24}), unit="hours")
    assert (both + hours).calendar is None
    assert "-" not in "".join(shown((both + hours)().plot())[0])


def test_observations_have_dates_of_their_first():
    later = DATA.assign(day=DATES + pd.Timedelta(days=3)).melt("day")[["variable", "day", "value"]]
    (ax,) = fme.obsplot(DATA, later)
    assert [line.get_xdata()[0] for line in ax.lines] == [0.0, 3.0]
    check(ax, 86_400)


def test_short_labels_stand_closer_than_long_ones():
    years = pd.DataFrame({"date": pd.date_range("1900-01-01", periods=21, freq="YS"), "N": np.arange(21.0)})
    (ax,) = fme.obsplot(years, figsize=(4, 3))
    assert shown(ax)[0] == ["1900", "1904", "1908", "1912", "1916", "1920"]
