"""Bands from a fit on another scale of the data, from draws, and from profiles; each says what it contains."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm, t

import fmepy as fme
from fmepy.errors import ArgumentError, ParameterError, SimulationError
from fmepy.fitting import modFit, predict, profile
from tests.fitting.test_profiles import DATA, decay

X = np.arange(8.0)
DRAWS = pd.DataFrame({"a": np.linspace(0.9, 1.1, 401), "b": 2.0})


def straight(p):
    return pd.DataFrame({"x": X, "y": p["a"] + p["b"] * X})


@pytest.fixture(scope="module")
def cost():
    return fme.SimulationCost(decay(), DATA)


def test_readings_of_a_fit_of_logarithms_are_lognormal():
    """log N is a straight line of k and log N0: the band is that of linear regression, taken back."""
    on_logs = fme.SimulationCost(decay(), DATA, transform="log")
    fit = modFit(on_logs)
    at = np.array([0.7, 3.3, 6.0])
    A = np.column_stack([np.ones(6), -DATA["time"]])
    b, rss, *_ = np.linalg.lstsq(A, np.log(DATA["N"]), rcond=None)
    s2, new = rss[0] / 4, np.column_stack([np.ones(3), -at])
    half = t.ppf(0.95, 4) * np.sqrt(s2 * (1 + np.einsum("ij,jk,ik->i", new, np.linalg.inv(A.T @ A), new)))
    band = predict(decay(), fit, times=at, level=0.9, reading=True)
    np.testing.assert_allclose(band["lower"], np.exp(new @ b - half), rtol=1e-5)
    np.testing.assert_allclose(band["upper"], np.exp(new @ b + half), rtol=1e-5)
    roots = modFit(fme.SimulationCost(decay(), DATA, transform="sqrt"))
    band = predict(decay(), roots, reading=True)
    middle = 0.5 * (np.sqrt(band["lower"]) + np.sqrt(band["upper"]))
    inside = band["lower"] > 0
    np.testing.assert_allclose(middle[inside], np.sqrt(band["fit"][inside]))
    assert (band["lower"] >= 0).all()


def test_readings_have_the_noise_that_was_estimated_with_the_model_or_said(cost):
    for noise in ("estimate", 0.05):
        noisy = cost.replace(measurement_noise={"N": noise})
        fit = modFit(noisy)
        sd = fit.par["sd_v_N"] if noise == "estimate" else 0.05
        curve, new = (predict(decay(), fit, times=[1.0, 4.0], reading=r)["se"] for r in (False, True))
        np.testing.assert_allclose(new**2 - curve**2, sd**2, rtol=1e-6)
        half = norm.ppf(0.975) * new
        np.testing.assert_allclose(predict(decay(), fit, times=[1.0, 4.0], reading=True)["upper"],
                                   predict(decay(), fit, times=[1.0, 4.0])["fit"] + half)  # fmt: skip


def test_a_band_of_draws_lies_between_their_quantiles():
    band = predict(straight, DRAWS, level=0.9)
    np.testing.assert_allclose(band["fit"], 1 + 2 * X)
    np.testing.assert_allclose(band["lower"], 0.91 + 2 * X)
    np.testing.assert_allclose(band["upper"], 1.09 + 2 * X)
    np.testing.assert_allclose(band["se"], DRAWS["a"].std())
    assert "90 % of the model's value, from draws" in repr(band)
    some = pd.DataFrame({"a": np.repeat(DRAWS["a"], 20), "b": 2.0})  # 8020 rows, of which a thousand are run
    np.testing.assert_allclose(predict(straight, some, level=0.9)["lower"], band["lower"], atol=1e-3)


def test_a_chain_gives_readings_by_its_sampled_variances():
    fit = modFit(lambda p: straight(p)["y"].to_numpy() - Y, {"a": 0.0, "b": 1.0})
    chain = fme.modMCMC(lambda p: straight(p)["y"].to_numpy() - Y, fit.par, jump=fit.cov_scaled * 2.4**2 / 2,
                        var0=fit.ms, wvar0=0.1, niter=3000, burninlength=500, seed=1)  # fmt: skip
    band = predict(straight, chain, reading=True)
    rng = np.random.default_rng(1)
    draws = chain.pars["a"].to_numpy() + 2 * chain.pars["b"].to_numpy()
    new = draws[:, None] + np.sqrt(chain.sig.iloc[:, 0].to_numpy())[:, None] * rng.standard_normal((len(draws), 200))
    np.testing.assert_allclose(band.frame.loc[2, ["lower", "upper"]].astype(float), np.quantile(new, [0.025, 0.975]),
                               atol=0.02)  # fmt: skip
    curve = predict(straight, chain)
    assert (curve["upper"] - curve["lower"] < band["upper"] - band["lower"]).all()


Y = 1 + 2 * X + np.array([0.1, -0.2, 0.15, 0.05, -0.1, 0.2, -0.25, 0.05])


def test_the_mixture_of_one_draw_is_a_normal_distribution():
    draws = pd.DataFrame({"a": [1.0], "b": [2.0], "sd_v_y": [0.5]})
    band = predict(straight, draws, reading=True)
    np.testing.assert_allclose(band["upper"] - band["fit"], 0.5 * norm.ppf(0.975), rtol=1e-8)


def test_a_models_draws_run_at_any_times_and_on_their_scale(cost):
    draws = pd.DataFrame({"k": [0.4, 0.5, 0.6], "N0": [2.0, 2.0, 2.0], "sd_v_N": [0.1, 0.1, 0.1]})
    band = predict(decay(), draws, times=[0.0, 2.0])
    np.testing.assert_allclose(band["fit"], [2.0, 2 * np.exp(-1.0)], rtol=1e-6)
    fit = modFit(fme.transformed(cost, "log"))
    on_logs = pd.DataFrame([fit.par, fit.par], index=[0, 1])
    on_logs.attrs.update(fit.par.attrs)
    with pytest.raises(ParameterError, match="log"):
        predict(decay(), on_logs)


def test_a_band_of_profiles_has_their_ends(cost):
    fit = modFit(cost)
    prof = profile(cost, fit, prediction=("N", [0.0, 2.0, 5.5]))
    band = predict(decay(), prof)
    assert band["time"].tolist() == [0.0, 2.0, 5.5]
    np.testing.assert_allclose(band["lower"], prof.intervals["lower"])
    np.testing.assert_allclose(band["se"], predict(decay(), fit, times=[0.0, 2.0, 5.5])["se"], rtol=1e-4)
    assert "95 % of the model's value, from profiles" in repr(band)


def test_the_picture_says_what_the_band_contains(cost):
    fit = modFit(cost)
    for reading, told in ((False, "the model's value"), (True, "a new reading")):
        (ax,) = predict(decay(), fit, reading=reading).plot(obs=DATA)
        labels = ax.get_legend_handles_labels()[1]
        assert labels == ["fit", f"95 % of {told}", "data"]
    plt.close("all")


@pytest.mark.parametrize(
    ("what", "words", "error", "told"),
    [
        (5, {}, ArgumentError, "modFit, modMCMC or profile"),
        (DRAWS.iloc[:0], {}, ArgumentError, "empty"),
        (DRAWS.assign(a=np.nan), {}, ArgumentError, "not finite"),
        (DRAWS.head(1), {}, ArgumentError, "two draws at least"),
        ({"a": ["x"]}, {}, ArgumentError, "numbers only"),
        (DRAWS, {"reading": True}, ArgumentError, "noise of readings"),
        (DRAWS, {"times": [1.0]}, ArgumentError, "for fmepy models"),
    ],
)
def test_misuse_is_told(what, words, error, told):
    with pytest.raises(error, match=told):
        predict(straight, what, **words)


def test_draws_that_fail_are_left_out_and_told():
    def brittle(p):
        if p["a"] > 1.05:
            raise ValueError("no")
        return straight(p)

    band = predict(brittle, DRAWS)
    assert "100 of 401 draws failed" in band.message
    with pytest.raises(SimulationError, match="None of 2"):
        predict(decay(), {"k": [-1e6, -2e6]})


def test_a_profile_of_parameters_is_no_band(cost):
    prof = profile(cost, modFit(cost), "k", num=5)
    with pytest.raises(ArgumentError, match="profiles of what is predicted"):
        predict(decay(), prof)
    with pytest.raises(ArgumentError, match="its own times and level"):
        predict(decay(), prof, level=0.5)
