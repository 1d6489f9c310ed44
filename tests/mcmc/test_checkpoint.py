"""A chain that was killed goes on to the very chain that an uninterrupted run gives, bit for bit."""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from fmepy.errors import ArgumentError, InterruptedWarning
from fmepy.mcmc import modMCMC, resume_mcmc
from tests.mcmc import child
from tests.mcmc.problems import normal3

ROOT = Path(__file__).parent.parent.parent


def assert_same(a, b):
    pd.testing.assert_frame_equal(a.pars, b.pars, check_exact=True)
    for name in ("SS", "prior", "log_posterior", "naccepted", "bestpar", "iterations"):
        pd.testing.assert_series_equal(getattr(a, name), getattr(b, name), check_exact=True)
    pd.testing.assert_frame_equal(a.count, b.count, check_exact=True)
    pd.testing.assert_frame_equal(a.accepted_by_try, b.accepted_by_try, check_exact=True)
    if a.sig is not None:
        pd.testing.assert_frame_equal(a.sig, b.sig, check_exact=True)
    assert a.bestfunp == b.bestfunp
    assert (a.failures, a.retries) == (b.failures, b.retries)


@pytest.fixture(scope="module")
def uninterrupted():
    return modMCMC(child.residuals, [0.145, 49.0], **child.SETTINGS)


def iterations(file):
    with np.load(file) as npz:
        return json.loads(str(npz["meta"]))["iteration"]


def run_child(folder, plan):
    command = [sys.executable, "-m", "tests.mcmc.child", str(folder), json.dumps(plan)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def kill(folder, plan):
    done = run_child(folder, plan)
    assert done.returncode == -signal.SIGKILL, (plan, done.returncode, done.stderr[-2000:])


def test_three_kills_change_nothing(tmp_path, uninterrupted):
    folder = tmp_path / "chain"
    kill(folder, {"where": "evaluation", "count": 500})  # during burn-in
    kill(folder, {"where": "half written", "count": 8})
    kill(folder, {"where": "before the rename", "count": 20})  # the second chain
    assert list(folder.glob(".*.tmp"))
    assert_same(resume_mcmc(child.residuals, folder), uninterrupted)
    assert not list(folder.glob(".*.tmp"))


@pytest.mark.slow
def test_twenty_kills_change_nothing(tmp_path, uninterrupted):
    rng = np.random.default_rng(20)
    folder = tmp_path / "chain"
    plans = [{"where": "evaluation", "count": int(n)} for n in rng.integers(110, 260, 7)]  # two of them in burn-in
    plans += [
        {"where": w, "count": int(rng.integers(1, 4))}
        for w in ("half written", "before the rename", "after the rename")
    ]
    plans += [{"where": "evaluation", "count": int(n)} for n in rng.integers(110, 260, 10)]
    assert len(plans) == 20
    reached = []
    for plan in plans:
        kill(folder, plan)
        reached.append(max(map(iterations, folder.glob("chain-000.*")), default=0))
    assert 0 < reached[0] < child.SETTINGS["burninlength"]
    assert any(
        child.SETTINGS["burninlength"] < r < child.SETTINGS["niter"] for r in reached
    )  # after the last adaptation
    assert_same(resume_mcmc(child.residuals, folder), uninterrupted)


@pytest.mark.parametrize("method", ["dram", "demcz", "emcee"])
def test_every_kernel_goes_on_where_it_was(tmp_path, method):
    settings = {"method": method, "jump": [0.03, 20.0], "var0": 1.2e-4, "wvar0": 1, "niter": 120, "seed": 3, "lower": 0}
    if method == "dram":
        settings |= {"updatecov": 20, "ntrydr": 3}
    calls = []

    def dying(p):
        calls.append(1)
        if len(calls) == (1500 if method == "emcee" else 200):
            raise KeyboardInterrupt
        return child.residuals(p)

    with pytest.warns(InterruptedWarning):
        stopped = modMCMC(dying, [0.145, 49.0], checkpoint=tmp_path / "c", checkpoint_every=7, **settings)
    assert "Interrupted" in stopped.message
    whole = modMCMC(child.residuals, [0.145, 49.0], **settings)
    assert_same(resume_mcmc(child.residuals, tmp_path / "c"), whole)
    assert_same(resume_mcmc(child.residuals, tmp_path / "c"), whole)  # nothing left to do
    n = len(stopped.pars.loc[0])
    np.testing.assert_array_equal(stopped.pars.loc[0].to_numpy(), whole.pars.loc[0].to_numpy()[:n])


def test_more_iterations_give_the_longer_chain(tmp_path):
    settings = {"jump": 0.2, "updatecov": 50, "seed": 2, "chains": 2}
    modMCMC(normal3, [1, 2, 3], niter=400, checkpoint=tmp_path / "c", checkpoint_every=150, **settings)
    longer = resume_mcmc(normal3, tmp_path / "c", niter=900)
    assert_same(longer, modMCMC(normal3, [1, 2, 3], niter=900, **settings))
    with pytest.raises(ArgumentError, match="less than the 900 iterations"):
        resume_mcmc(normal3, tmp_path / "c", niter=500)


def test_an_unreadable_part_is_done_again(tmp_path, caplog):
    settings = {"jump": 0.2, "niter": 300, "seed": 2}
    modMCMC(normal3, [1, 2, 3], checkpoint=tmp_path / "c", checkpoint_every=100, **settings)
    last = sorted((tmp_path / "c").glob("*.npz"))[-1]
    last.write_bytes(last.read_bytes()[:200])
    assert_same(resume_mcmc(normal3, tmp_path / "c"), modMCMC(normal3, [1, 2, 3], **settings))
    assert "cannot be read" in caplog.text


def test_no_file_holds_a_pickle(tmp_path):
    modMCMC(
        child.residuals,
        [0.145, 49.0],
        checkpoint=tmp_path / "c",
        **{**child.SETTINGS, "niter": 700, "outputlength": 50},
    )
    for file in (tmp_path / "c").glob("*.npz"):
        with np.load(file, allow_pickle=False) as npz:
            assert all(npz[k].dtype != object for k in npz.files)
    assert {f.suffix for f in (tmp_path / "c").iterdir()} == {".npz", ".json"}


@pytest.fixture
def kept(tmp_path):
    """Return a folder of a chain on named parameters with a prior."""
    modMCMC(lambda p: p["a"] ** 2 + p["b"] ** 2, {"a": 1, "b": 1}, prior={"a": norm(0, 2)}, niter=20, jump=1, seed=1,
            checkpoint=tmp_path / "kept")  # fmt: skip
    return tmp_path / "kept"


@pytest.mark.parametrize(
    ("f", "more", "message"),
    [
        (lambda p: 2 * p["a"] ** 2 + p["b"] ** 2, {}, r"at the start is \[2\.0\], now it is \[3\.0\]"),
        (lambda p: np.array([p["a"], p["b"]]), {}, "kind of cost is '-2 log likelihood', now it is 'residuals'"),
        (lambda p: p["c"] ** 2, {}, "another problem: .*KeyError"),
        (lambda p: p["a"] ** 2 + p["b"] ** 2, {"prior": None}, "has a prior, which is not stored: give the same"),
        (lambda p: p["a"] ** 2 + p["b"] ** 2, {"prior": {"a": norm(0, 3)}}, "its -2 log prior at the start is"),
        (lambda p: p["a"] ** 2 + p["b"] ** 2, {"jump": [1, 1]}, "`jump` is stored in the checkpoint"),
    ],
    ids=["value", "kind", "names", "no prior", "prior", "jump"],
)
def test_a_checkpoint_of_another_problem_is_refused_with_what_differs(kept, f, more, message):
    with pytest.raises(ArgumentError, match=message):
        resume_mcmc(f, kept, **{"prior": {"a": norm(0, 2)}, **more})


def test_a_folder_that_holds_a_chain_is_not_written_over(kept):
    with pytest.raises(ArgumentError, match=r"holds a chain already.*resume_mcmc"):
        modMCMC(normal3, [1, 2, 3], checkpoint=kept)


def test_a_folder_without_a_chain_is_told(tmp_path):
    with pytest.raises(ArgumentError, match="there is no chain"):
        resume_mcmc(normal3, tmp_path)


def test_a_jump_function_with_the_random_numbers_given_goes_on_too(tmp_path):
    def jump(p, rng):
        return p + 0.1 * rng.standard_normal(3)

    settings = {"jump": jump, "seed": 2}
    modMCMC(normal3, [1, 2, 3], niter=50, checkpoint=tmp_path / "c", **settings)
    whole = modMCMC(normal3, [1, 2, 3], niter=120, **settings)
    assert whole.naccepted[0] > 20
    assert_same(resume_mcmc(normal3, tmp_path / "c", jump=jump, niter=120), whole)
    with pytest.raises(ArgumentError, match="a function as `jump`: give the same"):
        resume_mcmc(normal3, tmp_path / "c")


def test_a_chain_that_the_last_version_began_goes_on(tmp_path):
    """Written by version 0.1, whose files have no digest."""
    folder = shutil.copytree(ROOT / "tests" / "journal" / "version_0_1" / "chain", tmp_path / "c")

    def minus2log(p):
        return float(((p - np.array([1.0, 2.0])) ** 2).sum())

    longer = resume_mcmc(minus2log, folder, niter=150)
    settings = {"jump": 0.5, "niter": 150, "updatecov": 10, "ntrydr": 2, "seed": 4, "chains": 2}
    assert_same(longer, modMCMC(minus2log, [0.0, 0.0], **settings))
