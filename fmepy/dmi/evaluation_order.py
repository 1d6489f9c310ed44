"""In which order statements are evaluated: found from what reads what, element by element; what needs itself is a loop.

Of a step's evaluations those are left that belong to modules which are active. Their dependencies make a graph; its
strongly connected components are the loops, which are evaluated again and again, and between them there is an order. A
loop among whole arrays may be none among their elements (``D[0] = 2 * E[1]``, ``E = 3 * D``, ``D[1] = c``): then the
array's statement is evaluated in pieces.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Sequence
from functools import cached_property
from itertools import chain
from math import prod
from typing import Any, NamedTuple

import numpy as np
import scipy  # its rooms are loaded where they are asked for

from fmepy.dmi.stateful_functions import Evaluation
from fmepy.dmi.statements import TIME, Elements, Reference, Shape, element_names, reference_of
from fmepy.language.nodes import Symbol

MOST_PIECES = 5_000
"""Elements of the arrays of a loop up to which it is looked whether it is one among elements, too."""


class Piece(NamedTuple):
    """An evaluation, or the elements first to last - 1 of its target."""

    evaluation: int
    first: int
    last: int


class Block(NamedTuple):
    """Pieces that are evaluated one after the other; those of a loop until nothing moves."""

    pieces: tuple[Piece, ...]
    is_loop: bool


class Layout:
    """Where variables stand in the one array of all values: elements row by row, one variable after the other."""

    def __init__(self, shapes: dict[str, Shape]) -> None:
        self.shapes = shapes
        ends = np.cumsum([0, *map(prod, shapes.values())]).tolist()
        self.begin, self.length = dict(zip(shapes, ends, strict=False)), int(ends[-1])

    @cached_property
    def names(self) -> list[str]:
        """What the elements are called, place by place."""
        return [e for name, shape in self.shapes.items() for e in element_names(name, shape)]

    @cached_property
    def place(self) -> dict[str, int]:
        """Where every element stands."""
        return {name: i for i, name in enumerate(self.names)}

    def of(self, name: str) -> slice:
        """Return where a whole variable stands."""
        return slice(self.begin[name], self.begin[name] + prod(self.shapes[name]))

    def places_of(self, symbol: Symbol) -> Sequence[int]:
        """Return where what a symbol stands for stands."""
        if self.shapes.get(symbol.name, True):  # an array, or an element of one
            return self.span(reference_of(symbol, self.shapes))
        return (self.begin[symbol.name],)

    def span(self, target: Reference) -> range:
        """Return where what is referred to stands."""
        begin, positions = self.begin[target.name], target.positions
        return range(begin + positions.start, begin + positions.stop)


class Graph:
    """The evaluations of a system, and what they read and write.

    Parameters
    ----------
    evaluations : sequence of Evaluation
    layout : Layout
    short : set of int
        Evaluations that are lags which need x of the same step.

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
        """Return of every piece (and of the guesses behind them) which it needs.

        A guess comes before what it is a guess of; one that needs its own loop takes what stands there, zeros.
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
        if piece not in self._reads:  # the same in all schedules
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
        """Return the pieces in an order in which each comes after what it needs, loops apart.

        `guesses` give first values to pieces of loops, and come before them.
        """
        needs = self._needs(pieces, guesses)
        pieces = [*pieces, *guesses]
        found: list[tuple[list[Piece], bool]] = []
        for group, is_loop in components(needs):
            inside = [pieces[i] for i in group]
            if is_loop and (straight := self._without_false_loops(inside)):
                inside, is_loop = straight, False
            elif is_loop:
                inside = [pieces[i] for i in _unwound(group, needs)]
            if is_loop or not found or found[-1][1]:
                found.append((inside, is_loop))
            else:  # neighbours that are no loops are one block
                found[-1][0].extend(inside)
        return [Block(tuple(inside), is_loop) for inside, is_loop in found]

    def _without_false_loops(self, pieces: Sequence[Piece]) -> list[Piece]:
        """Return the pieces of a loop in smaller pieces that are none, neighbours of one array together; or nothing."""
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
        """Return what pieces give values to: variables, or elements where it is some of them."""
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
    """Return things by what each of them needs as a sparse matrix of truth values."""
    rows = np.repeat(np.arange(len(needs)), list(map(len, needs)))
    needed = np.fromiter(chain.from_iterable(needs), dtype=np.intp, count=len(rows))
    return scipy.sparse.csr_array((np.ones(len(rows), dtype=bool), (rows, needed)), shape=(len(needs), len(needs)))


def components(needs: Sequence[Collection[int]]) -> list[tuple[list[int], bool]]:
    """Return the strongly connected components, each after those that it needs, else in the order of their first.

    With each stands whether it is a loop: several things, or one that needs itself.
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


def _unwound(group: list[int], needs: Sequence[Collection[int]]) -> list[int]:
    """Return a loop in an order in which most of it comes after what it needs: what is needed first, first."""
    left, out, waiting = set(group), list[int](), group[::-1]
    while waiting:
        i = waiting.pop()
        if i < 0:
            out.append(~i)  # all that it needs has been begun
        elif i in left:
            left.remove(i)
            waiting += [~i, *sorted(left.intersection(needs[i]), reverse=True)]
    return out
