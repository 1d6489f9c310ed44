"""The tree of the model language: numbers, symbols, sums, products, powers and functions, each of them once.

Equal expressions are one object: a node is made by `add`, `mul`, `power` or `call` (also by Python's operators), and an
existing one is returned again. So trees are compared by ``is``, a part in several places is processed once, and a model
of thousands of chained assignments is as large as its text.

Little is rewritten. Numbers are computed, zeros and ones go, like terms of a sum and equal bases of a product are
collected, ``c * x`` holds its coefficient apart, and all else stays in the order in which it was written: what a model
computes differs from the user's own formula in the last digits at most.

A function is a row of one table, see `fmepy.language.functions`.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any
from weakref import WeakValueDictionary

from fmepy.language.printing import text_of
from fmepy.language.traversal import in_order as in_order

MOST_MERGED = 8
"""Terms of a sum inside a sum up to which they become terms of the outer one."""


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
            for e in in_order([self], lambda e: e._free is not None):
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
        """Return the same kind of node with other parts."""
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
        return unpacked_one, (packed([self]),)


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
        return made(cls, "symbol", (), name)  # type: ignore[no-any-return]


class Mode(Symbol):
    """The symbol of a condition (0 or 1) or a floor (a whole number) while a run is between two jumps of it."""

    __slots__ = ()


class Shared(Node):
    """A part of expressions that is printed as its name, such as the value of an assigned variable."""

    __slots__ = ("name",)
    name: str

    def __new__(cls, name: str, value: Node) -> Any:
        """Return the node, or the value itself where it holds no symbol or is one."""
        return made(cls, "shared", (value,), name) if value.args and value.free_symbols else value

    def rebuilt(self, parts: Sequence[Node]) -> Node:
        """Return the same node with another value."""
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


def made(kind: Any, word: str, args: tuple[Node, ...], content: Any = None) -> Any:
    """Return the one node of a kind, a word and parts; `content` is a name or a number."""
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


def number(value: float) -> Number:
    """Return the node of a number."""
    value = float(value)
    content = "nan" if value != value else value + 0.0  # a NaN does not equal itself, and -0 is 0 here
    return made(Number, "number", (), content)  # type: ignore[no-any-return]


def as_node(value: Any) -> Node:
    """Return a number as a node, and a node as it is."""
    if isinstance(value, Node):
        return value
    if isinstance(value, Real):
        return number(float(value))
    raise TypeError(f"{type(value).__name__} {value!r} is not an expression")


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
            parts.append(number(c) if base is ONE else base if c == 1 else made(Node, "*", (number(c), base)))
    if not parts:
        return ZERO
    return parts[0] if len(parts) == 1 else made(Node, "+", tuple(parts))


def _split(term: Node) -> tuple[float, Node]:
    """Return a term as coefficient and rest; that of a number is 1."""
    if isinstance(term, Number):
        return term.value, ONE
    if term.word == "*" and isinstance(first := term.args[0], Number):
        return first.value, term.args[1]
    return 1.0, term


def mul(*factors: Any) -> Node:
    """Return a product; whole powers of equal bases are merged, the coefficient is separate."""
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
    if coefficient == 0:  # unless a factor has no finite value, such as 1 / 0
        return number(math.nan) if any(not base.free_symbols for base in powers) else ZERO
    parts = [base if n == 1 else power(base, number(n)) for base, n in powers.items() if n]
    if not parts:
        return number(coefficient)
    rest = parts[0] if len(parts) == 1 else made(Node, "*", tuple(parts))
    return rest if coefficient == 1 else made(Node, "*", (number(coefficient), rest))


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
    return made(Node, "**", (base, exponent))  # type: ignore[no-any-return]


def _folded(function: Callable[..., float], args: Sequence[Node]) -> Number | None:
    """Return the value of a function of numbers; None where it is not finite, which is an error in a run."""
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
    """A row of the table of functions, see `fmepy.language.functions`.

    Attributes
    ----------
    name : str
        Its name in a text.
    value : callable
        Its value for Python's floats; may raise ArithmeticError or ValueError where it has none.
    array : callable
        Its value for numpy's numbers and arrays, NaN where it has none.
    slopes : callable or None
        ``slopes(out, *arguments)`` returns its derivatives to each argument as expressions, of its own value, too;
        None where it is constant between its jumps, and says `jumps`.
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
    if name in ("min", "max"):  # without bounds that bind nothing
        endless = math.inf if name == "min" else -math.inf
        args = tuple(a for a in args if not (isinstance(a, Number) and a.value == endless)) or args[:1]
        if len(args) == 1:
            return args[0]
    if all(isinstance(a, Number) for a in args) and name != "lag" and (folded := _folded(function.value, args)):
        return folded
    return made(Node, name, args)  # type: ignore[no-any-return]


def _where(left: Node, right: Node, yes: Node, no: Node) -> Node:
    """Return ``where(left > right, yes, no)``, or one of the branches where it is known which."""
    if isinstance(left, Number) and isinstance(right, Number):
        if left.value > right.value:
            return yes
        if left.value <= right.value:
            return no
    return yes if yes is no else made(Node, "where", (left, right, yes, no))


def choose_above(left: Any, right: Any, yes: Any, no: Any) -> Node:
    """Return ``where(left > right, yes, no)``."""
    return call("where", left, right, yes, no)


# --- through expressions


def mapped(
    expressions: Sequence[Node], change: Callable[[Node, list[Node]], Node], memo: dict[Node, Node] | None = None
) -> list[Node]:
    """Return expressions rebuilt from the inside: ``change(e, parts)`` of every node, with its changed parts."""
    memo = {} if memo is None else memo
    for e in in_order(expressions, memo.__contains__):
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


def values_of(expressions: Sequence[Node], values: Mapping[Node, float]) -> list[float]:
    """Return the numbers that expressions are where symbols have values; NaN where there is none."""
    memo: dict[Node, float] = dict(values)
    for e in in_order(expressions, memo.__contains__):
        memo[e] = _value(e, [memo[a] for a in e.args])
    return [memo[e] for e in expressions]


def _value(e: Node, x: list[float]) -> float:
    if isinstance(e, Number):
        return e.value
    if e.word == "+":
        total = x[0]
        for v in x[1:]:
            total += v
        return total
    if e.word in ("*", "shared"):
        return math.prod(x)
    try:
        return math.pow(*x) if e.word == "**" else float(TABLE[e.word].value(*x))
    except (ArithmeticError, ValueError):  # where floats raise, numpy has infinity or NaN
        import numpy as np

        with np.errstate(all="ignore"):
            numbers: list[Any] = [np.float64(v) for v in x]
            return float(np.power(*numbers) if e.word == "**" else TABLE[e.word].array(*numbers))


def shared(name: str, value: Any, size: int, most: int) -> tuple[Any, int]:
    """Return the node of a name in other expressions, and its size: the value, or a shared part if it is large."""
    if size <= most or isinstance(value, float):
        return value, size
    return Shared(name, value), 1


# --- as tables


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
        nodes.append(number(content) if kind is Number else made(kind, word, inside, content))
    return [nodes[i] for i in table[-1]]


def unpacked_one(table: Any) -> Node:
    """Return the expression of a packed table of one."""
    return unpacked(table)[0]
