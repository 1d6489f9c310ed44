"""What a user's function of a model returned, as numbers: a table by columns, everything else as one row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fmepy.errors import ArgumentError, did_you_mean, listed, repeated
from fmepy.tables.columns import Columns
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
    if isinstance(result, pd.Series):
        return _one_row([str(k) for k in result.index], result.tolist())
    if isinstance(result, Mapping):
        sizes = {np.ndim(v): np.size(v) for v in result.values()}
        if set(sizes) <= {0}:
            return _one_row([str(k) for k in result], list(result.values()))
        if set(sizes) != {1} or len({np.size(v) for v in result.values()}) > 1:
            raise ArgumentError(
                "`func` returned a mapping whose entries differ in length: "
                f"{ {str(k): np.shape(v) for k, v in result.items()} }. Return numbers, or equally long columns."
            )
        result = {k: np.asarray(v) for k, v in result.items()}  # which takes no table of pandas' on the way
    if isinstance(result, pd.DataFrame | Mapping):
        return _from_columns(Columns(result, "func"), map)
    if hasattr(result, "model") and hasattr(result, "residuals") and hasattr(result, "var"):
        raise ArgumentError("`func` returned a ModCost; the model's own output is needed: a table, or one row.")
    try:
        values = np.asarray("" if result is None else result, dtype=float)  # numpy takes None for NaN
    except (TypeError, ValueError):
        raise ArgumentError(
            f"`func` returned {type(result).__name__}; a table (DataFrame, mapping of columns) or one row (Series, "
            "dict of numbers, number) is needed."
        ) from None
    if values.ndim > 2:
        raise ArgumentError(f"`func` returned an array of shape {values.shape}; one or two dimensions are needed.")
    if values.ndim < 2:
        return _one_row([f"X{j + 1}" for j in range(values.size)], values.ravel().tolist())
    return _from_columns(Columns({f"X{j + 1}": column for j, column in enumerate(values.T)}, "func"), map)


def _one_row(names: list[str], values: list[Any]) -> UserTable:
    _check_columns(names)
    return UserTable(None, "x", tuple(names), np.array([[_number(v, k) for k, v in zip(names, values, strict=True)]]))


def _number(value: Any, name: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ArgumentError(f"`func` returned {value!r} for {name!r}; a number is needed.") from None


def _from_columns(columns: Columns, map: int | str | None) -> UserTable:
    names, place = columns.names, _place(columns.names, map)
    _check_columns(names if place is None else names[:place] + names[place + 1 :])
    values = columns.matrix()
    if place is None:
        return UserTable(None, "x", tuple(names), values)
    others = np.arange(len(names)) != place
    variables = tuple(names[:place] + names[place + 1 :])
    return UserTable(values[:, place].copy(), names[place], variables, values[:, others], place)


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
