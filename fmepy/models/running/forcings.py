"""Forcings: time series as inputs of a model, and what the solvers need to know of them.

Between two of its knots a forcing is a straight line ``a + b (t - t_ref)`` (linear) or a constant. Runs are cut into
segments at every knot where one of them changes, so that no solver ever steps over a pulse: a compiled solver without a
largest step would otherwise return a wrong answer with no sign of it. Outside its knots a forcing is held constant.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fmepy.errors import ModelError, check_choice, listed, repeated
from fmepy.language.interpolants import Series
from fmepy.parameters.names import normal_name
from fmepy.tables.columns import refuse_dates
from fmepy.types import Cube, Matrix, Vector

logger = logging.getLogger(__name__)
MOST_STOPS = 1e6
"""Of a run, at the points of a series that is repeated."""


@dataclass(frozen=True, slots=True, eq=False)
class Forcing:
    """One time series as an input.

    Attributes
    ----------
    name : str
    times : ndarray, shape (n_knot,)
        Increasing; a "linear" one of a function may jump, at a time that stands twice.
    values : ndarray, shape (n_knot,)
    method : {"linear", "constant"}
        "constant" keeps the value of the last knot passed.
    period : float
        0, or that of a series that is repeated, from its first time to its last.
    of_function : bool
        Whether the model's function looks it up by itself (`language.interpolants`); nobody gave it.
    """

    name: str
    times: Vector
    values: Vector
    method: str = "linear"
    period: float = 0.0
    of_function: bool = False

    @property
    def _series(self) -> Series:
        return Series(self.times, self.values, self.method, self.period)

    def at(self, t: Any) -> Vector:
        """Return the forcing at times `t`; at a jump, the value after it."""
        return self._series.at(t)

    def knots(self, start: float, end: float) -> Vector:
        """Return the times at which the line or the level really changes, of cycles those of a run."""
        own = self._own_knots()
        if not self.period:
            return own
        own = np.append(self.times[0], own[(own > self.times[0]) & (own < self.times[-1])])
        first, last = (self._series.cycle_offset(t) / self.period for t in (start, end))
        if (stops := len(own) * (last - first)) > MOST_STOPS:
            raise ModelError(
                f"The model's function looks up a table of a cycle of {self.period:g}: a run from {start:g} to {end:g} "
                f"would stop {stops:.3g} times. Let it be shorter, or the table coarser."
            )
        return np.ravel(own + self.period * np.arange(first, last + 1)[:, None])

    @property
    def jumps(self) -> bool:
        """Whether it is more than a line with kinks."""
        return self.method == "constant" or bool(
            (self.period and self.values[0] != self.values[-1]) or (np.diff(self.times) == 0.0).any()
        )

    def _own_knots(self) -> Vector:
        if len(self.times) == 1:
            return np.empty(0)
        if self.method == "constant":
            return np.asarray(self.times[1:][np.diff(self.values) != 0])
        with np.errstate(divide="ignore", invalid="ignore"):
            slopes = np.concatenate([[0.0], np.diff(self.values) / np.diff(self.times), [0.0]])
            stays = np.abs(np.diff(slopes)) <= 1e-12 * (np.abs(slopes[1:]) + np.abs(slopes[:-1]))
        return np.asarray(self.times[~(stays & np.isfinite(np.diff(slopes)))])

    def line(self, start: Vector, end: Vector) -> tuple[Vector, Vector]:
        """Return (a, b) with ``u = a + b (t - start)`` on segments that hold no knot inside."""
        middle = 0.5 * (start + end)
        if self.method == "constant":
            return self.at(middle), np.zeros(len(start))
        first, times = self._series.cycle_offset(middle), [start, end]
        if self.jumps:  # at its ends it may have another value
            times = [0.75 * start + 0.25 * end, 0.25 * start + 0.75 * end]
        a, c = (np.interp(t - first, self.times, self.values) for t in times)
        slope = (c - a) / (times[1] - times[0])
        return a - slope * (times[0] - start), slope


def series_by_name(forcings: Any) -> Any:
    """Return a table of times and forcings as a dict of its columns, and all else as it is."""
    if not isinstance(forcings, pd.DataFrame):
        return forcings
    if forcings.columns.empty:
        return {}
    time, *names = forcings.columns
    return {str(name): (forcings[time], forcings[name]) for name in names}


def as_forcings(forcings: Any) -> tuple[Forcing, ...]:
    """Return what the user gave as forcings.

    Parameters
    ----------
    forcings : None, mapping of name to series, or table
        A table has times first, and then a column of every forcing. A series is a pandas Series (index: time),
        ``(times, values)``, ``(times, values, "constant")``, a table whose first two columns are time and value, or a
        `Forcing`.

    Raises
    ------
    ModelError
        Times that do not increase, values that are not finite, an unknown method, nothing in it.
    """
    if forcings is None:
        return ()
    forcings = series_by_name(forcings)
    if not isinstance(forcings, Mapping):
        kind = type(forcings).__name__
        raise ModelError(f"`forcings` must be a dict of name and series, or a table of time and columns; got {kind}.")
    return tuple(_forcing(normal_name(name), series) for name, series in forcings.items())


def _forcing(name: str, series: Any) -> Forcing:
    method = "linear"
    if isinstance(series, Mapping) and {"time", "value"} <= {*series} <= {"time", "value", "interpolation"}:
        series = series["time"], series["value"], series.get("interpolation", method)  # as in a file of a calibration
    if isinstance(series, Forcing):
        times, values, method = series.times, series.values, series.method
    elif isinstance(series, pd.Series):
        times, values = series.index.to_numpy(), series.to_numpy()
    elif isinstance(series, pd.DataFrame):
        if series.shape[1] < 2:
            raise ModelError(
                f"The forcing {name!r} is a table of {series.shape[1]} column; time and value are needed. If its index "
                "holds the times, pass table.reset_index()."
            )
        if twice := repeated(map(str, series.columns)):
            raise ModelError(
                f"The table of the forcing {name!r} has the column {listed(twice)} more than once. Leave one out."
            )
        times, values = series.iloc[:, 0].to_numpy(), series.iloc[:, 1].to_numpy()
    elif isinstance(series, tuple | list) and len(series) in (2, 3):
        if isinstance(series[1], str):
            of_table, method = _forcing(name, series[0]), series[1]
            times, values = of_table.times, of_table.values
        else:
            times, values = np.asarray(series[0]), np.asarray(series[1])
            method = series[2] if len(series) == 3 else method
    else:
        raise ModelError(
            f"The forcing {name!r} must be a Series indexed by time, a table of time and value, (times, values), "
            f"(times, values, 'constant') or dict(time=, value=, interpolation=); got {type(series).__name__}. "
            "What is a formula of t stands in the equations."
        )
    check_choice(method, ("linear", "constant"), f"forcings[{name!r}] method")
    refuse_dates(np.ravel(times), f"The time of the forcing {name!r}", ModelError)
    try:
        times, values = np.array(times, dtype=float), np.array(values, dtype=float)
    except (TypeError, ValueError):
        raise ModelError(
            f"The forcing {name!r} must hold numbers, time and value first. (A table of several entities has the "
            "columns 'time', 'value' and the entity's.)"
        ) from None
    if times.ndim != 1 or times.shape != values.shape or not len(times):
        raise ModelError(
            f"The forcing {name!r} has {times.size} times and {values.size} values; as many of each are "
            "needed, and at least one."
        )
    if not (np.isfinite(times).all() and np.isfinite(values).all()):
        raise ModelError(f"The forcing {name!r} holds NaN or infinite numbers; drop or fill them.")
    if (np.diff(times) <= 0).any():
        raise ModelError(f"The times of the forcing {name!r} must increase; sort them, and keep one value a time.")
    return Forcing(name, times, values, method)


def forcing_knots(forcings: tuple[Forcing, ...], start: float, end: float) -> Vector:
    """Return all times at which any forcing has a kink or a jump in a run, sorted."""
    return np.unique(np.concatenate([f.knots(start, end) for f in forcings])) if forcings else np.empty(0)


def forcing_lines(forcings: tuple[Forcing, ...], start: Vector, end: Vector) -> Matrix:
    """Return a1, b1, a2, b2, ... of all forcings on segments, shape (n_segment, 2 n_forcing)."""
    return np.array([c for f in forcings for c in f.line(start, end)]).reshape(2 * len(forcings), len(start)).T


def forcing_values(forcings: tuple[Forcing, ...], times: Vector) -> Matrix:
    """Return the forcings at `times`, shape (n_forcing, n_time)."""
    return np.array([f.at(times) for f in forcings]).reshape(len(forcings), len(times))


def forced_at(forcings: tuple[Forcing, ...], t: float) -> list[float]:
    """Return the forcings at one time, those after a jump."""
    return forcing_values(forcings, np.array([t]))[:, 0].tolist()  # type: ignore[no-any-return]


def forcing_jumps(forcings: tuple[Forcing, ...], start: float, end: float) -> Vector:
    """Return all times at which any forcing jumps in a run, sorted; fixed steps end there."""
    return forcing_knots(tuple(f for f in forcings if f.jumps), start, end)


def stage_values(forcings: tuple[Forcing, ...], start: Vector, end: Vector) -> Cube:
    """Return the forcings at the start, the middle and the end of steps, shape (n_step, 3, n_forcing).

    At its end a step sees the value from the left: a forcing that jumps is one line from start to end, and what begins
    where the step ends belongs to the next one.
    """
    out = np.empty((len(start), 3, len(forcings)))
    times = [start, 0.5 * (start + end), end]
    for i, f in enumerate(forcings):
        if f.jumps:
            value, slope = f.line(start, end)
            stages = [value + slope * (t - start) for t in times]
        else:
            stages = [f.at(t) for t in times]
        out[:, :, i] = np.array(stages).T
    return out


def tell_outside(forcings: tuple[Forcing, ...], start: float, end: float) -> None:
    """Log once which forcings end inside the run and are held constant from there."""
    for f in forcings:
        if len(f.times) > 1 and not f.of_function and (start < f.times[0] or end > f.times[-1]):
            covers = f"{f.times[0]:g} to {f.times[-1]:g}, the model runs from {start:g} to {end:g}"
            logger.info("The forcing %r covers %s: outside its range it is held constant.", f.name, covers)
