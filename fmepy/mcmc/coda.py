"""The diagnostics of R's package coda: spectra, transients (Geweke), lengths (Raftery and Lewis).

Pure functions of draws; NaN stands for "cannot be said", see `diagnostics`.

**Spectral density at zero** (coda's ``spectrum0.ar``). Yule-Walker estimates of an autoregression of order k, chosen
among 0 .. 10 log10(n) by AIC = n log(v_k) + 2 k, v_k being the innovations' variance of Levinson's recursion::

    S(0) = v / (1 - sum a_i)^2,        v = v_k n / (n - k - 1)

coda's ``geweke.diag`` compares the means of the first tenth, A, and of the last half, B, of each chain::

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

import numpy as np
import scipy  # its rooms are loaded where they are asked for

from fmepy.numerics.draw_statistics import autocovariance, checked
from fmepy.types import ArrayLike, Vector

_FIRST, _LAST = 0.1, 0.5  # shares of a chain whose means Geweke compares
_FEWEST_GEWEKE = 50  # so that the first tenth has five
_Q, _R, _TRANSIENT = 0.025, 0.005, 0.001  # Raftery and Lewis' quantile, accuracy, and e
_W = 1.959963984540054  # the normal quantile at (1 + 0.95) / 2
SHORTEST = 3746
"""Draws that would do were they independent: Raftery and Lewis' N_min."""


def spectrum0_ar(series: Vector) -> tuple[float, int]:
    """Return the spectral density at zero by a fitted autoregression, and the order of it.

    Parameters
    ----------
    series : ndarray, shape (n_draw,)

    Returns
    -------
    density : float
        In the squared unit of the series; the variance of the mean of n draws is density / n. 0 for a constant series,
        NaN for fewer than 3 draws or draws that are not finite.
    order : int

    Examples
    --------
    >>> density, order = spectrum0_ar(np.random.default_rng(1).normal(size=5000))
    >>> order, round(density, 1)
    (0, 1.0)
    """
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


def geweke(x: ArrayLike) -> Vector:
    """Return z of the difference of the means of the first tenth and the last half, one per chain.

    Beyond +-2 there is a transient.

    Parameters
    ----------
    x : array_like, shape (n_chain, n_draw) or (n_draw,)

    Returns
    -------
    ndarray, shape (n_chain,)
        NaN for a chain of fewer than 50 draws, one whose two parts never change, or one that holds what is not finite.
    """
    return np.array([_geweke_z(chain) for chain in checked(x)])


def _geweke_z(chain: Vector) -> float:
    n = len(chain)
    if n < _FEWEST_GEWEKE or not np.isfinite(chain).all():
        return np.nan
    # a draw that a limit cuts belongs to the part; to rounding, so that 0.1 of 101 draws is 11 of them
    begin = chain[: int(np.ceil(_FIRST * (n - 1) - 1e-9)) + 1]
    end = chain[int(np.floor((1 - _LAST) * (n - 1) + 1e-9)) :]
    variance = sum(spectrum0_ar(part)[0] / len(part) for part in (begin, end))
    if not variance > 0:
        return np.nan
    return float((begin.mean() - end.mean()) / np.sqrt(variance))


def raftery_lewis(series: Vector) -> float:
    """Return how long a chain must be for its 2.5 % quantile to be right to +- 0.005 in probability.

    Parameters
    ----------
    series : ndarray, shape (n_draw,)
        One chain.

    Returns
    -------
    float
        Draws, burn-in included. NaN where the chain is shorter than `SHORTEST` (as coda refuses it), never crosses the
        quantile, or holds what is not finite.
    """
    if len(series) < SHORTEST or not np.isfinite(series).all():
        return np.nan
    below = (series <= np.quantile(series, _Q)).astype(np.intp)
    thin = _first_order_thinning(below)
    moves = np.zeros((2, 2))
    np.add.at(moves, (below[::thin][:-1], below[::thin][1:]), 1)
    if not (moves[0, 1] > 0 and moves[1, 0] > 0):
        return np.nan
    a, b = moves[0, 1] / moves[0].sum(), moves[1, 0] / moves[1].sum()
    if abs(1 - a - b) in (0.0, 1.0):  # forgotten at once, or alternating for ever
        burnin = 0.0 if a + b == 1 else np.nan
    else:
        burnin = thin * np.ceil(max(np.log(_TRANSIENT * (a + b) / max(a, b)) / np.log(abs(1 - a - b)), 0.0))
    return float(burnin + thin * np.ceil((2 - a - b) * a * b * _W**2 / ((a + b) ** 3 * _R**2)))


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
