"""One run of a system: the compiled loop, and what it is left for: loops that do not settle, and errors.

A loop of statements is a map G of its variables, one execution of its statements after the other; it has settled where
v = G(v). That it is executed again and again until nothing moves is done by `run_loop`. Where that does not come to an
end, sum (v - G(v))**2 is made least over what has not settled, and, where that does not settle the rest, over all of
the loop (F. Drepper, Winter Simulation Conference 1978).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from fmepy.compiled.c_loops import address, c_loop
from fmepy.compiled.kernels import packed
from fmepy.dmi import run_loop
from fmepy.dmi.delays import too_short
from fmepy.dmi.loop_tables import Loops
from fmepy.dmi.returned_values import values_of
from fmepy.dmi.run_loop import RunPlan, State
from fmepy.dmi.stateful_functions import Evaluation
from fmepy.errors import ModelError, listed
from fmepy.types import BoolVector, IntMatrix, IntVector, Matrix, Vector

if TYPE_CHECKING:
    from fmepy.dmi.compiled_program import ModularProgram

METHODS = ("repeated", "minimised", "kept")
"""How the values of a loop were found, by the numbers that stand for it."""
_PARTS = 100  # in which a run is made where its progress is told
_SHOWN = 6  # values that a sentence quotes
_FAR = 1e100  # what stands for a difference that is no number: its square is one
_CLOSE = 1e-15  # scipy's tolerances: as near as it gets


class Convergence(pd.DataFrame):
    """How loops settled, a row a loop and step: time group executions method residual.

    Two of them are compared as wholes: pandas compares what tables carry (``attrs``) when it joins them, and can do so
    with a plain DataFrame only by an error.
    """

    @property
    def _constructor(self) -> type[Convergence]:
        return Convergence

    def __eq__(self, other: object) -> Any:
        return self.equals(other) if isinstance(other, Convergence) else super().__eq__(other)


@dataclass(frozen=True, slots=True, eq=False)
class LoopLog:
    """How loops settled, one row a loop and step.

    Attributes
    ----------
    step, group, executions, method : ndarray of int
        The step; which of `groups`; how often its statements were executed; which of `METHODS`.
    residual : ndarray
        The largest move of one of its values in the last execution.
    groups : tuple of tuple of str
        The variables of the loops.
    """

    step: IntVector
    group: IntVector
    executions: IntVector
    method: IntVector
    residual: Vector
    groups: tuple[tuple[str, ...], ...]

    def table(self, start: float, dt: float) -> Convergence:
        """Return it with times and names."""
        groups = pd.Series([", ".join(self.groups[g]) for g in self.group], dtype=object)
        methods = pd.Series([METHODS[m] for m in self.method], dtype=object)
        counts = {"executions": self.executions, "method": methods, "residual": self.residual}
        return Convergence({"time": start + dt * self.step, "group": groups, **counts})


@dataclass(frozen=True, slots=True, eq=False)
class ModularRun:
    """What came of a run.

    Attributes
    ----------
    rows : ndarray, shape (n_rows, n_columns)
        NaN from where it failed on.
    convergence : LoopLog
    failed : str
        Why it did not come to its end, a sentence; or "".
    failed_step : int
        The step at which it failed, -1 if it did not.
    notes : tuple of str
        Sentences that are to be told once.
    """

    rows: Matrix
    convergence: LoopLog
    failed: str = ""
    failed_step: int = -1
    notes: tuple[str, ...] = ()


class _FailedError(Exception):
    """The run cannot go on; says why."""


class Running:
    """A run, from its start on.

    Parameters
    ----------
    program : ModularProgram
    plan : RunPlan
    loops : tuple of tuple of str
        The variables of each loop.
    schedule : ndarray of int
        Of each step.
    z : ndarray
        All values, constants in their places.
    series : ndarray, shape (n_grid, n_forced)
    start : float
    keep : ndarray of int
    """

    def __init__(
        self, program: ModularProgram, plan: RunPlan, loops: Loops, schedule: IntVector, z: Vector, series: Matrix,
        start: float, keep: IntVector,
    ) -> None:  # fmt: skip
        self._program, self._loops, self._z = program, loops, z
        n_steps = len(schedule) - 1
        lags = plan.lags.copy()
        lengths = lags[:, 7] * (n_steps // np.maximum(lags[:, 8], 1) + 1)
        lags[:, 9] = np.cumsum(lengths) - lengths
        self._error: tuple[str, BaseException]
        self._plan = plan._replace(lags=lags, tasks=self._with_functions(plan.tasks))
        largest = int(np.diff(plan.loops).max(initial=0))
        n_loops = plan.schedules[plan.n_schedules + 1 :]
        self._state = State(
            at=np.array([0, 0, 0, -1, 0, 0, 0, 0, 0, 0], dtype=np.int64),
            z=z,
            pointers=address(z) + 8 * program.pointed,
            schedule=schedule,
            keep=np.append(np.asarray(keep, dtype=np.int64), -1),
            series=series,
            history=np.zeros(int(lengths.sum())),
            old=np.zeros(largest),
            before=np.zeros(largest),
            saved=np.zeros(len(z)),
            total=np.zeros(len(plan.levels)),
            moves=np.zeros(len(plan.levels)),
            log=np.zeros((int(n_loops[schedule].sum()), 5)),
            rows=np.full((len(keep), len(plan.columns)), np.nan),
            start=start,
        )
        self._words = packed(self._plan), packed(self._state)
        self._notes: dict[tuple[str, ...], str] = {}  # of each loop the first

    # --- the whole

    def result(self, failed: str = "") -> ModularRun:
        """Return what there is."""
        at, log = self._state.at, self._state.log
        log = log[: at[run_loop.LOGGED]]
        log = log[log[:, 2] > 0]
        step, group, executions, method = log[:, :4].astype(np.int64).T
        convergence = LoopLog(step, group, executions, method, log[:, 4], self._loops)
        return ModularRun(
            self._state.rows, convergence, failed, int(at[run_loop.STEP]) if failed else -1, tuple(self._notes.values())
        )

    def whole(self, report: Callable[[int], None] | None) -> ModularRun:
        """Run to the end, or to where it fails."""
        at, last = self._state.at, len(self._state.schedule) - 1
        by = last if report is None else max(1, -(-last // _PARTS))
        run = c_loop(run_loop.run, "the loop of modular models")
        try:
            while at[run_loop.STEP] <= last:
                at[run_loop.UNTIL] = min(last, at[run_loop.STEP] + by)
                run(*map(address, self._words))
                while at[run_loop.STATUS] != run_loop.DONE:
                    self._attend(int(at[run_loop.STATUS]))
                    at[run_loop.SECTION] += 1
                    run(*map(address, self._words))
                if report is not None:
                    report(min(int(at[run_loop.STEP]), last))
        except _FailedError as error:
            return self.result(str(error))
        return self.result()

    def _attend(self, status: int) -> None:
        """Do what the compiled loop was left for."""
        at = self._state.at
        if status == run_loop.UNSETTLED:
            self._settle(*self._plan.sections[at[run_loop.SECTION]].tolist())
            return
        if status == run_loop.NOT_FINITE:
            name = self._program.layout.names[self._plan.levels[at[run_loop.ABOUT], 0]]
            raise _FailedError(f"the level {name} became NaN or infinite at {self._time()}")
        self._check(status)
        raise self._short_delay()

    def _check(self, status: int) -> None:
        """Raise what went wrong in a task."""
        if status == run_loop.NEGATIVE_LAG:
            raise self._negative_lag()
        if status == run_loop.RAISED:
            module, error = self._error
            if isinstance(error, ModelError) or not isinstance(error, Exception):
                raise error
            what = f"{type(error).__name__}: {error}"  # whatever goes wrong in a user's function is a failed run
            raise _FailedError(f"the Python module {module!r} failed at {self._time()}: {what}") from error

    # --- loops

    def _settle(self, first: int, last: int, number: int, ordinal: int) -> None:
        """Do with a loop what `unsettled` says."""
        places = self._plan.places[self._plan.loops[number] : self._plan.loops[number + 1]]
        names, rules, z = self._loops[number], self._program.rules, self._z
        loop, method = Loop(z, places, self._executing(first, last), rules.tol), 0
        if rules.unsettled == "minimise":
            method, result = 1, loop.minimise([z[places].copy(), self._state.before[: len(places)].copy()])
            self._notes.setdefault(
                names,
                f"the loop of {listed(names, most=_SHOWN)} did not settle in {rules.max_iterations} executions at "
                f"{self._time()}: its values are those that move least",
            )
        else:
            result = loop.from_values(z[places])
        if not result.settled or method == 0:
            raise _FailedError(self._unsettled(places, names, result))
        line, step = self._state.log[self._state.at[run_loop.LOG] + ordinal], self._state.at[run_loop.STEP]
        count, most = result.executions + rules.max_iterations, np.abs(result.moves).max(initial=0.0)
        line[:] = step, number, max(line[2], count), max(line[3], method), most

    def _unsettled(self, places: IntVector, names: tuple[str, ...], outcome: LoopResult) -> str:
        worst = np.argsort(-np.abs(outcome.moves), kind="stable")
        values = [
            f"{self._program.layout.names[places[i]]} = {self._z[places[i]]:.6g}, which moves by {outcome.moves[i]:.3g}"
            for i in worst
        ]
        more = f" and {len(values) - _SHOWN} more" if len(values) > _SHOWN else ""
        tried = " nor by minimising what moves" if self._program.rules.unsettled == "minimise" else ""
        return (
            f"the loop of {listed(names, most=_SHOWN)} did not settle at {self._time()} in "
            f"{self._program.rules.max_iterations} executions{tried}; the last values: "
            f"{'; '.join(values[:_SHOWN])}{more}"
        )

    def _executing(self, first: int, last: int) -> Callable[[], None]:
        """Return what executes the tasks first to last - 1 once."""
        execute = c_loop(run_loop.execute, "single steps of modular models")

        def once() -> None:
            execute(*map(address, self._words), first, last)
            self._check(int(self._state.at[run_loop.STATUS]))

        return once

    # --- modules that are Python functions

    def _with_functions(self, tasks: IntMatrix) -> IntMatrix:
        """Return tasks with the addresses of C functions that call Python modules."""
        kind, self._functions = ctypes.CFUNCTYPE(None, ctypes.c_double, *[ctypes.c_void_p] * 3), list[Any]()
        rows = tasks.copy()
        for row in np.flatnonzero(rows[:, 0] == 2):
            called = self._program.work.evaluations[rows[row, 1]]
            function = kind(lambda *_, called=called: self._call(called))
            self._functions.append(function)  # which live as long
            rows[row, 1] = ctypes.cast(function, ctypes.c_void_p).value or 0
        return rows

    def _call(self, called: Evaluation) -> None:
        """Call a Python module, and take what it returns; an error is kept until the compiled loop has been left."""
        values = [self._z[self._program.layout.of(t.name)].reshape(t.shape) for t in called.arguments]
        assert called.function is not None
        try:
            returned = called.function(*(v.copy() if v.ndim else float(v) for v in values))
            found = values_of(returned, called.targets, called.module, float)
            for target, new in zip(called.targets, found, strict=True):
                self._z[self._program.layout.of(target.name)] = new
        except BaseException as error:
            self._error = called.module, error
            self._state.at[run_loop.ERRORS] = 1

    # --- words

    def _time(self) -> str:
        rules, at = self._program.rules, self._state.at
        t = self._state.start + at[run_loop.STEP] * rules.dt
        return f"time {t:.6g} (step {at[run_loop.STEP]}{', between two steps' if at[run_loop.STAGE] else ''})"

    def _short_delay(self) -> _FailedError:
        d, rules = self._program.work.delays[self._state.at[run_loop.ABOUT]], self._program.rules
        tau = float(self._z[self._program.layout.span(d.tau)].min())
        words = too_short(d.kind, d.order, tau, d.step, rules.dt, f" at {self._time()}")
        return _FailedError(f"module {d.module!r}, line {d.line}: {words}")

    def _negative_lag(self) -> _FailedError:
        called = self._program.work.evaluations[list(self._program.lags)[self._state.at[run_loop.ABOUT]]]
        tau = self._z[self._program.layout.span(called.arguments[1])].min()
        return _FailedError(
            f"module {called.module!r}, line {called.line}: lag(...) looks {tau:.6g} back at {self._time()}; that must "
            "not be negative"
        )


class LoopResult(NamedTuple):
    """What became of a loop that did not settle.

    Attributes
    ----------
    settled : bool
    executions : int
    moves : ndarray
        What each value moves by in one more execution.
    """

    settled: bool
    executions: int
    moves: Vector


class Loop:
    """The values of one loop, and how it is executed once.

    Parameters
    ----------
    z : ndarray
        All values; those of the loop are changed.
    places : ndarray of int
        Where those of the loop stand.
    execute : callable
        Executes the loop once.
    tol : float
        A value v has settled where it moves by no more than tol max(1, |v|).
    """

    def __init__(self, z: Vector, places: IntVector, execute: Callable[[], None], tol: float) -> None:
        self._z, self._places, self._execute, self._tol = z, places, execute, tol
        self._executions = 0

    def from_values(self, values: Vector) -> LoopResult:
        """Return what one execution from values on does."""
        self._z[self._places] = values
        self._execute()
        self._executions += 1
        after = self._z[self._places]
        with np.errstate(invalid="ignore"):
            moves = np.where(after == values, 0.0, after - values)
        return LoopResult(bool(self._is_settled(moves).all()), self._executions, moves)

    def minimise(self, starts: list[Vector]) -> LoopResult:
        """Find values that do not move, from the start at which they move least."""
        best, least = self._z[self._places].copy(), np.inf
        for start in starts:
            size = float(np.sum(self.from_values(start).moves ** 2)) if np.isfinite(start).all() else np.inf
            if size < least:
                best, least = start.copy(), size
        found = self.from_values(best)
        for wanted in (~self._is_settled(found.moves), np.ones(len(best), dtype=bool)):
            best = self._least(best, wanted)
            found = self.from_values(best)
            if found.settled:
                return found
        self._z[self._places] = best
        return found

    def _least(self, values: Vector, wanted: BoolVector) -> Vector:
        """Return values of which those that are wanted move least."""
        from scipy.optimize import least_squares

        out = values.copy()

        def residuals(x: Vector) -> Vector:
            out[wanted] = x
            moves = self.from_values(out).moves[wanted]
            return np.where(np.abs(moves) < _FAR, moves, _FAR)

        if np.isfinite(residuals(values[wanted].copy())).all():
            found = least_squares(residuals, values[wanted], x_scale="jac", xtol=_CLOSE, ftol=_CLOSE, gtol=_CLOSE)
            out[wanted] = found.x
        return out

    def _is_settled(self, moves: Vector) -> BoolVector:
        settled: BoolVector = np.abs(moves) <= self._tol * np.maximum(1.0, np.abs(self._z[self._places]))
        return settled
