"""Errors of prediction: what a textbook loop gives, its limits, the pendulum, and what goes with every other cost."""

from __future__ import annotations

import json
import pickle
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fmepy.costs.prediction import PredictionErrorCost
from fmepy.costs.simulation import SimulationCost
from fmepy.errors import ArgumentError, DataError, ModelError
from fmepy.fitting import modFit
from fmepy.models.difference import DifferenceModel
from fmepy.models.ode import OdeModel
from tests.plain import plain

PENDULUM = json.loads((Path(__file__).parents[1] / "reference/fimlof/pendulum.json").read_text())
TIMES = np.linspace(0.1, 20, 1000)
GAINS = {"theta": {"y": 0.3}, "omega": {"y": 0.5}}


def pendulum(t, theta, omega, *, L=0.7, g=9.82):
    return omega, -g / L * np.sin(theta)


def swing(**words):
    state = {"theta": 0, "omega": 3}
    return OdeModel(pendulum, state=state, times=words.pop("times", TIMES), outputs={"y": "theta"}, **words)


def readings(noise=0.0, every=1):
    y = np.array(PENDULUM["y"]) + noise * np.array(PENDULUM["noise_0p1"]["noise"]) / 0.1
    return pd.DataFrame({"time": TIMES, "y": y})[::every].reset_index(drop=True)


def two_states(n, x, z, *, a=0.9, b=0.2, c=0.5):
    return a * x + b * z, c * z - 0.1 * x


def steps_model(**words):
    given = {"state": {"x": 1, "z": 2}, "times": np.arange(13), "outputs": {"s": "x + z", "d": "x - 2*z"}}
    return DifferenceModel(two_states, **(given | words))


def steps_data():
    rng = np.random.default_rng(3)
    data = pd.DataFrame({"time": np.arange(13), "s": rng.normal(2, 1, 13), "d": rng.normal(0, 1, 13)})
    data.loc[[2, 5], "s"] = np.nan
    data.loc[[5, 8, 9], "d"] = np.nan
    return data


K_STEPS = {"x": {"s": 0.4, "d": 0.1}, "z": {"s": 0.2, "d": -0.3}}


def by_hand(data, K, steps=1, a=0.9, b=0.2, c=0.5):
    """Predict, score, correct, in plain Python: the predictions of so many samples ahead, at every time."""
    F, H = np.array([[a, b], [-0.1, c]]), np.array([[1.0, 1.0], [1.0, -2.0]])
    x, corrected, out = np.array([1.0, 2.0]), [], []
    for n, y in enumerate(data[["s", "d"]].to_numpy()):
        x = x if n == 0 else F @ x
        if steps == 1:
            out.append(H @ x)
        elif len(corrected) < steps or np.isnan(y).all():
            out.append(np.full(2, np.nan))
        else:
            before, start = corrected[-steps]
            out.append(H @ np.linalg.matrix_power(F, n - before) @ start)
        if not np.isnan(y).all():
            x = x + K @ np.where(np.isnan(y), 0.0, y - H @ x)
            corrected.append((n, x))
    return np.array(out)


def in_rows(table, data):
    return np.concatenate([table[~np.isnan(data[v].to_numpy()), j] for j, v in enumerate(["s", "d"])])


# --- by hand


@pytest.mark.parametrize("engine", ["compiled", "python"])
def test_difference_equations_are_corrected_as_by_hand(engine):
    data, K = steps_data(), pd.DataFrame(K_STEPS).T.to_numpy()
    cost = PredictionErrorCost(steps_model(engine=engine), data, gain=K_STEPS)
    np.testing.assert_allclose(cost().residuals["mod"], in_rows(by_hand(data, K), data), rtol=1e-12)
    matrix = PredictionErrorCost(steps_model(engine=engine), data, gain=K)
    np.testing.assert_array_equal(matrix().residuals["mod"], cost().residuals["mod"])


def kicked(t, x, v, *, k=2.0, c=0.3):
    return v, -k * x - c * v


def untraceable(t, x, v, *, k=2.0, c=0.3):
    if plain(x) > 1e9:  # an `if` on a state cannot be traced
        return 0.0, 0.0
    return (v, -k * x - c * v), {"p": x + 0.1 * v}


@pytest.mark.parametrize("engine", ["auto", "scipy", "rk4", "function"])
def test_differential_equations_are_corrected_at_every_sample(engine):
    times, rng = np.array([0.0, 0.3, 0.5, 1.1, 1.6, 2.0]), np.random.default_rng(0)
    words = {"state": {"x": 1, "v": 0}, "times": times, "rtol": 1e-10, "atol": 1e-12}
    if engine == "function":
        model = OdeModel(untraceable, **words)
    else:
        how = {"method": "rk4", "dt": 0.002} if engine == "rk4" else {"engine": engine}
        words = words if engine != "rk4" else {k: v for k, v in words.items() if k not in ("rtol", "atol")}
        model = OdeModel(kicked, outputs={"p": "x + 0.1*v"}, **words, **how)
    y = rng.normal(0, 1, 6)
    cost = PredictionErrorCost(model, {"time": times, "p": y}, gain=[0.5, -0.4])
    from scipy.linalg import expm

    A, x, expected = np.array([[0, 1], [-2, -0.3]]), np.array([1.0, 0.0]), []
    for i, t in enumerate(times):
        x = x if i == 0 else expm(A * (t - times[i - 1])) @ x
        expected.append(x[0] + 0.1 * x[1])
        x = x + np.array([0.5, -0.4]) * (y[i] - expected[-1])
    np.testing.assert_allclose(cost().residuals["mod"], expected, rtol=1e-7)


@pytest.mark.parametrize("function", [kicked, untraceable])
def test_an_observer_solves_the_corrected_equations(function):
    from scipy.integrate import solve_ivp

    times, y = np.array([0.0, 0.4, 1.0, 1.7, 2.2, 3.0]), np.array([np.nan, 0.9, 0.1, np.nan, -0.8, np.nan])
    words = {"outputs": {"p": "x + 0.1*v"}} if function is kicked else {}
    model = OdeModel(function, state={"x": 1, "v": 0}, times=times, rtol=1e-10, atol=1e-12, **words)
    cost = PredictionErrorCost(model, {"time": times, "p": y}, gain={"x": 2.0, "v": -1.0}, form="observer")

    def rates(t, z):  # outside the readings of the variable there is no correction
        e = np.interp(t, [0.4, 1.0, 2.2], [0.9, 0.1, -0.8]) - z[0] - 0.1 * z[1] if 0.4 <= t <= 2.2 else 0.0
        return [z[1] + 2 * e, -2 * z[0] - 0.3 * z[1] - e]

    z, expected = np.array([1.0, 0.0]), []
    for a, b in zip([0.0, 0.4, 1.0], [0.4, 1.0, 2.2], strict=True):
        z = solve_ivp(rates, (a, b), z, rtol=1e-11, atol=1e-12, max_step=0.05).y[:, -1]
        expected.append(z[0] + 0.1 * z[1])
    np.testing.assert_allclose(cost().residuals["mod"], expected, atol=3e-6)


UNEVEN = np.array([0.0, 0.13, 0.4, 1.1, 1.2, 1.9, 2.35, 2.9, 3.0, 3.8, 4.4, 5.0])
U_AT, U_IS = np.array([0.0, 1.5, 3.0, 6.0]), np.array([0.1, 0.4, 0.0, 0.3])
CHAIN_GAIN = np.array([[0.3, 0.2], [0.1, 0.15], [0.05, 0.1]])


def chain(t, x, y, z, u, *, a=1.2, b=0.7):
    return a * x * (1 - x / 3) - b * x * y / (1 + x) + u, 0.5 * b * x * y - 0.3 * y * z, 0.1 * y * z - 0.05 * z


def chain_outputs(s):
    return np.array([s[0] * s[1], np.log(1 + s[2]) + 0.1 * s[0]])


def chain_by_hand(Y, K, steps=1, observer=False):
    """The predictions at every time: between samples an ODE in small pieces, none of which holds a kink or an event."""
    from scipy.integrate import solve_ivp

    def rates(t, s):
        f = np.array(chain(t, *s, np.interp(t, U_AT, U_IS)))
        if not observer:
            return f
        seen = [np.flatnonzero(~np.isnan(y)) for y in Y.T]
        e = [
            np.interp(t, UNEVEN[at], y[at]) - h if UNEVEN[at[0]] <= t <= UNEVEN[at[-1]] else 0.0
            for y, at, h in zip(Y.T, seen, chain_outputs(s), strict=True)
        ]
        return f + K @ e

    def carried(s, i):
        knots = sorted({*UNEVEN[i : i + 2], *(t for t in (1.5, 2.6) if UNEVEN[i] < t < UNEVEN[i + 1])})
        for begin, end in pairwise(knots):
            if begin in (1.2, 2.6):  # the events: y at a sample, behind its correction, and x between two
                s = s * [1, 0.8, 1] if begin == 1.2 else np.add(s, [0.5, 0, 0])
            inside = (begin + 1e-12, end - 1e-12)
            s = solve_ivp(lambda t, s, a=inside: rates(np.clip(t, *a), s), (begin, end), s, "DOP853", rtol=1e-11,
                          atol=1e-12).y[:, -1]  # fmt: skip
        return s

    s, corrected, out = np.array([1.0, 0.5, 0.4]), [], np.full(Y.shape, np.nan)
    for i, y in enumerate(Y):
        s = carried(s, i - 1) if i else s
        is_sample = not np.isnan(y).all()
        if steps == 1:
            out[i] = chain_outputs(s)
        elif is_sample and len(corrected) >= steps:
            k, ahead = corrected[-steps]
            for j in range(k, i):
                ahead = carried(ahead, j)
            out[i] = chain_outputs(ahead)
        if is_sample and not observer:
            s = s + K @ np.where(np.isnan(y), 0.0, y - chain_outputs(s))
        if is_sample:
            corrected.append((i, s))
    return out


@pytest.mark.parametrize("how", [{"steps": 1}, {"steps": 3}, {"form": "observer"}])
def test_two_outputs_missing_readings_uneven_samples_a_forcing_and_events(how):
    rng = np.random.default_rng(11)
    data = pd.DataFrame({"time": UNEVEN, "p": rng.uniform(0.4, 0.8, 12), "q": rng.uniform(0.4, 0.6, 12)})
    data.loc[[0, 3, 6, 7, 11], "p"] = np.nan
    data.loc[[2, 6, 9], "q"] = np.nan  # the readings of p end before those of q; of sample 7 there are none
    events = [{"var": "x", "time": 2.6, "value": 0.5, "method": "add"},
              {"var": "y", "time": 1.2, "value": 0.8, "method": "multiply"}]  # fmt: skip
    model = OdeModel(chain, state={"x": 1.0, "y": 0.5, "z": 0.4}, times=UNEVEN, forcings={"u": (U_AT, U_IS)},
                     events=events, outputs={"p": "x * y", "q": "log(1 + z) + 0.1 * x"}, rtol=1e-9,
                     atol=1e-11)  # fmt: skip
    found = PredictionErrorCost(model, data, gain=CHAIN_GAIN, **how)().residuals
    Y = data[["p", "q"]].to_numpy()
    expected = chain_by_hand(Y, CHAIN_GAIN, how.get("steps", 1), "form" in how)
    expected = np.where(np.isnan(Y), np.nan, expected).T.ravel()
    np.testing.assert_allclose(found["mod"], expected[~np.isnan(expected)], rtol=1e-7)


@pytest.mark.parametrize("engine", ["compiled", "python"])
@pytest.mark.parametrize("steps", [2, 4])
def test_predictions_of_several_steps_know_nothing_of_the_last_samples(engine, steps):
    data, K = steps_data(), pd.DataFrame(K_STEPS).T.to_numpy()
    cost = PredictionErrorCost(steps_model(engine=engine), data, gain=K_STEPS, steps=steps)
    samples = data.drop(index=5)["time"].to_numpy()  # at 5 nothing was read
    late = data["time"] >= samples[steps]
    kept = data.where(late)
    np.testing.assert_allclose(cost().residuals["mod"], in_rows(by_hand(data, K, steps), kept), rtol=1e-10)
    assert (cost().residuals["x"] >= samples[steps]).all()


def test_predictions_of_several_steps_of_differential_equations():
    times, y, K = np.arange(8.0), np.sin(np.arange(8.0)), np.array([0.5, -0.4])
    words = {"state": {"x": 1, "v": 0}, "times": times, "rtol": 1e-10, "atol": 1e-12}
    expected = []
    from scipy.linalg import expm

    Phi, x, starts = expm(np.array([[0, 1], [-2, -0.3]])), np.array([1.0, 0.0]), []
    for i in range(8):
        x = x if i == 0 else Phi @ x
        x = x + K * (y[i] - x[0])
        starts.append(x)
        if i >= 3:
            expected.append((np.linalg.matrix_power(Phi, 3) @ starts[i - 3])[0])
    for function in (kicked, untraceable):
        cost = PredictionErrorCost(OdeModel(function, **words), {"time": times, "x": y}, gain=K, steps=3)
        np.testing.assert_allclose(cost().residuals["mod"], expected, rtol=1e-7)


def test_missing_replicate_and_censored_readings_correct_as_they_should():
    model = DifferenceModel("next(x) = a * x", state={"x": 4.0}, times=np.arange(4), parms={"a": 0.5})
    data = {"time": [0, 1, 1, 2, 3], "x": [4.0, 3.0, 2.0, 9.0, 1.0]}
    for limit, mark in ((9.0, "<"), (0.5, ">")):
        data |= {"mark": ["", "", "", mark, ""], "x": [4.0, 3.0, 2.0, limit, 1.0]}
        cost = PredictionErrorCost(model, data, gain=0.5, measurement_noise={"x": 1.0}, censored="mark")
        # at 1 the mean 2.5 corrects the prediction 2 to 2.25; at 2 nothing is known but a limit
        np.testing.assert_allclose(cost().residuals["mod"], [4, 2, 2, 1.125, 0.5625])


def test_events_of_the_model_come_after_the_correction():
    def still(t, x):
        return 0 * x

    events = [{"var": "x", "time": 1, "value": "x / 2"}, {"var": "x", "time": 1, "value": 1, "method": "add"}]
    for steps, expected in ((1, [1, 3, 5]), (2, [2.5])):
        model = OdeModel(still, state={"x": 1}, times=[0, 1, 2], events=events)
        cost = PredictionErrorCost(model, {"time": [0, 1, 2], "x": [5, 13, 0]}, gain=0.5, steps=steps)
        # x(1) = 1 + (5 - 1)/2 = 3; corrected 8, halved and plus one 5; two steps ahead 3 is halved, and plus one
        np.testing.assert_allclose(cost().residuals["mod"], expected, rtol=1e-6)


# --- limits


@pytest.mark.parametrize("kind", ["difference", "rk4", "solver", "observer"])
def test_small_gains_converge_to_the_simulation_at_first_order_by_the_same_code(kind):
    form = "observer" if kind == "observer" else "innovation"
    if kind == "difference":
        model, data, gain = steps_model(), steps_data(), K_STEPS
    else:
        how = {"method": "rk4"} if kind == "rk4" else {"rtol": 1e-10, "atol": 1e-12}
        model, data, gain = swing(times=TIMES[:100], **how), readings(every=7)[:12], GAINS
    simulated = SimulationCost(model, data)
    bound = simulated.bind()
    r = bound.residuals(bound.theta0)

    def of(scale):
        scaled = {s: {v: k * scale for v, k in row.items()} for s, row in gain.items()}
        return PredictionErrorCost(model, data, gain=scaled, form=form).bind()

    away = [np.abs(of(k).residuals(bound.theta0) - r).max() for k in (1e-2, 1e-4, 1e-6)]
    assert away[0] > 1e-5
    np.testing.assert_allclose(np.diff(np.log10(away)), -2.0, atol=0.02)
    zero = of(0.0)
    np.testing.assert_allclose(zero.residuals(zero.theta0), r, atol=1e-13 if kind in ("difference", "rk4") else 1e-7)
    np.testing.assert_allclose(zero.jacobian(zero.theta0), bound.jacobian(bound.theta0), atol=1e-5, rtol=1e-5)


# --- the pendulum


def losses(cost, lengths):
    bound = cost.bind(["L"])
    return np.array([np.mean(bound.residuals(np.array([length])) ** 2) for length in lengths])


def minima(lengths, loss):
    inner = (loss[1:-1] < loss[:-2]) & (loss[1:-1] < loss[2:])
    return np.round(lengths[1:-1][inner], 2).tolist()


def test_the_pendulum_has_one_minimum_of_prediction_and_seventeen_of_simulation():
    lengths, data, model = np.array(PENDULUM["L_grid"]), readings(), swing(rtol=1e-9, atol=1e-9, engine="explicit")
    predicted = losses(PredictionErrorCost(model, data, gain={"theta": {"y": 1.0}}, form="observer"), lengths)
    np.testing.assert_allclose(predicted, PENDULUM["prediction_loss_K1"], atol=PENDULUM["tolerances"]["loss_abs"])
    assert minima(lengths, predicted) == PENDULUM["local_minima_on_grid"]["prediction"] == [1.0]
    simulated = losses(SimulationCost(model, data), lengths)
    np.testing.assert_allclose(simulated, PENDULUM["simulation_loss"], atol=PENDULUM["tolerances"]["loss_abs"])
    assert minima(lengths, simulated) == PENDULUM["local_minima_on_grid"]["simulation"]
    low, high = PENDULUM["descent_basin_around_1"]["prediction"]
    inside = (lengths >= low) & (lengths <= high)
    assert (np.diff(predicted[inside & (lengths <= 1)]) < 0).all()
    assert (np.diff(predicted[inside & (lengths >= 1)]) > 0).all()


def test_the_pendulums_length_is_found_by_prediction_alone():
    reference = PENDULUM["estimates_noise_free_from_0p7"]
    fit = modFit(SimulationCost(swing(rtol=1e-8), readings()), ["L"])
    assert fit.par["L"] == pytest.approx(reference["sim_lm"]["L"], abs=1e-4)
    fit = modFit(PredictionErrorCost(swing(), readings(), gain={"theta": {"y": 1.0}}, form="observer"), ["L"])
    assert fit.par["L"] == pytest.approx(reference["pred_K1_lm"]["L"], abs=1e-8)
    assert fit.ssr / 1000 == pytest.approx(reference["pred_K1_lm"]["mse"], rel=1e-4)
    causal = modFit(PredictionErrorCost(swing(), readings(), gain=GAINS), ["L"])
    assert causal.par["L"] == pytest.approx(1.0, abs=1e-6)
    noisy, reference = readings(0.1), PENDULUM["noise_0p1"]
    fit = modFit(PredictionErrorCost(swing(), noisy, gain={"theta": {"y": 1.0}}, form="observer"), ["L"])
    assert fit.par["L"] == pytest.approx(reference["prediction_K1"]["L"], abs=1e-7)
    assert fit.ssr / 1000 == pytest.approx(reference["prediction_K1"]["mse"], rel=1e-6)


def test_fitted_gains_of_the_causal_form_are_near_zero_where_there_is_no_process_noise():
    gain = {"theta": {"y": "K1"}, "omega": {"y": "K2"}}
    cost = PredictionErrorCost(swing(), readings(0.1), gain=gain, parms={"K1": 0.1, "K2": 0.1})
    assert cost.parms.index.tolist() == ["L", "g", "K1", "K2"]
    fit = modFit(cost, ["L", "K1", "K2"])
    assert fit.par["L"] == pytest.approx(0.9998, abs=0.0024)
    np.testing.assert_allclose(fit.par[["K1", "K2"]], 0.0, atol=0.05)
    assert fit.ssr / 1000 == pytest.approx(0.1**2, rel=0.05)  # the noise is not fitted away


def test_derivatives_to_parameters_and_gains_are_exact():
    gain = {"theta": {"y": "K1"}, "omega": {"y": "L * K2"}}
    data, model = readings(0.1)[:60], swing(times=TIMES[:60], rtol=1e-9, atol=1e-10)
    bound = PredictionErrorCost(model, data, gain=gain, parms={"K1": 0.3, "K2": 0.4}, steps=2).bind(["L", "K1", "K2"])
    assert bound.exact
    J = bound.jacobian(bound.theta0)
    for j, d in enumerate(1e-5 * np.eye(3)):
        slope = (bound.residuals(bound.theta0 + d) - bound.residuals(bound.theta0 - d)) / 2e-5
        np.testing.assert_allclose(J[:, j], slope, atol=2e-4 * np.abs(J[:, j]).max())


def test_a_disturbance_is_a_state_that_the_gain_alone_moves():
    """A drifting input that nobody measures, of unknown size, is followed by the gain, and k is found beside it."""
    n, rng = 300, np.random.default_rng(4)
    wind = np.cumsum(rng.normal(0, 0.3, n))
    x = np.zeros(n)
    for i in range(1, n):
        x[i] = 0.7 * x[i - 1] + wind[i - 1]
    data = pd.DataFrame({"time": np.arange(n), "x": x + rng.normal(0, 0.05, n)})
    model = DifferenceModel(
        "next(x) = k * x + wind\nnext(wind) = wind", state={"x": 0, "wind": 0}, times=np.arange(n), parms={"k": 0.2}
    )
    naive = modFit(SimulationCost(model, data), ["k"])
    gain, parms = {"x": {"x": "K1"}, "wind": {"x": "K2"}}, {"K1": 0.5, "K2": 0.2}
    cost = PredictionErrorCost(model, data, gain=gain, parms=parms)
    fit = modFit(cost)
    assert abs(naive.par["k"] - 0.7) > 0.2
    assert fit.par["k"] == pytest.approx(0.7, abs=0.1)
    assert np.corrcoef(cost.run(fit.par)["wind"][1:], wind[:-1])[0, 1] > 0.95


# --- what every cost has


def test_it_is_a_cost_as_simulation_is():
    data = readings(0.1)[:80]
    model = swing(times=TIMES[:80])
    cost = PredictionErrorCost(model, data, gain=GAINS, measurement_noise={"y": "estimate"}, transform=None)
    assert cost.parms.index.tolist() == ["L", "g", "sd_v_y"]
    assert cost.lower["sd_v_y"] == 0.0
    fit = modFit(cost, ["L", "sd_v_y"])
    assert fit.method == "scoring"
    assert fit.par["sd_v_y"] == pytest.approx(0.1, rel=0.3)
    again = pickle.loads(pickle.dumps(cost))
    assert again(fit.par).minus2loglik == pytest.approx(cost(fit.par).minus2loglik, rel=1e-12)
    assert repr(cost) == "PredictionErrorCost: y (80); 3 parameters"
    other = cost.replace(gain={"theta": {"y": 0.1}}, steps=2)
    assert (other.steps, other.form, len(other.comparison)) == (2, "innovation", 78)
    assert cost.replace(measurement_noise={"y": 0.1}).parms.index.tolist() == ["L", "g"]
    fitted = cost.replace(gain={"theta": "K1"}, parms={"K1": 0.2})
    assert fitted.parms.index.tolist() == ["L", "g", "K1", "sd_v_y"]
    assert fitted.replace(gain=GAINS).parms.index.tolist() == ["L", "g", "sd_v_y"]
    both = PredictionErrorCost(model, data, gain=GAINS) + SimulationCost(model, data[::2])
    assert both().model == pytest.approx(
        PredictionErrorCost(model, data, gain=GAINS)().model + SimulationCost(model, data[::2])().model
    )
    assert cost.run(fit.par).columns.tolist() == ["time", "theta", "omega", "y"]
    assert cost.plot(fit.par).shape


@pytest.mark.parametrize("form", ["innovation", "observer"])
def test_every_entity_is_corrected_by_its_own_readings(form):
    times = np.array([0.0, 0.5, 1.0, 1.5, 2.0])
    model = OdeModel(kicked, state={"x": "x0", "v": 0}, parms={"x0": 1.0}, times=times, rtol=1e-9, atol=1e-10)
    model = model.replace(events=[{"who": w, "var": "v", "time": 0.5, "value": k} for w, k in (("a", 1), ("b", -1))])
    rng = np.random.default_rng(1)
    data = pd.DataFrame({"who": ["a"] * 5 + ["b"] * 4, "time": [*times, *times[1:]], "x": rng.normal(0, 1, 9)})
    conditions = pd.DataFrame({"who": ["a", "b"], "x0": [1.0, 2.0]})
    gain = {"x": {"x": "K"}, "v": {"x": -0.2}} if form == "innovation" else {"x": {"x": 0.4}, "v": {"x": -0.2}}
    parms = {"K": 0.4} if form == "innovation" else None
    cost = PredictionErrorCost(
        model, data, gain=gain, parms=parms, form=form, entity="who", conditions=conditions, entity_parms=["k"]
    )
    bound = cost.bind()
    mine = {"a": 1.0, "b": 2.0}
    expected = np.concatenate([
        PredictionErrorCost(
            model.of_entity(w).replace(parms={"x0": mine[w]}), data[data.who == w].drop(columns="who"), gain=gain,
            parms=parms, form=form,
        )().residuals["mod"]
        for w in ("a", "b")
    ])  # fmt: skip
    np.testing.assert_allclose(cost().residuals["mod"], expected, rtol=1e-7)
    assert {"k[a]", "k[b]", "c"} <= set(bound.parameter_names)
    assert cost.run()["who"].unique().tolist() == ["a", "b"]


def test_forcings_of_difference_equations_are_those_of_the_step_before_where_errors_are_taken():
    model = DifferenceModel(
        "next(x) = 0.5 * x + u\nseen = x * u + t",
        state={"x": 1},
        times=[0, 1, 2],
        forcings={"u": ([0, 1, 2], [2, 3, 5])},
    )
    cost = PredictionErrorCost(model, {"time": [0, 1, 2], "seen": [4, 20, 0]}, gain=0.1)
    x0 = 1 + 0.1 * (4 - (1 * 2 + 0))
    x1 = 0.5 * x0 + 3
    x2 = 0.5 * (x1 + 0.1 * (20 - (3 * x1 + 1))) + 5
    np.testing.assert_allclose(cost().residuals["mod"], [2, 3 * x1 + 1, 5 * x2 + 2])


# --- what is refused


@pytest.mark.parametrize(
    ("words", "error", "told"),
    [
        ({"form": "kalman"}, ArgumentError, "innovation"),
        ({"gain": {"theta": {"y": "K"}}, "form": "observer", "parms": {"K": 1}}, ArgumentError, "form='innovation'"),
        ({"gain": {"theta": {"z": 1.0}}}, ArgumentError, "'z' is not observed"),
        ({"gain": {"thta": 1.0}}, ArgumentError, "'thta' is not a state.*Did you mean 'theta'"),
        ({"gain": {"theta": "K1"}}, ArgumentError, "uses 'K1', which has no value"),
        ({"gain": {"theta": "K1"}, "parms": {"K1": 0, "K2": 0}}, ValueError, "'K2' is used nowhere"),
        ({"gain": 1.0}, ArgumentError, r"shape \(2, 1\)"),
        ({"steps": 0}, ArgumentError, "steps"),
        ({"steps": 2.5}, ArgumentError, "steps"),
        ({"steps": 2, "form": "observer"}, ArgumentError, "form='innovation'"),
        ({"steps": 10}, DataError, "begin at sample 11, and a record has 10 samples"),
        ({"x": None}, ArgumentError, "Name the column"),
    ],
)
def test_what_has_no_meaning_is_refused(words, error, told):
    model, data = swing(times=TIMES[:10]), readings()[:10]
    with pytest.raises(error, match=told):
        PredictionErrorCost(model, data, **({"gain": GAINS} | words))


def test_a_model_that_cannot_be_corrected_is_told():
    from fmepy.costs.mapped import transformed

    with pytest.raises(ModelError, match="observer"):
        PredictionErrorCost(steps_model(), steps_data(), gain=K_STEPS, form="observer")
    with pytest.raises(ModelError, match="transformed"):
        PredictionErrorCost(transformed(swing(times=TIMES[:10]), {"L": "log"}), readings()[:10], gain=GAINS)
