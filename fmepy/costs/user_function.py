"""Turn whatever the user gave into the contract: the only place that asks "is this one of ours?".

What a cost `f` may be, and what it becomes (`as_objective`)::

    a fmepy cost (it has ``bind``)                    its bound form, with its own Jacobian where it has one
    a function that returns a ModCost                 residuals ``res``, their groups and scales, taken from the ModCost
    a function that returns a one-dimensional array   residuals, one group, weights 1
    a function that returns one number                -2 log L

What a model `func` may be, and what it becomes (`as_simulator`)::

    a fmepy model (bind, var_names)       its bound form: rows at its times, variables by name
    f(p) that returns a table             x from the column `map`, one variable per other column
    f(p) that returns one row             a Series, a dict of numbers, one number, an array: one value per variable

The kind of a function, and the size of what it returns, are found by one evaluation at the start. From then on they are
fixed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from fmepy.checks import as_numbers
from fmepy.costs.base import CostData, KnownData, OfData
from fmepy.costs.bound_mapped import mapped
from fmepy.costs.modcost import ModCost
from fmepy.costs.objective import Objective, count_bad
from fmepy.errors import ArgumentError, SimulationError, counted, sentence, warn
from fmepy.models.bound_simulator import BoundAnew, Simulator, TableFunction
from fmepy.models.mapped import with_values
from fmepy.models.on_grid import cells_of_model, profiles_at_rest
from fmepy.parameters.functions import UserFunction
from fmepy.parameters.maps import Selected, Tied, ties_of
from fmepy.parameters.named import Parameters, as_parameters, check_names, is_fit, merge_parameters
from fmepy.types import Matrix, UserParameters, Vector


def is_cost(f: Any) -> bool:
    """Tell whether `f` is a fmepy cost: it can be bound, and it is not a model."""
    return is_ours(f) and not is_model(f)


def is_model(f: Any) -> bool:
    """Tell whether `f` is a fmepy model: it can be bound, and it names its variables."""
    return is_ours(f) and hasattr(f, "var_names")


def is_ours(f: Any) -> bool:
    """Tell whether `f` is a fmepy model or cost, and knows its parameters."""
    # asked of the class first: a property gives a copy
    return callable(getattr(f, "bind", None)) and (hasattr(type(f), "parms") or hasattr(f, "parms"))


def _refuse_further(args: Any, kwargs: Any, what: str) -> None:
    if args or kwargs:
        raise ArgumentError(f"`args` and `kwargs` are for functions of your own; a fmepy {what} takes parameters only.")


# --- costs


def as_objective(
    f: Any, p: UserParameters = None, *, jac: Any = None, args: Any = (), kwargs: Any = None, hold_engine: bool = False
) -> Objective:
    """Return whatever the user gave as `f` as one objective, together with its parameters.

    Parameters
    ----------
    f : fmepy cost, or callable
        A callable ``f(p, *args, **kwargs)`` returns a ModCost, a one-dimensional array of residuals, or a number,
        -2 log L.
    p : dict, Series, sequence, number, lmfit.Parameters; for a fmepy cost also names, or None for all
        The start; also what a user's function receives, see `fmepy.parameters.named`.
    jac : callable, optional
        ``jac(p, *args, **kwargs)``, shape (n_obs, n_par): the derivatives of the residuals as `f` returns them; of a
        number, -2 log L, shape (n_par,): its gradient.
    args, kwargs
        Passed on to `f` and `jac`.
    hold_engine : bool
        Stay with the engine that finished the first difficult run, so that the cost has no jumps.

    Returns
    -------
    Objective

    Raises
    ------
    ArgumentError
        `f` is not callable, is a model, fails at the start, or returns something else.
    ParameterError
        `p` is not usable.

    Notes
    -----
    Differs from FME: `jac` is used wherever a gradient is, for ModCost too, and gets the extra arguments also if there
    is one parameter only.

    Examples
    --------
    >>> objective = as_objective(lambda p: np.array([p["a"] - 1.0, 2 * p["a"]]), {"a": 3.0})
    >>> objective.kind, objective.value(objective.theta0)
    ('vector', 40.0)
    >>> objective.jacobian(objective.theta0).round(6)
    array([[1.],
           [2.]])
    """
    if is_model(f):
        raise ArgumentError(
            "`f` is a model; a cost is needed. Compare it with data: SimulationCost(model, obs), or a function that "
            "returns modCost(model(p), obs)."
        )
    if jac is not None and not callable(jac):
        raise ArgumentError(f"`jac` must be a function of p; got {type(jac).__name__}. For a matrix A: lambda p: A.")
    if is_cost(f):
        _refuse_further(args, kwargs, "cost")
        parameters = as_parameters(p, f.parms)
        rebind = partial(_bound_cost, f, parameters)
        bound, own = rebind(hold_engine=hold_engine), _user_jac(jac, parameters, (), None)
        return Objective(f, bound, parameters, jac=own, rebind=rebind)
    if not callable(f):
        hint = " The cost comes first, and what was fitted is its start: modMCMC(cost, fit)." if is_fit(f) else ""
        raise ArgumentError(f"`f` must be a fmepy cost or a function of p; got {type(f).__name__}.{hint}")
    parameters = as_parameters(p)
    bound = BoundFunction(UserFunction(f, parameters, args, kwargs))
    own = _user_jac(jac, parameters, args, kwargs)
    objective = Objective(f, bound, parameters, kind=bound.kind, jac=own)
    objective.evaluations = 1
    with np.errstate(over="ignore"):  # residuals beyond 1e154: told by those who need their squares
        size = bound.first if bound.is_scalar else float(bound.first @ bound.first)
    objective.remember(objective.theta0.tobytes(), bound.first, size)
    return objective


def tell_held_noise(f: Any, parameters: Parameters) -> None:
    """Warn of noise that the cost says is to be estimated, where `p` leaves it out."""
    named = parameters.names if parameters.lmfit is None else tuple(parameters.lmfit)  # vary=False is meant
    held = [f"{n}={f.parms[n]:.3g}" for n in getattr(f, "to_estimate", ()) if n not in named]
    if held:
        warn(
            f"`p` leaves out noise that is 'estimate' in the cost, and it stays at a first guess: {', '.join(held)}. "
            "Standard errors and -2 log L depend on it. Name it in `p` too (or give no `p`, for all parameters), or "
            "give the cost its value in `parms`."
        )


def _bound_cost(cost: Any, parameters: Parameters, **words: Any) -> Any:
    """Return a fmepy cost bound to these parameters, the free ones where lmfit fixes or ties some."""
    tied = ties_of(parameters)
    bound = cost.bind(parameters.names if tied is None else tied.full_names, **words)
    return bound if tied is None else mapped(bound, tied, cost)


def _user_jac(jac: Any, parameters: Parameters, args: Any, kwargs: Any) -> Callable[[Vector], Matrix] | None:
    """Return a user's derivatives as a function of theta, to the free parameters also if they are to all of lmfit."""
    if jac is None:
        return None
    user, tied = UserFunction(jac, parameters, args, kwargs, called="jac"), ties_of(parameters)

    def jacobian(theta: Vector) -> Matrix:
        J = as_numbers(user(theta), "jac(p)")
        of_all = tied is not None and J.ndim > 0 and J.shape[-1] == len(tied.full_names)
        return np.asarray(tied.pull(theta, J)) if tied is not None and of_all else J

    return jacobian


class BoundFunction(OfData):
    """A user's function as a bound cost; its kind, and the number of residuals, are what it gives at the start.

    Attributes
    ----------
    kind : str
        "modcost", "vector" or "number".
    first : float or ndarray
        What it gives at the start.

    The others are those of `fmepy.costs.base.BoundCost`.
    """

    retries = 0
    has_jacobian = False
    data: CostData = KnownData.of_number()

    def __init__(self, function: UserFunction) -> None:
        parameters = function.parameters
        self._function = function
        self.parameter_names = parameters.names
        self.theta0: Vector = np.array(parameters.values, dtype=float)
        self.lower, self.upper = np.full(len(parameters), -np.inf), np.full(len(parameters), np.inf)
        try:
            first = function(self.theta0)
        except SimulationError as error:
            has_names = isinstance(function.parameters.for_user(self.theta0), Mapping)
            got = "a dict, p['k'], for `p` has names" if has_names else "an array, p[0], for `p` has no names"
            raise ArgumentError(
                f"`f` fails at the start {function.named(self.theta0)}: {sentence(error)} It gets {got}. Try f(p) by "
                "hand, or another start."
            ) from error
        self.kind, self.first = classify(first)
        self.is_scalar = self.kind == "number"
        if not np.all(np.isfinite(self.first)):
            bad = f"{self.first}" if self.is_scalar else f"{counted(count_bad(self.first), 'residual')} not finite"
            missing = "" if self.is_scalar else ", or leave out readings that are missing"
            raise ArgumentError(
                f"`f` gives {bad} at the start {function.named(self.theta0)}. Give another start{missing}."
            )
        if not self.is_scalar:
            self.data = first.fixed if self.kind == "modcost" else KnownData.unweighted(self.first.size)
        self._size = np.size(self.first)

    def residuals(self, theta: Vector) -> Vector:
        """Return the residuals, shape (n_obs,)."""
        kind, value = classify(self._function(theta))
        if kind != self.kind or np.size(value) != self._size:
            same = "" if self.is_scalar else " The residuals must be of the same data at every parameter set."
            raise ArgumentError(
                f"`f` returned {_told(kind, value)} at {self._function.named(theta)}, but "
                f"{_told(self.kind, self.first)} at the start.{same}"
            )
        out: Vector = value
        return out

    def minus2loglik(self, theta: Vector) -> float:
        """Return -2 log L."""
        return float(self.residuals(theta))

    def modcost(self, theta: Vector) -> Any:
        """Return the ModCost, None if there is none."""
        return self._function(theta) if self.kind == "modcost" else None


def _told(kind: str, value: Any) -> str:
    """Return a result's kind in words."""
    if kind == "number":
        return "one number"
    n = np.size(value)
    return f"a ModCost with {n} residuals" if kind == "modcost" else f"{n} residuals"


def classify(result: Any) -> tuple[str, Any]:
    """Return what a user's function returned: its kind, and the number or the residuals as a new array."""
    if isinstance(result, ModCost):
        if result.is_likelihood:  # its weights move with the parameters: squares alone would not do
            return "number", float(result.minus2loglik)
        return "modcost", np.array(result.res, dtype=float)
    if np.iscomplexobj(result):
        raise ArgumentError("`f` returned complex numbers; return their real and imaginary parts apart.")
    try:
        value = np.array("nothing" if result is None else result, dtype=float)
    except (TypeError, ValueError):
        raise ArgumentError(
            f"`f` returned {type(result).__name__}; a ModCost, a one-dimensional array of residuals or one number "
            "(-2 log L) is needed. A table is compared with data by modCost(model(p), obs), in a calibration file by "
            "its sections [data] and [cost]."
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


# --- models


def as_simulator(
    func: Any,
    parms: UserParameters = None,
    *,
    varied: Sequence[str] | None = None,
    argument: str = "parms",
    map: int | str | None = 0,
    args: Any = (),
    kwargs: Any = None,
) -> Simulator:
    """Return whatever the user gave as a model as a function of the parameters `varied`.

    Parameters
    ----------
    func : fmepy model, or callable
        A callable ``func(p, *args, **kwargs)`` returns a table (DataFrame, mapping of columns, or array of shape (n_x,
        n_column) with columns X1, X2, ...), or one row: a Series, a dict of numbers, a one-row table, a number (called
        X1), a one-dimensional array (X1, X2, ...).
    parms : dict, Series, sequence, number, lmfit.Parameters; for a fmepy model also names, or None for its own
        The start values, and what a user's function receives.
    varied : sequence of str, optional
        The parameters of ``theta``; default all of `parms` (of lmfit those that vary).
    argument : str
        What names `varied`, in messages.
    map : int, str or None
        The column of x in a table: its position from 0, its name, or None for none. fmepy models know their own time.
    args, kwargs
        Passed on to a user's function.

    Raises
    ------
    ParameterError
        `parms` is not usable, or `varied` names what is not in it.
    ArgumentError
        `func` is a cost or no function, fails at the start, or returns something else; there is no column `map`.

    Examples
    --------
    >>> def line(p):
    ...     return {"x": [0.0, 1.0], "y": [p["a"], p["a"] + p["b"]]}
    >>> simulator = as_simulator(line, {"a": 1, "b": 2}, varied=["b"])
    >>> simulator.names, simulator.var_names, simulator.x.tolist()
    (('b',), ('y',), [0.0, 1.0])
    >>> simulator.run(np.array([5.0])).tolist()
    [[1.0], [6.0]]
    """
    if is_cost(func):
        raise ArgumentError(
            "`func` is a cost; a model is needed here: something that returns a table of variables. Give the model "
            "itself."
        )
    if is_model(func):
        _refuse_further(args, kwargs, "model")
        simulator = _model_simulator(func, parms, varied, argument)
        if map not in (0, None, simulator.x_name):
            raise ArgumentError(f"`map={map!r}`: the model knows its own x, {simulator.x_name!r}; leave `map` out.")
        return simulator
    if not callable(func):
        raise ArgumentError(f"`func` must be a fmepy model or a function of p; got {type(func).__name__}.")
    function = UserFunction(func, as_parameters(parms, argument="parms"), args, kwargs)
    parameters = function.parameters
    names = parameters.names if varied is None else _varied(varied, parameters.names, argument)
    source = TableFunction(function, names, map)
    first = source.first
    n = len(first.Y)
    return Simulator(
        names=names,
        theta0=parameters.series()[list(names)].to_numpy(copy=True),
        parameters=parameters,
        var_names=first.var_names,
        x=np.arange(1.0, n + 1) if first.x is None else first.x,
        x_name=first.x_name,
        x_place=first.x_place,
        is_single_row=n == 1,
        rtol=None,
        bound=source,
    )


def _varied(varied: Sequence[str], known: Sequence[str], argument: str) -> tuple[str, ...]:
    return check_names([varied] if isinstance(varied, str) else varied, known, argument=argument)


def _model_simulator(model: Any, parms: UserParameters, varied: Sequence[str] | None, argument: str) -> Simulator:
    given = as_parameters(parms, model.parms, argument="parms")
    start = merge_parameters(model.parms, parms)
    tied = Tied(given) if given.lmfit is not None and any(q.expr is not None for q in given.lmfit.values()) else None
    if tied is not None:  # tied parameters move with the free ones
        names = given.names if varied is None else _varied(varied, given.names, argument)
        some = Selected.by_name(names, {n: n for n in names}, given.series())
        source = BoundAnew(model, tied.full_names, [tied, some])
    else:
        names = given.names if varied is None else _varied(varied, tuple(map(str, start.index)), argument)
        values = {} if parms is None else given.expand(given.values)
        source = BoundAnew(with_values(model, values), names)
    return Simulator(
        names=names,
        theta0=start[list(names)].to_numpy(dtype=float, copy=True),
        parameters=as_parameters(start.to_dict(), argument="parms"),
        var_names=tuple(source.bound.var_names),
        x=np.array(source.bound.times, dtype=float),
        x_name=str(getattr(model, "x_name", "time")),
        x_place=0,
        is_single_row=len(source.bound.times) == 1,
        rtol=_rtol(model),
        bound=source,
        cells=cells_of_model(model),
        profiles=profiles_at_rest(model),
    )


def _rtol(model: Any) -> float | None:
    """Return the relative tolerance of a model's solver, None if it has no error control or none is known."""
    inner = getattr(model, "inner", model)
    options = getattr(inner, "options", None)
    if options is None or getattr(inner, "method", None) in _FIXED_STEP:
        return None
    return float(options.rtol)


_FIXED_STEP = ("euler", "rk4")  # their error does not follow `rtol`
