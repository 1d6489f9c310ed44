"""Root events: changes of states where an expression crosses zero.

An event of this kind happens when its *root* g(t, y, p, u), an expression of time, states, parameters and forcings,
crosses zero along the run: from above (direction -1), from below (1), or either way (0). It fires once a crossing, and
not again until its root has left zero; a root that is zero where a run begins must leave zero first, and one that a
change of states carries across zero has not crossed it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fmepy.errors import ModelError, did_you_mean, listed
from fmepy.language.functions import holds_jumps
from fmepy.language.text import parse_expression
from fmepy.models.running.events import (
    COLUMNS,
    NEEDED,
    ROOT_COLUMNS,
    Event,
    change_of,
    event_of,
    event_rows,
    is_missing,
)

DIRECTIONS = (-1, 0, 1)


@dataclass(frozen=True, slots=True)
class RootChange:
    """What happens to a state where a root fires; `value`, `method` and `order` as of an `events.Event`."""

    state: int
    value: Any
    method: str
    order: int


@dataclass(frozen=True, slots=True)
class Root:
    """An expression whose crossing of zero changes states.

    Attributes
    ----------
    g : Node
    direction : {-1, 0, 1}
    changes : tuple of RootChange
        By order; those of one order see one state.
    number : int
        The row of `events` that it came from, the first if there are several.
    text : str
        The root as it was given.
    """

    g: Any
    direction: int
    changes: tuple[RootChange, ...]
    number: int
    text: str

    @property
    def told(self) -> str:
        """What it is called in messages."""
        return f"the root event {self.text!r} (row {self.number} of `events`)"

    @property
    def expressions(self) -> tuple[Any, ...]:
        """The root and the values of its changes."""
        return (self.g, *(c.value for c in self.changes))

    def mapped(self, change: Callable[[Any], Any]) -> Root:
        """Return it with other expressions; numbers stay."""
        values = [c.value if isinstance(c.value, float) else change(c.value) for c in self.changes]
        changes = tuple(replace(c, value=v) for c, v in zip(self.changes, values, strict=True))
        return replace(self, g=change(self.g), changes=changes)


def read_events(events: Any, states: Sequence[str]) -> tuple[tuple[Event, ...], tuple[Root, ...]]:
    """Return what the user gave as events: those at given times, by time and order, and the root events.

    Rows of the same root and direction are changes at one crossing.

    Parameters
    ----------
    events : None, DataFrame or list of dict
        Columns (keys) ``var``, ``value``, and ``time`` or ``root``; ``method``, which is "replace" where it is left out
        (deSolve's "rep" and "mult" are known); ``order``, 0; of a root ``direction``, 0.

    Raises
    ------
    ModelError
        A missing or unknown column, an unknown state or method, a time that is not a finite number, an order that is
        not a whole one, a direction other than -1, 0 and 1, an event with a time and a root.
    """
    timed: list[Event] = []
    roots: dict[tuple[Any, int], Root] = {}
    rows = [] if events is None else event_rows(events)
    has_roots = any("root" in row for row in rows)
    for i, row in enumerate(rows):
        has_root, has_time = not is_missing(row.get("root")), not is_missing(row.get("time"))
        if has_root and has_time:
            raise ModelError(f"`events`, row {i}: an event has a time or a root, not both.")
        if has_root or ("root" in row and not has_time):
            g, direction, text, change = _root_of(row, i, states)
            first = roots.get((g, direction)) or Root(g, direction, (), i, text)
            changes = tuple(sorted((*first.changes, change), key=lambda c: c.order))
            roots[g, direction] = replace(first, changes=changes)
            continue
        if has_roots:  # a table has a cell for everything
            row = {k: v for k, v in row.items() if not (k in (*ROOT_COLUMNS, "order", "method") and is_missing(v))}
        timed.append(event_of(row, i, states))
    return tuple(sorted(timed, key=lambda e: (e.time, e.order))), tuple(roots.values())


def _root_of(row: Mapping[str, Any], i: int, states: Sequence[str]) -> tuple[Any, int, str, RootChange]:
    """Return the root of the i-th row of events, its direction, its text, and what it changes."""
    where, known = f"`events`, row {i}", (*COLUMNS, *ROOT_COLUMNS)
    given = {k: v for k, v in row.items() if not (k in known and k not in (*NEEDED, "root") and is_missing(v))}
    unknown = [k for k in given if k not in known]
    if unknown:
        raise ModelError(
            f"{where}: there is no key {unknown[0]!r}.{did_you_mean(unknown[0], known)} "
            f"Those of a root event are {listed([*ROOT_COLUMNS, 'var', 'value', 'method', 'order'])}."
        )
    missing = [k for k in ("var", "value") if k not in given]
    if missing:
        raise ModelError(f"{where}: {listed(missing)} missing. A root event needs root, var and value.")
    change = RootChange(*change_of(given, where, i, states))
    root = given["root"]
    return _expression(root, where), _direction(given.get("direction", 0), where), str(root), change


def _expression(root: Any, where: str) -> Any:
    if isinstance(root, str):
        root = parse_expression(root, where=f"{where}, root")
    if not getattr(root, "free_symbols", None):
        raise ModelError(
            f"{where}: the root is {root!r}; an expression is needed that crosses zero along the run, such as the name "
            "of a state, or 'height - 1'."
        )
    return root


def _direction(direction: Any, where: str) -> int:
    try:
        if direction in DIRECTIONS:
            return int(direction)
    except (TypeError, ValueError):
        pass
    raise ModelError(
        f"{where}: the direction is {direction!r}; it is -1 (the root falls through zero), 1 (it rises) or 0 (either)."
    )


def check_roots(roots: Sequence[Root], varying: Sequence[str]) -> None:
    """Refuse a root of nothing that changes along a run, and one that jumps; `varying` are the names that change."""
    for r in roots:
        if holds_jumps([r.g]):
            raise ModelError(
                f"`events`, row {r.number}: the root {r.text!r} may jump across zero (where, sign, floor, ceil, %); an "
                "expression is needed that goes through zero, such as 'x - 2' for where(x > 2, 1, -1). What happens at "
                "times known beforehand is an event with a time."
            )
        if not {s.name for s in r.g.free_symbols} & set(varying):
            raise ModelError(
                f"`events`, row {r.number}: the root {r.text!r} depends on no state and not on time, so that it never "
                f"crosses zero. States are {listed(varying[:-1])}; time is {varying[-1]!r}."
            )
