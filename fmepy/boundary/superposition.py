"""Complementary functions and particular solutions: solve by superposing solutions of the linearised equations.

With z the state extended by parameters that do not change, z_N the solution of the nonlinear equations from the current
start u and J its derivative, the equations linearised along it::

    dz/dt = f(z_N, t) + J(z_N, t) (z - z_N)          (or the difference of z per step)

have solutions that superpose. Their homogeneous solutions from a unit vector in one unknown are the sensitivities S of
the model, so that a solution from a start u' has these values at the observations (nonlinear ones are linearised)::

    y(u') = y_N(u) + S (u' - u)

Both strategies look for the start at which these meet the observations b, in the sense of weighted least squares where
there are more of them than unknowns, and take the next z_N from there::

    complementary    u_1 + c                      y(u_1) + S c             = b       u_1: the first guess, kept
    particular       sum_k a_k start_k            sum_k a_k y(start_k)     = b       sum_k a_k = 1
                     start_0 = u, start_k = u with unknown k times 1.2 (or an additive step where it is 0)

As a_0 = 1 - a_1 - ..., both are ``|y_N(u) + S d - b| -> min`` over steps d from u: Gauss-Newton's of single shooting,
written in two ways. The multipliers follow: ``c = u + d - u_1``, and a_k is d_k in units of the perturbation of u_k.

Bounds hold in the linear problem: where its solution lies outside them, it is solved inside, so that unknowns on a
bound are held and the others found again.

A step after which the equations cannot be run, or the sum of squares has not fallen by a tenth of what was predicted,
is solved for again with damping, which holds it back towards the current start u and turns it to where the residuals
fall (Levenberg and Marquardt)::

    |y(u') - b|^2 + damping |D (u' - u)|^2 -> min        D: the lengths of the columns of S

0.001 first, and more until it helps; the next step begins with less, the better the residual was predicted. Where
residuals stay large, plain steps may lead away from the end itself (Dennis and Schnabel 1983, section 10.2) and damped
ones towards it; the end is where a plain step would be no longer than the tolerance. Growth by less than the solver's
own error, told by a run with smaller tolerances, is none. Steps that move the observations by less than 1e-5 of them,
or by less than 0.001 standard errors, and no longer become shorter end the search.

References
----------
Childs, B., Luckinbill, D., Bryan, J. and Boyd, J. H. (1971). Numerical solution of multipoint boundary value problems
in linear systems. Int. J. Systems Sci. 2, 49-57. Baird, C. A. (1969). Modified quasilinearization technique for the
solution of boundary-value problems for ordinary differential equations. J. Optim. Theory Appl. 3, 227-242. Dennis, J.
E. and Schnabel, R. B. (1983). Numerical Methods for Unconstrained Optimization and Nonlinear Equations. Prentice-Hall.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from fmepy.boundary.problem import BoundaryProblem, Solution
from fmepy.errors import ArgumentError, SimulationError, listed
from fmepy.models.base import tightened
from fmepy.numerics.covariance import SINGULAR
from fmepy.parallel.interruption import check_stop, outermost
from fmepy.types import Matrix, Vector

FACTOR = 1.2
"""By which a start of "particular" has one unknown multiplied."""
_FIRST, _LEAST, _MOST = 1e-3, 1e-9, 1e8
"""Damping: the first that is tried, the least, and the most."""
_ROUNDING, _ROUGHEST = 1e-14, 1e-2
"""The same at least and at most, where it can be estimated."""
_STANDARD_ERRORS = 1e-3
"""Of the observations: a step that moves them by less, or by less than the next, may end the search."""
SOLVER_ERROR = 1e-5
"""Of the observations, relative to their length."""
_PATIENCE = 3
"""Steps in which the correction is to be halved, or it no longer shrinks."""
_LEAST_EFFECT, _SINGULAR = {True: 1e-14, False: 1e-6}, {True: SINGULAR, False: 1e-6}
"""Of the observations, what an unknown moves by its own size, and of the largest singular value, by exact homogeneous
solutions and by differences of runs: what is less may be rounding, or a solver's error."""
_TAKES_PART = 0.01
"""Of a direction that nothing is known of: unknowns with a smaller share of it are not named."""
_SLOW_STEPS, _HARDLY, _MUCH = 8, 1e-3, 0.5
"""So many damped steps by which the residual falls, relatively, by less: there is no way on, where a plain step
foretells that the sum of squares falls by so much. (Else it is a flat valley, and steps come to its end.)"""
_WORTH = 0.1
"""Of what was predicted, how much the sum of squares falls at least; else the step was too long."""
_MOST_KEPT = 2_000_000
"""Numbers: of longer searches the linearised solutions are kept of the last step alone."""


@dataclass(slots=True, eq=False)
class _Iterate:
    """A start, the nonlinear solution from it at the observations, and its homogeneous solutions."""

    theta: Vector
    mod: Vector
    S: Matrix


@dataclass(slots=True, eq=False)
class _LinearStep:
    """The solution of the linear problem: the next start, its multipliers, and the size of the step."""

    new: Vector
    multipliers: Vector
    correction: float
    effect: float  # length of the change of the weighted observations


class _Search:
    """The iteration with its records."""

    def __init__(self, problem: BoundaryProblem) -> None:
        self.problem = problem
        self.bound = problem.objective.bound
        self.obs, self.weights = self.bound.data.obs, self.bound.data.weights
        self.size_of_obs = float(np.linalg.norm(self.obs * self.weights))
        self.noise = 0.0
        self.is_complementary = problem.strategy == "complementary"
        self.at: _Iterate
        self.rows: list[list[float]] = []
        self.corrections: list[float] = []
        self.solutions: list[Matrix] = []
        self.evaluations = self.failures = 0
        self.last_failure = ""

    # --- one step

    def run(self, theta: Vector) -> _Iterate:
        """Return the solutions from a start; SimulationError if they cannot be had."""
        check_stop()
        self.evaluations += 1
        try:
            mod, S = self.bound.predictions.compared_with_slopes(theta)
        except SimulationError as error:
            self.failures += 1
            self.last_failure = str(error)
            raise
        return _Iterate(theta.copy(), mod, S)

    def solver_error(self, at: _Iterate) -> float:
        """Return how far a solver may be off at the observations: ten times what smaller tolerances change there."""
        least, usual, most = self.size_of_obs * np.array([_ROUNDING, SOLVER_ERROR, _ROUGHEST])
        tight = tightened(self.bound)
        if tight is None:  # no solver of ours takes part, or none that chooses its steps by tolerances
            return float(usual if getattr(self.problem.cost.model, "definition", None) is None else least)
        try:
            away = (tight.predictions.values(at.theta) - at.mod) * self.weights
        except SimulationError:
            return float(usual)
        return float(np.clip(10 * np.linalg.norm(away), least, most))

    def residuals(self, at: _Iterate) -> Vector:
        return np.asarray((at.mod - self.obs) * self.weights)

    def step(self, at: _Iterate, damping: float = 0.0) -> _LinearStep:
        """Solve the linear problem."""
        p = self.problem
        A, right = at.S * self.weights[:, None], -self.residuals(at)
        length = np.linalg.norm(A, axis=0)
        unit = A / length
        if damping > 0:
            unit = np.vstack([unit, np.sqrt(damping) * np.eye(len(length))])
            right = np.concatenate([right, np.zeros(len(length))])
        new = at.theta + np.linalg.lstsq(unit, right, rcond=None)[0] / length
        if (new < p.lower).any() or (new > p.upper).any():
            new = self._inside(unit, right, at.theta, length)
        d = new - at.theta
        multipliers = new - p.start if self.is_complementary else d / perturbations(at.theta, p.scale)
        floor = 1e-4 * self.size_of_obs / length  # an unknown that ends at zero has no size of its own
        share = np.abs(d) / np.maximum(np.maximum(np.abs(new), np.abs(at.theta)), np.maximum(floor, 1e-300))
        return _LinearStep(new, multipliers, float(share.max()), float(np.linalg.norm(A @ d)))

    def _inside(self, A: Matrix, right: Vector, start: Vector, length: Vector) -> Vector:
        """Return the start inside the bounds at which the linearised solutions come nearest to the observations."""
        from scipy.optimize import lsq_linear

        p = self.problem
        low, high = (p.lower - start) * length, (p.upper - start) * length
        x = lsq_linear(A, right, (low, high), method="bvls", tol=1e-14, max_iter=100 * len(start)).x
        beside = 1e-12 * np.maximum(np.abs(x), 1.0)
        new = np.clip(start + x / length, p.lower, p.upper)
        return np.where(x <= low + beside, p.lower, np.where(x >= high - beside, p.upper, new))

    def note(self, at: _Iterate, step: _LinearStep, damping: float) -> None:
        """Add the step to the table."""
        q = step.multipliers
        first = [] if self.is_complementary else [1 - float(q.sum())]
        residual = float(np.linalg.norm(self.residuals(at)))
        self.rows.append([len(self.rows) + 1, *at.theta, *first, *q, damping, step.correction, residual])
        if self.solutions and (len(self.solutions) + 1) * at.S.size > _MOST_KEPT:
            self.solutions.clear()
        self.solutions.append(np.column_stack([at.mod, at.S]))

    # --- the search

    def damped_step(self, at: _Iterate, damping: float) -> tuple[_LinearStep, float, _Iterate | None]:
        """Return the first step that helps, its damping, and the iterate there; None where no step helps."""
        most = float(np.linalg.norm(self.residuals(at))) + self.noise
        while True:
            step = self.step(at, damping)
            try:
                found = self.run(step.new)
                if np.linalg.norm(self.residuals(found)) <= most and self.gain(at, step, found) >= _WORTH:
                    return step, damping, found
            except SimulationError:
                pass
            if damping >= _MOST:
                return step, damping, None
            damping = 10 * damping if damping > 0 else _FIRST

    def gain(self, at: _Iterate, step: _LinearStep, found: _Iterate) -> float:
        """Return how much of what was predicted the sum of squares fell; where a solver's error hides it, 1."""
        predicted_fall, before, after = self.predicted_fall(at, step), self.residuals(at), self.residuals(found)
        return 1.0 if predicted_fall is None else float(before @ before - after @ after) / predicted_fall

    def next_damping(self, at: _Iterate, step: _LinearStep, damping: float, found: _Iterate) -> float:
        """Return with how much damping the next step begins: less, the better the residual was predicted.

        Where no solver can tell that, it stays while the steps become shorter.
        """
        if self.predicted_fall(at, step) is None and len(self.corrections) > 1:
            shorter = step.correction / max(self.corrections[-2], 1e-300)
            damping *= 0.1 if shorter < 0.1 else 1.0 if shorter < 1.0 else 10.0
        else:
            gain = self.gain(at, step, found)
            damping *= 1e-3 if gain > 0.9 else 0.1 if gain > 0.5 else 1.0 if gain > 0.25 else 3.0
        return damping if damping >= _LEAST else 0.0

    def predicted_fall(self, at: _Iterate, step: _LinearStep) -> float | None:
        """Return the predicted fall of the sum of squares; None where a solver's error is as large."""
        r = self.residuals(at)
        fall = float(r @ r - np.sum(np.square(r + at.S @ (step.new - at.theta) * self.weights)))
        return fall if fall > 2 * float(np.linalg.norm(r)) * self.noise else None

    def search(self) -> tuple[bool, str]:
        """Iterate; return whether it converged, and why it ended. Where it ended is `at`."""
        p, damping, corrections = self.problem, 0.0, self.corrections
        size = max(self.size_of_obs, self.noise / SOLVER_ERROR)  # as large as a solver with these tolerances makes it
        for _ in range(p.max_iter):
            loose = undetermined(p, self.at.S * self.weights[:, None], self.size_of_obs)
            if loose:
                return False, f"Step {len(self.rows) + 1} cannot be taken: {loose}"
            at, plain = self.at, self.step(self.at)
            step, damping, found = self.damped_step(at, 0.0 if plain.correction <= p.tol else damping)
            self.note(at, step, damping)
            if found is None or self._makes_no_progress(plain):
                return False, self._failure_message()
            self.at = found
            corrections.append(step.correction)
            if damping == 0 and step.correction <= p.tol:
                return True, f"The largest correction, {step.correction:.2g}, is below tol={p.tol:g}."
            is_last = damping == 0 or self.predicted_fall(at, plain) is None
            if (
                is_last
                and is_negligible(plain.effect, self.residuals(at), at.theta.size, size)
                and has_stalled(corrections)
            ):
                return True, (
                    f"The corrections no longer shrink ({step.correction:.2g} at the end, tol={p.tol:g}) and move the "
                    "observations by no more than the solver's error. Lower `rtol` and `atol` of the model for more."
                )
            damping = self.next_damping(at, step, damping, found)
        return False, (
            f"max_iter={p.max_iter} steps are used up; the last correction was {corrections[-1]:.2g}. "
            "Go on from here (p=fit.par), or allow more."
        )

    def _makes_no_progress(self, plain: _LinearStep) -> bool:
        """Tell whether the last steps, all damped, hardly brought it nearer, and a plain one foretells more."""
        last = np.array([row[-3:] for row in self.rows[-_SLOW_STEPS:]])  # damping, correction, residual
        if len(last) < _SLOW_STEPS or (last[:, 0] == 0).any() or plain.effect**2 < _MUCH * last[-1, 2] ** 2:
            return False
        return bool(last[-1, 2] > (1 - _HARDLY) * last[0, 2])

    def _failure_message(self) -> str:
        failed = ""
        if self.failures:
            failed = f" {self.failures} run{'s' * (self.failures > 1)} failed; the last one: {self.last_failure}"
        return (
            "No step from there brings the solution nearer to the observations, however much it is damped: the "
            "linearised equations are all but singular there, or do not hold as far as the observations reach. Give a "
            f"nearer first guess or bounds (lower=, upper=), or cut the record into segments, segments=10.{failed}"
        )

    def outcome(self, converged: bool, message: str, *, interrupted: bool = False) -> Solution:
        p, at = self.problem, self.at
        labels = list(p.names) if self.is_complementary else ["0", *p.names]
        multipliers = [f"{'c' if self.is_complementary else 'a'}.{name}" for name in labels]
        columns = ["step", *p.names, *multipliers, "damping", "correction", "residual"]
        cells = np.reshape(self.rows, (len(self.rows), len(columns)))
        table = pd.DataFrame({"step": cells[:, 0].astype(int), **dict(zip(columns[1:], cells.T[1:], strict=True))})
        last = self.rows[-1][1 + len(p.names) : -3] if self.rows else np.full(len(multipliers), np.nan)
        A = at.S * self.weights[:, None]
        return Solution(
            theta=at.theta,
            modelled=at.mod,
            curvature=2 * A.T @ A,
            iterations=table,
            multipliers=pd.Series(last, index=labels),
            converged=converged,
            message=message,
            linearised=np.reshape(self.solutions, (len(self.solutions), len(self.obs), 1 + len(p.names))),
            evaluations=self.evaluations,
            retries=int(self.bound.retries),
            failures=self.failures,
            interrupted=interrupted,
            engine=self.bound.engine,
        )


def perturbations(theta: Vector, scale: Vector) -> Vector:
    """Return by how much the starts of "particular" differ from theta in one unknown each.

    Examples
    --------
    >>> perturbations(np.array([0.5, -2.0, 0.0]), np.array([0.5, 2.0, 1.0])).round(12)
    array([ 0.1, -0.4,  0.2])
    """
    return (FACTOR - 1) * np.where(theta != 0, theta, scale)


def undetermined(problem: BoundaryProblem, A: Matrix, size_of_obs: float) -> str:
    """Return which unknowns the weighted homogeneous solutions A leave undetermined, as a sentence; "" if none."""
    exact = bool(problem.objective.bound.exact)
    length = np.linalg.norm(A, axis=0)
    has_effect = length * problem.scale > _LEAST_EFFECT[exact] * size_of_obs
    dead = [name for name, has in zip(problem.names, has_effect, strict=True) if not has]
    if dead:
        return no_observation_depends_on(dead)
    _, s, V = np.linalg.svd(A / length, full_matrices=False)
    null = V[s <= _SINGULAR[exact] * s[0]]
    if not len(null):
        return ""
    taking_part = [n for n, share in zip(problem.names, np.abs(null).max(axis=0), strict=True) if share > _TAKES_PART]
    return collinear(taking_part)


def no_observation_depends_on(dead: list[str]) -> str:
    """Return the sentence on unknowns without effect."""
    return (
        f"no observation depends on {listed(dead)}: the homogeneous solution{'s' * (len(dead) > 1)} "
        f"{'are' if len(dead) > 1 else 'is'} zero at all of them. Give another first guess (of what it is "
        "multiplied with, too), observe something that depends on it, or leave it out of `p`."
    )


def collinear(names: list[str]) -> str:
    """Return the sentence on unknowns of which one makes up for the others."""
    return (
        f"the linear system is singular: the homogeneous solutions of {listed(names)} are collinear at the "
        "observations, which say nothing of one of them beside the others. Hold one (leave it out of `p`) or observe "
        "more; collin(sensFun(SimulationCost(model, obs), [...])) shows which sets can be found together."
    )


def is_negligible(effect: float, r: Vector, n_par: int, size_of_obs: float) -> bool:
    """Tell whether a step moves the observations by no more than what their errors or the solver's are worth.

    effect : length of the change of the weighted observations;  r : weighted residuals.
    """
    n = len(r)
    sd = float(np.linalg.norm(r)) / np.sqrt(n - n_par) if n > n_par else 0.0
    return effect <= max(_STANDARD_ERRORS * sd, SOLVER_ERROR * size_of_obs)


def has_stalled(corrections: list[float]) -> bool:
    """Tell whether the correction was not halved in the last few steps."""
    return len(corrections) > _PATIENCE and min(corrections[-_PATIENCE:]) > 0.5 * min(corrections[:-_PATIENCE])


def solve(problem: BoundaryProblem) -> Solution:
    """Return what the iteration comes to.

    Raises
    ------
    ArgumentError
        The equations cannot be run from the first guess, or leave the unknowns undetermined there.
    """
    search = _Search(problem)
    with np.errstate(over="ignore", invalid="ignore"):
        try:
            search.at = search.run(problem.start)
            search.noise = search.solver_error(search.at)
        except SimulationError as error:
            guess = dict(zip(problem.names, map(float, problem.start), strict=True))
            raise ArgumentError(f"The model fails at the first guess {guess}: {error}") from error
        loose = undetermined(problem, search.at.S * search.weights[:, None], search.size_of_obs)
        if loose:
            raise ArgumentError(f"At the first guess {loose}")
        try:
            return search.outcome(*search.search())
        except KeyboardInterrupt:
            if not outermost():
                raise
        return search.outcome(False, "Interrupted by Ctrl-C: this is the last iterate.", interrupted=True)
