"""Confidence intervals by lmfit's profile F-test, and a fit as lmfit shows it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fmepy.costs.user_function import as_objective
from fmepy.errors import ArgumentError, ConvergenceError, SimulationError, listed
from fmepy.fitting.result import ModFit
from fmepy.numerics.differences import central_differences
from fmepy.parameters.named import check_names, generated_names
from fmepy.types import Vector

__all__ = ["as_lmfit_result", "confidence", "lmfit_at"]

_OF_A_PROFILE = 200  # evaluations for the limits of one parameter, about


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
    """Return confidence intervals of fitted parameters by the profile F-test of lmfit.

    A parameter is held at a value while the others are fitted again; where the sum of squares rises so far that the
    F-test refuses the value lies the limit. Unlike ``fit.std_error`` it knows of curvature.

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
        Most evaluations for one limit.
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
    ConvergenceError
        lmfit finds no standard errors to start from.

    Examples
    --------
    >>> from fmepy.fitting import modFit
    >>> x = np.arange(1.0, 7.0)
    >>> line = lambda p: p[0] + p[1] * x - np.array([1.1, 1.9, 3.2, 3.9, 5.1, 6.0])
    >>> confidence(line, modFit(line, [0.0, 1.0]), "p2").round(3)
      parameter  level  estimate  lower  upper
    0        p2   0.95     0.994  0.905  1.084
    """
    import lmfit

    names = [str(n) for n in fit.par.index]
    wanted = names if which is None else [which] if isinstance(which, str) else list(which)
    wanted = list(check_names(wanted, names, argument="which"))
    if fit.with_prior:
        raise ArgumentError("confidence() profiles the residuals of the data alone; this fit has a prior.")
    start = fit.par if fit.tied is None else lmfit_at(fit)
    objective = as_objective(f, start, args=args, kwargs=kwargs, runs=_OF_A_PROFILE * len(wanted))
    objective.begin(fit.par.to_numpy(dtype=float), fit.lower.to_numpy(dtype=float), fit.upper.to_numpy(dtype=float))
    if objective.is_scalar:
        raise ArgumentError("confidence() tests sums of squares; this cost is one number, -2 log L.")
    there = objective.value(fit.par.to_numpy(dtype=float))
    if not abs(there - fit.ssr) <= 1e-3 * max(abs(fit.ssr), 1e-300):
        raise ArgumentError(
            f"The cost is {there:.6g} at the estimates, and the fit says {fit.ssr:.6g}: `f` is not what was fitted "
            "(other data, or parameters on another scale)."
        )
    if fit.at_bound:
        raise ArgumentError(
            f"The fit lies on a bound of {listed(fit.at_bound)}, where profiles have no two sides. Fit again with "
            "these parameters fixed at their bounds (left out of p), and take intervals of the others."
        )
    inner = dict(zip(names, generated_names(len(names)), strict=True))  # lmfit takes Python names only
    params = lmfit.Parameters()
    for n in names:
        params.add(inner[n], value=float(fit.par[n]), min=float(fit.lower[n]), max=float(fit.upper[n]))
    last = [np.full(objective.n_obs, 1e6)]

    def residuals(q: Any) -> Vector:
        theta = np.array([q[inner[n]].value for n in names])
        try:
            last[0] = objective.scaled_residuals(theta)
        except SimulationError:
            return np.full(objective.n_obs, 1e6 * max(1.0, float(np.abs(last[0]).max())))
        return last[0]

    step = objective.differences.step**2 if not objective.differences.central else objective.differences.step
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # lmfit warns of limits it does not find; they are NaN here
        mini = lmfit.Minimizer(residuals, params)
        at = mini.leastsq(epsfcn=step)
        if not at.errorbars:
            raise ConvergenceError(f"lmfit finds no standard errors at the optimum, so no limits: {at.message}")
        found = lmfit.conf_interval(mini, at, p_names=[inner[n] for n in wanted], sigmas=list(sigmas), maxiter=maxiter)
    rows = []
    for n in wanted:
        limits = [(float(prob), float(v)) for prob, v in found[inner[n]]]
        middle = len(limits) // 2
        for k in range(middle):
            low, high = limits[middle - 1 - k], limits[middle + 1 + k]
            ends = [v if np.isfinite(v) else np.nan for v in (low[1], high[1])]
            rows.append((n, round(low[0], 10), float(fit.par[n]), *ends))
    return pd.DataFrame(rows, columns=["parameter", "level", "estimate", "lower", "upper"])


def lmfit_at(fit: ModFit) -> Any:
    """Return lmfit's parameters as they were given, the free ones at the estimates."""
    import lmfit

    whole = lmfit.Parameters()
    whole.loads(fit.tied)
    for name, value in fit.par.items():
        whole[str(name)].set(value=float(value))
    return whole


def as_lmfit_result(fit: ModFit) -> Any:
    """Return a fit as lmfit.minimizer.MinimizerResult; `lmfit.fit_report` prints it."""
    import lmfit
    from lmfit.minimizer import MinimizerResult

    names = [str(n) for n in fit.par.index]
    if fit.tied is not None:
        params = lmfit_at(fit)
    else:
        params = lmfit.Parameters()
        for n in names:
            params.add(n, value=float(fit.par[n]), min=float(fit.lower[n]), max=float(fit.upper[n]))
    cov = fit.cov_scaled.to_numpy()
    known = np.isfinite(np.diag(cov))  # those on a bound have no error; lmfit counts what has one as varied
    errors, free = bool(known.any()), [n for n, k in zip(names, known, strict=True) if k]
    if errors:
        cov = cov[np.ix_(known, known)]
        correlation = fit.correlation.loc[free, free].to_numpy()
        for i, n in enumerate(free):
            params[n].stderr = float(np.sqrt(cov[i, i]))
            params[n].correl = {m: float(correlation[i, j]) for j, m in enumerate(free) if j != i}
        for n, se in _tied_errors(params, free, cov).items():
            params[n].stderr = se
    n_data = int(fit.nobs) if np.isfinite(fit.nobs) else 0
    return MinimizerResult(
        params=params,
        var_names=free if errors else names,
        init_vals=None,
        init_values=None,
        covar=cov if errors else None,
        errorbars=errors,
        nvarys=len(names),
        ndata=n_data,
        nfree=n_data - len(names),
        nfev=fit.evaluations,
        residual=fit.residuals.to_numpy(),
        chisqr=fit.deviance,
        redchi=fit.deviance / max(n_data - len(names), 1),
        aic=fit.aic,
        bic=fit.bic,
        success=fit.converged,
        message=fit.message,
        method=f"fmepy {fit.method}",
        aborted=False,
        scale_covar=not fit.with_prior,
    )


def _tied_errors(params: Any, names: Sequence[str], cov: Any) -> dict[str, float]:
    """Return standard errors of tied parameters, by the derivatives of their expressions."""
    tied = [q.name for q in params.values() if q.expr is not None]
    if not tied:
        return {}
    theta = np.array([params[n].value for n in names])
    box = np.array([params[n].min for n in names]), np.array([params[n].max for n in names])

    def values(point: Vector) -> Vector:
        moved = params.copy()
        for n, value in zip(names, point, strict=True):
            moved[n].set(value=float(value))
        return np.array([float(moved[t].value) for t in tied])

    D = central_differences(values, theta, 1e-5 * np.maximum(np.abs(theta), 1e-8), box)
    return dict(zip(tied, np.sqrt(np.diag(D @ cov @ D.T)).tolist(), strict=True))
