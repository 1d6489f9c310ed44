"""Pictures of profiles in time: as colours over time and depth, and as lines at days, with the data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fmepy.errors import DataError, listed
from fmepy.plotting.axes import color, each_panel, get_ax, get_axes, picture, set_axes, title_legend
from fmepy.tables.cells import some_of
from fmepy.tables.columns import DEPTHS, TIMES, are_swapped, as_table
from fmepy.types import Axes, AxesArray, Vector

_LONG = ["var", "time", "depth", "value"]


@picture
def plot_image(table: pd.DataFrame, edges: Vector, name: str, *, unit: str = "", ax: Any = None, **kwargs: Any) -> Any:
    """Return the axes on which a profile is drawn as colours; see `ProfileModel.image`.

    A time is in the middle of its column, whose edges are halfway to its neighbours.
    """
    ax = get_ax(ax)
    _draw_image(ax, table, edges, name, unit, **kwargs)
    return ax


def is_by_depth(table: pd.DataFrame) -> bool:
    """Tell whether a table has rows by time and x, as those of models on a grid."""
    return len(table.columns) > 2 and table.columns[1] == "x" and bool(table.iloc[:, 0].duplicated().any())


def draw_images(table: pd.DataFrame, names: Sequence[str], axes: Any, **kwargs: Any) -> AxesArray:
    """Return the panels in which profiles are drawn as colours, the edges of cells halfway between their middles."""
    x = np.unique(table["x"].to_numpy(dtype=float))
    inner = (x[1:] + x[:-1]) / 2
    edges = np.concatenate([2 * x[:1] - inner[:1], inner, 2 * x[-1:] - inner[-1:]])
    panels = get_axes(len(names), axes)
    for ax, name in zip(panels, names, strict=True):
        _draw_image(ax, table, edges, name, "", **kwargs)
    return panels


def _draw_image(ax: Axes, table: pd.DataFrame, edges: Vector, name: str, unit: str, **kwargs: Any) -> None:
    times = np.unique(table.iloc[:, 0].to_numpy(dtype=float))
    between = (times[1:] + times[:-1]) / 2
    ends = np.concatenate([times[:1], between, times[-1:]]) if len(times) > 1 else times[0] + np.array([-0.5, 0.5])
    values = table[name].to_numpy(dtype=float).reshape(len(times), -1).T
    mesh = ax.pcolormesh(ends, edges, values, **kwargs)
    ax.set(xlabel=str(table.columns[0]), ylabel="depth", ylim=(edges[-1], edges[0]))
    ax.figure.colorbar(mesh, ax=ax, label=f"{name} ({unit})" if unit else name)


def panels_by_place(
    frame: pd.DataFrame,
    names: Sequence[str],
    draw: Callable[[Axes, pd.DataFrame, bool, Any, str], None],
    axes: Any,
    most: int = 4,
    obs: Any = None,
) -> AxesArray:
    """Return panels of a table by time, place (column x) and variable: profiles at some times, the rest over time.

    ``draw(ax, rows, is_profile, look, label)`` draws one time; rows of what is no profile have the time as x. With
    observations, a table of time, depth and variables (or name, time, depth, value), the times are theirs.
    """
    time = str(frame.columns[list(frame.columns).index("x") - 1])
    data = _by_depth(obs, [str(v) for v in frame["var"].unique()], time)
    panels, known = get_axes(len(names), axes), [] if data is None else np.unique(data["time"]).tolist()
    for ax, name in zip(panels, names, strict=True):
        rows = frame[frame["var"] == name]
        is_profile = bool(rows["x"].notna().all())
        if not is_profile:
            draw(ax, rows.assign(x=rows[time]), False, color(0), "")
            set_axes(ax, time, name)
            continue
        seen = None if data is None or name not in set(data["var"]) else data[data["var"] == name]
        times = some_of(every := rows[time].unique(), most) if seen is None else np.unique(seen["time"]).tolist()
        colours = times if seen is None else known  # a time has one colour in all panels
        for at in times:
            own = rows[np.isclose(rows[time], at, rtol=1e-9)]
            if not len(own):
                raise DataError(
                    f"`obs` has {name!r} at {at:g}, and there are no rows of that time, for they are those of the "
                    "model's times: take times that hold it, predict(..., times=...) or model.replace(times=...)."
                )
            look = color(colours.index(at), len(colours))
            draw(ax, own, True, look, f"{time} {at:g}")
            if seen is not None:
                own = seen[seen["time"] == at]
                ax.plot(own["value"], own["depth"], "o", color=look, markersize=4)
        if seen is None and 1 < len(times) < len(every):
            title_legend(ax, f"{len(times)} of {len(every)} times")
        set_axes(ax, "depth", name if most > 1 else f"{name}, {time} {rows[time].max():g}", True)
    return panels


def _by_depth(obs: Any, variables: Sequence[str], time: str) -> pd.DataFrame | None:
    """Return observations of profiles as a long table: var, time, depth, value.

    Times and depths of a wide table are known by their names in either order; of two columns with other names the
    times come first. Columns of text (a station) say nothing.

    Raises
    ------
    DataError
        No variable, or columns of which it is not clear which are times and depths.
    """
    if obs is None:
        return None
    table = as_table(obs, "obs")
    names = list(map(str, table.columns))
    table = table.set_axis(names, axis=1)
    is_number = [pd.api.types.is_numeric_dtype(table[c]) for c in names]
    if len(names) > 3 and not is_number[0] and table.iloc[:, 0].astype(str).isin(variables).any():
        return table.iloc[:, :4].set_axis(_LONG, axis=1).astype({"var": str}).dropna()
    rest = [c for c, number in zip(names, is_number, strict=True) if number and c not in variables]
    times = [c for c in rest if c.lower() in (time.lower(), *TIMES)]
    depths = [c for c in rest if c.lower() in DEPTHS and c not in times]
    if len(rest) == 2:
        is_swapped = are_swapped(*rest) or rest[1] == time
        times, depths = [rest[is_swapped]], [rest[not is_swapped]]
    read = [c for c in names if c in variables]
    if not read or len(times) != 1 or len(depths) != 1:
        raise DataError(
            f"`obs` of profiles needs a column of times ({time!r}), one of depths ('depth') and a column a variable "
            f"({listed(variables)}), or name, time, depth and value; it has {listed(names)}."
        )
    long = table.rename(columns={times[0]: "time", depths[0]: "depth"})
    return long.melt(["time", "depth"], read, var_name="var", value_name="value")[_LONG].dropna()


@picture
def plot_days(
    curves: pd.DataFrame, seen: pd.DataFrame, *, day: str, entity: str | None = None, axes: Any = None, **kwargs: Any
) -> AxesArray:
    """Return the axes on which profiles at days are drawn with data, depth downwards: a panel a variable (and entity).

    Parameters
    ----------
    curves : DataFrame
        Of a model on a grid: time, x, a column a profile; before them the column `entity`, if there is one.
    seen : DataFrame
        Columns name, x (the time), depth, obs; entity.
    day : str
        What the time is called in legends.
    """
    time = str(curves.columns[int(entity is not None)])
    of = pd.Series("", seen.index) if entity is None else f", {entity} " + seen["entity"].astype(str)
    seen = seen.assign(panel=seen["name"] + of)[seen["name"].isin(curves.columns)]

    def draw(ax: Axes, panel: str) -> None:
        data = seen[seen["panel"] == panel]
        first = data.iloc[0]
        mine = curves if entity is None else curves[curves[entity].astype(str) == str(first["entity"])]
        days = np.unique(data["x"]).tolist()
        for i, at_time in enumerate(days):
            look = color(i, len(days))
            at, rows = np.isclose(mine[time], at_time, rtol=1e-12), data[data["x"] == at_time]
            label = f"{day} {at_time:g}"
            ax.plot(mine.loc[at, first["name"]], mine.loc[at, "x"], **{"color": look, "label": label, **kwargs})
            ax.plot(rows["obs"], rows["depth"], "o", color=look)

    return each_panel(list(dict.fromkeys(seen["panel"])), draw, axes, x="depth", xyswap=True)
