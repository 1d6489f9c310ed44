"""Steady profiles of functions that are compiled as loops over arrays: the same states, exact derivatives."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import fmepy as fme
from tests.plain import plain

N = 40
GRID = fme.Grid1D(np.linspace(0, 6, N + 1))
PARMS = {"D": 1.2, "k": 0.7, "top": 3.0, "q": 1.5}


def reacting(t, A, B, *, D=1.2, k=0.7, top=3.0, q=1.5):
    flow = [fme.transport_1d(C, GRID, D=D, v=0.1, up=up) for C, up in ((A, top), (B, 0.2))]
    used = np.where(A > 0.5, k * A**q, k * 0.5 ** (q - 1) * A)
    return (flow[0].rate - used, flow[1].rate + used - 0.3 * B), {"in": flow[0].flux[0], "used": used, "one": 1.0}


def untraced(of):
    out = of.replace()
    out._definition = replace(out._definition, arrays=None)
    return out


@pytest.fixture(scope="module")
def profile():
    return fme.SteadyModel(reacting, state={"A": 1.0, "B": 0.5}, grid=GRID, outputs={"ratio": "B / (A + used)"})


def test_the_profiles_are_those_of_the_python_function(profile):
    assert profile.engine_note == "a function of profiles is compiled as loops over arrays"
    np.testing.assert_allclose(profile().to_numpy(), untraced(profile)().to_numpy(), rtol=1e-6, atol=1e-9)


def test_sensitivities_of_states_extras_and_outputs_are_derivatives(profile):
    given = profile.replace(rtol=1e-11, atol=1e-13, ctol=1e-13)
    bound, h = given.bind(), 1e-5
    S = bound.sensitivities(bound.theta0)[1]
    assert S.shape == (N, 6, 4)
    found = [(bound.simulate(bound.theta0 + h * e) - bound.simulate(bound.theta0 - h * e)) / (2 * h) for e in np.eye(4)]
    np.testing.assert_allclose(S, np.stack(found, axis=-1), atol=1e-7 * np.abs(S).max())
    np.testing.assert_allclose(S, untraced(given).bind().sensitivities(bound.theta0)[1], atol=1e-5 * np.abs(S).max())


def test_a_vector_function_without_a_grid_has_them_too():
    def decaying(t, C, p):
        return fme.transport_1d(C, GRID, D=p["D"], up=p["top"], flux_down=0.0).rate - p["k"] * C, {"first": C[0] ** 2}

    model = fme.SteadyModel(decaying, state=np.ones(N), parms={"D": 1.0, "k": 0.5, "top": 2.0}, rtol=1e-10, atol=1e-12)
    bound = model.bind()
    Y, S = bound.sensitivities(bound.theta0)
    np.testing.assert_allclose(S[0, :, 2], Y[0] / 2 * np.r_[np.ones(N), 2], rtol=1e-9)  # linear in what stands above
    np.testing.assert_allclose(S[0, :, 0] * 1.0, -S[0, :, 1] * 0.5, rtol=1e-9, atol=1e-13)  # of D / k alone


def test_what_a_function_of_profiles_decides_by_is_told():
    def deciding(t, C, *, k=0.5):
        return fme.transport_1d(C, GRID, D=1.0, up=1.0).rate - (k if plain(C.min()) > 0 else 0.0) * C

    model = fme.SteadyModel(deciding, state={"C": 1.0}, grid=GRID)
    assert "leave float() out" in model.engine_note
    assert "derivatives are differences of the rates" in model.engine_note
    assert np.isfinite(model().to_numpy()).all()


def test_a_negative_diffusion_is_refused_as_the_function_refuses_it(profile):
    with pytest.raises(fme.errors.NoSteadyStateError, match="`D` must not be negative"):
        profile({"D": -1.0})


def test_profiles_are_fitted_screened_and_sampled_alike(profile):
    data = profile({"D": 0.9, "k": 1.1}).rename(columns={"x": "depth"})[["depth", "A", "B"]]
    cost = fme.SimulationCost(profile, data, x="depth")
    fit = fme.modFit(cost, p={"D": 1.2, "k": 0.7}, lower=0)
    np.testing.assert_allclose(fit.par[["D", "k"]], [0.9, 1.1], rtol=1e-5)
    one, two = (
        fme.sensRange(profile, parRange={"k": (0.5, 1)}, num=3, seed=1, sensvar="A", executor=e) for e in (None, 2)
    )
    np.testing.assert_allclose(one.values, two.values, rtol=1e-12)
