"""Validation of a user's covariance of parameters, matched by its labels."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fmepy.checks import as_numbers
from fmepy.errors import ParameterError, listed
from fmepy.parameters.named import check_names
from fmepy.types import Matrix


def labels_of(given: Any) -> list[str] | None:
    """Return the labels of a covariance, None if it has none."""
    unnamed = not isinstance(given, pd.DataFrame) or isinstance(given.columns, pd.RangeIndex)  # pandas' own
    return None if unnamed else list(map(str, given))


def as_covariance(given: Any, names: Sequence[str], argument: str) -> Matrix:
    """Return a covariance in the order of `names`; a table is matched by its labels.

    Raises
    ------
    ParameterError
        It is missing, has another shape or other labels, is not symmetric, or not positive definite.
    """
    return checked_covariance(in_order(given, names, argument), names, argument)


def in_order(given: Any, names: Sequence[str], argument: str) -> Matrix:
    """Return a square matrix in the order of `names`; its values are not checked."""
    if given is None:
        raise ParameterError(f"`{argument}` is missing: give the covariance of the parameters.")
    if isinstance(given, Mapping):
        raise ParameterError(
            f"`{argument}` must be a matrix in the order of the parameters, or a table with their names; got a dict. "
            f"Write np.diag(list(variances.values())), of {listed(names)}."
        )
    labels = labels_of(given)
    if labels is not None:
        check_names(labels, names, argument=argument)
        check_names(names, labels, argument=argument)
        rows = labels if isinstance(given.index, pd.RangeIndex) else [str(k) for k in given.index]
        if sorted(rows) != sorted(labels):
            raise ParameterError(f"`{argument}` has the rows {listed(rows)} but the columns {listed(labels)}.")
        values = as_numbers(given, argument, ParameterError)
        values = values[np.ix_([rows.index(k) for k in names], [labels.index(k) for k in names])]
    else:
        values = as_numbers(given, argument, ParameterError)
    C: Matrix = values.reshape(1, 1) if values.size == 1 else values
    n = len(names)
    if C.shape != (n, n):
        advice = " For variances alone write np.diag(variances)." if C.ndim == 1 or C.shape == (1, 1) else ""
        raise ParameterError(
            f"`{argument}` has shape {C.shape}; {n} parameters ({listed(names)}) need ({n}, {n}).{advice}"
        )
    return C


def checked_covariance(C: Matrix, names: Sequence[str], argument: str) -> Matrix:
    """Return a symmetric covariance; ParameterError if it is not positive definite."""
    if not np.all(np.isfinite(C)):
        blank = [k for k, row in zip(names, C, strict=True) if not np.isfinite(row).any()] or names
        raise ParameterError(
            f"`{argument}` is a covariance without finite values for {listed(blank)}: estimated at a bound, such as an "
            f"sd at zero, or not determined by the data. Give each a variance of its own, {argument}.loc[name, name] = "
            "..., with zeros beside it, or leave it out; where nothing is finite, give standard deviations instead."
        )
    variances = np.diag(C)
    for name, value in zip(names, variances, strict=True):
        if value <= 0:
            raise ParameterError(
                f"`{argument}` is not positive definite: the variance of {name!r} is {value:g}. Leave a parameter that "
                "does not vary out."
            )
    sd = np.sqrt(variances)
    scaled = C / np.outer(sd, sd)
    for i, j in itertools.combinations(range(len(names)), 2):
        if abs(scaled[i, j] - scaled[j, i]) > 1e-8:
            raise ParameterError(
                f"`{argument}` is not symmetric: the covariance of {names[i]!r} and {names[j]!r} is {C[i, j]:g} above "
                f"the diagonal and {C[j, i]:g} below it."
            )
    # parameters may differ in size by many orders: definiteness is judged on the correlations
    values, vectors = np.linalg.eigh(0.5 * (scaled + scaled.T))
    if values[0] <= len(names) * np.finfo(float).eps:
        smallest = np.linalg.eigvalsh(0.5 * (C + C.T))[0]
        weights = np.abs(vectors[:, 0])
        involved = [names[i] for i in np.argsort(-weights) if weights[i] > 0.1]
        raise ParameterError(
            f"`{argument}` is not positive definite: its smallest eigenvalue is {smallest:.3g} (eigenvalue 1 of "
            f"{len(names)}; of the correlation matrix {values[0]:.3g}), in the direction of {listed(involved)}. "
            "They are perfectly correlated, or the matrix is not a covariance."
        )
    return 0.5 * (C + C.T)
