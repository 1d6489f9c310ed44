"""Rows of the data without readings ask for states: they appear in the tables, and change nothing else."""

import numpy as np
import pandas as pd
import pytest

import fmepy as fme
from fmepy.errors import DataError

DATA = pd.DataFrame({"time": [1.0, 2.0, 4.0], "x": [1.5, 1.0, 0.7]})
ASKED = [7.3, 0.25, 2.6, 2.7, 2.6, 3.0, 5.0]


def with_rows(times=ASKED, **more):
    return pd.concat([DATA, pd.DataFrame({"time": times, "x": np.nan, **more})], ignore_index=True)


def cost_of(data, initial="known", rate=lambda t, x, *, k: -k * x, **options):
    model = fme.OdeModel(rate, state={"x": 2.0}, times=np.arange(0.0, 6.0), parms={"k": 0.3}, **options)
    sd = {"x": 0.3} if initial == "known" else None
    return fme.FimlofCost(
        model, data, process_noise={"x": 0.2}, measurement_noise={"x": 0.1}, initial=initial, initial_sd=sd
    )


def state_at(flt, t, kind="filtered"):
    table = getattr(flt, kind)
    row = int(np.flatnonzero(np.isclose(table["time"], t))[0])
    return float(table["x"][row]), float(flt.sd(kind)["x"][row])


def test_states_at_rows_without_readings_are_predictions_without_update():
    flt = cost_of(with_rows()).filter()
    assert set(ASKED) <= set(flt.smoothed["time"])
    assert flt.smoothed["time"].is_monotonic_increasing
    for t, last in ((0.25, None), (2.6, 2.0), (2.7, 2.0), (3.0, 2.0), (5.0, 4.0), (7.3, 4.0)):
        x, sd = (2.0, 0.3) if last is None else state_at(flt, last)
        h = t - (last or 0.0)
        decay = np.exp(-0.3 * h)
        spread = 0.04 * (1 - decay**2) / 0.6
        assert state_at(flt, t) == pytest.approx((x * decay, np.sqrt((sd * decay) ** 2 + spread)), rel=1e-8)
        assert state_at(flt, t, "predicted") == state_at(flt, t)
    assert state_at(flt, 7.3, "smoothed") == pytest.approx(state_at(flt, 7.3), rel=1e-12)


@pytest.mark.parametrize("initial", ["known", "data", "diffuse"])
@pytest.mark.parametrize("options", [{}, {"method": "euler", "dt": 0.5}, {"method": "rk4"}, {"method": "euler"}])
def test_they_change_neither_the_likelihood_nor_any_other_row(initial, options):
    def rate(t, x, *, k):
        return -k * x * (1 + 0.1 * x)

    plain, more = cost_of(DATA, initial, rate, **options), cost_of(with_rows(), initial, rate, **options)
    assert more() == plain()
    assert more.nobs == plain.nobs
    a, b = plain.filter(), more.filter()
    assert b.loglik == pytest.approx(plain() / -2, rel=1e-9)
    from_start = [t for t in ASKED if initial != "data" or t >= 1]
    assert set(from_start) <= set(b.filtered["time"])
    for kind in ("predicted", "filtered", "smoothed"):
        both = getattr(a, kind).merge(getattr(b, kind), on="time")
        assert len(both) == len(a.smoothed)
        np.testing.assert_allclose(both["x_x"], both["x_y"], rtol=1e-8)
    np.testing.assert_allclose(a.residuals["innovation"], b.residuals["innovation"], atol=1e-8)
    np.testing.assert_allclose(a.forecast(3).frame[["mean", "sd"]], b.forecast(3).frame[["mean", "sd"]], rtol=1e-8)


def test_a_state_beside_the_fixed_steps_is_that_of_a_shorter_step_and_smoothed_with_all_data():
    exact, fixed = (cost_of(with_rows([0.26, 2.63, 2.67]), **o).filter() for o in ({}, {"method": "rk4", "dt": 0.1}))
    for kind in ("filtered", "smoothed"):
        for t in (0.26, 2.63, 2.67):
            assert state_at(fixed, t, kind) == pytest.approx(state_at(exact, t, kind), rel=0.02)
    euler = cost_of(with_rows(), method="euler", dt=0.5).filter()
    x, _ = state_at(euler, 2.5)
    assert state_at(euler, 2.6)[0] == pytest.approx(x * (1 - 0.1 * 0.3), rel=1e-12)


def test_entities_have_their_own_rows_and_repeated_times_of_long_tables_are_one():
    table = pd.DataFrame({
        "name": "x", "who": ["a", "a", "a", "b", "b", "b", "b"], "time": [1, 2, 3.5, 0.5, 1, 1, 4],
        "value": [1.5, 1.0, np.nan, np.nan, 1.4, np.nan, np.nan],
    })  # fmt: skip
    model = fme.OdeModel(lambda t, x: -0.3 * x, state={"x": 2.0}, times=[0.0, 1.0])
    cost = fme.FimlofCost(model, table, y="value", entity="who", process_noise={"x": 0.2}, measurement_noise={"x": 0.1})
    states = cost.filter().smoothed
    assert states.loc[states["who"] == "a", "time"].tolist() == [0.0, 1.0, 2.0, 3.5]
    assert states.loc[states["who"] == "b", "time"].tolist() == [0.0, 0.5, 1.0, 4.0]
    assert not states["x"].isna().any()


def test_steps_of_difference_equations_are_asked_for_too():
    model = fme.DifferenceModel("next(x) = 0.5*x", state={"x": 8.0}, times=[0, 1])
    data = {"time": [1, 2, 4, 6], "x": [4.0, np.nan, 1.0, np.nan]}
    cost = fme.FimlofCost(model, data, process_noise={"x": 1.0}, measurement_noise={"x": 1.0})
    states = cost.filter().predicted
    assert states["time"].tolist() == [0, 1, 2, 4, 6]
    assert states["x"].tolist()[2] == pytest.approx(2.0)
    with pytest.raises(DataError, match=r"row without readings.*whole"):
        fme.FimlofCost(
            model, {"time": [1, 2.5], "x": [4.0, np.nan]}, process_noise={"x": 1.0}, measurement_noise={"x": 1.0}
        )


def test_rows_before_the_start_are_refused():
    with pytest.raises(DataError, match=r"row without readings in row 3 is of time = -1, before the model's start"):
        cost_of(with_rows([-1.0]))


def test_further_times_can_be_had_of_a_result():
    flt = cost_of(DATA).filter()
    wider = flt.at([0.5, 2.5])
    assert set(wider.smoothed["time"]) == {*flt.smoothed["time"], 0.5, 2.5}
    assert wider.loglik == pytest.approx(flt.loglik, rel=1e-9)
