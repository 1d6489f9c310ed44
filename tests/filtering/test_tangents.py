"""Derivatives that go along with a pass are those of the pass."""

import numpy as np
import pytest

import fmepy as fme
from fmepy.filtering import run
from fmepy.fimlof import bound_filter
from tests.filtering.problems import accumulator_cost, ar1_cost, logistic_cost, oscillator_cost
from tests.filtering.test_fixed_steps import pendulum


def shaken(t, x, v, u, *, k, c, kick):
    return v, -k * x - c * v + u


def events():
    """Return a model with all events, a forcing, missing and repeated readings, errors that depend on the state."""
    changes = [
        {"var": "v", "time": 1.5, "value": "kick", "method": "add"},
        {"var": "x", "time": 2.5, "value": "kick", "method": "multiply"},
        {"var": "v", "time": 3.5, "value": "0.3 * kick", "method": "replace"},
    ]
    model = fme.OdeModel(
        shaken, state={"x": "0.5 * kick", "v": 0.1}, times=np.arange(0, 6.1, 0.5),
        parms={"k": 2.0, "c": 0.3, "kick": 1.4}, forcings={"u": ([0, 1.2, 3.0, 6.0], [0.0, 1.0, -0.5, 0.2])},
        events=changes, outputs={"y": "x * v + x"},
    )  # fmt: skip
    data = {"time": [0.5, 1, 1.5, 2.5, 2.5, 4, 6], "x": [0.6, 0.2, np.nan, 0.4, 0.5, -0.2, 0.3],
            "y": [0.3, np.nan, 0.1, 0.2, 0.6, np.nan, 0.4]}  # fmt: skip
    return fme.FimlofCost(
        model, data, process_noise={"v": "s"}, measurement_noise={"x": 0.2, "y": "0.1 + 0.1 * x**2"},
        parms={"s": 0.4}, initial_sd={"x": "0.2 * kick"}, propagation="rk4", dt=0.1,
    )  # fmt: skip


def estimated(function=None, **options):
    return logistic_cost(sd_w="a", sd_v="b", parms={"a": 2.0, "b": 3.0}, **options)


@pytest.mark.parametrize(
    "make",
    [
        ar1_cost,
        accumulator_cost,
        estimated,
        events,
        lambda: pendulum(propagation="rk4", dt=0.1),
        lambda: oscillator_cost(),
    ],
    ids=["ar1", "accumulator", "logistic", "events", "pendulum", "exact"],
)
@pytest.mark.parametrize("rough", [False, True])
def test_they_are_the_differences_of_passes(monkeypatch, make, rough):
    bound = make().bind()
    theta = bound.theta0
    used = []
    whole = bound_filter.innovation_slopes
    monkeypatch.setattr(bound_filter, "innovation_slopes", lambda *a: used.append(1) or whole(*a))
    ours = bound.sensitivity_rows(theta)[2]
    assert used
    _, found = bound._derivatives(theta, rough)
    bound._remembered = None
    monkeypatch.setattr(bound_filter, "has_tangents", lambda scheme: False)
    theirs = bound.sensitivity_rows(theta)[2]
    bound._remembered = None
    _, expected = bound._derivatives(theta, rough)
    np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6 * np.abs(theirs).max())
    for one, other in zip(found, expected, strict=True):
        for a, b in zip(one[:2], other[:2], strict=True):
            np.testing.assert_allclose(
                a, b, rtol=1e-3 if rough else 1e-6, atol=(1e-4 if rough else 1e-6) * np.abs(b).max()
            )


def test_parts_of_the_parameters_give_the_same_bits(monkeypatch):
    bound = events().bind()
    together = bound.score(bound.theta0)
    bound._remembered = None
    monkeypatch.setattr(run, "TOGETHER", 2)
    np.testing.assert_array_equal(bound.score(bound.theta0), together)
