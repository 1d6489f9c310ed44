"""Wild parameters over eight decades: no engine crashes, hangs or gives a silent NaN, and engines agree.

Both runs of a pair that claims success are compared at rtol = 1e-9: to 1e-4 of each state's largest value, or, where
the problem itself is that sensitive, within 100 times what tightening the tolerances a hundredfold changes.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import time
from collections import Counter

import numpy as np
import pytest

from fmepy.errors import SimulationError
from tests.models.problems import ENGINES, every_model

MODELS = ["hiv", "bacteria", "Lotka-Volterra", "van der Pol", "dose"]
LONGEST = 10.0  # seconds of the processor that a single run may take, three times as many where cores are shared
# scipy may take this many times as long: its 100,000 steps a row are two million evaluations of Python code here
OF_PYTHON = 3
DECADES = 8.0
RTOL = 1e-9


def bound(name, engine, **options):
    model = every_model(engine, **options)[name]
    if name == "Lotka-Volterra":  # a vector function, which runs as Python: the same equations by name compile
        text = "d(prey)/dt = a*prey - b*prey*predator\nd(predator)/dt = e*b*prey*predator - m*predator"
        state, parms = {"prey": 30, "predator": "y0"}, dict(model.parms)
        model = type(model)(text, state=state, times=model.times, parms=parms, engine=engine, **options)
    return model.bind()


def run(model, theta, longest=LONGEST):
    """Return the states, None if the run failed in our own words; anything else is an error of the test."""
    start = time.process_time()
    try:
        Y = model.simulate(theta)
    except SimulationError:
        Y = None
    taken = time.process_time() - start  # a core that two threads share does half as much for each of them
    assert taken < longest * (3 if os.getloadavg()[0] > (os.cpu_count() or 1) else 1)
    return Y


def differ(a, b, n_states):
    """Return the largest difference of the states, in units of each state's largest value."""
    a, b = a[:, :n_states], b[:, :n_states]
    scale = np.maximum(np.abs(a).max(axis=0), np.abs(b).max(axis=0))
    return float(np.max(np.abs(a - b) / np.where(scale > 0, scale, 1.0)))


def sweep(name, n, seed):
    """Run `n` wild parameter sets on every engine; return how often which engines finished."""
    models = {engine: bound(name, engine, rtol=RTOL) for engine in ENGINES}
    tighter: dict[str, object] = {}
    n_states = {"hiv": 3, "bacteria": 2, "Lotka-Volterra": 2, "van der Pol": 2, "dose": 1}[name]
    rng = np.random.default_rng(seed)
    theta0 = next(iter(models.values())).theta0
    finished: Counter[str] = Counter()
    for _ in range(n):
        theta = theta0 * 10 ** rng.uniform(-DECADES / 2, DECADES / 2, len(theta0))
        # a hang that nothing interrupts
        faulthandler.dump_traceback_later(12 * LONGEST, exit=True, file=sys.__stderr__)
        longest = {engine: LONGEST * (OF_PYTHON if engine == "scipy" else 1) for engine in models}
        runs = {engine: run(model, theta, longest[engine]) for engine, model in models.items()}
        faulthandler.cancel_dump_traceback_later()
        good = {engine: Y for engine, Y in runs.items() if Y is not None}
        finished.update(good.keys())
        for engine, Y in good.items():
            assert np.isfinite(Y[:, :n_states]).all(), (name, engine, theta.tolist())
        first, *others = good.items() if good else [(None, None)]
        for engine, Y in others:
            gap = differ(first[1], Y, n_states)
            if gap <= 1e-4:
                continue
            changes = []
            for e in (first[0], engine):
                tight = tighter.setdefault(e, bound(name, e, rtol=RTOL / 100, atol=1e-10 * 1e-3))
                Z = run(tight, theta, 10 * LONGEST)  # a hundred times smaller tolerances have their price
                changes.append(np.inf if Z is None else differ(good[e], Z, n_states))
            assert gap <= 100 * max(changes), (name, first[0], engine, gap, changes, theta.tolist())
    return finished


@pytest.mark.parametrize("name", MODELS)
def test_engines_take_wild_parameters_without_a_silent_nan_and_agree(name):
    finished = sweep(name, 25, seed=1)
    assert min(finished[e] for e in ENGINES) > 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("name", MODELS)
def test_a_hundred_thousand_wild_runs(name, seed):
    sweep(name, 2000 // len(ENGINES) + 1, seed=100 + seed)
