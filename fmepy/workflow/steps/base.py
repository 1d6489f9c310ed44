"""What a step of a calibration is: a module with a name, what it needs, and what it makes.

A step gets a task (a model and a cost, ready), its arguments as the file gives them, and the results of the steps
before it. It calls one of fmepy's functions and returns what that returns, or a small `Saved` dataclass around it, so
that the same object is there whether the step ran now or was kept (``result.save``, ``fmepy.load``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pandas as pd

if TYPE_CHECKING:
    from fmepy.workflow.task import Task

Results = Mapping[str, Any]
"""What the steps before gave, by name."""


@dataclass(frozen=True, slots=True, eq=False)
class Doing:
    """How a step is run; nothing of it changes what comes out, but the seed.

    Attributes
    ----------
    seed : int
    executor : int or None
    checkpoint : Path
        A folder in which the step may keep what is done of it. It is there where an unfinished run is to go on.
    every : int
        Iterations of a chain between checkpoints.
    progress : callable of (done, total), or None
    remember : callable of str
        Tells the user a sentence, now and in the report.
    """

    seed: int
    executor: Any
    checkpoint: Path
    every: int = 1000
    progress: Callable[[int, int], object] | None = None
    remember: Callable[[str], object] = field(default=lambda sentence: None)


class Step(Protocol):
    """A step: a module of this room with these names.

    Attributes
    ----------
    NAME : str
        As in the file, and in the report.
    NEEDS : tuple of str
        Steps whose results it takes; "fit" is met by ``multistart`` too.
    FILES : tuple of str
        The tables that it may write.
    """

    NAME: str
    NEEDS: tuple[str, ...]
    FILES: tuple[str, ...]

    def total(self, task: Task, arguments: Mapping[str, Any]) -> str:
        """Return in words how much there is to run, for ``fmepy check``: "8 starts", "4 chains of 20000"."""
        ...

    def run(self, task: Task, arguments: Mapping[str, Any], done: Results, doing: Doing) -> Any:
        """Return the result: something with ``save``."""
        ...

    def tables(self, task: Task, result: Any, done: Results) -> dict[str, pd.DataFrame]:
        """Return what is written, by the name of the file."""
        ...

    def verdict(self, task: Task, result: Any) -> str:
        """Return what came of it, in one sentence, for run.json and the report."""
        ...
