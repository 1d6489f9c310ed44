"""One run of a system: the compiled loop, with Python for loops that do not settle, Python modules and errors.

A loop of statements is a map G of its variables, one execution of its statements in order; it has settled where
v = G(v). `run_loop` executes it repeatedly until nothing moves. If it does not settle, sum (v - G(v))**2 is minimised
over the variables that still move, and, if others move then, over all variables of the loop (F. Drepper, Winter
Simulation Conference 1978).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from itertools import count
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pandas as pd

from fmepy.compiled.c_loops import address, c_loop
from fmepy.compiled.kernels import packed
from fmepy.dmi import run_loop
from fmepy.dmi.diagnostics import too_short
from fmepy.dmi.run_loop import RunPlan, State
from fmepy.dmi.stateful_functions import Evaluation, random_rows
from fmepy.dmi.statements import END, START, Reference
from fmepy.dmi.traced import values_of
from fmepy.errors import ModelError, SimulationError, listed
from fmepy.models.simulated import BoundRuns
from fmepy.parameters.names import as_theta
from fmepy.types import BoolVector, Cube, IntMatrix, IntVector, Matrix, Vector

if TYPE_CHECKING:
    from fmepy.dmi.compiled_program import ModularProgram
    from fmepy.dmi.model import ModularModel

Loops: TypeAlias = "tuple[tuple[str, ...], ...]"
"""The variables of each loop of a plan."""
METHODS = ("repeated", "minimised", "kept")
"""How the values of a loop were computed, by the numbers in the log."""
MOST_ELEMENTS = 3000
"""Largest number of elements of a system whose steps become equations for sensitivities: some seconds of work."""
_N_REPORTS = 100  # reports of progress in a run
_MOST_QUOTED = 6  # values that a message quotes
_HUGE = 1e100  # replaces a residual that is not finite; its square is finite
_TIGHT = 1e-15  # tolerances of least_squares


class Convergence(pd.DataFrame):
    """How loops settled, a row a loop and step: time group executions method residual.

    ``==`` of two of them is one truth value: pandas compares the ``attrs`` of tables when it joins them, which is an
    error for plain DataFrames.
    """

    @property
    def _constructor(self) -> type[Convergence]:
        return Convergence

    def __eq__(self, other: object) -> Any:
        return self.equals(other) if isinstance(other, Convergence) else super().__eq__(other)


class ModularRun:
    """A run of a system, and its result.

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

    Attributes
    ----------
    rows : ndarray, shape (n_rows, n_columns)
        NaN from a failed step on.
    """

    def __init__(
        self, program: ModularProgram, plan: RunPlan, loops: Loops, schedule: IntVector, z: Vector, series: Matrix,
        start: float, keep: IntVector,
    ) -> None:  # fmt: skip
        self._program, self._loops, self._z = program, loops, z
        self.rows: Matrix = np.full((len(keep), len(plan.columns)), np.nan)
        n_steps = len(schedule) - 1
        lags = plan.lags.copy()
        lengths = lags[:, 7] * (n_steps // np.maximum(lags[:, 8], 1) + 1)
        lags[:, 9] = np.cumsum(lengths) - lengths
        self._error: BaseException
        self._functions: list[Any] = []  # references to C functions, which must live as long as the run
        self._plan = plan._replace(lags=lags, tasks=self._with_functions(plan.tasks))
        largest = int(np.diff(plan.loops).max(initial=0))
        self._state = State(
            at=np.zeros(6, dtype=np.int64),
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
            log=np.zeros((len(schedule) * len(loops), 3)),
            rows=self.rows,
            unsettled=self._c_function(self._settle, *[ctypes.c_int64] * 3),
            start=start,
        )
        self._words = packed(self._plan), packed(self._state)
        self._notes: dict[tuple[str, ...], str] = {}  # the first of each loop

    @property
    def notes(self) -> tuple[str, ...]:
        """Messages to be logged."""
        return tuple(self._notes.values())

    @property
    def convergence(self) -> Convergence:
        """How the loops settled."""
        logged = np.flatnonzero(self._state.log[:, 0])
        step, loop = np.divmod(logged, max(1, len(self._loops)))
        executions, method, residual = self._state.log[logged].T
        groups = pd.Series([", ".join(self._loops[i]) for i in loop], dtype=object)
        methods = pd.Series([METHODS[m] for m in method.astype(np.int64)], dtype=object)
        counts = {"executions": executions.astype(np.int64), "method": methods, "residual": residual}
        return Convergence({"time": self._state.start + self._program.rules.dt * step, "group": groups, **counts})

    def to_end(self, report: Callable[[int], None] | None) -> ModularRun:
        """Run to the end, and return the run; SimulationError with the time where it fails."""
        at, last = self._state.at, len(self._state.schedule) - 1
        by = last if report is None else max(1, -(-last // _N_REPORTS))
        run = c_loop(run_loop.run, "the loop of modular models")
        try:
            while at[run_loop.STEP] <= last:
                at[run_loop.UNTIL] = min(last, at[run_loop.STEP] + by)
                run(*map(address, self._words))
                self._check()
                if report is not None:
                    report(min(int(at[run_loop.STEP]), last))
        finally:
            self._functions.clear()  # they refer to the run
        return self

    def _check(self) -> None:
        """Raise the error of the compiled loop, if it has one."""
        status, about = self._state.at[[run_loop.STATUS, run_loop.SUBJECT]].tolist()
        if status == run_loop.RAISED:
            raise self._error
        if status == run_loop.NOT_FINITE:
            name = self._program.layout.names[self._plan.levels[about, 0]]
            raise self._failure(f"the level {name} became NaN or infinite at {self._time()}")
        if status == run_loop.NEGATIVE_LAG:
            called = self._program.flat.evaluations[list(self._program.lags)[about]]
            raise self._failure(
                f"module {called.module!r}, line {called.line}: lag(...) looks {self._least(called.arguments[1]):.6g} "
                f"back at {self._time()}; that must not be negative"
            )
        if status == run_loop.SHORT_DELAY:
            d = self._program.flat.delays[about]
            words = too_short(
                d.kind, d.order, self._least(d.tau), d.step, self._program.rules.dt, f" at {self._time()}"
            )
            raise self._failure(f"module {d.module!r}, line {d.line}: {words}")

    def _least(self, tau: Reference) -> float:
        return float(self._z[self._program.layout.span(tau)].min())

    def _failure(self, message: str) -> SimulationError:
        return SimulationError(message, time=self._now)

    @property
    def _now(self) -> float:
        return float(self._state.start + self._state.at[run_loop.STEP] * self._program.rules.dt)

    def _time(self) -> str:
        step, stage = self._state.at[[run_loop.STEP, run_loop.STAGE]]
        return f"time {self._now:.6g} (step {step}{', between two steps' if stage else ''})"

    # --- functions of Python that the compiled loop calls

    def _c_function(self, function: Callable[..., None], *kinds: Any) -> int:
        """Return the address of a Python function as a C function; its error is raised after the compiled loop."""

        def called(*arguments: Any) -> None:
            try:
                function(*arguments)
            except BaseException as error:
                self._error = error
                self._state.at[run_loop.STATUS] = run_loop.RAISED

        self._functions.append(ctypes.CFUNCTYPE(None, *kinds)(called))
        return ctypes.c_int64.from_buffer(self._functions[-1]).value  # ctypes.cast would make a circle

    def _with_functions(self, tasks: IntMatrix) -> IntMatrix:
        """Return tasks with the addresses of C functions that call Python modules."""
        rows = tasks.copy()
        for row in np.flatnonzero(rows[:, 0] == 2):
            call = partial(self._call, self._program.flat.evaluations[rows[row, 1]])
            rows[row, 1] = self._c_function(call, ctypes.c_double, *[ctypes.c_void_p] * 3)
        return rows

    def _call(self, called: Evaluation, *_: Any) -> None:
        """Call a Python module, and set the variables that it assigns."""
        values = [self._z[self._program.layout.of(t.name)].reshape(t.shape) for t in called.arguments]
        assert called.function is not None
        try:
            returned = called.function(*(v.copy() if v.ndim else float(v) for v in values))
            returned_values = values_of(returned, called.targets, called.module, float)
        except ModelError:
            raise
        except Exception as error:  # whatever goes wrong in a user's function is a failed run
            what = f"{type(error).__name__}: {error}"
            raise self._failure(f"the Python module {called.module!r} failed at {self._time()}: {what}") from error
        for target, new in zip(called.targets, returned_values, strict=True):
            self._z[self._program.layout.of(target.name)] = new

    # --- loops that do not settle

    def _settle(self, first: int, last: int, number: int) -> None:
        """Minimise the moves of a loop, if `unsettled` asks for it; fail if any value still moves."""
        places = self._plan.places[self._plan.loops[number] : self._plan.loops[number + 1]]
        z, rules, names = self._z, self._program.rules, self._loops[number]
        execute, counted = c_loop(run_loop.execute, "single steps of modular models"), count(rules.max_iterations)

        def moves(values: Vector) -> Vector:
            """Return the moves of values in one more execution."""
            z[places] = values
            next(counted)
            execute(*map(address, self._words), first, last)
            self._check()
            with np.errstate(invalid="ignore"):
                return np.where(z[places] == values, 0.0, z[places] - values)

        def settled(moves: Vector) -> BoolVector:
            return np.abs(moves) <= rules.tol * np.maximum(1.0, np.abs(z[places]))

        if rules.unsettled == "error":
            raise self._failure(self._unsettled(places, names, moves(z[places])))
        self._notes.setdefault(
            names,
            f"the loop of {listed(names, most=_MOST_QUOTED)} did not settle in {rules.max_iterations} executions at "
            f"{self._time()}: its values are those that move least",
        )
        best, left = _least_moving(moves, settled, [z[places].copy(), self._state.before[: len(places)].copy()])
        if not settled(left).all():
            z[places] = best
            raise self._failure(self._unsettled(places, names, left))
        line = self._state.log[self._state.at[run_loop.STEP] * len(self._loops) + number]
        line[:] = max(line[0], next(counted)), max(line[1], 1), np.abs(left).max(initial=0.0)

    def _unsettled(self, places: IntVector, names: tuple[str, ...], moves: Vector) -> str:
        values = [
            f"{self._program.layout.names[places[i]]} = {self._z[places[i]]:.6g}, which moves by {moves[i]:.3g}"
            for i in np.argsort(-np.abs(moves), kind="stable")
        ]
        more = f" and {len(values) - _MOST_QUOTED} more" if len(values) > _MOST_QUOTED else ""
        tried = " nor by minimising what moves" if self._program.rules.unsettled == "minimise" else ""
        return (
            f"the loop of {listed(names, most=_MOST_QUOTED)} did not settle at {self._time()} in "
            f"{self._program.rules.max_iterations} executions{tried}; the last values: "
            f"{'; '.join(values[:_MOST_QUOTED])}{more}"
        )


def _least_moving(
    moves: Callable[[Vector], Vector], settled: Callable[[Vector], BoolVector], starts: Sequence[Vector]
) -> tuple[Vector, Vector]:
    """Return the values that move least, from the best of several starts, and their moves."""
    sizes = [min(np.inf, float(np.sum(moves(x) ** 2))) if np.isfinite(x).all() else np.inf for x in starts]
    best = starts[int(np.argmin(sizes))]
    left = moves(best)
    for wanted in (~settled(left), np.ones(len(best), dtype=bool)):
        best = _minimise(moves, best, wanted)
        left = moves(best)
        if settled(left).all():
            break
    return best, left


def _minimise(moves: Callable[[Vector], Vector], values: Vector, wanted: BoolVector) -> Vector:
    """Return values after minimising the moves of the wanted ones."""
    from scipy.optimize import least_squares

    out = values.copy()

    def residuals(x: Vector) -> Vector:
        out[wanted] = x
        distances = moves(out)[wanted]
        return np.where(np.abs(distances) < _HUGE, distances, _HUGE)

    if np.isfinite([*values[wanted], *residuals(values[wanted].copy())]).all():
        minimum = least_squares(residuals, values[wanted], x_scale="jac", xtol=_TIGHT, ftol=_TIGHT, gtol=_TIGHT)
        out[wanted] = minimum.x
    return out


# --- the model as a function of its parameters


class BoundModular(BoundRuns):
    """The model bound to parameters and times; series on the grid are prepared once."""

    _model: ModularModel

    def __init__(self, model: ModularModel, names: tuple[str, ...], times: Vector) -> None:
        super().__init__(model, names, times)
        self.engine = model.engine
        program, inputs = model.program, model.inputs
        self._program = program
        self._keep = model.steps_of(times).astype(np.int64)
        self._start = float(model.times[0])
        grid = self._start + np.arange(program.rows_per_step * self._keep[-1] + 1) * (model.dt / program.rows_per_step)
        random = random_rows(program.flat.draws, model.seed, int(self._keep[-1])).repeat(program.rows_per_step, axis=0)
        self._series = np.hstack([inputs.sampled(grid, program.rows_per_step), random[: len(grid)]])
        ends = {START: self._start, END: float(model.times[-1])}
        self._z = program.values(inputs.starts(self._start) | self._values | ends)
        self._places = program.places(names)
        at = {name: i for i, name in enumerate(program.columns)}
        self.columns = np.array([at[name] for name in self.var_names], dtype=np.intp)
        self.runs_on_threads = not program.python_modules

    def run(self, theta: Vector, report: Callable[[int], None] | None = None) -> ModularRun:
        """Run the model; return the rows of all columns of the program, and the log of its loops.

        Raises
        ------
        SimulationError
            The run failed; with the parameters and the time.
        """
        z = self._z.copy()
        z[self._places] = as_theta(theta, self.names)
        try:
            return self._program.run(z, self._series, self._start, self._keep, report)
        except SimulationError as error:
            error.parameters = {**self._values, **dict(zip(self.names, map(float, theta), strict=True))}
            raise

    def simulate(self, theta: Vector) -> Matrix:
        """Return Y, shape (n_time, n_var)."""
        rows: Matrix = self.run(theta).rows[:, self.columns]
        return rows

    @cached_property
    def _equations(self) -> Any:
        """The bound difference equations of the steps, if they have the same runs; else None."""
        model = self._model
        if len(self._program.columns) > MOST_ELEMENTS:
            return None
        try:
            steps = model.compiled("difference")
            known = set(map(str, steps.parms.index))
            names = [k if k in known else f"{k}(0)" for k in self.names]
            if not known >= set(names) or not set(self.var_names) <= set(steps.var_names):
                return None
            bound = steps.bind(names, times=np.unique([model.times[0], *self.times]))
            rows, order = np.isin(bound.times, self.times), [steps.var_names.index(k) for k in self.var_names]
            if not np.allclose(bound.simulate(self.theta0)[rows][:, order], self.simulate(self.theta0), rtol=1e-8):
                return None
        except (ModelError, SimulationError):
            return None
        return bound, rows, order

    @property
    def exact(self) -> bool:  # type: ignore[override]  # known once equations were tried
        """Whether sensitivities are exact: those of the system's difference equations."""
        return self._equations is not None

    def sensitivities(self, theta: Vector) -> tuple[Matrix, Cube]:
        """Return Y and S, shape (n_time, n_var, n_par): exact where the steps are equations, else by differences."""
        if self._equations is None:
            return super().sensitivities(theta)
        bound, rows, order = self._equations
        _, S = bound.sensitivities(as_theta(theta, self.names))
        return self.simulate(theta), S[rows][:, order]
