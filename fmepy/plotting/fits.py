"""Pictures of fits and costs: fitted curves with bands and data, residuals, the cost by iteration, fits compared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from fmepy.parameters.names import split_local
from fmepy.parameters.selection import chosen
from fmepy.plotting.axes import (
    COLORS,
    MOST_NAMED,
    color,
    each_panel,
    get_ax,
    get_axes,
    name_rows,
    picture,
    point_look,
    set_axes,
    title_legend,
    zero_line,
)
from fmepy.plotting.observations import DATA, draw_marked, draw_observed, observed
from fmepy.plotting.profiles_in_time import panels_by_place
from fmepy.tables.sheet import numbers_of_times
from fmepy.types import Axes, AxesArray


@picture
def plot_residuals(cost: Any, *, xyswap: bool | None = None, ax: Axes | None = None, **kwargs: Any) -> Axes:
    """Draw weighted residuals against x, one symbol and colour per variable, or per entity; return the Axes.

    Parameters
    ----------
    cost : ModCost
        With the tables ``residuals`` and ``var``, and ``x_name``.
    xyswap : bool, optional
        x on the vertical axis, downwards from its top; by default where it is called depth.
    ax : Axes, optional
    **kwargs
        Settings of all pictures (`fmepy.plotting.axes.picture`); anything else goes to ``Axes.plot``.
    """
    ax = get_ax(ax)
    upright = cost.x_name.lower() in ("depth", "depths") if xyswap is None else xyswap
    zero_line(ax, upright=upright)
    for k, (name, mine) in enumerate(_by_variable(cost)):
        _draw_residuals(ax, mine, name, k, kwargs, upright)
    set_axes(ax, cost.x_name, "weighted residuals", upright)
    return ax


def _by_variable(cost: Any) -> list[tuple[str, pd.DataFrame]]:
    names = np.repeat(cost.var["name"].to_numpy(), cost.var["N"].to_numpy(dtype=int))
    return [(str(name), rows) for name, rows in cost.residuals.groupby(names, sort=False)]


def _draw_residuals(
    ax: Axes, table: pd.DataFrame, name: str | None, k: int, kwargs: dict[str, Any], upright: bool = False
) -> None:
    """Draw the residuals of variable `k`: a colour an entity, and beyond the last colour another symbol."""
    if "entity" not in table or table["entity"].isna().any():
        draw_marked(ax, table["x"], table["res"], table.get("censored"), upright,
                    **{**point_look(k), "markersize": 5, "label": name, **kwargs})  # fmt: skip
        return
    parts = list(table.groupby("entity", sort=False))
    for i, (label, own) in enumerate(parts):
        look = {**point_look(i, k + i // len(COLORS)), "markersize": 5}
        named = str(label) if k == 0 and len(parts) <= MOST_NAMED else None
        draw_marked(ax, own["x"], own["res"], own.get("censored"), upright, **{**look, "label": named, **kwargs})


@picture
def plot_fit(fit: Any, *, axes: Any = None, **kwargs: Any) -> AxesArray:
    """Draw fitted curves with band and data, the residuals of every variable, the cost by iteration; return the Axes.

    Parameters
    ----------
    fit : ModFit
        With ``fitted_panels()``, what it says of curves, residuals and trace.
    axes : array of Axes, optional
        One per curve (a variable, or an entity), one per variable, and one for the trace (if there is one). Without
        room for the curves, residuals and trace are drawn.
    **kwargs
        Settings of all pictures (`fmepy.plotting.axes.picture`); the rest goes to the residuals' ``Axes.plot``.
    """
    groups, traced = _residual_groups(fit), len(fit.rsstrace) > 1
    others = len(groups) + traced
    curves = fit.fitted_panels() if axes is None or np.size(axes) > others else []
    small = {"ncols": 4, "panel": (3.2, 2.4)} if len(curves) > 4 else {}
    in_rows = {"ncols": 3 if len(curves) == 1 else len(curves)} if len(curves) == len(groups) < 4 else small
    panels = get_axes(len(curves) + others, axes, **(in_rows if curves else {}))
    for ax, panel in zip(panels, curves, strict=False):
        draw_fitted(ax, panel)
    profiles = {str(name) for panel in curves if panel.upright for name in panel.curves["var"].unique()}
    for ax, (label, own, x_label) in zip(panels[len(curves) :], groups, strict=False):
        upright = split_local(label)[0] in profiles
        zero_line(ax, upright=upright)
        _draw_residuals(ax, own, None, 0, kwargs, upright)
        ax.set_title(label, fontsize="medium")
        set_axes(ax, x_label or (curves[0].x_name if curves else "x"), "weighted residual", upright)
        if profiles and not upright:  # of what has no depth
            ax.set(xlabel="", xticks=[])
    if traced:
        _draw_trace(fit, panels[len(curves) + len(groups)])
    return panels


def draw_fitted(ax: Axes, panel: Any) -> None:
    """Draw the curves of a panel with their bands, and the data: a colour a variable where there are several."""
    names = list(panel.curves["var"].unique())
    several = len(names) > 1
    for k, name in enumerate(names):
        rows, seen = panel.curves[panel.curves["var"] == name], panel.seen[panel.seen["name"] == name]
        named = several or panel.quantity != ""
        draw_curve(ax, rows["x"], rows, color=color(k), label=name if named else "fit", band=panel.band,
                   xyswap=panel.upright)  # fmt: skip
        look = {**DATA, "color": color(k), "label": None} if named else DATA
        draw_marked(ax, seen["x"], seen["obs"], seen.get("censored"), panel.upright, **look)
    if panel.on_log:
        (ax.set_xscale if panel.upright else ax.set_yscale)("log")
    ax.set_title(panel.title, fontsize="medium")
    set_axes(ax, panel.x_name, panel.quantity or ("" if several else names[0]), panel.upright)


def draw_curve(ax: Axes, x: Any, rows: pd.DataFrame, *, band: str, xyswap: bool = False, **look: Any) -> None:
    """Draw a curve (column fit) and its band (lower, upper)."""
    (line,) = ax.plot(*((rows["fit"], x) if xyswap else (x, rows["fit"])), **look)
    if rows["upper"].notna().any():
        fill = ax.fill_betweenx if xyswap else ax.fill_between
        fill(x, rows["lower"], rows["upper"], color=line.get_color(), alpha=0.25, linewidth=0, label=band)


def _residual_groups(fit: Any) -> list[tuple[str, pd.DataFrame, str]]:
    """Return (variable, table with x and res, label of x, "" for that of the curves).

    x is the observation number where no other x is known.
    """
    if isinstance(getattr(fit.cost, "residuals", None), pd.DataFrame):
        return [(name, own, fit.cost.x_name) for name, own in _by_variable(fit.cost)]
    if len(fit.residuals) == 0:
        return []
    labels = list(fit.residuals.index) if fit.group_names else ["residuals"] * len(fit.residuals)
    x, x_label = np.arange(len(labels)), "observation"
    if fit.data is not None and list(fit.data.names) == labels and np.isfinite(fit.data.x).all():
        x, x_label = fit.data.x, ""  # of a likelihood without a ModCost, such as a filter's
    own = pd.DataFrame({"x": x, "res": fit.residuals.to_numpy()})
    return [(str(name), rows, x_label) for name, rows in own.groupby(np.asarray(labels), sort=False)]


def _draw_trace(fit: Any, ax: Axes) -> None:
    """Draw the minimised cost by iteration, on a log axis if it is positive; where it rises, another search begins."""
    trace = np.asarray(fit.rsstrace, dtype=float)
    for rows in np.split(np.arange(len(trace)), np.flatnonzero(np.diff(trace) > 0) + 1):
        ax.plot(rows + 1, trace[rows], marker=".", color=color(0))
    if (trace > 0).all():
        ax.set_yscale("log")
    ax.set_title(f"{fit.method}: {'converged' if fit.converged else 'not converged'}", fontsize="medium")
    set_axes(ax, "iteration", "-2 log likelihood" if fit.is_scalar else "sum of squares")


@picture
def plot_prediction(
    prediction: Any, obs: Any = None, *, which: Any = None, axes: Any = None, **kwargs: Any
) -> AxesArray:
    """Draw curve, band and observations, one panel per variable; return the Axes.

    Parameters
    ----------
    prediction : Prediction
        With ``frame``, and ``contains``, what its band is.
    obs : table, optional
        Wide (a column of x, named as in the prediction, and one per variable), or long with columns name, x and value
        in this order. Of profiles with the depth behind the time.
    which : name, position, or several of them, optional
        Variables; the default is all, or those observed if there are observations.
    axes : array of Axes, optional
    **kwargs
        Settings of all pictures (`fmepy.plotting.axes.picture`); the rest goes to the curve's ``Axes.plot``.
    """
    frame, calendar = prediction.frame, prediction.frame.attrs.get("calendar")
    x_name = str(frame.columns[0])
    variables = [str(v) for v in frame["var"].unique()]
    if calendar is not None and isinstance(obs, pd.DataFrame) and calendar[0] in obs:
        obs = obs.assign(**{calendar[0]: numbers_of_times(obs[calendar[0]], calendar)}).rename(
            columns={calendar[0]: x_name}
        )
    if frame.columns[1] == "x":
        return _prediction_by_place(prediction, obs, chosen(which, variables), axes, kwargs)
    points, x_label = observed(obs, x_name, variables, variables)
    profiles = frame.attrs.get("profiles", ())
    upright, shown = bool(profiles), [v for v in variables if v in (points or profiles or variables)]
    wanted = shown if which is None else chosen(which, variables)

    def draw(ax: Axes, name: str) -> None:
        rows = frame[frame["var"] == name]
        draw_curve(ax, rows[x_name].to_numpy(), rows, band=prediction.contains, xyswap=upright,
                   **{"color": color(0), "label": "fit", **kwargs})  # fmt: skip
        draw_observed(ax, points.get(name, ()), upright)

    return each_panel(wanted, draw, axes, x=x_label, xyswap=upright)


def _prediction_by_place(prediction: Any, obs: Any, names: list[str], axes: Any, kwargs: dict[str, Any]) -> AxesArray:
    """Draw profiles with their bands at some times, and what is one number over time."""

    def draw(ax: Axes, rows: Any, is_profile: bool, look: Any, label: str) -> None:
        x, middle = rows["x"].to_numpy(), rows["fit"].to_numpy()
        fill = ax.fill_betweenx if is_profile else ax.fill_between
        fill(x, rows["lower"], rows["upper"], facecolor=(look, 0.12), edgecolor=look, linewidth=0.6)
        ax.plot(*((middle, x) if is_profile else (x, middle)), **{"color": look, "label": label or "fit", **kwargs})
        if rows["var"].iloc[0] == names[0]:
            title_legend(ax, prediction.contains)

    return panels_by_place(prediction.frame, names, draw, axes, obs=obs)


@picture
def plot_comparison(comparison: Any, *, ax: Axes | None = None, **kwargs: Any) -> Axes:
    """Return the axes with AIC and BIC of every fit above the best, the best on top."""
    table = comparison.frame.sort_values("AIC")
    ax = get_ax(ax, figsize=(6.0, 1.4 + 0.45 * len(table)))
    place = np.arange(len(table))
    for k, (name, shift) in enumerate((("dAIC", -0.1), ("dBIC", 0.1))):
        ax.plot(table[name], place + shift, **{**point_look(k), "label": name[1:], **kwargs})
    zero_line(ax, upright=True)
    name_rows(ax, [f"{name}  (p = {p})" for name, p in zip(table.index, table["p"], strict=True)])
    ax.set_xlabel("above the best")
    return ax
