"""Pictures of profile likelihoods and of cost landscapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from fmepy.parameters.selection import chosen
from fmepy.plotting.axes import WARNING, color, each_panel, get_ax, line_look, picture, set_axes
from fmepy.types import Axes, AxesArray

_HEAD = 5  # columns of the frame before the parameters
_HEIGHT = 1.7  # of a panel, in thresholds
_TICKS = 6
_WIDE = 1e3  # times the estimate: a profile that goes further is drawn on a logarithmic axis


@picture
def plot_profile(profile: Any, which: Any = None, *, paths: bool = False, axes: Any = None, **kwargs: Any) -> AxesArray:
    """Draw one panel a parameter: the profile, its threshold and ends, the quadratic approximation; return the Axes.

    Parameters
    ----------
    profile : Profile
    which : name, position, or several of them, optional
        What was profiled; the default is all of it.
    paths : bool
        True: draw how the other parameters follow instead, relative to their estimates.
    axes : array of Axes, optional
    **kwargs
        Settings of all pictures (`fmepy.plotting.axes.picture`); the rest goes to the profile's ``Axes.plot``.
    """

    def draw(ax: Axes, name: str) -> None:
        rows = profile.frame[profile.frame["parameter"] == name]
        (_draw_paths if paths else _draw_profile)(profile, name, rows, ax, kwargs)
        _scale(ax, rows["value"].to_numpy(), _interval(profile, name)[0])

    wanted = chosen(which, [str(n) for n in profile.intervals.index])
    return each_panel(wanted, draw, axes, y="relative to the estimate" if paths else "likelihood ratio statistic")


def _draw_profile(profile: Any, name: str, rows: pd.DataFrame, ax: Axes, kwargs: dict[str, Any]) -> None:
    value, ratio, top = rows["value"].to_numpy(), rows["ratio"].to_numpy(), profile.threshold**2
    estimate, *ends = _interval(profile, name)
    ax.axhline(top, color="0.4", linewidth=0.8, linestyle="--", label=f"{100 * profile.level:g} % threshold")
    se = float(profile.standard_error.to_dict()[name])
    if np.isfinite(se) and se > 0 and len(value) > 1:
        fine = np.linspace(value.min(), value.max(), 201)
        ax.plot(fine, ((fine - estimate) / se) ** 2, color="0.6", linewidth=1.0, label="quadratic approximation")
    look = {"color": color(0), "marker": ".", "markersize": 4, "label": "profile", **kwargs}
    ax.plot(value, ratio, **look)
    ax.plot(estimate, 0.0, "o", color="0.2", markersize=5, label="estimate")
    inside = [end for end in ends if value.min() <= end <= value.max()]
    if inside:
        ax.vlines(inside, 0.0, top, color=WARNING, linewidth=1.0, label="interval")
    ax.set_ylim(-0.03 * top, _HEIGHT * top)


def _draw_paths(profile: Any, name: str, rows: pd.DataFrame, ax: Axes, kwargs: dict[str, Any]) -> None:
    value, all_positive = rows["value"].to_numpy(), True
    estimate, *ends = _interval(profile, name)
    others = [c for c in profile.frame.columns[_HEAD:] if c != name]
    for k, other in enumerate(others):
        path = rows[other].to_numpy(dtype=float)
        at = path[np.argmin(np.abs(value - estimate))]
        path = path / at if at != 0 else path
        all_positive &= bool((path > 0).all())
        look = {**line_look(k), "marker": ".", "markersize": 3, "label": other, **kwargs}
        ax.plot(value, path, **look)
    for end in ends:
        if np.isfinite(end):
            ax.axvline(end, color="0.6", linewidth=0.8)
    if all_positive and others and ax.get_ylim()[1] > _WIDE:
        ax.set_yscale("log")


def _interval(profile: Any, name: str) -> list[float]:
    """Return estimate, lower and upper end."""
    return list(map(float, profile.intervals.loc[name, ["estimate", "lower", "upper"]].to_numpy()))


def _scale(ax: Axes, values: Any, estimate: float) -> None:
    """Use a logarithmic axis where a profile goes over decades."""
    size = abs(estimate)
    if size == 0 or np.abs(values).max() < _WIDE * size:
        return
    if (values >= 0).all():  # zero itself, a bound, falls off
        ax.set_xscale("log")
        return
    ax.set_xscale("symlog", linthresh=size)
    locator = ax.xaxis.get_major_locator()
    locator.set_params(numticks=_TICKS)  # type: ignore[call-arg]    # of matplotlib's SymmetricalLogLocator


@picture
def plot_landscape(landscape: Any, *, ax: Axes | None = None, **kwargs: Any) -> Axes:
    """Draw the cost over one parameter as a line, over two as contours, with its minima; return the Axes.

    Parameters
    ----------
    landscape : Landscape
    ax : Axes, optional
    **kwargs
        Settings of all pictures (`fmepy.plotting.axes.picture`); the rest goes to the line, or to the contours.
    """
    ax = get_ax(ax)
    names, cost = landscape.parameters, landscape.frame["cost"].to_numpy()
    axes = [landscape.frame[n].unique() for n in names]
    if len(names) == 1:
        ax.plot(axes[0], cost, **{"color": color(0), "label": landscape.measure, **kwargs})
        marks = [landscape.minima[names[0]].to_numpy(), landscape.minima["cost"].to_numpy()]
        set_axes(ax, names[0], landscape.measure)
    else:
        _draw_contours(landscape, axes, cost.reshape([len(a) for a in axes]), ax, kwargs)
        marks = [landscape.minima[n].to_numpy() for n in names]
        set_axes(ax, names[0], names[1])
    if landscape.optimised:
        ax.set_title("the others fitted again")
    if len(landscape.minima):
        ax.plot(*marks, "o", color=WARNING, markersize=6, label="minimum" if len(landscape.minima) == 1 else "minima")
    if landscape.estimate is not None:
        here = [float(v) for v in landscape.estimate]
        if len(names) == 1:
            ax.axvline(here[0], color="0.5", linewidth=0.8, linestyle="--", label="estimate of the fit")
        else:
            ax.plot(*here, "+", color="k", markersize=9, label="estimate of the fit")
    return ax


def _draw_contours(landscape: Any, axes: list[Any], cost: Any, ax: Axes, kwargs: dict[str, Any]) -> None:
    """Draw contours close to each other near the lowest cost, in equal steps of the logarithm of the rise above it."""
    low, high = np.nanmin(cost), np.nanmax(cost)
    rise = max(high - low, 1e-300)
    levels = low + rise * np.r_[0.0, np.geomspace(1e-3, 1.0, 13)]
    look = {"levels": np.unique(levels), "cmap": "viridis_r", **kwargs}
    from matplotlib.colors import BoundaryNorm

    from fmepy.plotting.ticks import PlainNumbers

    norm = BoundaryNorm(np.asarray(look["levels"]), 256) if "norm" not in look else look.pop("norm")
    filled = ax.contourf(axes[0], axes[1], np.ma.masked_invalid(cost).T, norm=norm, **look)
    figure = ax.figure.figure
    assert figure is not None, "axes stand in a figure"
    figure.colorbar(filled, ax=ax, label=landscape.measure, format=PlainNumbers())
