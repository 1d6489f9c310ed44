"""``profile``: what the data say of each parameter, the others fitted again at every value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from fmepy.fitting.methods.registry import METHODS
from fmepy.fitting.profile_result import Profile
from fmepy.fitting.profiles import profile
from fmepy.workflow.file.signatures import COUNT, INSIDE, NAMES, NO_FILE, arguments_of
from fmepy.workflow.report.findings import Findings
from fmepy.workflow.report.pictures import drawn_each
from fmepy.workflow.report.words import short
from fmepy.workflow.steps.base import CalibrationStep, CalibrationTask, Results, RunOptions, Tables, best_fit
from fmepy.workflow.steps.scale import at_natural_end, check_method, check_named, natural

_HEAD = ["parameter", "value", "cost", "ratio", "root"]
_KINDS = {
    "identifiable": "well determined", "one-sided": "bounded on one side only", "flat": "not determined by the data",
    "at a bound": "cut off by a bound", "better optimum": "a better fit was met on the way", "unfinished": "unfinished",
}  # fmt: skip


class ProfileStep(CalibrationStep):
    """Profile likelihoods, and intervals by them."""

    name = "profile"
    says = "Profile likelihoods, and intervals by them."
    purpose = "Move each parameter away from its best value, fit the others again, and see how soon the fit suffers"
    title = "How well each parameter is determined"
    takes = ("fit",)
    unit = "side"

    keys = arguments_of(
        profile, (*NO_FILE, "fit"), method={"kinds": (str,), "choices": tuple(METHODS)}, which=NAMES, level=INSIDE,
        num={**COUNT, "least": 5}, prediction={"kinds": (list,)},
    )  # fmt: skip

    def check(self, task: CalibrationTask, arguments: Mapping[str, Any]) -> None:
        check_method(task, self.name, arguments)
        check_named(task, self.name, "which", arguments.get("which"), task.start.index)

    def run(self, task: CalibrationTask, arguments: Mapping[str, Any], done: Results, options: RunOptions) -> Profile:
        keywords = dict(arguments)
        if (items := keywords.get("prediction")) is not None:  # TOML has no tuples
            keywords["prediction"] = [tuple(a) for a in items] if isinstance(items[0], list) else tuple(items)
        result = profile(
            task.scaled_cost, best_fit(done), **keywords, prior=task.fit_prior, executor=options.executor,
            progress=options.progress, checkpoint=options.checkpoint,
        )  # fmt: skip
        options.remember(result.message)
        return result

    def tables(self, task: CalibrationTask, result: Profile) -> Tables:
        own, names = _natural(task, result), [str(n) for n in result.par.index]
        frame = own.frame.set_axis([*_HEAD, *(n if n not in _HEAD else f"{n}_" for n in names)], axis=1)
        return {"profile.csv": frame, "intervals.csv": own.intervals.rename_axis("parameter").reset_index()}

    def failed_runs(self, result: Profile) -> tuple[int, int, str]:
        n = len(result.failures)
        return n, n + len(result.frame), str(result.failures["message"].iloc[0]) if n else ""

    def facts(self, findings: Findings, result: Profile) -> Mapping[str, Any]:
        own = _natural(findings.task, result)
        kinds = {str(name): _kind(str(verdict)) for name, verdict in own.verdicts[own.intervals.index].items()}
        frame = own.intervals.reset_index(names="parameter").drop(columns="level").assign(parameter=list(kinds))
        frame["verdict"] = list(kinds.values())
        groups = {str(kind): list(members) for kind, members in frame.groupby("verdict", sort=False)["parameter"]}
        findings.add_units(frame, 1)
        return {
            "profile": own, "groups": groups, "intervals": frame,
            "ends": [] if findings.fit is None else at_natural_end(findings.task, findings.fit),
            "tone": lambda row, column: "bad" * (column == "verdict" and row[column] != _KINDS["identifiable"]),
            "curves": partial(
                drawn_each, list(kinds), lambda shown, axes: own.plot(shown, axes=axes, legpos=None),
                finish=lambda ax, k: ax.set_xlabel(findings.label(list(kinds)[k]))),
            "kinds": kinds, "KINDS": _KINDS, "notes": [f"{name}: {own.verdicts[name]}" for name in kinds],
        }  # fmt: skip


def _natural(task: CalibrationTask, result: Profile) -> Profile:
    """Return profiles on the parameters' own scale; there they have no quadratic approximation."""
    if not task.scale:
        return result
    head, rest = result.frame.iloc[:, : len(_HEAD)].copy(), result.frame.iloc[:, len(_HEAD) :]
    for name in task.scale:
        mine = head["parameter"] == name
        head.loc[mine, "value"] = natural(task, head.loc[mine, ["value"]].set_axis([name], axis=1))[name]
    values = natural(task, rest.set_axis([str(n) for n in result.par.index], axis=1)).set_axis(rest.columns, axis=1)
    errors, intervals, verdicts = result.standard_error.copy(), result.intervals.copy(), result.verdicts.copy()
    errors[[n for n in errors.index if n in task.scale]] = np.nan
    for column in ("estimate", "lower", "upper"):
        intervals[column] = natural(task, intervals[column])
    for name in task.scale.keys() & set(verdicts.index):
        row = intervals.loc[name]
        ends = f"{row['estimate']:.5g}, {100 * row['level']:g} % between {row['lower']:.5g} and {row['upper']:.5g}"
        verdicts[name] = f"{verdicts[name].split(':')[0]}: {ends}."
    return replace(result, frame=pd.concat([head, values], axis=1), intervals=intervals, standard_error=errors,
                   verdicts=verdicts)  # fmt: skip


def _kind(verdict: str) -> str:
    return next((_KINDS[k] for k in _KINDS if verdict.startswith(k)), short(verdict.split(":")[0].split(",")[0], 60))
