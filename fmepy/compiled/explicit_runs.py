"""Whole runs of one model by the explicit method: one call, which lets other threads run meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fmepy.compiled import explicit_loop, status
from fmepy.compiled.c_loops import address, c_loop
from fmepy.compiled.courses import CourseTables, RunArrays
from fmepy.compiled.delay_loop import MOVED, SHOWN, SHOWN_TO, STRETCH, room_of
from fmepy.compiled.delayed_rates import DelayTables
from fmepy.compiled.kernels import call, packed
from fmepy.compiled.lanes import run_lanes
from fmepy.compiled.machine import Code
from fmepy.compiled.rosenbrock import MEMORY
from fmepy.compiled.switching import MOST_OF_WHOLE, Switches, run_through, with_room
from fmepy.parallel.threads import in_pieces, on_threads
from fmepy.types import Cube, Matrix, Vector

_WORTH_THREADS = 5000
"""Numbers of the rows of all runs from which on threads gain more time than they take."""
_FEW = 50_000
"""Numbers of the rows of a run up to which their array is used again."""
_WORTH_A_THREAD = 200
"""States of all runs from which on Ctrl-C is to be heard while they run, which takes 50 us."""
CHANGES = {"replace": 0, "add": 1, "multiply": 2}
"""How a change at the end of a stretch changes a state, as the compiled loop knows it."""
_START = list(CourseTables.__annotations__).index("start")
"""Where that stands among the words of a course; before it there are numbers alone."""
_NO_PLAN = np.array([0, MEMORY, 0], dtype=np.int64)
"""What a run knows of the stiff method before there is one."""
_LEARNING = threading.Lock()
_WORTH_LANES = 500
"""Runs of a model after which its rates are compiled for several runs at once: that takes as long as it saves then."""
FIRST_ROOM = 200
"""Steps of the past that there is room for at first, of a model with delays."""


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
    prepare, n_prepared : int
        Parts of the rates and conditions from the parameters, which stand last among the inputs; how many.
    values, outputs : int
        Initial values from the parameters; outputs from a row, its inputs being the parameters and then the forcings.
    n_outputs : int
    changes : tuple of int
        Values of changes, each with its slope along every further block of z; behind the inputs stand what is given.
    stiff : callable, optional
        Returns the plan of the stiff method (`stiff_plan.plan_of`) when a run first needs it, and what must live as
        long; None if there is none. Its attribute `made` is what it has returned.
    lanes : callable, optional
        Returns the code of the rates of several runs at once (`compiled.lanes`), or None; None if there are none.
    """

    rates: int
    watch: int
    n_watched: int
    code: Any
    prepare: int = 0
    n_prepared: int = 0
    values: int = 0
    outputs: int = 0
    n_outputs: int = 0
    changes: tuple[int, ...] = ()
    stiff: Any = None
    lanes: Callable[[], Code | None] | None = None


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
    delays : DelayTables, optional
        Rates and outputs then find the lagged values among their inputs, outputs behind the forcings.
    switches : Switches, optional
        Those whose modes flip in whole runs, which begin where their parameters say.

    Attributes
    ----------
    tables, at_course : CourseTables, int
        What it runs along, and where the words of that stand.
    shape : tuple of int
        Of the rows of a run.
    n_inputs : int
        With what changes are computed from.
    """

    def __init__(
        self, functions: ModelFunctions, solver: Solver, course: Course, n_inputs: int,
        delays: DelayTables | None = None, switches: Switches | None = None,
    ) -> None:  # fmt: skip
        f, s, stretches, n = functions, solver, course.stretches, len(solver.atol)
        forced = np.ascontiguousarray(course.forced, dtype=float).reshape(len(course.rows), -1)
        given = np.ascontiguousarray(course.given, dtype=float) if len(course.given) else np.zeros((0, 0))
        changes = np.zeros((len(course.changes) + 1, 5), dtype=np.int64)  # and one at the end that is never made
        changes[-1, 0], together = len(stretches), 0
        if len(course.changes):  # most stretches between crossings have none, and there are thousands
            changes[:-1] = course.changes
            changes[:-1, 4] = np.array(f.changes, dtype=np.int64)[changes[:-1, 4]]
            together = int(np.unique(changes[:-1, [0, 3]], axis=0, return_counts=True)[1].max())
        n_lags = 0 if delays is None else len(delays.states) * (n // s.n_states)
        ends = np.cumsum([0, *(len(k.times) for k in stretches)])
        constants = np.array([k.constants for k in stretches], dtype=float)
        self.tables = CourseTables(
            address(_NO_PLAN), f.rates, f.watch, f.values, f.outputs, s.n_states, course.n_parameters, f.prepare,
            n_inputs - f.n_prepared, n_inputs, course.n_at_start, together, n_lags, s.most_steps, float(s.rtol),
            float(s.max_step), float(course.start),
            np.array(s.atol), np.array(course.rows), np.array([k.start for k in stretches], dtype=float),
            np.concatenate([np.zeros(0), *(k.times for k in stretches)]),
            np.array([*zip(ends, ends[1:], (k.kept for k in stretches), strict=False)], dtype=np.int64).reshape(-1, 3),
            constants if len(stretches) else np.zeros((0, 0)), forced, given, changes,
        )  # fmt: skip
        self._course = packed(self.tables)
        self.at_course, self._functions, self._solver = address(self._course), functions, solver
        self._past = None if delays is None else (packed(delays), delays)  # the words, and what they point at
        self._switches, self._room = switches, FIRST_ROOM
        self._loop = self._compiled(delays is not None, f.n_watched > 0)
        self._stiff: Any = None
        if functions.stiff is not None and functions.stiff.made is not None:
            self.learns_stiff()
        self.shape, self.n_inputs = (len(course.rows), n + f.n_outputs), n_inputs + given.shape[1]
        self._n_values = n + course.n_parameters + forced.shape[1] + n_lags + together * (n // s.n_states)
        self._free: list[tuple[RunArrays, int, Any]] = []
        self._n_run, self._has_lanes = 0, functions.lanes is not None and len(stretches) > 0

    def go_along(self, start: float, times: Vector) -> None:
        """Let further runs go along another stretch of as many times, where there is but one."""
        self._course[_START : _START + 1].view(np.float64)[0] = self.tables.begins[0] = start
        self.tables.times[:] = self.tables.rows[:] = times

    def _compiled(self, has_delays: bool, watches: bool) -> Callable[..., None]:
        if self._switches is not None:
            return c_loop(run_through, "the solver of models with switches")
        if has_delays:
            return c_loop(explicit_loop.run_delayed, "the explicit solver with delays")
        return c_loop(explicit_loop.run_watched if watches else explicit_loop.run_smooth, "the explicit solver")

    def _run(self, room: tuple[RunArrays, int, Any]) -> None:
        """Run in what `arrays` returned."""
        arrays, at, held = room
        if self._past is None:
            self.called(self._loop, room, self.at_course, at, *([] if held[1] is None else [address(held[1])]))
            return
        first = 0
        while True:  # with ever more room for the past
            self.called(self._loop, room, self.at_course, at, address(self._past[0]), address(held[1]), first)
            full = np.flatnonzero(arrays.ended[first:, 0] == status.NO_ROOM)
            if not len(full):
                return
            first += int(full[0])
            self.grow()
            held[1:] = self._own_room()

    def grow(self) -> None:
        """Give further runs more room for their past."""
        self._room *= 4

    def called(self, loop: Callable[..., None], room: tuple[RunArrays, int, Any], *words: int) -> None:
        """Call a loop; where it may take long, on a thread of its own, so that Ctrl-C is heard meanwhile."""
        arrays = room[0]
        is_short = len(arrays.inputs) * len(self._solver.atol) < _WORTH_A_THREAD
        if is_short or threading.current_thread() is not threading.main_thread():
            loop(*words)
            return

        def work(kept: Any = (self, room)) -> None:  # what it writes into lives as long, wherever Ctrl-C strikes
            loop(*words)

        thread = threading.Thread(target=work)
        try:
            thread.start()
            thread.join()
        except BaseException:
            arrays.work[status.STOP] = 1.0
            raise

    def arrays(self, inputs: Matrix, out: Any = None, ended: Any = None) -> tuple[RunArrays, int, Any]:
        """Return where runs work that begin with such inputs, the address of the words of that, and what lives as long.

        The latter are these words, those of what `_own_room` returns, and that.
        """
        out = np.empty((len(inputs), *self.shape)) if out is None else out
        ended = np.empty((len(inputs), 3)) if ended is None else ended
        work, seen = np.zeros((status.WORK, len(self._solver.atol))), np.empty((status.SEEN, self._functions.n_watched))
        arrays = RunArrays(inputs, work, seen, np.empty(self._n_values), out, ended)
        words = packed(arrays)
        return arrays, address(words), [words, *self._own_room()]

    def _own_room(self) -> list[Any]:
        """Return the words of what runs with switches, or with a past, work in beside, and that itself; else None."""
        own: Any = None
        if self._past is not None:
            own = room_of(self.tables, self._past[1], self._room)
        elif self._switches is not None:
            own = with_room(self._switches, MOST_OF_WHOLE)
        return [None if own is None else packed(own), own]

    def learns_stiff(self) -> bool:
        """Make the stiff method known to all further runs; return False if there is none.

        A run that needed it then begins again, and never ends so again: its numbers do not depend on what was known.
        """
        with _LEARNING:
            if self._stiff is None and self._functions.stiff is not None:
                self._stiff = self._functions.stiff()
                if self._stiff is not None:
                    self._course[0] = address(self._stiff[0])  # `CourseTables.plan`
        return self._stiff is not None

    def one(
        self, inputs: Vector, start: Vector | None = None, into: Matrix | None = None
    ) -> tuple[Matrix, list[float]]:
        """Return the rows of a run, shape (n_rows, n_z + n_outputs), and how it ended, see `many`.

        Where the solver gave up, behind that: the state that it gave up for, its value, and its rate (`_worst`).

        inputs : the parameters, or more
        start : z at the start, where it is not computed
        into : where the rows are written
        """
        is_reused = into is None and self.shape[0] * self.shape[1] <= _FEW
        try:
            room = self._free.pop() if is_reused else None  # of no other thread's; an address takes time
        except IndexError:
            room = None
        if room is None:
            room = self.arrays(np.zeros((1, self.n_inputs)), None if into is None else into[None])
        arrays = room[0]
        arrays.inputs[0, : len(inputs)] = inputs
        if start is not None:
            arrays.values[: len(start)] = start
        self._run(room)
        rows = arrays.out[0].copy() if is_reused else arrays.out[0]
        ended = arrays.ended[0].tolist()
        if ended[0] in (status.TOO_MANY_STEPS, status.STEP_TOO_SMALL, status.NO_RATES, status.EXPLODED):
            ended += self._worst(ended[2], arrays)
        if is_reused:
            self._free.append(room)
        if ended[0] == status.STIFF and self.learns_stiff():
            return self.one(inputs, start, into)
        return rows, ended

    def _worst(self, t: float, arrays: RunArrays) -> list[float]:
        """Return the state whose rate is not finite at t or right behind it, else the one that changes fastest."""
        n, z = self._solver.n_states, arrays.work[0]
        y, slopes = z[:n], np.zeros(len(z))
        scale = self._solver.atol[:n] + self._solver.rtol * np.abs(y)
        for later in (0.0, 1e-15, 1e-12, 1e-9, 1e-6):
            call(self._functions.rates, t + later * max(abs(t), 1e-3), z, arrays.inputs, slopes)
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
        self._n_run += len(P)
        is_worth_it = self._has_lanes and self._n_run >= _WORTH_LANES and len(P) > 1 and self._stiff is None
        out, told = self._many(P, in_lanes=is_worth_it)
        alone = np.flatnonzero(told[:, 0] == status.ALONE)
        if is_worth_it and len(alone):  # those with switches are for stretches
            out[alone], told[alone] = self._many(P[alone], in_lanes=False)
        again = np.flatnonzero(told[:, 0] == status.STIFF)
        if len(again) and self.learns_stiff():
            out[again], told[again] = self._many(P[again], in_lanes=False)
        return out, told

    def _many(self, P: Matrix, in_lanes: bool) -> tuple[Cube, Matrix]:
        inputs = np.zeros((len(P), self.n_inputs))
        inputs[:, : P.shape[1]] = P
        room = self.arrays(inputs)
        code = self._functions.lanes() if in_lanes and self._functions.lanes is not None else None
        if code is not None:
            loop = c_loop(run_lanes, "the explicit solver for several runs at once")
            self.called(loop, (*room[:2], (room, code)), self.at_course, room[1], code.address("rates"))
        else:
            self._run(room)
        return room[0].out, room[0].ended

    def by_hits(self, inputs: Vector) -> RunByHits:
        """Return a run of a model with delays that pauses at every hit of a root event."""
        assert self._past is not None, "there are delays"
        return RunByHits(self, inputs, address(self._past[0]))


class RunByHits:
    """A run of a model with delays that pauses at its start, and at every hit of a root event.

    Attributes
    ----------
    inputs : ndarray
        Of the run; behind the first ones stand the offsets of the roots.
    z, sides : ndarray
        The state at a pause; the roots as they were before it.
    rows : ndarray, shape (n_rows, n_z + n_outputs)
    """

    def __init__(self, runs: ExplicitRuns, inputs: Vector, at_delays: int) -> None:
        self._runs, self._room = runs, runs.arrays(np.zeros((1, runs.n_inputs)))
        self._arrays, at, (_, words, self._own) = self._room
        self._words = runs.at_course, at, at_delays, address(words)
        self.inputs, self.sides, self.rows = self._arrays.inputs[0], self._arrays.seen[0], self._arrays.out[0]
        self.z = self._arrays.values[: len(self._own.shown)]
        self.inputs[: len(inputs)] = inputs
        self._own.at[STRETCH] = -1.0
        self._on = c_loop(explicit_loop.run_to_hit, "the explicit solver with delays, from hit to hit")
        self._rates = c_loop(explicit_loop.rates_at_hit, "the rates of models with delays")

    def advance(self) -> list[float]:
        """Carry it on; return how that ended (`status.CROSSED`: at a pause), the rows written, the time."""
        self._runs.called(self._on, self._room, *self._words)
        ended: list[float] = self._arrays.ended[0].tolist()
        return ended

    def rates(self, t: float, z: Vector) -> Vector:
        """Return the rates of z, with the past that they read."""
        self._arrays.work[2] = z
        self._rates(*self._words, t)
        return np.array(self._arrays.work[3])

    def change(self, z: Vector, shown: Vector, times: tuple[float, float], shift: Any) -> None:
        """Change the state at a pause; rows between two times show another, and the pause moves with the parameters."""
        self.z[:] = z
        self._own.shown[:] = shown
        self._own.at[[SHOWN, SHOWN_TO]] = times
        if shift is not None:
            self._own.shift[:], self._own.at[MOVED] = shift, 1.0


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
        ends = np.cumsum([0, *(r.shape[0] for r in runs)]).tolist()
        self.rows = np.empty((ends[-1], runs[0].shape[1]))
        self._inputs, self._told = np.zeros((len(runs), max(r.n_inputs for r in runs))), np.empty((len(runs), 3))
        self._rooms = [
            r.arrays(self._inputs[i : i + 1], self.rows[None, a:b], self._told[i : i + 1])
            for i, (r, a, b) in enumerate(zip(runs, ends, ends[1:], strict=False))
        ]
        places = [(r.at_course, at) for r, (_, at, _) in zip(runs, self._rooms, strict=True)]
        self._table = np.array(places, dtype=np.int64)
        self._pieces = in_pieces(len(runs)) if self.rows.size > _WORTH_THREADS else [(0, len(runs))]

    def run(self, inputs: Matrix, then: Callable[[int, int], None]) -> Matrix:
        """Write `rows`, calling ``then(first, last)`` when those of some runs are there; return how each ended.

        inputs : shape (n_run, n_inputs), the parameters, or more

        See `ExplicitRuns.many`.
        """
        self._inputs[:, : inputs.shape[1]] = inputs
        table = address(self._table)

        def piece(ends: tuple[int, int]) -> None:
            self._loop(table, *ends)
            for i in np.flatnonzero(self._told[slice(*ends), 0] == status.STIFF).tolist():
                if self._runs[ends[0] + i].learns_stiff():
                    self._loop(table, ends[0] + i, ends[0] + i + 1)
            then(*ends)

        on_threads(piece, self._pieces)
        return self._told
