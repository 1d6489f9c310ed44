"""What a user names is read through one door: regular, bounded, and no more than that, whatever happens meanwhile."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import time
import zipfile

import numpy as np
import pytest

import fmepy as fme
from fmepy.errors import ArgumentError
from fmepy.journal import arrays, files
from fmepy.journal.arrays import DAMAGE
from fmepy.journal.files import file_digest, open_file, read_file, write_whole
from fmepy.journal.folder import Journal
from tests.journal.samples import chain, fit

posix = pytest.mark.skipif(sys.platform == "win32", reason="pipes and devices are those of POSIX")


@pytest.fixture(autouse=True)
def in_seconds():
    """A test that waits for a pipe ends."""
    if sys.platform != "win32":
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.alarm(60)
    yield
    if sys.platform != "win32":
        signal.alarm(0)


def pipe(path):
    os.mkfifo(path)


def device(path):
    path.symlink_to("/dev/zero")


def endless(path):
    path.touch()
    os.truncate(path, 10**12)


STRANGE = {pipe: "it is a pipe", device: "it is a device", endless: "it has more than .* MB; take out"}


def test_a_file_of_the_right_size_is_read_whole(tmp_path):
    path = tmp_path / "file"
    for content in (b"", b"x" * 10, bytes(3_000_000)):
        path.write_bytes(content)
        assert read_file(path, len(content)) == content
        assert file_digest(path) == hashlib.sha256(content).hexdigest()
    with pytest.raises(OSError, match="it has more than 3 MB; take out"):
        read_file(path, 2_999_999)


@posix
@pytest.mark.parametrize("make", STRANGE)
def test_what_is_no_file_or_too_large_is_refused_before_it_is_read(tmp_path, make):
    make(tmp_path / "file")
    with pytest.raises(OSError, match=STRANGE[make]):
        read_file(tmp_path / "file", 10)


def test_folders_links_to_nowhere_and_names_of_no_file_are_refused(tmp_path):
    with pytest.raises(OSError, match="it is a folder, not a file; name a file in it"):
        open_file(tmp_path, 10)
    with pytest.raises(FileNotFoundError):
        open_file(tmp_path / "nothing", 10)
    with pytest.raises(OSError, match="no file has such a name"):
        open_file("a\0b", 10)


@posix
def test_a_file_that_grows_or_says_less_than_it_holds_is_read_up_to_the_limit(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_bytes(b"x" * 10)
    monkeypatch.setattr(files, "_CHUNK", 4)
    with open_file(path, 15) as file:
        parts = files._parts(file, 15)
        assert next(parts) == b"xxxx"
        path.write_bytes(b"x" * 100)
        with pytest.raises(OSError, match="it grows while it is read, or has no end"):
            list(parts)
    with pytest.raises(OSError, match="has no end"):
        read_file("/proc/self/status", 10)  # its size is 0, it says


@posix
def test_a_pipe_that_takes_the_place_of_a_file_is_not_waited_for(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.touch()
    look = os.stat

    def then_exchanged(name, *args, **kwargs):
        found = look(name, *args, **kwargs)
        if name == path:
            monkeypatch.undo()
            path.unlink()
            os.mkfifo(path)
        return found

    monkeypatch.setattr(os, "stat", then_exchanged)
    with pytest.raises(OSError, match="it is a pipe"):
        read_file(path, 10)


def test_the_digest_of_a_very_large_file_is_of_its_size_and_last_change(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_bytes(b"x" * 100)
    monkeypatch.setattr(files, "MOST_DATA", 50)
    before = file_digest(path)
    assert file_digest(path) == before
    path.write_bytes(b"y" * 100)
    os.utime(path, ns=(0, time.time_ns() + 10**9))
    assert file_digest(path) != before


@posix
def test_nothing_is_written_through_a_link(tmp_path):
    (tmp_path / "letter").write_text("dear reader")
    (tmp_path / f".new.{os.getpid()}.tmp").symlink_to(tmp_path / "letter")
    write_whole(tmp_path / "new", lambda file: file.write(b"1"))
    assert (tmp_path / "letter").read_text() == "dear reader"
    assert (tmp_path / "new").read_bytes() == b"1"


# --- results and checkpoints


@posix
@pytest.mark.parametrize("make", STRANGE)
@pytest.mark.parametrize("name", ["fit.json", "chain/result.json", "chain/arrays"])
def test_a_result_is_loaded_from_files_only(tmp_path, name, make):
    fit().save(tmp_path / "fit.json")
    (held,) = chain().save(tmp_path / "chain").glob("*.npz")
    path = held if name == "chain/arrays" else tmp_path / name
    path.unlink()
    make(path)
    with pytest.raises(ArgumentError, match=STRANGE[make]):
        fme.load(tmp_path / name.split("/")[0])
    if name == "fit.json":
        with pytest.raises(ArgumentError, match="is not a result of fmepy"):
            fit().save(path)


@posix
@pytest.mark.parametrize("make", STRANGE)
@pytest.mark.parametrize("name", ["header.json", "chain-000.part-000001.npz", "owner.json"])
def test_a_chain_goes_on_from_files_only(tmp_path, name, make):
    folder = tmp_path / "chain"

    def cost(p):
        return (p["a"] - 1) ** 2

    whole = fme.modMCMC(cost, {"a": 0.0}, niter=20, seed=1, checkpoint=folder)
    (folder / name).unlink()
    make(folder / name)
    if "part" in name or (name == "owner.json" and make is endless):  # set aside, or written anew
        assert fme.resume_mcmc(cost, folder).pars.equals(whole.pars)
        return
    with pytest.raises(ArgumentError) as refused:
        fme.resume_mcmc(cost, folder)
    assert "`checkpoint`" in str(refused.value)


@posix
def test_the_lock_of_a_folder_empties_no_other_file(tmp_path):
    (tmp_path / "letter").write_text("dear reader")
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "owner.json").symlink_to(tmp_path / "letter")
    with pytest.raises(ArgumentError, match="`checkpoint`"), Journal(tmp_path / "work", "a chain", 2).held():
        pass
    assert (tmp_path / "letter").read_text() == "dear reader"


def npz(path, how=zipfile.ZIP_STORED, **members):
    with zipfile.ZipFile(path, "w", how) as zipped:
        for name, content in members.items():
            zipped.writestr(f"{name}.npy", content)


def header(shape, dtype="<f8"):
    text = f"{{'descr': {dtype!r}, 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


BOMBS = {
    "compressed": lambda path: np.savez_compressed(path, pars=np.zeros(10**6)),
    "a huge shape": lambda path: npz(path, pars=header((10**6, 10**6)) + bytes(8)),
    "negative": lambda path: npz(path, pars=header((-1, -1)) + bytes(8)),
    "a huge text": lambda path: npz(path, pars=header((), "<U1000000000") + bytes(8)),
    "no array": lambda path: npz(path, pars=b"hello"),
    "a pickle": lambda path: np.savez(path, pars=np.array([{}], dtype=object)),
    "no archive": lambda path: path.write_bytes(b"PK" * 1000),
    "a long list": lambda path: path.write_bytes(b"PK\x05\x06" + bytes(8) + b"\xff\xff\xff\x7f" + bytes(6)),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_arrays_are_never_larger_than_their_file(tmp_path, bomb):
    (path,) = chain().save(tmp_path / "chain").glob("*.npz")
    BOMBS[bomb](path)
    with pytest.raises(ArgumentError, match="is damaged"):
        fme.load(tmp_path / "chain")
    folder = Journal(tmp_path / "chain", "a chain", 2)
    with pytest.raises(DAMAGE):
        folder.read_part(path)


def test_members_that_nobody_names_are_not_read(tmp_path, monkeypatch):
    (path,) = chain().save(tmp_path / "chain").glob("*.npz")
    with np.load(path) as held:
        np.savez(path, huge=np.zeros(1000), **held)
    read = arrays.Arrays._array
    monkeypatch.setattr(
        arrays.Arrays,
        "_array",
        lambda self, info: read(self, info) if info.filename != "huge.npy" else pytest.fail("read"),
    )
    assert fme.load(tmp_path / "chain").pars.equals(chain().pars)


def test_what_could_not_be_loaded_is_not_saved(tmp_path, monkeypatch):
    from fmepy.journal import saving

    monkeypatch.setattr(saving, "MOST_TABLE", 1000)
    with pytest.raises(ArgumentError, match=r"and `load` reads at most .* Give the name of a folder"):
        fit().save(tmp_path / "fit.json")
    monkeypatch.setattr(saving, "MOST_ARRAYS", 100)
    with pytest.raises(ArgumentError, match=r"its arrays have .* Save it in parts"):
        chain().save(tmp_path / "chain")
    assert list(tmp_path.iterdir()) == []


def test_a_structure_cannot_ask_for_more_memory_than_there_is(tmp_path):
    """Types and shapes of a file are its own words."""
    path = fit().save(tmp_path / "fit.json")
    whole = path.read_text()
    for change in (
        {"type": "array", "dtype": "<U1000000000", "shape": [1], "values": ["x"]},
        {"type": "array", "dtype": "<f8", "shape": [10**12], "values": [0.0]},
        {"type": "range", "names": [None], "bounds": [0, 10**15, 1]},
        {"type": "objects", "shape": [10**12], "items": []},
    ):
        head = json.loads(whole)
        head["result"]["fields"]["theta"] = change
        path.write_text(json.dumps(head))
        with pytest.raises(ArgumentError, match="is damaged"):
            fme.load(path)
