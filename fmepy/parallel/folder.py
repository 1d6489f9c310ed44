"""A folder in which work is kept: one writer, whole files, plain arrays and JSON, read with suspicion.

It holds ``header.json`` (what was asked for), ``owner.json`` (who writes to it, see `fmepy.parallel.lock`), and
numbered parts, ``....part-000000.npz``. Every file is written under a temporary name, flushed to the disk, and renamed:
a kill at any moment leaves a readable set. A folder has an identity, made at its birth, that stands in the header and
in every part, so that a part of another one is never taken for its own. Files hold plain arrays and JSON, never a
pickle.

What the parts hold, and which of them belong together, is said by those who keep something: chains
(`fmepy.mcmc.checkpoint`), and tasks that do not depend on each other (`fmepy.parallel.kept`).
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from fmepy.errors import ArgumentError
from fmepy.parallel.lock import owned
from fmepy.results.arrays import DAMAGE, open_arrays
from fmepy.results.files import MOST_TABLE, read_file, write_whole

HEADER = "header.json"
_ASIDE = "aside"


class DamagedError(Exception):
    """A part is not what was written."""


DAMAGED = (DamagedError, *DAMAGE)
"""What reading a damaged part may raise."""


class KeptFolder:
    """A folder that belongs to one piece of work.

    Parameters
    ----------
    path : path
    holds : str
        What it holds, in words ("a chain").
    version : int
        That of the header's format.

    Attributes
    ----------
    identity : str
        Made at its birth, known once the header is written or read.
    writable : bool
        False where it can only be read.
    """

    def __init__(self, path: Any, holds: str, version: int) -> None:
        self.path = Path(path)
        self.holds, self.version = holds, version
        self.identity = ""
        self.writable = True

    @contextmanager
    def held(self, *, new: bool = False) -> Iterator[None]:
        """Keep other writers out; a folder that cannot be written may be read.

        Raises
        ------
        ArgumentError
            Somebody else writes to it; `new`, and it cannot be made or written.
        """
        if self.path.exists() and not self.path.is_dir():
            raise ArgumentError(f"`checkpoint`: {str(self.path)!r} is a file; a folder is needed.")
        with at_the_door(self.path):
            if new:
                self.path.mkdir(parents=True, exist_ok=True)
            lock = owned(self.path)
            self.writable = lock.__enter__()
        try:
            if new and not self.writable:
                raise ArgumentError(f"`checkpoint`: the folder {str(self.path)!r} is read-only. Name another one.")
            yield
        finally:
            lock.__exit__(None, None, None)

    # --- the header

    @property
    def begun(self) -> bool:
        """True if there is a header."""
        return (self.path / HEADER).exists()

    def create(self, header: Mapping[str, Any]) -> None:
        """Begin in a folder that is held; refuse one that holds something, or parts of it."""
        if self.begun:
            raise ArgumentError(
                f"`checkpoint`: the folder {str(self.path)!r} holds {self.holds} already. Name another folder."
            )
        if any(self.path.glob("*.part-*.npz")):
            raise ArgumentError(
                f"`checkpoint`: the folder {str(self.path)!r} holds parts of {self.holds} whose {HEADER} is missing. "
                "Put that back to resume it, or name another folder."
            )
        self.identity = secrets.token_hex(16)
        self.write_header(header)

    def write_header(self, header: Mapping[str, Any]) -> None:
        """Write the header, in place of one that may be there."""
        table = {**header, "holds": self.holds, "format": self.version, "identity": self.identity}
        with at_the_door(self.path):
            write_whole(self.path / HEADER, lambda file: file.write(json.dumps(table, indent=1).encode()))

    def read_header(self) -> dict[str, Any]:
        """Return the header, as it stands there."""
        file = self.path / HEADER
        if not file.exists():
            what = self.holds.removeprefix("a ")
            raise ArgumentError(f"`checkpoint`: there is no {what} in {str(self.path)!r} ({HEADER} is missing).")
        try:
            header = json.loads(read_file(file, MOST_TABLE))
        except (OSError, ValueError, RecursionError) as error:
            raise ArgumentError(f"`checkpoint`: {file} cannot be read: {error}") from error
        there = header.get("holds", "a chain") if isinstance(header, dict) else self.holds
        if there != self.holds:
            raise ArgumentError(
                f"`checkpoint`: the folder {str(self.path)!r} holds {there}, not {self.holds}. Name another folder."
            )
        if not isinstance(header, dict) or header.get("format") != self.version:
            raise ArgumentError(f"`checkpoint`: {file} is not of a format that this version reads ({self.version}).")
        identity = header.get("identity")
        if not isinstance(identity, str) or not identity:
            raise ArgumentError(f"`checkpoint`: {file} is damaged: it has no identity. Put back a copy of it.")
        self.identity = identity
        return header

    # --- files

    def write_part(self, name: str, meta: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
        """Write a part; raise OSError if it cannot be, and leave nothing of it."""
        text = np.array(json.dumps({"identity": self.identity, **meta}))
        write_whole(self.path / name, lambda file: np.savez(file, **arrays, meta=text))

    def read_part(self, file: Path) -> tuple[Any, dict[str, Any]]:
        """Return the description and the arrays of a part, or raise one of `DAMAGED` where it was changed."""
        with open_arrays(file) as held:
            arrays: dict[str, Any] = dict(held)
        meta = json.loads(str(arrays.pop("meta")))
        if meta["identity"] != self.identity:
            raise DamagedError(f"it belongs to another {self.holds.removeprefix('a ')}")
        return meta, arrays

    def put_aside(self, files: Sequence[Path]) -> str:
        """Move files out of the way, where they can be moved; return a sentence that says so."""
        if self.writable:
            with at_the_door(self.path):
                (self.path / _ASIDE).mkdir(exist_ok=True)
                for file in files:
                    os.replace(file, self.path / _ASIDE / file.name)
        which = files[0].name + (f" to {files[-1].name}" if len(files) > 1 else "")
        return f"Left aside{' (moved there)' if self.writable else ''}: {which}."

    def sweep(self) -> None:
        """Remove what interrupted writes left."""
        for file in self.path.glob(".*.tmp"):
            file.unlink(missing_ok=True)


@contextmanager
def at_the_door(path: Path) -> Iterator[None]:
    """Tell in our words what the operating system says before the work begins."""
    try:
        yield
    except OSError as error:
        raise ArgumentError(
            f"`checkpoint`: the folder {str(path)!r} cannot be written: {error.strerror or error}. Make room or give "
            "yourself the right to write there, or name another folder."
        ) from error
