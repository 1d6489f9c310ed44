"""`ForeignSystem` -> statements of modules, and the items of a data base."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from fmepy.exchange.vensim_data import Series, series_item
from fmepy.exchange.vensim_expressions import Expr, UnsaidError
from fmepy.exchange.vensim_formulas import BY_ELEMENT, Formulas
from fmepy.exchange.vensim_system import CONTROLS, Equation, ForeignSystem, ForeignVariable, Where, is_stock
from fmepy.language.tree import MAX_EXPRESSION


class Translation(Formulas):
    """The variables of a system, and what they are in the language of modules.

    Attributes
    ----------
    lines : dict of str to list of str
        By key the statements.
    items : dict of str to object
        Constants and tables of the data base, arrays as nested lists.
    """

    def __init__(self, system: ForeignSystem, series: Series) -> None:
        super().__init__(system)
        self.lines: dict[str, list[str]] = {}
        self.items: dict[str, Any] = {}
        self._series = series
        for key, v in self.variables.items():
            self.lines[key] = self._statements(v)
        while waiting := [key for key in self._starts if f"{key} at start" not in self.lines]:
            for key in waiting:
                self.lines[f"{key} at start"] = self._with_starts(self._statements, self._starts[key])

    # statements

    def _statements(self, v: ForeignVariable) -> list[str]:
        found: list[str] = []
        if v in self.broken:
            return found
        if all(eq.expr is None for eq in v.equations):
            self.items[v.name] = self._guarded(v, v.equations[0], series_item, self.system, self._series)
            return found
        if v.is_table:
            for eq in v.equations:
                self._guarded(v, eq, self._table_items, eq)
            return found
        if all(self._is_number(eq.expr) for eq in v.equations):
            self._guarded(v, v.equations[0], self._constant)
            return found
        for eq in v.equations:
            found += self._guarded(v, eq, self._of_equation, eq) or []
        return found

    @staticmethod
    def _is_number(e: Expr | None) -> bool:
        words = ("number", "list", "minus", "power", "chain")
        return e is not None and all(
            p.word in words and (p.word != "chain" or set(p.value) <= set("+-*/")) for p in e.parts()
        )

    def _constant(self, v: ForeignVariable) -> None:
        values = {}
        for eq in v.equations:
            for place, e in zip(self.system.places(eq.subs, eq.excepts), self._listed(eq), strict=True):
                values[v.index(place)] = self.value(e)
        self.items[v.name] = self._nested(v, values) if v.axes else values[()]

    def _listed(self, eq: Equation) -> list[Expr]:
        """Return the right-hand side of each place of an equation."""
        places = self.system.places(eq.subs, eq.excepts)
        if eq.expr is None:
            raise UnsaidError("some of its elements are data, others equations", eq.line)
        if eq.expr.word != "list":
            return [eq.expr] * len(places)
        if len(eq.expr.args) != len(places):
            raise UnsaidError(f"{len(eq.expr.args)} numbers for {len(places)} elements", eq.line)
        return list(eq.expr.args)

    def _nested(self, v: ForeignVariable, values: dict[tuple[int, ...], float], at: tuple[int, ...] = ()) -> Any:
        if len(at) == len(v.axes):
            return values.get(at, 0.0)
        return [self._nested(v, values, (*at, i)) for i in range(len(v.axes[len(at)]))]

    def _of_equation(self, v: ForeignVariable, eq: Equation) -> list[str]:
        if v.axes and self._is_uniform(v, eq):
            self._whole = eq
            try:
                where = {s.value: axis[0] for s, axis in zip(eq.subs, v.axes, strict=True)}
                return self._of_element(v, v.name, self._listed(eq)[0], where)
            finally:
                self._whole = None
        found = []
        for place, e in zip(self.system.places(eq.subs, eq.excepts), self._listed(eq), strict=True):
            where = {s.value: p for s, p in zip(eq.subs, place, strict=True) if s.value in self.system.ranges}
            found += self._of_element(v, self.reference(v, place), e, where)
        return found

    def _is_uniform(self, v: ForeignVariable, eq: Equation) -> bool:
        """Tell whether an equation holds for arrays as they are: all read what stands at the same place."""
        keys = [s.value for s in eq.subs]
        axes = [self.system.elements(k) if k in self.system.ranges else [] for k in keys]
        if axes != v.axes or len(set(keys)) < len(keys) or eq.excepts or eq.expr is None or len(v.equations) > 1:
            return False
        for p in eq.expr.parts(subscripts=False):
            other = self.variables.get(p.value) if p.word == "name" else None
            if p.word == "list" or (p.word == "call" and (p.subs or p.value in BY_ELEMENT)):
                return False
            if other is None:
                if p.word == "name" and (p.value in self.system.ranges or p.value in self.system.all_elements):
                    return False
            elif other.axes and (other.axes != axes or [s.value for s in p.subs] not in ([], keys)):
                return False
        return True

    def _of_element(self, v: ForeignVariable, target: str, e: Expr, where: Where) -> list[str]:
        self._parts, self._label = [], v.label
        if is_stock(e) and not self._at_start:
            kept = [f"nonnegative {target}"] if e.value == "integ_nonnegative" else []
            rate, start = self.text(e.args[0], where), self._with_starts(self.text, e.args[1], where)
            lines = [f"d({target})/dt = {rate}", f"{target}(0) = {start}", *kept]
        else:
            lines = [f"{target} = {self.text(e, where)}"]
        lines = [*self._parts, *lines]
        if any(len(line) > MAX_EXPRESSION for line in lines):
            raise UnsaidError(f"it is longer than {MAX_EXPRESSION} characters in our words; split it")
        return lines

    def _table_items(self, v: ForeignVariable, eq: Equation) -> None:
        for place in self.system.places(eq.subs, eq.excepts):
            self.items[self._table_name(v, place)] = self.points_of(eq.expr)

    @cached_property
    def control(self) -> dict[str, float]:
        """The values of control variables, which are constant."""
        found = {}
        for key in CONTROLS:
            eq = self.known.get(key)
            if eq is None or eq.expr is None:
                continue
            try:
                found[key] = self.value(eq.expr)
            except UnsaidError as error:
                self.system.refuse(eq.line, eq.label, str(error))
        return found
