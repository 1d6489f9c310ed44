"""A chain on disk: append-only numbered parts, from which it goes on as if nothing had happened.

A folder holds ``header.json`` (what was asked for, and what it gave at the start) and, for every chain, the parts
``chain-000.part-000000.npz``, ... Each part holds the rows saved since the one before, the state of the kernel, and the
state of the random numbers; part 0 is the start. Every file is written under a temporary name, flushed to the disk, and
renamed: a kill at any moment leaves a readable set. Files hold plain arrays and JSON, never a pickle.
"""

from __future__ import annotations

import json
import logging
import os
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from fmepy.errors import ArgumentError

__all__ = ["Folder", "Part"]

logger = logging.getLogger(__name__)

_FORMAT = 1
_HEADER = "header.json"


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """One part of one chain.

    Attributes
    ----------
    iteration : int
        Iterations done.
    rows : dict of str to ndarray
        The rows saved since the part before.
    state : dict of str to ndarray
        What the kernel's `restore` takes.
    rng : dict
        State of the bit generator.
    failures : int
        Failed runs so far.
    last_failure : str
    retries : int
        Runs so far that a second engine finished.
    """

    iteration: int
    rows: dict[str, Any]
    state: dict[str, Any]
    rng: dict[str, Any]
    failures: int
    last_failure: str
    retries: int = 0


class Folder:
    """The folder of a checkpoint."""

    def __init__(self, path: Any) -> None:
        self.path = Path(path)

    # --- the header

    def create(self, header: Mapping[str, Any]) -> None:
        """Begin a checkpoint; refuse a folder that holds one."""
        if (self.path / _HEADER).exists():
            raise ArgumentError(
                f"`checkpoint`: the folder {str(self.path)!r} holds a chain already. "
                f"resume_mcmc(f, {str(self.path)!r}) continues it; for a new one name another folder."
            )
        if self.path.exists() and not self.path.is_dir():
            raise ArgumentError(f"`checkpoint`: {str(self.path)!r} is a file; a folder is needed.")
        self.path.mkdir(parents=True, exist_ok=True)
        self.write_header(header)

    def write_header(self, header: Mapping[str, Any]) -> None:
        """Write the header, in place of one that may be there."""
        text = json.dumps({"format": _FORMAT, **header}, indent=1).encode()
        self._write(_HEADER, lambda file: file.write(text))

    def read_header(self) -> dict[str, Any]:
        """Return the header."""
        file = self.path / _HEADER
        if not file.exists():
            raise ArgumentError(f"`checkpoint`: there is no chain in {str(self.path)!r} ({_HEADER} is missing).")
        try:
            header = json.loads(file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ArgumentError(f"`checkpoint`: {file} cannot be read: {error}") from error
        if not isinstance(header, dict) or header.get("format") != _FORMAT:
            raise ArgumentError(f"`checkpoint`: {file} is not of a format that this version reads ({_FORMAT}).")
        return header

    # --- the parts

    def _name(self, chain: int, number: int) -> str:
        return f"chain-{chain:03d}.part-{number:06d}.npz"

    def append(self, chain: int, number: int, part: Part) -> None:
        """Write a part."""
        meta = {
            "iteration": part.iteration,
            "rng": part.rng,
            "failures": part.failures,
            "last_failure": part.last_failure,
            "retries": part.retries,
        }
        arrays = {f"row_{k}": v for k, v in part.rows.items()} | {f"state_{k}": v for k, v in part.state.items()}
        arrays["meta"] = np.array(json.dumps(meta))
        self._write(self._name(chain, number), lambda file: np.savez(file, **arrays))

    def parts(self, chain: int) -> list[Part]:
        """Return the parts of a chain in order, up to the first that is missing or cannot be read."""
        out: list[Part] = []
        while (file := self.path / self._name(chain, len(out))).exists():
            part = _read(file)
            if part is None:
                logger.warning("%s cannot be read; the chain goes on from the part before it.", file)
                break
            out.append(part)
        return out

    def _write(self, name: str, write: Callable[[IO[bytes]], object]) -> None:
        temporary = self.path / f".{name}.{os.getpid()}.tmp"
        with open(temporary, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self.path / name)
        if os.name == "posix":  # the new name too must reach the disk
            handle = os.open(self.path, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)

    def sweep(self) -> None:
        """Remove what interrupted writes left."""
        for file in self.path.glob(".*.tmp"):
            file.unlink(missing_ok=True)


def _read(file: Path) -> Part | None:
    try:
        with open(file, "rb") as raw, np.load(raw, allow_pickle=False) as npz:
            arrays = {k: npz[k] for k in npz.files}
        meta = json.loads(str(arrays.pop("meta")))
        return Part(
            int(meta["iteration"]),
            {k.removeprefix("row_"): v for k, v in arrays.items() if k.startswith("row_")},
            {k.removeprefix("state_"): v for k, v in arrays.items() if k.startswith("state_")},
            meta["rng"],
            int(meta["failures"]),
            str(meta["last_failure"]),
            int(meta.get("retries", 0)),
        )
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
