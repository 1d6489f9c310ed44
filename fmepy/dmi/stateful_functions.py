"""Functions with a memory as hidden levels, and statements as the evaluations of a step.

Functions with a memory become statements of hidden variables, which are then treated like any others::

    smooth(x, tau)    s,    with d(s)/dt = (x - s) / tau                                 and s(0) = x
    delay1(x, tau)    L / tau,   with d(L)/dt = x - L / tau                              and L(0) = x tau
    delayn            n Ln / tau, each level flowing into the next by n L / tau          and L(0) = x tau / n
    smoothn           sn, each s following the one before with d(s)/dt = n (x - s) / tau and s(0) = x
    trend(x, tau)     (x - s) / (tau |s|), 0 where s is 0, s being smooth(x, tau)        and s(0) = x / (1 + x0 tau)
    forecast          x (1 + (x - s) / (tau s) horizon), x where s is 0; s as in trend
    delay_fixed       lag by whole steps, one at least, as many as tau has at the start
    initial(x)        s,    with d(s)/dt = 0                                             and s(0) = x
    sample(c, x, x0)  x where c, else before,   `before` being the value of the module's last step; at the start x0
    rate(x)           (x - before) / step,      `before` being the value of the module's last step; at the start x

(DYNAMO's; A. L. Pugh, DYNAMO User's Manual). Without an initial value x0 all of them start in equilibrium.
``lag(x, tau, before)`` reads the history of x, which the run stores. A list within an expression, and a computed factor
of a matrix product, are hidden variables, too. Random numbers are scaled from a standard distribution: one stream a
variable and call, which does not depend on other modules or on the machine. They are drawn before the run, as series
like those of the data base.
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
    """One evaluation of a step.

    Attributes
    ----------
    kind : {"assign", "rate", "initial", "lag", "python"}
        An assignment; the rate of a level; an initial value (for a level only at the start, for another variable its
        first guess); a value from a history; a module that is a Python function.
    target : Reference
        The assigned variable: for a rate the hidden ``d(x)/dt``, for a Python module the first of its variables.
    value : Node or None
    module : str
    step : int
        The step of the module.
    line : int
        The line in the text of the module, 0 without a text.
    arguments : tuple of Reference
        x, tau, before of a lag; the variables that a Python module reads.
    targets : tuple of Reference
        The variables that a Python module assigns.
    function : callable or None
        The Python function.
    whole : bool
        Whether a lag looks back at least one step.
    is_held : bool
        Whether its value is constant through a step of method "rk4".
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
    """A level, or an element of one: it moves by `step` dt times its rate when its module is active."""

    target: Reference
    rate: Reference
    step: int
    nonnegative: tuple[int, ...]


class PreviousValue(NamedTuple):
    """A value that is copied to another variable at the end of a module's step."""

    value: Reference
    to: Reference
    step: int


class DelayedLevel(NamedTuple):
    """A smooth or delay whose tau is no number of the text: kind, order, (first) level, tau, and its statement."""

    kind: str
    order: int
    level: str
    tau: Reference
    module: str
    step: int
    line: int


class Draw(NamedTuple):
    """A hidden variable of random numbers: its kind, and the name of its stream."""

    target: Reference
    kind: str
    stream: str

    @property
    def elements(self) -> tuple[str, ...]:
        """The names of its elements."""
        return element_names(self.target.name, self.target.shape)


class FlatSystem:
    """A system as evaluations of visible and hidden variables, in the order of its statements.

    Attributes
    ----------
    evaluations : list of Evaluation
    shapes : dict of str to tuple of int
        Of all variables, those of the user first.
    levels : list of Level
    previous : list of PreviousValue
    draws : list of Draw
    delays : list of DelayedLevel
    python : dict of str to str
        The modules that run as Python, with the reason why they cannot be statements.
    """

    def __init__(self, system: ModuleSystem) -> None:
        self.evaluations: list[Evaluation] = []
        self.shapes: dict[str, Shape] = {v.name: v.shape for v in system.variables.values()}
        self.shapes |= dict.fromkeys((DT, START, END), ())
        self.levels: list[Level] = []
        self.previous: list[PreviousValue] = []
        self.delays: list[DelayedLevel] = []
        self.draws: list[Draw] = []
        self.python: dict[str, str] = {}
        steps = {m.name: m.step for m in system.modules}
        for s in system.statements:
            self._module, self._line, self._step = s.module, s.line, steps[s.module]
            if isinstance(s, FunctionStatement):
                self._add_function(s)
            elif s.kind == "level":
                self._add_level(s.target, self._with_memories(s), s.nonnegative)
            else:
                self._add_evaluation(s.kind, s.target, self._with_memories(s))

    def _add_function(self, s: FunctionStatement) -> None:
        """Add a Python module: as statements if it can be traced, else as a call."""
        from fmepy.dmi.traced import traced_assignments

        try:
            found = traced_assignments(s)
        except TracingError as error:
            self.python[s.module] = str(error)
            self._add_evaluation("python", s.targets[0], None, s.reads, targets=s.targets, function=s.function)
            return
        for target, value in found:
            self.shapes.setdefault(target.name, target.shape)
            self._add_evaluation("assign", target, value)

    def _add_evaluation(
        self, kind: Any, target: Reference, value: Node | None, arguments: tuple[Reference, ...] = (), **more: Any
    ) -> None:
        evaluation = Evaluation(kind, target, value, self._module, self._step, self._line, arguments, **more)
        self.evaluations.append(evaluation)

    def _add_level(self, target: Reference, rate: Node, nonnegative: tuple[int, ...] = ()) -> None:
        of = replace(target, name=f"d({target.name})/dt")
        self.shapes[of.name] = target.shape
        self.levels.append(Level(target, of, self._step, nonnegative))
        self._add_evaluation("rate", of, rate)

    def _with_memories(self, s: ModuleStatement) -> Node:
        """Return the value of a statement after adding the evaluations of its functions with a memory."""
        rule: dict[Node, Node] = {}
        self._stream = f"{s.kind} {s.target.element}"
        for memory in s.memories:
            arguments = substituted(memory.arguments, rule)
            value: Node = getattr(self, f"_{CHAINS.get(memory.kind, memory.kind)}")(memory, *arguments)
            if value is not memory.node:
                rule[memory.node] = value
        return substituted([s.value], rule)[0]

    def _new_variable(self, name: str, shape: Shape) -> Reference:
        self.shapes[name] = shape
        return Reference(name, shape)

    def _argument_place(self, memory: Memory, at: int, word: str, value: Node) -> Reference:
        """Return the variable of an argument, a hidden one where it is an expression."""
        if isinstance(value, Symbol) and value is not TIME:
            return reference_of(value, self.shapes)
        target = self._new_variable(f"{memory.node.name}.{word}", memory.shapes[at])
        self._add_evaluation("assign", target, value)
        return target

    def _hidden_level(self, target: Reference, rate: Node, start: Node) -> Node:
        self.shapes[target.name] = target.shape
        self._add_level(target, rate)
        self._add_evaluation("initial", target, start)
        return target.node

    def _array(self, memory: Memory, values: Node) -> Node:
        self._add_evaluation("assign", self._new_variable(memory.node.name, memory.shapes[0]), values)
        return memory.node

    def _smooth(self, memory: Memory, x: Node, tau: Node, start: Node | None = None) -> Node:
        x, part = self._inflow_and_tau(memory, x, tau)
        start = x if start is None else start
        for target in self._levels_of(memory):
            x = self._hidden_level(target, (x - target.node) / part, start)
        return x

    def _delay(self, memory: Memory, x: Node, tau: Node, start: Node | None = None) -> Node:
        x, part = self._inflow_and_tau(memory, x, tau)
        full = (x if start is None else start) * part
        for target in self._levels_of(memory):
            x = self._hidden_level(target, x - target.node / part, full) / part
        return x

    def _trend(self, memory: Memory, x: Node, tau: Node, start: Node = ZERO, *, by_sign: bool = False) -> Node:
        x, tau = self._inflow_and_tau(memory, x, tau)
        (target,) = self._levels_of(memory)
        s = self._hidden_level(target, (x - target.node) / tau, x / (ONE + start * tau))
        size = call("abs", s)
        return choose_above(size, ZERO, (x - s) / (tau * (s if by_sign else size)), ZERO)

    def _forecast(self, memory: Memory, x: Node, tau: Node, horizon: Node, start: Node = ZERO) -> Node:
        x = self._argument_place(memory, 0, "x", x).node if not isinstance(x, Number) else x
        return x * (ONE + self._trend(memory, x, tau, start, by_sign=True) * horizon)

    def _levels_of(self, memory: Memory) -> list[Reference]:
        """Return the levels of a smooth or delay."""
        name, shape = memory.node.name, memory.shapes[0]
        if memory.order <= 1:
            return [Reference(name, shape)]
        return [Reference(f"{name}.{i + 1}", shape) for i in range(memory.order)]

    def _inflow_and_tau(self, memory: Memory, x: Node, tau: Node) -> tuple[Node, Node]:
        """Return the inflow and the tau of each level, as numbers or variables."""
        if not isinstance(x, Number):
            x = self._argument_place(memory, 0, "x", x).node
        if not isinstance(tau, Number) or memory.order == 0:
            place, level = self._argument_place(memory, 1, "tau", tau), self._levels_of(memory)[0].name
            order = max(1, memory.order)
            self.delays.append(DelayedLevel(memory.kind, order, level, place, self._module, self._step, self._line))
            tau = place.node
        part = tau / float(max(1, memory.order))
        if part is not tau and not isinstance(part, Number):
            part = self._argument_place(memory, 1, "part", part).node
        return x, part

    def _delay_fixed(self, memory: Memory, x: Node, tau: Node, start: Node | None = None) -> Node:
        h = float(self._step) * Symbol(DT)
        places = [self._argument_place(memory, 0, "x", x)]
        whole = h * call("max", call("floor", tau / h + (0.5 + 1e-6)), ONE)
        for word, first in (("tau", whole), ("before", places[0].node if start is None else start)):
            shape = memory.shapes[0] if word == "before" else memory.shapes[1]
            places.append(Reference(f"{memory.node.name}.{word}", shape))
            self._hidden_level(places[-1], ZERO, first)
        target = self._new_variable(memory.node.name, memory.shapes[0])
        self._add_evaluation("lag", target, None, tuple(places), whole=True)
        return target.node

    def _initial(self, memory: Memory, x: Node) -> Node:
        return self._hidden_level(Reference(memory.node.name, memory.shapes[0]), ZERO, x)

    def _sample(self, memory: Memory, chosen: Node, x: Node, start: Node) -> Node:
        before = self._new_variable(memory.node.name, memory.shapes[1])
        self._add_evaluation("initial", before, start)
        now = self._new_variable(f"{memory.node.name}.now", memory.shapes[1])
        self._add_evaluation("assign", now, choose_above(chosen, HALF, x, before.node), is_held=True)
        self.previous.append(PreviousValue(now, before, self._step))
        return now.node

    def _random_uniform(self, memory: Memory, low: Node, high: Node) -> Node:
        return low + (high - low) * self._random(memory)

    def _random_normal(self, memory: Memory, mean: Node, sd: Node, *bounds: Node) -> Node:
        x = mean + sd * self._random(memory)
        return call("min", call("max", x, bounds[0]), bounds[1]) if bounds else x

    def _random(self, memory: Memory) -> Node:
        """Return a new variable of standard random numbers."""
        number = sum(d.stream.startswith(f"{self._stream}, ") for d in self.draws)
        target = self._new_variable(memory.node.name, memory.shapes[0])
        self.draws.append(Draw(target, memory.kind, f"{self._stream}, {number}"))
        return target.node

    def _rate(self, memory: Memory, x: Node) -> Node:
        place = self._argument_place(memory, 0, "x", x)
        before = self._new_variable(memory.node.name, place.value_shape)
        self._add_evaluation("initial", before, place.node)
        self.previous.append(PreviousValue(place, before, self._step))
        return (place.node - before.node) / (float(self._step) * Symbol(DT))

    def _lag(self, memory: Memory, *arguments: Node) -> Node:
        words = enumerate(("x", "tau", "before"))
        places = tuple(self._argument_place(memory, i, w, a) for (i, w), a in zip(words, arguments, strict=True))
        target = self._new_variable(memory.node.name, memory.shapes[0])
        self._add_evaluation("lag", target, None, places)
        return target.node


# --- random numbers


def random_rows(draws: Sequence[Draw], seed: int, n_steps: int) -> Matrix:
    """Return random numbers, a row a step, a column an element; a longer run begins with those of a shorter one."""
    columns = [np.zeros((n_steps + 1, 0))]
    for draw in draws:
        rng = np.random.default_rng([seed, crc32(draw.stream.encode())])
        size = (n_steps + 1, len(draw.elements))
        columns.append(rng.random(size) if draw.kind == "random_uniform" else rng.standard_normal(size))
    return np.hstack(columns)


def random_series(draws: Sequence[Draw], seed: int, grid: Vector) -> dict[str, Forcing]:
    """Return the numbers of `random_rows` as series on the grid of the steps, by element."""
    names, columns = (e for d in draws for e in d.elements), random_rows(draws, seed, len(grid) - 1).T
    return {k: Forcing(k, grid, u, "constant") for k, u in zip(names, columns, strict=True)}
