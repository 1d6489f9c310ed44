"""Whole runs of one model by the explicit method: one call, which lets other threads run meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fmepy.compiled import explicit_loop
from fmepy.compiled.c_loops import address, c_loop
from fmepy.compiled.kernels import call
from fmepy.compiled.rosenbrock import MEMORY
from fmepy.compiled.status import EXPLODED, HEAD, NO_RATES, SEEN, STEP_TOO_SMALL, STIFF, TOO_MANY_STEPS, WORK
from fmepy.parallel.threads import in_pieces, on_threads
from fmepy.types import Cube, Matrix, Vector

_WORTH_THREADS = 5000
"""Numbers of the rows of all runs from which on threads gain more time than they take."""
CHANGES = {"replace": 0, "add": 1, "multiply": 2}
"""How a change at the end of a stretch changes a state, as the compiled loop knows it."""
_NO_PLAN = np.array([0, MEMORY, 0], dtype=np.int64)
"""What a run knows of the stiff method before there is one."""
_LEARNING = threading.Lock()


@dataclass(frozen=True, slots=True, eq=False)
class ModelFunctions:
    """A model's functions, ``void f(double t, double* z, double* inputs, double* out)``, by address; 0: there is none.

    Attributes
    ----------
    rates, watch : int
        The rates; the conditions whose crossings end a run.
    n_watched : int
        Conditions.
    code : object
        What must live as long as the addresses are used.
    values, outputs : int
        Initial values from the parameters; outputs from a row, its inputs being the parameters and then the forcings.
    n_outputs : int
    changes : tuple of int
        Values of changes, each with its slope along every further block of z; behind the inputs stand what is given.
    stiff : callable, optional
        Returns the plan of the stiff method (`stiff_plan.plan_of`) when a run first needs it, and what must live as
        long; None if there is none. Its attribute `made` is what it has returned.
    """

    rates: int
    watch: int
    n_watched: int
    code: Any
    values: int = 0
    outputs: int = 0
    n_outputs: int = 0
    changes: tuple[int, ...] = ()
    stiff: Any = None


@dataclass(frozen=True, slots=True, eq=False)
class Solver:
    """What the solver is told: length of the blocks of z by which errors are measured, tolerances, limits.

    atol : array, shape (n_z,)
    """

    n_states: int
    rtol: float
    atol: Vector
    max_step: float
    most_steps: int


@dataclass(frozen=True, slots=True, eq=False)
class Stretch:
    """A part of a run where nothing happens.

    Attributes
    ----------
    start : float
    times : ndarray
        Increasing, the first not before `start`; the last is the end.
    kept : int
        How many of them are rows of the run; the others are not written.
    constants : sequence of float
        Inputs behind the parameters.
    """

    start: float
    times: Vector
    kept: int
    constants: Any = ()


@dataclass(frozen=True, slots=True, eq=False)
class Course:
    """What happens along a run, the same in every run.

    Attributes
    ----------
    start : float
    rows : ndarray, shape (n_rows,)
    n_at_start : int
        Rows at the start itself, 0 or 1.
    stretches : tuple of Stretch
    changes : ndarray of int, shape (n_changes, 5)
        Changes of states between stretches, in their order: the stretch at whose end it is (-1: before the first), the
        state, how (`CHANGES`), the order among those of one end (those of the same see the same state; the lower
        first), which of `ModelFunctions.changes` gives its value.
    given : ndarray, shape (n_changes, n_given)
        What the values of the changes are computed from beside the inputs of their stretch.
    forced : ndarray, shape (n_rows, n_forced)
        Forcings at the rows.
    n_parameters : int
    """

    start: float
    rows: Vector
    n_at_start: int
    stretches: tuple[Stretch, ...]
    changes: Any = ()
    given: Any = ()
    forced: Any = ()
    n_parameters: int = 0


class ExplicitRuns:
    """Runs along one course, see `compiled.dormand_prince.drive`; threads may share it.

    Parameters
    ----------
    functions : ModelFunctions
        Without `values` a run is given its start, without `outputs` it has none.
    solver : Solver
    course : Course
    n_inputs : int
        Of a run: its parameters, what every stretch sets behind them, and what else the rates read.
    """

    def __init__(self, functions: ModelFunctions, solver: Solver, course: Course, n_inputs: int) -> None:
        f, s, n = functions, solver, len(solver.atol)
        forced = np.asarray(course.forced, dtype=float).reshape(len(course.rows), -1)
        n_constants = len(course.stretches[0].constants) if course.stretches else 0
        given = np.asarray(course.given, dtype=float)
        n_given = given.shape[1] if len(given) else 0
        n_inputs += n_given
        changes = np.asarray(course.changes, dtype=np.int64).reshape(-1, 5)
        together = 0
        if len(changes):  # most stretches between crossings have none, and there are thousands
            together = int(np.unique(changes[:, [0, 3]], axis=0, return_counts=True)[1].max())
        self._head = np.array([
            f.rates, f.watch, f.values, f.outputs, n, s.n_states, n_inputs, course.n_parameters, n_constants,
            f.n_outputs, forced.shape[1], f.n_watched, len(course.rows), course.n_at_start, len(course.stretches),
            len(changes), n_given, together, s.most_steps, address(_NO_PLAN),
        ], dtype=np.int64)  # fmt: skip
        assert len(self._head) == HEAD
        stops = np.cumsum([0, *(len(k.times) for k in course.stretches)])
        kept = [k.kept for k in course.stretches]
        self._stretches = np.column_stack([stops[:-1], stops[1:], kept]).astype(np.int64)
        self._changes = np.zeros((len(changes) + 1, 5), dtype=np.int64)  # and one at the end that is never made
        self._changes[:-1, :4], self._changes[-1, 0] = changes[:, :4], len(course.stretches)
        self._changes[:-1, 4] = np.array(f.changes, dtype=np.int64)[changes[:, 4]] if len(changes) else 0
        self._numbers = np.concatenate([
            [s.rtol, s.max_step, course.start], s.atol, course.rows, [k.start for k in course.stretches],
            *(k.times for k in course.stretches), *(k.constants for k in course.stretches), forced.ravel(),
            given.ravel(),
        ])  # fmt: skip
        self._fixed = [address(a) for a in (self._head, self._stretches, self._changes, self._numbers)]
        run = explicit_loop.run_watched if f.n_watched else explicit_loop.run_smooth
        self._loop = c_loop(run, "the explicit solver")
        self._functions, self._solver, self._n_inputs = functions, solver, n_inputs
        self._stiff: Any = None
        if functions.stiff is not None and functions.stiff.made is not None:
            self.learns_stiff()
        self._rows, self._width = len(course.rows), n + f.n_outputs
        # where things lie in the one array of a single run: every array's address takes time
        of_changes = together * (n // s.n_states)
        sizes = [3, n_inputs, WORK * n, SEEN * f.n_watched, n + course.n_parameters + forced.shape[1] + of_changes]
        self._places: list[int] = np.cumsum(sizes).tolist()
        self._offsets = [8 * place for place in self._places]
        self._free: list[tuple[Vector, int]] = []
        self._size = self._places[-1] + self._rows * self._width

    def _call(self, told: Vector, n_runs: int, *addresses: int) -> None:
        """Run; the addresses are those of inputs, room to work, marks, values, rows, and of `told`: how they ended."""
        self._loop(*self._fixed, n_runs, *addresses)

    def learns_stiff(self) -> bool:
        """Make the stiff method known to all further runs; return False if there is none.

        A run that needed it then begins again, and never ends so again: its numbers do not depend on what was known.
        """
        with _LEARNING:
            if self._stiff is None and self._functions.stiff is not None:
                self._stiff = self._functions.stiff()
                if self._stiff is not None:
                    self._head[-1] = address(self._stiff[0])
        return self._stiff is not None

    @property
    def addresses(self) -> list[int]:
        """Where its course lies: what the compiled loop is told first."""
        return self._fixed

    @property
    def layout(self) -> tuple[list[int], tuple[int, int]]:
        """Where inputs, room to work, marks, values and rows begin in the numbers of a run; the shape of its rows."""
        return self._places, (self._rows, self._width)

    def one(self, inputs: Vector, start: Vector | None = None) -> tuple[Matrix, list[float]]:
        """Return the rows of a run, shape (n_rows, n_z + n_outputs), and how it ended, see `many`.

        Where the solver gave up, behind that: the state that it gave up for, its value, and its rate (`_worst`).

        inputs : the parameters, or more
        start : z at the start, where it is not computed
        """
        try:
            own, told = self._free.pop()  # of no other thread's; an address takes time
        except IndexError:
            own = np.empty(self._size)
            told = address(own)
        own[3 : 3 + len(inputs)] = inputs
        if start is not None:
            at = self._places[3]
            own[at : at + len(start)] = start
        _, work, seen, values, out = self._offsets
        self._call(own, 1, told + 24, told + work, told + seen, told + values, told + out, told)
        rows, ended = own[self._places[4] :].reshape(self._rows, self._width).copy(), own[:3].tolist()
        if ended[0] in (TOO_MANY_STEPS, STEP_TOO_SMALL, NO_RATES, EXPLODED):
            ended += self._worst(ended[2], own)
        self._free.append((own, told))
        if ended[0] == STIFF and self.learns_stiff():
            return self.one(inputs, start)
        return rows, ended

    def _worst(self, t: float, own: Vector) -> list[float]:
        """Return the state whose rate is not finite at t or right behind it, else the one that changes fastest."""
        n = self._solver.n_states
        y, slopes = own[self._places[1] :][:n], np.zeros(len(self._solver.atol))
        scale = self._solver.atol[:n] + self._solver.rtol * np.abs(y)
        for later in (0.0, 1e-15, 1e-12, 1e-9, 1e-6):
            call(self._functions.rates, t + later * max(abs(t), 1e-3), own[self._places[1] :], own[3:], slopes)
            with np.errstate(all="ignore"):  # rates of 1e308 are finite too
                speeds = np.where(np.isfinite(slopes[:n]), np.abs(slopes[:n]) / scale, np.inf)
            if not np.isfinite(slopes[:n]).all():
                break
        worst = int(np.argmax(speeds))
        return [worst, float(y[worst]), float(slopes[worst])]

    def many(self, P: Matrix) -> tuple[Cube, Matrix]:
        """Return many runs that begin where their parameters say; Python's lock is left to other threads.

        Parameters
        ----------
        P : array, shape (n_run, n_parameters)

        Returns
        -------
        out : array, shape (n_run, n_rows, n_z + n_outputs)
            What stands where a run did not come says nothing.
        told : array, shape (n_run, 3)
            How each run ended (`compiled.status`), the rows written, the time reached.
        """
        inputs = np.zeros((len(P), self._n_inputs))
        inputs[:, : P.shape[1]] = P
        room = np.empty(self._places[-1])
        out, told = np.empty((len(P), self._rows, self._width)), np.empty((len(P), 3))
        work, seen, values = (address(room) + offset for offset in self._offsets[1:4])
        self._call(told.ravel(), len(P), address(inputs), work, seen, values, address(out), address(told))
        again = np.flatnonzero(told[:, 0] == STIFF)
        if len(again) and self.learns_stiff():
            out[again], told[again] = self.many(P[again])
        return out, told


class RunsOfCourses:
    """One run along each of several courses, all in one call; they are spread over threads.

    Parameters
    ----------
    runs : sequence of ExplicitRuns
        Without conditions to be watched, all as wide.

    Attributes
    ----------
    rows : ndarray, shape (n_rows, n_z + n_outputs)
        Of all runs, one after the other.
    """

    def __init__(self, runs: Sequence[ExplicitRuns]) -> None:
        self._runs = tuple(runs)
        self._loop = c_loop(explicit_loop.run_apart, "the explicit solver, for runs of several courses")
        layouts = [r.layout for r in runs]
        rooms = np.cumsum([0, *(places[-1] for places, _ in layouts)]).tolist()
        first = np.cumsum([0, *(shape[0] for _, shape in layouts)]).tolist()
        width, most_inputs = layouts[0][1][1], max(places[1] - places[0] for places, _ in layouts)
        self._room, self.rows = np.zeros(rooms[-1]), np.empty((first[-1], width))
        self._inputs, self._told = np.zeros((len(runs), most_inputs)), np.empty((len(runs), 3))
        room, out = address(self._room), address(self.rows)
        inputs, told = address(self._inputs), address(self._told)
        self._table = np.array([
            [*r.addresses, inputs + 8 * i * most_inputs, *(room + 8 * (at + p) for p in places[1:4]),
             out + 8 * row * width, told + 24 * i]
            for i, (r, (places, _), at, row) in enumerate(zip(runs, layouts, rooms, first, strict=False))
        ], dtype=np.int64)  # fmt: skip
        self._pieces = in_pieces(len(runs)) if first[-1] * width > _WORTH_THREADS else [(0, len(runs))]

    def run(self, inputs: Matrix, then: Callable[[int, int], None]) -> Matrix:
        """Write `rows`, calling ``then(first, last)`` when those of some runs are there; return how each ended.

        inputs : shape (n_run, n_inputs), the parameters, or more

        See `ExplicitRuns.many`.
        """
        self._inputs[:, : inputs.shape[1]] = inputs
        table = address(self._table)

        def piece(ends: tuple[int, int]) -> None:
            self._loop(table, *ends)
            for i in np.flatnonzero(self._told[slice(*ends), 0] == STIFF).tolist():
                if self._runs[ends[0] + i].learns_stiff():
                    self._loop(table, ends[0] + i, ends[0] + i + 1)
            then(*ends)

        on_threads(piece, self._pieces)
        return self._told
