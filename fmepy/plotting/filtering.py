"""Pictures of a filter's result: states with bands and data, innovations and their tests, forecasts, screening."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fmepy.checks import between_0_and_1
from fmepy.errors import check_choice
from fmepy.fimlof.bands import band
from fmepy.parameters.selection import chosen
from fmepy.plotting.axes import add_legend, get_ax, get_axes, picture, set_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fmepy.fimlof.bad_data import BadData
    from fmepy.fimlof.diagnostics import Correlations, Normality, Periodogram, SumsqTest
    from fmepy.fimlof.forecasting import Forecast
    from fmepy.fimlof.result import FilterResult
    from fmepy.plotting.axes import AxesArray

_DATA: dict[str, Any] = {"color": "0.25", "marker": "o", "linestyle": "none", "markersize": 3, "zorder": 2}
_RING: dict[str, Any] = {
    "color": "C3",
    "marker": "o",
    "linestyle": "none",
    "markersize": 10,
    "fillstyle": "none",
    "zorder": 4,
}
_LIMIT: dict[str, Any] = {"color": "0.5", "linestyle": "--", "linewidth": 0.8, "zorder": 1}
_WIDE = (5.2, 3.0)
_FEW = 5
"""So many entities are named in the legend."""


@picture
def plot_states(
    flt: FilterResult,
    which: Any = None,
    kind: str = "smoothed",
    *,
    level: float = 0.95,
    axes: Any = None,
    **kwargs: Any,
) -> AxesArray:
    """Return the axes with states and outputs, their bands, the data, and what is suspected; one panel a variable.

    Parameters
    ----------
    flt : FilterResult
    which : names or positions from 0, optional
        States and outputs; by default all but states that are observed under another name.
    kind : {"smoothed", "filtered", "predicted"}
    level : float
        Coverage of the band of the state (not of a reading).
    axes : array of Axes, optional
    **kwargs
        Passed to the lines' ``Axes.plot``.

    Notes
    -----
    Between coarse times the lines and bands go through the states there, as the equations and the data say. The band of
    a state that cannot be negative is log-normal (see `fmepy.fimlof.bands`).

    Several entities are drawn as lines without bands; ``flt.of(entity).plot()`` shows one with its band.
    """
    from scipy.special import ndtri

    level = between_0_and_1(level, "level")
    check_choice(kind, ("smoothed", "filtered", "predicted"), "kind")
    fine = flt.drawn_through()  # lines between coarse times are those of the equations, not straight ones
    values, sds = getattr(fine, kind), fine.sd(kind)
    known = [str(c) for c in values.columns if c not in ("time", flt.entity_column)]
    names = chosen(which, known) if which is not None else [n for n in known if n not in flt.measured_states]
    panels = get_axes(len(names), axes, panel=_WIDE, ncols=1 if len(names) == 1 else min(3, -(-len(names) // 2)))
    q = float(ndtri((1 + level) / 2))
    several = len(flt.entities) > 1
    data, shocks = flt.data_as_given, flt.shocks
    for ax, name in zip(panels, names, strict=True):
        seen = data[data["name"].isin([name, flt.measured_states.get(name)])]
        for i, label in enumerate(flt.entities):
            mine = flt.rows_of(values, label)
            x, y = mine["time"].to_numpy(), mine[name].to_numpy()
            own = flt.rows_of(seen, label)
            color = f"C{i % 10}" if several else "C0"
            if several:
                ax.plot(own["x"], own["obs"], **{**_DATA, "color": color, "markersize": 1.5, "alpha": 0.5})
                told = f"{flt.entity_column} {label}" if ax is panels[0] and len(flt.entities) <= _FEW else None
                ax.plot(x, y, **{"color": color, "linewidth": 0.9, "label": told, **kwargs})
                continue
            sd = flt.rows_of(sds, label)[name].to_numpy()
            lower, upper = band(y, sd, q, name in flt.positive)
            ax.fill_between(x, lower, upper, color=color, alpha=0.25, linewidth=0, zorder=1,
                            label=f"{level:.0%} band of the state")  # fmt: skip
            ax.plot(x, y, **{"color": color, "label": kind, "zorder": 3, "linewidth": 1.2, **kwargs})
            ax.plot(own["x"], own["obs"], **{**_DATA, "label": "data" if len(own) else None})
        flagged = seen[seen["flag"].astype(bool)]
        if len(flagged):
            ax.plot(flagged["x"], flagged["obs"], **{**_RING, "label": "suspected"})
        jumps = shocks[shocks["flag"] & (shocks["state"] == name)]
        for k, t in enumerate(jumps["time"].unique()):
            ax.axvline(t, color="C1", linestyle=":", linewidth=1.2, zorder=1, label="jump" if k == 0 else None)
        set_axes(ax, flt.xlabel, name)
        add_legend(ax)
    return panels


@picture
def plot_innovations(flt: FilterResult, which: Any = None, *, axes: Any = None, **kwargs: Any) -> AxesArray:
    """Return the axes with standardised innovations over time, limits at 2 sd and at the threshold."""
    names = chosen(which, flt.variables)
    panels = get_axes(len(names), axes, panel=_WIDE, ncols=1 if len(names) == 1 else min(3, -(-len(names) // 2)))
    table, several = flt.residuals, len(flt.entities) > 1
    for ax, name in zip(panels, names, strict=True):
        mine = table[table["name"] == name]
        ax.axhline(0.0, color="0.6", linewidth=0.8)
        for k, (limit, dashes) in enumerate(((2.0, "--"), (flt.threshold, ":"))):
            for sign in (-1, 1):
                label = ("2 sd" if k == 0 else f"{limit:g} sd") if sign > 0 else None
                ax.axhline(sign * limit, **{**_LIMIT, "linestyle": dashes, "label": label})
        size = 2 if several else 3.5
        style = {"marker": "o", "linestyle": "none", "markersize": size, "alpha": 0.5 if several else 1.0}
        ax.plot(mine["x"], mine["standardized"], **{**style, **kwargs})
        flagged = mine[mine["flag"].astype(bool)]
        if len(flagged):
            ax.plot(flagged["x"], flagged["standardized"], **{**_RING, "label": "suspected"})
        set_axes(ax, flt.xlabel, f"{name}: innovation / sd")
        add_legend(ax)
    return panels


@picture
def plot_correlations(correlations: Correlations, which: Any = None, *, axes: Any = None, **kwargs: Any) -> AxesArray:
    """Return the axes with serial correlations as stems, those with the other variables as dots, limits at 2 sd."""
    names = chosen(which, correlations.variables)
    panels = get_axes(len(names), axes)
    values, limits = correlations.values, correlations.limits
    lags = np.arange(len(values))
    for ax, name in zip(panels, names, strict=True):
        i = correlations.variables.index(name)
        others = [k for k in range(len(correlations.variables)) if k != i]
        limit = limits[1:, i, i]
        ax.fill_between(lags[1:], -limit, limit, color="0.5", alpha=0.2, linewidth=0, label="2 sd", zorder=0)
        ax.axhline(0.0, color="0.6", linewidth=0.8)
        for n, k in enumerate(others):  # lag j: this variable, and the other j samples later
            ax.plot(lags[1:], values[1:, i, k], ".", color="0.6", markersize=4, zorder=2,
                    label="with the others, later" if n == 0 else None)  # fmt: skip
        color = kwargs.get("color", "C0")
        ax.vlines(lags[1:], 0, values[1:, i, i], color=color, linewidth=1.5, zorder=3)
        ax.plot(lags[1:], values[1:, i, i], **{"color": color, "marker": "o", "linestyle": "none", "markersize": 4,
                                               "zorder": 4, "label": "with itself", **kwargs})  # fmt: skip
        set_axes(ax, "lag (samples)", f"{name}: correlation")
        _integer_ticks(ax)
        add_legend(ax)
    return panels


def _integer_ticks(ax: Axes) -> None:
    from matplotlib.ticker import MaxNLocator

    ax.xaxis.set_major_locator(MaxNLocator(integer=True))


@picture
def plot_sumsq(test: SumsqTest, *, ax: Axes | None = None, **kwargs: Any) -> Axes:
    """Return the axes with the growing sum of squares minus its expectation: where it leaves the limits, look."""
    ax = get_ax(ax, figsize=_WIDE)
    n = np.arange(1, len(test.squares) + 1)
    ax.axhline(0.0, color="0.6", linewidth=0.8)
    ax.plot(n, 2 * np.sqrt(2 * n), **{**_LIMIT, "label": "2 sd"})
    ax.plot(n, -2 * np.sqrt(2 * n), **_LIMIT)
    ax.plot(n, np.cumsum(test.squares) - n, **{"color": "C0", "label": "sum of squares - data", **kwargs})
    set_axes(ax, "data, in order", "excess of SUMSQ")
    add_legend(ax)
    return ax


@picture
def plot_normality(normality: Normality, which: Any = None, *, axes: Any = None, **kwargs: Any) -> AxesArray:
    """Return the axes with quantiles of the whitened innovations against those of the normal."""
    from scipy.special import ndtri

    names = chosen(which, list(normality.values))
    panels = get_axes(len(names), axes, panel=(3.6, 3.2))
    for ax, name in zip(panels, names, strict=True):
        values = np.sort(normality.values[name])
        expected = ndtri((np.arange(1, len(values) + 1) - 0.375) / (len(values) + 0.25))
        ends = [min(expected.min(initial=-2), -2), max(expected.max(initial=2), 2)]
        ax.plot(ends, ends, color="0.6", linewidth=0.8)
        ax.plot(expected, values, **{"marker": "o", "linestyle": "none", "markersize": 3, **kwargs})
        p = float(normality.frame["p"][name])
        ax.set_title(f"p = {p:.3g}", fontsize="small", loc="left")
        set_axes(ax, "normal quantile", f"{name}: whitened innovation")
    return panels


@picture
def plot_periodogram(periodogram: Periodogram, which: Any = None, *, axes: Any = None, **kwargs: Any) -> AxesArray:
    """Return the axes with cumulative periodograms and their 5 % limits."""
    names = chosen(which, list(periodogram.summary.index))
    panels = get_axes(len(names), axes, panel=(3.6, 3.2))
    for ax, name in zip(panels, names, strict=True):
        mine = periodogram.frame[periodogram.frame["variable"] == name]
        f, limit = mine["frequency"].to_numpy(), float(periodogram.summary["limit"][name])
        if len(f):
            line = np.arange(1, len(f) + 1) / len(f)
            ax.plot(f, line + limit, **{**_LIMIT, "label": "5 % limits"})
            ax.plot(f, line - limit, **_LIMIT)
            ax.step(f, mine["cumulative"], where="post", **{"color": "C0", **kwargs})
        ax.set_ylim(-0.02, 1.02)
        set_axes(ax, "frequency (per unit of time)", f"{name}: share of variance")
        add_legend(ax)
    return panels


@picture
def plot_diagnostics(flt: FilterResult, which: Any = None, *, axes: Any = None, **kwargs: Any) -> AxesArray:
    """Return the axes with innovations, correlations, quantiles and periodogram, one row a variable."""
    names = chosen(which, flt.variables)
    panels = get_axes(4 * len(names), axes, ncols=4, panel=(3.6, 2.8))
    correlations, normality, periodogram = flt.correlations(), flt.normality(), flt.periodogram()
    for i, name in enumerate(names):
        row = panels[4 * i : 4 * i + 4]
        plot_innovations(flt, name, axes=row[:1], **kwargs)
        plot_correlations(correlations, name, axes=row[1:2], **kwargs)
        plot_normality(normality, name, axes=row[2:3], **kwargs)
        plot_periodogram(periodogram, name, axes=row[3:], **kwargs)
    return panels


@picture
def plot_forecast(
    forecast: Forecast, which: Any = None, *, past: int = 40, axes: Any = None, **kwargs: Any
) -> AxesArray:
    """Return the axes with the end of the data and the fans of the forecast, one panel a variable.

    Parameters
    ----------
    forecast : Forecast
    which : names or positions from 0, optional
        By default what is observed, or all if nothing is.
    past : int
        So many times before the end of the data are shown.
    axes : array of Axes, optional
    **kwargs
        Passed to the line's ``Axes.plot``.
    """
    frame, entity = forecast.frame, forecast.entity
    known = [str(n) for n in frame["name"].unique()]
    observed = [n for n in known if frame.loc[frame["name"] == n, "reading_sd"].notna().any()]
    names = chosen(which, known) if which is not None else observed or known
    labels = list(frame[entity].unique()) if entity is not None else [None]
    panels = get_axes(len(names) * len(labels), axes, panel=_WIDE)
    pairs = [(name, label) for label in labels for name in names]
    for ax, (name, label) in zip(panels, pairs, strict=True):
        ahead, before, line, data = (
            t if entity is None else t[t[entity] == label]
            for t in (frame, forecast.smoothed, forecast.line, forecast.past)
        )
        first = before["time"].iloc[-past:].iloc[0]
        ahead, before = ahead[ahead["name"] == name], line[line["time"] >= first]
        data = data[(data["name"] == name) & (data["x"] >= first)]
        end = before.iloc[-1]
        if ahead["mean"].isna().any() or name not in before.columns:
            _sums_ahead(ax, ahead[ahead["mean"].notna()], forecast.level, **kwargs)
        else:
            _fan(ax, before, end, ahead, name, forecast.level, **kwargs)
        ax.plot(data["x"], data["obs"], **{**_DATA, "label": "data" if len(data) else None})
        ax.axvline(end["time"], color="0.7", linewidth=0.8, zorder=0)
        set_axes(ax, forecast.xlabel, name if label is None else f"{name}, {entity} {label}")
        add_legend(ax)
    return panels


def _fan(ax: Axes, before: Any, end: Any, ahead: Any, name: str, level: float, **kwargs: Any) -> None:
    """Draw a variable until the end of the data, its forecast and both bands."""
    t = np.concatenate([[end["time"]], ahead["time"]])
    (line,) = ax.plot(before["time"], before[name], **{"color": "C0", "linewidth": 1.2, **kwargs})
    color = line.get_color()
    ax.plot(t, np.concatenate([[end[name]], ahead["mean"]]), color=color, linestyle="--", linewidth=1.2)
    if ahead["reading_sd"].notna().any():
        ax.fill_between(ahead["time"], ahead["reading_lower"], ahead["reading_upper"], color="0.5", alpha=0.25,
                        linewidth=0, label=f"{level:.0%} band of a reading")  # fmt: skip
    ax.fill_between(ahead["time"], ahead["lower"], ahead["upper"], color=color, alpha=0.35, linewidth=0,
                    label=f"{level:.0%} of the state")  # fmt: skip


def _sums_ahead(ax: Axes, ahead: Any, level: float, **kwargs: Any) -> None:
    """Draw forecasts of sums, which have values at some times only, as points with bars."""
    style = {"color": "C0", "linestyle": "none", **kwargs}
    for lower, upper, width, label in (
        ("reading_lower", "reading_upper", 1.0, f"{level:.0%} of a reading"),
        ("lower", "upper", 3.0, f"{level:.0%} of the sum"),
    ):
        bars = [ahead["mean"] - ahead[lower], ahead[upper] - ahead["mean"]]
        ax.errorbar(ahead["time"], ahead["mean"], yerr=bars, **{**style, "elinewidth": width, "label": label})
    ax.plot(ahead["time"], ahead["mean"], **{**style, "marker": "o", "markersize": 4})


@picture
def plot_screening(screened: BadData, *, ax: Axes | None = None, **kwargs: Any) -> Axes:
    """Return the axes with what a screening found: the magnitude by round, its threshold, and what was set missing."""
    ax = get_ax(ax, figsize=(7.0, max(2.4, 0.3 * len(screened.log) + 1.6)))
    log = screened.log
    if not len(log):
        ax.text(0.5, 0.5, "nothing beyond the threshold", ha="center", va="center", transform=ax.transAxes)
        ax.set_axis_off()
        return ax
    place = np.arange(len(log))[::-1]
    removed = log["action"].eq("set missing").to_numpy()
    size = log["magnitude"].abs().to_numpy()
    for mask, color, label in ((removed, "C3", "datum, set missing"), (~removed, "C1", "reported only")):
        if mask.any():
            ax.barh(place[mask], size[mask], color=color, label=label, **{"height": 0.65, **kwargs})
    ax.axvline(screened.threshold, **{**_LIMIT, "label": f"threshold {screened.threshold:g}"})
    ax.set_yticks(place, _entries(log, screened.entity))
    ax.set_xlabel("magnitude (sd)")
    add_legend(ax)
    return ax


def _entries(log: pd.DataFrame, entity: str | None) -> Sequence[str]:
    of = ["" if entity is None else f"{entity} {e}, " for e in (log[entity] if entity is not None else log["name"])]
    return [f"{w}{n} at {t:g}" for w, n, t in zip(of, log["name"], log["time"], strict=True)]
