"""An entity may start from the steady state of another: exact, with its derivatives, whatever is conserved."""

import numpy as np
import pandas as pd
import pytest

from fmepy.costs import SimulationCost
from fmepy.errors import DataError, ModelError, SimulationError
from fmepy.models.ode import OdeModel
from fmepy.models.simulated import SimulatedModel

T = np.array([0.5, 1.0, 3.0])
ROWS = pd.DataFrame(
    {"u": [1.0, 4.0, 2.0], "steady_before": [False, True, True], "start_from": [None, "calm", "calm"]},
    index=["calm", "high", "low"],
)


def filling(t, x, *, k=0.5, u=1.0, x0=0.3):
    return u - k * x


def model(**words):
    return OdeModel(filling, state={"x": "x0"}, times=[0, 1, 2, 4], rtol=1e-9, atol=1e-11, **words)


def data(*labels):
    return pd.DataFrame({"tank": np.repeat(labels, 3), "time": np.tile(T, len(labels)), "x": 1.0})


def closed_form(k, u, before):
    return u / k + (before / k - u / k) * np.exp(-k * T)


def test_the_run_starts_where_the_other_rests_with_exact_derivatives():
    cost = SimulationCost(model(), data("high", "low"), entity="tank", conditions=ROWS)
    assert list(cost.parms.index) == ["k", "x0"]
    bound = cost.bind()
    theta = np.array([0.4, 0.3])
    mod, slopes = bound.predictions.with_slopes(theta)
    np.testing.assert_allclose(mod[:3], closed_form(0.4, 4.0, 1.0), rtol=1e-6)
    np.testing.assert_allclose(mod[3:], closed_form(0.4, 2.0, 1.0), rtol=1e-6)
    np.testing.assert_allclose(mod, bound.predictions.values(theta), rtol=1e-7)
    h = 1e-5
    exact = (closed_form(0.4 + h, 4.0, 1.0) - closed_form(0.4 - h, 4.0, 1.0)) / (2 * h)
    np.testing.assert_allclose(slopes[:3, 0], exact, rtol=1e-5)
    np.testing.assert_allclose(slopes[:, 1], 0, atol=1e-8)  # the start of the run before is forgotten
    one = cost.model_of("high")({"k": 0.4}, T)
    np.testing.assert_allclose(one["x"], mod[:3], rtol=1e-7)
    assert bound.tightened() is not None


def test_the_row_to_start_from_may_have_data_of_its_own_and_switches_off():
    cost = SimulationCost(model(), data("calm", "high"), entity="tank", conditions=ROWS.loc[["calm", "high"]])
    mod = cost().residuals["mod"].to_numpy()
    np.testing.assert_allclose(mod[:3], 2 + (0.3 - 2) * np.exp(-0.5 * T), rtol=1e-6)
    np.testing.assert_allclose(mod[3:], closed_form(0.5, 4.0, 1.0), rtol=1e-6)
    off = ROWS.assign(steady_before=False).loc[["high"]].assign(start_from=None)
    plain = SimulationCost(model(), data("high"), entity="tank", conditions=off)
    np.testing.assert_allclose(plain().residuals["mod"], 8 + (0.3 - 8) * np.exp(-0.5 * T), rtol=1e-6)


def test_what_is_conserved_keeps_the_initial_values_in_the_state_at_rest():
    text = "d(A)/dt = k2*B - k1*A\nd(B)/dt = k1*A - k2*B\nA(0) = total\nB(0) = 0"
    two = OdeModel(text, times=[0, 1, 4], parms={"k1": 1.0, "k2": 1.0, "total": 2.0}, rtol=1e-9, atol=1e-11)
    rows = {"tank": ["before", "after"], "k1": [3.0, "k1"], "start_from": [None, "before"]}
    obs = pd.DataFrame({"tank": "after", "time": T, "A": 1.0})
    bound = SimulationCost(two, obs, entity="tank", conditions=rows).bind(["total", "k1"])
    theta = np.array([2.0, 0.5])

    def exact(total, k1):
        end, start = total / (1 + k1), total / 4
        return end + (start - end) * np.exp(-(1 + k1) * T)

    mod, slopes = bound.predictions.with_slopes(theta)
    np.testing.assert_allclose(mod, exact(*theta), rtol=1e-6)
    for j, e in enumerate(1e-5 * np.eye(2)):
        np.testing.assert_allclose(slopes[:, j], (exact(*(theta + e)) - exact(*(theta - e))) / 2e-5, rtol=1e-5)


def test_events_do_not_happen_while_it_comes_to_rest_and_happen_afterwards():
    dosed = model(events=[{"var": "x", "time": 0.7, "value": 1.0, "method": "add"}])
    mod = SimulationCost(dosed, data("high"), entity="tank", conditions=ROWS.loc[["calm", "high"]])().residuals["mod"]
    dose = np.where(T > 0.7, np.exp(-0.5 * (T - 0.7)), 0)
    np.testing.assert_allclose(mod, closed_form(0.5, 4.0, 1.0) + dose, rtol=1e-6)


def test_what_never_rests_is_a_failed_run_that_says_so():
    swing = OdeModel("d(x)/dt = w*y\nd(y)/dt = -w*x\nx(0) = 1\ny(0) = 0", times=[0, 1], parms={"w": 1.0})
    rows = {"tank": ["before", "after"], "start_from": [None, "before"]}
    cost = SimulationCost(swing, {"tank": ["after"], "time": [1.0], "x": [0.5]}, entity="tank", conditions=rows)
    with pytest.raises(SimulationError, match=r"Entity 'after'.*(come to rest|failed)"):
        cost()


def test_bad_words_are_answered():
    class Own(SimulatedModel):
        def run(self, p, times):
            return times[:, None] * p["u"]

    with pytest.raises(ModelError, match="such as an OdeModel; a Own has none"):
        SimulationCost(
            Own({"u": 1.0}, [0, 4], ["x"]), data("high"), entity="tank", conditions=ROWS.loc[["calm", "high"]]
        )()
    for rows, match in (
        (ROWS.assign(start_from=[None, "clam", "calm"]), "Did you mean 'calm'"),
        (ROWS.drop(columns="start_from"), "none called 'start_from'"),
        (ROWS.assign(steady_before=[False, True, True], start_from=[None, None, "calm"]), "names no row"),
        (ROWS.assign(steady_before=[False, "yes", True]), "True or False"),
        (ROWS.assign(start_from=[None, "low", "calm"]), "itself starts from"),
    ):
        with pytest.raises(DataError, match=match):
            SimulationCost(model(), data("high", "low"), entity="tank", conditions=rows)
