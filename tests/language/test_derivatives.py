"""Derivatives of powers have the values of their limits, and no 0 times infinity, on every engine."""

from __future__ import annotations

import numpy as np
import pytest

from fmepy import DifferenceModel, OdeModel, SimulationCost, modFit
from tests.models.problems import ENGINES

TIMES = np.linspace(0, 4, 9)
HILL = "d(x)/dt = 1 - V*x**n/(K**n + x**n)\nx(0) = 0\ny = x**n + none**n"
RUNNERS = [*({"engine": e} for e in ENGINES), {"method": "rk4"}, {"method": "euler"}]


@pytest.mark.parametrize("runner", RUNNERS, ids=str)
@pytest.mark.parametrize(
    "text", [HILL, "d(x)/dt = V*t**n + K\nx(0) = none**n", "d(x)/dt = 1 + abs(x - 2)**n - V*K*x\nx(0) = 2\ny = none"]
)
def test_a_power_of_zero_has_finite_derivatives(text, runner):
    model = OdeModel(text, times=TIMES, parms={"V": 2.0, "K": 1.0, "n": 2.5, "none": 0.0}, rtol=1e-9, **runner)
    bound, h = model.bind(("V", "K", "n")), 1e-4
    _, S = bound.sensitivities(bound.theta0)
    differences = [
        (bound.simulate(bound.theta0 + h * e) - bound.simulate(bound.theta0 - h * e)) / (2 * h) for e in np.eye(3)
    ]
    np.testing.assert_allclose(S, np.stack(differences, axis=-1), atol=3e-4 * np.abs(S).max())
    assert bound.retries == 0


def test_a_hill_term_that_begins_at_zero_is_fitted():
    model = OdeModel(HILL.splitlines()[0], state={"x": 0}, times=TIMES, parms={"V": 2.0, "K": 1.0, "n": 2.5})
    truth = {"V": 2.5, "K": 1.2, "n": 2.0}
    fit = modFit(SimulationCost(model, model(truth).iloc[1:]))
    assert fit.converged
    np.testing.assert_allclose(fit.par[list(truth)], list(truth.values()), rtol=1e-3)


def test_difference_equations_have_them_too():
    bound = DifferenceModel("next(x) = x**n + 1", state={"x": 0.0}, times=range(4), parms={"n": 1.5}).bind()
    # x = 0, 1, 2, 2**1.5 + 1
    np.testing.assert_allclose(bound.sensitivities(bound.theta0)[1][:, 0, 0], [0, 0, 0, 2**1.5 * np.log(2)])
