"""Pictures of ensembles: runs and bands over x, outputs against parameters, pairs, histograms, scenarios."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fmepy.checks import whole_number
from fmepy.errors import ArgumentError
from fmepy.parameters.selection import chosen
from fmepy.plotting.axes import (
    WIDEST,
    bins_of,
    color,
    each_panel,
    get_axes,
    line_look,
    name_rows,
    picture,
    point_look,
    set_axes,
    title_legend,
    zero_line,
)
from fmepy.plotting.observations import draw_observed, observed
from fmepy.plotting.profiles_in_time import panels_by_place
from fmepy.tables.cells import by_place, profiles_among
from fmepy.types import Axes, AxesArray, Vector, Which

_TRACE_POINTS = 60
_MOST_COLUMNS, _GRID, _SQUARE = 6, (2.2, 1.9), (1.8, 1.6)
"""Columns of a grid of responses that still can be read; inches of its panels, and of those of a square."""


# --- over x


@picture
def plot_runs(
    runs: Any, *, which: Which = None, xyswap: bool | None = None, axes: Any = None, **kwargs: Any
) -> AxesArray:
    """Draw every run as a line, one panel per variable; for a single x a box per variable; return the Axes.

    Parameters
    ----------
    runs : SensRange
    which : names or positions from 0, optional
    xyswap : bool, optional
        x on the vertical axis, downwards from its top: the default of a steady state on a grid.
    axes : Axes or array of Axes, optional
    **kwargs
        Settings of all pictures (`fmepy.plotting.axes.picture`); the rest for the lines.
    """
    if runs.cells:
        return _profiles_of_runs(runs, which, axes, kwargs)
    single = len(runs.x) == 1
    names, upright = _over_depth(runs, which, xyswap)

    def draw(ax: Axes, name: str) -> None:
        values = runs.values[:, list(runs.var).index(name)]
        values = values[~np.isnan(values).any(axis=1)]
        if single:
            _box(ax, values[:, 0], upright, kwargs)
        else:
            _lines(ax, runs.x, values, upright, kwargs)

    return each_panel(names, draw, axes, x="" if single else runs.x_name, xyswap=upright)


def _over_depth(result: Any, which: Which, xyswap: bool | None) -> tuple[list[str], bool]:
    """Return the variables to draw, and whether x goes down: profiles of a steady state are drawn against depth."""
    profiles = [v for v in result.profiles if v in result.var]
    names = profiles if which is None and profiles else chosen(which, result.var)
    return names, bool(profiles) if xyswap is None else xyswap


def _profiles_of_runs(runs: Any, which: Which, axes: Any, kwargs: Mapping[str, Any]) -> AxesArray:
    """Draw every run as a line: profiles at the last time, what is one number over time."""
    parts = [pd.DataFrame(runs.values[:, j].T).assign(x=runs.x, var=name) for j, name in enumerate(runs.var)]
    frame = by_place(pd.concat(parts), "x", runs.x_name, runs.cells)
    numbers = list(range(len(runs.values)))

    def draw(ax: Axes, rows: pd.DataFrame, is_profile: bool, look: Any, label: str) -> None:
        values = rows[numbers].to_numpy().T
        _lines(ax, rows["x"].to_numpy(), values[~np.isnan(values).any(axis=1)], is_profile, kwargs)

    frame = frame[[runs.x_name, "x", "var", *numbers]]
    return panels_by_place(frame, chosen(which, profiles_among(runs.var, runs.cells)), draw, axes, most=1)


def _lines(ax: Axes, x: Any, values: Any, xyswap: bool, kwargs: Mapping[str, Any]) -> None:
    from matplotlib.collections import LineCollection

    xs = np.broadcast_to(x, values.shape)
    pairs = np.stack((values, xs) if xyswap else (xs, values), axis=-1)
    faint = float(np.clip(10 / max(len(values), 1), 0.08, 0.8))  # so that many runs still show where they crowd
    look = {"colors": kwargs.get("color", color(0)), "alpha": faint, "linewidths": 0.8}
    ax.add_collection(LineCollection(list(pairs), **{**look, **{k: v for k, v in kwargs.items() if k != "color"}}))
    ax.autoscale_view()


def _box(ax: Axes, values: Any, xyswap: bool, kwargs: Mapping[str, Any]) -> None:
    lying: dict[str, Any] = {"vert": not xyswap}
    if "orientation" in inspect.signature(ax.boxplot).parameters:  # matplotlib 3.10 on
        lying = {"orientation": "horizontal" if xyswap else "vertical"}
    ax.boxplot([values], **{"widths": 0.5, "medianprops": {"color": color(0)}, **lying, **kwargs})
    (ax.set_yticks if xyswap else ax.set_xticks)([])


@picture
def plot_bands(
    summary: Any,
    *,
    xyswap: bool | None = None,
    which: Which = None,
    quant: bool = False,
    obs: Any = None,
    obspar: Mapping[str, Any] | None = None,
    axes: Any = None,
    **kwargs: Any,
) -> AxesArray:
    """Draw a light and a dark band per variable, observations on top; for a single x dots with ranges; return the Axes.

    Parameters
    ----------
    summary : RangeSummary
    xyswap : bool, optional
        x on the vertical axis, downwards from its top: the default of a steady state on a grid.
    which : names or positions from 0, optional
    quant : bool
        Min to Max and Mean +- Sd (False), or q05 to q95 and q25 to q75 with the median (True).
    obs : table or list of tables, optional
    obspar : dict, optional
        Look of the observations.
    axes : Axes or array of Axes, optional
    **kwargs
        Settings of all pictures (`fmepy.plotting.axes.picture`); ``color`` of the bands; the rest for the middle line.

    Notes
    -----
    The legend belongs to the first panel, and to the first of another kind of band. Its title says what the band is:
    parameter uncertainty, or prediction.

    Raises
    ------
    ArgumentError
        An unknown variable; observations of none of those that are shown.
    """
    if summary.by_depth:
        return _bands_of_profiles(summary, which, quant, obs, axes, kwargs)
    shade = kwargs.pop("color", color(0))
    names, upright = _over_depth(summary, which, xyswap)
    points, x_label = observed(obs, summary.x_name, summary.var, names)
    kinds: set[str] = set()
    single = summary.frame["x"].nunique() == 1

    scalars = set() if single or xyswap is not None else set(names) - set(summary.profiles or names)

    def draw(ax: Axes, name: str) -> None:
        rows = summary.frame[summary.frame["var"] == name]
        if single or name in scalars:
            _dot(ax, rows[:1], upright, quant, shade, kwargs)
        else:
            _band(ax, rows, upright, quant, shade, kwargs)
        draw_observed(ax, points.get(name, ()), upright or single, obspar)
        if (kind := summary.kind_of(name)) not in kinds:
            kinds.add(kind)
            title_legend(ax, kind)

    if single:
        return each_panel(names, draw, axes, y="")
    panels = each_panel(names, draw, axes, x=x_label, xyswap=upright)
    for ax, _ in (found for found in zip(panels, names, strict=True) if found[1] in scalars):
        ax.set_ylabel("")
    return panels


def _bands_of_profiles(
    summary: Any, which: Which, quant: bool, obs: Any, axes: Any, kwargs: Mapping[str, Any]
) -> AxesArray:
    """Draw bands and the middle of profiles at some times, and those of single numbers over time."""
    names = chosen(which, summary.var)

    def draw(ax: Axes, rows: pd.DataFrame, is_profile: bool, look: Any, label: str) -> None:
        outer, inner, middle, labels = _limits(rows, quant)
        x, name = rows["x"].to_numpy(), str(rows["var"].iloc[0])
        fill, points = (ax.fill_betweenx, (middle, x)) if is_profile else (ax.fill_between, (x, middle))
        fill(x, *outer, facecolor="none", edgecolor=look, linewidth=0.6)  # bands of several times cover each other
        fill(x, *inner, color=look, alpha=0.3, linewidth=0)
        ax.plot(*points, **{"color": look, "label": label or labels[2], **kwargs})
        if name == names[0]:
            title_legend(ax, summary.kind_of(name), f"line {labels[2]}, shade {labels[1]}, outline {labels[0]}")

    return panels_by_place(summary.frame, names, draw, axes, obs=obs)


def _limits(rows: pd.DataFrame, quant: bool) -> tuple[Any, Any, Any, tuple[str, str, str]]:
    """Return the outer band, the inner band, the middle, and their names."""
    if quant:
        outer, inner = (rows["q05"], rows["q95"]), (rows["q25"], rows["q75"])
        return outer, inner, rows["q50"], ("q05 to q95", "q25 to q75", "median")
    inner = (rows["Mean"] - rows["Sd"], rows["Mean"] + rows["Sd"])
    return (rows["Min"], rows["Max"]), inner, rows["Mean"], ("Min to Max", "Mean ± Sd", "Mean")


def _band(ax: Axes, rows: pd.DataFrame, xyswap: bool, quant: bool, color: Any, kwargs: Mapping[str, Any]) -> None:
    outer, inner, middle, labels = _limits(rows, quant)
    fill = ax.fill_betweenx if xyswap else ax.fill_between
    x = rows["x"].to_numpy()
    fill(x, *outer, color=color, alpha=0.2, linewidth=0, label=labels[0])
    fill(x, *inner, color=color, alpha=0.4, linewidth=0, label=labels[1])
    ax.plot(*((middle, x) if xyswap else (x, middle)), **{"color": color, "label": labels[2], **kwargs})


def _dot(ax: Axes, rows: pd.DataFrame, xyswap: bool, quant: bool, color: Any, kwargs: Mapping[str, Any]) -> None:
    """Draw the one value of a variable as a dot with horizontal ranges."""
    outer, inner, middle, labels = _limits(rows, quant)
    at = rows["x"].to_numpy()
    ax.hlines(at, *outer, color=color, alpha=0.4, linewidth=2, label=labels[0])
    ax.hlines(at, *inner, color=color, alpha=0.6, linewidth=6, label=labels[1])
    ax.plot(middle, at, **{"color": color, "marker": "o", "linestyle": "none", "label": labels[2], **kwargs})
    ax.set_yticks([])


# --- outputs against parameters


@picture
def plot_responses(
    result: Any, *, which: Which = None, trace: bool = False, axes: Any = None, **kwargs: Any
) -> AxesArray:
    """Draw every output against every parameter, one panel a pair, outputs as rows of up to six; return the Axes.

    Parameters
    ----------
    result : ModCRL
    which : names or positions from 0 in the frame, optional
        Parameters and outputs; without any of one kind, all of that kind.
    trace : bool
        Add a smooth line.
    axes : Axes or array of Axes, optional
    **kwargs
        Settings of all pictures (`fmepy.plotting.axes.picture`); the rest for the points.
    """
    columns = chosen(which, [str(c) for c in result.frame.columns], what="column")
    pars = [c for c in columns if c in result.pars.columns] or [str(c) for c in result.pars.columns]
    outputs = [c for c in columns if c in result.var] or list(result.var)
    pairs = [(p, v) for v in outputs for p in pars]
    layout: dict[str, Any] = {}
    if axes is None and len(outputs) > 1 and 1 < len(pars) <= _MOST_COLUMNS:  # a row an output, a column a parameter
        shared = {"sharex": "col", "sharey": "row", "panel": _GRID} if len(pairs) > _MOST_COLUMNS else {}
        layout = {"ncols": len(pars), **shared}
    elif axes is None and len(pairs) > _MOST_COLUMNS:
        layout = {"ncols": _MOST_COLUMNS - 1, "panel": (WIDEST / (_MOST_COLUMNS - 1), 2.0)}
    panels = get_axes(len(pairs), axes, **layout)
    frame = result.frame.dropna()
    look = {**point_look(0), "markersize": 3, "alpha": float(np.clip(100 / max(len(frame), 1), 0.2, 0.8))}
    for k, (ax, (p, v)) in enumerate(zip(panels, pairs, strict=True)):
        x, y = frame[p].to_numpy(), frame[v].to_numpy()
        ax.plot(x, y, **{**look, **kwargs})
        if trace and len(frame) > 2:
            at = np.linspace(x.min(), x.max(), _TRACE_POINTS)
            ax.plot(at, local_lines(x, y, at), color="0.2", linewidth=1.5)
        inner, lower = "sharex" in layout and k % len(pars) > 0, "sharex" in layout and k < len(pairs) - len(pars)
        set_axes(ax, "" if lower else p, "" if inner else v)
    return panels


@picture
def plot_pairs(
    frame: pd.DataFrame, *, nsample: int | None = None, by: Any = None, axes: Any = None, **kwargs: Any
) -> AxesArray:
    """Draw all columns against each other; return the Axes, shape (n, n).

    Points above the diagonal, correlations (of all rows) below, histograms on it. Rows with a missing value are left
    out.

    Parameters
    ----------
    frame : DataFrame, shape (n_row, n)
    nsample : int, optional
        At most so many points, evenly spaced over the rows.
    by : sequence, length n_row, optional
        What the rows are of: a colour each.
    axes : array of Axes, shape (n, n), optional
    **kwargs
        Of the points: keywords of ``Axes.plot``.
    """
    names = [str(c) for c in frame.columns]
    n = len(names)
    if n < 2:
        raise ArgumentError(f"`which`: pairs need at least two columns; there is {names}.")
    whole = ~frame.isna().any(axis=1).to_numpy()
    rows, group = frame.to_numpy(dtype=float)[whole], np.asarray([""] * len(frame) if by is None else by)[whole]
    shown = np.arange(len(rows))
    if nsample is not None and whole_number(nsample, "nsample", 1) < len(rows):
        shown = np.linspace(0, len(rows) - 1, int(nsample)).astype(int)
    side = min(_SQUARE[0], WIDEST / n)
    panels = get_axes(n * n, axes, ncols=n, panel=(side, side * _SQUARE[1] / _SQUARE[0])).reshape(n, n)
    for i, j in np.ndindex(n, n):
        ax: Any = panels[i, j]
        x, y = rows[:, j], rows[:, i]
        if i == j:
            ax.hist(x, bins=bins_of(x), color="0.75")
            ax.set_title(names[i], fontsize="medium")
            ax.set_yticks([])
            ax.tick_params(labelsize="small")
        elif i < j:
            for k, label in enumerate(dict.fromkeys(group)):
                at = shown[group[shown] == label]
                look = {**point_look(k, 0), "marker": ".", "markersize": 3, "label": label if by is not None else None}
                ax.plot(x[at], y[at], **{**look, **kwargs})
            ax.tick_params(labelleft=False, labelbottom=False)
        else:
            write_correlation(ax, x, y)
    return panels


def write_correlation(ax: Axes, x: Any, y: Any) -> None:
    """Write the correlation of two quantities into a panel, the larger the stronger it is; "-" where there is none.

    It has as many digits as make it differ from 1.
    """
    text, size = "-", 8.0
    if len(x) > 1 and np.ptp(x) > 0 and np.ptp(y) > 0:
        r = float(np.corrcoef(x, y)[0, 1])
        digits = 2 if abs(r) < 0.995 or 1 - abs(r) < 1e-9 else int(np.ceil(-np.log10(1 - abs(r))))
        text, size = f"{r:.{digits}f}", 8 + 10 * abs(r)
    ax.set(xticks=[], yticks=[])
    ax.text(0.5, 0.5, text, ha="center", va="center", fontsize=size, transform=ax.transAxes)


@picture
def plot_histograms(frame: pd.DataFrame, *, axes: Any = None, **kwargs: Any) -> AxesArray:
    """Draw a histogram of every column, missing values left out; return the Axes.

    Parameters
    ----------
    frame : DataFrame
    axes : Axes or array of Axes, optional
    **kwargs
        Settings of all pictures (`fmepy.plotting.axes.picture`); the rest for ``Axes.hist``.
    """

    def draw(ax: Axes, name: str) -> None:
        values = frame.iloc[:, names.index(name)].dropna().to_numpy()
        ax.hist(values, **{"bins": bins_of(values), "color": "0.7", "edgecolor": "white", **kwargs})
        if not kwargs.get("density"):
            from matplotlib.ticker import MaxNLocator

            ax.yaxis.set_major_locator(MaxNLocator(integer=True))

    names = [str(c) for c in frame.columns]
    return each_panel(names, draw, axes, y="density" if kwargs.get("density") else "runs")


# --- scenarios: one panel a variable, one line with its band a scenario


@picture
def plot_scenarios(summary: Any, *, which: Which = None, axes: Any = None, **kwargs: Any) -> AxesArray:
    """Draw the median of every scenario with its 5 to 95 % band, one panel a variable; return the Axes.

    For a single x a dot with its range, one below the other.

    Parameters
    ----------
    summary : ScenarioSummary
    which : names or positions from 0, optional
    axes : Axes or array of Axes, optional
    **kwargs
        Settings of all pictures (`fmepy.plotting.axes.picture`); the rest for the lines.
    """
    frame = summary.frame
    names, scenarios = chosen(which, [str(v) for v in frame["var"].unique()]), list(frame["scenario"].unique())
    single, banded = frame["x"].nunique() == 1, frame["N"].max() > 1
    if frame.columns[2] == "x":
        return _scenarios_by_place(summary, names, axes, kwargs)

    panels = get_axes(len(names), axes)
    for ax, name in zip(panels, names, strict=True):
        rows, upright = frame[frame["var"] == name], name in summary.profiles
        is_dot = single or (bool(summary.profiles) and not upright)  # a scalar is repeated in all rows
        if summary.base is not None:
            zero_line(ax, upright=is_dot or upright)
        if is_dot:
            _dots(ax, rows.drop_duplicates("scenario"), scenarios, kwargs)
        for scenario in () if is_dot else scenarios:
            mine = rows[rows["scenario"] == scenario]
            _line(ax, mine, summary.order.index(scenario), scenario, kwargs, upright)
        if banded and not is_dot and name == names[0]:
            title_legend(ax, "median, 5 to 95 %")
        label = name if summary.base is None else f"{name}, difference to {summary.base!r}"
        if is_dot:
            ax.set_xlabel(label)
        else:
            set_axes(ax, summary.x_name, label, upright)
    return panels


def _scenarios_by_place(summary: Any, names: Sequence[str], axes: Any, kwargs: Mapping[str, Any]) -> AxesArray:
    """Draw profiles of all scenarios at the last time, and what is one number over time."""

    def draw(ax: Axes, rows: pd.DataFrame, is_profile: bool, look: Any, label: str) -> None:
        if summary.base is not None:
            zero_line(ax, upright=is_profile)
        for scenario in rows["scenario"].unique():
            mine = rows[rows["scenario"] == scenario]
            _line(ax, mine, summary.order.index(scenario), scenario, kwargs, upright=is_profile)
        if rows["N"].max() > 1 and rows["var"].iloc[0] == names[0]:
            title_legend(ax, "median, 5 to 95 %")

    panels = panels_by_place(summary.frame, names, draw, axes, most=1)
    if summary.base is not None:
        for ax, name in zip(panels, names, strict=True):
            axis = ax.xaxis if ax.yaxis_inverted() else ax.yaxis
            axis.set_label_text(f"{name}, difference to {summary.base!r}")
    return panels


def _line(
    ax: Axes, rows: pd.DataFrame, i: int, scenario: Any, kwargs: Mapping[str, Any], upright: bool = False
) -> None:
    x, middle, look = rows["x"].to_numpy(), rows["q50"].to_numpy(), line_look(i)
    if rows["N"].max() > 1:
        fill = ax.fill_betweenx if upright else ax.fill_between
        fill(x, rows["q05"], rows["q95"], color=look["color"], alpha=0.15, linewidth=0, zorder=1)
    ax.plot(*((middle, x) if upright else (x, middle)), **{**look, "label": str(scenario), "zorder": 3, **kwargs})


def _dots(ax: Axes, rows: pd.DataFrame, scenarios: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Draw one dot a scenario with its range, the first on top."""
    at = range(len(scenarios))
    if rows["N"].max() > 1:
        ax.hlines(at, rows["q05"], rows["q95"], color=color(0), alpha=0.5, linewidth=4)
    ax.plot(rows["q50"].to_numpy(), list(at), **{**point_look(0), **kwargs})
    name_rows(ax, scenarios)


def local_lines(x: Vector, y: Vector, at: Vector, span: float = 2 / 3) -> Vector:
    """Return a smooth line through scattered points (x, y), for the eye, at the points `at`.

    Parameters
    ----------
    x, y : ndarray, shape (n,)
    at : ndarray, shape (m,)
    span : float
        Share of the points that each local line is fitted to; at least three are.

    Notes
    -----
    At a point t a straight line is fitted to the nearest `span` of the points, weighted with the tricube of their
    distance (Cleveland's lowess without its robustness iterations)::

        w_i = (1 - (|x_i - t| / d)^3)^3,    d = distance of the farthest point that is used,    line(t) = a + b t

    References
    ----------
    Cleveland, W. S. (1979). Robust locally weighted regression and smoothing scatterplots. J. Am. Stat. Assoc. 74,
    829-836.

    Examples
    --------
    >>> x = np.linspace(0, 1, 20)
    >>> local_lines(x, 3 * x + 1, np.array([0.0, 0.5])).round(6).tolist()
    [1.0, 2.5]
    """
    n = min(len(x), max(3, int(np.ceil(span * len(x)))))
    out = np.empty(len(at))
    for i, t in enumerate(at):
        distance = np.abs(x - t)
        reach = np.partition(distance, n - 1)[n - 1]
        # a little beyond the farthest point, so that ties at the edge keep some weight
        w = np.clip(1 - (distance / (1.001 * reach)) ** 3, 0, None) ** 3 if reach > 0 else 1.0 * (distance == 0)
        mean_x, mean_y = np.average(x, weights=w), np.average(y, weights=w)
        spread = np.sum(w * (x - mean_x) ** 2)
        slope = np.sum(w * (x - mean_x) * (y - mean_y)) / spread if spread > 0 else 0.0
        out[i] = mean_y + slope * (t - mean_x)
    return out
