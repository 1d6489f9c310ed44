"""Events of SBML -> root events of `OdeModel`, and what happens at the very start."""

from __future__ import annotations

from typing import Any

from fmepy.exchange.mathml import as_number, margin
from fmepy.language.conditions import choose, relation
from fmepy.language.equations import names_in
from fmepy.language.nodes import Node, Number, as_node, mul


def read_events(reader: Any) -> tuple[list[dict[str, Any]], dict[str, Node]]:
    """Return the rows of events of a model, and the initial values of states that events at the start change."""
    rows: list[dict[str, Any]] = []
    begun: dict[str, Node] = {}
    draft = reader.draft
    for e in reader.m.getListOfEvents():
        if not e.isSetTrigger() or not e.getTrigger().isSetMath():
            continue
        if e.isSetDelay() and e.getDelay().isSetMath():
            raise reader.refuse(e, "events with a delay are not read yet.")
        trigger = e.getTrigger()
        condition = reader.formulas.condition(trigger.getMath(), reader.place(e))
        order = 0
        if e.isSetPriority() and e.getPriority().isSetMath():
            priority = reader.formulas.number(e.getPriority().getMath(), reader.place(e))
            if not isinstance(priority, Number):
                raise reader.refuse(e, "a priority that is no number is not read.")
            order = -int(priority.value)
        changes = []
        for a in e.getListOfEventAssignments():
            if not a.isSetMath():
                continue
            changes.append(change_of(reader, a, reader.formulas.number(a.getMath(), reader.place(a))))
        at_first = as_number(condition)
        if not trigger.getInitialValue():
            holds = draft.at_start([at_first])[0]
            values = draft.at_start([v for _, v in changes], begun=True)
            for (state, _), value in zip(changes, values, strict=True):
                before = draft.at_start([as_node(begun.get(state, draft.initial[state]))])[0]
                begun[state] = choose(relation(">", holds, 0.5), value, before)
        g = margin(condition)
        if not names_in([g]) & {"t", *draft.rates, *draft.assigned, *draft.initial}:
            continue  # what does not change does not begin to hold
        for state, value in changes:
            rows.append(dict(root=g, direction=1, var=state, value=value, order=order))
    return rows, begun


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
