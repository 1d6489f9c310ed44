"""`ForeignSystem` -> statements of modules, and the items of a data base."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from fmepy.dmi.data_items import Index, Item, item
from fmepy.dmi.unit_text import read_unit
from fmepy.exchange.expressions import Expr, ReadError, key_of, name
from fmepy.exchange.vensim_formulas import BY_ELEMENT, REDUCED, Formulas
from fmepy.exchange.vensim_system import CONTROLS, Equation, ForeignSystem, ForeignVariable, Where, is_stock
from fmepy.language.tree import MAX_EXPRESSION
from fmepy.models.running.forcings import Forcing
from fmepy.tables.sheet import NUMBER
from fmepy.tables.text_files import read_text_file
from fmepy.types import Vector

Series = dict[str, tuple[Vector, Vector]]
"""Times and values by key of a variable or element."""


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
            if found_item := self._attempt(v, v.equations[0], series_item, self._series):
                self.items[v.name] = found_item
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

_BETWEEN = {"": "linear", "interpolate": "linear", "hold backward": "constant"}


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


def series_item(v: ForeignVariable, series: Series) -> Item:
    """Return the item of a data variable.

    Raises
    ------
    UnsaidError
        There is no such series, or its interpolation is unknown.
    """
    eq = v.equations[0]
    if eq.keyword not in _BETWEEN:
        raise ReadError(f":{eq.keyword.upper()}: is not supported; :INTERPOLATE: and :HOLD BACKWARD: are", eq.line)
    keys = ["[".join([eq.key, *([",".join(p)] if p else [])]) for p in product(*v.axes)]
    if any(key not in series for key in keys):
        raise ReadError("it is data, of which the file has none: read_vensim(..., data='file.csv')", eq.line)
    between = _BETWEEN[eq.keyword]
    times = np.unique(np.concatenate([series[key][0] for key in keys]))  # elements may have different times
    values = np.column_stack([_at(times, *series[key], between) for key in keys]).reshape(len(times), *map(len, v.axes))
    return item(values, times=times, interpolation=between, extrapolate=True, unit=v.unit)


def _at(times: Vector, known: Vector, values: Vector, between: str) -> Vector:
    """Return the values of a series at times that include its own."""
    if between == "linear":
        return np.interp(times, known, values)
    return values[np.maximum(np.searchsorted(known, times, side="right") - 1, 0)]
