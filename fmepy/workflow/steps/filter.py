"""``filter``: states, residuals and suspicious readings at the estimates, and forecasts beyond the data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fmepy.fimlof.cost import FimlofCost
from fmepy.workflow.steps.base import Doing, Results, Tables, best_fit
from fmepy.workflow.steps.results import Filtering
from fmepy.workflow.steps.scale import known_covariance, natural

if TYPE_CHECKING:
    from fmepy.workflow.file.prepared import Task

NAME = "filter"


def needs(arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the fit."""
    return ("fit",)


def size(task: Task, arguments: Mapping[str, Any]) -> str:
    """Return how much there is to run."""
    steps = arguments.get("steps")
    return "1 pass over the data" + (f", {steps} steps beyond them" if steps else "")


def check(task: Task, arguments: Mapping[str, Any]) -> None:
    """Refuse a cost that is no filter."""
    if not isinstance(task.cost, FimlofCost):
        raise task.case.section.error(
            (NAME,), '`filter` is the filter of a cost of kind = "fimlof"; this cost is another one.'
        )


def run(task: Task, arguments: Mapping[str, Any], done: Results, doing: Doing) -> Filtering:
    """Return the filter at the estimates, and a forecast where one is asked for."""
    fit = best_fit(done)
    result = task.cost.filter(natural(task, fit.par), smooth=arguments.get("smooth", True))
    if result.failure is not None:
        doing.remember(f"The filter broke down at the estimates: {result.failure}")
    steps, forecast = arguments.get("steps"), None
    if steps and result.failure is None:
        C, told = known_covariance(task, fit)
        if told:
            doing.remember(f"In the bands of the forecast {told}.")
        level = {"level": arguments["level"]} if "level" in arguments else {}
        forecast = result.forecast(steps, parm_cov=C, **level)
    return Filtering(result, forecast)


def tables(task: Task, result: Filtering) -> Tables:
    """Return filter.csv, a row a reading, and forecast.csv where there is one."""
    found = {"filter.csv": result.result.residuals}
    return found | ({} if result.forecast is None else {"forecast.csv": result.forecast.frame})


def verdict(task: Task, result: Filtering) -> str:
    """Return how well data and model agree."""
    flt = result.result
    if flt.failure is not None:
        return f"The filter broke down: {flt.failure}"
    flags, jumps = int(flt.residuals["flag"].sum()), int(flt.shocks["flag"].sum())
    return (
        f"{flt.nobs} readings, log-likelihood {flt.loglik:.6g}, sum of squared standardised innovations "
        f"{flt.sumsq:.4g}; {flags} suspected {'reading' if flags == 1 else 'readings'}, {jumps} "
        f"{'jump' if jumps == 1 else 'jumps'} of states."
    )


def failed_runs(result: Filtering) -> tuple[int, int, str]:
    """Return whether its one run failed, and why."""
    why = result.result.failure
    return int(why is not None), 1, why or ""
