"""The result of several starts: which of them reached the same optimum, and whether a better one may have been missed.

With F the minimised function in units of -2 log L (for residuals of unknown error ``n log ssr``), two searches **came
to the same value** if theirs differ by less than 0.1, a tenth of what one standard error is worth. They came to **the
same optimum** if the parameters are the same, too: if they differ by less than a thousandth (of the box, on the scale
on which starts are drawn in it; of their size, without one), or if F stays within 0.1 of the higher end on the straight
line between them, looked at in three places, or on a chain of such lines through others. So a valley along which the
data do not tell parameters apart is one optimum, and two that mirror each other are two. An optimum is one if at least
one of its searches converged; what ended on a plateau, at a limit, or nowhere has the number 0.

**What may have been missed.** Of n searches that came to w optima, the expected share of the starts that would lead to
an optimum which none has come to is, a posteriori, with nothing known of the shares before (Boender and Rinnooy Kan)::

    missed = w (w + 1) / (n (n - 1))

It is the chance that the next start finds another optimum: an upper estimate of the chance that it finds a better one.
It speaks of optima as wide as those that were found: one in a very narrow valley is missed by every such count.

References
----------
Boender, C. G. E. and Rinnooy Kan, A. H. G. (1987). Bayesian stopping rules for multistart global optimization methods.
Math. Programming 37, 59-80, theorem 3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from fmepy.errors import check_choice, counted
from fmepy.results.tables import Part, Shown, bullets, table
from fmepy.types import Axes, BoolVector, IntVector, Matrix, Vector

SAME = 0.1
"""In -2 log L: searches that came so near came to the same value."""
_BESIDE = 1e-3  # of the box, or of a parameter's size: no distance
_ON_THE_LINE = (0.25, 0.5, 0.75)
_MOST_SHOWN = 8


@dataclass(frozen=True, eq=False, repr=False)
class MultiStart(Shown):
    """The result of several starts.

    Attributes
    ----------
    starts : DataFrame
        One row a start, as ``fit.starts``.
    optima : DataFrame
        One row an optimum, the best first: `optimum` (its number, from 1), `value`, `count` (starts that came to it),
        and the parameters of its best.
    reached : int
        How many starts came to the best value.
    replaced : int
        Starts whose cost failed and which were drawn anew before any search.
    missed : float
        The chance that a further start finds an optimum that none has come to; see the module's text. NaN without any
        start that came to an optimum.
    above : Series
        By how much the value of a start is above the best, in units of -2 log L; NaN where it failed.
    scales : dict of str to str
        How each parameter was drawn: "log", "linear", "around p", or "given".
    label : str
        What `value` is.
    lower, upper : Series
        The box.
    interrupted : bool
    """

    starts: pd.DataFrame
    optima: pd.DataFrame
    reached: int
    replaced: int
    missed: float
    above: pd.Series
    scales: dict[str, str]
    label: str
    lower: pd.Series = field(repr=False)
    upper: pd.Series = field(repr=False)
    interrupted: bool = False

    same: ClassVar[float] = SAME

    def shown(self) -> Iterable[str | Part]:
        """Return the messages and the optima."""
        n, ended = len(self.starts), int(self.above.notna().sum())
        yield f"{n} starts, {self.reached} of them reached the best value ({self.label})."
        yield from bullets(self._sentences(n, ended))
        if len(self.optima):
            yield table(self.optima.head(_MOST_SHOWN), "{:.6g}", index=False)
        if len(self.optima) > _MOST_SHOWN:
            yield f"[{len(self.optima)} optima; `optima` holds them all]"

    def _sentences(self, n: int, ended: int) -> Iterable[str]:
        nowhere = int((self.above.notna() & (self.starts["optimum"] == 0)).sum())
        if self.replaced:
            be = "was" if self.replaced == 1 else "were"
            yield f"{counted(self.replaced, 'start')} at which the cost fails {be} replaced by others."
        if self.interrupted:
            yield f"Ctrl-C: {ended} of {n} starts were run."
        elif ended < n:
            yield f"{counted(n - ended, 'start')} came to no result; `starts` says why."
        if nowhere:
            why = "(a plateau, a limit, a search that ran away); `starts` says why."
            yield f"{counted(nowhere, 'start')} did not converge {why}"
        if not len(self.optima):
            yield "No start converged: this is no optimum. Give bounds, other starts, or another method."
            return
        w = len(self.optima)
        here = int((self.above.groupby(self.starts["optimum"]).min().drop(0, errors="ignore") <= SAME).sum())
        yield (
            f"{w} {'optimum' if w == 1 else 'optima'}; the chance that a further start finds another one is about "
            f"{self.missed:.2g}."
        )
        if self.reached == 1 and ended > 1:
            yield "Only one start came to the best: more of them may find a better one."
        if here > 1:
            yield f"{here} optima have the same value: the data do not tell between them."
        if self.starts["optimum"].iloc[int(np.nanargmin(self.above))] == 0:
            yield "The best value is that of a start that did not converge: it may be lowered further."

    def plot(self, kind: str = "waterfall", *, ax: Any = None, **kwargs: Any) -> Axes:
        """Draw the values in rising order, or the parameters by start, coloured by optimum; return the Axes.

        Parameters
        ----------
        kind : {"waterfall", "parameters"}
        ax : Axes, optional
        **kwargs
            Settings of all pictures; the rest goes to the points.
        """
        from fmepy.plotting.starts import plot_parameters, plot_waterfall

        check_choice(kind, ("waterfall", "parameters"), "kind")
        drawn: Axes = (plot_waterfall if kind == "waterfall" else plot_parameters)(self, ax=ax, **kwargs)
        return drawn


def missed_share(n: int, w: int) -> float:
    """Return the expected share of starts that lead to an optimum not found yet, of n that came to w optima.

    Examples
    --------
    >>> missed_share(100, 1), missed_share(20, 4), missed_share(1, 1)
    (0.0002020..., 0.0526..., 1.0)
    """
    if w == 0:
        return np.nan
    return min(w * (w + 1) / (n * (n - 1)), 1.0) if n > 1 else 1.0


def optimum_numbers(
    above: Vector, unit: Matrix, converged: BoolVector, between: Callable[[Matrix], Vector] | None
) -> IntVector:
    """Return the number of the optimum that each search came to, from 1, the best first; 0 for none.

    Parameters
    ----------
    above : ndarray, shape (n,)
        F above the best, in units of -2 log L; NaN where there is no result.
    unit : ndarray, shape (n, n_par)
        Where the searches ended, on the scales of the parameters.
    converged : ndarray of bool, shape (n,)
    between : callable, optional
        Returns F above the best at other places, shape (m,), infinite where it fails; None: nothing more is evaluated.
    """
    numbers = np.zeros(above.size, dtype=np.intp)
    order = np.argsort(above, kind="stable")[: np.count_nonzero(~np.isnan(above))]
    count = 0
    while order.size:
        level = order[above[order] <= above[order[0]] + SAME]  # those that came to the same value
        order = order[level.size :]
        if not converged[level].any():
            continue
        labels = _connected(above[level], unit[level], between)
        for label in dict.fromkeys(labels.tolist()):  # in the order of their best
            members = level[labels == label]
            if converged[members].any():
                count += 1
                numbers[members] = count
    return numbers


def _connected(above: Vector, unit: Matrix, between: Callable[[Matrix], Vector] | None) -> IntVector:
    """Return which ends are of one optimum: their nearest neighbours are, and so on; see the module's text."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components, minimum_spanning_tree

    n = above.size
    if n == 1:
        return np.zeros(1, dtype=np.intp)
    distances = np.zeros((n, n))
    for column in unit.T:
        np.maximum(distances, np.abs(column[:, None] - column), out=distances)
    tree = minimum_spanning_tree(distances + 1).tocoo()  # it takes what is all but zero for no edge
    a, b = tree.row, tree.col
    joined = distances[a, b] <= _BESIDE
    far = np.flatnonzero(~joined)
    if between is not None and far.size:
        t = np.array(_ON_THE_LINE)[None, :, None]
        line = (1 - t) * unit[a[far], None] + t * unit[b[far], None]
        highest = between(line.reshape(-1, unit.shape[1])).reshape(far.size, -1).max(axis=1)
        joined[far] = highest <= np.maximum(above[a[far]], above[b[far]]) + SAME
    edges = coo_array((np.ones(int(joined.sum())), (a[joined], b[joined])), shape=(n, n))
    return np.asarray(connected_components(edges, directed=False)[1], dtype=np.intp)
