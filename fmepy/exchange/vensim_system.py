"""The contents of a file of Vensim or Stella before translation: equations, ranges of subscripts, macros, views."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count, product
from math import prod
from operator import add, mul, sub, truediv

from fmepy.errors import ModelError, counted, did_you_mean
from fmepy.exchange.expressions import Expr, ReadError, called, key_of, name, shown

CONTROLS = {"initial_time": "t_start", "final_time": "t_end", "time_step": "dt", "saveper": "dt"}
"""Control variables, and their names in modules."""
_ARITHMETIC = {"+": add, "-": sub, "*": mul, "/": truediv}
MOST_ELEMENTS = 10_000
MOST_MACROS = 10
"""Largest depth of nested macros."""
MOST_SHOWN = 20
Where = Mapping[str, str]
"""By range the current element of an equation."""


@dataclass
class Equation:
    """One equation of the file.

    Attributes
    ----------
    label : str
        The name, as the program shows it.
    subs : tuple of Expr
        Subscripts of the left-hand side.
    expr : Expr, optional
        The right-hand side; ``list`` are numbers by element, ``points`` a table; None: data.
    excepts : tuple of tuple of Expr
        Elements for which it does not hold.
    line : int
    unit, comment, lower, upper, group
        Its documentation.
    depth : int
        Depth of nested macros that it comes from.
    keyword : str
        Interpolation of data: interpolate, hold backward.
    """

    label: str
    subs: tuple[Expr, ...]
    expr: Expr | None
    line: int
    excepts: tuple[tuple[Expr, ...], ...] = ()
    unit: str = ""
    comment: str = ""
    lower: float = -float("inf")
    upper: float = float("inf")
    group: str = ""
    depth: int = 0
    keyword: str = ""

    @cached_property
    def key(self) -> str:
        """The key of its name."""
        return key_of(self.label)


def is_stock(e: Expr) -> bool:
    """Tell whether an expression is the whole of a stock."""
    return e.word == "call" and e.value in ("integ", "integ_nonnegative") and len(e.args) == 2


@dataclass(eq=False)
class ForeignVariable:
    """A variable of the file: its name there and here, its equations, the ranges of its axes."""

    label: str
    name: str
    equations: list[Equation]
    axes: list[list[str]] = field(default_factory=list)
    ranges: list[str] = field(default_factory=list)

    @property
    def unit(self) -> str:
        """Its unit, of the first equation that has one."""
        return next((e.unit for e in self.equations if e.unit), "")

    @property
    def is_table(self) -> bool:
        """Whether it is called with an argument."""
        return all(e.expr is not None and e.expr.word == "points" for e in self.equations)


@dataclass
class Macro:
    """A macro: its inputs, outputs and equations."""

    label: str
    inputs: list[str]
    outputs: list[str]
    equations: list[Equation] = field(default_factory=list)


@dataclass
class ForeignSystem:
    """A model from a file.

    Attributes
    ----------
    where : str
        The file, for the beginning of messages.
    dialect : {"mdl", "xmile"}
    equations : list of Equation
    ranges : dict of str to list of str
        Elements of ranges, ranges inside ranges too, by key.
    maps : dict of (str, str) to list of str
        By two ranges, the elements of the second that belong to those of the first.
    labels : dict of str to str
        Names of ranges and elements, as the program shows them.
    macros : dict of str to Macro
    views : dict of str to list of str
        Keys of the variables in a view, in the order of the file.
    method : str
        euler, rk4, or the name of an unknown method.
    ignored : list of str
        Parts of the file that a run does not use.
    problems : list of (int, str, str)
        Line, variable, and what cannot be translated.
    """

    where: str
    dialect: str
    equations: list[Equation] = field(default_factory=list)
    ranges: dict[str, list[str]] = field(default_factory=dict)
    maps: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    macros: dict[str, Macro] = field(default_factory=dict)
    views: dict[str, list[str]] = field(default_factory=dict)
    method: str = "euler"
    ignored: list[str] = field(default_factory=list)
    problems: list[tuple[int, str, str]] = field(default_factory=list)
    _elements: dict[str, list[str]] = field(default_factory=dict)
    _families: dict[str, dict[str, int]] = field(default_factory=dict)

    def refuse(self, line: int, label: str, message: str) -> None:
        """Record a problem, to be raised by `check`."""
        self.problems.append((line, label, message))
        if len(self.problems) > 2 * MOST_SHOWN:
            self.check()

    def check(self) -> None:
        """Raise an error with all problems, if there are any."""
        problems = sorted(set(self.problems))
        if not problems:
            return
        lines = [f"  line {n}{f', {label!r:.80}' if label else ''}: {text}" for n, label, text in problems[:MOST_SHOWN]]
        lines += [f"  ... and {len(problems) - MOST_SHOWN} more"] if len(problems) > MOST_SHOWN else []
        raise ModelError(f"{self.where}: {counted(len(problems), 'thing')} cannot be read.\n" + "\n".join(lines))

    def label(self, text: str) -> str:
        """Return the key of the name of a range or element, and record its spelling."""
        key = key_of(text)
        self.labels.setdefault(key, shown(text))
        return key

    def add_range(self, text: str, elements: Iterable[str]) -> str:
        """Add a range of elements, by names as written."""
        key = self.label(text)
        self.ranges[key] = [self.label(e) for e in elements]
        return key

    # subscripts

    def elements(self, key: str, inside: tuple[str, ...] = ()) -> list[str]:
        """Return the elements of a range, including those of ranges in it."""
        if key not in self._elements:
            if key in inside:
                raise ReadError(f"the ranges {', '.join(inside)} are made of one another")
            if key not in self.ranges:
                raise ReadError(f"there is no range of subscripts {key!r}.{did_you_mean(key, self.ranges)}")
            elements: dict[str, None] = {}
            for e in self.ranges[key]:
                more = self.elements(e, (*inside, key)) if e in self.ranges and e != key else [e]
                elements.update(dict.fromkeys(more))
            if len(elements) > MOST_ELEMENTS:
                raise ReadError(f"the range {self.labels[key]!r} has more than {MOST_ELEMENTS} elements")
            self._elements[key] = list(elements)
        return self._elements[key]

    def number_of(self, key: str, element: str) -> int:
        """Return the number, from 1, of an element of a range (or alone) in the largest range that includes it."""
        if key not in self._families:
            inside = set(self.elements(key)) if key in self.ranges else {key}
            family = max((f for f in map(self.elements, self.ranges) if inside <= set(f)), key=len)
            self._families[key] = {e: i + 1 for i, e in enumerate(family)}
        return self._families[key][element]

    @cached_property
    def all_elements(self) -> dict[str, None]:
        """The elements of all ranges."""
        return {e: None for key in self.ranges for e in self.elements(key)}

    def mapped(self, source: str, target: str) -> dict[str, str] | None:
        """Return the elements of the range `source` by the elements of `target` that they are mapped to."""
        if (source, target) in self.maps:
            there = self.maps[source, target] or self.elements(target)
            by_target = {}
            for e, others in zip(self.elements(source), there, strict=False):
                by_target.update(dict.fromkeys(self.elements(others) if others in self.ranges else [others], e))
            return by_target
        back = self.maps.get((target, source))
        if back is None:
            return None
        there = back or self.elements(source)
        return {e: o for e, o in zip(self.elements(target), there, strict=False) if o not in self.ranges}

    def element(self, sub: str, where: Where) -> str:
        """Return the element of a subscript, given the current elements of an equation."""
        if sub in where:
            return where[sub]
        if sub not in self.ranges:
            if sub in self.all_elements:
                return sub
            raise ReadError(f"there is no subscript {sub!r}.{did_you_mean(sub, [*self.ranges, *self.all_elements])}")
        own = self.elements(sub)
        known = {target: e for target, e in where.items() if target in self.ranges}
        for target, e in known.items():
            if self.elements(target) == own and (sub, target) not in self.maps:
                return e
            if (found := self.mapped(sub, target)) is not None and e in found:
                return found[e]
        inside = [e for e in known.values() if e in own]
        if len(inside) == 1:
            return inside[0]
        raise ReadError(f"the range {self.labels[sub]!r} is neither on the left nor mapped to a range there")

    def places(self, subs: Iterable[Expr], excepts: Iterable[tuple[Expr, ...]] = ()) -> list[tuple[str, ...]]:
        """Return the elements of subscripts on the left, in the order of lists of numbers."""
        axes = [self.elements(s.value) if s.value in self.ranges else [s.value] for s in subs]
        if prod(map(len, axes)) > MOST_ELEMENTS:
            raise ReadError(f"more than {MOST_ELEMENTS} elements")
        left_out = {place for e in excepts for place in self.places(e)}
        return [place for place in product(*axes) if place not in left_out]

    # constants

    @cached_property
    def known(self) -> dict[str, Equation]:
        """Equations by key."""
        return {eq.key: eq for eq in self.equations}

    def value(self, e: Expr, depth: int = 0, *, at_start: bool = False) -> float:
        """Return the value of an expression of constants; `at_start` also one of time at the start."""
        if depth > 100:
            raise ReadError("it depends on itself")
        if e.word == "number":
            return float(e.value)
        inner = self.known[e.value].expr if e.word == "name" and e.value in self.known and not e.subs else None
        if inner is not None:
            return self.value(inner, depth + 1, at_start=at_start)
        args = [self.value(a, depth + 1, at_start=at_start) for a in e.args]
        try:
            match e.word:
                case "name" if at_start and e.value == "time":
                    return self.value(name("initial_time"))
                case "call" if at_start and e.value == "step":
                    return args[0] if self.value(name("initial_time")) >= args[1] else 0.0
                case "minus":
                    return -args[0]
                case "power":
                    return float(args[0] ** args[1])
                case "chain" if _ARITHMETIC.keys() >= set(e.value):
                    total = args[0]
                    for sign, a in zip(e.value, args[1:], strict=True):
                        total = _ARITHMETIC[sign](total, a)
                    return total
        except (ArithmeticError, TypeError):
            raise ReadError("it has no value", e.line) from None
        raise ReadError("it is no constant: it is needed before the run begins; write a number", e.line)

    # macros

    def expand_macros(self) -> None:
        """Replace calls of macros by their equations, a copy with new names for each call."""
        numbers, total = count(1), 0
        waiting = list(self.equations)
        self.equations = []
        while waiting:
            eq = waiting.pop(0)
            self.equations.append(eq)
            if eq.expr is not None and self.macros:
                new: list[Equation] = []
                eq.expr = eq.expr.changed(self._expansion(eq, numbers, new))
                waiting[:0] = new
                total += len(new)
            if total > MOST_ELEMENTS or eq.depth > MOST_MACROS:
                raise ModelError(f"{self.where}: macros that call one another without end, from {eq.label!r:.60} on.")

    def _expansion(self, eq: Equation, numbers: count[int], made: list[Equation]) -> Callable[[Expr], Expr | None]:
        def rule(e: Expr) -> Expr | None:
            macro = self.macros.get(e.value) if e.word == "call" else None
            if macro is None:
                return None
            extra = [v.value for v in e.args[len(macro.inputs) :]]
            if len(e.args) < len(macro.inputs) or len(extra) > len(macro.outputs) - 1:
                self.refuse(e.line, eq.label, f"{macro.label} takes {len(macro.inputs)} arguments")
                return Expr("number", value=0.0)
            rename = {v.key: f"{eq.label} {macro.label} {next(numbers)} {v.label}" for v in macro.equations}
            rename |= dict(zip(macro.outputs[1:], [str(x) for x in extra], strict=False))
            args = [a.changed(rule) for a in e.args[: len(macro.inputs)]]
            given = dict(zip(macro.inputs, args, strict=True))

            def inner(part: Expr) -> Expr | None:
                if part.word == "name" and part.value in given:
                    return given[part.value]
                if part.value in rename and (
                    part.word == "name" or (part.word == "call" and part.value not in self.macros)
                ):
                    inside = tuple(a.changed(inner) for a in part.args)
                    return replace(part, value=key_of(rename[part.value]), subs=(*part.subs, *eq.subs), args=inside)
                return None

            for v in macro.equations:
                expr = v.expr.changed(inner) if v.expr is not None else None
                new = replace(v, label=rename[v.key], subs=(*v.subs, *eq.subs), expr=expr)
                made.append(replace(new, group=eq.group, depth=eq.depth + 1))
                made[-1].__dict__.pop("key", None)
            first = macro.outputs[0] if macro.outputs else ""
            return (
                name(key_of(rename[first]), eq.subs, e.line) if first in rename else called("a macro without a value")
            )

        return rule
