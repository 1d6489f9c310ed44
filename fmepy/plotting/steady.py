"""Pictures of steady states: profiles, x downwards; states as points."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fmepy.errors import ArgumentError
from fmepy.plotting.axes import get_axes, picture, set_axes
from fmepy.plotting.models import plot_model

if TYPE_CHECKING:
    from fmepy.models.steady_state import SteadyState
    from fmepy.plotting.axes import AxesArray


@picture
def plot_steady(
    result: SteadyState, x: Any = None, *, xyswap: bool = True, axes: Any = None, **kwargs: Any
) -> AxesArray:
    """Return the axes on which a steady state is drawn; see `SteadyState.plot`."""
    if result.n_species is None:
        if x is not None:
            raise ArgumentError("`x` is for profiles; these states have no place.")
        return _points(result, axes, kwargs)
    species = {name: f"species {name}" for name in result.frame.columns if name.isdigit()}
    table = result.frame.rename(columns=species)
    if x is not None:
        name, places = next(iter(x.items())) if isinstance(x, Mapping) else ("x", x)
        places = np.asarray(places, dtype=float)
        if places.shape != (len(table),):
            raise ArgumentError(f"`x` has the shape {places.shape}; one place for each of the {len(table)} cells is "
                                "needed.")  # fmt: skip
        table = table.rename(columns={"cell": name}).assign(**{name: places})
    return plot_model(table, xyswap=xyswap, axes=axes, **kwargs)


def _points(result: SteadyState, axes: Any, kwargs: dict[str, Any]) -> AxesArray:
    panels = get_axes(1, axes)
    frame, ax = result.frame, panels[0]
    places = np.arange(len(frame))
    ax.plot(places, frame["state"].to_numpy(), **{"linestyle": "", "marker": "o", **kwargs})
    if len(frame) <= 12:
        ax.set_xticks(places, [str(k) for k in frame.index])
        ax.set_xlim(-0.5, len(frame) - 0.5)
    set_axes(ax, "", "steady state", False)
    return panels
