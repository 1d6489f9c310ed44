"""The predictions of a PEtab problem at all readings, as a model: `ReadingsModel`.

An experiment is a chain of periods. In each the model's constants M are functions of the problem's parameters P, and
the states y begin where the period before ended, but for what a condition sets::

    M_0 = m_0(P)                  y_0: the model's initial values of M_0
    M_k = m_k(P, M, y, t)         y_k = h_k(P, M, y, t)               at the beginning of every later period
    prediction = f(t, y, M, P, o)                                    o: the values that the reading's row names

and derivatives to P follow by the chain rule, with those of y to (M_k, y_k) from the solver. One system is compiled for
the first periods, and one for all later ones, whose initial values are parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Self

import numpy as np
import pandas as pd

from fmepy.compiled.python_code import array_function, scalar_function
from fmepy.errors import DataError, SimulationError, listed
from fmepy.exchange.petab_layout import ATOL, NOISE, RTOL, ObservableFormula, ProblemLayout, Stage
from fmepy.language.derivatives import entries_of
from fmepy.models.base import OfRuns, TakesDifferences
from fmepy.models.definition.values import ValueTable
from fmepy.models.dynamic import Runnable
from fmepy.models.preequilibration import SPANS, first_at_rest, start_name
from fmepy.parameters.named import merge_parameters
from fmepy.parameters.names import as_theta
from fmepy.types import AxesArray, BoolVector, Cube, IntVector, Matrix, UserParameters, Vector, Which


@dataclass(frozen=True, eq=False)
class _Leg:
    """One run of an experiment: a period, or its approach to a steady state."""

    stage: Stage
    times: Vector
    """Times of rows; inf alone for a steady state."""
    continues: bool
    """Whether the next leg begins where this ends."""
    rows: list[int]
    """The readings."""
    at: list[int]
    """The position of each reading in `times`."""


@dataclass(frozen=True, eq=False)
class _Step:
    """Functions of the constants and states at the beginning of a leg, and their derivatives."""

    value: Callable[..., list[float]]
    entries: list[tuple[int, int]]
    """Number of the new value; column among (P, M, y)."""
    places: IntVector
    """Positions of the new values among (M, y)."""

    @classmethod
    def of(cls, layout: ProblemLayout, stage: Stage) -> _Step:
        """Return the step at the beginning of a stage."""
        groups = layout.groups
        expressions = list(stage.changes.values())
        found = entries_of(expressions, [s for g in groups[1:] for s in g])
        function = scalar_function(groups, [*expressions, *(e for *_, e in found)])
        return cls(function, [(i, j) for i, j, _ in found], np.array(list(stage.changes), dtype=np.intp))

    def __call__(self, t: float, P: Vector, M: Vector, y: Vector, D: Matrix | None) -> Any:
        """Return (M, y), and the stacked derivatives of (P, M, y); `D` has those before."""
        found, n = self.value((t,), P.tolist(), M.tolist(), y.tolist()), len(self.places)
        x = np.concatenate([M, y])
        x[self.places] = found[:n]
        if D is not None:
            of_set = np.zeros((n, D.shape[1]))
            for (i, j), slope in zip(self.entries, found[n:], strict=True):
                of_set[i] += slope * D[j]
            D = D.copy()
            D[len(P) + self.places] = of_set
        return x, D


class BoundReadings(TakesDifferences, OfRuns):
    """A `ReadingsModel` as a function of a plain vector; see `fmepy.models.base.BoundModel`.

    Bounds do not apply to its runs: differences are taken of the model's constants, whose bounds are unknown.
    """

    def __init__(self, model: ReadingsModel, names: tuple[str, ...], rows: Vector, hold: bool) -> None:
        self._model, self.names, self.times, self.var_names = model, names, rows, model.var_names
        self._layout = layout = model.layout
        self._ode, self._later, self._hold = layout.model, layout.later_model, hold
        self._P0 = model.parms.to_numpy(dtype=float)
        self._places = np.array([layout.parameters.index(n) for n in names], dtype=np.intp)
        self.theta0: Vector = self._P0[self._places]
        self._rows = np.round(rows).astype(int)
        self._active = layout.moved_by(names)
        first, n_m = np.array(self._active, dtype=np.intp), len(layout.constants)
        # the parameters of the run of a first leg, and of a later one, by position among constants and states
        self._moved = {True: first, False: np.append(first, n_m + np.arange(len(layout.states)))}
        self._in_model = [layout.constants.index(n) for n in layout.of_model]
        self._bounds: dict[Any, Any] = {}
        self._legs = [self._legs_of(key) for key in layout.experiments]
        self._legs = [legs for legs in self._legs if legs]
        self._last: tuple[Any, ...] = (None, None, None)

    def _legs_of(self, key: str) -> list[_Leg]:
        stages, readings = self._layout.experiments[key], self._layout.tables.readings
        own = [i for i, r in enumerate(readings) if r.experiment == key]
        legs: list[_Leg] = []
        for k, stage in enumerate(stages if own else []):
            last = k == len(stages) - 1
            end = np.inf if last else stages[k + 1].time
            if stage.is_rest:
                legs.append(_Leg(stage, np.array([np.inf]), True, [], []))
                continue
            rows = [i for i in own if stage.time <= readings[i].time < end]
            times = np.unique([*(readings[i].time for i in rows), *([] if last else [stages[k + 1].begin])])
            at = np.searchsorted(times, [readings[i].time for i in rows]).tolist()
            if len(times):
                legs.append(_Leg(stage, times, not last, rows, at))
            if last and (rows := [i for i in own if readings[i].time == np.inf]):
                legs.append(_Leg(stage, np.array([np.inf]), False, rows, [0] * len(rows)))
        return legs

    def __reduce__(self) -> Any:
        return BoundReadings, (self._model, self.names, self.times, self._hold)

    # --- properties of the runs

    exact = property(lambda self: all(b.exact for b, _ in self._bounds.values()))
    retries = property(lambda self: sum(int(b.retries) for b, _ in self._bounds.values()))
    engine = property(lambda self: next((b.engine for b, _ in self._bounds.values()), self._ode.engine))

    def tightened(self) -> BoundReadings:
        """Return the same at smaller tolerances, see `fmepy.models.base.tightened`."""
        out = copy(self)
        words = {"rtol": RTOL / 100, "atol": ATOL / 100}
        out._ode, out._later = self._ode.replace(**words), self._later.replace(**words)
        out._bounds, out._last = {}, (None, None, None)
        return out

    # --- runs

    def simulate(self, theta: Vector) -> Matrix:
        """Return Y, shape (n_reading, n_var); NaN where a reading is of another variable."""
        return self._evaluated(theta, False)[0]

    def sensitivities(self, theta: Vector) -> tuple[Matrix, Cube]:
        """Return Y and S, shape (n_reading, n_var, n_par)."""
        return self._evaluated(theta, True)

    def _evaluated(self, theta: Vector, slopes: bool) -> tuple[Matrix, Any]:
        key, known = (np.asarray(theta, dtype=float).tobytes(), slopes), self._last
        if known[0] == key:
            return known[1], known[2]
        P = self._P0.copy()
        P[self._places] = as_theta(theta, self.names)
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
        for k, formula in enumerate(self._model.functions):
            formula(k, t, P, X, M, D, self._places, Y, S)
        Y, S = Y[self._rows], None if S is None else S[self._rows]
        self._last = (key, Y, S)
        return Y, S

    def _run(self, legs: list[_Leg], P: Vector, t: Vector, X: Matrix, M: Matrix, D: Cube | None) -> None:
        """Run an experiment and fill in states, constants and their derivatives at its readings."""
        m, y = np.zeros(M.shape[1]), np.zeros(X.shape[1])
        n_p, n_m = len(P), len(m)
        d = None
        if D is not None:
            d = np.zeros(D.shape[1:])
            d[self._places, np.arange(len(self.names))] = 1.0
        for leg in legs:
            x, own = self._model.steps[leg.stage](leg.stage.time, P, m, y, d)
            moved = self._moved[leg.stage.is_first]
            slopes = None if own is None else own[n_p + moved]
            Y, S, times = self._leg(leg, x[:n_m], x[moved], slopes)
            for i, k in zip(leg.rows, leg.at, strict=True):
                X[i], M[i], t[i] = Y[k], x[:n_m], times[k]
                if D is not None and own is not None:
                    D[i], D[i, n_p + n_m :] = own, S[k]
            if leg.continues:
                m, y, d = x[:n_m], Y[-1], own if own is None else np.concatenate([own[: n_p + n_m], S[-1]])

    def _leg(self, leg: _Leg, M: Vector, theta: Vector, slopes: Matrix | None) -> tuple[Matrix, Any, Vector]:
        """Return states at the leg's rows, their derivatives, and the times."""
        if np.isfinite(leg.times[0]):
            return (*self._states(self._bound(leg, M, leg.times), theta, slopes), leg.times)
        start, span = leg.stage.begin, float(self._ode.times[-1] - self._ode.times[0])
        bounds = (self._bound(leg, M, start + span * np.array(pair)) for pair in pairwise(SPANS))
        bound, _ = first_at_rest(bounds, lambda b: self._states(b, theta, None)[0], self._layout.states, ATOL)
        Y, S = self._states(bound, theta, slopes)
        return Y[1:], None if S is None else S[1:], bound.times[1:]

    def _states(self, bound: Any, theta: Vector, slopes: Matrix | None) -> tuple[Matrix, Any]:
        n = len(self._layout.states)
        if slopes is None:
            return bound.simulate(theta)[:, :n], None
        Y, S = bound.sensitivities(theta)
        return Y[:, :n], S[:, :n] @ slopes

    def _bound(self, leg: _Leg, M: Vector, times: Vector) -> Any:
        """Return the bound model of a leg with these constants; legs of the same times share it."""
        is_first = leg.stage.is_first
        key = (is_first, leg.stage.begin, times.tobytes())
        if key not in self._bounds:
            names = [self._layout.constants[i] for i in self._active]
            names = names if is_first else [*names, *map(start_name, self._layout.states)]
            model = self._ode if is_first else self._later
            bound = model.bind(names, times=times, start=leg.stage.begin, hold_engine=self._hold)
            self._bounds[key] = bound, bound.holder(self._layout.of_model)
        bound, hold = self._bounds[key]
        hold(M[self._in_model])
        return bound


class _FormulaRuns:
    """An observable's prediction and noise at its readings, and their derivatives."""

    def __init__(self, formula: ObservableFormula, layout: ProblemLayout) -> None:
        self._rows, groups = formula.rows, layout.groups
        self._own = list(formula.placeholders)
        columns = [s for g in groups[1:] for s in g]
        both = [formula.value, formula.noise]
        self._entries = entries_of(both, [*columns, *self._own])
        self._value = array_function([*groups, self._own], both)
        self._slopes = array_function([*groups, self._own], [e for *_, e in self._entries])
        self._n = len(columns)
        cells = dict.fromkeys(e for values in formula.placeholders.values() for e in values)
        of_cell, parameters = {e: i for i, e in enumerate(cells)}, [s.name for s in groups[1]]
        self._cells = ValueTable(list(cells), parameters, parameters)
        self._cell_at = [np.array([of_cell[e] for e in values]) for values in formula.placeholders.values()]

    def __call__(
        self, k: int, t: Vector, P: Vector, X: Matrix, M: Matrix, D: Cube | None, places: Any, Y: Matrix, S: Cube | None
    ) -> None:
        """Fill in the k-th pair of variables of Y and S."""
        rows, n = self._rows, len(self._rows)
        own = [self._cells.value(P.tolist())[at] for at in self._cell_at]
        given = ((t[rows],), P, M[rows].T, X[rows].T, own)
        for j, value in enumerate(self._value(*given)):
            Y[rows, 2 * k + j] = value
        if D is None or S is None:
            return
        of_cells = self._cells.slope(P.tolist())[:, places] if self._cell_at else None
        of_own = [] if of_cells is None else [of_cells[at] for at in self._cell_at]
        for (i, j, _), slope in zip(self._entries, self._slopes(*given), strict=True):
            moved = D[rows, j] if j < self._n else of_own[j - self._n]
            S[rows, 2 * k + i] += np.broadcast_to(slope, n)[:, None] * moved


def _experiment_label(id: str) -> str:
    """Return what a legend says of an experiment; of PEtab 1 the condition, and the one that comes before it."""
    before, _, condition = id.rpartition(";")
    return f"{condition} after {before}" if before else condition


class ReadingsModel(Runnable):
    """The predictions of a PEtab problem as a model: a row a reading, numbered from 0; two columns an observable.

    The columns are its prediction and its noise, at the readings of that observable; NaN at the others.
    """

    x_name = "reading"
    states: tuple[str, ...] = ()

    def __init__(self, layout: ProblemLayout) -> None:
        self.layout, self.engine, self.engine_note = layout, layout.model.engine, layout.model.engine_note
        self._parms = pd.Series(layout.nominal(), index=list(layout.parameters), dtype=float)
        self._set_times(np.arange(len(layout.tables.readings), dtype=float))
        self.var_names = tuple(n for f in layout.formulas for n in (f.variable, NOISE.format(f.variable)))

    @cached_property
    def steps(self) -> dict[Stage, _Step]:
        """The changes at the beginning of every period, as functions."""
        return {s: _Step.of(self.layout, s) for stages in self.layout.experiments.values() for s in stages}

    @cached_property
    def functions(self) -> list[_FormulaRuns]:
        """The observables as functions."""
        return [_FormulaRuns(f, self.layout) for f in self.layout.formulas]

    def __getstate__(self) -> dict[str, Any]:
        return {
            k: v for k, v in super().__getstate__().items() if k not in ("steps", "functions", "readings")
        }  # made again

    @cached_property
    def absent(self) -> BoolVector:
        """Where a column has no value: at readings of other observables."""
        out = np.ones((len(self.times), len(self.var_names)), dtype=bool)
        for k, formula in enumerate(self.layout.formulas):
            out[formula.rows, 2 * k : 2 * k + 2] = False
        return out

    @cached_property
    def readings(self) -> pd.DataFrame:
        """The readings, a row each: variable, observable, experiment, series, time, measurement, is_log.

        A series are those that share their observable's and noise's parameters.
        """
        variable_of = {f.observable.id: f.variable for f in self.layout.formulas}
        observables = self.layout.tables.observables
        rows = [
            (variable_of[r.observable], r.observable, _experiment_label(r.experiment),
             " ".join((*r.overrides, *r.noise_overrides)), r.time, r.value,
             observables[r.observable].scale != "lin" or "log" in observables[r.observable].distribution)
            for r in self.layout.tables.readings
        ]  # fmt: skip
        columns = ["variable", "observable", "experiment", "series", "time", "measurement", "is_log"]
        return pd.DataFrame(rows, columns=columns)

    def predictions(self, parms: UserParameters = None) -> Vector:
        """Return what is predicted of every reading."""
        Y, found = self(parms), np.full(len(self.times), np.nan)
        for formula in self.layout.formulas:
            found[formula.rows] = Y[formula.variable].to_numpy()[formula.rows]
        return found

    def plot_readings(
        self, parms: UserParameters = None, which: Which = None, *, axes: Any = None, **words: Any
    ) -> AxesArray:
        """Draw readings and predictions over time; see `PetabProblem.plot`."""
        from fmepy.plotting.petab import plot_petab

        return plot_petab(self.readings.assign(simulation=self.predictions(parms)), which, axes=axes, **words)

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
