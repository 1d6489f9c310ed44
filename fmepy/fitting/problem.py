"""The contract between modFit and its methods: the problem that a method receives, and the outcome it returns.

A `Problem` is an objective with its bounds, its prior, the parameters' sizes and the random numbers. **The contract of
a method** ``method(problem, control) -> Outcome``:

* it starts at ``problem.start``, which is inside ``problem.lower`` and ``problem.upper`` (on a bound is inside) and
  where the cost is finite, and never evaluates outside the bounds;
* least-squares methods use ``residuals`` and ``jacobian`` (prior rows included), which raise SimulationError where the
  cost fails; the others use ``cost``, which is infinite there, and ``gradient``;
* ``control`` holds exactly the names that the method declares, defaults filled in;
* it calls ``problem.note(theta, value)`` once an iteration, which makes the trace;
* it draws random numbers from ``problem.rng`` only;
* it returns an `Outcome` in plain arrays; what it found is judged elsewhere (`fmepy.fitting.modfit`).

The minimised function, in the letters of the code, with ``r`` the scaled residuals and a normal prior (m, s)::

    F(theta) = sum r_i^2 + sum ((theta_j - m_j) / s_j)^2      residuals;  gradient 2 J'r,  Hessian 2 J'J
    F(theta) = -2 log L - 2 log prior                         a number
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fmepy.costs.objective import Objective
from fmepy.errors import ArgumentError, SimulationError
from fmepy.fitting.bends import BESIDE, second_differences_of, without_kinks
from fmepy.numerics.covariance import covariance_of
from fmepy.numerics.differences import magnitudes, replaced
from fmepy.numerics.second_differences import second_differences, sparse_second_differences, whitened_second_differences
from fmepy.numerics.sparse import MANY, dense, is_sparse, normal_matrix, projected_length, stacked
from fmepy.parameters.priors import Prior
from fmepy.types import BoolVector, Matrix, Vector

if TYPE_CHECKING:
    from fmepy.fitting.refits import HeldPrediction

_FIXED = 1e-10  # relative width of a box below which a parameter counts as fixed
_BESIDE_KINK = 1e-2  # of a prior's width, or of a parameter's size: a search that ends there may have come to its kink


_FOR_MORE = "; for more of them give control="


def limit_reached(name: str, value: float, what: str = "iterations") -> str:
    """Return the sentence that a limit ended a search, with what to type for a higher one."""
    higher = f"{10 * value:.0f}" if value >= 1 else "1000"
    return f"The limit of {value:.0f} {what} is reached{_FOR_MORE}{{{name!r}: {higher}}}."


class LimitReachedError(Exception):
    """The limit on the number of iterations is reached."""


def without_advice(message: str) -> str:
    """Return a message without its advice on `control`, for callers that have no such argument."""
    reason, advice, _ = message.partition(_FOR_MORE)
    return f"{reason}." if advice else message


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """The result of a method.

    Attributes
    ----------
    par : ndarray, shape (n_par,)
        The best parameters it found.
    converged : bool
        True if a convergence criterion ended the search; False if a limit or a failure did.
    message : str
        A sentence that says what ended the search.
    iterations : int
    engine : str
        The implementation that ran.
    """

    par: Vector
    converged: bool
    message: str
    iterations: int
    engine: str


@dataclass(slots=True, eq=False)
class Problem:
    """An objective with bounds, prior and random numbers: everything that a method needs (see the module).

    Attributes
    ----------
    scale : ndarray, shape (n_par,)
        Sizes of the parameters at the start.
    moving : ndarray of bool, shape (n_par,)
        Parameters that are not fixed by their bounds.
    is_least_squares : bool
        True if the function to be minimised is a sum of squares: residuals, and no prior but a normal one.
    is_bounded : bool
        True if any bound is finite.
    noise_scales : ndarray of bool, shape (n_par,)
        Parameters that scale noise.
    further : HeldPrediction or None
        Residuals in addition to those of the data, which keep a prediction near a value (`fmepy.fitting.refits`).
    report : callable or None
        Called once an iteration with the number of iterations and the lowest cost so far.
    held : ndarray of bool, shape (n_par,)
        Parameters that both bounds hold at the kink of their prior (`held_at_kinks`).
    trace, best
        The cost by iteration; the lowest so far, with its parameters.
    """

    objective: Objective
    start: Vector
    lower: Vector
    upper: Vector
    prior: Prior | None
    rng: np.random.Generator
    further: HeldPrediction | None = None
    report: Callable[[int, float], object] | None = None
    scale: Vector = field(init=False)
    moving: BoolVector = field(init=False)
    is_least_squares: bool = field(init=False)
    is_bounded: bool = field(init=False)
    noise_scales: BoolVector = field(init=False)
    held: BoolVector = field(init=False)
    trace: list[float] = field(init=False, default_factory=list)
    noted: bytes = field(init=False, default=b"")
    best: tuple[float, Vector] = field(init=False)
    is_expected: bool = field(init=False, default=False)
    _normal: tuple[tuple[int, float, float], ...] = field(init=False, default=())
    _offset: tuple[bytes, float] = field(init=False, default=(b"", np.nan))

    def __post_init__(self) -> None:
        self.scale = magnitudes(self.start, self.lower, self.upper)
        self.moving = np.asarray(self.upper - self.lower > _FIXED * self.scale)
        self.is_least_squares = not self.objective.is_scalar and (self.prior is None or self.prior.all_normal)
        self.is_bounded = bool(np.isfinite(self.lower).any() or np.isfinite(self.upper).any())
        self.noise_scales = self.objective.scale_parameters
        self.best = (np.inf, self.start)
        self.held = np.zeros(self.start.size, dtype=bool)
        if self.prior is not None and self.is_least_squares:
            self._normal = self.prior.normal

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters."""
        return self.objective.parameter_names

    @property
    def noise(self) -> float:
        """Noise of the cost, relative: estimated where derivatives are differences, else 0."""
        return 0.0 if self.objective.has_jacobian else self.objective.differences.noise

    def restarted_at(self, theta: Vector) -> Problem:
        """Return the same problem from another start, continuing the trace."""
        again = replace(self, start=self.inside(theta))
        again.held = self.held
        again.trace.extend(self.trace)
        return again

    def need_finite_box(self, method: str) -> None:
        """Raise an ArgumentError unless all bounds are finite."""
        is_finite = np.isfinite(self.lower) & np.isfinite(self.upper)
        missing = [n for n, finite in zip(self.names, is_finite, strict=True) if not finite]
        if missing:
            raise ArgumentError(
                f"method={method!r} searches a box and needs finite `lower` and `upper` for every parameter; they are "
                f"missing for {', '.join(map(repr, missing))}."
            )

    def residuals(self, theta: Vector) -> Vector:
        """Return scaled residuals, then (theta_j - mean) / sd of every normal prior."""
        r = self.objective.scaled_residuals(theta)
        if self._normal:
            r = np.concatenate([r, [(theta[i] - mean) / sd for i, mean, sd in self._normal]])
        return r if self.further is None else np.concatenate([r, self.further.residuals(theta)])

    def jacobian(self, theta: Vector) -> Any:
        """Return the derivatives of `residuals`; a sparse array where the cost gives one."""
        J = self.objective.scaled_jacobian(theta)
        if self._normal:
            rows = np.zeros((len(self._normal), theta.size))
            for k, (i, _, sd) in enumerate(self._normal):
                rows[k, i] = 1 / sd
            J = stacked([J, rows])
        return J if self.further is None else stacked([J, self.further.jacobian(theta)])

    def value(self, theta: Vector) -> float:
        """Return F; raise SimulationError where the cost fails."""
        if self.is_least_squares:
            r = self.residuals(theta)
            return float(r @ r)
        value = self.objective.value(theta)
        if self.prior is not None:
            value += self.prior.minus2log(theta)
        if self.further is not None:
            r = self.further.residuals(theta)
            value += float(r @ r)
        return value

    def cost(self, theta: Vector) -> float:
        """Return F, infinite where the cost fails; the best so far is stored in `best`."""
        try:
            value = self.value(theta)
        except SimulationError:
            return np.inf
        if not np.isfinite(value):
            return np.inf
        if value < self.best[0]:
            self.best = (value, np.array(theta, dtype=float))
        return value

    def costs(self, Theta: Matrix) -> Vector:
        """Return F at many theta, infinite where the cost fails; the model is run for all of them together."""
        out = np.full(len(Theta), np.inf)
        for i, (theta, found) in enumerate(zip(Theta, self.objective.evaluate_many(Theta), strict=True)):
            if found is not None:
                size = float(found if self.objective.is_scalar else found @ found)
                self.objective.remember(theta.tobytes(), found, size)
                out[i] = self.cost(theta)
        return out

    def gradient(self, theta: Vector) -> Vector:
        """Return dF/dtheta: 2 J'r for residuals (plus that of a prior), else differences."""
        if self.objective.is_scalar and not (self.objective.has_score or self.objective.has_gradient):
            return self.objective.differentiate(_finite(self.value, "The cost is not finite."), theta)
        if self.objective.has_score:
            slope = -2 * self.objective.score(theta)
        elif self.objective.has_gradient:
            slope = self.objective.gradient(theta)
        else:
            slope = self.objective.gradient_of_squares(theta)
        if self.is_least_squares:
            for i, mean, sd in self._normal:
                slope[i] += 2 * (theta[i] - mean) / sd**2
        elif self.prior is not None:
            slope = slope + self.slope_of_prior(theta)
        if self.further is not None:
            slope = slope + 2 * self.further.jacobian(theta).T @ self.further.residuals(theta)
        return np.asarray(slope)

    def sizes(self, theta: Vector) -> Vector:
        """Return the size of every parameter: its absolute value, at least a thousandth of its size at the start."""
        return np.maximum(np.abs(theta), 1e-3 * self.scale)

    def slope_of_prior(self, theta: Vector) -> Vector:
        """Return the derivatives of -2 log prior."""
        assert self.prior is not None, "asked only where there is one"
        if self.prior.parts is not None:
            return self.prior.slope(theta)
        excluded = "The prior excludes this place."
        return self.objective.differentiate(_finite(self.prior.minus2log, excluded), theta)

    def information(self, theta: Vector, rough: bool = False) -> Matrix:
        """Return the expected information of a likelihood cost, including that of the prior.

        Directions in which -2 log prior is concave, or its curvature unknown, add nothing: information is not negative.
        """
        information = self.objective.information(theta, rough)
        if self.prior is None:
            return information
        H = second_differences_of(self, theta)
        values, vectors = np.linalg.eigh(np.where(np.isfinite(H), H, 0.0))
        return np.asarray(information + 0.5 * (vectors * np.maximum(values, 0.0)) @ vectors.T)

    def hessian(self, theta: Vector) -> Matrix:
        """Return the second derivatives of F: Gauss-Newton's 2 J'J for residuals, else second differences.

        A parameter that scales noise and stands at zero is left out: its row and column are NaN. So is one at the kink
        of its prior; beside a kink the prior goes on as it is at theta.
        """
        if self.prior is not None and self.prior.kinked:
            smooth = replace(self, prior=without_kinks(self.prior, theta, self.scale))
            H, self.is_expected = smooth.hessian(theta), smooth.is_expected
            at = self.prior.at_kink(theta) & ~self.at_bound(theta)
            H[at] = H[:, at] = np.nan
            return H
        if self.is_least_squares:
            return 2 * normal_matrix(self.jacobian(theta))
        if self.objective.has_score:
            return self._observed_hessian(theta)
        noise_of = self.objective.differences
        relative = noise_of.absolute / max(abs(self.value(theta)), 1e-300) if noise_of.absolute > 0 else noise_of.noise

        def cost(point: Vector) -> float:
            return self.cost(self.inside(point))  # rounding may take a probe an ulp past the bound

        return second_differences(cost, theta, self.lower, self.upper, self.scale, min(relative, 1e-2))

    def _observed_hessian(self, theta: Vector) -> Matrix:
        """Return the second derivatives of a scored cost, by differences along the axes of its expected information.

        In the coordinates in which the expected information is the identity, the observed one is close to it. Steps of
        0.03 standard errors then suit all directions, however badly the parameters are conditioned (shorter ones where
        that is too large a part of a parameter). If the observed information is not positive definite, so that this is
        no maximum, or the likelihood has kinks, twice the expected information is returned, and `is_expected` set.
        """
        free = self.free_at(theta)
        H = np.full((theta.size, theta.size), np.nan)
        if free.any():
            expected = self.information(theta)[np.ix_(free, free)]
            box = self.lower[free], self.upper[free]
            size = self.sizes(theta)[free]
            if self.objective.has_kinks:
                self.is_expected, H[np.ix_(free, free)] = True, 2 * expected
                return H

            def gradient(some: Vector) -> Vector:
                return np.asarray(self.gradient(replaced(theta, free, some))[free])

            if self.objective.exact and np.count_nonzero(free) >= MANY:
                observed = sparse_second_differences(gradient, theta[free], expected, *box, size)
            else:
                observed = whitened_second_differences(
                    lambda some: self.value(replaced(theta, free, some)), theta[free], expected, *box,
                    gradient if self.objective.exact else None, size,
                )  # fmt: skip
            self.is_expected = bool(
                np.isnan(covariance_of(observed)).any() and not np.isnan(covariance_of(expected)).any()
            )
            H[np.ix_(free, free)] = 2 * expected if self.is_expected else observed
        return H

    def offset(self, theta: Vector, free: BoolVector) -> float:
        """Return the length of Gauss-Newton's next step from theta in standard errors; 0 if all residuals are zero.

        Parameters
        ----------
        free : ndarray of bool, shape (n_par,)
            Parameters that may move.

        Notes
        -----
        The step changes the residuals by their projection on the columns of J (scaled to equal length)::

            offset = |P r| / s,    P = J (J'J)^-1 J',    s^2 = r'r / (n - p)
        """
        key = theta.tobytes() + free.tobytes()
        if key != self._offset[0]:
            self._offset = key, _offset(self.jacobian(theta), self.residuals(theta), free)
        return self._offset[1]

    def note(self, theta: Vector, value: float) -> None:
        """Add an iteration to the trace."""
        self.trace.append(float(value))
        self.noted = np.asarray(theta, dtype=float).tobytes()
        if value < self.best[0]:
            self.best = (float(value), np.array(theta, dtype=float))
        if self.report is not None:
            self.report(len(self.trace), self.best[0])

    def at_bound(self, theta: Vector) -> BoolVector:
        """Tell which parameters are exactly on a bound (see `put_on_bounds`), or fixed by their bounds."""
        return np.asarray(((theta == self.lower) | (theta == self.upper) | ~self.moving) & ~self.held)

    def blocked(self, theta: Vector, gradient: Vector) -> BoolVector:
        """Tell which parameters are on a bound against which the gradient pushes."""
        return np.asarray(((theta <= self.lower) & (gradient > 0)) | ((theta >= self.upper) & (gradient < 0)))

    def free_at(self, theta: Vector) -> BoolVector:
        """Tell which parameters are free, without the sds of noise at zero, where the cost has no derivative."""
        return np.asarray(self.moving & ~(self.noise_scales & (theta == 0)))

    def put_on_bounds(self, theta: Vector) -> Vector:
        """Return theta with parameters very near a bound moved onto it, unless that raises the cost.

        Searches in scaled parameters end a rounding error away from a bound, where nothing blocks the gradient.
        """
        theta = self.inside(theta)
        if not self.is_bounded:
            return theta
        near = BESIDE * np.maximum(np.abs(theta), self.scale)
        for bound in (self.lower, self.upper):
            for j in np.flatnonzero((np.abs(theta - bound) <= near) & (theta != bound) & self.moving):
                theta = self._if_no_higher(replaced(theta, j, bound[j]), theta)
        return theta

    def held_at_kinks(self, theta: Vector) -> Problem:
        """Return the problem with parameters held that are all but at the kink of their prior; itself if none is.

        A search ends a little beside a kink, and where the others are not yet best: steps across it gain nothing.
        """
        theta, held = self.inside(theta), self.held.copy()
        for d in () if self.prior is None else self.prior.kinked:
            near = abs(theta[d.at] - d.kink) <= _BESIDE_KINK * min(d.width, max(abs(d.kink), self.scale[d.at]))
            if near and self.lower[d.at] <= d.kink <= self.upper[d.at]:
                theta = self._if_no_higher(replaced(theta, d.at, d.kink), theta)
                held[d.at] = theta[d.at] == d.kink
        if not held.any():
            return self
        low, high = (np.where(held, theta, end) for end in (self.lower, self.upper))
        again = replace(self, lower=low, upper=high).restarted_at(theta)
        again.held = held
        return again

    def _if_no_higher(self, trial: Vector, theta: Vector) -> Vector:
        """Return the trial if the cost is no higher there, else theta."""
        rise, size = self.cost(trial) - (now := self.cost(theta)), abs(now)
        is_none = rise <= 1e-13 * size or rise <= self.noise * size  # what the noise is may take a while to find out
        return trial if is_none else theta

    def inside(self, theta: Vector) -> Vector:
        """Return theta moved onto the nearest point of the box."""
        return np.minimum(np.maximum(theta, self.lower), self.upper) if self.is_bounded else theta.copy()

    def named(self, theta: Vector) -> dict[str, Any]:
        """Return theta by name."""
        return dict(zip(self.names, map(float, theta), strict=True))


def _finite(function: Callable[[Vector], float], message: str) -> Callable[[Vector], float]:
    """Return a function that raises SimulationError where it is not finite."""

    def finite(theta: Vector) -> float:
        if np.isfinite(value := function(theta)):
            return value
        raise SimulationError(message)

    return finite


def _offset(J: Any, r: Vector, free: BoolVector) -> float:
    n, p = J.shape
    squares, some = float(r.dot(r)), free.tolist()
    if not squares > 0 or not any(some):
        return 0.0
    if not all(some):
        J = J[:, free]
    if is_sparse(J):
        found = projected_length(J, r)
        if found is not None:
            return float(found * (max(n - p, 1) / squares) ** 0.5)
        J = dense(J)
    length = np.sqrt(np.einsum("ij,ij->j", J, J))
    length[length == 0] = 1.0
    J = J / length
    from scipy.linalg.lapack import dgelsy  # by orthogonal factors, of whatever rank

    m = J.shape[1]
    right = np.zeros((max(n, m), 1))
    right[:n, 0] = r
    _, x, *_ = dgelsy(J, right, np.zeros((m, 1), dtype=np.intc), 1e-10, 4 * m + n + 1)
    along = J.dot(x[:m, 0])
    return float((along.dot(along) * max(n - p, 1) / squares) ** 0.5)


@dataclass(frozen=True, slots=True, eq=False)
class Method:
    """A way to minimise, as `fmepy.fitting.methods.registry` knows it.

    Attributes
    ----------
    run : callable
        ``run(problem, control) -> Outcome``.
    control : dict
        The control names it knows, with their defaults.
    aliases : dict
        FME's words for them.
    least_squares : bool
        True if it works on residuals, and so never on a scalar cost.
    box : bool
        True if it needs finite bounds.
    needs_score : bool
        True if it needs a cost with a score and an expected information.
    """

    run: Callable[[Problem, Mapping[str, Any]], Outcome]
    control: Mapping[str, Any]
    aliases: Mapping[str, str] = field(default_factory=dict)
    least_squares: bool = False
    box: bool = False
    needs_score: bool = False


OPTIM = {"maxit": "maxiter", "iterlim": "maxiter", "iter_max": "maxiter", "rel_tol": "reltol", "ftol": "reltol"}
"""Words of R's optimisers for `control`."""
