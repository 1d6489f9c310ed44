"""Tests of model and data: whiteness, size and normality of the whitened innovations.

W(n) = C^-1 delta(n) with S = C C', C lower, in the order of the variables; missing entries are left out of S. Under the
model the W are independent with variance one, so that (Peterson 1976, Harvey 1989)::

    R(j)_ik = mean over n of W_i(n) W_k(n+j)           R(0) near I, R(j) near 0
    sd of R(j)_ik = 1 / sqrt(pairs), of the diagonal of R(0) sqrt(2 / pairs)
    portmanteau  sum_j sum_ik pairs R(j)_ik^2          chi-squared, (J m^2 - p) degrees of freedom
    SUMSQ = sum W^2                                    chi-squared, (nobs - p) degrees of freedom

p counts estimated parameters of the mean equations. If the scale of all noise was estimated too, the optimum makes
SUMSQ equal nobs whatever the data are, and its test says nothing. Time is counted in the spacing of the samples where
that is regular, else in samples. Missing data leave pairs out, element by element.

First-order serial correlation rho of spacing dt is that of a first-order lag of time constant -dt / ln rho.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fmepy.checks import whole_number
from fmepy.filtering.smoothing import History
from fmepy.fimlof.data import EntityRun
from fmepy.journal.saving import Saved
from fmepy.language.derivatives import are_equal
from fmepy.language.nodes import as_node
from fmepy.parameters.names import split_local
from fmepy.results.tables import Framed, Part, table
from fmepy.types import Axes, AxesArray, Cube, Matrix, Vector

_MOST_EMPTY = 20
"""A regular grid with more than so many slots a sample is none."""


@dataclass(frozen=True, slots=True, eq=False)
class Whitened:
    """Whitened innovations by entity, slot of time and variable; NaN where there is none.

    Attributes
    ----------
    series : tuple of ndarray, shape (n_slot, n_var)
        Repeated readings of one variable count as one, their sum over the root of their number.
    spacing : float
        Time from slot to slot; the median where it is not regular.
    """

    series: tuple[Matrix, ...]
    spacing: float


def whitened(runs: Sequence[EntityRun], histories: Sequence[History], n_variables: int) -> Whitened:
    """Return the whitened innovations on a grid of time."""
    times = [np.unique(run.schedule.readings.times) for run in runs]
    gaps = np.concatenate([np.diff(t) for t in times] or [np.empty(0)])
    dt = float(gaps.min()) if len(gaps) else 1.0
    steps = gaps / dt
    regular = bool(np.allclose(steps, np.rint(steps), atol=1e-6)) and steps.sum() <= _MOST_EMPTY * (len(steps) + 1)
    series = []
    for run, history, t in zip(runs, histories, times, strict=True):
        slots = np.rint((t - t[0]) / dt).astype(int) if regular and len(t) else np.arange(len(t))
        W = np.zeros((slots[-1] + 1 if len(slots) else 0, n_variables))
        counts = np.zeros_like(W)
        at = (slots[np.searchsorted(t, run.schedule.readings.times)], run.schedule.readings.variables)
        seen = np.isfinite(history.whitened)
        np.add.at(W, (at[0][seen], at[1][seen]), history.whitened[seen])
        np.add.at(counts, (at[0][seen], at[1][seen]), 1.0)
        with np.errstate(invalid="ignore", divide="ignore"):
            series.append(np.where(counts > 0, W / np.sqrt(counts), np.nan))
    return Whitened(tuple(series), dt if regular or not len(gaps) else float(np.median(gaps)))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Correlations(Framed):
    """Serial and cross correlation of the whitened innovations.

    Attributes
    ----------
    values, pairs : ndarray, shape (max_lag + 1, n_var, n_var)
        R(j), element (i, k) the mean of W_i(n) W_k(n + j), not divided by R(0), which is near I under the model; the
        number of pairs.
    variables : tuple of str
    spacing : float
        Time of one lag, see `Whitened`.
    parameters : int
        Degrees of freedom taken off the portmanteau.
    """

    values: Cube
    pairs: Cube
    variables: tuple[str, ...]
    spacing: float
    parameters: int

    @property
    def limits(self) -> Cube:
        """Two standard deviations; the diagonal of lag 0 is to be compared with 1."""
        with np.errstate(divide="ignore"):
            out = 2 / np.sqrt(self.pairs)
        i = np.arange(len(self.variables))
        out[0, i, i] *= np.sqrt(2)
        return np.asarray(np.where(self.pairs > 0, out, np.nan))

    @property
    def frame(self) -> pd.DataFrame:  # derived from the arrays, not stored
        """One row a lag and pair: lag, variable, with, r, rho, pairs, limit, significant.

        `r` is R(j) itself, a mean of products, which may exceed 1 where noise is understated; the limits belong to it.
        `rho` is ``R(j)_ik / sqrt(R(0)_ii R(0)_kk)``, the correlation proper.
        """
        lags, m = self.values.shape[:2]
        sizes = np.sqrt(np.diagonal(self.values[0]))
        with np.errstate(invalid="ignore", divide="ignore"):
            rho = self.values / np.outer(sizes, sizes)
            rho = np.where(np.abs(rho) < 1 + 1e-9, np.clip(rho, -1, 1), rho)  # not beyond 1 by rounding
        names = np.array(self.variables, dtype=object)
        expected = np.zeros_like(self.values)
        expected[0] = np.eye(m)
        return pd.DataFrame(
            {
                "lag": np.repeat(np.arange(lags), m * m),
                "variable": np.tile(np.repeat(names, m), lags),
                "with": np.tile(names, lags * m),
                "r": self.values.ravel(),
                "rho": rho.ravel(),
                "pairs": self.pairs.ravel().astype(int),
                "limit": self.limits.ravel(),
                "significant": (np.abs(self.values - expected) > self.limits).ravel(),
            }
        )

    @property
    def statistic(self) -> float:
        """Multivariate portmanteau of the lags above 0."""
        return float(np.nansum((self.pairs * self.values**2)[1:]))

    @property
    def df(self) -> int:
        """Its degrees of freedom: elements with pairs, minus `parameters`."""
        return int(np.sum(self.pairs[1:] > 0)) - self.parameters

    @property
    def p_value(self) -> float:
        """Chance of a larger portmanteau under the model."""
        from scipy.special import chdtrc

        return float(chdtrc(self.df, self.statistic)) if self.df > 0 else np.nan

    @property
    def time_constants(self) -> pd.DataFrame:
        """By variable: rho (R(1) / R(0)), limit, significant, time_constant.

        The time constant is ``-spacing / ln rho`` of a first-order lag that seems to be missing from the structure,
        where rho is significant and positive; else NaN. A negative rho speaks of errors of measurement taken for
        noise of the system, or of a gain that is too high.
        """
        i = np.arange(len(self.variables))
        with np.errstate(invalid="ignore", divide="ignore"):
            rho, limit = self.values[1, i, i] / self.values[0, i, i], self.limits[1, i, i]
            significant = np.abs(rho) > limit
            constant = np.where(significant & (rho > 0) & (rho < 1), -self.spacing / np.log(rho), np.nan)
        columns = {"rho": rho, "limit": limit, "significant": significant, "time_constant": constant}
        return pd.DataFrame(columns, index=list(self.variables))

    def plot(self, which: Any = None, *, axes: Any = None, **kwargs: Any) -> AxesArray:
        """Draw stems of the correlations with their limits, one panel a variable; return the Axes."""
        from fmepy.plotting.filtering import plot_correlations

        return plot_correlations(self, which, axes=axes, **kwargs)

    def shown(self) -> list[str | Part]:
        """Return the portmanteau test and the time constants."""
        head = f"portmanteau {self.statistic:.4g} on {self.df} degrees of freedom, p = {self.p_value:.3g}"
        lags = f"lags 0 to {len(self.values) - 1}"
        return [f"Correlations of whitened innovations, {lags}: {head}", table(self.time_constants)]


def correlations_of(w: Whitened, variables: tuple[str, ...], max_lag: int, parameters: int) -> Correlations:
    """Return R(0) to R(max_lag); pairs never reach from one entity to another."""
    longest = max((len(s) for s in w.series), default=0)
    max_lag = whole_number(
        max_lag, "max_lag", 1, max(longest - 1, 1), ", one less than the samples of the longest series"
    )
    m = len(variables)
    sums, pairs = np.zeros((max_lag + 1, m, m)), np.zeros((max_lag + 1, m, m))
    for W in w.series:
        seen, value = np.isfinite(W).astype(float), np.where(np.isfinite(W), W, 0.0)
        for j in range(min(max_lag, len(W) - 1) + 1):
            sums[j] += value[: len(W) - j].T @ value[j:]
            pairs[j] += seen[: len(W) - j].T @ seen[j:]
    with np.errstate(invalid="ignore", divide="ignore"):
        values = sums / pairs
    return Correlations(values, pairs, variables, w.spacing, int(parameters))


@dataclass(frozen=True, slots=True, eq=False)
class SumsqTest(Saved):
    """The test of the size of the innovations.

    Attributes
    ----------
    sumsq : float
    nobs, parameters : int
        Data; estimated parameters of the mean equations.
    scale_estimated : bool
        All noise was scaled to the data: the test has no power.
    squares : ndarray
        Squared whitened innovations in the order of the data.
    """

    sumsq: float
    nobs: int
    parameters: int
    scale_estimated: bool
    squares: Vector

    @property
    def expected(self) -> int:
        """``nobs - parameters``."""
        return self.nobs - self.parameters

    @property
    def sd(self) -> float:
        """``sqrt(2 (nobs - parameters))``."""
        return float(np.sqrt(2 * max(self.expected, 0)))

    @property
    def z(self) -> float:
        """Distance from what is expected, in its sds."""
        return (self.sumsq - self.expected) / self.sd if self.sd > 0 else np.nan

    @property
    def p_value(self) -> float:
        """Two-sided, from the chi-squared distribution; NaN where the test has no power."""
        from scipy.special import chdtr, chdtrc

        if self.scale_estimated or self.expected <= 0 or not np.isfinite(self.sumsq):
            return np.nan
        return float(min(1.0, 2 * min(chdtr(self.expected, self.sumsq), chdtrc(self.expected, self.sumsq))))

    def plot(self, *, ax: Any = None, **kwargs: Any) -> Axes:
        """Draw the sum of squares as it grows, with its expectation and limits; return the Axes."""
        from fmepy.plotting.filtering import plot_sumsq

        return plot_sumsq(self, ax=ax, **kwargs)

    def __repr__(self) -> str:
        text = f"Sum of squares {self.sumsq:.5g}, expected {self.expected} with sd {self.sd:.3g}"
        if self.scale_estimated:
            return f"{text}. The scale of the noise was estimated: this test has no power."
        return f"{text}: {self.z:+.2f} sd, p = {self.p_value:.3g}"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Normality(Framed):
    """Moments and tests of normality of the whitened innovations.

    Attributes
    ----------
    frame : DataFrame
        By variable: n, mean, sd, skewness, kurtosis (of the normal: 0), test ("Shapiro-Wilk" to 2000 data, beyond that
        "Jarque-Bera"), p.
    values : dict of str to ndarray
        The innovations by variable.
    """

    frame: pd.DataFrame
    values: dict[str, Vector]

    def plot(self, which: Any = None, *, axes: Any = None, **kwargs: Any) -> AxesArray:
        """Draw quantiles against those of the normal, one panel a variable; return the Axes."""
        from fmepy.plotting.filtering import plot_normality

        return plot_normality(self, which, axes=axes, **kwargs)


_SHAPIRO_UNTIL = 2000


def normality_of(w: Whitened, variables: Sequence[str]) -> Normality:
    """Return the tests of normality by variable."""
    from scipy import stats

    values, rows = {}, {}
    for i, name in enumerate(variables):
        own = np.concatenate([W[:, i] for W in w.series])
        own = values[name] = own[np.isfinite(own)]
        test, p, skewness, kurtosis = "", np.nan, np.nan, np.nan
        if len(own) >= 3 and np.ptp(own) > 0:
            skewness, kurtosis = float(stats.skew(own)), float(stats.kurtosis(own))
            few = len(own) <= _SHAPIRO_UNTIL
            test = "Shapiro-Wilk" if few else "Jarque-Bera"
            p = float((stats.shapiro(own) if few else stats.jarque_bera(own)).pvalue)
        mean, sd = (float(own.mean()), float(own.std())) if len(own) else (np.nan, np.nan)
        rows[name] = [len(own), mean, sd, skewness, kurtosis, test, p]
    columns = ["n", "mean", "sd", "skewness", "kurtosis", "test", "p"]
    return Normality(pd.DataFrame.from_dict(rows, orient="index", columns=columns), values)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Periodogram(Framed):
    """Cumulative periodogram of the whitened innovations: a straight line if they are white (Bartlett).

    Attributes
    ----------
    frame : DataFrame
        variable, frequency (per unit of time), cumulative (0 to 1).
    summary : DataFrame
        By variable: deviation (largest distance from the line), limit (5 %), significant, frequency (where it is).
    """

    frame: pd.DataFrame
    summary: pd.DataFrame

    def plot(self, which: Any = None, *, axes: Any = None, **kwargs: Any) -> AxesArray:
        """Draw the cumulative periodograms with their limits, one panel a variable; return the Axes."""
        from fmepy.plotting.filtering import plot_periodogram

        return plot_periodogram(self, which, axes=axes, **kwargs)


def periodogram_of(w: Whitened, variables: Sequence[str]) -> Periodogram:
    """Return the cumulative periodograms; of several entities the mean, missing entries count as zero."""
    longest = max((len(s) for s in w.series), default=0)
    tables, rows = [], {}
    for i, name in enumerate(variables):
        q = (longest - 1) // 2
        power = np.zeros(q)
        for W in w.series:
            own = np.zeros(longest)
            own[: len(W)] = np.where(np.isfinite(W[:, i]), W[:, i], 0.0)
            power += np.abs(np.fft.rfft(own)[1 : q + 1]) ** 2
        total = power.sum()
        if q < 2 or total <= 0:
            rows[name] = [np.nan, np.nan, False, np.nan]
            continue
        cumulative = np.cumsum(power) / total
        frequency = np.arange(1, q + 1) / (longest * w.spacing)
        distance = np.abs(cumulative - np.arange(1, q + 1) / q)
        # 5 % point of Kolmogorov and Smirnov's statistic for q - 1 values, Stephens's form
        root = np.sqrt((q - 1) * len(w.series))
        limit = 1.358 / (root + 0.12 + 0.11 / root)
        at = int(np.argmax(distance))
        rows[name] = [distance[at], limit, distance[at] > limit, frequency[at]]
        tables.append(pd.DataFrame({"variable": name, "frequency": frequency, "cumulative": cumulative}))
    columns = ["deviation", "limit", "significant", "frequency"]
    empty = pd.DataFrame({"variable": [], "frequency": [], "cumulative": []})
    frame = pd.concat(tables, ignore_index=True) if tables else empty
    return Periodogram(frame, pd.DataFrame.from_dict(rows, orient="index", columns=columns))


def scale_is_estimated(spec: Any, estimated: Sequence[str]) -> bool:
    """Tell whether all variances (noise, errors, start) grow together with estimated parameters of scale."""
    from fmepy.language.equations import symbol

    free = [symbol(k) for k in {split_local(name)[0] for name in estimated} if k in spec.scales]
    if not free:
        return False
    scaled = {s: 2.0 * s for s in free}
    variances = [sd**2 for sd in spec.space.sds]
    for noise in (spec.noise, spec.start):
        variances += noise.covariance or [sd**2 for sd in noise.sds]
    return all(are_equal(v.subs(scaled), 4.0 * v) for v in map(as_node, variances))
