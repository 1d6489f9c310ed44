"""The order in which statements are evaluated, from their dependencies, element by element.

The evaluations of the active modules of a step and their dependencies are a graph. Its strongly connected components
are the loops, which are evaluated repeatedly; the components are sorted topologically. A loop of whole arrays may be no
loop of their elements (``D[0] = 2 * E[1]``, ``E = 3 * D``, ``D[1] = c``): then the statements of the arrays are
evaluated in pieces.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Sequence
from functools import cached_property
from itertools import chain
from math import prod
from typing import Any, NamedTuple

import numpy as np
import scipy  # its subpackages are loaded at their first use

from fmepy.dmi.stateful_functions import Evaluation
from fmepy.dmi.statements import TIME, Elements, Reference, Shape, element_names, reference_of
from fmepy.language.nodes import Symbol

MOST_PIECES = 5_000
"""Largest number of elements of a loop's arrays for which loops are sought by element."""


class Piece(NamedTuple):
    """An evaluation, or the elements first to last - 1 of its target."""

    evaluation: int
    first: int
    last: int


class Block(NamedTuple):
    """Pieces that are evaluated in order; those of a loop repeatedly, until nothing moves."""

    pieces: tuple[Piece, ...]
    is_loop: bool


class Layout:
    """The places of variables in the array of all values: elements row by row, variable after variable."""

    def __init__(self, shapes: dict[str, Shape]) -> None:
        self.shapes = shapes
        ends = np.cumsum([0, *map(prod, shapes.values())]).tolist()
        self.begin, self.length = dict(zip(shapes, ends, strict=False)), int(ends[-1])

    @cached_property
    def names(self) -> list[str]:
        """The names of all elements, in the order of their places."""
        return [e for name, shape in self.shapes.items() for e in element_names(name, shape)]

    @cached_property
    def place(self) -> dict[str, int]:
        """The place of every element."""
        return {name: i for i, name in enumerate(self.names)}

    def of(self, name: str) -> slice:
        """Return the places of a whole variable."""
        return slice(self.begin[name], self.begin[name] + prod(self.shapes[name]))

    def places_of(self, symbol: Symbol) -> Sequence[int]:
        """Return the places of a symbol's variable or element."""
        if self.shapes.get(symbol.name, True):  # an array, or an element of one
            return self.span(reference_of(symbol, self.shapes))
        return (self.begin[symbol.name],)

    def span(self, target: Reference) -> range:
        """Return the places of a reference."""
        begin, positions = self.begin[target.name], target.positions
        return range(begin + positions.start, begin + positions.stop)


class Graph:
    """The evaluations of a system, with the places that they read and write.

    Parameters
    ----------
    evaluations : sequence of Evaluation
    layout : Layout
    short : set of int
        Lags that may need x of the same step.

    Attributes
    ----------
    whole : list of Piece
        Every evaluation as one piece.
    """

    def __init__(self, evaluations: Sequence[Evaluation], layout: Layout, short: frozenset[int]) -> None:
        self._evaluations, self._layout, self._short = evaluations, layout, short
        positions = (e.target.positions for e in evaluations)
        self.whole = [Piece(i, at.start, at.stop) for i, at in enumerate(positions)]
        self._reads: dict[Piece, list[int]] = {}

    def written(self, piece: Piece) -> Sequence[int]:
        """Return the places that a piece writes to."""
        job = self._evaluations[piece.evaluation]
        if job.kind == "python":
            return [place for target in job.targets for place in self._layout.span(target)]
        begin = self._layout.begin[job.target.name]
        return range(begin + piece.first, begin + piece.last)

    def _needs(self, pieces: Sequence[Piece], guesses: Sequence[Piece] = ()) -> list[set[int]]:
        """Return the dependencies of every piece, then those of the guesses.

        A guess comes before the piece it is a guess of; one that needs its own loop reads the present values, zeros.
        """
        n, every = len(pieces), [*pieces, *guesses]
        writer = {place: i for i, piece in enumerate(pieces) for place in self.written(piece)}
        needs = [{writer[place] for place in self._read_by(piece) if place in writer} for piece in every]
        for i, guess in enumerate(guesses, n):
            for place in writer.keys() & self.written(guess):
                needs[writer[place]].add(i)
        for group, _ in components(needs) if guesses else ():
            for i in group if len(group) > 1 else ():
                needs[i] = needs[i] if i < n else set()
        return needs

    def _read_by(self, piece: Piece) -> list[int]:
        """Return the places that a piece reads."""
        if piece not in self._reads:  # stored, as they are the same in all schedules
            spans: list[Sequence[int]]
            job, layout = self._evaluations[piece.evaluation], self._layout
            is_whole = piece == self.whole[piece.evaluation]
            if job.value is None:
                needs_x = job.kind != "lag" or piece.evaluation in self._short
                spans = [layout.span(r) for r in job.arguments[0 if needs_x else 1 :]]
                if not is_whole:
                    spans = [s[piece.first : piece.last] if len(s) > 1 else s for s in spans]
            else:
                values = [job.value]
                if not is_whole:
                    elements = Elements(layout.shapes)
                    values = [elements.at(job.value, i) for i in range(piece.first, piece.last)]
                symbols = {s for value in values for s in value.free_symbols if s is not TIME}
                spans = [layout.places_of(s) for s in symbols]
            self._reads[piece] = sorted({place for span in spans for place in span})
        return self._reads[piece]

    def blocks(self, pieces: Sequence[Piece], guesses: Sequence[Piece] = ()) -> list[Block]:
        """Return the pieces sorted by their dependencies, in blocks; each loop is a block of its own.

        `guesses` are first values of pieces of loops, and come before them.
        """
        needs = self._needs(pieces, guesses)
        pieces = [*pieces, *guesses]
        blocks: list[tuple[list[Piece], bool]] = []
        for group, is_loop in components(needs):
            inside = [pieces[i] for i in group]
            if is_loop and (straight := self._split_into_elements(inside)):
                inside, is_loop = straight, False
            elif is_loop:
                inside = [pieces[i] for i in _depth_first(group, needs)]
            if is_loop or not blocks or blocks[-1][1]:
                blocks.append((inside, is_loop))
            else:  # neighbours without loops become one block
                blocks[-1][0].extend(inside)
        return [Block(tuple(inside), is_loop) for inside, is_loop in blocks]

    def _split_into_elements(self, pieces: Sequence[Piece]) -> list[Piece]:
        """Return the sorted elements of a loop that is none by element, neighbours of an array joined; else nothing."""
        if all(p.last - p.first == 1 for p in pieces) or sum(p.last - p.first for p in pieces) > MOST_PIECES:
            return []
        small: list[Piece] = []
        for p in pieces:
            splits = self._evaluations[p.evaluation].kind != "python"
            small += [Piece(p.evaluation, i, i + 1) for i in range(p.first, p.last)] if splits else [p]
        groups = components(self._needs(small))
        if any(is_loop for _, is_loop in groups):
            return []
        out: list[Piece] = []
        for (i,), _ in groups:
            p = small[i]
            if out and out[-1].evaluation == p.evaluation and out[-1].last == p.first:
                out[-1] = out[-1]._replace(last=p.last)
            else:
                out.append(p)
        return out

    def names(self, pieces: Iterable[Piece]) -> tuple[str, ...]:
        """Return the variables that pieces assign, or their elements where not all of them are assigned."""
        layout, names = self._layout, dict[str, None]()
        inside = {place for p in pieces for place in self.written(p)}
        for i, first, last in pieces:
            for target in self._evaluations[i].targets or (self._evaluations[i].target,):
                whole = layout.of(target.name)
                is_whole = inside.issuperset(range(whole.start, whole.stop))
                names |= dict.fromkeys([target.name] if is_whole else layout.names[whole][first:last])
        return tuple(names)


# --- graphs


def graph_of(needs: Sequence[Collection[int]]) -> Any:
    """Return the dependency graph as a sparse matrix of truth values."""
    rows = np.repeat(np.arange(len(needs)), list(map(len, needs)))
    needed = np.fromiter(chain.from_iterable(needs), dtype=np.intp, count=len(rows))
    return scipy.sparse.csr_array((np.ones(len(rows), dtype=bool), (rows, needed)), shape=(len(needs), len(needs)))


def components(needs: Sequence[Collection[int]]) -> list[tuple[list[int], bool]]:
    """Return the strongly connected components, each after its dependencies, else in the order of their first member.

    With each comes whether it is a loop: it has several members, or one that needs itself.
    """
    if not needs:
        return []
    label = scipy.sparse.csgraph.connected_components(graph_of(needs), connection="strong")[1].tolist()
    members: dict[int, list[int]] = {}
    for i, g in enumerate(label):
        members.setdefault(g, []).append(i)
    first = [members[g][0] for g in label]
    waits, after = dict.fromkeys(first, 0), dict[int, list[int]]()
    for i, some in zip(first, needs, strict=True):
        for j in some:
            if first[j] != i:
                waits[i] += 1
                after.setdefault(first[j], []).append(i)
    ready, out = [i for i, n in waits.items() if not n], list[tuple[list[int], bool]]()
    while ready:
        i = heapq.heappop(ready)
        out.append((members[label[i]], len(members[label[i]]) > 1 or i in needs[i]))
        for j in after.get(i, ()):
            waits[j] -= 1
            if not waits[j]:
                heapq.heappush(ready, j)
    return out


def _depth_first(group: list[int], needs: Sequence[Collection[int]]) -> list[int]:
    """Return the members of a loop in depth-first order: most of them come after their dependencies."""
    left, out, waiting = set(group), list[int](), group[::-1]
    while waiting:
        i = waiting.pop()
        if i < 0:
            out.append(~i)  # all its dependencies have been visited
        elif i in left:
            left.remove(i)
            waiting += [~i, *sorted(left.intersection(needs[i]), reverse=True)]
    return out
