"""Several starts: where they lie, and the best of what came of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from fmepy.checks import whole_number
from fmepy.errors import ArgumentError, ConvergenceError
from fmepy.fitting.result import ModFit
from fmepy.parameters.named import check_inside, check_names, generated_names
from fmepy.types import Matrix, Vector

__all__ = ["best_of", "starting_points"]

_SAME = 0.1  # in -2 log L: starts that came so near came to the same
_PATIENCE = 30.0  # seconds after Ctrl-C for fits under way to come to the end of an evaluation
_SPREAD = 0.5  # standard deviation of the logarithm of a start that has no box


def starting_points(
    starts: Any, theta0: Vector, lower: Vector, upper: Vector, names: Sequence[str], rng: np.random.Generator
) -> Matrix:
    """Return starts, shape (n_start, n_par), the given one first.

    Parameters
    ----------
    starts : int or table
        A number: a Latin hypercube over the parameters with two finite bounds; the others log-normal around the start
        (normal around a start at zero), moved onto a bound where they pass it. A table: its rows, columns left out stay
        at the start.

    Examples
    --------
    >>> points = starting_points(3, np.array([1.0]), np.zeros(1), np.full(1, 3.0), ["a"], np.random.default_rng(1))
    >>> points.shape, float(points[0, 0])
    ((3, 1), 1.0)
    """
    if isinstance(starts, (pd.DataFrame, Mapping)):
        return _from_table(pd.DataFrame(starts), theta0, lower, upper, names)
    if isinstance(starts, np.ndarray) and starts.ndim == 2:
        return _from_table(
            pd.DataFrame(starts, columns=list(generated_names(starts.shape[1]))), theta0, lower, upper, names
        )
    n, p = whole_number(starts, "starts", 1, hint=", or a table of starts, one row each") - 1, theta0.size
    boxed = np.isfinite(lower) & np.isfinite(upper)
    strata = np.column_stack([rng.permutation(n) for _ in range(p)]) if n else np.empty((0, p))
    cube = (strata + rng.random((n, p))) / max(n, 1)
    normal = rng.standard_normal((n, p))
    around = np.where(theta0 == 0, normal, theta0 * np.exp(_SPREAD * normal))
    box = np.where(boxed, upper - lower, 0.0)
    points = np.clip(np.where(boxed, np.where(boxed, lower, 0.0) + cube * box, around), lower, upper)
    return np.vstack([theta0, points])


def _from_table(table: pd.DataFrame, theta0: Vector, lower: Vector, upper: Vector, names: Sequence[str]) -> Matrix:
    table = table.set_axis(check_names(table.columns, names, argument="starts"), axis=1)
    if len(table) == 0:
        raise ArgumentError("`starts` is an empty table.")
    points = np.tile(theta0, (len(table), 1))
    for column in table.columns:
        points[:, list(names).index(str(column))] = table[column].to_numpy(dtype=float)
    if not np.isfinite(points).all():
        raise ArgumentError("`starts` holds values that are not finite.")
    for row in points:
        check_inside(row, lower, upper, names, argument="starts")
    return points


def best_of(
    one: Callable[..., ModFit], points: Matrix, *, rng: np.random.Generator, executor: Any, progress: Any
) -> ModFit:
    """Return the fit with the lowest cost, its `starts` telling of all.

    Raises
    ------
    ConvergenceError
        No start came to a result.
    """
    from fmepy.parallel import spread

    runs = spread(one, list(points), executor=executor, progress=progress, seed=rng, patience=_PATIENCE)
    fits: list[ModFit | None] = runs.results
    done = [(k, fit) for k, fit in enumerate(fits) if fit is not None]
    if not done:
        if runs.interrupted:
            raise KeyboardInterrupt("before any start came to a result")
        first = runs.failures["message"].iloc[0] if len(runs.failures) else "none was done"
        raise ConvergenceError(f"None of {len(points)} starts came to a result. The first: {first}")
    best = min((fit for _, fit in done), key=lambda fit: fit.deviance)
    rows = [
        {**dict.fromkeys(best.par.index, np.nan), "ssr": np.nan, "converged": False}
        if fit is None
        else {**fit.par.to_dict(), "ssr": fit.deviance, "converged": fit.converged}
        for fit in fits
    ]
    message = best.message
    if best.is_scalar:
        near = sum(fit.deviance - best.deviance <= _SAME for _, fit in done)
        message += f" {near} of {len(fits)} starts came to this value" + (
            "."
            if near == len(fits)
            else f", the worst ended {max(f.deviance for _, f in done) - best.deviance:.3g} above it."
        )
    if runs.interrupted:
        message += f" Ctrl-C: {len(done)} of {len(fits)} starts were begun."
    return replace(
        best,
        message=message,
        all_starts=pd.DataFrame(rows),
        evaluations=sum(fit.evaluations for _, fit in done),
        failures=sum(fit.failures for _, fit in done),
        interrupted=runs.interrupted,
    )
