"""Conditions of the model language, and the choice between two values: ``choose(condition, yes, no)``.

A condition is a relation ``left > right``, or relations joined by and, or, not. `choose` writes it as nested choices
between single relations::

    where(a and b, x, y) = where(a, where(b, x, y), y)        where(a or b, x, y) = where(a, x, where(b, x, y))

so that, as in Python, b is not looked at where a decides: ``where(x > 0 and log(x) > 1, ...)`` has a value for x < 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from fmepy.language.nodes import choose_above


@dataclass(frozen=True, slots=True, eq=False)
class Relation:
    """``left > right``, of two expressions."""

    left: Any
    right: Any


@dataclass(frozen=True, slots=True, eq=False)
class Not:
    """The negation of a condition."""

    condition: Condition


@dataclass(frozen=True, slots=True, eq=False)
class Joined:
    """Conditions that must all hold, or of which one must."""

    parts: Sequence[Condition]
    by: str
    """"and" or "or"."""


Condition: TypeAlias = "Relation | Not | Joined | bool"


def relation(word: str, left: Any, right: Any) -> Condition:
    """Return the condition of ``<``, ``<=``, ``>``, ``>=``, ``==`` or ``!=`` between two expressions."""
    if word in (">", "<="):
        above = Relation(left, right)
        return above if word == ">" else Not(above)
    if word in ("<", ">="):
        above = Relation(right, left)
        return above if word == "<" else Not(above)
    equal = Joined((Not(Relation(left, right)), Not(Relation(right, left))), "and")
    return equal if word == "==" else Not(equal)


def choose(condition: Condition, yes: Any, no: Any) -> Any:
    """Return the expression that is `yes` where the condition holds and `no` where it does not."""
    if isinstance(condition, Relation):
        return choose_above(condition.left, condition.right, yes, no)
    if isinstance(condition, Not):
        return choose(condition.condition, no, yes)
    if isinstance(condition, Joined):
        for part in reversed(condition.parts):
            if condition.by == "and":
                yes = choose(part, yes, no)
            else:
                no = choose(part, yes, no)
        return yes if condition.by == "and" else no
    return yes if condition else no
