"""Coordinates in which a posterior is about normal: monotone, with slopes of their own, straight where draws are."""

import numpy as np
import pytest
from scipy import stats

from fmepy.mcmc.kernels.whitening import Unbounded, fit_bend, metric
from fmepy.numerics.differences import central_differences

LOWER = np.array([0.0, -1.0, -np.inf, -np.inf, 0.0])
UPPER = np.array([1.0, np.inf, 2.0, np.inf, np.inf])
BEND = np.array(
    [[0.3, -1.0, 0.0, 0.5, 0.0], [0.4, 0.1, 0.2, 1.5, 1.0], [1.2, 0.0, 2.0, 0.3, 0.0], [0.0, 0.8, 0.5, 0.0, 0.0]]
)


def unbounded(n):
    return np.full(n, -np.inf), np.full(n, np.inf)


def test_bent_coordinates_lead_back_and_have_their_own_slopes():
    coordinates, v = Unbounded(LOWER, UPPER, BEND), np.array([-1.3, 0.4, 2.0, -0.2, 0.7])
    np.testing.assert_allclose(coordinates.to_normal(coordinates.from_normal(v)), v, atol=1e-12)
    np.testing.assert_allclose(coordinates.inverse(coordinates.forward(v)), v, atol=1e-9)
    slope, logs, of_logs = coordinates.slopes(v)
    box = unbounded(5)
    J = central_differences(coordinates.forward, v, 1e-5 * np.ones(5), box)
    np.testing.assert_allclose(J, np.diag(slope), rtol=1e-7, atol=1e-10)
    assert logs == pytest.approx(np.log(np.abs(slope)).sum())
    seen = central_differences(lambda x: np.array([coordinates.slopes(x)[1]]), v, 1e-5 * np.ones(5), box)[0]
    np.testing.assert_allclose(of_logs, seen, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("v", [-40.0, -8.0, 8.0, 40.0])
def test_far_out_they_are_finite_and_lead_back(v):
    coordinates = Unbounded(*unbounded(5), BEND)
    at = np.full(5, v)
    np.testing.assert_allclose(coordinates.to_normal(coordinates.from_normal(at)), at, rtol=1e-9)
    assert np.isfinite(coordinates.slopes(at)[0]).all()
    assert np.isfinite(coordinates.slopes(at)[2]).all()


def test_draws_are_made_normal_and_their_slopes_with_them():
    rng = np.random.default_rng(4)
    plain, gamma = rng.normal(3.0, 2.0, 4000), stats.loggamma(0.5)
    U = np.column_stack([plain, gamma.rvs(4000, random_state=rng)])
    slopes = np.column_stack([-(plain - 3.0) / 4.0, 0.5 - np.exp(U[:, 1])])  # of the log densities
    found, V, of_V = Unbounded(*unbounded(2)).adapted(U, slopes)
    assert found.bend[:, 0].tolist() == [0.0, 1.0, 0.0, 0.0]
    np.testing.assert_allclose(V[:, 0], plain)
    assert abs(stats.skew(U[:, 1])) > 1.3
    assert abs(stats.skew(V[:, 1])) < 0.1
    at = found.to_normal(found.from_normal(V))  # f(v) = log density of u + log du/dv
    log_density = gamma.logpdf(found.from_normal(at)[:, 1]) + np.log(found.steepness(at)[0][:, 1])
    h = np.column_stack([np.zeros(4000), np.full(4000, 1e-5)])
    up, down = (
        gamma.logpdf(found.from_normal(v)[:, 1]) + np.log(found.steepness(v)[0][:, 1]) for v in (at + h, at - h)
    )
    assert np.isfinite(log_density).all()
    np.testing.assert_allclose(of_V[:, 1], (up - down) / 2e-5, rtol=1e-4, atol=1e-5)


def test_few_draws_and_equal_ones_bend_nothing():
    start = Unbounded(*unbounded(1))
    assert start.adapted(np.zeros((10, 1)), np.zeros((10, 1)))[0] is start
    assert fit_bend(np.ones(100)).tolist() == [0.0, 1.0, 0.0, 0.0]


def test_the_metric_of_a_normal_is_its_covariance_after_few_draws():
    rng, A = np.random.default_rng(1), np.array([[4.0, 1.8, 0.0], [1.8, 1.0, 0.0], [0.0, 0.0, 1e6]])
    V = rng.multivariate_normal(np.zeros(3), A, 60)
    M = metric(V, -V @ np.linalg.inv(A))
    white = np.linalg.eigvals(np.linalg.solve(A, M)).real
    assert white == pytest.approx(np.ones(3), abs=0.25)
