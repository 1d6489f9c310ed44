"""Priors of PEtab as distributions with a `logpdf`, truncated at the bounds.

All are densities of the natural value x: priors of log x or log10 x have their own names in scipy.stats (log10 x ~
normal is lognorm). A density truncated at the bounds [a, b] is divided by F(b) - F(a).
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
from fmepy.parameters.densities import kink_of, log_density

_FAMILIES = {  # of scipy.stats, and what PEtab's parameters are there; the end of a uniform one less its beginning
    "uniform": ("uniform", ("loc", "scale")), "normal": ("norm", ("loc", "scale")),
    "laplace": ("laplace", ("loc", "scale")), "cauchy": ("cauchy", ("loc", "scale")), "chisquare": ("chi2", ("df",)),
    "exponential": ("expon", ("scale",)), "gamma": ("gamma", ("a", "scale")), "rayleigh": ("rayleigh", ("scale",)),
}  # fmt: skip
_BASES = {"log": math.e, "log10": 10.0}
_OF_LOGARITHMS: dict[str, Callable[..., tuple[str, dict[str, float]]]] = {  # of a base; they have these two parameters
    "uniform": lambda base, a, b: ("loguniform", {"a": base**a, "b": base**b}),
    "normal": lambda base, m, s: ("lognorm", {"s": s * math.log(base), "scale": base**m}),
    "laplace": lambda base, m, b: ("loglaplace", {"c": 1 / (b * math.log(base)), "scale": base**m}),
}


@dataclass(frozen=True)
class TruncatedPrior:
    """A prior on the natural scale.

    Attributes
    ----------
    family, arguments : str, dict of str to float
        Of scipy.stats, of the natural value.
    lower, upper : float
        Beyond them the density is zero.
    is_natural : bool
        It is a density of the parameter itself: costs that take its logarithm refuse it.
    """

    family: str
    arguments: dict[str, float]
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

    @property
    def kink(self) -> float:
        """Where the density has a kink, NaN where it has none."""
        return kink_of(self._distribution)

    @cached_property
    def mass(self) -> float:
        """The probability between the bounds."""
        with np.errstate(invalid="ignore"):  # NaN of arguments that the distribution cannot have
            return float(np.diff(self._distribution.cdf([self.lower, self.upper]))[0])

    @cached_property
    def _log_mass(self) -> float:
        return math.log(self.mass)

    def logpdf(self, x: Any) -> Any:
        """Return the log density at x."""
        return self._at(float(x)) if np.ndim(x) == 0 else np.vectorize(self._at, otypes=[float])(x)

    def _at(self, x: float) -> float:
        return self._density(x) - self._log_mass if self.lower <= x <= self.upper else -math.inf


def read_prior(row: Mapping[str, Any], version: int) -> TruncatedPrior | None:
    """Return the prior of a row of the parameter table: by default uniform between the bounds, on its scale.

    None if the row has no prior, and no bounds for a uniform one.
    """
    kind, text, scale = row["prior"], row["prior_parameters"], row["scale"]
    lower, upper = row["lower"], row["upper"]
    of = "lin"
    by_bounds = not text and kind in ("", "parameterScaleUniform")
    if kind.startswith("parameterScale") or (not kind and version == 1):
        kind, of = kind.removeprefix("parameterScale").lower() or "uniform", scale
    elif not kind:
        kind = "uniform"
    elif kind.startswith("log-"):
        kind, of = kind[4:], "log"
    elif kind in ("logNormal", "logLaplace"):
        kind, of = kind[3:].lower(), "log"
    if kind not in _FAMILIES or (of != "lin" and kind not in _OF_LOGARITHMS):
        raise DataError(f"{row['where']}: the prior {row['prior']!r} is not known; there are {listed(_FAMILIES)}.")
    if by_bounds and not all(map(math.isfinite, (lower, upper))):
        return None
    family, names = _FAMILIES[kind]
    values: list[Any] = [lower, upper] if by_bounds else [as_float(part.strip()) for part in text.split(";")]
    if of != "lin" and kind == "uniform" and (by_bounds or row["prior"] == "log-uniform"):  # its ends are natural
        family, names, of = "loguniform", ("a", "b"), "lin"
    numbers = [v for v in values if v is not None and math.isfinite(v)]
    if len(numbers) < len(values) or len(numbers) != len(names):
        raise DataError(f"{row['where']}: {text!r} are not the parameters of the prior {kind!r}.")
    arguments = dict(zip(names, numbers, strict=True))
    if of != "lin":
        with np.errstate(all="ignore"):
            family, found = _OF_LOGARITHMS[kind](np.float64(_BASES[of]), *np.array(numbers))
        arguments = {name: float(value) for name, value in found.items()}
    if family == "uniform":
        a, b = numbers
        arguments["scale"] = b - a if a + (b - a) >= b else math.nextafter(b - a, math.inf)  # b itself is inside
    prior = TruncatedPrior(family, arguments, lower, upper)
    if not all(map(math.isfinite, arguments.values())) or not prior.mass > 0:  # NaN of an sd below zero
        raise DataError(f"{row['where']}: the prior {kind!r} with {text!r} has no density between the bounds.")
    return prior
