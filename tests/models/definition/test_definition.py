"""Bad definitions are caught at the door, with words that say what to type."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

import fmepy as fme
from fmepy.errors import ModelError, ModelTextError, ParameterError, SimulationError
from fmepy.language.derivatives import are_equal
from fmepy.language.equations import symbol
from fmepy.models.definition.definition import Draft, ModelExpressions
from fmepy.models.difference import DifferenceModel
from fmepy.models.ode import OdeModel
from fmepy.models.ode_run import ode
from tests.plain import plain

LOGISTIC = "d(N)/dt = r * N * (1 - N / K)"


def logistic(t, N, *, r=0.5, K=100):
    return r * N * (1 - N / K)


def model(source=logistic, **changes):
    return OdeModel(source, **{"state": {"N": 1}, "times": [0, 1], **changes})


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"state": None}, ModelError, "`state` is missing"),
        ({"state": {"M": 1}}, ModelError, "'N' is neither a state"),
        ({"state": {"N": "N0"}}, ModelError, "uses 'N0', which has no value"),
        ({"state": {"N": "N + 1"}}, ModelError, "may only depend on parameters"),
        ({"state": {"N": np.nan}}, ModelError, "finite"),
        ({"state": {"N": "r r"}}, ModelTextError, "between two terms"),
        ({"state": pd.Series([1, 2], index=["N", "N"])}, ModelError, "more than once"),
        ({"parms": {"rr": 1}}, ParameterError, "'rr' is used nowhere in the model. Did you mean 'r'"),
        ({"parms": {"r": "fast"}}, ParameterError, "finite number"),
        ({"parms": [0.5, 100]}, ParameterError, "dict or Series"),
        ({"times": [0, 2, 1]}, ModelError, "must increase: 1 .position 2. comes after 2"),
        ({"times": [0, 0, 1]}, ModelError, "must increase"),
        ({"times": [0, np.inf]}, ModelError, "NaN or infinite"),
        ({"times": []}, ModelError, "at least one"),
        ({"outputs": {"logN": "log(M)"}}, ModelError, "uses 'M', which the model does not have"),
        ({"outputs": {"N": "2 * r"}}, ModelError, "name of something else"),
        ({"outputs": {"a": lambda M: M}}, ModelError, "argument 'M'"),
        ({"outputs": pd.Series({"a": "N"})}, ModelError, "must be a dict"),
        ({"outputs": {"a": lambda N: [1, 2][int(N)]}}, ModelError, "cannot be turned into an expression"),
        ({"forcings": {"u": ([0, 1], [1, 2])}}, ModelError, "forcing 'u' is used nowhere"),
        ({"forcings": {"K": ([1, 0], [1, 2])}}, ModelError, "must increase"),
        ({"forcings": {"K": ([0, 1], [1, np.nan])}}, ModelError, "NaN"),
        ({"forcings": {"K": ([0, 1], [1, 2], "cubic")}}, ModelError, "not known"),
        ({"forcings": {"K": ([0, 1], [1])}}, ModelError, "2 times and 1 values"),
        ({"events": [{"var": "M", "time": 1, "value": 1}]}, ModelError, "'M' is not a state"),
        ({"events": [{"var": "N", "time": 1}]}, ModelError, "'value' missing"),
        ({"events": [{"var": "N", "time": 1, "value": 1, "method": "ad"}]}, ModelError, "Did you mean 'add'"),
        ({"events": [{"var": "N", "time": 1, "value": "q"}]}, ParameterError, "forcing or output 'q'"),
        ({"events": [{"var": "N", "tme": 1, "value": 1}]}, ModelError, "Did you mean 'time'"),
        ({"engine": "compild"}, ModelError, "Did you mean 'compiled'"),
        ({"engine": "scipy", "method": "dopri5"}, ModelError, "belongs to the engine 'explicit'"),
        ({"method": "rk45"}, ModelError, "Did you mean"),
        ({"dt": 0.1}, ModelError, "euler"),
        ({"method": "euler", "dt": -1}, ModelError, "positive"),
        ({"rtol": 0}, ModelError, "positive"),
        ({"rtol": 1e-16}, ModelError, "below what numbers of double precision can hold"),
        ({"atol": [1e-6, 1e-6]}, ModelError, "2 values for 1 states"),
        ({"atol": {"M": 1e-6}}, ParameterError, "no state 'M'"),
    ],
)
def test_a_wrong_argument_is_named(changes, error, words):
    expected = {"engine": ValueError, "method": ValueError, "events": ValueError, "forcings": ValueError}
    kind = next((expected[k] for k in changes if k in expected), error)
    with pytest.raises(kind, match=words):
        model(**changes)


@pytest.mark.parametrize(
    ("text", "changes", "words"),
    [
        (LOGISTIC, {}, "line 1: 'K' has no value"),
        (LOGISTIC, {"parms": {"r": 1, "K": 1, "k": 2}}, "'k' is used nowhere"),
        (LOGISTIC, {"parms": {"r": 1, "K": 1}, "state": None}, r"write a line such as `N\(0\) = 1`|Write a line"),
        (LOGISTIC, {"parms": {"r": 1, "K": 1}, "state": {"N": 1, "M": 2}}, "'M' has no equation"),
        (f"{LOGISTIC}\nd(N)/dt = 1", {"parms": {"r": 1, "K": 1}}, "N"),
        (LOGISTIC, {"parms": {"r": 1, "K": 1, "N": 1}}, "both a state and a parameter"),
    ],
)
def test_a_wrong_text_is_told(text, changes, words):
    with pytest.raises(ValueError, match=words):
        model(text, **changes)


def misspelt(t, Bakt, Sub, *, k=1.0):
    return -k * Bakt, k * Bakt


def two_arrays(t, y):
    return -y


def star(t, *states):
    return states


def no_time():
    return 0


def three_rates(t, N, *, r=0.5):
    return r * N, 0, 0


def typo(t, N, *, r=0.5):
    return r * M  # noqa: F821  # the mistake that is tested


@pytest.mark.parametrize(
    ("function", "state", "words"),
    [
        (misspelt, {"Bact": 1, "Sub": 2}, "'Bakt' is neither a state .* Did you mean 'Bact'"),
        (misspelt, [1, 2], r"`state` has no names, .*'Bakt'.* Write a dict: state=\{'Bakt': 1\.0"),
        (two_arrays, {"N": 1}, "exactly|f.t, y, p."),
        (star, {"N": 1}, "write them out"),
        (no_time, {"N": 1}, "first argument"),
        (three_rates, {"N": 1}, "returned 3 values at time 0; return one number"),
        (typo, {"N": 1}, "NameError"),
        (3, {"N": 1}, "function, text or Equations"),
    ],
)
def test_a_wrong_function_is_told(function, state, words):
    with pytest.raises(ModelError, match=words):
        OdeModel(function, state=state, times=[0, 1])


def test_a_misspelt_state_is_an_error_and_never_a_change_of_form():
    with pytest.raises(ModelError, match="'Sbu'"):
        OdeModel(lambda t, Bact, Sbu: (Bact, Sbu), state={"Bact": 1, "Sub": 2}, times=[0, 1])


def test_a_bandwidth_is_for_models_that_run_on_scipy():
    with pytest.raises(ModelError, match="Pass engine='scipy'"):
        model(bandwidth=1)


def test_keyword_defaults_are_values_and_parms_override_them():
    m = model(parms={"K": 50})
    assert m.parms.to_dict() == {"r": 0.5, "K": 50}


def test_forcings_outside_their_range_are_held_constant_and_that_is_told_once(caplog):
    with caplog.at_level("INFO", logger="fmepy"):
        m = OdeModel("d(N)/dt = u", state={"N": 0}, times=[0, 4], forcings={"u": ([1, 2], [1, 3])})
        m.replace(times=[0, 5])
    assert [r.getMessage().split(":")[0] for r in caplog.records if "forcing" in r.name] == [
        "The forcing 'u' covers 1 to 2, the model runs from 0 to 4"
    ]
    assert m().N.iloc[-1] == pytest.approx(1 + 2 + 6, rel=1e-5)


def test_ode_refuses_forcings_without_named_parameters():
    with pytest.raises(ModelError, match="must then be a dict"):
        ode([1], [0, 1], lambda t, y, p: -y, [1, 2], forcings={"u": ([0], [1])})


@pytest.mark.parametrize("name", ["y", "p", "t"])
def test_a_state_of_ode_may_have_any_name(name):
    out = ode({name: 1.0}, [0, 1], lambda t, y, p: -y)
    assert out[name].iloc[-1] == pytest.approx(np.exp(-1), rel=1e-5)


def test_ode_hands_parameters_over_as_they_are():
    out = ode([1.0, 2.0], [0, 1], lambda t, y, p: -p[0] * y, np.array([0.5]))
    assert list(out.columns) == ["time", "1", "2"]
    assert out["2"].iloc[-1] == pytest.approx(2 * np.exp(-0.5), rel=1e-5)
    assert ode(1.0, [0, 1], lambda t, y, p: -y)["1"].iloc[-1] == pytest.approx(np.exp(-1), rel=1e-5)


# --- what a function of arrays returns --------------------------------------------------------------------------------

KINDS = {
    "ode": lambda f, state: OdeModel(f, state=state, times=[0, 1, 2], parms={"k": 0.5}),
    "rk4": lambda f, state: OdeModel(f, state=state, times=[0, 1, 2], parms={"k": 0.5}, method="rk4"),
    "difference": lambda f, state: DifferenceModel(f, state=state, times=[0, 1, 2], parms={"k": 0.5}),
    "one run": lambda f, state: ode(state, [0, 1, 2], f, {"k": 0.5}),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (None, "returned None at time 0: is a `return` missing"),
        ((None, {"sum": 1.0}), "returned None at time 0"),
        ([1.0, None], "returned None for 'B'"),
        ([1.0], "returned 1 value at time 0; return one number for each of the 2 states"),
        (1.0, "returned 1 value"),
        ([1.0, 2.0, 3.0], "returned 3 values"),
        ("12", "returned '12'"),
        (["1", "2"], "returned '1' for 'A'"),
        ([[1.0, 2.0]], r"returned one list in another, such as R.s list\(c\(...\)\), of 2 values"),
        ([[1.0, 2.0, 3.0]], "returned 1 value"),
        ([[1.0], [2.0]], "an array or a sequence for 'A'.*ravel"),
        ([1.0, [2.0, 3.0]], "an array or a sequence for 'B'"),
        ({"A": 1.0}, "without 'B'"),
        ({"A": 1.0, "B": 1.0, "C": 2.0}, "'C', which is not a state"),
        (([1.0, 2.0], {"sum": None}), "extra outputs must be numbers"),
    ],
)
def test_a_function_that_returns_something_else_than_its_rates_is_told(kind, returned, words):
    with pytest.raises(ModelError, match=words):
        KINDS[kind](lambda t, y, p: returned, {"A": 1.0, "B": 2.0})


def test_a_forgotten_return_is_told_for_one_state_too_and_by_name():
    with pytest.raises(ModelError, match="`return` missing"):
        OdeModel(lambda t, N: None, state={"N": 1}, times=[0, 1])


@pytest.mark.parametrize("method", ["lsoda", "RK45", "rk4"])
def test_a_return_that_is_missing_in_one_branch_is_told_with_the_time(method):
    model = OdeModel(lambda t, y, p: -y if t < 0.5 else None, state={"N": 1}, times=[0, 1, 2], method=method)
    with pytest.raises(ModelError, match=r"returned None at time (0\.[5-9]|1)"):
        model()


@pytest.mark.parametrize("method", ["lsoda", "RK45", "rk4"])
def test_a_complex_number_is_a_failed_run_that_says_so(method):
    model = OdeModel(
        lambda t, y, p: math.ldexp(1 - t, 0) ** 0.5 if t > -1 else 0.0, state={"N": 1}, times=[0, 1, 2], method=method
    )
    with pytest.raises(SimulationError, match="complex number for 'N'"):
        model()
    with pytest.raises(SimulationError, match="complex number for 'N'"):
        OdeModel(lambda t, y, p: (-1.0) ** float(p["k"]), state={"N": 1}, times=[0, 1], parms={"k": 0.5})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("from_time", [0, 1])
def test_the_array_of_states_is_not_to_be_changed(kind, from_time):
    def change(t, y, p):
        if t >= from_time:
            y[0] = max(y[0], 0.0)
        return -p["k"] * y

    def run():
        return KINDS[kind](change, {"A": 1.0, "B": 2.0})()

    with pytest.raises(ModelError, match=r"y = y\.copy\(\)"):
        run()


@pytest.mark.parametrize("kind", ["ode", "rk4", "difference"])
def test_a_function_may_return_one_array_of_its_own_again_and_again(kind):
    mine = np.zeros(2)

    def rates(t, y, p):
        if plain(y[0]) > 1e9:  # keeps it from being traced
            return y
        return -p["k"] * y[0], p["k"] * y[0] - y[1]

    def in_place(t, y, p):
        mine[:] = rates(t, y, p)
        return mine

    expected = KINDS[kind](rates, {"A": 1.0, "B": 2.0})()
    pd.testing.assert_frame_equal(KINDS[kind](in_place, {"A": 1.0, "B": 2.0})(), expected)


def test_rates_given_as_a_labelled_series_are_taken_by_name():
    swapped = OdeModel(lambda t, y, p: pd.Series({"B": 2.0, "A": 1.0}), state={"A": 0, "B": 0}, times=[0, 1])
    np.testing.assert_allclose(swapped().iloc[-1], [1, 1, 2])


# --- times, empty texts, events that never happen ---------------------------------------------------------------------


@pytest.mark.parametrize("kind", [OdeModel, DifferenceModel])
@pytest.mark.parametrize("times", [10, 10.0, np.array(3)])
def test_one_number_is_no_sequence_of_times(kind, times):
    def step(t, N):
        return N

    with pytest.raises(ModelError, match=r"one number; the times of all rows are needed, such as np\.linspace"):
        kind(step, state={"N": 1}, times=times)
    with pytest.raises(ModelError, match="one number"):
        kind(step, state={"N": 1}, times=[0, 20])(times=times)


@pytest.mark.parametrize(("kind", "line"), [(OdeModel, r"d\(N\)/dt = "), (DifferenceModel, r"next\(N\) = ")])
@pytest.mark.parametrize("text", ["", "  \n# nothing\n", "total = 3"])
def test_a_text_without_a_state_is_refused_at_the_door(kind, line, text):
    with pytest.raises(ModelError, match="no state: it needs a line such as `" + line):
        kind(text, times=[0, 1])
    with pytest.raises(ModelError, match="no state"):
        kind(text, state={"N": 1}, times=[0, 1])


def doses(*times):
    return [{"var": "N", "time": t, "value": 1, "method": "add"} for t in times]


def test_events_outside_the_times_are_named_once_where_the_model_is_made(recwarn):
    with pytest.warns(
        UserWarning, match=r"3 of 5 events lie outside `times` \(0 to 24\).*'N' at -1, 1440, 2880"
    ) as told:
        m = model(times=[0, 24], events=doses(0, 24, 1440, 2880, -1))
    assert told[0].filename == __file__
    recwarn.clear()
    m(times=[0, 5])  # a shorter run leaves events out on purpose
    m.bind(times=[0, 3]).simulate(m.parms.to_numpy())
    m.replace(parms={"r": 0.4})()
    fme.sensRange(m, parRange={"r": (0.4, 0.5)}, num=3, seed=1)
    fme.SimulationCost(m, pd.DataFrame({"time": [1.0], "N": [2.0]}))()
    assert not recwarn.list
    with pytest.warns(UserWarning, match=r"2 of 5 events .* \(-1 to 24\)"):
        m.replace(times=[-1, 24])
    recwarn.clear()
    m.replace(times=[-1, 3000])
    assert not recwarn.list


def test_an_event_at_either_end_of_the_times_is_inside_rounding_or_not(recwarn):
    model(times=np.arange(8) * 0.1, events=doses(0, 0.7))
    assert not recwarn.list


# --- one pipeline for every kind of source ----------------------------------------------------------------------------


def consumer(t, N, Food, *, r, K, inflow):
    eaten = r * N * Food
    return eaten - N / K, inflow - eaten


def consumer_of_arrays(t, y, p):
    eaten = p["r"] * y[0] * y[1]
    return [eaten - y[0] / p["K"], p["inflow"] - eaten]


CONSUMER = """
    d(N)/dt = r * N * Food - N / K
    d(Food)/dt = inflow - r * N * Food
"""
GIVEN = {
    "state": {"N": "N0", "Food": 2},
    "times": [0, 1, 2],
    "parms": {"r": 0.5, "K": 3.0, "N0": 1.0, "dose": 0.5},
    "forcings": {"inflow": ([0, 1], [1.0, 2.0])},
    "outputs": {"total": "N + Food", "share": lambda N, total: N / total},
    "events": [{"var": "N", "time": 1, "value": "dose", "method": "add"}],
}
SOURCES = {
    "text": lambda: CONSUMER,
    "function": lambda: consumer,
    "function of arrays": lambda: consumer_of_arrays,
    "equations": lambda: OdeModel(CONSUMER, **GIVEN | {"outputs": None}).equations,
}


class Reactions:
    """A further kind of source: reactions of first order, written as "A -> B" with the names of their rates."""

    def __init__(self, **reactions):
        self.reactions = {k: arrow.split(" -> ") for k, arrow in reactions.items()}

    def draft(self, given):
        states = tuple(dict.fromkeys(s for pair in self.reactions.values() for s in pair))
        rates = dict.fromkeys(states, 0)
        for k, (educt, product) in self.reactions.items():
            rates[educt] -= symbol(k) * symbol(educt)
            rates[product] += symbol(k) * symbol(educt)
        start = dict.fromkeys(states, 0.0) | given.initial
        return Draft(states, given.parms, start, lambda: ModelExpressions(tuple(rates.values())))


def test_a_further_kind_of_source_drafts_itself_and_is_finished_like_the_others():
    chain = Reactions(k1="A -> B", k2="B -> C")
    model = OdeModel(
        chain, state={"A": "A0"}, times=[0, 1, 2], parms={"k1": 1.0, "k2": 0.5, "A0": 3}, outputs={"all": "A+B+C"}
    )
    assert (model.states, model.var_names) == (("A", "B", "C"), ("A", "B", "C", "all"))
    np.testing.assert_allclose(model()["A"], 3 * np.exp([0, -1, -2]), rtol=1e-5)
    np.testing.assert_allclose(model()["all"], 3.0, rtol=1e-5)
    assert model.replace(parms={"k1": 2.0}).equations is model.equations
    with pytest.raises(ModelError, match="'k2' has no value"):
        OdeModel(chain, state={"A": 1}, times=[0, 1], parms={"k1": 1.0})


@pytest.mark.parametrize("source", SOURCES)
def test_every_kind_of_source_becomes_the_same_definition(source):
    expected, found = OdeModel(CONSUMER, **GIVEN), OdeModel(SOURCES[source](), **GIVEN)
    assert found.parms.to_dict() == expected.parms.to_dict()
    assert (found.states, found.var_names) == (("N", "Food"), ("N", "Food", "total", "share"))
    assert [e.time for e in found.definition.events] == [1.0]
    assert all(map(are_equal, found.equations.rates, expected.equations.rates))
    pd.testing.assert_frame_equal(found(), expected(), rtol=1e-8)


@pytest.mark.parametrize("source", ["text", "function", "equations"])
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"state": {"N": 1, "Food": "foot"}}, "initial value of 'Food' uses 'foot', which has no value"),
        ({"state": {"N": 1, "Food": "N"}}, "the state 'N'; it may only depend on parameters"),
        ({"parms": GIVEN["parms"] | {"rr": 1}}, "'rr' is used nowhere in the model"),
        ({"parms": GIVEN["parms"] | {"N": 1}}, "'N' is both a state and a parameter"),
        ({"parms": GIVEN["parms"] | {"inflow": 1}}, "'inflow' is both a parameter and a forcing"),
        ({"parms": {"r": 0.5, "K": 3.0, "N0": 1.0}}, "output 'dose'"),
        ({"forcings": GIVEN["forcings"] | {"rain": ([0], [1])}}, "forcing 'rain' is used nowhere"),
        ({"outputs": {"time": "N"}}, "called 'time'"),
        ({"outputs": {"N": "2 * r"}}, "name of something else"),
    ],
)
def test_every_kind_of_source_is_checked_alike(source, changes, words):
    with pytest.raises(ValueError, match=words):
        OdeModel(SOURCES[source](), **GIVEN | changes)


def test_an_extra_output_has_a_name_of_its_own():
    def rates(t, N, *, r):
        return -r * N if plain(N) > -1 else 0.0, {"r": 2 * N}

    with pytest.raises(ModelError, match="'r' is both a parameter and an output"):
        OdeModel(rates, state={"N": 1}, parms={"r": 0.5}, times=[0, 1])


def test_a_name_without_a_value_is_shown_where_the_text_uses_it():
    with pytest.raises(ModelTextError, match="line 2: 'q' has no value") as caught:
        OdeModel("d(N)/dt = -N\nd(M)/dt = N * q", state={"N": 1, "M": 0}, times=[0, 1])
    assert (caught.value.line, caught.value.column) == (2, 15)


def test_time_is_no_parameter_of_a_text():
    with pytest.raises(ModelError, match="'t' is both a parameter and the time"):
        OdeModel("d(N)/dt = -N * t", state={"N": 1}, times=[0, 1], parms={"t": 1.0})


def test_a_changed_copy_shares_the_equations_and_reads_no_text_again(monkeypatch):
    model = OdeModel(CONSUMER, **GIVEN)
    monkeypatch.setattr("fmepy.models.definition.text.parse_model", None)
    copy = model.replace(parms={"r": 0.7}, state={"Food": 3})
    assert copy.equations is model.equations
    assert copy.replace(outputs={"double": "2 * N"}).var_names == ("N", "Food", "total", "share", "double")


# --- what one brings from elsewhere


def test_states_named_in_two_orders_are_told_where_rates_come_without_names():
    def chain(t, B, A, *, k=1.0):
        return -k * B, k * B

    def by_name(t, B, A, *, k=1.0):
        return {"A": k * B, "B": -k * B}

    def with_output(t, B, A, *, k=1.0):
        return np.array([-k * B, k * B]), {"sum": A + B}

    state = {"A": 1.0, "B": 2.0}
    for function in (chain, with_output):
        with pytest.warns(UserWarning, match="name the states as 'B', 'A', and `state` as 'A', 'B'.*order of `state`"):
            model(function, state=state)
        model(function, state={"B": 2.0, "A": 1.0})
    assert model(by_name, state=state)().A.iloc[-1] == pytest.approx(1 + 2 * (1 - np.exp(-1)), rel=1e-5)


def test_the_word_for_the_time_and_arrays_as_one_state_are_told():
    with pytest.raises(ModelTextError, match=r"'time' has no value.*The time is called 't'"):
        model("d(N)/dt = -N*sin(time)")
    with pytest.raises(ModelError, match=r"'N' holds 50 values; each state has one.*f\(t, y, p\)"):
        model(state={"N": np.zeros(50)})
