"""Runs of models with delays: whole runs in machine code, which keep their own past (`compiled.delay_loop`).

Conditions of time alone are stops, as without delays; the solver goes across conditions of states, present or past. So
there are exact sensitivities where no jump moves with a parameter but by a delay: with conditions of states only if
they bend the rates and do not break them (max, min, abs), with jumps of time only if they stay where they are, and with
delays that vary only if the past has no jump that they could pass.

**Root events.** At a hit the states change (`models.running.root_run`), and from then on it is an event at a known
time: the run is taken again from its start with one event more, up to the next hit. Its steps before are the same. So
what follows a hit by delays is stopped at, and its past read from the right side, as for any event; and a run with n
hits takes the time of n/2 runs. There are no exact sensitivities.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from fmepy.compiled.explicit_runs import Course
from fmepy.errors import SimulationError
from fmepy.language.functions import holds_choices, holds_jumps
from fmepy.language.nodes import Node
from fmepy.models.definition.definition import Definition
from fmepy.models.engines.base import Engine, SolverOptions
from fmepy.models.running.events import Event
from fmepy.models.running.planned import depends_on_parameters
from fmepy.models.running.problem import InitialValueProblem
from fmepy.models.running.root_run import Hit, RootRun, RootTable
from fmepy.models.running.runners import ModelRunner
from fmepy.models.running.system import build_system
from fmepy.models.running.timeline import Timeline, course_of
from fmepy.types import Matrix, Vector

MOST_CROSSINGS = 1000
"""Of roots, in one run."""


class DelayedRunner(ModelRunner):
    """``run(p) -> Z`` of a model with delays."""

    def __init__(self, stepper: Any, problem: InitialValueProblem, *rest: Any) -> None:
        super().__init__(problem, *rest)
        assert problem.system is not None, "a model with delays has equations"
        self._stepper, self._system = stepper, problem.system

    def run(self, p: Vector, hits: Any = None) -> tuple[Matrix, Any]:
        """Return Y with the outputs, shape (n_time, n_var), and its derivatives (None without)."""
        if self._problem.roots is not None:
            return self._through_roots(p, self._problem.roots, [] if hits is None else hits), None
        whole = self._along(p) if self.whole is None else self.whole
        return whole.with_slopes(p) if self.names else (whole.one(p), None)

    @cached_property
    def whole(self) -> Any:
        """Whole runs, None where what happens along them is at times that depend on parameters."""
        return None if depends_on_parameters(self._system) else self._along(None)

    def _along(self, p: Vector | None) -> Any:
        course = course_of(self.timeline, self._system, self._definition.events, p)
        return self._stepper.along(course, self._definition)

    def _through_roots(self, p: Vector, table: RootTable, hits: list[Hit]) -> Matrix:
        """Return the states and outputs of a run through the hits of its root events."""
        system, layout, line = self._system, self._system.layout, self.timeline
        start, end, known = line.start, float(line.rows[-1]), self._definition.events
        inputs, events = np.zeros(layout.size + system.n_watched), known
        inputs[: len(p)] = p
        run, size = RootRun(table, inputs, self._problem.rates_of(inputs), hits, line=line), layout.size
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
        _, _, z, there = up_to_crossing(*course(np.array([start])))
        inputs[layout.lags] = there[layout.lags]
        run.read(start, z)
        for _ in range(MOST_CROSSINGS):
            out, at, z, there = up_to_crossing(*course(line.rows))
            if at is None:
                return np.array(out)
            inputs[:size] = there[:size]
            z = run.cross(at, z, int(np.argmin(run.distances(at, z))), lambda t, z: None)
            if at >= end:
                return np.array(up_to_crossing(*course(line.rows, is_watched=False))[0])
            run.read(at, z)
            events += tuple(Event(i, at, float(z[i]), "replace", order) for i in range(self.n_states))
        raise SimulationError(f"more than {MOST_CROSSINGS} crossings of roots in a run with delays", time=at)


def make_delayed_runner(
    engine: Engine, definition: Definition, timeline: Timeline, names: tuple[str, ...], options: SolverOptions
) -> DelayedRunner | None:
    """Return a runner of a model with delays, None if it cannot give these sensitivities exactly."""
    equations = definition.equations
    assert equations is not None, "a model with delays has equations"
    assert engine.stepper is not None, "its engine chooses steps"
    if names and definition.roots:
        return None
    system = build_system(equations, names, True, roots=definition.roots)
    if system.watched:
        system = build_system(equations, names, True, planned_only=True, roots=definition.roots)
        if names and holds_jumps(equations.rates):  # which conditions that the solver goes across may cause
            return None
    if names and (depends_on_parameters(system) or holds_choices([h for h in definition.past if isinstance(h, Node)])):
        return None
    if names and any(system.varying_delays) and (definition.events or any(h is not None for h in definition.history)):
        return None
    problem = InitialValueProblem(definition, system)
    return DelayedRunner(engine.stepper(problem, options), problem, definition, timeline, names)
