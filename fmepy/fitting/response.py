"""The dependence of a cost on its parameters at the end of a search: response, rank, whether it is a minimum at all.

A search may end on a plateau: the derivatives vanish there as they do at an optimum, but since nothing depends on the
parameters any more. A parameter *responds* if a change by its own size moves the residuals (or -2 log L) by more than
their noise; else a step of a tenth of its size has to move the cost. If that lowers it, this is no minimum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fmepy.errors import SimulationError
from fmepy.numerics.covariance import SINGULAR, Spectra, rank_of
from fmepy.numerics.sparse import column_lengths, normal_matrix
from fmepy.types import BoolVector, Matrix, Vector

if TYPE_CHECKING:
    from fmepy.fitting.problem import Problem

_ROUNDING = 1e-13
_PROBE, _PROBE_BESIDE = 0.1, 1e-4  # of a parameter's size
_PUSHED = 1e-2  # of -2 log L


class Silent(NamedTuple):
    """Parameters to which the cost does not respond, along which it still falls, and around which all runs fail."""

    dead: list[int]
    falling: list[int]
    blind: list[int]


def silent(problem: Problem, theta: Vector, H: Matrix) -> Silent:
    """Return the parameters that are at no minimum at theta, as far as a step of each can show it.

    Parameters
    ----------
    H : ndarray, shape (n_par, n_par)
        Second derivatives of the cost at theta, NaN where they could not be taken.

    Notes
    -----
    A run that fails says nothing of how the cost responds: the other side decides.
    """
    size = problem.sizes(theta)
    free = problem.free_at(theta)
    if problem.is_least_squares:
        J, r = problem.jacobian(theta), problem.residuals(theta)
        moved = column_lengths(J) * size
        level = _ROUNDING * float(r @ r) ** 0.5
        objective = problem.objective
        if not objective.has_jacobian:
            noise = objective.differences.absolute * float(objective.n_obs) ** 0.5
            with np.errstate(divide="ignore"):
                level = level + 2 * noise * size / np.where(free, objective.steps(theta), 1.0)
        suspected = moved <= level
    else:
        moves = 0.5 * np.abs(np.diag(H)) * size**2 + np.abs(problem.gradient(theta)) * size
        suspected = ~(moves > 1e3 * _noise(problem, theta)) | ~np.isfinite(np.diag(H))
    result = Silent([], [], [])
    for j in map(int, np.flatnonzero(suspected & free)):
        change = changes(problem, theta, j, _PROBE * size[j])
        finite = change[np.isfinite(change)]
        if change.size and not finite.size:
            result.blind.append(j)
        elif finite.size and finite.min() < -_noise(problem, theta):
            result.falling.append(j)
        elif not finite.size or finite.max() <= _noise(problem, theta):
            result.dead.append(j)
    return result


def _noise(problem: Problem, theta: Vector) -> float:
    """Return the noise of the cost itself at theta."""
    value = problem.cost(theta)
    return max(problem.noise, _ROUNDING) * abs(value) if np.isfinite(value) else 0.0


def changes(problem: Problem, theta: Vector, j: int, step: float) -> Vector:
    """Return how the cost changes by a step of one parameter to either side, inside the bounds."""
    here, rises = problem.cost(theta), []
    for side in (step, -step):
        trial = theta.copy()
        trial[j] += side
        trial = problem.inside(trial)
        if trial[j] != theta[j]:
            rises.append(problem.cost(trial) - here)
    return np.array(rises)


def falls_beside(problem: Problem, theta: Vector, j: int) -> bool:
    """Tell whether the cost falls a little beside theta, by one parameter."""
    change = changes(problem, theta, j, _PROBE_BESIDE * problem.sizes(theta)[j])
    return bool(change.size) and bool(change.min() < -_noise(problem, theta))


def pushed(problem: Problem, theta: Vector, H: Matrix, g: Vector) -> list[int]:
    """Return the parameters along which the cost falls towards failing runs: there are no second derivatives."""
    promise = np.abs(g) * _PROBE * problem.sizes(theta)
    edge = ~np.isfinite(np.diag(H)) & problem.free_at(theta)
    return [int(j) for j in np.flatnonzero(edge & (promise > max(_PUSHED, 1e3 * _noise(problem, theta))))]


def lost_rank(problem: Problem, spectra: Spectra, free: BoolVector) -> bool:
    """Tell whether the derivatives of the residuals, independent at the start, no longer are."""
    if not problem.is_least_squares or not free.any():
        return False
    if spectra(free).rank == free.sum():
        return False
    try:
        J = problem.jacobian(problem.start)[:, free]
    except SimulationError:
        return False
    return bool(rank_of(normal_matrix(J)) == free.sum())


def falls_along(problem: Problem, theta: Vector, H: Matrix, free: BoolVector) -> bool:
    """Tell whether the cost falls to a side along its most negative curvature: a saddle or a ridge, no minimum."""
    if not free.any() or not np.isfinite(H[np.ix_(free, free)]).all():
        return False
    size = problem.sizes(theta)[free]
    values, vectors = np.linalg.eigh(H[np.ix_(free, free)] * np.outer(size, size))
    if not values[0] < -(SINGULAR**2) * values[-1]:  # nor by rounding
        return False
    step = np.zeros(theta.size)
    step[free] = _PROBE * size * vectors[:, 0]
    here = problem.cost(theta)
    lowest = min(problem.cost(problem.inside(theta + side * step)) for side in (1.0, -1.0))
    return bool(lowest < here - 10 * _noise(problem, theta))
