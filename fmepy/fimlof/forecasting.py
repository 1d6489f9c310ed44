"""Forecasts: from the end of the data by prediction alone.

From x(N|N), P(N|N) the state goes on with its noise; a reading at a future time has the variance H P H' + R. Parameters
that were estimated add their part: with X = d forecast / d theta, by differences of the whole filter and forecast::

    P_tot = P + X C X'

Where that is too coarse (the forecast leaves the range in which the model is a plane), draws of theta, of the end of
the data and of the noise are run on, and the bands are their quantiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fmepy.checks import as_numbers, as_rng, between_0_and_1, whole_number
from fmepy.errors import ArgumentError, SimulationError, check_known, warn
from fmepy.fimlof.data import EntityRun
from fmepy.fimlof.filter_model import Specification
from fmepy.fimlof.forecast_paths import Draws, Horizon, Moments, horizon_of, simulate_paths
from fmepy.fimlof.outputs import band, names_of_sums, on_own_scale, positive_names
from fmepy.numerics.differences import central_differences
from fmepy.parameters.scales import check_scale
from fmepy.results.tables import Framed, Part, long_table, wrapped
from fmepy.tables.sheet import calendar_of, numbers_of_times
from fmepy.types import AxesArray, Cube, Matrix, Seed, Vector
from fmepy.vocabulary import by_name

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
        The same with further times between coarse ones, and the ends of the bands ("<name> lower", "<name> upper"); for
        pictures.
    message : str
        What is to be said of it: inputs that end before it, the scales of reading_sd.
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
    message: str = ""

    elsewhere = by_name(
        {"summary_frame head predicted_mean tail": "`frame`", "conf_int confint": "`frame`, its lower and upper"}
    )

    def plot(self, which: Any = None, *, axes: Any = None, **kwargs: Any) -> AxesArray:
        """Draw the end of the data and the fans of the forecast, one panel a variable; return the Axes."""
        from fmepy.plotting.filtering import plot_forecast

        return plot_forecast(self, which, axes=axes, **kwargs)

    def shown(self) -> list[str | Part]:
        """Return what the bands are of, and the table."""
        parameters = "with the uncertainty of the parameters" if self.with_parameters else "parameters taken as known"
        n_draws = 0 if self.draws is None else self.draws["draw"].nunique()
        drawn = f", from {n_draws} draws" if n_draws else ""
        head = f"Forecast, {100 * self.level:.4g} % bands of the state or output (lower, upper) and of a reading"
        table = long_table(self.frame.astype(object).where(self.frame.notna(), ""))
        return [f"{head}; {parameters}{drawn}", table, *([wrapped(self.message)] if self.message else [])]


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
    """Return forecasts from the end of the data, by prediction alone.

    Parameters
    ----------
    steps : int, optional
        So many further steps of a difference equation, or median spacings of the samples.
    times : sequence, optional
        Times beyond the data instead: numbers, or dates where the data had dates.
    level : float
        Coverage of the bands.
    parm_cov : DataFrame, optional
        Covariance of parameters that were estimated, such as ``fit.cov_scaled``: their uncertainty is added.
    forcings : mapping, optional
        Inputs of a scenario, as the model takes them, also by entity; they replace the model's beyond the data. An
        input that ends before the forecast keeps its last value, with a warning.
    draws : int
        So many simulated paths (of parameters, of the end of the data, of all noise); the bands are their
        quantiles. Needed where the forecast leaves the range in which the model is nearly linear.
    seed : int, Generator or None

    Returns
    -------
    Forecast
        With the band of the state or output itself, and that of a reading of it.

    Raises
    ------
    ArgumentError
        Arguments that cannot be.
    SimulationError
        The filter broke down, or the forecast does.

    Examples
    --------
    >>> from fmepy.fimlof.cost import FimlofCost
    >>> from fmepy.models.difference import DifferenceModel
    >>> model = DifferenceModel("next(x) = x", state={"x": 0.0}, times=[0, 1, 2])
    >>> cost = FimlofCost(model, {"time": [1, 2], "x": [1.0, 3.0]}, process_noise={"x": 1.0},
    ...                   measurement_noise={"x": 1.0}, initial_sd={"x": 1.0})
    >>> cost.filter().forecast(2)[["time", "mean", "sd", "reading_sd"]].round(4)
       time   mean      sd  reading_sd
    0   3.0  2.125  1.2748      1.6202
    1   4.0  2.125  1.6202      1.9039
    """
    level = between_0_and_1(level, "level")
    if (steps is None) == (times is None):
        raise ArgumentError(
            "Give either `steps`, a number of steps beyond the data, or `times=`, the times themselves."
        )
    draws = whole_number(draws, "draws", 0)
    times = None if times is None else numbers_of_times(times, flt.cost.calendar)
    if flt.failure is not None:
        raise SimulationError(f"There is no forecast: {flt.failure}", parameters=flt.values)
    names, C = _covariance(parm_cov, flt.parms)
    spec = flt.bound.spec
    futures = [horizon_of(flt.bound.spec_of(run.label), run, steps, times, forcings) for run in flt.runs]
    notes = list(dict.fromkeys(note for f in futures for note in f.inputs_that_end()))
    for note in notes:
        warn(note)
    kinds = zip(spec.variables, spec.transforms, strict=True)
    notes += [f"The reading_sd of {name!r} is on the scale of {how}." for name, how in kinds if how is not None]
    theta = flt.parms.to_numpy(dtype=float)
    moments = [f.run(run, spec) for f, run in zip(futures, flt.runs, strict=True)]
    covariances = [m.covariance for m in moments]
    if names:
        slopes = _slopes(flt, futures, theta, [flt.parms.index.get_loc(k) for k in names], np.sqrt(np.diag(C)))
        covariances = [P + np.einsum("tia,ab,tjb->tij", S, C, S) for P, S in zip(covariances, slopes, strict=True)]
    drawn = simulate_paths(flt, futures, names, C, draws, as_rng(seed)) if draws else None
    entity = flt.entity_column
    parts = [
        rows_of_entity(f, m, P, level, None if drawn is None else drawn[k], run, entity)
        for k, (f, m, P, run) in enumerate(zip(futures, moments, covariances, flt.runs, strict=True))
    ]
    n = len(spec.space.states)
    table = None
    if drawn is not None:
        own = [d.table(f, r.label, entity) for d, f, r in zip(drawn, futures, flt.runs, strict=True)]
        table = pd.concat(own, ignore_index=True)
    frame = pd.concat(parts, ignore_index=True)
    frame.attrs["calendar"] = calendar_of(flt.cost)
    return Forecast(
        frame,
        np.concatenate([P[:, :n, :n] for P in covariances]),
        float(level),
        bool(names),
        table,
        flt.data_as_given,
        _until_the_end(flt),
        _until_the_end(flt.drawn_through(), level),
        flt.xlabel,
        entity,
        " ".join(notes),
    )


def _until_the_end(flt: FilterResult, level: float | None = None) -> pd.DataFrame:
    """Return the table of states until the last datum of every entity, with the ends of their bands, of a level."""
    kind = "smoothed" if flt.smooth else "filtered"
    table: pd.DataFrame = getattr(flt, kind)
    if level is not None:
        lower, upper = flt.limits(kind, level)
        table = pd.concat([table, lower.add_suffix(" lower"), upper.add_suffix(" upper")], axis=1)
    kept = np.concatenate([np.arange(len(r.schedule.times)) <= r.end for r in flt.runs])
    return table[kept].reset_index(drop=True)


def _covariance(table: Any, parms: pd.Series) -> tuple[list[str], Matrix]:
    """Return the names of uncertain parameters and their covariance."""
    if table is None:
        return [], np.empty((0, 0))
    if not isinstance(table, pd.DataFrame):
        raise ArgumentError(
            f"`parm_cov` must be a table labelled by parameters, such as fit.cov_scaled; got {type(table).__name__}."
        )
    check_scale(table, parms, "parm_cov")
    names = [str(c) for c in table.columns]
    for name in names:
        check_known(name, parms.index, f"`parm_cov`: {name!r} is not a parameter of the filter.")
    C = as_numbers(table, "parm_cov")
    moves = ~np.isnan(np.diag(C))  # an sd that was estimated at zero has no variance: it stays there
    if C.shape[0] == C.shape[1] and moves.any():
        names, C = [k for k, m in zip(names, moves, strict=True) if m], C[np.ix_(moves, moves)]
    if C.shape[0] != C.shape[1] or not np.isfinite(C).all() or np.any(np.diag(C) < 0):
        raise ArgumentError(
            "`parm_cov` must be a covariance: square, finite, without negative variances. Where a fit gives none "
            "(NaN), its message says which parameters the data do not determine."
        )
    return names, C


def _slopes(flt: FilterResult, futures: Sequence[Horizon], theta: Vector, at: Sequence[Any], se: Vector) -> list[Cube]:
    """Return d forecast / d theta of every entity, shape (n_time, k, n_par), by differences inside the bounds."""
    bound, places = flt.bound, list(at)
    shapes: list[tuple[int, ...]] = []

    def means(moved: Vector) -> Vector:
        full = theta.copy()
        full[places] = moved
        runs = [_check_run(run) for run in bound.records(full, flt.entities)]
        forecasts = [f.run(run, bound.spec).mean for f, run in zip(futures, runs, strict=True)]
        shapes[:] = [f.shape for f in forecasts]
        return np.concatenate([f.ravel() for f in forecasts])

    steps = np.where(se > 0, 0.01 * se, 1e-6 * np.maximum(np.abs(theta[places]), 1e-3))
    S = central_differences(means, theta[places], steps, (bound.lower[places], bound.upper[places]))
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])[:-1]
    return [part.reshape(*shape, len(places)) for part, shape in zip(np.split(S, ends), shapes, strict=True)]


def _check_run(run: EntityRun) -> EntityRun:
    if run.failure is not None:
        raise SimulationError(f"The forecast has no derivative with respect to the parameters: {run.failure}")
    return run


def rows_of_entity(
    future: Horizon, moments: Moments, P: Cube, level: float, drawn: Draws | None, run: EntityRun, entity: str | None
) -> pd.DataFrame:
    """Return the rows of one entity."""
    from scipy.special import ndtri

    spec = future.spec
    shown = _shown(spec, future.outputs)
    at, of = [column for _, column, _ in shown], [variable for _, _, variable in shown]
    m = len(spec.variables)
    q = float(ndtri((1 + level) / 2))
    mean, sd = moments.mean, np.sqrt(np.maximum(np.einsum("tii->ti", P), 0.0))
    errors = moments.error_sds
    lower, upper, z_sd = mean - q * sd, mean + q * sd, np.sqrt(sd[:, -m:] ** 2 + errors**2)
    z_lower, z_upper = mean[:, -m:] - q * z_sd, mean[:, -m:] + q * z_sd
    positive = positive_names(spec)
    for j, name in enumerate((*spec.space.states, *future.outputs)):
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
