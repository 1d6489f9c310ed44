"""Second derivatives of a likelihood, from its values and from its score."""

import numpy as np
import pytest

from fmepy.numerics.second_differences import whitened_second_differences

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
