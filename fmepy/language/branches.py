"""The branches of choices that hold the parts of expressions, and so the cases in which parts are evaluated.

A branch of ``where(mode > 1/2, yes, no)`` is taken by the value of the mode. A part in several branches is evaluated in
any of them; one in both branches of a choice whenever the choice is. There are as many ways through
nested choices as combinations of their modes, so none is written out: a *case* is either "always" (0), or another case
and the value of a mode, or any of some cases, and each is made once and known by its number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from fmepy.language.nodes import Mode, in_order

ALWAYS = 0


class Within(NamedTuple):
    """While another case holds, and a mode has a value."""

    case: int
    mode: Any
    value: bool


class Branches:
    """The cases in which parts of expressions are evaluated.

    Parameters
    ----------
    expressions : iterable of Node
        The choices in them are by `nodes.Mode`, or no branches are seen in them.
    wanted : callable
        Whether a part is of interest.

    Attributes
    ----------
    order : list of Node
        The parts in which one of interest stands, each after those inside of it; none that is never taken.
    case : dict of Node to int
    ways : int
        To all the parts, from the expressions.
    cases : list of (Within or tuple of int)
        The definition of each case; that of "always" is ().
    """

    def __init__(self, expressions: Iterable[Any], wanted: Callable[[Any], object]) -> None:
        roots = list(expressions)
        self.cases: list[Within | tuple[int, ...]] = [()]
        self.case: dict[Any, int] = {}
        self._numbers: dict[Within | tuple[int, ...], int] = {}
        self._bits: dict[Any, int] = {}
        self._known = [(0, 0)]  # modes that have one value in all of a case, and the value: each is a bit
        order = parts_in_order(roots, wanted)
        uses: dict[Any, set[int]] = {e: set() for e in order}
        ways: dict[Any, int] = {}
        for e in roots:
            if e in uses:
                uses[e].add(ALWAYS)
                ways[e] = 1
        for e in reversed(order):
            if uses[e]:
                here = self.case[e] = self._any(uses[e])
                for a, case in self._inside(e, here):
                    if a in uses and case is not None:
                        uses[a].add(case)
                        ways[a] = ways.get(a, 0) + ways[e]
        self.order = [e for e in order if uses[e]]
        self.ways = sum(ways.values())

    def value_of(self, mode: Any, case: int) -> bool | None:
        """Return the value that a mode has in a case; None if it may have both."""
        bit, (known, values) = self._bits.get(mode, 0), self._known[case]
        return bool(values & bit) if known & bit else None

    def _inside(self, e: Any, case: int) -> Iterable[tuple[Any, int | None]]:
        if not is_branching(e):
            return [(a, case) for a in e.args]
        mode, _, yes, no = e.args
        return [(yes, self._within(case, mode, True)), (no, self._within(case, mode, False))]

    def _within(self, case: int, mode: Any, value: bool) -> int | None:
        bit, (known, values) = self._bits.setdefault(mode, 1 << len(self._bits)), self._known[case]
        if known & bit:
            return case if bool(values & bit) == value else None
        return self._number(Within(case, mode, value), (known | bit, values | bit if value else values))

    def _any(self, cases: set[int]) -> int:
        """Return the case that any of some cases is."""
        waiting, found = sorted(cases), set[int]()
        while waiting and len(waiting) + len(found) > 1:
            if (i := waiting.pop()) == ALWAYS:
                return ALWAYS
            if not isinstance(made := self.cases[i], Within):
                waiting += made
                continue
            contrary = self._numbers.get(Within(made.case, made.mode, not made.value), -1)
            if contrary in found:
                found.remove(contrary)
                waiting.append(made.case)
            else:
                found.add(i)
        some = tuple(sorted(found.union(waiting)))
        some = tuple(i for i in some if not self._is_inside(i, some)) if len(some) > 1 else some
        if len(some) == 1:
            return some[0]
        known, values = self._known[some[0]]
        for i in some[1:]:
            known &= self._known[i][0] & ~(values ^ self._known[i][1])
        return self._number(some, (known, values & known))

    def _is_inside(self, i: int, cases: tuple[int, ...]) -> bool:
        """Tell whether a case is a part of one of others."""
        while isinstance(made := self.cases[i], Within):
            i = made.case
            if i in cases:
                return True
        return False

    def _number(self, made: Within | tuple[int, ...], known: tuple[int, int]) -> int:
        if made not in self._numbers:
            self._numbers[made] = len(self.cases)
            self.cases.append(made)
            self._known.append(known)
        return self._numbers[made]


def is_branching(e: Any) -> bool:
    """Tell whether an expression is a choice by a mode."""
    return e.word == "where" and isinstance(e.args[0], Mode)


def parts_in_order(expressions: Iterable[Any], wanted: Callable[[Any], object]) -> list[Any]:
    """Return the parts of expressions that hold a wanted part, each once and after those inside of it."""
    found: dict[Any, bool] = {}
    for e in in_order(expressions):
        found[e] = bool(e.args) and (bool(wanted(e)) or any(found[a] for a in e.args))
    return [e for e, is_wanted in found.items() if is_wanted]
