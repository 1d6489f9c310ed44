"""Models of Vensim and Stella (.mdl, .xmile, .stmx) as modules and a data base: `read_vensim`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fmepy.checks import as_path
from fmepy.dmi.database import Database
from fmepy.dmi.model import ModularModel
from fmepy.dmi.modules import Module
from fmepy.dmi.text import MAX_TEXT
from fmepy.errors import ArgumentError, ModelError, listed
from fmepy.exchange.vensim_mdl import read_mdl
from fmepy.exchange.vensim_system import ForeignSystem
from fmepy.exchange.vensim_text import Translation, read_series
from fmepy.exchange.vensim_xmile import read_xmile
from fmepy.tables.text_files import read_bytes, read_text
from fmepy.types import Vector

SUFFIXES = (".mdl", ".xmile", ".stmx")
MOST_STEPS = 10_000_000
MOST_BYTES = 20_000_000
REST = "model"
"""The module of variables that no view shows."""


class VensimModel(ModularModel):
    """A `ModularModel` that was read from a file of Vensim or Stella; made by `read_vensim`.

    Attributes
    ----------
    renamed : Series
        By name in the file (of elements of arrays, too) the name here.
    documentation : DataFrame
        By name here the entries of the file: name, unit, lower, upper, comment, line.
    ignored : tuple of str
        Parts of the file that a run does not use.
    """

    renamed: pd.Series
    documentation: pd.DataFrame
    ignored: tuple[str, ...]
    _carried = ("renamed", "documentation", "ignored")


def read_vensim(path: Any, data: Any = None) -> VensimModel:
    """Return the model in a file of Vensim (.mdl) or Stella (.xmile, .stmx) as modules and a data base.

    Parameters
    ----------
    path : str or Path
        The file. It is data: nothing in it is executed, and no other file is read because of it.
    data : str or Path, or a list of such, optional
        CSV or tab files with the series of data variables, by the names in the model: the first column is the time and
        the others are variables, or the first row is the time. They are held at their ends.

    Returns
    -------
    VensimModel
        One module a view (or sector); constants and tables in `data`; the file's times, step and method. `renamed`
        says what is called otherwise than in the file: names become words with underscores.

    Raises
    ------
    ModelError
        The file is incomplete, or uses features that modules lack, all listed with variable, function and line:
        spreadsheets read by cell, data of other runs, allocation, sub-models, control variables that change.

    Notes
    -----
    Expressions keep their meaning in the file: ``^`` is right-associative, ``-2^2`` is 4, MODULO, INTEGER and QUANTUM
    truncate, tables are constant beyond their ends unless the file says otherwise. Macros are expanded.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import fmepy as fme
    >>> text = '''
    ... Tea Temperature = INTEG(-loss, 180) ~ degrees ~ |
    ... loss = (Tea Temperature - Room) / 10 ~ ~ |
    ... Room = 70 ~ degrees [0, 100] ~ of the air |
    ... INITIAL TIME = 0 ~~|  FINAL TIME = 2 ~~|  TIME STEP = 0.5 ~~|  SAVEPER = 1 ~~|
    ... '''
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "tea.mdl")
    ...     _ = file.write_text(text)
    ...     model = fme.dmi.read_vensim(file)
    >>> model().round(2)
       time  Tea_Temperature   loss
    0     0           180.00  11.00
    1     1           169.28   9.93
    2     2           159.60   8.96
    >>> model.parms.to_dict(), model.renamed["Tea Temperature"]
    ({'Room': 70.0}, 'Tea_Temperature')
    """
    file = as_path(path)
    system = _read(file)
    system.expand_macros()
    system.check()
    t = Translation(system, read_series(data))
    control = t.control
    if system.method not in ("euler", "rk4"):
        system.refuse(0, "", f"the integration method {system.method!r}: Euler and Runge-Kutta of order 4 are known")
    system.check()
    times, dt = _times(control, system.where)
    model = VensimModel(_modules(t), Database(t.items), times=times, dt=dt, method=system.method)
    model.renamed, model.ignored, model.documentation = _renamed(t), tuple(system.ignored), _documentation(t)
    return model


def _read(file: Path) -> ForeignSystem:
    suffix = file.suffix.lower()
    if suffix not in SUFFIXES:
        raise ArgumentError(f"{file}: {listed(SUFFIXES)} are read, by the ending of the name.")
    if suffix != ".mdl":
        return read_xmile(read_bytes(file, MOST_BYTES, ModelError), str(file))
    text = read_text(file, MOST_BYTES, ModelError, other="cp1252")
    return read_mdl(text.replace("\r\n", "\n").replace("\r", "\n"), str(file))


def _times(control: dict[str, float], where: str) -> tuple[Vector, float]:
    missing = [k for k in ("initial_time", "final_time", "time_step") if k not in control]
    if missing:
        raise ModelError(f"{where}: there is no {listed(m.upper().replace('_', ' ') for m in missing)}.")
    start, stop, dt = (control[k] for k in ("initial_time", "final_time", "time_step"))
    save = max(control.get("saveper", dt), dt)
    if not (dt > 0 and stop > start):
        raise ModelError(f"{where}: a run from {start:g} to {stop:g} by {dt:g} has no steps.")
    if not (stop - start) / dt < MOST_STEPS:
        raise ModelError(f"{where}: a run from {start:g} to {stop:g} by {dt:g} has more than {MOST_STEPS:,} steps.")
    if abs(save / dt - round(save / dt)) > 1e-6:
        raise ModelError(f"{where}: SAVEPER {save:g} is no multiple of TIME STEP {dt:g}; choose one that is.")
    n = int((stop - start) / save * (1 + 1e-9) + 1e-9)
    return np.array([start + save * i for i in range(n + 1)]), dt


def _modules(t: Translation) -> list[Module]:
    """Return the modules: one a view or sector, in the order of the file."""
    home: dict[str, str] = {}
    for view, keys in t.system.views.items():
        for key in keys:
            home.setdefault(key, view)
    lines: dict[str, list[str]] = {}
    for key, found in t.lines.items():
        of = key.removesuffix(" at start")
        module = home.get(of) or t.variables[of].equations[0].group or REST
        lines.setdefault(module, []).extend(found)
    shapes = {v.name: ", ".join(map(t.word_of, v.ranges)) for v in t.variables.values() if v.axes}
    if not any(lines.values()):  # a model of constants only: they become the statements
        lines[REST] = [f"{n} = {x}" for i in t.items.values() for n, x in i.numbers.items()]
        t.items.clear()
        if not lines[REST]:
            raise ModelError(f"{t.system.where}: there is no variable in it.")
    names = {"dims", "unit", "variable"}  # columns of the map
    modules = []
    for view, found in lines.items():
        for part in _parts(found):
            used = set(re.findall(r"[^\W\d]\w*", "\n".join(part)))
            dims = [f"{name}[{axes}]" for name, axes in shapes.items() if name in used]
            used |= set(re.findall(r"[^\W\d]\w*", "\n".join(dims)))
            ranges = [r for r in t.system.ranges if t.word_of(r) in used]
            head = [f"subscripts {t.word_of(r)}: {', '.join(map(t.word_of, t.system.elements(r)))}" for r in ranges]
            text = "\n".join([*head, *([f"dims {', '.join(dims)}"] if dims else []), *part])
            modules.append(Module(_module_name(view, names), text))
    return modules


def _parts(lines: list[str]) -> Iterator[list[str]]:
    """Yield the statements of a view in parts that fit into a module."""
    part: list[str] = []
    size = 0
    for line in lines:
        if size + len(line) > MAX_TEXT // 2:
            yield part
            part, size = [], 0
        part.append(line)
        size += len(line)
    if part:
        yield part


def _module_name(view: str, used: set[str]) -> str:
    name = "".join(c if c.isalnum() or c in "_-. " else "_" for c in view).strip()[:60] or REST
    while name.casefold() in used:
        name += "_"
    used.add(name.casefold())
    return name


def _documentation(t: Translation) -> pd.DataFrame:
    """Return the documentation of each variable in the file."""
    first_equations = {v.name: v.equations[0] for v in t.variables.values()}
    rows = [(e.label, t.variables[e.key].unit, e.lower, e.upper, e.comment, e.line) for e in first_equations.values()]
    columns = ["name", "unit", "lower", "upper", "comment", "line"]
    return pd.DataFrame(rows, columns=columns, index=pd.Index(first_equations, name="variable", dtype=object))


def _renamed(t: Translation) -> pd.Series:
    """Return the names here by names in the file, those of elements too."""
    names: dict[str, str] = {}
    for v in t.variables.values():
        names[v.label] = v.name
        if v.is_table:
            continue
        for eq in v.equations:
            for place in t.system.places(eq.subs, eq.excepts):
                if place:
                    there = ",".join(t.system.labels.get(p, p) for p in place)
                    names[f"{v.label}[{there}]"] = t.reference(v, place)
    return pd.Series(names, dtype=object, name="name")
