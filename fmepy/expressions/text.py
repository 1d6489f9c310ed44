"""Checked text -> sympy expressions: the right-hand sides of the model language.

Text runs no code. It is parsed with ``ast`` after limits on length and nesting, and the tree is rebuilt, node by node,
from a white list: numbers, names, ``+ - * / % **``, the functions of `FUNCTIONS`, ``pi``, and conditions inside
``where(condition, a, b)`` or ``a if condition else b``. Everything else is an error that shows the place.

**Choices** (``where``, ``max``, ``abs``, ``floor``, ``%``, ...) become the nodes of `expressions.nodes`, conditions
those of `expressions.conditions`; sympy gets none of them to decide or to rewrite.

**Numbers.** What is constant is computed in floats, as Python would (``9**9**9`` overflows and is an error, it is never
multiplied out). A whole result up to 1e15 then becomes a sympy Integer, so that ``2*x`` prints as it was written, and
half-integer exponents become Rationals, so that ``x**2`` and ``x**0.5`` are what sympy takes them for; everything else
is a Float of double precision. Only sums, products and quotients of ``pi`` stay symbolic.
"""

from __future__ import annotations

import ast
import keyword
import math
import re
import unicodedata
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import TYPE_CHECKING, Any, TypeAlias

from fmepy.errors import ModelTextError, did_you_mean, listed
from fmepy.expressions.conditions import Condition, Joined, Not, choose, relation
from fmepy.expressions.equations import symbol

if TYPE_CHECKING:
    import sympy

__all__ = ["FUNCTIONS", "Source", "Tree", "as_expr", "convert", "parse_expression", "parse_tree", "reserved_name"]

MAX_EXPRESSION = 10_000
"""Most characters of one expression or statement."""
MAX_NESTING = 100
"""Most levels of brackets and operators inside one another (a long sum is one level)."""
MAX_SIZE = 100_000
"""Most terms and operators of one expression, assigned names put in."""
MAX_NUMBER = 60
"""Most characters of one number."""
MAX_INTEGER = 1e15
"""Whole numbers up to here are exact in a float, and become sympy Integers."""
MAX_EXACT_EXPONENT = 10_000
"""Whole exponents up to here are exact; `(2*x)**n` makes sympy compute `2**n`."""
MAX_SYMBOLIC_EXPONENT = 100
"""Whole numbers up to here are exact inside an exponent that holds names, for the same reason."""
MAX_JOINED = 50
"""Most comparisons in one condition: every further one is one more level of choices."""

Value: TypeAlias = "float | sympy.Expr"

_SENTENCES: dict[type[ast.AST], str] = {
    ast.Attribute: "attribute access has no meaning in a model",
    ast.Subscript: "square brackets have no meaning in a model",
    ast.Lambda: "functions cannot be defined in a model",
    ast.NamedExpr: "':=' has no meaning in a model; give the assignment its own line",
    ast.Tuple: "a comma stands only between the arguments of a function; a decimal point is written '.'",
    ast.List: "lists have no meaning in a model",
    ast.Set: "braces have no meaning in a model",
    ast.Dict: "braces have no meaning in a model",
    ast.ListComp: "comprehensions have no meaning in a model",
    ast.SetComp: "comprehensions have no meaning in a model",
    ast.DictComp: "comprehensions have no meaning in a model",
    ast.GeneratorExp: "comprehensions have no meaning in a model",
    ast.Starred: "'*' before an argument has no meaning in a model",
    ast.BitXor: "for a power use **, as in x**2",
    ast.MatMult: "'@' has no meaning in a model",
    ast.FloorDiv: "'//' has no meaning in a model; a quotient is written /, its whole part floor(a / b)",
    ast.BitAnd: "join conditions by `and`, as in where(x > 0 and y > 0, a, b)",
    ast.BitOr: "join conditions by `or`, as in where(x > 0 or y > 0, a, b)",
    ast.LShift: "'<<' has no meaning in a model",
    ast.RShift: "'>>' has no meaning in a model",
    ast.Invert: "'~' has no meaning in a model; negate a condition by `not`",
}
_CONDITION_ONLY = "a condition stands only inside where(condition, a, b), as in where(x > 0, 1, 0)"
_OTHER_WORDS = {  # what other languages call our functions
    "ln": "log", "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arcsinh": "asinh", "fabs": "abs",
    "maximum": "max", "minimum": "min", "power": "pow", "ifelse": "where", "Piecewise": "where", "sgn": "sign",
    "ceiling": "ceil", "mod": "%", "fmod": "%", "remainder": "%",
}  # fmt: skip
_WORDS_ALLOWED = {"and", "or", "not", "if", "else"}
_NUMBER = re.compile(r"(?<![\w.])\.?\d[\w.]*")
_WORD = re.compile(r"[^\W\d]\w*")


# --- the text, for messages


@dataclass(frozen=True, slots=True)
class Source:
    """A text as the user wrote it, and how to point into it.

    Attributes
    ----------
    lines : tuple of str
        Its lines.
    where : str
        What the text is, such as "`state['I']`" or a file name; opens every message.
    line_offset : int
        Number of lines before the first one in the user's file.
    """

    lines: tuple[str, ...]
    where: str = ""
    line_offset: int = 0

    @classmethod
    def of(cls, text: str, where: str = "", line_offset: int = 0) -> Source:
        """Split a text into lines, whatever its line ends."""
        return cls(tuple(text.replace("\r\n", "\n").replace("\r", "\n").split("\n")), where, line_offset)

    def line_number(self, row: int) -> int:
        """Return the number, counted from 1, of the line with index `row`."""
        return row + 1 + self.line_offset

    def error(self, message: str, row: int, column: int) -> ModelTextError:
        """Return the error for a place: index of the line, index of the character in it."""
        number = self.line_number(row)
        place = [self.where] if self.where else []
        if not self.where or len(self.lines) > 1 or self.line_offset:
            place.append(f"line {number}")
        line = self.lines[row] if row < len(self.lines) else ""
        column = min(column, len(line))
        text = f"{', '.join(place)}: {message}\n{_pointed(line, column)}"
        return ModelTextError(text, line=number, column=column + 1)


def _pointed(line: str, column: int, width: int = 100) -> str:
    """Return a line, cut to `width` around the place, and a caret under the place."""
    line = "".join(" " if unicodedata.category(c) in ("Cc", "Zs", "Cs", "Cf") else c for c in line)
    start = max(0, column - width // 2)
    before, after = line[start:column], line[column : start + width]
    if start:
        before = "..." + before
    if start + width < len(line):
        after += "..."
    return f"    {before}{after}".rstrip() + "\n    " + " " * sum(map(_cells, before)) + "^"


def _cells(character: str) -> int:
    """Return how many columns of a terminal a character takes."""
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def reserved_name(name: str) -> str:
    """Return why `name` (in NFKC form) cannot be the name of a variable, or an empty string."""
    if name.startswith("__"):
        return "names that begin with two underscores are reserved"
    if keyword.iskeyword(name):
        return f"{name!r} is a word of the language and cannot be a name; call it {name + '_'!r}"
    if name in FUNCTIONS:
        return f"{name!r} is a function: it is called with arguments in brackets, and cannot be a name"
    return ""


# --- text -> tree


@dataclass(frozen=True, slots=True)
class Tree:
    """A parsed right-hand side, and where it came from.

    Attributes
    ----------
    node : ast.expr
        The parsed expression; not checked yet.
    code : str
        What was parsed. Its lines are those of `source` from `row` on, moved right by `shift` characters.
    """

    node: ast.expr = field(repr=False)
    code: str
    source: Source = field(repr=False)
    row: int
    shift: int

    def error(self, message: str, node: ast.AST | None = None) -> ModelTextError:
        """Return the error that points at `node`, or at the start of the expression."""
        node = self.node if node is None else node
        row, offset = node.lineno - 1, node.col_offset  # type: ignore[attr-defined]  # every expression has a place
        line = self.code.split("\n")[row]
        column = len(line.encode()[:offset].decode(errors="ignore"))
        if (row, column) == (0, 0):  # a tuple or a comprehension takes our own bracket for its own
            column = 1 + len(line[1:]) - len(line[1:].lstrip())
        return self._at(message, row, column)

    def _at(self, message: str, row: int, column: int) -> ModelTextError:
        return self.source.error(message, self.row + row, column - (self.shift if row == 0 else 0))

    def text(self, node: ast.AST) -> str:
        """Return a piece as the user wrote it, for a message."""
        segment = ast.get_source_segment(self.code + "\n)", node) or "this"
        if (node.lineno, node.col_offset) == (1, 0):  # type: ignore[attr-defined]  # as in `error`
            segment = segment[1:-1]
        text = " ".join(segment.split())
        return repr(text if len(text) <= 60 else text[:57] + "...")

    def names(self) -> Iterator[str]:
        """Return the names that occur, in the order in which they are read, functions and constants aside."""
        found: list[tuple[int, int, str]] = []
        heads = {id(n.func) for n in ast.walk(self.node) if isinstance(n, ast.Call)}
        for n in ast.walk(self.node):
            if isinstance(n, ast.Name) and id(n) not in heads and n.id != "pi":
                found.append((n.lineno, n.col_offset, n.id))
        return (name for _, _, name in sorted(found))


def parse_tree(lines: list[str], source: Source, row: int, shift: int) -> Tree:
    """Return the tree of an expression whose first line is line `row` of the source.

    Parameters
    ----------
    lines : list of str
        The lines without comments, brackets balanced (see `clean_line`); what precedes the expression is blank.
        The first begins with "(", of which `shift` characters are not in the source.
    """
    code = "\n".join(lines)
    place = Tree(ast.Constant(0.0, lineno=1, col_offset=0), code, source, row, shift)
    if len(code) > MAX_EXPRESSION:
        raise place._at(f"this is longer than {MAX_EXPRESSION} characters; split it into assignments", 0, shift)
    _check_words(place)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # SyntaxWarnings and DeprecationWarnings about the user's text
            node = ast.parse(code + "\n)", mode="eval").body
    except (MemoryError, RecursionError):
        raise _too_deep(place) from None
    except SyntaxError as error:
        raise _unreadable(place, error) from None
    except ValueError:  # characters that no Python source may hold
        raise place._at("this cannot be read: it holds characters that are no text", 0, shift) from None
    return Tree(node, code, source, row, shift)


def _too_deep(tree: Tree) -> ModelTextError:
    return tree._at("this is too long or too deeply nested; split it into assignments", 0, tree.shift)


def _check_words(place: Tree) -> None:
    """Refuse Python's words and endless numbers, before the parser speaks of its own syntax."""
    for i, line in enumerate(place.code.split("\n")):
        for match in _NUMBER.finditer(line):
            if len(match.group()) > MAX_NUMBER:
                raise place._at(f"a number of more than {MAX_NUMBER} characters", i, match.start())
        for match in _WORD.finditer(line):
            word = match.group()
            if word in ("True", "False", "None"):
                raise place._at(f"{word!r} is not allowed here: write a number", i, match.start())
            if keyword.iskeyword(word) and word not in _WORDS_ALLOWED:
                raise place._at(reserved_name(word), i, match.start())


def _unreadable(place: Tree, error: SyntaxError) -> ModelTextError:
    """Return our words for a SyntaxError."""
    lines = place.code.split("\n")
    row, column = (error.lineno or 1) - 1, (error.offset or 1) - 1
    if row >= len(lines):  # the closing bracket that we added: the text stops where something more was expected
        return place._at("the expression stops too early", len(lines) - 1, len(lines[-1].rstrip()))
    said = error.msg or ""
    if "nested parentheses" in said:
        return _too_deep(place)
    if "null bytes" in said:
        return place._at("this cannot be read: it holds null characters", 0, place.shift)
    if "invalid decimal literal" in said:
        message = "a number and a name run into each other; a product is written with *, as in 2*x"
    elif "comma" in said:
        message = "something is missing between two terms; a product is written with *, as in a*x"
    elif "invalid character" in said or "non-printable" in said:
        message = f"this cannot be read: {said.split(' (<')[0]}; write plain signs and letters"
    elif "'='" in said or "assign" in said:
        message = "'=' stands once in a statement; conditions are written with <, <=, > and >="
    else:
        message = f"this cannot be read as an expression ({said.split(' (<')[0]})"
    return place._at(message, row, max(column, 0))


def clean_line(line: str, source: Source, row: int, opened: list[tuple[str, int, int]]) -> str:
    """Return a line without its comment, after checking its brackets and characters.

    `opened` holds the brackets that are open, as (bracket, row, column), and is brought up to date.
    """
    for column, c in enumerate(line):
        if c == "#":
            return line[:column]
        if c in "\"'`":
            raise source.error(f"{c} is not allowed here: text in quotes has no meaning in a model", row, column)
        if c == ";":
            raise source.error("';' is not allowed here: write one statement a line", row, column)
        if c in "([{":
            opened.append((c, row, column))
            if len(opened) > MAX_NESTING:
                raise source.error(f"more than {MAX_NESTING} brackets inside one another", row, column)
        elif c in ")]}":
            if not opened or opened[-1][0] + c not in ("()", "[]", "{}"):
                raise source.error(f"{c!r} closes a bracket that was not opened", row, column)
            opened.pop()
    return line


def check_closed(source: Source, opened: list[tuple[str, int, int]]) -> None:
    """Raise if a bracket is still open at the end of the text."""
    if opened:
        bracket, row, column = opened[-1]
        raise source.error(f"{bracket!r} is never closed", row, column)


# --- tree -> expression


@dataclass(frozen=True, slots=True)
class Function:
    """A function of the model language.

    Attributes
    ----------
    least, most : int
        How many arguments it takes.
    constant : callable
        Its value for floats.
    symbolic : callable
        Its value for expressions; the first argument is the module sympy.
    """

    least: int
    most: int
    constant: Callable[..., Any]
    symbolic: Callable[..., Any]


def _one(name: str, constant: Callable[..., Any] | None = None) -> Function:
    return Function(1, 1, constant or getattr(math, name), lambda s, x: getattr(s, name)(x))


def _choice(node: str, constant: Callable[..., Any], least: int = 1, most: int = 1) -> Function:
    def symbolic(s: Any, *x: Any) -> Any:
        from fmepy.expressions import nodes

        return getattr(nodes, node)(*x)

    return Function(least, most, constant, symbolic)


FUNCTIONS: dict[str, Function] = {
    **{
        n: _one(n)
        for n in ("log", "sqrt", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh")
    },
    "exp": Function(1, 1, math.exp, lambda s, x: s.exp(_float_large(x, MAX_SYMBOLIC_EXPONENT))),
    "log10": Function(1, 1, math.log10, lambda s, x: s.log(x) / s.log(10)),
    "log2": Function(1, 1, math.log2, lambda s, x: s.log(x) / s.log(2)),
    "abs": _choice("Absolute", abs),
    "sign": _choice("Sign", lambda x: math.copysign(1.0, x) if x else 0.0),
    "floor": _choice("Floor", math.floor),
    "ceil": _choice("Ceiling", math.ceil),
    "min": _choice("Smallest", min, 2, 20),
    "max": _choice("Largest", max, 2, 20),
    "pow": Function(2, 2, math.pow, lambda s, x, y: x**y),  # see `_power`
    "where": Function(3, 3, lambda c, a, b: a if c else b, lambda s, c, a, b: choose(c, a, b)),
}
"""The functions of the model language."""


def number(value: float) -> sympy.Number:
    """Return a finite float as a sympy number: an Integer if it is whole and exact, else a Float."""
    import sympy

    if value.is_integer() and abs(value) <= MAX_INTEGER:
        return sympy.Integer(int(value))
    return sympy.Float(value)


def _exponent(value: float) -> sympy.Number:
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

    large = {n: sympy.Float(float(n)) for n in expr.atoms(sympy.Rational) if _is_large(n, limit)}
    return expr.xreplace(large) if large else expr


def convert(tree: Tree, known: Mapping[str, tuple[Value, int]] | None = None) -> tuple[Value, int]:
    """Return the value of a checked tree and its size.

    Parameters
    ----------
    tree : Tree
        What was parsed.
    known : mapping of str to (value, size), optional
        Values to put in for names, as `convert` returned them. A constant among them is computed with as such.

    Raises
    ------
    ModelTextError
        Anything that is not on the white list, or has no finite real value.
    """
    converter = _Converter(tree, known or {})
    try:
        value = converter.number(tree.node, 0)
        if not isinstance(value, float):
            value = _finished(value, tree)
    except (MemoryError, RecursionError):
        raise _too_deep(tree) from None
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
    seen, stack, leaves = {expr}, [expr], set()
    while stack:
        node = stack.pop()
        if not node.args:
            leaves.add(node)
        for a in node.args:
            if a not in seen:
                seen.add(a)
                stack.append(a)
    return leaves


class _Converter:
    """Rebuilds one tree from the white list; one method for each thing that is allowed."""

    def __init__(self, tree: Tree, known: Mapping[str, tuple[Value, int]]) -> None:
        import sympy

        self.tree = tree
        self.known = known
        self.size = 0
        self.sympy = sympy

    def number(self, node: ast.expr, depth: int) -> Value:
        """Return the value of a node that stands for a number."""
        self._count(node, 1, depth)
        match node:
            case ast.Constant():
                return self._literal(node)
            case ast.Name():
                return self._name(node)
            case ast.BinOp(op=ast.Add() | ast.Sub()):
                return self._sum(node, depth)
            case ast.BinOp(op=ast.Mult() | ast.Div()):
                return self._product(node, depth)
            case ast.BinOp(op=ast.Mod()):
                return self._modulo(self.number(node.left, depth + 1), self.number(node.right, depth + 1), node)
            case ast.BinOp(op=ast.Pow()):
                return self._power(self.number(node.left, depth + 1), self.number(node.right, depth + 1), node)
            case ast.UnaryOp(op=ast.USub() | ast.UAdd()):
                value = self.number(node.operand, depth + 1)
                return -value if isinstance(node.op, ast.USub) else value
            case ast.IfExp():
                return self._where(node.test, node.body, node.orelse, node, depth)
            case ast.Call():
                return self._call(node, depth)
        raise self._refused(node)

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
        raise self._error(f"{self.tree.text(node)} is not a condition; compare it, as in x > 0", node)

    # what a number can be

    def _literal(self, node: ast.Constant) -> float:
        if isinstance(node.value, complex):
            raise self._error(f"{self.tree.text(node)} is not allowed here: numbers are real", node)
        if isinstance(node.value, bool) or not isinstance(node.value, (int, float)):
            raise self._error(f"{self.tree.text(node)} is not allowed here: write a number or a name", node)
        return self._folded(float, node, node.value)

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

    def _sum(self, node: ast.BinOp, depth: int) -> Value:
        """Return a chain of sums and differences, however long, at one level of nesting."""
        terms = self._chain(node, (ast.Add, ast.Sub), depth)
        total: list[Value] = []
        for sign, value, _ in terms:
            value = -value if isinstance(sign, ast.Sub) else value
            if len(total) == 1 and isinstance(total[0], float) and isinstance(value, float):
                total = [self._folded(float.__add__, node, total[0], value)]
            else:
                total.append(value)
        if len(total) == 1:
            return total[0]
        return self._tidy(self.sympy.Add(*map(as_expr, total)), node)

    def _product(self, node: ast.BinOp, depth: int) -> Value:
        """Return a chain of products and quotients, however long, at one level of nesting."""
        total: list[Value] = []
        for sign, value, place in self._chain(node, (ast.Mult, ast.Div), depth):
            divides = isinstance(sign, ast.Div)
            if divides and value == 0:
                raise self._error(f"{self.tree.text(place)} is zero: a division by zero", place)
            if len(total) == 1 and isinstance(total[0], float) and isinstance(value, float):
                total = [self._folded(float.__truediv__ if divides else float.__mul__, node, total[0], value)]
            else:
                total.append(1 / as_expr(value) if divides else value)
        if len(total) == 1:
            return total[0]
        return self._tidy(self.sympy.Mul(*map(as_expr, total)), node)

    def _chain(
        self, node: ast.BinOp, kinds: tuple[type, ...], depth: int
    ) -> list[tuple[ast.operator, Value, ast.expr]]:
        """Return the terms of a left-leaning chain in the order written: operator before it, value, node."""
        parts: list[tuple[ast.operator, ast.expr]] = []
        rest: ast.expr = node
        while isinstance(rest, ast.BinOp) and isinstance(rest.op, kinds):
            parts.append((rest.op, rest.right))
            rest = rest.left
        parts.append((kinds[0](), rest))
        return [(op, self.number(part, depth + 1), part) for op, part in reversed(parts)]

    def _power(self, base: Value, exponent: Value, node: ast.expr) -> Value:
        b, e = self._constant(base), self._constant(exponent)
        if b is not None and e is not None:
            return self._folded(math.pow, node, b, e)
        if e is not None:
            return self._tidy(as_expr(base) ** _exponent(e), node)
        if b is not None:  # a Float, for 2**(x + 10**9) * 2**(-x) makes sympy compute 2**(10**9)
            base = self.sympy.Float(b)
        return self._tidy(base ** _float_large(exponent, MAX_SYMBOLIC_EXPONENT), node)

    def _modulo(self, a: Value, b: Value, node: ast.expr) -> Value:
        from fmepy.expressions import nodes

        if isinstance(a, float) and isinstance(b, float):
            return self._folded(float.__mod__, node, a, b)
        if b == 0:
            raise self._error(f"{self.tree.text(node)} divides by zero", node)
        return self._tidy(nodes.Modulo(as_expr(a), as_expr(b)), node)

    def _call(self, node: ast.Call, depth: int) -> Value:
        name = self._function_name(node)
        self._check_arguments(name, node)
        if name == "where":
            condition, a, b = node.args
            return self._where(condition, a, b, node, depth)
        values = [self.number(a, depth + 1) for a in node.args]
        if name == "pow":
            return self._power(values[0], values[1], node)
        function = FUNCTIONS[name]
        constants = [self._constant(v) for v in values]
        if None not in constants:
            return self._folded(function.constant, node, *constants)
        return self._tidy(function.symbolic(self.sympy, *map(as_expr, values)), node)

    def _function_name(self, node: ast.Call) -> str:
        """Return the name of the function that is called; it is on the list."""
        if isinstance(node.func, ast.Attribute) and node.func.attr in FUNCTIONS:
            raise self._error(
                f"{self.tree.text(node.func)} is not allowed here: attribute access has no meaning in a model; "
                f"write {node.func.attr}(...)", node.func
            )  # fmt: skip
        if not isinstance(node.func, ast.Name):
            if type(node.func) in _SENTENCES:
                raise self._refused(node.func)
            raise self._error(
                f"{self.tree.text(node.func)} is called like a function; a product is written with *", node.func
            )
        name = node.func.id
        if name in FUNCTIONS:
            return name
        if name in ("d", "next"):
            raise self._error(f"{self.tree.text(node)} stands only on the left of '='", node)
        near = f" Did you mean {_OTHER_WORDS[name]!r}?" if name in _OTHER_WORDS else did_you_mean(name, FUNCTIONS)
        raise self._error(
            f"{self.tree.text(node.func)} is not a function of the model language.{near} A product is written with *; "
            f"the functions are {listed(sorted(FUNCTIONS), most=40)}", node
        )  # fmt: skip

    def _check_arguments(self, name: str, node: ast.Call) -> None:
        if node.keywords:
            raise self._error(f"{name}(...) takes no arguments by name", node)
        for a in node.args:
            if isinstance(a, ast.Starred):
                raise self._refused(a)
        function, n = FUNCTIONS[name], len(node.args)
        if not function.least <= n <= function.most:
            wanted = f"{function.least}" if function.least == function.most else f"{function.least} to {function.most}"
            hint = "; for another base divide, as in log(x) / log(3)" if name == "log" and n == 2 else ""
            raise self._error(f"{name}(...) takes {wanted} argument{'s' * (wanted != '1')}, {n} given{hint}", node)

    def _where(self, test: ast.expr, a: ast.expr, b: ast.expr, node: ast.expr, depth: int) -> Value:
        if sum(len(n.ops) for n in ast.walk(test) if isinstance(n, ast.Compare)) > MAX_JOINED:
            raise self._error(f"a condition of more than {MAX_JOINED} comparisons; split it", test)
        condition = self.condition(test, depth + 1)
        yes, no = self.number(a, depth + 1), self.number(b, depth + 1)
        return self._tidy(choose(condition, as_expr(yes), as_expr(no)), node)

    # conditions

    def _compare(self, node: ast.Compare, depth: int) -> Condition:
        operands = [node.left, *node.comparators]
        values = [as_expr(self.number(v, depth + 1)) for v in operands]
        pairs = zip(node.ops, values, values[1:], operands[1:], strict=False)
        return Joined([self._relation(*pair) for pair in pairs], "and")

    def _relation(self, op: ast.cmpop, left: sympy.Expr, right: sympy.Expr, place: ast.expr) -> Condition:
        words = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
        if type(op) not in words:
            raise self._error(
                "compare with <, <=, > or >=; that two numbers are equal is not a condition (for a flag: flag > 0.5)",
                place,
            )
        return relation(words[type(op)], left, right)

    # checks

    def _count(self, node: ast.expr, size: int, depth: int) -> None:
        self.size += size
        if depth > MAX_NESTING:
            raise self._error(f"this is nested more than {MAX_NESTING} levels deep; split it into assignments", node)
        if self.size > MAX_SIZE:
            raise self._error(f"with all assigned names put in, this has more than {MAX_SIZE} terms", node)

    def _constant(self, value: Value) -> float | None:
        """Return a constant as a float, None if the value holds names."""
        if isinstance(value, float):
            return value
        return float(value) if value.is_number and value.is_real else None

    def _folded(self, function: Callable[..., Any], node: ast.expr, *values: Any) -> float:
        """Return the float of a constant piece."""
        try:
            result = float(function(*values))
        except (ValueError, ZeroDivisionError):
            raise self._error(f"{self.tree.text(node)} has no finite real value", node) from None
        except OverflowError:
            result = math.inf
        if not math.isfinite(result):
            raise self._error(f"{self.tree.text(node)} is beyond the range of floating point", node)
        return result

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

    def _error(self, message: str, node: ast.AST) -> ModelTextError:
        return self.tree.error(message, node)

    def _refused(self, node: ast.expr) -> ModelTextError:
        """Return the error for something that is not on the white list."""
        if isinstance(node, (ast.Compare, ast.BoolOp)) or (
            isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
        ):
            return self._error(f"{self.tree.text(node)} is not allowed here: {_CONDITION_ONLY}", node)
        what = node.op if isinstance(node, (ast.BinOp, ast.UnaryOp)) else node
        reason = _SENTENCES.get(
            type(what), "only numbers, names, + - * / ** and the functions of the model language are"
        )
        return self._error(f"{self.tree.text(node)} is not allowed here: {reason}", node)


# --- the public verb


def parse_expression(text: str | float, *, where: str = "", line_offset: int = 0) -> sympy.Expr:
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
    value, _ = convert(parse_tree(lines, source, 0, 1))
    return as_expr(value)
