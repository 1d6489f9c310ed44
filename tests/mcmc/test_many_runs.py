"""Chains name the engine of their runs, members of an ensemble go together, and a resumed chain keeps its engine."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fmepy import OdeModel, modMCMC, resume_mcmc
from fmepy.costs.base import residuals_many
from fmepy.costs.simulation import SimulationCost
from fmepy.costs.user_function import as_objective
from fmepy.errors import ArgumentError

MANY = 200
P = {"r": 0.5, "K": 10.0}


def logistic(t, N, *, r=0.5, K=10.0):
    return r * N * (1 - N / K)


def cost(engine: str = "auto", **options) -> SimulationCost:
    model = OdeModel(logistic, state={"N": 0.5}, times=np.arange(0.0, 21.0), engine=engine)
    t = np.array([1.0, 4.5, 8.0, 15.0])
    noise = np.array([0.1, -0.2, 0.3, -0.1])
    N = 10 / (1 + 19 * np.exp(-0.5 * t)) + noise
    return SimulationCost(model, pd.DataFrame({"time": t, "N": N, "sd": 0.3}), err="sd", **options)


def test_a_chain_names_its_engine():
    assert modMCMC(cost(), P, niter=20, seed=1).engine == "compiled"
    assert modMCMC(cost("scipy"), P, niter=20, seed=1).engine == "scipy"


def test_of_a_function_no_engine_is_known():
    assert modMCMC(lambda p: p["a"] ** 2, {"a": 1.0}, niter=MANY, seed=1).engine == ""


@pytest.mark.parametrize("interpolate", ["exact", "grid"])
@pytest.mark.parametrize("transform", [None, "log"])
def test_residuals_of_many_are_those_of_each(interpolate, transform):
    bound = cost("explicit", interpolate=interpolate, transform=transform).bind()
    Theta = bound.theta0 * np.exp(0.1 * np.random.default_rng(1).standard_normal((5, 2)))
    R, why = residuals_many(bound, Theta)
    assert why.tolist() == [""] * 5
    np.testing.assert_allclose(R, [bound.residuals(t) for t in Theta], rtol=1e-12)


def test_a_member_that_fails_is_counted_and_told_and_leaves_the_others():
    objective = as_objective(cost("explicit", transform="log"), P)
    Theta = np.array([[0.5, 10.0], [np.nan, 10.0], [0.4, 9.0]])
    found = objective.evaluate_many(Theta)
    assert [v is None for v in found] == [False, True, False]
    assert (objective.evaluations, objective.failures) == (3, 1)
    assert "failed" in objective.last_failure
    np.testing.assert_allclose(found[2], objective.residuals(Theta[2]), rtol=1e-12)


@pytest.mark.parametrize("method", ["demcz", "emcee"])
def test_members_together_make_the_chain_that_they_make_one_by_one(method, monkeypatch):
    from fmepy.costs.simulation import BoundSimulation

    together = modMCMC(cost("explicit"), P, niter=40, method=method, seed=3)
    monkeypatch.delattr(BoundSimulation, "residuals_many")
    apart = modMCMC(cost("explicit"), P, niter=40, method=method, seed=3)
    np.testing.assert_allclose(together.pars, apart.pars, rtol=1e-9)
    assert together.naccepted.tolist() == apart.naccepted.tolist()


# --- checkpoints


@pytest.mark.parametrize("method", ["dram", "demcz"])
def test_a_resumed_chain_is_the_uninterrupted_one_on_its_engine(tmp_path, method):
    whole = modMCMC(cost(), P, niter=2 * MANY, method=method, seed=1)
    modMCMC(cost(), P, niter=MANY, method=method, seed=1, checkpoint=tmp_path)
    resumed = resume_mcmc(cost(), tmp_path, niter=2 * MANY)
    assert resumed.engine == whole.engine == "compiled"
    pd.testing.assert_frame_equal(resumed.pars, whole.pars)


def test_another_engine_is_another_problem(tmp_path):
    modMCMC(cost(), P, niter=MANY, seed=1, checkpoint=tmp_path)
    with pytest.raises(ArgumentError, match="its engine is 'compiled'"):
        resume_mcmc(cost("scipy"), tmp_path, niter=2 * MANY)


def test_a_header_of_an_older_version_is_read(tmp_path):
    whole = modMCMC(cost("explicit"), P, niter=40, seed=1)
    modMCMC(cost("explicit"), P, niter=20, seed=1, checkpoint=tmp_path)
    file = Path(tmp_path) / "header.json"
    header = json.loads(file.read_text())
    header["runs"], header["problem"]["engine"] = 40, "numba"
    del header["digest"]  # which older versions did not write
    file.write_text(json.dumps(header))
    pd.testing.assert_frame_equal(resume_mcmc(cost("explicit"), tmp_path, niter=40).pars, whole.pars)
