"""What chains say of targets whose posterior is known: within 5 Monte Carlo standard errors of it."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy.stats import lognorm, norm, truncnorm

import fmepy as fme
from fmepy.mcmc import modMCMC
from tests.mcmc.problems import (
    BOX,
    FOLDER,
    assert_agrees,
    banana,
    batch_error,
    box_normal,
    by_chain,
    cases,
    monod_residuals,
    normal3,
    quick_two_monods,
)

REFERENCE = cases("modMCMC")
RULES = cases("modMCMC_rules")


def case_of(name):
    case = REFERENCE[name]
    args = case["inputs"]["args"]
    jump = args.get("jump")
    return case, args, np.array(jump["matrix"]) if isinstance(jump, dict) else jump


# --- analytic targets


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("dram", {"updatecov": 100, "niter": 12000, "burninlength": 2000}),
        ("dram", {"updatecov": 100, "niter": 7000, "burninlength": 2000, "ntrydr": 3}),
        ("demcz", {"niter": 5000, "burninlength": 1000}),
        ("emcee", {"niter": 700, "burninlength": 200}),
    ],
    ids=["adaptive", "three tries", "demcz", "emcee"],
)
def test_a_normal_in_three_dimensions(method, settings):
    chain = modMCMC(normal3, [0, 1, 2], jump=0.5, method=method, seed=1, **settings)
    exact = REFERENCE["normal3"]["outputs"]["exact"]
    for k in range(3):
        assert_agrees(by_chain(chain.pars.iloc[:, k]), exact["mean"][k], exact["sd"][k])


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("dram", {"updatecov": 10, "niter": 15000, "burninlength": 500}),
        ("dram", {"ntrydr": 3, "niter": 10000, "drscale": 0.3}),
        ("demcz", {"niter": 5000, "burninlength": 500}),
        ("emcee", {"niter": 900, "burninlength": 200}),
    ],
    ids=["adaptive", "three tries", "demcz", "emcee"],
)
def test_a_normal_in_a_box(method, settings):
    chain = modMCMC(box_normal, [0.9, 2.1, 2.9], jump=0.5, method=method, seed=2, **BOX, **settings)
    exact = REFERENCE["normal3_bounded"]["outputs"]["exact"]
    for k in range(3):
        assert_agrees(by_chain(chain.pars.iloc[:, k]), exact["mean"][k], exact["sd"][k])
    assert (chain.pars.to_numpy() >= BOX["lower"]).all()
    assert (chain.pars.to_numpy() <= BOX["upper"]).all()


def test_a_prior_moves_a_normal():
    exact = REFERENCE["normal1_dr"]["outputs"]["exact"]
    chain = modMCMC(lambda p: float((p[0] - 10) ** 2), 1.0, jump=5, prior=lambda p: (p[0] - 8) ** 2, ntrydr=2,
                    niter=8000, burninlength=100, seed=3)  # fmt: skip
    assert_agrees(by_chain(chain.pars["p1"]), exact["mean"], exact["sd"])


@pytest.mark.parametrize("method", ["dram", "demcz"])
def test_log_normals(method):
    def nl(p):
        z = np.log(p) - np.array([1.0, 2, 3, 4])
        return float(z @ z + 2 * np.sum(np.log(p)))

    p = np.array([1.3, 2.0, 0.4, 9.0])
    assert nl(p) - nl(np.ones(4)) == pytest.approx(
        -2
        * (
            lognorm.logpdf(p, 1, scale=np.exp([1, 2, 3, 4])) - lognorm.logpdf(np.ones(4), 1, scale=np.exp([1, 2, 3, 4]))
        ).sum()
    )
    settings = {"ntrydr": 2, "niter": 20000, "updatecov": 500} if method == "dram" else {"niter": 12000}
    chain = modMCMC(nl, np.ones(4), jump=2.0 ** np.arange(2, 6), lower=1e-300, burninlength=2000, method=method, seed=4,
                    **settings).transform(np.log)  # fmt: skip
    for k in range(4):
        assert_agrees(by_chain(chain.pars.iloc[:, k]), k + 1, 1.0)


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("dram", {"niter": 20000}),
        ("dram", {"niter": 12000, "ntrydr": 2, "updatecov": 100, "burninlength": 2000}),
        ("demcz", {"niter": 9000, "burninlength": 1000}),
        ("emcee", {"niter": 3000, "burninlength": 500}),
    ],
    ids=["metropolis", "dram", "demcz", "emcee"],
)
def test_the_banana_is_a_normal_when_straightened(method, settings):
    chain = modMCMC(banana, [0, 0.5], jump=5 * np.eye(2), method=method, seed=5, **settings)
    y1, y2 = by_chain(chain.pars["p1"]), by_chain(chain.pars["p2"])
    straight = y2 - y1**2 - 1
    assert_agrees(y1, 0, 1)
    assert_agrees(straight, 0, 1)
    product = y1 * straight
    assert abs(product.mean() - 0.9) < 5 * batch_error(product)


# --- the Monod model, by quadrature


@pytest.mark.parametrize("name", ["monod_fixed_sigma", "monod_sampled_sigma_w1", "monod_prior"])
def test_monod_by_quadrature(name):
    case, args, jump = case_of(name)
    settings = {k: args[k] for k in ("lower", "upper", "var0", "wvar0", "n0") if k in args}
    if "prior" in args:
        settings["prior"] = {"mumax": norm(0.15, 0.01), "ks": norm(60, 10)}
    settings |= {"niter": 20000, "burninlength": 1000, "updatecov": 200}
    chain = modMCMC(monod_residuals, case["inputs"]["p"], jump=jump, seed=6, **settings)
    exact = case["outputs"]["exact"]
    for k in ("mumax", "ks"):
        assert_agrees(by_chain(chain.pars[k]), exact["mean"][k], exact["sd"][k])
        for q, value in zip(exact["quantiles"]["probs"], exact["quantiles"][k], strict=True):
            below = (chain.pars[k] <= value).to_numpy(dtype=float)
            assert abs(below.mean() - q) < 5 * batch_error(below), (k, q)
    if "extra" in exact:
        assert_agrees(by_chain(chain.sig["var_model"]), exact["extra"]["mean_sigma2"])


@pytest.mark.parametrize("method", ["dram", "demcz", "emcee"])
def test_two_variances_by_quadrature(method):
    case, args, jump = case_of("monod2_two_var0")
    settings = {"dram": {"niter": 15000, "updatecov": 200}, "demcz": {"niter": 6000}, "emcee": {"niter": 1000}}[method]
    chain = modMCMC(quick_two_monods(case), case["inputs"]["p"], jump=jump, lower=0, var0=args["var0"], wvar0=0.1,
                    burninlength=400, method=method, seed=7, **settings)  # fmt: skip
    exact = case["outputs"]["exact"]
    for k in ("mumax", "ks"):
        assert_agrees(by_chain(chain.pars[k]), exact["mean"][k], exact["sd"][k])
    for v in ("y", "z"):
        assert_agrees(by_chain(chain.sig[f"var_{v}"]), exact["extra"][f"mean_sigma2_{v}"])


# --- a linear model: everything in closed form


@pytest.mark.parametrize("method", ["dram", "demcz", "emcee"])
def test_a_linear_model_with_a_sampled_variance_is_as_in_closed_form(method):
    rng = np.random.default_rng(0)
    A = np.column_stack([np.ones(12), np.linspace(-1, 1, 12)])
    y = A @ [1.0, 2.0] + 0.3 * rng.standard_normal(12)
    b = np.linalg.lstsq(A, y, rcond=None)[0]
    S = float(np.sum((y - A @ b) ** 2))
    n0, var0, df = 6.0, 0.2, 6.0 + 12 - 2
    mean_variance = (n0 * var0 + S) / (df - 2)
    cov = mean_variance * np.linalg.inv(A.T @ A)
    settings = {
        "dram": {"niter": 15000, "updatecov": 200, "ntrydr": 2},
        "demcz": {"niter": 6000},
        "emcee": {"niter": 900},
    }
    chain = modMCMC(lambda p: A @ p - y, b, jump=cov * 2, var0=var0, n0=n0, burninlength=300, method=method, seed=8,
                    **settings[method])  # fmt: skip
    for k in range(2):
        assert_agrees(by_chain(chain.pars.iloc[:, k]), b[k], np.sqrt(cov[k, k]))
    sd_variance = mean_variance * np.sqrt(2 / (df - 4))
    assert_agrees(by_chain(chain.sig["var_model"]), mean_variance, sd_variance)
    assert chain.bestpar.to_numpy() == pytest.approx(b, abs=0.05)


# --- how often moves are accepted


@pytest.mark.parametrize(
    ("name", "f"),
    [
        ("accept_n3", normal3), ("accept_n3_am", normal3), ("accept_am_burnin", normal3),
        ("accept_banana_mh", banana), ("accept_banana_am", banana), ("accept_banana_dr", banana),
        ("accept_banana_dram", banana), ("accept_monod", monod_residuals), ("accept_monod_dr3am", monod_residuals),
        ("accept_n1", lambda p: float((p[0] - 10) ** 2)),
    ],
)  # fmt: skip
def test_moves_are_accepted_as_often_as_in_r(name, f):
    case = RULES[name]
    args = dict(case["inputs"]["args"])
    if isinstance(args["jump"], dict):
        args["jump"] = args["jump"]["matrix"]
    chain = modMCMC(f, case["inputs"]["p"], seed=9, **args)
    for what in ("num_accepted", "dr_steps", "Alfasteps"):
        low, high = case["outputs"]["min"][what], case["outputs"]["max"][what]
        if name == "accept_n3_am":
            high *= 1.5  # R adapts in saved rows, a fifth as often: its narrow proposal comes late, and so do moves
        assert 0.7 * low <= chain.count[what][0] <= 1.3 * high, (what, chain.count[what][0], low, high)


# --- data sets


def test_the_bacteria_of_the_vignette():
    case = cases("modMCMC_models")["bacteria_sampled"]
    args, long = case["inputs"]["args"], case["outputs"]["long_chain"]

    def bacteria(t, Bact, Sub, *, gmax=0.5, eff=0.5, ks=0.5, rB=0.01, dB=0.01):
        uptake = gmax * Sub / (Sub + ks) * Bact
        return eff * uptake - (dB + rB) * Bact, -uptake + dB * Bact

    model = fme.OdeModel(bacteria, state={"Bact": 0.1, "Sub": 100}, times=np.arange(0, 50.5, 0.5), rtol=1e-8, atol=1e-8)
    cost = fme.SimulationCost(model, pd.read_csv(FOLDER / "data" / "bacteria.csv"))
    chain = modMCMC(cost, case["inputs"]["p"], jump=np.array(args["jump"]["matrix"]), var0=args["var0"], wvar0=1,
                    updatecov=200, burninlength=500, niter=4500, seed=10)  # fmt: skip
    for name in ("gmax", "eff"):
        x, error = chain.pars[name].to_numpy(), long["mcse_mean"][name]
        assert abs(x.mean() - long["mean"][name]) < 5 * np.hypot(batch_error(x), error)
        assert x.std() == pytest.approx(long["sd"][name], rel=0.2)
    assert chain.failures == 0


def test_hiv_of_the_vignette():
    case = cases("modMCMC_hiv")["hiv_sampled"]
    args, long = case["inputs"]["args"], case["outputs"]["long_chain"]

    def rates(t, T, I, V, *, bet, rho, delt, c, lam, n):  # noqa: E741
        return lam - rho * T - bet * T * V, bet * T * V - delt * I, n * delt * I - c * V - bet * T * V

    model = fme.OdeModel(rates, state={"T": 100, "I": "(-200750 + c * 50000) / (n * delt)", "V": 50000},
                         times=np.r_[0, 0.1, 0.2, 0.4, 0.6, 0.8, np.arange(2, 61, 2)], outputs={"logV": "log(V)"},
                         parms={"bet": 2e-5, "rho": 0.15, "delt": 0.55, "c": 5.5, "lam": 80, "n": 900},
                         rtol=1e-8, atol=1e-8)  # fmt: skip
    data = [pd.read_csv(FOLDER / "data" / f"hiv_{k}.csv") for k in ("logv", "t")]
    cost = fme.transformed(
        fme.SimulationCost(model, data[0], err="sd") + fme.SimulationCost(model, data[1], err="sd"), "log"
    )
    chain = modMCMC(cost, case["inputs"]["p"], jump=np.array(args["jump"]["matrix"]), var0=args["var0"], wvar0=0.1,
                    updatecov=50, burninlength=1000, niter=6000, ntrydr=2, seed=11)  # fmt: skip
    assert list(chain.sig.columns) == ["var_logV", "var_T"]
    for name in case["inputs"]["p"]:
        x, error = chain.pars[name].to_numpy(), long["mcse_mean"][name]
        assert abs(x.mean() - long["mean"][name]) < 5 * np.hypot(batch_error(x), error), name
        assert x.std() == pytest.approx(long["sd"][name], rel=0.25)


def test_the_reference_files_say_where_they_come_from():
    for name in ("modMCMC", "modMCMC_exact", "modMCMC_rules", "modMCMC_hiv", "modMCMC_models"):
        assert "FME" in json.dumps(json.loads((FOLDER / f"{name}.json").read_text())["made_with"])


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("nuts", {"niter": 1300, "burninlength": 300, "chains": 2}),
        ("dram", {"niter": 40000, "burninlength": 5000}),
    ],
)
def test_hares_and_lynxes_as_posteriordb_has_them(method, settings):
    path = FOLDER.parent / "posteriordb" / "hudson_lynx_hare-lotka_volterra.json"
    (case,) = json.loads(path.read_text())["cases"]
    data, known = fme.datasets.load("lynx_hare").rename(columns=str.lower), case["outputs"]
    data["time"] = data.pop("year") - 1900.0
    model = fme.OdeModel(
        """
        dhare/dt = (alpha - beta * lynx) * hare
        dlynx/dt = (delta * hare - gamma) * lynx
        """,
        state={"hare": "hare0", "lynx": "lynx0"}, times=data["time"],
        parms={"alpha": 0.6, "beta": 0.03, "gamma": 0.8, "delta": 0.03, "hare0": 30.0, "lynx0": 5.0},
    )  # fmt: skip
    noise = {"hare": "sd_hare", "lynx": "sd_lynx"}
    sds = {"sd_hare": 0.25, "sd_lynx": 0.25}
    cost = fme.SimulationCost(model, data, measurement_noise=noise, likelihood="log-normal", parms=sds)
    prior = dict.fromkeys(("alpha", "gamma"), truncnorm(-2, np.inf, loc=1, scale=0.5))
    prior |= dict.fromkeys(("beta", "delta"), truncnorm(-1, np.inf, loc=0.05, scale=0.05))
    prior |= dict.fromkeys(("sd_hare", "sd_lynx"), lognorm(1, scale=np.exp(-1)))
    prior |= dict.fromkeys(("hare0", "lynx0"), lognorm(1, scale=10))
    fit = fme.modFit(cost, cost.parms)
    chain = fme.modMCMC(cost, fit, prior=prior, method=method, seed=1, **settings)
    draws, found = chain.pars[known["names"]], chain.diagnostics().loc[known["names"]]
    mean, mean_square = np.array(known["mean"]), np.array(known["mean_square"])
    sd, draws_of_stan = np.sqrt(mean_square - mean**2), 10_000
    effective = 1 / (1 / found["ess_bulk"] + 1 / draws_of_stan)
    assert (found["ess_bulk"] > 300).all()
    assert (np.abs(draws.mean() - mean) < 4 * sd / np.sqrt(effective)).all()
    assert draws.std().to_numpy() == pytest.approx(sd, rel=0.15)
