"""Runners: a model's definition, an engine and a set of rows, made into ``run(p) -> trajectory``.

A runner owns what one binding of a model needs: the system for the bound parameters, the timeline, initial values and
events with their derivatives. It holds no results and may be called again and again.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from fmepy.compiled.llvm_code import NotWritableError
from fmepy.errors import FmepyError, SimulationError
from fmepy.models.definition.definition import Definition
from fmepy.models.definition.values import ValueTable
from fmepy.models.engines.base import Engine, SolverOptions, Stepper
from fmepy.models.engines.fixed import continued, fixed_grid, fixed_run
from fmepy.models.running.algebraic import CompletedStepper, Settled
from fmepy.models.running.changes import EventTable, Settle
from fmepy.models.running.events import Event
from fmepy.models.running.forcings import forcing_jumps, forcing_values, stage_values
from fmepy.models.running.problem import Problem, has_slopes, problem_of, rates_at, roots_around
from fmepy.models.running.root_run import Hit, RootRun, StepRootRun
from fmepy.models.running.system import build_system, scales_of, system_rates
from fmepy.models.running.timeline import Timeline, course_of, finite_rows, run_segments, snapped
from fmepy.types import Matrix, Vector


class Runner:
    """``run(p) -> Z`` at the rows of a timeline, with or without sensitivities.

    Attributes
    ----------
    name : str
        The engine.
    names : tuple of str
        Parameters with sensitivities (empty: none).
    """

    def __init__(
        self, name: str, definition: Definition, events: tuple[Event, ...], timeline: Timeline, names: tuple[str, ...]
    ) -> None:
        self.name, self.names, self.timeline = name, names, timeline
        self.n_states = len(definition.states)
        self._definition = definition
        self._initial = ValueTable(definition.initial, definition.parameters, names)
        self._events = EventTable(events, definition, names)
        self._places = [definition.parameters.index(k) for k in names]
        self._settled = Settled(definition, names) if definition.algebraic else None

    def run(self, p: Vector, hits: list[Hit] | None = None) -> tuple[Matrix, Any]:
        """Return Y, shape (n_time, n_state), and S, shape (n_time, n_state, n_names) (None without sensitivities).

        Of `whole` runs Y has the outputs too, shape (n_time, n_var). A list of `hits` gets those of the root events.
        """
        hits = [] if hits is None else hits
        if self.whole is not None:
            return self.whole.with_slopes(p) if self.names else (self.whole.one(p), None)
        plain = p.tolist()
        y = self._initial.value(plain)
        if not self.names:
            return self._begun(p, y, None, hits), None
        scales = scales_of(p[self._places])
        S = self._initial.slope(plain) * scales
        Z = self._begun(p, np.concatenate((y, S.T.ravel())), scales, hits)
        n = self.n_states
        return Z[:, :n], Z[:, n:].reshape(len(Z), len(scales), n).transpose(0, 2, 1) / scales

    def _begun(self, p: Vector, z: Vector, scales: Vector | None, hits: list[Hit]) -> Matrix:
        """Run from z, made consistent where there are algebraic states."""
        settle = None
        if self._settled is not None:
            settle = self._settled.of(p, scales)
            z = settle(self.timeline.start, z)
        apply_events = self._events.prepared(p.tolist(), scales, settle)
        return self._solve(p, z, scales, apply_events, hits, settle)

    def _solve(
        self, p: Vector, z: Vector, scales: Vector | None, apply_events: Any, hits: list[Hit], settle: Settle | None
    ) -> Matrix:
        raise NotImplementedError

    @property
    def whole(self) -> Any:
        """Whole runs from parameters to outputs (`models.engines.base`, 5.), None where there are none."""
        return None


class _AdaptiveRunner(Runner):
    def __init__(self, stepper: Stepper, problem: Problem, *rest: Any) -> None:
        super().__init__(stepper.name, *rest)
        system = problem.system
        self._stepper: Any = stepper
        self._system, self._layout, self._problem = system, problem.layout, problem
        self._roots = problem.roots
        self._segments = None if system is not None and system.planned else self.timeline.segments()
        self._inputs = np.zeros(problem.layout.size + (problem.n_watched if stepper.watches_switches else 0))
        self._is_smooth = self._one_smooth_stretch()

    def _one_smooth_stretch(self) -> bool:
        """Whether nothing happens between the start and the last row, so that one call of the engine gives all rows."""
        has_switches = self._system is not None and bool(self._system.switches)
        if (
            has_switches
            or self._roots is not None
            or self._segments is None
            or len(self._segments) != 1
            or self.timeline.first_events
        ):
            return False
        if self._layout.n_forcings:
            self._inputs[self._layout.lines] = self._segments[0].lines
            self._inputs[self._layout.origin] = self.timeline.start
        return True

    def _solve(
        self, p: Vector, z: Vector, scales: Vector | None, apply_events: Any, hits: list[Hit], settle: Settle | None
    ) -> Matrix:
        inputs = self._inputs.copy()
        inputs[: len(p)] = p
        if scales is not None:
            inputs[self._layout.scales] = scales
        if self._is_smooth:
            rows = self.timeline.rows
            return finite_rows(self._stepper.advance(self.timeline.start, z, inputs, rows)[1], rows)
        roots = None
        if self._roots is not None:
            rates, size = self._problem.rates, self._layout.size
            start, end = self.timeline.start, float(self.timeline.rows[-1])
            roots = RootRun(
                self._roots,
                inputs,
                lambda t, z: rates(t, z, inputs[:size].tolist()),
                hits,
                settle,
                start=start,
                end=end,
            )
        return run_segments(
            self._stepper, self._system, self._layout, self.timeline, self._segments, z, inputs, apply_events, roots
        )

    @cached_property
    def whole(self) -> Any:
        """Whole runs, where the engine has them and nothing happens at times that depend on the run."""
        system = self._system
        if system is None or system.n_watched or not hasattr(self._stepper, "along"):
            return None
        if self.names and system.switches:  # sensitivities jump there
            return None
        course = course_of(self.timeline, system, self._events.events)
        try:
            return None if course is None else self._stepper.along(course, self._definition)
        except NotWritableError:
            return None


class _FixedRunner(Runner):
    def __init__(
        self, engine: Engine, options: SolverOptions, rates: Any, times: Vector, definition: Definition, *rest: Any
    ) -> None:
        super().__init__(engine.name, definition, *rest)
        self._step, self._rates, self._forcings = engine.steps[options.method], rates, definition.forcings
        stops = np.concatenate([self.timeline.event_times, forcing_jumps(self._forcings)])
        times = continued(times, float(self.timeline.rows[-1]))
        self._grid = fixed_grid(times, options.dt, snapped(stops, np.concatenate([times, self.timeline.event_times])))
        self._roots = roots_around(definition)

    def _step_roots(self, p: Vector, rates: Any, hits: list[Hit], settle: Settle | None) -> StepRootRun | None:
        """Return the root events of a run."""
        if self._roots is None:
            return None
        layout, forcings = self._roots.system.layout, self._forcings
        inputs = np.zeros(layout.size)
        inputs[: len(p)] = p

        def set_inputs(t: float) -> None:
            inputs[layout.lines] = [c for u in forcing_values(forcings, np.array([t]))[:, 0] for c in (u, 0.0)]

        def at(t: float, z: Vector) -> Any:
            return rates(t, z, forcing_values(forcings, np.array([t]))[:, 0].tolist())

        start, end = self.timeline.start, float(self.timeline.rows[-1])
        return StepRootRun(RootRun(self._roots, inputs, at, hits, settle, start=start, end=end), set_inputs)

    def _solve(
        self, p: Vector, z: Vector, scales: Vector | None, apply_events: Any, hits: list[Hit], settle: Settle | None
    ) -> Matrix:
        at = self.timeline.event_times

        def after(t: float, z: Vector) -> Vector:
            return apply_events(np.flatnonzero(at == t), z) if t in at else z

        rates, step = self._rates(p, scales), self._step
        if (settled := self._settled) is not None:
            inputs_at, completed = settled.at_stage(p, scales), settled.constraints.completed

            def step(rates: Any, t: float, z: Vector, h: float, u: Any) -> Vector:
                return completed(t + h, self._step(rates, t, z, h, u), inputs_at(u[2]))

        def guarded(t: float, z: Vector, u: Any) -> Any:
            try:
                return rates(t, z, u)
            except FmepyError:  # ours are ValueErrors too
                raise
            except Exception as error:
                raise SimulationError(
                    f"the model's function failed: {type(error).__name__}: {error}", time=t
                ) from error

        with np.errstate(all="ignore"):
            Z = fixed_run(
                step,
                guarded,
                z,
                self._grid,
                self.timeline.rows,
                lambda start, end: stage_values(self._forcings, start, end),
                after,
                self._step_roots(p, guarded, hits, settle),
            )
        return finite_rows(Z, self.timeline.rows)


def make_runner(
    engine: Engine,
    definition: Definition,
    events: tuple[Event, ...],
    timeline: Timeline,
    names: tuple[str, ...],
    options: SolverOptions,
    times: Vector,
) -> Runner | None:
    """Return a runner on `engine`, or None if it cannot give these sensitivities exactly.

    times : ndarray
        Those of the model, whose grid fixed steps follow whatever the rows.
    """
    common = (definition, events, timeline, names)
    if engine.steps:
        rates = _rates_at_stages(definition, names)
        return None if rates is None else _FixedRunner(engine, options, rates, times, *common)
    if names and definition.equations is None and engine.method_of(options) != "lsoda" and not engine.needs_equations:
        return None  # the others have no way to be told of a Jacobian in blocks
    problem = problem_of(definition, names, engine.watches_switches)
    if problem is None:
        return None
    assert engine.stepper is not None, "an engine has steps or a stepper"
    stepper = engine.stepper(problem, options)
    if problem.constraints is not None:
        solves = engine.method_of(options) in engine.has_mass
        stepper = CompletedStepper(stepper, problem.constraints, options, solves)
    return _AdaptiveRunner(stepper, problem, *common)


def _rates_at_stages(definition: Definition, names: tuple[str, ...]) -> Any:
    """Return ``rates(p, scales) -> (t, z, u) -> rates of z``, u being the forcings; None if there are none."""
    if names and definition.roots:  # the length of a cut step moves with the parameters too
        return None
    if definition.equations is None and names and not has_slopes(definition):
        return None
    if definition.algebraic:
        settled = Settled(definition, names)

        def of_constraints(p: Vector, scales: Vector | None) -> Any:
            inputs_at, moving = settled.at_stage(p, scales), settled.constraints.rates
            return lambda t, z, u: moving(t, z, inputs_at(u))

        return of_constraints
    if definition.equations is None:
        return lambda p, scales: rates_at(definition, p.tolist(), names, () if scales is None else scales)[1]
    system = build_system(definition.equations, names, False)
    compiled, layout = system_rates(system), system.layout

    def of_system(p: Vector, scales: Vector | None) -> Any:
        inputs = np.zeros(layout.size)
        inputs[: len(p)] = p
        if scales is not None:
            inputs[layout.scales] = scales
        plain = inputs.tolist()
        lines = layout.lines

        def at(t: float, z: Vector, u: Any) -> Any:
            plain[lines] = [c for v in u for c in (v, 0.0)]
            return compiled(t, z.tolist(), plain)

        return at

    return of_system
