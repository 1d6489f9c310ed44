"""A simulation cost with noise of its own is a likelihood: value, score and information are those of the formulas."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.optimize
import scipy.stats

import fmepy as fme
from fmepy.costs.base import is_scored
from fmepy.errors import ArgumentError, SimulationError
from tests.costs import boehm

T = np.arange(1.0, 13.0)
READ = np.array([4.1, 3.2, 5.3, 4.4, 4.9, 3.8, 4.6, 5.1, 3.5, 4.2, 4.7, 2.9])


def level(mu: float = 4.0) -> fme.DifferenceModel:
    """Return a model that stays where it starts: a normal sample's mean."""
    return fme.DifferenceModel("next(m) = m", state={"m": "mu"}, times=range(13), parms={"mu": mu})


def decay(**more) -> fme.OdeModel:
    """Return a decay into a second pool, of which both and their sum may be read."""
    rates = "d(A)/dt = -k * A\nd(B)/dt = k * A - 0.1 * B"
    return fme.OdeModel(rates, state={"A": "A0", "B": 0.5}, times=np.linspace(0, 8, 9), parms={"k": 0.4, "A0": 10.0},
                        outputs={"both": "A + B"}, rtol=1e-10, atol=1e-10, **more)  # fmt: skip


def readings(seed: int = 1, names=("A", "B")) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    run = decay()(times=np.linspace(0, 8, 17))
    parts = [
        pd.DataFrame({
            "name": name,
            "time": run["time"][1:],
            "val": np.abs(run[name][1:] + 0.3 * rng.standard_normal(16)) + 0.05,
            "err": 0.2 + 0.01 * np.arange(16),
        })
        for name in names
    ]  # fmt: skip
    return pd.concat(parts, ignore_index=True)


def slope(function, theta: np.ndarray) -> np.ndarray:
    """Return the gradient by central differences."""
    steps = 1e-5 * np.maximum(np.abs(theta), 0.1) * np.eye(theta.size)
    return np.array([(function(theta + h) - function(theta - h)) / (2 * h.sum()) for h in steps])


# ------------------------------------------------------------------------------------------------------- closed forms


def test_the_sds_of_a_normal_sample_are_those_of_n_and_not_of_n_minus_1() -> None:
    cost = fme.SimulationCost(level(), {"time": T, "m": READ}, measurement_noise={"m": "estimate"})
    fit = fme.modFit(cost)
    n, sd = READ.size, READ.std()
    assert fit.method == "scoring"
    assert fit.par.to_dict() == pytest.approx({"mu": READ.mean(), "sd_v_m": sd}, rel=1e-7)
    assert fit.loglik == pytest.approx(scipy.stats.norm.logpdf(READ, READ.mean(), sd).sum(), rel=1e-10)
    assert fit.std_error.to_numpy() == pytest.approx([sd / n**0.5, sd / (2 * n) ** 0.5], rel=1e-4)
    assert fit.nobs == n
    # chi-square, not F: nothing scales the covariance
    assert fit.residual_variance == 1.0
    bound = cost.bind()
    np.testing.assert_allclose(bound.information(fit.par.to_numpy()), np.diag([n, 2 * n]) / sd**2, rtol=1e-6, atol=1e-9)


def tobit(theta: np.ndarray, y: np.ndarray, below: np.ndarray, above: np.ndarray) -> float:
    """Return -2 log L of a normal sample, of which some are known to lie beyond their values alone."""
    d = scipy.stats.norm(*theta)
    plain = ~(below | above)
    return -2 * float(d.logpdf(y[plain]).sum() + d.logcdf(y[below]).sum() + d.logsf(y[above]).sum())


def test_a_censored_normal_sample_has_its_closed_likelihood_and_maximum() -> None:
    below, above = READ < 3.6, READ > 5.0
    y = np.clip(READ, 3.6, 5.0)
    data = {"time": T, "m": y, "mark": np.where(below, "<", np.where(above, ">", "="))}
    cost = fme.SimulationCost(level(), data, measurement_noise={"m": "sd"}, parms={"sd": 1.0}, censored="mark")
    bound = cost.bind()
    for theta in np.array([[4.0, 1.0], [2.0, 0.3], [7.0, 0.1]]):
        assert bound.minus2loglik(theta) == pytest.approx(tobit(theta, y, below, above), rel=1e-12)
        value = cost({"mu": theta[0], "sd": theta[1]})
        assert value.minus2loglik == pytest.approx(tobit(theta, y, below, above), rel=1e-12)
    best = scipy.optimize.minimize(tobit, [4, 1], args=(y, below, above), method="Nelder-Mead",
                                   options={"xatol": 1e-10, "fatol": 1e-12})  # fmt: skip
    fit = fme.modFit(cost)
    assert fit.converged
    assert fit.minus2loglik == pytest.approx(best.fun, abs=1e-9)
    np.testing.assert_allclose(fit.par, best.x, rtol=1e-5)
    # the generalised residuals are those whose weighted sum the maximum makes zero
    residuals = fit.cost.residuals
    assert residuals["censored"].tolist() == np.where(below, "<", np.where(above, ">", "")).tolist()
    assert float((residuals["res"] * residuals["weight"]).sum()) == pytest.approx(0.0, abs=1e-5)
    z = (fit.par["mu"] - y[below]) / fit.par["sd"]
    np.testing.assert_allclose(residuals["res"][below], scipy.stats.norm.pdf(z) / scipy.stats.norm.sf(z), rtol=1e-10)


@pytest.mark.parametrize(("mark", "sign"), [("<", -1), (">", 1)])
def test_a_reading_beyond_a_limit_informs_as_its_residual_does(mark: str, sign: int) -> None:
    cost = fme.SimulationCost(level(), {"time": [1.0], "m": [4.4], "mark": [mark]}, measurement_noise={"m": "sd"},
                              parms={"sd": 0.7}, censored="mark")  # fmt: skip
    (row,) = cost.bind(["mu", "sd"]).sensitivity_rows(np.array([4.0, 0.7]))[2]
    r, h = (4.0 - 4.4) / 0.7, 1e-4
    below, at, above = scipy.stats.norm.logcdf(sign * np.array([r - h, r, r + h]))
    moved = np.array([1.0, -r]) / 0.7  # dr/dmu, dr/dsd
    np.testing.assert_allclose(np.outer(row, row), -(above - 2 * at + below) / h**2 * np.outer(moved, moved), rtol=1e-5)


def test_boehm_has_its_published_likelihood_and_an_exact_gradient() -> None:
    cost = boehm.cost()
    value = cost()
    assert value.minlogp == pytest.approx(-boehm.LOGLIK, abs=2e-5)
    assert value.minus2loglik == 2 * value.minlogp
    logs = fme.transformed(cost, "log10", names=boehm.estimated())
    bound = logs.bind(boehm.estimated())
    theta = bound.theta0 + 0.02 * np.cos(np.arange(9.0))
    steps = 1e-4 * np.eye(9)
    differences = [(bound.minus2loglik(theta + h) - bound.minus2loglik(theta - h)) / 2e-4 for h in steps]
    np.testing.assert_allclose(-2 * bound.score(theta), differences, rtol=2e-4, atol=2e-3)
    assert bound.scale_parameters.tolist() == [False] * 6 + [False] * 3  # logarithms already


# ---------------------------------------------------------------------------------------------- score and information

NOISES = {
    "number": ({"A": 0.3, "B": 0.2}, {}),
    "parameter": ({"A": "sd", "B": "2 * sd"}, {"sd": 0.3}),
    "estimate": ({"A": "estimate", "B": "estimate"}, {}),
    "two parts": ({"A": "sqrt(a**2 + (b*A)**2)", "B": "a"}, {"a": 0.2, "b": 0.1}),
    "another variable": ({"A": "a + b * both", "B": "a * abs(A)**g"}, {"a": 0.2, "b": 0.1, "g": 0.4}),
    "a model's parameter": ({"A": "a * (1 + k)", "B": "a * A0 / 10"}, {"a": 0.2}),
    "the time": ({"A": "a * (1 + 0.1 * t)", "B": "a"}, {"a": 0.2}),
    "own errors": ({"A": "scale * err", "B": "sqrt(err**2 + a**2)"}, {"scale": 1.3, "a": 0.2}),
}


@pytest.mark.parametrize("censored", [False, True])
@pytest.mark.parametrize("transform", [None, {"A": "log", "B": "sqrt"}])
@pytest.mark.parametrize("which", NOISES)
def test_the_score_is_the_derivative_and_the_rows_make_the_information(which: str, transform, censored: bool) -> None:
    noise, parms = NOISES[which]
    data = readings()
    data["mark"] = np.where(data["val"] < 0.8, "<", np.where(data["val"] > 7, ">", ""))
    cost = fme.SimulationCost(
        decay(), data, y="val", transform=transform, err="err" if "err" in str(noise) else None,
        measurement_noise=noise, parms=parms, censored="mark" if censored else None,
    )  # fmt: skip
    bound = cost.bind()
    assert is_scored(bound)
    assert bound.is_scalar
    assert bound.nobs == 32
    assert bound.inflated(10.0) is None
    theta = bound.theta0 * (1 + 0.05 * np.cos(np.arange(bound.theta0.size)))
    np.testing.assert_allclose(bound.score(theta), -0.5 * slope(bound.minus2loglik, theta), rtol=2e-6, atol=2e-5)
    names, x, rows = bound.sensitivity_rows(theta)
    assert len(names) == len(x) == len(rows)
    information = bound.information(theta)
    np.testing.assert_allclose(rows.T @ rows, information)
    assert np.linalg.eigvalsh(information).min() >= -1e-9 * np.abs(information).max()


def test_the_information_is_the_expected_curvature() -> None:
    """Averaged over readings that are drawn from it, the curvature of -2 log L / 2 is the information."""
    rng = np.random.default_rng(3)
    theta = np.array([4.0, 0.5])
    hessians = []
    for _ in range(60):
        y = rng.normal(theta[0], theta[1], T.size)
        cost = fme.SimulationCost(level(), {"time": T, "m": y}, measurement_noise={"m": "s"}, parms={"s": 0.5})
        bound = cost.bind()
        hessians.append([slope(lambda p, j=j, b=bound: -b.score(p)[j], theta) for j in range(2)])
    expected = bound.information(theta)
    np.testing.assert_allclose(np.mean(hessians, axis=0), expected, atol=0.15 * expected.max())


def test_only_noise_may_be_asked_for() -> None:
    cost = fme.SimulationCost(decay(), readings(names=["A"])[["name", "time", "val"]], y="val",
                              measurement_noise={"A": "estimate"})  # fmt: skip
    bound = cost.bind(["sd_v_A"])
    assert bound.score(np.array([0.3])) == pytest.approx(-0.5 * slope(bound.minus2loglik, np.array([0.3])), rel=1e-6)
    fit = fme.modFit(cost, ["sd_v_A"])
    r = cost().residuals["res.unweighted"]
    assert fit.par["sd_v_A"] == pytest.approx(float(np.sqrt(np.mean(r**2))), rel=1e-6)


# --------------------------------------------------------------------------------------------------------------- fits


def test_with_known_noise_it_finds_what_least_squares_finds() -> None:
    data = readings()
    squares = fme.modFit(fme.SimulationCost(decay(), data, y="val", err="err"))
    known = fme.modFit(
        fme.SimulationCost(decay(), data, y="val", err="err", measurement_noise={"A": "err", "B": "err"})
    )
    np.testing.assert_allclose(known.par, squares.par, rtol=1e-6)
    assert known.minus2loglik == pytest.approx(squares.minus2loglik, rel=1e-9)
    # there the sum of squares scales the covariance, here the noise is known
    np.testing.assert_allclose(known.cov_scaled, squares.cov_unscaled, rtol=0.05)
    assert np.isnan(known.ssr)


def test_without_words_of_noise_it_stays_a_sum_of_squares() -> None:
    bound = fme.SimulationCost(decay(), readings(), y="val", err="err").bind()
    assert not bound.is_scalar
    assert not is_scored(bound)


@pytest.mark.parametrize("method", ["BFGS", "Port", "L-BFGS-B", "Nelder-Mead"])
def test_other_methods_come_to_the_same_maximum(method: str) -> None:
    cost = fme.SimulationCost(decay(), readings()[["name", "time", "val"]], y="val",
                              measurement_noise={"A": "estimate", "B": "estimate"})  # fmt: skip
    best, other = fme.modFit(cost), fme.modFit(cost, method=method)
    assert other.minus2loglik == pytest.approx(best.minus2loglik, abs=1e-5)
    np.testing.assert_allclose(other.par, best.par, rtol=2e-3)


@pytest.mark.parametrize("method", ["BFGS", "Port"])
def test_a_number_of_ones_own_may_have_its_gradient(method: str) -> None:
    cost = fme.SimulationCost(decay(), readings()[["name", "time", "val"]], y="val",
                              measurement_noise={"A": "sd", "B": "sd"}, parms={"sd": 0.3})  # fmt: skip
    bound, names = cost.bind(), list(cost.parms.index)
    asked = []

    def gradient(p: dict[str, float]) -> np.ndarray:
        asked.append(p)
        return -2 * bound.score(np.array([p[k] for k in names]))

    def value(p: dict[str, float]) -> float:
        return bound.minus2loglik(np.array([p[k] for k in names]))

    fit = fme.modFit(value, cost.parms.to_dict(), jac=gradient, method=method, lower={"sd": 0.01})
    assert asked
    assert "gradient from jac" in fit.engine
    np.testing.assert_allclose(fit.par, fme.modFit(cost).par, rtol=2e-4)
    with pytest.raises(ArgumentError, match=r"d\(-2 log L\)/dp, one entry a parameter"):
        fme.modFit(value, cost.parms.to_dict(), jac=lambda p: np.zeros((2, 3)), method=method)
    with pytest.raises(ArgumentError, match="exact score"):
        fme.modFit(cost, jac=gradient)


def test_a_constant_part_of_the_noise_goes_to_zero_where_the_likelihood_wants_it() -> None:
    run = decay()(times=T[:8])
    y = run["A"] * (1 + 0.1 * np.array([1, -1, 1, -1, -1, 1, -1, 1.0]))
    cost = fme.SimulationCost(decay(), {"time": T[:8], "A": y}, measurement_noise={"A": "sqrt(a**2 + (b*A)**2)"},
                              parms={"a": 0.1, "b": 0.2})  # fmt: skip
    assert cost.lower[["a", "b"]].tolist() == [0.0, 0.0]
    fit = fme.modFit(cost)
    assert fit.converged
    assert fit.par["a"] == 0.0
    assert fit.par["b"] == pytest.approx(0.1, rel=0.05)
    assert "without the noise of a" in fit.message


def test_a_heteroscedastic_fit_is_that_of_a_general_optimiser() -> None:
    data = readings(names=["A"])
    t, y = data["time"].to_numpy(), data["val"].to_numpy()

    def minus2loglik(q: np.ndarray) -> float:
        k, start, a, b = q
        mod = start * np.exp(-k * t)
        return -2 * float(scipy.stats.norm.logpdf(y, mod, np.sqrt(a**2 + (b * mod) ** 2)).sum())

    best = scipy.optimize.minimize(minus2loglik, [0.4, 10, 0.2, 0.05], method="Nelder-Mead",
                                   options={"maxiter": 4000, "xatol": 1e-9, "fatol": 1e-11})  # fmt: skip
    cost = fme.SimulationCost(decay(), data[["name", "time", "val"]], y="val", parms={"a": 0.2, "b": 0.05},
                              measurement_noise={"A": "sqrt(a**2 + (b*A)**2)"})  # fmt: skip
    fit = fme.modFit(cost)
    assert fit.minus2loglik == pytest.approx(best.fun, abs=1e-6)
    np.testing.assert_allclose(fit.par[["k", "A0"]], best.x[:2], rtol=1e-4)


def test_priors_on_sds_may_be_of_any_kind() -> None:
    cost = fme.SimulationCost(level(), {"time": T, "m": READ}, measurement_noise={"m": "sd"}, parms={"sd": 1.0})
    prior = {"sd": scipy.stats.lognorm(s=0.1, scale=0.3)}
    fit = fme.modFit(cost, prior=prior)

    def posterior(sd: float) -> float:
        return -2 * float(scipy.stats.norm.logpdf(READ, READ.mean(), sd).sum() + prior["sd"].logpdf(sd))

    best = scipy.optimize.minimize_scalar(posterior, bounds=(0.1, 2), method="bounded", options={"xatol": 1e-10})
    assert fit.par["sd"] == pytest.approx(best.x, rel=1e-4)


def test_a_chain_samples_the_sd_under_a_half_cauchy() -> None:
    cost = fme.SimulationCost(level(), {"time": T, "m": READ}, measurement_noise={"m": "sd"}, parms={"sd": 1.0})
    fit = fme.modFit(cost)
    prior = {"sd": scipy.stats.halfcauchy(scale=0.5)}
    chain = fme.modMCMC(cost, fit.par, prior=prior, jump=2.4**2 / 2 * fit.cov_scaled, niter=6000, seed=2)
    sd = np.linspace(0.05, 4, 4000)
    n, squares = T.size, float(np.sum((READ - READ.mean()) ** 2))
    weight = sd ** -(n - 1.0) * np.exp(-squares / (2 * sd**2)) * prior["sd"].pdf(sd)  # mu integrated out
    mean = float(np.sum(sd * weight) / np.sum(weight))
    assert float(chain.pars["sd"].mean()) == pytest.approx(mean, rel=0.04)
    assert (chain.pars["sd"] > 0).all()


def test_sensitivities_and_collinearity_are_of_the_expected_information() -> None:
    cost = fme.SimulationCost(decay(), readings()[["name", "time", "val"]], y="val",
                              measurement_noise={"A": "estimate", "B": "sd_v_A"})  # fmt: skip
    sens = fme.sensFun(cost, parscale=1)
    np.testing.assert_allclose(sens.values.T @ sens.values, cost.bind().information(cost.parms.to_numpy()), rtol=1e-8)
    assert list(fme.collin(sens).columns) == ["k", "A0", "sd_v_A", "N", "collinearity"]


# --------------------------------------------------------------------------------------------------- what a call gives


def test_a_call_gives_a_modcost_with_the_likelihood_and_the_sds() -> None:
    data = readings()[["name", "time", "val"]]
    cost = fme.SimulationCost(decay(), data, y="val", measurement_noise={"A": 0.5, "B": "0.1 * B"})
    value = cost()
    mod, obs = (value.residuals[c].to_numpy() for c in ("mod", "obs"))
    sds = np.where(value.residuals["name"] == "A", 0.5, 0.1 * mod)
    np.testing.assert_allclose(value.sds, sds)
    assert value.minus2loglik == pytest.approx(-2 * float(scipy.stats.norm.logpdf(obs, mod, sds).sum()))
    assert value.minus2loglik == pytest.approx(cost.bind().minus2loglik(cost.bind().theta0))
    assert value.model == pytest.approx(float(np.sum(((mod - obs) / sds) ** 2)))


def test_a_function_that_returns_such_a_modcost_is_a_likelihood() -> None:
    cost = fme.SimulationCost(level(), {"time": T, "m": READ}, measurement_noise={"m": "estimate"})
    fit = fme.modFit(lambda p: cost(p), cost.parms.to_dict(), lower={"sd_v_m": 1e-3})
    assert fit.par["sd_v_m"] == pytest.approx(READ.std(), rel=1e-4)


def test_the_noise_is_of_the_transformed_reading_and_the_likelihood_of_a_fit_of_the_data() -> None:
    """A lognormal sample: noise of log y; loglik of y itself."""
    cost = fme.SimulationCost(level(), {"time": T, "m": READ}, transform="log", measurement_noise={"m": "estimate"})
    fit = fme.modFit(cost)
    logs = np.log(READ)
    assert fit.par.to_dict() == pytest.approx({"mu": np.exp(logs.mean()), "sd_v_m": logs.std()}, rel=1e-5)
    exact = scipy.stats.lognorm(s=logs.std(), scale=np.exp(logs.mean())).logpdf(READ).sum()
    assert fit.loglik == pytest.approx(float(exact), rel=1e-9)
    plain = fme.modFit(cost.replace(transform=None))
    assert set(fme.compare_fits({"log": fit, "plain": plain}).frame.index) == {"log", "plain"}


def test_censored_and_plain_data_are_not_the_same_data() -> None:
    data = {"time": T, "m": READ, "mark": ["<", *[""] * 11]}
    a = fme.SimulationCost(level(), data, measurement_noise={"m": "estimate"}, censored="mark")
    b = fme.SimulationCost(level(), {"time": T, "m": READ}, measurement_noise={"m": "estimate"})
    with pytest.raises(ArgumentError, match="limit above the reading"):
        fme.compare_fits({"a": fme.modFit(a), "b": fme.modFit(b)})


def test_it_pickles_and_is_evaluated_the_same() -> None:
    noise = {"A": "a + b * both", "B": "a"}
    cost = fme.SimulationCost(decay(), readings()[["name", "time", "val"]], y="val", measurement_noise=noise,
                              parms={"a": 0.2, "b": 0.1})  # fmt: skip
    again = pickle.loads(pickle.dumps(cost))
    assert again().minus2loglik == cost().minus2loglik
    noisy = fme.SimulationCost(level(), {"time": T, "m": READ}, measurement_noise={"m": "0.1 * m"})
    bound = noisy.bind()
    assert (pickle.loads(pickle.dumps(bound)).score(bound.theta0) == bound.score(bound.theta0)).all()


def test_changed_copies_keep_what_is_still_of_use() -> None:
    cost = fme.SimulationCost(decay(), readings()[["name", "time", "val"]], y="val",
                              measurement_noise={"A": "a", "B": "b"}, parms={"a": 0.2, "b": 0.1})  # fmt: skip
    assert cost.replace(measurement_noise={"B": "a"}).parms.index.tolist() == ["k", "A0", "a"]
    assert cost.replace(parms={"b": 0.5}).parms["b"] == 0.5
    assert cost.replace(measurement_noise=None).noise is None


def test_a_noise_that_is_not_positive_is_a_failed_run() -> None:
    cost = fme.SimulationCost(decay(), readings(names=["A"])[["name", "time", "val"]], y="val",
                              measurement_noise={"A": "a + 0.1 * A"}, parms={"a": 0.2})  # fmt: skip
    with pytest.raises(SimulationError, match=r"noise of 'A' at time = 2 has the standard deviation -0\.\d+"):
        cost({"a": -0.5})
    with pytest.raises(ArgumentError, match=r"fails at the start.*noise of 'A'"):
        fme.modFit(cost, {"a": -0.5})
    fit = fme.modFit(cost, ["a"])
    assert fit.converged


# --------------------------------------------------------------------------------------------------------------- sums


def test_parts_of_one_variable_share_its_sd() -> None:
    data = readings(names=["A"])[["name", "time", "val"]]
    model = decay()
    first = fme.SimulationCost(model, data[:8], y="val", measurement_noise={"A": "estimate"})
    second = fme.SimulationCost(model, data[8:], y="val", measurement_noise={"A": "estimate"})
    assert first.parms["sd_v_A"] != second.parms["sd_v_A"]
    both = first + second
    assert both.parms.index.tolist() == ["k", "A0", "sd_v_A"]
    whole = fme.SimulationCost(model, data, y="val", measurement_noise={"A": "estimate"})
    a, b = fme.modFit(both), fme.modFit(whole)
    np.testing.assert_allclose(a.par, b.par, rtol=1e-6)
    assert a.minus2loglik == pytest.approx(b.minus2loglik, abs=1e-8)
    assert both().residuals["part"].tolist() == [0] * 8 + [1] * 8
    own = first + second.replace(measurement_noise={"A": "sd_late"}, parms={"sd_late": 1.0})
    assert own.parms.index.tolist() == ["k", "A0", "sd_v_A", "sd_late"]


def test_a_part_without_noise_counts_with_the_errors_of_its_table() -> None:
    a, b = (readings(names=[name]) for name in "AB")
    noisy = fme.SimulationCost(decay(), a[["name", "time", "val"]], y="val", measurement_noise={"A": "estimate"})
    plain = fme.SimulationCost(decay(), b, y="val", err="err")
    for known in (plain, fme.SimulationCost(noisy.model, b, y="val", err="err")):  # its own model, and a shared one
        both = noisy + known
        value = both()
        assert value.minus2loglik == pytest.approx(noisy().minus2loglik + plain().minus2loglik)
        bound = both.bind()
        assert is_scored(bound)
        theta = bound.theta0 * 1.02
        np.testing.assert_allclose(bound.score(theta), -0.5 * slope(bound.minus2loglik, theta), rtol=1e-5, atol=1e-5)
    unknown = fme.SimulationCost(noisy.model, b[["name", "time", "val"]], y="val")
    with pytest.raises(ArgumentError, match="does not state the errors of 'B'"):
        (noisy + unknown)()
    with pytest.raises(ArgumentError, match="does not state the errors of 'B'"):
        (noisy + fme.SimulationCost(decay(), b[["name", "time", "val"]], y="val"))()


def test_entities_may_have_noise_of_their_own() -> None:
    data = pd.concat([readings(s, ["A"])[["time", "val"]].assign(rat=s) for s in (1, 2)], ignore_index=True)
    data = data.rename(columns={"val": "A"})
    shared = fme.SimulationCost(decay(), data, entity="rat", measurement_noise={"A": "a + b * both"},
                                parms={"a": 0.2, "b": 0.02})  # fmt: skip
    bound = shared.bind()
    theta = bound.theta0 * 1.05
    np.testing.assert_allclose(bound.score(theta), -0.5 * slope(bound.minus2loglik, theta), rtol=1e-5, atol=1e-5)
    pooled = fme.SimulationCost(decay(), data.drop(columns="rat"), measurement_noise={"A": "a + b * both"},
                                parms={"a": 0.2, "b": 0.02})  # fmt: skip
    assert bound.minus2loglik(theta) == pytest.approx(pooled.bind().minus2loglik(theta))
    own = fme.SimulationCost(decay(), data, entity="rat", measurement_noise={"A": "estimate"},
                             entity_parms=["k", "A0", "sd_v_A"])  # fmt: skip
    assert own.parms.index.tolist()[-2:] == ["sd_v_A[1]", "sd_v_A[2]"]
    assert own.lower[["sd_v_A[1]", "k[1]"]].tolist() == [0.0, -np.inf]
    fit = fme.modFit(own)
    for rat in (1, 2):
        mine = data[data["rat"] == rat].drop(columns="rat")
        alone = fme.modFit(fme.SimulationCost(decay(), mine, measurement_noise={"A": "estimate"}))
        assert fit.par[f"sd_v_A[{rat}]"] == pytest.approx(alone.par["sd_v_A"], rel=1e-6)
        assert fit.par[f"k[{rat}]"] == pytest.approx(alone.par["k"], rel=1e-6)


def test_conditions_may_set_parameters_of_the_noise() -> None:
    data = pd.concat([readings(s, ["A"])[["time", "val"]].assign(rat=s) for s in (1, 2)], ignore_index=True)
    cost = fme.SimulationCost(decay(), data.rename(columns={"val": "A"}), entity="rat",
                              measurement_noise={"A": "sd"}, parms={"low": 0.2},
                              conditions={"rat": [1, 2], "sd": ["low", 0.7]})  # fmt: skip
    assert cost.parms.index.tolist() == ["k", "A0", "low"]
    assert cost().sds.tolist() == [0.2] * 16 + [0.7] * 16
    assert cost.lower["low"] == 0.0
