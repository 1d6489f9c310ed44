"""Simulation costs whose noise is a model of its own: -2 log L with its score and expected information.

For reading i with prediction mod_i, both on the scale of comparison, sd s_i and r_i = (mod_i - obs_i) / s_i::

    -2 log L = sum_i log(2 pi) + 2 log s_i + r_i^2           plain readings
             - 2 sum_i log Phi(t_i)                          readings beyond a limit, see `fmepy.costs.censored`
    score    = - sum_i res_i dr_i - sum_(i plain) ds_i/s_i   dr_i = (dmod_i - r_i ds_i) / s_i
    I        = sum_(i plain) dmod_i dmod_i'/s_i^2 + 2 ds_i ds_i'/s_i^2 + sum_(i beyond) w_i dr_i dr_i'

Of a plain reading I is the expected information. Of one beyond a limit it is the observed information of r_i: whether a
reading would fall beyond is known of none of the others, so that nothing can be expected over; it is never negative.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fmepy.costs.base import KnownData
from fmepy.costs.censored import minus2loglik_of_marked, residuals_of_marked, steepness
from fmepy.costs.data_identity import joined
from fmepy.costs.modcost import ModCost, joined_costs, tabulate
from fmepy.costs.noise_model import NoiseModel
from fmepy.costs.observations import Comparison, concatenate
from fmepy.costs.predictions import OfPredictions, Predictions
from fmepy.errors import SimulationError
from fmepy.types import BoolVector, Matrix, Vector


@dataclass(frozen=True, slots=True, eq=False)
class _Slopes:
    """Everything at one theta that score and information are made of.

    Attributes
    ----------
    s, r : ndarray, shape (n_obs,)
    dmod, ds : ndarray, shape (n_obs, n_par)
        On the scale of comparison.
    """

    s: Vector
    r: Vector
    dmod: Matrix
    ds: Matrix


class BoundNoisy(OfPredictions):
    """Simulation costs of one model, with their noise, as a function of a plain vector.

    It is what `SimulationCost.bind` returns where noise is said in words; see `fmepy.costs.base` for what a scored cost
    offers. It is one number, -2 log L, but its `modcost` has the residuals.

    Parameters
    ----------
    predictions : Predictions
        The model at the readings, then wherever else the noise wants to know it.
    pieces : sequence of Comparison
        What the readings were joined from.
    noises : sequence of NoiseModel
        The noise of every piece, of all parameters in theta.
    theta0 : mapping of str to float
        The parameters, in the order of theta.
    scales : collection of str
        Parameters that scale noise.
    """

    is_scalar, has_jacobian, gives_modcost = True, False, True

    def __init__(
        self,
        predictions: Predictions,
        pieces: Sequence[Comparison],
        noises: Sequence[NoiseModel],
        theta0: Mapping[str, float],
        scales: Collection[str],
    ) -> None:
        self.predictions, self.pieces, self._noises = predictions, tuple(pieces), tuple(noises)
        self.parameter_names = tuple(theta0)
        self.theta0: Vector = np.array(list(theta0.values()), dtype=float)
        self.scale_parameters: BoolVector = np.array([k in scales for k in theta0], dtype=bool)
        self.lower: Vector = np.where(self.scale_parameters, 0.0, -np.inf)
        self.upper = np.full(len(theta0), np.inf)
        self._at = np.array([self.parameter_names.index(k) for k in predictions.parameter_names], dtype=np.intp)
        self._compared = c = concatenate(pieces)
        self.nobs = len(c)
        self.data = KnownData.of_number(joined([p.observed for p in pieces]))
        self._marks = c.marks
        self._constant = float(len(c) * np.log(2 * np.pi))
        self._known: tuple[bytes, _Slopes | None] = (b"", None)
        self._ran: tuple[bytes, Vector, Matrix] = (b"", np.empty(0), np.empty((0, 0)))

    def keep_within(self, lower: Vector, upper: Vector) -> None:
        """Keep the runs of differences inside these bounds."""
        self.predictions.keep_within(lower[self._at], upper[self._at])

    def tightened(self) -> BoundNoisy | None:
        """Return the same at smaller tolerances, see `fmepy.models.base.tightened`."""
        out = copy(self)
        tight = self.predictions.tightened()
        if tight is None:
            return None
        out.predictions, out._known, out._ran = tight, (b"", None), (b"", np.empty(0), np.empty((0, 0)))
        return out

    def inflated(self, factor: float) -> None:
        """Return None: there is no process noise."""
        return

    def minus2loglik(self, theta: Vector) -> float:
        """Return -2 log L; raise SimulationError if the model fails, or a noise is no positive number."""
        mod, s = self._predicted(theta)
        return self._minus2loglik((mod - self._compared.obs) / s, s)

    def minus2loglik_many(self, Theta: Matrix) -> tuple[Vector, Any]:
        """Return -2 log L of many theta, shape (n,), and why they failed; see `fmepy.costs.base.minus2loglik_many`."""
        mods, why = self.predictions.values_many(Theta[:, self._at])
        out = np.full(len(Theta), np.nan)
        for i in np.flatnonzero(why == ""):
            try:
                mod, s = self._of_predictions(mods[i], Theta[i])
                out[i] = self._minus2loglik((mod - self._compared.obs) / s, s)
            except SimulationError as error:
                why[i] = str(error)
        return out, why

    def modcost(self, theta: Vector) -> ModCost:
        """Return the `ModCost` at theta; weights are 1/s."""
        return joined_costs(self.modcosts(theta))

    def modcosts(self, theta: Vector) -> list[ModCost]:
        """Return the `ModCost` of every piece, from one run."""
        mod, s = self._predicted(theta)
        ends = np.cumsum([len(c) for c in self.pieces])[:-1]
        split = zip(self.pieces, np.split(mod, ends), np.split(s, ends), strict=True)
        return [tabulate(replace(c, weights=1 / sds), part, is_likelihood=True) for c, part, sds in split]

    def score(self, theta: Vector, rough: bool = False) -> Vector:
        """Return d log L / d theta, shape (n_par,)."""
        d = self._slopes(theta)
        res, direct = d.r, 1 / d.s
        if self._marks is not None:
            res, direct = residuals_of_marked(d.r, self._marks), np.where(self._marks == 0, direct, 0.0)
        return np.asarray(-(res / d.s) @ d.dmod + (res * d.r / d.s - direct) @ d.ds)

    def information(self, theta: Vector, rough: bool = False) -> Matrix:
        """Return the information of theta, see the module's text, shape (n_par, n_par)."""
        rows = self.sensitivity_rows(theta)[2]
        return np.asarray(rows.T @ rows)

    def sensitivity_rows(self, theta: Vector) -> tuple[list[str], Vector, Matrix]:
        """Return variable, x and row of what the information is made of: rows'rows = information.

        Two rows a plain reading, dmod_i / s_i and sqrt(2) ds_i / s_i; one a reading beyond a limit, sqrt(w_i) dr_i.
        """
        d, c = self._slopes(theta), self._compared
        of_mean = d.dmod / d.s[:, None]
        plain = np.ones(len(c), dtype=bool)
        if self._marks is not None:
            b, plain = self._marks != 0, self._marks == 0
            w = steepness(d.r[b], self._marks[b])
            of_mean[b] = np.sqrt(w)[:, None] * (of_mean[b] - (d.r[b] / d.s[b])[:, None] * d.ds[b])
        of_sd = np.sqrt(2) * d.ds[plain] / d.s[plain, None]
        at = np.flatnonzero(plain).tolist()
        names = [*c.names, *(c.names[i] for i in at)]
        return names, np.concatenate([c.x, c.x[plain]]), np.concatenate([of_mean, of_sd])

    def _predicted(self, theta: Vector) -> tuple[Vector, Vector]:
        """Return the model at the readings, on the scale of comparison, and s."""
        return self._of_predictions(self.predictions.values(theta[self._at]), theta)

    def _of_predictions(self, mod: Vector, theta: Vector) -> tuple[Vector, Vector]:
        s = self._checked(self._sds(mod, theta), theta)
        return self.predictions.scaled(mod[: self.nobs], theta[self._at]), s

    def _sds(self, mod: Vector, theta: Vector) -> Vector:
        found = [noise.sds(mod, theta) for noise in self._noises]
        return found[0] if len(found) == 1 else np.concatenate(found)

    def _checked(self, s: Vector, theta: Vector) -> Vector:
        good = (s > 0) & (s < np.inf)
        if not good.all():
            i = int(np.argmin(good))
            raise self._failure(i, theta, f"has the standard deviation {s[i]:g}; a finite number above zero is needed")
        return s

    def _minus2loglik(self, r: Vector, s: Vector) -> float:
        if self._marks is not None:
            return minus2loglik_of_marked(r, s, self._marks)
        with np.errstate(over="ignore"):  # residuals beyond 1e154: infinite, and told as such
            return float(r @ r + 2 * np.log(s).sum()) + self._constant

    def _slopes(self, theta: Vector) -> _Slopes:
        key, known = self._known
        if known is not None and key == theta.tobytes():
            return known
        n, of_model = self.nobs, theta[self._at]
        if len(self._at):
            ran = self._ran  # another thread may write it meanwhile
            if ran[0] != of_model.tobytes():  # a move of noise alone, as second differences make, needs no run
                ran = self._ran = (of_model.tobytes(), *self.predictions.with_slopes(of_model))
            _, mod, moved = ran
            compared = self.predictions.scaled_slopes(mod[:n], moved[:n], of_model)
        else:  # a model is not asked for derivatives to nothing
            mod = self.predictions.values(of_model)
            moved, compared = np.zeros((len(mod), 0)), np.zeros((n, 0))
        s = self._checked(self._sds(mod, theta), theta)
        ds = np.concatenate([noise.slopes(mod, self._of_theta(moved), theta) for noise in self._noises])
        if not np.isfinite(ds).all():
            raise self._failure(int(np.argmin(np.isfinite(ds).all(axis=1))), theta, "has no finite derivative")
        r = (self.predictions.scaled(mod[:n], of_model) - self._compared.obs) / s
        out = _Slopes(s, r, self._of_theta(compared), ds)
        self._known = theta.tobytes(), out
        return out

    def _of_theta(self, moved: Matrix) -> Matrix:
        """Return derivatives to the model's parameters as those to theta."""
        out = np.zeros((len(moved), len(self.parameter_names)))
        out[:, self._at] = moved
        return out

    def _failure(self, i: int, theta: Vector, what: str) -> SimulationError:
        """Return the error of a noise that will not do: `what` is wrong with that of reading `i`."""
        c = self._compared
        x = None if c.x_name is None else float(c.x[i])
        where = "" if x is None else f" at {c.x_name} = {x:g}"
        return SimulationError(
            f"The noise of {c.names[i]!r}{where} {what}.",
            parameters=dict(zip(self.parameter_names, map(float, theta), strict=True)),
            time=x,
        )
