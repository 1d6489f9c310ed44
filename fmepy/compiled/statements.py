"""Common subexpressions: which parts of expressions are computed separately, in which order; deep ones are cut."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fmepy.language.nodes import TABLE, Node, Number, in_order


def statements(
    roots: Sequence[Node], most_nested: int, is_known: Callable[[Any], object] = ().__contains__
) -> tuple[list[Node], set[Node]]:
    """Return all parts to compute, in order, and the set of those that are computed separately.

    Parameters
    ----------
    roots : sequence of Node
        The results.
    most_nested : int
        Levels of an expression that are written as one; deeper ones are cut.
    is_known : callable
        Whether a part is computed already; parts that only occur inside it are then not needed.
    """
    order = in_order(roots, is_known)
    uses: Counter[Node] = Counter(roots)
    heights: dict[Node, int] = {}
    for e in order:
        uses.update(e.args)
        heights[e] = 1 + max((heights.get(a, 0) for a in e.args), default=-1)
        if heights[e] >= most_nested:
            heights[e] = 0
            uses[e] += 2
    several = {e for e in order if e.args and uses[e] > 1}
    return [e for e in order if e in several], several


def slow_parts(expressions: Iterable[Node], symbols: Iterable[Node]) -> list[Node]:
    """Return the largest parts of expressions that depend on these symbols alone and call functions or take powers.

    A part with a negative whole exponent is a quotient, computed as written; its divisor is taken instead.

    Examples
    --------
    >>> from fmepy.language.nodes import Symbol, call
    >>> x, a, b = map(Symbol, "xab")
    >>> slow_parts([a * call("exp", 2 * b) * x, 10**a + x / call("exp", b), x * (a + b) ** 2], [a, b])
    [a*exp(2*b), exp(b), 10**a]
    """
    roots, known, slow = list(expressions), set(symbols), set[Node]()
    for e in in_order(roots):
        exponent = e.args[1] if e.word == "**" else None
        n = exponent.value if isinstance(exponent, Number) else math.nan
        if (e.args and all(a in known for a in e.args)) or isinstance(e, Number):
            if n.is_integer() and n < 0 and e.args[0] in slow:
                continue
            known.add(e)
            if any(a in slow for a in e.args) or e.word in TABLE or (e.word == "**" and not n.is_integer()):
                slow.add(e)
    parents = in_order(roots, slow.__contains__)
    return list(dict.fromkeys(e for parts in (roots, *(e.args for e in parents)) for e in parts if e in slow))
