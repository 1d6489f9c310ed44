"""Without process noise, from a known start: the filter's path is one run of the model.

Then P = 0 and K = 0 for ever, the innovations are the residuals of a simulation, and S = R::

    delta(n) = z(n) - h(x(t_n))         S(n) = R(n)        C(n) C(n)' = R(n),  C lower
    nu = diag(C) C^-1 delta             s = diag(C)^2

and with S_x = dx/dtheta from the model's own sensitivities::

    d delta = - H S_x - dh/dtheta       d R = dR/dx S_x + dR/dtheta
    d C = C Phi(C^-1 dR C^-T)           Phi: the lower triangle, its diagonal halved

so a value costs one run and a score one run with sensitivities, exact where the model's are. What is estimated is told
from what stays: an sd of the process that is zero, but may move, is looked at by the filter, whose likelihood knows its
variance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from functools import cached_property
from typing import Any

import numpy as np

from fmepy.compiled.python_code import array_function, scalar_function
from fmepy.errors import SimulationError
from fmepy.filtering.job import Record
from fmepy.filtering.likelihood import Likelihood, likelihood_of_innovations
from fmepy.filtering.run import Pass
from fmepy.filtering.schedule import Schedule
from fmepy.fimlof.specification import FIXED, Specification
from fmepy.language.derivatives import derivative
from fmepy.language.equations import symbol
from fmepy.language.nodes import ZERO
from fmepy.models.base import keep_within, tightened
from fmepy.models.entity import EntityModel
from fmepy.types import BoolVector, Cube, IntVector, Matrix, Vector


def is_one_run(spec: Specification, fixed: Mapping[str, float]) -> bool:
    """Tell whether the filter of a specification is a run of its model.

    Parameters
    ----------
    fixed : mapping
        Parameters that do not move, and their values.

    Notes
    -----
    Fixed steps are left to the filter: it ends one at every datum, and its loop is compiled. So are sums over time.
    """
    if spec.initial != "known" or spec.accumulators or spec.propagation in FIXED:
        return False
    if spec.propagation != "difference" and getattr(spec.model, "method", None) in FIXED:
        return False  # the filter's solver is better than the model's own steps
    values = {symbol(k): v for k, v in fixed.items()}
    entries = [e for noise in (spec.noise, spec.start)
               for e in (noise.covariance.entries if noise.covariance is not None else noise.sds)]  # fmt: skip
    return all(e.subs(values) is ZERO for e in entries)


class _Errors:
    """Variances of the errors of all variables along a path, and their derivatives.

    An sd is an expression of the columns of the model's table, of parameters, forcings and the time.
    """

    def __init__(self, spec: Specification, columns: Sequence[str]) -> None:
        space, own = spec.space, [symbol(k) for k in spec.parameters]
        groups = [[symbol(space.time)], [symbol(k) for k in columns], own, [symbol(k) for k in space.forcings]]
        sds = list(space.sds)
        self._of_column = [(v, j) for v, e in enumerate(sds) for j, s in enumerate(groups[1]) if s in e.free_symbols]
        self._of_parameter = [(v, i) for v, e in enumerate(sds) for i, s in enumerate(own) if s in e.free_symbols]
        slopes = [derivative(sds[v], groups[1][j]) for v, j in self._of_column]
        slopes += [derivative(sds[v], own[i]) for v, i in self._of_parameter]
        self._m = len(sds)
        self._values, self._slopes = array_function(groups, sds), array_function(groups, slopes)

    def sds(self, t: Vector, Y: Matrix, p: Vector, U: Matrix) -> Matrix:
        """Return the sd of a reading with error 1, shape (n_time, n_var)."""
        out = np.empty((len(t), self._m))
        for v, sd in enumerate(self._values((t,), list(Y.T), p.tolist(), list(U.T))):
            out[:, v] = sd
        return out

    def slopes(self, t: Vector, Y: Matrix, p: Vector, U: Matrix, dY: Cube, dp: Matrix) -> Cube:
        """Return d sd / d theta, shape (n_time, n_var, n_par).

        dY : ndarray, shape (n_time, n_column, n_par)
        dp : ndarray, shape (n_own, n_par)
            Of the entity's parameters.
        """
        out = np.zeros((len(t), self._m, dp.shape[1]))
        found = self._slopes((t,), list(Y.T), p.tolist(), list(U.T))
        for (v, j), slope in zip(self._of_column, found, strict=False):
            out[:, v] += np.asarray(slope)[..., None] * dY[:, j]
        for (v, i), slope in zip(self._of_parameter, found[len(self._of_column) :], strict=True):
            out[:, v] += np.asarray(slope)[..., None] * dp[i]
        return out


class _Together:
    """Covariances between the errors of different variables, and their derivatives: expressions of parameters."""

    def __init__(self, spec: Specification) -> None:
        covariance = spec.errors.covariance
        assert covariance is not None, "asked only where errors are correlated"
        own = [symbol(k) for k in spec.parameters]
        at = [spec.variables.index(k) for k in covariance.names]
        pairs = zip(*np.tril_indices(len(at)), covariance.entries, strict=True)
        entries = [(at[i], at[j], e) for i, j, e in pairs if i != j]
        self._m, self._at = len(spec.variables), [(a, b) for a, b, _ in entries]
        moved = [(a, b, i, derivative(e, s)) for a, b, e in entries for i, s in enumerate(own) if s in e.free_symbols]
        self._moved = [(a, b, i) for a, b, i, _ in moved]
        self._values = scalar_function([own], [e for _, _, e in entries])
        self._slopes = scalar_function([own], [e for *_, e in moved])

    def values(self, p: Vector) -> Matrix:
        """Return the covariances, shape (n_var, n_var), zero on the diagonal."""
        out = np.zeros((self._m, self._m))
        for (a, b), value in zip(self._at, self._values(p.tolist()), strict=True):
            out[a, b] = out[b, a] = value
        return out

    def slopes(self, p: Vector, dp: Matrix) -> Cube:
        """Return their derivatives, shape (n_var, n_var, n_par)."""
        out = np.zeros((self._m, self._m, dp.shape[1]))
        for (a, b, i), value in zip(self._moved, self._slopes(p.tolist()), strict=True):
            out[a, b] += value * dp[i]
            out[b, a] = out[a, b]
        return out


class _Entity:
    """What one entity's readings ask of a run."""

    def __init__(self, spec: Specification, label: Any, schedule: Schedule, columns: Sequence[str]) -> None:
        self.who = "" if label is None else f" of entity {label!r}"
        self.readings = r = schedule.readings
        self.times, self.at = np.unique(r.times, return_inverse=True)
        self.inputs = schedule.inputs[np.searchsorted(schedule.times, self.times)]
        self.columns: IntVector = np.array([columns.index(k) for k in spec.variables], dtype=np.intp)[r.variables]
        kinds = np.array([how or "" for how in spec.transforms], dtype=object)[r.variables]
        self.logs: BoolVector = kinds == "log"
        self.roots: BoolVector = kinds == "sqrt"
        self.samples = np.split(np.arange(len(r)), np.flatnonzero(np.diff(self.at)) + 1) if len(r) else []

    def compared(self, y: Vector) -> tuple[Vector, Vector]:
        """Return predictions on the scale of comparison, and what slopes are multiplied by."""
        z, factor = y.copy(), np.ones(len(y))
        with np.errstate(all="ignore"):
            z[self.logs], factor[self.logs] = np.log(y[self.logs]), 1 / y[self.logs]
            root = np.sqrt(y[self.roots])
            z[self.roots], factor[self.roots] = root, 0.5 / root
        return z, factor


class Runs:
    """The likelihoods of all entities, by runs of the model.

    Parameters
    ----------
    spec : Specification
    models : sequence of EntityModel
        One of every kind: entities of one kind share its runs.
    kind : ndarray of int, shape (n_entity,)
        Which of them every entity has.
    schedules : sequence of (label, Schedule)
        Of every entity; the label is None where there is but one.
    take : sequence of ndarray of int
        Positions of an entity's parameters among the cost's.
    at : ndarray of int, shape (n_par,)
        Positions of theta among the cost's parameters.
    names : tuple of str, length n_par
        The parameters of theta.
    **words
        Of the model's ``bind``.
    """

    def __init__(
        self,
        spec: Specification,
        models: Sequence[EntityModel],
        kind: IntVector,
        schedules: Sequence[tuple[Any, Schedule]],
        take: Sequence[IntVector],
        at: IntVector,
        names: tuple[str, ...],
        **words: Any,
    ) -> None:
        self._spec, self._take, self._models, self._kind, self._names = spec, take, models, kind, names
        columns = tuple(map(str, spec.model.var_names))
        self._entities = [_Entity(spec, label, schedule, columns) for label, schedule in schedules]
        self._bounds: list[Any] = []
        for i, model in enumerate(models):
            mine = [e.times for e, own in zip(self._entities, kind, strict=True) if own == i]
            times = np.unique(np.concatenate(mine))
            self._bounds.append(model.bind(names, times=times, **words) if len(times) else None)
        self._rows = [
            slice(0) if self._bounds[i] is None else np.searchsorted(self._bounds[i].times, e.times)
            for e, i in zip(self._entities, kind, strict=True)
        ]
        self._moved = [np.array(t[:, None] == at[None, :], dtype=float) for t in take]  # d p / d theta
        self._moves = bool({*models[0].parameters.moved_by(names)} & {*models[0].inner.parms.index})
        self._slopes: dict[int, tuple[bytes, Matrix, Cube]] = {}

    @property
    def retries(self) -> int:
        """Runs that a second engine finished."""
        return sum(int(bound.retries) for bound in self._bounds if bound is not None)

    def keep_within(self, lower: Vector, upper: Vector) -> None:
        """Keep differences inside these bounds."""
        for bound in self._bounds:
            keep_within(bound, lower, upper)

    def tightened(self) -> Runs | None:
        """Return the same at smaller tolerances, None where there are none."""
        bounds = [tightened(bound) for bound in self._bounds]
        if any(new is None and old is not None for new, old in zip(bounds, self._bounds, strict=True)):
            return None
        out = copy(self)
        out._bounds, out._slopes = bounds, {}
        return out

    def likelihoods(self, theta: Vector, values: Vector) -> list[Likelihood]:
        """Return the likelihood of every entity; entities of one kind share its run.

        values : ndarray
            All of the cost's parameters at theta.
        """
        made = [self._nothing if bound is None else bound.simulate(theta) for bound in self._bounds]
        return [
            self._likelihood(e, values[take], made[i][rows])[0]
            for e, take, i, rows in zip(self._entities, self._take, self._kind, self._rows, strict=True)
        ]

    def slopes(self, k: int, theta: Vector, values: Vector) -> tuple[Likelihood, Matrix, Matrix]:
        """Return the likelihood of entity k, and d nu, d s to theta, shape (n_obs, n_par)."""
        e, p, dp = self._entities[k], values[self._take[k]], self._moved[k]
        n = len(e.readings)
        if not n:
            return self._likelihood(e, p, self._nothing)[0], np.zeros((0, dp.shape[1])), np.zeros((0, dp.shape[1]))
        Y, dY = (whole[self._rows[k]] for whole in self._with_slopes(int(self._kind[k]), theta))
        likelihood, errors, factors = self._likelihood(e, p, Y)
        sds = self._errors.slopes(e.times, Y, p, e.inputs, dY, dp)
        r = e.readings
        d_errors = np.sign(errors)[:, None] * r.errors[:, None] * sds[e.at, r.variables]
        d_delta = -e.compared(Y[e.at, e.columns])[1][:, None] * dY[e.at, e.columns]
        errors = np.abs(errors)
        if not factors:
            return likelihood, d_delta, 2 * errors[:, None] * d_errors
        d_together = self._together.slopes(p, dp)
        nu, s = np.empty_like(d_delta), np.empty_like(d_delta)
        for rows, C in zip(e.samples, factors, strict=True):
            v, own = r.variables[rows], r.errors[rows]
            dR = np.outer(own, own)[:, :, None] * d_together[np.ix_(v, v)]
            i = np.arange(len(rows))
            dR[i, i] = 2 * errors[rows, None] * d_errors[rows]
            inverse = np.linalg.inv(C)
            inner = np.tril(np.einsum("ai,ijp,bj->pab", inverse, dR, inverse))
            inner[:, i, i] *= 0.5
            dC = C @ inner
            w = likelihood.nu[rows] / np.diag(C)
            dw = inverse @ (d_delta[rows] - np.einsum("pij,j->ip", dC, w))
            diagonal = dC[:, i, i].T
            nu[rows] = diagonal * w[:, None] + np.diag(C)[:, None] * dw
            s[rows] = 2 * np.diag(C)[:, None] * diagonal
        return likelihood, nu, s

    def _with_slopes(self, i: int, theta: Vector) -> tuple[Matrix, Cube]:
        """Return the run of a kind of entities with its derivatives to theta, made once for all of them."""
        key, last = theta.tobytes(), self._slopes.get(i)
        if last is None or last[0] != key:
            bound = self._bounds[i]
            Y, S = bound.sensitivities(theta) if self._moves else (bound.simulate(theta), None)
            last = self._slopes[i] = (key, Y, np.zeros((*Y.shape, len(theta))) if S is None else S)
        return last[1:]

    def recorded(self, k: int, theta: Vector, p: Vector, schedule: Schedule) -> Pass:
        """Return the pass of a filter along a run, of which nobody knows how its states come from each other.

        States have no variance; what a jump of a state would do is not known, and is NaN in the tables.
        """
        model, spec, n = self._models[self._kind[k]], self._spec, len(self._spec.space.states)
        Y = model.bind(self._names, times=schedule.times).simulate(theta)
        e = _Entity(spec, None, schedule, tuple(map(str, model.var_names)))
        at = schedule.nodes_of_rows
        nothing, still = np.zeros((len(Y), n, n)), np.broadcast_to(np.eye(n), (len(Y), n, n))
        likelihood, errors, _ = self._likelihood(e, p, Y[np.searchsorted(schedule.times, e.times)])
        z = e.compared(Y[at, e.columns])[0]
        gradients = np.zeros((len(at), n))
        record = Record(Y, nothing, Y, nothing, still, z, gradients, np.abs(errors), np.zeros((0, 0)))
        return Pass(likelihood.nu, likelihood.s, np.empty((len(at), 0)), -1, 0, 0, record)

    def _likelihood(self, e: _Entity, p: Vector, Y: Matrix) -> tuple[Likelihood, Vector, list[Matrix]]:
        """Return the likelihood, the errors' sds (with their signs), and the factors of R where they are correlated."""
        r = e.readings
        if not len(r):
            return likelihood_of_innovations(np.empty(0), np.empty(0)), np.empty(0), []
        errors = self._errors.sds(e.times, Y, p, e.inputs)[e.at, r.variables] * r.errors
        delta = r.values - e.compared(Y[e.at, e.columns])[0]
        if self._spec.errors.covariance is None:
            s = errors * errors
            self._check(e, p, s)
            return likelihood_of_innovations(delta, s), errors, []
        between = self._together.values(p)
        factors: list[Matrix] = []
        nu, s = np.empty(len(r)), np.empty(len(r))
        for rows in e.samples:
            v = r.variables[rows]
            R = np.outer(r.errors[rows], r.errors[rows]) * between[np.ix_(v, v)]
            R[np.diag_indices_from(R)] = errors[rows] ** 2
            try:
                C = np.asarray(np.linalg.cholesky(R), dtype=float)
            except np.linalg.LinAlgError:
                C = np.zeros_like(R)
            diagonal = np.diag(C)
            s[rows] = diagonal**2
            self._check(e, p, s[rows], int(rows[0]))
            nu[rows] = diagonal * np.linalg.solve(C, delta[rows])
            factors.append(C)
        return likelihood_of_innovations(nu, s), errors, factors

    def _check(self, e: _Entity, p: Vector, s: Vector, first: int = 0) -> None:
        """Refuse variances that are not positive, as the filter does."""
        bad = np.flatnonzero(~((s > 0) & (s < np.inf)))
        if not len(bad):
            return
        row = first + int(bad[0])
        time = float(e.readings.times[row])
        name = self._spec.variables[e.readings.variables[row]]
        raise SimulationError(
            f"The filter{e.who} broke down at time {time:.6g} (sample {e.at[row] + 1}): the variance of an innovation "
            f"is not positive ({name!r}).",
            parameters=dict(zip(self._spec.parameters, p.tolist(), strict=True)),
            time=time,
        )

    @property
    def _nothing(self) -> Matrix:
        return np.empty((0, len(self._spec.model.var_names)))

    @cached_property
    def _errors(self) -> _Errors:
        return _Errors(self._spec, tuple(map(str, self._spec.model.var_names)))

    @cached_property
    def _together(self) -> _Together:
        return _Together(self._spec)

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in ("_errors", "_together")} | {"_slopes": {}}
