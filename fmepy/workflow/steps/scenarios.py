"""``scenarios``: what the model says under other conditions, for the same parameter sets in each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from fmepy.costs.user_function import is_model
from fmepy.errors import ArgumentError, FmepyError, did_you_mean, listed
from fmepy.models.base import Model
from fmepy.montecarlo.normal import Norm
from fmepy.montecarlo.scenario_table import read_scenarios
from fmepy.montecarlo.scenarios import Scenarios, scenarios
from fmepy.parameters.entities import entity_text, split_local
from fmepy.workflow.steps.base import Doing, Results, Tables, best_fit
from fmepy.workflow.steps.results import WhatIf
from fmepy.workflow.steps.scale import check_named, known_covariance, models, natural, natural_chain, with_parts

if TYPE_CHECKING:
    from fmepy.workflow.file.prepared import Task

NAME = "scenarios"
NUM = 100


def needs(arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the fit; a chain is taken where there is one."""
    return ("fit",)


def size(task: Task, arguments: Mapping[str, Any]) -> str:
    """Return how much there is to run."""
    n = len(_table(task, arguments))
    return f"{n} {'scenario' if n == 1 else 'scenarios'}, up to {arguments.get('num', NUM)} parameter sets each"


def check(task: Task, arguments: Mapping[str, Any]) -> None:
    """Refuse a function of the user's, and a table that says what the model cannot do."""
    error = task.case.section.error
    if task.model is None:
        raise error((NAME,), "`scenarios` runs a model; the file's function f(p) is a cost. Name a Model instead.")
    if is_model(task.model):
        check_named(task, NAME, "sensvar", arguments.get("sensvar"), task.model.var_names)
    by, parts = _parts(task, _table(task, arguments))
    if by is None and getattr(task.model, "entity_inputs", None) is not None:
        raise error(
            (NAME, "table"),
            f"events or forcings of the model belong to entities, and {arguments['table']} has no column "
            f"{task.cost.entity!r} that says of whom a scenario is. Add it: a row for each scenario of each entity.",
        )
    for label, rows in parts.items():
        model = models(task)[1][label] if by is not None else task.model
        try:
            read_scenarios(rows, [str(n) for n in model.parms.index], model)
        except FmepyError as problem:
            raise error((NAME, "table"), f"{arguments['table']}: {problem}") from None


def _table(task: Task, arguments: Mapping[str, Any]) -> pd.DataFrame:
    """Return the table that the file names, read as its data are."""
    from fmepy.workflow.file.data_file import read_beside

    return read_beside(task.case.section, (NAME, "table"), arguments["table"]).frame.reset_index(drop=True)


def _parts(task: Task, table: pd.DataFrame) -> tuple[str | None, dict[str, pd.DataFrame]]:
    """Return the column of the entities, if the table has it, and the rows of each."""
    by, of_entities = models(task)
    if by is None or by not in table.columns:
        return None, {"": table}
    texts = table[by].map(entity_text)
    unknown = [t for t in texts if t not in of_entities]
    if unknown:
        raise task.case.section.error(
            (NAME, "table"),
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


def run(task: Task, arguments: Mapping[str, Any], done: Results, doing: Doing) -> WhatIf:
    """Return the runs of all scenarios, of the chain's draws, or of the fit's covariance where there is no chain."""
    words: dict[str, Any] = {"num": NUM} | {k: v for k, v in arguments.items() if k != "table"}
    fit = best_fit(done)
    source, draws, told = _draws(task, done, words["num"], doing.seed)
    if told:
        doing.remember(f"In the bands of `scenarios` {told}.")
    table = _table(task, arguments)
    by, parts = _parts(task, table)
    of_entities = models(task)[1]
    said = {str(c) for c in table.columns if table[c].notna().all()}  # of every scenario
    local = sorted({split_local(str(n))[0] for n in fit.par.index if split_local(str(n))[1] is not None} - said)
    if by is None and local:
        doing.remember(
            f"{', '.join(local)} of `scenarios` stay at their start: they are fitted for each entity, and "
            f"{arguments['table']} has no column {task.cost.entity!r}."
        )
    if by is None and (set_by := [name for name in _set_by_entity(task) if name not in said]):
        doing.remember(
            f"`scenarios` are run with the first entity's {', '.join(set_by)}: the conditions give each its own, and "
            f"{arguments['table']} has no column {task.cost.entity!r}."
        )
    found: dict[str, Scenarios] = {}
    for label, rows in parts.items():
        model = of_entities[label] if by is not None else task.model
        own = [str(n) for n in model.parms.index]
        values = {str(n): float(v) for n, v in natural(task, fit.par).items() if str(n) in own}
        given = None if draws is None else draws[[c for c in draws.columns if c in own]]
        found[label] = scenarios(
            model, rows, parms=values, parInput=given, seed=doing.seed, executor=doing.executor,
            progress=doing.progress, checkpoint=doing.checkpoint / f"part-{len(found)}", **words,
        )  # fmt: skip
        if found[label].interrupted:
            break
    result = WhatIf(found, by, source)
    failed, of, first = failed_runs(result)
    if failed:
        doing.remember(f"{failed} of {of} runs of `scenarios` failed and are empty; the first: {first}")
    return result


def _set_by_entity(task: Task) -> list[str]:
    """Return the parameters that the conditions set in every entity, of which the file gives no value."""
    known = set(task.model.parms.index) if isinstance(task.model, Model) else set()
    rows = getattr(task.cost, "conditions", None)
    return [] if rows is None else [c for c in map(str, rows.columns) if c in known and c not in task.case.parameters]


def _draws(task: Task, done: Results, num: int, seed: int) -> tuple[str, pd.DataFrame | None, str]:
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


def tables(task: Task, result: WhatIf) -> Tables:
    """Return scenarios.csv: [entity,] scenario, x, var, mean, sd, extremes, quantiles."""
    return {"scenarios.csv": with_parts({k: part.summary().frame for k, part in result.parts.items()}, result.by)}


def verdict(task: Task, result: WhatIf) -> str:
    """Return what was run."""
    one = next(iter(result.parts.values()))
    names = list(dict.fromkeys(str(name) for part in result.parts.values() for name in part.names))
    sets = f"{len(one.pars)} parameter sets from {result.source}" if len(one.pars) > 1 else "the estimates"
    return f"{len(names)} {'scenario' if len(names) == 1 else 'scenarios'} ({', '.join(names)}), for {sets}."


def failed_runs(result: WhatIf) -> tuple[int, int, str]:
    """Return how many runs failed, of how many, and the first one's message."""
    failures = pd.concat([part.failures for part in result.parts.values()])
    first = str(failures["message"].iloc[0]) if len(failures) else ""
    return len(failures), sum(len(part.names) * len(part.pars) for part in result.parts.values()), first
