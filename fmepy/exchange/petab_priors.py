"""Priors of PEtab as distributions with a `logpdf`, truncated at the bounds.

A density of a transformed parameter, u = log x or u = log10 x, is f(u) du/dx on the natural scale. Truncated at the
bounds [a, b] it is divided by F(b) - F(a).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from fmepy.errors import DataError, listed
from fmepy.exchange.petab_tables import as_float
from fmepy.parameters.densities import log_density

_FAMILIES = {  # of scipy.stats, and what PEtab's parameters are there; the end of a uniform one less its beginning
    "uniform": ("uniform", ("loc", "scale")), "normal": ("norm", ("loc", "scale")),
    "laplace": ("laplace", ("loc", "scale")), "cauchy": ("cauchy", ("loc", "scale")), "chisquare": ("chi2", ("df",)),
    "exponential": ("expon", ("scale",)), "gamma": ("gamma", ("a", "scale")), "rayleigh": ("rayleigh", ("scale",)),
}  # fmt: skip
_SLOPES = {"lin": 1.0, "log": 1.0, "log10": math.log(10)}


@dataclass(frozen=True)
class TruncatedPrior:
    """A prior on the natural scale.

    Attributes
    ----------
    family, arguments : str, dict of str to float
        Of scipy.stats, on `scale`.
    scale : {"lin", "log", "log10"}
        What of the parameter has this distribution.
    lower, upper : float
        Beyond them the density is zero.
    is_natural : bool
        It is a density of the parameter itself: costs that take its logarithm refuse it.
    """

    family: str
    arguments: dict[str, float]
    scale: str
    lower: float
    upper: float
    is_natural: ClassVar[bool] = True

    @cached_property
    def _distribution(self) -> Any:
        from scipy import stats

        return getattr(stats, self.family)(**self.arguments)

    @cached_property
    def _density(self) -> Callable[[float], float]:
        return log_density(self._distribution)

    @cached_property
    def mass(self) -> float:
        """What of the distribution lies between the bounds."""
        ends = np.array([self.lower, self.upper])
        if self.scale != "lin":
            with np.errstate(all="ignore"):
                ends = np.log(np.maximum(ends, 0.0)) / _SLOPES[self.scale]
        with np.errstate(invalid="ignore"):  # of arguments that no distribution has
            return float(np.diff(self._distribution.cdf(ends))[0])

    @cached_property
    def _log_mass(self) -> float:
        return math.log(self.mass)

    def logpdf(self, x: Any) -> Any:
        """Return the log density at x."""
        return self._at(float(x)) if np.ndim(x) == 0 else np.vectorize(self._at, otypes=[float])(x)

    def _at(self, x: float) -> float:
        if not self.lower <= x <= self.upper or (x <= 0 and self.scale != "lin"):
            return -math.inf
        if self.scale == "lin":
            return self._density(x) - self._log_mass
        return self._density(math.log(x) / _SLOPES[self.scale]) - self._log_mass - math.log(x * _SLOPES[self.scale])


def read_prior(row: Mapping[str, Any], version: int) -> TruncatedPrior | None:
    """Return the prior that a row of the parameter table says: by default uniform between the bounds, on its scale.

    None: nothing is said, and there is no bound to be uniform within.
    """
    kind, text, scale = row["prior"], row["prior_parameters"], row["scale"]
    lower, upper = row["lower"], row["upper"]
    of = "lin"
    if kind.startswith("parameterScale"):
        kind, of = kind.removeprefix("parameterScale").lower(), scale
    elif not kind:
        kind, of = "uniform", scale if version == 1 else "lin"
        ends = [lower, upper] if of == "lin" else [math.log(v) / _SLOPES[of] for v in (lower, upper)]
        text = text or f"{ends[0]!r};{ends[1]!r}"
        if not all(map(math.isfinite, ends)):
            return None
    elif kind.startswith(("log-", "log10-")):
        of, kind = ("log", kind[4:]) if kind.startswith("log-") else ("log10", kind[6:])
    elif kind in ("logNormal", "logLaplace"):
        kind, of = kind[3:].lower(), "log"
    values: list[Any] = [as_float(part.strip()) for part in text.split(";")]
    if kind not in _FAMILIES or (of != "lin" and kind not in ("uniform", "normal", "laplace")):
        raise DataError(f"{row['where']}: the prior {row['prior']!r} is not known; there are {listed(_FAMILIES)}.")
    given, (family, names) = values, _FAMILIES[kind]
    if row["prior"] == "log-uniform":  # its parameters are of the parameter itself
        values = [math.log(v) if v and v > 0 else None for v in values]
    numbers = [v for v in values if v is not None and math.isfinite(v)]
    if len(numbers) < len(values) or len(numbers) != len(names):
        raise DataError(f"{row['where']}: {text!r} are not the parameters of the prior {kind!r}.")
    arguments = dict(zip(names, numbers, strict=True))
    if kind == "uniform":  # it ends at the bounds, and its density grows
        arguments["scale"] -= arguments["loc"]
        is_natural = of == "lin" or row["prior"] == "log-uniform"
        ends = given if is_natural else [math.exp(v * _SLOPES[of]) for v in numbers]
        lower, upper = max(lower, ends[0]), min(upper, ends[1])
    prior = TruncatedPrior(family, arguments, of, lower, upper)
    if not prior.mass > 0:  # or NaN: an sd below zero, ends in the wrong order
        raise DataError(f"{row['where']}: the prior {kind!r} with {text!r} has no density between the bounds.")
    return prior
