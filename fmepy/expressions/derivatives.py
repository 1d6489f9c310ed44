"""The derivative of an expression: the chain rule, once for everything that occurs in it.

sympy's own `diff` looks at the whole of an expression again at every level, which takes seconds for a model of some
thirty states.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

TINY = 1e-300
"""Added to a base, so that d(x**n)/dn = x**n log(x) is 0 at x = 0, its limit for n > 0, and no 0 times infinity."""


def derivative(e: Any, s: Any) -> Any:
    """Return de/ds, `s` a symbol."""
    return derivatives_of([e], s)[0]


def derivatives_of(expressions: Sequence[Any], s: Any) -> list[Any]:
    """Return de/ds of each expression; what several of them hold is differentiated once."""
    from fmepy.expressions.nodes import Shared, shared_in

    memo: dict[Any, Any] = {}
    for node in shared_in(expressions, _Known(s)):
        node.slopes[s] = Shared(f"d({node.name})/d({s.name})", _derivative(node.args[0], s, memo))
    return [_derivative(e, s, memo) for e in expressions]


class _Known:
    """The shared parts whose slope is known: it is kept with them, for what asks next."""

    def __init__(self, s: Any) -> None:
        self._s = s

    def __contains__(self, e: Any) -> bool:
        from fmepy.expressions.nodes import Shared

        return isinstance(e, Shared) and (self._s in e.slopes or not e.depends_on(self._s))


def _derivative(e: Any, s: Any, memo: dict[Any, Any]) -> Any:
    import sympy

    from fmepy.expressions.nodes import Choice, Shared

    if not e.args:
        return sympy.S.One if e == s else sympy.S.Zero
    if isinstance(e, Shared):
        return e.slopes[s] if e.depends_on(s) else sympy.S.Zero
    if e in memo:
        return memo[e]
    slopes = [_derivative(a, s, memo) for a in e.args]
    moving = [i for i, d in enumerate(slopes) if d is not sympy.S.Zero]  # `is_zero` would ask far
    if not moving:
        out = sympy.S.Zero
    elif e.is_Add:
        out = sympy.Add(*(slopes[i] for i in moving))
    elif e.is_Mul:
        out = sympy.Add(*(sympy.Mul(*e.args[:i], slopes[i], *e.args[i + 1 :]) for i in moving))
    elif e.is_Pow and e.args[1].is_number:
        base, exponent = e.args
        out = exponent * base ** (exponent - 1) * slopes[0]
    elif e.is_Pow:
        base, exponent = e.args
        out = slopes[1] * e * sympy.log(base + TINY) + slopes[0] * exponent * base ** (exponent - 1)
    elif isinstance(e, Choice):
        out = e.slope(slopes)
    elif isinstance(e, sympy.Function):
        out = sympy.Add(*(e.fdiff(i + 1) * slopes[i] for i in moving))
    else:
        out = e.diff(s)
    memo[e] = out
    return out
