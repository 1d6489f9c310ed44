"""Derivatives of a function of a vector by differences, the runs spread where they are wanted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fmepy.errors import ArgumentError, SimulationError
from fmepy.numerics.differences import derivatives, magnitudes, measured_noise, roomy_steps
from fmepy.parallel import spread
from fmepy.types import Matrix, Vector

Function = Callable[[Vector], Vector]
Box = tuple[Vector, Vector]  # lower and upper bounds


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
    box: Box,
    *,
    executor: Any = None,
    progress: Any = False,
) -> Derivatives:
    """Return forward differences with the step ``|theta| * tiny``, `tiny` itself where theta is 0.

    `values` is the function at theta. At the upper bound of the `box` the step goes backward.

    Examples
    --------
    >>> everywhere = np.array([-np.inf]), np.array([np.inf])
    >>> square = lambda p: p**2
    >>> forward_differences(square, np.array([3.0]), np.array([9.0]), 1e-6, ["a"], everywhere).matrix.round(4)
    array([[6.]])
    """
    steps = roomy_steps(np.where(theta == 0, tiny, np.abs(theta) * tiny), *box)
    matrix = _taken(function, theta, steps, box, names, False, values, executor, progress)
    return Derivatives(matrix, f"forward, tiny={tiny:g}")


def by_fitting_differences(
    function: Function,
    theta: Vector,
    values: Vector,
    size: Vector,
    names: Sequence[str],
    box: Box,
    *,
    executor: Any = None,
    progress: Any = False,
) -> Derivatives:
    """Return differences whose step fits the noise of the function, see `fmepy.numerics.differences`.

    `values` is the function at theta; `size` is what counts as one unit of each value: noise is measured in these.
    Where a run on one side fails, or lies outside the `box`, the other side serves.
    """

    def one(point: Vector) -> Vector | None:
        if np.array_equal(point, theta):
            return values / size
        try:
            found = function(point) / size
        except SimulationError:
            return None
        return found if np.isfinite(found).all() else None

    fitting = measured_noise(one, theta, *box, scalar=False)
    smallest = magnitudes(theta, *box) * np.where(theta == 0, 1.0, 1e-3)
    steps = roomy_steps(fitting.step * np.maximum(np.abs(theta), smallest), *box)
    matrix = _taken(function, theta, steps, box, names, fitting.central, values, executor, progress)
    kind = "central" if fitting.central else "forward"
    return Derivatives(matrix, f"differences ({kind}, relative step {fitting.step:.1e})")


def _taken(
    function: Function, theta: Vector, steps: Vector, box: Box, names: Sequence[str], central: bool, values: Vector,
    executor: Any, progress: Any,
) -> Matrix:  # fmt: skip
    def evaluate(points: list[Vector]) -> list[Vector | None]:
        return _evaluated(function, points, executor, progress)

    columns = derivatives(evaluate, theta, steps, *box, central=central, base=values)
    for name, column in zip(names, columns, strict=True):
        if column is None:
            raise _failed(name, theta, names)
    return np.column_stack(columns)


def _evaluated(function: Function, points: Sequence[Vector], executor: Any, progress: Any) -> list[Vector | None]:
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
