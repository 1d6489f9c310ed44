"""``multistart``: fits from several starts, and which optima they came to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from fmepy.fitting.modfit import modFit
from fmepy.fitting.result import ModFit
from fmepy.workflow.file.signatures import Key
from fmepy.workflow.file.toml import TomlTable
from fmepy.workflow.report.findings import Findings
from fmepy.workflow.report.pictures import Pictures, drawn
from fmepy.workflow.steps.base import CalibrationTask, Results, RunOptions, Tables
from fmepy.workflow.steps.fit import FitStep, best_facts, bounded
from fmepy.workflow.steps.scale import natural

STARTS = 8
"""Of a section that says no number."""


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
        """Return how many starts came to no result, where that is the larger share, else how many runs failed."""
        gone = result.starts[result.starts["value"].isna()]
        n, of = len(gone), len(result.starts)
        if n * max(result.evaluations, 1) > result.failures * of:
            return n, of, str(gone["message"].iloc[0])
        return super().failed_runs(result)

    def facts(self, found: Findings, result: ModFit) -> Mapping[str, Any]:
        many: Any = result.multistart
        own = {} if found.results.get("fit") is not None or found.fit is None else best_facts(found, self.name)
        return {
            "many": many, "is_alone": bool(own),
            "sentences": [item for part in many.shown() for item in getattr(part, "items", ())],
            "course": partial(_course, found, result),
            **own,
        }  # fmt: skip


def _course(found: Findings, fit: Any, **words: Any) -> Pictures:
    """Return how good each search became, and where it ended, with the parameters on their own scale."""
    task, many = found.task, fit.multistart
    own: Any = many
    if task.scale:
        lower, upper = (natural(task, end).where(np.isfinite(end), end) for end in (many.lower, many.upper))
        scales = {name: "log" if task.scale.get(name) == "log" else how for name, how in many.scales.items()}
        own = replace(many, starts=natural(task, many.starts), lower=lower, upper=upper, scales=scales)

    def draw(axes: Any) -> None:
        many.plot("waterfall", ax=axes[0])
        own.plot("parameters", ax=axes[1])

    return drawn(draw, **words)
