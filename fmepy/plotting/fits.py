"""Pictures of fits: residuals by variable, the cost by iteration, fitted curves with bands, fits beside each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fmepy.parameters.selection import chosen
from fmepy.plotting.axes import add_legend, get_ax, get_axes, picture, set_axes
from fmepy.plotting.entities import draw_by_entity
from fmepy.plotting.observations import draw_marked, draw_observed, observed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from fmepy.fitting.compare import FitComparison
    from fmepy.fitting.predict import Prediction
    from fmepy.fitting.result import ModFit


@picture
def plot_fit(fit: ModFit, *, axes: Any = None, **kwargs: Any) -> NDArray[np.object_]:
    """Draw the residuals of every variable, and the cost by iteration; return the Axes.

    Parameters
    ----------
    fit : ModFit
    axes : array of Axes, optional
        One per variable and one for the trace (if there is one).
    **kwargs
        Settings of all pictures (`fmepy.plotting.axes.picture`); the rest goes to the residuals' ``Axes.plot``.
    """
    groups = _residual_groups(fit)
    with_trace = len(fit.rsstrace) > 1
    panels: NDArray[np.object_] = get_axes(len(groups) + with_trace, axes)
    for ax, (label, own, x_label) in zip(panels, groups, strict=False):
        ax.axhline(0.0, color="0.6", linewidth=0.8)
        if "entity" in own and own["entity"].notna().all():
            draw_by_entity(ax, own, "res", **{"markersize": 5, **kwargs})
            add_legend(ax)
        else:
            points = {"marker": "o", "linestyle": "none", "markersize": 5, **kwargs}
            draw_marked(ax, own["x"], own["res"], own.get("censored"), **points)
        ax.set_title(label)
        set_axes(ax, x_label, "weighted residual")
    if with_trace:
        _plot_trace(fit, panels[len(groups)])
    return panels


def _residual_groups(fit: ModFit) -> list[tuple[str, pd.DataFrame, str]]:
    """Return (variable, table with x and res, label of x); x is the observation number without a ModCost."""
    table = getattr(fit.cost, "residuals", None)
    if isinstance(table, pd.DataFrame):
        rows = table.groupby(fit.cost.var["name"].repeat(fit.cost.var["N"]).to_numpy(), sort=False)
        return [(str(name), own, fit.cost.x_name) for name, own in rows]
    if len(fit.residuals) == 0:
        return []
    labels = fit.residuals.index if fit.group_names else ["residuals"] * len(fit.residuals)
    own = pd.DataFrame({"x": np.arange(len(fit.residuals)), "res": fit.residuals.to_numpy()})
    return [(str(name), rows, "observation") for name, rows in own.groupby(np.asarray(labels), sort=False)]


def _plot_trace(fit: ModFit, ax: Axes) -> None:
    """Draw the minimised cost by iteration, on a log axis if it is positive."""
    trace = np.asarray(fit.rsstrace, dtype=float)
    ax.plot(np.arange(1, len(trace) + 1), trace, marker=".")
    if (trace > 0).all():
        ax.set_yscale("log")
    ax.locator_params(axis="x", integer=True)
    ax.set_title(f"{fit.method}: {'converged' if fit.converged else 'not converged'}")
    set_axes(ax, "iteration", "-2 log likelihood" if fit.is_scalar else "sum of squares")


@picture
def plot_prediction(
    prediction: Prediction, obs: Any = None, *, which: Any = None, axes: Any = None, **kwargs: Any
) -> NDArray[np.object_]:
    """Draw curve, band and observations, one panel per variable; return the Axes.

    Parameters
    ----------
    prediction : Prediction
    obs : table, optional
        Wide (a column of x, named as in the prediction, and one per variable), or long with columns name, x and value
        in this order.
    which : name, position, or several of them, optional
        Variables; the default is all, or those observed if there are observations.
    axes : array of Axes, optional
    **kwargs
        Settings of all pictures (`fmepy.plotting.axes.picture`); the rest goes to the curve's ``Axes.plot``.
    """
    frame = prediction.frame
    x_name = str(frame.columns[0])
    variables = [str(v) for v in frame["var"].unique()]
    points = observed(obs, x_name, variables, variables)
    wanted = [v for v in variables if v in points] if which is None and points else chosen(which, variables)
    panels: NDArray[np.object_] = get_axes(len(wanted), axes)
    for ax, variable in zip(panels, wanted, strict=False):
        rows = frame[frame["var"] == variable]
        x = rows[x_name].to_numpy()
        (line,) = ax.plot(x, rows["fit"], **{"color": "C0", "label": "fit", **kwargs})
        ax.fill_between(x, rows["lower"], rows["upper"], color=line.get_color(), alpha=0.25, linewidth=0,
                        label=prediction.contains)  # fmt: skip
        draw_observed(ax, points.get(variable, ()))
        set_axes(ax, x_name, variable)
    if len(wanted):
        add_legend(panels[0])
    return panels


@picture
def plot_comparison(comparison: FitComparison, *, ax: Axes | None = None, **kwargs: Any) -> Axes:
    """Return the axes with AIC and BIC of every fit above the best, the best on top."""
    table = comparison.frame.sort_values("AIC", ascending=False)
    ax = get_ax(ax, figsize=(6.0, 1.4 + 0.45 * len(table)))
    place = np.arange(len(table))
    for name, marker, shift in (("dAIC", "o", 0.1), ("dBIC", "s", -0.1)):
        ax.plot(table[name], place + shift, **{"marker": marker, "linestyle": "none", "label": name[1:], **kwargs})
    ax.axvline(0.0, color="0.6", linewidth=0.8, zorder=0)
    told = [f"{name}  (p = {p})" for name, p in zip(table.index, table["p"], strict=True)]
    ax.set_yticks(place, told)
    ax.set_ylim(-0.6, len(table) - 0.4)
    ax.set_xlabel("above the best")
    add_legend(ax)
    return ax
