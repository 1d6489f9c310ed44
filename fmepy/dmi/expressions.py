"""Parsed right-hand side -> expression of the model language, with arrays, their shapes, and functions with a memory.

What the model language allows is read by `language.text`; modules have lists, elements, and functions of their own
beside it (`OWN`). Shapes are known, for variables without declared dimensions are scalars, so that they are
checked here.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

from fmepy.dmi.statements import DT, TIME, Memory, Reference, Shape, Whole, array_node, element_name, is_list_of_numbers
from fmepy.language.conditions import Condition, choose, relation
from fmepy.language.nodes import Node, Number, Symbol, as_node, call
from fmepy.language.text import Converter, Value, called_name, text_functions
from fmepy.language.tree import Tree, reserved_name


class ModuleFunction(NamedTuple):
    """A function of modules: how many arguments it takes, and whether it remembers what was."""

    least: int
    most: int
    has_memory: bool = False


OWN = {
    "clip": ModuleFunction(4, 4), "step": ModuleFunction(2, 2), "ramp": ModuleFunction(2, 3),
    "pulse": ModuleFunction(3, 3), "sum": ModuleFunction(1, 1), "dot": ModuleFunction(2, 2),
    "table": ModuleFunction(3, 3), "lag": ModuleFunction(3, 3, True), "rate": ModuleFunction(1, 1, True),
    "smooth": ModuleFunction(2, 2, True), "delay1": ModuleFunction(2, 2, True), "delay3": ModuleFunction(2, 2, True),
}  # fmt: skip
"""What modules have beside the functions of the model language; docs/dmi.md says what they are."""
_POSITIVE = {"smooth": (1, "tau"), "delay1": (1, "tau"), "delay3": (1, "tau"), "pulse": (2, "the interval")}
"""Which argument must be above 0, and what it is called."""
_SLACK = 1e-6
"""Part of a step by which a time may miss the grid: k dt is rounded."""


def module_functions() -> dict[str, Any]:
    """Return the functions that a module may call, by name: those that texts may call, and its own."""
    return text_functions() | OWN


def name_problem(name: str) -> str:
    """Return why a name cannot be that of a variable, or an empty string."""
    if name in ("t", "time", "pi"):
        what = {"t": "the time", "time": "the column of the times in the result", "pi": "a constant"}[name]
        return f"{name!r} is {what}; choose another name"
    if not name.isidentifier():
        return f"{name!r} is not a name: letters, digits and underscores, no digit first"
    if name in OWN:
        hint = ". A module's step is declared without '=': step 2" if name == "step" else ""
        return f"{name!r} is a function: it is called with arguments in brackets, and cannot be a name{hint}"
    return reserved_name(name)


def element(name: str, index: Sequence[object], shape: Shape) -> tuple[int, ...]:
    """Return an index into an array after checking it; raise ValueError with what is wrong."""
    shown = element_name(name, shape)
    if not shape:
        raise ValueError(f"{name!r} has no elements, for it has no dimensions; declare them: dims {name}[3]")
    whole = tuple(i for i in index if isinstance(i, int))
    if len(whole) < len(index):
        raise ValueError("an index is a plain number such as 0: it is constant, and counted from 0")
    if len(whole) != len(shape):
        takes = "one index" if len(shape) == 1 else "two indices"
        raise ValueError(f"{name!r} is declared as {shown}: an element takes {takes}")
    for i, n in zip(whole, shape, strict=True):
        if not 0 <= i < n:
            raise ValueError(f"the index {i} is out of range: {shown} has the indices 0 to {n - 1} there")
    return whole


def shape_text(shape: Shape) -> str:
    """Return a shape in words."""
    if not shape:
        return "a scalar"
    if len(shape) == 1:
        return f"a vector of {shape[0]}"
    return f"a matrix of {shape[0]} x {shape[1]}"


class RightSide(Converter):
    """A right-hand side, read: an expression, and what belongs to it.

    Parameters
    ----------
    tree : Tree
        What was parsed.
    declared : mapping of str to shape
        The declared dimensions; other names are scalars.
    numbers : iterator of int
        What numbers the hidden variables.
    module : str
        The module, whose name begins those of hidden variables.
    is_initial : bool
        Whether it is an initial value, where functions with a memory make no sense.

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
        self, tree: Tree, declared: Mapping[str, Shape], numbers: Iterator[int], module: str, is_initial: bool
    ) -> None:
        super().__init__(tree)
        self.reads: list[Reference] = []
        self.memories: list[Memory] = []
        self.words: list[str] = []
        self._shapes: list[list[Shape]] = [[]]  # of the parts that have been read, of every level of nesting
        self._declared, self._numbers, self._module, self._is_initial = declared, numbers, module, is_initial
        self._own: dict[ast.expr, Shape] = {}  # of what is not computed by element
        self.value = as_node(self.whole())
        ((self.shape,),) = self._shapes

    def number(self, node: ast.expr, depth: int) -> Value:
        """Return the value of a node that stands for a number or an array."""
        self._shapes.append([])
        match node:
            case ast.Subscript():
                value = self._element(node)
            case ast.List():
                value = self._array(node, depth)
            case ast.Call(func=ast.Name(id=name)) if name in OWN:
                value = self._own_call(node, name, depth)
            case _:
                value = super().number(node, depth)
        self._add_shape(node)
        return value

    def condition(self, node: ast.expr, depth: int) -> Condition:
        """Return a node that stands for a condition."""
        self._shapes.append([])
        condition = super().condition(node, depth)
        self._add_shape(node)
        return condition

    def _add_shape(self, node: ast.expr) -> None:
        """Hand on the shape of what has been read: its own, or that of its parts, joined."""
        inside = self._shapes.pop()
        self._shapes[-1].append(self._own.pop(node) if node in self._own else self._joined(inside, node))

    # what a value can be

    def _name(self, node: ast.Name) -> Value:
        if node.id == "t":
            return TIME
        if node.id == "pi":
            return super()._name(node)
        self._check_name(node)
        reference = Reference(node.id, self._declared.get(node.id, ()))
        self._own[node] = reference.shape
        self.reads.append(reference)
        return reference.node

    def _check_name(self, node: ast.Name) -> None:
        if node.id == "time":
            raise self._error("the time is called t", node)
        if reason := name_problem(node.id):
            raise self._error(reason, node)

    def _element(self, node: ast.Subscript) -> Value:
        if not isinstance(node.value, ast.Name):
            raise self._error("{} is not allowed here: only a variable has elements", node)
        self._check_name(node.value)
        indices = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        values = [i.value if isinstance(i, ast.Constant) else None for i in indices]
        shape = self._declared.get(node.value.id, ())
        try:
            index = element(node.value.id, values, shape)
        except ValueError as error:
            raise self._error(str(error), node) from None
        reference = Reference(node.value.id, shape, index)
        self.reads.append(reference)
        return reference.node

    def _array(self, node: ast.List, depth: int) -> Value:
        self._count(node, depth)
        rows = [n for n in node.elts if isinstance(n, ast.List)]
        if not node.elts or (rows and (len(rows) < len(node.elts) or len({len(r.elts) for r in rows}) > 1)):
            raise self._error("an array is written [a, b, c] or, with rows of the same length, [[a, b], [c, d]]", node)
        scalars = [n for r in rows for n in r.elts] if rows else node.elts
        items = [self.number(n, depth + 1) for n in scalars]
        for n, shape in zip(scalars, self._shapes[-1], strict=True):
            if shape:
                raise self._error(f"{{}} is {shape_text(shape)}; the items of an array are scalars", n)
        if not items:
            raise self._error("{} has no elements", node)
        self._own[node] = shape = (len(rows), len(rows[0].elts)) if rows else (len(items),)
        array = array_node("array", *items)
        return array if depth == 0 else self._stored(array, shape)

    def _stored(self, array: Value, shape: Shape) -> Value:
        """Return an array as a variable, hidden where it is computed; a list of numbers as it is."""
        if isinstance(array, Whole) or is_list_of_numbers(as_node(array)):
            return array
        return self._hidden("array", [array], [shape])

    def _hidden(self, kind: str, values: list[Value], shapes: list[Shape]) -> Value:
        """Return what stands for a part of the statement that is kept in variables of its own."""
        symbol = Reference(f"{self._module}.{kind}({next(self._numbers) + 1})", shapes[0]).node
        self.memories.append(Memory(kind, tuple(map(as_node, values)), tuple(shapes), symbol))
        return symbol

    # calls

    def _own_call(self, node: ast.Call, name: str, depth: int) -> Value:
        self._count(node, depth)
        called_name(self.tree, node, OWN)
        self.words.append(name)
        values = [self.number(a, depth + 1) for a in node.args]
        shapes = self._shapes[-1]
        self._check_values(name, values, node)
        if name in ("sum", "dot"):
            return self._reduced(node, name, values, shapes)
        if name == "table":
            self._check_table(values, shapes, node)
            self._own[node] = shapes[0]
            return array_node(name, *values, shapes[1][0])
        if OWN[name].has_memory:
            return self._memory(node, name, values, shapes)
        return _written(name, *map(as_node, values))

    def _memory(self, node: ast.Call, kind: str, values: list[Value], shapes: list[Shape]) -> Value:
        if self._is_initial:
            raise self._error("{} remembers what was: it has no place in an initial value", node)
        x = shapes[0]
        if self._joined(shapes, node) != x:
            raise self._error(f"the first argument of {kind} is {shape_text(x)}, another one is not a scalar", node)
        return self._hidden(kind, values, shapes)

    def _reduced(self, node: ast.Call, name: str, values: list[Value], shapes: list[Shape]) -> Value:
        """Return a sum or a matrix product."""
        for argument, shape in zip(node.args, shapes, strict=True):
            if not shape:
                of = "numbers is written with +" if name == "sum" else "a scalar is written with *"
                of = f"a {'sum of' if name == 'sum' else 'product with'} {of}"
                raise self._error(f"{name}(...) takes arrays, and {{}} is a scalar; {of}", argument)
        if name == "sum":
            self._own[node] = ()
            return array_node(name, values[0], prod(shapes[0]))
        a, b = shapes
        if a[-1] != b[0]:
            what = f"{shape_text(a)} times {shape_text(b)} does not fit; {a[-1]} and {b[0]} should be equal"
            raise self._error(f"{{}}: {what}", node)
        self._own[node] = (*a[:-1], *b[1:])
        factors = map(self._stored, values, shapes)
        return array_node(name, *factors, prod(a[:-1]), b[0], prod(b[1:]))

    # checks

    def _check_values(self, name: str, values: list[Value], node: ast.Call) -> None:
        """Refuse constants that a function cannot work with."""
        numbers = [v.value if isinstance(v, Number) else v for v in values]
        if name == "lag" and isinstance(tau := numbers[1], float) and tau < 0:
            raise self._error("tau of lag(x, tau, before) must not be below 0; {} is", node.args[1])
        at, what = _POSITIVE.get(name, (0, ""))
        if what and isinstance(value := numbers[at], float) and value <= 0:
            raise self._error(f"{what} of {name}(...) must be above 0; {{}} is not", node.args[at])

    def _check_table(self, values: list[Value], shapes: list[Shape], node: ast.Call) -> None:
        """Refuse tables whose points are no two lists of numbers or names of vectors, or do not go together."""
        for argument, v, shape in zip(node.args[1:], values[1:], shapes[1:], strict=True):
            if len(shape) != 1 or not (isinstance(argument, ast.Name) or is_list_of_numbers(as_node(v))):
                raise self._error(
                    "the points of a table are numbers in [ ], or the name of a vector of the data base", argument
                )
        (n,), (n_ys,) = shapes[1:]
        if n != n_ys:
            raise self._error(f"a table of {n} xs and {n_ys} ys: there must be one y for each x", node.args[2])
        if n < 2:
            raise self._error("a table has two points at least", node.args[1])
        xs: Sequence[Any] = as_node(values[1]).args
        places = node.args[1].elts if isinstance(node.args[1], ast.List) else []
        for left, right, place in zip(xs, xs[1:], places[1:], strict=False):
            if not left.value < right.value:
                raise self._error("the xs of a table increase; {} does not exceed the x before it", place)

    def _joined(self, parts: Sequence[Shape], place: ast.expr) -> Shape:
        """Return the shape of what is computed by element; a scalar spreads."""
        shapes = list(dict.fromkeys(filter(None, parts)))
        if len(shapes) > 1:
            first, second = map(shape_text, shapes[:2])
            raise self._error(
                f"the shapes do not fit: {first} and {second} cannot be joined by element (the matrix product is "
                "dot(A, D))", place
            )  # fmt: skip
        return shapes[0] if shapes else ()


def _written(name: str, *x: Node) -> Node:
    """Return what a function of system dynamics is in functions of the model language."""
    zero, dt = as_node(0.0), Symbol(DT)
    late = TIME + _SLACK * dt
    out: Node
    match name:
        case "clip":
            out = choose(relation(">=", x[2], x[3]), x[0], x[1])
        case "step":
            out = choose(relation(">=", late, x[1]), x[0], zero)
        case "ramp":
            now = call("min", TIME, x[2]) if len(x) > 2 else TIME
            out = x[0] * call("max", now - x[1], zero)
        case "pulse":
            since = late - x[1]
            into = choose(relation(">", x[2], zero), call("mod", since, x[2]), since)
            during = choose(relation("<", into, dt), x[0], zero)
            out = choose(relation(">=", since, zero), during, zero)
        case _:
            raise AssertionError(name)
    return out
