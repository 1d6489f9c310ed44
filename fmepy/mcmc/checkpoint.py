"""A chain on disk: append-only numbered parts, from which it goes on as if nothing had happened.

A folder holds ``header.json`` (what was asked for, and what it gave at the start, see `fmepy.mcmc.header`),
``owner.json`` (who writes to it, see `fmepy.mcmc.lock`), and, for every chain, the parts ``chain-000.part-000000.npz``,
... Each part holds the rows saved since the one before, the state of the kernel, and the state of the random numbers;
part 0 is the start. Every file is written under a temporary name, flushed to the disk, and renamed: a kill at any
moment leaves a readable set. Files hold plain arrays and JSON, never a pickle.

A checkpoint has an identity, made at its birth, that stands in the header and in every part; a part says after which
iteration it begins and with which it ends. **Reading stops at the first part that does not join**: one that is missing,
damaged, of another checkpoint, or that begins elsewhere than where the one before ends. What lies behind is left aside
and told; the chain runs these iterations again, to the very same rows.
"""

from __future__ import annotations

import json
import logging
import math
import os
import secrets
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from fmepy.errors import ArgumentError
from fmepy.mcmc.lock import owned

__all__ = ["Folder", "Part", "Shapes"]

logger = logging.getLogger(__name__)

_FORMAT = 2
_HEADER = "header.json"
_ASIDE = "aside"
_GROWS = "archive"  # the one array of a state (of "demcz") that has more rows later on


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """One part of one chain.

    Attributes
    ----------
    begin, iteration : int
        Iterations done before it, and with it.
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

    begin: int
    iteration: int
    rows: dict[str, Any]
    state: dict[str, Any]
    rng: dict[str, Any]
    failures: int
    last_failure: str
    retries: int = 0


@dataclass(frozen=True, slots=True)
class Shapes:
    """What the rows of a part must be like: `rows(begin, end)` is their number, `trailing` the rest of their shapes."""

    rows: Callable[[int, int], int]
    trailing: Mapping[str, tuple[int, ...]]


class _DamagedError(Exception):
    """A part is not what was written."""


class Folder:
    """The folder of a checkpoint."""

    def __init__(self, path: Any) -> None:
        self.path = Path(path)
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
        with _at_the_door(self.path):
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

    def create(self, header: Mapping[str, Any]) -> None:
        """Begin a checkpoint in a folder that is held; refuse one that holds a chain, or parts of one."""
        if (self.path / _HEADER).exists():
            raise ArgumentError(
                f"`checkpoint`: the folder {str(self.path)!r} holds a chain already. "
                f"resume_mcmc(f, {str(self.path)!r}) continues it; for a new one name another folder."
            )
        if any(self.path.glob("chain-*.npz")):
            raise ArgumentError(
                f"`checkpoint`: the folder {str(self.path)!r} holds parts of a chain whose {_HEADER} is missing. Put "
                "that back to resume it, or name another folder."
            )
        self.identity = secrets.token_hex(16)
        self.write_header(header)

    def write_header(self, header: Mapping[str, Any]) -> None:
        """Write the header, in place of one that may be there."""
        text = json.dumps({**header, "format": _FORMAT, "identity": self.identity}, indent=1).encode()
        with _at_the_door(self.path):
            self._write(_HEADER, lambda file: file.write(text))

    def read_header(self) -> dict[str, Any]:
        """Return the header, as it stands there: see `fmepy.mcmc.header` for what is in it."""
        file = self.path / _HEADER
        if not file.exists():
            raise ArgumentError(f"`checkpoint`: there is no chain in {str(self.path)!r} ({_HEADER} is missing).")
        try:
            header = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise ArgumentError(f"`checkpoint`: {file} cannot be read: {error}") from error
        if not isinstance(header, dict) or header.get("format") != _FORMAT:
            raise ArgumentError(f"`checkpoint`: {file} is not of a format that this version reads ({_FORMAT}).")
        identity = header.get("identity")
        if not isinstance(identity, str) or not identity:
            raise ArgumentError(f"`checkpoint`: {file} is damaged: it has no identity. Put back a copy of it.")
        self.identity = identity
        return header

    # --- the parts

    def _name(self, chain: int, number: int) -> str:
        return f"chain-{chain:03d}.part-{number:06d}.npz"

    def append(self, chain: int, number: int, part: Part) -> None:
        """Write a part; raise OSError if it cannot be, and leave nothing of it."""
        meta = {
            "identity": self.identity,
            "chain": chain,
            "begin": part.begin,
            "iteration": part.iteration,
            "rng": part.rng,
            "failures": part.failures,
            "last_failure": part.last_failure,
            "retries": part.retries,
        }
        arrays = {f"row_{k}": v for k, v in part.rows.items()} | {f"state_{k}": v for k, v in part.state.items()}
        arrays["meta"] = np.array(json.dumps(meta))
        self._write(self._name(chain, number), lambda file: np.savez(file, **arrays))

    def parts(self, chain: int, shapes: Shapes) -> tuple[list[Part], str]:
        """Return the parts of a chain that join, in order, and why the next one does not ("" if there is none)."""
        found: list[Part] = []
        while (file := self.path / self._name(chain, len(found))).exists():
            try:
                part = self._joining(_read(file), chain, found, shapes)
            except (_DamagedError, OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
                return found, f"{file.name} cannot be read ({str(error).rstrip('.') or type(error).__name__})"
            found.append(part)
        return found, f"{file.name} is missing" if self._behind(chain, len(found)) else ""

    def _joining(self, read: tuple[Any, dict[str, Any]], chain: int, before: list[Part], shapes: Shapes) -> Part:
        """Return a part if it is the next one of this chain, and what it holds can be."""
        meta, arrays = read
        if meta["identity"] != self.identity or meta["chain"] != chain:
            raise _DamagedError("it belongs to another chain")
        begin, iteration = _whole(meta, "begin"), _whole(meta, "iteration")
        there = before[-1].iteration if before else 0
        if begin != there or iteration < begin or (before and iteration == begin):
            raise _DamagedError(
                f"it holds iterations {begin + 1} to {iteration}, which do not join: {there} are done before it"
            )
        rows = {k.removeprefix("row_"): v for k, v in arrays.items() if k.startswith("row_")}
        state = {k.removeprefix("state_"): v for k, v in arrays.items() if k.startswith("state_")}
        n = shapes.rows(begin, iteration)
        _check_arrays(rows, {k: ((n, *rest), np.dtype(float)) for k, rest in shapes.trailing.items()})
        if before:
            first = before[0].state
            like = {k: ((-1, *v.shape[1:]) if k == _GROWS else v.shape, v.dtype) for k, v in first.items()}
            _check_arrays(state, like)
        np.random.PCG64().state = meta["rng"]
        return Part(
            begin, iteration, rows, state, meta["rng"],
            _whole(meta, "failures"), str(meta["last_failure"]), _whole(meta, "retries"),
        )  # fmt: skip

    def _behind(self, chain: int, number: int) -> list[Path]:
        """Return the files of a chain from a number on."""
        return [
            f for f in sorted(self.path.glob(f"chain-{chain:03d}.part-*.npz")) if f.name >= self._name(chain, number)
        ]

    def set_aside(self, chain: int, number: int, why: str) -> str:
        """Move the parts of a chain from a number on out of the way; return a sentence that says so."""
        files = self._behind(chain, number)
        if self.writable:
            with _at_the_door(self.path):
                (self.path / _ASIDE).mkdir(exist_ok=True)
                for file in files:
                    os.replace(file, self.path / _ASIDE / file.name)
        goes_on = f"goes on from part {number - 1}" if number else "begins anew"
        which = files[0].name + (f" to {files[-1].name}" if len(files) > 1 else "")
        return f"Chain {chain} {goes_on}: {why}. Left aside{' (moved there)' if self.writable else ''}: {which}."

    def _write(self, name: str, write: Callable[[IO[bytes]], object]) -> None:
        temporary = self.path / f".{name}.{os.getpid()}.tmp"
        try:
            with open(temporary, "wb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self.path / name)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
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


@contextmanager
def _at_the_door(path: Path) -> Iterator[None]:
    """Tell in our words what the operating system says before a chain begins."""
    try:
        yield
    except OSError as error:
        raise ArgumentError(
            f"`checkpoint`: the folder {str(path)!r} cannot be written: {error.strerror or error}. Make room or give "
            "yourself the right to write there, or name another folder."
        ) from error


def _whole(meta: Mapping[str, Any], name: str) -> int:
    value = meta[name]
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise _DamagedError(f"{name} is {value!r}")
    return value


def _check_arrays(arrays: Mapping[str, Any], wanted: Mapping[str, tuple[tuple[int, ...], Any]]) -> None:
    """Raise unless there are exactly these arrays, of these shapes (-1: any number) and types, without NaN."""
    if set(arrays) != set(wanted):
        raise _DamagedError(f"it holds {sorted(arrays)}, not {sorted(wanted)}")
    for name, (shape, dtype) in wanted.items():
        array = arrays[name]
        if (
            array.dtype != dtype
            or array.ndim != len(shape)
            or any(a not in (b, -1) for a, b in zip(shape, array.shape, strict=True))
        ):
            raise _DamagedError(f"{name} is {array.dtype} {array.shape}, not {dtype} {shape}")
        if array.dtype.kind == "f" and np.isnan(array).any():
            raise _DamagedError(f"{name} holds NaN")


def _read(file: Path) -> tuple[Any, dict[str, Any]]:
    """Return the description and the arrays of a part; nothing larger than the file is ever allocated."""
    size = file.stat().st_size
    arrays: dict[str, Any] = {}
    with zipfile.ZipFile(file) as zipped:
        for info in zipped.infolist():
            if info.compress_type != zipfile.ZIP_STORED or info.file_size > size:
                raise _DamagedError(f"{info.filename} is larger than the file")
            with zipped.open(info) as entry:
                arrays[info.filename.removesuffix(".npy")] = _array(entry, info.file_size)
    meta = json.loads(str(arrays.pop("meta")))
    return meta, arrays


def _array(entry: IO[bytes], size: int) -> Any:
    """Return an array as numpy writes it, having looked first whether its shape fits `size` bytes."""
    version = np.lib.format.read_magic(entry)
    if version != (1, 0):
        raise _DamagedError("an array of another format")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(entry)
    data = entry.read(size)
    if dtype.kind not in "fiU" or math.prod(shape) * dtype.itemsize != len(data):
        raise _DamagedError(f"an array of {dtype} and shape {shape} in {len(data)} bytes")
    return np.frombuffer(bytearray(data), dtype).reshape(shape, order="F" if fortran else "C")
