r"""Metropolis with adaptation of the proposal covariance and delayed rejection of any order (DRAM).

One iteration from x, with L L' the proposal covariance and z standard normal::

    first try     y1 = x + L z,             accepted with probability min(1, pi(y1) / pi(x))
    k-th try      yk = x + s_k L z,         s_k = drscale_1 * ... * drscale_(k-1), accepted as `delayed_rejection` says
    variances     1/sigma^2 | x drawn anew, where they are sampled
    adaptation    every updatecov + 1 iterations:  L L' = covscale (C + 1e-12 diag(C)),
                  C the covariance of all states so far; during burn-in only, if there is one

References
----------
Haario, H., Saksman, E. and Tamminen, J. (2001). An adaptive Metropolis algorithm. Bernoulli 7, 223-242.
Haario, H., Laine, M., Mira, A. and Saksman, E. (2006). DRAM: efficient adaptive MCMC. Stat. Comput. 16, 339-354.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, log
from typing import Any

import numpy as np

from fmepy.mcmc.kernels.base import Counts, Dispersion, Info, Sampler, Settings, SinglePoint
from fmepy.mcmc.kernels.delayed_rejection import Path, acceptance, n_terms, second_acceptance
from fmepy.mcmc.proposals import JumpFunction, factor
from fmepy.mcmc.target import Point, Target, point_arrays, point_of
from fmepy.types import Matrix, Vector

_LEAST_ACCEPTED = 5  # adaptation waits for more accepted moves than these (FME)
_RIDGE = 1e-12  # relative; keeps a covariance definite whose draws lie in a plane
_INF = float("inf")
_COUNTERS = ("iteration", "accepted", "dr_steps", "alfasteps", "covupdates", "last_update", "pending", "seen")


@dataclass(slots=True, eq=False)
class MetropolisState:
    """The position of the chain and the state of the adaptation; `step` changes it in place."""

    point: Point
    precision: Vector
    energy: float  # -2 log posterior at the current precision
    chol: Matrix
    best: Point
    by_try: list[int]  # accepted at the first, second, ... try
    iteration: int = 0
    accepted: int = 0
    dr_steps: int = 0
    alfasteps: int = 0
    covupdates: int = 0
    last_update: int = 0
    pending: int = 0  # iterations at the current point that `mean` and `scatter` have not seen
    seen: int = 0
    mean: Vector | None = None  # of the states seen
    scatter: Matrix | None = None  # sum of (x - mean)(x - mean)'


class Metropolis(SinglePoint):
    """The kernel behind ``method="dram"``, one chain at a time.

    Parameters
    ----------
    target : Target
    jump : ndarray, shape (n_par, n_par), or JumpFunction
        Lower factor of the proposal covariance, or the user's function.
    dispersion : Dispersion
    settings : Settings
        Of it `drscale`, each factor on top of the one before; `updatecov`, 0 for none; `covscale`; `adapt_until`.
    """

    def __init__(self, target: Target, jump: Matrix | JumpFunction, dispersion: Dispersion, settings: Settings) -> None:
        self.target, self.jump, self.dispersion, self.settings = target, jump, dispersion, settings
        self.scales: list[float] = [1.0, *np.cumprod(np.asarray(settings.drscale, dtype=float)).tolist()]
        self._halves = [-0.5 / s**2 for s in self.scales]
        self.n_try = len(self.scales)
        self.function = jump if isinstance(jump, JumpFunction) else None

    def start(self, starts: Matrix, dispersed: bool, rng: np.random.Generator) -> MetropolisState:
        """Return the first state: at the user's start, or dispersed around it."""
        point = self.dispersion.around(starts[0], rng) if dispersed else self.dispersion.given(starts[0])
        chol = np.empty((0, 0)) if isinstance(self.jump, JumpFunction) else self.jump
        precision = self.target.draw_precision(point.SS, rng) if self.target.sampled else self.target.precision0
        n = self.target.n_par
        return MetropolisState(
            point, precision, float(point.SS @ precision) + point.prior, chol, point, [0] * self.n_try,
            mean=np.zeros(n), scatter=np.zeros((n, n)),
        )  # fmt: skip

    def step(self, state: MetropolisState, rng: np.random.Generator) -> tuple[MetropolisState, Info]:
        """Make one iteration."""
        target, x = self.target, state.point.theta
        tries = 1
        z: Vector | None = None
        if self.function is not None:
            y = self.function(x, rng)
        else:
            z = rng.standard_normal(x.size)
            y = x + state.chol.dot(z)
        point = target.evaluate(y)
        u = rng.random()
        moved = False
        energy = _INF
        if point is not None:
            energy = self._energy(point, state.precision)
            if point.log_posterior > state.best.log_posterior:
                state.best = point
            moved = energy <= state.energy or (u > 0.0 and log(u) < 0.5 * (state.energy - energy))
        if not moved and self.n_try > 1 and z is not None:
            point, energy, tries = self._delayed_rejection(state, z, energy, rng)
            moved = point is not None
        if moved and point is not None:
            if state.pending:
                _update_scatter(state)
            state.point, state.energy = point, energy
            state.accepted += 1
            state.by_try[tries - 1] += 1
        state.iteration += 1
        if target.sampled:
            state.precision = target.draw_precision(state.point.SS, rng)
            state.energy = float(state.point.SS @ state.precision) + state.point.prior
        settings = self.settings
        if settings.updatecov and state.iteration <= settings.adapt_until:
            state.pending += 1
            if state.iteration > state.last_update + settings.updatecov and state.accepted > _LEAST_ACCEPTED:
                self._adapt(state)
        return state, Info(int(moved), tries)

    def _delayed_rejection(
        self, state: MetropolisState, z: Vector, first: float, rng: np.random.Generator
    ) -> tuple[Point | None, float, int]:
        """Make the second and later tries; return the point moved to (None: stay), its energy, the tries made.

        The tries are x + L w; log densities of proposals are those of w, up to a constant of the order:
        log q_k(a -> b) = -|w_b - w_a|^2 / (2 s_k^2).
        """
        x, chol, halves = state.point.theta, state.chol, self._halves
        w = [z]  # of the tries
        log_pi = [-0.5 * state.energy, -0.5 * first]
        known: dict[Path, float] = {(0, 1): 0.0 if first == _INF else exp(min(0.0, log_pi[1] - log_pi[0]))}
        between = {(0, 1): float(z.dot(z))}  # squared distances
        between[1, 0] = between[0, 1]

        def log_q(path: Path) -> float:
            return halves[len(path) - 2] * between[path[0], path[-1]]

        for order in range(2, self.n_try + 1):
            new = self.scales[order - 1] * rng.standard_normal(x.size)
            between[0, order] = between[order, 0] = float(new.dot(new))
            for k, old in enumerate(w, start=1):
                d = new - old
                between[k, order] = between[order, k] = float(d.dot(d))
            w.append(new)
            point = self.target.evaluate(x + chol.dot(new))
            u = rng.random()
            state.dr_steps += 1
            state.alfasteps += n_terms(order)
            if point is None:
                log_pi.append(-_INF)
                continue
            energy = self._energy(point, state.precision)
            log_pi.append(-0.5 * energy)
            if point.log_posterior > state.best.log_posterior:
                state.best = point
            alpha = (
                second_acceptance(log_pi, halves[0] * (between[1, 2] - between[0, 1]), known[0, 1])
                if order == 2
                else acceptance(log_pi, log_q, None, known)
            )
            if u < alpha:
                return point, energy, order
        return None, _INF, self.n_try

    def _energy(self, point: Point, precision: Vector) -> float:
        """Return -2 log posterior at these precisions."""
        if self.target.sampled:
            return float(point.SS @ precision) + point.prior
        return -2.0 * point.log_posterior

    def _adapt(self, state: MetropolisState) -> None:
        """Set the proposal covariance by the states so far."""
        _update_scatter(state)
        assert state.scatter is not None
        cov = state.scatter / (state.seen - 1)
        chol = factor(self.settings.covscale * (cov + _RIDGE * np.diag(np.diag(cov))))
        state.last_update = state.iteration
        if chol is not None:
            state.chol = chol
            state.covupdates += 1

    def counts(self, state: MetropolisState) -> Counts:
        """Return what was counted so far."""
        return Counts(
            np.array([state.accepted]), state.dr_steps, state.alfasteps, state.covupdates,
            state.best.theta, state.best.log_posterior, tuple(state.by_try),
        )  # fmt: skip

    def arrays(self, state: MetropolisState) -> dict[str, Any]:
        """Return the state as plain arrays."""
        return {
            **point_arrays("point", state.point),
            **point_arrays("best", state.best),
            "precision": state.precision,
            "energy": np.array(state.energy),
            "chol": state.chol,
            "mean": state.mean,
            "scatter": state.scatter,
            "by_try": np.array(state.by_try, dtype=np.int64),
            "counters": np.array([getattr(state, name) for name in _COUNTERS], dtype=np.int64),
        }

    def restore(self, arrays: Mapping[str, Any]) -> MetropolisState:
        """Return the state that `arrays` was made of."""
        return MetropolisState(
            point_of("point", arrays),
            arrays["precision"],
            float(arrays["energy"]),
            arrays["chol"],
            point_of("best", arrays),
            [int(n) for n in arrays["by_try"]],
            **{name: int(value) for name, value in zip(_COUNTERS, arrays["counters"], strict=True)},
            mean=arrays["mean"],
            scatter=arrays["scatter"],
        )


def _update_scatter(state: MetropolisState) -> None:
    """Include the current point in mean and scatter, as often as it was repeated (Welford's update, weighted)."""
    assert state.mean is not None
    assert state.scatter is not None
    w = state.pending
    n = state.seen + w
    d = state.point.theta - state.mean
    state.mean = state.mean + d * (w / n)
    state.scatter = state.scatter + (w * state.seen / n) * (d[:, None] * d)
    state.seen, state.pending = n, 0


SAMPLER = Sampler(Metropolis, adapts=True)
