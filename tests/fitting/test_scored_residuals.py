"""Residuals of fits of likelihoods: in units of the sds, as those of least squares are in units of the errors."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

import fmepy as fme

TIMES = np.linspace(0, 5, 11)


def decay(t, A, *, k=0.5, r=0.1):
    return r - k * A


@pytest.fixture(scope="module")
def model():
    return fme.OdeModel(decay, state={"A": 10.0}, times=TIMES, outputs={"B": "2*A"}, rtol=1e-9, atol=1e-10)


def data():
    rng = np.random.default_rng(5)
    A = 0.2 + 9.8 * np.exp(-0.5 * TIMES[1:])
    return pd.DataFrame({"time": TIMES[1:], "A": A + 0.3 * rng.standard_normal(10), "B": 2 * A})


def test_they_are_those_of_the_cost_at_the_optimum_in_units_of_its_sds(model):
    cost = fme.SimulationCost(model, data(), measurement_noise={"A": "estimate", "B": "0.1 + 0.05*B"})
    fit = fme.modFit(cost)
    table = cost(fit.par).residuals
    mod, sd = model(fit.par[["k", "r"]])["A"].to_numpy()[1:], fit.par["sd_v_A"]
    np.testing.assert_allclose(fit.residuals["A"], (mod - data()["A"]) / sd, rtol=1e-6)
    np.testing.assert_allclose(fit.residuals["B"], (2 * mod - data()["B"]) / (0.1 + 0.1 * mod), rtol=1e-6)
    np.testing.assert_array_equal(fit.residuals, table["res"])
    assert np.mean(fit.residuals["A"] ** 2) == pytest.approx(1, rel=1e-5), "an sd that is estimated is their rms"
    assert fit.summary().residuals is fit.residuals
    assert fit.var_ms["A"] == pytest.approx(1, rel=1e-5)
    assert fit.var_ms_unweighted["A"] == pytest.approx(sd**2, rel=1e-5)
    assert len(fit.to_lmfit().residual) == 20
    assert [ax.get_title() for ax in fit.plot()] == ["", "", "A", "B", "scoring: converged"]
    plt.close("all")


def test_those_beyond_a_limit_are_the_mean_given_what_was_seen(model):
    table = data().drop(columns="B").assign(mark=["", "<"] + [""] * 8)
    table.loc[1, "A"] = 3.0
    cost = fme.SimulationCost(model, table, measurement_noise={"A": 0.5}, censored="mark")
    fit = fme.modFit(cost)
    z = (model(fit.par)["A"][2] - 3.0) / 0.5  # the model's sds above the limit
    draws = np.random.default_rng(0).standard_normal(2_000_000)
    assert fit.residuals.iloc[1] == pytest.approx(-draws[draws < -z].mean(), rel=0.02)


def test_of_several_experiments_and_of_sums_they_keep_the_order_of_the_cost(model):
    table = pd.concat([data().assign(rat=1), data().assign(rat=2)])[["rat", "time", "A"]]
    cost = fme.SimulationCost(model, table, measurement_noise={"A": "estimate"}, entity="rat")
    both = cost + fme.SimulationCost(model, data()[["time", "B"]], measurement_noise={"B": 0.2})
    fit = fme.modFit(both)
    np.testing.assert_array_equal(fit.residuals, both(fit.par).residuals["res"])
    assert fit.residuals.index.tolist() == ["A"] * 20 + ["B"] * 10
    known = fme.modFit(fme.transformed(cost, "log"), ["k", "r", "sd_v_A"])
    assert len(known.residuals) == 20


def test_those_of_a_filter_are_its_standardised_innovations(tmp_path):
    walk = fme.DifferenceModel(lambda t, z, *, a=0.8: a * z, state={"z": 1.0}, times=np.arange(31.0))
    rng = np.random.default_rng(2)
    z = [1.0]
    for _ in range(30):
        z.append(0.8 * z[-1] + 0.3 * rng.standard_normal())
    table = pd.DataFrame({"time": np.arange(1.0, 31), "z": z[1:]})
    cost = fme.FimlofCost(walk, table, process_noise={"z": "estimate"}, measurement_noise={"z": 0.1})
    fit = fme.modFit(cost)
    expected = cost.filter(fit.par).residuals["standardized"].to_numpy()
    np.testing.assert_allclose(fit.residuals, -expected, rtol=1e-10)
    assert set(fit.residuals.index) == {"z"}
    curve, own, _ = fit.plot()
    assert curve.get_ylabel() == own.get_title() == "z"
    fit.save(tmp_path / "fit.json")
    pd.testing.assert_series_equal(fme.load(tmp_path / "fit.json").residuals, fit.residuals)
    plt.close("all")


def test_a_number_has_none():
    fit = fme.modFit(lambda p: float((p["a"] - 1) ** 2), {"a": 0.0})
    assert len(fit.residuals) == 0
    assert np.isnan(fit.var_ms)


def test_the_curvature_is_that_at_the_optimum_where_the_expected_one_says_nearly_nothing():
    """The standard error by the expected information is 600 times the parameter: so far off the cost is another."""
    t = np.arange(1, 6.0)
    text = "d(y)/dt = k**2\nz = 0.01*k + 0*y"
    model = fme.OdeModel(text, state={"y": 0.0}, parms={"k": 0.1}, times=np.r_[0, t])
    cost = fme.SimulationCost(model, {"time": t, "y": -t, "z": 22.0 + 0 * t}, measurement_noise={"y": 1.0, "z": 1.0})
    fit = fme.modFit(cost, {"k": 0.05}, lower=0)
    k = fit.par["k"]
    observed = 2 * np.sum(4 * k**2 * t**2 + 1e-4 + 2 * (k**2 * t + t) * t)
    assert fit.hessian.loc["k", "k"] == pytest.approx(observed, rel=1e-4)
    assert fit.std_error["k"] == pytest.approx(np.sqrt(2 / observed), rel=1e-4)
    assert "positive definite" not in fit.message
