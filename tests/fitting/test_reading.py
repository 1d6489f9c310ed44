"""Bands of new readings where the noise is an expression: of fits, chains, profiles; draws that know their cost."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.stats

import fmepy as fme
from fmepy.errors import ArgumentError, ParameterError

TIMES = np.linspace(0, 5, 11)
NOISE = {"A": "sqrt(a**2 + (b*A)**2)"}


@pytest.fixture(scope="module")
def model() -> fme.OdeModel:
    return fme.OdeModel("d(A)/dt = -k*A", state={"A": "A0"}, parms={"k": 0.5, "A0": 10.0}, times=TIMES,
                        outputs={"B": "2*A"}, rtol=1e-9, atol=1e-10)  # fmt: skip


@pytest.fixture(scope="module")
def data() -> pd.DataFrame:
    rng, t = np.random.default_rng(4), np.tile(TIMES[1:], 3)
    A = 10 * np.exp(-0.5 * t)
    return pd.DataFrame({"time": t, "A": A + np.hypot(0.1, 0.05 * A) * rng.standard_normal(30)})


@pytest.fixture(scope="module")
def cost(model, data) -> fme.SimulationCost:
    return fme.SimulationCost(model, data, measurement_noise=NOISE, parms={"a": 0.1, "b": 0.05})


@pytest.fixture(scope="module")
def fit(cost) -> fme.ModFit:
    return fme.modFit(cost)


def of(band, variable="A") -> pd.DataFrame:
    return band.frame[band.frame["var"] == variable].reset_index(drop=True)


def test_a_fits_band_of_readings_has_the_noise_at_its_curve(model, cost, fit) -> None:
    curve, reading = of(fme.predict(model, fit)), of(fme.predict(model, fit, reading=True))
    s = np.hypot(fit.par["a"], fit.par["b"] * curve["fit"])
    q = scipy.stats.norm.ppf(0.975)
    np.testing.assert_allclose(reading["upper"] - reading["fit"], q * np.hypot(curve["se"], s), rtol=1e-8)
    assert of(fme.predict(model, fit, reading=True), "B")["upper"].isna().all(), "B was never observed"


def test_it_is_kept_with_the_fit_and_follows_a_transformed_cost(model, cost, fit, tmp_path) -> None:
    fit.save(tmp_path / "fit.json")
    again = fme.predict(model, fme.load(tmp_path / "fit.json"), reading=True)
    pd.testing.assert_frame_equal(again.frame, fme.predict(model, fit, reading=True).frame)
    logs = fme.modFit(fme.transformed(cost, "log"))
    band = of(fme.predict(fme.transformed(model, "log"), logs, reading=True))
    np.testing.assert_allclose(band["upper"], of(fme.predict(model, fit, reading=True))["upper"], rtol=1e-4)


def test_noise_may_depend_on_time_and_on_other_predictions(model, data) -> None:
    noise = {"A": "0.1 + 0.01*B + 0.02*t"}
    fit = fme.modFit(fme.SimulationCost(model, data, measurement_noise=noise))
    band, curve = of(fme.predict(model, fit, reading=True)), of(fme.predict(model, fit))
    s = 0.1 + 0.02 * curve["fit"] + 0.02 * curve["time"]
    np.testing.assert_allclose(band["se"], np.hypot(curve["se"], s), rtol=1e-6)


def test_entities_have_the_noise_of_their_own(model, data) -> None:
    rats = pd.concat([data.assign(rat="x"), data.assign(rat="y", A=2 * data["A"])])
    cost = fme.SimulationCost(model, rats, measurement_noise={"A": "s"}, parms={"s": 0.3}, entity="rat",
                              entity_parms=["s", "A0"])  # fmt: skip
    fit = fme.modFit(cost)
    for rat in "xy":
        band, curve = (of(fme.predict(cost.model_of(rat), fit, reading=r)) for r in (True, False))
        np.testing.assert_allclose(band["se"], np.hypot(curve["se"], fit.par[f"s[{rat}]"]), rtol=1e-6)
    with pytest.raises(ParameterError, match=r"'A0' of every entity.*cost.model_of\('x'\)"):
        fme.predict(model, fit, reading=True)
    same_start = fme.modFit(cost.replace(entity_parms=["s"]))
    with pytest.raises(ArgumentError, match=r"'A' differ in their stated noise.*model_of\(entity\)"):
        fme.predict(model, same_start, reading=True)


def test_errors_that_differ_are_not_known_where_it_is_predicted(model, data) -> None:
    table = data.assign(e=np.linspace(0.1, 0.3, 30))
    fit = fme.modFit(fme.SimulationCost(model, table, err="e", measurement_noise={"A": "c*err"}, parms={"c": 1.0}))
    with pytest.raises(ArgumentError, match="depends on 'err'"):
        fme.predict(model, fit, reading=True)
    same = fme.modFit(
        fme.SimulationCost(model, data.assign(e=0.2), err="e", measurement_noise={"A": "c*err"}, parms={"c": 1.0})
    )
    band, curve = of(fme.predict(model, same, reading=True)), of(fme.predict(model, same))
    np.testing.assert_allclose(band["se"], np.hypot(curve["se"], 0.2 * same.par["c"]), rtol=1e-8)


def test_a_chains_band_is_of_the_mixture_of_its_draws(model, cost, fit) -> None:
    chain = fme.modMCMC(cost, fit.par, jump=fit.cov_scaled, niter=400, burninlength=100, seed=1)
    band = of(fme.predict(model, chain, reading=True))
    p, rng = {name: draws.to_numpy() for name, draws in chain.pars.items()}, np.random.default_rng(0)
    A = p["A0"] * np.exp(-2.5 * p["k"])
    z = (A + np.hypot(p["a"], p["b"] * A) * rng.standard_normal((2000, len(A)))).ravel()
    assert band.loc[5, ["lower", "upper"]].tolist() == pytest.approx(np.quantile(z, [0.025, 0.975]).tolist(), rel=0.01)


def test_a_chain_of_logarithms_has_lognormal_readings(model, data) -> None:
    positive = data.assign(A=data["A"].clip(lower=0.2))
    cost = fme.SimulationCost(model, positive, transform="log", measurement_noise={"A": "estimate"})
    fit = fme.modFit(cost)
    chain = fme.modMCMC(cost, fit.par, jump=fit.cov_scaled, niter=300, seed=1)
    band, of_fit = of(fme.predict(model, chain, reading=True)), of(fme.predict(model, fit, reading=True))
    assert (band["lower"] > 0).all()
    np.testing.assert_allclose(band["upper"], of_fit["upper"], rtol=0.15)


def test_a_profiles_band_of_readings_is_the_t_band_of_a_linear_model() -> None:
    line = fme.DifferenceModel("next(y) = y + b", state={"y": "a"}, times=np.arange(8.0), parms={"a": 1.0, "b": 0.5})
    table = {"time": np.arange(8.0), "y": np.array([1.1, 1.4, 2.2, 2.4, 3.1, 3.3, 4.2, 4.4])}
    for words in ({}, {"measurement_noise": {"y": 0.1}}):
        cost = fme.SimulationCost(line, table, **words)
        fit = fme.modFit(cost)
        prof = fme.profile(cost, fit, prediction=("y", [2.0, 7.0]))
        band = fme.predict(line, prof, reading=True)
        exact = fme.predict(line, fit, reading=True).frame.query("time in (2, 7)").reset_index(drop=True)
        assert band.source == "profiles"
        assert band.reading
        np.testing.assert_allclose(band.frame[["fit", "se", "lower", "upper"]], exact[["fit", "se", "lower", "upper"]],
                                   rtol=1e-5)  # fmt: skip


def test_a_profile_of_readings_is_the_lowest_likelihood_with_the_reading_added(model, data) -> None:
    few = data.iloc[:6]
    cost = fme.SimulationCost(model, few, measurement_noise={"A": 0.8})
    fit = fme.modFit(cost)
    prof = fme.profile(cost, fit, prediction=("A", 5.0), num=41)
    (low, high) = fme.predict(model, prof, reading=True).frame.loc[0, ["lower", "upper"]]
    for z in (low, high):
        further = pd.concat([few, pd.DataFrame({"time": [5.0], "A": [z]})])
        other = fme.modFit(cost.replace(obs=further), fit.par)
        rise = other.minus2loglik - fit.minus2loglik - np.log(2 * np.pi * 0.64)
        assert rise == pytest.approx(scipy.stats.chi2.ppf(0.95, 1), rel=2e-3)


def test_readings_of_a_function_or_of_a_latent_state_are_told(model, cost, fit) -> None:
    prof = fme.profile(cost, fit, prediction=("B", 2.0))
    with pytest.raises(ArgumentError, match="the noise of 'B' is not known"):
        fme.predict(model, prof, reading=True)


# ------------------------------------------------------------------------------------------------- draws and models


@pytest.fixture(scope="module")
def chain(cost, fit) -> fme.ModMCMC:
    return fme.modMCMC(cost, fit.par, jump=fit.cov_scaled, niter=60, seed=1)


def test_draws_of_a_chain_leave_out_what_is_its_costs_in_all_that_takes_draws(model, chain, tmp_path) -> None:
    for draws in (chain, chain.pars, chain.pars.tail(20)):
        ranges = fme.sensRange(model, parInput=draws, num=10, seed=1)
        assert ranges.pars.columns.tolist() == ["k", "A0"]
        what_if = fme.scenarios(model, {"as it is": {}, "slow": {"k": 0.1}}, parInput=draws, num=10, seed=1)
        assert what_if.pars.columns.tolist() == ["k", "A0"]
        assert len(fme.predict(model, draws).frame) == 22
    chain.save(tmp_path / "chain")
    again = fme.load(tmp_path / "chain")
    assert fme.sensRange(model, parInput=again.pars, num=5, seed=1).pars.columns.tolist() == ["k", "A0"]
    pd.testing.assert_frame_equal(
        fme.predict(model, again, reading=True).frame, fme.predict(model, chain, reading=True).frame
    )


def test_a_column_of_a_plain_table_that_the_model_does_not_have_is_refused_by_all(model) -> None:
    draws = pd.DataFrame({"k": [0.4, 0.5], "A00": [9.0, 10.0]})
    for ask in (
        lambda: fme.sensRange(model, parInput=draws),
        lambda: fme.scenarios(model, {"x": {}}, parInput=draws),
        lambda: fme.predict(model, draws),
    ):
        with pytest.raises(ParameterError, match=r"'A00'.*'A0'"):
            ask()


def test_scenarios_of_a_function_hand_on_args_and_kwargs() -> None:
    def f(p, x, *, offset=0.0):
        return pd.DataFrame({"x": x, "y": p["a"] * np.asarray(x) + offset})

    found = fme.scenarios(f, {"one": {}, "two": {"a": 2.0}}, parms={"a": 1.0}, args=([1.0, 2.0],),
                          kwargs={"offset": 5.0})  # fmt: skip
    assert found.frame["y"].tolist() == [6.0, 7.0, 7.0, 9.0]


@pytest.mark.parametrize("together", ["one function", "a sum of costs"])
def test_a_reading_of_a_variable_that_two_parts_observe_is_of_one_of_them(model, together) -> None:
    """Two instruments: half of the readings have the noise of one, half that of the other."""
    rng, t = np.random.default_rng(5), np.repeat(TIMES[1:], 8)
    A = 10 * np.exp(-0.5 * t)
    tables = [pd.DataFrame({"time": t, "A": A + sd * rng.standard_normal(len(t))}) for sd in (0.1, 1.0)]

    def two(p):
        return fme.modCost(model(p), tables[1], cost=fme.modCost(model(p), tables[0]))

    cost = two if together == "one function" else sum(fme.SimulationCost(model, table) for table in tables)
    fit = fme.modFit(cost, {"k": 0.4, "A0": 9.0})
    chain = fme.modMCMC(cost, fit.par, jump=fit.cov_scaled, var0=fit.var_ms_unweighted, wvar0=1, niter=500, seed=1)
    assert chain.sig.shape[1] == 2
    assert chain.sig.columns.is_unique == (together != "one function")
    band = of(fme.predict(model, chain, reading=True))
    sds = np.repeat(np.sqrt(fit.var_ms_unweighted.to_numpy()), 50_000)
    z = of(fme.predict(model, fit)).loc[5, "fit"] + sds * rng.standard_normal(100_000)
    assert band.loc[5, ["lower", "upper"]].tolist() == pytest.approx(np.quantile(z, [0.025, 0.975]).tolist(), rel=0.1)
