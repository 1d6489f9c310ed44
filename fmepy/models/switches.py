"""Switches: conditions inside rates, taken out so that solvers see smooth pieces.

``where(g > 0, a, b)`` becomes ``m a + (1 - m) b`` with a *mode* m in {0, 1} that is constant while the sign of g is. A
run stops where g crosses zero, flips the mode and goes on, so that the solver never smears a jump. ``abs``, ``min``,
``max`` and ``sign`` are switches too.

Sensitivities jump where the rates do. With f- and f+ the rates before and after, at the crossing time t*::

    dt*/dp = -(g_y S- + g_p) / (g_t + g_y f-)
    S+     = S- + (f- - f+) dt*/dp

(the saltation condition; Hairer, Norsett and Wanner, Solving Ordinary Differential Equations I, section I.14).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["NotSmoothError", "Switch", "as_piecewise", "take_out_switches"]


class NotSmoothError(ValueError):
    """A condition that has no crossing to stop at, such as floor or ==."""


@dataclass(frozen=True, slots=True, eq=False)
class Switch:
    """A condition ``g > 0``.

    Attributes
    ----------
    g : sympy.Expr
    mode : sympy.Symbol
        1 while g > 0, else 0.
    """

    g: Any
    mode: Any


def take_out_switches(expressions: Sequence[Any]) -> tuple[tuple[Any, ...], tuple[Switch, ...]]:
    """Return the expressions with modes in place of conditions, and the switches.

    Raises
    ------
    NotSmoothError
        For a condition without a crossing (floor, ceiling, modulo, equality).
    """
    found: dict[Any, Any] = {}
    memo: dict[Any, Any] = {}
    smooth = tuple(_smooth(e, found, memo) for e in expressions)
    return smooth, tuple(Switch(g, mode) for g, mode in found.items())


def _mode(g: Any, found: dict[Any, Any]) -> Any:
    """Return the mode of ``g > 0``; the same condition, or its negative, shares one."""
    import sympy

    if g.is_number:
        return sympy.Integer(int(bool(g > 0)))
    if g in found:
        return found[g]
    if -g in found:
        return 1 - found[-g]
    found[g] = sympy.Symbol(f"mode{len(found)}", real=True)
    return found[g]


def _smooth(e: Any, found: dict[Any, Any], memo: dict[Any, Any]) -> Any:
    import sympy as sp

    if e.is_Atom:
        return e
    if e in memo:
        return memo[e]
    if isinstance(e, sp.Piecewise):
        memo[e] = _smooth_pieces(e, found, memo)
        return memo[e]
    if isinstance(e, sp.floor | sp.ceiling | sp.Mod | sp.frac):
        raise NotSmoothError(f"{e.func.__name__.lower()} jumps without a crossing")
    arguments = [_smooth(a, found, memo) for a in e.args]
    if isinstance(e, sp.Abs):
        out = (2 * _mode(arguments[0], found) - 1) * arguments[0]
    elif isinstance(e, sp.sign):
        out = 2 * _mode(arguments[0], found) - 1
    elif isinstance(e, sp.Heaviside):
        out = _mode(arguments[0], found)
    elif isinstance(e, sp.Max | sp.Min):
        ordered = sorted(arguments, key=sp.default_sort_key)  # one order, whatever sympy's sets are today
        out = ordered[0]
        for a in ordered[1:]:
            m = _mode(a - out if isinstance(e, sp.Max) else out - a, found)
            out = m * a + (1 - m) * out
    else:
        out = e.func(*arguments)
    memo[e] = out
    return out


def _smooth_pieces(e: Any, found: dict[Any, Any], memo: dict[Any, Any]) -> Any:
    import sympy as sp

    pieces = list(e.args)
    if pieces[-1].cond is not sp.true:
        raise NotSmoothError("a condition without an else has no value where it is false")
    out = _smooth(pieces[-1].expr, found, memo)
    for piece in reversed(pieces[:-1]):
        m = _truth(piece.cond, found, memo)
        out = m * _smooth(piece.expr, found, memo) + (1 - m) * out
    return out


def _truth(condition: Any, found: dict[Any, Any], memo: dict[Any, Any]) -> Any:
    """Return a condition as an expression of modes that is 1 where it holds."""
    import sympy as sp

    if condition in (sp.true, sp.false):
        return sp.Integer(int(condition is sp.true))
    if isinstance(condition, sp.And):
        return sp.Mul(*(_truth(c, found, memo) for c in condition.args))
    if isinstance(condition, sp.Or):
        return 1 - sp.Mul(*(1 - _truth(c, found, memo) for c in condition.args))
    if isinstance(condition, sp.Not):
        return 1 - _truth(condition.args[0], found, memo)
    if isinstance(condition, sp.Gt | sp.Ge):
        return _mode(_smooth(condition.lhs - condition.rhs, found, memo), found)
    if isinstance(condition, sp.Lt | sp.Le):
        return _mode(_smooth(condition.rhs - condition.lhs, found, memo), found)
    raise NotSmoothError(f"the condition {condition} has no crossing to stop at")


def as_piecewise(e: Any) -> Any:
    """Return an expression with ``abs``, ``min``, ``max``, ``sign`` as conditions, fit for code and derivatives."""
    import sympy as sp

    if e.is_Atom:
        return e
    arguments = [as_piecewise(a) for a in e.args]
    if isinstance(e, sp.Abs):
        return sp.Piecewise((arguments[0], arguments[0] > 0), (-arguments[0], True))
    if isinstance(e, sp.sign | sp.Heaviside):
        low = -1 if isinstance(e, sp.sign) else 0
        return sp.Piecewise((sp.Integer(1), arguments[0] > 0), (sp.Integer(low), True))
    if isinstance(e, sp.Max | sp.Min):
        out = arguments[0]
        for a in arguments[1:]:
            out = sp.Piecewise((a, a > out if isinstance(e, sp.Max) else a < out), (out, True))
        return out
    return e.func(*arguments)
