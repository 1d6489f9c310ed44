"""Pictures of a filter's result: states with bands and data, innovations and their tests, forecasts, screening."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from fmepy.checks import between_0_and_1
from fmepy.errors import check_choice
from fmepy.parameters.selection import chosen
from fmepy.plotting.axes import color, each_panel, get_ax, get_axes, line_look, name_rows, picture, set_axes, zero_line
from fmepy.plotting.observations import DATA, draw_marked
from fmepy.types import Axes, AxesArray

_DATA: dict[str, Any] = {**DATA, "label": None, "zorder": 2}
_RING: dict[str, Any] = {**_DATA, "markersize": 10, "fillstyle": "none", "zorder": 4, "label": "suspected"}
_LIMIT: dict[str, Any] = {"color": "0.5", "linestyle": "--", "linewidth": 0.8, "zorder": 1}
_WIDE, _SQUARE = (5.2, 3.0), (3.6, 3.2)
_MOST_NAMED = 24  # entities that a legend can hold


@picture
def plot_states(
    flt: Any, which: Any = None, kind: str = "smoothed", *, level: float = 0.95, axes: Any = None, **kwargs: Any
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
    a state that cannot be negative is log-normal (see `fmepy.fimlof.outputs`).

    Several entities are drawn as lines without bands; ``flt.of(entity).plot()`` shows one with its band.
    """
    level = between_0_and_1(level, "level")
    check_choice(kind, ("smoothed", "filtered", "predicted"), "kind")
    fine = flt.drawn_through()  # lines between coarse times are those of the equations, not straight ones
    values, (lower, upper) = getattr(fine, kind), fine.limits(kind, level)
    known = [str(c) for c in values.columns if c not in ("time", flt.entity_column)]
    names = chosen(which, known) if which is not None else [n for n in known if n not in flt.measured_states]
    several = len(flt.entities) > 1
    data, shocks = flt.data_as_given, flt.shocks

    def draw(ax: Axes, name: str) -> None:
        seen = data[data["name"].isin([name, flt.measured_states.get(name)])]
        for i, label in enumerate(flt.entities):
            rows = flt.rows_of(values, label)
            x, y = rows["time"].to_numpy(), rows[name].to_numpy()
            own = flt.rows_of(seen, label)
            if several:
                look = {**_DATA, "color": color(i), "markersize": 1.5, "alpha": 0.5}
                draw_marked(ax, own["x"], own["obs"], own.get("censored"), **look)
                text = f"{flt.entity_column} {label}" if len(flt.entities) <= _MOST_NAMED else None
                ax.plot(x, y, **{**line_look(i), "linewidth": 0.9, "label": text, **kwargs})
                continue
            low, high = (flt.rows_of(end, label)[name] for end in (lower, upper))
            ax.fill_between(x, low, high, color=color(0), alpha=0.25, linewidth=0, zorder=1,
                            label=f"{100 * level:g} % band of the state")  # fmt: skip
            ax.plot(x, y, **{"color": color(0), "label": kind, "zorder": 3, "linewidth": 1.2, **kwargs})
            look = {**_DATA, "label": "data" if len(own) else None}
            draw_marked(ax, own["x"], own["obs"], own.get("censored"), **look)
        _draw_suspected(ax, seen, "obs")
        jumps = shocks[shocks["flag"] & (shocks["state"] == name)]
        for k, t in enumerate(jumps["time"].unique()):
            ax.axvline(t, color=color(1), linestyle=":", linewidth=1.2, zorder=1, label="jump" if k == 0 else None)

    return each_panel(names, draw, axes, x=flt.xlabel, panel=_WIDE, ncols=_columns(names))


def _columns(names: list[str]) -> int:
    return 1 if len(names) == 1 else min(3, -(-len(names) // 2))


def _draw_suspected(ax: Axes, table: pd.DataFrame, column: str) -> None:
    flagged = table[table["flag"].astype(bool)]
    if len(flagged):
        ax.plot(flagged["x"], flagged[column], **{**_RING, "color": color(3)})


@picture
def plot_innovations(flt: Any, which: Any = None, *, axes: Any = None, **kwargs: Any) -> AxesArray:
    """Return the axes with standardised innovations over time, limits at 2 sd and at the threshold."""
    names, table, several = chosen(which, flt.variables), flt.residuals, len(flt.entities) > 1

    def draw(ax: Axes, name: str) -> None:
        mine = table[table["name"] == name]
        zero_line(ax)
        for limit, dashes in ((2.0, "--"), (flt.threshold, ":")):
            for sign in (-1, 1):
                label = f"{limit:g} sd" if sign > 0 else None
                ax.axhline(sign * limit, **{**_LIMIT, "linestyle": dashes, "label": label})
        look: dict[str, Any] = {"marker": "o", "linestyle": "none", "color": color(0)}
        look |= {"markersize": 2, "alpha": 0.5} if several else {"markersize": 3.5}
        ax.plot(mine["x"], mine["standardized"], **{**look, **kwargs})
        _draw_suspected(ax, mine, "standardized")

    return each_panel(names, draw, axes, x=flt.xlabel, y="innovation / sd", panel=_WIDE, ncols=_columns(names))


@picture
def plot_correlations(correlations: Any, which: Any = None, *, axes: Any = None, **kwargs: Any) -> AxesArray:
    """Return the axes with serial correlations as stems, those with the other variables as dots, limits at 2 sd."""
    variables, values = list(correlations.variables), correlations.values
    lags = np.arange(1, len(values))

    def draw(ax: Axes, name: str) -> None:
        i = variables.index(name)
        limit = correlations.limits[1:, i, i]
        ax.fill_between(lags, -limit, limit, color="0.5", alpha=0.2, linewidth=0, label="2 sd", zorder=0)
        zero_line(ax)
        others = np.delete(np.arange(len(variables)), i)
        for n, k in enumerate(others):  # lag j: this variable, and the other j samples later
            ax.plot(lags, values[1:, i, k], ".", color="0.6", markersize=4, zorder=2,
                    label="with the others, later" if n == 0 else None)  # fmt: skip
        shade = kwargs.get("color", color(0))
        ax.vlines(lags, 0, values[1:, i, i], color=shade, linewidth=1.5, zorder=3)
        look = {"color": shade, "marker": "o", "linestyle": "none", "markersize": 4, "zorder": 4}
        ax.plot(lags, values[1:, i, i], **{**look, "label": "with itself", **kwargs})

    return each_panel(chosen(which, variables), draw, axes, x="lag (samples)", y="correlation")


@picture
def plot_sumsq(test: Any, *, ax: Axes | None = None, **kwargs: Any) -> Axes:
    """Return the axes with the growing sum of squares minus its expectation: where it leaves the limits, look."""
    ax = get_ax(ax, figsize=_WIDE)
    n = np.arange(1, len(test.squares) + 1)
    zero_line(ax)
    ax.plot(n, 2 * np.sqrt(2 * n), **{**_LIMIT, "label": "2 sd"})
    ax.plot(n, -2 * np.sqrt(2 * n), **_LIMIT)
    ax.plot(n, np.cumsum(test.squares) - n, **{"color": color(0), "label": "sum of squares - data", **kwargs})
    set_axes(ax, "data, in order", "excess of the sum of squares")
    return ax


@picture
def plot_normality(normality: Any, which: Any = None, *, axes: Any = None, **kwargs: Any) -> AxesArray:
    """Return the axes with quantiles of the whitened innovations against those of the normal."""
    from scipy.special import ndtri

    def draw(ax: Axes, name: str) -> None:
        values = np.sort(normality.values[name])
        expected = ndtri((np.arange(1, len(values) + 1) - 0.375) / (len(values) + 0.25))
        ends = [min(expected.min(initial=-2), -2), max(expected.max(initial=2), 2)]
        ax.plot(ends, ends, color="0.6", linewidth=0.8)
        look = {"color": color(0), "marker": "o", "linestyle": "none", "markersize": 3}
        ax.plot(expected, values, **{**look, **kwargs})
        p = float(normality.frame["p"][name])
        ax.text(0.03, 0.97, f"p = {p:.3g}", fontsize="small", va="top", transform=ax.transAxes)

    names = chosen(which, list(normality.values))
    return each_panel(names, draw, axes, x="normal quantile", y="whitened innovation", panel=_SQUARE)


@picture
def plot_periodogram(periodogram: Any, which: Any = None, *, axes: Any = None, **kwargs: Any) -> AxesArray:
    """Return the axes with cumulative periodograms and their 5 % limits."""

    def draw(ax: Axes, name: str) -> None:
        mine = periodogram.frame[periodogram.frame["variable"] == name]
        f, limit = mine["frequency"].to_numpy(), float(periodogram.summary["limit"][name])
        if len(f):
            line = np.arange(1, len(f) + 1) / len(f)
            ax.plot(f, line + limit, **{**_LIMIT, "label": "5 % limits"})
            ax.plot(f, line - limit, **_LIMIT)
            ax.step(f, mine["cumulative"], where="post", **{"color": color(0), **kwargs})
        ax.set_ylim(-0.02, 1.02)

    names = chosen(which, list(periodogram.summary.index))
    return each_panel(names, draw, axes, x="frequency (per unit of time)", y="share of variance", panel=_SQUARE)


@picture
def plot_diagnostics(flt: Any, which: Any = None, *, axes: Any = None, **kwargs: Any) -> AxesArray:
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
def plot_forecast(forecast: Any, which: Any = None, *, past: int = 40, axes: Any = None, **kwargs: Any) -> AxesArray:
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
    return panels


def _fan(ax: Axes, before: Any, end: Any, ahead: Any, name: str, level: float, **kwargs: Any) -> None:
    """Draw a variable until the end of the data, its forecast and both bands."""
    t = np.concatenate([[end["time"]], ahead["time"]])
    look = {"color": color(0), "linewidth": 1.2, "label": "estimate", **kwargs}
    (line,) = ax.plot(before["time"], before[name], **look)
    shade, mean = line.get_color(), np.concatenate([[end[name]], ahead["mean"]])
    ax.plot(t, mean, color=shade, linestyle="--", linewidth=1.2, label="forecast")
    past = before.reindex(columns=[f"{name} lower", f"{name} upper"]).to_numpy(dtype=float).T
    band = [np.concatenate([p, ahead[c]]) for p, c in zip(past, ("lower", "upper"), strict=True)]
    if ahead["reading_sd"].notna().any():  # at the end of the data a reading errs by as much more as at the next time
        off = [np.append(np.nan, ahead[f"reading_{c}"]) - mean for c in ("lower", "upper")]
        for o, own in zip(off, band, strict=True):
            own = own[len(past[0]) - 1 :] - mean
            o[0] = np.sign(o[1]) * np.sqrt(max(o[1] ** 2 - own[1] ** 2 + own[0] ** 2, 0.0))
        ax.fill_between(t, mean + off[0], mean + off[1], color="0.5", alpha=0.25, linewidth=0,
                        label=f"{100 * level:g} % band of a reading")  # fmt: skip
    t = np.concatenate([before["time"], ahead["time"]])
    ax.fill_between(t, band[0], band[1], color=shade, alpha=0.35, linewidth=0,
                    label=f"{100 * level:g} % of the state")  # fmt: skip


def _sums_ahead(ax: Axes, ahead: Any, level: float, **kwargs: Any) -> None:
    """Draw forecasts of sums, which have values at some times only, as points with bars."""
    style = {"color": color(0), "linestyle": "none", **kwargs}
    for lower, upper, width, label in (
        ("reading_lower", "reading_upper", 1.0, f"{100 * level:g} % of a reading"),
        ("lower", "upper", 3.0, f"{100 * level:g} % of the sum"),
    ):
        bars = [ahead["mean"] - ahead[lower], ahead[upper] - ahead["mean"]]
        ax.errorbar(ahead["time"], ahead["mean"], yerr=bars, **{**style, "elinewidth": width, "label": label})
    ax.plot(ahead["time"], ahead["mean"], **{**style, "marker": "o", "markersize": 4})


@picture
def plot_screening(screened: Any, *, ax: Axes | None = None, **kwargs: Any) -> Axes:
    """Return the axes with the result of a screening: magnitude by round, threshold, and data set missing."""
    ax, log, entity = get_ax(ax, figsize=(7.0, max(2.4, 0.3 * len(screened.log) + 1.6))), screened.log, screened.entity
    if not len(log):
        ax.text(0.5, 0.5, "nothing beyond the threshold", ha="center", va="center", transform=ax.transAxes)
        ax.set_axis_off()
        return ax
    removed, size = log["action"].eq("set missing").to_numpy(), log["magnitude"].abs().to_numpy()
    for mask, k, label in ((removed, 3, "datum, set missing"), (~removed, 1, "reported only")):
        if mask.any():
            ax.barh(np.flatnonzero(mask), size[mask], color=color(k), label=label, **{"height": 0.65, **kwargs})
    ax.axvline(screened.threshold, **{**_LIMIT, "label": f"threshold {screened.threshold:g}"})
    of = [""] * len(log) if entity is None else [f"{entity} {e}, " for e in log[entity]]
    name_rows(ax, [f"{w}{n} at {t:g}" for w, n, t in zip(of, log["name"], log["time"], strict=True)])
    ax.set_xlabel("magnitude (sd)")
    return ax
