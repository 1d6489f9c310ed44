"""Costs that are likelihoods of readings: -2 log L, its score and expected information from a model's sensitivities.

`BoundLikelihood` is the base of likelihoods of one's own. Reading i has the log density l(obs_i, mod_i, s_i), where
mod_i is its prediction, on the scale of comparison, and s_i what ``measurement_noise=`` says of it, its spread::

    -2 log L = -2 sum_i l_i
    score    = sum_i a_i dmod_i + b_i ds_i                    a = dl/dmod, b = dl/ds
    I        = sum_i E[a_i^2] dmod_i dmod_i' + E[b_i^2] ds_i ds_i'      where a and b are not correlated

`BoundNoisy` is the normal one, with r_i = (mod_i - obs_i) / s_i::

    -2 log L = sum_i log(2 pi) + 2 log s_i + r_i^2           plain readings
             - 2 sum_i log Phi(t_i)                          readings beyond a limit, see `fmepy.numerics.tails`
    score    = - sum_i res_i dr_i - sum_(i plain) ds_i/s_i   dr_i = (dmod_i - r_i ds_i) / s_i
    I        = sum_(i plain) dmod_i dmod_i'/s_i^2 + 2 ds_i ds_i'/s_i^2 + sum_(i beyond) w_i dr_i dr_i'

Of a plain reading I is the expected information. Of one beyond a limit it is the observed information of r_i: whether a
reading would fall beyond is known of none of the others, so that nothing can be expected over; it is never negative.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from fmepy.costs.base import KnownData, errors_unknown
from fmepy.costs.by_entity import predictions_of_parts
from fmepy.costs.data_fingerprint import joined
from fmepy.costs.modcost import ModCost, joined_costs, tabulate
from fmepy.costs.noise import ERR
from fmepy.costs.noise_model import MeasurementNoise, NoiseModel, NoiseParameters
from fmepy.costs.observations import Comparison, concatenate
from fmepy.costs.predictions import OfPredictions, Predictions, each_of_many
from fmepy.errors import ArgumentError, SimulationError
from fmepy.language.equations import symbol
from fmepy.numerics.sparse import columns_at, dense, normal_matrix, scaled_rows, stacked
from fmepy.numerics.tails import log_probability, minus2loglik_of_marked, residuals_of_marked, steepness
from fmepy.parameters.names import as_theta
from fmepy.types import BoolVector, Matrix, Vector


@dataclass(frozen=True, slots=True, eq=False)
class _Slopes:
    """Everything at one theta that score and information are made of, on the scale of comparison.

    Attributes
    ----------
    mod : ndarray, shape (n_obs,)
    s : ndarray, shape (n_obs,), or None
    dmod, ds : ndarray or sparse array, shape (n_obs, n_par); None without s
    """

    mod: Vector
    s: Vector | None
    dmod: Any
    ds: Any


class BoundLikelihood(OfPredictions):
    """Readings of one model and how likely they are, by a plain vector: a base for likelihoods of your own.

    A subclass says how likely a reading is, in three functions of arrays, `log_density`, `slopes` and `informations`;
    ``SimulationCost(model, obs, likelihood=TheSubclass)`` does the rest. It is one number, -2 log L, whose `modcost`
    holds the residuals, in units of the sd that `informations` implies. See `fmepy.costs.base` for what a scored cost
    offers: method "scoring" of `modFit`, `sensFun`, `collin`, `profile` and `modMCMC` take it.

    Parameters
    ----------
    predictions : Predictions
        The model at the readings, then wherever else the noise wants to know it.
    pieces : sequence of Comparison
        What the readings were joined from.
    noises : sequence of NoiseModel
        The noise of every piece, of all parameters in theta; empty where nothing is said of it.
    theta0 : mapping of str to float
        The parameters, in the order of theta.
    scales : collection of str
        Parameters that scale noise.

    Examples
    --------
    Counts, whose variance is their mean:

    >>> import fmepy as fme
    >>> from scipy.special import gammaln
    >>> class Poisson(BoundLikelihood):
    ...     def log_density(self, obs, mod, spread):
    ...         return obs * np.log(mod) - mod - gammaln(obs + 1)
    ...     def slopes(self, obs, mod, spread):
    ...         return obs / mod - 1, None
    ...     def informations(self, mod, spread):
    ...         return 1 / mod, None
    >>> model = fme.OdeModel("d(N)/dt = -k*N", state={"N": "N0"}, times=range(6), parms={"k": 0.4, "N0": 40.0})
    >>> counts = {"time": [0, 1, 2, 3, 4, 5], "N": [42, 25, 17, 12, 5, 6]}
    >>> cost = fme.SimulationCost(model, counts, likelihood=Poisson)
    >>> fit = fme.modFit(cost)
    >>> fit.method, fit.par.round(3).to_dict()
    ('scoring', {'k': 0.437, 'N0': 40.833})
    """

    is_scalar, has_jacobian, gives_modcost = True, False, True

    def __init__(
        self,
        predictions: Predictions | None = None,
        pieces: Sequence[Comparison] = (),
        noises: Sequence[NoiseModel] = (),
        theta0: Mapping[str, float] | None = None,
        scales: Collection[str] = (),
    ) -> None:
        if predictions is None or theta0 is None:
            raise ArgumentError(
                f"Costs make it, for their data: give the class itself, likelihood={type(self).__name__}."
            )
        super().__init__(predictions, pieces, theta0)
        self._noises = tuple(noises)
        self.scale_parameters: BoolVector = np.array([k in scales for k in theta0], dtype=bool)
        self.lower = np.where(self.scale_parameters, 0.0, -np.inf)
        self._compared = c = concatenate(pieces)
        self.nobs = len(c)
        self.data = KnownData.of_number(joined([p.observed for p in pieces]))

    def forget(self) -> None:
        """Forget the values stored for other predictions."""
        self._known: tuple[bytes, _Slopes | None] = (b"", None)
        self._ran: tuple[bytes, Vector, Any, Any] = (b"", np.empty(0), None, None)

    # --- what a likelihood of one's own says

    def log_density(self, obs: Vector, mod: Vector, spread: Any) -> Vector:
        """Return the log density of every reading, shape (n_obs,).

        Parameters
        ----------
        obs, mod : ndarray, shape (n_obs,)
            Readings and predictions, on the scale of comparison (with a `transform` both are transformed).
        spread : ndarray, shape (n_obs,), or None
            What `measurement_noise` says of every reading, or else its error in the column `err`; above zero. None
            where nothing is said.
        """
        raise self._lacks("log_density(self, obs, mod, spread)", "the log density of every reading")

    def slopes(self, obs: Vector, mod: Vector, spread: Any) -> tuple[Vector, Vector | None]:
        """Return the derivatives of `log_density` to mod, and to the spread (None: it does not depend on it)."""
        raise self._lacks("slopes(self, obs, mod, spread)", "its derivatives to mod, and to spread (or None)")

    def informations(self, mod: Vector, spread: Any) -> tuple[Vector, Vector | None]:
        """Return the expected squares of the `slopes`; of the spread None as there. Slopes are not correlated."""
        raise self._lacks("informations(self, mod, spread)", "the expected squares of the slopes, None as there")

    def _lacks(self, method: str, of: str) -> ArgumentError:
        return ArgumentError(
            f"The likelihood {type(self).__name__} does not say all: give it {method}, that returns {of}."
        )

    def draw(self, mod: Vector, spread: Any, rng: np.random.Generator) -> Vector:
        """Return readings at predictions, shape (n_obs,); without this method no data can be drawn."""
        raise ArgumentError(
            f"The likelihood {type(self).__name__} does not say how its readings are drawn. Give the class a method "
            "draw(self, mod, spread, rng) that returns them, for predictions and a numpy Generator."
        )

    @classmethod
    def check(cls, cost: Any) -> None:
        """Refuse a cost whose readings or words do not fit; none by default."""

    # --- what follows from it

    def drawn(self, theta: Vector, rng: np.random.Generator) -> Vector:
        """Return readings drawn at theta, on the scale of comparison."""
        return self.draw(*self._of_predictions(self.predictions.values(theta[self._at]), theta), rng)

    def inflated(self, factor: float) -> None:
        """Return None: there is no process noise."""
        return

    @property
    def has_kinks(self) -> bool:
        """Whether the likelihood has kinks, as Laplace's does, where predictions meet readings."""
        return self._compared.laplace is not None

    def minus2loglik(self, theta: Vector) -> float:
        """Return -2 log L; raise SimulationError if the model fails, or a reading has no likelihood."""
        theta = as_theta(theta, self.parameter_names)
        return self._minus2loglik(*self._of_predictions(self.predictions.values(theta[self._at]), theta), theta)

    def minus2loglik_many(self, Theta: Matrix) -> tuple[Vector, Any]:
        """Return -2 log L of many theta, shape (n,), and why they failed; see `fmepy.costs.base.minus2loglik_many`."""
        mods, why = self.predictions.values_many(Theta[:, self._at])

        def one(mod: Vector, theta: Vector) -> float:
            return self._minus2loglik(*self._of_predictions(mod, theta), theta)

        return each_of_many(mods, why, Theta, one, np.full(len(Theta), np.nan))

    def log_densities(self, theta: Vector) -> Vector:
        """Return the log density of every reading in its own units, see `fmepy.costs.base.log_densities`."""
        c, observed = self._compared, self.data.observed
        of_scale = c.all_marks == 0  # a probability has no unit
        if c.own_scale is not None:
            of_scale &= ~c.own_scale  # of which it is a part of the density
        found = self._densities(*self._of_predictions(self.predictions.values(theta[self._at]), theta), theta)
        return found if observed is None else found + np.where(of_scale, observed.log_slopes, 0.0)

    def modcost(self, theta: Vector) -> ModCost:
        """Return the `ModCost` at theta; weights are one over the sd of a reading."""
        return joined_costs(self.modcosts(theta))

    def modcosts(self, theta: Vector) -> list[ModCost]:
        """Return the `ModCost` of every piece, from one run."""
        theta = as_theta(theta, self.parameter_names)
        mod, s = self._of_predictions(self.predictions.values(theta[self._at]), theta)
        split = self.of_pieces(mod, *self._in_units_of_sd(mod, s, theta))
        costs = [(tabulate(replace(c, weights=w), own, is_likelihood=True), logs) for c, own, w, logs in split]
        return [cost if np.isnan(logs).any() else replace(cost, minlogp=-float(logs.sum())) for cost, logs in costs]

    def score(self, theta: Vector, rough: bool = False) -> Vector:
        """Return d log L / d theta, shape (n_par,)."""
        theta = as_theta(theta, self.parameter_names)
        if self._is_swept_at(theta):
            return -0.5 * self._with_pull(theta)[1]
        d = self._at_theta(theta)
        to_mod, to_s = self._finite(self.slopes, theta, self._compared.obs, d.mod, d.s)
        out = to_mod @ d.dmod
        return np.asarray(out if to_s is None else out + to_s @ d.ds)

    def with_slopes(self, theta: Vector) -> tuple[float, Vector]:
        """Return -2 log L and its gradient of one run."""
        if self._is_swept_at(theta):
            return self._with_pull(theta)
        d = self._at_theta(theta)
        return self._minus2loglik(d.mod, d.s, theta), -2.0 * self.score(theta)

    def _is_swept_at(self, theta: Vector) -> bool:
        return len(self._at) > 0 and self.predictions.is_pulled and self._known[0] != theta.tobytes()

    def _with_pull(self, theta: Vector) -> tuple[float, Vector]:
        n, out = self.nobs, np.zeros(len(theta))
        mod, pull = self.predictions.with_pull(theta[self._at])
        compared, s = self._of_predictions(mod, theta)
        to_mod, to_s = self._finite(self.slopes, theta, self._compared.obs, compared, s)
        of_mod = np.concatenate([self.predictions.pulled_scale(to_mod, mod[:n]), np.zeros(len(mod) - n)])
        if to_s is not None:
            parts = np.split(to_s, np.cumsum([noise.n_obs for noise in self._noises])[:-1])
            for noise, of_s in zip(self._noises, parts, strict=True):
                by_mod, direct = noise.pulled(mod, theta, of_s)
                of_mod, out = of_mod + by_mod, out + direct
        out[self._at] += pull(of_mod)
        return self._minus2loglik(compared, s, theta), -2.0 * out

    def information(self, theta: Vector, rough: bool = False) -> Matrix:
        """Return the information of theta, see the module's text, shape (n_par, n_par)."""
        return normal_matrix(self._rows(theta)[1])

    def sensitivity_rows(self, theta: Vector) -> tuple[list[str], Vector, Matrix]:
        """Return variable, x and values of the rows whose product is the information: rows'rows = information.

        One row a reading for its prediction, then one for its spread where that counts.
        """
        again, rows = self._rows(theta)
        c = self._compared
        names = [*c.names, *(c.names[i] for i in again.tolist())]
        return names, np.concatenate([c.x, c.x[again]]), dense(rows)

    def _rows(self, theta: Vector) -> tuple[Any, Any]:
        """Return the readings whose spread has a row, and the rows of all predictions, then of these spreads."""
        theta = as_theta(theta, self.parameter_names)
        d = self._at_theta(theta)
        of_mod, of_s = self._finite(self.informations, theta, d.mod, d.s)
        rows = scaled_rows(d.dmod, np.sqrt(of_mod))
        if of_s is None:
            return np.empty(0, dtype=np.intp), rows
        return np.arange(self.nobs), stacked([rows, scaled_rows(d.ds, np.sqrt(of_s))])

    def _minus2loglik(self, mod: Vector, s: Vector | None, theta: Vector) -> float:
        return -2 * float(self._densities(mod, s, theta).sum())

    def _densities(self, mod: Vector, s: Vector | None, theta: Vector) -> Vector:
        with np.errstate(all="ignore"):
            densities = np.asarray(self.log_density(self._compared.obs, mod, s), dtype=float)
        good = np.isfinite(densities)
        if densities.shape != mod.shape or not good.all():
            i = int(np.argmin(good)) if densities.shape == mod.shape else 0
            value = f"{densities[i]:g}" if densities.shape == mod.shape else f"an array of shape {densities.shape}"
            raise self._failure(i, theta, f"The log density of {{}} is {value} where the model's value is {mod[i]:g}")
        return densities

    def _in_units_of_sd(self, mod: Vector, s: Vector | None, theta: Vector) -> tuple[Vector, Vector]:
        """Return weights, and the log densities (NaN: those of the normal with these weights)."""
        return np.sqrt(self._finite(self.informations, theta, mod, s)[0]), self._densities(mod, s, theta)

    def _finite(self, function: Any, theta: Vector, *arguments: Any) -> Any:
        """Return the pair of arrays of one of a subclass's functions, checked."""
        with np.errstate(all="ignore"):
            pair = function(*arguments)
        for values in pair:
            if values is not None and not (good := np.isfinite(values)).all():
                raise self._failure(int(np.argmin(good)), theta, "The log density of {} has no finite derivative")
        return pair

    def _of_predictions(self, mod: Vector, theta: Vector) -> tuple[Vector, Vector | None]:
        """Return the model at the readings, on the scale of comparison, and s."""
        return self.predictions.scaled(mod[: self.nobs], theta[self._at]), self._sds(mod, theta)

    def _sds(self, mod: Vector, theta: Vector) -> Any:
        if not self._noises:
            return None
        sds = [noise.sds(mod, theta) for noise in self._noises]
        s = sds[0] if len(sds) == 1 else np.concatenate(sds)
        good = (s > 0) & (s < np.inf)
        if not good.all():
            i = int(np.argmin(good))
            raise self._failure(
                i, theta, f"The noise of {{}} has the standard deviation {s[i]:g}; a finite number above zero is needed"
            )
        return s

    def _at_theta(self, theta: Vector) -> _Slopes:
        key, slopes = self._known
        if slopes is not None and key == theta.tobytes():
            return slopes
        of_model = theta[self._at]
        last_run = self._ran  # another thread may write it meanwhile
        if last_run[0] != of_model.tobytes() or last_run[2] is None:  # a move of noise alone needs no run
            last_run = self._ran = (of_model.tobytes(), *self._with_slopes(of_model))
        _, mod, moved, compared = last_run
        s = self._sds(mod, theta)
        ds = None
        if s is not None:
            ds = stacked([noise.slopes(mod, moved, theta) for noise in self._noises])
            values = ds.sum(axis=1)  # a sum is finite where its parts are
            if not np.isfinite(values).all():
                raise self._failure(
                    int(np.argmin(np.isfinite(values))), theta, "The noise of {} has no finite derivative"
                )
        out = _Slopes(self.predictions.scaled(mod[: self.nobs], of_model), s, compared, ds)
        self._known = theta.tobytes(), out
        return out

    def _with_slopes(self, of_model: Vector) -> tuple[Vector, Any, Any]:
        """Return all predictions, their derivatives to theta, and those of the readings on the scale of comparison."""
        n, n_par, predictions = self.nobs, len(self.parameter_names), self.predictions
        if not len(self._at):  # a model is not asked for derivatives to nothing
            mod = predictions.values(of_model)
            return mod, np.zeros((len(mod), n_par)), np.zeros((n, n_par))
        mod, slopes = predictions.with_slopes(of_model, self.is_sparse)
        compared = predictions.scaled_slopes(mod[:n], slopes[:n], of_model)
        return mod, columns_at(slopes, self._at, n_par), columns_at(compared, self._at, n_par)

    def _failure(self, i: int, theta: Vector, what: str) -> SimulationError:
        """Return the error of a reading that will not do; `what` is wrong, {} stands for the reading."""
        c = self._compared
        x = None if c.x_name is None else float(c.x[i])
        where = "" if x is None else f" at {c.x_name} = {x:g}"
        return SimulationError(
            f"{what.format(repr(c.names[i]) + where)}.",
            parameters=dict(zip(self.parameter_names, map(float, theta), strict=True)),
            time=x,
        )


class BoundNoisy(BoundLikelihood):
    """Readings with normal errors, or Laplace's, of some perhaps a limit alone: what a `SimulationCost` makes of words.

    Of the errors of Laplace the spread is their scale; limits are of normal ones.
    """

    @cached_property
    def _own_log_slopes(self) -> Vector:
        return self._compared.own_log_slopes

    @cached_property
    def _own_log_slope(self) -> float:
        return float(self._own_log_slopes.sum())

    def log_density(self, obs: Vector, mod: Vector, spread: Any) -> Vector:
        """Return the log density of every reading; of one beyond a limit, how likely that is."""
        c = self._compared
        r = (mod - obs) / spread
        plain = -0.5 * (r * r + np.log(2 * np.pi))
        if c.laplace is not None:
            plain = np.where(c.laplace, -np.log(2.0) - np.abs(r), plain)
        plain = plain - np.log(spread) + self._own_log_slopes
        return plain if c.marks is None else np.where(c.marks == 0, plain, log_probability(c.marks * r))

    def slopes(self, obs: Vector, mod: Vector, spread: Any) -> tuple[Vector, Vector | None]:
        """Return the derivatives of the log density to mod, and to the spread; those of |r| at zero are zero."""
        r, direct, marks, laplace = (mod - obs) / spread, 1 / spread, self._compared.marks, self._compared.laplace
        res = r if marks is None else residuals_of_marked(r, marks)
        res = res if laplace is None else np.where(laplace, np.sign(r), res)
        return -res / spread, res * r / spread - (direct if marks is None else np.where(marks == 0, direct, 0.0))

    def informations(self, mod: Vector, spread: Any) -> tuple[Vector, Vector | None]:
        """Return the expected squares of the slopes, of plain readings."""
        laplace = self._compared.laplace
        return spread**-2.0, (2 if laplace is None else np.where(laplace, 1.0, 2.0)) * spread**-2.0

    def draw(self, mod: Vector, spread: Any, rng: np.random.Generator) -> Vector:
        """Return readings with such errors."""
        errors, laplace = rng.standard_normal(len(mod)), self._compared.laplace
        if laplace is not None:
            errors = np.where(laplace, rng.laplace(size=len(mod)), errors)
        return np.asarray(mod + spread * errors)

    def _rows(self, theta: Vector) -> tuple[Any, Any]:
        marks = self._compared.marks
        if marks is None:
            return super()._rows(theta)
        d, plain = self._at_theta(theta), np.flatnonzero(marks == 0)
        assert d.s is not None, "readings beyond a limit have noise"
        r = (d.mod - self._compared.obs) / d.s
        size, turn = 1 / d.s, np.zeros(self.nobs)
        b = marks != 0
        size[b] *= np.sqrt(steepness(r[b], marks[b]))
        turn[b] = r[b]
        rows = scaled_rows(d.dmod, size) - scaled_rows(d.ds, size * turn)
        return plain, stacked([rows, scaled_rows(d.ds[plain], np.sqrt(2) / d.s[plain])])

    def _minus2loglik(self, mod: Vector, s: Vector | None, theta: Vector) -> float:
        if self._compared.laplace is not None:
            return super()._minus2loglik(mod, s, theta)
        assert s is not None, "normal errors have sds"
        r, marks, own = (mod - self._compared.obs) / s, self._compared.marks, 2 * self._own_log_slope
        if marks is not None:
            return minus2loglik_of_marked(r, s, marks) - own
        with np.errstate(over="ignore"):  # residuals beyond 1e154: infinite, and told as such
            return float(r @ r + 2 * np.log(s).sum() + self.nobs * np.log(2 * np.pi)) - own

    def _in_units_of_sd(self, mod: Vector, s: Vector | None, theta: Vector) -> tuple[Vector, Vector]:
        if self._compared.laplace is not None:
            return super()._in_units_of_sd(mod, s, theta)
        assert s is not None, "normal errors have sds"
        return 1 / s, np.full(len(s), np.nan)


# --- from a cost


def bound_with_noise(parts: Sequence[Any], names: Sequence[str], **words: Any) -> BoundLikelihood:
    """Return simulation costs of one model, of which some have words of noise, as a function of a plain vector.

    Parameters
    ----------
    parts : sequence of SimulationCost
        One, where it is of several experiments.
    names : sequence of str
        The parameters of theta.
    **words
        Of the model's ``bind``.

    Raises
    ------
    ArgumentError
        A part without words of noise, of whose errors nothing is known.
    """
    pieces = [part.comparison for part in parts]
    starts = np.cumsum([0, *map(len, pieces)])
    first_further = int(starts[-1])
    behind, noises = [], []
    for part, first in zip(parts, starts, strict=False):
        c, noise = part.comparison, _noise_of(part)
        if noise is None:
            continue
        rows = noise.of_rows(c, int(first), first_further)
        noises.append(NoiseModel(rows, noise.names, _parameters_of(part, noise.names, names)))
        further, at = noise.further(c)
        first_further += len(further)
        if further:
            behind.append(part.places.elsewhere(further, at))
    places = [*(part.places for part in parts), *behind]
    predictions = predictions_of_parts(parts, places, names, **words)
    noisy = [part for part in parts if part.noise is not None]
    otherwise = {k for part in noisy for k in part.noise.names if k not in part.noise.scales}
    scales = {k for part in noisy for k in part.scales} - otherwise
    theta0 = {n: float(next(p.parms[n] for p in parts if n in p.parms.index)) for n in names}
    return (parts[0].own_likelihood or BoundNoisy)(predictions, pieces, noises, theta0, scales)


def _noise_of(part: Any) -> MeasurementNoise | None:
    """Return the noise of a cost; of one without words of it the errors of its table; a likelihood may need none."""
    if part.noise is not None:
        noise: MeasurementNoise = part.noise
        return noise
    if (unknown := errors_unknown(part.comparison)) is not None:
        if part.own_likelihood is not None:
            return None
        raise unknown
    return MeasurementNoise(dict.fromkeys(part.comparison.group_names, symbol(ERR)), (), {}, (), (), {}, {})


def _parameters_of(part: Any, wanted: Sequence[str], names: Sequence[str]) -> NoiseParameters:
    """Return where the parameters of a cost's noise come from; by reading, where they differ."""
    parameters, case_of = part.cases.parameters, part.cases.case_of
    of_case = parameters.take[:, [parameters.full_names.index(k) for k in wanted]]
    take = of_case[case_of] if case_of.any() else of_case[0]
    return NoiseParameters(parameters.values, list(parameters.parms.index), take, names)
