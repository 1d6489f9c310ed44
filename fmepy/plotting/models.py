"""Pictures of model output: one panel a variable, several runs and the observations in it; steady states."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fmepy.checks import as_list
from fmepy.errors import ArgumentError, DataError
from fmepy.parameters.selection import chosen
from fmepy.plotting.axes import DASHES, color, each_panel, get_axes, name_columns, picture, set_axes
from fmepy.plotting.observations import draw_marked, draw_observed, observed, table_of_variables
from fmepy.plotting.profiles_in_time import draw_images, is_by_depth
from fmepy.types import Axes, AxesArray, Which

_MANY = 9
"""Panels from which they stand four in a row."""


@picture
def plot_model(
    *outputs: pd.DataFrame | Mapping[str, Any],
    obs: pd.DataFrame | Mapping[str, Any] | Sequence[Any] | None = None,
    obspar: Mapping[str, Any] | None = None,
    which: Which = None,
    labels: Sequence[str] | None = None,
    xyswap: bool | None = None,
    axes: Axes | Iterable[Axes] | None = None,
    **kwargs: Any,
) -> AxesArray:
    """Return the axes on which model runs are drawn as lines, observations as points; one panel a variable.

    Parameters
    ----------
    *outputs : DataFrame or mapping of columns
        Runs of a model; the first column is x. They need not share their x, nor all variables. One table of a model on
        a grid (time, x, profiles) is drawn as images, time to the right and depth downwards.
    obs : DataFrame, mapping of columns, or a sequence of them, optional
        Observations. *Wide*: a column named like the outputs' x, and one column per variable. *Long*: the first
        column says which variable, a column named like the outputs' x where, and the next column what was seen.
        Variables that no panel shows are left out.
    obspar : dict, optional
        How the observations look: keywords of ``Axes.plot``.
    which : names or positions from 0, optional
        The variables to show; by default all of the first output that are numbers, of a `SteadyModel` on a grid all
        that are profiles.
    labels : sequence of str, optional
        One per output; they make a legend in the first panel.
    xyswap : bool, optional
        Draw x upwards on the vertical axis, downwards from its top: profiles against depth. The default is True of runs
        of a `SteadyModel` on a grid.
    axes : Axes or array of Axes, optional
        Where to draw; new panels by default.
    **kwargs
        ``xlabel ylabel xlim ylim xscale yscale title`` go to the axes, the same for all panels or, as a list (limits:
        a list of pairs), one a panel; ``legpos`` places the legend (R's words or matplotlib's, "above", None);
        ``color linestyle linewidth ...`` go to the lines, the same for all outputs or a list, one an output.

    Returns
    -------
    ndarray of Axes, shape (n_panel,)

    Raises
    ------
    ArgumentError
        An unknown variable, labels that do not match the outputs, too few axes.
    DataError
        A table without x, or observations without any variable that is shown.

    Notes
    -----
    FME: ``plot.deSolve`` and ``obsplot``; R draws observations in red by default, here they are black points.

    Examples
    --------
    >>> run = pd.DataFrame({"time": [0, 1, 2], "N": [1.0, 2.0, 4.0]})
    >>> seen = {"time": [0.5, 1.5], "N": [1.4, 2.9]}
    >>> (panel,) = plot_model(run, obs=seen, labels=["model"])
    >>> panel.get_xlabel(), panel.get_ylabel(), len(panel.lines)
    ('time', 'N', 2)
    """
    tables = [table_of_variables(o, f"outputs[{i}]") for i, o in enumerate(outputs)]
    if not tables:
        raise ArgumentError("`outputs` is missing: give at least one table, such as plot_model(model()).")
    if is_by_depth(tables[0]):
        if len(tables) > 1 or obs is not None or labels is not None:
            raise ArgumentError("Of profiles in time one table is drawn, as images; cost.plot() draws them with data.")
        return draw_images(tables[0], chosen(which, list(tables[0].columns[2:])), axes, **kwargs)
    x = str(tables[0].columns[0])
    labels = None if labels is None else as_list(labels, "labels")
    if labels is not None and len(labels) != len(tables):
        raise ArgumentError(f"`labels={labels!r}` must be a list of {len(tables)} texts, one per output.")
    known = list(dict.fromkeys(c for t in tables for c in _numeric_columns(t)))
    profiles = [v for v in tables[0].attrs.get("profiles", ()) if v in known]
    upright = bool(profiles) if xyswap is None else xyswap
    names = chosen(which, known) if which is not None else profiles or _numeric_columns(tables[0])
    if not names:
        raise DataError("The outputs hold no variable to show: there is no column of numbers besides x.")
    seen, _ = observed(obs, x, known, names, needs_x=True)
    styles = [_style(kwargs, i) for i in range(len(tables))]
    unnamed = {"label": None} if labels is None else {}

    def draw(ax: Axes, name: str) -> None:
        for table, style, label in zip(tables, styles, labels or [None] * len(tables), strict=True):
            if name in table.columns:
                line, dot = (table.iloc[:, 0], table[name]), {"marker": "o"} if len(table) == 1 else {}
                ax.plot(*(line[::-1] if upright else line), **{**dot, **style, "label": label})
        draw_observed(ax, seen.get(name, ()), upright, {**unnamed, **(obspar or {})})

    return each_panel(names, draw, axes, x=x, xyswap=upright)


def _numeric_columns(table: pd.DataFrame) -> list[str]:
    return [str(c) for c in table.columns[1:] if pd.api.types.is_numeric_dtype(table[c])]


def _style(kwargs: Mapping[str, Any], i: int) -> dict[str, Any]:
    """Return the look of output `i`: a colour and a dash of its own, and the user's keywords."""
    own = {k: v[i % len(v)] if isinstance(v, (list, np.ndarray)) else v for k, v in kwargs.items()}
    return {"color": color(i), "linestyle": DASHES[i % len(DASHES)], **own}


@picture
def plot_steady(result: Any, x: Any = None, *, xyswap: bool = True, axes: Any = None, **kwargs: Any) -> AxesArray:
    """Return the axes on which a steady state is drawn; see `SteadyState.plot`."""
    if result.n_species is None:
        if x is not None:
            raise ArgumentError("`x` is for profiles; these states have no place.")
        return _draw_states(result.frame, axes, kwargs)
    species = {name: f"species {name}" for name in result.frame.columns if name.isdigit()}
    table = result.frame.rename(columns=species)
    if x is not None:
        name, places = next(iter(x.items())) if isinstance(x, Mapping) else ("x", x)
        places = np.asarray(places, dtype=float)
        if places.shape != (len(table),):
            raise ArgumentError(f"`x` has the shape {places.shape}; one place for each of the {len(table)} cells is "
                                "needed.")  # fmt: skip
        table = table.rename(columns={"cell": name}).assign(**{name: places})
    return plot_model(table, xyswap=xyswap, axes=axes, **kwargs)


def _draw_states(frame: pd.DataFrame, axes: Any, kwargs: dict[str, Any]) -> AxesArray:
    panels = get_axes(1, axes)
    places = np.arange(len(frame))
    panels[0].plot(places, frame["state"].to_numpy(), **{"linestyle": "", "marker": "o", "color": color(0), **kwargs})
    if len(frame) <= 12:
        name_columns(panels[0], [str(k) for k in frame.index])
    set_axes(panels[0], "", "steady state")
    return panels


@picture
def plot_entities(
    curves: pd.DataFrame, observed: pd.DataFrame, *, entity: str, xyswap: bool = False, axes: Any = None, **kwargs: Any
) -> AxesArray:
    """Draw curves and data of several experiments, a panel an entity, a colour a variable; return the Axes.

    Parameters
    ----------
    curves : DataFrame
        Columns: the entity, x, one a variable.
    observed : DataFrame
        Columns: name (of the variable), entity, x, obs.
    entity : str
        What an entity is called.
    xyswap : bool
        x on the vertical axis, downwards from its top.
    axes : array of Axes, optional
        One an entity.
    **kwargs
        Settings of all pictures (`fmepy.plotting.axes.picture`); the rest goes to the curves' ``Axes.plot``.
    """
    labels, variables = list(dict.fromkeys(curves.iloc[:, 0])), list(curves.columns[2:])
    several = len(variables) > 1
    ncols, panel = (4, (2.6, 2.1)) if len(labels) > _MANY else (min(len(labels), 3), (3.4, 2.6))
    shared = {} if axes is not None else {"sharex": True, "sharey": True}
    panels = get_axes(len(labels), axes, ncols=ncols, panel=panel, **shared)
    for k, (ax, label) in enumerate(zip(panels, labels, strict=False)):
        own, seen = curves[curves.iloc[:, 0] == label], observed[observed["entity"].map(str) == str(label)]
        for j, name in enumerate(variables):
            style = {"color": color(j), "label": name if several else None}
            line = own.iloc[:, 1].to_numpy(), own[name].to_numpy()
            ax.plot(*(line[::-1] if xyswap else line), **{**style, **kwargs})
            mine = seen[seen["name"] == name]
            draw_marked(ax, mine["x"], mine["obs"], mine.get("censored"), xyswap, marker="o", linestyle="none",
                        markersize=3.5, color=color(j) if several else "0.2")  # fmt: skip
        ax.set_title(f"{entity} {label}", fontsize="medium")
        own_axis, first = axes is not None or k + ncols >= len(labels), axes is not None or k % ncols == 0
        ax.tick_params(labelbottom=own_axis)
        with_x, with_name = (first, own_axis) if xyswap else (own_axis, first)
        set_axes(
            ax, str(curves.columns[1]) if with_x else "", variables[0] if with_name and not several else "", xyswap
        )
    return panels
