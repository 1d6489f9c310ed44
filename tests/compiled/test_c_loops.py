"""Loops that serve all models: compiled once, read back without numba, mended where they are damaged."""

from __future__ import annotations

import re
import threading

import numpy as np
import pytest
from numba import carray

from fmepy.compiled import c_loops, kernels, status
from fmepy.compiled.c_loops import c_loop
from fmepy.compiled.explicit_runs import ExplicitRuns
from fmepy.compiled.folder import read_kept
from fmepy.models.engines import explicit
from fmepy.models.running.system import build_system
from tests.models.problems import hiv_model

KINDS = "i" * 7 + "d" + "p" * 2 + "q" + "p" * 3


@pytest.fixture
def compilations(tmp_path, monkeypatch):
    """Return the list of what was compiled, in a folder of its own."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    made, object_file = [], kernels.object_file
    monkeypatch.setattr(kernels, "object_file", lambda f, kinds: made.append(f.__name__) or object_file(f, kinds))
    return made


def fresh():
    return c_loop.__wrapped__("difference_loop", "run", KINDS, "a loop")


def test_a_loop_is_compiled_once_and_anew_where_its_file_is_damaged(compilations, tmp_path, caplog):
    with caplog.at_level("INFO", logger="fmepy"):
        fresh()
        assert caplog.text.count("Compiling a loop for the first time") == 1
        fresh()
    assert compilations == ["run"]
    (file,) = tmp_path.glob("*.o")
    content = file.read_bytes()
    file.write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
    fresh()
    assert compilations == ["run", "run"]
    assert read_kept(file) is not None


@pytest.mark.parametrize(
    ("module", "name", "kinds"),
    [
        ("difference_loop", "run", KINDS),
        ("difference_loop", "run_sens", "i" * 12 + "d" + "pp" + "qq" + "p" * 7),
        ("explicit_loop", "run_smooth", "i" * 9 + "d" * 3 + "p" * 8),
        ("explicit_loop", "run_watched", "i" * 9 + "d" * 3 + "p" * 8),
    ],
)
def test_an_object_file_needs_nothing_of_numba_or_python(module, name, kinds, monkeypatch):
    from importlib import import_module

    texts = []
    monkeypatch.setattr(kernels, "object_of", lambda optimised: texts.append(str(optimised)) or b"")
    kernels.object_file(getattr(import_module(f"fmepy.compiled.{module}"), name), kinds)
    needed = set(re.findall(r"declare [^@]*@([\w.]+)", texts[0]))
    assert {n for n in needed if not n.startswith("llvm.")} <= {"pow", "sqrt", "memset", "memcpy"}


def test_a_loop_that_allocates_is_refused():
    def wasteful(n, out):
        carray(out, (1, n))[0][0] = np.empty(n).sum()

    with pytest.raises(TypeError, match=r"wasteful allocates or raises: it needs .*NRT_"):
        kernels.object_file(wasteful, "ip")


def explicit_runs():
    system = build_system(hiv_model().equations, (), True)
    runs = ExplicitRuns(explicit._functions(system), 3, 1e-8, np.full(3, 1e-8), np.inf)
    p = hiv_model().parms.to_numpy()
    inputs = np.zeros((40, system.layout.size))
    inputs[:, : len(p)] = p * np.random.default_rng(1).uniform(0.8, 1.2, (40, len(p)))
    starts = np.tile([1100.0, 1.0, 100.0], (40, 1))
    return runs, starts, inputs, np.linspace(0.0, 30.0, 31)


def test_many_runs_are_the_single_ones_also_on_threads():
    runs, starts, inputs, times = explicit_runs()
    out, told = runs.many(0.0, starts, inputs, times, 10_000)
    assert (told[:, 0] == status.DONE).all()
    for i in range(40):
        one, ended = runs.one(0.0, starts[i], inputs[i], times, 10_000)
        np.testing.assert_array_equal(one, out[i])
        assert ended == [status.DONE, 31.0, 30.0]
    halves: dict[int, np.ndarray] = {}

    def half(k):
        halves[k] = runs.many(0.0, starts[k::2], inputs[k::2], times, 10_000)[0]

    threads = [threading.Thread(target=half, args=(k,)) for k in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_array_equal(halves[0], out[::2])
    np.testing.assert_array_equal(halves[1], out[1::2])


def test_a_run_that_ends_early_leaves_nan_where_it_did_not_come():
    runs, starts, inputs, times = explicit_runs()
    out, told = runs.many(0.0, starts, inputs, times, 12)
    assert (told[:, 0] == status.TOO_MANY_STEPS).all()
    for rows, (_, n, reached) in zip(out, told, strict=True):
        assert n == np.sum(times <= reached)
        assert np.isfinite(rows[: int(n)]).all()
        assert np.isnan(rows[int(n) :]).all()


def test_times_may_be_changed_in_place_or_lie_apart():
    runs, starts, inputs, times = explicit_runs()
    whole = runs.one(0.0, starts[0], inputs[0], times, 10_000)[0]
    apart = np.repeat(times, 2)[::2]
    assert not apart.flags.c_contiguous
    np.testing.assert_array_equal(runs.one(0.0, starts[0], inputs[0], apart, 10_000)[0], whole)
    changed = times.copy()
    runs.one(0.0, starts[0], inputs[0], changed, 10_000)
    changed *= 0.5
    half = runs.one(0.0, starts[0], inputs[0], changed, 10_000)[0]
    np.testing.assert_array_equal(half, runs.one(0.0, starts[0], inputs[0], changed.copy(), 10_000)[0])
    assert c_loops.address(changed) == changed.ctypes.data
