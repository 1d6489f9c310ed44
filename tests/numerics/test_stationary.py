"""Stationary gains solve their Riccati equations; a sampled system is that of a fine subdivision."""

from __future__ import annotations

import numpy as np
import pytest

from fmepy.numerics.stationary import continuous_gain, discrete_gain, sampled

F = np.array([[0.0, 1.0], [-2.0, -0.3]])
Q = np.array([[0.04, 0.01], [0.01, 0.09]])
H = np.array([[1.0, 0.1]])
R = np.array([[0.25]])


def test_a_random_walk_has_the_gain_of_the_textbook():
    one = np.ones((1, 1))
    K, P = discrete_gain(one, one, one, one)  # P = P - P^2/(P + 1) + 1: the golden ratio
    golden = (1 + np.sqrt(5)) / 2
    assert P[0, 0] == pytest.approx(golden)
    assert K[0, 0] == pytest.approx(golden / (golden + 1))
    K, P = continuous_gain(0 * one, 4 * one, one, one)
    assert K[0, 0] == pytest.approx(2.0)


def test_the_sampled_system_is_the_limit_of_small_steps():
    Phi, S = sampled(F, Q, 0.7)
    for order, n, tolerance in ((1, 20_000, 1e-4), (4, 50, 1e-8)):
        steps = sampled(F, Q, 0.7, order, n)
        np.testing.assert_allclose(steps[0], Phi, atol=tolerance)
        np.testing.assert_allclose(steps[1], S, atol=tolerance)


def test_gains_solve_their_equations():
    Phi, S = sampled(F, Q, 0.5)
    K, P = discrete_gain(Phi, S, H, R)
    np.testing.assert_allclose(Phi @ (P - K @ H @ P) @ Phi.T + S, P, atol=1e-12)
    K, P = continuous_gain(F, Q, H, R)
    np.testing.assert_allclose(F @ P + P @ F.T - K @ H @ P + Q, 0.0, atol=1e-12)


def test_the_sampled_gain_is_the_continuous_one_times_the_interval_where_that_is_short():
    h = 1e-4
    of_sample = discrete_gain(*sampled(F, Q, h), H, R / h)[0]
    np.testing.assert_allclose(of_sample / h, continuous_gain(F, Q, H, R)[0], rtol=1e-3)


def test_errors_that_nothing_sees_have_no_gain():
    with pytest.raises((np.linalg.LinAlgError, ValueError)):
        discrete_gain(np.diag([1.2, 0.5]), np.eye(2), np.array([[0.0, 1.0]]), R)


@pytest.mark.parametrize("rests", [(discrete_gain, 1.0), (continuous_gain, 0.0)])
def test_a_walk_without_noise_has_no_gain_under_which_errors_die_away(rests):
    gain, F = rests
    with pytest.raises(np.linalg.LinAlgError, match="do not die away"):
        gain(np.array([[F]]), np.zeros((1, 1)), np.eye(1), np.eye(1))
