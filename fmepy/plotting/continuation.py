"""Pictures of branches of steady states."""

from __future__ import annotations

from typing import Any

import numpy as np

from fmepy.parameters.selection import chosen
from fmepy.plotting.axes import color, each_panel, picture
from fmepy.types import AxesArray

_KINDS = ("stable", "unstable", "neutral")
"""Of small disturbances, by whether they die away, grow, or neither."""


@picture
def plot_branch(branch: Any, which: Any = None, *, axes: Any = None, **words: Any) -> AxesArray:
    """Draw states over the parameter, a panel each: stable parts solid, others dashed or dotted, folds as marks.

    Parameters
    ----------
    branch : Branch
    which : names or positions, optional
        States; by default six, evenly among all.
    axes : Axes or array of them, optional
    **words
        Keywords of every picture, and of matplotlib's lines.
    """
    p, frame = branch.parameter, branch.frame
    names = [c for c in frame.columns if c not in (p, "stable", "eigenvalue")]
    kinds = np.select([frame["stable"].eq(True), frame["stable"].eq(False)], [0, 1], 2)
    parts = np.split(np.arange(len(frame)), np.flatnonzero(np.diff(kinds)) + 1)

    def draw(ax: Any, name: str) -> None:
        x, y, labels = frame[p].to_numpy(float), frame[name].to_numpy(float), dict(enumerate(_KINDS))
        for part in parts:
            rows = np.append(part, part[-1] + 1) if part[-1] + 1 < len(frame) else part  # up to where the next begins
            kind = int(kinds[part[0]])
            look = {"linestyle": ("-", "--", ":")[kind], "color": color(kind), "label": labels.pop(kind, None)}
            ax.plot(x[rows], y[rows], **look | words)
        if len(branch.folds):
            ax.plot(branch.folds[p], branch.folds[name], "o", color="0.2", markersize=5, label="fold")

    spread = [names[i] for i in np.linspace(0, len(names) - 1, min(len(names), 6)).astype(int)]
    return each_panel(chosen(which, names) if which is not None else spread, draw, axes, x=p)
