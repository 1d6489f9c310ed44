"""The loops of filters: no index out of range, and the same as the Python that they are written in."""

from __future__ import annotations

import dataclasses
from functools import cache

import numpy as np
import pytest

from fmepy.compiled import explicit_runs
from fmepy.compiled.c_loops import checked_loop
from fmepy.filtering import paths, run, smoothing
from fmepy.models import difference
from tests.filtering.problems import (
    accumulator_cost,
    ar1_cost,
    logistic,
    logistic_cost,
    logistic_rate,
    nile_cost,
    oscillator_cost,
    two_state_cost,
)
from tests.filtering.test_tangents import estimated, events
from tests.models.problems import every_model

checked = cache(checked_loop)


def copied(value):
    """Return a job with arrays of its own."""
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, tuple):
        parts = [copied(v) for v in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if dataclasses.is_dataclass(value):
        return type(value)(*(copied(getattr(value, f.name)) for f in dataclasses.fields(value)))
    return value


def arrays(value):
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, tuple):
        for v in value:
            yield from arrays(v)
    elif dataclasses.is_dataclass(value):
        yield from arrays(tuple(getattr(value, f.name) for f in dataclasses.fields(value)))


@pytest.fixture
def both(monkeypatch):
    """Run every loop with its indices looked at, and once more as Python; return the kernels that ran."""
    jobs, ran, whole = {}, [], run.packed

    def packed(job):
        words = whole(job)
        jobs[words.ctypes.data] = job, copied(job)
        return words

    def c_loop(kernel, what):
        def called(at):
            job, own = jobs[at]
            checked(kernel)(at)
            with np.errstate(all="ignore"):
                kernel(own)
            for ours, theirs in zip(arrays(job), arrays(own), strict=True):
                scale = np.nanmax(np.abs(ours), initial=0.0)
                np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9 * scale)
            ran.append(f"{kernel.__module__.rpartition('.')[2]}.{kernel.__name__}")

        return called

    for module in (run, paths, smoothing):
        monkeypatch.setattr(module, "packed", packed)
        monkeypatch.setattr(module, "c_loop", c_loop)
    monkeypatch.setattr(run, "_empty_record", lambda *sizes: copied(_zeros(*sizes)))
    return ran


_whole_record = run._empty_record


def _zeros(*sizes):
    record = _whole_record(*sizes)  # what is never written is the same on both sides
    for array in arrays(record):
        array[...] = 0.0
    return record


PLAIN = [
    lambda: nile_cost(initial="diffuse"),
    two_state_cost,
    accumulator_cost,
    lambda: logistic_cost(logistic_rate, propagation="rk4", dt=0.5),
    lambda: logistic_cost(logistic_rate, propagation="rk4_moment", dt=0.5),
    lambda: logistic_cost(logistic_rate),
    lambda: logistic_cost(logistic_rate, propagation="moment"),
    oscillator_cost,
    events,
]
SAFE = [{"algorithm": "sqrt"}, {"update": "iterated"}, {"update": "second_order"}, {"update": "unscented"}]


@pytest.mark.parametrize("make", PLAIN)
def test_the_plain_loop(both, make):
    make().filter()
    assert set(both) == {"loop.run", "smoothing.backward_pass"}


@pytest.mark.parametrize("options", SAFE)
@pytest.mark.parametrize("rates", [logistic, logistic_rate])
def test_the_loop_of_factors(both, rates, options):
    steps = {"propagation": "rk4", "dt": 0.5} if rates is logistic_rate else {}
    logistic_cost(rates, **steps, **options).filter()
    assert set(both) == {"square_root_loop.run", "smoothing.backward_pass"}


@pytest.mark.parametrize("make", [ar1_cost, estimated, events, oscillator_cost])
def test_the_loop_of_scores(both, make):
    bound = make().bind()
    bound.score(bound.theta0)
    assert set(both) == {"loop.run_with_tangents"}  # it carries the pass itself, too


def test_noisy_paths(both):
    logistic_cost(logistic_rate, propagation="rk4", dt=0.5).filter().forecast(2, draws=3, seed=1)
    assert "paths.run" in both


@pytest.mark.parametrize("name", ["forced", "events"])
def test_the_explicit_solver_and_difference_models(monkeypatch, name):
    for module in (explicit_runs, difference):
        monkeypatch.setattr(module, "c_loop", lambda kernel, what: checked(kernel))
    bound = every_model("compiled")[name].bind()
    bound.simulate(bound.theta0)
    bound.sensitivities(bound.theta0)
