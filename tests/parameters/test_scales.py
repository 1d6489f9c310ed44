"""Estimates, covariances and draws remember their scale; what was transformed or typed is taken as it comes."""

import pickle

import numpy as np
import pandas as pd
import pytest

import fmepy as fme
from fmepy.errors import ArgumentError, ParameterError
from fmepy.parameters.scales import check_scale, mark, mark_covariance, scale_of

T = np.arange(6.0)
OBS = {"time": T, "x": 5 * np.exp(-0.3 * T) + 0.1 * np.cos(5 * T)}
MODEL = fme.OdeModel("d(x)/dt = -k*x", state={"x": "x0"}, parms={"x0": 4.0, "k": 0.5}, times=T)
COST = fme.SimulationCost(MODEL, OBS)
LOG_MODEL, LOG_COST = fme.transformed(MODEL, "log"), fme.transformed(COST, "log")


@pytest.fixture(scope="module")
def fit():
    return fme.modFit(LOG_COST)


@pytest.fixture(scope="module")
def chain(fit):
    return fme.modMCMC(LOG_COST, fit.par, jump=fit.cov_scaled * 2.4**2 / 2, var0=fit.var_ms_unweighted, wvar0=1,
                       niter=200, seed=1)  # fmt: skip


def test_whoever_takes_natural_values_refuses_logarithms_and_says_what_to_type(fit, chain):
    draws = fme.Norm(fit.par, fit.cov_scaled, num=20, seed=1)
    for ask in (
        lambda: fme.sensRange(MODEL, parInput=draws),
        lambda: fme.sensRange(MODEL, parInput=draws.iloc[3:7][["k"]]),
        lambda: fme.sensRange(MODEL, parInput=chain.pars),
        lambda: fme.sensRange(MODEL, dist="norm", parMean=fit.par, parCovar=fit.cov_scaled),
        lambda: fme.sensRange(MODEL, parInput=fme.Norm(dict(fit.par), 2 * fit.cov_scaled, num=5, seed=1)),
        lambda: fme.modCRL(MODEL, parInput=chain.pars, sensvar="x"),
        lambda: MODEL(fit.par),
        lambda: MODEL.replace(parms=fit.par),
        lambda: fme.OdeModel("d(x)/dt = -k*x", state={"x": "x0"}, parms=fit.par, times=T),
        lambda: MODEL(chain.bestpar),
        lambda: MODEL(chain.pars.sample(1, random_state=1)),
        lambda: COST(fit.par),
        lambda: fme.modFit(COST, fit.par),
        lambda: fme.modMCMC(COST, fit.par, var0=0.01),
        lambda: fme.modMCMC(COST, MODEL.parms, jump=fit.cov_scaled * 2, var0=0.01),
        lambda: fme.sensFun(MODEL, fit.par),
        lambda: fme.sensRange(MODEL, parInput=pickle.loads(pickle.dumps(chain)).pars),
    ):
        with pytest.raises(ParameterError, match=r"holds .*log\(k\).*np.exp.*transformed\(model, 'log'\)"):
            ask()


def test_logarithms_are_taken_where_they_belong(fit, chain):
    draws = fme.Norm(fit.par, fit.cov_scaled, num=20, seed=1)
    for pars in (draws, chain.pars):
        there = fme.sensRange(LOG_MODEL, parInput=pars, num=10, seed=1)
        here = fme.sensRange(MODEL, parInput=np.exp(pars), num=10, seed=1)
        np.testing.assert_allclose(there.values, here.values, rtol=1e-6)
    assert LOG_COST(fit.par).model == pytest.approx(fit.ssr)
    fme.modMCMC(LOG_COST, fit.par, jump=fit.cov_scaled, var0=0.01, niter=5, seed=1)


def test_natural_values_are_refused_by_those_who_take_logarithms():
    natural = fme.modFit(COST)
    with pytest.raises(ParameterError, match=r"holds 'x0', 'k' .* needed is 'log\(x0\)', 'log\(k\)'"):
        fme.sensRange(LOG_MODEL, parInput=fme.Norm(natural.par, natural.cov_scaled, num=5, seed=1))
    with pytest.raises(ParameterError, match="holds 'x0', 'k'"):
        fme.modFit(LOG_COST, natural.par)
    fme.modFit(LOG_COST, np.log(natural.par))
    fme.modFit(LOG_COST, np.log(MODEL.parms))


def test_what_was_taken_back_or_typed_is_taken_as_it_comes(fit, chain):
    natural = chain.transform(np.exp)
    for pars in (
        natural.pars,
        natural.pars.iloc[::7],
        np.exp(chain.pars),
        np.exp(chain.pars).sample(5, random_state=1),
        np.exp(chain.pars.iloc[5]),
        fme.Norm(fme.modFit(COST).par, fme.modFit(COST).cov_scaled, num=5, seed=1),
        pd.DataFrame(np.exp(chain.pars.to_numpy()), columns=["x0", "k"]),
        chain.pars.assign(k=np.exp(chain.pars["k"]), x0=5.0),
    ):
        assert not fme.sensRange(MODEL, parInput=pars, num=5, seed=1).failures.size
    for p in (np.exp(fit.par), dict(np.exp(fit.par)), np.exp(chain.bestpar), natural.bestpar):
        MODEL(p)
        COST(p)
    MODEL(dict(fit.par))  # by hand: nobody knows
    C = fit.cov_scaled * np.outer(np.exp(fit.par), np.exp(fit.par))  # the delta method
    fme.sensRange(MODEL, parInput=fme.Norm(np.exp(fit.par), C, num=5, seed=1))


def test_a_model_made_with_the_estimates_of_another_scale_keeps_its_own():
    fit = fme.modFit(LOG_COST)
    again = MODEL.replace(parms=np.exp(fit.par))
    again(np.exp(fit.par))
    fme.modFit(fme.SimulationCost(again, OBS), fme.modFit(COST).par)


def test_a_chain_that_is_resumed_has_the_scale_of_its_cost(tmp_path, fit):
    arguments = {"jump": fit.cov_scaled, "var0": 0.01, "niter": 10, "seed": 1}
    fme.modMCMC(LOG_COST, fit.par, checkpoint=tmp_path / "chain", **arguments)
    chain = fme.resume_mcmc(LOG_COST, tmp_path / "chain", niter=20)
    assert scale_of(chain.pars) == {"x0": "log", "k": "log"}


def test_a_covariance_of_another_scale_than_the_mean_is_refused(fit):
    with pytest.raises(ParameterError, match="`parCovar` holds"):
        fme.Norm(fme.modFit(COST).par, fit.cov_scaled, num=5)


def test_functions_of_transformed_parameters_say_so_and_plain_ones_take_all():
    def residuals(p):
        return p["x0"] * np.exp(-p["k"] * T) - OBS["x"]

    fit = fme.modFit(fme.transformed(residuals, {"k": "log"}), {"x0": 5.0, "k": -1.0})
    assert scale_of(fit.par) == {"x0": None, "k": "log"}
    with pytest.raises(ParameterError, match=r"holds 'log\(k\)'"):
        MODEL(fit.par)
    with pytest.raises(ArgumentError, match=r"fit is of log\(k\)"):
        fme.predict(MODEL, fit)
    curve = lambda p: {"time": T, "x": p["x0"] * np.exp(-np.exp(p["k"]) * T)}  # noqa: E731    # its own affair
    fme.sensRange(curve, parInput=fme.Norm(fit.par, fit.cov_scaled, num=5, seed=1))


def test_marks_count_for_the_numbers_that_they_were_put_on():
    par = mark(pd.Series({"a": 0.5, "b": 2.0}), {"a": "logit"})
    assert scale_of(par) == {"a": "logit", "b": None}
    assert (
        scale_of(par * 2)
        == scale_of(par.round(0) + 1)
        == scale_of(dict(par))
        == scale_of(par.rename({"a": "c"})[["c"]])
        == {}
    )
    assert scale_of(pickle.loads(pickle.dumps(par))) == {"a": "logit", "b": None}
    C = mark_covariance(pd.DataFrame(np.eye(2), index=["a", "b"], columns=["a", "b"]), {"a": "log"})
    assert scale_of(3 * C) == {"a": "log", "b": None}
    assert scale_of(C.loc[["a"], ["a"]]) == {"a": "log"}
    assert scale_of(C + 1) == scale_of(-C) == scale_of(C.iloc[:1]) == {}
    check_scale(par, None, "p")
