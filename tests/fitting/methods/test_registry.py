"""A new optimiser is one file and one line: one added from outside fits, knows its control, and is gone again."""

import numpy as np
import pytest

import fmepy as fme
from fmepy.errors import ArgumentError
from fmepy.fitting.methods.registry import METHODS
from fmepy.fitting.problem import Method, Outcome, limit_reached


def compass(problem, control):
    """Go along the axes; halve the step where none of them leads down."""
    theta, step = problem.start.copy(), 0.5 * problem.scale
    value = problem.cost(theta)
    for n in range(int(control["maxiter"])):
        if np.all(step < control["width"] * problem.scale):
            return Outcome(theta, True, "The steps became short.", n, "compass")
        tried = [problem.inside(theta + sign * d) for d in np.diag(step) for sign in (1, -1)]
        costs = [problem.cost(t) for t in tried]
        if min(costs) < value:
            theta, value = tried[int(np.argmin(costs))], min(costs)
            problem.note(theta, value)
        else:
            step = step / 2
    return Outcome(theta, False, limit_reached("maxiter", control["maxiter"]), int(control["maxiter"]), "compass")


@pytest.fixture
def added(monkeypatch):
    entry = Method(compass, {"maxiter": 1000, "width": 1e-7}, {"maxit": "maxiter"})
    monkeypatch.setitem(METHODS, "Compass", entry)
    return monkeypatch


def residuals(p):
    x = np.arange(5.0)
    return p["a"] + p["b"] * x - (1.0 + 2.0 * x)


def test_a_method_from_outside_fits_a_function(added):
    fit = fme.modFit(residuals, {"a": 0.3, "b": 0.5}, method="Compass", upper=[np.inf, 1.9])
    assert fit.converged, fit.message
    assert (fit.method, fit.engine) == ("Compass", "compass")
    np.testing.assert_allclose(fit.par, [1.2, 1.9], atol=1e-5)  # on the bound: a is the mean of 1 + 0.1 x


def test_a_method_from_outside_fits_a_cost(added):
    model = fme.OdeModel("d(x)/dt = -k * x\nx(0) = 2", times=[0, 1, 2, 3], parms={"k": 0.4})
    cost = fme.SimulationCost(model, model())
    fit = fme.modFit(cost, {"k": 0.7}, method="Compass")
    assert fit.par["k"] == pytest.approx(0.4, abs=1e-5)


def test_its_control_is_known_by_name(added):
    fit = fme.modFit(residuals, {"a": 0.3, "b": 0.5}, method="Compass", control={"maxit": 3})
    assert not fit.converged
    assert "maxiter" in fit.message
    with pytest.raises(ArgumentError, match=r"Compass has no 'wdth'\. Did you mean 'width'"):
        fme.modFit(residuals, {"a": 0.3, "b": 0.5}, method="Compass", control={"wdth": 3})


def test_taken_away_it_is_unknown_and_not_listed(added):
    added.undo()
    with pytest.raises(ArgumentError, match="method='Compass'") as told:
        fme.modFit(residuals, {"a": 0.3, "b": 0.5}, method="Compass")
    assert "'Marq'" in str(told.value)
