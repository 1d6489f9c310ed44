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

from fmepy.checks import as_rng, between_0_and_1, whole_number
from fmepy.errors import ArgumentError, SimulationError, did_you_mean, listed
from fmepy.fimlof.ahead import Future, future_of
from fmepy.fimlof.drawn import drawn_paths
from fmepy.fimlof.entity_run import EntityRun
from fmepy.fimlof.forecast_tables import rows_of_entity
from fmepy.numerics.differences import central_differences
from fmepy.parameters.scales import check_scale
from fmepy.results.tables import Framed, Part, long_table
from fmepy.types import AxesArray, Cube, Matrix, Seed, Vector

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
        that cannot be negative (`fmepy.fimlof.bands` says which) is log-normal, and keeps above zero. What was read
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
