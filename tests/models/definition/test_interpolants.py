"""Interpolants in a model's function: of the time they are series, of anything else sums over their pieces."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import interpolate
from scipy.integrate import quad

import fmepy as fme
from fmepy.compiled.python_code import scalar_function
from fmepy.language.equations import symbols
from fmepy.language.interpolants import Series
from fmepy.models.running.forcings import forced_at

T = np.array([0.0, 0.7, 1.1, 2.9, 3.2, 4.8, 5.5, 7.0, 7.3, 9.1, 10.0])
V = np.array([2.1, 1.3, 3.2, 0.4, 1.1, 2.8, 2.2, 0.3, 1.9, 2.0, 1.2])
X, Y = np.linspace(0, 3, 7), np.linspace(0, 3, 7) ** 2 / (1 + np.linspace(0, 3, 7) ** 2)
TWO = np.column_stack([V, V[::-1]])
WIDE = np.linspace(-1.93, 11.9, 57)
INSIDE = np.append(np.linspace(0.03, 9.97, 57), T[-1])

WEEK, STEPS = interpolate.CubicSpline(T[:8], V[:8]), interpolate.interp1d(T, V, kind="previous")
DAY = np.linspace(0, 4, 161)
PREVIOUS, SPLINE = interpolate.interp1d(T, V, kind="previous"), interpolate.CubicSpline(T, V)

OBJECTS = {
    "interp1d": (interpolate.interp1d(T, V), INSIDE),
    "interp1d, cubic": (interpolate.interp1d(T, V, kind="cubic"), INSIDE),
    "interp1d, previous": (interpolate.interp1d(T, V, kind="previous"), INSIDE),
    "interp1d, extrapolated": (interpolate.interp1d(T, V, fill_value="extrapolate"), WIDE),
    "interp1d, filled": (interpolate.interp1d(T, V, bounds_error=False, fill_value=(0.5, 7.0)), WIDE),
    "interp1d, ends": (interpolate.interp1d(T, V, bounds_error=False, fill_value=(V[0], V[-1])), WIDE),
    "spline": (interpolate.CubicSpline(T, V), WIDE),
    "spline, natural": (interpolate.CubicSpline(T, V, bc_type="natural"), WIDE),
    "spline, inside": (interpolate.CubicSpline(T, V, extrapolate=False), INSIDE),
    "pchip": (interpolate.PchipInterpolator(T, V), WIDE),
    "akima": (interpolate.Akima1DInterpolator(T, V), INSIDE),
    "hermite": (interpolate.CubicHermiteSpline(T, V, np.cos(T)), WIDE),
    "b-spline": (interpolate.make_interp_spline(T, V, k=3), WIDE),
    "b-spline, linear": (interpolate.make_interp_spline(T, V, k=1), WIDE),
    "spline, periodic": (interpolate.CubicSpline(np.arange(5), [1, 3, 0, 2, 1], bc_type="periodic"), WIDE),
    "smoothing": (interpolate.UnivariateSpline(T, V, s=0.5), WIDE),
    "smoothing, ends": (interpolate.UnivariateSpline(T, V, s=0.5, ext=3), WIDE),
    "smoothing, zero": (interpolate.UnivariateSpline(T, V, s=0.5, ext=1), WIDE),
}
FORMS = {
    "interp": (lambda t: np.interp(t, T, V), WIDE),
    "interp, ends": (lambda t: np.interp(t, T, V, left=0.0, right=5.0), WIDE),
    "interp, one point": (lambda t: np.interp(t, [3.0], [2.0]), WIDE),
    "interp, jumps": (lambda t: np.interp(t, [1, 3, 3, 5, 5, 5, 8], [1, 2, 0, 4, 7, 3, 3]), WIDE),
    "interp, jumps at ends": (lambda t: np.interp(t, [1, 1, 3, 5, 5], [1, 2, 0, 4, 7]), WIDE),
    "interp, period": (lambda t: np.interp(t, [0.5, 2.0, 3.1], [1.0, 3.0, 2.0], period=4), WIDE),
    "interp of a day": (lambda t: np.interp(t % 4, [0.0, 1.0, 4.0], [1.0, 3.0, 1.0]), WIDE),
    "interp of a day, jump": (lambda t: np.interp((t + 0.3) % 4 + 1, T, V), WIDE),
    "interp of a part of a day": (lambda t: np.interp((t / 4) % 1 * 4, [0.5, 1.0, 1.0, 3.5], [1, 3, 2, 0], 7), WIDE),
    "interp of a day, twice": (lambda t: np.interp(t % 4, [0.5, 2.0, 3.1], [1.0, 3.0, 2.0], period=4), WIDE),
    "interp of another day": (lambda t: np.interp(t % 6, [0.5, 2.0, 3.1], [1.0, 3.0, 2.0], period=4), WIDE),
    "spline of a day": (lambda t: WEEK(t % 7), WIDE),
    "spline of a day, outside": (lambda t: WEEK(1.5 * t % 12 - 2), WIDE),
    "steps of a day": (lambda t: STEPS(t % 10), WIDE),
    "interp of many days": (lambda t: np.interp(t % 4, DAY, np.sin(DAY) + DAY), WIDE),
    "interp of days that close": (lambda t: np.interp(t % 4, DAY, np.sin(np.pi * DAY)), WIDE),
    "interp of part of a day": (lambda t: np.interp((2 * t + 1) % 5 - 1, [0.0, 1.0, 2.5], [1.0, 3.0, -1.0]), WIDE),
    "interp of a day, ends": (lambda t: np.interp(t % 4, [1.0, 2.0, 3.0], [1.0, 3.0, 2.0], left=0.0, right=9.0), WIDE),
    "interp, many in a period": (lambda t: np.interp(t, DAY[:-1], np.cos(DAY[:-1]), period=4), WIDE),
    "previous of a day": (lambda t: PREVIOUS(t % 3), WIDE),
    "spline of part of a year": (lambda t: SPLINE(t % 3 + 0.5), WIDE),
    "interp of another unit": (lambda t: np.interp(2 * t - 3, T, V), WIDE),
    "interp backwards": (lambda t: np.interp(8 - t, T, V), WIDE),
    "piecewise": (lambda t: np.piecewise(t, [t < 3, (t > 4) & (t < 6)], [1.0, lambda x: x**2, 2.0]), WIDE),
    "piecewise, twice": (lambda t: np.piecewise(t, [t < 5, t < 3], [1.0, 2.0, 3.0]), WIDE),
    "arrays of floats": (lambda t: np.exp(-np.array([1, 2]).astype(float))[1] * t + np.ones(2, float)[0], WIDE),
    "select": (lambda t: np.select([t < 3, t < 6], [1.0, 2 * t], 4.0), WIDE),
    "erf": (lambda t: math.erf(t - 2) + math.erfc(t / 3), WIDE),
}


def rates_of(model, t, x=1.3):
    """Return the rates by the model's equations."""
    d = model.definition
    function = scalar_function(symbols(*d.groups[:4]), d.equations.rates)
    return function([t], [x], d.parms.tolist(), forced_at(d.forcings, t))[0]


@pytest.mark.parametrize("name", [*OBJECTS, *FORMS])
def test_of_the_time_it_has_the_function_s_values(name):
    f, times = (OBJECTS | FORMS)[name]
    model = fme.OdeModel(lambda t, x, *, k=0.4: float(f(t)) - k * x, state={"x": 1.0}, times=[0.05, 9])
    assert model.engine == "compiled", model.engine_note
    for t in times.tolist():
        expected = float(f(t if name.startswith("interp") or name in OBJECTS else np.float64(t)))
        assert rates_of(model, t) == pytest.approx(expected - 0.52, rel=1e-12, abs=1e-11), t


@pytest.mark.parametrize(
    "f", [lambda x: np.interp(x, X, Y), interpolate.PchipInterpolator(X, Y), interpolate.interp1d(X, Y),
          interpolate.UnivariateSpline(X, Y, s=0), lambda x: np.interp(x, X, Y, left=-1.0, right=2.0)],
)  # fmt: skip
def test_of_a_state_it_has_the_function_s_values(f):
    model = fme.OdeModel(lambda t, x, *, k=0.4: -k * f(x), state={"x": 1.0}, times=[0, 9])
    assert model.engine == "compiled", model.engine_note
    for x in (0.02, 0.5, 0.77, 1.9, 2.99):
        assert rates_of(model, 1.0, x) == pytest.approx(-0.4 * float(f(x)), rel=1e-10)
    bound = model.bind(["k"])
    slopes = (bound.simulate([0.4 + 1e-5]) - bound.simulate([0.4 - 1e-5])) / 2e-5
    np.testing.assert_allclose(bound.sensitivities([0.4])[1][..., 0], slopes, atol=2e-4)


def test_a_pulse_between_two_rows_is_not_missed_and_runs_stop_at_its_corners():
    times, rain = [0.0, 50.0, 50.01, 50.02, 50.03, 100.0], [0.0, 0.0, 100.0, 100.0, 0.0, 0.0]
    model = fme.OdeModel(lambda t, x, *, k=0.1: np.interp(t, times, rain) - k * x, state={"x": 0.0}, times=[0, 50, 100])
    expected = quad(lambda t: np.interp(t, times, rain) * np.exp(-0.1 * (100 - t)), 50, 50.03, points=[50.01, 50.02])[0]
    assert model()["x"].iloc[-1] == pytest.approx(expected, rel=1e-5)


def test_a_function_gives_what_the_same_series_gives_as_a_forcing():
    times = np.linspace(0, 10, 21)
    looked_up = fme.OdeModel(lambda t, x, *, k=0.4: np.interp(t, T, V) - k * x, state={"x": 1.0}, times=times)
    given = fme.OdeModel(lambda t, x, *, k=0.4, u=0.0: u - k * x, state={"x": 1.0}, times=times, forcings={"u": (T, V)})
    np.testing.assert_array_equal(looked_up()["x"], given()["x"])
    of_both = (m.bind(["k"]).sensitivities([0.5])[1] for m in (looked_up, given))
    np.testing.assert_array_equal(*of_both)
    data = given().iloc[1:].assign(x=lambda d: d["x"] + 0.05 * np.cos(7 * d["time"]))
    words = {"process_noise": {"x": 0.1}, "measurement_noise": {"x": "sd"}, "parms": {"sd": 0.05}}
    one, other = (fme.FimlofCost(m, data, **words)() for m in (looked_up, given))
    assert one == pytest.approx(other, rel=1e-12)
    copied = looked_up.replace(parms={"k": 0.5}, times=times[:11])
    np.testing.assert_array_equal(copied()["x"], given.replace(parms={"k": 0.5}, times=times[:11])()["x"])
    assert fme.structural_identifiability(looked_up, observed="x").verdicts["k"] == "globally"


def seasons(n, points=200):
    """Return a table of a noisy year of `n` days, and what looks up the day of the year in it."""
    days = np.linspace(0.25, n - 0.25, points)
    values = 2 + np.sin(2 * np.pi * days / n) + 0.2 * np.cos(13 * days)
    return days, values, lambda t: np.interp(t % n, days, values)


def test_a_table_of_a_year_runs_as_the_same_years_one_after_the_other():
    days, values, of_day = seasons(5.0)
    years = np.concatenate([days + 5 * k for k in range(-2, 5)])
    at = np.sort(np.concatenate([years, 5.0 * np.arange(-2, 6), 5.0 * np.arange(-2, 6)]))
    words = {
        "state": {"x": 1.0},
        "parms": {"k": 0.4},
        "times": np.linspace(-3.7, 17.3, 43),
        "rtol": 1e-8,
        "atol": 1e-10,
    }
    repeated = fme.OdeModel(lambda t, x, *, k: of_day(t) - k * x, **words)
    (series,) = repeated.definition.forcings
    assert series.period == 5.0
    assert len(series.times) == 202
    unrolled = np.interp(at, years, np.tile(values, 7))  # of a day outside the table it is that of its first or last
    is_first = np.isin(at, 5.0 * np.arange(-2, 6)) & (np.append(np.inf, np.diff(at)) == 0.0)
    is_last = np.isin(at, 5.0 * np.arange(-2, 6)) & ~is_first
    unrolled[is_first], unrolled[is_last] = values[0], values[-1]
    plain = fme.OdeModel(lambda t, x, *, k: np.interp(t, at, unrolled) - k * x, **words)
    np.testing.assert_allclose(repeated()["x"], plain()["x"], rtol=1e-9)
    theta = np.array([0.5])
    of_both = [m.bind(["k"]).sensitivities(theta)[1] for m in (repeated, plain)]
    np.testing.assert_allclose(*of_both, rtol=1e-7, atol=1e-12)
    later = [m.replace(times=np.linspace(2, 16, 29))() for m in (repeated, plain)]
    np.testing.assert_allclose(later[0]["x"], later[1]["x"], rtol=1e-9)
    data = repeated().iloc[1:].assign(x=lambda d: d["x"] + 0.05 * np.cos(7 * d["time"]))
    more = {"process_noise": {"x": 0.1}, "measurement_noise": {"x": "sd"}, "parms": {"sd": 0.05}}
    one, other = (fme.FimlofCost(m, data, **more)() for m in (repeated, plain))
    assert one == pytest.approx(other, rel=1e-8)
    fixed = [m.replace(method="rk4", dt=0.01)()["x"] for m in (repeated, plain)]
    np.testing.assert_allclose(*fixed, rtol=1e-12)
    np.testing.assert_allclose(fixed[0], plain()["x"], rtol=1e-5)


def test_a_cycle_far_shorter_than_the_run_is_refused():
    _, _, of_day = seasons(5.0)
    model = fme.OdeModel(lambda t, x, *, k=0.4: k * of_day(t) - x, state={"x": 1.0}, times=[0, 1e6])
    with pytest.raises(fme.errors.ModelError, match=r"cycle of 5: a run from 0 to 1e\+06 would stop 4"):
        model()


@pytest.mark.parametrize("method", ["linear", "constant"])
def test_a_cycle_that_ends_by_rounding_a_hair_later_has_ended(method):
    series = Series(np.array([0.0, 0.05, 0.1]), np.array([3.0, 4.0, 5.0]), method, 0.1)
    assert series.at(0.3) == pytest.approx(3.0)  # 0.3 / 0.1 is less than 3
    assert series.at(np.nextafter(0.3, 0.0) - 1e-9) > 3.9


def test_a_map_looks_up_the_day_of_the_year():
    _, _, of_day = seasons(5.0)
    model = fme.DifferenceModel(lambda n, x, *, k=0.4: k * x + of_day(n), state={"x": 1.0}, times=range(18))
    x = [1.0]
    for n in range(1, 18):
        x.append(0.4 * x[-1] + of_day(n))
    assert model.engine == "compiled", model.engine_note
    np.testing.assert_allclose(model()["x"], x, rtol=1e-12)


@pytest.mark.parametrize("ends", [(0.2, 0.2), (0.2, 1.0)], ids=["closed", "with a jump"])
def test_a_table_of_the_time_of_day_gives_what_the_whole_record_gives(ends):
    day, use = np.linspace(0, 1, 145), np.sin(np.linspace(0, 20, 145)) ** 8
    use[[0, -1]] = ends
    times, n = np.linspace(0.3, 5.3, 11), 6
    record = (day[:-1] + np.arange(n)[:, None]).ravel(), np.tile(use[:-1], n)
    if ends[0] != ends[1]:  # within a hair
        record = np.append(np.sort(np.append(record[0], np.arange(1, n) - 1e-8)), n), np.tile(use, n)
    by_day = fme.OdeModel(lambda t, x, *, k=0.4: np.interp(t % 1.0, day, use) - k * x, state={"x": 1.0}, times=times)
    given = fme.OdeModel(lambda t, x, *, k=0.4, u=0.0: u - k * x, state={"x": 1.0}, times=times, forcings={"u": record})
    assert by_day.engine == "compiled", by_day.engine_note
    words = {"process_noise": {"x": 0.1}, "measurement_noise": {"x": 0.05}}
    data = given().iloc[1:].assign(x=lambda d: d["x"] + 0.05 * np.cos(7 * d["time"]))
    for one, other in [
        (by_day()["x"], given()["x"]),
        (by_day(times=[0.3, 5.9])["x"], given(times=[0.3, 5.9])["x"]),  # beyond the model's own times
        (by_day.bind(["k"]).sensitivities([0.5])[1], given.bind(["k"]).sensitivities([0.5])[1]),
        (by_day.replace(method="rk4", dt=1 / 288)()["x"], given()["x"]),  # which stops at jumps, as the others do
        *((fme.FimlofCost(m, data, **words)() for m in (by_day, given)),),
    ]:
        np.testing.assert_allclose(one, other, rtol=1e-5)


def test_values_that_are_parameters_make_a_sum_of_hats():
    def rates(t, x, *, k=0.4, a=2.0, b=0.5):
        return np.interp(t, [0, 3, 4, 10], [1.0, a, b, a]) - k * x

    bound = fme.OdeModel(rates, state={"x": 1.0}, times=np.linspace(0, 10, 21), rtol=1e-9, atol=1e-11).bind()
    theta = bound.theta0
    _, S = bound.sensitivities(theta)
    a, b = (bound.simulate(theta + h) - bound.simulate(theta - h) for h in (1e-3 * np.eye(3))[1:])
    np.testing.assert_allclose(S[:, 0, 1], a[:, 0] / 2e-3, atol=1e-6)  # linear in them
    np.testing.assert_allclose(S[:, 0, 2], b[:, 0] / 2e-3, atol=1e-6)
    assert rates_of(bound._model, 3.25) == pytest.approx(2.0 - 0.25 * 1.5 - 0.52)


TABLES = {"rain": interpolate.interp1d(T, V), "warmth": interpolate.CubicSpline(T, V)}
BOTH = interpolate.interp1d(T, TWO.T)
SPLINES = interpolate.CubicSpline(T, TWO)


@pytest.mark.parametrize(
    "rates",
    [
        lambda t, y, p: [TABLES["rain"](t) - p["k"] * y[0], TABLES["warmth"](t) * y[0] - y[1]],
        lambda t, y, p: [SPLINES(t)[0] - p["k"] * y[0], SPLINES(t)[1] * y[0] - y[1]],
        lambda t, y, p: [BOTH(t)[0] - p["k"] * y[0], BOTH(t)[1] * y[0] - y[1]],
        lambda t, y, p: [np.interp(t, T, V) if y[1] > 1 else 2 * np.interp(t, T, V), y[0] - p["k"] * y[1]],
    ],
    ids=["in a dict", "columns of a spline", "rows of interp1d", "on both ways"],
)
def test_where_a_function_finds_it_does_not_matter(rates):
    words = {"state": {"a": 1.0, "b": 0.5}, "parms": {"k": 0.4}, "times": np.linspace(0.05, 9.9, 12)}
    model = fme.OdeModel(rates, **words)
    assert model.engine == "compiled", model.engine_note
    d = model.definition
    function = scalar_function(symbols(*d.groups[:4]), d.equations.rates)
    for t in INSIDE.tolist():
        found = function([t], [1.2, 1.7], [0.4], forced_at(d.forcings, t))
        np.testing.assert_allclose(found, np.array(rates(t, np.array([1.2, 1.7]), {"k": 0.4}), dtype=float), rtol=1e-9)


@pytest.mark.parametrize(
    "f",
    [
        lambda t: np.interp(t, T, V),
        lambda t: np.interp(2 * (t - 1) * 3 / 4 + 0.25, T, V),
        lambda t: np.interp((3 * t / 2 + 1 - 0.5) % 7 * 1.1 - 0.5, T, V),
        lambda t: WEEK(t % 4),
        interpolate.CubicSpline(T, V),
    ],
    ids=["interp", "interp of another unit", "interp in cycles", "spline in cycles", "spline"],
)
def test_loops_over_arrays_have_it_too_in_runs_and_at_rest(f):
    n = 300

    def rates(t, y, p):
        d = np.empty_like(y)
        d[0] = p["k"] * f(t) - y[0]
        d[1:] = y[:-1] - y[1:]
        return d

    words = {"state": {f"x{i}": 0.1 for i in range(n)}, "parms": {"k": 0.4}}
    times = np.linspace(0, 10, 6)
    model = fme.OdeModel(rates, **words, times=times, rtol=1e-8, atol=1e-10)
    assert model.definition.arrays is not None, model.engine_note
    assert len(model.definition.forcings) in (1, 5)
    assert not model.definition.arrays.jumps
    first = fme.OdeModel(lambda t, x, *, k=0.4: k * f(t) - x, state={"x": 0.1}, times=times, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(model()["x0"], first()["x"], rtol=1e-6)
    S = model.bind(["k"]).sensitivities([0.4])[1][:, 0, 0]
    np.testing.assert_allclose(S, first.bind(["k"]).sensitivities([0.4])[1][:, 0, 0], rtol=1e-5, atol=1e-8)
    still = fme.SteadyModel(rates, **words, t=3.0)
    np.testing.assert_allclose(still().iloc[0][["x0", "x299"]], 0.4 * float(f(3.0)), rtol=1e-9)
    np.testing.assert_allclose(still.bind(["k"]).sensitivities([0.4])[1], float(f(3.0)), rtol=1e-7)


def test_in_a_cycle_too_there_is_no_value_where_the_function_has_none():
    f = interpolate.interp1d(T[:5], V[:5])
    model = fme.OdeModel(lambda t, x, *, k=0.4: f(t % 4) - k * x, state={"x": 1.0}, times=[0, 3, 5])
    assert model.engine == "compiled"
    with pytest.raises(fme.errors.SimulationError, match=r"failed at time 3\.2"):
        model()


def test_a_steady_state_reads_it_at_its_time_in_rates_and_outputs():
    def rates(t, x, *, k=0.4):
        return [np.interp(t, T, V) - k * x], {"u": x * np.interp(t, T, V)}

    still = fme.SteadyModel(rates, state={"x": 1.0}, t=3.05)
    u = np.interp(3.05, T, V)
    np.testing.assert_allclose(still().iloc[0][["x", "u"]], [u / 0.4, u**2 / 0.4], rtol=1e-9)
    np.testing.assert_allclose(
        still.bind(["k"]).sensitivities([0.4])[1].ravel(), [-u / 0.16, -(u**2) / 0.16], rtol=1e-6
    )


def test_runs_do_not_stop_at_very_many_points_unless_they_are_a_forcing_s():
    times = np.linspace(0, 10, 60_001)

    def rates(t, x, *, k=0.4):
        return np.interp(t, times, np.sin(times)) - k * x

    model = fme.OdeModel(rates, state={"x": 1.0}, times=[0, 9])
    assert model.engine == "scipy"
    assert "60001 points, at which runs would stop" in model.engine_note


def test_what_is_looked_up_and_not_used_stops_no_run():
    def rates(t, x, *, k=0.4):
        u, v = np.interp(t, T, V), np.interp(t, T, 2 * V)
        return v - k * x if u is not None else u

    model = fme.OdeModel(rates, state={"x": 1.0}, times=[0, 9])
    (series,) = model.definition.forcings
    np.testing.assert_array_equal(series.values, 2 * V)


def test_there_is_no_value_outside_where_the_function_has_none():
    f = interpolate.interp1d(T, V)
    model = fme.OdeModel(lambda t, x, *, k=0.4: f(t) - k * x, state={"x": 1.0}, times=[0, 5, 12])
    assert model.engine == "compiled"
    with pytest.raises(fme.errors.SimulationError, match="failed at time 10"):
        model()


@pytest.mark.parametrize(
    ("f", "why"),
    [
        (interpolate.make_interp_spline(T, V, k=5), "no polynomial of degree three or less"),
        (interpolate.interp1d(T, V, kind="nearest"), "no polynomial of degree three or less"),
        (interpolate.BarycentricInterpolator(T, V), "BarycentricInterpolator has no symbolic form"),
    ],
)
def test_what_has_no_form_runs_as_it_is_and_says_why(f, why):
    model = fme.OdeModel(lambda t, x, *, k=0.4: f(t) - k * x, state={"x": 1.0}, times=[0, 5])
    assert model.engine == "scipy"
    assert why in model.engine_note


MANY = np.linspace(0, 3, 400)


@pytest.mark.parametrize(
    ("f", "why"),
    [
        (interpolate.interp1d(X, Y, kind="previous"), "with jumps has a form of the time alone"),
        (lambda x: np.interp(x, MANY, MANY**2), "more than 100 pieces has a form of the time alone"),
    ],
)
def test_of_a_state_there_are_no_jumps_and_not_too_many_pieces(f, why):
    model = fme.OdeModel(lambda t, x, *, k=0.4: -k * f(x), state={"x": 1.0}, times=[0, 1])
    assert model.engine == "scipy"
    assert why in model.engine_note
