"""One run of a system: the compiled loop, and what it is left for: Python modules, and loops that do not settle."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fmepy.compiled.c_loops import address, c_loop
from fmepy.compiled.kernels import packed
from fmepy.dmi import run_loop
from fmepy.dmi.delays import too_short
from fmepy.dmi.loops import Loop, LoopResult
from fmepy.dmi.memory import Evaluation
from fmepy.dmi.plan import NamedPlan
from fmepy.dmi.returned import values_of
from fmepy.dmi.run_loop import State
from fmepy.errors import ModelError, listed
from fmepy.types import IntVector, Matrix, Vector

if TYPE_CHECKING:
    from fmepy.dmi.program import ModularProgram

METHODS = ("repeated", "minimised", "kept")
"""How the values of a loop were found, by the numbers that stand for it."""
_PARTS = 100  # in which a run is made where its progress is told
_SHOWN = 6  # values that a sentence quotes


@dataclass(frozen=True, slots=True, eq=False)
class Convergence:
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


@dataclass(frozen=True, slots=True, eq=False)
class ModularRun:
    """What came of a run.

    Attributes
    ----------
    rows : ndarray, shape (n_rows, n_columns)
        NaN from where it failed on.
    convergence : Convergence
    failed : str
        Why it did not come to its end, a sentence; or "".
    failed_step : int
        The step at which it failed, -1 if it did not.
    notes : tuple of str
        Sentences that are to be told once.
    """

    rows: Matrix
    convergence: Convergence
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
    planned : NamedPlan
    schedule : ndarray of int
        Of each step.
    z : ndarray
        All values, constants in their places.
    series : ndarray, shape (n_grid, n_forced)
    start : float
    keep : ndarray of int
    """

    def __init__(
        self, program: ModularProgram, planned: NamedPlan, schedule: IntVector, z: Vector, series: Matrix, start: float,
        keep: IntVector,
    ) -> None:  # fmt: skip
        self._program, self._planned, self._z = program, planned, z
        plan, n_steps = planned.plan, len(schedule) - 1
        lags = plan.lags.reshape(-1, 10).copy()
        lengths = lags[:, 7] * (n_steps // np.maximum(lags[:, 8], 1) + 1)
        lags[:, 9] = np.cumsum(lengths) - lengths
        self._plan = plan._replace(lags=lags.ravel())
        largest = int(np.diff(plan.loops).max(initial=0))
        n_loops = plan.schedules[plan.n_schedules + 1 :]
        n_levels = len(plan.levels) // 3
        self._state = State(
            at=np.array([0, 0, 0, -1, 0, 0, 0, 0, 0], dtype=np.int64),
            z=z,
            pointers=address(z) + 8 * program.pointed,
            schedule=schedule,
            keep=np.append(np.asarray(keep, dtype=np.int64), -1),
            series=series,
            history=np.zeros(int(lengths.sum())),
            old=np.zeros(largest),
            before=np.zeros(largest),
            saved=np.zeros(len(z)),
            total=np.zeros(n_levels),
            moves=np.zeros(n_levels),
            log=np.zeros((int(n_loops[schedule].sum()), 5)),
            rows=np.full((len(keep), len(plan.columns)), np.nan),
            start=start,
        )
        self._words = packed(self._plan), packed(self._state)
        self._notes: dict[tuple[str, ...], str] = {}  # of each loop the first
        self._sections = self._plan.sections.reshape(-1, 5)

    # --- the whole

    def result(self, failed: str = "") -> ModularRun:
        """Return what there is."""
        at, log = self._state.at, self._state.log
        log = log[: at[run_loop.LOGGED]]
        log = log[log[:, 2] > 0]
        step, group, executions, method = log[:, :4].astype(np.int64).T
        convergence = Convergence(step, group, executions, method, log[:, 4], self._planned.loops)
        return ModularRun(
            self._state.rows, convergence, failed, int(at[run_loop.STEP]) if failed else -1, tuple(self._notes.values())
        )

    def whole(self, told: Callable[[int], None] | None) -> ModularRun:
        """Run to the end, or to where it fails."""
        at, last = self._state.at, len(self._state.schedule) - 1
        by = last if told is None else max(1, -(-last // _PARTS))
        run = c_loop(run_loop.run, "the loop of modular models")
        try:
            while at[run_loop.STEP] <= last:
                at[run_loop.UNTIL] = min(last, at[run_loop.STEP] + by)
                run(*map(address, self._words))
                while at[run_loop.STATUS] != run_loop.DONE:
                    self._attend(int(at[run_loop.STATUS]))
                    at[run_loop.SECTION] += 1
                    run(*map(address, self._words))
                if told is not None:
                    told(min(int(at[run_loop.STEP]), last))
        except _FailedError as error:
            return self.result(str(error))
        return self.result()

    def _attend(self, status: int) -> None:
        """Do what the compiled loop was left for."""
        at = self._state.at
        section = int(at[run_loop.SECTION])
        if status == run_loop.BY_PYTHON:
            self._call(self._evaluation(int(self._sections[section, 0])))
        elif status == run_loop.NOT_FINITE:
            name = self._program.layout.names[self._plan.levels[3 * at[run_loop.ABOUT]]]
            raise _FailedError(f"the level {name} became NaN or infinite at {self._time()}")
        elif status == run_loop.NEGATIVE_LAG:
            raise self._negative_lag()
        elif status == run_loop.SHORT_DELAY:
            raise self._short_delay()
        else:
            self._settle(section, by_python=status == run_loop.LOOP_BY_PYTHON)

    # --- loops

    def _settle(self, section: int, by_python: bool) -> None:
        first, last, number, _, ordinal = self._sections[section].tolist()
        places = self._plan.places[self._plan.loops[number] : self._plan.loops[number + 1]]
        rules, z = self._program.rules, self._z
        started = z[places].copy() if by_python else self._state.before[: len(places)].copy()
        loop = Loop(z, places, self._executing(first, last), rules.tol)
        method, outcome = 0, LoopResult(False, rules.max_iterations, np.full(len(places), np.inf))
        if by_python:
            outcome = loop.settle(rules.max_iterations)
        names = self._planned.loops[number]
        if not outcome.settled and rules.unsettled == "keep":
            method = 2
        elif not outcome.settled and rules.unsettled == "minimise":
            method, outcome = 1, loop.minimise([z[places].copy(), started])
            self._notes.setdefault(
                names,
                f"the loop of {listed(names, most=_SHOWN)} did not settle in {rules.max_iterations} executions at "
                f"{self._time()}: its values are those that move least",
            )
        elif not outcome.settled and not by_python:
            outcome = Loop(z, places, self._executing(first, last), rules.tol).settle(1)
            outcome = LoopResult(False, rules.max_iterations + 1, outcome.moves)
        if not outcome.settled and method != 2:
            raise _FailedError(self._unsettled(places, names, outcome))
        line = self._state.log[self._state.at[run_loop.LOG] + ordinal]
        count = outcome.executions + (0 if by_python else rules.max_iterations)
        line[:] = (
            self._state.at[run_loop.STEP], number, max(line[2], count), max(line[3], method),
            np.abs(outcome.moves).max(initial=0.0),
        )  # fmt: skip

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
        parts: list[tuple[int, int, Evaluation | None]] = []
        for i in range(first, last):
            called = self._evaluation(i)
            if called.kind == "python":
                parts.append((i, i + 1, called))
            elif parts and parts[-1][2] is None:
                parts[-1] = (parts[-1][0], i + 1, None)
            else:
                parts.append((i, i + 1, None))

        def once() -> None:
            for a, b, called in parts:
                if called is not None:
                    self._call(called)
                    continue
                execute(*map(address, self._words), a, b)
                if self._state.at[run_loop.STATUS] == run_loop.NEGATIVE_LAG:
                    raise self._negative_lag()

        return once

    # --- modules that are Python functions

    def _call(self, called: Evaluation) -> None:
        """Call a Python module, and take what it returns."""
        values = [self._z[self._program.layout.of(t.name)].reshape(t.shape) for t in called.arguments]
        assert called.function is not None
        try:
            returned = called.function(*(v.copy() if v.ndim else float(v) for v in values))
        except ModelError:
            raise
        except Exception as error:  # whatever goes wrong in a user's function is a failed run
            said = f"{type(error).__name__}: {error}"
            raise _FailedError(f"the Python module {called.module!r} failed at {self._time()}: {said}") from error
        for target, found in zip(
            called.targets, values_of(returned, called.targets, called.module, float), strict=True
        ):
            self._z[self._program.layout.of(target.name)] = found

    # --- words

    def _evaluation(self, i: int) -> Evaluation:
        """Return the evaluation of a task in the plan's order."""
        found: Evaluation = self._program.work.evaluations[self._planned.pieces[int(self._plan.order[i])].evaluation]
        return found

    def _time(self) -> str:
        rules, at = self._program.rules, self._state.at
        t = self._state.start + at[run_loop.STEP] * rules.dt
        return f"time {t:.6g} (step {at[run_loop.STEP]}{', between two steps' if at[run_loop.STAGE] else ''})"

    def _short_delay(self) -> _FailedError:
        d, rules = self._program.work.delays[self._state.at[run_loop.ABOUT]], self._program.rules
        tau = float(self._z[self._program.layout.places_of(d.tau)].min())
        words = too_short(d.kind, tau, d.step, rules.dt, f" at {self._time()}")
        return _FailedError(f"module {d.module!r}, line {d.line}: {words}")

    def _negative_lag(self) -> _FailedError:
        called = self._program.work.evaluations[list(self._program.lags)[self._state.at[run_loop.ABOUT]]]
        tau = self._z[self._program.layout.places_of(called.arguments[1])].min()
        return _FailedError(
            f"module {called.module!r}, line {called.line}: lag(...) looks {tau:.6g} back at {self._time()}; that must not "
            "be negative"
        )
