"""Conditions: a table, one row an entity; its columns are parameters, its cells numbers or names of parameters.

A cell may be an expression of parameters. A column may be a state: its cells are initial values, and where one is empty
the model's holds.

A row with ``start_from`` starts from the steady state of another. A start value in it (`start_parameters`) sets its
states anew afterwards; its cell may be empty, and the state stays at rest.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from fmepy.costs.observable_parameters import is_missing, read_cell
from fmepy.errors import DataError, check_known, did_you_mean, listed
from fmepy.language.nodes import Node, Number, Symbol, as_node
from fmepy.language.text import parse_expression
from fmepy.models.definition.values import Expression
from fmepy.models.preequilibration import names_elsewhere, start_parameters
from fmepy.parameters.entities import OF_CONDITION, entity_text
from fmepy.parameters.names import normal_name
from fmepy.parameters.selection import cells_of
from fmepy.tables.columns import as_table

logger = logging.getLogger(__name__)

Cell: TypeAlias = float | str | Expression | None
STEADY, FROM = "steady_before", "start_from"


@dataclass(frozen=True, slots=True, eq=False)
class Conditions:
    """A table of conditions, read.

    Attributes
    ----------
    cells : dict of parameter to (dict of entity, as text, to a number, a name or an `Expression`)
        None where it is empty.
    rows : tuple of str
        All of its entities, those without data too.
    starts : dict of str to str
        By entity the row in whose steady state it starts.
    """

    cells: dict[str, dict[str, Cell]]
    rows: tuple[str, ...]
    starts: dict[str, str]

    def names(self) -> set[str]:
        """Return every name in the cells."""
        cells = [c for column in self.cells.values() for c in column.values()]
        named = {n for c in cells if isinstance(c, Expression) for n in c.names}
        return named | {c for c in cells if isinstance(c, str)}

    def of_states(self, model: Any) -> tuple[Conditions, dict[str, str]]:
        """Return the conditions with parameters in place of states, and what these are called, by state."""
        definition = getattr(model, "definition", None)
        if definition is None:
            return self, {}
        initial = dict(zip(definition.states, definition.initial, strict=True))
        for species in self.cells:
            if of_cells := {initial[c] for c in cells_of(species, definition.states)}:
                initial[species] = self._of_profile(species, of_cells)
        states = {n: f"{n}{OF_CONDITION}" for n in self.cells if n in initial and n not in model.parms.index}
        cells = {states.get(n, n): column for n, column in self.cells.items()}
        for s, name in states.items():
            own = _as_cell(as_node(initial[s]))
            cells[name] = {
                row: own if cell is None and row not in self.starts else cell for row, cell in self.cells[s].items()
            }
        return replace(self, cells=cells), states

    def _of_profile(self, species: str, starts: set[Any]) -> Any:
        """Return the one start of a profile in all its cells; refuse an empty cell where there are several."""
        if len(starts) > 1 and (empty := [row for row, cell in self.cells[species].items() if cell is None]):
            raise DataError(
                f"`conditions`: {species!r} of entity {empty[0]!r} is empty, and its start in the model is another in "
                "each cell of the grid; a condition is one number for all cells: give it in every row."
            )
        return starts.pop()


def _as_cell(e: Node) -> float | str | Expression:
    return e.value if isinstance(e, Number) else e.name if isinstance(e, Symbol) else Expression(e)


def read_conditions(given: Any, entity: str, texts: Sequence[str], expressions: bool = False) -> Conditions:
    """Return the conditions of some entities; whether their columns are parameters is checked by `read_experiments`.

    Parameters
    ----------
    given : DataFrame, mapping of columns, or None
        One row an entity: named by the index, or by a column called as the data's.
    entity : str
        That column.
    texts : sequence of str
        The entities of the data.
    expressions : bool
        Whether cells may be expressions of parameters.

    Raises
    ------
    DataError
        An entity without a row, a row without data, a row given twice, a cell that is neither a number nor a name.
    """
    if given is None:
        return Conditions({}, tuple(texts), {})
    table = _by_entity(given, entity)
    rows = tuple(table.index)
    starts = _starts(table, rows)
    _check_rows(rows, texts, starts, given, entity)
    table = table.drop(columns=[c for c in (STEADY, FROM) if c in table.columns])
    needed = [r for r in rows if r in texts or r in starts.values()]
    cells = {
        str(name): {row: _cell(table[name][row], str(name), row, expressions) for row in needed}
        for name in table.columns.tolist()
    }
    order = (*texts, *(r for r in needed if r not in texts))
    return Conditions(cells, order, starts)


def _by_entity(given: Any, entity: str) -> pd.DataFrame:
    """Return the table with the entities, as text, as its index."""
    table = as_table(given, "conditions")
    name = normal_name(entity)
    if name in table.columns:
        table = table.set_index(name)
    elif not isinstance(given, pd.DataFrame | pd.Series):
        wrong = f"`conditions` has no column {entity!r}, which names the entity of a row."
        check_known(name, table.columns, wrong, DataError, "Columns are")
    if table.index.isna().any():
        raise DataError(f"`conditions`: a row has no entity (column or index {entity!r}). Name it, or drop the row.")
    if not table.columns.is_unique:
        twice = table.columns[table.columns.duplicated()][0]
        raise DataError(f"`conditions` has the column {twice!r} more than once. Leave one of them out.")
    table.index = pd.Index([entity_text(label) for label in table.index])
    if not table.index.is_unique:
        twice = table.index[table.index.duplicated()][0]
        raise DataError(
            f"`conditions` has several rows of entity {twice!r}; one row an entity is needed, such as "
            f"conditions.groupby({entity!r}).first()."
        )
    return table


def _check_rows(rows: Sequence[str], texts: Sequence[str], starts: Mapping[str, str], given: Any, entity: str) -> None:
    """Refuse entities of the data without a row, and rows without data that no other starts from."""
    plain = isinstance(given, pd.DataFrame) and entity not in given.columns and given.index.name is None
    hint = f" Its index is taken for the entities: conditions.set_index({entity!r}) names them." if plain else ""
    without = [t for t in texts if t not in rows]
    extra = [r for r in rows if r not in texts and r not in starts.values()]
    if without:
        near = did_you_mean(without[0], extra or rows)
        raise DataError(
            f"`conditions` has no row for {listed(without)} of the data (column {entity!r}).{near} Its rows are "
            f"{listed(rows)}.{hint}"
        )
    if extra:
        near = did_you_mean(extra[0], texts)
        raise DataError(
            f"`conditions`: there are no data of {listed(extra)}.{near} The data (column {entity!r}) are of "
            f"{listed(texts)}. Drop the rows without data, such as conditions.loc[obs[{entity!r}].unique()]."
        )


def _cell(value: Any, name: str, row: str, expressions: bool) -> Cell:
    """Return a cell as a number, a name or an expression; None where it is empty, as that of a start value may be."""
    if is_missing(value):
        return None
    where = f"`conditions`: {name!r} of entity {row!r}"
    if expressions and isinstance(value, str) and any(sign in value for sign in "+-*/("):
        return _as_cell(parse_expression(value, where=where))
    return read_cell(value, where)


def _empty(name: str, row: str) -> DataError:
    return DataError(
        f"`conditions`: {name!r} of entity {row!r} is missing; a number or the name of a parameter is needed. {name!r} "
        "itself, as a name, leaves it to be shared."
    )


def _starts(table: pd.DataFrame, rows: Sequence[str]) -> dict[str, str]:
    """Return by entity the row in whose steady state it starts, of the columns that say so."""
    if STEADY not in table.columns and FROM not in table.columns:
        return {}
    if FROM not in table.columns:
        raise DataError(f"`conditions` has a column {STEADY!r}, but none called {FROM!r}, which names the row whose "
                        "steady state is the start.")  # fmt: skip
    out = {}
    for row in rows:
        begins, source = table[STEADY][row] if STEADY in table.columns else True, table[FROM][row]
        if STEADY in table.columns and not isinstance(begins, bool | np.bool_) and begins not in (0, 1):
            raise DataError(f"`conditions`: {STEADY!r} of entity {row!r} is {begins!r}; True or False is needed.")
        if pd.isna(source) or source == "":
            if begins and STEADY in table.columns:
                raise DataError(f"`conditions`: {STEADY!r} of entity {row!r} is True, and {FROM!r} names no row.")
            continue
        if not begins:
            continue
        source = entity_text(source)
        wrong = f"`conditions`: {FROM!r} of entity {row!r} is {source!r}, which is not a row."
        check_known(source, rows, wrong, DataError, "Rows are")
        out[row] = source
    for row, source in out.items():
        if source in out:
            raise DataError(
                f"`conditions`: entity {row!r} starts from the steady state of {source!r}, which itself starts from "
                f"that of {out[source]!r}. A row to start from starts from the model's initial values."
            )
    return out


def begun_anew(conditions: Conditions, model: Any) -> tuple[dict[str, dict[str, Any]], dict[str, tuple[str, ...]]]:
    """Return the cells, and by row that starts at rest the states that begin at a value of the row all the same.

    Where the cell of a start value is empty there, that of the row that it starts from holds; where it is empty in
    other rows, the model's.
    """
    has_gaps = any(c is None for column in conditions.cells.values() for c in column.values())
    definition = getattr(model, "definition", None)
    known = start_parameters(definition) if definition is not None and (has_gaps or conditions.starts) else {}
    cells: dict[str, dict[str, Any]] = {}
    anew: dict[str, set[str]] = {}
    for name, column in conditions.cells.items():
        cells[name] = {}
        for row, cell in column.items():
            if cell is None and name not in known:
                raise _empty(name, row)
            source = conditions.starts.get(row)
            value = column[source] if cell is None and source is not None else cell
            cells[name][row] = name if value is None else value  # the model's own value, a parameter
            if source is not None and cell is not None and name in known:
                anew.setdefault(row, set()).update(known[name])
        both = [row for row in conditions.starts if name in known and column.get(row) is not None]
        if both and name in names_elsewhere(model.definition):
            logger.warning(
                "`conditions`: %r is the initial value of %s, and stands elsewhere in the model, too. After the steady "
                "state that %s starts from, %s begins at it. To avoid that, give the initial value a parameter of "
                "its own: state={%r: %r}.",
                name, listed(known[name]), listed(both), listed(known[name]), known[name][0], f"{known[name][0]}_start",
            )  # fmt: skip
    order = tuple(model.states)
    return cells, {row: tuple(s for s in order if s in states) for row, states in anew.items()}
