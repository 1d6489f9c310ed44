"""The folder of a checkpoint: one writer, parts that join, our own errors for whatever may be wrong with it."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import time

import numpy as np
import pytest

from fmepy.errors import ArgumentError
from fmepy.journal import files, lock
from fmepy.journal import folder as journal_folder
from fmepy.mcmc import modMCMC, resume_mcmc
from tests.mcmc.problems import normal3
from tests.mcmc.test_checkpoint import assert_same

START = [1, 2, 3]
SETTINGS = {"jump": 0.2, "seed": 2, "niter": 600}


def chain(folder, **more):
    return modMCMC(normal3, START, checkpoint=folder, checkpoint_every=100, **{**SETTINGS, **more})


@pytest.fixture(scope="module")
def whole():
    """Return the chain as it is without any trouble."""
    return modMCMC(normal3, START, **SETTINGS)


@pytest.fixture
def folder(tmp_path):
    chain(tmp_path / "c")
    return tmp_path / "c"


def part(folder, number, of=0):
    return folder / f"chain-{of:03d}.part-{number:06d}.npz"


def rewritten(file, **changed):
    """Write a part again, with other arrays or another description."""
    with np.load(file) as npz:
        arrays = {k: npz[k] for k in npz.files}
    meta = json.loads(str(arrays["meta"]))
    if set(changed) <= {"identity", "chain", "begin", "iteration"}:  # what is looked at in parts without a digest too
        del meta["digest"]
    for name, change in changed.items():
        if name in meta:
            meta[name] = change
        else:
            arrays[name] = change(arrays[name])
    arrays["meta"] = np.array(json.dumps(meta))
    np.savez(file, **arrays)


# --- one writer


HOLD = """
import sys, time
from fmepy.mcmc import modMCMC, resume_mcmc

def slow(p):
    time.sleep(0.01)
    return float(p @ p)

if sys.argv[2] == "new":
    modMCMC(slow, [1.0, 2.0], niter=10**6, checkpoint=sys.argv[1], checkpoint_every=5, seed=1)
else:
    resume_mcmc(slow, sys.argv[1], niter=10**6)
"""


@pytest.mark.parametrize("how", ["new", "resumed"])
def test_a_second_writer_is_refused_until_the_first_has_died(tmp_path, how):
    folder = tmp_path / "c"

    def f(p):
        return float(p @ p)

    if how == "resumed":
        modMCMC(f, [1.0, 2.0], niter=10, checkpoint=folder, checkpoint_every=5, seed=1)
    first = subprocess.Popen([sys.executable, "-c", HOLD, str(folder), how])
    try:
        deadline = time.monotonic() + 60
        while not part(folder, 4).exists():
            assert first.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        with pytest.raises(ArgumentError, match=rf"in use by process {first.pid} on .*name another folder"):
            modMCMC(f, [1.0, 2.0], niter=10, checkpoint=folder, seed=1)
        with pytest.raises(ArgumentError, match=rf"in use by process {first.pid} on"):
            resume_mcmc(f, folder)
    finally:
        first.kill()
        first.wait()
    n = int(resume_mcmc(f, folder, niter=2000).iterations[0])
    assert n == 2000


def test_of_two_chains_on_one_new_folder_the_second_is_refused(tmp_path, whole):
    seen = []

    def f(p):
        if not seen:
            seen.append(1)
        elif len(seen) == 1 and (tmp_path / "c" / "header.json").exists():
            seen.append(2)
            with pytest.raises(ArgumentError, match=f"in use by process {os.getpid()} on"):
                chain(tmp_path / "c")
        return normal3(p)

    assert_same(modMCMC(f, START, checkpoint=tmp_path / "c", checkpoint_every=100, **SETTINGS), whole)
    assert len(seen) == 2
    assert_same(resume_mcmc(normal3, tmp_path / "c"), whole)


def test_a_lock_is_given_back_whatever_ends_the_chain(tmp_path):
    def f(p):
        if (tmp_path / "c" / "header.json").exists():
            raise KeyboardInterrupt
        return normal3(p)

    with pytest.raises(KeyboardInterrupt):
        modMCMC(f, START, checkpoint=tmp_path / "c", **SETTINGS)
    assert int(resume_mcmc(normal3, tmp_path / "c").iterations[0]) == 600


def test_where_there_are_no_locks_it_is_told(tmp_path, monkeypatch, caplog, whole):
    def none(handle):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(lock, "_lock", none)
    assert_same(chain(tmp_path / "c"), whole)
    assert "cannot be locked" in caplog.text


# --- parts that join


def damaged(file):
    file.write_bytes(file.read_bytes()[:300])


FOREIGN = "0" * 32
WRONG = {
    "damaged": damaged,
    "missing": lambda file: file.unlink(),
    "empty": lambda file: file.write_bytes(b""),
    "no archive": lambda file: file.write_bytes(b"nonsense" * 100),
    "a folder": lambda file: (file.unlink(), file.mkdir()),
    "foreign": lambda file: rewritten(file, identity=FOREIGN),
    "of another chain": lambda file: rewritten(file, chain=1),
    "overlapping": lambda file: rewritten(file, begin=150),
    "a gap": lambda file: rewritten(file, begin=250),
    "backwards": lambda file: rewritten(file, iteration=100),
    "rows missing": lambda file: rewritten(file, row_SS=lambda a: a[:50]),
    "NaN": lambda file: rewritten(file, row_pars=lambda a: a * np.nan),
    "wrong type": lambda file: rewritten(file, row_pars=lambda a: a.astype("f4")),
    "text": lambda file: rewritten(file, row_pars=lambda a: a.astype(str)),
    "state of another shape": lambda file: rewritten(file, state_mean=lambda a: np.zeros(5)),
    "state of NaN": lambda file: rewritten(file, state_point_theta=lambda a: a * np.nan),
    "no random numbers": lambda file: rewritten(file, rng={"state": 1}),
    "no number": lambda file: rewritten(file, failures="many"),
    "another digit": lambda file: rewritten(file, row_prior=lambda a: a + 1e-9, state_mean=lambda a: a + 1e-9),
    "pickles": lambda file: rewritten(file, row_prior=lambda a: a.astype(object)),
}


ROWS = {"overlapping", "a gap", "backwards", "rows missing", "wrong type", "NaN", "text"}  # which the start has not
CASES = [
    pytest.param(number, what, marks=[pytest.mark.slow] * (number == 6))
    for number in (0, 3, 6)
    for what in WRONG
    if not ((number == 0 and (what in ROWS or what.startswith("state"))) or (number == 6 and what == "missing"))
]


@pytest.mark.parametrize(("number", "what"), CASES)
def test_reading_stops_at_a_part_that_does_not_join_and_the_chain_is_the_same(folder, whole, what, number, caplog):
    WRONG[what](part(folder, number))
    again = resume_mcmc(normal3, folder)
    assert_same(again, whole)
    assert "Left aside" in again.message
    assert "Left aside" in caplog.text
    left = sorted(f.name for f in (folder / "aside").iterdir())
    missing = {"missing": 1}.get(what, 0)
    assert left == [part(folder, k).name for k in range(number + missing, 7)]
    third = resume_mcmc(normal3, folder)
    assert_same(third, whole)
    assert third.message == ""


def test_a_damaged_part_of_an_extended_chain_leaves_no_row_twice(tmp_path):
    chain(tmp_path / "c", niter=450)
    resume_mcmc(normal3, tmp_path / "c", niter=900)
    damaged(part(tmp_path / "c", 3))
    assert_same(resume_mcmc(normal3, tmp_path / "c"), modMCMC(normal3, START, **{**SETTINGS, "niter": 900}))


def test_parts_of_another_chain_are_not_read(folder, tmp_path, whole):
    chain(tmp_path / "d", seed=3)
    shutil.copy(part(tmp_path / "d", 4), part(folder, 4))
    again = resume_mcmc(normal3, folder)
    assert "belongs to another chain" in again.message
    assert_same(again, whole)


def test_parts_without_their_header_are_an_error_and_not_old_rows(folder):
    (folder / "header.json").unlink()
    with pytest.raises(ArgumentError, match="there is no chain"):
        resume_mcmc(normal3, folder)
    with pytest.raises(ArgumentError, match=r"parts of a chain whose header.json is missing"):
        chain(folder)


def test_a_shape_that_cannot_be_allocates_nothing(folder, whole):
    file = part(folder, 3)
    rewritten(file)
    with np.load(file) as npz:
        arrays = {k: npz[k] for k in npz.files}
    import zipfile

    with zipfile.ZipFile(file, "w") as zipped:
        for name, array in arrays.items():
            with zipped.open(f"{name}.npy", "w") as entry:
                shape = (10**9, 10**6) if name == "row_pars" else array.shape
                np.lib.format.write_array_header_1_0(
                    entry, {"descr": array.dtype.str, "fortran_order": False, "shape": shape}
                )
                entry.write(array.tobytes())
    again = resume_mcmc(normal3, folder)
    assert "(1000000000, 1000000)" in again.message
    assert_same(again, whole)


# --- headers


def without(*path):
    def change(header):
        table = header
        for name in path[:-1]:
            table = table[name]
        del table[path[-1]]

    return change


def with_(value, *path):
    def change(header):
        table = header
        for name in path[:-1]:
            table = table[name]
        table[path[-1]] = value

    return change


KEYS = ("names", "positional", "starts", "lower", "upper", "has_prior", "variances", "problem", "at_start", "jump",
        "settings", "niter", "burninlength", "interval", "every", "jobs", "identity")  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        *[without(k) for k in KEYS],
        *[with_({"a": "b"}, k) for k in KEYS if k != "problem"],
        with_("x", "problem"),
        without("settings", "method"), with_("walk", "settings", "method"), with_("x", "settings", "updatecov"),
        with_(-1, "settings", "covscale"), with_(["a"], "settings", "drscale"), with_({"x": 1}, "settings", "control"),
        with_(float("nan"), "settings", "covscale"),
        with_(0, "niter"), with_(10**6, "burninlength"), with_(0, "interval"), with_(True, "every"), with_(0, "every"),
        with_([], "jobs"), with_([1], "jobs"), without("jobs", 0, "entropy"), with_("x", "jobs", 0, "entropy"),
        with_(None, "jobs", 0, "entropy"), with_(-1, "jobs", 0, "number"), with_([[1, 2]], "jobs", 0, "starts"),
        with_(["x"], "jobs", 0, "spawn_key"), with_(0, "jobs", 0, "pool_size"), without("at_start", "SS"),
        with_("x", "at_start", "SS"), with_([[1.0]], "starts"), with_([1.0], "lower"), with_([[1.0]], "jump"),
        with_([1, 2, 3], "names"), with_([], "names"),
    ],
)  # fmt: skip
def test_a_header_that_somebody_has_changed_is_our_error(folder, change):
    header = json.loads((folder / "header.json").read_text())
    change(header)
    (folder / "header.json").write_text(json.dumps(header))
    with pytest.raises(ArgumentError, match=r"`checkpoint`: .*damaged|`control`|has no `control`"):
        resume_mcmc(normal3, folder)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"format": 1}', "[" * 100_000, b"\xff\xfe\x00"])
def test_a_header_that_is_no_json_of_ours_is_our_error(folder, text):
    (folder / "header.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ArgumentError, match=r"`checkpoint`: .* (cannot be read|not of a format)"):
        resume_mcmc(normal3, folder)


# --- disks


def full_after(monkeypatch, writes, until=10**9):
    """Let the disk be full from a write on."""
    savez, count = np.savez, [0]

    def refused(file, **arrays):
        count[0] += 1
        if writes < count[0] <= until:
            file.write(b"some of it")
            raise OSError(errno.ENOSPC, "No space left on device")
        savez(file, **arrays)

    monkeypatch.setattr(journal_folder.np, "savez", refused)


def test_a_full_disk_does_not_end_the_chain(tmp_path, monkeypatch, caplog, whole):
    with monkeypatch.context() as patch:
        full_after(patch, 3)
        found = chain(tmp_path / "c")
    assert_same(found, whole)
    assert "The checkpoint of chain 0 ends at iteration 200: No space left on device" in found.message
    assert caplog.text.count("nothing can be written after iteration 200") == 1
    assert not list((tmp_path / "c").glob(".*"))
    assert_same(resume_mcmc(normal3, tmp_path / "c"), whole)  # from iteration 200


@pytest.mark.parametrize("writes", [0, 3])
def test_a_disk_that_has_room_again_keeps_the_whole_chain(tmp_path, monkeypatch, writes, whole):
    with monkeypatch.context() as patch:
        full_after(patch, writes, writes + 2)
        assert chain(tmp_path / "c").message == ""
    calls = []

    def counted(p):
        calls.append(1)
        return normal3(p)

    assert_same(resume_mcmc(counted, tmp_path / "c"), whole)
    assert len(calls) < 5


def test_a_full_disk_is_told_by_chains_in_workers_too(tmp_path, whole):
    """Simulated by a folder that goes away under them."""

    def vanish(done, total):
        shutil.rmtree(tmp_path / "c", ignore_errors=True)

    found = chain(tmp_path / "c", progress=vanish)
    assert_same(found, whole)
    assert "The checkpoint of chain 0 ends" in found.message


@pytest.mark.parametrize("kind", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT])
def test_a_folder_that_cannot_be_written_is_told_before_the_chain_begins(tmp_path, monkeypatch, kind):
    def refused(path, write):
        raise OSError(kind, os.strerror(kind))

    monkeypatch.setattr(journal_folder, "write_whole", refused)
    with pytest.raises(ArgumentError, match=r"cannot be written: .*name another folder"):
        chain(tmp_path / "c")


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ArgumentError, match="is a file"):
        chain(tmp_path / "file")
    with pytest.raises(ArgumentError, match="cannot be written"):
        chain(tmp_path / "file" / "c")


def test_a_read_only_folder_gives_the_chain_that_is_complete(folder, whole, monkeypatch):
    def refused(file, mode="r", *args, **kwargs):
        if mode != "r" and mode != "rb":
            raise OSError(errno.EROFS, "Read-only file system")
        return open(file, mode, *args, **kwargs)

    monkeypatch.setattr(lock, "open", refused, raising=False)
    monkeypatch.setattr(files, "open", refused, raising=False)
    before = {f: f.read_bytes() for f in folder.iterdir()}
    assert_same(resume_mcmc(normal3, folder), whole)
    with pytest.raises(ArgumentError, match=r"read-only, and a chain is at iteration 600 of 900\. Copy the folder"):
        resume_mcmc(normal3, folder, niter=900)
    assert {f: f.read_bytes() for f in folder.iterdir()} == before
    with pytest.raises(ArgumentError, match="is read-only"):
        chain(folder)


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="tmpfs is Linux's")
def test_a_disk_that_is_really_full(tmp_path, whole):
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24k", "tmpfs", tmp_path], check=False).returncode:
        pytest.skip("only root can mount")
    try:
        found = chain(tmp_path / "c")
        assert_same(found, whole)
        assert "The checkpoint of chain 0 ends" in found.message
    finally:
        subprocess.run(["umount", tmp_path], check=True)
