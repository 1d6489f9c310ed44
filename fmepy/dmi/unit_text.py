"""Units as dimensions: a product of powers of names, ``people/month``, ``$/(unit*month)``, ``m^2``, ``1``.

Names are compared without case and plural; month and year differ, as they cannot be added without a factor.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction

from fmepy.errors import ModelTextError
from fmepy.language.nodes import Node, Number, Symbol
from fmepy.language.text import parse_expression

Unit = frozenset[tuple[str, Fraction]]
"""Names and their powers; empty: a plain number."""
NO_UNIT: Unit = frozenset()
_NONE = {"1", "dmnl", "dimensionless", "-", "fraction", "percent", "%", "no unit"}
_SYNONYMS = {"people": "person", "$": "dollar", "€": "euro", "yr": "year", "hr": "hour"}
_PLAIN = re.compile(r"[\w\s$€%*/^·().-]+")
_WORD = re.compile(r"[^\W\d][\w ]*|[$€%]")
_SIDE_BY_SIDE = re.compile(r"(?<=[\w)])\s+(?=[\w(])|(?<=[\d)])(?=\()|(?<=\))(?=\d)")


def read_unit(text: str) -> Unit | None:
    """Return the unit of a text; None if the text is not a unit.

    Examples
    --------
    >>> unit_text(read_unit("$ / (unit * months)")), unit_text(read_unit("people per year"))
    ('dollar/(month*unit)', 'person/year')
    >>> read_unit("Dmnl") == NO_UNIT, read_unit("?")
    (True, None)
    """
    text = re.sub(r"\bper\b", "/", text.strip().lower())
    if text in _NONE:
        return NO_UNIT
    if not _PLAIN.fullmatch(text):
        return None
    names: list[str] = []

    def numbered(match: re.Match[str]) -> str:
        names.append(match[0].strip())
        return f" u{len(names) - 1} "

    product = _SIDE_BY_SIDE.sub("*", _WORD.sub(numbered, text).replace("·", "*"))
    try:
        return _unit_of(parse_expression(product), {f"u{i}": name for i, name in enumerate(names)})
    except (ModelTextError, ValueError):
        return None


def _unit_of(e: Node, names: Mapping[str, str]) -> Unit:
    """Return the unit of an expression of numbered names; ValueError if it is not a product of powers."""
    if isinstance(e, Symbol):
        return NO_UNIT if names[e.name] in _NONE else frozenset({(_singular(names[e.name]), Fraction(1))})
    if isinstance(e, Number) and e.value > 0:
        return NO_UNIT
    if e.word == "*":
        return times(*(_unit_of(factor, names) for factor in e.args))
    if e.word == "**" and isinstance(e.args[1], Number):
        return power_of(_unit_of(e.args[0], names), Fraction(e.args[1].value).limit_denominator(1000))
    raise ValueError


def _singular(text: str) -> str:
    """Return a name in the singular."""
    text = " ".join(text.split())
    if len(text) > 2 and text.endswith("s") and not text.endswith(("ss", "us")):
        text = text[:-3] + "y" if text.endswith("ies") else text[:-1]
    return _SYNONYMS.get(text, text)


def times(*units: Unit) -> Unit:
    """Return the product of units."""
    powers: dict[str, Fraction] = {}
    for unit in units:
        for name, n in unit:
            powers[name] = powers.get(name, Fraction(0)) + n
    return frozenset((name, n) for name, n in powers.items() if n)


def power_of(unit: Unit, n: Fraction) -> Unit:
    """Return a power of a unit."""
    return frozenset((name, m * n) for name, m in unit if n)


def unit_text(unit: Unit | None) -> str:
    """Return a unit as a text."""
    if unit is None:
        return ""

    def side(sign: int) -> list[str]:
        powers = sorted((name, sign * n) for name, n in unit if sign * n > 0)
        return [name if n == 1 else f"{name}^{n}" if n.denominator == 1 else f"{name}^({n})" for name, n in powers]

    above, below = "*".join(side(1)), side(-1)
    if not below:
        return above or "1"
    return f"{above or '1'}/{below[0] if len(below) == 1 else '(' + '*'.join(below) + ')'}"
