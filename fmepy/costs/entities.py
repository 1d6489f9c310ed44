"""Several experiments in one table: the column that tells them apart, and the conditions that they were made under.

What a user says with ``entity=``, ``entity_parms=`` and ``conditions=`` is read here, for every kind of cost::

    entity        a column of the data: which experiment (subject, batch, rat) a row is of
    entity_parms  parameters that every entity has for itself; all others are shared
    conditions    a table, one row an entity; its columns are parameters, its cells numbers or names of parameters
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from fmepy.checks import as_list
from fmepy.costs.conditions import Conditions, begun_anew
from fmepy.costs.observable_parameters import Cases, read_cell
from fmepy.costs.observations import Comparison
from fmepy.errors import ArgumentError, DataError, ParameterError, check_known, did_you_mean, listed
from fmepy.models.definition.values import Expression
from fmepy.models.preequilibration import check_opens
from fmepy.parameters.entities import EntityParameters, entity_parameters, entity_text
from fmepy.parameters.named import as_parameters
from fmepy.parameters.names import normal_name
from fmepy.parameters.scales import mark
from fmepy.tables.columns import column_position
from fmepy.types import IntVector


@dataclass(frozen=True, slots=True, eq=False)
class EntityColumn:
    """Which entity every row of a table is of.

    Attributes
    ----------
    labels : tuple
        The entities, in order of first appearance, as they stand in the table; None of a table without a column.
    of_row : ndarray of int, shape (n_row,)
    """

    labels: tuple[Any, ...]
    of_row: IntVector

    @property
    def texts(self) -> tuple[str, ...]:
        """The entities as text, "" of a table without a column of them."""
        return tuple("" if label is None else entity_text(label) for label in self.labels)

    def cases(self, places: IntVector) -> Cases:
        """Return the cases of readings, by the rows in which they stand: every entity is one."""
        return Cases(np.arange(len(self.labels)), self.of_row[places], {})

    def of(self, comparison: Comparison) -> Comparison:
        """Return a comparison whose observations know their entity; DataError if one of them has none left."""
        if self.labels == (None,):
            return comparison
        assert comparison.places is not None, "prepared from a table"
        of_obs = self.of_row[comparison.places]
        for k in np.setdiff1d(np.arange(len(self.labels)), of_obs):
            raise DataError(
                f"No observations of entity {self.labels[k]!r} are left: all are missing, or outside the model's "
                "range. Drop its rows."
            )
        return replace(comparison, entities=tuple(self.labels[k] for k in of_obs))


def read_entity_column(table: pd.DataFrame, entity: Any) -> EntityColumn:
    """Return which entity every row of the data is of; without a column of them, `entity` None, all are of one.

    Raises
    ------
    DataError
        No such column (the nearest is named), a missing name, two names that read alike.
    """
    if entity is None:
        return EntityColumn((None,), np.zeros(len(table), dtype=np.intp))
    column = table.iloc[:, column_position(table, entity, "entity")]
    missing = column.isna().to_numpy()
    if missing.any():
        raise DataError(
            f"`entity={entity!r}`: the name is missing in row {table.index[int(np.argmax(missing))]} "
            f"({int(missing.sum())} of {len(table)} rows). Fill it in, or drop the rows: "
            f"obs.dropna(subset=[{entity!r}])."
        )
    of_row, found = pd.factorize(column)
    labels = tuple(found.tolist())
    seen: dict[str, Any] = {}
    for label in labels:
        if seen.setdefault(entity_text(label), label) is not label:
            raise DataError(
                f"`entity={entity!r}`: {seen[entity_text(label)]!r} and {label!r} read alike. Write them in one way, "
                f"such as obs[{entity!r}].astype(str)."
            )
    return EntityColumn(labels, of_row.astype(np.intp))


@dataclass(frozen=True, eq=False)
class Experiments:
    """What is said of several experiments, and of readings that name parameters by row.

    Readings that have all parameters in common are a *case*; without parameters by row every entity is one.

    Attributes
    ----------
    column : EntityColumn
        Of the data.
    parameters : EntityParameters
        Of the cases, in order, then of rows that others start from.
    starts : tuple of (int or None)
        By case the one in whose steady state it starts.
    anew : tuple of tuple of str
        By case the states that begin at their initial value all the same.
    entity_of, case_of : ndarray of int
        The entity of every case, and the case of every reading.
    n_model : int
        How many of the full parameters, the first, a run depends on.
    by_row : mapping of str to tuple of cells, length n_case
        What readings name by row, of the model's parameters.
    distinct : bool
        Every entity has inputs of its own.
    """

    column: EntityColumn
    parameters: EntityParameters
    starts: tuple[int | None, ...]
    anew: tuple[tuple[str, ...], ...]
    entity_of: IntVector
    case_of: IntVector
    n_model: int
    by_row: Mapping[str, tuple[float | str, ...]]
    distinct: bool = False

    @cached_property
    def apart(self) -> tuple[tuple[int, ...], IntVector]:
        """Cases that differ from each other in their run, one of each kind; the kind of every one."""
        kinds: dict[Any, int] = {}
        of, first = [], []
        for k, start in enumerate(self.starts):
            rest = None if start is None else self._sources(start)
            key = (int(self.entity_of[k]) if self.distinct else None, rest, self.anew[k], self._sources(k))
            if key not in kinds:
                first.append(k)
            of.append(kinds.setdefault(key, len(kinds)))
        return tuple(first), np.array(of, dtype=np.intp)

    @property
    def is_plain(self) -> bool:
        """Whether every run takes the model's parameters as they are: each under its own name."""
        p = self.parameters
        own = p.parms.index.get_indexer(pd.Index(p.full_names[: self.n_model]))
        return bool((p.take[:, : self.n_model] == own).all())

    def _sources(self, k: int) -> tuple[tuple[int, float], ...]:
        """Return where the parameters of a case's run come from: a parameter of the whole, or a number."""
        held, values = self.parameters.is_constant, self.parameters.values
        return tuple((-1, values[t]) if held[t] else (int(t), 0.0) for t in self.parameters.take[k, : self.n_model])

    def position(self, entity: Any) -> int:
        """Return the place of an entity of the data; ParameterError for one that is not there, with the nearest."""
        texts, text = self.column.texts, entity_text(entity)
        check_known(text, texts, f"`entity={entity!r}` is not in the data.", ParameterError)
        return texts.index(text)

    def runs_of(self, position: int) -> list[int]:
        """Return the cases of an entity that differ in their run, one of each kind."""
        kinds = self.apart[1]
        mine = np.flatnonzero(self.entity_of == position)
        found: list[int] = mine[np.sort(np.unique(kinds[mine], return_index=True)[1])].tolist()
        return found

    def told(self, k: int, names: Sequence[str] | None = None) -> str:
        """Return what the readings of a case name by row, in words; of `names` only."""
        cells = {n: c[k] for n, c in self.by_row.items() if names is None or n in names}
        return ", ".join(f"{n} = {c if isinstance(c, str) else format(c, 'g')}" for n, c in cells.items())

    def run_of(self, position: int, asked: Mapping[str, Any]) -> int:
        """Return the case of an entity whose readings name this by row; ArgumentError if it is none, or several."""
        cases = self.runs_of(position)
        wanted = {normal_name(n): read_cell(v, f"`noise_parms`: {n!r}") for n, v in asked.items()}
        for name in wanted:
            check_known(name, self.by_row, f"`noise_parms`: no reading names {name!r}, of the model, by row.")
        fit = [k for k in cases if all(self.by_row[n][k] == cell for n, cell in wanted.items())]
        if len(fit) == 1:
            return fit[0]
        told = "; ".join(self.told(k) for k in fit or cases)
        some = next(iter(self.by_row), "")
        first = {some: self.by_row[some][cases[0]]} if some else {}
        found = "several runs are" if fit else "no run is"
        raise ArgumentError(
            f"`noise_parms`: {found} of {dict(asked) or 'this entity'}; there are: {told}. Say which, such as "
            f"noise_parms={first}."
        )


def read_experiments(
    cost: Any, given: Mapping[str, float], column: EntityColumn, conditions: Conditions, full: pd.Series, cases: Cases
) -> Experiments:
    """Return what is said of several experiments.

    Parameters
    ----------
    cost : SimulationCost or FimlofCost
        Its predictor and its ``entity_parms``.
    given : mapping of str to float
        Values of parameters that are not among the full ones.
    column, conditions
    full : Series
        All parameters of a run, with their values; the model's first.
    cases : Cases
        What readings say of parameters by row.

    Raises
    ------
    DataError
        A column of the conditions that names no parameter.
    ParameterError
        As `fmepy.parameters.entities.entity_parameters`.
    ModelError
        An entity without a row in inputs that belong to entities; a start at rest of a model whose start cannot be set.
    """
    model, known = cost.predictor, tuple(map(str, full.index))
    for name in conditions.cells:
        if name not in known:
            start = f"state={{{name!r}: {name + '0'!r}}}"
            state = f" It is a state: make its initial value a parameter, {start}, and set that."
            why = state if name in model.states else did_you_mean(name, known)
            raise DataError(
                f"`conditions`: the column {name!r} is not a parameter.{why} There are {listed(known)}. Leave columns "
                "that only describe out of it."
            )
    texts = column.texts
    rows = [(texts[e], k) for k, e in enumerate(cases.entity_of)]
    starts: list[int | None] = []
    resting: dict[tuple[Any, ...], int] = {}
    for k in range(len(rows)):
        source = conditions.starts.get(rows[k][0])
        if source is None:
            starts.append(None)
            continue
        key = (source, *(cells[k] for cells in cases.cells.values()))  # what a row names holds in the rest before, too
        if key not in resting:
            resting[key] = len(rows)
            rows.append((source, k))
        starts.append(resting[key])
    if any(start is not None for start in starts):
        check_opens(model)
    of_rows, anew = begun_anew(conditions, model)
    cells: dict[str, list[Any]] = {n: [cell[text] for text, _ in rows] for n, cell in of_rows.items()}
    cells |= {name: [cell[k] for _, k in rows] for name, cell in cases.cells.items()}
    labels = [text for text, _ in rows]
    parameters = entity_parameters(full, labels, local=cost.entity_parms, conditions=cells, given=given)
    if parameters.derived:
        _check_expressions(cost, cells)
    if kinds := getattr(model, "transforms", {}):
        mark(parameters.parms, parameters.transforms(kinds))
    inputs = getattr(model, "entity_inputs", None)
    if inputs is not None:
        for label in dict.fromkeys(labels):
            inputs.of(label)
    return Experiments(
        column=column,
        parameters=parameters,
        starts=tuple(starts),
        anew=tuple(anew.get(rows[k][0], ()) for k in range(len(starts))),
        entity_of=cases.entity_of,
        case_of=cases.case_of,
        n_model=len(model.parms),
        by_row={name: cell for name, cell in cases.cells.items() if name in model.parms.index},
        distinct=inputs is not None,
    )


def _check_expressions(cost: Any, cells: Mapping[str, Sequence[Any]]) -> None:
    """Refuse expressions in conditions where it is not known what they are of."""
    if getattr(cost.predictor, "transforms", {}):
        raise ArgumentError(
            "`conditions` holds expressions, and the parameters of the model are transformed. Transform the cost "
            "instead: fmepy.transformed(SimulationCost(model, ...), how)."
        )
    used = () if cost.noise is None else cost.noise.names
    for name, column in cells.items():
        if name in used and any(isinstance(cell, Expression) for cell in column):
            raise ArgumentError(
                f"`conditions`: {name!r} stands in the noise, and a cell of it is an expression. Such a cell holds a "
                "number or a name; write the expression into measurement_noise."
            )


def check_needed(cost: Any) -> None:
    """Refuse arguments for several experiments without a column to distinguish them; make `entity_parms` a tuple."""
    entity, model, local = cost.entity, cost.model, cost.entity_parms
    if not isinstance(local, str):  # which is answered with the list that it should be
        local = tuple(map(str, as_list(() if local is None else local, "entity_parms", ParameterError)))
        vars(cost)["entity_parms"] = local
    inputs = getattr(model, "entity_inputs", None)
    if inputs is not None and entity != inputs.column:
        raise ArgumentError(
            f"`entity={entity!r}`: events or forcings of the model belong to the entities of a column "
            f"{inputs.column!r}. The column of the data must be called so: entity={inputs.column!r}."
        )
    if entity is not None and normal_name(entity) in model.parms.index:
        raise ArgumentError(
            f"`entity={entity!r}`: {entity!r} is a parameter of the model, and the entity's column sets none, it tells "
            f"experiments apart. Call the column otherwise, obs.rename(columns={{{entity!r}: 'run'}}), with "
            f"entity='run', and say what every run has: conditions={{'run': [...], {entity!r}: [...]}}."
        )
    for name, value in (("entity_parms", local), ("conditions", cost.conditions)):
        if entity is None and value is not None and not (isinstance(value, Sized) and len(value) == 0):
            raise ArgumentError(f"`{name}` needs `entity`, the column of the data that names the entity of a row.")


def given_values(parms: Any) -> dict[str, float]:
    """Return the values of `parms=` of a cost, by name; ParameterError for what is not a finite number by name."""
    if parms is None:
        return {}
    if not isinstance(parms, Mapping | pd.Series):
        raise ParameterError(
            f"`parms` must be a dict of names and values, such as {{'sd_y': 1.0}}; got {type(parms).__name__}."
        )
    if not len(parms):
        return {}
    given = as_parameters(dict(parms), argument="parms")
    return dict(zip(map(normal_name, given.names), given.values.tolist(), strict=True))


def check_given(given: Mapping[str, float], of_model: pd.Series, used: Iterable[str]) -> None:
    """Refuse values in `parms=` of a cost that nothing uses, or that belong to the model."""
    known = [*used]
    for name in given:
        if name in of_model.index:
            raise ParameterError(
                f"`parms`: {name!r} is a parameter of the model. Change it there: "
                f"model.replace(parms={{{name!r}: ...}})."
            )
        check_known(name, known, f"`parms`: {name!r} is used nowhere in the cost.", ParameterError)
