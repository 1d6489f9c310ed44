"""Readings at time inf, which are of the steady state that a run comes to."""

from __future__ import annotations

import numpy as np
import pytest

import fmepy as fme
from fmepy.costs.likelihood_cost import BoundLikelihood
from fmepy.errors import DataError, SimulationError
from fmepy.numerics.differences import central_differences

PARMS = {"k": 0.5, "kin": 2.0, "A0": 10.0}
DATA = {"time": [0.5, 2.5, np.inf], "A": [7.8, 2.9, 4.1]}


@pytest.fixture
def tank():
    return fme.OdeModel(
        "d(A)/dt = kin - k*A", state={"A": "A0"}, times=[0, 1, 2, 3], parms=PARMS, rtol=1e-10, atol=1e-12
    )


def test_the_value_and_its_derivatives_are_those_of_the_steady_state(tank):
    bound = fme.SimulationCost(tank, DATA).bind()
    theta = np.array([0.4, 3.0, 8.0])
    assert bound.residuals(theta)[-1] == pytest.approx(3.0 / 0.4 - 4.1, rel=1e-6)
    np.testing.assert_allclose(bound.jacobian(theta)[-1], [-3.0 / 0.16, 1 / 0.4, 0], rtol=1e-5, atol=1e-6)
    plain = fme.SimulationCost(tank, {k: v[:2] for k, v in DATA.items()}).bind()
    np.testing.assert_allclose(bound.jacobian(theta)[:2], plain.jacobian(theta), rtol=1e-6)


def test_all_readings_may_be_of_the_steady_state(tank):
    cost = fme.SimulationCost(tank, {"time": [np.inf, np.inf], "A": [4.1, 3.9]})
    np.testing.assert_allclose(cost().residuals["mod"], 4.0, rtol=1e-6)
    assert fme.modFit(cost, ["kin"]).par["kin"] == pytest.approx(2.0, rel=1e-6)


def test_a_likelihood_scores_it(tank):
    bound = fme.SimulationCost(tank, DATA, measurement_noise={"A": "0.1*A"}).bind()
    assert isinstance(bound, BoundLikelihood)
    theta = np.array([0.4, 3.0, 8.0])
    slopes = central_differences(lambda x: np.array([-0.5 * bound.minus2loglik(x)]), theta, 1e-5 * theta)[0]
    np.testing.assert_allclose(bound.score(theta), slopes, rtol=1e-4)


def test_steps_that_are_no_whole_numbers_come_to_rest_too():
    model = fme.DifferenceModel("next(A) = A + h*(kin - k*A)", state={"A": 1.0}, times=0.3 * np.arange(4), dt=0.3,
                                parms={"kin": 2.0, "k": 0.5, "h": 0.3})  # fmt: skip
    cost = fme.SimulationCost(model, {"time": [0.3, np.inf], "A": [1.45, 4.0]})
    assert cost().residuals["mod"].tolist() == pytest.approx([1.45, 4.0], rel=1e-6)


def test_every_entity_comes_to_its_own(tank):
    data = {"tank": ["a", "a", "b", "b", "c", "c"], "time": [1, np.inf] * 3, "A": [7, 4, 9, 5.0, 1.0, 8.0]}
    cost = fme.SimulationCost(
        tank, data, entity="tank", conditions={"tank": ["a", "b", "c"], "k": [0.5, 0.25, "k"], "kin": [1, "kin", 3]}
    )
    assert cost().residuals["mod"][1::2].tolist() == pytest.approx([2.0, 8.0, 6.0], rel=1e-5)


def test_events_happen_before(tank):
    pulse = [{"var": "A", "time": 2.0, "value": 5.0, "method": "add"}]
    leak = fme.OdeModel("d(A)/dt = k - k*A/6", state={"A": 1.0}, times=[0, 3], parms={"k": 1e-9}, events=pulse)
    assert fme.SimulationCost(leak, {"time": [1, np.inf], "A": [1, 6.0]})().model == pytest.approx(0, abs=1e-9)


def test_the_data_of_two_fits_are_told_to_be_the_same(tank):
    one = fme.modFit(fme.SimulationCost(tank, DATA, measurement_noise={"A": 0.3}), ["k", "kin"])
    two = fme.modFit(fme.SimulationCost(tank, DATA, measurement_noise={"A": 0.3}), ["k"])
    assert fme.compare_fits({"one": one, "two": two}) is not None


def test_what_does_not_rest_is_told():
    grows = fme.OdeModel("d(A)/dt = k", state={"A": 1.0}, times=[0, 3], parms={"k": 1.0})
    with pytest.raises(SimulationError, match="does not come to rest: 'A'"):
        fme.SimulationCost(grows, {"time": [np.inf], "A": [1.0]})()


def test_other_costs_refuse_it(tank):
    for cost in (
        lambda: fme.SimulationCost(tank, DATA, interpolate="grid"),
        lambda: fme.PredictionErrorCost(tank, DATA, gain={"A": {"A": 0.1}}),
        lambda: fme.FimlofCost(tank, DATA, measurement_noise={"A": 0.1}, process_noise={"A": 0.1}),
        lambda: fme.modCost(tank(), DATA),
    ):
        with pytest.raises(DataError, match=r"is inf\. A finite number is needed"):
            cost()
    with pytest.raises(DataError, match="is -inf"):
        fme.SimulationCost(tank, {"time": [-np.inf], "A": [1.0]})
