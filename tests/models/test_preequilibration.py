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


# --- start values beside a start at rest

TWO = "d(x)/dt = u - k*x\nd(y)/dt = k*x - m*y\nx(0) = x0\ny(0) = y0"
P = {"u": 1.0, "k": 0.5, "m": 0.8, "x0": 0.3, "y0": 0.1}
ANEW = pd.DataFrame(
    {"u": [1.0, "u", 4.0, 2.0], "x0": [0.3, 5.0, np.nan, "begin"], "start_from": [None, "calm", "calm", "calm"]},
    index=["calm", "number", "empty", "name"],
)


def two(text=TWO, **words):
    return OdeModel(text, times=[0, 1, 2, 4], parms=P | words.pop("parms", {}), rtol=1e-10, atol=1e-12, **words)


def by_hand(p, label):
    """Two runs one after the other: to the steady state, and from there with x set anew."""
    u = {"number": p["u"], "empty": 4.0, "name": 2.0}[label]
    rest = two()(P | {"u": 1.0, "k": p["k"], "m": p["m"]}, times=[0, 400.0]).iloc[-1]
    x = {"number": 5.0, "empty": rest["x"], "name": p.get("begin")}[label]
    return (
        two()({"k": p["k"], "m": p["m"], "u": u, "x0": x, "y0": rest["y"]}, times=T)[["x", "y"]].to_numpy().ravel("F")
    )


@pytest.mark.parametrize("labels", [["number"], ["name"], ["empty"], ["name", "empty", "number"]])
def test_a_start_value_in_the_row_is_taken_after_the_rest_and_an_empty_cell_stays_at_rest(labels):
    obs = pd.concat([data(*labels).assign(y=1.0)])
    rows = ANEW.loc[["calm", *labels]]
    cost = SimulationCost(two(), obs, entity="tank", conditions=rows, parms={"begin": 3.0} if "name" in labels else {})
    p = {"u": 1.2, "k": 0.4, "m": 0.7} | ({"begin": 2.5} if "name" in labels else {})
    p = {name: value for name, value in p.items() if name in cost.parms.index}
    bound = cost.bind(list(p))

    def written_out(theta):
        values = {**P, **dict(zip(p, theta, strict=True))}
        found = {label: by_hand(values, label) for label in labels}
        c = cost.comparison
        at = [3 * (name == "y") + int(np.flatnonzero(x == T)[0]) for name, x in zip(c.names, c.x, strict=True)]
        return np.array([found[label][i] for label, i in zip(c.entities, at, strict=True)])

    theta = np.array(list(p.values()))
    mod, slopes = bound.predictions.with_slopes(theta)
    np.testing.assert_allclose(mod, written_out(theta), rtol=1e-6)
    np.testing.assert_allclose(mod, bound.predictions.values(theta), rtol=1e-8)
    for j, e in enumerate(1e-4 * np.eye(theta.size)):
        by_differences = (written_out(theta + e) - written_out(theta - e)) / 2e-4
        np.testing.assert_allclose(slopes[:, j], by_differences, rtol=1e-5, atol=1e-6)
    one = cost.model_of(labels[0])(p, T)
    np.testing.assert_allclose(one["x"], by_hand({**P, **p}, labels[0])[:3], rtol=1e-6)
    np.testing.assert_allclose(cost.model_of(labels[0]).replace(rtol=1e-9)(p, T)["x"], one["x"], rtol=1e-6)


def test_a_start_value_may_be_part_of_an_expression_that_the_rates_know_nothing_of():
    dosed = two(TWO.replace("x(0) = x0", "x(0) = x0 / k"))
    cost = SimulationCost(dosed, data("number"), entity="tank", conditions=ANEW.loc[["calm", "number"]])
    mod, slopes = cost.bind(["k"]).predictions.with_slopes(np.array([0.4]))

    def exact(k):
        return 1 / k + (5 / k - 1 / k) * np.exp(-k * T)

    np.testing.assert_allclose(mod, exact(0.4), rtol=1e-6)
    np.testing.assert_allclose(slopes[:, 0], (exact(0.4 + 1e-5) - exact(0.4 - 1e-5)) / 2e-5, rtol=1e-5)
    rates_alone = SimulationCost(  # k is no start value, though the start depends on it
        two(TWO.replace("x(0) = x0", "x(0) = x0 / k")), data("b"), entity="tank",
        conditions=pd.DataFrame({"k": [0.5, 0.25], "start_from": [None, "a"]}, index=["a", "b"]),
    )  # fmt: skip
    np.testing.assert_allclose(rates_alone().residuals["mod"], 4 + (2 - 4) * np.exp(-0.25 * T), rtol=1e-6)


def test_rows_that_differ_only_in_whether_they_begin_anew_are_runs_of_their_own():
    rows = pd.DataFrame({"x0": [0.3, 0.3, None], "start_from": [None, "a", "a"]}, index=["a", "b", "c"])
    cost = SimulationCost(two(), data("b", "c"), entity="tank", conditions=rows)
    mod = cost().residuals["mod"].to_numpy()
    np.testing.assert_allclose(mod[:3], 2 + (0.3 - 2) * np.exp(-0.5 * T), rtol=1e-6)
    np.testing.assert_allclose(mod[3:], 2.0, rtol=1e-6)


def test_a_start_value_that_stands_in_the_rates_too_is_told(caplog):
    feed = two(TWO.replace("u - k*x", "k*x0 - k*x + u"), parms={"u": 0.0})
    rows = ANEW.loc[["calm", "number"], ["x0", "start_from"]]
    cost = SimulationCost(feed, data("number"), entity="tank", conditions=rows)
    assert "'x0' is the initial value of 'x', and stands elsewhere" in caplog.text
    np.testing.assert_allclose(cost().residuals["mod"], 5.0, rtol=1e-6)
    caplog.clear()
    SimulationCost(two(), data("number"), entity="tank", conditions=rows)
    assert not caplog.text


def test_an_empty_cell_is_for_start_values():
    rows = ANEW.loc[["calm", "number"]].assign(u=[1.0, None])
    with pytest.raises(DataError, match=r"is missing; a number .* leaves it to be shared"):
        SimulationCost(two(), data("number"), entity="tank", conditions=rows)
    rows = ANEW.loc[["calm", "number"]].assign(x0=[np.nan, 5.0])  # the model's own where the run is not from rest
    assert "x0" in SimulationCost(two(), data("number"), entity="tank", conditions=rows).parms.index
