"""Functions of estimated parameters by the delta method, and the sandwich covariance.

With C the covariance of the estimate, a function g of the parameters has, to first order::

    var g = (dg/dp) C (dg/dp)'

which is often small where the single variances are large: a curve may be well determined while its coefficients are
not. When the model or the normality of the noise is in doubt, C is better taken from the scores g_n of the samples::

    C = J^-1 (sum_n g_n g_n') J^-1            J the observed information  (Huber 1967, White 1982)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from fmepy.checks import as_numbers, between_0_and_1
from fmepy.errors import ArgumentError, did_you_mean, listed
from fmepy.fitting.result import ModFit
from fmepy.numerics.differences import central_differences
from fmepy.parameters.named import check_fit
from fmepy.vocabulary import own_words

_STEP = 6e-6  # cube root of the machine epsilon: central differences


@own_words
def derived(fit: ModFit, function: Callable[[Any], Any], *, level: float = 0.95, cov: Any = None) -> pd.DataFrame:
    """Return functions of the fitted parameters with their standard errors.

    Parameters
    ----------
    fit : ModFit
    function : callable
        Of a Series of the parameters; returns a number, a dict, a Series or an array.
    level : float
        Of the intervals.
    cov : DataFrame, optional
        Covariance of the parameters; default ``fit.cov_scaled``.

    Returns
    -------
    DataFrame
        Columns estimate, std_error, lower, upper; a row for each function. Parameters on a bound count as fixed there.

    Raises
    ------
    ArgumentError
        A level outside (0, 1), a fit without covariance.

    Examples
    --------
    >>> from fmepy.fitting.modfit import modFit
    >>> x, y = np.arange(5.0), np.array([1.1, 2.9, 5.2, 7.0, 9.1])
    >>> fit = modFit(lambda p: p["a"] + p["b"] * x - y, {"a": 0.0, "b": 1.0})
    >>> derived(fit, lambda p: {"at 10": p["a"] + 10 * p["b"], "root": -p["a"] / p["b"]}).round(3)
           estimate  std_error   lower   upper
    at 10    21.140      0.335  20.483  21.797
    root     -0.517      0.059  -0.634  -0.401
    """
    from scipy.special import ndtri

    level = between_0_and_1(level, "level")
    if not callable(function):
        raise ArgumentError(
            "`function` must be a function of the parameters, such as lambda p: p['a'] / p['b'], or for several "
            f"lambda p: {{'ratio': p['a'] / p['b'], 'sum': p['a'] + p['b']}}; got {type(function).__name__}."
        )
    check_fit(fit)
    names = list(fit.par.index)
    table = fit.cov_scaled if cov is None else pd.DataFrame(cov)
    lacking = [n for n in names if n not in table.index or n not in table.columns]
    if lacking:
        raise ArgumentError(f"`cov` has no rows and columns of {listed(lacking)}; it must be labelled as fit.par is.")
    C = table.loc[names, names].to_numpy(dtype=float)
    if np.isnan(C).all():
        raise ArgumentError(f"The fit has no covariance: {fit.message}")
    known = ~np.isnan(np.diag(C))
    C = np.where(np.outer(known, known), C, 0.0)
    try:
        labels, value = _named(function(fit.par.copy()))
    except KeyError as error:
        hint = did_you_mean(error.args[0], names)
        raise ArgumentError(f"`function` asks for {error}.{hint} The fit has {listed(names)}.") from error
    theta, box = fit.par.to_numpy(dtype=float), (fit.lower.to_numpy(dtype=float), fit.upper.to_numpy(dtype=float))
    steps = np.where(known, _STEP * np.maximum(np.abs(theta), 1e-3 * np.sqrt(np.diag(C))), 0.0)

    def values(q: Any) -> Any:
        return _named(function(pd.Series(q, index=fit.par.index)))[1]

    slopes = central_differences(values, theta, steps, box, base=np.asarray(value, dtype=float))
    se = np.sqrt(np.einsum("ij,jk,ik->i", slopes, C, slopes))
    width = float(ndtri(0.5 + level / 2))
    return pd.DataFrame(
        {"estimate": value, "std_error": se, "lower": value - width * se, "upper": value + width * se}, index=labels
    )


def _named(result: Any) -> tuple[list[Any], Any]:
    if isinstance(result, Mapping):
        return list(result), as_numbers(list(result.values()), "function(fit.par)")
    if isinstance(result, pd.Series):
        return list(result.index), as_numbers(result, "function(fit.par)")
    values = np.atleast_1d(as_numbers(result, "function(fit.par)")).ravel()
    return list(range(len(values))), values


@own_words
def sandwich(cost: Any, fit: ModFit) -> pd.DataFrame:
    """Return the covariance of an estimate that holds when noise is not normal or the model not quite right.

    Parameters
    ----------
    cost : FimlofCost
        The cost that was fitted.
    fit : ModFit

    Returns
    -------
    DataFrame
        Covariance of the estimates.

    Raises
    ------
    ArgumentError
        A cost without scores of its samples, a fit without covariance.

    Notes
    -----
    With a diffuse start the part of the likelihood that belongs to the start alone, - 1/2 ln det A, is of no sample and
    is left out; it weighs little in long series.

    References
    ----------
    White (1982), Econometrica 50, 1-25.

    Examples
    --------
    >>> import numpy as np
    >>> from fmepy.fimlof.cost import FimlofCost
    >>> from fmepy.fitting.modfit import modFit
    >>> from fmepy.models.difference import DifferenceModel
    >>> model = DifferenceModel("next(x) = a * x", state={"x": 1.0}, times=range(41), parms={"a": 0.9})
    >>> readings = {"time": range(1, 41), "x": np.random.default_rng(1).standard_normal(40)}
    >>> cost = FimlofCost(model, readings, process_noise={"x": 1.0}, measurement_noise={"x": 0.0})
    >>> fit = modFit(cost, ["a"])
    >>> robust = sandwich(cost, fit)
    >>> bool(0.3 < robust.loc["a", "a"] / fit.cov_scaled.loc["a", "a"] < 3)
    True
    """
    if not callable(getattr(cost.bind() if hasattr(cost, "bind") else None, "sample_scores", None)):
        raise ArgumentError(
            f"`cost` must know the score of every sample, as a FimlofCost does; got {type(cost).__name__}."
        )
    check_fit(fit)
    bound = cost.bind(list(fit.par.index))
    inverse = fit.cov_unscaled.to_numpy()
    if np.isnan(inverse).all():
        raise ArgumentError(f"The fit has no covariance: {fit.message}")
    g = bound.sample_scores(fit.par.to_numpy(dtype=float))
    known = ~np.isnan(np.diag(inverse))
    out = np.full(inverse.shape, np.nan)
    J_inverse = inverse[np.ix_(known, known)]
    out[np.ix_(known, known)] = J_inverse @ (g[:, known].T @ g[:, known]) @ J_inverse
    return pd.DataFrame(out, index=fit.par.index, columns=fit.par.index)
