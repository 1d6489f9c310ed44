"""Axes to draw on: the given ones, or new ones; what every picture of fmepy does in the same way.

A picture takes ``ax`` (one panel) or ``axes`` (several), draws, and returns what it drew on. It never calls
``plt.show()`` and changes no setting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import numpy as np

from fmepy.errors import ArgumentError, did_you_mean, listed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    AxesArray = NDArray[np.object_]

__all__ = ["add_legend", "check_which", "get_ax", "get_axes", "legend_location", "spelled_out"]

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


def spelled_out(picture: Callable[P, R]) -> Callable[P, R]:
    """Return a function that draws, which understands matplotlib's short keywords (`lw`, `c`) as its own long ones.

    A picture has settings under the long names, and matplotlib takes no two names of one thing.
    """

    @wraps(picture)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> R:
        for short in [k for k in kwargs if k in _SHORT]:
            if _SHORT[short] in kwargs:
                raise ArgumentError(f"`{short}` and `{_SHORT[short]}` are the same; give one of them.")
            kwargs[_SHORT[short]] = kwargs.pop(short)
        return picture(*args, **kwargs)

    return drawn


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
            nrows,
            ncols,
            squeeze=False,
            layout="constrained",
            figsize=(panel[0] * ncols, panel[1] * nrows),
            **kwargs,
        )
        for spare in grid.flat[n:]:
            figure.delaxes(spare)
        return _flat(list(grid.flat[:n]))
    given = list(np.ravel(np.asarray(axes, dtype=object)))
    if len(given) < n:
        raise ArgumentError(f"`axes` holds {len(given)} Axes; {n} are needed, one per panel.")
    return _flat([_checked(a, "axes") for a in given[:n]])


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
    """Return matplotlib's word for a legend's position, from R's ("topleft") or its own ("upper left"); None stays.

    Examples
    --------
    >>> legend_location("topright")
    'upper right'
    """
    if legpos is None:
        return None
    if legpos in _R_LOCATIONS:
        return _R_LOCATIONS[legpos]
    if legpos in _MATPLOTLIB_LOCATIONS:
        return legpos
    known = [*_R_LOCATIONS, *_MATPLOTLIB_LOCATIONS]
    raise ArgumentError(
        f"`legpos={legpos!r}` is not known. Choose one of {listed(_R_LOCATIONS)}, a word of matplotlib, or None for no "
        f"legend.{did_you_mean(legpos, known)}"
    )


def add_legend(ax: Axes, legpos: str | None = "best", **kwargs: Any) -> None:
    """Draw a legend of the labelled artists of `ax`, if there are any and `legpos` is not None."""
    location = legend_location(legpos)
    if location is not None and ax.get_legend_handles_labels()[0]:
        ax.legend(**{"loc": location, **kwargs})


def check_which(
    which: str | int | Sequence[str | int] | None,
    known: Sequence[str],
    *,
    argument: str = "which",
    what: str = "variable",
) -> list[str]:
    """Return the names of `known` that `which` selects, in its order: names, positions from 0, or None for all.

    Raises
    ------
    ArgumentError
        A name that is not there, with the nearest that is; a position outside.

    Examples
    --------
    >>> check_which(["Sub", 0], ["Bact", "Sub"])
    ['Sub', 'Bact']
    """
    if which is None:
        return list(known)
    wanted = [which] if isinstance(which, (str, int, np.integer)) else list(which)
    return [_one_of(w, known, argument, what) for w in wanted]


def _one_of(wanted: object, known: Sequence[str], argument: str, what: str) -> str:
    if isinstance(wanted, (int, np.integer)) and not isinstance(wanted, bool):
        if 0 <= wanted < len(known):
            return known[int(wanted)]
        raise ArgumentError(f"`{argument}`: there is no {what} {wanted}; positions go from 0 to {len(known) - 1}.")
    if wanted in known:
        return str(wanted)
    raise ArgumentError(
        f"`{argument}`: there is no {what} {str(wanted)!r}.{did_you_mean(wanted, known)} There are {listed(known)}."
    )
