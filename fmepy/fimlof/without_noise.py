"""Without process noise, from a known start: the filter's path is one run of the model.

Then P = 0 and K = 0 for ever, the innovations are the residuals of a simulation, and S = R::

    delta(n) = z(n) - h(x(t_n))         S(n) = R(n)        C(n) C(n)' = R(n),  C lower
    nu = diag(C) C^-1 delta             s = diag(C)^2

and with S_x = dx/dtheta from the model's own sensitivities::

    d delta = - H S_x - dh/dtheta       d R = dR/dx S_x + dR/dtheta

so a value costs one run and a score one run with sensitivities, exact where the model's are. Of correlated errors nu
and s are differenced along d delta and d R, to about 1e-10. An sd of the process that is zero
but may be estimated needs the filter, whose likelihood depends on its square.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from fmepy.costs.by_entity import predictions_by_entity
from fmepy.costs.interpolation import Places
from fmepy.costs.likelihood_cost import BoundLikelihood
from fmepy.costs.noise import ERR
from fmepy.costs.noise_model import MeasurementNoise, NoiseModel, NoiseParameters
from fmepy.costs.observations import Comparison
from fmepy.filtering.likelihood import Likelihood, likelihood_of_innovations
from fmepy.filtering.loop_arguments import VARIANCE_NOT_POSITIVE, PassRecord
from fmepy.filtering.run import Pass
from fmepy.filtering.schedule import Schedule
from fmepy.filtering.smoothing import error_covariance
from fmepy.fimlof.bound_filter import STEP, BoundFilter, broken
from fmepy.fimlof.data import compared_readings
from fmepy.fimlof.filter_model import Specification
from fmepy.language.equations import names_in, symbol
from fmepy.numerics.differences import central_differences
from fmepy.numerics.sparse import dense
from fmepy.types import Matrix, Vector

if TYPE_CHECKING:
    from fmepy.fimlof.cost import FimlofCost


class SimulatedLikelihoods(BoundLikelihood):
    """The likelihoods of all entities, by runs of the model: predictions and sds are those of a cost with noise.

    Parameters
    ----------
    cost : FimlofCost
    schedules : sequence of Schedule
        By entity.
    names : tuple of str
        What theta holds.
    **words
        Of the models' ``bind``.
    """

    def __init__(self, cost: FimlofCost, schedules: Sequence[Schedule], names: tuple[str, ...], **words: Any) -> None:
        spec, parameters, kind = cost.specification, cost.cases.parameters, cost.cases.apart[1]
        self._spec, self._models, self._kind, self._filter = spec, cost.models, kind, BoundFilter(spec)
        known = list(map(str, parameters.parms.index))
        self._of_whole = parameters
        self._labels, self._schedules = [e.label for e in cost.entities], schedules
        self._readings = [one.readings for one in schedules]
        ends = np.cumsum([0, *map(len, self._readings)])
        self._entities = [slice(a, b) for a, b in pairwise(ends.tolist())]
        entity, c = np.repeat(np.arange(len(schedules)), np.diff(ends)), compared_readings(spec, self._readings)
        noise, columns = _noise(spec, c, schedules), [spec.parameters.index(k) for k in _parameters_of_noise(spec)]
        places = Places(c.names, c.x, runs=kind[entity])
        further, rows = noise.further(c)
        behind = [places.elsewhere(further, rows)] if further else []
        predictions = predictions_by_entity(cost.models, [places, *behind], c, names, **words)
        of_rows = NoiseParameters(parameters.values, known, parameters.take[:, columns][entity], names)
        of_errors = NoiseModel(noise.of_rows(c, 0, len(c)), noise.names, of_rows)
        super().__init__(predictions, [c], [of_errors], {n: float(parameters.parms[n]) for n in names}, ())

    def _sds(self, mod: Vector, theta: Vector) -> Vector:
        """Return the sds of the errors, with any sign: a filter sees their squares, and tells of zeros itself."""
        return self._noises[0].sds(mod, theta)

    def likelihoods(self, theta: Vector) -> list[Likelihood]:
        """Return the likelihood of every entity."""
        return [self._likelihood(k, theta, *own) for k, own in enumerate(self._innovations(theta))]

    def likelihoods_with_slopes(self, theta: Vector) -> list[tuple[Likelihood, Matrix, Matrix]]:
        """Return of every entity the likelihood, and d nu, d s to theta, shape (n_obs, n_par)."""
        d, out = self._at_theta(theta), []
        dmod, ds, errors = dense(d.dmod), dense(d.ds), d.s
        assert errors is not None, "the noise is said"
        for k, rows in enumerate(self._entities):
            own = self._compared.obs[rows] - d.mod[rows], errors[rows]
            out.append((self._likelihood(k, theta, *own), *self._slopes(k, theta, *own, -dmod[rows], ds[rows])))
        return out

    def recorded(self, k: int, theta: Vector, schedule: Schedule) -> Pass:
        """Return the pass of a filter along a run, of which nobody knows how its states come from each other.

        The states are the columns of the run's table; their covariances are zero, and so are the readings' slopes.
        """
        Y = self._models[self._kind[k]].bind(self.parameter_names, times=schedule.times).simulate(theta)
        delta, errors = self._innovations(theta)[k]
        likelihood, n = self._likelihood(k, theta, delta, errors), Y.shape[1]
        nothing, still = np.zeros((len(Y), n, n)), np.broadcast_to(np.eye(n), (len(Y), n, n))
        z, gradients = self._readings[k].values - delta, np.zeros((len(delta), n))
        record = PassRecord(Y, nothing, Y, nothing, still, z, gradients, np.abs(errors), np.zeros((0, 0)))
        return Pass(likelihood.nu, likelihood.s, np.empty((len(delta), 0)), -1, 0, 0, record)

    # ---

    def _innovations(self, theta: Vector) -> list[tuple[Vector, Any]]:
        """Return by entity readings less predictions, on the scale of comparison, and the sds of their errors."""
        mod, errors = self._of_predictions(self.predictions.values(theta), theta)
        assert errors is not None, "the noise is said"
        return [(self._compared.obs[rows] - mod[rows], errors[rows]) for rows in self._entities]

    def _parameters(self, k: int, theta: Vector) -> Vector:
        return self._of_whole.map(k, self.parameter_names, self._spec.parameters).full(theta)

    def _likelihood(self, k: int, theta: Vector, delta: Vector, errors: Vector) -> Likelihood:
        """Return the likelihood of an entity."""
        if self._spec.errors.covariance is None:
            nu, s = delta, errors * errors
        else:
            nu, s = self._conditional(k, theta, delta, errors)
        self._check(k, theta, s)
        return likelihood_of_innovations(nu, s, marks=self._readings[k].marks)

    def _conditional(self, k: int, theta: Vector, delta: Vector, errors: Vector) -> tuple[Vector, Vector]:
        """Return innovations given those before them in their sample, and variances: errors are correlated."""
        correlation, r = self._filter.correlation(self._parameters(k, theta)), self._readings[k]
        nu, s = np.full((2, len(r)), np.nan)
        for rows in np.split(np.arange(len(r)), np.flatnonzero(np.diff(r.times)) + 1):
            with contextlib.suppress(np.linalg.LinAlgError):
                C = np.linalg.cholesky(error_covariance(errors[rows], correlation, r.variables[rows]))
                nu[rows], s[rows] = np.diag(C) * np.linalg.solve(C, delta[rows]), np.diag(C) ** 2
        return nu, s

    def _slopes(
        self, k: int, theta: Vector, delta: Vector, errors: Vector, d_delta: Matrix, d_errors: Matrix
    ) -> tuple[Matrix, Matrix]:
        """Return d nu and d s of an entity."""
        if self._spec.errors.covariance is None:
            return d_delta, 2 * errors[:, None] * d_errors

        def along(moved: Vector) -> Matrix:
            away = moved - theta
            return np.array(self._conditional(k, moved, delta + d_delta @ away, errors + d_errors @ away))

        size = np.maximum(np.abs(theta), 1e-3 * np.abs(self.theta0))
        d_nu, d_s = central_differences(along, theta, STEP * np.where(size > 0, size, 1e-3))
        return d_nu, d_s

    def _check(self, k: int, theta: Vector, s: Vector) -> None:
        """Refuse variances that are not positive, as the filter does."""
        bad = np.flatnonzero(~((s > 0) & (s < np.inf)))
        if len(bad):
            row, schedule = int(bad[0]), self._schedules[k]
            place = int(schedule.nodes_of_rows[row]), VARIANCE_NOT_POSITIVE, row
            run = Pass(s, s, np.empty((len(s), 0)), *place, None)
            raise broken(self._spec, self._labels[k], run, schedule, self._parameters(k, theta))


def _parameters_of_noise(spec: Specification) -> tuple[str, ...]:
    used = names_in(spec.space.sds)
    return tuple(k for k in spec.parameters if k in used)


def _noise(spec: Specification, c: Comparison, schedules: Sequence[Schedule]) -> MeasurementNoise:
    """Return the sds of the errors, of which each datum's own is a factor."""
    inputs = np.concatenate([one.inputs[one.nodes_of_rows] for one in schedules])
    sds = {v: sd * symbol(ERR) for v, sd in zip(spec.variables, spec.space.sds, strict=True)}
    columns = set(map(str, spec.model.var_names)) - set(spec.parameters)
    others = {v: tuple(sorted((names_in([sd]) & columns) - {v})) for v, sd in sds.items()}
    known = {spec.space.time: c.x, **dict(zip(spec.space.forcings, inputs.T, strict=True))}
    return MeasurementNoise(sds, _parameters_of_noise(spec), {}, (), (), others, known)
