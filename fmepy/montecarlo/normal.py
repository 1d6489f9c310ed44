"""Sets of parameters to try: normal draws with a mean and a covariance, truncated to a box if one is given."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from fmepy.checks import as_rng, whole_number
from fmepy.errors import ArgumentError, ParameterError, check_choice, listed
from fmepy.montecarlo.samplers import as_ranges, is_unnamed
from fmepy.parameters.named import as_parameters, check_names
from fmepy.parameters.scales import check_scale, marked, scale_of
from fmepy.types import Matrix, Seed, Vector

_MOST_DRAWS = 5_000_000  # of the truncated normal, before it gives up: about a second
_BATCH = 65_536  # draws at a time, so that memory stays small


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
    return None if not isinstance(parCovar, pd.DataFrame) or is_unnamed(parCovar.columns) else list(map(str, parCovar))


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
        rows = labels if is_unnamed(parCovar.index) else [str(k) for k in parCovar.index]
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
