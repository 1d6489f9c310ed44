"""Pictures of a system of modules: modules as boxes, the variables that link them as arrows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fmepy.plotting.axes import color, first_names, get_ax, picture
from fmepy.types import Axes

if TYPE_CHECKING:
    from matplotlib.text import Text

_MOST_LEVEL = 10
"""Up to so many modules stand level; more stand outwards from the circle, like rays."""
_MOST_NAMED, _MOST_NUMBERED = 24, 60
"""Up to so many arrows bear the names of their variables, or how many these are."""
_MOST_NAMES = 3
_INWARDS, _APART = 0.4, 0.12
"""How far arrows bend towards the middle, and away from those that lead back."""


@picture
def plot_map(system: Any, *, ax: Axes | None = None, **kwargs: Any) -> Axes:
    """Return the Axes on which modules are boxes and the variables that link them arrows.

    An arrow leads from the module that gives a variable its value to one that reads it; it bears the names of the
    variables, or in a large system their number, and is the wider the more they are. Modules that share much stand
    side by side. The second line of a box says how many variables of the module come from the data base.

    Parameters
    ----------
    system : ModuleSystem
        The modules put together.
    ax : Axes, optional
        Where to draw; by default a new figure.
    **kwargs
        Keywords of every picture, and of matplotlib's FancyArrowPatch for the arrows.
    """
    links = system.links
    names = _in_circle([m.name for m in system.modules], links)
    small = len(names) <= _MOST_LEVEL
    ax = get_ax(ax, figsize=(7.0, 6.0) if small else (10.0, 10.0))
    angles = 90 - 360 * np.arange(len(names)) / len(names)
    places = {n: _on_circle(a) if len(names) > 1 else np.zeros(2) for n, a in zip(names, angles, strict=True)}
    colors = {m.name: color(i) for i, m in enumerate(system.modules)}
    size = min(8.0, 1000 / len(names))  # what fits side by side on the circle
    from_data = _from_data(system)
    boxes = {
        n: _box(ax, n, places[n], colors[n], from_data[n], size, None if small else a)
        for n, a in zip(names, angles, strict=True)
    }
    for (a, b), variables in links.items():
        bend = _bend(places[a], places[b])
        style = {"color": colors[a], "linewidth": 1 + 0.5 * min(len(variables) - 1, 6), "alpha": 0.8, **kwargs}
        patches = {"patchA": boxes[a].get_bbox_patch(), "patchB": boxes[b].get_bbox_patch()} if small else {}
        ax.annotate(
            "", (places[b][0], places[b][1]), (places[a][0], places[a][1]), zorder=4,
            arrowprops={
                "arrowstyle": "-|>", "mutation_scale": 14 if small else 9, "connectionstyle": f"arc3,rad={bend}",
                "shrinkA": 3, "shrinkB": 3, **patches, **style,
            },
        )  # fmt: skip
        if len(links) <= _MOST_NUMBERED:
            text = first_names(variables, "\n", _MOST_NAMES) if len(links) <= _MOST_NAMED else str(len(variables))
            _write(ax, text, places[a], places[b], bend, colors[a])
    caption = "arrows: variables that one module computes and another reads"
    if _MOST_NAMED < len(links) <= _MOST_NUMBERED:
        caption += "; numbers: how many"
    ax.text(0.5, 0, caption, ha="center", va="bottom", fontsize=8, color="0.35", transform=ax.transAxes)
    ax.set_aspect("equal")
    ax.set_xlim(*((-1.35, 1.35) if small else (-1.6, 1.6)))
    ax.set_ylim(*((min(p[1] for p in places.values()) - 0.35, 1.2) if small else (-1.65, 1.6)))
    ax.set_axis_off()
    return ax


def _on_circle(angle: float) -> NDArray[np.float64]:
    return np.array([np.cos(np.radians(angle)), np.sin(np.radians(angle))])


def _bend(start: NDArray[np.float64], end: NDArray[np.float64]) -> float:
    """Return how far an arrow bends: towards the middle of the circle, those of two directions apart."""
    along, middle = end - start, (start + end) / 2
    aside = np.array([along[1], -along[0]])
    return float(_APART - _INWARDS * (middle @ aside) / (along @ along))


def _in_circle(names: list[str], links: dict[tuple[str, str], list[str]]) -> list[str]:
    """Order the modules around the circle: next to each the one that shares most variables with it."""
    number = {n: i for i, n in enumerate(names)}
    ties = np.zeros((len(names), len(names)))
    for (a, b), variables in links.items():
        ties[number[a], number[b]] += len(variables)
    ties += ties.T
    order, rest, to_placed = [0], np.arange(1, len(names)), ties[0].copy()
    while len(rest):
        best = np.lexsort((rest, -to_placed[rest], -ties[order[-1], rest]))[0]
        order.append(int(rest[best]))
        to_placed += ties[order[-1]]
        rest = np.delete(rest, best)
    return [names[i] for i in order]


def _from_data(system: Any) -> dict[str, int]:
    """Return how many variables that each module reads come from outside, at least in part."""
    counts = dict.fromkeys((m.name for m in system.modules), 0)
    for v in system.variables.values():
        for module in v.read_in if v.exogenous else ():
            counts[module] += 1
    return counts


def _box(
    ax: Axes, name: str, place: NDArray[np.float64], color: Any, from_data: int, size: float, angle: float | None
) -> Text:
    """Write a module's box: level at its place, or outwards from it in the direction of `angle`."""
    shown = name if len(name) <= 24 else name[:23] + "…"
    box = {"boxstyle": "round,pad=0.3", "facecolor": "white", "edgecolor": color, "linewidth": min(1.5, size / 5)}
    if angle is None:
        text = f"{shown}\n{from_data} from data" if from_data else shown
        return ax.text(
            place[0], place[1], text, ha="center", va="center", bbox=box, zorder=3, fontsize=10, parse_math=False
        )
    text = f"{shown} ({from_data} from data)" if from_data else shown
    left = place[0] < -1e-9
    return ax.text(
        1.04 * place[0], 1.04 * place[1], text, ha="right" if left else "left", va="center", bbox=box, zorder=3,
        fontsize=size, rotation=angle + 180 * left, rotation_mode="anchor", parse_math=False,
    )  # fmt: skip


def _write(ax: Axes, text: str, start: NDArray[np.float64], end: NDArray[np.float64], bend: float, color: Any) -> None:
    """Write on the middle of an arrow."""
    along = end - start
    x, y = (start + end) / 2 + bend / 2 * np.array([along[1], -along[0]])
    ax.text(
        x, y, text, ha="center", va="center", fontsize=9, color=color, zorder=5, parse_math=False,
        bbox={"boxstyle": "round,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.8},
    )  # fmt: skip
