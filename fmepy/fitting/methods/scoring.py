"""scoring: Fisher's method of scoring for costs that know their score and expected information.

With the score u = d log L / d theta and the expected information I, both with the prior's part, a step solves::

    (I + lam diag I) d = u

and is taken if -2 log L falls; else lam grows. It ends when a full step promises a gain of -2 log L below `reltol`::

    u' I^-1 u < reltol

Parameters that scale noise (sds) are moved by their logarithms, at most by a factor of ten a step. An sd may have its
best value at zero, where its logarithm is endless: one that has fallen to a millionth of where it was is set to zero,
if -2 log L does not rise, and held there.

The likelihood of a filter has local maxima far from the true one. Where the cost has process noise, a search therefore
begins with all process noise times `inflate`: the filter follows the data, and the likelihood is smooth; from where
that comes to it goes on as the cost is (Peterson 1976). A second search of the same kind, from a start nearby
(log-normal, a tenth), has to come to the same log L within `agree`; if it does not, further ones follow until two of
the best agree, at most `tries` in all. Where all of them end below a place that was seen on the way, such as the start
itself, one more begins there.

A likelihood with kinks (Laplace's) may be best at one, where the score is not zero: a simplex goes on from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy  # its rooms are loaded where they are asked for

from fmepy.errors import SimulationError
from fmepy.fitting.methods.scipy_minimize import NELDER_MEAD
from fmepy.fitting.problem import Method, Outcome, Problem, limit_reached
from fmepy.fitting.response import changes
from fmepy.numerics.differences import replaced
from fmepy.numerics.sparse import MANY, sparse_factor
from fmepy.types import BoolVector, Matrix, Vector

_COARSE = {"maxiter": 25, "reltol": 0.1}
_LARGEST_STEP = np.log(10.0)
_VANISHED = 1e-6
_ROUGH_UNTIL = 1e-2  # promise below which derivatives are to be accurate
_SPREAD = 0.1
_MOST_PAIRS = 30
_ROUNDING, _SEEN = 1e-13, 1e-10  # of -2 log L: its own, and a change of it
_FAR = 1e6  # sizes of a parameter
_SINGULAR = 1e-5  # a diagonal of the factor of an information with ones on its diagonal
_MOST_OVER_KINKS = 20  # parameters that a simplex moves
_FILLED = 0.2  # a matrix with fewer entries than this part of all is factored as a sparse one


@dataclass(frozen=True, slots=True, eq=False)
class _Climb:
    """The end of a search."""

    theta: Vector
    value: float
    converged: bool
    message: str
    iterations: int
    is_whole: bool = True  # it did not stop where another one is


def scoring(problem: Problem, control: Mapping[str, Any]) -> Outcome:
    """Minimise -2 log L by Fisher scoring, from several sides where there is process noise."""
    first = _search(problem, problem.start, control)
    if first is None:
        best = _climb(problem, problem.start, control)
        if problem.objective.has_kinks and np.isfinite(best.value) and problem.moving.sum() <= _MOST_OVER_KINKS:
            return _over_kinks(problem, best)
        return Outcome(best.theta, best.converged, best.message, best.iterations, "fmepy scoring")
    climbs, agree = [first], 2 * float(control["agree"])
    while len(climbs) < int(control["tries"]) and not _agreed(climbs, agree):
        best = min(climbs, key=lambda c: c.value)
        further = _search(problem, _nearby(problem), control, enough=best.value + agree)
        assert further is not None, "there is process noise to inflate, as before"
        climbs.append(further)
    if problem.best[0] < min(c.value for c in climbs):  # the searches left a better place, such as the start itself
        climbs.append(_climb(problem, problem.best[1], control))
    best = min(climbs, key=lambda c: c.value)
    if not best.is_whole:
        whole = _climb(problem, best.theta, control)
        climbs[climbs.index(best)] = best = replace(whole, iterations=best.iterations + whole.iterations)
    iterations = sum(c.iterations for c in climbs)
    return Outcome(best.theta, best.converged, f"{best.message} {_told(climbs, agree)}", iterations, "fmepy scoring")


def _over_kinks(problem: Problem, best: _Climb) -> Outcome:
    """Go on from where the score leads no further with a simplex, which needs no slope."""
    again = problem.restarted_at(best.theta)
    found = NELDER_MEAD.run(again, NELDER_MEAD.control)
    problem.best, problem.trace = again.best, again.trace
    message = f"The likelihood has kinks, so that a simplex went on from where its score led. {found.message}"
    engine = f"fmepy scoring, then {found.engine}"
    return replace(found, message=message, iterations=best.iterations + found.iterations, engine=engine)


# --- several searches


def _search(problem: Problem, start: Vector, control: Mapping[str, Any], enough: float = -np.inf) -> _Climb | None:
    """Return the end of a search with inflated, then with the proper noise; None if there is no noise to inflate.

    enough : float
        A value at which the search may stop: it has come to where another one did.
    """
    factor = float(control["inflate"])
    objective = problem.objective.inflated(factor) if factor not in (0.0, 1.0) else None
    if objective is None:
        return None
    coarse = Problem(objective, start, problem.lower, problem.upper, problem.prior, problem.rng)
    eased = _climb(coarse, start, _COARSE)
    problem.objective.evaluations += objective.evaluations
    # what was found of the noise itself was found of the inflated one
    theta = np.where(problem.noise_scales, start, eased.theta)
    climb = _climb(problem, theta, control, enough)
    if not np.isfinite(climb.value):
        climb = _climb(problem, start, control, enough)
    return replace(climb, iterations=climb.iterations + eased.iterations)


def _nearby(problem: Problem) -> Vector:
    """Return a start around the first one where the cost is finite."""
    for _ in range(20):
        theta = problem.inside(problem.start * np.exp(_SPREAD * problem.rng.standard_normal(problem.start.size)))
        if np.isfinite(problem.cost(theta)):
            return theta
    return problem.start


def _agreed(climbs: list[_Climb], agree: float) -> bool:
    """Tell whether the two best reached the same value."""
    best = sorted(c.value for c in climbs)[:2]
    return len(best) == 2 and best[1] - best[0] <= agree


def _told(climbs: list[_Climb], agree: float) -> str:
    values = sorted(c.value for c in climbs)
    near = sum(v - values[0] <= agree for v in values)
    if near == len(values):
        return f"All {len(values)} searches came to this log L." if near > 1 else ""
    worst = 0.5 * (values[-1] - values[0])
    sentence = f"{near} of {len(values)} searches came to this log L, the worst ended {worst:.3g} below it."
    return sentence if near > 1 else f"{sentence} No other confirms it: try starts=10, or another start."


# --- one search


def _climb(problem: Problem, start: Vector, control: Mapping[str, Any], enough: float = -np.inf) -> _Climb:
    theta, value = problem.inside(start), problem.cost(problem.inside(start))
    logs = problem.noise_scales & (theta > 0)
    floor = np.where(logs, _VANISHED * np.abs(theta), 0.0)
    damping, message, converged, iteration = 1e-3, limit_reached("maxiter", control["maxiter"]), False, 0
    if not np.isfinite(value):
        return _Climb(theta, value, False, "The cost is not finite where the search began.", 0)
    rough, is_whole, secants = True, True, _Secants()
    for iteration in range(1, int(control["maxiter"]) + 1):  # noqa: B007    # the count is told
        try:
            u, information = _score(problem, theta, rough)
        except SimulationError as error:
            message = f"Stopped where no score could be taken: {error}"
            break
        ground = np.where(logs & (theta > 0), theta, 1.0)  # d theta / d log theta
        u, information = u * ground, information * np.outer(ground, ground)
        free = ~(((theta <= problem.lower) & (u <= 0)) | ((theta >= problem.upper) & (u >= 0)))
        free &= ~(problem.noise_scales & (theta == 0))
        free &= _responding(problem, theta, value, information, free & ~logs)
        if not rough:
            secants.look(np.where(logs & (theta > 0), np.log(np.where(logs & (theta > 0), theta, 1.0)), theta), u, free)
            information = secants.corrected(information)
        normal = _Normal(information[np.ix_(free, free)], u[free])
        if value <= enough and normal.promise < _COARSE["reltol"]:
            converged, is_whole, message = True, False, "It came to where another search did."
            break
        if rough and normal.promise < max(_ROUGH_UNTIL, float(control["reltol"])):
            rough = False
            continue
        if normal.promise < float(control["reltol"]):
            converged, message = True, "The gradient predicts no further improvement."
            break
        new, lower, damping = _step(problem, theta, value, normal, free, logs, damping)
        if new is None and rough:
            rough = False
            continue
        if new is None:
            converged = normal.promise < 1e-4
            message = "No shorter step lowers -2 log L" + (
                "." if converged else f", though the gradient predicts {normal.promise:.3g} more."
            )
            break
        theta, value = _vanished(problem, new, lower, logs, floor)
        problem.note(theta, value)
    return _Climb(theta, value, converged, message, iteration, is_whole)


class _Secants:
    """The curvature observed along the last steps, on top of the expected information (Broyden, Fletcher, ...).

    Where the data say little, the two may differ by a factor of some hundreds in a direction: steps by the expected one
    would then crawl, and promise far less than there is to gain.
    """

    def __init__(self) -> None:
        self._pairs: list[tuple[Vector, Vector]] = []
        self._last: tuple[Vector, Vector, BoolVector] | None = None

    def look(self, place: Vector, u: Vector, free: BoolVector) -> None:
        """Note where the search is, in the coordinates in which it steps, and the score there."""
        if self._last is not None:
            before, score, was_free = self._last
            step, fall = place - before, score - u
            if not np.array_equal(free, was_free) or step[~free].any():
                self._pairs.clear()
            elif step @ fall > 1e-10 * np.linalg.norm(step) * np.linalg.norm(fall):
                self._pairs = [*self._pairs[1 - _MOST_PAIRS :], (step, np.where(free, fall, 0.0))]
        self._last = (place, u, free)

    def corrected(self, information: Matrix) -> Matrix:
        """Return the information with the curvature along the last steps in it."""
        for step, fall in self._pairs:
            along = information @ step
            if (curvature := float(step @ along)) > 0:
                information = (
                    information - np.outer(along, along) / curvature + np.outer(fall, fall) / float(step @ fall)
                )
        return information


def _score(problem: Problem, theta: Vector, rough: bool) -> tuple[Vector, Matrix]:
    u, information = problem.objective.score(theta, rough), problem.information(theta, rough)
    if problem.prior is not None:
        u = u - 0.5 * problem.slope_of_prior(theta)
    if problem.further is not None:
        J = problem.further.jacobian(theta)
        u, information = u - J.T @ problem.further.residuals(theta), information + J.T @ J
    return u, information


def _responding(problem: Problem, theta: Vector, value: float, information: Matrix, asked: BoolVector) -> BoolVector:
    """Tell which parameters the data depend on: not an initial value, where the start is diffuse.

    Score and information of the others are rounding, by which a step has no length: they are asked at a distance.
    """
    size = problem.sizes(theta)
    heard = ~asked | (np.diag(information) * size**2 > _ROUNDING * abs(value))
    best = problem.best
    for j in np.flatnonzero(~heard):
        heard[j] = np.any(np.abs(changes(problem, theta, int(j), _FAR * size[j])) > _SEEN * abs(value))
    problem.best = best  # not of places that were only asked
    return heard


class _Normal:
    """The equations of a step, (I + lam diag I) d = u, of the free parameters.

    The information is brought to ones on its diagonal. Of few parameters it is taken apart in eigenvectors, of which
    those without information promise nothing; of many it is factored anew for every lam.
    """

    def __init__(self, information: Matrix, u: Vector) -> None:
        self._size = 1 / np.sqrt(np.maximum(np.diag(information), 1e-300))
        self._scaled, self._u = information * np.outer(self._size, self._size), u * self._size
        whole = self._factored(0.0) if len(u) >= MANY else None
        if whole is None:
            self._values, self._vectors = np.linalg.eigh(self._scaled)
            self._along = self._vectors.T @ self._u
        self._is_factored = whole is not None
        self.promise = self._promise() if whole is None else float(self._u @ whole)

    def step(self, damping: float) -> Vector:
        """Return d."""
        found = self._factored(damping) if self._is_factored else None
        if found is None:
            found = self._vectors @ (self._along / (np.maximum(self._values, 0.0) + damping))
        return np.asarray(self._size * found)

    def _promise(self) -> float:
        """Return u'I^-1 u, the predicted improvement; directions without information predict none."""
        if not len(self._u):
            return 0.0
        usable = self._values > 1e-12 * self._values[-1]
        return float(np.sum(self._along[usable] ** 2 / self._values[usable]))

    def _factored(self, damping: float) -> Vector | None:
        """Return the solution by Cholesky's factor, None if there is none or the information is all but singular."""
        A = self._scaled.copy()
        A[np.diag_indices_from(A)] += damping
        if np.count_nonzero(A) < _FILLED * A.size:
            sparse = sparse_factor(A)
            singular = sparse is None or sparse.U.diagonal().min() < _SINGULAR**2
            return None if singular else np.asarray(sparse.solve(self._u))
        try:
            L = np.linalg.cholesky(A)
        except np.linalg.LinAlgError:
            return None
        if L.diagonal().min() < _SINGULAR:
            return None
        half = scipy.linalg.solve_triangular(L, self._u, lower=True, check_finite=False)
        return np.asarray(scipy.linalg.solve_triangular(L, half, lower=True, trans="T", check_finite=False))


def _step(
    problem: Problem, theta: Vector, value: float, normal: _Normal, free: BoolVector, logs: BoolVector, damping: float,
) -> tuple[Vector | None, float, float]:  # fmt: skip
    """Return a better theta (None if there is none), its value, and the damping for the next step."""
    for _ in range(40):
        d = np.zeros(theta.size)
        d[free] = normal.step(damping)
        moved = np.where(
            logs & (theta > 0),
            theta * np.exp(np.clip(d, -_LARGEST_STEP, _LARGEST_STEP)),
            theta + np.where(logs, 0.0, d),
        )
        trial = problem.inside(moved)
        if np.array_equal(trial, theta):
            return None, value, damping
        lower = problem.cost(trial)
        if lower < value:
            return trial, lower, damping / 10 if damping > 1e-12 else 1e-12
        damping = max(4 * damping, 1e-6)
    return None, value, damping


def _vanished(problem: Problem, theta: Vector, value: float, logs: BoolVector, floor: Vector) -> tuple[Vector, float]:
    """Return theta with the sds that have almost vanished set to zero, where that does not raise -2 log L."""
    for j in np.flatnonzero(logs & (theta > 0) & (theta < floor)):
        if problem.lower[j] > 0:
            continue
        trial = replaced(theta, j, 0.0)
        at_zero = problem.cost(trial)
        if at_zero <= value + 1e-6:
            theta, value = trial, at_zero
    return theta, value


SCORING = Method(
    scoring,
    {"maxiter": 500, "reltol": 1e-10, "inflate": 10.0, "agree": 0.05, "tries": 6},
    {"maxit": "maxiter"},
    needs_score=True,
)
