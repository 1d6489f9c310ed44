"""A cost as a methods' function of a plain vector: counted, remembered, differentiated.

**Failures.** An exception of a user's function (KeyboardInterrupt excepted), NaN in its result, or a SimulationError of
a cost is a *failed run*: it is counted, its message is kept, and the objective raises `SimulationError`. Methods treat
that as infinite cost. At the start it is an error of the caller, see `fmepy.costs.user_function`.

Where there is no Jacobian, derivatives are differences that fit the noise of `f`, see `fmepy.numerics.differences`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import isfinite
from typing import Any

import numpy as np

from fmepy.costs.base import AroundBound, is_scored, minus2loglik_many, modcost_at, residuals_many, with_slopes
from fmepy.errors import ArgumentError, SimulationError, sentence
from fmepy.journal.evaluations import Evaluations
from fmepy.models.base import keep_within
from fmepy.numerics.differences import NOISE_FREE, Differences, derivatives, magnitudes, measured_noise, roomy_steps
from fmepy.numerics.sparse import dense, scaled_rows
from fmepy.parallel.interruption import check_stop
from fmepy.parameters.named import Parameters
from fmepy.parameters.scales import expected_scale
from fmepy.types import BoolVector, Matrix, Vector

_LONG = {"residuals", "minus2loglik", "jacobian", "score", "information"}
_MUCH_NOISIER = 100.0  # a search with steps for so much less noise is taken up again


class Objective(AroundBound):
    """A cost as a function of a plain vector, with its parameters; it satisfies `fmepy.costs.base.BoundCost`.

    Attributes
    ----------
    bound : BoundCost
        What is evaluated.
    f : any
        What the user gave.
    parameters : Parameters
        Names, start, and the form in which a user's function receives them.
    kind : str
        "cost", "modcost", "vector" or "number".
    evaluations : int
        Evaluations of the cost so far, those of differences included, those of the cost's own Jacobian not.
    jacobians : int
        Evaluations of the Jacobian so far.
    failures : int
        Failed runs so far; `first_failure` and `last_failure` are the messages of two of them.
    has_score : bool
        True if the cost offers `score` and `information`.
    has_gradient : bool
        True if a user's `jac` gives the derivatives of a number.
    differences : Differences
        Steps of numerical derivatives (found on first use, where they are needed).

    The others are those of BoundCost.
    """

    def __init__(
        self,
        f: Any,
        bound: Any,
        parameters: Parameters,
        *,
        kind: str = "cost",
        jac: Callable[[Vector], Any] | None = None,
        rebind: Callable[..., Any] | None = None,
    ) -> None:
        self.f, self.bound, self.parameters, self.kind = f, bound, parameters, kind
        self.parameter_names: tuple[str, ...] = parameters.names
        self.is_scalar, self.has_score = bool(bound.is_scalar), is_scored(bound)
        if jac is not None and self.has_score:
            raise ArgumentError("`jac`: this cost knows the exact score of its likelihood. Leave `jac` out.")
        self.has_gradient = jac is not None and self.is_scalar
        self.has_jacobian = not self.is_scalar and (jac is not None or bool(bound.has_jacobian))
        self.first_failure = self.last_failure = ""
        self._differences: Differences | None = None
        self._jac, self._rebind = jac, rebind  # a user's own derivatives; how to bind the cost anew
        self._free: list[Any] = []  # bound costs that searches gave back
        scales, groups = self.scales, self.groups
        self._factors: Vector | None = scales[groups] ** 1.5 if np.any(scales != 1) else None
        self.forget()
        lower, upper = np.array(bound.lower, dtype=float), np.array(bound.upper, dtype=float)
        if parameters.lower is not None:  # lmfit's own bounds: the narrower of the two
            lower = np.maximum(lower, parameters.lower)
        if parameters.upper is not None:
            upper = np.minimum(upper, parameters.upper)
        self.begin(parameters.values, lower, upper)

    def forget(self) -> None:
        """Count and remember nothing of another bound cost."""
        self.evaluations = self.jacobians = self.failures = 0
        self._run = self.bound.minus2loglik if self.is_scalar else self.bound.residuals
        self._memory: dict[bytes, Any] = {}  # the last evaluation and the best one
        self._best: tuple[float, bytes] = (np.inf, b"")
        self._last: bytes = b""
        self._jacobian_at: bytes = b""
        self._jacobian: Any = None

    def keep_evaluations(self, known: Evaluations) -> None:
        """Look evaluations up that were kept, and keep those that take long."""
        self.bound = bound = _KeptBound(self.bound, known)
        self._run = bound.minus2loglik if self.is_scalar else bound.residuals
        self._jac = None if self._jac is None else bound.kept("jac", self._jac)

    @property
    def exact(self) -> bool:
        """True if the cost's own derivatives are of exact sensitivities."""
        return bool(getattr(self.bound, "exact", False))

    # --- evaluation

    def residuals(self, theta: Vector) -> Vector:
        """Return r, shape (n_obs,): weighted, not scaled. Raise SimulationError where the cost fails."""
        if self.is_scalar:
            raise ArgumentError("This cost is one number, -2 log L; it has no residuals.")
        out: Vector = self._evaluate(theta)
        return out

    def minus2loglik(self, theta: Vector) -> float:
        """Return -2 log L; for residuals sum(r^2) + sum(log(2 pi) - 2 log weights), errors as given."""
        if self.is_scalar:
            return float(self._evaluate(theta))
        r = self.residuals(theta)
        return float(r @ r + r.size * np.log(2 * np.pi) - 2 * np.sum(np.log(self.weights)))

    def jacobian(self, theta: Vector) -> Matrix:
        """Return dr/dtheta, shape (n_obs, n_par): exact where it can be, else by differences."""
        return dense(self._kept_jacobian(theta))

    def _kept_jacobian(self, theta: Vector) -> Any:
        key = np.asarray(theta, dtype=float).tobytes()
        if key != self._jacobian_at or self._jacobian is None:
            self._jacobian = self._take_jacobian(np.asarray(theta, dtype=float))
            self._jacobian_at = key
        return self._jacobian

    def scaled_residuals(self, theta: Vector) -> Vector:
        """Return scales^(3/2) r: their sum of squares is FME's field `model`."""
        r: Vector = self.residuals(theta)
        return r if self._factors is None else r * self._factors

    @property
    def is_sparse(self) -> bool:
        """True if the cost has many parameters, of which each of its rows depends on few, and says so."""
        return self._jac is None and bool(getattr(self.bound, "is_sparse", False))

    def scaled_jacobian(self, theta: Vector) -> Any:
        """Return the derivatives of `scaled_residuals`, shape (n_obs, n_par); a sparse array where the cost is."""
        J = self._kept_jacobian(theta)
        return J if self._factors is None else scaled_rows(J, self._factors)

    def value(self, theta: Vector) -> float:
        """Return what a fit minimises: FME's field `model` for residuals, -2 log L for a number."""
        if self.is_scalar:
            return float(self._evaluate(theta))
        r = self.scaled_residuals(theta)
        return float(r @ r)

    def modcost(self, theta: Vector) -> Any:
        """Return the ModCost at theta, None if the cost has none."""
        return modcost_at(self.f, self.bound, theta)

    @property
    def n_obs(self) -> int:
        """Number of residuals; 0 for a number."""
        return 0 if self.is_scalar else len(self.data)

    @property
    def identity(self) -> dict[str, Any]:
        """What makes a problem the same as another, as JSON keeps it; its values are not looked at."""
        return {
            "parameters": list(self.parameter_names),
            "kind of cost": "-2 log likelihood" if self.is_scalar else "residuals",
            "number of residuals": self.n_obs,
            "variables": list(self.group_names),
            "engine": self.engine,
        }

    def score(self, theta: Vector, rough: bool = False) -> Vector:
        """Return d log L / d theta, where the cost has it."""
        return np.asarray(self.bound.score(theta, rough), dtype=float)

    def with_slopes(self, theta: Vector) -> tuple[Any, Any]:
        """Return residuals and their Jacobian, or -2 log L and its gradient; of one run where the cost can."""
        if not (self.has_score or (self.has_jacobian and self._jac is None)):
            value = self._evaluate(theta)
            if not self.is_scalar:
                return value, self.jacobian(theta)
            return value, self.gradient(theta) if self.has_gradient else self.differentiate(self._evaluate, theta)
        return self._both(partial(with_slopes, self.bound), theta)

    def with_pull(self, theta: Vector) -> tuple[Any, Callable[[Any], Vector]]:
        """Return residuals or -2 log L, and ``pull(dL/dvalue)``, which returns dL/dtheta of a number L."""
        if self._jac is not None or not getattr(self.bound, "has_pull", False):
            value, slopes = self.with_slopes(theta)
            return value, lambda of_value: of_value @ slopes if np.ndim(of_value) else of_value * slopes
        return self._both(self.bound.with_pull, theta)

    def _both(self, run: Callable[[Vector], Any], theta: Vector) -> tuple[Any, Any]:
        """Return a value with its slopes, or with the function that pulls them: one run, counted."""
        self.evaluations += 1
        self.jacobians += 1
        check_stop()
        try:
            value, slopes = run(theta)
        except SimulationError as error:
            raise self._failure(str(error), theta, error) from error
        if count_bad(value) or (not callable(slopes) and count_bad(slopes)):
            raise self._failure("The cost or its derivatives are not finite.", theta)
        return value, slopes

    def gradient_of_squares(self, theta: Vector) -> Vector:
        """Return the gradient of the sum of squares of `scaled_residuals`, shape (n_par,)."""
        key = np.asarray(theta, dtype=float).tobytes()
        if key == self._jacobian_at or self._jac is not None or not getattr(self.bound, "has_pull", False):
            return np.asarray(2 * (self.scaled_jacobian(theta).T @ self.scaled_residuals(theta)))
        r, pull = self.with_pull(theta)
        return np.asarray(2 * pull(r if self._factors is None else r * self._factors**2))

    def gradient(self, theta: Vector) -> Vector:
        """Return d(-2 log L)/d theta, shape (n_par,), where there is a `jac` for it."""
        assert self._jac is not None, "asked only where has_gradient"
        self.jacobians += 1
        slope = np.atleast_1d(np.asarray(self._jac(theta), dtype=float))
        if slope.shape != theta.shape:
            raise ArgumentError(
                f"`jac` returned an array of shape {slope.shape}; f is one number, whose gradient is {theta.shape}: "
                "d(-2 log L)/dp, one entry a parameter."
            )
        if not np.isfinite(slope).all():
            raise self._failure("The gradient has values that are not finite.", theta)
        return slope

    def information(self, theta: Vector, rough: bool = False) -> Matrix:
        """Return the expected information of theta, shape (n_par, n_par), where the cost has it."""
        return np.asarray(self.bound.information(theta, rough), dtype=float)

    @property
    def scale_parameters(self) -> BoolVector:
        """Parameters that scale noise, as a scored cost declares them, shape (n_par,)."""
        mine = getattr(self.bound, "scale_parameters", None) if self.has_score else None
        return np.zeros(self.theta0.size, dtype=bool) if mine is None else np.asarray(mine)

    @property
    def has_kinks(self) -> bool:
        """Whether the cost is known to have kinks, at one of which its best value may stand: its score is not zero."""
        return bool(getattr(self.bound, "has_kinks", False))

    def inflated(self, factor: float) -> Objective | None:
        """Return the objective with the process noise of its cost inflated; None where there is none."""
        bound = self.bound.inflated(factor) if self.has_score and hasattr(self.bound, "inflated") else None
        if bound is None:
            return None
        out: Objective = self.around(bound)
        out._differences = None
        return out

    # --- differences

    @property
    def transforms(self) -> dict[str, str] | None:
        """How the parameters are transformed, by name; None for a function that does not say."""
        taken = expected_scale(self.f, self.parameter_names)
        return None if taken is None else {n: kind for n, kind in taken.items() if kind}

    @property
    def differences(self) -> Differences:
        """Steps that fit the noise of the cost, estimated at the start on first use."""
        if self._differences is None:
            prepared = (
                self.kind == "cost" and not self.is_scalar
            )  # no Jacobian of its own: a solver's default tolerances
            self._differences = Differences.for_noise(1e-6) if prepared else self._noise_at(self.theta0)
        return self._differences

    def begin(self, start: Vector, lower: Vector, upper: Vector) -> None:
        """Take derivatives inside these bounds from now on, with sizes and noise as at this start."""
        self.theta0, self.lower, self.upper = np.array(start, dtype=float), lower, upper
        self._range: tuple[Vector, Vector] | None = None
        self._differences = None
        self._jacobian_at = b""
        keep_within(self.bound, lower, upper)

    def alone(self, start: Vector, lower: Vector, upper: Vector, *, hold: bool = True) -> Objective:
        """Return the same cost for one search from this start, inside these bounds; `hold`: staying with an engine.

        It shares no counter, no memory and no engine with any other search, be they on threads or one after the other;
        only what the cost is at the first start need not be evaluated again.
        """
        out: Objective = self.around(self._fresh(hold))
        if np.array_equal(start, self.theta0):
            out._memory, out._best, out._last = dict(self._memory), self._best, self._last
        out.first_failure = out.last_failure = ""
        out.begin(start, lower, upper)
        return out

    def _fresh(self, hold: bool) -> Any:
        """Return a bound cost that no search uses."""
        if self._rebind is None:
            return self.bound
        try:
            return self._free.pop() if hold else self._rebind(hold_engine=False)
        except IndexError:
            return self._rebind(hold_engine=True)

    def give_back(self, alone: Objective) -> None:
        """Take back what `alone` gave, for another search: binding takes longer than many runs of a compiled model.

        A cost one of whose runs was taken over by another engine stays with that one, and is not taken.
        """
        if self._rebind is not None and alone.retries == 0:
            self._free.append(alone.bound)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_free": []}

    def steps(self, theta: Vector) -> Vector:
        """Return the step of first derivatives for every parameter, inside half of its box."""
        if self._range is None:
            size = magnitudes(self.theta0, self.lower, self.upper)
            smallest = np.where(self.theta0 == 0, size, 1e-3 * size)
            self._range = smallest, roomy_steps(np.full(size.size, np.inf), self.lower, self.upper)
        smallest, widest = self._range
        return np.minimum(self.differences.step * np.maximum(np.abs(theta), smallest), widest)

    def differentiate(self, function: Callable[[Vector], Any], theta: Vector) -> Matrix:
        """Return the derivatives of `function` at theta by differences, one column per parameter; inside the bounds.

        A probe that fails is replaced by one on the other side.
        """
        theta = np.asarray(theta, dtype=float)

        def evaluate(points: Sequence[Vector]) -> list[Any]:
            return [_or_none(function, point) for point in points]

        columns = derivatives(
            evaluate, theta, self.steps(theta), self.lower, self.upper, central=self.differences.central
        )
        for name, column in zip(self.parameter_names, columns, strict=True):
            if column is None:
                raise SimulationError(
                    f"No derivative with respect to {name!r} could be taken: both probes failed. "
                    f"{sentence(self.last_failure)}",
                    parameters=dict(zip(self.parameter_names, map(float, theta), strict=True)),
                )
        return np.array(columns).T

    def look_again(self, theta: Vector) -> bool:
        """Measure the noise where a search ended and keep the larger; tell whether its steps were much too small.

        An adaptive solver is smooth in patches, and the start may lie well inside one.
        """
        if self.has_jacobian or (self.kind == "cost" and not self.is_scalar):
            return False
        were_used = self._differences is not None
        old, new = self.differences, self._noise_at(np.asarray(theta, dtype=float))
        if new.noise <= old.noise:
            # what is found where it ended may bend over less, too
            step = min(old.step, new.step) if new.central == old.central else old.step
            self._differences = replace(old, absolute=new.absolute, step=step)
            return False
        self._differences = new
        return were_used and new.noise > _MUCH_NOISIER * max(old.noise, NOISE_FREE)

    def _noise_at(self, theta: Vector) -> Differences:
        return measured_noise(
            lambda point: _or_none(self._evaluate, point), theta, self.lower, self.upper, self.is_scalar
        )

    def _take_jacobian(self, theta: Vector) -> Any:
        self.jacobians += 1
        if self.is_sparse:
            J = self.bound.sparse_jacobian(theta)
            if not np.isfinite(J.data).all():
                raise self._failure("The Jacobian has values that are not finite.", theta)
            return J
        J = (
            self._jac(theta)
            if self._jac is not None
            else self.bound.jacobian(theta)
            if self.has_jacobian
            else self.differentiate(self._evaluate, theta)
        )
        return self._checked_jacobian(J, theta)

    def _checked_jacobian(self, J: Any, theta: Vector) -> Matrix:
        out = np.asarray(J, dtype=float)
        if out.ndim == 1 and theta.size == 1:
            out = out[:, None]
        if out.shape != (self.n_obs, theta.size):
            raise ArgumentError(
                f"`jac` returned an array of shape {out.shape}; ({self.n_obs}, {theta.size}) is needed: one row per "
                "residual, one column per parameter."
            )
        if not np.isfinite(out).all():
            raise self._failure("The Jacobian has values that are not finite.", theta)
        return out

    # --- one evaluation, remembered, failures counted

    def _evaluate(self, theta: Vector) -> Any:
        theta = np.asarray(theta, dtype=float)
        key = theta.tobytes()
        known = self._memory.get(key)
        if known is not None:
            return known
        self.evaluations += 1
        check_stop()
        try:
            value: Any = self._run(theta) if self.is_scalar else np.asarray(self._run(theta), dtype=float)
        except SimulationError as error:
            raise self._failure(str(error), theta, error) from error
        except ArithmeticError as error:
            raise self._failure(f"{type(error).__name__}: {error}", theta) from error
        size = float(value if self.is_scalar else value.dot(value))
        if not isfinite(size) and (self.is_scalar or not np.isfinite(value).all()):
            raise self._failure(self._not_finite(value), theta)
        self.remember(key, value, float(size))
        return value

    def evaluate_many(self, Theta: Matrix) -> list[Any]:
        """Return residuals (or -2 log L) at many theta, None where the cost fails; failures are counted."""
        if self.kind != "cost":
            return [_or_none(self._evaluate, theta) for theta in Theta]
        self.evaluations += len(Theta)
        check_stop()
        found, why = (minus2loglik_many if self.is_scalar else residuals_many)(self.bound, Theta)
        out: list[Any] = list(found)
        bad = ~np.isfinite(found.reshape(len(Theta), -1)).all(axis=1)
        for i in np.flatnonzero((why != "") | bad).tolist():
            out[i] = None
            self._failure(why[i] or self._not_finite(found[i]), Theta[i])
        return out

    def _not_finite(self, value: Any) -> str:
        bad = count_bad(value)
        return f"The cost {'is not finite' if self.is_scalar else f'has {bad} residuals that are not finite'}."

    def remember(self, key: bytes, value: Any, size: float) -> None:
        """Keep an evaluation, and the best one."""
        best, memory = self._best, self._memory
        if self._last != best[1]:
            memory.pop(self._last, None)
        if size < best[0]:
            memory.pop(best[1], None)
            self._best = (size, key)
        memory[key] = value
        self._last = key

    def _failure(self, message: str, theta: Vector, error: SimulationError | None = None) -> SimulationError:
        self.failures += 1
        self.first_failure, self.last_failure = self.first_failure or message, message
        parameters = error.parameters if error is not None and error.parameters else None
        named = dict(zip(self.parameter_names, map(float, theta), strict=True))
        return SimulationError(message, parameters=parameters or named, time=getattr(error, "time", None))


class _KeptBound:
    """A bound cost whose evaluations are looked up, and kept where they take long.

    Once another engine has finished a run, the cost is one that depends on the runs before, and nothing is kept.
    """

    def __init__(self, bound: Any, known: Evaluations) -> None:
        self._bound, self._known = bound, known

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._bound, name)
        return self.kept(name, value) if name in _LONG else value

    def kept(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function of theta that is looked up where it is known."""
        return partial(self._known.evaluate, name, function, trusted=lambda: not getattr(self._bound, "retries", 0))


def _or_none(function: Callable[[Vector], Any], theta: Vector) -> Any:
    """Return the function at theta, None where it fails."""
    try:
        return function(theta)
    except SimulationError:
        return None


def count_bad(value: Any) -> int:
    """Return how many numbers are not finite."""
    return int(np.count_nonzero(~np.isfinite(value)))
