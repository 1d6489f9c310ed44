"""``scenarios``: what the model says under other conditions, for the same parameter sets in each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pandas as pd

from fmepy.errors import ArgumentError, FmepyError, check_known
from fmepy.journal.saving import Saved
from fmepy.models.base import Model
from fmepy.montecarlo.normal import Norm
from fmepy.montecarlo.scenario_table import read_scenarios
from fmepy.montecarlo.scenarios import Scenarios, ScenarioSummary, scenarios
from fmepy.parameters.entities import entity_text
from fmepy.parameters.names import split_local
from fmepy.workflow.file.signatures import COUNT, NAMES, NO_FILE, arguments_of
from fmepy.workflow.report.findings import Findings
from fmepy.workflow.report.pictures import Pictures, drawn_parts
from fmepy.workflow.report.words import many
from fmepy.workflow.steps.base import CalibrationStep, CalibrationTask, Results, RunOptions, Tables, best_fit
from fmepy.workflow.steps.scale import check_model, known_covariance, natural, natural_chain, values_for, with_parts

NUM = 100


@dataclass(frozen=True, slots=True, eq=False)
class WhatIf(Saved):
    """Runs of scenarios.

    Attributes
    ----------
    parts : dict of str to Scenarios
        By entity, as text; one of the name "" where the table names none.
    by : str or None
        The column of the entities.
    source : str
        What the parameter sets are: "the chain", "the fit's covariance", or "the fit" alone.
    """

    parts: dict[str, Scenarios]
    by: str | None
    source: str

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended one of them."""
        return any(part.interrupted for part in self.parts.values())

    @property
    def names(self) -> list[str]:
        """The scenarios, of all entities."""
        return list(dict.fromkeys(str(name) for part in self.parts.values() for name in part.names))


class ScenariosStep(CalibrationStep):
    """Runs of a table of scenarios."""

    name = "scenarios"
    says = "What the model says if."
    purpose = "Run the model under other assumptions"
    title = "What if"
    takes = ("fit",)
    welcomes = ("sample",)
    advice = "Take scenarios in which the model runs"

    keys = arguments_of(
        scenarios, (*NO_FILE, "model", "parms", "parInput"), num=COUNT, sensvar=NAMES,
        table={"kinds": (str,), "says": "The file of scenarios, a row each: a column scenario, then what it sets."},
    )  # fmt: skip

    def files(self, arguments: Mapping[str, Any]) -> list[str]:
        return [str(arguments.get("table", ""))]

    def size(self, task: CalibrationTask, arguments: Mapping[str, Any]) -> str:
        n = len(task.table((self.name, "table"), arguments["table"]))
        return f"{many(n, 'scenario')}, up to {arguments.get('num', NUM)} parameter sets each"

    def check(self, task: CalibrationTask, arguments: Mapping[str, Any]) -> None:
        check_model(task, self.name, arguments)
        by, parts = _parts(task, task.table((self.name, "table"), arguments["table"]))
        if by is None and getattr(task.model, "entity_inputs", None) is not None:
            raise task.error(
                (self.name, "table"),
                f"events or forcings of the model belong to entities, and {arguments['table']} has no column "
                f"{task.cost.entity!r} that names the entity of a scenario. Add it: a row for each scenario of each "
                "entity.",
            )
        for model, rows in parts.values():
            try:
                read_scenarios(rows, [str(n) for n in model.parms.index], model)
            except FmepyError as problem:
                raise task.error((self.name, "table"), f"{arguments['table']}: {problem}") from None

    def run(self, task: CalibrationTask, arguments: Mapping[str, Any], done: Results, options: RunOptions) -> WhatIf:
        keywords: dict[str, Any] = {"num": NUM} | {k: v for k, v in arguments.items() if k != "table"}
        fit = best_fit(done)
        source, draws, note = _draws(task, done, keywords["num"], options.seed)
        options.remember(note and f"In the bands of `scenarios` {note}.")
        table = task.table((self.name, "table"), arguments["table"])
        by, parts = _parts(task, table)
        if by is None:
            in_table = {str(c) for c in table.columns if table[c].notna().all()}  # of every scenario
            pairs = [split_local(str(k), _known(task)) for k in fit.par.index]
            local = {name for name, entity in pairs if entity is not None} - in_table
            set_by = [name for name in _set_by_entity(task) if name not in in_table]
            without = f"and {arguments['table']} has no column {getattr(task.cost, 'entity', '')!r}."
            options.remember(local and f"{', '.join(sorted(local))} of `scenarios` stay at their start: they are "
                             f"fitted for each entity, {without}")  # fmt: skip
            options.remember(set_by and f"`scenarios` are run with the first entity's {', '.join(set_by)}: the "
                             f"conditions give each its own, {without}")  # fmt: skip
        parts_run: dict[str, Scenarios] = {}
        for label, (model, rows) in parts.items():
            own = None if draws is None else draws[[c for c in draws.columns if c in model.parms.index]]
            parts_run[label] = scenarios(
                model, rows, parms=values_for(task, model, fit), parInput=own, seed=options.seed,
                executor=options.executor, progress=options.progress,
                checkpoint=options.checkpoint / f"part-{len(parts_run)}", **keywords,
            )  # fmt: skip
            if parts_run[label].interrupted:
                break
        result = WhatIf(parts_run, by, source)
        failed, of, first = self.failed_runs(result)
        options.remember(failed and f"{failed} of {of} runs of `scenarios` failed and are empty; the first: {first}")
        return result

    def tables(self, task: CalibrationTask, result: WhatIf) -> Tables:
        return {"scenarios.csv": with_parts({k: part.summary().frame for k, part in result.parts.items()}, result.by)}

    def failed_runs(self, result: WhatIf) -> tuple[int, int, str]:
        failures = pd.concat([part.failures for part in result.parts.values()])
        first = str(failures["message"].iloc[0]) if len(failures) else ""
        return len(failures), sum(len(part.names) * len(part.pars) for part in result.parts.values()), first

    def facts(self, findings: Findings, result: WhatIf) -> Mapping[str, Any]:
        by = result.by if findings.numbered is None else findings.entity_name
        runs = findings.by_curve({label: part.summary() for label, part in result.parts.items()})
        several = {label: part for label, part in result.parts.items() if len(part.names) > 1}
        differences = findings.by_curve({k: part.difference(part.names[0]).summary() for k, part in several.items()})
        return {
            "n": len(next(iter(result.parts.values())).pars), "failed": self.failed_runs(result)[0], "by": by,
            "curves": partial(_curves, findings, runs, by), "runs": runs, "differences": differences,
            "ends": lambda summary: findings.with_dates(_ends(summary), summary.x_name),
        }  # fmt: skip


def _parts(task: CalibrationTask, table: pd.DataFrame) -> tuple[str | None, dict[str, tuple[Any, pd.DataFrame]]]:
    """Return the column of the entities, if the table has it, and the model and the rows of each."""
    by, of_entities = task.models
    if by is None or by not in table.columns:
        return None, {"": (task.model, table)}
    texts = table[by].map(entity_text)
    parts = {}
    for label in dict.fromkeys(texts):
        wrong = f"the table of scenarios names {label!r} in {by!r}, which the data do not have."
        check_known(label, of_entities, wrong, partial(task.error, ("scenarios", "table")))
        model = of_entities[label]
        local = {split_local(n)[0]: n for n in map(str, model.parms.index) if split_local(n)[1] == label}
        parts[label] = (model, table[texts == label].drop(columns=by).rename(columns=local))
    return by, parts


def _known(task: CalibrationTask) -> set[str]:
    """Return the names of the model's parameters."""
    return set(task.model.parms.index) if isinstance(task.model, Model) else set()


def _set_by_entity(task: CalibrationTask) -> list[str]:
    """Return the parameters that the conditions set in every entity, of which the file gives no value."""
    known = _known(task)
    rows = getattr(task.cost, "conditions", None)
    return [] if rows is None else [c for c in map(str, rows.columns) if c in known and c not in task.case.parameters]


def _draws(task: CalibrationTask, done: Results, num: int, seed: int) -> tuple[str, pd.DataFrame | None, str]:
    """Return the source of the draws, the draws (of the chain, or of the estimates inside their bounds), and a note."""
    if done.get("sample") is not None:
        return "the chain", natural_chain(task, done["sample"]).pars, ""
    fit = best_fit(done)
    known, note = known_covariance(task, fit)
    if known is None:
        return "the fit", None, note
    par, C = fit.par[list(known.index)], fit.cov_scaled.loc[known.index, known.index]
    box = {str(n): (task.lower[n], task.upper[n]) for n in par.index}
    try:
        draws = Norm(pd.Series(par.to_dict()), pd.DataFrame(C.to_numpy()), box, num=num, seed=seed)
    except ArgumentError:  # a covariance that is not positive definite, a box that nearly nothing falls into
        return "the fit", None, "the estimates are taken as known: there are no draws from their covariance"
    return "the fit's covariance", natural(task, draws), note


# --- in the report


def _curves(findings: Findings, parts: Mapping[str, ScenarioSummary], by: str | None, **words: str) -> Pictures:
    first = next(iter(parts.values()))

    def draw(ax: Any, label: str, part: ScenarioSummary, name: str) -> None:
        is_first = part is first and name == part.frame["var"].iloc[0]
        findings.draw_summary(ax, part, name, legpos="above" if is_first else None)
        if part.x_name in (ax.get_xlabel(), ax.get_ylabel()):  # no depth next to the times
            findings.label_x(ax)

    return drawn_parts(parts, by, draw, **words)


def _ends(summary: Any) -> pd.DataFrame:
    """Return the last point of each variable in each scenario."""
    last = summary.frame.groupby(["scenario", "var"], sort=False).tail(1)
    columns = {"scenario": last["scenario"].map(str), "variable": last["var"]}
    columns |= {summary.x_name: last.iloc[:, 1]} | ({"x": last["x"]} if last.columns[2] == "x" else {})
    columns["median"] = last["q50"]
    if (last["N"] > 1).any():
        columns |= {"5 %": last["q05"], "95 %": last["q95"]}
    return pd.DataFrame({k: v.to_numpy() for k, v in columns.items()})
