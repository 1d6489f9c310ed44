"""In which order statements are evaluated: found from what reads what, element by element; what needs itself is a loop.

Of a step's evaluations those are left that belong to modules which are active. Their dependencies make a graph; its
strongly connected components are the loops, which are evaluated again and again, and between them there is an order. A
loop among whole arrays may be none among their elements (``D[0] = 2 * E[1]``, ``E = 3 * D``, ``D[1] = c``): then the
array's statement is evaluated in pieces.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from math import prod
from typing import Any, TypeAlias

import numpy as np

from fmepy.dmi.stateful_functions import Evaluation, reads_of
from fmepy.dmi.statements import Reference, Shape, element_names
from fmepy.types import IntVector

MOST_PIECES = 5_000
"""Elements of the arrays of a loop up to which it is looked whether it is one among elements, too."""


@dataclass(frozen=True, slots=True)
class Piece:
    """An evaluation, or the elements first to last - 1 of its target."""

    evaluation: int
    first: int
    last: int


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Pieces that are evaluated one after the other; those of a loop until nothing moves."""

    pieces: tuple[Piece, ...]
    is_loop: bool


Edges: TypeAlias = "list[set[int]]"
"""Of every piece the pieces that must come before it."""


class Layout:
    """Where variables stand in the one array of all values: elements row by row, one variable after the other."""

    def __init__(self, shapes: dict[str, Shape]) -> None:
        self.shapes = shapes
        self.begin: dict[str, int] = {}
        self.size: dict[str, int] = {}
        n = 0
        for name, shape in shapes.items():
            self.begin[name], self.size[name] = n, prod(shape)
            n += prod(shape)
        self.length = n

    @cached_property
    def names(self) -> list[str]:
        """What the elements are called, place by place."""
        return [e for name, shape in self.shapes.items() for e in element_names(name, shape)]

    def places(self, name: str, positions: Iterable[int]) -> IntVector:
        """Return where elements of a variable stand."""
        return np.asarray(list(positions), dtype=np.intp) + self.begin[name]

    def places_of(self, target: Reference) -> IntVector:
        """Return where what is referred to stands."""
        return self.places(target.name, target.positions)

    def of(self, name: str) -> slice:
        """Return where a whole variable stands."""
        return slice(self.begin[name], self.begin[name] + self.size[name])


class Graph:
    """The evaluations of a system, and what they read and write.

    Parameters
    ----------
    evaluations : sequence of Evaluation
    layout : Layout
    short : set of int
        Evaluations that are lags which need x of the same step.
    """

    def __init__(self, evaluations: Sequence[Evaluation], layout: Layout, short: frozenset[int]) -> None:
        self._evaluations, self._layout, self._short = evaluations, layout, short
        self._reads: dict[Piece, tuple[list[int], list[slice]]] = {}

    def whole(self, evaluation: int) -> Piece:
        """Return an evaluation as one piece."""
        positions = self._evaluations[evaluation].target.positions
        return Piece(evaluation, positions.start, positions.stop)

    def written(self, piece: Piece) -> IntVector:
        """Return the places that a piece writes to."""
        job = self._evaluations[piece.evaluation]
        if job.kind == "python":
            return np.concatenate([self._layout.places_of(t) for t in job.targets])
        return self._layout.places(job.target.name, range(piece.first, piece.last))

    def edges(self, pieces: Sequence[Piece]) -> Edges:
        """Return of every piece what it reads of others, and of itself."""
        writer = self._writers(pieces)
        return [self._before(piece, writer) for piece in pieces]

    def _writers(self, pieces: Sequence[Piece]) -> IntVector:
        """Return of every place the piece that writes to it, or -1."""
        writer = np.full(self._layout.length, -1, dtype=np.intp)
        for i, piece in enumerate(pieces):
            writer[self.written(piece)] = i
        return writer

    def _with_guesses(self, edges: Edges, pieces: Sequence[Piece], guesses: Sequence[Piece]) -> Edges:
        """Return the edges of pieces and guesses. A guess that needs its own loop takes what stands there, zeros."""
        writer = self._writers(pieces)
        edges = [*edges, *(self._before(g, writer) for g in guesses)]
        for i, g in enumerate(guesses, len(pieces)):
            for w in set(writer[self.written(g)].tolist()) - {-1}:
                edges[w].add(i)
        for group in components(edges):
            for i in group:
                if i >= len(pieces) and len(group) > 1:
                    edges[i] = set()
        return edges

    def _before(self, piece: Piece, writer: IntVector) -> set[int]:
        if piece not in self._reads:  # the same in all schedules
            self._reads[piece] = self._read_by(piece)
        places, arrays = self._reads[piece]
        found = set(writer[places].tolist())
        for array in arrays:
            mine = writer[array]
            found.update((np.unique(mine) if len(mine) > 100 else mine).tolist())
        found.discard(-1)
        return found

    def _read_by(self, piece: Piece) -> tuple[list[int], list[slice]]:
        """Return the places that a piece reads: single ones, and those of whole arrays."""
        job, layout = self._evaluations[piece.evaluation], self._layout
        places: set[int] = set()
        arrays: set[str] = set()
        whole = piece == self.whole(piece.evaluation)
        for element in [None] if whole else range(piece.first, piece.last):
            wanted = list(reads_of(job, layout.shapes, element))
            if piece.evaluation in self._short:
                x = job.arguments[0]
                wanted.append((x.name, element if x.value_shape else x.positions[0]))
            for name, position in wanted:
                if position is None and layout.size[name] > 1:
                    arrays.add(name)
                else:
                    places.add(layout.begin[name] + (position or 0))
        return sorted(places), [layout.of(name) for name in sorted(arrays)]

    def blocks(self, pieces: Sequence[Piece], guesses: Sequence[Piece] = ()) -> list[Block]:
        """Return the pieces in an order in which each comes after what it needs, loops apart.

        `guesses` give first values to pieces of loops, and come before them.
        """
        edges = self.edges(pieces)
        if guesses:
            edges = self._with_guesses(edges, pieces, guesses)
            pieces = [*pieces, *guesses]
        found: list[Block] = []
        for group in components(edges):
            inside = [pieces[i] for i in group]
            if len(group) == 1 and group[0] not in edges[group[0]]:
                found.append(Block(tuple(inside), False))
            else:
                found.append(self._without_false_loops(inside) or Block(_unwound(inside, group, edges), True))
        return _merged(found)

    def _without_false_loops(self, pieces: Sequence[Piece]) -> Block | None:
        """Return the pieces of a loop in smaller pieces that are none."""
        if all(p.last - p.first == 1 for p in pieces) or sum(p.last - p.first for p in pieces) > MOST_PIECES:
            return None
        small: list[Piece] = []
        for p in pieces:
            splits = self._evaluations[p.evaluation].kind != "python"
            small += [Piece(p.evaluation, i, i + 1) for i in range(p.first, p.last)] if splits else [p]
        edges = self.edges(small)
        groups = components(edges)
        if any(len(group) > 1 or group[0] in edges[group[0]] for group in groups):
            return None
        return Block(_adjoining([small[group[0]] for group in groups]), False)

    def looping(self, pieces: Sequence[Piece]) -> IntVector:
        """Return the places that loops write to."""
        places = [self.written(p) for s in self.blocks(pieces) if s.is_loop for p in s.pieces]
        return np.concatenate([np.zeros(0, dtype=np.intp), *places])


def _adjoining(pieces: list[Piece]) -> tuple[Piece, ...]:
    """Return pieces with neighbours of one array made one again."""
    out: list[Piece] = []
    for p in pieces:
        if out and out[-1].evaluation == p.evaluation and out[-1].last == p.first:
            out[-1] = Piece(p.evaluation, out[-1].first, p.last)
        else:
            out.append(p)
    return tuple(out)


def _merged(blocks: list[Block]) -> list[Block]:
    """Return blocks with neighbours that are no loops made one."""
    out: list[Block] = []
    for is_loop, group in groupby(blocks, key=lambda s: s.is_loop):
        if is_loop:
            out += group
        else:
            out.append(Block(tuple(p for s in group for p in s.pieces), False))
    return out


def components(edges: Sequence[Collection[int]]) -> list[list[int]]:
    """Return the strongly connected components, each after those that it needs; else in the order of their first."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    n = len(edges)
    if n == 0:
        return []
    rows = np.repeat(np.arange(n), [len(before) for before in edges])
    columns = np.fromiter((b for before in edges for b in before), dtype=np.intp, count=len(rows))
    graph: Any = csr_array((np.ones(len(rows), dtype=np.int8), (rows, columns)), shape=(n, n))
    n_groups, label = connected_components(graph, directed=True, connection="strong")
    groups: list[list[int]] = [[] for _ in range(n_groups)]
    for i, g in enumerate(label.tolist()):
        groups[g].append(i)
    after: list[set[int]] = [set() for _ in range(n_groups)]
    waits = [0] * n_groups
    for i, before in enumerate(edges):
        for b in before:
            if label[b] != label[i] and label[i] not in after[label[b]]:
                after[label[b]].add(int(label[i]))
                waits[label[i]] += 1
    ready = [(groups[g][0], g) for g in range(n_groups) if not waits[g]]
    heapq.heapify(ready)
    out = []
    while ready:
        _, g = heapq.heappop(ready)
        out.append(groups[g])
        for other in after[g]:
            waits[other] -= 1
            if not waits[other]:
                heapq.heappush(ready, (groups[other][0], other))
    return out


def _unwound(pieces: list[Piece], group: list[int], edges: Edges) -> tuple[Piece, ...]:
    """Return a loop in an order in which most of it comes after what it needs: what is needed first, first."""
    index = {g: i for i, g in enumerate(group)}
    state = dict.fromkeys(group, 0)  # 1: begun, 2: done
    out: list[Piece] = []
    for root in group:
        waiting = [root]
        while waiting:
            at = waiting[-1]
            if state[at] == 0:
                state[at] = 1
                waiting += sorted((b for b in edges[at] if state.get(b) == 0), reverse=True)
                continue
            waiting.pop()
            if state[at] == 1:
                state[at] = 2
                out.append(pieces[index[at]])
    return tuple(out)
