"""Pictures of several starts: the values that they came to, and the parameters, coloured by optimum."""

from __future__ import annotations

from typing import Any

import numpy as np

from fmepy.plotting.axes import color, get_ax, name_columns, picture, set_axes
from fmepy.types import Axes, IntVector, Matrix, Vector

_FLOOR = 1e-3  # in -2 log L: less is drawn as that
_COLOURS = 6  # optima with a colour of their own
_NOWHERE: dict[str, Any] = {"marker": "x", "color": "0.55"}


@picture
def plot_waterfall(many: Any, *, ax: Any = None, **kwargs: Any) -> Axes:
    """Draw by how much each start ended above the best, in rising order, coloured by optimum; return the Axes.

    Steps are optima: many starts on the lowest one say that it was found reliably. Below the dotted line searches count
    as having reached the same value; what is less than 0.001 above the best is drawn there.

    Parameters
    ----------
    many : MultiStart
    ax : Axes, optional
    **kwargs
        Settings of all pictures (`fmepy.plotting.axes.picture`); the rest goes to the points' ``Axes.plot``.
    """
    panel = get_ax(ax)
    above = many.above.to_numpy(dtype=float)
    order = np.argsort(above, kind="stable")[: np.count_nonzero(np.isfinite(above))]
    rank, height = np.arange(1, order.size + 1), np.maximum(above[order], _FLOOR)
    panel.plot(rank, height, color="0.8", linewidth=1, zorder=1)
    panel.axhline(many.same, color="0.6", linewidth=0.8, linestyle=":")
    for label, members, style in _groups(many, many.starts["optimum"].to_numpy()[order]):
        look = {"linestyle": "none", "markersize": 5, **style, "label": label, **kwargs}
        panel.plot(rank[members], height[members], **look)
    panel.set_yscale("log")
    panel.set_ylim(bottom=0.6 * _FLOOR)
    set_axes(panel, "start, in order of its value", "-2 log L above the best")
    return panel


@picture
def plot_parameters(many: Any, *, ax: Any = None, **kwargs: Any) -> Axes:
    """Draw the parameters that each start came to, a line a start, coloured by optimum; return the Axes.

    Every parameter has a scale of its own, with its ends written below and above: those of the box (logarithmic where
    starts were drawn so), else the lowest and highest value found.

    Parameters
    ----------
    many : MultiStart
    ax : Axes, optional
    **kwargs
        Settings of all pictures (`fmepy.plotting.axes.picture`); the rest goes to the lines' ``Axes.plot``.
    """
    panel = get_ax(ax)
    names = list(many.lower.index)
    done = np.flatnonzero(many.above.notna().to_numpy())[::-1]
    done = done[np.argsort(-many.above.to_numpy()[done], kind="stable")]  # the best last, on top
    place, low, high = _places(many, names, done)
    x = np.arange(len(names))
    for k, (label, members, style) in enumerate(_groups(many, many.starts["optimum"].to_numpy()[done])):
        look = {**style, "markersize": 4, "linewidth": 0.8, "alpha": 0.8, "zorder": 3 - 0.01 * k, **kwargs}
        for m, i in enumerate(members):
            panel.plot(x, place[i], **look, label=label if m == 0 else None)
    for j, (a, b) in enumerate(zip(low, high, strict=True)):
        text: dict[str, Any] = {"ha": "center", "fontsize": "x-small", "color": "0.35", "annotation_clip": False}
        digits = next((n for n in range(3, 10) if f"{a:.{n}g}" != f"{b:.{n}g}"), 3)  # by which the ends differ
        panel.annotate(f"{a:.{digits}g}", (j, 0), (0, -4), textcoords="offset points", va="top", **text)
        panel.annotate(f"{b:.{digits}g}", (j, 1), (0, 4), textcoords="offset points", va="bottom", **text)
    name_columns(panel, [f"{name} (log)" if many.scales[name] == "log" else name for name in names])
    panel.set_ylim(-0.12, 1.12)
    panel.set_yticks([])
    panel.set_ylabel("between the ends of its range")
    return panel


def _places(many: Any, names: list[str], done: IntVector) -> tuple[Matrix, Vector, Vector]:
    """Return the place of each value between 0 and 1, and the ends of the scales."""
    values = many.starts.loc[done, names].to_numpy(dtype=float)
    low, high = many.lower.to_numpy(dtype=float), many.upper.to_numpy(dtype=float)
    boxed = np.isfinite(low) & np.isfinite(high)
    low, high = np.where(boxed, low, values.min(axis=0)), np.where(boxed, high, values.max(axis=0))
    log = np.array([many.scales[name] == "log" for name in names])

    def scaled(v: Any) -> Any:
        return np.where(log, np.log(np.where(log, v, 1.0)), v)

    width = scaled(high) - scaled(low)
    place = np.where(width > 0, (scaled(values) - scaled(low)) / np.where(width > 0, width, 1.0), 0.5)
    return place, low, high


def _groups(many: Any, numbers: IntVector) -> list[tuple[str, IntVector, dict[str, Any]]]:
    """Return label, members and look of each coloured optimum, of the other optima, and of starts without one."""
    out: list[tuple[str, IntVector, dict[str, Any]]] = []
    for k in range(1, min(int(numbers.max(initial=0)), _COLOURS) + 1):
        members = np.flatnonzero(numbers == k)
        label = f"optimum {k} ({many.optima['value'][k - 1]:.5g}): {members.size}"
        out.append((label, members, {"marker": "o", "color": color(k - 1)}))
    others, nowhere = np.flatnonzero(numbers > _COLOURS), np.flatnonzero(numbers == 0)
    if others.size:
        out.append((f"other optima: {others.size}", others, {"marker": "o", "color": color(_COLOURS)}))
    if nowhere.size:
        out.append((f"not converged: {nowhere.size}", nowhere, dict(_NOWHERE)))
    return out
