"""Sets of parameters to try: grids, random and space-filling points in ranges, and normal draws.

All return a DataFrame of one set per row and one column per parameter, ready for `sensRange(parInput=...)` or
`run_many`. Points in ranges start as points u of the unit cube and become ``min + (max - min) u``:

===========  =====================================================================================================
Grid         every combination of k equally spaced levels, the ends included
Unif         independent uniform draws
Latinhyper   one draw in each of `num` strata of every parameter, the strata paired at random
Sobol        scrambled Sobol' points: even in all directions, best with `num` a power of two
Halton       scrambled Halton points: even, for any `num`
Norm         normal draws with a mean and a covariance, truncated to a box if one is given
===========  =====================================================================================================

References
----------
Owen, A. B. (1997). Scrambled net variance for integrals of smooth functions. Ann. Statist. 25, 1541-1562.
Stein, M. (1987). Large sample properties of simulations using Latin hypercube sampling. Technometrics 29, 143-151.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fmepy.checks import as_rng, whole_number
from fmepy.errors import ArgumentError, ParameterError, check_choice, listed
from fmepy.parameters.named import as_parameters, check_names, generated_names
from fmepy.parameters.scales import check_scale, marked, scale_of
from fmepy.types import Matrix, Seed, Vector

__all__ = ["Grid", "Halton", "Latinhyper", "Norm", "Ranges", "Sobol", "Unif", "as_covariance", "as_ranges"]

_MOST_DRAWS = 5_000_000  # of the truncated normal, before it gives up: about a second
_BATCH = 65_536  # draws at a time, so that memory stays small


# --- what the user gives


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


def as_ranges(parRange: Any, *, finite: bool = True, argument: str = "parRange") -> Ranges:
    """Return ranges from a dict of (min, max) by name, a table with columns min and max, or pairs (p1, p2, ...).

    Raises
    ------
    ParameterError
        Not two numbers per parameter, min > max, or an end that is not finite (infinite ends are fine with
        ``finite=False``).

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
        if _unnamed(parRange.index):
            pairs = dict(zip(generated_names(len(pairs)), pairs.values(), strict=True))
    elif isinstance(parRange, (Mapping, pd.Series)):
        pairs = {str(k): v for k, v in parRange.items()}
    else:
        try:
            pairs = dict(zip(generated_names(len(parRange)), parRange, strict=True))
        except TypeError:
            raise ParameterError(
                f"`{argument}={parRange!r}` must be a dict of (min, max) by name, or a table with columns min and max."
            ) from None
    if not pairs:
        raise ParameterError(f"`{argument}` is empty; give at least one parameter.")
    low, high = (np.array(v) for v in zip(*(_pair(k, v, argument, finite) for k, v in pairs.items()), strict=True))
    return Ranges(tuple(pairs), low, high)


def _pair(name: str, given: Any, argument: str, finite: bool) -> tuple[float, float]:
    try:
        low, high = (float(v) for v in given)
    except (TypeError, ValueError):
        raise ParameterError(f"`{argument}`: {name!r} has {given!r}; two numbers (min, max) are needed.") from None
    if math.isnan(low) or math.isnan(high) or (finite and not (math.isfinite(low) and math.isfinite(high))):
        advice = "both ends must be finite numbers" if finite else "an end without bound is -inf or inf"
        raise ParameterError(f"`{argument}`: {name!r} has the range ({low:g}, {high:g}); {advice}.")
    if low > high:
        raise ParameterError(
            f"`{argument}`: {name!r} has min {low:g} above max {high:g}. Write ({high:g}, {low:g}) if they are swapped."
        )
    return low, high


# --- points in ranges


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
        A range that is none; ``num < 1``.

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
        A range that is none; ``num < 1``; a seed that is none.

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
        A range that is none; ``num < 1``; a seed that is none.

    Notes
    -----
    FME: ``Latinhyper``. The points are those of ``scipy.stats.qmc.LatinHypercube``: uniform within its stratum, strata
    permuted independently per parameter.

    Examples
    --------
    >>> np.floor(Latinhyper({"a": (0, 4), "b": (0, 4)}, 4, seed=1)).sort_values("a")["a"].tolist()
    [0.0, 1.0, 2.0, 3.0]
    """
    from scipy.stats import qmc

    ranges, num = as_ranges(parRange), whole_number(num, "num", 1)
    engine = qmc.LatinHypercube(len(ranges.names), seed=as_rng(seed))
    return ranges.table(engine.random(num))


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
        A range that is none; ``num < 1``; a seed that is none.

    Notes
    -----
    FME has no such sampler. The points are those of ``scipy.stats.qmc.Sobol`` (Owen scrambling).

    Examples
    --------
    >>> len(Sobol({"a": (0, 1), "b": (5, 7)}, 64, seed=1))
    64
    """
    from scipy.stats import qmc

    ranges, num = as_ranges(parRange), whole_number(num, "num", 1)
    engine = qmc.Sobol(len(ranges.names), scramble=True, seed=as_rng(seed))
    with warnings.catch_warnings():  # that a power of two is better balanced is said above
        warnings.filterwarnings("ignore", message="The balance properties", category=UserWarning)
        return ranges.table(engine.random(num))


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
        A range that is none; ``num < 1``; a seed that is none.

    Notes
    -----
    FME has no such sampler. The points are those of ``scipy.stats.qmc.Halton``.

    Examples
    --------
    >>> len(Halton({"a": (0, 1), "b": (5, 7)}, 50, seed=1))
    50
    """
    from scipy.stats import qmc

    ranges, num = as_ranges(parRange), whole_number(num, "num", 1)
    engine = qmc.Halton(len(ranges.names), scramble=True, seed=as_rng(seed))
    return ranges.table(engine.random(num))


# --- normal draws


def Norm(
    parMean: Any,
    parCovar: Any,
    parRange: Any = None,
    *,
    num: int,
    outside: str = "truncate",
    seed: Seed = None,
) -> pd.DataFrame:
    """Return normal draws with mean `parMean` and covariance `parCovar`, within `parRange` if it is given.

    Parameters
    ----------
    parMean : dict, Series, sequence or number
        Means by name; a sequence gets the names p1, p2, ... (or those of the labels of `parCovar`).
    parCovar : matrix, labelled table, or number
        Covariance, shape (n_par, n_par), in the order of `parMean`; a DataFrame is matched by its labels. A number
        is the variance of a single parameter.
    parRange : dict of (min, max) by name, or table, optional
        A box for the draws; parameters left out are free, ends may be infinite.
    num : int
        Number of sets.
    outside : {"truncate", "clamp"}
        What happens to draws outside `parRange`: they are drawn again, so that the result is the truncated normal
        distribution ("truncate"), or they are moved onto the bound, as R does ("clamp").
    seed : int, Generator or None

    Returns
    -------
    DataFrame, shape (num, n_par)

    Raises
    ------
    ParameterError
        A covariance that is not symmetric or not positive definite (the message tells the eigenvalue), shapes that do
        not agree, a range of an unknown parameter.
    ArgumentError
        The box holds so little of the distribution that draws within it cannot be had (the message tells the rate);
        ``num < 1``.

    Notes
    -----
    FME: ``Norm``. With ``C = L L'`` (Cholesky), a draw is ``mean + L z`` with independent standard normal z. Truncation
    is by rejection: exact, and as fast as the share of the distribution within the box allows; after
    5,000,000 draws it gives up.

    Differs from FME: draws outside `parRange` are rejected, not moved onto the bound, where R piles up the mass of the
    tail (``outside="clamp"`` is R's way); one parameter keeps its range and its name; a covariance that is not
    symmetric is refused, where R reads its upper triangle.

    Examples
    --------
    >>> Norm({"a": 4, "b": 3}, [[0.5, -0.2], [-0.2, 1.0]], {"a": (4, np.inf)}, num=3, seed=1).round(3)
           a      b
    0  4.244  3.690
    1  4.234  1.657
    2  4.640  3.172
    """
    mean, C = as_mean_and_covariance(parMean, parCovar)
    num = whole_number(num, "num", 1)
    check_choice(outside, ("truncate", "clamp"), "outside")
    names = [str(k) for k in mean.index]
    low, high = np.full(len(names), -np.inf), np.full(len(names), np.inf)
    if parRange is not None:
        ranges = as_ranges(parRange, finite=False)
        places = [names.index(k) for k in check_names(ranges.names, names, argument="parRange")]
        low[places], high[places] = ranges.low, ranges.high
    chol_C: Matrix = np.linalg.cholesky(C).astype(float)
    rng = as_rng(seed)
    kinds = _scale_of_draws(parMean, parCovar)
    centre = mean.to_numpy(dtype=float)
    if outside == "clamp" or parRange is None:
        draws = centre + rng.standard_normal((num, len(names))) @ chol_C.T
        return marked(pd.DataFrame(np.clip(draws, low, high), columns=names), kinds)
    return marked(pd.DataFrame(_truncated(centre, chol_C, low, high, num, rng), columns=names), kinds)


def _scale_of_draws(parMean: Any, parCovar: Any) -> dict[str, str | None] | None:
    """Return the scale of means and covariance as far as they tell it; they must not contradict each other."""
    of_mean, of_covariance = scale_of(parMean), scale_of(parCovar)
    check_scale(parCovar, of_mean, "parCovar")
    return {**of_covariance, **of_mean} or None


def _truncated(mean: Vector, chol_C: Matrix, low: Vector, high: Vector, num: int, rng: np.random.Generator) -> Matrix:
    """Return `num` normal draws within a box, by rejection."""
    kept: list[Matrix] = []
    accepted = drawn = 0
    while accepted < num:
        rate = max(accepted, 1) / max(drawn, 1)
        n = int(min(max(1.2 * (num - accepted) / rate, 64), _BATCH))
        draws = mean + rng.standard_normal((n, len(mean))) @ chol_C.T
        inside = draws[((draws >= low) & (draws <= high)).all(axis=1)]
        kept.append(inside)
        accepted, drawn = accepted + len(inside), drawn + n
        if drawn >= _MOST_DRAWS and accepted < num:
            rate_told = f"{accepted / drawn:.2g}" if accepted else f"below {1 / drawn:.1g}"
            raise ArgumentError(
                f"`parRange` holds too little of the normal distribution: of {drawn:,} draws {accepted:,} fell within "
                f"it (acceptance rate {rate_told}), and {num:,} are needed. Widen the ranges, check the mean "
                f"{np.round(mean, 6).tolist()}, or use outside='clamp' or Unif."
            )
    return np.concatenate(kept)[:num]


def as_mean_and_covariance(parMean: Any, parCovar: Any) -> tuple[pd.Series, Matrix]:
    """Return the mean by name, and the covariance in its order."""
    if parMean is None:
        raise ParameterError("`parMean` is missing: give the means by name.")
    mean = as_parameters(parMean, argument="parMean").series()
    labels = _labels(parCovar)
    named = isinstance(parMean, (Mapping, pd.Series, pd.DataFrame))
    if not named and labels is not None and len(labels) == len(mean):
        mean.index = pd.Index(labels)
    return mean, as_covariance(parCovar, [str(k) for k in mean.index])


def _labels(parCovar: Any) -> list[str] | None:
    """Return the names that a covariance carries, None if it has none."""
    return None if not isinstance(parCovar, pd.DataFrame) or _unnamed(parCovar.columns) else list(map(str, parCovar))


def _unnamed(labels: Any) -> bool:
    return isinstance(labels, pd.RangeIndex)


def as_covariance(parCovar: Any, names: list[str]) -> Matrix:
    """Return a covariance in the order of `names`.

    Raises
    ------
    ParameterError
        It is missing, has another shape or other labels, is not symmetric, or not positive definite.
    """
    if parCovar is None:
        raise ParameterError("`parCovar` is missing: give the covariance of the parameters.")
    labels = _labels(parCovar)
    if labels is not None:
        check_names(labels, names, argument="parCovar")
        check_names(names, labels, argument="parCovar")
        rows = labels if _unnamed(parCovar.index) else [str(k) for k in parCovar.index]
        if sorted(rows) != sorted(labels):
            raise ParameterError(f"`parCovar` has the rows {listed(rows)} but the columns {listed(labels)}.")
        values = np.asarray(parCovar, dtype=float)
        values = values[np.ix_([rows.index(k) for k in names], [labels.index(k) for k in names])]
    else:
        values = np.asarray(parCovar, dtype=float)
    C: Matrix = values.reshape(1, 1) if values.size == 1 else values
    n = len(names)
    if C.shape != (n, n):
        advice = " For variances alone write np.diag(variances)." if C.ndim == 1 or C.shape == (1, 1) else ""
        raise ParameterError(
            f"`parCovar` has shape {C.shape}; {n} parameters ({listed(names)}) need ({n}, {n}).{advice}"
        )
    _check_covariance(C, names)
    return 0.5 * (C + C.T)


def _check_covariance(C: Matrix, names: list[str]) -> None:
    if not np.all(np.isfinite(C)):
        raise ParameterError("`parCovar` holds values that are not finite; give a covariance of finite numbers.")
    variances = np.diag(C)
    for name, value in zip(names, variances, strict=True):
        if value <= 0:
            raise ParameterError(
                f"`parCovar` is not positive definite: the variance of {name!r} is {value:g}. Leave a parameter that "
                "does not vary out."
            )
    sd = np.sqrt(variances)
    scaled = C / np.outer(sd, sd)
    for i, j in itertools.combinations(range(len(names)), 2):
        if abs(scaled[i, j] - scaled[j, i]) > 1e-8:
            raise ParameterError(
                f"`parCovar` is not symmetric: the covariance of {names[i]!r} and {names[j]!r} is {C[i, j]:g} above "
                f"the diagonal and {C[j, i]:g} below it."
            )
    # parameters may differ in size by many orders: definiteness is judged on the correlations
    values, vectors = np.linalg.eigh(0.5 * (scaled + scaled.T))
    if values[0] <= len(names) * np.finfo(float).eps:
        smallest = np.linalg.eigvalsh(0.5 * (C + C.T))[0]
        weights = np.abs(vectors[:, 0])
        involved = [names[i] for i in np.argsort(-weights) if weights[i] > 0.1]
        raise ParameterError(
            f"`parCovar` is not positive definite: its smallest eigenvalue is {smallest:.3g} (eigenvalue 1 of "
            f"{len(names)}; of the correlation matrix {values[0]:.3g}), in the direction of {listed(involved)}. "
            "They are perfectly correlated, or the matrix is not a covariance."
        )
