"""The picture of observations as boundary conditions: the fitted path through them, and the way to it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from fmepy.parameters.selection import chosen
from fmepy.plotting.axes import get_axes, picture, point_look, set_axes
from fmepy.plotting.models import plot_entities, plot_model
from fmepy.plotting.observations import table_of_variables
from fmepy.types import Axes, AxesArray


@picture
def plot_boundary(fit: Any, obs: Any = None, *, which: Any = None, axes: Any = None, **kwargs: Any) -> AxesArray:
    """Draw the fitted path with the observations, and residual and correction by step; return the Axes.

    Parameters
    ----------
    fit : BoundaryFit
    obs : table, optional
        Other observations than those that were fitted, with a column ``time`` (and the experiment, if there are
        several).
    which : names, optional
        Variables; default: those that are observed.
    axes : array of Axes, optional
        One a variable, or of several experiments one each; and one for the steps.
    **kwargs
        Settings of all pictures (`fmepy.plotting.axes.picture`); the rest goes to the curves' ``Axes.plot``.
    """
    seen = fit.fit.cost.residuals
    path = fit.trajectory
    head = ["time"] if fit.entity is None else [fit.entity, "time"]
    if path is None:  # what can be shown are the values at the observations
        rows = seen.rename(columns={"x": "time", "entity": fit.entity or "entity"})
        path = rows.pivot_table(index=head, columns="name", values="mod").reset_index()
    known = [str(c) for c in path.columns[len(head) :]]
    names = chosen(which, known) if which is not None else list(dict.fromkeys(seen["name"]))
    curves = path[[*head, *names]]
    n = len(names) if fit.entity is None else path[fit.entity].nunique()
    panels = get_axes(n + 1, axes)
    if fit.entity is None:
        points = seen[["name", "x", "obs"]].rename(columns={"x": "time"}) if obs is None else obs
        shown = bool(set(seen["name"]) & set(names)) or obs is not None
        plot_model(curves, obs=points if shown else None, labels=["fit"], axes=panels[:n], **kwargs)
    else:
        points = seen if obs is None else _long(table_of_variables(obs, "obs"), fit.entity, names)
        plot_entities(curves, points, entity=fit.entity, axes=panels[:n], **kwargs)
    _plot_steps(fit, panels[n])
    return panels


def _long(table: pd.DataFrame, entity: str, names: list[str]) -> pd.DataFrame:
    """Return a wide table of observations with the columns name, entity, x, obs."""
    wide = table[[entity, "time", *(name for name in names if name in table.columns)]]
    long = wide.melt([entity, "time"], var_name="name", value_name="obs")
    return long.rename(columns={entity: "entity", "time": "x"})


def _plot_steps(fit: Any, ax: Axes) -> None:
    """Draw residual and correction by step, on a log axis."""
    steps = fit.iterations
    for k, (column, label) in enumerate((("residual", "residual"), ("correction", "largest correction, relative"))):
        values = steps[column].to_numpy(dtype=float)
        look = {**point_look(k), "linestyle": "-", "markersize": 4, "label": label}
        ax.plot(steps["step"], np.where(values > 0, values, np.nan), **look)
    if (steps[["residual", "correction"]].to_numpy(dtype=float) > 0).any():
        ax.set_yscale("log")
    ax.set_title(f"{fit.strategy}: {'converged' if fit.converged else 'not converged'}", fontsize="medium")
    set_axes(ax, "step", "")
