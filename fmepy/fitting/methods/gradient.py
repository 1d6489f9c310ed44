"""Port, BFGS, CG, L-BFGS-B and Newton: methods of the scalar cost F and its gradient, all from scipy.

=========  ==========================================  ===================================================
method     without finite bounds                       with bounds (exact, native)
=========  ==========================================  ===================================================
Port       SLSQP (dense quasi-Newton)                  SLSQP
BFGS       BFGS                                        L-BFGS-B
CG         CG (Polak and Ribière)                      TNC (truncated Newton by conjugate gradients)
L-BFGS-B   L-BFGS-B                                    L-BFGS-B
Newton     trust-exact (trust-region Newton)           TNC
=========  ==========================================  ===================================================

They see scaled parameters z and a scaled cost, so that their absolute tolerances mean the same everywhere::

    z = theta / size,    f(z) = F(theta) / |F(start)|

For residuals the gradient is 2 J'r and Newton's Hessian 2 J'J. A run that ends is started once more from where it
stands, with sizes and cost scaled anew, until F falls by less than `reltol`, relative: that undoes a poor scaling at
the start and line searches that gave up. A failed run counts as a very large cost.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fmepy.errors import SimulationError
from fmepy.fitting.problem import OPTIM, Method, Outcome, Problem, limit_reached
from fmepy.numerics.differences import magnitudes
from fmepy.types import Matrix, Vector

_FRESH_STARTS = 100  # each lowers the cost by more than `reltol`
_WALL = 1e10  # scaled cost of a failed run: above anything of interest, small enough for cubic interpolation


class LimitReachedError(Exception):
    """The number of iterations is used up."""


class ScaledCost:
    """F and its derivatives as functions of z = theta / size, the cost in units of that at the start.

    z holds the parameters that have room to move; the others stay.
    """

    def __init__(self, problem: Problem, theta: Vector, left: float = np.inf) -> None:
        self.problem, self.left, self.moving, self.whole = problem, left, problem.moving, theta.copy()
        self.size = magnitudes(theta, problem.lower, problem.upper)[self.moving]
        self.lower, self.upper = problem.lower[self.moving] / self.size, problem.upper[self.moving] / self.size
        self.z0: Vector = theta[self.moving] / self.size
        start = problem.cost(theta)
        self.unit = abs(start) if start != 0 else 1.0

    def theta(self, z: Vector) -> Vector:
        """Return the parameters themselves."""
        whole = self.whole.copy()
        whole[self.moving] = np.asarray(z, dtype=float) * self.size
        return self.problem.inside(whole)

    def value(self, z: Vector) -> float:
        """Return f(z), a wall where the cost fails."""
        value = self.problem.cost(self.theta(z)) / self.unit
        return value if value < _WALL else _WALL

    def gradient(self, z: Vector) -> Vector:
        """Return df/dz, zero where the cost fails."""
        theta = self.theta(z)
        if not np.isfinite(self.problem.cost(theta)):
            return np.zeros(self.size.size)
        try:
            return np.asarray(self.problem.gradient(theta)[self.moving] * self.size / self.unit)
        except SimulationError:
            return np.zeros(self.size.size)

    def hessian(self, z: Vector) -> Matrix:
        """Return the second derivatives of f, zero where the cost fails."""
        try:
            H = self.problem.hessian(self.theta(z))[np.ix_(self.moving, self.moving)]
        except SimulationError:
            return np.zeros((self.size.size, self.size.size))
        H = H * np.outer(self.size, self.size) / self.unit
        return np.where(np.isfinite(H), H, 0.0)

    def note(self, z: Vector, *_: Any) -> None:
        """Count an iteration (scipy's callback)."""
        theta = self.theta(z)
        self.problem.note(theta, self.problem.cost(theta))
        self.left -= 1
        if self.left <= 0:
            raise LimitReachedError


def restarted(problem: Problem, control: Mapping[str, Any], engine: str, run: Callable[[ScaledCost], Any]) -> Outcome:
    """Run a scipy minimiser again and again from the best point until the cost falls by less than `reltol`.

    Parameters
    ----------
    run : callable
        ``run(scaled) -> OptimizeResult``.
    """
    theta, left = problem.start.copy(), float(control["maxiter"])
    value = problem.cost(theta)
    reltol = max(float(control["reltol"]), problem.noise)  # changes below the noise level are not progress
    message, converged = f"The cost still falls after {_FRESH_STARTS} fresh starts of the search.", False
    for _ in range(_FRESH_STARTS):
        scaled = ScaledCost(problem, theta, left)
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")  # line searches tell their trouble in words that no user can act on
                run(scaled)
        except LimitReachedError:
            message, theta = limit_reached("maxiter", control["maxiter"]), problem.put_on_bounds(problem.best[1])
            break
        left = scaled.left
        now, theta = problem.best[0], problem.put_on_bounds(problem.best[1])
        if not value - now > reltol * max(abs(now), 1e-3 * abs(value - now)):
            converged = True
            message = (
                f"The cost falls by less than reltol = {reltol:g} (relative), also from a fresh start of the search."
            )
            break
        if now <= _nothing(problem):
            converged, message = True, f"The cost is zero{' but for rounding' if now else ''}."
            break
        value = now
    return Outcome(theta, converged, message, len(problem.trace), engine)


def _nothing(problem: Problem) -> float:
    """Return the sum of squares of residuals that are ten digits below the data, below which no search leads on."""
    data = problem.objective.data
    if problem.objective.is_scalar or data.observed is None:
        return 0.0
    return 1e-20 * float(np.sum(np.square(data.observed.values * data.weights * data.scales[data.groups])))


def _minimize(scaled: ScaledCost, method: str, options: Mapping[str, Any], **more: Any) -> Any:
    from scipy.optimize import Bounds, minimize

    bounded = scaled.problem.is_bounded and method in ("L-BFGS-B", "TNC", "SLSQP")
    return minimize(
        scaled.value,
        scaled.z0,
        jac=scaled.gradient,
        method=method,
        bounds=Bounds(scaled.lower, scaled.upper) if bounded else None,
        callback=scaled.note,
        options=dict(options),
        **more,
    )


def _source_of_gradient(problem: Problem) -> str:
    if problem.objective.has_score:
        return "gradient from the score"
    if problem.objective.has_gradient:
        return "gradient from jac"
    return "gradient 2 J'r" if not problem.objective.is_scalar else "gradient by differences"


def port(problem: Problem, control: Mapping[str, Any]) -> Outcome:
    """Minimise by a quasi-Newton method with bounds."""
    options = {"maxiter": 1000, "ftol": float(control["reltol"]) * 1e-2}
    engine = f"scipy SLSQP, {_source_of_gradient(problem)}"
    return restarted(problem, control, engine, lambda s: _minimize(s, "SLSQP", options))


def lbfgsb(problem: Problem, control: Mapping[str, Any]) -> Outcome:
    """Minimise by limited-memory BFGS with bounds."""
    options = {
        "maxiter": 15000,
        "maxfun": 15000,
        "ftol": float(control["factr"]) * np.finfo(float).eps,
        "gtol": float(control["pgtol"]),
        "maxcor": int(control["lmm"]),
    }
    engine = f"scipy L-BFGS-B, {_source_of_gradient(problem)}"
    return restarted(problem, control, engine, lambda s: _minimize(s, "L-BFGS-B", options))


def bfgs(problem: Problem, control: Mapping[str, Any]) -> Outcome:
    """Minimise by BFGS; with bounds by its limited-memory form, which has them."""
    if problem.is_bounded:
        return lbfgsb(problem, {**control, "factr": 10.0, "pgtol": 1e-10, "lmm": max(10, problem.start.size)})
    engine = f"scipy BFGS, {_source_of_gradient(problem)}"
    return restarted(problem, control, engine, lambda s: _minimize(s, "BFGS", {"gtol": 1e-9, "maxiter": 15000}))


def conjugate_gradients(problem: Problem, control: Mapping[str, Any]) -> Outcome:
    """Minimise by conjugate gradients; with bounds by the truncated Newton method built on them."""
    if problem.is_bounded:
        return _truncated_newton(problem, control)
    engine = f"scipy CG, {_source_of_gradient(problem)}"
    return restarted(problem, control, engine, lambda s: _minimize(s, "CG", {"gtol": 1e-9, "maxiter": 15000}))


def _truncated_newton(problem: Problem, control: Mapping[str, Any]) -> Outcome:
    options = {"maxfun": 15000, "ftol": 1e-14, "xtol": 1e-12, "gtol": 1e-10}
    engine = f"scipy TNC, {_source_of_gradient(problem)}"
    return restarted(problem, control, engine, lambda s: _minimize(s, "TNC", options))


def newton(problem: Problem, control: Mapping[str, Any]) -> Outcome:
    """Minimise by a trust-region Newton method; with bounds by a truncated Newton method, which has them."""
    if problem.is_bounded:
        return _truncated_newton(problem, control)
    curvature = "Hessian 2 J'J" if problem.is_least_squares else "Hessian by differences"
    engine = f"scipy trust-exact, {_source_of_gradient(problem)}, {curvature}"
    return restarted(
        problem,
        control,
        engine,
        lambda s: _minimize(s, "trust-exact", {"gtol": 1e-10, "maxiter": 1000}, hess=s.hessian),
    )


_CONTROL = {"maxiter": 1000, "reltol": 1e-9}

PORT = Method(port, _CONTROL, OPTIM)
NEWTON = Method(newton, _CONTROL, OPTIM)
BFGS = Method(bfgs, _CONTROL, OPTIM)
CG = Method(conjugate_gradients, {"maxiter": 5000, "reltol": 1e-9}, OPTIM)
LBFGSB = Method(
    lbfgsb, {"maxiter": 5000, "reltol": 1e-9, "factr": 10.0, "pgtol": 1e-10, "lmm": 20}, {**OPTIM, "gtol": "pgtol"}
)
