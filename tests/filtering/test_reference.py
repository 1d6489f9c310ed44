"""The filter gives the numbers of independent implementations, each to its stated tolerance."""

import numpy as np
import pytest

from fmepy.fimlof.cost import FimlofCost
from fmepy.models.difference import DifferenceModel
from tests.filtering.problems import (
    accumulator_cost,
    ar1_cost,
    logistic_cost,
    nile_cost,
    outcome,
    read,
    run_of,
    table,
    two_state_cost,
)

EVERY_WAY = [
    {"algorithm": "sequential"},
    {"algorithm": "sqrt"},
    {"update": "iterated"},
    {"update": "second_order"},
    {"update": "unscented"},
]
"""For linear models all of them are one filter."""
each_way = pytest.mark.parametrize("options", EVERY_WAY, ids=lambda o: next(iter(o.values())))


def random_walk(n, x):
    return x


@each_way
def test_two_steps_by_hand_are_exact_fractions(options):
    case = read("hand_cases")["scalar_two_steps"]
    model = DifferenceModel(random_walk, state={"x": 0.0}, times=[0, 1, 2])
    cost = FimlofCost(
        model,
        table([1.0, 3.0], ["x"]),
        process_noise={"x": 1.0},
        measurement_noise={"x": 1.0},
        initial_sd={"x": 1.0},
        **options,
    )
    one, run = outcome(cost), run_of(cost)
    np.testing.assert_allclose(one.nu, [1, 7 / 3], rtol=1e-12)
    np.testing.assert_allclose(one.s, [3, 8 / 3], rtol=1e-12)
    np.testing.assert_allclose(run.record.x_filtered[1:, 0], [2 / 3, 17 / 8], rtol=1e-12)
    np.testing.assert_allclose(run.record.P_filtered[1:, 0, 0], [2 / 3, 5 / 8], rtol=1e-12)
    assert one.sumsq == pytest.approx(57 / 24, rel=1e-12)
    assert one.xi == pytest.approx(case["loglik_peterson_value"], rel=1e-12)
    assert one.loglik == pytest.approx(case["loglik_gaussian_value"], rel=1e-12)


@each_way
def test_two_readings_of_one_state_by_hand(options):
    case = read("hand_cases")["vector_update"]
    model = DifferenceModel(random_walk, state={"x": 0.0}, times=[0, 1], outputs={"a": "x", "b": "x"})
    cost = FimlofCost(
        model,
        table([[2.0, -1.0]], ["a", "b"], start=0.0),
        process_noise={"x": 1.0},
        measurement_noise={"a": 1.0, "b": float(np.sqrt(2))},
        initial_sd={"x": float(np.sqrt(3))},
        **options,
    )
    one, run = outcome(cost), run_of(cost)
    np.testing.assert_allclose(one.s, [4, 11 / 4], rtol=1e-12)  # S = L diag(s) L', det S = 11
    assert one.sumsq == pytest.approx(36 / 11, rel=1e-12)
    assert one.xi == pytest.approx(case["loglik_peterson"], rel=1e-12)
    assert run.record.x_filtered[0, 0] == pytest.approx(9 / 11, rel=1e-12)
    assert run.record.P_filtered[0, 0, 0] == pytest.approx(6 / 11, rel=1e-12)


@each_way
def test_correlated_noises_and_missing_entries(options):
    ref = read("two_state_missing")
    expected, sampled = ref["expected"], [any(v is not None for v in z) for z in ref["data"]]
    one, run = outcome(two_state_cost(**options)), run_of(two_state_cost(**options))
    assert one.nobs == expected["nobs"]
    assert one.loglik == pytest.approx(expected["loglik_gaussian"], abs=1e-8)
    assert one.xi == pytest.approx(expected["loglik_peterson"], abs=1e-8)
    assert one.sumsq == pytest.approx(expected["sumsq"], abs=1e-8)
    np.testing.assert_allclose(run.record.x_filtered[1:], np.array(expected["x_filtered"])[sampled], atol=1e-8)
    np.testing.assert_allclose(run.record.P_filtered[-1], expected["P_filtered_last"], atol=1e-8)


@each_way
def test_conditional_innovations_are_those_of_the_factored_joint_covariance(options):
    ref = read("two_state_missing")
    expected = ref["expected"]
    nu, s = [], []
    for z, delta, S in zip(ref["data"], expected["innovations"], expected["innovation_variance"], strict=True):
        present = [i for i, value in enumerate(z) if value is not None]
        if not present:
            continue
        C = np.linalg.cholesky(np.array(S, dtype=float)[np.ix_(present, present)])
        white = np.linalg.solve(C, np.array(delta, dtype=float)[present])
        nu += list(white * np.diag(C))
        s += list(np.diag(C) ** 2)
    one = outcome(two_state_cost(**options))
    np.testing.assert_allclose(one.nu, nu, atol=1e-8)
    np.testing.assert_allclose(one.s, s, atol=1e-8)


@each_way
def test_autoregression_with_noise_and_gaps(options):
    ref = read("ar1_noise")
    of, one = ref["fixed"], outcome(ar1_cost(**options))
    present = np.array([value is not None for value in ref["data"]])
    assert one.nobs == of["nobs"]
    assert one.loglik == pytest.approx(of["loglik_gaussian"], abs=1e-8)
    np.testing.assert_allclose(one.nu, np.array(of["innovations"], dtype=float)[present, 0], atol=1e-8)
    np.testing.assert_allclose(one.s, np.array(of["innovation_variance"])[present, 0, 0], atol=1e-8)


def test_autoregression_is_stationary_where_its_estimate_is_stored():
    mle = read("ar1_noise")["mle"]
    bound = ar1_cost().bind(["a", "q", "r"])
    theta = np.array([mle[k] for k in ("a", "q", "r")])
    score = bound.score(theta)
    assert score @ np.linalg.solve(bound.information(theta), score) < 1e-6


@each_way
def test_sums_over_twelve_steps_beside_levels_every_third(options):
    expected = read("accumulator_mixed_sampling")["expected"]
    one = outcome(accumulator_cost(**options))
    assert one.nobs == expected["nobs"]
    assert one.loglik == pytest.approx(expected["loglik_gaussian"], abs=1e-8)
    assert one.xi == pytest.approx(expected["loglik_peterson_joint_density"], abs=1e-8)


@each_way
@pytest.mark.parametrize("initial", ["diffuse", "data"])
def test_the_nile_from_a_start_of_which_nothing_is_known(options, initial):
    fixed = read("nile_local_level")["fixed"]
    one = outcome(nile_cost(initial=initial, **options))
    assert one.nobs == 99
    assert one.loglik == pytest.approx(fixed["loglik_exact_diffuse_gaussian_first_sample_excluded"], abs=1e-6)


@each_way
def test_the_nile_from_a_wide_start(options):
    fixed = read("nile_local_level")["fixed_P0_1e7"]
    one = outcome(nile_cost(initial_sd={"flow": float(np.sqrt(fixed["P0"]))}, **options))
    assert one.nobs == 100
    assert one.loglik == pytest.approx(fixed["loglik_gaussian"], abs=1e-6)
    assert one.sumsq == pytest.approx(fixed["sumsq"], abs=1e-6)


def test_the_level_of_the_nile_is_followed():
    fixed = read("nile_local_level")["fixed"]["filter_from_first_datum"]
    run = run_of(nile_cost(initial="data"))
    np.testing.assert_allclose(run.nu, np.ravel(fixed["innovations"]), atol=1e-8)
    np.testing.assert_allclose(run.record.x_filtered[1:, 0], np.ravel(fixed["x_filtered"]), atol=1e-8)


@pytest.mark.parametrize("options", [{}, {"algorithm": "sqrt"}, {"update": "iterated"}])
def test_logistic_growth_by_an_extended_filter(options):
    expected = read("logistic_ekf_limits")["ekf"]
    one, run = outcome(logistic_cost(**options)), run_of(logistic_cost(**options))
    assert one.loglik == pytest.approx(expected["loglik_gaussian"], abs=1e-8)
    np.testing.assert_allclose(one.nu, expected["innovations"], atol=1e-8)
    np.testing.assert_allclose(one.s, expected["S"], atol=1e-8)
    np.testing.assert_allclose(run.record.x_filtered[1:, 0], expected["x_filtered"], atol=1e-8)


def test_logistic_growth_approaches_its_simulation_and_its_one_step_predictions():
    ref = read("logistic_ekf_limits")
    for case in ref["limit_Q0"]["approach"]:
        one = outcome(logistic_cost(sd_w=float(np.sqrt(case["var_w"]))))
        assert one.xi == pytest.approx(case["loglik_peterson"], abs=1e-8)
    for case in ref["limit_R0"]["approach"]:
        one = outcome(logistic_cost(sd_v=float(np.sqrt(case["var_v"]))))
        assert one.xi == pytest.approx(case["loglik_peterson"], abs=1e-8)
    assert outcome(logistic_cost(sd_w=0.0)).xi == pytest.approx(ref["limit_Q0"]["loglik_peterson"], rel=1e-10)
    assert outcome(logistic_cost(sd_v=0.0)).xi == pytest.approx(ref["limit_R0"]["loglik_peterson"], rel=1e-10)
