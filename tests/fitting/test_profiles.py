"""profile: intervals by the likelihood ratio that equal exact root finding, and a sentence on every parameter."""

import pickle
from itertools import pairwise

import lmfit
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from scipy.optimize import brentq, minimize_scalar
from scipy.stats import chi2, f, norm, t

import fmepy as fme
from fmepy.errors import ArgumentError, InterruptedWarning, ParameterError
from fmepy.fitting import modFit, profile

X = np.arange(8.0)
Y = 1 + 2 * X + np.array([0.1, -0.2, 0.15, 0.05, -0.1, 0.2, -0.25, 0.05])


def line(p):
    return p["a"] + p["b"] * X - Y


def product(p):
    return p["a"] * p["b"] * X - Y


# ------------------------------------------------------------------------------------------------- right


@pytest.mark.parametrize("level", [0.5, 0.95, 0.999])
def test_the_profile_of_a_linear_model_is_its_f_interval(level):
    fit = modFit(line, {"a": 0.0, "b": 1.0})
    prof = profile(line, fit, level=level)
    half = np.sqrt(f.ppf(level, 1, 6)) * fit.std_error
    np.testing.assert_allclose(prof.intervals["upper"] - prof.intervals["estimate"], half, rtol=1e-6)
    np.testing.assert_allclose(prof.intervals["estimate"] - prof.intervals["lower"], half, rtol=1e-6)
    np.testing.assert_allclose(prof.standard_error, fit.std_error, rtol=1e-6)
    # the signed root of a linear model is a straight line
    rows = prof.frame.query("parameter == 'a'")
    np.testing.assert_allclose(rows["root"], (rows["value"] - fit.par["a"]) / fit.std_error["a"], rtol=1e-6, atol=1e-9)
    assert prof.verdicts.str.startswith("identifiable: ").all()
    assert prof.test == "F, 1 and 6 degrees of freedom"


def test_of_a_likelihood_and_of_a_posterior_the_ratio_is_chi_square():
    sd = 0.3

    def likelihood(p):
        return float(np.sum((line(p) / sd) ** 2))

    fit = modFit(likelihood, {"a": 0.0, "b": 1.0})
    se = sd * np.sqrt(np.diag(np.linalg.inv(np.array([[8.0, X.sum()], [X.sum(), (X**2).sum()]]))))
    prof = profile(likelihood, fit, level=0.9)
    half = np.sqrt(chi2.ppf(0.9, 1)) * se
    np.testing.assert_allclose(prof.intervals["upper"] - prof.intervals["estimate"], half, rtol=1e-5)
    assert prof.test == "chi-square, 1 degree of freedom"
    prior = {"b": norm(2, 0.1)}
    posterior = modFit(line, {"a": 0.0, "b": 1.0}, prior=prior)
    with_prior = profile(line, posterior, "b", prior=prior)
    half = norm.ppf(0.975) * posterior.std_error["b"]
    assert with_prior.intervals.loc["b", "upper"] - posterior.par["b"] == pytest.approx(half, rel=1e-6)


def bod(theta, data):
    return theta[0] * (1 - np.exp(-theta[1] * data["Time"].to_numpy())) - data["demand"].to_numpy()


def puromycin(theta, data):
    return theta[0] * data["conc"].to_numpy() / (theta[1] + data["conc"].to_numpy()) - data["rate"].to_numpy()


def lowest(residuals, data, j, value):
    """Return the sum of squares re-fitted by other means: theta_0 is linear, theta_1 a search on a line."""

    def squares(theta):
        r = residuals(theta, data)
        return float(r @ r)

    if j == 1:
        unit, offset = residuals((1.0, value), data), residuals((0.0, value), data)
        column = unit - offset
        return squares((-(column @ offset) / (column @ column), value))
    grid = np.geomspace(1e-3, 50, 400)
    at = grid[np.argmin([squares((value, k)) for k in grid])]
    options = {"xatol": 1e-12}
    found = minimize_scalar(
        lambda k: squares((value, k)), bounds=(at / 1.1, at * 1.1), method="bounded", options=options
    )
    return found.fun


@pytest.mark.parametrize(
    ("residuals", "name", "start", "brackets"),
    [
        (bod, "BOD", (20.0, 0.5), [(5, 60), (0.02, 6)]),
        (puromycin, "Puromycin", (200.0, 0.05), [(150, 300), (0.01, 0.3)]),
    ],
)
def test_ends_equal_exact_root_finding_on_the_refitted_sum_of_squares(residuals, name, start, brackets):
    data = fme.datasets.load(name)
    data = data[data["state"] == "treated"] if "state" in data else data
    fit = modFit(lambda p: residuals(p, data), start)
    prof = profile(lambda p: residuals(p, data), fit)
    rise = 1 + f.ppf(0.95, 1, fit.df_residual) / fit.df_residual
    for j, (parameter, (low, high)) in enumerate(zip(("p1", "p2"), brackets, strict=True)):

        def excess(value, j=j):
            return lowest(residuals, data, j, value) / fit.ssr - rise

        expected = [brentq(excess, low, fit.par[parameter], xtol=1e-12), brentq(excess, fit.par[parameter], high)]
        np.testing.assert_allclose(prof.intervals.loc[parameter, ["lower", "upper"]], expected, rtol=1e-6)


def test_every_place_is_the_optimum_of_the_others():
    data = fme.datasets.load("BOD")
    fit = modFit(lambda p: bod(p, data), [20.0, 0.5])
    prof = profile(lambda p: bod(p, data), fit)
    for row in prof.frame.query("parameter == 'p2'").itertuples():
        assert row.cost == pytest.approx(lowest(bod, data, 1, row.value), rel=1e-8)
    steps = np.diff(prof.frame.query("parameter == 'p1'")["root"])
    assert steps.max() < 2 * np.median(steps)  # equal steps of the signed root, about


def decay(**more):
    parms = {"k": 0.5, "N0": 2.0}
    return fme.OdeModel("d(N)/dt = -k * N", state={"N": "N0"}, times=np.linspace(0, 6, 13), parms=parms, rtol=1e-9,
                        atol=1e-10, **more)  # fmt: skip


DATA = pd.DataFrame({"time": [0.5, 1, 2, 3, 4.5, 6], "N": [1.62, 1.16, 0.76, 0.47, 0.2, 0.12]})


def test_transformed_parameters_have_the_same_interval():
    cost = fme.SimulationCost(decay(), DATA)
    on_logs = fme.transformed(cost, "log")
    plain, logs = profile(cost, modFit(cost)), profile(on_logs, modFit(on_logs))
    ends = ["estimate", "lower", "upper"]
    np.testing.assert_allclose(np.exp(logs.intervals[ends]), plain.intervals[ends], rtol=1e-6)
    assert plain.failures.empty


def test_a_filter_has_profiles_by_its_exact_score():
    model = fme.DifferenceModel("next(level) = level", state={"level": 1000.0}, times=np.arange(1871, 1971), parms={})
    nile = fme.datasets.load("Nile")
    nile.columns = ["time", "level"]
    cost = fme.FimlofCost(model, nile, process_noise={"level": "estimate"}, measurement_noise={"level": "estimate"},
                          initial="diffuse")  # fmt: skip
    fit = modFit(cost)
    prof = profile(cost, fit)
    for name in prof.intervals.index:
        low, high = prof.intervals.loc[name, ["lower", "upper"]]
        for end in (low, high):
            (other,) = [n for n in fit.par.index if n != name]
            best = minimize_scalar(lambda s, end=end, other=other, name=name: cost({name: end, other: s}),
                                   bounds=(1, 400), method="bounded", options={"xatol": 1e-9})  # fmt: skip
            assert best.fun - fit.minus2loglik == pytest.approx(chi2.ppf(0.95, 1), rel=1e-5)


def test_noise_that_is_estimated_has_the_interval_of_its_closed_likelihood():
    """With b fitted the likelihood of sd is n log sd^2 + S / sd^2, S the sum of squares at its lowest."""
    cost = fme.SimulationCost(decay(), DATA, measurement_noise={"N": "estimate"})
    fit = modFit(cost)
    prof = profile(cost, fit, "sd_v_N")
    n, S = len(DATA), modFit(fme.SimulationCost(decay(), DATA)).ssr
    rise = lambda sd: n * np.log(sd**2 * n / S) + S / sd**2 - n - chi2.ppf(0.95, 1)  # noqa: E731
    best = np.sqrt(S / n)
    expected = [brentq(rise, 0.1 * best, best, xtol=1e-14), brentq(rise, best, 10 * best, xtol=1e-14)]
    np.testing.assert_allclose(prof.intervals.loc["sd_v_N", ["lower", "upper"]], expected, rtol=1e-6)
    assert prof.test == "chi-square, 1 degree of freedom"
    prior = {"N0": norm(fit.par["N0"], 0.1 * fit.std_error["N0"])}
    posterior = modFit(cost, prior=prior)
    informed = profile(cost, posterior, "N0", num=5, prior=prior)
    assert informed.standard_error["N0"] == pytest.approx(posterior.std_error["N0"], rel=0.02), "the prior bends, too"


# ------------------------------------------------------------------------------------------------- verdicts


def test_a_structural_redundancy_is_flat_and_says_what_follows():
    fit = modFit(product, {"a": 1.0, "b": 1.5})
    prof = profile(product, fit)
    assert prof.verdicts.str.startswith("flat: ").all()
    assert "'b' changes too" in prof.verdicts["a"]
    assert np.isinf(prof.intervals[["lower", "upper"]].to_numpy()).all()
    assert np.isinf(prof.standard_error).all()


def test_a_redundancy_that_only_bounds_end_is_flat_too():
    fit = modFit(product, {"a": 1.0, "b": 1.5}, lower=0.0, upper=50.0)
    prof = profile(product, fit)
    assert prof.verdicts.str.startswith("flat: ").all()
    assert "where the bound of 'b' ends it" in prof.verdicts["a"]
    assert prof.frame["value"].between(0, 50).all()
    assert profile(product, fit, lower={"b": 0.0}).verdicts.str.startswith("flat: ").all()


def test_a_bound_below_the_threshold_is_the_end():
    fit = modFit(line, {"a": 1.0, "b": 1.0}, lower={"a": 0.9})
    prof = profile(line, fit)
    assert prof.verdicts["a"].startswith("at a bound: ")
    assert prof.intervals.loc["a", "lower"] == 0.9
    assert prof.intervals.loc["a", "upper"] > fit.par["a"]
    assert prof.frame["a"].min() == 0.9
    held = modFit(line, {"a": 1.5, "b": 1.0}, lower={"a": 1.3})  # the optimum itself lies on it
    assert held.at_bound == ("a",)
    assert profile(line, held, "a").verdicts["a"].startswith("at a bound: ")


def test_a_saturated_curve_is_bounded_on_one_side_only():
    """All readings lie on the plateau: the rate may be as large as it likes, but not small."""
    t = np.array([5.0, 6, 7, 8])
    y = np.array([1.01, 0.99, 1.02, 0.98])
    residuals = lambda p: p["A"] * (1 - np.exp(-np.exp(p["logk"]) * t)) - y  # noqa: E731
    fit = modFit(residuals, {"A": 1.0, "logk": 1.0})
    prof = profile(residuals, fit)
    assert prof.verdicts["logk"].startswith("one-sided: ")
    assert np.isfinite(prof.intervals.loc["logk", "lower"])
    assert prof.intervals.loc["logk", "upper"] == np.inf
    assert prof.verdicts["A"].startswith("identifiable: ")


def test_a_better_optimum_begins_all_profiles_anew():
    two = lambda p: 3 * (p["a"] ** 2 - 1) ** 2 + 0.5 * p["a"] + (p["b"] - p["a"]) ** 2  # noqa: E731
    fit = modFit(two, {"a": 1.2, "b": 1.0})
    assert fit.par["a"] > 0
    prof = profile(two, fit)
    assert prof.verdicts["a"].startswith("better optimum: ")
    assert "identifiable" in prof.verdicts["a"]
    assert prof.par["a"] == pytest.approx(-1.02, abs=0.01)
    assert prof.cost < fit.minus2loglik
    assert (prof.frame["ratio"] >= 0).all()
    assert prof.frame.groupby("parameter")["cost"].min().to_numpy() == pytest.approx(prof.cost)


def test_failed_refits_are_kept_and_told():
    def brittle(p):
        if p["a"] > 1.1:
            raise ValueError("no steady state")
        return line(p)

    fit = modFit(line, {"a": 0.0, "b": 1.0})
    prof = profile(brittle, fit)
    assert prof.verdicts["a"].startswith("one-sided: ")
    assert "no steady state" in prof.verdicts["a"]
    assert len(prof.failures)
    assert "re-fits failed" in prof.message


def test_a_plateau_on_the_way_ends_no_interval_and_no_word_of_control_is_said():
    """Chick 1 of R's ChickWeight still grows like an exponential: Asym and xmid of its logistic have no upper end."""
    t = np.r_[0:21:2, 21]
    weight = np.array([42, 51, 59, 64, 76, 93, 106, 125, 149, 171, 199, 205])

    def logistic(p):
        return p["Asym"] / (1 + np.exp((p["xmid"] - t) / p["scal"])) - weight

    fit = modFit(logistic, {"Asym": 500, "xmid": 25, "scal": 10})
    assert fit.par.tolist() == pytest.approx([937.030, 35.22296, 11.405209], rel=1e-4)  # R's nls(SSlogis)
    assert fit.std_error.tolist() == pytest.approx([465.868, 8.31203, 0.905246], rel=1e-4)
    prof = profile(logistic, fit, ["xmid"])
    assert prof.intervals.loc["xmid", "upper"] == np.inf
    assert prof.verdicts["xmid"].startswith("one-sided: ")
    assert "control" not in prof.verdicts["xmid"] + prof.message


# ------------------------------------------------------------------------------------------------- at the door


@pytest.mark.parametrize(
    ("words", "error", "told"),
    [
        ({"which": "c"}, ParameterError, "no parameter 'c'"),
        ({"which": []}, ParameterError, "empty"),
        ({"level": 95}, ArgumentError, "between 0 and 1"),
        ({"level": 1.0}, ArgumentError, "between 0 and 1"),
        ({"num": 2}, ArgumentError, "num"),
        ({"method": "Mark"}, ArgumentError, "Marq"),
        ({"lower": {"a": 1.5}}, ParameterError, "outside its bounds"),
        ({"prior": {"a": norm(0, 1)}}, ArgumentError, "no prior"),
    ],
)
def test_misuse_is_told(words, error, told):
    with pytest.raises(error, match=told):
        profile(line, modFit(line, {"a": 0.0, "b": 1.0}), **words)


def test_a_parameter_that_was_not_fitted_is_told_apart_from_an_unknown_one():
    cost = fme.SimulationCost(decay(), DATA)
    fit = modFit(cost, ["k"])
    with pytest.raises(ParameterError, match=r"'N0' was not fitted"):
        profile(cost, fit, "N0")
    q = lmfit.Parameters()
    q.add("k", value=0.5)
    q.add("N0", value=2.0, vary=False)
    fixed = modFit(cost, q)
    with pytest.raises(ParameterError, match=r"'N0' was not fitted"):
        profile(cost, fixed, "N0")
    np.testing.assert_allclose(
        profile(cost, fixed).intervals, profile(cost.replace(model=decay().replace(parms={"N0": 2.0})), fit).intervals,
        rtol=1e-6,
    )  # fmt: skip


def test_a_fit_of_something_else_is_refused():
    fit = modFit(line, {"a": 0.0, "b": 1.0})
    with pytest.raises(ArgumentError, match="not what was fitted"):
        profile(lambda p: 2 * line(p), fit)
    with pytest.raises(ArgumentError, match="one number"):
        profile(lambda p: float(np.sum(line(p) ** 2)), fit)
    with pytest.raises(ArgumentError, match="result of modFit"):
        profile(line, fit.par)
    with pytest.raises(ArgumentError, match="needs it again"):
        profile(line, modFit(line, {"a": 0.0, "b": 1.0}, prior={"a": norm(0, 1)}))
    exact = lambda p: np.array([p["a"] - 1.0, p["b"] - 2.0])  # noqa: E731
    with pytest.raises(ArgumentError, match="no residual variance"):
        profile(exact, modFit(exact, {"a": 0.0, "b": 1.0}))


def test_a_fit_that_had_not_converged_is_told_and_mended():
    fit = modFit(line, {"a": 0.0, "b": 1.0}, method="Nelder-Mead", control={"maxiter": 5})
    assert not fit.converged
    prof = profile(line, fit)
    assert "had not reached its optimum" in prof.message
    assert prof.par["a"] == pytest.approx(modFit(line, {"a": 0.0, "b": 1.0}).par["a"], rel=1e-6)


# ------------------------------------------------------------------------------------------------- many at once


def test_the_numbers_do_not_depend_on_the_executor_and_go_on_from_a_checkpoint(tmp_path):
    cost = fme.SimulationCost(decay(), DATA)
    fit = modFit(cost)
    from concurrent.futures import ThreadPoolExecutor

    here = profile(cost, fit, checkpoint=tmp_path / "kept")
    with ThreadPoolExecutor(3) as threads:
        there = profile(cost, fit, executor=threads)
    again = profile(cost, fit, checkpoint=tmp_path / "kept")
    for other in (there, again):
        pd.testing.assert_frame_equal(here.frame, other.frame, check_exact=True)
        pd.testing.assert_frame_equal(here.intervals, other.intervals, check_exact=True)
        assert here.verdicts.equals(other.verdicts)
    with pytest.raises(ArgumentError, match="another question"):
        profile(cost, fit, level=0.9, checkpoint=tmp_path / "kept")
    back = pickle.loads(pickle.dumps(here))
    pd.testing.assert_frame_equal(here.frame, back.frame)


def test_ctrl_c_returns_what_is_done():
    fit = modFit(line, {"a": 0.0, "b": 1.0})
    calls = []

    def impatient(p):
        calls.append(p)
        if len(calls) == 160:
            raise KeyboardInterrupt
        return line(p)

    with pytest.warns(InterruptedWarning, match="profile was interrupted"):
        prof = profile(impatient, fit)
    assert prof.interrupted
    assert prof.verdicts["b"].startswith("unfinished")
    assert len(prof.frame) > 5
    assert "failed" not in prof.message


# ------------------------------------------------------------------------------------------------- pictures


def test_a_picture_has_a_panel_a_parameter_and_its_paths():
    fit = modFit(line, {"a": 0.0, "b": 1.0})
    prof = profile(line, fit)
    panels = prof.plot()
    assert [ax.get_xlabel() for ax in panels] == ["a", "b"]
    labels = panels[0].get_legend_handles_labels()[1]
    assert labels == ["95 % threshold", "quadratic approximation", "profile", "estimate", "interval"]
    (one,) = prof.plot("b", paths=True)
    assert one.get_ylabel() == "relative to the estimate"
    assert one.get_legend_handles_labels()[1] == ["a"]
    plt.close("all")


def test_numbers_below_the_panels_keep_apart():
    def small(p):
        return line({"a": 3600 * p["a"], "b": 10 * p["b"]})

    panels = profile(small, modFit(small, {"a": 1e-4, "b": 0.1})).plot()
    for ax in panels:
        ax.figure.draw_without_rendering()
        boxes = [label.get_window_extent() for label in ax.get_xticklabels() if label.get_text()]
        within = [b for b in boxes if b.x0 >= ax.bbox.x0 - 40 and b.x1 <= ax.bbox.x1 + 40]
        assert all(left.x1 < right.x0 for left, right in pairwise(within))
    plt.close("all")


def test_which_must_be_names():
    fit = fme.modFit(lambda p: [p["a"] - 1, p["a"] - 2.0], {"a": 0.0})
    with pytest.raises(ArgumentError, match="a name or a list of names; got True"):
        fme.profile(lambda p: [p["a"] - 1, p["a"] - 2.0], fit, True)


@pytest.mark.parametrize("c", [2.0519, 2.0692, 2.5536, 2.6])
def test_a_first_step_too_far_is_halved_whatever_rounding_makes_of_its_place(c):
    prior = {"a": t(5, c, 0.3)}  # not normal: nothing is known of the curvature, and the first step is a guess

    def residuals(p):
        return np.array([20 * (p["a"] - c), 10 * (p["b"] - 1), 5 * (p["a"] - c - 0.3 * (p["b"] - 1))])

    bounds = {"lower": {"a": 0.0, "b": -np.inf}, "upper": {"a": 3.9, "b": np.inf}}
    fit = modFit(residuals, {"a": c + 0.1, "b": 0.8}, prior=prior, **bounds)
    found = profile(residuals, fit, ["a"], prior=prior, num=5, **bounds)
    lower, upper = found.intervals.loc["a", ["lower", "upper"]]
    assert upper - c == pytest.approx(c - lower, rel=1e-3)


def test_standard_errors_of_a_likelihood_are_those_of_the_fit():
    x = np.arange(1.0, 13.0)
    y = 10 * np.exp(-0.3 * x) * np.exp(0.15 * np.random.default_rng(3).standard_normal(12))
    model = fme.OdeModel("dx/dt = -k * x\nx(0) = x0", times=np.r_[0, x], parms={"k": 0.3, "x0": 10.0})
    cost = fme.SimulationCost(model, {"time": x, "x": y}, measurement_noise={"x": "s"}, parms={"s": 0.3})
    fit = modFit(cost, {"k": 0.3, "x0": 10.0, "s": 0.3})
    prof = profile(cost, fit, which=["k", "s"])
    np.testing.assert_allclose(prof.standard_error, fit.std_error[["k", "s"]], rtol=1e-12)
