"""Whole numbers of symbols, ``int(t)`` in a function that is traced, and what tables hold at such a place.

``rain[int(t)]`` is a step function of the time: an interpolant of degree zero, at whose breaks runs stop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fmepy.errors import TracingError
from fmepy.language.conditions import relation
from fmepy.language.functions import of_numpy
from fmepy.language.interpolants import MOST_POINTS, Interpolant, in_cycle
from fmepy.language.nodes import Node, call
from fmepy.language.tracing import Condition, SymbolArray, Traced, as_expression
from fmepy.types import IntVector

MOST_BEFORE, _FAR = 1000, 10**12
"""Of these below zero; where a bounded one has come to its bound."""
_STAYING = ("add", "subtract", "multiply", "remainder", "floor_divide", "minimum", "maximum")
"""Functions of whole numbers that give whole numbers."""


class Whole(Traced):
    """A whole number: a function of the floor of a symbol, or of what is left of it without its decimals.

    Attributes
    ----------
    base : Traced
    truncates : bool
        Whether it is without its decimals.
    of : callable
        Takes arrays of whole numbers.
    unit, period : int
        How many whole numbers it counts as one (0: it is bounded); after how many it repeats itself (0: never).
    """

    __slots__ = ("base", "of", "period", "truncates", "unit")

    def __init__(self, expression: Node, base: Traced, truncates: bool) -> None:
        super().__init__(expression)
        self.base, self.truncates, self.unit, self.period = base, truncates, 1, 0
        self.of: Callable[[IntVector], Any] = lambda k: k

    @classmethod
    def within(cls, x: Traced) -> Whole:
        """Return ``int(x)``."""
        if isinstance(x, cls):
            return x
        if x.expression.word == "floor":
            return cls(x.expression, Traced(x.expression.args[0]), truncates=False)
        truncated = of_numpy("trunc")
        assert truncated is not None, "the table of functions has it"
        return cls(truncated(x.expression), x, truncates=True)

    @classmethod
    def nearest(cls, x: Traced) -> Whole:
        """Return ``round(x)``; halves go up."""
        return cls.within(Traced(call("floor", x.expression + 0.5)))

    def after(self, name: str, arguments: Sequence[Any], expression: Node) -> Traced:
        """Return what a ufunc gives of this and numbers, which is a whole number again if they are."""
        others = [a for a in arguments if a is not self]
        if name not in _STAYING or not all(isinstance(a, (int, np.integer)) for a in others):
            return Traced(expression)
        out, of, function = Whole(expression, self.base, self.truncates), self.of, getattr(np, name)
        out.of = lambda k: function(*(of(k) if a is self else a for a in arguments))
        out.unit, out.period = self.unit, self.period
        if name in ("minimum", "maximum"):
            out.unit = 0
        if arguments[0] is self and others and others[0] > 0:
            if name == "floor_divide" and not self.period:
                out.unit *= int(others[0])
            elif name == "remainder" and not self.period:
                out.period = self.unit * int(others[0])
        return out

    def entry_of(self, table: Any) -> Any:
        """Return what an array holds here along its first dimension; NaN where it has no such place."""
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
        return np.array([entry(c) for c in columns], dtype=object).reshape(values.shape[1:]).view(SymbolArray)

    def __eq__(self, other: object) -> Any:
        away = of_numpy("absolute")
        assert away is not None, "the table of functions has it"
        return Condition(relation("<", away(self.expression - as_expression(other)), as_expression(0.5)))

    def __ne__(self, other: object) -> Any:
        return ~(self == other)

    __hash__ = None  # type: ignore[assignment]
