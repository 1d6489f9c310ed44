"""Pictures of PEtab problems: readings and what the model predicts of them, over time by experiment."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from fmepy.parameters.selection import chosen
from fmepy.plotting.axes import color, each_panel, name_columns, picture
from fmepy.types import Axes, AxesArray

MOST_NAMED = 12
"""Experiments up to which each has an entry in the legend; of more, the first and the last have."""

_WORDS = 18.0  # points that words in a panel need


def times_behind(times: pd.Series[float]) -> pd.Series[float]:
    """Return times with those of readings at rest, which are infinite, behind the others."""
    at_rest = np.isinf(times)
    last = 0.0 if at_rest.all() else float(times[~at_rest].max())
    return times.where(~at_rest, last + 0.08 * (last or 1.0))


def mark_rest(ax: Axes, times: pd.Series[float]) -> None:
    """Mark where readings at rest stand behind others, with room for the words above all that is drawn."""
    at_rest = np.isinf(times)
    if at_rest.any() and not at_rest.all():
        last = float(times[~at_rest].max())
        ax.axvline(last + 0.04 * (last or 1.0), color="0.8", linewidth=0.8)
        height = ax.get_window_extent().height * 72 / ax.figure.figure.dpi
        to_data = ax.transAxes + ax.transData.inverted()
        ax.set_ylim(top=to_data.transform((0, 1 + _WORDS / height))[1])
        ax.annotate("at rest", (1, 1), xycoords="axes fraction", xytext=(-2, -10), textcoords="offset points",
                    ha="right", fontsize=8, color="0.4")  # fmt: skip


@picture
def plot_petab(table: Any, which: Any = None, *, axes: Any = None, **words: Any) -> AxesArray:
    """Draw readings as points and predictions as lines, a panel an observable, a colour an experiment.

    Parameters
    ----------
    table : DataFrame
        Columns observable, experiment, series, time, measurement, simulation; a line joins the rows of a series. An
        observable that is compared as a logarithm has True in the column is_log. Readings at rest have time inf: they
        stand behind the others or, where there are no others, side by side.
    which : names or positions, optional
        Observables; by default all.
    axes : Axes or array of them, optional
    **words
        Keywords of every picture, and of matplotlib's lines.
    """
    of_all = list(dict.fromkeys(table["observable"]))

    def draw(ax: Any, name: str) -> None:
        mine = table[table["observable"] == name]
        experiments = list(dict.fromkeys(mine["experiment"]))
        times, n = mine["time"], len(experiments)
        at_rest = np.isinf(times)
        if at_rest.all():
            mine = mine.assign(time=mine["experiment"].map(experiments.index), series=0)
        else:
            mine = mine.assign(time=times_behind(times))
        for (k, _), rows in mine.groupby([mine["experiment"].map(experiments.index), "series"], sort=True):
            is_named = n > 1 and not at_rest.all() and (n <= MOST_NAMED or k in (0, n - 1))
            look, rows = {"color": color(k, n)}, rows.sort_values("time", kind="stable")
            ax.plot(rows["time"], rows["measurement"], "o", markersize=4, **look)
            label = experiments[k] if is_named and experiments[k] not in ax.get_legend_handles_labels()[1] else None
            style = {"linestyle": "none", "marker": "_", "markersize": 12} if at_rest.all() else {}
            ax.plot(rows["time"], rows["simulation"], **{**look, **style, "label": label, **words})
        if at_rest.all():
            name_columns(ax, experiments)
        if mine["is_log"].all() and (mine[["measurement", "simulation"]] > 0).all(axis=None):
            ax.set_yscale("log")
        mark_rest(ax, times)

    names = chosen(which, of_all)
    panels = each_panel(names, draw, axes, x="time")
    for ax, name in zip(panels, names, strict=True):
        if np.isinf(table.loc[table["observable"] == name, "time"]).all():
            ax.set_xlabel("at rest")
    return panels
