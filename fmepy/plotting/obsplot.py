"""Pictures of observations: one panel a variable, several data sets side by side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fmepy.errors import ArgumentError
from fmepy.parameters.selection import chosen
from fmepy.plotting.axes import get_axes, one_per_panel, picture, point_look, set_axes
from fmepy.plotting.observations import dated_days, draw_marked, observed_points
from fmepy.types import Axes, AxesArray, Which


@picture
def obsplot(
    x: Any = None,
    /,
    *more: Any,
    which: Which = None,
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
        are merged by the names of their variables. A column that holds nothing but "<", ">", "=" and empty cells marks
        readings below or above a limit, which are drawn as open triangles.
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
    >>> import numpy as np
    >>> import pandas as pd
    >>> first = pd.DataFrame({"t": [1, 2, 3], "A": [1.0, 2.0, 3.0], "B": [5.0, 6.0, np.nan]})
    >>> second = {"name": ["A", "D"], "x": [1.5, 2.5], "y": [1.4, 7.0]}
    >>> panels = obsplot(first, second)
    >>> [ax.get_ylabel() for ax in panels]
    ['A', 'B', 'D']
    """
    from fmepy.plotting.ticks import date_ticks

    tables, calendar = dated_days([x, *more])
    points, x_name = observed_points(tables)
    names = chosen(which, list(points))
    if not names:
        raise ArgumentError("`which` is empty; name at least one variable, or pass None for all.")
    swaps = one_per_panel("xyswap", xyswap if isinstance(xyswap, bool) else list(xyswap), len(names))
    panels = get_axes(len(names), axes)
    for ax, name, swapped in zip(panels, names, map(bool, swaps), strict=True):
        for seen in points[name]:
            style = {**point_look(seen.data_set), "markersize": 5, **_of_data_set(kwargs, seen.data_set, len(tables))}
            draw_marked(ax, seen.x, seen.y, seen.marks, swapped, **style)
        set_axes(ax, x_name, name, swapped)
        if calendar is not None and not swapped:
            date_ticks(ax.xaxis, *calendar[1:3])
    return panels


def _of_data_set(kwargs: Mapping[str, Any], i: int, n: int) -> dict[str, Any]:
    return {key: one_per_panel(key, value, n, "data sets")[i] for key, value in kwargs.items()}
