"""The gain of a predictor as a user writes it: which error of prediction corrects which state, and how much.

::

    {"theta": {"y": 1.0}}        by state and observed variable; what is left out is not corrected
    {"theta": 1.0}               the same where one variable is observed
    a table                      states by variables, labelled; an array of all states and observed variables, in order
    a vector                     one number a state (one observed variable), or one a variable (one state)
    a number                     one state, one observed variable

In place of a number may stand a parameter's name or an expression of parameters.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fmepy.errors import ArgumentError, did_you_mean, listed
from fmepy.language.equations import names_in
from fmepy.language.text import parse_expression
from fmepy.models.observer_model import Entry
from fmepy.parameters.entities import split_local
from fmepy.parameters.names import normal_name

STATIONARY = "stationary"


def read_gain(given: Any, states: Sequence[str], variables: Sequence[str]) -> tuple[Entry, ...]:
    """Return the entries of a gain.

    Parameters
    ----------
    given
        See the module's text.
    states, variables : sequence of str
        Those of the model, and what is observed, in order.

    Raises
    ------
    ArgumentError
        A state that is not there or a variable that is not observed (with the nearest), a wrong shape, an entry that
        is no finite number and no expression.

    Examples
    --------
    >>> read_gain({"theta": {"y": 1.0}}, ["theta", "omega"], ["y"])
    (('theta', 'y', 1.0),)
    >>> read_gain([0.5, "K2"], ["theta", "omega"], ["y"])
    (('theta', 'y', 0.5), ('omega', 'y', K2))
    """
    if isinstance(given, pd.DataFrame | pd.Series):
        _check_once(given)
    if isinstance(given, pd.DataFrame):
        given = {state: dict(row) for state, row in given.iterrows()}
    elif isinstance(given, pd.Series):
        given = given.to_dict()
    if isinstance(given, Mapping):
        return _by_name(given, states, variables)
    try:
        matrix = np.array(given, dtype=object)
    except ValueError:
        matrix = np.empty((0, 0, 0), dtype=object)
    n, m = len(states), len(variables)
    shapes = {(): (1, 1), (n,): (n, 1), (m,): (1, m), (n, m): (n, m)}
    shape = shapes.get(matrix.shape)
    if shape != (n, m):
        said = "has one number;" if matrix.shape == () else f"has the shape {matrix.shape};"
        if isinstance(given, str):
            said = f"is {given!r}.{did_you_mean(given, [STATIONARY])} For other gains than {STATIONARY!r}"
        raise ArgumentError(
            f"`gain` {said} a row for each of the states ({listed(states)}) and a column for each observed "
            f"variable ({listed(variables)}) is needed: shape ({n}, {m}). By name the other entries may be left out: "
            f"gain={{{states[0]!r}: {{{variables[0]!r}: 1.0}}}}."
        )
    table = matrix.reshape(shape)
    return tuple((s, v, _entry(table[i, j], s, v)) for i, s in enumerate(states) for j, v in enumerate(variables))


def _check_once(table: pd.DataFrame | pd.Series) -> None:
    """Refuse a table of which a row or a column stands twice."""
    for axis, what in zip(table.axes, ("row", "column"), strict=False):
        if len(twice := axis[axis.duplicated()]):
            raise ArgumentError(f"`gain`: the {what} {twice[0]!r} of the table stands more than once.")


def names_of_gain(given: Any) -> tuple[str, ...]:
    """Return the names in a gain as a user writes it, whatever states and variables there are.

    Examples
    --------
    >>> names_of_gain({"theta": {"y": "K1"}, "omega": {"y": "K2 / 2"}}), names_of_gain([0.5, "K"]), names_of_gain(1.0)
    (('K1', 'K2'), ('K',), ())
    """
    if isinstance(given, str):
        if given == STATIONARY:
            return ()
        return tuple(sorted(names_in([parse_expression(given, where="gain")])))
    if isinstance(given, pd.DataFrame | pd.Series):
        given = given.to_numpy().tolist()
    parts = given.values() if isinstance(given, Mapping) else given if np.iterable(given) else ()
    return tuple(dict.fromkeys(name for part in parts for name in names_of_gain(part)))


def _by_name(given: Mapping[Any, Any], states: Sequence[str], variables: Sequence[str]) -> tuple[Entry, ...]:
    out: list[Entry] = []
    if not given:
        raise ArgumentError(f"`gain` is empty; give one entry at least, such as {{{states[0]!r}: 0.0}}.")
    for key, row in given.items():
        state = normal_name(key)
        if state not in states:
            turned = " It is an observed variable: states come first, {state: {variable: gain}}."
            near = turned if state in variables else did_you_mean(state, states)
            raise ArgumentError(f"`gain`: {state!r} is not a state of the model.{near} States are {listed(states)}.")
        if isinstance(row, pd.Series):
            row = row.to_dict()
        if not isinstance(row, Mapping):
            if len(variables) > 1:
                raise ArgumentError(
                    f"`gain[{state!r}]` is {row!r}, and {len(variables)} variables are observed: say of whose error, "
                    f"such as {{{state!r}: {{{variables[0]!r}: {row!r}}}}}. There are {listed(variables)}."
                )
            row = {variables[0]: row}
        for name, value in row.items():
            variable = normal_name(name)
            if variable not in variables:
                raise ArgumentError(
                    f"`gain[{state!r}]`: {variable!r} is not observed, so that there is no error of it."
                    f"{did_you_mean(variable, variables)} Observed are {listed(variables)}."
                )
            out.append((state, variable, _entry(value, state, variable)))
    return tuple(out)


def _entry(value: Any, state: str, variable: str) -> Any:
    where = f"`gain[{state!r}][{variable!r}]`"
    if isinstance(value, str):
        value = parse_expression(value, where=where.strip("`"))
        if value.free_symbols:
            return value
    try:
        number = float(value) if not isinstance(value, bool | np.bool_) else np.nan
    except (TypeError, ValueError):
        number = np.nan
    if not np.isfinite(number):
        raise ArgumentError(f"{where} is {value!r}; a finite number, a parameter's name or an expression is needed.")
    return number


def names_taken(model: Any) -> dict[str, str]:
    """Return what names of a model that are no parameters are."""
    d = getattr(model, "definition", None)
    of_definition = {} if d is None else {str(d.time): "the time", **{f.name: "a forcing" for f in d.forcings}}
    return of_definition | dict.fromkeys(model.var_names, "an output") | dict.fromkeys(model.states, "a state")


def parameters_of_gain(
    gain: Sequence[Entry],
    of_model: pd.Series,
    given: Mapping[str, float],
    set_by: Collection[str],
    taken: Mapping[str, str],
) -> dict[str, float]:
    """Return the parameters of a gain that the model does not have, with their values.

    set_by : collection of str
        Those that conditions set, which need no value here.
    taken : mapping of str to str
        Names of the model that no parameter can have, and what they are.

    Raises
    ------
    ArgumentError
        A name without a value, or of something else than a parameter.
    """
    out: dict[str, float] = {}
    for state, variable, value in gain:
        for name in sorted(names_in([value]) - set(map(str, of_model.index))):
            where = f"`gain[{state!r}][{variable!r}]` uses {name!r}"
            if name in taken:
                raise ArgumentError(
                    f"{where}, {taken[name]} of the model. A gain is made of numbers and parameters; another name is "
                    "needed."
                )
            if name not in {*map(str, set_by), *given}:
                if some := [k for k in given if split_local(k)[0] == name]:
                    raise ArgumentError(
                        f"{where}, which has a value of its own as {listed(some)} alone. Give it one that serves all, "
                        f"such as parms={{{name!r}: 0.0}}, or name it in `entity_parms` and give every entity's."
                    )
                raise ArgumentError(
                    f"{where}, which has no value. Give it in `parms`, such as "
                    f"parms={{{name!r}: 0.0}}.{did_you_mean(name, [*given, *of_model.index])}"
                )
            out[name] = given.get(name, 1.0)
    return out
