"""The optimum that profiles and landscapes start from: the fit's own cost, its bounds, and how it is fitted again."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fmepy.costs.objective import Objective
from fmepy.costs.user_function import as_objective
from fmepy.errors import ArgumentError, check_choice
from fmepy.fitting.control import filled
from fmepy.fitting.lmfit_result import lmfit_at
from fmepy.fitting.methods.registry import METHODS, method_for
from fmepy.fitting.refits import BETTER, Search, fitted
from fmepy.numerics.covariance import root_of
from fmepy.parameters.named import as_bounds, check_fit, check_inside
from fmepy.parameters.priors import Prior, as_prior
from fmepy.types import Vector

if TYPE_CHECKING:
    from fmepy.fitting.result import ModFit

_WARM: dict[str, dict[str, Any]] = {"scoring": {"inflate": 1.0, "tries": 1}, "Marq": {"maxiter": 200, "maxfev": 1000}}
"""What a search from a neighbour's result does not need: other starts, more time."""


@dataclass(frozen=True, slots=True, eq=False)
class Optimum:
    """The optimum that profiles start from, and how the others are fitted again.

    Attributes
    ----------
    search : Search
    theta, cost
        The optimum and the cost there.
    df : float
        Degrees of freedom of the residual variance; NaN where the likelihood ratio is chi-square.
    notes : tuple of str
        What is to be said of the fit.
    """

    search: Search
    theta: Vector
    cost: float
    df: float
    notes: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters."""
        return self.search.objective.parameter_names

    @property
    def question(self) -> dict[str, Any]:
        """What makes work that starts from here the same as other work, for checkpoints."""
        search = self.search
        return {
            **search.objective.identity,
            "method": search.method,
            "lower bounds": search.lower,
            "upper bounds": search.upper,
            "degrees of freedom": self.df,
        }

    def at(self, theta: Vector, cost: float) -> Optimum:
        """Return the same at a better place."""
        search = copy(self.search)
        search.unit = 1.0 if np.isnan(self.df) else cost / self.df
        problem = search.problem(theta)
        if search.objective.is_scalar and not search.objective.has_score:
            H = problem.hessian(theta)
            search.curvature = root_of(0.5 * np.where(np.isfinite(H), H, 0.0))
        return replace(self, search=search, theta=theta, cost=cost)

    def threshold(self, level: float) -> float:
        """Return the quantile of tau: of t, or of the normal distribution."""
        from scipy.special import ndtri, stdtrit

        return float(ndtri((1 + level) / 2) if np.isnan(self.df) else stdtrit(self.df, (1 + level) / 2))


def optimum_of(
    f: Any, fit: Any, *, lower: Any = -np.inf, upper: Any = np.inf, method: str | None = None, jac: Any = None,
    prior: Any = None, args: Any = (), kwargs: Any = None,
) -> Optimum:  # fmt: skip
    """Return the optimum of a fit, searched once more from its end; refuse any but the cost that was fitted."""
    check_fit(fit)
    if method is not None:
        check_choice(method, METHODS, "method")
    objective = as_objective(f, start_of(fit), jac=jac, args=args, kwargs=kwargs, hold_engine=True)
    if objective.is_scalar != fit.is_scalar:
        kinds = "one number, -2 log L", "a sum of squares"
        has, was = kinds if objective.is_scalar else kinds[::-1]
        raise ArgumentError(f"`f` is {has}, and the fit is of {was}. Pass the cost that was fitted.")
    check_belongs(objective, fit)
    low, high = as_bounds(lower, upper, objective.parameter_names,
                          declared=(fit.lower.to_numpy(dtype=float), fit.upper.to_numpy(dtype=float)))  # fmt: skip
    theta = fit.par.to_numpy(dtype=float, copy=True)
    check_inside(theta, low, high, objective.parameter_names, argument="fit")
    known = as_prior(prior, objective.parameters)
    if (known is not None) != fit.with_prior:
        raise ArgumentError(
            "The fit has a prior, so its profile needs it again: prior=..., as modFit had it."
            if fit.with_prior
            else "The fit has no prior; leave `prior` out, or fit with it first."
        )
    if known is not None:
        low, high = known.narrowed(low, high, objective.parameter_names)
    squares = not fit.is_scalar and not fit.with_prior
    df = fit.df_residual if squares else np.nan
    if squares and not (df > 0 and fit.ssr > 0):
        raise ArgumentError(
            f"{fit.nobs:g} residuals, sum of squares {fit.ssr:g}, {len(fit.names)} parameters: no residual variance is "
            "left to compare with, so there are no intervals. If the noise is known say so: measurement_noise=."
        )
    objective.begin(theta, low, high)
    search = how_to_refit(objective, low, high, known, method)
    return _settled(Optimum(search, theta, search.problem(theta).value(theta), df, ()), fit)


def start_of(fit: ModFit) -> Any:
    """Return the estimates in the form in which the cost of the fit takes its parameters."""
    return fit.par if fit.tied is None else lmfit_at(fit)


def how_to_refit(
    objective: Objective, lower: Vector, upper: Vector, prior: Prior | None, method: str | None, *, warm: bool = True
) -> Search:
    """Return the method that fits the others again: the user's, or that of modFit for the kind of cost.

    warm : bool
        From a neighbour's result; False: as from any start.
    """
    method = method_for(method, objective, prior)
    control = filled(None, METHODS[method].control, METHODS[method].aliases, method)
    if warm:
        control |= _WARM.get(method, {})
    return Search(objective, lower, upper, prior, method, control)


def check_belongs(objective: Objective, fit: ModFit) -> None:
    """Refuse a cost that has another value at the estimates than the fit says."""
    there, said = objective.value(fit.par.to_numpy(dtype=float)), fit.deviance
    near = 1e-2 + 1e-5 * abs(said) if fit.is_scalar else 1e-3 * max(abs(said), 1e-300)
    if fit.solver_error is not None and np.isfinite(fit.solver_error):  # another engine errs by as much
        near += 10 * abs(fit.solver_error) * (1.0 if fit.is_scalar or fit.with_prior else fit.ms)
    if not abs(there - said) <= near:
        raise ArgumentError(
            f"The cost is {there:.6g} at the estimates, and the fit says {said:.6g}: `f` is not what was fitted (other "
            "data, or parameters on another scale)."
        )


def _settled(start: Optimum, fit: ModFit) -> Optimum:
    """Return the optimum after one more search from where the fit ended."""
    best, notes = start.at(start.theta, start.cost), []
    with np.errstate(over="ignore", invalid="ignore"):
        theta, cost = fitted(best.search, best.theta)
    gain = (best.cost - cost) / best.search.unit
    if gain > 1e-6:
        best = best.at(theta, cost)
    if gain > BETTER:
        notes.append(
            f"The fit had not reached its optimum: from its end the cost fell from {start.cost:.7g} to {cost:.7g}, "
            "and the profile is of that."
        )
    elif not fit.converged:
        notes.append(f"The fit did not converge, so neither may this be its optimum: {fit.message}")
    return replace(best, notes=tuple(notes))
