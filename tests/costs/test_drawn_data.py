"""Data drawn from a cost have its noise, its rows and its columns, whatever else the table holds."""

import numpy as np
import pandas as pd
import pytest

import fmepy as fme
from fmepy.errors import ArgumentError

T = np.arange(1.0, 401.0) / 40


@pytest.fixture(scope="module")
def model():
    return fme.OdeModel("dA/dt = -k * A", state={"A": 10.0}, times=[0, 10], parms={"k": 0.1}, outputs={"B": "2 * A"})


def truth(k=0.1):
    return 10 * np.exp(-k * T)


def test_readings_scatter_about_the_model_by_the_noise_of_each_variable(model):
    wide = pd.DataFrame({"time": T, "A": 1.0, "B": 1.0, "lab": "x"})
    wide.loc[3, "A"] = np.nan
    cost = fme.SimulationCost(
        model, wide[["time", "A", "B"]], measurement_noise={"A": "s", "B": "0.1 * B"}, parms={"s": 0.3}
    )
    drawn = cost.simulate({"k": 0.2, "s": 0.5}, seed=3)
    assert list(drawn.columns) == ["time", "A", "B"]
    assert np.isnan(drawn.loc[3, "A"])
    assert (drawn["time"] == T).all()
    z = (drawn["A"] - truth(0.2)) / 0.5
    w = (drawn["B"] - 2 * truth(0.2)) / (0.2 * truth(0.2))
    for errors in (z.dropna(), w):
        assert abs(errors.mean()) < 0.15
        assert errors.std() == pytest.approx(1, abs=0.12)
    assert abs(np.corrcoef(z.drop(3), w.drop(3))[0, 1]) < 0.2
    assert cost.replace(obs=drawn)({"k": 0.2, "s": 0.5}).minus2loglik < cost({"k": 0.2, "s": 0.5}).minus2loglik


def test_long_tables_and_a_transform(model):
    long = pd.DataFrame({"name": ["A", "B"] * 400, "time": np.repeat(T, 2), "value": 1.0, "sd": 0.2})
    cost = fme.SimulationCost(model, long, y="value", err="sd", transform="log")
    drawn = cost.simulate(seed=np.random.default_rng(5))
    # an error of the table is one of the value, 1: on the logarithm it is as large
    z = (np.log(drawn["value"]) - np.log(np.repeat(truth(), 2) * np.tile([1, 2], 400))) / 0.2
    assert abs(z.mean()) < 0.12
    assert z.std() == pytest.approx(1, abs=0.1)
    assert (drawn["sd"] == 0.2).all()


def test_entities_have_their_own_parameters_and_a_seed_gives_the_same_draw(model):
    table = pd.DataFrame({"who": np.repeat(["a", "b"], 400), "time": np.tile(T, 2), "A": 1.0})
    cost = fme.SimulationCost(model, table, entity="who", entity_parms=["k"], measurement_noise={"A": 0.01})
    drawn = cost.simulate({"k[a]": 0.05, "k[b]": 0.3}, 1)
    assert drawn["A"].to_numpy() == pytest.approx(np.concatenate([truth(0.05), truth(0.3)]), abs=0.06)
    pd.testing.assert_frame_equal(drawn, cost.simulate({"k[a]": 0.05, "k[b]": 0.3}, 1))


def test_a_limit_stays_where_the_draw_lies_beyond_it(model):
    table = pd.DataFrame({"time": T, "A": 4.0, "mark": np.where(T > 9, "<", "")})
    cost = fme.SimulationCost(model, table, measurement_noise={"A": 1.0}, censored="mark")
    drawn = cost.simulate(seed=1)
    limits = T > 9
    stay = drawn["mark"] == "<"
    assert (stay <= limits).all()
    assert 0 < stay[limits].sum() < limits.sum()
    assert (drawn["A"][stay] == 4).all()
    assert (drawn["A"][limits & ~stay] > 4).all()


def test_what_has_no_noise_of_its_own_is_told(model):
    data = {"time": [1, 2], "A": [9.0, 8.0]}
    with pytest.raises(ArgumentError, match=r"errors of 'A'.*measurement_noise="):
        fme.SimulationCost(model, data).simulate()
    predicted = fme.PredictionErrorCost(model, data, gain={"A": 0.5})
    with pytest.raises(ArgumentError, match="follow its data"):
        predicted.simulate()
