"""Axes to draw on: those passed, or new ones; what every picture of fmepy does in the same way.

A picture takes ``ax`` (one panel) or ``axes`` (several), draws, and returns what it drew on. It never calls
``plt.show()`` and changes no setting. It takes a result by what that offers, and imports no class of results.

`picture` is the one driver: keywords, labels and limits of users, legends, ticks. A picture labels what it draws;
the legend comes from the labels, in the first panel that shows something new.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, wraps
from textwrap import fill
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np

from fmepy.checks import whole_number
from fmepy.errors import ArgumentError, FmepyError, did_you_mean, listed
from fmepy.types import Axes, AxesArray

COLORS = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#332288")
"""Of Okabe and Ito, without what is faint on white, and indigo: colour-blind readers can distinguish every two."""
WARNING = COLORS[3]
MARKERS = "osD^vPX*<>"
DASHES = ("-", "--", "-.", ":")
MOST_NAMED = 24
"""Things of one kind that a legend names; of more than these only the look is shown."""
WIDEST = 13.0
"""Inches: panels of a new figure shrink so that it is no wider."""
_LETTER = 4.4
"""Points: the mean width of a small letter."""
_WRAP = "\n  "
"""Where a line of a legend's title goes on."""

P = ParamSpec("P")
R = TypeVar("R")

SETTINGS = ("xlabel", "ylabel", "xlim", "ylim", "xscale", "yscale", "xticks", "yticks", "title")
"""Keywords of every picture that go to its panels."""

_LISTS = ("xlim", "ylim", "xticks", "yticks")

_LOCATIONS = {
    "above": "above",
    "bottomright": "lower right",
    "bottom": "lower center",
    "bottomleft": "lower left",
    "left": "center left",
    "topleft": "upper left",
    "top": "upper center",
    "topright": "upper right",
    "right": "center right",
    "center": "center",
} | {word: word for word in ("best", "upper right", "upper left", "lower left", "lower right", "center left",
                             "center right", "lower center", "upper center")}  # fmt: skip
"""Words of R, and of matplotlib."""


def color(k: int, many: int = 0) -> str:
    """Return colour `k` of the pictures; that of the user's own cycle, where there is one.

    Of `many` lines in an order, more than there are colours, it is from dark to light.
    """
    from matplotlib import colormaps, rcParams, rcParamsDefault
    from matplotlib.colors import to_hex

    if many > len(COLORS):
        return to_hex(colormaps["viridis"](0.95 * k / (many - 1)))
    own = rcParams["axes.prop_cycle"] != rcParamsDefault["axes.prop_cycle"]
    return f"C{k}" if own else COLORS[k % len(COLORS)]


def line_look(k: int) -> dict[str, Any]:
    """Return the look of line `k`: a colour, and beyond the last colour another dash."""
    return {"color": color(k), "linestyle": DASHES[k // len(COLORS) % len(DASHES)]}


def point_look(k: int, marker: int | None = None) -> dict[str, Any]:
    """Return the look of points `k`: a colour and a symbol; by default a symbol of their own."""
    symbol = MARKERS[(k if marker is None else marker) % len(MARKERS)]
    return {"color": color(k), "marker": symbol, "linestyle": "none"}


def picture(draw: Callable[P, R]) -> Callable[P, R]:
    """Return a function that draws, with what all pictures take alike.

    * matplotlib's short keywords (`lw`, `c`), as its long ones: a picture has settings under the long names, and
      matplotlib takes no two names of one thing;
    * ``xlabel ylabel xlim ylim xscale yscale xticks yticks title``: one for all panels or, as a list (limits and ticks:
      a list of lists), one a panel; they win over what the picture sets. The title of a square of panels is the
      figure's;
    * ``figsize``, inches, of a new figure;
    * ``legpos``: where legends stand, in R's words or matplotlib's, inside their panels; "above" them, which is the
      default and covers no data; None for no legends.

    Any other keyword that neither the picture nor matplotlib knows is refused before anything is drawn.
    """
    own = {k for k, v in inspect.signature(draw).parameters.items() if v.kind not in (v.VAR_KEYWORD, v.POSITIONAL_ONLY)}

    @wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> R:
        keywords = _with_long_names(kwargs)
        _check_keywords(draw.__name__, keywords, own)
        if isinstance(bins := keywords.get("bins"), (int, float)):
            keywords["bins"] = whole_number(bins, "bins", 1)
        settings = {k: keywords.pop(k) for k in SETTINGS if k in keywords}
        figsize, legpos = keywords.pop("figsize", None), keywords.pop("legpos", "above")
        legend_location(legpos)
        users = next((keywords[k] for k in ("ax", "axes") if keywords.get(k) is not None), None)
        if figsize is not None and users is not None:
            raise ArgumentError("`figsize` is the size of a new figure; the Axes given have one already. Leave it out.")
        before = set() if users is not None else _figures()
        labelled = {id(ax): len(_labels(ax)) for ax in np.ravel(np.asarray(users, dtype=object)) if _is_axes(ax)}
        try:
            out: R = cast(Any, draw)(*args, **keywords)
            panels = np.asarray(out, dtype=object)
            if panels.size:
                _finish(panels, settings, figsize, _calendar(args[0]) if args else None)
                _place_legends(panels.ravel().tolist(), legpos, labelled)
        except Exception as error:
            if users is None:  # nothing half drawn is left
                import matplotlib.pyplot as plt

                for number in _figures() - before:
                    plt.close(number)
            if isinstance(error, (AttributeError, TypeError)) and "keyword argument" in str(error):
                raise ArgumentError(f"{draw.__name__} cannot draw with these keywords: {error}.") from error
            if args and hasattr(type(args[0]), "save") and not isinstance(error, FmepyError):
                raise ArgumentError(
                    f"{draw.__name__} cannot draw this {type(args[0]).__name__} ({type(error).__name__}: {error}). "
                    "Are the keywords what matplotlib takes? If it is from a file that was changed, make it again."
                ) from error
            raise
        return out

    return drawn


def _with_long_names(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Return keywords under matplotlib's long names."""
    from matplotlib.cbook import normalize_kwargs
    from matplotlib.lines import Line2D
    from matplotlib.patches import Rectangle

    try:
        return dict(normalize_kwargs(normalize_kwargs(dict(keywords), Line2D), Rectangle))
    except TypeError as error:
        raise ArgumentError(f"{error}. Give one of them.") from None


_OF_R = {
    "main": "title", "xlab": "xlabel", "ylab": "ylabel", "col": "color", "lwd": "linewidth", "lty": "linestyle",
    "pch": "marker", "cex": "markersize", "log": "yscale",
}  # fmt: skip
"""What keywords of R's pictures are called here."""


def _check_keywords(name: str, given: Mapping[str, Any], own: set[str]) -> None:
    mine = own | set(SETTINGS) | {"figsize", "legpos"}
    if not set(given) - mine:
        return
    for wrong, right in (("ax", "axes"), ("axes", "ax")):
        if wrong in given and wrong not in own and right in own:
            many = "several panels" if right == "axes" else "one panel"
            raise ArgumentError(f"{name} draws {many}: pass `{right}=` instead of `{wrong}=`.")
    known = mine | _artist_keywords()
    for key in given:
        of_r = key == "log" and key not in own and isinstance(given[key], str)  # a histogram's is True or False
        if key not in known or of_r:
            ours = _OF_R.get(key)
            hint = f" Here it is `{ours}`." if ours else did_you_mean(key, sorted(known))
            raise ArgumentError(
                f"{name} takes no keyword `{key}`.{hint} It takes "
                f"{listed(sorted(mine))}, and matplotlib's keywords of what it draws."
            )


@cache
def _artist_keywords() -> frozenset[str]:
    """Return all that matplotlib takes for what pictures here are made of."""
    from matplotlib.artist import ArtistInspector
    from matplotlib.axes import Axes
    from matplotlib.collections import LineCollection
    from matplotlib.lines import Line2D
    from matplotlib.patches import Rectangle

    words = {w for artist in (Line2D, Rectangle, LineCollection) for w in ArtistInspector(artist).get_setters()}
    methods = (Axes.plot, Axes.hist, Axes.barh, Axes.boxplot, Axes.stairs, Axes.errorbar, Axes.step, Axes.pcolormesh)
    words |= {w for method in methods for w in inspect.signature(method).parameters}
    return frozenset(words | {"colors", "linewidths", "linestyles"}) - {"self", "x", "y", "args", "kwargs", "data"}


def _calendar(thing: Any) -> Any:
    """Return name, origin and seconds of the unit of times that are dates, as a result, its cost or its table know."""
    for owner in (thing, *(getattr(thing, name, None) for name in ("source", "cost", "frame"))):
        if hasattr(type(owner), "calendar"):
            return owner.calendar
        if hasattr(type(owner), "attrs") and "calendar" in owner.attrs:
            return owner.attrs["calendar"]
    return None


def _finish(panels: AxesArray, settings: dict[str, Any], figsize: Any, calendar: Any) -> None:
    """Apply the user's settings to the panels."""
    from fmepy.plotting.ticks import date_ticks, tidy_ticks

    flat: list[Axes] = panels.ravel().tolist()
    dated = [ax for ax in flat if calendar and "xticks" not in settings and ax.get_xlabel() in (calendar[0], "time")]
    if panels.ndim == 2 and isinstance(settings.get("title"), str):
        flat[0].figure.figure.suptitle(settings.pop("title"))
    for key, value in settings.items():
        for ax, one in zip(flat, one_per_panel(key, value, len(flat)), strict=True):
            if one is not None:
                ax.set(**{key: one})
    if figsize is not None:
        flat[0].figure.figure.set_size_inches(figsize)
    for ax in flat:
        tidy_ticks(ax)
    for ax in dated:
        date_ticks(ax.xaxis, *calendar[1:3])


def _labels(ax: Axes) -> list[str]:
    return ax.get_legend_handles_labels()[1]


def _place_legends(panels: Sequence[Axes], legpos: str | None, before: Mapping[int, int]) -> None:
    """Give a legend to every panel with a look that no earlier panel names; panels without new labels stay."""
    named: set[tuple[str, ...]] = set()
    for ax in panels:
        handles, labels = ax.get_legend_handles_labels()
        if len(labels) == before.get(id(ax), 0):
            continue
        looks = {_look(handle, label) for handle, label in zip(handles, labels, strict=True)}
        looks |= {(line,) for line in _legend_title(ax).split("\n") if line}
        if legpos is not None and not looks <= named:
            add_legend(ax, legpos)
        elif (legend := ax.get_legend()) is not None:
            legend.remove()
        named |= looks


def _legend_title(ax: Axes) -> str:
    """Return the title of a panel's legend, its lines as they were before `add_legend` wrapped them."""
    legend = ax.get_legend()
    return "" if legend is None else legend.get_title().get_text().replace(_WRAP, " ")


def title_legend(ax: Axes, *lines: str) -> None:
    """Write lines into the title of a panel's legend, each once, below those that are there."""
    ax.legend([], [], title="\n".join(dict.fromkeys(filter(None, [*_legend_title(ax).split("\n"), *lines]))))


def _look(handle: Any, label: str) -> tuple[str, ...]:
    """Return what makes an entry of a legend the same as another one."""
    artist = handle[0] if isinstance(handle, tuple) and len(handle) else handle
    of = [getattr(artist, f"get_{word}", lambda: None)() for word in ("color", "facecolor", "linestyle", "marker")]
    return label, type(handle).__name__, repr(of)


def _figures() -> set[int]:
    import matplotlib.pyplot as plt

    return set(plt.get_fignums())


def one_per_panel(key: str, value: Any, n: int, what: str = "panels") -> list[Any]:
    """Return the value of a keyword for each of `n` panels: one for all, or a list of n (limits: a list of pairs)."""
    is_list = isinstance(value, (list, np.ndarray))
    if is_list and key in _LISTS and all(np.ndim(v) == 0 for v in value):
        is_list = False  # one pair, or one row of ticks, for all
    if not is_list:
        return [value] * n
    if len(value) == 1:
        return [value[0]] * n
    if len(value) != n:
        raise ArgumentError(f"`{key}` has {len(value)} values for {n} {what}. Give one for all, or a list of {n}.")
    return list(value)


def set_axes(ax: Axes, x_name: str, name: str, xyswap: bool = False) -> None:
    """Label a panel, and let x go down if it is on the vertical axis."""
    ax.set(**{"xlabel": name, "ylabel": x_name} if xyswap else {"xlabel": x_name, "ylabel": name})
    if xyswap and not ax.yaxis_inverted():
        ax.invert_yaxis()


def get_ax(ax: Axes | None = None, *, figsize: tuple[float, float] | None = None) -> Axes:
    """Return the given Axes, or that of a new figure.

    Parameters
    ----------
    ax : Axes, optional
        Where to draw.
    figsize : (float, float), optional
        Size of the new figure, inches.

    Raises
    ------
    ArgumentError
        `ax` is not an Axes.
    """
    if ax is None:
        import matplotlib.pyplot as plt

        return plt.subplots(figsize=figsize, layout="constrained")[1]
    return _checked(ax, "ax")


def get_axes(
    n: int,
    axes: Axes | Iterable[Axes] | None = None,
    *,
    ncols: int | None = None,
    panel: tuple[float, float] = (4.0, 3.0),
    **kwargs: Any,
) -> AxesArray:
    """Return `n` Axes as a flat array: those given, or the panels of a new figure.

    Parameters
    ----------
    n : int
        Number of panels.
    axes : Axes or array of Axes, optional
        Where to draw; more than `n` are fine, the rest is left alone.
    ncols : int, optional
        Columns of the new figure; the default makes it about square, at most three wide.
    panel : (float, float)
        Width and height of one panel of the new figure, inches; a figure is at most `WIDEST` wide.
    **kwargs
        Passed to ``matplotlib.pyplot.subplots``, such as ``sharex=True``.

    Raises
    ------
    ArgumentError
        Fewer axes than panels, or something that is not an Axes.
    """
    if axes is None:
        import matplotlib.pyplot as plt

        ncols = ncols or (n if n <= 2 else 2 if n <= 4 else 3)
        nrows = -(-n // ncols)
        size = (min(panel[0] * ncols, WIDEST), panel[1] * nrows)
        figure, grid = plt.subplots(nrows, ncols, squeeze=False, layout="constrained", figsize=size, **kwargs)
        for spare in grid.flat[n:]:
            figure.delaxes(spare)
        return np.array(list(grid.flat[:n]), dtype=object)
    panels: AxesArray = np.ravel(np.asarray(axes, dtype=object))
    if len(panels) < n:
        raise ArgumentError(f"`axes` holds {len(panels)} Axes; {n} are needed, one per panel.")
    return np.array([_checked(ax, "axes") for ax in panels[:n]], dtype=object)


def each_panel(
    names: Sequence[str],
    draw: Callable[[Axes, str], object],
    axes: Any = None,
    *,
    x: str | None = None,
    y: str | None = None,
    xyswap: bool = False,
    **layout: Any,
) -> AxesArray:
    """Return the panels after ``draw(ax, name)`` in one for each name, labelled.

    Parameters
    ----------
    names : sequence of str
    draw : callable
    axes : Axes or array of Axes, optional
    x, y : str, optional
        Labels of the axes; None is the name of the panel, which is its title where both are given.
    xyswap : bool
    **layout
        Of a new figure, see `get_axes`.
    """
    panels = get_axes(len(names), axes, **layout)
    for ax, name in zip(panels, names, strict=True):
        draw(ax, name)
        if x is not None and y is not None:
            ax.set_title(name, fontsize="medium")
        set_axes(ax, name if x is None else x, name if y is None else y, xyswap)
    return panels


def first_names(names: Sequence[str], between: str, most: int) -> str:
    """Return the first of some names, and how many more there are."""
    rest = len(names) - most
    return between.join(names[:most]) + (f"{between}+ {rest} more" if rest > 0 else "")


def name_rows(ax: Axes, names: Sequence[Any]) -> None:
    """Name the rows of a chart, the first on top."""
    ax.set_yticks(np.arange(len(names)), [str(n) for n in names])
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.grid(axis="y", color="0.9", linewidth=0.6)
    ax.set_axisbelow(True)


def name_columns(ax: Axes, names: Sequence[str]) -> None:
    """Name the columns of a chart, slanted where the names are wide."""
    inches = (max(map(len, names), default=0) + 2) * len(names) * 0.09
    wide = inches > ax.get_window_extent().width / ax.figure.figure.dpi
    ax.set_xticks(np.arange(len(names)), list(names), rotation=30 if wide else 0, ha="right" if wide else "center")
    ax.set_xlim(-0.5, len(names) - 0.5)


def bins_of(values: Any) -> Any:
    """Return the bins of a histogram, as matplotlib takes them: few of many values."""
    return "auto" if len(values) < 2000 else 40


def zero_line(ax: Axes, *, upright: bool = False) -> None:
    """Draw the line where a quantity is zero."""
    (ax.axvline if upright else ax.axhline)(0.0, color="0.6", linewidth=0.8, zorder=0)


def _checked(ax: Any, argument: str) -> Axes:
    if not _is_axes(ax):
        raise ArgumentError(
            f"`{argument}` must be matplotlib Axes; got {type(ax).__name__}. plt.subplots() makes them."
        )
    return ax  # type: ignore[no-any-return]    # known by what it offers, so that matplotlib need not be imported


def _is_axes(ax: Any) -> bool:
    return hasattr(ax, "plot") and hasattr(ax, "get_figure")


def legend_location(legpos: str | None) -> str | None:
    """Return matplotlib's word for a legend's position, from R's ("topleft") or its own; None and "above" stay.

    Examples
    --------
    >>> legend_location("topright")
    'upper right'
    """
    if legpos is None or (isinstance(legpos, str) and legpos in _LOCATIONS):
        return _LOCATIONS.get(legpos or "")
    raise ArgumentError(
        f"`legpos={legpos!r}` is not known. Choose one of {listed(_LOCATIONS, 10)}, a word of matplotlib, or None for "
        f"no legend.{did_you_mean(legpos, list(_LOCATIONS))}"
    )


class _AsTheLegend:
    """Locator of an empty Axes: where the legend is."""

    def __init__(self, ax: Axes) -> None:
        self.ax = ax

    def __call__(self, _: Any, renderer: Any) -> Any:
        legend, back = self.ax.get_legend(), self.ax.figure.transSubfigure.inverted()
        box = self.ax.bbox if legend is None else legend.get_window_extent(renderer)
        return box.transformed(back)


def add_legend(ax: Axes, legpos: str = "above") -> None:
    """Draw the legend of the labelled artists of a panel, if any; the title of an earlier legend remains.

    "above" the panel it covers nothing, and a title that is set later goes above the legend: titles keep clear of an
    Axes' children, but not of its legend, so that an empty child lies where the legend is.
    """
    handles, labels = ax.get_legend_handles_labels()
    if not labels:
        return
    extent = ax.get_window_extent()
    width = extent.width
    in_points = width * 72 / ax.figure.figure.dpi
    wrapped = [fill(line, max(12, int(in_points / _LETTER) - 4), subsequent_indent=_WRAP[1:], break_long_words=False)
               for line in _legend_title(ax).split("\n")]  # fmt: skip
    look: dict[str, Any] = {"title": "\n".join(wrapped) or None, "fontsize": "small", "title_fontsize": "small"}
    if legpos != "above":
        ax.legend(handles, labels, **{**look, "loc": legend_location(legpos), "ncols": 1 + (len(labels) - 1) // 10})
        return
    if not any(isinstance(child.get_axes_locator(), _AsTheLegend) for child in ax.child_axes):
        space = ax.inset_axes((0.0, 1.0, 1.0, 0.0))
        space.set_axis_off()
        space.set_in_layout(False)
        space.set_axes_locator(_AsTheLegend(ax))
    points = sum(_LETTER * len(label) + 26 for label in labels)  # of a label, its handle and the space around it
    ncols = -(-len(labels) // max(1, int(np.ceil(points / (1.1 * in_points)))))  # at most: it is measured then
    for n in range(ncols, 0, -1):  # columns are as wide as the longest label in them
        above = ax.legend(handles, labels, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=n, frameon=False,
                          alignment="left", borderaxespad=0.2, handlelength=1.4, columnspacing=1.0, **look)  # fmt: skip
        if above.get_window_extent().width < min(1.1 * width, ax.figure.figure.bbox.x1 - extent.x0):
            break
