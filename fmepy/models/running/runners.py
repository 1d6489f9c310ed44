"""Runners: a model's definition, an engine and a set of rows, made into ``run(p) -> trajectory``.

A runner owns what one binding of a model needs: the system for the bound parameters, the timeline, initial values and
events with their derivatives. It holds no results and may be called again and again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fmepy.errors import FmepyError, SimulationError
from fmepy.models.definition.definition import Definition
from fmepy.models.definition.values import ValueTable
from fmepy.models.engines.base import Stepper
from fmepy.models.engines.diffsol import METHODS as DIFFSOL_METHODS
from fmepy.models.engines.diffsol import DiffsolStepper
from fmepy.models.engines.explicit import DopriStepper
from fmepy.models.engines.fixed import fixed_grid, fixed_run
from fmepy.models.engines.scipy_steppers import IVP_METHODS, IvpStepper, LsodaStepper, RatesOf
from fmepy.models.engines.trial import TrialStepper
from fmepy.models.running.events import Event
from fmepy.models.running.forcings import forcing_jumps, stage_values
from fmepy.models.running.system import InputLayout, System, build_system, system_rates, watched_functions
from fmepy.models.running.timeline import EventTable, Timeline, finite_rows, run_segments, snapped
from fmepy.types import Matrix, Vector

MOST_RETRIED = 50_000.0
"""Evaluations of the rates of one stretch that LSODA may spend on a run that a compiled engine could not finish."""

__all__ = ["Runner", "SolverOptions", "adaptive_runner", "fixed_runner"]


class SolverOptions:
    """Method, tolerances (atol by state) and what else a solver is told."""

    __slots__ = ("atol", "bandwidth", "dt", "max_step", "method", "rtol")

    def __init__(
        self,
        method: str,
        rtol: float,
        atol: Vector,
        dt: float | None = None,
        bandwidth: tuple[int, int] | None = None,
        max_step: float = np.inf,
    ) -> None:
        self.method, self.rtol, self.atol, self.dt = method, rtol, atol, dt
        self.bandwidth, self.max_step = bandwidth, max_step

    def with_tolerances(self, rtol: float, atol: Vector) -> SolverOptions:
        """Return options with other tolerances."""
        return SolverOptions(self.method, rtol, atol, self.dt, self.bandwidth, self.max_step)

    def tightened(self, factor: float = 1e-3) -> SolverOptions:
        """Return options with smaller tolerances, rtol not below 1e-12; atol follows it, whatever its size."""
        rtol = min(self.rtol, max(self.rtol * factor, 1e-12))
        return self.with_tolerances(rtol, self.atol * (rtol / self.rtol))


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
        self._initial = ValueTable(definition.initial, definition.parameters, names)
        self._events = EventTable(events, self.n_states, definition.parameters, names)
        self._places = [definition.parameters.index(k) for k in names]

    def run(self, p: Vector) -> tuple[Matrix, Any]:
        """Return Y, shape (n_time, n_state), and S, shape (n_time, n_state, n_names) (None without sensitivities)."""
        plain = p.tolist()
        y = self._initial.value(plain)
        if not self.names:
            return self._solve(p, y, None, self._events.prepared(plain, None)), None
        scales = np.abs(p[self._places])
        scales[scales == 0] = 1.0
        S = self._initial.slope(plain) * scales
        Z = self._solve(p, np.concatenate((y, S.T.ravel())), scales, self._events.prepared(plain, scales))
        n = self.n_states
        return Z[:, :n], Z[:, n:].reshape(len(Z), len(scales), n).transpose(0, 2, 1) / scales

    def _solve(self, p: Vector, z: Vector, scales: Vector | None, apply_events: Any) -> Matrix:
        raise NotImplementedError


class _AdaptiveRunner(Runner):
    def __init__(self, stepper: Stepper, system: System | None, layout: InputLayout, *rest: Any) -> None:
        super().__init__(stepper.name, *rest)
        self._stepper, self._system, self._layout = stepper, system, layout
        self._segments = None if system is not None and system.planned else self.timeline.segments()
        watched = len(system.watched) if system is not None and stepper.watches_switches else 0
        self._inputs = np.zeros(layout.size + watched)
        self._is_smooth = self._one_smooth_stretch()

    def _one_smooth_stretch(self) -> bool:
        """Whether nothing happens between the start and the last row, so that one call of the engine gives all rows."""
        has_switches = self._system is not None and bool(self._system.switches)
        if has_switches or self._segments is None or len(self._segments) != 1 or self.timeline.first_events:
            return False
        if self._layout.n_forcings:
            self._inputs[self._layout.lines] = self._segments[0].lines
            self._inputs[self._layout.origin] = self.timeline.start
        return True

    def _solve(self, p: Vector, z: Vector, scales: Vector | None, apply_events: Any) -> Matrix:
        inputs = self._inputs.copy()
        inputs[: len(p)] = p
        if scales is not None:
            inputs[self._layout.scales] = scales
        if self._is_smooth:
            rows = self.timeline.rows
            return finite_rows(self._stepper.advance(self.timeline.start, z, inputs, rows)[1], rows)
        return run_segments(
            self._stepper, self._system, self._layout, self.timeline, self._segments, z, inputs, apply_events
        )


class _FixedRunner(Runner):
    def __init__(self, method: str, rates: Any, times: Vector, dt: float | None, definition: Definition, *rest: Any):
        super().__init__("scipy", definition, *rest)
        self._method, self._rates, self._forcings = method, rates, definition.forcings
        stops = np.concatenate([self.timeline.event_times, forcing_jumps(self._forcings)])
        self._grid = fixed_grid(times, dt, snapped(stops, np.concatenate([times, self.timeline.event_times])))

    def _solve(self, p: Vector, z: Vector, scales: Vector | None, apply_events: Any) -> Matrix:
        at = self.timeline.event_times

        def after(t: float, z: Vector) -> Vector:
            return apply_events(np.flatnonzero(at == t), z) if t in at else z

        rates = self._rates(p, scales)

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
                self._method,
                guarded,
                z,
                self._grid,
                self.timeline.rows,
                lambda start, end: stage_values(self._forcings, start, end),
                after,
            )
        return finite_rows(Z, self.timeline.rows)


def adaptive_runner(
    engine: str,
    definition: Definition,
    events: tuple[Event, ...],
    timeline: Timeline,
    names: tuple[str, ...],
    options: SolverOptions,
) -> Runner | None:
    """Return a runner on `engine`, or None if it cannot give these sensitivities exactly.

    engine : {"diffsol", "numba", "trial", "scipy", "retry", "taken over"}
        "trial" is numba where that suits the model, and fails where it does not, see `engines.trial`.
        "retry" is LSODA for runs that the others could not finish; it goes through switches as through anything else,
        so that it also gets along a switch that the run slides on. "taken over" is the same as the engine of a fit that
        has left the others: without the bound on its effort, for there is no other opinion any more.
    """
    common = (definition, events, timeline, names)
    if engine in ("diffsol", "numba", "trial"):
        assert definition.equations is not None, "the model checked this at the door"
        system = build_system(definition.equations, names, True)
        stepper: Stepper
        if engine == "diffsol":
            stepper = _diffsol_stepper(system, options)
        else:
            stepper = explicit = DopriStepper(system, options.rtol, options.atol, options.max_step)
            if engine == "trial":
                has_diffsol = options.method in DIFFSOL_METHODS
                stepper = TrialStepper(explicit, _diffsol_stepper(system, options) if has_diffsol else None)
        return _AdaptiveRunner(stepper, system, system.layout, *common)
    effort = {"retry": MOST_RETRIED, "taken over": np.inf}.get(engine)
    if definition.equations is None:
        if names:
            return None
        layout = InputLayout(len(definition.parms), len(definition.forcings))
        rates = _rates_of_function(definition, layout)
        return _AdaptiveRunner(_scipy_stepper(rates, options, 1, effort), None, layout, *common)
    own = build_system(definition.equations, names, True)
    if effort is not None and own.watched:
        if names:
            return None
        own = build_system(definition.equations, (), True, planned_only=True)
    return _AdaptiveRunner(_stepper_of_system(own, options, effort), own, own.layout, *common)


def _diffsol_stepper(system: System, options: SolverOptions) -> DiffsolStepper:
    method = options.method if options.method in DIFFSOL_METHODS else "bdf"  # where numba gave up
    return DiffsolStepper(system, options.rtol, options.atol, method)


def _stepper_of_system(system: System, options: SolverOptions, effort: float | None) -> Stepper:
    rates, blocks = _rates_of_system(system), 1 + len(system.names)
    if not system.watched:
        return _scipy_stepper(rates, options, blocks, effort)
    g, size = watched_functions(system), system.layout.size

    def watched(t: float, z: Any, inputs: Any) -> Any:
        values = g(t, z, inputs[:size])
        return [values[i] - offset for i, offset in zip(system.watched, inputs[size:], strict=True)]

    method = options.method if options.method in IVP_METHODS else "LSODA"
    atol = np.tile(options.atol, blocks)
    return IvpStepper(rates, method, options.rtol, atol, None, watched, len(system.watched), options.max_step)


def _scipy_stepper(rates: RatesOf, options: SolverOptions, blocks: int, effort: float | None) -> Stepper:
    """Return the method asked for; of a retry, LSODA with at most `effort` evaluations."""
    atol = np.tile(options.atol, blocks)
    bandwidth = options.bandwidth if blocks == 1 else None
    if effort is not None or options.method not in IVP_METHODS:
        most = np.inf if effort is None else effort
        return LsodaStepper(rates, options.rtol, atol, bandwidth, options.max_step, most)
    return IvpStepper(rates, options.method, options.rtol, atol, bandwidth, max_step=options.max_step)


def _rates_of_system(system: System) -> RatesOf:
    function, size = system_rates(system), system.layout.size
    return lambda t, z, inputs: function(t, z.tolist(), inputs[:size])


def _rates_of_function(definition: Definition, layout: InputLayout) -> RatesOf:
    function = definition.function
    assert function is not None
    n = layout.n_parameters
    if not layout.n_forcings:
        return lambda t, z, inputs: function(t, z, inputs[:n], ())
    return lambda t, z, inputs: function(t, z, inputs[:n], layout.forcing_values(t, inputs))


def fixed_runner(
    definition: Definition,
    events: tuple[Event, ...],
    timeline: Timeline,
    names: tuple[str, ...],
    options: SolverOptions,
    times: Vector,
) -> Runner | None:
    """Return a fixed-step runner on the grid of the model's `times`, or None if it cannot give these sensitivities."""
    if definition.equations is None:
        if names:
            return None
        function = definition.function
        assert function is not None

        def of_function(p: Vector, scales: Vector | None) -> Any:
            plain = p.tolist()
            return lambda t, z, u: function(t, z, plain, u)

        rates: Any = of_function
    else:
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

        rates = of_system
    return _FixedRunner(options.method, rates, times, options.dt, definition, events, timeline, names)
