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

import errno
import json
import logging
import math
import os
import reprlib
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from fmepy.checks import seed_sequence
from fmepy.errors import ArgumentError, FmepyError
from fmepy.journal.arrays import DAMAGE, array_digest
from fmepy.journal.encoding import Decoder, Encoder
from fmepy.journal.folder import Journal, reason, seed_of, seed_table
from fmepy.parallel.runs import Runs, as_items
from fmepy.parallel.spreading import spread
from fmepy.parallel.worker import Outcome
from fmepy.types import Seed

logger = logging.getLogger("fmepy.parallel")

_FORMAT = 2
_PAUSE = 0.5  # seconds between parts: what is quick is written together
_AGREE = 1e-9  # relative: what the linear algebra of another machine may change in a number of the question
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
            What makes this question another one, by a name that explains it: numbers (compared to 1e-9), texts, lists
            and dicts of them, arrays.
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
        parts = None if self.folder is None else _Parts(self.folder, name, self.notes)

        def keep(number: int, outcome: Outcome) -> None:
            if parts is not None:
                parts.keep(number, outcome)
            if seen is not None and outcome[0]:
                seen(outcome[1])

        if parts is None:
            return spread(function, items, keep=keep, **words)
        parts.check({**question, "number of tasks": len(items)})
        known = parts.load(len(items))
        try:
            return spread(function, items, known=known, keep=keep, **words)
        finally:
            parts.write()


class _Parts:
    """The parts of one round: read once, then added to."""

    def __init__(self, folder: Journal, name: str, notes: list[str]) -> None:
        self.folder, self.name, self.notes = folder, name, notes
        self.waiting: dict[int, Outcome] = {}
        self.written = time.monotonic()
        self.number = 0
        self.unkept = False

    def check(self, question: Mapping[str, Any]) -> None:
        """Write the question, or raise an ArgumentError if it is not the one that the folder keeps."""
        question = json.loads(json.dumps(question, default=_plain))  # as it is read
        folder, file = self.folder, f"{self.name}.json"
        if not (folder.path / file).exists():
            if folder.parts(self.name):
                raise ArgumentError(
                    f"`checkpoint`: {folder.path / file} is missing. Put it back, or name another folder."
                )
            folder.write_table(file, {"question": question})
            return
        try:
            before = folder.read_table(file)["question"]
        except DAMAGE as error:
            raise ArgumentError(
                f"`checkpoint`: {folder.path / file} cannot be read: {reason(error)}. Put back a copy of it, or name "
                "another folder."
            ) from error
        for key in (*question, *(k for k in before if k not in question)):
            if not _agree(before.get(key), question.get(key)):
                raise ArgumentError(
                    f"`checkpoint`: {folder.holds} in {str(folder.path)!r} is of another question: its {key} is "
                    f"{_short(before.get(key))}, now it is {_short(question.get(key))}. Ask the same, or name another "
                    "folder."
                )

    def load(self, n: int) -> dict[int, Outcome]:
        """Return the outcomes that are there, by number; set aside what cannot be read, and say so."""
        known: dict[int, Outcome] = {}
        for file in self.folder.parts(self.name):
            try:
                self.number = max(self.number, int(file.stem.removeprefix(f"{self.name}.part-")) + 1)
                found = self._read(file, n)
            except (*DAMAGE, AttributeError, FmepyError) as error:
                aside = self.folder.put_aside([file])
                self._note(f"{file.name} cannot be read ({reason(error)}); its tasks run again. {aside}")
                continue
            known = found | known
        return known

    def _read(self, file: Any, n: int) -> dict[int, Outcome]:
        table, arrays = self.folder.read_part(file)
        decode = Decoder(arrays).decode
        found = {int(k): (ok is True, decode(value)) for k, ok, value in table["tasks"]}
        if table["name"] != self.name or not all(0 <= k < n for k in found):
            raise ValueError("it belongs to another round")
        return found

    def keep(self, number: int, outcome: Outcome) -> None:
        """Keep the outcome of a task, soon."""
        ok, value = outcome
        if getattr(value, "interrupted", False) is True if ok else value[0] in _NOT_ITS_FAULT:
            return
        self.waiting[number] = outcome
        if time.monotonic() - self.written >= _PAUSE:
            self.write()

    def write(self) -> None:
        """Write what waits; where that fails the work goes on, and the next part takes in what this one could not."""
        if not self.waiting:
            return
        encoder = Encoder(apart=True)
        try:
            tasks = [[k, ok, encoder.encode(v, (f"results[{k}]",))] for k, (ok, v) in self.waiting.items()]
        except ArgumentError as error:
            raise ArgumentError(f"`checkpoint`: {error}") from error
        try:
            if not self.folder.writable:
                raise OSError(errno.EROFS, os.strerror(errno.EROFS))
            file = self.folder.part_name(self.name, self.number)
            self.folder.write_part(file, {"name": self.name, "tasks": tasks}, encoder.arrays)
        except OSError as error:
            if not self.unkept:
                self.unkept = True
                why = error.strerror or error
                self._note(f"Not all that is done could be kept in {str(self.folder.path)!r}: {why}.")
            return
        finally:
            self.written = time.monotonic()
        self.waiting.clear()
        self.number += 1

    def _note(self, note: str) -> None:
        self.notes.append(note)
        logger.warning(note)


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


def _plain(value: Any) -> Any:
    """Return what JSON does not know as it gives it back."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return dict(value) if isinstance(value, Mapping) else str(value)


def _agree(a: Any, b: Any) -> bool:
    """Tell whether two plain values are the same, numbers to `_AGREE`."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_agree(v, b[k]) for k, v in a.items())
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_agree, a, b))
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=_AGREE, abs_tol=1e-300)
    return bool(a == b)


def _short(value: Any) -> str:
    short = reprlib.Repr()
    short.maxother = short.maxstring = 80
    return "not there" if value is None else short.repr(value)
