"""Factors of covariances do what covariances do, and go on where covariances break down."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmepy.compiled.triangular import lower_factor
from fmepy.filtering import run
from fmepy.filtering.arrays import semidefinite_lower, solve_from_right
from fmepy.fimlof.cost import FimlofCost
from fmepy.models.difference import DifferenceModel
from fmepy.models.ode import OdeModel
from tests.filtering.problems import kalman, labelled, logistic_cost, nile_cost, outcome, run_of, table

# --- kernels


@given(st.integers(0, 10_000))
def test_a_lower_factor_has_the_same_square(seed):
    rng = np.random.default_rng(seed)
    rows = int(rng.integers(1, 6))
    W = rng.normal(size=(rows, rows + int(rng.integers(0, 4))))
    if rng.random() < 0.5:  # rows that depend on others, or are zero
        W[rng.integers(rows)] = W[rng.integers(rows)] * rng.integers(0, 2)
    L = W.copy()
    lower_factor(L, *W.shape)
    assert not np.triu(L[:, :rows], 1).any()
    assert not L[:, rows:].any()
    assert (np.diag(L) >= 0).all()
    np.testing.assert_allclose(L @ L.T, W @ W.T, atol=1e-13)


@given(st.integers(0, 10_000))
def test_a_right_division_by_a_factor_of_any_rank(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 6))
    L = rng.normal(size=(n, n))
    L[rng.integers(n)] = 0.0
    lower_factor(L, n, n)
    F = rng.normal(size=(3, n))
    found = rng.normal(size=(3, n))
    kept = found.copy()
    solve_from_right(F @ L, L, 3, found)
    np.testing.assert_allclose(found @ L, F @ L, atol=1e-9)
    untouched = [j for j in range(n) if not L[j].any()]
    np.testing.assert_array_equal(found[:, untouched], kept[:, untouched])


def test_what_is_no_covariance_has_no_factor():
    L = np.zeros((2, 2))
    assert not semidefinite_lower(np.array([[1.0, 2.0], [2.0, 1.0]]), L, 2)
    assert semidefinite_lower(np.array([[1.0, 2.0], [2.0, 4.0]]), L, 2)
    np.testing.assert_allclose(L, [[1, 0], [2, 0]])


# --- the filter


def pair(n, a, b, *, c=0.9):
    return c * a + 0.2 * b, 0.7 * b


@given(st.integers(0, 10_000), st.sampled_from(["sequential", "sqrt"]))
def test_every_algorithm_is_the_textbook_filter_on_random_linear_systems_with_gaps(seed, algorithm):
    rng = np.random.default_rng(seed)
    Q = labelled(np.diag(rng.uniform(0, 1, 2)) if rng.random() < 0.5 else np.outer([1.0, 0.5], [1.0, 0.5]), ["a", "b"])
    root = rng.normal(size=(3, 3))
    R = labelled(root @ root.T + 0.1 * np.eye(3), ["x", "y", "z"])
    z = rng.normal(size=(8, 3))
    z[rng.random(z.shape) < 0.4] = np.nan
    z[:, 0] = np.where(np.isnan(z).all(axis=1), 1.0, z[:, 0])
    z[-1] = 0.3
    outputs = {"x": "a", "y": "a - b", "z": "2 * b"}
    model = DifferenceModel(pair, state={"a": 1.0, "b": -1.0}, times=np.arange(9.0), outputs=outputs)
    cost = FimlofCost(
        model, table(z, list("xyz")), process_noise=Q, measurement_noise=R, algorithm=algorithm, initial_sd={"a": 0.5}
    )
    H = np.array([[1.0, 0.0], [1.0, -1.0], [0.0, 2.0]])
    samples = [(np.flatnonzero(~np.isnan(row)), row[~np.isnan(row)]) for row in z]
    F = np.array([[0.9, 0.2], [0.0, 0.7]])
    start = np.array([1.0, -1.0]), np.diag([0.25, 0.0])
    assert cost() == pytest.approx(kalman(F, Q.to_numpy(), H, R.to_numpy(), *start, samples), rel=1e-10)


def sharp_cost(sd, algorithm="sequential"):
    """Two states of which a combination is read almost exactly, then the same one again."""
    model = DifferenceModel(
        pair, state={"a": 0.0, "b": 0.0}, times=np.arange(3.0), outputs={"s": "a + b", "t": "a + b", "d": "a - b"}
    )
    data = {"time": [1, 2], "s": [1.0, 0.9], "t": [1.0 + 1e-9, 0.9], "d": [0.1, np.nan]}
    noise = {"s": sd, "t": 1e-9, "d": 0.1}
    return FimlofCost(
        model,
        data,
        process_noise={"a": 0.1, "b": 0.1},
        measurement_noise=noise,
        initial_sd={"a": 1e6, "b": 1e6},
        algorithm=algorithm,
    )


def test_where_a_covariance_would_lose_its_digits_the_factor_takes_over():
    cost = sharp_cost(1e-9)
    run = run_of(cost)
    assert run.is_safe
    safe = run_of(sharp_cost(1e-9, "sqrt"))
    np.testing.assert_array_equal(run.nu, safe.nu)
    np.testing.assert_array_equal(run.s, safe.s)


@pytest.mark.parametrize(("sd", "is_safe"), [(1e6, False), (1e8, True)])
def test_a_reading_that_shrinks_a_variance_by_more_than_exp_25_asks_for_the_factor(sd, is_safe):
    cost = nile_cost(initial_sd={"flow": sd})
    assert run_of(cost).is_safe == is_safe
    diffuse = outcome(nile_cost(initial="diffuse")).loglik
    assert outcome(cost).loglik + np.log(sd) + 0.5 * np.log(2 * np.pi) == pytest.approx(diffuse, abs=1e-6)


def test_the_factor_keeps_the_digits_that_the_covariance_loses():
    s = run_of(sharp_cost(1e-9, "sqrt")).s
    r = 1e-18  # of both readings of a + b, which have the variance P before the first; exactly, s_2 = r + P r / (P + r)
    P = (0.9**2 + (0.2 + 0.7) ** 2) * 1e12 + 2 * 0.1**2
    assert s[0] == pytest.approx(P, rel=1e-12)
    assert s[1] == pytest.approx(2 * r, rel=1e-6)


def test_the_plain_pass_is_enough_where_nothing_is_lost():
    assert not run_of(logistic_cost()).is_safe
    assert run_of(logistic_cost(algorithm="sqrt")).is_safe
    assert not run_of(nile_cost(initial="diffuse")).is_safe


@pytest.mark.parametrize("algorithm", ["sequential", "sqrt"])
def test_two_exact_readings_of_one_state_have_no_likelihood(algorithm):
    def still(n, x):
        return x

    model = DifferenceModel(still, state={"x": 0.0}, times=[0.0, 1.0], outputs={"y": "x"})
    cost = FimlofCost(
        model,
        {"time": [1], "x": [1.0], "y": [1.0]},
        process_noise={"x": 1.0},
        measurement_noise={"x": 0.0, "y": 0.0},
        algorithm=algorithm,
    )
    assert cost() == np.inf
    run = run_of(cost)
    assert (run.node, run.reason, run.row) == (1, 2, 1)


def test_events_scale_rows_of_the_factor():
    def decays(t, x, y, *, k=0.3):
        return -k * x, k * x - y

    events = [(2.0, "x", 3.0, "add"), (3.0, "y", 0.5, "multiply"), (4.0, "x", 1.0, "replace")]
    model = OdeModel(decays, state={"x": 1.0, "y": 2.0}, times=np.arange(0.0, 7.0), method="rk4", events=_table(events))
    data = {"time": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], "y": [1.0, 0.9, 1.1, 0.4, 0.5, 0.3]}
    noise = {"process_noise": {"x": 0.2, "y": 0.1}, "measurement_noise": {"y": 0.1}, "initial_sd": {"x": 0.4}}
    plain = FimlofCost(model, data, **noise)
    for options in ({"algorithm": "sqrt"}, {"update": "unscented"}, {"update": "second_order"}):
        other = plain.replace(**options)
        np.testing.assert_allclose(outcome(other).nu, outcome(plain).nu, atol=1e-12)
        a, b = run_of(other).record, run_of(plain).record
        np.testing.assert_allclose(a.transitions, b.transitions, atol=1e-10)
        np.testing.assert_allclose(a.P_predicted, b.P_predicted, atol=1e-12)


def _table(events):
    return pd.DataFrame(events, columns=["time", "var", "value", "method"])


@pytest.mark.parametrize("update", ["ekf", "iterated", "second_order", "unscented"])
def test_the_record_explains_the_likelihood(update):
    def grows(n, x, y, *, r=0.4):
        return x + r * x * (1 - x / 10) - 0.02 * x * y, 0.9 * y + 0.05 * x

    model = DifferenceModel(grows, state={"x": 2.0, "y": 1.0}, times=np.arange(7.0), outputs={"sq": "x**2 + y"})
    data = {"time": [2, 3, 5, 6], "x": [3.0, 4.2, 6.0, 7.0], "sq": [10.0, 20.0, 35.0, np.nan]}
    cost = FimlofCost(
        model,
        data,
        process_noise={"x": 0.4, "y": 0.1},
        measurement_noise={"x": 0.5, "sq": 2.0},
        update=update,
        algorithm="sqrt",
        initial_sd={"x": 0.5, "y": 0.5},
    )
    run, record = run_of(cost), run_of(cost).record
    rows, total = [slice(0, 2), slice(2, 4), slice(4, 6), slice(6, 7)], 0.0
    values = np.array([3.0, 10.0, 4.2, 20.0, 6.0, 35.0, 7.0])
    for node, sample in enumerate(rows, start=1):
        H, m = record.gradients[sample], sample.stop - sample.start
        S = H @ record.P_predicted[node] @ H.T + np.diag(record.sds[sample] ** 2) + record.excess[sample, :m]
        delta = (values - record.predictions)[sample]
        total += np.linalg.slogdet(S)[1] + delta @ np.linalg.solve(S, delta)
        gain = record.P_predicted[node] @ H.T @ np.linalg.inv(S)
        np.testing.assert_allclose(record.x_filtered[node], record.x_predicted[node] + gain @ delta, rtol=1e-9)
    assert total == pytest.approx(np.sum(np.log(run.s) + run.nu**2 / run.s), rel=1e-10)
    assert record.excess.any() == (update in ("second_order", "unscented"))


def test_both_algorithms_agree_on_a_nonlinear_model_with_errors_in_proportion():
    def cycles(t, N, P, *, r=1.0, c=0.1):
        return r * N - c * N * P, 0.5 * c * N * P - 0.6 * P

    model = OdeModel(
        cycles, state={"N": 10.0, "P": 8.0}, times=np.arange(0.0, 13.0), method="rk4", outputs={"sum": "N + P"}
    )
    out = model()
    data = pd.DataFrame({"time": out["time"], "N": out["N"] * 1.1, "sum": out["sum"] * 0.95})[1:]
    errors = labelled([[0.04, "0.5 * 0.2 * 0.3"], ["0.5 * 0.2 * 0.3", 0.09]], ["N", "sum"])
    for measurement_noise in ({"N": "0.1 * N", "sum": "0.2 * sum"}, errors):
        cost = FimlofCost(
            model,
            data,
            process_noise={"N": "0.1 * N", "r": 0.1},
            measurement_noise=measurement_noise,
            initial="diffuse",
        )
        plain, other = outcome(cost), outcome(cost.replace(algorithm="sqrt"))
        np.testing.assert_allclose(other.nu, plain.nu, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(other.s, plain.s, rtol=1e-9)
        assert other.loglik == pytest.approx(plain.loglik, rel=1e-10)


def test_a_filter_that_diverges_is_not_repeated(monkeypatch):
    def explodes(n, x):
        return 1e200 * x * x

    model = DifferenceModel(explodes, state={"x": 1.0}, times=[0.0, 1.0, 2.0])
    cost = FimlofCost(model, {"time": [1, 2], "x": [1.0, 1.0]}, process_noise={"x": 1.0}, measurement_noise={"x": 1.0})
    asked, whole = [], run._one_pass
    monkeypatch.setattr(run, "_one_pass", lambda scheme, *rest: asked.append(scheme.is_safe) or whole(scheme, *rest))
    assert cost() == np.inf
    assert asked == [False]  # factors of covariances cannot help
