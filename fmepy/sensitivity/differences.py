"""Derivatives of a function of a vector by differences, the runs spread where they are wanted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fmepy.costs.adapter import as_objective
from fmepy.errors import ArgumentError, SimulationError
from fmepy.parallel import spread
from fmepy.types import Matrix, Vector

__all__ = ["Derivatives", "by_fitting_differences", "forward_differences"]

Function = Callable[[Vector], Vector]


@dataclass(frozen=True, slots=True, eq=False)
class Derivatives:
    """A matrix of derivatives and how it was made.

    Attributes
    ----------
    matrix : ndarray, shape (n_row, n_par)
    method : str
    """

    matrix: Matrix
    method: str


def forward_differences(
    function: Function,
    theta: Vector,
    values: Vector,
    tiny: float,
    names: Sequence[str],
    *,
    executor: Any = None,
    progress: Any = False,
) -> Derivatives:
    """Return forward differences with the step ``|theta| * tiny``, `tiny` itself where theta is 0.

    `values` is the function at theta.

    Examples
    --------
    >>> forward_differences(lambda p: p**2, np.array([3.0]), np.array([9.0]), 1e-6, ["a"]).matrix.round(4)
    array([[6.]])
    """
    h = np.where(theta == 0, tiny, np.abs(theta) * tiny)
    points = theta + np.diag(h)
    ahead = _evaluated(function, points, executor, progress)
    columns = []
    for j, found in enumerate(ahead):
        if found is None:
            raise _failed(names[j], theta, names)
        columns.append((found - values) / (points[j, j] - theta[j]))
    return Derivatives(np.column_stack(columns), f"forward, tiny={tiny:g}")


def by_fitting_differences(
    function: Function,
    theta: Vector,
    size: Vector,
    names: Sequence[str],
    *,
    executor: Any = None,
    progress: Any = False,
) -> Derivatives:
    """Return differences whose step fits the noise of the function, see `fmepy.costs.adapter`.

    `size` is what counts as one unit of each value; noise is measured in these. Where a run on one side fails, the
    other side serves.
    """
    objective = as_objective(_Scaled(function, size), theta)
    step, central = objective.differences.step, objective.differences.central
    h = objective.steps(theta)
    points = np.concatenate((theta + np.diag(h), theta - np.diag(h))) if central else theta + np.diag(h)
    found = _evaluated(function, points, executor, progress)
    n = theta.size
    complete = central and all(f is not None for f in found)
    base = theta if complete else function(theta)  # needed for one-sided differences alone
    columns = []
    for j in range(n):
        above, below = found[j], found[n + j] if central else None
        if above is not None and below is not None:
            columns.append((above - below) / (points[j, j] - points[n + j, j]))
            continue
        point, one = (points[j, j], above) if above is not None else (theta[j] - h[j], below)
        if one is None and not central:
            point = theta[j] - h[j]
            one = _evaluated(function, _moved(theta, j, -h[j]), None, False)[0]
        if one is None:
            raise _failed(names[j], theta, names)
        further = _evaluated(function, _moved(theta, j, 2 * (point - theta[j])), None, False)[0] if central else None
        slope = (one - base) / (point - theta[j])
        # beside a failure: second order again with a third point, where that one runs
        columns.append(slope if further is None else 2 * slope - (further - base) / (2 * (point - theta[j])))
    kind = "central" if central else "forward"
    return Derivatives(np.column_stack(columns), f"differences ({kind}, relative step {step:.1e})")


def _moved(theta: Vector, j: int, step: float) -> Matrix:
    """Return one point beside theta, shape (1, n_par)."""
    point = theta[None].copy()
    point[0, j] += step
    return point


class _Scaled:
    def __init__(self, function: Function, size: Vector) -> None:
        self.function, self.size = function, size

    def __call__(self, theta: Any) -> Vector:
        return self.function(np.asarray(theta, dtype=float)) / self.size


def _evaluated(function: Function, points: Matrix, executor: Any, progress: Any) -> list[Vector | None]:
    """Return the function at each row; None where it failed or is not finite."""
    runs = spread(function, list(points), executor=executor, progress=progress)
    if runs.interrupted:  # derivatives to some of the parameters are no result
        raise KeyboardInterrupt
    broken = runs.failures[~runs.failures["error"].isin(["SimulationError", "WorkerDied"])]
    if len(broken):
        first = broken.iloc[0]
        raise ArgumentError(f"`func`: a run for the differences ended with {first['error']}: {first['message']}")
    return [None if r is None or not np.isfinite(r).all() else r for r in runs.results]


def _failed(name: str, theta: Vector, names: Sequence[str]) -> SimulationError:
    return SimulationError(
        f"No derivative to {name!r} could be taken: the runs beside these parameters failed. Try func(p) there by "
        "hand, or another `tiny`.",
        parameters=dict(zip(names, map(float, theta), strict=True)),
    )
