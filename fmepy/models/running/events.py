"""Events: changes of a state at given times, or where an expression crosses zero.

At its time an event sets, adds to or multiplies one state. The row of the result at that time shows the state *before*
the event, as in R. Its value is a number or an expression v(t, y, p, u) of time, states, parameters and forcings (at a
jump those after it), and sensitivities follow::

    replace   y_i+ = v          S_i+ = dv            dv = (dv/dy) S + dv/dp
    add       y_i+ = y_i + v    S_i+ = S_i + dv
    multiply  y_i+ = v y_i      S_i+ = v S_i + y_i dv

Events of one time happen by `order`, the lower first. Those of the same order see one state, that before any of them.

A root event happens when its *root* g(t, y, p, u), an expression of time, states, parameters and forcings, crosses zero
along the run: from above (direction -1), from below (1), or either way (0). It fires once a crossing, and not again
until its root has left zero; a root that is zero where a run begins must leave zero first, and one that a change of
states carries across zero has not crossed it.

A root event may have a condition ``when``, an expression that is 1 while it holds, else 0. It then happens whenever the
condition starts to hold, also because another event changed the states; rows at its time show the state after it. If it
is not *persistent*, it does not happen if another event of that time has ended the condition first. *Early* values are
computed from the state in which the condition started to hold, not from the state that they change. Of several waiting
at one time the one with the largest *priority* is next, a number or an expression evaluated then. A *strict* event
(t > 2, not t >= 2) happens just after its time, so that a row at that time shows the state before it; it may be an
expression evaluated then, 1 or 0.

A root may change nothing and only be reported; a *terminal* one ends the run after its changes.

A value may be a function ``f(t, state, parameters)``, which is turned into expressions when the events are read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fmepy.checks import whole_number
from fmepy.compiled.python_code import scalar_function
from fmepy.errors import ModelError, SimulationError, check_choice, did_you_mean, listed, repeated
from fmepy.language.derivatives import derivative
from fmepy.language.equations import names_in, symbol, symbols
from fmepy.language.functions import holds_jumps
from fmepy.language.nodes import Node, as_node
from fmepy.language.text import parse_expression, read_value
from fmepy.models.definition.values import ValueTable
from fmepy.models.running.event_functions import in_expressions, is_missing
from fmepy.models.running.forcings import forcing_values
from fmepy.parameters.names import normal_name
from fmepy.types import Vector

if TYPE_CHECKING:
    from fmepy.models.definition.definition import Definition

METHODS = ("replace", "add", "multiply")
_OF_DESOLVE = {"rep": "replace", "mult": "multiply"}
COLUMNS = ("var", "time", "value", "method", "order")
NEEDED = COLUMNS[:3]
ROOT_COLUMNS = ("root", "direction", "terminal", "when", "persistent", "early", "priority", "strict")
"""Further columns of root events."""
DIRECTIONS = (-1, 0, 1)
EVENT_VALUE = "value of an event"
"""Name of the symbol for the number of an event in the expression of its kind, see `kinds_of`."""


@dataclass(frozen=True, slots=True, eq=False)
class Event:
    """A change of one state at one time.

    Attributes
    ----------
    state : int
        Position of the state.
    time : float
    value : float or Node
        A number (a float), or an expression of states, parameters, forcings and time.
    method : {"replace", "add", "multiply"}
    order : int
        Order among the events of one time.
    """

    state: int
    time: float
    value: Any
    method: str
    order: int = 0

    def row(self, states: Sequence[str], value: Any = None) -> dict[str, Any]:
        """Return the event as a row of a table, with another value if one is given; `states` are the names."""
        new = self.value if value is None else value
        return {"var": states[self.state], "time": self.time, "value": new, "method": self.method, "order": self.order}


def event_of(row: Mapping[str, Any], i: int, states: Sequence[str]) -> Event:
    """Return the event at a given time in the i-th row of events; see `read_events`."""
    where = f"`events`, row {i}"
    _check_keys(row, where, COLUMNS, NEEDED, "An event needs var, time and value (or a root in place of time).")
    state, value, method, order = change_of(row, where, i, states)
    try:
        time = float(row["time"])
    except (TypeError, ValueError):
        time = np.nan
    if not np.isfinite(time):
        raise ModelError(f"{where}: the time is {row['time']!r}; a finite number is needed.")
    return Event(state, time, value, method, order)


def _check_keys(row: Mapping[str, Any], where: str, keys: Sequence[str], needed: Sequence[str], needs: str) -> None:
    """Refuse an unknown key, and a row without a `needed` one."""
    known = (*COLUMNS, *ROOT_COLUMNS)
    for unknown in [k for k in row if k not in keys][:1]:
        near = " It belongs to a root." if unknown in known else did_you_mean(unknown, known)
        raise ModelError(
            f"{where}: there is no column {unknown!r}.{near} Columns are {listed(COLUMNS)}; of an event with a root "
            f"also {listed(ROOT_COLUMNS)}."
        )
    if missing := [k for k in needed if k not in row]:
        raise ModelError(f"{where}: {listed(missing)} missing. {needs}")


def change_of(row: Mapping[str, Any], where: str, i: int, states: Sequence[str]) -> tuple[int, Any, str, int]:
    """Return position of the state, value, method and order of the i-th row of events."""
    state = normal_name(row["var"])
    if state not in states:
        raise ModelError(
            f"{where}: {row['var']!r} is not a state.{did_you_mean(row['var'], states)} States are {listed(states)}."
        )
    given = row.get("method", "replace")
    method = check_choice(_OF_DESOLVE.get(str(given), given), METHODS, f"events[{i}].method")
    order = whole_number(row.get("order", 0), f"events[{i}].order", least=-(10**9))
    return states.index(state), _value(row["value"], where), method, order


@lru_cache(maxsize=64)
def kinds_of(events: tuple[Event, ...]) -> tuple[tuple[Any, ...], list[int], list[float]]:
    """Return the different expressions of the events' values, the index of each event's expression, and its number.

    All numbers share one expression, the symbol `EVENT_VALUE`, so that a thousand doses are compiled once; other events
    have the number 0.
    """
    number, kind_of = symbol(EVENT_VALUE), []
    kinds: dict[Any, int] = {}
    for e in events:
        kind_of.append(kinds.setdefault(number if isinstance(e.value, float) else e.value, len(kinds)))
    return tuple(kinds), kind_of, [e.value if isinstance(e.value, float) else 0.0 for e in events]


def events_outside(events: Sequence[Event], states: Sequence[str], start: float, end: float) -> str:
    """Return a message about events outside the times of a model, which have no effect; "" if there are none."""
    slack = 1e-9 * (end - start)
    by_state: dict[str, list[str]] = {}
    for e in events:
        if not start - slack <= e.time <= end + slack:
            by_state.setdefault(states[e.state], []).append(f"{e.time:g}")
    if not by_state:
        return ""
    count = sum(map(len, by_state.values()))
    times_by_state = "; ".join(
        f"{state!r} at {', '.join(times[:6])}{', ...' if len(times) > 6 else ''}" for state, times in by_state.items()
    )
    return (
        f"{count} of {len(events)} events {'lies' if count == 1 else 'lie'} outside `times` ({start:g} to {end:g}) and "
        f"will not happen: {times_by_state}. Are both in the same unit of time?"
    )


def event_rows(events: Any) -> list[Mapping[str, Any]]:
    """Return the rows of a table of events; ModelError if it is no table."""
    if isinstance(events, pd.DataFrame):
        if twice := repeated(map(str, events.columns)):
            raise ModelError(f"`events` has the column {listed(twice)} more than once. Leave one of them out.")
        return [{str(k): v for k, v in row.items()} for row in events.to_dict("records")]
    if isinstance(events, Mapping):
        try:
            return event_rows(pd.DataFrame(events))
        except ValueError:
            raise ModelError("`events` given as a dict must hold equally long columns.") from None
    rows = list(events) if isinstance(events, Collection) else []  # an iterator would be empty the next time
    if not isinstance(events, Collection) or not all(isinstance(r, Mapping) for r in rows):
        raise ModelError("`events` must be a table or a list of dicts with var, time, value and method.")
    return rows


def _value(value: Any, where: str) -> Any:
    number = read_value(value, where)
    if isinstance(number, float) and not np.isfinite(number):
        raise ModelError(f"{where}: the value is {value!r}; a finite number or an expression is needed.")
    return number


# --- root events


@dataclass(frozen=True, slots=True)
class RootChange:
    """A change of a state when a root fires; `value`, `method` and `order` as in `Event`."""

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
        Sorted by order; changes of the same order see the same state.
    number : int
        Its row of `events`, the first if there are several.
    text : str
        The root as the user wrote it.
    when : Node or None
        1 while its condition holds, else 0; None: it fires only when g crosses zero.
    persistent, early, priority, strict, terminal : bool, bool, Node or None, bool or Node, bool
        See the module's text.
    """

    g: Any
    direction: int
    changes: tuple[RootChange, ...]
    number: int
    text: str
    when: Any = None
    persistent: bool = True
    early: bool = False
    priority: Any = None
    strict: Any = False
    terminal: bool = False

    @property
    def order(self) -> int:
        """Order of its first change."""
        return self.changes[0].order if self.changes else 0

    @property
    def label(self) -> str:
        """Its name in messages."""
        return f"the root event {self.text!r} (row {self.number} of `events`)"

    @property
    def expressions(self) -> tuple[Any, ...]:
        """The root, its condition and priority, whether it is strict, and the values of its changes."""
        words = (e for e in (self.when, self.priority, as_node(self.strict)) if e is not None)
        return (self.g, *words, *(c.value for c in self.changes))

    def mapped(self, change: Callable[[Any], Any]) -> Root:
        """Return the root with `change` applied to its expressions; numbers stay."""
        values = [c.value if isinstance(c.value, float) else change(c.value) for c in self.changes]
        changes = tuple(replace(c, value=v) for c, v in zip(self.changes, values, strict=True))
        when, priority = (None if e is None else change(e) for e in (self.when, self.priority))
        strict = self.strict if isinstance(self.strict, bool) else change(self.strict)
        return replace(self, g=change(self.g), changes=changes, when=when, priority=priority, strict=strict)


def read_events(
    events: Any, states: Sequence[str], inputs: Mapping[str, float], time: str
) -> tuple[tuple[Event, ...], tuple[Root, ...]]:
    """Return the user's events: those at given times, by time and order, and the root events.

    Rows with the same root and direction are changes at one crossing.

    Parameters
    ----------
    events : None, DataFrame or list of dict
        Columns (keys) ``var``, ``value``, and ``time`` or ``root``; ``method``, by default "replace" (deSolve's "rep"
        and "mult" are accepted); ``order``, by default 0; for a root ``direction``, by default 0, and ``terminal``, by
        default False. A root without ``var`` changes nothing. A value may be a function of time, states and inputs, by
        name, that returns a number, or without ``var`` a dict of several states.
    inputs : mapping
        Parameters and forcings with some value of each.
    time : str
        Name of the time.

    Raises
    ------
    ModelError
        A missing or unknown column, an unknown state or method, a time that is not a finite number, an order that is
        not a whole one, a direction other than -1, 0 and 1, an event with a time and a root.
    """
    timed: list[Event] = []
    roots: dict[tuple[Any, ...], Root] = {}
    rows = [] if events is None else event_rows(events)
    has_roots = any("root" in row for row in rows)
    names = {time: 0.37}, dict.fromkeys(states, 1.07), inputs
    plain = [(i, row) for i, given in enumerate(rows) for row in in_expressions(given, f"`events`, row {i}", *names)]
    for i, row in plain:
        has_root, has_time = not is_missing(row.get("root")), not is_missing(row.get("time"))
        if has_root and has_time:
            raise ModelError(f"`events`, row {i}: an event has a time or a root, not both.")
        if has_root or ("root" in row and not has_time):
            new = _root_of(row, i, states)
            key: tuple[Any, ...] = (new.g, new.direction, new.when, new.persistent, new.early, new.priority, new.strict)
            key += (new.order,) if new.when is not None else ()
            first = roots.get(key, replace(new, changes=()))
            changes = tuple(sorted((*first.changes, *new.changes), key=lambda c: c.order))
            roots[key] = replace(first, changes=changes, terminal=first.terminal or new.terminal)
            continue
        if has_roots:  # in a table every row has all columns
            row = {k: v for k, v in row.items() if not (k in (*ROOT_COLUMNS, "order", "method") and is_missing(v))}
        timed.append(event_of(row, i, states))
    return tuple(sorted(timed, key=lambda e: (e.time, e.order))), tuple(roots.values())


def _root_of(row: Mapping[str, Any], i: int, states: Sequence[str]) -> Root:
    """Return the root of the i-th row of events, with its change."""
    where, known = f"`events`, row {i}", (*COLUMNS, *ROOT_COLUMNS)
    given = {k: v for k, v in row.items() if not (k in known and k != "root" and is_missing(v))}
    changes = "var" in given or "value" in given
    needs = "A root that changes a state needs var and value; one without both is only reported, by `hits`."
    _check_keys(given, where, known, ("var", "value") if changes else (), needs)
    root = given["root"]
    when, priority = (_parsed(given.get(word), f"{where}, {word}") for word in ("when", "priority"))
    strict = given.get("strict", False)
    return Root(
        _expression(root, where),
        _direction(given.get("direction", 0), where),
        (RootChange(*change_of(given, where, i, states)),) if changes else (),
        i,
        str(root),
        when,
        _flag(given.get("persistent", True), f"{where}, persistent"),
        _flag(given.get("early", False), f"{where}, early"),
        None if priority is None else as_node(priority),
        strict if isinstance(strict, Node) else _flag(strict, f"{where}, strict"),
        _flag(given.get("terminal", False), f"{where}, terminal"),
    )


def _flag(value: Any, where: str) -> bool:
    if isinstance(value, str) or value not in (0, 1):
        raise ModelError(f"{where}: it is {value!r}; True or False is needed.")
    return bool(value)


def _parsed(value: Any, where: str) -> Any:
    return parse_expression(value, where=where) if isinstance(value, str) else value


def _expression(root: Any, where: str) -> Any:
    root = _parsed(root, f"{where}, root")
    if not getattr(root, "free_symbols", None):
        raise ModelError(
            f"{where}: the root is {root!r}; an expression is needed that crosses zero along the run, such as the name "
            "of a state, or 'height - 1'."
        )
    return root


def _direction(direction: Any, where: str) -> int:
    if isinstance(direction, int | float | np.number) and direction in DIRECTIONS:
        return int(direction)
    raise ModelError(
        f"{where}: the direction is {direction!r}; it is -1 (the root falls through zero), 1 (it rises) or 0 (either)."
    )


def check_roots(roots: Sequence[Root], varying: Sequence[str], still: Container[str] = ()) -> None:
    """Refuse a root that is constant along a run, and one that jumps.

    varying, still : sequence of str
        Names that change along a run, and names that change only at events, or never.
    """
    for r in roots:
        if holds_jumps([r.g], still):
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


# --- events at given times, and the effect of changes of states on z = [y, S]

Apply = Callable[[Sequence[int], Vector], Vector]
Settle = Callable[[float, Vector], Vector]


class EventTable:
    """Events of a model, ready to be applied to z = [y, scaled sensitivities].

    Parameters
    ----------
    definition : Definition
    names : tuple of str
        The parameters with sensitivities.
    """

    def __init__(self, definition: Definition, names: tuple[str, ...]) -> None:
        d, self.events, self._n = definition, definition.events, len(definition.states)
        kinds, kind_of, self._numbers = kinds_of(d.events)
        functions = [_function(kind, d.groups, names) for kind in kinds]
        self._values = [functions[k] for k in kind_of]
        self._forced: list[list[float]] = forcing_values(d.forcings, np.array([e.time for e in d.events])).T.tolist()
        used = names_in(e.value for e in d.events) & set(d.extra_names)
        self._extras: Any = d.function if used else None
        self._no_extras = [0.0] * len(d.extra_names)

    def prepared(self, p: list[float], scales: Vector | None, settle: Settle | None = None) -> Apply:
        """Return ``apply(indices, z) -> z`` for one run.

        scales : ndarray or None
            Scales of the sensitivities; None if there are none.
        settle : callable, optional
            ``settle(t, z)`` makes algebraic states consistent after the events of one order.
        """
        events, n = self.events, self._n

        def value_of(i: int, z: Vector) -> tuple[float, Any]:
            """Return the value of an event at z, and its derivatives."""
            e, u = events[i], self._forced[i]
            extras = self._no_extras if self._extras is None else [*self._extras.extras(e.time, z[:n], p, u).values()]
            v, *slopes = self._values[i]((e.time,), z[:n].tolist(), p, u, extras, (self._numbers[i],))
            if not isfinite(v):
                raise SimulationError("an initial or event value is not finite", time=e.time)
            if scales is None:
                return v, None
            return v, np.array(slopes[:n]) @ z[n:].reshape(-1, n).T + np.array(slopes[n:]) * scales

        def apply(indices: Sequence[int], z: Vector) -> Vector:
            return changed_states(z, n, [(i, events[i]) for i in indices], value_of, settle)

        return apply


def changed_states(
    z: Vector,
    n: int,
    changes: Sequence[tuple[int, Any]],
    value_of: Callable[[int, Vector], tuple[float, Any]],
    settle: Settle | None = None,
) -> Vector:
    """Return z, n states and their sensitivities, after changes (`Event` or `RootChange`), each with its number.

    Changes of the same order see the same z, at which ``value_of(number, z)`` returns a value and its derivatives
    (scaled; None without sensitivities); `settle` is called after each order, at the time of the events.
    """
    in_order = sorted(changes, key=lambda one: one[1].order)
    for _, together in groupby(in_order, key=lambda one: one[1].order):
        values, z = [(c, *value_of(i, z)) for i, c in together], z.copy()
        for c, v, dv in values:
            s = z[n + c.state :: n]  # sensitivities of this state (a view), one a parameter
            old = z[c.state]
            z[c.state] = v if c.method == "replace" else old + v if c.method == "add" else old * v
            if dv is not None:
                s[:] = dv if c.method == "replace" else s + dv if c.method == "add" else v * s + old * dv
        if settle is not None:
            z = settle(values[0][0].time, z)
    return z


def sizes_set(events: Sequence[Event | RootChange], definition: Definition, p: list[float]) -> Vector:
    """Return the largest value that each state is set to by events whose values are known before a run."""
    out, known = np.zeros(len(definition.states)), set(definition.parameters)
    for e in {(e.state, e.value): e for e in events if e.method != "multiply"}.values():
        if isinstance(e.value, float) or names_in([e.value]) <= known:
            with suppress(SimulationError):  # one that has no value fails in the run
                (value,) = ValueTable([e.value], definition.parameters).value(p)
                out[e.state] = max(out[e.state], abs(value))
    return out


@lru_cache(maxsize=256)
def _function(value: Any, groups: tuple[tuple[str, ...], ...], names: tuple[str, ...]) -> Callable[..., list[float]]:
    """Return the value of a kind of event, and its derivatives to the states and the parameters `names`."""
    slopes = [derivative(value, symbol(k)) for k in (*groups[1], *names)] if names else []
    return scalar_function(symbols(*groups, (EVENT_VALUE,)), [value, *slopes])
