"""Expressions as they are written in a text."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from fmepy.language.traversal import in_order

MOST_WRITTEN = 10_000
"""Characters of a part up to which it is printed; a longer one is ``(...)``."""


def text_of(e: Any) -> str:
    """Return an expression as it is written in a text."""
    written: dict[Any, _Text] = {}

    def is_written(e: Any) -> bool:
        if e.word == "shared" and e not in written:  # its value need not be looked into
            written[e] = _Text(e.name, 4)
        return e in written

    for node in in_order([e], is_written):
        text = _text(node, [written[a] for a in node.args])
        written[node] = text if len(text.text) <= MOST_WRITTEN else _Text("(...)", 4)
    return written[e].text


@dataclass(slots=True)
class _Text:
    """A part in print: its text, its precedence (1 sum, 2 product, 3 power, 4 whole), its factors."""

    text: str
    precedence: int
    above: list[str] | None = None
    below: list[str] | None = None

    def within(self, precedence: int) -> str:
        return self.text if self.precedence >= precedence else f"({self.text})"


def _text(e: Any, parts: list[_Text]) -> _Text:
    if e.word == "number":
        return _Text(_digits(e.value), 1 if e.value < 0 else 4)
    if e.word == "symbol":
        return _Text(e.name, 4)
    if e.word == "+":
        text = parts[0].text
        for part in parts[1:]:
            text += f" - {part.text[1:]}" if part.text.startswith("-") else f" + {part.text}"
        return _Text(text, 1)
    if e.word == "*":
        return _product(e, parts)
    if e.word == "**":
        return _power(e, *parts)
    inside = [p.text for p in parts]
    if e.word == "where":
        left, right, yes, no = inside
        return _Text(f"where({left} > {right}, {yes}, {no})", 4)
    if e.word == "mod":
        return _Text(f"({parts[0].within(4)} % {parts[1].within(4)})", 4)
    return _Text(f"{e.word}({', '.join(inside)})", 4)


def _product(e: Any, parts: list[_Text]) -> _Text:
    above: list[str] = []
    below: list[str] = []
    for a, part in zip(e.args, parts, strict=True):
        if a.word == "number":
            continue
        if part.above is None or part.below is None:
            above.append(part.within(2 if a.word != "*" else 3))
        else:
            above += part.above
            below += part.below
    first = e.args[0]
    sign = ""
    if first.word == "number":
        sign = "-" if first.value < 0 else ""
        if abs(first.value) != 1 or not above:
            above = [_digits(abs(first.value)), *above]
    text = f"{sign}{'*'.join(above) or '1'}"
    if below:
        text += f"/{below[0]}" if len(below) == 1 else f"/({'*'.join(below)})"
    return _Text(text, 1 if sign else 2, None if sign else above, None if sign else below)


def _power(e: Any, base: _Text, exponent: _Text) -> _Text:
    n = e.args[1]
    if n.word == "number" and n.value < 0:
        text = _positive_power(base, -n.value)
        return _Text(f"1/{text}", 2, [], [text])
    if n.word == "number":
        return _Text(_positive_power(base, n.value), 4 if n.value == 0.5 else 3)
    return _Text(f"{base.within(4)}**{exponent.within(4)}", 3)


def _positive_power(base: _Text, n: float) -> str:
    if n == 0.5:
        return f"sqrt({base.text})"
    return base.within(4) if n == 1 else f"{base.within(4)}**{_digits(n)}"


def _digits(value: float) -> str:
    """Return a number as a person writes it."""
    if value == math.pi:
        return "pi"
    return str(int(value)) if value.is_integer() and abs(value) <= 1e15 else repr(value)
