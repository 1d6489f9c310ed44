"""Models of Vensim and Stella (.mdl, .xmile, .stmx) as modules and a data base: `read_vensim`.

A file is read into a `ForeignSystem`, whose variables are translated into statements of modules and items of the data
base (`Translation`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fmepy.checks import as_path
from fmepy.dmi.data_items import Index, Item, item
from fmepy.dmi.database import Database
from fmepy.dmi.model import ModularModel
from fmepy.dmi.modules import Module
from fmepy.dmi.text import MAX_TEXT
from fmepy.dmi.unit_text import read_unit
from fmepy.errors import ArgumentError, ModelError, listed
from fmepy.exchange.expressions import Expr, ReadError, key_of, name
from fmepy.exchange.vensim_formulas import BY_ELEMENT, REDUCED, Formulas
from fmepy.exchange.vensim_mdl import read_mdl
from fmepy.exchange.vensim_system import CONTROLS, Equation, ForeignSystem, ForeignVariable, Where, is_stock
from fmepy.exchange.vensim_xmile import read_xmile
from fmepy.language.tree import MAX_EXPRESSION
from fmepy.models.running.forcings import Forcing
from fmepy.tables.sheet import NUMBER
from fmepy.tables.text_files import read_bytes, read_text, read_text_file
from fmepy.types import Vector

SUFFIXES = (".mdl", ".xmile", ".stmx")
MOST_STEPS = 10_000_000
MOST_BYTES = 20_000_000
REST = "model"
"""The module of variables that no view shows."""
_BETWEEN = {"": "linear", "interpolate": "linear", "hold backward": "constant"}
Series = dict[str, tuple[Vector, Vector]]
"""Times and values by key of a variable or element."""


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


# --- variables -> statements and items


class Translation(Formulas):
    """The variables of a system, translated into statements and items.

    Attributes
    ----------
    lines : dict of str to list of str
        By key the statements.
    items : dict of str to Item
        Constants, tables and series.
    """

    def __init__(self, system: ForeignSystem, series: Series) -> None:
        super().__init__(system)
        self.lines: dict[str, list[str]] = {}
        self.items: dict[str, Item] = {}
        self._series = series
        for key, v in self.variables.items():
            self.lines[key] = self._statements(v)
        while waiting := [key for key in self._starts if f"{key} at start" not in self.lines]:
            for key in waiting:
                self.lines[f"{key} at start"] = self._with_starts(self._statements, self._starts[key])

    # statements

    def _statements(self, v: ForeignVariable) -> list[str]:
        lines: list[str] = []
        if v in self.broken:
            return lines
        if all(eq.expr is None for eq in v.equations):
            self._attempt(v, v.equations[0], self._series_item)
            return lines
        if v.is_table:
            for eq in v.equations:
                self._attempt(v, eq, self._table_items, eq)
            return lines
        if all(self._is_number(eq.expr) for eq in v.equations):
            self._attempt(v, v.equations[0], self._constant)
            return lines
        for eq in v.equations:
            lines += self._attempt(v, eq, self._of_equation, eq) or []
        return self._documented(v, lines)

    def _documented(self, v: ForeignVariable, lines: list[str]) -> list[str]:
        """Return statements with unit and comment after the first that assigns the variable."""
        target = re.compile(rf"{v.name}(\[[^\]]*\])?(\(0\))? = ")
        at = next((i for i, line in enumerate(lines) if target.match(line)), -1)
        is_read = v.unit and not re.search(r"[\[\],:#]", v.unit) and read_unit(v.unit) is not None
        unit = f" [{v.unit}]" if is_read else ""
        comment = " ".join(filter(None, ("" if unit else v.unit, v.equations[0].comment)))
        return [f"{x}{unit}{f'  # {comment:.150}' * bool(comment)}" if i == at else x for i, x in enumerate(lines)]

    @staticmethod
    def _is_number(e: Expr | None) -> bool:
        words = ("number", "list", "minus", "power", "chain")
        return e is not None and all(
            p.word in words and (p.word != "chain" or set(p.value) <= set("+-*/")) for p in e.parts()
        )

    def _constant(self, v: ForeignVariable) -> None:
        values: dict[Index, float | Forcing] = {}
        for eq in v.equations:
            for place, e in zip(self.system.places(eq.subs, eq.excepts), self._right_sides(eq), strict=True):
                values[tuple(map(self.word_of, place))] = self.system.value(e)
        first = v.equations[0]
        words: dict[str, Any] = {"lower": first.lower, "upper": first.upper, "comment": first.comment}
        self.items[v.name] = Item(v.name, values, unit=v.unit, source=self.system.where, **words)

    def _right_sides(self, eq: Equation) -> list[Expr]:
        """Return the right-hand side of each place of an equation."""
        places = self.system.places(eq.subs, eq.excepts)
        if eq.expr is None:
            raise ReadError("some of its elements are data, others equations", eq.line)
        if eq.expr.word != "list":
            return [eq.expr] * len(places)
        if len(eq.expr.args) != len(places):
            raise ReadError(f"{len(eq.expr.args)} numbers for {len(places)} elements", eq.line)
        return list(eq.expr.args)

    def _of_equation(self, v: ForeignVariable, eq: Equation) -> list[str]:
        if self._is_general(eq):
            self._bound = [s.value for s in eq.subs]
            try:
                return self._of_element(v, self.reference(v, self._bound), self._right_sides(eq)[0], {})
            finally:
                self._bound = None
        lines = []
        for place, e in zip(self.system.places(eq.subs, eq.excepts), self._right_sides(eq), strict=True):
            where = {s.value: p for s, p in zip(eq.subs, place, strict=True) if s.value in self.system.ranges}
            lines += self._of_element(v, self.reference(v, place), e, where)
        return lines

    def _is_general(self, eq: Equation) -> bool:
        """Tell whether an equation can be written once for all elements of its ranges."""
        ranges, bound = self.system.ranges, [s.value for s in eq.subs]
        if not eq.subs or eq.excepts or eq.expr is None or len(set(bound)) < len(bound):
            return False
        for p in eq.expr.parts(subscripts=False):
            marked = [tuple(s.value for s in q.subs if s.word == "each") for q in p.parts() if q.word == "name"]
            if p.word == "call" and len(set(filter(None, marked))) > 1:
                return False  # arrays are combined by their shapes
            v = self.variables.get(p.value)
            if p.word == "list" or (p.word == "call" and (p.subs or p.value in BY_ELEMENT or (v and v.axes))):
                return False
            if p.word == "call" and p.value in REDUCED and self.system.dialect == "xmile" and len(p.args) == 1:
                return False  # a bare array in it is the whole array
            if p.word != "name":
                continue
            if v is None and (p.value in ranges or p.value in self.system.all_elements):
                return False
            subs = p.subs or (tuple(map(name, v.ranges)) if v else ())
            for s, axis in zip(subs, v.axes if v else (), strict=False):
                is_said = s.value not in bound if s.word == "each" else s.value in bound or s.value not in ranges
                if not is_said or not set(self.system.elements(s.value) if s.value in ranges else [s.value]) <= set(
                    axis
                ):
                    return False
        return True

    def _of_element(self, v: ForeignVariable, target: str, e: Expr, where: Where) -> list[str]:
        self._hidden, self._label = [], v.label
        if is_stock(e) and not self._at_start:
            nonnegative = [f"nonnegative {target}"] if e.value == "integ_nonnegative" else []
            rate, start = self.text(e.args[0], where), self._with_starts(self.text, e.args[1], where)
            lines = [f"d({target})/dt = {rate}", f"{target}(0) = {start}", *nonnegative]
        else:
            lines = [f"{target} = {self.text(e, where)}"]
        lines = [*self._hidden, *lines]
        if any(len(line) > MAX_EXPRESSION for line in lines):
            raise ReadError(f"it is longer than {MAX_EXPRESSION} characters in the language of modules; split it")
        return lines

    def _table_items(self, v: ForeignVariable, eq: Equation) -> None:
        for place in self.system.places(eq.subs, eq.excepts):
            self.items[self._table_name(v, place)] = item(self.points_of(eq.expr), unit=v.unit)

    def _series_item(self, v: ForeignVariable) -> None:
        """Add the item of a data variable."""
        eq, places = v.equations[0], list(product(*v.axes))
        if eq.keyword not in _BETWEEN:
            raise ReadError(f":{eq.keyword.upper()}: is not supported; :INTERPOLATE: and :HOLD BACKWARD: are", eq.line)
        keys = ["[".join([eq.key, *([",".join(place)] if place else [])]) for place in places]
        if any(key not in self._series for key in keys):
            raise ReadError("it is data, of which the file has none: read_vensim(..., data='file.csv')", eq.line)
        between = _BETWEEN[eq.keyword]
        elements: dict[Index, float | Forcing] = {
            tuple(map(self.word_of, place)): Forcing(self.reference(v, place), *self._series[key], between)
            for key, place in zip(keys, places, strict=True)
        }
        self.items[v.name] = Item(v.name, elements, v.unit, between, extrapolate=True)

    @cached_property
    def control(self) -> dict[str, float]:
        """The values of control variables, which must be constant."""
        values = {}
        for key in CONTROLS:
            eq = self.system.known.get(key)
            if eq is None or eq.expr is None:
                continue
            try:
                values[key] = self.system.value(eq.expr)
            except ReadError as error:
                self.system.refuse(eq.line, eq.label, str(error))
        return values


# --- data variables: their series, from tables as Vensim and PySD write them


def read_series(files: Any) -> Series:
    """Return times and values by key of a variable or element, from CSV or tab files.

    The first column is the time and the others are variables; or the first row is the time, the others are variables.
    """
    series: Series = {}
    for file in [files] if isinstance(files, str | Path) else files or ():
        sheet = read_text_file(Path(file), str(file))
        if all(NUMBER.fullmatch(str(c).strip()) for c in sheet.frame.columns[1:]):
            turned = sheet.frame.set_index(sheet.frame.columns[0]).T.reset_index()
            turned.index += 1
            sheet = replace(sheet, header=0, frame=turned.set_axis([str(c) for c in turned.columns], axis=1))
        times, *names = sheet.frame.columns
        known: dict[str, str] = {}
        for column in names:
            if (other := known.setdefault(_key(column), column)) is not column:
                raise sheet.error(f"{other!r} and {column!r} are one variable; keep one of the columns.")
            t, y = sheet.times(times), np.array(sheet.numbers(column), dtype=float)
            if np.isfinite(y).any():
                series[_key(column)] = t[np.isfinite(y)], y[np.isfinite(y)]
    return series


def _key(name: str) -> str:
    head, _, inside = name.strip().removesuffix("]").partition("[")
    return "[".join([key_of(head), *([",".join(map(key_of, inside.split(",")))] if inside else [])])
