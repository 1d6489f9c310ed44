"""A table of a user's, wherever it comes from: columns of cells, of which each row knows its place."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fmepy.errors import ArgumentError, DataError, check_choice, check_known, listed, repeated, shortened, warn
from fmepy.tables.columns import as_table, refuse_dates
from fmepy.types import Vector

NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
"""A number as text; neither 1_000 nor inf is one."""
COMMA = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?")
DATE = re.compile(r"\d{4}-\d{1,2}-\d{1,2}([ T]\d{1,2}:\d{2}.*)?")
"""A date of ISO 8601, as text, with or without the time of the day."""
SECONDS = {
    "seconds": 1.0, "minutes": 60.0, "hours": 3600.0, "days": 86400.0, "weeks": 604800.0, "years": 365.25 * 86400.0,
}  # fmt: skip
"""Units of time, in seconds; a year is one of 365.25 days."""
LIKE_A_DATE = re.compile(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}([ T].*)?|\d{1,2}:\d{2}(:\d{2})?")
"""A date or a time of the day, in whatever order and with whatever marks."""


UNITS_BELOW = " A line of units has no place below the names: take it out, or write them as 'N (mg/L)'."
"""What to do with a file whose first row holds no numbers."""


@dataclass(frozen=True, eq=False)
class Sheet:
    """A table and where it came from.

    Attributes
    ----------
    label : str
        What messages call it: a file as the user named it, a table in it.
    stem : str
        The name of the file or table.
    frame : DataFrame
        Its index is the line of the file, or the number of the row. Missing cells are None or NaN.
    header : int
        The line of the names of the columns in a text file; 0 of other tables.
    notes : tuple of str
        How the file was read, where its description does not say.
    """

    label: str
    stem: str
    frame: pd.DataFrame
    header: int = 0
    notes: tuple[str, ...] = ()

    def place(self, line: int | None = None) -> str:
        """Return the words that open a message about a row (its label in `frame`), by default about the header."""
        if self.header:
            return f"{self.label}:{self.header if line is None else line}"
        return self.label if line is None else f"{self.label}, row {line}"

    def error(self, message: str, line: int | None = None) -> DataError:
        """Return the error about a row, by default about the header."""
        return DataError(f"{self.place(line)}: {message}")

    @property
    def path(self) -> Path:
        """The file, as its label names it."""
        return Path(self.label)

    @property
    def lines(self) -> list[int]:
        """The line or number of every row."""
        return [int(line) for line in self.frame.index.tolist()]

    def numbers(self, name: str, *, missing: bool = True, hint: str = "") -> pd.Series[float]:
        """Return a column as numbers, NaN where a cell is missing.

        Raises
        ------
        DataError
            A cell is no number, or infinite, or missing where it must not be; with its place.
        """
        column = self.frame[name]
        if isinstance(column.dtype, np.dtype) and column.dtype.kind in "iuf":
            plain = column.to_numpy(dtype=float)
            if np.isfinite(plain).all() or (missing and not np.isinf(plain).any()):
                return column.astype(float)
        values = np.full(len(column), np.nan)
        for i, (line, cell) in enumerate(zip(self.lines, column.tolist(), strict=True)):
            if not is_missing(cell):
                values[i] = self._number(cell, name, line, hint)
            elif not missing:
                raise self.error(f"the value in column {name!r} is missing.{hint}", line)
        return pd.Series(values, column.index, name=name)

    def _number(self, cell: Any, name: str, line: int, hint: str) -> float:
        is_text = isinstance(cell, str)
        try:
            if isinstance(cell, bool | np.bool_ | bytes) or (is_text and not NUMBER.fullmatch(cell.strip())):
                raise ValueError
            value = float(cell)
        except (TypeError, ValueError, OverflowError):
            why = ""
            if is_text and all(is_missing(c) or DATE.fullmatch(str(c)) for c in self.frame[name]):
                why = " Dates become numbers by pd.to_datetime: (dates - dates.iloc[0]) / pd.Timedelta('1D')."
            elif is_text and LIKE_A_DATE.fullmatch(cell):
                why = " Write dates as 2001-12-31, in all cells of the column, or as numbers."
            elif is_text and COMMA.fullmatch(cell):
                why = " A decimal point is written '.', or a comma in all cells of a file."
            elif is_text and cell.lstrip()[:1] in ("<", ">"):
                why = " A reading beyond a limit is the limit, with '<' or '>' in a column of marks (`censored`)."
            elif is_text and self.header and line == self.lines[0]:
                why = UNITS_BELOW
            raise self.error(f"{shortened(cell)} in column {name!r} is not a number.{why}{hint}", line) from None
        if not np.isfinite(value):
            raise self.error(
                f"{shortened(cell)} in column {name!r}; where there is no datum, leave the cell empty.", line
            )
        return value

    def holds_dates(self, name: str) -> bool:
        """Tell whether a column holds dates: the first of its cells that is not missing is one of ISO 8601."""
        first = next((c for c in self.frame[name].tolist() if not is_missing(c)), None)
        return isinstance(first, datetime.date) or bool(isinstance(first, str) and DATE.fullmatch(first))

    def since(
        self, name: str, unit: str, origin: Any = None, zone: Any = None
    ) -> tuple[pd.Series[float], pd.Timestamp]:
        """Return a column of dates as times since an origin, without one since the first of them, and the origin.

        Dates are of ISO 8601, with or without a time of the day. Those without a zone, the origin too, are of `zone`,
        by default that of the first date that has one; the origin comes back in it.

        Raises
        ------
        DataError
            A cell is not a date, or missing; with its place.
        ArgumentError
            The origin is not a date.
        """
        cells = self.frame[name].astype(object)
        zone = zone or next((z for c in cells if (z := getattr(c, "tzinfo", None)) is not None), "UTC")
        moments = pd.to_datetime(cells.map(lambda c: _in_zone(c, zone)), format="ISO8601", utc=True, errors="coerce")
        if moments.isna().any():
            i = int(np.argmax(moments.isna()))
            cell = cells.iloc[i]
            problem = (
                "the date is missing" if is_missing(cell) else f"{shortened(cell)} is not a date such as 2001-12-31"
            )
            raise self.error(f"{problem} in column {name!r}.", self.lines[i])
        try:
            given = None if origin is None else pd.to_datetime(_in_zone(origin, zone), format="ISO8601", utc=True)
            first = moments.min() if given is None else given
        except (TypeError, ValueError):
            raise ArgumentError(f"`origin={origin!r}` is not a date such as '2001-12-31'.") from None
        return (moments - first).dt.total_seconds() / SECONDS[unit], first.tz_convert(zone)

    def times(self, name: str = "time") -> Vector:
        """Return a column of numbers that increase, none missing.

        Raises
        ------
        DataError
            What `numbers` refuses; a time that is missing, or not after the one before.
        """
        times: Vector = np.array(self.numbers(name, missing=False), dtype=float)
        back = np.flatnonzero(np.diff(times) <= 0)
        if len(back):
            i = int(back[0]) + 1
            how = "is there twice" if times[i] == times[i - 1] else f"comes after {times[i - 1]:g}"
            message = f"time {times[i]:g} {how}; times must increase. Sort them, and keep each once."
            raise self.error(message, self.lines[i])
        return times

    def check_columns(self, known: Sequence[str], needed: Sequence[str] = ()) -> None:
        """Raise a DataError for a column that is not known, or for one that is missing."""
        for name in self.frame.columns:
            wrong = f"{self.label}: there is no meaning in column {name!r}."
            check_known(name, known, wrong, DataError, "It may have")
        for name in needed:
            if name not in self.frame.columns:
                raise DataError(f"{self.label}: the column {name!r} is missing.")

    def texts(self, name: str) -> list[str]:
        """Return a column as texts, "" where a cell is missing or there is no such column."""
        if name not in self.frame.columns:
            return [""] * len(self.frame)
        return [_text(cell) for cell in self.frame[name].tolist()]


def _in_zone(cell: Any, zone: Any) -> Any:
    """Return a date as one of a zone where it has none of its own; other cells as they are."""
    if is_missing(cell) or str(zone) == "UTC":
        return cell
    try:
        moment = pd.Timestamp(cell)
        return moment.tz_localize(zone) if moment.tzinfo is None else moment
    except (TypeError, ValueError):
        return cell


def is_missing(cell: Any) -> bool:
    """Tell whether a cell holds nothing."""
    return cell is None or cell is pd.NA or bool(cell != cell)


def _text(cell: Any) -> str:
    if is_missing(cell):
        return ""
    return f"{cell:.15g}" if isinstance(cell, float) else str(cell).strip()


def column_names(head: Sequence[Any], place: str) -> list[str]:
    """Return the names of columns, none empty and none there twice."""
    names = ["" if name is None else str(name).strip() for name in head]
    if "" in names:
        raise DataError(
            f"{place}: a column has no name. Name it, or take it out (row numbers: R's row.names = FALSE, pandas' "
            "index=False)."
        )
    if twice := repeated(names):
        raise DataError(f"{place}: there are two columns {twice[0]!r}; name them apart.")
    return names


def frame_sheet(frame: pd.DataFrame, label: str) -> Sheet:
    """Return a DataFrame as a sheet, whose rows are numbered from 0. An index called time is a column."""
    if frame.index.name == "time" and "time" not in frame.columns:
        frame = frame.reset_index()
    names = column_names(frame.columns.tolist(), label)
    return Sheet(label, "value", frame.set_axis(names, axis=1).set_axis(range(len(frame)), axis=0))


def with_times(obs: Any, x: str | None, unit: str | None, origin: Any) -> Any:
    """Return data whose dates in the column x are times in a unit since an origin; numbers stay.

    The name of the column, the origin and the seconds of the unit are in its ``attrs["calendar"]``, for pictures, and
    whether the origin was given.

    Raises
    ------
    ArgumentError
        An unknown unit; what `Sheet.since` refuses.
    """
    if x is None or (unit is None and origin is None):
        return obs
    if str(unit).startswith(("month", "quarter")):
        raise ArgumentError(f"`unit={unit!r}`: they differ in length. Number the rows, or take unit='days'.")
    if unit is None:
        raise ArgumentError(f"`origin={origin!r}` needs the unit in which dates count, such as unit='days'.")
    check_choice(unit, SECONDS, "unit")
    table = as_table(obs)
    if table.columns.tolist().count(x) != 1:
        return table
    if pd.api.types.is_numeric_dtype(table[x]):
        known = table.attrs.get("calendar", (None,))
        if known[0] != x or (known[2] == SECONDS[str(unit)] and _is_moment(known[1], origin)):
            return table
        dates = known[1] + pd.to_timedelta(table[x] * float(known[2]), unit="s")  # they were counted otherwise before
        table, origin = table.assign(**{x: dates.dt.round("us")}), known[1] if origin is None else origin
    times, first = Sheet("`obs`", "obs", table.set_axis(range(len(table)), axis=0)).since(x, str(unit), origin)
    table = table.assign(**{x: times.to_numpy()})
    table.attrs["calendar"] = (x, first, SECONDS[str(unit)], origin is not None)
    return table


def _is_moment(moment: pd.Timestamp, origin: Any) -> bool:
    """Tell whether an origin is a moment, or says nothing of it."""
    with suppress(TypeError, ValueError):
        return origin is None or bool(pd.to_datetime(_in_zone(origin, moment.tzinfo), utc=True) == moment)
    return False


def one_calendar(calendars: Iterable[Any]) -> Any:
    """Return the calendar that several data share, see `with_times`; None where one has none, or another one."""
    of = list(calendars)
    return of[0] if of and None not in of and len({calendar[:3] for calendar in of}) == 1 else None


def time_text(time: float, calendar: Any = None) -> str:
    """Return a time in words: the date that it was, where there is a calendar, see `with_times`.

    Examples
    --------
    >>> time_text(1.5), time_text(1.5, ("day", pd.Timestamp("2001-12-31"), 86_400))
    ('1.5', '2002-01-01 12:00')
    """
    if calendar is None:
        return f"{time:.6g}"
    date = (calendar[1] + pd.Timedelta(seconds=time * float(calendar[2]))).round("s")
    return f"{date:%Y-%m-%d %H:%M:%S}".removesuffix(":00").removesuffix(" 00:00")


def warn_of_calendars(calendars: Iterable[Any]) -> None:
    """Warn where several data count their dates from different origins, without `origin=` for each."""
    of = [calendar for calendar in calendars if calendar is not None]
    if len({calendar[1] for calendar in of}) > 1 and not all(calendar[3] for calendar in of):
        days = sorted({time_text(0.0, calendar) for calendar in of})
        warn(
            f"The data of this sum count their dates from different days ({listed(days)}): each of these is time 0 of "
            f"the model. Of one run give all of them the same, such as origin={days[0]!r}; of runs that each began "
            "on its own day, say so by origin= of each."
        )


def calendar_of(cost: Any) -> Any:
    """Return the calendar of a cost's data, see `with_times`; None where they have no dates, or it is no such cost."""
    return cost.calendar if hasattr(type(cost), "calendar") else None


def _sheet_of_times(times: Any, what: str) -> Sheet:
    several = list(times) if np.ndim(times) else [times]
    return Sheet(what, "times", pd.DataFrame({"times": pd.Series(several, dtype=object)}))


def holds_dates(times: Any) -> bool:
    """Tell whether times are dates, or texts of them."""
    return _sheet_of_times(times, "").holds_dates("times")


def numbers_of_times(times: Any, calendar: Any = None, what: str = "`times`") -> Vector:
    """Return times as numbers, at least one-dimensional: dates by a calendar, see `with_times`, where there is one.

    Raises
    ------
    ArgumentError
        Neither numbers nor dates, or dates without a calendar.
    """
    sheet = _sheet_of_times(times, what)
    if calendar is not None and sheet.holds_dates("times"):
        return np.asarray(sheet.since("times", "seconds", calendar[1], calendar[1].tzinfo)[0], dtype=float) / float(
            calendar[2]
        )
    refuse_dates(sheet.frame["times"].tolist(), what, ArgumentError)
    try:
        return np.atleast_1d(np.asarray(times, dtype=float))
    except (TypeError, ValueError, OverflowError):
        raise ArgumentError(f"{what} must hold numbers, as the model's times are; got {times!r}.") from None
