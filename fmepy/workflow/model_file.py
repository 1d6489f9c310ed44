"""A model described in TOML: modules, data base, times, and what else `ModularModel` takes."""

from __future__ import annotations

from typing import Any

import numpy as np

from fmepy.dmi.database import Database
from fmepy.dmi.model import ModularModel
from fmepy.dmi.modules import Module, read_module_file, read_modules
from fmepy.errors import ArgumentError, FmepyError
from fmepy.types import Vector
from fmepy.workflow.toml import Section

KEYS = (
    "modules", "data", "times", "dt", "outputs", "method", "tol", "max_iterations", "strict", "order", "unsettled",
    "parameters",
)  # fmt: skip
MOST_ROWS = 10_000_000


def read_model(section: Section, *, strict: bool = False) -> ModularModel:
    """Return the model that a table of a TOML file describes.

    Parameters
    ----------
    section : Section
        With ``modules`` (files, or a folder), ``data`` (files and folders), ``times`` (a table of start, stop, step, or
        a list), ``dt``, and what else `ModularModel` takes; ``parameters``: constants on top of the data base.
    strict : bool
        Whether diagnostics are errors, whatever the file says.

    Raises
    ------
    ArgumentError
        With the file and the line of the key.
    """
    section.check(KEYS)
    words: dict[str, Any] = {}
    for key, kind in (("method", str), ("tol", float), ("max_iterations", int), ("order", str), ("unsettled", str)):
        if key in section.data:
            words[key] = section.get(key, kind)
    outputs = section.texts("outputs")
    if outputs is not None:
        words["outputs"] = outputs
    words["strict"] = section.get("strict", bool, False) or strict
    modules, data = read_sources(section), read_data(section)
    times = read_times(section)
    if "dt" not in section.data:
        raise ArgumentError(f"{section.file}: the key `dt` is missing: the elementary step, such as dt = 0.25.")
    dt = section.get("dt", float)
    try:
        return ModularModel(modules, data, times=times, dt=dt, **words)
    except FmepyError as error:  # the line of the key, where the message is about one
        about = next((k for k in ("times", "dt", *words) if f"`{k}" in str(error).split(":")[0]), "")
        if about not in section.data:
            raise
        raise section.error(about, str(error)) from error


def read_sources(section: Section) -> list[Module]:
    """Return the modules that the key ``modules`` names: files, or one folder."""
    names = section.texts("modules", required=True) or []
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


def read_data(section: Section) -> Database:
    """Return the data base of the keys ``data`` and ``parameters``."""
    names, parameters = section.texts("data") or [], section.table("parameters")
    for key in parameters.data:
        parameters.get(key, (float, list))
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


def read_times(section: Section) -> Vector:
    """Return the times of the rows: a list as it stands, or start, start + step, ... to stop."""
    if "times" not in section.data:
        raise ArgumentError(
            f"{section.file}: the key `times` is missing, such as times = {{ start = 0, stop = 100, step = 1 }}."
        )
    given = section.get("times", (dict, list))
    if isinstance(given, list):
        for i, value in enumerate(given):
            if type(value) not in (int, float):
                raise section.error(("times", i), f"`times` must hold numbers; got {value!r}.")
        return np.array(given, dtype=float)
    table = section.table("times")
    table.check(["start", "stop", "step"])
    numbers = []
    for key in ("start", "stop", "step"):
        if key not in table.data:
            raise section.error("times", f"`times` needs start, stop and step; {key} is missing.")
        numbers.append(table.get(key, float))
    start, stop, step = numbers
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
    times: Vector = start + step * np.arange(round(rows) + 1)
    return times
