"""A system of modules, compiled: run it with the values of what comes from outside."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from fmepy.dmi.evaluation_order import Layout
from fmepy.dmi.loop_tables import Loops, Rules, plan_of
from fmepy.dmi.modular_run import ModularRun, Running
from fmepy.dmi.run_loop import RunPlan
from fmepy.dmi.stateful_functions import Evaluation, Work
from fmepy.dmi.statement_code import compiled_statements, statement_text
from fmepy.dmi.statements import DT, element_names
from fmepy.dmi.variables import ModuleSystem
from fmepy.errors import ModelError, listed
from fmepy.language.nodes import Number
from fmepy.types import IntVector, Matrix, Vector


class ModularProgram:
    """A system of modules in machine code.

    Parameters
    ----------
    system : ModuleSystem
    rules : Rules
        How it is run.
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
        self._made_from = (system, rules, outputs, series)
        if rules.method == "rk4":
            _check_rk4(system)
        self.rules, self.work = rules, Work(system)
        self.layout = Layout(self.work.shapes)
        self._set_functions()
        changing = (system.variables[name] for name in series)
        self.columns = tuple(e for name in outputs for e in element_names(name, self.work.shapes[name]))
        self.series = tuple(e for v in changing for e, mine in zip(v.elements, v.assigned, strict=True) if not mine)
        self.series += tuple(e for draw in self.work.draws for e in draw.elements)
        self.output_places, self.forced = self.places(self.columns), self.places(self.series)
        self._set_lags()
        self._schedules: dict[int, tuple[tuple[frozenset[int], ...], IntVector]] = {}
        self._plans: dict[Any, tuple[RunPlan, Loops]] = {}
        self._lock = threading.Lock()
        self.rows_per_step = 2 if rules.method == "rk4" else 1
        self.python_modules = tuple(self.work.python)
        self.note = "; ".join(
            f"the module {name!r} is a Python function that cannot be written as equations, and runs as such: {why}"
            for name, why in self.work.python.items()
        )

    def __reduce__(self) -> Any:
        return ModularProgram, self._made_from

    def places(self, elements: Iterable[str]) -> IntVector:
        """Return where elements stand in the array of all values."""
        return np.array([self.layout.place[e] for e in elements], dtype=np.int64)

    def _set_functions(self) -> None:
        """Compile; set of each evaluation the address of its function, its first pointer, and where pointers point."""
        texts, places = [], list[int]()
        assigned = {e.target.name for e in self.work.evaluations}
        self.begins: list[int] = []
        self._points: list[tuple[Evaluation, str, int]] = []  # the xs of tables from outside
        for e in self.work.evaluations:
            self.begins.append(len(places))
            if e.value is not None:
                texts.append(statement_text(e.target, e.value, self.work.shapes))
                places += [self.layout.begin[name] for name in texts[-1].names]
                self._points += [(e, *point) for point in texts[-1].points if point[0] not in assigned]
        self._codes = compiled_statements(texts)  # which live as long
        codes = iter(self._codes)
        self.addresses = [0 if e.value is None else next(codes).address for e in self.work.evaluations]
        self.pointed: IntVector = np.array(places, dtype=np.int64)

    # --- plans

    def _plan(self, z: Vector, n_steps: int) -> tuple[RunPlan, Loops, IntVector]:
        """Return the plan of a run, the variables of its loops, and the schedule of each step."""
        short = self._short_lags(z)
        with self._lock:
            if n_steps not in self._schedules:
                steps = sorted({e.step for e in self.work.evaluations})
                active = np.array([np.arange(n_steps + 1) % s == 0 for s in steps]).reshape(len(steps), -1)
                patterns, which = np.unique(active, axis=1, return_inverse=True)
                masks = [frozenset(s for s, on in zip(steps, column, strict=True) if on) for column in patterns.T]
                schedule = np.concatenate([[0], which.ravel()[1:] + 1]).astype(np.int64)
                self._schedules[n_steps] = (*masks, frozenset(steps)), schedule
            masks_of_all, schedule = self._schedules[n_steps]
            if (short, masks_of_all) not in self._plans:
                self._plans[short, masks_of_all] = plan_of(self, short, masks_of_all)
            return *self._plans[short, masks_of_all], schedule

    def _set_lags(self) -> None:
        """Find the lags, and those whose tau is constant: where it stands, and its number where the text has it."""
        evaluations, span = self.work.evaluations, self.layout.span
        self.lags = {i: n for n, i in enumerate(i for i, e in enumerate(evaluations) if e.kind == "lag")}
        constant = np.ones(self.layout.length, dtype=bool)
        literal: dict[str, float] = {}
        for e in evaluations:
            constant[self.layout.places(e.targets or (e.target,))] = False
            if isinstance(e.value, Number):
                literal[e.target.name] = e.value.value
        constant[self.forced] = False
        self._always_short: set[int] = set()
        self._taus: list[tuple[int, range, float]] = []
        for i in self.lags:
            lag = evaluations[i]
            tau, least = span(lag.arguments[1]), lag.step * self.rules.dt * (1 - 1e-6)
            if lag.whole:
                continue
            if constant[tau].all():
                self._taus.append((i, tau, least))
            elif not literal.get(lag.arguments[1].name, 0.0) >= least:
                self._always_short.add(i)

    def _short_lags(self, z: Vector) -> frozenset[int]:
        """Return the lags that may need x of the same step: all but those of a constant tau of one step or more."""
        return frozenset(self._always_short.union(i for i, tau, least in self._taus if not z[tau].min() >= least))

    # --- runs

    def values(self, known: Mapping[str, float]) -> Vector:
        """Return the array of all values at the start: what is known of elements, else zeros."""
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
            Gets the number of steps that are done, now and then.
        """
        failed = self._wrong_tables(z)
        running = Running(self, *self._plan(z, int(keep[-1])), z, series, float(start), keep)
        return running.result(failed) if failed else running.whole(report)

    def _wrong_tables(self, z: Vector) -> str:
        """Return what is wrong with the points of a table that come from outside, or an empty string."""
        for e, name, apart in self._points:
            points = z[self.layout.of(name)][::apart]
            if not (np.diff(points) > 0).all():
                xs = listed([f"{v:g}" for v in points])
                return f"module {e.module!r}, line {e.line}: the points {name} of a table must increase; they are {xs}"
        return ""


def _check_rk4(system: ModuleSystem) -> None:
    """Refuse what has no place between two steps."""
    system.check_one_step("method='rk4'", " Use method='euler'.")
    if called := system.call_of("lag", "delay_fixed", "rate", "pulse"):
        word, s = called
        raise ModelError(
            f"method='rk4' evaluates between the steps, where {word}(...) has no value (module {s.module!r}, line "
            f"{s.line}). Use method='euler'."
        )
