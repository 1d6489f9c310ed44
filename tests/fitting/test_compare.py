"""Fits are compared by likelihood, AIC, BIC and likelihood ratios, on the same data only."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chi2

from fmepy.costs.fimlof import FimlofCost
from fmepy.errors import ArgumentError
from fmepy.fitting import modFit
from fmepy.fitting.compare import compare_fits
from fmepy.models.difference import DifferenceModel


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
