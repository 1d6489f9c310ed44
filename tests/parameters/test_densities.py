"""Densities of priors: closed ones are scipy's, and chains take no time of scipy's."""

import pickle

import numpy as np
import pytest
from scipy import stats

import fmepy as fme
from fmepy.parameters.densities import CLOSED, density_with_slope, log_density

SHAPES = {
    "truncnorm": (-1.0, 2.5), "loguniform": (0.1, 9.0), "reciprocal": (0.1, 9.0), "lognorm": (0.4,), "gamma": (2.5,),
    "loglaplace": (2.5,),
    "chi2": (3.0,), "invgamma": (3.0,), "beta": (2.0, 3.5), "t": (4.0,), "weibull_min": (1.7,),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(CLOSED))
def test_closed_densities_are_scipys(name):
    frozen = getattr(stats, name)(*SHAPES.get(name, ()), loc=0.3, scale=1.7)
    density, plain = density_with_slope(frozen), log_density(frozen)
    for value in frozen.ppf([0.03, 0.4, 0.77, 0.98]):
        found, slope = density(float(value))
        assert found == plain(float(value)) == pytest.approx(frozen.logpdf(value), abs=1e-12)
        h = 1e-6
        assert slope == pytest.approx((frozen.logpdf(value + h) - frozen.logpdf(value - h)) / (2 * h), abs=1e-7)
    lower, upper = frozen.support()
    for outside in (lower - 1e-9, upper + 1e-9):
        if np.isfinite(outside):
            assert plain(outside) == density(outside)[0] == -np.inf
    assert pickle.loads(pickle.dumps(plain))(1.0) == plain(1.0)  # for workers


AT_AN_END = {
    "chi2": [(1.0,), (2.0,), (3.0,)], "gamma": [(0.5,), (1.0,), (2.0,)], "weibull_min": [(0.5,), (1.0,), (2.0,)],
    "beta": [(1.0, 1.0), (1.0, 3.0), (2.0, 1.0), (0.5, 1.0), (1.0, 0.5), (0.5, 0.5)], "loglaplace": [(0.5,), (1.0,)],
    "truncnorm": [(-1.0, 2.5), (0.0, np.inf)],
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(CLOSED))
def test_closed_densities_are_scipys_at_the_ends_of_their_support_and_beyond(name):
    for shapes in AT_AN_END.get(name, [SHAPES.get(name, ())]):
        frozen = getattr(stats, name)(*shapes, loc=0.25, scale=2.0)
        density = density_with_slope(frozen)
        for end in frozen.support():
            with np.errstate(all="ignore"):
                for value in (end, end - 1e-6, end + 1e-6, -end, np.inf, -np.inf):
                    expected = frozen.logpdf(value)
                    if not np.isnan(expected):  # scipy's of chi2(3) at infinity
                        assert density(value)[0] == pytest.approx(expected, rel=1e-9, abs=1e-9), (shapes, value)


def test_the_slope_at_an_end_is_that_of_the_density_beside_it():
    assert density_with_slope(stats.gamma(1, scale=2))(0.0) == pytest.approx((-np.log(2), -0.5))
    assert density_with_slope(stats.beta(1, 3))(0.0) == pytest.approx((np.log(3), -2.0))
    assert density_with_slope(stats.beta(3, 1))(1.0) == pytest.approx((np.log(3), 2.0))


def test_other_densities_are_differenced_also_beside_an_end():
    frozen = stats.triang(0.4)
    for value in (1e-9, 0.2, 0.7):
        found, slope = density_with_slope(frozen, 0.3)(value)
        assert found == frozen.logpdf(value)
        if value > 0.01:
            assert slope == pytest.approx(1 / value if value < 0.4 else -1 / (1 - value), rel=1e-6)


def test_a_distribution_of_ones_own_is_not_taken_by_its_name():
    class Own(stats.rv_continuous):
        def _pdf(self, x):
            return 2.0 * x

    frozen = Own(a=0.0, b=1.0, name="norm")()
    assert log_density(frozen)(0.5) == pytest.approx(0.0, abs=1e-12)
    assert density_with_slope(frozen, 0.3)(0.5)[1] == pytest.approx(2.0, rel=1e-6)


@pytest.mark.parametrize("method", ["dram", "nuts"])
def test_a_chain_with_closed_priors_calls_no_density_of_scipy(method, monkeypatch):
    calls = []
    known = stats.rv_continuous.logpdf
    monkeypatch.setattr(stats.rv_continuous, "logpdf", lambda *a, **k: calls.append(1) or known(*a, **k))
    x = np.arange(6.0)
    prior = {"a": stats.lognorm(0.5, scale=2.0), "b": stats.truncnorm(-1, np.inf, loc=1, scale=1)}
    chain = fme.modMCMC(
        lambda p: 2.0 * np.exp(-0.5 * x) - p["a"] * np.exp(-p["b"] * x), {"a": 2.0, "b": 0.5},
        jac=lambda p: -np.exp(-p["b"] * x)[:, None] * np.column_stack([np.ones(6), -p["a"] * x]),
        prior=prior, var0=0.01, jump=0.05, niter=200, burninlength=100, method=method, seed=1,
    )  # fmt: skip
    assert len(chain.pars) == 100
    assert len(calls) < 20
