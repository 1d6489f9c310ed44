"""Events of SBML -> root events of `OdeModel`, and what happens at the very start.

An event with a delay becomes two: where its trigger begins to hold, a state `<event>_due` is set to the time at which
it is due, and states `<event>_<variable>` to the values of then; where the time passes `<event>_due`, it happens.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fmepy.exchange.mathml import as_number, margin
from fmepy.language.conditions import Joined, Not, Relation, choose, relation
from fmepy.language.derivatives import derivative
from fmepy.language.equations import names_in, symbol
from fmepy.language.nodes import Node, Number, Symbol, add, as_node, call, mul

NEVER = 1e30
MOST_AT_START = 20


@dataclass(eq=False)
class SbmlEvent:
    """An event as the file has it."""

    id: str
    condition: Any
    changes: list[tuple[str, Node]]
    order: int
    held: bool
    persistent: bool
    early: bool
    rows: list[dict[str, Any]] = field(default_factory=list)


def read_events(reader: Any) -> tuple[list[dict[str, Any]], dict[str, Node]]:
    """Return the rows of events of a model, and the initial values of states that events at the start change."""
    events = []
    for number, e in enumerate(reader.m.getListOfEvents()):
        if e.isSetTrigger() and e.getTrigger().isSetMath():
            events.append(_event(reader, e, e.getIdAttribute() or f"event{number + 1}"))
    return [row for e in events for row in e.rows], _at_start(reader.draft, events)


def _event(reader: Any, e: Any, id: str) -> SbmlEvent:
    draft, trigger, place = reader.draft, e.getTrigger(), reader.place(e)
    condition = reader.formulas.condition(trigger.getMath(), place)
    order = 0
    if e.isSetPriority() and e.getPriority().isSetMath():
        priority = draft.at_start([reader.formulas.number(e.getPriority().getMath(), place)])[0]
        priority = priority.subs({symbol(n): as_node(draft.parms[n]) for n in names_in([priority]) & {*draft.parms}})
        if not isinstance(priority, Number) or priority.value != int(priority.value):
            raise reader.refuse(e, "a priority that is no whole number is not read.")
        order = -int(priority.value)
    changes = [
        change_of(reader, a, reader.formulas.number(a.getMath(), reader.place(a)))
        for a in e.getListOfEventAssignments()
        if a.isSetMath()
    ]
    early = bool(e.getUseValuesFromTriggerTime()) if e.isSetUseValuesFromTriggerTime() else True
    persistent = bool(trigger.getPersistent()) if trigger.isSetPersistent() else True
    held = bool(trigger.getInitialValue()) if trigger.isSetInitialValue() else True
    out = SbmlEvent(id, condition, changes, order, held, persistent, early)
    if e.isSetDelay() and e.getDelay().isSetMath():
        delay = reader.formulas.number(e.getDelay().getMath(), place)
        if not (isinstance(delay, Number) and delay.value == 0):
            _delay(draft, out, delay)
            return out
    out.rows = _rows(draft, condition, changes, order=order, persistent=persistent, early=early)
    return out


def _rows(draft: Any, condition: Any, changes: list[tuple[str, Node]], **words: Any) -> list[dict[str, Any]]:
    """Return the rows of an event; none of a condition that never begins to hold."""
    g = margin(condition)
    if not names_in([g]) & {"t", *draft.rates, *draft.assigned, *draft.initial}:
        return []
    row = {"root": g, "direction": 1, "when": as_number(condition), **words}
    return [{**row, "var": state, "value": value} for state, value in changes]


def _delay(draft: Any, e: SbmlEvent, delay: Node) -> None:
    """Let an event be due some time after its trigger began to hold."""
    t = symbol("t")

    def state(of: str, start: float) -> Symbol:
        name = draft.name_for(of, e.id)
        draft.rates[name], draft.initial[name] = as_node(0.0), as_node(start)
        return symbol(name)

    due = state("due", NEVER)
    is_waiting = Joined([Relation(due, t), Relation(NEVER / 10, due)], "and")
    # one that is due already has no place for a second time: the logarithm has no value, and the run fails
    set_due = [(due.name, as_node(choose(is_waiting, call("log", t - due), t + delay)))]
    later = e.changes
    if e.early:
        kept = [(var, state(var, 0.0), value) for var, value in e.changes]
        set_due += [(own.name, value) for _, own, value in kept]
        later = [(var, own) for var, own, _ in kept]
    e.rows = _rows(draft, e.condition, set_due, order=-(10**8), persistent=True, early=False)
    e.rows += _rows(draft, relation(">=", t, due), later, order=e.order, persistent=True, early=e.early)
    if not e.persistent:
        off = [(due.name, as_node(choose(is_waiting, as_node(NEVER), due)))]
        e.rows += _rows(draft, Not(e.condition), off, order=-(10**8), persistent=True, early=False)
    e.changes = set_due


def _at_start(draft: Any, events: list[SbmlEvent]) -> dict[str, Node]:
    """Return the initial values that events set which happen at the start, one after the other.

    Those whose trigger holds, and did not hold before, happen; then those that begin to hold because of them.
    """
    begun: dict[str, Node] = {}
    draft.begun = begun
    held = {e.id: as_node(float(e.held)) for e in events}
    done: set[str] = set()
    for _ in range(MOST_AT_START):
        holds = dict(zip(held, draft.at_start([as_number(e.condition) for e in events], begun=True), strict=True))
        fires = {e.id: mul(holds[e.id], 1 - held[e.id]) for e in events}
        fires |= {
            e.id: as_node(1.0) for e in events if _is(holds[e.id], 0.0) and e.id not in done and _begins(draft, e)
        }
        firing = sorted((e for e in events if not _is(fires[e.id], 0.0)), key=lambda e: e.order)
        if not firing:
            break
        early = {e.id: draft.at_start([v for _, v in e.changes], begun=True) for e in firing}
        for e in firing:
            if not e.persistent and _is(draft.at_start([as_number(e.condition)], begun=True)[0], 0.0):
                continue
            values = early[e.id] if e.early else draft.at_start([v for _, v in e.changes], begun=True)
            before = draft.at_start([symbol(name) for name, _ in e.changes], begun=True)
            for (name, _), new, old in zip(e.changes, values, before, strict=True):
                begun[name] = as_node(choose(relation(">", fires[e.id], 0.5), new, old))
        done |= {e.id for e in firing}
        held = {k: as_node(1.0) if not isinstance(v, Number) else v for k, v in holds.items()}
    return begun


def _begins(draft: Any, e: SbmlEvent) -> bool:
    """Tell whether a trigger begins to hold right at the start: it stands on its border and goes inside."""
    g = margin(e.condition)
    rises = add(*(mul(derivative(g, symbol(n)), draft.rate(n)) for n in sorted(names_in([g]))), as_node(0.0))
    at, speed = draft.at_start([g, rises], begun=True)
    return _is(at, 0.0) and isinstance(speed, Number) and speed.value > 0


def _is(e: Node, value: float) -> bool:
    return isinstance(e, Number) and e.value == value


def change_of(reader: Any, assignment: Any, value: Node) -> tuple[str, Node]:
    """Return the state that an event assignment changes, and its new value."""
    id = assignment.getVariable()
    names, draft = reader.formulas.names, reader.draft
    if id not in names:
        raise reader.refuse(assignment, f"there is no {id!r}.")
    name = names[id].name
    if id in draft.carried:
        amount, size = draft.carried[id]
        return amount, mul(value, size)
    if name not in draft.rates:
        raise reader.refuse(assignment, f"{id!r} has an assignment rule or is no quantity; an event cannot set it.")
    return name, value
