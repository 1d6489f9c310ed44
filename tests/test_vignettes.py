"""The vignettes run from end to end, and say what was published."""

from __future__ import annotations

import importlib.util
from types import ModuleType

import numpy as np
import pandas as pd
import pytest

import fmepy as fme
from fmepy import datasets


def vignette(root, name) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, root / "vignettes" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def lynx_hare(root) -> ModuleType:
    return vignette(root, "lynx_hare")


@pytest.fixture(scope="module")
def run(lynx_hare, tmp_path_factory):
    folder = tmp_path_factory.mktemp("results") / "lynx_hare"
    return lynx_hare.main(folder), folder


def test_the_estimates_lie_within_one_standard_error_of_the_published(run, lynx_hare):
    table = pd.read_csv(run[1] / "estimates.csv", index_col="parameter")
    assert table["published"].dropna().to_dict() == {"alpha": 0.55, "beta": 0.028, "gamma": 0.80, "delta": 0.024}
    rates = table.loc[["alpha", "beta", "gamma", "delta"]]
    assert (rates["estimate"] - rates["published"]).abs().lt(rates["std_error"]).all()
    assert table.index.tolist() == ["alpha", "beta", "gamma", "delta", "Hare0", "Lynx0"] or len(table) == 6


def test_the_fit_converged_inside_its_bounds_at_a_minimum(run, lynx_hare):
    fit, _ = run
    estimate = np.exp(fit.par)
    assert fit.converged
    assert all(lynx_hare.LOWER[k] < estimate[k] < lynx_hare.UPPER[k] for k in estimate.index)


def test_the_sum_of_squares_is_that_of_the_equations(run):
    """Independent of the package: the same equations, the same data, scipy alone."""
    from scipy.integrate import solve_ivp

    fit, _ = run
    q, pelts = np.exp(fit.par), datasets.load("lynx_hare")

    def rates(t, y):
        return [y[0] * (q["alpha"] - q["beta"] * y[1]), y[1] * (q["delta"] * y[0] - q["gamma"])]

    years = pelts["year"].to_numpy(float)
    path = solve_ivp(rates, (1900, 1920), [q["Hare0"], q["Lynx0"]], t_eval=years, rtol=1e-9, atol=1e-9).y.T
    ssr = np.sum((np.log(path) - np.log(pelts[["Hare", "Lynx"]].to_numpy())) ** 2)
    assert fit.ssr == pytest.approx(ssr, rel=1e-4)


def test_tables_and_pictures_are_written(run):
    _, folder = run
    pictures = {p.name for p in folder.iterdir() if p.suffix in (".png", ".svg")}
    assert pictures == {f"{stem}{end}" for stem in ("first_guess", "fit", "phases") for end in (".png", ".svg")}
    for path in folder.iterdir():
        assert path.stat().st_size > 200
        if path.suffix == ".csv":
            assert len(pd.read_csv(path)) >= 6
    assert len(pd.read_csv(folder / "residuals.csv")) == 42


def test_it_prints_the_summary_and_where_things_are(lynx_hare, tmp_path, capsys):
    lynx_hare.main(tmp_path / "here")
    text = capsys.readouterr().out
    for part in ("Hewitt 1921", "Std. Error", "Residual standard error", str(tmp_path / "here"), "estimates.csv"):
        assert part in text


def test_one_datum_altered_changes_the_estimates(run, lynx_hare, tmp_path, capsys):
    pelts = datasets.load("lynx_hare")
    pelts["Hare"] = pelts["Hare"].where(pelts["year"] != 1907, 2 * pelts["Hare"])
    other = lynx_hare.main(tmp_path, pelts)
    assert (np.abs(other.par - run[0].par) > 1e-3).any()


def test_the_screening_of_hiv_finds_what_can_be_told_apart(root, tmp_path, capsys):
    found = vignette(root, "hiv_screening").main(tmp_path)
    # the same model and design in R: sensitivities do not depend on the data; exact 14.9 for the five
    assert found["five"] == pytest.approx(14.9, abs=0.1)
    frame = found["collinearity"].frame
    assert frame.loc[frame["N"] == 6, "collinearity"].item() > 20
    assert found["fit"].converged
    assert found["fit"].ssr == pytest.approx(found["fit"].df_residual, rel=0.5)  # errors are as large as told
    assert not len(found["doses"].failures)
    assert "Largest identifiable sets: 1 of 5 parameters" in capsys.readouterr().out
    for name in ("sensitivities", "collinearity", "ranges", "mean_virus"):
        assert (tmp_path / f"{name}.png").stat().st_size > 10_000
        assert (tmp_path / f"{name}.svg").exists()


def test_the_chains_of_monod_are_those_of_quadrature(root, tmp_path, capsys):
    module = vignette(root, "monod_mcmc")
    found = module.main(tmp_path)
    chain = found["chain"]
    # the variance integrated out by hand: the posterior of the parameters is (n0 var0 + SS)^-((n0 + n) / 2), n0 = n
    mumax, ks = np.meshgrid(np.linspace(0, 0.8, 801)[1:], np.linspace(0, 900, 901)[1:], indexing="ij")
    x, y = module.OBS["x"].to_numpy(), module.OBS["y"].to_numpy()
    SS = ((mumax[..., None] * x / (x + ks[..., None]) - y) ** 2).sum(axis=-1)
    var0 = found["fit"].ssr / found["fit"].df_residual
    weight = (7 * var0 + SS) ** -7.0
    weight /= weight.sum()
    error = chain.diagnostics()["mcse"]
    for name, grid in (("mumax", mumax), ("ks", ks)):
        assert abs(chain.pars[name].mean() - (weight * grid).sum()) < 5 * error[name], name
    mean_variance = (weight * (7 * var0 + SS) / 12).sum()  # of an inverse gamma
    assert chain.sig["var_model"].mean() == pytest.approx(mean_variance, rel=0.05)
    assert not chain.summary().advice
    wider = found["readings"].frame["q95"] - found["readings"].frame["q05"]
    assert (wider > found["band"].frame["q95"] - found["band"].frame["q05"]).all()
    assert "The banana" in capsys.readouterr().out
    for name in ("traces", "pairs", "bands", "bananas"):
        assert (tmp_path / f"{name}.png").stat().st_size > 10_000
        assert (tmp_path / f"{name}.svg").exists()


def test_every_way_through_the_banana_finds_it_and_adapting_pays(root):
    module = vignette(root, "monod_mcmc")
    chains = module.sample_banana()
    for name, chain in chains.items():
        bend = chain.pars["x2"] - chain.pars["x1"] ** 2 - 1  # standard normal, as x1
        assert abs(chain.pars["x1"].mean()) < 0.4, name
        assert chain.pars["x1"].std() == pytest.approx(1, abs=0.3), name
        assert np.corrcoef(chain.pars["x1"], bend)[0, 1] == pytest.approx(0.9, abs=0.05), name
    table = module.compared(chains)
    assert table["evaluations"]["DRAM"] > 10_000
    assert table["per 1000 evaluations"]["adaptive"] > table["per 1000 evaluations"]["fixed proposal"]


def test_three_ways_to_fit_a_noisy_system_are_right_where_they_should_be(root, tmp_path, capsys):
    module = vignette(root, "three_ways")
    table = module.main(tmp_path)["table"]
    error, scatter, coverage = table["median_error"], table["robust_sd"], table["coverage"]
    standard_error = 1.2533 * scatter / np.sqrt(module.REPLICATES)  # of a median

    fimlof = error.xs("FIMLOF", level="method")
    small_sample = (1 + 3 * module.A) / module.STEPS  # bias of an autoregression, Kendall 1954
    assert (fimlof.abs() < 3 * standard_error.xs("FIMLOF", level="method") + small_sample).all()
    assert coverage.xs("FIMLOF", level="method").mean() == pytest.approx(0.95, abs=3 * np.sqrt(0.05 * 0.95 / 160))
    # attenuation of one-step least squares by Var x / (Var x + Var v), where the decay from 10 hardly counts
    for sd_w, sd_v in ((2.0, 2.0), (2.0, 0.5), (0.5, 2.0)):
        size = sd_w**2 / (1 - module.A**2) + module.X0**2 / (1 - module.A**2) / module.STEPS
        expected = -module.A * sd_v**2 / (size + sd_v**2)
        assert error[sd_w, sd_v, "one-step"] == pytest.approx(expected, abs=0.1), (sd_w, sd_v)
    assert error[0.0, 2.0, "one-step"] < -0.6
    # where a simple way is right, FIMLOF agrees with it, and simulation scatters more where the system is noisy
    assert scatter[0.0, 2.0, "FIMLOF"] == pytest.approx(scatter[0.0, 2.0, "simulation"], rel=0.3)
    assert scatter[2.0, 0.0, "FIMLOF"] == pytest.approx(scatter[2.0, 0.0, "one-step"], rel=0.3)
    assert scatter[2.0, 0.0, "simulation"] > 8 * scatter[2.0, 0.0, "FIMLOF"]
    held = coverage[[0.5, 2.0]].xs("simulation", level="method").mean()
    assert 0.7 < held < 0.85
    assert f"With process noise, 95 % intervals held A: simulation {held:.0%}" in capsys.readouterr().out
    assert (tmp_path / "errors.png").stat().st_size > 10_000


def test_three_ways_do_not_depend_on_the_number_of_workers(root, tmp_path):
    from concurrent.futures import ThreadPoolExecutor

    module = vignette(root, "three_ways")
    with ThreadPoolExecutor(2) as pool:
        here, there = (module.main(tmp_path, 1, executor)["estimates"] for executor in (None, pool))
    pd.testing.assert_frame_equal(here, there)


def test_market_growth_is_found_by_filtering_and_not_by_the_simple_ways(root, tmp_path, capsys):
    found = vignette(root, "market_growth").main(tmp_path)
    assert found["fits"]["20 histories"]["FIMLOF"].converged
    for which in ("one history", "20 histories"):
        parameters, functions = found[which]["parameters"], found[which]["functions"]
        for table in (parameters, functions):
            assert (table["FIMLOF"].abs() < 3 * table["std_error"]).all()
        # one-step least squares fails where it must, and does not do better with twenty times the data
        assert -65 < parameters.loc["SAT", "one-step"] < -45
        assert parameters.loc[["CEF1", "CEF2", "CEF3", "CEF4"], "one-step"].between(-67, -33).all()
        assert 0 < found[which]["gain"] < 20  # chi2_13 / 2
        memory = found[which]["memory"]
        assert memory["one-step"].between(-0.6, -0.2).all()
        assert (memory["FIMLOF"].abs() < 0.15).all()
    one, many = found["one history"], found["20 histories"]
    assert one["functions"]["std_error"].max() < 10
    assert many["functions"]["std_error"].max() < 2
    ratio = one["parameters"]["std_error"] / many["parameters"]["std_error"]
    assert (ratio > np.sqrt(20) / 1.5).all()  # the first history is a dull one
    error = many["functions"].abs()
    assert error["FIMLOF"].median() < 1
    assert error["one-step"].median() > 5 * error["FIMLOF"].median()
    assert error["one-step"].median() < error["simulation"].median()
    assert "log L at the estimate" in capsys.readouterr().out
    for name in ("histories", "functions"):
        assert (tmp_path / f"{name}.png").stat().st_size > 10_000


def test_one_step_least_squares_of_market_growth_are_the_stored_ones(root):
    """Other weights of the equations were used there: they matter little, and not at all where an equation is alone."""
    from tests.fimlof.market import stored

    module = vignette(root, "market_growth")
    reference, data = stored("single")
    sd = pd.Series(reference["measurement"]["sd"], reference["state_order"])
    cost = module.one_step_cost(module.make_model(), data, sd)
    fit = fme.modFit(cost, reference["params"], lower=module.LOWER, hessian=False)
    expected = pd.Series(reference["expected"]["one_step_least_squares"])
    assert fit.par.to_dict() == pytest.approx(expected.to_dict(), rel=0.02)
    alone = ["CEF1", "CEF2", "CEF3", "CEF4", "SAT"]
    assert fit.par[alone].to_dict() == pytest.approx(expected[alone].to_dict(), rel=1e-5)


def test_the_nile_has_the_estimates_of_the_literature_and_a_jump_in_1899(root, tmp_path, capsys):
    module = vignette(root, "nile")
    found = module.main(tmp_path)
    fit, jumped, flt = found["fit"], found["fit_jump"], found["filter"]
    assert (fit.par**2).to_dict() == pytest.approx({"sd_w": 1469.1, "sd_v": 15099}, rel=2e-4)  # Durbin and Koopman
    assert fit.loglik == pytest.approx(-632.5456, abs=1e-4)
    assert flt.correlations(10, estimated=fit.par).p_value > 0.2
    assert found["year"] == module.YEAR
    assert found["filter"].shocks["AUXS"].abs().max() == pytest.approx(3.23, abs=0.01)
    # with the jump and no other noise: two means
    years, flow = (fme.datasets.load("Nile")[k].to_numpy() for k in ("year", "flow"))
    before, after = flow[years < 1899], flow[years >= 1899]
    assert jumped.par["sd_w"] == 0
    assert jumped.par["jump"] == pytest.approx(after.mean() - before.mean(), rel=1e-5)
    variance = (before.var() * len(before) + after.var() * len(after)) / 99
    assert jumped.par["sd_v"] ** 2 == pytest.approx(variance, rel=1e-4)
    expected = np.sqrt(variance * (1 / len(before) + 1 / len(after)))
    assert jumped.std_error["jump"] == pytest.approx(expected, rel=1e-3)
    assert jumped.loglik - fit.loglik == pytest.approx(10.17, abs=0.01)
    test = found["comparison"].tests.iloc[0]
    assert test["LR"] == pytest.approx(2 * (jumped.loglik - fit.loglik), abs=1e-9)
    wanders, stays = (f.frame.query("name == 'flow'") for f in found["forecast"].values())
    assert stays["mean"].to_numpy() == pytest.approx(after.mean(), rel=1e-6)
    assert stays["sd"].to_numpy() == pytest.approx(np.sqrt(variance / len(after)), rel=1e-3)
    assert wanders["sd"].is_monotonic_increasing
    text = capsys.readouterr().out
    for part in ("Variances 1469.2 and 15098.5", "1899, 3.23 sd", "no correlation is left in the innovations"):
        assert part in text
    for name in ("levels", "shocks", "diagnostics", "forecast"):
        assert (tmp_path / f"{name}.png").stat().st_size > 10_000


def test_theophylline_by_subject_is_the_published_fit(root, tmp_path, capsys):
    from scipy.optimize import curve_fit

    found = vignette(root, "theophylline").main(tmp_path)
    assert found["sigma"] == pytest.approx(0.7001921, abs=1e-5)  # nlsList, Pinheiro and Bates 2000
    theo = fme.datasets.load("Theoph")
    dose, pooled = (theo["Dose"] * theo["Wt"]).to_numpy(), found["fits"]["pooled"]

    def closed_form(t, ka, ke, V, dose):
        return dose * ka / (V * (ka - ke)) * (np.exp(-ke * t) - np.exp(-ka * t))

    by_hand, cov = curve_fit(lambda t, *p: closed_form(t, *p, dose), theo["Time"], theo["conc"], [1.5, 0.08, 30.0])
    np.testing.assert_allclose(pooled.par, by_hand, rtol=1e-4)
    np.testing.assert_allclose(pooled.std_error, np.sqrt(np.diag(cov)), rtol=1e-3)
    for label, part in theo.groupby("Subject"):
        own = curve_fit(lambda t, *p, d=part: closed_form(t, *p, (d["Dose"] * d["Wt"]).iloc[0]), part["Time"],
                        part["conc"], found["by_subject"].loc[label, ["ka", "ke", "V"]])[0]  # fmt: skip
        np.testing.assert_allclose(found["by_subject"].loc[label, ["ka", "ke", "V"]], own, rtol=1e-3)
    assert found["comparison"].frame["dAIC"]["by subject"] == 0
    assert "0.7002 mg/l on 96 degrees" in capsys.readouterr().out
    for name in ("curves", "estimates", "residuals"):
        assert (tmp_path / f"{name}.png").stat().st_size > 10_000


def test_twelve_rats_share_the_chemistry(root, tmp_path, capsys):
    found = vignette(root, "ccl4_rats").main(tmp_path)
    cost, fits = found["cost"], found["fits"]
    assert len(cost.models) == 4
    assert cost({"VMAX": 0.209206777547771, "KM": 3.82958236534001}).model == pytest.approx(1.73590129964688, rel=1e-4)
    assert fits["shared"].ssr < 1.7359 - 0.01  # FME's run stops in the valley
    assert fits["shared"].converged
    assert fits["own"].converged
    assert fits["own"].ssr == pytest.approx(0.1130, rel=1e-2)
    assert found["by_animal"].index.tolist() == list("ABCDEFGHIJKL")
    assert "Runs of the model for twelve rats: 4" in capsys.readouterr().out
    for name in ("curves", "residuals_own", "residuals_shared"):
        assert (tmp_path / f"{name}.png").stat().st_size > 10_000


def test_which_cost_is_right_on_which_record(root, tmp_path, capsys):
    found = vignette(root, "which_cost").main(tmp_path)
    table = found["table"]
    published = [
        ("quiet", "simulation", 0.9985, 0.001317),
        ("quiet", "fixed gain", 1.0010, 0.01890),
        ("quiet", "FIMLOF", 1.0003, 0.001318),
        ("shaken", "prediction", 0.9849, 0.02110),
        ("shaken", "FIMLOF", 0.9911, 0.01461),
        ("both", "prediction", 1.0520, 0.07240),
        ("both", "FIMLOF", 0.9970, 0.04033),
        ("chaotic", "prediction", 0.9990, 0.003337),
        ("chaotic", "FIMLOF", 1.0031, 0.008047),
        ("chaotic", "shooting", 0.9990, 0.003323),
    ]
    for record, way, stiffness, error in published:
        row = table.loc[(record, way)]
        assert row["stiffness"] == pytest.approx(stiffness, rel=5e-3), (record, way)
        assert row["se_stiffness"] == pytest.approx(error, rel=9e-3), (record, way)
    wrong = [("shaken", "simulation"), ("shaken", "shooting"), ("both", "simulation"), ("both", "shooting"),
             ("chaotic", "simulation")]  # fmt: skip
    off = (table["stiffness"] - 1).abs() / table["se_stiffness"]
    assert sorted(off.index[off > 3]) == sorted(wrong)
    assert table["rho_1"]["quiet", "simulation"] == pytest.approx(-0.0868, abs=5e-4)
    assert table["rho_1"]["shaken", "simulation"] == pytest.approx(0.9121, abs=5e-3)
    minima = {way: len(scape.minima) for way, scape in found["landscapes"].items()}
    assert minima["fixed gain"] == 1
    assert minima["simulation"] > 25  # how many exactly, along a chaotic record, is a matter of last bits
    page = (root / "docs" / "which_cost.md").read_text()
    printed = capsys.readouterr().out
    for number in ("0.9985", "0.0013", "0.0189", "-0.0868", "1.3307", "0.9121", "0.0403", "0.0724"):
        assert number in page
        assert number in printed
    for name in ("quiet", "shaken", "both", "chaotic"):
        assert f"which_cost_{name}.png" in page
        assert 10_000 < (root / "docs" / f"which_cost_{name}.png").stat().st_size < 100_000
        assert (tmp_path / f"{name}.png").stat().st_size > 10_000
