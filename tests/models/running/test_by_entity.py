"""Events and forcings in one table with a column of entities belong to them, each run by its own."""

import pickle

import numpy as np
import pandas as pd
import pytest

from fmepy.costs import SimulationCost
from fmepy.costs.mapped import transformed
from fmepy.errors import ArgumentError, ModelError
from fmepy.models.difference import DifferenceModel
from fmepy.models.ode import OdeModel

INFUSIONS = pd.DataFrame(
    {"subject": [1, 1, 2], "var": "x", "time": [1.0, 2.0, 1.5], "value": [4.0, 2.0, "dose"], "method": "add"}
)


def decay(t, x, *, k=0.5, dose=3.0):
    return -k * x


def model(**words):
    words = {"events": INFUSIONS, "times": [0, 1, 2, 3], "rtol": 1e-10, "atol": 1e-10, **words}
    return OdeModel(decay, state={"x": 1.0}, **words)


def test_a_run_is_that_of_a_model_with_the_entitys_own_events():
    both = model()
    for label, rows in INFUSIONS.groupby("subject"):
        alone = model(events=rows.drop(columns="subject"))
        pd.testing.assert_frame_equal(both(entity=label), alone())
        pd.testing.assert_frame_equal(both({"k": 0.2}, entity=str(label)), alone({"k": 0.2}))
    assert both.of_entity(2)()["x"].iloc[-1] == pytest.approx(np.exp(-1.5) + 3 * np.exp(-0.75), rel=1e-8)


def test_a_run_must_say_for_whom_and_names_who_there_is():
    with pytest.raises(
        ModelError, match=r"events belong to entities \(column 'subject': '1', '2'\).*model\(entity='1'\)"
    ):
        model()()
    with pytest.raises(ModelError, match="events belong to entities"):
        model().bind(["k"])
    with pytest.raises(ModelError, match=r"no row of entity '3'.*There are '1', '2'.*method 'add'"):
        model()(entity=3)
    with pytest.raises(ModelError, match="no events or forcings"):
        model(events=None)(entity=1)


def test_a_misspelt_column_is_no_entity():
    with pytest.raises(ModelError, match="Did you mean 'method'"):
        model(events=INFUSIONS.drop(columns="subject").rename(columns={"method": "methd"}))
    with pytest.raises(ModelError, match=r"'value' missing|no column 'vlaue'"):
        model(events=INFUSIONS.drop(columns="subject").rename(columns={"value": "vlaue"}))
    with pytest.raises(ModelError, match="row 0: there is no column"):
        model(events=INFUSIONS.assign(comment="x"))
    with pytest.raises(ModelError, match="row 1: the entity"):
        model(events=INFUSIONS.assign(subject=["1", None, "2"]))
    with pytest.raises(ModelError, match="is not a state"):
        model(events=INFUSIONS.assign(var=["x", "x", "y"]))


def test_forcings_by_entity_are_tables_with_one_more_column():
    table = pd.DataFrame({"pond": ["a", "a", "b", "b"], "time": [0, 4, 0, 4], "value": [1.0, 1.0, 2.0, 6.0]})

    def filling(t, x, u):
        return u

    linear = OdeModel(filling, state={"x": 0.0}, times=[0, 2, 4], forcings={"u": table}, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(linear(entity="a")["x"], [0, 2, 4], rtol=1e-8)
    np.testing.assert_allclose(linear(entity="b")["x"], [0, 6, 16], rtol=1e-8)
    named = linear.replace(forcings={"u": table.rename(columns={"value": "u"})})
    np.testing.assert_allclose(named(entity="b")["x"], [0, 6, 16], rtol=1e-8)
    steps = linear.replace(forcings={"u": (table, "constant")})
    np.testing.assert_allclose(steps(entity="b")["x"], [0, 4, 8], rtol=1e-8)
    counting = DifferenceModel(lambda n, x, u: x + u, state={"x": 0.0}, times=[0, 2, 4], forcings={"u": table})
    assert counting(entity="a")["x"].tolist() == [0, 2, 4]
    with pytest.raises(ModelError, match="same name in all inputs"):
        OdeModel(filling, state={"x": 0.0}, times=[0, 4], forcings={"u": table},
                 events=[{"subject": "a", "var": "x", "time": 1, "value": 1}])  # fmt: skip


def test_a_cost_runs_every_entity_with_its_own_events_and_derivatives():
    t = np.array([0.5, 1.7, 2.5])
    obs = pd.DataFrame({"subject": np.repeat([1, 2], 3), "time": np.tile(t, 2), "x": [0.8, 3.5, 4.0, 0.7, 3.1, 2.0]})
    cost = SimulationCost(model(), obs, entity="subject", entity_parms=["k"])
    apart = sum(
        SimulationCost(
            model(events=INFUSIONS.query("subject == @e").drop(columns="subject")), part.drop(columns="subject")
        )
        for e, part in obs.groupby("subject")
    )
    bound, own = cost.bind(["k[1]", "k[2]", "dose"]), apart.bind(["k", "dose"])
    theta = np.array([0.4, 0.4, 2.5])
    np.testing.assert_allclose(bound.residuals(theta), own.residuals(theta[1:]), rtol=1e-12)
    J = bound.jacobian(theta)
    np.testing.assert_allclose(J @ [[1, 0], [1, 0], [0, 1]], own.jacobian(theta[1:]), rtol=1e-8, atol=1e-12)
    assert pickle.loads(pickle.dumps(cost))().model == cost().model
    logs = SimulationCost(transformed(model(), "log", names=["k"]), obs, entity="subject", entity_parms=["k"])
    assert logs.parms["k[1]"] == pytest.approx(np.log(0.5))
    assert logs().model == pytest.approx(cost().model, rel=1e-10)


def test_a_cost_must_name_the_same_column_and_have_no_entity_without_inputs():
    obs = pd.DataFrame({"subject": [1, 3], "time": [1.0, 1.0], "x": [1.0, 1.0]})
    with pytest.raises(ModelError, match=r"no row of entity '3'"):
        SimulationCost(model(), obs, entity="subject")
    with pytest.raises(ArgumentError, match="entity='subject'"):
        SimulationCost(model(), obs.rename(columns={"subject": "who"}), entity="who")
    with pytest.raises(ArgumentError, match="entity='subject'"):
        SimulationCost(model(), obs.drop(columns="subject"))


def test_a_noise_that_names_a_forcing_takes_that_of_the_readings_own_entity():
    table = pd.DataFrame({"rat": ["a", "a", "b", "b"], "time": [0, 4, 0, 4], "u": [1.0, 1.0, 3.0, 7.0]})
    model = OdeModel("d(x)/dt = u - k*x", state={"x": 0}, parms={"k": 0.3}, times=[0, 2, 4], forcings={"u": table})
    obs = pd.DataFrame({"rat": ["a", "b", "a", "b"], "time": [2, 2, 4, 4], "x": [1.5, 5.0, 2.3, 9.0]})
    cost = SimulationCost(model, obs, entity="rat", measurement_noise={"x": "s*u"}, parms={"s": 0.1})
    found = cost().residuals.set_index(["entity", "x"])["weight"]
    np.testing.assert_allclose(1 / found[[("a", 2), ("b", 2), ("a", 4), ("b", 4)]], [0.1, 0.5, 0.1, 0.7])
