"""Derivatives of a function of a vector by differences, with the runs on workers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

import numpy as np

from fmepy.errors import ArgumentError, SimulationError, sentence
from fmepy.journal.evaluations import Evaluations
from fmepy.numerics.differences import NOISE_FREE, derivatives, magnitudes, measured_noise, roomy_steps
from fmepy.parallel import spread
from fmepy.parallel.resumable import ResumableTasks
from fmepy.parameters.named import Parameters, as_bounds, check_inside
from fmepy.types import Matrix, UserBounds, Vector

_ROUNDING = 4e-16  # of a difference, relative to what is subtracted
_FAINT = 100.0  # times its noise: a smaller derivative is computed once more
_LONG = 1e-2  # of a parameter's size
_SMALL = 1e-4  # of an output's size, by which it changes if a parameter does by its own

Function = Callable[[Vector], Vector]
Box = tuple[Vector, Vector]  # lower and upper bounds


@dataclass(frozen=True, slots=True, eq=False)
class Derivatives:
    """A matrix of derivatives, its method and its noise.

    Attributes
    ----------
    matrix : ndarray, shape (n_row, n_par)
    method : str
    noise : ndarray, shape (n_row, n_par)
        The approximate error of each: of differences the noise of the function over the step, of exact ones a last
        digit of the output for a change of the parameter by its size.
    """

    matrix: Matrix
    method: str
    noise: Matrix


def own_derivatives(
    own: Callable[[Vector], Matrix], theta: Vector, values: Vector, size: Vector, box: Box, method: str,
    tolerance: float | None,
) -> Derivatives:  # fmt: skip
    """Return the derivatives that a model or a cost computes itself.

    Parameters
    ----------
    own : callable
        ``own(theta)``, shape (n_row, n_par).
    size : ndarray, shape (n_row,)
        What counts as one unit of each value.
    tolerance : float or None
        None for exact ones, which are rounded in the last digit of the output, for a change of the parameter by its
        size. Of differences the tolerance of their runs: a solver's error depends on every parameter. Small
        columns are computed once more with their parameters moved a little: real effects stay about the same there.
    """
    matrix, size = own(theta), np.where(size > 0, size, 1.0)
    noise = _over(_ROUNDING * np.abs(values), np.abs(theta))
    width = magnitudes(theta, *box)
    faint = (np.abs(matrix) * width <= _SMALL * size[:, None]).all(axis=0) & (matrix != 0).any(axis=0)
    if tolerance is None or not faint.any():
        return Derivatives(matrix, method, noise)
    noise = np.maximum(noise, tolerance * size[:, None] / width)
    moved = np.clip(theta + np.where(faint, _LONG * width, 0.0), *box)
    try:
        change = (own(moved) - matrix)[:, faint] / size[:, None]
        noise[:, faint] = np.maximum(noise[:, faint], size[:, None] * np.sqrt(np.mean(change**2, axis=0)))
    except SimulationError:
        pass
    return Derivatives(matrix, method, noise)


@dataclass(frozen=True, slots=True, eq=False)
class DifferenceRuns:
    """Settings of the runs for differences: workers, bounds, step, checkpoint."""

    executor: Any
    progress: Any
    lower: UserBounds
    upper: UserBounds
    tiny: float | None
    tasks: ResumableTasks

    def box(self, names: Sequence[str], theta: Vector, declared: Parameters) -> Box:
        """Return the bounds of the parameters `names`: the user's, else those declared by a cost or lmfit."""
        low, high = np.full(theta.size, -np.inf), np.full(theta.size, np.inf)
        if declared.lower is not None and declared.upper is not None:
            known = {n: k for k, n in enumerate(declared.names)}
            for j, name in enumerate(names):
                if name in known:
                    low[j], high[j] = declared.lower[known[name]], declared.upper[known[name]]
        box = as_bounds(self.lower, self.upper, names, declared=(low, high))
        check_inside(theta, *box, names, argument="parms")
        return box

    def differences(
        self, run: Function, theta: Vector, names: Sequence[str], values: Vector, size: Vector, box: Box,
        subtracted: Vector | float = 0.0,
    ) -> Derivatives:  # fmt: skip
        """Return derivatives by differences: with the step that fits the noise of the function, or with `tiny`.

        At an end of the `box`, or where a run on one side fails (central differences), the other side is used.

        Parameters
        ----------
        values : ndarray, shape (n_row,)
            The function at theta, computed by `run` like the values it is compared with.
        size : ndarray, shape (n_row,)
            What counts as one unit of each value: noise is measured in these.
        subtracted : ndarray, optional
            Numbers that were subtracted in the values, for their rounding.
        """
        level = np.abs(values) + np.abs(subtracted)
        question = {"parameters": names, "values of the parameters": theta, "sum of the outputs": values.sum()}
        with self.tasks.evaluations({**question, "number of outputs": values.size}) as known:
            reasons: list[str] = []
            evaluate = partial(self._evaluate, run, known, reasons)
            if self.tiny is None:
                return _fitting_differences(partial(known.evaluate, "run", run), evaluate, theta, names, values, size,
                                            level, box, reasons)  # fmt: skip
            steps = roomy_steps(np.where(theta == 0, self.tiny, np.abs(theta) * self.tiny), *box)
            matrix = _difference_matrix(evaluate, theta, steps, box, names, False, values, reasons)
            return Derivatives(matrix, f"forward, tiny={self.tiny:g}", _over(_ROUNDING * level, steps))

    def _evaluate(
        self, run: Function, known: Evaluations, reasons: list[str], points: Sequence[Vector]
    ) -> list[Vector | None]:
        """Return the function at each row; None where it failed (then `reasons` has why) or is not finite."""
        stored = {i: (True, value) for i, p in enumerate(points) if (value := known.find("run", p)) is not None}
        began, done = time.perf_counter(), count(1)

        def keep(i: int, outcome: tuple[bool, Any]) -> None:
            seconds = (time.perf_counter() - began) / next(done)  # of a run, as far as they are done
            if outcome[0]:
                known.keep(seconds, outcome[1], "run", points[i])

        runs = spread(run, list(points), executor=self.executor, progress=self.progress, known=stored, keep=keep)
        if runs.interrupted:  # derivatives to some of the parameters are no result
            raise KeyboardInterrupt
        broken = runs.failures[~runs.failures["error"].isin(["SimulationError", "WorkerDied"])]
        if len(broken):
            first = broken.iloc[0]
            raise ArgumentError(f"`func`: a run for the differences ended with {first['error']}: {first['message']}")
        reasons += runs.failures["message"].tolist()
        return [None if r is None or not np.isfinite(r).all() else r for r in runs.results]


def _fitting_differences(
    run: Function, evaluate: Any, theta: Vector, names: Sequence[str], values: Vector, size: Vector, level: Vector,
    box: Box, reasons: Sequence[str],
) -> Derivatives:  # fmt: skip
    """Return differences whose step fits the noise of the function, see `fmepy.numerics.differences`.

    Differences that do not exceed their noise are taken once more with a step of a hundredth of the parameter: real
    effects stay, and noise shrinks as the step grows.
    """

    def one(point: Vector) -> Vector | None:
        if np.array_equal(point, theta):
            return values / size
        try:
            outputs = run(point) / size
        except SimulationError:
            return None
        return outputs if np.isfinite(outputs).all() else None

    fitting = measured_noise(one, theta, *box, scalar=False)
    smallest = magnitudes(theta, *box) * np.where(theta == 0, 1.0, 1e-3)
    steps = roomy_steps(fitting.step * np.maximum(np.abs(theta), smallest), *box)
    matrix = _difference_matrix(evaluate, theta, steps, box, names, fitting.central, values, reasons)
    error = _ROUNDING * level
    if fitting.noise >= NOISE_FREE:
        error = np.maximum(error, fitting.absolute * size)
    noise = _over(error, steps)
    faint = (np.abs(matrix) <= _FAINT * noise).all(axis=0)
    long = roomy_steps(_LONG * np.maximum(np.abs(theta), smallest), *box)
    long = np.where(faint & (long > 2 * steps), long, 0.0)
    if long.any():
        further = derivatives(evaluate, theta, long, *box, central=True, base=values)
        for j in np.flatnonzero(long):
            if further[j] is not None:
                change = (matrix[:, j] - further[j]) / size * (steps[j] / long[j])
                noise[:, j] = np.maximum(error / long[j], size * np.sqrt(np.mean(change**2)))
                matrix[:, j] = further[j]
    kind = "central" if fitting.central else "forward"
    return Derivatives(matrix, f"differences ({kind}, relative step {fitting.step:.1e})", noise)


def _over(error: Vector, steps: Vector) -> Matrix:
    """Return the errors of differences, shape (n_row, n_par); none where a parameter does not move."""
    return error[:, None] / np.where(steps > 0, steps, np.inf)


def _difference_matrix(
    evaluate: Any, theta: Vector, steps: Vector, box: Box, names: Sequence[str], central: bool, values: Vector,
    reasons: Sequence[str],
) -> Matrix:  # fmt: skip
    columns = derivatives(evaluate, theta, steps, *box, central=central, base=values)
    for name, column in zip(names, columns, strict=True):
        if column is None:
            raise SimulationError(
                f"No derivative with respect to {name!r} could be taken: the runs near these parameters failed"
                f"{f', the last: {sentence(reasons[-1])}' if reasons else '.'} Try func(p) there, or another `tiny`.",
                parameters=dict(zip(names, map(float, theta), strict=True)),
            )
    return np.column_stack(columns)
