"""The observations of a file: columns found, numbers checked, and what else was seen in them, told."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fmepy.errors import ArgumentError, DataError, check_known, did_you_mean, listed
from fmepy.tables.sheet import SECONDS, Sheet
from fmepy.tables.text_files import read_text_file, unreadable
from fmepy.workflow.file.toml import Place, TomlTable

if TYPE_CHECKING:
    from fmepy.workflow.file.case import Case


def read_data(case: Case) -> Sheet | None:
    """Return the table that the section ``data`` names, None where there is none."""
    if "data" not in case.content:
        return None
    said = case.content["data"]
    how = {k: said[k] for k in ("separator", "decimal", "encoding") if k in said}
    table = case.section.table("data")
    if len(how.get("separator", ",")) != 1:
        raise table.error(
            "separator", f"`separator` must be one character, such as ';' or '\\t'; got {how['separator']!r}."
        )
    sheet = read_beside(table, "file", said["file"], **how)
    named = [v for k, v in said.items() if k in ("x", "depth", "y", "err", "entity")]
    for i, name in enumerate(left := table.texts("ignore")):
        check_column(sheet, name, table, ("ignore", i))
        if name in named:
            raise table.error(("ignore", i), f"the column {name!r} cannot be left alone, [data] names it.")
    return replace(sheet, frame=sheet.frame.drop(columns=left))


def observed(
    case: Case, file: Sheet, variables: Iterable[str], *, at: float | None = None
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Return the observations, numbers as numbers, and the arguments of a cost that name their columns.

    Parameters
    ----------
    case : Case
    file : Sheet
    variables : iterable of str
        Of the model; none where they are not known before it runs.
    at : float, optional
        The time of a steady state, whose observations need none.

    Raises
    ------
    ArgumentError
        A column that is not there (at the line of the TOML file), a cell that is no number or a variable that the model
        does not have (at the line of the data file).
    """
    said, table = case.content["data"], case.section.table("data")
    words: dict[str, Any] = {k: said[k] for k in ("depth", "y", "err", "entity", "censored") if k in said}
    words["x"] = said.get("x", "time")
    columns = list(file.frame.columns)
    if "x" not in said and "time" not in columns:
        if at is None:
            raise table.error((), f"there is no column 'time' in {file.path.name}; name that of the times by `x`. "
                              f"It has {listed(columns)}.")  # fmt: skip
        words["x"] = None  # of a steady state: see below
    marks = words.get("censored", [])
    named = [(k, words[k]) for k in ("x", "depth", "y", "err", "entity") if words.get(k) is not None]
    named += [("censored", c) for c in (marks.values() if isinstance(marks, dict) else [marks] if marks else [])]
    for key, name in named:
        check_column(file, name, table, key)
    texts = {words.get("entity"), *(c for k, c in named if k == "censored"), *_of_rows(case)}
    known = [str(v) for v in variables]
    frame = file.frame.copy()
    if "y" in words:
        first = columns[0]
        if first in (c for _, c in named):
            raise file.error(
                f"the first column of a long table names the variables; it is {first!r}, which is named otherwise."
            )
        for line, name in zip(file.lines, frame[first].tolist(), strict=True):
            if known and str(name) not in known:
                near = did_you_mean(name, known)
                why = f"{str(name)!r} in column {first!r} is not a variable of the model.{near} It has {listed(known)}."
                raise file.error(why + _say_outputs(case, str(name)), line)
        numbers = [words[k] for k in ("x", "depth", "y", "err") if words.get(k)]
    else:
        numbers = [c for c in columns if c not in texts]
        readings = [c for c in numbers if c not in (words["x"], words.get("depth"), words.get("err"))]
        others = [c for c in readings if known and c not in known]
        free = set(known) - set(readings)  # what such a column may be, misnamed
        for name in others:
            near = did_you_mean(name, known)
            if near or len(others) == len(readings) or (free and file.frame[name].dtype != object):
                raise file.error(f"the column {name!r} is not a variable of the model.{near} It has {listed(known)}."
                                 f"{_say_outputs(case, name)} Name columns that are no observations in [data]: "
                                 f"ignore = [{name!r}]; of a long table name that of the values by `y`.")  # fmt: skip
        readings = [c for c in readings if c not in others]
        if others:
            frame, numbers = frame.drop(columns=others), [c for c in numbers if c not in others]
            words["notes"] = [
                f"{file.path.name}: left alone, as no variables of the model: {listed(others)}. (In [data] ignore = "
                f"{others} leaves them without a word.{_say_outputs(case, others[0])})"
            ]
        if not readings:
            raise file.error("there is no column of observations beside the others.")
    for name in numbers:
        if name == words["x"]:
            frame[name], words["x_unit"], calendar = read_times(case, file, name)
            if calendar is not None:  # the cost knows the dates, too
                frame.attrs["calendar"] = calendar
                words |= {"unit": said["unit"], "origin": said.get("origin")}
        else:
            frame[name] = file.numbers(name)
    if words["x"] is None:  # every row is a reading of it, at the one time that there is
        frame["time"] = at
        words["x"] = "time"
    return frame, words


def read_times(case: Case, file: Sheet, name: str) -> tuple[pd.Series[float], str, Any]:
    """Return a column of times as numbers, their unit, and of dates the calendar (`fmepy.tables.sheet.with_times`).

    Raises
    ------
    ArgumentError
        Dates of which [data] does not say the unit, or what is no unit or date; with the line.
    """
    said, table = case.content.get("data", {}), case.section.table("data")
    unit = said.get("unit", "")
    if not file.holds_dates(name):
        times = file.numbers(name, missing=False)
        if "origin" in said:
            raise table.error("origin", f"`origin` is for dates; the column {name!r} holds numbers. Leave it out.")
        return times, unit, None
    if unit not in SECONDS:
        place = "unit" if unit else "x" if "x" in said else ()
        got = f"; got {unit!r}" if unit else ""
        raise table.error(
            place, f"the column {name!r} of {file.path.name} holds dates: say in [data] in which unit the model counts "
            f'them, such as unit = "days", one of {listed(SECONDS, 10)}{got}. The first date is 0, or that of origin = '
            '"2001-12-31".')  # fmt: skip
    try:
        times, origin = file.since(name, unit, said.get("origin"))
    except DataError:
        raise
    except ValueError:
        raise table.error("origin", f'`origin` = {said["origin"]!r} is not a date such as "2001-12-31".') from None
    since = f"{unit} since {str(origin.tz_localize(None)).removesuffix(' 00:00:00')}"
    return times, since, (name, origin, SECONDS[unit], "origin" in said)


def _say_outputs(case: Case, name: str) -> str:
    """Return how a model says what a variable of the data measures."""
    key = name if name.isidentifier() else f'"{name}"'
    ways = {
        "equations": f' If it measures something of the model, say what, in [model]: outputs = {{ {key} = "..." }}.',
        "python": " If it measures something of the model, give that `outputs`, or a column of this name.",
    }
    return next((way for kind, way in ways.items() if kind in case.content["model"]), "")


def _of_rows(case: Case) -> list[str]:
    """Return the columns that name parameters by row."""
    given = case.content.get("cost", {}).get("noise_parms", [])
    return [given] if isinstance(given, str) else list(given.values() if isinstance(given, dict) else given)


def replicates(frame: pd.DataFrame, words: dict[str, Any], file: Sheet) -> list[str]:
    """Return a sentence about rows of the same time, of the same variable and entity; nothing where there are none."""
    by = [words[k] for k in ("x", "depth", "entity") if k in words] + [frame.columns[0]] * ("y" in words)
    n = int(np.count_nonzero(frame.duplicated(by)))
    if not n:
        return []
    return [f"{file.path.name}: {n} of {len(frame)} rows are replicates, of a time that an earlier row has."]


def check_column(file: Sheet, name: str, section: TomlTable, key: str | Place) -> None:
    """Refuse a column that is not there, at the key that names it; with the nearest."""
    wrong = f"there is no column {name!r} in {file.path.name}."
    check_known(name, list(file.frame.columns), wrong, partial(section.error, key), "It has")


def read_beside(section: TomlTable, key: str | Place, file: str, **how: str | None) -> Sheet:
    """Return the table of a file that a key of a TOML file names; where it cannot be read the message has that line."""
    path = section.beside(file)
    try:
        return read_text_file(path, **how)
    except OSError as error:
        raise section.error(key, unreadable(error, path)) from None
    except ArgumentError as error:
        if str(error).startswith(f"{path}:"):  # a line of the table itself
            raise
        raise section.error(key, str(error)) from None
