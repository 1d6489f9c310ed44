"""Tables as they stand in files: CSV, SQLite, DataFrames become columns of cells, each row with its place."""

from __future__ import annotations

import csv
import io
import itertools
import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fmepy.errors import DataError
from fmepy.journal.files import MOST_COLUMNS, MOST_DATA, MOST_ROWS, MOST_TABLE, open_file, read_file
from fmepy.parameters.names import normal_name
from fmepy.types import Vector

MOST_WORK = 1_000
"""Millions of SQLite's instructions, some ten seconds, for all tables and views."""
_MOST_CELL = 100_000  # letters or bytes of one cell
_AT_ONCE = 1_000  # cells
_CELL = 64  # bytes of a cell beside its letters
_DATABASES = (".sqlite", ".sqlite3", ".db")


@dataclass(frozen=True, slots=True, eq=False)
class Sheet:
    """A table: cells by column, an empty one being None.

    Attributes
    ----------
    label : str
        Where it comes from: a file as the user named it, a table in it.
    stem : str
        What the file or table is called: the name of a series of columns time and value.
    columns : dict of str to sequence
        Cells are texts (of CSV), numbers, or None.
    place : callable
        What opens a message about row i, such as "rates.csv:4".
    """

    label: str
    stem: str
    columns: dict[str, Sequence[Any]]
    place: Callable[[int], str]

    def error(self, row: int, message: str) -> DataError:
        """Return the error about a row."""
        return DataError(f"{self.place(row)}: {message}")

    def numbers(self, column: str) -> Vector:
        """Return a column as numbers, NaN where a cell is empty.

        Raises
        ------
        DataError
            A cell is no number, or NaN, or infinite.
        """
        cells = self.columns[column]
        out: Vector = np.empty(len(cells))
        for i, cell in enumerate(cells):
            if cell is None:
                out[i] = np.nan
                continue
            try:
                if isinstance(cell, (bool, np.bool_, bytes)) or (isinstance(cell, str) and "_" in cell):
                    raise ValueError  # float() takes 1_000 and True for numbers
                out[i] = float(cell)
            except (TypeError, ValueError, OverflowError):
                hint = " A decimal point is written '.'." if isinstance(cell, str) and "," in cell else ""
                raise self.error(i, f"{_said(cell)} in column {column!r} is no number.{hint}") from None
            if not np.isfinite(out[i]):
                raise self.error(
                    i, f"{_said(cell)} in column {column!r}; where there is no datum, leave the cell empty."
                )
        return out

    def texts(self, column: str) -> list[str]:
        """Return a column as texts, "" where a cell is empty or there is no such column."""
        if column not in self.columns:
            return [""] * self.rows
        return ["" if cell is None else str(cell).strip() for cell in self.columns[column]]

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(next(iter(self.columns.values()), ()))


def _said(cell: Any) -> str:
    said = repr(cell)
    return said if len(said) <= 60 else said[:57] + "..."


def file_sheets(path: Path, label: str) -> list[Sheet]:
    """Return the tables of a folder of CSV files, of one CSV file, or of a SQLite file.

    Raises
    ------
    DataError
        There is no such file, it cannot be read, or it is neither.
    """
    try:
        if path.is_dir():
            files = sorted(p for p in path.iterdir() if p.suffix.lower() == ".csv" and not p.name.startswith("."))
            if not files:
                raise DataError(f"The folder {label!r} of the data base holds no CSV file.")
            if sum(p.stat().st_size for p in files if p.is_file()) > MOST_TABLE:
                raise DataError(
                    f"The files of {label!r} have more than {MOST_TABLE // 10**6} MB together. Take out what is "
                    "not needed, or keep the data in a SQLite file."
                )
            return [csv_sheet(p, str(Path(label) / p.name)) for p in files]
        if path.suffix.lower() == ".csv":
            return [csv_sheet(path, label)]
        if path.suffix.lower() in _DATABASES:
            return _sqlite_sheets(path, label)
        if not path.exists():
            raise DataError(f"There is no file or folder {label!r} for the data base (looked for {path.absolute()}).")
    except OSError as error:
        raise _unreadable(error, path, label) from None
    known = "a folder of CSV files, a .csv file, or a SQLite file (.sqlite, .sqlite3, .db)"
    raise DataError(f"{label!r} is nothing that a data base is read from: {known}.")


def _unreadable(error: OSError, path: Path, label: str) -> DataError:
    if isinstance(error, FileNotFoundError):
        looked = Path(error.filename or path).absolute()  # in a folder, a link that leads nowhere
        return DataError(f"There is no file {label!r} for the data base (looked for {looked}).")
    return DataError(f"{label!r} of the data base cannot be read: {error.strerror or error}.")


def csv_sheet(path: Path, label: str) -> Sheet:
    """Return a CSV file: UTF-8 (or UTF-16 with its mark), commas, names in the first line; empty lines are skipped.

    Raises
    ------
    DataError
        With file and line.
    """
    try:
        text = _decoded(read_file(path, MOST_TABLE), label)
    except OSError as error:
        raise _unreadable(error, path, label) from None
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    rows: list[list[str | None]] = []
    lines: list[int] = []
    try:
        for row in reader:
            cells = [cell.strip() or None for cell in row]
            if any(cells):
                rows.append(cells)
                lines.append(reader.line_num)
            if len(rows) > MOST_ROWS or len(cells) > MOST_COLUMNS:
                raise DataError(f"{label}: it has more than {MOST_ROWS} rows or {MOST_COLUMNS} columns.")
    except csv.Error as error:
        raise DataError(f"{label}:{reader.line_num}: this is no CSV: {error}.") from None
    if not rows:
        raise DataError(f"{label}: the file is empty.")
    head, body = rows[0], rows[1:]
    if len(head) == 1 and (";" in str(head[0]) or "\t" in str(head[0])):
        raise DataError(f"{label}:{lines[0]}: columns must be separated by commas, and decimals written with a point.")
    for cells, line in zip(body, lines[1:], strict=True):
        if len(cells) != len(head):
            raise DataError(
                f"{label}:{line}: {len(cells)} cells, but {len(head)} columns are named in line {lines[0]}."
            )
    names = _column_names(head, f"{label}:{lines[0]}")
    columns: dict[str, Sequence[Any]] = dict.fromkeys(names, ())
    columns |= zip(names, zip(*body, strict=True), strict=bool(body))
    return Sheet(label, path.stem, columns, lambda i: f"{label}:{lines[i + 1]}")


def _decoded(raw: bytes, label: str) -> str:
    encoding = "utf-16" if raw.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise DataError(
            f"{label}:{line}: this is no {encoding[:6].upper().rstrip('-')} text; save it as UTF-8."
        ) from None
    if "\0" in text:
        raise DataError(
            f"{label}:{text[: text.index(chr(0))].count(chr(10)) + 1}: the file holds bytes that no text has."
        )
    return text


def _column_names(head: Sequence[Any], place: str) -> list[str]:
    names = ["" if name is None else normal_name(str(name).strip()) for name in head]
    if "" in names:
        raise DataError(f"{place}: column {names.index('') + 1} has no name.")
    repeated = [name for i, name in enumerate(names) if name in names[:i]]
    if repeated:
        raise DataError(f"{place}: two columns are called {repeated[0]!r}.")
    return names


def _sqlite_sheets(path: Path, label: str) -> list[Sheet]:
    """Return every table and view of a SQLite file; rows with a time are put in its order, since tables have none."""
    open_file(path, MOST_DATA).close()
    for beside in ("-wal", "-journal"):  # which SQLite reads as well
        if os.path.lexists(other := f"{path}{beside}"):
            open_file(other, MOST_DATA).close()
    asked = itertools.count(1)  # of a view it cannot be told beforehand whether it comes to an end
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MOST_CELL)
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.set_progress_handler(lambda: int(next(asked) > MOST_WORK), 1_000_000)
            found = connection.execute(
                "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%' "
                "ORDER BY name"
            ).fetchall()
            if not found:
                raise DataError(f"{label!r} holds no table.")
            room = [MOST_DATA]
            return [_sqlite_sheet(connection, name, label, room) for (name,) in found]
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise DataError(f"{label!r} cannot be read as a SQLite file: {error}.") from None


def _sqlite_sheet(connection: sqlite3.Connection, name: str, label: str, room: list[int]) -> Sheet:
    """Return a table or view; what it takes of the room, in bytes, is taken off."""
    quoted = '"' + name.replace('"', '""') + '"'
    cursor = connection.execute(f"SELECT * FROM {quoted}")
    head = [column[0] for column in cursor.description]
    rows: list[Any] = []
    while some := cursor.fetchmany(max(1, _AT_ONCE // len(head))):
        rows += some
        room[0] -= sum(_CELL + (len(cell) if isinstance(cell, (str, bytes)) else 0) for row in some for cell in row)
        if len(rows) > MOST_ROWS:
            raise DataError(f"{label}, table {name}: it has more than {MOST_ROWS} rows.")
        if room[0] < 0:
            raise DataError(f"{label}: its tables have more than {MOST_DATA // 10**6} MB; take out what is not needed.")
    names = _column_names(head, f"{label}, table {name}")
    numbers = list(range(1, len(rows) + 1))
    if "time" in names:
        at = names.index("time")
        ranked = sorted(range(len(rows)), key=lambda i: _rank(rows[i][at]))
        rows, numbers = [rows[i] for i in ranked], [i + 1 for i in ranked]
    cells = (
        [None if isinstance(c, str) and not c.strip() else c for c in column] for column in zip(*rows, strict=True)
    )
    columns: dict[str, Sequence[Any]] = dict.fromkeys(names, ())
    columns |= zip(names, cells, strict=bool(rows))
    return Sheet(
        f"{label}, table {name}", normal_name(name), columns, lambda i: f"{label}, table {name}, row {numbers[i]}"
    )


def _rank(cell: Any) -> tuple[bool, float]:
    """Return the place of a time in the order; what is no number comes last, and is told later."""
    try:
        return False, float(cell)
    except (TypeError, ValueError):
        return True, 0.0


def frame_sheet(frame: pd.DataFrame, label: str) -> Sheet:
    """Return a DataFrame; NaN and None are empty cells. An index called time is a column."""
    if frame.index.name == "time" and "time" not in frame.columns:
        frame = frame.reset_index()
    names = _column_names([None if c is None else str(c) for c in frame.columns], label)
    columns: dict[str, Sequence[Any]] = {}
    for i, name in enumerate(names):
        column = frame.iloc[:, i]
        empty = column.isna().to_numpy()
        columns[name] = [None if e else c for c, e in zip(column.tolist(), empty, strict=True)]
    return Sheet(label, "value", columns, lambda i: f"{label}, row {i}")
