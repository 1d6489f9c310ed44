"""A `FimlofCost` as a function of a plain vector: -2 log L, score, expected information.

Derivatives of innovations and their variances go along with a pass of the filter where that is the plain one
(`filtering.tangents`); else they are central differences of whole passes: generic for every kind of propagation and
update. Both do without second derivatives of the model, and are accurate to about 1e-8. Far from the
maximum, where a search only needs a direction, forward differences do (about 1e-5, half the passes). An sd may be moved
below zero for that: a filter sees its square.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fmepy.costs.base import KnownData, OfData
from fmepy.errors import SimulationError
from fmepy.filtering.likelihood import (
    Likelihood,
    expected_information,
    information_rows,
    likelihood_of,
    likelihood_of_innovations,
    movement,
    pass_with_estimated_start,
    predictive_log_densities,
    score_of,
    score_rows,
)
from fmepy.filtering.loop import TangentArguments
from fmepy.filtering.run import Pass, innovation_slopes, run_filter, run_with_slopes
from fmepy.filtering.schedule import FilterReadings, Schedule
from fmepy.fimlof.bound_filter import (
    ROUGH_STEP,
    STEP,
    BoundFilter,
    broken,
    points_of_differences,
    schedule_of,
    undetermined,
)
from fmepy.fimlof.data import EntityRun, compared_readings, effective_readings
from fmepy.fimlof.filter_model import Specification, is_one_run, uses_errors, with_inputs
from fmepy.fimlof.side_steps import rows_of_path, rows_until, with_side_paths
from fmepy.numerics.differences import replaced
from fmepy.numerics.tails import residuals_of_marked
from fmepy.parameters.names import as_theta
from fmepy.types import BoolVector, IntVector, Matrix, Vector

if TYPE_CHECKING:
    from fmepy.fimlof.cost import FimlofCost
    from fmepy.fimlof.without_noise import SimulatedLikelihoods

ADAPTIVE_STEP, ROUGH_ADAPTIVE_STEP = 1e-3, 1e-4
"""As STEP and ROUGH_STEP, where an adaptive solver ran at 1e-8."""
_STEPS = ((STEP, ROUGH_STEP), (ADAPTIVE_STEP, ROUGH_ADAPTIVE_STEP))
_MOVED, _MOVED_ADAPTIVE = 1e-9, 1e-5
"""Movements of innovations, in their sds, of which differences can be taken."""


class BoundFimlof(OfData):
    """A likelihood by filtering as a function of a plain vector; see `fmepy.costs.base.BoundCost`.

    Attributes
    ----------
    parameter_names, theta0, lower, upper, is_scalar, has_jacobian, data
        As in `BoundCost`; there are no residuals, so the data are empty, but for which they are.
    scale_parameters : ndarray of bool, shape (n_par,)
        Parameters that scale sds of noise and do nothing else: a search moves their logarithms.
    schedules : list of (Schedule, Readings or None)
        By entity what the filter follows, and the data that its start uses up.
    nobs : int
        Scalar data that count.
    """

    def __init__(self, cost: FimlofCost, names: tuple[str, ...], **words: Any) -> None:
        spec, experiments, models = cost.specification, cost.cases, cost.models
        self.spec, self.entities, self.parameter_names = spec, cost.entities, names
        parameters, (_, self._kind) = experiments.parameters, experiments.apart
        self._values = parameters.values
        self._at: IntVector = parameters.parms.index.get_indexer(pd.Index(names))
        self.theta0: Vector = self._values[self._at]
        self.lower, self.upper = (ends.to_numpy(dtype=float)[self._at] for ends in (cost.lower, cost.upper))
        self.is_scalar, self.has_jacobian = True, False
        self._take = list(parameters.take[: len(self.entities)])  # behind them, rows that others start from
        start_from = [k if start is None else start for k, start in enumerate(experiments.starts)]
        self._concern = [{*own, *parameters.take[k]} for own, k in zip(self._take, start_from, strict=True)]
        scales = cost.scales
        self.scale_parameters: BoolVector = np.array([name in scales for name in names], dtype=bool)
        one, each = BoundFilter(spec), experiments.distinct
        self._filters = [BoundFilter(with_inputs(spec, m.beneath)) if each else one for m in models]
        self._steady = [m.at_rest(names, hold_engine=words.get("hold_engine", False)) for m in models]
        self.schedules: list[tuple[Schedule, FilterReadings | None]] = [
            schedule_of(self.filter_of(k).spec, effective_readings(uses_errors(spec), e))
            for k, e in enumerate(self.entities)
        ]
        self.nobs = sum(len(schedule.readings) for schedule, _ in self.schedules) - len(spec.free_states) * len(
            self.entities
        )
        self._iterates = bool(spec.free_states) and not spec.space.is_linear
        self._last: tuple[bytes, list[Likelihood]] | None = None
        self._derived: tuple[tuple[bytes, bool], list[Likelihood], list[tuple[Matrix, Matrix, Vector]]] | None = None
        self._inflation = 1.0
        self._runs = self._as_runs(cost, words)
        self.keep_within(self.lower, self.upper)

    def keep_within(self, lower: Vector, upper: Vector) -> None:
        """Keep differences inside these bounds; an sd may pass zero, since the filter sees its square."""
        self._box = (np.where(self.scale_parameters & (lower == 0), -np.inf, lower), upper)
        for part in (self._runs, *self._steady):
            if part is not None:
                part.keep_within(lower, upper)

    def _as_runs(self, cost: FimlofCost, words: dict[str, Any]) -> SimulatedLikelihoods | None:
        """Return the likelihood by runs of the model, None where only a filter can compute it."""
        moves = {i for i in self._at.tolist()}
        of_entities = [[t[j] for t in self._take] for j in range(len(self.spec.parameters))]
        fixed = {
            name: float(self._values[at[0]])
            for name, at in zip(self.spec.parameters, of_entities, strict=True)
            if not moves & set(at) and len(set(self._values[at])) == 1
        }
        if not is_one_run(self.spec, fixed):
            return None
        from fmepy.fimlof.without_noise import SimulatedLikelihoods

        return SimulatedLikelihoods(cost, [schedule for schedule, _ in self.schedules], self.parameter_names, **words)

    @property
    def retries(self) -> int:
        """Runs of the model that a second engine finished; a filter has none but for a start at rest."""
        return sum(part.retries for part in (self._runs, *self._steady) if part is not None)

    @property
    def exact(self) -> bool:
        """Whether scores are exact: of sensitivities of the model, or of filters of which nothing is differenced."""
        parts = dict.fromkeys(self._filters) if self._runs is None else [self._runs]
        return all(part.exact for part in parts)

    @cached_property
    def data(self) -> KnownData:
        """The data that count, in their own units; there are no residuals."""
        counted = [schedule.readings for schedule, _ in self.schedules]
        return KnownData.of_number(compared_readings(self.spec, counted).observed)

    def inflated(self, factor: float) -> BoundFimlof | None:
        """Return the same with all sds of the process noise times `factor`; None if there is no process noise.

        The filter then follows the data, and the likelihood is smooth far from its maximum: where a search may begin.
        """
        if not self.spec.space.has_noise or self._runs is not None:
            return None
        out = self._copy()
        out._inflation = factor
        return out

    def with_values(self, values: Vector) -> BoundFimlof:
        """Return the same of other readings, on the scale of comparison, entity by entity in order of time."""
        out, at = self._copy(), np.cumsum([len(schedule.readings) for schedule, _ in self.schedules])[:-1]
        out.schedules = [
            (replace(schedule, readings=replace(schedule.readings, values=np.ascontiguousarray(own))), used)
            for (schedule, used), own in zip(self.schedules, np.split(values, at), strict=True)
        ]
        if not self.spec.definition.is_closed:
            out._runs = None  # which have the cost's own data
        return out

    def tightened(self) -> BoundFimlof | None:
        """Return the same at smaller tolerances, None where no solver has any; see `fmepy.models.base.tightened`."""
        runs = None if self._runs is None else self._runs.tightened()
        steady = [r if r is None else r.tightened() or r for r in self._steady]
        if runs is None and (self._runs is not None or not (self.spec.uses_solver or any(steady))):
            return None
        out = self._copy()
        out._runs, out._steady = runs, steady
        tight = {id(f): f.tightened() for f in self._filters}
        out._filters = [tight[id(f)] for f in self._filters]
        return out

    def _copy(self) -> BoundFimlof:
        """Return a copy without stored evaluations."""
        out = copy(self)
        out._derived, out._last = None, None
        return out

    def minus2loglik(self, theta: Vector) -> float:
        """Return -2 log L; raise SimulationError where the filter breaks down."""
        found = self.likelihoods(theta)
        total = float(sum(one.loglik for one in found))
        if not np.isfinite(total):
            worst = min(found, key=lambda one: one.loglik)
            raise SimulationError(undetermined(self.spec, worst))
        return -2.0 * total

    def likelihoods(self, theta: Vector) -> list[Likelihood]:
        """Return the likelihood of every entity."""
        key, last = as_theta(theta, self.parameter_names).tobytes(), self._last  # another thread may write it meanwhile
        if last is None or last[0] != key:
            values = self._full(theta)
            if self._runs is not None:
                found = self._runs.likelihoods(np.asarray(theta, dtype=float))
            else:
                found = [self._likelihood(k, values) for k in range(len(self.entities))]
            last = self._last = (key, found)
        return last[1]

    def score(self, theta: Vector, rough: bool = False) -> Vector:
        """Return d log L / d theta, shape (n_par,); `rough`: by forward differences."""
        likelihoods, slopes = self._derivatives(theta, rough)
        total = np.zeros(len(self._at))
        for one, (nu, s, extra) in zip(likelihoods, slopes, strict=True):
            total += score_of(one, nu, s) + extra
        return total

    def information(self, theta: Vector, rough: bool = False) -> Matrix:
        """Return the expected information of theta, shape (n_par, n_par); `rough`: by forward differences."""
        likelihoods, slopes = self._derivatives(theta, rough)
        p = len(self._at)
        return np.asarray(
            sum((expected_information(a, nu, s) for a, (nu, s, _) in zip(likelihoods, slopes, strict=True)),
                np.zeros((p, p)))
        )  # fmt: skip

    def sample_scores(self, theta: Vector) -> Matrix:
        """Return the score of every sample (entity and time), shape (n_sample, n_par)."""
        likelihoods, slopes = self._derivatives(theta)
        out = []
        for one, (nu, s, _), (schedule, _) in zip(likelihoods, slopes, self.schedules, strict=True):
            of_row = score_rows(one, nu, s)
            nodes = schedule.nodes_of_rows
            sums = np.zeros((len(schedule.times), of_row.shape[1]))
            np.add.at(sums, nodes, of_row)
            out.append(sums[np.unique(nodes)])
        return np.concatenate(out)

    def sensitivity_rows(self, theta: Vector) -> tuple[list[str], Vector, Matrix]:
        """Return variable, time and row of every datum's nu_ij / sqrt(s), then of every datum's s_ij / (sqrt(2) s).

        S'S of the rows, shape (2 n_obs, n_par), is the expected information.
        """
        likelihoods, slopes = self._derivatives(theta)
        pairs = [information_rows(one, nu, s) for one, (nu, s, _) in zip(likelihoods, slopes, strict=True)]
        names = [self.spec.variables[i] for schedule, _ in self.schedules for i in schedule.readings.variables]
        x = np.concatenate([schedule.readings.times for schedule, _ in self.schedules])
        return 2 * names, np.tile(x, 2), np.concatenate([pair[k] for k in (0, 1) for pair in pairs])

    def standardised(self, theta: Vector) -> tuple[list[str], Vector]:
        """Return variable and residual of every datum, minus its innovation in units of its sd, entity by entity.

        Of a limit it is the generalised one of `fmepy.numerics.tails`.
        """
        names = [self.spec.variables[i] for schedule, _ in self.schedules for i in schedule.readings.variables]
        residuals = np.concatenate([-one.nu / np.sqrt(one.s) for one in self.likelihoods(theta)])
        return names, residuals_of_marked(residuals, self._marks)

    @property
    def _marks(self) -> IntVector:
        return np.concatenate([schedule.readings.all_marks for schedule, _ in self.schedules])

    def log_densities(self, theta: Vector) -> Vector:
        """Return the log density of every datum given those before it, entity by entity, in the data's own units.

        Data that a diffuse start uses up have none.
        """
        if self._runs is not None:
            pairs = [(one.nu, one.s, np.empty((len(one.nu), 0))) for one in self.likelihoods(theta)]
        else:
            pairs = [(run.nu, run.s, run.v) for run, likelihood in self.passes(theta) if likelihood is not None]
        marks = [schedule.readings.marks for schedule, _ in self.schedules]
        found = [predictive_log_densities(*pair, own) for pair, own in zip(pairs, marks, strict=True)]
        assert self.data.observed is not None, "they are known"
        ends = np.cumsum([len(schedule.readings) for schedule, _ in self.schedules])[:-1]
        slopes = np.split(np.where(self._marks == 0, self.data.observed.log_slopes, 0.0), ends)
        return np.concatenate([own + s[len(s) - len(own) :] for own, s in zip(found, slopes, strict=True)])

    def passes(self, theta: Vector, record: bool = False) -> list[tuple[Pass, Likelihood | None]]:
        """Return the passes of all entities, with their likelihoods (None where one broke down)."""
        values = self._full(theta)
        return [self._pass(k, values, record) for k in range(len(self.entities))]

    def records(
        self, theta: Vector, labels: Sequence[Any] | None = None, further: Vector | None = None
    ) -> list[EntityRun]:
        """Return the recorded passes of entities, at the rows of their tables and at the model's times until the last.

        labels : sequence, optional
            Those entities only.
        further : ndarray, optional
            Times besides, from the start of an entity's filter on.
        """
        values = self._full(np.asarray(theta, dtype=float))
        wanted = [k for k, e in enumerate(self.entities) if labels is None or e.label in labels]
        return [self._recorded(k, values, np.empty(0) if further is None else further) for k in wanted]

    def nonlinearity(self, theta: Vector, labels: Sequence[Any] | None = None) -> pd.DataFrame:
        """Return how far the linearisation can be trusted, by state, see `fmepy.fimlof.nonlinearity`.

        labels : sequence, optional
            Those entities only. Several entities are named in a first column.
        """
        from fmepy.fimlof.nonlinearity import nonlinearity

        values = self._full(np.asarray(theta, dtype=float))
        tables = []
        for k, entity in enumerate(self.entities):
            if labels is not None and entity.label not in labels:
                continue
            run, _ = self._pass(k, values, record=True)
            if run.node >= 0:
                raise broken(self.spec, entity.label, run, self.schedules[k][0], values[self._take[k]])
            table = nonlinearity(self.filter_of(k), self.schedules[k][0], run, values[self._take[k]])
            if entity.label is not None:
                table.insert(0, "entity", entity.label)
            tables.append(table)
        return pd.concat(tables)

    def filter_of(self, k: int) -> BoundFilter:
        """Return the filter of entity k."""
        own: BoundFilter = self._filters[self._kind[k]]
        return own

    def spec_of(self, label: Any) -> Specification:
        """Return the specification of an entity, with its own events and forcings."""
        return self.filter_of([e.label for e in self.entities].index(label)).spec

    def steady_start(self, k: int, theta: Vector) -> Vector | None:
        """Return the initial values of entity k if it starts from the steady state of another row."""
        steady = self._steady[self._kind[k]]
        return None if steady is None else steady.at(np.asarray(theta, dtype=float))

    def parameters_of(self, k: int, theta: Vector) -> Vector:
        """Return the parameters of entity k, in the order of the specification."""
        out: Vector = self._full(theta)[self._take[k]]
        return out

    # ---

    def _recorded(self, k: int, values: Vector, further: Vector) -> EntityRun:
        entity, bound_filter = self.entities[k], self.filter_of(k)
        spec = bound_filter.spec
        readings = effective_readings(uses_errors(spec), entity)
        wanted = np.union1d(entity.wanted, np.setdiff1d(further, readings.times))
        rows, aside = rows_of_path(self.spec, self.schedules[k][0], rows_until(spec.grid, readings.times, wanted))
        schedule, used = schedule_of(spec, readings, rows)
        p = values[self._take[k]]
        run, likelihood, failure, correlation = None, None, None, np.empty((0, 0))
        try:
            correlation = bound_filter.correlation(p)
            with np.errstate(over="ignore", invalid="ignore"):
                run, likelihood = self._pass(k, values, record=True, scheduled=(schedule, used))
            if likelihood is None:
                failure = str(broken(spec, entity.label, run, schedule, p))
            elif not np.isfinite(likelihood.loglik):
                failure = undetermined(spec, likelihood)
            if len(aside) and likelihood is not None:
                schedule, run = with_side_paths(bound_filter, schedule, run, p, aside)
        except SimulationError as error:
            failure = str(error)
        log_jacobian = compared_readings(spec, [schedule.readings]).observed.log_jacobian
        return EntityRun(entity.label, p, schedule, used, run, likelihood, correlation, failure, log_jacobian)

    def _full(self, theta: Vector) -> Vector:
        values = self._values.copy()
        values[self._at] = as_theta(theta, self.parameter_names)
        return values

    def _likelihood(self, k: int, values: Vector, states: Vector | None = None) -> Likelihood:
        run, likelihood = self._pass(k, values, states=states)
        if likelihood is None:
            raise broken(self.spec, self.entities[k].label, run, self.schedules[k][0], values[self._take[k]])
        return likelihood

    def _pass(
        self,
        k: int,
        values: Vector,
        record: bool = False,
        scheduled: tuple[Schedule, FilterReadings | None] | None = None,
        states: Vector | None = None,
    ) -> tuple[Pass, Likelihood | None]:
        """Run the filter of one entity; if its start is unknown and the model not linear, until the start settles.

        states : ndarray, optional
            Its initial values, where they are not those that the model gives; of a start at rest they are found.
        """
        schedule, used = self.schedules[k] if scheduled is None else scheduled
        p = values[self._take[k]]
        if self._runs is not None and self.spec.definition.is_closed:
            run = self._runs.recorded(k, values[self._at], schedule)
            return run, likelihood_of(run, schedule.readings.marks)
        bound_filter = self.filter_of(k)
        states = self.steady_start(k, values[self._at]) if states is None else states
        inputs = bound_filter.inputs(p, self._inflation)

        def at(shift: Vector) -> tuple[Pass, Likelihood | None]:
            start = bound_filter.start(p, used, schedule, states=states, shift=shift)
            run = run_filter(bound_filter.scheme, schedule, start, inputs, record)
            return run, None if run.node >= 0 else likelihood_of(run, schedule.readings.marks)

        first = np.zeros(len(self.spec.free_states))
        return pass_with_estimated_start(at, first) if self._iterates else at(first)

    def _derivatives(
        self, theta: Vector, rough: bool = False
    ) -> tuple[list[Likelihood], list[tuple[Matrix, Matrix, Vector]]]:
        """Return likelihoods at theta, and by entity dnu, ds, shape (n_obs, n_par), and the rest of the score."""
        theta = as_theta(theta, self.parameter_names)
        rough = rough and not self.exact
        key, derived = (theta.tobytes(), rough and self._runs is None), self._derived
        if derived is not None and derived[0] == key:
            return derived[1], derived[2]
        if self._runs is not None:
            none, made = np.zeros(len(theta)), self._runs.likelihoods_with_slopes(theta)
            base, slopes = [one for one, _, _ in made], [(nu, s, none) for _, nu, s in made]
            self._derived = (key, base, slopes)
            return base, slopes
        base, slopes, p = list[Likelihood](), list[tuple[Matrix, Matrix, Vector]](), len(theta)
        tangents = [self._tangent_passes(theta, k, rough) for k in range(len(self.entities))]
        run_with_slopes([one for _, passes in tangents for one in passes])
        for k, (moved, passes) in enumerate(tangents):
            found = innovation_slopes(passes) if passes else None
            if found is None:
                moved, one = [], self.likelihoods(theta)[k]
            else:
                one = likelihood_of_innovations(*found[:2], marks=self.schedules[k][0].readings.marks)
            nu, s, extra = np.zeros((len(one.nu), p)), np.zeros((len(one.nu), p)), np.zeros(p)
            base.append(one)
            slopes.append((nu, s, extra))
            if found is not None:
                nu[:, moved], s[:, moved] = found[2:]
            for j in range(p):
                if not self._concerns(k, j) or j in moved:
                    continue
                ahead, behind, width = self._two_sides(theta, j, k, one, rough)
                nu[:, j] = (ahead.nu - behind.nu) / width
                s[:, j] = (ahead.s - behind.s) / width
                if self.spec.free_states:
                    of_data = score_of(one, nu[:, j : j + 1], s[:, j : j + 1])
                    extra[j] = (ahead.loglik - behind.loglik) / width - float(of_data[0])
        self._derived = (key, base, slopes)
        return base, slopes

    def _concerns(self, k: int, j: int) -> bool:
        """Tell whether parameter j is one of entity k's, or of the row in whose steady state it starts."""
        return self._at[j] in self._concern[k]

    def _tangent_passes(self, theta: Vector, k: int, rough: bool) -> tuple[list[int], list[TangentArguments]]:
        """Return the parameters whose derivatives an entity's pass can carry along, and these passes, to be run."""
        take, sides, at_rest = self._take[k], [], self._steady[self._kind[k]] is not None
        p = self._full(theta)[take]
        points = {} if self.spec.free_states else points_of_differences(theta, self.theta0, *self._box, rough)
        moved = [j for j in points if self._concerns(k, j)]
        for j in moved:
            both, of_j = [], take == self._at[j]
            for distance in points[j]:
                value = theta[j] + distance
                start = self._start_near(k, theta, replaced(theta, j, value)) if at_rest else None
                both.append((float(value - theta[j]), np.where(of_j, value, p), start))
            sides.append((both[0], both[1], of_j))
        states, own = self.steady_start(k, theta), self.filter_of(k)
        return moved, own.passes_with_slopes(*self.schedules[k], p, states, self._inflation, sides) or []

    def _start_near(self, k: int, theta: Vector, moved: Vector) -> Vector | None:
        steady = self._steady[self._kind[k]]
        return None if steady is None else steady.near(theta, moved)

    def _two_sides(
        self, theta: Vector, j: int, k: int, base: Likelihood, rough: bool
    ) -> tuple[Likelihood, Likelihood, float]:
        """Return an entity's likelihood ahead of theta_j and behind it, and their distance.

        A parameter without a typical size (its own value is zero) that has come close to zero gets wider steps until
        the innovations move by more than they are rounded.
        """
        adaptive = self.spec.propagation in ("ode", "moment")
        relative = _STEPS[adaptive][rough]
        size = max(abs(theta[j]), 1e-3 * abs(float(self.theta0[j])))
        h, enough = relative * (size if size > 0 else 1.0), _MOVED_ADAPTIVE if adaptive else _MOVED
        found = self._sides_at(theta, j, h, k, base, rough)
        while self.theta0[j] == 0 and h < 1e-3 * relative and movement(found[0], found[1], base) < enough:
            h *= 100.0
            found = self._sides_at(theta, j, h, k, base, rough)
        return found

    def _sides_at(
        self, theta: Vector, j: int, h: float, k: int, base: Likelihood, rough: bool
    ) -> tuple[Likelihood, Likelihood, float]:
        """Return the likelihoods h ahead and behind; at theta where one side fails, or `rough`."""
        h = min(h, 0.25 * float(self._box[1][j] - self._box[0][j]))
        if h == 0:  # held: it does not move
            return base, base, 1.0

        def at(distance: float) -> tuple[float, Likelihood]:
            moved = replaced(theta, j, theta[j] + distance)
            if self._box[0][j] <= moved[j] <= self._box[1][j]:
                with contextlib.suppress(SimulationError):
                    return moved[j], self._likelihood(k, self._full(moved), self._start_near(k, theta, moved))
            return theta[j], base

        up, ahead = at(h)
        down, behind = (theta[j], base) if rough and up != theta[j] else at(-h)
        if up == down:
            raise SimulationError(
                f"No derivative with respect to {self.parameter_names[j]!r}: the filter breaks down on both sides.",
                parameters=dict(zip(self.parameter_names, map(float, theta), strict=True)),
            )
        return ahead, behind, float(up - down)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_derived": None, "_last": None}
