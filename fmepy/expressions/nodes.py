"""The choices of the model language as nodes of expressions: where, max, min, abs, sign, floor, ceil, mod.

sympy's own (Piecewise, Max, Abs, ...) rewrite what they are given: a condition inside a condition is multiplied out, n
arguments are compared n**2 times, ``Abs((x - 3)**a)`` becomes ``Abs(x - 3)**a``, which has a value where the power has
none. These nodes stay as they were written, their derivatives hold every argument a bounded number of times, and all
of them hand on a NaN: there is no value where it cannot be known which branch is meant.

This module imports sympy and is imported where expressions are made.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import sympy

from fmepy.expressions.equations import number

__all__ = [
    "Absolute",
    "Ceiling",
    "Choice",
    "Floor",
    "Lag",
    "Largest",
    "Mode",
    "Modulo",
    "NoNumber",
    "Sign",
    "Smallest",
    "Where",
]


class Mode(sympy.Symbol):  # type: ignore[misc]  # sympy has no types
    """What stands for a condition (0 or 1) or a floor (a whole number) while a run is between two jumps of it."""

    __slots__ = ()


class Choice(sympy.Expr):  # type: ignore[misc]  # sympy has no types
    """A real node that is not evaluated until all of its arguments are numbers."""

    __slots__ = ()
    is_commutative = True
    is_real = True
    word = ""
    number: Callable[..., float]

    def __new__(cls, *args: Any) -> Any:
        """Return the node, or its value."""
        nodes = [a if isinstance(a, sympy.Basic) else sympy.sympify(a) for a in args]
        if all(a.is_number for a in nodes):
            try:
                return _exact(cls.number(*map(float, nodes)))
            except (TypeError, ValueError, ZeroDivisionError, OverflowError):
                pass  # no real number: the node stays, and has no value
        return sympy.Expr.__new__(cls, *nodes)

    def slope(self, slopes: list[Any]) -> Any:
        """Return the derivative from those of the arguments."""
        return sympy.S.Zero

    def _eval_derivative(self, s: Any) -> Any:
        return self.slope([a.diff(s) for a in self.args])

    def _sympystr(self, printer: Any) -> str:
        return f"{self.word}({', '.join(map(printer._print, self.args))})"

    def _latex(self, printer: Any, exp: Any = None) -> str:
        text = rf"\operatorname{{{self.word}}}\left({', '.join(map(printer._print, self.args))}\right)"
        return text if exp is None else f"{text}^{{{exp}}}"


def _exact(value: float) -> Any:
    if not math.isfinite(value):
        raise ValueError("no finite value")
    return number(float(value))


def _known(value: float, *of: float) -> float:
    if any(map(math.isnan, of)):
        raise ValueError("no value")
    return value


class Where(Choice):
    """``where(left > right, yes, no)``."""

    __slots__ = ()
    word = "where"

    def __new__(cls, left: Any, right: Any, yes: Any, no: Any) -> Any:
        """Return the node, or one of the branches where it is known which."""
        if left.is_number and right.is_number:
            try:
                return yes if _known(float(left), float(right)) > float(right) else no
            except (TypeError, ValueError):
                pass
        if yes is no or (yes.is_Number and no.is_Number and yes == no):
            return yes
        return sympy.Expr.__new__(cls, left, right, yes, no)

    def slope(self, slopes: list[Any]) -> Any:
        """Return the derivative of the branch that is taken."""
        return Where(*self.args[:2], *slopes[2:])

    def _sympystr(self, printer: Any) -> str:
        left, right, yes, no = map(printer._print, self.args)
        return f"where({left} > {right}, {yes}, {no})"

    def _latex(self, printer: Any, exp: Any = None) -> str:
        left, right, yes, no = map(printer._print, self.args)
        text = rf"\begin{{cases}} {yes} & \text{{if}}\: {left} > {right} \\ {no} & \text{{otherwise}} \end{{cases}}"
        return text if exp is None else rf"\left({text}\right)^{{{exp}}}"


class Largest(Choice):
    """``max(a, b, ...)``."""

    __slots__ = ()
    word = "max"
    number = staticmethod(lambda *x: _known(max(x), *x))

    def slope(self, slopes: list[Any]) -> Any:
        """Return the derivative of the largest."""
        value, out = self.args[0], slopes[0]
        for a, d in zip(self.args[1:], slopes[1:], strict=True):
            out = Where(value, a, out, d)
            value = type(self)(value, a)
        return out


class Smallest(Choice):
    """``min(a, b, ...)``."""

    __slots__ = ()
    word = "min"
    number = staticmethod(lambda *x: _known(min(x), *x))

    def slope(self, slopes: list[Any]) -> Any:
        """Return the derivative of the smallest."""
        value, out = self.args[0], slopes[0]
        for a, d in zip(self.args[1:], slopes[1:], strict=True):
            out = Where(value, a, d, out)
            value = type(self)(value, a)
        return out


class Absolute(Choice):
    """``abs(x)``."""

    __slots__ = ()
    word = "abs"
    number = staticmethod(abs)

    def slope(self, slopes: list[Any]) -> Any:
        """Return the derivative, with the sign."""
        return Where(self.args[0], sympy.S.Zero, sympy.S.One, sympy.S.NegativeOne) * slopes[0]


class Sign(Choice):
    """``sign(x)``, 0 at 0."""

    __slots__ = ()
    word = "sign"
    number = staticmethod(lambda x: _known(float((x > 0) - (x < 0)), x))


class Floor(Choice):
    """``floor(x)``."""

    __slots__ = ()
    word = "floor"
    number = staticmethod(math.floor)


class Ceiling(Choice):
    """``ceil(x)``."""

    __slots__ = ()
    word = "ceil"
    number = staticmethod(math.ceil)


class Modulo(Choice):
    """``a % b`` with the sign of b, as in Python: a - b floor(a / b)."""

    __slots__ = ()
    word = "mod"
    number = staticmethod(lambda a, b: a % b)

    def slope(self, slopes: list[Any]) -> Any:
        """Return the derivative between two jumps."""
        a, b = self.args
        return slopes[0] - slopes[1] * Floor(a / b)

    def _sympystr(self, printer: Any) -> str:
        a, b = (printer._print(x) if x.is_Atom else f"({printer._print(x)})" for x in self.args)
        return f"({a} % {b})"


class NoNumber(Choice):
    """0, or NaN where the argument is NaN: hands on that a condition has no value."""

    __slots__ = ()
    word = "nan_of"
    number = staticmethod(lambda x: _known(0.0, x))


class Lag(sympy.Expr):  # type: ignore[misc]  # sympy has no types
    """``lag(x, tau)``: what x was at t - tau. Systems have a symbol in its place, see `models.running.system`."""

    __slots__ = ()
    is_commutative = True
    is_real = True

    def __new__(cls, x: Any, tau: Any) -> Any:
        """Return the node."""
        return sympy.Expr.__new__(cls, sympy.sympify(x), sympy.sympify(tau))

    def _sympystr(self, printer: Any) -> str:
        return f"lag({', '.join(map(printer._print, self.args))})"

    def _latex(self, printer: Any, exp: Any = None) -> str:
        x, tau = map(printer._print, self.args)
        text = rf"\left.{x}\right|_{{t - {tau}}}"
        return text if exp is None else rf"\left({text}\right)^{{{exp}}}"
