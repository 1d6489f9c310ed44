"""The picture of scenarios: one panel a variable, one line with its band a scenario."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from fmepy.parameters.selection import chosen
from fmepy.plotting.axes import add_legend, get_axes, picture, set_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fmepy.montecarlo.scenarios import ScenarioSummary
    from fmepy.plotting.axes import AxesArray

Which = str | int | Sequence[str | int] | None
_LINES = ("-", "--", ":", "-.")  # one after the other where there are more scenarios than colours


@picture
def plot_scenarios(
    summary: ScenarioSummary, *, which: Which = None, axes: Axes | Iterable[Axes] | None = None, **kwargs: Any
) -> AxesArray:
    """Draw the median of every scenario with its 5 to 95 % band, one panel a variable; return the Axes.

    For a single x a dot with its range, one below the other.

    Parameters
    ----------
    summary : ScenarioSummary
    which : names or positions from 0, optional
    axes : Axes or array of Axes, optional
    **kwargs
        Settings of all pictures (`fmepy.plotting.axes.picture`); the rest for the lines.
    """
    frame = summary.frame
    names = chosen(which, [str(v) for v in frame["var"].unique()])
    scenarios = list(frame["scenario"].unique())
    panels = get_axes(len(names), axes)
    single = frame["x"].nunique() == 1
    for ax, name in zip(panels, names, strict=True):
        rows = frame[frame["var"] == name]
        label = name if summary.base is None else f"{name}, difference to {summary.base!r}"
        if summary.base is not None:
            (ax.axvline if single else ax.axhline)(0.0, color="0.6", linewidth=0.8, zorder=1)
        if single:
            _dots(ax, rows, scenarios, kwargs)
            ax.set_xlabel(label)
            continue
        for scenario in scenarios:
            _line(ax, rows[rows["scenario"] == scenario], summary.order.index(scenario), scenario, kwargs)
        set_axes(ax, summary.x_name, label)
    if not single:
        add_legend(panels[0], title="median, 5 to 95 %" if frame["N"].max() > 1 else None)
    return panels


def _line(ax: Axes, rows: pd.DataFrame, i: int, scenario: Any, kwargs: Mapping[str, Any]) -> None:
    x, color = rows["x"].to_numpy(), f"C{i % 10}"
    if rows["N"].max() > 1:
        ax.fill_between(x, rows["q05"], rows["q95"], color=color, alpha=0.15, linewidth=0, zorder=1)
    look = {"color": color, "linestyle": _LINES[i // 10 % len(_LINES)], "label": str(scenario), "zorder": 3}
    ax.plot(x, rows["q50"].to_numpy(), **{**look, **kwargs})


def _dots(ax: Axes, rows: pd.DataFrame, scenarios: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Draw one dot a scenario with its range, the first on top."""
    at = range(len(scenarios))
    if rows["N"].max() > 1:
        ax.hlines(at, rows["q05"], rows["q95"], color="C0", alpha=0.5, linewidth=4)
    ax.plot(rows["q50"].to_numpy(), list(at), **{"color": "C0", "marker": "o", "linestyle": "none", **kwargs})
    ax.set_yticks(list(at), [str(s) for s in scenarios])
    ax.set_ylim(len(scenarios) - 0.5, -0.5)
