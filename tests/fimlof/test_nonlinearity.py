"""The nonlinearity of a filter is what one standard deviation bends, measured in standard deviations."""

import numpy as np
import pandas as pd
import pytest

from fmepy.fimlof.cost import FimlofCost
from fmepy.fimlof.nonlinearity import nonlinearity
from fmepy.models.difference import DifferenceModel
from tests.filtering.problems import logistic_cost, logistic_rate, oscillator_cost, run_of, two_state_cost


def table_of(cost):
    bound = cost.bind()
    ((run, _),) = bound.passes(bound.theta0, record=True)
    return nonlinearity(bound.filter_of(0), bound.schedules[0][0], run, bound.theta0), run


@pytest.mark.parametrize("cost", [two_state_cost, oscillator_cost])
def test_a_linear_model_has_none(cost):
    frame, _ = table_of(cost())
    assert frame[["step_max", "reading_max"]].to_numpy() == pytest.approx(0.0, abs=1e-10)


def test_logistic_growth_bends_by_r_p_over_k():
    frame, run = table_of(logistic_cost())
    P, ahead = run.record.P_filtered[:-1, 0, 0], run.record.P_predicted[1:, 0, 0]
    bends = (0.3 * P / 100 / np.sqrt(ahead))[1:]  # the start is known
    assert frame.loc["x", "step_max"] == pytest.approx(bends.max(), rel=1e-9)
    assert frame.loc["x", "step_mean"] == pytest.approx(bends.mean(), rel=1e-9)
    assert frame.loc["x", "step_time"] == 1 + np.argmax(bends)


def test_a_curved_reading_bends_by_its_curvature():
    model = DifferenceModel(lambda n, x: x, state={"x": 1.0}, times=[0, 1], outputs={"z": "x**2"})
    cost = FimlofCost(
        model, {"time": [1], "z": [1.5]}, process_noise={"x": 0.3}, measurement_noise={"z": 0.1}, initial_sd={"x": 0.4}
    )
    frame, _ = table_of(cost)
    assert frame.loc["x", "reading_max"] == pytest.approx(0.25 / np.sqrt(4 * 0.25 + 0.01), rel=1e-12)
    assert frame.loc["x", "reading_time"] == 1.0


@pytest.mark.parametrize("options", [{"update": "unscented"}, {"propagation": "rk4", "dt": 0.25}, {}])
def test_it_is_measured_for_every_propagation_and_update(options):
    frame, _ = table_of(logistic_cost(logistic_rate, **options))
    assert 1e-4 < frame.loc["x", "step_max"] < 0.05


def test_a_state_that_is_known_has_no_nonlinearity():
    frame, _ = table_of(logistic_cost(sd_w=0.0))
    assert np.isnan(frame.loc["x", "step_max"])
    assert run_of(logistic_cost(sd_w=0.0)).node == -1


def test_a_result_tells_it_by_entity():
    def grow(n, x, *, r=0.3, K=10.0):
        return x + r * x * (1 - x / K)

    model = DifferenceModel(grow, state={"x": 2.0}, times=np.arange(6))
    table = pd.DataFrame({"time": [1, 2, 3] * 2, "x": [2.5, 3.0, 3.5] * 2, "site": ["a"] * 3 + ["b"] * 3})
    cost = FimlofCost(model, table, entity="site", process_noise={"x": 1.0}, measurement_noise={"x": 0.5})
    told = cost.filter().nonlinearity()
    assert told["entity"].tolist() == ["a", "b"]
    assert (told["step_max"] > 0).all()
    assert len(cost.filter().of("b").nonlinearity()) == 1
    linear = FimlofCost(
        DifferenceModel("next(x) = 0.5 * x", state={"x": 2.0}, times=np.arange(6)),
        table[table.site == "a"].drop(columns="site"), process_noise={"x": 1.0}, measurement_noise={"x": 0.5},
    )  # fmt: skip
    assert linear.filter().nonlinearity()[["step_max", "reading_max"]].abs().max().max() < 1e-12


def test_all_updates_of_a_linear_model_are_one_with_states_known_and_diffuse():
    # the factor of the covariance then has a pivot of rounding, by which nothing may be divided
    text = "next(x) = 0.5*x + 0.2*y\nnext(y) = -0.3*x + 0.8*y"
    model = DifferenceModel(text, state={"x": 1.0, "y": 0.5}, times=range(5))
    data = {"time": [0, 1, 2, 3], "x": [np.nan, 0.1, -0.4, 0.9], "y": [0.3, 0.2, 1.0, 0.5]}
    words = {"process_noise": {}, "measurement_noise": {"x": 0.3, "y": 0.3}, "initial": "diffuse"}
    found = [
        FimlofCost(model, data, initial_sd={"x": 0.5}, update=update, **words)()
        for update in ("ekf", "iterated", "second_order", "unscented")
    ]
    np.testing.assert_allclose(found, found[0], rtol=1e-9)
