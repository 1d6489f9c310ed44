"""Loops that serve all models."""

from __future__ import annotations

import pickle
import re
import signal
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from fmepy.compiled import c_loops, difference_loop, explicit_loop
from fmepy.compiled.dialect.translate import kernel_text
from fmepy.compiled.explicit_runs import Course, Stretch
from fmepy.compiled.machine import optimised
from fmepy.errors import SimulationError
from fmepy.filtering import loop, paths, square_root_loop
from fmepy.models.engines import explicit
from fmepy.models.ode import OdeModel
from fmepy.models.running.system import build_system
from tests.models.problems import hiv_model


@pytest.mark.parametrize(
    "kernel",
    [
        *(difference_loop.run, explicit_loop.run_smooth, explicit_loop.run_watched),
        *(loop.run, loop.run_with_tangents, square_root_loop.run, paths.run),
    ],
    ids=lambda kernel: f"{kernel.__module__}.{kernel.__name__}",
)
def test_a_loop_needs_nothing_but_arithmetic_and_memory(kernel):
    needed = set(re.findall(r"declare [^@]*@([\w.]+)", str(optimised(kernel_text(kernel), 1, "run"))))
    assert {n for n in needed if not n.startswith("llvm.")} <= {"pow", "sqrt", "log2", "calloc", "free"}


def explicit_runs(most_steps=10_000):
    definition, rows = hiv_model().definition, np.linspace(0.0, 30.0, 31)
    stepper = explicit.CompiledStepper(build_system(definition.equations, (), True), 1e-8, 1e-8)
    stepper.solver = replace(stepper.solver, most_steps=most_steps)
    p = definition.parms.to_numpy()
    course = Course(0.0, rows, 1, (Stretch(0.0, rows[1:], 30),), forced=np.empty((31, 0)), n_parameters=len(p))
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


@pytest.mark.parametrize("text", ["d(x)/dt = y\nd(y)/dt = -k * x", "d(x)/dt = y\nd(y)/dt = -k * lag(x, 0.001)"])
def test_ctrl_c_ends_many_runs(text):
    bound = OdeModel(text, state={"x": 1, "y": 0}, parms={"k": 1e4}, times=[0, 5]).bind()
    bound.simulate_many(np.full((1, 1), 1e4))
    signal_after = threading.Timer(0.5, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT))
    signal_after.start()
    began = time.process_time()
    with pytest.raises(KeyboardInterrupt):
        bound.simulate_many(np.full((50_000, 1), 1e4))  # some minutes
    assert time.process_time() - began < 10
    assert np.isfinite(bound.simulate_many(np.full((1, 1), 1e4))[0]).all()  # nothing is left of it


def test_whole_runs_are_made_anew_where_they_are_unpickled():
    runs, P = explicit_runs()
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(runs)).one(P[0]), runs.one(P[0]))


def test_times_may_be_changed_in_place_or_lie_apart():
    system = build_system(hiv_model().equations, (), True)
    stepper = explicit.CompiledStepper(system, 1e-8, 1e-8)
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
