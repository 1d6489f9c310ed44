"""predict: the fitted curve of a model with a band, by the delta method.

With S_i the derivatives of a value y_i to the parameters and C = ``fit.cov_scaled``::

    se_i^2 = S_i C S_i'  ( + residual variance of the variable, for a single reading)
    lower, upper = y_i -/+ t_{df, (1 + level) / 2} se_i

The derivatives are the model's exact sensitivities where it has them, else differences.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fmepy.checks import between_0_and_1
from fmepy.costs.user_function import is_cost, is_model
from fmepy.errors import ArgumentError, listed
from fmepy.fitting.result import ModFit
from fmepy.models.base import keep_within
from fmepy.numerics.differences import central_differences
from fmepy.parameters.named import generated_names
from fmepy.results.tables import Framed, Part, long_table
from fmepy.types import Matrix, Vector

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Prediction", "predict"]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Prediction(Framed):
    """A fitted curve with its band.

    Attributes
    ----------
    frame : DataFrame
        Columns: the independent variable, var, fit, se, lower, upper; variables one after the other.
    level : float
        Coverage of the band.
    reading : bool
        True if the band is for a single reading, False for the curve.
    """

    frame: pd.DataFrame
    level: float
    reading: bool

    def shown(self) -> list[str | Part]:
        """Return what the band is of, and the table."""
        what = "a reading" if self.reading else "the curve"
        return [f"Prediction, {self.level:.0%} band of {what}", long_table(self.frame)]

    def plot(self, obs: Any = None, *, which: Any = None, axes: Any = None, **kwargs: Any) -> NDArray[np.object_]:
        """Draw one panel per variable: curve, band, observations; return the Axes."""
        from fmepy.plotting.fits import plot_prediction

        return plot_prediction(self, obs, which=which, axes=axes, **kwargs)


def predict(model: Any, fit: ModFit, *, times: Any = None, level: float = 0.95, reading: bool = False) -> Prediction:
    """Return the fitted curve of a model with a confidence band.

    Parameters
    ----------
    model : fmepy model, or callable ``model(p) -> DataFrame``
        Of the same parameters as the fit: for a fit of log p, `transformed(model, "log")`.
    fit : ModFit
    times : sequence, optional
        Where the curve is wanted (fmepy models only); the default is the model's own.
    level : float
        Coverage of the band, between 0 and 1.
    reading : bool
        True: the band of a single reading, which adds the residual variance of each variable (``var_ms_unweighted``,
        corrected for degrees of freedom; of equal errors).

    Returns
    -------
    Prediction

    Raises
    ------
    ArgumentError
        A level outside (0, 1), a model that has none of the fitted parameters, times for a plain function.

    Notes
    -----
    A parameter of the fit on a bound counts as fixed there.

    Linear theory: the band is that of a model that is a plane over the region of the covariance. If it is curved there,
    sensRange on a chain of modMCMC tells more. Parameters of the fit that the model does not have (noise) are left out.

    Examples
    --------
    >>> from fmepy.fitting import modFit
    >>> x = np.arange(1.0, 7.0)
    >>> y = np.array([1.1, 1.9, 3.2, 3.9, 5.1, 6.0])
    >>> fit = modFit(lambda p: p[0] + p[1] * x - y, [0.0, 1.0])
    >>> predict(lambda p: pd.DataFrame({"x": x, "y": p[0] + p[1] * x}), fit)["se"].round(4).tolist()
    [0.0976, 0.0733, 0.0574, 0.0574, 0.0733, 0.0976]
    """
    from scipy.special import ndtri, stdtrit

    level = between_0_and_1(level, "level")
    if is_cost(model):
        filtered = " The filter's own bands: cost.filter(fit.par).plot() and .forecast()."
        raise ArgumentError(
            f"`model` must be a model, such as the one that the cost was made with; got {type(model).__name__}."
            f"{filtered if hasattr(model, 'filter') else ''}"
        )
    if is_model(model):
        x_name, x, variables, Y, S, used = _of_model(model, fit, times)
    elif callable(model):
        if times is not None:
            raise ArgumentError("`times` is for fmepy models; a function of your own returns its own table.")
        x_name, x, variables, Y, S, used = _of_function(model, fit)
    else:
        raise ArgumentError(f"`model` must be a model or a function of p; got {type(model).__name__}.")
    C = fit.cov_scaled.loc[used, used].to_numpy()
    held = np.isin(used, list(fit.at_bound))  # no covariance: the band is of the others, with these fixed there
    C, S = np.where(held[:, None] | held, 0.0, C), np.where(held, 0.0, S)
    variance = np.einsum("tvi,ij,tvj->tv", S, C, S)
    if reading:
        variance = variance + _reading_variance(fit, variables)
    se = np.sqrt(np.maximum(variance, 0.0))
    df = fit.df_residual
    normal = fit.is_scalar or fit.with_prior or np.isnan(df)
    quantile = float(ndtri((1 + level) / 2)) if normal else float(stdtrit(df, (1 + level) / 2)) if df > 0 else np.nan
    frame = pd.DataFrame(
        {
            x_name: np.tile(x, len(variables)),
            "var": np.repeat(np.array(variables, dtype=object), len(x)),
            "fit": Y.T.ravel(),
            "se": se.T.ravel(),
            "lower": (Y - quantile * se).T.ravel(),
            "upper": (Y + quantile * se).T.ravel(),
        }
    )
    return Prediction(frame, float(level), bool(reading))


_Parts = tuple[str, Vector, list[str], Matrix, "NDArray[np.float64]", list[str]]


def _of_model(model: Any, fit: ModFit, times: Any) -> _Parts:
    have = [str(n) for n in model.parms.index]
    used = [str(n) for n in fit.par.index if str(n) in have]
    if not used:
        raise ArgumentError(
            f"`model` has none of the fitted parameters {listed(fit.par.index)}; it has {listed(have)}."
        )
    _check_scale(model, fit, used)
    if fit.tied is not None:
        model = _with_fixed(model, fit, have)
    bound = model.bind(used) if times is None else model.bind(used, times=np.asarray(times, dtype=float))
    keep_within(bound, fit.lower[used].to_numpy(dtype=float), fit.upper[used].to_numpy(dtype=float))
    Y, S = bound.sensitivities(fit.par[used].to_numpy(dtype=float))
    return "time", np.asarray(bound.times, dtype=float), list(bound.var_names), np.asarray(Y), np.asarray(S), used


def _with_fixed(model: Any, fit: ModFit, have: list[str]) -> Any:
    """Return the model with the parameters that lmfit fixes; tied ones have no place in it."""
    from fmepy.fitting.confidence import lmfit_at

    others = [q for q in lmfit_at(fit).values() if q.name not in fit.par.index and q.name in have]
    tied = [q.name for q in others if q.expr is not None]
    if tied:
        raise ArgumentError(
            f"predict() does not follow lmfit's expressions (of {listed(tied)}); tie them in the model."
        )
    return model.replace(parms={q.name: float(q.value) for q in others}) if others else model


def _of_function(model: Any, fit: ModFit) -> _Parts:
    names = [str(n) for n in fit.par.index]
    positional = tuple(names) == generated_names(len(names))
    theta = fit.par.to_numpy(dtype=float)

    def table(q: Vector) -> pd.DataFrame:
        return pd.DataFrame(model(q.copy() if positional else dict(zip(names, map(float, q), strict=True))))

    base = table(theta)
    se = np.sqrt(np.maximum(np.diag(fit.cov_scaled.to_numpy()), 0.0))
    step = np.where(np.isfinite(se) & (se > 0), 0.01 * se, 1e-5 * np.maximum(np.abs(theta), 1e-8))
    box = fit.lower.to_numpy(dtype=float), fit.upper.to_numpy(dtype=float)
    values = base.iloc[:, 1:].to_numpy(dtype=float)
    slopes = central_differences(lambda q: table(q).iloc[:, 1:].to_numpy(dtype=float), theta, step, box, base=values)
    variables = [str(c) for c in base.columns[1:]]
    return str(base.columns[0]), base.iloc[:, 0].to_numpy(), variables, values, slopes, names


def _check_scale(model: Any, fit: ModFit, used: list[str]) -> None:
    """Refuse a model whose parameters are not on the scale of the fit's."""
    if fit.transforms is None:  # a function was fitted; what it does with its parameters is its own affair
        return
    taken = getattr(model, "transforms", {})
    for name in used:
        fitted, has = fit.transforms.get(name), taken.get(name)
        if fitted != has:
            here = f"{fitted}({name})" if fitted else name
            advice = f"predict(transformed(model, {fitted!r}), fit)" if fitted else "predict(model, fit)"
            raise ArgumentError(
                f"The fit is of {here}, and the model takes {f'{has}({name})' if has else name}. Pass the model on the "
                f"scale of the fit: {advice}."
            )


def _reading_variance(fit: ModFit, variables: list[str]) -> Vector:
    """Return the residual variance of every variable, NaN for those never observed."""
    if fit.cost is not None and not all(c.scale.is_identity for c, _ in fit.cost.pieces):
        raise ArgumentError(
            "reading=True adds the variance of the residuals, which this fit has on a transformed scale "
            "(SimulationCost(transform=...)). Take the band of the curve, and add the variance on that scale."
        )
    correction = fit.nobs / fit.df_residual if fit.df_residual > 0 else np.nan
    if isinstance(fit.var_ms_unweighted, pd.Series):
        of = fit.var_ms_unweighted.index if fit.cost is None else list(fit.cost.variables)
        by_name = fit.var_ms_unweighted.set_axis(of).groupby(level=0).mean()
        return np.array([by_name.get(v, np.nan) for v in variables]) * correction
    if np.isfinite(fit.ms) and len(variables) == 1:
        return np.array([fit.ms * correction])
    return np.full(len(variables), np.nan)
