"""Predictions are the model at the observations with their derivatives, whatever is made of them afterwards."""

import numpy as np
import pandas as pd
import pytest

from fmepy.costs.interpolation import Places
from fmepy.costs.observations import prepare, read_observations
from fmepy.costs.predictions import predictions_of
from fmepy.costs.simulation import SimulationCost
from fmepy.errors import SimulationError
from fmepy.models.ode import OdeModel

TIMES = np.array([0.5, 1.0, 2.5])


def decay(t, A, *, k=0.5):
    return -k * A


@pytest.fixture
def model():
    return OdeModel(decay, state={"A": 10.0}, times=[0, 1, 2, 3], outputs={"B": "sqrt(A)"}, rtol=1e-10, atol=1e-10)


def predictions(model, **words):
    return SimulationCost(model, {"time": TIMES, "A": [7.0, 6.0, 3.0]}, **words).bind(["k"]).predictions


def test_values_and_slopes_are_those_of_the_closed_form(model):
    mod, slopes = predictions(model).with_slopes(np.array([0.4]))
    np.testing.assert_allclose(mod, 10 * np.exp(-0.4 * TIMES), rtol=1e-8)
    np.testing.assert_allclose(slopes[:, 0], -TIMES * mod, rtol=1e-7)
    np.testing.assert_array_equal(predictions(model).values(np.array([0.4])), predictions(model).compared([0.4]))


def test_the_scale_of_comparison_follows_the_values(model):
    p, theta = predictions(model, transform="log"), np.array([0.4])
    np.testing.assert_allclose(p.values(theta), 10 * np.exp(-0.4 * TIMES), rtol=1e-8)
    mod, slopes = p.compared_with_slopes(theta)
    np.testing.assert_allclose(mod, np.log(10) - 0.4 * TIMES, rtol=1e-8)
    np.testing.assert_allclose(slopes[:, 0], -TIMES, rtol=1e-7)


def test_many_runs_are_single_runs_and_failures_are_told_by_row(model):
    p = predictions(model.replace(state={"A": "a0"}, parms={"a0": 10.0}), transform="log")
    Theta = np.array([[0.4], [0.7], [np.inf]])
    mod, why = p.compared_many(Theta)
    for row, theta in zip(mod[:2], Theta[:2], strict=True):
        np.testing.assert_allclose(row, p.compared(theta), rtol=1e-12)
    assert [bool(w) for w in why] == [False, False, True]
    assert np.isnan(mod[2]).all()


def test_what_has_no_transform_is_a_failed_run_that_names_the_datum(model):
    p = predictions(model.replace(state={"A": -1.0}), transform="log")
    with pytest.raises(SimulationError, match=r"'A' at time = 0.5 is -0.8\d+, which has no log"):
        p.compared(np.array([0.4]))
    assert np.isfinite(p.values(np.array([0.4]))).all()


def test_further_places_are_looked_up_in_the_same_run_behind_the_data(model):
    cost = SimulationCost(model, {"time": TIMES, "A": [7.0, 6.0, 3.0]})
    beside = Places(("B", "B"), np.array([0.25, 2.5]), x_name="time")
    p = predictions_of(model, [cost.places, beside], cost.comparison, ["k"])
    mod, slopes = p.with_slopes(np.array([0.4]))
    np.testing.assert_allclose(mod[3:], np.sqrt(10 * np.exp(-0.4 * beside.x)), rtol=1e-8)
    np.testing.assert_allclose(slopes[3:, 0], -0.5 * beside.x * mod[3:], rtol=1e-6)
    assert p.failure(4, np.array([0.4]), "is odd").time == 2.5
    assert "'B' at time = 2.5 is odd" in str(p.failure(4, np.array([0.4]), "is odd"))


def test_an_observation_knows_its_row_of_the_table():
    table = pd.DataFrame(
        {"time": [0, 1, 2, 3], "A": [1.0, None, 3.0, 4.0], "B": [None, 2.0, None, 5.0]}, index=list("abcd")
    )
    c = prepare(read_observations(table), {"A": (0, 2), "B": (0, 2)}, outside="drop")
    assert c.names == ("A", "A", "B")
    assert c.places.tolist() == [0, 2, 1]
