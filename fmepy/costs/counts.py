"""Likelihoods of counts: Poisson's, whose variance is the mean, and the negative binomial, whose variance is larger.

With the prediction mu and, of the second, the size k::

    Poisson             log p(y) = y log mu - mu - log y!                                            variance mu
    negative binomial   log p(y) = log Gamma(y + k) - log Gamma(k) - log y!
                                   + k log(k / (k + mu)) + y log(mu / (k + mu))                      mu + mu^2 / k

Where k is large, differences of Gamma lose all digits; with e = (y - mu) / (k + mu) Stirling's series gives::

    log p(y)    = y log mu - log y! - y + (k + y) log(1 + e) - log(1 + y/k) / 2 + r(k + y) - r(k)
    slope to k  = log(1 + e) - e + y / (2 k (k + y)) + (1/k^2 - 1/(k + y)^2) / 12
    its square  = (s / k)^2 / 2 (1 - (1 - 4 s / 3) / k)           s = mu / (k + mu), r(z) = 1 / (12 z) - 1 / (360 z^3)

The expected information of k is ``sum_(j >= 0) P(Y > j) / (k + j)^2 - mu / (k (k + mu))``; its slope and that of mu are
not correlated.

References
----------
Lawless, J. F. (1987). Negative binomial and mixed Poisson regression. Canad. J. Statist. 15, 209-225.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import betainc, digamma, gammaln, xlogy

from fmepy.costs.likelihood_cost import BoundLikelihood
from fmepy.errors import ArgumentError, DataError
from fmepy.types import Matrix, Vector

LEAST = 1e-9
"""Means below it count as so large: a run of what dies out ends at zero, or by its tolerance below."""
LARGE, LARGE_OF_INFORMATION = 1e3, 50.0
"""Sizes from which on the series hold: to twelve digits, and three of the information."""
_SINGLE, _NODES = 48, 64
"""Of the sum over j: terms that are added one by one, and nodes of the integral that stands for the others."""


def _means(mod: Vector) -> Vector:
    small = np.maximum(mod, LEAST)
    return np.where(mod < -LEAST * max(1.0, float(np.abs(mod).max(initial=0.0))), np.nan, small)


class BoundPoisson(BoundLikelihood):
    """Counts whose variance is their mean."""

    @classmethod
    def check(cls, cost: Any) -> None:
        """Refuse readings that are no counts, and words of noise that do not fit."""
        c = cost.comparison
        wrong = np.flatnonzero((c.obs < 0) | (c.obs != np.floor(c.obs)))
        if len(wrong):
            i = int(wrong[0])
            raise DataError(
                f"likelihood={cost.likelihood!r} is of counts, and a reading of {c.names[i]!r} is {c.obs[i]:g}; whole "
                "numbers from 0 on are needed, with no transform."
            )
        cls._check_noise(cost)

    @classmethod
    def _check_noise(cls, cost: Any) -> None:
        for argument in ("measurement_noise", "err"):
            if getattr(cost, argument) is not None:
                raise ArgumentError(
                    f"likelihood='poisson' has the mean as variance: leave `{argument}` out, or say "
                    "likelihood='negative-binomial', whose size it then is."
                )

    def log_density(self, obs: Vector, mod: Vector, spread: Any) -> Vector:
        """Return the log probability of every count."""
        mu = _means(mod)
        return np.asarray(xlogy(obs, mu) - mu - gammaln(obs + 1))

    def slopes(self, obs: Vector, mod: Vector, spread: Any) -> tuple[Vector, Vector | None]:
        """Return its derivative to the mean."""
        return obs / _means(mod) - 1, None

    def informations(self, mod: Vector, spread: Any) -> tuple[Vector, Vector | None]:
        """Return one over the variance."""
        return 1 / _means(mod), None

    def draw(self, mod: Vector, spread: Any, rng: np.random.Generator) -> Vector:
        """Return counts with these means."""
        return rng.poisson(_means(mod)).astype(float)


class BoundNegativeBinomial(BoundPoisson):
    """Counts whose variance is mean + mean^2 / size, the size being their spread."""

    @classmethod
    def _check_noise(cls, cost: Any) -> None:
        size = cost.measurement_noise
        words = dict(size).values() if isinstance(size, Mapping | pd.Series) else [size]
        if "estimate" in words or (size is None and np.isnan(cost.comparison.observed.errors).any()):
            name = cost.comparison.group_names[0]
            raise ArgumentError(
                "likelihood='negative-binomial' has a size (variance = mean + mean^2 / size), a parameter with a start "
                f"of yours: measurement_noise={{{name!r}: 'size'}}, parms={{'size': 10.0}}."
            )

    def log_density(self, obs: Vector, mod: Vector, spread: Any) -> Vector:
        """Return the log probability of every count."""
        mu, k = _means(mod), spread
        binomial = gammaln(obs + k) - gammaln(k) - k * np.log1p(mu / k) - obs * np.log(k + mu)
        rest = (1 / (obs + k) - 1 / k) / 12 - (1 / (obs + k) ** 3 - 1 / k**3) / 360
        series = (k + obs) * np.log1p((obs - mu) / (k + mu)) - 0.5 * np.log1p(obs / k) - obs + rest
        return np.asarray(xlogy(obs, mu) - gammaln(obs + 1) + np.where(k < LARGE, binomial, series))

    def slopes(self, obs: Vector, mod: Vector, spread: Any) -> tuple[Vector, Vector | None]:
        """Return its derivatives to the mean and to the size."""
        mu, k = _means(mod), spread
        e = (obs - mu) / (k + mu)
        bend = np.where(np.abs(e) < 1e-4, -0.5 * e * e + e**3 / 3, np.log1p(e) - e)
        series = bend + obs / (2 * k * (k + obs)) + (1 / k**2 - 1 / (k + obs) ** 2) / 12
        direct = digamma(obs + k) - digamma(k) - np.log1p(mu / k) - e
        return obs / mu - (obs + k) / (k + mu), np.where(k < LARGE, direct, series)

    def informations(self, mod: Vector, spread: Any) -> tuple[Vector, Vector | None]:
        """Return one over the variance, and the information of the size."""
        mu, k = _means(mod), spread
        share, small = mu / (k + mu), k < LARGE_OF_INFORMATION
        of_size = 0.5 * (share / k) ** 2 * (1 - (1 - 4 * share / 3) / k)
        of_size[small] = _information_of_size(mu[small, None], k[small, None])
        return 1 / (mu + mu * mu / k), of_size

    def draw(self, mod: Vector, spread: Any, rng: np.random.Generator) -> Vector:
        """Return counts with these means and sizes."""
        return np.asarray(rng.poisson(_means(mod) * rng.gamma(spread) / spread).astype(float))


def _information_of_size(mu: Matrix, k: Matrix) -> Vector:
    """Return the expected information of sizes, for columns of means and sizes."""

    def term(j: Any) -> Any:  # the sum of P(Y > j) is mu, so that the second part stands within the first
        part = (k * mu - 2 * k * j - j * j) / ((k + j) ** 2 * k * (k + mu))
        return betainc(j + 1, k, mu / (k + mu)) * part

    x, w = np.polynomial.legendre.leggauss(_NODES)
    end = np.maximum(mu + 40 * np.sqrt(mu + mu * mu / k), 2 * _SINGLE)
    reach = np.log(end / (_SINGLE - 0.5))  # from the middle between two terms on
    j = (_SINGLE - 0.5) * np.exp(0.5 * (1 + x) * reach)
    total = term(np.arange(_SINGLE)).sum(axis=1) + (term(j) * j * w).sum(axis=1) * 0.5 * reach[:, 0]
    return np.asarray(np.maximum(total, 0.0))


CLASSES = {"poisson": BoundPoisson, "negative-binomial": BoundNegativeBinomial}
