"""Whole numbers of symbols, ``int(t)`` in a function that is traced, and what tables hold at such a place.

``rain[int(t)]`` is a step function of the time: an interpolant of degree zero, at whose breaks runs stop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fmepy.errors import TracingError
from fmepy.language.interpolants import MOST_POINTS, Interpolant, in_cycle
from fmepy.types import IntVector

MOST_BEFORE, _FAR = 1000, 10**12
"""Of these below zero; where a bounded one has come to its bound."""
_STAYING = ("add", "subtract", "multiply", "remainder", "floor_divide", "minimum", "maximum")
"""Functions of whole numbers that give whole numbers."""


@dataclass(frozen=True, slots=True, eq=False)
class Whole:
    """A whole number: a function of the floor of a symbol, or of what is left of it without its decimals.

    Attributes
    ----------
    base : traced number
    truncates : bool
        Whether it is without its decimals.
    of : callable
        Takes arrays of whole numbers.
    unit, period : int
        How many whole numbers it counts as one (0: it is bounded); after how many it repeats itself (0: never).
    """

    base: Any
    truncates: bool
    of: Callable[[IntVector], Any] = lambda k: k
    unit: int = 1
    period: int = 0

    def after(self, name: str, arguments: Sequence[Any], place: int) -> Whole | None:
        """Return what a ufunc gives of this, in its place among numbers; None where that is no whole number."""
        others = [a for i, a in enumerate(arguments) if i != place]
        if name not in _STAYING or not all(isinstance(a, int | np.integer) for a in others):
            return None
        before, function, unit, period = self.of, getattr(np, name), self.unit, self.period
        if name in ("minimum", "maximum"):
            unit = 0
        elif place == 0 and others and others[0] > 0 and not period:
            if name == "floor_divide":
                unit *= int(others[0])
            elif name == "remainder":
                period = unit * int(others[0])

        def of(k: IntVector) -> Any:
            return function(*(before(k) if i == place else a for i, a in enumerate(arguments)))

        return replace(self, of=of, unit=unit, period=period)

    def entry_of(self, table: Any, kind: type[np.ndarray]) -> Any:
        """Return what an array holds here along its first dimension, as a symbol or an array of this kind of such.

        It is NaN where the array has no such place.
        """
        n, period = len(table), self.period
        floors = np.arange(period) if period else np.arange(-MOST_BEFORE, MOST_POINTS)
        places = self.of(np.where(self.truncates & (floors < 0), floors + 1, floors))
        inside = np.flatnonzero((places >= -n) & (places < n))
        if not len(inside) or inside[-1] - inside[0] >= len(inside):
            raise TracingError(f"a table of {n} entries has none at some of the places where it is looked up")
        begins = inside[np.append(True, np.diff(places[inside]) != 0)]
        at = np.append(floors[begins], floors[inside[-1]] + 1).astype(float)
        x = in_cycle(self.base, 0.0, float(period)) if period else self.base
        values = np.asarray(table, dtype=float)[places[begins]]
        is_cut = inside[0] == 0, inside[-1] == len(floors) - 1
        before, behind = (
            cut and self.of(np.array([far]))[0] == places[k]
            for cut, far, k in zip(is_cut, (-_FAR, _FAR), (0, -1), strict=True)
        )
        if is_cut[1] and not (behind or period):
            raise TracingError(f"a table is looked up at more than {MOST_POINTS} places")

        def entry(levels: Any) -> Any:
            left, right = levels[0] if before else np.nan, levels[-1] if behind else np.nan
            value: Any = Interpolant(at, np.append(levels, levels[-1]), levels[None], left, right)(x)
            return np.where(np.less(self.base, 0), np.nan, value) if period and self.truncates else value

        if values.ndim == 1:
            return entry(values)
        columns = values.reshape(len(values), -1).T
        return np.array([entry(c) for c in columns], dtype=object).reshape(values.shape[1:]).view(kind)
