"""What a checked statement of a module is: expressions of `fmepy.language`, with arrays, and what gets their value.

An expression of arrays stands for one of its elements, wherever that is: the symbol of an array as a whole (`Whole`) is
its element there, a number is the same everywhere. What looks at other elements than that one is an `ArrayNode`:

* ``array(a, b, ...)``: the elements of a list, row by row: of numbers, or the whole of a statement's value;
* ``sum(x, n)``: the sum of all n elements of x;
* ``dot(a, b, rows, n, columns)``: the product of two matrices that are stored, whose sums have n terms;
* ``table(x, points, points, n, kind, 2)``: the table of n pairs at x, ``table(x, xs, ys, n, kind, 1)`` of two vectors;
  the kind is the place of its word in `TABLE_KINDS`.

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
"""Most elements of an array."""
TIME = Symbol("t")
_ONE = range(1)
DT = "(dt)"
"""The variable that holds the elementary step; no name of a user looks like this."""
START, END = "(t_start)", "(t_end)"
"""The variables that hold the first and the last of a model's times."""
TABLE_KINDS = ("hold", "extrapolate", "step")
"""What a table is outside its points, and between them: held, a line; a line, a line; held, the last y passed."""


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


class Whole(Symbol):
    """An array; in an expression, its element at the position that is computed."""

    __slots__ = ()


class ArrayNode(Node):
    """What looks at other elements than that at the position that is computed; see the module's text."""

    __slots__ = ()

    def rebuilt(self, parts: Sequence[Node]) -> Node:
        """Return such a node made of other parts."""
        return array_node(self.word, *parts)


def array_node(word: str, *args: Any) -> ArrayNode:
    """Return the node of a word and its parts."""
    node: ArrayNode = made(ArrayNode, word, tuple(map(as_node, args)))
    return node


def size_of(e: Node) -> int:
    """Return a number of elements, as it stands in an `ArrayNode`."""
    return int(float(e))


def is_list_of_numbers(e: Node) -> bool:
    """Tell whether an expression is a list of numbers alone."""
    return e.word == "array" and all(isinstance(item, Number) for item in e.args)


def open_nodes(order: Iterable[Node]) -> set[Node]:
    """Return which of some nodes, each after what it is made of, differ between the elements of an array."""
    found: set[Node] = set()
    for e in order:
        if e.word == "sum":
            continue
        if e.word == "dot":
            is_open = size_of(e.args[2]) * size_of(e.args[4]) > 1
        elif e.word == "table":
            is_open = e.args[0] in found
        else:
            is_open = isinstance(e, Whole) or e.word == "array" or any(a in found for a in e.args)
        if is_open:
            found.add(e)
    return found


class Elements:
    """Expressions at elements of arrays, each made once; sums, products and tables are written out.

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

        def is_made(part: Any) -> bool:  # what looks at several elements becomes so when it is asked for
            if (part, i) not in self.made and isinstance(part, (ArrayNode, Symbol)):
                self.made[part, i] = self.element(part, i) if isinstance(part, Symbol) else self.of_array(part, i)
            return (part, i) in self.made

        for part in in_order([e], is_made):
            self.made[part, i] = part.rebuilt([self.made[a, i] for a in part.args]) if part.args else part
        return self.made[e, i]

    def element(self, e: Symbol, i: int) -> Node:
        """Return a variable at an element."""
        if not isinstance(e, Whole):
            return e
        index = np.unravel_index(i, self._shapes[e.name])
        return Symbol(element_name(e.name, tuple(map(int, index))))

    def of_array(self, e: Node, i: int) -> Node:
        """Return what looks at several elements at an element."""
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
        n, kind, apart = map(size_of, e.args[3:])
        xs = [self.at(e.args[1], apart * k) for k in range(n)]
        ys = [self.at(e.args[2], apart * k + apart - 1) for k in range(n)]
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
        """What it is called."""
        return element_name(self.name, self.index or ())

    @property
    def value_shape(self) -> Shape:
        """Of what is referred to."""
        return self.shape if self.index is None else ()

    @property
    def positions(self) -> range:
        """Of the elements that it is, row by row."""
        if self.index is None:
            return range(prod(self.shape)) if self.shape else _ONE
        position = flat_position(self.index, self.shape)
        return range(position, position + 1)

    @property
    def node(self) -> Symbol:
        """It as an expression."""
        return (Whole if self.value_shape else Symbol)(self.element)

    def renamed(self, names: Mapping[str, str]) -> Reference:
        """Return it with another name of the variable."""
        return replace(self, name=names[self.name]) if self.name in names else self


@dataclass(frozen=True, slots=True)
class Memory:
    """A function with a memory, called: lag, rate, smooth, delay1, ...; or an array that is computed and stored.

    Attributes
    ----------
    kind : str
    arguments : tuple of Node
    shapes : tuple of tuple of int
        Of the arguments.
    node : Symbol
        What stands for its value; no variable of a user is called so, and no other one in the system.
    order : int
        Of a smooth or delay the levels in a row; 0: one, and tau is too short for it.
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
        What gets the value; a scalar value spreads over a whole array.
    value : Node
        The right-hand side.
    shape : tuple of int
        Of the value.
    reads : tuple of Reference
        What the right-hand side reads, in the order of the text, each as often as it occurs.
    memories : tuple of Memory
        What remembers in it, each after those in its arguments.
    words : tuple of str
        The functions of modules alone that are called.
    module : str
        The module it stands in.
    line, column : int
        Of the module's text, from 1.
    nonnegative : tuple of int
        Of a level the positions of the elements that stay at 0 where their rates would take them below.
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
        """All that gets a value."""
        return (self.target,)

    def renamed(self, names: Mapping[str, str]) -> ModuleStatement:
        """Return it with other names of variables."""
        target, reads = self.target.renamed(names), tuple(r.renamed(names) for r in self.reads)
        rule = {a.node: b.node for a, b in zip(self.reads, reads, strict=True) if a is not b}
        expressions = [self.value, *(a for m in self.memories for a in m.arguments)]
        value, *others = substituted(expressions, rule)
        left = iter(others)
        memories = tuple(replace(m, arguments=tuple(next(left) for _ in m.arguments)) for m in self.memories)
        return replace(self, target=target, value=value, reads=reads, memories=memories)


@dataclass(frozen=True, slots=True)
class FunctionStatement:
    """One call of a module that is a Python function: the values of `targets` from those of `reads`."""

    function: Callable[..., Any] = field(repr=False)
    reads: tuple[Reference, ...]
    targets: tuple[Reference, ...]
    module: str
    line: int = field(default=0, compare=False)
    kind: ClassVar[Kind] = "assign"
    words: ClassVar[tuple[str, ...]] = ()


def reference_of(symbol: Symbol, shapes: Mapping[str, Shape]) -> Reference:
    """Return what a symbol refers to."""
    name = symbol.name
    if not name.endswith("]"):
        return Reference(name, shapes[name])
    name, _, inside = name.rpartition("[")
    return Reference(name, shapes[name], tuple(map(int, inside[:-1].split(","))))


def flat_position(index: tuple[int, ...], shape: Shape) -> int:
    """Return where an element stands in an array, row by row."""
    position = 0
    for i, n in zip(index, shape, strict=True):
        position = position * n + i
    return position


def indices_of(shape: Shape) -> list[tuple[int, ...]]:
    """Return the indices of all elements of an array, row by row."""
    return list(product(*map(range, shape)))


def element_names(name: str, shape: Shape) -> tuple[str, ...]:
    """Return what columns, parameters and data call the elements of a variable: ``D[0]``, ``A[0,1]``; a scalar itself.

    Elements of a range bear its names: ``births[north,1]``.

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
    """Return what an element is called; the name itself where there is no index."""
    return f"{name}[{','.join(map(str, index))}]" if index else name
