"""The data of a filter: one set of readings for every entity, in order of time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from fmepy.costs.entities import EntityColumn, read_entity_column
from fmepy.costs.interpolation import rows_by_group
from fmepy.costs.observation_scale import observation_scale, transforms_by_variable
from fmepy.costs.observations import (
    Comparison,
    ObservedVariable,
    check_observed,
    read_observations,
    transformed_values,
)
from fmepy.errors import ArgumentError, DataError, listed
from fmepy.filtering.likelihood import Likelihood
from fmepy.filtering.run import Pass
from fmepy.filtering.schedule import FilterReadings, Schedule
from fmepy.fimlof.filter_model import Specification, definition_of, uses_errors
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
        Sorted by time, limits last, then in the order of the variables; values on the scale of comparison, `errors` the
        data's own.
    raw : ndarray, shape (n_obs,)
        The values as given.
    n_missing : ndarray of int, shape (n_var,)
    wanted : ndarray
        Times of the table at which nothing was read, in order: rows that ask for the states.
    """

    label: Any
    variables: tuple[str, ...]
    transforms: tuple[str | None, ...]
    readings: FilterReadings
    raw: Vector
    n_missing: IntVector
    wanted: Vector


def read_entities(cost: Any, obs: Any, model: Any) -> tuple[EntityColumn, tuple[EntityData, ...]]:
    """Return which entity every row is of, and the data by entity, in order of first appearance.

    Parameters
    ----------
    cost : FimlofCost
        Its words of a table: x, y, err, censored, entity, transform.
    obs
        The table.
    model : Model

    Raises
    ------
    DataError
        What `read_observations` refuses; times before the model's start, or, for difference equations, between its
        steps; data that cannot be transformed; an entity without any.
    """
    table, x = as_table(obs), cost.x
    if np.ndim(x) == 0 and not isinstance(x, str):
        raise DataError(f"`x={x!r}` must be the name of the column of times, one of {listed(table.columns)}.")
    if not isinstance(x, str):
        raise DataError(
            f"`x={x!r}` must name the column of times: a filter knows no depths, its data are the "
            "model's variables, such as a cell 'O2[3]'. SimulationCost compares profiles by depth."
        )
    column = read_entity_column(table, cost.entity)
    table = table if cost.entity is None else table.drop(columns=normal_name(cost.entity))
    observations = read_observations(
        table, x=x, y=cost.y, err=cost.err, censored=cost.censored, experiments=column.of_row
    )
    check_observed(observations.names, model.var_names)
    kinds = transforms_by_variable(cost.transform, observations.names)
    columns, n = Columns(table), len(column.labels)
    times = pd.Series(columns.numbers(columns.position(x, "x")), index=table.index)
    variables = [(v, rows_by_group(column.of_row[v.places], n)) for v in observations.variables]
    missing = [np.bincount(column.of_row[v.missing], minlength=n) for v in observations.variables]
    entities = []
    for k, rows in enumerate(rows_by_group(column.of_row, n)):
        own = [v.only(of[k]) for v, of in variables]
        if not any(len(v.x) for v in own):
            raise DataError(f"No observations of entity {column.labels[k]!r} are left: all are missing. Drop its rows.")
        lost = np.array([m[k] if len(v.x) else 0 for v, m in zip(own, missing, strict=True)], dtype=np.intp)
        entities.append(_entity(column.labels[k], own, lost, times.iloc[rows], kinds, model, cost))
    return column, tuple(entities)


def _entity(
    label: Any,
    variables: Sequence[ObservedVariable],
    n_missing: IntVector,
    times: pd.Series,
    transforms: Mapping[str, str | None],
    model: Any,
    cost: Any,
) -> EntityData:
    of = "" if label is None else f" of entity {label!r}"
    for v in variables:
        _check_times(f"The observation of {v.name!r}{of}", v.x, v.rows, model, cost)
    raw = np.concatenate([v.values for v in variables])
    which = np.repeat(np.arange(len(variables)), [len(v.x) for v in variables])
    read = np.concatenate([v.x for v in variables])
    without = times[np.isfinite(times) & ~np.isin(times, read)]  # rows that ask for states alone
    _check_times(f"The row without readings{of}", without.to_numpy(), list(without.index), model, cost)
    both = np.concatenate([read, without])
    if definition_of(model).kind == "difference":  # rounding of times that are steps must not make two nodes of one
        start = float(model.times[0])
        both = start + model.dt * np.rint((both - start) / model.dt)
    else:
        both = merged(both)
    read, wanted = both[: len(raw)], np.setdiff1d(both[len(raw) :], both[: len(raw)])
    marks = np.concatenate([np.zeros(len(v.x), dtype=np.int64) if v.marks is None else v.marks for v in variables])
    order = np.lexsort((np.arange(len(which)), which, marks != 0, read))
    compared = np.concatenate([transformed_values(v, transforms[v.name]) for v in variables])
    errors = np.concatenate([np.ones(len(v.x)) if v.errors is None else v.errors for v in variables])
    readings = FilterReadings(
        read[order],
        which[order],
        compared[order],
        errors[order],
        tuple(np.concatenate([v.places for v in variables])[order].tolist()),
        marks[order] if marks.any() else None,
    )
    names = tuple(v.name for v in variables)
    return EntityData(label, names, tuple(transforms[n] for n in names), readings, raw[order], n_missing, wanted)


def _check_times(what: str, times: Vector, rows: Sequence[Any], model: Any, cost: Any) -> None:
    start, x = float(model.times[0]), cost.x
    early = np.flatnonzero(times < start - 1e-12 * max(1.0, abs(start)))
    if len(early):
        i = int(early[0])
        calendar = cost.calendar
        since = f" Dates count as {cost.unit} since {calendar[1]:%Y-%m-%d}; another is origin=." if calendar else ""
        raise DataError(
            f"{what} in row {rows[i]} is of {x} = {times[i]:g}, before the model's start at {start:g}. Let the model "
            f"start earlier: times=, whose first entry is where its initial values hold.{since}"
        )
    if definition_of(model).kind == "difference" and len(times):
        try:
            whole_steps(np.sort(times), start, model.dt)
        except Exception as error:
            raise DataError(f"{what}: {error}") from None


def check_limits(specification: Specification, entity: EntityData) -> None:
    """Refuse limits where the filter cannot take them."""
    r, spec = entity.readings, specification
    if r.marks is None:
        return
    limits = r.marks != 0
    of = "" if entity.label is None else f" of entity {entity.label!r}"
    if spec.initial == "data" and (limits & (r.times == r.times[0])).any():
        raise DataError(
            f"`initial='data'`: the first data{of}, at {r.times[0]:g}, are limits (`censored`), from which no state "
            "starts. Use initial='known' with initial_sd, or begin the data where the readings themselves are known."
        )
    if spec.free_states:
        names = {spec.definition.states[i]: "..." for i in spec.free_states}
        raise ArgumentError(
            f"`censored`: limits say too little of a start of which nothing is known. Give initial_sd={names}, wide "
            "ones if need be, with initial='known'."
        )
    if spec.update != "ekf":
        raise ArgumentError(f"`censored` is for update='ekf', not {spec.update!r}.")
    correlated = spec.errors.keys if spec.errors.covariance is not None else ()
    for name in {spec.variables[v] for v in r.variables[limits]} & set(correlated):
        raise ArgumentError(
            f"`censored`: the errors of {name!r} are correlated with others (`measurement_noise`), and limits are for "
            "independent errors. Give sds, such as measurement_noise={" + f"{name!r}: 'estimate'" + "}."
        )


def effective_readings(used: Sequence[bool], entity: EntityData) -> FilterReadings:
    """Return the readings with the multiplier of every sd: the datum's own error where it counts, else 1."""
    with_error = np.array(used)  # without a column of errors all of them are 1
    r = entity.readings
    return replace(r, errors=np.where(with_error[r.variables], r.errors, 1.0))


def compared_readings(spec: Specification, readings: Sequence[FilterReadings]) -> Comparison:
    """Return the readings of all entities, one after the other, as what predictions are compared with."""
    groups = np.concatenate([r.variables for r in readings]).astype(np.intp)
    none, marks = np.zeros(len(spec.variables), dtype=np.intp), np.concatenate([r.all_marks for r in readings])
    return Comparison(
        names=tuple(spec.variables[v] for v in groups.tolist()),
        x=np.concatenate([r.times for r in readings]),
        weights=1 / np.concatenate([r.errors for r in readings]),
        groups=groups,
        scales=np.ones(len(none)),
        group_names=spec.variables,
        obs=np.concatenate([r.values for r in readings]),
        scale=observation_scale([spec.transforms[v] for v in groups.tolist()]),
        n_missing=none,
        n_outside=none,
        x_name="time",
        with_error=np.array(uses_errors(spec))[groups],
        places=np.concatenate([np.array(r.places, dtype=np.intp) for r in readings]),
        marks=marks if marks.any() else None,
    )


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
