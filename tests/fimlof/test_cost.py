"""FimlofCost: what it takes, what it counts, what it refuses; market growth agrees with its stored likelihoods."""

import pickle
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest

import fmepy as fme
from fmepy.errors import ArgumentError, DataError, ParameterError, SimulationError
from fmepy.filtering import likelihood
from tests.fimlof.market import THIRTEEN, market_cost

LN_2PI = np.log(2 * np.pi)


def step(n, x, y, *, a=0.8, b=0.5, drift=0.0):
    return a * x + 0.1 * y + drift, b * y + 1.0


@pytest.fixture(scope="module")
def model():
    return fme.DifferenceModel(step, state={"x": 1.0, "y": 2.0}, times=np.arange(21), outputs={"both": "x + y"})


@pytest.fixture(scope="module")
def data(model):
    rng = np.random.default_rng(4)
    table = model().iloc[1:][["time", "x", "both"]].reset_index(drop=True)
    table[["x", "both"]] += rng.standard_normal((20, 2))
    return table


@pytest.fixture(scope="module")
def cost(model, data):
    return fme.FimlofCost(
        model, data, process_noise={"x": "sd_w", "y": 0.3}, measurement_noise={"x": "sd_v", "both": 1.0},
        parms={"sd_w": 0.5, "sd_v": 0.8},
    )  # fmt: skip


def test_a_copy_is_of_the_data_and_noise_as_they_were_given(model, data):
    obs, noise = data.copy(), {"x": 0.5, "both": 1.0}
    cost = fme.FimlofCost(model, obs, process_noise={"x": 0.4}, measurement_noise=noise)
    before = cost()
    obs.loc[3, "x"], noise["x"] = 90.0, 7.0
    assert cost.replace(threshold=4)() == before


# --- market growth


@pytest.mark.parametrize("which", ["single", "panel20"])
def test_market_growth_has_its_stored_likelihood_at_the_truth_and_at_the_estimate(which):
    cost, reference = market_cost(which)
    expected = reference["expected"]
    bound = cost.bind(THIRTEEN)
    for theta, name in ((bound.theta0, "true"), (np.array([expected["mle"][k] for k in THIRTEEN]), "mle")):
        found = bound.likelihoods(theta)
        assert sum(one.xi for one in found) == pytest.approx(expected[f"loglik_peterson_at_{name}"], abs=1e-6)
        assert sum(one.sumsq for one in found) == pytest.approx(expected[f"sumsq_at_{name}"], rel=1e-9)
    assert cost.nobs == expected["nobs"]


def test_the_expected_information_gives_the_stored_standard_errors_and_the_score_vanishes_at_the_estimate():
    cost, reference = market_cost("single")
    expected = reference["expected"]
    bound = cost.bind(THIRTEEN)
    theta = np.array([expected["mle"][k] for k in THIRTEEN])
    covariance = np.linalg.inv(bound.information(theta))
    np.testing.assert_allclose(np.sqrt(np.diag(covariance)), list(expected["mle_se"].values()), rtol=1e-5)
    score = bound.score(theta)
    assert score @ covariance @ score < 1e-5


# --- derivatives


def test_the_score_is_the_slope_of_the_likelihood(cost):
    bound = cost.bind()
    theta = bound.theta0 + 0.01
    for j, slope in enumerate(bound.score(theta)):
        h = np.zeros(theta.size)
        h[j] = 1e-5
        expected = -0.5 * (bound.minus2loglik(theta + h) - bound.minus2loglik(theta - h)) / 2e-5
        assert slope == pytest.approx(expected, rel=1e-6, abs=1e-6)
    rough = bound.score(theta, rough=True)
    np.testing.assert_allclose(rough, bound.score(theta), rtol=1e-4, atol=1e-3)


def test_the_score_of_a_diffuse_start_is_the_slope_too(cost):
    bound = cost.replace(initial="diffuse").bind(["a", "sd_w", "sd_v"])
    for j, slope in enumerate(bound.score(bound.theta0)):
        h = np.zeros(3)
        h[j] = 1e-5
        ahead, behind = bound.minus2loglik(bound.theta0 + h), bound.minus2loglik(bound.theta0 - h)
        assert slope == pytest.approx(-0.5 * (ahead - behind) / 2e-5, rel=1e-6, abs=1e-6)


def test_the_expected_information_is_the_variance_of_the_score(model):
    """Over simulated data, a fixed seed."""
    rng = np.random.default_rng(11)
    cost = None
    scores, informations = [], []
    for _ in range(120):
        x, y, rows = 1.0, 2.0, []
        for n in range(1, 21):
            x, y = step(n, x, y)
            x, y = x + 0.5 * rng.standard_normal(), y + 0.3 * rng.standard_normal()
            rows.append((n, x + 0.8 * rng.standard_normal(), x + y + rng.standard_normal()))
        table = pd.DataFrame(rows, columns=["time", "x", "both"])
        if cost is None:
            cost = fme.FimlofCost(
                model, table, process_noise={"x": "sd_w", "y": 0.3}, parms={"sd_w": 0.5, "sd_v": 0.8},
                measurement_noise={"x": "sd_v", "both": 1.0},
            )  # fmt: skip
        bound = cost.replace(obs=table).bind(["a", "b", "sd_w", "sd_v"])
        scores.append(bound.score(bound.theta0))
        informations.append(bound.information(bound.theta0))
    spread = np.cov(np.array(scores).T)
    information = np.mean(informations, axis=0)  # given the past of each datum
    size = np.sqrt(np.diag(information))
    difference = (spread - information) / np.outer(size, size)
    assert np.abs(difference).max() < 4 * np.sqrt(2 / 120)
    assert np.abs(np.mean(scores, axis=0) / size).max() < 4 / np.sqrt(120)


def test_the_rows_for_sensFun_make_up_the_information_and_collin_takes_them(cost):
    bound = cost.bind(["a", "b", "sd_w", "sd_v"])
    names, x, rows = bound.sensitivity_rows(bound.theta0)
    assert rows.shape == (80, 4)
    assert len(names) == len(x) == 80
    np.testing.assert_array_equal(x[:40], x[40:])  # rows of means, then of spreads: a picture parts them
    np.testing.assert_allclose(rows.T @ rows, bound.information(bound.theta0), rtol=1e-12)
    sens = fme.sensFun(cost, {"a": 0.8, "b": 0.5, "sd_w": 0.5, "sd_v": 0.8}, parscale=1.0)
    S = sens.matrix.to_numpy()
    np.testing.assert_allclose(S.T @ S, bound.information(bound.theta0), rtol=1e-10)
    assert fme.collin(sens).frame["collinearity"].ge(1).all()


# --- what it takes


def test_parameters_are_the_models_then_the_noises_and_sds_are_not_below_zero(cost):
    assert list(cost.parms.index) == ["a", "b", "drift", "sd_w", "sd_v"]
    assert cost.lower.to_dict() == {"a": -np.inf, "b": -np.inf, "drift": -np.inf, "sd_w": 0.0, "sd_v": 0.0}
    assert np.isinf(cost.upper).all()
    assert cost.nobs == 40


def test_a_parameter_that_does_more_than_scale_a_noise_has_no_bound_of_its_own(model, data):
    cost = fme.FimlofCost(
        model, data, process_noise={"x": "s * a"}, measurement_noise={"x": "exp(ls)", "both": "k + 0.1"},
        parms={"s": 1.0, "ls": 0.0, "k": 1.0},
    )  # fmt: skip
    assert cost.lower.to_dict() == {"a": -np.inf, "b": -np.inf, "drift": -np.inf, "s": 0.0, "ls": -np.inf, "k": -np.inf}


def test_estimate_makes_parameters(model, data):
    cost = fme.FimlofCost(
        model, data, process_noise={"x": "estimate"}, measurement_noise={"x": "estimate", "both": 1.0}
    )
    assert list(cost.parms.index[-2:]) == ["sd_w_x", "sd_v_x"]
    assert (cost.parms[["sd_w_x", "sd_v_x"]] > 0).all()
    same = fme.FimlofCost(model, data, process_noise={"x": "q"}, measurement_noise={"x": "r", "both": 1.0},
                          parms={"q": 0.7, "r": 0.9})  # fmt: skip
    assert cost({"sd_w_x": 0.7, "sd_v_x": 0.9}) == same()
    start = cost.replace(parms={"sd_w_x": 0.7, "sd_v_x": 0.9})
    assert start() == same()


def test_noise_of_a_parameter_enters_where_the_parameter_does(model, data, cost):
    """drift is added to x: its noise is that of x."""
    other = fme.FimlofCost(
        model, data, process_noise={"drift": 0.5, "y": 0.3}, measurement_noise={"x": 0.8, "both": 1.0}
    )
    assert other() == pytest.approx(cost(), rel=1e-12)


def test_a_covariance_table_without_covariances_is_independent_noise(model, data, cost):
    table = pd.DataFrame([["sd_w**2", 0.0], [0.0, 0.09]], index=["x", "y"], columns=["x", "y"])
    errors = pd.DataFrame([["sd_v**2", 0.0], [0.0, 1.0]], index=["x", "both"], columns=["x", "both"])
    assert cost.replace(process_noise=table)() == pytest.approx(cost(), rel=1e-12)
    assert cost.replace(measurement_noise=errors)() == pytest.approx(cost(), rel=1e-12)


def test_err_fills_the_measurement_noise_and_may_be_scaled(model, data):
    one = data[["time", "x"]].assign(sd=np.linspace(0.5, 1.5, 20))
    filled = fme.FimlofCost(model, one, process_noise={"x": 0.5}, err="sd")
    scaled = fme.FimlofCost(model, one, process_noise={"x": 0.5}, err="sd", measurement_noise={"x": "k * err"},
                            parms={"k": 1.0})  # fmt: skip
    assert scaled() == filled()
    doubled = fme.FimlofCost(model, one.assign(sd=2 * one.sd), process_noise={"x": 0.5}, err="sd")
    assert scaled({"k": 2.0}) == pytest.approx(doubled(), rel=1e-14)
    assert scaled.lower["k"] == 0
    own = filled.replace(measurement_noise={"x": 1.0})  # said of the variable: its errors do not count
    assert own() == fme.FimlofCost(model, data[["time", "x"]], process_noise={"x": 0.5}, measurement_noise={"x": 1.0})()


def test_an_error_proportional_to_size_is_taken_at_the_prediction(model, data):
    one = data[["time", "x"]]
    cost = fme.FimlofCost(model, one, process_noise={"x": 0.5}, measurement_noise={"x": "sqrt((0.2 * x)**2 + 0.01)"})
    x, P, minus2loglik = np.array([1.0, 2.0]), np.zeros((2, 2)), 0.0
    F = np.array([[0.8, 0.1], [0.0, 0.5]])
    for z in one.x:
        x, P = F @ x + [0, 1], F @ P @ F.T + np.diag([0.25, 0])
        r = (0.2 * x[0]) ** 2 + 0.01
        s = P[0, 0] + r
        minus2loglik += np.log(2 * np.pi * s) + (z - x[0]) ** 2 / s
        K = P[:, 0] / s
        x, P = x + K * (z - x[0]), P - np.outer(K, K) * s
    assert cost() == pytest.approx(minus2loglik, rel=1e-12)


def test_decimal_logarithms_are_natural_ones_in_another_unit(model, data):
    positive = data[["time"]].assign(both=np.exp(0.1 * data.both) + 1)
    unit = np.log(10)
    natural = fme.FimlofCost(
        model, positive, process_noise={"x": 0.1}, measurement_noise={"both": 0.2}, transform="log"
    )
    decimal = natural.replace(measurement_noise={"both": 0.2 / unit}, transform="log10")
    one, two = natural.filter(), decimal.filter()
    assert one.loglik + one.log_jacobian == pytest.approx(two.loglik + two.log_jacobian, rel=1e-10)
    np.testing.assert_allclose(two.data_as_given["obs"], one.data_as_given["obs"], rtol=1e-12)
    assert natural.bind().score(natural.bind().theta0) == pytest.approx(
        decimal.bind().score(decimal.bind().theta0), rel=1e-7
    )


def test_transformed_readings_are_filtered_on_their_scale(model, data):
    positive = data[["time"]].assign(both=np.exp(0.1 * data.both) + 1)
    cost = fme.FimlofCost(model, positive, process_noise={"x": 0.1}, measurement_noise={"both": 0.2}, transform="log")
    as_output = model.replace(outputs={"both": "x + y", "log_both": "log(x + y)"})
    by_hand = positive.assign(log_both=np.log(positive.both)).drop(columns="both")
    other = fme.FimlofCost(as_output, by_hand, process_noise={"x": 0.1}, measurement_noise={"log_both": 0.2})
    assert cost() == pytest.approx(other(), rel=1e-13)
    assert cost.filter().log_jacobian == pytest.approx(-np.log(positive.both).sum())


def test_entities_are_filtered_apart_and_share_parameters(model, data, cost):
    other = data.assign(x=data.x + 0.3)
    panel = pd.concat([data.assign(site="A"), other.assign(site="B")])
    both = cost.replace(obs=panel, entity="site")
    assert both({"a": 0.7}) == pytest.approx(cost({"a": 0.7}) + cost.replace(obs=other)({"a": 0.7}), rel=1e-13)
    assert both.nobs == 80
    summed = cost + cost.replace(obs=other)
    assert summed({"a": 0.7}) == pytest.approx(both({"a": 0.7}), rel=1e-13)
    np.testing.assert_allclose(summed.bind().score(summed.parms.to_numpy()), both.bind().score(both.parms.to_numpy()))
    np.testing.assert_allclose(
        summed.bind().information(summed.parms.to_numpy()), both.bind().information(both.parms.to_numpy())
    )


def test_an_entity_may_have_parameters_of_its_own(model, data, cost):
    other = data.assign(x=data.x + 0.3)
    panel = pd.concat([data.assign(site="A"), other.assign(site="B")])
    both = cost.replace(obs=panel, entity="site", entity_parms=["drift", "sd_v"])
    assert list(both.parms.index) == ["a", "b", "drift[A]", "drift[B]", "sd_w", "sd_v[A]", "sd_v[B]"]
    assert both.lower["sd_v[B]"] == 0
    assert both.lower["drift[A]"] == -np.inf
    expected = cost({"drift": 0.1}) + cost.replace(obs=other)({"drift": -0.2, "sd_v": 0.9})
    assert both({"drift[A]": 0.1, "drift[B]": -0.2, "sd_v[B]": 0.9}) == pytest.approx(expected, rel=1e-13)
    assert both.replace(parms={"drift[B]": -0.2})() == both({"drift[B]": -0.2})
    with pytest.raises(ParameterError, match=r"drift\[C\]"):
        both.replace(parms={"drift[C]": 0.1})
    score = both.bind(["drift[A]", "drift[B]"]).score(np.array([0.1, -0.2]))
    assert score[0] == pytest.approx(cost.bind(["drift"]).score(np.array([0.1]))[0], rel=1e-9)


def test_a_variable_may_be_missing_in_an_entity(cost, data):
    panel = pd.concat([data.assign(site="A"), data.assign(site="B", x=np.nan)])
    both = cost.replace(obs=panel, entity="site")
    alone = fme.FimlofCost(cost.model, data[["time", "both"]], process_noise=cost.process_noise,
                           measurement_noise={"both": 1.0}, parms={"sd_w": 0.5})  # fmt: skip
    assert both() == pytest.approx(cost() + alone(), rel=1e-13)
    assert both.nobs == 60


def test_joint_is_another_word_for_sequential(cost):
    table = pd.DataFrame([[0.5, 0.2], [0.2, 1.0]], index=["x", "both"], columns=["x", "both"])
    for one in (cost, cost.replace(measurement_noise=table)):
        other = one.replace(algorithm="joint")
        assert other() == one()
        np.testing.assert_array_equal(other.bind().score(one.bind().theta0), one.bind().score(one.bind().theta0))


def test_a_start_from_data_uses_up_the_first_sample(model, data, cost):
    started = cost.replace(initial="data", initial_sd={"y": 0.4})
    first = data.iloc[0]
    later = fme.DifferenceModel(step, state={"x": first.x, "y": 2.0}, times=np.arange(1, 21), outputs={"both": "x + y"})
    by_hand = cost.replace(model=later, obs=data.iloc[1:], initial_sd={"x": 0.8, "y": 0.4})
    assert started() == pytest.approx(by_hand(), rel=1e-13)
    assert started.nobs == 38


def test_a_start_from_several_first_data_is_their_mean_weighted_by_their_errors():
    model = fme.DifferenceModel("next(x) = 0.9 * x", state={"x": 0.0}, times=np.arange(5))
    later = {"time": [2, 3, 4], "x": [3.1, 2.7, 2.2], "sd": [0.4, 0.4, 0.4]}
    first = pd.DataFrame({"time": [1, 1], "x": [3.0, 4.0], "sd": [0.5, 1.0]})
    both = pd.concat([first, pd.DataFrame(later)])
    cost = fme.FimlofCost(model, both, process_noise={"x": 0.2}, err="sd", initial="data")
    start = (3.0 / 0.25 + 4.0 / 1.0) / (1 / 0.25 + 1 / 1.0)  # 3.2, with sd sqrt(1/5)
    by_hand = fme.FimlofCost(
        fme.DifferenceModel("next(x) = 0.9 * x", state={"x": start}, times=np.arange(1, 5)), later,
        process_noise={"x": 0.2}, err="sd", initial_sd={"x": np.sqrt(1 / 5)},
    )  # fmt: skip
    assert cost() == pytest.approx(by_hand(), rel=1e-13)
    assert cost.nobs == 3


def test_the_start_may_be_uncertain_by_sds_or_a_covariance(cost):
    table = pd.DataFrame([[0.25, 0.0], [0.0, 0.04]], index=["x", "y"], columns=["x", "y"])
    assert cost.replace(initial_sd={"x": 0.5, "y": 0.2})() == pytest.approx(cost.replace(initial_sd=table)(), rel=1e-14)
    assert cost.replace(initial_sd=table)() != cost()


@pytest.mark.parametrize("algorithm", ["sequential", "sqrt"])
def test_a_diffuse_start_of_readings_without_error_is_the_limit_of_small_ones(algorithm):
    trend = fme.DifferenceModel(
        "next(level) = level + slope\nnext(slope) = slope", state={"level": 0, "slope": 0}, times=np.arange(7)
    )
    obs = {"time": np.arange(7.0), "level": [300.0, 331.0, 342.0, 377.0, 391.0, 428.0, 440.0]}
    cost = fme.FimlofCost(
        trend, obs, process_noise={"level": 10.0, "slope": 3.0}, measurement_noise={"level": 0.0},
        initial="diffuse", algorithm=algorithm,
    )  # fmt: skip
    nearly = cost.replace(measurement_noise={"level": 1e-5})
    assert cost() == pytest.approx(nearly(), rel=1e-9)
    # what the levels step by: Z is of 6 steps, normal but for a slope of which nothing is known, which counts the last
    steps, later = np.diff(obs["level"]), np.arange(6.0)
    V = 10.0**2 * np.eye(6) + 3.0**2 * np.minimum.outer(later, later)
    W, one = np.linalg.inv(V), np.ones(6)
    left = steps - one * (one @ W @ steps) / (one @ W @ one)
    expected = 5 * np.log(2 * np.pi) + np.linalg.slogdet(V)[1] + np.log(one @ W @ one) + left @ W @ left
    assert cost() == pytest.approx(expected, rel=1e-12)
    flt = cost.filter()
    assert flt.smoothed["level"].to_numpy() == pytest.approx(obs["level"], rel=1e-12)
    assert flt.sd("smoothed")["slope"].to_numpy() == pytest.approx(
        nearly.filter().sd("smoothed")["slope"].to_numpy(), rel=1e-6
    )


def test_a_diffuse_start_is_the_limit_of_a_wide_one(cost):
    """The likelihood then lacks the ln of the width, once a state, and the 2 pi of the data that are used up."""
    exact = -0.5 * cost.replace(initial="diffuse")()
    for width in (1e3, 1e4):
        wide = -0.5 * cost.replace(initial_sd={"x": width, "y": width})()
        assert wide + 2 * np.log(width) + LN_2PI == pytest.approx(exact, abs=30 / width**2 + 1e-7)
    assert cost.replace(initial="diffuse").nobs == 38


def test_where_the_search_for_an_unknown_start_begins_does_not_matter():
    def cost(start):
        model = fme.DifferenceModel(
            lambda n, x, *, r=0.3, K=10.0: x + r * x * (1 - x / K), state={"x": start}, times=np.arange(7)
        )
        obs = {"time": np.arange(1, 7), "x": [1.2, 1.6, 2.0, 2.4, 3.1, 3.7]}
        return fme.FimlofCost(model, obs, process_noise={"x": 0.05}, measurement_noise={"x": 0.1}, initial="diffuse")

    for start in (0.8, 6.0, 20.0):
        assert cost(start)() == pytest.approx(cost(3.0)(), rel=1e-11)


def test_a_start_that_wanders_from_pass_to_pass_is_sought(monkeypatch):
    def cost(start):
        model = fme.DifferenceModel("next(x) = r*x*(1 - x)", state={"x": 0.3}, times=range(13), parms={"r": 3.9})
        data = model().iloc[1:]
        data["x"] += 0.2 * np.random.default_rng(0).standard_normal(12)
        noise = {"process_noise": {"x": 0.02}, "measurement_noise": {"x": 0.2}, "initial": "diffuse"}
        return fme.FimlofCost(model.replace(state={"x": start}), data, **noise)

    assert cost(0.2)() == pytest.approx(cost(0.3)(), abs=1e-6)
    monkeypatch.setattr(likelihood, "_SETTLED", -1.0)  # as where no start stays
    with pytest.raises(SimulationError, match=r"the start.*does not settle.*initial_sd"):
        cost(0.2).bind().minus2loglik(np.array([3.9]))
    assert "does not settle" in str(cost(0.2).filter())


def test_events_and_forcings_of_a_model_act_in_its_filter():
    """Without process noise the filter is the simulation, so any difference shows."""
    model = fme.OdeModel(
        "d(A)/dt = u - k * A", state={"A": 1.0}, times=np.arange(0, 10.5, 0.5), parms={"k": 0.4, "dose": 2.0},
        forcings={"u": ([0, 4, 4.5, 10], [0, 0, 1, 1])}, method="rk4", dt=0.25,
        events=pd.DataFrame({"var": ["A", "A"], "time": [2.0, 6.0], "value": ["dose", 0.5],
                             "method": ["add", "multiply"]}),
    )  # fmt: skip
    table = model().iloc[1:].assign(A=lambda t: t.A + 0.1)
    cost = fme.FimlofCost(model, table, process_noise={"A": "q"}, measurement_noise={"A": 0.5}, parms={"q": 0.0})
    plain = fme.SimulationCost(model, table.assign(sd=0.5), err="sd")
    expected = plain({"dose": 2.2}).model + 20 * np.log(2 * np.pi * 0.25)
    assert cost({"dose": 2.2}) == pytest.approx(expected, rel=1e-11)
    assert np.isfinite(cost({"q": 0.3}))


def test_an_accumulated_variable_is_a_sum_over_the_time_before_its_reading():
    model = fme.DifferenceModel("next(x) = a * x", state={"x": 2.0}, times=np.arange(13), parms={"a": 0.9})
    path = 2.0 * 0.9 ** np.arange(13)
    sums = {"time": [4, 8, 12], "x": [path[1:5].sum() + 0.1, path[5:9].sum(), path[9:13].sum() - 0.2]}
    cost = fme.FimlofCost(model, sums, process_noise={}, measurement_noise={"x": 1.0}, accumulate={"x": 4})
    assert cost() == pytest.approx(0.1**2 + 0.2**2 + 3 * LN_2PI, rel=1e-12)
    means = {"time": sums["time"], "x": np.array(sums["x"]) / 4}
    of_means = cost.replace(obs=means, accumulate={"x": (4, "mean")}, measurement_noise={"x": 0.25})
    assert of_means() == pytest.approx(cost() - 2 * 3 * np.log(4), rel=1e-12)


def test_a_rate_with_noise_counts_by_the_root_of_time_or_once_a_step():
    def walk(t, x, *, k=0.0):
        return k * x

    model = fme.OdeModel(walk, state={"x": 0.0}, times=[0, 1, 2], method="euler", dt=0.25)
    obs = {"time": [1, 2], "x": [0.5, 1.0]}
    brownian = fme.FimlofCost(model, obs, process_noise={"x": 2.0}, measurement_noise={"x": 0.1})
    per_step = brownian.replace(noise_kind="per_step")
    variances = [one.s[0] for c in (brownian, per_step) for one in c.bind().likelihoods(np.zeros(1))]
    assert variances[0] == pytest.approx(4 * 1 + 0.01)
    assert variances[1] == pytest.approx(4 * 4 * 0.25**2 + 0.01)
    finer = brownian.replace(dt=0.125)
    assert finer() == pytest.approx(brownian(), rel=1e-12)
    assert per_step.replace(dt=0.125)() != pytest.approx(per_step(), rel=1e-3)


# --- the object


def test_it_pickles_and_replaces(cost, data):
    again = pickle.loads(pickle.dumps(cost))
    assert again({"a": 0.7}) == cost({"a": 0.7})
    half = cost.replace(measurement_noise={"x": 0.5})
    assert list(half.parms.index) == ["a", "b", "drift", "sd_w"]
    assert half() == pytest.approx(cost({"sd_v": 0.5}), rel=1e-14)
    assert "x (20), both (20); 5 parameters" in repr(cost)
    assert cost.replace(obs=data.assign(x=data.x.where(data.time > 3))).dropped.to_dict() == {"x": 3, "both": 0}


def test_a_transformed_cost_follows_the_chain_rule(cost):
    logs = fme.transformed(cost, {"sd_w": "log", "sd_v": "log"})
    theta = {"a": 0.7, "sd_w": np.log(0.6), "sd_v": np.log(0.7)}
    assert logs(theta) == pytest.approx(cost({"a": 0.7, "sd_w": 0.6, "sd_v": 0.7}))
    mine, plain = logs.bind(["a", "sd_w"]), cost.bind(["a", "sd_w"])
    np.testing.assert_allclose(
        mine.score(np.array([0.7, np.log(0.6)])), plain.score(np.array([0.7, 0.6])) * [1, 0.6], rtol=1e-8
    )
    assert mine.nobs == 40
    assert mine.scale_parameters.tolist() == [False, False]
    assert plain.scale_parameters.tolist() == [False, True]


def test_inflated_noise_is_noise_of_larger_sds(cost):
    bound = cost.bind(["a", "sd_w"])
    other = cost.replace(process_noise={"x": "3 * sd_w", "y": 0.9}).bind(["a", "sd_w"])
    assert bound.inflated(3.0).minus2loglik(bound.theta0) == pytest.approx(other.minus2loglik(bound.theta0), rel=1e-13)
    assert cost.replace(process_noise={"x": 0.0, "y": 0.0}).bind(["a"]).inflated(3.0) is None


# --- what breaks down


def test_a_filter_that_diverges_is_infinite_cost_and_says_where():
    model = fme.DifferenceModel("next(x) = x**2", state={"x": "x0"}, times=np.arange(20), parms={"x0": 0.5})
    cost = fme.FimlofCost(
        model, {"time": np.arange(3, 20), "x": 0.0}, process_noise={"x": 0.001}, measurement_noise={"x": 1.0}
    )
    assert np.isfinite(cost())
    assert cost({"x0": 1e200}) == np.inf
    with pytest.raises(SimulationError, match=r"broke down at time 3 \(sample 1\).*NaN or infinite") as caught:
        cost.bind().minus2loglik(np.array([1e200]))
    assert caught.value.time == 3
    assert caught.value.parameters == {"x0": 1e200}


def test_a_noise_without_value_is_a_failed_run(cost):
    bad = cost.replace(initial_sd={"x": "sd_w / (1 - a**2) ** 0.5"})
    assert np.isfinite(bad())
    assert bad({"a": 1.5}) == np.inf


# --- what is refused


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"process_noise": {"z": 1.0}}, ArgumentError, "'z' is not a state or parameter.*There are 'x', 'y', 'a'"),
        ({"process_noise": {"both": 1.0}}, ArgumentError, "'both' is an output.*one of 'x', 'y'.*measurement_noise"),
        ({"process_noise": {"x": -1.0}}, ArgumentError, "not below zero"),
        ({"process_noise": {"x": "sd_x"}}, ArgumentError, "uses 'sd_x', which has no value. Give it in `parms`"),
        ({"process_noise": 3.0}, ArgumentError, "must be a dict of names and standard deviations"),
        ({"measurement_noise": {"q": 1.0}}, ArgumentError, "'q' is not an observed variable"),
        ({"measurement_noise": {"x": "k * err"}, "parms": {"k": 1.0}}, ArgumentError, "uses 'err', but there is no"),
        ({"measurement_noise": {"x": np.nan}}, ArgumentError, "is nan; a number, an expression such as 'sd_w'"),
        ({"parms": {"sd_ww": 1.0}}, ParameterError, "'sd_ww' is used nowhere in the noise. Did you mean 'sd_w'"),
        ({"parms": {"sd_w": -1.0}}, ParameterError, "scales a noise, and is not below zero"),
        ({"parms": {"a": 1.0}}, ParameterError, "is a parameter of the model. Change it there"),
        ({"initial": "estimate"}, ArgumentError, "known.*data.*diffuse"),
        ({"initial_sd": {"q": 1.0}}, ArgumentError, "'q' is not a state"),
        ({"initial_sd": {"x": "estimate"}}, ArgumentError, "cannot be estimated from one start"),
        ({"entity_parms": ["a"]}, ArgumentError, "needs `entity`"),
        ({"propagation": "euler"}, ArgumentError, "for differential equations"),
        ({"dt": 0.1}, ArgumentError, "for differential equations"),
        ({"noise_kind": "brownian"}, ArgumentError, "an sd is per step"),
        ({"update": "ukf"}, ArgumentError, "unscented"),
        ({"algorithm": "fast"}, ArgumentError, "sequential"),
        ({"threshold": -1.0}, ArgumentError, "positive number of standard deviations"),
        ({"accumulate": {"x": 0}}, ArgumentError, "length of time above zero"),
        ({"accumulate": {"x": 2.5}}, ArgumentError, "sum whole steps"),
        ({"accumulate": {"q": 3}}, ArgumentError, "not an observed variable"),
        ({"x": "tme"}, DataError, "not a column"),
        ({"entity": "firm"}, DataError, "not a column"),
        ({"tranform": "log"}, ArgumentError, "Did you mean 'transform'"),
    ],
)
def test_bad_arguments_are_refused_with_what_to_do(cost, change, error, words):
    with pytest.raises(error, match=f"(?s){words}"):
        cost.replace(**change)


def test_a_variable_without_any_measurement_noise_is_refused(model, data):
    with pytest.raises(ArgumentError, match=r"has no entry for 'both'.*'estimate'"):
        fme.FimlofCost(model, data, process_noise={"x": 1.0}, measurement_noise={"x": 1.0})


def test_neither_process_nor_measurement_noise_is_refused(model, data):
    with pytest.raises(ArgumentError, match="has any noise, so its prediction has no variance"):
        fme.FimlofCost(model, data, process_noise={}, measurement_noise={"x": 0.0, "both": 1.0})


def test_data_that_cannot_be_are_refused(cost, data):
    with pytest.raises(DataError, match="before the model's start at 0"):
        cost.replace(obs=data.assign(time=data.time - 5))
    with pytest.raises(DataError, match=r"one step every 1, .* nearest such time is"):
        cost.replace(obs=data.assign(time=data.time + 0.5))
    with pytest.raises(DataError, match="not a variable of the model"):
        cost.replace(obs=data.rename(columns={"both": "bth"}))
    with pytest.raises(DataError, match="which has no log"):
        cost.replace(obs=data.assign(x=data.x.where(data.time != 3, -1.0)), transform={"x": "log"})
    with pytest.raises(DataError, match="must be the name of the column of times"):
        cost.replace(x=None)


def test_an_entity_without_data_is_named(cost, data):
    panel = pd.concat([data.assign(site="A"), data.assign(site="B", x=np.nan, both=np.nan)])
    with pytest.raises(DataError, match="No observations of entity 'B' are left"):
        cost.replace(obs=panel, entity="site")


def test_noise_of_a_parameter_that_is_read_too_is_refused(data):
    model = fme.DifferenceModel(
        "next(x) = a * x", state={"x": 1.0}, times=np.arange(21), parms={"a": 0.9}, outputs={"both": "a * x"}
    )
    with pytest.raises(ArgumentError, match="'a' stands in the rates and in the reading 'both' too"):
        fme.FimlofCost(model, data[["time", "both"]], process_noise={"a": 0.1}, measurement_noise={"both": 1.0})
    fme.FimlofCost(model, data[["time", "x"]], process_noise={"a": 0.1}, measurement_noise={"x": 1.0})


def test_several_readings_of_one_of_two_correlated_variables_are_refused(cost, data):
    errors = pd.DataFrame([[1.0, 0.3], [0.3, 1.0]], index=["x", "both"], columns=["x", "both"])
    again = pd.concat([data, data.iloc[:1].assign(x=np.nan)])
    with pytest.raises(DataError, match="several readings of 'x' or of 'both' at 1"):
        cost.replace(obs=again, measurement_noise=errors)
    assert np.isfinite(cost.replace(measurement_noise=errors)())


def test_a_covariance_that_is_none_is_refused(cost):
    table = pd.DataFrame([[1.0, 2.0], [2.0, 1.0]], index=["x", "y"], columns=["x", "y"])
    with pytest.raises(ArgumentError, match="negative eigenvalue"):
        cost.replace(process_noise=table)
    with pytest.raises(ArgumentError, match="not symmetric"):
        cost.replace(process_noise=pd.DataFrame([[1.0, 0.5], [0.4, 1.0]], index=["x", "y"], columns=["x", "y"]))
    with pytest.raises(ArgumentError, match="same names as rows and columns"):
        cost.replace(process_noise=table.rename(columns={"x": "z"}))


@pytest.mark.parametrize("algorithm", ["sequential", "sqrt"])
@pytest.mark.parametrize("argument", ["process_noise", "measurement_noise", "initial_sd"])
def test_parameters_that_make_no_covariance_of_a_table_have_no_likelihood(model, data, argument, algorithm):
    keys = {"process_noise": ["x", "y"], "measurement_noise": ["x", "both"], "initial_sd": ["x", "y"]}
    noises = {k: dict.fromkeys(names, 1.0) for k, names in keys.items()}
    table = pd.DataFrame([[1.0, "c"], ["c", 1.0]], index=keys[argument], columns=keys[argument])
    cost = fme.FimlofCost(model, data, **noises | {argument: table}, parms={"c": 0.5}, algorithm=algorithm)
    assert np.isfinite(cost({"c": 0.9}))
    assert cost({"c": 1.2}) == np.inf
    assert f"`{argument}` is not a covariance" in cost.filter({"c": 1.2}).failure


def test_a_start_of_which_the_data_say_nothing_is_told(data):
    def apart(n, x, y):
        return 0.5 * x, 0.5 * y

    model = fme.DifferenceModel(apart, state={"x": 1.0, "y": 1.0}, times=np.arange(21))
    cost = fme.FimlofCost(
        model, data[["time", "x"]], process_noise={"x": 1.0}, measurement_noise={"x": 1.0}, initial="diffuse"
    )
    assert cost() == np.inf
    with pytest.raises(SimulationError, match="say nothing of y at the start"):
        cost.bind().minus2loglik(cost.parms.to_numpy())


def test_the_combination_of_states_that_is_not_known_is_named(data):
    """Only the sum of two random walks is read: their difference stays in the dark."""
    model = fme.DifferenceModel(
        "next(x) = x\nnext(y) = y", state={"x": 1.0, "y": 1.0}, times=np.arange(21), outputs={"both": "x + y"}
    )
    cost = fme.FimlofCost(
        model, data[["time", "both"]], process_noise={"x": 1.0}, measurement_noise={"both": 1.0}, initial="diffuse"
    )
    with pytest.raises(SimulationError, match=r"say nothing of \+1.00 x -1.00 y at the start"):
        cost.bind().minus2loglik(np.empty(0))


def test_a_model_that_is_none_of_ours_is_refused(data):
    with pytest.raises(ArgumentError, match="must be an OdeModel or a DifferenceModel"):
        fme.FimlofCost(lambda p: data, data, process_noise={}, measurement_noise={"x": 1.0})


def test_fixed_steps_are_asked_for_where_noise_is_drawn_once_a_step():
    model = fme.OdeModel("d(x)/dt = -k * x", state={"x": 1.0}, times=[0, 1, 2], parms={"k": 1.0})
    with pytest.raises(ArgumentError, match="needs fixed steps: pass propagation='euler' and dt"):
        fme.FimlofCost(model, {"time": [1.0], "x": [0.5]}, process_noise={"x": 1.0}, measurement_noise={"x": 1.0},
                       noise_kind="per_step")  # fmt: skip
    with pytest.raises(ArgumentError, match="positive"):
        fme.FimlofCost(model, {"time": [1.0], "x": [0.5]}, process_noise={"x": 1.0}, measurement_noise={"x": 1.0},
                       propagation="rk4", dt=-1.0)  # fmt: skip


@pytest.mark.parametrize("method", [None, "euler", "rk4"])
def test_the_origin_of_time_does_not_matter(data, method):
    def cost(origin):
        times, obs = origin + np.arange(6.0), {"time": origin + data["time"].to_numpy()[:5], "x": data["x"][:5]}
        if method is None:
            model = fme.DifferenceModel("next(x) = 0.8 * x", state={"x": 2.0}, times=times)
        else:
            model = fme.OdeModel(lambda t, x: -0.2 * x * x, state={"x": 2.0}, times=times, method=method)
        return fme.FimlofCost(model, obs, process_noise={"x": 0.3}, measurement_noise={"x": 0.2})

    assert cost(1.7e9)() == pytest.approx(cost(0.0)(), rel=1e-6)  # seconds since 1970


@pytest.mark.parametrize("propagation", ["euler", "rk4", "ode"])
@pytest.mark.parametrize("initial", ["known", "data"])
def test_times_that_differ_by_rounding_are_one_sample(propagation, initial):
    model = fme.OdeModel(lambda t, x, y: (-0.5 * x + 0.1 * y, 0.2 * x - 0.3 * y), state={"x": 1.0, "y": 2.0},
                         times=[0.0, 0.25, 0.5, 0.75], method="euler")  # fmt: skip
    errors = pd.DataFrame([[0.09, 0.06], [0.06, 0.16]], index=["x", "y"], columns=["x", "y"])

    def cost(third):
        obs = pd.DataFrame({"name": ["x", "y"] * 2, "time": [0.3, third, 0.6, 0.6], "value": [0.9, 1.8, 1.0, 1.6]})
        return fme.FimlofCost(model, obs, y="value", process_noise={"x": 0.1, "y": 0.2}, measurement_noise=errors,
                              propagation=propagation, initial=initial)  # fmt: skip

    assert 0.1 * 3 != 0.3
    assert cost(0.1 * 3)() == pytest.approx(cost(0.3)(), rel=1e-12)
    assert cost(0.1 * 3).nobs == cost(0.3).nobs


@pytest.mark.parametrize(
    ("times", "words"), [([4, 6, 12], "readings of 'x' at 4 and 6 .* overlap"), ([2, 6], "begins at -2")]
)
def test_sums_over_times_that_overlap_or_begin_too_early_are_refused(times, words):
    model = fme.DifferenceModel("next(x) = 0.9 * x", state={"x": 2.0}, times=np.arange(13))
    obs = {"time": times, "x": np.ones(len(times))}
    with pytest.raises(fme.errors.DataError, match=words):
        fme.FimlofCost(model, obs, process_noise={"x": 0.1}, measurement_noise={"x": 0.2}, accumulate={"x": 4})


def test_a_sum_whose_time_begins_before_a_start_from_data_is_refused():
    model = fme.DifferenceModel("next(x) = 0.9 * x", state={"x": 2.0}, times=np.arange(13), outputs={"s": "x"})
    obs = pd.DataFrame({"time": [3, 4, 6, 10], "x": [1.1, 1.0, 0.9, 0.8], "s": [np.nan, np.nan, 4.0, 3.5]})

    def cost(length):
        return fme.FimlofCost(model, obs, process_noise={"x": 0.1}, measurement_noise={"x": 0.2, "s": 0.2},
                              accumulate={"s": length}, initial="data")  # fmt: skip

    assert np.isfinite(cost(3)())
    with pytest.raises(fme.errors.DataError, match="begins at 2, before the filter's start at 3"):
        cost(4)


def test_noise_of_a_parameter_that_no_state_feels_is_refused():
    model = fme.DifferenceModel("next(x) = 0.9 * x", state={"x": 2.0}, times=np.arange(4), parms={"c": 2.0},
                                outputs={"y": "c * x"})  # fmt: skip
    with pytest.raises(ArgumentError, match="'c' is in no equation of a state"):
        fme.FimlofCost(model, {"time": [1, 2], "y": [3.0, 2.0]}, process_noise={"c": 0.1}, measurement_noise={"y": 0.2})


def test_replace_keeps_the_values_of_estimated_sds(cost):
    given = cost.replace(process_noise={"x": "estimate"}, parms={"sd_w_x": 2.5})
    assert given.replace(threshold=3.0).parms["sd_w_x"] == 2.5
    assert "sd_w_x" not in given.replace(process_noise={"x": 0.1}).parms


def test_threads_do_not_disturb_each_other():
    model = fme.OdeModel(lambda t, x, *, k=0.5: -k * x, state={"x": 1.0}, times=np.arange(9.0))
    obs = {"time": [1, 2, 3, 4.5, 6], "x": [1.0, 0.9, 0.5, 0.3, 0.2]}
    cost = fme.FimlofCost(model, obs, process_noise={"x": 0.1}, measurement_noise={"x": 0.3})
    parameters = [{"k": float(k)} for k in np.linspace(0.2, 1.0, 400)]
    alone = [cost(p) for p in parameters]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(cost, parameters)) == alone
    finally:
        sys.setswitchinterval(interval)


@pytest.mark.parametrize("engine", ["difference", "ode"])
@pytest.mark.parametrize("at", [0.0, 1e-4, 1e-8, 1e-12, -1e-15])
def test_the_score_of_a_parameter_near_zero_is_its_slope(engine, at):
    if engine == "ode":
        model = fme.OdeModel(lambda t, x, *, b=0.0: -0.3 * x * x + b, state={"x": 1.0}, times=np.arange(21))
    else:
        model = fme.DifferenceModel(lambda n, x, *, b=0.0: 0.7 * x + b, state={"x": 1.0}, times=np.arange(21))
    obs = {"time": np.arange(1, 21), "x": 0.5 + np.sin(np.arange(1, 21))}
    bound = fme.FimlofCost(model, obs, process_noise={"x": 0.5}, measurement_noise={"x": 0.4}).bind(["b"])
    slope = (bound.minus2loglik(np.array([at - 1e-3])) - bound.minus2loglik(np.array([at + 1e-3]))) / 4e-3
    assert bound.score(np.array([at]))[0] == pytest.approx(slope, rel=1e-4)


@pytest.mark.parametrize("kind", ["sum", "mean"])
def test_an_error_proportional_to_a_sum_is_one_of_the_sum(kind):
    model = fme.DifferenceModel("next(x) = 0.9 * x\ny = 3 * x", state={"x": 2.0}, times=np.arange(9))
    levels = 6.0 * 0.9 ** np.arange(1, 9).reshape(2, 4)
    predicted = levels.sum(axis=1) if kind == "sum" else levels.mean(axis=1)
    cost = fme.FimlofCost(model, {"time": [4, 8], "y": predicted + np.array([0.1, -0.2])}, process_noise={},
                          measurement_noise={"y": "0.1 * y"}, accumulate={"y": (4, kind)})  # fmt: skip
    sd = 0.1 * predicted
    assert cost() == pytest.approx(np.sum((np.array([0.1, -0.2]) / sd) ** 2 + 2 * np.log(sd) + LN_2PI), rel=1e-12)


def test_a_start_from_data_needs_a_datum_of_every_state_that_is_read_or_its_sd(cost, data):
    late = data.assign(x=data["x"].where(data["time"] > data["time"].min()))
    with pytest.raises(DataError, match=r"have none of 'x', so 'x' would count as exactly known.*initial_sd={'x'"):
        cost.replace(obs=late, initial="data")
    assert np.isfinite(cost.replace(obs=late, initial="data", initial_sd={"x": 3.0})())


def test_repeated_readings_of_two_variables_with_correlated_errors_are_refused():
    """With every error of one correlated with every error of the other there is no such covariance."""
    model = fme.DifferenceModel("next(x) = 0.8 * x\nnext(y) = 0.9 * y", state={"x": 1.0, "y": 2.0}, times=np.arange(9))
    obs = pd.DataFrame({"time": [1, 1, 2], "x": [1.0, 1.4, 0.6], "y": [2.0, 2.5, 1.7]})
    R = pd.DataFrame([[1.0, 0.6], [0.6, 1.0]], index=["x", "y"], columns=["x", "y"])
    with pytest.raises(DataError, match="several readings of 'x' or of 'y' at 1, and their errors are correlated"):
        fme.FimlofCost(model, obs, process_noise={"x": 0.1}, measurement_noise=R)
    for table, noise in ((obs.iloc[1:], R), (obs, R * np.eye(2))):
        assert np.isfinite(fme.FimlofCost(model, table, process_noise={"x": 0.1}, measurement_noise=noise)())
