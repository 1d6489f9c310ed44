"""Chains without chance: saving, thinning, burn-in, bounds, best point and counts are R's exactly."""

import numpy as np
import pytest

from fmepy.mcmc import modMCMC
from fmepy.mcmc.runner import Plan
from tests.mcmc.problems import cases

EXACT = {k: v for k, v in cases("modMCMC_exact").items() if k.startswith("deterministic")}


def run(case, **more):
    """Run a case: every proposal is either better or so much worse that it is never accepted."""
    proposals = iter(case["inputs"]["proposals"])
    residuals = case["inputs"]["f"].startswith("residuals")
    calls = []

    def f(p):
        calls.append(p["a"])
        return np.array([300 * (p["a"] - 3), 1.0]) if residuals else 1e5 * (p["a"] - 3) ** 2

    args = {k: v for k, v in case["inputs"]["args"].items() if k != "jump"}
    return modMCMC(f, case["inputs"]["p"], jump=lambda p: {"a": next(proposals)}, seed=1, **{**args, **more}), calls


@pytest.mark.parametrize("name", EXACT)
def test_a_chain_without_chance_is_that_of_r(name):
    out = EXACT[name]["outputs"]
    chain, _ = run(EXACT[name])
    assert chain.pars["a"].tolist() == out["pars"]
    np.testing.assert_allclose(chain.SS, out["SS"], rtol=1e-10)
    assert chain.prior.tolist() == out["prior"]
    assert chain.naccepted.tolist() == [out["naccepted"]]
    assert chain.bestpar.to_dict() == out["bestpar"]
    assert chain.bestfunp == pytest.approx(out["bestfunp"], rel=1e-10)
    assert chain.count.iloc[0].to_dict() == out["count"]
    if out["sig"] is None:
        assert chain.sig is None
    else:
        np.testing.assert_array_equal(chain.sig, out["sig"])


def test_outside_the_bounds_the_cost_is_not_called():
    _, calls = run(EXACT["deterministic_bounds"])
    assert calls
    assert max(calls) <= 3.1
    assert min(calls) >= -1


def test_rows_keep_the_numbers_of_their_iterations():
    chain, _ = run(EXACT["deterministic_thin"])
    assert chain.pars.index.names == ["chain", "iteration"]
    args = EXACT["deterministic_thin"]["inputs"]["args"]
    plan = Plan.of(args["niter"], args["burninlength"], args["outputlength"])
    expected = [args["burninlength"] + plan.interval * (k + 1) for k in range(plan.rows)]
    assert chain.pars.index.get_level_values("iteration").tolist() == expected


def test_thinning_is_that_of_r():
    table = cases("modMCMC_rules")["thinning"]["outputs"]["table"]["data"]
    rows = list(zip(*(table[k] for k in ("niter", "outputlength", "burninlength")), strict=True))
    plans = [Plan.of(n, b, o) for n, o, b in rows]
    assert [p.rows for p in plans] == table["rows"]
    assert [p.interval for p in plans] == table["interval"]
    assert [p.niter for p in plans] == table["niter_run"]


@pytest.mark.parametrize("row", [0, 5, 14, 20])
def test_the_cost_is_called_once_an_iteration_and_at_the_start(row):
    table = {k: v[row] for k, v in cases("modMCMC_rules")["thinning"]["outputs"]["table"]["data"].items()}
    calls = []

    def f(p):
        calls.append(1)
        return float(p @ p)

    settings = {k: table[k] for k in ("niter", "outputlength", "burninlength")}
    settings["outputlength"] = min(settings["outputlength"], settings["niter"] - settings["burninlength"])
    chain = modMCMC(f, [0.1], jump=0.1, seed=1, **settings)
    assert len(chain.pars) == table["rows"]
    assert len(calls) == table["f_calls"]
