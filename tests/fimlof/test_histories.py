"""Histories drawn from a filtered cost: in the form of its data, with the law that its likelihood says."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chi2

import fmepy as fme
from fmepy.errors import SimulationError


def walk_cost(model=None, data=None, **options):
    model = model or fme.DifferenceModel("next(x) = a*x", state={"x": 3.0}, times=range(31), parms={"a": 0.8})
    data = data if data is not None else {"time": np.arange(1, 31), "x": np.zeros(30)}
    options = {"initial_sd": {"x": 1.0}, **options}
    return fme.FimlofCost(
        model, data, process_noise={"x": "w"}, measurement_noise={"x": "v"}, parms={"w": 1.0, "v": 0.5}, **options
    )


def squares(cost, n=40, parms=None):
    """Return the sums of squared standardised innovations of histories: chi-squared if law and filter are one."""
    found = [cost.replace(obs=cost.simulate(parms, seed=k)).filter(parms, smooth=False).sumsq for k in range(n)]
    return np.array(found)


def agrees(values, nobs):
    total = values.sum()
    return chi2.ppf([5e-4, 1 - 5e-4], nobs * len(values))[0] < total < chi2.ppf(1 - 5e-4, nobs * len(values))


def test_innovations_of_drawn_histories_are_white_and_of_unit_variance():
    cost = walk_cost()
    values = squares(cost)
    assert agrees(values, 30)
    assert values.std() == pytest.approx(np.sqrt(60), rel=0.45)
    flt = cost.replace(obs=cost.simulate(seed=3)).filter()
    assert abs(flt.residuals["standardized"].mean()) < 0.6


def test_the_covariance_of_many_histories_is_that_of_the_model():
    cost = walk_cost(data={"time": [1, 2, 5], "x": [0.0, 0.0, 0.0]})
    drawn = np.array([cost.simulate(seed=k)["x"] for k in range(500)])
    powers = np.array([0.8, 0.64, 0.8**5])
    noise = np.array(
        [[sum(0.8 ** (s - j + t - j) for j in range(1, min(s, t) + 1)) for t in (1, 2, 5)] for s in (1, 2, 5)]
    )
    expected = np.outer(powers, powers) + noise + 0.25 * np.eye(3)
    np.testing.assert_allclose(drawn.mean(axis=0), 3 * powers, atol=4 * np.sqrt(expected.max() / 500))
    np.testing.assert_allclose(np.cov(drawn.T), expected, rtol=0.25, atol=0.1)


@pytest.mark.parametrize(
    "options", [{}, {"propagation": "rk4", "dt": 0.25}, {"propagation": "rk4_moment", "dt": 0.25},
                {"propagation": "euler", "dt": 0.25}, {"propagation": "moment"},
                {"propagation": "euler", "dt": 0.25, "noise_kind": "per_step"}],
)  # fmt: skip
def test_differential_equations_are_drawn_as_they_are_filtered(options):
    model = fme.OdeModel(
        lambda t, x, u, *, a: u - a * x, state={"x": 3.0}, times=np.arange(0.0, 11.0), parms={"a": 0.5},
        events=pd.DataFrame({"var": ["x"], "time": [7.0], "value": [5.0], "method": ["add"]}),
        forcings={"u": ([0.0, 4.0, 4.5, 10.0], [0.0, 2.0, 0.0, 0.0], "constant")},
    )  # fmt: skip
    cost = walk_cost(model, {"time": np.arange(0.5, 10.5, 0.5), "x": np.zeros(20)}, **options)
    assert agrees(squares(cost, 12), 20)


def test_panels_sums_missing_entries_and_correlated_errors():
    model = fme.DifferenceModel(
        "next(x) = a*x + 1\nnext(y) = 0.5*y + 0.2*x", state={"x": 3.0, "y": 1.0}, times=range(25), parms={"a": 0.8},
        outputs={"total": "x"},
    )  # fmt: skip
    n = np.arange(1, 25)
    table = pd.concat([
        pd.DataFrame({"who": who, "time": n, "x": np.where(n % 3 == 0, np.nan, 1.0), "y": 1.0,
                      "total": np.where(n % 12 == 0, 1.0, np.nan)})
        for who in ("a", "b")
    ])  # fmt: skip
    errors = pd.DataFrame([[0.25, 0.1, 0], [0.1, 0.16, 0], [0, 0, 1.0]], ["x", "y", "total"], ["x", "y", "total"])
    cost = fme.FimlofCost(
        model, table, entity="who", process_noise={"x": "w", "y": 0.3}, measurement_noise=errors,
        parms={"w": 0.7}, accumulate={"total": 12}, initial_sd={"x": 0.5}, entity_parms=["w"],
    )  # fmt: skip
    drawn = cost.simulate(seed=1)
    pd.testing.assert_index_equal(drawn.index, table.index)
    assert list(drawn.columns) == list(table.columns)
    pd.testing.assert_frame_equal(drawn.isna(), table.isna())
    pd.testing.assert_frame_equal(drawn[["who", "time"]], table[["who", "time"]])
    assert agrees(squares(cost, 12), cost.nobs)


@pytest.mark.parametrize("initial", ["data", "diffuse"])
def test_a_start_from_data_or_unknown_has_its_rule(initial):
    rng = np.random.default_rng(2)
    data = {"time": np.arange(31), "x": 50 + np.cumsum(rng.standard_normal(31))}
    model = fme.DifferenceModel("next(x) = x", state={"x": 0.0}, times=range(31))
    cost = walk_cost(model, data, initial=initial, initial_sd=None)
    values = squares(cost, 20)
    assert agrees(values, 30)
    first = np.array([cost.simulate(seed=k)["x"][0] for k in range(60)])
    centre = data["x"][0] if initial == "data" else cost.filter().smoothed["x"][0]
    assert first.mean() == pytest.approx(centre, abs=4 * 0.5 / np.sqrt(60))
    assert first.std() == pytest.approx(0.5, rel=0.25)


def test_long_tables_repeated_columns_and_transforms_keep_their_form():
    model = fme.DifferenceModel("next(x) = 0.9*x + 1", state={"x": 10.0}, times=range(11))
    columns = {"name": "x", "t": [1, 2, 2, 5, 3], "value": [9, 10, 11, 9, 10], "e": [0.1, 0.2, 0.1, 0.3, 0.1]}
    long = pd.DataFrame(columns, index=list("abcde"))
    cost = fme.FimlofCost(model, long, x="t", y="value", err="e", transform={"x": "log"}, process_noise={"x": 0.1})
    drawn = cost.simulate(seed=0)
    assert list(drawn.index) == list("abcde")
    assert (drawn["value"] > 0).all()
    assert drawn["value"].nunique() == 5
    pd.testing.assert_frame_equal(drawn.drop(columns="value"), long.drop(columns="value"))
    assert agrees(squares(cost, 20), 5)
    twice = pd.DataFrame([[1, 2.0, 3.0], [2, np.nan, 4.0], [3, 1.0, np.nan]], columns=["time", "x", "x"])
    cost = fme.FimlofCost(model, twice, process_noise={"x": 0.1}, measurement_noise={"x": 1.0})
    drawn = cost.simulate(seed=0)
    assert list(drawn.columns) == ["time", "x", "x"]
    np.testing.assert_array_equal(drawn.isna(), twice.isna())
    assert drawn.iloc[0, 1] != drawn.iloc[0, 2]


def test_the_same_seed_draws_the_same_and_parameters_are_taken():
    cost = walk_cost()
    pd.testing.assert_frame_equal(cost.simulate(seed=4), cost.simulate(seed=4))
    assert not cost.simulate(seed=4)["x"].equals(cost.simulate(seed=5)["x"])
    still = cost.replace(initial_sd=None).simulate({"w": 0.0, "v": 0.0, "a": 0.5}, seed=4)
    np.testing.assert_allclose(still["x"], 3 * 0.5 ** np.arange(1, 31))


def test_a_path_that_explodes_is_told():
    model = fme.DifferenceModel("next(x) = x*x", state={"x": 3.0}, times=range(31))
    with pytest.raises(SimulationError, match="NaN or infinite at time"):
        walk_cost(model).simulate(seed=1)


def test_estimates_of_drawn_histories_scatter_as_their_standard_errors_say():
    cost = walk_cost(data={"time": np.arange(1, 101), "x": np.zeros(100)})
    fits = [fme.modFit(cost.replace(obs=cost.simulate(seed=k))) for k in range(12)]
    gains = np.array([fit.loglik + 0.5 * cost.replace(obs=cost.simulate(seed=k))() for k, fit in enumerate(fits)])
    assert gains.mean() == pytest.approx(1.5, abs=1.2)
    a = np.array([fit.par["a"] for fit in fits])
    assert a.mean() == pytest.approx(0.8, abs=0.08)
