"""A model that is corrected by readings while it runs: again a Model.

With e_j = y_j - h_j(x), the error of variable j, and a gain K_ij of state i::

    observer     dx_i/dt = f_i + sum_j K_ij e_j(t)     y_j a straight line between its readings; outside them no e_j
    innovation   x_i+ = x_i + sum_j K_ij e_j           at every reading, e of all variables before any correction

So an observer is the same equations with the readings as forcings, and corrections at readings are events whose values
are expressions of the state; the row at a reading is the state before its correction. A difference equation has no
events: its next state is f of the corrected one, x[n] = f(x[n-1] + K e[n-1]), which is the same.

Predictions of several steps are copies of the state, each handed on from sample to sample::

    copy 1      starts at every sample from its own corrected state
    copy j + 1  starts where copy j ended: it has seen nothing of the last j samples

The last copy bears the names of the model's states, so that its outputs are predictions of so many steps.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from fmepy.compiled.python_code import scalar_function
from fmepy.errors import ModelError
from fmepy.language.equations import Equations, names_in, symbol, symbols
from fmepy.language.nodes import as_node
from fmepy.models.base import equations_hint
from fmepy.models.definition.arguments import ModelArguments
from fmepy.models.definition.definition import Definition, Draft, ModelExpressions
from fmepy.models.running.events import Event
from fmepy.models.running.forcings import Forcing
from fmepy.types import Vector

Entry = tuple[str, str, Any]
"""State, variable, and the gain: a number or an expression of parameters."""


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """The readings that correct one run.

    Attributes
    ----------
    label : str or None
        The entity; None: there is one run.
    times : ndarray
        Of all samples, increasing.
    readings : mapping of str to (times, values)
        By variable, one reading a time, increasing.
    """

    label: str | None
    times: Vector
    readings: Mapping[str, tuple[Vector, Vector]]

    def of(self, variable: str) -> tuple[Vector, Vector]:
        """Return times and values of a variable, empty where it was never read."""
        return self.readings.get(variable, (np.empty(0), np.empty(0)))


def corrected_model(
    model: Any,
    samples: Sequence[Samples],
    gain: Sequence[Entry],
    *,
    form: str = "innovation",
    steps: int = 1,
    parms: Mapping[str, float] | None = None,
    column: str | None = None,
) -> Any:
    """Return a model that readings correct.

    Parameters
    ----------
    model : Model
        One that says what it is made of (`fmepy.models.base`, 6 and 7).
    samples : sequence of Samples
        One; or one an entity, and `column` what the column of the entities is called: events and forcings of the
        result then belong to them.
    gain : sequence of (state, variable, number or Node)
    form : {"innovation", "observer"}
    steps : int
        How many samples ahead it predicts ("innovation").
    parms : mapping of str to float, optional
        Values of parameters in the gain that the model does not have.

    Raises
    ------
    ModelError
        A model that does not say what it is made of; an observer of a difference equation.
    """
    check_modelled(model, form)
    own = [model if s.label is None or model.entity_inputs is None else model.of_entity(s.label) for s in samples]
    return _Corrected(model, [m.definition for m in own], samples, gain, form, steps, dict(parms or {}), column).made()


def check_modelled(model: Any, form: str) -> None:
    """Refuse a model that cannot be corrected, see `corrected_model`."""
    d: Definition | None = getattr(model, "definition", None)
    if d is None or d.is_closed or not hasattr(model, "of_equations"):
        raise ModelError(
            f"Readings correct the states of a model, and a {type(model).__name__} does not say what it is made of: "
            "it has no attribute `definition`. Give the OdeModel or DifferenceModel itself; parameters of a cost are "
            f"transformed by fmepy.transformed(cost, ...).{equations_hint(model)}"
        )
    d.check_plain("PredictionErrorCost")
    if form == "observer" and d.kind == "difference":
        raise ModelError(
            "form='observer' corrects a rate all the time, and difference equations have none: they are corrected at "
            "their steps, form='innovation'."
        )


@dataclass(eq=False)
class _Corrected:
    """What a corrected model is made of."""

    model: Any
    definitions: Sequence[Definition]
    samples: Sequence[Samples]
    gain: Sequence[Entry]
    form: str
    steps: int
    parms: dict[str, float]
    column: str | None

    def __post_init__(self) -> None:
        model, parms, steps, gain = self.model, self.parms, self.steps, self.gain
        self._d = d = self.definitions[0]
        self._start, self._end = float(model.times[0]), float(model.times[-1])
        self._step = float(model.dt) if d.kind == "difference" else 1.0
        self._taken = {*d.var_names, *d.parameters, *parms, *d.forcing_names, d.time}
        self._series: dict[str, list[Forcing]] = {}
        self._states = [self._copy(j) for j in range(1, steps + 1)]
        self._first = {symbol(k): symbol(c) for k, c in zip(d.states, self._states[0], strict=True)}
        readings: dict[str, Any] = {**{k: symbol(k) for k in (*d.states, *d.extra_names)}, **dict(d.outputs)}
        read = names_in(as_node(readings[v]) for _, v, _ in gain) if d.equations is not None else set(d.forcing_names)
        self._before = self._forcings_before(read) if d.kind == "difference" else {}
        before = {symbol(d.time): symbol(d.time) - self._step, **self._before} if d.kind == "difference" else {}
        shown = {k: e.subs({**before, **self._first}) for k, e in readings.items()}
        errors = {v: self._error(v, shown[v]) for v in dict.fromkeys(v for _, v, _ in gain)}
        self._by = [(state, v, self._gain(state, v, k) * errors[v]) for state, v, k in gain]
        self._starts = self._handed_on() if d.kind == "difference" else []

    @property
    def _order(self) -> tuple[str, ...]:
        """The states of all copies, those of the last one first."""
        return tuple(c for copy in (self._states[-1], *self._states[:-1]) for c in copy)

    def _copy(self, j: int) -> tuple[str, ...]:
        """Return the names of a copy's states; the last one has the model's own."""
        if j == self.steps:
            return self._d.states
        return tuple(self._free(f"{k}_ahead{j}") for k in self._d.states)

    def _free(self, name: str) -> str:
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name

    def _forcing(self, name: str, series: Sequence[tuple[Any, Any]], method: str) -> Any:
        """Add an input, one series for each run; return its symbol."""
        name = self._free(name)
        self._series[name] = [
            Forcing(name, np.asarray(t, dtype=float), np.asarray(v, dtype=float), method) for t, v in series
        ]
        return symbol(name)

    def _gain(self, state: str, variable: str, value: Any) -> Any:
        """Return a gain as a symbol or expression: numbers are inputs, so that others need no compilation."""
        if not isinstance(value, float):
            return value
        return self._forcing(f"gain_{state}_{variable}", [([self._start], [value])] * len(self.samples), "constant")

    # --- errors

    def _error(self, variable: str, shown: Any) -> Any:
        """Return y - h, which is zero where the variable corrects nothing."""
        found = [s.of(variable) for s in self.samples]
        if self._d.kind == "difference":  # of the step before
            later = [(t + self._step, v) if len(t) else _ZERO for t, v in found]
            y = self._forcing(f"{variable}_read", later, "linear")
            return self._at_steps(f"{variable}_is_read", [t for t, _ in found]) * (y - shown)
        y = self._forcing(f"{variable}_read", [(t, v) if len(t) else _ZERO for t, v in found], "linear")
        if self.form == "innovation" or all(len(t) and t[0] <= self._start and t[-1] >= self._end for t, _ in found):
            return y - shown
        return self._forcing(f"{variable}_is_read", [self._inside(t) for t, _ in found], "constant") * (y - shown)

    def _inside(self, t: Vector) -> tuple[list[float], list[float]]:
        """Return 1 between the first reading and the last, else 0."""
        if len(t) < 2:
            return _ZERO
        before = [(self._start, 0.0)] if t[0] > self._start else []
        knots = [*before, (float(t[0]), 1.0), (float(t[-1]), 0.0)]
        return [k for k, _ in knots], [v for _, v in knots]

    def _at_steps(self, name: str, times: Sequence[Vector]) -> Any:
        """Return what is 1 at the steps that follow these times, else 0."""
        h, last = self._step, np.rint((self._end - self._start) / self._step)
        steps = self._start + h * np.arange(last + 1)
        series = []
        for t in times:
            on = np.isin(np.arange(last + 1), np.rint((t - self._start) / h) + 1).astype(float)
            changes = np.flatnonzero(np.append(True, on[1:] != on[:-1]))
            series.append((steps[changes], on[changes]))
        return self._forcing(name, series, "constant")

    def _forcings_before(self, read: Collection[str]) -> dict[Any, Any]:
        """Return by forcing that is read that of the step before."""
        out = {}
        for k, f in enumerate(self._d.forcings):
            if f.name not in read:
                continue
            of_runs = [d.forcings[k] for d in self.definitions]
            out[symbol(f.name)] = self._forcing(
                f"{f.name}_before", [(g.times + self._step, g.values) for g in of_runs], f.method
            )
        return out

    # --- the parts of the model

    @property
    def _by_state(self) -> dict[str, Any]:
        """The correction of every state that has one."""
        out: dict[str, Any] = {}
        for state, _, term in self._by:
            out[state] = out.get(state, 0) + term
        return out

    def _handed_on(self) -> list[dict[Any, Any]]:
        """Return by copy what a difference equation starts a step from, for each of its states."""
        d, by = self._d, self._by_state
        out = [{symbol(k): symbol(c) + by.get(k, 0) for k, c in zip(d.states, self._states[0], strict=True)}]
        if self.steps > 1:
            on = self._at_steps("is_sample", [s.times for s in self.samples])
            for earlier, mine in zip(self._states, self._states[1:], strict=False):
                both = zip(d.states, earlier, mine, strict=True)
                out.append({symbol(k): on * symbol(a) + (1 - on) * symbol(b) for k, a, b in both})
        return out

    def _rates(self, equations: Equations) -> tuple[Any, ...]:
        d = self._d
        as_they_are = [{symbol(k): symbol(c) for k, c in zip(d.states, copy, strict=True)} for copy in self._states]
        starts = self._starts or as_they_are
        rates = [[e.subs(start) for e in equations.rates] for start in starts]
        if self.form == "observer":
            by = self._by_state
            rates[0] = [e + by.get(k, 0) for k, e in zip(d.states, rates[0], strict=True)]
        return tuple(e for copy in (rates[-1], *rates[:-1]) for e in copy)

    def _source(self) -> Any:
        """Return the equations; of a model without them, its function with the corrections around it."""
        d = self._d
        if d.equations is None:
            return self._function()
        rates, forcings = self._rates(d.equations), (*d.forcing_names, *self._series)
        parameters = (*d.parameters, *self.parms)
        return Equations(d.kind, self._order, parameters, forcings, rates, d.outputs, d.time)

    def _function(self) -> CorrectedFunction:
        d = self._d
        by = self._by_state if self.form == "observer" else {}
        return CorrectedFunction(
            definition=d,
            states=self._order,
            parameters=(*d.parameters, *self.parms),
            forcings=(*d.forcing_names, *self._series),
            starts=tuple(tuple(s.values()) for s in (self._starts[-1:] + self._starts[:-1])),
            added=tuple(by.get(k, 0) for k in d.states) if by else (),
            before=tuple(s.name for s in self._before.values()),
            step=self._step,
        )

    def _events(self, d: Definition, samples: Samples) -> list[dict[str, Any]]:
        """Return the events of one run: corrections and handing on, then the model's own in every copy."""
        if d.kind == "difference":
            return []
        rows = [e.row(d.states) for e in d.events]
        for copy in self._states[:-1]:
            names = dict(zip(d.states, copy, strict=True))
            rows += [e.row(copy, _renamed(e, names)) for e in d.events]
        if self.form == "observer":
            return rows
        first = min((e.order for e in d.events), default=0) - 1
        at_first = dict(zip(d.states, self._states[0], strict=True))
        for state, variable, term in self._by:
            rows += [_row(at_first[state], t, term, "add", first) for t in samples.of(variable)[0].tolist()]
        for earlier, mine in zip(self._states, self._states[1:], strict=False):
            for a, b in zip(earlier, mine, strict=True):
                rows += [_row(b, t, symbol(a), "replace", first) for t in samples.times.tolist()]
        return rows

    def made(self) -> Any:
        """Return the model."""
        d, label = self._d, self.column
        initial = [dict(zip(copy, d.initial, strict=True)) for copy in (self._states[-1], *self._states[:-1])]
        events = [
            row if label is None else {**row, label: s.label}
            for own, s in zip(self.definitions, self.samples, strict=True)
            for row in self._events(own, s)
            or ([] if label is None else [_row(d.states[0], self._start, 0.0, "add", 0)])
        ]
        forcings = {f.name: [own.forcings[k] for own in self.definitions] for k, f in enumerate(d.forcings)}
        words: dict[str, Any] = {
            "state": {k: v for copy in initial for k, v in copy.items()},
            "parms": {**d.parms.to_dict(), **self.parms},
            "forcings": {k: self._as_input(f) for k, f in {**forcings, **self._series}.items()} or None,
        }
        if d.kind == "ode":
            words["events"] = events or None
            atol = [None if np.isnan(a) else a for a in self.model.options.atol.tolist()]
            words["atol"] = {k: a for copy in self._states for k, a in zip(copy, atol, strict=True)}
        if not getattr(self.model, "chooses_engine", True):
            words["engine"] = self.model.engine  # which was asked for
        return self.model.of_equations(self._source(), **words)

    def _as_input(self, series: Sequence[Forcing]) -> Any:
        """Return an input of one run; or a table of the entities'."""
        if self.column is None:
            return series[0]
        parts = [
            pd.DataFrame({"time": f.times, "value": f.values, self.column: s.label})
            for f, s in zip(series, self.samples, strict=True)
        ]
        return pd.concat(parts, ignore_index=True), series[0].method


_ZERO: tuple[list[float], list[float]] = ([0.0], [0.0])


def _row(state: str, time: float, value: Any, method: str, order: int) -> dict[str, Any]:
    return {"var": state, "time": time, "value": value, "method": method, "order": order}


def _renamed(event: Event, names: Mapping[str, str]) -> Any:
    """Return the value of an event as one of a copy of the states."""
    if isinstance(event.value, float):
        return event.value
    return event.value.subs({symbol(k): symbol(c) for k, c in names.items()})


# --- of a model without equations


@dataclass(frozen=True, slots=True, eq=False)
class CorrectedFunction:
    """A source of a model (`models.definition.definition.Readable`), and the function that runs it.

    Attributes
    ----------
    definition : Definition
        Of the model as the user gave it.
    states, parameters, forcings : tuple of str
        Of the corrected one; the states copy by copy, its first ones those of the model.
    starts : tuple of tuple of Node
        Of a difference equation: by copy what a step starts from; empty: from the states as they are.
    added : tuple of Node
        What is added to the rates of the first copy; empty: nothing.
    before : tuple of str
        Names of the model's forcings of the step before.
    step : float
        Of a difference equation: its length.
    """

    definition: Definition
    states: tuple[str, ...]
    parameters: tuple[str, ...]
    forcings: tuple[str, ...]
    starts: tuple[tuple[Any, ...], ...]
    added: tuple[Any, ...]
    before: tuple[str, ...]
    step: float

    def draft(self, given: ModelArguments) -> Draft:
        """Return what it holds."""
        d = self.definition
        found = ModelExpressions(None, dict(d.outputs), d.extra_names, d.note)
        function: Any = self  # it runs as a RatesFunction does; readings are forcings, so that `of` is never asked for
        return Draft(self.states, given.parms, given.initial, lambda: found, d.time, None, function)

    def __call__(self, t: float, y: Any, p: Any, u: Any) -> Vector:
        """Return the rates (or next states) of all copies."""
        d, n = self.definition, len(self.definition.states)
        extras = None
        if self.starts:  # those of the first copy at the step before
            before = np.array([u[self.forcings.index(k)] for k in self.before])
            extras = self._extras(t - self.step, self._first(y), p, before)
        made = self._expressions(t, y, p, u, extras)
        starts = np.array(made[: len(y)]) if self.starts else np.asarray(y, dtype=float)
        assert d.function is not None, "it is made around a function"
        own = [d.function(t, x, p[: len(d.parameters)], u[: len(d.forcings)]) for x in starts.reshape(-1, n)]
        out = np.concatenate(own)
        if self.added:
            out[:n] += made
        return out

    def extras(self, t: float, y: Any, p: Any, u: Any) -> dict[str, float]:
        """Return the extra outputs of the model's own states."""
        return self._extras(t, np.asarray(y, dtype=float)[: len(self.definition.states)], p, u)

    def _extras(self, t: float, x: Vector, p: Any, u: Any) -> dict[str, float]:
        d = self.definition
        assert d.function is not None, "it is made around a function"
        return d.function.extras(t, x, p[: len(d.parameters)], u[: len(d.forcings)])

    def _first(self, y: Any) -> Vector:
        """Return the states of the first copy, the one that is corrected."""
        n = len(self.definition.states)
        return np.asarray(y, dtype=float)[n : 2 * n] if len(y) > n else np.asarray(y, dtype=float)

    def _expressions(self, t: float, y: Any, p: Any, u: Any, extras: dict[str, float] | None) -> list[float]:
        wanted = self.added or tuple(e for copy in self.starts for e in copy)
        if not wanted:
            return []
        names = self.definition.extra_names
        if extras is None and names_in(wanted) & set(names):
            extras = self._extras(t, self._first(y), p, u)
        beside = [] if extras is None else [extras[k] for k in names]
        groups = ((self.definition.time,), self.states, self.parameters, self.forcings, names if beside else ())
        return _function(groups, wanted)((t,), list(y), list(p), list(u), beside)


@lru_cache(maxsize=64)
def _function(groups: tuple[tuple[str, ...], ...], wanted: tuple[Any, ...]) -> Callable[..., list[float]]:
    return scalar_function(symbols(*groups), [as_node(e) for e in wanted])
