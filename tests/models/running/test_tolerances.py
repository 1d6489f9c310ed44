"""Tolerances belong to the model's scale, and the largest step is kept, on every engine."""

import logging
import math
import pickle
from ast import literal_eval

import numpy as np
import pandas as pd
import pytest
from scipy.integrate import quad

import fmepy as fme
from fmepy.compiled import dormand_prince, status
from fmepy.errors import FmepyError, ModelError, SimulationError
from fmepy.models.ode import OdeModel
from fmepy.models.ode_run import ode
from fmepy.models.running import tolerances
from fmepy.models.running.tolerances import default_max_step, reads_time, scaled_tolerances
from tests.plain import plain

TIMES = np.linspace(0.0, 20.0, 21)
ENGINES = [{"engine": "auto"}, {"engine": "explicit"}, {"engine": "scipy"}]
ENGINES += [{"method": m} for m in ("RK45", "RK23", "DOP853", "Radau", "BDF", "LSODA")]


def named(how):
    return next(iter(how.values()))


def logistic(K=1e-8, N0=1e-9, **arguments):
    parms = {"r": 0.8, "K": K, "N0": N0}
    return OdeModel("d(N)/dt = r*N*(1 - N/K)", state={"N": "N0"}, times=TIMES, parms=parms, **arguments)


def exact(r=0.8, K=1e-8, N0=1e-9):
    return K / (1 + (K / N0 - 1) * np.exp(-r * TIMES))


def pulse(t, y, p):
    if plain(y[0]) > 1e9:  # cannot be traced
        return [0.0]
    return [1.0 if t % 1 < 0.1 else 0.0]


def quiet(t, y, p):
    return [-plain(y[0])]


@pytest.mark.parametrize("how", ENGINES, ids=named)
def test_a_state_far_below_one_is_right_on_every_engine(how):
    np.testing.assert_allclose(logistic(**how)()["N"], exact(), rtol=1e-4)


@pytest.mark.parametrize("how", ENGINES[:4], ids=named)
def test_sensitivities_of_a_state_far_below_one_are_right(how):
    bound = logistic(**how).bind(["r", "K"])
    _, S = bound.sensitivities(bound.theta0)
    h = 1e-5
    by_r = (exact(r=0.8 + h) - exact(r=0.8 - h)) / (2 * h)
    by_K = (exact(K=1e-8 * (1 + h)) - exact(K=1e-8 * (1 - h))) / (2e-8 * h)
    np.testing.assert_allclose(S[:, 0, 0], by_r, atol=2e-3 * np.abs(by_r).max())
    np.testing.assert_allclose(S[:, 0, 1], by_K, atol=2e-3 * np.abs(by_K).max())


def test_one_call_of_ode_takes_the_tolerance_of_desolve_and_tells_what_it_is_too_large_for(caplog):
    def rates(t, y, p):
        return 0.8 * y * (1 - y / 1e-8)

    ode({"N": 1e-9}, TIMES, rates)
    assert "below 1000 times their absolute tolerance: N" in caplog.text
    caplog.clear()
    np.testing.assert_allclose(ode({"N": 1e-9}, TIMES, rates, atol=None)["N"], exact(), rtol=1e-4)
    assert not caplog.text


def test_the_default_is_a_millionth_of_the_largest_value_and_at_most_1e_6():
    text = "d(A)/dt = -k*A\nd(B)/dt = k*A\nd(C)/dt = 0\nd(D)/dt = 0"
    model = OdeModel(text, state={"A": 1e-3, "B": 0, "C": 0, "D": 50}, times=[0, 1, 50], parms={"k": 1.0})
    np.testing.assert_allclose(model.atol[["A", "B"]], 1e-9, rtol=1e-3)
    assert model.atol[["C", "D"]].tolist() == [1e-6, 1e-6]


EPIDEMIC = "d(S)/dt = -beta*S*I\nd(I)/dt = beta*S*I - gamma*I\nd(R)/dt = gamma*I"
EXPOSED = "d(S)/dt = -beta*S*I\nd(E)/dt = beta*S*I - sigma*E\nd(I)/dt = sigma*E - gamma*I"
PREY = "d(x)/dt = x*(1 - y)\nd(y)/dt = y*(x - 1)"
VIRUS = "d(T)/dt = -1e-6*T*V\nd(I)/dt = 1e-6*T*V - 0.5*I\nd(V)/dt = 6*I - 3*V"
GROWTH = "d(N)/dt = 0.5*N*(1 - N/1000)"
DAYS = np.linspace(0.0, 200.0, 101)
RATES = {"beta": 0.5, "gamma": 0.1, "sigma": 0.2, "I0": 1e-7}
FEW_OF_MANY = {"S": "1 - I0", "I": "I0", "R": 0}


def epidemic(I0=1e-7, **arguments):
    parms = {k: RATES[k] for k in ("beta", "gamma")} | {"I0": I0}
    return OdeModel(EPIDEMIC, state=FEW_OF_MANY, times=DAYS, parms=parms, **arguments)


def small(method, value):
    return [{"var": "N", "time": 5.0, "value": value, "method": method}]


GROWS = {
    "an epidemic": (EPIDEMIC, FEW_OF_MANY, DAYS, None),
    "what it feeds": (EXPOSED, {"S": 1, "E": 0, "I": "I0"}, DAYS, None),
    "what feeds it": (EXPOSED, {"S": 1, "E": 1e-8, "I": 0}, DAYS, None),
    "a virus beside many cells": (VIRUS, {"T": 1e6, "I": 0, "V": 1e-10}, DAYS, None),
    "a trough": (PREY, {"x": 12, "y": 1}, np.linspace(0, 20, 41), None),
    "a small dose": (GROWTH, {"N": 0}, DAYS, small("add", 1e-8)),
    "what a dilution leaves": (GROWTH, {"N": 1000}, DAYS, small("multiply", 1e-12)),
}
FED = {
    "doses": (
        "d(A)/dt = -2*A",
        {"A": 0},
        [{"var": "A", "time": t, "value": 100, "method": "add"} for t in (1, 50, 99)],
    ),
    "a product": ("d(A)/dt = -0.1*A\nd(B)/dt = 0.1*A", {"A": 1, "B": 0}, None),
    "a product that begins above zero": ("d(A)/dt = -0.1*A\nd(B)/dt = 0.1*A", {"A": 1, "B": 1e-12}, None),
    "a swing": ("d(x)/dt = v\nd(v)/dt = -x", {"x": 1e-9, "v": 1}, None),
}


def peak_error(found, reference):
    states = [k for k in found.columns if k != "time"]
    return (found[states] - reference[states]).abs().max().div(reference[states].abs().max()).max()


@pytest.mark.parametrize("how", ENGINES[:3], ids=named)
@pytest.mark.parametrize("case", GROWS)
def test_a_state_that_grows_from_little_is_right(case, how, caplog):
    text, state, times, events = GROWS[case]
    parms = {k: v for k, v in RATES.items() if k in text or k in state.values()}

    def model(**more):
        return OdeModel(text, state=state, times=times, parms=parms, events=events, **more)

    exact = model(engine="explicit", rtol=1e-11, atol=1e-25)()
    assert peak_error(model(**how)(), exact) < 5e-3  # rtol = 1e-6, magnified by growth; without it 0.05 to 1
    assert not caplog.records


def test_atol_is_at_most_a_thousandth_of_a_start_that_is_not_zero():
    assert epidemic().atol["I"] <= 1.001e-10
    start = {"A": 1.0, "B": 1e-5}
    assert OdeModel(FED["a product"][0], state=start, times=[0, 1, 50]).atol["B"] == pytest.approx(1e-8)


@pytest.mark.parametrize("case", FED)
def test_growth_that_is_fed_needs_no_smaller_atol_and_no_word(case, caplog):
    text, state, events = FED[case]
    by_default = OdeModel(text, state=state, times=DAYS, events=events)
    begun = [k for k, v in state.items() if v > 0]
    assert by_default.atol.drop(begun).ge(9e-7).all()
    by_default()
    OdeModel(text, state=state, times=DAYS, events=events, atol=1e-6)()
    assert not caplog.records


@pytest.mark.parametrize("how", ENGINES[:3], ids=named)
def test_a_run_that_is_wrong_for_its_atol_tells_it_once_with_what_to_pass(how, caplog):
    model = epidemic(atol=1e-6, **how)
    found = model()
    model()
    assert len(caplog.records) == 1
    assert "I (from 1e-07, atol 1e-06)" in caplog.text
    assert "% of its largest value" in caplog.text
    advised = literal_eval(caplog.text.split("atol={")[1].split("}")[0].join("{}"))
    caplog.clear()
    right = epidemic(atol=advised, **how)()
    assert not caplog.records
    assert peak_error(found, right) > 0.02
    assert peak_error(right, epidemic(engine="explicit", rtol=1e-11, atol=1e-25)()) < 1e-3


DEEP = "d(P)/dt = c*P - d*C*P\nd(C)/dt = e*P*C - f*C"  # of deSolve's vignette: P falls to 1e-158, and comes back
DEEP_LOGS = "d(p)/dt = c - d*exp(q)\nd(q)/dt = e*exp(p) - f"
DEEP_PARMS = {"c": 10, "d": 0.1, "e": 0.1, "f": 0.1}
LONG = np.linspace(0, 200, 401)


def deep(text=DEEP, state=None, **more):
    return OdeModel(text, state=state or {"P": 0.5, "C": 1}, times=LONG, **{"parms": DEEP_PARMS, **more})


@pytest.fixture(scope="module")
def deep_truth():
    return np.exp(deep(DEEP_LOGS, {"p": np.log(0.5), "q": 0.0}, rtol=1e-10, atol=1e-10)()["q"])


@pytest.mark.parametrize("how", [{}, {"engine": "stiff"}, {"atol": 0}, {"atol": {"P": 0}, "engine": "scipy"}])
def test_a_state_far_below_its_atol_comes_back(how, deep_truth, caplog):
    np.testing.assert_allclose(deep(**how)()["C"], deep_truth, rtol=0.05)  # without it, 1e-6 from time 130 on
    assert not caplog.records


def test_a_run_whose_stiff_steps_keep_a_state_from_coming_back_is_told(deep_truth, caplog):
    shallow = deep(parms={**DEEP_PARMS, "c": 0.5})
    shallow()
    assert not caplog.records
    wrong = shallow({"c": 10})["C"]
    assert wrong.iloc[-1] < 1e-3 * deep_truth.iloc[-1]
    assert "P (from next to nothing, atol 1e-06)" in caplog.text
    advised = literal_eval(caplog.text.split("atol={")[1].split("}")[0].join("{}"))
    np.testing.assert_allclose(shallow.replace(atol=advised)({"c": 10})["C"], deep_truth, rtol=0.02)


def test_the_growth_of_a_state_by_itself_says_whether_it_should_have_come_back():
    t = np.linspace(0, 40, 81)
    model = OdeModel("d(x)/dt = (a - t)*x + b", state={"x": 1.0}, times=t, parms={"a": 10.0, "b": 0.0})
    rise = tolerances.rise_of(model.definition, t, [10.0, 0.0])
    held = np.full((81, 1), 1e-9)  # as long steps may hold it: by itself it grows to exp(50) until t = 10
    np.testing.assert_allclose(rise(held, 0), 10 * t - t**2 / 2, atol=1e-10)
    assert tolerances.finer(held, np.array([1e-6]), rise)[0] < 1e-200
    falling = tolerances.rise_of(model.definition, t, [-1.0, 0.0])
    assert tolerances.finer(held, np.array([1e-6]), falling)[0] == 1e-6


def test_noise_that_runs_to_minus_infinity_leads_to_the_smallest_atol():
    parms = dict(eats=100, grows=1, dies=0.2, K=10)
    text = "d(P)/dt = grows*P*(1 - P/K) - eats*P*C\nd(C)/dt = (eats*P/2 - dies)*C"
    logs = "d(p)/dt = grows*(1 - exp(p)/K) - eats*exp(q)\nd(q)/dt = eats*exp(p)/2 - dies"
    found = deep(text, {"P": 1, "C": 2}, parms=parms)()
    truth = deep(logs, {"p": 0.0, "q": np.log(2)}, parms=parms, rtol=1e-10, atol=1e-10)()
    np.testing.assert_allclose(np.log(found["C"]), truth["q"], atol=1e-3)


def test_small_states_that_react_and_end_a_first_run_get_smaller_tolerances():
    """Problem E5 of Enright, Hull and Lindberg: y2 = y3 + y4, and all three are far below y1."""
    text = """
        d(y1)/dt = -A*y1 - B*y1*y3
        d(y2)/dt = A*y1 - M*C*y2*y3
        d(y3)/dt = A*y1 - B*y1*y3 - M*C*y2*y3 + C*y4
        d(y4)/dt = B*y1*y3 - C*y4
    """
    times, parms = 10.0 ** np.arange(-3, 14), dict(A=7.89e-10, B=1.1e7, C=1.13e3, M=1e6)
    e5 = OdeModel(text, state={"y1": 1.76e-3, "y2": 0, "y3": 0, "y4": 0}, times=[0, *times], parms=parms)
    found = e5()
    truth = e5.replace(rtol=1e-9, atol=1e-30)()
    np.testing.assert_allclose(found["y1"][:14], truth["y1"][:14], rtol=1e-3)
    np.testing.assert_allclose(found["y2"], truth["y2"], rtol=1e-3, atol=1e-15)


def test_the_largest_of_grids_are_not_searched_for_growth_from_their_fronts(monkeypatch):
    from fmepy.models.running.tolerances import finer

    front = np.exp(-np.arange(60) - np.linspace(60, 0, 30)[:, None])
    assert (finer(front[:, :50], np.full(50, 1e-6)) < 1e-6).any()
    assert (finer(np.vstack((np.zeros(60), front)), np.full(60, 1e-6)) == 1e-6).all()


def test_starts_that_runs_take_from_far_below_those_of_the_model_are_told(caplog):
    epidemic(I0=1e-2)({"I0": 5e-3})
    assert not caplog.records
    epidemic(I0=1e-2)({"I0": 1e-8})
    assert "states grow from values" in caplog.text
    caplog.clear()
    starts = fme.Latinhyper({"I0": (1e-8, 1e-7)}, num=20, seed=1)
    fme.sensRange(epidemic(I0=1e-2, engine="scipy"), parInput=starts, num=20)
    assert caplog.text.count("states grow from values") == 1
    caplog.clear()
    fme.sensRange(epidemic(I0=1e-2), parInput=starts, num=20)
    assert caplog.text.count("states grow from values") == 1
    caplog.clear()
    fme.scenarios(epidemic(I0=1e-2), {"early": {"I0": 1e-8}})
    assert "states grow from values" in caplog.text


def test_entities_have_tolerances_of_their_own(caplog):
    runs = {"a": 1e-2, "b": 1e-7}
    rows = [epidemic(I0=v, rtol=1e-10)().assign(country=k)[::10] for k, v in runs.items()]
    obs = pd.concat(rows)[["country", "time", "I"]].assign(sd=0.01)
    conditions = {"country": list(runs), "I0": list(runs.values())}
    cost = fme.SimulationCost(epidemic(I0=1e-2), obs, err="sd", entity="country", conditions=conditions)
    assert cost(cost.parms).residuals["mod"].to_numpy() == pytest.approx(obs["I"].to_numpy(), abs=2e-4)
    assert not caplog.records


def test_a_first_run_that_fails_keeps_1e_6():
    model = OdeModel("d(x)/dt = x**2", state={"x": 1e-3}, times=[0, 2000.0])
    assert model.atol.tolist() == [1e-6]
    model = OdeModel("d(x)/dt = -x", state={"x": "log(a)"}, times=[0, 1.0], parms={"a": -1.0})
    assert model.atol.tolist() == [1e-6]
    assert model({"a": np.e})["x"].iloc[-1] == pytest.approx(np.exp(-1), abs=1e-5)


@pytest.mark.parametrize("method", ["add", "replace"])
def test_what_an_event_brings_belongs_to_the_scale(method):
    event = [{"var": "N", "time": 2.0, "value": "N0", "method": method}]
    model = logistic().replace(state={"N": 0}, events=event)
    np.testing.assert_allclose(model()["N"][2:], np.append(0, exact()[1:-2]), rtol=1e-4)
    flat = {"state": {"x": 0}, "times": [0, 24], "events": [{"var": "x", "time": 1, "value": 1e-3, "method": method}]}
    assert OdeModel("d(x)/dt = -9*x", **flat).atol.tolist() == [1e-9]


def test_a_peak_between_two_times_belongs_to_the_scale():
    model = OdeModel("d(x)/dt = v\nd(v)/dt = -x", state={"x": 0, "v": 1}, times=np.arange(9) * np.pi, engine="scipy")
    assert model.atol["x"] > 9e-7


def test_a_sum_that_cancels_but_for_rounding_counts_as_zero():
    Y = np.array([[300.0, 0.0, 0.0], [300.0, 3e-14, 1e-6]])
    assert scaled_tolerances(np.full(3, np.nan), Y[0], lambda atol: Y).tolist() == [1e-6, 1e-6, 1e-12]


def test_the_first_run_is_repeated_while_a_state_is_not_far_above_its_tolerance():
    tried = []

    def trial(atol):
        tried.append(atol[1])
        return np.array([[1.0, max(1e-9, 0.5 * atol[1])]])

    found = scaled_tolerances(np.full(2, np.nan), np.array([1.0, 0.0]), trial)
    np.testing.assert_allclose(tried, [1e-6, 5e-13])
    np.testing.assert_allclose(found, [1e-6, 1e-15])


def test_tolerances_that_the_model_cannot_be_run_with_are_not_taken():
    def trial(atol):
        if atol[1] < 1e-12:
            raise SimulationError("no step is small enough")
        return np.array([[1.0, 1e-9]])

    assert scaled_tolerances(np.full(2, np.nan), np.array([1e-3, 0.0]), trial).tolist() == [1e-9, 1e-9]


def test_building_a_model_does_not_run_it_and_finding_the_scale_is_one_run():
    seen = []

    def watched(t, y, p):
        seen.append(t)
        return [-plain(y[0])]

    model = OdeModel(watched, state={"x": 1e-4}, times=[0, 1], engine="scipy")
    built = len(seen)
    model.bind()
    assert len(seen) == built <= 5  # looks at the form of what it returns, no run
    model()
    first = len(seen) - built
    seen.clear()
    model()
    assert first <= 3 * len(seen)  # it has more rows, and so shorter steps where the time is read


def test_binding_twice_pickling_and_replace_give_the_same_numbers():
    fresh = logistic()
    expected = logistic()().to_numpy()
    copies = [pickle.loads(pickle.dumps(fresh)), fresh.replace(outputs={"M": "2*N"}), fresh.replace()]
    fresh()
    copies += [pickle.loads(pickle.dumps(fresh)), fresh.replace(parms={"K": 1e-8})]
    for model in [fresh, *copies]:
        np.testing.assert_array_equal(model()[["time", "N"]].to_numpy(), expected)
    bound = fresh.bind(["r"]), fresh.bind(["r"])
    np.testing.assert_array_equal(bound[0].simulate([0.9]), bound[1].simulate([0.9]))


def test_a_copy_of_another_size_has_the_scale_of_its_own():
    large = logistic(K=100.0, N0=1.0)
    assert large.atol.tolist() == [1e-6]
    np.testing.assert_allclose(large.replace(parms={"K": 1e-8, "N0": 1e-9})()["N"], exact(), rtol=1e-4)


def test_atol_by_hand_is_one_number_a_vector_or_a_dict():
    text = "d(A)/dt = -A\nd(B)/dt = A"

    def model(atol):
        return OdeModel(text, state={"A": 1e-3, "B": 0}, times=[0, 1, 50], atol=atol)

    assert model(1e-4).atol.tolist() == [1e-4, 1e-4]
    assert model([1e-4, 1e-5]).atol.tolist() == [1e-4, 1e-5]
    by_name = model({"B": 1e-5}).atol
    assert by_name["B"] == 1e-5
    assert by_name["A"] == pytest.approx(1e-9)


@pytest.mark.parametrize(
    ("atol", "told"),
    [
        ({"Bact": 1e-8}, "Did you mean 'Bacto'"),
        ([1e-6], "has 1 values for 2 states"),
        (-1.0, "must be a positive"),
        (np.nan, "must be a positive"),
        ([1e-6, np.inf], "must be a positive"),
        ("small", "must be a positive"),
        (True, "must be a positive"),
        (10**400, "must be a positive"),
        ([[1e-6], [1e-6]], "one number a state"),
    ],
)
def test_an_atol_that_cannot_be_is_refused(atol, told):
    with pytest.raises(FmepyError, match=told):
        OdeModel("d(Bacto)/dt = 1\nd(Sub)/dt = 1", state={"Bacto": 0, "Sub": 0}, times=[0, 1], atol=atol)


def test_a_state_below_its_tolerance_is_told_once_and_a_zero_one_never(caplog):
    model = logistic(atol=1e-6, engine="scipy")
    with caplog.at_level(logging.WARNING, logger="fmepy"):
        for _ in range(3):
            model()
        model.bind(["K"]).simulate([2e-8])
    assert len(caplog.records) == 1
    assert "pass atol={'N': 1e-14}" in caplog.text


def test_ensembles_and_chains_tell_it_once(caplog):
    with caplog.at_level(logging.WARNING, logger="fmepy"):
        fme.sensRange(logistic(atol=1e-6), parInput=fme.Unif({"K": (1e-9, 2e-8)}, num=50, seed=1), num=50)
        assert caplog.text.count("below 1000 times") == 1
        cost = fme.SimulationCost(logistic(atol=1e-6), {"time": [10.0], "N": [1e-8], "sd": [1e-9]}, err="sd")
        chain = fme.modMCMC(cost, {"K": 1e-8}, jump=1e-10, niter=50, seed=1)
    assert caplog.text.count("below 1000 times") == 2
    assert chain.solver_error is not None


def test_the_default_tolerance_says_nothing(caplog):
    text = "d(A)/dt = -k*A\nd(B)/dt = k*A\nd(C)/dt = 0"
    with caplog.at_level(logging.WARNING, logger="fmepy"):
        logistic()()
        OdeModel(text, state={"A": 1e-3, "B": 0, "C": 0}, times=[0, 1, 50], parms={"k": 1.0})()
        OdeModel(text, state={"A": 1e3, "B": 0, "C": 0}, times=[0, 1, 50], parms={"k": 1.0})()
    assert not caplog.records


@pytest.mark.parametrize("method", ["lsoda", "RK45", "RK23", "DOP853", "Radau", "BDF", "LSODA"])
def test_a_pulse_in_a_function_is_not_stepped_over_with_max_step(method):
    model = OdeModel(pulse, state={"x": 0.0}, times=[0.0, 10.0], method=method, max_step=0.05)
    assert model()["x"].iloc[-1] == pytest.approx(1.0, abs=5e-3)
    out = ode({"x": 0.0}, [0.0, 10.0], pulse, method=method, max_step=0.05)
    assert out["x"].iloc[-1] == pytest.approx(1.0, abs=5e-3)


def sunlit(t, y, p):
    s = math.sin(p["om"] * t)
    return [-1e-2 * math.exp(-p["a4"] / s) * y[0] if s > 0 else 0.0]


PARMS = {"om": 1.0, "a4": 1.0}
SUNLIT = "s = sin(om*t)\nd(O3)/dt = -1e-2*where(s > 0, exp(-a4/s), 0)*O3"


@pytest.mark.parametrize("times", [[0, 86400], [0, 43200, 86400], np.arange(0, 20) * 86400.0])
@pytest.mark.parametrize("rhs", [sunlit, SUNLIT])
@pytest.mark.parametrize("method", ["lsoda", "LSODA", "BDF"])
def test_what_begins_later_is_not_stepped_over_on_scipy_where_the_rates_read_the_time(rhs, times, method):
    parms = {"om": math.pi / 43200, "a4": 7.6}
    model = OdeModel(rhs, state={"O3": 1.0}, times=times, parms=parms, engine="scipy", method=method)
    lost = quad(lambda t: 1e-2 * math.exp(-7.6 / math.sin(parms["om"] * t)), 1, 43199, limit=500)[0] * (
        times[-1] // 86400
    )
    assert model()["O3"].iloc[-1] == pytest.approx(math.exp(-lost), rel=1e-3)


def test_only_rates_that_read_the_time_limit_the_steps():
    rows = np.array([0.0, 10.0, 50.0, 64.0])

    def longest(rhs, rows=rows):
        return default_max_step(OdeModel(rhs, state={"O3": 1.0}, times=[0, 1], parms=PARMS).definition, 0.0, rows)

    assert longest("d(O3)/dt = -om*O3*a4") == np.inf
    assert longest(lambda t, y, p: [-float(y[0]) * p["om"]]) == np.inf
    assert longest(sunlit) == longest(SUNLIT) == pytest.approx(0.618 * 2)
    assert longest(sunlit, np.linspace(0, 64, 65)) == pytest.approx(0.618)
    assert longest(sunlit, np.linspace(0, 64, 641)) == pytest.approx(0.618 * 64 / 200)  # many rows take no longer
    assert longest(sunlit, np.array([0.0])) == np.inf


def test_the_explicit_loop_keeps_the_largest_step():
    seen = []

    def rates(t, z, q, out):
        seen.append(t)
        out[0] = 1.0

    loop, out = dormand_prince, np.empty((1, 1))
    ended, *_ = loop.drive(
        rates, None, None, 0.0, 0.0, np.zeros(1), np.array([1.0]), 1, 1e-6, np.array([1e-6]), 0.01, 10**4, out,
        np.zeros((status.WORK, 1)), np.empty((2, 0)), None, None,
    )  # fmt: skip
    assert ended == status.DONE
    assert out[0, 0] == pytest.approx(1.0)
    assert np.diff(np.unique(seen)).max() <= 0.01
    assert len(seen) >= 600


def test_the_compiled_explicit_engine_keeps_the_largest_step():
    model = OdeModel("d(x)/dt = exp(-((t - 50)/0.05)**2)", state={"x": 0.0}, times=[0.0, 100.0], engine="explicit")
    limited = model.replace(max_step=0.05)
    assert limited()["x"].iloc[-1] == pytest.approx(0.05 * np.sqrt(np.pi), rel=1e-4)


def test_a_small_max_step_does_not_run_into_the_limit_of_steps():
    model = OdeModel("d(x)/dt = 1", state={"x": 0.0}, times=[0.0, 1.0], engine="explicit", max_step=5e-6)
    assert model()["x"].iloc[-1] == pytest.approx(1.0)


def test_auto_takes_an_engine_that_can_limit_its_steps():
    model = logistic(max_step=0.1)
    assert model.engine == "compiled"
    np.testing.assert_allclose(model()["N"], exact(), rtol=1e-4)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"method": "rk4", "max_step": 0.1}, "takes `dt`"),
        ({"max_step": 0}, "positive"),
        ({"max_step": -1}, "positive"),
        ({"max_step": np.inf}, "positive and finite"),
        ({"max_step": "0.1 h"}, "positive"),
        ({"max_step": True}, "positive"),
        ({"max_step": [0.1, 0.2]}, "positive"),
    ],
)
def test_a_max_step_that_cannot_be_is_refused_with_what_to_type(arguments, told):
    with pytest.raises(FmepyError, match=told):
        logistic(**arguments)


def test_what_could_be_stepped_over_is_named_where_the_function_reads_the_time(caplog):
    with caplog.at_level(logging.INFO, logger="fmepy"):
        model = OdeModel(pulse, state={"x": 0.0}, times=[0.0, 10.0])
    assert "max_step" in model.engine_note
    assert "stepped over" in caplog.text
    assert "max_step" not in OdeModel(quiet, state={"x": 0.0}, times=[0.0, 10.0]).engine_note
    assert "max_step" not in OdeModel(pulse, state={"x": 0.0}, times=[0.0, 10.0], max_step=0.05).engine_note


def test_whether_a_function_reads_the_time_is_seen_in_its_code():
    class Model:
        def rates(self, t, y, p):
            return y

        def driven(self, t, y, p):
            return [(lambda: t)() * y]

    assert not reads_time(Model().rates)
    assert reads_time(Model().driven)
    assert reads_time(len)


def test_steps_too_many_to_be_meant_are_refused():
    text, decay = "d(x)/dt = -k*x\nx(0) = 1", {"k": 1.0}
    with pytest.raises(ModelError, match=r"`max_step=1e-07` takes 1e\+10 steps"):
        OdeModel(text, times=[0, 1e3], parms=decay, max_step=1e-7)
    with pytest.raises(ModelError, match=r"`dt=1e-06` takes 1e\+15 steps"):
        OdeModel(text, times=[0, 1e9], parms=decay, method="rk4", dt=1e-6)
    with pytest.raises(ModelError, match=r"takes 1e\+12 steps from the first to the last of `times`"):
        fme.DifferenceModel("next(x) = x*0.5\nx(0) = 10", times=[0, 1e12])
