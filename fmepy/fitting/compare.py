"""`compare_fits`: different structures fitted to the same data, by likelihood and information criteria.

::

    AIC = 2 p - 2 log L        BIC = p ln n - 2 log L        Akaike weight = exp(-dAIC / 2), scaled to sum 1
    nested:  LR = 2 (log L1 - log L0)  ~  chi2(p1 - p0)
    a variance tested against zero lies on its bound:  LR ~ half chi2(df - 1), half chi2(df)

Likelihoods are of the data in their own units, whatever the scale on which a fit compares them with its model.

The mixture (Self and Liang 1987) is for one variance; with df = 1 it is half zero, half chi2(1). A parameter that mixes
two structures is an ordinary parameter and needs nothing of this.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fmepy.costs.data_fingerprint import difference
from fmepy.errors import ArgumentError, check_known
from fmepy.results.tables import Framed, Part, table, wrapped
from fmepy.types import Axes
from fmepy.vocabulary import own_words

Pair = tuple[str, str]
_SEARCH_ERROR = 1e-3
"""So much of a likelihood ratio two searches may leave; no p-value depends on it."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class FitComparison(Framed):
    """Result of `compare_fits`.

    Attributes
    ----------
    frame : DataFrame
        By name of the fit: loglik, p, nobs, AIC, dAIC, weight (Akaike's), BIC, dBIC, converged.
    tests : DataFrame
        Likelihood ratios of nested pairs: small, large, LR, df, boundary, p_value.
    """

    frame: pd.DataFrame
    tests: pd.DataFrame

    @property
    def best(self) -> str:
        """The name with the smallest AIC."""
        return str(self.frame["AIC"].idxmin())

    def plot(self, *, ax: Any = None, **kwargs: Any) -> Axes:
        """Draw how far AIC and BIC lie above the best; return the Axes."""
        from fmepy.plotting.fits import plot_comparison

        return plot_comparison(self, ax=ax, **kwargs)

    def shown(self) -> list[str | Part]:
        """Return the table, and the tests of nested fits if there are any."""
        parts: list[str | Part] = [table(self.frame, "{:.6g}")]
        if len(self.tests):
            parts += ["", "Likelihood ratios of nested fits:", table(self.tests, "{:.4g}")]
            parts += [
                wrapped(
                    f"The larger fit {large!r} has a smaller likelihood than {small!r}: its search has not found the "
                    "optimum. Fit it again, from the smaller fit's parameters or with starts=."
                )
                for small, large in self.tests.loc[self.tests["p_value"].isna(), ["small", "large"]].to_numpy()
            ]
        return parts


@own_words
def compare_fits(
    fits: Mapping[str, Any],
    *others: Any,
    nested: Sequence[Pair] | None = None,
    boundary: int | Mapping[Pair, int] = 0,
    log_jacobian: Mapping[str, float] | None = None,
) -> FitComparison:
    """Return likelihoods, AIC and BIC of fits to the same data, and likelihood ratios of nested ones.

    Parameters
    ----------
    fits : mapping of name to ModFit
        At least two.
    nested : sequence of (small, large), optional
        Pairs to be tested; by default all in which the parameters of one are some of the other's, by name.
    boundary : {0, 1}, or mapping of (small, large) to it
        1: one of the parameters that the large fit has more is a variance (or sd), which the small one has at zero.
    log_jacobian : mapping of name to number, optional
        Added to the log-likelihood of a fit by a function of your own that transforms the data: the sum of
        ``log |dg/dy|`` over the data, such as ``-sum(log(y))`` for logarithms. Fits of fmepy costs have it in
        them (`ModFit.loglik`).

    Returns
    -------
    FitComparison

    Raises
    ------
    ArgumentError
        Fewer than two fits, fits of different data (what differs is named), unknown names.

    Notes
    -----
    Two likelihoods can be compared only if the data are the same: variables, x, values, and whether errors given with
    the data are used. The scale may differ (`transform`). Of a function that returns residuals or a number only the
    number of data is known. After bad data have been set missing, fit all structures again to the cleaned data.

    A sum of squares estimates the variance of the errors, too (`ModFit.error_estimated`). Beside fits that have theirs
    among the parameters (`measurement_noise`, filters), `p` counts it.

    References
    ----------
    Akaike (1974). Schwarz (1978). Self and Liang (1987), JASA 82.

    Examples
    --------
    >>> from fmepy.fitting import modFit
    >>> x = np.arange(8.0)
    >>> y = 1 + 0.5 * x + 0.1 * np.cos(3 * x)
    >>> line = modFit(lambda p: p["a"] + p["b"] * x - y, {"a": 0.0, "b": 0.0})
    >>> level = modFit(lambda p: p["a"] - y, {"a": 0.0})
    >>> both = compare_fits({"level": level, "line": line})
    >>> both.best
    'line'
    >>> both.tests[["small", "large", "df"]]
       small large  df
    0  level  line   1
    """
    if others or not isinstance(fits, Mapping) or len(fits) < 2:
        raise ArgumentError(
            "`fits` must be a dict of at least two fits, such as {'one lag': fit1, 'two lags': fit2}; got "
            f"{f'{len(fits)} of them' if isinstance(fits, Mapping) else type(fits).__name__}."
        )
    fits = {str(name): _checked(str(name), fit) for name, fit in fits.items()}
    names = list(fits)
    _check_same_data(fits)
    nobs = {name: float(fit.nobs) for name, fit in fits.items()}
    _check_same_number(nobs)
    extra = {str(k): float(v) for k, v in (log_jacobian or {}).items()}
    _check_known(extra, names, "log_jacobian")
    for name in extra:
        if getattr(fits[name], "data", None) is not None:
            raise ArgumentError(
                f"`log_jacobian`: the likelihood of {name!r} is of the data in their own units already "
                f"(log_jacobian {fits[name].log_jacobian:.6g} is in it). Leave it out."
            )
    loglik = np.array([float(fit.loglik) + extra.get(name, 0.0) for name, fit in fits.items()])
    p = np.array([len(fit.par) for fit in fits.values()])
    estimated = np.array([bool(getattr(fit, "error_estimated", False)) for fit in fits.values()])
    p += estimated & ~estimated.all()
    aic = 2 * p - 2 * loglik
    bic = p * np.log(list(nobs.values())) - 2 * loglik
    weight = np.exp(-0.5 * (aic - aic.min()))
    frame = pd.DataFrame(
        {
            **{"loglik": loglik, "p": p, "nobs": list(nobs.values()), "AIC": aic, "dAIC": aic - aic.min()},
            **{"weight": weight / weight.sum(), "BIC": bic, "dBIC": bic - bic.min()},
            "converged": [bool(getattr(fit, "converged", True)) for fit in fits.values()],
        },
        index=names,
    )
    pairs = _nested(fits, dict(zip(names, p, strict=True))) if nested is None else _given_pairs(nested, names)
    rows = [_ratio(frame, small, large, _on_boundary(boundary, (small, large))) for small, large in pairs]
    return FitComparison(frame, pd.DataFrame(rows, columns=["small", "large", "LR", "df", "boundary", "p_value"]))


def _checked(name: str, fit: Any) -> Any:
    missing = [a for a in ("loglik", "nobs", "par") if not hasattr(fit, a)]
    if missing:
        raise ArgumentError(f"`fits[{name!r}]` must be what modFit returns; got {type(fit).__name__}.")
    if np.isinf(getattr(fit, "log_jacobian", 0.0)):
        raise ArgumentError(
            f"`fits[{name!r}]` compares square roots of data of which some are 0, where a density of the data has no "
            "size. Drop these data from all fits, or choose another transform."
        )
    if not np.isfinite(fit.loglik):
        raise ArgumentError(f"`fits[{name!r}]` has no finite likelihood: {getattr(fit, 'message', fit.loglik)}")
    return fit


def _check_same_data(fits: Mapping[str, Any]) -> None:
    known = {name: fit.data for name, fit in fits.items() if getattr(fit, "data", None) is not None}
    first, *others = known or [""]
    for name in others:
        why = difference(known[first], known[name], (first, name))
        if why:
            raise ArgumentError(
                f"The fits are not of the same data, so their likelihoods cannot be compared: {why}. Fit them all to "
                "the same rows, nothing set missing or dropped in one only, with errors in all or in none."
            )


def _check_same_number(nobs: Mapping[str, float]) -> None:
    known = {name: n for name, n in nobs.items() if np.isfinite(n)}
    if len(set(known.values())) > 1:
        why = ", ".join(f"{name!r} {n:g}" for name, n in known.items())
        raise ArgumentError(
            f"The fits are of different numbers of data ({why}), so their likelihoods cannot be compared. Fit them "
            "all to the same data: the same rows, nothing set missing in one only, the same start (initial=)."
        )


def _check_known(given: Mapping[str, Any], names: Sequence[str], argument: str) -> None:
    for name in given:
        check_known(name, names, f"`{argument}`: there is no fit {name!r}.")


def _nested(fits: Mapping[str, Any], p: Mapping[str, int]) -> list[Pair]:
    """Return the pairs of which one has all parameters of the other and fewer, and the data on the same scale.

    Normal errors of the data are no special case of normal errors of their logarithms.
    """
    own = {name: set(map(str, fit.par.index)) for name, fit in fits.items()}
    scale = {name: Counter(getattr(getattr(fit, "data", None), "kinds", ())) for name, fit in fits.items()}
    return [(a, b) for a in fits for b in fits if own[a] < own[b] and p[a] < p[b] and scale[a] == scale[b]]


def _given_pairs(nested: Sequence[Pair], names: Sequence[str]) -> list[Pair]:
    pairs = []
    for pair in nested:
        if isinstance(pair, str) or len(pair) != 2:
            raise ArgumentError(f"`nested` must hold pairs (small, large) of names; got {pair!r}.")
        _check_known(dict.fromkeys(map(str, pair)), names, "nested")
        pairs.append((str(pair[0]), str(pair[1])))
    return pairs


def _on_boundary(boundary: Any, pair: Pair) -> int:
    value = boundary.get(pair, 0) if isinstance(boundary, Mapping) else boundary
    if value not in (0, 1):
        raise ArgumentError(
            f"`boundary={value!r}` must be 0 or 1: of several variances at zero at once the distribution depends on "
            "their correlations; test them one after the other."
        )
    return int(value)


def _ratio(frame: pd.DataFrame, small: str, large: str, boundary: int) -> list[Any]:
    """Return one row of the tests; a large fit worse than its small one has not converged, and has no p-value."""
    loglik, p = frame["loglik"], frame["p"]
    ratio, df = 2 * float(loglik[large] - loglik[small]), int(p[large] - p[small])
    if df < 1:
        raise ArgumentError(f"{small!r} cannot be nested in {large!r}: it has {p[small]} parameters, that {p[large]}.")
    return [small, large, ratio, df, boundary, _chance(ratio, df, boundary)]


def _chance(ratio: float, df: int, boundary: int) -> float:
    """Return the chance of a larger ratio if the small model is true.

    Examples
    --------
    >>> round(_chance(3.841459, 1, 0), 4), round(_chance(2.705543, 1, 1), 4)
    (0.05, 0.05)
    """
    from scipy.special import chdtrc

    if ratio < -_SEARCH_ERROR:
        return np.nan
    full = float(chdtrc(df, max(ratio, 0.0)))
    if not boundary:
        return full
    return 0.5 * full + 0.5 * (float(chdtrc(df - 1, max(ratio, 0.0))) if df > 1 else float(ratio <= 0))
