"""What a step of a calibration is: a module with a name, what it needs, and what it makes.

A step gets a task (a model and a cost, ready), its arguments as the file gives them, and the results of the steps
before it. It calls one of fmepy's functions and returns what that returns, or a small `Saved` dataclass around it
(`fmepy.workflow.steps.results`), so that the same object is there whether the step ran now or was kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pandas as pd

from fmepy.fitting.result import ModFit

if TYPE_CHECKING:
    from fmepy.workflow.file.prepared import Task

Results = Mapping[str, Any]
"""What the steps before gave, by name."""
Tables = dict[str, pd.DataFrame]
"""What is written, by the name of the file."""

FITS = ("fit", "multistart")
"""Steps that give a fit; what needs one takes the best of those that are there."""
_TIE = 1e-4  # in -2 log L: of two fits that near the one that converged is taken, and then the first


@dataclass(frozen=True, slots=True, eq=False)
class Doing:
    """How a step is run; nothing of it changes what comes out, but the seed.

    Attributes
    ----------
    seed : int
    executor : int or None
    checkpoint : Path
        A folder, or the place of one, in which the step may keep what is done of it; where an unfinished run is to go
        on it holds that.
    every : int
        Iterations of a chain between checkpoints.
    progress : callable of (done, total), or False
    remember : callable of str
        Tells the user a sentence, now and in the report.
    """

    seed: int
    executor: Any
    checkpoint: Path
    every: int
    progress: Any
    remember: Callable[[str], object]


class Step(Protocol):
    """A step: a module of this room with these names.

    Attributes
    ----------
    NAME : str
        As in the file, and in the report.
    """

    NAME: str

    def needs(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the steps whose results it takes; "fit" is any of `FITS`."""
        ...

    def size(self, task: Task, arguments: Mapping[str, Any]) -> str:
        """Return in words how much there is to run, for ``fmepy check``: "8 starts"."""
        ...

    def check(self, task: Task, arguments: Mapping[str, Any]) -> None:
        """Refuse what the model or the cost cannot do, before anything runs; ArgumentError with the line."""
        ...

    def run(self, task: Task, arguments: Mapping[str, Any], done: Results, doing: Doing) -> Any:
        """Return the result: something with ``save``."""
        ...

    def tables(self, task: Task, result: Any) -> Tables:
        """Return what is written."""
        ...

    def verdict(self, task: Task, result: Any) -> str:
        """Return what came of it, in a sentence or two, for run.json and the report."""
        ...

    def failed_runs(self, result: Any) -> tuple[int, int, str]:
        """Return how many of its runs failed, of how many, and the first one's message."""
        ...


def best_fit(done: Results) -> ModFit:
    """Return the fit that later steps start from: the better one of ``fit`` and ``multistart``."""
    fits: list[ModFit] = [done[name] for name in FITS if done.get(name) is not None]
    least = min(fits, key=lambda fit: fit.minimised)
    near = [fit for fit in fits if _above(fit, least) <= _TIE]
    return next((fit for fit in near if fit.converged), near[0])


def _above(fit: ModFit, least: ModFit) -> float:
    """Return by how much a fit is above the best, in units of -2 log L."""
    if fit.is_scalar or fit.with_prior:
        return fit.minimised - least.minimised
    if fit.minimised <= least.minimised:
        return 0.0
    return float(fit.nobs * np.log(fit.minimised / least.minimised)) if least.minimised > 0 else np.inf
