"""``fit``: the parameters at which the cost is lowest, from the start that the file gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from fmepy.fitting.modfit import modFit
from fmepy.fitting.result import ModFit
from fmepy.workflow.steps.base import Doing, Results, Tables
from fmepy.workflow.steps.scale import estimates, natural

if TYPE_CHECKING:
    from fmepy.workflow.file.prepared import Task

NAME = "fit"
BEST_TABLES = ("estimates.csv", "residuals.csv")


def needs(arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """Return nothing: it begins at the start."""
    return ()


def size(task: Task, arguments: Mapping[str, Any]) -> str:
    """Return how much there is to run."""
    n = len(task.start)
    return f"1 search over {n} parameter{'' if n == 1 else 's'}"


def check(task: Task, arguments: Mapping[str, Any]) -> None:
    """Refuse nothing."""


def run(task: Task, arguments: Mapping[str, Any], done: Results, doing: Doing) -> ModFit:
    """Return the fit, on the scale of the task."""
    fit = modFit(task.scaled_cost, task.start, **bounded(task), **arguments, seed=doing.seed, progress=doing.progress)
    if fit.at_bound or fit.failures or not (fit.converged or task.case.require.get("converged", True)):
        doing.remember(fit.message)
    return fit


def bounded(task: Task) -> dict[str, Any]:
    """Return the bounds and the prior, as modFit takes them."""
    return {"lower": task.lower.to_dict(), "upper": task.upper.to_dict(), "prior": task.fit_prior}


def tables(task: Task, result: ModFit) -> Tables:
    """Return nothing: estimates are those of the best fit, see `best_tables`."""
    return {}


def best_tables(task: Task, best: ModFit) -> Tables:
    """Return estimates.csv and residuals.csv of the fit that counts, after ``multistart`` the best of both."""
    made = (estimates(task, best), residuals_of(task, best))
    return {name: table for name, table in zip(BEST_TABLES, made, strict=True) if table is not None}


def residuals_of(task: Task, fit: ModFit) -> pd.DataFrame | None:
    """Return the residuals of the data; None of a function that gives one number."""
    if fit.cost is not None:
        table: pd.DataFrame = fit.cost.residuals
        return table
    if hasattr(task.cost, "filter"):
        filtered: pd.DataFrame = task.cost.filter(natural(task, fit.par), smooth=False).residuals
        return filtered
    if not len(fit.residuals):
        return None
    labels = [str(k) for k in fit.residuals.index] if fit.group_names else ["residual"] * len(fit.residuals)
    return pd.DataFrame({"name": labels, "res": fit.residuals.to_numpy()})


def verdict(task: Task, result: ModFit) -> str:
    """Return whether it converged, and where to."""
    value = f"-2 log L {result.minus2loglik:.6g}" if result.is_scalar else f"sum of squares {result.ssr:.6g}"
    value += f", {result.minimised:.6g} with the prior" if result.with_prior else ""
    bound = f" On a bound: {', '.join(result.at_bound)}." if result.at_bound else ""
    if result.converged:
        return f"The fit by {result.method} converged: {value}.{bound}"
    return f"The fit by {result.method} did not converge: {value}."


def failed_runs(result: ModFit) -> tuple[int, int, str]:
    """Return how many runs of the cost failed, of how many, and the first one's message."""
    return result.failures, result.evaluations, result.first_failure
