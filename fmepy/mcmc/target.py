"""The log posterior that is sampled, as a function of a plain vector, and the draw of the error variances.

With the sums of squares SS_j of the variance groups j, their precisions d_j = 1/sigma_j^2 and the prior as -2 log
density::

    -2 log posterior(theta | d) = sum_j SS_j d_j + prior(theta) + const

    f returns             var0                SS                                          N
    -2 log L              none                that number, d = 1
    ModCost, cost         none                2 minlogp = sum r^2 + const, d = 1
    residuals             one                 sum r^2                                     n
    residuals             one per residual    r_i^2 each                                  1 each
    ModCost, cost         one                 sum over all data of (mod - obs)^2          n
    ModCost, cost         one per variable    SSR.unweighted of its row of `var`          N of that row
    ModCost, cost         one per datum       res_i^2 (weighted)                          1 each

A variance with a prior of n0 "data" around var0 is drawn anew after every iteration (Gibbs), since it is conjugate::

    1/sigma_j^2 ~ Gamma(shape = (n0_j + N_j) / 2, rate = (n0_j var0_j + SS_j) / 2)

and can be integrated out: log posterior(theta) = -1/2 sum_j (n0_j + N_j) log(n0_j var0_j + SS_j) - 1/2 prior(theta).

References
----------
Gelman, A. et al. (2013). Bayesian Data Analysis, 3rd ed., section 3.2. Haario et al. (2006). FME: modMCMC.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf, isfinite, log
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fmepy.costs.objective import Objective
from fmepy.errors import ArgumentError, SimulationError, listed, warn
from fmepy.numerics.differences import central_differences
from fmepy.parameters.priors import Prior
from fmepy.types import IntVector, Matrix, Vector

_STEP = 6e-6  # relative, of differences of a prior: the cube root of the machine's precision
_TINY = float(np.finfo(float).tiny)  # keeps logarithms and quotients of sums of squares that are zero finite


class Point(NamedTuple):
    """A point of nonzero posterior density, with its density and residual sums."""

    theta: Vector
    SS: Vector  # (n_variance,), or (1,) without var0
    prior: float
    log_posterior: float  # sampled variances integrated out


def point_arrays(name: str, point: Point) -> dict[str, Any]:
    """Return a point as plain arrays, for the state of a kernel."""
    return {
        f"{name}_theta": point.theta,
        f"{name}_SS": point.SS,
        f"{name}_density": np.array([point.prior, point.log_posterior]),
    }


def point_of(name: str, arrays: Mapping[str, Any]) -> Point:
    """Return the point that `point_arrays` turned into arrays."""
    prior, log_posterior = (float(v) for v in arrays[f"{name}_density"])
    return Point(arrays[f"{name}_theta"], arrays[f"{name}_SS"], prior, log_posterior)


@dataclass(frozen=True, slots=True, eq=False)
class Variances:
    """The error variances: fixed, or sampled.

    Attributes
    ----------
    labels : tuple of str
        Their names in `var0`, "" where it had no names.
    var0, n0, N : ndarray, shape (n_variance,)
        The prior variance, its weight as a number of data, the number of data.
    sampled : bool
        False: the variances stay at `var0`.
    grouping : str
        "pooled", "variable" or "datum".
    """

    labels: tuple[str, ...]
    var0: Vector
    n0: Vector
    N: Vector
    sampled: bool
    grouping: str

    @property
    def columns(self) -> list[str]:
        """Labels of the columns of ``sig``."""
        return [f"var_{label or 'model'}" for label in self.labels]

    def settings(self) -> pd.DataFrame | str:
        """Return the table ``var0, n0, N`` where variances are sampled, else a sentence."""
        if not self.sampled:
            return "constant variance = " + ", ".join(f"{v:.15g}" for v in self.var0)
        index = list(self.labels) if any(self.labels) else list(range(len(self.labels)))
        return pd.DataFrame({"var0": self.var0, "n0": self.n0, "N": self.N}, index=index)


def variances(objective: Objective, var0: Any, wvar0: Any, n0: Any) -> Variances | None:
    """Return the variances as `var0`, `wvar0` and `n0` define them; None without `var0`.

    Raises
    ------
    ArgumentError
        `var0` is missing where residuals need it, or given with a number; a length that fits neither the variables nor
        the data; an unknown name; a value that is not positive; `wvar0` or `n0` negative, or without `var0`.

    Warns
    -----
    UserWarning
        Neither `var0` nor the cost says how large the errors are, or both do.
    """
    if var0 is None:
        if wvar0 is not None or n0 is not None:
            raise ArgumentError("`wvar0` and `n0` weigh `var0`, which is missing. Give the variance too.")
        if objective.kind == "vector":
            raise ArgumentError(
                "`f` returns residuals, whose size says nothing without their variance. Give `var0`, such as "
                "fit.summary().modVariance; or return -2 log L, or a ModCost with errors."
            )
        if not objective.is_scalar:
            _warn_of_unit_errors(objective)
        return None
    if objective.is_scalar:
        raise ArgumentError(
            "`var0` is the variance of residuals, but `f` returns one number, -2 log L, with the variance in it. Leave "
            "`var0` out, or return the residuals."
        )
    names, values = _names_and_values(var0, "var0")
    groups = objective.group_names
    n_obs, n_group = objective.n_obs, max(len(groups), 1)
    if names is not None and groups and len(values) > 1:
        values = _by_name(names, values, groups, "var0")
        names = list(groups)
    if names is not None and len(values) == 1 and groups and names[0] not in groups:
        raise ArgumentError(f"`var0`: there is no variable {names[0]!r}. There are {listed(groups)}.")
    if len(values) == 1:
        if names is not None and len(set(groups)) > 1:
            raise ArgumentError(
                f"`var0` names {names[0]!r} only, but there are {listed(groups)}. Give all of them, or one number for "
                "all data together."
            )
        grouping, N = "pooled", np.array([float(n_obs)])
    elif len(values) == n_group:
        grouping, N = "variable", np.bincount(objective.groups, minlength=n_group).astype(float)
    elif len(values) == n_obs:
        grouping, N = "datum", np.ones(n_obs)
    else:
        fits = f"1, {n_group} (variables) or {n_obs} (data)" if n_group > 1 else f"1 or {n_obs} (data)"
        raise ArgumentError(f"`var0` has {len(values)} values; {fits} are needed.")
    if not np.all(np.isfinite(values) & (values > 0)):
        raise ArgumentError(f"`var0` must be positive variances; got {values.tolist()}.")
    if grouping != "datum" and differ_within(objective.weights, objective.groups):
        warn(
            "The errors of the data differ within a variable, and `var0` takes their place: all its readings count "
            "alike. Without `var0`, `wvar0` and `n0` the errors are those of the data; or give one `var0` per datum."
        )
    labels = tuple(names) if names is not None else ("",) * len(values)
    weight = _weights(wvar0, "wvar0", labels)
    count = _weights(n0, "n0", labels)
    if count is None and weight is not None:
        count = weight * N
    return Variances(labels, values, np.zeros(len(values)) if count is None else count, N, count is not None, grouping)


def differ_within(weights: Vector, groups: IntVector) -> bool:
    """Tell whether the weights of data differ within a group."""
    _, first, place = np.unique(groups, return_index=True, return_inverse=True)
    return not np.allclose(weights, weights[first][place])


def _warn_of_unit_errors(objective: Objective) -> None:
    """Warn where residuals are assumed to have a standard deviation of 1 because no errors are stated.

    A weight by the spread or the mean of the data ("std", "mean") makes variables comparable, and is no error.
    """
    observed = objective.data.observed
    is_unknown = objective.weights == 1 if observed is None else np.isnan(observed.errors)
    if not is_unknown.any():
        return
    names = list(dict.fromkeys(objective.names[i] for i in np.flatnonzero(is_unknown)))
    of = f" of {listed(names)}" if names else ""
    warn(
        f"Nothing is known of the errors{of}, so the chain takes the standard deviation of the weighted residuals to "
        "be 1. Give a variance to start from and sample it: var0=fit.var_ms_unweighted, wvar0=1 (fit: what modFit "
        "returns); or give the cost errors (err=)."
    )


def _names_and_values(values: Any, argument: str) -> tuple[list[str] | None, Vector]:
    """Return the names, if there are any, and the values."""
    if isinstance(values, pd.DataFrame):
        raise ArgumentError(f"`{argument}` is a table; a number, a sequence, or a Series or dict by name is needed.")
    try:
        if isinstance(values, pd.Series):
            unnamed = isinstance(values.index, pd.RangeIndex)
            return None if unnamed else [str(k) for k in values.index], values.to_numpy(dtype=float, copy=True)
        if isinstance(values, Mapping):
            return [str(k) for k in values], np.array([float(v) for v in values.values()])
        items = list(values) if isinstance(values, Iterable) and not isinstance(values, str) else [values]
        return None, np.array([float(v) for v in items])
    except (TypeError, ValueError, OverflowError):
        raise ArgumentError(f"`{argument}` must hold numbers; got {values!r}.") from None


def _by_name(names: Sequence[str], values: Vector, wanted: Sequence[str], argument: str) -> Vector:
    """Return values in the order of `wanted`; a repeated name is matched by order."""
    remaining = list(zip(names, values, strict=True))
    out = []
    for name in wanted:
        place = next((i for i, (have, _) in enumerate(remaining) if have == name), None)
        if place is None:
            raise ArgumentError(
                f"`{argument}` has {listed(names)}, the cost has the variables {listed(wanted)}: nothing is left for "
                f"{name!r}. Give one value for each."
            )
        out.append(remaining.pop(place)[1])
    if remaining:
        raise ArgumentError(
            f"`{argument}` has more than the variables {listed(wanted)} of the cost: {listed(k for k, _ in remaining)}."
        )
    return np.array(out)


def _weights(weights: Any, argument: str, labels: tuple[str, ...]) -> Vector | None:
    if weights is None:
        return None
    names, values = _names_and_values(weights, argument)
    if names is not None and any(labels) and len(values) > 1:
        values = _by_name(names, values, labels, argument)
    if len(values) not in (1, len(labels)):
        raise ArgumentError(
            f"`{argument}` has {len(values)} values for {len(labels)} variances; give one, or one each."
        )
    if not np.all(np.isfinite(values) & (values >= 0)):
        raise ArgumentError(f"`{argument}` must be 0 or more; got {values.tolist()}.")
    return np.broadcast_to(values, (len(labels),)).copy()


class Target:
    """The posterior as a kernel evaluates it.

    Parameters
    ----------
    objective : Objective
    lower, upper : ndarray, shape (n_par,)
        Outside them the density is zero, and the cost is not evaluated.
    prior : Prior or None
    variances : Variances or None

    Attributes
    ----------
    n_par : int
    precision0 : ndarray
        1 / var0, or 1 without it.
    sampled : bool
        True if variances are drawn.
    failures : int
        Failed runs so far (of the cost, and of the prior).
    """

    def __init__(
        self, objective: Objective, lower: Vector, upper: Vector, prior: Prior | None, variances: Variances | None
    ) -> None:
        self.objective, self.lower, self.upper, self.variances = objective, lower, upper, variances
        self.names = objective.parameter_names
        self.n_par = len(self.names)
        self.bounded = bool(np.isfinite(lower).any() or np.isfinite(upper).any())
        self.prior = prior
        self.sampled = variances is not None and variances.sampled
        self.precision0: Vector = np.ones(1) if variances is None else 1.0 / variances.var0
        self.variance0: Vector = 1.0 / self.precision0
        self._squares, self._of_datum = _squares(objective, variances)
        if variances is not None and variances.sampled:
            self._shape: list[float] = (0.5 * (variances.n0 + variances.N)).tolist()
            self._prior_squares: list[float] = (variances.n0 * variances.var0).tolist()

    @property
    def failures(self) -> int:
        """Failed runs so far."""
        return self.objective.failures

    @property
    def retries(self) -> int:
        """Runs so far that a second engine finished."""
        return int(self.objective.retries)

    def minus2log_by(self, objective: Objective, theta: Vector) -> float:
        """Return -2 log posterior at theta without the prior, with another objective for the same data."""
        return -2.0 * self.log_posterior(_squares(objective, self.variances)[0](_value(objective, theta)), 0.0)

    def inside(self, theta: Vector) -> bool:
        """Tell whether theta lies inside the bounds."""
        return not self.bounded or bool((theta >= self.lower).all() and (theta <= self.upper).all())

    def minus2log_prior(self, theta: Vector) -> float:
        """Return -2 log prior density, infinite outside the bounds."""
        if not self.inside(theta):
            return inf
        return 0.0 if self.prior is None else self.prior.minus2log(theta)

    def _point(self, theta: Vector, value: Any, prior: float) -> Point | None:
        """Return the point where the objective has a value, None where the density is zero."""
        SS = self._squares(value)
        log_posterior = self.log_posterior(SS, prior)
        return Point(theta, SS, prior, log_posterior) if isfinite(log_posterior) else None

    def evaluate(self, theta: Vector) -> Point | None:
        """Return the point at theta, None where the density is zero: outside the bounds, or a failed run."""
        prior = self.minus2log_prior(theta)
        if not isfinite(prior):
            return None
        try:
            return self._point(theta, _value(self.objective, theta), prior)
        except SimulationError:
            return None

    @cached_property
    def support(self) -> tuple[Vector, Vector]:
        """The bounds, narrowed to the support of the prior."""
        if self.prior is None:
            return self.lower, self.upper
        return self.prior.narrowed(self.lower, self.upper, self.names)

    def check_gradient(self, method: str) -> None:
        """Raise an ArgumentError where the posterior has no gradient; warn where it is one of differences."""
        f = self.objective
        if f.has_score or f.has_gradient or f.has_jacobian:
            return
        what = "the gradient of -2 log L" if f.is_scalar else "the derivatives of the residuals"
        if f.kind != "cost":
            raise ArgumentError(
                f"method={method!r} follows the gradient of the posterior, and `f` gives none. Give jac=, {what} as a "
                "function of p; or a fmepy cost, which has it; or sample without it: method='dram'."
            )
        warn(
            f"method={method!r}: the cost has no derivatives of its own, so the gradient is made of differences: "
            f"{self.n_par} more evaluations at every point. method='dram' needs none."
        )

    def evaluate_with_gradient(self, theta: Vector) -> tuple[Point, Vector] | None:
        """Return the point at theta and the gradient of the log posterior; None where the density is zero.

        ::

            d log posterior / dtheta = sum_k dlog/dSS_k dSS_k/dtheta - (d prior / dtheta) / 2
            dlog/dSS_k = -1 / (2 var_k), or with sampled variances -(n0_k + N_k) / (2 (n0_k var0_k + SS_k))
        """
        prior = self.minus2log_prior(theta)
        if not isfinite(prior):
            return None
        f = self.objective
        try:
            value, pull = f.with_pull(theta)
            if (point := self._point(theta, value, prior)) is None:
                return None
            w = -0.5 * self.precision0
            if self.sampled:
                w = -np.asarray(self._shape) / np.maximum(np.asarray(self._prior_squares) + point.SS, _TINY)
            gradient = pull(w[0]) if f.is_scalar else 2.0 * pull(self._of_datum(w) * value)
        except SimulationError:  # the gradient can fail, too
            return None
        return point, gradient - 0.5 * self._slope_of_prior(theta)

    def _slope_of_prior(self, theta: Vector) -> Vector:
        """Return the derivatives of -2 log prior; of a function of all parameters by differences."""
        prior = self.prior
        if prior is None:
            return np.zeros(theta.size)
        if prior.parts is not None:
            return prior.slope(theta)
        steps = _STEP * np.maximum(np.abs(theta), 1e-3)
        rows = central_differences(lambda q: np.array([prior.minus2log(q)]), theta, steps, self.support)
        return np.asarray(rows)[0]  # type: ignore[no-any-return]

    def evaluate_many(self, Theta: Matrix) -> list[Point | None]:
        """Return what `evaluate` returns, at many theta; they are run together where that is possible."""
        out: list[Point | None] = [None] * len(Theta)
        priors = [self.minus2log_prior(theta) for theta in Theta]
        possible = [i for i, prior in enumerate(priors) if isfinite(prior)]
        values = self.objective.evaluate_many(Theta[possible]) if possible else []
        for i, value in zip(possible, values, strict=True):
            if value is not None:
                out[i] = self._point(Theta[i].copy(), value, priors[i])
        return out

    def why_impossible(self, theta: Vector) -> str:
        """Return why the density at theta is zero, in a sentence."""
        if not self.inside(theta):
            return "it lies outside the bounds."
        if not isfinite(self.minus2log_prior(theta)):
            return "the prior excludes it."
        try:
            SS = self._squares(_value(self.objective, theta))
        except SimulationError as error:
            return str(error)
        if self.objective.is_scalar:
            return f"-2 log L is {SS[0]:g}."
        return "the sum of squares over its variance overflows: it is beyond the largest number, 1e308."

    def log_posterior(self, SS: Vector, prior: float) -> float:
        """Return the log posterior up to a constant; at var0, or with sampled variances integrated out."""
        if not self.sampled:
            return -0.5 * (float(SS.dot(self.precision0)) + prior)
        # plain floats: there are few variances, and numpy takes longer for them
        logs = [
            a * log(max(q + s, _TINY)) for a, q, s in zip(self._shape, self._prior_squares, SS.tolist(), strict=True)
        ]
        return -sum(logs) - 0.5 * prior

    def draw_precision(self, SS: Vector, rng: np.random.Generator) -> Vector:
        """Return a draw of 1/sigma^2 given the sums of squares, shape (n_variance,)."""
        gamma = rng.standard_gamma
        draws = [
            max(gamma(a), _TINY) / max(0.5 * (q + s), _TINY)
            for a, q, s in zip(self._shape, self._prior_squares, SS.tolist(), strict=True)
        ]
        return np.array(draws)


def _value(objective: Objective, theta: Vector) -> Any:
    return objective.minus2loglik(theta) if objective.is_scalar else objective.residuals(theta)


def _squares(
    objective: Objective, variances: Variances | None
) -> tuple[Callable[[Any], Vector], Callable[[Vector], Vector]]:
    """Return the function that makes SS, shape (n_variance,), of residuals or of -2 log L.

    And the one that makes ``d sum(w SS) / d(r^2)``, shape (n_obs,), of w.
    """
    if objective.is_scalar:
        return lambda value: np.array([value]), lambda w: w
    if variances is None:
        constant = float(objective.n_obs * np.log(2 * np.pi) - 2 * np.sum(np.log(objective.weights)))
        return lambda r: np.array([r @ r + constant]), lambda w: np.full(objective.n_obs, w[0])
    if variances.grouping == "datum":
        return lambda r: r**2, lambda w: w
    # one product sums the squares of every group: it is called thousands of times in a chain
    sums = np.zeros((len(variances.var0), objective.n_obs))
    groups = 0 if variances.grouping == "pooled" else objective.groups
    sums[groups, np.arange(objective.n_obs)] = 1.0 / objective.weights**2
    return lambda r: sums.dot(r * r), lambda w: w @ sums
