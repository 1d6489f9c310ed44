"""``fit`` and ``multistart``: the parameters at which the cost is lowest, from the file's start or from several.

Of several starts the report also shows at which optima they ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, cast

import numpy as np
import pandas as pd

from fmepy.fitting.methods.registry import METHODS
from fmepy.fitting.modfit import modFit
from fmepy.fitting.result import ModFit
from fmepy.workflow.file.signatures import NO_FILE, Key, arguments_of
from fmepy.workflow.file.toml import TomlTable
from fmepy.workflow.report.findings import Findings, agreement_facts, agreement_of
from fmepy.workflow.report.pictures import Pictures, drawn
from fmepy.workflow.report.tables import Table, table_of
from fmepy.workflow.report.words import percent
from fmepy.workflow.steps.base import CalibrationStep, CalibrationTask, Results, RunOptions, Tables
from fmepy.workflow.steps.scale import at_natural_end, check_method, estimates, interval, natural

STARTS = 8
"""Of a section ``multistart`` that says no number."""
BEST_TABLES = ("estimates.csv", "residuals.csv")
_LOOSE = 0.5  # standard error relative to the estimate beyond which a parameter is hardly determined


class FitStep(CalibrationStep):
    """The best fit from the start of the file."""

    name = "fit"
    says = "The search for the best parameters."
    purpose = "Find the parameter values at which the model agrees best with the data"
    title = "The best fit"
    unit = "iteration"

    keys: ClassVar[Mapping[str, Key]] = arguments_of(
        modFit, (*NO_FILE, "starts"), method={"kinds": (str,), "choices": tuple(METHODS)}
    )

    def check(self, task: CalibrationTask, arguments: Mapping[str, Any]) -> None:
        check_method(task, self.name, arguments)

    def run(self, task: CalibrationTask, arguments: Mapping[str, Any], done: Results, options: RunOptions) -> ModFit:
        how = {"seed": options.seed, "progress": options.progress, "checkpoint": options.checkpoint}
        fit = modFit(task.scaled_cost, task.start, **bounded(task), **arguments, **how)
        if fit.at_bound or fit.failures or not (fit.converged or task.case.require.get("converged", True)):
            options.remember(fit.message)
        return fit

    def failed_runs(self, result: ModFit) -> tuple[int, int, str]:
        return result.failures, result.evaluations, result.first_failure

    def facts(self, findings: Findings, result: ModFit) -> Mapping[str, Any]:
        return {"is_other": findings.fit is not result, **best_facts(findings, self.name)}


class MultistartStep(FitStep):
    """The best fit of several starts, and where the others came to."""

    name = "multistart"
    says = "The same search from many starts."
    purpose = "Search again from many other starting points, in case a better fit was missed"
    title = "Was the best fit found?"
    unit = "start"

    keys: ClassVar[Mapping[str, Key]] = {
        "starts": Key(
            (int,), f"The number of starts, that of the file among them; without it {STARTS}.", least=2, most=1e9
        ),
        **FitStep.keys,
    }

    def read(self, section: TomlTable, arguments: dict[str, Any]) -> dict[str, Any]:
        return {"starts": STARTS, **arguments}

    def run(self, task: CalibrationTask, arguments: Mapping[str, Any], done: Results, options: RunOptions) -> ModFit:
        how = {k: getattr(options, k) for k in ("seed", "executor", "progress", "checkpoint")}
        return modFit(task.scaled_cost, task.start, **bounded(task), **arguments, **how)

    def tables(self, task: CalibrationTask, result: ModFit) -> Tables:
        many: Any = result.multistart
        return {"starts.csv": natural(task, result.starts), "optima.csv": natural(task, many.optima)}

    def failed_runs(self, result: ModFit) -> tuple[int, int, str]:
        """Return how many starts had no result if that is the larger share, else how many runs failed."""
        gone = result.starts[result.starts["value"].isna()]
        n, of = len(gone), len(result.starts)
        if n * max(result.evaluations, 1) > result.failures * of:
            return n, of, str(gone["message"].iloc[0])
        return super().failed_runs(result)

    def facts(self, findings: Findings, result: ModFit) -> Mapping[str, Any]:
        many: Any = result.multistart
        own = {} if findings.results.get("fit") is not None or findings.fit is None else best_facts(findings, self.name)
        return {
            "many": many, "is_alone": bool(own),
            "sentences": [item for part in many.shown() for item in getattr(part, "items", ())],
            "course": partial(_course, findings, result),
            **own,
        }  # fmt: skip


def bounded(task: CalibrationTask) -> dict[str, Any]:
    """Return the bounds and the prior, as modFit takes them."""
    return {"lower": task.lower.to_dict(), "upper": task.upper.to_dict(), "prior": task.fit_prior}


def best_tables(task: CalibrationTask, best: ModFit) -> Tables:
    """Return estimates.csv and residuals.csv of the fit that counts, after ``multistart`` the best of both."""
    tables = (estimates(task, best), residuals_of(task, best))
    return {name: table for name, table in zip(BEST_TABLES, tables, strict=True) if table is not None}


def residuals_of(task: CalibrationTask, fit: ModFit) -> pd.DataFrame | None:
    """Return the residuals of the data; None of a function that gives one number."""
    table: pd.DataFrame | None = None
    if fit.cost is not None:
        table = fit.cost.residuals
    elif hasattr(task.cost, "filter"):
        table = task.cost.filter(natural(task, fit.par), smooth=False).residuals
    elif len(fit.residuals):
        labels = [str(k) for k in fit.residuals.index] if fit.group_names else "residual"
        table = pd.DataFrame({"name": labels, "res": fit.residuals.to_numpy()})
    return table


# --- in the report


def best_facts(findings: Findings, section: str) -> dict[str, Any]:
    """Return the facts on the best fit: estimates, their uncertainty, agreement with the data."""
    fit: Any = findings.fit
    table = estimates(findings.task, fit)
    own, at_end = table.set_index("parameter"), at_natural_end(findings.task, fit)
    known = (own["se"] / own["estimate"].abs()).replace([np.inf], np.nan).dropna()
    agreement = agreement_of(findings)
    return {
        "fit": fit, "failed": findings.has_failed(section), "estimates": _estimate_table(findings, table, at_end),
        "at_end": at_end, "moved": [p for p in fit.at_bound if p not in at_end],
        "loose": [f"{n} (± {percent(v)})" for n, v in known[known > _LOOSE].sort_values(ascending=False).items()],
        "good": known[known <= _LOOSE],
        "without": list(own.index[~np.isfinite(own["se"]) & ~own["at_bound"] & ~own.index.isin(fit.at_kink)]),
        "agreement": agreement_facts(findings, agreement) if agreement is not None and len(agreement.rows) else None,
    }  # fmt: skip


def _estimate_table(findings: Findings, table: pd.DataFrame, at_end: Sequence[str]) -> Table | None:
    own, fit = table["parameter"], cast(ModFit, findings.fit)
    ends = interval(findings.task, fit).set_axis(table.index, axis=0)
    shown = table[["parameter", "estimate"]].assign(**{
        "standard error": table["se"], "± %": 100 * table["se"] / table["estimate"].abs().replace(0.0, np.nan),
        "95 % from": ends["lower"], "to": ends["upper"],
    })  # fmt: skip
    if table["at_bound"].any():
        where = np.where(own.isin(at_end), "its own, by nature", "yes")
        shown["on a bound"] = np.where(table["at_bound"], where, "")
    findings.add_units(shown)
    if any(descriptions := [findings.of_parameter("description", n) for n in own]):
        shown["what it is"] = descriptions

    def tone(row: Any, column: str) -> str:
        return "bad" if (column == "± %" and row["± %"] > 100 * _LOOSE) or row.get(column) == "yes" else ""

    return table_of(shown, "Estimates", file="estimates.csv", most=200, tone=tone)


def _course(findings: Findings, fit: Any, **words: Any) -> Pictures:
    """Draw the value of each search, and the parameters at which it ended, on their own scale."""
    task, many = findings.task, fit.multistart
    own: Any = many
    if task.scale:
        lower, upper = (natural(task, end).where(np.isfinite(end), end) for end in (many.lower, many.upper))
        scales = {name: "log" if task.scale.get(name) == "log" else how for name, how in many.scales.items()}
        own = replace(many, starts=natural(task, many.starts), lower=lower, upper=upper, scales=scales)

    def draw(axes: Any) -> None:
        many.plot("waterfall", ax=axes[0])
        own.plot("parameters", ax=axes[1])

    return drawn(draw, **words)
