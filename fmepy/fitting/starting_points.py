"""The starts of several searches: the user's table, or a Latin hypercube, each parameter on a scale that suits it.

=================  ====================================================================================================
"log"              evenly in the logarithm, between two positive bounds of which the upper is at least 100 times the
                   lower; for parameters that are not transformed already
"linear"           evenly, between two finite bounds
"around p"         no two finite bounds: log-normal around the given value with a standard deviation of 0.5 (a factor of
                   1.6), normal with 1 around zero; what passes a bound is put on it
=================  ====================================================================================================

Every one of n equal parts of a parameter's scale holds one of n starts, at an even place in it; the parts of different
parameters are paired at random (McKay, Beckman and Conover 1979, as ``scipy.stats.qmc.LatinHypercube``, which takes
longer to import than many fits to run). A start where the cost fails is no start: it is drawn anew, before any search
begins, where one evaluation tells it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fmepy.checks import whole_number
from fmepy.errors import ArgumentError, ConvergenceError, ParameterError
from fmepy.fitting.problem import Problem
from fmepy.parameters.named import check_inside, check_names, generated_names
from fmepy.tables.columns import finite_numbers
from fmepy.types import BoolVector, Matrix

_DECADES = 100.0  # the ratio of bounds from which a parameter is drawn by its logarithm
_SPREAD = 0.5  # standard deviation of the logarithm of a start that has no box
_ROUNDS = 20  # so often starts that fail are drawn anew
_EDGE = 1e-9  # a normal deviate of less than that is none


@dataclass(frozen=True, slots=True, eq=False)
class Design:
    """Starts, and how they were drawn.

    Attributes
    ----------
    points : ndarray, shape (n_start, n_par)
    scales : dict of str to str
        "log", "linear", "around p" by parameter; "given" in a table.
    replaced : int
        Starts whose cost failed and which were drawn anew.
    """

    points: Matrix
    scales: dict[str, str]
    replaced: int = 0


def as_starts(starts: Any) -> int | pd.DataFrame:
    """Return a number of starts, or a table of them.

    Raises
    ------
    ArgumentError
        It is neither, or an empty table.

    Examples
    --------
    >>> as_starts(10)
    10
    >>> as_starts({"a": [1.0, 2.0]}).shape
    (2, 1)
    """
    if isinstance(starts, (pd.DataFrame, Mapping, np.ndarray, list, tuple)):
        try:
            table = pd.DataFrame(starts)
        except ValueError as error:
            raise ArgumentError(f"`starts` is not a table of starts, one row each: {error}.") from None
        if not table.size:
            raise ArgumentError("`starts` is an empty table.")
        return table
    return whole_number(starts, "starts", 1, hint=", or a table of starts, one row each")


def starting_points(starts: int | pd.DataFrame, problem: Problem, scales: Scales, rng: np.random.Generator) -> Design:
    """Return the starts; of a number the first is that of the problem, if its cost does not fail there.

    Parameters
    ----------
    starts : int or DataFrame
    problem : Problem
    scales : Scales
    rng : Generator

    Raises
    ------
    ConvergenceError
        The cost fails wherever it was tried.
    ParameterError, ArgumentError
        A table with a parameter that there is not, with values that are no finite numbers, or outside the bounds.
    """
    if not isinstance(starts, int):
        return Design(_from_table(starts, problem), dict.fromkeys(problem.names, "given"))
    points = np.vstack([problem.start, _drawn(starts - 1, problem, scales, rng)])
    fails = _fails(problem, points)
    replaced = int(fails.sum())
    for _ in range(_ROUNDS):
        if not fails.any():
            break
        rows = np.flatnonzero(fails)
        points[rows] = _drawn(len(rows), problem, scales, rng)
        fails[rows] = _fails(problem, points[rows])
    if fails.all():
        raise ConvergenceError(
            f"None of {starts * (_ROUNDS + 1)} starts can be used: the cost fails at each of them. The last failure: "
            f"{problem.objective.last_failure or 'the prior excludes it'} Give bounds (lower=, upper=) where the cost "
            "can be evaluated, or a table of starts."
        )
    how = {
        name: "log" if log else "linear" if boxed else "around p"
        for name, log, boxed in zip(problem.names, scales.log, scales.boxed, strict=True)
    }
    return Design(points, how, replaced)


def _fails(problem: Problem, points: Matrix) -> BoolVector:
    """Tell where no search can begin; an sd at zero may be let go from there, which a search sees to."""
    at_zero = (problem.noise_scales & (points == 0)).any(axis=1)
    return np.asarray(~np.isfinite(problem.costs(points)) & ~at_zero)


class Scales:
    """The scales on which the parameters of a problem are drawn and compared: 0 to 1 in a box, else in their sizes.

    Attributes
    ----------
    boxed, log : ndarray of bool, shape (n_par,)
        Parameters with two finite bounds; those of them that are drawn by their logarithm.
    """

    def __init__(self, problem: Problem, taken: Mapping[str, str] | None) -> None:
        lower, upper = problem.lower, problem.upper
        plain = np.array([name not in (taken or {}) for name in problem.names])
        self.boxed = np.isfinite(lower) & np.isfinite(upper)
        low, high = np.where(self.boxed, lower, 0.0), np.where(self.boxed, upper, problem.scale)
        self.log = plain & self.boxed & (low > 0) & (high >= _DECADES * low)
        self.low, self.high = _logs(low, self.log), _logs(high, self.log)
        self.lower, self.upper = lower, upper

    def unit(self, points: Matrix) -> Matrix:
        """Return parameters on their scales, shape (n, n_par)."""
        width = np.where(self.high > self.low, self.high - self.low, 1.0)
        return np.asarray((_logs(points, self.log) - self.low) / width)

    def points(self, unit: Matrix) -> Matrix:
        """Return the parameters at these places on their scales, inside the bounds."""
        out = self.low + unit * (self.high - self.low)
        out[:, self.log] = np.exp(out[:, self.log])
        return np.asarray(np.clip(out, self.lower, self.upper))


def _logs(values: Any, which: BoolVector) -> Any:
    return np.where(which, np.log(np.where(which, values, 1.0)), values)


def _drawn(n: int, problem: Problem, scales: Scales, rng: np.random.Generator) -> Matrix:
    """Return n starts, shape (n, n_par)."""
    from scipy.special import ndtri

    start = problem.start
    strata = np.column_stack([rng.permutation(n) for _ in range(start.size)])
    cube = (strata + rng.random((n, start.size))) / max(n, 1)
    normal = ndtri(np.clip(cube, _EDGE, 1 - _EDGE))
    around = np.where(start == 0, normal, start * np.exp(_SPREAD * normal))
    inside = np.clip(around, problem.lower, problem.upper)
    return np.asarray(np.where(scales.boxed, scales.points(cube), inside))


def _from_table(table: pd.DataFrame, problem: Problem) -> Matrix:
    names: Sequence[str] = problem.names
    if [*table.columns] == [*range(table.shape[1])]:  # an array: all parameters, in order
        if table.shape[1] != len(names):
            raise ParameterError(
                f"`starts` has {table.shape[1]} columns without names; there are {len(names)} parameters: "
                f"{', '.join(names)}. Give an array with a column for each, or a table with named columns."
            )
        table = table.set_axis(list(names), axis=1)
    elif tuple(map(str, table.columns)) == generated_names(len(names)):
        table = table.set_axis(list(names), axis=1)
    table = table.set_axis(list(check_names(table.columns, names, argument="starts")), axis=1)
    points = np.tile(problem.start, (len(table), 1))
    points[:, [list(names).index(str(column)) for column in table.columns]] = finite_numbers(table, "starts")
    for row in points:
        check_inside(row, problem.lower, problem.upper, names, argument="starts")
    return points
