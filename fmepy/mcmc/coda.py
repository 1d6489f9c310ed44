"""The diagnostics of R's package coda: spectra, transients (Geweke), lengths (Raftery and Lewis).

Pure functions of draws; NaN stands for "cannot be said", see `diagnostics`.

**Spectral density at zero** (coda's ``spectrum0.ar``). Yule-Walker estimates of an autoregression of order k, chosen
among 0 .. 10 log10(n) by AIC = n log(v_k) + 2 k, v_k being the innovations' variance of Levinson's recursion::

    S(0) = v / (1 - sum a_i)^2,        v = v_k n / (n - k - 1)

coda's ``effectiveSize`` is n var(x) / S(0), summed over chains, and its ``geweke.diag`` compares the means of the first
tenth, A, and of the last half, B, of each chain::

    z = (mean(A) - mean(B)) / sqrt(S_A(0) / n_A + S_B(0) / n_B)

**Raftery and Lewis' length** (1992). How many draws give the q quantile to +- r in probability, with probability s? The
series of x <= quantile is thinned by the smallest k with which BIC prefers a first to a second order Markov chain. With
a, b the thinned series' probabilities of going 0 -> 1 and 1 -> 0, and w the normal quantile at (1 + s) / 2::

    burn-in   M = k ceil(log(e (a + b) / max(a, b)) / log |1 - a - b|),        e = 0.001
    then          k ceil((2 - a - b) a b w^2 / ((a + b)^3 r^2)),    total N with the burn-in
    were the draws independent: N_min = ceil(q (1 - q) w^2 / r^2)

References
----------
Geweke, J. (1992). Evaluating the accuracy of sampling-based approaches to the calculation of posterior moments. In:
Bayesian Statistics 4, Oxford University Press, 169-193.

Raftery, A. E., Lewis, S. M. (1992). How many iterations in the Gibbs sampler? In: Bayesian Statistics 4, 763-773.

Plummer, M., Best, N., Cowles, K., Vines, K. (2006). CODA: convergence diagnosis and output analysis for MCMC. R News 6,
7-11. (Its numbers are met; its manual pages say what is computed.)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy  # its rooms are loaded where they are asked for

from fmepy.checks import between_0_and_1
from fmepy.errors import ArgumentError
from fmepy.mcmc.convergence import FEWEST
from fmepy.numerics.draw_statistics import autocovariance, checked
from fmepy.types import ArrayLike, Vector

_FEWEST_GEWEKE = 50  # so that the first tenth has five


class RafteryLewis(NamedTuple):
    """How long a chain must be for one quantile.

    Attributes
    ----------
    burnin : float
        Draws to drop first, M.
    total : float
        Draws needed, burn-in included, N.
    minimum : int
        Draws that would do were they independent, N_min.
    dependence : float
        total / minimum; above 5 the chain moves slowly.
    thin : float
        Distance of draws at which they are a first order Markov chain, k.
    """

    burnin: float
    total: float
    minimum: int
    dependence: float
    thin: float


def spectrum0_ar(x: ArrayLike) -> tuple[float, int]:
    """Return the spectral density at zero by a fitted autoregression, and the order of it.

    Parameters
    ----------
    x : array_like, shape (n_draw,)
        One series.

    Returns
    -------
    density : float
        In the squared unit of `x`; the variance of the mean of n draws is density / n. 0 for a constant series, NaN
        for fewer than 3 draws or draws that are not finite.
    order : int

    Examples
    --------
    >>> density, order = spectrum0_ar(np.random.default_rng(1).normal(size=5000))
    >>> order, round(density, 1)
    (0, 1.0)
    """
    series = np.asarray(x, dtype=float)
    if series.ndim != 1:
        raise ArgumentError(f"`x` must be one series; its shape is {series.shape}.")
    n = len(series)
    if n < 3 or not np.isfinite(series).all():
        return np.nan, 0
    if np.ptp(series) == 0:
        return 0.0, 0
    return _yule_walker(autocovariance(series[None])[0], n)


def _yule_walker(c: Vector, n: int) -> tuple[float, int]:
    """Return S(0) and the order by Levinson's recursion on the autocovariances c."""
    a = np.empty(0)
    v = float(c[0])
    best = (n * np.log(v), 0, v, 0.0)
    for k in range(1, min(n - 2, int(10 * np.log10(n))) + 1):
        reflection = (c[k] - a @ c[k - 1 : 0 : -1]) / v
        a = np.append(a - reflection * a[::-1], reflection)
        v *= 1 - reflection**2
        if v <= 0:  # a series without innovations, to rounding
            break
        best = min(best, (n * np.log(v) + 2 * k, k, v, float(a.sum())))
    _, order, v, total = best
    return float(v * n / (n - order - 1) / (1 - total) ** 2), order


def effective_size_coda(x: ArrayLike) -> float:
    """Return coda's effective size: n var / S(0), summed over chains.

    Parameters
    ----------
    x : array_like, shape (n_chain, n_draw) or (n_draw,)

    Returns
    -------
    float
        NaN if one of the chains never changes, is shorter than 3 draws or holds what is not finite.

    Notes
    -----
    Chains that disagree do not lower it, as they do `ess_bulk`, which is the one to go by.
    """
    draws = checked(x)
    densities = np.array([spectrum0_ar(chain)[0] for chain in draws])
    if not (densities > 0).all():  # also where it is NaN
        return np.nan
    return float((draws.shape[1] * draws.var(axis=1, ddof=1) / densities).sum())


def geweke(x: ArrayLike, first: float = 0.1, last: float = 0.5) -> Vector:
    """Return z of the difference of the means of the beginning and the end, one per chain; beyond +-2 is a transient.

    Parameters
    ----------
    x : array_like, shape (n_chain, n_draw) or (n_draw,)
    first, last : float
        Shares of the chain that are compared; together at most 1.

    Returns
    -------
    ndarray, shape (n_chain,)
        NaN for a chain of fewer than 50 draws, one whose two parts never change, or one that holds what is not finite.

    Raises
    ------
    ArgumentError
        Shares that are not positive, or overlap.
    """
    if not (first > 0 and last > 0 and first + last <= 1):
        raise ArgumentError(
            f"`first={first!r}` and `last={last!r}` must be positive, their sum at most 1, or the parts overlap."
        )
    return np.array([_geweke_z(chain, first, last) for chain in checked(x)])


def _geweke_z(chain: Vector, first: float, last: float) -> float:
    n = len(chain)
    if n < _FEWEST_GEWEKE or not np.isfinite(chain).all():
        return np.nan
    # a draw that a limit cuts belongs to the part; to rounding, so that 0.1 of 101 draws is 11 of them
    begin = chain[: int(np.ceil(first * (n - 1) - 1e-9)) + 1]
    end = chain[int(np.floor((1 - last) * (n - 1) + 1e-9)) :]
    variance = sum(spectrum0_ar(part)[0] / len(part) for part in (begin, end))
    if not variance > 0:
        return np.nan
    return float((begin.mean() - end.mean()) / np.sqrt(variance))


def raftery_lewis(
    x: ArrayLike, q: float = 0.025, r: float = 0.005, s: float = 0.95, *, tolerance: float = 0.001
) -> RafteryLewis:
    """Return how long a chain must be for its q quantile to be right to +- r in probability.

    Parameters
    ----------
    x : array_like, shape (n_draw,)
        One chain.
    q : float
        The quantile, a probability.
    r : float
        Accuracy, as a probability.
    s : float
        Probability of reaching it.
    tolerance : float
        Nearness to the stationary distribution after the burn-in, as a probability.

    Returns
    -------
    RafteryLewis
        NaN in all but `minimum` where the chain is shorter than `minimum` (as coda refuses it), never crosses the
        quantile, or holds what is not finite.

    Raises
    ------
    ArgumentError
        More than one series; q, r, s or tolerance outside (0, 1).
    """
    series = np.asarray(x, dtype=float)
    if series.ndim != 1:
        raise ArgumentError(f"`x` must be one series; its shape is {series.shape}.")
    for name, value in (("q", q), ("r", r), ("s", s), ("tolerance", tolerance)):
        between_0_and_1(value, name, "")
    w = float(scipy.special.ndtri((1 + s) / 2))
    minimum = int(np.ceil(q * (1 - q) * (w / r) ** 2))
    unknown = RafteryLewis(np.nan, np.nan, minimum, np.nan, np.nan)
    if len(series) < max(minimum, FEWEST) or not np.isfinite(series).all():
        return unknown
    below = (series <= np.quantile(series, q)).astype(np.intp)
    thin = _first_order_thinning(below)
    moves = np.zeros((2, 2))
    np.add.at(moves, (below[::thin][:-1], below[::thin][1:]), 1)
    if not (moves[0, 1] > 0 and moves[1, 0] > 0):
        return unknown
    a, b = moves[0, 1] / moves[0].sum(), moves[1, 0] / moves[1].sum()
    if abs(1 - a - b) in (0.0, 1.0):  # forgotten at once, or alternating for ever
        burnin = 0.0 if a + b == 1 else np.nan
    else:
        burnin = thin * np.ceil(max(np.log(tolerance * (a + b) / max(a, b)) / np.log(abs(1 - a - b)), 0.0))
    total = burnin + thin * np.ceil((2 - a - b) * a * b * w**2 / ((a + b) ** 3 * r**2))
    return RafteryLewis(float(burnin), float(total), minimum, float(total / minimum), float(thin))


def _first_order_thinning(below: np.ndarray[tuple[int], np.dtype[np.intp]]) -> int:
    """Return the smallest k for which BIC prefers a first to a second order Markov chain of every k-th entry."""
    for k in range(1, len(below) // 3 + 1):
        z = below[::k]
        count = np.zeros((2, 2, 2))
        np.add.at(count, (z[:-2], z[1:-1], z[2:]), 1)
        expected = count.sum(axis=2)[:, :, None] * count.sum(axis=0)[None]
        expected = np.divide(expected, count.sum(axis=(0, 2))[None, :, None], out=np.ones((2, 2, 2)), where=count > 0)
        g2 = 2 * (scipy.special.xlogy(count, count) - scipy.special.xlogy(count, expected)).sum()
        if g2 < 2 * np.log(len(z) - 2):
            return k
    return max(len(below) // 3, 1)
