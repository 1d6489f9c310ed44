"""A chain on disk: append-only numbered parts, from which it goes on as if nothing had happened.

A journal (`fmepy.journal.folder`) holds ``header.json`` (the arguments, and the cost at the start, see
`fmepy.mcmc.header`), and, for every chain, the parts ``chain-000.part-000000.npz``, ... Each part holds the rows saved
since the one before, the state of the kernel, and the state of the random numbers; part 0 is the start.

A part says after which iteration it begins and with which it ends. **Reading stops at the first part that does not
join**: one that is missing, damaged, of another checkpoint, or that begins elsewhere than where the one before ends.
Later parts are set aside with a warning; the chain runs these iterations again, to the very same rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fmepy.errors import ArgumentError
from fmepy.journal.arrays import DAMAGE
from fmepy.journal.folder import Journal, reason

_FORMAT = 2


@dataclass(frozen=True, slots=True, eq=False)
class ChainPart:
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


class ChainJournal(Journal):
    """The folder of a checkpoint of chains."""

    def __init__(self, path: Any) -> None:
        super().__init__(path, "a chain", _FORMAT)

    def create(self, header: Mapping[str, Any]) -> None:
        """Begin a checkpoint in a locked folder; refuse one that holds a chain, or parts of one."""
        if self.begun:
            self.read_header()  # raises an error if the folder is of another kind
            raise ArgumentError(
                f"`checkpoint`: the folder {str(self.path)!r} holds a chain already. "
                f"resume_mcmc(f, {str(self.path)!r}) continues it; for a new one name another folder."
            )
        super().create(header)

    def append(self, chain: int, number: int, part: ChainPart) -> None:
        """Write a part; raise OSError, and leave no file, if that fails."""
        table = {"chain": chain} | {name: getattr(part, name) for name in _FIELDS}
        arrays = {f"row_{k}": v for k, v in part.rows.items()} | {f"state_{k}": v for k, v in part.state.items()}
        self.write_part(self.part_name(_series(chain), number), table, arrays)

    def chain(self, chain: int) -> tuple[list[ChainPart], str]:
        """Return the parts of a chain that join, in order, and why a later one does not ("" without one)."""
        parts: list[ChainPart] = []
        while (file := self.path / self.part_name(_series(chain), len(parts))).exists():
            try:
                parts.append(self._read_next(file, chain, parts[-1].iteration if parts else None))
            except DAMAGE as error:
                return parts, f"{file.name} cannot be read ({reason(error)})"
        return parts, f"{file.name} is missing" if self._parts_from(chain, len(parts)) else ""

    def _read_next(self, file: Path, chain: int, before: int | None) -> ChainPart:
        """Return the part in a file; raise ValueError if it is not the next one of this chain."""
        table, arrays = self.read_part(file)
        begin, end = int(table["begin"]), int(table["iteration"])
        if table["chain"] != chain:
            raise ValueError("it belongs to another chain")
        if begin != (before or 0) or end < begin or end == before:
            raise ValueError(f"it holds iterations {begin + 1} to {end}, which do not join: {before or 0} are done")
        rows = {k.removeprefix("row_"): v for k, v in arrays.items() if k.startswith("row_")}
        state = {k.removeprefix("state_"): v for k, v in arrays.items() if k.startswith("state_")}
        return ChainPart(rows=rows, state=state, **{name: table[name] for name in _FIELDS})

    def _parts_from(self, chain: int, number: int) -> list[Path]:
        """Return the files of a chain from a number on."""
        return [f for f in self.parts(_series(chain)) if f.name >= self.part_name(_series(chain), number)]

    def set_aside(self, chain: int, number: int, why: str) -> str:
        """Move the parts of a chain from a number on aside; return a sentence about it."""
        status = f"goes on from part {number - 1}" if number else "starts again"
        return f"Chain {chain} {status}: {why}. {self.put_aside(self._parts_from(chain, number))}"


_FIELDS = ("begin", "iteration", "rng", "failures", "last_failure", "retries")


def _series(chain: int) -> str:
    return f"chain-{chain:03d}"
