"""Pictures of ensembles: runs and bands over x, outputs against parameters, pairs, histograms, scenarios."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fmepy.checks import whole_number
from fmepy.errors import ArgumentError
from fmepy.montecarlo.smoothing import local_lines
from fmepy.parameters.selection import chosen
from fmepy.plotting.axes import add_legend, get_axes, picture, set_axes, square_of, write_correlation
from fmepy.plotting.observations import draw_observed, observed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fmepy.montecarlo.crl import ModCRL
    from fmepy.montecarlo.ranges import RangeSummary, SensRange
    from fmepy.montecarlo.scenarios import ScenarioSummary
    from fmepy.plotting.axes import AxesArray

Which = str | int | Sequence[str | int] | None
_TRACE_POINTS = 60


# --- over x


@picture
def plot_runs(
    runs: SensRange,
    *,
    which: Which = None,
    xyswap: bool = False,
    axes: Axes | Iterable[Axes] | None = None,
    **kwargs: Any,
) -> AxesArray:
    """Draw every run as a line, one panel per variable; for a single x a box per variable; return the Axes.

    Parameters
    ----------
    runs : SensRange
    which : names or positions from 0, optional
    xyswap : bool
        x on the vertical axis, downwards from its top.
    axes : Axes or array of Axes, optional
    **kwargs
        Settings of all pictures (`fmepy.plotting.axes.picture`); the rest for the lines.
    """
    names = chosen(which, runs.var)
    panels = get_axes(len(names), axes)
    for ax, name in zip(panels, names, strict=True):
        values = runs.values[:, runs.var.index(name)]
        values = values[~np.isnan(values).any(axis=1)]
        if len(runs.x) == 1:
            _box(ax, values[:, 0], name, xyswap, kwargs)
        else:
            _lines(ax, runs.x, values, xyswap, kwargs)
            set_axes(ax, runs.x_name, name, xyswap)
    return panels


def _lines(ax: Axes, x: Any, values: Any, xyswap: bool, kwargs: Mapping[str, Any]) -> None:
    from matplotlib.collections import LineCollection

    xs = np.broadcast_to(x, values.shape)
    pairs = np.stack((values, xs) if xyswap else (xs, values), axis=-1)
    faint = float(np.clip(10 / max(len(values), 1), 0.08, 0.8))  # so that many runs still show where they crowd
    look = {"colors": kwargs.get("color", "C0"), "alpha": faint, "linewidths": 0.8}
    ax.add_collection(LineCollection(list(pairs), **{**look, **{k: v for k, v in kwargs.items() if k != "color"}}))
    ax.autoscale_view()


def _box(ax: Axes, values: Any, name: str, xyswap: bool, kwargs: Mapping[str, Any]) -> None:
    lying: dict[str, Any] = {"vert": not xyswap}
    if "orientation" in inspect.signature(ax.boxplot).parameters:  # matplotlib 3.10 on
        lying = {"orientation": "horizontal" if xyswap else "vertical"}
    ax.boxplot([values], **{"widths": 0.5, **lying, **kwargs})
    ticks, label = (ax.set_yticks, ax.set_xlabel) if xyswap else (ax.set_xticks, ax.set_ylabel)
    ticks([])
    label(name)


@picture
def plot_bands(
    summary: RangeSummary,
    *,
    xyswap: bool = False,
    which: Which = None,
    quant: bool = False,
    obs: Any = None,
    obspar: Mapping[str, Any] | None = None,
    axes: Axes | Iterable[Axes] | None = None,
    **kwargs: Any,
) -> AxesArray:
    """Draw a light and a dark band per variable, observations on top; for a single x dots with ranges; return the Axes.

    Parameters
    ----------
    summary : RangeSummary
    xyswap : bool
        x on the vertical axis, downwards from its top.
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
    names = chosen(which, summary.var)
    color = kwargs.pop("color", "C0")
    points = observed(obs, summary.x_name, summary.var, names)
    panels = get_axes(len(names), axes)
    told: set[str] = set()
    for ax, name in zip(panels, names, strict=True):
        rows = summary.frame[summary.frame["var"] == name]
        single = len(rows) == 1
        draw = _dot if single else _band
        draw(ax, rows, xyswap, quant, color, kwargs)
        draw_observed(ax, points.get(name, ()), xyswap or single, obspar)
        if single:
            ax.set_xlabel(name)
        else:
            set_axes(ax, summary.x_name, name, xyswap)
        kind = summary.kind_of(name)
        if kind not in told:
            told.add(kind)
            add_legend(ax, title=kind)
    return panels


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
    """Draw the one value of a variable as a dot with its ranges, lying."""
    outer, inner, middle, labels = _limits(rows, quant)
    at = rows["x"].to_numpy()
    ax.hlines(at, *outer, color=color, alpha=0.4, linewidth=2, label=labels[0])
    ax.hlines(at, *inner, color=color, alpha=0.6, linewidth=6, label=labels[1])
    ax.plot(middle, at, **{"color": color, "marker": "o", "linestyle": "none", "label": labels[2], **kwargs})
    ax.set_yticks([])


# --- outputs against parameters


@picture
def plot_responses(
    result: ModCRL,
    *,
    which: Which = None,
    trace: bool = False,
    axes: Axes | Iterable[Axes] | None = None,
    **kwargs: Any,
) -> AxesArray:
    """Draw every output against every parameter, one panel a pair, outputs as rows; return the Axes.

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
    ncols = len(pars) if len(outputs) > 1 and len(pars) > 1 else None
    panels = get_axes(len(pairs), axes, ncols=ncols)
    frame = result.frame.dropna()
    look = {"marker": "o", "linestyle": "none", "markersize": 3, "alpha": float(np.clip(100 / len(frame), 0.2, 0.8))}
    for ax, (p, v) in zip(panels, pairs, strict=True):
        x, y = frame[p].to_numpy(), frame[v].to_numpy()
        ax.plot(x, y, **{**look, **kwargs})
        if trace and len(frame) > 2:
            at = np.linspace(x.min(), x.max(), _TRACE_POINTS)
            ax.plot(at, local_lines(x, y, at), color="0.2", linewidth=1.5)
        set_axes(ax, p, v)
    return panels


@picture
def plot_pairs(
    frame: pd.DataFrame, *, nsample: int | None = None, axes: Axes | Iterable[Axes] | None = None, **kwargs: Any
) -> AxesArray:
    """Draw all columns against each other; return the Axes, shape (n, n).

    Points above the diagonal, correlations (of all rows) below, histograms on it. Rows with a missing value are left
    out.

    Parameters
    ----------
    frame : DataFrame, shape (n_row, n)
    nsample : int, optional
        At most so many points, evenly spaced over the rows.
    axes : array of Axes, shape (n, n), optional
    **kwargs
        Of the points: keywords of ``Axes.plot``.
    """
    names = [str(c) for c in frame.columns]
    if len(names) < 2:
        raise ArgumentError(f"`which`: pairs need at least two columns; there is {names}.")
    rows = frame.dropna()
    shown = rows
    if nsample is not None and whole_number(nsample, "nsample", 1) < len(rows):
        shown = rows.iloc[np.linspace(0, len(rows) - 1, int(nsample)).astype(int)]
    look = {"marker": ".", "linestyle": "none", "markersize": 3, "color": "C0", **kwargs}
    panels = square_of(len(names), axes, (1.8, 1.6))
    for i, j in np.ndindex(panels.shape):
        ax: Any = panels[i, j]
        if i == j:
            ax.hist(rows.iloc[:, i].to_numpy(), bins="auto" if len(rows) < 2000 else 40, color="0.75")
            ax.set_title(names[i], fontsize="medium")
            ax.set_yticks([])
        elif i < j:
            ax.plot(shown.iloc[:, j].to_numpy(), shown.iloc[:, i].to_numpy(), **look)
            ax.set_yticklabels([])
            ax.tick_params(labelbottom=False)
        else:
            write_correlation(ax, rows.iloc[:, j].to_numpy(), rows.iloc[:, i].to_numpy())
    return panels


@picture
def plot_histograms(frame: pd.DataFrame, *, axes: Axes | Iterable[Axes] | None = None, **kwargs: Any) -> AxesArray:
    """Draw a histogram of every column, missing values left out; return the Axes.

    Parameters
    ----------
    frame : DataFrame
    axes : Axes or array of Axes, optional
    **kwargs
        Settings of all pictures (`fmepy.plotting.axes.picture`); the rest for ``Axes.hist``.
    """
    names = [str(c) for c in frame.columns]
    panels = get_axes(len(names), axes)
    for i, (ax, name) in enumerate(zip(panels, names, strict=True)):
        values = frame.iloc[:, i].dropna().to_numpy()
        ax.hist(
            values, **{"bins": "auto" if len(values) < 2000 else 40, "color": "0.7", "edgecolor": "white", **kwargs}
        )
        set_axes(ax, name, "runs")
    return panels


# --- scenarios: one panel a variable, one line with its band a scenario

_LINES = ("-", "--", ":", "-.")  # one after the other where there are more scenarios than colours


@picture
def plot_scenarios(
    summary: ScenarioSummary, *, which: Which = None, axes: Axes | Iterable[Axes] | None = None, **kwargs: Any
) -> AxesArray:
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
    names = chosen(which, [str(v) for v in frame["var"].unique()])
    scenarios = list(frame["scenario"].unique())
    panels = get_axes(len(names), axes)
    single = frame["x"].nunique() == 1
    for ax, name in zip(panels, names, strict=True):
        rows = frame[frame["var"] == name]
        label = name if summary.base is None else f"{name}, difference to {summary.base!r}"
        if summary.base is not None:
            (ax.axvline if single else ax.axhline)(0.0, color="0.6", linewidth=0.8, zorder=1)
        if single:
            _dots(ax, rows, scenarios, kwargs)
            ax.set_xlabel(label)
            continue
        for scenario in scenarios:
            _line(ax, rows[rows["scenario"] == scenario], summary.order.index(scenario), scenario, kwargs)
        set_axes(ax, summary.x_name, label)
    if not single:
        add_legend(panels[0], title="median, 5 to 95 %" if frame["N"].max() > 1 else None)
    return panels


def _line(ax: Axes, rows: pd.DataFrame, i: int, scenario: Any, kwargs: Mapping[str, Any]) -> None:
    x, color = rows["x"].to_numpy(), f"C{i % 10}"
    if rows["N"].max() > 1:
        ax.fill_between(x, rows["q05"], rows["q95"], color=color, alpha=0.15, linewidth=0, zorder=1)
    look = {"color": color, "linestyle": _LINES[i // 10 % len(_LINES)], "label": str(scenario), "zorder": 3}
    ax.plot(x, rows["q50"].to_numpy(), **{**look, **kwargs})


def _dots(ax: Axes, rows: pd.DataFrame, scenarios: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Draw one dot a scenario with its range, the first on top."""
    at = range(len(scenarios))
    if rows["N"].max() > 1:
        ax.hlines(at, rows["q05"], rows["q95"], color="C0", alpha=0.5, linewidth=4)
    ax.plot(rows["q50"].to_numpy(), list(at), **{"color": "C0", "marker": "o", "linestyle": "none", **kwargs})
    ax.set_yticks(list(at), [str(s) for s in scenarios])
    ax.set_ylim(len(scenarios) - 0.5, -0.5)
