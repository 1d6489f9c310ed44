"""Fitting again with one thing held: a parameter at a value, or a prediction near one.

Held at the place psi, the others fitted again, the lowest cost is the profile F(psi). Beside it a re-fit gives, with R
the derivatives of the residuals (of a likelihood: a root of its information, R'R) and F the cost::

    a parameter     psi = theta_j               dF/dpsi = dF/dtheta_j                t = (-R_others^+ R_j, 1)
    a prediction    minimise F + w^2 (g - z)^2    psi = g(theta) as it came out
                                                dF/dpsi = 2 w^2 (z - psi)            t = [R; w g']^+ [0; w] / (g't)

t = dtheta/dpsi is the direction in which the next re-fit begins. For a prediction the constraint is soft, and yet what
comes out lies on the profile exactly: where F + w^2 (g - z)^2 is lowest, the gradient of F is a multiple of that of g,
which is what makes theta the best of all with its own g(theta) (Kreutz et al. 2012, BMC Syst. Biol. 6, 120).

Along t the cost rises as if it were quadratic, which gives the standard error of what is held::

    se = s / |R t|,    s^2 the unit of the likelihood ratio: the residual variance, or 1
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fmepy.costs.objective import Objective
from fmepy.errors import SimulationError, listed
from fmepy.fitting.leaving_zero import let_go
from fmepy.fitting.methods.registry import METHODS
from fmepy.fitting.problem import Outcome, Problem, without_advice
from fmepy.fitting.response import falls_beside
from fmepy.journal.encoding import Stored
from fmepy.numerics.covariance import SINGULAR, root_of
from fmepy.numerics.differences import replaced
from fmepy.numerics.sparse import dense
from fmepy.parameters.priors import Prior
from fmepy.types import BoolVector, Matrix, Vector

BETTER = 0.01
"""A likelihood ratio so far below zero is another optimum: a tenth of a standard error, squared, is none."""
_ARRIVED = 1e-4  # standard errors: nothing further off is looked for; the likelihood ratio is then right to 1e-8
_NOISE = 1e-3  # standard errors: so near, a step that lowers nothing is the noise of a solver
_STEPS = 12
_STIFF = 20.0  # a prediction is held within 1/400 of its distance from the estimate; exactness does not depend on it


@dataclass(slots=True, eq=False)
class Search:
    """How the others are fitted: the cost, its bounds, a method.

    Attributes
    ----------
    unit : float
        What the likelihood ratio is measured in: the residual variance, or 1.
    curvature : ndarray or None
        R of the optimum, used where the cost has no derivatives of its own.
    """

    objective: Objective
    lower: Vector
    upper: Vector
    prior: Prior | None
    method: str
    control: Mapping[str, Any]
    unit: float = 1.0
    curvature: Matrix | None = None

    def problem(self, start: Vector, **held: Any) -> Problem:
        """Return the problem from this start; `held`: other fields of it."""
        own = {"lower": self.lower, "upper": self.upper, **held}
        rng = np.random.default_rng(0)  # of methods that draw; a re-fit does not depend on others
        problem = Problem(self.objective, start, prior=self.prior, rng=rng, **own)
        problem.start = problem.inside(start)
        return problem

    def rows(self, theta: Vector) -> Matrix | None:
        """Return R, the derivatives of residuals or a root of the information, without what holds; None if unknown."""
        problem = self.problem(theta)
        if problem.is_least_squares:
            return dense(problem.jacobian(theta))
        return root_of(problem.information(theta)) if self.objective.has_score else self.curvature

    def run(self, problem: Problem) -> tuple[Vector, Outcome]:
        """Return where the method comes to, and what it says; raise SimulationError where the cost fails at once."""
        if not np.isfinite(problem.value(problem.start)):
            raise SimulationError("The cost is not finite.")
        begin = let_go(problem, problem.start)
        if begin is not problem.start:
            problem.start = begin
        if not problem.moving.any():
            return problem.start, Outcome(problem.start, True, "", 0, "")
        near = _gauss_newton(problem, problem.start) if problem.is_least_squares else None
        if near is not None:
            return near, Outcome(near, True, "", 0, "")
        _, outcome = held_at_kinks(*self._run(problem), self._run)
        return problem.inside(outcome.par), outcome

    def _run(self, problem: Problem) -> tuple[Problem, Outcome]:
        return problem, METHODS[self.method].run(problem, self.control)


def held_at_kinks(
    problem: Problem, outcome: Outcome, search: Callable[[Problem], tuple[Problem, Outcome]]
) -> tuple[Problem, Outcome]:
    """Search again with the parameters held that came to the kink of their prior; both as they were if none did."""
    held = problem.held_at_kinks(outcome.par)
    if held is problem:
        return problem, outcome
    risen = "The cost rises from the kink of the prior."
    at, found = held, replace(outcome, par=held.start, converged=True, message=risen)
    if held.moving.any():
        at, found = search(held)
        found = replace(found, par=at.put_on_bounds(found.par), iterations=outcome.iterations + found.iterations)
    off = [j for j in np.flatnonzero(held.held).tolist() if falls_beside(problem, found.par, j)]
    if not off:
        return at, found
    said = f"The cost falls from the kink of the prior of {listed([problem.names[j] for j in off])}: this is no"
    return problem, replace(found, converged=False, message=f"{said} optimum. Try another start, or starts=10.")


@dataclass(frozen=True, slots=True, eq=False)
class Refit(Stored):
    """What came of fitting the others.

    Attributes
    ----------
    place : float
        The value of what was held.
    theta : ndarray, shape (n_par,)
    cost : float
        The lowest cost, F.
    slope : float
        dF/dplace; NaN if it is not known.
    tangent : ndarray or None
        dtheta/dplace; None if it is not known.
    message : str
        Why it is no result, "" if it is one.
    """

    place: float
    theta: Vector
    cost: float
    slope: float = np.nan
    tangent: Vector | None = None
    message: str = ""


class Held(ABC):
    """The quantity that is held, see the module's text."""

    @abstractmethod
    def place(self, theta: Vector) -> float:
        """Return the value of the quantity that is held."""

    def start(self, theta: Vector, at: float) -> Vector:
        """Return a start for a re-fit at this place."""
        return theta.copy()

    @abstractmethod
    def problem(self, search: Search, start: Vector, at: float, slope: float) -> Problem:
        """Return the problem of a re-fit at (or near) a place; `slope`: what dF/dplace will be, about."""

    @abstractmethod
    def slope(self, problem: Problem, theta: Vector, place: float) -> float:
        """Return dF/dplace at a re-fit."""

    @abstractmethod
    def tangent(self, search: Search, problem: Problem, theta: Vector) -> Vector | None:
        """Return the direction t, None where it is not known."""

    @abstractmethod
    def size(self, search: Search, theta: Vector) -> float:
        """Return what counts as the size of it."""

    def limits(self, search: Search) -> tuple[float, float]:
        """Return the lowest and the highest place that may be."""
        return -np.inf, np.inf

    def fit(self, search: Search, start: Vector, at: float, slope: float) -> Refit:
        """Return the re-fit at (or near) a place from a start; `slope`: what dF/dplace will be, about."""
        problem = self.problem(search, start, at, slope)
        try:
            theta, outcome = search.run(problem)
            place, cost = self.place(theta), problem.value(theta)
            if problem.further is not None:
                pull = problem.further.residuals(theta)
                cost -= float(pull @ pull)
            if not outcome.converged:
                return Refit(place, theta, cost, message=without_advice(outcome.message))
            return Refit(place, theta, cost, self.slope(problem, theta, place), self.tangent(search, problem, theta))
        except SimulationError as error:
            return Refit(at, problem.start, np.inf, message=str(error))

    def standard_error(self, search: Search, theta: Vector) -> tuple[float, Vector | None]:
        """Return the standard error at the optimum theta (infinite where nothing is known), and the direction t."""
        problem = search.problem(theta)
        R, tangent = search.rows(theta), self.tangent(search, problem, theta)
        if R is None or tangent is None:
            return np.inf, None
        rise = float(np.linalg.norm(R @ tangent))
        most = float(np.abs(R * tangent).sum())
        return (float(np.sqrt(search.unit)) / rise if rise > SINGULAR * most else np.inf), tangent


def fitted(search: Search, start: Vector) -> tuple[Vector, float]:
    """Return where a search with nothing held comes to, and the cost there."""
    problem = search.problem(start)
    theta, _ = search.run(problem)
    theta = problem.put_on_bounds(theta)
    return theta, problem.value(theta)


@dataclass(frozen=True, slots=True, eq=False)
class HeldParameter(Held):
    """A parameter at a value: the lower and the upper bound of it."""

    j: int

    def place(self, theta: Vector) -> float:
        """Return the parameter."""
        return float(theta[self.j])

    def start(self, theta: Vector, at: float) -> Vector:
        """Return theta with the parameter at the place."""
        return replaced(theta, self.j, at)

    def problem(self, search: Search, start: Vector, at: float, slope: float) -> Problem:
        """Return the problem with the parameter between two bounds that are one."""
        lower, upper = (replaced(end, self.j, at) for end in (search.lower, search.upper))
        return search.problem(start, lower=lower, upper=upper)

    def slope(self, problem: Problem, theta: Vector, place: float) -> float:
        """Return the derivative of the cost to the parameter."""
        return float(problem.gradient(theta)[self.j])

    def limits(self, search: Search) -> tuple[float, float]:
        """Return the parameter's bounds."""
        return float(search.lower[self.j]), float(search.upper[self.j])

    def size(self, search: Search, theta: Vector) -> float:
        """Return the parameter's size."""
        return float(max(abs(theta[self.j]), 1e-3 * search.problem(theta).scale[self.j]))

    def tangent(self, search: Search, problem: Problem, theta: Vector) -> Vector | None:
        """Return how the others follow."""
        R = search.rows(theta)
        if R is None:
            return None
        free = _free(problem, theta)
        free[self.j] = False
        out = np.zeros(theta.size)
        out[self.j] = 1.0
        if free.any():
            out[free] = -_least(R[:, free], R[:, self.j])
        return out


@dataclass(slots=True, eq=False)
class HeldPrediction(Held):
    """A prediction near a value, by a residual of its own: ``w (g(theta) - z)``.

    Attributes
    ----------
    value, gradient : callable
        g(theta) and its derivatives, shape (n_par,).
    weight : float
        w, NaN until the standard error is known.
    """

    value: Callable[[Vector], float]
    gradient: Callable[[Vector], Vector]
    weight: float = np.nan
    aim: float = field(default=np.nan, init=False)

    def residuals(self, theta: Vector) -> Vector:
        """Return w (g - z), shape (1,)."""
        return np.array([self.weight * (self.value(theta) - self.aim)])

    def jacobian(self, theta: Vector) -> Matrix:
        """Return its derivatives, shape (1, n_par)."""
        return self.weight * self.gradient(theta)[None, :]

    def place(self, theta: Vector) -> float:
        """Return the prediction."""
        return self.value(theta)

    def problem(self, search: Search, start: Vector, at: float, slope: float) -> Problem:
        """Return the problem with the aim beyond the place by as much as the cost will pull back."""
        lag = slope / (2 * self.weight**2)
        self.aim = at + (lag if np.isfinite(lag) else 0.0)
        return search.problem(start, further=self)

    def slope(self, problem: Problem, theta: Vector, place: float) -> float:
        """Return how strongly the aim pulls."""
        return 2 * self.weight**2 * (self.aim - place)

    def standard_error(self, search: Search, theta: Vector) -> tuple[float, Vector | None]:
        """Return the standard error at the optimum, and the direction t; it sets the weight."""
        sizes = np.maximum(np.abs(theta), 1e-3 * search.problem(theta).scale)
        reach = float(np.linalg.norm(self.gradient(theta) * sizes))
        if not reach > 0:
            return 0.0, None
        self.weight = _STIFF * np.sqrt(search.unit) / reach  # as if parameters were known as well as to their size
        se, tangent = Held.standard_error(self, search, theta)
        if np.isfinite(se):
            self.weight = _STIFF * np.sqrt(search.unit) / se
            se, tangent = Held.standard_error(self, search, theta)
        return se, tangent

    def size(self, search: Search, theta: Vector) -> float:
        """Return the prediction's size; of one at zero what its weight says."""
        return max(abs(self.value(theta)), 1e-3 * _STIFF * float(np.sqrt(search.unit)) / self.weight)

    def tangent(self, search: Search, problem: Problem, theta: Vector) -> Vector | None:
        """Return how the others follow."""
        R = search.rows(theta)
        if R is None:
            return None
        free, g = _free(problem, theta), self.gradient(theta)
        out = np.zeros(theta.size)
        if free.any():
            row = self.weight * g[free]
            out[free] = _least(np.vstack([R[:, free], row]), np.append(np.zeros(len(R)), self.weight))
        reached = float(g @ out)
        return out / reached if reached > 1e-12 else None


def predicted_start(search: Search, held: Held, last: Refit, before: Refit | None, at: float) -> Vector:
    """Return where a re-fit at a place begins: along the tangent of the last one, bent as the last two are."""
    theta = held.start(last.theta, at)
    step = at - last.place
    if last.tangent is not None:
        theta = last.theta + step * last.tangent
        apart = np.nan if before is None else last.place - before.place
        if before is not None and before.tangent is not None and apart != 0 and abs(step) <= 2 * abs(apart):
            theta = theta + 0.5 * step**2 * (last.tangent - before.tangent) / apart
    elif before is not None and last.place != before.place:
        theta = last.theta + (last.theta - before.theta) * step / (last.place - before.place)
    # not onto a bound where the last one did not lie on it: searches are slow to leave one
    theta = np.where(theta < search.lower, 0.5 * (last.theta + search.lower), theta)
    theta = np.where(theta > search.upper, 0.5 * (last.theta + search.upper), theta)
    return held.start(theta, at) if np.isfinite(theta).all() else held.start(last.theta, at)


def _free(problem: Problem, theta: Vector) -> BoolVector:
    free = problem.moving & ~problem.at_bound(theta)
    return np.asarray(free if problem.prior is None else free & ~problem.prior.at_kink(theta))


def _gauss_newton(problem: Problem, theta: Vector) -> Vector | None:
    """Return the optimum if a few full steps come to it, None where the method has to search.

    Begun along the path of the profile, most re-fits are a step or two.
    """
    n_free = problem.moving.sum()
    for _ in range(_STEPS):
        r, J = problem.residuals(theta), dense(problem.jacobian(theta))
        g, value = J.T @ r, float(r @ r)
        free = problem.moving & ~problem.blocked(theta, g)
        step = np.zeros(theta.size)
        if free.any():
            step[free] = -_least(J[:, free], r, 1e-10)
        gain = J @ step
        offset = (float(gain @ gain) / (value / max(r.size - n_free, 1))) ** 0.5 if value > 0 else 0.0
        if offset <= _ARRIVED:
            return theta
        trial = problem.inside(theta + step)
        if not problem.cost(trial) < value:
            return theta if offset <= _NOISE else None
        theta = trial
    return None


def _least(A: Matrix, b: Vector, smallest: float = SINGULAR) -> Vector:
    """Return the shortest x for which A x is nearest to b, columns of A brought to one size."""
    size = np.sqrt(np.einsum("ij,ij->j", A, A))
    size = np.where(size > 0, size, 1.0)
    return np.asarray(np.linalg.lstsq(A / size, b, rcond=smallest)[0] / size)
