"""Units as dimensions: a product of powers of names, ``people/month``, ``$/(unit*month)``, ``m^2``, ``1``.

Names are as they are written, but for case and plural; a month is no year, for they cannot be added without a factor.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fractions import Fraction

Unit = frozenset[tuple[str, Fraction]]
"""Names and their powers; empty: a plain number."""
NO_UNIT: Unit = frozenset()
_NONE = {"1", "dmnl", "dimensionless", "-", "fraction", "percent", "%", "no unit"}
_SAME = {"people": "person", "$": "dollar", "€": "euro", "yr": "year", "hr": "hour"}
_TOKEN = re.compile(r"\s*(?:(\*\*|[*/^()·])|(-?\d+(?:\.\d+)?)|([^\W\d][\w ]*|[$€%]))")


def read_unit(text: str) -> Unit | None:
    """Return what a unit stands for; None of a text that is none.

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
    tokens, at = [], 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            return None
        tokens.append(match[0].strip())
        at = match.end()
    left = iter([*tokens, ""])
    try:
        found, rest = _product(next(left), left)
    except (ValueError, StopIteration):
        return None
    return found if rest == "" and tokens else None


def _product(token: str, left: Iterable[str]) -> tuple[Unit, str]:
    found, token = _factor(token, left)
    while token not in ("", ")"):
        sign = -1 if token == "/" else 1
        other, token = _factor(next(iter(left)) if token in ("*", "·", "/") else token, left)
        found = times(found, power_of(other, Fraction(sign)))
    return found, token


def _factor(token: str, left: Iterable[str]) -> tuple[Unit, str]:
    if token == "(":
        found, end = _product(next(iter(left)), left)
        if end != ")":
            raise ValueError
    elif re.match(r"[^\W\d]|[$€%]", token):
        found = NO_UNIT if token in _NONE else frozenset({(_name(token), Fraction(1))})
    elif re.match(r"\d", token):
        found = NO_UNIT
    else:
        raise ValueError
    token = next(iter(left))
    if token in ("^", "**"):
        found = power_of(found, Fraction(next(iter(left))))
        token = next(iter(left))
    return found, token


def _name(text: str) -> str:
    """Return a name in the singular."""
    text = " ".join(text.split())
    if len(text) > 2 and text.endswith("s") and not text.endswith(("ss", "us")):
        text = text[:-3] + "y" if text.endswith("ies") else text[:-1]
    return _SAME.get(text, text)


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
        found = sorted((name, sign * n) for name, n in unit if sign * n > 0)
        return [name if n == 1 else f"{name}^{n}" if n.denominator == 1 else f"{name}^({n})" for name, n in found]

    above, below = "*".join(side(1)), side(-1)
    if not below:
        return above or "1"
    return f"{above or '1'}/{below[0] if len(below) == 1 else '(' + '*'.join(below) + ')'}"
