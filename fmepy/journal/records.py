"""Records in a journal: values by key, kept as they come, there again when the work goes on.

A value is whatever a saved result may hold (`fmepy.journal.encoding`). Each part of a series holds some records; what
was asked for stands beside them in ``NAME.json``. Records do not depend on each other: a part that is missing or
damaged is set aside, and its records are gone.
"""

from __future__ import annotations

import errno
import json
import logging
import math
import os
import reprlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fmepy.errors import ArgumentError, FmepyError
from fmepy.journal.arrays import DAMAGE
from fmepy.journal.encoding import Decoder, Encoder
from fmepy.journal.folder import Journal, reason

logger = logging.getLogger(__name__)

_PAUSE = 0.5  # seconds between parts: what is quick is written together
_ONE_LOOP = {"numba", "explicit", "compiled"}  # names of one engine, old and new
_AGREE = 1e-9  # relative: what the linear algebra of another machine may change in a number of the question


class RecordSeries:
    """The records of one series of parts.

    Parameters
    ----------
    folder : Journal
        Held, its header written or read.
    name : str
        Of the series: the beginning of its file names.
    notes : list of str
        Gets a sentence for what was left aside, and what could not be kept.
    """

    def __init__(self, folder: Journal, name: str, notes: list[str]) -> None:
        self.folder, self.name, self.notes = folder, name, notes
        self._waiting: dict[Any, Any] = {}
        self._written = time.monotonic()
        self._number = 0
        self._failed = False

    def check(self, question: Mapping[str, Any]) -> None:
        """Write the question, or raise an ArgumentError if it is not the one that the folder keeps.

        It holds numbers (compared to 1e-9), texts, lists and dicts of them, arrays, by names that explain them.
        """
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
        check_question(before, question, f"{folder.holds} in {str(folder.path)!r}")

    def load(self) -> dict[Any, Any]:
        """Return the records that are there; set aside what cannot be read, and say so."""
        known: dict[Any, Any] = {}
        for file in self.folder.parts(self.name):
            try:
                self._number = max(self._number, int(file.stem.removeprefix(f"{self.name}.part-")) + 1)
                known = self._read(file) | known
            except (*DAMAGE, AttributeError, FmepyError) as error:
                aside = self.folder.put_aside([file])
                self._note(f"{file.name} cannot be read ({reason(error)}); what it holds is done again. {aside}")
        return known

    def _read(self, file: Path) -> dict[Any, Any]:
        table, arrays = self.folder.read_part(file)
        if table["name"] != self.name:
            raise ValueError("it belongs to another series")
        return dict(Decoder(arrays).decode(table["records"]))

    def keep(self, key: Any, value: Any) -> None:
        """Keep a record, soon."""
        self._waiting[key] = value
        if time.monotonic() - self._written >= _PAUSE:
            self.write()

    def write(self) -> None:
        """Write what waits; where that fails the work goes on, and the next part takes in what this one could not.

        Raises
        ------
        ArgumentError
            A record holds something that no file can.
        """
        if not self._waiting:
            return
        encoder = Encoder(apart=True)
        try:
            records = encoder.encode(self._waiting, ("results",))
        except ArgumentError as error:
            raise ArgumentError(f"`checkpoint`: {error}") from error
        try:
            if not self.folder.writable:
                raise OSError(errno.EROFS, os.strerror(errno.EROFS))
            file = self.folder.part_name(self.name, self._number)
            self.folder.write_part(file, {"name": self.name, "records": records}, encoder.arrays)
        except OSError as error:
            if not self._failed:
                self._failed = True
                why = error.strerror or error
                self._note(f"Not all that is done could be kept in {str(self.folder.path)!r}: {why}.")
            return
        finally:
            self._written = time.monotonic()
        self._waiting.clear()
        self._number += 1

    def _note(self, note: str) -> None:
        self.notes.append(note)
        logger.warning(note)


def check_question(before: Mapping[str, Any], now: Mapping[str, Any], whose: str) -> None:
    """Raise an ArgumentError if two questions, as JSON has them, differ; it says in what."""
    for key in (*now, *(k for k in before if k not in now)):
        if not _agree(before.get(key), now.get(key)):
            raise ArgumentError(
                f"`checkpoint`: {whose} belongs to another question: its {key} is {_short(before.get(key))}, now it is "
                f"{_short(now.get(key))}. Ask the same, or name another folder."
            )


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
    return bool(a == b) or {str(a), str(b)} <= _ONE_LOOP


def _short(value: Any) -> str:
    short = reprlib.Repr()
    short.maxother = short.maxstring = 80
    return "not there" if value is None else short.repr(value)
