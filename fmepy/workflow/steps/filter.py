"""``filter``: states, residuals and suspicious readings at the estimates, and forecasts beyond the data."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from fmepy.fimlof.cost import FimlofCost
from fmepy.fimlof.diagnostics import Correlations
from fmepy.fimlof.forecasting import Forecast
from fmepy.fimlof.result import FilterResult
from fmepy.journal.saving import Saved
from fmepy.workflow.file.signatures import COUNT, FLAG, INSIDE, Key
from fmepy.workflow.report.findings import Findings
from fmepy.workflow.report.pictures import Pictures, drawn, first_few
from fmepy.workflow.steps.base import CalibrationStep, CalibrationTask, Results, RunOptions, Tables, best_fit
from fmepy.workflow.steps.scale import known_covariance, natural

_DIAGNOSED = 4  # variables whose four pictures are drawn


@dataclass(frozen=True, slots=True, eq=False)
class Filtering(Saved):
    """A filter run at the estimates, and what it expects beyond the data.

    Attributes
    ----------
    result : FilterResult
    forecast : Forecast or None
        None if not requested.
    correlations : Correlations or None
        Of the innovations, over `max_lag` lags; None where the file does not say how many.
    """

    result: FilterResult
    forecast: Forecast | None
    correlations: Correlations | None = None


class FilterStep(CalibrationStep):
    """The filter of a FIMLOF cost at the estimates."""

    name = "filter"
    says = "The filter's predictions of every reading (costs by FIMLOF)."
    purpose = "Follow the data with a Kalman filter, reading by reading, and test what it could not predict"
    title = "The filter: reading by reading"
    takes = ("fit",)
    advice = "Take other parameters"
    keys: ClassVar[Mapping[str, Key]] = {
        "smooth": Key(FLAG, "Whether states are also smoothed; without it true."),
        "steps": Key(**COUNT, says="The number of steps of a forecast after the data; without it none."),
        "level": Key((float,), "Of the forecast's bands; without it 0.95.", **INSIDE),
        "max_lag": Key(
            **COUNT, says="The lags of the innovations' correlations that are written and drawn; without it none."
        ),
    }

    def check(self, task: CalibrationTask, arguments: Mapping[str, Any]) -> None:
        if not isinstance(task.cost, FimlofCost):
            raise task.error(
                (self.name,), '`filter` is the filter of a cost of kind = "fimlof"; this cost is another one.'
            )

    def run(self, task: CalibrationTask, arguments: Mapping[str, Any], done: Results, options: RunOptions) -> Filtering:
        fit = best_fit(done)
        result = task.cost.filter(natural(task, fit.par), smooth=arguments.get("smooth", True))
        if result.failure is not None:
            options.remember(f"The filter broke down at the estimates: {result.failure}")
        steps, forecast = arguments.get("steps"), None
        if steps and result.failure is None:
            C, note = known_covariance(task, fit)
            options.remember(note and f"In the bands of the forecast {note}.")
            level = {"level": arguments["level"]} if "level" in arguments else {}
            with warnings.catch_warnings(action="ignore"):  # its message says what it warns of
                forecast = result.forecast(steps, parm_cov=C, **level)
            options.remember(forecast.message)
        lags = arguments.get("max_lag") if result.failure is None else None
        return Filtering(result, forecast, lags and result.correlations(lags, estimated=natural(task, fit.par)))

    def tables(self, task: CalibrationTask, result: Filtering) -> Tables:
        tables = {"filter.csv": result.result.residuals}
        more = {"forecast.csv": result.forecast, "correlations.csv": result.correlations}
        return tables | {file: table.frame for file, table in more.items() if table is not None}

    def failed_runs(self, result: Filtering) -> tuple[int, int, str]:
        why = result.result.failure
        return int(why is not None), 1, why or ""

    def facts(self, findings: Findings, result: Filtering) -> Mapping[str, Any]:
        taken = "" if findings.fit is None else known_covariance(findings.task, findings.fit)[1]
        return {"taken_as_known": taken, "diagnostics": partial(_diagnostics, findings.filtered)}


def _diagnostics(flt: Any, kinds: Sequence[str], caption: str) -> Pictures:
    names, rest = first_few(list(flt.variables), _DIAGNOSED)
    texts, caption = [f"{name}: {kind}" for name in names for kind in kinds], f"{caption} {rest}"
    return drawn(
        lambda axes: flt.plot_diagnostics(names, axes=axes), [f"{t}." for t in texts], size=(3.6, 2.7), captions=texts,
        caption=caption,
    )  # fmt: skip
