"""``multistart``: fits from several starts, and which optima they came to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from fmepy.fitting.modfit import modFit
from fmepy.fitting.result import ModFit
from fmepy.workflow.steps.base import Doing, Results, Tables
from fmepy.workflow.steps.fit import bounded
from fmepy.workflow.steps.scale import natural

if TYPE_CHECKING:
    from fmepy.workflow.file.prepared import Task

NAME = "multistart"
STARTS = 8


def needs(arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """Return nothing: it draws its starts itself."""
    return ()


def size(task: Task, arguments: Mapping[str, Any]) -> str:
    """Return how much there is to run."""
    return f"{arguments.get('starts', STARTS)} starts"


def check(task: Task, arguments: Mapping[str, Any]) -> None:
    """Refuse nothing."""


def run(task: Task, arguments: Mapping[str, Any], done: Results, doing: Doing) -> ModFit:
    """Return the best fit of several starts, on the scale of the task."""
    words: dict[str, Any] = {"starts": STARTS, **arguments}
    if words["starts"] == 1:  # which is the fit from the start, and keeps nothing
        return modFit(task.scaled_cost, task.start, **bounded(task), **words, seed=doing.seed)
    return modFit(
        task.scaled_cost, task.start, **bounded(task), **words, seed=doing.seed, executor=doing.executor,
        progress=doing.progress, checkpoint=doing.checkpoint,
    )  # fmt: skip


def tables(task: Task, result: ModFit) -> Tables:
    """Return starts.csv, a row a start, and optima.csv, a row an optimum."""
    optima = pd.DataFrame() if result.multistart is None else result.multistart.optima
    if result.multistart is None:
        optima = result.starts[["optimum", "value", *map(str, result.par.index)]].assign(count=1)
    return {
        "starts.csv": natural_columns(task, result, result.starts),
        "optima.csv": natural_columns(task, result, optima),
    }


def natural_columns(task: Task, fit: ModFit, table: pd.DataFrame) -> pd.DataFrame:
    """Return a table whose columns of parameters are on their own scale."""
    names = [str(n) for n in fit.par.index]
    out = table.copy()
    out[names] = natural(task, table[names])
    return out


def verdict(task: Task, result: ModFit) -> str:
    """Return how many starts came to the best optimum."""
    many = result.multistart
    if many is None:
        return "One start alone says nothing of other optima."
    w = len(many.optima)
    if not w:
        return f"None of {len(many.starts)} starts converged."
    return (
        f"{many.reached} of {len(many.starts)} starts reached the best value ({many.label} {result.minimised:.6g}); "
        f"{w} {'optimum was' if w == 1 else 'optima were'} found, and the chance that a further start finds another "
        f"one is about {many.missed:.2g}."
    )


def failed_runs(result: ModFit) -> tuple[int, int, str]:
    """Return how many starts came to no result, where that is the larger share, else how many runs failed."""
    gone = result.starts[result.starts["value"].isna()]
    n, of = len(gone), len(result.starts)
    if n * max(result.evaluations, 1) > result.failures * of:
        return n, of, str(gone["message"].iloc[0])
    return result.failures, result.evaluations, result.first_failure
