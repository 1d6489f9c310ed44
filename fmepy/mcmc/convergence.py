"""Convergence of chains: R-hat, effective sample sizes, Monte Carlo error of the mean.

Everything here is a pure function of draws x, shape (n_chain, n_draw); a single series counts as one chain. NaN stands
for "cannot be said", see `diagnostics`.

**Split R-hat** (Vehtari et al. 2021). Each chain is cut into halves (the middle draw of an odd number is left out),
which gives m sequences of n draws. All draws are replaced by normal scores of their pooled ranks r (ties share their
mean rank), S = m n being their number::

    z = Phi^-1((r - 3/8) / (S + 1/4))
    W = mean over sequences of var(z),   B / n = variance of the sequences' means
    R-hat = sqrt(((n - 1) / n W + B / n) / W)

once for x (bulk: do the places agree?) and once for ``|x - median|`` (folded: do the spreads?); the larger counts.

**Effective sizes** (Geyer 1992; Vehtari et al. 2021). With c_t the autocovariance at lag t (divisor n) averaged over
the sequences, W = c_0 n / (n - 1) and V = c_0 + B / n::

    rho_t = 1 - (W - c_t) / V,      P_k = rho_{2k} + rho_{2k+1},      rho_0 = 1
    tau   = -1 + 2 sum P_k,         ess = S / tau

The sum stops before the first negative P_k (its even term is added if positive), and P_k is made non-increasing. Very
antithetic chains are held to ``ess <= S log10(S)``. (In the paper c_t has the divisor n - 1; with n, as Stan and ArviZ
have it, the numbers are theirs.) *Bulk* is this of the normal scores, *tail* the smaller of those of
the indicators x <= q05 and x <= q95, and the error of the mean, `mcse`, is sd / sqrt(ess of x itself).

References
----------
Vehtari, A., Gelman, A., Simpson, D., Carpenter, B., Buerkner, P.-C. (2021). Rank-normalization, folding, and
localization: an improved R-hat for assessing convergence of MCMC. Bayesian Analysis 16, 667-718.

Geyer, C. J. (1992). Practical Markov chain Monte Carlo. Statistical Science 7, 473-483.
"""

from __future__ import annotations

import numpy as np
import scipy  # its rooms are loaded where they are asked for

from fmepy.numerics.draw_statistics import autocovariance, checked
from fmepy.types import ArrayLike, Matrix, Vector

FEWEST = 4
"""Draws a chain must have: halves need two each."""
_TAILS = (0.05, 0.95)


# --- do the chains agree?


def rhat(x: ArrayLike) -> float:
    """Return the rank-normalised split R-hat, the larger of bulk and folded; at most 1.01 is good.

    Parameters
    ----------
    x : array_like, shape (n_chain, n_draw) or (n_draw,)

    Returns
    -------
    float
        NaN for fewer than 4 draws a chain, draws that are not finite, and one constant value; infinite for constant
        chains that differ.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> x = rng.normal(size=(2, 1000))
    >>> round(rhat(x), 2), rhat(x + [[0.0], [1.0]]) > 1.1
    (1.0, True)
    """
    draws = checked(x)
    if not _usable(draws):
        return np.nan
    halves = _halves(draws)
    folded = np.abs(halves - np.median(halves))
    values = [_potential(_normal_scores(a)) for a in (halves, folded)]
    return float(np.nanmax(values)) if not np.isnan(values).all() else np.nan


def _potential(z: Matrix) -> float:
    """Return sqrt(V / W) of the module's docstring for sequences z."""
    n = z.shape[1]
    within = _zero_if_constant(z).mean()
    between = z.mean(axis=1).var(ddof=1)
    if within == 0:
        return np.inf if np.ptp(z) > 0 else np.nan
    return float(np.sqrt(((n - 1) / n * within + between) / within))


def _zero_if_constant(z: Matrix) -> Vector:
    """Return the variance of each row, exactly 0 where nothing changes (rounding of the mean would leave a trace)."""
    return np.where(np.ptp(z, axis=1) > 0, z.var(axis=1, ddof=1), 0.0)


# --- how many independent draws are they worth?


def ess_bulk(x: ArrayLike) -> float:
    """Return how many independent draws the sample is worth in its middle; at least 400 is good.

    Parameters
    ----------
    x : array_like, shape (n_chain, n_draw) or (n_draw,)

    Returns
    -------
    float
        NaN for fewer than 4 draws a chain, draws that are not finite, and one constant value.

    Examples
    --------
    >>> x = np.random.default_rng(1).normal(size=(2, 1000))
    >>> 1500 < ess_bulk(x) < 2500
    True
    """
    draws = checked(x)
    return _ess(_normal_scores(_halves(draws))) if _usable(draws) else np.nan


def ess_tail(x: ArrayLike) -> float:
    """Return how many independent draws the sample is worth at its 5 and 95 % quantiles, the smaller of the two.

    Parameters
    ----------
    x : array_like, shape (n_chain, n_draw) or (n_draw,)

    Returns
    -------
    float
        NaN as for `ess_bulk`. A tail in which more than 5 % of the draws are the same largest value has no quantile of
        its own and is left out.
    """
    draws = checked(x)
    if not _usable(draws):
        return np.nan
    limits = np.quantile(draws, _TAILS)
    sizes = [_ess(_halves((draws <= q).astype(float))) for q in limits]
    return float(np.nanmin(sizes)) if not np.isnan(sizes).all() else np.nan


def mcse(x: ArrayLike) -> float:
    """Return the Monte Carlo standard error of the mean, in the unit of `x`.

    Parameters
    ----------
    x : array_like, shape (n_chain, n_draw) or (n_draw,)

    Returns
    -------
    float
        sd / sqrt(ess of x, neither ranked nor folded); NaN as for `ess_bulk`.
    """
    draws = checked(x)
    return float(draws.std(ddof=1) / np.sqrt(_ess(_halves(draws)))) if _usable(draws) else np.nan


def _ess(z: Matrix) -> float:
    """Return S / tau of the module's docstring for sequences z, shape (m, n); NaN if nothing changes."""
    m, n = z.shape
    if np.ptp(z) == 0:
        return np.nan
    covariance = autocovariance(z).mean(axis=0)
    within = covariance[0] * n / (n - 1)
    total = covariance[0] + (z.mean(axis=1).var(ddof=1) if m > 1 else 0.0)
    rho = 1 - (within - covariance) / total
    rho[0] = 1.0
    tau = max(_integrated(rho), 1 / np.log10(m * n))
    return float(m * n / tau)


def _integrated(rho: Vector) -> float:
    """Return the integrated autocorrelation time by Geyer's initial monotone sequence."""
    n_pairs = (len(rho) - 3) // 2  # the longest lags rest on next to nothing
    if n_pairs < 1:
        return 1.0
    pairs = rho[0 : 2 * n_pairs : 2] + rho[1 : 2 * n_pairs : 2]
    negative = np.flatnonzero(pairs < 0)
    stop = max(int(negative[0]), 1) if len(negative) else n_pairs
    tail = max(float(rho[2 * stop]), 0.0)
    return float(-1 + 2 * np.minimum.accumulate(pairs[:stop]).sum() + tail)


# --- shared by several


def _usable(draws: Matrix) -> bool:
    return bool(draws.shape[1] >= FEWEST and np.isfinite(draws).all() and np.ptp(draws) > 0)


def _halves(draws: Matrix) -> Matrix:
    n = draws.shape[1] // 2
    return np.concatenate([draws[:, :n], draws[:, -n:]])


def _normal_scores(x: Matrix) -> Matrix:
    ranks = scipy.stats.rankdata(x, method="average").reshape(x.shape)
    return np.asarray(scipy.special.ndtri((ranks - 0.375) / (x.size + 0.25)))
