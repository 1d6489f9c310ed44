"""Expressions of a file of Vensim or Stella -> texts in the language of modules."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise, product
from math import prod
from typing import Any, NoReturn

from fmepy.dmi.expressions import is_table_word, name_problem
from fmepy.dmi.foreign_words import FROM_START, LEVELS, REFUSED, START, WORDS
from fmepy.errors import did_you_mean
from fmepy.exchange.draft import free_name
from fmepy.exchange.expressions import Expr, ReadError, name, number
from fmepy.exchange.vensim_system import CONTROLS, Equation, ForeignSystem, ForeignVariable, Where, is_stock
from fmepy.tables.sheet import NUMBER

_ATOM, _POWER, _PRODUCT, _SUM, _LOOSE = 9, 8, 6, 5, 0
_RELATIONS = {"=": "==", "<>": "!=", "<": "<", ">": ">", "<=": "<=", ">=": ">="}
REDUCED = {k: k for k in ("sum", "prod", "min", "max", "mean", "size")}
REDUCED |= {"vmin": "min", "vmax": "max", "elmcount": "size"}
_TABLES = {"with_lookup": (0, 1, ""), "lookup": (1, 0, ""), "lookup_extrapolate": (1, 0, "extrapolate")}
"""The positions of the argument and the table, and the kind of extrapolation if the table does not determine it."""
_UNFIT = {"points": "a table", "list": "a list of numbers", "text": "a text"}
MOST_TERMS = 2000
"""Largest number of terms of a sum over elements."""
BY_ELEMENT = ("vector_select", "size", *LEVELS)
Phrase = tuple[str, int]
"""A text, and its precedence."""


class Formulas:
    """The variables of a system, and texts of expressions of them.

    Attributes
    ----------
    system : ForeignSystem
    variables : dict of str to ForeignVariable
        By key.
    """

    def __init__(self, system: ForeignSystem) -> None:
        self.system = system
        self.words = WORDS[system.dialect]
        self.variables: dict[str, ForeignVariable] = {}
        self._taken: set[str] = set()
        self._at_start = False
        self._bound: list[str] | None = None  # ranges on the left of an equation that holds for all their elements
        self._words: dict[str, str] = {}
        self._tables: dict[tuple[str, ...], str] = {}
        self._hidden: list[str] = []  # hidden statements of the current variable
        self._label = ""
        self._starts: dict[str, ForeignVariable] = {}
        self._active: dict[str, bool] = {}
        seen: list[str] = []
        for eq in system.equations:
            if eq.key in CONTROLS or eq.key == "time":
                if eq.label in seen:
                    system.refuse(eq.line, eq.label, "it has two equations")
                seen.append(eq.label)
                continue
            if eq.key in system.ranges and system.dialect == "mdl":
                system.refuse(eq.line, eq.label, "it is the name of a range of subscripts, too")
            if eq.key not in self.variables:
                self.variables[eq.key] = ForeignVariable(eq.label, self.new_name(eq.label), [])
            self.variables[eq.key].equations.append(eq)
        self.broken = [v for v in self.variables.values() if not self._attempt(v, v.equations[0], self._find_axes)]

    def new_name(self, label: str) -> str:
        """Return a new name for a name of the file."""
        name = free_name(label, self._taken)
        while name_problem(name) or name in self._taken or name in ("dt", "t_start", "t_end"):
            name += "_"
        self._taken.add(name)
        return name

    def _attempt(self, v: ForeignVariable, eq: Equation, act: Any, *args: Any) -> Any:
        """Return ``act(v, *args)``, or None after reporting its error."""
        try:
            return act(v, *args)
        except ReadError as error:
            self.system.refuse(error.line or eq.line, v.label, str(error))
        except RecursionError:
            self.system.refuse(eq.line, v.label, "it is too deeply nested")
        except IndexError:
            self.system.refuse(eq.line, v.label, "a function in it lacks an argument")
        return None

    def _find_axes(self, v: ForeignVariable) -> bool:
        places = [p for eq in v.equations for p in self.system.places(eq.subs, eq.excepts)]
        if len(set(places)) < len(places):
            raise ReadError("it has two equations" + (" for an element" if v.equations[0].subs else ""))
        if len({len(p) for p in places}) > 1:
            raise ReadError("its equations differ in their number of subscripts")
        for k in range(len(places[0]) if places else 0):
            used = dict.fromkeys(p[k] for p in places)
            for e in used:
                if e not in self.system.all_elements:
                    raise ReadError(f"there is no subscript {e!r}.{did_you_mean(e, self.system.all_elements)}")
            inside = [r for r in self.system.ranges if used.keys() <= set(self.system.elements(r))]
            on_left = [eq.subs[k].value for eq in v.equations]
            key = min(inside, key=lambda r: (len(self.system.elements(r)), r not in on_left), default="")
            axis = [e for e in self.system.elements(key) if e in used] if key else list(used)
            if not key or axis != self.system.elements(key):
                key = self.system.add_range(f"{v.label} axis {k + 1}", axis)
            v.ranges.append(key)
            v.axes.append(axis)
        return True

    def word_of(self, key: str) -> str:
        """Return the name here of a range or an element."""
        if key not in self._words:
            self._words[key] = free_name(self.system.labels.get(key, key), self._words.values())
        return self._words[key]

    def _hidden_variable(self, text: str) -> str:
        """Return the name of a new hidden variable with the value of a text."""
        name = self.new_name(f"{self._label} part")
        self._hidden.append(f"{name} = {text}")
        return name

    # values at the start, which ACTIVE INITIAL gives by its second argument

    def _with_starts(self, act: Any, *args: Any) -> Any:
        before, self._at_start = self._at_start, True
        try:
            return act(*args)
        finally:
            self._at_start = before

    def _start_variable(self, key: str) -> ForeignVariable:
        """Return the variable that has the value of `key` at the start, for initial values."""
        if not self._differs_at_start(key):
            return self.variables[key]
        if key not in self._starts:
            v = self.variables[key]
            self._starts[key] = replace(v, label=f"{v.label} at start", name=self.new_name(f"{v.label} at start"))
        return self._starts[key]

    def _refers_to_start(self, part: Expr) -> bool:
        return part.word == "name" and self._differs_at_start(part.value)

    def _differs_at_start(self, key: str) -> bool:
        if key not in self._active:
            self._active[key] = False  # ends the recursion of variables that need one another
            for eq in self.variables[key].equations if key in self.variables else ():
                parts = [] if eq.expr is None or is_stock(eq.expr) else list(eq.expr.parts())
                is_active = any(p.word == "call" and p.value == "active_initial" for p in parts)
                self._active[key] = self._active[key] or is_active or any(map(self._refers_to_start, parts))
        return self._active[key]

    def reference(self, v: ForeignVariable, place: Sequence[str]) -> str:
        """Return the name of an element."""
        for e, axis in zip(place, v.axes, strict=True) if self._bound is None else ():
            if e not in axis:
                shown = ",".join(self.system.labels.get(p, p) for p in place)
                raise ReadError(f"{v.label}[{shown}] has no equation")
        return f"{v.name}[{','.join(map(self.word_of, place))}]" if place else v.name

    # tables

    def _table_name(self, v: ForeignVariable, place: Sequence[str]) -> str:
        if not place:
            return v.name
        key = (v.name, *place)
        if key not in self._tables:
            self._tables[key] = self.new_name("_".join([v.name, *map(self.word_of, place)]))
        return self._tables[key]

    def points_of(self, e: Any) -> list[list[float]]:
        """Return the points of a table in order; a jump becomes a line over a billionth of the table's range."""
        points = [list(p) for p in sorted(dict.fromkeys(e.value), key=lambda p: p[0])]
        if not points:
            raise ReadError("a table without points", e.line)
        if len(points) == 1:
            points.append([points[0][0] + 1, points[0][1]])
        least = 1e-9 * (points[-1][0] - points[0][0])
        for before, p in pairwise(points):
            p[0] = p[0] if p[0] > before[0] else before[0] + least
        return points

    def _lookup(self, x: str, table: Expr, where: Where, kind: str = "") -> Phrase:
        if table.word == "points":
            kind = kind or (table.subs[0].value if table.subs else "hold")
            pairs = ", ".join(f"({a:.15g}, {b:.15g})" for a, b in self.points_of(table))
            text = f"table({x}, [{pairs}]"
        else:
            v = self.variables.get(table.value)
            if v is None:
                near = did_you_mean(table.value, self.variables)
                raise ReadError(f"there is no table {table.value!r}.{near}", table.line)
            first = v.equations[0].expr
            if first is not None and first.word == "call" and first.value == "with_lookup":
                return self._lookup(x, first.args[1], where, kind)
            if first is None or not v.is_table:
                raise ReadError(f"{v.label!r} is no table", table.line)
            kind = kind or (first.subs[0].value if first.subs else "hold")
            own = self._table_name(v, self._place(v, table, where))
            text = f"{own}({x}" if is_table_word(own) and not NUMBER.fullmatch(x) else f"table({x}, {own}"
        return text + (")" if kind == "hold" else f', "{kind}")'), _ATOM

    # expressions

    def text(self, e: Expr, where: Where, least: int = _LOOSE) -> str:
        """Return an expression, in brackets if its precedence is lower than `least`."""
        if e.word in _UNFIT:
            raise ReadError(f"{_UNFIT[e.word]} stands where a number is needed", e.line)
        found, level = getattr(self, f"_{e.word}")(e, where)
        return found if level >= least else f"({found})"

    def condition(self, e: Expr, where: Where) -> str:
        """Return an expression as a condition."""
        if e.word == "chain" and e.value[0] in _RELATIONS and len(e.args) == 2:
            a, b = (self.text(x, where, _SUM) for x in e.args)
            return f"{a} {_RELATIONS[e.value[0]]} {b}"
        if e.word == "chain" and e.value[0] in ("and", "or"):
            return f" {e.value[0]} ".join(self._inner_condition(a, where) for a in e.args)
        if e.word == "not":
            return f"not {self._inner_condition(e.args[0], where)}"
        return f"{self.text(e, where, _SUM)} != 0"

    def _inner_condition(self, e: Expr, where: Where) -> str:
        found = self.condition(e, where)
        return f"({found})" if re.search(r"\b(and|or|not)\b", found) else found

    def _number(self, e: Expr, where: Where) -> Phrase:
        text = f"{e.value:.15g}"
        text = text if float(text) == e.value else repr(e.value)
        if text in ("inf", "-inf", "nan"):
            raise ReadError("a number beyond the range of floating point", e.line)
        return text, _ATOM if e.value >= 0 else _PRODUCT + 1

    def _chain(self, e: Expr, where: Where) -> Phrase:
        sign = e.value[0]
        if sign in _RELATIONS or sign in ("and", "or"):
            return f"where({self.condition(e, where)}, 1, 0)", _ATOM
        if sign in "+-":
            text = self.text(e.args[0], where, _SUM)
            for s, a in zip(e.value, e.args[1:], strict=True):
                text += f" {s} {self.text(a, where, _SUM if s == '+' else _PRODUCT)}"
            return text, _SUM
        text = self.text(e.args[0], where, _PRODUCT)
        for s, a in zip(e.value, e.args[1:], strict=True):
            if s == "//" and a == number(0):
                text = "0"
            elif s in ("mod", "//"):
                b = self.text(a, where)
                text = f"fmod({text}, {b})" if s == "mod" else f"where({b} == 0, 0, {text} / ({b}))"
            else:
                text += f" {s} {self.text(a, where, _PRODUCT + 1)}"
        return text, _PRODUCT

    def _power(self, e: Expr, where: Where) -> Phrase:
        a, b = (self.text(x, where, _ATOM) for x in e.args)
        return f"{a}^{b}", _POWER

    def _minus(self, e: Expr, where: Where) -> Phrase:
        return f"-{self.text(e.args[0], where, _POWER)}", _PRODUCT + 1

    def _start(self, e: Expr, where: Where) -> Phrase:
        return self._with_starts(self.text, e.args[0], where), _LOOSE

    def _not(self, e: Expr, where: Where) -> Phrase:
        return f"where({self.condition(e, where)}, 1, 0)", _ATOM

    def _name(self, e: Expr, where: Where) -> Phrase:
        v = self.variables.get(e.value)
        if v is not None:
            if v in self.broken:  # which has been reported
                return "0", _ATOM
            if v.is_table:
                raise ReadError(f"{v.label!r} is a table: it needs its argument", e.line)
            own = self._start_variable(e.value) if self._at_start else v
            return self.reference(own, self._place(v, e, where)), _ATOM
        builtin = {"time": "t", "starttime": "t_start", "stoptime": "t_end", "pi": "pi", **CONTROLS}
        builtin |= {"dt": "dt"} if self.system.dialect == "xmile" else {}
        if e.value == "saveper":
            return self._number(number(self.system.value(e)), where)
        if e.value in builtin:
            return builtin[e.value], _ATOM
        if e.value in self.system.ranges or e.value in self.system.all_elements:  # its number in the largest range
            element = self.system.element(e.value, where)
            return str(self.system.number_of(e.value, element)), _ATOM
        known = [*self.variables, *self.system.ranges]
        raise ReadError(f"{e.value!r} has no equation.{did_you_mean(e.value, known)}", e.line)

    def _place(self, v: ForeignVariable, e: Expr, where: Where) -> list[str]:
        """Return the elements of a reference."""
        if not e.subs and v.axes:  # the current elements of the equation
            return [self.system.element(r, where) for r in v.ranges] if self._bound is None else v.ranges
        if len(e.subs) != len(v.axes):
            raise ReadError(f"{v.label!r} has {len(v.axes)} subscripts, not {len(e.subs)}", e.line)
        if self._bound is not None:
            return [s.value for s in e.subs]
        return [self.system.element(s.value + "!" * (s.word == "each"), where) for s in e.subs]

    # calls

    def _call(self, e: Expr, where: Where) -> Phrase:
        if e.value in self.variables:
            return self._lookup(self.text(e.args[0], where), name(e.value, e.subs, e.line), where)
        if e.value in _TABLES:
            x, table, kind = _TABLES[e.value]
            return self._lookup(self.text(e.args[x], where), e.args[table], where, kind)
        special = getattr(self, f"_call_{e.value}", None)
        if special is not None:
            found: Phrase = special(e, where)
            return found
        if e.value in REDUCED and (reduced := self._reduction(e, where)):
            return reduced
        if self._at_start and e.value in START:
            k = START[e.value]
            return self.text(e.args[k if k < len(e.args) else 0], where), _LOOSE
        if e.value in FROM_START and len(e.args) == 2 and any(map(self._refers_to_start, e.args[0].parts())):
            e = replace(e, args=(*e.args, Expr("start", e.args[:1])))
        template = self.words.get(f"{e.value}/{len(e.args)}")
        if template is None:
            self._refuse(e)
        if e.value in LEVELS:
            return self._levels(e, where)
        if e.value in ("zidz", "xidz") and e.args[1] == number(0):
            return self.text(e.args[2], where) if e.value == "xidz" else "0", _LOOSE
        return self._fill(str(template), e, where)

    def _refuse(self, e: Expr) -> NoReturn:
        shown = e.value.replace("_", " ").upper()
        if e.value in REFUSED:
            raise ReadError(f"{shown}: {REFUSED[e.value]}", e.line)
        counts = sorted(k.partition("/")[2] for k in self.words if k.partition("/")[0] == e.value)
        if counts:
            raise ReadError(f"{shown} takes {' or '.join(counts)} arguments, not {len(e.args)}", e.line)
        near = did_you_mean(e.value, {*(k.partition("/")[0] for k in self.words), *self.variables})
        raise ReadError(f"the function {shown} is not supported.{near}", e.line)

    def _fill(self, template: str, e: Expr, where: Where) -> Phrase:
        def put(match: re.Match[str]) -> str:
            arg = e.args[int(match[1])]
            if match[2] == "?":
                return self.condition(arg, where)
            return self.text(arg, where, _ATOM if match[2] else _LOOSE)

        is_call = re.fullmatch(r"\w+\([^()]*\)|\{0!\}", template)
        return re.sub(r"\{(\d)([!?]?)\}", put, template), _ATOM if is_call or template.startswith("where(") else _LOOSE

    def _levels(self, e: Expr, where: Where) -> Phrase:
        """Return a smooth or delay of several levels; Vensim's delays have at most as many as their time has steps."""
        fixed, at, start = LEVELS[e.value]
        n = fixed or int(self.system.value(e.args[at], at_start=True))  # which is constant in a run
        word = "delay" if e.value.startswith("delay") else "smooth"
        if word == "delay":
            try:
                steps = self._least(e.args[1]) / self.system.value(name("time_step"))
                most = max(1, int(steps * (1 + 1e-9)))
            except ReadError:  # a variable time
                most = n
                if e.value == "delay_n" and n > 1:
                    return self._pipeline(e, where, n), _ATOM
            if most < n:
                remark = f"a delay of {most} steps has no {n} levels; it is of order {most}"
                self.system.ignored.append(f"line {e.line}, {self._label!r}: {remark}")
            n = min(n, most)
        args = [self.text(a, where) for a in e.args[:2]] + ([str(n)] if n not in (1, 3) else [])
        args += [self.text(e.args[start], where)] if start < len(e.args) else []
        kind = {("smooth", 1): "smooth", ("delay", 1): "delay1"}.get((word, n), f"{word}{3 if n == 3 else 'n'}")
        return f"{kind}({', '.join(args)})", _ATOM

    def _least(self, e: Expr) -> float:
        """Return the value of a constant, the smallest one of an array."""
        v = self.variables.get(e.value) if e.word == "name" else None
        rights = (
            [eq.expr or Expr("text") for eq in v.equations] if v else [e]
        )  # a text stands for data, which are not constant
        return min(self.system.value(x) for r in rights for x in (r.args if r.word == "list" else [r]))

    def _pipeline(self, e: Expr, where: Where, n: int) -> str:
        """Return Vensim's DELAY N with a variable time, which reaches the k-th level k steps later."""
        outflow, tau = self.text(e.args[0], where), self._hidden_variable(self.text(e.args[1], where))
        start = f"{self._hidden_variable(f'initial({self.text(e.args[2], where, _ATOM)} * {tau})')} / {n}"
        for k in range(n):
            level = self.new_name(f"{self._label} level")
            own = self._hidden_variable(f"delay_fixed({tau}, {k} * dt, initial({tau}))") if k else tau
            self._hidden += [f"d({level})/dt = {outflow} - {n} * {level} / {own}", f"{level}(0) = {start}"]
            outflow = self._hidden_variable(f"{n} * {level} / {own}")
        return outflow

    def _call_get_time_value(self, e: Expr, where: Where) -> Phrase:
        if [a.value for a in e.args[::2]] != [0, 0]:
            raise ReadError("GET TIME VALUE is read as (0, offset, 0), the time itself", e.line)
        return f"t + {self.text(e.args[1], where, _SUM)}", _SUM

    def _call_test_input(self, e: Expr, where: Where) -> Phrase:
        """Return a pulse, step or ramp: it begins at the nearest step, a pulse lasts at least one step."""
        word = "pulse" if e.value == "pulse_train" else e.value
        template = self.words.get(f"{e.value}/{len(e.args)}")
        if template is None and (e.value, len(e.args)) != ("pulse_train", 4):
            self._refuse(e)
        if self.system.dialect == "xmile":
            return self._fill(str(template), e, where)
        alone = e.value == "pulse_train" and e.args[2] == number(0)
        args = [self.text(a, where) for a in (e.args[:2] if alone else e.args)]
        if word != "ramp":
            at = int(word == "step")
            args[at] = self._at_a_step(args[at], e.args[at], where)
        if word == "pulse" and not self._is_long(e.args[1]):
            args[1] = "dt" if e.args[1].word == "number" else f"max({args[1]}, dt)"
        found = f"{word}({', '.join(args)})"
        return f"sample(t >= t_start, {found}, 0)" if self.system.method == "rk4" else found, _ATOM

    _call_pulse = _call_step = _call_ramp = _call_pulse_train = _call_test_input

    def _call_quantum(self, e: Expr, where: Where) -> Phrase:
        if len(e.args) != 2:
            self._refuse(e)
        is_positive = e.args[1].word == "number" and e.args[1].value > 0
        return self._fill("{1!} * trunc({0!} / {1!})" if is_positive else str(self.words["quantum/2"]), e, where)

    def _at_a_step(self, text: str, e: Expr, where: Where) -> str:
        """Return a constant time, moved so that an input that begins then begins at the nearest step."""
        try:
            steps = (self._least(e) - self.system.value(name("initial_time"))) / self.system.value(name("time_step"))
        except ReadError:  # a variable time
            return text
        return text if abs(steps - round(steps)) < 1e-6 else f"{self.text(e, where, _SUM)} - 0.49999 * dt"

    def _is_long(self, e: Expr) -> bool:
        """Tell whether a width is known to be at least one step."""
        is_step = e.word == "name" and e.value in ("time_step", "dt")
        return is_step or (e.word == "number" and e.value >= self.system.value(name("time_step")) * (1 - 1e-6))

    def _call_initial(self, e: Expr, where: Where) -> Phrase:
        found = self._with_starts(self.text, e.args[0], where)
        return (found, _LOOSE) if self._at_start else (f"initial({found})", _ATOM)

    _call_init = _call_initial

    def _call_active_initial(self, e: Expr, where: Where) -> Phrase:
        return self.text(e.args[1 if self._at_start else 0], where), _LOOSE

    # over elements

    def _reduction(self, e: Expr, where: Where) -> Phrase | None:
        """Return a sum, product, ... over the marked subscripts; None if the function does not reduce."""
        kind = REDUCED[e.value]
        if kind == "size" and e.args and e.args[0].value in self.system.ranges:
            return str(len(self.system.elements(e.args[0].value))), _ATOM
        marked = [self._marked(a) for a in e.args] if len(e.args) == 1 else list(e.args)
        keys = self._keys(marked)
        if not keys:
            if e.value in ("min", "max"):
                return self._combined(kind, [self.text(a, where) for a in e.args])
            raise ReadError(f"{e.value.upper()} needs a subscript with !", e.line)
        if self._bound is not None and len(marked) == 1 and kind != "size":
            return f"{kind}({self.text(marked[0], where)})", _ATOM
        parts = [
            self.text(a, w, _PRODUCT + 1 if kind == "prod" else _SUM) for w in self._each(keys, where) for a in marked
        ]
        if kind == "size":
            return str(len(parts)), _ATOM
        return self._combined(kind, parts)

    def _call_vector_select(self, e: Expr, where: Where) -> Phrase:
        if len(e.args) != 5:
            raise ReadError("VECTOR SELECT takes 5 arguments", e.line)
        marked = [self._marked(a) for a in e.args[:2]]
        pairs = [tuple(self.text(a, w, _ATOM) for a in marked) for w in self._each(self._keys(marked), where)]
        action = e.args[3]
        if action.word == "number":
            found = self._selection(int(action.value), pairs)
        else:
            chosen = self._hidden_variable(self.text(action, where))
            found = self._hidden_variable(self._selection(10, pairs))
            for k in reversed(range(10)):
                found = f"where({chosen} == {k}, {self._hidden_variable(self._selection(k, pairs))}, {found})"
        nothing = " + ".join(f"abs({s})" for s, _ in pairs)
        return f"where({nothing} == 0, {self.text(e.args[2], where)}, {found})", _ATOM

    def _selection(self, action: int, pairs: Sequence[tuple[str, ...]]) -> str:
        """Return one of the eleven actions of VECTOR SELECT, on selection times expression; from 6 on expression."""
        if action == 5:
            return " * ".join(f"{x}^{s}" for s, x in pairs)
        kind = ("sum", "prod", "min", "max", "sum")[action % 6]
        rest = {"sum": "0", "prod": "1", "min": "1e+300", "max": "-1e+300"}[kind]
        parts = [f"where({s} == 0, {rest}, {x if action > 5 else f'{s} * {x}'})" for s, x in pairs]
        found = self._combined(kind, parts)[0]
        return f"({found}) / ({' + '.join(f'where({s} == 0, 0, 1)' for s, _ in pairs)})" if action % 6 == 4 else found

    def _combined(self, kind: str, parts: list[str]) -> Phrase:
        if kind in ("min", "max"):
            while len(parts) > 1:  # in pairs, so that calls are not nested too deeply
                pairs = [parts[i : i + 2] for i in range(0, len(parts), 2)]
                parts = [f"{kind}({', '.join(p)})" if len(p) > 1 else p[0] for p in pairs]
            return parts[0], _ATOM
        if kind == "prod":
            return " * ".join(parts), _PRODUCT
        total = " + ".join(parts)
        return (f"({total}) / {len(parts)}", _PRODUCT) if kind == "mean" else (total, _SUM)

    def _marked(self, e: Expr) -> Expr:
        """Return an argument with * and, in XMILE, whole arrays marked."""

        def rule(part: Expr) -> Expr | None:
            v = self.variables.get(part.value) if part.word == "name" else None
            if v is None or not v.axes:
                return None
            if not part.subs and self.system.dialect == "xmile":
                return name(part.value, tuple(Expr("each", value=r) for r in v.ranges), part.line)
            if any(s.word == "all" for s in part.subs):
                pairs = zip(part.subs, v.ranges, strict=True)
                subs = tuple(Expr("each", value=r) if s.word == "all" else s for s, r in pairs)
                return name(part.value, subs, part.line)
            return None

        return e.changed(rule)

    def _keys(self, args: Sequence[Expr]) -> list[str]:
        return list(dict.fromkeys(p.value for a in args for p in a.parts() if p.word == "each"))

    def _each(self, keys: list[str], where: Where) -> Iterator[dict[str, str]]:
        axes = [self.system.elements(k) for k in keys]
        if prod(map(len, axes)) > MOST_TERMS:
            raise ReadError(f"more than {MOST_TERMS} terms")
        for place in product(*axes):
            yield {**where, **{f"{k}!": e for k, e in zip(keys, place, strict=True)}}
