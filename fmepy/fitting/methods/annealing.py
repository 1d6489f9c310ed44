"""SANN: simulated annealing in a finite box."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np

from fmepy.fitting.problem import Method, Outcome, Problem
from fmepy.numerics.differences import replaced
from fmepy.types import Vector


def simulated_annealing(problem: Problem, control: Mapping[str, Any]) -> Outcome:
    """Minimise by generalised simulated annealing with local searches (scipy's dual annealing).

    It has no rule of convergence: it ends after `maxit` evaluations or annealing steps.
    """
    from scipy.optimize import dual_annealing

    unit = abs(problem.cost(problem.start)) or 1.0
    width, moving = problem.upper - problem.lower, problem.moving

    def at(u: Vector) -> Vector:
        values = problem.lower[moving] + np.asarray(u) * width[moving]
        return problem.inside(replaced(problem.start, moving, values))

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
        f"Annealing has no rule of convergence; it ended after {int(found.nfev)} evaluations and {int(found.nit)} "
        "annealing steps (control={'maxit': ..., 'maxsteps': ...} sets both). A least-squares or gradient method from "
        "here tells more."
    )
    return Outcome(problem.best[1].copy(), True, message, int(found.nit), "scipy dual_annealing")


SANN = Method(
    simulated_annealing,
    {"maxit": 10000, "maxsteps": 1000, "temp": 5230.0},
    {"maxiter": "maxit", "numiter": "maxit", "maxfun": "maxit"},
    box=True,
)
