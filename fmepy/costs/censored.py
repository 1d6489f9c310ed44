"""Readings beyond a limit: how they are marked in a table; `numerics.tails` has their part in a likelihood."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fmepy.costs.observation_scale import OBSERVED
from fmepy.errors import ArgumentError, DataError, check_known
from fmepy.parameters.names import normal_name
from fmepy.tables.columns import Columns
from fmepy.types import IntVector, Vector

MARKS = {"<": -1, ">": 1}
"""The reading lies below, above the number that stands in the column of values."""
PLAIN = ("", "=")


Cells = Mapping[str, tuple[Vector, IntVector]]


def mark_columns(table: Columns, censored: Any, y: str | None) -> dict[str | None, int]:
    """Return the position of the column of marks by variable; None stands for all.

    Parameters
    ----------
    table : Columns
    censored : None, str, or mapping of variable to str
    y : str or None
        The column of values of a long table.

    Raises
    ------
    ArgumentError, DataError
        A mapping with a long table; a column that is not there.
    """
    if censored is None:
        return {}
    if not isinstance(censored, Mapping):
        return {None: table.position(censored, "censored")}
    if y is not None:
        raise ArgumentError(
            "`censored` by variable is for wide tables; a long one has a column of marks beside its values. Pass its "
            f"name, such as censored={next(iter(censored.values()), 'mark')!r}."
        )
    return {normal_name(name): table.position(column, f"censored[{name!r}]") for name, column in censored.items()}


def marks_by_variable(table: Columns, columns: Mapping[str | None, int], cells: Cells) -> dict[str, IntVector]:
    """Return the marks of all rows of the table, for every variable that has a column of them.

    Parameters
    ----------
    table : Columns
    columns : mapping of variable to position
        From `mark_columns`.
    cells : mapping of variable to (values, rows)

    Raises
    ------
    DataError
        A mark that is none; a mark without a limit; one mark for several readings in a row; an unknown variable.
    """
    out: dict[str, IntVector] = {}
    for variable, position in columns.items():
        if variable is not None:
            check_known(variable, cells, f"`censored`: {variable!r} is not an observed variable.", DataError, OBSERVED)
        marks = _marks(table.column(position), table.names[position])
        own = cells if variable is None else {variable: cells[variable]}
        _check_limits(marks, own, table.rows, table.names[position])
        out.update(dict.fromkeys(own, marks))
    return out


def _marks(column: pd.Series, name: str) -> IntVector:
    out = np.zeros(len(column), dtype=np.intp)
    for i, (row, mark) in enumerate(column.items()):
        text = "" if pd.isna(mark) else str(mark).strip()
        if text in PLAIN:
            continue
        if text not in MARKS:
            raise DataError(
                f"`censored`: column {name!r} holds {mark!r} in row {row}. A reading below the limit that stands in "
                "the column of values is marked '<', one above it '>'; a plain reading has '', '=' or nothing there."
            )
        out[i] = MARKS[text]
    return out


def _check_limits(marks: IntVector, cells: Cells, rows: Sequence[Any], column: str) -> None:
    """Raise a DataError for a mark that has no limit beside it, or several."""
    there = np.zeros(len(marks), dtype=np.intp)
    for values, take in cells.values():
        np.add.at(there, take, (~np.isnan(values)).astype(np.intp))
    for i in np.flatnonzero((marks != 0) & (there != 1))[:1]:
        mark = signs(marks[[i]])[0]
        if not there[i]:
            raise DataError(
                f"`censored`: column {column!r} holds {mark!r} in row {rows[i]}, where there is no value. The limit "
                "belongs in the column of values."
            )
        raise DataError(
            f"`censored`: column {column!r} holds {mark!r} in row {rows[i]}, which has {there[i]} values: of which one "
            "is not said. Give a column of marks by variable, such as censored={'A': 'mark_A'}, or a long table."
        )


def signs(marks: IntVector) -> list[str]:
    """Return the marks as they stand in tables."""
    return [{-1: "<", 1: ">"}.get(m, "") for m in marks.tolist()]
