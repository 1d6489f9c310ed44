"""Checked text -> sympy expressions: the right-hand sides of the model language.

Text runs no code. It is parsed with ``ast`` after limits on length and nesting (`tree`), and rebuilt, node by node,
from a white list: numbers, names, ``+ - * / % **``, the functions of `expressions.functions`, ``pi``, and conditions
inside ``where(condition, a, b)`` or ``a if condition else b``. Everything else is an error that shows the place.

**Choices** (``where``, ``max``, ``abs``, ``floor``, ``%``, ...) become the nodes of `expressions.nodes`, conditions
those of `expressions.conditions`; sympy gets none of them to decide or to rewrite.

**Numbers.** What is constant is computed in floats, as Python would (``9**9**9`` overflows and is an error, it is never
multiplied out). A whole result up to 1e15 then becomes a sympy Integer, so that ``2*x`` prints as it was written, and
half-integer exponents become Rationals, so that ``x**2`` and ``x**0.5`` are what sympy takes them for; everything else
is a Float of double precision. Only sums, products and quotients of ``pi`` stay symbolic.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from numbers import Real
from typing import TYPE_CHECKING, Any, TypeAlias

from fmepy.errors import ModelTextError, did_you_mean, listed
from fmepy.expressions.conditions import Condition, Joined, Not, choose, relation
from fmepy.expressions.equations import MAX_INTEGER, number, symbol
from fmepy.expressions.functions import FUNCTIONS
from fmepy.expressions.source import Source
from fmepy.expressions.tree import (
    MAX_EXPRESSION,
    MAX_NESTING,
    Tree,
    check_closed,
    clean_line,
    parse_tree,
    reserved_name,
    too_deep,
)

if TYPE_CHECKING:
    import sympy

MAX_SIZE = 100_000
"""Most terms and operators of one expression, assigned names put in."""
MAX_EXACT_EXPONENT = 10_000
"""Whole exponents up to here are exact; `(2*x)**n` makes sympy compute `2**n`."""
MAX_SYMBOLIC_EXPONENT = 100
"""Whole numbers up to here are exact inside an exponent that holds names, for the same reason."""
MAX_JOINED = 50
"""Most comparisons in one condition: every further one is one more level of choices."""

Value: TypeAlias = "float | sympy.Expr"

LAG = "lag"
"""The word for a delay: it stands for one where it is called, and is a name like others where it is not."""
ONLY_IN_RATES = "the past is read in the rates and outputs of differential equations alone (OdeModel)"
_ALLOWED = "an expression is made of numbers, names, + - * / % **, brackets and the functions of the model language"
_CONDITION_ONLY = "a condition stands only inside where(condition, a, b), as in where(x > 0, 1, 0)"
_HINTS: dict[type[ast.AST], str] = {  # where users really go wrong
    ast.BitXor: "for a power use **, as in x**2",
    ast.FloorDiv: "a quotient is written /, its whole part floor(a / b)",
    ast.Tuple: "a comma stands only between the arguments of a function; a decimal point is written '.'",
    ast.BitAnd: "join conditions by `and`, as in where(x > 0 and y > 0, a, b)",
    ast.BitOr: "join conditions by `or`, as in where(x > 0 or y > 0, a, b)",
    ast.Invert: "negate a condition by `not`",
    ast.Attribute: f"{_ALLOWED}; a name has no dot: write r_max for r.max",
    ast.Compare: _CONDITION_ONLY,
    ast.BoolOp: _CONDITION_ONLY,
    ast.Not: _CONDITION_ONLY,
}
_OTHER_WORDS = {  # what numpy and other languages call our functions
    **{other: name for name, function in FUNCTIONS.items() for other in function.numpy},
    **dict.fromkeys(("mod", "fmod", "remainder"), "%"),
    **dict.fromkeys(("ifelse", "Piecewise"), "where"),
    "ln": "log", "sgn": "sign", "ceiling": "ceil",
}  # fmt: skip
_RELATIONS: dict[type[ast.cmpop], str] = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
_ARITHMETIC: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
}  # fmt: skip
_SUM, _PRODUCT = (ast.Add, ast.Sub), (ast.Mult, ast.Div)


def exact_exponent(value: float) -> sympy.Number:
    """Return a constant exponent: a Rational where it is a half or a whole number."""
    import sympy

    if (2 * value).is_integer() and abs(value) <= MAX_EXACT_EXPONENT:
        return sympy.Rational(int(2 * value), 2)
    return sympy.Float(value)


def as_expr(value: Value) -> sympy.Expr:
    """Return a value of `convert` as a sympy expression."""
    return number(value) if isinstance(value, float) else value


def _is_large(n: Any, limit: float) -> bool:
    return bool(n.is_Rational) and (abs(n.p) > limit or n.q > limit)


def _float_large(expr: Any, limit: float) -> Any:
    """Return `expr` with its Rationals beyond `limit` as Floats, which sympy never multiplies out digit by digit."""
    import sympy

    from fmepy.expressions.nodes import nodes_in

    large = {n: sympy.Float(float(n)) for n in nodes_in([expr], sympy.Rational) if _is_large(n, limit)}
    return expr.xreplace(large) if large else expr


def convert(
    tree: Tree, known: Mapping[str, tuple[Value, int]] | None = None, delays: bool = False
) -> tuple[Value, int]:
    """Return the value of a checked tree and its size.

    Parameters
    ----------
    tree : Tree
        What was parsed.
    known : mapping of str to (value, size), optional
        Values to put in for names, as `convert` returned them. A constant among them is computed with as such.
    delays : bool
        Whether ``lag(x, tau)`` may stand there.

    Raises
    ------
    ModelTextError
        Anything that is not on the white list, or has no finite real value.
    """
    converter = _Converter(tree, known or {}, delays)
    try:
        value = converter.number(tree.node, 0)
        if not isinstance(value, float):
            value = _finished(value, tree)
    except (MemoryError, RecursionError):
        raise too_deep(tree) from None
    return value, converter.size


def _finished(expr: Any, tree: Tree) -> Value:
    """Return an expression after a last look at every number in it."""
    import sympy

    leaves = _leaves(expr)
    if not leaves.isdisjoint({sympy.I, sympy.zoo, sympy.nan, sympy.oo, -sympy.oo}):
        raise tree.error("this has no finite real value: it divides by zero, or takes a root or logarithm of less")
    numbers = [n for n in leaves if n.is_Number]
    try:
        finite = all(math.isfinite(float(n)) for n in numbers)
    except OverflowError:
        finite = False
    if not finite:
        raise tree.error("this holds a number beyond the range of floating point")
    if any(_is_large(n, MAX_INTEGER) for n in numbers):
        expr = _float_large(expr, MAX_INTEGER)
    return float(expr) if expr.is_Number else expr


def _leaves(expr: Any) -> set[Any]:
    """Return the leaves of an expression; what occurs many times is looked at once."""
    from fmepy.expressions.nodes import Shared

    seen, stack, leaves = {expr}, [expr], set()
    while stack:
        node = stack.pop()
        if not node.args or isinstance(node, Shared):  # what is shared has been looked at
            leaves.add(node)
            continue
        for a in node.args:
            if a not in seen:
                seen.add(a)
                stack.append(a)
    return leaves


class _Converter:
    """Rebuilds one tree from the white list; one method for each thing that is allowed."""

    def __init__(self, tree: Tree, known: Mapping[str, tuple[Value, int]], delays: bool) -> None:
        import sympy

        self.tree = tree
        self.known = known
        self.delays = delays
        self.size = 0
        self.sympy = sympy

    def number(self, node: ast.expr, depth: int) -> Value:
        """Return the value of a node that stands for a number."""
        self._count(node, 1, depth)
        match node:
            case ast.Constant(value=int() | float()):
                return self._folded(float, node, node.value)
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
        raise refused(self.tree, node)

    def condition(self, node: ast.expr, depth: int) -> Condition:
        """Return a node that stands for a condition."""
        self._count(node, 1, depth)
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

    # what a number can be

    def _name(self, node: ast.Name) -> Value:
        if reason := reserved_name(node.id):
            raise self._error(reason, node)
        if node.id == "pi":
            return self.sympy.pi
        if node.id in self.known:
            value, size = self.known[node.id]
            self._count(node, size, 0)
            return value
        return symbol(node.id)

    def _chain(self, node: ast.BinOp, depth: int) -> Value:
        """Return a chain of sums and differences, or of products and quotients, however long: one level of nesting."""
        kinds, join = (_SUM, self.sympy.Add) if isinstance(node.op, _SUM) else (_PRODUCT, self.sympy.Mul)
        parts: list[tuple[ast.operator, ast.expr]] = []
        rest: ast.expr = node
        while isinstance(rest, ast.BinOp) and isinstance(rest.op, kinds):
            parts.append((rest.op, rest.right))
            rest = rest.left
        total = [self.number(rest, depth + 1)]
        for op, part in reversed(parts):
            value = self.number(part, depth + 1)
            if isinstance(op, ast.Div) and value == 0:
                raise self._error("{} is zero: a division by zero", part)
            if len(total) == 1 and isinstance(total[0], float) and isinstance(value, float):
                total = [self._folded(_ARITHMETIC[type(op)], node, total[0], value)]
            elif isinstance(op, ast.Div):
                total.append(1 / as_expr(value))
            else:
                total.append(-value if isinstance(op, ast.Sub) else value)
        return total[0] if len(total) == 1 else self._tidy(join(*map(as_expr, total)), node)

    def _power(self, base: Value, exponent: Value, node: ast.expr) -> Value:
        b, e = _constant(base), _constant(exponent)
        if b is not None and e is not None:
            return self._folded(math.pow, node, b, e)
        if e is not None:
            return self._tidy(as_expr(base) ** exact_exponent(e), node)
        if b is not None:  # a Float, for 2**(x + 10**9) * 2**(-x) makes sympy compute 2**(10**9)
            base = self.sympy.Float(b)
        return self._tidy(base ** _float_large(exponent, MAX_SYMBOLIC_EXPONENT), node)

    def _modulo(self, a: Value, b: Value, node: ast.expr) -> Value:
        from fmepy.expressions.nodes import Modulo

        if b == 0:
            raise self._error("{} divides by zero", node)
        return self._tidy(Modulo(as_expr(a), as_expr(b)), node)

    def _call(self, node: ast.Call, depth: int) -> Value:
        if isinstance(node.func, ast.Name) and node.func.id == LAG:
            return self._lag(node, depth)
        name = called_name(self.tree, node, FUNCTIONS)
        if not name:
            self.number(node.func, 0)  # what is not allowed at all comes first
            raise self._error("{} is called like a function; a product is written with *", node.func)
        function = FUNCTIONS[name]
        if name == "where":
            return self._where(node.args[0], node.args[1], node.args[2], node, depth)
        values = [self.number(a, depth + 1) for a in node.args]
        if name == "pow":
            return self._power(values[0], values[1], node)
        constants = [_constant(v) for v in values]
        if function.number is not None and None not in constants:
            return self._folded(function.number, node, *constants)
        if name == "exp":
            values = [_float_large(values[0], MAX_SYMBOLIC_EXPONENT)]
        return self._tidy(function.of(*map(as_expr, values)), node)

    def _lag(self, node: ast.Call, depth: int) -> Value:
        from fmepy.expressions.nodes import Lag

        if not self.delays:
            raise self._error(f"{{}} is not allowed here: {ONLY_IN_RATES}", node)
        n = len(node.args)
        if n != 2 or node.keywords:
            hint = "; what was before the start is said by `history`" if n + len(node.keywords) > 2 else ""
            raise self._error(
                f"lag(...) takes 2 arguments, a state and its delay, as in lag(x, tau); {n} given{hint}", node
            )
        x, tau = (self.number(a, depth + 1) for a in node.args)
        if _constant(x) is not None:
            raise self._error("{} does not change, so it has no past", node.args[0])
        if (delay := _constant(tau)) is not None and delay < 0:
            raise self._error("the delay {} is negative; lag(x, tau) is what x was tau ago", node.args[1])
        return Lag(as_expr(x), as_expr(tau))

    def _where(self, test: ast.expr, a: ast.expr, b: ast.expr, node: ast.expr, depth: int) -> Value:
        if sum(len(n.ops) for n in ast.walk(test) if isinstance(n, ast.Compare)) > MAX_JOINED:
            raise self._error(f"a condition of more than {MAX_JOINED} comparisons; split it", test)
        condition = self.condition(test, depth + 1)
        yes, no = self.number(a, depth + 1), self.number(b, depth + 1)
        return self._tidy(choose(condition, as_expr(yes), as_expr(no)), node)

    def _compare(self, node: ast.Compare, depth: int) -> Condition:
        operands = [node.left, *node.comparators]
        values = [as_expr(self.number(v, depth + 1)) for v in operands]
        words = relation_words(self.tree, node)
        return Joined([relation(*one) for one in zip(words, values, values[1:], strict=False)], "and")

    # checks

    def _count(self, node: ast.expr, size: int, depth: int) -> None:
        self.size += size
        if depth > MAX_NESTING:
            raise self._error(f"this is nested more than {MAX_NESTING} levels deep; split it into assignments", node)
        if self.size > MAX_SIZE:
            raise self._error(f"with all assigned names put in, this has more than {MAX_SIZE} terms", node)

    def _folded(self, function: Callable[..., Any], node: ast.expr, *values: Any) -> float:
        """Return the float of a constant piece."""
        return folded(self.tree, function, node, *values)

    def _tidy(self, expr: Any, node: ast.expr) -> Value:
        """Return an expression with its numbers in our form: floats alone, no Integers that sympy could pile up."""
        if expr.is_Number and expr.is_finite:
            return self._folded(float, node, expr)
        factors = list(self.sympy.Mul.make_args(expr))
        changed = False
        for i, factor in enumerate(factors):
            if factor.is_Rational and _is_large(factor, MAX_INTEGER):
                factors[i] = self.sympy.Float(self._folded(float, node, factor))
            elif factor.is_Pow and not factor.exp.is_Number:
                factors[i] = factor.base ** _float_large(factor.exp, MAX_SYMBOLIC_EXPONENT)
            changed = changed or factors[i] is not factor
        return self.sympy.Mul(*factors) if changed else expr

    def _error(self, message: str, node: ast.expr) -> ModelTextError:
        """Return the error that points at `node`; braces in the message stand for what the user wrote there."""
        return error_of(self.tree, message, node)


def error_of(tree: Tree, message: str, node: ast.AST) -> ModelTextError:
    """Return the error that points at `node`; braces in the message stand for what the user wrote there."""
    return tree.error(message.format(tree.text(node)) if "{}" in message else message, node)


def folded(tree: Tree, function: Callable[..., Any], node: ast.expr, *values: Any) -> float:
    """Return the float of a constant piece."""
    try:
        result = float(function(*values))
    except (ValueError, ZeroDivisionError):
        raise error_of(tree, "{} has no finite real value", node) from None
    except OverflowError:
        result = math.inf
    if not math.isfinite(result):
        raise error_of(tree, "{} is beyond the range of floating point", node)
    return result


def refused(tree: Tree, node: ast.expr) -> ModelTextError:
    """Return the error for something that is not on the white list."""
    kind = type(node.op) if isinstance(node, (ast.BinOp, ast.UnaryOp)) else type(node)
    return error_of(tree, f"{{}} is not allowed here: {_HINTS.get(kind, _ALLOWED)}", node)


def relation_words(tree: Tree, node: ast.Compare) -> list[str]:
    """Return the signs of a comparison: < <= > >= and no others."""
    for op, place in zip(node.ops, node.comparators, strict=True):
        if type(op) not in _RELATIONS:
            raise error_of(
                tree, "compare with <, <=, > or >=; that two numbers are equal is not a condition (for a flag: "
                "flag > 0.5)", place
            )  # fmt: skip
    return [_RELATIONS[type(op)] for op in node.ops]


def called_name(tree: Tree, node: ast.Call, functions: Mapping[str, Any]) -> str:
    """Return the name of the function that is called with a number of arguments that it takes.

    An empty string stands for a call of something that is no name: only the caller knows whether that is allowed.
    """
    match node.func:
        case ast.Name(id=name) if name in functions:
            pass
        case ast.Name(id="d" | "next"):
            raise error_of(tree, "{} stands only on the left of '='", node)
        case ast.Name(id=name):
            near = f" Did you mean {_OTHER_WORDS[name]!r}?" if name in _OTHER_WORDS else did_you_mean(name, functions)
            raise error_of(
                tree, f"{name!r} is not a function of the model language.{near} A product is written with *; the "
                f"functions are {listed(sorted(functions), most=40)}", node
            )  # fmt: skip
        case ast.Attribute(attr=name) if name in functions:
            raise error_of(tree, f"{{}} is not allowed here: write {name}(...)", node.func)
        case _:
            return ""
    function, n = functions[name], len(node.args)
    if node.keywords:
        raise error_of(tree, f"{name}(...) takes no arguments by name", node)
    if not function.least <= n <= function.most:
        wanted = f"{function.least}" if function.least == function.most else f"{function.least} to {function.most}"
        hint = "; for another base divide, as in log(x) / log(3)" if name == "log" and n == 2 else ""
        raise error_of(tree, f"{name}(...) takes {wanted} argument{'s' * (wanted != '1')}, {n} given{hint}", node)
    return name


def _constant(value: Value) -> float | None:
    """Return a constant as a float, None if the value holds names."""
    if isinstance(value, float):
        return value
    return float(value) if value.is_number and value.is_real else None


# --- the public verb


def parse_expression(text: str | float, *, where: str = "", line_offset: int = 0, delays: bool = False) -> sympy.Expr:
    """Return the sympy expression that a text stands for.

    Parameters
    ----------
    text : str or number
        An expression of the model language: numbers, names, ``+ - * / % **``, the functions exp, log, log10, log2,
        sqrt, sin, cos, tan, asin, acos, atan, sinh, cosh, tanh, asinh, abs, sign, floor, ceil, min, max, pow, the
        constant ``pi``, and ``where(condition, a, b)`` with conditions of ``< <= > >= and or not``. The sign of ``a %
        b`` is that of b, as in Python.
    where : str, optional
        What the text is, to open messages with, such as "`state['I']`".
    line_offset : int, optional
        Number of lines before the text in the user's file.
    delays : bool, optional
        Whether ``lag(x, tau)`` may stand there: what x was tau ago.

    Returns
    -------
    sympy.Expr
        Every name in it is the real symbol `fmepy.expressions.equations.symbol` makes; whole numbers are Integers.

    Raises
    ------
    ModelTextError
        Anything else than the above; the message shows line and place.

    Examples
    --------
    >>> parse_expression("(-200750 + c * 50000) / (n * delt)")
    (50000*c - 200750)/(delt*n)
    >>> parse_expression("x^2")
    Traceback (most recent call last):
    fmepy.errors.ModelTextError: line 1: 'x^2' is not allowed here: for a power use **, as in x**2
        x^2
        ^
    """
    given: Any = text
    if isinstance(given, Real) and given is not True and given is not False:
        if not math.isfinite(given):
            raise ModelTextError(f"{where + ': ' if where else ''}{given!r} is not a finite number")
        return number(float(given))
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
    return as_expr(value)
