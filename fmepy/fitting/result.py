"""The result of modFit: FME's fields, quantities derived from them, and their printed form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fmepy.costs.solver_error import is_too_large, told_error
from fmepy.errors import ArgumentError, listed
from fmepy.fitting.summary import COLUMNS, ModFitSummary, noise_note_of
from fmepy.journal.encoding import live
from fmepy.numerics.covariance import Spectrum, correlation_of
from fmepy.parameters.entities import entity_text
from fmepy.parameters.names import split_local
from fmepy.parameters.scales import mark, mark_covariance
from fmepy.results.tables import Part, Shown, as_html, wrapped
from fmepy.types import AxesArray, IntVector, Matrix, Vector
from fmepy.vocabulary import by_name

if TYPE_CHECKING:
    from fmepy.costs.data_fingerprint import ObservedData
    from fmepy.costs.noise import SaidNoise
    from fmepy.fitting.curves import FittedPanel
    from fmepy.fitting.optima import MultiStart
    from fmepy.fitting.predict import Prediction


@dataclass(frozen=True, eq=False, repr=False)  # no slots: its tables are made when they are first asked for
class ModFit(Shown):
    """Result of `modFit`.

    Attributes
    ----------
    names, theta
        The parameters, and the estimates as an array.
    par : Series
        The estimates.
    ssr : float
        Sum of squares of the scaled weighted residuals of the data at `par` (FME's `model`); NaN for a number. It does
        not contain a prior.
    minus2loglik : float
        -2 log L at `par`, as the cost gives it: on the scale on which model and data are compared. For residuals with
        errors given (weights other than 1) with those; for residuals of unknown error that of normal errors with
        variance ssr / n.
    minimised : float
        What was minimised, at `par`: `ssr` or `minus2loglik`, a prior's part included.
    ms : float
        ``ssr / n``.
    var_ms, var_ms_unscaled, var_ms_unweighted : Series or float
        ``SSR / N``, ``SSR.unscaled / N`` and ``SSR.unweighted / N`` by variable; NaN if f returns no ModCost.
    residuals : Series
        Weighted residuals at `par`, labelled by variable; for a function that returns a vector, as it returned them. Of
        a likelihood those in units of its sds, (mod - obs) / sd: of a filter the sd of the prediction, and of a reading
        beyond a limit the mean that it has given what was seen (`fmepy.numerics.tails`). A number has none.
    hessian : DataFrame
        Second derivatives at `par`: 2 J'J for least squares, a prior's included.
    rank : int
        Numerical rank of the Hessian, parameters brought to one size: fewer than the parameters where the data do not
        determine all of them. Without a Hessian, and for noise that is zero, the parameters themselves count.
    weighted, groups, group_names, curvature, bounds
        What `residuals`, `hessian`, `lower` and `upper` are made of, as arrays.
    cost : ModCost or None
        The ModCost at `par`.
    method, engine : str
        What was asked for, and what ran.
    converged : bool
        True only if the method ended by its rule, the next Gauss-Newton step is below 0.1 standard errors, the cost
        responds to every parameter there, *and* `solver_error` is at most 1.
    message : str
        Why it ended, what is on a bound, what is undetermined.
    iterations, evaluations : int
        `evaluations` counts runs of the cost, those of numerical differences included.
    rsstrace : ndarray
        The minimised cost by iteration.
    gradient : float
        Length of the gradient of the parameters that are free to move, for relative changes of parameters and cost.
    at_bound : tuple of str
        Parameters on a bound: they have no standard error (NaN), those of the others hold for these fixed there.
    at_kink : tuple of str
        Parameters held at the kink of their prior, likewise without standard error.
    retries : int
        Runs that the first engine could not finish and another one did.
    failures : int
        Failed runs; each counted as infinite cost. `first_failure` is the message of the first.
    nobs : float
        Number of residuals; for a number what the cost says, else NaN.
    solver_error : float or None
        What the solver's own error is worth: the change of the cost at `par` where tolerances are a hundred times
        smaller, in units of -2 log L, or of the residual variance `ms`. NaN if that run failed, None if no adaptive
        solver of ours ran.
    with_prior : bool
        True if there was a prior: then residuals are read in units of their errors and ``cov_scaled = cov_unscaled``.
    lower, upper : Series
        The bounds.
    multistart : MultiStart or None
        What came of several starts, if there were: their optima, how many reached the best, what may have been missed.
    tied : str or None
        The lmfit.Parameters that were given, as text.
    interrupted : bool
        True if Ctrl-C ended it: `par` is the best so far.
    transforms : dict of str to str, or None
        How the parameters are transformed, by name; None for a function, which does not say.
    data : ObservedData or None
        Which data the likelihood is of; None for a function that returns residuals or a number.
    error_estimated : bool
        True if the variance of the errors was estimated with the parameters, by ``ssr / n``. `rank`, `aic` and `bic` do
        not count it (R's AIC of an nls fit does, and is larger by 2).
    noise_scales : tuple of str
        Parameters that scale noise and were estimated from the data, as a scored cost declares them.
    noise : SaidNoise or None
        What was said of the noise of readings, for `predict`; None of a sum of squares, and of a function.
    source : cost or None
        The cost that was fitted, for `plot`; None of a function, and in a fit that was pickled.

    Notes
    -----
    `par` and the covariances remember on which scale they are (`transforms`): models, costs and chains that take
    another refuse them, until they are transformed (``np.exp(fit.par)``).

    `loglik`, `aic` and `bic` are of the data in their own units, so that fits of one and the same data on different
    scales can be compared: with a `transform` g of the data, loglik = - minus2loglik / 2 + ``sum log |dg/dy|``
    (`log_jacobian`). A function that transforms data itself cannot be seen through: there they are on its scale.
    """

    elsewhere = by_name(
        {
            "params x x0 best_values best_params values valuesdict popt beta estimates parameters pars": "`par`",
            "bse stderr se std_err standard_errors perr sd_beta": "`std_error`",
            "covar pcov cov cov_x vcov covariance cov_params": "`cov_scaled`",
            "corr correl": "`correlation`",
            "AIC": "`aic`",
            "BIC": "`bic`",
            "forecast filter smoothed get_forecast get_prediction smoothed_state": (
                "of the cost: cost.filter(fit.par).forecast(10)"
            ),
            "plot_diagnostics test_serial_correlation": "`plot()`, or of a filter flt = cost.filter(fit.par)",
            "logLik": "`loglik`",
            "fun value chisqr chi2 cost_value sse rss objective": "`ssr`, or `minus2loglik` of a likelihood",
            "redchi reduced_chi2 mse sigma2": "`ms`",
            "success status ier convergence info": "`converged`, with a sentence in `message`",
            "resid resids infodict": "`residuals`",
            "nfev njev ncalls counts": "`evaluations`",
            "nit": "`iterations`",
            "pvalues tvalues rsquared r2 params_table fit_report report": "`summary()`",
            "profile profiles profile_likelihood": "`fmepy.profile(cost, fit)`",
            "sample mcmc posterior emcee": "`fmepy.modMCMC(cost, fit)`",
            "best_fit fittedvalues eval yhat": "`predict(model)`, or `plot()`",
            "conf_int confint conf_interval ci_out ci_report": "`confidence()`",
            "log_likelihood llf logL": "`loglik`",
            "jac jacobian grad": "`gradient`; the Jacobian belongs to the cost: cost.bind(names).jacobian(theta)",
            "hess hess_inv": "`hessian`",
            "ndata n": "`nobs`",
            "nfree df_resid dof": "`df_residual`",
        }
    )
    names: tuple[str, ...]
    theta: Vector
    ssr: float
    minus2loglik: float
    minimised: float
    ms: float
    var_ms: pd.Series | float
    var_ms_unscaled: pd.Series | float
    var_ms_unweighted: pd.Series | float
    weighted: Vector
    groups: IntVector
    group_names: tuple[str, ...]
    curvature: Matrix | None
    rank: int
    cost: Any
    method: str
    converged: bool
    message: str
    iterations: int
    evaluations: int
    rsstrace: Vector
    engine: str
    gradient: float
    at_bound: tuple[str, ...]
    retries: int
    failures: int
    nobs: float
    with_prior: bool
    bounds: tuple[Vector, Vector]
    multistart: MultiStart | None = field(default=None, repr=False)
    tied: str | None = field(default=None, repr=False)
    transforms: dict[str, str] | None = field(default=None, repr=False)
    solver_error: float | None = None
    interrupted: bool = False
    data: ObservedData | None = field(default=None, repr=False)
    noise: SaidNoise | None = field(default=None, repr=False)
    error_estimated: bool = field(default=False, repr=False)
    first_failure: str = field(default="", repr=False)
    at_kink: tuple[str, ...] = ()
    noise_scales: tuple[str, ...] = field(default=(), repr=False)
    source: Any = field(default=None, repr=False, metadata=live("`cost.plot(fit.par)` draws the curves."))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "source": None}  # models of functions of users do not pickle

    @cached_property
    def par(self) -> pd.Series:
        """The estimates."""
        return mark(pd.Series(self.theta, index=list(self.names)), self.transforms)

    @cached_property
    def residuals(self) -> pd.Series:
        """Weighted residuals at `par`, labelled by variable."""
        labels = [self.group_names[g] for g in self.groups] if self.group_names else None
        return pd.Series(self.weighted, index=labels)

    @cached_property
    def hessian(self) -> pd.DataFrame | None:
        """Second derivatives at `par`."""
        H, names = self.curvature, list(self.names)
        return None if H is None else pd.DataFrame(H, index=names, columns=names)

    @cached_property
    def lower(self) -> pd.Series:
        """The lower bounds."""
        return pd.Series(self.bounds[0], index=list(self.names))

    @cached_property
    def upper(self) -> pd.Series:
        """The upper bounds."""
        return pd.Series(self.bounds[1], index=list(self.names))

    @property
    def starts(self) -> pd.DataFrame:
        """One row per start.

        The fitted parameters; `value`, what was minimised; `ssr`, its part of the data, without a prior (-2 log L for a
        number); `converged`; `message`; `optimum`, the number of that which it came to, 0 for none. NaN where it
        failed, and the message says why.
        """
        if self.multistart is not None:
            return self.multistart.starts
        row = {**self.par.to_dict(), "value": self.minimised, "ssr": self.deviance, "converged": self.converged}
        return pd.DataFrame([{**row, "message": self.message, "optimum": int(self.converged)}])

    @property
    def coef(self) -> pd.Series:
        """The estimates (R's coef)."""
        return self.par

    @property
    def is_scalar(self) -> bool:
        """True if -2 log L was minimised, not a sum of squares."""
        return bool(np.isnan(self.ssr))

    @property
    def deviance(self) -> float:
        """ssr, or -2 log L for a number."""
        return self.minus2loglik if self.is_scalar else self.ssr

    @property
    def df_residual(self) -> float:
        """Number of residuals minus number of parameters; NaN if the number of observations is not known."""
        return self.nobs - self.rank

    @property
    def residual_variance(self) -> float:
        """The factor of the covariance: ssr / df for least squares, 1 with a prior and for -2 log L."""
        if self.is_scalar or self.with_prior:
            return 1.0
        return self.ssr / self.df_residual if self.df_residual > 0 else np.nan

    @property
    def cov_unscaled(self) -> pd.DataFrame:
        """inverse(hessian / 2); NaN if it is singular or was not requested.

        Parameters on a bound have none (NaN); that of the others holds for these fixed there.
        """
        names = list(self.names)
        return mark_covariance(pd.DataFrame(self._inverse.copy(), names, names), self.transforms)

    @cached_property
    def _inverse(self) -> Matrix:
        if self.curvature is None:
            return np.full((len(self.names),) * 2, np.nan)
        return Spectrum.of(self.curvature, ~np.isin(self.names, list(self.at_bound))).covariance

    @property
    def cov_scaled(self) -> pd.DataFrame:
        """Covariance of the estimates: cov_unscaled times the residual variance."""
        return self.cov_unscaled * self.residual_variance

    @property
    def correlation(self) -> pd.DataFrame:
        """Correlation of the estimates."""
        names = list(self.par.index)
        return pd.DataFrame(correlation_of(self.cov_unscaled.to_numpy()), index=names, columns=names)

    @property
    def std_error(self) -> pd.Series:
        """Standard errors of the estimates."""
        return pd.Series(np.sqrt(np.diag(self.cov_scaled.to_numpy())), index=self.par.index)

    @property
    def log_jacobian(self) -> float:
        """Sum of ``log |dg/dy|`` over the data, g the transform by which they are compared; 0 without one."""
        return 0.0 if self.data is None else self.data.log_jacobian

    @property
    def loglik(self) -> float:
        """Log-likelihood of the data in their own units."""
        return -0.5 * self.minus2loglik + self.log_jacobian

    @property
    def aic(self) -> float:
        """Akaike's criterion of the data in their own units, -2 log L + 2 p."""
        return -2 * self.loglik + 2 * self.rank

    @property
    def bic(self) -> float:
        """Schwarz's criterion of the data in their own units, -2 log L + p log n."""
        return -2 * self.loglik + self.rank * float(np.log(self.nobs))

    def summary(self, cov: bool = True) -> ModFitSummary:
        """Return the table of estimates with standard errors and correlations, as R's summary.

        Parameters
        ----------
        cov : bool
            False leaves standard errors and covariances out (NaN).
        """
        from scipy.special import ndtr, stdtr

        names = list(self.par.index)
        unscaled = self.cov_unscaled if cov else pd.DataFrame(np.nan, index=names, columns=names)
        scaled = unscaled * self.residual_variance
        se = np.sqrt(np.diag(scaled.to_numpy()))
        est = self.par.to_numpy(dtype=float)
        with np.errstate(divide="ignore", invalid="ignore"):
            t = est / se
        df = self.df_residual
        tail = ndtr(-np.abs(t)) if np.isnan(df) or self.is_scalar else stdtr(df, -np.abs(t)) if df > 0 else t * np.nan
        variance = self.ssr / df if df > 0 else np.nan
        return ModFitSummary(
            par=pd.DataFrame(np.column_stack([est, se, t, 2 * tail]), index=names, columns=COLUMNS),
            cov_unscaled=unscaled,
            cov_scaled=scaled,
            correlation=pd.DataFrame(correlation_of(unscaled.to_numpy()), index=names, columns=names),
            residualVariance=variance,
            sigma=float(np.sqrt(variance)),
            modVariance=self.ms,
            df=(self.rank, df),
            residuals=self.residuals,
            info=self.converged,
            niter=self.iterations,
            stopmess=self.message,
            minus2loglik=self.minus2loglik,
            with_prior=self.with_prior,
            no_covariance=" was asked for." if not cov or self.hessian is None else f": {self.message}",
            solver_note=told_error(None if self.converged and is_too_large(self.solver_error) else self.solver_error),
            noise_note=noise_note_of(self.names, est, se, self.noise_scales) if cov else "",
            at_bound=self.at_bound,
            at_kink=self.at_kink,
        )

    def by_entity(self) -> pd.DataFrame:
        """Return the local parameters of several experiments as a table: a row an entity, its estimates and errors.

        Returns
        -------
        DataFrame
            Index: the entity, as text. Columns ``ka``, ``ka.se`` (its standard error), ...; NaN where an entity has no
            such parameter, or it was not fitted.

        Raises
        ------
        ArgumentError
            No parameter belongs to an entity.
        """
        cells: dict[str, dict[str, float]] = {}
        texts = {*map(entity_text, getattr(self.cost, "residuals", {}).get("entity", ()))}  # P[south]'s is none of them
        for name, estimate, error in zip(self.names, self.theta, self.std_error, strict=True):
            own, entity = split_local(name)
            if entity is not None and (not texts or entity in texts):
                cells.setdefault(own, {})[entity] = float(estimate)
                cells.setdefault(f"{own}.se", {})[entity] = float(error)
        if not cells:
            raise ArgumentError(
                "No parameter of this fit belongs to an entity; a cost with `entity` and `entity_parms` has such "
                f"parameters. Fitted were {listed(self.names)}."
            )
        return pd.DataFrame(cells).rename_axis("entity")

    def fitted_panels(self) -> list[FittedPanel]:
        """Return the fitted curves with bands and data, see `fmepy.fitting.curves`."""
        from fmepy.fitting.curves import fitted_panels

        return fitted_panels(self)

    def plot(self, *, axes: Any = None, **kwargs: Any) -> AxesArray:
        """Draw fitted curves with band and data, residuals, and the cost by iteration; return the Axes.

        Curves are drawn of costs that hold a model (`SimulationCost`, `FimlofCost`, sums of them): a panel a variable,
        or an entity (twelve at most). Given Axes for the residuals and the cost alone, it draws only these.
        """
        from fmepy.plotting.fits import plot_fit

        return plot_fit(self, axes=axes, **kwargs)

    def predict(self, model: Any, *, times: Any = None, level: float = 0.95, reading: bool = False) -> Prediction:
        """Return the fitted curve of `model` with a band, see `fmepy.fitting.predict`."""
        from fmepy.fitting.predict import predict

        return predict(model, self, times=times, level=level, reading=reading)

    def confidence(self, f: Any, which: Sequence[str] | None = None, **kwargs: Any) -> pd.DataFrame:
        """Return confidence intervals by the profile F-test, see `fmepy.fitting.profiles`."""
        from fmepy.fitting.profiles import confidence

        return confidence(f, self, which, **kwargs)

    def to_lmfit(self) -> Any:
        """Return the fit as an lmfit.minimizer.MinimizerResult: ``.params`` with standard errors and correlations.

        Fixed and tied parameters of lmfit.Parameters are there again.
        """
        from fmepy.fitting.lmfit_result import as_lmfit_result

        return as_lmfit_result(self)

    def shown(self) -> list[str | Part]:
        """Return how it was fitted, the estimates (in a notebook their summary), and how it ended."""
        values = "\n".join(f"  {n:<12s} {v: .6g}" for n, v in self.par.items())
        cost = f"-2 log L {self.minus2loglik:.7g}" if self.is_scalar else f"ssr {self.ssr:.7g}"
        verdict = "converged" if self.converged else "NOT converged"
        head = f"ModFit by {self.method} ({self.engine}): {cost}, {verdict}"
        return [head, Part(values, as_html(self.summary().shown())), wrapped(self.message)]
