"""The parts of expressions, in the order in which they can be computed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fmepy.language.nodes import Node


def in_order(expressions: Iterable[Node], is_known: Callable[[Any], object] = ().__contains__) -> list[Node]:
    """Return the nodes of expressions, each once and after its parts; without known nodes and their parts."""
    seen: set[Node] = set()
    out: list[Node] = []
    waiting = list(expressions)[::-1]
    while waiting:
        e = waiting[-1]
        if e in seen or is_known(e):
            waiting.pop()
            continue
        new = [a for a in e.args if a not in seen and not is_known(a)]
        if new:
            waiting.extend(new[::-1])
        else:
            waiting.pop()
            seen.add(e)
            out.append(e)
    return out
