"""The model of a calibration file: equations, modules, or what a Python file holds; and its inputs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fmepy.costs.base import Cost
from fmepy.dmi.database import Database
from fmepy.dmi.model import ModularModel
from fmepy.dmi.modules import Module, read_module_file, read_modules
from fmepy.errors import ArgumentError, FmepyError, ModelTextError, listed
from fmepy.journal.files import open_file
from fmepy.models.base import Model
from fmepy.models.difference import DifferenceModel
from fmepy.models.ode import OdeModel
from fmepy.models.steady import SteadyModel
from fmepy.tables.sheet import Sheet
from fmepy.tables.text_files import unreadable
from fmepy.types import Vector
from fmepy.workflow.file.case import Case, model_keys, model_kind
from fmepy.workflow.file.observations import check_column, read_table_file, read_times
from fmepy.workflow.file.python_file import FunctionModel, read_python, split_name
from fmepy.workflow.file.signatures import Key, validate
from fmepy.workflow.file.toml import TomlTable, located

_MOST_FILES = 10_000
_MOST_ROWS = 10_000_000
_CLASSES = {"ode": OdeModel, "difference": DifferenceModel, "steady": SteadyModel}


@dataclass(frozen=True, eq=False)
class ModelSource:
    """What the section ``model`` holds.

    Attributes
    ----------
    model : Model or None
    cost : Cost, callable or None
        Where a Python file holds a cost, or a function and no section ``cost`` makes it a model.
    files : list of Path
        The files that it is made of, inputs among them.
    tables : list of Sheet
        Those of inputs that were read.
    """

    model: Any
    cost: Any
    files: list[Path]
    tables: list[Sheet]


def read_source(case: Case, *, python: bool, conditions: Sheet | None = None) -> ModelSource:
    """Return the model of a file, with its parameters at the file's values.

    What the conditions set in every entity needs no value of its own: the model has the first of theirs.

    Raises
    ------
    ArgumentError
        A mistake in it, with the line; Python that is not allowed, before anything is imported.
    """
    section = case.section.table("model")
    kind = model_kind(section)
    if kind == "python":
        if not python:
            split_name(section)
            raise section.error(
                "python", f"`python` = {section.data['python']!r} runs Python, which --no-python forbids."
            )
        return _python_model(case, section)
    inputs, tables = _inputs(case)
    values = {p.name: p.start for p in case.parameters.values()}
    if conditions is not None:
        values = _values_of_conditions(conditions, values) | values
    if kind == "modules":
        for name in inputs:
            raise case.section.error(name, f"`{name}` are for models of equations; modules read series from data.")
        with located(case.section, "model"):
            modular = read_modular(section, constants=values)
        return ModelSource(modular, None, _files_of(section, "modules", "data"), [])
    with located(case.section, "model", rows=tables[0] if "events" in inputs else None):
        model = _equation_model(case, section, kind, inputs, values)
    return ModelSource(model, None, [t.path for t in tables], tables)


def _values_of_conditions(conditions: Sheet, values: Mapping[str, float]) -> dict[str, float]:
    """Return the first value of each parameter that the conditions set: a number, or that of the parameter named.

    An empty cell means the model's own value, which a parameter that only the conditions set does not have.
    """
    first_values: dict[str, float] = {}
    frame = conditions.frame
    starts_steady = frame["start_from"].notna() if "start_from" in frame else pd.Series(False, index=frame.index)
    for name, column in frame.iloc[:, 1:].items():
        empty = column.isna() & ~starts_steady
        if name not in (*values, "start_from", "steady_before") and empty.any():
            row = int(empty.to_numpy().argmax())
            raise conditions.error(
                f"{name!r} of entity {str(frame.iloc[row, 0])!r} is missing, and [parameters] has no value of it; a "
                "number or the name of a parameter is needed.",
                conditions.lines[row],
            )
        numbers = [values.get(cell) if isinstance(cell, str) else float(cell) for cell in column]
        known = [x for x in numbers if x is not None and x == x]
        first_values[str(name)] = known[0] if known else 1.0  # the cost refuses what is none of both
    return first_values


def _equation_model(
    case: Case, section: TomlTable, kind: str, inputs: dict[str, Any], values: Mapping[str, float]
) -> Model:
    """Return the model of equations, with those parameters whose names occur in it."""
    arguments = {k: v for k, v in case.content["model"].items() if k not in ("equations", "kind")}
    if "times" in arguments:
        arguments["times"] = _times_of(section)
    if kind == "steady":
        arguments.setdefault("state", None)
    if "events" in inputs and kind != "ode":
        raise case.section.error("events", f"a model of the kind {kind!r} has no events.")
    if inputs and kind == "steady":
        raise case.section.error("forcings", "a steady model has no forcings.")
    text = case.content["model"]["equations"]
    read = names_in(text, arguments, inputs.get("events"))
    parms = {name: value for name, value in values.items() if name in read}
    make: Any = _CLASSES[kind]
    try:
        model: Model = make(text, parms=parms, **arguments, **inputs)
    except ModelTextError:
        make(text, parms=values, **arguments, **inputs)  # the nearest name may be one of [parameters] alone
        raise
    return model


def names_in(*values: Any) -> set[str]:
    """Return the names that occur in texts, and in the texts inside tables and lists."""
    names: set[str] = set()
    for value in values:
        if isinstance(value, str):
            names.update(re.findall(r"[^\W\d]\w*", re.sub(r"#[^\n]*", "", value)))
        elif isinstance(value, Mapping):
            names |= names_in(*value.values())
        elif isinstance(value, list):
            names |= names_in(*value)
    return names


def _python_model(case: Case, section: TomlTable) -> ModelSource:
    for name in ("events", "forcings"):
        if name in case.content:
            raise case.section.error(name, f"`{name}` are for models of equations; a model of Python has its own.")
    thing, files = read_python(section)
    files += _files_of(section, "inputs")
    if not isinstance(thing, Model):
        if isinstance(thing, type):
            raise section.error("python", f"{section.data['python']!r} is a class; name a model made of it.")
        if not isinstance(thing, Cost) and "cost" in case.content:
            starts = {p.name: p.start for p in case.parameters.values()}
            return ModelSource(FunctionModel(thing, starts, split_name(section)[0].parent), None, files, [])
        for name in [k for k in ("cost", "conditions") if k in case.content]:
            raise case.section.error(name, f"{section.data['python']!r} is a cost, not a model: [{name}] is for "
                                     "models. Its Python file says what it is compared with.")  # fmt: skip
        return ModelSource(getattr(thing, "model", None), thing, files, [])
    known = [str(n) for n in thing.parms.index]
    values = {p.name: p.start for p in case.parameters.values() if p.name in known}
    with located(case.section, "model", "parameters"):
        return ModelSource(thing.replace(parms=values) if values else thing, None, files, [])


def _inputs(case: Case) -> tuple[dict[str, Any], list[Sheet]]:
    """Return events and forcings as models take them, and their tables (events first)."""
    section, tables = case.section, []
    inputs: dict[str, Any] = {}
    if "events" in section.data:
        tables.append(read_rows(section, "events"))
        inputs["events"] = rows_of(tables[0])
    forcings = section.table("forcings")
    for name in forcings.data:
        tables.append(_forcing_table(case, forcings.table(name), name))
        inputs.setdefault("forcings", {})[name] = (
            *_series(tables[-1]), forcings.data[name].get("interpolation", "linear"),
        )  # fmt: skip
    return inputs, tables


def read_rows(section: TomlTable, key: str) -> Sheet:
    """Return a table written in the TOML file, with the lines of its rows, or read from the file it names."""
    rows = section.data[key]
    if not isinstance(rows, list):
        return read_table_file(section, (key, "file"), rows["file"])
    for i, row in enumerate(rows):
        for name, value in row.items():
            if not isinstance(value, (int, float, str)):
                raise section.error((key, i, name), f"`{name}` must be a number or a text; got {value!r}.")
    lines = [section.line((key, i)) for i in range(len(rows))]
    return Sheet(str(section.file), key, pd.DataFrame(rows, index=lines, dtype=object), section.line((key,)))


def rows_of(table: Sheet) -> list[dict[str, Any]]:
    """Return the rows of a table without their empty cells."""
    cells = table.frame.astype(object).where(table.frame.notna(), None)
    return [{str(k): v for k, v in row.items() if v is not None} for row in cells.to_dict("records")]


def _forcing_table(case: Case, section: TomlTable, name: str) -> Sheet:
    """Return the table of a forcing: numbers in the columns time and value, dates counted, and its entities if any."""
    settings, columns, names = section.data, ("time", "value"), ("x", "y")
    if "file" in settings:
        wrong, why = columns, "has a file; `{}` is for one that is given in place."
    else:
        wrong, why = names, "has no file, of which `{}` names a column."
    for key in wrong:
        if key in settings:
            raise section.error(key, f"the forcing {name!r} {why.format(key)}")
    if "file" not in settings:
        if missing := [key for key in columns if key not in settings]:
            raise section.error((), f"the forcing {name!r} needs `file`, or `time` and `value`; `{missing[0]}` is "
                                "missing.")  # fmt: skip
        n, m = (len(settings[key]) for key in columns)
        if n != m:
            raise section.error("value", f"the forcing {name!r} has {n} times and {m} values.")
        lines = [section.line(("time", i)) for i in range(n)]
        return Sheet(str(section.file), name, pd.DataFrame({k: settings[k] for k in columns}, lines), section.line(()))
    table = read_table_file(section, "file", settings["file"])
    x, y = settings.get("x", "time"), settings.get("y", "value")
    for key, column in zip(names, (x, y), strict=True):
        if key in settings:
            check_column(table, column, section, key)
        elif column not in table.frame.columns:
            raise table.error(f"there is no column {column!r}; name the columns of times and values of the forcing "
                              f"{name!r}: {{ file = {settings['file']!r}, x = \"...\", y = \"...\" }}. There are "
                              f"{listed(table.frame.columns)}.")  # fmt: skip
    if table.holds_dates(x) and "origin" not in case.content.get("data", {}):
        raise section.error(
            "file", f"{table.path.name} holds dates: say in [data] from when and in which unit they are counted, such "
            'as origin = "2001-12-31" and unit = "days".')  # fmt: skip
    numbers = {
        "time": read_times(case, table, x)[0] if table.holds_dates(x) else table.numbers(x, missing=False),
        "value": table.numbers(y, missing=False),
    }
    others = table.frame.drop(columns=[x, y])
    if {*names} & {*settings}:  # a table of several forcings
        others = others.loc[:, others.columns == case.content.get("data", {}).get("entity")]
    return replace(table, frame=others.assign(**numbers))


def _series(table: Sheet) -> tuple[Any, ...]:
    """Return the times and values of a forcing, or the table where it has a column of entities, too."""
    if len(table.frame.columns) > 2:
        return (table.frame,)
    return table.times(), table.numbers("value", missing=False).to_numpy()


def _files_of(section: TomlTable, *keys: str) -> list[Path]:
    """Return all files that keys name: modules, a data base, inputs of Python; of folders all that is in them."""
    files: list[Path] = []
    for key in keys:
        for i, name in enumerate(section.texts(key)):
            path = section.path_of(name)
            inside = islice((p for p in path.rglob("*") if p.is_file()), _MOST_FILES + 1) if path.is_dir() else [path]
            files += sorted(inside)
            if len(files) > _MOST_FILES:
                raise section.error(
                    (key, i), f"{str(path)!r} holds more than {_MOST_FILES} files; name those it takes."
                )
            try:
                for file in files:
                    open_file(file, 1 << 63).close()
            except OSError as error:
                raise section.error((key, i), unreadable(error, file)) from None
    return files


# --- models of modules


def read_modular(
    section: TomlTable, *, strict: bool = False, constants: Mapping[str, Any] | None = None
) -> ModularModel:
    """Return the model that a table of a TOML file describes.

    Parameters
    ----------
    section : TomlTable
        With ``modules`` (files, or a folder), ``data`` (files and folders), ``times`` (a table of start, stop, step, or
        a list), ``dt``, and what else `ModularModel` takes; ``parameters``: constants on top of the data base.
    strict : bool
        Whether diagnostics are errors, whatever the file says.
    constants : mapping of str to float, optional
        Values that go on top of the data base; only those that modules read are taken.

    Raises
    ------
    ArgumentError
        With the file and the line of the key.
    """
    known = model_keys()["modules"]
    settings = validate(section, {**known, "parameters": Key((dict,), of=Key((float, list)))})
    arguments = {key: value for key, value in settings.items() if key in known and key not in ("modules", "data")}
    arguments |= {"strict": strict or arguments.get("strict", False)}
    arguments |= {"outputs": section.texts("outputs")} if "outputs" in arguments else {}
    modules, data = _read_modules(section), _read_database(section)
    read = {name for module in modules for name in module.reads}
    data = data.with_constants({k: v for k, v in (constants or {}).items() if k.partition("[")[0] in read})
    try:
        return ModularModel(modules, data, **{**arguments, "times": _times_of(section)})
    except FmepyError as error:  # the line of the key, where the message is about one
        about = next((k for k in arguments if f"`{k}" in str(error).split(":")[0]), "")
        if about not in section.data:
            raise
        raise section.error(about, str(error)) from error


def _read_modules(section: TomlTable) -> list[Module]:
    """Return the modules that the key ``modules`` names: files, or one folder."""
    names = section.texts("modules")
    if not names:
        raise section.error("modules", "`modules` names no file.")
    modules = []
    for i, name in enumerate(names):
        path = section.path_of(name)
        try:
            modules += read_modules(path) if path.is_dir() else [read_module_file(path)]
        except ArgumentError as error:
            if path.exists():
                raise
            raise section.error(("modules", i), str(error)) from None
    return modules


def _read_database(section: TomlTable) -> Database:
    """Return the data base of the keys ``data`` and ``parameters``."""
    names, parameters = section.texts("data"), section.table("parameters")
    try:
        database = Database(*(str(section.path_of(name)) for name in names))
    except ArgumentError as error:
        for i, name in enumerate(names):
            if not section.path_of(name).exists():
                raise section.error(("data", i), str(error)) from None
        raise
    for key, value in parameters.data.items():
        try:
            database = database.with_constants({key: value})
        except ArgumentError as error:
            raise parameters.error(key, str(error)) from None
    return database


def _times_of(section: TomlTable) -> Vector:
    """Return the checked times of the rows: the list, or start, start + step, ... to stop."""
    times = section.data["times"]
    if isinstance(times, list):
        return np.array(times, dtype=np.float64)
    start, stop, step = numbers = [float(times[key]) for key in ("start", "stop", "step")]
    if not np.isfinite(numbers).all() or step <= 0 or stop < start:
        raise section.error("times", f"`times` must go from start up to stop by a positive step; got {times}.")
    rows = (stop - start) / step
    if rows > _MOST_ROWS:
        raise section.error("times", f"`times` asks for {rows:.0f} rows; at most {_MOST_ROWS} are possible.")
    if abs(rows - round(rows)) > 1e-6:
        near = start + step * round(rows)
        raise section.error(
            ("times", "stop"), f"`stop` must lie a whole number of steps after `start`, such as {near:g}."
        )
    return start + step * np.arange(round(rows) + 1, dtype=np.float64)
