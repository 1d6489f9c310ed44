"""Runners: a model's definition, an engine and a set of rows, made into ``run(p) -> trajectory``.

A runner owns what one binding of a model needs: the system for the bound parameters, the timeline, initial values and
events with their derivatives. It holds no results and may be called again and again.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from fmepy.compiled.explicit_runs import Course
from fmepy.compiled.llvm_code import NotWritableError
from fmepy.errors import EndedRunError, SimulationError
from fmepy.models.definition.definition import Definition
from fmepy.models.engines.base import Engine, NotWholeError, SolverOptions
from fmepy.models.engines.fixed import FixedStepper, continued, fixed_grid
from fmepy.models.running.algebraic import CompletedStepper, Settled
from fmepy.models.running.crossings import Crossings, Hit
from fmepy.models.running.events import Event, EventTable
from fmepy.models.running.forcings import forcing_jumps
from fmepy.models.running.problem import InitialValueProblem, problem_of
from fmepy.models.running.system import System, scales_of
from fmepy.models.running.time_switches import depends_on_parameters
from fmepy.models.running.timeline import Segment, Timeline, course_of, run_segments, snapped
from fmepy.types import Matrix, Vector

MOST_CROSSINGS = 1000
"""Of roots, in one run."""


class ModelRunner:
    """``run(p) -> Y`` at the rows of a timeline, with or without sensitivities.

    Parameters
    ----------
    stepper : Stepper
    problem : InitialValueProblem
    timeline : Timeline
    """

    def __init__(self, stepper: Any, problem: InitialValueProblem, timeline: Timeline) -> None:
        self._stepper, self._problem, self._system, self._layout = stepper, problem, problem.system, problem.layout
        self._definition, self.timeline, self.names = problem.definition, timeline, problem.names
        self.n_states = len(self._definition.states)

    @cached_property
    def _between(self) -> tuple[Any, EventTable, Settled | None, list[int]]:
        """The initial values, events and algebraic states of runs that are not `whole`, and the places of `names`."""
        d = self._definition
        settled = Settled(d, self.names) if d.algebraic else None
        places = [d.parameters.index(k) for k in self.names]
        return d.starts(self.names), EventTable(d, self.names), settled, places

    def run(self, p: Vector, hits: list[Hit] | None = None) -> tuple[Matrix, Any]:
        """Return Y, shape (n_time, n_state), and S, shape (n_time, n_state, n_names) (None without sensitivities).

        Of `whole` runs Y has the outputs too, shape (n_time, n_var). A list of `hits` gets those of the root events.
        """
        if self.whole is not None and hits is None:
            with suppress(NotWholeError):
                return self.whole.with_slopes(p) if self.names else (self.whole.one(p), None)
        initial, events, settled, places = self._between
        layout, line, plain = self._layout, self.timeline, p.tolist()
        inputs = np.zeros(layout.size + (self._problem.n_watched if self._stepper.watches_switches else 0))
        inputs[: len(p)] = p
        z, scales, settle = initial.value(plain), None, None
        if self.names:
            scales = inputs[layout.scales] = scales_of(p[places])
            z = np.concatenate((z, (initial.slope(plain) * scales).T.ravel()))
        if settled is not None:
            settle = settled.of(p, scales)
            z = settle(line.start, z)
        crossings, problem = None, self._problem
        if (table := problem.watch_table) is not None:
            how: dict[str, Any] = {"hits": hits, "settle": settle, "constraints": problem.constraints}
            crossings = Crossings(table, inputs, problem.rates_of(inputs), line, **how)
        apply_events = events.prepared(plain, scales, settle)
        Z = run_segments(self._stepper, self._system, layout, line, self._segments, z, inputs, apply_events, crossings)
        if scales is None:
            return Z, None
        n = self.n_states
        S = Z[:, n:].reshape(len(Z), len(scales), n)
        for of_one, scale in zip(S.transpose(1, 0, 2), scales.tolist(), strict=True):
            of_one /= scale  # in place, by a number alone: there may be millions
        return Z[:, :n], S.transpose(0, 2, 1)

    @cached_property
    def _segments(self) -> tuple[Segment, ...] | None:
        """The stretches of every run; None where they depend on the parameters."""
        return None if self._system is not None and self._system.planned else self.timeline.segments()

    @cached_property
    def whole(self) -> Any:
        """Whole runs from parameters to outputs, where the engine has them (`models.engines.base`, 5.), or None.

        There are none where something other than a switch happens at times that depend on the run.
        """
        system = self._system
        if system is None or not hasattr(self._stepper, "along"):
            return None
        if system.algebraic and (system.watched or (system.switches and self.names)):  # which jump there
            return None
        course = course_of(self.timeline, system, self._definition.events)
        try:
            return None if course is None else self._stepper.along(course, self._definition)
        except NotWritableError:
            return None


class _DelayedRunner(ModelRunner):
    """Whole runs of models with delays, which keep their own past (`compiled.delay_loop`).

    Conditions of time alone are stops, as without delays; the solver goes across conditions of states, present or past.
    So there are exact sensitivities where no jump moves with a parameter but by a delay: with conditions of states only
    if they bend the rates and do not break them (max, min, abs), with jumps of time only if they stay where they are,
    and with delays that vary only if the past has no jump that they could pass.

    **Root events.** At a hit the states change (`models.running.events`), and from then on it is an event at
    a known time: the run is taken again from its start with one event more, up to the next hit. Its steps before are
    the same. So what follows a hit by delays is stopped at, and its past read from the right side, as for any event;
    and a run with n hits takes the time of n/2 runs. There are no exact sensitivities.
    """

    _system: System

    def run(self, p: Vector, hits: Any = None) -> tuple[Matrix, Any]:
        """Return Y with the outputs, shape (n_time, n_var), and its derivatives (None without)."""
        if self._definition.roots:
            return self._through_roots(p, [] if hits is None else hits), None
        whole = self._along(p) if self.whole is None else self.whole
        return whole.with_slopes(p) if self.names else (whole.one(p), None)

    @cached_property
    def whole(self) -> Any:
        """Whole runs, None where what happens along them is at times that depend on parameters."""
        return None if depends_on_parameters(self._system) else self._along(None)

    def _along(self, p: Vector | None) -> Any:
        course = course_of(self.timeline, self._system, self._definition.events, p)
        return self._stepper.along(course, self._definition)

    def _through_roots(self, p: Vector, hits: list[Hit]) -> Matrix:
        """Return the states and outputs of a run through the hits of its root events."""
        system, layout, line = self._system, self._system.layout, self.timeline
        start, end, known = line.start, float(line.rows[-1]), self._definition.events
        inputs, events = np.zeros(layout.size + system.n_watched), known
        inputs[: len(p)] = p
        table, size = self._problem.watch_table, layout.size
        assert table is not None, "there are roots"
        run = Crossings(table, inputs, self._problem.rates_of(inputs), line, hits=hits)
        order = min((e.order for e in known), default=0) - 1  # a hit comes before what happens at its time anyhow
        of_numbers = replace(self._definition, events=(*known, Event(0, start, 0.0, "replace")))

        def course(rows: Vector, is_watched: bool = True) -> tuple[Course, int]:
            """Return what happens, the hits until now too, and the stretch from which on roots are watched."""
            own = Timeline.of(start, rows, line.forcings, np.array([e.time for e in events]))
            found = course_of(own, system, events, p)
            assert found is not None, "it depends on the parameters, which are given"
            last = own.event_times[-1] if len(events) > len(known) else start
            return found, sum(s.start < last for s in found.stretches) if is_watched else len(found.stretches)

        def up_to_crossing(course: Course, first: int) -> Any:
            return self._stepper.along(course, of_numbers).up_to_crossing(inputs, first)

        constants = [c for s in course(line.rows)[0].stretches[:1] for c in s.constants]
        inputs[len(p) : len(p) + len(constants)] = constants
        _, _, z, there, _ = up_to_crossing(*course(np.array([start])))
        inputs[layout.lags] = there[layout.lags]
        run.read_sides(start, z)
        for _ in range(MOST_CROSSINGS):
            out, at, z, there, before = up_to_crossing(*course(line.rows))
            if at is None:
                return np.array(out)
            inputs[:size] = there[:size]
            run.set_sides(before)
            try:
                z = run.cross(at, z, run.fired(at, z))
            except EndedRunError as ended:
                ended.rows = np.array(up_to_crossing(*course(np.append(line.rows[line.rows < at], at), False))[0])
                ended.rows[-1, : self.n_states] = z
                raise
            if at >= end:
                return np.array(up_to_crossing(*course(line.rows, is_watched=False))[0])
            run.read_sides(at, z)
            events += tuple(Event(i, at, float(z[i]), "replace", order) for i in range(self.n_states))
        raise SimulationError(f"more than {MOST_CROSSINGS} crossings of roots in a run with delays", time=at)


def make_runner(
    engine: Engine,
    definition: Definition,
    timeline: Timeline,
    names: tuple[str, ...],
    options: SolverOptions,
    times: Vector,
) -> ModelRunner | None:
    """Return a runner on `engine`, or None if it cannot give these sensitivities exactly.

    times : ndarray
        Those of the model, whose grid fixed steps follow whatever the rows.
    """
    if options.method not in engine.methods:  # of an engine that gave up
        options = replace(options, method=engine.methods[0])
    knows_blocks = options.method == "lsoda" or engine.needs_equations or engine.steps  # of a Jacobian
    if names and definition.equations is None and not knows_blocks:
        return None
    problem = problem_of(definition, names, engine)
    if problem is None:
        return None
    if engine.steps:
        times = continued(times, float(timeline.rows[-1]))
        jumps = snapped(forcing_jumps(definition.forcings), np.concatenate([times, timeline.event_times]))
        grid = fixed_grid(times, options.dt, np.concatenate([timeline.event_times, jumps]))
        fixed = FixedStepper(problem, engine.steps[options.method], grid)
        return ModelRunner(fixed, problem, replace(timeline, knots=jumps))
    assert engine.stepper is not None, "an engine has steps or a stepper"
    stepper = engine.stepper(problem, options)
    if problem.constraints is not None:
        stepper = CompletedStepper(stepper, problem.constraints, options, options.method in engine.has_mass)
    kind = _DelayedRunner if definition.has_delays else ModelRunner
    return kind(stepper, problem, timeline)
