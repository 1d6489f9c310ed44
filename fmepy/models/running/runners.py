"""Runners: ``run(p) -> trajectory`` of a model's definition, on an engine, at a set of rows.

A runner owns what one binding of a model needs: the system for the bound parameters, the timeline, initial values and
events with their derivatives. It holds no results and may be called again and again.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from fmepy.compiled.llvm_code import NotWritableError
from fmepy.compiled.status import CROSSED, DONE, NO_ROOM
from fmepy.errors import EndedRunError, SimulationError
from fmepy.models.definition.definition import Definition
from fmepy.models.engines.base import Engine, NotWholeError, SolverOptions
from fmepy.models.engines.fixed import FixedStepper, continued, fixed_grid
from fmepy.models.running.algebraic import CompletedStepper, Settled
from fmepy.models.running.crossings import Crossings, Hit, elapsed
from fmepy.models.running.events import EventTable
from fmepy.models.running.forcings import forcing_jumps
from fmepy.models.running.problem import InitialValueProblem, problem_of
from fmepy.models.running.system import System, scales_of
from fmepy.models.running.time_switches import plans_depend_on_parameters
from fmepy.models.running.timeline import Segment, Timeline, course_of, run_segments, snapped
from fmepy.models.running.tolerances import default_max_step
from fmepy.models.running.watch_table import NEAR
from fmepy.types import Matrix, Vector


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
    """Whole runs of models with delays, which store their own past (`compiled.delay_loop`).

    Runs stop at conditions of time alone, as without delays, but not at conditions of states, present or past. So
    sensitivities are exact only if no jump depends on a parameter other than by a delay or a root event: conditions of
    states may cause kinks of the rates but no jumps (max, min, abs), jumps in time must be at fixed times, and with
    varying delays the past must have no jump that they could pass.

    **Root events.** A run pauses at every hit, where the states change, and continues with its past; hits have breaking
    points like any event.
    """

    _system: System

    def run(self, p: Vector, hits: Any = None) -> tuple[Matrix, Any]:
        """Return Y with the outputs, shape (n_time, n_var), and its derivatives (None without)."""
        whole = self._along(p, self.timeline) if self._planned is None else self._planned
        if self._definition.roots:
            rows = self._through_roots(p, whole, [] if hits is None else hits, self.timeline)
            Y, S = whole.parts_of(rows, p)
            return Y, S
        return whole.with_slopes(p) if self.names else (whole.one(p), None)

    @cached_property
    def whole(self) -> Any:
        """Whole runs; None if the times of what happens along them depend on parameters or on the run."""
        return None if self._definition.roots else self._planned

    @cached_property
    def _planned(self) -> Any:
        """Runs between hits of root events; None if other times at which something happens depend on parameters."""
        return None if plans_depend_on_parameters(self._system) else self._along(None, self.timeline)

    def _along(self, p: Vector | None, line: Timeline) -> Any:
        return self._stepper.along(course_of(line, self._system, self._definition.events, p), self._definition)

    def _through_roots(self, p: Vector, whole: Any, hits: list[Hit], line: Timeline) -> Matrix:
        """Return the rows of a run through the hits of its root events, with the columns of `whole`."""
        table, (run, failure) = self._problem.watch_table, whole.by_hits(p)
        assert table is not None, "there are roots"
        inputs = run.inputs[: self._layout.size + self._problem.n_watched]
        crossings = Crossings(table, inputs, run.rates, line, hits=hits)
        ended = run.advance()
        if ended[0] == CROSSED:  # it pauses at its start, too
            crossings.read_sides(line.start, run.z.copy())
            ended = run.advance()
        while ended[0] == CROSSED:
            before, t, n_hits = run.z.copy(), ended[2], len(hits)
            crossings.set_sides(run.sides)
            try:
                z = crossings.cross(t, before, crossings.fired(t, before))
            except EndedRunError as over:
                cut = Timeline.of(line.start, np.append(line.rows[line.rows < t], t), line.forcings, line.event_times)
                shorter = self._along(p, cut)
                over.rows = shorter.parts_of(self._through_roots(p, shorter, [], cut), p)[0]
                raise
            shift, near, at_once = _one_shift(hits[n_hits:]), NEAR * elapsed(t, line.start), crossings.is_seen_at_once
            run.change(z, z if at_once else before, (t - near if at_once else np.inf, t + near), shift)
            crossings.read_sides(t, z)
            ended = run.advance()
        if ended[0] == NO_ROOM:
            whole.grow()
            hits.clear()
            return self._through_roots(p, whole, hits, line)
        if ended[0] != DONE:
            raise failure(ended)
        return np.array(run.rows)


def _one_shift(hits: Sequence[Hit]) -> Any:
    """Return the derivatives of the time of simultaneous hits (None without sensitivities), one jump of the past."""
    shifts = [shift for _, _, shift in hits if shift is not None]
    if any(not np.allclose(shift, shifts[0], rtol=1e-6, atol=0) for shift in shifts[1:]):
        t, whose = hits[0][0], "two root events of a model with delays fire at one time, but move apart"
        raise SimulationError(f"{whose} with the parameters: there are no sensitivities of what reads it later", time=t)
    return shifts[0] if shifts else None


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
        jumps = forcing_jumps(definition.forcings, timeline.start, float(times[-1]))
        jumps = snapped(jumps, np.concatenate([times, timeline.event_times]))
        grid = fixed_grid(times, options.dt, np.concatenate([timeline.event_times, jumps]))
        fixed = FixedStepper(problem, engine.steps[options.method], grid)
        return ModelRunner(fixed, problem, replace(timeline, knots=jumps))
    assert engine.stepper is not None, "an engine has steps or a stepper"
    if not engine.needs_equations and np.isinf(options.max_step):
        options = replace(options, max_step=default_max_step(definition, timeline.start, timeline.rows))
    stepper = engine.stepper(problem, options)
    if problem.constraints is not None:
        stepper = CompletedStepper(stepper, problem.constraints, options, options.method in engine.has_mass)
    kind = _DelayedRunner if definition.has_delays else ModelRunner
    return kind(stepper, problem, timeline)
