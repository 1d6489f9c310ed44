"""Conditions of time that change at one instant: sensitivities get the jump of each."""

import numpy as np
import pytest

import fmepy as fme


@pytest.mark.parametrize(
    "rate",
    [
        "sign(t - b)",
        "where(t > b, 1, 0) - where(t < b, 1, 0)",
        "where(t >= b, 1, 0) + where(t > b, 1, 0)",
        "floor(t / b) + where(t > b, 1, 0)",
        "where(t > b, 1, 0) + where(2 * t > 2 * b, 2, 1)",
        "where(t > b, 1, 0) + where(t * t > b * b, 2, 1)",
        "max(0, sign(t - b))",
    ],
)
@pytest.mark.parametrize("engine", ["compiled", "scipy"])
def test_conditions_that_change_together(rate, engine):
    model = fme.OdeModel(
        f"d(x)/dt = ({rate}) * 0.5 - 0.1 * x", state={"x": 0}, times=[0, 1, 2], parms={"b": 0.7}, rtol=1e-9,
        atol=1e-11, engine=engine,
    )  # fmt: skip
    bound, h = model.bind(["b"]), 1e-3
    differences = (bound.simulate([0.7 + h]) - bound.simulate([0.7 - h])) / (2 * h)
    np.testing.assert_allclose(bound.sensitivities([0.7])[1][:, 0, 0], differences[:, 0], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("function", [np.rint, np.trunc, lambda x: np.fmod(x, 0.7)])
def test_jumps_of_numpys_functions_have_their_sensitivities(function):
    model = fme.OdeModel(
        lambda t, x, *, b=0.7: function(-t / b) * 0.5, state={"x": 0.1}, times=[0, 1, 2.05], rtol=1e-10, atol=1e-12
    )
    bound, h = model.bind(["b"]), 1e-3
    differences = (bound.simulate([0.7 + h]) - bound.simulate([0.7 - h])) / (2 * h)
    np.testing.assert_allclose(bound.sensitivities([0.7])[1][:, 0, 0], differences[:, 0], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("rate", ["floor(sin(4 * b * t))", "ceil(sin(4 * b * t))", "floor(2 * abs(sin(4 * b * t)))"])
def test_a_floor_whose_argument_touches_a_whole_number(rate):
    model = fme.OdeModel(f"d(x)/dt = {rate}", state={"x": 0}, times=[0, 1, 2, 6], parms={"b": 0.7})
    t = np.linspace(0, 6, 600_001)
    sine = np.sin(2.8 * t)
    values = np.ceil(sine) if "ceil" in rate else np.floor(2 * np.abs(sine) if "abs" in rate else sine)
    expected = np.concatenate([[0], np.cumsum(0.5 * (values[1:] + values[:-1])) * 1e-5])[[0, 100_000, 200_000, 600_000]]
    np.testing.assert_allclose(model()["x"], expected, atol=1e-4)
