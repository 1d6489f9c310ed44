"""Compiled code is kept where we say, mended where it is damaged, and removed where nobody uses it."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import textwrap
import time

import pytest

from fmepy.compiled import folder, numba_cache, numba_code

PROGRAM = textwrap.dedent("""
    import sys
    {before}
    import fmepy
    assert {before!r} or "numba" not in sys.modules
    import numpy as np
    from fmepy.models.difference import DifferenceModel
    model = DifferenceModel("next(x) = a * x", state={{"x": 1}}, times=np.arange(9), parms={{"a": 0.5}})
    print(model()["x"].iloc[-1])
""")
VALUE = "0.00390625"


def run(cache, where, before="", **environment):
    environment = {
        **os.environ, "XDG_CACHE_HOME": str(cache), "LOCALAPPDATA": str(cache), "HOME": str(cache), **environment
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(before=before)], env=environment, cwd=where, check=False,
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("before", ["", "import numba"])
def test_a_file_in_the_current_directory_leads_no_compiled_code_elsewhere(tmp_path, before):
    pytest.importorskip("yaml")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "here").mkdir()
    locators = "cache_locator_classes: nowhere.Locator"
    (tmp_path / "here" / ".numba_config.yaml").write_text(f"cache_dir: {tmp_path / 'elsewhere'}\n{locators}\n")
    assert run(tmp_path, tmp_path / "here", before) == VALUE
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert list((tmp_path / "fmepy" / "compiled").glob("*.o"))


def test_the_environment_may_name_the_folder(tmp_path):
    assert run(tmp_path, tmp_path, NUMBA_CACHE_DIR=str(tmp_path / "mine")) == VALUE
    assert list((tmp_path / "mine").glob("*.o"))


SPOILT = {
    "cut off": lambda content: content[:40],
    "empty": lambda content: b"",
    "one bit": lambda content: content[:-9] + bytes([content[-9] ^ 1]) + content[-8:],
    "another format": lambda content: b"something else" * 100,
}


@pytest.fixture
def function(tmp_path, monkeypatch):
    """Return what makes a small compiled function that is kept in a folder of its own."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "kept"))

    def half(x):
        return x / 2

    def made():
        return numba_cache.njit("float64(float64)", cache=True)(half)

    return made


def kept(tmp_path, kind):
    return list((tmp_path / "kept").rglob(f"*.{kind}"))


@pytest.mark.parametrize("how", SPOILT)
@pytest.mark.parametrize("kind", ["nbi", "nbc"])
def test_a_damaged_file_is_discarded_and_made_anew(tmp_path, function, how, kind):
    assert function()(3.0) == 1.5
    again = function()
    assert sum(again.stats.cache_hits.values()) == 1
    (file,) = kept(tmp_path, kind)
    file.write_bytes(SPOILT[how](file.read_bytes()))
    third = function()
    assert third(3.0) == 1.5
    assert sum(third.stats.cache_hits.values()) == 0
    assert sum(function().stats.cache_hits.values()) == 1


def test_a_pickle_that_is_not_ours_is_not_loaded(tmp_path, function):
    import pickle

    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "sprung"),)

    function()
    for file in (*kept(tmp_path, "nbi"), *kept(tmp_path, "nbc")):
        file.write_bytes(pickle.dumps(Trap()))
    assert function()(3.0) == 1.5
    assert not (tmp_path / "sprung").exists()


def test_a_full_disk_costs_time_and_nothing_else(tmp_path, function, monkeypatch, caplog):
    def refused(path, content):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(folder, "replace_file", refused)
        patch.setattr(numba_code, "replace_file", refused)
        patch.setattr(folder, "cache_folder", lambda: tmp_path)
        patch.setattr(numba_code, "cache_folder", lambda: tmp_path)
        assert function()(3.0) == function()(3.0) == 1.5
        module = numba_code.load(numba_code.HEADER + "@njit(cache=True)\ndef third(x):\n    return x / 3\n# full disk")
        assert module.third(3.0) == 1.0
    assert caplog.text.count("Make room there") == 2  # once a folder
    assert kept(tmp_path, "nbc") == []


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


def test_what_another_process_removes_is_compiled_anew(tmp_path, function):
    function()
    for file in kept(tmp_path, "nbc"):
        file.unlink()
    assert function()(3.0) == 1.5
