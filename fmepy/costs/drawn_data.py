"""Data drawn from a cost: readings that its model and its noise would have given, in the form of its table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fmepy.costs.observations import Comparison
from fmepy.errors import ArgumentError
from fmepy.parameters.named import merge_parameters
from fmepy.parameters.names import normal_name
from fmepy.tables.columns import as_table
from fmepy.types import UserParameters, Vector


def drawn_data(cost: Any, parms: UserParameters, rng: np.random.Generator) -> pd.DataFrame:
    """Return the table of a `SimulationCost` with its readings drawn anew: the model's value and an error of its noise.

    On the scale of comparison T, value = T^-1(T(mod) + sd z), z standard normal; of counts, and of a likelihood of
    one's own, what its `draw` gives. A reading that stands for a limit stays there if what is drawn lies beyond it.

    Raises
    ------
    ArgumentError
        Nothing is said of the size of the errors; the predictions follow the data; a class of one's own has no `draw`.
    """
    if cost.predictor is not cost.model:
        raise ArgumentError(
            f"The predictions of a {type(cost).__name__} follow its data, so that none can be drawn from it. Draw from "
            "a FimlofCost, or from a SimulationCost of the model."
        )
    c, is_likelihood = cost.comparison, cost.noise is not None or cost.likelihood is not None
    if not is_likelihood and np.isnan(c.observed.errors).any():
        name = c.names[int(np.argmax(np.isnan(c.observed.errors)))]
        raise ArgumentError(
            f"Nothing is said of the errors of {name!r}, so that no data can be drawn. Give measurement_noise=, or the "
            "errors in the data (err=)."
        )
    if is_likelihood:
        compared = cost.bind().drawn(merge_parameters(cost.parms, parms).to_numpy(dtype=float), rng)
    else:
        residuals = cost(parms).residuals
        sd = 1 / residuals["weight"].to_numpy(dtype=float)
        compared = residuals["mod"].to_numpy(dtype=float) + sd * rng.standard_normal(len(c))
    return with_drawn(cost, c, compared)


def with_drawn(cost: Any, c: Comparison, drawn: Vector) -> pd.DataFrame:
    """Return the table of a cost with what is drawn, on the scale of comparison, in the cells of readings.

    A reading that stands for a limit stays there if what is drawn lies beyond it, and has its mark no more if not.
    """
    assert c.places is not None, "prepared from a table"
    beyond = c.all_marks * (drawn - c.obs) > 0
    compared = np.where(beyond, c.obs, drawn)
    compared[c.scale.sqrt] = np.maximum(compared[c.scale.sqrt], 0.0)
    columns = [cost.y or name for name in c.names]
    out = write_readings(as_table(cost.obs), c.places, columns, c.scale.back(compared))
    seen = np.flatnonzero((c.all_marks != 0) & ~beyond)
    return unmarked(out, cost.censored, c.places[seen], [c.names[i] for i in seen])


def unmarked(table: pd.DataFrame, censored: Any, rows: Sequence[int] | Any, names: Sequence[str]) -> pd.DataFrame:
    """Return a table without the marks of some readings: these have become plain ones.

    Parameters
    ----------
    table : DataFrame
    censored : str, or mapping of variable to str
        As the cost has it.
    rows, names : sequence
        Position of the row, and variable, of every such reading.
    """
    by = {normal_name(k): v for k, v in censored.items()} if isinstance(censored, Mapping) else None
    places = {normal_name(str(k)): j for j, k in enumerate(table.columns)}
    for row, name in zip(rows, names, strict=True):
        j = places[normal_name(censored if by is None else by[name])]
        column = table.iloc[:, j].astype(object).to_numpy(copy=True)
        column[row] = ""
        table.isetitem(j, column)
    return table


def write_readings(
    table: pd.DataFrame, rows: Sequence[int] | Any, columns: Sequence[str], values: Vector
) -> pd.DataFrame:
    """Return a table with readings written into the cells that they stand for.

    Parameters
    ----------
    table : DataFrame
    rows : sequence of int
        The position of every reading's row.
    columns : sequence of str
        The column of every reading. Columns of one name hold readings of one variable, in their order.
    values : ndarray
    """
    places: dict[str, list[int]] = {}
    for j, c in enumerate(table.columns):
        places.setdefault(normal_name(str(c)), []).append(j)
    names = [normal_name(name) for name in columns]
    old = {j: table.iloc[:, j].to_numpy(dtype=float, na_value=np.nan) for name in set(names) for j in places[name]}
    new, taken = {j: column.copy() for j, column in old.items()}, dict[tuple[int, str], int]()
    for row, name, value in zip(np.asarray(rows).tolist(), names, values.tolist(), strict=True):
        turn = taken.get((row, name), 0)
        new[[j for j in places[name] if np.isfinite(old[j][row])][turn]][row] = value
        taken[row, name] = turn + 1
    out = table.copy()
    for j, column in new.items():
        out.isetitem(j, column)
    return out
