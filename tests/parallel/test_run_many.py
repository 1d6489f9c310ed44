"""Many runs: in order, the same on any number of workers, failures kept, nothing lost."""

from __future__ import annotations

import logging
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fmepy.errors import ArgumentError, FmepyError
from fmepy.parallel import Runs, run_many, spreading, worker

draw = lambda x, rng: x + float(rng.normal())  # noqa: E731    # a lambda travels by value: workers need not find this file


class Refusing(Executor):
    """An executor that must not be used."""

    def submit(self, *args, **kwargs):
        raise AssertionError("used")


class Counting(Executor):
    """One worker that unpickles what it gets, as another process would, and counts what travels."""

    _max_workers = 2

    def __init__(self):
        self.tasks, self.payloads = 0, 0

    def submit(self, function, *args):
        token, payload, batch, *more = pickle.loads(pickle.dumps(args))
        self.tasks += 1
        self.payloads += payload is not None
        future: Future = Future()
        future.set_result(function(token, payload, batch, *more))
        return future


# --- inputs


def test_a_table_gives_one_dict_per_row():
    table = pd.DataFrame({"a": [1.0, 2.0], "b": [10.0, 20.0]}, index=[7, 3])
    assert run_many(lambda p: p, table).results == [{"a": 1.0, "b": 10.0}, {"a": 2.0, "b": 20.0}]


def test_a_mapping_of_columns_is_a_table():
    assert run_many(lambda p: p["a"] + p["b"], {"a": [1, 2], "b": [10, 20]}).results == [11, 22]


def test_a_table_of_generated_names_gives_arrays():
    runs = run_many(lambda p: (type(p), p[0] - p[1]), pd.DataFrame({"p1": [3, 5], "p2": [1, 1]}))
    assert runs.results == [(np.ndarray, 2.0), (np.ndarray, 4.0)]


def test_generated_names_out_of_order_give_dicts():
    assert run_many(lambda p: type(p), pd.DataFrame({"p2": [3], "p1": [1]})).results == [dict]


def test_the_items_of_a_sequence_are_passed_as_they_are():
    items = ["a", None, {"x": 1}, (1, 2)]
    assert run_many(lambda p: p, items).results == items


def test_no_inputs_give_no_runs():
    for executor in (None, 2):
        runs = run_many(lambda p: p, [], executor=executor)
        assert len(runs) == 0
        assert runs.ok.dtype == bool
        assert list(runs.failures.columns) == ["run", "parameters", "error", "message"]


# --- failures


def test_failures_are_kept_and_the_others_go_on():
    runs = run_many(lambda p: 1 / p["a"], {"a": [1.0, 0.0, 4.0]})
    assert runs.results == [1.0, None, 0.25]
    assert runs.ok.tolist() == [True, False, True]
    (row,) = runs.failures.to_dict("records")
    assert row.pop("message").endswith("division by zero")  # "float division by zero" before Python 3.14
    assert row == {"run": 1, "parameters": {"a": 0.0}, "error": "ZeroDivisionError"}
    assert "1 failed: ZeroDivisionError 1" in repr(runs)


def test_none_is_a_result_and_not_a_failure():
    runs = run_many(lambda p: None, [1, 2])
    assert runs.ok.all()
    assert repr(runs) == "2 runs, none failed"


def test_failures_from_processes_are_the_same_as_here():
    def half(x):
        if x % 3 == 0:
            raise ValueError(f"{x} is divisible by three")
        return x / 2

    here, there = (run_many(half, range(20), executor=e, force=True) for e in (None, 2))
    assert here.results == there.results
    pd.testing.assert_frame_equal(here.failures, there.failures)


def test_runs_pickle():
    again = pickle.loads(pickle.dumps(run_many(lambda p: 1 / p, [1, 0])))
    assert isinstance(again, Runs)
    assert again.results == [1.0, None]


def test_runs_are_iterated_and_indexed_as_their_results():
    runs = run_many(lambda p: 10 * p, [1, 2, 3])
    assert [r for r in runs] == list(runs) == runs.results == runs[:]
    assert (runs[0], runs[-1], runs[1:], len(runs)) == (10, 30, [20, 30], 3)
    assert 20 in runs
    with pytest.raises(IndexError):
        runs[3]


def test_many_failures_print_shortly():
    text = repr(run_many(lambda p: 1 / 0, range(100)))
    assert len(text.splitlines()) == 7


# --- chance


def test_seeded_runs_do_not_depend_on_the_workers():
    here, one, two = (run_many(draw, range(30), seed=5, executor=e, force=True).results for e in (None, 1, 2))
    assert here == one == two
    assert here == run_many(draw, range(30), seed=np.random.default_rng(5)).results
    assert here != run_many(draw, range(30), seed=6).results
    assert len({round(r - i, 12) for i, r in enumerate(here)}) == 30


def test_seed_zero_counts():
    assert run_many(draw, [0.0], seed=0).results == run_many(draw, [0.0], seed=0).results


def test_a_generator_counts_on():
    rng = np.random.default_rng(1)
    assert run_many(draw, [0.0], seed=rng).results != run_many(draw, [0.0], seed=rng).results


def test_without_a_seed_there_is_no_rng():
    assert run_many(draw, [1]).failures["error"].tolist() == ["TypeError"]


# --- where it runs


def test_force_uses_at_least_two_processes_and_not_this_one(tmp_path):
    def pid(_):
        (tmp_path / str(os.getpid())).touch()
        deadline = time.monotonic() + 30  # the first worker waits for the second, however slowly that starts
        while len(list(tmp_path.iterdir())) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        return os.getpid()

    pids = set(run_many(pid, range(20), executor=2, force=True).results)
    assert len(pids) >= 2
    assert os.getpid() not in pids


def test_cheap_runs_stay_here_and_it_says_so(caplog):
    with caplog.at_level(logging.INFO, logger="fmepy.parallel"):
        runs = run_many(lambda _: os.getpid(), range(1000), executor=2)
    assert set(runs.results) == {os.getpid()}
    assert "stay in this process" in caplog.text


def test_long_runs_are_spread(monkeypatch):
    monkeypatch.setattr(spreading, "POOL_START", 0.1)
    monkeypatch.setattr(spreading, "_TRIAL", 0.01)

    def pid(_):
        time.sleep(0.05)
        return os.getpid()

    runs = run_many(pid, range(12), executor=2)
    assert len(set(runs.results) - {os.getpid()}) >= 1
    assert runs.results[0] == os.getpid()  # the trial


def test_results_come_in_order_whatever_the_batches():
    assert run_many(lambda i: -i, range(5000), executor=2, force=True).results == [-i for i in range(5000)]


def test_the_function_travels_once_per_worker_and_cheap_runs_in_batches():
    big = np.zeros(1000)
    executor = Counting()
    runs = run_many(lambda i: i + big[0], range(2000), executor=executor)
    assert runs.results == list(range(2000))
    assert executor.payloads == 2
    assert executor.tasks < 200


def test_a_worker_that_lacks_the_function_asks_for_it(monkeypatch):
    kept = worker._functions

    class Forgetful(Counting):
        def submit(self, function, *args):
            kept.clear()
            return super().submit(function, *args)

    executor = Forgetful()
    assert run_many(lambda i: 2 * i, range(50), executor=executor).results == [2 * i for i in range(50)]
    assert executor.payloads > 2


def test_a_pool_of_threads_may_hold_what_cannot_travel():
    lock, seen = threading.Lock(), []

    def note(x):
        with lock:
            seen.append(x)
        return threading.current_thread().name

    with ThreadPoolExecutor(2, thread_name_prefix="mine") as pool:
        runs = run_many(note, range(40), executor=pool)
        assert pool.submit(int).result() == 0  # it is still open
    assert sorted(seen) == list(range(40))
    assert all(name.startswith("mine") for name in runs.results)


def test_a_pool_of_the_standard_library_will_do():
    import multiprocessing

    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        assert run_many(lambda i: i**2, range(10), executor=pool).results == [i**2 for i in range(10)]


def test_what_cannot_be_sent_is_told():
    lock = threading.Lock()
    with pytest.raises(FmepyError, match="the function cannot be sent to other processes"):
        run_many(lambda x: lock, [1, 2], executor=2, force=True)


def test_a_result_that_cannot_come_back_is_that_run_s_failure():
    def odd(x):
        return threading.Lock() if x == 1 else x

    runs = run_many(odd, range(3), executor=2, force=True)
    assert runs.ok.tolist() == [True, False, True]
    assert "cannot be sent back" in runs.failures["message"][0]


def test_a_function_that_a_worker_cannot_load_is_told():
    class Trap:
        def __call__(self, x):
            return x

        def __reduce__(self):
            return int, ("no number",)

    with pytest.raises(FmepyError, match="cannot load the function: ValueError"):
        run_many(Trap(), [1, 2], executor=2, force=True)


# --- trouble


def leave(x):
    if x == 2:
        sys.exit("enough")
    return x


@pytest.mark.parametrize("where", ["here", "processes", "threads", "Dask"])
def test_a_run_that_calls_sys_exit_is_a_failure_everywhere(where):
    with ExitStack() as stack:
        if where == "Dask":
            distributed = pytest.importorskip("distributed")
            executor = stack.enter_context(distributed.Client(processes=False, dashboard_address=None))
        else:
            executor = {"here": None, "processes": 2, "threads": ThreadPoolExecutor(2)}[where]
        runs = run_many(leave, range(5), executor=executor, force=True)
    assert runs.results == [0, 1, None, 3, 4]
    assert not runs.interrupted
    assert runs.failures[["error", "message"]].to_numpy().tolist() == [
        ["SystemExit", "The run called sys.exit('enough')."]
    ]


def test_an_error_that_cannot_be_told_is_a_failure_all_the_same():
    class MuteError(Exception):
        def __str__(self):
            raise RuntimeError("mute")

    def fail(x):
        raise MuteError

    assert run_many(fail, [1]).failures["error"].tolist() == ["MuteError"]


def test_a_dask_client_is_an_executor():
    distributed = pytest.importorskip("distributed")
    with distributed.Client(processes=False, dashboard_address=None) as client:
        assert run_many(draw, range(5), seed=5, executor=client).results == run_many(draw, range(5), seed=5).results
        assert client.submit(int).result() == 0  # it is still open


def test_timeout_ends_a_run_that_hangs_and_keeps_it_as_a_failure():
    def hang(x):
        time.sleep(1000 if x == 2 else 0.01)
        return x

    runs = run_many(hang, range(6), executor=2, timeout=1.5)
    assert runs.results == [0, 1, None, 3, 4, 5]
    assert runs.failures[["run", "error", "message"]].to_numpy().tolist() == [
        [2, "TimedOut", "Ended after timeout=1.5 seconds."]
    ]


@pytest.mark.parametrize("executor", [None, "threads"])
def test_timeout_needs_processes(executor):
    with pytest.raises(ArgumentError, match="needs processes of this machine"):
        run_many(abs, [1], timeout=1, executor=ThreadPoolExecutor(1) if executor else None)
    with pytest.raises(ArgumentError, match="`timeout=-1`"):
        run_many(abs, [1], timeout=-1, executor=2)


ORPHANS = """
import os, signal, sys, threading, time
from fmepy.parallel import run_many

def work(folder):
    open(os.path.join(folder, str(os.getpid())), "w").close()
    if len(os.listdir(folder)) >= 2:
        os.kill(int(sys.argv[2]) if len(sys.argv) > 2 else os.getppid(), signal.SIGKILL)
    time.sleep(1000)

run_many(work, [sys.argv[1]] * 2, executor=2, force=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_workers_do_not_outlive_a_parent_that_was_killed(tmp_path):
    command = [sys.executable, "-c", ORPHANS, str(tmp_path)]
    done = subprocess.run(command, check=False, timeout=120, stderr=subprocess.DEVNULL)
    assert done.returncode == -signal.SIGKILL
    workers = [int(name) for name in os.listdir(tmp_path)]
    assert len(workers) == 2
    deadline = time.monotonic() + 60
    while alive := [pid for pid in workers if is_alive(pid)]:
        assert time.monotonic() < deadline, alive
        time.sleep(0.1)


def is_alive(pid):
    try:
        os.kill(pid, 0)
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except ProcessLookupError:
        return False
    except FileNotFoundError:  # gone meanwhile, or a system without /proc
        return not Path("/proc").exists()


def test_a_worker_that_dies_costs_only_its_run(caplog):
    def die_on_13(x):
        if x == 13:
            os._exit(1)
        return x

    runs = run_many(die_on_13, range(40), executor=2, force=True)
    assert [r for r in runs.results if r is not None] == [i for i in range(40) if i != 13]
    (row,) = runs.failures.to_dict("records")
    assert (row["run"], row["error"]) == (13, "WorkerDied")
    assert "a worker process died" in caplog.text


def test_when_workers_keep_dying_the_rest_is_given_up(monkeypatch):
    monkeypatch.setattr(spreading, "_DEATHS", 2)
    runs = run_many(lambda x: os._exit(1), range(30), executor=2, force=True)
    assert not runs.ok.any()
    assert set(runs.failures["error"]) == {"WorkerDied"}
    assert runs.failures["message"].str.startswith("Not tried").any()


def test_a_broken_executor_of_the_user_ends_in_failures():
    import multiprocessing

    def die(x):
        os._exit(1)

    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        runs = run_many(die, range(5), executor=pool)
    assert set(runs.failures["error"]) == {"WorkerDied"}


def test_an_error_of_progress_is_the_users_and_passes_through():
    def complain(done, total):
        raise LookupError("mine")

    for executor in (None, 2):
        with pytest.raises(LookupError, match="mine"):
            run_many(lambda i: i, range(4), executor=executor, progress=complain)


# --- progress and arguments


@pytest.mark.parametrize("executor", [None, 2])
def test_progress_is_told_to_a_callable(executor):
    seen = []
    run_many(lambda i: i, range(10), executor=executor, force=True, progress=lambda *a: seen.append(a))
    assert seen[-1] == (10, 10)
    assert seen == sorted(seen)


def test_progress_true_is_a_bar(capsys):
    run_many(lambda i: i, range(10), progress=True)
    assert "10/10" in capsys.readouterr().err


@pytest.mark.parametrize("executor", [0, -1, True, "two", 2.5])
def test_a_wrong_executor_is_refused(executor):
    with pytest.raises(ArgumentError, match="`executor"):
        run_many(abs, [1], executor=executor)


@pytest.mark.parametrize("seed", [-1, "a", 1.5, True])
def test_a_wrong_seed_is_refused(seed):
    with pytest.raises(ArgumentError, match="`seed="):
        run_many(abs, [1], seed=seed)


@pytest.mark.parametrize("inputs", ["abc", 3, {"a": [1, 2], "b": [1]}])
def test_wrong_inputs_are_refused(inputs):
    with pytest.raises(ArgumentError, match="`inputs`"):
        run_many(abs, inputs)


def test_other_wrong_arguments_are_refused():
    with pytest.raises(ArgumentError, match="`function`"):
        run_many(3, [1])
    with pytest.raises(ArgumentError, match="`progress="):
        run_many(abs, [1], progress="yes")
    with pytest.raises(ArgumentError, match="more than one column"):
        run_many(abs, pd.DataFrame([[1, 2]], columns=["a", "a"]))
    with pytest.raises(AssertionError, match="used"):
        run_many(abs, [1], executor=Refusing())


# --- kept on disk


def test_a_checkpoint_keeps_whatever_can_be_saved_and_only_the_rest_runs(tmp_path):
    ran = []

    def results(x, rng):
        ran.append(x)
        if x == 3:
            raise ValueError("three")
        return {"table": pd.DataFrame({"a": [x, np.nan]}, index=["u", "v"]), "pair": (x, "text"), "draw": rng.random()}

    whole = run_many(results, range(5), seed=1)
    first = run_many(results, range(5), seed=1, checkpoint=tmp_path / "c")
    del ran[:]
    again = run_many(results, range(5), seed=1, checkpoint=tmp_path / "c", executor=2, force=True)
    assert ran == []
    for runs in (first, again):
        pd.testing.assert_frame_equal(runs.failures, whole.failures)
        for a, b in zip(runs.results, whole.results, strict=True):
            assert (a is None) == (b is None)
            if a is not None:
                pd.testing.assert_frame_equal(a["table"], b["table"])
                assert (a["pair"], a["draw"]) == (b["pair"], b["draw"])


def test_a_checkpoint_that_was_killed_goes_on_to_the_same_runs(tmp_path):
    code = (
        "import os, sys\nfrom fmepy.journal import records\nfrom fmepy.parallel import run_many\nrecords._PAUSE = 0.0\n"
        "def squared(x, rng):\n    if x == 4 and 'die' in sys.argv:\n        os._exit(9)\n"
        "    return x**2 + rng.random()\n"
        "print(run_many(squared, range(8), seed=2, checkpoint=sys.argv[1]).results)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "c")]
    assert subprocess.run([*command, "die"], check=False).returncode == 9
    assert len(list((tmp_path / "c").glob("tasks.part-*.npz"))) == 4
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(run_many(lambda x, rng: x**2 + rng.random(), range(8), seed=2).results)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"inputs": [1, 2, 4]}, "its digest of the inputs is"),
        ({"inputs": [1, 2]}, "its digest of the inputs is"),
        ({"seed": None}, "its with a seed is True, now it is False"),
        ({"seed": 3}, "was drawn with seed=2, not 3"),
    ],
)
def test_a_checkpoint_of_other_runs_is_refused(tmp_path, change, told):
    def number(x, rng=None):
        return x

    asked = {"inputs": [1, 2, 3], "seed": 2, "checkpoint": tmp_path / "c"}
    run_many(number, **asked)
    with pytest.raises(ArgumentError, match=told):
        run_many(number, **{**asked, **change})
    with pytest.raises(ArgumentError, match=r"its function is .*number.*, now it is .*lambda"):
        run_many(lambda x, rng: x, **asked)


def test_what_no_file_can_hold_is_told(tmp_path):
    with pytest.raises(ArgumentError, match=r"`checkpoint`: .*results.0.1.* holds a builtins.object"):
        run_many(lambda x: object(), [1], checkpoint=tmp_path / "a")
    with pytest.raises(ArgumentError, match=r"`checkpoint` needs inputs that a file can hold.*`inputs.0`"):
        run_many(lambda x: 1, [object()], checkpoint=tmp_path / "b")
