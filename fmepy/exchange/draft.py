"""The draft of a model from a file: its quantities, and the expressions that give them their values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from fmepy.errors import ModelError, listed
from fmepy.language.derivatives import derivative
from fmepy.language.equations import Equations, names_in, symbol
from fmepy.language.nodes import Node, Number, add, as_node, mul, nodes_in, substituted
from fmepy.language.tree import reserved_name
from fmepy.parameters.names import normal_name


def free_name(name: str, taken: Iterable[str]) -> str:
    """Return the nearest name that the language can read and that is not among those taken.

    Examples
    --------
    >>> free_name("lambda", []), free_name("t", []), free_name("k", ["k"])
    ('lambda_', 't_', 'k_')
    """
    name = normal_name("".join(c if c.isalnum() or c == "_" else "_" for c in name)).lstrip("_") or "x"
    name = name if name.isidentifier() else f"x{name}"
    while reserved_name(name) or name in ("t", "pi", "time", "lag") or name in taken:
        name += "_"
    return name


@dataclass
class ForeignModel:
    """The parts of a model.

    Attributes
    ----------
    parms : dict of str to float
        Constants; NaN if the file has no value.
    rates : dict of str to Node
        Derivatives of states.
    assigned : dict of str to Node
        Assignment rules, which hold at all times.
    algebraic : list of Node
        Expressions that are zero at all times.
    initial : dict of str to Node
        Initial values of states, guesses of algebraic ones; names in them stand for initial values.
    derived : dict of str to Node
        Constants that are expressions of initial values.
    events : list of dict
        Rows of `OdeModel`'s ``events``, with expressions.
    file_events : list
        Events as the file has them.
    event_starts : dict of str to Node
        Initial values after the events at the start.
    renamed : dict of str to str
        By id in the file the name here, for all ids.
    amounts : dict of str to (str, Node)
        By id of a concentration in a compartment that changes: the state of its amount, and the size.
    species : set of str
        Names of species, including constant ones.
    start : float
        The time at which initial values hold.
    """

    parms: dict[str, float] = field(default_factory=dict)
    rates: dict[str, Node] = field(default_factory=dict)
    assigned: dict[str, Node] = field(default_factory=dict)
    algebraic: list[Node] = field(default_factory=list)
    initial: dict[str, Node] = field(default_factory=dict)
    derived: dict[str, Node] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    file_events: list[Any] = field(default_factory=list)
    event_starts: dict[str, Node] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)
    amounts: dict[str, tuple[str, Node]] = field(default_factory=dict)
    species: set[str] = field(default_factory=set)
    start: float = 0.0
    ignored: tuple[str, ...] = ()
    where: str = ""

    def name_for(self, id: str, of: str = "") -> str:
        """Return a new name for an id, which may be local to a reaction or event `of`."""
        full = f"{of}.{id}" if of else id
        name = self.renamed[full] = free_name(f"{of}_{id}" if of else id, self.renamed.values())
        return name

    def at_start(
        self, expressions: Iterable[Any], *, after_events: bool = False, values: Mapping[str, Node] | None = None
    ) -> list[Node]:
        """Return expressions at the start: names are replaced by initial values, so that only constants are left.

        after_events : bool
            After the events at the start.
        values : mapping of str to Node, optional
            Values of constants.
        """
        known: dict[str, Node] = {"t": as_node(self.start)}
        open_names: list[str] = []
        states, derived = self.initial, self.derived
        if after_events and self.event_starts:  # states that events do not set keep their values before them
            before = self.at_start([*states.values(), *derived.values()], values=values)
            then = dict(zip([*states, *derived], before, strict=True))
            states, derived = then | self.event_starts, {n: then[n] for n in derived}
        sources = (values or {}, derived, states, self.assigned)

        def value_of(name: str) -> Node:
            if name not in known:
                if name in open_names:
                    raise ModelError(
                        f"{self.where}: initial values need one another: {' -> '.join([*open_names, name])}."
                    )
                e = next((of[name] for of in sources if name in of), None)
                open_names.append(name)
                known[name] = symbol(name) if e is None else resolved(e)
                open_names.pop()
            return known[name]

        def resolved(e: Node) -> Node:
            rule: dict[Node, Node] = {symbol(n): value_of(n) for n in names_in([e])}
            e = substituted([e], rule)[0] if rule else e
            return substituted([e], {lag: lag.args[0] for lag in nodes_in([e], "lag")})[0]  # the past is the start

        return [resolved(as_node(e)) for e in expressions]

    def rate(self, name: str) -> Node:
        """Return the time derivative of a quantity."""
        if name in self.rates:
            return self.rates[name]
        if name not in self.assigned:
            return as_node(1.0 if name == "t" else 0.0)
        return self.slope(self.assigned[name])

    def slope(self, e: Node) -> Node:
        """Return the time derivative of an expression."""
        return add(*(mul(derivative(e, symbol(n)), self.rate(n)) for n in sorted(names_in([e]))), as_node(0.0))

    @cached_property
    def _known(self) -> dict[str, Node]:
        return {**self.assigned, **dict(zip(self.derived, self.at_start(self.derived.values()), strict=True))}

    def resolved(self, expressions: Iterable[Any]) -> list[Node]:
        """Return expressions with assignment rules substituted: only constants, states and time are left."""
        found, known = list(map(as_node, expressions)), self._known
        for _ in range(len(known) + 1):
            names = names_in(found) & known.keys()
            if not names:
                return found
            found = substituted(found, {symbol(n): known[n] for n in names})
        needs = {n: names_in([e]) & known.keys() for n, e in known.items()}
        while idle := [n for n, of in needs.items() if not of & needs.keys()]:
            needs = {n: of for n, of in needs.items() if n not in idle}
        path = [min(needs)]
        while path[-1] not in path[:-1]:
            path.append(min(needs[path[-1]] & needs.keys()))
        ids = {v: k for k, v in self.renamed.items()}
        loop = " -> ".join(ids.get(n, n) for n in path[path.index(path[-1]) :])
        raise ModelError(
            f"{self.where}: rules need one another: {loop}. Write an assignment rule among them as an algebraic rule."
        )

    def used(self) -> set[str]:
        """Return the names of constants that a run needs."""
        of_events = [v for row in self.events for v in row.values() if isinstance(v, Node)]
        starts = self.at_start(map(symbol, self.initial), after_events=True)
        return names_in([*self.resolved([*self.rates.values(), *self.algebraic, *of_events]), *starts])

    def arguments(self, *, whole: bool = True) -> dict[str, Any]:
        """Return the arguments of `OdeModel`; if not `whole`, only those that its states need."""
        if whole:
            self._check()
        states, used = tuple(self.initial), self.used()
        starts = self.at_start(map(symbol, states), after_events=True)
        algebraic = tuple(s for s in states if s not in self.rates)
        of = dict(zip([*self.rates, *algebraic], self.resolved([*self.rates.values(), *self.algebraic]), strict=True))
        names = [*self.derived, *self.assigned] if whole else []
        outputs = tuple(zip(names, self.resolved(map(symbol, names)), strict=True))
        parms = {n: v for n, v in self.parms.items() if n in used}
        rows = [{k: self.resolved([v])[0] if isinstance(v, Node) else v for k, v in r.items()} for r in self.events]
        return {
            "rhs": Equations("ode", states, tuple(parms), (), tuple(of[s] for s in states), outputs, "t", algebraic),
            "state": {s: v.value if isinstance(v, Number) else v for s, v in zip(states, starts, strict=True)},
            "parms": parms,
            "events": rows or None,
        }

    def _check(self) -> None:
        used, ids = self.used(), {v: k for k, v in self.renamed.items()}
        for name in [n for n in self.parms if n not in used]:  # an unused parameter becomes an output
            value = self.parms.pop(name)
            if np.isfinite(value):
                self.assigned[name] = as_node(value)
            else:
                self.ignored += (f"{ids.get(name, name)!r} = {value}",)
        self.__dict__.pop("_known", None)  # there are more
        unset = [n for n, v in self.parms.items() if np.isnan(v)]
        if unset:
            have = "has" if len(unset) == 1 else "have"
            raise ModelError(
                f"{self.where}: {listed(ids.get(n, n) for n in unset)} {have} no value, and formulas need one. "
                "Give them a value, an initial assignment or a rule."
            )
