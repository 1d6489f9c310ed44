"""modFit: find the parameters at which a model fits its data best."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from fmepy.checks import as_rng
from fmepy.costs.base import CostData, KnownData, minus2loglik_of_squares, standardised, variances
from fmepy.costs.noise import said_noise
from fmepy.costs.objective import Objective
from fmepy.costs.solver_error import is_exact, is_too_large, solver_error, told_error
from fmepy.costs.user_function import as_objective, tell_held_noise
from fmepy.errors import ArgumentError, SimulationError, check_choice, warn
from fmepy.fitting.control import filled
from fmepy.fitting.judge import SearchRecord, judged
from fmepy.fitting.leaving_zero import let_go, settled
from fmepy.fitting.methods.registry import METHODS, method_for
from fmepy.fitting.multistart import best_of, resumed
from fmepy.fitting.problem import Outcome, Problem
from fmepy.fitting.refits import Search, held_at_kinks
from fmepy.fitting.result import ModFit
from fmepy.fitting.starting_points import as_starts
from fmepy.parallel.interruption import Stopped, interruptible, outermost
from fmepy.parameters.named import as_bounds, check_inside
from fmepy.parameters.priors import as_prior
from fmepy.parameters.scales import check_prior_scale, expected_scale
from fmepy.types import Seed, UserBounds, UserParameters, Vector

_MOST_RETURNS = 5  # runs of a method: sds that came to zero are let go so many times less one
_INTERRUPTED = "Interrupted by Ctrl-C: the best parameters so far, without derivatives."


@interruptible(lambda fit: fit.message)
def modFit(
    f: Any,
    p: UserParameters = None,
    *,
    lower: UserBounds = -np.inf,
    upper: UserBounds = np.inf,
    method: str | None = None,
    jac: Any = None,
    control: Mapping[str, Any] | None = None,
    hessian: bool = True,
    prior: Any = None,
    starts: Any = 1,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    seed: Seed = None,
    executor: Any = None,
    progress: Any = False,
    checkpoint: Any = None,
) -> ModFit:
    r"""Return the parameters at which a cost is lowest, with their covariance.

    Parameters
    ----------
    f : fmepy cost, or callable ``f(p, *args, **kwargs)``
        Returns a ModCost, a one-dimensional array of residuals (either sign), or one number, -2 log L.
    p : dict, Series, sequence, number, lmfit.Parameters; for a fmepy cost also a list of names, or None for all
        The start. Of a parameter that every entity has for itself the plain name gives all of them one.
    lower, upper : number, sequence, or dict by name
        Bounds; None and NaN mean none. A start on a bound is fine. A cost's own bounds (sds of noise not below zero)
        stay for parameters that a dict does not name, and where nothing is given.
    method : str, optional
        "Marq", "Port", "Newton", "Nelder-Mead", "BFGS", "CG", "L-BFGS-B", "SANN", "Pseudo", "bobyqa", "scoring". The
        default: "Marq" for residuals, "scoring" where the cost has an expected information, else "BFGS".
    jac : callable, optional
        ``jac(p, *args, **kwargs)``, shape (n_obs, n_par): derivatives of the residuals as `f` returns them; where `f`
        returns one number, its gradient d(-2 log L)/dp, shape (n_par,).
    control : dict, optional
        Settings of the method; an unknown name is answered with those there are. FME's words are understood.
    hessian : bool
        False saves the derivatives at the optimum; there are no standard errors then, and convergence is not checked.
    prior : dict of frozen scipy.stats distributions by name, or callable
        A callable returns -2 log density. Normal priors join least squares as residuals (theta - mean) / sd; others
        need a method of the scalar cost. The result is the maximum a posteriori. The support of a distribution is a
        bound of its parameter, beside `lower` and `upper`.
    starts : int or table
        More than one start: `p` and so many - 1 others, a Latin hypercube in finite bounds, by the logarithm where both
        are positive and the upper is at least 100 times the lower (and `f` is not transformed); without them
        log-normal around `p` (factor about 1.6). A start where the cost fails is replaced before any search. Or a
        table of starts: a column a parameter, or an array with all of them. The best result is returned;
        ``.starts`` has a row for each, and ``.multistart`` says which optima there are, how many starts reached the
        best, and what the chance is that one was missed.
    args, kwargs
        Passed on to `f` and `jac`.
    seed : int, Generator or None
        Source of randomness for SANN, Pseudo and starts.
    executor, progress
        For several starts, see `run_many`. The results do not depend on the workers. Of one start a callable
        `progress` gets (iterations, 0), as their number is open. One that has a method ``best`` is told the lowest cost
        so far.
    checkpoint : path, optional
        A folder in which what is done is kept: of several starts each fit, of one start the evaluations that take long
        (5 ms and more). The same call with the same folder goes on where it was killed or interrupted, to the same
        result; another question is refused, and the message says in what it differs.

    Returns
    -------
    ModFit

    Raises
    ------
    ParameterError
        A start outside its bounds or the support of its prior, crossed bounds, a wrong number of them, an unknown name.
    ArgumentError
        An unknown method or control name; a least-squares method for a number; SANN or Pseudo without a finite box; a
        `jac` of the wrong shape; a cost that fails at the start.

    Notes
    -----
    Minimised is FME's field `model`, the sum of squares of ``scale^(3/2) (mod - obs) * weight``; a number as it is.

    Each method runs on a library's implementation, named in ``fit.engine``; bounds are exact. The covariance is
    ``inverse(hessian / 2)`` times ``ssr / (n - p)``, with the Hessian 2 J'J for every sum of squares, whatever the
    method. With a prior the residuals are read in units of their errors: the Hessian is that of the posterior, and
    ``cov_scaled = cov_unscaled``; ``ssr`` stays that of the data.

    A run of the model that fails counts as infinite cost and is counted in ``fit.failures``. Ctrl-C returns the best
    parameters so far, without derivatives, with an `InterruptedWarning` and ``fit.interrupted`` true; of several starts
    the best of those that were run. Before the first evaluation, inside another verb, and pressed again, it raises
    KeyboardInterrupt.

    *Differs from FME* in what the page "From R to Python" (docs/from_r.md) lists with the reasons: among them bounds
    that are reached exactly, one Hessian, numbers that are not squared, and ``converged``, which is true only if
    Gauss-Newton's next step is below 0.1 standard errors and the cost responds to every parameter there. ``fit.rank``
    is the rank of the Hessian. A parameter on a bound has no standard error, t and p; those of the others hold for it
    fixed there. So has one that is held at the kink of its prior (``fit.at_kink``), as Laplace's has in the middle.

    References
    ----------
    Soetaert and Petzoldt (2010), J. Stat. Softw. 33(3). FME: modFit, summary.modFit.

    Examples
    --------
    >>> x = np.array([28, 55, 83, 110, 138, 225, 375])
    >>> y = np.array([0.053, 0.06, 0.112, 0.105, 0.099, 0.122, 0.125])
    >>> def derivatives(p):
    ...     return np.column_stack([x / (x + p[1]), -p[0] * x / (x + p[1]) ** 2])
    >>> fit = modFit(lambda p: p[0] * x / (x + p[1]) - y, [0.1, 1], jac=derivatives)
    >>> fit.summary().par.round(4)
        Estimate  Std. Error  t value  Pr(>|t|)
    p1    0.1454      0.0156   9.2961    0.0002
    p2   49.0529     17.9119   2.7386    0.0409
    >>> fit.converged, fit.engine
    (True, 'MINPACK lmder')
    """
    if method is not None:
        check_choice(method, METHODS, "method")
    starts = as_starts(starts)
    objective = as_objective(f, p, jac=jac, args=args, kwargs=kwargs, hold_engine=True)
    tell_held_noise(f, objective.parameters)
    low, high = as_bounds(lower, upper, objective.parameter_names, declared=(objective.lower, objective.upper))
    check_inside(objective.theta0, low, high, objective.parameter_names)
    check_prior_scale(prior, expected_scale(f, objective.parameter_names))
    prior_given = as_prior(prior, objective.parameters)
    if prior_given is not None:
        prior_given.check_support(objective.theta0, objective.parameter_names)
        data = None if objective.is_scalar else objective.data.observed
        if data is not None and np.isnan(data.errors).any():
            warn("Nothing is known of the errors of some data, which beside a prior count as 1: give err= or "
                 "measurement_noise=.")  # fmt: skip
        low, high = prior_given.narrowed(low, high, objective.parameter_names)
    method = method_for(method, objective, prior_given)
    settings = filled(control, METHODS[method].control, METHODS[method].aliases, method)
    several = not (isinstance(starts, int) and starts == 1)
    one = OneFit(objective, low, high, prior_given, method, settings, hessian=hessian, several=several)
    if one.several:
        return best_of(one, starts, seed=seed, checkpoint=checkpoint, executor=executor, progress=progress)
    report = _reporter(progress)
    if checkpoint is not None:
        return resumed(one, seed=seed, checkpoint=checkpoint, report=report)
    try:
        return one.result(one(objective.theta0, rng=as_rng(seed), report=report))
    except Stopped as stop:
        return one.result(stop.partial)


def _reporter(progress: Any) -> Callable[[int, float], object] | None:
    """Return the function that reports one search to a callable `progress`; None without one."""
    if not callable(progress):
        return None
    best = getattr(progress, "best", None)

    def report(done: int, value: float) -> None:
        if best is not None:
            best(value)
        progress(done, 0)

    return report


@dataclass(slots=True, eq=False)
class OneFit(Search):
    """A fit from one start; it travels to workers."""

    hessian: bool = True
    several: bool = False

    def __call__(
        self, start: Vector, rng: np.random.Generator, report: Callable[[int, float], object] | None = None
    ) -> SearchRecord:
        """Return the fit; at Ctrl-C raise `Stopped` with the best so far."""
        start = np.asarray(start, dtype=float)
        objective = self.objective
        if self.several:
            objective = objective.alone(start, self.lower, self.upper)
        else:
            objective.begin(start, self.lower, self.upper)
        problem = Problem(objective, start, self.lower, self.upper, self.prior, rng, report=report)
        if METHODS[self.method].box:
            problem.need_finite_box(self.method)
        first = problem
        with np.errstate(over="ignore", invalid="ignore"):  # a search that runs away is told in the result
            try:
                begin = let_go(problem, start)
                problem = problem if begin is start else problem.restarted_at(begin)
                _check_start(problem)
                problem, outcome = self._searched(problem)
                if self.hessian and objective.look_again(outcome.par):  # its steps were too small for the noise
                    problem = problem.restarted_at(outcome.par)
                    outcome = METHODS[self.method].run(problem, self.control)
                outcome = replace(outcome, par=problem.put_on_bounds(outcome.par))
                problem, outcome = held_at_kinks(problem, outcome, self._searched)
                found = judged(problem, outcome, self.hessian)
                if self.several:
                    self.objective.give_back(objective)
                return found
            except KeyboardInterrupt:
                value, best = min(first.best, problem.best, key=lambda candidate: candidate[0])
                if not outermost() or not np.isfinite(value):
                    raise
            outcome = Outcome(best, False, _INTERRUPTED, len(problem.trace), self.method)
            raise Stopped(judged(problem, outcome, False, interrupted=True))

    @property
    def has_errors(self) -> bool:
        """True if something is known of the errors of residuals."""
        return _has_errors(self.objective)

    def result(self, found: SearchRecord) -> ModFit:
        """Return the fit at the parameters that a search found."""
        with np.errstate(over="ignore", invalid="ignore"):
            try:
                return _result(self, found)
            except KeyboardInterrupt:  # while it was looked at what the solver's error is worth
                if not outermost() or found.interrupted:
                    raise
                return _result(self, replace(found, interrupted=True))

    def _searched(self, problem: Problem) -> tuple[Problem, Outcome]:
        """Run the method, and again where an sd reached zero that the data move away from it."""
        if not problem.moving.any():
            return problem, Outcome(problem.start, True, "No parameter has room to move.", 0, "none needed")
        iterations = 0
        for _ in range(_MOST_RETURNS):
            outcome = METHODS[self.method].run(problem, self.control)
            iterations += outcome.iterations
            outcome = replace(outcome, par=settled(problem, problem.inside(outcome.par)), iterations=iterations)
            further = let_go(problem, outcome.par)
            if np.array_equal(further, outcome.par):
                break
            problem = problem.restarted_at(further)
        return problem, outcome


def _check_start(problem: Problem) -> None:
    try:
        value = problem.value(problem.start)
    except SimulationError as error:
        raise ArgumentError(f"The cost fails at the start {problem.named(problem.start)}: {error}") from error
    if not np.isfinite(value):
        overflow = not np.isfinite(problem.objective.value(problem.start))  # finite residuals, but not their squares
        why = "the sum of squares is beyond the largest number, 1e308" if overflow else "the prior excludes it"
        raise ArgumentError(
            f"The cost is {value} at the start {problem.named(problem.start)}: {why}. Give another one."
        )
    problem.cost(problem.start)


def _result(one: OneFit, found: SearchRecord) -> ModFit:
    objective, theta = one.objective, found.theta
    nobs, tied = objective.nobs, objective.parameters.lmfit
    ssr = np.nan if objective.is_scalar else found.deviance
    fields: dict[str, Any] = dict.fromkeys(("var_ms", "var_ms_unscaled", "var_ms_unweighted"), np.nan)
    cost = objective.modcost(theta)
    r, data = _residuals(objective, theta, cost)
    if data.group_names and (cost is not None or not objective.is_scalar):
        fields = variances(data, r)
    unit = 1.0 if objective.is_scalar or one.prior is not None else ssr / nobs
    wanted_too = unit > 0 and not found.interrupted  # after Ctrl-C nothing more is run
    worth = solver_error(objective, lambda f: f.value(theta) / unit) if wanted_too else None
    large = is_too_large(worth)
    exact = large and _is_exact(objective, ssr)  # then it is large beside nothing
    return ModFit(
        names=objective.parameter_names,
        theta=theta.copy(),
        ssr=ssr,
        minus2loglik=_minus2loglik(objective, theta),
        minimised=found.value,
        ms=ssr / nobs if not objective.is_scalar else np.nan,
        **fields,
        **found.of_fit,
        weighted=r.copy(),
        groups=data.groups,
        group_names=data.group_names,
        cost=cost,
        method=one.method,
        converged=found.converged and (exact or not large),
        message=" ".join(filter(None, (found.message, told_error(None if exact else worth)))),
        rsstrace=found.trace,
        at_bound=tuple(n for n, b in zip(objective.parameter_names, found.at_bound, strict=True) if b),
        at_kink=()
        if one.prior is None
        else tuple(
            n for n, k in zip(objective.parameter_names, one.prior.at_kink(theta) & ~found.at_bound, strict=True) if k
        ),
        nobs=nobs,
        with_prior=one.prior is not None,
        bounds=(one.lower.copy(), one.upper.copy()),
        tied=None if tied is None else str(tied.dumps()),
        transforms=objective.transforms,
        solver_error=worth,
        data=objective.data.observed,
        noise=said_noise(objective.f),
        source=objective.f if objective.kind == "cost" else None,
        noise_scales=tuple(n for n, s in zip(objective.parameter_names, objective.scale_parameters, strict=True) if s),
        error_estimated=not (objective.is_scalar or _has_errors(objective)),
    )


def _is_exact(objective: Objective, ssr: float) -> bool:
    """Tell whether the data have neither noise nor stated errors, to the accuracy of the solver."""
    data = objective.data
    if objective.is_scalar or data.observed is None or _has_errors(objective):
        return False
    return is_exact(ssr, data.observed.values, data.weights * data.scales[data.groups])


def _residuals(objective: Objective, theta: Vector, cost: Any) -> tuple[Vector, CostData]:
    """Return weighted residuals (of a likelihood those in units of its sds, if any), and of which data they are."""
    if not objective.is_scalar:
        return objective.residuals(theta), objective.data
    if cost is not None:
        return cost.res, cost.fixed
    found = standardised(objective.bound, theta)
    if found is None:
        return np.empty(0), objective.data
    names, r = found
    groups, of = pd.factorize(np.array(names, dtype=object))
    return r, replace(KnownData.unweighted(len(r)), groups=groups.astype(np.intp), group_names=tuple(map(str, of)))


def _minus2loglik(objective: Objective, theta: Vector) -> float:
    """Return -2 log L of the data: with their stated errors, or with the variance ssr / n of the weighted residuals.

    Weights by the spread or the mean of the data are no errors: they only say how variables compare.
    """
    if objective.is_scalar or _has_errors(objective):
        return objective.minus2loglik(theta)
    return minus2loglik_of_squares(objective.residuals(theta), objective.weights)


def _has_errors(objective: Objective) -> bool:
    """Tell whether something is known of the errors; of a function that shows no data, by its weights."""
    data = objective.data.observed
    return bool(np.any(objective.weights != 1) if data is None else np.isfinite(data.errors).any())
