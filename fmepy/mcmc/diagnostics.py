"""How far a sample of chains can be trusted: R-hat, effective sizes, errors of the mean, transients, lengths needed.

Everything here is a pure function of draws x, shape (n_chain, n_draw); a single series counts as one chain.

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

**Defined answers.** NaN stands for "cannot be said": fewer draws than the method needs (4 a chain for R-hat and
effective sizes, 50 for Geweke, N_min for Raftery and Lewis), a draw that is not finite, and a series that never
changes, which has no variance to compare. Chains that never change but stand at different places have an R-hat of
infinity. One chain is enough everywhere: R-hat then compares its halves, and cannot see what the chain never reached.

References
----------
Vehtari, A., Gelman, A., Simpson, D., Carpenter, B., Buerkner, P.-C. (2021). Rank-normalization, folding, and
localization: an improved R-hat for assessing convergence of MCMC. Bayesian Analysis 16, 667-718.

Geyer, C. J. (1992). Practical Markov chain Monte Carlo. Statistical Science 7, 473-483.

Geweke, J. (1992). Evaluating the accuracy of sampling-based approaches to the calculation of posterior moments. In:
Bayesian Statistics 4, Oxford University Press, 169-193.

Raftery, A. E., Lewis, S. M. (1992). How many iterations in the Gibbs sampler? In: Bayesian Statistics 4, 763-773.

Plummer, M., Best, N., Cowles, K., Vines, K. (2006). CODA: convergence diagnosis and output analysis for MCMC. R News 6,
7-11. (Its numbers are met; its manual pages say what is computed.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import fft, special, stats

from fmepy.errors import ArgumentError
from fmepy.types import ArrayLike, Cube, IntVector, Matrix, Vector

__all__ = [
    "RafteryLewis",
    "autocorrelation",
    "chain_diagnostics",
    "draws_by_chain",
    "effective_size_coda",
    "ess_bulk",
    "ess_tail",
    "geweke",
    "mcse",
    "raftery_lewis",
    "rank_counts",
    "rhat",
    "running_mean",
    "running_quantiles",
    "spectrum0_ar",
]

_FEWEST = 4  # halves need two draws each
_FEWEST_GEWEKE = 50  # so that the first tenth has five
_TAILS = (0.05, 0.95)


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
    draws = _checked(x)
    if not _usable(draws):
        return np.nan
    halves = _halves(draws)
    folded = np.abs(halves - np.median(halves))
    found = [_potential(_normal_scores(a)) for a in (halves, folded)]
    return float(np.nanmax(found)) if not np.isnan(found).all() else np.nan


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
    draws = _checked(x)
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
    draws = _checked(x)
    if not _usable(draws):
        return np.nan
    limits = np.quantile(draws, _TAILS)
    found = [_ess(_halves((draws <= q).astype(float))) for q in limits]
    return float(np.nanmin(found)) if not np.isnan(found).all() else np.nan


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
    draws = _checked(x)
    return float(draws.std(ddof=1) / np.sqrt(_ess(_halves(draws)))) if _usable(draws) else np.nan


def _ess(z: Matrix) -> float:
    """Return S / tau of the module's docstring for sequences z, shape (m, n); NaN if nothing changes."""
    m, n = z.shape
    if np.ptp(z) == 0:
        return np.nan
    covariance = _autocovariance(z).mean(axis=0)
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


def _autocovariance(z: Matrix) -> Matrix:
    """Return the autocovariances of each row at lags 0 .. n - 1, divisor n."""
    n = z.shape[1]
    centred = z - z.mean(axis=1, keepdims=True)
    size = fft.next_fast_len(2 * n, real=True)
    power = np.abs(fft.rfft(centred, size, axis=1)) ** 2
    return np.asarray(fft.irfft(power, size, axis=1)[:, :n] / n)


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
    draws = _checked(x)
    n = draws.shape[1]
    lag = int(10 * np.log10(max(n, 1))) if max_lag is None else max_lag
    if lag < 0:
        raise ArgumentError(f"`max_lag={max_lag!r}` must be at least 0.")
    lag = min(lag, n - 1)
    out = np.full((len(draws), lag + 1), np.nan)
    for i, chain in enumerate(draws):
        if np.isfinite(chain).all() and np.ptp(chain) > 0:
            covariance = _autocovariance(chain[None])[0, : lag + 1]
            out[i] = covariance / covariance[0]
    return out


# --- coda's: spectra, transients, lengths


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
    return _yule_walker(_autocovariance(series[None])[0], n)


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
    draws = _checked(x)
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
    return np.array([_geweke_z(chain, first, last) for chain in _checked(x)])


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
        if not 0 < value < 1:
            raise ArgumentError(f"`{name}={value!r}` must lie between 0 and 1.")
    w = float(special.ndtri((1 + s) / 2))
    minimum = int(np.ceil(q * (1 - q) * (w / r) ** 2))
    unknown = RafteryLewis(np.nan, np.nan, minimum, np.nan, np.nan)
    if len(series) < max(minimum, _FEWEST) or not np.isfinite(series).all():
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
        g2 = 2 * (special.xlogy(count, count) - special.xlogy(count, expected)).sum()
        if g2 < 2 * np.log(len(z) - 2):
            return k
    return max(len(below) // 3, 1)


# --- what pictures show


def running_mean(x: ArrayLike) -> Matrix:
    """Return the mean of the draws up to each, shape (n_chain, n_draw).

    Examples
    --------
    >>> running_mean([1.0, 2.0, 6.0]).tolist()
    [[1.0, 1.5, 3.0]]
    """
    draws = _checked(x)
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
    draws = _checked(x)
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
    draws = _checked(x)
    if bins < 1:
        raise ArgumentError(f"`bins={bins!r}` must be at least 1.")
    ranks = stats.rankdata(draws, method="average").reshape(draws.shape) - 0.5
    edges = np.linspace(0, draws.size, bins + 1)
    return edges, np.array([np.histogram(r, edges)[0] for r in ranks], dtype=float)


# --- a table of all


def chain_diagnostics(pars: pd.DataFrame) -> pd.DataFrame:
    """Return one row of diagnostics per parameter.

    Parameters
    ----------
    pars : DataFrame, shape (n_row, n_par)
        Draws; the first level of a MultiIndex tells the chains apart, any other index means one chain. Of chains of
        different length (one that was interrupted) the last draws count, as many of each as the shortest has.

    Returns
    -------
    DataFrame, shape (n_par, 8)
        mean, sd (unit of the parameter), mcse (of the mean), ess_bulk, ess_tail (draws), rhat, geweke_z (of the chain
        where it is farthest from 0), raftery_lewis (draws a chain needs for its 2.5 % quantile to +- 0.005, of the
        neediest chain). NaN where a method has no answer; see the module's docstring.

    Examples
    --------
    >>> pars = pd.DataFrame({"k": np.random.default_rng(1).normal(5.0, 0.1, 4000)})
    >>> chain_diagnostics(pars).round(2)[["mean", "sd", "rhat"]]
       mean   sd  rhat
    k   5.0  0.1   1.0
    """
    cube = draws_by_chain(pars)
    rows = [_row(cube[:, :, j]) for j in range(cube.shape[2])]
    columns = ["mean", "sd", "mcse", "ess_bulk", "ess_tail", "rhat", "geweke_z", "raftery_lewis"]
    return pd.DataFrame(rows, index=pd.Index([str(c) for c in pars.columns]), columns=pd.Index(columns), dtype=float)


def draws_by_chain(pars: pd.DataFrame) -> Cube:
    """Return the draws as an array (n_chain, n_draw, n_par): the first, as many as the shortest chain has.

    Raises
    ------
    ArgumentError
        A table without rows.
    """
    if len(pars) == 0:
        raise ArgumentError("There are no draws: the table has no rows.")
    values = pars.to_numpy(dtype=float)
    if not isinstance(pars.index, pd.MultiIndex):
        return values[None]
    codes, _ = pd.factorize(pars.index.get_level_values(0))
    chains = [values[codes == c] for c in range(codes.max() + 1)]
    shortest = min(map(len, chains))
    return np.stack([c[:shortest] for c in chains])


def _row(x: Matrix) -> list[float]:
    z = geweke(x)
    lengths = np.array([raftery_lewis(chain).total for chain in x])
    worst = np.nan if np.isnan(z).all() else float(z[np.nanargmax(np.abs(z))])
    needed = np.nan if np.isnan(lengths).all() else float(np.nanmax(lengths))
    finite = np.isfinite(x).all()
    spread = float(x.std(ddof=1)) if finite and x.size > 1 else np.nan
    mean = float(x.mean()) if finite else np.nan
    return [mean, spread, mcse(x), ess_bulk(x), ess_tail(x), rhat(x), worst, needed]


# --- what several of them need


def _checked(x: ArrayLike) -> Matrix:
    draws = np.asarray(x, dtype=float)
    if draws.ndim == 1:
        draws = draws[None]
    if draws.ndim != 2 or draws.size == 0:
        raise ArgumentError(f"`x` must have the shape (n_chain, n_draw) and hold draws; its shape is {draws.shape}.")
    return draws


def _usable(draws: Matrix) -> bool:
    return bool(draws.shape[1] >= _FEWEST and np.isfinite(draws).all() and np.ptp(draws) > 0)


def _halves(draws: Matrix) -> Matrix:
    n = draws.shape[1] // 2
    return np.concatenate([draws[:, :n], draws[:, -n:]])


def _normal_scores(x: Matrix) -> Matrix:
    ranks = stats.rankdata(x, method="average").reshape(x.shape)
    return np.asarray(special.ndtri((ranks - 0.375) / (x.size + 0.25)))
