"""Jobs and their order -> the tables that the loop of a run follows (`run_loop.Plan`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from fmepy.dmi.delays import least_tau
from fmepy.dmi.llvm import Compiled, compiled_statements, statement_text
from fmepy.dmi.memory import Work, rate_of
from fmepy.dmi.order import Graph, Layout, Piece, Section
from fmepy.dmi.run_loop import BY_PYTHON, LOOP_BY_PYTHON, Plan
from fmepy.dmi.statements import Reference, element_name
from fmepy.types import IntVector


@dataclass(frozen=True, slots=True, eq=False)
class Rules:
    """How a system is run.

    Attributes
    ----------
    dt : float
    method : {"euler", "rk4"}
    order : {"sorted", "written"}
    tol : float
    max_iterations : int
    unsettled : {"minimise", "error", "keep"}
    """

    dt: float
    method: str
    order: str
    tol: float
    max_iterations: int
    unsettled: str


@dataclass(frozen=True, slots=True, eq=False)
class Planned:
    """A plan, and what its numbers mean.

    Attributes
    ----------
    plan : Plan
    masks : tuple of frozenset of int
        Of each schedule but the first and the last, the steps of the modules that are active.
    pieces : tuple of Piece
        Of each task.
    loops : tuple of tuple of str
        The variables of each loop.
    """

    plan: Plan
    masks: tuple[frozenset[int], ...]
    pieces: tuple[Piece, ...]
    loops: tuple[tuple[str, ...], ...]


class Tables:
    """What the jobs of a system are in numbers, whatever their order.

    Parameters
    ----------
    work : Work
    rules : Rules
    """

    def __init__(self, work: Work, rules: Rules) -> None:
        self.work, self.rules, self.layout = work, rules, Layout(work.shapes)
        self.addresses, self.begins, self.pointed = self._functions()
        self.lag_of = {i: n for n, i in enumerate(i for i, job in enumerate(work.jobs) if job.kind == "lag")}
        self.states = self._states()
        self._codes: list[Compiled]

    def _functions(self) -> tuple[list[int], list[int], IntVector]:
        """Return of each job the address of its function, its first pointer, and where all pointers point."""
        jobs, texts = self.work.jobs, []
        begins: list[int] = []
        places: list[int] = []
        for job in jobs:
            begins.append(len(places))
            if job.value is not None:
                names, text = statement_text(job.target, job.value, self.work.shapes)
                texts.append(text)
                places += [self.layout.begin[name] for name in names]
        self._codes = compiled_statements(texts)
        codes = iter(self._codes)
        addresses = [0 if job.value is None else next(codes).address for job in jobs]
        return addresses, begins, np.array(places, dtype=np.int64)

    def _states(self) -> IntVector:
        """Return which values are levels, or kept of the step before: no statement gives them their value."""
        states = np.zeros(self.layout.length, dtype=bool)
        for level in self.work.levels:
            states[self.places(level.target)] = True
        for _, before, _ in self.work.kept:
            states[self.places(before)] = True
        return states

    def places(self, target: Reference) -> IntVector:
        """Return where a variable or an element stands."""
        return self.layout.places(target.name, target.positions)

    # --- schedules

    def planned(
        self, short: frozenset[int], masks: Sequence[frozenset[int]], columns: IntVector, forced: IntVector
    ) -> Planned:
        """Return the plan of a run.

        Parameters
        ----------
        short : frozenset of int
            Lags that look no further back than one step.
        masks : sequence of frozenset of int
            The sets of steps that are active together; the last one is that of all.
        columns, forced : ndarray of int
            Where the columns of the result and the series stand.
        """
        graph = Graph(self.work.jobs, self.layout, short)
        always = [i for i, job in enumerate(self.work.jobs) if job.kind != "initial"]
        schedules = [self._at_the_start(graph, always)]
        known: dict[tuple[int, ...], list[Section]] = {}
        for mask in masks:
            active = tuple(i for i in always if self.work.jobs[i].step in mask)
            if active not in known:
                known[active] = self._schedule(graph, [graph.whole(i) for i in active])
            schedules.append(known[active])
        return _Numbers(self, graph).planned(schedules, tuple(masks), columns, forced)

    def _schedule(self, graph: Graph, pieces: list[Piece], first: Sequence[Piece] = ()) -> list[Section]:
        """Return the sections of a step; `first` are guesses."""
        if self.rules.order == "sorted":
            return graph.sections(pieces, first)
        rates = [p for p in pieces if self.work.jobs[p.job].kind == "rate"]
        others = [p for p in pieces if self.work.jobs[p.job].kind != "rate"]
        sections = [Section(tuple(first), False), Section(tuple(others), True), *graph.sections(rates)]
        return [s for s in sections if s.pieces]

    def _at_the_start(self, graph: Graph, always: list[int]) -> list[Section]:
        """Return the sections of the first step, where levels get their values and loops their first guesses."""
        pieces: list[Piece] = []
        guesses: list[Piece] = []
        for i, job in enumerate(self.work.jobs):
            if job.kind != "initial":
                pieces.append(graph.whole(i))
                continue
            is_state = self.states[graph.written(graph.whole(i))]
            for piece, state in _runs(graph.whole(i), is_state.tolist()):
                (pieces if state else guesses).append(piece)
        if guesses and self.rules.order == "sorted":
            looping = graph.looping(pieces)
            guesses = [g for g in guesses if np.isin(graph.written(g), looping).any()]
        return self._schedule(graph, pieces, guesses)


def _runs(whole: Piece, is_state: list[bool]) -> Iterable[tuple[Piece, bool]]:
    """Return a piece in parts of which all elements are levels, or none is."""
    first = 0
    for i in range(1, len(is_state) + 1):
        if i == len(is_state) or is_state[i] != is_state[first]:
            yield Piece(whole.job, whole.first + first, whole.first + i), is_state[first]
            first = i


class _Numbers:
    """Sections -> the arrays of a plan."""

    def __init__(self, tables: Tables, graph: Graph) -> None:
        self._t, self._graph = tables, graph
        self._tasks: dict[Piece, int] = {}
        self._order: list[int] = []
        self._sections: list[tuple[int, int, int, int, int]] = []
        self._loops: dict[tuple[int, ...], tuple[int, tuple[str, ...]]] = {}

    def planned(
        self, schedules: list[list[Section]], masks: tuple[frozenset[int], ...], columns: IntVector, forced: IntVector
    ) -> Planned:
        """Return the plan of schedules, the first that of the start, the last that of all modules."""
        begins, counts = [], []
        for sections in schedules:
            begins.append(len(self._sections))
            n_loops = 0
            for section in sections:
                self._add(section, n_loops)
                n_loops += section.is_loop
            counts.append(n_loops)
        t, rules, lags = self._t, self._t.rules, self._lags()
        steps = {job.step for job in t.work.jobs}
        places = list(self._loops)
        plan = Plan(
            tasks=_whole(self._task(piece) for piece in self._tasks),
            order=_whole(self._order),
            sections=_whole(self._sections),
            schedules=_whole([*begins, len(self._sections), *counts]),
            loops=_whole(np.cumsum([0, *map(len, places)])),
            places=_whole(p for loop in places for p in loop),
            levels=_whole(self._levels()),
            kept=_whole(self._kept()),
            lags=_whole(lags),
            delays=_whole((*_place(t.places(d.tau)), d.step) for d in t.work.delays),
            least=np.array([least_tau(d.kind, d.step * rules.dt) for d in t.work.delays]),
            columns=columns,
            forced=forced,
            n_schedules=len(schedules),
            common_step=max(steps, default=1) if rules.method == "rk4" else 0,
            max_iterations=rules.max_iterations,
            goes_on=int(rules.unsettled == "keep"),
            tol=rules.tol,
            dt=rules.dt,
        )
        return Planned(plan, masks, tuple(self._tasks), tuple(names for _, names in self._loops.values()))

    def _add(self, section: Section, ordinal: int) -> None:
        """Add a section; a Python module that is part of no loop is one of its own."""
        jobs = self._t.work.jobs
        if section.is_loop:
            how = LOOP_BY_PYTHON if any(jobs[p.job].kind == "python" for p in section.pieces) else 0
            self._append(section.pieces, self._loop(section.pieces), how, ordinal)
            return
        waiting: list[Piece] = []
        for piece in section.pieces:
            if jobs[piece.job].kind == "python":
                self._append(waiting, -1, 0, 0)
                self._append([piece], -1, BY_PYTHON, 0)
                waiting = []
            else:
                waiting.append(piece)
        self._append(waiting, -1, 0, 0)

    def _append(self, pieces: Sequence[Piece], loop: int, how: int, ordinal: int) -> None:
        if pieces:
            first = len(self._order)
            self._order += [self._tasks.setdefault(p, len(self._tasks)) for p in pieces]
            self._sections.append((first, len(self._order), loop, how, ordinal))

    def _loop(self, pieces: Sequence[Piece]) -> int:
        """Return the number of a loop."""
        places = tuple(np.concatenate([self._graph.written(p) for p in pieces]).tolist())
        if places not in self._loops:
            names = tuple(dict.fromkeys(name for p in pieces for name in self._names(p)))
            self._loops[places] = len(self._loops), names
        return self._loops[places][0]

    def _names(self, piece: Piece) -> list[str]:
        """Return what a piece gives a value to."""
        job = self._t.work.jobs[piece.job]
        if job.kind == "python":
            return [t.name for t in job.targets]
        name, shape = job.target.name, self._t.work.shapes[job.target.name]
        if piece.last - piece.first == prod(shape):
            return [name]
        return [element_name(name, tuple(map(int, np.unravel_index(i, shape)))) for i in range(piece.first, piece.last)]

    def _task(self, piece: Piece) -> tuple[int, int, int, int, int]:
        """Return a task; of an element of its own a function takes no notice of first and last."""
        i, t = piece.job, self._t
        if t.work.jobs[i].kind == "lag":
            return 1, t.lag_of[i], 0, piece.first, piece.last
        return 0, t.addresses[i], t.begins[i], piece.first, piece.last

    def _levels(self) -> list[tuple[int, int, int]]:
        t = self._t
        return [
            (place, rate, level.step)
            for level in t.work.levels
            for place, rate in zip(
                t.places(level.target), t.layout.places(rate_of(level.target.name), level.target.positions), strict=True
            )
        ]

    def _kept(self) -> list[tuple[int, int, int]]:
        t = self._t
        return [
            (a, b, step) for x, before, step in t.work.kept for a, b in zip(t.places(x), t.places(before), strict=True)
        ]

    def _lags(self) -> list[tuple[int, ...]]:
        """Return the lags; where their histories begin depends on the length of a run, and is filled in for it."""
        t, out = self._t, []
        for i in t.lag_of:
            job = t.work.jobs[i]
            x, tau, before = (t.places(a) for a in job.arguments)
            apart = [int(len(a) > 1) for a in (x, tau, before)]
            result = int(t.places(job.target)[0])
            out.append((int(x[0]), int(tau[0]), int(before[0]), result, *apart, len(x), job.step, 0))
        return out


def _place(places: IntVector) -> tuple[int, int]:
    """Return where values stand, and how many."""
    return int(places[0]), len(places)


def _whole(values: Iterable[object]) -> IntVector:
    """Return whole numbers, or rows of them, as one contiguous vector."""
    found: IntVector = np.array(list(values), dtype=np.int64).ravel()
    return found
