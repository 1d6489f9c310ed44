"""A gain that breaks the predictor is named, with where."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fmepy.costs.prediction import PredictionErrorCost
from fmepy.errors import ArgumentError, SimulationError
from fmepy.fitting import modFit
from fmepy.models.difference import DifferenceModel
from fmepy.models.ode import OdeModel

TIMES = np.arange(200.0)


def oscillator(t, x, v, *, k=2.0, c=0.3):
    return v, -k * x - c * v


def steps_model():
    text = "next(x) = a * x + 0.2 * z\nnext(z) = 0.5 * z - 0.1 * x\ns = x + z"
    return DifferenceModel(text, state={"x": 1, "z": 2}, times=TIMES, parms={"a": 0.9})


def noise(name, times=TIMES):
    return pd.DataFrame({"time": times, name: np.random.default_rng(0).normal(size=len(times))})


def radius():
    F, KH = np.array([[0.9, 0.2], [-0.1, 0.5]]), np.array([[3.0, 3.0], [1.0, 1.0]])
    return np.abs(np.linalg.eigvals(F @ (np.eye(2) - KH))).max()


def test_predictions_that_run_away_name_the_gain_the_time_and_the_spectral_radius():
    cost = PredictionErrorCost(steps_model(), noise("s"), gain={"x": {"s": "K"}, "z": {"s": 1.0}}, parms={"K": 3.0})
    with pytest.raises(SimulationError, match=f"multiplied by {radius():.3g} .*It is 3 \\('x' by 's'\\)") as told:
        cost()
    assert told.value.exploded
    assert 10 < told.value.time < 40
    with pytest.raises(ArgumentError, match="makes the predictor unstable"):
        modFit(cost, ["a", "K"])
    assert cost({"K": 0.1}).model < 1000


@pytest.mark.parametrize("unit", [1.0, 1e-9, 1e9])
def test_a_gain_that_is_a_little_too_large_is_told_too_whatever_the_unit(unit):
    """0.9 (1 - K) = -1.1 carries an error from sample to sample."""
    model = DifferenceModel("next(x) = 0.9 * x", state={"x": unit}, times=np.arange(150.0))
    data = noise("x", model.times).assign(x=lambda table: unit * table["x"])
    cost = PredictionErrorCost(model, data, gain={"x": {"x": 1 + 1.1 / 0.9}})
    with pytest.raises(SimulationError, match=r"makes the predictor unstable.* multiplied by 1\.1 from") as told:
        cost()
    assert 60 < told.value.time < 120


def test_a_run_that_breaks_down_does_too():
    model = OdeModel(oscillator, state={"x": 1, "v": 0}, times=np.linspace(0, 60, 201))
    cost = PredictionErrorCost(model, noise("x", model.times), gain={"x": -30.0}, form="observer")
    with pytest.raises(SimulationError, match=r"The run failed.*makes the predictor unstable: at time 0 "):
        cost()


def test_of_several_entities_the_one_is_named():
    model = OdeModel(oscillator, state={"x": 1, "v": 0}, times=np.linspace(0, 20, 101), rtol=1e-6)
    a, b = noise("x", model.times), noise("x", model.times[::2])
    data = pd.concat([a.assign(who="a"), b.assign(who="b")])
    cost = PredictionErrorCost(
        model, data, gain={"x": "K"}, parms={"K[a]": 0.1, "K[b]": 5.0}, entity="who", entity_parms=["K"]
    )
    with pytest.raises(SimulationError, match=r"Entity 'b': .*It is 5 \('x' by 'x'\)"):
        cost()


def test_a_model_that_grows_by_itself_is_not_blamed_on_the_gain():
    model = DifferenceModel("next(x) = 2 * x", state={"x": 1}, times=np.arange(60))
    cost = PredictionErrorCost(model, noise("x", np.arange(60.0)), gain=0.0)
    assert cost().model > 1e30  # as SimulationCost has it


def test_steps_between_samples_count():
    """Three steps of 1.1 carry an error from sample to sample, corrected by -1.4."""
    model = DifferenceModel("next(x) = 1.1 * x", state={"x": 1}, times=np.arange(200.0))
    cost = PredictionErrorCost(model, noise("x", model.times[::3]), gain=2.4)
    with pytest.raises(SimulationError, match=r"multiplied by 1\.86 from one sample to the next .*; 1\.33 without"):
        cost()
