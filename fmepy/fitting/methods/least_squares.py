"""Marq: Levenberg-Marquardt on the residuals, MINPACK's without bounds and a trust-region reflective one with them.

Without finite bounds: MINPACK's ``lmder`` (Moré 1978) through `scipy.optimize.leastsq`, with its own scaling by the
columns of J. With bounds, or with fewer residuals than parameters: `scipy.optimize.least_squares`, method "trf"
(Branch, Coleman and Li 1999), scaled likewise. That method stays strictly inside the box, so an optimum *on* a bound is
finished here: parameters that lean on a bound are put on it, the others are fitted again, and the result stands if the
cost is no higher and the gradient pushes outwards. That method also takes a sparse J (many entities with parameters of
their own), whose steps are found by LSMR (Fong and Saunders 2011).

The Jacobian is taken at accepted points only. Beside ftol and ptol, the search ends where Gauss-Newton's next step
would be shorter than 2e-5 standard errors; its length is::

    offset = sqrt( g' (J'J)^-1 g ) / s,     g = J'r of the free parameters,  s^2 = ssr / (n - p)

(the relative offset of Bates and Watts 1981, up to a constant). If ftol or ptol ended a search where it is above 5e-5,
the search goes on with a smaller ftol, at most three times, and as long as the cost falls and each such round halves
the offset at least: what does not is the error of a solver, or of derivatives.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fmepy.errors import SimulationError
from fmepy.fitting.problem import LimitReachedError, Method, Outcome, Problem, limit_reached
from fmepy.fitting.response import silent
from fmepy.numerics.differences import replaced
from fmepy.numerics.sparse import normal_matrix
from fmepy.types import BoolVector, Vector

_ARRIVED = 2e-5  # standard errors: nothing further off than this is looked for
_SETTLED = 1e-4  # relative fall of the cost below which the offset is looked at
_ENOUGH = 5e-5  # standard errors; below the 1e-4 at which fits count as equal
_FAILED = 1e100  # a residual where the cost fails: far above any other, and its square is still finite


class _ArrivedError(Exception):
    """There is no step, or the next one would be too short to matter."""


class _Walk:
    """Residuals and Jacobian of the parameters that move, the others held; counts iterations, keeps the best."""

    def __init__(self, problem: Problem, theta: Vector, moving: BoolVector, maxiter: float) -> None:
        self.problem, self.whole, self.moving, self.left = problem, theta.copy(), moving, maxiter
        self.all_move = bool(moving.all())
        self.n_failed = 0
        self.best = theta.copy()
        self.best_value = np.inf
        self.n_res = problem.residuals(theta).size

    def at(self, q: Vector) -> Vector:
        return self.problem.inside(q if self.all_move else replaced(self.whole, self.moving, q))

    def residuals(self, q: Vector) -> Vector:
        theta = self.at(q)
        try:
            r = self.problem.residuals(theta)
        except SimulationError:
            return np.full(self.n_res, _FAILED)
        value = float(r.dot(r))
        if value < self.best_value:
            self.best, self.best_value = theta, value
            if value < self.problem.best[0]:
                self.problem.best = (value, theta)
        return r

    def infinite_residuals(self, q: Vector) -> Vector:
        """Return residuals as trf wants them where the cost fails: infinite, which shrinks its region."""
        r = self.residuals(q)
        return np.full(self.n_res, np.inf) if r[0] == _FAILED else r

    def jacobian(self, q: Vector, *_: Any) -> Any:
        theta, problem = self.at(q), self.problem
        r = problem.residuals(theta)
        if theta.tobytes() != problem.noted:  # scipy asks twice at a start
            if self.left <= 0:
                raise LimitReachedError
            self.left -= 1
            before, now = problem.trace[-1:], float(r.dot(r))
            problem.note(theta, now)
            if before and now > before[0] * (1 - _SETTLED) and _offset(problem, theta, self.moving) < _ARRIVED:
                raise _ArrivedError("The next Gauss-Newton step is below 2e-5 standard errors.")
        J = problem.jacobian(theta)
        J = J if self.all_move else J[:, self.moving]
        if not any((J.T @ r).tolist()):  # a plateau, or residuals of nothing: trf would go on forever
            raise _ArrivedError("The gradient is zero.")
        return J


def levenberg_marquardt(problem: Problem, control: Mapping[str, Any]) -> Outcome:
    """Fit residuals by Levenberg and Marquardt's method; see the module's text."""
    theta = problem.start.copy()
    if np.isfinite(problem.lower).all() and np.isfinite(problem.upper).all():
        theta = problem.inside(theta)
    left = float(control["maxiter"])
    moving = problem.moving
    theta, converged, message, engine, left = _rounds(problem, theta, moving, control, left)
    if converged and _on_plateau(problem, theta):
        shorter = {**control, "factor": 1e-3 * float(control["factor"])}
        other, arrived, told, engine, left = _rounds(problem, problem.start, moving, shorter, left)
        if problem.value(other) < problem.value(theta):
            theta, converged, message = other, arrived, told
    if problem.is_bounded and converged:
        theta, left = _finish_on_bounds(problem, theta, control, left)
    return Outcome(theta, converged, message, len(problem.trace), engine)


def _on_plateau(problem: Problem, theta: Vector) -> bool:
    """Tell whether the search has lost a parameter, as it does where its first steps were too long."""
    try:
        J = problem.jacobian(theta)
    except SimulationError:
        return False
    return bool(silent(problem, theta, 2 * normal_matrix(J)).dead)


def _rounds(
    problem: Problem, theta: Vector, moving: BoolVector, control: Mapping[str, Any], left: float
) -> tuple[Vector, bool, str, str, float]:
    """Search, and search again from there while the offset says that the stop came early."""
    ftol, value, offset = float(control["ftol"]), np.inf, np.inf
    converged, message, engine = False, "", ""
    for _ in range(4):
        theta, converged, message, engine, left = _search(problem, theta, moving, control, ftol, left)
        now = problem.value(theta)
        if not converged or not value - now > 1e-12 * now:
            break
        value, ftol = now, ftol * 1e-2
        try:
            before, offset = offset, _offset(problem, theta, moving)
        except SimulationError:
            break
        if offset < _ENOUGH or offset > 0.5 * before:
            break
    return theta, converged, message, engine, left


def _offset(problem: Problem, theta: Vector, moving: BoolVector) -> float:
    """Return the length of the next step in standard errors, of what moves and is not pushed through a bound."""
    return problem.offset(theta, moving & ~_pressed(problem, theta))


def _pressed(problem: Problem, theta: Vector) -> BoolVector:
    """Tell which parameters are on a bound, or nearly, and would be pushed through it."""
    nothing = np.zeros(theta.size, dtype=bool)
    if not problem.is_bounded:
        return nothing
    try:
        g = problem.gradient(theta)
    except SimulationError:
        return nothing
    near = 1e-4 * np.minimum(np.maximum(np.abs(theta), problem.scale), problem.upper - problem.lower)
    return np.asarray(((theta - problem.lower <= near) & (g > 0)) | ((problem.upper - theta <= near) & (g < 0)))


def _search(
    problem: Problem, theta: Vector, moving: BoolVector, control: Mapping[str, Any], ftol: float, left: float
) -> tuple[Vector, bool, str, str, float]:
    walk = _Walk(problem, theta, moving, left)
    lower, upper = problem.lower[moving], problem.upper[moving]
    bounded = bool(np.isfinite(lower).any() or np.isfinite(upper).any())
    reflective = bounded or walk.n_res < moving.sum() or problem.objective.is_sparse
    engine = "scipy least_squares (trf)" if reflective else "MINPACK lmder"
    try:
        converged, message = (
            _reflective(walk, theta[moving], lower, upper, control, ftol)
            if reflective
            else _minpack(walk, theta[moving], control, ftol)
        )
    except _ArrivedError as arrived:
        converged, message = True, str(arrived)
    except LimitReachedError:
        converged, message = False, limit_reached("maxiter", control["maxiter"])
    except SimulationError as error:
        converged, message = False, f"Stopped where no Jacobian could be taken: {error}"
    return walk.best, converged, message, engine, walk.left


_MINPACK = {
    1: "The cost falls by less than ftol.",
    2: "The parameters change by less than ptol.",
    3: "The cost falls by less than ftol and the parameters change by less than ptol.",
    4: "The residuals are orthogonal to the columns of the Jacobian.",
    6: "The cost cannot be lowered further.",
    7: "The parameters cannot be improved further.",
    8: "The residuals are orthogonal to the columns of the Jacobian to machine precision.",
}


def _minpack(walk: _Walk, start: Vector, control: Mapping[str, Any], ftol: float) -> tuple[bool, str]:
    from scipy.optimize import leastsq

    *_, info = leastsq(
        walk.residuals,
        start,
        Dfun=walk.jacobian,
        full_output=True,
        ftol=ftol,
        xtol=float(control["ptol"]),
        gtol=float(control["gtol"]),
        factor=float(control["factor"]),
        maxfev=_most_evaluations(control),
    )
    if info == 5:
        return False, limit_reached("maxfev", _most_evaluations(control), "function evaluations")
    return info in (1, 2, 3, 4, 6, 7, 8), _MINPACK.get(info, f"MINPACK stopped with code {info}.")


def _most_evaluations(control: Mapping[str, Any]) -> int:
    """Return the limit of function evaluations in one search: as given, else one that `maxiter` is reached before."""
    return int(control["maxfev"] or 100 * control["maxiter"] + 100)


_TRF = {1: "The gradient is below gtol.", 2: _MINPACK[1], 3: _MINPACK[2], 4: _MINPACK[3]}


def _reflective(
    walk: _Walk, start: Vector, lower: Vector, upper: Vector, control: Mapping[str, Any], ftol: float
) -> tuple[bool, str]:
    from scipy.optimize import least_squares

    gtol = float(control["gtol"])
    found = least_squares(
        walk.infinite_residuals,
        start,
        jac=walk.jacobian,
        bounds=(lower, upper),
        method="trf",
        x_scale="jac",
        ftol=max(ftol, 2.3e-16),  # the smallest that scipy accepts
        xtol=max(float(control["ptol"]), 2.3e-16),
        gtol=gtol if gtol > 0 else None,
        max_nfev=_most_evaluations(control),
    )
    if found.status == 0:
        return False, limit_reached("maxfev", _most_evaluations(control), "function evaluations")
    return found.status > 0, _TRF.get(int(found.status), str(found.message))


def _finish_on_bounds(problem: Problem, theta: Vector, control: Mapping[str, Any], left: float) -> tuple[Vector, float]:
    """Set the parameters that press against a bound onto it and fit the others again."""
    held = ~problem.moving
    for _ in range(theta.size):
        leaning = _pressed(problem, theta) & ~held
        if not leaning.any():
            break
        trial = theta.copy()
        to_lower = leaning & (theta - problem.lower <= problem.upper - theta)
        trial[to_lower] = problem.lower[to_lower]
        trial[leaning & ~to_lower] = problem.upper[leaning & ~to_lower]
        now = held | leaning
        if not np.isfinite(problem.cost(trial)):
            break
        if not now.all():
            trial, _, _, _, left = _rounds(problem, trial, ~now, control, left)
        pushed_out = _pressed(problem, trial)[now & problem.moving].all()
        if not pushed_out or problem.value(trial) > problem.value(theta) * (1 + 1e-10):
            break
        theta, held = trial, now
    return theta, left


MARQ = Method(
    levenberg_marquardt,
    {"maxiter": 2000, "ftol": 1e-8, "ptol": 1e-9, "gtol": 0.0, "factor": 100.0, "maxfev": None},
    {"maxit": "maxiter", "xtol": "ptol", "reltol": "ftol"},
    least_squares=True,
)
