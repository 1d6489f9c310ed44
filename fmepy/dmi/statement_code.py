"""Statements of modules -> LLVM's text, a function each: ``void f(double t, double** p, i64 first, i64 last)``.

``p`` are pointers to the values of the statement's variables: ``p[0]`` to its target, then to every variable that it
reads, in order of first appearance. So the text has no names, and statements of one form share a function. A loop
computes elements first to last - 1 of an array; a function with a scalar target ignores the two.

`compiled.llvm_code` writes expressions; this file adds elements of arrays, lists, sums, matrix products and tables.
Scalars in the statement of an array, and elements of a list, are computed once before the loop; factors of a matrix
product are variables or lists of numbers.

Equal texts are compiled once (`compiled.function_store`), so that a changed module compiles its own changes only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

from fmepy.compiled.function_store import PLACEHOLDER
from fmepy.compiled.llvm_code import MOST_NESTED, ExpressionWriter, WholeFunction
from fmepy.compiled.llvm_operations import NAN, number
from fmepy.compiled.statements import statements
from fmepy.dmi.statements import (
    TABLE_KINDS,
    TIME,
    ArrayNode,
    ArraySymbol,
    Reference,
    Shape,
    is_list_of_numbers,
    reference_of,
    size_of,
    varying_nodes,
)
from fmepy.language.nodes import Node, Symbol, in_order


class StatementText(NamedTuple):
    """The function of a statement in LLVM's text, with the name `PLACEHOLDER`.

    Attributes
    ----------
    text : str
    called : frozenset of (str, int)
        The C functions that it calls, with their numbers of arguments.
    names : tuple of str
        The variables of its pointers.
    points : tuple of (str, int)
        The variables with the xs of tables, and their strides there.
    """

    text: str
    called: frozenset[tuple[str, int]]
    names: tuple[str, ...]
    points: tuple[tuple[str, int], ...]


def statement_text(target: Reference, value: Node, shapes: Mapping[str, Shape]) -> StatementText:
    """Return the text of a statement."""
    names = {s.name.rpartition("[")[0] if s.name.endswith("]") else s.name for s in value.free_symbols if s is not TIME}
    return _statement_text(target, value, tuple((name, shapes[name]) for name in sorted(names) if shapes[name]))


@lru_cache(maxsize=20_000)  # changed copies of a system share most of their statements
def _statement_text(target: Reference, value: Node, shapes: tuple[tuple[str, Shape], ...]) -> StatementText:
    return _ModuleWriter(target, value, defaultdict(tuple, shapes)).written()


class _ModuleWriter(ExpressionWriter):
    """The writer of one statement."""

    def __init__(self, target: Reference, value: Node, shapes: Mapping[str, Shape]) -> None:
        alone = WholeFunction(set())
        super().__init__(alone)
        self._target, self._value, self._order = target, value, in_order([value])
        self.slots = {target.name: "p0"}
        alone.where[TIME] = "t"
        self._reads_itself = False
        self._points: list[tuple[str, int]] = []
        for symbol in self._order:
            if not isinstance(symbol, Symbol) or symbol is TIME:
                continue
            read = reference_of(symbol, shapes)
            slot = self.slots.setdefault(read.name, f"p{len(self.slots)}")
            alone.where[symbol] = slot, read.positions[0]
            self._reads_itself = self._reads_itself or slot == "p0"
        self._heads: list[str] = []
        self._globals: list[str] = []
        self._lists: dict[Node, str] = {}  # by their places
        self._index = ""

    def written(self) -> StatementText:
        """Return the statement's function."""
        for i, slot in enumerate(self.slots.values()):
            self._heads += [f"  %to{i} = getelementptr ptr, ptr %p, i64 {i}", f"  %{slot} = load ptr, ptr %to{i}"]
        self.begin("begin")
        is_varying = varying_nodes(self._order)
        for e in self._order:  # parts that are the same at all elements are computed once
            for part in e.args if e in is_varying else [e] if isinstance(e, ArrayNode) else []:
                if part.args and part not in is_varying:
                    self._computed(part)
        if self._value.word == "array":
            self._array(self._value)
        if not self._target.value_shape:
            self.store(self._computed(self._value), "p0", self._target.positions[0])
        else:  # a statement that reads its own target reads the values before
            place = self._buffer(prod(self._target.shape)) if self._reads_itself else "p0"
            with self.loop("%first", "%last") as k:
                self.store(self._at_element(self._value, k), place, k)
            if place != "p0":
                with self.loop("%first", "%last") as k:
                    self.store(self.load(place, k), "p0", k)
        head = f"define internal void {PLACEHOLDER}(double %t, ptr %p, i64 %first, i64 %last) nounwind {{"
        lines = [*self._globals, head, "entry:", *self._heads, "  br label %begin", *self.lines, "  ret void", "}"]
        return StatementText("\n".join(lines), frozenset(self.declared), tuple(self.slots), tuple(self._points))

    def _computed(self, e: Node) -> str:
        """Return the name of an expression's value; array nodes, and parts of a deep expression, are written before."""
        for part in statements([e], MOST_NESTED, lambda a: isinstance(a, ArrayNode))[0]:
            self.value(part)
        return self.value(e)

    def _at_element(self, e: Node, k: str) -> str:
        """Return the name of an expression's value at an element."""
        before, self._index = self._index, k
        value = self._computed(e)
        self._index = before
        return value

    def _buffer(self, n: int) -> str:
        name = f"room{len(self._heads)}"
        self._heads.append(f"  %{name} = alloca [{n} x double]")
        return name

    def _array(self, e: Any) -> str:
        """Return the name of the pointer to the elements of a variable or a list."""
        if isinstance(e, ArraySymbol):
            return self.slots[e.name]
        if e not in self._lists and not is_list_of_numbers(e):
            self._lists[e] = place = self._buffer(len(e.args))
            for i, item in enumerate(e.args):
                self.store(self._computed(item), place, i)
        elif e not in self._lists:
            name, place = f"{PLACEHOLDER}.{len(self._globals)}", f"constants{len(self._globals)}"
            entries = ", ".join(f"double {number(item.value)}" for item in e.args)
            self._globals.append(f"{name} = private constant [{len(e.args)} x double] [{entries}]")
            self._heads.append(f"  %{place} = getelementptr double, ptr {name}, i64 0")
            self._lists[e] = place
        return self._lists[e]

    # --- values

    def _written(self, e: Any) -> str:
        if isinstance(e, ArraySymbol) or e.word == "array":
            return self.load(self._array(e), self._index)
        if not isinstance(e, ArrayNode):
            return super()._written(e)
        if e.word == "table":
            return self._table(*e.args)
        if e.word == "sum":
            return self._sum_of(lambda k: self._at_element(e.args[0], k), size_of(e.args[1]))
        return self._product_element(e, self._index)

    def _product_element(self, e: Node, i: str) -> str:
        """Return the name of an element of a matrix product."""
        a, b, *sizes = e.args
        rows, length, width = map(size_of, sizes)
        at_a, at_b, i = self._array(a), self._array(b), i if rows * width > 1 else "0"
        row, column = (f"{self.emit(f'{word} i64 {i}, {width}')}" if width > 1 else i for word in ("udiv", "urem"))
        begin = self.emit(f"mul i64 {row}, {length}")

        def term(k: str) -> str:
            x = self.load(at_a, self.emit(f"add i64 {begin}, {k}"))
            at = self.emit(f"add i64 {self.emit(f'mul i64 {k}, {width}')}, {column}") if width > 1 else k
            return self.binary("fmul", x, self.load(at_b, at))

        return self._sum_of(term, length)

    def _sum_of(self, term: Any, n: int) -> str:
        """Return the name of a sum of n terms."""
        total = self._buffer(1)
        self.lines.append(f"  store double {number(0.0)}, ptr %{total}")
        with self.loop(0, n) as k:
            self.add(term(k), total, 0)
        name = self.name("%v")
        self.lines.append(f"  {name} = load double, ptr %{total}")
        return name

    def _table(self, x: Node, xs: Node, ys: Node, *sizes: Node) -> str:
        """Return the name of a table's value: a bisection without branches finds the interval."""
        n, kind, stride = map(size_of, sizes)
        self._points += [(xs.name, stride)] if isinstance(xs, ArraySymbol) else []
        at_xs, at_ys, v = self._array(xs), self._array(ys), self.value(x)

        def point(k: str) -> tuple[str, str]:
            at = self.emit(f"mul i64 {k}, {stride}") if stride > 1 else k
            return self.load(at_xs, at), self.load(at_ys, self.emit(f"add i64 {at}, 1") if stride > 1 else at)

        left, length = "0", n - 1
        while length > 1:
            middle = self.emit(f"add i64 {left}, {length // 2}")
            is_left = self.compare("olt", v, point(middle)[0])
            left = self.emit(f"select i1 {is_left}, i64 {left}, i64 {middle}")
            length -= length // 2
        (x0, y0), (x1, y1) = point(left), point(self.emit(f"add i64 {left}, 1"))
        slope = self.binary("fdiv", self.binary("fsub", y1, y0), self.binary("fsub", x1, x0))
        y = self.binary("fadd", y0, self.binary("fmul", slope, self.binary("fsub", v, x0)))
        y = y0 if TABLE_KINDS[kind] == "step" else y
        if TABLE_KINDS[kind] != "extrapolate":
            (first, y_first), (last, y_last) = point("0"), point(f"{n - 1}")
            y = self.select(self.compare("olt", v, last), y, y_last)
            y = self.select(self.compare("ole", v, first), y_first, y)
        return self.select(self.compare("ord", v, v), y, NAN)
