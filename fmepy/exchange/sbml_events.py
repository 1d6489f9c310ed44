"""Events of SBML -> root events of `OdeModel`, and initial values after the events at the start.

An event with a delay becomes several: when its trigger begins to hold, a state `<event>_due` is set to the time at
which it is due, `<event>_waits` to 1, and states `<event>_<variable>` to the values at that time; when the time passes
`<event>_due`, the event is executed and `<event>_waits` is 0 again. `<event>_due` is 0 while nothing waits, because
tests of a steady state scale with the largest state. There are `MOST_WAITING` sets of these states, so that an event
may be triggered again while it waits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from fmepy.errors import ModelError
from fmepy.exchange.formulas import as_number, equalities, margin, relations
from fmepy.language.conditions import Joined, Not, Relation, choose, relation
from fmepy.language.equations import names_in, symbol
from fmepy.language.functions import holds_jumps
from fmepy.language.nodes import Node, Number, Symbol, as_node, call, mul, nodes_in

MOST_AT_ONCE, MOST_UNKNOWN = 100, 8
"""Largest number of events at one time, and of executions of one whose trigger depends on parameters; further ones set
NaN, so that the run fails."""
MOST_WAITING = 4
JUST_AFTER = 1e-12
"""Time after the start at which events are executed whose triggers begin to hold there (t > 0)."""
Evaluator: TypeAlias = Callable[[Sequence[Any], dict[str, Node]], list[Node]]


@dataclass(eq=False)
class SbmlEvent:
    """Assignments when a condition begins to hold: an event of the file, or one that follows its delay."""

    condition: Any
    changes: list[tuple[str, Node]]
    """States, and their new values."""
    words: dict[str, Any]
    """Entries of its rows: persistent, early, strict, priority."""
    held: bool = False
    """Whether the condition holds before the start."""
    is_delayed: bool = False
    """Whether it follows a delay, and so not at the time of its trigger."""


def read_events(reader: Any) -> None:
    """Add the events of a model to its draft, and execute those at the start."""
    draft = reader.draft
    reader.assign_rates()
    for number, e in enumerate(reader.m.getListOfEvents()):
        if e.isSetTrigger() and e.getTrigger().isSetMath():
            try:
                new = _event(reader, e, e.getIdAttribute() or f"event{number + 1}")
                draft.events += [row for one in new for row in _rows(draft, one)]
                draft.file_events += new
            except ModelError as error:
                raise error if reader.path in str(error) else reader.error(e, str(error)) from None
    reader.assign_rates()  # of events, too
    draft.events += apply_initial_events(draft)


def _event(reader: Any, e: Any, id: str) -> list[SbmlEvent]:
    draft, trigger, place = reader.draft, e.getTrigger(), reader.place(e)
    condition = reader.formulas.condition(trigger.getMath(), place, draft.assigned)
    priority = as_node(0.0)
    if e.isSetPriority() and e.getPriority().isSetMath():
        priority = reader.formulas.number(e.getPriority().getMath(), place)
    assigned = [a for a in e.getListOfEventAssignments() if a.isSetMath()]
    values = [reader.formulas.number(a.getMath(), reader.place(a)) for a in assigned]
    targets = [_target(reader, a) for a in assigned]
    _check_present(draft, as_number(condition), priority, *values)
    words = {
        "persistent": bool(trigger.getPersistent()) if trigger.isSetPersistent() else True,
        "early": bool(e.getUseValuesFromTriggerTime()) if e.isSetUseValuesFromTriggerTime() else True,
        "strict": _strict(draft, condition), "priority": priority,
    }  # fmt: skip
    held = bool(trigger.getInitialValue()) if trigger.isSetInitialValue() else True
    changes = [(name, mul(value, size)) for (name, size), value in zip(targets, values, strict=True)]
    if e.isSetDelay() and e.getDelay().isSetMath():
        delay = reader.formulas.number(e.getDelay().getMath(), place)
        _check_present(draft, delay)
        if isinstance(delay, Number) and not delay.value >= 0:
            raise ModelError(f"its delay is {delay.value:g}; zero or more is needed.")
        if not _equals(delay, 0.0):
            return _delayed(draft, id, SbmlEvent(condition, changes, words, held), delay, targets, values)
    return [SbmlEvent(condition, changes, words, held)]


def _check_present(draft: Any, *expressions: Node) -> None:
    rules = [draft.assigned[n] for n in _all_names(draft, *expressions) & draft.assigned.keys()]
    if nodes_in([*expressions, *rules], "lag"):
        raise ModelError("it reads the past (delay in a formula); an event knows the present alone.")


def _moves(draft: Any, *expressions: Any) -> bool:
    """Tell whether any of the expressions may change between events."""
    still = {*draft.parms, *draft.derived, *(n for n, e in draft.rates.items() if _equals(e, 0.0))}
    return bool(_in_full(draft, *map(as_node, expressions)) - still)


def _strict(draft: Any, condition: Any) -> Any:
    """Return whether a condition begins to hold just after its time, because the relation that begins it is strict.

    It is an expression if strict and other relations move: the relation nearest to its border begins the condition.
    """
    if equal := next((r for r in equalities(condition) if _moves(draft, r.left, r.right)), None):
        raise ModelError(
            f"its trigger compares {equal.left} and {equal.right} by == or !=, which holds at single moments of what "
            "changes along the run; compare by >= or <=."
        )
    kinds: dict[bool, list[Node]] = {True: [], False: []}
    for r, is_strict in relations(condition):
        if _moves(draft, r.left, r.right):
            kinds[is_strict].append(call("abs", as_node(r.left) - as_node(r.right)))
    if not (kinds[True] and kinds[False]):
        return bool(kinds[True])
    near = {k: distances[0] if len(distances) == 1 else call("min", *distances) for k, distances in kinds.items()}
    if_as_near = choose(relation("<", near[False], near[True]), 0.0, as_number(Not(condition)))  # one relation twice
    return as_node(choose(relation("<", near[True], near[False]), 1.0, if_as_near))


def _rows(draft: Any, e: SbmlEvent) -> list[dict[str, Any]]:
    """Return the rows of an event; none if its condition never begins to hold."""
    g = margin(e.condition, partial(_moves, draft))
    if not _in_full(draft, g) - {*draft.parms, *draft.derived}:
        return []
    if holds_jumps([g], [n for n in names_in([g]) if not _moves(draft, symbol(n))]):
        raise ModelError("its trigger jumps (floor, ceil, a piecewise of more than numbers); compare what is inside.")
    row = {"root": g, "direction": 1, "when": as_number(e.condition), **e.words}
    return [{**row, "var": state, "value": value} for state, value in e.changes]


def _in_full(draft: Any, *expressions: Node) -> set[str]:
    """Return the names in expressions, with assigned names replaced by those in their rules."""
    return _all_names(draft, *expressions) - set(draft.assigned)


def _all_names(draft: Any, *expressions: Node) -> set[str]:
    """Return the names in expressions, and in the rules of assigned ones."""
    names: set[str] = set()
    new = names_in(expressions)
    while new := new - names:
        names |= new
        new = names_in(draft.assigned[n] for n in new if n in draft.assigned)
    return names


def _delayed(
    draft: Any, id: str, e: SbmlEvent, delay: Node, targets: list[tuple[str, Node]], values: list[Node]
) -> list[SbmlEvent]:
    """Return the events of one with a delay; the sizes of `targets` are those at the time it is due."""
    t, events = symbol("t"), list[SbmlEvent]()
    at_once = {**e.words, "priority": as_node(1e30), "persistent": True, "early": False}

    def state(of: str) -> Symbol:
        name = draft.name_for(of, id)
        draft.rates[name], draft.initial[name] = as_node(0.0), as_node(0.0)
        return symbol(name)

    changes: list[tuple[str, Node]] = []
    waiting_before: list[Any] = []
    for k in range(MOST_WAITING):
        due, waits = state(f"due{k or ''}"), state(f"waits{k or ''}")
        is_waiting, none = Relation(waits, 0.5), [(s.name, as_node(0.0)) for s in (due, waits)]
        # without a free set of states the value is NaN, the logarithm of a negative number, and the run fails
        full = call("log", -waits) if k == MOST_WAITING - 1 else waits
        is_next = Joined([*waiting_before, Not(is_waiting)], "and")
        is_full = Joined([*waiting_before, is_waiting], "and")
        own, later = [(due, t + delay)], e.changes
        if e.words["early"]:
            stored = [state(f"{name}{k or ''}") for name, _ in targets]
            own += zip(stored, values, strict=True)
            later = [(name, mul(s, size)) for s, (name, size) in zip(stored, targets, strict=True)]
        changes += [(s.name, as_node(choose(is_next, value, s))) for s, value in own]
        changes.append((waits.name, as_node(choose(is_next, 1.0, choose(is_full, full, waits)))))
        words = {**e.words, "early": False, "strict": e.words["strict"] is True}
        is_due = Joined([relation(">=", t, due), is_waiting], "and")
        events.append(SbmlEvent(is_due, [*later, *none], words, is_delayed=True))
        if not e.words["persistent"]:
            events.append(SbmlEvent(Not(e.condition), none, at_once))
        waiting_before.append(is_waiting)
    return [SbmlEvent(e.condition, changes, at_once, e.held), *events]


def execute_events(
    events: Sequence[SbmlEvent], held: Sequence[Node], evaluate: Evaluator, parms: Any, where: str
) -> dict[str, Node]:
    """Return the new values of states after all events whose conditions begin to hold, also because of other events.

    Parameters
    ----------
    events : list of SbmlEvent
    held : list of Node
        By event 1 if its condition held before, else 0.
    evaluate : callable
        ``evaluate(expressions, new)``: expressions with new values of some states substituted.
    parms : mapping of str to float
        Values of constants, for priorities.
    where : str
        The beginning of messages.
    """
    new: dict[str, Node] = {}
    waiting: list[tuple[int, Node, list[Node] | None]] = []
    known: dict[Node, Node] = {symbol(n): as_node(v) for n, v in parms.items()}
    unknown, last = [0] * len(events), -1
    for _ in range(MOST_AT_ONCE):
        holds = evaluate([as_number(e.condition) for e in events], new)
        for i, (e, before, now) in enumerate(zip(events, held, holds, strict=True)):
            fires = as_node(0.0) if now is before or e.is_delayed else mul(now, 1 - before)
            if not isinstance(fires, Number):  # if it depends on parameters: a few times, and not by its own change
                unknown[i] += 1
                fires = as_node(0.0) if i == last or unknown[i] > MOST_UNKNOWN + 1 else fires
            if not _equals(fires, 0.0):
                is_followed = unknown[i] <= MOST_UNKNOWN
                waiting.append((i, fires, evaluate([v for _, v in e.changes], new) if is_followed else None))
        held = holds
        waiting = [one for one in waiting if events[one[0]].words["persistent"] or not _equals(holds[one[0]], 0.0)]
        if not waiting:
            return new
        ranks = [r.subs(known) for r in evaluate([e.words["priority"] for e in events], new)]
        waiting.sort(key=lambda one: -r.value if isinstance(r := ranks[one[0]], Number) else 0.0)
        last, fires, values = waiting.pop(0)
        e = events[last]
        if values is not None and not e.words["early"]:
            values = evaluate([v for _, v in e.changes], new)
        fires = fires if e.words["persistent"] else mul(fires, holds[last])
        new |= _assignments(e, fires, values, evaluate, new)
    if isinstance(fires, Number):
        raise ModelError(f"{where}: more than {MOST_AT_ONCE} events happen one after the other at one time.")
    for i, fires, _ in waiting:
        new |= _assignments(events[i], fires, None, evaluate, new)
    return new


def _assignments(
    e: SbmlEvent, fires: Node, values: list[Node] | None, evaluate: Evaluator, new: dict[str, Node]
) -> dict[str, Node]:
    """Return the states after an event where it fires; without `values` they are NaN, so that the run fails."""
    values = [call("log", -fires)] * len(e.changes) if values is None else values
    old = evaluate([symbol(name) for name, _ in e.changes], new)
    made = zip(e.changes, values, old, strict=True)
    return {name: as_node(choose(relation(">", fires, 0.5), value, was)) for (name, _), value, was in made}


def apply_initial_events(draft: Any) -> list[dict[str, Any]]:
    """Set the initial values of a draft by the events at the start; return the rows of events just after it."""
    events, draft.event_starts = draft.file_events, {}

    def evaluate(expressions: Sequence[Any], new: dict[str, Node]) -> list[Node]:
        draft.event_starts = new
        found: list[Node] = draft.at_start(expressions, after_events=True)
        return found

    held = [as_node(float(e.held)) for e in events]
    draft.event_starts = execute_events(events, held, evaluate, draft.parms, draft.where)
    soon = relation(">", symbol("t"), draft.start + JUST_AFTER)
    holds = draft.at_start([as_number(e.condition) for e in events], after_events=True)
    later = [
        SbmlEvent(soon, e.changes, e.words)
        for e, v in zip(events, holds, strict=True)
        if _equals(v, 0.0) and _starts_to_hold(draft, e)
    ]
    return [row for e in later for row in _rows(draft, e)]


def _starts_to_hold(draft: Any, e: SbmlEvent) -> bool:
    """Tell whether a trigger begins to hold right at the start: its margin is 0 and rises."""
    g = margin(e.condition, partial(_moves, draft))
    at, speed = draft.at_start([g, draft.slope(g)], after_events=True)
    return _equals(at, 0.0) and isinstance(speed, Number) and speed.value > 0


def _equals(e: Node, value: float) -> bool:
    return isinstance(e, Number) and e.value == value


def _target(reader: Any, assignment: Any) -> tuple[str, Node]:
    """Return the state that an event assignment changes, and the size by which its value is multiplied."""
    id = assignment.getVariable()
    names, draft = reader.formulas.names, reader.draft
    if id not in names:
        raise reader.error(assignment, f"there is no {id!r}.")
    if id in draft.amounts:
        return draft.amounts[id]  # type: ignore[no-any-return]
    if names[id].name not in draft.rates:
        raise reader.error(assignment, f"{id!r} has an assignment rule or is no quantity; an event cannot set it.")
    return names[id].name, as_node(1.0)
