"""Axes to draw on: the given ones, or new ones; what every picture of fmepy does in the same way.

A picture takes ``ax`` (one panel) or ``axes`` (several), draws, and returns what it drew on. It never calls
``plt.show()`` and changes no setting.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

import numpy as np

from fmepy.errors import ArgumentError, did_you_mean, listed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    AxesArray = NDArray[np.object_]

P = ParamSpec("P")
R = TypeVar("R")

_SHORT = {
    "c": "color",
    "ec": "edgecolor",
    "fc": "facecolor",
    "ls": "linestyle",
    "lw": "linewidth",
    "mec": "markeredgecolor",
    "mew": "markeredgewidth",
    "mfc": "markerfacecolor",
    "ms": "markersize",
}

SETTINGS = ("xlabel", "ylabel", "xlim", "ylim", "xscale", "yscale", "xticks", "yticks", "title")
"""Keywords of every picture that go to its panels."""

_LISTS = ("xlim", "ylim", "xticks", "yticks")

_R_LOCATIONS = {
    "bottomright": "lower right",
    "bottom": "lower center",
    "bottomleft": "lower left",
    "left": "center left",
    "topleft": "upper left",
    "top": "upper center",
    "topright": "upper right",
    "right": "center right",
    "center": "center",
}
_MATPLOTLIB_LOCATIONS = ["best", "upper right", "upper left", "lower left", "lower right", "right", "center left",
                         "center right", "lower center", "upper center", "center"]  # fmt: skip


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
    own = {k for k, v in inspect.signature(draw).parameters.items() if v.kind is not v.VAR_KEYWORD}

    @wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> R:
        given = cast(dict[str, Any], kwargs)
        for short in [k for k in given if k in _SHORT]:
            if _SHORT[short] in given:
                raise ArgumentError(f"`{short}` and `{_SHORT[short]}` are the same; give one of them.")
            given[_SHORT[short]] = given.pop(short)
        _check_keywords(draw.__name__, given, own)
        settings = {k: given.pop(k) for k in SETTINGS if k in given}
        figsize = given.pop("figsize", None)
        legpos = given.pop("legpos", "above")
        legend_location(legpos)
        given_axes = given.get("ax") is not None or given.get("axes") is not None
        if figsize is not None and given_axes:
            raise ArgumentError("`figsize` is the size of a new figure; the Axes given have one already. Leave it out.")
        before = set() if given_axes else _figures()
        try:
            out = draw(*args, **kwargs)
            panels = np.asarray(out, dtype=object)
            if panels.size:
                _finish(panels, settings, figsize, legpos)
        except Exception as error:
            if not given_axes:  # nothing half drawn is left
                _close(_figures() - before)
            if isinstance(error, (AttributeError, TypeError)) and "keyword argument" in str(error):
                raise ArgumentError(f"{draw.__name__} cannot draw with these keywords: {error}.") from error
            raise
        return out

    return drawn


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
        if key not in known:
            raise ArgumentError(
                f"{name} takes no keyword `{key}`.{did_you_mean(key, sorted(known))} It takes "
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
    methods = (Axes.plot, Axes.hist, Axes.barh, Axes.boxplot, Axes.stairs, Axes.errorbar, Axes.step)
    words |= {w for method in methods for w in inspect.signature(method).parameters}
    return frozenset(words | {"colors", "linewidths", "linestyles"}) - {"self", "x", "y", "args", "kwargs", "data"}


def _finish(panels: AxesArray, settings: dict[str, Any], figsize: Any, legpos: str | None) -> None:
    """Apply what the user asked of the panels that are drawn."""
    flat: list[Axes] = panels.ravel().tolist()
    if panels.ndim == 2 and isinstance(settings.get("title"), str):
        flat[0].figure.figure.suptitle(settings.pop("title"))
    for key, value in settings.items():
        for ax, one in zip(flat, one_per_panel(key, value, len(flat)), strict=True):
            if one is not None:
                ax.set(**{key: one})
    if figsize is not None:
        flat[0].figure.figure.set_size_inches(figsize)
    for ax in flat:
        _place_legend(ax, legpos)


def _place_legend(ax: Axes, legpos: str | None) -> None:
    """Put the legend of a panel, drawn above it, where it is wanted."""
    legend = ax.get_legend()
    if legend is None or legpos == "above":
        return
    legend.remove()
    if legpos is not None:
        labels = [text.get_text() for text in legend.get_texts()]
        title = legend.get_title().get_text() or None
        look: dict[str, Any] = {"loc": legend_location(legpos), "ncols": 1 + (len(labels) - 1) // 10}
        ax.legend([h for h in legend.legend_handles if h is not None], labels, title=title, fontsize="small",
                  title_fontsize="small", **look)  # fmt: skip


def _figures() -> set[int]:
    import matplotlib.pyplot as plt

    return set(plt.get_fignums())


def _close(figures: set[int]) -> None:
    import matplotlib.pyplot as plt

    for number in figures:
        plt.close(number)


def one_per_panel(key: str, value: Any, n: int) -> list[Any]:
    """Return the value of a keyword for each of `n` panels: one for all, or a list of n (limits: a list of pairs)."""
    is_list = isinstance(value, (list, np.ndarray))
    if is_list and key in _LISTS and all(np.ndim(v) == 0 for v in value):
        is_list = False  # one pair, or one row of ticks, for all
    if not is_list:
        return [value] * n
    if len(value) == 1:
        return [value[0]] * n
    if len(value) != n:
        raise ArgumentError(f"`{key}` has {len(value)} values for {n} panels. Give one for all, or a list of {n}.")
    return list(value)


def set_axes(ax: Axes, x_name: str, name: str, xyswap: bool = False) -> None:
    """Label a panel, and let x go down if it stands on the vertical axis."""
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
        Width and height of one panel of the new figure, inches.
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
        figure, grid = plt.subplots(
            nrows, ncols, squeeze=False, layout="constrained", figsize=(panel[0] * ncols, panel[1] * nrows), **kwargs
        )
        for spare in grid.flat[n:]:
            figure.delaxes(spare)
        return _flat(list(grid.flat[:n]))
    given = list(np.ravel(np.asarray(axes, dtype=object)))
    if len(given) < n:
        raise ArgumentError(f"`axes` holds {len(given)} Axes; {n} are needed, one per panel.")
    return _flat([_checked(a, "axes") for a in given[:n]])


def square_of(n: int, axes: Any, panel: tuple[float, float]) -> AxesArray:
    """Return n by n Axes, those given or new ones: what is drawn of every two of n quantities."""
    return get_axes(n * n, axes, ncols=n, panel=panel).reshape(n, n)


def write_in(ax: Axes, text: str, size: Any) -> None:
    """Write a text into the middle of a panel without ticks."""
    ax.set(xticks=[], yticks=[])
    ax.text(0.5, 0.5, text, ha="center", va="center", fontsize=size, transform=ax.transAxes)


def write_correlation(ax: Axes, x: Any, y: Any) -> None:
    """Write the correlation of two quantities into a panel, the larger the stronger it is; "-" where there is none."""
    if len(x) < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        write_in(ax, "-", 8)
    else:
        r = float(np.corrcoef(x, y)[0, 1])
        write_in(ax, f"{r:.2f}", 8 + 10 * abs(r))


def _flat(items: list[Axes]) -> AxesArray:
    out = np.empty(len(items), dtype=object)
    out[:] = items
    return out


def _checked(ax: Any, argument: str) -> Axes:
    if not hasattr(ax, "plot") or not hasattr(ax, "get_figure"):
        raise ArgumentError(
            f"`{argument}` must be matplotlib Axes; got {type(ax).__name__}. plt.subplots() makes them."
        )
    return ax  # type: ignore[no-any-return]    # told by its face, so that matplotlib need not be imported


def legend_location(legpos: str | None) -> str | None:
    """Return matplotlib's word for a legend's position, from R's ("topleft") or its own; None and "above" stay.

    Examples
    --------
    >>> legend_location("topright")
    'upper right'
    """
    if legpos is None or legpos == "above":
        return legpos
    if legpos in _R_LOCATIONS:
        return _R_LOCATIONS[legpos]
    if legpos in _MATPLOTLIB_LOCATIONS:
        return legpos
    known = ["above", *_R_LOCATIONS, *_MATPLOTLIB_LOCATIONS]
    raise ArgumentError(
        f"`legpos={legpos!r}` is not known. Choose 'above', one of {listed(_R_LOCATIONS)}, a word of matplotlib, or "
        f"None for no legend.{did_you_mean(legpos, known)}"
    )


class _AsTheLegend:
    """Locator of an empty Axes: where the legend is."""

    def __init__(self, ax: Axes) -> None:
        self.ax = ax

    def __call__(self, _: Any, renderer: Any) -> Any:
        legend, back = self.ax.get_legend(), self.ax.figure.transSubfigure.inverted()
        box = self.ax.bbox if legend is None else legend.get_window_extent(renderer)
        return box.transformed(back)


def add_legend(
    ax: Axes, handles: Sequence[Any] | None = None, labels: Sequence[str] | None = None, *, title: str | None = None
) -> None:
    """Draw the legend above the panel, where it covers nothing; a title given later goes above the legend.

    Without handles and labels: those of the labelled artists of `ax`, if there are any. `picture` moves it where
    ``legpos`` says.

    Titles keep clear of an Axes' children, but not of its legend: an empty child lies where the legend is.
    """
    if handles is None or labels is None:
        handles, labels = ax.get_legend_handles_labels()
    if not labels:
        return
    if not any(isinstance(child.get_axes_locator(), _AsTheLegend) for child in ax.child_axes):
        space = ax.inset_axes((0.0, 1.0, 1.0, 0.0))
        space.set_axis_off()
        space.set_in_layout(False)
        space.set_axes_locator(_AsTheLegend(ax))
    points = sum(4.4 * len(label) + 26 for label in labels)  # of small letters, a handle and the space around it
    width = 1.1 * ax.get_window_extent().width * 72 / ax.figure.figure.dpi
    ncols = -(-len(labels) // max(1, int(np.ceil(points / width))))
    ax.legend(handles, labels, title=title, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=ncols, frameon=False,
              fontsize="small", title_fontsize="small", alignment="left", borderaxespad=0.2, handlelength=1.4,
              columnspacing=1.0)  # fmt: skip
