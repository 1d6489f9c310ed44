"""The likelihood by filtering is the simulation cost, one-step least squares, or the joint density, in their limits."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal

import fmepy as fme
from tests.fimlof.market import market_cost, stored

LOGISTIC = json.loads((Path(__file__).parents[1] / "reference" / "fimlof" / "logistic_ekf_limits.json").read_text())
LN_2PI = np.log(2 * np.pi)


def xi(cost, parms=None):
    """Return Peterson's log-likelihood, without the 2 pi."""
    return -0.5 * cost(parms) + 0.5 * cost.nobs * LN_2PI


def grow(n, x, *, r=0.3, K=100.0):
    return x + r * x * (1 - x / K)


@pytest.fixture(scope="module")
def logistic():
    model = fme.DifferenceModel(grow, state={"x": LOGISTIC["x0"]}, times=np.arange(31))
    data = {"time": np.arange(1, 31), "x": LOGISTIC["data"]}
    return fme.FimlofCost(
        model, data, process_noise={"x": "sd_w"}, measurement_noise={"x": "sd_v"}, parms={"sd_w": 2.0, "sd_v": 3.0}
    )


def rates(t, x, y, *, a=0.8, b=0.3, c=0.05):
    return a * x - c * x * y, -b * y + c * x * y * 0.5


def predator(method, **kwargs):
    return fme.OdeModel(rates, state={"x": 8.0, "y": "y0"}, times=np.arange(0, 10.5, 0.5), method=method,
                        parms={"y0": 5.0}, outputs={"both": "x + y"}, **kwargs)  # fmt: skip


def records(seed=1):
    rng = np.random.default_rng(seed)
    table = predator("rk4", dt=0.1)().iloc[1::2][["time", "x", "both"]]
    table[["x", "both"]] *= np.exp(0.1 * rng.standard_normal((len(table), 2)))
    table.iloc[2, 1] = np.nan
    return table


@pytest.mark.parametrize(
    "model",
    [predator("euler", dt=0.1), predator("rk4", dt=0.25), predator("euler"), predator("rk4")],
    ids=["euler 0.1", "rk4 0.25", "euler", "rk4"],
)
def test_without_process_noise_from_a_known_start_it_is_the_weighted_simulation_cost_plus_a_constant(model):
    data = records()
    sds = {"x": 0.7, "both": 1.3}
    filtered = fme.FimlofCost(model, data, process_noise={}, measurement_noise=sds)
    weighted = sum(fme.SimulationCost(model, data[["time", name]].assign(sd=sd), err="sd") for name, sd in sds.items())
    n = [data[k].notna().sum() for k in sds]
    for p in (None, {"a": 0.75, "y0": 6.0}):
        expected = weighted(p).model + 2 * np.dot(n, np.log(list(sds.values()))) + sum(n) * LN_2PI
        assert filtered(p) == pytest.approx(expected, rel=1e-10)


def test_without_process_noise_a_difference_model_gives_its_simulation_cost(logistic):
    expected = LOGISTIC["limit_Q0"]
    cost = logistic.replace(process_noise={"x": 0.0})
    plain = fme.SimulationCost(logistic.model, pd.DataFrame(logistic.obs).assign(sd=3.0), err="sd")
    assert xi(cost) == pytest.approx(expected["loglik_peterson"], rel=1e-10)
    assert plain().model == pytest.approx(expected["weighted_simulation_cost"], rel=1e-10)


def test_without_measurement_error_all_states_measured_it_is_one_step_least_squares(logistic):
    expected = LOGISTIC["limit_R0"]
    z = np.array([LOGISTIC["x0"], *LOGISTIC["data"]])
    residuals = (z[1:] - grow(0, z[:-1])) / 2.0
    assert residuals @ residuals == pytest.approx(expected["one_step_cost"], rel=1e-10)
    cost = logistic.replace(measurement_noise={"x": 0.0})
    assert xi(cost) == pytest.approx(-0.5 * (residuals @ residuals + 30 * np.log(4.0)), rel=1e-10)
    assert xi(cost) == pytest.approx(expected["loglik_peterson"], rel=1e-10)


def test_one_step_least_squares_of_market_growth_are_the_stored_ones():
    """Other weights of the equations were used there: they do not matter where an equation has parameters alone."""
    reference, _ = stored("single")
    sd = dict(zip(reference["state_order"], reference["measurement"]["sd"], strict=True))
    cost, _ = market_cost("single", process_noise=sd, measurement_noise=dict.fromkeys(sd, 0.0))
    fit = fme.modFit(cost, reference["params"], lower={"DRAT": 0.3, "SAT": 1.0}, hessian=False)
    expected = pd.Series(reference["expected"]["one_step_least_squares"])
    assert fit.par.to_dict() == pytest.approx(expected.to_dict(), rel=0.02)
    alone = ["CEF1", "CEF2", "CEF3", "CEF4", "SAT"]
    assert fit.par[alone].to_dict() == pytest.approx(expected[alone].to_dict(), rel=1e-5)


def test_process_noise_going_to_zero_approaches_the_simulation_cost_at_first_order(logistic):
    """DESIGN section 5: through the same code, variance by variance."""
    limit = LOGISTIC["limit_Q0"]["loglik_peterson"]
    for entry in LOGISTIC["limit_Q0"]["approach"]:
        got = xi(logistic, {"sd_w": np.sqrt(entry["var_w"])})
        assert got == pytest.approx(entry["loglik_peterson"], abs=1e-8)
    gaps = [xi(logistic, {"sd_w": np.sqrt(v)}) - limit for v in (1e-6, 1e-8, 1e-10)]
    assert gaps[0] / gaps[1] == pytest.approx(100, rel=1e-2)
    assert gaps[1] / gaps[2] == pytest.approx(100, rel=1e-3)


def test_measurement_error_going_to_zero_approaches_one_step_least_squares_at_first_order(logistic):
    limit = LOGISTIC["limit_R0"]["loglik_peterson"]
    for entry in LOGISTIC["limit_R0"]["approach"]:
        got = xi(logistic, {"sd_v": np.sqrt(entry["var_v"])})
        assert got == pytest.approx(entry["loglik_peterson"], abs=1e-8)
    gaps = [xi(logistic, {"sd_v": np.sqrt(v)}) - limit for v in (1e-4, 1e-6, 1e-8)]
    assert gaps[0] / gaps[1] == pytest.approx(100, rel=1e-2)
    assert gaps[1] / gaps[2] == pytest.approx(100, rel=1e-2)


def test_the_extended_filter_gives_the_stored_values(logistic):
    assert xi(logistic) == pytest.approx(LOGISTIC["ekf"]["loglik_peterson"], abs=1e-8)
    assert -0.5 * logistic() == pytest.approx(LOGISTIC["ekf"]["loglik_gaussian"], abs=1e-8)
    run, likelihood = logistic.bind().passes(logistic.parms.to_numpy(), record=True)[0]
    np.testing.assert_allclose(run.nu, LOGISTIC["ekf"]["innovations"], atol=1e-8)
    np.testing.assert_allclose(run.s, LOGISTIC["ekf"]["S"], atol=1e-8)
    np.testing.assert_allclose(run.record.x_filtered[1:, 0], LOGISTIC["ekf"]["x_filtered"], atol=1e-8)
    np.testing.assert_allclose(run.record.P_filtered[1:, 0, 0], LOGISTIC["ekf"]["P_filtered"], atol=1e-8)
    assert likelihood.sumsq == pytest.approx(LOGISTIC["ekf"]["sumsq"], abs=1e-8)


# --- linear models: the joint normal density


def linear_cost(F, H, Q, R, z, x0, P0, **arguments):
    """Return the cost of x = F x + w, z = H x + v, data from step 1 on."""
    n, m = len(F), len(H)
    states = [f"x{i}" for i in range(n)]
    text = "\n".join(
        f"next({s}) = " + " + ".join(f"{float(F[i, j])!r} * {states[j]}" for j in range(n))
        for i, s in enumerate(states)
    )
    outputs = {f"z{k}": " + ".join(f"{float(H[k, j])!r} * {states[j]}" for j in range(n)) for k in range(m)}
    model = fme.DifferenceModel(text, state=dict(zip(states, x0, strict=True)), times=np.arange(len(z) + 1),
                                outputs=outputs)  # fmt: skip
    data = pd.DataFrame(z, columns=list(outputs)).assign(time=np.arange(1, len(z) + 1))
    data = data.dropna(axis=1, how="all")
    kept = [k for k in outputs if k in data]
    at = [list(outputs).index(k) for k in kept]
    return fme.FimlofCost(
        model,
        data,
        process_noise=pd.DataFrame(Q, index=states, columns=states),
        measurement_noise=pd.DataFrame(R[np.ix_(at, at)], index=kept, columns=kept),
        initial_sd=pd.DataFrame(P0, index=states, columns=states),
        **arguments,
    )


def joint_density(F, H, Q, R, z, x0, P0):
    """Return the log density of all data at once: no filter, one big normal."""
    n, N = len(F), len(z)
    means, covariances = [x0], {(0, 0): P0}
    for k in range(1, N + 1):
        means.append(F @ means[-1])
        covariances[k, k] = F @ covariances[k - 1, k - 1] @ F.T + Q
        for j in range(k):
            covariances[k, j] = F @ covariances[k - 1, j]
            covariances[j, k] = covariances[k, j].T
    mean = np.concatenate([H @ x for x in means[1:]])
    blocks = [[H @ covariances[i, j] @ H.T + (R if i == j else 0) for j in range(1, N + 1)] for i in range(1, N + 1)]
    there = np.isfinite(z.ravel())
    S = np.block(blocks)[np.ix_(there, there)]
    assert n == len(x0)
    return float(multivariate_normal.logpdf(z.ravel()[there], mean[there], S))


def random_system(seed, n, m, N, missing):
    rng = np.random.default_rng(seed)

    def covariance(k):
        A = rng.standard_normal((k, k))
        return A @ A.T / k + 0.1 * np.eye(k)

    F = rng.standard_normal((n, n))
    F *= 0.95 / max(abs(np.linalg.eigvals(F)))
    H, Q, R, P0 = rng.standard_normal((m, n)), covariance(n), covariance(m), covariance(n)
    z = rng.standard_normal((N, m)) * 2
    z[rng.random((N, m)) < missing] = np.nan
    return F, H, Q, R, z, rng.standard_normal(n), P0


@given(seed=st.integers(0, 10**6), n=st.integers(1, 3), m=st.integers(1, 3), missing=st.sampled_from([0.0, 0.3, 0.6]))
@settings(max_examples=15, deadline=None, derandomize=True)
def test_of_a_linear_model_it_is_the_joint_normal_density_of_all_present_data(seed, n, m, missing):
    system = random_system(seed, n, m, 12, missing)
    if not np.isfinite(system[4]).any():
        return
    for algorithm in ("sequential", "sqrt"):
        cost = linear_cost(*system, algorithm=algorithm)
        assert -0.5 * cost() == pytest.approx(joint_density(*system), rel=1e-10)


@given(seed=st.integers(0, 10**6), n=st.integers(1, 3), m=st.integers(1, 2), missing=st.sampled_from([0.0, 0.3]))
@settings(max_examples=10, deadline=None, derandomize=True)
def test_statsmodels_gives_the_same_likelihood_with_missing_data(seed, n, m, missing):
    from statsmodels.tsa.statespace.kalman_filter import KalmanFilter

    F, H, Q, R, z, x0, P0 = system = random_system(seed, n, m, 40, missing)
    other = KalmanFilter(k_endog=m, k_states=n, transition=F[:, :, None], design=H[:, :, None], state_cov=Q[:, :, None],
                         obs_cov=R[:, :, None], selection=np.eye(n)[:, :, None])  # fmt: skip
    other.bind(np.ascontiguousarray(z))
    other.initialize_known(F @ x0, F @ P0 @ F.T + Q)  # its start is at the first sample
    assert -0.5 * linear_cost(*system)() == pytest.approx(other.loglike(), rel=1e-8)


def test_splitting_a_measurement_into_two_samples_of_one_time_changes_nothing(logistic):
    data = pd.DataFrame(logistic.obs)
    twice = pd.concat([data, data.assign(x=data.x + 1.0)])
    one_by_one = twice.sort_values("time", kind="stable")
    model = logistic.model.replace(outputs={"again": "x"})
    wide = data.assign(again=data.x + 1.0)
    as_two = fme.FimlofCost(model, wide, process_noise={"x": 2.0}, measurement_noise={"x": 3.0, "again": 3.0})
    assert logistic.replace(obs=twice)() == pytest.approx(logistic.replace(obs=one_by_one)(), rel=1e-13)
    assert logistic.replace(obs=twice)() == pytest.approx(as_two(), rel=1e-12)


def test_the_order_of_rows_and_columns_has_no_effect():
    system = random_system(5, 2, 3, 10, 0.2)
    cost = linear_cost(*system)
    table = pd.DataFrame(cost.obs)
    shuffled = table[table.columns[::-1]].sample(frac=1, random_state=1)
    assert cost.replace(obs=shuffled)() == pytest.approx(cost(), rel=1e-12)
    long = table.melt("time").rename(columns={"variable": "name"})[["name", "time", "value"]]
    assert cost.replace(obs=long, y="value")() == pytest.approx(cost(), rel=1e-12)


def test_a_missing_sample_only_widens_the_next_prediction():
    F, H, Q, R, z, x0, P0 = random_system(7, 2, 1, 8, 0.0)
    z[3] = np.nan
    two_steps = linear_cost(F, H, Q, R, z, x0, P0)
    assert -0.5 * two_steps() == pytest.approx(joint_density(F, H, Q, R, z, x0, P0), rel=1e-11)
    assert two_steps.nobs == 7


def test_coloured_measurement_noise_and_an_unknown_input_are_states_of_the_model():
    """z = x + b, b(n) = rho b(n-1) + e, and x driven by a random walk u: nothing but a larger linear system."""
    model = fme.DifferenceModel(
        "next(x) = a * x + u\nnext(u) = u\nnext(b) = rho * b", state={"x": 1.0, "u": 0.2, "b": 0.0},
        times=np.arange(26), parms={"a": 0.7, "rho": 0.6}, outputs={"z": "x + b"},
    )  # fmt: skip
    z = np.cumsum(np.random.default_rng(6).standard_normal(25)) * 0.3 + 1
    cost = fme.FimlofCost(
        model, {"time": np.arange(1, 26), "z": z}, process_noise={"x": 0.3, "u": 0.1, "b": 0.4},
        measurement_noise={"z": 0.0}, initial_sd={"b": 0.5},
    )  # fmt: skip
    F = np.array([[0.7, 1.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.6]])
    H, Q, P0 = np.array([[1.0, 0.0, 1.0]]), np.diag([0.09, 0.01, 0.16]), np.diag([0.0, 0.0, 0.25])
    expected = joint_density(F, H, Q, np.zeros((1, 1)), z[:, None], np.array([1.0, 0.2, 0.0]), P0)
    assert -0.5 * cost() == pytest.approx(expected, rel=1e-10)


def test_cross_sections_many_readings_of_one_time_count_as_their_mean_and_spread():
    """Twenty readings of one state at once: the likelihood of their mean, and of the spread around it."""
    rng = np.random.default_rng(9)
    readings = 3 + rng.standard_normal((4, 20))
    model = fme.DifferenceModel("next(x) = x", state={"x": 3.0}, times=np.arange(5))
    table = pd.DataFrame({"time": np.repeat(np.arange(1, 5), 20), "x": readings.ravel()})
    cost = fme.FimlofCost(model, table, process_noise={"x": 0.5}, measurement_noise={"x": 1.0})
    means = fme.FimlofCost(
        model, {"time": np.arange(1, 5), "x": readings.mean(axis=1)}, process_noise={"x": 0.5},
        measurement_noise={"x": 1 / np.sqrt(20)},
    )  # fmt: skip
    spread = ((readings - readings.mean(axis=1, keepdims=True)) ** 2).sum() + 4 * (19 * LN_2PI + np.log(20))
    assert cost() == pytest.approx(means() + spread, rel=1e-11)
