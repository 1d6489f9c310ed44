"""Second derivatives of a likelihood, from its values and from its score."""

import numpy as np
import pytest

from fmepy.numerics.second_differences import sparse_second_differences, whitened_second_differences

A = np.array([[3.0, 1.0, 0.0], [1.0, 2.0, 0.5], [0.0, 0.5, 1e4]])


def cost(x):
    return float(x @ A @ x + 0.1 * np.sum(x**4))


def slope(x):
    return 2 * A @ x + 0.4 * x**3


@pytest.mark.parametrize("upper", [np.inf, 0.02])
def test_scores_give_the_curvature_that_values_give(upper):
    theta, lower = np.array([0.01, -0.01, 1e-4]), np.full(3, -np.inf)
    exact = 2 * A + np.diag(1.2 * theta**2)
    asked = []

    def gradient(x):
        asked.append(x)
        return slope(x)

    found = whitened_second_differences(cost, theta, 1.3 * A, lower, np.full(3, upper), gradient)
    by_values = whitened_second_differences(cost, theta, 1.3 * A, lower, np.full(3, upper))
    np.testing.assert_allclose(found, exact, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(by_values, exact, rtol=1e-3, atol=2e-2)
    assert len(asked) == 6
    assert np.max(asked) <= upper


def test_many_parameters_that_do_not_meet_are_moved_together():
    rng, n = np.random.default_rng(2), 100
    D, B, C = rng.uniform(1, 2, n), 0.1 * rng.standard_normal((n, 2)), np.array([[9.0, 1.0], [1.0, 8.0]])
    H = np.zeros((n + 2, n + 2))
    H[np.arange(n), np.arange(n)], H[:n, n:], H[n:, :n], H[n:, n:] = D, B, B.T, C
    calls = []

    def gradient(x):
        calls.append(x)
        return H @ x + 0.1 * x**2

    theta, inf = rng.standard_normal(n + 2), np.full(n + 2, np.inf)
    found = sparse_second_differences(gradient, theta, 0.5 * H, -inf, inf)
    np.testing.assert_allclose(found, H + np.diag(0.2 * theta), atol=1e-9)
    assert len(calls) == 2 * 3, "all the others at once"


def test_steps_are_short_beside_a_parameter_that_is_hardly_told():
    """Standard errors of 10 and 30 at a value of 0.01, with a bound at zero."""

    def gradient(x):
        return np.array([500 * np.sin(x[0] - 0.01), x[1] - 2.0 + 0 * x[0]])

    theta, information = np.array([0.01, 2.0]), np.diag([1e-2, 0.5])
    for found in (
        whitened_second_differences(None, theta, information, np.zeros(2), np.full(2, np.inf), gradient, theta),
        sparse_second_differences(gradient, theta, information, np.zeros(2), np.full(2, np.inf), theta),
    ):
        np.testing.assert_allclose(found, np.diag([500.0, 1.0]), rtol=1e-4)
