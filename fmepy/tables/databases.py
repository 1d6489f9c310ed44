"""The tables of a data base: of a folder of text files, of one text file, or of a SQLite file."""

from __future__ import annotations

import itertools
import logging
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pandas as pd

from fmepy.errors import DataError
from fmepy.journal.files import MOST_DATA, MOST_ROWS, MOST_TABLE, open_file
from fmepy.parameters.names import normal_name
from fmepy.tables.sheet import Sheet, column_names
from fmepy.tables.text_files import read_text_file, unreadable

logger = logging.getLogger(__name__)

MOST_WORK = 1_000
"""Millions of SQLite's instructions, some ten seconds, for all tables and views."""
_MOST_CELL = 100_000  # letters or bytes of one cell
_AT_ONCE = 1_000  # cells
_CELL = 64  # bytes of a cell beside its letters
_DATABASES = (".sqlite", ".sqlite3", ".db")


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
            return [_text_sheet(p, str(Path(label) / p.name)) for p in files]
        if path.suffix.lower() == ".csv":
            return [_text_sheet(path, label)]
        if path.suffix.lower() in _DATABASES:
            return _sqlite_sheets(path, label)
        if not path.exists():
            raise DataError(f"There is no file or folder {label!r} for the data base (looked for {path.absolute()}).")
    except OSError as error:
        raise _refused(error, path, label) from None
    known = "a folder of CSV files, a .csv file, or a SQLite file (.sqlite, .sqlite3, .db)"
    raise DataError(f"{label!r} is nothing that a data base is read from: {known}.")


def _text_sheet(path: Path, label: str) -> Sheet:
    try:
        sheet = read_text_file(path, label)
    except OSError as error:
        raise _refused(error, path, label) from None
    for sentence in sheet.notes:
        logger.info(sentence)
    return sheet


def _refused(error: OSError, path: Path, label: str) -> DataError:
    message = unreadable(error, path, label)
    return DataError(message[:1].upper() + message[1:])


def _sqlite_sheets(path: Path, label: str) -> list[Sheet]:
    """Return every table and view of a SQLite file; rows with a time are put in its order, since tables have none."""
    open_file(path, MOST_DATA).close()
    for beside in ("-wal", "-journal"):  # which SQLite reads as well
        if os.path.lexists(other := f"{path}{beside}"):
            open_file(other, MOST_DATA).close()
    calls = itertools.count(1)  # of a view it cannot be told beforehand whether it comes to an end
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MOST_CELL)
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.set_progress_handler(lambda: int(next(calls) > MOST_WORK), 1_000_000)
            tables = connection.execute(
                "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%' "
                "ORDER BY name"
            ).fetchall()
            if not tables:
                raise DataError(f"{label!r} holds no table.")
            room = [MOST_DATA]
            return [_sqlite_sheet(connection, name, label, room) for (name,) in tables]
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
    label = f"{label}, table {name}"
    names = column_names(head, label)
    lines = list(range(1, len(rows) + 1))
    if "time" in names:
        at = names.index("time")
        lines.sort(key=lambda line: _rank(rows[line - 1][at]))
    ordered = [[None if isinstance(c, str) and not c.strip() else c for c in rows[line - 1]] for line in lines]
    frame = pd.DataFrame(ordered, index=lines, columns=names, dtype=object)
    return Sheet(label, normal_name(name), frame)


def _rank(cell: Any) -> tuple[bool, float]:
    """Return the place of a time in the order; what is no number comes last, and is told later."""
    try:
        return False, float(cell)
    except (TypeError, ValueError):
        return True, 0.0
