"""Priors with an end: the support of a prior is a bound of the fit, whatever the cost and the method."""

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize_scalar

import fmepy as fme
from fmepy.errors import ArgumentError, ParameterError
from fmepy.fitting import modFit
from fmepy.fitting.bends import bends_of
from fmepy.parameters.named import as_parameters
from fmepy.parameters.priors import Density, as_prior
from fmepy.workflow.file.prepared import ScaledPrior

T = np.arange(0.5, 10.5, 0.5)
SD = "sd_v_y"


def decay(t, y, *, k):
    return -k * y


@pytest.fixture(scope="module")
def scored():
    rng = np.random.default_rng(1)
    model = fme.OdeModel(decay, state={"y": 2.0}, parms={"k": 0.3}, times=np.arange(0, 11.0, 0.5))
    data = {"time": T, "y": 2 * np.exp(-0.3 * T) + 0.02 * rng.standard_normal(T.size)}
    return fme.SimulationCost(model, data, measurement_noise={"y": "estimate"})


@pytest.fixture(scope="module")
def filtered():
    rng = np.random.default_rng(3)
    x, seen = 0.0, []
    for _ in range(120):
        x = 0.7 * x + rng.standard_normal()
        seen.append(x + 0.7 * rng.standard_normal())
    model = fme.DifferenceModel(lambda n, x, *, a: a * x, state={"x": 0.0}, parms={"a": 0.5}, times=np.arange(121))
    return fme.FimlofCost(model, {"time": np.arange(1, 121), "x": seen}, process_noise={"x": "q"},
                          measurement_noise={"x": "r"}, parms={"q": 1.0, "r": 1.0}, initial_sd={"x": 1.0})  # fmt: skip


@pytest.mark.parametrize("end", [(0.01, 0.25), (0.05, 0.25), (0.001, 0.008)])
def test_under_a_uniform_prior_a_scored_cost_has_the_fit_between_its_ends(scored, end):
    low, high = end
    start = {"k": 0.3, SD: 0.9 * high}
    plain = modFit(scored, start, lower={SD: low}, upper={SD: high})
    fit = modFit(scored, start, prior={SD: stats.uniform(low, high - low)})
    assert fit.converged
    assert fit.at_bound == plain.at_bound
    np.testing.assert_allclose(fit.par, plain.par, rtol=2e-4)
    np.testing.assert_allclose(fit.std_error, plain.std_error, rtol=2e-3)


@pytest.mark.parametrize("start", [0.3, 0.95])
def test_under_uniform_priors_a_filter_has_the_fit_between_their_ends(filtered, start):
    box = {"a": (0.1, 0.95), "q": (0.01, 3.0), "r": (0.8, 3.0)}
    p = {"a": start, "q": 0.5, "r": 2.5}
    ends = {"lower": {n: a for n, (a, _) in box.items()}, "upper": {n: b for n, (_, b) in box.items()}}
    plain = modFit(filtered, p, **ends)
    fit = modFit(filtered, p, prior={n: stats.uniform(a, b - a) for n, (a, b) in box.items()})
    assert fit.converged
    assert fit.at_bound == plain.at_bound
    np.testing.assert_allclose(fit.par, plain.par, rtol=1e-3)
    np.testing.assert_allclose(fit.std_error, plain.std_error, rtol=1e-2)


BOUNDED = {
    "uniform": stats.uniform(0.02, 0.25),
    "beta": stats.beta(2, 5),
    "gamma": stats.gamma(2, scale=0.05),
    "a gamma without end at zero": stats.gamma(0.5, scale=0.05),
    "expon": stats.expon(scale=0.05),
    "truncnorm": stats.truncnorm(-1, 3, loc=0.05, scale=0.02),
    "loguniform": stats.loguniform(1e-3, 1),
    "lognorm": stats.lognorm(0.5, scale=0.05),
    "triang": stats.triang(0.3, loc=0.005, scale=0.1),
    "halfcauchy": stats.halfcauchy(scale=0.01),
}


@pytest.mark.parametrize("name", BOUNDED)
@pytest.mark.parametrize("quantile", [0.03, 0.5, 0.97])
def test_of_a_scored_cost_the_posterior_is_highest_where_a_search_along_the_sd_finds_it(scored, name, quantile):
    prior = BOUNDED[name]
    fit = modFit(scored, {"k": 0.3, SD: float(prior.ppf(quantile))}, prior={SD: prior})
    bound = scored.bind(["k", SD])

    def posterior(sd):
        return bound.minus2loglik(np.array([fit.par["k"], sd])) - 2 * prior.logpdf(sd)

    low, high = prior.support()
    around = max(low, fit.par[SD] / 1.5), min(high, fit.par[SD] * 1.5)
    best = minimize_scalar(posterior, bounds=around, method="bounded", options={"xatol": 1e-9}).x
    assert fit.converged, fit.message
    assert fit.par[SD] == pytest.approx(best, rel=1e-3)


@pytest.mark.parametrize(
    "method", [None, "Port", "Newton", "L-BFGS-B", "CG", "Nelder-Mead", "bobyqa", "SANN", "Pseudo"]
)
def test_of_a_sum_of_squares_every_method_stays_in_the_support_and_ends_on_its_end(method):
    seen = []

    def f(p):
        seen.append(p["a"])
        return np.array([p["a"] - 0.2, 2 * p["a"] - 0.3])

    fit = modFit(f, {"a": 0.45}, prior={"a": stats.uniform(0.31, 0.2)}, method=method, seed=1)
    assert min(seen) >= 0.31
    assert max(seen) <= 0.51
    assert fit.par["a"] == pytest.approx(0.31, abs=1e-6)
    assert fit.lower["a"] == 0.31


def test_bounds_and_support_hold_together(scored):
    fit = modFit(scored, {"k": 0.4, SD: 0.1}, prior={"k": stats.uniform(0.1, 0.4)}, lower={"k": 0.35})
    assert fit.par["k"] == 0.35
    assert (fit.lower["k"], fit.upper["k"]) == (0.35, 0.5)


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (
            {"p": {"k": 0.7}, "prior": {"k": stats.uniform(0.1, 0.4)}},
            r"start of 'k' is 0.7, outside the support .*0.5\]",
        ),
        ({"p": {"k": 0.3}, "prior": {"k": stats.uniform(0.1, 0.4)}, "upper": 0.05, "lower": -1}, "outside its bounds"),
        ({"p": {"k": 0.1}, "prior": {"k": stats.uniform(0.1, 0.4)}, "upper": 0.1}, "leave nothing to fit"),
        ({"p": {"k": 0.1}, "prior": {"k": stats.uniform(0.1, -1)}}, "has no support"),
        ({"p": {"k": 0.1}, "prior": {"k": stats.norm([0, 1], 1)}}, "distribution of one number"),
        ({"p": {"k": 0.1}, "prior": {"k": stats.multivariate_normal([0, 1])}}, "function that returns -2 log density"),
        ({"p": {"k": 0.0}, "prior": {"k": stats.gamma(2)}}, "outside the support"),
    ],
)
def test_a_start_outside_the_support_is_refused_at_the_door(words, match):
    with pytest.raises(ParameterError, match=match):
        modFit(lambda p: np.array([p["k"] - 0.3, 1.0]), **words)


def test_an_end_without_a_density_is_left_by_what_does_not_count():
    prior = as_prior({"a": stats.gamma(2), "b": stats.beta(2, 2), "c": stats.uniform(0.1, 0.7)},
                     as_parameters({"a": 1.0, "b": 0.5, "c": 0.2}))  # fmt: skip
    lower, upper = prior.narrowed(np.full(3, -np.inf), np.full(3, np.inf), ["a", "b", "c"])
    assert 0 < lower[0] < 1e-11
    assert 0 < lower[1] < 1e-11
    assert 0 < 1 - upper[1] < 1e-11
    assert upper[2] == pytest.approx(0.8, abs=1e-11)
    for d, low, high in zip(prior.parts, lower, upper, strict=True):
        assert np.isfinite(d.with_slope(low)[0])
        assert not np.isfinite(high) or np.isfinite(d.with_slope(high)[0])


def test_a_function_as_a_prior_may_be_without_density_somewhere(scored):
    def prior(p):
        return 0.0 if 0.01 < p[SD] < 0.26 else np.inf

    plain = modFit(scored, {"k": 0.3, SD: 0.1})
    for start in (0.0101, 0.1, 0.2599):
        fit = modFit(scored, {"k": 0.3, SD: start}, prior=prior)
        np.testing.assert_allclose(fit.par, plain.par, rtol=1e-3)


def test_the_profile_of_a_posterior_ends_where_its_support_does(scored):
    prior = {SD: stats.uniform(0.01, 0.25)}
    fit = modFit(scored, {"k": 0.3, SD: 0.1}, prior=prior)
    interval = fme.profile(scored, fit, SD, prior=prior).intervals
    assert not (interval[["lower", "upper"]].to_numpy() < 0.01).any()


@pytest.mark.parametrize("scale", ["log", "logit"])
def test_the_support_of_a_prior_on_another_scale_is_that_of_its_natural_value(scale):
    forth = {"log": np.log, "logit": lambda p: np.log(p / (1 - p))}[scale]
    low, high = ScaledPrior(stats.uniform(0.01, 0.25), scale, False).support()
    assert (low, high) == pytest.approx((forth(0.01), forth(0.26)))
    assert ScaledPrior(stats.uniform(), scale, False).support() == (-np.inf, 0.0 if scale == "log" else np.inf)


@pytest.mark.parametrize(
    ("prior", "told"),
    [
        (lambda p: None, "`prior` returned None; -2 log density is needed, one number"),
        (lambda p: "a", "`prior` returned 'a'"),
        (lambda p: np.ones(2), "`prior` returned array"),
        (lambda p: p["K"], "`prior` asks for 'K'; there are 'k'"),
    ],
)
def test_a_prior_that_gives_no_number_is_told(prior, told):
    model = fme.OdeModel("d(c)/dt = -k*c", state={"c": 10.0}, times=[0, 1, 2], parms={"k": 0.3})
    data = {"time": [1, 2], "c": [7.2, 5.0]}
    cost = fme.SimulationCost(model, data, measurement_noise={"c": 0.1})
    for verb in (modFit, fme.modMCMC):
        with pytest.raises(ArgumentError, match=told):
            verb(cost, {"k": 0.3}, prior=prior)


def test_a_run_names_what_belongs_to_the_model():
    model = fme.OdeModel("d(c)/dt = -k*c", state={"c": 10.0}, times=[0, 1, 2], parms={"k": 0.3})
    with pytest.raises(ArgumentError, match=r"run of a model has no argument 'state'.*`model.replace\(state=...\)`"):
        model(state={"c": 2.0})


X = np.linspace(0, 1, 20)
LINE = 1 + 2 * X + 0.3 * np.random.default_rng(0).standard_normal(20)
ALONE = 0.3 / np.sqrt(20)  # the error of a, with b known
FREE = 0.3 / np.sqrt(np.sum((X - X.mean()) ** 2))  # that of b


def line(kind):
    model = fme.OdeModel("d(c)/dt = b + 0 * c", state={"c": "a"}, times=np.linspace(0, 1, 21), parms={"a": 1, "b": 1})
    cost = fme.SimulationCost(model, {"time": X, "c": LINE}, measurement_noise={"c": 0.3})
    return {
        "cost": cost, "residuals": lambda p: (p["a"] + p["b"] * X - LINE) / 0.3,
        "number": lambda p: float(np.sum(((p["a"] + p["b"] * X - LINE) / 0.3) ** 2)),
    }[kind]  # fmt: skip


KINKED = {
    "laplace": stats.laplace(2, 0.05),
    "loglaplace": stats.loglaplace(100, scale=1.5),
    "laplace_asymmetric": stats.laplace_asymmetric(1.5, loc=2, scale=0.02),
}


@pytest.mark.parametrize("kind", ["residuals", "number", "cost"])
@pytest.mark.parametrize("method", [None, "Nelder-Mead", "L-BFGS-B"])
@pytest.mark.parametrize("name", KINKED)
def test_at_the_kink_of_its_prior_a_parameter_has_no_standard_error(kind, method, name):
    fit = modFit(line(kind), {"a": 1.0, "b": 1.0}, prior={"b": KINKED[name]}, lower={"b": 0.1}, method=method)
    assert fit.converged, fit.message
    assert (fit.at_kink, fit.at_bound) == (("b",), ())
    assert fit.par["b"] == (1.5 if name == "loglaplace" else 2)
    assert fit.par["a"] == pytest.approx((LINE - fit.par["b"] * X).mean(), abs=1e-5)
    assert np.isnan(fit.std_error["b"])
    assert fit.std_error["a"] == pytest.approx(ALONE, rel=1e-5)
    assert "At the kink of its prior: b, without standard error" in fit.message
    assert "NA: b at the kink of its prior" in str(fit.summary())


@pytest.mark.parametrize("kind", ["residuals", "number", "cost"])
@pytest.mark.parametrize("centre", [0.0, 1.832, 4.0])
def test_beside_the_kink_of_a_laplace_prior_the_standard_error_is_that_of_the_likelihood(kind, centre):
    fit = modFit(line(kind), {"a": 1.0, "b": 1.0}, prior={"b": stats.laplace(centre, 500.0)})
    assert fit.converged, fit.message
    best = np.polyfit(X, LINE, 1)[0] + np.sign(centre - 1.9) * FREE**2 / 500
    if centre == 1.832:  # beside the estimate, by far less than a standard error
        fit = modFit(line(kind), {"a": 1.0, "b": 1.0}, prior={"b": stats.laplace(fit.par["b"] + 1e-3, 500.0)})
    assert fit.par["b"] == pytest.approx(best, abs=2e-3)
    assert fit.at_kink == ()
    assert fit.std_error["b"] == pytest.approx(FREE, rel=1e-5)


@pytest.mark.parametrize("kind", ["residuals", "number", "cost"])
def test_beside_a_kink_the_bend_of_the_prior_counts(kind):
    """Of a log-Laplace density above its kink -2 log p = 2 (c + 1) log b, whose bend is -2 (c + 1) / b^2."""
    fit = modFit(line(kind), {"a": 1.0, "b": 1.0}, prior={"b": stats.loglaplace(5, scale=0.5)}, lower={"b": 0.1})
    assert fit.at_kink == ()
    bend = -12 / fit.par["b"] ** 2
    assert fit.std_error["b"] == pytest.approx((2 / (2 / FREE**2 + bend)) ** 0.5, rel=1e-4)


def test_at_a_kink_there_is_no_bend():
    place = Density.of(0, "b", stats.laplace(2, 0.1))
    np.testing.assert_array_equal(bends_of((place,), np.array([2.0]), np.ones(1)), [0.0])


def test_a_parameter_alone_and_a_bound_at_the_kink_are_held_too():
    f = line("residuals")
    for prior, lower in ((stats.laplace(2, 1e-3), -np.inf), (stats.laplace(0, 1e-4), 0.0)):
        fit = modFit(lambda p: f({"a": 1.0, **p}), {"b": 1.0}, prior={"b": prior}, lower=lower)
        assert fit.converged
        assert fit.par["b"] == prior.mean()
        assert fit.at_kink == ("b",)
        assert np.isnan(fit.std_error["b"])


@pytest.mark.parametrize("kind", ["number", "cost"])
def test_what_follows_from_a_fit_at_a_kink_holds_for_it_fixed_there(kind):
    cost, prior = line(kind), {"b": stats.laplace(2, 0.1)}
    fit = modFit(cost, {"a": 1.0, "b": 1.0}, prior=prior)
    found = fme.profile(cost, fit, prior=prior).intervals
    assert np.isfinite(found[["lower", "upper"]].to_numpy()).all()
    assert found.loc["b", "lower"] < 2 < found.loc["b", "upper"]
    if kind == "cost":
        band = fme.predict(cost.model, fit)
        assert band.frame["se"].to_numpy() == pytest.approx(ALONE, rel=1e-5)
        assert "'b' is at the kink of its prior and counts as fixed there" in str(band)


def test_priors_on_another_scale_have_their_kink_there():
    assert ScaledPrior(stats.laplace(2, 0.1), "log", False).kink == np.log(2)
    assert np.isnan(ScaledPrior(stats.norm(2, 0.1), "log", False).kink)
