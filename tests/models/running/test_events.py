"""An event's value may be of the state that it finds; on every engine, with exact sensitivities."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fmepy.costs.simulation import SimulationCost
from fmepy.errors import ModelError, ParameterError, SimulationError
from fmepy.fimlof import FimlofCost
from fmepy.models.ode import OdeModel
from tests.plain import plain

ENGINES = ["explicit", "scipy", "compiled"]
TIMES = np.linspace(0.0, 10.0, 21)


def decay(t, A, *, k=0.3, share=0.4):
    return -k * A


def growth(t, N, M, *, r=0.5, K=10.0, a=0.1, h=0.5):
    return r * N * (1 - N / K), a * N - 0.2 * M


EVENTS = [
    {"var": "N", "time": 3, "value": "N * h + 0.1 * M", "method": "replace"},
    {"var": "M", "time": 3, "value": "N - 2", "method": "add"},
    {"var": "M", "time": 5, "value": "a * N + t", "method": "multiply"},
    {"var": "N", "time": 0, "value": "2 * K / 10", "method": "add"},
    {"var": "N", "time": 7.3, "value": 3.0, "order": 1},
    {"var": "M", "time": 7.3, "value": "both", "order": 2},
]


def growing(**words):
    given = {"state": {"N": 1, "M": "a"}, "times": TIMES, "events": EVENTS, "outputs": {"both": "N + M"}}
    return OdeModel(growth, **given, rtol=1e-9, atol=1e-9, **words)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_share_of_a_state_is_taken_away_with_its_sensitivities(engine):
    events = [{"var": "A", "time": 4.0, "value": "-share * A", "method": "add"}]
    model = OdeModel(decay, state={"A": 5}, times=[0, 4, 8], events=events, engine=engine, rtol=1e-9, atol=1e-12)
    Y, S = model.bind(["k", "share"]).sensitivities(np.array([0.3, 0.4]))
    A = 5 * np.exp(-0.3 * np.array([0.0, 4.0, 8.0])) * np.array([1, 1, 0.6])  # the row of the event is before it
    np.testing.assert_allclose(Y[:, 0], A, rtol=1e-7)
    np.testing.assert_allclose(S[:, 0, 0], -np.array([0.0, 4.0, 8.0]) * A, rtol=1e-6)
    np.testing.assert_allclose(S[:, 0, 1], [0, 0, -A[2] / 0.6], rtol=1e-6)


@pytest.mark.parametrize("engine", ENGINES[1:])
def test_engines_agree_on_values_of_states_time_parameters_and_outputs(engine):
    names = ["r", "a", "h", "K"]
    found, expected = (growing(engine=e).bind(names) for e in (engine, "explicit"))
    Y, S = found.sensitivities(found.theta0)
    Y_numba, S_numba = expected.sensitivities(expected.theta0)
    np.testing.assert_allclose(Y, Y_numba, rtol=1e-6)
    np.testing.assert_allclose(S, S_numba, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found.simulate(found.theta0), Y, rtol=1e-6)


def test_sensitivities_through_events_are_derivatives():
    bound = growing(engine="explicit").bind(["r", "a", "h", "K"])
    S = bound.sensitivities(bound.theta0)[1]
    for j, d in enumerate(1e-5 * np.eye(4)):
        slope = (bound.simulate(bound.theta0 + d) - bound.simulate(bound.theta0 - d)) / 2e-5
        np.testing.assert_allclose(S[:, :, j], slope, atol=2e-4)


@pytest.mark.parametrize("method", ["euler", "rk4"])
def test_fixed_steps_know_them_too(method):
    fixed = growing().replace(rtol=1e-6, atol=None, method=method, dt=0.001 if method == "euler" else 0.05)
    np.testing.assert_allclose(fixed()["M"], growing()()["M"], rtol=2e-3 if method == "euler" else 1e-6)


@pytest.mark.parametrize("engine", ["explicit", "scipy"])
def test_events_of_one_order_see_the_same_state_and_a_lower_order_comes_first(engine):
    def still(t, x, y):
        return 0 * x, 0 * y

    swap = [{"var": "x", "time": 1, "value": "y"}, {"var": "y", "time": 1, "value": "x"}]
    later = [{"var": "x", "time": 1, "value": "10 * x", "order": 1}, {"var": "x", "time": 1, "value": 7, "order": -1}]
    words = {"state": {"x": 1, "y": 2}, "times": [0, 1, 2], "engine": engine}
    assert OdeModel(still, events=swap, **words)().iloc[-1].tolist() == [2, 2, 1]
    assert OdeModel(still, events=later + swap, **words)().iloc[-1].tolist() == [2, 20, 7]


def test_a_forcing_counts_as_it_is_from_the_event_on():
    def still(t, x, *, dose):
        return 0 * x * dose

    forcings = {"dose": ([0, 1], [2.0, 5.0], "constant")}
    events = [{"var": "x", "time": 1, "value": "dose", "method": "add"}]
    for engine in ("explicit", "scipy"):
        model = OdeModel(still, state={"x": 0}, times=[0, 1, 2], forcings=forcings, events=events, engine=engine)
        assert model()["x"].tolist() == [0, 0, 5]


def test_a_function_that_cannot_be_traced_has_them_with_its_own_outputs():
    def odd(t, x, *, k=0.1):
        return (-k * x if plain(x) > 0 else 0.0), {"twice": 2 * x}

    events = [{"var": "x", "time": 1, "value": "twice + k"}]
    model = OdeModel(odd, state={"x": 1}, times=[0, 1, 2], events=events)
    assert model.equations is None
    assert model()["x"].iloc[-1] == pytest.approx((2 * np.exp(-0.1) + 0.1) * np.exp(-0.1), rel=1e-5)


@pytest.mark.parametrize("engine", ["explicit", "scipy"])
def test_a_value_that_does_not_exist_is_a_failed_run(engine):
    events = [{"var": "A", "time": 1, "value": "log(A - 100)"}]
    model = OdeModel(decay, state={"A": 5}, times=[0, 1, 2], events=events, engine=engine)
    with pytest.raises(SimulationError, match="event value is not finite"):
        model()


def test_what_an_event_cannot_use_is_told():
    with pytest.raises(ParameterError, match="state, parameter, forcing or output 'B'"):
        OdeModel(decay, state={"A": 5}, times=[0, 2], events=[{"var": "A", "time": 1, "value": "B"}])
    with pytest.raises(ValueError, match=r"events\[0\].order"):
        OdeModel(decay, state={"A": 5}, times=[0, 2], events=[{"var": "A", "time": 1, "value": 1, "order": 0.5}])


def test_a_filter_says_that_it_does_not_know_the_state_beforehand():
    events = [{"var": "A", "time": 1.0, "value": "A / 2"}]
    model = OdeModel(decay, state={"A": 5}, times=[0, 1, 2], events=events)
    data = {"time": [1, 2], "A": [3.0, 1.0]}
    with pytest.raises(ModelError, match=r"depends on 'A'.*method='multiply'"):
        FimlofCost(model, data, process_noise={"A": 0.1}, measurement_noise={"A": 0.1})
    assert SimulationCost(model, data)().model > 0


def test_a_column_that_stands_twice_in_a_table_of_events_or_of_a_forcing_is_refused():
    events = pd.DataFrame([["y", 1.0, 1.0, 2.0]], columns=["var", "time", "value", "value"])
    with pytest.raises(ModelError, match="`events` has the column 'value' more than once"):
        OdeModel("d(y)/dt = -y", state={"y": 1.0}, times=[0, 2], events=events)
    for columns in (["time", "u", "u"], ["time", "time", "value"]):
        table = pd.DataFrame([[0.0, 1.0, 2.0], [1.0, 1.0, 2.0]], columns=columns)
        with pytest.raises(ModelError, match=r"the forcing 'u' has the column '(u|time)' more than once"):
            OdeModel("d(y)/dt = u - y", state={"y": 1.0}, times=[0, 2], forcings={"u": table})


@pytest.mark.parametrize(("short", "long"), [("mult", "multiply"), ("rep", "replace"), ("add", "add")])
def test_the_methods_of_desolve_have_its_names_too(short, long):
    def run(method):
        rows = [{"var": "N", "time": 1.0, "value": 3.0, "method": method},
                {"var": "N", "root": "N - 8", "value": 0.5, "method": method}]  # fmt: skip
        model = OdeModel("d(N)/dt = r*N", state={"N": 1}, parms={"r": 1.0}, times=np.linspace(0, 3, 7), events=rows)
        return model().to_numpy()

    np.testing.assert_array_equal(run(short), run(long))
