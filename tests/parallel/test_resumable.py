"""Tasks kept on disk: the same question goes on to the same answer, whatever ended it, and another one is refused."""

from __future__ import annotations

import errno
import json
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from fmepy.errors import ArgumentError
from fmepy.journal import folder as journal_folder
from fmepy.journal import records
from fmepy.journal.encoding import Stored
from fmepy.mcmc import modMCMC
from fmepy.parallel.resumable import resumable_tasks
from tests.parallel.resumable_child import N, ask, record

ROOT = Path(__file__).parent.parent.parent


def assert_same(a, b):
    assert a.ok.tolist() == b.ok.tolist()
    assert a.failures.astype(str).equals(b.failures.astype(str))
    for one, two in zip(a.results, b.results, strict=True):
        assert (one is None) == (two is None)
        if one is not None:
            assert one.keys() == two.keys()
            np.testing.assert_array_equal(one["squares"], two["squares"])
            assert {k: one[k] for k in one if k != "squares"} == {k: two[k] for k in two if k != "squares"}


@pytest.fixture(scope="module")
def whole():
    """Return what comes of the tasks where nothing is kept."""
    return ask(None)[0]


@pytest.fixture
def each_at_once(monkeypatch):
    """Let every task have a part of its own."""
    monkeypatch.setattr(records, "_PAUSE", 0.0)


@dataclass(frozen=True)
class Halfway(Stored):
    x: int
    interrupted: bool = False


def refuse(x, rng):
    raise AssertionError(f"task {x} ran again")


def test_without_a_folder_nothing_is_kept(whole):
    assert [r is None for r in whole.results] == [k % 5 == 3 for k in range(N)]
    assert whole.failures["message"].tolist() == ["no 3 please", "no 8 please"]


@pytest.mark.parametrize("executor", [None, 2])
def test_what_is_kept_is_not_run_again(tmp_path, whole, executor):
    first, notes = ask(tmp_path / "k", executor=executor, force=True)
    assert_same(first, whole)
    again, more = ask(tmp_path / "k", refuse, executor=executor)
    assert_same(again, whole)
    assert notes == more == []


@pytest.mark.parametrize(
    "plan",
    [
        {"where": "task", "count": 1},
        {"where": "task", "count": 6},
        {"where": "half written", "count": 3},
        {"where": "before the rename", "count": 4},
        {"where": "after the rename", "count": 5},
    ],
    ids=str,
)
def test_a_kill_at_any_moment_leaves_what_goes_on_to_the_same_answer(tmp_path, whole, plan):
    command = [sys.executable, "-m", "tests.parallel.resumable_child", str(tmp_path / "k"), json.dumps(plan)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr[-2000:]
    ran = []

    def counted(x, rng):
        ran.append(x)
        return record(x, rng)

    again, notes = ask(tmp_path / "k", counted)
    assert_same(again, whole)
    assert notes == []
    assert len(ran) == N - (plan["count"] - (plan["where"] != "after the rename"))
    assert not list((tmp_path / "k").glob(".*"))


def test_an_interrupted_set_goes_on(tmp_path, whole, each_at_once):
    def stopped(x, rng):
        if x == 6:
            raise KeyboardInterrupt
        return record(x, rng)

    first, _ = ask(tmp_path / "k", stopped)
    assert first.interrupted
    assert first.failures["error"].tolist().count("Interrupted") == N - 6
    assert_same(ask(tmp_path / "k")[0], whole)


def test_a_record_that_was_stopped_halfway_is_returned_and_not_kept(tmp_path):
    with resumable_tasks(tmp_path / "k", "a test") as there:
        runs = there.spread(lambda x: Halfway(x, interrupted=x == 1), range(3), question={})
        assert [r.x for r in runs] == [0, 1, 2]
    with resumable_tasks(tmp_path / "k", "a test") as there:
        runs = there.spread(lambda x: Halfway(10 * x), range(3), question={})
        assert [r.x for r in runs] == [0, 10, 2]


def test_two_rounds_stand_beside_each_other(tmp_path):
    for _ in range(2):
        with resumable_tasks(tmp_path / "k", "a test") as there:
            a = there.spread(lambda x: {"x": x}, [1, 2], question={"of": "a"}, name="first")
            b = there.spread(lambda x: {"x": -x}, [1, 2, 3], question={"of": "b"}, name="second")
        assert [r["x"] for r in a] == [1, 2]
        assert [r["x"] for r in b] == [-1, -2, -3]


# --- the question


@pytest.mark.parametrize(
    ("question", "told"),
    [
        ({"cost": 2.0}, r"its cost is 1\.0, now it is 2\.0"),
        ({"names": ["a"]}, r"its names is \['a', 'b'\], now it is \['a'\]"),
        ({"more": 1}, "its more is not there, now it is 1"),
        ({"bounds": {"lower": np.array([0.0, 1.0])}}, r"its bounds is .*, now it is .*1\.0"),
    ],
)
def test_another_question_is_refused_and_told(tmp_path, question, told):
    asked = {"cost": 1.0, "names": ("a", "b"), "bounds": {"lower": np.zeros(2)}, "none": np.nan}
    with resumable_tasks(tmp_path / "k", "a test") as there:
        there.spread(lambda x: {}, [1], question=asked)
    with resumable_tasks(tmp_path / "k", "a test") as there:
        there.spread(lambda x: {}, [1], question={**asked, "cost": 1 + 1e-13})
        with pytest.raises(ArgumentError, match=told):
            there.spread(lambda x: {}, [1], question={**asked, **question})
        with pytest.raises(ArgumentError, match="its number of tasks is 1, now it is 2"):
            there.spread(lambda x: {}, [1, 2], question=asked)


def test_the_seed_is_that_of_the_folder(tmp_path):
    def drawn(seed):
        with resumable_tasks(tmp_path / "k", "a test", seed=seed) as there:
            return there.rng.random()

    first = drawn(3)
    assert first == np.random.default_rng(3).random()
    assert drawn(None) == drawn(np.random.default_rng(8)) == first
    with pytest.raises(ArgumentError, match="drawn with seed=3, not 4"):
        drawn(4)


def test_a_generator_gives_other_numbers_each_time_with_and_without_a_folder(tmp_path):
    def drawn(generator, folder):
        with resumable_tasks(folder, "a test", seed=generator) as there:
            return there.rng.random()

    one, two = np.random.default_rng(1), np.random.default_rng(1)
    assert [drawn(one, None), drawn(one, None)] == [drawn(two, tmp_path / "a"), drawn(two, tmp_path / "b")]
    assert drawn(one, None) != drawn(one, None)


def test_a_folder_of_something_else_is_refused(tmp_path):
    modMCMC(lambda p: float(p @ p), [1.0], niter=10, checkpoint=tmp_path / "c", seed=1)
    with pytest.raises(ArgumentError, match="holds a chain, not a test"), resumable_tasks(tmp_path / "c", "a test"):
        pass
    with resumable_tasks(tmp_path / "k", "a profile"):
        pass
    with pytest.raises(ArgumentError, match="holds a profile, not a test"), resumable_tasks(tmp_path / "k", "a test"):
        pass
    with pytest.raises(ArgumentError, match="holds a profile"):
        modMCMC(lambda p: float(p @ p), [1.0], niter=10, checkpoint=tmp_path / "k", seed=1)
    (tmp_path / "file").touch()
    with (
        pytest.raises(ArgumentError, match="is a file; a folder is needed"),
        resumable_tasks(tmp_path / "file", "a test"),
    ):
        pass


def test_a_second_writer_is_refused(tmp_path):
    refused = pytest.raises(ArgumentError, match="in use by process")
    with resumable_tasks(tmp_path / "k", "a test"), refused, resumable_tasks(tmp_path / "k", "a test"):
        pass


# --- damage


def parts(folder):
    return sorted(folder.glob("tasks.part-*.npz"))


def rewritten(file, change):
    """Change a part; without a digest, as in files of earlier versions, what it says is looked at by itself."""
    with np.load(file) as npz:
        arrays = {k: npz[k] for k in npz.files}
    meta = json.loads(str(arrays.pop("meta")))
    del meta["digest"]
    change(meta, arrays)
    np.savez(file, **arrays, meta=np.array(json.dumps(meta)))


def digits(file):
    with np.load(file) as npz:
        arrays = {k: npz[k] for k in npz.files}
    first = next(k for k in arrays if k != "meta")
    np.savez(file, **{**arrays, first: arrays[first] + 1e-9})


def pickled(meta, arrays):
    arrays[next(iter(arrays))] = np.array([{"a": 1}], dtype=object)


def foreign(meta, arrays):
    meta["identity"] = "0" * 32


DAMAGE = {
    "cut": lambda f: f.write_bytes(f.read_bytes()[:200]),
    "empty": lambda f: f.write_bytes(b""),
    "nonsense": lambda f: f.write_bytes(b"nonsense" * 50),
    "pickles": lambda f: rewritten(f, pickled),
    "foreign": lambda f: rewritten(f, foreign),
    "no records": lambda f: rewritten(f, lambda meta, arrays: meta.pop("records")),
    "a text for records": lambda f: rewritten(f, lambda meta, arrays: meta.update(records="x")),
    "a digit": digits,
    "unread": lambda f: rewritten(f, lambda meta, arrays: arrays.clear()),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_only_the_tasks_of_a_damaged_part_run_again(tmp_path, whole, each_at_once, how):
    ask(tmp_path / "k")
    DAMAGE[how](parts(tmp_path / "k")[4])
    ran = []

    def counted(x, rng):
        ran.append(x)
        return record(x, rng)

    again, notes = ask(tmp_path / "k", counted)
    assert_same(again, whole)
    assert ran == [4]
    assert "tasks.part-000004.npz cannot be read" in notes[0]
    assert [f.name for f in (tmp_path / "k" / "aside").iterdir()] == ["tasks.part-000004.npz"]
    assert ask(tmp_path / "k", refuse)[1] == []


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"identity": "x", "question": {}}'])
def test_a_damaged_question_is_told(tmp_path, text):
    ask(tmp_path / "k")
    (tmp_path / "k" / "tasks.json").write_text(text)
    with pytest.raises(ArgumentError, match=r"tasks.json cannot be read"):
        ask(tmp_path / "k")
    (tmp_path / "k" / "tasks.json").unlink()
    with pytest.raises(ArgumentError, match=r"tasks.json is missing"):
        ask(tmp_path / "k")


@pytest.mark.parametrize("change", [{"entropy": None}, {"entropy": "x"}, {"spawn_key": 3}, {"pool_size": -1}])
def test_a_seed_that_somebody_has_changed_is_refused(tmp_path, change):
    ask(tmp_path / "k")
    file = tmp_path / "k" / "header.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    with (
        pytest.raises(ArgumentError, match=r"the header in .* is damaged: it is not as it was written"),
        resumable_tasks(tmp_path / "k", "a test"),
    ):
        pass


def test_a_full_disk_does_not_end_the_work(tmp_path, whole, each_at_once, monkeypatch, caplog):
    savez, count = np.savez, [0]

    def refused(file, **arrays):
        count[0] += 1
        if count[0] > 2:
            file.write(b"some of it")
            raise OSError(errno.ENOSPC, "No space left on device")
        savez(file, **arrays)

    with monkeypatch.context() as patch:
        patch.setattr(journal_folder.np, "savez", refused)
        found, notes = ask(tmp_path / "k")
    assert_same(found, whole)
    assert len(notes) == 1
    assert "No space left on device" in notes[0]
    assert caplog.text.count("could be kept") == 1
    assert not list((tmp_path / "k").glob(".*"))
    again, notes = ask(tmp_path / "k")
    assert_same(again, whole)
    assert notes == []


def test_a_folder_of_an_earlier_format_is_refused_with_advice(tmp_path):
    folder = tmp_path / "k"
    folder.mkdir()
    header = {"entropy": 7, "spawn_key": [], "pool_size": 4, "holds": "a test", "format": 1, "identity": "a"}
    (folder / "header.json").write_text(json.dumps(header))
    with pytest.raises(ArgumentError, match=r"`checkpoint`: .* not of a format .* the version of fmepy that began"):
        ask(folder)
