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
from fmepy.workflow.report.words import many, names, short
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

    def size(self, task: CalibrationTask, arguments: Mapping[str, Any]) -> str:
        which = arguments.get("which", list(task.start.index))
        return many(1 if isinstance(which, str) else len(which), "profile")

    def check(self, task: CalibrationTask, arguments: Mapping[str, Any]) -> None:
        check_method(task, self.name, arguments)
        check_named(task, self.name, "which", arguments.get("which"), task.start.index)

    def run(self, task: CalibrationTask, arguments: Mapping[str, Any], done: Results, options: RunOptions) -> Profile:
        words = dict(arguments)
        if (asked := words.get("prediction")) is not None:  # TOML has no tuples
            words["prediction"] = [tuple(a) for a in asked] if isinstance(asked[0], list) else tuple(asked)
        found = profile(
            task.scaled_cost, best_fit(done), **words, prior=task.fit_prior, executor=options.executor,
            progress=options.progress, checkpoint=options.checkpoint,
        )  # fmt: skip
        options.remember(found.message)
        return found

    def tables(self, task: CalibrationTask, result: Profile) -> Tables:
        frame = result.frame.copy()
        names = [str(n) for n in result.par.index]
        frame = frame.set_axis([*_HEAD, *(n if n not in _HEAD else f"{n}_" for n in names)], axis=1)
        values = natural(task, frame.iloc[:, len(_HEAD) :].set_axis(names, axis=1))
        frame = pd.concat([frame.iloc[:, : len(_HEAD)], values.set_axis(frame.columns[len(_HEAD) :], axis=1)], axis=1)
        for name in frame["parameter"].unique():
            mine = frame["parameter"] == name
            frame.loc[mine, "value"] = natural(task, frame.loc[mine, ["value"]].set_axis([name], axis=1)).iloc[:, 0]
        return {"profile.csv": frame, "intervals.csv": _intervals(task, result)}

    def failed_runs(self, result: Profile) -> tuple[int, int, str]:
        n = len(result.failures)
        return n, n + len(result.frame), str(result.failures["message"].iloc[0]) if n else ""

    def facts(self, found: Findings, result: Profile) -> Mapping[str, Any]:
        own = self._natural(found.task, result)
        kinds = {str(name): _kind(str(verdict)) for name, verdict in own.verdicts[own.intervals.index].items()}
        groups: dict[str, list[str]] = {}
        for name, kind in kinds.items():
            groups.setdefault(kind, []).append(name)
        ends = set() if found.fit is None else set(at_natural_end(found.task, found.fit))
        frame = own.intervals.reset_index(names="parameter").drop(columns="level")
        frame["parameter"] = list(kinds)
        frame["verdict"] = [_KINDS.get(kind, kind) for kind in kinds.values()]
        found.add_units(frame, 1)
        return {
            "profile": own, "what": "prediction" if own.predicted is not None else "parameter",
            "groups": [  # what is cut off where it ends by nature is well enough known
                (f"{_KINDS.get(kind, kind).capitalize()}: {names(members, 20)}.",
                 kind != "identifiable" and not (kind == "at a bound" and ends.issuperset(members)))
                for kind, members in groups.items()],
            "intervals": frame, "tone": lambda row, c: "bad" * (c == "verdict" and row[c] != _KINDS["identifiable"]),
            "curves": partial(
                drawn_each, list(kinds), lambda shown, axes: own.plot(shown, axes=axes, legpos=None),
                finish=lambda ax, k: ax.set_xlabel(found.label(list(kinds)[k]))),
            "kinds": {name: _KINDS.get(kind, kind) for name, kind in kinds.items()},
            "sentences": [f"{name}: {own.verdicts[name]}" for name in kinds],
        }  # fmt: skip

    def _natural(self, task: CalibrationTask, result: Profile) -> Profile:
        """Return profiles on the parameters' own scale; there they have no quadratic approximation."""
        if not task.scale:
            return result
        frame, errors = result.frame.copy(), result.standard_error.copy()
        frame["value"] = self.tables(task, result)["profile.csv"]["value"].to_numpy()
        errors[[n for n in errors.index if n in task.scale]] = np.nan
        intervals, verdicts = _intervals(task, result), {}
        for row, (name, said) in zip(intervals.to_dict("records"), result.verdicts.items(), strict=True):
            ends = f"{row['estimate']:.5g}, {100 * row['level']:g} % between {row['lower']:.5g} and {row['upper']:.5g}"
            verdicts[str(name)] = f"{str(said).split(':')[0]}: {ends}." if task.scale.get(str(name)) else str(said)
        return replace(result, frame=frame, intervals=intervals.set_index("parameter"), standard_error=errors,
                       verdicts=pd.Series(verdicts))  # fmt: skip


def _intervals(task: CalibrationTask, result: Profile) -> pd.DataFrame:
    """Return the intervals on the parameters' own scale: parameter, estimate, lower, upper, level."""
    out = result.intervals.rename_axis("parameter").reset_index()
    for column in ("estimate", "lower", "upper"):
        out[column] = natural(task, result.intervals[column]).to_numpy()
    return out


def _kind(verdict: str) -> str:
    return next((kind for kind in _KINDS if verdict.startswith(kind)), short(verdict.split(":")[0].split(",")[0], 60))
