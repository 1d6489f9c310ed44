"""What R's modMCMC does otherwise, and what is done here; numbers as in the notes on FME's semantics, section 12."""

import numpy as np
import pandas as pd
import pytest

import fmepy as fme
from fmepy.costs.user_function import as_objective
from fmepy.mcmc import modMCMC
from fmepy.mcmc.proposals import as_jump
from fmepy.mcmc.target import variances
from tests.mcmc.problems import (
    BOX,
    MONOD,
    PlainCost,
    assert_agrees,
    box_normal,
    by_chain,
    cases,
    monod_residuals,
    normal3,
    quick_two_monods,
    two_monods,
)

REFERENCE = cases("modMCMC")


def matrix(table):
    return np.array(table["matrix"], dtype=float)


def monod_cost(p):
    x = MONOD["x"].to_numpy(dtype=float)
    data = MONOD.assign(err=0.0108019290492526)
    return fme.modCost(pd.DataFrame({"x": x, "y": p["mumax"] * x / (x + p["ks"])}), data, x="x", err="err")


def test_quirk_27_a_modcost_without_var0_samples_the_likelihood_not_its_root():
    case = REFERENCE["quirk_modcost_no_var0"]
    start = case["inputs"]["p"]
    one = modMCMC(monod_cost, start, jump=matrix(case["inputs"]["args"]["jump"]), lower=0, niter=3, seed=1)
    last = one.pars.iloc[-1].to_dict()
    assert one.SS.iloc[-1] == pytest.approx(2 * monod_cost(last).minlogp, rel=1e-12)
    # its statistics, on a prepared cost of the same residuals
    cost = PlainCost(
        lambda t: -monod_residuals(t) / 0.0108019290492526, start, [0] * 7, ["y"], np.full(7, 1 / 0.0108019290492526)
    )
    jump = matrix(case["inputs"]["args"]["jump"]) / 2
    chain = modMCMC(cost, start, jump=jump, lower=0, niter=12000, burninlength=500, seed=2)
    exact = case["outputs"]["exact"]["posterior"]
    for name in ("mumax", "ks"):
        assert_agrees(by_chain(chain.pars[name]), exact["mean"][name], exact["sd"][name])
    half = case["outputs"]["exact"]["half_power_as_R"]["sd"]["mumax"]
    assert chain.pars["mumax"].std() < 0.5 * (half + exact["sd"]["mumax"])


def test_quirk_28_one_var0_pools_the_data_of_all_variables():
    case = REFERENCE["quirk_monod2_one_var0"]
    args, exact = case["inputs"]["args"], case["outputs"]["exact"]
    few = modMCMC(two_monods(case), case["inputs"]["p"], jump=matrix(args["jump"]), var0=args["var0"], wvar0=0.1,
                  niter=3, seed=1)  # fmt: skip
    n = len(case["inputs"]["problem"]["x"]) + len(case["inputs"]["problem"]["x2"])
    assert few.settings["N"].tolist() == [n]
    assert few.settings["n0"].tolist() == [pytest.approx(0.1 * n)]
    chain = modMCMC(quick_two_monods(case), case["inputs"]["p"], jump=matrix(args["jump"]), lower=0, var0=args["var0"],
                    wvar0=0.1, niter=12000, burninlength=500, updatecov=200, seed=3)  # fmt: skip
    for name in ("mumax", "ks"):
        assert_agrees(by_chain(chain.pars[name]), exact["mean"][name], exact["sd"][name])
    assert_agrees(by_chain(chain.sig["var_model"]), exact["extra"]["mean_sigma2"])


def test_quirk_29_a_variance_per_datum_has_one_datum():
    objective = as_objective(monod_residuals, [0.15, 49.0])
    v = variances(objective, np.full(7, 1e-4), 1, None)
    assert v.grouping == "datum"
    assert v.N.tolist() == [1.0] * 7
    assert v.n0.tolist() == [1.0] * 7


def test_quirk_30_the_recorded_variance_is_the_current_draw():
    chain = modMCMC(monod_residuals, [0.145, 49.0], jump=1e5, var0=1e-4, wvar0=1, niter=400, seed=1)
    assert chain.acceptance_rate[0] < 0.05  # the parameters stand still
    assert chain.sig["var_model"].nunique() == 400
    # at rest the draws are those of an inverse gamma: mean rate / (shape - 1)
    rest = chain.SS.mode()[0] == chain.SS
    shape, rate = 0.5 * (7 + 7), 0.5 * (7 * 1e-4 + chain.SS.mode()[0])
    assert_agrees(chain.sig["var_model"][rest].to_numpy(), rate / (shape - 1))


def test_quirk_31_delayed_rejection_is_not_biased_at_bounds():
    case = REFERENCE["quirk_normal3_bounded_dr"]
    chain = modMCMC(box_normal, list(case["inputs"]["p"].values()), jump=0.3 * np.eye(3), ntrydr=2, niter=30000,
                    burninlength=500, seed=4, **BOX)  # fmt: skip
    exact = case["outputs"]["exact"]
    for k in range(3):
        assert_agrees(by_chain(chain.pars.iloc[:, k]), exact["mean"][k], exact["sd"][k])
    assert abs(chain.pars.iloc[:, 0].mean() - 0.725) > 0.04  # R's


def test_quirk_31_a_vector_jump_shrinks_in_the_second_try():
    tries = []

    def f(p):
        tries.append(p.copy())
        return 0.0 if not tries[1:] else 1e9  # nothing but the start is possible

    modMCMC(f, [0.0, 0.0], jump=[1.0, 2.0], ntrydr=3, niter=2000, seed=1)
    moves = np.array(tries[1:]).reshape(-1, 3, 2)
    np.testing.assert_allclose(moves.std(axis=0), np.outer([1, 1 / 5, 1 / 20], [1.0, 2.0]), rtol=0.1)


def test_quirk_31_a_later_try_outside_the_bounds_does_not_end_the_iteration():
    chain = modMCMC(
        normal3, [1, 2, 3], jump=50.0, ntrydr=3, niter=200, lower=[0.9, 1.9, 2.9], upper=[1.1, 2.1, 3.1], seed=1
    )
    assert chain.count["dr_steps"][0] > 380  # nearly all first and second tries are outside: third ones are made


def test_quirk_32_covscale_acts_for_one_parameter():
    chain = modMCMC(lambda p: float((p[0] - 10) ** 2), 9.5, jump=5, updatecov=10, niter=5000, seed=1)
    assert 0.40 < chain.acceptance_rate[0] < 0.49  # 44 %; R, without the factor, 70 %


def test_quirk_33_updatecov_counts_iterations_whatever_the_thinning():
    counts = [
        modMCMC(normal3, [1, 2, 3], jump=0.1, niter=2000, updatecov=100, outputlength=n, seed=1).count
        for n in (2000, 20)
    ]
    assert counts[0]["num_covupdate"].tolist() == counts[1]["num_covupdate"].tolist() == [19]


def test_quirk_34_bestpar_has_the_highest_posterior_with_the_variance_integrated_out():
    chain = modMCMC(monod_residuals, [0.16, 60.0], jump=[0.02, 10], var0=1.2e-4, wvar0=1, niter=3000, seed=1)
    assert chain.bestfunp <= -chain.log_posterior.max()
    N, SS = 7, float(np.sum(monod_residuals(chain.bestpar.to_numpy()) ** 2))
    assert chain.bestfunp == pytest.approx(0.5 * (7 + N) * np.log(7 * 1.2e-4 + SS), rel=1e-12)
    assert chain.SS.min() >= SS  # flat prior: the best point is the best fit


def test_quirk_34_bestpar_may_come_from_a_delayed_try():
    seen = []

    def f(p):
        seen.append((float(p @ p), p.copy()))
        return float(p @ p)

    found = []
    for seed in range(12):
        seen.clear()
        chain = modMCMC(f, [3.0, 3.0], jump=30.0, ntrydr=2, niter=30, seed=seed)
        value, where = min(seen, key=lambda s: s[0])
        np.testing.assert_array_equal(chain.bestpar, where)
        assert chain.bestfunp == pytest.approx(0.5 * value)
        found.append(value < 18)
    assert sum(found) >= 6


def test_quirk_35_named_var0_goes_by_name():
    case = REFERENCE["monod2_two_var0"]
    cost = two_monods(case)
    var0 = case["inputs"]["args"]["var0"]  # R's order: z, y; here y was written first
    assert list(cost(case["inputs"]["p"]).var["name"]) == ["y", "z"] != list(var0)
    chain = modMCMC(cost, case["inputs"]["p"], jump=[1e-3, 1], var0=var0, wvar0=0.1, niter=3, seed=1)
    assert chain.settings["var0"].to_dict() == {"y": var0["y"], "z": var0["z"]}
    assert list(chain.sig.columns) == ["var_y", "var_z"]


def test_quirk_35_repeated_names_go_by_order():
    cost = PlainCost(lambda t: np.full(4, t[0]), {"a": 1.0}, [0, 1, 1, 2], ["y", "z", "y"])
    v = variances(as_objective(cost, ["a"]), pd.Series([1.0, 2.0, 3.0], index=["y", "y", "z"]), 1, None)
    assert v.var0.tolist() == [1.0, 3.0, 2.0]
    assert v.N.tolist() == [1.0, 2.0, 1.0]


def test_quirk_35b_a_jump_function_takes_one_argument():
    rng = np.random.default_rng(1)
    chain = modMCMC(
        lambda p: float(p["a"] ** 2), {"a": 0.5}, jump=lambda p: {"a": p["a"] + rng.normal()}, niter=500, seed=1
    )
    assert 0.4 < chain.acceptance_rate[0] < 0.95


def test_quirk_36_the_summary_labels_quantiles_by_what_they_are():
    chain = modMCMC(normal3, [1, 2, 3], jump=0.1, niter=2000, seed=1)
    frame = chain.summary().frame
    assert {"2.5%", "25%", "50%", "75%", "97.5%"} <= set(frame.index)
    np.testing.assert_allclose(frame.loc["25%"], chain.pars.quantile(0.25), rtol=1e-12)


def test_a_parameter_at_zero_moves_without_jump():
    everywhere = np.full(2, np.inf)
    objective = as_objective(lambda p: float(p @ p), [0.0, 2.0])
    chol = as_jump(None, objective.parameters, -everywhere, everywhere, objective.theta0)
    np.testing.assert_allclose(np.diag(chol), [0.1, 0.2])


def test_one_parameter_without_jump_takes_delayed_rejection():
    chain = modMCMC(lambda p: float((p[0] - 1) ** 2), 1.0, ntrydr=2, niter=200, seed=1)  # R stops
    assert chain.count["dr_steps"][0] > 0
