"""The statements of modules, validated: expressions of `fmepy.language` with arrays, and the variables they assign.

An expression of arrays is evaluated element by element: the symbol of a whole array (`ArraySymbol`) is its element at
the current position, a number is the same at all positions. Nodes that read other elements are `ArrayNode`:

* ``array(a, b, ...)``: the elements of a list, row by row: a list of numbers, or the entire value of a statement;
* ``sum(x, n)``: the sum of all n elements of x;
* ``dot(a, b, rows, n, columns)``: the product of two stored matrices, with sums of n terms;
* ``table(x, points, points, n, kind, 2)``: the table of n pairs at x, ``table(x, xs, ys, n, kind, 1)`` of two vectors;
  the kind is its position in `TABLE_KINDS`.

Shapes are those of numpy: ``()`` for a scalar, ``(3,)`` for a vector, ``(2, 3)`` for a matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np

from fmepy.language.nodes import Node, Number, Symbol, add, as_node, choose_above, in_order, made, substituted

Shape: TypeAlias = tuple[int, ...]
Kind: TypeAlias = Literal["assign", "level", "initial"]
MAX_ELEMENTS = 10_000
"""Largest number of elements of an array."""
TIME = Symbol("t")
_ONE = range(1)
DT = "(dt)"
"""The variable of the elementary step; the brackets keep it apart from names of users."""
START, END = "(t_start)", "(t_end)"
"""The variables of the first and the last of a model's times."""
TABLE_KINDS = ("hold", "extrapolate", "step")
"""Outside its points and between them a table is: constant, linear; linear, linear; constant, the last y passed."""


class Size(int):
    """The size of an axis whose elements have names: those of a range of subscripts."""

    name: str
    elements: tuple[str, ...]

    def __new__(cls, name: str, elements: tuple[str, ...]) -> Size:
        """Return the size of a range."""
        out = super().__new__(cls, len(elements))
        out.name, out.elements = name, elements
        return out

    def __reduce__(self) -> Any:
        return Size, (self.name, self.elements)

    def __str__(self) -> str:
        return self.name


class ArraySymbol(Symbol):
    """The symbol of an array; in an expression it is the element at the current position."""

    __slots__ = ()


class ArrayNode(Node):
    """A node that reads elements at other positions than the current one; see the docstring of the module."""

    __slots__ = ()

    def rebuilt(self, parts: Sequence[Node]) -> Node:
        """Return the node with other parts."""
        return array_node(self.word, *parts)


def array_node(word: str, *args: Any) -> ArrayNode:
    """Return the array node of a word and its parts."""
    node: ArrayNode = made(ArrayNode, word, tuple(map(as_node, args)))
    return node


def size_of(e: Node) -> int:
    """Return a size that is a part of an `ArrayNode`."""
    return int(float(e))


def is_list_of_numbers(e: Node) -> bool:
    """Tell whether an expression is a list of numbers."""
    return e.word == "array" and all(isinstance(item, Number) for item in e.args)


def varying_nodes(order: Iterable[Node]) -> set[Node]:
    """Return the nodes that differ between elements of an array; each node of `order` comes after its parts."""
    varying: set[Node] = set()
    for e in order:
        if e.word == "sum":
            continue
        if e.word == "dot":
            varies = size_of(e.args[2]) * size_of(e.args[4]) > 1
        elif e.word == "table":
            varies = e.args[0] in varying
        else:
            varies = isinstance(e, ArraySymbol) or e.word == "array" or any(a in varying for a in e.args)
        if varies:
            varying.add(e)
    return varying


class Elements:
    """Expressions at elements of arrays, each built once; sums, products and tables are expanded.

    Parameters
    ----------
    shapes : mapping of str to tuple of int
        Of all variables.
    """

    def __init__(self, shapes: Mapping[str, Shape]) -> None:
        self._shapes = shapes
        self.made: dict[tuple[Node, int], Node] = {}

    def at(self, e: Node, i: int) -> Node:
        """Return an expression at an element."""

        def has_value(part: Any) -> bool:  # symbols and array nodes get theirs here
            if (part, i) not in self.made and isinstance(part, (ArrayNode, Symbol)):
                self.made[part, i] = self.element(part, i) if isinstance(part, Symbol) else self.of_array(part, i)
            return (part, i) in self.made

        for part in in_order([e], has_value):
            self.made[part, i] = part.rebuilt([self.made[a, i] for a in part.args]) if part.args else part
        return self.made[e, i]

    def element(self, e: Symbol, i: int) -> Node:
        """Return a variable at an element."""
        if not isinstance(e, ArraySymbol):
            return e
        index = np.unravel_index(i, self._shapes[e.name])
        return Symbol(element_name(e.name, tuple(map(int, index))))

    def of_array(self, e: Node, i: int) -> Node:
        """Return an array node at an element."""
        if e.word == "array":
            return self.at(e.args[i], i)
        if e.word == "table":
            return self._table(e, i)
        if e.word == "sum":
            return add(*(self.at(e.args[0], k) for k in range(size_of(e.args[1]))))
        a, b, *sizes = e.args
        rows, n, columns = map(size_of, sizes)
        row, column = divmod(i if rows * columns > 1 else 0, columns)
        return add(*(self.at(a, row * n + k) * self.at(b, k * columns + column) for k in range(n)))

    def _table(self, e: Node, i: int) -> Node:
        x = self.at(e.args[0], i)
        n, kind, stride = map(size_of, e.args[3:])
        xs = [self.at(e.args[1], stride * k) for k in range(n)]
        ys = [self.at(e.args[2], stride * k + stride - 1) for k in range(n)]
        if TABLE_KINDS[kind] == "step":
            out = ys[0]
            for a, y in zip(xs[1:], ys[1:], strict=True):
                out = choose_above(a, x, out, y)
            return out
        lines = [ys[k] + (ys[k + 1] - ys[k]) / (xs[k + 1] - xs[k]) * (x - xs[k]) for k in range(n - 1)]
        out = lines[-1] if kind else choose_above(x, xs[-1], ys[-1], lines[-1])
        for k in reversed(range(n - 2)):
            out = choose_above(x, xs[k + 1], out, lines[k])
        return out if kind else choose_above(x, xs[0], out, ys[0])


@dataclass(frozen=True, slots=True)
class Reference:
    """A variable, whole, or one element of it.

    Attributes
    ----------
    name : str
    shape : tuple of int
        Of the variable.
    index : tuple of int, optional
        Of the element.
    """

    name: str
    shape: Shape = ()
    index: tuple[int, ...] | None = None

    @property
    def element(self) -> str:
        """Its name, with the index of an element."""
        return element_name(self.name, self.index or ())

    @property
    def value_shape(self) -> Shape:
        """The shape of the variable or element."""
        return self.shape if self.index is None else ()

    @property
    def positions(self) -> range:
        """Positions of its elements in the variable, row by row."""
        if self.index is None:
            return range(prod(self.shape)) if self.shape else _ONE
        position = flat_position(self.index, self.shape)
        return range(position, position + 1)

    @property
    def node(self) -> Symbol:
        """Its symbol."""
        return (ArraySymbol if self.value_shape else Symbol)(self.element)

    def renamed(self, names: Mapping[str, str]) -> Reference:
        """Return the reference with another name of the variable."""
        return replace(self, name=names[self.name]) if self.name in names else self


@dataclass(frozen=True, slots=True)
class Memory:
    """A call of a function with a memory (lag, rate, smooth, delay1, ...), or an array that is computed and stored.

    Attributes
    ----------
    kind : str
    arguments : tuple of Node
    shapes : tuple of tuple of int
        Of the arguments.
    node : Symbol
        The symbol of its value, unique in the system.
    order : int
        Number of levels of a smooth or delay; 0: one level, with a tau that is too short.
    """

    kind: str
    arguments: tuple[Node, ...]
    shapes: tuple[Shape, ...]
    node: Symbol
    order: int = 1


@dataclass(frozen=True, slots=True)
class ModuleStatement:
    """One statement: ``target = value``, ``d(target)/dt = value`` or ``target(0) = value``.

    Attributes
    ----------
    kind : {"assign", "level", "initial"}
        Which of the three.
    target : Reference
        The assigned variable; a scalar value fills a whole array.
    value : Node
        The right-hand side.
    shape : tuple of int
        Of the value.
    reads : tuple of Reference
        The variables of the right-hand side, in the order of the text, each as often as it occurs.
    memories : tuple of Memory
        Its functions with a memory, each after those in its arguments.
    words : tuple of str
        The called functions that only modules have.
    module : str
        The module of the statement.
    line, column : int
        Of the module's text, from 1.
    nonnegative : tuple of int
        Positions of the elements of a level that stay at 0 where their rates would take them below.
    """

    kind: Kind
    target: Reference
    value: Node
    shape: Shape
    reads: tuple[Reference, ...]
    memories: tuple[Memory, ...]
    words: tuple[str, ...]
    module: str
    line: int = field(compare=False)
    column: int = field(default=1, compare=False)
    nonnegative: tuple[int, ...] = ()

    @property
    def targets(self) -> tuple[Reference, ...]:
        """The assigned variables."""
        return (self.target,)

    def renamed(self, names: Mapping[str, str]) -> ModuleStatement:
        """Return the statement with other names of variables."""
        target, reads = self.target.renamed(names), tuple(r.renamed(names) for r in self.reads)
        rule = {a.node: b.node for a, b in zip(self.reads, reads, strict=True) if a is not b}
        expressions = [self.value, *(a for m in self.memories for a in m.arguments)]
        value, *others = substituted(expressions, rule)
        left = iter(others)
        memories = tuple(replace(m, arguments=tuple(next(left) for _ in m.arguments)) for m in self.memories)
        return replace(self, target=target, value=value, reads=reads, memories=memories)


@dataclass(frozen=True, slots=True)
class FunctionStatement:
    """The call of a Python module: the values of `targets` from those of `reads`."""

    function: Callable[..., Any] = field(repr=False)
    reads: tuple[Reference, ...]
    targets: tuple[Reference, ...]
    module: str
    line: int = field(default=0, compare=False)
    kind: ClassVar[Kind] = "assign"
    words: ClassVar[tuple[str, ...]] = ()


def reference_of(symbol: Symbol, shapes: Mapping[str, Shape]) -> Reference:
    """Return the variable or element of a symbol."""
    name = symbol.name
    if not name.endswith("]"):
        return Reference(name, shapes[name])
    name, _, inside = name.rpartition("[")
    return Reference(name, shapes[name], tuple(map(int, inside[:-1].split(","))))


def flat_position(index: tuple[int, ...], shape: Shape) -> int:
    """Return the position of an element in an array, row by row."""
    position = 0
    for i, n in zip(index, shape, strict=True):
        position = position * n + i
    return position


def indices_of(shape: Shape) -> list[tuple[int, ...]]:
    """Return the indices of all elements of an array, row by row."""
    return list(product(*map(range, shape)))


def element_names(name: str, shape: Shape) -> tuple[str, ...]:
    """Return the names of a variable's elements in columns, parameters and data: ``D[0]``, ``A[0,1]``, or a scalar's.

    Elements of a range have its names: ``births[north,1]``.

    Examples
    --------
    >>> element_names("A", (2, 2))
    ('A[0,0]', 'A[0,1]', 'A[1,0]', 'A[1,1]')
    """
    axes: list[Iterable[Any]] = [n.elements if isinstance(n, Size) else range(n) for n in shape]
    return tuple(element_name(name, i) for i in product(*axes)) if shape else (name,)


def noise_of(element: str) -> str:
    """Return the constant of 0 that carries the noise of an assigned variable.

    Examples
    --------
    >>> noise_of("births"), noise_of("D[0]")
    ('births_noise', 'D_noise[0]')
    """
    name, bracket, index = element.partition("[")
    return f"{name}_noise{bracket}{index}"


def element_name(name: str, index: tuple[int | str, ...]) -> str:
    """Return the name of an element; the name of the variable if there is no index."""
    return f"{name}[{','.join(map(str, index))}]" if index else name
