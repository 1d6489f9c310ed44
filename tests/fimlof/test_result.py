"""The result of a filter agrees with independent implementations, with conditioning by hand, and never raises."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pandas as pd
import pytest

import fmepy as fme
from fmepy.errors import ArgumentError
from fmepy.fimlof.cost import FimlofCost
from fmepy.models.difference import DifferenceModel
from fmepy.models.ode import OdeModel


def table(values, names):
    return pd.DataFrame(values, index=names, columns=names)


def numbers(values):
    """Return a nested list with null for NaN as an array."""
    return np.array(values, dtype=float)


def rotating(n, a, b):
    return 0.9 * a + 0.2 * b, -0.1 * a + 0.8 * b


@pytest.fixture(scope="module")
def read(reference):
    return lambda name: json.loads((reference / "fimlof" / f"{name}.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def two_state(read):
    case = read("two_state_missing")
    z = numbers(case["data"])
    model = DifferenceModel(
        rotating, state={"a": 1.0, "b": -1.0}, times=np.arange(81), outputs={"y1": "a", "y2": "0.5 * a + b"}
    )
    cost = FimlofCost(
        model,
        pd.DataFrame({"time": np.arange(1, 81), "y1": z[:, 0], "y2": z[:, 1]}),
        process_noise=table(case["Q"], ["a", "b"]),
        measurement_noise=table(case["R"], ["y1", "y2"]),
        initial_sd=table(case["P0"], ["a", "b"]),
    )
    return cost.filter()


def by_sample(flt, column):
    """Return a column of the residuals, shape (80, 2), NaN where nothing was read."""
    return flt.residuals.pivot(index="x", columns="name", values=column).reindex(np.arange(1.0, 81.0)).to_numpy()


def by_time(flt, column):
    return flt.shocks.pivot(index="time", columns="state", values=column).to_numpy()[1:]


class TestTwoStatesWithMissingData:
    """25 % of the entries missing, correlated noises (independent implementation)."""

    def test_the_likelihood_is_the_same(self, two_state, read):
        expected = read("two_state_missing")["expected"]
        assert two_state.loglik == pytest.approx(expected["loglik_gaussian"], abs=1e-8)
        assert two_state.xi == pytest.approx(expected["loglik_peterson"], abs=1e-8)
        assert two_state.sumsq == pytest.approx(expected["sumsq"], abs=1e-8)
        assert two_state.nobs == expected["nobs"]

    def test_innovations_and_their_sds_are_the_same(self, two_state, read):
        expected = read("two_state_missing")["expected"]
        np.testing.assert_allclose(by_sample(two_state, "innovation"), numbers(expected["innovations"]), atol=1e-8)
        variances = expected["innovation_variance"]
        rows = two_state.residuals
        full = [int(x) for x, n in rows.groupby("x").size().items() if n == 2]
        for t in full:
            sds = rows.loc[rows["x"] == t, "sd"]
            np.testing.assert_allclose(sds**2, np.diag(numbers(variances[t - 1])), atol=1e-8)

    def test_filtered_and_smoothed_states_are_the_same(self, two_state, read):
        expected = read("two_state_missing")["expected"]
        states = ["a", "b"]
        np.testing.assert_allclose(two_state.filtered[states][1:], numbers(expected["x_filtered"]), atol=1e-8)
        np.testing.assert_allclose(two_state.smoothed[states][1:], numbers(expected["x_smoothed"]), atol=1e-8)
        np.testing.assert_allclose(two_state.filtered_cov[-1], numbers(expected["P_filtered_last"]), atol=1e-8)
        diagonal = np.einsum("tii->ti", two_state.smoothed_cov)[1:]
        np.testing.assert_allclose(diagonal, numbers(expected["P_smoothed_diag"]), atol=1e-8)
        np.testing.assert_allclose(two_state.sd("smoothed")[states][1:] ** 2, diagonal, atol=1e-12)

    def test_diagnostics_of_data_and_states_are_the_same(self, two_state, read):
        expected = read("two_state_diagnostics")
        np.testing.assert_allclose(by_sample(two_state, "NUMR"), numbers(expected["NUMR"]), atol=1e-8)
        np.testing.assert_allclose(by_sample(two_state, "AUXM"), numbers(expected["auxiliary_measurement"]), atol=1e-8)
        np.testing.assert_allclose(by_time(two_state, "NUSR"), numbers(expected["NUSR"]), atol=1e-8)
        shocks = numbers(expected["auxiliary_state_shock_before_sample"])
        np.testing.assert_allclose(by_time(two_state, "AUXS"), shocks, atol=1e-8)
        chi2 = numbers(expected["chi2_per_sample"])
        np.testing.assert_allclose(two_state.samples["chi2"], chi2[chi2 > 0], atol=1e-8)

    def test_outputs_follow_the_states(self, two_state):
        smoothed, P = two_state.smoothed, two_state.smoothed_cov
        h = np.array([0.5, 1.0])
        np.testing.assert_allclose(smoothed["y2"], smoothed[["a", "b"]] @ h, atol=1e-12)
        np.testing.assert_allclose(two_state.sd()["y2"] ** 2, np.einsum("i,tij,j->t", h, P, h), atol=1e-12)

    def test_gains_take_the_prediction_to_the_filtered_state(self, two_state):
        innovations = by_sample(two_state, "innovation")
        K = two_state.gains[1:]
        moved = np.nansum(K * innovations[:, None, :], axis=2)
        states = ["a", "b"]
        step = two_state.filtered[states].to_numpy()[1:] - two_state.predicted[states].to_numpy()[1:]
        np.testing.assert_allclose(moved, step, atol=1e-12)

    def test_the_variables_share_the_likelihood(self, two_state):
        parts = two_state.contributions
        assert parts["loglik"].sum() == pytest.approx(two_state.loglik, abs=1e-10)
        assert parts["sumsq"].sum() == pytest.approx(two_state.sumsq, abs=1e-10)
        assert parts["n"].tolist() == [62, 60]


@pytest.fixture(scope="module")
def nile(read):
    case = read("nile_local_level")
    model = DifferenceModel("next(level) = level", state={"level": 1000.0}, times=np.arange(100),
                            outputs={"flow": "level"})  # fmt: skip
    cost = FimlofCost(
        model,
        {"time": np.arange(100), "flow": case["data"]},
        process_noise={"level": "sd_w"},
        measurement_noise={"flow": "sd_v"},
        parms={name: case["mle"][f"var_{name[-1]}"] ** 0.5 for name in ("sd_w", "sd_v")},
        initial="diffuse",
    )
    return case, cost.filter()


class TestTheNile:
    """Local level with an unknown start (Durbin & Koopman's example)."""

    def test_the_likelihood_is_the_exact_diffuse_one(self, nile):
        case, flt = nile
        expected = case["mle"]["loglik_exact_diffuse_gaussian_first_sample_excluded"]
        assert flt.loglik == pytest.approx(expected, abs=1e-6)
        assert flt.contributions["loglik"].sum() == pytest.approx(expected, abs=1e-6)

    def test_filtered_and_smoothed_levels_carry_the_uncertainty_of_the_start(self, nile):
        case, flt = nile
        np.testing.assert_allclose(flt.filtered["level"], case["filtered_level_at_mle"], rtol=1e-8)
        np.testing.assert_allclose(flt.smoothed["level"], case["smoothed_level_at_mle"], rtol=1e-8)
        np.testing.assert_allclose(flt.smoothed_cov[:, 0, 0], case["smoothed_level_var_at_mle"], rtol=1e-8)

    def test_nothing_is_predicted_before_the_start_is_determined(self, nile):
        _, flt = nile
        assert np.isnan(flt.predicted["level"].iloc[0])
        assert flt.residuals.loc[0, ["mod", "innovation", "sd", "NUMR"]].isna().all()
        assert flt.predicted["level"].iloc[1] == flt.filtered["level"].iloc[0] == 1120.0
        assert np.isfinite(flt.residuals["AUXM"]).all()

    def test_gains_are_those_of_the_whole_uncertainty(self, nile):
        _, flt = nile
        step = (flt.filtered["level"] - flt.predicted["level"]).to_numpy()[1:]
        np.testing.assert_allclose(flt.gains[1:, 0, 0] * flt.residuals["innovation"].to_numpy()[1:], step, rtol=1e-9)


def test_filtered_states_of_an_autoregression_with_error_agree_with_the_reference(read):
    case = read("ar1_noise")
    fixed = case["fixed"]
    model = DifferenceModel(lambda n, x, *, a=0.9: a * x, state={"x": 0.0}, times=[0, 200], outputs={"z": "x"})
    data = {"time": np.arange(1, 201), "z": numbers(case["data"])}
    cost = FimlofCost(model, data, process_noise={"x": 1.0}, measurement_noise={"z": 1.0},
                      initial_sd={"x": fixed["P0"] ** 0.5})  # fmt: skip
    flt = cost.filter()
    present = np.isfinite(numbers(case["data"]))
    filtered = flt.filtered.set_index("time")["x"].reindex(np.arange(1.0, 201.0))
    np.testing.assert_allclose(filtered[present], numbers(fixed["x_filtered"])[present, 0], atol=1e-8)
    innovations = numbers(fixed["innovations"])[present, 0]
    np.testing.assert_allclose(flt.residuals["innovation"], innovations, atol=1e-8)
    assert flt.loglik == pytest.approx(fixed["loglik_gaussian"], abs=1e-8)


class TestCasesByHand:
    def test_two_steps_of_a_random_walk(self, read):
        case = read("hand_cases")["scalar_two_steps"]
        model = DifferenceModel("next(x) = x", state={"x": 0.0}, times=[0, 1, 2])
        cost = FimlofCost(model, {"time": [1, 2], "x": [1.0, 3.0]}, process_noise={"x": 1.0},
                          measurement_noise={"x": 1.0}, initial_sd={"x": 1.0})  # fmt: skip
        flt = cost.filter()
        np.testing.assert_allclose(flt.residuals["sd"] ** 2, [3, 8 / 3], atol=1e-12)
        np.testing.assert_allclose(flt.filtered["x"][1:], [2 / 3, 17 / 8], atol=1e-12)
        np.testing.assert_allclose(flt.gains[1:, 0, 0], [2 / 3, 5 / 8], atol=1e-12)
        assert flt.loglik == pytest.approx(case["loglik_gaussian_value"], abs=1e-12)
        assert flt.xi == pytest.approx(case["loglik_peterson_value"], abs=1e-12)

    def test_two_readings_of_one_state_at_once(self, read):
        case = read("hand_cases")["vector_update"]
        model = DifferenceModel("next(x) = x", state={"x": 0.0}, times=[0, 1], outputs={"y": "x", "z": "x"})
        data = {"time": [0], "y": [2.0], "z": [-1.0]}
        cost = FimlofCost(model, data, process_noise={"x": 0.0}, measurement_noise={"y": 1.0, "z": 2**0.5},
                          initial_sd={"x": 3**0.5})  # fmt: skip
        flt = cost.filter()
        np.testing.assert_allclose(flt.residuals["NUMR"], case["NUMR_value"], atol=1e-12)
        np.testing.assert_allclose(flt.shocks["NUSR"], case["NUSR_value"], atol=1e-12)
        assert flt.sumsq == pytest.approx(case["sumsq_value"], abs=1e-12)


# --- conditioning by hand: all states and data of a linear model as one normal vector


def conditioned(F, Q, P0, x0, H, R, z, times):
    """Return mean and covariance of the state at every time given all data, from the joint normal distribution.

    F : one matrix and one shift (F_k, c_k) for every step; z : {time: data}.
    """
    n, N = len(x0), len(F)
    means, maps = [np.array(x0, dtype=float)], [np.hstack([np.eye(n), np.zeros((n, n * N))])]
    for k, (A, c) in enumerate(F):
        means.append(A @ means[-1] + c)
        own = np.zeros((n, n * (N + 1)))
        own[:, n * (k + 1) : n * (k + 2)] = np.eye(n)
        maps.append(A @ maps[-1] + own)
    noise = np.kron(np.eye(N + 1), Q)
    noise[:n, :n] = P0
    X, mean = np.vstack(maps), np.concatenate(means)
    C = X @ noise @ X.T
    rows = np.vstack([np.kron(np.eye(N + 1)[t : t + 1], H) for t in times])
    S = rows @ C @ rows.T + np.kron(np.eye(len(times)), R)
    G = C @ rows.T @ np.linalg.inv(S)
    posterior = mean + G @ (np.concatenate([z[t] for t in times]) - rows @ mean)
    return posterior.reshape(N + 1, n), C - G @ rows @ C


@pytest.mark.parametrize("error", [0.3, 0.0], ids=["with errors of measurement", "exact data"])
def test_smoothing_is_conditioning_on_all_data_also_when_covariances_are_singular(error):
    # noise enters one state only, the start is known: P is singular throughout
    A = np.array([[0.8, 0.5], [0.0, 0.9]])
    model = DifferenceModel(
        lambda n, a, b: (0.8 * a + 0.5 * b, 0.9 * b), state={"a": 2.0, "b": 1.0}, times=np.arange(9)
    )
    z = {1: [2.3], 2: [1.1], 4: [2.9], 5: [0.4], 8: [1.0]}
    data = {"time": list(z), "a": [v[0] for v in z.values()]}
    cost = FimlofCost(model, data, process_noise={"b": 0.7}, measurement_noise={"a": error}, initial_sd={"a": 0.5})
    flt = cost.filter()
    x, C = conditioned([(A, np.zeros(2))] * 8, np.diag([0, 0.49]), np.diag([0.25, 0]), [2.0, 1.0],
                       np.array([[1.0, 0.0]]), error**2 * np.eye(1), z, list(z))  # fmt: skip
    np.testing.assert_allclose(flt.smoothed[["a", "b"]], x, atol=1e-10)
    blocks = [C[2 * k : 2 * k + 2, 2 * k : 2 * k + 2] for k in range(9)]
    np.testing.assert_allclose(flt.smoothed_cov, blocks, atol=1e-10)


def test_smoothing_goes_back_through_events():
    events = pd.DataFrame(
        {"var": ["a", "b"], "time": [2.0, 4.0], "value": [5.0, 2.0], "method": ["replace", "multiply"]}
    )
    model = OdeModel(lambda t, a, b: (0.1 * b, -0.2 * b + 0.05 * a), state={"a": 1.0, "b": 2.0}, times=np.arange(7.0),
                     method="euler", dt=1.0, events=events)  # fmt: skip
    z = {1: [1.4], 2: [1.9], 3: [5.5], 5: [5.0], 6: [6.2]}
    data = {"time": list(z), "a": [v[0] for v in z.values()]}
    cost = FimlofCost(model, data, process_noise={"a": 0.4, "b": 0.3}, measurement_noise={"a": 0.5},
                      initial_sd={"a": 0.3, "b": 1.0})  # fmt: skip
    flt = cost.filter()
    A = np.array([[1.0, 0.1], [0.05, 0.8]])
    steps = [(A, np.zeros(2))] * 6
    steps[2] = (A @ np.diag([0.0, 1.0]), A @ [5.0, 0.0])  # a row at an event time is the state before it
    steps[4] = (A @ np.diag([1.0, 2.0]), np.zeros(2))
    x, C = conditioned(steps, np.diag([0.16, 0.09]), np.diag([0.09, 1.0]), [1.0, 2.0], np.array([[1.0, 0.0]]),
                       0.25 * np.eye(1), z, list(z))  # fmt: skip
    np.testing.assert_allclose(flt.smoothed[["a", "b"]], x, atol=1e-10)
    np.testing.assert_allclose(flt.smoothed_cov[3], C[6:8, 6:8], atol=1e-10)
    np.testing.assert_allclose(flt.smoothed_cov[1], C[2:4, 2:4], atol=1e-10)


# --- what the diagnostics mean


def gain_of_a_free_bias(cost, row):
    """Return by how much the log-likelihood rises if one datum may be moved, from its parabola."""
    values = []
    for shift in (-1.0, 0.0, 1.0):
        data = cost.obs.copy()
        data.loc[row, "z"] += shift
        values.append(cost.replace(obs=data).filter(smooth=False).loglik)
    slope, curve = (values[2] - values[0]) / 2, values[2] - 2 * values[1] + values[0]
    return -(slope**2) / (2 * curve)


Z = np.array([0.1, 0.8, 0.9, 1.4, 5.0, 2.1, 2.0, 2.9, 3.1, 3.0, 3.9])


def trend(initial="known", **arguments):
    """Return a cost of a level with a slope, read with errors at 0..10."""
    text = "next(a) = a + b + jump_a * u\nnext(b) = b + jump_b * u"
    pulse = pd.Series((np.arange(13) == 5).astype(float), index=np.arange(13))
    model = DifferenceModel(text, state={"a": 0.0, "b": 0.3}, parms={"jump_a": 0.0, "jump_b": 0.0}, times=np.arange(12),
                            forcings={"u": pulse}, outputs={"z": "a"})  # fmt: skip
    sds = {"a": 1.0, "b": 1.0} if initial == "known" else None
    settings = {"process_noise": {"a": 0.2, "b": 0.1}, "measurement_noise": {"z": 0.3}, **arguments}
    data = pd.DataFrame({"time": np.arange(11), "z": Z})
    return FimlofCost(model, data, initial=initial, initial_sd=sds, **settings)


def summed():
    """Return a cost of readings that are sums over two steps."""
    model = DifferenceModel("next(x) = 0.8 * x", state={"x": 1.0}, times=np.arange(13), outputs={"z": "2 * x"})
    data = pd.DataFrame({"time": [2, 4, 7, 9, 12], "z": [3.0, 2.5, 4.0, 0.5, 1.0]})
    return FimlofCost(model, data, process_noise={"x": 0.5}, measurement_noise={"z": 0.4}, accumulate={"z": 2})


def irregular():
    """Return a cost in continuous time, with an event between two readings."""
    events = pd.DataFrame({"var": ["x"], "time": [2.5], "value": [0.5], "method": ["multiply"]})
    model = OdeModel(lambda t, x, v: (v, -x - 0.2 * v), state={"x": 1.0, "v": 0.0}, times=np.arange(0, 7, 0.5),
                     events=events, outputs={"z": "x + 0.1 * v"}, method="rk4", dt=0.1)  # fmt: skip
    data = pd.DataFrame({"time": [0.3, 0.9, 1.7, 2.9, 4.4, 4.6], "z": [0.9, 0.4, 0.6, -0.5, 0.1, 0.2]})
    return FimlofCost(model, data, process_noise={"v": 0.3}, measurement_noise={"z": 0.1})


@pytest.mark.parametrize(
    "cost", [trend(), trend("diffuse"), summed(), irregular()],
    ids=["known start", "unknown start", "sums", "continuous time"],
)  # fmt: skip
def test_half_the_square_of_auxm_is_the_gain_of_likelihood_from_a_free_bias_of_the_datum(cost):
    auxm = cost.filter().residuals["AUXM"].to_numpy()
    for row in (1, 3, len(auxm) - 1):
        assert auxm[row] ** 2 / 2 == pytest.approx(gain_of_a_free_bias(cost, row), rel=1e-6)


@pytest.mark.parametrize("initial", ["known", "diffuse"])
@pytest.mark.parametrize("state", ["a", "b"])
def test_half_the_square_of_auxs_is_the_gain_of_likelihood_from_a_free_jump_of_the_state(initial, state):
    cost = trend(initial)
    values = [cost.filter({f"jump_{state}": jump}).loglik for jump in (-1.0, 0.0, 1.0)]
    slope, curve = (values[2] - values[0]) / 2, values[2] - 2 * values[1] + values[0]
    shocks = cost.filter().shocks.query("time == 5").set_index("state")["AUXS"]
    assert shocks[state] ** 2 / 2 == pytest.approx(-(slope**2) / (2 * curve), rel=1e-8)
    assert np.sign(shocks[state]) == np.sign(slope)


def test_half_the_square_of_numr_is_the_gain_with_the_data_until_then():
    cost = trend()
    numr = cost.filter().residuals["NUMR"].to_numpy()
    early = cost.replace(obs=cost.obs.iloc[:5])
    assert numr[4] ** 2 / 2 == pytest.approx(gain_of_a_free_bias(early, 4), rel=1e-8)


def test_an_unknown_start_is_the_limit_of_a_very_uncertain_one():
    diffuse = trend("diffuse").filter()
    wide = trend().replace(initial_sd={"a": 1e3, "b": 1e3}).filter()
    states = ["a", "b"]
    np.testing.assert_allclose(diffuse.smoothed[states], wide.smoothed[states], atol=1e-5)
    np.testing.assert_allclose(diffuse.smoothed_cov[1:], wide.smoothed_cov[1:], atol=1e-5)
    np.testing.assert_allclose(diffuse.filtered[states][2:], wide.filtered[states][2:], atol=1e-5)
    np.testing.assert_allclose(diffuse.filtered_cov[2:], wide.filtered_cov[2:], atol=1e-5)
    for column in ("innovation", "sd", "NUMR"):
        np.testing.assert_allclose(diffuse.residuals[column][2:], wide.residuals[column][2:], atol=1e-5)
    np.testing.assert_allclose(diffuse.residuals["AUXM"], wide.residuals["AUXM"], atol=1e-5)
    np.testing.assert_allclose(diffuse.gains[2:], wide.gains[2:], atol=1e-5)
    # with one datum the level is known where it was read, the slope not at all
    assert diffuse.filtered.loc[0, "a"] == pytest.approx(Z[0])
    assert np.isnan(diffuse.filtered.loc[0, "b"])


@pytest.mark.parametrize("update", ["ekf", "iterated", "second_order", "unscented"])
def test_whitened_innovations_are_those_of_the_likelihood_for_every_update(update):
    model = DifferenceModel("next(x) = x + 0.5 * x * (1 - x / 10)", state={"x": 2.0}, times=np.arange(9),
                            outputs={"y": "x**2 / 10", "z": "x"})  # fmt: skip
    data = {"time": [1, 2, 4, 8], "y": [0.9, 1.7, 4.0, 8.5], "z": [3.1, np.nan, 6.0, 9.7]}
    cost = FimlofCost(model, data, process_noise={"x": 0.4}, measurement_noise={"y": 0.3, "z": 0.2},
                      initial_sd={"x": 0.5}, update=update)  # fmt: skip
    flt = cost.filter()
    (run,), (history,) = flt.runs, flt.histories
    np.testing.assert_allclose(history.whitened, run.run.nu / np.sqrt(run.run.s), atol=1e-9)
    assert -2 * flt.loglik == pytest.approx(cost(), abs=1e-10)


def test_a_typo_is_flagged_and_nothing_is_deleted():
    rng = np.random.default_rng(3)
    model = DifferenceModel("next(x) = 0.9 * x", state={"x": 0.0}, times=np.arange(61))
    level, z = 0.0, []
    for _ in range(60):
        level = 0.9 * level + rng.normal()
        z.append(level + rng.normal())
    z[30] += 12.0
    cost = FimlofCost(model, {"time": np.arange(1, 61), "x": z}, process_noise={"x": 1.0}, measurement_noise={"x": 1.0})
    flt = cost.filter()
    flagged = flt.residuals.query("flag")
    assert flagged["x"].tolist() == [31.0]
    assert flt.nobs == 60
    assert "1 suspected" in repr(flt)


# --- panels, schedules, breakdowns


def walk_panel(**arguments):
    model = DifferenceModel(lambda n, x, *, a=0.9: a * x, state={"x": 1.0}, times=np.arange(6))
    data = pd.DataFrame({"who": ["u", "u", "v", "v", "v"], "time": [1, 3, 1, 2, 5], "x": [1.0, 0.4, 1.3, 0.9, 0.2]})
    return FimlofCost(model, data, process_noise={"x": 0.5}, measurement_noise={"x": 0.5}, entity="who", **arguments)


def test_entities_have_a_column_and_results_of_their_own():
    flt = walk_panel().filter()
    assert list(flt.residuals.columns[:3]) == ["who", "name", "x"]
    assert flt.entities == ["u", "v"]
    assert sum(flt.of(e).loglik for e in flt.entities) == pytest.approx(flt.loglik, abs=1e-12)
    assert flt.of("v").nobs == 3
    one = flt.smoothed.query("who == 'v'").reset_index(drop=True)
    pd.testing.assert_frame_equal(one, flt.of("v").smoothed, check_dtype=False)
    assert len(flt.smoothed_cov) == len(flt.smoothed) == 4 + 6
    with pytest.raises(ArgumentError, match="'u', 'v'"):
        flt.of("w")


def test_data_used_up_by_the_start_are_shown_without_a_prediction():
    flt = walk_panel(initial="data").filter()
    assert flt.nobs == 3
    assert flt.residuals["mod"].isna().tolist() == [True, False, True, False, False]


def test_rows_between_the_data_do_not_change_the_likelihood():
    fine = DifferenceModel("next(x) = 0.9 * x", state={"x": 1.0}, times=np.arange(40))
    data = {"time": [3, 7, 20], "x": [1.0, 0.4, 1.3]}
    settings = dict(process_noise={"x": 0.5}, measurement_noise={"x": 0.5})
    cost = FimlofCost(fine, data, **settings)
    flt = cost.filter()
    assert flt.smoothed["time"].tolist() == list(range(21))
    assert -2 * flt.loglik == pytest.approx(cost(), abs=1e-12)
    model = OdeModel(lambda t, x: -0.1 * x * x, state={"x": 1.0}, times=np.arange(0, 30, 0.3), method="rk4", dt=0.3)
    cost = FimlofCost(model, {"time": [0.9, 6.3, 20.05], "x": [1.0, 0.4, 1.3]}, **settings)
    assert -2 * cost.filter().loglik == pytest.approx(cost(), abs=1e-10)


def test_a_breakdown_is_told_with_time_and_sample_and_leaves_nan():
    model = DifferenceModel("next(x) = exp(a * x)", state={"x": 1.0}, parms={"a": 0.1}, times=np.arange(30))
    data = {"time": np.arange(1, 26), "x": np.full(25, 0.5)}
    cost = FimlofCost(model, data, process_noise={"x": 1e-8}, measurement_noise={"x": 1e6})
    assert cost.filter().failure is None
    flt = cost.filter({"a": 1.0})
    assert flt.loglik == flt.xi == -np.inf
    assert np.isnan(flt.sumsq)
    assert "time" in flt.failure
    assert "sample" in flt.failure
    innovations = flt.residuals["innovation"]
    assert innovations.iloc[:2].notna().all()
    assert innovations.iloc[-1:].isna().all()
    assert flt.smoothed["x"].isna().all()
    assert flt.failure in repr(flt)
    assert flt.contributions["loglik"].isna().all()
    assert flt.sd("filtered")["x"].iloc[-1:].isna().all()


def test_a_start_that_the_data_do_not_determine_is_told():
    model = DifferenceModel(lambda n, a, b: (a, b), state={"a": 0.0, "b": 0.0}, times=[0, 1, 2, 3])
    cost = FimlofCost(model, {"time": [1, 2, 3], "a": [1.0, 2.0, 3.0]}, process_noise={"a": 1.0},
                      measurement_noise={"a": 1.0}, initial="diffuse")  # fmt: skip
    flt = cost.filter()
    assert flt.loglik == -np.inf
    assert "say nothing of b at the start" in flt.failure
    assert flt.filtered["a"].iloc[1:].notna().all()
    assert flt.filtered["b"].isna().all()


def test_without_smoothing_the_later_data_are_not_used(two_state):
    flt = two_state.cost.filter(smooth=False)
    assert flt.loglik == two_state.loglik
    assert flt.residuals["AUXM"].isna().all()
    assert flt.smoothed["a"].isna().all()
    pd.testing.assert_series_equal(flt.residuals["NUMR"], two_state.residuals["NUMR"])


def test_a_result_travels(two_state):
    there = pickle.loads(pickle.dumps(two_state))
    pd.testing.assert_frame_equal(there.smoothed, two_state.smoothed)


def test_log_jacobian_makes_transformed_likelihoods_comparable():
    # log-normal data around a constant: the density of z is that of ln z times 1/z
    model = DifferenceModel("next(x) = x", state={"x": 2.0}, times=[0, 1, 2])
    z = np.array([1.5, 3.0])
    cost = FimlofCost(model, {"time": [1, 2], "x": z}, process_noise={}, measurement_noise={"x": 0.5}, transform="log")
    flt = cost.filter()
    from scipy.stats import lognorm

    expected = lognorm(s=0.5, scale=2.0).logpdf(z).sum()
    assert flt.loglik + flt.log_jacobian == pytest.approx(expected, abs=1e-12)


def test_a_fit_stands_for_its_parameters_and_labels_of_another_type_are_refused():
    from fmepy.fitting import modFit

    model = DifferenceModel("next(x) = a * x", state={"x": 2.0}, parms={"a": 0.9}, times=[0, 3])
    data = pd.DataFrame({"time": [1, 2, 3] * 2, "firm": [1, 1, 1, 2, 2, 2], "x": [1.7, 1.5, 1.2, 1.9, 1.7, 1.6]})
    cost = FimlofCost(model, data, entity="firm", process_noise={"x": 0.1}, measurement_noise={"x": 0.1})
    fit = modFit(cost)
    flt = cost.filter(fit.par)
    assert cost(fit) == cost(fit.par) == -2 * cost.filter(fit).loglik
    assert str(flt.summary(fit)) == str(flt.summary(fit.par)) != str(flt.summary())
    pd.testing.assert_frame_equal(cost.simulate(fit, seed=1), cost.simulate(fit.par, seed=1))
    with pytest.raises(ArgumentError, match="`estimated` must be names, or a fit; got int"):
        flt.summary(3)
    with pytest.raises(
        ArgumentError, match=r"`entity='1'` was not filtered\. Did you mean 1, a int64\?|mean 1, a int\?"
    ):
        flt.of("1")
    with pytest.raises(ArgumentError, match="must be a positive number"):
        cost.replace(threshold="4")


def test_a_result_of_an_earlier_version_loads_though_its_parts_are_called_otherwise(tmp_path):
    model = fme.OdeModel("d(A)/dt = -k*A", state={"A": 10.0}, times=np.arange(4.0), parms={"k": 0.5})
    data = {"time": [1.0, 2.0, 3.0], "A": [6.0, 3.7, 2.2]}
    flt = fme.FimlofCost(model, data, process_noise={"A": 0.1}, measurement_noise={"A": 0.2}).filter()
    flt.save(tmp_path / "filter")
    file = tmp_path / "filter" / "result.json"
    text = file.read_text(encoding="utf-8")
    old = text
    for now, then in (("FilterReadings", "Readings"), ("PassRecord", "Record")):
        assert f'"{now}"' in old
        old = old.replace(f'"{now}"', f'"{then}"')
    for module in ("fmepy.fimlof.data", "fmepy.filtering.schedule"):
        old = old.replace(f'"{module}"', '"fmepy.fimlof.entity_run"')  # a module that is gone
    file.write_text(old, encoding="utf-8")
    again = fme.load(tmp_path / "filter")
    pd.testing.assert_frame_equal(again.residuals, flt.residuals)
    assert again.loglik == flt.loglik
