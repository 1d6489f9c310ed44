"""What stands behind an objective: a bound cost of ours, or a function of the user, with its failures and its kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from typing import Any, Protocol

import numpy as np

from fmepy.costs.base import residuals_many
from fmepy.costs.modcost import ModCost
from fmepy.errors import ArgumentError, SimulationError
from fmepy.models.base import bound_to
from fmepy.numerics.differences import derivatives, roomy_steps
from fmepy.parameters.named import Parameters
from fmepy.types import BoolVector, Matrix, Vector

__all__ = ["BoundSource", "Expansion", "FunctionSource", "Source", "classify"]


class Source(Protocol):
    """What stands behind an Objective: something evaluated at the free parameters."""

    n_obs: int

    def residuals(self, theta: Vector) -> Vector:
        """Return the residuals, shape (n_obs,)."""
        ...

    def number(self, theta: Vector) -> float:
        """Return -2 log L."""
        ...

    def jacobian(self, theta: Vector) -> Matrix | None:
        """Return the derivatives of the residuals, shape (n_obs, n_par); None if nobody gives them."""
        ...

    def modcost(self, theta: Vector) -> Any:
        """Return the ModCost, None if there is none."""
        ...


class BoundSource:
    """A bound cost, seen from the free parameters."""

    def __init__(self, cost: Any, bound: Any, expand: Expansion | None, **words: Any) -> None:
        self.cost, self.bound, self.expand, self.words = cost, bound, expand, words  # words: of its binding
        self.n_obs = 0 if bound.is_scalar else len(bound.weights)

    def again(self) -> BoundSource:
        """Return the same cost bound anew, which shares no counter and no engine with this one."""
        out = copy(self)
        out.bound = bound_to(self.cost, self.bound.parameter_names, **self.words)
        return out

    def _full(self, theta: Vector) -> Vector:
        return theta if self.expand is None else self.expand(theta)

    def residuals(self, theta: Vector) -> Vector:
        """Return the residuals, shape (n_obs,)."""
        return np.asarray(self.bound.residuals(self._full(theta)), dtype=float)

    def residuals_many(self, Theta: Matrix) -> tuple[Matrix, Any]:
        """Return the residuals of many theta and why they failed, see `fmepy.costs.base.residuals_many`."""
        return residuals_many(self.bound, Theta if self.expand is None else np.array([self.expand(t) for t in Theta]))

    def number(self, theta: Vector) -> float:
        """Return -2 log L."""
        return float(self.bound.minus2loglik(self._full(theta)))

    def jacobian(self, theta: Vector) -> Matrix | None:
        """Return the derivatives of the residuals, shape (n_obs, n_par); None if nobody gives them."""
        J: Matrix = self.bound.jacobian(self._full(theta))
        return J if self.expand is None else np.asarray(J @ self.expand.derivative(theta))

    def modcost(self, theta: Vector) -> Any:
        """Return the ModCost, None if there is none."""
        if self.bound.is_scalar:
            return None
        if callable(getattr(self.bound, "modcost", None)):
            return self.bound.modcost(self._full(theta))
        names = self.bound.parameter_names
        return self.cost(dict(zip(names, map(float, self._full(theta)), strict=True)))


class Expansion:
    """From the free parameters of lmfit to all of them: fixed values, and those tied to others."""

    def __init__(self, parameters: Parameters) -> None:
        self.parameters = parameters
        self.names: tuple[str, ...] = tuple(parameters.expand(parameters.values))

    def __call__(self, theta: Vector) -> Vector:
        """Return all parameters."""
        return np.array(list(self.parameters.expand(theta).values()))

    def bounds(self, lower: Vector, upper: Vector) -> tuple[Vector, Vector]:
        """Return the bounds of all parameters from those of the free ones; what lmfit fixes stays where it is."""
        assert self.parameters.lmfit is not None, "only lmfit fixes and ties parameters"
        free = dict(zip(self.parameters.names, zip(lower, upper, strict=True), strict=True))
        own = {
            q.name: (q.min, q.max) if q.expr is not None else (q.value, q.value)
            for q in self.parameters.lmfit.values()
            if q.name not in free
        }
        low, high = zip(*({**own, **free}[name] for name in self.names), strict=True)
        return np.array(low, dtype=float), np.array(high, dtype=float)

    def derivative(self, theta: Vector) -> Matrix:
        """Return d(all) / d(free), shape (n_all, n_par), by central differences (error about 1e-10)."""
        lower, upper = self.parameters.lower, self.parameters.upper
        assert lower is not None, "lmfit's parameters have bounds"
        assert upper is not None, "lmfit's parameters have bounds"
        steps = roomy_steps(6e-6 * np.maximum(np.abs(theta), 1e-8), lower, upper)
        slopes = derivatives(lambda points: [self(p) for p in points], theta, steps, lower, upper, central=True)
        return np.stack(slopes, axis=1)

    def scales(self, of_all: BoolVector, theta: Vector) -> BoolVector:
        """Tell of the free parameters, at theta, which scale noise: all that depends on them does, in proportion."""
        out = np.zeros(theta.size, dtype=bool)
        for j in range(theta.size):
            there, half, gone = (theta.copy() for _ in range(3))
            there[j] = theta[j] if theta[j] != 0 else 1e-3
            half[j], gone[j] = 0.5 * there[j], 0.0
            whole, part, rest = self(there), self(half), self(gone)
            moves = whole != rest
            out[j] = bool(of_all[moves].all() and np.allclose(whole[moves], 2 * part[moves]) and not rest[moves].any())
        return out


class FunctionSource:
    """A user's function; its exceptions become SimulationErrors."""

    def __init__(
        self,
        f: Callable[..., Any],
        parameters: Parameters,
        jac: Callable[..., Any] | None,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> None:
        self.f, self.parameters, self.jac, self.args, self.kwargs = f, parameters, jac, args, dict(kwargs)
        self.kind = ""
        self.n_obs = 0

    def call(self, theta: Vector) -> Any:
        """Return what the function returns; what it raises is a failed run."""
        given = self.parameters.given(theta)
        try:
            return self.f(given, *self.args, **self.kwargs)
        except SimulationError:
            raise
        except (Exception, SystemExit) as error:  # whatever goes wrong in it is a failed run, not the end of a fit
            raise SimulationError(f"{type(error).__name__}: {error}", parameters=self.named(theta)) from error

    def named(self, theta: Vector) -> dict[str, float]:
        """Return theta by name."""
        return dict(zip(self.parameters.names, map(float, theta), strict=True))

    def residuals(self, theta: Vector) -> Vector:
        """Return the residuals, shape (n_obs,)."""
        result = self.call(theta)
        kind, value = classify(result)
        if kind != self.kind or value.size != self.n_obs:
            raise ArgumentError(
                f"`f` returned {_told(kind, value)} at {self.named(theta)}, but {_told(self.kind, self.n_obs)} at the "
                "start. The residuals must be of the same data at every parameter set."
            )
        out: Vector = value
        return out

    def number(self, theta: Vector) -> float:
        """Return -2 log L."""
        kind, value = classify(self.call(theta))
        if kind != "number":
            raise ArgumentError(f"`f` returned {_told(kind, value)} at {self.named(theta)}, but one number before.")
        return float(value)

    def jacobian(self, theta: Vector) -> Matrix | None:
        """Return the derivatives of the residuals, shape (n_obs, n_par); None if nobody gives them."""
        if self.jac is None:
            return None
        try:
            J = np.asarray(self.jac(self.parameters.given(theta), *self.args, **self.kwargs), dtype=float)
        except SimulationError:
            raise
        except (Exception, SystemExit) as error:
            raise SimulationError(
                f"`jac` raised {type(error).__name__}: {error}", parameters=self.named(theta)
            ) from error
        if self.parameters.lmfit is not None and J.ndim == 2 and J.shape[1] == len(self.parameters.lmfit) != theta.size:
            return np.asarray(J @ Expansion(self.parameters).derivative(theta))
        return J

    def modcost(self, theta: Vector) -> Any:
        """Return the ModCost, None if there is none."""
        return self.call(theta) if self.kind == "modcost" else None


def _told(kind: str, value: Any) -> str:
    """Return a result's kind in words."""
    if kind == "number":
        return "one number"
    n = value if isinstance(value, int) else np.size(value)
    return f"a ModCost with {n} residuals" if kind == "modcost" else f"{n} residuals"


def classify(result: Any) -> tuple[str, Any]:
    """Return what a user's function returned: its kind, and the number or the residuals as a new array."""
    if _is_modcost(result):
        return "modcost", np.array(result.res, dtype=float)
    try:
        value = np.array("nothing" if result is None else result, dtype=float)
    except (TypeError, ValueError):
        raise ArgumentError(
            f"`f` returned {type(result).__name__}; a ModCost, a one-dimensional array of residuals or one number "
            "(-2 log L) is needed. A model is held against data by modCost(model(p), obs)."
        ) from None
    if value.ndim == 0:
        return "number", float(value)
    if value.ndim != 1:
        raise ArgumentError(
            f"`f` returned an array of shape {value.shape}; residuals are one-dimensional. Return residuals.ravel(), "
            "or modCost(table, obs) if it is a model's output."
        )
    if value.size == 0:
        raise ArgumentError("`f` returned no residuals at all.")
    return "vector", value


def _is_modcost(result: Any) -> bool:
    return isinstance(result, ModCost)
