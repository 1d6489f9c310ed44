"""Whole runs of one model by the explicit method, each in one call that releases Python's lock."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fmepy.compiled import explicit_loop, status
from fmepy.compiled.c_loops import address, c_loop
from fmepy.compiled.courses import CourseTables, RunArrays
from fmepy.compiled.delay_loop import HITS_MOVE, SHOW_FROM, SHOW_UNTIL, STRETCH, workspace_of
from fmepy.compiled.delayed_rates import DelayTables
from fmepy.compiled.kernels import call, packed
from fmepy.compiled.lanes import run_lanes
from fmepy.compiled.machine import Code
from fmepy.compiled.rosenbrock import MEMORY
from fmepy.compiled.switching import MOST_OF_WHOLE, Switches, run_through, with_room
from fmepy.parallel.threads import in_pieces, on_threads
from fmepy.types import Cube, Matrix, Vector

_WORTH_THREADS = 5000
"""Size of the output of all runs above which threads save more time than they cost."""
_MOST_REUSED = 50_000
"""Largest size of the output of a run whose array is used again for the next one."""
_WORTH_A_THREAD = 200
"""States of all runs above which they run on a thread of their own, so that Ctrl-C interrupts them; it costs 50 us."""
CHANGES = {"replace": 0, "add": 1, "multiply": 2}
"""Codes in the compiled loop of how a change at the end of a stretch acts on a state."""
_START = list(CourseTables.__annotations__).index("start")
"""Position of `start` among the packed words of a course; every field before it is a single number."""
_NO_PLAN = np.array([0, MEMORY, 0], dtype=np.int64)
"""The plan of the stiff method before one has been compiled."""
_LEARNING = threading.Lock()
_WORTH_LANES = 500
"""Runs of a model after which its rates are also compiled for several runs at once, which then pays for itself."""
FIRST_STEPS = 200
"""Steps of the past that a run of a model with delays can store at first."""


@dataclass(frozen=True, slots=True, eq=False)
class ModelFunctions:
    """Addresses of a model's functions ``void f(double t, double* z, double* inputs, double* out)``; 0 means none.

    Attributes
    ----------
    rates, watch : int
        The rates; the conditions whose crossings end a run.
    n_watched : int
        Number of conditions.
    code : object
        Keeps the machine code alive while the addresses are used.
    prepare, n_prepared : int
        Computes the parts of rates and conditions that depend on the parameters alone; they are the last inputs.
    values, outputs : int
        Initial values from the parameters; outputs from a row, with the parameters and then the forcings as inputs.
    n_outputs : int
    changes : tuple of int
        Values of changes, each with its slope along every further block of z; `Course.change_inputs` follow the inputs.
    stiff : callable, optional
        Returns the plan of the stiff method (`stiff_plan.plan_of`) when a run first needs it, and the code that it
        refers to; returns None if the model has none. Its attribute `made` is what it has returned.
    lanes : callable, optional
        Returns the code of the rates of several runs at once (`compiled.lanes`), or None if they cannot be compiled.
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
    """Settings of the solver: length of the blocks of z over which errors are averaged, tolerances, limits.

    atol : array, shape (n_z,)
    """

    n_states: int
    rtol: float
    atol: Vector
    max_step: float
    most_steps: int


@dataclass(frozen=True, slots=True, eq=False)
class Stretch:
    """A part of a run between two changes of states.

    Attributes
    ----------
    start : float
    times : ndarray
        Increasing, the first not before `start`; the last is the end.
    n_rows : int
        How many of them, from the first, are rows of the run; the others are not written.
    constants : sequence of float
        Inputs that follow the parameters.
    """

    start: float
    times: Vector
    n_rows: int
    constants: Any = ()


@dataclass(frozen=True, slots=True, eq=False)
class Course:
    """The time course that all runs of a model share: rows, stretches, changes of states and forcings.

    Attributes
    ----------
    start : float
    rows : ndarray, shape (n_rows,)
    n_at_start : int
        Number of rows at the start itself, 0 or 1.
    stretches : tuple of Stretch
    changes : ndarray of int, shape (n_changes, 5)
        Changes of states between stretches, in order of time. Columns: the stretch at whose end it is (-1: before the
        first); the state; how (`CHANGES`); the order among changes at one end (lowest first, those of the same order
        see the same state); the index into `ModelFunctions.changes` of its value.
    change_inputs : ndarray, shape (n_changes, n_change_inputs)
        Further inputs of the values of the changes, beside the inputs of their stretch.
    forced : ndarray, shape (n_rows, n_forced)
        Forcings at the rows.
    n_parameters : int
    """

    start: float
    rows: Vector
    n_at_start: int
    stretches: tuple[Stretch, ...]
    changes: Any = ()
    change_inputs: Any = ()
    forced: Any = ()
    n_parameters: int = 0


class ExplicitRuns:
    """Runs along one course, see `compiled.dormand_prince.drive`; threads may share it.

    Parameters
    ----------
    functions : ModelFunctions
        Without `values` each run is passed its initial state; without `outputs` there are no outputs.
    solver : Solver
    course : Course
    n_inputs : int
        Inputs of a run: its parameters, the constants of a stretch, and whatever else the rates read.
    delays : DelayTables, optional
        Lagged values are then among the inputs of the rates, and follow the forcings in the inputs of the outputs.
    switches : Switches, optional
        Switches whose modes flip within whole runs; initial values are then computed from the parameters.

    Attributes
    ----------
    tables, at_course : CourseTables, int
        The course as tables, and the address of their packed words.
    shape : tuple of int
        Shape of the rows of a run.
    n_inputs : int
        Including the inputs of changes.
    """

    def __init__(
        self, functions: ModelFunctions, solver: Solver, course: Course, n_inputs: int,
        delays: DelayTables | None = None, switches: Switches | None = None,
    ) -> None:  # fmt: skip
        f, s, stretches, n = functions, solver, course.stretches, len(solver.atol)
        forced = np.ascontiguousarray(course.forced, dtype=float).reshape(len(course.rows), -1)
        inputs = course.change_inputs
        change_inputs = np.ascontiguousarray(inputs, dtype=float) if len(inputs) else np.zeros((0, 0))
        changes = np.zeros((len(course.changes) + 1, 5), dtype=np.int64)  # and a sentinel at the end
        changes[-1, 0], together = len(stretches), 0
        if len(course.changes):  # most stretches between crossings have none, and there are thousands
            changes[:-1] = course.changes
            changes[:-1, 4] = np.array(f.changes, dtype=np.int64)[changes[:-1, 4]]
            together = int(np.unique(changes[:-1, [0, 3]], axis=0, return_counts=True)[1].max())
        n_lags = 0 if delays is None else len(delays.states) * (n // s.n_states)
        ends = np.cumsum([0, *(len(k.times) for k in stretches)]).tolist()
        bounds = [(a, b, k.n_rows) for a, b, k in zip(ends, ends[1:], stretches, strict=False)]
        constants = np.array([k.constants for k in stretches], dtype=float)
        self.tables = CourseTables(
            address(_NO_PLAN), f.rates, f.watch, f.values, f.outputs, s.n_states, course.n_parameters, f.prepare,
            n_inputs - f.n_prepared, n_inputs, course.n_at_start, together, n_lags, s.most_steps, float(s.rtol),
            float(s.max_step), float(course.start),
            np.array(s.atol), np.array(course.rows), np.array([k.start for k in stretches], dtype=float),
            np.concatenate([np.zeros(0), *(k.times for k in stretches)]),
            np.array(bounds, dtype=np.int64).reshape(-1, 3),
            constants if len(stretches) else np.zeros((0, 0)), forced, change_inputs, changes,
        )  # fmt: skip
        self._course = packed(self.tables)
        self.at_course, self._functions, self._solver = address(self._course), functions, solver
        self._past = None if delays is None else (packed(delays), delays)  # the words, and what they point at
        self._switches, self._n_steps = switches, FIRST_STEPS
        self._loop = self._compiled(delays is not None, f.n_watched > 0)
        self._stiff: Any = None
        if functions.stiff is not None and functions.stiff.made is not None:
            self.learns_stiff()
        self.shape, self.n_inputs = (len(course.rows), n + f.n_outputs), n_inputs + change_inputs.shape[1]
        self._n_values = n + course.n_parameters + forced.shape[1] + n_lags + together * (n // s.n_states)
        self._free: list[tuple[RunArrays, int, Any]] = []
        self._n_run, self._has_lanes = 0, functions.lanes is not None and len(stretches) > 0

    def go_along(self, start: float, times: Vector) -> None:
        """Move further runs to another start and times, as many as before, of a course of one stretch."""
        self._course[_START : _START + 1].view(np.float64)[0] = self.tables.begins[0] = start
        self.tables.times[:] = self.tables.rows[:] = times

    def _compiled(self, has_delays: bool, watches: bool) -> Callable[..., None]:
        if self._switches is not None:
            return c_loop(run_through, "the solver of models with switches")
        if has_delays:
            return c_loop(explicit_loop.run_delayed, "the explicit solver with delays")
        return c_loop(explicit_loop.run_watched if watches else explicit_loop.run_smooth, "the explicit solver")

    def _run(self, buffers: tuple[RunArrays, int, Any]) -> None:
        """Run in the arrays that `arrays` returned."""
        arrays, at, words = buffers
        if self._past is None:
            self.called(self._loop, buffers, self.at_course, at, *([] if words[1] is None else [address(words[1])]))
            return
        first = 0
        while True:  # each time with more room for the past
            self.called(self._loop, buffers, self.at_course, at, address(self._past[0]), address(words[1]), first)
            full = np.flatnonzero(arrays.ended[first:, 0] == status.NO_ROOM)
            if not len(full):
                return
            first += int(full[0])
            self.grow()
            words[1:] = self._extra_workspace()

    def grow(self) -> None:
        """Let further runs store more steps of their past."""
        self._n_steps *= 4

    def called(self, loop: Callable[..., None], buffers: tuple[RunArrays, int, Any], *words: int) -> None:
        """Call a loop; one that may take long runs on a thread of its own, so that Ctrl-C can interrupt it."""
        arrays = buffers[0]
        is_short = len(arrays.inputs) * len(self._solver.atol) < _WORTH_A_THREAD
        if is_short or threading.current_thread() is not threading.main_thread():
            loop(*words)
            return

        def work(alive: Any = (self, buffers)) -> None:  # arrays stay alive until the loop ends, even after Ctrl-C
            loop(*words)

        thread = threading.Thread(target=work)
        try:
            thread.start()
            thread.join()
        except BaseException:
            arrays.work[status.STOP] = 1.0
            raise

    def arrays(self, inputs: Matrix, out: Any = None, ended: Any = None) -> tuple[RunArrays, int, Any]:
        """Return working arrays of runs with these inputs, the address of their packed words, and what it refers to.

        The last is a list: the packed words of the arrays, and what `_extra_workspace` returns.
        """
        out = np.empty((len(inputs), *self.shape)) if out is None else out
        ended = np.empty((len(inputs), 3)) if ended is None else ended
        work, values = np.zeros((status.WORK, len(self._solver.atol))), np.empty(self._n_values)
        arrays = RunArrays(inputs, work, np.empty((status.WATCH_ROWS, self._functions.n_watched)), values, out, ended)
        words = packed(arrays)
        return arrays, address(words), [words, *self._extra_workspace()]

    def _extra_workspace(self) -> list[Any]:
        """Return the workspace of runs with switches or delays, packed and as a tuple; None, None for other runs."""
        workspace: Any = None
        if self._past is not None:
            workspace = workspace_of(self.tables, self._past[1], self._n_steps)
        elif self._switches is not None:
            workspace = with_room(self._switches, MOST_OF_WHOLE)
        return [None if workspace is None else packed(workspace), workspace]

    def learns_stiff(self) -> bool:
        """Make the stiff method available to all further runs; return False if the model has none.

        A run that ended as stiff is then repeated from its start, so results do not depend on earlier runs.
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

        Where the solver gave up, three numbers follow: the state responsible, its value, and its rate (`_worst`).

        inputs : the parameters, and any further inputs
        start : z at the start, where it is not computed from the parameters
        into : array for the rows
        """
        is_reused = into is None and self.shape[0] * self.shape[1] <= _MOST_REUSED
        try:
            buffers = self._free.pop() if is_reused else None  # no other thread holds it; taking addresses is slow
        except IndexError:
            buffers = None
        if buffers is None:
            buffers = self.arrays(np.zeros((1, self.n_inputs)), None if into is None else into[None])
        arrays = buffers[0]
        arrays.inputs[0, : len(inputs)] = inputs
        if start is not None:
            arrays.values[: len(start)] = start
        self._run(buffers)
        rows = arrays.out[0].copy() if is_reused else arrays.out[0]
        ended = arrays.ended[0].tolist()
        if ended[0] in (status.TOO_MANY_STEPS, status.STEP_TOO_SMALL, status.NO_RATES, status.EXPLODED):
            ended += self._worst(ended[2], arrays)
        if is_reused:
            self._free.append(buffers)
        if ended[0] == status.STIFF and self.learns_stiff():
            return self.one(inputs, start, into)
        return rows, ended

    def _worst(self, t: float, arrays: RunArrays) -> list[float]:
        """Return index, value and rate of the state whose rate is not finite at or just after t, or of the fastest."""
        n, z = self._solver.n_states, arrays.work[0]
        y, slopes = z[:n], np.zeros(len(z))
        scale = self._solver.atol[:n] + self._solver.rtol * np.abs(y)
        for later in (0.0, 1e-15, 1e-12, 1e-9, 1e-6):
            call(self._functions.rates, t + later * max(abs(t), 1e-3), z, arrays.inputs, slopes)
            with np.errstate(all="ignore"):  # rates near 1e308 overflow here
                speeds = np.where(np.isfinite(slopes[:n]), np.abs(slopes[:n]) / scale, np.inf)
            if not np.isfinite(slopes[:n]).all():
                break
        worst = int(np.argmax(speeds))
        return [worst, float(y[worst]), float(slopes[worst])]

    def many(self, P: Matrix) -> tuple[Cube, Matrix]:
        """Return many runs whose initial values are computed from their parameters, without Python's lock.

        Parameters
        ----------
        P : array, shape (n_run, n_parameters)

        Returns
        -------
        out : array, shape (n_run, n_rows, n_z + n_outputs)
            Rows that a run did not reach are undefined.
        ended : array, shape (n_run, 3)
            For each run its status (`compiled.status`), the number of rows written, the time reached.
        """
        self._n_run += len(P)
        is_worth_it = self._has_lanes and self._n_run >= _WORTH_LANES and len(P) > 1 and self._stiff is None
        out, ended = self._many(P, in_lanes=is_worth_it)
        unfinished = np.flatnonzero(ended[:, 0] == status.FALLBACK)
        if is_worth_it and len(unfinished):  # of models with switches the caller runs them stretch by stretch
            out[unfinished], ended[unfinished] = self._many(P[unfinished], in_lanes=False)
        stiff = np.flatnonzero(ended[:, 0] == status.STIFF)
        if len(stiff) and self.learns_stiff():
            out[stiff], ended[stiff] = self._many(P[stiff], in_lanes=False)
        return out, ended

    def _many(self, P: Matrix, in_lanes: bool) -> tuple[Cube, Matrix]:
        inputs = np.zeros((len(P), self.n_inputs))
        inputs[:, : P.shape[1]] = P
        buffers = self.arrays(inputs)
        code = self._functions.lanes() if in_lanes and self._functions.lanes is not None else None
        if code is not None:
            loop = c_loop(run_lanes, "the explicit solver for several runs at once")
            self.called(loop, (*buffers[:2], (buffers, code)), self.at_course, buffers[1], code.address("rates"))
        else:
            self._run(buffers)
        return buffers[0].out, buffers[0].ended

    def by_hits(self, inputs: Vector) -> RunByHits:
        """Return a run of a model with delays that pauses at every hit of a root event."""
        assert self._past is not None, "there are delays"
        return RunByHits(self, inputs, address(self._past[0]))


class RunByHits:
    """A run of a model with delays that pauses at its start, and at every hit of a root event.

    Attributes
    ----------
    inputs : ndarray
        Inputs of the run, which include the offsets of the roots.
    z, sides : ndarray
        The state at a pause; the values of the roots before it.
    rows : ndarray, shape (n_rows, n_z + n_outputs)
    """

    def __init__(self, runs: ExplicitRuns, inputs: Vector, at_delays: int) -> None:
        self._runs, self._buffers = runs, runs.arrays(np.zeros((1, runs.n_inputs)))
        self._arrays, at, (_, words, self._workspace) = self._buffers
        self._words = runs.at_course, at, at_delays, address(words)
        self.inputs, self.sides, self.rows = self._arrays.inputs[0], self._arrays.g[0], self._arrays.out[0]
        self.z = self._arrays.values[: len(self._workspace.hit_state)]
        self.inputs[: len(inputs)] = inputs
        self._workspace.progress[STRETCH] = -1.0
        self._continue = c_loop(explicit_loop.run_to_hit, "the explicit solver with delays, from hit to hit")
        self._rates = c_loop(explicit_loop.rates_at_hit, "the rates of models with delays")

    def advance(self) -> list[float]:
        """Continue the run; return its status (`status.CROSSED`: at a pause), the rows written, the time."""
        self._runs.called(self._continue, self._buffers, *self._words)
        ended: list[float] = self._arrays.ended[0].tolist()
        return ended

    def rates(self, t: float, z: Vector) -> Vector:
        """Return the rates at time t and state z, which may read the past of the run."""
        self._arrays.work[2] = z
        self._rates(*self._words, t)
        return np.array(self._arrays.work[3])

    def change(self, z: Vector, shown: Vector, times: tuple[float, float], shift: Any) -> None:
        """Set the state at a pause to z, that of rows between two times to `shown`; `shift` is dt/dp of the pause."""
        self.z[:] = z
        self._workspace.hit_state[:] = shown
        self._workspace.progress[[SHOW_FROM, SHOW_UNTIL]] = times
        if shift is not None:
            self._workspace.shift[:], self._workspace.progress[HITS_MOVE] = shift, 1.0


class RunsOfCourses:
    """One run along each of several courses, all in one call, spread over threads.

    Parameters
    ----------
    runs : sequence of ExplicitRuns
        Without conditions to watch, and with equally many columns.

    Attributes
    ----------
    rows : ndarray, shape (n_rows, n_z + n_outputs)
        Rows of all runs, one run after another.
    """

    def __init__(self, runs: Sequence[ExplicitRuns]) -> None:
        self._runs = tuple(runs)
        self._loop = c_loop(explicit_loop.run_courses, "the explicit solver, for runs of several courses")
        ends = np.cumsum([0, *(r.shape[0] for r in runs)]).tolist()
        self.rows = np.empty((ends[-1], runs[0].shape[1]))
        self._inputs, self._ended = np.zeros((len(runs), max(r.n_inputs for r in runs))), np.empty((len(runs), 3))
        self._buffers = [
            r.arrays(self._inputs[i : i + 1], self.rows[None, a:b], self._ended[i : i + 1])
            for i, (r, a, b) in enumerate(zip(runs, ends, ends[1:], strict=False))
        ]
        places = [(r.at_course, at) for r, (_, at, _) in zip(runs, self._buffers, strict=True)]
        self._table = np.array(places, dtype=np.int64)
        self._pieces = in_pieces(len(runs)) if self.rows.size > _WORTH_THREADS else [(0, len(runs))]

    def run(self, inputs: Matrix, then: Callable[[int, int], None]) -> Matrix:
        """Write `rows` and return how each run ended, see `ExplicitRuns.many`.

        inputs : shape (n_run, n_inputs), the parameters, and any further inputs
        then : called as ``then(first, last)`` when the rows of runs first to last - 1 are written
        """
        self._inputs[:, : inputs.shape[1]] = inputs
        table = address(self._table)

        def piece(ends: tuple[int, int]) -> None:
            self._loop(table, *ends)
            for i in np.flatnonzero(self._ended[slice(*ends), 0] == status.STIFF).tolist():
                if self._runs[ends[0] + i].learns_stiff():
                    self._loop(table, ends[0] + i, ends[0] + i + 1)
            then(*ends)

        on_threads(piece, self._pieces)
        return self._ended
