"""Likelihoods at many theta at once, with ties, held parameters, transformed models: the plain thing each."""

from __future__ import annotations

import lmfit
import numpy as np
import pandas as pd
import pytest

import fmepy as fme
from fmepy.costs.base import minus2loglik_many
from fmepy.costs.user_function import as_objective

TIMES = np.linspace(0, 5, 11)


@pytest.fixture(scope="module")
def model() -> fme.OdeModel:
    return fme.OdeModel(
        "d(A)/dt = r - k*A", state={"A": "A0"}, parms={"k": 0.5, "r": 0.4, "A0": 10.0}, times=TIMES,
        outputs={"B": "2*A"}, events=[{"var": "A", "time": 2.2, "value": "A0/5", "method": "add"}],
        rtol=1e-9, atol=1e-10,
    )  # fmt: skip


@pytest.fixture(scope="module")
def data(model: fme.OdeModel) -> pd.DataFrame:
    rng, run = np.random.default_rng(5), model()
    return pd.DataFrame(
        {
            "time": TIMES[1:],
            "A": run["A"][1:] + 0.3 * rng.standard_normal(10),
            "B": run["B"][1:] + 0.5 * rng.standard_normal(10),
            "mark": ["", "<", *[""] * 8],
        }
    )


NOISE = {"A": "estimate", "B": "sd_B + 0.01*B"}


@pytest.fixture(scope="module")
def cost(model: fme.OdeModel, data: pd.DataFrame) -> fme.SimulationCost:
    return fme.SimulationCost(model, data.drop(columns="mark"), measurement_noise=NOISE, parms={"sd_B": 0.5})


def kinds(model, data) -> dict:
    plain = data.drop(columns="mark")
    noisy = fme.SimulationCost(model, plain, measurement_noise=NOISE, parms={"sd_B": 0.5})
    rats = pd.concat([plain.assign(rat="a"), plain.assign(rat="b")])
    return {
        "noisy": noisy,
        "censored": fme.SimulationCost(
            model, data.drop(columns="B"), measurement_noise={"A": "estimate"}, censored="mark"
        ),
        "log": noisy.replace(transform="log"),
        "entities": fme.SimulationCost(
            model, rats, measurement_noise=NOISE, parms={"sd_B": 0.5}, entity="rat", entity_parms=["k", "sd_v_A"]
        ),
        "sum": noisy + fme.SimulationCost(model, plain[["time", "A"]].assign(e=0.2), err="e", outside="drop"),
        "mapped": fme.transformed(noisy, {"k": "log"}),
        "filter": fme.FimlofCost(model, plain, process_noise={"A": 0.1}, measurement_noise={"A": 0.3, "B": "estimate"}),
    }


@pytest.mark.parametrize("kind", ["noisy", "censored", "log", "entities", "sum", "mapped", "filter"])
def test_many_are_each_by_itself(kind: str, model, data) -> None:
    bound = kinds(model, data)[kind].bind()
    rng = np.random.default_rng(1)
    Theta = bound.theta0 * (1 + 0.05 * rng.standard_normal((4, bound.theta0.size)))
    found, why = minus2loglik_many(bound, Theta)
    assert list(why) == [""] * 4
    np.testing.assert_allclose(found, [bound.minus2loglik(theta) for theta in Theta], rtol=1e-6)


def test_those_that_fail_are_told_and_the_others_are_there(cost) -> None:
    bound = cost.bind(["k", "sd_v_A"])
    found, why = minus2loglik_many(bound, np.array([[0.5, 0.3], [0.5, 0.0], [0.4, 0.3]]))
    assert np.isfinite(found).tolist() == [True, False, True]
    assert "standard deviation 0" in why[1]
    objective = as_objective(cost, ["k", "sd_v_A"])
    values = objective.evaluate_many(np.array([[0.5, 0.3], [0.5, 0.0]]))
    assert values[1] is None
    assert objective.failures == 1


def test_starts_and_landscapes_of_likelihoods_are_those_of_single_values(cost) -> None:
    grid = fme.landscape(cost, {"k": (0.3, 0.7)}, num=5).frame
    np.testing.assert_allclose(grid["cost"], [cost({"k": k}).minus2loglik for k in grid["k"]], rtol=1e-6)
    fit = fme.modFit(cost, ["k", "sd_v_A"], lower=[0.1, 0.01], upper=[2, 3], starts=4, seed=1)
    np.testing.assert_allclose(fit.par, fme.modFit(cost, ["k", "sd_v_A"]).par, rtol=1e-4)


def test_an_ensemble_of_a_likelihood_samples_what_it_samples_one_by_one(cost) -> None:
    fit = fme.modFit(cost)
    words = {"method": "emcee", "niter": 20, "seed": 3, "chains": 1}
    together = fme.modMCMC(cost, fit.par, jump=fit.cov_scaled, **words)
    alone = fme.modMCMC(lambda p: cost(p).minus2loglik, fit.par, jump=fit.cov_scaled, lower=cost.lower, **words)
    np.testing.assert_allclose(together.pars.to_numpy()[:20], alone.pars.to_numpy()[:20], rtol=1e-4)


# ------------------------------------------------------------------------------------------ ties, held parameters


def given(**said: float | str) -> lmfit.Parameters:
    p = lmfit.Parameters()
    for name, value in {"k": 0.4, "r": 0.3, "sd_v_A": 0.2, "sd_B": 0.4}.items():
        p.add(name, value=value, min=0)
    for name, what in said.items():
        p[name].set(**({"expr": what} if isinstance(what, str) else {"value": what, "vary": False}))
    return p


def test_lmfits_ties_of_noise_and_model_are_those_written_into_the_expressions(model, data, cost) -> None:
    tied = fme.modFit(cost, given(sd_B="2*sd_v_A", r="0.8*k"))
    written = fme.OdeModel(
        "d(A)/dt = 0.8*k - k*A", state={"A": "A0"}, parms={"k": 0.4, "A0": 10.0}, times=TIMES, outputs={"B": "2*A"},
        events=[{"var": "A", "time": 2.2, "value": "A0/5", "method": "add"}], rtol=1e-9, atol=1e-10,
    )  # fmt: skip
    noise = {"A": "s", "B": "2*s + 0.01*B"}
    plain = fme.modFit(
        fme.SimulationCost(written, data.drop(columns="mark"), measurement_noise=noise, parms={"s": 0.2}), ["k", "s"]
    )
    assert list(tied.par.index) == ["k", "sd_v_A"]
    np.testing.assert_allclose(tied.par, plain.par, rtol=1e-5)
    np.testing.assert_allclose(tied.cov_scaled, plain.cov_scaled, rtol=1e-4)
    np.testing.assert_allclose(tied.residuals, plain.residuals, rtol=1e-4, atol=1e-5)
    there = tied.to_lmfit().params
    assert there["sd_B"].stderr == pytest.approx(2 * tied.std_error["sd_v_A"], rel=1e-6)
    interval = fme.profile(cost, tied, "k").intervals.loc["k"]
    other = fme.profile(
        fme.SimulationCost(written, data.drop(columns="mark"), measurement_noise=noise, parms={"s": 0.2}), plain, "k"
    ).intervals.loc["k"]
    np.testing.assert_allclose(interval, other, rtol=1e-4)


def test_what_lmfit_holds_is_what_a_changed_cost_has(model, data, cost) -> None:
    held = fme.modFit(cost, given(sd_B=0.6, r=0.5))
    plain = fme.modFit(
        fme.SimulationCost(
            model.replace(parms={"r": 0.5}), data.drop(columns="mark"), measurement_noise=NOISE, parms={"sd_B": 0.6}
        ),
        ["k", "sd_v_A"],
    )
    np.testing.assert_allclose(held.par, plain.par, rtol=1e-5)
    assert held.minus2loglik == pytest.approx(plain.minus2loglik, rel=1e-8)
    chain = fme.modMCMC(cost, given(sd_B=0.6, r=0.5), niter=30, seed=2)
    assert list(chain.pars.columns) == ["k", "sd_v_A"]
    band = fme.predict(model, held, reading=True).frame.query("var == 'A'")
    assert band["lower"].lt(band["fit"]).all()


def test_identifiable_fit_of_a_likelihood_is_modFit_of_what_it_selects(cost) -> None:
    found = fme.identifiable_fit(cost, ["k", "r", "sd_v_A", "sd_B"])
    fit = fme.modFit(cost, list(found.selected))
    assert found.selected == ("k", "r", "sd_v_A", "sd_B")
    np.testing.assert_allclose(found.fit.par, fit.par, rtol=1e-4)
    assert found.history["minus2loglik"].tolist() == [pytest.approx(fit.minus2loglik, rel=1e-6)]
    twins = fme.SimulationCost(
        cost.model.replace(outputs={"B": "b*c*A"}, parms={"b": 2.0, "c": 1.0}), cost.obs, measurement_noise=NOISE,
        parms={"sd_B": 0.5},
    )  # fmt: skip
    some = fme.identifiable_fit(twins, ["k", "b", "c", "sd_v_A"])
    assert set(some.selected) in ({"k", "b", "sd_v_A"}, {"k", "c", "sd_v_A"})


# ------------------------------------------------------------------------------------------------- transformed models


@pytest.mark.parametrize("process", [{"A": 0.1}, {"A": "estimate"}, {}])
def test_a_filter_of_a_transformed_model_is_the_transformed_filter(model, data, process) -> None:
    how = {"k": "log", "r": "logit", "A0": "log10"}
    words = {"process_noise": process, "measurement_noise": {"A": "estimate", "B": 0.5}}
    one = fme.FimlofCost(fme.transformed(model, how), data.drop(columns="mark"), **words)
    other = fme.transformed(fme.FimlofCost(model, data.drop(columns="mark"), **words), how)
    a, b = one.bind(), other.bind()
    assert a.parameter_names == b.parameter_names
    np.testing.assert_allclose(a.theta0, b.theta0, rtol=1e-12)
    theta = a.theta0 + 0.1
    assert a.minus2loglik(theta) == pytest.approx(b.minus2loglik(theta), rel=1e-6)
    np.testing.assert_allclose(a.score(theta), b.score(theta), rtol=1e-4, atol=1e-4)
    assert one.transforms == how


def test_fits_of_costs_of_transformed_models_remember_the_scale(model, data) -> None:
    logs = fme.transformed(model, "log", names=["k", "r"])
    rats = pd.concat([data.assign(rat=1), data.assign(rat=2)])[["rat", "time", "A"]]
    cost = fme.SimulationCost(logs, rats, measurement_noise={"A": "estimate"}, entity="rat", entity_parms=["k"])
    assert cost.transforms == {"k[1]": "log", "k[2]": "log", "r": "log"}
    fit = fme.modFit(cost, ["k[1]", "k[2]", "sd_v_A"])
    curve = fme.predict(cost.model_of(1), fit)
    np.testing.assert_allclose(
        curve.frame.query("var == 'A'")["fit"], cost.run(fit.par).query("rat == 1")["A"], rtol=1e-5
    )
    flat = fme.modFit(
        fme.SimulationCost(logs, data[["time", "A"]], measurement_noise={"A": "estimate"}), ["k", "sd_v_A"]
    )
    with pytest.raises(fme.errors.ArgumentError, match=r"log\(k\)"):
        fme.predict(model, flat)
