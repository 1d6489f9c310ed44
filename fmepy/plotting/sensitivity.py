"""Pictures of sensitivities: courses, pairs, dot charts, rankings, collinearity, global indices."""

from __future__ import annotations

from typing import Any

import numpy as np

from fmepy.checks import positive_number
from fmepy.errors import check_choice
from fmepy.parameters.names import split_local
from fmepy.parameters.selection import chosen
from fmepy.plotting.axes import (
    DASHES,
    WARNING,
    color,
    each_panel,
    first_names,
    get_ax,
    get_axes,
    line_look,
    name_rows,
    picture,
    point_look,
    set_axes,
    title_legend,
    zero_line,
)
from fmepy.tables.cells import some_of
from fmepy.types import Axes, AxesArray

_ROW = 0.32  # inches a parameter takes in a chart of rows
_MOST_SETS = 15  # named by their parameters, in a picture of collinearity
_MEASURES = ("L1", "L2", "Mean", "Min", "Max")
_BARS = {
    "sobol": [("ST", "ST_conf", "total"), ("S1", "S1_conf", "first order")],
    "fast": [("ST", None, "total"), ("S1", None, "first order")],
    "morris": [("mu_star", "mu_star_conf", "mean |effect|"), ("sigma", None, "sd of effects")],
}


@picture
def plot_sensitivities(sens: Any, which: Any = None, *, axes: Any = None, **kwargs: Any) -> AxesArray:
    """Draw sensitivities against x, one panel a variable, one line per parameter; return the Axes.

    Parameters
    ----------
    sens : SensFun
    which : names or positions from 0, optional
        The variables; all by default. All of them share a single Axes, parted by dashes.
    axes : Axes or array of Axes, optional
    **kwargs
        Settings of all pictures (`fmepy.plotting.axes.picture`); anything else goes to ``Axes.plot``.
    """
    if sens.depths is not None:
        return _by_depth(sens, chosen(which, sens.var), axes, kwargs)
    labels, x, S = sens.frame.iloc[:, 1].to_numpy(), sens.frame.iloc[:, 0].to_numpy(), sens.matrix.to_numpy()
    spreads = np.zeros(len(x), dtype=bool) if sens.spreads is None else np.asarray(sens.spreads)
    groups = {name: [name] for name in chosen(which, sens.var)}
    if which is None and axes is not None and np.size(axes) == 1 < len(groups):
        groups = {"All variables": list(sens.var)}

    upright = {title for title, own in groups.items() if {split_local(name)[0] for name in own} <= set(sens.profiles)}

    def draw(ax: Axes, title: str) -> None:
        zero_line(ax, upright=title in upright)
        for k, variable in enumerate(groups[title]):
            mine = labels == variable
            at, values = _courses(x[mine & ~spreads], S[mine & ~spreads])
            if sens.profiles and title not in upright and (values == values[0]).all():
                at, values = at[:1], values[:1]  # a scalar, not a profile
            dashes: dict[str, Any] = {"linestyle": DASHES[k % len(DASHES)]} if len(groups[title]) > 1 else {}
            for j, name in enumerate(sens.pars.index):
                look = point_look(j) if len(at) == 1 else {**line_look(j), **dashes}
                points = (values[:, j], at) if title in upright else (at, values[:, j])
                ax.plot(*points, **{**look, "label": None if k else str(name), **kwargs})
            if dashes:
                ax.plot([], [], color="0.4", label=variable, **dashes)
            if (mine & spreads).any():
                at, values = _courses(x[mine & spreads], S[mine & spreads])
                for j in range(values.shape[1]):
                    ax.plot(at, values[:, j], color=color(j), linestyle="", marker=".", markersize=3)
                ax.plot([], [], color="0.4", linestyle="", marker=".", label=None if k else "of the spread")

    panel = (6.0, 4.2) if len(groups) == 1 else (4.0, 3.0)
    panels = each_panel(list(groups), draw, axes, x=sens.xname or "x", y="sensitivity", panel=panel)
    for ax, title in zip(panels, groups, strict=True):
        if title in upright:
            set_axes(ax, sens.xname, "sensitivity", True)
        elif sens.profiles:
            ax.set(xlabel="", xticks=[])
    return panels


def _by_depth(sens: Any, names: list[str], axes: Any, kwargs: dict[str, Any]) -> AxesArray:
    """Draw sensitivities over depth, a panel a variable and time (some of many), and over time of what has no depth."""
    frame, groups, notes = sens.frame, list[tuple[str, Any]](), set[str]()
    most = 1 if axes is not None and np.size(axes) == len(names) else 3  # the last, where there is a panel a variable
    for name in names:
        rows = frame[frame["var"] == name]
        is_profile = rows["depth"].notna()
        every = rows.loc[is_profile, "x"].unique()
        some = some_of(every, most)
        notes |= {f"{len(some)} of {len(every)} times"} if len(some) < len(every) else set()
        groups += [(f"{name}, {sens.xname} {t:g}", rows[(rows["x"] == t) & is_profile]) for t in some]
        groups += [(name, rows[~is_profile])] if (~is_profile).any() else []
    panels = get_axes(len(groups), axes)
    for line in sorted(notes):
        title_legend(panels[0], line)
    for ax, (title, rows) in zip(panels, groups, strict=True):
        upright = bool(rows["depth"].notna().all())
        zero_line(ax, upright=upright)
        values = rows.iloc[:, -len(sens.names) :].to_numpy()
        at, values = _courses(rows["depth" if upright else "x"].to_numpy(), values)
        in_order = np.isnan(at).any() or len(set(at)) == len(at)  # else of several experiments: points
        look = line_look if in_order or not upright else point_look
        for j, name in enumerate(sens.names):
            points = (values[:, j], at) if upright else (at, values[:, j])
            ax.plot(*points, **{**look(j), "label": str(name), **kwargs})
        ax.set_title(title, fontsize="medium")
        set_axes(ax, "depth" if upright else sens.xname, "sensitivity", upright)
    return panels


def _courses(x: Any, values: Any) -> tuple[Any, Any]:
    """Return x and values in order of x; experiments, whose times start again, are separated by a row of NaN."""
    begins = np.flatnonzero(np.diff(x) < 0) + 1
    if len(x) < 3 * (1 + len(begins)):  # in no order, rather than experiments
        order = np.argsort(x, kind="stable")
        return x[order], values[order]
    return np.insert(x.astype(float), begins, np.nan), np.insert(values, begins, np.nan, axis=0)


@picture
def plot_summary(summary: Any, *, axes: Any = None, **kwargs: Any) -> AxesArray:
    """Draw five dot charts (L1, L2, Mean, Min, Max), one row per parameter, a dotted line at 0; return the Axes.

    A summary by variable has a colour per variable.
    """
    frame = summary.frame
    by_variable = "var" in frame.columns and summary.by_variable
    variables = list(dict.fromkeys(frame["var"])) if by_variable else [None]
    names = _parameters(summary)

    def draw(ax: Axes, measure: str) -> None:
        ax.axvline(0.0, color="0.4", linewidth=0.8, linestyle=":")
        for k, variable in enumerate(variables):
            rows = frame if variable is None else frame[frame["var"] == variable]
            look = {**point_look(k), "label": variable, **kwargs}
            ax.plot(rows[measure].to_numpy(), np.arange(len(names)), **look)
        name_rows(ax, names)
        ax.set_title(measure)

    return each_panel(_MEASURES, draw, axes, x="", y="", ncols=3, panel=(3.4, 1.0 + _ROW * len(names)))


def _parameters(summary: Any) -> list[str]:
    """Return the parameters of a summary; by variable, their names without the running number."""
    n_var = summary.frame["var"].nunique() if summary.by_variable else 1
    if n_var == 1:
        return [str(n) for n in summary.frame.index]
    return [str(n)[:-1] for n in summary.frame.index[::n_var]]


@picture
def plot_ranking(sens: Any, by: str = "L2", *, ax: Axes | None = None, **kwargs: Any) -> Axes:
    """Draw the importance of the parameters as bars, the largest on top; return the Axes.

    With several variables a mark per variable shows its part.

    Parameters
    ----------
    sens : SensFun
    by : {"L2", "L1", "Mean", "Min", "Max"}
    ax : Axes, optional
    **kwargs
        Settings of all pictures; anything else goes to ``Axes.barh``.
    """
    check_choice(by, _MEASURES, "by")
    ranked = sens.ranking(by)
    names, several = [str(n) for n in ranked.index], len(sens.var) > 1
    ax = get_ax(ax, figsize=(5.5, 1.2 + _ROW * len(names)))
    look = {"color": "0.8" if several else color(0), "label": "all variables" if several else None}
    ax.barh(np.arange(len(names)), ranked.to_numpy(), **(look | kwargs))
    if several:
        parts = sens.summary(vars=True).frame
        order = np.argsort([names.index(str(n)) for n in sens.pars.index])
        for k, variable in enumerate(sens.var):
            values = parts.loc[parts["var"] == variable, by].to_numpy()[order]
            ax.plot(values, np.arange(len(names)), **point_look(k), label=variable)
    name_rows(ax, names)
    ax.set_xlabel(f"{by} of the sensitivities")
    return ax


@picture
def plot_collinearity(
    collin: Any, *, log: bool = True, threshold: float | None = 20.0, ax: Axes | None = None, **kwargs: Any
) -> Axes:
    """Draw collinearity against the size of the sets, a line at the threshold; return the Axes.

    Few sets stand one below the other, named by their parameters; of many, those of a size stand side by side. Infinite
    values are triangles on the edge.
    """
    sizes, gamma = collin.frame.iloc[:, -2].to_numpy(), collin.frame.iloc[:, -1].to_numpy(dtype=float)
    named = len(gamma) <= _MOST_SETS
    ax = get_ax(ax, figsize=(6.0, 1.4 + 0.26 * len(gamma)) if named else None)
    place = np.arange(len(gamma)) if named else sizes + _spread(sizes)
    finite = np.isfinite(gamma)

    def draw(points: Any, values: Any, **look: Any) -> None:
        ax.plot(*((values, points) if named else (points, values)), **look)

    style = {**point_look(0), "markersize": 4 if len(gamma) < 500 else 2, "alpha": 1.0 if len(gamma) < 100 else 0.5}
    draw(place[finite], gamma[finite], **(style | kwargs))
    if log:
        (ax.set_xscale if named else ax.set_yscale)("log")
    if threshold is not None:
        threshold = positive_number(threshold, "threshold")
        line = ax.axvline if named else ax.axhline
        line(threshold, color=WARNING, linewidth=1, linestyle="--", label=f"threshold {threshold:g}")
    if not finite.all():
        top = 3 * max(gamma[finite].max(initial=1.0), threshold or 1.0)
        draw(place[~finite], np.full((~finite).sum(), top), linestyle="none", marker=">" if named else "^",
             color="0.3", markersize=5, label="infinite")  # fmt: skip
    sets = collin.sets()
    if named:
        name_rows(ax, [first_names(names, ", ", 5) for names in sets])
        ax.set_xlabel("collinearity")
        return ax
    best = [np.flatnonzero(sizes == n)[np.argmin(gamma[sizes == n])] for n in np.unique(sizes)]
    ax.set_xticks(sizes[best], [f"{sizes[k]}\n{first_names(sets[k], chr(10), 6)}" for k in best])
    set_axes(ax, "number of parameters, the least collinear set of each", "collinearity")
    return ax


def _spread(sizes: Any) -> Any:
    """Return small fixed offsets that separate the points of one size."""
    offset = np.zeros(len(sizes))
    for n in np.unique(sizes):
        rows = np.flatnonzero(sizes == n)
        if len(rows) > 1:
            offset[rows] = 0.28 * (2 * (np.arange(len(rows)) * 0.6180339887 % 1.0) - 1)
    return offset


@picture
def plot_identifiability(result: Any, *, axes: Any = None, **kwargs: Any) -> AxesArray:
    """Draw variance inflation per parameter, and each undetermined combination next to it; return the Axes.

    Infinite inflation is a hatched bar. `kwargs` go to ``Axes.barh``.
    """
    names = list(result.parameters)
    shown = result.combinations.head(5)
    panels = get_axes(1 + len(shown), axes, panel=(3.4, 1.2 + _ROW * len(names)))
    vif = result.frame["vif"].to_numpy(dtype=float)
    finite = np.isfinite(vif)
    top = 10 * max(vif[finite].max(initial=1.0), result.threshold**2)
    bars = panels[0].barh(np.arange(len(names)), np.where(finite, vif, top), **({"color": color(0)} | kwargs))
    for bar, is_finite in zip(bars, finite, strict=True):
        if not is_finite:
            bar.set(hatch="///", facecolor="0.9", edgecolor="0.4")
    panels[0].set_xscale("log")
    panels[0].set_xlim(0.8, 1.2 * np.where(finite, vif, top).max())
    panels[0].set_title("variance inflation" + ("" if finite.all() else " (hatched: infinite)"), fontsize="medium")
    for ax, (_, row) in zip(panels[1:], shown.iterrows(), strict=True):
        components = row.to_numpy(dtype=float)[1:]
        sides = [color(3) if c < 0 else color(0) for c in components]
        ax.barh(np.arange(len(names)), components, **({"color": sides} | kwargs))
        zero_line(ax, upright=True)
        ax.set_xlim(-1.05, 1.05)
        gamma = float(row.iloc[0])
        ax.set_title(f"undetermined, collinearity {gamma:.3g}" if np.isfinite(gamma) else "undetermined exactly",
                     fontsize="medium")  # fmt: skip
    for ax in panels:
        name_rows(ax, names)
    return panels


@picture
def plot_global_indices(result: Any, which: Any = None, *, axes: Any = None, **kwargs: Any) -> AxesArray:
    """Draw global indices, one panel a variable; return the Axes.

    Single outputs: bars with intervals, total next to first order (or mean |effect| next to its standard deviation).
    Courses: lines over x, total drawn, first order dashed. `kwargs` go to the bars or lines.
    """
    measures, over_x = _BARS[result.method], result.xname is not None
    index = "effect" if result.method == "morris" else "index"

    def draw(ax: Axes, variable: str) -> None:
        rows = result.frame[result.frame["var"] == variable]
        (_draw_courses if over_x else _draw_bars)(ax, rows, result.parameters, measures, kwargs)

    labels = {"x": result.xname, "y": index} if over_x else {"x": index, "y": ""}
    panel = (5.0, 3.6) if over_x else (4.2, 1.2 + 1.6 * _ROW * len(result.parameters))
    return each_panel(chosen(which, result.var), draw, axes, **labels, panel=panel)


def _draw_bars(ax: Axes, rows: Any, names: Any, measures: Any, kwargs: Any) -> None:
    height = 0.8 / len(measures)
    for k, (column, error, label) in enumerate(measures):
        at = np.arange(len(names)) + (k - 0.5 * (len(measures) - 1)) * height
        xerr = rows[error].to_numpy() if error is not None else None
        look = {"color": color(k), "height": height, "error_kw": {"elinewidth": 1, "capsize": 2}, "label": label}
        ax.barh(at, rows[column].to_numpy(), xerr=xerr, **(look | kwargs))
    zero_line(ax, upright=True)
    name_rows(ax, names)


def _draw_courses(ax: Axes, rows: Any, names: Any, measures: Any, kwargs: Any) -> None:
    for j, name in enumerate(names):
        mine = rows[rows["parameter"] == name]
        for k, (column, _, label) in enumerate(measures):
            look: dict[str, Any] = {"color": color(j), "linestyle": "-" if k == 0 else "--"}
            look["label"] = f"{name}, {label}" if j == 0 else (name if k == 0 else None)
            ax.plot(mine["x"].to_numpy(), mine[column].to_numpy(), **(look | kwargs))
    zero_line(ax)
