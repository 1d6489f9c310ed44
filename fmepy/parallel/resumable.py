"""Many independent tasks on disk: what is done is kept, and the same question asked again goes on from there.

A verb asks a question (fit from these starts, follow these profiles) by running one function on many inputs. With a
folder as `checkpoint` the result of every input is kept there as it arrives; killed, interrupted, or finished, the same
call with the same folder runs what is missing and returns what an uninterrupted one returns, whatever the workers::

    with resumable_tasks(checkpoint, "a profile", seed=seed) as tasks:       # checkpoint=None: nothing is kept
        points = tasks.rng.random((n, p))                              # of the folder's own seed, when it goes on
        runs = tasks.spread(function, list(points), question={"parameters": names, "cost": value}, executor=2)

**The function** is called as by `run_many` and returns anything that a saved result may hold: numbers, texts, arrays,
tables, lists, dicts, and dataclasses that are `Stored` (`fmepy.journal.encoding`). One whose attribute ``interrupted``
is true, of a task that Ctrl-C stopped halfway, is returned but not kept. An exception of the function is kept as the
failure that it is; that a worker died, or that time was up, is not: these tasks run again.

**The folder** (`fmepy.journal.folder`) holds ``header.json`` (what it is of, and the seed) and, for every `name` of a
spread, ``NAME.json`` (the question) and ``NAME.part-000000.npz``, ... in the order in which tasks ended. Tasks do not
depend on each other: a part that is missing or damaged is set aside, and only its tasks run again. A question that
differs in anything is refused, and told in what.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from fmepy.checks import seed_sequence
from fmepy.errors import ArgumentError
from fmepy.journal.arrays import array_digest
from fmepy.journal.encoding import Encoder
from fmepy.journal.evaluations import Evaluations
from fmepy.journal.folder import Journal, seed_of, seed_table
from fmepy.journal.records import RecordSeries
from fmepy.parallel.runs import Runs, as_items
from fmepy.parallel.spreading import spread
from fmepy.parallel.worker import Outcome
from fmepy.types import Seed

_FORMAT = 2
_NOT_ITS_FAULT = {"WorkerDied", "TimedOut", "Interrupted"}


@contextmanager
def resumable_tasks(checkpoint: Any, holds: str, *, seed: Seed = None) -> Iterator[ResumableTasks]:
    """Yield what runs tasks and keeps them in a folder, to which nobody else writes meanwhile.

    Parameters
    ----------
    checkpoint : path or None
        None: nothing is kept.
    holds : str
        What the folder holds, in words ("a profile"); one that holds something else is refused.
    seed : int, Generator or None
        The folder keeps it. Going on, the folder's seed is used; an int must be the same.

    Raises
    ------
    ArgumentError
        The folder is in use, holds something else, is damaged, or cannot be written; the seed is another one.
    """
    sequence = seed_sequence(seed)
    if isinstance(seed, np.random.Generator):  # of its own, and another one each time that it is given
        sequence = sequence.spawn(1)[0]
    if checkpoint is None:
        yield ResumableTasks(None, np.random.default_rng(sequence))
        return
    folder = Journal(checkpoint, holds, _FORMAT)
    with folder.held(new=not folder.begun):
        if not folder.begun:
            folder.create(seed_table(sequence))
        header = folder.read_header()
        if folder.writable:
            folder.sweep()
        is_int = seed is not None and not isinstance(seed, np.random.Generator)
        if is_int and sequence.entropy != header["entropy"]:
            raise ArgumentError(
                f"`checkpoint`: {holds} in {str(folder.path)!r} was drawn with seed={header['entropy']!r}, not "
                f"{seed!r}. Give the same seed (or none), or name another folder."
            )
        yield ResumableTasks(folder, np.random.default_rng(seed_of(header)))


class ResumableTasks:
    """Runs tasks and keeps their results, see the module's text.

    Attributes
    ----------
    rng : Generator
        For what is drawn before the tasks: the same again when the work goes on.
    notes : list of str
        What was left aside, and what could not be kept, in sentences.
    """

    def __init__(self, folder: Journal | None, rng: np.random.Generator) -> None:
        self.folder, self.rng, self.notes = folder, rng, list[str]()

    def spread(
        self,
        function: Callable[..., Any],
        inputs: Any,
        *,
        question: Mapping[str, Any],
        name: str = "tasks",
        seeded: bool = False,
        seen: Callable[[Any], object] | None = None,
        **words: Any,
    ) -> Runs:
        """Return what `fmepy.parallel.spread` does, running what is not kept yet.

        Parameters
        ----------
        function, inputs
            A result is kept by the number of its input, so inputs must follow from the question (and the folder's
            seed).
        question : dict
            What makes this question another one, see `fmepy.journal.records`.
        name : str
            Of this round, where one folder holds several: a part of the file names.
        seeded : bool
            True: the function is called with ``rng=``, each run with its own.
        seen : callable, optional
            Gets every new result as it comes.
        **words
            executor, progress, patience and the other words of `spread`.

        Raises
        ------
        ArgumentError
            The folder is of another question, and the message says in what; a result cannot be kept.
        """
        items = as_items(inputs)
        words["seed"] = self.rng if seeded else None
        records = None if self.folder is None else RecordSeries(self.folder, name, self.notes)

        def keep(number: int, outcome: Outcome) -> None:
            ok, value = outcome
            skip = getattr(value, "interrupted", False) is True if ok else value[0] in _NOT_ITS_FAULT
            if records is not None and not skip:
                records.keep(number, outcome)
            if seen is not None and ok:
                seen(value)

        if records is None:
            return spread(function, items, keep=keep, **words)
        records.check({**question, "number of tasks": len(items)})
        known = records.load()
        try:
            return spread(function, items, known=known, keep=keep, **words)
        finally:
            records.write()

    @contextmanager
    def evaluations(self, question: Mapping[str, Any], name: str = "evaluations") -> Iterator[Evaluations]:
        """Yield what keeps evaluations of functions of a vector that take long, of this question."""
        if self.folder is None:
            yield Evaluations(None)
            return
        records = RecordSeries(self.folder, name, self.notes)
        records.check(question)
        try:
            yield Evaluations(records)
        finally:
            records.write()


# --- questions


def question_of(function: Callable[..., Any], items: list[Any]) -> dict[str, Any]:
    """Return what makes some runs of a user's function other ones: its name, and the inputs.

    Raises
    ------
    ArgumentError
        An input that no file can hold, so that it cannot be compared.
    """
    encoder = Encoder(apart=True)
    try:
        text = json.dumps(encoder.encode(items, ("inputs",)))
    except ArgumentError as error:
        raise ArgumentError(f"`checkpoint` needs inputs that a file can hold. {error}") from error
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return {"function": name, "digest of the inputs": array_digest({**encoder.arrays, " text": np.array(text)})}
