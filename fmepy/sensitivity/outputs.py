"""The outputs that sensFun differentiates, in rows: variables of a model, or modelled values at the data of a cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmepy.costs.modcost import ModCost
from fmepy.costs.user_function import as_objective, as_simulator, is_cost, is_ours
from fmepy.errors import ArgumentError
from fmepy.models.bound_simulator import Simulator
from fmepy.numerics.covariance import root_of
from fmepy.numerics.differences import replaced
from fmepy.parameters.named import as_parameters
from fmepy.parameters.selection import chosen
from fmepy.sensitivity.differences import Derivatives, DifferenceRuns, own_derivatives
from fmepy.tables.sheet import calendar_of
from fmepy.types import Matrix, Vector

_OWN_DIFFERENCES = "differences (central, relative step and tolerances chosen by the model)"
_OF_LOGARITHMS = {"log": 1.0, "log10": 1 / np.log(10)}
_TIGHTENED = 1e-3  # what a model takes its own differences with, of its relative tolerance
_METHOD_TEXTS = {True: "exact", False: _OWN_DIFFERENCES, None: "the cost's own Jacobian"}


@dataclass(frozen=True, slots=True, eq=False)
class Outputs:
    """Outputs in rows, variable by variable, and their derivatives."""

    names: tuple[str, ...]
    theta: Vector
    labels: tuple[str, ...]
    x: Vector
    row_x: Vector
    x_name: str
    values: Vector
    error: Vector
    derivatives: Derivatives
    zero_sds: tuple[str, ...] = ()  # sds of noise at zero
    depths: Vector | None = None
    calendar: Any = None  # the dates behind x, see `fmepy.tables.sheet.with_times`
    spreads: Any = None  # which rows are of the spread of a reading, of a likelihood
    is_information: bool = False  # rows whose product is the expected information: in units of the errors already
    relative: Vector | None = None  # what a change is divided by to be relative; None: the values themselves

    @property
    def var(self) -> tuple[str, ...]:
        """The variables, in order of first appearance."""
        return tuple(dict.fromkeys(self.labels))


# --- models


def of_model(func: Any, parms: Any, sensvar: Any, senspar: Any, map: Any, user: Any, runs: DifferenceRuns) -> Outputs:
    """Return the variables of a model; `user` holds the further arguments of a user's function."""
    varied = chosen(senspar, _known_parameters(func, parms), "senspar", "parameter", is_set=True)
    simulator = as_simulator(func, parms, varied=varied, map=map, **user)
    variables = chosen(sensvar, simulator.var_names, "sensvar", "variable", is_set=True)
    columns = [simulator.var_names.index(v) for v in variables]
    theta = simulator.theta0
    exact = runs.tiny is None and simulator.is_model
    box = runs.box(simulator.names, theta, as_parameters(parms, getattr(func, "parms", None)))
    if exact:
        simulator.keep_within(*box)
        Y, dY = simulator.sensitivities(theta)
        values = Y[:, columns].T.ravel()

        def own(point: Vector) -> Matrix:
            slopes = dY if point is theta else simulator.sensitivities(point)[1]
            return slopes[:, columns].transpose(1, 0, 2).reshape(-1, theta.size)

    else:
        run = _Columns(simulator, columns)
        values = run(theta)
    cells = simulator.cells or {}
    labels = tuple(np.repeat([cells.get(v, (v,))[0] for v in variables], simulator.x.size).tolist())
    depths = np.repeat([cells.get(v, (v, np.nan))[1] for v in variables], simulator.x.size) if cells else None
    row_x = np.tile(simulator.x, len(variables))
    _check_finite(values, labels, row_x, simulator.x_name)
    size = _sizes(values.reshape(len(variables), -1)).repeat(simulator.x.size)
    if exact:
        tolerance = None if simulator.exact else _TIGHTENED * (simulator.rtol or 0.0)
        derivatives = own_derivatives(own, theta, values, size, box, _METHOD_TEXTS[simulator.exact], tolerance)
    else:
        derivatives = runs.differences(run, theta, simulator.names, values, size, box)
    _check_finite(derivatives.matrix.sum(axis=1), labels, row_x, simulator.x_name, "The derivative of ")
    return Outputs(
        simulator.names, theta, labels, simulator.x, row_x, simulator.x_name, values, np.ones(values.size), derivatives,
        depths=depths,
    )  # fmt: skip


class _Columns:
    """A task for workers: a run of a simulator, its chosen columns one after the other."""

    def __init__(self, simulator: Simulator, columns: Sequence[int]) -> None:
        self.simulator, self.columns = simulator, list(columns)

    def __call__(self, theta: Vector) -> Vector:
        return self.simulator.run(theta)[:, self.columns].T.ravel()


def _sizes(values: Matrix) -> Vector:
    """Return the largest absolute value of each row, 1 where it is 0."""
    size = np.abs(values).max(axis=1)
    return np.where(size > 0, size, 1.0)


def _known_parameters(func: Any, parms: Any) -> list[str]:
    """Return the parameters that `senspar` may name: those of `parms`, then all others of a fmepy model or cost."""
    own = getattr(func, "parms", None) if is_ours(func) else None
    return list(as_parameters(parms, own, argument="parms").names)


class FirstCallCached:
    """A user's function with its first result cached: its kind is checked before its values are used."""

    def __init__(self, func: Callable[..., Any]) -> None:
        self.func = func
        self.start: Any = None
        self.result: Any = None

    def __call__(self, p: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: D102    # see its class
        if self.start is not None and _equal_parameters(self.start, p):
            return self.result
        start = copy(p)  # a function may change what it is given
        result = self.func(p, *args, **kwargs)
        if self.start is None:
            self.start, self.result = start, result
        return result

    def __getstate__(self) -> dict[str, Any]:  # results need not travel to workers
        return {"func": self.func, "start": None, "result": None}


def _equal_parameters(a: Any, b: Any) -> bool:
    return bool(np.array_equal(a, b)) if isinstance(a, np.ndarray) else bool(a == b)


# --- costs


def returns_modcost(func: Any, parms: Any, args: Any, kwargs: Any) -> bool:
    """Return whether a function of the user returns a ModCost; errors in it are raised later."""
    if not callable(func):
        return False
    parameters = as_parameters(parms, argument="parms")
    try:
        result = func(parameters.for_user(parameters.values), *args, **(kwargs or {}))
    except (Exception, SystemExit):
        return False
    return isinstance(result, ModCost)


def of_cost(func: Any, parms: Any, senspar: Any, user: Any, runs: DifferenceRuns) -> Outputs:
    """Return the modelled values at the data of a cost, or rows of the expected information of a likelihood."""
    known = _known_parameters(func, parms)
    wanted = chosen(senspar, known, "senspar", "parameter", is_set=True)
    objective = as_objective(func, parms, **user)
    positions = [objective.parameter_names.index(k) for k in wanted]
    theta = objective.theta0
    if objective.is_scalar:
        return _of_likelihood(func, objective, positions)
    names = objective.names
    order = _by_variable(names)
    weights = objective.weights[order]
    compared = objective.modcost(theta)
    if isinstance(compared, ModCost):
        obs = np.concatenate([piece.obs for piece, _ in compared.pieces])[order]
        values = np.concatenate([mod for _, mod in compared.pieces])[order]
    else:  # a cost from outside that gives bare residuals: they are its outputs
        obs, values = np.zeros(len(order)), objective.residuals(theta)[order] / weights

    start = theta[positions]
    box = runs.box(wanted, start, replace(objective.parameters, lower=objective.lower, upper=objective.upper))
    objective.lower[positions], objective.upper[positions] = box
    objective.begin(theta, objective.lower, objective.upper)
    if runs.tiny is None and objective.has_jacobian:

        def own(some: Vector) -> Matrix:
            J = objective.jacobian(replaced(theta, positions, some))
            return np.asarray(J[order][:, positions] / weights[:, None])

        level = np.abs(values) + np.abs(obs)
        tolerance = None if objective.exact else _TIGHTENED * 1e-6  # of the default tolerance
        derivatives = own_derivatives(own, start, level, level, box, _METHOD_TEXTS[objective.exact], tolerance)
    else:
        modelled = _Modelled(func, parms, user, positions, order, 1 / weights, obs, objective)
        derivatives = runs.differences(modelled, start, wanted, modelled(start), 1 / weights, box, obs)
    labels = tuple(names[i] for i in order)
    x = objective.x[order]
    x_name = compared.x_name if isinstance(compared, ModCost) else "x"
    outputs = Outputs(tuple(wanted), start, labels, x, x, x_name, values, 1 / weights, derivatives,
                    calendar=calendar_of(compared))  # fmt: skip
    pieces = [c for c, _ in compared.pieces] if isinstance(compared, ModCost) else []
    if any(c.scale.kinds for c in pieces):  # a change of a logarithm is relative already
        kinds = [c.scale.kinds.get(i) for c in pieces for i in range(len(c.obs))]
        of_logs = np.array([_OF_LOGARITHMS.get(kind or "", np.nan) for kind in kinds])[order]
        outputs = replace(outputs, relative=np.where(np.isnan(of_logs), values, of_logs))
    if not any(c.depths is not None for c in pieces):
        return outputs
    parts = [np.full(len(c.obs), np.nan) if c.depths is None else c.depths for c in pieces]
    return replace(outputs, depths=np.concatenate(parts)[order])


class _Modelled:
    """A task for workers: the modelled values at the data as a function of some parameters, bound by the worker."""

    def __init__(
        self, func: Any, parms: Any, user: Any, positions: Any, order: Any, errors: Vector, obs: Vector, objective: Any
    ) -> None:
        self.func, self.parms, self.user = func, parms, user
        self.positions, self.order, self.errors, self.obs = positions, order, errors, obs
        self.objective = objective

    def __call__(self, some: Vector) -> Vector:
        if self.objective is None:
            self.objective = as_objective(self.func, self.parms, **self.user)
        full = replaced(self.objective.theta0, self.positions, some)
        mod: Vector = self.objective.residuals(full)[self.order] * self.errors + self.obs
        return mod

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"objective": None}


def _by_variable(names: Sequence[str]) -> NDArray[np.intp]:
    """Return the rows regrouped by variable, variables in order of first appearance."""
    place = {name: k for k, name in enumerate(dict.fromkeys(names))}
    return np.argsort([place[name] for name in names], kind="stable")


def _of_likelihood(cost: Any, objective: Any, positions: list[int]) -> Outputs:
    """Return rows whose S'S is the expected information, for a cost whose value is -2 log L."""
    names = tuple(objective.parameter_names[k] for k in positions)
    theta = objective.theta0[positions]
    bound: Any = cost.bind(list(objective.parameter_names)) if is_cost(cost) else None
    x_name, depths, spreads = "x", getattr(getattr(cost, "comparison", None), "depths", None), None
    if callable(getattr(bound, "sensitivity_rows", None)):
        labels, x, rows = bound.sensitivity_rows(objective.theta0)
        x_name = str(getattr(cost, "x", "x"))
        order = _by_variable(list(labels))
        half = len(rows) // 2  # readings, then their spreads: of one cost, where spreads count
        if (
            len(rows) > getattr(bound, "nobs", np.inf)
            and not hasattr(cost, "parts")
            and list(labels[:half]) == list(labels[half:])
        ):
            spreads = order >= half
        labels, x, rows = tuple(labels[i] for i in order), np.asarray(x, float)[order], np.asarray(rows)[order]
        depths = depths if depths is None else np.resize(depths, len(rows))[order]  # of means, then of spreads
    elif objective.has_score:
        rows = root_of(objective.information(objective.theta0))
        labels, x = ("information",) * len(rows), np.arange(1.0, len(rows) + 1)
    else:
        raise ArgumentError(
            "`func` is a cost of one number, -2 log L, without an expected information: it has no outputs whose "
            "sensitivities could be taken. Give the model, or a cost with residuals."
        )
    n = len(rows)
    rows = np.asarray(rows, dtype=float)[:, positions]
    ones, nowhere = np.ones(n), (theta, theta)
    derivatives = own_derivatives(lambda _: rows, theta, ones, ones, nowhere, "the cost's expected information", None)
    sds = tuple(k for k, v, i in zip(names, theta, positions, strict=True) if v == 0 and objective.scale_parameters[i])
    return Outputs(
        names, theta, labels, x, x, x_name, ones, ones, derivatives, sds, depths, calendar_of(cost), spreads, True
    )


def _check_finite(values: Vector, labels: Sequence[str], x: Vector, x_name: str, what: str = "") -> None:
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        i = int(bad[0])
        raise ArgumentError(
            f"{what or 'The value of '}{labels[i]!r} at {x_name} = {x[i]:g} is not finite at these parameters. Choose "
            "other variables by `sensvar`, or other parameters."
        )
