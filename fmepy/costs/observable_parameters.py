"""Parameters that a reading names by row, as PEtab's overrides do: of its noise, of how it is observed.

A *placeholder* is a name in an expression of the noise, or a parameter of the model; a column of the data holds by row
the number, or the name of the parameter, that stands for it. Readings that have every parameter in common are a *case*
(`Cases`). A placeholder of the model makes runs: readings with different values of it are read off runs of their own,
whose sensitivities are exact for whatever the parameter does in the model. A reading whose variable does not depend on
a placeholder may be read off any of them, so that two outputs with a scale each need one run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fmepy.costs.observations import Comparison
from fmepy.errors import ArgumentError, DataError, ParameterError, did_you_mean, listed
from fmepy.language.equations import names_in
from fmepy.parameters.names import normal_name, split_local
from fmepy.tables.columns import as_table, column_position
from fmepy.types import IntVector

Cell = float | str
"""A number, or the name of a parameter."""


@dataclass(frozen=True, slots=True, eq=False)
class Cases:
    """Readings that have all parameters in common.

    Attributes
    ----------
    entity_of : ndarray of int, shape (n_case,)
    case_of : ndarray of int, shape (n_obs,)
    cells : mapping of placeholder to tuple of cells, length n_case
    """

    entity_of: IntVector
    case_of: IntVector
    cells: Mapping[str, tuple[Cell, ...]]


def read_cell(value: Any, where: str) -> Cell:
    """Return a cell of a table as a number or a name; DataError where it is neither, or missing."""
    if isinstance(value, bool | np.bool_):
        raise DataError(f"{where} is {value}; a number or the name of a parameter is needed.")
    text = value.strip() if isinstance(value, str) else value
    try:
        number = np.nan if value is pd.NA else float(text)
    except (TypeError, ValueError):
        name = normal_name(text) if isinstance(text, str) else ""
        if name.split("[")[0].isidentifier():
            return name
        raise DataError(f"{where} is {value!r}; a number or the name of a parameter is needed.") from None
    if np.isnan(number):
        raise DataError(f"{where} is missing; a number or the name of a parameter is needed.")
    if np.isinf(number):
        raise DataError(f"{where} is {number:g}; a finite number or the name of a parameter is needed.")
    return number


@dataclass(frozen=True, slots=True, eq=False)
class RowParameters:
    """The columns of a table that say what stands for placeholders.

    Attributes
    ----------
    columns : mapping of placeholder to Series
    """

    columns: Mapping[str, pd.Series]

    def cases(
        self,
        c: Comparison,
        entity_of_row: IntVector,
        *,
        of_model: Collection[str],
        full: pd.Series,
        known: Collection[str],
        uses: Callable[[str, str], bool],
    ) -> Cases:
        """Return the cases of the readings.

        Parameters
        ----------
        c : Comparison
            The readings.
        entity_of_row : ndarray of int
            Of the table.
        of_model : collection of str
            The model's parameters.
        full : Series
            All parameters of a run; the values of placeholders that a reading has no use for.
        known : collection of str
            What a cell may name.
        uses : callable
            Whether the readings of a variable depend on a placeholder: ``uses(placeholder, variable)``.

        Raises
        ------
        DataError
            A cell that is missing, or neither a number nor a name; its row is named.
        ParameterError
            A placeholder that nothing uses; a name without a value.
        """
        assert c.places is not None, "prepared from a table"
        order = sorted(self.columns, key=lambda name: name not in of_model)  # those that make runs first
        asked = {v: [uses(name, v) for name in order] for v in c.group_names}
        for j, name in enumerate(order):
            if not any(used[j] for used in asked.values()):
                raise _unused(name, [*of_model, *full.index])
        keys = []
        for variable, place in zip(c.names, c.places.tolist(), strict=True):
            cells = [self._cell(n, place, variable, known) if u else None
                     for n, u in zip(order, asked[variable], strict=True)]  # fmt: skip
            keys.append((int(entity_of_row[place]), *cells))
        n_run = 1 + sum(name in of_model for name in order)
        runs = _together([key[:n_run] for key in keys])
        own: list[Cell] = [float(full[name]) for name in order]
        filled: list[tuple[Any, ...]] = []
        for run, key in zip(runs, keys, strict=True):
            found = zip((*run[1:], *key[n_run:]), own, strict=True)
            filled.append((run[0], *(value if cell is None else cell for cell, value in found)))
        places = {case: k for k, case in enumerate(sorted(dict.fromkeys(filled), key=lambda case: case[0]))}
        return Cases(
            np.array([case[0] for case in places], dtype=np.intp),
            np.array([places[case] for case in filled], dtype=np.intp),
            {name: tuple(case[1 + j] for case in places) for j, name in enumerate(order)},
        )

    def _cell(self, name: str, place: int, variable: str, known: Collection[str]) -> Cell:
        column = self.columns[name]
        value, row = column.iloc[place], column.index[place]
        where = f"`noise_parms`: column {str(column.name)!r} in row {row}"
        if is_missing(value):
            raise DataError(
                f"{where} is empty, but the reading of {variable!r} there depends on {name!r}. Write a number or the "
                "name of a parameter there."
            )
        cell = read_cell(value, where)
        if isinstance(cell, str) and cell not in known:
            raise ParameterError(
                f"{where} is {cell!r}, which is neither a number nor a parameter.{did_you_mean(cell, known)} A new "
                f"parameter needs a value: parms={{{cell!r}: ...}}."
            )
        return cell

    def named(self) -> set[str]:
        """Return every text in the columns."""
        return {name for column in self.columns.values() for name in _texts(column)}

    def own_names(self) -> set[str]:
        """Return the placeholders that a row names itself: they are parameters, too."""
        return {name for name, column in self.columns.items() if name in _texts(column)}


def _texts(column: pd.Series) -> set[str]:
    return {normal_name(v.strip()) for v in column.unique() if isinstance(v, str)}


def read_row_parameters(table: pd.DataFrame, given: Any, taken: Mapping[str, Any]) -> RowParameters | None:
    """Return what `noise_parms` says: a column called as the placeholder, a list of them, or a dict of placeholders.

    Parameters
    ----------
    table : DataFrame
        The data.
    given : None, str, sequence of str, or mapping of placeholder to column
    taken : mapping of str to (str or None)
        Columns that mean something else, by argument.

    Raises
    ------
    ArgumentError, DataError
        Something else; a column that is not there, or taken.
    """
    if given is None:
        return None
    if isinstance(given, str):
        given = {given: given}
    elif not isinstance(given, Mapping):
        given = _by_name(given)
    columns = {}
    for placeholder, column in given.items():
        name = normal_name(placeholder)
        position = column_position(table, column, f"noise_parms[{name!r}]")
        for argument, other in taken.items():
            if other is not None and normal_name(other) == normal_name(column):
                raise ArgumentError(f"`noise_parms[{name!r}]` is the column {column!r}, and so is `{argument}`.")
        columns[name] = table.iloc[:, position]
    if not columns:
        raise ArgumentError("`noise_parms` is empty; leave it out, or name columns of the data.")
    return RowParameters(columns)


def names_by_row(obs: Any, given: Any) -> set[str]:
    """Return every text in the columns that `noise_parms` names."""
    found = read_row_parameters(as_table(obs), given, {})
    return set() if found is None else found.named()


def _by_name(given: Any) -> dict[str, str]:
    wanted = "the name of a column, or a dict of parameters and columns, such as {'sd': 'noise'}"
    try:
        names = list(given)
    except TypeError:
        raise ArgumentError(f"`noise_parms` must be {wanted}; got {type(given).__name__}.") from None
    for name in names:
        if not isinstance(name, str):
            raise ArgumentError(f"`noise_parms` must be {wanted}; got {name!r} in a list.")
    return {name: name for name in names}


def known_names(full: pd.Series, set_by: Collection[str], local: Any, given: Collection[str]) -> list[str]:
    """Return what a cell may name: parameters that are not set themselves, and those with a value of their own."""
    own = [str(n) for n in full.index if n not in set_by]
    locals_ = [n for n in own if not isinstance(local, str) and n in {normal_name(k) for k in local}]
    return [*own, *(n for n in given if split_local(n)[1] is None or split_local(n)[0] in locals_)]


def uses_of(model: Any, sds: Mapping[str, Any], labels: Sequence[Any]) -> Callable[[str, str], bool]:
    """Return the function that tells whether readings of a variable depend on a parameter.

    Of the model's own only a name that stands in outputs and nowhere else is known not to move the others.

    Parameters
    ----------
    model : Model
    sds : mapping of variable to expression
        Of the noise.
    labels : sequence
        The entities, whose events may be their own.
    """
    definition = getattr(model, "definition", None)
    outputs: dict[str, set[str]] = {}
    inside: set[str] = set()
    if definition is not None and definition.equations is not None:
        equations = definition.equations
        outputs = {name: names_in([e]) for name, e in equations.outputs}
        own = [definition] if getattr(model, "entity_inputs", None) is None else [
            model.of_entity(label).definition for label in labels
        ]  # fmt: skip
        of_events = [
            e for d in own for e in (*(e.value for e in d.events), *(e for r in d.roots for e in r.expressions))
        ]
        inside = names_in([*equations.rates, *definition.initial, *of_events])

    def reads(variable: str, seen: frozenset[str] = frozenset()) -> set[str]:
        names = outputs.get(variable, set())
        further = [reads(n, seen | {variable}) for n in names if n in outputs and n not in seen and n != variable]
        return names.union(*further)

    own_parameters = set(map(str, model.parms.index))
    by_variable = {name: reads(name) for name in outputs}
    in_outputs = set().union(*by_variable.values())

    def uses(placeholder: str, variable: str) -> bool:
        in_sd = names_in([sds[variable]]) if variable in sds else set()
        if placeholder in in_sd:
            return True
        if placeholder not in own_parameters:
            return False
        if placeholder in in_outputs and placeholder not in inside:
            wanted = {variable, *(in_sd & set(outputs))}
            return any(placeholder in by_variable.get(name, ()) for name in wanted)
        return True

    return uses


def is_missing(value: Any) -> bool:
    """Tell whether a cell of a table is empty."""
    return bool(pd.isna(value)) or (isinstance(value, str) and not value.strip())


def _together(keys: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return keys whose gaps (None) are filled by others that do not contradict them; the first is of the entity."""
    runs: list[list[Any]] = []
    of: dict[tuple[Any, ...], list[Any]] = {}
    for key in dict.fromkeys(keys):
        for run in runs:
            if run[0] == key[0] and all(a is None or b is None or a == b for a, b in zip(run, key, strict=True)):
                run[:] = [b if a is None else a for a, b in zip(run, key, strict=True)]
                of[key] = run
                break
        else:
            runs.append(list(key))
            of[key] = runs[-1]
    return [tuple(of[key]) for key in keys]


def _unused(name: str, known: Collection[str]) -> ParameterError:
    return ParameterError(
        f"`noise_parms`: {name!r} is neither a parameter of the model on which a reading depends nor a name in an "
        f"expression of measurement_noise.{did_you_mean(name, known)} There are {listed(dict.fromkeys(known))}."
    )
