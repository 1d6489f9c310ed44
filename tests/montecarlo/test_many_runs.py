"""Ensembles of compiled models: the engine for many runs, batches, and threads that change no number."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import fmepy as fme
from fmepy.parallel import pools
from tests.models.problems import HIV_PARMS, hiv_model

RANGES = {"bet": (1e-5, 3e-5), "c": (4.0, 7.0)}
NUM = 600


@pytest.fixture
def no_processes(monkeypatch):
    def none(*_, **__):
        raise AssertionError("a process was asked for")

    monkeypatch.setattr(pools.LokyPool, "submit", none)


def runs_of(model, num: int = NUM, **options):
    return fme.sensRange(model, parRange=RANGES, num=num, seed=1, **options)


def test_an_ensemble_says_which_engine_it_took():
    assert runs_of(hiv_model(), num=10).engine == "compiled"
    assert runs_of(hiv_model(engine="scipy"), num=10).engine == "scipy"
    assert fme.sensRange(lambda p: {"y": p["a"]}, {"a": 1.0}, parRange={"a": (0, 1)}, num=3, map=None).engine == ""


def test_many_runs_are_those_of_the_engine_one_by_one():
    model = hiv_model(engine="explicit")
    runs = runs_of(model, num=20)
    bound = model.bind(list(RANGES))
    alone = [bound.simulate(theta).T for theta in runs.pars.to_numpy()]
    np.testing.assert_allclose(runs.values, alone, rtol=1e-9)


def test_the_engine_for_many_runs_agrees_with_the_default_one():
    many, few = runs_of(hiv_model()), runs_of(hiv_model(engine="scipy"))
    np.testing.assert_allclose(many.values, few.values, rtol=5e-4, atol=1e-3)


@pytest.mark.parametrize("keep", ["all", "summary"])
def test_numbers_do_not_depend_on_the_threads(no_processes, keep):
    alone = runs_of(hiv_model(), keep=keep).summary()
    for workers in (1, 2, 5):
        pd.testing.assert_frame_equal(runs_of(hiv_model(), keep=keep, executor=workers).summary().frame, alone.frame)


def test_a_variable_that_is_not_asked_for_may_have_no_value():
    model = hiv_model(engine="explicit").replace(outputs={"bad": "log(-V)"})
    assert runs_of(model, num=5, sensvar="logV").failures.empty
    failed = runs_of(model, num=5, sensvar="bad", executor=2).failures
    assert failed["error"].tolist() == ["SimulationError"] * 5
    assert failed["message"].str.contains("not finite").all()


def test_failed_runs_are_told_alike_on_threads_and_alone():
    def growing(t, N, *, a=1.0):
        return a * N**2

    model = fme.OdeModel(growing, state={"N": 1.0}, times=[0, 0.5, 1.0], engine="explicit")
    sets = pd.DataFrame({"a": np.linspace(0.1, 3.0, 40)})
    alone, shared = (fme.sensRange(model, parInput=sets, executor=k) for k in (None, 2))
    assert 0 < len(alone.failures) < 40
    pd.testing.assert_frame_equal(alone.failures, shared.failures)
    np.testing.assert_array_equal(alone.values, shared.values)


def test_repeated_sets_are_run_once_and_kept_in_place():
    sets = pd.DataFrame({"bet": np.repeat([1e-5, 2e-5, 1e-5], [3, 2, 1])})
    values = fme.sensRange(hiv_model(engine="explicit"), parInput=sets).values
    np.testing.assert_array_equal(values[0], values[5])
    np.testing.assert_array_equal(values[3], values[4])
    assert not np.array_equal(values[0], values[3])


@pytest.mark.parametrize("executor", [None, 2])
def test_global_indices_of_many_runs(no_processes, executor):
    pytest.importorskip("SALib")
    found = fme.global_indices(
        hiv_model(), parRange=RANGES, num=128, seed=1, sensvar="logV", method="sobol", executor=executor
    )
    assert found.engine == "compiled"
    assert found.failures.empty
    assert list(found.parameters) == list(RANGES)
    assert set(RANGES) <= set(HIV_PARMS)
