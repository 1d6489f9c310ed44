"""Pictures of several experiments: a panel each with curve and data, or a colour each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from fmepy.plotting.axes import add_legend, get_axes, picture, set_axes
from fmepy.plotting.observations import draw_marked

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fmepy.plotting.axes import AxesArray


_MARKERS = "osD^vPX*<>"
_MOST_NAMED = 24
"""Entities that a legend names; of more than these the colours alone are shown."""
_MANY = 9
"""Panels from which they stand four in a row."""


def draw_by_entity(ax: Axes, table: pd.DataFrame, column: str, **kwargs: Any) -> None:
    """Draw a column of residuals against x as points, a colour an entity; beyond ten colours another symbol.

    Parameters
    ----------
    table : DataFrame
        With the columns entity and x.
    column : str
    **kwargs
        Go to ``Axes.plot``.
    """
    parts = list(table.groupby("entity", sort=False))
    for k, (label, own) in enumerate(parts):
        style = {"linestyle": "none", "marker": _MARKERS[k // 10 % len(_MARKERS)], "color": f"C{k % 10}"}
        named = {"label": str(label)} if len(parts) <= _MOST_NAMED else {}
        draw_marked(ax, own["x"], own[column], own.get("censored"), **{**style, **named, **kwargs})


@picture
def plot_entities(
    curves: pd.DataFrame, observed: pd.DataFrame, *, entity: str, axes: Any = None, **kwargs: Any
) -> AxesArray:
    """Draw curves and data of several experiments, a panel an entity, a colour a variable; return the Axes.

    Parameters
    ----------
    curves : DataFrame
        Columns: the entity, time, one a variable.
    observed : DataFrame
        Columns: name (of the variable), entity, x, obs.
    entity : str
        What an entity is called.
    axes : array of Axes, optional
        One an entity.
    **kwargs
        Settings of all pictures (`fmepy.plotting.axes.picture`); the rest goes to the curves' ``Axes.plot``.
    """
    labels = list(dict.fromkeys(curves.iloc[:, 0]))
    variables = list(curves.columns[2:])
    ncols, panel = (4, (2.6, 2.1)) if len(labels) > _MANY else (min(len(labels), 3), (3.4, 2.6))
    shared = {} if axes is not None else {"sharex": True, "sharey": True}
    panels = get_axes(len(labels), axes, ncols=ncols, panel=panel, **shared)
    for k, (ax, label) in enumerate(zip(panels, labels, strict=False)):
        own, seen = curves[curves.iloc[:, 0] == label], observed[observed["entity"].map(str) == str(label)]
        for j, name in enumerate(variables):
            style = {"color": f"C{j}", "label": name if len(variables) > 1 else None}
            ax.plot(own["time"].to_numpy(), own[name].to_numpy(), **{**style, **kwargs})
            mine = seen[seen["name"] == name]
            points: dict[str, Any] = {
                "color": f"C{j}" if len(variables) > 1 else "0.2",
                "markersize": 3.5,
                "linestyle": "none",
            }
            draw_marked(ax, mine["x"], mine["obs"], mine.get("censored"), marker="o", **points)
        ax.set_title(f"{entity} {label}", fontsize="medium")
        own_axis, first = axes is not None or k + ncols >= len(labels), axes is not None or k % ncols == 0
        ax.tick_params(labelbottom=own_axis)
        set_axes(ax, "time" if own_axis else "", variables[0] if first and len(variables) == 1 else "")
    if len(variables) > 1 and len(panels):
        add_legend(panels[0])
    return panels
