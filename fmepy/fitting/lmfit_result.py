"""A fit as lmfit shows it, and lmfit's parameters at the estimates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fmepy.errors import ArgumentError
from fmepy.numerics.differences import central_differences
from fmepy.types import Vector

if TYPE_CHECKING:
    from fmepy.fitting.result import ModFit


def lmfit_at(fit: ModFit) -> Any:
    """Return the user's lmfit parameters, the free ones at the estimates."""
    import lmfit

    whole = lmfit.Parameters()
    whole.loads(fit.tied)
    for name, value in fit.par.items():
        whole[str(name)].set(value=float(value))
    return whole


def values_at(fit: ModFit) -> dict[str, float]:
    """Return the estimates by name, and the values of what lmfit fixes and ties."""
    if fit.tied is None:
        return {str(name): float(value) for name, value in fit.par.items()}
    return {q.name: float(q.value) for q in lmfit_at(fit).values()}


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
            try:
                params.add(n, value=float(fit.par[n]), min=float(fit.lower[n]), max=float(fit.upper[n]))
            except (KeyError, ValueError) as error:
                raise ArgumentError(f"lmfit cannot hold the parameter {n!r}: {error.args[0]}.") from None
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
