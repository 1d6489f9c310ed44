"""Computations with arrays: where the results of the steps stand, and which steps have no place of their own.

A step that is read once, or is cheap, is computed within the loops of those that read it. Of entries that were put
together (``concatenate``) the readers read the parts, and their loops end where a part does.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from fmepy.language.arrays import ArrayProgram, StridedRun
from fmepy.language.nodes import TABLE, Node, Number, in_order
from fmepy.types import IntVector

MOST_WITHIN = 20
"""Steps that are computed within a loop of another, one inside the other."""
MOST_USES, MOST_WORK = 3, 3
"""How often a step may be computed in place of once, and of how many operations."""
MOST_CUTS = 6
"""Where the loops over such a step end between its ends."""
MOST_RUNS = 32
"""Runs that are copied by a loop each; more go by a table of places."""
_QUICK = ("add", "subtract", "multiply", "negative")


class LoopEntry(NamedTuple):
    """The entry of a step that a loop is at: start + stride k, where its counter k begins at `first`."""

    k: int | str
    first: int = 0
    start: int = 0
    stride: int = 1

    def of(self, run: StridedRun) -> LoopEntry:
        """Return the entry that a run gives there."""
        return self._replace(start=run.start + run.stride * self.start, stride=run.stride * self.stride)

    @property
    def lowest(self) -> int:
        """The entry where the loop begins."""
        return self.start + self.stride * self.first


class ArrayLayout:
    """Where all steps of a computation stand in a block.

    Attributes
    ----------
    needed : list of int
        The steps that are read by anything, in order.
    size : int
        Of a block.
    places : dict of int to int
        Where the results of a step begin; of what is computed within others there are none.
    cuts : dict of int to list of int
        Entries of a step at which loops over it end, and others begin.
    tables : dict of int to int
        Where in `table` the places begin from which the entries of a join are copied.
    table : ndarray of int
    """

    def __init__(self, arrays: ArrayProgram) -> None:
        self._steps, self._inputs = arrays.steps, arrays.inputs
        wanted = {arrays.rates, *(run.step for run in (*arrays.checks, *arrays.extras))}
        wanted |= {i for i, step in enumerate(arrays.steps) if step.kind == "input"}
        found, waiting = set[int](), list(wanted)
        while waiting:
            if (i := waiting.pop()) not in found:
                found.add(i)
                waiting += [run.step for run in self._read_by(i)]
        self.needed, self._wanted = sorted(found), wanted
        self._readers: dict[int, list[tuple[int, StridedRun]]] = {i: [] for i in self.needed}
        for i in self.needed:
            for run in self._read_by(i):
                self._readers[run.step].append((i, run))
        self._tabled = {i for i in self.needed if self._is_join(i) and len(self._read_by(i)) > MOST_RUNS}
        self._set_places()
        table, self.tables = [np.zeros(1, dtype=np.int64)], dict[int, int]()
        for i in sorted(self._tabled):
            self.tables[i] = sum(map(len, table))
            table += [(self.places[run.step] + run.places).astype(np.int64) for run in self._read_by(i)]
        self.table: IntVector = np.concatenate(table)

    def is_prepared(self, i: int) -> bool:
        """Tell whether a step depends on parameters alone, and so is computed once a run."""
        return self._inputs[i] <= {"p"}

    def _is_join(self, i: int) -> bool:
        return self._steps[i].kind == "join"

    def _read_by(self, i: int) -> list[StridedRun]:
        return [run for read in self._steps[i].reads for run in read]

    def _set_places(self) -> None:
        uses, is_free = self._uses()
        self.size, self.places, self.cuts = 0, dict[int, int](), dict[int, list[int]]()
        depth, work = dict[int, int](), dict[int, int]()
        for i in self.needed:
            step, reads = self._steps[i], self._read_by(i)
            depth[i] = 1 + max((depth[run.step] for run in reads), default=0)
            done = [work[run.step] for run in reads]
            work[i] = max(done) if self._is_join(i) else sum(done) + (1 if step.word in _QUICK else 4)
            self.cuts[i] = self._cuts_of(i)
            within = step.kind in ("each", "join") and i not in self._wanted and i not in self._tabled
            within = within and depth[i] <= MOST_WITHIN and len(self.cuts[i]) <= MOST_CUTS
            within = within and all(self.is_prepared(i) == self.is_prepared(reader) for reader, _ in self._readers[i])
            if step.kind == "each":
                within = within and (uses[i] == 1 or (uses[i] <= MOST_USES and work[i] <= MOST_WORK))
                within = within and not _is_dear(step.formula.value)
            if not within or (self._is_join(i) and not is_free[i]):
                self.places[i] = self.size
                self.size += step.size
                depth[i] = work[i] = 0

    def _uses(self) -> tuple[dict[int, int], dict[int, bool]]:
        """Return how often an entry of a step is read, at most, and whether all loops that do so may be cut."""
        uses, is_free = dict[int, int](), dict[int, bool]()
        for i in reversed(self.needed):
            uses[i], is_free[i] = 0, True
            for reader, run in self._readers[i]:
                is_repeated = run.stride == 0 and run.length > 1
                if self._is_join(reader):
                    uses[i] += MOST_USES + 1 if reader in self._tabled or is_repeated else max(1, uses[reader])
                    is_free[i] &= reader not in self._tabled
                else:
                    uses[i] += MOST_USES + 1 if is_repeated else 1
                    is_free[i] &= self._steps[reader].kind == "each" and (reader in self._wanted or is_free[reader])
        return uses, is_free

    def _cuts_of(self, i: int) -> list[int]:
        """Return where loops over a step end, because what it reads is put together there."""
        out, before = set[int](), 0
        for run in self._read_by(i) if self._steps[i].kind in ("each", "join") else ():
            cuts = [] if run.step in self.places else _seen_by(run, self.cuts[run.step])
            out.update(before + k for k in cuts)
            if self._is_join(i):
                before += run.length
                out.add(before)
        return sorted(out - {self._steps[i].size})


def _seen_by(run: StridedRun, cuts: Iterable[int]) -> list[int]:
    """Return at which of its entries a run comes to the other side of each cut."""
    if run.stride > 0:
        found = [-((run.start - cut) // run.stride) for cut in cuts]
    else:
        found = [(run.start - cut) // -run.stride + 1 for cut in cuts if run.stride]
    return [k for k in found if 0 < k < run.length]


def _is_dear(e: Node) -> bool:
    """Tell whether an expression is kept, rather than computed twice: it calls a function of C."""
    return any(e.word == "**" or (e.word in TABLE and e.word != "where" and not TABLE[e.word].is_choice)
               for e in in_order([e]) if not is_whole_power(e))  # fmt: skip


def is_whole_power(e: Node) -> bool:
    """Tell whether an expression is a power by multiplications."""
    return e.word == "**" and isinstance(e.args[1], Number) and e.args[1].value.is_integer()
