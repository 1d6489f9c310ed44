"""Pictures of sensitivities: courses, pairs, dot charts, rankings, collinearity, global indices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fmepy.errors import ArgumentError, check_choice
from fmepy.parameters.selection import chosen
from fmepy.plotting.axes import add_legend, get_ax, get_axes, picture, square_of, write_correlation, write_in

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fmepy.plotting.axes import AxesArray
    from fmepy.sensitivity.collin import Collin
    from fmepy.sensitivity.global_indices import GlobalIndices
    from fmepy.sensitivity.identifiability import Identifiability
    from fmepy.sensitivity.sensfun import SensFun
    from fmepy.sensitivity.summary import SensFunSummary

_DASHES: tuple[Any, ...] = ("-", "--", "-.", ":")
_MARKERS = "osD^vPX*<>"
_ROW = 0.32  # inches a parameter takes in a chart of rows
_MEASURES = ("L1", "L2", "Mean", "Min", "Max")
_BARS = {
    "sobol": [("ST", "ST_conf", "total"), ("S1", "S1_conf", "first order")],
    "fast": [("ST", None, "total"), ("S1", None, "first order")],
    "morris": [("mu_star", "mu_star_conf", "mean |effect|"), ("sigma", None, "sd of effects")],
}


@picture
def plot_sensitivities(
    sens: SensFun, which: Any = None, *, axes: Axes | Iterable[Axes] | None = None, **kwargs: Any
) -> AxesArray:
    """Draw sensitivities against x, one line per parameter; return the Axes.

    Parameters
    ----------
    sens : SensFun
    which : names or positions from 0, optional
        One panel for each of these variables; the default is one panel for all, titled "All variables".
    axes : Axes or array of Axes, optional
    **kwargs
        Settings of all pictures (`fmepy.plotting.axes.picture`); anything else goes to ``Axes.plot``.

    Notes
    -----
    In the panel of all variables the lines of a parameter share a colour, and variables part by dashes.
    """
    groups = [list(sens.var)] if which is None else [[v] for v in chosen(which, sens.var)]
    panels = get_axes(len(groups), axes, panel=(6.0, 4.2) if len(groups) == 1 else (4.0, 3.0))
    labels, x, S = sens.frame.iloc[:, 1].to_numpy(), sens.frame.iloc[:, 0].to_numpy(), sens.matrix.to_numpy()
    for ax, group in zip(panels, groups, strict=True):
        ax.axhline(0.0, color="0.6", linewidth=0.8, zorder=0)
        for k, variable in enumerate(group):
            rows = np.flatnonzero(labels == variable)
            rows = rows[np.argsort(x[rows], kind="stable")]
            for j, name in enumerate(sens.pars.index):
                plain = {"color": f"C{j % 10}", "linestyle": _DASHES[k % len(_DASHES)]}
                if len(rows) == 1:
                    plain |= {"marker": _MARKERS[k % len(_MARKERS)], "linestyle": "none"}
                ax.plot(x[rows], S[rows, j], **{**plain, "label": str(name) if k == 0 else None, **kwargs})
        title = "All variables" if which is None and len(group) > 1 else group[0]
        ax.set(**{"xlabel": sens.xname, "ylabel": "sensitivity", "title": title})
    if len(panels):
        handles, labels = panels[0].get_legend_handles_labels()
        dashes = _handles_of_dashes(sens.var, kwargs) if which is None and len(sens.var) > 1 else []
        add_legend(panels[0], [*handles, *dashes], [*labels, *(sens.var if dashes else ())])
    return panels


def _handles_of_dashes(variables: Sequence[str], kwargs: Any) -> list[Any]:
    """Return entries of a legend that say which dash (a single x: which mark) is which variable."""
    from matplotlib.lines import Line2D

    if "linestyle" in kwargs or len(variables) > len(_DASHES):
        return []
    return [Line2D([], [], color="0.3", linestyle=d) for d in _DASHES[: len(variables)]]


@picture
def plot_pairs(
    sens: SensFun, which: Any = None, *, axes: Axes | Iterable[Axes] | None = None, **kwargs: Any
) -> AxesArray:
    """Draw the sensitivities of every two parameters against each other; return the Axes, shape (n_par, n_par).

    Above the diagonal the points, below it their correlations with two digits. With `which` the points of these
    variables alone, coloured by variable.
    """
    variables = chosen(which, sens.var)
    labels = sens.frame.iloc[:, 1].to_numpy()
    S = sens.matrix.to_numpy()
    names = [str(n) for n in sens.pars.index]
    n = len(names)
    if n < 2:
        raise ArgumentError(f"`pairs` needs at least two parameters; there is {names[0]!r} alone.")
    panels = square_of(n, axes, (max(1.1, 9.0 / n),) * 2)
    taken = np.isin(labels, variables)
    for i, j in np.ndindex(n, n):
        ax: Any = panels[i, j]
        ax.tick_params(labelleft=False, labelbottom=False, length=0)
        if i == j:
            write_in(ax, names[i], "large")
        elif i > j:
            write_correlation(ax, S[taken, j], S[taken, i])
        else:
            for k, v in enumerate(variables):
                rows = labels == v
                style: dict[str, Any] = {"linestyle": "none", "marker": _MARKERS[k % len(_MARKERS)]}
                style |= {"markersize": 3, "color": f"C{k % 10}" if which is not None else "C0"}
                ax.plot(S[rows, j], S[rows, i], **(style | kwargs))
            ax.tick_params(labelsize="x-small", length=2)
            if i == 0:
                ax.tick_params(labeltop=True, labelbottom=False, top=True, bottom=False)
            if j == n - 1:
                ax.tick_params(labelright=True, labelleft=False, right=True, left=False)
    if which is not None and len(variables) > 1:
        handles = [panels[0, 1].lines[k] for k in range(len(variables))]
        panels[0, 0].figure.legend(handles, variables, loc="outside lower left", ncols=len(variables))
    return panels


@picture
def plot_summary(summary: SensFunSummary, *, axes: Axes | Iterable[Axes] | None = None, **kwargs: Any) -> AxesArray:
    """Draw five dot charts (L1, L2, Mean, Min, Max), one row per parameter, a dotted line at 0; return the Axes.

    A summary by variable has a colour per variable.
    """
    frame = summary.frame
    by_variable = "var" in frame.columns and summary.by_variable
    variables = list(dict.fromkeys(frame["var"])) if by_variable else [None]
    names = _parameters(summary)
    panels = get_axes(5, axes, ncols=3, panel=(3.4, 1.0 + _ROW * len(names)))
    for ax, measure in zip(panels, _MEASURES, strict=True):
        ax.axvline(0.0, color="0.4", linewidth=0.8, linestyle=":")
        for k, variable in enumerate(variables):
            rows = frame if variable is None else frame[frame["var"] == variable]
            style: dict[str, Any] = {"linestyle": "none", "marker": _MARKERS[k % len(_MARKERS)], "color": f"C{k % 10}"}
            ax.plot(rows[measure].to_numpy(), np.arange(len(names)), **(style | {"label": variable} | kwargs))
        _rows(ax, names)
        ax.set_title(measure)
    if by_variable:
        handles, labels = panels[0].get_legend_handles_labels()
        if axes is None:
            panels[0].figure.legend(handles, labels, loc="outside lower right", ncols=len(labels))
        else:
            add_legend(panels[0])
    return panels


def _parameters(summary: SensFunSummary) -> list[str]:
    """Return the parameters of a summary; by variable, their names without the running number."""
    n_var = summary.frame["var"].nunique() if summary.by_variable else 1
    if n_var == 1:
        return [str(n) for n in summary.frame.index]
    return [str(n)[:-1] for n in summary.frame.index[::n_var]]


def _rows(ax: Axes, names: Sequence[str]) -> None:
    """Label rows by parameter, the first on top."""
    ax.set_yticks(np.arange(len(names)), list(names))
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.grid(axis="y", color="0.9", linewidth=0.6)
    ax.set_axisbelow(True)


@picture
def plot_ranking(sens: SensFun, by: str = "L2", *, ax: Axes | None = None, **kwargs: Any) -> Axes:
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
    names = [str(n) for n in ranked.index]
    ax = get_ax(ax, figsize=(5.5, 1.2 + _ROW * len(names)))
    several = len(sens.var) > 1
    style = {"color": "0.8" if several else "C0", "label": "all variables" if several else None}
    ax.barh(np.arange(len(names)), ranked.to_numpy(), **(style | kwargs))
    if several:
        parts = sens.summary(vars=True).frame
        order = np.argsort([names.index(str(n)) for n in sens.pars.index])
        for k, variable in enumerate(sens.var):
            values = parts.loc[parts["var"] == variable, by].to_numpy()[order]
            ax.plot(values, np.arange(len(names)), linestyle="none", marker=_MARKERS[k % len(_MARKERS)],
                    color=f"C{k % 10}", label=variable)  # fmt: skip
    _rows(ax, names)
    ax.set(**{"xlabel": f"{by} of the sensitivities"})
    if several:
        add_legend(ax)
    return ax


@picture
def plot_collinearity(
    collin: Collin, *, log: bool = True, threshold: float | None = None, ax: Axes | None = None, **kwargs: Any
) -> Axes:
    """Draw collinearity against the size of the sets, points of a size beside each other; return the Axes.

    Infinite values stand as triangles on the upper edge. `threshold` draws a line there.
    """
    ax = get_ax(ax)
    sizes, gamma = collin.frame.iloc[:, -2].to_numpy(), collin.frame.iloc[:, -1].to_numpy(dtype=float)
    x = sizes + _spread(sizes)
    finite = np.isfinite(gamma)
    style = {"linestyle": "none", "marker": "o", "markersize": 4 if len(gamma) < 500 else 2, "color": "C0",
             "alpha": 1.0 if len(gamma) < 100 else 0.5}  # fmt: skip
    ax.plot(x[finite], gamma[finite], **(style | kwargs))
    if log:
        ax.set_yscale("log")
    if threshold is not None:
        ax.axhline(threshold, color="C3", linewidth=1, linestyle="--", label=f"threshold {threshold:g}")
    if not finite.all():
        top = 3 * max(gamma[finite].max(initial=1.0), threshold or 1.0)
        marks: dict[str, Any] = {"linestyle": "none", "marker": "^", "color": "0.3", "markersize": 5}
        ax.plot(x[~finite], np.full((~finite).sum(), top), **marks, label="infinite")
    ax.set_xticks(np.unique(sizes))
    ax.set(**{"xlabel": "number of parameters", "ylabel": "collinearity"})
    add_legend(ax)
    return ax


def _spread(sizes: Any) -> Any:
    """Return small offsets that part the points of one size: fixed, so that the picture is."""
    offset = np.zeros(len(sizes))
    for n in np.unique(sizes):
        rows = np.flatnonzero(sizes == n)
        if len(rows) > 1:
            offset[rows] = 0.28 * (2 * (np.arange(len(rows)) * 0.6180339887 % 1.0) - 1)
    return offset


@picture
def plot_identifiability(
    found: Identifiability, *, axes: Axes | Iterable[Axes] | None = None, **kwargs: Any
) -> AxesArray:
    """Draw variance inflation per parameter, and beside it each undetermined combination; return the Axes.

    Infinite inflation is a hatched bar. `kwargs` go to ``Axes.barh``.
    """
    names = list(found.parameters)
    shown = found.combinations.head(5)
    panels = get_axes(1 + len(shown), axes, panel=(3.4, 1.2 + _ROW * len(names)))
    vif = found.frame["vif"].to_numpy(dtype=float)
    finite = np.isfinite(vif)
    top = 10 * max(vif[finite].max(initial=1.0), found.threshold**2)
    bars = panels[0].barh(np.arange(len(names)), np.where(finite, vif, top), **({"color": "C0"} | kwargs))
    for bar, is_finite in zip(bars, finite, strict=True):
        if not is_finite:
            bar.set(hatch="///", facecolor="0.9", edgecolor="0.4")
    panels[0].set_xscale("log")
    panels[0].set_xlim(left=0.8)
    panels[0].set_title("variance inflation" + ("" if finite.all() else " (hatched: infinite)"), fontsize="medium")
    _rows(panels[0], names)
    for ax, (_, row) in zip(panels[1:], shown.iterrows(), strict=True):
        components = row.to_numpy(dtype=float)[1:]
        ax.barh(np.arange(len(names)), components, **({"color": np.where(components < 0, "C3", "C2")} | kwargs))
        ax.axvline(0.0, color="0.4", linewidth=0.8)
        ax.set_xlim(-1.05, 1.05)
        gamma = float(row.iloc[0])
        ax.set_title(f"undetermined, collinearity {gamma:.3g}" if np.isfinite(gamma) else "undetermined exactly",
                     fontsize="medium")  # fmt: skip
        _rows(ax, names)
    return panels


@picture
def plot_global_indices(
    found: GlobalIndices, which: Any = None, *, axes: Axes | Iterable[Axes] | None = None, **kwargs: Any
) -> AxesArray:
    """Draw global indices, one panel a variable; return the Axes.

    Single outputs: bars with intervals, total beside first order (or mean |effect| beside its standard deviation).
    Courses: lines over x, total drawn, first order dashed. `kwargs` go to the bars or lines.
    """
    variables = chosen(which, found.var)
    measures = _BARS[found.method]
    over_x = found.xname is not None
    panel = (5.0, 3.6) if over_x else (4.2, 1.2 + 1.6 * _ROW * len(found.parameters))
    panels = get_axes(len(variables), axes, panel=panel)
    for ax, variable in zip(panels, variables, strict=True):
        rows = found.frame[found.frame["var"] == variable]
        if over_x:
            _courses(ax, rows, found, measures, kwargs)
            labels = {"xlabel": found.xname, "ylabel": "index" if found.method != "morris" else "effect"}
        else:
            _bars(ax, rows, found.parameters, measures, kwargs)
            labels = {"xlabel": "index" if found.method != "morris" else "effect"}
        ax.set(**{**labels, "title": variable})
    if len(panels):
        add_legend(panels[0])
    return panels


def _bars(ax: Axes, rows: Any, names: Sequence[str], measures: Any, kwargs: Any) -> None:
    height = 0.8 / len(measures)
    for k, (column, error, label) in enumerate(measures):
        at = np.arange(len(names)) + (k - 0.5 * (len(measures) - 1)) * height
        xerr = rows[error].to_numpy() if error is not None else None
        style = {"color": f"C{k}", "height": height, "error_kw": {"elinewidth": 1, "capsize": 2}, "label": label}
        ax.barh(at, rows[column].to_numpy(), xerr=xerr, **(style | kwargs))
    ax.axvline(0.0, color="0.4", linewidth=0.8)
    _rows(ax, names)


def _courses(ax: Axes, rows: Any, found: GlobalIndices, measures: Any, kwargs: Any) -> None:
    for j, name in enumerate(found.parameters):
        mine = rows[rows["parameter"] == name]
        for k, (column, _, label) in enumerate(measures):
            style: dict[str, Any] = {"color": f"C{j % 10}", "linestyle": "-" if k == 0 else "--"}
            style["label"] = f"{name}, {label}" if j == 0 else (name if k == 0 else None)
            ax.plot(mine["x"].to_numpy(), mine[column].to_numpy(), **(style | kwargs))
    ax.axhline(0.0, color="0.6", linewidth=0.8, zorder=0)
