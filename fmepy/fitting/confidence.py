"""Confidence intervals at several levels, by the profile F-test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fmepy.checks import positive_number, whole_number
from fmepy.errors import ArgumentError, listed
from fmepy.fitting.optimum import optimum_of
from fmepy.fitting.profile_sides import walk_all
from fmepy.fitting.refits import HeldParameter
from fmepy.fitting.result import ModFit
from fmepy.parameters.named import check_names
from fmepy.vocabulary import own_words

_COARSE = 9  # places of a profile of which only the limits are wanted


@own_words
def confidence(
    f: Any,
    fit: ModFit,
    which: Sequence[str] | str | None = None,
    *,
    sigmas: Sequence[float] = (0.95,),
    maxiter: int = 200,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
) -> pd.DataFrame:
    """Return confidence intervals of fitted parameters by the profile F-test, at one or several levels.

    A parameter is held at a value while the others are fitted again; where the sum of squares rises so far that the
    F-test refuses the value lies the limit. Unlike ``fit.std_error`` it knows of curvature. The limits are those of
    `profile`, which also says what they mean, and takes likelihoods and bounds.

    Parameters
    ----------
    f : fmepy cost or callable
        What was fitted; it must give residuals.
    fit : ModFit
    which : name or names, optional
        The default is all.
    sigmas : sequence of float
        Probabilities below 1, or numbers of standard deviations.
    maxiter : int
        Most fits of the others for the limits of one side.
    args, kwargs
        Passed on to `f`.

    Returns
    -------
    DataFrame
        One row per parameter and level: parameter, level, estimate, lower, upper (NaN where no limit was found).

    Raises
    ------
    ArgumentError
        `f` gives a number, or a parameter is unknown.

    Examples
    --------
    >>> from fmepy.fitting import modFit
    >>> x = np.arange(1.0, 7.0)
    >>> line = lambda p: p[0] + p[1] * x - np.array([1.1, 1.9, 3.2, 3.9, 5.1, 6.0])
    >>> confidence(line, modFit(line, [0.0, 1.0]), "p2").round(3)
      parameter  level  estimate  lower  upper
    0        p2   0.95     0.994  0.905  1.084
    """
    names = [str(n) for n in fit.par.index]
    wanted = names if which is None else [which] if isinstance(which, str) else list(which)
    wanted = list(check_names(wanted, names, argument="which"))
    levels = sorted(_probability(s) for s in sigmas)
    if fit.with_prior:
        raise ArgumentError("confidence() profiles the residuals of the data alone; this fit has a prior.")
    if fit.is_scalar:
        raise ArgumentError("confidence() tests sums of squares; this cost is one number, -2 log L. Use profile().")
    best = optimum_of(f, fit, args=args, kwargs=kwargs)
    if fit.at_bound:
        raise ArgumentError(
            f"The fit lies on a bound of {listed(fit.at_bound)}, where profiles have no two sides. Fit again with "
            "these parameters fixed at their bounds (left out of p), and take intervals of the others."
        )
    things = {n: HeldParameter(names.index(n)) for n in wanted}
    found = walk_all(best, things, levels, _COARSE, most=whole_number(maxiter, "maxiter", 1))
    rows = []
    for n in wanted:
        ends = [np.r_[found.sides[n, sign].ends, np.full(len(levels), np.nan)] for sign in (-1.0, 1.0)]
        estimate = float(things[n].place(found.best.theta))
        rows += [(n, level, estimate, ends[0][k], ends[1][k]) for k, level in enumerate(levels)]
    return pd.DataFrame(rows, columns=["parameter", "level", "estimate", "lower", "upper"])


def _probability(sigma: float) -> float:
    """Return the level of a probability, or of a number of standard deviations."""
    from scipy.special import erf

    value = positive_number(sigma, "sigmas", " (a probability below 1, or a number of standard deviations)")
    return round(value if value < 1 else float(erf(value / np.sqrt(2))), 10)
