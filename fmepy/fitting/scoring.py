"""scoring: Fisher's method of scoring for costs that know their score and expected information.

A step solves I d = u with the score u = d log L / d theta and the expected information I, prior added by differences;
parameters that are on a bound and pushed against it are held, the step is projected onto the box and halved until
-2 log L falls. It ends when the step promises less than `reltol` of a standard error squared::

    u' I^-1 u < reltol
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fmepy.errors import ArgumentError, SimulationError
from fmepy.fitting.covariance import second_differences
from fmepy.fitting.problem import Outcome, Problem
from fmepy.types import Matrix, Vector

__all__ = ["scoring"]


def scoring(problem: Problem, control: Mapping[str, Any]) -> Outcome:
    """Minimise -2 log L by Fisher scoring with step halving; bounds by projection."""
    if not problem.objective.has_score:
        raise ArgumentError(
            "method='scoring' needs a cost with a score and an expected information: a FimlofCost. For residuals use "
            "'Marq', for other numbers 'BFGS' or 'Port'."
        )
    theta, value = problem.start.copy(), problem.cost(problem.start)
    message, converged = f"The limit of {control['maxiter']} iterations is reached.", False
    iterations = 0
    for iterations in range(1, int(control["maxiter"]) + 1):  # noqa: B007    # the count is told
        try:
            u, information = _score(problem, theta)
        except SimulationError as error:
            message = f"Stopped where no score could be taken: {error}"
            break
        step, promise = _step(problem, theta, u, information)
        if promise < float(control["reltol"]):
            converged, message = True, "The score promises no further gain."
            break
        new, lower = _halved(problem, theta, value, step)
        if new is None:
            converged = promise < 1e-4
            message = "No shorter step lowers -2 log L" + (
                "." if converged else f", though the score promises {promise:.3g}."
            )
            break
        theta, value = new, lower
        problem.note(theta, value)
    return Outcome(theta, converged, message, iterations, "fmepy scoring")


def _score(problem: Problem, theta: Vector) -> tuple[Vector, Matrix]:
    u, information = problem.objective.score(theta), problem.objective.information(theta)
    if problem.prior is not None:
        prior = problem.prior.minus2log
        u = u - 0.5 * problem.objective.differentiate(prior, theta)
        information = information + 0.5 * second_differences(
            prior, theta, problem.lower, problem.upper, problem.scale, 1e-16
        )
    return u, information


def _step(problem: Problem, theta: Vector, u: Vector, information: Matrix) -> tuple[Vector, float]:
    """Return the step of the free parameters and the gain u'I^-1 u that it promises."""
    free = ~(((theta <= problem.lower) & (u < 0)) | ((theta >= problem.upper) & (u > 0)))
    step = np.zeros(theta.size)
    if not free.any():
        return step, 0.0
    sub = information[np.ix_(free, free)]
    size = 1 / np.sqrt(np.maximum(np.diag(sub), 1e-300))
    values, vectors = np.linalg.eigh(sub * np.outer(size, size))
    along = vectors.T @ (u[free] * size)
    usable = values > 1e-12 * values[-1]
    step[free] = size * (vectors[:, usable] @ (along[usable] / values[usable]))
    return step, float(np.sum(along[usable] ** 2 / values[usable]))


def _halved(problem: Problem, theta: Vector, value: float, step: Vector) -> tuple[Vector | None, float]:
    for k in range(30):
        trial = problem.inside(theta + 0.5**k * step)
        lower = problem.cost(trial)
        if lower < value:
            return trial, lower
    return None, value
