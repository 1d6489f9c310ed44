"""The stationary gain is that to which the filter of a FimlofCost converges."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fmepy.costs.prediction import PredictionErrorCost
from fmepy.errors import ArgumentError
from fmepy.fimlof import FimlofCost
from fmepy.fitting import modFit
from fmepy.models.difference import DifferenceModel
from fmepy.models.ode import OdeModel

DATA = pd.DataFrame(np.random.default_rng(0).normal(size=(200, 2)), columns=["s", "d"])
DATA.insert(0, "time", np.arange(200))


def steps_model():
    text = "next(x) = a * x + b * z + c\nnext(z) = 0.5 * z - 0.1 * x\ns = x + z\nd = x - 2 * z"
    return DifferenceModel(text, state={"x": 1, "z": 2}, times=np.arange(200), parms={"a": 0.9, "b": 0.2, "c": 0.1})


def spring(t, x, v, *, k=2.0, c=0.3, push=0.0):
    return v, -k * x - c * v + push


def swinging(**words):
    return OdeModel(spring, state={"x": 1, "v": 0}, times=np.linspace(0, 60, 301), **words)


def readings(model):
    rng = np.random.default_rng(1)
    return pd.DataFrame({"time": model.times, "x": model()["x"] + rng.normal(0, 0.3, len(model.times))})


def gain_of(cost):
    states, variables = list(cost.model.states), list(cost.comparison.group_names)
    K = np.zeros((len(states), len(variables)))
    for s, v, k in cost.stationary.gain:
        K[states.index(s), variables.index(v)] = k
    return K


CORRELATED = pd.DataFrame([[0.09, 0.05], [0.05, 0.49]], index=["s", "d"], columns=["s", "d"])


@pytest.mark.parametrize(
    ("process", "measurement", "every"),
    [
        ({"x": 0.5, "z": 0.1}, {"s": 0.3, "d": 0.7}, 1),
        ({"x": 0.5, "c": 0.2}, {"d": 0.7, "s": "a / 3"}, 3),
        (pd.DataFrame([[0.25, 0.1], [0.1, 0.2]], index=["x", "z"], columns=["x", "z"]), CORRELATED, 2),
    ],
)
def test_it_is_the_gain_to_which_the_filter_of_a_difference_equation_converges(process, measurement, every):
    words = {"process_noise": process, "measurement_noise": measurement}
    cost = PredictionErrorCost(steps_model(), DATA[::every], gain="stationary", **words)
    result = FimlofCost(steps_model(), DATA[::every], **words).filter()
    np.testing.assert_allclose(gain_of(cost), result.gains[-1], atol=1e-8)


@pytest.mark.parametrize("how", [{}, {"method": "rk4", "dt": 0.1}, {"method": "euler", "dt": 0.05}])
@pytest.mark.parametrize("process", [{"v": 0.5}, {"push": 0.5}])
def test_it_is_the_gain_to_which_the_filter_of_a_differential_equation_converges(how, process):
    model = swinging(**how)
    words = {"process_noise": process, "measurement_noise": {"x": 0.3}}
    cost = PredictionErrorCost(model, readings(model), gain="stationary", **words)
    result = FimlofCost(model, readings(model), **words).filter()
    np.testing.assert_allclose(gain_of(cost), result.gains[-1], atol=1e-8)
    last = result.residuals["sd"].iloc[-1]
    assert cost.stationary.sds["x"] == pytest.approx(last, rel=1e-8)
    of_filter = result.residuals["innovation"].to_numpy()[100:]
    np.testing.assert_allclose(-cost().residuals["res"][100:] * last, of_filter, atol=1e-5)


def test_an_observer_takes_the_variance_of_readings_as_a_density():
    model = swinging()
    words = {"process_noise": {"v": 0.5}, "measurement_noise": {"x": 0.3}}
    K = gain_of(PredictionErrorCost(model, readings(model), gain="stationary", form="observer", **words))
    F, H, density = np.array([[0, 1], [-2, -0.3]]), np.array([[1.0, 0.0]]), 0.09 * 0.2
    from scipy.linalg import solve_continuous_are

    P = solve_continuous_are(F.T, H.T, np.diag([0, 0.25]), [[density]])
    np.testing.assert_allclose(K, P @ H.T / density, rtol=1e-9)


def tanks(t, a, b, *, k=0.7, m=0.3, q=1.0):
    return q - k * np.sqrt(a), k * np.sqrt(a) - m * b


@pytest.mark.parametrize("form", ["innovation", "observer"])
def test_it_is_that_of_the_model_and_outputs_linearised_at_the_operating_point(form):
    """By scipy alone: sqrt and log have their slopes where the tanks rest, the noise of q enters by df/dq."""
    from scipy.integrate import quad_vec
    from scipy.linalg import expm, solve_continuous_are, solve_discrete_are

    times = np.linspace(0, 40, 101)
    model = OdeModel(tanks, state={"a": 1.0, "b": 1.0}, times=times, outputs={"la": "log(a)", "ab": "a * b"})
    data = pd.DataFrame({"time": times, "la": 0.7, "ab": 7.0})
    a, b = (1 / 0.7) ** 2, 1 / 0.3
    rest = {"operating_point": {"a": a, "b": b}, "measurement_noise": {"la": 0.05, "ab": 0.4}}
    if form == "observer":
        data.loc[10:19, "la"] = np.nan
    cost = PredictionErrorCost(model, data, gain="stationary", form=form, process_noise={"q": 0.3, "b": 0.1}, **rest)
    slope = 0.35 / np.sqrt(a)
    F, Q = np.array([[-slope, 0], [slope, -0.3]]), np.diag([0.09, 0.01])
    H, R = np.array([[1 / a, 0], [b, a]]), np.diag([0.05**2, 0.4**2])
    if form == "observer":
        density = R * [40 / 90, 40 / 100]
        P = solve_continuous_are(F.T, H.T, Q, density)
        K = P @ H.T @ np.linalg.inv(density)
    else:
        S = quad_vec(lambda s: expm(F * s) @ Q @ expm(F * s).T, 0, 0.4)[0]
        P = solve_discrete_are(expm(F * 0.4).T, H.T, S, R)
        K = P @ H.T @ np.linalg.inv(H @ P @ H.T + R)
    np.testing.assert_allclose(gain_of(cost), K, rtol=1e-9)
    sds = [cost.stationary.sds[name] for name in ("la", "ab")]
    np.testing.assert_allclose(sds, np.sqrt(np.diag(H @ P @ H.T + R)), rtol=1e-9)


def test_errors_of_several_steps_have_the_variance_of_so_many():
    model = swinging()
    words = {"process_noise": {"v": 0.5}, "measurement_noise": {"x": 0.3}, "gain": "stationary"}
    sds = [PredictionErrorCost(model, readings(model), steps=k, **words).stationary.sds["x"] for k in (1, 2, 3, 200)]
    assert sds[0] < sds[1] < sds[2] < sds[3]
    free = 0.25 / (2 * 0.3 * 2)  # the variance of x in the long run, S / (2 c k)
    assert sds[3] == pytest.approx(np.sqrt(free + 0.09), rel=1e-3)


def test_a_fit_by_the_stationary_gain_is_close_to_that_of_the_filter():
    model, rng = swinging(method="rk4"), np.random.default_rng(5)
    x, seen = np.array([1.0, 0.0]), []
    for _ in model.times:
        seen.append(x[0] + rng.normal(0, 0.1))
        for _ in range(20):
            x = x + 0.01 * np.array([x[1], -2 * x[0] - 0.3 * x[1]]) + [0, rng.normal(0, 0.5 * 0.1)]
    data = pd.DataFrame({"time": model.times, "x": seen})
    words = {"process_noise": {"v": 0.5}, "measurement_noise": {"x": 0.1}}
    ours = modFit(PredictionErrorCost(model, data, gain="stationary", **words), {"k": 1.5, "c": 0.5})
    best = modFit(FimlofCost(model, data, **words), {"k": 1.5, "c": 0.5})
    np.testing.assert_allclose(ours.par, best.par, rtol=0.1)  # a fraction of their standard errors
    assert ours.minus2loglik == pytest.approx(best.minus2loglik, abs=5.0)


def pendulum(t, theta, omega, *, L=1.0, g=9.82):
    return omega, -g / L * np.sin(theta)


SWING = {"times": np.linspace(0, 4, 41), "outputs": {"y": "theta"}}
NOISE = {"process_noise": {"omega": 0.2}, "measurement_noise": {"y": 0.1}, "gain": "stationary"}


def test_a_nonlinear_model_needs_a_point_to_be_linearised_at():
    data = {"time": SWING["times"], "y": np.zeros(41)}
    away = OdeModel(pendulum, state={"theta": 0, "omega": 3}, **SWING)
    with pytest.raises(ArgumentError, match=r"operating_point=\{'theta': ..., 'omega': ...\}"):
        PredictionErrorCost(away, data, **NOISE)
    at = PredictionErrorCost(away, data, operating_point={"omega": 0.0}, **NOISE)
    rest = PredictionErrorCost(OdeModel(pendulum, state={"theta": 0, "omega": 0}, **SWING), data, **NOISE)
    assert at.stationary.gain == rest.stationary.gain


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({"process_noise": None}, "say process_noise"),
        ({"measurement_noise": None}, "says nothing of 'x'"),
        ({"process_noise": {"v": "estimate"}}, "is to be estimated"),
        ({"process_noise": {"w": 1.0}}, "'w' is not a state or parameter"),
        ({"measurement_noise": {"x": "sd"}}, "'sd', which has no value"),
        ({"operating_point": {"y": 1.0}}, "'y' is not a state"),
        ({"operating_point": 1.0}, "a dict of states"),
        ({"operating_point": {"x": "a"}}, "a finite number"),
        ({"transform": "sqrt"}, "leave `transform` out"),
        ({"measurement_noise": {"x": 0.0}, "form": "observer"}, "above zero"),
        ({"gain": {"x": 1.0}}, "`process_noise` is what gain='stationary'"),
    ],
)
def test_what_a_stationary_gain_lacks_is_told(words, told):
    model = swinging()
    given = {"gain": "stationary", "process_noise": {"v": 0.5}, "measurement_noise": {"x": 0.3}}
    with pytest.raises(ArgumentError, match=told):
        PredictionErrorCost(model, readings(model).abs(), **(given | words))


def test_uneven_samples_have_no_gain_per_sample():
    model = swinging()
    words = {"gain": "stationary", "process_noise": {"v": 0.5}, "measurement_noise": {"x": 0.3}}
    with pytest.raises(ArgumentError, match="form='observer'"):
        PredictionErrorCost(model, readings(model).drop(index=3), **words)
    assert PredictionErrorCost(model, readings(model).drop(index=3), form="observer", **words)().model > 0
