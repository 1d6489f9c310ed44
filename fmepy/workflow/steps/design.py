"""``design``: which readings to take next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import pandas as pd

from fmepy.designs.optimal import OptimalDesign, design
from fmepy.workflow.file.signatures import COUNT, NAMES, NO_FILE, Key, arguments_of
from fmepy.workflow.steps.base import CalibrationStep, CalibrationTask, Results, RunOptions, Tables, best_fit
from fmepy.workflow.steps.scale import check_named, natural_fit


class DesignStep(CalibrationStep):
    """The readings that would determine the parameters best."""

    name = "design"
    says = "Which readings to take next."
    purpose = "Find the further readings that would determine the parameters best"
    title = "What to measure next"
    takes = ("fit",)

    keys: ClassVar[Mapping[str, Key]] = arguments_of(
        design, (*NO_FILE, "model", "p", "controls"), variables=NAMES, for_=NAMES, n=COUNT,
        times={"kinds": (list,), "items": Key((float,))},
        candidates={"kinds": (str,), "says": "A file of possible readings, a row each: the time, variable, sd, cost."},
        sd={"kinds": (float, dict)},
    )  # fmt: skip

    def files(self, arguments: Mapping[str, Any]) -> list[str]:
        return [str(arguments[k]) for k in ("candidates",) if k in arguments]

    def check(self, task: CalibrationTask, arguments: Mapping[str, Any]) -> None:
        if ("candidates" in arguments) == ("times" in arguments):
            raise task.error(self.name, "either `candidates`, a file of possible readings, or `times = [first, last]`.")
        check_named(task, self.name, "for_", arguments.get("for_"), task.start.index)
        if "candidates" in arguments:
            task.table((self.name, "candidates"), arguments["candidates"])
        elif len(arguments["times"]) != 2 or not arguments["times"][0] < arguments["times"][1]:
            message = f"`times` must be the first and the last time, such as [0, 10]; got {arguments['times']}."
            raise task.error((self.name, "times"), message)

    def run(
        self, task: CalibrationTask, arguments: Mapping[str, Any], done: Results, options: RunOptions
    ) -> OptimalDesign:
        keywords = dict(arguments)
        if "candidates" in keywords:
            keywords["candidates"] = task.table((self.name, "candidates"), keywords["candidates"])
        fit = best_fit(done)  # which knows the noise
        return design(task.cost, natural_fit(task, fit) if task.scale else fit, **keywords, seed=options.seed)

    def tables(self, task: CalibrationTask, result: OptimalDesign) -> Tables:
        errors = pd.DataFrame({"now": result.before, "with_these": result.after})
        return {"design.csv": result.chosen, "design_errors.csv": errors.rename_axis("parameter").reset_index()}
