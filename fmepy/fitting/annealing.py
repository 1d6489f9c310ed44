"""SANN and Pseudo: global methods in a finite box, driven by chance."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np

from fmepy.fitting.problem import Outcome, Problem, limit_reached
from fmepy.fitting.pseudo_optim import first_population, population_size, price_search
from fmepy.types import Vector

__all__ = ["pseudo", "simulated_annealing"]


def simulated_annealing(problem: Problem, control: Mapping[str, Any]) -> Outcome:
    """Minimise by generalised simulated annealing with local searches (scipy's dual annealing).

    It knows no rule of convergence: it ends after `maxit` evaluations or annealing steps.
    """
    from scipy.optimize import dual_annealing

    problem.need_finite_box("SANN")
    unit = abs(problem.cost(problem.start)) or 1.0
    width, moving = problem.upper - problem.lower, problem.moving

    def at(u: Vector) -> Vector:
        theta = problem.start.copy()
        theta[moving] = problem.lower[moving] + np.asarray(u) * width[moving]
        return problem.inside(theta)

    def value(u: Vector) -> float:
        now = problem.cost(at(u)) / unit
        return float(min(now, 1e10))  # a failed run: high, but finite, so that the local search can step back from it

    def note(u: Vector, now: float, _: int) -> None:
        problem.note(at(u), now * unit)

    random = "rng" if "rng" in inspect.signature(dual_annealing).parameters else "seed"  # renamed in scipy 1.15
    found = dual_annealing(
        value,
        [(0.0, 1.0)] * int(moving.sum()),
        x0=((problem.start - problem.lower)[moving] / width[moving]).clip(0.0, 1.0),
        maxiter=int(control["maxsteps"]),
        maxfun=int(control["maxit"]),
        initial_temp=float(control["temp"]),
        callback=note,
        **{random: problem.rng},
    )
    message = (
        f"Annealing knows no rule of convergence; it ended after {int(found.nfev)} evaluations and {int(found.nit)} "
        "annealing steps (control={'maxit': ..., 'maxsteps': ...} sets both). A least-squares or gradient method from "
        "here tells more."
    )
    return Outcome(problem.best[1].copy(), True, message, int(found.nit), "scipy dual_annealing")


def pseudo(problem: Problem, control: Mapping[str, Any]) -> Outcome:
    """Minimise by Price's controlled random search, see `fmepy.fitting.pseudo_optim`."""
    problem.need_finite_box("Pseudo")
    centroid = int(control["centroid"])
    npop = population_size(control["npop"], problem.start.size, centroid)
    population = first_population(problem.start, problem.lower, problem.upper, npop, problem.rng)
    found = price_search(
        problem.cost,
        population,
        np.array([problem.cost(theta) for theta in population]),
        problem.lower,
        problem.upper,
        numiter=int(control["numiter"]),
        centroid=centroid,
        varleft=max(float(control["varleft"]), 1e-8),
        rng=problem.rng,
    )
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
