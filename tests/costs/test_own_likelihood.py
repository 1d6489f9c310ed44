"""A likelihood of one's own: three functions of arrays make a cost with an exact score and expected information."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from scipy.special import gammaln
from scipy.stats import nbinom, poisson

import fmepy as fme
from fmepy.costs import BoundLikelihood
from fmepy.errors import ArgumentError, SimulationError
from fmepy.numerics.differences import central_differences

T = np.arange(6.0)
COUNTS = {"time": T, "N": [42, 25, 17, 12, 5, 6]}


class Poisson(BoundLikelihood):
    """Counts."""

    def log_density(self, obs, mod, spread):
        return obs * np.log(mod) - mod - gammaln(obs + 1)

    def slopes(self, obs, mod, spread):
        return obs / mod - 1, None

    def informations(self, mod, spread):
        return 1 / mod, None


class Student(BoundLikelihood):
    """Errors with Student's distribution of four degrees of freedom, and the spread as their scale."""

    def log_density(self, obs, mod, spread):
        u = (obs - mod) / spread
        return gammaln(2.5) - gammaln(2) - 0.5 * np.log(4 * np.pi) - np.log(spread) - 2.5 * np.log1p(u**2 / 4)

    def slopes(self, obs, mod, spread):
        u = (obs - mod) / spread
        w = 5 / (4 + u**2)
        return w * u / spread, (w * u**2 - 1) / spread

    def informations(self, mod, spread):
        return 5 / 7 / spread**2, 8 / 7 / spread**2  # (n + 1) / (n + 3) and 2 n / (n + 3)


@pytest.fixture
def decay():
    return fme.OdeModel(
        "d(N)/dt = -k*N", state={"N": "N0"}, times=T, parms={"k": 0.4, "N0": 40.0}, rtol=1e-10, atol=1e-10
    )


def mean(theta):
    theta = np.asarray(theta)
    return theta[1] * np.exp(-theta[0] * T)


def by_hand(theta):
    return -2 * poisson.logpmf(COUNTS["N"], mean(theta)).sum()


def test_a_poisson_cost_is_minus_twice_the_log_of_the_probability(decay):
    cost = fme.SimulationCost(decay, COUNTS, likelihood=Poisson)
    for theta in ([0.4, 40.0], [0.6, 30.0]):
        assert cost.bind().minus2loglik(np.array(theta)) == pytest.approx(by_hand(theta), rel=1e-8)
        assert cost({"k": theta[0], "N0": theta[1]}).minus2loglik == pytest.approx(by_hand(theta), rel=1e-8)


def test_its_score_and_expected_information_are_exact(decay):
    bound, theta = fme.SimulationCost(decay, COUNTS, likelihood=Poisson).bind(), np.array([0.5, 35.0])
    m = mean(theta)
    slopes = np.column_stack([-T * m, m / theta[1]])
    np.testing.assert_allclose(bound.score(theta), (np.array(COUNTS["N"]) / m - 1) @ slopes, rtol=1e-6)
    np.testing.assert_allclose(bound.information(theta), slopes.T @ (slopes / m[:, None]), rtol=1e-6)
    names, x, rows = bound.sensitivity_rows(theta)
    assert (names, x.tolist()) == (["N"] * 6, T.tolist())
    np.testing.assert_allclose(rows.T @ rows, bound.information(theta))


def test_modfit_scores_and_finds_what_an_optimiser_finds_by_hand(decay):
    cost = fme.SimulationCost(decay, COUNTS, likelihood=Poisson)
    fit = fme.modFit(cost)
    best = minimize(by_hand, [0.4, 40.0], method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-10})
    assert fit.method == "scoring"
    assert fit.converged
    np.testing.assert_allclose(fit.par, best.x, rtol=1e-5)
    np.testing.assert_allclose(
        fit.cost.residuals["res"], (mean(fit.par) - COUNTS["N"]) / np.sqrt(mean(fit.par)), rtol=1e-5
    )


def test_sensitivities_profiles_and_chains_take_it(decay):
    cost = fme.SimulationCost(decay, COUNTS, likelihood=Poisson)
    fit = fme.modFit(cost)
    S = fme.sensFun(cost, fit.par)
    assert len(S) == 6
    assert fme.collin(S)["collinearity"].iloc[0] > 1
    interval = fme.profile(cost, fit, ["k"]).intervals.loc["k"]
    for end in (interval["lower"], interval["upper"]):
        held = minimize(lambda n0: by_hand([end, n0[0]]), [40.0], method="Nelder-Mead")  # noqa: B023
        assert held.fun - fit.minus2loglik == pytest.approx(3.84, abs=0.02)
    chain = fme.modMCMC(cost, fit.par, jump=fit.cov_scaled * 2.4**2 / 2, niter=3000, seed=1)
    assert chain.pars["k"].mean() == pytest.approx(fit.par["k"], abs=0.5 * fit.std_error["k"])


def test_a_spread_that_is_estimated_is_a_parameter_with_derivatives(decay):
    data = {"time": T, "N": [42.0, 26.5, 17.2, 25.0, 8.0, 5.4]}
    cost = fme.SimulationCost(decay, data, likelihood=Student, measurement_noise={"N": "scale"}, parms={"scale": 2.0})
    bound, theta = cost.bind(), np.array([0.45, 39.0, 1.5])
    assert cost.parms.index.tolist() == ["k", "N0", "scale"]
    by_differences = central_differences(lambda p: -0.5 * bound.minus2loglik(p), theta, 1e-5 * theta)
    np.testing.assert_allclose(bound.score(theta), by_differences, rtol=1e-4)
    robust, plain = fme.modFit(cost), fme.modFit(fme.SimulationCost(decay, data, measurement_noise={"N": "estimate"}))
    assert robust.converged
    assert abs(robust.par["k"] - 0.45) < abs(plain.par["k"] - 0.45), "the outlier counts for less"


def test_the_expected_information_is_the_mean_of_the_squared_score(decay):
    rng, theta = np.random.default_rng(3), np.array([0.4, 40.0])
    scores = []
    for _ in range(400):
        drawn = {"time": T, "N": rng.poisson(mean(theta)).astype(float)}
        scores.append(fme.SimulationCost(decay, drawn, likelihood=Poisson).bind().score(theta))
    expected = fme.SimulationCost(decay, COUNTS, likelihood=Poisson).bind().information(theta)
    size = 1 / np.sqrt(np.diag(expected))
    np.testing.assert_allclose(
        np.cov(np.array(scores).T) * np.outer(size, size), expected * np.outer(size, size), atol=0.25
    )


def test_entities_sums_and_pickles(decay):
    table = pd.concat([pd.DataFrame(COUNTS).assign(dish=d) for d in ("a", "b")])
    table.loc[table["dish"] == "b", "N"] = [20, 11, 6, 5, 2, 1]
    cost = fme.SimulationCost(decay, table, likelihood=Poisson, entity="dish", entity_parms=["N0"])
    fit = fme.modFit(cost)
    assert fit.par.index.tolist() == ["k", "N0[a]", "N0[b]"]
    assert fit.par["N0[b]"] < fit.par["N0[a]"]
    same = pickle.loads(pickle.dumps(cost))
    assert same().minus2loglik == cost().minus2loglik
    assert cost.replace(parms={"N0[a]": 41.0})().minus2loglik != cost().minus2loglik
    one, two = (fme.SimulationCost(decay, COUNTS, likelihood=k) for k in (Poisson, None))
    parts = one + fme.SimulationCost(decay, {"time": [2.5], "N": [15.0]}, measurement_noise={"N": 2.0})
    theta = np.array([0.5, 35.0])
    own = [part.bind() for part in parts.parts]
    assert parts.bind().minus2loglik(theta) == pytest.approx(sum(b.minus2loglik(theta) for b in own))
    np.testing.assert_allclose(parts.bind().information(theta), sum(b.information(theta) for b in own))
    assert two().minus2loglik != one().minus2loglik


def test_a_spread_that_is_held_has_no_derivatives(decay):
    class Negative(BoundLikelihood):
        def log_density(self, obs, mod, spread):
            return nbinom.logpmf(obs, spread, spread / (spread + mod))

        def slopes(self, obs, mod, spread):
            return obs / mod - (obs + spread) / (mod + spread), None  # the spread is held

        def informations(self, mod, spread):
            return spread / mod / (spread + mod), None

    cost = fme.SimulationCost(decay, COUNTS, likelihood=Negative, measurement_noise={"N": 1e7})
    assert cost().minus2loglik == pytest.approx(by_hand([0.4, 40.0]), rel=1e-4), (
        "without overdispersion it is Poisson's"
    )


def test_what_is_wrong_is_said(decay):
    with pytest.raises(ArgumentError, match="`likelihood` must be one of 'normal'"):
        fme.SimulationCost(decay, COUNTS, likelihood=poisson)
    with pytest.raises(ArgumentError, match="`censored` is for normal errors"):
        fme.SimulationCost(decay, COUNTS | {"mark": ["<"] * 6}, likelihood=Poisson, censored="mark")
    with pytest.raises(ArgumentError, match="`weight='std'` makes up errors"):
        fme.SimulationCost(decay, COUNTS, likelihood=Poisson, weight="std")
    with pytest.raises(
        SimulationError, match="The log density of 'N' at time = 0 is nan where the model's value is -1"
    ):
        fme.SimulationCost(decay, COUNTS, likelihood=Poisson).bind().minus2loglik(np.array([0.4, -1.0]))


@pytest.mark.parametrize("lacking", ["slopes", "informations", "log_density"])
def test_a_method_that_is_missing_is_told(lacking):
    own = type("Own", (Poisson,), {lacking: getattr(BoundLikelihood, lacking)})
    model = fme.OdeModel("d(N)/dt = -k*N", state={"N": 40.0}, times=T, parms={"k": 0.4})
    with pytest.raises(ArgumentError, match=rf"The likelihood Own does not say all: give it {lacking}\(self, "):
        fme.modFit(fme.SimulationCost(model, COUNTS, likelihood=own))


def test_an_instance_in_place_of_the_class_is_answered():
    with pytest.raises(ArgumentError, match=r"give the class itself, likelihood=Poisson"):
        Poisson()
