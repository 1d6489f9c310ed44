"""Runs that begin at different times, together: those of every one alone, whatever threads there are."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

from fmepy import OdeModel
from fmepy.boundary.simultaneous_runs import SimultaneousRuns
from fmepy.compiled import explicit_runs
from fmepy.models.engines import explicit
from fmepy.models.engines import stiff as stiff_code
from fmepy.parallel import threads

CUTS = [0.0, 1.0, 2.5, 3.0, 4.0, 6.0]


def two_tanks(t, A, B, *, k=0.3, m=0.2):
    return 1 - k * A, k * A - m * B * B


def bounds(engine="explicit"):
    events = pd.DataFrame({"var": "A", "time": [2.0, 5.0], "value": [3.0, 0.5], "method": ["add", "multiply"]})
    model = OdeModel(
        two_tanks, state={"A": "A0", "B": 1}, parms={"A0": 2.0}, times=np.linspace(0, 6, 13), events=events,
        outputs={"sum": "A + k*B"}, engine=engine, rtol=1e-8, atol=1e-8,
    )  # fmt: skip
    return [model.bind(["k", "m", "A0"], times=np.linspace(a, b, 4)[1:], start=a) for a, b in pairwise(CUTS)]


def ran(alone, Theta):
    """Return values and derivatives of runs together, and which of them were handed on."""
    runs, handed_on = SimultaneousRuns(alone), []
    runs.run(Theta, lambda first, last: handed_on.append((first, last)))
    run = np.repeat(np.arange(len(alone)), np.diff(runs.first))
    S = runs.rows[:, runs.places[1:]].transpose(0, 2, 1) / runs.scales[run][:, None]
    return runs.rows[:, runs.places[0]], S, sorted(handed_on)


THETA = np.array([0.3, 0.2, 2.0]) * np.random.default_rng(1).uniform(0.8, 1.2, (5, 3))


@pytest.mark.parametrize("engine", ["explicit", "scipy"])
def test_runs_together_are_those_of_every_one(engine):
    alone = bounds(engine)
    Y, S, _ = ran(alone, THETA)
    found = [b.sensitivities(theta) for b, theta in zip(alone, THETA, strict=True)]
    np.testing.assert_allclose(Y, np.concatenate([y for y, _ in found]), rtol=1e-12)
    np.testing.assert_allclose(S, np.concatenate([s for _, s in found]), rtol=1e-12, atol=1e-15)


def test_numbers_do_not_depend_on_how_many_threads_there_are(monkeypatch):
    monkeypatch.setattr(explicit_runs, "_WORTH_THREADS", 0)
    found = []
    for n in (1, 2, 5):
        monkeypatch.setattr(threads.os, "cpu_count", lambda n=n: n)
        threads._threads.cache_clear()
        found.append(ran(bounds(), THETA))
    threads._threads.cache_clear()
    assert [first for first, _ in found[2][2]] == [0, 1, 2, 3, 4]
    for Y, S, handed_on in found:
        np.testing.assert_array_equal(Y, found[0][0])
        np.testing.assert_array_equal(S, found[0][1])
        assert (handed_on[0][0], handed_on[-1][1]) == (0, 5)


@pytest.mark.parametrize("most", [1000, 0])
def test_a_stiff_run_is_finished_in_its_place_and_one_that_a_second_engine_finishes_handed_on_once_more(
    monkeypatch, most
):
    monkeypatch.setattr(stiff_code, "MOST_STIFF_STATES", most)
    explicit._functions.cache_clear()
    stiff_code.stiff_plan.cache_clear()

    def follows(t, y, *, k=1.0):
        return k * (1 + t - y)

    model = OdeModel(follows, state={"y": 1}, times=[0, 1, 2], engine="compiled")
    alone = [model.bind(["k"], times=[s + 1.0], start=float(s)) for s in range(2)]
    Y, S, handed_on = ran(alone, np.array([[1.0], [1e6]]))  # the second is stiff
    assert handed_on == ([(0, 2)] if most else [(0, 2), (1, 2)])
    assert Y[1, 0] == pytest.approx(3.0, abs=1e-4)
    assert Y[0, 0] == pytest.approx(1.0 + np.exp(-1.0), rel=1e-5)
    assert np.isfinite(S).all()
    assert [b.retries for b in alone] == [0, int(not most)]
    explicit._functions.cache_clear()
    stiff_code.stiff_plan.cache_clear()
