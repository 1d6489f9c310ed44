"""The reading of a table of scenarios, row by row, and the models that it defines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fmepy.checks import as_number
from fmepy.costs.user_function import is_model
from fmepy.errors import ArgumentError, ParameterError, did_you_mean, listed
from fmepy.language.nodes import Symbol
from fmepy.models.on_grid import profiles_of
from fmepy.parameters.names import normal_name

TABLES = ("forcings", "events")


class Scenario(NamedTuple):
    """One row of the table of scenarios."""

    name: Any
    parms: dict[str, float]
    changes: dict[str, Any]  # of the model: state, forcings, events


def read_scenarios(table: Any, parameters: Sequence[str], model: Any) -> list[Scenario]:
    """Return the scenarios of a table, row by row."""
    on_grid = profiles_of(model)
    states = list(getattr(model, "states", ()) if on_grid is None else on_grid.species) if is_model(model) else []
    known = [*parameters, *states, *(TABLES if is_model(model) else ())]
    out = []
    for name, cells in _rows(table, parameters).items():
        row = Scenario(name, {}, {})
        for label, value in cells.items():
            column = normal_name(str(label))
            if column not in known:
                extra = "" if is_model(model) else " A function of yours knows parameters only."
                raise ParameterError(
                    f"`table`: {label!r} is neither a parameter nor a state, nor 'forcings' or 'events'."
                    f"{did_you_mean(label, known)}{extra} Parameters are {listed(parameters)}"
                    + (f", states {listed(states)}." if states else ".")
                )
            if _is_empty(value):
                continue
            if column in parameters:
                row.parms[column] = _number(value, name, label)
            elif column in states:
                start = _number(value, name, label) if on_grid is None else value
                row.changes.setdefault("state", {})[column] = start
            else:
                row.changes[column] = value
        out.append(row)
    return out


def _rows(table: Any, parameters: Sequence[str]) -> dict[Any, dict[Any, Any]]:
    """Return the cells of every scenario by column, by its name."""
    if isinstance(table, Mapping):
        rows = {}
        for name, cells in table.items():
            if not isinstance(cells, Mapping | pd.Series):
                raise ArgumentError(
                    f"`table[{name!r}]` must be a dict of what that scenario sets, such as {{'k': 0.5}} (or {{}} for "
                    f"nothing); got {type(cells).__name__}. A table with a column a parameter is a DataFrame."
                )
            rows[name] = dict(cells)
    elif isinstance(table, pd.DataFrame):
        if "scenario" in table.columns and "scenario" not in parameters:
            table = table.set_index("scenario")
        for labels, what in ((table.index, "scenario"), (table.columns, "column")):
            twice = list(labels[labels.duplicated()].unique())
            if twice:
                raise ArgumentError(f"`table` has more than one {what} {listed(twice)}; each needs its own name.")
        if table.index.hasnans or table.index.nlevels > 1:
            raise ArgumentError("`table`: its rows need one name each, as in pd.DataFrame(..., index=names).")
        records = (dict(zip(table.columns, row, strict=True)) for row in table.itertuples(index=False, name=None))
        rows = dict(zip(table.index.tolist(), records, strict=True))
    else:
        raise ArgumentError(
            f"`table` must be a DataFrame with a row a scenario, or a dict of scenarios; got {type(table).__name__}."
        )
    if not rows:
        raise ArgumentError("`table` holds no scenario; give at least one row.")
    return rows


def _is_empty(value: Any) -> bool:
    return value is None or value is pd.NA or (isinstance(value, float | np.floating) and bool(np.isnan(value)))


def _number(value: Any, scenario: Any, column: Any) -> float:
    if not np.isfinite(number := as_number(value)):
        raise ParameterError(
            f"`table`: scenario {scenario!r} has {value!r} for {column!r}; a finite number is needed, or None (NaN) "
            "to leave it as it is."
        )
    return number


def check_scenario(model: Any, row: Scenario) -> Scenario:
    """Return a scenario that fits the model; raise an error for a start that is set twice, or an invalid change."""
    for name in row.changes.get("state", {}):
        parameter = _initial_parameter(model, name)
        if parameter is not None and parameter in row.parms:
            raise ParameterError(
                f"`table`: scenario {row.name!r} sets {name!r}, and {parameter!r}, which is its initial value. Set one "
                "of them."
            )
    apply_scenario(model, row)
    return row


def _initial_parameter(model: Any, state: str) -> str | None:
    """Return the parameter that is the initial value of a state, on the scale of the model's; None if none is."""
    definition = getattr(model, "definition", None)
    if definition is None or getattr(model, "transforms", None) or state not in definition.states:
        return None
    initial = definition.initial[definition.states.index(state)]
    return str(initial.name) if isinstance(initial, Symbol) else None


def apply_scenario(model: Any, row: Scenario) -> Any:
    """Return the model with the initial values, forcings and events of a scenario."""
    if not row.changes:
        return model
    try:
        return model.replace(**row.changes)
    except (ArgumentError, AttributeError) as error:
        raise type(error)(f"`table`: scenario {row.name!r}: {error}") from error
