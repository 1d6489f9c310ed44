"""Sets of parameters to try: grids, random and space-filling points in ranges.

All return a DataFrame of one set per row and one column per parameter, ready for `sensRange(parInput=...)` or
`run_many`. Points in ranges start as points u of the unit cube and become ``min + (max - min) u``:

===========  =====================================================================================================
Grid         every combination of k equally spaced levels, the ends included
Unif         independent uniform draws
Latinhyper   one draw in each of `num` strata of every parameter, the strata paired at random
Sobol        scrambled Sobol' points: even in all directions, best with `num` a power of two
Halton       scrambled Halton points: even, for any `num`
===========  =====================================================================================================

`fmepy.montecarlo.normal.Norm` draws from a normal distribution.

References
----------
Owen, A. B. (1997). Scrambled net variance for integrals of smooth functions. Ann. Statist. 25, 1541-1562.
Stein, M. (1987). Large sample properties of simulations using Latin hypercube sampling. Technometrics 29, 143-151.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fmepy.checks import as_rng, whole_number
from fmepy.errors import ParameterError, listed
from fmepy.parameters.named import generated_names
from fmepy.types import Matrix, Seed, Vector
from fmepy.vocabulary import own_words

# --- ranges


@dataclass(frozen=True, slots=True, eq=False)
class Ranges:
    """Ranges of named parameters.

    Attributes
    ----------
    names : tuple of str, length n_par
    low, high : ndarray, shape (n_par,)
        Ends of the ranges, in the parameters' units.
    """

    names: tuple[str, ...]
    low: Vector
    high: Vector

    @property
    def middle(self) -> pd.Series:
        """The middle of every range, by name."""
        return pd.Series(self.low + 0.5 * (self.high - self.low), index=list(self.names))

    def table(self, unit: Matrix) -> pd.DataFrame:
        """Return points of the unit cube, shape (n, n_par), as parameters."""
        points = self.low + (self.high - self.low) * unit
        return pd.DataFrame(np.clip(points, self.low, self.high), columns=list(self.names))


def as_ranges(parRange: Any, *, finite: bool = True, argument: str = "parRange", varying: bool = False) -> Ranges:
    """Return ranges from a dict of (min, max) by name, a table with columns min and max, or pairs (p1, p2, ...).

    Raises
    ------
    ParameterError
        Not two numbers per parameter, min > max (min = max, too, with ``varying=True``), or an end that is not finite
        (infinite ends are fine with ``finite=False``).

    Examples
    --------
    >>> as_ranges({"a": (0, 2)}).middle.to_dict()
    {'a': 1.0}
    """
    if parRange is None:
        raise ParameterError(f"`{argument}` is missing: give (min, max) by name, such as {{'k': (0.1, 0.5)}}.")
    if isinstance(parRange, pd.DataFrame):
        if not {"min", "max"} <= set(parRange.columns):
            raise ParameterError(
                f"`{argument}` is a table with columns {listed(parRange.columns)}; it needs the columns 'min' and "
                "'max', and the parameters' names as its index."
            )
        pairs: dict[str, Any] = {
            str(k): (a, b) for k, a, b in zip(parRange.index, parRange["min"], parRange["max"], strict=True)
        }
        if len(pairs) < len(parRange):
            raise ParameterError(f"`{argument}` names a parameter more than once: {listed(parRange.index)}.")
        texts = [k for k in parRange.columns if pd.api.types.is_string_dtype(parRange[k])]
        if isinstance(parRange.index, pd.RangeIndex) and texts:
            raise ParameterError(
                f"`{argument}` is a table whose index holds no names, and {texts[0]!r} is not read: pass "
                f"table.set_index({texts[0]!r})."
            )
        if isinstance(parRange.index, pd.RangeIndex):
            pairs = dict(zip(generated_names(len(pairs)), pairs.values(), strict=True))
    elif isinstance(parRange, (Mapping, pd.Series)):
        pairs = {str(k): v for k, v in parRange.items()}
    else:
        try:
            pairs = dict(zip(generated_names(len(parRange)), parRange, strict=True))
            if len(parRange) == 2 and not any(map(np.ndim, parRange)):
                raise TypeError("a bare pair")
        except TypeError:
            raise ParameterError(
                f"`{argument}={parRange!r}` must be a dict of (min, max) by name, such as {{'k': (0.1, 0.5)}}, or a "
                "table with columns min and max."
            ) from None
    if not pairs:
        raise ParameterError(f"`{argument}` is empty; give at least one parameter.")
    low, high = (np.array(v) for v in zip(*(_pair(k, v, argument, finite) for k, v in pairs.items()), strict=True))
    for name, a, b in zip(pairs, low, high, strict=True):
        if varying and not a < b:
            raise ParameterError(f"`{argument}`: {name!r} goes from {a:g} to {b:g}; min < max is needed.")
    return Ranges(tuple(pairs), low, high)


def _pair(name: str, pair: Any, argument: str, finite: bool) -> tuple[float, float]:
    try:
        low, high = (float(v) for v in pair)
    except (TypeError, ValueError):
        raise ParameterError(f"`{argument}`: {name!r} has {pair!r}; two numbers (min, max) are needed.") from None
    if math.isnan(low) or math.isnan(high) or (finite and not (math.isfinite(low) and math.isfinite(high))):
        advice = "both ends must be finite numbers" if finite else "an end without bound is -inf or inf"
        raise ParameterError(f"`{argument}`: {name!r} has the range ({low:g}, {high:g}); {advice}.")
    if low > high:
        raise ParameterError(
            f"`{argument}`: {name!r} has min {low:g} above max {high:g}. Write ({high:g}, {low:g}) if they are swapped."
        )
    return low, high


# --- points in ranges


@own_words
def Grid(parRange: Any, num: int) -> pd.DataFrame:
    """Return all combinations of equally spaced levels, the first parameter varying fastest.

    Parameters
    ----------
    parRange : dict of (min, max) by name, or table
        The ranges; a table has columns ``min`` and ``max`` and the names as its index.
    num : int
        At most so many sets. Every parameter gets k levels, min and max among them, where k is the largest whole number
        with ``k**n_par <= num``; one level is the minimum.

    Returns
    -------
    DataFrame, shape (k**n_par, n_par)

    Raises
    ------
    ParameterError, ArgumentError
        An invalid range; ``num < 1``.

    Notes
    -----
    FME: ``Grid``. Differs from FME: k is found in whole numbers. R takes the root in floating point, which falls short
    for exact powers (64 sets of 3 parameters become 27).

    Examples
    --------
    >>> Grid({"a": (0, 1), "b": (5, 7)}, 6)
         a    b
    0  0.0  5.0
    1  1.0  5.0
    2  0.0  7.0
    3  1.0  7.0
    """
    ranges, num = as_ranges(parRange), whole_number(num, "num", 1)
    n_par = len(ranges.names)
    k = round(num ** (1 / n_par))  # within one of the root, whatever the rounding
    if k**n_par > num:
        k -= 1
    levels = [np.linspace(a, b, k) for a, b in zip(ranges.low, ranges.high, strict=True)]
    columns = np.meshgrid(*levels, indexing="ij")
    return pd.DataFrame({name: c.ravel(order="F") for name, c in zip(ranges.names, columns, strict=True)})


@own_words
def Unif(parRange: Any, num: int, *, seed: Seed = None) -> pd.DataFrame:
    """Return independent uniform draws.

    Parameters
    ----------
    parRange : dict of (min, max) by name, or table
    num : int
        Number of sets.
    seed : int, Generator or None

    Returns
    -------
    DataFrame, shape (num, n_par)

    Raises
    ------
    ParameterError, ArgumentError
        An invalid range; ``num < 1``; an invalid seed.

    Notes
    -----
    FME: ``Unif``.

    Examples
    --------
    >>> Unif({"a": (0, 1), "b": (5, 7)}, 3, seed=1).round(3)
           a      b
    0  0.512  6.901
    1  0.144  6.897
    2  0.312  5.847
    """
    ranges, num = as_ranges(parRange), whole_number(num, "num", 1)
    return ranges.table(as_rng(seed).random((num, len(ranges.names))))


@own_words
def Latinhyper(parRange: Any, num: int, *, seed: Seed = None) -> pd.DataFrame:
    """Return a Latin hypercube: every parameter has exactly one draw in each of `num` equal strata of its range.

    Parameters
    ----------
    parRange : dict of (min, max) by name, or table
    num : int
        Number of sets, and of strata.
    seed : int, Generator or None

    Returns
    -------
    DataFrame, shape (num, n_par)

    Raises
    ------
    ParameterError, ArgumentError
        An invalid range; ``num < 1``; an invalid seed.

    Notes
    -----
    FME: ``Latinhyper``. The points are those of ``scipy.stats.qmc.LatinHypercube``: uniform within its stratum, strata
    permuted independently per parameter.

    Examples
    --------
    >>> np.floor(Latinhyper({"a": (0, 4), "b": (0, 4)}, 4, seed=1)).sort_values("a")["a"].tolist()
    [0.0, 1.0, 2.0, 3.0]
    """
    from scipy.stats.qmc import LatinHypercube

    return _points(LatinHypercube, parRange, num, seed)


@own_words
def Sobol(parRange: Any, num: int, *, seed: Seed = None) -> pd.DataFrame:
    """Return scrambled Sobol' points: they fill the ranges more evenly than chance.

    Parameters
    ----------
    parRange : dict of (min, max) by name, or table
    num : int
        Number of sets. The points are balanced when it is a power of two; other numbers give the first `num` points.
    seed : int, Generator or None
        Of the scrambling.

    Returns
    -------
    DataFrame, shape (num, n_par)

    Raises
    ------
    ParameterError, ArgumentError
        An invalid range; ``num < 1``; an invalid seed.

    Notes
    -----
    FME has no such sampler. The points are those of ``scipy.stats.qmc.Sobol`` (Owen scrambling).

    Examples
    --------
    >>> len(Sobol({"a": (0, 1), "b": (5, 7)}, 64, seed=1))
    64
    """
    from scipy.stats import qmc

    with warnings.catch_warnings():  # the docstring says that a power of two is better balanced
        warnings.filterwarnings("ignore", message="The balance properties", category=UserWarning)
        return _points(qmc.Sobol, parRange, num, seed)


@own_words
def Halton(parRange: Any, num: int, *, seed: Seed = None) -> pd.DataFrame:
    """Return scrambled Halton points: they fill the ranges more evenly than chance, whatever their number.

    Parameters
    ----------
    parRange : dict of (min, max) by name, or table
    num : int
        Number of sets.
    seed : int, Generator or None
        Of the scrambling.

    Returns
    -------
    DataFrame, shape (num, n_par)

    Raises
    ------
    ParameterError, ArgumentError
        An invalid range; ``num < 1``; an invalid seed.

    Notes
    -----
    FME has no such sampler. The points are those of ``scipy.stats.qmc.Halton``.

    Examples
    --------
    >>> len(Halton({"a": (0, 1), "b": (5, 7)}, 50, seed=1))
    50
    """
    from scipy.stats import qmc

    return _points(qmc.Halton, parRange, num, seed)


def _points(kind: Any, parRange: Any, num: int, seed: Seed) -> pd.DataFrame:
    """Return points of one of scipy's samplers of the unit cube, scrambled by default."""
    ranges, num = as_ranges(parRange), whole_number(num, "num", 1)
    return ranges.table(kind(len(ranges.names), seed=as_rng(seed)).random(num))
