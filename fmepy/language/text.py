"""Checked text -> expressions: the right-hand sides of the model language.

Text runs no code. It is parsed with ``ast`` after limits on length and nesting (`tree`), and rebuilt, node by node,
from a white list: numbers, names, ``+ - * / % **``, the functions of `language.functions`, ``pi``, and conditions
inside ``where(condition, a, b)`` or ``a if condition else b``. Everything else is an error that shows the place.

**Numbers.** What is constant is computed in floats, as Python would (``9**9**9`` overflows and is an error, it is never
multiplied out).
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any, TypeAlias

from fmepy.errors import ModelTextError, did_you_mean, listed
from fmepy.language.conditions import Condition, Joined, Not, choose, relation
from fmepy.language.equations import symbol
from fmepy.language.functions import TABLE
from fmepy.language.nodes import Node, Number, Shared, add, as_node, call, in_order, mul, power
from fmepy.language.source import Source
from fmepy.language.tree import (
    MAX_EXPRESSION,
    MAX_NESTING,
    Tree,
    check_closed,
    clean_line,
    parse_tree,
    reserved_name,
    too_deep,
)

MAX_JOINED = 50
"""Most comparisons in one condition: every further one is one more level of choices."""

Value: TypeAlias = "float | Node"

LAG = "lag"
"""The word for a delay where it is called; elsewhere it is a name like others."""
ONLY_IN_RATES = "the past is read in the rates and outputs of differential equations alone (OdeModel)"
_ALLOWED = "an expression is made of numbers, names, + - * / % ** ^, brackets and the functions of the model language"
_CONDITION_ONLY = "a condition stands only inside where(condition, a, b), as in where(x > 0, 1, 0)"
_HINTS: dict[type[ast.AST], str] = {  # for common mistakes
    ast.FloorDiv: "a quotient is written /, its whole part floor(a / b)",
    ast.Tuple: "a comma stands only between the arguments of a function; a decimal point is written '.'",
    ast.BitAnd: "join conditions by `and`, as in where(x > 0 and y > 0, a, b)",
    ast.BitOr: "join conditions by `or`, as in where(x > 0 or y > 0, a, b)",
    ast.Invert: "negate a condition by `not`",
    ast.Subscript: f"{_ALLOWED}; an element of an array has to be given a name in the model, as in x0 = x[0]",
    ast.Attribute: f"{_ALLOWED}; a name has no dot: write r_max for r.max",
    ast.Compare: _CONDITION_ONLY,
    ast.BoolOp: _CONDITION_ONLY,
    ast.Not: _CONDITION_ONLY,
}
OTHER_WORDS = {  # the names of our functions in numpy and other languages
    **{other: name for name, f in TABLE.items() if f.in_text for other in f.numpy if other != name},
    **dict.fromkeys(("mod", "remainder"), "%"),
    **dict.fromkeys(("ifelse", "Piecewise"), "where"),
    "ln": "log", "sgn": "sign", "ceiling": "ceil", "lagvalue": "lag(x, tau)",
}  # fmt: skip
_RELATIONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="
}  # fmt: skip
_ARITHMETIC: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
}  # fmt: skip
_SUM, _PRODUCT = (ast.Add, ast.Sub), (ast.Mult, ast.Div)


def text_functions() -> dict[str, Any]:
    """Return the functions that a text may call, by name."""
    return {name: f for name, f in TABLE.items() if f.in_text}


def convert(
    tree: Tree, known: Mapping[str, tuple[Value, int]] | None = None, delays: bool = False
) -> tuple[Value, int]:
    """Return the value of a checked tree and its size.

    Parameters
    ----------
    tree : Tree
        The parsed text.
    known : mapping of str to (value, size), optional
        Values to put in for names, as `convert` returned them. A constant among them is computed with as such.
    delays : bool
        Whether ``lag(x, tau)`` is allowed.

    Raises
    ------
    ModelTextError
        Anything that is not on the white list, or has no finite real value.
    """
    converter = Converter(tree, known, delays)
    return converter.whole(), converter.size


def _check_numbers(expr: Node, tree: Tree) -> Value:
    """Return an expression whose numbers are all finite; shared parts were checked before."""
    for e in in_order([expr], lambda e: isinstance(e, Shared)):
        if isinstance(e, Number):
            if not math.isfinite(e.value):
                raise tree.error("this holds a number beyond the range of floating point")
        elif type(e) is Node and all(isinstance(a, Number) for a in e.args):  # it was not computed
            raise tree.error("this has no finite real value: it divides by zero, or takes a root or logarithm of less")
    return expr.value if isinstance(expr, Number) else expr


class Converter:
    """Rebuilds one tree from the white list; one method for each thing that is allowed."""

    functions: Callable[[], Mapping[str, Any]] = staticmethod(text_functions)

    def __init__(self, tree: Tree, known: Mapping[str, tuple[Value, int]] | None = None, delays: bool = False) -> None:
        self.tree = tree
        self.known = known or {}
        self.delays = delays
        self.size = 0

    def whole(self) -> Value:
        """Return the value of the tree."""
        try:
            value = self.number(self.tree.node, 0)
            return value if isinstance(value, float) else _check_numbers(value, self.tree)
        except (MemoryError, RecursionError):
            raise too_deep(self.tree) from None

    def number(self, node: ast.expr, depth: int) -> Value:
        """Return the value of a node that is a number."""
        self._count(node, depth)
        match node:
            case ast.Constant(value=int() | float()):
                return fold_constant(self.tree, float, node, node.value)
            case ast.Name():
                return self._name(node)
            case ast.BinOp(op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div()):
                return self._chain(node, depth)
            case ast.BinOp(op=ast.Mod() | ast.Pow()):
                join = self._modulo if isinstance(node.op, ast.Mod) else self._power
                return join(self.number(node.left, depth + 1), self.number(node.right, depth + 1), node)
            case ast.UnaryOp(op=ast.USub() | ast.UAdd()):
                value = self.number(node.operand, depth + 1)
                return -value if isinstance(node.op, ast.USub) else value
            case ast.IfExp():
                return self._where(node.test, node.body, node.orelse, node, depth)
            case ast.Call():
                return self._call(node, depth)
        raise not_allowed(self.tree, node)

    def condition(self, node: ast.expr, depth: int) -> Condition:
        """Return the condition of a node."""
        self._count(node, depth)
        match node:
            case ast.Compare():
                return self._compare(node, depth)
            case ast.BoolOp():
                parts = [self.condition(v, depth + 1) for v in node.values]
                return Joined(parts, "and" if isinstance(node.op, ast.And) else "or")
            case ast.UnaryOp(op=ast.Not()):
                return Not(self.condition(node.operand, depth + 1))
        self.number(node, depth)  # what is not allowed at all comes first
        raise self._error("{} is not a condition; compare it, as in x > 0", node)

    # numbers

    def _name(self, node: ast.Name) -> Value:
        if reason := reserved_name(node.id):
            raise self._error(reason, node)
        if node.id == "pi":
            return math.pi
        if node.id in self.known:
            value, size = self.known[node.id]
            self.size += size
            return value
        return symbol(node.id)

    def _chain(self, node: ast.BinOp, depth: int) -> Value:
        """Return a chain of sums and differences, or of products and quotients, however long: one level of nesting."""
        kinds, join = (_SUM, add) if isinstance(node.op, _SUM) else (_PRODUCT, mul)
        parts: list[tuple[ast.operator, ast.expr]] = []
        rest: ast.expr = node
        while isinstance(rest, ast.BinOp) and isinstance(rest.op, kinds):
            parts.append((rest.op, rest.right))
            rest = rest.left
        total = [self.number(rest, depth + 1)]
        for op, part in reversed(parts):
            value = self.number(part, depth + 1)
            if isinstance(op, ast.Div) and isinstance(value, float) and value == 0:
                raise self._error("{} is zero: a division by zero", part)
            if len(total) == 1 and isinstance(total[0], float) and isinstance(value, float):
                total = [fold_constant(self.tree, _ARITHMETIC[type(op)], node, total[0], value)]
            elif isinstance(op, ast.Div):
                total.append(power(value, -1.0))
            else:
                total.append(-value if isinstance(op, ast.Sub) else value)
        return total[0] if len(total) == 1 else self._tidy(join(*total), node)

    def _power(self, base: Value, exponent: Value, node: ast.expr) -> Value:
        if isinstance(base, float) and isinstance(exponent, float):
            return fold_constant(self.tree, math.pow, node, base, exponent)
        return self._tidy(power(base, exponent), node)

    def _modulo(self, a: Value, b: Value, node: ast.expr) -> Value:
        if isinstance(b, float) and b == 0:
            raise self._error("{} divides by zero", node)
        return self._tidy(call("mod", a, b), node)

    def _call(self, node: ast.Call, depth: int) -> Value:
        if isinstance(node.func, ast.Name) and node.func.id == LAG:
            return self._lag(node, depth)
        name = called_name(self.tree, node, self.functions())
        if not name:
            self.number(node.func, 0)  # what is not allowed at all comes first
            raise self._error("{} is called like a function; a product is written with *", node.func)
        if name == "where":
            return self._where(node.args[0], node.args[1], node.args[2], node, depth)
        values = [self.number(a, depth + 1) for a in node.args]
        if name == "pow":
            return self._power(values[0], values[1], node)
        if all(isinstance(v, float) for v in values):
            return fold_constant(self.tree, TABLE[name].value, node, *values)
        if name == "log" and len(values) == 2:
            return self._tidy(call("log", values[0]) / call("log", values[1]), node)
        return self._tidy(call(name, *values), node)

    def _lag(self, node: ast.Call, depth: int) -> Value:
        if not self.delays:
            raise self._error(f"{{}} is not allowed here: {ONLY_IN_RATES}", node)
        n = len(node.args)
        if n != 2 or node.keywords:
            hint = "; what was before the start is said by `history`" if n + len(node.keywords) > 2 else ""
            raise self._error(
                f"lag(...) takes 2 arguments, a state and its delay, as in lag(x, tau); {n} given{hint}", node
            )
        x, tau = (self.number(a, depth + 1) for a in node.args)
        if isinstance(x, float):
            raise self._error("{} does not change, so it has no past", node.args[0])
        if isinstance(tau, float) and tau < 0:
            raise self._error("the delay {} is negative; lag(x, tau) is what x was tau ago", node.args[1])
        return call(LAG, x, tau)

    def _where(self, test: ast.expr, a: ast.expr, b: ast.expr, node: ast.expr, depth: int) -> Value:
        if sum(len(n.ops) for n in ast.walk(test) if isinstance(n, ast.Compare)) > MAX_JOINED:
            raise self._error(f"a condition of more than {MAX_JOINED} comparisons; split it", test)
        condition = self.condition(test, depth + 1)
        yes, no = self.number(a, depth + 1), self.number(b, depth + 1)
        return self._tidy(choose(condition, as_node(yes), as_node(no)), node)

    def _compare(self, node: ast.Compare, depth: int) -> Condition:
        operands = [node.left, *node.comparators]
        values = [as_node(self.number(v, depth + 1)) for v in operands]
        words = relation_words(self.tree, node)
        return Joined([relation(*one) for one in zip(words, values, values[1:], strict=False)], "and")

    # checks

    def _count(self, node: ast.expr, depth: int) -> None:
        self.size += 1
        if depth > MAX_NESTING:
            raise self._error(f"this is nested more than {MAX_NESTING} levels deep; split it into assignments", node)

    def _tidy(self, expr: Node, node: ast.expr) -> Value:
        """Return an expression; what is a number after all as a float."""
        return fold_constant(self.tree, float, node, expr.value) if isinstance(expr, Number) else expr

    def _error(self, message: str, node: ast.expr) -> ModelTextError:
        """Return the error that points at `node`; braces in the message are replaced by the user's text."""
        return self.tree.error(message, node)


def fold_constant(tree: Tree, function: Callable[..., Any], node: ast.expr, *values: Any) -> float:
    """Return the float of a constant piece."""
    try:
        result = float(function(*values))
    except (ValueError, ZeroDivisionError):
        raise tree.error("{} has no finite real value", node) from None
    except OverflowError:
        result = math.inf
    if math.isnan(result):
        raise tree.error("{} has no finite real value", node)
    if not math.isfinite(result):
        raise tree.error("{} is beyond the range of floating point", node)
    return result


def not_allowed(tree: Tree, node: ast.expr) -> ModelTextError:
    """Return the error for something that is not on the white list."""
    kind = type(node.op) if isinstance(node, (ast.BinOp, ast.UnaryOp)) else type(node)
    return tree.error(f"{{}} is not allowed here: {_HINTS.get(kind, _ALLOWED)}", node)


def relation_words(tree: Tree, node: ast.Compare) -> list[str]:
    """Return the signs of a comparison: < <= > >= == != and no others."""
    for op, place in zip(node.ops, node.comparators, strict=True):
        if type(op) not in _RELATIONS:
            raise tree.error("compare with <, <=, >, >=, == or !=", place)
    return [_RELATIONS[type(op)] for op in node.ops]


def called_name(tree: Tree, node: ast.Call, functions: Mapping[str, Any]) -> str:
    """Return the name of the function that is called with a number of arguments that it takes.

    An empty string stands for a call of something that is no name: only the caller knows whether that is allowed.
    """
    match node.func:
        case ast.Name(id=name) if name in functions:
            pass
        case ast.Name(id="d" | "next"):
            raise tree.error("{} stands only on the left of '='", node)
        case ast.Name(id=name):
            near = f" Did you mean {OTHER_WORDS[name]!r}?" if name in OTHER_WORDS else did_you_mean(name, functions)
            near += f" Of a table: table(x, {name})." if "table" in functions and len(node.args) == 1 else ""
            raise tree.error(
                f"{name!r} is not a function of the model language.{near} A product is written with *; the "
                f"functions are {listed(sorted(functions), most=40)}", node
            )  # fmt: skip
        case ast.Attribute(attr=name) if name in functions:
            raise tree.error(f"{{}} is not allowed here: write {name}(...)", node.func)
        case _:
            return ""
    function, n = functions[name], len(node.args)
    if node.keywords:
        raise tree.error(f"{name}(...) takes no arguments by name", node)
    if not function.least <= n <= function.most:
        wanted = f"{function.least}" if function.least == function.most else f"{function.least} to {function.most}"
        raise tree.error(f"{name}(...) takes {wanted} argument{'s' * (wanted != '1')}, {n} given", node)
    return name


# --- the public verbs


def read_value(value: Any, where: str) -> Any:
    """Return a number, text or expression as a float, or as an expression where it has symbols; NaN of what is none."""
    if isinstance(value, str):
        value = parse_expression(value, where=where)
    if getattr(value, "free_symbols", None):
        return value
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def parse_expression(text: str | float, *, where: str = "", line_offset: int = 0, delays: bool = False) -> Node:
    """Return the expression of a text.

    Parameters
    ----------
    text : str or number
        An expression of the model language: numbers, names, ``+ - * / % **``, the functions exp, log, log10, log2,
        sqrt, sin, cos, tan, asin, acos, atan, sinh, cosh, tanh, asinh, abs, sign, floor, ceil, min, max, pow, the
        constant ``pi``, ``log(x, base)``, ``trunc``, ``fmod``, and ``where(condition, a, b)`` with conditions of ``< <=
        > >= == != and or not``. The sign of ``a % b`` is that of b, as in Python; that of ``fmod(a, b)`` is a's.
    where : str, optional
        The name of the text, at the beginning of messages, such as "`state['I']`".
    line_offset : int, optional
        Number of lines before the text in the user's file.
    delays : bool, optional
        Whether ``lag(x, tau)``, x at t - tau, is allowed.

    Returns
    -------
    Node
        Every name in it is the symbol that `fmepy.language.equations.symbol` makes.

    Raises
    ------
    ModelTextError
        Anything else than the above; the message shows line and place.

    Examples
    --------
    >>> parse_expression("(-200750 + c * 50000) / (n * delt)")
    (-200750 + 50000*c)/(n*delt)
    >>> parse_expression("x // 2")
    Traceback (most recent call last):
    fmepy.errors.ModelTextError: line 1: 'x // 2' is not allowed here: a quotient is written /, its whole part ...
        x // 2
        ^
    """
    value: Any = text
    if isinstance(value, Real) and value is not True and value is not False:
        if not math.isfinite(value):
            raise ModelTextError(f"{where + ': ' if where else ''}{value!r} is not a finite number")
        return as_node(value)
    if not isinstance(text, str):
        got = f"{type(text).__name__} {text!r:.60}"
        raise ModelTextError(f"{where + ': ' if where else ''}an expression is a text or a number; got {got}")
    source = Source.of(text[: MAX_EXPRESSION + 1], where, line_offset)
    opened: list[tuple[str, int, int]] = []
    lines = [clean_line(line, source, row, opened) for row, line in enumerate(source.lines)]
    check_closed(source, opened)
    if not "".join(lines).strip():
        raise source.error("there is no expression", 0, 0)
    lines[0] = "(" + lines[0]
    value, _ = convert(parse_tree(lines, source, 0, 1), delays=delays)
    return as_node(value)
