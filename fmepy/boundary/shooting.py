"""Multiple shooting: a record in segments with starts of their own, and continuity between them as constraints.

With r the weighted residuals of all segments from starts x_s at unknowns p, and d_s the defects of continuity in units
of the sizes of the states::

    |r(x, p)|^2 -> min      subject to      d_s(x, p) = x_s+1(end of s) - x_s+1 = 0,      x_0 = x0(p)

Far from the solution the constraints of long, unstable or chaotic records leave no way down. So continuity is soft at
first: ``|r / s|^2 + |d / sigma|^2`` falls by Levenberg and Marquardt's steps for sigma = 3, 0.3, 0.03, 0.003, s being
the size of the residuals when a stage begins, so that neither units nor errors matter; each stage starts from the one
before. Segments so short that their own observations leave their starts free begin with sigma = 0.03: continuity is
what holds those. Where some segments fit far worse than the rest at the end of a stage, their starts are looked for
again at the unknowns that have been found since (`fmepy.boundary.shooting_starts`): no small step leads from one fold
of a chaotic model to the next.

Then Gauss-Newton steps meet the linearised constraints exactly. One that neither brings the defects down nor makes the
next one shorter, as happens where residuals are large or unknowns nearly collinear, is solved for again with damping,
which leaves the constraints exact, until the squares above fall; if none helps, a stage with a tenth of the last sigma
comes first. A step costs one run of all segments and linear algebra whose time grows as their number
(`fmepy.boundary.shooting_linear`).

References
----------
Bock, H. G. (1983). Recent advances in parameter identification techniques for ODE. In: Deuflhard, P. and Hairer, E.
(eds), Numerical Treatment of Inverse Problems in Differential and Integral Equations, Birkhaeuser, 95-121. Deuflhard,
P. (2004). Newton Methods for Nonlinear Problems, Springer.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from fmepy.boundary.problem import BoundaryProblem, Solution
from fmepy.boundary.shooting_gains import check_gain, fit_gains
from fmepy.boundary.shooting_linear import Linear, ShootingStep, curvature, undetermined
from fmepy.boundary.shooting_misfit import LAST, check_misfit, misfit_of
from fmepy.boundary.shooting_segments import DEFECT, LONGEST, Iterate, Segments
from fmepy.boundary.shooting_starts import composed, first_starts, following, other_paths, squares_of, starts_at
from fmepy.boundary.superposition import SOLVER_ERROR, has_stalled, is_negligible
from fmepy.errors import ArgumentError, SimulationError
from fmepy.parallel.interruption import check_stop, outermost
from fmepy.parameters.names import split_local
from fmepy.types import Matrix, Vector

STAGES = (3.0, 0.3, 0.03, LAST)
"""Scales of the defects, in sizes of the states."""
SMALLEST = 1e-7
"""Scale of the defects below which a search that the exact steps have not ended is given up."""
_FIRST, _LARGEST = 0.01, 0.1
"""Size of the residuals in the first stage, which is the least, and at most, relative to the observations."""
_ENOUGH, _SHORT = 1.5, 0.03
"""Observations for one start of a segment; with fewer, the scale of the defects to begin with."""
_ROUGHLY, _SETTLED = 0.01, 1e-3
"""Relative gain of a step that ends a stage: of those before the last, and of the last."""
_WILD, _BETTER, _REPAIRS = 10, 0.9, 3
"""Mean square of a segment, in those of the median, whose start is looked for again; relative value of a path that is
then taken; how often in a stage."""
_CONTRACTION = 0.7
"""Of the length of an exact step to that of the one before, at most."""
_FIRST_DAMPING, _MOST_DAMPING = 1e-3, 1e8
_HELPS, _LEAST_GAIN = 0.01, 1e-7
"""Of the fall that was predicted, at least; least fall of the squares that exact steps with damping are taken for."""


@dataclass(eq=False)
class _Search:
    """The iteration with its records."""

    problem: BoundaryProblem
    segments: Segments
    state_scale: Vector
    at: Iterate
    rows: list[list[float]] = field(default_factory=list)
    corrections: list[float] = field(default_factory=list)
    last: Vector = field(default_factory=lambda: np.empty(0))
    damping: float = _FIRST_DAMPING
    size: float = 1.0
    exact: int = 0  # steps, of all
    failures: int = 0
    last_failure: str = ""
    held: dict[int, float] = field(default_factory=dict)  # unknowns with fixed steps

    # --- scales, defects, squares

    @cached_property
    def _least_scale(self) -> Vector:
        p, own = self.problem, dict(zip(self.segments.states, self.state_scale.tolist(), strict=True))
        least = 0.1 * p.scale
        for state, name in p.starts_of.items():
            for i, known in enumerate(p.names):
                if split_local(known, p.starts_of.values())[0] == name:
                    least[i] = max(least[i], own[state])
        return least

    def scale(self, at: Iterate) -> Vector:
        """Return the sizes of the unknowns."""
        return np.maximum(np.abs(at.theta), self._least_scale)

    def linear(self, at: Iterate) -> Linear:
        return self.segments.linear(at, self.state_scale, self.scale(at), self.size)

    def defect(self, at: Iterate) -> float:
        gap, gap0 = self.segments.gaps(at, self.state_scale)
        return max(float(np.abs(gap).max()), float(np.abs(gap0).max()))

    def value(self, at: Iterate, sigma: float) -> float:
        gap, gap0 = self.segments.gaps(at, self.state_scale)
        return _square(at.r / self.size) + (_square(gap) + _square(gap0)) / sigma**2

    def residual_size(self) -> float:
        """Return the size of a weighted residual: neither that of a bad fit, nor of segments that follow every error.

        Before the first stage it is not known: the segments, left to themselves, are to come near to the data.
        """
        n = len(self.at.r)
        spread = self.segments.size_of_obs / np.sqrt(n) or 1.0
        if not self.rows:
            return _FIRST * spread
        return float(np.clip(np.sqrt(_square(self.at.r) / n), _FIRST * spread, _LARGEST * spread))

    # --- steps

    def step(self, at: Iterate, linear: Linear, sigma: float | None, damping: float) -> ShootingStep:
        """Return the step inside the bounds: unknowns that it would take across are held there."""
        p, scale, held = self.problem, self.scale(at), dict(self.held)
        while True:
            try:
                step = linear.step(sigma, damping, held)
            except SimulationError:  # nowhere: such a step is not taken
                nowhere = np.full(at.X.shape, np.nan)
                return ShootingStep(np.full(p.start.size, np.nan), nowhere, np.empty(0), np.empty(0))
            new = at.theta + step.dp * scale
            out = [i for i in np.flatnonzero((new < p.lower) | (new > p.upper)).tolist() if i not in held]
            if not out:
                return step
            bound = np.clip(new, p.lower, p.upper)
            held |= {i: float((bound[i] - at.theta[i]) / scale[i]) for i in out}

    def try_step(self, at: Iterate, step: ShootingStep) -> Iterate | None:
        """Return where a step leads, None where the model cannot be run."""
        check_stop()
        p = self.problem
        theta = np.clip(at.theta + step.dp * self.scale(at), p.lower, p.upper)
        try:
            return self.segments.at(theta, at.X + step.dx * self.state_scale)
        except SimulationError as error:
            self.failures += 1
            self.last_failure = str(error)
            return None

    def accept(self, iterate: Iterate, sigma: float, damping: float) -> None:
        """Record a step, and move there."""
        old, new = self.at.theta, iterate.theta
        size = np.maximum(np.maximum(np.abs(old), np.abs(new)), 1e-4 * self.scale(self.at))
        correction = float((np.abs(new - old) / size).max())
        residual = float(np.sqrt(_square(self.at.r)))
        self.rows.append([len(self.rows) + 1, *old, sigma, damping, self.defect(self.at), correction, residual])
        self.exact += sigma == 0
        self.corrections.append(correction)
        self.last, self.at = new - old, iterate

    @property
    def is_used_up(self) -> bool:
        return max(self.exact, len(self.rows) - self.exact) >= self.problem.max_iter

    def soften(self, sigma: float) -> None:
        """Go down with soft continuity, until a step gains little and no segment fits far worse than the rest."""
        early = sigma > STAGES[-1]
        for _ in range(_REPAIRS + 1):
            self.size, self.damping = self.residual_size(), _FIRST_DAMPING
            while not self.is_used_up:
                if self._descend(self.linear(self.at), sigma) < (_ROUGHLY if early else _SETTLED):
                    break
            if self.is_used_up or not early or not self._repair(sigma):
                return

    def _descend(self, linear: Linear, sigma: float, *, exact: bool = False) -> float:
        """Take a step down, of exact continuity or soft; return the relative gain, 0 where there is none."""
        value, more = self.value(self.at, sigma), 2.0
        least = _LEAST_GAIN if exact else _SETTLED * value
        while self.damping <= _MOST_DAMPING:
            step = self.step(self.at, linear, None if exact else sigma, self.damping)
            predicted_fall = value - linear.predicted(step, sigma)
            if not predicted_fall >= least:
                return 0.0
            if np.abs(step.dp).max() > LONGEST:
                self.damping *= 3
                continue
            found = self.try_step(self.at, step)
            enough = value - _HELPS * predicted_fall
            if exact and found is not None and self.value(found, np.inf) < enough < self.value(found, sigma):
                found = self._nearest_continuous(found)
            good = -1.0 if found is None else (value - self.value(found, sigma)) / predicted_fall
            if found is not None and good > _HELPS:
                self.accept(found, 0.0 if exact else sigma, self.damping)
                self.damping = max(self.damping * (0.1 if good > 0.7 else 0.3 if good > 0.3 else 1.0), 1e-12)
                return good * predicted_fall / value
            self.damping *= more
            more *= 2
        return 0.0

    def _nearest_continuous(self, at: Iterate) -> Iterate | None:
        """Return the nearest continuous path, to first order: a long step leaves the curved set of continuous paths."""
        return self.try_step(at, self.step(at, self.linear(at), None, _MOST_DAMPING))

    def _repair(self, sigma: float) -> bool:
        """Take other starts of segments at these unknowns, where some fit far worse than the rest; return whether."""
        each = squares_of(self.at) / self.segments.counts
        if each.max() <= _WILD * np.median(each):
            return False
        return self.begin_from([self.at, *self.others()], sigma)

    def others(self) -> list[Iterate]:
        """Return paths from other starts of segments at these unknowns; of initial values, where they follow."""
        onward = np.where(self.segments.layout.is_first[:, None], self.at.X, np.roll(self.at.ends, 1, axis=0))
        paths: list[Iterate] = []
        for X in (onward, *starts_at(self.segments, self.at.theta)):
            check_stop()
            with contextlib.suppress(SimulationError):
                paths.append(self.segments.at(self.at.theta, X))
        return [*paths, *other_paths(self.segments, self.at, self.state_scale, paths)]

    def begin_from(self, paths: list[Iterate], sigma: float) -> bool:
        """Go to the best composition of several paths; return whether it is better than the present one."""
        found = composed(self.segments, paths, self.state_scale * sigma, self.size)
        theta = following(self.segments, found.theta, found.X)
        if (theta != found.theta).any():
            found = self.segments.at(theta, found.X)
        if not self.value(found, sigma) < _BETTER * self.value(self.at, sigma):
            return False
        self.at = found
        return True

    def tighten(self, sigma: float) -> tuple[bool, str]:
        """Take exact steps while they lead on; return whether it converged, and why it ended, if so.

        sigma : scale of the defects in the squares that steps with damping bring down
        """
        self.size, self.damping = self.residual_size(), _FIRST_DAMPING
        ahead: tuple[Linear, ShootingStep] | None = None
        while not self.is_used_up:
            linear, step = ahead or self._exact(self.at)
            found, ahead = None if np.abs(step.dp).max() > LONGEST else self.try_step(self.at, step), None
            if found is not None and not self._is_nearer(found):
                ahead = self._exact(found)
                if not self._is_contraction(step, found, ahead[1]):
                    found = ahead = None
            effect = linear.effect(step) * self.size
            if found is None:
                if self._descend(linear, sigma, exact=True):
                    continue
                loose, defect = undetermined(self, self.held), self.defect(self.at)
                if not loose and defect <= DEFECT and self._is_negligible(effect):
                    return True, (
                        "No step leads further down, and one without damping would move the observations by no more "
                        f"than 0.001 standard errors, or the solver's error; the path is continuous to {defect:.1g} of "
                        "the sizes of the states."
                    )
                return False, f"Step {len(self.rows) + 1} cannot be taken: {loose}" if loose else ""
            self.accept(found, 0.0, 0.0)
            if (end := self.ended(effect)) is not None:
                return end
        return False, ""

    def ended(self, effect: float) -> tuple[bool, str] | None:
        """Return whether it converged, and why it ended, after an exact step that moved the observations so far."""
        defect = self.defect(self.at)
        if defect > DEFECT:
            return None
        is_small, stands_still = self.corrections[-1] <= self.problem.tol, has_stalled(self.corrections)
        if (is_small or stands_still) and (loose := undetermined(self, self.held)):
            return False, f"The search came to its end, but {loose}"
        if is_small:
            return True, (
                f"The largest correction, {self.corrections[-1]:.2g}, is below tol={self.problem.tol:g}, and the "
                f"path is continuous to {defect:.1g} of the sizes of the states."
            )
        if stands_still and self._is_negligible(effect):
            return True, (
                f"The corrections no longer shrink ({self.corrections[-1]:.2g} at the end, tol="
                f"{self.problem.tol:g}) and move the observations by no more than the solver's error; the path is "
                f"continuous to {defect:.1g} of the sizes of the states. Lower `rtol` and `atol` of the model for "
                "more."
            )
        return None

    def _is_negligible(self, effect: float) -> bool:
        return is_negligible(effect, self.at.r, len(self.problem.names), self.segments.size_of_obs)

    def _is_nearer(self, found: Iterate) -> bool:
        """Tell whether an exact step brought the defects down without paying for it elsewhere."""
        before, after = self.defect(self.at), self.defect(found)
        if after > max(0.5 * before, DEFECT):
            return False
        grown = _square(found.r) - _square(self.at.r)
        allowed = SOLVER_ERROR * self.segments.size_of_obs**2
        return before > DEFECT or grown <= max(0.1 * _square(self.at.r), allowed)

    def _exact(self, at: Iterate) -> tuple[Linear, ShootingStep]:
        """Return the linear problem and the exact step."""
        linear = self.linear(at)
        return linear, self.step(at, linear, None, 0.0)

    def _is_contraction(self, step: ShootingStep, found: Iterate, ahead: ShootingStep) -> bool:
        """Tell whether the exact step from `found` is shorter (the natural monotonicity test; Deuflhard 2004, ch. 4).

        Near the end the defects say little: a step of length d leaves some of d^2, which is more than the last soft
        stage left, while all steps together come to their end.
        """
        units = self.scale(found) / self.scale(self.at)
        return ahead.length(units) <= _CONTRACTION * step.length()

    def search(self) -> tuple[bool, str]:
        """Go through the stages; return whether it converged, and why it ended."""
        sigma, stages = STAGES[0], list(STAGES)
        if len(self.at.r) < _ENOUGH * self.at.X.size:
            stages = [stage for stage in STAGES if stage <= _SHORT]
        while not self.is_used_up and sigma >= SMALLEST:
            sigma = stages.pop(0) if stages else sigma / 10
            self.soften(sigma)
            if not stages and not self.is_used_up:
                converged, why = self.tighten(sigma)
                if why:
                    return converged, why
        failed = f" {self.failures} runs failed; the last one: {self.last_failure}" if self.failures else ""
        if self.is_used_up:
            return False, (
                f"max_iter={self.problem.max_iter} steps are used up; the largest scaled defect of continuity is "
                f"{self.defect(self.at):.2g}. Allow more, begin nearer, or take more segments.{failed}"
            )
        return False, (
            "No path that is continuous comes nearer to the observations than this one, whose largest scaled defect "
            f"is {self.defect(self.at):.2g}: give a nearer first guess, bounds (lower=, upper=), a path to begin with "
            f"(path=), or other segments.{failed}"
        )


def _square(x: Any) -> float:
    flat = np.ravel(x)
    return float(flat @ flat)


def solve(problem: BoundaryProblem) -> Solution:
    """Return what multiple shooting comes to.

    Raises
    ------
    ArgumentError
        The segments cannot be run from the first guess, or leave unknowns undetermined there.
    DataError
        More segments than times with observations.
    """
    segments = Segments(problem)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        search = _begin(problem, segments)
        loose = undetermined(search, search.held)
        if loose:
            raise ArgumentError(f"At the first guess {loose}")
        try:
            converged, message = check_misfit(search, search.search(), lambda finer: _begin(finer, Segments(finer)))
            if converged and problem.gains:
                converged, message = fit_gains(search)
            return _outcome(search, converged, message)
        except KeyboardInterrupt:
            if not outermost():
                raise
        return _outcome(search, False, "Interrupted by Ctrl-C: this is the last iterate.", interrupted=True)


def _begin(problem: BoundaryProblem, segments: Segments) -> _Search:
    """Return the search at the first starts that fit best together."""
    paths: list[Iterate] = []
    failure: SimulationError | None = None
    for X in first_starts(segments, problem.start):
        try:
            paths.append(segments.at(problem.start, X))
        except SimulationError as error:
            failure = error
            continue
        if problem.gain is not None and len(paths) == 1:  # before other runs: an explosion takes long
            check_gain(segments, paths[0])
    if not paths:
        guess = dict(zip(problem.names, map(float, problem.start), strict=True))
        of_gain = "" if problem.gain is None else " Its gain may make the predictor unstable there."
        raise ArgumentError(
            f"The model fails at the first guess {guess}: {failure}{of_gain} Start nearer, or take more segments."
        ) from failure
    search = _Search(problem, segments, _sizes(np.concatenate([paths[0].X, paths[0].ends])), paths[0])
    search.size = search.residual_size()
    search.at = composed(segments, paths, search.state_scale * STAGES[0], search.size)
    search.held = dict.fromkeys(problem.gains, 0.0)  # they do nothing at starts that are the data
    return search


def _sizes(Y: Matrix) -> Vector:
    """Return the sizes of the states: how much they vary along the segments, or how large they are."""
    spread, largest = Y.std(axis=0), np.abs(Y).max(axis=0)
    size = np.maximum(spread, 1e-3 * largest)
    return np.where(size > 0, size, 1.0)


def _short_records(search: _Search) -> list[str]:
    """Return a sentence on experiments with fewer times of observations than segments; none if there are none."""
    segments = search.problem.segments
    short = {r.label: len(r.cuts) - 1 for r in search.segments.records if len(r.cuts) - 1 < segments}
    if not short:
        return []
    each = ", ".join(f"{label!r} into {n}" for label, n in list(short.items())[:6])
    more = f" and {len(short) - 6} more" if len(short) > 6 else ""
    return [f"Cut into fewer than segments={segments}, as each needs observations: {each}{more}."]


def _outcome(search: _Search, converged: bool, message: str, *, interrupted: bool = False) -> Solution:
    p, at = search.problem, search.at
    columns = ["step", *p.names, "defect_scale", "damping", "defect", "correction", "residual"]
    return Solution(
        theta=at.theta,
        modelled=at.mod,
        curvature=curvature(search),
        iterations=pd.DataFrame(search.rows, columns=columns).astype({"step": int}),
        multipliers=pd.Series(search.last, index=list(p.names)) if len(search.last) else pd.Series(dtype=float),
        converged=converged,
        message=" ".join([message, *_short_records(search)]),
        defect=search.defect(at),
        misfit=misfit_of(search.segments, at),
        trajectory=search.segments.trajectory(at),
        evaluations=search.segments.evaluations,
        retries=search.segments.runs.retries,
        failures=search.failures,
        interrupted=interrupted,
        engine=search.segments.engine,
    )
