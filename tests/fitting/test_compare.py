"""Fits are compared by likelihood, AIC, BIC and likelihood ratios, on the same data only."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chi2

from fmepy.costs import SimulationCost, modCost
from fmepy.costs.mapped import transformed
from fmepy.errors import ArgumentError
from fmepy.fimlof.cost import FimlofCost
from fmepy.fitting import modFit
from fmepy.fitting.compare import compare_fits
from fmepy.models.difference import DifferenceModel
from fmepy.models.ode import OdeModel


def fit(loglik, names, nobs=50, converged=True):
    """Return what stands for a fit."""
    par = pd.Series(0.0, index=list(names))
    return SimpleNamespace(loglik=loglik, nobs=nobs, par=par, converged=converged)


def test_criteria_and_weights_are_as_defined():
    both = compare_fits({"a": fit(-10.0, "x"), "b": fit(-8.0, "yz")})
    np.testing.assert_allclose(both["AIC"], [22.0, 20.0])
    np.testing.assert_allclose(both["BIC"], [20 + np.log(50), 16 + 2 * np.log(50)])
    np.testing.assert_allclose(both["weight"], np.array([np.exp(-1), 1]) / (1 + np.exp(-1)))
    assert both.best == "b"
    assert len(both.tests) == 0  # other parameters: not nested


def test_nested_pairs_are_found_by_name_and_tested():
    tests = compare_fits({"0": fit(-10.0, "x"), "1": fit(-8.0, "xy"), "2": fit(-7.9, "xyz")}).tests
    assert list(zip(tests["small"], tests["large"], strict=True)) == [("0", "1"), ("0", "2"), ("1", "2")]
    np.testing.assert_allclose(tests["LR"], [4.0, 4.2, 0.2])
    np.testing.assert_allclose(tests["p_value"], [chi2(1).sf(4.0), chi2(2).sf(4.2), chi2(1).sf(0.2)])


def test_a_variance_tested_against_zero_has_half_the_chance():
    fits = {"without": fit(-10.0, "x"), "with": fit(-9.0, ["x", "sd_w"])}
    (plain,) = compare_fits(fits).tests["p_value"]
    (mixed,) = compare_fits(fits, boundary=1).tests["p_value"]
    assert mixed == pytest.approx(plain / 2)
    (by_pair,) = compare_fits(fits, boundary={("without", "with"): 1}).tests["p_value"]
    assert by_pair == mixed
    fits["with"] = fit(-8.0, ["x", "sd_w", "b"])
    (of_two,) = compare_fits(fits, boundary=1).tests["p_value"]
    assert of_two == pytest.approx(0.5 * chi2(1).sf(4.0) + 0.5 * chi2(2).sf(4.0))
    fits["with"] = fit(-10.0, ["x", "sd_w"])
    assert compare_fits(fits, boundary=1).tests["p_value"].tolist() == [1.0]


def test_a_large_fit_below_its_small_one_has_no_p_value():
    fits = {"small": fit(-8.0, "x"), "large": fit(-9.0, "xy", converged=False)}
    both = compare_fits(fits)
    assert np.isnan(both.tests["p_value"].iloc[0])
    assert both["converged"].tolist() == [True, False]
    assert "'large' has a smaller likelihood than 'small'" in " ".join(str(both).split())


def test_what_two_searches_leave_is_a_ratio_of_zero():
    both = compare_fits({"small": fit(-8.0, "x"), "large": fit(-8.00001, "xy")})
    assert both.tests["p_value"].tolist() == [pytest.approx(1.0, abs=1e-6)]
    assert "smaller likelihood" not in str(both)


def test_transformed_fits_are_compared_with_their_jacobian():
    both = compare_fits({"plain": fit(-10.0, "x"), "log": fit(5.0, "x")}, log_jacobian={"log": -20.0})
    assert both["loglik"].tolist() == [-10.0, -15.0]


@pytest.mark.parametrize(
    ("fits", "arguments", "words"),
    [
        ({"a": fit(1, "x")}, {}, "at least two"),
        ([fit(1, "x"), fit(2, "x")], {}, "dict"),
        ({"a": fit(1, "x", 50), "b": fit(1, "y", 49)}, {}, "'a' 50, 'b' 49"),
        ({"a": fit(1, "x"), "b": 3.0}, {}, "what modFit returns; got float"),
        ({"a": fit(1, "x"), "b": fit(-np.inf, "y")}, {}, "no finite likelihood"),
        ({"a": fit(1, "x"), "b": fit(1, "xy")}, {"nested": [("a", "c")]}, "no fit 'c'"),
        ({"a": fit(1, "x"), "b": fit(1, "xy")}, {"nested": [("b", "a")]}, "cannot be nested"),
        ({"a": fit(1, "x"), "b": fit(1, "xy")}, {"nested": ["ab"]}, "pairs"),
        ({"a": fit(1, "x"), "b": fit(1, "xy")}, {"boundary": 2}, "0 or 1"),
        ({"a": fit(1, "x"), "b": fit(1, "xy")}, {"log_jacobian": {"c": 1.0}}, "no fit 'c'"),
    ],
)
def test_what_cannot_be_compared_is_refused(fits, arguments, words):
    with pytest.raises(ArgumentError, match=words):
        compare_fits(fits, **arguments)


def test_filters_with_and_without_noise_of_the_system_are_told_apart():
    rng = np.random.default_rng(4)
    x = np.cumsum(rng.normal(size=80))
    model = DifferenceModel("next(x) = x", state={"x": "x0"}, parms={"x0": 0.0}, times=[0, 80])
    data = {"time": np.arange(1, 81), "x": x + rng.normal(size=80)}
    cost = FimlofCost(model, data, process_noise={"x": "sd_w"}, measurement_noise={"x": "sd_v"},
                      parms={"sd_w": 1.0, "sd_v": 1.0})  # fmt: skip
    still = cost.replace(process_noise={"x": 0.0})
    both = compare_fits({"still": modFit(still), "moving": modFit(cost)}, boundary=1)
    assert both.best == "moving"
    assert both.tests["p_value"].iloc[0] < 1e-6
    assert "Likelihood ratios" in repr(both)
    assert "<table" in both._repr_html_()


# --- one likelihood for one set of data, whatever the scale

T = np.arange(1.0, 9.0)
Y = 5 * np.exp(-0.3 * T) * np.exp(0.1 * np.cos(5 * T))
OBS = {"time": T, "x": Y}


def decay():
    return OdeModel("d(x)/dt = -k*x", state={"x": "x0"}, parms={"x0": 5.0, "k": 0.3}, times=np.arange(9.0))


def simulation(obs=OBS, **arguments):
    return modFit(SimulationCost(decay(), obs, **arguments))


def of_normal_errors(r):
    """Return the log-likelihood of residuals with their own variance."""
    return -0.5 * len(r) * (np.log(2 * np.pi * np.mean(np.square(r))) + 1)


def test_logarithms_and_roots_of_the_data_are_compared_in_their_units():
    fits = {"as is": simulation(), "log": simulation(transform="log"), "sqrt": simulation(transform="sqrt")}
    by_hand = {
        "as is": of_normal_errors(fits["as is"].residuals),
        "log": of_normal_errors(fits["log"].residuals) - np.log(Y).sum(),
        "sqrt": of_normal_errors(fits["sqrt"].residuals) - np.log(2 * np.sqrt(Y)).sum(),
    }
    both = compare_fits(fits)
    for name, fit in fits.items():
        assert fit.loglik == pytest.approx(by_hand[name], rel=1e-9)
        assert both.frame.loc[name, "loglik"] == fit.loglik
        assert both.frame.loc[name, "AIC"] == pytest.approx(fit.aic)
        assert both.frame.loc[name, "BIC"] == pytest.approx(fit.bic)
        assert fit.loglik - fit.log_jacobian == pytest.approx(-fit.minus2loglik / 2)
    assert both.best == "log"  # errors of the data are in proportion


def test_a_filter_without_noise_of_the_system_has_the_likelihood_of_the_simulation_on_either_scale():
    for transform in (None, "log"):
        simulated = simulation({**OBS, "sd": np.full(8, 0.2)}, transform=transform, err="sd")
        filtered = modFit(
            FimlofCost(decay(), {**OBS, "sd": np.full(8, 0.2)}, process_noise={}, err="sd", transform=transform)
        )
        assert filtered.loglik == pytest.approx(simulated.loglik, abs=1e-3)  # two solvers
        compare_fits({"simulated": simulated, "filtered": filtered, "again": simulation({**OBS, "sd": 0.2}, err="sd")})


def test_the_scale_of_a_fit_of_transformed_parameters_and_of_a_sum_is_that_of_its_data():
    one = simulation(transform="log")
    same = modFit(transformed(SimulationCost(decay(), OBS, transform="log"), "log"))
    first, rest = ({k: v[rows] for k, v in OBS.items()} for rows in (slice(None, 3), slice(3, None)))
    model = decay()
    parts = modFit(SimulationCost(model, rest, transform="log") + SimulationCost(model, first, transform="log"))
    frame = compare_fits({"one": one, "log parameters": same, "parts": parts}).frame
    assert frame["loglik"].to_numpy() == pytest.approx(one.loglik, abs=1e-6)


def without(i):
    return {k: np.delete(v, i) for k, v in OBS.items()}


def changed(key, i, value):
    return {**OBS, key: np.where(np.arange(8) == i, value, OBS[key])}


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (changed("x", 2, 9.0), "the value of 'x' at 3 is .* in 'a', and 9 in 'b'"),
        (changed("time", 7, 7.5), "an x of 'x' is 8 in 'a', and 7.5 in 'b'"),
        (changed("x", 2, np.nan), "'a' has 8 observations of 'x', and 'b' 7"),
        ({"time": np.r_[T, 1.0], "x": np.r_[Y[:7], np.nan, 4.0]}, "an x of 'x' is 2 in 'a', and 1 in 'b'"),
    ],
)
def test_fits_of_different_data_are_refused_whatever_their_number(other, words):
    for arguments in ({}, {"transform": "log"}):
        with pytest.raises(ArgumentError, match=f"not of the same data.*{words}"):
            compare_fits({"a": simulation(), "b": simulation(other, **arguments)})


def test_errors_that_only_one_fit_uses_and_other_errors_are_refused():
    with_errors, others = {**OBS, "sd": np.full(8, 0.2)}, {**OBS, "sd": np.linspace(0.1, 0.3, 8)}
    with pytest.raises(ArgumentError, match="'b' uses the errors given with 'x', and 'a' does not"):
        compare_fits({"a": simulation(), "b": simulation(with_errors, err="sd")})
    with pytest.raises(ArgumentError, match=r"the error of 'x' at 1 is 0.2 in 'a', and 0.1 in 'b'"):
        compare_fits({"a": simulation(with_errors, err="sd"), "b": simulation(others, err="sd")})
    compare_fits({"a": simulation(with_errors, err="sd"), "log": simulation(others, err="sd", transform="log")})


def test_other_variables_are_refused_by_name():
    def fit(name):
        return modFit(lambda p: modCost({"time": T, name: p["x0"] * np.exp(-p["k"] * T)}, {"time": T, name: Y}),
                      {"x0": 5.0, "k": 0.3})  # fmt: skip

    with pytest.raises(ArgumentError, match="'a' is of 'x' too, and 'b' is not"):
        compare_fits({"a": fit("x"), "b": fit("y")})
    compare_fits({"a": fit("x"), "ours": simulation()})


def test_a_jacobian_of_ones_own_is_refused_where_it_would_count_twice():
    fits = {"a": simulation(), "log": simulation(transform="log")}
    with pytest.raises(ArgumentError, match="in their own units already"):
        compare_fits(fits, log_jacobian={"log": -np.log(Y).sum()})


def test_the_square_root_of_zero_has_no_density():
    fit = simulation(changed("x", 7, 0.0), transform="sqrt")
    with pytest.raises(ArgumentError, match="square roots of data of which some are 0"):
        compare_fits({"a": simulation(changed("x", 7, 0.0)), "sqrt": fit})


def test_data_that_a_start_has_used_up_do_not_count():
    arguments = {"process_noise": {"x": 0.1}, "measurement_noise": {"x": 0.1}, "transform": "log"}
    fit = modFit(FimlofCost(decay(), OBS, initial="data", **arguments), ["k"])
    assert fit.log_jacobian == pytest.approx(-np.log(Y[1:]).sum())
    assert fit.data.x.tolist() == T[1:].tolist()


def test_weights_that_are_no_errors_do_not_change_the_likelihood_and_other_scales_are_not_nested():
    model = OdeModel("d(x)/dt = -k*x", state={"x": "x0"}, times=np.arange(0, 10.5, 0.5), parms={"k": 0.3, "x0": 5})
    rng = np.random.default_rng(1)
    data = pd.DataFrame({"time": model.times, "x": 5 * np.exp(-0.3 * model.times + 0.1 * rng.normal(size=21))})
    fits = {w: modFit(SimulationCost(model, data, weight=w)) for w in ("none", "std", "mean")}
    for weighted in ("std", "mean"):
        assert fits[weighted].loglik == pytest.approx(fits["none"].loglik, abs=1e-6)
    fits["log"] = modFit(SimulationCost(model, data, transform="log"))
    fits["k"] = modFit(SimulationCost(model, data), ["k"])
    tests = compare_fits(fits).tests
    assert set(tests["small"]) == {"k"}
    assert set(tests["large"]) == {"none", "std", "mean"}


def test_one_model_costs_as_much_whichever_way_its_error_is_estimated():
    squares, scored = simulation(), simulation(measurement_noise={"x": "estimate"})
    assert squares.error_estimated
    assert not scored.error_estimated
    assert not simulation({**OBS, "sd": 0.2}, err="sd").error_estimated
    one = modFit(SimulationCost(decay(), OBS), ["k"])
    both = compare_fits({"squares": squares, "scored": scored, "one": one})
    assert both["p"].tolist() == [3, 3, 2]
    np.testing.assert_allclose(both["AIC"].iloc[0], both["AIC"].iloc[1], rtol=1e-6)
    assert both.tests[["small", "large", "df"]].to_numpy().tolist() == [["one", "squares", 1], ["one", "scored", 1]]
    assert compare_fits({"squares": squares, "one": one})["p"].tolist() == [2, 1]


def test_fits_without_names_are_answered_by_how_to_name_them():
    fit = modFit(lambda p: p["a"] - np.arange(3.0), {"a": 1.0})
    with pytest.raises(ArgumentError, match="must be a dict of at least two fits, such as"):
        compare_fits(fit, fit)
