"""What goes into many runs, and what comes out: inputs as tasks, outcomes as `Runs`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fmepy.checks import seed_sequence
from fmepy.errors import ArgumentError, listed, repeated
from fmepy.journal.saving import Saved
from fmepy.parallel.worker import Outcome, Task
from fmepy.parameters.named import generated_names
from fmepy.types import BoolVector, Seed

INTERRUPTED = ("Interrupted", "Stopped by Ctrl-C before it was done.")
"""Error and message of a run that Ctrl-C left out."""


@dataclass(frozen=True, slots=True, eq=False)
class Runs(Saved):
    """The results of many runs, in order.

    Attributes
    ----------
    results : list
        One result per run, in the order of the inputs; None where the run failed.
    ok : ndarray of bool, shape (n_run,)
        True where the run came to its end.
    failures : DataFrame
        One row per failed run: its number `run` (from 0), its `parameters`, the name of the `error`, its `message`.
    interrupted : bool
        True if Ctrl-C ended it; the runs that were not done are failures named "Interrupted".

    Examples
    --------
    It can be counted, iterated and indexed as its results:

    >>> from fmepy import run_many
    >>> runs = run_many(lambda p: p**2, [1, 2, 3])
    >>> len(runs), sum(runs), runs[-1], runs[:2]
    (3, 14, 9, [1, 4])
    """

    results: list[Any]
    ok: BoolVector
    failures: pd.DataFrame
    interrupted: bool = False

    def __len__(self) -> int:
        return len(self.results)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.results)

    def __getitem__(self, which: Any) -> Any:
        return self.results[which]

    def __repr__(self) -> str:
        n, failed = len(self.results), len(self.failures)
        head = ", ".join([f"{n} {'run' if n == 1 else 'runs'}", *(counted_failures(self.failures) or ["none failed"])])
        if not failed:
            return head
        kinds = self.failures["error"].value_counts(sort=False)
        lines = [f"{head}: " + ", ".join(f"{k} {v}" for k, v in kinds.items())]
        lines += [f"  run {r.run}: {r.error}: {r.message}" for r in self.failures.head(5).itertuples()]
        if failed > 5:
            lines.append(f"  ... all {failed} are in .failures")
        return "\n".join(lines)


def counted_failures(failures: pd.DataFrame, of: str = "") -> list[str]:
    """Return how many runs failed, and how many Ctrl-C left out, those that there are.

    Examples
    --------
    >>> counted_failures(pd.DataFrame({"error": ["Interrupted", "ValueError", "Interrupted"]}), "of them ")
    ['1 of them failed', '2 of them not run (Ctrl-C)']
    """
    missed = int((failures["error"] == INTERRUPTED[0]).sum())
    failed = len(failures) - missed
    return [f"{n} {of}{what}" for n, what in ((failed, "failed"), (missed, "not run (Ctrl-C)")) if n]


def as_tasks(items: list[Any], seed: Seed) -> list[Task]:
    """Return one task per input; with a seed each has its own stream of random numbers."""
    if seed is None:
        return [Task(i, item, None) for i, item in enumerate(items)]
    children = seed_sequence(seed).spawn(len(items))
    return [Task(i, item, child) for i, (item, child) in enumerate(zip(items, children, strict=True))]


def as_items(inputs: Any) -> list[Any]:
    """Return one input per run."""
    if isinstance(inputs, Mapping):
        try:
            inputs = pd.DataFrame(dict(inputs))
        except ValueError as error:
            raise ArgumentError(f"`inputs`: a mapping must hold columns of equal length ({error}).") from None
    if isinstance(inputs, pd.DataFrame):
        columns = [str(c) for c in inputs.columns]
        if twice := repeated(columns):
            raise ArgumentError(f"`inputs` has more than one column {listed(twice)}.")
        if columns and tuple(columns) == generated_names(len(columns)):
            return list(inputs.to_numpy(dtype=float, copy=True))
        return [dict(zip(columns, row, strict=True)) for row in inputs.itertuples(index=False, name=None)]
    if isinstance(inputs, (str, bytes)) or not isinstance(inputs, Iterable):
        raise ArgumentError(
            f"`inputs` must be a table (one run per row) or a sequence of inputs; got {type(inputs).__name__}."
        )
    return list(inputs)


class Collected:
    """The outcomes so far, by the number of the run; `keep(number, outcome)` is told of those that are not known."""

    def __init__(
        self, tasks: list[Task], known: Mapping[int, Outcome], keep: Callable[[int, Outcome], object] | None = None
    ) -> None:
        self.tasks, self.keep = tasks, keep
        self.outcomes: list[Outcome | None] = [known.get(task.number) for task in tasks]
        self.done = len(known)
        self.interrupted = False

    def add(self, number: int, outcome: Outcome) -> None:
        """Keep the outcome of a run, the first there is."""
        if self.outcomes[number] is None:
            self.outcomes[number] = outcome
            self.done += 1
            if self.keep is not None:
                self.keep(number, outcome)

    def fill(self, error: str, message: str) -> None:
        """Mark whatever is not done as failed."""
        for i, outcome in enumerate(self.outcomes):
            if outcome is None:
                self.outcomes[i] = (False, (error, message))

    def runs(self) -> Runs:
        """Return all of them; none is missing."""
        outcomes = [o for o in self.outcomes if o is not None]
        failed = [(t.number, t.item, *o[1]) for t, o in zip(self.tasks, outcomes, strict=True) if not o[0]]
        return Runs(
            results=[value if ok else None for ok, value in outcomes],
            ok=np.array([ok for ok, _ in outcomes], dtype=bool),
            failures=pd.DataFrame(
                {
                    "run": pd.Series([f[0] for f in failed], dtype=np.intp),
                    "parameters": pd.Series([f[1] for f in failed], dtype=object),
                    "error": pd.Series([f[2] for f in failed], dtype=object),
                    "message": pd.Series([f[3] for f in failed], dtype=object),
                }
            ),
            interrupted=self.interrupted,
        )
