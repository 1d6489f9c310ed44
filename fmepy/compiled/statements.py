"""Which parts of expressions are computed on their own, and in which order: common ones, and cuts of deep ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from fmepy.language.nodes import Node, in_order


def statements(
    roots: Sequence[Node], most_nested: int, is_known: Callable[[Any], object] = ().__contains__
) -> tuple[list[Node], set[Node]]:
    """Return what is computed on its own, in order, and the set of what several places need.

    Parameters
    ----------
    roots : sequence of Node
        The results; those that are no symbols or numbers are among what is computed.
    most_nested : int
        Levels of an expression that are written as one; deeper ones are cut.
    is_known : callable
        Whether a part, and what is in that alone, is computed already.
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
