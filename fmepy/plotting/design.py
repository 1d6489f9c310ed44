"""Pictures of designs: what a reading would add, and the readings that were chosen."""

from __future__ import annotations

from typing import Any

import numpy as np

from fmepy.parameters.selection import chosen as chosen_names
from fmepy.plotting.axes import color, each_panel, picture
from fmepy.types import AxesArray


@picture
def plot_design(design: Any, which: Any = None, *, axes: Any = None, **words: Any) -> AxesArray:
    """Draw what a reading would add over its place, a panel a variable, and the chosen readings as marks below.

    Parameters
    ----------
    found : OptimalDesign
    which : names or positions, optional
        Variables; by default all.
    axes : Axes or array of them, optional
    **words
        Keywords of every picture, and of matplotlib's lines.
    """
    table, chosen = design.sensitivity, design.chosen
    x = next(c for c in table.columns if c not in ("variable", "sensitivity"))
    names = chosen_names(which, list(dict.fromkeys(table["variable"])))

    def draw(ax: Any, name: str) -> None:
        gains = table[table["variable"] == name].groupby(x)["sensitivity"].max()
        ax.plot(gains.index, gains.to_numpy(), color=color(0), **words)
        here = chosen.loc[chosen["variable"] == name, x].to_numpy(dtype=float)
        near = 1e-4 * (float(np.ptp(gains.index)) or 1.0)  # times searched one by one differ in their last digits
        _, first, counts = np.unique(np.round(here / near), return_index=True, return_counts=True)
        times = here[first]
        if len(times):  # an empty line without a clip would widen the panel to the figure's corner
            ax.plot(times, np.zeros(len(times)), "^", color=color(1), markersize=8, clip_on=False, label="chosen")
        for t, n in zip(times, counts, strict=True):
            if n > 1:
                ax.annotate(f"{n} x", (t, 0), textcoords="offset points", xytext=(0, 8), ha="center", fontsize=8)

    return each_panel(names, draw, axes, x=x, y="gain by a reading")
