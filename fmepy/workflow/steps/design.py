"""``design``: which readings to take next."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import pandas as pd

from fmepy.designs.optimal import OptimalDesign, design
from fmepy.fitting.result import ModFit
from fmepy.workflow.file.observations import read_beside
from fmepy.workflow.file.signatures import COUNT, NAMES, NO_FILE, Key, arguments_of
from fmepy.workflow.report.findings import Findings
from fmepy.workflow.report.pictures import drawn_each
from fmepy.workflow.report.words import many, number
from fmepy.workflow.steps.base import CalibrationStep, CalibrationTask, Results, RunOptions, Tables, best_fit
from fmepy.workflow.steps.scale import check_named, natural_fit


class DesignStep(CalibrationStep):
    """The readings that would tell most of the parameters."""

    name = "design"
    says = "Which readings to take next."
    purpose = "Find the further readings that would tell most of the parameters"
    title = "What to measure next"
    takes = ("fit",)

    keys: ClassVar[Mapping[str, Key]] = arguments_of(
        design, (*NO_FILE, "model", "p", "controls"), variables=NAMES, for_=NAMES, n=COUNT, times={"kinds": (list,)},
        candidates={"kinds": (str,), "says": "A file of possible readings, a row each: the time, variable, sd, cost."},
        sd={"kinds": (float, dict)},
    )  # fmt: skip

    def files(self, arguments: Mapping[str, Any]) -> list[str]:
        return [str(arguments[k]) for k in ("candidates",) if k in arguments]

    def size(self, task: CalibrationTask, arguments: Mapping[str, Any]) -> str:
        return many(arguments["n"], "reading") if "n" in arguments else "readings within a budget"

    def check(self, task: CalibrationTask, arguments: Mapping[str, Any]) -> None:
        if ("candidates" in arguments) == ("times" in arguments):
            raise task.error(self.name, "either `candidates`, a file of possible readings, or `times = [first, last]`.")
        check_named(task, self.name, "for_", arguments.get("for_"), task.start.index)
        if "candidates" in arguments:
            _table(task, arguments["candidates"])
        elif not arguments["times"][0] < arguments["times"][-1]:
            raise task.error((self.name, "times"), f"the bounds {arguments['times']} are crossed.")

    def run(
        self, task: CalibrationTask, arguments: Mapping[str, Any], done: Results, options: RunOptions
    ) -> OptimalDesign:
        words = dict(arguments)
        if "candidates" in words:
            words["candidates"] = _table(task, words["candidates"])
        return design(task.cost, _natural(task, best_fit(done)), **words, seed=options.seed)

    def tables(self, task: CalibrationTask, result: OptimalDesign) -> Tables:
        return {"design.csv": result.chosen, "design_errors.csv": _errors(result)}

    def verdict(self, task: Any, result: OptimalDesign) -> str:
        better = str((result.before / result.after).fillna(0.0).idxmax())
        now, then = number(result.before[better], 3), number(result.after[better], 3)
        more = many(len(result.chosen), "further reading")
        return f"With {more} the standard error of {better} goes from {now} to {then}."

    def facts(self, found: Findings, result: OptimalDesign) -> Mapping[str, Any]:
        return {
            "chosen": result.chosen, "errors": _errors(result),
            "efficiency": result.efficiency, "criterion": result.criterion,
            "gain": result.sensitivity["sensitivity"].notna().all() and partial(
                drawn_each, list(dict.fromkeys(result.sensitivity["variable"])), result.plot),
        }  # fmt: skip


def _natural(task: CalibrationTask, fit: ModFit) -> Any:
    """Return the fit's values on the natural scale; the fit itself where that is its own, for it knows the noise."""
    return natural_fit(task, fit).par if task.scale else fit


def _table(task: CalibrationTask, file: str) -> pd.DataFrame:
    return read_beside(task.case.section, ("design", "candidates"), file).frame.reset_index(drop=True)


def _errors(result: OptimalDesign) -> pd.DataFrame:
    both = pd.DataFrame({"now": result.before, "with_these": result.after})
    return both.rename_axis("parameter").reset_index()
