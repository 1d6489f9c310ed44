"""Pictures of fits: residuals by variable, the cost by iteration, fitted curves with their bands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fmepy.errors import ArgumentError
from fmepy.plotting.axes import add_legend, check_which, get_axes, picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from fmepy.fitting.predict import Prediction
    from fmepy.fitting.result import ModFit

__all__ = ["plot_fit", "plot_prediction"]


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
    for ax, (label, x, r, x_label) in zip(panels, groups, strict=False):
        _plot_residuals(x, r, ax=ax, title=label, xlabel=x_label, **kwargs)
    if with_trace:
        _plot_trace(fit, ax=panels[len(groups)])
    return panels


def _residual_groups(fit: ModFit) -> list[tuple[str, Any, Any, str]]:
    """Return (variable, x, residuals, label of x), one per variable; x is the observation number without a ModCost."""
    table = getattr(fit.cost, "residuals", None)
    if isinstance(table, pd.DataFrame):
        names = fit.cost.var["name"].repeat(fit.cost.var["N"]).to_numpy()
        return [
            (str(n), table.loc[names == n, "x"].to_numpy(), table.loc[names == n, "res"].to_numpy(), fit.cost.x_name)
            for n in dict.fromkeys(names)
        ]
    if len(fit.residuals) == 0:
        return []
    return [("residuals", np.arange(len(fit.residuals)), fit.residuals.to_numpy(), "observation")]


def _plot_residuals(x: Any, r: Any, *, ax: Axes, title: str, xlabel: str, **kwargs: Any) -> Axes:
    """Draw residuals against x, with a line at zero; return the Axes."""
    ax.axhline(0.0, color="0.6", linewidth=0.8)
    ax.plot(x, r, **{"marker": "o", "linestyle": "none", "markersize": 5, **kwargs})
    ax.set_title(title)
    ax.set_xlabel(xlabel)
    ax.set_ylabel("weighted residual")
    return ax


def _plot_trace(fit: ModFit, *, ax: Axes, **kwargs: Any) -> Axes:
    """Draw the minimised cost by iteration, on a log axis if it is positive; return the Axes."""
    trace = np.asarray(fit.rsstrace, dtype=float)
    ax.plot(np.arange(1, len(trace) + 1), trace, **{"marker": ".", **kwargs})
    if (trace > 0).all():
        ax.set_yscale("log")
    if not isinstance(fit.cost, type(None)) or len(fit.residuals):
        ax.set_ylabel("sum of squares")
    else:
        ax.set_ylabel("-2 log likelihood")
    ax.set_xlabel("iteration")
    ax.set_title(f"{fit.method}: {'converged' if fit.converged else 'not converged'}")
    return ax


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
    points = {} if obs is None else _observations(obs, x_name, variables)
    wanted = [v for v in variables if v in points] if which is None and points else check_which(which, variables)
    panels: NDArray[np.object_] = get_axes(len(wanted), axes)
    what = "reading" if prediction.reading else "curve"
    for ax, variable in zip(panels, wanted, strict=False):
        rows = frame[frame["var"] == variable]
        x = rows[x_name].to_numpy()
        (line,) = ax.plot(x, rows["fit"], **{"color": "C0", "label": "fit", **kwargs})
        ax.fill_between(x, rows["lower"], rows["upper"], color=line.get_color(), alpha=0.25, linewidth=0,
                        label=f"{prediction.level:.0%} band of the {what}")  # fmt: skip
        if variable in points:
            ax.plot(*points[variable], "o", color="0.2", markersize=4, label="observed")
        ax.set_xlabel(x_name)
        ax.set_ylabel(variable)
    if len(wanted):
        add_legend(panels[0])
    return panels


def _observations(obs: Any, x_name: str, variables: list[str]) -> dict[str, tuple[Any, Any]]:
    """Return (x, value) by variable."""
    table = pd.DataFrame(obs)
    if x_name in table.columns and any(v in table.columns for v in variables):
        return {v: (table[x_name].to_numpy(), table[v].to_numpy()) for v in variables if v in table.columns}
    first = table.iloc[:, 0].astype(str)
    if table.shape[1] >= 3 and first.isin(variables).any():
        return {
            v: (table.loc[first == v].iloc[:, 1].to_numpy(), table.loc[first == v].iloc[:, 2].to_numpy())
            for v in variables
            if (first == v).any()
        }
    raise ArgumentError(
        f"`obs` has neither a column {x_name!r} beside one of the variables {variables}, nor their names in its first "
        f"column (columns: {list(map(str, table.columns))})."
    )
