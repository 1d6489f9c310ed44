"""Tables of observations in the shapes that costs take: wide to long, and observations spread over a model's grid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fmepy.checks import as_list, as_numbers, positive_number
from fmepy.errors import ArgumentError, DataError, check_choice, check_known, listed
from fmepy.tables.columns import as_table, column_numbers, column_position
from fmepy.types import ArrayLike, Matrix, Vector
from fmepy.vocabulary import own_words

_REACH = 3.0  # spreads: beyond them the weight of a model point is left out
_HINT = " Name the variables in `select`, or put the column into `replicate`."
_SAME = 1e-8  # relative to the range of xmodel: nearer is the same point


@own_words
def cross2long(
    data: pd.DataFrame | Mapping[str, Any],
    x: str,
    *,
    select: str | Sequence[str] | None = None,
    replicate: str | Sequence[str] | None = None,
    error: bool = False,
    na_rm: bool = False,
) -> pd.DataFrame:
    """Return a wide table in long form: one row per variable and observation.

    Parameters
    ----------
    data : DataFrame or mapping of columns
        One row per x, one column per variable. Columns of one name are replicates of one variable.
    x : str
        The column of x.
    select : str or sequence of str, optional
        The variables; default all columns but `x` and `replicate`. A name with a minus before it is left out; where
        there are only such, the others are selected.
    replicate : str or sequence of str, optional
        Columns that tell rows apart (a zone, an animal); they are repeated for every variable.
    error : bool
        Add a column ``err`` of ones, to be filled in.
    na_rm : bool
        Drop rows with a missing value, and variables of which nothing is left.

    Returns
    -------
    DataFrame
        Columns ``name`` (categorical, in the order of the columns of `data`), ``x``, ``y``, ``err`` if `error`, then
        the replicated columns (categorical).

    Raises
    ------
    DataError
        An unknown column, a variable that does not hold numbers, nothing selected.

    Notes
    -----
    FME: ``cross2long``. Variables come in the order of `data`, whatever the order of `select`.

    Differs from FME: an unknown name is refused, where R ignores it; columns of one name are one variable, where R
    renames the second ("mud.1"); a column called "c" is like any other, where R always selects it beside others.

    Examples
    --------
    >>> profile = pd.DataFrame({"depth": [0, 1], "mud": [6.0, 1.0], "silt": [6.0, 5.0]})
    >>> cross2long(profile, "depth")
       name  x    y
    0   mud  0  6.0
    1   mud  1  1.0
    2  silt  0  6.0
    3  silt  1  5.0
    """
    table = as_table(data, "data", empty=True)
    names = [str(c) for c in table.columns]
    repeated = _listed_names(replicate, "replicate")
    for name, argument in ((x, "x"), *((r, "replicate") for r in repeated)):
        column_position(table, name, argument, "data")
    variables = _selected(select, names, {x, *repeated})
    places = [j for j, name in enumerate(names) if name in variables]
    columns = [column_numbers(table.iloc[:, j], names[j], "data", _HINT) for j in places]
    levels = list(dict.fromkeys(names[j] for j in places))
    # replicates of one variable stand together, after its first column
    order = sorted(range(len(places)), key=lambda k: levels.index(names[places[k]]))
    n = len(table)
    out = pd.DataFrame(
        {
            "name": pd.Categorical(np.repeat([names[places[k]] for k in order], n), categories=levels),
            "x": np.tile(table.iloc[:, names.index(x)].to_numpy(), len(order)),
            "y": np.concatenate([columns[k] for k in order]) if n else np.empty(0),
        }
    )
    if error:
        out["err"] = 1.0
    for name in repeated:
        out[name] = pd.Categorical(np.tile(np.asarray(table[name], dtype=object), len(order)))
    if na_rm:
        out = out.dropna().reset_index(drop=True)
        for name in ("name", *repeated):
            out[name] = out[name].cat.remove_unused_categories()
    return out


def _listed_names(names: str | Sequence[str] | None, argument: str) -> list[str]:
    return [] if names is None else [str(k) for k in as_list(names, argument, DataError)]


def _selected(select: str | Sequence[str] | None, names: list[str], others: set[str]) -> set[str]:
    everything = {k for k in names if k not in others}
    if select is None:
        chosen = everything
    else:
        wanted = _listed_names(select, "select")
        without = {k[1:] for k in wanted if k.startswith("-") and k not in names and k[1:] in names}
        plain = [k for k in wanted if not (k.startswith("-") and k[1:] in without)]
        for name in plain:
            check_known(name, names, f"`select={name!r}` is not a column.", DataError)
            if name in others:
                raise DataError(f"`select`: {name!r} is x or a replicate; it cannot be a variable too.")
        chosen = set(plain) if plain else everything - without
    if not chosen:
        raise DataError(f"No variable is selected; `data` has the columns {listed(names)}.")
    return chosen


@own_words
def gaussianWeights(
    obs: pd.DataFrame | Mapping[str, Any],
    x: str = "x",
    y: str = "y",
    *,
    xmodel: ArrayLike | None = None,
    spread: float,
    weight: str = "none",
    aggregation: str | None = None,
    ordering: str | Sequence[str] | None = None,
) -> pd.DataFrame:
    """Return observations spread over the points of a model's grid, with errors that weigh them.

    Parameters
    ----------
    obs : DataFrame or mapping of columns
        Long: a column that tells profiles or variables apart, one of x, one of observations; others are kept.
    x, y : str
        The columns of x and of the observations.
    xmodel : array_like, optional
        The x of the model's output. Every x of `obs` must be among them. Default: the x of `obs`.
    spread : float
        Standard deviation of the weights, in the unit of x.
    weight : {"none", "mean", "sd"}
        "mean" and "sd" multiply the errors by ``|mean|`` or the standard deviation of y over the rows *of the result*
        of each level of `aggregation`.
    aggregation : str, optional
        The column that tells profiles or variables apart; default the first column that is neither `x` nor `y`.
    ordering : str or sequence of str, optional
        Further columns to sort by, after `aggregation` and `x`.

    Returns
    -------
    DataFrame
        Columns `aggregation`, `x` (of the model), `y`, ``err``, then the others; sorted by `aggregation` and `x`.

    Raises
    ------
    DataError
        Unknown columns; missing or infinite values; an x of `obs` that is not among `xmodel` (the message says which).
    ArgumentError
        A spread that is not positive; a scale of 0 for ``weight="mean"`` or ``"sd"``.

    Notes
    -----
    An observation at ``x_o`` becomes one row per model point ``x_m`` with ``|x_m - x_o| <= 3 spread``, and ::

        w_m = N(x_m; x_o, spread) / sum_m N(x_m; x_o, spread)        err_m = 1 / w_m

    A cost squares (model - observation) / err, so a row counts with ``w_m^2``: the rows of one observation together
    count ``sum_m w_m^2`` < 1. FME: ``gaussianWeights`` (called experimental there).

    Differs from FME: x is compared with `xmodel` to a relative 1e-8, not exactly, and the error says which x is not
    there; the default aggregation is the first other column, where R takes x itself.

    Examples
    --------
    >>> obs = {"profile": ["silt", "silt"], "depth": [2, 3], "O2": [3, 2]}
    >>> gaussianWeights(obs, "depth", "O2", spread=1).round(3)
      profile  depth  O2    err
    0    silt      2   3  1.607
    1    silt      2   2  2.649
    2    silt      3   3  2.649
    3    silt      3   2  1.607
    """
    table = as_table(obs, "obs")
    names = [str(c) for c in table.columns]
    others = _listed_names(ordering, "ordering")
    for name, argument in ((x, "x"), (y, "y"), (aggregation, "aggregation"), *((k, "ordering") for k in others)):
        if name is not None or argument != "aggregation":
            column_position(table, name, argument)
    check_choice(weight, ("none", "mean", "sd"), "weight")
    spread = positive_number(spread, "spread", f", in the unit of {x!r}")
    if aggregation is None:
        aggregation = next((k for k in names if k not in (x, y)), None)
    seen, grid = _finite(table[x], x), _grid(table[x] if xmodel is None else xmodel)
    _finite(table[y], y)
    _check_among(seen, grid, x)
    rows, points, w = _spread(seen, grid, float(spread))
    first = [k for k in (aggregation, x, y) if k is not None]
    out = table.iloc[rows].reset_index(drop=True)
    whole = pd.api.types.is_integer_dtype(table[x]) and bool(np.equal(np.mod(grid, 1), 0).all())
    out[x] = grid[points].astype(int) if whole else grid[points]
    out["err"] = 1 / w
    if weight != "none":
        out["err"] *= _scales(out, y, aggregation, weight)
    out = out.sort_values([k for k in (aggregation, x) if k is not None] + others, kind="stable", ignore_index=True)
    result: pd.DataFrame = out[list(dict.fromkeys([*first, "err", *names]))]
    return result


def _finite(column: pd.Series, name: str) -> Vector:
    values = column_numbers(column, name, "obs")
    if not np.isfinite(values).all():
        row = int(np.flatnonzero(~np.isfinite(values))[0])
        raise DataError(f"`obs`: row {row} has {values[row]} in {name!r}; drop missing observations first.")
    return values


def _grid(xmodel: Any) -> Vector:
    grid = np.unique(as_numbers(xmodel, "xmodel"))
    if grid.size == 0 or not np.isfinite(grid).all():
        raise ArgumentError("`xmodel` must hold the x of the model's output: finite numbers, at least one.")
    return grid


def _check_among(seen: Vector, grid: Vector, name: str) -> None:
    nearest = grid[np.abs(seen[:, np.newaxis] - grid).argmin(axis=1)]
    room = _SAME * max(float(np.ptp(grid)), float(np.abs(grid).max()), 1e-300)
    off = np.abs(seen - nearest) > room
    if off.any():
        missing = ", ".join(f"{a:g} (nearest: {b:g})" for a, b in list(zip(seen[off], nearest[off], strict=True))[:5])
        raise DataError(f"`obs`: these {name!r} are not among `xmodel`: {missing}. Add them to the model's output.")


def _spread(seen: Vector, grid: Vector, spread: float) -> tuple[Any, Any, Vector]:
    """Return, for every row of the result, its observation, its model point, and its weight."""
    z = (grid - seen[:, np.newaxis]) / spread
    near = np.abs(z) <= _REACH * (1 + 1e-12)
    w: Matrix = np.where(near, np.exp(-0.5 * z**2), 0.0)
    w /= w.sum(axis=1, keepdims=True)
    rows, points = np.nonzero(near)
    return rows, points, w[rows, points]


def _scales(rows: pd.DataFrame, y: str, aggregation: str | None, weight: str) -> pd.Series:
    values = rows[y].astype(float)
    groups = values.groupby(rows[aggregation], observed=True) if aggregation else values.groupby(np.zeros(len(rows)))
    scale = (groups.transform("mean") if weight == "mean" else groups.transform("std")).abs()
    if not (scale > 0).all():
        level = rows[aggregation][~(scale > 0)].iloc[0] if aggregation else y
        what = "mean" if weight == "mean" else "standard deviation"
        raise ArgumentError(
            f"`weight={weight!r}`: the {what} of {y!r} is 0 (or undefined) for {level!r}; use weight='none'."
        )
    return scale
