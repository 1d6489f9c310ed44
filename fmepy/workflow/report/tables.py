"""Tables of the report, from frames: numbers with the digits that tell them apart, long ones cut and that told."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fmepy.workflow.report.words import number

MOST_ROWS = 60
MOST_COLUMNS = 24
_MOST_CORRELATED = 20
_MOST_LETTERS = 300
Tone = Callable[[Mapping[Any, Any], str], str]


@dataclass(frozen=True)
class TableCell:
    """A cell of a table: what it shows, what it is sorted by where that is a number, its tone, and where it links."""

    text: str
    key: str = ""
    tone: str = ""
    link: str = ""


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
        What is to be said below it: rows left out.
    """

    caption: str
    columns: tuple[tuple[str, bool], ...]
    rows: tuple[tuple[TableCell, ...], ...]
    note: str = ""


def table_of(
    frame: pd.DataFrame,
    caption: str,
    *,
    heads: Mapping[str, str] | None = None,
    file: str = "",
    most: int = MOST_ROWS,
    tone: Tone | None = None,
) -> Table:
    """Return a frame as a table.

    Parameters
    ----------
    frame : DataFrame
        Its index is not shown.
    caption : str
    heads : mapping of str to str, optional
        What columns are called; by default as in the frame.
    file : str
        Where all rows are, said where some are left out.
    most : int
        Rows that are shown.
    tone : callable of (row, column), optional
        Returns "good" or "bad" for cells that stand out.
    """
    columns = [str(c) for c in frame.columns]
    shown, n_columns = frame.iloc[:most, :MOST_COLUMNS], min(len(columns), MOST_COLUMNS)
    cells, kinds = [], []
    for j in range(n_columns):
        column, is_number = _column(shown.iloc[:, j])
        cells.append(column)
        kinds.append(is_number)
    rows = [list(row) for row in zip(*cells, strict=True)] if cells else []
    if tone is not None:
        for row, record in zip(rows, shown.to_dict("records"), strict=True):
            for j, name in enumerate(columns[:n_columns]):
                found = tone(record, name)
                if found:
                    row[j] = TableCell(row[j].text, row[j].key, found)
    heads = heads or {}
    told = tuple((heads.get(name, name), kind) for name, kind in zip(columns, kinds, strict=False))
    return Table(caption, told, tuple(map(tuple, rows)), _note(frame, most, file))


def correlations(frame: pd.DataFrame, caption: str, alike: float = math.inf) -> Table | None:
    """Return a matrix of correlations, those beyond `alike` in red; None of one parameter, of very many, of nothing."""
    if not 1 < len(frame) <= _MOST_CORRELATED or not np.isfinite(frame.to_numpy()).any():
        return None
    own = [str(c) for c in frame.columns]
    near = frame.round(3)
    shown = near.where((near.abs() < 1) | (frame.abs() == 1), frame).set_axis(own, axis=1).reset_index(drop=True)
    shown.insert(0, "parameter", own, allow_duplicates=True)

    def tone(row: Mapping[Any, Any], column: str) -> str:
        return "bad" if column not in ("parameter", row["parameter"]) and abs(row[column]) > alike else ""

    return table_of(shown, caption, tone=tone)


def _note(frame: pd.DataFrame, most: int, file: str) -> str:
    parts = []
    if len(frame) > most:
        parts.append(f"the first {most} of {len(frame):,} rows")
    if frame.shape[1] > MOST_COLUMNS:
        parts.append(f"the first {MOST_COLUMNS} of {frame.shape[1]:,} columns")
    return f"Shown are {' and '.join(parts)}{f'; all of it is in {file}' if file else ''}." if parts else ""


def _column(values: pd.Series) -> tuple[list[TableCell], bool]:
    """Return the cells of a column, and whether it holds numbers."""
    given = values.tolist()
    floats = [v for v in given if isinstance(v, (int, float, np.number)) and not isinstance(v, (bool, np.bool_))]
    empty = [v for v in given if v is None or v is pd.NA or v is pd.NaT]
    if floats and len(floats) + len(empty) == len(given):
        finite = [float(v) for v in floats if math.isfinite(v)]
        digits = next((d for d in (4, 5, 6) if len({number(v, d) for v in finite}) == len(set(finite))), 7)
        if len(set(finite)) > MOST_ROWS / 2 and digits == 7:  # measured values that nearly agree need no more
            digits = 5
        return [_number_cell(v, digits) for v in given], True
    return [TableCell(_text(v)) for v in given], False


def _number_cell(value: Any, digits: int) -> TableCell:
    if value is None or value is pd.NA or value is pd.NaT or math.isnan(value):
        return TableCell("–")
    value = float(value)
    key = repr(value) if math.isfinite(value) else "Infinity" if value > 0 else "-Infinity"
    return TableCell(number(value, digits), key)


def _text(value: Any) -> str:
    if isinstance(value, (bool, np.bool_)):
        return "yes" if value else "no"
    if value is None or value is pd.NA or value is pd.NaT or (isinstance(value, float) and math.isnan(value)):
        return "–"
    text = number(float(value)) if isinstance(value, (float, np.floating)) else str(value)
    return text if len(text) <= _MOST_LETTERS else text[: _MOST_LETTERS - 1] + "…"
