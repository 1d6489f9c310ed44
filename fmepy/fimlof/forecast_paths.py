"""Forecasts beyond the end of the data: the model without readings, its moments, simulated paths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fmepy.checks import whole_number
from fmepy.errors import ArgumentError, SimulationError, check_known
from fmepy.filtering.run import Start, run_filter
from fmepy.filtering.schedule import Schedule
from fmepy.filtering.smoothing import history_of
from fmepy.fimlof.bound_filter import BoundFilter, schedule_of
from fmepy.fimlof.data import EntityRun
from fmepy.fimlof.filter_model import FIXED, Specification
from fmepy.fimlof.outputs import StateFunctions, on_own_scale, outputs_of
from fmepy.fimlof.side_steps import NO_READINGS
from fmepy.models.difference import whole_steps
from fmepy.models.engines.fixed import continued
from fmepy.models.running.by_entity import inputs_by_entity
from fmepy.models.running.events import Event
from fmepy.models.running.forcings import Forcing, as_forcings
from fmepy.numerics.covariance import semidefinite_factor
from fmepy.types import BoolVector, Cube, Matrix, Vector

if TYPE_CHECKING:
    from fmepy.fimlof.result import FilterResult


@dataclass(frozen=True, slots=True, eq=False)
class Moments:
    """Mean, shape (n_time, k), and covariance, (n_time, k, k), of states, outputs and readings together; forecast.

    `error_sds`, shape (n_time, n_var), are those of the errors of readings.
    """

    mean: Matrix
    covariance: Cube
    error_sds: Matrix


@dataclass(frozen=True, slots=True, eq=False)
class Horizon:
    """The model of one entity beyond the end of its data."""

    bound_filter: BoundFilter
    schedule: Schedule
    times: Vector
    outputs: tuple[str, ...]
    values: StateFunctions  # outputs, readings, sds of readings
    errors: Vector  # typical multiplier of the sd of a reading
    complete: BoolVector  # (n_time, n_var): where a sum has run over its whole length; True of others

    @property
    def spec(self) -> Specification:
        """The specification with the events and inputs beyond the data."""
        return self.bound_filter.spec

    def inputs_that_end(self) -> list[str]:
        """Return a sentence for every forcing that varies and ends before the forecast."""
        last = float(self.times[-1])
        return [
            f"The forecast runs until {last:g}, and the forcing {f.name!r} ends at {f.times[-1]:g}: its last value, "
            f"{f.values[-1]:g}, is kept from there on. Give what is expected: forcings={{{f.name!r}: (times, values)}}."
            for f in self.spec.definition.forcings
            if not f.of_function and f.times[-1] < last - 1e-9 * abs(last) and np.ptp(f.values) > 0
        ]

    def run(self, run: EntityRun, filtered: Specification) -> Moments:
        """Return the forecast from the end of a run of the model as the data were filtered, with its own start."""
        x, P = end_of(run, filtered)
        return self.moments(x, P, run.p)

    def moments(self, x: Vector, P: Matrix, p: Vector) -> Moments:
        """Return the forecast from a state and its covariance."""
        m = self.bound_filter
        result = run_filter(m.scheme, self.schedule, Start(np.array(x), np.array(P)), m.inputs(p), True)
        at = np.searchsorted(self.schedule.times, self.times)
        if result.node >= 0:
            time = float(self.schedule.times[result.node])
            raise SimulationError(
                f"The forecast broke down at time {time:.6g}: state or covariance is not finite.", time=time
            )
        assert result.record is not None, "a recorded pass"
        return self._together(result.record.x_predicted[at], result.record.P_predicted[at], p, at)

    def _together(self, x: Matrix, P: Cube, p: Vector, at: Any) -> Moments:
        n, m = x.shape[1], len(self.spec.variables)
        y, H = self.values.at(self.times, x, p, self.schedule.inputs[at])
        H = np.concatenate([np.broadcast_to(np.eye(n), (len(x), n, n)), H[:, :-m]], axis=1)
        sds = np.abs(y[:, -m:]) * self.errors
        return Moments(np.concatenate([x, y[:, :-m]], axis=1), np.einsum("tai,tij,tbj->tab", H, P, H), sds)

    def readings_of(self, x: Cube, p: Vector, rng: np.random.Generator) -> tuple[Cube, Cube]:
        """Return states, outputs and readings along paths, shape (n_draw, n_time, k), and the readings with errors."""
        n_draw, n_time, n = x.shape
        m = len(self.spec.variables)
        at = np.tile(np.searchsorted(self.schedule.times, self.times), n_draw)
        t, flat, u = np.tile(self.times, n_draw), x.reshape(-1, n), self.schedule.inputs[at]
        y, _ = self.values.at(t, flat, p, u)
        whole, z, sds = np.concatenate([flat, y[:, :-m]], axis=1), y[:, -2 * m : -m], y[:, -m:]
        correlation = self.bound_filter.correlation(p)
        C = semidefinite_factor(correlation) if len(correlation) else np.eye(m)
        errors = np.abs(sds) * self.errors * (rng.standard_normal((len(z), m)) @ C.T)
        return whole.reshape(n_draw, n_time, -1), (z + errors).reshape(n_draw, n_time, m)


def end_of(run: EntityRun, spec: Specification) -> tuple[Vector, Matrix]:
    """Return state and covariance with all data, at the last of them."""
    assert run.run is not None, "a run that did not fail"
    assert run.run.record is not None, "a recorded run"
    if not spec.free_states:
        return run.run.record.x_filtered[run.end], run.run.record.P_filtered[run.end]
    free = np.array(spec.free_states, dtype=np.intp)
    h = history_of(run.schedule, run.run, run.correlation, free, len(spec.variables), False)
    return h.x_filtered[run.end], h.P_filtered[run.end]


def horizon_of(spec: Specification, run: EntityRun, steps: int | None, times: Any, forcings: Any) -> Horizon:
    """Return the model beyond the end of an entity's data; for the arguments see ``FilterResult.forecast``."""
    end = float(run.schedule.times[run.end])
    beyond = _times(spec, run, steps, times, end)
    definition = spec.definition
    if forcings is not None:
        definition = replace(definition, forcings=_scenario(definition.forcings, forcings, run.label))
    wholes = [int((beyond[-1] - end) / a.length + 1e-9) for a in spec.accumulators]
    ends = [end + a.length * np.arange(1, n + 1) for a, n in zip(spec.accumulators, wholes, strict=True)]
    resets = [
        Event(a.state, float(t - a.length), 0.0, "replace")
        for a, own in zip(spec.accumulators, ends, strict=True)
        for t in own
    ]
    later = replace(
        spec,
        grid=np.unique(np.concatenate([[end], beyond, _between(spec, end, float(beyond[-1]))])),
        initial="known",
        definition=definition,
        events=tuple(sorted((*spec.events, *resets), key=lambda e: e.time)),
    )
    schedule, _ = schedule_of(later, NO_READINGS, np.concatenate([[end], beyond]))
    errors = np.array([_typical(run, v) for v in range(len(spec.variables))])
    outputs = dict(outputs_of(later))
    complete = np.ones((len(beyond), len(spec.variables)), dtype=bool)
    for a, own in zip(spec.accumulators, ends, strict=True):
        complete[:, a.variable] = np.isclose(beyond[:, None], own[None, :]).any(axis=1)
    return Horizon(
        BoundFilter(later),
        schedule,
        beyond,
        tuple(outputs),
        StateFunctions(later, [*outputs.values(), *spec.space.readings, *spec.space.sds]),
        errors,
        complete,
    )


def _between(spec: Specification, end: float, last: float) -> Vector:
    """Return the model's own times beyond the data, at which fixed steps end."""
    if spec.propagation not in FIXED:
        return np.empty(0)
    grid = spec.grid if spec.dt is not None else continued(spec.grid, last)
    return grid[(grid > end) & (grid < last)]


def _typical(run: EntityRun, variable: int) -> float:
    """Return the median of what multiplies the sd of a variable's readings."""
    own = [r.errors[r.variables == variable] for r in (run.schedule.readings, run.used) if r is not None]
    errors = np.concatenate(own)
    return float(np.median(errors)) if len(errors) else 1.0


def _times(spec: Specification, run: EntityRun, steps: int | None, times: Any, end: float) -> Vector:
    if steps is not None:
        steps = whole_number(steps, "steps", 1, hint="; the times themselves go by `times=`")
        spacing = spec.dt or 1.0
        if spec.definition.kind != "difference":
            data = np.unique(run.schedule.readings.times)
            spacing = float(np.median(np.diff(data))) if len(data) > 1 else 1.0
        return np.asarray(end + spacing * np.arange(1, steps + 1), dtype=float)
    beyond = np.unique(times)
    beyond = beyond[beyond > end]
    if not len(beyond) or not np.isfinite(beyond).all():
        raise ArgumentError(f"`times` must hold finite times beyond the data, which end at {end:g}.")
    if spec.definition.kind == "difference":
        whole_steps(beyond, end, spec.dt or 1.0)
    return beyond


def _scenario(own: tuple[Forcing, ...], series: Any, label: Any) -> tuple[Forcing, ...]:
    """Return the forcings with those of a scenario, of an entity, in the places of the model's."""
    if not isinstance(series, Mapping):
        raise ArgumentError(
            f"`forcings` must be a dict of name and time series, as the model takes them; got {type(series).__name__}."
        )
    known = [f.name for f in own]
    for name in series:
        check_known(name, known, f"`forcings`: {name!r} is not a forcing of the model.")
    inputs = None if label is None else inputs_by_entity(None, series)
    by_entity = {} if inputs is None else inputs.of(label)["forcings"]
    new = {f.name: f for f in as_forcings({**series, **by_entity})}
    return tuple(new.get(f.name, f) for f in own)


@dataclass(frozen=True, slots=True, eq=False)
class Draws:
    """Draws of one entity: states, outputs and readings, shape (n_draw, n_time, k); readings with errors."""

    paths: Cube
    readings: Cube

    def complete(self) -> tuple[Cube, Cube]:
        """Return the draws that came to their end."""
        whole = np.isfinite(self.paths).all(axis=(1, 2))
        if not whole.any():
            raise SimulationError("Every simulated path broke down; look at the model beyond the data.")
        return self.paths[whole], self.readings[whole]

    def table(self, future: Horizon, label: Any, entity: str | None) -> pd.DataFrame:
        """Return all draws as one table, readings on the data's own scale."""
        spec = future.spec
        n_draw, n_time, _ = self.paths.shape
        k = len(spec.space.states) + len(future.outputs)
        columns = [*spec.space.states, *future.outputs, *(f"{v} (reading)" for v in spec.variables)]
        values = np.concatenate([self.paths[:, :, :k], on_own_scale(self.readings, spec)], axis=2)
        table = pd.DataFrame(values.reshape(n_draw * n_time, -1), columns=columns)
        table.insert(0, "time", np.tile(future.times, n_draw))
        table.insert(0, "draw", np.repeat(np.arange(n_draw), n_time))
        if entity is not None:
            table.insert(0, entity, label)
        return table


def simulate_paths(
    flt: FilterResult, futures: Sequence[Horizon], names: list[str], C: Matrix, n: int, rng: np.random.Generator
) -> list[Draws]:
    """Return paths by simulation: parameters, end of the data, noise of the system and of the readings are drawn."""
    theta = flt.parms.to_numpy(dtype=float)
    at = flt.parms.index.get_indexer(pd.Index(names))
    factor = semidefinite_factor(C) if names else C
    if not names:
        own = zip(futures, flt.runs, strict=True)
        return [Draws(*future.readings_of(_paths(future, run, n, rng), run.p, rng)) for future, run in own]
    parts: list[list[tuple[Cube, Cube]]] = [[] for _ in futures]
    for _ in range(n):
        moved = theta.copy()
        moved[at] += factor @ rng.standard_normal(len(at))
        for k, (future, run) in enumerate(zip(futures, flt.bound.records(moved, flt.entities), strict=True)):
            parts[k].append(future.readings_of(_paths(future, run, 1, rng), run.p, rng))
    return [Draws(*(np.concatenate(own) for own in zip(*part, strict=True))) for part in parts]


def _paths(future: Horizon, run: EntityRun, n: int, rng: np.random.Generator) -> Cube:
    """Return the states along n paths from the end of the data, shape (n, n_time, n_state); NaN after a breakdown."""
    spec = future.spec
    if run.failure is not None:
        return np.full((n, len(future.times), len(spec.space.states)), np.nan)
    paths = future.bound_filter.paths(future.schedule, Start(*end_of(run, spec)), run.p, n, rng)
    return paths[:, np.searchsorted(future.schedule.times, future.times)]
