"""The no-U-turn sampler draws from the posterior, whatever its shape, bounds and priors, and says where it cannot."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import fmepy as fme
from fmepy.costs.user_function import as_objective
from fmepy.errors import ArgumentError
from fmepy.mcmc.convergence import ess_bulk
from fmepy.mcmc.kernels.nuts import windows
from fmepy.mcmc.kernels.whitening import Unbounded
from fmepy.mcmc.target import Target, variances
from fmepy.numerics.differences import central_differences
from fmepy.parameters.priors import as_prior
from tests.mcmc.test_checkpoint import assert_same

NUTS = {"method": "nuts", "seed": 1}


def normal(mean, cov):
    P = np.linalg.inv(cov)
    return (lambda p: float((p - mean) @ P @ (p - mean))), (lambda p: 2 * P @ (p - mean))


def standard_errors(chain):
    """Return the Monte Carlo standard error of the mean by parameter."""
    return (chain.pars.std() / np.sqrt(chain.diagnostics()["ess_bulk"])).to_numpy()


def test_a_normal_in_twenty_dimensions_has_its_mean_and_covariance():
    rng = np.random.default_rng(7)
    A = rng.standard_normal((20, 20))
    cov = A @ A.T + 0.1 * np.eye(20)
    mean = rng.standard_normal(20)
    f, g = normal(mean, cov)
    chain = fme.modMCMC(f, np.zeros(20), jac=g, niter=800, burninlength=300, chains=2, **NUTS)
    assert np.all(np.abs(chain.pars.mean() - mean) < 4.5 * standard_errors(chain))
    assert np.allclose(chain.pars.var() / np.diag(cov), 1, atol=0.3)
    assert chain.diagnostics()["rhat"].max() < 1.02
    assert chain.divergences == 0
    assert chain.divergent is None


def banana(p):
    return float(p[0] ** 2 + (p[1] - p[0] ** 2) ** 2)


def slope_of_banana(p):
    bent = 2 * (p[1] - p[0] ** 2)
    return np.array([2 * p[0] - 2 * p[0] * bent, bent])


def test_a_bent_target_has_its_moments():
    chain = fme.modMCMC(
        banana, [0.0, 0.0], jac=slope_of_banana, niter=2500, burninlength=500, chains=2,
        control={"target_accept": 0.95}, **NUTS,
    )  # fmt: skip
    error = standard_errors(chain)
    assert abs(chain.pars["p1"].mean()) < 4.5 * error[0]
    assert abs(chain.pars["p2"].mean() - 1) < 4.5 * error[1]  # the mean of a squared normal
    square = chain.draws()[:, :, 0] ** 2
    assert abs(square.mean() - 1) < 4.5 * square.std() / np.sqrt(ess_bulk(square))


SCHOOLS = np.array([28.0, 8, -3, 7, -1, 1, 18, 12])
"""Rubin's eight schools (1981, J. Educ. Stat. 6, 377): effects of coaching,"""
ERRORS = np.array([15.0, 10, 16, 11, 9, 11, 10, 18])
"""and their standard errors."""


def schools_by_quadrature():
    """Return means and sds of mu and tau, and the mean of the first school's effect: all but tau is integrated out."""
    tau = np.linspace(0, 200, 40_001)
    variance = ERRORS**2 + tau[:, None] ** 2
    precision = 1 / 25 + (1 / variance).sum(axis=1)
    mean = (SCHOOLS / variance).sum(axis=1) / precision
    density = stats.halfcauchy(scale=5).logpdf(tau) - 0.5 * np.log(precision) - 0.5 * np.log(variance).sum(axis=1)
    density += 0.5 * precision * mean**2 - 0.5 * (SCHOOLS**2 / variance).sum(axis=1)
    w = np.exp(density - density.max())
    w /= w.sum()
    mu, at = w @ mean, w @ tau
    sds = np.sqrt([w @ (1 / precision + mean**2) - mu**2, w @ tau**2 - at**2])
    pulled = tau**2 / variance[:, 0]
    return np.array([mu, at]), sds, w @ (pulled * SCHOOLS[0] + (1 - pulled) * mean)


def test_eight_schools_have_the_moments_of_quadrature():
    def value(p):
        p = np.array([*p.values()])
        return float((((SCHOOLS - p[0] - p[1] * p[2:]) / ERRORS) ** 2).sum() + p[2:] @ p[2:])

    def slope(p):
        p = np.array([*p.values()])
        r = -2 * (SCHOOLS - p[0] - p[1] * p[2:]) / ERRORS**2
        return np.concatenate([[r.sum(), r @ p[2:]], r * p[1] + 2 * p[2:]])

    names = ["mu", "tau", *(f"eta{j}" for j in range(1, 9))]
    prior = {"mu": stats.norm(0, 5), "tau": stats.halfcauchy(scale=5)}
    chain = fme.modMCMC(
        value, dict.fromkeys(names, 1.0), jac=slope, prior=prior,
        niter=6000, burninlength=1000, chains=2, **NUTS,
    )  # fmt: skip
    means, sds, first = schools_by_quadrature()
    np.testing.assert_allclose(means, [4.4, 3.6], atol=0.1)  # the published ones
    assert np.all(np.abs(chain.pars[["mu", "tau"]].mean() - means) < 4.5 * standard_errors(chain)[:2])
    np.testing.assert_allclose(chain.pars[["mu", "tau"]].std(), sds, rtol=0.12)
    effect = chain.pars["mu"] + chain.pars["tau"] * chain.pars["eta1"]
    assert abs(effect.mean() - first) < 4.5 * effect.std() / np.sqrt(ess_bulk(effect.to_numpy().reshape(2, -1)))
    assert chain.diagnostics()["rhat"].max() < 1.02


def test_a_conjugate_regression_has_its_t_and_its_gamma():
    """Return of beta ~ N(0, sigma^2 10^2), sigma^2 ~ inverse gamma(2, 1) the marginals that are known."""
    rng = np.random.default_rng(2)
    X = np.column_stack([np.ones(12), np.linspace(-1, 1, 12)])
    y = X @ [1.0, 2.0] + 0.6 * rng.standard_normal(12)
    P = X.T @ X + np.eye(2) / 100
    mean, a = np.linalg.solve(P, X.T @ y), 2 + 6.0
    b = 1 + 0.5 * (y @ y - mean @ P @ mean)

    def value(p):  # with the slope of log s^2, which is the parameter
        d = p[:2] - mean
        return float((d @ P @ d + 2 * b) * np.exp(-p[2]) + 2 * (a + 1) * p[2])

    def slope(p):
        d, precision = p[:2] - mean, np.exp(-p[2])
        return np.append(2 * P @ d * precision, -(d @ P @ d + 2 * b) * precision + 2 * (a + 1))

    chain = fme.modMCMC(value, [0.0, 0.0, 0.0], jac=slope, niter=4000, burninlength=1000, **NUTS)
    ess = chain.diagnostics()["ess_bulk"].min()
    draws = chain.pars.to_numpy()[:: int(3000 / ess) + 1]
    scale = np.sqrt(b / a * np.diag(np.linalg.inv(P)))
    for j in range(2):
        assert stats.kstest((draws[:, j] - mean[j]) / scale[j], stats.t(2 * a).cdf).pvalue > 0.01
    assert stats.kstest(np.exp(draws[:, 2]), stats.invgamma(a, scale=b).cdf).pvalue > 0.01


def funnel(p):
    """Return -2 log density of Neal's funnel: v ~ N(0, 3), x | v ~ N(0, exp(v / 2))."""
    return float(p["v"] ** 2 / 9 + p["x"] ** 2 * np.exp(-p["v"]) + p["v"])


def slope_of_funnel(p):
    steep = np.exp(-p["v"])
    return np.array([2 * p["v"] / 9 - p["x"] ** 2 * steep + 1, 2 * p["x"] * steep])


def test_the_divergences_of_a_funnel_are_counted_and_placed_in_its_neck():
    chain = fme.modMCMC(
        funnel, {"v": 0.0, "x": 1.0}, jac=slope_of_funnel, niter=1000, burninlength=300, chains=2, **NUTS
    )
    assert chain.divergences > 0
    assert len(chain.divergent) <= chain.divergences
    assert chain.divergent["v"].median() < chain.pars["v"].median()
    assert f"{chain.divergences} trajector" in chain.message
    assert "where 'v' is small" in chain.message
    assert "target_accept" in chain.message


@pytest.mark.parametrize(("lower", "upper"), [(0.0, np.inf), (-np.inf, 0.0), (-1.0, 0.5), (-np.inf, np.inf)], ids=str)
def test_bounds_are_transformed_away(lower, upper):
    truth = stats.truncnorm(lower, upper)
    p = {"x": 0.2 if lower < 0.2 < upper else -0.3}
    chain = fme.modMCMC(
        lambda p: p["x"] ** 2, p, jac=lambda p: np.array([2 * p["x"]]), lower=lower, upper=upper, niter=2500,
        burninlength=500, **NUTS,
    )  # fmt: skip
    draws = chain.pars["x"].to_numpy()
    thinned = draws[:: max(1, int(len(draws) / chain.diagnostics()["ess_bulk"].iloc[0]) + 1)]
    assert stats.kstest(thinned, truth.cdf).pvalue > 0.01
    assert lower < draws.min()
    assert draws.max() < upper


def test_the_support_of_a_prior_is_transformed_away():
    prior = {"rate": stats.gamma(3, scale=0.5), "share": stats.beta(2, 5)}
    chain = fme.modMCMC(
        lambda p: 0.0, {"rate": 1.0, "share": 0.3}, jac=lambda p: np.zeros(2), prior=prior, niter=2000,
        burninlength=500, chains=2, **NUTS,
    )  # fmt: skip
    error = standard_errors(chain)
    for k, name in enumerate(prior):
        assert abs(chain.pars[name].mean() - prior[name].mean()) < 4.5 * error[k]
        assert chain.pars[name].std() == pytest.approx(prior[name].std(), rel=0.1)


def test_a_prior_given_as_a_function_is_differenced():
    chain = fme.modMCMC(
        lambda p: float(p[0] ** 2), [0.5], jac=lambda p: 2 * p, prior=lambda p: float((p[0] - 2) ** 2), niter=3000,
        burninlength=1000, **NUTS,
    )  # fmt: skip
    assert abs(chain.pars["p1"].mean() - 1) < 4.5 * standard_errors(chain)[0]
    assert chain.pars["p1"].var() == pytest.approx(0.5, rel=0.15)


def test_a_start_without_a_slope_and_a_start_on_a_bound_work():
    f, g = normal(np.zeros(2), np.eye(2))
    chain = fme.modMCMC(f, [0.0, 0.0], jac=g, lower=[-np.inf, 0], niter=1500, burninlength=500, **NUTS)
    assert chain.pars["p1"].std() == pytest.approx(1, rel=0.15)
    assert chain.pars["p2"].mean() == pytest.approx(np.sqrt(2 / np.pi), rel=0.15)  # a half normal


# --- the gradient


X = np.array([28, 55, 83, 110, 138, 225, 375.0])
Y = np.array([0.053, 0.06, 0.112, 0.105, 0.099, 0.122, 0.125])


def monod(p):
    return p["mu"] * X / (X + p["ks"]) - Y


def slopes_of_monod(p):
    return np.column_stack([X / (X + p["ks"]), -p["mu"] * X / (X + p["ks"]) ** 2])


@pytest.mark.parametrize(
    "words",
    [
        {"var0": 1e-4},
        {"var0": 1e-4, "wvar0": 1.0},
        {"var0": 1e-4, "n0": 0},
        {"var0": np.linspace(1, 2, 7) * 1e-4},
        {"var0": np.linspace(1, 2, 7) * 1e-4, "n0": 2},
    ],
    ids=lambda w: ", ".join(w) + f" {np.size(w['var0'])}",
)
@pytest.mark.parametrize("kind", ["functions", "normal", "all", "none"])
def test_the_gradient_of_the_posterior_is_that_of_its_density(words, kind):
    priors = {
        "functions": lambda p: float(p["mu"] ** 2 / 0.01 + p["ks"]),
        "normal": {"mu": stats.norm(0.15, 0.02), "ks": stats.norm(40, 10)},
        "all": {"mu": stats.lognorm(0.3, scale=0.15), "ks": stats.gumbel_r(40, 10)},
        "none": None,
    }
    objective = as_objective(monod, {"mu": 0.1, "ks": 30.0}, jac=slopes_of_monod)
    infinite = np.full(2, np.inf)
    weights = {"var0": None, "wvar0": None, "n0": None} | words
    target = Target(
        objective, -infinite, infinite, as_prior(priors[kind], objective.parameters),
        variances(objective, *weights.values()),
    )  # fmt: skip
    theta = np.array([0.13, 45.0])
    point, gradient = target.evaluate_with_gradient(theta)
    plain = target.evaluate(theta)
    assert point.log_posterior == pytest.approx(plain.log_posterior, rel=1e-12)
    slope = central_differences(lambda q: np.array([target.evaluate(q).log_posterior]), theta, np.array([1e-6, 1e-4]))[
        0
    ]
    assert gradient == pytest.approx(slope, rel=1e-6)


def test_the_transformation_has_its_own_slopes():
    inf = np.inf
    of = Unbounded(np.array([0.0, -inf, -1.0, -inf]), np.array([inf, 2.0, 3.0, inf]))
    u = np.array([0.3, -0.8, 1.7, 5.0])
    theta, (slope, logs, of_logs) = of.forward(u), of.slopes(u)
    assert of.inverse(theta) == pytest.approx(u, abs=1e-12)
    steps = np.full(4, 1e-5)
    assert np.diag(slope) == pytest.approx(central_differences(of.forward, u, steps), abs=1e-9)
    assert logs == pytest.approx(np.log(np.abs(slope)).sum())
    differences = central_differences(lambda q: np.array([of.slopes(q)[1]]), u, steps)[0]
    assert of_logs == pytest.approx(differences, abs=1e-9)
    assert (of.forward(np.full(4, 1e4)) <= np.array([inf, 2, 3, inf])).all()


def test_the_last_window_of_burn_in_is_the_longest():
    for burnin in (20, 60, 149, 150, 300, 1000, 5000):
        ends = windows(burnin)
        assert ends[-1] < burnin
        sizes = np.diff(ends)
        assert 0 < sizes[-1] == sizes.max()


# --- costs of models


@pytest.fixture(scope="module")
def decay():
    model = fme.OdeModel("dA/dt = -k * A", state={"A": "A0"}, times=np.linspace(0, 5, 11), parms={"k": 0.5, "A0": 10})
    rng = np.random.default_rng(2)
    t = np.arange(0, 5.5, 0.5)
    data = pd.DataFrame({"time": t, "A": 10 * np.exp(-0.5 * t) + 0.3 * rng.standard_normal(t.size)})
    return model, data


def test_a_scored_cost_and_a_sum_of_squares_give_the_posterior_of_metropolis(decay):
    model, data = decay
    noisy = fme.SimulationCost(model, data, measurement_noise={"A": "estimate"})
    squares = fme.SimulationCost(model, data)
    for cost in (noisy, squares):
        fit = fme.modFit(cost, lower=0)
        words = {} if cost is noisy else {"wvar0": 1.0}
        by_nuts = fme.modMCMC(cost, fit, niter=1000, burninlength=300, chains=2, **words, **NUTS)
        by_dram = fme.modMCMC(cost, fit, niter=12_000, burninlength=2000, updatecov=100, seed=2, **words)
        spread = by_dram.pars.std()
        assert np.all(np.abs(by_nuts.pars.mean() - by_dram.pars.mean()) < 0.12 * spread)
        assert np.allclose(by_nuts.pars.std() / spread, 1, atol=0.15)
        assert by_nuts.diagnostics()["ess_bulk"].min() > 400
        if words:
            assert by_nuts.sig.mean().iloc[0] == pytest.approx(by_dram.sig.mean().iloc[0], rel=0.15)


def test_runs_that_fail_are_density_zero_and_counted():
    def f(p):
        if p[0] > 1:
            raise fme.errors.SimulationError("beyond the range of the model")
        return float(p[0] ** 2)

    chain = fme.modMCMC(f, [0.0], jac=lambda p: 2 * p, niter=2000, burninlength=500, **NUTS)
    assert chain.failures > 0
    assert "beyond the range" in chain.message
    assert chain.pars["p1"].max() <= 1


# --- the same chain


@pytest.fixture
def words():
    f, g = normal(np.array([1.0, 2.0]), np.array([[1.0, 0.9], [0.9, 1.0]]))
    return {"f": f, "p": [0.0, 0.0], "jac": g, "niter": 400, "burninlength": 200, "chains": 2, **NUTS}


def test_workers_change_nothing(words):
    one, two = fme.modMCMC(**words), fme.modMCMC(**words, executor=2)
    assert_same(one, two)


def test_a_longer_chain_and_a_resumed_one_are_the_same(words, tmp_path):
    whole = fme.modMCMC(**words)
    part = {**words, "niter": 250}
    fme.modMCMC(**part, checkpoint=tmp_path / "chain", checkpoint_every=60)
    resumed = fme.resume_mcmc(words["f"], tmp_path / "chain", niter=400, jac=words["jac"])
    assert_same(whole, resumed)
    assert resumed.divergences == whole.divergences


def test_a_chain_with_divergences_is_saved_and_loaded(tmp_path):
    chain = fme.modMCMC(
        funnel, {"v": 0.0, "x": 1.0}, jac=slope_of_funnel, niter=1200, burninlength=300, method="nuts", seed=4
    )
    chain.save(tmp_path / "chain.json")
    again = fme.load(tmp_path / "chain.json")
    assert again.divergences == chain.divergences > 0
    pd.testing.assert_frame_equal(again.divergent, chain.divergent)


# --- what is refused


def test_a_function_without_a_gradient_is_told_what_to_give():
    with pytest.raises(ArgumentError, match=r"follows the gradient.*jac=, the gradient of -2 log L.*'dram'"):
        fme.modMCMC(lambda p: float(p[0] ** 2), [0.0], **NUTS)
    with pytest.raises(ArgumentError, match="jac=, the derivatives of the residuals"):
        fme.modMCMC(lambda p: p - 1.0, [0.0], var0=1.0, **NUTS)


def test_no_burn_in_is_warned_of():
    f, g = normal(np.zeros(1), np.eye(1))
    with pytest.warns(UserWarning, match="Give burninlength"):
        fme.modMCMC(f, [0.0], jac=g, niter=200, **NUTS)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"control": {"target_accept": 1.2}}, "target_accept"),
        ({"control": {"max_depth": 0}}, "max_depth"),
        ({"control": {"depth": 3}}, "depth"),
        ({"updatecov": 10}, "updatecov"),
        ({"jac": lambda p: np.zeros(3)}, "shape"),
        ({"jac": lambda p: np.array([np.nan])}, "No gradient can be had at the start"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_wrong_words_are_told(more, told):
    words = {"jac": lambda p: 2 * p, "niter": 50, "burninlength": 25} | more
    with pytest.raises(ArgumentError, match=told):
        fme.modMCMC(lambda p: float(p[0] ** 2), [0.0], **words, **NUTS)


def test_a_start_on_a_bound_does_not_make_trajectories_long():
    calls = []

    def f(p):
        calls.append(p)
        return float(p[0] ** 2 + p[1] ** 2)  # along the third it is flat, as what data do not identify

    def slope(p):
        return np.array([2 * p[0], 2 * p[1], 0.0])

    chain = fme.modMCMC(
        f, [0.5, -0.5, 5.0], jac=slope, lower=[-9.0, -9.0, -5.0], upper=[9.0, 9.0, 5.0], jump=np.diag([0.5, 0.5, 25.0]),
        niter=600, burninlength=300, **NUTS,
    )  # fmt: skip
    assert len(calls) < 600 * 16
    flat = chain.pars.iloc[:, 2]
    assert abs(flat.mean()) < 1.5
    assert flat.std() == pytest.approx(10 / np.sqrt(12), rel=0.2)


@pytest.mark.parametrize("likelihood", [None, "estimate", "filter"])
def test_value_and_slopes_of_one_run_are_those_of_two(likelihood):
    model = fme.OdeModel("dA/dt = -k*A", state={"A": "A0"}, times=range(8), parms={"k": 0.4, "A0": 10.0})
    data = {"time": [1, 2, 4, 6], "A": [6.5, 4.6, 2.0, 1.0]}
    if likelihood == "filter":
        cost = fme.FimlofCost(model, data, process_noise={}, measurement_noise={"A": 0.3})
    else:
        cost = fme.SimulationCost(model, data, measurement_noise=likelihood and {"A": likelihood})
    f = as_objective(fme.transformed(cost, {"k": "log"}))
    value, slopes = f.with_slopes(f.theta0)
    if f.is_scalar:
        assert value == pytest.approx(f.minus2loglik(f.theta0), rel=1e-5)
        np.testing.assert_allclose(slopes, -2 * f.score(f.theta0), rtol=1e-6)
    else:
        np.testing.assert_allclose(value, f.residuals(f.theta0), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(slopes, f.jacobian(f.theta0))
