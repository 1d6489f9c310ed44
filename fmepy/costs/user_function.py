"""Turn whatever the user gave as `f` into one `Objective`: the only place that asks "is this one of ours?".

What `f` may be, and what it becomes::

    a fmepy cost (it has ``bind``)                    its bound form, with its own Jacobian where it has one
    a function that returns a ModCost                 residuals ``res``, their groups and scales, taken from the ModCost
    a function that returns a one-dimensional array   residuals, one group, weights 1
    a function that returns one number                -2 log L

The kind of a function is found by one evaluation at the start. From then on it is fixed, and so is the number of
residuals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fmepy.costs.objective import Objective, count_bad
from fmepy.costs.sources import BoundSource, Expansion, FunctionSource, classify
from fmepy.errors import ArgumentError, SimulationError
from fmepy.models.base import bound_to
from fmepy.parameters.named import Parameters, as_parameters
from fmepy.types import UserParameters, Vector

__all__ = ["as_objective", "is_cost", "is_model"]


def is_cost(f: Any) -> bool:
    """Tell whether `f` is a fmepy cost: it can be bound, and it is not a model."""
    return callable(getattr(f, "bind", None)) and hasattr(f, "parms") and not is_model(f)


def is_model(f: Any) -> bool:
    """Tell whether `f` is a fmepy model: it can be bound, and it names its variables."""
    return callable(getattr(f, "bind", None)) and hasattr(f, "var_names")


# --- fmepy costs


def _cost_objective(cost: Any, p: UserParameters, **words: Any) -> Objective:
    parameters = as_parameters(p, cost.parms)
    expand = None
    names: Sequence[str] = parameters.names
    if parameters.lmfit is not None and len(parameters.lmfit) > len(parameters):
        expand = Expansion(parameters)
        names = expand.names
    bound = bound_to(cost, names, **words)
    positions = [list(names).index(n) for n in parameters.names]
    lower, upper = _declared(parameters, np.asarray(bound.lower)[positions], np.asarray(bound.upper)[positions])
    if bound.is_scalar:
        return Objective(
            BoundSource(cost, bound, expand, **words),
            parameters,
            kind="cost",
            is_scalar=True,
            lower=lower,
            upper=upper,
            bound=bound,
            has_score=callable(getattr(bound, "score", None)) and hasattr(bound, "information"),
        )
    return Objective(
        BoundSource(cost, bound, expand, **words),
        parameters,
        kind="cost",
        is_scalar=False,
        lower=lower,
        upper=upper,
        names=bound.names,
        x=np.asarray(bound.x, dtype=float),
        weights=np.asarray(bound.weights, dtype=float),
        groups=np.asarray(bound.groups, dtype=np.intp),
        scales=np.asarray(bound.scales, dtype=float),
        group_names=bound.group_names,
        has_jacobian=bool(bound.has_jacobian),
        bound=bound,
    )


def _declared(
    parameters: Parameters, lower: Vector | None = None, upper: Vector | None = None
) -> tuple[Vector, Vector]:
    """Return the bounds that the cost and lmfit declare, the narrower of the two."""
    n = len(parameters)
    low = np.full(n, -np.inf) if lower is None else np.array(lower, dtype=float)
    high = np.full(n, np.inf) if upper is None else np.array(upper, dtype=float)
    if parameters.lower is not None:
        low = np.maximum(low, parameters.lower)
    if parameters.upper is not None:
        high = np.minimum(high, parameters.upper)
    return low, high


# --- functions of the user


def _function_objective(
    f: Callable[..., Any],
    parameters: Parameters,
    jac: Callable[..., Any] | None,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> Objective:
    source = FunctionSource(f, parameters, jac, args, kwargs)
    theta = np.array(parameters.values, dtype=float)
    try:
        first = source.call(theta)
    except SimulationError as error:
        raise ArgumentError(
            f"`f` fails at the start {source.named(theta)}: {error} Try f(p) by hand, or another start."
        ) from error
    source.kind, value = classify(first)
    source.n_obs = 0 if source.kind == "number" else value.size
    if not np.all(np.isfinite(value)):
        what = f"{float(value)}" if source.kind == "number" else f"{count_bad(value)} residuals that are not finite"
        raise ArgumentError(f"`f` gives {what} at the start {source.named(theta)}. Give another start.")
    lower, upper = _declared(parameters)
    fields: dict[str, Any] = {}
    if source.kind == "modcost":
        table, var = first.residuals, first.var
        groups = np.repeat(np.arange(len(var)), var["N"].to_numpy(dtype=int))
        fields = {
            "names": table["name"].astype(str).tolist(),
            "x": table["x"].to_numpy(dtype=float, copy=True),
            "weights": table["weight"].to_numpy(dtype=float, copy=True),
            "groups": groups.astype(np.intp),
            "scales": var["scale"].to_numpy(dtype=float, copy=True),
            "group_names": var["name"].astype(str).tolist(),
            "data": first.data,
        }
    objective = Objective(
        source, parameters, kind=source.kind, is_scalar=source.kind == "number", lower=lower, upper=upper,
        has_jacobian=jac is not None and source.kind != "number", **fields,
    )  # fmt: skip
    objective.evaluations = 1
    with np.errstate(over="ignore"):  # residuals beyond 1e154: told by those who need their squares
        objective.remember(theta.tobytes(), value, value if objective.is_scalar else float(value @ value))
    return objective


def as_objective(
    f: Any,
    p: UserParameters = None,
    *,
    jac: Any = None,
    args: Any = (),
    kwargs: Any = None,
    hold_engine: bool = False,
    runs: int = 1,
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
        ``jac(p, *args, **kwargs)``, shape (n_obs, n_par): the derivatives of the residuals as `f` returns them.
    args, kwargs
        Passed on to `f` and `jac`.
    hold_engine : bool
        Stay with the engine that finished the first difficult run, so that the cost has no jumps.
    runs : int
        How often about the cost will be evaluated, see `fmepy.models.base`.

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
            "`f` is a model; a cost is needed. Hold it against data: SimulationCost(model, obs), or a function that "
            "returns modCost(model(p), obs)."
        )
    if jac is not None and not callable(jac):
        raise ArgumentError(f"`jac` must be a function of p; got {type(jac).__name__}. For a matrix A: lambda p: A.")
    if is_cost(f):
        if args or kwargs:
            raise ArgumentError(
                "`args` and `kwargs` are for functions of your own; a fmepy cost takes parameters only."
            )
        objective = _cost_objective(f, p, hold_engine=hold_engine, runs=runs)
        if jac is not None:
            _use_jac(objective, jac)
        return objective
    if not callable(f):
        raise ArgumentError(f"`f` must be a fmepy cost or a function of p; got {type(f).__name__}.")
    if isinstance(args, (str, bytes)) or not isinstance(args, (tuple, list)):
        raise ArgumentError(f"`args` must be a tuple of further arguments; got {args!r}. Write args=({args!r},).")
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise ArgumentError(f"`kwargs` must be a dict of further named arguments; got {type(kwargs).__name__}.")
    parameters = as_parameters(p)
    objective = _function_objective(f, parameters, jac, tuple(args), kwargs or {})
    if jac is not None and objective.is_scalar:
        raise ArgumentError(
            "`jac` gives the derivatives of residuals, but `f` returns one number. Leave it out, or return residuals."
        )
    return objective


def _use_jac(objective: Objective, jac: Callable[..., Any]) -> None:
    """Let a user's `jac` replace the derivatives of a fmepy cost."""
    if objective.is_scalar:
        raise ArgumentError("`jac` gives the derivatives of residuals, but this cost is one number, -2 log L.")
    source: Any = objective._source
    given = FunctionSource(lambda p: None, objective.parameters, jac, (), {})
    source.jacobian = given.jacobian
    objective.has_jacobian = True
