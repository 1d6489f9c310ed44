"""A table from a text file, however it was written: encoding, separator and decimal mark are found, and told.

The rows keep the line of the file in which they stand, as the index of the table, so that whatever is said of a row can
name the place.
"""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from fmepy.errors import ArgumentError, did_you_mean, listed, repeated
from fmepy.results.files import MOST_COLUMNS, MOST_ROWS, MOST_TABLE, read_file
from fmepy.workflow.file.toml import Key as Place
from fmepy.workflow.file.toml import Section

MISSING = frozenset({"", "NA", "N/A", "NaN", "nan", "NULL", "null", "None", "none", "#N/A", "."})
"""What a cell without a value holds."""
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
_COMMA = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?")
_POINT = re.compile(r"[+-]?\d*\.\d+([eE][+-]?\d+)?")
_DATE = re.compile(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}([ T].*)?|\d{1,2}:\d{2}(:\d{2})?")
_SEPARATORS = {"\t": "tabs", ";": "semicolons", "|": "bars", ",": "commas", " ": "spaces"}
_ARCHIVES = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0", b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd")
_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))


@dataclass(frozen=True, eq=False)
class DataFile:
    """A table and where it came from.

    Attributes
    ----------
    path : Path
    frame : DataFrame
        The index is the line of the file; columns of numbers are numbers, all others texts (None where missing).
    header : int
        The line of the names of the columns.
    notes : tuple of str
        What was found that is not said in the file's description.
    """

    path: Path
    frame: pd.DataFrame
    header: int
    notes: tuple[str, ...]

    def error(self, message: str, line: int | None = None) -> ArgumentError:
        """Return the error about a line of the file, by default that of the header."""
        return ArgumentError(f"{self.path}:{self.header if line is None else line}: {message}")

    @property
    def lines(self) -> list[int]:
        """The line of every row."""
        return [int(line) for line in self.frame.index.tolist()]

    def numbers(self, name: str, *, missing: bool = True, hint: str = "") -> pd.Series[float]:
        """Return a column as numbers.

        Raises
        ------
        ArgumentError
            A cell is no number, or missing where it must not be; with its line.
        """
        column = self.frame[name]
        texts = not pd.api.types.is_numeric_dtype(column)
        cells = zip(self.lines, column.tolist(), strict=True)
        for line, cell in cells if texts or not missing else ():
            if cell is None or cell != cell:
                if not missing:
                    raise self.error(f"the value in column {name!r} is missing.{hint}", line)
            elif texts and not _NUMBER.fullmatch(cell):
                why = " Write dates as numbers, such as days since the first." if _DATE.fullmatch(cell) else ""
                why = " The file holds decimal commas and points." if _COMMA.fullmatch(cell) else why
                raise self.error(f"{_cut(cell)} in column {name!r} is no number.{why}{hint}", line)
        return column.astype(float)


def read_table(
    path: Path, *, separator: str | None = None, decimal: str | None = None, encoding: str | None = None
) -> DataFile:
    """Return the table of a text file.

    Parameters
    ----------
    path : Path
    separator, decimal, encoding : str, optional
        None: found.

    Raises
    ------
    ArgumentError
        There is no such file, it is no text, or no table; with the line.
    """
    text, notes = _decoded(path, encoding)
    if max(text.count("\n"), text.count("\r")) > MOST_ROWS:
        raise ArgumentError(f"{path} has more than {MOST_ROWS} lines; take a mean of several, or leave some out.")
    numbered = enumerate(re.split(r"\r\n|\r|\n", text), 1)
    lines = [(i, line) for i, line in numbered if line.strip() and not line.startswith("#")]
    if not lines:
        raise ArgumentError(f"{path} is empty; a table with a line of names is needed.")
    if separator is None:
        separator = _separator([line for _, line in lines[:100]])
        if separator != ",":
            notes.append(f"columns are separated by {_SEPARATORS[separator]}")
    if lines[0][1].count(separator) > MOST_COLUMNS:
        raise ArgumentError(f"{path}:{lines[0][0]}: there are more than {MOST_COLUMNS} columns; take out some.")
    rows = _rows(path, lines, separator)
    (header, names), *cells = rows
    names = _names(path, header, names, cells)
    if not cells:
        raise ArgumentError(f"{path}:{header}: the table has names of columns, and no row.")
    for line, row in cells:
        if len(row) != len(names):
            hint = " (A number with a decimal comma?)" if separator == "," and len(row) > len(names) else ""
            raise ArgumentError(f"{path}:{line}: there are {len(row)} cells, and {len(names)} columns.{hint}")
    columns = list(zip(*(row for _, row in cells), strict=True))
    if decimal is None:
        decimal = _decimal(columns, separator)
        if decimal == ",":
            notes.append("the decimal mark is a comma")
    frame = pd.DataFrame({name: _column(column, decimal) for name, column in zip(names, columns, strict=True)})
    frame.index = pd.Index([line for line, _ in cells], name="line")
    return DataFile(path, frame, header, tuple(f"{path.name}: {said}." for said in notes))


def _decoded(path: Path, encoding: str | None) -> tuple[str, list[str]]:
    """Return the text of a file, and what was found of its encoding."""
    try:
        raw = read_file(path, MOST_TABLE)
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            folder = path.parent
            beside = sorted(p.name for p in folder.iterdir() if p.is_file()) if folder.is_dir() else []
            raise ArgumentError(f"there is no file {str(path)!r}.{did_you_mean(path.name, beside)}") from None
        raise ArgumentError(f"{str(path)!r} cannot be read: {error.strerror or error}.") from None
    if encoding is not None:
        try:
            return codecs.decode(raw, encoding).removeprefix("\ufeff"), []
        except (LookupError, TypeError):
            known = [
                "utf-8",
                "utf-16",
                "utf-16-le",
                "utf-16-be",
                "utf-32",
                "cp1252",
                "latin-1",
                "cp1250",
                "cp437",
                "mac-roman",
            ]
            near = did_you_mean(encoding, known)
            raise ArgumentError(f"`encoding` = {encoding!r} is not known.{near}") from None
        except ValueError as error:
            line = raw[: getattr(error, "start", 0)].count(b"\n") + 1
            raise ArgumentError(f"{path}:{line}: this is no text in {encoding!r}. Without `encoding` it is found."
                                ) from None  # fmt: skip
    if raw.startswith(_ARCHIVES):
        raise ArgumentError(f"{path} is a workbook or an archive, no text; unpack it, or save the table as CSV.")
    marked = next((name for mark, name in _MARKS if raw.startswith(mark)), None)
    at = 0
    for name in (marked,) if marked else ("utf-8", "cp1252"):
        try:
            text = raw.decode(name)
        except UnicodeDecodeError as error:
            at = error.start
            continue
        if "\0" in text:
            at = raw.index(b"\0")
            break
        return text, [] if name.startswith("utf-8") else [f"read as {name}"]
    line = raw[:at].count(b"\n") + 1
    raise ArgumentError(f"{path}:{line}: this is no text. Save the table as CSV in UTF-8, or say its `encoding`.")


def _separator(lines: Sequence[str]) -> str:
    """Return what separates columns: what cuts all lines into equally many, as many as can be."""
    best, most = ",", 0
    for mark in _SEPARATORS:
        try:
            counts = {len(row) for row in csv.reader(map(str.strip, lines), delimiter=mark, skipinitialspace=True)}
        except csv.Error:
            continue
        if len(counts) == 1 and (columns := counts.pop()) > max(most, 1):
            best, most = mark, columns
    if most:
        return best
    outside = re.sub(r'"[^"]*"', "", lines[0])  # lines of different lengths: the header decides
    return max((",", ";", "\t", "|"), key=outside.count)


def _rows(path: Path, lines: Iterable[tuple[int, str]], separator: str) -> list[tuple[int, list[str]]]:
    """Return the cells of every row, with its line."""
    numbered = list(lines)
    reader = csv.reader((f"{line}\n" for _, line in numbered), delimiter=separator, skipinitialspace=True, strict=True)
    rows, done = [], 0
    try:
        for row in reader:
            rows.append((numbered[done][0], [cell.strip() for cell in row]))
            done = reader.line_num
    except (csv.Error, TypeError) as error:
        raise ArgumentError(
            f"{path}:{numbered[min(done, len(numbered) - 1)][0]}: this cannot be read: {error}. (A quotation mark that "
            "is not closed?)"
        ) from None
    if separator == " ":
        rows = [(line, [c for c in row if c]) for line, row in rows]
    while len(rows[0][1]) > 1 and all(len(row) == len(rows[0][1]) and not row[-1] for _, row in rows):
        rows = [(line, row[:-1]) for line, row in rows]  # lines that end with a separator
    return rows


def _names(path: Path, header: int, names: list[str], cells: list[tuple[int, list[str]]]) -> list[str]:
    """Return the names of the columns, checked."""
    if all(_NUMBER.fullmatch(name) for name in names):
        raise ArgumentError(f"{path}:{header}: the first line must hold the names of the columns; got {listed(names)}.")
    if "" in names or (cells and all(len(row) == len(names) + 1 for _, row in cells)):
        raise ArgumentError(
            f"{path}:{header}: a column has no name. Name it, or take it out (row numbers: R's row.names = FALSE, "
            "pandas' index=False)."
        )
    if twice := repeated(names):
        raise ArgumentError(f"{path}:{header}: there are two columns {twice[0]!r}; name them apart.")
    return names


def _decimal(columns: Sequence[Sequence[str]], separator: str) -> str:
    """Return the decimal mark: a comma where cells are numbers with one and none is a number with a point."""
    if separator == ",":
        columns = [c for c in columns if any("," in cell for cell in c)]  # in quotes
    commas = points = False
    for column in columns:
        said = [cell for cell in column if cell not in MISSING]
        if said and all(_COMMA.fullmatch(cell) or _NUMBER.fullmatch(cell) for cell in said):
            commas = commas or any(map(_COMMA.fullmatch, said))
            points = points or any(map(_POINT.fullmatch, said))
    return "," if commas and not points else "."


def _column(cells: Sequence[str], decimal: str) -> pd.Series:
    """Return a column: of whole numbers, of numbers, or of texts with None where one is missing."""
    plain = [cell.replace(",", ".") if decimal == "," and _COMMA.fullmatch(cell) else cell for cell in cells]
    said = [cell for cell in plain if cell not in MISSING]
    if not all(map(_NUMBER.fullmatch, said)):
        return pd.Series([None if cell in MISSING else cell for cell in plain], dtype=object)
    if len(said) == len(plain) and all(re.fullmatch(r"[+-]?\d{1,15}", cell) for cell in said):
        if any(re.fullmatch(r"0\d+", cell) for cell in said):  # labels such as 007
            return pd.Series(plain, dtype=object)
        return pd.Series([int(cell) for cell in plain], dtype=np.int64)
    return pd.Series([np.nan if cell in MISSING else float(cell) for cell in plain], dtype=float)


def column_of(file: DataFile, name: str, error: Callable[[str], ArgumentError]) -> str:
    """Return the name of a column; the error of the place that names it, with the nearest, where there is none."""
    if name in file.frame.columns:
        return name
    raise error(
        f"there is no column {name!r} in {file.path.name}.{did_you_mean(name, file.frame.columns)} "
        f"It has {listed(file.frame.columns)}."
    )


def _cut(cell: str) -> str:
    return repr(cell if len(cell) <= 40 else f"{cell[:37]}...")


def read_beside(section: Section, key: str | Place, file: str, **how: str | None) -> DataFile:
    """Return the table of a file that a key of a TOML file names; where it cannot be read the message has that line."""
    path = section.beside(file)
    try:
        return read_table(path, **how)
    except ArgumentError as error:
        if str(error).startswith(f"{path}:"):  # a line of the table itself
            raise
        raise section.error(key, str(error)) from None
