"""A table from a text file, however it was written: encoding, separator and decimal mark are found, with notes of them.

The rows keep the line of the file in which they stand, as the index of the table, so that whatever is said of a row can
name the place.
"""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from fmepy.errors import DataError, FmepyError, counted, did_you_mean, listed
from fmepy.journal.files import MOST_COLUMNS, MOST_ROWS, MOST_TABLE, read_file
from fmepy.tables.sheet import COMMA, NUMBER, Sheet, column_names

MISSING = frozenset({"", "NA", "N/A", "NaN", "nan", "NULL", "null", "None", "none", "#N/A", "."})
"""What a cell without a value holds."""
_POINT = re.compile(r"[+-]?\d*\.\d+([eE][+-]?\d+)?")
_ENCODINGS = ("utf-8", "utf-16", "utf-16-le", "utf-32", "cp1252", "latin-1", "cp1250", "cp437", "mac-roman")
_SEPARATORS = {"\t": "tabs", ";": "semicolons", "|": "bars", ",": "commas", " ": "spaces"}
_ARCHIVES = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0", b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd")
_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))


def read_text_file(
    path: Path,
    label: str | None = None,
    *,
    separator: str | None = None,
    decimal: str | None = None,
    encoding: str | None = None,
) -> Sheet:
    """Return the table of a text file.

    Parameters
    ----------
    path : Path
    label : str, optional
        What messages call it; None: its path.
    separator, decimal, encoding : str, optional
        None: found.

    Raises
    ------
    OSError
        It cannot be opened, see `unreadable`.
    DataError
        It is no text, or no table; with the line.
    """
    label = str(path) if label is None else label
    text, notes = _decoded(read_file(path, MOST_TABLE), label, encoding)
    if max(text.count("\n"), text.count("\r")) > MOST_ROWS:
        raise DataError(f"{label} has more than {MOST_ROWS} lines; take a mean of several, or leave some out.")
    numbered = enumerate(re.split(r"\r\n|\r|\n", text), 1)
    lines = [(i, line) for i, line in numbered if line.strip() and not line.startswith("#")]
    if not lines:
        raise DataError(f"{label} is empty; a table with a line of names is needed.")
    if separator is None:
        separator = _separator([line for _, line in lines[:100]])
        if separator != ",":
            notes.append(f"columns are separated by {_SEPARATORS[separator]}")
    if lines[0][1].count(separator) > MOST_COLUMNS:
        raise DataError(f"{label}:{lines[0][0]}: there are more than {MOST_COLUMNS} columns; take out some.")
    rows = rows_of(label, lines, separator)
    (header, names), *cells = rows
    if all(NUMBER.fullmatch(name) for name in names):
        raise DataError(f"{label}:{header}: the first line must hold the names of the columns; got {listed(names)}.")
    unnamed = bool(cells) and all(len(row) == len(names) + 1 for _, row in cells)  # row numbers, as R writes them
    names = column_names([*names, ""] if unnamed else names, f"{label}:{header}")
    if not cells:
        raise DataError(f"{label}:{header}: the table holds no rows.")
    for line, row in cells:
        if len(row) != len(names):
            hint = " (A number with a decimal comma?)" if separator == "," and len(row) > len(names) else ""
            there = f"there {'is' if len(row) == 1 else 'are'} {counted(len(row), 'cell')}"
            raise DataError(f"{label}:{line}: {there}, and {counted(len(names), 'column')}.{hint}")
    columns = list(zip(*(row for _, row in cells), strict=True))
    if decimal is None:
        decimal = _decimal(columns, separator)
        if decimal == ",":
            notes.append("the decimal mark is a comma")
    frame = pd.DataFrame({name: _column(column, decimal) for name, column in zip(names, columns, strict=True)})
    frame.index = pd.Index([line for line, _ in cells], name="line")
    return Sheet(label, path.stem, frame, header, tuple(f"{path.name}: {note}." for note in notes))


def read_bytes(path: Path, most: int, error: type[FmepyError] = DataError) -> bytes:
    """Return the bytes of a file, at most so many; raise an error of the given kind where it cannot be read."""
    try:
        return read_file(path, most)
    except OSError as why:
        reason = unreadable(why, path)
        raise error(reason[0].upper() + reason[1:]) from None


def read_text(path: Path, most: int, error: type[FmepyError] = DataError, other: str = "") -> str:
    """Return a text in UTF-8, in UTF-16 with its mark, else in the encoding `other`, if there is one."""
    raw = read_bytes(path, most, error)
    try:
        text = raw.decode("utf-16" if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig")
    except UnicodeDecodeError as why:
        text = raw.decode(other, errors="replace") if other else raw[: why.start].decode("latin-1") + "\0"
    if "\0" in text:
        line = text[: text.index("\0")].count("\n") + 1
        raise error(f"{path}:{line}: this is no UTF-8 text; save the file as UTF-8.")
    return text


def unreadable(error: OSError, path: Path, label: str | None = None) -> str:
    """Return why a file cannot be opened, with the nearest name that there is."""
    if isinstance(error, FileNotFoundError):
        missing = Path(error.filename or path)  # in a folder, a link that leads nowhere
        beside = sorted(p.name for p in missing.parent.iterdir() if p.is_file()) if missing.parent.is_dir() else []
        looked = "" if label is None else f" (looked for {missing.absolute()})"
        return f"there is no file {label or str(missing)!r}{looked}.{did_you_mean(missing.name, beside)}"
    return f"{label or str(path)!r} cannot be read: {error.strerror or error}."


def _decoded(raw: bytes, label: str, encoding: str | None) -> tuple[str, list[str]]:
    """Return the text of a file, and what was found of its encoding."""
    if encoding is not None:
        try:
            return codecs.decode(raw, encoding).removeprefix("\ufeff"), []
        except (LookupError, TypeError):
            raise DataError(f"`encoding` = {encoding!r} is not known.{did_you_mean(encoding, _ENCODINGS)}") from None
        except ValueError as error:
            line = raw[: getattr(error, "start", 0)].count(b"\n") + 1
            raise DataError(f"{label}:{line}: this is not text in {encoding!r}. Without `encoding` it is found."
                                ) from None  # fmt: skip
    if raw.startswith(_ARCHIVES):
        raise DataError(f"{label} is a workbook or an archive, no text; unpack it, or save the table as CSV.")
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
    raise DataError(f"{label}:{line}: this is not text. Save the table as CSV in UTF-8, or say its `encoding`.")


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
    # lines of different lengths: the header decides, outside of quotation marks
    return max((",", ";", "\t", "|"), key=re.sub(r'"[^"]*"', "", lines[0]).count)


def rows_of(label: str, lines: Iterable[tuple[int, str]], separator: str) -> list[tuple[int, list[str]]]:
    """Return the cells of every row, with its line."""
    numbered = list(lines)
    reader = csv.reader((f"{line}\n" for _, line in numbered), delimiter=separator, skipinitialspace=True, strict=True)
    rows, done = [], 0
    try:
        for row in reader:
            rows.append((numbered[done][0], [cell.strip() for cell in row]))
            done = reader.line_num
    except (csv.Error, TypeError) as error:
        line = numbered[min(done, len(numbered) - 1)][0]
        raise DataError(
            f"{label}:{line}: this cannot be read: {error}. (A quotation mark that is not closed?)"
        ) from None
    if separator == " ":
        rows = [(line, [c for c in row if c]) for line, row in rows]
    while len(rows[0][1]) > 1 and all(len(row) == len(rows[0][1]) and not row[-1] for _, row in rows):
        rows = [(line, row[:-1]) for line, row in rows]  # lines that end with a separator
    return rows


def _decimal(columns: Sequence[Sequence[str]], separator: str) -> str:
    """Return the decimal mark: a comma where cells are numbers with one and none is a number with a point."""
    if separator == ",":
        columns = [c for c in columns if any("," in cell for cell in c)]  # in quotes
    commas = points = False
    for column in columns:
        filled = [cell for cell in column if cell not in MISSING]
        if filled and all(COMMA.fullmatch(cell) or NUMBER.fullmatch(cell) for cell in filled):
            commas = commas or any(map(COMMA.fullmatch, filled))
            points = points or any(map(_POINT.fullmatch, filled))
    return "," if commas and not points else "."


def _column(cells: Sequence[str], decimal: str) -> pd.Series:
    """Return a column: of whole numbers, of numbers, or of texts with None where one is missing."""
    plain = [cell.replace(",", ".") if decimal == "," and COMMA.fullmatch(cell) else cell for cell in cells]
    filled = [cell for cell in plain if cell not in MISSING]
    if not all(map(NUMBER.fullmatch, filled)):
        return pd.Series([None if cell in MISSING else cell for cell in plain], dtype=object)
    if len(filled) == len(plain) and all(re.fullmatch(r"[+-]?\d{1,15}", cell) for cell in filled):
        if any(re.fullmatch(r"0\d+", cell) for cell in filled):  # labels such as 007
            return pd.Series(plain, dtype=object)
        return pd.Series([int(cell) for cell in plain], dtype=np.int64)
    return pd.Series([np.nan if cell in MISSING else float(cell) for cell in plain], dtype=float)
