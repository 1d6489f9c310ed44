"""``fit``: the parameters at which the cost is lowest, from the start that the file gives."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fmepy.fitting.methods.registry import METHODS
from fmepy.fitting.modfit import modFit
from fmepy.fitting.result import ModFit
from fmepy.workflow.file.signatures import NO_FILE, Key, arguments_of
from fmepy.workflow.report.agreement import agreement_facts, agreement_of
from fmepy.workflow.report.findings import Findings
from fmepy.workflow.report.pictures import SINGLE, Pictures, drawn
from fmepy.workflow.report.tables import Table, correlations, table_of
from fmepy.workflow.report.words import names, number, percent
from fmepy.workflow.steps.base import CalibrationStep, Results, RunOptions, Tables
from fmepy.workflow.steps.scale import at_natural_end, check_method, estimates, interval, natural

if TYPE_CHECKING:
    from fmepy.workflow.file.prepared import CalibrationTask

BEST_TABLES = ("estimates.csv", "residuals.csv")
_LOOSE, _ALIKE = 0.5, 0.95
_MOST_BARS, _WIDEST = 40, 200.0


class FitStep(CalibrationStep):
    """The best fit from the start of the file."""

    name = "fit"
    says = "The search for the best parameters."
    purpose = "Find the parameter values at which the model agrees best with the data"
    title = "The best fit"
    template = "fit.html"
    unit = "iteration"

    @cached_property
    def keys(self) -> Mapping[str, Key]:
        return arguments_of(modFit, (*NO_FILE, "starts"), method={"kinds": (str,), "choices": tuple(METHODS)})

    def size(self, task: CalibrationTask, arguments: Mapping[str, Any]) -> str:
        n = len(task.start)
        return f"1 search over {n} parameter{'' if n == 1 else 's'}"

    def check(self, task: CalibrationTask, arguments: Mapping[str, Any]) -> None:
        check_method(task, self.name, arguments)

    def run(self, task: CalibrationTask, arguments: Mapping[str, Any], done: Results, options: RunOptions) -> ModFit:
        how = {"seed": options.seed, "progress": options.progress, "checkpoint": options.checkpoint}
        fit = modFit(task.scaled_cost, task.start, **bounded(task), **arguments, **how)
        if fit.at_bound or fit.failures or not (fit.converged or task.case.require.get("converged", True)):
            options.remember(fit.message)
        return fit

    def verdict(self, task: CalibrationTask, result: ModFit) -> str:
        value = f"-2 log L {result.minus2loglik:.6g}" if result.is_scalar else f"sum of squares {result.ssr:.6g}"
        value += f", {result.minimised:.6g} with the prior" if result.with_prior else ""
        bound = f" On a bound: {', '.join(result.at_bound)}." if result.at_bound else ""
        if result.converged:
            return f"The fit by {result.method} converged: {value}.{bound}"
        return f"The fit by {result.method} did not converge: {value}."

    def failed_runs(self, result: ModFit) -> tuple[int, int, str]:
        return result.failures, result.evaluations, result.first_failure

    def facts(self, found: Findings, result: ModFit) -> Mapping[str, Any]:
        return {"is_other": found.fit is not result, **best_facts(found, self.name)}


def bounded(task: CalibrationTask) -> dict[str, Any]:
    """Return the bounds and the prior, as modFit takes them."""
    return {"lower": task.lower.to_dict(), "upper": task.upper.to_dict(), "prior": task.fit_prior}


def best_tables(task: CalibrationTask, best: ModFit) -> Tables:
    """Return estimates.csv and residuals.csv of the fit that counts, after ``multistart`` the best of both."""
    made = (estimates(task, best), residuals_of(task, best))
    return {name: table for name, table in zip(BEST_TABLES, made, strict=True) if table is not None}


def residuals_of(task: CalibrationTask, fit: ModFit) -> pd.DataFrame | None:
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


# --- in the report


def best_facts(found: Findings, section: str) -> dict[str, Any]:
    """Return what is to be said of the best fit: estimates, how far they can be trusted, agreement with the data."""
    fit: Any = found.fit
    ends = interval(found.task, fit)
    table = estimates(found.task, fit).assign(**{"from": ends["lower"].to_numpy(), "to": ends["upper"].to_numpy()})
    bound = [str(p) for p, b in zip(table["parameter"], table["at_bound"], strict=True) if b]
    at_end = [p for p in bound if p in at_natural_end(found.task, fit)]
    share = (table["se"] / table["estimate"].abs()).replace([np.inf], np.nan)
    known = pd.Series(share.to_numpy(dtype=float), index=table["parameter"].map(str)).dropna()
    unknown = table.loc[~np.isfinite(table["se"]), "parameter"]
    agreement = agreement_of(found)
    return {
        "fit": fit, "failed": found.has_failed(section), "estimates": _estimate_table(found, table),
        "at_end": at_end, "moved": [p for p in bound if p not in at_end],
        "loose": [f"{n} (± {percent(v)})" for n, v in known[known > _LOOSE].sort_values(ascending=False).items()],
        "good": known[known <= _LOOSE],
        "without": [str(p) for p in unknown if str(p) not in bound], "alike": _alike(fit),
        "bars": lambda: _bars(table), "correlations": correlations(
            fit.correlation, "Correlations of the estimates: near 1 or -1 a change of one is made up for by the other",
            alike=_ALIKE),
        "agreement": agreement_facts(found, agreement) if agreement is not None and len(agreement.rows) else None,
        "summary": found.filtered and found.filtered.summary([k for k in found.par if k in found.filtered.parms.index]),
        "filtered": "filter" not in found.results and (lambda: found.filtered_pictures()),
    }  # fmt: skip


def _alike(fit: Any) -> list[str]:
    """Return the pairs of parameters that are hard to tell apart, those of the highest correlation first."""
    R = np.asarray(fit.correlation, dtype=float)
    pairs = [(i, j) for i in range(len(R)) for j in range(i) if abs(R[i, j]) > _ALIKE]
    pairs.sort(key=lambda ij: -abs(R[ij]))
    return [f"{fit.names[j]} and {fit.names[i]} (correlation {number(R[i, j], 2)})" for i, j in pairs]


def _estimate_table(found: Findings, table: pd.DataFrame) -> Table:
    own = [str(n) for n in table["parameter"]]
    shown = pd.DataFrame({"parameter": own, "estimate": table["estimate"], "standard error": table["se"]})
    shown["± %"] = 100 * shown["standard error"] / shown["estimate"].abs().replace(0.0, np.nan)
    shown["95 % from"], shown["to"] = table["from"], table["to"]
    if table["at_bound"].any():
        ends = at_natural_end(found.task, found.fit) if found.fit else []
        shown["on a bound"] = [
            "" if not b else "its own, by nature" if n in ends else "yes"
            for n, b in zip(own, table["at_bound"], strict=True)
        ]
    for what, texts in (("unit", found.task.units), ("what it is", found.task.descriptions)):
        column = [found.of_parameter(texts, n) for n in own]
        if any(column):
            shown[what] = column

    def tone(row: Any, column: str) -> str:
        return "bad" if (column == "± %" and row["± %"] > 100 * _LOOSE) or row.get(column) == "yes" else ""

    return table_of(shown, "Estimates", file="estimates.csv", most=200, tone=tone)


def _bars(table: pd.DataFrame) -> Pictures | None:
    """Return each estimate with its interval, relative to the estimate, so that all have one axis."""
    ends = table[["from", "to"]].to_numpy(dtype=float)
    rows = table[np.isfinite(ends).all(axis=1) & (table["estimate"] != 0)]
    if not len(rows) or len(rows) > _MOST_BARS:
        return None
    size = rows["estimate"].abs()
    low, high = (100 * ((rows[end] - rows["estimate"]) / size).to_numpy(dtype=float) for end in ("from", "to"))
    labels, widest = [str(n) for n in rows["parameter"]], float(max(-low.min(), high.max()))

    def draw(axes: Any) -> None:
        ax, at, limit = axes[0], np.arange(len(rows)), 1.08 * min(widest, _WIDEST)
        ax.axvline(0.0, color="0.6", linewidth=0.8)
        ax.hlines(at, np.maximum(low, -limit), np.minimum(high, limit), color="C0", linewidth=3, alpha=0.55)
        ax.plot(np.zeros(len(rows)), at, "o", color="C0", markersize=5)
        ax.set_yticks(at, labels)
        ax.set(xlabel="95 % interval, in per cent of the estimate", xlim=(-limit, limit), ylim=(len(rows) - 0.4, -0.6))

    each = [f"{n} {number(a, 2)} to +{number(b, 2)}" for n, a, b in zip(labels, low, high, strict=True)]
    return drawn(
        draw, [f"95 % interval of each estimate, in per cent of it: {names(each, 20)}."],
        size=(SINGLE[0], 1.1 + 0.27 * len(rows)),
        caption="From the curvature of the fit at its best point; profiles and chain tell it without that."
        + (" Bars that reach an edge go on." if widest > _WIDEST else ""),
    )  # fmt: skip
