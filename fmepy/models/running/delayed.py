"""Runs of models with delays: whole runs in machine code, which keep their own past (`compiled.delay_loop`).

Conditions of time alone are stops, as without delays; the solver goes across conditions of states, present or past. So
there are exact sensitivities where no jump moves with a parameter but by a delay: with conditions of states only if
they bend the rates and do not break them (max, min, abs), with jumps of time only if they stay where they are, and with
delays that vary only if the past has no jump that they could pass.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from fmepy.expressions.equations import Equations
from fmepy.models.definition.definition import Definition
from fmepy.models.engines.base import Engine, SolverOptions
from fmepy.models.running.events import Event
from fmepy.models.running.planned import depends_on_parameters
from fmepy.models.running.problem import Problem
from fmepy.models.running.runners import Runner
from fmepy.models.running.switches import all_as_choices, has_choices
from fmepy.models.running.system import System, build_system
from fmepy.models.running.timeline import Timeline, course_of
from fmepy.types import Matrix, Vector


class DelayedRunner(Runner):
    """``run(p) -> Z`` of a model with delays."""

    def __init__(self, stepper: Any, system: System, *rest: Any) -> None:
        super().__init__(stepper.name, *rest)
        self._stepper, self._system = stepper, system

    def run(self, p: Vector, hits: Any = None) -> tuple[Matrix, Any]:
        """Return Y with the outputs, shape (n_time, n_var), and its derivatives (None without)."""
        whole = self._along(p) if self.whole is None else self.whole
        return whole.with_slopes(p) if self.names else (whole.one(p), None)

    @cached_property
    def whole(self) -> Any:
        """Whole runs, None where what happens along them is at times that depend on parameters."""
        return None if depends_on_parameters(self._system) else self._along(None)

    def _along(self, p: Vector | None) -> Any:
        course = course_of(self.timeline, self._system, self._events.events, p)
        return self._stepper.along(course, self._definition)


def make_delayed_runner(
    engine: Engine,
    definition: Definition,
    events: tuple[Event, ...],
    timeline: Timeline,
    names: tuple[str, ...],
    options: SolverOptions,
) -> DelayedRunner | None:
    """Return a runner of a model with delays, None if it cannot give these sensitivities exactly."""
    equations = definition.equations
    assert equations is not None, "a model with delays has equations"
    assert engine.stepper is not None, "its engine chooses steps"
    system = build_system(equations, names, True)
    if system.watched:
        system = build_system(equations, names, True, planned_only=True)
        if names and _breaks(equations):
            return None
    if names and (depends_on_parameters(system) or has_choices([h for h in definition.past if hasattr(h, "has")])):
        return None
    if names and any(system.varying_delays) and (events or any(h is not None for h in definition.history)):
        return None
    stepper = engine.stepper(Problem(definition, system), options)
    return DelayedRunner(stepper, system, definition, events, timeline, names)


def _breaks(equations: Equations) -> bool:
    """Tell whether conditions that the solver goes across may make the rates jump."""
    from fmepy.expressions.nodes import JUMPS, nodes_in

    return bool(nodes_in(all_as_choices(equations.rates), JUMPS))
