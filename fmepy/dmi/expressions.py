"""Parsed right-hand side -> tree of `dmi.tree`: the white list of the model language, with arrays and their shapes.

The text was parsed by `language.tree` within its limits; here it is rebuilt node by node. What is not listed is an
error that shows the place: attributes, indices that are no plain numbers, calls of other names, lambdas,
comprehensions. Shapes are known, for variables without declared dimensions are scalars, so that they are checked here.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence

from fmepy.dmi import tree as nodes
from fmepy.dmi.functions import Function, module_functions
from fmepy.errors import ModelTextError
from fmepy.language.text import MAX_JOINED, called_name, error_of, folded, refused, relation_words
from fmepy.language.tree import MAX_NESTING, Tree, reserved_name, too_deep

_ARITHMETIC: dict[type[ast.operator], tuple[str, Callable[[float, float], float]]] = {
    ast.Add: ("+", operator.add), ast.Sub: ("-", operator.sub), ast.Mult: ("*", operator.mul),
    ast.Div: ("/", operator.truediv), ast.Mod: ("%", operator.mod), ast.Pow: ("**", math.pow),
}  # fmt: skip
_SUM, _PRODUCT = (ast.Add, ast.Sub), (ast.Mult, ast.Div)
_POSITIVE = {"smooth": (1, "tau"), "delay1": (1, "tau"), "delay3": (1, "tau"), "pulse": (2, "the interval")}
"""Which argument must be above 0, and what it is called."""


def name_problem(name: str) -> str:
    """Return why a name cannot be that of a variable, or an empty string."""
    if name in ("t", "time", "pi"):
        what = {"t": "the time", "time": "the column of the times in the result", "pi": "a constant"}[name]
        return f"{name!r} is {what}; choose another name"
    if not name.isidentifier():
        return f"{name!r} is not a name: letters, digits and underscores, no digit first"
    if name in module_functions():
        hint = ". A module's step is declared without '=': step 2" if name == "step" else ""
        return f"{name!r} is a function: it is called with arguments in brackets, and cannot be a name{hint}"
    return reserved_name(name)


def read_expression(tree: Tree, shapes: Mapping[str, nodes.Shape], numbers: Iterator[int] | None) -> nodes.Expr:
    """Return the tree of a parsed right-hand side.

    Parameters
    ----------
    tree : Tree
        What was parsed.
    shapes : mapping of str to shape
        The declared dimensions; other names are scalars.
    numbers : iterator of int or None
        What numbers the functions with a memory; None where they make no sense, in initial values.

    Raises
    ------
    ModelTextError
        For everything that is not on the white list, and for shapes that do not fit.
    """
    try:
        return _Reader(tree, shapes, numbers).value(tree.node, 0)
    except (MemoryError, RecursionError):
        raise too_deep(tree) from None


def element(name: str, index: Sequence[object], shape: nodes.Shape) -> tuple[int, ...]:
    """Return an index into an array after checking it; raise ValueError with what is wrong."""
    shown = nodes.element_name(name, shape)
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


def said(shape: nodes.Shape) -> str:
    """Return a shape in words."""
    if not shape:
        return "a scalar"
    if len(shape) == 1:
        return f"a vector of {shape[0]}"
    return f"a matrix of {shape[0]} x {shape[1]}"


class _Reader:
    """Rebuilds one tree; one method for each thing that is allowed."""

    def __init__(self, tree: Tree, shapes: Mapping[str, nodes.Shape], numbers: Iterator[int] | None) -> None:
        self.tree = tree
        self.shapes = shapes
        self.numbers = numbers

    def value(self, node: ast.expr, depth: int) -> nodes.Expr:
        """Return the tree of a node that stands for a number or an array."""
        self._check_depth(node, depth)
        match node:
            case ast.Constant(value=int() | float()):
                return nodes.Number(folded(self.tree, float, node, node.value), place=self._place(node))
            case ast.Name():
                return self._name(node)
            case ast.Subscript():
                return self._element(node)
            case ast.BinOp(op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div()):
                return self._chain(node, depth)
            case ast.BinOp(op=ast.Mod() | ast.Pow()):
                return self._binary(node, node.left, node.right, node.op, depth)
            case ast.UnaryOp(op=ast.USub() | ast.UAdd()):
                x = self.value(node.operand, depth + 1)
                if isinstance(node.op, ast.UAdd):
                    return x
                if isinstance(x, nodes.Number):
                    return nodes.Number(-x.value, place=self._place(node))
                return nodes.Minus(x, shape=x.shape, place=self._place(node))
            case ast.List():
                return self._array(node, depth)
            case ast.IfExp():
                return self._where([node.test, node.body, node.orelse], node, depth)
            case ast.Call():
                return self._call(node, depth)
        raise refused(self.tree, node)

    def condition(self, node: ast.expr, depth: int) -> nodes.Condition:
        """Return the tree of a node that stands for a condition."""
        self._check_depth(node, depth)
        place = self._place(node)
        match node:
            case ast.Compare():
                values = [self.value(v, depth + 1) for v in (node.left, *node.comparators)]
                words = relation_words(self.tree, node)
                pairs = [
                    nodes.Compare(word, a, b, shape=self._joined([a, b], node), place=place)
                    for word, a, b in zip(words, values, values[1:], strict=False)
                ]
                return (
                    pairs[0]
                    if len(pairs) == 1
                    else nodes.Both(tuple(pairs), shape=self._joined(pairs, node), place=place)
                )
            case ast.BoolOp():
                items = [self.condition(v, depth + 1) for v in node.values]
                join = nodes.Both if isinstance(node.op, ast.And) else nodes.Either
                return join(tuple(items), shape=self._joined(items, node), place=place)
            case ast.UnaryOp(op=ast.Not()):
                x = self.condition(node.operand, depth + 1)
                return nodes.Not(x, shape=x.shape, place=place)
        self.value(node, depth)  # what is not allowed at all comes first
        raise self._error("{} is not a condition; compare it, as in x > 0", node)

    # what a value can be

    def _name(self, node: ast.Name) -> nodes.Expr:
        place = self._place(node)
        if node.id == "t":
            return nodes.Time(place=place)
        if node.id == "pi":
            return nodes.Number(math.pi, place=place)
        if node.id == "time":
            raise self._error("the time is called t", node)
        if reason := name_problem(node.id):
            raise self._error(reason, node)
        return nodes.Name(node.id, shape=self.shapes.get(node.id, ()), place=place)

    def _element(self, node: ast.Subscript) -> nodes.Expr:
        if not isinstance(node.value, ast.Name):
            raise self._error("{} is not allowed here: only a variable has elements", node)
        self._name(node.value)
        indices = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        given = [i.value if isinstance(i, ast.Constant) else None for i in indices]
        shape = self.shapes.get(node.value.id, ())
        try:
            index = element(node.value.id, given, shape)
        except ValueError as error:
            raise self._error(str(error), node) from None
        return nodes.Element(node.value.id, index, shape, place=self._place(node))

    def _chain(self, node: ast.BinOp, depth: int) -> nodes.Expr:
        """Return a chain of sums and differences, or of products and quotients, however long: one level of nesting."""
        kinds = _SUM if isinstance(node.op, _SUM) else _PRODUCT
        parts: list[tuple[ast.operator, ast.expr]] = []
        rest: ast.expr = node
        while isinstance(rest, ast.BinOp) and isinstance(rest.op, kinds):
            parts.append((rest.op, rest.right))
            rest = rest.left
        parts.reverse()
        items = [self.value(x, depth + 1) for x in (rest, *(x for _, x in parts))]
        for (op, given), item in zip(parts, items[1:], strict=True):
            if isinstance(op, ast.Div) and isinstance(item, nodes.Number) and item.value == 0:
                raise self._error("{} is zero: a division by zero", given)
        if all(isinstance(x, nodes.Number) for x in items):
            numbers = [x.value for x in items if isinstance(x, nodes.Number)]
            total = numbers[0]
            for (op, _), number in zip(parts, numbers[1:], strict=True):
                total = folded(self.tree, _ARITHMETIC[type(op)][1], node, total, number)
            return nodes.Number(total, place=self._place(node))
        ops = tuple(_ARITHMETIC[type(op)][0] for op, _ in parts)
        return nodes.Chain(ops, tuple(items), shape=self._joined(items, node), place=self._place(node))

    def _binary(self, node: ast.expr, a: ast.expr, b: ast.expr, op: ast.operator, depth: int) -> nodes.Expr:
        left, right = self.value(a, depth + 1), self.value(b, depth + 1)
        word, function = _ARITHMETIC[type(op)]
        if isinstance(right, nodes.Number) and right.value == 0 and word == "%":
            raise self._error("{} divides by zero", node)
        if isinstance(left, nodes.Number) and isinstance(right, nodes.Number):
            return nodes.Number(folded(self.tree, function, node, left.value, right.value), place=self._place(node))
        return nodes.Binary(word, left, right, shape=self._joined([left, right], node), place=self._place(node))

    def _array(self, node: ast.List, depth: int) -> nodes.Expr:
        rows = [n for n in node.elts if isinstance(n, ast.List)]
        if not node.elts or (rows and (len(rows) < len(node.elts) or len({len(r.elts) for r in rows}) > 1)):
            raise self._error("an array is written [a, b, c] or, with rows of the same length, [[a, b], [c, d]]", node)
        shape: nodes.Shape = (len(rows), len(rows[0].elts)) if rows else (len(node.elts),)
        scalars = [n for r in rows for n in r.elts] if rows else node.elts
        items = [self.value(n, depth + 1) for n in scalars]
        for n, item in zip(scalars, items, strict=True):
            if item.shape:
                raise self._error(f"{{}} is {said(item.shape)}; the items of an array are scalars", n)
        if not items:
            raise self._error("{} has no elements", node)
        return nodes.Array(tuple(items), shape=shape, place=self._place(node))

    # calls

    def _call(self, node: ast.Call, depth: int) -> nodes.Expr:
        name = called_name(self.tree, node, functions := module_functions())
        if not name:
            self.value(node.func, 0)  # what is not allowed at all comes first
            raise self._error("{} is called like a function; a product is written with *", node.func)
        if name == "where":
            return self._where(node.args, node, depth)
        if name == "pow":
            return self._binary(node, node.args[0], node.args[1], ast.Pow(), depth)
        function, place = functions[name], self._place(node)
        values = [self.value(a, depth + 1) for a in node.args]
        self._check_values(name, values, node)
        if function.kind == "array":
            return nodes.Call(name, tuple(values), shape=self._reduced(name, values, node), place=place)
        if function.kind == "table":
            self._check_table(values, node)
            return nodes.Call(name, tuple(values), shape=values[0].shape, place=place)
        if function.kind == "memory":
            if self.numbers is None:
                raise self._error("{} remembers what was: it has no place in an initial value", node)
            x = values[0].shape
            if self._joined(values, node) != x:
                raise self._error(f"the first argument of {name} is {said(x)}, another one is not a scalar", node)
            return nodes.Memory(name, tuple(values), next(self.numbers), shape=x, place=place)
        return self._by_element(function, name, values, node)

    def _by_element(self, function: Function, name: str, values: list[nodes.Expr], node: ast.Call) -> nodes.Expr:
        constants = [v.value for v in values if isinstance(v, nodes.Number)]
        if function.number is not None and len(constants) == len(values):
            return nodes.Number(folded(self.tree, function.number, node, *constants), place=self._place(node))
        return nodes.Call(name, tuple(values), shape=self._joined(values, node), place=self._place(node))

    def _where(self, arguments: list[ast.expr], node: ast.expr, depth: int) -> nodes.Expr:
        test, a, b = arguments
        if sum(len(n.ops) for n in ast.walk(test) if isinstance(n, ast.Compare)) > MAX_JOINED:
            raise self._error(f"a condition of more than {MAX_JOINED} comparisons; split it", test)
        condition = self.condition(test, depth + 1)
        yes, no = self.value(a, depth + 1), self.value(b, depth + 1)
        shape = self._joined([condition, yes, no], node)
        return nodes.Call("where", (condition, yes, no), shape=shape, place=self._place(node))

    def _reduced(self, name: str, values: list[nodes.Expr], node: ast.Call) -> nodes.Shape:
        """Return the shape of a sum or a matrix product."""
        shapes = [v.shape for v in values]
        for given, shape in zip(node.args, shapes, strict=True):
            if not shape:
                hint = (
                    "a sum of numbers is written with +"
                    if name == "sum"
                    else "a product with a scalar is written with *"
                )
                raise self._error(f"{name}(...) takes arrays, and {{}} is a scalar; {hint}", given)
        if name == "sum":
            return ()
        a, b = shapes
        if a[-1] != b[0]:
            raise self._error(f"{{}}: {said(a)} times {said(b)} does not fit; {a[-1]} and {b[0]} should be equal", node)
        return (*a[:-1], *b[1:])

    # checks

    def _check_values(self, name: str, values: list[nodes.Expr], node: ast.Call) -> None:
        """Refuse constants that a function cannot work with."""
        if name == "lag" and isinstance(values[1], nodes.Number) and values[1].value < 0:
            raise self._error("tau of lag(x, tau, before) is not below 0; {} is", node.args[1])
        number, what = _POSITIVE.get(name, (0, ""))
        value = values[number]
        if what and isinstance(value, nodes.Number) and value.value <= 0:
            raise self._error(f"{what} of {name}(...) must be above 0; {{}} is not", node.args[number])

    def _check_table(self, values: list[nodes.Expr], node: ast.Call) -> None:
        """Refuse tables whose points are no two lists of numbers or names of vectors, or do not go together."""
        for given, v in zip(node.args[1:], values[1:], strict=True):
            constant = isinstance(v, nodes.Array) and all(isinstance(i, nodes.Number) for i in v.items)
            if len(v.shape) != 1 or not (constant or isinstance(v, nodes.Name)):
                raise self._error(
                    "the points of a table are numbers in [ ], or the name of a vector of the data base", given
                )
        x, y = values[1:]
        if x.shape != y.shape:
            raise self._error(
                f"a table of {x.shape[0]} xs and {y.shape[0]} ys: there must be one y for each x", node.args[2]
            )
        if x.shape[0] < 2:
            raise self._error("a table has two points at least", node.args[1])
        if isinstance(x, nodes.Array):
            for left, right, place in zip(x.items, x.items[1:], node.args[1].elts[1:], strict=False):  # type: ignore[attr-defined]  # a list, or it were no Array
                if isinstance(left, nodes.Number) and isinstance(right, nodes.Number) and not left.value < right.value:
                    raise self._error("the xs of a table increase; {} does not exceed the x before it", place)

    def _joined(self, parts: Sequence[nodes.Node], place: ast.expr) -> nodes.Shape:
        """Return the shape of what is computed by element; a scalar spreads."""
        shapes = list(dict.fromkeys(n.shape for n in parts if n.shape))
        if len(shapes) > 1:
            first, second = shapes[:2]
            raise self._error(
                f"the shapes do not fit: {said(first)} and {said(second)} cannot be joined by element (the matrix "
                "product is dot(A, D))", place
            )  # fmt: skip
        return shapes[0] if shapes else ()

    def _check_depth(self, node: ast.expr, depth: int) -> None:
        if depth > MAX_NESTING:
            raise self._error(f"this is nested more than {MAX_NESTING} levels deep; split it into assignments", node)

    def _place(self, node: ast.expr) -> tuple[int, int]:
        return self.tree.source.line_number(self.tree.row + node.lineno - 1), node.col_offset + 1

    def _error(self, message: str, node: ast.AST) -> ModelTextError:
        return error_of(self.tree, message, node)
