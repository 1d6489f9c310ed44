"""Compiled code is kept where we say, mended where it is damaged, and removed where nobody uses it."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

from fmepy.compiled import c_loops, folder
from fmepy.compiled.c_loops import address, c_loop
from tests.compiled.kernels_of_tests import halved

PROGRAM = textwrap.dedent("""
    import sys
    import fmepy
    import numpy as np
    from fmepy.models.difference import DifferenceModel
    model = DifferenceModel("next(x) = a * x", state={"x": 1}, times=np.arange(9), parms={"a": 0.5})
    print(model()["x"].iloc[-1])
    assert "numba" not in sys.modules
""")
VALUE = "0.00390625"


def run(cache, where, **environment):
    environment = {
        **os.environ, "XDG_CACHE_HOME": str(cache), "LOCALAPPDATA": str(cache), "HOME": str(cache), **environment
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, cwd=where, check=False,
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_no_variable_of_another_package_names_the_folder(tmp_path):
    assert run(tmp_path, tmp_path, NUMBA_CACHE_DIR=str(tmp_path / "theirs")) == VALUE
    assert not (tmp_path / "theirs").exists()
    assert list((tmp_path / "fmepy" / "compiled").glob("*.o"))


SPOILT = {
    "cut off": lambda content: content[:40],
    "empty": lambda content: b"",
    "one bit": lambda content: content[:-9] + bytes([content[-9] ^ 1]) + content[-8:],
    "another format": lambda content: b"something else" * 100,
}


@pytest.fixture
def half(tmp_path, monkeypatch):
    """Return a small kernel, compiled or read back at every call, in a folder of its own."""
    monkeypatch.setattr(c_loops, "cache_folder", lambda: tmp_path / "kept")

    def of(x):
        out = np.empty(1)
        c_loop.__wrapped__(halved, "a kernel")(x, address(out))
        return out[0]

    return of


def kept(tmp_path):
    return list((tmp_path / "kept").glob("*.o"))


def compilations(caplog):
    return caplog.text.count("Compiling a kernel for the first time")


@pytest.mark.parametrize("how", SPOILT)
def test_a_damaged_file_is_discarded_and_made_anew(tmp_path, half, how, caplog):
    with caplog.at_level("INFO", logger="fmepy"):
        assert half(3.0) == half(3.0) == 1.5
        assert compilations(caplog) == 1
        (file,) = kept(tmp_path)
        file.write_bytes(SPOILT[how](file.read_bytes()))
        assert half(3.0) == 1.5
        assert compilations(caplog) == 2
        assert half(3.0) == 1.5
        assert compilations(caplog) == 2


def link(file):
    file.rename(file.with_suffix(".real"))
    file.symlink_to(file.with_suffix(".real"))


def pipe(file):
    file.unlink()
    os.mkfifo(file)


posix = pytest.mark.skipif(sys.platform == "win32", reason="modes, owners and links are those of POSIX")
STRANGE = {
    "others may write": (lambda file: file.chmod(0o606), "others may write"),
    "its group may write": (lambda file: file.chmod(0o660), "others may write"),
    "a link": (link, "symbolic links"),
    "a pipe": (pipe, "no regular file"),
    "endless": (lambda file: os.truncate(file, 10**12), "too large"),
}


def test_a_folder_in_the_place_of_a_file_is_no_crash(tmp_path, half, caplog):
    half(3.0)
    (file,) = kept(tmp_path)
    file.unlink()
    file.mkdir()
    with caplog.at_level("INFO", logger="fmepy"):
        assert half(3.0) == 1.5
    assert "Is a directory" in caplog.text


@posix
@pytest.mark.parametrize("how", STRANGE)
def test_a_file_that_somebody_else_could_have_made_is_never_code(tmp_path, half, how, caplog):
    half(3.0)
    (file,) = kept(tmp_path)
    change, why = STRANGE[how]
    change(file)
    with caplog.at_level("INFO", logger="fmepy"):
        assert half(3.0) == 1.5
    assert compilations(caplog) == 1
    assert why in caplog.text
    assert stat.S_ISREG(file.lstat().st_mode)
    assert file.stat().st_mode & 0o777 == 0o600


@posix
def test_a_file_or_folder_of_somebody_else_is_never_code(tmp_path, half, monkeypatch, caplog):
    half(3.0)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with caplog.at_level("INFO", logger="fmepy"):
        assert half(3.0) == 1.5
    assert "it belongs to somebody else" in caplog.text
    assert "belongs to somebody else" in folder._why_not_private(tmp_path / "kept")


def test_a_file_under_the_name_of_another_is_never_its_code(tmp_path):
    folder.write_cached(tmp_path / "one.o", b"code of one")
    assert folder.read_cached(tmp_path / "one.o") == b"code of one"
    (tmp_path / "one.o").rename(tmp_path / "other.o")
    assert folder.read_cached(tmp_path / "other.o") is None
    assert not (tmp_path / "other.o").exists()


@posix
@pytest.mark.parametrize("mode", [0o777, 0o1777])
def test_a_folder_that_others_can_exchange_is_not_used(tmp_path, monkeypatch, mode, caplog):
    """Nobody but its owner can rename what lies in a folder with the sticky bit, such as /tmp."""
    shared = tmp_path / "shared"
    (shared / "cache").mkdir(parents=True)
    shared.chmod(mode)
    monkeypatch.setenv("XDG_CACHE_HOME", str(shared / "cache"))
    monkeypatch.setattr(folder.sys, "platform", "linux")
    found = folder.cache_folder.__wrapped__()
    assert (found == shared / "cache" / "fmepy" / "compiled") == (mode == 0o1777)
    assert (f"others may write to {shared}" in caplog.text) == (mode == 0o777)


def test_a_full_disk_costs_time_and_nothing_else(tmp_path, half, monkeypatch, caplog):
    def refused(path, content):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(folder, "replace_file", refused)
        assert half(3.0) == half(3.0) == 1.5
    assert caplog.text.count("Free some space there") == 1
    assert kept(tmp_path) == []


def test_what_nobody_uses_is_removed_first_by_age_then_by_size(tmp_path, monkeypatch):
    now, day = time.time(), 86_400

    def files(name, days, size=10):
        for ending in (".py", ".f-1.py311.nbi", ".f-1.py311.0123.nbc"):
            file = tmp_path / f"{name}{ending}"
            file.write_bytes(b"x" * size)
            os.utime(file, (now - days * day,) * 2)

    files("old", 100)
    files("used", 100)
    os.utime(tmp_path / "used.f-1.py311.0123.nbc")  # one of its files is touched where it is used
    files("large", 20, 2000)
    files("small", 10)
    files("new", 0, 5000)
    monkeypatch.setattr(folder, "_MOST", 16_000)
    folder.prune(tmp_path)
    assert {f.name.split(".")[0] for f in tmp_path.iterdir()} == {"used", "small", "new", "pruned"}
    files("old", 100)
    folder.prune(tmp_path)  # not twice a day
    assert (tmp_path / "old.py").exists()
    os.utime(tmp_path / "pruned", (now - 2 * day,) * 2)
    monkeypatch.setattr(folder, "_MOST", 0)
    folder.prune(tmp_path)
    assert {f.name.split(".")[0] for f in tmp_path.iterdir()} == {"used", "new", "pruned"}  # what is young stays


def test_what_another_process_removes_is_compiled_anew(tmp_path, half):
    assert half(3.0) == 1.5
    for file in kept(tmp_path):
        file.unlink()
    assert half(3.0) == 1.5
