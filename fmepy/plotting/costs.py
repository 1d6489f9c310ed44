"""Pictures of costs: the weighted residuals of a `ModCost`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fmepy.plotting.axes import add_legend, get_ax, picture
from fmepy.plotting.entities import draw_by_entity
from fmepy.plotting.observations import draw_marked

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fmepy.costs.modcost import ModCost

_MARKERS = "osD^vPX*<>"


@picture
def plot_residuals(cost: ModCost, *, ax: Axes | None = None, **kwargs: Any) -> Axes:
    """Draw weighted residuals against x, one symbol and colour per variable, or per entity; return the Axes.

    Parameters
    ----------
    cost : ModCost
        What to draw.
    ax : Axes, optional
        Where to draw; the default is a new figure.
    **kwargs
        Settings of all pictures (`fmepy.plotting.axes.picture`); anything else goes to ``Axes.plot``.
    """
    ax = get_ax(ax)
    table, names = cost.residuals, cost.var["name"].repeat(cost.var["N"].tolist()).to_numpy()
    for k, name in enumerate(dict.fromkeys(names)):
        mine = table[names == name]
        if "entity" in table and mine["entity"].notna().all():
            draw_by_entity(ax, mine, "res", **({} if k == 0 else {"marker": _MARKERS[k], "label": None}), **kwargs)
            continue
        style = {"linestyle": "none", "marker": _MARKERS[k % len(_MARKERS)], "color": f"C{k % 10}", "label": name}
        draw_marked(ax, mine["x"], mine["res"], mine.get("censored"), **(style | kwargs))
    ax.axhline(0.0, color="0.6", linewidth=0.8, zorder=0)
    ax.set(xlabel=cost.x_name, ylabel="weighted residuals")
    add_legend(ax)
    return ax
