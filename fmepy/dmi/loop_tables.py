"""Evaluations and their order -> the tables that the loop of a run follows (`run_loop.RunPlan`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, groupby
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from fmepy.checks import positive_number, whole_number
from fmepy.dmi.delays import least_tau
from fmepy.dmi.evaluation_order import Block, Graph, Layout, Piece
from fmepy.dmi.run_loop import RunPlan
from fmepy.dmi.stateful_functions import Evaluation, Level, Work
from fmepy.dmi.variables import ModuleSystem
from fmepy.errors import ModelError, check_choice
from fmepy.types import IntMatrix

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


Loops: TypeAlias = "tuple[tuple[str, ...], ...]"
"""The variables of each loop of a plan."""


def plan_of(program: ModularProgram, short: frozenset[int], masks: Sequence[frozenset[int]]) -> tuple[RunPlan, Loops]:
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
    schedules = [_at_the_start(program, graph)]
    known: dict[tuple[Piece, ...], list[Block]] = {}
    for mask in masks:
        active = tuple(
            p for e, p in zip(evaluations, graph.whole, strict=True) if e.kind != "initial" and e.step in mask
        )
        if active not in known:
            known[active] = _schedule(program, graph, active)
        schedules.append(known[active])
    return _tables(program, graph, schedules)


def loops_of(system: ModuleSystem) -> list[tuple[str, ...]]:
    """Return what needs itself within a step: variables, or elements where it is some of them."""
    work = Work(system)
    layout, evaluations = Layout(work.shapes), work.evaluations
    graph = Graph(evaluations, layout, frozenset())
    pieces = [p for e, p in zip(evaluations, graph.whole, strict=True) if e.kind != "initial"]
    loops = [b.pieces for b in graph.blocks(pieces) if b.is_loop]
    return [_names_of(layout, evaluations, p, [i for q in p for i in graph.written(q)]) for p in loops]


def _schedule(
    program: ModularProgram, graph: Graph, pieces: Sequence[Piece], first: Sequence[Piece] = ()
) -> list[Block]:
    """Return the blocks of a step; `first` are guesses."""
    if program.rules.order == "sorted":
        return graph.blocks(pieces, first)
    rates = {p for p in pieces if program.work.evaluations[p.evaluation].kind == "rate"}
    others = tuple(p for p in pieces if p not in rates)
    blocks = [Block(tuple(first), False), Block(others, True), *graph.blocks([p for p in pieces if p in rates])]
    return [b for b in blocks if b.pieces]


def _at_the_start(program: ModularProgram, graph: Graph) -> list[Block]:
    """Return the blocks of the first step, where levels get their values and loops their first guesses."""
    work = program.work
    states = set(
        program.layout.places([*(level.target for level in work.levels), *(kept.to for kept in work.kept)]).tolist()
    )
    pieces: list[Piece] = []
    guesses: list[Piece] = []
    for evaluation, whole in zip(work.evaluations, graph.whole, strict=True):
        if evaluation.kind != "initial":
            pieces.append(whole)
            continue
        for is_state, some in groupby(zip(graph.written(whole), count(whole.first)), key=lambda at: at[0] in states):
            positions = [position for _, position in some]
            (pieces if is_state else guesses).append(Piece(whole.evaluation, positions[0], positions[-1] + 1))
    if guesses and program.rules.order == "sorted":
        looping = graph.looping(pieces)
        guesses = [g for g in guesses if not looping.isdisjoint(graph.written(g))]
    return _schedule(program, graph, pieces, guesses)


def _tables(program: ModularProgram, graph: Graph, schedules: list[list[Block]]) -> tuple[RunPlan, Loops]:
    """Return the plan of schedules, the first that of the start, the last that of all modules."""
    work, layout, rules = program.work, program.layout, program.rules
    tasks: dict[Piece, int] = {}
    order: list[int] = []
    sections: list[tuple[int, int, int]] = []
    begins = [0]
    loops: dict[tuple[int, ...], tuple[int, tuple[str, ...]]] = {}
    for blocks in schedules:
        for block in blocks:
            first, loop = len(order), -1
            order += [tasks.setdefault(p, len(tasks)) for p in block.pieces]
            if block.is_loop:
                places = tuple(place for p in block.pieces for place in graph.written(p))
                loop, _ = loops.setdefault(
                    places, (len(loops), _names_of(layout, work.evaluations, block.pieces, places))
                )
            sections.append((first, len(order), loop))
        begins.append(len(sections))
    kept = [(layout.span(k.value), layout.span(k.to), k.step) for k in work.kept]
    plan = RunPlan(
        tasks=_rows(5, (_task(program, piece) for piece in tasks)),
        order=np.array(order, dtype=np.int64),
        sections=_rows(3, sections),
        schedules=np.array(begins, dtype=np.int64),
        loops=np.cumsum([0, *map(len, loops)], dtype=np.int64),
        places=np.array([place for loop in loops for place in loop], dtype=np.int64),
        levels=_rows(4, (row for v in work.levels for row in _elements(layout, v))),
        kept=_rows(3, ((x, y, step) for of, to, step in kept for x, y in zip(of, to, strict=True))),
        lags=_rows(10, (_lag(layout, work.evaluations[i]) for i in program.lags)),
        delays=_rows(3, ((layout.span(d.tau)[0], len(layout.span(d.tau)), d.step) for d in work.delays)),
        least=np.array([least_tau(d.order, d.step * rules.dt) for d in work.delays]),
        columns=program.output_places,
        forced=program.forced,
        common_step=max((e.step for e in work.evaluations), default=1) if rules.method == "rk4" else 0,
        max_iterations=rules.max_iterations,
        goes_on=int(rules.unsettled == "keep"),
        tol=rules.tol,
        dt=rules.dt,
    )
    return plan, tuple(names for _, names in loops.values())


def _names_of(
    layout: Layout, evaluations: Sequence[Evaluation], pieces: Sequence[Piece], places: Sequence[int]
) -> tuple[str, ...]:
    """Return what a loop gives values to: variables, or elements where it is some of them."""
    names, inside = dict[str, None](), frozenset(places)
    for i, first, last in pieces:
        for target in evaluations[i].targets or (evaluations[i].target,):
            whole = layout.of(target.name)
            is_whole = inside.issuperset(range(whole.start, whole.stop))
            names |= dict.fromkeys([target.name] if is_whole else layout.names[whole][first:last])
    return tuple(names)


def _elements(layout: Layout, v: Level) -> Iterator[tuple[int, int, int, int]]:
    """Yield a level's elements."""
    for x, dx, i in zip(layout.span(v.target), layout.span(v.rate), v.target.positions, strict=True):
        yield x, dx, v.step, int(i in v.nonnegative)


def _task(program: ModularProgram, piece: Piece) -> tuple[int, int, int, int, int]:
    """Return a task; of a Python module the evaluation stands where a run has an address."""
    i, first, last = piece
    if program.work.evaluations[i].kind == "python":
        return 2, i, 0, 0, 0
    if i in program.lags:
        return 1, program.lags[i], 0, first, last
    return 0, program.addresses[i], program.begins[i], first, last


def _lag(layout: Layout, lag: Evaluation) -> tuple[int, ...]:
    """Return a lag; where its history begins depends on the length of a run, and is filled in for it."""
    x, tau, before = map(layout.span, lag.arguments)
    apart = (int(len(a) > 1) for a in (x, tau, before))
    return (x[0], tau[0], before[0], layout.span(lag.target)[0], *apart, len(x), lag.step, 0)


def _rows(n: int, values: Iterable[object]) -> IntMatrix:
    """Return rows of n whole numbers as a matrix."""
    return np.array(list(values), dtype=np.int64).reshape(-1, n)
