"""Functions with a memory as hidden levels, and statements as evaluations: what there is to do at a step.

What remembers becomes statements of hidden variables, which the rest of the room treats like any others::

    smooth(x, tau)    s,    with d(s)/dt = (x - s) / tau                                 and s(0) = x
    delay1(x, tau)    L / tau,   with d(L)/dt = x - L / tau                              and L(0) = x tau
    delayn            n Ln / tau, each level flowing into the next by n L / tau          and L(0) = x tau / n
    smoothn           sn, each s following the one before with d(s)/dt = n (x - s) / tau and s(0) = x
    trend(x, tau)     (x - s) / (tau |s|), 0 where s is 0, s being smooth(x, tau)        and s(0) = x / (1 + x0 tau)
    forecast          x (1 + (x - s) / (tau s) horizon), x where s is 0; s as in trend
    delay_fixed       lag by whole steps, one at least, as many as tau has at the start
    initial(x)        s,    with d(s)/dt = 0                                             and s(0) = x
    sample(c, x, x0)  x where c, else before,   `before` being kept of the module's last step; at the start it is x0
    rate(x)           (x - before) / step,  `before` being kept of the module's last step; at the start it is x

(DYNAMO's; A. L. Pugh, DYNAMO User's Manual), so that all of them start in equilibrium, where no other start x0 is
given. ``lag(x, tau, before)`` looks into the history of x, which the run keeps. A list within an expression, and a
factor of a matrix product that is computed, is a hidden variable, too. Random numbers are those of a standard
distribution, scaled: one stream a variable and call, the same whatever else is run, and wherever. They are drawn before
the run, so that to it they are a series like those of the data base.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple
from zlib import crc32

import numpy as np

from fmepy.dmi.expressions import CHAINS
from fmepy.dmi.statements import (
    DT,
    END,
    START,
    TIME,
    FunctionStatement,
    Memory,
    ModuleStatement,
    Reference,
    Shape,
    element_names,
    reference_of,
)
from fmepy.dmi.variables import ModuleSystem
from fmepy.errors import TracingError
from fmepy.language.nodes import HALF, ONE, ZERO, Node, Number, Symbol, call, choose_above, substituted
from fmepy.models.running.forcings import Forcing
from fmepy.types import Matrix, Vector


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """One thing that is done at a step.

    Attributes
    ----------
    kind : {"assign", "rate", "initial", "lag", "python"}
        An assignment; the rate of a level; an initial value (of a level: only at the start; of another variable: its
        first guess); a look into a history; a module that is a Python function.
    target : Reference
        What is assigned. Of a rate: the hidden variable ``d(x)/dt``. Of a Python module: the first of what it assigns.
    value : Node or None
    module : str
    step : int
        The module's.
    line : int
        Of the module's text, 0 where there is none.
    arguments : tuple of Reference
        Of a lag: x, tau, before. Of a Python module: what it reads.
    targets : tuple of Reference
        Of a Python module.
    function : callable or None
        The Python function.
    whole : bool
        Of a lag: whether it looks back one step at least.
    is_held : bool
        Whether its value is kept through a step of method "rk4".
    """

    kind: Literal["assign", "rate", "initial", "lag", "python"]
    target: Reference
    value: Node | None
    module: str
    step: int
    line: int = 0
    arguments: tuple[Reference, ...] = ()
    targets: tuple[Reference, ...] = ()
    function: Callable[..., Any] | None = field(default=None, repr=False)
    whole: bool = False
    is_held: bool = False


class Level(NamedTuple):
    """A level, or an element of one: what moves by `step` dt times its rate when its module is active."""

    target: Reference
    rate: Reference
    step: int
    nonnegative: tuple[int, ...]


class Kept(NamedTuple):
    """What is copied to where at the end of a module's step."""

    value: Reference
    to: Reference
    step: int


class DelayedLevel(NamedTuple):
    """A smooth or delay whose tau is computed or comes from outside: kind, order, (first) level, tau, its place."""

    kind: str
    order: int
    level: str
    tau: Reference
    module: str
    step: int
    line: int


class Draw(NamedTuple):
    """A hidden variable that holds random numbers: its kind, and what its stream is called."""

    target: Reference
    kind: str
    stream: str

    @property
    def elements(self) -> tuple[str, ...]:
        """What its elements are called."""
        return element_names(self.target.name, self.target.shape)


class Work:
    """All that the statements of a system ask to be done, in the order in which they were written.

    Attributes
    ----------
    evaluations : list of Evaluation
    shapes : dict of str to tuple of int
        Of all variables, the hidden ones behind those of the user.
    levels : list of Level
    kept : list of Kept
    draws : list of Draw
    delays : list of DelayedLevel
    python : dict of str to str
        The modules that run as Python, and why they cannot be statements.
    """

    def __init__(self, system: ModuleSystem) -> None:
        self.evaluations: list[Evaluation] = []
        self.shapes: dict[str, Shape] = {v.name: v.shape for v in system.variables.values()}
        self.shapes |= dict.fromkeys((DT, START, END), ())
        self.levels: list[Level] = []
        self.kept: list[Kept] = []
        self.delays: list[DelayedLevel] = []
        self.draws: list[Draw] = []
        self.python: dict[str, str] = {}
        steps = {m.name: m.step for m in system.modules}
        for s in system.statements:
            self._module, self._line, self._step = s.module, s.line, steps[s.module]
            if isinstance(s, FunctionStatement):
                self._function(s)
            elif s.kind == "level":
                self._level(s.target, self._remembered(s), s.nonnegative)
            else:
                self._do(s.kind, s.target, self._remembered(s))

    def _function(self, s: FunctionStatement) -> None:
        """Add a module that is a Python function: as statements where it has such, else as a call."""
        from fmepy.dmi.traced import written

        try:
            found = written(s)
        except TracingError as error:
            self.python[s.module] = str(error)
            self._do("python", s.targets[0], None, s.reads, targets=s.targets, function=s.function)
            return
        for target, value in found:
            self.shapes.setdefault(target.name, target.shape)
            self._do("assign", target, value)

    def _do(
        self, kind: Any, target: Reference, value: Node | None, arguments: tuple[Reference, ...] = (), **more: Any
    ) -> None:
        evaluation = Evaluation(kind, target, value, self._module, self._step, self._line, arguments, **more)
        self.evaluations.append(evaluation)

    def _level(self, target: Reference, rate: Node, nonnegative: tuple[int, ...] = ()) -> None:
        of = replace(target, name=f"d({target.name})/dt")
        self.shapes[of.name] = target.shape
        self.levels.append(Level(target, of, self._step, nonnegative))
        self._do("rate", of, rate)

    def _remembered(self, s: ModuleStatement) -> Node:
        """Return the value of a statement after adding what remembers in it."""
        rule: dict[Node, Node] = {}
        self._stream = f"{s.kind} {s.target.element}"
        for memory in s.memories:
            arguments = substituted(memory.arguments, rule)
            value: Node = getattr(self, f"_{CHAINS.get(memory.kind, memory.kind)}")(memory, *arguments)
            if value is not memory.node:
                rule[memory.node] = value
        return substituted([s.value], rule)[0]

    def _new(self, name: str, shape: Shape) -> Reference:
        self.shapes[name] = shape
        return Reference(name, shape)

    def _place(self, memory: Memory, at: int, word: str, value: Node) -> Reference:
        """Return where the value of an argument stands."""
        if isinstance(value, Symbol) and value is not TIME:
            return reference_of(value, self.shapes)
        target = self._new(f"{memory.node.name}.{word}", memory.shapes[at])
        self._do("assign", target, value)
        return target

    def _hidden_level(self, target: Reference, rate: Callable[[Node], Node], start: Node) -> Node:
        self.shapes[target.name] = target.shape
        self._level(target, rate(target.node))
        self._do("initial", target, start)
        return target.node

    def _array(self, memory: Memory, values: Node) -> Node:
        self._do("assign", self._new(memory.node.name, memory.shapes[0]), values)
        return memory.node

    def _smooth(self, memory: Memory, x: Node, tau: Node, start: Node | None = None) -> Node:
        x, part = self._parts(memory, x, tau)
        start = x if start is None else start
        for target in self._chain(memory):
            x = self._hidden_level(target, lambda s, x=x: (x - s) / part, start)  # type: ignore[misc]  # x is bound now
        return x

    def _delay(self, memory: Memory, x: Node, tau: Node, start: Node | None = None) -> Node:
        x, part = self._parts(memory, x, tau)
        full = (x if start is None else start) * part
        for target in self._chain(memory):
            x = self._hidden_level(target, lambda s, x=x: x - s / part, full) / part  # type: ignore[misc]  # x is bound now
        return x

    def _trend(self, memory: Memory, x: Node, tau: Node, start: Node = ZERO, *, by_sign: bool = False) -> Node:
        x, tau = self._parts(memory, x, tau)
        (target,) = self._chain(memory)
        s = self._hidden_level(target, lambda s: (x - s) / tau, x / (ONE + start * tau))
        size = call("abs", s)
        return choose_above(size, ZERO, (x - s) / (tau * (s if by_sign else size)), ZERO)

    def _forecast(self, memory: Memory, x: Node, tau: Node, horizon: Node, start: Node = ZERO) -> Node:
        x = self._place(memory, 0, "x", x).node if not isinstance(x, Number) else x
        return x * (ONE + self._trend(memory, x, tau, start, by_sign=True) * horizon)

    def _chain(self, memory: Memory) -> list[Reference]:
        """Return the levels of a smooth or delay."""
        name, shape = memory.node.name, memory.shapes[0]
        if memory.order <= 1:
            return [Reference(name, shape)]
        return [Reference(f"{name}.{i + 1}", shape) for i in range(memory.order)]

    def _parts(self, memory: Memory, x: Node, tau: Node) -> tuple[Node, Node]:
        """Return what flows in, and the part of tau that each level has, each a number or a variable."""
        if not isinstance(x, Number):
            x = self._place(memory, 0, "x", x).node
        if not isinstance(tau, Number) or memory.order == 0:
            place, level = self._place(memory, 1, "tau", tau), self._chain(memory)[0].name
            order = max(1, memory.order)
            self.delays.append(DelayedLevel(memory.kind, order, level, place, self._module, self._step, self._line))
            tau = place.node
        part = tau / float(max(1, memory.order))
        if part is not tau and not isinstance(part, Number):
            part = self._place(memory, 1, "part", part).node
        return x, part

    def _delay_fixed(self, memory: Memory, x: Node, tau: Node, start: Node | None = None) -> Node:
        h = float(self._step) * Symbol(DT)
        places = [self._place(memory, 0, "x", x)]
        whole = h * call("max", call("floor", tau / h + (0.5 + 1e-6)), ONE)
        for word, first in (("tau", whole), ("before", places[0].node if start is None else start)):
            shape = memory.shapes[0] if word == "before" else memory.shapes[1]
            places.append(Reference(f"{memory.node.name}.{word}", shape))
            self._hidden_level(places[-1], lambda s: ZERO, first)
        target = self._new(memory.node.name, memory.shapes[0])
        self._do("lag", target, None, tuple(places), whole=True)
        return target.node

    def _initial(self, memory: Memory, x: Node) -> Node:
        return self._hidden_level(Reference(memory.node.name, memory.shapes[0]), lambda s: ZERO, x)

    def _sample(self, memory: Memory, chosen: Node, x: Node, start: Node) -> Node:
        before = self._new(memory.node.name, memory.shapes[1])
        self._do("initial", before, start)
        now = self._new(f"{memory.node.name}.now", memory.shapes[1])
        self._do("assign", now, choose_above(chosen, HALF, x, before.node), is_held=True)
        self.kept.append(Kept(now, before, self._step))
        return now.node

    def _random_uniform(self, memory: Memory, low: Node, high: Node) -> Node:
        return low + (high - low) * self._drawn(memory)

    def _random_normal(self, memory: Memory, mean: Node, sd: Node, *bounds: Node) -> Node:
        x = mean + sd * self._drawn(memory)
        return call("min", call("max", x, bounds[0]), bounds[1]) if bounds else x

    def _drawn(self, memory: Memory) -> Node:
        """Return what stands for standard random numbers."""
        number = sum(d.stream.startswith(f"{self._stream}, ") for d in self.draws)
        target = self._new(memory.node.name, memory.shapes[0])
        self.draws.append(Draw(target, memory.kind, f"{self._stream}, {number}"))
        return target.node

    def _rate(self, memory: Memory, x: Node) -> Node:
        place = self._place(memory, 0, "x", x)
        before = self._new(memory.node.name, place.value_shape)
        self._do("initial", before, place.node)
        self.kept.append(Kept(place, before, self._step))
        return (place.node - before.node) / (float(self._step) * Symbol(DT))

    def _lag(self, memory: Memory, *arguments: Node) -> Node:
        words = enumerate(("x", "tau", "before"))
        places = tuple(self._place(memory, i, w, a) for (i, w), a in zip(words, arguments, strict=True))
        target = self._new(memory.node.name, memory.shapes[0])
        self._do("lag", target, None, places)
        return target.node


# --- random numbers


def drawn(draws: Sequence[Draw], seed: int, n_steps: int) -> Matrix:
    """Return the numbers, a row a step, a column an element; those of a longer run begin as those of a shorter one."""
    columns = [np.zeros((n_steps + 1, 0))]
    for draw in draws:
        rng = np.random.default_rng([seed, crc32(draw.stream.encode())])
        size = (n_steps + 1, len(draw.elements))
        columns.append(rng.random(size) if draw.kind == "random_uniform" else rng.standard_normal(size))
    return np.hstack(columns)


def drawn_series(draws: Sequence[Draw], seed: int, grid: Vector) -> dict[str, Forcing]:
    """Return the numbers of `drawn` as series on the grid of the steps, by element."""
    names, columns = (e for d in draws for e in d.elements), drawn(draws, seed, len(grid) - 1).T
    return {k: Forcing(k, grid, u, "constant") for k, u in zip(names, columns, strict=True)}
