"""Events where an expression crosses zero: their times, what follows them, and the derivatives of both."""

from __future__ import annotations

import pickle
from functools import cache

import numpy as np
import pandas as pd
import pytest

from fmepy.boundary import fit_boundary
from fmepy.costs.prediction import PredictionErrorCost
from fmepy.costs.simulation import SimulationCost
from fmepy.errors import ArgumentError, ModelError, SimulationError
from fmepy.fimlof import FimlofCost
from fmepy.fitting.modfit import modFit
from fmepy.models.ode import OdeModel
from fmepy.montecarlo import sensRange
from tests.plain import plain

ENGINES = ["explicit", "scipy", "compiled"]
TIGHT = {"rtol": 1e-9, "atol": 1e-11}
BALL = "d(height)/dt = speed\nd(speed)/dt = -g"
BOUNCE = {"root": "height", "direction": -1, "var": "speed", "value": "-e * speed", "method": "replace"}


@cache
def ball(**words):
    given = {"state": {"height": "h0", "speed": 0}, "parms": {"g": 10.0, "h0": 5.0, "e": 0.8}, "events": [BOUNCE]}
    return OdeModel(BALL, times=np.linspace(0, 5, 21), **{**given, "engine": "explicit", **words})


def bounces(g, h0, e, end=5.0):
    """Return the times of the bounces: sqrt(2 h0 / g), then 2 e^k v / g apart."""
    v, times = np.sqrt(2 * g * h0), [np.sqrt(2 * h0 / g)]
    while True:
        v *= e
        if times[-1] + 2 * v / g > end:
            return np.array(times)
        times.append(times[-1] + 2 * v / g)


def differences(f, theta, h=1e-6):
    columns = []
    for i, x in enumerate(theta):
        step = np.zeros(len(theta))
        step[i] = h * max(abs(x), 1e-3)
        columns.append((f(theta + step) - f(theta - step)) / (2 * step[i]))
    return np.stack(columns, axis=-1)


def of_neuron(**words):
    given = {
        "state": {"V": "V0"},
        "parms": {"I": 1.5, "tau": 10.0, "th": 1.0, "V0": 0.2},
        "times": np.linspace(0, 60, 31),
    }
    event = {"root": "V - th", "direction": 1, "var": "V", "value": "0.1 * th"}
    return OdeModel("d(V)/dt = (I - V)/tau", **given, events=[event], **{**TIGHT, **words})


# --- when they fire


@pytest.mark.parametrize("engine", ENGINES)
def test_a_ball_bounces_when_it_should_and_the_times_move_as_they_should(engine):
    model, theta = ball(engine=engine, **TIGHT), np.array([10.0, 5.0, 0.8])
    hits = model.hits(sensitivities=True)
    assert list(hits.columns) == ["time", "event", "root", "g", "h0", "e"]
    assert set(hits["event"]) == {0}
    assert set(hits["root"]) == {"height"}
    np.testing.assert_allclose(hits["time"], bounces(*theta), rtol=1e-7)
    slopes = differences(lambda th: bounces(*th), theta)
    np.testing.assert_allclose(hits[["g", "h0", "e"]], slopes, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("method", "order"), [("euler", 1), ("rk4", 4)])
def test_fixed_steps_find_hits_to_the_order_of_their_scheme(method, order):
    period = 10 * np.log(1.4 / 0.5)  # from 0.1 to 1
    found = []
    for dt in (1.0, 0.5):
        hits = of_neuron(method=method, dt=dt, rtol=1e-6, atol=None).hits()["time"].to_numpy()
        found.append(abs(hits[2] - hits[1] - period))
    assert found[1] < found[0] * 0.5**order * 1.3
    assert found[1] < 10.0 ** (1 - 1.5 * order)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_dose_is_given_whenever_the_level_is_reached(engine):
    event = {"root": "C - low", "direction": -1, "var": "C", "value": "high"}
    parms = {"k": 0.3, "low": 1.2, "high": 5.0}
    model = OdeModel("d(C)/dt = -k*C", state={"C": "high"}, parms=parms, times=np.linspace(0, 20, 11), events=[event],
                     engine=engine, **TIGHT)  # fmt: skip
    n = np.arange(1, 5)
    hits = model.hits({"k": 0.35}, sensitivities=True)
    np.testing.assert_allclose(hits["time"], n * np.log(5 / 1.2) / 0.35, rtol=1e-7)
    np.testing.assert_allclose(hits["k"], -n * np.log(5 / 1.2) / 0.35**2, rtol=1e-6)
    np.testing.assert_allclose(hits["low"], -n / 1.2 / 0.35, rtol=1e-6)
    np.testing.assert_allclose(hits["high"], n / 5 / 0.35, rtol=1e-6)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_thermostat_switches_at_two_levels_in_both_directions(engine):
    events = [
        {"root": "T - 21", "direction": 1, "var": "on", "value": 0},
        {"root": "T - 18", "direction": -1, "var": "on", "value": 1},
    ]
    model = OdeModel("d(T)/dt = -k*(T - 10) + on*6\nd(on)/dt = 0", state={"T": 18, "on": 1}, parms={"k": 0.3},
                     times=np.linspace(0, 10, 5), events=events, engine=engine, **TIGHT)  # fmt: skip
    hits = model.hits()
    up, down = np.log(12 / 9) / 0.3, np.log(11 / 8) / 0.3  # towards 30, towards 10
    times = np.cumsum([up, down] * 5)
    np.testing.assert_allclose(hits["time"], times[times < 10], rtol=1e-6)
    assert hits["event"].tolist() == [0, 1] * (len(hits) // 2) + [0] * (len(hits) % 2)


@pytest.mark.parametrize("direction", [-1, 0, 1])
def test_an_event_fires_in_its_direction_alone(direction):
    event = {"root": "x", "direction": direction, "var": "n", "value": 1, "method": "add"}
    model = OdeModel("d(x)/dt = cos(t)\nd(n)/dt = 0", state={"x": 0, "n": 0}, times=[0, 10], events=[event],
                     engine="explicit", **TIGHT)  # fmt: skip
    expected = {-1: [np.pi, 3 * np.pi], 0: [np.pi, 2 * np.pi, 3 * np.pi], 1: [2 * np.pi]}[direction]
    np.testing.assert_allclose(model.hits()["time"], expected, rtol=1e-7)  # zero at the start is no crossing
    assert model()["n"].iloc[-1] == len(expected)


def test_a_root_that_touches_zero_is_survived():
    event = {"root": "x - 1", "direction": 1, "var": "x", "value": 0}
    model = OdeModel("d(x)/dt = 2 - 2*t", state={"x": 0}, times=[0, 1, 2], events=[event], engine="explicit")
    assert len(model.hits()) <= 1
    np.testing.assert_allclose(model(times=[0, 0.5])["x"], [0, 0.75], atol=1e-9)


def test_a_state_set_across_zero_has_not_crossed_it():
    events = [{"time": 1.0, "var": "x", "value": -1}, {"root": "x", "direction": -1, "var": "n", "value": 1}]
    model = OdeModel(
        "d(x)/dt = 0.1\nd(n)/dt = 0", state={"x": 1, "n": 0}, times=[0, 2], events=events, engine="explicit"
    )
    assert model.hits().empty
    assert list(model.hits().columns) == ["time", "event", "root"]


# --- what follows them


@pytest.mark.parametrize("engine", ENGINES)
def test_states_after_hits_have_exact_sensitivities(engine):
    bound = of_neuron(engine=engine).bind()

    def V(theta):
        t, (current, tau, th, V0) = np.linspace(0, 60, 31), theta
        first, period = (
            tau * np.log((current - V0) / (current - th)),
            tau * np.log((current - 0.1 * th) / (current - th)),
        )
        n = np.ceil((t - first) / period)  # spikes before t
        start, since = np.where(n > 0, 0.1 * th, V0), np.where(n > 0, t - first - (n - 1) * period, t)
        return current - (current - start) * np.exp(-since / tau)

    Y, S = bound.sensitivities(bound.theta0)
    assert bound.exact
    np.testing.assert_allclose(Y[:, 0], V(bound.theta0), rtol=1e-6)
    np.testing.assert_allclose(S[:, 0], differences(V, bound.theta0), rtol=1e-4, atol=1e-5)


def test_the_row_at_a_hit_is_the_state_before_it():
    for words in ({"engine": "explicit"}, {"engine": "auto", "method": "rk4", "dt": 0.05}):
        rows = ball(**words)()  # g = 2 h0, so that it falls for one unit of time
        assert rows.loc[rows["time"] == 1, "speed"].item() == pytest.approx(-10)
        assert rows.loc[rows["time"] == 1.25, "speed"].item() == pytest.approx(8 - 2.5)


@pytest.mark.parametrize(
    "words", [dict(method="rk4", dt=0.25), dict(rhs=lambda t, y, p: [-plain(p["k"])]), dict(history={"x": 1})]
)
def test_slopes_at_a_row_on_a_hit_are_of_the_state_before_it(words):
    """x = 1 - k t is set back to 1 at 0.5, at time 1, which a row is; runs with a larger k show it set back."""
    rhs = "d(x)/dt = -k" + ("+ 1e-14*lag(x, 0.1)" if "history" in words else "")
    event = dict(root="x - 0.5", direction=-1, var="x", value=1)
    model = OdeModel(**{"rhs": rhs, **words}, state={"x": 1}, parms={"k": 0.5}, times=[0, 1, 1.5], events=[event])
    bound = model.bind(["k"])
    assert bound.exact == ("history" in words)
    np.testing.assert_allclose(bound.sensitivities(bound.theta0)[1][:, 0, 0], [0, -1, -1.5], atol=1e-5)


def test_changes_at_one_root_see_one_state_and_further_orders_what_they_left():
    root = {"root": "x - 1", "direction": 1}
    events = [{**root, "var": "x", "value": 0}, {**root, "var": "y", "value": "x"},
              {**root, "var": "z", "value": "x + y", "order": 1}]  # fmt: skip
    state = {"x": 0, "y": 5, "z": 0}
    text = "d(x)/dt = 1\nd(y)/dt = 0\nd(z)/dt = 0"
    model = OdeModel(text, state=state, times=[0, 1.5], events=events, engine="explicit")
    assert model.hits()["event"].tolist() == [0]
    np.testing.assert_allclose(model().iloc[-1, 1:], [0.5, 1, 1])


@pytest.mark.parametrize("engine", ENGINES)
def test_roots_that_fire_at_one_time_both_have_their_say(engine):
    text = "d(a)/dt = va\nd(va)/dt = -g\nd(b)/dt = vb\nd(vb)/dt = -g"
    events = [{**BOUNCE, "root": h, "var": v, "value": f"-e * {v}"} for h, v in (("a", "va"), ("b", "vb"))]
    model = OdeModel(text, state={"a": "h0", "va": 0, "b": "h1", "vb": 0}, parms={"g": 10, "e": 0.8, "h0": 5, "h1": 5},
                     times=[0, 2.3], events=events, engine=engine, **TIGHT)  # fmt: skip
    assert model.hits()["event"].tolist() == [0, 1]
    bound, one = model.bind(), ball().bind(times=[2.3])
    Y, S = bound.sensitivities(bound.theta0)
    y, s = one.sensitivities(one.theta0)  # g, h0, e
    np.testing.assert_allclose(Y[-1], np.tile(y[-1], 2), rtol=1e-6)
    np.testing.assert_allclose(S[-1][:2, [0, 2, 1]], s[-1], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(S[-1][2:, [0, 3, 1]], s[-1], rtol=1e-5, atol=1e-6)


@cache
def mixed(**words):
    root = {"root": "x - th*(1 + 0.02*t)", "direction": 1}
    events = [
        {**root, "var": "x", "value": "0.03*t*th + 0.1*u"},
        {**root, "var": "n", "value": "t*x + 0.3*u", "method": "add"},
        {"time": 3.0, "var": "x", "value": 0.5, "method": "multiply"},
    ]
    text = "d(x)/dt = u - k*x*where(n > 6, 1.2, 1)\nd(n)/dt = 0"
    model = OdeModel(
        text,
        state={"x": 0, "n": 0},
        parms={"k": 0.5, "th": 1.0},
        times=np.linspace(0, 6, 7),
        forcings={"u": ([0, 4, 9], [1.0, 2.0, 0.7])},
        events=pd.DataFrame(events),
        **words,
    )
    return model.bind()


@cache
def mixed_slopes():
    bound = mixed(engine="explicit", rtol=1e-11, atol=1e-12)
    return differences(bound.simulate, bound.theta0)


@pytest.mark.parametrize("engine", ENGINES)
def test_root_events_stand_beside_timed_ones_forcings_and_switches(engine):
    bound, fixed = mixed(engine=engine, **TIGHT), mixed(method="rk4", dt=0.05)
    Y, S = bound.sensitivities(bound.theta0)
    np.testing.assert_allclose(Y, fixed.simulate(bound.theta0), rtol=1e-5)
    np.testing.assert_allclose(S, mixed_slopes(), rtol=1e-3, atol=1e-4)


def test_functions_that_run_as_they_are_have_root_events_too():
    def falling(t, height, speed, *, g=10.0, e=0.8):
        pull = g if plain(speed) < 1e9 else 0.0  # this cannot be traced
        return (speed, -pull), {"energy": g * height + speed**2 / 2}

    events = [BOUNCE, {"root": "0.5*(t - 3) + 0*energy", "var": "speed", "value": 1, "method": "add"}]
    model = OdeModel(falling, state={"height": 5, "speed": 0}, times=[0, 1.2, 2.5, 3.2], events=events, **TIGHT)
    assert model.equations is None
    hits = model.hits(sensitivities=True)
    assert hits["event"].tolist() == [0, 0, 1]
    np.testing.assert_allclose(hits["time"], [1, 2.6, 3], rtol=1e-7)
    np.testing.assert_allclose(hits["e"], [0, 2, 0], atol=1e-4)
    np.testing.assert_allclose(model()["speed"].iloc[-1], 6.4 - 6 + 1, rtol=1e-6)


@pytest.mark.parametrize("words", [{"engine": "scipy"}, {"method": "rk4", "dt": 0.05},
                                   {}])  # fmt: skip
def test_a_root_may_be_of_an_algebraic_state(words):
    event = {"root": "B - 0.25", "direction": -1, "var": "A", "value": "top"}
    model = OdeModel("d(A)/dt = -k*A\n0 = B - A**2", state={"A": 2, "B": 4}, parms={"k": 0.5, "top": 3.0},
                     times=[0, 2, 4, 8], events=[event], **words, rtol=1e-8)  # fmt: skip
    hits = model.hits(sensitivities=True)
    first, period = np.log(4) / 0.5, np.log(6) / 0.5
    np.testing.assert_allclose(hits["time"], [first, first + period], rtol=1e-6)
    np.testing.assert_allclose(hits["top"], [0, 1 / 3 / 0.5], atol=1e-5)
    bound = model.bind()
    Y, S = bound.sensitivities(bound.theta0)
    A = 3 * np.exp(-0.5 * (8 - first - period))
    np.testing.assert_allclose(Y[-1], [A, A**2], rtol=1e-5)
    slopes = np.array([-A * 8, 2 * A / 3])  # A = top (top/0.5) 2/0.5 e^(-k t)
    np.testing.assert_allclose(S[-1], [slopes, 2 * A * slopes], rtol=1e-4)


def test_an_algebraic_state_is_changed_by_its_equation_alone():
    event = {"root": "A - 1", "var": "B", "value": 1}
    with pytest.raises(ModelError, match="'B' is an algebraic state"):
        OdeModel("d(A)/dt = -A\n0 = B - A**2", state={"A": 2, "B": 4}, times=[0, 1], events=[event])


# --- an event without end


@pytest.mark.parametrize("engine", ["explicit", "compiled"])
def test_an_event_that_never_ends_is_stopped_with_its_times(engine):
    model = ball(engine=engine).replace(parms={"e": 0.5}, atol=1e-6)
    with pytest.raises(
        SimulationError, match=r"'height' \(row 0 of `events`\) never stops firing.* last at (2\.99\d+, )+"
    ) as told:
        model()
    assert told.value.time == pytest.approx(3, rel=1e-3)  # 1 + 2 (e + e^2 + ...)


def test_a_fit_takes_it_for_a_run_that_failed():
    model = ball()
    data = model()[["time", "height"]].iloc[1:]
    fit = modFit(SimulationCost(model, data), {"e": 0.75}, lower=0.1, upper=1, hessian=False)
    assert fit.par["e"] == pytest.approx(0.8, rel=1e-4)
    cost = SimulationCost(model, data).bind(["e"])
    with pytest.raises(SimulationError, match="never stops firing"):
        cost.residuals(np.array([0.4]))


# --- costs, many runs, copies


def test_the_jacobian_of_a_cost_is_that_of_its_residuals():
    cost = SimulationCost(ball(**TIGHT), {"time": [0.7, 1.3, 2.2, 3.9], "height": [1.0, 2.0, 3.0, 1.0]}).bind()
    expected = differences(cost.residuals, cost.theta0)
    np.testing.assert_allclose(cost.jacobian(cost.theta0), expected, rtol=1e-4, atol=1e-5)


def test_ranges_are_the_same_with_workers_and_copies_run_alike():
    words = {"parRange": {"e": (0.7, 0.9)}, "num": 4, "seed": 1, "sensvar": "height"}
    one, two = (sensRange(ball(), executor=executor, **words).values for executor in (None, 2))
    np.testing.assert_array_equal(one, two)
    copy = pickle.loads(pickle.dumps(ball()))
    pd.testing.assert_frame_equal(copy.hits(), ball().hits())
    assert len(ball().replace(events=None).definition.roots) == 0
    theta = np.array([[10.0, 5.0, 0.8], [10.0, 5.0, 0.4]])
    Y, why = ball().bind().simulate_many(theta)
    np.testing.assert_array_equal(Y[0], ball().bind().simulate(theta[0]))
    assert "never stops firing" in why[1]


def test_entities_have_their_own_root_events():
    events = pd.DataFrame({"subject": ["a", "b"], "root": ["C - 1", "C - 2"], "var": "C", "value": 4.0})
    model = OdeModel("d(C)/dt = -k*C", state={"C": 4}, parms={"k": 1.0}, times=[0, 2], events=events, engine="explicit")
    assert model.of_entity("a").hits()["time"].tolist() == pytest.approx([np.log(4)], rel=1e-5)
    assert len(model.of_entity("b").hits()) == 2


def test_verbs_that_know_events_only_by_their_times_refuse_root_events_by_name():
    model, data = ball(), {"time": [1.0, 2.0], "height": [0.5, 0.7]}
    with pytest.raises(ModelError, match=r"^FimlofCost takes events at given times.*'height'"):
        FimlofCost(model, data, process_noise={"speed": 0.1}, measurement_noise={"height": 0.1})
    with pytest.raises(ModelError, match=r"^PredictionErrorCost takes events"):
        PredictionErrorCost(model, data, gain={"speed": {"height": 0.5}})
    with pytest.raises(ModelError, match=r"^fit_boundary takes events"):
        fit_boundary(model, data, ["g"])


# --- bad input


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"directoin": -1, "direction": None}, "no column 'directoin'. Did you mean 'direction'"),
        ({"dir": -1, "direction": None}, "no column 'dir'"),
        ({"root": "heigth"}, "'heigth'.*Did you mean 'height'"),
        ({"direction": 2}, "the direction is 2; it is -1"),
        ({"direction": "down"}, "the direction is 'down'"),
        ({"root": 0.0}, "the root is 0.0; an expression is needed"),
        ({"root": "1 - 1"}, "the root is 0; an expression"),
        ({"root": "g - 1"}, "depends on no state and not on time"),
        ({"root": np.nan}, "the root is nan"),
        ({"root": "height < 1"}, "root"),
        ({"root": "where(height > 2, 1, -1)"}, "may jump across zero"),
        ({"root": "t % 2 - 1"}, "may jump across zero"),
        ({"var": "sped"}, "'sped' is not a state. Did you mean 'speed'"),
        ({"value": None}, "'value' missing"),
        ({"value": "-e * sped"}, "'sped'.*Did you mean 'speed'"),
        ({"method": "set"}, "method"),
        ({"time": 3.0}, "a time or a root, not both"),
        ({"order": 0.5}, "order"),
    ],
)
def test_bad_root_events_are_told_at_the_door(change, told):
    row = {k: v for k, v in {**BOUNCE, **change}.items() if not (v is None and k == "direction")}
    with pytest.raises(ArgumentError, match=told):
        OdeModel(BALL, state={"height": 1, "speed": 0}, parms={"g": 10, "e": 0.8}, times=[0, 1], events=[row])


def test_what_is_missing_is_named():
    common = {"state": {"height": 1, "speed": 0}, "parms": {"g": 10}, "times": [0, 1]}
    with pytest.raises(ModelError, match=r"row 0: 'value' missing. A root that changes a state needs var and value"):
        OdeModel(BALL, **common, events=[{"root": "height", "var": "speed"}])
    with pytest.raises(ModelError, match=r"no column 'rot'.*Did you mean 'root'"):
        OdeModel(BALL, **common, events=[{"rot": "height", "var": "speed", "value": 1}])
    with pytest.raises(ModelError, match=r"'direction'.*belongs to a root"):
        OdeModel(BALL, **common, events=[{"time": 1, "direction": 1, "var": "speed", "value": 1}])
    with pytest.raises(ModelError, match="no root events"):
        OdeModel(BALL, **common).hits()
    undefined = OdeModel(
        "d(x)/dt = -1", state={"x": 1}, times=[0, 2], events=[{"root": "log(x - 2)", "var": "x", "value": 1}]
    )
    with pytest.raises(SimulationError, match=r"'log\(x - 2\)' \(row 0 of `events`\) has no finite value"):
        undefined()


@pytest.mark.parametrize("word", ["terminal", "persistent", "early", "strict"])
def test_a_flag_of_a_root_is_true_or_false(word):
    events = [{"root": "x - 2", word: "no", "var": "x", "value": 1.0}]
    with pytest.raises(ModelError, match=f"{word}: it is 'no'; True or False is needed"):
        OdeModel("dx/dt = k * x\nx(0) = 1", times=[0, 5], parms={"k": 1.0}, events=events)


@pytest.mark.parametrize("engine", ["compiled", "scipy"])
@pytest.mark.parametrize("times", [[0, 2], [0, 1, 2], [0, 0.5, 1, 1.5, 2]])
def test_a_root_that_only_touches_zero_at_a_row_does_not_fire(engine, times):
    event = [{"root": "x", "var": "x", "method": "add", "value": 10.0}]
    model = OdeModel("d(x)/dt = 2*(t - 1)", state={"x": 1.0}, times=times, engine=engine, events=event)
    assert len(model.hits()) == 0
    assert model()["x"].iloc[-1] == pytest.approx(1.0, rel=1e-4)
