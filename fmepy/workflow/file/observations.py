"""The observations of a calibration file: read, matched with the model, and checked."""

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
    settings = case.content["data"]
    layout = {k: settings[k] for k in ("separator", "decimal", "encoding") if k in settings}
    table = case.section.table("data")
    if len(layout.get("separator", ",")) != 1:
        raise table.error(
            "separator", f"`separator` must be one character, such as ';' or '\\t'; got {layout['separator']!r}."
        )
    sheet = read_table_file(table, "file", settings["file"], **layout)
    named = [v for k, v in settings.items() if k in ("x", "depth", "y", "err", "entity")]
    for i, name in enumerate(ignored := table.texts("ignore")):
        check_column(sheet, name, table, ("ignore", i))
        if name in named:
            raise table.error(("ignore", i), f"the column {name!r} cannot be left alone, [data] names it.")
    return replace(sheet, frame=sheet.frame.drop(columns=ignored))


def match_observations(
    case: Case, file: Sheet, variables: Iterable[str], *, steady_time: float | None = None
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Return the observations, numbers as numbers, and the arguments of a cost that name their columns.

    Parameters
    ----------
    case : Case
    file : Sheet
    variables : iterable of str
        Of the model; none where they are not known before it runs.
    steady_time : float, optional
        The time of a steady state, whose observations need none.

    Raises
    ------
    ArgumentError
        A column that is not there (at the line of the TOML file), a cell that is no number or a variable that the model
        does not have (at the line of the data file).
    """
    settings, table = case.content["data"], case.section.table("data")
    arguments: dict[str, Any] = {k: settings[k] for k in ("depth", "y", "err", "entity", "censored") if k in settings}
    arguments["x"] = settings.get("x", "time")
    columns = list(file.frame.columns)
    if "x" not in settings and "time" not in columns:
        if steady_time is None:
            raise table.error((), f"there is no column 'time' in {file.path.name}; name that of the times by `x`. "
                              f"It has {listed(columns)}.")  # fmt: skip
        arguments["x"] = None  # of a steady state: see below
    marks = arguments.get("censored", [])
    named = [(k, arguments[k]) for k in ("x", "depth", "y", "err", "entity") if arguments.get(k) is not None]
    named += [("censored", c) for c in (marks.values() if isinstance(marks, dict) else [marks] if marks else [])]
    for key, name in named:
        check_column(file, name, table, key)
    texts = {arguments.get("entity"), *(c for k, c in named if k == "censored"), *_parameter_columns(case)}
    known = [str(v) for v in variables]
    frame = file.frame.copy()
    if "y" in arguments:
        first = columns[0]
        if first in (c for _, c in named):
            raise file.error(
                f"the first column of a long table names the variables; it is {first!r}, which is named otherwise."
            )
        for line, name in zip(file.lines, frame[first].tolist(), strict=True):
            if known and str(name) not in known:
                near = did_you_mean(name, known)
                why = f"{str(name)!r} in column {first!r} is not a variable of the model.{near} It has {listed(known)}."
                raise file.error(why + _hint_at_outputs(case, str(name)), line)
        numbers = [arguments[k] for k in ("x", "depth", "y", "err") if arguments.get(k)]
    else:
        numbers = [c for c in columns if c not in texts]
        readings = [c for c in numbers if c not in (arguments["x"], arguments.get("depth"), arguments.get("err"))]
        others = [c for c in readings if known and c not in known]
        free = set(known) - set(readings)  # what such a column may be, misnamed
        for name in others:
            near = did_you_mean(name, known)
            if near or len(others) == len(readings) or (free and file.frame[name].dtype != object):
                raise file.error(f"the column {name!r} is not a variable of the model.{near} It has {listed(known)}."
                                 f"{_hint_at_outputs(case, name)} Name columns that are no observations in [data]: "
                                 f"ignore = [{name!r}]; of a long table name that of the values by `y`.")  # fmt: skip
        readings = [c for c in readings if c not in others]
        if others:
            frame, numbers = frame.drop(columns=others), [c for c in numbers if c not in others]
            arguments["notes"] = [
                f"{file.path.name}: left alone, as no variables of the model: {listed(others)}. (In [data] ignore = "
                f"{others} leaves them without a word.{_hint_at_outputs(case, others[0])})"
            ]
        if not readings:
            raise file.error("there is no column of observations: all columns are times, errors, marks or left out.")
    for name in numbers:
        if name == arguments["x"]:
            frame[name], arguments["x_unit"], calendar = read_times(case, file, name)
            if calendar is not None:  # the cost knows the dates, too
                frame.attrs["calendar"] = calendar
                arguments |= {"unit": settings["unit"], "origin": settings.get("origin")}
        else:
            frame[name] = file.numbers(name)
    if arguments["x"] is None:  # every row is a reading of it, at the one time that there is
        frame["time"] = steady_time
        arguments["x"] = "time"
    return frame, arguments


def read_times(case: Case, file: Sheet, name: str) -> tuple[pd.Series[float], str, Any]:
    """Return a column of times as numbers, their unit, and of dates the calendar (`fmepy.tables.sheet.with_times`).

    Raises
    ------
    ArgumentError
        Dates of which [data] does not say the unit, or what is no unit or date; with the line.
    """
    settings, table = case.content.get("data", {}), case.section.table("data")
    unit = settings.get("unit", "")
    if not file.holds_dates(name):
        times = file.numbers(name, missing=False)
        if "origin" in settings:
            raise table.error("origin", f"`origin` is for dates; the column {name!r} holds numbers. Leave it out.")
        return times, unit, None
    if unit not in SECONDS:
        place = "unit" if unit else "x" if "x" in settings else ()
        got = f"; got {unit!r}" if unit else ""
        raise table.error(
            place, f"the column {name!r} of {file.path.name} holds dates: say in [data] in which unit the model counts "
            f'them, such as unit = "days", one of {listed(SECONDS, 10)}{got}. The first date is 0, or that of origin = '
            '"2001-12-31".')  # fmt: skip
    try:
        times, origin = file.since(name, unit, settings.get("origin"))
    except DataError:
        raise
    except ValueError:
        raise table.error("origin", f'`origin` = {settings["origin"]!r} is not a date such as "2001-12-31".') from None
    since = f"{unit} since {str(origin.tz_localize(None)).removesuffix(' 00:00:00')}"
    return times, since, (name, origin, SECONDS[unit], "origin" in settings)


def _hint_at_outputs(case: Case, name: str) -> str:
    """Return the hint that `outputs` can define what a variable of the data measures."""
    key = name if name.isidentifier() else f'"{name}"'
    ways = {
        "equations": f' If it measures something of the model, say what, in [model]: outputs = {{ {key} = "..." }}.',
        "python": " If it measures something of the model, give that `outputs`, or a column of this name.",
    }
    return next((way for kind, way in ways.items() if kind in case.content["model"]), "")


def _parameter_columns(case: Case) -> list[str]:
    """Return the columns that name parameters by row."""
    columns = case.content.get("cost", {}).get("noise_parms", [])
    return [columns] if isinstance(columns, str) else list(columns.values() if isinstance(columns, dict) else columns)


def replicates(frame: pd.DataFrame, arguments: dict[str, Any], file: Sheet) -> list[str]:
    """Return a sentence on replicates: rows of the same time, variable and entity; an empty list without any."""
    by = [arguments[k] for k in ("x", "depth", "entity") if k in arguments] + [frame.columns[0]] * ("y" in arguments)
    n = int(np.count_nonzero(frame.duplicated(by)))
    if not n:
        return []
    return [f"{file.path.name}: {n} of {len(frame)} rows are replicates, of a time that an earlier row has."]


def check_column(file: Sheet, name: str, section: TomlTable, key: str | Place) -> None:
    """Refuse a column that is not there, at the key that names it; with the nearest."""
    wrong = f"there is no column {name!r} in {file.path.name}."
    check_known(name, list(file.frame.columns), wrong, partial(section.error, key), "It has")


def read_table_file(section: TomlTable, key: str | Place, file: str, **layout: str | None) -> Sheet:
    """Return the table of a file that a key of a TOML file names; where it cannot be read the message has that line."""
    path = section.path_of(file)
    try:
        return read_text_file(path, **layout)
    except OSError as error:
        raise section.error(key, unreadable(error, path)) from None
    except ArgumentError as error:
        if str(error).startswith(f"{path}:"):  # a line of the table itself
            raise
        raise section.error(key, str(error)) from None
