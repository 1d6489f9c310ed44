"""``scenarios``: what the model says under other conditions, for the same parameter sets in each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pandas as pd

from fmepy.costs.user_function import is_model
from fmepy.errors import ArgumentError, FmepyError, did_you_mean, listed
from fmepy.journal.saving import Saved
from fmepy.models.base import Model
from fmepy.montecarlo.normal import Norm
from fmepy.montecarlo.scenario_table import read_scenarios
from fmepy.montecarlo.scenarios import Scenarios, scenarios
from fmepy.parameters.entities import entity_text, split_local
from fmepy.workflow.file.data_file import read_beside
from fmepy.workflow.file.signatures import COUNT, NAMES, NO_FILE, Key, arguments_of
from fmepy.workflow.report.findings import Findings
from fmepy.workflow.report.pictures import Pictures, drawn_parts
from fmepy.workflow.report.tables import Table, table_of
from fmepy.workflow.report.words import short
from fmepy.workflow.steps.base import CalibrationStep, Results, RunOptions, Tables, best_fit
from fmepy.workflow.steps.scale import check_named, known_covariance, models, natural, natural_chain, with_parts

if TYPE_CHECKING:
    from fmepy.workflow.file.prepared import CalibrationTask

NUM = 100
_MOST_ENTITIES = 12  # whose tables stand in the report


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
    template = "scenarios.html"
    takes = ("fit",)
    welcomes = ("sample",)
    advice = "Take scenarios in which the model runs"

    @cached_property
    def keys(self) -> Mapping[str, Key]:
        says = "The file of scenarios, a row each: a column scenario, then what it sets."
        return arguments_of(
            scenarios, (*NO_FILE, "model", "parms", "parInput"), num=COUNT, sensvar=NAMES,
            table={"kinds": (str,), "says": says},
        )  # fmt: skip

    def files(self, arguments: Mapping[str, Any]) -> list[str]:
        return [str(arguments.get("table", ""))]

    def size(self, task: CalibrationTask, arguments: Mapping[str, Any]) -> str:
        n = len(_table(task, arguments))
        return f"{n} {'scenario' if n == 1 else 'scenarios'}, up to {arguments.get('num', NUM)} parameter sets each"

    def check(self, task: CalibrationTask, arguments: Mapping[str, Any]) -> None:
        error = task.case.section.error
        if task.model is None:
            raise error(
                (self.name,), "`scenarios` runs a model; the file's function f(p) is a cost. Name a Model instead."
            )
        if is_model(task.model):
            check_named(task, self.name, "sensvar", arguments.get("sensvar"), task.model.var_names)
        by, parts = _parts(task, _table(task, arguments))
        if by is None and getattr(task.model, "entity_inputs", None) is not None:
            raise error(
                (self.name, "table"),
                f"events or forcings of the model belong to entities, and {arguments['table']} has no column "
                f"{task.cost.entity!r} that names the entity of a scenario. Add it: a row for each scenario of each "
                "entity.",
            )
        for label, rows in parts.items():
            model = models(task)[1][label] if by is not None else task.model
            try:
                read_scenarios(rows, [str(n) for n in model.parms.index], model)
            except FmepyError as problem:
                raise error((self.name, "table"), f"{arguments['table']}: {problem}") from None

    def run(self, task: CalibrationTask, arguments: Mapping[str, Any], done: Results, options: RunOptions) -> WhatIf:
        words: dict[str, Any] = {"num": NUM} | {k: v for k, v in arguments.items() if k != "table"}
        fit = best_fit(done)
        source, draws, told = _draws(task, done, words["num"], options.seed)
        if told:
            options.remember(f"In the bands of `scenarios` {told}.")
        table = _table(task, arguments)
        by, parts = _parts(task, table)
        of_entities = models(task)[1]
        said = {str(c) for c in table.columns if table[c].notna().all()}  # of every scenario
        local = sorted({split_local(str(n))[0] for n in fit.par.index if split_local(str(n))[1] is not None} - said)
        if by is None and local:
            options.remember(
                f"{', '.join(local)} of `scenarios` stay at their start: they are fitted for each entity, and "
                f"{arguments['table']} has no column {task.cost.entity!r}."
            )
        if by is None and (set_by := [name for name in _set_by_entity(task) if name not in said]):
            options.remember(
                f"`scenarios` are run with the first entity's {', '.join(set_by)}: the conditions give each its own, "
                f"and {arguments['table']} has no column {task.cost.entity!r}."
            )
        found: dict[str, Scenarios] = {}
        for label, rows in parts.items():
            model = of_entities[label] if by is not None else task.model
            own = [str(n) for n in model.parms.index]
            values = {str(n): float(v) for n, v in natural(task, fit.par).items() if str(n) in own}
            given = None if draws is None else draws[[c for c in draws.columns if c in own]]
            found[label] = scenarios(
                model, rows, parms=values, parInput=given, seed=options.seed, executor=options.executor,
                progress=options.progress, checkpoint=options.checkpoint / f"part-{len(found)}", **words,
            )  # fmt: skip
            if found[label].interrupted:
                break
        result = WhatIf(found, by, source)
        failed, of, first = self.failed_runs(result)
        if failed:
            options.remember(f"{failed} of {of} runs of `scenarios` failed and are empty; the first: {first}")
        return result

    def tables(self, task: CalibrationTask, result: WhatIf) -> Tables:
        return {"scenarios.csv": with_parts({k: part.summary().frame for k, part in result.parts.items()}, result.by)}

    def verdict(self, task: CalibrationTask, result: WhatIf) -> str:
        one, names = next(iter(result.parts.values())), result.names
        sets = f"{len(one.pars)} parameter sets from {result.source}" if len(one.pars) > 1 else "the estimates"
        return f"{len(names)} {'scenario' if len(names) == 1 else 'scenarios'} ({', '.join(names)}), for {sets}."

    def failed_runs(self, result: WhatIf) -> tuple[int, int, str]:
        failures = pd.concat([part.failures for part in result.parts.values()])
        first = str(failures["message"].iloc[0]) if len(failures) else ""
        return len(failures), sum(len(part.names) * len(part.pars) for part in result.parts.values()), first

    def facts(self, found: Findings, result: WhatIf) -> Mapping[str, Any]:
        return {
            "n": len(next(iter(result.parts.values())).pars),
            "failed": sum(len(part.failures) for part in result.parts.values()),
            "curves": lambda: _curves(result),
            "ends": [table for label in list(result.parts)[:_MOST_ENTITIES] for table in _ends_of(result, label)],
        }  # fmt: skip


def _table(task: CalibrationTask, arguments: Mapping[str, Any]) -> pd.DataFrame:
    """Return the table that the file names, read as its data are."""
    return read_beside(task.case.section, ("scenarios", "table"), arguments["table"]).frame.reset_index(drop=True)


def _parts(task: CalibrationTask, table: pd.DataFrame) -> tuple[str | None, dict[str, pd.DataFrame]]:
    """Return the column of the entities, if the table has it, and the rows of each."""
    by, of_entities = models(task)
    if by is None or by not in table.columns:
        return None, {"": table}
    texts = table[by].map(entity_text)
    unknown = [t for t in texts if t not in of_entities]
    if unknown:
        raise task.case.section.error(
            ("scenarios", "table"),
            f"the table of scenarios names {unknown[0]!r} in {by!r}, which the data do not have."
            f"{did_you_mean(unknown[0], of_entities)} There are {listed(of_entities)}.",
        )
    parts = {}
    for label in dict.fromkeys(texts):
        local = {
            split_local(str(n))[0]: str(n) for n in of_entities[label].parms.index if split_local(str(n))[1] == label
        }
        parts[label] = table[texts == label].drop(columns=by).rename(columns=local)
    return by, parts


def _set_by_entity(task: CalibrationTask) -> list[str]:
    """Return the parameters that the conditions set in every entity, of which the file gives no value."""
    known = set(task.model.parms.index) if isinstance(task.model, Model) else set()
    rows = getattr(task.cost, "conditions", None)
    return [] if rows is None else [c for c in map(str, rows.columns) if c in known and c not in task.case.parameters]


def _draws(task: CalibrationTask, done: Results, num: int, seed: int) -> tuple[str, pd.DataFrame | None, str]:
    """Return draws of the chain, or else of the estimates inside their bounds, and what is to be said of them."""
    if done.get("sample") is not None:
        return "the chain", natural_chain(task, done["sample"]).pars, ""
    fit = best_fit(done)
    known, told = known_covariance(task, fit)
    if known is None:
        return "the fit", None, told
    par, C = fit.par[list(known.index)], fit.cov_scaled.loc[known.index, known.index]
    box = {str(n): (task.lower[n], task.upper[n]) for n in par.index}
    try:
        draws = Norm(pd.Series(par.to_dict()), pd.DataFrame(C.to_numpy()), box, num=num, seed=seed)
    except ArgumentError:  # a covariance that is not positive definite, a box that nearly nothing falls into
        return "the fit", None, "the estimates are taken as known: there are no draws from their covariance"
    return "the fit's covariance", natural(task, draws), told


# --- in the report


def _curves(result: WhatIf) -> Pictures:
    def draw(ax: Any, label: str, part: Scenarios, name: str) -> None:
        part.summary().plot(which=[name], axes=[ax])

    return drawn_parts(result.parts, result.by, draw, "{} in each scenario.", "scenarios.csv")


def _ends_of(result: WhatIf, label: str) -> list[Table]:
    """Return what the runs of an entity came to, and how far that is from the first scenario."""
    part, of = result.parts[label], f", {result.by} {short(label)}" if len(result.parts) > 1 else ""
    caption = f"At the end of the runs{of}: median, and what nine of ten runs lie between"
    tables = [table_of(_ends(part.summary()), caption, file="scenarios.csv")]
    if len(part.names) > 1:
        caption = f"More than in “{short(str(part.names[0]))}”{of}, at the end of the runs"
        tables.append(table_of(_ends(part.difference(part.names[0]).summary()), caption, file="scenarios.csv"))
    return tables


def _ends(summary: Any) -> pd.DataFrame:
    """Return the last point of each variable in each scenario."""
    last = summary.frame.groupby(["scenario", "var"], sort=False).tail(1)
    columns = {"scenario": last["scenario"].map(str), "variable": last["var"], summary.x_name: last["x"]}
    columns["median"] = last["q50"]
    if (last["N"] > 1).any():
        columns |= {"5 %": last["q05"], "95 %": last["q95"]}
    return pd.DataFrame({k: v.to_numpy() for k, v in columns.items()})
