"""A run that cannot go on ends soon, with the time and the state that it ended for."""

from __future__ import annotations

import logging
import math
import time

import numpy as np
import pytest

import fmepy as fme
from fmepy.errors import ArgumentError, SimulationError
from fmepy.language.functions import TABLE, Function, add_function
from fmepy.models.engines import scipy_steppers
from fmepy.models.ode import OdeModel

FOLLOWED = "d(x)/dt = -{k}*(x - y)\nd(y)/dt = {rate}"


def failure(model, parms=None):
    began = time.process_time()
    with pytest.raises(SimulationError) as caught:
        model(parms)
    assert time.process_time() - began < 4
    return caught.value


@pytest.mark.parametrize("k", [1, 1e5])
@pytest.mark.parametrize("rate", ["-sqrt(2.5 - t)", "where(t > 2.5, log(-x**2), 1)"])
def test_a_rate_that_loses_its_value_is_named_with_the_time_when_it_did(k, rate):
    error = failure(OdeModel(FOLLOWED.format(k=k, rate=rate), state={"x": 1, "y": 1}, times=np.arange(6)))
    assert error.time == pytest.approx(2.5, abs=1e-6)
    assert "(y = " in str(error)
    assert "has a rate that is not finite" in str(error)


@pytest.mark.parametrize(("words", "near"), [({"engine": "scipy"}, 0.02), ({"method": "rk4", "dt": 0.1}, 0.1)])
def test_engines_that_step_over_it_say_when_and_not_at_which_row_it_was_seen(words, near):
    error = failure(OdeModel("d(y)/dt = -sqrt(2.5 - t)", state={"y": 1}, times=[0, 2, 100], **words))
    assert error.time == pytest.approx(2.5, abs=near)


def test_a_state_that_runs_away_is_named():
    error = failure(OdeModel(FOLLOWED.format(k=1e4, rate="y**2"), state={"x": 1, "y": 1}, times=[0, 5]))
    assert "a state runs to infinity (y = " in str(error)
    assert error.time == pytest.approx(1, abs=1e-3)


def test_what_is_stiff_in_a_corner_of_the_parameters_runs_there_too():
    model = OdeModel("d(x)/dt = -k*(x - cos(t))", state={"x": 1}, parms={"k": 1.0}, times=[0, 3, 10])
    bound = model.bind()
    Y, why = bound.simulate_many(np.array([[1.0], [1e4], [1e9], [-1e9]]))
    assert [bool(w) for w in why] == [False, False, False, True]
    np.testing.assert_allclose(Y[1:3, :, 0], np.cos(model.times) * np.ones((2, 1)), atol=2e-4)
    assert "a state runs to infinity (x = " in why[3]
    np.testing.assert_array_equal(Y[0], bound.simulate(np.array([1.0])))


@pytest.mark.parametrize("k", [1, 1e4])
def test_algebraic_equations_whose_pivots_vanish_for_a_while_are_solved_with_exchange_of_rows(k):
    """Until 1 the first equation gives w and the second v, from 2 on the other way: whichever is whose, it vanishes."""
    text = f"""
p = max(t - 1, 0)
q = max(2 - t, 0)
d(x)/dt = -{k}*(x - v)
0 = p*(v - cos(t)) + q*(w - 2)
0 = p*(w - 2) - q*(v - cos(t))"""
    model = OdeModel(text, state={"x": 1, "v": 1, "w": 2}, times=np.linspace(0, 3, 13), rtol=1e-8, atol=1e-9)
    bound = model.bind()
    bound.simulate(bound.theta0)
    began = time.process_time()
    Y = bound.simulate(bound.theta0)
    assert time.process_time() - began < 1  # and not by the long search that takes over where no step succeeds
    np.testing.assert_allclose(Y[:, 1], np.cos(model.times), atol=1e-6)
    np.testing.assert_allclose(Y[:, 2], 2, atol=1e-6)
    assert bound.retries == 0


def test_many_stiff_states_without_sparsity_are_refused_when_they_need_a_jacobian(monkeypatch):
    monkeypatch.setattr(scipy_steppers, "MOST_DENSE", 60)
    n = 80

    def all_of_all(t, y, p):
        return -p["k"] * (y - y.mean()) - y * np.arange(n)

    model = OdeModel(all_of_all, state={f"y{i}": 1.0 for i in range(n)}, parms={"k": 1e4}, times=[0, 1], engine="scipy")
    assert "a Jacobian of 80 x 80 entries, of which none are known to be zero" in str(failure(model))
    calm = model.replace(times=[0, 1e-5])()
    assert np.isfinite(calm.to_numpy()).all()


@pytest.mark.parametrize("engine", ["compiled", "scipy"])
def test_a_state_that_overflows_is_a_failed_run_with_a_time_of_the_run(engine):
    # rates that do not depend on the state stay finite, and so does the error of a step, by its size
    model = OdeModel("d(y)/dt = k", state={"y": 0.0}, times=np.arange(11.0), parms={"k": 1e308}, engine=engine)
    error = failure(model)
    assert error.time in model.times
    if engine == "compiled":
        assert "a state became NaN or infinite" in str(error)
        _, why = model.bind(["k"]).simulate_many(np.array([[1e308], [1e200]]))
        assert [bool(w) for w in why] == [True, False]  # of 1e201 the square overflows alone


def test_the_time_where_lsoda_gives_up_is_in_the_stretch_that_it_was_in():
    times = [0, 0.1, 0.2, 1, 2, 3]
    model = OdeModel(lambda t, y, p: -p["k"] / (y - 1) ** 3, state=[2.0], times=times, parms={"k": 1}, engine="scipy")
    error = failure(model)  # (y - 1)^4 = 1 - 4 k t
    assert error.time == pytest.approx(0.25, abs=1e-3)


def test_a_state_whose_noise_grew_below_zero_names_the_tolerance_wherever_a_run_is_asked_for():
    text = "d(P)/dt = a*P*(1 - P/K) - b*P*Z\nd(Z)/dt = 0.5*b*P*Z - 0.3*Z"
    words = {"state": {"P": 1.0, "Z": 1.0}, "times": np.arange(200.0), "parms": {"a": 1.0, "K": 50.0, "b": 1.0}}
    model, advice = fme.OdeModel(text, **words), "If P is never negative, .* pass atol={'P': 0} to the model"
    deep = {"K": 1e5, "b": 30.0}
    cost = fme.SimulationCost(model, model()[["time", "P"]], err=None)
    for asked in (
        lambda: model(deep), lambda: cost(deep), lambda: fme.modFit(cost, deep),
        lambda: fme.modMCMC(cost, deep, niter=10, var0=1.0),
    ):  # fmt: skip
        with pytest.raises((SimulationError, ArgumentError), match=advice):
            asked()
    ranges = fme.sensRange(model, parRange={"K": (99e3, 1e5), "b": (29.9, 30.0)}, num=3, seed=1)
    assert ranges.failures["message"].str.contains(advice).any()
    assert np.isfinite(fme.OdeModel(text, **words, atol={"P": 0})(deep).to_numpy()).all()


def test_the_reason_of_differences_is_never_empty(caplog):
    own = add_function(Function("half_up", lambda x: math.floor(x + 0.5), lambda x: np.floor(x + 0.5), None, "floor",
                                jumps=True))  # fmt: skip
    try:
        bound = fme.OdeModel("d(x)/dt = -k*half_up(x)", state={"x": 3.0}, times=[0, 1], parms={"k": 0.1}).bind()
        with caplog.at_level(logging.WARNING, logger="fmepy"):
            bound.sensitivities(bound.theta0)
    finally:
        del TABLE[own.name]
    assert "The reason: compiled does not stop where conditions or jumps" in caplog.text
