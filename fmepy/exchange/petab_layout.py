"""The model, experiments and observables of a PEtab problem as expressions, before any run.

A problem has parameters P, its model constants M and states y. Names of the model are symbols by their names here;
parameters of the problem are symbols that no model has, see `of_problem`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fmepy.errors import DataError, did_you_mean, listed, warn
from fmepy.exchange.draft import ForeignModel, free_name
from fmepy.exchange.formulas import as_number, parse_formula
from fmepy.exchange.petab_tables import Observable, Period, Tables
from fmepy.exchange.sbml_events import apply_initial_events, execute_events
from fmepy.language.equations import names_in, symbol, symbols
from fmepy.language.nodes import Node, Number, Symbol, as_node, mul, substituted
from fmepy.models.ode import OdeModel
from fmepy.models.preequilibration import opened

RTOL, ATOL = 1e-8, 1e-12
NOISE = "{}_noise"
JUST_BEFORE = 1e-9
"""Relative distance before the time of a period (absolute below 1): larger than `watch_table.NEAR`."""
_OF_PROBLEM = "problem's {}"


def of_problem(name: str) -> Symbol:
    """Return the symbol of a parameter of the problem; those of the model have plain names."""
    return symbol(_OF_PROBLEM.format(name))


@dataclass(frozen=True, eq=False)
class Stage:
    """A period of an experiment, with the changes at its beginning.

    Attributes
    ----------
    time : float
    is_rest : bool
        Whether it lasts until nothing changes.
    is_first : bool
    changes : dict of int to Node
        New values by position among constants and states: in a first period all constants as functions of P, later
        functions of (t, P, M, y).
    begin : float
        The time at which its run begins: just before `time` if events may occur at `time`, which follow the changes.
    """

    time: float
    is_rest: bool
    is_first: bool
    changes: dict[int, Node]
    begin: float


@dataclass(frozen=True, eq=False)
class ObservableFormula:
    """An observable: prediction and noise as expressions, and the rows of its readings."""

    observable: Observable
    variable: str
    rows: Any
    value: Node
    noise: Node
    placeholders: dict[Symbol, list[Any]]
    """By symbol the values in the rows of the readings: numbers, or expressions of P."""


class ProblemLayout:
    """The model, experiments and observables of a problem as expressions."""

    def __init__(self, tables: Tables, draft: ForeignModel) -> None:
        self.tables, self.draft = tables, draft
        self.parameters = tuple(map(str, tables.parameters.index))
        draft.renamed |= {id: draft.renamed[of] for id, of in tables.renamed.items() if of in draft.renamed}
        self._add_target_constants()
        self.constants = tuple(draft.parms)
        self.states = tuple(draft.initial)
        self.set = (*self.constants, *self.states)
        self.defaults = self._defaults()
        self.experiments = {k: self._stages(v) for k, v in tables.experiments.items()}
        self.formulas = self._formulas()
        self.model = self._model()
        self._check_values()
        self._check_parameters()
        self.groups = [[symbol("t")], [of_problem(p) for p in self.parameters], *symbols(self.constants, self.states)]

    def nominal(self) -> list[float]:
        """Return the nominal values; for a parameter without one the middle between its bounds, on its scale."""
        return [_start_value(row) for row in self.tables.parameters.to_dict("records")]

    def moved_by(self, names: Sequence[str]) -> list[int]:
        """Return the places of the constants that depend on some parameters of the problem."""
        moved = {_OF_PROBLEM.format(n) for n in names}
        states = set(self.states) if names else set()
        for stages in self.experiments.values():
            for stage in stages:
                moved |= {self.set[i] for i, e in stage.changes.items() if names_in([e]) & (moved | states)}
        return [i for i, n in enumerate(self.constants) if n in moved and n in self.of_model]

    # --- names

    def _name(self, id: str) -> Node:
        """Return the expression of a name in a formula: a quantity of the model, else a parameter of the problem."""
        draft = self.draft
        if id in draft.renamed and (known := self._resolved(symbol(draft.renamed[id]))) is not None:
            return known
        if id in self.parameters:
            return of_problem(id)
        if id == "time":
            return symbol("t")
        near = did_you_mean(id, [*draft.renamed, *self.parameters])
        raise DataError(f"{id!r} is neither in the model nor a parameter.{near}")

    def _model_name(self, id: str) -> str:
        """Return the name of an id of the model, "" if the model does not have it."""
        return self.draft.renamed.get(id, "")

    def _resolved(self, e: Node) -> Node:
        """Return an expression of constants, states and time alone."""
        return self.draft.resolved([e])[0]

    def _value(self, text: str, where: str) -> Node:
        return parse_formula(text, self._name, where)

    def _check_parameters(self) -> None:
        """Refuse parameters that a rule of the model assigns, and estimated parameters that nothing reads."""
        tables = self.tables
        for id, row in tables.parameters.iterrows():
            if self._model_name(str(id)) in self.draft.assigned:
                raise DataError(
                    f"{row['where']}: {id!r} has a rule in the model, which gives it its value; take it out."
                )
        texts = [text for o in tables.observables.values() for text in (o.formula, o.noise)]
        texts += [v for periods in tables.experiments.values() for p in periods for v, _ in p.changes.values()]
        texts += [text for r in tables.readings for text in (*r.overrides, *r.noise_overrides)]
        read = {*re.findall(r"\b[^\W\d]\w*", " ".join(texts)), *self.draft.renamed}
        for id, row in tables.parameters[tables.parameters["estimated"]].iterrows():
            if id not in read:
                raise DataError(
                    f"{row['where']}: {str(id)!r} is in no model, observable, noise, condition or reading."
                    f"{did_you_mean(str(id), read)}"
                )
        stages = [s for key in {r.experiment for r in tables.readings} for s in self.experiments[key]]
        met = names_in([e for s in stages for e in s.changes.values()])
        met |= names_in([e for f in self.formulas for e in (f.value, f.noise)])
        met |= names_in([e for f in self.formulas for cells in f.placeholders.values() for e in cells])
        estimated = tables.parameters.index[tables.parameters["estimated"]]
        if unmet := [id for id in estimated if _OF_PROBLEM.format(id) not in met]:
            warn(
                f"{tables.path}: no reading depends on {listed(unmet)}, which the table of parameters has estimated. "
                "(Does every condition set it? PEtab has a parameter in one of the two tables.)"
            )

    # --- changes of conditions

    def _add_target_constants(self) -> None:
        """Make parameters of all quantities that conditions, or the table of parameters, set at the start."""
        draft = self.draft
        self.start_constants: dict[str, str] = {}
        first, later = (
            {t for periods in self.tables.experiments.values() for p in periods[part] for t in p.changes}
            for part in (slice(1), slice(1, None))
        )
        texts = " ".join(f"{o.formula} {o.noise}" for o in self.tables.observables.values())
        for id in sorted(((first | later) - {*draft.renamed}) & set(re.findall(r"\w+", texts))):
            draft.parms[draft.name_for(id)] = math.nan  # of observables alone
        of = dict(zip(draft.derived, draft.at_start(draft.derived.values()), strict=True))
        names, moved = ({*map(self._model_name, ids)} for ids in (first | later | {*self.parameters}, later))
        once = [n for n, e in of.items() if n in names or names_in([e]) & moved]
        self._original = {n: draft.derived.pop(n) for n in once}
        draft.parms |= dict.fromkeys(once, math.nan)
        for id in sorted(first | {*self.parameters}):
            state = draft.amounts[id][0] if id in draft.amounts else self._model_name(id)
            if state in draft.initial:
                start = free_name(f"{state}_set", draft.renamed.values())
                self._original[start], draft.initial[state] = draft.initial[state], symbol(start)
                draft.parms[start], self.start_constants[id] = math.nan, start
        apply_initial_events(draft)

    def _defaults(self) -> dict[str, Node]:
        """Return the constants without a condition, as functions of P and of other constants."""
        parms, renamed = self.draft.parms, self.draft.renamed.items()
        names = {id: self.start_constants.get(id, name) for id, name in renamed if id in self.parameters}
        estimated = {name: of_problem(id) for id, name in names.items() if name in parms}
        return {n: self._original.get(n, as_node(v)) for n, v in parms.items()} | estimated

    def _first_constants(self, period: Period) -> list[Node]:
        """Return the constants of a first period as functions of P."""
        draft, values = self.draft, dict(self.defaults)
        now = {symbol("t"): as_node(period.time if math.isfinite(period.time) else draft.start)}
        for id, (text, where) in period.changes.items():
            name, value = self._target(id, where), self.by_default(self._value(text, where).subs(now))
            if id in draft.amounts:
                value = mul(value, draft.amounts[id][1])
            values[self.start_constants.get(id, name)] = value
        return draft.at_start(map(symbol, self.constants), values=values)

    def by_default(self, e: Node) -> Node:
        """Return an expression as a function of P alone: other names have their values at the start by default."""
        return self.draft.at_start([e], values=self.defaults)[0]

    def _target(self, id: str, where: str) -> str:
        draft = self.draft
        name = self._model_name(id)
        if name in draft.parms or name in draft.rates or name in draft.initial or id in draft.amounts:
            return name
        why = "has a rule in the model" if name else "is not in the model"
        near = "" if name else did_you_mean(id, draft.renamed)
        raise DataError(f"{where}: {id!r} {why}, so that a condition cannot set it.{near}")

    def _stages(self, periods: Sequence[Period]) -> list[Stage]:
        stages: list[Stage] = []
        for k, period in enumerate(periods):
            is_rest = period.time == -math.inf
            time = self.draft.start if is_rest else period.time
            if k == 0:
                stages.append(Stage(time, is_rest, True, dict(enumerate(self._first_constants(period))), time))
                if is_rest and len(periods) == 1:
                    stages.append(Stage(self.draft.start, False, False, {}, self.draft.start))
                continue
            early = JUST_BEFORE if self.draft.events and not stages[-1].is_rest else 0.0
            start, changes = time - early * max(abs(time), 1.0), self._later_changes(period)
            if period.resets:  # constants are the model's own again, but for the changes; species stay
                kept = {k: v for k, v in period.changes.items() if k not in self.start_constants}
                fresh = zip(self.constants, self._first_constants(Period(period.time, kept, True)), strict=True)
                stay = {*self.start_constants.values(), *self.draft.species}
                changes |= {i: e for i, (n, e) in enumerate(fresh) if n not in stay}
            else:
                changes = self._with_events(changes, start)
            stages.append(Stage(time, is_rest, False, changes, start))
        return stages

    def _later_changes(self, period: Period) -> dict[int, Node]:
        """Return the changes of a condition at the beginning of a later period.

        Concentrations stay constant if a compartment gets another size; in the model's own events amounts do.
        """
        targets = {k: (self._target(k, where), self._value(v, where)) for k, (v, where) in period.changes.items()}
        new: dict[Node, Node] = {symbol(name): value for name, value in targets.values()}
        for id, (state, size) in self.draft.amounts.items():
            if id in targets or size in new:
                value = targets[id][1] if id in targets else symbol(self.draft.renamed[id])
                targets[id] = state, mul(value, new.get(size, size))
        kinds = {*self.states, *self.draft.species} if period.resets else {*self.set}
        changes = {n: self._resolved(e) for n, e in targets.values() if n in kinds}
        return {self.set.index(n): e for n, e in changes.items()}

    def _with_events(self, changes: dict[int, Node], begin: float) -> dict[int, Node]:
        """Return the changes of a condition, followed by those of the events that it triggers."""
        at, events = {symbol("t"): as_node(begin)}, self.draft.file_events
        set_to: dict[Node, Node] = {symbol(self.set[i]): e for i, e in changes.items()}

        def evaluate(expressions: Sequence[Any], new: Mapping[str, Node]) -> list[Node]:
            after = set_to | {symbol(n): e for n, e in new.items()}
            return substituted(substituted(self.draft.resolved(expressions), at), after)

        held = substituted(self.draft.resolved([as_number(e.condition) for e in events]), at)
        new = execute_events(events, held, evaluate, {}, str(self.tables.path))
        return changes | {self.set.index(n): e for n, e in new.items()}

    def _check_values(self) -> None:
        """Refuse constants that are needed and have no value."""
        used = {*self.of_model, *names_in([e for f in self.formulas for e in (f.value, f.noise)])}
        of_id = {v: k for k, v in self.draft.renamed.items()}
        for key, stages in self.experiments.items():
            for name, e in zip(self.constants, stages[0].changes.values(), strict=True):
                if name in used and isinstance(e, Number) and math.isnan(e.value):
                    raise DataError(
                        f"{self.tables.path}: {of_id.get(name, name)!r} has no value in the experiment {key!r}: give "
                        "it one in the model, in the table of parameters or in the condition."
                    )

    # --- observables

    def _formulas(self) -> list[ObservableFormula]:
        out: list[ObservableFormula] = []
        names: list[str] = []
        for o in self.tables.observables.values():
            rows = [i for i, r in enumerate(self.tables.readings) if r.observable == o.id]
            names.append(free_name(o.id, names))
            if rows:
                out.append(self._formula(o, names[-1], rows))
        return out

    def _formula(self, o: Observable, variable: str, rows: list[int]) -> ObservableFormula:
        own = {n: of_problem(f"{o.id} {n}") for n in (*o.placeholders, *o.noise_placeholders)}
        value = self._prediction(o, (o.id,), own)

        def name(id: str) -> Node:
            return value if id == o.id else self._of_observable(id, (o.id,), own)

        noise = self._resolved(parse_formula(o.noise, name, o.where))
        readings = [self.tables.readings[i] for i in rows]
        placeholders: dict[Symbol, list[Any]] = {}
        for names, what in ((o.placeholders, "overrides"), (o.noise_placeholders, "noise_overrides")):
            for j, n in enumerate(names):
                placeholders[own[n]] = [self.by_default(self._value(getattr(r, what)[j], r.where)) for r in readings]
        return ObservableFormula(o, variable, np.array(rows), value, noise, placeholders)

    def _prediction(self, o: Observable, within: tuple[str, ...], own: Mapping[str, Node]) -> Node:
        """Return the formula of an observable; `within` has it and the observables whose formulas name it."""
        return self._resolved(parse_formula(o.formula, lambda id: self._of_observable(id, within, own), o.where))

    def _of_observable(self, id: str, within: tuple[str, ...], own: Mapping[str, Node]) -> Node:
        """Return the expression of a name in the formulas of an observable; it may be another observable."""
        other = self.tables.observables.get(id)
        if id in own:
            return own[id]
        if other is None or id in self.draft.renamed or id in self.parameters:
            return self._name(id)
        if id in within:
            raise DataError(f"the formulas of observables name one another: {' -> '.join([*within, id])}")
        if other.placeholders:
            raise DataError(f"{id!r} has placeholders, whose values are known in its own rows alone; write its formula")
        return self._prediction(other, (*within, id), {})

    # --- the system

    def _model(self) -> OdeModel:
        arguments = self.draft.arguments(whole=False)
        self.of_model = tuple(arguments["parms"])
        begins = [s.time for stages in self.experiments.values() for s in stages]
        ends = [r.time for r in self.tables.readings if math.isfinite(r.time)]
        times = [min([self.draft.start, *begins]), max([*ends, *(b + 1.0 for b in begins)])]
        arguments["parms"] = {n: v if math.isfinite(v) else 1.0 for n, v in arguments["parms"].items()}
        model = OdeModel(arguments.pop("rhs"), **arguments, times=times, rtol=RTOL, atol=ATOL)
        model.told_small.add("")  # the tolerances are the problem's own: no advice to change them
        return model

    @cached_property
    def later_model(self) -> Any:
        """The same with initial values that are parameters."""
        later = opened(self.model)
        later.told_small.add("")
        return later


def _start_value(row: Mapping[Any, Any]) -> float:
    if math.isfinite(row["nominal"]):
        return float(row["nominal"])
    ends = [row["lower"], row["upper"]]
    if not all(map(math.isfinite, ends)):
        return float(np.clip(1.0, *ends))
    return math.sqrt(ends[0] * ends[1]) if row["scale"] != "lin" else sum(ends) / 2
