"""From the scale on which parameters are fitted and sampled back to their natural scale, that of all tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from fmepy.costs.base import Cost
from fmepy.costs.user_function import as_objective, is_model
from fmepy.errors import ArgumentError, check_known
from fmepy.fitting.control import filled
from fmepy.fitting.methods.registry import METHODS, method_for
from fmepy.fitting.reading import quantile_of
from fmepy.fitting.result import ModFit
from fmepy.mcmc.result import ModMCMC
from fmepy.parameters.maps import Elementwise
from fmepy.parameters.priors import as_prior
from fmepy.workflow.steps.base import CalibrationTask

LEVEL = 0.95
"""Of the intervals of estimates in the report."""
Labelled = TypeVar("Labelled", pd.Series, pd.DataFrame)


def natural(task: CalibrationTask, values: Labelled) -> Labelled:
    """Return parameters on their own scale: a Series by name, or a table with a column each; others stay."""
    own, names = values.copy(), [name for name in values.axes[-1] if name in task.scale]
    if names:
        own[names] = Elementwise(tuple(names), task.scale).back(values[names])
    return own


def natural_chain(task: CalibrationTask, chain: ModMCMC) -> ModMCMC:
    """Return a chain with its parameters on their own scale."""
    return chain.transform(lambda draws: natural(task, draws)) if task.scale else chain


def natural_covariance(task: CalibrationTask, fit: ModFit) -> pd.DataFrame:
    """Return the covariance of the estimates on their own scale, to first order."""
    names = tuple(map(str, fit.par.index))
    slopes = Elementwise(names, task.scale).pull(fit.par.to_numpy(dtype=float), np.ones(len(names)))
    return pd.DataFrame(fit.cov_scaled.to_numpy() * np.outer(slopes, slopes), index=list(names), columns=list(names))


def natural_fit(task: CalibrationTask, fit: ModFit) -> ModFit:
    """Return a fit as one of the parameters' own scale, to first order, of the task's cost: for curves and bands."""
    slopes = Elementwise(fit.names, task.scale).pull(fit.theta, np.ones(len(fit.names)))
    with np.errstate(divide="ignore", invalid="ignore"):
        curvature = None if fit.curvature is None else fit.curvature / np.outer(slopes, slopes)
    own = natural(task, pd.Series(fit.theta, index=list(fit.names))).to_numpy()
    return replace(fit, theta=own, curvature=curvature, transforms=None, source=task.cost)


def known_covariance(task: CalibrationTask, fit: ModFit) -> tuple[pd.DataFrame | None, str]:
    """Return the covariance of the estimates that have one, and a note on the others.

    A parameter on a bound has no variance, and is taken as known; the others keep theirs. None where none has one.
    """
    C = natural_covariance(task, fit)
    has = np.isfinite(np.diag(C.to_numpy()))
    C, unknown = C.loc[has, has], [str(n) for n in C.index[~has]]
    if not has.any() or not np.isfinite(C.to_numpy()).all():
        return None, "the fit has no covariance, all estimates are taken as known"
    bound = unknown and not set(unknown) - set(fit.at_bound)
    why = f" (on {'its bound' if len(unknown) == 1 else 'their bounds'})" if bound else ""
    return C, f"{', '.join(unknown)}{why} {'is' if len(unknown) == 1 else 'are'} taken as known" if unknown else ""


def at_natural_end(task: CalibrationTask, fit: ModFit) -> list[str]:
    """Return the parameters that lie on a bound of the cost's own, such as a noise that is zero."""
    own = natural(task, fit.par)
    ends = [end for end in (getattr(task.cost, "lower", None), getattr(task.cost, "upper", None)) if end is not None]
    return [n for n in fit.at_bound if any(n in end.index and end[n] == own[n] for end in ends)]


def estimates(task: CalibrationTask, fit: ModFit) -> pd.DataFrame:
    """Return the table of estimates: parameter, estimate, se (to first order), lower, upper, start, at_bound.

    ``lower`` and ``upper`` are the bounds of the search, as in the file.
    """
    names = [str(n) for n in fit.par.index]
    with np.errstate(invalid="ignore"):
        se = np.sqrt(np.diag(natural_covariance(task, fit).to_numpy()))
    columns = {"lower": task.lower, "upper": task.upper, "start": task.start}
    parameters = {name: task.case.parameter(name) for name in names}

    def own(column: str, name: str, value: float) -> float:  # as in the file, without rounding
        in_file = getattr(parameters[name], column, value)
        return float(in_file) if np.isclose(in_file, value, rtol=1e-9, atol=0) else value

    table = pd.DataFrame({"parameter": names, "estimate": natural(task, fit.par).to_numpy(), "se": se})
    for column, values in columns.items():
        table[column] = [own(column, n, v) for n, v in zip(names, natural(task, values)[names], strict=True)]
    return table.assign(at_bound=[n in fit.at_bound for n in names])


def interval(task: CalibrationTask, fit: ModFit, level: float = LEVEL) -> pd.DataFrame:
    """Return the ends of the intervals of estimates, lower and upper, symmetric on the scale of the fit."""
    with np.errstate(invalid="ignore"):
        half = quantile_of(fit, level) * fit.std_error
    par = pd.Series(fit.par.to_numpy(dtype=float), index=fit.par.index)
    return pd.DataFrame({"lower": natural(task, par - half), "upper": natural(task, par + half)})


def check_named(task: CalibrationTask, step: str, key: str, given: Any, known: Iterable[Any]) -> None:
    """Refuse unknown names in an argument of a step, with the line and the nearest name; positions are allowed."""
    names = [given] if isinstance(given, str) else list(given or ())
    known_names = [str(k) for k in known]
    for name in names:
        if isinstance(name, str):
            check_known(name, known_names, f"`{key}` names {name!r}.", partial(task.error, (step, key)))


def with_parts(parts: dict[str, pd.DataFrame], by: str | None) -> pd.DataFrame:
    """Join tables one below the other, with the entity, if any, in the first column."""
    if by is None:
        return parts[""].reset_index(drop=True)
    return pd.concat(parts, names=[by]).reset_index(0, allow_duplicates=True).reset_index(drop=True)


def values_for(task: CalibrationTask, model: Any, fit: ModFit) -> dict[str, float]:
    """Return the estimates that a model takes, on their own scale."""
    return {str(n): float(v) for n, v in natural(task, fit.par).items() if n in model.parms.index}


# --- what several steps check before anything runs


def check_model(task: CalibrationTask, step: str, arguments: Mapping[str, Any]) -> None:
    """Refuse a step that needs a model where the file's function is a cost, and variables that the model lacks."""
    if task.model is None:
        raise task.error(
            step, f"`{step}` runs a model; the file's function f(p) is a cost. Name a Model in `python` instead, or "
            "add [data] and [cost] to a function that returns a table.")  # fmt: skip
    if is_model(task.model):
        check_named(task, step, "sensvar", arguments.get("sensvar"), task.model.var_names)


def check_method(task: CalibrationTask, step: str, arguments: Mapping[str, Any]) -> None:
    """Refuse a method that does not suit the cost or the priors, and settings that it does not know.

    What a function f(p) returns is not known before it is called; of such a cost the settings alone are looked at.
    """
    method = arguments.get("method")
    if isinstance(task.scaled_cost, Cost):
        objective = as_objective(task.scaled_cost, task.start)
        known = as_prior(task.fit_prior, objective.parameters)
        method = with_line(task, (step, "method"), method_for, method, objective, known)
    method = method or "Marq"
    if "control" in arguments:
        words = METHODS[method]
        with_line(task, (step, "control"), filled, arguments["control"], words.control, words.aliases, method)
    for name in task.start.index if METHODS[method].box else ():
        if not (abs(task.lower[name]) < float("inf") and abs(task.upper[name]) < float("inf")):
            raise task.error(
                (step, "method"), f"the method {method!r} searches a box; {name!r} needs `lower` and `upper`."
            )


def with_line(task: CalibrationTask, key: tuple[str, str], check: Callable[..., Any], *given: Any) -> Any:
    """Call a check and return its result; its error gets the line of a key of the file."""
    try:
        return check(*given)
    except ArgumentError as error:
        raise task.error(key, str(error)) from None
