"""Curvature: covariances, second differences, undetermined combinations."""

import numpy as np
import pytest

from fmepy.numerics.covariance import Spectrum, correlation_of, covariance_of
from fmepy.numerics.second_differences import second_differences

FREE = (np.full(2, -np.inf), np.full(2, np.inf))


def test_the_covariance_does_not_care_for_the_size_of_parameters():
    A = np.array([[2.0, 0.3], [0.3, 1.0]])
    D = np.diag([1e-9, 1e7])
    np.testing.assert_allclose(covariance_of(D @ A @ D), 2 * np.linalg.inv(D @ A @ D), rtol=1e-10)


@pytest.mark.parametrize("H", [np.ones((2, 2)), np.diag([1.0, 0.0]), np.diag([1.0, -1.0]), np.full((2, 2), np.nan)])
def test_a_hessian_that_is_not_positive_definite_has_no_covariance(H):
    assert np.isnan(covariance_of(H)).all()


def test_correlations_have_ones_on_the_diagonal():
    C = np.array([[4.0, 1.0], [1.0, 9.0]])
    np.testing.assert_allclose(correlation_of(C), [[1, 1 / 6], [1 / 6, 1]])


def test_the_undetermined_combination_is_told_in_relative_changes():
    g = np.array([[3.0, 2.0, 0.0], [0.0, 0.0, 1.0]])  # the product a*b at (2, 3), and c
    told = Spectrum.of(g.T @ g).undetermined(["a", "b", "c"], np.array([2.0, 3.0, 1.0]))
    assert told in ("+1.00 a -1.00 b", "-1.00 a +1.00 b")
    assert Spectrum.of(np.eye(3)).undetermined(["a", "b", "c"], np.ones(3)) == ""


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_second_differences_of_a_quadratic_are_exact_to_five_digits(scale):
    A = np.array([[3.0, 1.0], [1.0, 2.0]]) / scale**2
    centre = np.array([scale, -2 * scale])
    H = second_differences(
        lambda p: 7.0 + (p - centre) @ A @ (p - centre), centre, *FREE, np.array([scale, 2 * scale]), 1e-16
    )
    np.testing.assert_allclose(H, 2 * A, rtol=1e-5)


def test_second_differences_of_a_log_likelihood_give_the_information():
    data = np.random.default_rng(0).normal(1000.0, 1.0, size=100)  # the parameter is known to a ten-thousandth

    def cost(p):
        return float(np.sum(((data - p[0]) / p[1]) ** 2 + 2 * np.log(p[1])))

    theta = np.array([data.mean(), data.std()])
    H = second_differences(cost, theta, *FREE, np.abs(theta), 1e-16)
    np.testing.assert_allclose(np.diag(0.5 * H), [100 / theta[1] ** 2, 200 / theta[1] ** 2], rtol=1e-4)


def test_second_differences_at_a_bound_stay_inside():
    seen = []

    def cost(p):
        seen.append(p.copy())
        return float(p @ p + 1)

    lower = np.array([0.0, 0.0])
    H = second_differences(cost, np.array([0.0, 1.0]), lower, np.full(2, np.inf), np.ones(2), 1e-16)
    assert np.min(seen) >= 0
    np.testing.assert_allclose(H, 2 * np.eye(2), atol=1e-3)
