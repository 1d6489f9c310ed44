"""The data of a filter: one set of readings for every entity, in order of time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from fmepy.costs.entities import EntityColumn, read_entity_column
from fmepy.costs.observation_scale import observation_scale, transforms_by_variable
from fmepy.costs.observations import Observations, check_observed, read_table, refuse_copies
from fmepy.errors import DataError
from fmepy.filtering.likelihood import Likelihood
from fmepy.filtering.run import Pass
from fmepy.filtering.schedule import FilterReadings, Schedule
from fmepy.fimlof.filter_model import definition_of
from fmepy.journal.encoding import Stored
from fmepy.models.difference import whole_steps
from fmepy.models.running.timeline import merged
from fmepy.parameters.names import normal_name
from fmepy.tables.columns import Columns, as_table
from fmepy.types import IntVector, Matrix, Vector


@dataclass(frozen=True, slots=True, eq=False)
class EntityData:
    """The data of one entity.

    Attributes
    ----------
    label : any
        Its name in the column of entities; None without one.
    variables : tuple of str
        All that are observed, of whichever entity.
    transforms : tuple of (str or None)
    readings : Readings
        Sorted by time, then in the order of the variables; values on the scale of comparison, `errors` the data's own.
    raw : ndarray, shape (n_obs,)
        The values as given.
    n_missing : ndarray of int, shape (n_var,)
    asked : ndarray
        Times of the table at which nothing was read, in order: rows that ask for the states.
    """

    label: Any
    variables: tuple[str, ...]
    transforms: tuple[str | None, ...]
    readings: FilterReadings
    raw: Vector
    n_missing: IntVector
    asked: Vector

    def with_values(self, raw: Vector) -> EntityData:
        """Return the entity with other data in the same places."""
        return replace(self, raw=raw, readings=replace(self.readings, values=self._compared(raw)))

    def counted(self, n: int) -> EntityData:
        """Return the entity with its last `n` readings: those that an unknown start has not used up."""
        k = len(self.raw) - n
        return replace(self, readings=self.readings.only(np.arange(len(self.raw)) >= k), raw=self.raw[k:])

    def _compared(self, raw: Vector) -> Vector:
        kinds = [self.transforms[v] for v in self.readings.variables]
        return observation_scale(kinds).forward(raw)

    @property
    def log_jacobian(self) -> float:
        """Sum of log |dT/dz|: what a fit of transformed data lacks to be compared with one of untransformed."""
        kinds = [self.transforms[v] for v in self.readings.variables]
        return observation_scale(kinds).log_jacobian(self.raw)


def read_entities(
    obs: Any, model: Any, *, x: str, y: str | None, err: str | None, entity: str | None, transform: Any
) -> tuple[EntityColumn, tuple[EntityData, ...]]:
    """Return which entity every row is of, and the data by entity, in order of first appearance.

    Raises
    ------
    DataError
        What `read_observations` refuses; times before the model's start, or, for difference equations, between its
        steps; data that cannot be transformed.
    """
    table = as_table(obs)
    refuse_copies(table)
    if not isinstance(x, str):
        raise DataError(f"`x={x!r}` must name the column of times: a filter goes from one time to the next.")
    groups: list[tuple[Any, pd.DataFrame]] = [(None, table)]
    column = EntityColumn((None,), np.zeros(len(table), dtype=np.intp))
    if entity is not None:
        column = read_entity_column(table, entity)
        rest = table.drop(columns=normal_name(entity))
        groups = [(label, rest[column.of_row == k]) for k, label in enumerate(column.labels)]
        if y is None:  # a variable may be missing in one entity
            groups = [(label, part.loc[:, _is_kept(part, x, err)]) for label, part in groups]
            for label, part in groups:
                if set(part.columns) <= {x, err}:
                    raise DataError(f"No observations of entity {label!r} are left: all are missing. Drop its rows.")
    read = [(label, read_table(Columns(part), x=x, y=y, err=err), part) for label, part in groups]
    variables = tuple(dict.fromkeys(name for _, o, _ in read for name in o.names))
    check_observed(variables, model.var_names)
    kinds = transforms_by_variable(transform, variables)
    transforms = tuple(kinds[v] for v in variables)
    return column, tuple(_entity(label, o, part, variables, transforms, model, x) for label, o, part in read)


def _is_kept(part: pd.DataFrame, x: str, err: str | None) -> list[bool]:
    missing = part.isna().all().to_numpy()  # by position: columns of one name are replicates
    return [c in (x, err) or not gone for c, gone in zip(part.columns, missing, strict=True)]


def _entity(
    label: Any,
    observations: Observations,
    table: pd.DataFrame,
    variables: tuple[str, ...],
    transforms: tuple[str | None, ...],
    model: Any,
    x: str,
) -> EntityData:
    of = "" if label is None else f" of entity {label!r}"
    times, values, errors = [], [], []
    which: list[int] = []
    labels: list[Any] = []
    n_missing = np.zeros(len(variables), dtype=np.intp)
    for v in observations.variables:
        place = variables.index(v.name)
        n_missing[place] = v.n_missing
        _check_times(f"The observation of {v.name!r}{of}", v.x, v.rows, model, x)
        bad = observation_scale([transforms[place]] * len(v.values)).first_undefined(v.values)
        if bad is not None:
            raise DataError(
                f"The observation of {v.name!r}{of} in row {v.rows[bad]} is {v.values[bad]:g}, which has no "
                f"{transforms[place]}. Drop it, or choose another transform."
            )
        times.append(v.x)
        values.append(v.values)
        errors.append(np.ones(len(v.values)) if v.errors is None else v.errors)
        which += [place] * len(v.values)
        labels += list(v.rows)
    n = len(which)
    all_times = np.concatenate([*times, _rows_without(table, x, np.concatenate(times), model, of)])
    if definition_of(model).kind == "difference":  # rounding of times that are steps must not make two nodes of one
        start = float(model.times[0])
        all_times = start + np.rint(all_times - start)
    else:
        all_times = merged(all_times)
    all_times, asked = all_times[:n], np.setdiff1d(all_times[n:], all_times[:n])
    order = np.lexsort((np.arange(len(which)), np.array(which), all_times))
    raw = np.concatenate(values)[order]
    readings = FilterReadings(
        all_times[order],
        np.array(which, dtype=np.int64)[order],
        raw,
        np.concatenate(errors)[order],
        tuple(labels[i] for i in order),
    )
    entity = EntityData(label, variables, transforms, readings, raw, n_missing, asked)
    return entity.with_values(raw)


def _rows_without(table: pd.DataFrame, x: str, read: Vector, model: Any, of: str) -> Vector:
    """Return the times of the rows that ask for states alone: nothing was read at them."""
    columns = Columns(table)
    at = columns.numbers(columns.position(x, "x"))
    asks = np.isfinite(at) & ~np.isin(at, read)
    rows = [r for r, a in zip(table.index, asks, strict=True) if a]
    _check_times(f"The row without readings{of}", at[asks], rows, model, x)
    return at[asks]


def _check_times(what: str, times: Vector, rows: Sequence[Any], model: Any, x: str) -> None:
    start = float(model.times[0])
    early = np.flatnonzero(times < start - 1e-12 * max(1.0, abs(start)))
    if len(early):
        i = int(early[0])
        raise DataError(
            f"{what} in row {rows[i]} is of {x} = {times[i]:g}, before the model's start at {start:g}. Let the model "
            "start earlier: times=, whose first entry is where its initial values hold."
        )
    if definition_of(model).kind == "difference" and len(times):
        try:
            whole_steps(np.sort(times), start)
        except Exception as error:
            raise DataError(f"{what}: {error}") from None


def effective_readings(used: Sequence[bool], entity: EntityData) -> FilterReadings:
    """Return the readings with the multiplier of every sd: the datum's own error where it counts, else 1."""
    with_error = np.array(used)  # without a column of errors all of them are 1
    r = entity.readings
    return FilterReadings(r.times, r.variables, r.values, np.where(with_error[r.variables], r.errors, 1.0), r.labels)


@dataclass(frozen=True, slots=True, eq=False)
class EntityRun(Stored):
    """A recorded pass of one entity.

    Attributes
    ----------
    label : any
        Its name; None if there is but one.
    p : ndarray
        Its parameters, in the order of the specification.
    schedule : Schedule
        With the rows of the table that ask for states, and the model's times until the last row, as further nodes.
    used : Readings or None
        Data that the start used up.
    run : Pass or None
        None if it could not even start.
    likelihood : Likelihood or None
        None if it broke down.
    correlation : ndarray, shape (n_var, n_var) or (0, 0)
        Of the measurement errors.
    failure : str or None
        What went wrong, in a sentence.
    log_jacobian : float
        Of the data that count.
    """

    label: Any
    p: Vector
    schedule: Schedule
    used: FilterReadings | None
    run: Pass | None
    likelihood: Likelihood | None
    correlation: Matrix
    failure: str | None
    log_jacobian: float

    @property
    def end(self) -> int:
        """The node of the last datum: where forecasts begin."""
        return int(self.schedule.nodes_of_rows[-1]) if len(self.schedule.readings) else 0
