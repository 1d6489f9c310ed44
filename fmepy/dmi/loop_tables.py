"""Evaluations and their order -> the tables that the loop of a run follows (`run_loop.RunPlan`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from fmepy.checks import positive_number, whole_number
from fmepy.dmi.delays import least_tau
from fmepy.dmi.evaluation_order import Block, Graph, Piece
from fmepy.dmi.run_loop import RunPlan
from fmepy.dmi.stateful_functions import rate_of
from fmepy.errors import ModelError, check_choice
from fmepy.types import IntMatrix, IntVector

if TYPE_CHECKING:
    from fmepy.dmi.compiled_program import ModularProgram


@dataclass(frozen=True, slots=True)
class Rules:
    """How a system is run; checked when it is made.

    Attributes
    ----------
    dt : float
        The elementary step.
    method : {"euler", "rk4"}
        How levels advance.
    order : {"sorted", "written"}
        Whether statements are evaluated in the order of their needs, or all as one loop, as they are written.
    tol : float
        A loop has settled where no value v of it moves by more than tol max(1, |v|).
    max_iterations : int
        Executions of a loop after which it has not settled.
    unsettled : {"minimise", "error", "keep"}
        What is done then.
    """

    dt: float
    method: str = "euler"
    order: str = "sorted"
    tol: float = 1e-9
    max_iterations: int = 10
    unsettled: str = "minimise"

    def __post_init__(self) -> None:
        object.__setattr__(self, "dt", positive_number(self.dt, "dt", error=ModelError))
        check_choice(self.method, ("euler", "rk4"), "method")
        check_choice(self.order, ("sorted", "written"), "order")
        object.__setattr__(self, "tol", positive_number(self.tol, "tol"))
        object.__setattr__(self, "max_iterations", whole_number(self.max_iterations, "max_iterations", 1))
        check_choice(self.unsettled, ("minimise", "error", "keep"), "unsettled")


@dataclass(frozen=True, slots=True, eq=False)
class NamedPlan:
    """A plan, and what its numbers mean.

    Attributes
    ----------
    plan : RunPlan
    pieces : tuple of Piece
        Of each task.
    loops : tuple of tuple of str
        The variables of each loop.
    """

    plan: RunPlan
    pieces: tuple[Piece, ...]
    loops: tuple[tuple[str, ...], ...]


def plan_of(program: ModularProgram, short: frozenset[int], masks: Sequence[frozenset[int]]) -> NamedPlan:
    """Return the plan of a run.

    Parameters
    ----------
    program : ModularProgram
    short : frozenset of int
        Lags that look no further back than one step.
    masks : sequence of frozenset of int
        The sets of steps that are active together; the last one is that of all.
    """
    evaluations, graph = program.work.evaluations, Graph(program.work.evaluations, program.layout, short)
    always = [i for i, e in enumerate(evaluations) if e.kind != "initial"]
    schedules = [_at_the_start(program, graph)]
    known: dict[tuple[int, ...], list[Block]] = {}
    for mask in masks:
        active = tuple(i for i in always if evaluations[i].step in mask)
        if active not in known:
            known[active] = _schedule(program, graph, [graph.whole(i) for i in active])
        schedules.append(known[active])
    return _PlanMaker(program, graph).plan(schedules)


def _schedule(program: ModularProgram, graph: Graph, pieces: list[Piece], first: Sequence[Piece] = ()) -> list[Block]:
    """Return the blocks of a step; `first` are guesses."""
    if program.rules.order == "sorted":
        return graph.blocks(pieces, first)
    is_rate = [program.work.evaluations[p.evaluation].kind == "rate" for p in pieces]
    rates, others = ([p for p, rate in zip(pieces, is_rate, strict=True) if rate == wanted] for wanted in (True, False))
    blocks = [Block(tuple(first), False), Block(tuple(others), True), *graph.blocks(rates)]
    return [b for b in blocks if b.pieces]


def _at_the_start(program: ModularProgram, graph: Graph) -> list[Block]:
    """Return the blocks of the first step, where levels get their values and loops their first guesses."""
    work, layout = program.work, program.layout
    states = np.zeros(layout.length, dtype=bool)  # levels, and what is kept of the step before
    for target in (*(level.target for level in work.levels), *(before for _, before, _ in work.kept)):
        states[layout.places_of(target)] = True
    pieces: list[Piece] = []
    guesses: list[Piece] = []
    for i, evaluation in enumerate(work.evaluations):
        whole = graph.whole(i)
        if evaluation.kind != "initial":
            pieces.append(whole)
            continue
        is_state = states[graph.written(whole)]
        for part in np.split(np.arange(whole.first, whole.last), np.flatnonzero(np.diff(is_state)) + 1):
            piece = Piece(i, int(part[0]), int(part[-1]) + 1)
            (pieces if is_state[piece.first - whole.first] else guesses).append(piece)
    if guesses and program.rules.order == "sorted":
        looping = graph.looping(pieces)
        guesses = [g for g in guesses if np.isin(graph.written(g), looping).any()]
    return _schedule(program, graph, pieces, guesses)


class _PlanMaker:
    """Blocks -> the arrays of a plan."""

    def __init__(self, program: ModularProgram, graph: Graph) -> None:
        self._program, self._work, self._layout, self._graph = program, program.work, program.layout, graph
        self._tasks: dict[Piece, int] = {}
        self._order: list[int] = []
        self._sections: list[tuple[int, int, int, int]] = []
        self._loops: dict[tuple[int, ...], tuple[int, tuple[str, ...]]] = {}

    def plan(self, schedules: list[list[Block]]) -> NamedPlan:
        """Return the plan of schedules, the first that of the start, the last that of all modules."""
        begins, counts = [], []
        for blocks in schedules:
            begins.append(len(self._sections))
            n_loops = 0
            for block in blocks:
                self._add(block, n_loops)
                n_loops += block.is_loop
            counts.append(n_loops)
        program, work, rules, at = self._program, self._work, self._program.rules, self._layout.places_of
        rates = ((level, at(level.target), self._layout.places(rate_of(level.target.name), level.target.positions))
                 for level in work.levels)  # fmt: skip
        plan = RunPlan(
            tasks=_rows(5, (self._task(piece) for piece in self._tasks)),
            order=_whole(self._order),
            sections=_rows(4, self._sections),
            schedules=_whole([*begins, len(self._sections), *counts]),
            loops=_whole(np.cumsum([0, *map(len, self._loops)])),
            places=_whole(p for loop in self._loops for p in loop),
            levels=_rows(3, ((x, dx, level.step) for level, to, of in rates for x, dx in zip(to, of, strict=True))),
            kept=_rows(3, ((a, b, step) for x, y, step in work.kept for a, b in zip(at(x), at(y), strict=True))),
            lags=_rows(10, self._lags()),
            delays=_rows(3, ((at(d.tau)[0], len(at(d.tau)), d.step) for d in work.delays)),
            least=np.array([least_tau(d.kind, d.step * rules.dt) for d in work.delays]),
            columns=program.output_places,
            forced=program.forced,
            n_schedules=len(schedules),
            common_step=max((e.step for e in work.evaluations), default=1) if rules.method == "rk4" else 0,
            max_iterations=rules.max_iterations,
            goes_on=int(rules.unsettled == "keep"),
            tol=rules.tol,
            dt=rules.dt,
        )
        loops = tuple(names for _, names in self._loops.values())
        return NamedPlan(plan, tuple(self._tasks), loops)

    def _add(self, block: Block, ordinal: int) -> None:
        """Add a block as a section."""
        first = len(self._order)
        self._order += [self._tasks.setdefault(p, len(self._tasks)) for p in block.pieces]
        loop = self._loop(block.pieces) if block.is_loop else -1
        self._sections.append((first, len(self._order), loop, ordinal if block.is_loop else 0))

    def _loop(self, pieces: Sequence[Piece]) -> int:
        """Return the number of a loop."""
        places = tuple(np.concatenate([self._graph.written(p) for p in pieces]).tolist())
        if places not in self._loops:
            names = tuple(dict.fromkeys(name for p in pieces for name in self._names(p)))
            self._loops[places] = len(self._loops), names
        return self._loops[places][0]

    def _names(self, piece: Piece) -> list[str]:
        """Return what a piece gives a value to."""
        evaluation = self._work.evaluations[piece.evaluation]
        if evaluation.kind == "python":
            return [t.name for t in evaluation.targets]
        name = evaluation.target.name
        if piece.last - piece.first == prod(evaluation.target.shape):
            return [name]
        return [self._layout.names[self._layout.begin[name] + i] for i in range(piece.first, piece.last)]

    def _task(self, piece: Piece) -> tuple[int, int, int, int, int]:
        """Return a task; of a Python module the evaluation stands where a run has an address."""
        i, program = piece.evaluation, self._program
        if self._work.evaluations[i].kind == "python":
            return 2, i, 0, 0, 0
        if i in program.lags:
            return 1, program.lags[i], 0, piece.first, piece.last
        return 0, program.addresses[i], program.begins[i], piece.first, piece.last

    def _lags(self) -> Iterable[tuple[int, ...]]:
        """Return the lags; where their histories begin depends on the length of a run, and is filled in for it."""
        for i in self._program.lags:
            lag = self._work.evaluations[i]
            x, tau, before = map(self._layout.places_of, lag.arguments)
            result = self._layout.places_of(lag.target)[0]
            apart = (int(len(a) > 1) for a in (x, tau, before))
            yield (int(x[0]), int(tau[0]), int(before[0]), int(result), *apart, len(x), lag.step, 0)


def _whole(values: Iterable[object]) -> IntVector:
    """Return whole numbers as a vector."""
    return np.array(list(values), dtype=np.int64)


def _rows(n: int, values: Iterable[object]) -> IntMatrix:
    """Return rows of n whole numbers as a matrix."""
    return _whole(values).reshape(-1, n)
