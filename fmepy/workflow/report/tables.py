"""Tables of the report, from frames: numbers with enough digits to differ, long tables cut with a note."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_number

from fmepy.tables.sheet import is_missing
from fmepy.workflow.report.words import number, short

MOST_ROWS = 60
MOST_COLUMNS = 24
_MOST_CORRELATED = 20
_ALIKE = 0.95  # correlation beyond which parameters are hard to tell apart
_MOST_LETTERS = 300
_MISSING = "–"
Tone = Callable[[Mapping[Any, Any], str], str]


@dataclass(frozen=True)
class TableCell:
    """A cell of a table: its text, the number by which it sorts, if any, and its tone."""

    text: str
    key: str = ""
    tone: str = ""


@dataclass(frozen=True)
class Table:
    """A table that sorts.

    Attributes
    ----------
    caption : str
    columns : tuple of (str, bool)
        Heads, and whether the column holds numbers.
    rows : tuple of tuple of TableCell
    note : str
        A sentence below it, on rows left out.
    links : collection of str
        The texts of the first column that lead to the section of that name.
    """

    caption: str
    columns: tuple[tuple[str, bool], ...]
    rows: tuple[tuple[TableCell, ...], ...]
    note: str = ""
    links: Collection[str] = ()


def table_of(
    frame: pd.DataFrame | None,
    caption: str,
    *,
    heads: Mapping[str, str] | None = None,
    file: str = "",
    most: int = MOST_ROWS,
    tone: Tone = lambda row, column: "",
    links: Collection[str] = (),
) -> Table | None:
    """Return a frame as a table; None without a frame or without rows.

    Parameters
    ----------
    frame : DataFrame or None
        Its index is not shown.
    caption : str
    heads : mapping of str to str, optional
        What columns are called; by default as in the frame.
    file : str
        The file with all rows, named where some are left out.
    most : int
        Rows that are shown.
    tone : callable of (row, column), optional
        Returns "good" or "bad" for cells that stand out.
    links : collection of str
        See `Table`.
    """
    if frame is None or not len(frame):
        return None
    shown, heads = frame.iloc[:most, :MOST_COLUMNS], heads or {}
    names, columns, heading = [str(c) for c in shown.columns], [], []
    records = shown.to_dict("records")
    for j, name in enumerate(names):
        cells, has_numbers = _column(shown.iloc[:, j].tolist())
        heading.append((heads.get(name, name), has_numbers))
        columns.append([replace(cell, tone=tone(row, name)) for cell, row in zip(cells, records, strict=True)])
    return Table(caption, tuple(heading), tuple(zip(*columns, strict=True)), _note(frame, most, file), links)


def alike(R: pd.DataFrame) -> list[str]:
    """Return the pairs of parameters that are hard to tell apart, those of the highest correlation first."""
    own, values = [str(c) for c in R.columns], R.to_numpy(dtype=float)
    pairs = [(i, j) for i in range(len(own)) for j in range(i) if abs(values[i, j]) > _ALIKE]
    pairs.sort(key=lambda ij: -abs(values[ij]))
    return [f"{own[j]} and {own[i]} (correlation {number(values[i, j], 2)})" for i, j in pairs]


def correlations(frame: pd.DataFrame, caption: str) -> Table | None:
    """Return a matrix of correlations, with those near one in red; None for one parameter or very many."""
    known = frame.notna().any().to_numpy()  # what lies on a bound has none
    frame = frame.loc[known, known]
    if not 1 < len(frame) <= _MOST_CORRELATED or not np.isfinite(frame.to_numpy()).any():
        return None
    own = [str(c) for c in frame.columns]
    near = frame.round(3)
    shown = near.where((near.abs() < 1) | (frame.abs() == 1), frame).set_axis(own, axis=1).reset_index(drop=True)
    shown.insert(0, "parameter", own, allow_duplicates=True)

    def tone(row: Mapping[Any, Any], column: str) -> str:
        return "bad" if column not in ("parameter", row["parameter"]) and abs(row[column]) > _ALIKE else ""

    return table_of(shown, caption, tone=tone)


def _note(frame: pd.DataFrame, most: int, file: str) -> str:
    parts = []
    if len(frame) > most:
        parts.append(f"the first {most} of {len(frame):,} rows")
    if frame.shape[1] > MOST_COLUMNS:
        parts.append(f"the first {MOST_COLUMNS} of {frame.shape[1]:,} columns")
    return f"The table shows {' and '.join(parts)}{f'; {file} has all of it' if file else ''}." if parts else ""


def _column(values: Sequence[Any]) -> tuple[list[TableCell], bool]:
    """Return the cells of a column, and whether it holds numbers."""
    numbers = [v for v in values if _is_number(v)]
    if not numbers or not all(_is_number(v) or is_missing(v) for v in values):
        return [TableCell(_text(v)) for v in values], False
    finite = {number(v, 7) for v in numbers if math.isfinite(v)}
    digits = next((d for d in (4, 5, 6) if len({number(float(v), d) for v in finite}) == len(finite)), 7)
    if len(finite) > MOST_ROWS / 2 and digits == 7:  # measured values that nearly agree need no more
        digits = 5
    return [_number_cell(v, digits) for v in values], True


def _is_number(value: Any) -> bool:
    return bool(is_number(value)) and not isinstance(value, bool)


def _number_cell(value: Any, digits: int) -> TableCell:
    if is_missing(value):
        return TableCell(_MISSING)
    value = float(value)
    key = repr(value) if math.isfinite(value) else "Infinity" if value > 0 else "-Infinity"
    return TableCell(number(value, digits), key)


def _text(value: Any) -> str:
    if isinstance(value, (bool, np.bool_)):
        return "yes" if value else "no"
    if is_missing(value):
        return _MISSING
    text = number(float(value)) if isinstance(value, (float, np.floating)) else str(value)
    return short(text, _MOST_LETTERS)
