"""Sets of parameters to try: normal draws with a mean and a covariance, truncated to a box if one is given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from fmepy.checks import as_rng, whole_number
from fmepy.errors import ArgumentError, ParameterError, check_choice
from fmepy.montecarlo.samplers import as_ranges
from fmepy.parameters.covariance import as_covariance, labels_of
from fmepy.parameters.named import as_parameters, check_names
from fmepy.parameters.scales import check_scale, mark, scale_of
from fmepy.types import Matrix, Seed, Vector
from fmepy.vocabulary import own_words

_MOST_DRAWS = 5_000_000  # of the truncated normal, before it gives up: about a second
_BATCH = 65_536  # draws at a time, so that memory stays small


@own_words
def Norm(
    parMean: Any, parCovar: Any, parRange: Any = None, *, num: int, outside: str = "truncate", seed: Seed = None
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
        A covariance that is not symmetric or not positive definite (the message has the eigenvalue), shapes that do
        not agree, a range of an unknown parameter.
    ArgumentError
        The box holds so little of the distribution that draws within it cannot be had (the message has the rate);
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
    mean_scale = scale_of(parMean)
    check_scale(parCovar, mean_scale, "parCovar")  # they must not contradict each other
    kinds = {**scale_of(parCovar), **mean_scale} or None
    centre = mean.to_numpy(dtype=float)
    if outside == "truncate" and parRange is not None:
        draws = _truncated(centre, chol_C, low, high, num, rng)
    else:
        draws = np.clip(centre + rng.standard_normal((num, len(names))) @ chol_C.T, low, high)
    return mark(pd.DataFrame(draws, columns=names), kinds)


def _truncated(mean: Vector, chol_C: Matrix, low: Vector, high: Vector, num: int, rng: np.random.Generator) -> Matrix:
    """Return `num` normal draws within a box, by rejection."""
    batches: list[Matrix] = []
    accepted = drawn = 0
    while accepted < num:
        rate = max(accepted, 1) / max(drawn, 1)
        n = int(min(max(1.2 * (num - accepted) / rate, 64), _BATCH))
        draws = mean + rng.standard_normal((n, len(mean))) @ chol_C.T
        inside = draws[((draws >= low) & (draws <= high)).all(axis=1)]
        batches.append(inside)
        accepted, drawn = accepted + len(inside), drawn + n
        if drawn >= _MOST_DRAWS and accepted < num:
            rate_text = f"{accepted / drawn:.2g}" if accepted else f"below {1 / drawn:.1g}"
            raise ArgumentError(
                f"`parRange` holds too little of the normal distribution: of {drawn:,} draws {accepted:,} fell within "
                f"it (acceptance rate {rate_text}), and {num:,} are needed. Widen the ranges, check the mean "
                f"{np.round(mean, 6).tolist()}, or use outside='clamp' or Unif."
            )
    return np.concatenate(batches)[:num]


def as_mean_and_covariance(parMean: Any, parCovar: Any) -> tuple[pd.Series, Matrix]:
    """Return the mean by name, and the covariance in its order."""
    if parMean is None:
        raise ParameterError("`parMean` is missing: give the means by name.")
    mean = as_parameters(parMean, argument="parMean").series()
    labels = labels_of(parCovar)
    named = isinstance(parMean, (Mapping, pd.Series, pd.DataFrame))
    if not named and labels is not None and len(labels) == len(mean):
        mean.index = pd.Index(labels)
    return mean, as_covariance(parCovar, [str(k) for k in mean.index], "parCovar")
