"""Forecasts: from the end of the data by prediction alone.

From x(N|N), P(N|N) the state goes on with its noise; a reading at a future time has the variance H P H' + R. Parameters
that were estimated add their part: with X = d forecast / d theta, by differences of the whole filter and forecast::

    P_tot = P + X C X'

Where that is too coarse (the forecast leaves the range in which the model is a plane), draws of theta, of the end of
the data and of the noise are run on, and the bands are their quantiles.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fmepy.checks import as_rng, between_0_and_1, whole_number
from fmepy.errors import ArgumentError, SimulationError, did_you_mean, listed
from fmepy.filtering.run import Start, run_filter
from fmepy.filtering.schedule import Schedule
from fmepy.filtering.smoothing import history_of
from fmepy.fimlof.between import NO_READINGS
from fmepy.fimlof.bound_filter import BoundFilter, schedule_of, settings_of
from fmepy.fimlof.data import EntityRun
from fmepy.fimlof.outputs import StateFunctions, band, names_of_sums, on_own_scale, output_functions, positive_names
from fmepy.fimlof.specification import FIXED, Specification
from fmepy.models.difference import whole_steps
from fmepy.models.engines.fixed import continued
from fmepy.models.running.by_entity import inputs_by_entity
from fmepy.models.running.events import Event
from fmepy.models.running.forcings import Forcing, as_forcings
from fmepy.numerics.covariance import semidefinite_factor
from fmepy.numerics.differences import central_differences
from fmepy.parameters.scales import check_scale
from fmepy.results.tables import Framed, Part, long_table
from fmepy.types import AxesArray, BoolVector, Cube, Matrix, Seed, Vector

if TYPE_CHECKING:
    from fmepy.fimlof.result import FilterResult


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Forecast(Framed):
    """Forecasts of states, outputs and readings, with bands.

    Attributes
    ----------
    frame : DataFrame
        [entity,] time, name, mean, sd, lower, upper: of the *state or output itself*; and reading_sd, reading_lower,
        reading_upper: of a single *reading* of it, errors of measurement included (on the data's own scale; of a
        transformed variable reading_sd is on the transformed one). NaN for what is not observed. The band of a state
        that cannot be negative (`fmepy.fimlof.outputs` says which) is log-normal, and keeps above zero. What was read
        as a sum (`accumulate`) has rows of its own, "sum of <variable>", at whole lengths of it after the end of the
        data.
    cov : ndarray, shape (n_time, n, n)
        Of the states, by entity and time.
    level : float
        Coverage of the bands.
    with_parameters : bool
        Whether the uncertainty of parameters is in.
    draws : DataFrame or None
        [entity,] draw, time, states, outputs, and "<variable> (reading)"; the bands are quantiles of them.
    past : DataFrame
        The data; for pictures.
    smoothed : DataFrame
        States and outputs until the end of the data.
    line : DataFrame
        The same with further times between coarse ones; for pictures.
    """

    frame: pd.DataFrame
    cov: Cube
    level: float
    with_parameters: bool
    draws: pd.DataFrame | None
    past: pd.DataFrame
    smoothed: pd.DataFrame
    line: pd.DataFrame
    xlabel: str = "time"
    entity: str | None = None

    def plot(self, which: Any = None, *, axes: Any = None, **kwargs: Any) -> AxesArray:
        """Draw the end of the data and the fans of the forecast, one panel a variable; return the Axes."""
        from fmepy.plotting.filtering import plot_forecast

        return plot_forecast(self, which, axes=axes, **kwargs)

    def shown(self) -> list[str | Part]:
        """Return what the bands are of, and the table."""
        parameters = "with the uncertainty of the parameters" if self.with_parameters else "parameters taken as known"
        n_draws = 0 if self.draws is None else self.draws["draw"].nunique()
        drawn = f", from {n_draws} draws" if n_draws else ""
        head = f"Forecast, {100 * self.level:.4g}% bands of the state or output (lower, upper) and of a reading"
        return [f"{head}; {parameters}{drawn}", long_table(self.frame)]


def forecast(
    flt: FilterResult,
    steps: int | None = None,
    *,
    times: Any = None,
    level: float = 0.95,
    parm_cov: Any = None,
    forcings: Any = None,
    draws: int = 0,
    seed: Seed = None,
) -> Forecast:
    """Return forecasts from the end of the data; see ``FilterResult.forecast``."""
    level = between_0_and_1(level, "level")
    if (steps is None) == (times is None):
        raise ArgumentError(
            "Give either `steps`, a number of steps beyond the data, or `times=`, the times themselves."
        )
    draws = whole_number(draws, "draws", 0)
    if flt.failure is not None:
        raise SimulationError(f"There is no forecast: {flt.failure}", parameters=flt.values)
    names, C = _covariance(parm_cov, flt.parms)
    spec = flt.bound.spec
    futures = [future_of(flt.bound.spec_of(run.label), run, steps, times, forcings) for run in flt.runs]
    theta = flt.parms.to_numpy(dtype=float)
    ahead = [f.run(run, spec) for f, run in zip(futures, flt.runs, strict=True)]
    covariances = [a.covariance for a in ahead]
    if names:
        slopes = _slopes(flt, futures, theta, [flt.parms.index.get_loc(k) for k in names], np.sqrt(np.diag(C)))
        covariances = [P + np.einsum("tia,ab,tjb->tij", S, C, S) for P, S in zip(covariances, slopes, strict=True)]
    drawn = drawn_paths(flt, futures, names, C, draws, as_rng(seed)) if draws else None
    entity = flt.entity_column
    parts = [
        rows_of_entity(f, a, P, level, None if drawn is None else drawn[k], run, entity)
        for k, (f, a, P, run) in enumerate(zip(futures, ahead, covariances, flt.runs, strict=True))
    ]
    n = len(spec.space.states)
    table = None
    if drawn is not None:
        own = [d.table(f, r.label, entity) for d, f, r in zip(drawn, futures, flt.runs, strict=True)]
        table = pd.concat(own, ignore_index=True)
    return Forecast(
        pd.concat(parts, ignore_index=True),
        np.concatenate([P[:, :n, :n] for P in covariances]),
        float(level),
        bool(names),
        table,
        flt.data_as_given,
        _until_the_end(flt),
        _until_the_end(flt.drawn_through()),
        flt.xlabel,
        entity,
    )


def _until_the_end(flt: FilterResult) -> pd.DataFrame:
    """Return the table of states until the last datum of every entity."""
    table = flt.smoothed if flt.smooth else flt.filtered
    kept = np.concatenate([np.arange(len(r.schedule.times)) <= r.end for r in flt.runs])
    return table[kept].reset_index(drop=True)


def _covariance(given: Any, parms: pd.Series) -> tuple[list[str], Matrix]:
    """Return the names of uncertain parameters and their covariance."""
    if given is None:
        return [], np.empty((0, 0))
    if not isinstance(given, pd.DataFrame):
        raise ArgumentError(
            f"`parm_cov` must be a table labelled by parameters, such as fit.cov_scaled; got {type(given).__name__}."
        )
    check_scale(given, parms, "parm_cov")
    names = [str(c) for c in given.columns]
    for name in names:
        if name not in parms.index:
            raise ArgumentError(
                f"`parm_cov`: {name!r} is no parameter of the filter.{did_you_mean(name, parms.index)} There are "
                f"{listed(parms.index)}."
            )
    C = given.to_numpy(dtype=float)
    moves = ~np.isnan(np.diag(C))  # an sd that was estimated at zero has no variance: it stays there
    if C.shape[0] == C.shape[1] and moves.any():
        names, C = [k for k, m in zip(names, moves, strict=True) if m], C[np.ix_(moves, moves)]
    if C.shape[0] != C.shape[1] or not np.isfinite(C).all() or np.any(np.diag(C) < 0):
        raise ArgumentError(
            "`parm_cov` must be a covariance: square, finite, without negative variances. Where a fit gives none "
            "(NaN), its message says which parameters the data do not determine."
        )
    return names, C


def _slopes(flt: FilterResult, futures: Sequence[Future], theta: Vector, at: Sequence[Any], se: Vector) -> list[Cube]:
    """Return d forecast / d theta of every entity, shape (n_time, k, n_par), by differences inside the bounds."""
    bound, places = flt.bound, list(at)
    shapes: list[tuple[int, ...]] = []

    def means(moved: Vector) -> Vector:
        full = theta.copy()
        full[places] = moved
        runs = [_sound(run) for run in bound.records(full, flt.entities)]
        ahead = [f.run(run, bound.spec).mean for f, run in zip(futures, runs, strict=True)]
        shapes[:] = [a.shape for a in ahead]
        return np.concatenate([a.ravel() for a in ahead])

    steps = np.where(se > 0, 0.01 * se, 1e-6 * np.maximum(np.abs(theta[places]), 1e-3))
    S = central_differences(means, theta[places], steps, (bound.lower[places], bound.upper[places]))
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])[:-1]
    return [part.reshape(*shape, len(places)) for part, shape in zip(np.split(S, ends), shapes, strict=True)]


def _sound(run: EntityRun) -> EntityRun:
    if run.failure is not None:
        raise SimulationError(f"The forecast has no derivative to the parameters: {run.failure}")
    return run


@dataclass(frozen=True, slots=True, eq=False)
class Ahead:
    """Mean, shape (n_time, k), and covariance, (n_time, k, k), of states, outputs and readings together."""

    mean: Matrix
    covariance: Cube


@dataclass(frozen=True, slots=True, eq=False)
class Future:
    """What runs on from the end of one entity's data."""

    bound_filter: BoundFilter
    schedule: Schedule
    times: Vector
    outputs: StateFunctions
    readings: StateFunctions
    sds: StateFunctions
    errors: Vector  # typical multiplier of the sd of a reading
    complete: BoolVector  # (n_time, n_var): where a sum has run over its whole length; True of others

    @property
    def spec(self) -> Specification:
        """What is filtered, with the events and inputs beyond the data."""
        return self.bound_filter.spec

    def run(self, run: EntityRun, filtered: Specification) -> Ahead:
        """Return the forecast from the end of a run of the model as the data were filtered, with its own start."""
        x, P = end_of(run, filtered)
        return self.ahead(x, P, run.p)

    def ahead(self, x: Vector, P: Matrix, p: Vector) -> Ahead:
        """Return the forecast from a state and its covariance."""
        result = self._passed(self.schedule, x, P, p)
        at = np.searchsorted(self.schedule.times, self.times)
        if result.node >= 0:
            time = float(self.schedule.times[result.node])
            raise SimulationError(
                f"The forecast broke down at time {time:.6g}: state or covariance is not finite.", time=time
            )
        return self._together(result.record.x_predicted[at], result.record.P_predicted[at], p, at)

    def _passed(self, schedule: Schedule, x: Vector, P: Matrix, p: Vector) -> Any:
        m = self.bound_filter
        start = Start(np.array(x), np.array(P), np.empty(0, dtype=np.intp))
        return run_filter(m.scheme, schedule, start, *settings_of(m, p), True)

    def _together(self, x: Matrix, P: Cube, p: Vector, at: Any) -> Ahead:
        u = self.schedule.inputs[at]
        y, Hy = self.outputs.at(self.times, x, p, u)
        z, Hz = self.readings.at(self.times, x, p, u)
        n = x.shape[1]
        H = np.concatenate([np.broadcast_to(np.eye(n), (len(x), n, n)), Hy, Hz], axis=1)
        return Ahead(np.concatenate([x, y, z], axis=1), np.einsum("tai,tij,tbj->tab", H, P, H))

    def error_sds(self, x: Matrix, p: Vector) -> Matrix:
        """Return the sds of the errors of readings, shape (n_time, n_var)."""
        at = np.searchsorted(self.schedule.times, self.times)
        sds, _ = self.sds.at(self.times, x, p, self.schedule.inputs[at])
        return np.asarray(np.abs(sds) * self.errors, dtype=float)

    def readings_of(self, x: Cube, p: Vector, rng: np.random.Generator) -> tuple[Cube, Cube]:
        """Return states, outputs and readings along paths, shape (n_draw, n_time, k), and the readings with errors."""
        n_draw, n_time, n = x.shape
        m = len(self.spec.variables)
        at = np.tile(np.searchsorted(self.schedule.times, self.times), n_draw)
        t, flat, u = np.tile(self.times, n_draw), x.reshape(-1, n), self.schedule.inputs[at]
        y, z, sds = (f.at(t, flat, p, u)[0] for f in (self.outputs, self.readings, self.sds))
        correlation = self.bound_filter.correlation(p)
        C = semidefinite_factor(correlation) if len(correlation) else np.eye(m)
        errors = np.abs(sds) * self.errors * (rng.standard_normal((len(z), m)) @ C.T)
        whole = np.concatenate([flat, y, z], axis=1).reshape(n_draw, n_time, -1)
        return whole, (z + errors).reshape(n_draw, n_time, m)


def end_of(run: EntityRun, spec: Specification) -> tuple[Vector, Matrix]:
    """Return state and covariance with all data, at the last of them."""
    assert run.run is not None, "a run that did not fail"
    assert run.run.record is not None, "a recorded run"
    if not spec.free_states:
        return run.run.record.x_filtered[run.end], run.run.record.P_filtered[run.end]
    free = np.array(spec.free_states, dtype=np.intp)
    h = history_of(run.schedule, run.run, run.correlation, free, len(spec.variables), False)
    return h.x_filtered[run.end], h.P_filtered[run.end]


def future_of(spec: Specification, run: EntityRun, steps: int | None, times: Any, forcings: Any) -> Future:
    """Return what runs on from the end of an entity's data; for the arguments see ``FilterResult.forecast``."""
    end = float(run.schedule.times[run.end])
    ahead = _times(spec, run, steps, times, end)
    definition = spec.definition
    if forcings is not None:
        definition = replace(definition, forcings=_scenario(definition.forcings, forcings, run.label))
    wholes = [int((ahead[-1] - end) / a.length + 1e-9) for a in spec.accumulators]
    ends = [end + a.length * np.arange(1, n + 1) for a, n in zip(spec.accumulators, wholes, strict=True)]
    resets = [
        Event(a.state, float(t - a.length), 0.0, "replace")
        for a, own in zip(spec.accumulators, ends, strict=True)
        for t in own
    ]
    later = replace(
        spec,
        grid=np.unique(np.concatenate([[end], ahead, _between(spec, end, float(ahead[-1]))])),
        initial="known",
        definition=definition,
        events=tuple(sorted((*spec.events, *resets), key=lambda e: e.time)),
    )
    schedule, _ = schedule_of(later, NO_READINGS, np.concatenate([[end], ahead]))
    errors = np.array([_typical(run, v) for v in range(len(spec.variables))])
    complete = np.ones((len(ahead), len(spec.variables)), dtype=bool)
    for a, own in zip(spec.accumulators, ends, strict=True):
        complete[:, a.variable] = np.isclose(ahead[:, None], own[None, :]).any(axis=1)
    return Future(
        BoundFilter(later),
        schedule,
        ahead,
        output_functions(later),
        StateFunctions(later, spec.variables, spec.space.readings),
        StateFunctions(later, spec.variables, spec.space.sds),
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
        steps = whole_number(steps, "steps", 1)
        spacing = 1.0
        if spec.definition.kind != "difference":
            data = np.unique(run.schedule.readings.times)
            spacing = float(np.median(np.diff(data))) if len(data) > 1 else 1.0
        return np.asarray(end + spacing * np.arange(1, steps + 1), dtype=float)
    try:
        ahead = np.unique(np.asarray(times, dtype=float))
    except (TypeError, ValueError):
        raise ArgumentError(f"`times` must hold numbers, as the model's times are; got {times!r}.") from None
    ahead = ahead[ahead > end]
    if not len(ahead) or not np.isfinite(ahead).all():
        raise ArgumentError(f"`times` must hold finite times beyond the data, which end at {end:g}.")
    if spec.definition.kind == "difference":
        whole_steps(ahead, end)
    return ahead


def _scenario(own: tuple[Forcing, ...], given: Any, label: Any) -> tuple[Forcing, ...]:
    """Return the forcings with those of a scenario, of an entity, in the places of the model's."""
    if not isinstance(given, Mapping):
        raise ArgumentError(
            f"`forcings` must be a dict of name and time series, as the model takes them; got {type(given).__name__}."
        )
    known = [f.name for f in own]
    for name in given:
        if name not in known:
            raise ArgumentError(
                f"`forcings`: {name!r} is no forcing of the model.{did_you_mean(name, known)} There are "
                f"{listed(known)}."
            )
    inputs = None if label is None else inputs_by_entity(None, given)
    by_entity = {} if inputs is None else inputs.of(label)["forcings"]
    new = {f.name: f for f in as_forcings({**given, **by_entity})}
    return tuple(new.get(f.name, f) for f in own)


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """Paths of one entity: states, outputs and readings, shape (n_draw, n_time, k); readings with errors."""

    paths: Cube
    readings: Cube

    def complete(self) -> tuple[Cube, Cube]:
        """Return the draws that came to their end."""
        kept = np.isfinite(self.paths).all(axis=(1, 2))
        if not kept.any():
            raise SimulationError("Every simulated path broke down; look at the model beyond the data.")
        return self.paths[kept], self.readings[kept]

    def table(self, future: Future, label: Any, entity: str | None) -> pd.DataFrame:
        """Return all draws as one table, readings on the data's own scale."""
        spec = future.spec
        n_draw, n_time, _ = self.paths.shape
        k = len(spec.space.states) + len(future.outputs.names)
        columns = [*spec.space.states, *future.outputs.names, *(f"{v} (reading)" for v in spec.variables)]
        values = np.concatenate([self.paths[:, :, :k], on_own_scale(self.readings, spec)], axis=2)
        table = pd.DataFrame(values.reshape(n_draw * n_time, -1), columns=columns)
        table.insert(0, "time", np.tile(future.times, n_draw))
        table.insert(0, "draw", np.repeat(np.arange(n_draw), n_time))
        if entity is not None:
            table.insert(0, entity, label)
        return table


def drawn_paths(
    flt: FilterResult, futures: Sequence[Future], names: list[str], C: Matrix, n: int, rng: np.random.Generator
) -> list[Drawn]:
    """Return paths by simulation: parameters, end of the data, noise of the system and of the readings are drawn."""
    theta = flt.parms.to_numpy(dtype=float)
    at = flt.parms.index.get_indexer(pd.Index(names))
    factor = semidefinite_factor(C) if names else C
    drawn = []
    if not names:
        for future, run in zip(futures, flt.runs, strict=True):
            drawn.append(Drawn(*future.readings_of(_paths(future, run, n, rng), run.p, rng)))
        return drawn
    parts: list[list[tuple[Cube, Cube]]] = [[] for _ in futures]
    for _ in range(n):
        moved = theta.copy()
        moved[at] += factor @ rng.standard_normal(len(at))
        for k, (future, run) in enumerate(zip(futures, flt.bound.records(moved, flt.entities), strict=True)):
            parts[k].append(future.readings_of(_paths(future, run, 1, rng), run.p, rng))
    return [Drawn(*(np.concatenate(own) for own in zip(*part, strict=True))) for part in parts]


def _paths(future: Future, run: EntityRun, n: int, rng: np.random.Generator) -> Cube:
    """Return the states along n paths from the end of the data, shape (n, n_time, n_state); NaN after a breakdown."""
    spec = future.spec
    if run.failure is not None:
        return np.full((n, len(future.times), len(spec.space.states)), np.nan)
    start = Start(*end_of(run, spec), np.empty(0, dtype=np.intp))
    paths = future.bound_filter.paths(future.schedule, start, run.p, n, rng)
    return paths[:, np.searchsorted(future.schedule.times, future.times)]


def rows_of_entity(
    future: Future, ahead: Ahead, P: Cube, level: float, drawn: Drawn | None, run: EntityRun, entity: str | None
) -> pd.DataFrame:
    """Return the rows of one entity."""
    from scipy.special import ndtri

    spec = future.spec
    shown = _shown(spec, future.outputs.names)
    at, of = [column for _, column, _ in shown], [variable for _, _, variable in shown]
    n, m = len(spec.space.states), len(spec.variables)
    q = float(ndtri((1 + level) / 2))
    mean, sd = ahead.mean, np.sqrt(np.maximum(np.einsum("tii->ti", P), 0.0))
    errors = future.error_sds(mean[:, :n], run.p)
    lower, upper, z_sd = mean - q * sd, mean + q * sd, np.sqrt(sd[:, -m:] ** 2 + errors**2)
    z_lower, z_upper = mean[:, -m:] - q * z_sd, mean[:, -m:] + q * z_sd
    positive = positive_names(spec)
    for j, name in enumerate((*spec.space.states, *future.outputs.names)):
        if name in positive:
            lower[:, j], upper[:, j] = band(mean[:, j], sd[:, j], q, True)
            for v in (v for v, read in enumerate(spec.variables) if read == name and spec.transforms[v] is None):
                z, e = mean[:, j], q * errors[:, v]  # a reading errs by so much more, to either side
                z_lower[:, v] = z - np.hypot(z - lower[:, j], e)
                z_upper[:, v] = z + np.hypot(upper[:, j] - z, e)
    if drawn is not None:
        tails = [(1 - level) / 2, (1 + level) / 2]
        paths, readings = drawn.complete()
        lower, upper = np.quantile(paths, tails, axis=0)
        mean, sd, z_sd = paths.mean(axis=0), paths.std(axis=0), readings.std(axis=0)
        z_lower, z_upper = np.quantile(readings, tails, axis=0)
    bands = {"mean": mean, "sd": sd, "lower": lower, "upper": upper}
    of_readings = {"reading_sd": z_sd, "reading_lower": z_lower, "reading_upper": z_upper}
    nothing = np.full((len(mean), 1), np.nan)
    columns = {key: _own_scale(key, values, spec)[:, at] for key, values in bands.items()}
    columns |= {key: np.hstack([_own_scale(key, values, spec), nothing])[:, of] for key, values in of_readings.items()}
    for i, (_, column, variable) in enumerate(shown):
        if column >= mean.shape[1] - m:  # a sum has a value only where it is complete
            for values in columns.values():
                values[~future.complete[:, variable], i] = np.nan
    table = pd.DataFrame(
        {
            "time": np.tile(future.times, len(shown)),
            "name": np.repeat(np.array([name for name, _, _ in shown], dtype=object), len(mean)),
            **{key: values.T.ravel() for key, values in columns.items()},
        }
    )
    if entity is not None:
        table.insert(0, entity, run.label)
    return table


def _shown(spec: Specification, outputs: Sequence[str]) -> list[tuple[str, int, int]]:
    """Return name, column among states, outputs and readings, and the variable read (-1: none) of every row.

    A sum is shown as it is read, under a name of its own.
    """
    states, variables = spec.space.states, list(spec.variables)
    summed = {a.variable: a.state for a in spec.accumulators}
    names = [*states, *outputs]
    shown = []
    for column, name in enumerate(names):
        if column not in summed.values() or column >= len(states):
            read = variables.index(name) if name in variables else -1
            shown.append((name, column, -1 if read in summed else read))
    of_sums = names_of_sums(spec)
    shown += [(of_sums[variables[v]], len(names) + v, v) for v in summed]
    return shown


def _own_scale(key: str, values: Matrix, spec: Specification) -> Matrix:
    """Return a table whose last columns are readings with those on the data's own scale; sds stay as they are."""
    out = np.array(values, dtype=float)
    if not key.endswith("sd"):
        m = len(spec.variables)
        out[:, -m:] = on_own_scale(out[:, -m:], spec)
    return out
