"""Pictures of fits beside each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fmepy.plotting.axes import add_legend, get_ax, picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fmepy.fitting.compare import FitComparison


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
