"""Pictures of costs: the weighted residuals of a `ModCost`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fmepy.plotting.axes import add_legend, get_ax, legend_location, spelled_out

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fmepy.costs.modcost import ModCost

__all__ = ["plot_residuals"]

_MARKERS = "osD^vPX*<>"
_OF_AXES = ("title", "xlabel", "xlim", "xscale", "xticks", "ylabel", "ylim", "yscale", "yticks")


@spelled_out
def plot_residuals(cost: ModCost, *, legpos: str | None = "topleft", ax: Axes | None = None, **kwargs: Any) -> Axes:
    """Draw weighted residuals against x, one symbol and colour per variable; return the Axes.

    Parameters
    ----------
    cost : ModCost
        What to draw.
    legpos : str or None
        Position of the legend, in R's words ("topleft") or matplotlib's ("upper left"); None for no legend.
    ax : Axes, optional
        Where to draw; the default is a new figure.
    **kwargs
        Labels and limits of the Axes (``xlabel``, ``title``, ``ylim``, ...); anything else goes to ``Axes.plot``.
    """
    legend_location(legpos)  # a wrong word is told before anything is drawn
    ax = get_ax(ax)
    of_axes = {"xlabel": "x", "ylabel": "weighted residuals"}
    of_axes |= {k: kwargs.pop(k) for k in _OF_AXES if k in kwargs}
    table = cost.residuals
    for k, name in enumerate(dict.fromkeys(cost.var["name"])):
        mine = table[table["name"] == name]
        style = {"linestyle": "none", "marker": _MARKERS[k % len(_MARKERS)], "color": f"C{k % 10}", "label": name}
        ax.plot(mine["x"].to_numpy(), mine["res"].to_numpy(), **(style | kwargs))
    ax.axhline(0.0, color="0.6", linewidth=0.8, zorder=0)
    ax.set(**of_axes)
    add_legend(ax, legpos)
    return ax
