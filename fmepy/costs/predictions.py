"""What a model predicts of the observations, as a function of a plain vector: all that comes before residuals or noise.

::

    mod_i(theta)                    the model's value at observation i, in its own unit
    dmod_i / dtheta                 from the model's sensitivities
    T(mod_i),  T'(mod_i) dmod_i     the same on the scale of comparison, T the variable's transform

What follows - residuals with known errors, or a likelihood whose noise is a model of its own - takes predictions and
never asks how they were made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from fmepy.costs.base import OfData, Reboundable
from fmepy.costs.interpolation import Lookup, Places, merge_times, stack
from fmepy.costs.modcost import ModCost, tabulate
from fmepy.costs.observations import Comparison
from fmepy.errors import SimulationError
from fmepy.models.base import BoundModel, simulate_many
from fmepy.models.preequilibration import bind_to_rest
from fmepy.numerics.finite import all_finite
from fmepy.numerics.sparse import MANY, as_sparse, dense, entries, scaled_rows
from fmepy.types import Matrix, Vector

Pull: TypeAlias = "Callable[[Vector], Vector]"


class Predictions(Reboundable):
    """The model at the observations; a base that has what follows from its values.

    Attributes
    ----------
    parameter_names : tuple of str
        The parameters that ``theta`` holds, in order.
    theta0 : ndarray, shape (n_par,)
    data : Comparison
        The observations. Values may go on behind those of the data.
    exact : bool
        True if the model solves its sensitivity equations.
    retries : int
        Runs so far that the first engine could not finish and another one did.
    engine : str
        The engine that runs the model, as far as it says.
    by_entity : bool
        True if each prediction depends on the parameters of its entity.
    """

    parameter_names: tuple[str, ...]
    theta0: Vector
    by_entity = False

    def __init__(self, data: Comparison) -> None:
        self.data = data
        self._scale = None if data.scale.is_identity else data.scale

    def values(self, theta: Vector) -> Vector:
        """Return mod, shape (n_obs,); raise SimulationError if the run fails or one of them is not finite."""
        raise NotImplementedError

    def values_many(self, Theta: Matrix) -> tuple[Matrix, Any]:
        """Return mod of many theta, shape (n, n_obs), and why they failed, see `fmepy.costs.base.residuals_many`."""
        raise NotImplementedError

    def with_slopes(self, theta: Vector, sparse: bool = False) -> tuple[Vector, Any]:
        """Return mod, shape (n_obs,), and dmod/dtheta, shape (n_obs, n_par); if asked for, as a sparse array."""
        raise NotImplementedError

    @property
    def has_pull(self) -> bool:
        """True if `with_pull` takes less time than `with_slopes`: the derivatives of one number to many parameters."""
        return bool(getattr(self.bound, "has_pull", False))

    def with_pull(self, theta: Vector) -> tuple[Vector, Pull]:
        """Return mod, shape (n_obs,), and ``pull(dL/dmod)``, which returns dL/dtheta of a number L."""
        mod, slopes = self.with_slopes(theta)
        return mod, lambda of_mod: of_mod @ slopes

    def failure(self, i: int, theta: Vector, what: str) -> SimulationError:
        """Return the error of a prediction that will not do: `what` is wrong with value `i`."""
        raise NotImplementedError

    # --- on the scale of comparison

    def compared(self, theta: Vector) -> Vector:
        """Return T(mod), shape (n_obs,)."""
        mod = self.values(theta)
        return mod if self._scale is None else self.scaled(mod, theta)

    def compared_many(self, Theta: Matrix) -> tuple[Matrix, Any]:
        """Return T(mod) of many theta, shape (n, n_obs), and why they failed."""
        mod, why = self.values_many(Theta)
        return (mod, why) if self._scale is None else each_of_many(mod, why, Theta, self.scaled)

    def compared_with_slopes(self, theta: Vector, sparse: bool = False) -> tuple[Vector, Any]:
        """Return T(mod), shape (n_obs,), and its derivatives, as `with_slopes` does those of mod."""
        mod, slopes = self.with_slopes(theta, sparse)
        if self._scale is None:
            return mod, slopes
        return self.scaled(mod, theta), self._finite_slopes(self.scaled_slopes(mod, slopes, theta), theta)

    def compared_with_pull(self, theta: Vector) -> tuple[Vector, Pull]:
        """Return T(mod), shape (n_obs,), and the same of it."""
        mod, pull = self.with_pull(theta)
        return self.scaled(mod, theta), lambda of_compared: pull(self.pulled_scale(of_compared, mod))

    @property
    def is_pulled(self) -> bool:
        """True if the derivatives of one number are better had by `with_pull`.

        Under a square root values of zero have to be looked at one by one, see `scaled_slopes`.
        """
        return self.has_pull and (self._scale is None or not self._scale.sqrt.size)

    def pulled_scale(self, of_compared: Vector, mod: Vector) -> Vector:
        """Return dL/dmod from dL/dT(mod)."""
        return of_compared if self._scale is None else of_compared * self._scale.slope(mod)

    def scaled(self, mod: Vector, theta: Vector) -> Vector:
        """Return T(mod); raise SimulationError where there is none."""
        if self._scale is None:
            return mod
        if not self._scale.is_defined(mod):
            first = self._scale.first_undefined(mod)
            i = 0 if first is None else first
            kind = self._scale.kinds[i]
            raise self.failure(i, theta, f"is {mod[i]:g}, which has no {kind} (transform={kind!r})")
        return self._scale.forward(mod)

    def scaled_slopes(self, mod: Vector, slopes: Any, theta: Vector) -> Any:
        """Return T'(mod) dmod/dp; a value of zero that no parameter moves stays unmoved under the square root."""
        if self._scale is None:
            return slopes
        of_scale = self._scale.slope(mod)
        steep = np.isinf(of_scale)
        for i in np.flatnonzero(steep):
            if dense(slopes[[i]]).any():
                raise self.failure(int(i), theta, "is 0, where the square root has no derivative")
        return scaled_rows(slopes, np.where(steep, 0.0, of_scale))

    # --- checks

    def _checked(self, mod: Vector, theta: Vector) -> Vector:
        if not all_finite(mod):
            i = int(np.argmin(np.isfinite(mod)))
            raise self.failure(i, theta, f"is {mod[i]:g}; a finite number is needed")
        return mod

    def _finite_slopes(self, slopes: Any, theta: Vector) -> Any:
        if not np.isfinite(entries(slopes)).all():
            i = int(np.flatnonzero(~np.isfinite(dense(slopes)).all(axis=1))[0])
            raise self.failure(i, theta, "has no finite derivative")
        return slopes


def each_of_many(
    mod: Matrix, why: Any, Theta: Matrix, what: Callable[[Vector, Vector], Any], out: Any = None
) -> tuple[Any, Any]:
    """Return ``what(mod, theta)`` of the rows that came to their end, in place or in `out`, and why others failed."""
    out = mod if out is None else out
    for i in np.flatnonzero(why == ""):
        try:
            out[i] = what(mod[i], Theta[i])
        except SimulationError as error:
            out[i], why[i] = np.nan, str(error)
    return out, why


class PredictionsOfRun(Predictions):
    """A bound model, and where the observations stand in its run.

    Parameters
    ----------
    bound : BoundModel
        With the rows that the lookup needs.
    lookup : Lookup
        Where the observations stand in a run.
    places : sequence of Places
        The same in words, for messages: variable and x of every value.
    data : Comparison
    whole : Model
        What was bound: its own values are told when a run fails.
    """

    def __init__(
        self, bound: BoundModel, lookup: Lookup, places: Sequence[Places], data: Comparison, whole: Any
    ) -> None:
        super().__init__(data)
        self.guard: Any = None  # of a corrected model (`fmepy.costs.predictor_stability`)
        self.parameter_names = tuple(bound.names)
        self.theta0 = np.array(bound.theta0, dtype=float)
        self.bound, self.lookup, self._places, self._whole = bound, lookup, tuple(places), whole

    def values(self, theta: Vector) -> Vector:
        """Return mod, shape (n_obs,)."""
        return self._checked(self.lookup.values(self._ran(self.bound.simulate, theta)), theta)

    def values_many(self, Theta: Matrix) -> tuple[Matrix, Any]:
        """Return mod of many theta, shape (n, n_obs), and why they failed."""
        Y, why = simulate_many(self.bound, Theta)
        return each_of_many(self.lookup.values(Y), why, Theta, self._checked)

    def with_slopes(self, theta: Vector, sparse: bool = False) -> tuple[Vector, Any]:
        """Return mod, shape (n_obs,), and dmod/dtheta, shape (n_obs, n_par); if asked for, as a sparse array."""
        Y, S = self._ran(self.bound.sensitivities, theta)
        mod, slopes = self._checked(self.lookup.values(Y), theta), self.lookup.sensitivities(S)
        self._finite_slopes(slopes, theta)
        return mod, as_sparse(slopes) if sparse else slopes

    def with_pull(self, theta: Vector) -> tuple[Vector, Pull]:
        """Return mod, shape (n_obs,), and ``pull(dL/dmod)``, which returns dL/dtheta of a number L."""
        Y, pull = self._ran(self.bound.with_pull, theta)
        mod = self._checked(self.lookup.values(Y), theta)
        return mod, lambda of_mod: pull(self.lookup.pulled(of_mod, Y.shape))

    def _ran(self, run: Callable[[Vector], Any], theta: Vector) -> Any:
        try:
            return run(theta)
        except SimulationError as error:
            if self.guard is None:
                raise
            raise self.guard.explained(error, self._parameters(theta)) from error

    def _checked(self, mod: Vector, theta: Vector) -> Vector:
        if self.guard is not None:
            x = self._places[0].x
            assert x is not None, "what corrects a model has times"
            self.guard.check(mod[: len(x)], x, self._parameters(theta))
        return super()._checked(mod, theta)

    def _parameters(self, theta: Vector) -> dict[str, float]:
        return self._fixed | dict(zip(self.parameter_names, map(float, theta), strict=True))

    @cached_property
    def _fixed(self) -> dict[str, float]:
        """All parameters of the model at its own values."""
        return {str(k): float(v) for k, v in self._whole.parms.items()}

    def failure(self, i: int, theta: Vector, what: str) -> SimulationError:
        """Return the error of a prediction that will not do: `what` is wrong with value `i`."""
        for at in self._places:
            if i < len(at.names):
                break
            i -= len(at.names)
        x = None if at.x is None else float(at.x[i])
        where = "" if x is None else f" at {at.x_name} = {x:g}"
        return SimulationError(
            f"The model's value of {at.names[i]!r}{where} {what}.", parameters=self._parameters(theta), time=x
        )


def of_run(told: str, run: Callable[..., Any], *arguments: Any) -> Any:
    """Return ``run(*arguments)``; an error says of what it was."""
    try:
        return run(*arguments)
    except SimulationError as error:
        if not told:
            raise
        raise renamed(error, told) from error


def renamed(error: SimulationError, told: str) -> SimulationError:
    """Return an error that says of what it was; as it is where there is nothing to say."""
    if not told:
        return error
    return SimulationError(f"{told}: {error}", parameters=error.parameters, time=error.time, exploded=error.exploded)


class OfPredictions(Reboundable, OfData):
    """What is evaluated from predictions: their parameters, their runs, and what is said of these.

    Parameters
    ----------
    predictions : Predictions
    pieces : sequence of Comparison
        What the observations were joined from.
    theta0 : mapping of str to float
        The parameters, in the order of theta; those of the predictions are among them.
    """

    bound: Predictions

    def __init__(self, predictions: Predictions, pieces: Sequence[Comparison], theta0: Mapping[str, float]) -> None:
        self.bound, self.pieces = predictions, tuple(pieces)
        self.parameter_names = tuple(theta0)
        self.theta0: Vector = np.array(list(theta0.values()), dtype=float)
        self.lower, self.upper = np.full(len(theta0), -np.inf), np.full(len(theta0), np.inf)
        self._at = np.array([self.parameter_names.index(k) for k in predictions.parameter_names], dtype=np.intp)
        self.forget()

    @property
    def predictions(self) -> Predictions:
        """What runs the model."""
        return self.bound

    def keep_within(self, lower: Vector, upper: Vector) -> None:
        """Keep the runs of differences inside these bounds."""
        self.predictions.keep_within(lower[self._at], upper[self._at])

    @property
    def is_sparse(self) -> bool:
        """True if there are many parameters, and each reading depends on few of them."""
        return self.predictions.by_entity and len(self.parameter_names) >= MANY

    def of_pieces(self, *values: Vector) -> Any:
        """Return every piece with its part of some arrays of all observations."""
        ends = np.cumsum([len(c) for c in self.pieces])[:-1]
        return zip(self.pieces, *(np.split(part, ends) for part in values), strict=True)


class BoundSimulation(OfPredictions):
    """Simulation costs of one model as a function of a plain vector: predictions, and residuals of known errors.

    It is what `SimulationCost.bind` returns; see `fmepy.costs.base.BoundCost` for what it offers.

    Parameters
    ----------
    predictions : Predictions
        The model at the observations.
    pieces : sequence of Comparison
        One or more, in the order of the residuals: what the data of the predictions were joined from.
    """

    def __init__(self, predictions: Predictions, pieces: Sequence[Comparison]) -> None:
        super().__init__(predictions, pieces, dict(zip(predictions.parameter_names, predictions.theta0, strict=True)))
        self.data = c = predictions.data
        self.is_scalar, self.has_jacobian = False, True
        self._obs, self._weights = c.obs, c.weights
        self._constant = float(len(c) * np.log(2 * np.pi) - 2 * np.log(c.weights).sum())

    def residuals(self, theta: Vector) -> Vector:
        """Return r, shape (n_obs,): weighted, not scaled."""
        return (self.predictions.compared(theta) - self._obs) * self._weights

    def residuals_many(self, Theta: Matrix) -> tuple[Matrix, Any]:
        """Return r of many theta, shape (n, n_obs), and why they failed; see `fmepy.costs.base.residuals_many`."""
        mod, why = self.predictions.compared_many(Theta)
        return (mod - self._obs) * self._weights, why

    def jacobian(self, theta: Vector) -> Matrix:
        """Return dr/dtheta, shape (n_obs, n_par), from the model's sensitivities."""
        return self.with_slopes(theta)[1]

    def with_slopes(self, theta: Vector) -> tuple[Vector, Matrix]:
        """Return r and dr/dtheta of one run."""
        mod, slopes = self.predictions.compared_with_slopes(theta)
        return (mod - self._obs) * self._weights, slopes * self._weights[:, None]

    @property
    def has_pull(self) -> bool:
        """True if `with_pull` takes less time than `with_slopes`."""
        return self.predictions.is_pulled

    def with_pull(self, theta: Vector) -> tuple[Vector, Pull]:
        """Return r, and ``pull(dL/dr)``, which returns dL/dtheta of a number L."""
        mod, pull = self.predictions.compared_with_pull(theta)
        return (mod - self._obs) * self._weights, lambda of_r: pull(of_r * self._weights)

    def sparse_jacobian(self, theta: Vector) -> Any:
        """Return dr/dtheta as a sparse array, where `is_sparse`."""
        return scaled_rows(self.predictions.compared_with_slopes(theta, sparse=True)[1], self._weights)

    def minus2loglik(self, theta: Vector) -> float:
        """Return -2 log L for normal errors of the given size."""
        r = self.residuals(theta)
        with np.errstate(over="ignore"):  # residuals beyond 1e154: infinite, and told as such
            return float(r @ r) + self._constant

    def modcost(self, theta: Vector) -> ModCost:
        """Return the `ModCost` at theta; obs and mod are on the scale of comparison."""
        return tabulate(self.data, self.predictions.compared(theta))

    def modcosts(self, theta: Vector) -> list[ModCost]:
        """Return the `ModCost` of every piece, from one run."""
        return [tabulate(c, part) for c, part in self.of_pieces(self.predictions.compared(theta))]


def predictions_of(
    model: Any, places: Sequence[Places], data: Comparison, names: Sequence[str], **words: Any
) -> PredictionsOfRun:
    """Return what a model predicts at several places, one after the other, from one run.

    Parameters
    ----------
    model : Model
    places : sequence of Places
    data : Comparison
        The observations, those of all places; further places may follow.
    names : sequence of str
        The parameters that theta shall hold.
    **words
        Of the model's ``bind``.
    """
    grid = np.asarray(model.times, dtype=float)
    times = None if all(p.reads_grid for p in places) else merge_times(*(p.rows_wanted(grid) for p in places))
    bound = bind_to_rest(model, names, times, **words)
    rows = np.asarray(bound.times, dtype=float)
    lookup = stack([p.lookup(rows, grid, bound.var_names) for p in places])
    return PredictionsOfRun(bound, lookup, places, data, model)
