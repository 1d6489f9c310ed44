"""What pictures of chains show: running means and quantiles, ranks by chain."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import stats

from fmepy.checks import whole_number
from fmepy.mcmc.draws import checked
from fmepy.types import ArrayLike, Cube, IntVector, Matrix, Vector


def running_mean(x: ArrayLike) -> Matrix:
    """Return the mean of the draws up to each, shape (n_chain, n_draw).

    Examples
    --------
    >>> running_mean([1.0, 2.0, 6.0]).tolist()
    [[1.0, 1.5, 3.0]]
    """
    draws = checked(x)
    return np.asarray(np.cumsum(draws, axis=1) / np.arange(1, draws.shape[1] + 1))


def running_quantiles(
    x: ArrayLike, probabilities: Sequence[float] = (0.025, 0.5, 0.975), n_point: int = 100
) -> tuple[IntVector, Cube]:
    """Return quantiles of the first draws of each chain, at some numbers of draws.

    Parameters
    ----------
    x : array_like, shape (n_chain, n_draw) or (n_draw,)
    probabilities : sequence of float
    n_point : int
        At most so many numbers of draws, evenly spaced up to all.

    Returns
    -------
    counts : ndarray of int, shape (n_point,)
        How many draws were used.
    quantiles : ndarray, shape (n_chain, n_point, n_probability)

    Examples
    --------
    >>> counts, quantiles = running_quantiles([4.0, 2.0, 3.0], (0.0, 0.5))
    >>> counts.tolist(), quantiles.tolist()
    ([1, 2, 3], [[[4.0, 4.0], [2.0, 3.0], [2.0, 3.0]]])
    """
    draws = checked(x)
    n = draws.shape[1]
    counts = np.unique(np.linspace(n / min(n_point, n), n, min(n_point, n)).round().astype(np.intp))
    found = [np.quantile(draws[:, :k], probabilities, axis=1).T for k in counts]
    return counts, np.stack(found, axis=1)


def rank_counts(x: ArrayLike, bins: int = 20) -> tuple[Vector, Matrix]:
    """Return how many ranks of each chain fall in each part of the pooled ranks: even if the chains agree.

    Parameters
    ----------
    x : array_like, shape (n_chain, n_draw) or (n_draw,)
    bins : int

    Returns
    -------
    edges : ndarray, shape (bins + 1,)
        From 0 to the number of all draws.
    counts : ndarray, shape (n_chain, bins)

    Examples
    --------
    >>> edges, counts = rank_counts([[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]], bins=2)
    >>> edges.tolist(), counts.tolist()
    ([0.0, 4.0, 8.0], [[4.0, 0.0], [0.0, 4.0]])
    """
    draws = checked(x)
    bins = whole_number(bins, "bins", 1)
    ranks = stats.rankdata(draws, method="average").reshape(draws.shape) - 0.5
    edges = np.linspace(0, draws.size, bins + 1)
    return edges, np.array([np.histogram(r, edges)[0] for r in ranks], dtype=float)
