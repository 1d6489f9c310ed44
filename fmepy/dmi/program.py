"""A system of modules, compiled: run it with the values of what comes from outside."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import numpy as np

from fmepy.dmi.memory import as_work
from fmepy.dmi.plan import Planned, Rules, Tables
from fmepy.dmi.running import Run, Running
from fmepy.dmi.statements import DT, FunctionStatement, Shape, Whole, element_names
from fmepy.dmi.variables import System
from fmepy.errors import ModelError, check_choice, listed
from fmepy.language.nodes import Number, nodes_in
from fmepy.types import IntVector, Matrix, Vector


class Program:
    """A system of modules in machine code.

    Parameters
    ----------
    system : System
    series : iterable of str
        Variables from outside that change along a run.
    guesses : iterable of str
        Assigned variables whose first values are given, as first guesses of loops.
    outputs : iterable of str
        The variables whose elements are columns of the result.
    dt : float
        The elementary step.
    method : {"euler", "rk4"}
    order : {"sorted", "written"}
        Whether statements are evaluated in the order of their needs, or all as one loop, as they are written.
    tol : float
        A loop has settled where no value v of it moves by more than tol max(1, |v|).
    max_iterations : int
        Executions of a loop after which it has not settled.
    unsettled : {"minimise", "error", "keep"}
        What is done then.

    Attributes
    ----------
    columns : tuple of str
    constants, series : tuple of (str, tuple of int)
        What must have a value at the start, and what changes, with their shapes.
    steps_of : dict of str to tuple of int
        The steps of the modules that read a variable from outside.
    rows_per_step : int
        Rows of a series a step: 2 for rk4, which evaluates half-way too.
    python_modules : tuple of str
    note : str
        Why not all of it is compiled, or "".

    Raises
    ------
    ModelError
        A method that cannot be: rk4 of modules with different steps, or with lag, rate or pulse.
    """

    def __init__(
        self,
        system: System,
        *,
        series: Iterable[str] = (),
        guesses: Iterable[str] = (),
        outputs: Iterable[str],
        dt: float,
        method: Literal["euler", "rk4"] = "euler",
        order: Literal["sorted", "written"] = "sorted",
        tol: float = 1e-9,
        max_iterations: int = 10,
        unsettled: Literal["minimise", "error", "keep"] = "minimise",
    ) -> None:
        check_choice(method, ("euler", "rk4"), "method")
        check_choice(order, ("sorted", "written"), "order")
        check_choice(unsettled, ("minimise", "error", "keep"), "unsettled")
        given = (tuple(series), tuple(guesses), tuple(outputs))
        self._made_from = (system, *given, dt, method, order, tol, max_iterations, unsettled)
        rules = Rules(float(dt), method, order, float(tol), int(max_iterations), unsettled)
        steps = {m.name: m.step for m in system.modules}
        shapes = {v.name: v.shape for v in system.variables.values()}
        if method == "rk4":
            _check_rk4(system)
        self._tables = Tables(as_work(system.statements, shapes, steps), rules)
        self._rules = rules
        self._planned: dict[Any, tuple[Planned, IntVector]] = {}
        self._alike: dict[Any, Planned] = {}
        self._lock = threading.Lock()
        self.columns = tuple(e for name in self._made_from[3] for e in element_names(name, shapes[name]))
        self._columns = self._positions(self._made_from[3])
        self._set_inputs(system, shapes, steps)
        self._set_lags()
        self._with_points = self._found_tables()
        self.rows_per_step = 2 if method == "rk4" else 1
        self.python_modules = tuple(self._tables.work.python)
        self.note = "; ".join(
            f"the module {name!r} is a Python function that cannot be written as equations, and runs as such: {why}"
            for name, why in self._tables.work.python.items()
        )

    def __reduce__(self) -> Any:
        return _again, self._made_from

    def _positions(self, names: Sequence[str]) -> IntVector:
        """Return where all elements of variables stand."""
        layout = self._tables.layout
        found = [np.arange(layout.of(n).start, layout.of(n).stop) for n in names]
        return np.concatenate([np.zeros(0, dtype=np.int64), *found]).astype(np.int64)

    def _set_inputs(self, system: System, shapes: dict[str, Shape], steps: dict[str, int]) -> None:
        """Set what comes from outside, and where it stands."""
        _, series, guesses, *_ = self._made_from
        given = dict.fromkeys(
            v.name
            for v in system.variables.values()
            if (v.exogenous and v.name not in series) or any(v.outside) or v.name in guesses
        )
        self.constants = tuple((n, shapes[n]) for n in given)
        self.series = tuple((n, shapes[n]) for n in series)
        self.steps_of = {
            v.name: tuple(sorted({steps[m] for m in v.read_in})) for v in system.variables.values() if v.exogenous
        }
        self._constant_places = self._positions(tuple(given))
        outside = [np.logical_not(system.variables[n].assigned) for n in series]
        self._is_forced = np.concatenate([np.zeros(0, dtype=bool), *outside])
        self._forced = self._positions(series)[self._is_forced]

    # --- plans

    def _plan(self, z: Vector, n_steps: int) -> tuple[Planned, IntVector]:
        """Return the plan of a run, and the schedule of each step."""
        key = self._short_lags(z), n_steps
        with self._lock:
            if key not in self._planned:
                steps = sorted({job.step for job in self._tables.work.jobs})
                active = np.array([np.arange(n_steps + 1) % s == 0 for s in steps]).reshape(len(steps), -1)
                patterns, which = np.unique(active, axis=1, return_inverse=True)
                masks = [frozenset(s for s, on in zip(steps, column, strict=True) if on) for column in patterns.T]
                masks.append(frozenset(steps))
                schedule = np.concatenate([[0], which.ravel()[1:] + 1]).astype(np.int64)
                like = (self._short_lags(z), tuple(masks))
                if like not in self._alike:
                    self._alike[like] = self._tables.planned(*like, self._columns, self._forced)
                self._planned[key] = self._alike[like], schedule
            return self._planned[key]

    def _set_lags(self) -> None:
        """Find the lags whose tau is constant: where it stands, and its number where the text has it."""
        tables = self._tables
        constant = np.ones(tables.layout.length, dtype=bool)
        literal: dict[str, float] = {}
        for job in tables.work.jobs:
            for target in job.targets or (job.target,):
                constant[tables.places(target)] = False
            if isinstance(job.value, Number):
                literal[job.target.name] = job.value.value
        constant[self._forced] = False
        self._always_short: set[int] = set()
        self._taus: list[tuple[int, IntVector, float]] = []
        for i in tables.lag_of:
            job = tables.work.jobs[i]
            tau, least = tables.places(job.arguments[1]), job.step * self._rules.dt * (1 - 1e-6)
            if constant[tau].all():
                self._taus.append((i, tau, least))
            elif not literal.get(job.arguments[1].name, 0.0) >= least:
                self._always_short.add(i)

    def _short_lags(self, z: Vector) -> frozenset[int]:
        """Return the lags that may need x of the same step: all but those of a constant tau of one step or more."""
        short = (i for i, tau, least in self._taus if not z[tau].min() >= least)
        return frozenset(self._always_short.union(short))

    # --- runs

    def run(
        self,
        constants: Vector,
        series: Sequence[Matrix],
        start: float,
        keep: IntVector,
        told: Callable[[int], None] | None = None,
    ) -> Run:
        """Run the system.

        Parameters
        ----------
        constants : ndarray
            The values of `constants`, one variable after the other.
        series : sequence of ndarray, shape (rows_per_step n_steps + 1, n_elements)
            The values of `series` on the grid.
        start : float
            The time of step 0.
        keep : ndarray of int
            The steps that are rows, increasing.
        told : callable, optional
            Is told the number of steps that are done, now and then.
        """
        z = np.zeros(self._tables.layout.length)
        z[self._constant_places] = constants
        z[self._tables.layout.begin[DT]] = self._rules.dt
        failed = self._wrong_tables(z)
        n_steps = int(keep[-1])
        planned, schedule = self._plan(z, n_steps)
        running = Running(self._tables, planned, schedule, z, self._forcing(series, n_steps), float(start), keep)
        return running.result(failed) if failed else running.whole(told)

    def _forcing(self, series: Sequence[Matrix], n_steps: int) -> Matrix:
        n = self.rows_per_step * n_steps + 1
        whole = np.hstack([np.zeros((n, 0)), *(np.asarray(s, dtype=float).reshape(n, -1) for s in series)])
        return np.ascontiguousarray(whole[:, self._is_forced])

    def _found_tables(self) -> list[tuple[str, str, slice]]:
        """Return the tables whose points come from outside: where they stand in the text, and their points."""
        return [
            (f"module {job.module!r}, line {job.line}", xs.name, self._tables.layout.of(xs.name))
            for job in self._tables.work.jobs
            if job.value is not None
            for node in nodes_in([job.value], "table")
            if isinstance(xs := node.args[1], Whole)
        ]

    def _wrong_tables(self, z: Vector) -> str:
        """Return what is wrong with the points of a table, or an empty string."""
        for where, name, places in self._with_points:
            if not (np.diff(z[places]) > 0).all():
                points = listed([f"{v:g}" for v in z[places]])
                return f"{where}: the points {name} of a table must increase; they are {points}"
        return ""


def _again(*made_from: Any) -> Program:
    """Return a program that was pickled."""
    system, series, guesses, outputs, dt, method, order, tol, max_iterations, unsettled = made_from
    return Program(
        system, series=series, guesses=guesses, outputs=outputs, dt=dt, method=method, order=order, tol=tol,
        max_iterations=max_iterations, unsettled=unsettled,
    )  # fmt: skip


def _check_rk4(system: System) -> None:
    """Refuse what has no place between two steps."""
    steps = {m.step for m in system.modules}
    if len(steps) > 1:
        raise ModelError(
            f"method='rk4' needs modules of one step; these have steps of {listed(sorted(steps))}. Use method='euler'."
        )
    for s in system.statements:
        for word in s.words if not isinstance(s, FunctionStatement) else ():
            if word in ("lag", "rate", "pulse"):
                raise ModelError(
                    f"method='rk4' evaluates between the steps, where {word}(...) has no value (module {s.module!r}, "
                    f"line {s.line}). Use method='euler'."
                )
