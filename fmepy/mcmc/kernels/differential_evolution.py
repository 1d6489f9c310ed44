r"""Differential evolution Markov chain with an archive of past states: DE-MC(Z).

N members move in turn, with differences of states drawn from the archive Z of the past of all of them. With z1, z2
drawn from Z, d parameters and a small normal e::

    parallel (90 %)    y = x + gamma (z1 - z2) + e,     gamma = 2.38 / sqrt(2 d);  every tenth time gamma = 1
    snooker (10 %)     y = x + g P (z1 - z2),           P: projects on the line through x and a third z; g ~ U(1.2, 2.2)

the snooker move being accepted with probability min(1, pi(y) / pi(x) (\|y - z\| / \|x - z\|)^(d - 1)), the other as
Metropolis. Every `thin` generations the N states join Z; adaptation diminishes, as 1/generation. Needs no covariance,
finds several modes, and takes 3 members also for many parameters.

Sampled variances are integrated out for the move, and drawn given the state when it is recorded.

Memory: when Z is full (10,000 states) every second state is dropped and `thin` doubled.

References
----------
ter Braak, C. J. F. and Vrugt, J. A. (2008). Differential Evolution Markov Chain with snooker updater and fewer chains.
Stat. Comput. 18, 435-446.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import log
from typing import Any

import numpy as np

from fmepy.checks import as_number, positive_number, whole_number
from fmepy.errors import ArgumentError
from fmepy.mcmc.kernels.base import Counts, Dispersion, Info, Record, Sampler, Settings
from fmepy.mcmc.target import Target
from fmepy.types import Matrix, Vector

_JITTER = 1e-4  # sd of e, relative to that of the proposal given
_ONE_IN = 0.1  # parallel moves with gamma = 1: from mode to mode
_LARGEST = 10_000
_ARRAYS = ("theta", "SS", "prior", "log_posterior", "sig", "accepted", "best", "archive")


@dataclass(slots=True, eq=False)
class Population:
    """The members and their densities; `step` changes it in place. Ensembles of emcee use it too."""

    theta: Matrix  # (n_member, n_par)
    SS: Matrix  # (n_member, n_variance)
    prior: Vector
    log_posterior: Vector
    sig: Matrix  # (n_member, n_variance); (n_member, 0) without var0
    accepted: Any
    best: Vector
    best_log_posterior: float
    archive: Matrix  # of DE-MC(Z), (n_state, n_par)
    iteration: int = 0
    thin: int = 0

    def draw_variances(self, target: Target, rng: np.random.Generator) -> None:
        """Draw the variances given the states."""
        if target.sampled:
            for i in range(len(self.theta)):
                self.sig[i] = 1.0 / target.draw_precision(self.SS[i], rng)

    def update_best(self) -> None:
        """Update the best point with the members."""
        i = int(np.argmax(self.log_posterior))
        if self.log_posterior[i] > self.best_log_posterior:
            self.best, self.best_log_posterior = self.theta[i].copy(), float(self.log_posterior[i])


def first_population(
    dispersion: Dispersion, starts: Matrix, dispersed: bool, n_member: int, rng: np.random.Generator
) -> Population:
    """Return a population: the user's members, or the first one (unless `dispersed`) and the others around it."""
    target = dispersion.target
    if len(starts) == n_member:
        points = [dispersion.given(row) for row in starts]
    else:
        points = [dispersion.around(starts[0], rng) if dispersed else dispersion.given(starts[0])]
        points += [dispersion.around(starts[0], rng) for _ in range(n_member - 1)]
    n_variance = 0 if target.variances is None else len(target.precision0)
    log_posterior = np.array([p.log_posterior for p in points])
    best = int(np.argmax(log_posterior))
    population = Population(
        np.array([p.theta for p in points]), np.array([p.SS for p in points]), np.array([p.prior for p in points]),
        log_posterior, np.tile(1.0 / target.precision0[:n_variance], (n_member, 1)),
        np.zeros(n_member, dtype=np.int64), points[best].theta.copy(), float(log_posterior[best]),
        np.empty((0, target.n_par)),
    )  # fmt: skip
    population.draw_variances(target, rng)
    return population


class PopulationKernel:
    """Base of kernels whose state is a population."""

    target: Target

    def record(self, state: Population) -> Record:
        """Return one row per member."""
        sig = None if self.target.variances is None else state.sig
        return Record(state.theta, state.SS.sum(axis=1), sig, state.prior, state.log_posterior)

    def counts(self, state: Population) -> Counts:
        """Return what was counted so far."""
        return Counts(state.accepted.copy(), 0, 0, 0, state.best, state.best_log_posterior)

    def arrays(self, state: Population) -> dict[str, Any]:
        """Return the state as plain arrays."""
        return {
            **{name: getattr(state, name) for name in _ARRAYS},
            "best_log_posterior": np.array(state.best_log_posterior),
            "counters": np.array([state.iteration, state.thin], dtype=np.int64),
        }

    def restore(self, arrays: Mapping[str, Any]) -> Population:
        """Return the state that `arrays` was made of."""
        iteration, thin = (int(v) for v in arrays["counters"])
        parts, best = {name: arrays[name] for name in _ARRAYS}, float(arrays["best_log_posterior"])
        return Population(best_log_posterior=best, iteration=iteration, thin=thin, **parts)


class DEMCZ(PopulationKernel):
    """The kernel behind ``method="demcz"``.

    Parameters
    ----------
    target : Target
    proposal
        Not used: the spread of the members at the start is that of `dispersion`.
    dispersion : Dispersion
        Where the first members and the first archive lie.
    settings : Settings
        In its `control` `population`, the members; `archive`, the states in the first archive; `thin`, the generations
        between additions to it; `snooker`, the probability of such a move; `gamma`, the factor of the parallel move.
    """

    def __init__(self, target: Target, proposal: Any, dispersion: Dispersion, settings: Settings) -> None:
        control = settings.control
        self.target, self.dispersion, self.n_member = target, dispersion, control["population"]
        self.n_archive, self.thin, self.snooker = control["archive"], control["thin"], control["snooker"]
        self.gamma = 2.38 / np.sqrt(2 * target.n_par) if control["gamma"] is None else control["gamma"]
        self.jitter: Vector = _JITTER * np.sqrt(np.sum(dispersion.chol**2, axis=1))

    def start(self, starts: Matrix, dispersed: bool, rng: np.random.Generator) -> Population:
        """Return the first state."""
        state = first_population(self.dispersion, starts, dispersed, self.n_member, rng)
        more = [self.dispersion.around(starts[0], rng).theta for _ in range(self.n_archive - self.n_member)]
        state.archive = np.vstack([state.theta, *more]) if more else state.theta.copy()
        state.thin = self.thin
        return state

    def step(self, state: Population, rng: np.random.Generator) -> tuple[Population, Info]:
        """Move every member once."""
        accepted = 0
        # a member moves along differences of the archive alone, so that all of them can be proposed at once
        moves = [(*self._proposal(x, state.archive, rng), rng.random()) for x in state.theta]
        points = self.target.evaluate_many(np.array([y for y, _, _ in moves]))
        for i, (point, (_, log_factor, u)) in enumerate(zip(points, moves, strict=True)):
            if point is None:
                continue
            change = point.log_posterior - state.log_posterior[i] + log_factor
            if change >= 0 or (u > 0 and log(u) < change):
                state.theta[i], state.SS[i], state.prior[i] = point.theta, point.SS, point.prior
                state.log_posterior[i] = point.log_posterior
                state.accepted[i] += 1
                accepted += 1
            if point.log_posterior > state.best_log_posterior:
                state.best, state.best_log_posterior = point.theta, point.log_posterior
        state.draw_variances(self.target, rng)
        state.iteration += 1
        if state.iteration % state.thin == 0:
            state.archive = np.vstack([state.archive, state.theta])
            if len(state.archive) > _LARGEST:
                state.archive, state.thin = state.archive[::2].copy(), 2 * state.thin
        return state, Info(accepted, self.n_member)

    def _proposal(self, x: Vector, archive: Matrix, rng: np.random.Generator) -> tuple[Vector, float]:
        """Return a proposal, and the logarithm of its factor in the acceptance probability."""
        n = len(archive)
        kind = rng.random()
        a = int(rng.integers(n))
        b = (a + 1 + int(rng.integers(n - 1))) % n
        if kind >= self.snooker:
            gamma = 1.0 if rng.random() < _ONE_IN else self.gamma
            return x + gamma * (archive[a] - archive[b]) + self.jitter * rng.standard_normal(x.size), 0.0
        pole = archive[int(rng.integers(n))]
        line = x - pole
        length2 = float(line @ line)
        step = rng.uniform(1.2, 2.2)
        if length2 == 0.0:
            return x.copy(), 0.0  # the pole is the point itself: no line, no move
        y = x + (step * float((archive[a] - archive[b]) @ line) / length2) * line
        away = y - pole
        ratio = float(away @ away) / length2
        return y, 0.5 * (x.size - 1) * log(ratio) if ratio > 0 else -np.inf


# --- the description of the sampler


def _checked(control: dict[str, Any], n_par: int) -> dict[str, Any]:
    population = whole_number(control["population"], "control: population", 3)
    least = max(10 * n_par, 4 * population)
    if not 0 <= as_number(control["snooker"]) <= 1:
        raise ArgumentError(f"`control`: snooker={control['snooker']!r} must be a probability.")
    return {
        "population": population,
        "archive": whole_number(least if control["archive"] is None else control["archive"], "control: archive", 4),
        "thin": whole_number(control["thin"], "control: thin", 1),
        "snooker": control["snooker"],
        "gamma": None if control["gamma"] is None else positive_number(control["gamma"], "control: gamma"),
    }


SAMPLER = Sampler(DEMCZ, {"population": 3, "archive": None, "thin": 10, "snooker": 0.1, "gamma": None}, _checked)
