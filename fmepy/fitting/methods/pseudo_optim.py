"""pseudoOptim: Price's controlled random search in a box.

The algorithm. A population of points, uniform in the box, the start among them. Again and again: `centroid` different
members and one mirror member (possibly among them) are drawn; the new point is

    new = 2 mean(centroid members) - mirror,    moved onto the box,

and if its cost is below the worst, it takes the worst's place. The search ends when the costs are all alike,

    max - min <= max(varleft |min|, tiny * first spread),    tiny = 1e-15

or after `numiter` iterations. A failed or non-finite cost never enters the population.

References
----------
Price, W. L. (1977). A controlled random search procedure for global optimisation. The Computer Journal 20, 367-370.
FME: pseudoOptim.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fmepy.checks import as_rng
from fmepy.costs.user_function import as_objective, tell_held_noise
from fmepy.errors import ArgumentError, counted
from fmepy.fitting.control import filled
from fmepy.fitting.problem import Method, Outcome, Problem, limit_reached
from fmepy.journal.saving import Saved
from fmepy.parallel.interruption import Stopped, interruptible, outermost
from fmepy.parameters.named import as_bounds, check_inside
from fmepy.types import Matrix, Seed, UserBounds, UserParameters, Vector

_TINY = 1e-15  # of the first spread of costs: what stops a search whose smallest cost is zero

PSEUDO_CONTROL: dict[str, Any] = {"npop": None, "numiter": 10000, "centroid": 3, "varleft": 1e-8}


@dataclass(frozen=True, slots=True, eq=False)
class Search:
    """What the search found, in plain arrays; `trace` holds (iteration, lowest cost) at every change of the lowest."""

    population: Matrix
    costs: Vector
    iterations: int
    converged: bool
    trace: Matrix

    @property
    def best(self) -> int:
        """Row of the best member."""
        return int(np.argmin(self.costs))


def price_search(
    cost: Callable[[Vector], float], population: Matrix, costs: Vector, lower: Vector, upper: Vector, *, numiter: int,
    centroid: int, varleft: float, rng: np.random.Generator,
) -> Search:  # fmt: skip
    """Return the population after Price's search.

    Parameters
    ----------
    cost : callable
        Infinite where it fails.
    population : ndarray, shape (npop, n_par)
    costs : ndarray, shape (npop,)
        At least one is finite.

    Raises
    ------
    Stopped
        Ctrl-C; it carries the search so far.
    """
    population, costs = population.copy(), costs.copy()
    npop = len(costs)
    finite = costs[np.isfinite(costs)]
    floor = _TINY * float(finite.max() - finite.min())
    lowest = float(finite.min())
    trace = [(0.0, lowest)]
    worst = int(np.argmax(costs))
    iteration, converged = 0, False
    while True:
        spread = costs[worst] - lowest
        if spread <= max(varleft * abs(lowest), floor):
            converged = True
            break
        if iteration >= numiter:
            break
        members = rng.choice(npop, size=centroid, replace=False, shuffle=False)
        mirror = population[rng.integers(npop)]
        new = np.minimum(np.maximum(2 * population[members].sum(axis=0) / centroid - mirror, lower), upper)
        try:
            value = cost(new)
        except KeyboardInterrupt:
            raise Stopped(Search(population, costs, iteration, False, np.array(trace))) from None
        iteration += 1
        if value < costs[worst]:
            population[worst], costs[worst] = new, value
            worst = int(np.argmax(costs))
            if value < lowest:
                lowest = value
                trace.append((float(iteration), value))
    return Search(population, costs, iteration, converged, np.array(trace))


def _first_population(problem: Problem, control: Mapping[str, Any]) -> Matrix:
    """Return points uniform in the box, the start first: max(5 n_par, 50) of them, or `npop`."""
    start, lower, upper = problem.start, problem.lower, problem.upper
    npop = max(5 * start.size, 50) if control["npop"] is None else int(control["npop"])
    if npop <= control["centroid"]:
        raise ArgumentError(f"`npop={npop}` must be larger than `centroid` ({control['centroid']:g}).")
    population = np.clip(lower + (upper - lower) * problem.rng.random((npop, start.size)), lower, upper)
    population[0] = start
    return population


def _searched(problem: Problem, control: Mapping[str, Any], population: Matrix, costs: Vector) -> Search:
    """Return the population after a search by the words of `control`."""
    return price_search(
        problem.cost,
        population,
        costs,
        problem.lower,
        problem.upper,
        numiter=int(control["numiter"]),
        centroid=int(control["centroid"]),
        varleft=max(float(control["varleft"]), 1e-8),
        rng=problem.rng,
    )


@dataclass(frozen=True, slots=True, eq=False)
class PseudoOptim(Saved):
    """Result of `pseudoOptim`.

    Attributes
    ----------
    par : Series
        The best parameters.
    cost : float
        Their cost.
    iterations : int
    poppar : DataFrame
        The last population, one row per member.
    popcost : ndarray, shape (npop,)
        Its costs.
    rsstrace : DataFrame
        Columns iteration and cost: the lowest cost at every change.
    converged : bool
        True if the costs of the population had become alike; False if `numiter` ended the search.
    interrupted : bool
        True if Ctrl-C ended it.
    """

    par: pd.Series
    cost: float
    iterations: int
    poppar: pd.DataFrame
    popcost: Vector
    rsstrace: pd.DataFrame
    converged: bool
    interrupted: bool = False

    def __repr__(self) -> str:
        end = "converged" if self.converged else "interrupted" if self.interrupted else "stopped by numiter"
        values = ", ".join(f"{k}={v:.6g}" for k, v in self.par.items())
        return f"PseudoOptim: {values}; cost {self.cost:.6g}; {end} after {counted(self.iterations, 'iteration')}"


@interruptible(lambda found: "The best member of the population so far is `par`.")
def pseudoOptim(
    f: Any,
    p: UserParameters,
    *,
    lower: UserBounds,
    upper: UserBounds,
    control: Mapping[str, Any] | None = None,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    seed: Seed = None,
    executor: Any = None,
    progress: Any = False,
) -> PseudoOptim:
    """Return the minimum of a cost in a box by Price's controlled random search.

    Parameters
    ----------
    f : callable or fmepy cost
        A number to be minimised; for residuals and ModCosts the sum of squares (FME's `model`).
    p : dict, Series, sequence
        A first member of the population.
    lower, upper : number, sequence, or dict by name
        The box; finite.
    control : dict, optional
        `npop` (default max(5 n_par, 50)), `numiter` (10000), `centroid` (3), `varleft` (1e-8: the costs that are left
        may differ by so much, relative).
    args, kwargs
        Passed on to `f`.
    seed : int, Generator or None
        Source of randomness.
    executor, progress
        For the evaluation of the first population, see `run_many`; the search itself is sequential. Ctrl-C returns the
        population as it is.

    Returns
    -------
    PseudoOptim

    Raises
    ------
    ArgumentError
        An infinite bound, a start outside the box, an unknown control name.

    Notes
    -----
    Differs from FME: the search also stops if the lowest cost is zero or negative (the spread is compared with
    ``max(|min|, tiny)``); a start outside the box is refused; one parameter is allowed; failed evaluations are skipped.

    References
    ----------
    Price (1977), see the module. FME: pseudoOptim.

    Examples
    --------
    >>> best = pseudoOptim(lambda p: (p[0] - 1) ** 2 + (p[1] + 2) ** 2, [0, 0], lower=-5, upper=5, seed=1)
    >>> best.par.round(3).to_dict(), best.converged
    ({'p1': 1.0, 'p2': -2.0}, True)
    """
    settings = filled(control, PSEUDO_CONTROL, {}, "pseudoOptim")
    objective = as_objective(f, p, args=args, kwargs=kwargs)
    tell_held_noise(f, objective.parameters)
    low, high = as_bounds(lower, upper, objective.parameter_names, declared=(objective.lower, objective.upper))
    check_inside(objective.theta0, low, high, objective.parameter_names)
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise ArgumentError("pseudoOptim searches a box: `lower` and `upper` must be finite for every parameter.")
    problem = Problem(objective, objective.theta0, low, high, None, as_rng(seed))
    population = _first_population(problem, settings)
    costs, interrupted = np.full(len(population), np.inf), False
    if executor is None and not progress:
        try:
            for i, theta in enumerate(population):
                costs[i] = problem.cost(theta)
        except KeyboardInterrupt:
            interrupted = True
    else:
        from fmepy.parallel import spread

        runs = spread(problem.cost, list(population), executor=executor, progress=progress)
        costs[runs.ok] = [value for value in runs if value is not None]
        interrupted = runs.interrupted
    if interrupted and not (outermost() and np.isfinite(costs).any()):
        raise KeyboardInterrupt
    try:
        found = _searched(problem, {**settings, **({"numiter": 0} if interrupted else {})}, population, costs)
    except Stopped as stop:
        if not outermost():
            raise
        found, interrupted = stop.partial, True
    names = list(objective.parameter_names)
    return PseudoOptim(
        par=pd.Series(found.population[found.best], index=names),
        cost=float(found.costs[found.best]),
        iterations=found.iterations,
        poppar=pd.DataFrame(found.population, columns=names),
        popcost=found.costs,
        rsstrace=pd.DataFrame(found.trace, columns=["iteration", "cost"]).astype({"iteration": int}),
        converged=found.converged and not interrupted,
        interrupted=interrupted,
    )


# --- as a method of modFit


def pseudo(problem: Problem, control: Mapping[str, Any]) -> Outcome:
    """Minimise by Price's controlled random search: the method of `modFit`."""
    population = _first_population(problem, control)
    found = _searched(problem, control, population, np.array([problem.cost(theta) for theta in population]))
    for value in found.trace[:, 1]:
        problem.note(found.population[found.best], value)
    message = (
        f"The costs of the population differ by less than varleft = {control['varleft']:g} (relative)."
        if found.converged
        else limit_reached("numiter", control["numiter"])
    )
    return Outcome(
        found.population[found.best].copy(), found.converged, message, found.iterations, "fmepy price_search"
    )


PSEUDO = Method(pseudo, PSEUDO_CONTROL, {"maxiter": "numiter", "maxit": "numiter"}, box=True)
