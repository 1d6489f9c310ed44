"""Functions of estimates by the delta method agree with exact answers; the sandwich holds where normality does not."""

import numpy as np
import pandas as pd
import pytest

import fmepy as fme
from fmepy.errors import ArgumentError


@pytest.fixture(scope="module")
def line():
    x = np.arange(8.0)
    y = 1 + 2 * x + np.array([0.1, -0.2, 0.05, 0.1, -0.15, 0.2, 0.0, -0.1])
    return fme.modFit(lambda p: p["a"] + p["b"] * x - y, {"a": 0.0, "b": 1.0})


def test_a_linear_function_has_its_exact_variance(line):
    table = fme.derived(line, lambda p: p["a"] + 10 * p["b"])
    c = np.array([1.0, 10.0])
    assert table["estimate"].item() == pytest.approx(line.par["a"] + 10 * line.par["b"])
    assert table["std_error"].item() ** 2 == pytest.approx(c @ line.cov_scaled.to_numpy() @ c, rel=1e-8)
    assert (table["upper"] - table["lower"]).item() == pytest.approx(2 * 1.959964 * table["std_error"].item(), rel=1e-6)


def test_a_reciprocal_has_the_relative_error_of_its_argument(line):
    table = fme.derived(line, lambda p: {"b": p["b"], "1/b": 1 / p["b"]}, level=0.5)
    assert list(table.index) == ["b", "1/b"]
    relative = table["std_error"] / table["estimate"]
    assert relative["b"] == pytest.approx(relative["1/b"], rel=1e-8)


def test_bad_levels_and_fits_without_covariance_are_refused(line):
    with pytest.raises(ArgumentError, match=r"`level=95` must lie between 0 and 1"):
        fme.derived(line, lambda p: p["a"], level=95)
    with pytest.raises(ArgumentError, match=r"`function` must be a function.*lambda p: .*got dict"):
        fme.derived(line, {"ratio": lambda p: p["a"] / p["b"]})
    with pytest.raises(ArgumentError, match=r"`function` asks for 'B'. Did you mean 'b'\? The fit has 'a', 'b'"):
        fme.derived(line, lambda p: p["B"])
    with pytest.raises(ArgumentError, match=r"`fit` must be a result of modFit.* got Series"):
        fme.derived(line.par, lambda p: p["b"])
    with pytest.raises(ArgumentError, match=r"`cov` has no rows and columns of 'b'; .* as fit\.par is"):
        fme.derived(line, lambda p: p["a"], cov=line.cov_scaled.loc[["a"], ["a"]])
    bare = fme.modFit(lambda p: p["a"] - np.arange(3.0), {"a": 1.0}, hessian=False)
    with pytest.raises(ArgumentError, match="has no covariance"):
        fme.derived(bare, lambda p: p["a"])


def heavy_tailed(seed, n=400):
    """Return a constant read with errors that are mostly small and sometimes large; the cost believes them normal."""
    rng = np.random.default_rng(seed)
    errors = rng.standard_t(3, n)
    model = fme.DifferenceModel("next(x) = x", state={"x": "level"}, times=np.arange(n + 1), parms={"level": 0.5})
    data = {"time": np.arange(1, n + 1), "x": errors}
    return errors, fme.FimlofCost(model, data, process_noise={}, measurement_noise={"x": "sd"}, parms={"sd": 1.0})


def test_the_sandwich_of_a_mean_and_a_variance_is_the_textbook_one():
    """var(sd) is (m4 - m2^2) / (4 m2 n), not m2 / (2 n), for errors that are not normal."""
    errors, cost = heavy_tailed(1)
    fit = fme.modFit(cost)
    C = fme.sandwich(cost, fit)
    e = errors - errors.mean()
    m2, m4, n = np.mean(e**2), np.mean(e**4), len(e)
    assert C.loc["level", "level"] == pytest.approx(m2 / n, rel=1e-3)
    assert C.loc["sd", "sd"] == pytest.approx((m4 - m2**2) / (4 * m2 * n), rel=1e-3)
    assert C.loc["sd", "sd"] > 3 * fit.cov_scaled.loc["sd", "sd"]


def test_without_scores_of_samples_there_is_no_sandwich(line):
    with pytest.raises(ArgumentError, match="must know the score of every sample"):
        fme.sandwich(lambda p: p, line)
    assert isinstance(line.cov_scaled, pd.DataFrame)


def test_a_cost_that_is_not_the_fitted_one_has_no_sandwich():
    fit = fme.modFit(heavy_tailed(1, 40)[1])
    model = fme.DifferenceModel("next(q) = b * q", state={"q": 1.0}, parms={"b": 0.5}, times=[0, 2])
    data = {"time": [1, 2], "q": [0.5, 0.2]}
    with pytest.raises(ArgumentError, match="score of every sample, as a FimlofCost does; got SimulationCost"):
        fme.sandwich(fme.SimulationCost(model, data), fit)
    with pytest.raises(ArgumentError, match="there is no parameter"):
        fme.sandwich(fme.FimlofCost(model, data, process_noise={"q": 0.1}, measurement_noise={"q": 0.1}), fit)
