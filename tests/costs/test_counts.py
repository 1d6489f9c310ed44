"""Counts: Poisson's and the negative binomial likelihood, beside scipy's distributions and sums over all counts."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from scipy.stats import nbinom, norm, poisson, uniform

import fmepy as fme
from fmepy.costs.counts import CLASSES, BoundNegativeBinomial, BoundPoisson
from fmepy.errors import ArgumentError, DataError, SimulationError

SIZE = {"measurement_noise": {"N": "size"}, "parms": {"size": 4.0}}
WORDS = {"poisson": {}, "negative-binomial": SIZE}
TIMES = np.arange(0.0, 12.0)


def decay():
    return fme.OdeModel("d(N)/dt = -k*N", state={"N": "N0"}, times=TIMES, parms={"k": 0.3, "N0": 60.0}, rtol=1e-9)


def counts(word, seed=1):
    mu, rng = 60 * np.exp(-0.3 * TIMES), np.random.default_rng(seed)
    return {"time": TIMES, "N": rng.poisson(mu if word == "poisson" else mu * rng.gamma(4.0, size=12) / 4.0)}


def cost_of(word, **more):
    return fme.SimulationCost(decay(), counts(word), likelihood=word, **{**WORDS[word], **more})


def scipy_of(word, mu, k):
    return poisson(mu) if word == "poisson" else nbinom(k, k / (k + mu))


@pytest.mark.parametrize("word", WORDS)
def test_log_densities_are_those_of_scipy(word):
    cost = cost_of(word)
    p = {"k": 0.25, "N0": 55.0} | ({"size": 2.5} if word != "poisson" else {})
    mu = 55 * np.exp(-0.25 * TIMES)
    known = scipy_of(word, mu, 2.5).logpmf(cost.comparison.obs)
    np.testing.assert_allclose(cost(p).minus2loglik, -2 * known.sum(), rtol=1e-8)
    bound = cost.bind()
    np.testing.assert_allclose(bound.log_densities(np.array([*p.values()])), known, rtol=1e-6)


@pytest.mark.parametrize("kind", CLASSES.values())
def test_slopes_are_differences_of_the_log_density(kind):
    obs, mu, k = np.array([0.0, 3, 70, 2]), np.array([0.5, 2.0, 90.0, 1e-3]), np.array([0.3, 2.0, 40.0, 5.0])
    kernel = object.__new__(kind)
    to_mu, to_k = kernel.slopes(obs, mu, k)
    h = 1e-5
    np.testing.assert_allclose(
        to_mu, (kernel.log_density(obs, mu * (1 + h), k) - kernel.log_density(obs, mu * (1 - h), k)) / (2 * h * mu),
        rtol=1e-6, atol=1e-6,
    )  # fmt: skip
    if to_k is not None:
        of_k = (kernel.log_density(obs, mu, k * (1 + h)) - kernel.log_density(obs, mu, k * (1 - h))) / (2 * h * k)
        np.testing.assert_allclose(to_k, of_k, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize(
    ("mu", "k"),
    [
        (0.01, 2.0),
        (3.0, 0.3),
        (3.0, 50.0),
        (100.0, 5.0),
        (1000.0, 49.0),
        (10.0, 51.0),
        (3000.0, 999.0),
        (5e4, 5.0),
        (2e4, 0.2),
        (300.0, 0.05),
    ],
)
def test_informations_are_expectations_over_all_counts(mu, k):
    of_count = nbinom(k, k / (k + mu))
    y = np.arange(0.0, of_count.ppf(1 - 1e-12) + 10)
    weights, kernel = of_count.pmf(y), object.__new__(BoundNegativeBinomial)
    to_mu, to_k = kernel.slopes(y, np.full(len(y), mu), np.full(len(y), k))
    found = kernel.informations(np.array([mu]), np.array([k]))
    for value, slope in zip(found, (to_mu, to_k), strict=True):
        np.testing.assert_allclose(value[0], (weights * slope**2).sum(), rtol=1.5e-3)
    assert abs((weights * to_mu * to_k).sum()) < 1e-8  # not correlated
    np.testing.assert_allclose(object.__new__(BoundPoisson).informations(np.array([mu]), None)[0], 1 / mu)


@pytest.mark.parametrize("word", WORDS)
def test_a_fit_is_the_largest_likelihood_and_its_errors_are_of_the_information(word):
    cost = cost_of(word)
    fit = fme.modFit(cost, lower=0)
    obs = cost.comparison.obs

    def minus2loglik(theta):
        return -2 * scipy_of(word, theta[1] * np.exp(-theta[0] * TIMES), theta[-1]).logpmf(obs).sum()

    best = minimize(
        minus2loglik, cost.parms.to_numpy(), method="Nelder-Mead",
        options={"xatol": 1e-8, "fatol": 1e-10, "maxiter": 5000}, bounds=[(1e-6, None)] * len(cost.parms),
    )  # fmt: skip
    np.testing.assert_allclose(fit.par, best.x, rtol=1e-4)
    np.testing.assert_allclose(fit.minus2loglik, best.fun, rtol=1e-8)
    assert fit.method == "scoring"
    k, n0 = fit.par["k"], fit.par["N0"]
    mu = n0 * np.exp(-k * TIMES)
    variance = mu if word == "poisson" else mu + mu**2 / fit.par["size"]
    rows = np.column_stack([-TIMES * mu, mu / n0]) / np.sqrt(variance)[:, None]
    known = np.sqrt(np.diag(np.linalg.inv(cost.bind(["k", "N0"]).information(fit.par[["k", "N0"]].to_numpy()))))
    of_rows = np.sqrt(np.diag(np.linalg.inv(rows.T @ rows))) if word == "poisson" else known
    np.testing.assert_allclose(known, of_rows, rtol=1e-6)


@pytest.mark.parametrize("word", WORDS)
def test_drawn_counts_have_mean_and_variance(word):
    cost = cost_of(word)
    draws = np.array([cost.simulate(seed=i)["N"].to_numpy() for i in range(600)])
    mu = 60 * np.exp(-0.3 * TIMES)
    variance = mu if word == "poisson" else mu + mu**2 / 4
    assert (draws == np.floor(draws)).all()
    z = (draws.mean(axis=0) - mu) / np.sqrt(variance / 600)
    assert np.abs(z).max() < norm.isf(1e-4)
    np.testing.assert_allclose(draws.var(axis=0)[:6], variance[:6], rtol=0.25)
    pd.testing.assert_frame_equal(cost.simulate(seed=3), cost.simulate(seed=3))


def test_errors_that_are_not_normal_are_drawn_too():
    cost = fme.SimulationCost(decay(), counts("poisson"), measurement_noise={"N": 0.5}, likelihood="laplace")
    errors = np.concatenate([cost.simulate(seed=i)["N"] - decay()()["N"] for i in range(1000)])
    np.testing.assert_allclose(np.abs(errors).mean(), 0.5, rtol=0.05)  # a normal one's is 0.4
    np.testing.assert_allclose(errors.std(), 0.5 * np.sqrt(2), rtol=0.06)
    logs = fme.SimulationCost(decay(), {"time": [1, 2], "N": [40, 30]}, measurement_noise={"N": 0.1},
                              likelihood="log-normal")  # fmt: skip
    ratios = np.array([np.log(logs.simulate(seed=i)["N"] / [60 * np.exp(-0.3), 60 * np.exp(-0.6)]) for i in range(800)])
    np.testing.assert_allclose(ratios.std(), 0.1, rtol=0.07)


def test_counts_are_calibrated():
    prior = {"k": uniform(0.1, 0.3), "N0": uniform(30, 30)}
    found = fme.simulation_based_calibration(cost_of("poisson"), prior, num=40, seed=1)
    assert (found.summary()["p_value"] > 0.01).all()


def test_what_dies_out_is_a_mean_of_nothing():
    model = fme.OdeModel("d(N)/dt = -k*N", state={"N": 5.0}, times=[0, 1, 500], parms={"k": 2.0})
    cost = fme.SimulationCost(model, {"time": [0, 1, 500], "N": [4, 1, 0]}, likelihood="poisson")
    assert np.isfinite(cost().minus2loglik)
    with pytest.raises(SimulationError, match="log density of 'N'"):
        cost.replace(model=model.replace(state={"N": -5.0}))()


def test_counts_join_other_readings_and_entities():
    sizes = {"time": [1, 2], "N": [44.0, 33.0]}
    both = cost_of("poisson") + fme.SimulationCost(decay(), sizes, measurement_noise={"N": 2.0})
    one, two = (part().minus2loglik for part in (cost_of("poisson"), both.parts[1]))
    np.testing.assert_allclose(both().minus2loglik, one + two)
    table = pd.concat([pd.DataFrame(counts("poisson", seed)).assign(site=f"s{seed}") for seed in (1, 2)])
    cost = fme.SimulationCost(decay(), table, entity="site", entity_parms=["N0"], likelihood="poisson")
    assert fme.modFit(cost, lower=0).par.index.tolist() == ["k", "N0[s1]", "N0[s2]"]


@pytest.mark.parametrize(
    ("word", "more", "says"),
    [
        ("poisson", {"measurement_noise": {"N": 2.0}}, "say likelihood='negative-binomial'"),
        ("negative-binomial", {"measurement_noise": None}, r"measurement_noise=\{'N': 'size'\}"),
        ("negative-binomial", {"measurement_noise": "estimate"}, "a start of yours"),
        ("negative-binomial", {"measurement_noise": {"N": "estimate"}}, "a start of yours"),
        ("negative-binomial", {"likelihood": pd.Series({"N": "poisson"})}, "`likelihood` must be one of"),
        ("poisson", {"transform": "log"}, "whole numbers from 0 on"),
        ("poisson", {"weight": "mean"}, "weight"),
    ],
)
def test_words_that_do_not_fit_are_refused(word, more, says):
    with pytest.raises((ArgumentError, DataError), match=says):
        fme.SimulationCost(decay(), counts(word), **{"likelihood": word, **WORDS[word], **more})


def test_the_noise_may_be_a_series_and_no_parameters_are_those_of_the_cost():
    cost = cost_of("negative-binomial", measurement_noise=pd.Series({"N": "size"}))
    assert cost({}).minus2loglik == cost_of("negative-binomial")().minus2loglik


def test_counts_have_no_errors():
    table = {**counts("poisson"), "sd": np.ones(12)}
    with pytest.raises(ArgumentError, match="leave `err` out"):
        fme.SimulationCost(decay(), table, likelihood="poisson", err="sd")


def test_counts_have_no_limits():
    table = {**counts("poisson"), "mark": [*[""] * 11, "<"]}
    with pytest.raises(ArgumentError, match="this `likelihood` has no limits"):
        fme.SimulationCost(decay(), table, likelihood="poisson", censored="mark")


@pytest.mark.parametrize("wrong", [2.5, -1.0])
def test_readings_that_are_no_counts_are_refused(wrong):
    with pytest.raises(DataError, match=f"a reading of 'N' is {wrong:g}"):
        fme.SimulationCost(decay(), {"time": [0, 1], "N": [3, wrong]}, likelihood="poisson")


def test_a_word_of_counts_is_of_a_whole_cost():
    with pytest.raises(ArgumentError, match="a cost of their own, and add the two"):
        fme.SimulationCost(decay(), counts("poisson"), likelihood={"N": "poisson"})
    with pytest.raises(ArgumentError, match="Did you mean 'poisson'"):
        fme.SimulationCost(decay(), counts("poisson"), likelihood="poison")


def test_there_is_no_normal_band_of_counts():
    cost = cost_of("poisson")
    fit = fme.modFit(cost, lower=0)
    assert (fme.predict(cost.model, fit)["lower"] > 0).all()
    with pytest.raises(ArgumentError, match="errors of 'N' are not normal"):
        fme.predict(cost.model, fit, reading=True)


def test_a_large_size_is_poisson_and_the_series_meet_the_functions():
    kernel, obs, mu = object.__new__(BoundNegativeBinomial), np.array([0.0, 5, 60, 3000]), np.array([0.5, 4, 63, 2900])
    found = kernel.log_density(obs, mu, np.full(4, 1e15))
    np.testing.assert_allclose(found, poisson(mu).logpmf(obs), rtol=1e-12)
    below, above = (np.full(4, 1e3 * (1 + s * 1e-9)) for s in (-1, 1))
    for what, rtol in (("log_density", 1e-9), ("slopes", 1e-7)):
        one, other = (getattr(kernel, what)(obs, mu, k) for k in (below, above))
        np.testing.assert_allclose(one, other, rtol=rtol)


def test_counts_that_scatter_less_than_poissons_end_at_poisson():
    table = {"time": TIMES, "N": np.round(60 * np.exp(-0.3 * TIMES))}
    rich = fme.modFit(fme.SimulationCost(decay(), table, likelihood="negative-binomial", **SIZE), lower=0)
    plain = fme.modFit(fme.SimulationCost(decay(), table, likelihood="poisson"), lower=0)
    assert abs(rich.minus2loglik - plain.minus2loglik) < 0.01  # its digits are not lost with the size
    assert "size ran away" in rich.message
