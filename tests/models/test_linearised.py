"""A model at a point as a linear one, from equations and from a function alike."""

from __future__ import annotations

import numpy as np
import pytest

from fmepy.models.difference import DifferenceModel
from fmepy.models.linearised import linearised
from fmepy.models.ode import OdeModel
from tests.plain import plain


def pendulum(t, theta, omega, *, L=0.5, g=9.82):
    return omega, -g / L * np.sin(theta)


def untraceable(t, theta, omega, *, L=0.5, g=9.82):
    speed = omega if plain(omega) < 1e9 else 1e9  # an `if` on a state cannot be traced
    return pendulum(t, theta, speed, L=L, g=g), {"y": 2 * theta}


@pytest.mark.parametrize("function", [pendulum, untraceable])
def test_slopes_are_those_by_hand(function):
    outputs = {"y": "2 * theta"} if function is pendulum else {}
    model = OdeModel(function, state={"theta": 1, "omega": 0}, times=[0, 1], outputs=outputs)
    assert (model.equations is None) == (function is untraceable)
    p = np.array([0.5, 9.82])
    near = linearised(model.definition, np.array([0.3, 0.7]), p, 0.0, ["y", "omega"], ["omega", "L"])
    np.testing.assert_allclose(near.F, [[0, 1], [-9.82 / 0.5 * np.cos(0.3), 0]], atol=1e-8)
    np.testing.assert_allclose(near.H, [[2, 0], [0, 1]], atol=1e-8)
    np.testing.assert_allclose(near.G, [[0, 0], [1, 9.82 / 0.25 * np.sin(0.3)]], atol=1e-7)
    np.testing.assert_allclose(near.rest, [0.7, -9.82 / 0.5 * np.sin(0.3)], rtol=1e-12)
    assert not near.is_linear


def test_what_is_linear_says_so():
    model = DifferenceModel("next(x) = a * x + b", state={"x": 1}, times=[0, 1], parms={"a": 0.5, "b": 2.0})
    near = linearised(model.definition, np.array([3.0]), np.array([0.5, 2.0]), 0.0, ["x"], ["b"])
    assert near.is_linear
    assert near.rest[0] == pytest.approx(0.5)  # x moves from 3 to 3.5
    assert not linearised(model.definition, np.array([3.0]), np.array([0.5, 2.0]), 0.0, ["x"], ["a"]).is_linear


@pytest.mark.parametrize(("text", "is_linear"), [("1 - 0.2*x", True), ("where(x > 3, 0.6, 2.0) - 0.2*x", False)])
def test_a_choice_between_constants_is_not_linear(text, is_linear):
    model = OdeModel(f"d(x)/dt = {text}", state={"x": 1.0}, times=[0, 1])
    near = linearised(model.definition, np.array([1.0]), np.empty(0), 0.0, ["x"])
    assert near.is_linear is is_linear
