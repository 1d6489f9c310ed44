"""Statistics of draws x, shape (n_chain, n_draw): running means and quantiles, ranks by chain, autocorrelations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy  # its rooms are loaded where they are asked for

from fmepy.checks import whole_number
from fmepy.errors import ArgumentError
from fmepy.types import ArrayLike, Cube, IntVector, Matrix, Vector


def checked(x: ArrayLike) -> Matrix:
    """Return draws of one quantity, shape (n_chain, n_draw); a single series is one chain."""
    draws = np.asarray(x, dtype=float)
    if draws.ndim == 1:
        draws = draws[None]
    if draws.ndim != 2 or draws.size == 0:
        raise ArgumentError(f"`x` must have the shape (n_chain, n_draw) and hold draws; its shape is {draws.shape}.")
    return draws


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
    ranks = scipy.stats.rankdata(draws, method="average").reshape(draws.shape) - 0.5
    edges = np.linspace(0, draws.size, bins + 1)
    return edges, np.array([np.histogram(r, edges)[0] for r in ranks], dtype=float)


def autocovariance(z: Matrix) -> Matrix:
    """Return the autocovariances of each row at lags 0 .. n - 1, divisor n."""
    n = z.shape[1]
    centred = z - z.mean(axis=1, keepdims=True)
    size = scipy.fft.next_fast_len(2 * n, real=True)
    power = np.abs(scipy.fft.rfft(centred, size, axis=1)) ** 2
    return np.asarray(scipy.fft.irfft(power, size, axis=1)[:, :n] / n)


def autocorrelation(x: ArrayLike, max_lag: int | None = None) -> Matrix:
    """Return the autocorrelations of each chain at lags 0 .. max_lag.

    Parameters
    ----------
    x : array_like, shape (n_chain, n_draw) or (n_draw,)
    max_lag : int, optional
        At most n_draw - 1, which is what a larger one becomes; R's 10 log10(n_draw) by default.

    Returns
    -------
    ndarray, shape (n_chain, max_lag + 1)
        NaN for a chain that never changes or holds what is not finite.

    Examples
    --------
    >>> autocorrelation([1.0, 2.0, 3.0, 4.0], 1).round(6).tolist()
    [[1.0, 0.25]]
    """
    draws = checked(x)
    n = draws.shape[1]
    lag = int(10 * np.log10(max(n, 1))) if max_lag is None else whole_number(max_lag, "max_lag")
    lag = min(lag, n - 1)
    out = np.full((len(draws), lag + 1), np.nan)
    for i, chain in enumerate(draws):
        if np.isfinite(chain).all() and np.ptp(chain) > 0:
            covariance = autocovariance(chain[None])[0, : lag + 1]
            out[i] = covariance / covariance[0]
    return out
