"""The tree of the model language: numbers, symbols, sums, products, powers and functions, each of them once.

Equal expressions are one object: a node is made by `add`, `mul`, `power` or `call` (which Python's operators ask, too),
and what has been made before is returned again. So a tree is compared by ``is``, what stands in several places is
looked at once, and a model of thousands of chained assignments is as large as its text.

Little is rewritten. Numbers are computed, zeros and ones go, like terms of a sum and equal bases of a product are
collected, ``c * x`` holds its coefficient apart, and all else stays in the order in which it was written: what a model
computes differs from the user's own formula in the last digits at most.

A function is a row of one table, see `fmepy.language.functions`.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any
from weakref import WeakValueDictionary

MOST_MERGED = 8
"""Terms of a sum inside a sum up to which they become terms of the outer one."""
MOST_WRITTEN = 10_000
"""Characters of a part up to which it is printed; of a longer one stands ``(...)``."""


class Node:
    """An expression.

    Attributes
    ----------
    word : str
        ``"+"``, ``"*"``, ``"**"``, the name of a function, ``"number"``, ``"symbol"`` or ``"shared"``.
    args : tuple of Node
        What it is made of. A product with a coefficient is ``(Number, rest)``.
    """

    __slots__ = ("__weakref__", "_free", "args", "word")
    __array_ufunc__ = None  # numpy's numbers leave arithmetic with a node to the node
    word: str
    args: tuple[Node, ...]
    _free: frozenset[Symbol] | None

    @property
    def free_symbols(self) -> frozenset[Symbol]:
        """The symbols that occur in it."""
        if self._free is None:
            free: dict[Node, frozenset[Symbol]] = {}
            for e in in_order([self], _HasFree()):
                parts = [free.get(a) or a._free or _NONE for a in e.args]
                free[e] = max(parts, key=len, default=_NONE)
                if any(p - free[e] for p in parts):
                    free[e] = frozenset().union(*parts)
                if isinstance(e, Shared):
                    e._free = free[e]
            self._free = free[self]
        return self._free

    @property
    def is_constant(self) -> bool:
        """Whether no symbol occurs in it."""
        return not self.free_symbols

    def subs(self, rule: Mapping[Any, Any]) -> Node:
        """Return the expression with other expressions (or numbers) in the places of some of its nodes."""
        return substituted([self], rule)[0]

    def rebuilt(self, parts: Sequence[Node]) -> Node:
        """Return such a node made of other parts."""
        if all(a is b for a, b in zip(parts, self.args, strict=True)):
            return self
        make = {"+": add, "*": mul, "**": power}.get(self.word)
        return make(*parts) if make is not None else call(self.word, *parts)

    def __add__(self, other: Any) -> Node:
        return add(self, other)

    def __radd__(self, other: Any) -> Node:
        return add(other, self)

    def __sub__(self, other: Any) -> Node:
        return add(self, mul(MINUS_ONE, other))

    def __rsub__(self, other: Any) -> Node:
        return add(other, mul(MINUS_ONE, self))

    def __mul__(self, other: Any) -> Node:
        return mul(self, other)

    def __rmul__(self, other: Any) -> Node:
        return mul(other, self)

    def __truediv__(self, other: Any) -> Node:
        return mul(self, power(other, MINUS_ONE))

    def __rtruediv__(self, other: Any) -> Node:
        return mul(other, power(self, MINUS_ONE))

    def __pow__(self, other: Any) -> Node:
        return power(self, other)

    def __rpow__(self, other: Any) -> Node:
        return power(other, self)

    def __neg__(self) -> Node:
        return mul(MINUS_ONE, self)

    def __pos__(self) -> Node:
        return self

    def __float__(self) -> float:
        if self.free_symbols:
            raise TypeError(f"{self} has no value: it depends on {sorted(s.name for s in self.free_symbols)}")
        return values_of([self], {})[0]

    def __str__(self) -> str:
        return text_of(self)

    __repr__ = __str__

    def __reduce__(self) -> Any:
        return _unpacked_one, (packed([self]),)


class Number(Node):
    """A number."""

    __slots__ = ("value",)
    value: float

    def __float__(self) -> float:
        return self.value


class Symbol(Node):
    """A name."""

    __slots__ = ("name",)
    name: str

    def __new__(cls, name: str) -> Symbol:
        """Return the symbol of a name; there is one."""
        return _made(cls, "symbol", (), name)  # type: ignore[no-any-return]


class Mode(Symbol):
    """What stands for a condition (0 or 1) or a floor (a whole number) while a run is between two jumps of it."""

    __slots__ = ()


class Shared(Node):
    """A part of expressions that is printed as its name, such as the value of an assigned variable."""

    __slots__ = ("name",)
    name: str

    def __new__(cls, name: str, value: Node) -> Any:
        """Return the node, or the value itself where it holds no symbol or is one."""
        return _made(cls, "shared", (value,), name) if value.args and value.free_symbols else value

    def rebuilt(self, parts: Sequence[Node]) -> Node:
        """Return such a node made of another value."""
        return self if parts[0] is self.args[0] else Shared(self.name, parts[0])


def fresh(name: str) -> Symbol:
    """Return a symbol that is no other's, whatever is called the same."""
    out: Symbol = object.__new__(Symbol)
    out.word, out.args, out.name = "symbol", (), name
    out._free = frozenset([out])
    return out


# --- one object for equal expressions

_nodes: WeakValueDictionary[Any, Node] = WeakValueDictionary()
_lock = threading.Lock()
_NONE: frozenset[Symbol] = frozenset()


def _made(kind: Any, word: str, args: tuple[Node, ...], content: Any = None) -> Any:
    key = (kind, word, content, *args)
    found = _nodes.get(key)
    if found is not None:
        return found
    with _lock:
        found = _nodes.get(key)
        if found is None:
            found = object.__new__(kind)
            found.word, found.args, found._free = word, args, None
            if word == "number":
                found.value, found._free = float(content), _NONE
            elif content is not None:
                found.name = content
            if word == "symbol":
                found._free = frozenset([found])
            _nodes[key] = found
    return found


class _HasFree:
    """The nodes whose symbols are known."""

    def __contains__(self, e: Any) -> bool:
        return e._free is not None


def number(value: float) -> Number:
    """Return the node of a number."""
    value = float(value)
    content = "nan" if value != value else value + 0.0  # a NaN does not equal itself, and -0 is 0 here
    return _made(Number, "number", (), content)  # type: ignore[no-any-return]


def as_node(value: Any) -> Node:
    """Return a number as a node, and a node as it is."""
    if isinstance(value, Node):
        return value
    if isinstance(value, Real):
        return number(float(value))
    raise TypeError(f"{type(value).__name__} {value!r} is no expression")


# --- arithmetic


def add(*terms: Any) -> Node:
    """Return a sum; like terms are one."""
    coefficients: dict[Node, float] = {}
    waiting = [as_node(t) for t in terms]
    if len(waiting) == 1:
        return waiting[0]
    for term in waiting:
        inner = term.args if term.word == "+" and len(term.args) <= MOST_MERGED else (term,)
        for t in inner:
            c, base = _split(t)
            coefficients[base] = coefficients.get(base, 0.0) + c
    parts = []
    for base, c in coefficients.items():
        if c != 0:
            parts.append(number(c) if base is ONE else base if c == 1 else _made(Node, "*", (number(c), base)))
    if not parts:
        return ZERO
    return parts[0] if len(parts) == 1 else _made(Node, "+", tuple(parts))


def _split(term: Node) -> tuple[float, Node]:
    """Return a term as coefficient and rest; that of a number is 1."""
    if isinstance(term, Number):
        return term.value, ONE
    if term.word == "*" and isinstance(first := term.args[0], Number):
        return first.value, term.args[1]
    return 1.0, term


def mul(*factors: Any) -> Node:
    """Return a product; whole powers of equal bases are one, the coefficient stands apart."""
    coefficient, powers = 1.0, dict[Node, float]()
    for factor in map(as_node, factors):
        c, rest = _split(factor)
        coefficient *= c
        if rest is ONE:
            continue
        base, n = rest, 1.0
        if rest.word == "**" and isinstance(e := rest.args[1], Number) and e.value.is_integer():
            base, n = rest.args[0], e.value
        if base in powers:
            powers[base] += n
        else:
            powers[base] = n
    if coefficient == 0:
        return ZERO
    parts = [base if n == 1 else power(base, number(n)) for base, n in powers.items() if n]
    if not parts:
        return number(coefficient)
    rest = parts[0] if len(parts) == 1 else _made(Node, "*", tuple(parts))
    return rest if coefficient == 1 else _made(Node, "*", (number(coefficient), rest))


def power(x: Any, n: Any) -> Node:
    """Return a power."""
    base, exponent = as_node(x), as_node(n)
    if isinstance(exponent, Number):
        n = exponent.value
        if n in (0, 1):
            return base if n else ONE
        if isinstance(base, Number):
            folded = _folded(math.pow, (base, exponent))
            if folded is not None:
                return folded
        if base.word == "**" and n.is_integer() and isinstance(m := base.args[1], Number) and m.value.is_integer():
            return power(base.args[0], number(n * m.value))
        if n == -1 and base.word == "*" and base.args[0] is MINUS_ONE:
            return mul(MINUS_ONE, power(base.args[1], exponent))
    if base is ONE:
        return ONE
    return _made(Node, "**", (base, exponent))  # type: ignore[no-any-return]


def _folded(function: Callable[..., float], args: Sequence[Node]) -> Number | None:
    """Return what a function of numbers is as a number; None where it has no finite value, which is seen in a run."""
    try:
        value = float(function(*(a.value for a in args if isinstance(a, Number))))
    except (ArithmeticError, ValueError, TypeError):
        return None
    return number(value) if math.isfinite(value) else None


ONE, MINUS_ONE, HALF = number(1.0), number(-1.0), number(0.5)
ZERO = number(0.0)


# --- functions


@dataclass(frozen=True, slots=True)
class Function:
    """A row of the table of functions: all that is known of one, see `fmepy.language.functions`.

    Attributes
    ----------
    name : str
        What a text calls it.
    value : callable
        Its value for Python's floats; may raise ArithmeticError or ValueError where it has none.
    array : callable
        Its value for numpy's numbers and arrays, NaN where it has none.
    slopes : callable or None
        ``slopes(out, *arguments)`` returns its derivatives to each argument as expressions, of its own value, too;
        None where it is constant between its jumps.
    llvm : str or callable
        The function of C that computes it, or ``llvm(part, *values)``, which writes it, see `compiled.llvm_operations`.
    numpy : tuple of str
        The ufuncs (of numpy or scipy.special) that are this function.
    least, most : int
        How many arguments it takes.
    in_text : bool
        Whether a text may call it.
    build : callable or None
        ``build(*arguments)`` returns it as an expression of other functions: then nothing else is needed but `value`.
    tangent : callable or None
        ``tangent(arguments, directions)``: the derivative along directions, for functions that choose among arguments.
    jumps : bool
        Whether its value may jump where its arguments do not.
    bounded : bool
        Whether it has a value only where an argument is within bounds (a logarithm, an arcus sine).
    """

    name: str
    value: Callable[..., float]
    array: Callable[..., Any]
    slopes: Callable[..., Sequence[Node | float]] | None = None
    llvm: str | Callable[..., str] = ""
    numpy: tuple[str, ...] = ()
    least: int = 1
    most: int = 1
    in_text: bool = True
    build: Callable[..., Node] | None = None
    tangent: Callable[[Sequence[Node], Sequence[Node]], Node] | None = None
    jumps: bool = False
    bounded: bool = False

    @property
    def is_choice(self) -> bool:
        """Whether it chooses among its arguments, or jumps."""
        return self.jumps or self.tangent is not None or self.name == "nan_of"


TABLE: dict[str, Function] = {}
"""The functions of the language, by name; `fmepy.language.functions` fills it."""


def call(name: str, *arguments: Any) -> Node:
    """Return a function of the table, applied."""
    function, args = TABLE[name], tuple(map(as_node, arguments))
    if function.build is not None:
        return function.build(*args)
    if name == "where":
        return _where(*args)
    if all(isinstance(a, Number) for a in args) and name != "lag" and (folded := _folded(function.value, args)):
        return folded
    return _made(Node, name, args)  # type: ignore[no-any-return]


def _where(left: Node, right: Node, yes: Node, no: Node) -> Node:
    """Return ``where(left > right, yes, no)``, or one of the branches where it is known which."""
    if isinstance(left, Number) and isinstance(right, Number):
        if left.value > right.value:
            return yes
        if left.value <= right.value:
            return no
    return yes if yes is no else _made(Node, "where", (left, right, yes, no))


def choose_above(left: Any, right: Any, yes: Any, no: Any) -> Node:
    """Return ``where(left > right, yes, no)``."""
    return call("where", left, right, yes, no)


# --- through expressions


def in_order(expressions: Iterable[Node], known: Container[Node] = ()) -> list[Node]:
    """Return the nodes of expressions, each once and after what it is made of; not what is `known` or in that alone."""
    seen: set[Node] = set()
    out: list[Node] = []
    waiting = list(expressions)[::-1]
    while waiting:
        e = waiting[-1]
        if e in seen or e in known:
            waiting.pop()
            continue
        new = [a for a in e.args if a not in seen and a not in known]
        if new:
            waiting.extend(new[::-1])
        else:
            waiting.pop()
            seen.add(e)
            out.append(e)
    return out


def mapped(
    expressions: Sequence[Node],
    change: Callable[[Node, list[Node]], Node],
    memo: dict[Node, Node] | None = None,
) -> list[Node]:
    """Return expressions made anew from the inside: ``change(e, parts)`` of every node, with its changed parts."""
    memo = {} if memo is None else memo
    for e in in_order(expressions, memo):
        memo[e] = change(e, [memo[a] for a in e.args])
    return [memo[e] for e in expressions]


def substituted(expressions: Sequence[Node], rule: Mapping[Any, Any]) -> list[Node]:
    """Return expressions with others in the places of some nodes."""
    if not rule:
        return list(expressions)
    memo = {e: as_node(new) for e, new in rule.items()}
    return mapped(expressions, lambda e, parts: e.rebuilt(parts) if parts else e, memo)


def nodes_in(expressions: Iterable[Node], *words: str) -> list[Node]:
    """Return the nodes with some words in expressions, inner ones first."""
    return [e for e in in_order(expressions) if e.word in words]


def holds(expressions: Iterable[Node], *words: str) -> bool:
    """Tell whether a node with one of some words stands in expressions."""
    return bool(nodes_in(expressions, *words))


def values_of(expressions: Sequence[Node], values: Mapping[Node, float]) -> list[float]:
    """Return the numbers that expressions are where symbols have values; NaN where there is none."""
    memo: dict[Node, float] = dict(values)
    for e in in_order(expressions, memo):
        memo[e] = _value(e, [memo[a] for a in e.args])
    return [memo[e] for e in expressions]


def _value(e: Node, x: list[float]) -> float:
    if isinstance(e, Number):
        return e.value
    try:
        if e.word == "+":
            total = x[0]
            for v in x[1:]:
                total += v
            return total
        if e.word == "*":
            return math.prod(x)
        if e.word == "**":
            return x[0] ** -1 if x[1] == -1 else math.pow(*x)
        return x[0] if e.word == "shared" else float(TABLE[e.word].value(*x))
    except ZeroDivisionError:
        return math.inf if e.word == "**" else math.nan
    except OverflowError:
        return math.inf
    except ValueError:
        return math.nan


def shared(name: str, value: Any, size: int, most: int) -> tuple[Any, int]:
    """Return what stands for a name in other expressions, and its size: the value, or a shared part if it is large."""
    if size <= most or isinstance(value, float):
        return value, size
    return Shared(name, value), 1


# --- as text, and packed


def text_of(e: Node) -> str:
    """Return an expression as it is written in a text."""
    written: dict[Node, _Text] = {}
    for node in in_order([e], _Printed(written)):
        text = _text(node, [written[a] for a in node.args] if node.word != "shared" else [])
        written[node] = text if len(text.text) <= MOST_WRITTEN else _Text("(...)", 4)
    return written[e].text


class _Printed:
    """What need not be looked into to print: the values of shared parts."""

    def __init__(self, written: dict[Node, _Text]) -> None:
        self._written = written

    def __contains__(self, e: Any) -> bool:
        if e.word == "shared" and e not in self._written:
            self._written[e] = _Text(e.name, 4)
        return e in self._written


@dataclass(slots=True)
class _Text:
    """A part in print: its text, how firmly it holds together (1 sum, 2 product, 3 power, 4 whole), its factors."""

    text: str
    firmness: int
    above: list[str] | None = None
    below: list[str] | None = None

    def within(self, firmness: int) -> str:
        return self.text if self.firmness >= firmness else f"({self.text})"


def _text(e: Node, parts: list[_Text]) -> _Text:
    if isinstance(e, Number):
        return _Text(_digits(e.value), 1 if e.value < 0 else 4)
    if isinstance(e, Symbol | Shared):
        return _Text(e.name, 4)
    if e.word == "+":
        text = parts[0].text
        for part in parts[1:]:
            text += f" - {part.text[1:]}" if part.text.startswith("-") else f" + {part.text}"
        return _Text(text, 1)
    if e.word == "*":
        return _product(e, parts)
    if e.word == "**":
        return _power(e, *parts)
    inside = [p.text for p in parts]
    if e.word == "where":
        left, right, yes, no = inside
        return _Text(f"where({left} > {right}, {yes}, {no})", 4)
    if e.word == "mod":
        return _Text(f"({parts[0].within(4)} % {parts[1].within(4)})", 4)
    return _Text(f"{e.word}({', '.join(inside)})", 4)


def _product(e: Node, parts: list[_Text]) -> _Text:
    above: list[str] = []
    below: list[str] = []
    for a, part in zip(e.args, parts, strict=True):
        if isinstance(a, Number):
            continue
        if part.above is None or part.below is None:
            above.append(part.within(2 if a.word != "*" else 3))
        else:
            above += part.above
            below += part.below
    first = e.args[0]
    sign = ""
    if isinstance(first, Number):
        sign = "-" if first.value < 0 else ""
        if abs(first.value) != 1 or not above:
            above = [_digits(abs(first.value)), *above]
    text = f"{sign}{'*'.join(above) or '1'}"
    if below:
        text += f"/{below[0]}" if len(below) == 1 else f"/({'*'.join(below)})"
    return _Text(text, 1 if sign else 2, None if sign else above, None if sign else below)


def _power(e: Node, base: _Text, exponent: _Text) -> _Text:
    n = e.args[1]
    if isinstance(n, Number) and n.value < 0:
        text = _positive_power(base, -n.value)
        return _Text(f"1/{text}", 2, [], [text])
    if isinstance(n, Number):
        return _Text(_positive_power(base, n.value), 4 if n.value == 0.5 else 3)
    return _Text(f"{base.within(4)}**{exponent.within(4)}", 3)


def _positive_power(base: _Text, n: float) -> str:
    if n == 0.5:
        return f"sqrt({base.text})"
    return base.within(4) if n == 1 else f"{base.within(4)}**{_digits(n)}"


def _digits(value: float) -> str:
    """Return a number as a person writes it."""
    if value == math.pi:
        return "pi"
    return str(int(value)) if value.is_integer() and abs(value) <= 1e15 else repr(value)


def packed(expressions: Sequence[Node]) -> tuple[tuple[Any, ...], ...]:
    """Return expressions as a table that holds every node once: what is pickled, however deep they are."""
    order = in_order(expressions)
    at = {e: i for i, e in enumerate(order)}
    rows = tuple((type(e), e.word, _content(e), *(at[a] for a in e.args)) for e in order)
    return (*rows, tuple(at[e] for e in expressions))


def _content(e: Node) -> Any:
    return e.value if isinstance(e, Number) else getattr(e, "name", None)


def unpacked(table: tuple[tuple[Any, ...], ...]) -> list[Node]:
    """Return the expressions of a packed table."""
    nodes: list[Node] = []
    for kind, word, content, *places in table[:-1]:
        inside = tuple(nodes[i] for i in places)
        nodes.append(number(content) if kind is Number else _made(kind, word, inside, content))
    return [nodes[i] for i in table[-1]]


def _unpacked_one(table: Any) -> Node:
    return unpacked(table)[0]
