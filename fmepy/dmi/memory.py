"""Functions with a memory as hidden levels, and statements as jobs: what there is to do at a step.

What remembers becomes statements of hidden variables, which the rest of the room treats like any others::

    smooth(x, tau)    s,    with d(s)/dt = (x - s) / tau                                 and s(0) = x
    delay1(x, tau)    L / tau,   with d(L)/dt = x - L / tau                              and L(0) = x tau
    delay3(x, tau)    3 L3 / tau, each level flowing into the next by 3 L / tau          and L(0) = x tau / 3
    rate(x)           (x - before) / step,  `before` being kept of the module's last step; at the start it is x

(DYNAMO's; A. L. Pugh, DYNAMO User's Manual), so that all of them start in equilibrium. ``lag(x, tau, before)`` looks
into the history of x, which the run keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from fmepy.dmi.llvm import DT
from fmepy.dmi.tree import (
    Array,
    Call,
    Chain,
    Element,
    Expr,
    FunctionStatement,
    Memory,
    Name,
    Node,
    Number,
    Shape,
    Statement,
    Target,
    parts,
    walk,
)
from fmepy.errors import TracingError


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """One thing that is done at a step.

    Attributes
    ----------
    kind : {"assign", "rate", "initial", "lag", "python"}
        An assignment; the rate of a level; an initial value (of a level: only at the start; of another variable: its
        first guess); a look into a history; a module that is a Python function.
    target : Name or Element
        What is assigned. Of a rate: the variable `rate_of` it. Of a Python module: the first of what it assigns.
    value : Expr or None
    module : str
    step : int
        The module's.
    line : int
        Of the module's text, 0 where there is none.
    arguments : tuple of Name or Element
        Of a lag: x, tau, before. Of a Python module: what it reads.
    targets : tuple of Name
        Of a Python module.
    function : callable or None
        The Python function.
    """

    kind: Literal["assign", "rate", "initial", "lag", "python"]
    target: Target
    value: Expr | None
    module: str
    step: int
    line: int = 0
    arguments: tuple[Target, ...] = ()
    targets: tuple[Name, ...] = ()
    function: Callable[..., Any] | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class Level:
    """A level, or an element of one: what moves by `step` dt times its rate when its module is active."""

    target: Target
    step: int


@dataclass(frozen=True, slots=True, eq=False)
class Delay:
    """A smooth or delay whose tau is computed or comes from outside: its kind, (first) level, tau, where it stands."""

    kind: str
    level: str
    tau: Target
    module: str
    step: int
    line: int


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """All that there is to do, in the order in which it was written.

    Attributes
    ----------
    jobs : tuple of Job
    shapes : dict of str to tuple of int
        Of all variables, the hidden ones behind those of the user.
    levels : tuple of Level
    kept : tuple of (Name or Element, Name, int)
        What is copied to where at the end of a module's step, of which the third is the length.
    delays : tuple of Delay
    hidden : tuple of str
        Hidden variables that are levels.
    python : dict of str to str
        The modules that run as Python, and why they cannot be statements.
    """

    jobs: tuple[Job, ...]
    shapes: dict[str, Shape]
    levels: tuple[Level, ...]
    kept: tuple[tuple[Target, Name, int], ...]
    delays: tuple[Delay, ...]
    hidden: tuple[str, ...]
    python: dict[str, str]


def rate_of(name: str) -> str:
    """Return what the variable is called that holds the rate of a level."""
    return f"d({name})/dt"


def as_work(statements: tuple[Statement | FunctionStatement, ...], shapes: dict[str, Shape], steps: Any) -> Work:
    """Return what statements ask to be done.

    Parameters
    ----------
    statements : tuple of Statement or FunctionStatement
    shapes : dict of str to tuple of int
        Of all variables.
    steps : mapping of str to int
        The step of every module.
    """
    return _Maker(dict(shapes), steps).work(statements)


class _Maker:
    """Collects the jobs of a system."""

    def __init__(self, shapes: dict[str, Shape], steps: Any) -> None:
        self._shapes, self._steps = shapes | {DT: ()}, steps
        self._jobs: list[Job] = []
        self._levels: list[Level] = []
        self._kept: list[tuple[Target, Name, int]] = []
        self._delays: list[Delay] = []
        self._hidden: list[str] = []
        self._python: dict[str, str] = {}
        self._module, self._line = "", 0

    def work(self, statements: tuple[Statement | FunctionStatement, ...]) -> Work:
        """Return the jobs of statements."""
        for s in statements:
            self._module, self._line = s.module, s.line
            if isinstance(s, FunctionStatement):
                self._function(s)
            elif s.kind == "level":
                self._level(s.target, self._plain(s.value))
            else:
                self._do(s.kind, s.target, self._plain(s.value))
        return Work(
            tuple(self._jobs), self._shapes, tuple(self._levels), tuple(self._kept), tuple(self._delays),
            tuple(self._hidden), self._python,
        )  # fmt: skip

    def _function(self, s: FunctionStatement) -> None:
        """Add a module that is a Python function: as statements where it has such, else as a call."""
        from fmepy.dmi.traced import written

        try:
            found = written(s)
        except TracingError as error:
            self._python[s.module] = str(error)
            step = self._steps[s.module]
            self._jobs.append(Job("python", s.assigns[0], None, s.module, step, s.line, s.reads, s.assigns, s.function))
            return
        for name, value in found.hidden:
            self._do("assign", self._new(name, ()), value)
        for target, value in found.values:
            self._do("assign", target, value)

    def _do(self, kind: Any, target: Target, value: Expr | None, arguments: tuple[Target, ...] = ()) -> None:
        step = self._steps[self._module]
        self._jobs.append(Job(kind, target, value, self._module, step, self._line, arguments))

    def _level(self, target: Target, rate: Expr) -> None:
        name = rate_of(target.name)
        self._shapes[name] = self._shapes[target.name]
        self._levels.append(Level(target, self._steps[self._module]))
        self._do("rate", replace(target, name=name), rate)

    def _plain(self, node: Any) -> Any:
        """Return an expression with hidden variables in place of what remembers."""
        if not any(isinstance(n, Memory) for n in walk(node)):
            return node
        changed: dict[str, Any] = {}
        for f in fields(node):
            value = getattr(node, f.name)
            if isinstance(value, Node):
                changed[f.name] = self._plain(value)
            elif isinstance(value, tuple) and value and isinstance(value[0], Node):
                changed[f.name] = tuple(map(self._plain, value))
        node = replace(node, **changed)
        if not isinstance(node, Memory):
            return node
        made: Expr = getattr(self, f"_{node.kind}")(f"{self._module}.{node.kind}({node.number + 1})", node)
        return made

    def _new(self, name: str, shape: Shape) -> Name:
        self._shapes[name] = shape
        return Name(name, shape=shape)

    def _place(self, name: str, value: Expr) -> Target:
        """Return where the value of an expression stands."""
        if isinstance(value, (Name, Element)):
            return value
        target = self._new(name, value.shape)
        self._do("assign", target, value)
        return target

    def _argument(self, name: str, value: Expr) -> Expr:
        return value if isinstance(value, Number) else self._place(name, value)

    def _hidden_level(self, name: str, shape: Shape, rate: Callable[[Name], Expr], start: Expr) -> Name:
        level = self._new(name, shape)
        self._hidden.append(name)
        self._level(level, rate(level))
        self._do("initial", level, start)
        return level

    def _smooth(self, name: str, node: Memory) -> Expr:
        x, tau = self._two(name, node)
        return self._hidden_level(name, node.shape, lambda s: _quotient(_difference(x, s), tau), x)

    def _delay1(self, name: str, node: Memory) -> Expr:
        x, tau = self._two(name, node)
        level = self._hidden_level(name, node.shape, lambda s: _difference(x, _quotient(s, tau)), _product(x, tau))
        return _quotient(level, tau)

    def _delay3(self, name: str, node: Memory) -> Expr:
        inflow, tau = self._two(name, node)
        third = self._argument(f"{name}.third", _quotient(tau, Number(3.0)))
        start = _product(inflow, third)
        for i in range(3):

            def rate(s: Name, inflow: Expr = inflow) -> Expr:
                return _difference(inflow, _quotient(s, third))

            inflow = _quotient(self._hidden_level(f"{name}.{i + 1}", node.shape, rate, start), third)
        return inflow

    def _two(self, name: str, node: Memory) -> tuple[Expr, Expr]:
        x, tau = (self._argument(f"{name}.{w}", a) for w, a in zip(("x", "tau"), node.arguments, strict=True))
        if isinstance(tau, (Name, Element)):
            level = f"{name}.1" if node.kind == "delay3" else name
            self._delays.append(Delay(node.kind, level, tau, self._module, self._steps[self._module], self._line))
        return x, tau

    def _rate(self, name: str, node: Memory) -> Expr:
        x, step = self._place(f"{name}.x", node.arguments[0]), self._steps[self._module]
        before = self._new(name, x.shape)
        self._do("initial", before, x)
        self._kept.append((x, before, step))
        return _quotient(_difference(x, before), _product(Number(float(step)), Name(DT)))

    def _lag(self, name: str, node: Memory) -> Expr:
        words = ("x", "tau", "before")
        places = tuple(self._place(f"{name}.{w}", a) for w, a in zip(words, node.arguments, strict=True))
        target = self._new(name, node.shape)
        self._do("lag", target, None, places)
        return target


def _joined(op: str, a: Expr, b: Expr) -> Chain:
    return Chain((op,), (a, b), shape=a.shape or b.shape)


def _difference(a: Expr, b: Expr) -> Chain:
    return _joined("-", a, b)


def _product(a: Expr, b: Expr) -> Chain:
    return _joined("*", a, b)


def _quotient(a: Expr, b: Expr) -> Chain:
    return _joined("/", a, b)


def reads_of(job: Job, element: int | None = None) -> Iterator[tuple[str, int | None]]:
    """Return what a job reads, of a lag its x aside: a variable and the position of an element, None for all of them.

    With `element`, what that one element of the target is computed from.
    """
    if job.value is not None:
        yield from _reads(job.value, element if job.value.shape else None)
    for argument in job.arguments[1:] if job.kind == "lag" else job.arguments:
        yield from _reads(argument, element)


def _reads(node: Any, i: int | None) -> Iterator[tuple[str, int | None]]:
    match node:
        case Name(name=name, shape=shape):
            yield name, i if shape else 0
        case Element(name=name):
            yield name, node.position
        case Array(items=items) if i is not None:
            yield from _reads(items[i], None)
        case Call(function="dot", arguments=(a, b)) if i is not None and node.shape:
            columns = b.shape[1] if len(b.shape) == 2 else 1
            for k in range(b.shape[0]):
                yield from _reads(a, i // columns * b.shape[0] + k if len(a.shape) == 2 else k)
                yield from _reads(b, k * columns + i % columns)
        case Call(function="sum"):
            yield from _reads(node.arguments[0], None)
        case Call(function="table", arguments=(x, xs, ys)):
            yield from _reads(x, i if x.shape else None)
            yield from _reads(xs, None)
            yield from _reads(ys, None)
        case _:
            for part in parts(node):
                yield from _reads(part, i if part.shape else None)
