"""Expressions as a table that holds every node once: what is pickled, however deep they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fmepy.language.nodes import Node, Number, in_order, made, number


def packed(expressions: Sequence[Node]) -> tuple[tuple[Any, ...], ...]:
    """Return expressions as a table that holds every node once: what is pickled, however deep they are."""
    order = in_order(expressions)
    at = {e: i for i, e in enumerate(order)}
    rows = tuple((type(e), e.word, _content(e), *(at[a] for a in e.args)) for e in order)
    return (*rows, tuple(at[e] for e in expressions))


def _content(e: Node) -> Any:
    return e.value if isinstance(e, Number) else getattr(e, "name", None)


def unpacked(table: tuple[tuple[Any, ...], ...]) -> list[Node]:
    """Return the expressions of a packed table."""
    nodes: list[Node] = []
    for kind, word, content, *places in table[:-1]:
        inside = tuple(nodes[i] for i in places)
        nodes.append(number(content) if kind is Number else made(kind, word, inside, content))
    return [nodes[i] for i in table[-1]]


def unpacked_one(table: Any) -> Node:
    """Return the expression of a packed table of one."""
    return unpacked(table)[0]
