"""Smooths and delays that are shorter than the step are refused where they stand, or end the run that makes them so."""

from __future__ import annotations

import numpy as np
import pytest

import fmepy as fme
from fmepy.dmi.diagnostics import DiagnosticWarning
from fmepy.errors import ModelError, SimulationError
from tests.dmi.runs import program_of, run

TIMES = np.arange(0, 10.1, 0.25)


def model_of(text, data=None, **words):
    module = fme.dmi.Module("trend", text)
    return fme.dmi.ModularModel([module], data, times=TIMES, dt=0.25, **words)


@pytest.mark.parametrize("method", ["euler", "rk4"])
@pytest.mark.parametrize(
    ("text", "least"),
    [("y = smooth(u, 0.05)", "0.05"), ("y = 2 * delay1(u, T)\nT = 0.1", "0.1"), ("y = delay3(u, 0.3)", "0.1")],
)
def test_a_tau_in_the_text_is_told_when_the_model_is_made(text, least, method):
    text, told = f"u = sin(5 * t)\n{text}", rf"module 'trend', line 2: .*dt=0\.25.*give dt={least} at most"
    with pytest.warns(DiagnosticWarning, match=told):
        model = model_of(text, method=method)
    with pytest.raises(ModelError, match=told):
        model_of(text, method=method, strict=True)
    if "delay3" not in text:  # one level cannot be fewer
        with pytest.raises(SimulationError, match="too short for steps"):
            model()


def test_the_order_of_a_delay_that_is_too_short_is_lowered():
    text = "y = delay3(sin(t), 0.3)\nz = smoothn(sin(t), tau, 5)"
    with pytest.warns(DiagnosticWarning, match="It is computed as of order"):
        model = model_of(text, {"tau": 0.6})
    assert [m[-1] for m in model.diagnostics.message] == ["1", "2"]
    wanted = model_of("y = delay1(sin(t), 0.3)\nz = smoothn(sin(t), 0.6, 2)")
    np.testing.assert_allclose(model()[["y", "z"]], wanted()[["y", "z"]], rtol=1e-13)
    np.testing.assert_allclose(model.compiled("difference")()[["y", "z"]], wanted()[["y", "z"]], rtol=1e-10)
    assert model.replace(data={"tau": 2.0}).diagnostics.message.str[-1].tolist() == ["1"]
    with pytest.raises(SimulationError, match="too short"):
        model({"tau": 0.1})


def test_the_step_of_the_module_counts():
    with pytest.raises(ModelError, match=r"steps of dt=0\.25, and the module takes 4 at a time.*dt=0\.1 at most"):
        model_of("step 4\ny = smooth(sin(t), 0.4)", strict=True)
    model_of("step 2\ny = smooth(sin(t), 0.4)")


@pytest.mark.parametrize(("call", "tau"), [("smooth", 0.25), ("delay1", 0.25), ("delay3", 0.75)])
@pytest.mark.parametrize("method", ["euler", "rk4"])
def test_a_tau_of_one_step_stays_among_the_values_that_it_follows(call, tau, method):
    y = model_of(f"y = {call}(sin(5 * t), {tau})", method=method)()["y"]
    assert np.abs(y).max() <= 1 + 1e-9


def test_a_tau_in_the_data_is_warned_of_and_ends_the_run():
    with pytest.warns(DiagnosticWarning, match="short_delay: module 'trend', line 1: smooth.*give dt=0.05 at most"):
        model = model_of("y = smooth(sin(5 * t), tau)", {"tau": 0.05})
    assert model.diagnostics.kind.tolist() == ["short_delay"]
    with pytest.raises(
        SimulationError, match=r"module 'trend', line 1: smooth.*tau=0.05 at time 0 \(step 0\)"
    ) as caught:
        model()
    assert caught.value.parameters["tau"] == 0.05
    assert np.isfinite(model({"tau": 0.5})["y"]).all()
    with pytest.raises(ModelError, match=r"strict=True.*\n.*short_delay"):
        model_of("y = smooth(sin(5 * t), tau)", {"tau": 0.05}, strict=True)
    with pytest.raises(SimulationError, match=r"tau=-1 at time 0.*must be positive"):
        model({"tau": -1.0})


@pytest.mark.parametrize("method", ["euler", "rk4"])
def test_a_tau_that_moves_ends_the_run_where_it_is_too_short(method):
    program = program_of("y = smooth(sin(t), T)\nT = 1 - 0.2 * t", dt=0.25, method=method)
    told = r"line 1: smooth\(..., tau\) has tau=0.1 at time 4.5 \(step 18\)"
    with pytest.raises(SimulationError, match=told) as caught:
        run(program, 40)
    assert caught.value.time == 4.5
    assert np.isfinite(run(program, 18).rows).all()  # its last row moves nothing on


def test_one_element_of_a_vector_is_enough():
    program = program_of("dims S[2], T[2]\nS = delay1([t, 2 * t], T)", dt=0.5)
    run(program, 4, T=[1.0, 2.0])
    with pytest.raises(SimulationError, match=r"tau=0.1 at time 0"):
        run(program, 4, T=[1.0, 0.1])


def test_a_tau_inside_another_expression_and_a_python_module_beside_it():
    @fme.dmi.module(reads=["k"], assigns=["T"])
    def half(k):
        return float(str(k)) / 2  # no equation: it runs as Python

    program = program_of("y = 1 + smooth(delay1(t * 1, 3), T)", half, dt=0.25)
    run(program, 8, k=1.0)
    with pytest.raises(SimulationError, match=r"smooth\(..., tau\) has tau=0.1"):
        run(program, 8, k=0.2)


def test_a_calibration_counts_such_runs_as_failed():
    model = model_of("y = smooth(sin(t), tau)", {"tau": 2.0})
    truth = model({"tau": 0.3})
    data = {"time": truth.time, "y": truth.y + 0.01 * np.cos(37 * truth.time)}
    cost = fme.SimulationCost(model, data)
    fit = fme.modFit(cost, {"tau": 2.0}, lower=0.01, upper=3, method="Pseudo", seed=1)
    assert fit.par["tau"] == pytest.approx(0.3, abs=0.02)
    assert fit.failures > 0
    assert "too short for steps of dt=0.25" in fit.message
    with pytest.raises(SimulationError, match="too short for steps"):
        cost({"tau": 0.1})


def test_the_model_of_steps_fails_there_too_and_the_continuous_one_knows_no_step():
    model = model_of("y = smooth(sin(5 * t), tau)\nz = delay3(cos(t), 4 * tau)", {"tau": 2.0})
    steps = model.compiled("difference")
    np.testing.assert_allclose(steps()["y"], model()["y"], rtol=1e-12)
    np.testing.assert_allclose(steps({"tau": 0.25})["y"], model({"tau": 0.25})["y"], rtol=1e-9, atol=1e-12)
    with pytest.raises(SimulationError, match="NaN or infinite"):
        steps({"tau": 0.1})
    assert np.abs(model.compiled("ode")({"tau": 0.1})["y"]).max() < 1
