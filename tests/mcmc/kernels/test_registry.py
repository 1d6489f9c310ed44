"""A new sampler is one file and one line: one added from outside samples, keeps checkpoints, and is gone again."""

from dataclasses import dataclass

import numpy as np
import pytest

import fmepy as fme
from fmepy.checks import positive_number
from fmepy.errors import ArgumentError
from fmepy.mcmc.kernels.base import Counts, Info, Record, Sampler
from fmepy.mcmc.kernels.registry import SAMPLERS
from fmepy.mcmc.target import Point


@dataclass
class State:
    point: Point
    accepted: int
    best: Point


class RandomWalk:
    """A random walk of one fixed width."""

    n_member = 1

    def __init__(self, target, proposal, dispersion, settings):
        self.target, self.dispersion, self.width = target, dispersion, settings.control["width"]

    def start(self, starts, dispersed, rng):
        point = self.dispersion.around(starts[0], rng) if dispersed else self.dispersion.given(starts[0])
        return State(point, 0, point)

    def step(self, state, rng):
        new = self.target.evaluate(state.point.theta + self.width * rng.standard_normal(self.target.n_par))
        u = np.log(rng.random())
        if moved := new is not None and u < new.log_posterior - state.point.log_posterior:
            state.point, state.accepted = new, state.accepted + 1
            state.best = max(state.best, new, key=lambda p: p.log_posterior)
        return state, Info(int(moved), 1)

    def record(self, state):
        p = state.point
        return Record(p.theta, p.SS.sum(), None, p.prior, p.log_posterior)

    def counts(self, state):
        return Counts(np.array([state.accepted]), 0, 0, 0, state.best.theta, state.best.log_posterior)

    def arrays(self, state):
        parts = {"point": state.point, "best": state.best}
        out = {f"{k}_{name}": np.asarray(getattr(p, name)) for k, p in parts.items() for name in Point._fields}
        return {**out, "accepted": np.array(state.accepted)}

    def restore(self, arrays):
        def point(k):
            theta, SS, prior, log_posterior = (arrays[f"{k}_{name}"] for name in Point._fields)
            return Point(theta, SS, float(prior), float(log_posterior))

        return State(point("point"), int(arrays["accepted"]), point("best"))


def checked(control, n_par):
    return {"width": positive_number(control["width"], "control: width")}


@pytest.fixture
def added(monkeypatch):
    monkeypatch.setitem(SAMPLERS, "walk", Sampler(RandomWalk, {"width": 1.0}, checked))
    return monkeypatch


def minus2log(p):
    return (p["x"] - 1.0) ** 2 / 0.25


WALK = {"method": "walk", "control": {"width": 1.2}, "seed": 1}


def test_a_sampler_from_outside_samples(added):
    chain = fme.modMCMC(minus2log, {"x": 0.0}, niter=12000, burninlength=500, chains=2, **WALK)
    assert chain.method == "walk"
    assert len(chain.chains) == 2
    few = 4 * 0.5 / np.sqrt(chain.diagnostics().loc["x"].filter(like="ess").min())  # standard errors of the mean
    assert chain.pars["x"].mean() == pytest.approx(1.0, abs=few)
    assert chain.pars["x"].std() == pytest.approx(0.5, rel=0.1)
    assert 0.2 < chain.acceptance_rate.min() < 0.9


def test_a_sampler_from_outside_samples_a_cost(added):
    model = fme.OdeModel("d(x)/dt = -k * x\nx(0) = 2", times=[0, 1, 2, 3], parms={"k": 0.4})
    cost = fme.SimulationCost(model, model())
    chain = fme.modMCMC(cost, {"k": 0.4}, var0=0.01, niter=300, **{**WALK, "control": {"width": 0.05}})
    assert chain.bestpar["k"] == pytest.approx(0.4, abs=0.02)


def test_its_chain_is_resumed_bit_for_bit(added, tmp_path):
    fme.modMCMC(minus2log, {"x": 0.0}, niter=100, checkpoint=tmp_path / "c", **WALK)
    resumed = fme.resume_mcmc(minus2log, tmp_path / "c", niter=250)
    whole = fme.modMCMC(minus2log, {"x": 0.0}, niter=250, **WALK)
    assert resumed.pars.equals(whole.pars)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({"control": {"widht": 1}}, "Did you mean 'width'"),
        ({"control": {"width": -1}}, "control: width=-1` must be a positive number"),
        ({"updatecov": 10}, "belong to method='dram'"),
        ({"jump": lambda p: p}, "belongs to method='dram'"),
    ],
)
def test_words_that_are_not_its_own_are_refused(added, words, told):
    with pytest.raises(ArgumentError, match=told):
        fme.modMCMC(minus2log, {"x": 0.0}, method="walk", **words)


def test_taken_away_it_is_unknown(added):
    added.undo()
    with pytest.raises(ArgumentError, match=r"method='walk'.*'dram'"):
        fme.modMCMC(minus2log, {"x": 0.0}, method="walk")
