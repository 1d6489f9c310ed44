"""modFit on models: the reference's dynamic problems, prepared costs and plain functions alike."""

import numpy as np
import pandas as pd
import pytest
from scipy.integrate import odeint

import fmepy as fme
from fmepy.fitting import modFit, predict
from tests.fitting.problems import REFERENCE, case, cases
from tests.models.problems import ccl4_model

FIVE = ["bet", "rho", "delt", "c", "lam"]
TIGHT = {"rtol": 1e-10, "atol": 1e-10}


def table(matrix):
    return pd.DataFrame(matrix["matrix"], columns=matrix["columns"])


def bacteria_rates(t, Bact, Sub, *, gmax=0.5, eff=0.5, ks=0.5, rB=0.01, dB=0.01):
    uptake = gmax * Sub / (Sub + ks) * Bact
    return eff * uptake - (dB + rB) * Bact, -uptake + dB * Bact


@pytest.fixture(scope="module")
def bacteria():
    return fme.OdeModel(bacteria_rates, state={"Bact": 0.1, "Sub": 100}, times=np.arange(0, 50.5, 0.5), **TIGHT)


def two_tables(model, **kwargs):
    problem = case("bact_two")["inputs"]["problem"]
    first = fme.SimulationCost(model, table(problem["data1"]), **kwargs)
    return first + fme.SimulationCost(model, table(problem["data2"]), **kwargs)


def check(fit, expected, *, se=True):
    """Within 1e-4 standard errors of the reference's tight optimum, standard errors within 1e-3."""
    errors = pd.Series(
        dict(zip(expected["par"], [row[1] for row in expected["summary"]["par"]["matrix"]], strict=True))
    )
    for n, v in expected["par"].items():
        # the reference itself stops about 1e-4 standard errors from the optimum
        assert abs(fit.par[n] - v) < 3e-4 * errors[n] + 1e-8 * abs(v), n
        if se:
            assert fit.std_error[n] == pytest.approx(errors[n], rel=1e-3), n
    assert fit.ssr == pytest.approx(expected["ssr"], rel=1e-6)
    assert fit.converged, fit.message


def test_bacteria_are_fitted_as_by_R(bacteria):
    data = table(case("bact_Marq")["inputs"]["problem"]["obs"])
    fit = modFit(fme.SimulationCost(bacteria, data), {"gmax": 0.5, "eff": 0.5}, lower=0)
    expected = case("bact_Marq")["outputs"]
    check(fit, expected)
    assert fit.var_ms["Bact"] == pytest.approx(expected["var_ms"]["Bact"], rel=1e-6)
    assert fit.cost.model == pytest.approx(fit.ssr, rel=1e-10)
    assert list(fit.residuals.index) == ["Bact"] * 17


def test_bacteria_and_substrate_are_fitted_together_as_by_R(bacteria):
    fit = modFit(two_tables(bacteria), ["gmax", "eff"], lower=0)
    expected = case("bact_two")["outputs"]
    check(fit, expected)
    for field in ("var_ms", "var_ms_unscaled", "var_ms_unweighted"):
        pd.testing.assert_series_equal(getattr(fit, field), pd.Series(expected[field]), rtol=1e-5)


@pytest.mark.parametrize("method", ["Marq", "Port", "L-BFGS-B"])
def test_quirk_18_scale_var_moves_the_optimum_of_every_method(bacteria, method):
    fit = modFit(two_tables(bacteria, scaleVar=True), ["gmax", "eff"], lower=0, method=method)
    expected = case("quirk_scale_Port")["outputs"]
    assert fit.ssr == pytest.approx(expected["ssr"], rel=1e-6)
    np.testing.assert_allclose(fit.par, list(expected["par"].values()), rtol=1e-4)
    pd.testing.assert_series_equal(fit.var_ms, pd.Series(expected["var_ms"]), rtol=1e-3)
    assert abs(fit.par["gmax"] - case("quirk_scale_Marq")["outputs"]["par"]["gmax"]) > 5e-4


@pytest.mark.parametrize("method", ["Port", "BFGS", "Nelder-Mead", "Newton", "bobyqa"])
def test_other_methods_reach_the_bacterias_sum_of_squares(bacteria, method):
    data = table(case("bact_Marq")["inputs"]["problem"]["obs"])
    fit = modFit(fme.SimulationCost(bacteria, data), {"gmax": 0.5, "eff": 0.5}, lower=0, upper=2, method=method)
    assert fit.ssr == pytest.approx(case("bact_Marq")["outputs"]["ssr"], rel=1e-6)


@pytest.mark.parametrize("start", [(2, 10, 5), (0.4, 80, 0.2)])
def test_logistic_growth_by_integration_is_fitted_within_its_bounds(start):
    problem = case("logistic_ode_bounded")["inputs"]["problem"]
    source = case("logistic_Marq")["inputs"]["problem"]
    data = pd.DataFrame({"time": np.array(source["t"], float), "N": source["N"]})
    assert problem["name"] == "logistic_ode"
    model = fme.OdeModel("d(N)/dt = r * N * (1 - N / K)", state={"N": "N0"}, times=np.arange(61.0),
                         parms=dict(zip(("r", "K", "N0"), start, strict=True)), **TIGHT)  # fmt: skip
    cost = fme.SimulationCost(model, data)
    fit = modFit(cost, lower=0, upper={"r": 5, "K": 150, "N0": 10})
    expected = case("logistic_ode_Port")["outputs"]
    check(fit, expected)
    port = modFit(cost, {"r": 0.4, "K": 80, "N0": 0.2}, lower=0, upper={"r": 5, "K": 150, "N0": 10}, method="Port")
    assert port.ssr == pytest.approx(expected["ssr"], rel=1e-6)


# --- HIV: five parameters on the log scale from twice their values


def hiv_rates(t, T, I, V, *, bet, rho, delt, c, lam, n):  # noqa: E741
    return lam - rho * T - bet * T * V, bet * T * V - delt * I, n * delt * I - c * V - bet * T * V


HIV = dict(bet=2e-5, rho=0.15, delt=0.55, c=5.5, lam=80, n=900)
TIMES = np.r_[0, 0.1, 0.2, 0.4, 0.6, 0.8, np.arange(2, 61, 2)]
TRUTH = cases("vignettes")["hiv_fit"]["outputs"]["tight"]


def hiv_data():
    return pd.read_csv(REFERENCE / "data" / "hiv_logv.csv"), pd.read_csv(REFERENCE / "data" / "hiv_t.csv")


def hiv_cost(**tolerances):
    model = fme.OdeModel(
        hiv_rates, state={"T": 100, "I": "(-200750 + c * 50000) / (n * delt)", "V": 50000}, times=TIMES,
        outputs={"logV": "log(V)"}, parms=HIV, **tolerances,
    )  # fmt: skip
    log_v, t_cells = hiv_data()
    cost = fme.SimulationCost(model, t_cells, err="sd") + fme.SimulationCost(model, log_v, err="sd")
    return model, fme.transformed(cost, "log")


def start():
    return {k: np.log(2 * HIV[k]) for k in FIVE}


def test_quirk_25_hiv_from_twice_the_truth_reaches_the_optimum_that_R_misses():
    _, cost = hiv_cost(**TIGHT)
    fit = modFit(cost, start())
    assert fit.ssr == pytest.approx(44.6273131, rel=1e-7)
    for n in FIVE:
        # the reference's own two runs lie 2e-4 standard errors apart
        assert abs(fit.par[n] - TRUTH["par"][n]) < 3e-4 * TRUTH["std_error"][n], n
        assert fit.std_error[n] == pytest.approx(TRUTH["std_error"][n], rel=1e-3), n
    np.testing.assert_allclose(fit.summary().correlation.loc[FIVE, FIVE], TRUTH["correlation"]["matrix"], atol=2e-3)
    pd.testing.assert_series_equal(fit.var_ms_unweighted, pd.Series(TRUTH["var_ms_unweighted"]), rtol=1e-4)
    assert fit.converged, fit.message


def test_quirk_25_hiv_at_default_tolerances_too():
    model, cost = hiv_cost()
    fit = modFit(cost, start())
    assert fit.ssr == pytest.approx(44.627, rel=1e-4)
    assert fit.converged, fit.message
    band = predict(fme.transformed(model, "log"), fit)
    assert band["se"].notna().all()
    assert fit.retries == 0


@pytest.mark.parametrize("log_scale", [True, False])
def test_quirk_25_hiv_by_a_plain_function_through_odeint_at_default_tolerances(log_scale):
    log_v, t_cells = hiv_data()
    at_v, at_t = np.searchsorted(TIMES, log_v.time), np.searchsorted(TIMES, t_cells.time)

    def f(p):
        q = {**HIV, **({k: np.exp(v) for k, v in p.items()} if log_scale else p)}
        y0 = [100, (-200750 + q["c"] * 50000) / (q["n"] * q["delt"]), 50000]
        Y = odeint(lambda y, t: hiv_rates(t, *y, **q), y0, TIMES, rtol=1e-6, atol=1e-6)
        return np.r_[(Y[at_t, 0] - t_cells["T"]) / t_cells.sd, (np.log(Y[at_v, 2]) - log_v.logV) / log_v.sd]

    fit = modFit(f, start() if log_scale else {k: 2 * HIV[k] for k in FIVE})
    assert fit.ssr == pytest.approx(44.6273, rel=1e-4)
    assert fit.converged, fit.message


@pytest.mark.parametrize("method", ["Port", "BFGS", "Newton"])
def test_other_methods_reach_the_hiv_optimum_too(method):
    _, cost = hiv_cost(**TIGHT)
    fit = modFit(cost, start(), method=method)
    assert fit.ssr == pytest.approx(44.6273131, rel=1e-6)


def test_monod_on_two_data_sets_of_one_name_has_two_rows():
    sets = [pd.read_csv(REFERENCE / "data" / f"{n}.csv") for n in ("monod", "monod2")]

    def f(p):
        first = None
        for obs in sets:
            run = pd.DataFrame({"x": obs.x, "y": p["mu"] * obs.x / (obs.x + p["ks"])})
            first = fme.modCost(run, obs, x="x", cost=first)
        return first

    fit = modFit(f, {"mu": 0.1, "ks": 1.0})
    expected = cases("vignettes")["mcmc_monod2_fit"]["outputs"]["fit"]
    assert fit.ssr == pytest.approx(expected["ssr"], rel=1e-8)
    for n in ("mu", "ks"):
        assert fit.par[n] == pytest.approx(expected["par"][n], rel=1e-4)
        assert fit.std_error[n] == pytest.approx(expected["std_error"][n], rel=1e-3)
    assert list(fit.var_ms.index) == ["y", "y"]
    np.testing.assert_allclose(fit.var_ms, expected["var_ms"], rtol=1e-4)


def test_several_starts_of_a_prepared_cost_run_on_processes(bacteria):
    data = table(case("bact_Marq")["inputs"]["problem"]["obs"])
    cost = fme.SimulationCost(bacteria, data)
    arguments = {"lower": 0, "upper": 1, "starts": 3, "seed": 1}
    here = modFit(cost, ["gmax", "eff"], **arguments)
    there = modFit(cost, ["gmax", "eff"], **arguments, executor=2)
    pd.testing.assert_frame_equal(here.starts, there.starts)
    assert here.ssr == pytest.approx(case("bact_Marq")["outputs"]["ssr"], rel=1e-6)


def test_four_experiments_of_one_model_are_fitted_together():
    c = cases("ode")["ccl4_fit"]
    data = fme.datasets.load("ccl4").rename(columns={"ChamberConc": "CP"})
    gas = ccl4_model(c["inputs"]["parms"], [0, 6], rtol=1e-9, atol=1e-9)
    cost = sum(
        fme.SimulationCost(gas.replace(parms={"CONC": dose}), rats[["time", "CP"]], transform="log")
        for dose, rats in data.groupby("initconc")
    )
    assert "CONC" not in cost.parms  # every experiment keeps its own
    expected = c["outputs"]
    assert cost().model == pytest.approx(expected["ssr_at_nominal"], rel=1e-6)
    assert cost(expected["par"]).model == pytest.approx(expected["ssr"], rel=1e-6)
    fit = modFit(cost, {"VMAX": 0.04, "KM": 0.4}, lower=0)
    assert fit.converged, fit.message
    assert fit.nobs == expected["n"]
    assert fit.ssr < expected["ssr"] - 0.01  # R's run stops in the valley, 1.4 standard errors from the optimum


@pytest.mark.parametrize("how", [{"engine": "auto"}, {"engine": "explicit"}, {"engine": "scipy"}, {"method": "RK23"}])
def test_a_fit_does_not_depend_on_the_unit_of_a_state(how):
    def fit(unit):
        times = np.linspace(0.0, 20.0, 21)
        noise = 1 + 0.03 * np.random.default_rng(1).standard_normal(20)
        obs = {"time": times[1:], "N": unit / (1 + 9 * np.exp(-0.8 * times[1:])) * noise}
        text, parms = "d(N)/dt = r*N*(1 - N/K)", {"r": 1.0, "K": 2 * unit, "N0": 0.1 * unit}
        model = fme.OdeModel(text, state={"N": "N0"}, times=times, parms=parms, **how)
        return fme.modFit(fme.SimulationCost(model, obs, weight="std"), ["r", "K"], lower=0)

    one, tiny = fit(1.0), fit(1e-8)
    assert tiny.converged
    assert tiny.solver_error < 0.1
    np.testing.assert_allclose(tiny.par / [1, 1e-8], one.par, rtol=1e-4)
    np.testing.assert_allclose(tiny.std_error / [1, 1e-8], one.std_error, rtol=1e-2)
