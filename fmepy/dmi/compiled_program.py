"""A system of modules, compiled: statements as machine code, and the tables that the loop of a run follows."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, groupby
from typing import Any

import numpy as np

from fmepy.checks import positive_number, whole_number
from fmepy.compiled.function_store import stored_functions
from fmepy.dmi.diagnostics import Diagnostic, diagnostic, least_tau
from fmepy.dmi.evaluation_order import Block, Graph, Layout, Piece
from fmepy.dmi.modular_run import Loops, ModularRun
from fmepy.dmi.run_loop import RunPlan
from fmepy.dmi.stateful_functions import Evaluation, FlatSystem, Level
from fmepy.dmi.statement_code import statement_text
from fmepy.dmi.statements import DT, element_names
from fmepy.dmi.variables import ModuleSystem
from fmepy.errors import ModelError, SimulationError, check_choice, listed
from fmepy.language.nodes import Number
from fmepy.types import IntMatrix, IntVector, Matrix, Vector


@dataclass(frozen=True, slots=True)
class Rules:
    """Settings of the runs of a system, validated.

    Attributes
    ----------
    dt : float
        The elementary step.
    method : {"euler", "rk4"}
        How levels advance.
    order : {"sorted", "written"}
        Whether statements are evaluated in the order of their dependencies, or all as one loop, in the written order.
    tol : float
        A loop has settled where no value v of it moves by more than tol max(1, |v|).
    max_iterations : int
        Largest number of executions of a loop.
    unsettled : {"minimise", "error", "keep"}
        What happens if it has not settled then.
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


class ModularProgram:
    """A system of modules in machine code.

    Parameters
    ----------
    system : ModuleSystem
    rules : Rules
    outputs : iterable of str
        The variables, hidden ones among them, whose elements are columns of the result.
    series : iterable of str
        Variables from outside that change along a run.

    Attributes
    ----------
    columns, series : tuple of str
        The elements that are columns, and those of series that no module computes, random numbers at the end.
    rows_per_step : int
        Rows of a series a step: 2 for rk4, which evaluates half-way too.
    python_modules : tuple of str
    note : str
        Why not all of it is compiled, or "".

    Raises
    ------
    ModelError
        A method that cannot be: rk4 of modules with different steps, or with lag, delay_fixed, rate or pulse.
    """

    def __init__(self, system: ModuleSystem, rules: Rules, outputs: Iterable[str], series: Iterable[str] = ()) -> None:
        outputs, series = tuple(outputs), tuple(series)
        self._arguments = (system, rules, outputs, series)
        if rules.method == "rk4":
            _check_rk4(system)
        self.rules, self.flat = rules, FlatSystem(system)
        self.layout = Layout(self.flat.shapes)
        self._set_functions()
        changing = (system.variables[name] for name in series)
        self.columns = tuple(e for name in outputs for e in element_names(name, self.flat.shapes[name]))
        self.series = tuple(e for v in changing for e, mine in zip(v.elements, v.assigned, strict=True) if not mine)
        self.series += tuple(e for draw in self.flat.draws for e in draw.elements)
        self.output_places, self.forced = self.places(self.columns), self.places(self.series)
        self._set_lags()
        self._schedules: dict[int, tuple[tuple[frozenset[int], ...], IntVector]] = {}
        self._plans: dict[Any, tuple[RunPlan, Loops]] = {}
        self._lock = threading.Lock()
        self.rows_per_step = 2 if rules.method == "rk4" else 1
        self.python_modules = tuple(self.flat.python)
        self.note = "; ".join(
            f"the module {name!r} is a Python function that cannot be written as equations, and runs as such: {why}"
            for name, why in self.flat.python.items()
        )

    def __reduce__(self) -> Any:
        return ModularProgram, self._arguments

    def places(self, elements: Iterable[str]) -> IntVector:
        """Return the places of elements in the array of all values."""
        return np.array([self.layout.place[e] for e in elements], dtype=np.int64)

    def _set_functions(self) -> None:
        """Compile; set the address and the first pointer of each evaluation, and the places of all pointers."""
        texts, places = [], list[int]()
        assigned = {e.target.name for e in self.flat.evaluations}
        self.begins: list[int] = []
        self._points: list[tuple[Evaluation, str, int]] = []  # the xs of tables of the data base
        for e in self.flat.evaluations:
            self.begins.append(len(places))
            if e.value is not None:
                texts.append(statement_text(e.target, e.value, self.flat.shapes))
                places += [self.layout.begin[name] for name in texts[-1].names]
                self._points += [(e, *point) for point in texts[-1].points if point[0] not in assigned]
        # a reference, so that the functions live as long as the program
        self._codes = stored_functions([t.text for t in texts], [t.called for t in texts], "modules")
        codes = iter(self._codes)
        self.addresses = [0 if e.value is None else next(codes).address for e in self.flat.evaluations]
        self.pointed: IntVector = np.array(places, dtype=np.int64)

    # --- plans

    def _plan(self, z: Vector, n_steps: int) -> tuple[RunPlan, Loops, IntVector]:
        """Return the plan of a run, the variables of its loops, and the schedule of each step."""
        short = self._short_lags(z)
        with self._lock:
            if n_steps not in self._schedules:
                steps = sorted({e.step for e in self.flat.evaluations})
                active = np.array([np.arange(n_steps + 1) % s == 0 for s in steps]).reshape(len(steps), -1)
                patterns, which = np.unique(active, axis=1, return_inverse=True)
                masks = [frozenset(s for s, on in zip(steps, column, strict=True) if on) for column in patterns.T]
                schedule = np.concatenate([[0], which.ravel()[1:] + 1]).astype(np.int64)
                self._schedules[n_steps] = (*masks, frozenset(steps)), schedule
            masks_of_all, schedule = self._schedules[n_steps]
            if (short, masks_of_all) not in self._plans:
                self._plans[short, masks_of_all] = self._tables(short, masks_of_all)
            return *self._plans[short, masks_of_all], schedule

    def _set_lags(self) -> None:
        """Find the lags, and for those that may be short the place of tau, its least, and its value where it is known.

        A tau that changes along a run is not known (0), unless the text has its number.
        """
        evaluations, span = self.flat.evaluations, self.layout.span
        self.lags = {i: n for n, i in enumerate(i for i, e in enumerate(evaluations) if e.kind == "lag")}
        changing = {place for e in evaluations for r in e.targets or (e.target,) for place in span(r)}
        changing |= set(self.forced.tolist())
        literal = {e.target.name: e.value.value for e in evaluations if isinstance(e.value, Number)}
        self._taus: list[tuple[int, range, float, float | None]] = []
        for i in self.lags:
            tau, least = evaluations[i].arguments[1], evaluations[i].step * self.rules.dt * (1 - 1e-6)
            known = None if changing.isdisjoint(span(tau)) else literal.get(tau.name, 0.0)
            self._taus += [] if evaluations[i].whole else [(i, span(tau), least, known)]

    def _short_lags(self, z: Vector) -> frozenset[int]:
        """Return the lags that may need x of the same step: all but those of a constant tau of one step or more."""
        taus = ((i, z[tau].min() if known is None else known, least) for i, tau, least, known in self._taus)
        return frozenset(i for i, tau, least in taus if not tau >= least)

    # --- the tables of a plan

    def _tables(self, short: frozenset[int], masks: Sequence[frozenset[int]]) -> tuple[RunPlan, Loops]:
        """Return a plan, and the variables of its loops.

        Parameters
        ----------
        short : frozenset of int
            Lags that look no further back than one step.
        masks : sequence of frozenset of int
            The sets of steps that are active together; the last one is that of all.
        """
        flat, layout, rules = self.flat, self.layout, self.rules
        graph, known = Graph(flat.evaluations, layout, short), dict[tuple[Piece, ...], list[Block]]()
        schedules = [self._first_step(graph)]
        for i, mask in enumerate(masks):
            each, is_later = zip(flat.evaluations, graph.whole, strict=True), i == len(masks) - 1
            active = tuple(
                p for e, p in each if e.kind != "initial" and e.step in mask and not (is_later and e.is_held)
            )
            if active not in known:
                known[active] = self._schedule(graph, active)
            schedules.append(known[active])
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
                    loop, _ = loops.setdefault(places, (len(loops), graph.names(block.pieces)))
                sections.append((first, len(order), loop))
            begins.append(len(sections))
        span = layout.span
        plan = RunPlan(
            tasks=_rows(5, map(self._task, tasks)),
            order=np.array(order, dtype=np.int64),
            sections=_rows(3, sections),
            schedules=np.array(begins, dtype=np.int64),
            loops=np.cumsum([0, *map(len, loops)], dtype=np.int64),
            places=np.array([place for loop in loops for place in loop], dtype=np.int64),
            levels=_rows(4, (row for v in flat.levels for row in _elements(layout, v))),
            previous=_rows(
                3, ((x, y, k.step) for k in flat.previous for x, y in zip(span(k.value), span(k.to), strict=True))
            ),
            lags=_rows(10, (_lag(layout, flat.evaluations[i]) for i in self.lags)),
            delays=_rows(3, ((span(d.tau).start, len(span(d.tau)), d.step) for d in flat.delays)),
            least=np.array([least_tau(d.order, d.step * rules.dt) for d in flat.delays]),
            columns=self.output_places,
            forced=self.forced,
            common_step=max((e.step for e in flat.evaluations), default=1) if rules.method == "rk4" else 0,
            max_iterations=rules.max_iterations,
            keeps_unsettled=int(rules.unsettled == "keep"),
            tol=rules.tol,
            dt=rules.dt,
        )
        return plan, tuple(names for _, names in loops.values())

    def _schedule(self, graph: Graph, pieces: Sequence[Piece], guesses: Sequence[Piece] = ()) -> list[Block]:
        """Return the blocks of a step."""
        if self.rules.order == "sorted":
            return graph.blocks(pieces, guesses)
        rates = dict.fromkeys(p for p in pieces if self.flat.evaluations[p.evaluation].kind == "rate")
        others = tuple(p for p in pieces if p not in rates)
        blocks = [Block(tuple(guesses), False), Block(others, True), *graph.blocks(list(rates))]
        return [b for b in blocks if b.pieces]

    def _first_step(self, graph: Graph) -> list[Block]:
        """Return the blocks of the first step, which sets initial values of levels and first guesses of loops."""
        flat = self.flat
        targets = [*(level.target for level in flat.levels), *(k.to for k in flat.previous)]
        states = {place for target in targets for place in self.layout.span(target)}
        pieces, guesses = list[Piece](), list[Piece]()
        for evaluation, whole in zip(flat.evaluations, graph.whole, strict=True):
            if evaluation.kind != "initial":
                pieces.append(whole)
                continue
            for is_state, some in groupby(
                zip(graph.written(whole), count(whole.first)), key=lambda at: at[0] in states
            ):
                positions = [position for _, position in some]
                (pieces if is_state else guesses).append(Piece(whole.evaluation, positions[0], positions[-1] + 1))
        if guesses and self.rules.order == "sorted":
            loops = [p for block in graph.blocks(pieces) if block.is_loop for p in block.pieces]
            looping = {place for p in loops for place in graph.written(p)}
            guesses = [g for g in guesses if not looping.isdisjoint(graph.written(g))]
        return self._schedule(graph, pieces, guesses)

    def _task(self, piece: Piece) -> tuple[int, int, int, int, int]:
        """Return a task; that of a Python module has the number of the evaluation, to be replaced by an address."""
        i, first, last = piece
        if self.flat.evaluations[i].kind == "python":
            return 2, i, 0, 0, 0
        if i in self.lags:
            return 1, self.lags[i], 0, first, last
        return 0, self.addresses[i], self.begins[i], first, last

    # --- runs

    def values(self, known: Mapping[str, float]) -> Vector:
        """Return the array of all values at the start: the known elements, else zeros."""
        z = np.zeros(self.layout.length)
        z[self.places(known)] = list(known.values())
        z[self.layout.begin[DT]] = self.rules.dt
        return z

    def run(
        self, z: Vector, series: Matrix, start: float, keep: IntVector, report: Callable[[int], None] | None = None
    ) -> ModularRun:
        """Run the system.

        Parameters
        ----------
        z : ndarray
            All values at the start, see `values`; they change.
        series : ndarray, shape (rows_per_step n_steps + 1, n_series)
            The values of `series` on the grid.
        start : float
            The time of step 0.
        keep : ndarray of int
            The steps that are rows, increasing.
        report : callable, optional
            Called with the number of steps done, now and then.

        Raises
        ------
        SimulationError
            The run failed; with the time.
        """
        self._check_tables(z, start)
        return ModularRun(self, *self._plan(z, int(keep[-1])), z, series, float(start), keep).to_end(report)

    def _check_tables(self, z: Vector, start: float) -> None:
        """Refuse points of a table of the data base that do not increase."""
        for e, name, stride in self._points:
            points = z[self.layout.of(name)][::stride]
            if not (np.diff(points) > 0).all():
                xs = listed([f"{v:g}" for v in points])
                raise SimulationError(
                    f"module {e.module!r}, line {e.line}: the points {name} of a table must increase; they are {xs}",
                    time=start,
                )


def _check_rk4(system: ModuleSystem) -> None:
    """Refuse functions that have no value between two steps."""
    system.check_one_step("method='rk4'", " Use method='euler'.")
    if called := system.call_of("lag", "delay_fixed", "rate", "pulse"):
        word, s = called
        raise ModelError(
            f"method='rk4' evaluates between the steps, where {word}(...) has no value (module {s.module!r}, line "
            f"{s.line}). Use method='euler'."
        )


def loop_notes(system: ModuleSystem) -> Iterator[Diagnostic]:
    """Yield a note of each loop: variables, or some of their elements, that need themselves within a step."""
    flat = FlatSystem(system)
    graph = Graph(flat.evaluations, Layout(flat.shapes), frozenset())
    pieces = [p for e, p in zip(flat.evaluations, graph.whole, strict=True) if e.kind != "initial"]
    for names in (graph.names(block.pieces) for block in graph.blocks(pieces) if block.is_loop):
        variable = system.variables.get(names[0].partition("[")[0])
        if variable is not None:
            message = (
                f"{listed(names, most=12)} need one another in a circle, whose statements are executed until nothing "
                "moves; where one of them takes time, it is a level or a delay"
            )
            yield diagnostic(system, "loop", names[0], variable.assigned_in, message)


def _elements(layout: Layout, v: Level) -> Iterator[tuple[int, int, int, int]]:
    """Yield the rows of a level for `RunPlan.levels`, one an element."""
    for x, dx, i in zip(layout.span(v.target), layout.span(v.rate), v.target.positions, strict=True):
        yield x, dx, v.step, int(i in v.nonnegative)


def _lag(layout: Layout, lag: Evaluation) -> tuple[int, ...]:
    """Return the row of a lag for `RunPlan.lags`; each run fills in the begin of its history."""
    x, tau, before = map(layout.span, lag.arguments)
    strides = (int(len(a) > 1) for a in (x, tau, before))
    return (x[0], tau[0], before[0], layout.span(lag.target)[0], *strides, len(x), lag.step, 0)


def _rows(n: int, values: Iterable[object]) -> IntMatrix:
    """Return rows of n whole numbers as a matrix."""
    return np.array(list(values), dtype=np.int64).reshape(-1, n)
