"""Whole runs through the crossings of switches: what the run by stretches gives, in one call."""

import numpy as np
import pandas as pd
import pytest

from fmepy import OdeModel
from fmepy.compiled import c_loops, explicit_runs
from fmepy.errors import SimulationError
from fmepy.models.running import runners

TIMES = np.linspace(0.0, 20.0, 31)
DOSES = pd.DataFrame({"time": [0.0, 5.0, 20.0], "var": ["x", "x", "y"], "value": ["a", "0.5 * x", 1.0],
                      "method": ["add", "replace", "add"]})  # fmt: skip
TABLE = pd.DataFrame({"time": [0.0, 6.0, 30.0], "u": [0.1, 1.0, 0.2]})


def grazed(t, x, y, *, a, b, c):
    return a * x - b * x * np.maximum(y, 3.0), b * x * y - c * y


def nested(t, x, y, *, a, b, c):
    gain = np.where(x > 12.0, np.where(y > 8.0, 0.5 * a, 0.8 * a), np.minimum(a, 0.1 * x + 0.5))
    return gain * x - b * x * y, b * x * y - c * np.abs(y - 2.0) * y


def levels(t, x, y, *, a, b, c):
    return -b * np.floor(x) - 0.1 * a, 0.1 * np.floor(x) - 0.1 * y * c


def with_seasons(t, x, y, *, a, b, c):
    return np.where(t < 7.5, a, 0.7 * a) * x - b * x * np.maximum(y, 3.0), b * x * y - c * y


def fast(t, x, y, *, a, b, c):
    return -2e4 * a * (x - np.maximum(np.cos(t), y - 0.5)) + b * y, -0.2 * c * y


def forced(t, x, y, *, a, b, c, u):
    return np.maximum(u - b * x, -0.2 * a), np.where(x > 0.8, x, 0.5) - c * y


def hunted(t, x, y, *, a, b, c):
    return a * x - b * x * y, b * x * y - c * y


def driven(t, x, y, *, a, b, c, u):
    return u * a - b * x, b * x - 0.1 * c * y


def event(root, var, value, method="replace", **words):
    return {"root": root, "var": var, "value": value, "method": method, **words}


PARMS = {"a": 1.0, "b": 0.1, "c": 1.5}
CULLS = [event("x - 15 * c", "x", "0.6 * a", "multiply", direction=1), event("y - 12", "y", "2 * b * x")]
BOTH_WAYS = [event("x - 10", "y", "b", "add", direction=1), event("x - 10", "x", "-0.5 * b", "add", direction=-1)]
OF_ORDERS = [event("y - 12", "x", "b * y", "add"), event("y - 12", "y", "0.1 * x", "replace", order=1),
             event("2 * y - 24", "x", "0.9", "multiply", order=2)]  # fmt: skip
OF_TIMES = [event("t - 4 * a", "x", "y", order=1), event("2 * t - 8 * a", "y", "0.9 * y")]
OF_TIME = [event("t - 4 * c", "x", "a + 0.01 * t * x", "add"), event("sin(t) - 0.5", "y", 0.9, "multiply", direction=1)]
IF_HIGH = {"direction": 1, "when": "where(x > 15, 1, 0)"}
IF_BOTH = {"direction": 1, "when": "where(x > 8 and y > 3, 1, 0)"}
AT_ONCE = {"direction": 1, "when": "where(t >= 8, 1, 0)"}
IN_ROW = [event("t - 8", "x", "2 * a", "add"), event("x - 15", "x", 0.8, "multiply")]
ROOTS = {
    "culls": (hunted, {"events": CULLS}),
    "culls and a switch": (grazed, {"events": CULLS}),
    "culls and doses": (hunted, {"events": [*CULLS, *DOSES.to_dict("records")]}),
    "both ways": (hunted, {"events": BOTH_WAYS}),
    "of orders": (hunted, {"events": OF_ORDERS}),
    "of orders, the last first": (hunted, {"events": OF_TIMES}),
    "of time": (with_seasons, {"events": OF_TIME}),
    "a hit in a row": (hunted, {"events": IN_ROW}),
    "a hit at the end": (hunted, {"events": [event("t - 20", "x", 0.0)]}),
    "by forcings": (driven, {"forcings": {"u": TABLE}, "events": [event("x - 12 * u", "x", "13 * u")]}),
    "stiff, with culls": (fast, {"events": [event("x - 0.9", "y", "-0.5 * b", "add", direction=-1)]}),
    "if it is high": (hunted, {"events": [event("x - 15", "x", "0.6 * a", "multiply", early=True, **IF_HIGH)]}),
    "if both are high": (hunted, {"events": [event("min(x - 8, y - 3)", "x", 0.7, "multiply", **IF_BOTH)]}),
    "seen at once": (hunted, {"events": [event("t - 8", "x", "2 * a", "add", **AT_ONCE)]}),
    "seen later": (hunted, {"events": [event("t - 8", "x", "2 * a", "add", strict=True, **AT_ONCE)]}),
    "with an end that is not reached": (hunted, {"events": [*CULLS, event("x - 99", "x", 0.0, terminal=True)]}),
    "with outputs": (hunted, {"events": CULLS, "outputs": {"sum": "x + a * y"}}),
}
CASES = {
    "grazed": (grazed, {}),
    "nested": (nested, {}),
    "levels": (levels, {}),
    "with seasons": (with_seasons, {}),
    "doses": (grazed, {"events": DOSES}),
    "outputs": (grazed, {"outputs": {"sum": "x + a * y", "log": "log(x)"}}),
    "stiff": (fast, {}),
    "forced": (forced, {"forcings": {"u": TABLE}}),
    "from a border": (grazed, {"state": {"x": 10.0, "y": 3.0}}),
    "long steps": (grazed, {"times": [0.0, 19.0]}),
}


def known_beforehand(t, x, y, *, a, b, c):
    level = np.where(t > 4.0, np.where(t > 11.0, 0.3, 2.0), 1.0)
    return level * a * x - b * x * y + np.floor(t / 5.0), b * x * y - c * np.where(t < 7.5, y, 0.5 * y)


def reached_by_states(t, x, y, *, a, b, c):
    lit = np.where(t < 7.5, np.where(x > 12.0, 0.95, 1.0), np.where(y > 3.0, 0.85, 0.9))
    return lit * a * x - b * x * y, b * x * y - c * y


def by_parameters(t, x, y, *, a, b, c):
    return np.where(a > 1.05, 0.8 * a, np.minimum(a, c)) * x - b * x * y, b * x * y - c * y


ROOTS["a mode that stays"] = (by_parameters, {"parms": PARMS | {"a": 1.1, "c": 1.2}, "events": CULLS})
CASES |= ROOTS
CASES["reached by states"] = (reached_by_states, {})


def at_parameters(t, x, y, *, a, b, c):
    spring = np.where((t > 2 * c) & (t < 2 * c + 4 * a), 1.5 * a, a)
    return spring * x - b * x * y + 0.5 * np.floor((t - a) / (3 * c)), b * x * y - np.where(
        t % (4 * a) < c, c, 1.2 * c
    ) * y


CASES["at parameters"] = (at_parameters, {})
CASES["at parameters, with doses"] = (at_parameters, {"events": DOSES})
CASES["by parameters"] = (by_parameters, {"parms": PARMS | {"c": 1.2}})
KNOWN = {"known beforehand": (known_beforehand, {}), "known, with doses": (known_beforehand, {"events": DOSES})}
"""Cases whose switches are all of the time alone."""


def model(name, tight=True):
    rates, more = (CASES | KNOWN)[name]
    tolerances = {"rtol": 1e-9, "atol": 1e-10} if tight else {}
    given = {"state": {"x": 10.0, "y": "5 * a"}, "times": TIMES, "parms": PARMS, **tolerances}
    return OdeModel(rates, **(given | more))


def by_stretches(given, theta, monkeypatch, slopes=False):
    with monkeypatch.context() as patched:
        patched.setattr(runners.ModelRunner, "whole", None)
        bound = given.replace().bind()
        return bound.sensitivities(theta) if slopes else bound.simulate(theta)


@pytest.mark.parametrize("name", CASES)
def test_a_whole_run_is_the_run_by_stretches(name, monkeypatch):
    given = model(name)
    bound = given.bind()
    assert bound._whole("plain").has_switches
    Y = bound.simulate(bound.theta0)
    expected = by_stretches(given, bound.theta0, monkeypatch)
    np.testing.assert_allclose(Y, expected, rtol=1e-6, atol=1e-8 * np.abs(expected).max())


def test_times_that_depend_on_parameters_are_those_of_a_plan():
    given = model("at parameters")
    bound, plan = given.bind(), given.replace(engine="scipy").bind()
    assert bound._whole("exact").many_with_slopes(bound.theta0[None])[-1].tolist() == [True]
    for theta in (bound.theta0, bound.theta0 * [0.9, 1.1, 1.05]):
        (Y, S), (Z, T) = bound.sensitivities(theta), plan.sensitivities(theta)
        np.testing.assert_allclose(Y, Z, rtol=1e-6)
        np.testing.assert_allclose(S, T, rtol=1e-5, atol=1e-6 * np.abs(T).max())


@pytest.mark.parametrize("name", [*CASES, *KNOWN])
def test_so_are_its_sensitivities(name, monkeypatch):
    given = model(name)
    bound = given.bind()
    assert bound._whole("exact").has_switches == (name not in KNOWN)
    Y, S = bound.sensitivities(bound.theta0)
    Z, T = by_stretches(given, bound.theta0, monkeypatch, slopes=True)
    np.testing.assert_allclose(Y, Z, rtol=1e-6, atol=1e-8 * np.abs(Z).max())
    np.testing.assert_allclose(S, T, rtol=1e-5, atol=1e-6 * np.abs(T).max())


@pytest.mark.parametrize("name", CASES)
def test_many_runs_are_those_one_by_one_to_the_last_bit(name):
    bound = model(name, tight=False).bind()
    Theta = bound.theta0 * np.random.default_rng(1).uniform(0.95, 1.05, (9, 3))
    Y, why = bound.simulate_many(Theta)
    Theta, Y = Theta[why == ""], Y[why == ""]  # some slide along a switch
    assert len(Theta) > 4
    np.testing.assert_array_equal(Y, [model(name, tight=False).bind().simulate(theta) for theta in Theta])


@pytest.mark.parametrize("name", CASES)
def test_no_index_is_out_of_range(name, monkeypatch):
    given = model(name, tight=False)
    expected = given.bind().simulate(given.bind().theta0)
    monkeypatch.setattr(explicit_runs, "c_loop", lambda kernel, what: c_loops.checked_loop(kernel, what))
    bound = given.replace().bind()
    np.testing.assert_allclose(bound.simulate(bound.theta0), expected, rtol=1e-9)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("d(x)/dt = where(x > 0.5, -k, k)", "slides along it"),
        ("d(x)/dt = k * x**2 + max(x, 2)", "at time"),
        ("d(x)/dt = where(x > 2, log(1 - x), k)", "at time"),
    ],
)
def test_a_run_that_does_not_come_to_its_end_says_why_as_ever(text, words, monkeypatch):
    given = OdeModel(f"{text}\nx(0) = 0.2", times=[0, 2, 40], parms={"k": 1.0}, engine="explicit")
    bound = given.bind(hold_engine=True)
    with pytest.raises(SimulationError, match=words) as ours:
        bound.simulate(np.array([1.0]))
    with monkeypatch.context() as patched:
        patched.setattr(runners.ModelRunner, "whole", None)
        with pytest.raises(SimulationError) as theirs:
            given.replace().bind(hold_engine=True).simulate(np.array([1.0]))
    assert str(ours.value) == str(theirs.value)


def test_more_crossings_than_there_is_room_for_are_taken_by_stretches(monkeypatch):
    given = OdeModel("d(x)/dt = v\nd(v)/dt = -where(x > 0, k, 1.1 * k) * x\nx(0) = 1\nv(0) = 0", times=[0, 50],
                     parms={"k": 40.0})  # fmt: skip
    expected = given.bind().simulate(np.array([40.0]))
    monkeypatch.setattr(explicit_runs, "MOST_OF_WHOLE", 20)
    bound = given.replace().bind()
    np.testing.assert_allclose(bound.simulate(np.array([40.0])), expected, rtol=1e-4)
    assert bound._whole("plain").many(np.array([[40.0]]))[1].tolist() == [False]
    Y, why = bound.simulate_many(np.array([[40.0], [0.1]]))
    assert not any(why)
    np.testing.assert_allclose(Y[0], expected, rtol=1e-4)


def test_a_condition_without_a_value_is_read_again_when_another_flips():
    text = "d(x)/dt = k * where(x > 0.5, where(sqrt(x - 0.5) > 0.2, x, 0.5 * x), 0.5 * x)\nx(0) = 0.4"
    bound = OdeModel(text, times=TIMES[:9], parms={"k": 0.5}).bind()
    Y = bound.simulate(np.array([0.5]))
    assert bound._whole("plain").many(np.array([[0.5]]))[1].tolist() == [True]
    t, at = TIMES[:9], np.log(0.54 / 0.4) / 0.25  # from where on twice as fast
    x = np.where(t < at, 0.4 * np.exp(0.25 * t), 0.54 * np.exp(0.5 * (t - at)))
    np.testing.assert_allclose(Y[:, 0], x, rtol=1e-5)


@pytest.mark.parametrize("name", ROOTS)
def test_root_events_fire_without_python(name):
    given = model(name)
    assert len(given.hits())
    Theta = np.tile(given.bind().theta0, (2, 1))  # the second knows nothing of the first
    for kind in ("plain", "exact"):
        whole = given.bind()._whole(kind)
        found = (whole.many if kind == "plain" else whole.many_with_slopes)(Theta)
        assert found[-1].tolist() == [True, True]
        np.testing.assert_array_equal(*found[0])


HOLDS_ON = event("height - 3", "speed", "0.9 * speed", direction=1, when="where(height > 3 or t < 4, 1, 0)")
RESTS = "d(x)/dt = -0.1 * g * x\nd(n)/dt = 0\nx(0) = 1\nn(0) = 1"
AND_STAYS = {"direction": 1, "when": "where(t >= 1 and n >= 1, 1, 0)"}
BALL = "d(height)/dt = speed\nd(speed)/dt = -g\nheight(0) = 5\nspeed(0) = 0"


@pytest.mark.parametrize(
    ("text", "events", "refused"),
    [
        (BALL, [event("height", "speed", "-0.9 * speed", direction=-1)], False),
        (BALL.replace("-g", "-where(height > 2, g, 1.1 * g)"), [event("height", "speed", "-0.9 * speed")], False),
        (BALL, [event("height", "speed", "-0.3 * speed", direction=-1)], True),  # it comes to rest, and runs end so
        (BALL, [event("height - 5", "speed", "0")], True),  # the root stands still at the start
        (BALL, [event("height - 5", "speed", "0", direction=-1)], False),  # and so it is where it cannot fire from
        ("d(x)/dt = -g * x\nx(0) = 0", [event("x", "x", 1.0)], True),  # it stands on its root
        (BALL, [event("height - 1e-4", "height", "log(height - 1)", direction=-1)], True),  # no value
        (BALL, [event("height - 1", "speed", "0", direction=-1, terminal=True)], True),
        (BALL, [event("height + 1e4", "speed", "0", direction=-1, terminal=True)], False),  # an end it does not come to
        (BALL, [event("height", "speed", "-speed", direction=-1), HOLDS_ON], True),
        (RESTS, [event("t - 1", "x", "x + 1"), event("min(t - 1, n - 1)", "x", "3 * x", **AND_STAYS)], True),
    ],
)
def test_what_is_not_simple_is_left_to_python(text, events, refused, monkeypatch):
    given = OdeModel(text, times=np.linspace(0, 6, 13), parms={"g": 10.0}, events=events, rtol=1e-9, atol=1e-9)
    bound = given.bind(hold_engine=True)
    assert bound._whole("plain").many(np.array([[10.0]]))[1].tolist() == [not refused]
    why: list[str] = []
    for _ in range(2):
        try:
            why.append(str(bound.simulate(np.array([10.0])).round(6)))
        except SimulationError as error:
            why.append(str(error))
        monkeypatch.setattr(runners.ModelRunner, "whole", None)
        bound = given.replace().bind(hold_engine=True)
    assert why[0] == why[1]


def test_a_hundred_thousand_hits_are_the_most():
    given = OdeModel("d(v)/dt = 1\nv(0) = 0\nd(n)/dt = 0\nn(0) = 0", times=[0, 30.5], parms={"step": 1e-3},
                     events=[event("v - step", "v", 0.0), event("v - step", "n", 1.0, "add")])  # fmt: skip
    assert given()["n"].iloc[-1] == 30_499  # the run ends where the next would be
    with pytest.raises(
        SimulationError, match="more than 100,000 crossings of roots, the last of the root event 'v - s"
    ):
        given({"step": 1e-4})


@pytest.mark.parametrize("engine", ["explicit", "compiled", "scipy"])
@pytest.mark.parametrize("times", [[0, 1, 2, 3.5], [0, 1.9, 3.5]])
def test_conditions_that_cross_together_by_their_numbers_alone_have_a_jump_each(engine, times):
    text = "d(x)/dt = where(t > a, 1, 0) + where(2 * b > t, 0, 2) + where(t > 2, 3, 0) + where(a < t, c, 0)\nx(0) = 0"
    bound = OdeModel(text, times=times, parms={"a": 2.0, "b": 1.0, "c": 1.0}, engine=engine).bind()
    Y, S = bound.sensitivities(bound.theta0)
    np.testing.assert_allclose(Y[-1], 1.5 * 7)
    np.testing.assert_allclose(S[-1], [[-2, -4, 1.5]], rtol=1e-7)
    np.testing.assert_allclose(S[:-1], 0, atol=1e-7)  # the row at their time shows what was before it


@pytest.mark.parametrize("engine", ["explicit", "scipy"])
def test_a_condition_of_time_that_crosses_where_a_root_fires_has_its_jump(engine):
    text = "d(x)/dt = where(t > a, 1, 0)\nx(0) = 0\nd(y)/dt = 0\ny(0) = 0"
    bound = OdeModel(text, times=[0, 5, 8], parms={"a": 5.0, "b": 2.5}, engine=engine,
                     events=[event("t - 2 * b", "y", "x + 1", "add")]).bind()  # fmt: skip
    Y, S = bound.sensitivities(bound.theta0)
    np.testing.assert_allclose(Y[1:], [[0, 0], [3, 1]], atol=1e-8)
    np.testing.assert_allclose(S[2, 0], [-1, 0], atol=1e-7)


@pytest.mark.parametrize("engine", ["explicit", "compiled", "scipy"])
@pytest.mark.parametrize("switch", ["where(t > 2*b, 2, 0)", "where(z > 2*b, 2, 0)", "floor(t/(2*b))", "floor(z/b/2)"])
@pytest.mark.parametrize("words", [{}, {"when": "where(z > a, 1, 0)"}])
def test_a_condition_that_crosses_as_a_root_fires_has_a_jump_of_its_own(switch, words, engine):
    """By their numbers alone they do so at one time, 2: what the root changes does not move the condition."""
    text = f"d(x)/dt = {switch}\nd(y)/dt = 0\nd(z)/dt = 1\nx(0) = 0\ny(0) = 0\nz(0) = 0"
    bound = OdeModel(text, times=[0, 2, 3], parms={"a": 2.0, "b": 1.0}, engine=engine,
                     events=[event("z - a", "y", "t", "add", **words)]).bind()  # fmt: skip
    Y, S = bound.sensitivities(bound.theta0)
    height = 2.0 if "where" in switch else 1.0
    np.testing.assert_allclose(Y[-1], [height, 2, 3], rtol=1e-6)
    np.testing.assert_allclose(S[-1], [[0, -2 * height], [1, 0], [0, 0]], atol=1e-6)
