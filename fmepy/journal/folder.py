"""A journal: a folder in which work is kept as it is done, to go on from after whatever ended it.

It holds ``header.json`` (the question), ``owner.json`` (who writes to it, see `fmepy.journal.lock`), and numbered
parts, ``NAME.part-000000.npz``. Every file is written under a temporary name, flushed to the disk, and renamed: a kill
at any moment leaves a readable set. Files hold plain arrays and JSON, never a pickle. Each bears the identity of its
folder, made at the folder's birth, so that a part of another one is never taken for its own, and a digest of what it
holds, so that one that was changed since is not used; files of earlier versions have none.

What the parts hold, and which of them belong together, is a matter of those who write them: chains, whose parts join
(`fmepy.mcmc.checkpoint`), and tasks that do not depend on each other (`fmepy.parallel.resumable`).
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from fmepy.checks import as_path
from fmepy.errors import ArgumentError
from fmepy.journal.arrays import array_digest, open_arrays
from fmepy.journal.files import MOST_TABLE, read_file, write_whole
from fmepy.journal.lock import InUseError, owned

HEADER = "header.json"
_ASIDE = "aside"


class Journal:
    """A folder that belongs to one piece of work.

    Parameters
    ----------
    path : path
    holds : str
        What it holds, in words ("a chain").
    version : int
        That of its format.

    Attributes
    ----------
    identity : str
        Made at its birth, known once the header is written or read.
    writable : bool
        False where it can only be read.
    """

    def __init__(self, path: Any, holds: str, version: int) -> None:
        self.path = as_path(path, "checkpoint")
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
        with ExitStack() as stack:
            with self._writing():
                if new:
                    self.path.mkdir(parents=True, exist_ok=True)
                self.writable = stack.enter_context(owned(self.path))
            if new and not self.writable:
                raise ArgumentError(f"`checkpoint`: the folder {str(self.path)!r} is read-only. Name another one.")
            yield

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
        self.write_table(HEADER, {**header, "holds": self.holds, "format": self.version})

    def read_header(self) -> dict[str, Any]:
        """Return the header, as it was written.

        Raises
        ------
        ArgumentError
            There is none, or one of something else, of another format, or one that was changed.
        """
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
            raise ArgumentError(
                f"`checkpoint`: {file} is not of a format that this version reads ({self.version}). Finish it with the "
                "version of fmepy that began it, or name another folder."
            )
        self.identity = str(header.get("identity", ""))
        if not self.identity or not _is_whole(header):
            raise ArgumentError(
                f"`checkpoint`: the header in {str(self.path)!r} is damaged: it is not as it was written. Put back a "
                f"copy of {HEADER}, or start again in another folder."
            )
        return header

    # --- files

    def write_table(self, name: str, table: Mapping[str, Any]) -> None:
        """Write a file of JSON."""
        text = json.dumps(_sealed({**table, "identity": self.identity}), indent=1).encode()
        with self._writing():
            write_whole(self.path / name, lambda file: file.write(text))

    def read_table(self, name: str) -> dict[str, Any]:
        """Return what a file of JSON holds; raise one of `DAMAGE` where it was changed."""
        table: dict[str, Any] = json.loads(read_file(self.path / name, MOST_TABLE))
        return self._own(table)

    def write_part(self, name: str, table: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
        """Write a part; raise OSError if it cannot be, and leave nothing of it."""
        text = np.array(json.dumps(_sealed({**table, "identity": self.identity}, arrays)))
        write_whole(self.path / name, lambda file: np.savez(file, **arrays, meta=text))

    def read_part(self, file: Path) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the description and the arrays of a part, or raise one of `DAMAGE` where it was changed."""
        with open_arrays(file) as held:
            arrays: dict[str, Any] = dict(held)
        return self._own(json.loads(str(arrays.pop("meta"))), arrays), arrays

    def _own(self, table: dict[str, Any], arrays: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return a table if it is of this folder, and as it was written."""
        if table["identity"] != self.identity:
            raise ValueError(f"it belongs to another {self.holds.removeprefix('a ')}")
        if not _is_whole(table, arrays):
            raise ValueError("it is not as it was written")
        return table

    def part_name(self, series: str, number: int) -> str:
        """Return the name of a part of a series."""
        return f"{series}.part-{number:06d}.npz"

    def parts(self, series: str) -> list[Path]:
        """Return the files of a series that there are, in order."""
        return sorted(self.path.glob(f"{series}.part-*.npz"))

    def put_aside(self, files: Sequence[Path]) -> str:
        """Move files out of the way, where they can be moved; return a sentence that says so."""
        if self.writable:
            with self._writing():
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
    def _writing(self) -> Iterator[None]:
        """Raise in our words what the operating system says of a folder that cannot be written."""
        try:
            yield
        except InUseError as error:
            raise ArgumentError(
                f"`checkpoint`: the folder {str(self.path)!r} is in use by {error}. Two writers would mix: wait until "
                "that one ends (or end it), or name another folder."
            ) from None
        except OSError as error:
            raise ArgumentError(
                f"`checkpoint`: the folder {str(self.path)!r} cannot be written: {error.strerror or error}. Make room "
                "or give yourself the right to write there, or name another folder."
            ) from error


def _digest(table: Mapping[str, Any], arrays: Mapping[str, Any] | None) -> str:
    text = json.dumps({k: v for k, v in table.items() if k != "digest"})
    return hashlib.sha256(f"{text}{array_digest(arrays or {})}".encode()).hexdigest()


def _sealed(table: Mapping[str, Any], arrays: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return a table with the digest of what stands in it and in the arrays that go with it."""
    return {**table, "digest": _digest(table, arrays)}


def _is_whole(table: Mapping[str, Any], arrays: Mapping[str, Any] | None = None) -> bool:
    return table.get("digest") in (None, _digest(table, arrays))


def reason(error: Exception) -> str:
    """Return why a file cannot be read, to stand in brackets."""
    return str(error).rstrip(".") or type(error).__name__


# --- seeds


def seed_table(seed: np.random.SeedSequence) -> dict[str, Any]:
    """Return a seed as JSON holds it."""
    entropy: Any = seed.entropy
    plain = int(entropy) if np.ndim(entropy) == 0 else [int(e) for e in entropy]
    return {"entropy": plain, "spawn_key": [int(k) for k in seed.spawn_key], "pool_size": seed.pool_size}


def seed_of(table: Mapping[str, Any]) -> np.random.SeedSequence:
    """Return the seed that a table holds."""
    return np.random.SeedSequence(table["entropy"], spawn_key=table["spawn_key"], pool_size=table["pool_size"])
