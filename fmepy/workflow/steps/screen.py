"""``screen``: which parameters the data can determine, before any fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from fmepy.costs.modcost import ModCost
from fmepy.costs.user_function import is_ours
from fmepy.designs.structural import StructuralIdentifiability, structural_identifiability
from fmepy.errors import ArgumentError
from fmepy.journal.saving import Saved
from fmepy.sensitivity.collin import Collin, collin
from fmepy.sensitivity.identifiability import identifiability
from fmepy.sensitivity.sensfun import SensFun, sensFun
from fmepy.workflow.file.signatures import COUNT, FLAG, NAMES, NO_FILE, Key, arguments_of
from fmepy.workflow.report.findings import Findings
from fmepy.workflow.report.pictures import SINGLE, Pictures, drawn, drawn_each
from fmepy.workflow.report.words import names
from fmepy.workflow.steps.base import CalibrationStep, CalibrationTask, Requirement, Results, RunOptions, Tables
from fmepy.workflow.steps.scale import check_named, natural

_OF_COLLIN = ("parset", "N", "which", "maxcomb")
COLLINEARITY_LIMIT = 20.0
"""Collinearity from which parameters cannot be told apart (Brun et al. 2001): the only threshold of the page."""
_MOST_LINES, _MOST_BARS = 12, 40


@dataclass(frozen=True, slots=True, eq=False)
class Screened(Saved):
    """Sensitivities and collinearity of the parameters at their start.

    Attributes
    ----------
    sensitivities : SensFun
        Of the model at the data, to the fitted parameters on the natural scale.
    collinearity : Collin or None
        Of sets of parameters; None if not requested.
    together : float
        Collinearity of all fitted parameters; 1 of a single one.
    structural : StructuralIdentifiability or None
        What no data of this kind could determine; None if not requested.
    """

    sensitivities: SensFun
    collinearity: Collin | None
    together: float
    structural: StructuralIdentifiability | None = None


class ScreenStep(CalibrationStep):
    """Sensitivities at the start, and the collinearity of sets of parameters."""

    name = "screen"
    says = "Sensitivities, and which parameters the data can tell apart."
    limit = COLLINEARITY_LIMIT
    purpose = "See which parameters the data respond to, and which of them can be told apart"
    title = "What the data can tell apart"
    requirements: ClassVar[Mapping[str, Requirement]] = {
        "max_collinearity": Requirement(
            Key((float,), "The largest collinearity of all fitted parameters together.", least=1, open=True),
            lambda result: float(result.together), "the fitted parameters together have a collinearity of {:.4g}",
        )
    }  # fmt: skip

    keys: ClassVar[Mapping[str, Key]] = {
        "collin": Key(FLAG, "Whether the collinearity of sets of parameters is computed; without it true."),
        "structural": Key(FLAG, "Whether structural identifiability is judged; without it false."),
        **arguments_of(sensFun, (*NO_FILE, "func", "parms", "map"), sensvar=NAMES, senspar=NAMES,
                       tiny={"least": 0, "open": True}),
        **arguments_of(collin, (*NO_FILE, "sensfun"), parset=NAMES, which=NAMES,
                       N={"kinds": (int, list), "items": Key(**COUNT)}),
    }  # fmt: skip

    def check(self, task: CalibrationTask, arguments: Mapping[str, Any]) -> None:
        for key in ("sensvar", "map"):
            if key in arguments and is_ours(task.cost):
                raise task.error(
                    (self.name, key), f"`{key}` chooses columns of a model; the cost has its own, the data's. Leave it "
                    "out.")  # fmt: skip
        for key in ("senspar", "parset"):
            check_named(task, self.name, key, arguments.get(key), task.start.index)

    def run(self, task: CalibrationTask, arguments: Mapping[str, Any], done: Results, options: RunOptions) -> Screened:
        keywords = {k: v for k, v in arguments.items() if k not in ("collin", "structural", *_OF_COLLIN)}
        own = natural(task, task.start)
        start, f = {str(name): float(value) for name, value in own.items()}, task.cost
        if not is_ours(f):
            f, keywords = _as_table(f, start, keywords)
        low, high = natural(task, task.lower).to_dict(), natural(task, task.upper).to_dict()
        how = {"executor": options.executor, "progress": options.progress, "checkpoint": options.checkpoint}
        sens = sensFun(f, start, lower=low, upper=high, **how, **keywords)
        together = collin(sens, list(sens.names)).value if len(sens.names) > 1 else 1.0
        sets = None
        if arguments.get("collin", True) and len(sens.names) > 1:
            sets = collin(sens, **{k: arguments[k] for k in _OF_COLLIN if k in arguments})
        return Screened(sens, sets, together, _structural(task, own) if arguments.get("structural") else None)

    def tables(self, task: CalibrationTask, result: Screened) -> Tables:
        tables = {"screen.csv": result.sensitivities.summary().frame.rename_axis("parameter").reset_index()}
        if result.collinearity is not None:
            tables["collin.csv"] = result.collinearity.frame
        if result.structural is not None:
            tables["structural.csv"] = result.structural.verdicts.rename_axis("parameter").reset_index()
        return tables

    def facts(self, findings: Findings, result: Screened) -> Mapping[str, Any]:
        sens = result.sensitivities
        strength = pd.Series(sens.summary().frame["L2"].to_numpy(dtype=float), index=[str(n) for n in sens.names])
        few = findings.numbered is None and (findings.readings is None or not findings.readings["entity"].notna().any())
        combinations, largest = ([], ()) if result.together < COLLINEARITY_LIMIT else _undetermined(sens)
        return {
            "dead": [str(n) for n in strength.index[~(strength > 0)]], "live": strength[strength > 0],
            "strength": strength, "together": float(result.together), "COLLINEARITY_LIMIT": COLLINEARITY_LIMIT,
            "combinations": combinations, "largest": largest,
            "importance": len(strength) <= _MOST_BARS and partial(_importance, sens), "names": names(sens.names),
            "courses": few and len(strength) <= _MOST_LINES and partial(
                drawn_each, list(sens.var), sens.plot, finish=findings.label_x),
            "sets": None if result.collinearity is None else _sets(result.collinearity),
            "structural": [] if result.structural is None else result.structural.told(),
            "tone": lambda row, column: "bad" * (column == "collinearity" and not row[column] < COLLINEARITY_LIMIT),
        }  # fmt: skip


def _structural(task: CalibrationTask, start: pd.Series) -> StructuralIdentifiability:
    """Return the structural identifiability of the fitted parameters, the others being known."""
    own = getattr(task.model, "parms", None)
    if own is None:
        raise ArgumentError(
            "`structural` looks at the equations of a model, and the file names a Python function. Leave it out."
        )
    known = [name for name in own.index if name not in start.index]
    return structural_identifiability(task.cost, known=known, seed=0)


def _as_table(f: Any, start: dict[str, float], keywords: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return a user's function of residuals as one that returns a table, with sensitivities that are not relative."""
    first = f(dict(start))
    if np.ndim(first) == 0 and not isinstance(first, ModCost):
        raise ArgumentError(
            "`screen` looks at what the model gives for every datum, and the function gives one number. Return the "
            "residuals, or leave `screen` out."
        )
    if isinstance(first, ModCost) or np.ndim(first) != 1 or hasattr(first, "columns"):
        return f, keywords
    x = np.arange(1.0, len(first) + 1)
    return (lambda p: {"x": x, "residual": np.asarray(f(p), dtype=float)}), {"varscale": 1.0, **keywords}


def _undetermined(sens: SensFun) -> tuple[list[str], Any]:
    """Return the combinations of parameters that are not determined, and the largest sets of them that are."""
    try:
        result = identifiability(sens)
    except Exception:  # a report needs it not
        return [], ()
    return list(result.told()[:3]), result.largest


def _importance(sens: SensFun, xlabel: str, **words: Any) -> Pictures:
    from fmepy.plotting.sensitivity import plot_ranking

    size = (SINGLE[0], 1.3 + 0.26 * len(sens.names))
    return drawn(lambda axes: plot_ranking(sens, ax=axes[0], xlabel=xlabel), size=size, **words)


def _sets(collinearity: Collin) -> tuple[pd.DataFrame, pd.DataFrame | None]:
    """Return the pairs that are hardest to tell apart, and the largest sets that can be told apart."""
    sets = pd.DataFrame({"parameters": [", ".join(names) for names in collinearity.sets()]})
    sets[["how many", "collinearity"]] = collinearity.frame.iloc[:, -2:].to_numpy()
    pairs = sets[sets["how many"] == 2].sort_values("collinearity", ascending=False, kind="stable")
    good = sets[sets["collinearity"] < COLLINEARITY_LIMIT].sort_values(
        ["how many", "collinearity"], ascending=[False, True], kind="stable"
    )
    return pairs.drop(columns="how many"), good if len(collinearity.parameters) > 2 else None
