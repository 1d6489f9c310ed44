r"""The no-U-turn sampler: Hamiltonian trajectories that follow the gradient of the log posterior until they turn back.

It moves in coordinates u without bounds, in which the posterior is about normal (`fmepy.mcmc.kernels.whitening`)::

    f(u)  = log posterior(theta) + log |dtheta/du|

With M^-1 = L L' the metric, u = L q and momenta p ~ N(0, 1), H = -f + p'p / 2 is kept by leapfrog steps of length e::

    p += e/2 L'f'(u),    q += e p,    p += e/2 L'f'(u)

A trajectory is doubled, forwards or backwards in time by chance, until it turns back: until the sum of its momenta, or
that of a half with the nearest point of the other, points against the momentum at an end. The next state is drawn from
its points with weights exp(-H), later doublings preferred. A point whose H is more than 1,000 above the first one's is
a **divergence**: there the posterior bends more sharply than the steps can follow, and draws from beyond it are
missing. A run that fails ends a trajectory, too.

During burn-in the length of the steps is found by dual averaging, so that the mean acceptance probability is
`target_accept`; coordinates and metric by the draws and slopes of windows, each of which is twice the one before. Until
the last one trajectories are short.

References
----------
Hoffman, M. D. and Gelman, A. (2014). The No-U-Turn Sampler. J. Mach. Learn. Res. 15, 1593-1623.
Betancourt, M. (2017). A conceptual introduction to Hamiltonian Monte Carlo. arXiv:1701.02434 (appendix A: weights).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, inf, isfinite, log, sqrt
from typing import Any

import numpy as np

from fmepy.checks import between_0_and_1, whole_number
from fmepy.errors import ArgumentError, warn
from fmepy.mcmc.kernels.base import Counts, Dispersion, Info, Sampler, Settings, SinglePoint
from fmepy.mcmc.kernels.whitening import Unbounded, metric
from fmepy.mcmc.proposals import factor
from fmepy.mcmc.target import Point, Target, point_arrays, point_of
from fmepy.types import Matrix, Vector

_DIVERGENT = 1000.0
_GAMMA, _T0, _KAPPA = 0.05, 10.0, 0.75  # of dual averaging, as published
_FIRST, _LAST = 10, 0.15  # iterations before the windows; of burn-in, after them, at most 50 iterations
_SHORTEST, _WINDOW = 20, 15  # burn-in that has windows; draws of the first
_SHALLOW = 5  # depth of trajectories before the last window
_WIDEST = 3.0  # sd of a transformed parameter to begin with: the logistic of a flat one has 1.8
_RIDGE = 1e-10  # relative
_SHOWN = 100  # divergences whose places are remembered
_COUNTERS = ("iteration", "accepted", "covupdates", "divergences", "averaged", "leapfrogs")
_ARRAYS = ("u", "slope", "precision", "chol", "places")
_NUMBERS = ("log_step", "log_step_mean", "centre", "error")


@dataclass(slots=True, eq=False)
class Place:
    """A point of a trajectory: whitened position, momentum, slope of f to q, f, and the point of the posterior."""

    q: Vector
    p: Vector
    slope: Vector
    f: float
    point: Point


@dataclass(slots=True, eq=False)
class NutsState:
    """The position of the chain and the state of the adaptation; `step` changes it in place."""

    coordinates: Unbounded
    u: Vector
    slope: Vector  # of f to u
    f: float
    point: Point
    best: Point
    precision: Vector
    chol: Matrix
    places: Matrix  # of divergences, shape (n, n_par)
    seen: list[Matrix]  # of the window: u and slope
    log_step: float = 0.0
    log_step_mean: float = 0.0
    centre: float = 0.0
    error: float = 0.0
    iteration: int = 0
    accepted: int = 0
    covupdates: int = 0
    divergences: int = 0
    averaged: int = 0
    leapfrogs: int = 0


@dataclass(slots=True, eq=False)
class _Tree:
    """A part of a trajectory.

    Attributes
    ----------
    left, right : Place
        Its ends, in the order of time.
    chosen : Place
        The point drawn from it.
    log_weight : float
        Logarithm of the sum of exp(H0 - H).
    rho : ndarray
        Sum of the momenta.
    is_over : bool
        It turned back, or diverged: nothing of it is taken.
    """

    left: Place
    right: Place
    chosen: Place
    log_weight: float
    rho: Vector
    is_over: bool = False


class Nuts(SinglePoint):
    """The kernel behind ``method="nuts"``, one chain at a time.

    Parameters
    ----------
    target : Target
    proposal : ndarray, shape (n_par, n_par)
        Lower factor of the covariance to begin with.
    dispersion : Dispersion
    settings : Settings
        Of it `adapt_until`, the burn-in, and in `control` `target_accept`, the mean acceptance probability that the
        steps are made for, and `max_depth`: a trajectory has at most 2**max_depth points.
    """

    def __init__(self, target: Target, proposal: Any, dispersion: Dispersion, settings: Settings) -> None:
        target.check_gradient("nuts")
        self.target, self.proposal, self.dispersion = target, proposal, dispersion
        self.target_accept, self.max_depth = settings.control["target_accept"], settings.control["max_depth"]
        self.burnin = settings.adapt_until if settings.adapt_until < sys.maxsize else 0
        if not self.burnin:
            warn(
                "method='nuts' finds its steps and its metric in burn-in, and there is none: the whole chain has the "
                "steps found at its start. Give burninlength, such as half of niter."
            )
        self.ends = windows(self.burnin)
        self.deep_from = max(self.ends[:-1], default=0)

    # --- the contract of a kernel

    def start(self, starts: Matrix, dispersed: bool, rng: np.random.Generator) -> NutsState:
        """Return the first state: at the start given, or dispersed around it; a start on a bound is moved inside."""
        point = self.dispersion.around(starts[0], rng) if dispersed else self.dispersion.given(starts[0])
        coordinates = Unbounded(*self.target.support)
        u = coordinates.inverse(point.theta)
        n = u.size
        known = self._density(coordinates, u)
        if known is None:
            named = dict(zip(self.target.names, map(float, point.theta), strict=True))
            why = self.target.objective.last_failure or "it is not finite."
            raise ArgumentError(f"No gradient can be had at the start {named}: {why} Give another start.")
        f, slope, point = known
        covariance = self.proposal @ self.proposal.T
        steep = coordinates.slopes(u)[0]  # which a start beside a bound has too small
        least = np.where(coordinates.is_bounded, np.sqrt(np.diag(covariance)) / _WIDEST, 0.0)
        steep = np.copysign(np.maximum(np.abs(steep), least), steep)
        chol = factor(_with_ridge(covariance / np.outer(steep, steep)))
        precision = self.target.draw_precision(point.SS, rng) if self.target.sampled else self.target.precision0
        state = NutsState(
            coordinates, u, slope, f, point, point, precision, np.eye(n) if chol is None else chol,
            np.empty((0, n)), [],
        )  # fmt: skip
        self._find_step(state, rng)
        return state

    @np.errstate(all="ignore")  # a step too long runs away, and is a divergence
    def step(self, state: NutsState, rng: np.random.Generator) -> tuple[NutsState, Info]:
        """Make one iteration: a trajectory, and during burn-in the adaptation."""
        q, f0 = _solve(state.chol, state.u), state.f
        first = Place(q, rng.standard_normal(q.size), state.chol.T @ state.slope, f0, state.point)
        H0 = -f0 + 0.5 * float(first.p @ first.p)
        run = _Trajectory(self, state, exp(state.log_step), H0, rng)
        is_early = state.iteration < self.deep_from
        tree, is_divergent = run.grow(first, min(self.max_depth, _SHALLOW) if is_early else self.max_depth)
        moved = tree.chosen is not first
        if moved:
            state.u, state.f, state.point = state.chol @ tree.chosen.q, tree.chosen.f, tree.chosen.point
            state.slope = _solve(state.chol.T, tree.chosen.slope)
            state.accepted += 1
        state.iteration += 1
        state.leapfrogs += run.n
        if is_divergent and state.iteration > self.burnin:
            state.divergences += 1
            if len(state.places) < _SHOWN:
                state.places = np.vstack([state.places, run.divergent_at])
        if self.target.sampled:
            state.precision = self.target.draw_precision(state.point.SS, rng)
        if state.iteration <= self.burnin:
            self._adapt(state, run.acceptance / max(run.n, 1), rng)
        return state, Info(int(moved), run.n)

    def counts(self, state: NutsState) -> Counts:
        """Return what was counted so far."""
        return Counts(
            np.array([state.accepted]), 0, 0, state.covupdates, state.best.theta, state.best.log_posterior,
            divergences=state.divergences, divergent=state.places,
        )  # fmt: skip

    def arrays(self, state: NutsState) -> dict[str, Any]:
        """Return the state as plain arrays."""
        return {
            **point_arrays("point", state.point),
            **point_arrays("best", state.best),
            **{name: getattr(state, name) for name in _ARRAYS},
            "bend": state.coordinates.bend,
            "seen": np.array(state.seen).reshape(-1, 2, state.u.size),
            "f": np.array(state.f),
            "numbers": np.array([getattr(state, name) for name in _NUMBERS]),
            "counters": np.array([getattr(state, name) for name in _COUNTERS], dtype=np.int64),
        }

    def restore(self, arrays: Mapping[str, Any]) -> NutsState:
        """Return the state that `arrays` was made of."""
        fields: dict[str, Any] = {name: arrays[name] for name in _ARRAYS}
        fields |= {name: float(value) for name, value in zip(_NUMBERS, arrays["numbers"], strict=True)}
        fields |= {name: int(value) for name, value in zip(_COUNTERS, arrays["counters"], strict=True)}
        fields |= {name: point_of(name, arrays) for name in ("best", "point")}
        coordinates = Unbounded(*self.target.support, arrays["bend"])
        return NutsState(coordinates=coordinates, seen=list(arrays["seen"]), f=float(arrays["f"]), **fields)

    # --- the density of u

    def _density(self, coordinates: Unbounded, u: Vector) -> tuple[float, Vector, Point] | None:
        """Return f, its slope and the point at u; None where the density is zero or has no gradient."""
        evaluation = self.target.evaluate_with_gradient(coordinates.forward(u))
        if evaluation is None:
            return None
        point, gradient = evaluation
        if coordinates.is_identity:
            f, slope = point.log_posterior, gradient
        else:
            steep, logs, of_logs = coordinates.slopes(u)
            f, slope = point.log_posterior + logs, gradient * steep + of_logs
        return (f, slope, point) if isfinite(f) and np.isfinite(slope).all() else None

    def leap(self, state: NutsState, place: Place, step: float) -> Place | None:
        """Return the place a leapfrog step further; None where the density is zero."""
        p = place.p + 0.5 * step * place.slope
        q = place.q + step * p
        known = self._density(state.coordinates, state.chol @ q)
        if known is None:
            return None
        f, slope, point = known
        if point.log_posterior > state.best.log_posterior:
            state.best = point
        slope = state.chol.T @ slope
        return Place(q, p + 0.5 * step * slope, slope, f, point)

    # --- adaptation

    @np.errstate(all="ignore")
    def _find_step(self, state: NutsState, rng: np.random.Generator) -> None:
        """Set the length of the steps so that acceptance is about a half, and restart dual averaging."""
        q = _solve(state.chol, state.u)
        place = Place(q, rng.standard_normal(q.size), state.chol.T @ state.slope, state.f, state.point)
        H0 = -place.f + 0.5 * float(place.p @ place.p)
        log_step, direction = 0.0 if state.averaged == 0 else state.log_step, 0
        for _ in range(60):
            after = self.leap(state, place, exp(log_step))
            drop = -inf if after is None else H0 + after.f - 0.5 * float(after.p @ after.p)
            now = 1 if drop > log(0.5) else -1
            if direction and now != direction:
                break
            direction = now
            log_step += direction * log(2.0)
            if log_step > 5.0:  # a density that is all but flat
                break
        state.log_step = state.log_step_mean = log_step
        state.centre, state.error, state.averaged = log(10.0) + log_step, 0.0, 0

    def _adapt(self, state: NutsState, acceptance: float, rng: np.random.Generator) -> None:
        """Adapt the step after one iteration of burn-in."""
        state.averaged += 1
        m = state.averaged
        state.error += (self.target_accept - acceptance - state.error) / (m + _T0)
        state.log_step = state.centre - sqrt(m) / _GAMMA * state.error
        weight = m**-_KAPPA
        state.log_step_mean += weight * (state.log_step - state.log_step_mean)
        if self.ends[0] < state.iteration <= self.ends[-1]:
            state.seen.append(np.array([state.u, state.slope]))
        if state.iteration in self.ends[1:]:
            self._learn(state)
            self._find_step(state, rng)
        if state.iteration == self.burnin:
            state.log_step = state.log_step_mean

    def _learn(self, state: NutsState) -> None:
        """Set coordinates and metric by the draws of a window, and begin a new window."""
        V, slopes = np.swapaxes(state.seen, 0, 1)
        if (V.std(axis=0) > 0).all():
            coordinates, V, slopes = state.coordinates.adapted(V, slopes)
            u = coordinates.to_normal(state.coordinates.from_normal(state.u))
            known, chol = self._density(coordinates, u), factor(_with_ridge(metric(V, slopes)))
            if known is not None and chol is not None:
                state.coordinates, state.u, state.chol = coordinates, u, chol
                state.f, state.slope, state.point = known
                state.covupdates += 1
        state.seen = []


class _Trajectory:
    """One trajectory from a first place.

    Attributes
    ----------
    n, acceptance : int, float
        Leapfrog steps made, and the sum of their acceptance probabilities.
    divergent_at : ndarray
        The parameters from which a divergent step started.
    """

    def __init__(self, kernel: Nuts, state: NutsState, step: float, H0: float, rng: np.random.Generator) -> None:
        self.kernel, self.state, self.step, self.H0, self.rng = kernel, state, step, H0, rng
        self.n, self.acceptance = 0, 0.0
        self.is_divergent = False
        self.divergent_at = state.point.theta

    def grow(self, first: Place, max_depth: int) -> tuple[_Tree, bool]:
        """Return the trajectory with the place drawn from it, and whether it diverged."""
        tree = _Tree(first, first, first, 0.0, first.p)
        for depth in range(max_depth):
            forwards = self.rng.random() < 0.5
            part = self._build(tree.right if forwards else tree.left, depth, 1.0 if forwards else -1.0)
            if part is None or part.is_over:
                break
            if log(self.rng.random() or 1e-300) < part.log_weight - tree.log_weight:
                tree.chosen = part.chosen
            joined = _join(tree, part) if forwards else _join(part, tree)
            joined.chosen = tree.chosen
            tree = joined
            if tree.is_over:
                break
        return tree, self.is_divergent

    def _build(self, edge: Place, depth: int, sign: float) -> _Tree | None:
        """Return a tree of 2**depth places beyond an edge; None where the trajectory ends in it."""
        if depth == 0:
            return self._leaf(edge, sign)
        near = self._build(edge, depth - 1, sign)
        if near is None or near.is_over:
            return None
        far = self._build(near.right if sign > 0 else near.left, depth - 1, sign)
        if far is None or far.is_over:
            return None
        both = _join(near, far) if sign > 0 else _join(far, near)
        takes_far = log(self.rng.random() or 1e-300) < far.log_weight - both.log_weight
        both.chosen = far.chosen if takes_far else near.chosen
        return both

    def _leaf(self, edge: Place, sign: float) -> _Tree | None:
        place = self.kernel.leap(self.state, edge, sign * self.step)
        self.n += 1
        drop = -inf if place is None else self.H0 + place.f - 0.5 * float(place.p @ place.p)
        if place is None or not drop > -_DIVERGENT:
            self.is_divergent, self.divergent_at = True, edge.point.theta
            return None
        self.acceptance += 1.0 if drop >= 0 else exp(drop)
        return _Tree(place, place, place, drop, place.p)


def _join(left: _Tree, right: _Tree) -> _Tree:
    """Return two parts as one, `chosen` still open; it is over where it, or a half with a neighbour, turned back."""
    rho = left.rho + right.rho
    is_over = (
        _turns(left.left.p, right.right.p, rho)
        or _turns(left.left.p, right.left.p, left.rho + right.left.p)
        or _turns(left.right.p, right.right.p, right.rho + left.right.p)
    )
    log_weight = float(np.logaddexp(left.log_weight, right.log_weight))
    return _Tree(left.left, right.right, left.chosen, log_weight, rho, is_over)


def _turns(first: Vector, last: Vector, rho: Vector) -> bool:
    return not (float(first @ rho) > 0 and float(last @ rho) > 0)


def windows(burnin: int) -> list[int]:
    """Return the iterations of burn-in between which the windows lie.

    Examples
    --------
    >>> windows(1000), windows(100), windows(15)
    ([10, 25, 55, 115, 235, 950], [10, 25, 85], [15])
    """
    if burnin < _SHORTEST:
        return [burnin]
    last, size, ends = burnin - min(50, int(_LAST * burnin)), _WINDOW, [_FIRST]
    while ends[-1] + 3 * size <= last:  # the next one fits, too
        ends.append(ends[-1] + size)
        size *= 2
    return [*ends, last]


def _solve(A: Matrix, b: Vector) -> Vector:
    return np.asarray(np.linalg.solve(A, b), dtype=np.float64)


def _with_ridge(cov: Matrix) -> Matrix:
    return np.asarray(cov + _RIDGE * np.diag(np.diag(cov)))


# --- the description of the sampler


def _checked(control: dict[str, Any], n_par: int) -> dict[str, Any]:
    accept = between_0_and_1(control["target_accept"], "control: target_accept")
    return {"target_accept": accept, "max_depth": whole_number(control["max_depth"], "control: max_depth", 1)}


SAMPLER = Sampler(Nuts, {"target_accept": 0.8, "max_depth": 10}, _checked)
