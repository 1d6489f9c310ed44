"""Second derivatives of a likelihood, from its values and from its score."""

import numpy as np
import pytest

from fmepy.numerics.covariance import Spectrum, rank_of
from fmepy.numerics.second_differences import (
    second_differences,
    sparse_second_differences,
    whitened_second_differences,
)

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


@pytest.mark.parametrize("noise", [2e-16, 1e-9])
def test_curvature_below_the_noise_of_the_cost_is_none(noise):
    x, rng = np.linspace(0, 1, 12), np.random.default_rng(1)
    y = 3.0 - x + 0.1 * rng.standard_normal(12)
    a, k = np.linalg.lstsq(np.column_stack([np.ones(12), -x]), y, rcond=None)[0]

    def noisy(p):
        off = p[0] + p[1] - p[2] * x - y
        return float(off @ off) * (1 + (noise * rng.uniform(-1, 1) if noise > 1e-15 else 0.0))

    for part in (0.2, 1.3, 2.5):  # of the sum of two parameters that nothing tells apart
        theta = np.array([part, a - part, k])
        H = second_differences(noisy, theta, np.full(3, -np.inf), np.full(3, np.inf), np.abs(theta), noise)
        assert rank_of(H) == 2
        assert Spectrum.of(H).undetermined(["a", "b", "k"], np.ones(3)).replace("-", "+") == "+1.00 a +1.00 b"
    told = second_differences(lambda p: cost(p), *np.array([[0.0] * 3, [-1e9] * 3, [1e9] * 3, [1.0] * 3]), 2e-16)
    np.testing.assert_allclose(told, 2 * A, rtol=1e-6, atol=1e-6)
