"""Loops that serve all models: compiled once, read back without numba, mended where they are damaged."""

from __future__ import annotations

import pickle
import re
import threading
from dataclasses import replace

import numpy as np
import pytest
from numba import carray

from fmepy.compiled import c_loops, kernels
from fmepy.compiled.c_loops import c_loop
from fmepy.compiled.explicit_runs import KINDS as KINDS_OF_RUNS
from fmepy.compiled.explicit_runs import Course, Stretch
from fmepy.compiled.folder import read_kept
from fmepy.errors import SimulationError
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
        ("explicit_loop", "run_smooth", KINDS_OF_RUNS),
        ("explicit_loop", "run_watched", KINDS_OF_RUNS),
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


def explicit_runs(most_steps=10_000):
    definition, rows = hiv_model().definition, np.linspace(0.0, 30.0, 31)
    stepper = explicit.DopriStepper(build_system(definition.equations, (), True), 1e-8, 1e-8)
    stepper._solver = replace(stepper._solver, most_steps=most_steps)
    p = definition.parms.to_numpy()
    course = Course(0.0, rows, 1, (Stretch(0.0, rows[1:], 30),), (), np.empty((31, 0)), len(p))
    P = p * np.random.default_rng(1).uniform(0.8, 1.2, (40, len(p)))
    return stepper.along(course, definition), P


def test_many_runs_are_the_single_ones_also_on_threads():
    runs, P = explicit_runs()
    out, ok = runs.many(P)
    assert ok.all()
    for p, rows in zip(P, out, strict=True):
        np.testing.assert_array_equal(runs.one(p), rows)
    halves: dict[int, np.ndarray] = {}

    def half(k):
        halves[k] = runs.many(P[k::2])[0]

    threads = [threading.Thread(target=half, args=(k,)) for k in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_array_equal(halves[0], out[::2])
    np.testing.assert_array_equal(halves[1], out[1::2])


def test_a_run_that_ends_early_is_told():
    runs, P = explicit_runs(most_steps=12)
    assert not runs.many(P)[1].any()
    with pytest.raises(SimulationError, match="gave up"):
        runs.one(P[0])


def test_whole_runs_are_made_anew_where_they_are_unpickled():
    runs, P = explicit_runs()
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(runs)).one(P[0]), runs.one(P[0]))


def test_times_may_be_changed_in_place_or_lie_apart():
    system = build_system(hiv_model().equations, (), True)
    stepper = explicit.DopriStepper(system, 1e-8, 1e-8)
    inputs, z, times = np.append(hiv_model().parms.to_numpy(), 0.0), np.array([1100.0, 1.0, 100.0]), np.arange(31.0)
    whole = stepper.advance(0.0, z, inputs, times)[1]
    apart = np.repeat(times, 2)[::2]
    assert not apart.flags.c_contiguous
    np.testing.assert_array_equal(stepper.advance(0.0, z, inputs, apart)[1], whole)
    changed = times.copy()
    stepper.advance(0.0, z, inputs, changed)
    changed *= 0.5
    np.testing.assert_array_equal(
        stepper.advance(0.0, z, inputs, changed)[1], stepper.advance(0.0, z, inputs, changed.copy())[1]
    )
    assert c_loops.address(changed) == changed.ctypes.data
