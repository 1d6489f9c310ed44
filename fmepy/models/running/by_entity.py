"""Events and forcings of several entities in one table: a further column names the entity of each row.

::

    events     columns var, time, value, method, order, and one more: the entity's
    forcings   a table with the columns time, value (or the forcing's name), and one more: the entity's; or
               (table, "constant")
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from fmepy.errors import ModelError, did_you_mean, listed
from fmepy.models.running.event_functions import is_missing
from fmepy.models.running.events import COLUMNS, NEEDED, ROOT_COLUMNS, event_rows
from fmepy.parameters.entities import entity_text
from fmepy.parameters.names import normal_name


@dataclass(frozen=True, slots=True, eq=False)
class EntityInputs:
    """Inputs that belong to entities.

    Attributes
    ----------
    column : str
        Name of the column of the entities.
    events : dict of str to list of dict, or None
        By entity, as text; None: events do not belong to entities.
    forcings : dict of str to (dict of str to series)
        By name of the forcing, then by entity.
    """

    column: str
    events: dict[str, list[dict[str, Any]]] | None
    forcings: dict[str, dict[str, Any]]

    @property
    def labels(self) -> tuple[str, ...]:
        """All entities that have inputs, as text."""
        found = [*(self.events or {})]
        for series in self.forcings.values():
            found += series
        return tuple(dict.fromkeys(found))

    def of(self, entity: Any) -> dict[str, Any]:
        """Return the arguments `events` and `forcings` of one entity, as far as they belong to entities.

        Raises
        ------
        ModelError
            An entity without a row, with the nearest.
        """
        text = entity_text(entity)
        out: dict[str, Any] = {}
        for what, given in (("`events`", self.events), *((f"the forcing {n!r}", s) for n, s in self.forcings.items())):
            if given is not None and text not in given:
                no_event = " For no event give a row of value 0 and method 'add'." if given is self.events else ""
                raise ModelError(
                    f"{what[0].upper() + what[1:]}: there is no row of entity {text!r} (column {self.column!r})."
                    f"{did_you_mean(text, given)} There are {listed(given)}.{no_event}"
                )
        if self.events is not None:
            out["events"] = self.events[text]
        if self.forcings:
            out["forcings"] = {name: series[text] for name, series in self.forcings.items()}
        return out

    def refusal(self) -> ModelError:
        """Return the error for a model that is run without an entity."""
        what = [*(["events"] if self.events is not None else []), *(f"forcing {n!r}" for n in self.forcings)]
        first = self.labels[0]
        return ModelError(
            f"The model's {' and '.join(what)} belong to entities (column {self.column!r}: {listed(self.labels)}). Say "
            f"for which one to run: model(entity={first!r}), model.of_entity({first!r}); in a cost entity="
            f"{self.column!r}."
        )


def inputs_by_entity(events: Any, forcings: Any) -> EntityInputs | None:
    """Return the inputs that belong to entities; None if there are none."""
    column, by_entity = _split_events(events)
    columns = {"events": column} if column is not None else {}
    series: dict[str, dict[str, Any]] = {}
    if isinstance(forcings, Mapping | pd.Series):
        for name, given in dict(forcings).items():
            found = _split_forcing(normal_name(name), given)
            if found is not None:
                columns[f"forcings[{str(name)!r}]"], series[normal_name(name)] = found
    if not columns:
        return None
    if len(set(columns.values())) > 1:
        listing = ", ".join(f"{k}: {v!r}" for k, v in columns.items())
        raise ModelError(f"The column of the entities must have the same name in all inputs; got {listing}.")
    return EntityInputs(next(iter(columns.values())), by_entity, series)


def _split_events(events: Any) -> tuple[str | None, dict[str, list[dict[str, Any]]] | None]:
    """Return the column of the entities, and the events by entity; None where there is no such column."""
    rows = [] if events is None else event_rows(events)
    if not rows:
        return None, None
    known = (*COLUMNS, *ROOT_COLUMNS)
    further = list(dict.fromkeys(k for row in rows for k in row if k not in known))
    whole = all(not is_missing(row.get("root")) or callable(row.get("value")) or {*NEEDED} <= {*row} for row in rows)
    absent = [k for k in known if not any(k in row for row in rows)]
    if len(further) != 1 or not whole or did_you_mean(further[0], absent):
        return None, None  # errors are raised where events are read
    if "root" not in absent and "direction" in absent and "direction".startswith(str(further[0])):
        return None, None
    (column,) = further
    out: dict[str, list[dict[str, Any]]] = {}
    for i, row in enumerate(rows):
        label = row.get(column)
        if label is None or pd.isna(label):
            raise ModelError(f"`events`, row {i}: the entity (column {column!r}) is missing.")
        out.setdefault(entity_text(label), []).append({k: v for k, v in row.items() if k != column})
    return column, out


def _split_forcing(name: str, given: Any) -> tuple[str, dict[str, Any]] | None:
    """Return the column of the entities, and the series by entity; None if it is one series."""
    table, method = given if isinstance(given, tuple) and len(given) == 2 else (given, "linear")
    if not isinstance(table, pd.DataFrame) or table.shape[1] != 3:
        return None
    value = "value" if "value" in table.columns else name
    if not {"time", value} <= set(table.columns) or not table.columns.is_unique:
        return None  # errors are raised where forcings are read
    (column,) = (str(c) for c in table.columns if c not in ("time", value))
    if table[column].isna().any():
        raise ModelError(f"A forcing's table: the entity (column {column!r}) is missing in a row.")
    parts = table.groupby(table[column].map(entity_text), sort=False)
    return column, {str(k): (part["time"].to_numpy(), part[value].to_numpy(), method) for k, part in parts}
