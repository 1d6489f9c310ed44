"""Observations as the pictures take them: tables, wide or long, that become points by variable."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from fmepy.errors import ArgumentError, DataError, listed
from fmepy.tables.columns import as_table, column_numbers
from fmepy.tables.sheet import holds_dates, with_times
from fmepy.types import Axes, Vector

if TYPE_CHECKING:
    _Part = tuple[str, Vector, Vector, Any]  # variable, x, values, rows of the table

DATA: dict[str, Any] = {"color": "0.2", "marker": "o", "linestyle": "none", "markersize": 3.5, "label": "data"}
"""The look of data in every picture."""
_BEYOND = {"<": ("v", "<", "below limit"), ">": ("^", ">", "above limit")}
"""How readings beyond a limit are drawn, upright and swapped, and what a legend says of them."""


class Points(NamedTuple):
    """Observations of one variable in one data set, missing ones left out.

    `marks` are "<" or ">" where the value is a limit below or above which the reading lies; None: there are none.
    """

    data_set: int
    x: Vector
    y: Vector
    marks: Any = None


def observed(
    obs: Any, x_name: str, known: Sequence[str], shown: Sequence[str], *, needs_x: bool = False
) -> tuple[dict[str, list[Points]], str]:
    """Return the points of observations that are drawn over a model's output, by variable, and the name of their x.

    Parameters
    ----------
    obs : table, sequence of tables, or None
    x_name : str
        What the output calls its x; with `needs_x` every table must have it; else the place of x stands in for the
        name, and the first table names it.
    known, shown : sequence of str
        Variables of the output, and those that have a panel.

    Raises
    ------
    ArgumentError
        Something that is no table.
    DataError
        A table without x, or without any variable that is shown.
    """
    if obs is None:
        return {}, x_name
    many = not isinstance(obs, (pd.DataFrame, Mapping))
    if many and (isinstance(obs, str) or not isinstance(obs, Sequence)):
        hint = f" A variable is chosen by which={obs!r}." if isinstance(obs, str) else ""
        raise ArgumentError(f"`obs` must be a table or a list of tables; got {type(obs).__name__}.{hint}")
    out: dict[str, list[Points]] = {}
    x_of_tables = ""
    for i, one in enumerate(obs if many else [obs]):
        argument = f"obs[{i}]" if many else "obs"
        table = table_of_variables(one, argument)
        if needs_x and x_name not in table.columns:
            raise DataError(
                f"`{argument}` has no column {x_name!r}, the x of the outputs (its columns: {listed(table.columns)}). "
                f"Give the column of x that name: .rename(columns={{{str(table.columns[0])!r}: {x_name!r}}})."
            )
        points, own = observed_points([table], x_name, known)
        x_of_tables = x_of_tables or own
        if not set(points) & set(shown):
            raise DataError(
                f"`{argument}` holds none of the variables shown ({listed(shown)}); it has {listed(points)}: neither a "
                "column is named like one of them, nor does its first column name them."
            )
        for name, seen in points.items():
            out.setdefault(name, []).extend(seen)
    return out, x_of_tables or x_name


def draw_observed(
    ax: Axes, points: Sequence[Points], xyswap: bool = False, look: Mapping[str, Any] | None = None
) -> None:
    """Draw the points of one variable, with one entry of the legend for all its tables."""
    for k, seen in enumerate(points):
        style = {**DATA, "zorder": 4, **(look or {}), **({"label": "_nolegend_"} if k else {})}
        draw_marked(ax, seen.x, seen.y, seen.marks, xyswap, **style)


def draw_marked(ax: Axes, x: Any, y: Any, marks: Any = None, xyswap: bool = False, **style: Any) -> None:
    """Draw points; readings beyond a limit as open triangles at the limit, pointing to where they lie.

    Parameters
    ----------
    ax : Axes
    x, y : ndarray, shape (n,)
    marks : sequence of str, optional
        "<" or ">" where y is a limit.
    xyswap : bool
        x on the vertical axis.
    **style
        Of the points, for ``Axes.plot``.
    """
    x, y = np.asarray(x), np.asarray(y)
    at = np.full(len(x), "") if marks is None else np.asarray(marks, dtype=str)
    if style.get("label") is None:
        style.pop("label", None)
    for mark in ("", *_BEYOND):
        mine = at == mark
        if mark and not mine.any():
            continue
        look = dict(style)
        if mark:
            upright, swapped, label = _BEYOND[mark]
            look |= {"marker": swapped if xyswap else upright, "markerfacecolor": "none"}
            if not str(style.get("label", label)).startswith("_"):  # once a panel, whatever else points differ by
                look["label"] = "_nolegend_" if label in ax.get_legend_handles_labels()[1] else label
        (line,) = ax.plot(*((y[mine], x[mine]) if xyswap else (x[mine], y[mine])), **look)
        style.setdefault("color", line.get_color())


def _marks_of(table: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Return a table without its columns of marks, and these columns by name."""
    marks = {}
    for j in range(table.shape[1]):
        column = table.iloc[:, j]
        if not pd.api.types.is_numeric_dtype(column):
            texts = column.fillna("").astype(str).str.strip().replace("=", "")
            if set(texts) <= {"", *_BEYOND} and texts.isin(list(_BEYOND)).any():
                marks[str(table.columns[j])] = texts.to_numpy()
    return table.loc[:, [str(c) not in marks for c in table.columns]], marks


def _marks_by_variable(marks: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return the marks of every variable: one column is of the only variable, else of the one that its name holds."""
    if len(names) == 1 and len(marks) == 1:
        return dict.fromkeys(names, *marks.values())
    out = {}
    for column, values in marks.items():
        # a word of it: "mark_B" is of B, and "mark" of no variable, though it contains m
        mine = max(
            (n for n in names if re.search(rf"(?<![^\W_]){re.escape(n)}(?![^\W_])", column)), key=len, default=None
        )
        if mine is not None:
            out[mine] = values
    return out


def observed_points(
    tables: Sequence[Any], x_name: str | None = None, variables: Sequence[str] | None = None
) -> tuple[dict[str, list[Points]], str]:
    """Return the observations of every variable, and the name of x.

    Parameters
    ----------
    tables : sequence of tables, wide or long
        A column that holds nothing but "<", ">", "=" and empty cells marks readings beyond a limit; in a wide table of
        several variables those of the variable in its name, such as "mark_B".
    x_name : str, optional
        The column of x, where a table has it; else x is the first column (wide) or the second (long).
    variables : sequence of str, optional
        Names that a first column of text is looked through for: other text (the label of an animal) does not make a
        table long.
    """
    out: dict[str, list[Points]] = {}
    x_of_tables = ""
    for i, given in enumerate(tables):
        table, marks = _marks_of(table_of_variables(given, f"data set {i}" if i else "x"))
        first = table.iloc[:, 0]
        is_long = not pd.api.types.is_numeric_dtype(first) and table.columns[0] != x_name and not holds_dates(first)
        if is_long and variables is not None and not first.astype(str).isin(variables).any():
            is_long = False
        parts, own = _long(table, x_name, i) if is_long else _wide(table, x_name, i)
        x_of_tables = x_of_tables or own
        names = [name for name, *_ in parts]
        of = dict.fromkeys(names, next(iter(marks.values()), None)) if is_long else _marks_by_variable(marks, names)
        for name, xs, ys, rows in parts:
            finite = np.isfinite(xs) & np.isfinite(ys)
            mine = of.get(name)
            beyond = None if mine is None else mine[rows][finite]
            out.setdefault(name, []).append(Points(i, xs[finite], ys[finite], beyond))
    return out, x_of_tables or x_name or "x"


def dated_days(tables: Sequence[Any]) -> tuple[list[Any], Any]:
    """Return tables whose dates of x are days since the first of them, and what that is, for `date_ticks`."""
    out, calendar = list(tables), None
    for i, given in enumerate(tables):
        table = table_of_variables(given, f"data set {i}" if i else "x")
        place = next((j for j in (0, 1) if holds_dates(table.iloc[:, j])), None)
        if place is not None and table.columns.is_unique:
            origin = None if calendar is None else calendar[1]
            out[i] = with_times(table, str(table.columns[place]), "days", origin)
            calendar = calendar or out[i].attrs["calendar"]
    return out, calendar


def table_of_variables(thing: Any, label: str) -> pd.DataFrame:
    """Return a table with x and at least one variable; `label` is its name in messages."""
    table = as_table(thing, label)
    if table.shape[1] < 2:
        raise DataError(f"`{label}` needs x and at least one variable; it has {listed(table.columns)}.")
    return table


def _wide(table: pd.DataFrame, x_name: str | None, i: int) -> tuple[list[_Part], str]:
    names = [str(c) for c in table.columns]
    place = names.index(x_name) if x_name in names and x_name is not None else 0
    xs = _numbers(table, place, i)
    parts = [
        (names[j], xs, _numbers(table, j, i), np.arange(len(table)))
        for j in range(len(names))
        if j != place and (x_name is None or pd.api.types.is_numeric_dtype(table.iloc[:, j]))
    ]
    return parts, names[place]


def _long(table: pd.DataFrame, x_name: str | None, i: int) -> tuple[list[_Part], str]:
    names = [str(c) for c in table.columns]
    place = names.index(x_name) if x_name in names and x_name is not None else 1
    value = next((j for j in range(1, len(names)) if j != place), None)
    if value is None:
        raise DataError(
            f"Data set {i} is long (its first column is text) and needs a column of values besides {names[0]!r} and "
            f"{names[place]!r}."
        )
    xs, ys = _numbers(table, place, i), _numbers(table, value, i)
    keys = table.iloc[:, 0].astype(str).to_numpy()
    rows = {k: np.flatnonzero(keys == k) for k in dict.fromkeys(keys)}
    return [(str(k), xs[at], ys[at], at) for k, at in rows.items()], names[place]


def _numbers(table: pd.DataFrame, j: int, i: int) -> Vector:
    return column_numbers(table.iloc[:, j], str(table.columns[j]), f"data set {i}", " Leave the column out.")
