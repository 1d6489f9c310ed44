"""Derivatives of expressions: the chain rule in forward mode, once for every node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fmepy.language.functions import is_choice, tangent
from fmepy.language.nodes import (
    ONE,
    ZERO,
    Node,
    Number,
    Shared,
    Symbol,
    add,
    call,
    choose_above,
    fresh,
    in_order,
    mul,
    number,
    power,
    values_of,
)

TINY = 1e-300
"""Added to a base, so that d(x**n)/dn = x**n log(x) is 0 at x = 0, its limit for n > 0, and no 0 times infinity."""

Gradient = dict[Symbol, Node]


def gradients(expressions: Sequence[Node], symbols: Iterable[Symbol]) -> list[Gradient]:
    """Return, for each expression, its derivatives to the symbols that are not zero everywhere."""
    return _propagate(expressions, {s: {s: ONE} for s in symbols})


def speeds_of(expressions: Sequence[Node], moving: Mapping[Symbol, Node]) -> list[Node]:
    """Return d/ds of each expression, where the symbols move with s by the speeds given.

    Examples
    --------
    >>> x, y = Symbol("x"), Symbol("y")
    >>> speeds_of([x * y, x + 1], {x: number(2.0)})
    [2*y, 2]
    """
    s = fresh("s")
    return [g.get(s, ZERO) for g in _propagate(expressions, {x: {s: v} for x, v in moving.items()})]


def _propagate(expressions: Sequence[Node], known: Mapping[Node, Gradient]) -> list[Gradient]:
    """Return the gradients of expressions from those of their symbols."""
    partials: dict[Node, list[Node]] = {}
    found: dict[Node, Gradient] = {}
    chosen: dict[Node, bool] = {}
    nothing: Gradient = {}
    for e in in_order(expressions):
        inside = [found[a] for a in e.args]
        chosen[e] = is_choice(e) or any(chosen[a] for a in e.args)
        moving = dict.fromkeys(s for g in inside for s in g)
        if not moving:
            found[e] = known.get(e, nothing)
            continue
        is_steep = e.word == "**" and chosen[e.args[0]]
        gradient = {s: _of_node(e, [g.get(s, ZERO) for g in inside], s, partials, is_steep) for s in moving}
        found[e] = {s: d for s, d in gradient.items() if d is not ZERO}
    return [found[e] for e in expressions]


def _of_node(e: Node, slopes: list[Node], s: Symbol, partials: dict[Node, list[Node]], is_steep: bool) -> Node:
    """Return the derivative of a node to a symbol from those of its arguments.

    is_steep : of a power, whose base a choice holds at zero, as in ``sqrt(max(x, 0))``: there it stays where it is
    """
    if e.word == "+":
        return add(*slopes)
    if e.word == "*":
        if e not in partials:
            partials[e] = [mul(*e.args[:i], *e.args[i + 1 :]) for i in range(len(e.args))]
        return add(*(mul(p, d) for p, d in zip(partials[e], slopes, strict=True) if d is not ZERO))
    if e.word == "**":
        base, exponent = e.args
        out: Node = ZERO
        if slopes[0] is not ZERO:
            less = number(exponent.value - 1) if isinstance(exponent, Number) else exponent - 1
            out = mul(exponent, power(base, less), slopes[0])
            if is_steep and not (isinstance(less, Number) and less.value >= 0):
                out = choose_above(call("abs", slopes[0]), ZERO, out, slopes[0])  # no infinity times zero; NaN stays
        if slopes[1] is not ZERO:
            out = add(mul(slopes[1], e, call("log", base + TINY)), out)
        return out
    if isinstance(e, Shared):
        return Shared(f"d({e.name})/d({s.name})", slopes[0])  # type: ignore[no-any-return]
    return tangent(e, slopes, partials)


def derivative(e: Node, s: Symbol) -> Node:
    """Return de/ds."""
    return derivatives_of([e], s)[0]


def derivatives_of(expressions: Sequence[Node], s: Symbol) -> list[Node]:
    """Return de/ds of each expression."""
    return [g.get(s, ZERO) for g in gradients(expressions, [s])]


def entries_of(expressions: Sequence[Node], symbols: Sequence[Symbol]) -> list[tuple[int, int, Node]]:
    """Return (row, column, expression) of the derivatives of expressions to symbols that are not zero everywhere."""
    found = gradients(expressions, symbols)
    return [(i, j, g[s]) for i, g in enumerate(found) for j, s in enumerate(symbols) if s in g]


def are_equal(a: Node, b: Node) -> bool:
    """Tell whether two expressions have the same values: at twelve points, to ten digits.

    The points are of irregular positive numbers, some of them below 1; expressions that are equal there and nowhere
    else are not met in practice.
    """
    if a is b:
        return True
    compared = 0
    symbols = sorted(a.free_symbols | b.free_symbols, key=lambda s: s.name)
    for k in range(12):
        at: dict[Node, float] = {
            s: 0.2 + 2.3 * ((0.754877666 * (i + 1) + 0.569840291 * (k + 1)) % 1.0) for i, s in enumerate(symbols)
        }
        x, y = values_of([a, b], at)
        if x != x and y != y:
            continue
        compared += 1
        if not abs(x - y) <= 1e-10 * max(abs(x), abs(y)):
            return False
    return compared > 0


def quotient(e: Node, s: Symbol) -> Node | None:
    """Return e / s where e is proportional to the symbol s, that is, of s to the first degree alone; else None."""
    at_one = e.subs({s: ONE})
    return at_one if are_equal(e, at_one * s) else None
