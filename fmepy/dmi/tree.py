"""What a checked statement of a module is: trees of frozen nodes that know their shape and the place they were read at.

Only `text` makes them, from its white list; whoever has one may trust it. Shapes are those of numpy: ``()`` for a
scalar, ``(3,)`` for a vector, ``(2, 3)`` for a matrix. Where two parts meet, their shapes are equal or one is a scalar,
which spreads. Trees are at most some hundred levels deep, for a chain such as ``a + b - c`` is one node: walking them
by recursion is safe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from itertools import product
from math import prod
from typing import Any, Literal, TypeAlias

Shape: TypeAlias = tuple[int, ...]
Kind: TypeAlias = Literal["assign", "level", "initial"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """What all nodes have: the shape of the value, and the place (line, column, both counted from 1)."""

    shape: Shape = ()
    place: tuple[int, int] = field(default=(0, 0), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Number(Node):
    """A constant; arithmetic of constants alone has been done."""

    value: float


@dataclass(frozen=True, slots=True)
class Name(Node):
    """A variable, whole."""

    name: str


@dataclass(frozen=True, slots=True)
class Element(Node):
    """One element of a vector or matrix, ``D[0]`` or ``A[0,1]``; inside `of`, the shape of the whole."""

    name: str
    index: tuple[int, ...]
    of: Shape

    @property
    def position(self) -> int:
        """Where it stands in the array, row by row."""
        return flat_position(self.index, self.of)


@dataclass(frozen=True, slots=True)
class Time(Node):
    """The time, ``t``."""


@dataclass(frozen=True, slots=True)
class Array(Node):
    """``[a, b, c]`` or ``[[a, b], [c, d]]``: its scalar items, row by row."""

    items: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Minus(Node):
    """``-x``."""

    x: Expr


@dataclass(frozen=True, slots=True)
class Chain(Node):
    """``items[0] ops[0] items[1] ops[1] ...``, from left to right; the ops are all of + and -, or all of * and /."""

    ops: tuple[str, ...]
    items: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Binary(Node):
    """``left % right`` (with the sign of right, as in Python) or ``left ** right``."""

    op: str
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class Call(Node):
    """A function of `functions.FUNCTIONS` that has no memory; the first argument of ``where`` is a condition.

    ``a if c else b`` is ``where(c, a, b)``, ``pow(a, b)`` is ``a ** b``.
    """

    function: str
    arguments: tuple[Expr | Condition, ...]


@dataclass(frozen=True, slots=True)
class Memory(Node):
    """A function with a memory: kind is lag, rate, smooth, delay1 or delay3; numbered from 0 within the module."""

    kind: str
    arguments: tuple[Expr, ...]
    number: int


@dataclass(frozen=True, slots=True)
class Compare(Node):
    """``left op right`` with op one of < <= > >=."""

    op: str
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class Both(Node):
    """All of the conditions: ``a and b``, ``x < y < z``."""

    items: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Either(Node):
    """One of the conditions at least: ``a or b``."""

    items: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Not(Node):
    """``not a``."""

    x: Condition


Expr: TypeAlias = Number | Name | Element | Time | Array | Minus | Chain | Binary | Call | Memory
Condition: TypeAlias = Compare | Both | Either | Not
Target: TypeAlias = Name | Element


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement: ``target = value``, ``d(target)/dt = value`` or ``target(0) = value``.

    Attributes
    ----------
    kind : {"assign", "level", "initial"}
        Which of the three.
    target : Name or Element
        What gets the value; a scalar value spreads over a whole array.
    value : Expr
        The right-hand side; without memory functions where the kind is initial.
    module : str
        The module it stands in.
    line : int
        The line of the module's text, from 1.
    """

    kind: Kind
    target: Target
    value: Expr
    module: str
    line: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class FunctionStatement:
    """One call of a module that is a Python function: the values of `assigns` from those of `reads`."""

    function: Callable[..., Any] = field(repr=False)
    reads: tuple[Name, ...]
    assigns: tuple[Name, ...]
    module: str
    line: int = field(default=0, compare=False)


def parts(node: Node) -> tuple[Any, ...]:
    """Return the nodes directly inside a node."""
    match node:
        case Chain() | Array() | Both() | Either():
            return node.items
        case Call() | Memory():
            return node.arguments
        case Binary() | Compare():
            return node.left, node.right
        case Minus() | Not():
            return (node.x,)
    return ()


def walk(node: Node) -> Iterator[Any]:
    """Return a node and all inside it, in the order in which they are read."""
    stack: list[Any] = [node]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(parts(node)))


def reads(node: Node) -> list[Target]:
    """Return the variables and elements that an expression reads, in its order, each as often as it occurs."""
    return [n for n in walk(node) if isinstance(n, (Name, Element))]


def renamed(node: Any, names: dict[str, str]) -> Any:
    """Return a node with other names of variables; nodes without them are returned as they are."""
    if isinstance(node, (Name, Element)):
        return replace(node, name=names[node.name]) if node.name in names else node
    changed = {}
    for f in fields(node):
        value = getattr(node, f.name)
        if isinstance(value, Node):
            new: Any = renamed(value, names)
        elif isinstance(value, tuple) and value and isinstance(value[0], Node):
            new = tuple(renamed(v, names) for v in value)
            new = value if all(a is b for a, b in zip(new, value, strict=True)) else new
        else:
            continue
        if new is not value:
            changed[f.name] = new
    return replace(node, **changed) if changed else node


def flat_position(index: tuple[int, ...], shape: Shape) -> int:
    """Return where an element stands in an array, row by row."""
    position = 0
    for i, n in zip(index, shape, strict=True):
        position = position * n + i
    return position


def element_names(name: str, shape: Shape) -> tuple[str, ...]:
    """Return what columns, parameters and data call the elements of a variable: ``D[0]``, ``A[0,1]``; a scalar itself.

    Examples
    --------
    >>> element_names("A", (2, 2))
    ('A[0,0]', 'A[0,1]', 'A[1,0]', 'A[1,1]')
    """
    return tuple(element_name(name, i) for i in product(*map(range, shape)))


def element_name(name: str, index: tuple[int, ...]) -> str:
    """Return what an element is called; the name itself where there is no index."""
    return f"{name}[{','.join(map(str, index))}]" if index else name


def targeted(target: Target) -> range:
    """Return the positions of the elements that a target is, row by row."""
    if isinstance(target, Element):
        return range(target.position, target.position + 1)
    return range(prod(target.shape))
