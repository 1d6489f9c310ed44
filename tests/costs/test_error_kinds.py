"""Errors of readings by a word: normal and Laplace ones, of readings and their logarithms, against closed forms."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import fmepy as fme
from fmepy.errors import ArgumentError, DataError, SimulationError
from fmepy.numerics.differences import central_differences

T = np.array([0.5, 1.5, 2.5, 4.0])
DATA = pd.DataFrame({"time": T, "A": [7.9, 4.5, 2.9, 1.3], "B": [2.3, 5.1, 7.2, 8.5]})
LN10 = np.log(10)


@pytest.fixture
def pair():
    return fme.OdeModel(
        "d(A)/dt = -k*A\nd(B)/dt = k*A", state={"A": 10.0, "B": 0.0}, times=[0, 5], parms={"k": 0.5}, rtol=1e-11,
        atol=1e-12,
    )  # fmt: skip


def by_hand(word, obs, mod, s):
    scale, _, shape = word.rpartition("-")
    forward = {"": lambda y: y, "log": np.log, "log10": np.log10}[scale]
    slope = {"": np.ones_like, "log": lambda y: 1 / y, "log10": lambda y: 1 / (LN10 * y)}[scale]
    of = {"normal": stats.norm, "laplace": stats.laplace}[shape]
    return of.logpdf(forward(obs), forward(mod), s) + np.log(slope(obs))


WORDS = ["normal", "laplace", "log-normal", "log-laplace", "log10-normal", "log10-laplace"]


@pytest.mark.parametrize("word", WORDS)
def test_the_likelihood_is_of_the_readings_themselves(pair, word):
    cost = fme.SimulationCost(
        pair, DATA, measurement_noise={"A": "a + b*A", "B": 0.3}, parms={"a": 0.1, "b": 0.02}, likelihood={"A": word}
    )
    A = 10 * np.exp(-0.6 * T)
    wanted = by_hand(word, DATA["A"], A, 0.1 + 0.02 * A) + by_hand("normal", DATA["B"], 10 - A, 0.3)
    par = {"k": 0.6}
    assert cost(par).minus2loglik == pytest.approx(-2 * wanted.sum(), rel=1e-8)
    bound = cost.bind()
    theta = np.array([0.6, 0.1, 0.02])
    assert bound.minus2loglik(theta) == pytest.approx(-2 * wanted.sum(), rel=1e-8)
    slopes = central_differences(lambda x: np.array([-0.5 * bound.minus2loglik(x)]), theta, 1e-6 * theta)[0]
    np.testing.assert_allclose(bound.score(theta), slopes, rtol=1e-5)
    assert pickle.loads(pickle.dumps(cost))(par).minus2loglik == cost(par).minus2loglik


def test_log_normal_is_scipys(pair):
    cost = fme.SimulationCost(pair, DATA[["time", "A"]], measurement_noise={"A": 0.1}, likelihood="log-normal")
    wanted = stats.lognorm.logpdf(DATA["A"], 0.1, scale=10 * np.exp(-0.5 * T)).sum()
    assert cost().minus2loglik == pytest.approx(-2 * wanted, rel=1e-8)


@pytest.mark.parametrize("kind", ["log", "log10"])
def test_a_fit_says_the_same_with_the_transform_alone(pair, kind):
    words = {"measurement_noise": {"A": "estimate", "B": "estimate"}}
    one = fme.modFit(fme.SimulationCost(pair, DATA, transform=kind, **words))
    two = fme.modFit(fme.SimulationCost(pair, DATA, likelihood=f"{kind}-normal", **words))
    np.testing.assert_allclose(one.par, two.par, rtol=1e-6)
    assert one.loglik == pytest.approx(two.loglik, rel=1e-9)
    assert two.log_jacobian == 0
    assert two.minus2loglik == pytest.approx(-2 * two.loglik)
    assert one.minus2loglik == pytest.approx(two.minus2loglik + 2 * one.log_jacobian)


def test_decimal_logarithms_are_natural_ones_in_another_unit(pair):
    log = fme.SimulationCost(pair, DATA, transform="log")
    log10 = fme.SimulationCost(pair, DATA, transform="log10")
    np.testing.assert_allclose(log10().res, log().res / LN10, rtol=1e-10)
    np.testing.assert_allclose(log10.bind().jacobian(np.array([0.4])), log.bind().jacobian(np.array([0.4])) / LN10)
    np.testing.assert_allclose(log10.readings["obs"], np.r_[DATA["A"], DATA["B"]])
    mixed = fme.SimulationCost(pair, DATA, transform={"A": "log10", "B": "sqrt"})
    assert mixed().residuals["obs"].tolist() == [*np.log10(DATA["A"]), *np.sqrt(DATA["B"])]
    one, two = fme.modFit(log), fme.modFit(log10)
    assert one.par["k"] == pytest.approx(two.par["k"], rel=1e-6)
    bands = [fme.predict(pair, fit, reading=True, times=T) for fit in (one, two)]
    np.testing.assert_allclose(*[b.frame[["lower", "upper"]].to_numpy(dtype=float) for b in bands], rtol=1e-5)


def test_the_estimate_of_a_laplace_scale_is_the_mean_absolute_residual():
    model = fme.OdeModel("d(A)/dt = 0", state={"A": "A0"}, times=[0, 10], parms={"A0": 1.0})
    y = np.array([0.2, 0.9, 1.0, 1.4, 4.0])
    cost = fme.SimulationCost(
        model, {"time": np.arange(5.0), "A": y}, measurement_noise={"A": "estimate"}, likelihood="laplace"
    )
    theta = np.array([np.median(y), np.abs(y - np.median(y)).mean()])
    bound = cost.bind()
    assert bound.score(theta)[1] == pytest.approx(0, abs=1e-6)
    np.testing.assert_allclose(np.diag(bound.information(theta)), 5 / theta[1] ** 2, rtol=1e-6)
    other = cost.replace(obs={"time": np.arange(5.0), "A": y[::-1]})
    for asked, at in ((cost, theta), (cost + other, theta), (fme.transformed(cost, "log"), np.log(theta))):
        fit = fme.modFit(asked)
        np.testing.assert_allclose(fit.par, at, rtol=1e-3, atol=1e-3)
        assert fit.converged
        assert "The likelihood has kinks" in fit.message
    fit = fme.modFit(cost)
    information = bound.information(fit.par.to_numpy())
    np.testing.assert_allclose(fit.cov_scaled, np.linalg.inv(information), rtol=1e-6)
    with pytest.raises(ArgumentError, match="the errors of 'A' are not normal"):
        fme.predict(model, fit, reading=True)


def test_limits_of_log_normal_readings_have_no_unit(pair):
    data = DATA[["time", "A"]].assign(mark=["", "", "", "<"])
    cost = fme.SimulationCost(pair, data, measurement_noise={"A": 0.2}, censored="mark", likelihood="log-normal")
    mod = 10 * np.exp(-0.5 * T)
    plain = stats.lognorm.logpdf(DATA["A"][:3], 0.2, scale=mod[:3]).sum()
    beyond = stats.norm.logcdf((np.log(1.3) - np.log(mod[3])) / 0.2)
    assert cost().minus2loglik == pytest.approx(-2 * (plain + beyond), rel=1e-8)
    assert cost.bind().minus2loglik(np.array([0.5])) == pytest.approx(-2 * (plain + beyond), rel=1e-8)


def test_sums_of_different_errors(pair):
    parts = [
        fme.SimulationCost(pair, DATA[["time", v]], measurement_noise={v: 0.2}, likelihood=w)
        for v, w in (("A", "laplace"), ("B", "log-normal"))
    ]
    both = parts[0] + parts[1]
    assert both().minus2loglik == pytest.approx(sum(p().minus2loglik for p in parts), rel=1e-9)
    bound = both.bind(["k"])
    assert bound.score(np.array([0.45]))[0] == pytest.approx(
        sum(p.bind(["k"]).score(np.array([0.45]))[0] for p in parts), rel=1e-6
    )


def test_errors_of_a_column_serve(pair):
    data = DATA[["time", "A"]].assign(sd=0.3)
    cost = fme.SimulationCost(pair, data, err="sd", likelihood="laplace")
    wanted = stats.laplace.logpdf(DATA["A"], 10 * np.exp(-0.5 * T), 0.3).sum()
    assert cost().minus2loglik == pytest.approx(-2 * wanted, rel=1e-8)


@pytest.mark.parametrize(
    ("words", "error", "told"),
    [
        ({"likelihood": "lapalce"}, ArgumentError, "laplace"),
        ({"likelihood": {"C": "laplace"}}, DataError, "'C' is not an observed variable"),
        ({"likelihood": "log-normal", "transform": "log"}, ArgumentError, "of the logarithm already"),
        ({"likelihood": "laplace", "measurement_noise": None}, ArgumentError, "has no entry for 'A'"),
        ({"likelihood": "laplace", "censored": "mark"}, ArgumentError, "`censored` is for normal errors"),
        ({"likelihood": 3}, ArgumentError, "`likelihood` must be one of 'normal'"),
    ],
)
def test_what_cannot_be_is_told(pair, words, error, told):
    data = DATA[["time", "A"]].assign(mark=["", "", "", "<"])
    if "censored" not in words:
        data = data.drop(columns="mark")
    with pytest.raises(error, match=told):
        fme.SimulationCost(pair, data, **({"measurement_noise": {"A": 0.1}} | words))


def test_readings_and_predictions_without_a_logarithm_are_told(pair):
    with pytest.raises(DataError, match="has no log10"):
        fme.SimulationCost(pair, {"time": [1.0], "A": [-1.0]}, measurement_noise={"A": 0.1}, likelihood="log10-normal")
    cost = fme.SimulationCost(pair, {"time": [0.0], "B": [1.0]}, measurement_noise={"B": 0.1}, likelihood="log-normal")
    with pytest.raises(SimulationError, match="has no log"):
        cost()


def test_a_fit_of_laplace_errors_ends_at_a_kink_where_the_score_is_not_zero():
    model = fme.OdeModel(
        "d(x)/dt = -k*x", state={"x": "x0"}, times=np.linspace(0, 10, 21), parms={"k": 0.3, "x0": 10.0}
    )
    data = model()[["time", "x"]]
    data["x"] += np.random.default_rng(1).laplace(0, 0.3, len(data))
    cost = fme.SimulationCost(model, data, x="time", measurement_noise={"x": 0.3}, likelihood="laplace")
    fit = fme.modFit(cost)
    bound = cost.bind()
    step = np.linalg.solve(bound.information(fit.par.to_numpy()), bound.score(fit.par.to_numpy()))
    assert (np.abs(step) > 0.1 * np.sqrt(np.diag(fit.cov_scaled))).any()
    assert fit.converged
    r = model(fit.par)["x"] - data["x"]
    assert (np.abs(r) < 1e-3).sum() == 2  # as many readings as parameters are met
