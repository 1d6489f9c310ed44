"""Pictures of observations: one panel a variable, several data sets side by side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from fmepy.errors import ArgumentError, DataError, listed
from fmepy.plotting.axes import add_legend, check_which, get_axes, one_per_panel, picture, set_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fmepy.plotting.axes import AxesArray
    from fmepy.types import Vector

__all__ = ["Points", "observed_points", "obsplot"]

_MARKERS = "osD^v<>P*X"


class Points(NamedTuple):
    """Observations of one variable in one data set, missing ones left out."""

    data_set: int
    x: Vector
    y: Vector


@picture
def obsplot(
    x: Any,
    *more: Any,
    which: str | int | Sequence[str | int] | None = None,
    xyswap: bool | Sequence[bool] = False,
    axes: Axes | Iterable[Axes] | None = None,
    **kwargs: Any,
) -> AxesArray:
    """Return the axes on which observations are drawn as points; one panel a variable, one symbol a data set.

    Parameters
    ----------
    x, *more : DataFrame or mapping of columns
        Data sets. *Wide*: the first column is x, every other one a variable; columns of one name are replicates.
        *Long*: the first column is text and says which variable, the second is x, the third what was seen. Data sets
        are merged by the names of their variables.
    which : names or positions from 0, optional
        The variables to show, 0 being the first; all by default.
    xyswap : bool, or one a panel
        x on the vertical axis, downwards from its top: profiles against depth.
    axes : Axes or array of Axes, optional
        Where to draw; new panels by default, at most three wide.
    **kwargs
        ``xlabel ylabel xlim ylim xscale yscale title`` go to the axes, the same for all panels or, as a list (limits: a
        list of pairs), one a panel; ``figsize`` and ``legpos`` as in all pictures. ``color marker markersize linestyle
        label ...`` go to the points, the same for all data sets or, as a list, one a data set; labels make legends.

    Returns
    -------
    ndarray of Axes, shape (n_panel,)

    Raises
    ------
    ArgumentError
        Something that is no table; an unknown variable; lists that do not match the panels or the data sets.
    DataError
        A table without a variable, or with columns that do not hold numbers.

    Notes
    -----
    FME: ``obsplot``. Axes are labelled with the name of x and of the variable, where R writes "x" and puts the variable
    above the panel. R's pages (``mfrow``, ``ask``) become `axes`.

    Examples
    --------
    >>> first = pd.DataFrame({"t": [1, 2, 3], "A": [1.0, 2.0, 3.0], "B": [5.0, 6.0, np.nan]})
    >>> second = {"name": ["A", "D"], "x": [1.5, 2.5], "y": [1.4, 7.0]}
    >>> panels = obsplot(first, second)
    >>> [ax.get_ylabel() for ax in panels]
    ['A', 'B', 'D']
    """
    tables = [x, *more]
    points, x_name = observed_points(tables)
    names = check_which(which, list(points))
    if not names:
        raise ArgumentError("`which` is empty; name at least one variable, or pass None for all.")
    swaps = one_per_panel("xyswap", xyswap if isinstance(xyswap, bool) else list(xyswap), len(names))
    panels = get_axes(len(names), axes)
    for i, (ax, name) in enumerate(zip(panels, names, strict=True)):
        for seen in points[name]:
            style = {
                "color": f"C{seen.data_set % 10}", "marker": _MARKERS[seen.data_set % len(_MARKERS)],
                "linestyle": "none", "markersize": 5, **_of_data_set(kwargs, seen.data_set, len(tables)),
            }  # fmt: skip
            ax.plot(*((seen.y, seen.x) if swaps[i] else (seen.x, seen.y)), **style)
        if "label" in kwargs:
            add_legend(ax)
        set_axes(ax, x_name, name, bool(swaps[i]))
    return panels


def observed_points(
    tables: Sequence[Any], x_name: str | None = None, variables: Sequence[str] | None = None
) -> tuple[dict[str, list[Points]], str]:
    """Return the observations of every variable, and the name of x.

    Parameters
    ----------
    tables : sequence of tables, wide or long
    x_name : str, optional
        The column of x, where a table has it; else x is the first column (wide) or the second (long).
    variables : sequence of str, optional
        Names that a first column of text is looked through for: other text (the label of an animal) does not make a
        table long.
    """
    out: dict[str, list[Points]] = {}
    found = x_name
    for i, given in enumerate(tables):
        table = _table(given, i, len(tables))
        first = table.iloc[:, 0]
        is_long = not pd.api.types.is_numeric_dtype(first) and table.columns[0] != x_name
        if is_long and variables is not None and not first.astype(str).isin(variables).any():
            is_long = False
        parts, own = _long(table, x_name, i) if is_long else _wide(table, x_name, i)
        found = found or own
        for name, xs, ys in parts:
            kept = np.isfinite(xs) & np.isfinite(ys)
            out.setdefault(name, []).append(Points(i, xs[kept], ys[kept]))
    return out, found or "x"


def _table(given: Any, i: int, n: int) -> pd.DataFrame:
    told = "`x`" if i == 0 else f"data set {i}" if n > 1 else "`x`"
    if isinstance(given, Mapping):
        given = pd.DataFrame(dict(given))
    if not isinstance(given, pd.DataFrame):
        raise ArgumentError(
            f"{told} must be a table (a DataFrame or a mapping of columns); got {type(given).__name__}."
        )
    if given.shape[1] < 2:
        raise DataError(f"{told} needs x and at least one variable beside it; its columns are {listed(given.columns)}.")
    return given


def _wide(table: pd.DataFrame, x_name: str | None, i: int) -> tuple[list[tuple[str, Vector, Vector]], str]:
    names = [str(c) for c in table.columns]
    place = names.index(x_name) if x_name in names and x_name is not None else 0
    xs = _numbers(table.iloc[:, place], names[place])
    parts = [
        (names[j], xs, _numbers(table.iloc[:, j], names[j]))
        for j in range(len(names))
        if j != place and (x_name is None or pd.api.types.is_numeric_dtype(table.iloc[:, j]))
    ]
    return parts, names[place]


def _long(table: pd.DataFrame, x_name: str | None, i: int) -> tuple[list[tuple[str, Vector, Vector]], str]:
    names = [str(c) for c in table.columns]
    place = names.index(x_name) if x_name in names and x_name is not None else 1
    value = next((j for j in range(1, len(names)) if j != place), None)
    if value is None:
        raise DataError(
            f"Data set {i} is long (its first column is text) and needs a column of values beside {names[0]!r} and "
            f"{names[place]!r}."
        )
    xs, ys = _numbers(table.iloc[:, place], names[place]), _numbers(table.iloc[:, value], names[value])
    keys = table.iloc[:, 0].astype(str).to_numpy()
    return [(str(k), xs[keys == k], ys[keys == k]) for k in dict.fromkeys(keys)], names[place]


def _numbers(column: pd.Series, name: str) -> Vector:
    try:
        return np.asarray(column.to_numpy(dtype=float, na_value=np.nan))
    except (TypeError, ValueError):
        raise DataError(f"The column {name!r} does not hold numbers; leave it out.") from None


def _of_data_set(kwargs: Mapping[str, Any], i: int, n: int) -> dict[str, Any]:
    out = {}
    for key, value in kwargs.items():
        if not isinstance(value, (list, np.ndarray)):
            out[key] = value
        elif len(value) != n:
            raise ArgumentError(f"`{key}` has {len(value)} values for {n} data sets. Give one for all, or one each.")
        else:
            out[key] = value[i]
    return out
