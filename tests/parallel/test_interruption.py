"""Ctrl-C: every verb returns what is done, marked and with a warning; verbs inside it pass it on; again, it raises."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest

import fmepy as fme
from fmepy.errors import InterruptedWarning
from fmepy.fitting.methods.registry import METHODS
from fmepy.parallel import run_many, spread

X = np.linspace(0, 5, 20)
Y = 2 * np.exp(-0.7 * X)


class After:
    """A function that is interrupted at one of its calls."""

    def __init__(self, function, calls):
        self.function, self.left = function, calls

    def __call__(self, *args):
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt
        return self.function(*args)


def residuals(p):
    return p[0] * np.exp(-p[1] * X) - Y


def square(p):
    return float(np.sum((np.asarray(p) - 0.3) ** 2))


def line(p):
    return {"x": [0.0, 1.0], "y": [p["a"], 2 * p["a"]]}


def test_ctrl_c_returns_what_is_done():
    def stop_at_3(x):
        if x == 3:
            raise KeyboardInterrupt
        return x

    with pytest.warns(InterruptedWarning, match="3 of 6 runs are done"):
        runs = run_many(stop_at_3, range(6))
    assert runs.interrupted
    assert runs.results == [0, 1, 2, None, None, None]
    assert runs.failures["error"].tolist() == ["Interrupted"] * 3


def test_ctrl_c_stops_the_workers_too(tmp_path):
    def slow(i):
        (tmp_path / str(i)).touch()
        time.sleep(0.05 if i == 0 else 200)
        return i

    def interrupt(done, total):
        raise KeyboardInterrupt

    began = time.monotonic()
    with pytest.warns(InterruptedWarning):
        runs = run_many(slow, range(6), executor=2, force=True, progress=interrupt)
    assert runs.results[0] == 0
    assert not runs.ok[1:].any()
    assert len(list(tmp_path.iterdir())) < 6
    assert run_many(lambda i: i, range(4), executor=2, force=True).ok.all()  # a new pool is there
    assert time.monotonic() - began < 100  # nobody waited for those who sleep


# --- every verb


@pytest.mark.parametrize("method", [m for m in METHODS if m != "scoring"])
def test_a_fit_returns_the_best_so_far_whatever_its_method(method):
    f = After(residuals, 25)
    with pytest.warns(InterruptedWarning, match="modFit was interrupted .* best parameters so far"):
        fit = fme.modFit(f, [1, 1], lower=0, upper=10, method=method, seed=1)
    assert fit.interrupted
    assert not fit.converged
    assert fit.hessian is None
    assert fit.ssr == pytest.approx(np.sum(residuals(fit.par.to_numpy()) ** 2))
    assert fit.ssr <= np.sum(residuals([1, 1]) ** 2)


def test_a_fit_that_nobody_interrupts_says_so():
    assert not fme.modFit(residuals, [1, 1]).interrupted


def test_ctrl_c_before_there_is_anything_is_ctrl_c():
    with pytest.raises(KeyboardInterrupt):
        fme.modFit(After(residuals, 1), [1, 1])


def test_several_starts_return_the_best_of_those_that_were_begun():
    one = After(square, 10**9)
    fme.modFit(one, [0.9], lower=0, upper=1, starts=1, method="Nelder-Mead")
    calls = 10**9 - one.left
    with pytest.warns(InterruptedWarning, match="2 of 4 starts were run"):
        fit = fme.modFit(After(square, calls + 8), [0.9], lower=0, upper=1, starts=4, method="Nelder-Mead", seed=1)
    assert fit.interrupted
    assert fit.starts["ssr"].notna().tolist() == [True, True, False, False]
    assert fit.par["p1"] == pytest.approx(0.3, abs=1e-3)


@pytest.mark.parametrize("keep", ["all", "summary"])
def test_an_ensemble_keeps_the_sets_that_were_run(keep):
    with pytest.warns(InterruptedWarning, match="sensRange .* 3 of 8 runs"):
        runs = fme.sensRange(After(line, 5), {"a": 1.0}, parRange={"a": (0, 1)}, num=8, seed=1, keep=keep)
    assert runs.interrupted
    assert runs.failures["run"].tolist() == [3, 4, 5, 6, 7]
    assert (runs.summary()["N"] == 3).all()


def test_a_table_of_one_row_each_keeps_the_sets_that_were_run():
    with pytest.warns(InterruptedWarning, match="modCRL .* 3 of 8 runs"):
        runs = fme.modCRL(After(lambda p: p["a"], 5), {"a": 1.0}, parRange={"a": (0, 1)}, num=8, seed=1)
    assert runs.interrupted
    assert runs.frame.iloc[:, -1].notna().sum() == 3


def test_chains_keep_their_rows():
    with pytest.warns(InterruptedWarning, match="modMCMC .* in chain 0 at iteration"):
        chain = fme.modMCMC(After(square, 50), [0.2], jump=0.3, niter=100, chains=2, seed=1)
    assert chain.interrupted
    whole = fme.modMCMC(square, [0.2], jump=0.3, niter=100, chains=2, seed=1)
    assert not whole.interrupted
    assert 30 < len(chain.pars) < 50
    np.testing.assert_array_equal(chain.pars, whole.pars[: len(chain.pars)])


def test_global_indices_are_those_of_the_blocks_that_are_complete():
    pytest.importorskip("SALib")
    box = {"a": (0, 1), "b": (0, 1)}
    with pytest.warns(InterruptedWarning, match="global_indices .*sobol: 64 runs"):
        found = fme.global_indices(After(lambda p: p["a"] + 2 * p["b"], 30), box, num=16, seed=1)
    assert found.interrupted
    assert found.blocks == 7
    with pytest.raises(KeyboardInterrupt):
        fme.global_indices(After(lambda p: p["a"] + 2 * p["b"], 6), box, num=16, seed=1)


@pytest.mark.parametrize("calls", [20, 200])
def test_a_random_search_returns_its_population(calls):
    with pytest.warns(InterruptedWarning, match="pseudoOptim was"):
        found = fme.pseudoOptim(After(square, calls), [0.9, 0.9], lower=0, upper=1, seed=1)
    assert found.interrupted
    assert not found.converged
    assert found.cost == pytest.approx(square(found.par.to_numpy()))
    assert found.cost < square([0.9, 0.9])


def test_selecting_and_fitting_returns_the_last_fit_that_was_done():
    obs = pd.DataFrame({"time": X, "y": Y})

    def cost(p):
        return fme.modCost(pd.DataFrame({"time": X, "y": p["a"] * np.exp(-p["b"] * X)}), obs)

    one = After(cost, 10**9)
    stable = fme.identifiable_fit(one, {"a": 1.0, "b": 1.0})
    with pytest.warns(InterruptedWarning, match="identifiable_fit was .* completed fits?"):
        found = fme.identifiable_fit(After(cost, 10**9 - one.left - 1), {"a": 1.0, "b": 1.0})
    assert found.interrupted
    assert found.fit.ssr == pytest.approx(stable.fit.ssr, abs=1e-12)
    with pytest.raises(KeyboardInterrupt):
        fme.identifiable_fit(After(cost, 5), {"a": 1.0, "b": 1.0})


# --- only the outermost


INNER = {
    "modFit": lambda f: fme.modFit(f, [0.9], method="Nelder-Mead").par["p1"],
    "modMCMC": lambda f: fme.modMCMC(f, [0.2], niter=100).pars["p1"].mean(),
    "pseudoOptim": lambda f: fme.pseudoOptim(f, [0.9], lower=0, upper=1, seed=1).cost,
    "run_many": lambda f: sum(run_many(f, [[0.1]] * 100).results),
    "several starts": lambda f: fme.modFit(f, [0.9], lower=0, upper=1, starts=3, method="Nelder-Mead").par["p1"],
    "threads": lambda f: sum(run_many(f, [[0.1]] * 100, executor=ThreadPoolExecutor(1)).results),
}


@pytest.mark.parametrize("inner", INNER)
def test_a_verb_inside_another_passes_it_on(inner):
    ends = []

    def model(p):
        ends.append("begun")
        value = INNER[inner](After(square, 15) if len(ends) == 3 else square)
        ends.append("done")
        return {"x": [0.0, 1.0], "y": [value, p["a"]]}

    ends.clear()
    with pytest.warns(InterruptedWarning) as told:
        runs = fme.sensRange(model, {"a": 1.0}, parRange={"a": (0, 1)}, num=4, seed=1)
    assert [str(w.message).split()[0] for w in told] == ["sensRange"]
    assert ends == ["begun", "done", "begun"]  # the first is to see what the model returns
    assert runs.failures["error"].tolist() == ["Interrupted"] * 4


def test_a_verb_inside_a_worker_passes_it_on(tmp_path):
    def fit(i):
        def cost(p):
            (tmp_path / str(i)).touch()
            time.sleep(0.01)
            return float(p[0] ** 2) if i else 1.0  # the first is done at once

        return fme.modFit(cost, [1.0], method="Nelder-Mead", control={"maxiter": 10**6} if i else {"maxiter": 1})

    def interrupt(done, total):
        deadline = time.monotonic() + 60
        while not (tmp_path / "1").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        raise KeyboardInterrupt

    with pytest.warns(InterruptedWarning, match="1 of 2 runs"):
        runs = run_many(fit, [0, 1], executor=2, force=True, progress=interrupt)
    assert runs.ok.tolist() == [True, False]


# --- workers


def ctrl_c(ready):
    """Press Ctrl-C once `ready()`, from another thread; a signal, since that alone wakes who waits."""

    def press():
        deadline = time.monotonic() + 60
        while not ready() and time.monotonic() < deadline:
            time.sleep(0.01)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    threading.Thread(target=press).start()


@pytest.fixture
def listening(monkeypatch):
    """Hear Ctrl-C also where the suite runs in the background of a shell, which ignores it."""
    if sys.platform == "win32":
        pytest.skip("signals are another matter there")
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("executor", ["threads", "processes"])
def test_rows_of_all_chains_come_home_from_workers(executor, tmp_path, listening):
    def slow(p):
        (tmp_path / f"{os.getpid()}-{threading.get_ident()}-{time.monotonic_ns()}").touch()
        time.sleep(0.01)
        return float(p[0] ** 2)

    where = 2 if executor == "processes" else ThreadPoolExecutor(2)
    ctrl_c(lambda: sum(n > 10 for n in begun(tmp_path).values()) >= 2)
    with pytest.warns(InterruptedWarning, match="modMCMC was"):
        chain = fme.modMCMC(slow, [0.5], jump=0.3, niter=5000, chains=2, executor=where, seed=3)
    assert chain.interrupted
    assert chain.chains == (0, 1)
    whole = fme.modMCMC(lambda p: float(p[0] ** 2), [0.5], jump=0.3, niter=5000, chains=2, seed=3)
    for k in (0, 1):
        rows = chain.pars.loc[k].to_numpy()
        assert 0 < len(rows) < 5000
        np.testing.assert_array_equal(rows, whole.pars.loc[k].to_numpy()[: len(rows)])


def begun(folder):
    """Return how many calls each worker has left a file of."""
    return Counter(file.name.rpartition("-")[0] for file in folder.iterdir())


def test_a_second_ctrl_c_raises(tmp_path, listening, monkeypatch):
    """The first one comes from the progress, the second one while it is waited for what hangs."""
    (tmp_path / "told to stop").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "told to stop"))

    def hang(i):
        (tmp_path / str(i)).touch()
        time.sleep(0.01 if i == 0 else 30)
        return i

    def interrupt(done, total):
        ctrl_c(lambda: any((tmp_path / "told to stop").glob("fmepy-stop-*")))
        raise KeyboardInterrupt

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        spread(hang, [0, 1, 2], executor=2, force=True, progress=interrupt, patience=100)
    assert time.monotonic() - began < 90
