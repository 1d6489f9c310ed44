"""Port, BFGS, CG, L-BFGS-B, Newton and Nelder-Mead: methods of the scalar cost F, by `scipy.optimize.minimize`.

===========  ==========================================  ===================================================
method       without finite bounds                       with bounds (exact, native)
===========  ==========================================  ===================================================
Port         SLSQP (dense quasi-Newton)                  SLSQP
BFGS         BFGS                                        L-BFGS-B
CG           CG (Polak and Ribière)                      TNC (truncated Newton by conjugate gradients)
L-BFGS-B     L-BFGS-B                                    L-BFGS-B
Newton       trust-exact (trust-region Newton)           TNC
Nelder-Mead  Nelder-Mead (a simplex; no derivatives)     Nelder-Mead
===========  ==========================================  ===================================================

They see scaled parameters z and a scaled cost, so that their absolute tolerances mean the same everywhere::

    z = theta / size,    f(z) = F(theta) / |F(start)|

For residuals the gradient is 2 J'r and Newton's Hessian 2 J'J. A run that ends is started once more from where it
stands, with sizes and cost scaled anew, until F falls by less than `reltol`, relative: that undoes a poor scaling at
the start, line searches that gave up, and simplexes that collapsed. A failed run counts as a very large cost.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from fmepy.errors import SimulationError
from fmepy.fitting.problem import OPTIM, LimitReachedError, Method, Outcome, Problem, limit_reached
from fmepy.numerics.differences import magnitudes, replaced
from fmepy.types import Matrix, Vector

_FRESH_STARTS = 100  # each lowers the cost by more than `reltol`
_WALL = 1e10  # scaled cost of a failed run: above anything of interest, small enough for cubic interpolation


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
        return self.problem.inside(replaced(self.whole, self.moving, np.asarray(z, dtype=float) * self.size))

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
        if problem.is_least_squares and now <= _nothing(problem):  # a log likelihood or a prior goes below
            converged, message = True, f"The cost is zero{' but for rounding' if now else ''}."
            break
        value = now
    return Outcome(theta, converged, message, len(problem.trace), engine)


def _nothing(problem: Problem) -> float:
    """Return the sum of squares of residuals that are ten digits below the data, below which no search leads on."""
    data = problem.objective.data
    if data.observed is None:
        return 0.0
    return 1e-20 * float(np.sum(np.square(data.observed.values * data.weights * data.scales[data.groups])))


def _lowest(scaled: ScaledCost) -> float:
    """Return the scale of an absolute tolerance: the cost at the start is 1, but may fall by orders of magnitude."""
    return min(1.0, max(abs(scaled.problem.best[0]) / scaled.unit, 1e-8)) * 1e-2


_BOUNDED = ("L-BFGS-B", "TNC", "SLSQP", "Nelder-Mead")
_OPTIONS: dict[str, Callable[[Mapping[str, Any], ScaledCost], dict[str, Any]]] = {
    "SLSQP": lambda control, s: {"maxiter": 1000, "ftol": control["reltol"] * 1e-2},
    "BFGS": lambda control, s: {"gtol": 1e-9, "maxiter": 15000},
    "CG": lambda control, s: {"gtol": 1e-9, "maxiter": 15000},
    "TNC": lambda control, s: {"maxfun": 15000, "ftol": 1e-14, "xtol": 1e-12, "gtol": 1e-10},
    "trust-exact": lambda control, s: {"gtol": 1e-10, "maxiter": 1000},
    "L-BFGS-B": lambda control, s: {
        "maxiter": 15000,
        "maxfun": 15000,
        "ftol": control.get("factr", 10.0) * np.finfo(float).eps,
        "gtol": control.get("pgtol", 1e-10),
        "maxcor": int(control.get("lmm", max(10, s.whole.size))),
    },
    # costs of the simplex that differ by less than reltol, corners by less than the square root of it
    "Nelder-Mead": lambda control, s: {
        "maxiter": 20000,
        "maxfev": 40000,
        "fatol": control["reltol"] * _lowest(s),
        "xatol": np.sqrt(control["reltol"]),
        "adaptive": s.whole.size > 4,
    },
}


def _source_of_gradient(problem: Problem) -> str:
    if problem.objective.has_score:
        return "gradient from the score"
    if problem.objective.has_gradient:
        return "gradient from jac"
    return "gradient 2 J'r" if not problem.objective.is_scalar else "gradient by differences"


def _minimised(problem: Problem, control: Mapping[str, Any], *, plain: str, bounded: str) -> Outcome:
    """Minimise by one of scipy's methods without finite bounds, by another one with them."""
    from scipy.optimize import Bounds, minimize

    method = bounded if problem.is_bounded else plain
    engine, further = f"scipy {method}", dict[str, Any]()
    if method != "Nelder-Mead":
        engine += f", {_source_of_gradient(problem)}"
        further["jac"] = ScaledCost.gradient
    if method == "trust-exact":
        engine += ", Hessian 2 J'J" if problem.is_least_squares else ", Hessian by differences"
        further["hess"] = ScaledCost.hessian

    def run(scaled: ScaledCost) -> Any:
        return minimize(
            scaled.value,
            scaled.z0,
            method=method,
            bounds=Bounds(scaled.lower, scaled.upper) if problem.is_bounded and method in _BOUNDED else None,
            callback=scaled.note,
            options=_OPTIONS[method](control, scaled),
            **{name: partial(derivative, scaled) for name, derivative in further.items()},
        )

    return restarted(problem, control, engine, run)


def _method(plain: str, bounded: str, maxiter: int = 1000, **control: float) -> Method:
    run = partial(_minimised, plain=plain, bounded=bounded)
    aliases = {**OPTIM, "gtol": "pgtol"} if "pgtol" in control else OPTIM
    return Method(run, {"maxiter": maxiter, "reltol": 1e-9, **control}, aliases)


PORT = _method("SLSQP", "SLSQP")
NEWTON = _method("trust-exact", "TNC")
BFGS = _method("BFGS", "L-BFGS-B")
CG = _method("CG", "TNC", 5000)
LBFGSB = _method("L-BFGS-B", "L-BFGS-B", 5000, factr=10.0, pgtol=1e-10, lmm=20)
NELDER_MEAD = _method("Nelder-Mead", "Nelder-Mead", 20000)
