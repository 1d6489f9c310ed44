"""Parsed right-hand side -> expression of the model language, with arrays, their shapes, and functions with a memory.

`language.text` reads the model language; modules add lists, elements, and functions of their own (`OWN`). Variables
without declared dimensions are scalars, so all shapes are known and are checked here.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any, NamedTuple

from fmepy.dmi.ranges import Bound, Ranges, places_of, read_index
from fmepy.dmi.statements import (
    DT,
    END,
    START,
    TABLE_KINDS,
    TIME,
    ArraySymbol,
    Memory,
    Reference,
    Shape,
    Size,
    array_node,
    indices_of,
    is_list_of_numbers,
)
from fmepy.errors import did_you_mean
from fmepy.language.conditions import Condition, choose
from fmepy.language.equations import symbol
from fmepy.language.nodes import Node, Number, Symbol, as_node, call, mul, substituted
from fmepy.language.text import OTHER_WORDS, Converter, Value, called_name, parse_expression, text_functions
from fmepy.language.tree import Tree, reserved_name


class ModuleFunction(NamedTuple):
    """A function of modules: the least and largest number of arguments, and whether it has a memory."""

    least: int
    most: int
    has_memory: bool = False


OWN = {
    "clip": ModuleFunction(4, 4), "step": ModuleFunction(2, 2), "ramp": ModuleFunction(2, 3),
    "pulse": ModuleFunction(2, 4), **dict.fromkeys(("sum", "prod", "mean"), ModuleFunction(1, 1)),
    "dot": ModuleFunction(2, 2),
    "table": ModuleFunction(2, 4), "initial": ModuleFunction(1, 1, True), "sample": ModuleFunction(3, 3, True),
    "lag": ModuleFunction(3, 3, True), "rate": ModuleFunction(1, 1, True),
    **dict.fromkeys(("smooth", "smooth3", "delay1", "delay3", "delay_fixed", "trend"), ModuleFunction(2, 3, True)),
    "random_uniform": ModuleFunction(2, 2, True), "random_normal": ModuleFunction(2, 4, True),
    **dict.fromkeys(("smoothn", "delayn", "forecast"), ModuleFunction(3, 4, True)),
}  # fmt: skip
"""The functions of modules that the model language lacks; docs/dmi.md describes them."""
CHAINS = {
    "smooth": "smooth", "smooth3": "smooth", "smoothn": "smooth", "delay1": "delay", "delay3": "delay",
    "delayn": "delay", "trend": "trend", "forecast": "forecast",
}  # fmt: skip
"""Smooths and delays, which are chains of levels, and the kind of their chain."""
MOST_LEVELS = 100
"""Largest number of levels of a chain."""
_POSITIVE = {**dict.fromkeys(CHAINS, (1, "tau")), "pulse": (2, "the interval")}
"""Arguments that must be above 0: position and name."""
CLOCK = {"t": TIME, "dt": Symbol(DT), "t_start": Symbol(START), "t_end": Symbol(END)}
"""The names of time, the elementary step, and the first and the last of the model's times."""
_RESERVED = {
    "t": "the time", "time": "the column of the times in the result", "pi": "a constant", "dt": "the elementary step",
    "t_start": "the first time of the run", "t_end": "the last time of the run",
}  # fmt: skip
_SLACK = 1e-6
"""Tolerance of times on the grid, as a fraction of a step: k dt is rounded."""
_FORMULAS = {
    ("clip", 4): "where(c >= d, a, b)",
    ("step", 2): "where(late >= b, a, 0)",
    ("ramp", 2): "a * max(t - b, 0)",
    ("ramp", 3): "a * max(min(t, c) - b, 0)",
    ("pulse", 2): "where(late >= a, where(late - a < b, 1, 0), 0)",
    ("pulse", 3): "where(late >= b, where(where(c > 0, (late - b) % c, late - b) < dt, a, 0), 0)",
    ("pulse", 4): "where(early <= d, where(late >= a, where(where(c > 0, (late - a) % c, late - a) < b, 1, 0), 0), 0)",
}
"""Functions of system dynamics by name and number of arguments a, b, ...; `late` and `early` are t plus and minus the
tolerance of the grid."""


def module_functions() -> dict[str, Any]:
    """Return the functions that a module may call, by name: those that texts may call, and its own."""
    return text_functions() | OWN


def is_table_word(name: str) -> bool:
    """Tell whether a called name may be a table: it is neither a function nor a typing error for one.

    Examples
    --------
    >>> is_table_word("price_table"), is_table_word("tabel"), is_table_word("dely_fixed")
    (True, False, False)
    """
    alike = [f for f in module_functions() if ("_" in f) == ("_" in name)]
    return not (name in OTHER_WORDS or did_you_mean(name, alike))


def name_problem(name: str) -> str:
    """Return why a variable cannot have a name, or an empty string."""
    if name in _RESERVED:
        return f"{name!r} is {_RESERVED[name]}; choose another name"
    if not name.isidentifier():
        return f"{name!r} is not a name: letters, digits and underscores, no digit first"
    if name in OWN:
        hint = ". A module's step is declared without '=': step 2" if name == "step" else ""
        return f"{name!r} is a function: it is called with arguments in brackets, and cannot be a name{hint}"
    return reserved_name(name)


def shape_text(shape: Shape) -> str:
    """Return a shape in words."""
    if not shape:
        return "a scalar"
    if len(shape) == 1:
        return f"a vector of {int(shape[0])}"
    return f"{'a matrix' if len(shape) == 2 else 'an array'} of {' x '.join(str(int(n)) for n in shape)}"


def differ(a: Shape, b: Shape) -> bool:
    """Tell whether two arrays cannot be combined by element: sizes differ, or the names of their elements do."""
    return a != b or any(
        isinstance(n, Size) and isinstance(m, Size) and n.elements != m.elements for n, m in zip(a, b, strict=True)
    )


class RightSide(Converter):
    """The expression of a right-hand side, with the variables and memories that it uses.

    Parameters
    ----------
    tree : Tree
        The parsed text.
    declared : mapping of str to shape
        The declared dimensions; other names are scalars.
    numbers : iterator of int
        Numbers of hidden variables.
    module : str
        The module; the names of hidden variables begin with its name.
    is_initial : bool
        Whether it is an initial value, where functions with a memory make no sense.
    tables : dict of str to shape
        Names without dims that are the points of tables, with dims from the data base; further ones are added.
    ranges, bound
        The ranges of subscripts, and the current element of each range on the left-hand side.

    Attributes
    ----------
    value, shape, reads, memories, words
        See `dmi.statements.ModuleStatement`.

    Raises
    ------
    ModelTextError
        For everything that is not on the white list, and for shapes that do not fit.
    """

    functions = staticmethod(module_functions)

    def __init__(
        self, tree: Tree, declared: Mapping[str, Shape], numbers: Iterator[int], module: str, is_initial: bool,
        tables: dict[str, Shape], ranges: Ranges, bound: Bound,
    ) -> None:  # fmt: skip
        super().__init__(tree)
        self.reads: list[Reference] = []
        self.memories: list[Memory] = []
        self.words: list[str] = []
        self._shapes: list[list[Shape]] = [[]]  # of the parts read so far, for every level of nesting
        self._declared, self._numbers, self._module, self._is_initial = declared, numbers, module, is_initial
        self._own: dict[ast.expr, Shape] = {}  # shapes of nodes that are not computed by element
        self._ranges, self._bound = ranges, bound
        self._tables, self._points = tables, dict[ast.expr, Shape]()
        self.value = as_node(self.whole())
        ((self.shape,),) = self._shapes

    def number(self, node: ast.expr, depth: int) -> Value:
        """Return the value of a node that is a number or an array."""
        self._shapes.append([])
        match node:
            case ast.Subscript():
                value = self._element(node, depth)
            case ast.List():
                value = self._array(node, depth)
            case ast.Call(func=ast.Name(id="min" | "max" as name), args=[_]) if not node.keywords:
                value = self._least_or_largest(node, name, depth)
            case ast.Call(func=ast.Name(id=name)) if self._is_table(node, name):
                value = self._table(node, name, depth)
            case ast.Call(func=ast.Name(id=name)) if name in OWN:
                value = self._own_call(node, name, depth)
            case _:
                value = super().number(node, depth)
        self._add_shape(node)
        return value

    def condition(self, node: ast.expr, depth: int) -> Condition:
        """Return the condition of a node."""
        self._shapes.append([])
        condition = super().condition(node, depth)
        self._add_shape(node)
        return condition

    def _add_shape(self, node: ast.expr) -> None:
        """Add the shape of a node to those of its parent: its own, or the common shape of its parts."""
        inside = self._shapes.pop()
        self._shapes[-1].append(self._own.pop(node) if node in self._own else self._joined(inside, node))

    # kinds of values

    def _name(self, node: ast.Name) -> Value:
        if node.id in CLOCK:
            self.words += [node.id] * (node.id == "dt")
            return CLOCK[node.id]
        if node.id == "pi":
            return super()._name(node)
        self._check_name(node)
        reference = Reference(node.id, self._declared.get(node.id) or self._points.get(node, ()))
        self._own[node] = reference.shape
        self.reads.append(reference)
        return reference.node

    def _check_name(self, node: ast.Name) -> None:
        if node.id == "time":
            raise self._error("the time is called t", node)
        if reason := name_problem(node.id):
            raise self._error(reason, node)

    def _element(self, node: ast.Subscript, depth: int) -> Value:
        if not isinstance(node.value, ast.Name):
            raise self._error("{} is not allowed here: only a variable has elements", node)
        self._check_name(node.value)
        indices = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        words = [ast.unparse(i) if isinstance(i, (ast.Constant, ast.Name, ast.Slice)) else "" for i in indices]
        shape, name = self._declared.get(node.value.id, ()), node.value.id
        try:
            places = places_of(name, shape, list(map(read_index, words)), self._ranges, self._bound)
        except ValueError as error:
            raise self._error(str(error), node) from None
        index = tuple(p for p in places if isinstance(p, int))
        if len(index) == len(shape):
            self.reads.append(Reference(name, shape, index))
            return self.reads[-1].node
        axes = zip(shape, places, strict=True)
        elements = [Reference(name, shape, i) for i in product(*(p if isinstance(p, list) else [p] for p in places))]
        self.reads += elements
        part = tuple(n if len(p) == n else len(p) for n, p in axes if isinstance(p, list))
        return self._list(node, [r.node for r in elements], part, depth)

    def _array(self, node: ast.List, depth: int) -> Value:
        self._count(node, depth)
        rows = [n for n in node.elts if isinstance(n, (ast.List, ast.Tuple))]
        if not node.elts or (rows and (len(rows) < len(node.elts) or len({len(r.elts) for r in rows}) > 1)):
            raise self._error("an array is written [a, b, c] or, with rows of the same length, [[a, b], [c, d]]", node)
        scalars = [n for r in rows for n in r.elts] if rows else node.elts
        items = [self.number(n, depth + 1) for n in scalars]
        for n, shape in zip(scalars, self._shapes[-1], strict=True):
            if shape:
                raise self._error(f"{{}} is {shape_text(shape)}; the items of an array are scalars", n)
        if not items:
            raise self._error("{} has no elements", node)
        return self._list(node, items, (len(rows), len(rows[0].elts)) if rows else (len(items),), depth)

    def _list(self, node: ast.expr, items: Sequence[Value], shape: Shape, depth: int) -> Value:
        self._own[node], array = shape, array_node("array", *items)
        return array if depth == 0 else self._stored(array, shape)

    def _stored(self, array: Value, shape: Shape) -> Value:
        """Return an array as a variable, a hidden one if it is computed; a list of numbers stays as it is."""
        if isinstance(array, ArraySymbol) or is_list_of_numbers(as_node(array)):
            return array
        return self._hidden("array", [array], [shape])

    def _hidden(self, kind: str, values: list[Value], shapes: list[Shape], order: int = 1) -> Value:
        """Return the symbol of a part of the statement that has a hidden variable of its own."""
        symbol = Reference(f"{self._module}.{kind}({next(self._numbers) + 1})", shapes[0]).node
        self.memories.append(Memory(kind, tuple(map(as_node, values)), tuple(shapes), symbol, order))
        return symbol

    # calls

    def _own_call(self, node: ast.Call, name: str, depth: int) -> Value:
        self._count(node, depth)
        called_name(self.tree, node, OWN)
        self.words += [name] * (name != "pulse" or len(node.args) == 3)  # others have no one step
        condition = self.condition(node.args[0], depth + 1) if name == "sample" else None
        values = [self.number(a, depth + 1) for a in node.args[condition is not None :]]
        if condition is not None:
            values.insert(0, choose(condition, as_node(1.0), as_node(0.0)))
        shapes = self._shapes[-1]
        self._check_values(name, values, node)
        if name in ("sum", "prod", "mean", "dot"):
            return self._reduced(node, name, values, shapes)
        if OWN[name].has_memory:
            return self._memory(node, name, values, shapes)
        return _formula_of(name, *map(as_node, values))

    def _memory(self, node: ast.Call, kind: str, values: list[Value], shapes: list[Shape]) -> Value:
        if self._is_initial and kind == "initial":
            return values[0]
        if self._is_initial:
            raise self._error("{} remembers what was: it has no place in an initial value", node)
        order = 3 if kind.endswith("3") else 1
        if kind.endswith("n") and kind in CHAINS:
            order = self._order(values[2], node.args[2])
            values, shapes = values[:2] + values[3:], shapes[:2] + shapes[3:]
        x = self._joined(shapes, node) if kind.startswith("random") else shapes[kind == "sample"]
        if kind == "random_normal" and len(values) == 3:
            raise self._error("random_normal(mean, sd) or random_normal(mean, sd, lo, hi); 3 arguments given", node)
        if self._joined(shapes, node) != x:
            raise self._error(f"the first argument of {kind} is {shape_text(x)}, another one is not a scalar", node)
        return self._hidden(kind, values, [x, *shapes[1:]] if kind.startswith("random") else shapes, order)

    def _order(self, n: Value, place: ast.expr) -> int:
        """Return the number of levels of a chain."""
        whole = n.value if isinstance(n, Number) else n
        if not isinstance(whole, float) or not 1 <= whole <= MOST_LEVELS or not whole.is_integer():
            raise self._error(f"{{}} is the number of levels in a row: a plain number from 1 to {MOST_LEVELS}", place)
        return int(whole)

    def _reduced(self, node: ast.Call, name: str, values: list[Value], shapes: list[Shape]) -> Value:
        """Return a sum or a matrix product."""
        for argument, shape in zip(node.args, shapes, strict=True):
            if not shape:
                hints = {
                    "sum": "; a sum of numbers is written with +", "dot": "; a product with a scalar is written with *",
                }  # fmt: skip
                raise self._error(f"{name}(...) takes arrays, and {{}} is a scalar{hints.get(name, '')}", argument)
        if name != "dot":
            self._own[node] = ()
            if name == "prod":
                return mul(*self._elements(values[0], shapes[0]))
            total, n = array_node("sum", values[0], prod(shapes[0])), prod(shapes[0])
            return total if name == "sum" else total / float(n)
        a, b = shapes
        if max(len(a), len(b)) > 2:
            raise self._error("{}: the product is of vectors and matrices", node)
        if a[-1] != b[0]:
            what = f"{shape_text(a)} times {shape_text(b)} does not fit; {a[-1]} and {b[0]} should be equal"
            raise self._error(f"{{}}: {what}", node)
        self._own[node] = (*a[:-1], *b[1:])
        factors = map(self._stored, values, shapes)
        return array_node(name, *factors, prod(a[:-1]), b[0], prod(b[1:]))

    def _elements(self, array: Value, shape: Shape) -> list[Node]:
        """Return the elements of an array."""
        stored = as_node(self._stored(array, shape))
        if not isinstance(stored, ArraySymbol):
            return list(stored.args)
        elements = [Reference(stored.name, shape, i) for i in indices_of(shape)]
        self.reads += [] if "(" in stored.name else elements  # a hidden variable is not read by name
        return [r.node for r in elements]

    def _least_or_largest(self, node: ast.Call, name: str, depth: int) -> Value:
        """Return the least or the largest element of an array."""
        self._count(node, depth)
        array = self.number(node.args[0], depth + 1)
        (shape,) = self._shapes[-1]
        if not shape:
            called_name(self.tree, node, self.functions())
        self._own[node], x = (), self._elements(array, shape)
        while len(x) > 1:
            x = [call(name, *x[i : i + 20]) if x[i + 1 :] else x[i] for i in range(0, len(x), 20)]
        return x[0]

    # tables

    def _is_table(self, node: ast.Call, name: str) -> bool:
        """Tell whether the called name is ``table`` or may be a table of the data base."""
        if name == "table" or node.keywords or len(self._kind_of(node, 1)[1]) != 1:
            return name == "table"
        is_known = name in self._declared or name in self._tables
        return name not in (*module_functions(), "d", "next") and not name_problem(name) and (
            is_known or (is_table_word(name) and not isinstance(node.args[0], ast.Constant))
        )  # fmt: skip

    def _kind_of(self, node: ast.Call, least: int) -> tuple[int, list[ast.expr]]:
        """Return the position of a table's kind in `TABLE_KINDS`, and the other arguments."""
        match node.args[least:]:
            case [*_, ast.Constant(value=str(kind))]:
                return TABLE_KINDS.index(kind), node.args[:-1]
        return 0, node.args

    def _table(self, node: ast.Call, name: str, depth: int) -> Value:
        """Return ``table(x, xs, ys)``, ``table(x, points)``, or ``points(x)``, validated; each may end in a kind.

        The points are two vectors, or a matrix of two columns.
        """
        self._count(node, depth)
        if name == "table":
            called_name(self.tree, node, OWN)
        kind, (x, *points) = self._kind_of(node, 2 if name == "table" else 1)
        points = points or [node.func]
        if len(points) > 2:
            raise self._error("a table is table(x, xs, ys) or table(x, points), and a kind in quotes behind", node)
        value = self.number(x, depth + 1)
        for at in points:
            if isinstance(at, ast.Name) and at.id not in self._declared:
                self._points[at] = self._tables[at.id] = (2,) if len(points) == 2 else (2, 2)
        values = [as_node(self.number(at, depth + 1)) for at in points]
        shapes = self._shapes[-1][1:]
        for at, v, shape in zip(points, values, shapes, strict=True):
            if len(shape) != 3 - len(points) or not (isinstance(at, ast.Name) or is_list_of_numbers(v)):
                raise self._error(
                    "the points of a table are numbers in [ ], or the name of a vector of the data base; or pairs, "
                    "[(x, y), (x, y)], or the name of a matrix of two columns", at
                )  # fmt: skip
            if len(points) == 1 and shape[1] != 2:
                raise self._error(f"the points of a table are pairs of x and y; {{}} is {shape_text(shape)}", at)
        open_ones = [at for at in points if isinstance(at, ast.Name) and at.id in self._tables]
        n = [shape[0] for at, shape in zip(points, shapes, strict=True) if at not in open_ones]
        if len(set(n)) > 1:
            raise self._error(f"a table of {n[0]} xs and {n[1]} ys: there must be one y for each x", points[1])
        if min(n, default=2) < 2:
            raise self._error("a table has two points at least", points[0])
        if isinstance(points[0], ast.List):
            xs = [float(v) for v in values[0].args[:: 3 - len(points)]]
            places = [p.elts[0] if isinstance(p, (ast.List, ast.Tuple)) else p for p in points[0].elts]
            for left, right, place in zip(xs, xs[1:], places[1:], strict=False):
                if not left < right:
                    raise self._error("the xs of a table increase; {} does not exceed the x before it", place)
        self._own[node] = self._shapes[-1][0]
        return array_node("table", value, values[0], values[-1], (n or [2])[0], kind, 3 - len(points))

    # checks

    def _check_values(self, name: str, values: list[Value], node: ast.Call) -> None:
        """Refuse constants outside the domain of a function."""
        numbers = [v.value if isinstance(v, Number) else v for v in values]
        if name == "lag" and isinstance(tau := numbers[1], float) and tau < 0:
            raise self._error("tau of lag(x, tau, before) must not be below 0; {} is", node.args[1])
        at, what = _POSITIVE.get(name, (0, ""))
        if what and len(numbers) > at and isinstance(value := numbers[at], float) and value <= 0:
            raise self._error(f"{what} of {name}(...) must be above 0; {{}} is not", node.args[at])

    def _joined(self, parts: Sequence[Shape], place: ast.expr) -> Shape:
        """Return the common shape of parts that are combined by element; scalars are broadcast."""
        shapes = list(filter(None, parts))
        other = next((s for s in shapes if differ(s, shapes[0])), None)
        if other:
            first, second = map(shape_text, (shapes[0], other))
            raise self._error(
                f"the shapes do not fit: {first} and {second} cannot be joined by element (the matrix product is "
                "dot(A, D))", place
            )  # fmt: skip
        return shapes[0] if shapes else ()


@lru_cache
def _formula(name: str, n: int) -> Node:
    dt, slack = Symbol(DT), _SLACK * Symbol(DT)
    rule = {symbol("dt"): dt, symbol("late"): TIME + slack, symbol("early"): TIME - slack}
    return substituted([parse_expression(_FORMULAS[name, n])], rule)[0]


def _formula_of(name: str, *x: Node) -> Node:
    """Return a function of system dynamics as an expression of the model language."""
    return substituted([_formula(name, len(x))], dict(zip(map(symbol, "abcd"), x, strict=False)))[0]
