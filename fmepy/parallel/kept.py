"""Many independent tasks on disk: what is done is kept, and the same question asked again goes on from there.

A verb asks a question (fit from these starts, follow these profiles) by running one function on many inputs. With a
folder as `checkpoint` what comes of every input is kept there as it arrives; killed, interrupted, or finished, the same
call with the same folder runs what is missing and returns what an uninterrupted one returns, whatever the workers::

    with kept_in(checkpoint, "a profile", seed=seed) as kept:          # checkpoint=None: nothing is kept
        points = kept.rng.random((n, p))                               # of the folder's own seed, when it goes on
        runs = kept.spread(function, list(points), question={"parameters": names, "cost": value}, executor=2)

**The function** is called as by `run_many` and returns a *record*: a dict of str to arrays (of numbers or text) and to
what JSON can hold (numbers, text, None, lists and dicts of these; a tuple comes back as a list). The results of `Runs`
are `read(record)`, of new and of kept records alike. A record with ``interrupted`` true, of a task that Ctrl-C stopped
halfway, is returned but not kept. An exception of the function is kept as the failure that it is; that a worker died,
or that time was up, is not: these tasks run again.

**The folder** (`fmepy.parallel.folder`) holds ``header.json`` (what it is of, and the seed) and, for every `name` of a
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
from pathlib import Path
from typing import Any

import numpy as np

from fmepy.checks import seed_sequence
from fmepy.errors import ArgumentError
from fmepy.parallel import spread
from fmepy.parallel.folder import DAMAGED, DamagedError, KeptFolder, at_the_door
from fmepy.parallel.runs import Runs, as_items
from fmepy.parallel.worker import Outcome
from fmepy.results.files import MOST_TABLE, read_file, write_whole
from fmepy.types import Seed

logger = logging.getLogger("fmepy.parallel")

_FORMAT = 1
_PAUSE = 0.5  # seconds between parts: what is quick is written together
_AGREE = 1e-9  # relative: what the linear algebra of another machine may change in a number of the question
_NOT_ITS_FAULT = {"WorkerDied", "TimedOut", "Interrupted"}


@contextmanager
def kept_in(checkpoint: Any, holds: str, *, seed: Seed = None) -> Iterator[Kept]:
    """Yield what runs tasks and keeps them in a folder, to which nobody else writes meanwhile.

    Parameters
    ----------
    checkpoint : path or None
        A folder, new or of the same work; None: nothing is kept.
    holds : str
        What the folder holds, in words ("a profile"); one that holds something else is refused.
    seed : int, Generator or None
        An int must be that of the folder. With None or a Generator the folder's own is used, where it has one.

    Raises
    ------
    ArgumentError
        The folder holds something else, is in use, damaged, or cannot be written; another seed.
    """
    given = seed_sequence(seed)
    if isinstance(seed, np.random.Generator):  # of its own, and another one each time that it is given
        given = given.spawn(1)[0]
    if checkpoint is None:
        yield Kept(None, np.random.default_rng(given))
        return
    folder = KeptFolder(checkpoint, holds, _FORMAT)
    with folder.held(new=not folder.begun):
        if not folder.begun:
            entropy = int(given.entropy) if np.ndim(given.entropy) == 0 else [int(e) for e in given.entropy]
            key = [int(k) for k in given.spawn_key]
            folder.create({"entropy": entropy, "spawn_key": key, "pool_size": given.pool_size})
        header = folder.read_header()
        if folder.writable:
            folder.sweep()
        is_int = seed is not None and not isinstance(seed, np.random.Generator)
        if is_int and given.entropy != header.get("entropy"):
            raise ArgumentError(
                f"`checkpoint`: {holds} in {str(folder.path)!r} was drawn with seed={header.get('entropy')!r}, not "
                f"{seed!r}. Give the same seed (or none), or name another folder."
            )
        yield Kept(folder, np.random.default_rng(_kept_seed(folder, header)))


def _kept_seed(folder: KeptFolder, header: Mapping[str, Any]) -> np.random.SeedSequence:
    """Return the seed of a folder."""
    try:
        if header["entropy"] is None:
            raise ValueError("it is empty")
        return np.random.SeedSequence(header["entropy"], spawn_key=header["spawn_key"], pool_size=header["pool_size"])
    except (LookupError, TypeError, ValueError, OverflowError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise ArgumentError(
            f"`checkpoint`: the seed in {str(folder.path)!r} is damaged: {what}. Put back a copy of header.json, or "
            "name another folder."
        ) from error


class Kept:
    """What runs tasks and keeps what comes of them, see the module's text.

    Attributes
    ----------
    rng : Generator
        For what is drawn before the tasks: the same again when the work goes on.
    notes : list of str
        What was left aside, and what could not be kept, in sentences.
    """

    def __init__(self, folder: KeptFolder | None, rng: np.random.Generator) -> None:
        self.folder, self.rng, self.notes = folder, rng, list[str]()

    def spread(
        self,
        function: Callable[..., dict[str, Any]],
        inputs: Any,
        *,
        question: Mapping[str, Any],
        name: str = "tasks",
        read: Callable[[dict[str, Any]], Any] = dict,
        seeded: bool = False,
        seen: Callable[[dict[str, Any]], object] | None = None,
        **words: Any,
    ) -> Runs:
        """Return what `fmepy.parallel.spread` does, running what is not kept yet.

        Parameters
        ----------
        function, inputs
            The function returns a record. A record stands by the number of its input, so inputs must follow from the
            question (and the folder's seed).
        question : dict
            What makes this question another one, by a name that explains it: numbers (compared to 1e-9), texts, lists
            and dicts of them, arrays.
        name : str
            Of this round, where one folder holds several: a part of the file names.
        read : callable
            Makes of a record what stands in ``results``. LookupError, TypeError and ValueError of it mean that a part
            is damaged.
        seeded : bool
            True: the function is called with ``rng=``, each run with its own.
        seen : callable, optional
            Gets every new record as it comes.
        **words
            executor, progress, patience and the other words of `spread`.

        Raises
        ------
        ArgumentError
            The folder is of another question; it is told in what.
        """
        items = as_items(inputs)
        words["seed"] = self.rng if seeded else None
        if self.folder is None:
            return _read_all(spread(function, items, keep=_looked_at(None, seen), **words), read)
        book = _Book(self.folder, name, self.notes)
        book.check({**_plain(question), "number of tasks": len(items)})
        known = book.load(len(items), read)
        try:
            return _read_all(spread(function, items, known=known, keep=_looked_at(book.keep, seen), **words), read)
        finally:
            book.write()


def _looked_at(
    keep: Callable[[int, Outcome], object] | None, seen: Callable[[dict[str, Any]], object] | None
) -> Callable[[int, Outcome], object] | None:
    """Return what keeps an outcome and shows a record to who wants to see it."""
    if seen is None:
        return keep

    def both(number: int, outcome: Outcome) -> None:
        if keep is not None:
            keep(number, outcome)
        if outcome[0]:
            seen(outcome[1])

    return both


def _read_all(runs: Runs, read: Callable[[dict[str, Any]], Any]) -> Runs:
    results = [read(r) if ok else None for r, ok in zip(runs.results, runs.ok, strict=True)]
    return Runs(results, runs.ok, runs.failures, runs.interrupted)


class _Book:
    """The parts of one round: read once, then added to."""

    def __init__(self, folder: KeptFolder, name: str, notes: list[str]) -> None:
        self.folder, self.name, self.notes = folder, name, notes
        self.waiting: dict[int, Outcome] = {}
        self.written = time.monotonic()
        self.number = 0
        self.unkept = False

    # --- the question

    def check(self, question: Mapping[str, Any]) -> None:
        """Write the question, or raise an ArgumentError if it is not the one that the folder keeps."""
        file = self.folder.path / f"{self.name}.json"
        if not file.exists():
            if any(self._parts()):
                raise ArgumentError(f"`checkpoint`: {file} is missing. Put it back, or name another folder.")
            text = json.dumps({"identity": self.folder.identity, "question": question}, indent=1).encode()
            with at_the_door(self.folder.path):
                write_whole(file, lambda handle: handle.write(text))
            return
        try:
            there = json.loads(read_file(file, MOST_TABLE))
            kept = there["question"]
            if there["identity"] != self.folder.identity or not isinstance(kept, dict):
                raise ValueError("it belongs to another folder")
        except (OSError, LookupError, TypeError, ValueError, RecursionError) as error:
            raise ArgumentError(
                f"`checkpoint`: {file} cannot be read: {error}. Put back a copy of it, or name another folder."
            ) from error
        for key in (*question, *(k for k in kept if k not in question)):
            if not _agree(kept.get(key), question.get(key)):
                raise ArgumentError(
                    f"`checkpoint`: {self.folder.holds} in {str(self.folder.path)!r} is of another question: its {key} "
                    f"is {_short(kept.get(key))}, now it is {_short(question.get(key))}. Ask the same, or name another "
                    "folder."
                )

    # --- the parts

    def _parts(self) -> list[Path]:
        return sorted(self.folder.path.glob(f"{self.name}.part-*.npz"))

    def load(self, n: int, read: Callable[[dict[str, Any]], Any]) -> dict[int, Outcome]:
        """Return the outcomes that are there, by number; what cannot be read is set aside, and told."""
        known: dict[int, Outcome] = {}
        for file in self._parts():
            try:
                number = int(file.name.removeprefix(f"{self.name}.part-").removesuffix(".npz"))
                self.number = max(self.number, number + 1)
                found = _outcomes(self.name, *self.folder.read_part(file))
                for k, (ok, value) in found.items():
                    if not 0 <= k < n:
                        raise DamagedError(f"there is no task {k}")
                    if ok:
                        read(dict(value))
            except (*DAMAGED, LookupError) as error:
                why = str(error).rstrip(".") or type(error).__name__
                self._tell(f"{file.name} cannot be read ({why}); its tasks run again. {self.folder.put_aside([file])}")
                continue
            known |= {k: outcome for k, outcome in found.items() if k not in known}
        return known

    def keep(self, number: int, outcome: Outcome) -> None:
        """Keep what came of a task, soon."""
        ok, value = outcome
        if value.get("interrupted", False) if ok else value[0] in _NOT_ITS_FAULT:
            return
        self.waiting[number] = outcome
        if time.monotonic() - self.written >= _PAUSE:
            self.write()

    def write(self) -> None:
        """Write what waits; where that fails the work goes on, and the next part takes in what this one could not."""
        if not self.waiting:
            return
        meta: dict[str, Any] = {"name": self.name, "tasks": {}}
        arrays: dict[str, Any] = {}
        for number, (ok, value) in self.waiting.items():
            table = value if ok else {"failure": list(value)}
            arrays |= {f"{number}.{k}": v for k, v in table.items() if isinstance(v, np.ndarray)}
            plain = _plain({k: v for k, v in table.items() if not isinstance(v, np.ndarray)})
            meta["tasks"][str(number)] = {"ok": ok, "plain": plain}
        try:
            if not self.folder.writable:
                raise OSError(errno.EROFS, os.strerror(errno.EROFS))
            self.folder.write_part(f"{self.name}.part-{self.number:06d}.npz", meta, arrays)
        except OSError as error:
            if not self.unkept:
                self.unkept = True
                why = error.strerror or error
                self._tell(f"Not all that is done could be kept in {str(self.folder.path)!r}: {why}.")
            return
        finally:
            self.written = time.monotonic()
        self.waiting.clear()
        self.number += 1

    def _tell(self, note: str) -> None:
        self.notes.append(note)
        logger.warning(note)


def _outcomes(name: str, meta: Any, arrays: Mapping[str, Any]) -> dict[int, Outcome]:
    """Return what came of the tasks of a part, by number."""
    if meta["name"] != name:
        raise DamagedError("it belongs to another round")
    tasks = dict(meta["tasks"])
    records = {number: dict(task["plain"]) for number, task in tasks.items()}
    for label, array in arrays.items():
        number, _, key = label.partition(".")
        records[number][key] = array
    out: dict[int, Outcome] = {}
    for number, task in tasks.items():
        if task["ok"] is not True:
            error, message = records[number]["failure"]
            out[int(number)] = False, (str(error), str(message))
        else:
            out[int(number)] = True, records[number]
    return out


def _plain(value: Any) -> Any:
    """Return a question as JSON gives it back."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value.item() if isinstance(value, np.generic) else value


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
