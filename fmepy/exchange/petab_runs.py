"""What a PEtab problem predicts at every reading, as a model: `ReadingsModel`.

An experiment is a chain of periods. In each the model's constants M are functions of the problem's parameters P, and
the states y begin where the period before ended, but for what a condition sets::

    M_0 = m_0(P)                  y_0: the model's initial values of M_0
    M_k = m_k(P, M, y, t)         y_k = h_k(P, M, y, t)               at the beginning of every later period
    prediction = f(t, y, M, P, o)                                    o: the values that the reading's row names

and derivatives to P follow by the chain rule, with those of y to (M_k, y_k) from the solver. One system is compiled for
the first periods, and one for all later ones, whose initial values are parameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Self

import numpy as np
import pandas as pd

from fmepy.compiled.python_code import array_function, scalar_function
from fmepy.errors import DataError, SimulationError, did_you_mean, listed
from fmepy.exchange.draft import NO_STATE, Draft, free_name
from fmepy.exchange.petab_math import parse_formula
from fmepy.exchange.petab_tables import Observable, Period, Tables
from fmepy.language.derivatives import entries_of
from fmepy.language.equations import Equations, names_in, symbol, symbols
from fmepy.language.nodes import Node, Number, Symbol, as_node, mul, substituted
from fmepy.models.base import OfRuns
from fmepy.models.dynamic import Runnable
from fmepy.models.ode import OdeModel
from fmepy.models.preequilibration import SPANS, opened, start_name, still_moving
from fmepy.parameters.named import merge_parameters
from fmepy.types import Cube, Matrix, Vector

RTOL, ATOL = 1e-8, 1e-12
NOISE = "{}_noise"
_OF_PROBLEM = "problem's {}"


def of_problem(name: str) -> Symbol:
    """Return the symbol of a parameter of the problem; those of the model have plain names."""
    return symbol(_OF_PROBLEM.format(name))


@dataclass(frozen=True, eq=False)
class Step:
    """What happens at the beginning of a later period: new constants and states, as functions of (t, P, M, y)."""

    constants: dict[int, Node]
    states: dict[int, Node]


@dataclass(frozen=True, eq=False)
class Stage:
    """A period of an experiment.

    Attributes
    ----------
    time : float
    is_rest : bool
        Whether it lasts until nothing changes.
    first : list of Node or None
        Of a first period the constants, as functions of P.
    step : Step or None
        Of a later one.
    """

    time: float
    is_rest: bool
    first: list[Node] | None
    step: Step | None


@dataclass(frozen=True, eq=False)
class Formula:
    """An observable: prediction and noise as functions of `symbols`, and the rows that they are of."""

    variable: str
    rows: Any
    value: Node
    noise: Node
    placeholders: dict[Symbol, list[Any]]
    """By symbol what the readings' rows say: numbers, or expressions of P."""


class Layout:
    """A problem's model, experiments and observables as expressions; everything that is known before a run."""

    def __init__(self, tables: Tables, draft: Draft) -> None:
        self.tables, self.draft = tables, draft
        self.parameters = tuple(map(str, tables.parameters.index))
        self._open_targets()
        self.constants = tuple(draft.parms)
        self.states = (*draft.rates, *(s for s in draft.initial if s not in draft.rates))
        self.defaults = self._defaults()
        self.experiments = {k: self._stages(v) for k, v in tables.experiments.items()}
        self.formulas = self._formulas()
        self.model = self._model()
        self.groups = [[symbol("t")], [of_problem(p) for p in self.parameters], *symbols(self.constants, self.states)]

    @cached_property
    def steps(self) -> dict[Stage, _Step]:
        """What happens at the beginning of every period, as functions."""
        return {s: self._step(s) for stages in self.experiments.values() for s in stages}

    @cached_property
    def functions(self) -> list[_FormulaRuns]:
        """The observables as functions."""
        return [_FormulaRuns(f, self) for f in self.formulas]

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in ("steps", "functions")}  # made again

    def nominal(self) -> list[float]:
        """Return the nominal values, and the middle between the bounds of a parameter without one, on its scale."""
        return [_start_value(row) for row in self.tables.parameters.to_dict("records")]

    def moved_by(self, names: Sequence[str]) -> list[int]:
        """Return the places of the constants that depend on some parameters of the problem."""
        moved = {_OF_PROBLEM.format(n) for n in names}
        states = set(self.states) if names else set()
        for stages in self.experiments.values():
            for stage in stages:
                sets = enumerate(stage.first or []) if stage.step is None else stage.step.constants.items()
                moved |= {self.constants[i] for i, e in sets if names_in([e]) & (moved | states)}
        return [i for i, n in enumerate(self.constants) if n in moved and n in self.of_model]

    def _step(self, stage: Stage) -> _Step:
        if stage.step is None:
            return _Step.of(self, dict(enumerate(stage.first or [])), {})
        return _Step.of(self, stage.step.constants, stage.step.states)

    # --- names

    def _name(self, id: str) -> Node:
        """Return what a name in a formula stands for: something of the model, else a parameter of the problem."""
        draft = self.draft
        id = self.tables.renamed.get(id, id) or id
        if id in draft.renamed and (known := self._resolved(symbol(draft.renamed[id]))) is not None:
            return known
        if id in self.parameters:
            return of_problem(id)
        if id == "time":
            return symbol("t")
        near = did_you_mean(id, [*draft.renamed, *self.parameters])
        raise DataError(f"{id!r} is neither in the model nor a parameter.{near}")

    def _resolved(self, e: Node) -> Node:
        """Return an expression of constants, states and time alone."""
        draft = self.draft
        known = {**draft.assigned, **self._computed}
        while names := names_in([e]) & known.keys():
            e = substituted([e], {symbol(n): known[n] for n in names})[0]
        return e

    @cached_property
    def _computed(self) -> dict[str, Node]:
        return dict(zip(self.draft.computed, self.draft.at_start(self.draft.computed.values()), strict=True))

    def _value(self, text: str, where: str) -> Node:
        return parse_formula(text, self._name, where)

    # --- what conditions set

    def _open_targets(self) -> None:
        """Make parameters of what conditions, or the table of parameters, set at the start."""
        draft = self.draft
        self.started: dict[str, str] = {}
        targets = {t for periods in self.tables.experiments.values() for p in periods[:1] for t in p.changes}
        self._original: dict[str, Node] = {}
        for id in [*targets, *self.parameters]:
            name = draft.renamed.get(self.tables.renamed.get(id, id), "")
            if name in draft.computed:
                self._original[name] = draft.computed.pop(name)
                draft.parms[name] = math.nan
            state = draft.carried[id][0] if id in draft.carried else name
            if id in targets and state in draft.initial:
                start = free_name(start_name(state), draft.renamed.values())
                self._original[start], draft.initial[state] = draft.initial[state], symbol(start)
                draft.begun.pop(state, None)
                draft.parms[start], self.started[id] = math.nan, start

    def _defaults(self) -> dict[str, Node]:
        """Return the constants as they are without a condition, as functions of P and of other constants."""
        of_id = {v: k for k, v in self.draft.renamed.items()}
        out: dict[str, Node] = {}
        for name, value in self.draft.parms.items():
            if of_id.get(name) in self.parameters:
                out[name] = of_problem(of_id[name])
            elif name in self._original:
                out[name] = self._original[name]
            else:
                out[name] = as_node(value) if math.isfinite(value) else symbol(f"{name} without a value")
        return out

    def _first(self, period: Period) -> list[Node]:
        """Return the constants of a first period as functions of P."""
        draft, values = self.draft, dict(self.defaults)
        for id, (text, where) in period.changes.items():
            name, value = self._target(id, where), self.by_default(self._value(text, where))
            if id in draft.carried:
                value = mul(value, draft.carried[id][1])
            values[self.started.get(id, name)] = value
        return [self._of_problem(symbol(name), values) for name in self.constants]

    def by_default(self, e: Node) -> Node:
        """Return an expression as a function of P alone, all else as it is at the start without a condition."""
        return self._of_problem(e, self.defaults)

    def _of_problem(self, e: Node, values: dict[str, Node]) -> Node:
        """Return an expression as a function of P alone, from what constants are."""
        draft = self.draft
        known: dict[str, Node] = {"t": as_node(draft.start)}

        def resolved(e: Node, waiting: tuple[str, ...]) -> Node:
            rule = {}
            for n in names_in([e]):
                if n in waiting:
                    raise DataError(f"{self.tables.path}: {n!r} is set by itself.")
                if n not in known:
                    of = (d[n] for d in (values, draft.initial, draft.assigned, draft.computed) if n in d)
                    found = next(of, None)
                    known[n] = symbol(n) if found is None else resolved(found, (*waiting, n))
                rule[symbol(n)] = known[n]
            return substituted([e], rule)[0] if rule else e

        return resolved(e, ())

    def _target(self, id: str, where: str) -> str:
        draft = self.draft
        name = draft.renamed.get(self.tables.renamed.get(id, id), "")
        if name in draft.parms or name in draft.rates or name in draft.initial or id in draft.carried:
            return name
        why = "has a rule in the model" if name else "is not in the model"
        raise DataError(f"{where}: {id!r} {why}, so that a condition cannot set it.{did_you_mean(id, draft.renamed)}")

    def _stages(self, periods: Sequence[Period]) -> list[Stage]:
        stages: list[Stage] = []
        for k, period in enumerate(periods):
            is_rest = period.time == -math.inf
            time = self.draft.start if is_rest else period.time
            if k == 0:
                stages.append(Stage(time, is_rest, self._first(period), None))
                if is_rest and len(periods) == 1:
                    stages.append(Stage(self.draft.start, False, None, Step({}, {})))
                continue
            constants: dict[int, Node] = {}
            states: dict[int, Node] = {}
            if period.resets:  # constants are the model's own again, but for the changes
                kept = {k: v for k, v in period.changes.items() if k not in self.started}
                fresh = zip(self.constants, self._first(Period(period.time, kept, True)), strict=True)
                constants = {i: e for i, (n, e) in enumerate(fresh) if n not in self.started.values()}
            for id, (text, where) in period.changes.items():
                name, value = self._target(id, where), self._value(text, where)
                if id in self.draft.carried:
                    name, factor = self.draft.carried[id]
                    value = mul(value, factor)
                if name in self.states:
                    states[self.states.index(name)] = self._resolved(value)
                elif not period.resets:
                    constants[self.constants.index(name)] = self._resolved(value)
            stages.append(Stage(time, is_rest, None, Step(constants, states)))
        return stages

    # --- observables

    def _formulas(self) -> list[Formula]:
        out: list[Formula] = []
        taken: list[str] = []
        self.observed: list[Observable] = []
        for o in self.tables.observables.values():
            rows = [i for i, r in enumerate(self.tables.readings) if r.observable == o.id]
            taken.append(free_name(o.id, taken))
            if rows:
                self.observed.append(o)
                out.append(self._formula(o, taken[-1], rows))
        return out

    def _formula(self, o: Observable, variable: str, rows: list[int]) -> Formula:
        own = {n: of_problem(f"{o.id} {n}") for n in (*o.placeholders, *o.noise_placeholders)}

        def name(id: str) -> Node:
            return own[id] if id in own else self._name(id)

        value = self._resolved(parse_formula(o.formula, name, o.where))

        def noise_name(id: str) -> Node:
            return value if id == o.id else name(id)

        noise = self._resolved(parse_formula(o.noise, noise_name, o.where))
        readings = [self.tables.readings[i] for i in rows]
        placeholders: dict[Symbol, list[Any]] = {}
        for names, what in ((o.placeholders, "overrides"), (o.noise_placeholders, "noise_overrides")):
            for j, n in enumerate(names):
                placeholders[own[n]] = [self.by_default(self._value(getattr(r, what)[j], r.where)) for r in readings]
        return Formula(variable, np.array(rows), value, noise, placeholders)

    # --- the system

    def _model(self) -> OdeModel:
        draft, states = self.draft, self.states
        rates = [self._resolved(draft.rates[s]) for s in states if s in draft.rates]
        rates += [self._resolved(e) for e in draft.algebraic]
        starts = draft.at_start(map(symbol, states), begun=True)
        if not states:
            states = self.states = (NO_STATE,)
            rates = starts = [as_node(0.0)]
        algebraic = tuple(s for s in states if s in draft.initial and s not in draft.rates)
        events = [{k: self._resolved(v) if isinstance(v, Node) else v for k, v in r.items()} for r in draft.events]
        used = names_in([*rates, *starts, *(v for row in events for v in row.values())])
        self.of_model = tuple(n for n in self.constants if n in used)
        begins = [s.time for stages in self.experiments.values() for s in stages]
        ends = [r.time for r in self.tables.readings if math.isfinite(r.time)]
        return OdeModel(
            Equations("ode", states, self.of_model, (), tuple(rates), (), "t", algebraic),
            state={s: v.value if isinstance(v, Number) else v for s, v in zip(states, starts, strict=True)},
            times=[min([draft.start, *begins]), max([*ends, *(b + 1.0 for b in begins)])],
            parms={n: draft.parms[n] if math.isfinite(draft.parms[n]) else 1.0 for n in self.of_model},
            events=events or None,
            rtol=RTOL,
            atol=ATOL,
        )

    @cached_property
    def later_model(self) -> Any:
        """The same with initial values that are parameters."""
        return opened(self.model)


# --- runs


@dataclass(eq=False)
class _Leg:
    """One run of an experiment: a period, or what comes to rest in it; made by the first evaluation."""

    stage: Stage
    times: Vector
    """Rows wanted; of a leg to rest one, inf."""
    goes_on: bool
    """Whether the next leg begins where this ends."""
    rows: list[int]
    """The readings."""
    at: list[int]
    """Of each its place in `times`."""
    bounds: dict[Any, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class _Step:
    """Functions of the constants and states at the beginning of a leg, and their derivatives."""

    value: Callable[..., list[float]]
    entries: list[tuple[int, int]]
    """Row of what is set; column among (P, M, y)."""
    constants: list[int]
    states: list[int]

    @classmethod
    def of(cls, layout: Layout, constants: dict[int, Node], states: dict[int, Node]) -> _Step:
        """Return the step that sets constants and states, by position."""
        groups = layout.groups
        expressions = [*constants.values(), *states.values()]
        found = entries_of(expressions, [s for g in groups[1:] for s in g])
        function = scalar_function(groups, [*expressions, *(e for *_, e in found)])
        return cls(function, [(i, j) for i, j, _ in found], list(constants), list(states))

    def __call__(self, t: float, P: Vector, M: Vector, y: Vector, D: Matrix | None) -> Any:
        """Return M, y, and their derivatives; D: those of (P, M, y), one below the other."""
        found = self.value((t,), P.tolist(), M.tolist(), y.tolist())
        n = len(self.constants) + len(self.states)
        M, y = M.copy(), y.copy()
        M[self.constants], y[self.states] = found[: len(self.constants)], found[len(self.constants) : n]
        if D is None:
            return M, y, None
        of_set = np.zeros((n, D.shape[1]))
        for (i, j), slope in zip(self.entries, found[n:], strict=True):
            of_set[i] += slope * D[j]
        out = D.copy()
        first, last = len(P), len(P) + len(M)
        out[[first + i for i in self.constants]] = of_set[: len(self.constants)]
        out[[last + i for i in self.states]] = of_set[len(self.constants) :]
        return M, y, out


class BoundReadings(OfRuns):
    """A `ReadingsModel` as a function of a plain vector; see `fmepy.models.base.BoundModel`."""

    def __init__(self, model: ReadingsModel, names: tuple[str, ...], rows: Vector, hold: bool) -> None:
        self._model, self.names, self.times, self.var_names = model, names, rows, model.var_names
        self._layout = layout = model.layout
        self._ode, self._later, self._hold = layout.model, layout.later_model, hold
        self._P0 = model.parms.to_numpy(dtype=float)
        self._places = np.array([layout.parameters.index(n) for n in names], dtype=np.intp)
        self.theta0: Vector = self._P0[self._places]
        self._rows = np.round(rows).astype(int)
        self._active = layout.moved_by(names)
        self._legs = [self._legs_of(key) for key in layout.experiments]
        self._legs = [legs for legs in self._legs if legs]
        self._last: tuple[Any, ...] = (None, None, None)

    def _legs_of(self, key: str) -> list[_Leg]:
        stages, readings = self._layout.experiments[key], self._layout.tables.readings
        mine = [i for i, r in enumerate(readings) if r.experiment == key]
        legs: list[_Leg] = []
        for k, stage in enumerate(stages if mine else []):
            last = k == len(stages) - 1
            end = np.inf if last else stages[k + 1].time
            if stage.is_rest:
                legs.append(_Leg(stage, np.array([np.inf]), True, [], []))
                continue
            rows = [i for i in mine if stage.time <= readings[i].time < end]
            times = np.unique([*(readings[i].time for i in rows), *([] if last else [end])])
            at = np.searchsorted(times, [readings[i].time for i in rows]).tolist()
            if len(times):
                legs.append(_Leg(stage, times, not last, rows, at))
            if last and (rows := [i for i in mine if readings[i].time == np.inf]):
                legs.append(_Leg(stage, np.array([np.inf]), False, rows, [0] * len(rows)))
        return legs

    def __reduce__(self) -> Any:
        return BoundReadings, (self._model, self.names, self.times, self._hold)

    # --- what is said of it

    exact = property(lambda self: all(b.exact for b in self._bounds()) if self._bounds() else True)
    retries = property(lambda self: sum(int(b.retries) for b in self._bounds()))
    engine = property(lambda self: next((b.engine for b in self._bounds()), self._ode.engine))

    def _bounds(self) -> list[Any]:
        return [b for legs in self._legs for leg in legs for b in leg.bounds.values()]

    def keep_within(self, lower: Vector, upper: Vector) -> None:
        """Do nothing: differences are of the model's constants, whose bounds nobody knows."""

    def tightened(self) -> BoundReadings:
        """Return the same at smaller tolerances, see `fmepy.models.base.tightened`."""
        out = copy(self)
        words = {"rtol": RTOL / 100, "atol": ATOL / 100}
        out._ode, out._later = self._ode.replace(**words), self._later.replace(**words)
        out._legs = [[replace(leg, bounds={}) for leg in legs] for legs in self._legs]
        out._last = (None, None, None)
        return out

    # --- runs

    def simulate(self, theta: Vector) -> Matrix:
        """Return Y, shape (n_reading, n_var); NaN where a reading is of another variable."""
        return self._evaluated(theta, False)[0]

    def sensitivities(self, theta: Vector) -> tuple[Matrix, Cube]:
        """Return Y and S, shape (n_reading, n_var, n_par)."""
        return self._evaluated(theta, True)

    def _evaluated(self, theta: Vector, slopes: bool) -> Any:
        key, known = (np.asarray(theta, dtype=float).tobytes(), slopes), self._last
        if known[0] == key:
            return known[1], known[2]
        P = self._P0.copy()
        P[self._places] = theta
        n, layout = len(layout_readings := self._layout.tables.readings), self._layout
        t = np.array([r.time for r in layout_readings])
        X, M = np.zeros((n, len(layout.states))), np.zeros((n, len(layout.constants)))
        D = np.zeros((n, len(P) + M.shape[1] + X.shape[1], len(self.names))) if slopes else None
        try:
            for legs in self._legs:
                self._run(legs, P, t, X, M, D)
        except SimulationError as error:
            error.parameters = dict(zip(layout.parameters, P.tolist(), strict=True))
            raise
        Y = np.full((n, len(self.var_names)), np.nan)
        S = np.zeros((n, len(self.var_names), len(self.names))) if slopes else None
        for k, formula in enumerate(layout.functions):
            formula(k, t, P, X, M, D, self._places, Y, S)
        Y, S = Y[self._rows], None if S is None else S[self._rows]
        self._last = (key, Y, S)
        return Y, S

    def _run(self, legs: list[_Leg], P: Vector, t: Vector, X: Matrix, M: Matrix, D: Cube | None) -> None:
        """Run an experiment and fill in what its readings see: states, constants, and their derivatives."""
        layout, n_p = self._layout, len(P)
        m, y = np.zeros(M.shape[1]), np.zeros(X.shape[1])
        n_m = len(m)
        d = None
        if D is not None:
            d = np.zeros(D.shape[1:])
            d[self._places, np.arange(len(self.names))] = 1.0
        for leg in legs:
            start = leg.stage.time
            is_first = leg.stage.first is not None
            began = layout.steps[leg.stage](start, P, m, y, d)
            theta, slopes = began[0][self._active], None
            if not is_first:
                theta = np.concatenate([theta, began[1]])
            own = began[2]
            if own is not None:
                slopes = own[n_p : n_p + n_m][self._active]
                slopes = slopes if is_first else np.concatenate([slopes, own[n_p + n_m :]])
            Y, S, times = self._leg(leg, began[0], theta, slopes)
            for i, k in zip(leg.rows, leg.at, strict=True):
                X[i], M[i], t[i] = Y[k], began[0], times[k]
                if D is not None and own is not None:
                    D[i], D[i, n_p + n_m :] = own, S[k]
            if leg.goes_on:
                m, y, d = began[0], Y[-1], own
                if d is not None:
                    d = d.copy()
                    d[n_p + n_m :] = S[-1]

    def _leg(self, leg: _Leg, M: Vector, theta: Vector, slopes: Matrix | None) -> tuple[Matrix, Any, Vector]:
        """Return states at the leg's rows, their derivatives, and the times."""
        if np.isfinite(leg.times[0]):
            return (*self._states(self._bound(leg, M, leg.times), theta, slopes), leg.times)
        start, span = leg.stage.time, float(self._ode.times[-1] - self._ode.times[0])
        for short, long in pairwise(SPANS):
            times = start + span * np.array([short, long])
            bound = self._bound(leg, M, times)
            Y = self._states(bound, theta, None)[0]
            moved = still_moving(Y[0], Y[1])
            if (moved <= 0).all():
                Y, S = self._states(bound, theta, slopes)
                return Y[1:], None if S is None else S[1:], times[1:]
        state = self._layout.states[int(np.argmax(moved))]
        raise SimulationError(f"The run does not come to rest: {state!r} still changes at time {times[1]:g}.")

    def _states(self, bound: Any, theta: Vector, slopes: Matrix | None) -> tuple[Matrix, Any]:
        n = len(self._layout.states)
        if slopes is None:
            return bound.simulate(theta)[:, :n], None
        if not slopes.size:
            return bound.simulate(theta)[:, :n], np.zeros((len(bound.times), n, slopes.shape[1]))
        Y, S = bound.sensitivities(theta)
        return Y[:, :n], S[:, :n] @ slopes

    def _bound(self, leg: _Leg, M: Vector, times: Vector) -> Any:
        """Return the bound model of a leg; constants that no parameter moves are those of the first evaluation."""
        key = float(times[-1])
        if key not in leg.bounds:
            is_first = leg.stage.first is not None
            model = self._ode if is_first else self._later
            names = [self._layout.constants[i] for i in self._active]
            names = names if is_first else [*names, *map(start_name, self._layout.states)]
            values = dict(zip(self._layout.constants, M.tolist(), strict=True))
            model = model.replace(parms={n: values[n] for n in self._layout.of_model})
            model.told_small.add("the tolerances are said")  # and are the problem's own: no advice to change them
            leg.bounds[key] = model.bind(names, times=times, start=leg.stage.time, hold_engine=self._hold)
        return leg.bounds[key]


class _FormulaRuns:
    """An observable's prediction and noise at its readings, and their derivatives."""

    def __init__(self, formula: Formula, layout: Layout) -> None:
        self._rows, groups = formula.rows, layout.groups
        self._own = list(formula.placeholders)
        columns = [s for g in groups[1:] for s in g]
        both = [formula.value, formula.noise]
        self._entries = entries_of(both, [*columns, *self._own])
        self._value = array_function([*groups, self._own], both)
        self._slopes = array_function([*groups, self._own], [e for *_, e in self._entries])
        self._n = len(columns)
        cells = [e for values in formula.placeholders.values() for e in values]
        self._cell_entries = entries_of(cells, groups[1])
        self._cells = scalar_function([groups[1]], [*cells, *(e for *_, e in self._cell_entries)])
        self._n_cells = len(cells)

    def __call__(
        self, k: int, t: Vector, P: Vector, X: Matrix, M: Matrix, D: Cube | None, places: Any, Y: Matrix, S: Cube | None
    ) -> None:
        """Fill in the k-th pair of variables of Y and S."""
        rows, n = self._rows, len(self._rows)
        found = self._cells(P.tolist()) if self._n_cells else []
        own = np.array(found[: self._n_cells]).reshape(len(self._own), n)
        given = ((t[rows],), P, M[rows].T, X[rows].T, own)
        for j, value in enumerate(self._value(*given)):
            Y[rows, 2 * k + j] = value
        if D is None or S is None:
            return
        of_cells = np.zeros((self._n_cells, len(P)))
        for (i, j, _), slope in zip(self._cell_entries, found[self._n_cells :], strict=True):
            of_cells[i, j] = slope
        of_own = of_cells[:, places].reshape(len(self._own), n, len(places))
        for (i, j, _), slope in zip(self._entries, self._slopes(*given), strict=True):
            moved = D[rows, j] if j < self._n else of_own[j - self._n]
            S[rows, 2 * k + i] += np.broadcast_to(slope, n)[:, None] * moved


class ReadingsModel(Runnable):
    """What a PEtab problem predicts, as a model: a row a reading, numbered from 0; two columns an observable.

    They are its prediction and its noise, at the readings of that observable; NaN at the others.
    """

    x_name = "reading"
    states: tuple[str, ...] = ()

    def __init__(self, layout: Layout) -> None:
        self.layout, self.engine, self.engine_note = layout, layout.model.engine, layout.model.engine_note
        self._parms = pd.Series(layout.nominal(), index=list(layout.parameters), dtype=float)
        self._set_times(np.arange(len(layout.tables.readings), dtype=float))
        self.var_names = tuple(n for f in layout.formulas for n in (f.variable, NOISE.format(f.variable)))

    def bind(self, names: Any = None, *, times: Any = None, hold_engine: bool = False) -> BoundReadings:
        """Return the model as a function of a plain vector; see `fmepy.models.base.Model`."""
        chosen, rows = self._asked(names, times)
        return BoundReadings(self, chosen, rows, hold_engine)

    def __repr__(self) -> str:
        n = len(self.times)
        return f"The model of a PEtab problem: {n} readings, {len(self._parms)} parameters; engine {self.engine}"

    def replace(self, **arguments: Any) -> Self:
        """Return a copy with other values of some parameters."""
        out = copy(self)
        out._parms, out._bound = merge_parameters(self._parms, arguments.pop("parms", None)), None
        if arguments:
            raise DataError(f"`replace` of a problem's model takes `parms`, not {listed(arguments)}.")
        return out


def _start_value(row: dict[str, Any]) -> float:
    if math.isfinite(row["nominal"]):
        return float(row["nominal"])
    ends = [row["lower"], row["upper"]]
    if not all(map(math.isfinite, ends)):
        return 1.0
    return math.sqrt(ends[0] * ends[1]) if row["scale"] != "lin" else sum(ends) / 2
