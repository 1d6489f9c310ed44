"""sensFun: how the outputs of a model, or a model at the data of a cost, respond to its parameters.

For output i (a variable at one x, or the modelled value of one observation) and parameter j::

    S_ij = dy_i/dp_j * parscale_j / varscale_i

By default parscale_j = p_j and varscale_i = y_i: relative (log-log) sensitivities. ``varscale=1`` gives dy/dp * p, both
1 gives dy/dp. With `weighted`, varscale_i is the error of datum i, so that S'S is the Fisher information of relative
parameters.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fmepy.checks import between_0_and_1
from fmepy.costs.modcost import ModCost
from fmepy.costs.user_function import as_objective, as_simulator, is_cost, is_model
from fmepy.errors import ArgumentError, ParameterError, did_you_mean, listed
from fmepy.models.simulator import Simulator
from fmepy.parameters.named import Parameters, as_bounds, as_parameters, check_inside, check_names
from fmepy.results.tables import Framed, Part, long_table
from fmepy.sensitivity.differences import Derivatives, by_fitting_differences, forward_differences
from fmepy.sensitivity.selection import chosen
from fmepy.sensitivity.summary import SensFunSummary, summarise
from fmepy.types import Matrix, UserBounds, UserParameters, Vector

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

__all__ = ["SensFun", "sensFun"]

_FLOOR = 1e-8 * 1e-12  # what FME puts in the place of a scale of zero, with its default `tiny`
_OWN_DIFFERENCES = "differences (central, relative step and tolerances chosen by the model)"
_TOLD = {True: "exact", False: _OWN_DIFFERENCES, None: "the cost's own Jacobian"}


@dataclass(frozen=True, eq=False, repr=False)  # no slots: its tables are made when they are first asked for
class SensFun(Framed):
    """Sensitivities of outputs to parameters; made by `sensFun`.

    Attributes
    ----------
    frame : DataFrame
        Columns x, var, and one per parameter; rows variable by variable.
    pars, parscale : Series
        Values and scales of the parameters.
    names, labels, row_x, values, theta, scale
        What they are made of, as arrays: parameters; variable and x of every row; sensitivities, shape (n_row, n_par);
        values and scales of the parameters.
    varscale : ndarray, shape (n_row,)
        Scale of every row.
    var : tuple of str
        The variables, in order of first appearance.
    x : ndarray
        The values of x: of one variable for a model (n_x), of every row for a cost.
    xname : str
        Name of x.
    method : str
        How the derivatives were taken: "exact", "differences (...)" with the step, or "forward, tiny=...".
    weighted : bool
        True if the rows are divided by the errors of the data.
    """

    names: tuple[str, ...]
    labels: tuple[str, ...]
    row_x: Vector
    values: Matrix
    theta: Vector
    scale: Vector
    varscale: Vector
    var: tuple[str, ...]
    x: Vector
    xname: str
    method: str
    weighted: bool = False

    @cached_property
    def frame(self) -> pd.DataFrame:
        """Columns x, var, and one per parameter."""
        table = pd.DataFrame(self.values, columns=list(self.names))
        table.insert(0, "x", self.row_x, allow_duplicates=True)  # a parameter may be called x
        table.insert(1, "var", list(self.labels), allow_duplicates=True)
        return table

    @cached_property
    def pars(self) -> pd.Series:
        """Values of the parameters."""
        return pd.Series(self.theta, index=list(self.names))

    @cached_property
    def parscale(self) -> pd.Series:
        """Scales of the parameters."""
        return pd.Series(self.scale, index=list(self.names))

    @property
    def matrix(self) -> pd.DataFrame:
        """The parameter columns alone, shape (n_row, n_par)."""
        return self.frame.iloc[:, 2:]

    def summary(self, vars: bool = False) -> SensFunSummary:
        """Return L1, L2, mean, least and largest sensitivity per parameter, or per parameter and variable.

        Parameters
        ----------
        vars : bool
            True: one row per parameter and variable, parameters outermost, variables in the order of the rows.

        Returns
        -------
        SensFunSummary
            Columns value, scale, L1 = mean|S|, L2 = sqrt(mean S^2), Mean, Min, Max, N (and var).

        Notes
        -----
        **Differs from FME** in the order of the variables, which there follows the alphabet of the locale.
        """
        labels = self.frame.iloc[:, 1].to_numpy() if vars else None
        return SensFunSummary(summarise(self.matrix.to_numpy(), self.pars, self.parscale, labels, self.var), vars)

    def ranking(self, by: str = "L2") -> pd.Series:
        """Return the parameters with their importance, the largest first.

        Parameters
        ----------
        by : {"L2", "L1", "Mean", "Min", "Max"}
            The measure; Mean, Min and Max are ranked by size.
        """
        return self.summary().ranking(by)

    def plot(
        self, which: Any = None, legpos: str | None = "above", *, axes: Any = None, **kwargs: Any
    ) -> NDArray[np.object_]:
        """Draw sensitivities against x, one line per parameter; return the Axes.

        Without `which`: all variables in one panel; with it (names or positions from 0) one panel a variable.
        """
        from fmepy.plotting.sensitivity import plot_sensitivities

        return plot_sensitivities(self, which, legpos=legpos, axes=axes, **kwargs)

    def pairs(self, which: Any = None, *, axes: Any = None, **kwargs: Any) -> NDArray[np.object_]:
        """Draw the sensitivities of every two parameters against each other, with their correlations; return the Axes.

        With `which` (names or positions from 0) the points of those variables alone, a colour each.
        """
        from fmepy.plotting.sensitivity import plot_pairs

        return plot_pairs(self, which, axes=axes, **kwargs)

    def plot_ranking(self, by: str = "L2", *, ax: Axes | None = None, **kwargs: Any) -> Axes:
        """Draw the importance of the parameters as bars, the largest on top, parted by variable; return the Axes."""
        from fmepy.plotting.sensitivity import plot_ranking

        return plot_ranking(self, by, ax=ax, **kwargs)

    def shown(self) -> list[str | Part]:
        """Return the table, and how it was computed."""
        return [long_table(self.frame), f"({self.method})"]


def sensFun(
    func: Any,
    parms: UserParameters = None,
    *,
    sensvar: Any = None,
    senspar: Any = None,
    varscale: Any = None,
    parscale: Any = None,
    tiny: float | None = None,
    map: int | str | None = 0,
    weighted: bool = False,
    lower: UserBounds = -np.inf,
    upper: UserBounds = np.inf,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    executor: Any = None,
    progress: Any = False,
) -> SensFun:
    r"""Return the sensitivities of a model's outputs, or of a model at the data of a cost, to its parameters.

    Parameters
    ----------
    func : fmepy model or cost, or callable ``func(p, *args, **kwargs)``
        A callable returns a table (one column of x, one per variable), one row (a Series, dict, number), or a ModCost.
        For costs the outputs are the *modelled values at the data points*, grouped by variable in order of first
        appearance; with a `transform`, the transformed values.
    parms : dict, Series, sequence, ...; for a fmepy model or cost also names, or None for all
        The point at which the derivatives are taken.
    sensvar : names or positions from 0, optional
        The variables of a model; default all. Costs have what is observed.
    senspar : names or positions from 0, optional
        The parameters, in this order; default those of `parms`.
    varscale : number, dict by variable, sequence, optional
        What sensitivities are divided by: one for all, one per variable, or one per row. Default: the output itself.
    parscale : number, dict by parameter, sequence, optional
        What they are multiplied by: one for all, or one per parameter. Default: the parameter's value.
    tiny : float, optional
        None: exact sensitivities where the model has them, else differences whose step fits the noise of the solver. A
        number: a forward difference with the step ``|p| * tiny`` (`tiny` itself for p = 0), one run per parameter.
    map : int, str or None
        The column of x in a table: position from 0, name, or None for none.
    weighted : bool
        For costs: divide each row by the error of its datum, in the place of `varscale`.
    lower, upper : number, sequence, or dict by name
        Bounds of the parameters of the result, outside which nothing is run: at a bound differences go inward. Those
        that a cost or lmfit declares hold where nothing is given.
    args, kwargs
        Passed on to a function of your own.
    executor, progress
        Where the runs for differences go, see `run_many`. Exact sensitivities are one run.

    Returns
    -------
    SensFun
        ``.method`` says which derivatives were used.

    Raises
    ------
    ParameterError
        An unknown parameter, a scale that does not fit.
    ArgumentError
        An unknown variable; `tiny` not positive; `weighted` with a model or together with `varscale`; an output that
        is not finite; a cost of one number.
    SimulationError
        A run failed at `parms`, or on both sides of it.

    Warns
    -----
    UserWarning
        A parameter at zero with the default `parscale`, or an output at zero with the default `varscale`: relative
        sensitivities are not defined there. The scale is then 1e-12 times `tiny` (1e-8 if None), as in FME.

    See Also
    --------
    collin, identifiability : what the sensitivities say of the parameters together.

    Notes
    -----
    A cost whose value is -2 log L alone, but that has an expected information I, gives rows S with S'S = I, scaled by
    `parscale`.

    For a function of your own, differences with ``tiny=None`` take eight runs to see its noise, then one or two per
    parameter.

    **Differs from FME**: derivatives are exact where the model has them. The step of differences is relative to the
    parameter (FME: at least `tiny`, a step of 50 % for a parameter of 2e-5 and ``tiny=1e-5``). `varscale` may be one
    per variable; it is not recycled along the stacked rows. Rows belong to variables by their column `var`, not by
    counts in alphabetical order. Positions count from 0, those of variables without the column of x.

    References
    ----------
    Soetaert and Petzoldt (2010), J. Stat. Softw. 33(3), section 4. Brun, Reichert and Künsch (2001), Water Resour.
    Res. 37, 1015-1030. FME: sensFun.

    Examples
    --------
    >>> import numpy as np
    >>> def decay(p):
    ...     t = np.array([0.0, 1.0, 2.0])
    ...     return {"time": t, "y": p["y0"] * np.exp(-p["k"] * t)}
    >>> sens = sensFun(decay, {"y0": 10.0, "k": 0.5})
    >>> sens.frame.round(4)
         x var   y0    k
    0  0.0   y  1.0  0.0
    1  1.0   y  1.0 -0.5
    2  2.0   y  1.0 -1.0
    >>> sens.summary()
        value  scale   L1    L2  Mean Min Max  N
    y0   10.0   10.0  1.0  1.00   1.0   1   1  3
    k     0.5    0.5  0.5  0.65  -0.5  -1   0  3
    """
    if tiny is not None:
        tiny = between_0_and_1(tiny, "tiny", " (a relative step), or be None")
    if callable(func) and not (is_cost(func) or is_model(func)):
        func = _StartKept(func)
    given = {"args": args, "kwargs": kwargs}
    spread = {"executor": executor, "progress": progress, "lower": lower, "upper": upper}
    if is_cost(func) or (not is_model(func) and _returns_modcost(func, parms, args, kwargs)):
        outputs = _of_cost(func, parms, senspar, tiny, given, spread)
    else:
        if weighted:
            raise ArgumentError("`weighted=True` needs a cost, which knows the errors of its data; `func` is a model.")
        outputs = _of_model(func, parms, sensvar, senspar, map, tiny, given, spread)
    if weighted and varscale is not None:
        raise ArgumentError("`weighted=True` divides the rows by the errors of the data; leave `varscale` out.")
    floor = _FLOOR if tiny is None else 1e-12 * tiny
    _tell_even(outputs.even)
    p = _parameter_scale(parscale, outputs.names, outputs.theta, floor, outputs.even)
    v = outputs.error if weighted else _variable_scale(varscale, outputs, floor)
    S = outputs.derivatives.matrix * p / v[:, None]
    return _result(outputs, S, p, v, weighted)


@dataclass(frozen=True, slots=True, eq=False)
class _Outputs:
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
    even: tuple[str, ...] = ()  # sds of noise at zero

    @property
    def var(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.labels))


def _result(outputs: _Outputs, S: Matrix, p: Vector, v: Vector, weighted: bool) -> SensFun:
    return SensFun(
        names=outputs.names,
        labels=outputs.labels,
        row_x=outputs.row_x,
        values=S,
        theta=outputs.theta,
        scale=p,
        varscale=v,
        var=outputs.var,
        x=outputs.x,
        xname=outputs.x_name,
        method=outputs.derivatives.method,
        weighted=weighted,
    )


# --- models


def _of_model(
    func: Any, parms: Any, sensvar: Any, senspar: Any, map: Any, tiny: float | None, given: Any, spread: Any
) -> _Outputs:
    known = _known_parameters(func, parms)
    simulator = as_simulator(func, parms, varied=chosen(senspar, known, "senspar", "parameter"), map=map, **given)
    variables = chosen(sensvar, simulator.var_names, "sensvar", "variable")
    columns = [simulator.var_names.index(v) for v in variables]
    theta = simulator.theta0
    exact = tiny is None and simulator.is_model
    box = _box(spread, simulator.names, theta, as_parameters(parms, getattr(func, "parms", None)))
    if exact:
        simulator.keep_within(*box)
        Y, dY = simulator.sensitivities(theta)
        values = Y[:, columns].T.ravel()
        matrix = dY[:, columns].transpose(1, 0, 2).reshape(-1, theta.size)
        derivatives = Derivatives(matrix, _TOLD[simulator.exact])
    else:
        run = _Columns(simulator, columns)
        values = run(theta)
    labels = tuple(np.repeat(variables, simulator.x.size).tolist())
    row_x = np.tile(simulator.x, len(variables))
    _check_finite(values, labels, row_x, simulator.x_name)
    if not exact:
        size = _sizes(values.reshape(len(variables), -1)).repeat(simulator.x.size)
        derivatives = _differences(run, theta, simulator.names, values, size, tiny, box, spread)
    _check_finite(derivatives.matrix.sum(axis=1), labels, row_x, simulator.x_name, "The derivative of ")
    return _Outputs(
        simulator.names, theta, labels, simulator.x, row_x, simulator.x_name, values, np.ones(values.size), derivatives
    )


class _Columns:
    """Runs of a simulator: the chosen columns, one after the other. It travels to workers."""

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
    own = getattr(func, "parms", None) if is_model(func) or is_cost(func) else None
    return list(as_parameters(parms, own, argument="parms").names)


def _differences(
    run: Callable[[Vector], Vector], theta: Vector, names: Any, values: Vector, size: Vector, tiny: Any, box: Any,
    spread: Any,
) -> Derivatives:  # fmt: skip
    where = {"executor": spread["executor"], "progress": spread["progress"]}
    if tiny is not None:
        return forward_differences(run, theta, values, tiny, names, box, **where)
    return by_fitting_differences(run, theta, values, size, names, box, **where)


def _box(spread: Any, names: Sequence[str], theta: Vector, declared: Parameters) -> tuple[Vector, Vector]:
    """Return the bounds of the parameters `names`: those given, else those declared by a cost or lmfit."""
    low, high = np.full(theta.size, -np.inf), np.full(theta.size, np.inf)
    if declared.lower is not None and declared.upper is not None:
        known = {n: k for k, n in enumerate(declared.names)}
        for j, name in enumerate(names):
            if name in known:
                low[j], high[j] = declared.lower[known[name]], declared.upper[known[name]]
    box = as_bounds(spread["lower"], spread["upper"], names, declared=(low, high))
    check_inside(theta, *box, names, argument="parms")
    return box


class _StartKept:
    """A user's function that remembers what it first returned: its kind is asked for before its values are."""

    def __init__(self, func: Callable[..., Any]) -> None:
        self.func = func
        self.start: Any = None
        self.result: Any = None

    def __call__(self, p: Any, *args: Any, **kwargs: Any) -> Any:
        if self.start is not None and _same_parameters(self.start, p):
            return self.result
        start = copy(p)  # a function may change what it is given
        result = self.func(p, *args, **kwargs)
        if self.start is None:
            self.start, self.result = start, result
        return result

    def __getstate__(self) -> dict[str, Any]:  # results need not travel to workers
        return {"func": self.func, "start": None, "result": None}


def _same_parameters(a: Any, b: Any) -> bool:
    return bool(np.array_equal(a, b)) if isinstance(a, np.ndarray) else bool(a == b)


# --- costs


def _returns_modcost(func: Any, parms: Any, args: Any, kwargs: Any) -> bool:
    """Tell whether a function of the user returns a ModCost; whatever is wrong with it is told by others."""
    if not callable(func):
        return False
    parameters = as_parameters(parms, argument="parms")
    try:
        result = func(parameters.given(parameters.values), *args, **(kwargs or {}))
    except (Exception, SystemExit):
        return False
    return isinstance(result, ModCost)


def _of_cost(func: Any, parms: Any, senspar: Any, tiny: float | None, given: Any, spread: Any) -> _Outputs:
    known = _known_parameters(func, parms)
    wanted = chosen(senspar, known, "senspar", "parameter")
    objective = as_objective(func, parms, **given)
    positions = [objective.parameter_names.index(k) for k in wanted]
    theta = objective.theta0
    if objective.is_scalar:
        return _of_likelihood(func, objective, positions)
    order = _by_variable(objective.names)
    weights = objective.weights[order]
    compared = objective.modcost(theta)
    if isinstance(compared, ModCost):
        obs = np.concatenate([piece.obs for piece, _ in compared.pieces])[order]
        values = np.concatenate([mod for _, mod in compared.pieces])[order]
    else:  # a cost from outside that gives bare residuals: they are its outputs
        obs, values = np.zeros(len(order)), objective.residuals(theta)[order] / weights

    start = theta[positions]
    box = _box(spread, wanted, start, replace(objective.parameters, lower=objective.lower, upper=objective.upper))
    objective.lower[positions], objective.upper[positions] = box
    objective.begin(theta, objective.lower, objective.upper)
    if tiny is None and objective.has_jacobian:
        J = objective.jacobian(theta)[order][:, positions] / weights[:, None]
        derivatives = Derivatives(J, _TOLD[objective.exact])
    else:
        names = tuple(wanted)
        modelled = _Modelled(func, parms, given, positions, order, 1 / weights, obs, objective)
        derivatives = _differences(modelled, start, names, values, 1 / weights, tiny, box, spread)
    labels = tuple(objective.names[i] for i in order)
    x = objective.x[order]
    return _Outputs(tuple(wanted), start, labels, x, x, "x", values, 1 / weights, derivatives)


class _Modelled:
    """The modelled values at the data, as a function of some parameters. It travels to workers and is bound there."""

    def __init__(
        self, func: Any, parms: Any, given: Any, positions: Any, order: Any, errors: Vector, obs: Vector, objective: Any
    ) -> None:
        self.func, self.parms, self.given = func, parms, given
        self.positions, self.order, self.errors, self.obs = positions, order, errors, obs
        self.objective = objective

    def __call__(self, some: Vector) -> Vector:
        if self.objective is None:
            self.objective = as_objective(self.func, self.parms, **self.given)
        full = self.objective.theta0.copy()
        full[self.positions] = some
        mod: Vector = self.objective.residuals(full)[self.order] * self.errors + self.obs
        return mod

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"objective": None}


def _by_variable(names: Sequence[str]) -> NDArray[np.intp]:
    """Return the rows regrouped by variable, variables in order of first appearance."""
    place = {name: k for k, name in enumerate(dict.fromkeys(names))}
    return np.argsort([place[name] for name in names], kind="stable")


def _of_likelihood(cost: Any, objective: Any, positions: list[int]) -> _Outputs:
    """Return rows whose S'S is the expected information, for a cost whose value is -2 log L."""
    names = tuple(objective.parameter_names[k] for k in positions)
    theta = objective.theta0[positions]
    bound: Any = cost.bind(list(objective.parameter_names)) if is_cost(cost) else None
    if callable(getattr(bound, "sensitivity_rows", None)):
        labels, x, rows = bound.sensitivity_rows(objective.theta0)
        order = _by_variable(list(labels))
        labels, x, rows = tuple(labels[i] for i in order), np.asarray(x, float)[order], np.asarray(rows)[order]
    elif objective.has_score:
        values, vectors = np.linalg.eigh(objective.information(objective.theta0))
        rows = (vectors * np.sqrt(np.maximum(values, 0.0))).T
        labels, x = ("information",) * len(rows), np.arange(1.0, len(rows) + 1)
    else:
        raise ArgumentError(
            "`func` is a cost of one number, -2 log L, without an expected information: it has no outputs to be "
            "sensitive. Give the model, or a cost with residuals."
        )
    n = len(rows)
    derivatives = Derivatives(np.asarray(rows, dtype=float)[:, positions], "the cost's expected information")
    even = tuple(k for k, v, i in zip(names, theta, positions, strict=True) if v == 0 and objective.scale_parameters[i])
    return _Outputs(names, theta, labels, x, x, "x", np.ones(n), np.ones(n), derivatives, even)


# --- checks and scales


def _check_finite(values: Vector, labels: Sequence[str], x: Vector, x_name: str, what: str = "") -> None:
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        i = int(bad[0])
        raise ArgumentError(
            f"{what or 'The value of '}{labels[i]!r} at {x_name} = {x[i]:g} is not finite at these parameters. Choose "
            "other variables by `sensvar`, or other parameters."
        )


def _tell_even(sds: Sequence[str]) -> None:
    """Warn of sds of noise at zero: their columns are zero whatever the data say."""
    if not sds:
        return
    are = "is a standard deviation of noise" if len(sds) == 1 else "are standard deviations of noise"
    warnings.warn(
        f"sensFun: {listed(sds)} {are} at 0. The likelihood depends on the variance, so the sensitivities are "
        "zero there whatever the data say, and tell nothing of whether they determine it. Take a value above zero, or "
        "leave it out by `senspar`.",
        UserWarning,
        stacklevel=3,
    )


def _parameter_scale(
    parscale: Any, names: Sequence[str], theta: Vector, floor: float, told: Sequence[str] = ()
) -> Vector:
    if parscale is None:
        zero = [n for n, v in zip(names, theta, strict=True) if v == 0 and n not in told]
        if zero:
            warnings.warn(
                f"sensFun: {listed(zero)} {'is' if len(zero) == 1 else 'are'} at 0, where relative sensitivities are "
                f"not defined; the scale is {floor:g}, as in FME, and the column practically zero. Give `parscale`.",
                UserWarning,
                stacklevel=3,
            )
        return np.where(theta == 0, floor, theta)
    if isinstance(parscale, (Mapping, pd.Series)):
        found = check_names(parscale.keys(), names, argument="parscale")
        parscale = dict(zip(found, dict(parscale).values(), strict=True))
        missing = [n for n in names if n not in parscale]
        if missing:
            raise ParameterError(f"`parscale` has no entry for {listed(missing)}.")
        parscale = [parscale[n] for n in names]
    scale = _numbers(parscale, "parscale")
    if scale.size not in (1, len(names)):
        raise ParameterError(
            f"`parscale` has {scale.size} values for {len(names)} parameters ({listed(names)}). Give one number, one "
            "per parameter, or a dict by name."
        )
    return np.broadcast_to(scale, (len(names),)).copy()


def _variable_scale(varscale: Any, outputs: _Outputs, floor: float) -> Vector:
    n, var = len(outputs.labels), outputs.var
    if varscale is None:
        _warn_of_zeros(outputs, floor)
        return np.where(outputs.values == 0, floor, outputs.values)
    if isinstance(varscale, (Mapping, pd.Series)):
        for name in varscale.keys():  # noqa: SIM118    # a Series iterates over its values
            if str(name) not in var:
                raise ArgumentError(
                    f"`varscale`: there is no variable {str(name)!r}.{did_you_mean(name, var)} There are {listed(var)}."
                )
        missing = [v for v in var if v not in varscale]
        if missing:
            raise ArgumentError(f"`varscale` has no entry for {listed(missing)}.")
        varscale = [varscale[v] for v in var]
    scale = _numbers(varscale, "varscale")
    if scale.size == 1:
        return np.full(n, scale[0])
    if scale.size == len(var):
        return scale[[var.index(label) for label in outputs.labels]]
    if scale.size == n:
        return scale
    raise ArgumentError(
        f"`varscale` has {scale.size} values for {len(var)} variables ({listed(var)}) in {n} rows. Give one number, "
        "one per variable (or a dict by name), or one per row."
    )


def _warn_of_zeros(outputs: _Outputs, floor: float) -> None:
    """Tell of outputs at zero that do move: their relative sensitivity is not defined."""
    moved = (outputs.values == 0) & np.any(outputs.derivatives.matrix != 0, axis=1)
    if moved.any():
        i = int(np.argmax(moved))
        names = dict.fromkeys(label for label, m in zip(outputs.labels, moved, strict=True) if m)
        warnings.warn(
            f"sensFun: {listed(names)} {'is' if moved.sum() == 1 else 'are'} 0 at {int(moved.sum())} "
            f"{'row' if moved.sum() == 1 else 'rows'} (first at {outputs.x_name} = {outputs.row_x[i]:g}), where "
            f"relative sensitivities are not defined; the scale is {floor:g}, as in FME. Give `varscale`.",
            UserWarning,
            stacklevel=4,
        )


def _numbers(values: Any, argument: str) -> Vector:
    items = list(values) if isinstance(values, Iterable) and not isinstance(values, str) else [values]
    try:
        out = np.array([float(v) for v in items])
    except (TypeError, ValueError):
        raise ArgumentError(f"`{argument}` must hold numbers; got {values!r}.") from None
    if out.size == 0 or not np.isfinite(out).all() or np.any(out == 0):
        raise ArgumentError(f"`{argument}` must hold finite numbers other than 0; got {values!r}.")
    return out
