"""What a user's function of a model returned, as numbers: a table by columns, everything else as one row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fmepy.errors import ArgumentError, did_you_mean, listed, repeated
from fmepy.types import Matrix, Vector


@dataclass(frozen=True, slots=True, eq=False)
class UserTable:
    """What a user's function returned, as numbers."""

    x: Vector | None  # None: there is no such column
    x_name: str
    var_names: tuple[str, ...]
    Y: Matrix
    x_place: int | None = None


def as_user_table(result: Any, map: int | str | None) -> UserTable:
    """Return what a user's function returned, as numbers; tables by columns, everything else as one row."""
    if isinstance(result, pd.DataFrame):
        names = [str(c) for c in result.columns]
        try:
            values = result.to_numpy(dtype=float)
        except (TypeError, ValueError):  # some column is not of numbers: which one is told on the way by columns
            return _from_table(names, [result.iloc[:, j] for j in range(result.shape[1])], map)
        return _from_matrix(names, values, map)
    if isinstance(result, pd.Series):
        return _one_row([str(k) for k in result.index], result.to_numpy())
    if isinstance(result, Mapping):
        names = [str(k) for k in result]
        sizes = {np.ndim(v): np.size(v) for v in result.values()}
        if set(sizes) <= {0}:
            return _one_row(names, list(result.values()))
        if set(sizes) == {1} and len({np.size(v) for v in result.values()}) == 1:
            return _from_table(names, list(result.values()), map)
        raise ArgumentError(
            "`func` returned a mapping whose entries differ in length: "
            f"{ {str(k): np.shape(v) for k, v in result.items()} }. Return numbers, or equally long columns."
        )
    if hasattr(result, "model") and hasattr(result, "residuals") and hasattr(result, "var"):
        raise ArgumentError("`func` returned a ModCost; the model's own output is needed: a table, or one row.")
    try:
        values = np.asarray("" if result is None else result, dtype=float)  # numpy takes None for NaN
    except (TypeError, ValueError):
        raise ArgumentError(
            f"`func` returned {type(result).__name__}; a table (DataFrame, mapping of columns) or one row (Series, "
            "dict of numbers, number) is needed."
        ) from None
    if values.ndim == 2:
        return _from_matrix([f"X{j + 1}" for j in range(values.shape[1])], values, map)
    if values.ndim > 2:
        raise ArgumentError(f"`func` returned an array of shape {values.shape}; one or two dimensions are needed.")
    return _one_row([f"X{j + 1}" for j in range(values.size)], values.reshape(-1))


def _one_row(names: list[str], values: Any) -> UserTable:
    _check_columns(names)
    return UserTable(None, "x", tuple(names), np.array([[_number(v, k) for k, v in zip(names, values, strict=True)]]))


def _number(value: Any, name: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ArgumentError(f"`func` returned {value!r} for {name!r}; a number is needed.") from None


def _from_table(names: list[str], columns: Sequence[Any], map: int | str | None) -> UserTable:
    place = _place(names, map)
    values = np.empty((len(columns[0]), len(names)))
    for j, (name, column) in enumerate(zip(names, columns, strict=True)):
        advice = "x must hold numbers; pass map=None or another column" if j == place else "leave it out"
        values[:, j] = _column(column, name, advice)
    return _from_matrix(names, values, map)


def _from_matrix(names: list[str], values: Matrix, map: int | str | None) -> UserTable:
    place = _place(names, map)
    if len(values) == 0:
        raise ArgumentError("`func` returned a table without rows.")
    variables = names if place is None else names[:place] + names[place + 1 :]
    _check_columns(variables)
    if place is None:
        return UserTable(None, "x", tuple(variables), values.copy())
    kept = np.arange(len(names)) != place
    return UserTable(values[:, place].copy(), names[place], tuple(variables), values[:, kept], place)


def _column(values: Any, name: str, advice: str) -> Vector:
    try:
        return np.array(values, dtype=float)
    except (TypeError, ValueError):
        raise ArgumentError(f"`func`: the column {name!r} does not hold numbers ({advice}).") from None


def _check_columns(names: Sequence[str]) -> None:
    if not names:
        raise ArgumentError(
            "`func` returned no variable: the only column is x. If it is a variable, pass map=None (there is no x)."
        )
    if twice := repeated(names):
        raise ArgumentError(f"`func` returned more than one variable {listed(twice)}.")


def _place(names: Sequence[str], map: int | str | None) -> int | None:
    """Return the position of the column of x."""
    if map is None:
        return None
    if isinstance(map, str):
        if map not in names:
            raise ArgumentError(
                f"`map={map!r}`: there is no such column.{did_you_mean(map, names)} There are {listed(names)}."
            )
        return names.index(map)
    if isinstance(map, bool) or not isinstance(map, (int, np.integer)):
        raise ArgumentError(f"`map={map!r}` must be the position of the column of x from 0, its name, or None.")
    if not 0 <= map < len(names):
        raise ArgumentError(f"`map={map}`: positions go from 0 to {len(names) - 1} ({listed(names)}).")
    return int(map)
