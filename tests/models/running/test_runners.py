"""A failed run is tried once more, unless a state has exploded; and no run goes on for ever."""

import math

import numpy as np
import pytest

import fmepy as fme
from fmepy.compiled import status
from fmepy.errors import SimulationError
from fmepy.models.engines import explicit, scipy_steppers
from tests.plain import plain

COMPILED = ["compiled", "explicit"]


@pytest.fixture
def evaluations(monkeypatch):
    """Return a list that grows by one entry for every run of LSODA, the number of its evaluations."""
    counts = []
    guarded = scipy_steppers._guarded

    def counting(*args):
        counts.append(0)
        function = guarded(*args)

        def counted(t, z):
            counts[-1] += 1
            return function(t, z)

        return counted

    monkeypatch.setattr(scipy_steppers, "_guarded", counting)
    return counts


def bound(rate, start, end, engine, **options):
    """Return a model of one state, bound."""
    options = {"times": np.linspace(0, end, 21), "atol": 1e-6, **options}  # given: no run to find the scale
    return fme.OdeModel(f"d(x)/dt = {rate}", state={"x": start}, engine=engine, **options).bind([])


EXPLOSIONS = [  # rate, start, end: all run to infinity before the end
    ("x**2", 1.0, 10.0),
    ("x**3", 1.0, 10.0),
    ("-x**2", -1.0, 1e4),
    ("x**1.1", 1.0, 1000.0),
    ("50*x", 1.0, 100.0),
    ("1e-9*x**2", 1e6, 1e4),
]


@pytest.mark.parametrize(("rate", "start", "end"), EXPLOSIONS)
@pytest.mark.parametrize("engine", COMPILED)
def test_a_state_that_exploded_gets_no_second_opinion(engine, rate, start, end, evaluations):
    b = bound(rate, start, end, engine)
    with pytest.raises(SimulationError, match="a state runs to infinity") as caught:
        b.simulate(np.empty(0))
    assert caught.value.exploded
    assert evaluations == []
    assert b.retries == 0


@pytest.mark.parametrize("engine", COMPILED)
def test_sensitivities_of_an_exploding_run_are_not_sought_by_differences(engine, evaluations):
    model = fme.OdeModel("d(x)/dt = a*x**2", state={"x": 1}, times=[0, 1, 2], parms={"a": 1.5}, engine=engine)
    with pytest.raises(SimulationError):
        model.bind().sensitivities(np.array([1.5]))
    assert evaluations == []


@pytest.mark.parametrize(
    ("rate", "start", "end"),
    [("-sqrt(x) - 1", 1.0, 100.0), ("-1/x", 1.0, 100.0), ("exp(x)", 1.0, 10.0)],
    ids=["no value", "a pole at zero", "grows no more than 30 times"],
)
@pytest.mark.parametrize("engine", COMPILED)
def test_a_step_that_became_too_small_alone_is_no_explosion(engine, rate, start, end, evaluations):
    with pytest.raises(SimulationError) as caught:
        bound(rate, start, end, engine).simulate(np.empty(0))
    assert not caught.value.exploded
    assert len(evaluations) == 1  # tried once more, with a bound on the effort
    assert evaluations[0] < 5000


@pytest.mark.parametrize(("rate", "start", "end"), [*EXPLOSIONS[:3], ("exp(x)", 1.0, 10.0)])
@pytest.mark.parametrize("method", ["lsoda", "LSODA", "RK45"])
def test_the_general_engine_ends_a_run_in_which_time_stands_still(method, rate, start, end, evaluations):
    with pytest.raises(SimulationError):
        bound(rate, start, end, "scipy", method=method).simulate(np.empty(0))
    assert sum(evaluations) < 10_000


def test_a_retry_has_a_bound_on_its_effort(monkeypatch):
    monkeypatch.setattr("fmepy.models.engines.scipy_steppers.MOST_RETRIED", 1000)
    # ten more for each of the 51 steps that the time in the rates asks for
    # there is no value beyond 0.5, and LSODA needs thousands of evaluations to get there
    b = bound("100*cos(1e3*t) + sqrt(0.5 - t)", 0.0, 5.0, "compiled")
    with pytest.raises(SimulationError, match=r"more than 15\d\d evaluations"):
        b.simulate(np.empty(0))
    held = "d(x)/dt = 100*cos(1e3*t) + sqrt(0.5 - t) + 0*y\n0 = y - x"  # each evaluation solves for y
    with pytest.raises(SimulationError, match=r"more than 6\d\d evaluations"):
        fme.OdeModel(held, state={"x": 0, "y": 0}, times=[0, 5])()


@pytest.mark.parametrize("start", [0.0, 1.0, 5.0, 10.0])
@pytest.mark.parametrize("method", [None, "BDF"])
def test_a_very_stiff_model_with_a_condition_returns(start, method, evaluations):
    model = fme.OdeModel(
        "d(x)/dt = -k*x + where(x > 5, 1, 0)",
        state={"x": start}, times=np.linspace(0, 100, 11), parms={"k": 1e14}, engine="scipy", method=method,
    )  # fmt: skip
    assert abs(model().x.iloc[-1]) < 1e-5
    assert sum(evaluations) < 20_000


def test_the_methods_of_solve_ivp_have_a_step_limit(monkeypatch):
    monkeypatch.setattr(scipy_steppers, "MOST_IVP_STEPS", 200)
    with pytest.raises(SimulationError, match="more than 251 steps"):  # and those that the largest step asks for
        bound("cos(1e4*t)", 0.0, 10.0, "scipy", method="RK45").simulate(np.empty(0))


@pytest.mark.parametrize("engine", ["scipy", *COMPILED])
@pytest.mark.parametrize("a", [1.0, 1e5, 1e8, -1e5])
def test_a_rate_beyond_all_steps_is_a_failed_run_and_no_constant(engine, a):
    model = fme.OdeModel("d(x)/dt = 1e300*a", state={"x": 1}, times=[0, 1], parms={"a": a}, engine=engine)
    with pytest.raises(SimulationError):
        model()


def test_the_bounds_of_an_explosion_are_those_stated():
    def exploded(start, y, slope, lasted=1.0):
        arrays = (np.array([v], dtype=float) for v in (start, y, slope))
        return status.has_exploded(*arrays, 1, 0.0, lasted, 1e-6, np.array([1e-6]))

    assert exploded(1, 2e3, 2.1e11)
    assert not exploded(1, 2e3, 1.9e11)  # it grows by a factor of e within more than 1e-8 of the time until now
    assert exploded(1, 2e3, 2.1e14, 1e-3)  # however long the run was to be
    assert not exploded(1, 2e3, 1.9e14, 1e-3)
    assert not exploded(1, 9e2, 2.1e11)  # it has grown too little
    assert not exploded(1e6, 2e6, 1e20)
    assert not exploded(1, 2e3, -2.1e11)  # it comes back
    assert not exploded(1, np.nan, 2.1e11)
    assert exploded(0, 1e101, 1e-3)
    assert exploded(1, 2e15, 3.6e16)  # its start is lost in rounding, and it grows half as fast as it did on average
    assert not exploded(1, 2e15, 3.4e16)
    assert not exploded(1, 9e14, 3.6e16)
    assert exploded(-1, -2e3, -2.1e11)


OSCILLATOR = "d(x)/dt = k*y\nd(y)/dt = -k*x"
ENDLESS = [
    ("d(x)/dt = y\nd(y)/dt = -x*(1 + (k - 1)*t**5)", 5.0),  # slow at the start
    (OSCILLATOR, 1e7),
    (OSCILLATOR, 1e12),
    ("d(x)/dt = 1e4*sin(k*t)\nd(y)/dt = 0", 1e7),  # slow at the start
    ("d(x)/dt = k*x - k*x*y\nd(y)/dt = k*x*y - k*y", 1e6),
]


LORENZ = "d(x)/dt = 10*(y - x)\nd(y)/dt = x*(28 - z) - y\nd(z)/dt = x*y - b*z"


def lorenz(b, engine):
    """Return the model, bound at b = 1; with b < 0 it grows, and turns faster and faster in the end."""
    state, times = {"x": -8, "y": 7, "z": 27}, np.linspace(0, 20, 41)
    return fme.OdeModel(LORENZ, state=state, times=times, parms={"b": b}, engine=engine, atol=1e-6).bind()


def test_the_general_engine_has_a_bound_on_all_its_evaluations(monkeypatch):
    monkeypatch.setattr(scipy_steppers, "MOST_EVALUATIONS", 2000)
    monkeypatch.setattr(scipy_steppers, "FOR_A_ROW", 1)
    with pytest.raises(SimulationError, match="more than 2040 evaluations"):
        lorenz(-0.9, "scipy").simulate(np.array([-0.9]))  # few between any two rows


@pytest.mark.parametrize("engine", ["scipy", *COMPILED])
def test_what_grows_by_many_decades_comes_to_its_end(engine):
    b = bound("k*x", 1e-3, 100.0, engine, parms={"k": 3.0})
    np.testing.assert_allclose(b.simulate(np.empty(0))[:, 0], 1e-3 * np.exp(3 * b.times), rtol=1e-2)


def test_a_stiff_run_and_its_sensitivities_agree_with_their_closed_form():
    text = "d(a)/dt = -k*a\nd(b)/dt = k*a - 0.01*b"
    for k in (2872.0, 50_000.0):
        b = fme.OdeModel(text, state={"a": 1, "b": 0}, times=[0, 120, 240], parms={"k": k}, engine="compiled").bind()
        Y = b.simulate(np.array([k]))
        again, S = b.sensitivities(np.array([k]))
        assert b.retries == 0
        np.testing.assert_allclose(again, Y, atol=1e-4)
        np.testing.assert_allclose(S[1:, 1, 0], -0.01 * np.exp(-0.01 * b.times[1:]) / (k - 0.01) ** 2, rtol=1e-2)


def test_what_is_stiff_only_at_its_start_is_not_taken_for_endless(evaluations):
    text = "d(a)/dt = -0.04*a + 1e4*b*c\nd(b)/dt = 0.04*a - 1e4*b*c - k*b*b\nd(c)/dt = k*b*b"
    state = {"a": 1, "b": 0, "c": 0}
    model = fme.OdeModel(
        text,
        state=state,
        times=[0, 1e3, 1e8],
        parms={"k": 3e7},
        engine="compiled",
        atol={"a": 1e-8, "b": 1e-12, "c": 1e-8},
    )
    b = model.bind()
    for k in (3e7, 3e9, 3e7):
        Y = b.simulate(np.array([k]))
        np.testing.assert_allclose(Y.sum(axis=1), 1, atol=1e-5)
    assert b.retries == 0
    assert evaluations == []


def test_a_beginning_shorter_than_the_first_step_says_nothing_of_the_run():
    text = "d(a)/dt = -k*a\nd(b)/dt = k*a - 0.01*b"
    model = fme.OdeModel(
        text, state={"a": 1, "b": 0}, times=np.linspace(0, 240, 10), parms={"k": 1.0}, engine="compiled"
    )
    b = model.bind()
    k = 2872.063117797828
    Y = b.simulate(np.array([k]))
    np.testing.assert_allclose(Y[1:, 1], np.exp(-0.01 * model.times[1:]) * k / (k - 0.01), rtol=1e-4)
    assert b.retries == 0


@pytest.mark.parametrize("method", ["lsoda", "RK45", "Radau", "rk4"])
@pytest.mark.parametrize("error", [ValueError("wrong table"), ZeroDivisionError("by zero")])
def test_what_a_function_raised_is_told_where_it_ends_the_run(method, error):
    def rates(t, y, p):
        if plain(t) > 1.7:
            raise error
        return -y

    model = fme.OdeModel(rates, state={"z": 1.0}, times=np.linspace(0, 4, 9), method=method)
    with pytest.raises(SimulationError, match=f"{type(error).__name__}.*{error}"):
        model()


def test_a_function_without_a_value_at_a_trial_step_is_no_failure():
    def rates(t, y, p):
        return -math.sqrt(y[0] - 1e-3)  # beyond the end of its range for steps that are too long

    out = fme.OdeModel(rates, state={"z": 1.0}, times=[0, 1.9])()
    assert out["z"].iloc[-1] == pytest.approx(1e-3 + (np.sqrt(1 - 1e-3) - 0.95) ** 2, rel=1e-3)


# --- clocks are those of the present

ROBERTSON = "d(a)/dt = -k1*a + k3*b*c\nd(b)/dt = k1*a - k3*b*c - k2*b**2\nd(c)/dt = k2*b**2"


def robertson(rtol=1e-8, **words):
    atol = {"a": 1e-6 * rtol, "b": 1e-10 * rtol, "c": 1e-6 * rtol}
    given = {"state": {"a": 1, "b": 0, "c": 0}, "parms": {"k1": 0.04, "k2": 3e7, "k3": 1e4}, "times": [0, 1e11]}
    return fme.OdeModel(ROBERTSON, **given, rtol=rtol, atol=atol, **words)


@pytest.mark.parametrize(
    ("words", "rtol"),
    [({"engine": "auto"}, 1e-8), ({"engine": "explicit"}, 1e-8), ({"method": "lsoda"}, 1e-10),
     ({"method": "LSODA"}, 1e-10), ({"method": "Radau"}, 1e-7), ({"method": "BDF"}, 1e-7)],
)  # fmt: skip
def test_robertsons_reactions_come_to_their_end_after_eleven_decades(words, rtol):
    end = robertson(rtol, **words)().iloc[-1]
    assert end["a"] == pytest.approx(2.0833401497e-08, rel=2e-5)  # Radau in scipy at 1e-10 and 1e-11, to these digits
    assert end["b"] == pytest.approx(8.3333607703e-14, rel=2e-5)
    assert end["c"] == pytest.approx(0.9999999791665, rel=1e-10)


def test_the_explicit_engine_gives_them_back_as_stiff_and_not_as_an_explosion():
    for rtol in (1e-6, 1e-8, 1e-10):
        bound = robertson(rtol, engine="explicit").bind([])
        with pytest.raises(SimulationError, match="the model is stiff here") as caught:
            bound._runner(explicit.EXPLICIT, "plain").run(bound._base)
        assert not caught.value.exploded


@pytest.mark.parametrize(("start", "x"), [(2000.0, 1.0), (2000.0, 1e6), (0.0, 1e12), (-5.0, 1.0)])
@pytest.mark.parametrize("method", ["lsoda", "LSODA", "Radau", "BDF", "RK45"])
def test_an_explosion_is_noticed_whenever_it_happens(method, start, x, evaluations):
    model = fme.OdeModel("d(x)/dt = x**2", state={"x": x}, times=[start, start + 10], method=method, atol=1e-6)
    with pytest.raises(SimulationError):
        model()
    assert sum(evaluations) < 20_000
    compiled = fme.OdeModel("d(x)/dt = x**2", state={"x": x}, times=[start, start + 10], engine="explicit", atol=1e-6)
    with pytest.raises(SimulationError, match="a state runs to infinity"):
        compiled()


def test_a_first_step_is_not_lost_in_the_rounding_of_its_time():
    start = 1.7e15  # microseconds since 1970
    model = fme.OdeModel("d(x)/dt = 1e-3", state={"x": 0}, times=[start, start + 1e4], engine="explicit", atol=1e-6)
    bound = model.bind([])
    assert bound.simulate(np.empty(0))[-1, 0] == pytest.approx(10)
    assert bound.retries == 0
