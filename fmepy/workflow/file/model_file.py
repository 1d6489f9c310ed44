"""A model described in TOML: modules, data base, times, and what else `ModularModel` takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fmepy.dmi.database import Database
from fmepy.dmi.model import ModularModel
from fmepy.dmi.modules import Module, read_module_file, read_modules
from fmepy.errors import ArgumentError, FmepyError
from fmepy.types import Vector
from fmepy.workflow.file.keys import TIMES, checked, model_keys
from fmepy.workflow.file.signatures import Key
from fmepy.workflow.file.toml import TomlTable

MOST_ROWS = 10_000_000


def read_model(section: TomlTable, *, strict: bool = False, constants: Mapping[str, Any] | None = None) -> ModularModel:
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
    said = checked(section, {**known, "parameters": Key((dict,), of=Key((float, list)))})
    words = {key: value for key, value in said.items() if key in known and key not in ("modules", "data")}
    words |= {"strict": strict or words.get("strict", False)}
    words |= {"outputs": section.texts("outputs")} if "outputs" in words else {}
    modules, data = read_sources(section), read_data(section)
    read = {name for module in modules for name in module.reads}
    data = data.with_constants({k: v for k, v in (constants or {}).items() if k.partition("[")[0] in read})
    try:
        return ModularModel(modules, data, **{**words, "times": read_times(section)})
    except FmepyError as error:  # the line of the key, where the message is about one
        about = next((k for k in words if f"`{k}" in str(error).split(":")[0]), "")
        if about not in section.data:
            raise
        raise section.error(about, str(error)) from error


def read_sources(section: TomlTable) -> list[Module]:
    """Return the modules that the key ``modules`` names: files, or one folder."""
    names = section.texts("modules")
    if not names:
        raise section.error("modules", "`modules` names no file.")
    found = []
    for i, name in enumerate(names):
        path = section.beside(name)
        try:
            found += read_modules(path) if path.is_dir() else [read_module_file(path)]
        except ArgumentError as error:
            if path.exists():
                raise
            raise section.error(("modules", i), str(error)) from None
    return found


def read_data(section: TomlTable) -> Database:
    """Return the data base of the keys ``data`` and ``parameters``."""
    names, parameters = section.texts("data"), section.table("parameters")
    try:
        found = Database(*(str(section.beside(name)) for name in names))
    except ArgumentError as error:
        for i, name in enumerate(names):
            if not section.beside(name).exists():
                raise section.error(("data", i), str(error)) from None
        raise
    for key, value in parameters.data.items():
        try:
            found = found.with_constants({key: value})
        except ArgumentError as error:
            raise parameters.error(key, str(error)) from None
    return found


def read_times(section: TomlTable) -> Vector:
    """Return the times of the rows, checked: a list as it stands, or start, start + step, ... to stop."""
    given = section.data["times"]
    if isinstance(given, list):
        listed: Vector = np.array(given, dtype=np.float64)
        return listed
    start, stop, step = numbers = [float(given[key]) for key in TIMES]
    if not np.isfinite(numbers).all() or step <= 0 or stop < start:
        raise section.error("times", f"`times` must go from start up to stop by a positive step; got {given}.")
    rows = (stop - start) / step
    if rows > MOST_ROWS:
        raise section.error("times", f"`times` asks for {rows:.0f} rows; at most {MOST_ROWS} are possible.")
    if abs(rows - round(rows)) > 1e-6:
        near = start + step * round(rows)
        raise section.error(
            ("times", "stop"), f"`stop` must lie a whole number of steps after `start`, such as {near:g}."
        )
    times: Vector = np.asarray(start + step * np.arange(round(rows) + 1), dtype=np.float64)
    return times
