"""Sensitivities of systems of modules: exact where the steps are equations, else by differences."""

import numpy as np
import pytest

import fmepy as fme
from fmepy.models.simulated import BoundRuns

FISHERY = """
growth = r * N * (1 - N / K)
d(N)/dt = growth - catch
catch = q * table(t, [0, 5, 10], [0, 1, 2])
N(0) = N0
output catch, growth
"""
LOOP = """
d(N)/dt = r * N - loss
loss = 0.1 * (N + 0.5 * back)
back = loss
N(0) = N0
"""


def model(text, **values):
    return fme.dmi.ModularModel([fme.dmi.Module("m", text)], values, times=np.arange(0, 11.0), dt=0.25)


@pytest.mark.parametrize("names", [["r", "K", "q", "N0"], ["q", "r"]])
def test_sensitivities_of_modules_are_exact(names):
    bound = model(FISHERY, r=0.5, K=10, q=0.1, N0=1.0).bind(names)
    assert bound.exact
    Y, S = bound.sensitivities(bound.theta0)
    np.testing.assert_array_equal(Y, bound.simulate(bound.theta0))
    by_differences = BoundRuns.sensitivities(bound, bound.theta0)[1]
    np.testing.assert_allclose(S, by_differences, rtol=1e-6, atol=1e-8 * np.abs(S).max())
    assert not np.array_equal(S, by_differences)


def test_a_start_from_the_data_base_has_its_sensitivity():
    bound = model("d(N)/dt = r * N", r=0.1, N=2.0).bind(["N"])
    assert bound.exact
    np.testing.assert_allclose(bound.sensitivities(bound.theta0)[1][-1, 0, 0], 1.025**40, rtol=1e-12)


def test_a_loop_has_sensitivities_by_differences():
    bound = model(LOOP, r=0.2, N0=1.0).bind()
    assert not bound.exact
    assert np.isfinite(bound.sensitivities(bound.theta0)[1]).all()
