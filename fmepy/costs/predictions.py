"""What a model predicts of the observations, as a function of a plain vector: all that comes before residuals or noise.

::

    mod_i(theta)                    the model's value at observation i, in its own unit
    dmod_i / dtheta                 from the model's sensitivities
    T(mod_i),  T'(mod_i) dmod_i     the same on the scale of comparison, T the variable's transform

What follows - residuals with known errors, or a likelihood whose noise is a model of its own - takes predictions and
never asks how they were made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any, Self

import numpy as np

from fmepy.costs.interpolation import Lookup, Places, merge_times, stack, values_of_many
from fmepy.costs.observations import Comparison
from fmepy.errors import SimulationError
from fmepy.models.base import BoundModel, bound_to, engine_of, keep_within, simulate_many, tightened
from fmepy.types import Matrix, Vector

__all__ = ["Predictions", "predictions_of"]


class Predictions:
    """A bound model, and where the observations stand in its run.

    Parameters
    ----------
    model : BoundModel
        With the rows that the lookup needs.
    lookup : Lookup
        Where the observations stand in a run.
    places : sequence of Places
        The same in words, for messages: variable and x of every value.
    data : Comparison
        The observations; the scale on which they are compared. Values may go on behind those of the data.
    fixed : mapping of str to float
        All parameters of the model at its own values (told when a run fails).

    Attributes
    ----------
    parameter_names : tuple of str
        The parameters that ``theta`` holds, in order.
    theta0 : ndarray, shape (n_par,)
    model, lookup, data
        As given.
    """

    def __init__(
        self,
        model: BoundModel,
        lookup: Lookup,
        places: Sequence[Places],
        data: Comparison,
        fixed: Mapping[str, float],
    ) -> None:
        self.parameter_names = tuple(model.names)
        self.theta0: Vector = np.array(model.theta0, dtype=float)
        self.data = data
        self._scale = None if data.scale.is_identity else data.scale
        self.model, self.lookup, self._places, self._fixed = model, lookup, tuple(places), dict(fixed)

    @property
    def exact(self) -> bool:
        """True if the model solves its sensitivity equations."""
        return self.model.exact

    @property
    def retries(self) -> int:
        """Runs so far that the first engine could not finish and another one did."""
        return self.model.retries

    @property
    def engine(self) -> str:
        """The engine that runs the model, as far as it says."""
        return engine_of(self.model)

    def keep_within(self, lower: Vector, upper: Vector) -> None:
        """Keep the runs of differences inside these bounds."""
        keep_within(self.model, lower, upper)

    def tightened(self) -> Self | None:
        """Return the same at smaller tolerances, see `fmepy.models.base.tightened`."""
        out = copy(self)
        out.model = tightened(self.model)
        return None if out.model is None else out

    def values(self, theta: Vector) -> Vector:
        """Return mod, shape (n_obs,); raise SimulationError if the run fails or one of them is not finite."""
        return self._checked(self.lookup.values(self.model.simulate(theta)), theta)

    def values_many(self, Theta: Matrix) -> tuple[Matrix, Any]:
        """Return mod of many theta, shape (n, n_obs), and why they failed, see `fmepy.costs.base.residuals_many`."""
        Y, why = simulate_many(self.model, Theta)
        mod = values_of_many(self.lookup, Y)
        return self._each(mod, why, Theta, self._checked)

    def with_slopes(self, theta: Vector) -> tuple[Vector, Matrix]:
        """Return mod, shape (n_obs,), and dmod/dtheta, shape (n_obs, n_par)."""
        Y, S = self.model.sensitivities(theta)
        mod, slopes = self._checked(self.lookup.values(Y), theta), self.lookup.sensitivities(S)
        return mod, self._finite_slopes(slopes, theta)

    # --- on the scale of comparison

    def compared(self, theta: Vector) -> Vector:
        """Return T(mod), shape (n_obs,)."""
        mod = self.values(theta)
        return mod if self._scale is None else self.scaled(mod, theta)

    def compared_many(self, Theta: Matrix) -> tuple[Matrix, Any]:
        """Return T(mod) of many theta, shape (n, n_obs), and why they failed."""
        mod, why = self.values_many(Theta)
        return (mod, why) if self._scale is None else self._each(mod, why, Theta, self.scaled)

    def compared_with_slopes(self, theta: Vector) -> tuple[Vector, Matrix]:
        """Return T(mod), shape (n_obs,), and its derivatives, shape (n_obs, n_par)."""
        mod, slopes = self.with_slopes(theta)
        if self._scale is None:
            return mod, slopes
        return self.scaled(mod, theta), self._finite_slopes(self.scaled_slopes(mod, slopes, theta), theta)

    def scaled(self, mod: Vector, theta: Vector) -> Vector:
        """Return T(mod); raise SimulationError where there is none."""
        if self._scale is None:
            return mod
        if not self._scale.is_defined(mod):
            first = self._scale.first_undefined(mod)
            i = 0 if first is None else first
            kind = "log" if i in self._scale.log else "sqrt"
            raise self.failure(i, theta, f"is {mod[i]:g}, which has no {kind} (transform={kind!r})")
        return self._scale.forward(mod)

    def scaled_slopes(self, mod: Vector, slopes: Matrix, theta: Vector) -> Matrix:
        """Return T'(mod) dmod/dp; a value of zero that no parameter moves stays unmoved under the square root."""
        if self._scale is None:
            return slopes
        of_scale = self._scale.slope(mod)
        steep = np.isinf(of_scale)
        for i in np.flatnonzero(steep):
            if np.any(slopes[i] != 0):
                raise self.failure(int(i), theta, "is 0, where the square root has no derivative")
        return np.where(steep, 0.0, of_scale)[:, None] * slopes

    # ---

    def failure(self, i: int, theta: Vector, what: str) -> SimulationError:
        """Return the error of a prediction that will not do: `what` is wrong with value `i`."""
        for at in self._places:
            if i < len(at.names):
                break
            i -= len(at.names)
        x = None if at.x is None else float(at.x[i])
        where = "" if x is None else f" at {at.x_name} = {x:g}"
        return SimulationError(
            f"The model's value of {at.names[i]!r}{where} {what}.",
            parameters={**self._fixed, **dict(zip(self.parameter_names, map(float, theta), strict=True))},
            time=x,
        )

    def _checked(self, mod: Vector, theta: Vector) -> Vector:
        finite = np.isfinite(mod)
        if not finite.all():
            i = int(np.argmin(finite))
            raise self.failure(i, theta, f"is {mod[i]:g}; a finite number is needed")
        return mod

    def _finite_slopes(self, slopes: Matrix, theta: Vector) -> Matrix:
        if not np.isfinite(slopes).all():
            i = int(np.flatnonzero(~np.isfinite(slopes).all(axis=1))[0])
            raise self.failure(i, theta, "has no finite derivative")
        return slopes

    @staticmethod
    def _each(mod: Matrix, why: Any, Theta: Matrix, what: Any) -> tuple[Matrix, Any]:
        """Return ``what(mod, theta)`` of the rows that came to their end; those that raise have failed."""
        for i in np.flatnonzero(why == ""):
            try:
                mod[i] = what(mod[i], Theta[i])
            except SimulationError as error:
                mod[i], why[i] = np.nan, str(error)
        return mod, why


def predictions_of(
    model: Any, places: Sequence[Places], data: Comparison, names: Sequence[str], *, runs: int = 1, **words: Any
) -> Predictions:
    """Return what a model predicts at several places, one after the other, from one run.

    Parameters
    ----------
    model : Model
    places : sequence of Places
    data : Comparison
        The observations, those of all places; further places may follow.
    names : sequence of str
        The parameters that theta shall hold.
    runs, **words
        Of the model's ``bind``.
    """
    grid = np.asarray(model.times, dtype=float)
    times = None if all(p.reads_grid for p in places) else merge_times(*(p.rows_wanted(grid) for p in places))
    bound = bound_to(model, names, runs=runs, times=times, **words)
    rows = np.asarray(bound.times, dtype=float)
    lookup = stack([p.lookup(rows, grid, bound.var_names) for p in places])
    return Predictions(bound, lookup, places, data, {str(k): float(v) for k, v in model.parms.items()})
