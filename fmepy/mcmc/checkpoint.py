"""A chain on disk: append-only numbered parts, from which it goes on as if nothing had happened.

A folder (`fmepy.parallel.folder`) holds ``header.json`` (what was asked for, and what it gave at the start, see
`fmepy.mcmc.header`), and, for every chain, the parts ``chain-000.part-000000.npz``, ... Each part holds the rows saved
since the one before, the state of the kernel, and the state of the random numbers; part 0 is the start.

A part says after which iteration it begins and with which it ends. **Reading stops at the first part that does not
join**: one that is missing, damaged, of another checkpoint, or that begins elsewhere than where the one before ends.
What lies behind is left aside and told; the chain runs these iterations again, to the very same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fmepy.errors import ArgumentError
from fmepy.parallel.folder import DAMAGED, DamagedError, KeptFolder

_FORMAT = 2
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


class Folder(KeptFolder):
    """The folder of a checkpoint of chains."""

    def __init__(self, path: Any) -> None:
        super().__init__(path, "a chain", _FORMAT)

    def create(self, header: Mapping[str, Any]) -> None:
        """Begin a checkpoint in a folder that is held; refuse one that holds a chain, or parts of one."""
        if self.begun:
            self.read_header()  # says so where it is of something else
            raise ArgumentError(
                f"`checkpoint`: the folder {str(self.path)!r} holds a chain already. "
                f"resume_mcmc(f, {str(self.path)!r}) continues it; for a new one name another folder."
            )
        super().create(header)

    # --- the parts

    def _name(self, chain: int, number: int) -> str:
        return f"chain-{chain:03d}.part-{number:06d}.npz"

    def append(self, chain: int, number: int, part: Part) -> None:
        """Write a part; raise OSError if it cannot be, and leave nothing of it."""
        meta = {
            "chain": chain,
            "begin": part.begin,
            "iteration": part.iteration,
            "rng": part.rng,
            "failures": part.failures,
            "last_failure": part.last_failure,
            "retries": part.retries,
        }
        arrays = {f"row_{k}": v for k, v in part.rows.items()} | {f"state_{k}": v for k, v in part.state.items()}
        self.write_part(self._name(chain, number), meta, arrays)

    def parts(self, chain: int, shapes: Shapes) -> tuple[list[Part], str]:
        """Return the parts of a chain that join, in order, and why the next one does not ("" if there is none)."""
        found: list[Part] = []
        while (file := self.path / self._name(chain, len(found))).exists():
            try:
                part = self._joining(self.read_part(file), chain, found, shapes)
            except DAMAGED as error:
                return found, f"{file.name} cannot be read ({str(error).rstrip('.') or type(error).__name__})"
            found.append(part)
        return found, f"{file.name} is missing" if self._behind(chain, len(found)) else ""

    def _joining(self, read: tuple[Any, dict[str, Any]], chain: int, before: list[Part], shapes: Shapes) -> Part:
        """Return a part if it is the next one of this chain, and what it holds can be."""
        meta, arrays = read
        if meta["chain"] != chain:
            raise DamagedError("it belongs to another chain")
        begin, iteration = _whole(meta, "begin"), _whole(meta, "iteration")
        there = before[-1].iteration if before else 0
        if begin != there or iteration < begin or (before and iteration == begin):
            raise DamagedError(
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
        goes_on = f"goes on from part {number - 1}" if number else "begins anew"
        return f"Chain {chain} {goes_on}: {why}. {self.put_aside(self._behind(chain, number))}"


def _whole(meta: Mapping[str, Any], name: str) -> int:
    value = meta[name]
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise DamagedError(f"{name} is {value!r}")
    return value


def _check_arrays(arrays: Mapping[str, Any], wanted: Mapping[str, tuple[tuple[int, ...], Any]]) -> None:
    """Raise unless there are exactly these arrays, of these shapes (-1: any number) and types, without NaN."""
    if set(arrays) != set(wanted):
        raise DamagedError(f"it holds {sorted(arrays)}, not {sorted(wanted)}")
    for name, (shape, dtype) in wanted.items():
        array = arrays[name]
        if (
            array.dtype != dtype
            or array.ndim != len(shape)
            or any(a not in (b, -1) for a, b in zip(shape, array.shape, strict=True))
        ):
            raise DamagedError(f"{name} is {array.dtype} {array.shape}, not {dtype} {shape}")
        if array.dtype.kind == "f" and np.isnan(array).any():
            raise DamagedError(f"{name} holds NaN")
