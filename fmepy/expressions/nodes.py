"""The choices of the model language as nodes of expressions: where, max, min, abs, sign, floor, ceil, mod.

sympy's own (Piecewise, Max, Abs, ...) rewrite what they are given: a condition inside a condition is multiplied out, n
arguments are compared n**2 times, ``Abs((x - 3)**a)`` becomes ``Abs(x - 3)**a``, which has a value where the power has
none. These nodes stay as they were written, their derivatives hold every argument a bounded number of times, and all
of them hand on a NaN: there is no value where it cannot be known which branch is meant.

This module imports sympy and is imported where expressions are made.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Container, Iterable
from typing import Any
from weakref import WeakValueDictionary

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
    "Shared",
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


JUMPS = (Where, Sign, Floor, Ceiling, Modulo)
"""Whose value may jump where their arguments do not."""


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


# --- what has a name


class Shared(sympy.Expr):  # type: ignore[misc]  # sympy has no types
    """A part of several expressions that is kept as one: the value of a name, such as of an assigned variable.

    sympy takes what it is given to pieces: put into one another, 200 assignments become as many terms as there are ways
    through them. A Shared is not taken to pieces, prints as its name, and is computed once. There is one object for a
    name and a value, so that equal ones are the same; what goes through an expression must go through `shared_in`
    first, from the inside, and remember what it found, or it would go every way, and deeper than Python does.
    """

    __slots__ = ("__weakref__", "_free", "_has_choices", "name", "slopes")
    is_commutative = True
    is_real = True
    is_number = False

    def __new__(cls, name: str, value: Any) -> Any:
        """Return the node, or the value itself where it holds no symbol."""
        free = value.free_symbols
        if not free or not value.args:
            return value
        found = _all.get((name, value))
        if found is None:
            node = sympy.Expr.__new__(cls, value)
            node.name, node._free, node._has_choices = name, frozenset(free), holds_choices([value])
            node.slopes = {}  # by symbol, as they are asked for
            found = _all.setdefault((name, value), node)
        return found

    @property
    def func(self) -> Any:
        """What makes such a node of another value."""
        return lambda value: Shared(self.name, value)

    @property
    def free_symbols(self) -> Any:
        """The symbols of the value."""
        return set(self._free)

    def depends_on(self, s: Any) -> bool:
        """Tell whether a symbol stands in the value."""
        return s in self._free

    @property
    def has_choices(self) -> bool:
        """Whether a choice stands in the value."""
        return bool(self._has_choices)

    def sort_key(self, order: Any = None) -> Any:
        """Return where sympy prints it in a sum: as a symbol of its name."""
        from fmepy.expressions.equations import symbol

        return symbol(self.name).sort_key(order)

    def _hashable_content(self) -> tuple[Any, ...]:
        return (self.name, *self.args)

    def _xreplace(self, rule: Any) -> Any:
        if self in rule:
            return rule[self], True
        memo = _replaced_by(rule)
        for node in shared_in([self], memo):
            if node in rule:
                memo[node] = rule[node], True
                continue
            value, changed = node.args[0]._xreplace(rule)
            memo[node] = (Shared(node.name, value), True) if changed else (node, False)
        return memo[self]

    def _eval_derivative(self, s: Any) -> Any:
        from fmepy.expressions.derivatives import derivative

        return derivative(self, s)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle what it is made of from the inside, as deep as it may be."""
        inside, (value,) = unshared(self.args)
        return _joined_again, ([(s.name, e) for s, e in inside], self.name, value, [s for s, _ in inside])

    def _sympystr(self, printer: Any) -> str:
        return str(self.name)

    def _latex(self, printer: Any, exp: Any = None) -> str:
        from fmepy.expressions.equations import symbol

        text = str(sympy.latex(symbol(self.name)))
        return text if exp is None else f"{text}^{{{exp}}}"


class exp(sympy.exp):  # type: ignore[misc]  # noqa: N801  # named as sympy's, which printers go by
    """sympy's exp of what holds shared parts: it is not looked for logarithms in them, which would go every way."""

    @classmethod
    def eval(cls, arg: Any) -> Any:
        """Return the value where it is simpler, else None."""
        return None if holds_shared(arg) else sympy.exp.eval(arg)

    def as_base_exp(self) -> Any:
        """Return the function itself: powers of it are kept as such."""
        return self, sympy.S.One

    def _eval_power(self, other: Any) -> Any:
        return None


def exponential(x: Any) -> Any:
    """Return exp(x)."""
    return exp(x) if holds_shared(x) else sympy.exp(x)


def holds_shared(e: Any) -> bool:
    """Tell whether a shared part stands in an expression."""
    seen, waiting = {e}, [e]
    while waiting:
        e = waiting.pop()
        if isinstance(e, Shared):
            return True
        new = [a for a in e.args if a not in seen]
        seen.update(new)
        waiting += new
    return False


_all: WeakValueDictionary[Any, Shared] = WeakValueDictionary()
_last: Any = threading.local()


def _replaced_by(rule: Any) -> dict[Any, Any]:
    """Return what has been found for a rule, as long as it is the same."""
    if getattr(_last, "rule", None) is not rule or getattr(_last, "length", -1) != len(rule or ()):
        _last.rule, _last.length, _last.memo = rule, len(rule), {}
    memo: dict[Any, Any] = _last.memo
    return memo


def shared_in(expressions: Iterable[Any], known: Container[Any] = ()) -> list[Shared]:
    """Return the shared parts of expressions, inner ones before outer ones; not what is `known` and what is in it."""
    found: dict[Shared, None] = {}
    seen: set[Any] = set()
    waiting = [(e, False) for e in expressions]
    while waiting:
        e, is_done = waiting.pop()
        if is_done:
            found[e] = None
        elif e not in seen and e not in known:
            seen.add(e)
            if isinstance(e, Shared):
                waiting.append((e, True))
            waiting.extend((a, False) for a in e.args)
    return list(found)


def nodes_in(expressions: Iterable[Any], kinds: Any) -> set[Any]:
    """Return the nodes of some kinds in expressions, as their `atoms` does, each part looked at once."""
    waiting = list(expressions)
    seen = set(waiting)
    while waiting:
        new = [a for a in waiting.pop().args if a not in seen]
        seen.update(new)
        waiting += new
    return {node for node in seen if isinstance(node, kinds)}


def unshared(expressions: Iterable[Any]) -> tuple[list[tuple[Any, Any]], list[Any]]:
    """Return the shared parts of expressions as (symbol, value), inner ones first, and the expressions with symbols."""
    expressions = list(expressions)
    rule: dict[Any, Any] = {}
    out = []
    for node in shared_in(expressions):
        value = node.args[0].xreplace(dict(rule)) if rule else node.args[0]
        rule[node] = sympy.Dummy(node.name, real=True)
        out.append((rule[node], value))
    return out, [e.xreplace(rule) for e in expressions] if rule else expressions


def _joined_again(inside: list[tuple[str, Any]], name: str, value: Any, symbols: list[Any]) -> Any:
    """Return a shared part that was pickled."""
    rule: dict[Any, Any] = {}
    for s, (inner, e) in zip(symbols, inside, strict=True):
        rule[s] = Shared(inner, e.xreplace(dict(rule)))
    return Shared(name, value.xreplace(rule))


def holds_choices(expressions: Iterable[Any]) -> bool:
    """Tell whether a choice stands in any of the expressions."""
    seen: set[Any] = set()
    waiting = list(expressions)
    while waiting:
        e = waiting.pop()
        if isinstance(e, Choice) or (isinstance(e, Shared) and e.has_choices):
            return True
        if e not in seen and not isinstance(e, Shared):
            seen.add(e)
            waiting.extend(e.args)
    return False


def shared(name: str, value: Any, size: int, most: int) -> tuple[Any, int]:
    """Return what stands for a name in other expressions, and its size: the value, or a shared part if it is large."""
    if size <= most or isinstance(value, float):
        return value, size
    return Shared(name, value), 1
