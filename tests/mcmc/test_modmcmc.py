"""modMCMC as a verb: what it takes and refuses, chains, failures, interruption, and what it returns."""

import json
import os
import pickle
import signal
import subprocess
import sys
import time
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.stats import lognorm, norm

import fmepy as fme
from fmepy.errors import ArgumentError, InterruptedWarning, ParameterError
from fmepy.mcmc import modMCMC, runner
from fmepy.mcmc.proposals import as_jump
from fmepy.parameters.named import as_parameters
from tests.mcmc.problems import cases, monod_residuals, normal3, two_monods

START = {"mumax": 0.145, "ks": 49.0}
COV = np.array([[7e-4, 0.72], [0.72, 924.0]])


def square(p):
    return float(sum(v**2 for v in (p.values() if isinstance(p, dict) else p)))


# --- what the arguments may be


def test_shapes_and_labels_are_those_of_r():
    rules = cases("modMCMC_rules")
    type1 = modMCMC(square, [0, 1, 2], jump=0.1, niter=200, outputlength=100, seed=1)
    type2 = modMCMC(monod_residuals, START, jump=COV, var0=1e-4, lower=0, niter=200, outputlength=100, seed=1)
    drawn = modMCMC(monod_residuals, START, jump=COV, var0=1e-4, wvar0=1, lower=0, niter=200, outputlength=100, seed=1)
    for chain, name in ((type1, "shape_type1"), (type2, "shape_type2"), (drawn, "shape_type2_upd")):
        out = rules[name]["outputs"]
        assert list(chain.pars.shape) == out["pars_dim"]
        assert list(chain.pars.columns) == out["pars_columns"]
        assert len(chain.SS) == out["SS_length"]
        assert list(chain.count.columns) == out["count_names"]
        assert (None if chain.sig is None else list(chain.sig.columns)) == out["sig_columns"]
    assert type1.settings == "constant variance = 1"
    assert type2.settings == "constant variance = 0.0001"
    assert drawn.settings.to_dict("list") == {"var0": [1e-4], "n0": [7.0], "N": [7.0]}


def test_a_table_of_variances_is_that_of_r():
    out = cases("modMCMC_rules")["shape_type5"]["outputs"]["settings"]
    case = {"inputs": {"problem": {**cases("modMCMC")["monod2_two_var0"]["inputs"]["problem"]}}}
    chain = modMCMC(
        two_monods(case), START, jump=COV / 10, lower=0, var0={"z": 2e-4, "y": 1e-4}, wvar0=0.5, niter=3, seed=1
    )
    assert list(chain.settings.columns) == out["columns"]
    assert chain.settings.loc["y"].tolist() == [1e-4, 3.5, 7.0]


def test_n0_and_wvar0_say_the_same():
    a = modMCMC(monod_residuals, START, jump=COV, var0=1e-4, wvar0=2, niter=50, seed=1)
    b = modMCMC(monod_residuals, START, jump=COV, var0=1e-4, n0=14, niter=50, seed=1)
    pd.testing.assert_frame_equal(a.sig, b.sig)


def test_wvar0_zero_samples_without_a_prior():
    chain = modMCMC(monod_residuals, START, jump=COV, var0=1e-4, wvar0=0, niter=50, seed=1)
    assert chain.settings["n0"].tolist() == [0.0]
    assert chain.sig["var_model"].nunique() == 50


def test_a_prior_of_distributions_is_that_of_a_function():
    given = {"a": norm(1, 2), "b": lognorm(0.5)}

    def function(p):
        return -2 * (norm.logpdf(p["a"], 1, 2) + lognorm.logpdf(p["b"], 0.5))

    a = modMCMC(square, {"a": 1, "b": 1}, jump=1, prior=given, niter=100, seed=1)
    b = modMCMC(square, {"a": 1, "b": 1}, jump=1, prior=function, niter=100, seed=1)
    pd.testing.assert_frame_equal(a.pars, b.pars)
    assert (a.pars["b"] > 0).all()  # where the prior is zero the chain never is
    one = modMCMC(square, {"a": 1.0}, jump=1, prior={"a": norm(1, 2)}, niter=20, seed=1)
    np.testing.assert_allclose(one.prior, -2 * norm.logpdf(one.pars["a"], 1, 2), rtol=1e-12)


def test_what_a_chain_gives_can_be_fed_back():
    chain = modMCMC(normal3, [1, 2, 3], jump=0.1, niter=20, seed=1)
    again = modMCMC(normal3, chain.pars.iloc[-1], jump=chain.pars.cov(), niter=20, seed=1)
    assert list(again.pars.columns) == ["p1", "p2", "p3"]
    assert modMCMC(normal3, chain.bestpar, jump=0.1, niter=5, seed=1).pars.shape == (5, 3)


def test_a_covariance_is_matched_by_its_labels():
    cov = pd.DataFrame(COV, index=list(START), columns=list(START))
    turned = cov.loc[["ks", "mumax"], ["ks", "mumax"]]
    a, b = (modMCMC(monod_residuals, START, jump=j, var0=1e-4, niter=50, seed=1) for j in (cov, turned))
    pd.testing.assert_frame_equal(a.pars, b.pars)


def test_args_reach_the_function():
    chain = modMCMC(
        lambda p, a, b: float(((p[0] - a) / b) ** 2), 5, jump=1, niter=2000, args=(5,), kwargs={"b": 0.1}, seed=1
    )
    assert abs(chain.pars["p1"].mean() - 5) < 0.1


def test_a_prepared_cost_of_fmepy_is_sampled_by_its_arrays():
    model = fme.OdeModel("d(N)/dt = -k * N", state={"N": 1}, times=np.arange(6), parms={"k": 0.5}, engine="scipy")
    cost = fme.SimulationCost(model, pd.DataFrame({"time": [1, 2, 3], "N": [0.6, 0.37, 0.22]}))
    chain = modMCMC(cost, ["k"], jump=0.02, var0=4e-4, lower=0, niter=300, seed=1)
    assert abs(chain.pars["k"].mean() - 0.5) < 0.05
    assert chain.SS.iloc[-1] == pytest.approx(cost(chain.pars.iloc[-1]).var["SSR.unweighted"][0], rel=1e-9)
    with pytest.warns(UserWarning, match="standard deviation of the weighted residuals to be 1"):
        no_var0 = modMCMC(cost, None, jump=0.5, niter=5, seed=1)
    assert no_var0.SS.iloc[-1] == pytest.approx(2 * cost(no_var0.pars.iloc[-1]).minlogp, rel=1e-9)


N = {"time": [1.0, 2.0, 3.0], "N": [0.6, 0.37, 0.22], "sd": [1.0, 1.0, 1.0]}
M = {"time": [1.0, 2.0, 3.0], "M": [1.2, 0.8, 0.4]}


def growth(p):
    t = np.arange(5.0)
    return {"time": t, "N": np.exp(-p["k"] * t), "M": 2 * np.exp(-p["k"] * t)}


def wide(table):
    return {k: v for k, v in table.items() if k != "sd"}


@pytest.mark.parametrize(
    ("f", "named"),
    [
        (lambda p: fme.modCost(growth(p), wide(N)), "of 'N'"),
        (lambda p: fme.modCost(growth(p), M, weight="std"), "of 'M'"),  # the spread of the data is no error
        (lambda p: fme.modCost(growth(p), M, weight="mean"), "of 'M'"),
        (lambda p: fme.modCost(growth(p), N, err="sd") + fme.modCost(growth(p), M), "of 'M'"),
    ],
)
def test_errors_of_which_nobody_says_anything_are_told_before_the_chain_starts(f, named):
    with pytest.warns(
        UserWarning, match=rf"Nothing is known of the errors {named}.*var0=fit.var_ms_unweighted, wvar0=1"
    ):
        modMCMC(f, {"k": 0.5}, jump=0.1, niter=3, seed=1)


@pytest.mark.parametrize(
    ("f", "arguments"),
    [
        (lambda p: fme.modCost(growth(p), N, err="sd"), {}),  # errors of 1, but given
        (lambda p: fme.modCost(growth(p), M), {"var0": 1.0}),
        (lambda p: fme.modCost(growth(p), M).model, {}),  # a number is -2 log L
    ],
)
def test_errors_that_are_given_are_not_doubted(f, arguments):
    modMCMC(f, {"k": 0.5}, jump=0.1, niter=3, seed=1, **arguments)


@pytest.mark.parametrize(
    ("f", "arguments", "why"),
    [
        (lambda p: np.array([1e200 * p[0], 1.0]), {"var0": 1.0}, "beyond the largest number"),
        (lambda p: np.array([1e10 * p[0], 1.0]), {"var0": 1e-300}, "beyond the largest number"),
        (lambda p: p[0] ** 2, {"prior": lambda p: np.inf}, "the prior excludes it"),
    ],
)
def test_a_start_of_zero_probability_is_told_with_its_reason(f, arguments, why):
    with pytest.raises(ArgumentError, match=why):
        modMCMC(f, [1.0], niter=3, seed=1, **arguments)


# --- chains


@pytest.mark.parametrize("method", ["dram", "demcz"])
def test_chains_are_the_same_for_any_number_of_workers(method):
    settings = {"jump": 0.3, "niter": 60, "chains": 3, "seed": 5, "method": method}
    here = modMCMC(normal3, [1, 2, 3], **settings)
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(2) as pool:
        pd.testing.assert_frame_equal(modMCMC(normal3, [1, 2, 3], executor=pool, **settings).pars, here.pars)
    pd.testing.assert_frame_equal(modMCMC(normal3, [1, 2, 3], executor=2, **settings).pars, here.pars)
    if method == "dram":
        alone = modMCMC(normal3, [1, 2, 3], **{**settings, "chains": 1})
        np.testing.assert_array_equal(alone.pars.to_numpy(), here.pars.loc[[0]].to_numpy())


@pytest.mark.parametrize("engine", ["auto", "explicit"])
def test_a_compiled_model_travels_to_the_workers(engine, monkeypatch):
    monkeypatch.setattr(runner, "_WORTH_PROCESSES", 0.0)
    model = fme.OdeModel("d(N)/dt = -k * N", state={"N": 1}, times=np.arange(6), parms={"k": 0.5}, engine=engine)
    cost = fme.SimulationCost(model, pd.DataFrame({"time": [1, 2, 3], "N": [0.6, 0.37, 0.22]}))
    settings = {"jump": 0.02, "var0": 4e-4, "lower": 0, "niter": 50, "chains": 2, "seed": 1}
    here = modMCMC(cost, ["k"], **settings)
    pd.testing.assert_frame_equal(modMCMC(cost, ["k"], executor=2, **settings).pars, here.pars)


def test_runs_that_a_second_engine_finished_are_counted_over_a_resume_too(tmp_path):
    def stiff_or_not(t, x, *, k=1.0):
        return -k * (x - 1)

    model = fme.OdeModel(stiff_or_not, state={"x": 0}, times=[0, 500], engine="explicit")
    cost = fme.SimulationCost(model, pd.DataFrame({"time": [500], "x": [1.0]}))
    settings = {"jump": 0.5, "var0": 1.0, "lower": 0.1, "niter": 40, "seed": 1}
    chain = modMCMC(cost, {"k": 50.0}, **settings)
    assert chain.retries == 40  # each of them stiff
    assert "40 runs were finished by a second engine" in chain.message
    modMCMC(cost, {"k": 50.0}, checkpoint=tmp_path / "c", **{**settings, "niter": 25})
    assert fme.resume_mcmc(cost, tmp_path / "c", niter=40).retries == 40
    assert modMCMC(cost, {"k": 0.5}, **{**settings, "jump": 0.01}).retries == 0


def test_acceptance_is_told_by_try():
    settings = {"jump": 1.0, "niter": 500, "chains": 2, "seed": 1}
    chain = modMCMC(normal3, [1, 2, 3], ntrydr=3, **settings)
    table = chain.accepted_by_try
    assert list(table.columns) == [1, 2, 3]
    assert (table > 0).all(axis=None)
    pd.testing.assert_series_equal(table.sum(axis=1), chain.naccepted, check_names=False)
    later = (500 - table[1]) + (500 - table[1] - table[2])  # second tries, and third ones
    pd.testing.assert_series_equal(later, chain.count["dr_steps"], check_names=False)
    np.testing.assert_allclose(chain.acceptance_by_try[2], table[2] / (500 - table[1]))
    plain = modMCMC(normal3, [1, 2, 3], **settings)
    np.testing.assert_allclose(plain.acceptance_by_try[1], plain.acceptance_rate)
    emcee = modMCMC(normal3, [1, 2, 3], method="emcee", niter=50, seed=1)
    assert emcee.acceptance_by_try.shape == (len(emcee.chains), 1)


def test_short_later_tries_are_not_taken_for_a_crawl():
    chain = modMCMC(normal3, [1, 2, 3], jump=0.2, ntrydr=3, niter=3000, seed=1)
    assert chain.acceptance_rate[0] > 0.7
    assert not [line for line in chain.summary().advice if "crawls" in line]
    crawling = modMCMC(normal3, [1, 2, 3], jump=0.01, ntrydr=3, niter=3000, seed=1)
    assert [line for line in crawling.summary().advice if "crawls" in line]


def test_chains_start_apart_inside_the_bounds():
    starts = []

    def f(p):
        starts.append(p.copy())
        return square(p)

    modMCMC(f, [0.5, 0.5], jump=0.2, chains=5, niter=1, lower=0, upper=1, seed=1)
    spread = np.array(starts)
    assert len(np.unique(spread.round(12), axis=0)) >= 6
    assert (spread >= 0).all()
    assert (spread <= 1).all()


def test_a_table_gives_every_chain_its_start():
    starts = pd.DataFrame({"a": [0.0, 5.0, -5.0], "b": [1.0, 2.0, 3.0]})
    chain = modMCMC(square, starts, jump=1e-6, niter=1, seed=1)
    np.testing.assert_allclose(chain.pars.to_numpy(), starts.to_numpy(), atol=1e-4)
    assert chain.chains == (0, 1, 2)


def test_seeds_make_chains():
    def run(seed):
        return modMCMC(normal3, [1, 2, 3], jump=0.1, niter=30, seed=seed).pars.to_numpy()

    assert np.array_equal(run(0), run(0))
    assert not np.array_equal(run(0), run(1))
    rng = np.random.default_rng(1)
    assert not np.array_equal(run(rng), run(rng))  # a generator goes on


def test_progress_tells_all_iterations():
    told = []
    modMCMC(normal3, [1, 2, 3], niter=50, chains=2, seed=1, progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (100, 100)
    assert [d for d, _ in told] == sorted(d for d, _ in told)


# --- failures and interruption


def test_a_failing_run_is_zero_likelihood_counted_and_shown():
    def f(p):
        if p[0] > 0.5:
            raise RuntimeError("the solver gave up")
        return float("nan") if p[0] < -2 else float(p[0] ** 2)

    chain = modMCMC(f, 0.0, jump=1, niter=3000, ntrydr=2, seed=1)
    assert chain.pars["p1"].between(-2, 0.5).all()
    assert chain.failures > 100
    assert "count as zero likelihood" in repr(chain)
    assert "gave up" in chain.last_failure or "not finite" in chain.last_failure


def test_another_number_of_residuals_is_an_error():
    def f(p):
        return np.ones(3 if p[0] < 1.05 else 4) * p[0]

    with pytest.raises(ArgumentError, match=r"4 residuals at .* 3 residuals at the start"):
        modMCMC(f, 1.0, jump=2, var0=1, niter=100, seed=1)
    with pytest.raises(ArgumentError, match="4 residuals at"):
        modMCMC(f, 1.0, jump=2, var0=1, niter=100, seed=1, chains=2, executor=2)


def test_ctrl_c_ends_with_what_there_is():
    calls = []

    def f(p):
        calls.append(1)
        if len(calls) == 150:
            raise KeyboardInterrupt
        return square(p)

    with pytest.warns(InterruptedWarning):
        chain = modMCMC(f, [0.0], jump=1, niter=100, chains=3, seed=1)
    assert chain.chains == (0, 1)
    assert len(chain.pars.loc[0]) == 100
    assert 30 < len(chain.pars.loc[1]) < 60
    assert "Interrupted in chain 1" in chain.message
    whole = modMCMC(square, [0.0], jump=1, niter=100, chains=3, seed=1)
    n = len(chain.pars.loc[1])
    np.testing.assert_array_equal(chain.pars.loc[1], whole.pars.loc[1][:n])
    assert chain.draws().shape == (2, n, 1)


def test_ctrl_c_before_the_first_row_is_ctrl_c():
    def f(p):
        calls.append(1)
        if len(calls) > 20:
            raise KeyboardInterrupt
        return square(p)

    calls = []
    with pytest.raises(KeyboardInterrupt):
        modMCMC(f, [0.0], niter=100, burninlength=50, seed=1)


@pytest.mark.skipif(sys.platform == "win32", reason="signals of processes are another matter there")
@pytest.mark.parametrize(
    "whom", [pytest.param("the parent", marks=pytest.mark.slow), "everybody, as the terminal does"]
)
def test_ctrl_c_in_parallel_chains_returns_those_that_are_done(tmp_path, whom, root):
    command = [sys.executable, "-m", "tests.mcmc.interrupted", str(tmp_path)]
    child = subprocess.Popen(
        command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        for _ in range(6000):
            if (tmp_path / "one is done").exists():
                break
            assert child.poll() is None, child.stderr.read()
            time.sleep(0.02)
        if whom == "the parent":
            child.send_signal(signal.SIGINT)
        else:
            os.killpg(child.pid, signal.SIGINT)
        out, err = child.communicate(timeout=60)
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
    assert child.returncode == 0, err
    found = json.loads(out)
    whole = modMCMC(square, [0.5], niter=300, chains=2, seed=3)
    for number, rows in found["rows"].items():  # of the other one what its worker could still send
        np.testing.assert_array_equal(rows, whole.pars.loc[int(number), "p1"][: len(rows)])
    (done,) = [int(number) for number, rows in found["rows"].items() if len(rows) == 300]
    assert f"Interrupted in chain {1 - done} at" in found["message"]
    assert len(found["rows"]) == 2


def test_memory_is_bounded_by_outputlength():
    import tracemalloc

    modMCMC(normal3, [1, 2, 3], niter=200, seed=1)
    tracemalloc.start()
    chain = modMCMC(normal3, [1, 2, 3], jump=0.1, niter=6000, outputlength=50, updatecov=100, seed=1)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(chain.pars) == 50
    assert peak < 200_000  # 6,000 rows of seven numbers would be 336,000 bytes


# --- bad input


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"jump": [[1, 2], [2, 1]]}, "not positive definite: its smallest eigenvalue is -1 "),
        ({"jump": [[1, 0.5], [0.1, 1]]}, "not symmetric"),
        ({"jump": [[1, np.nan], [np.nan, 1]]}, "without finite values"),
        ({"jump": [[1, np.inf], [np.inf, np.inf]]}, "without finite values for 'b'"),
        ({"jump": [1, 2, 3]}, r"shape \(3,\) for 2 parameters"),
        ({"jump": [1, 0]}, "one that is 0 never moves"),
        ({"jump": [1, np.inf]}, "never moves"),
        ({"jump": {"a": 1}}, "nothing for 'b'"),
        ({"jump": {"a": 1, "c": 1}}, "no parameter 'c'"),
        ({"jump": lambda p: p, "updatecov": 10}, "`updatecov` adapts a covariance, but `jump` is a function"),
        ({"jump": lambda p: p, "ntrydr": 2}, "`ntrydr` above 1 must know the density"),
        ({"jump": lambda p: p, "method": "demcz"}, "belongs to method='dram'"),
        ({"jump": lambda p: [1.0]}, "returned 1 values for 2 parameters"),
        ({"jump": lambda p: "x"}, r"`jump\(p\)='x'` must hold numbers"),
        ({"lower": 2}, "outside its bounds"),
        ({"lower": [0, 0, 0]}, "3 values for 2 parameters"),
        ({"prior": lambda p: np.inf}, "zero probability: the prior excludes it"),
        ({"burninlength": 100, "niter": 100}, "leaves nothing of `niter=100`"),
        ({"niter": 0}, "`niter=0` must be a whole number, at least 1"),
        ({"niter": 10.5}, "whole number"),
        ({"chains": 0}, "at least 1"),
        ({"var0": 1.0}, "`f` returns one number"),
        ({"wvar0": 1.0}, "`var0`, which is missing"),
        ({"method": "dramm"}, "Did you mean 'dram'"),
        ({"method": "emcee", "updatecov": 10}, "'updatecov' belong"),
        ({"method": "emcee", "ntrydr": 2}, "'ntrydr' belong"),
        ({"method": "emcee", "control": {"walkers": 3}}, "at least 4"),
        ({"method": "emcee", "control": {"walker": 30}}, "Did you mean 'walkers'"),
        ({"method": "demcz", "control": {"snooker": 2}}, "probability"),
        ({"method": "demcz", "control": {"snooker": "x"}}, "probability"),
        ({"control": {"walkers": 3}}, "has no `control`"),
        ({"ntrydr": 3, "drscale": [0.5, -1]}, "positive number"),
        ({"ntrydr": 4, "drscale": [0.5, 0.5]}, "3 of them"),
        ({"seed": -1}, "seed"),
        ({"progress": "yes"}, "progress"),
        ({"outputlength": 0}, "at least 1"),
    ],
)
def test_bad_input_is_told(more, message):
    with pytest.raises(ArgumentError, match=message):
        modMCMC(square, {"a": 1.0, "b": 1.0}, **{"seed": 1, **more})


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({}, "residuals, whose size says nothing without their variance"),
        ({"var0": [1, 1, 1]}, r"`var0` has 3 values; 1 or 7 \(data\)"),
        ({"var0": -1.0}, "positive"),
        ({"var0": 1.0, "wvar0": -1}, "0 or more"),
        ({"var0": "a"}, "must hold numbers"),
        ({"var0": 1.0, "n0": [1, 2]}, "`n0` has 2 values for 1 variances"),
    ],
)
def test_bad_variances_are_told(more, message):
    with pytest.raises(ArgumentError, match=message):
        modMCMC(monod_residuals, START, **more)


@pytest.mark.parametrize(
    ("var0", "message"),
    [
        ([1, 1, 1], r"1, 2 \(variables\) or 14 \(data\)"),
        ({"y": 1, "q": 2}, "nothing is left for 'z'"),
        ({"q": 1}, "'q'"),
        ({"y": 1}, "names 'y' only"),
        (pd.Series([1, 2, 3.0], index=["y", "z", "y"]), "more than the variables"),
    ],
)
def test_variances_that_fit_no_variable_are_told(var0, message):
    cost = two_monods(cases("modMCMC")["monod2_two_var0"])
    with pytest.raises(ArgumentError, match=message):
        modMCMC(cost, START, var0=var0, jump=COV)


def test_a_cost_that_fails_at_the_start_is_told():
    with pytest.raises(ArgumentError, match="at the start"):
        modMCMC(lambda p: np.nan, [1.0])
    with pytest.raises(ArgumentError, match=r"list|number|array"):
        modMCMC(lambda p: [[1, 2], [3, 4]], [1.0])
    with pytest.raises(ParameterError):
        modMCMC(square, [np.nan])


def test_too_long_an_output_is_clamped_and_said_once():
    with pytest.warns(UserWarning, match="`outputlength=500` is more than the 80") as told:
        chain = modMCMC(square, [0.0], niter=100, burninlength=20, outputlength=500, seed=1, chains=2)
    assert len(told) == 1
    assert told[0].filename == __file__
    assert len(chain.pars) == 160


# --- the result


@pytest.fixture(scope="module")
def chain():
    return modMCMC(monod_residuals, START, jump=COV, lower=0, var0=1e-4, wvar0=1, niter=400, chains=2, seed=1)


def test_the_result_prints_pickles_and_shows_all_in_one_table(chain):
    again = pickle.loads(pickle.dumps(chain))
    pd.testing.assert_frame_equal(again.pars, chain.pars)
    assert "2 chains of 400 draws" in repr(chain)
    assert "mumax" in chain._repr_html_()
    assert list(chain.frame.columns) == ["mumax", "ks", "var_model", "SS", "prior", "log_posterior"]
    assert len(chain) == 800
    assert chain.acceptance_rate.tolist() == pytest.approx((chain.naccepted / 400).tolist())


def test_the_log_posterior_belongs_to_its_row(chain):
    SS = np.array([np.sum(monod_residuals(row.to_dict()) ** 2) for _, row in chain.pars.iloc[:5].iterrows()])
    np.testing.assert_allclose(chain.SS.iloc[:5], SS, rtol=1e-12)
    np.testing.assert_allclose(chain.log_posterior.iloc[:5], -0.5 * 14 * np.log(7e-4 + SS), rtol=1e-12)


def test_transform_changes_parameters_bounds_and_best_point(chain):
    log = chain.transform(np.log)
    np.testing.assert_allclose(log.pars, np.log(chain.pars))
    assert log.bestpar["ks"] == pytest.approx(np.log(chain.bestpar["ks"]))
    assert log.lower.tolist() == [-np.inf, -np.inf]
    pd.testing.assert_frame_equal(log.sig, chain.sig)
    with pytest.raises(ArgumentError, match="shape"):
        chain.transform(lambda t: t.sum())


def test_summary_and_diagnostics_are_reached_from_the_result(chain):
    assert {"mumax", "ks", "var_model"} <= set(chain.summary().frame.columns)
    assert list(chain.diagnostics().index) == ["mumax", "ks"]


def test_arviz_is_asked_for_plainly_where_it_is_missing(chain, monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(ArgumentError, match="pip install arviz"):
        chain.to_arviz()


def test_arviz_reads_the_chain_and_agrees_with_its_diagnostics(chain):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what ArviZ says of itself and of others when it is imported
        import arviz
    data = chain.to_arviz()
    posterior = data.posterior
    assert dict(posterior.sizes) == {"chain": 2, "draw": 400}
    assert set(posterior.data_vars) == {"mumax", "ks", "var_model"}
    np.testing.assert_array_equal(posterior["ks"].to_numpy(), chain.draws()[:, :, 1])
    np.testing.assert_array_equal(data.sample_stats["lp"].to_numpy()[1], chain.log_posterior.loc[1])
    np.testing.assert_array_equal(data.sample_stats["SS"].to_numpy()[0], chain.SS.loc[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = {k: float(arviz.rhat(data)[k]) for k in ("mumax", "ks")}
    ours = chain.diagnostics()["rhat"]
    for name, value in theirs.items():
        assert ours[name] == pytest.approx(value, rel=1e-6)


@pytest.mark.parametrize("version", ["0.20", "1.2.0"])
def test_both_arvizs_are_handed_posterior_and_statistics(chain, monkeypatch, version):
    import types

    fake = types.ModuleType("arviz")
    fake.__version__ = version
    fake.from_dict = (lambda groups: groups) if version >= "1" else (lambda **groups: groups)
    monkeypatch.setitem(sys.modules, "arviz", fake)
    groups = chain.to_arviz()
    np.testing.assert_array_equal(groups["posterior"]["ks"][1], chain.pars["ks"].loc[1])
    assert set(groups["posterior"]) == {"mumax", "ks", "var_model"}
    assert groups["sample_stats"]["lp"].shape == (2, 400)


def test_importing_the_room_loads_neither_matplotlib_nor_emcee():
    code = "import sys, fmepy.mcmc; print([m for m in ('matplotlib', 'emcee', 'arviz', 'tqdm') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# --- a covariance of a fit with a parameter on a bound


def on_a_bound():
    x = np.arange(1.0, 9.0)
    y = 2.0 + 0.5 * x + np.array([0.1, -0.2, 0.1, 0.0, -0.1, 0.2, -0.1, 0.0])

    def f(p):
        return p["a"] + p["b"] * x - p["c"] * x**2 - y

    fit = fme.modFit(f, {"a": 1.0, "b": 1.0, "c": 0.5}, lower={"c": 0.3})
    assert fit.at_bound == ("c",)
    return f, fit


def test_the_covariance_of_a_fit_with_a_parameter_on_its_bound_is_a_jump():
    f, fit = on_a_bound()
    jump = fit.cov_scaled * 2.4**2 / 2
    with pytest.warns(UserWarning, match="no number for 'c'.*default standard deviation") as told:
        chain = modMCMC(f, fit.par, jump=jump, var0=fit.ms, lower={"c": 0.3}, niter=600, updatecov=100, seed=1)
    assert len(told) == 1
    assert told[0].filename == __file__
    assert chain.pars["c"].min() >= 0.3
    assert (chain.pars.std() > 0).all()


@pytest.mark.parametrize("order", [["a", "b", "c"], ["c", "a", "b"], ["b", "c"]])
@pytest.mark.parametrize("labelled", [True, False])
@pytest.mark.filterwarnings("ignore:modMCMC. `jump` has no number")
def test_what_a_jump_says_nothing_of_is_independent_of_the_rest(order, labelled):
    _, fit = on_a_bound()
    p = as_parameters(fit.par[order])
    C = fit.cov_scaled if labelled else fit.cov_scaled.loc[order, order].to_numpy()
    everywhere = np.full(len(order), np.inf)
    chol = as_jump(C, p, -everywhere, everywhere, p.values)
    expected = fit.cov_scaled.loc[order, order].copy()
    expected.loc["c"] = expected.loc[:, "c"] = 0.0
    expected.loc["c", "c"] = (0.1 * fit.par["c"]) ** 2
    np.testing.assert_allclose(chol @ chol.T, expected, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("jump", [{"a": 0.3, "b": np.nan}, [0.3, np.nan], [[0.09, np.nan], [np.nan, np.nan]]])
def test_a_standard_deviation_that_is_not_known_is_the_default_one(jump):
    p = as_parameters({"a": 1.0, "b": 2.0})
    with pytest.warns(UserWarning, match="no number for 'b'"):
        chol = as_jump(jump, p, np.full(2, -np.inf), np.full(2, np.inf), p.values)
    np.testing.assert_allclose(chol, np.diag([0.3, 0.2]))


def test_a_jump_of_another_fit_is_still_refused():
    _, fit = on_a_bound()
    p = as_parameters({"a": 1.0, "k": 2.0})
    with pytest.raises(ArgumentError, match="no parameter 'b'"):
        as_jump(fit.cov_scaled, p, np.full(2, -np.inf), np.full(2, np.inf), p.values)


def test_a_jump_that_is_a_fit_or_gives_no_point_is_answered():
    fit = fme.modFit(lambda p: p["a"] - np.arange(3.0), {"a": 1.0})
    with pytest.raises(ArgumentError, match=r"got ModFit\. Give the fit in the place of `p`, or jump=fit\.cov_scaled"):
        modMCMC(lambda p: p["a"] - np.arange(3.0), fit.par, jump=fit, niter=10, seed=1, var0=1.0)
    with pytest.raises(ArgumentError, match=r"`jump\(p\)=None` must hold numbers"):
        modMCMC(lambda p: p["a"] - np.arange(3.0), fit.par, jump=lambda p: None, niter=10, seed=1, var0=1.0)


# --- errors of the data that differ within a variable


def uneven():
    t, err = np.array([1.0, 2.0, 3.0, 4.0]), np.array([0.1, 0.1, 2.0, 2.0])
    table = pd.DataFrame({"name": "y", "x": t, "val": [1.0, 2.1, 5.0, 1.0], "err": err})
    return lambda p: fme.modCost({"x": t, "y": p["b"] * t}, table, x="x", y="val", err="err"), t / err


def test_a_chain_from_a_fit_keeps_errors_that_differ_within_a_variable():
    f, of_errors = uneven()
    fit = fme.modFit(f, {"b": 0.5})
    chain = modMCMC(f, fit, niter=4000, burninlength=500, seed=1)
    assert chain.sig is None
    sd = 1 / np.sqrt(
        of_errors @ of_errors
    )  # the posterior is normal; one variance for all readings makes it 13 times as wide
    assert chain.pars["b"].mean() == pytest.approx(fit.par["b"], abs=0.2 * sd)
    assert chain.pars["b"].std() == pytest.approx(sd, rel=0.1)


def test_variances_in_place_of_errors_that_differ_are_told():
    f, _ = uneven()
    with pytest.warns(UserWarning, match="errors of the data differ within a variable, and `var0` takes their place"):
        chain = modMCMC(f, fme.modFit(f, {"b": 0.5}), wvar0=1, niter=50, seed=1)
    assert list(chain.sig.columns) == ["var_y"]


def test_a_negative_jump_is_the_default_and_told():
    with pytest.warns(UserWarning, match=r"`jump` is negative for 'p2' \(-0.3\).* the default .* \(0.2\)"):
        chain = modMCMC(normal3, [1, 2, 3], jump=[0.5, -0.3, 0.5], niter=50, seed=1)
    plain = modMCMC(normal3, [1, 2, 3], jump=[0.5, 0.2, 0.5], niter=50, seed=1)
    pd.testing.assert_frame_equal(chain.pars, plain.pars)
