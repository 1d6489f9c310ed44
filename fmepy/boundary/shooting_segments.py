"""Segments: pieces of a record that are run from starts of their own, and their fit to the observations.

A record is what one experiment observed. It is cut at times of its observations, so that every segment has as many of
them as the next (one more or less); an observation at a cut belongs to the segment that begins there. What happens
along the record (events, forcings) falls into its segment, as a segment runs at its own place in time; the model's
initial values, expressions of parameters, are the start of the first one.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import pandas as pd

from fmepy.boundary.block_elimination import ObservationRows, reduce
from fmepy.boundary.problem import BoundaryProblem
from fmepy.boundary.shooting_linear import Linear, Records
from fmepy.boundary.simultaneous_runs import SimultaneousRuns
from fmepy.boundary.unknowns import initial_values
from fmepy.compiled.c_loops import address, c_loop
from fmepy.compiled.kernels import packed
from fmepy.costs.interpolation import merge_times, nearest_rows
from fmepy.errors import ArgumentError, DataError, SimulationError
from fmepy.language.equations import names_in
from fmepy.models.base import engine_of, equations_hint
from fmepy.models.definition.values import ValueTable
from fmepy.models.entity import EntityModel
from fmepy.models.mapped import MappedModel
from fmepy.models.preequilibration import opened, start_name
from fmepy.parameters.maps import Map, Selected
from fmepy.types import BoolVector, IntVector, Matrix, Vector

DEFECT = 1e-8
"""Scaled defect of a path that counts as continuous."""
LONGEST = 1.0
"""Change of an unknown in a step, relative to its size."""
_BEYOND = 1e50
"""Of a path or its sensitivities: beyond it elimination is left with nothing but rounding."""


@dataclass(frozen=True, eq=False)
class Experiment:
    """One experiment: its model, and how the unknowns move it.

    Attributes
    ----------
    label : str
        "" of a single one.
    model : Model
        With initial values that are parameters, numbers of this experiment.
    closed : Model
        The same with the initial values as they are given.
    maps : tuple of Map
        From the unknowns to the parameters of the model that they move, one after the other.
    rows : ndarray of int
        Its observations.
    cuts : ndarray, shape (n_segment + 1,)
        Where the segments begin, and the last observation.
    observed : dict of str to (ndarray, ndarray)
        By observed state its times and data, means where it has several; outputs that are a state count as it.
    """

    label: str
    model: Any
    closed: Any
    maps: tuple[Map, ...]
    rows: IntVector
    cuts: Vector
    observed: dict[str, tuple[Vector, Vector]]

    @property
    def moved(self) -> tuple[str, ...]:
        """The parameters of the model that the unknowns move."""
        return tuple(self.maps[-1].full_names)

    def full(self, theta: Vector) -> Vector:
        """Return the values of `moved`."""
        for m in self.maps:
            theta = m.full(theta)
        return theta

    def slopes(self, theta: Vector) -> Matrix:
        """Return the derivatives of `moved` to the unknowns, shape (n_moved, n_par)."""
        at = [theta]
        for m in self.maps[:-1]:
            at.append(m.full(at[-1]))
        D: Any = np.eye(len(self.moved))
        for m, t in zip(reversed(self.maps), reversed(at), strict=True):
            D = np.asarray(m.pull(t, D))
        return np.asarray(D)

    @cached_property
    def _initial(self) -> tuple[ValueTable, IntVector, Vector]:
        d = self.closed.definition
        places = np.array([d.parameters.index(n) for n in self.moved], dtype=np.intp)
        return ValueTable(d.initial, d.parameters, self.moved), places, d.parms.to_numpy(dtype=float, copy=True)

    @property
    def unknown_starts(self) -> BoolVector:
        """States whose initial values depend on the unknowns, shape (n_state,)."""
        moved = set(self.moved)
        return np.array([bool(moved & names_in([e])) for e in self.closed.definition.initial])

    def initial(self, theta: Vector) -> tuple[Vector, Matrix]:
        """Return the model's own start, and its derivatives to the parameters `moved`."""
        table, places, p = self._initial
        p = p.copy()
        p[places] = self.full(theta)
        return table.value(p.tolist()), table.slope(p.tolist())


def unwrapped(model: Any, names: tuple[str, ...]) -> tuple[Any, tuple[Map, ...]]:
    """Return the model of equations inside a model, and the maps from the parameters `names` to those of it."""
    maps: list[Map] = []
    while True:
        if isinstance(model, EntityModel):
            moved = [n for n in model.parameters.moved_by(tuple(names)) if n in model.inner.parms.index]
            moved = moved or [str(model.inner.parms.index[0])]
            maps.append(model.parameters.map(model.k, tuple(names), moved))
        elif isinstance(model, MappedModel):
            maps.append(model.map(names))
        else:
            break
        model, names = model.inner, tuple(maps[-1].full_names)
    return model, tuple(maps)


def cut(times: Vector, first: float, segments: int) -> Vector:
    """Return where segments begin, `first` and then times of observations, and the last of these.

    Examples
    --------
    >>> cut(np.arange(1.0, 11.0), 0.0, 4)
    array([ 0.,  3.,  6.,  8., 10.])
    """
    inner = times[(np.arange(1, segments) * len(times)) // segments]
    return np.concatenate([[first], inner, times[-1:]])


def records_of(problem: BoundaryProblem) -> list[Experiment]:
    """Return the records of a problem, cut.

    Raises
    ------
    ArgumentError
        A kind of model that cannot begin anywhere else than at its start.
    DataError
        More segments than times with observations.
    """
    cost, x, runs = problem.cost, problem.x, problem.cost.places.runs
    whole = [cost.predictor] if cost.plain_run else cost.models
    out = []
    for k, model in enumerate(whole):
        rows = np.arange(len(x)) if runs is None else np.flatnonzero(runs == k)
        times = merge_times(x[rows])
        label = "" if runs is None else model.label
        if runs is None and problem.segments > len(times):
            raise DataError(
                f"segments={problem.segments}, and there are observations at {len(times)} times: "
                f"{problem.segments - len(times)} of them would be without data. At most segments={len(times)}."
            )
        base, maps = unwrapped(model, problem.names)
        closed = _check_cuttable(base)
        if not maps:
            maps = (Selected.by_name(problem.names, {n: n for n in problem.names}, closed.parms[list(problem.names)]),)
        cuts = cut(times, float(closed.times[0]), min(problem.segments, len(times)))
        out.append(Experiment(label, _free_starts(closed), closed, maps, rows, cuts, _observed(problem, closed, rows)))
    return out


def _observed(problem: BoundaryProblem, model: Any, rows: IntVector) -> dict[str, tuple[Vector, Vector]]:
    """Return by observed state its times and data, of some observations."""
    d, c, x = model.definition, problem.cost.comparison, problem.x
    stands_for = {s: s for s in d.states} | {n: str(e) for n, e in d.outputs if str(e) in d.states}
    out = {}
    for state in d.states:
        mine = np.array([i for i in rows if stands_for.get(c.names[i]) == state], dtype=np.intp)
        if len(mine):
            times, group = np.unique(x[mine], return_inverse=True)
            out[state] = times, np.bincount(group, c.obs[mine]) / np.bincount(group)
    return out


def _check_cuttable(model: Any) -> Any:
    if getattr(model, "definition", None) is None or not hasattr(model, "replace"):
        raise ArgumentError(
            f"Segments need a model whose initial values can be set, such as an OdeModel or a DifferenceModel; a "
            f"{type(model).__name__} has none. Take segments=1.{equations_hint(model)}"
        )
    return model


def _free_starts(model: Any) -> Any:
    """Return the model with initial values that are parameters, and start at those of the model."""
    d = model.definition
    p = d.parms.to_numpy(dtype=float)
    at = ValueTable(d.initial, d.parameters).value(p.tolist())
    return opened(model).replace(parms={start_name(s): float(v) for s, v in zip(d.states, at, strict=True)})


@dataclass(frozen=True, slots=True, eq=False)
class Iterate:
    """An iterate: unknowns, starts of all segments, and the runs from there.

    Attributes
    ----------
    theta : ndarray, shape (n_par,)
    X : ndarray, shape (n_segment, n_state)
    mod : ndarray, shape (n_obs,)
        The paths at the observations.
    r : ndarray, shape (n_obs,)
        Weighted residuals.
    ends : ndarray, shape (n_segment, n_state)
        The last rows of the segments.
    squares : ndarray, shape (n_segment, w, w) with w = n_dyn + n_state + 1
        Of every segment R of [S, r] = QR, S the weighted derivatives of its observations to the parameters that are in
        the equations, and to its start: all that a step wants of them, whatever sizes are taken for one.
    S_end : ndarray, shape (n_segment, n_state, n_dyn + n_state)
        The same derivatives of its last row.
    begin, begin_slopes : ndarray, shape (n_record, n_state) and (n_record, n_state, n_moved)
        The model's own starts.
    """

    theta: Vector
    X: Matrix
    mod: Vector
    r: Vector
    ends: Matrix
    squares: Any
    S_end: Any
    begin: Matrix
    begin_slopes: Any


class Segments:
    """The segments of all records as one function of unknowns and starts.

    Attributes
    ----------
    records : list of Record
    states : tuple of str
    layout : Records
    begins, counts : ndarray, shape (n_segment,)
        Where they begin, and how many observations each has.
    rows_of_segments : list of ndarray of int
        Which these are.
    engine : str
    evaluations : int
    """

    def __init__(self, problem: BoundaryProblem) -> None:
        self.problem = problem
        self.records = records_of(problem)
        first = self.records[0]
        self.states = tuple(first.closed.states)
        only_initial = initial_values(first.closed)
        self._dyn = [i for i, n in enumerate(first.moved) if n not in only_initial]
        self.names = [*(first.moved[i] for i in self._dyn), *map(start_name, self.states)]
        record = np.repeat(np.arange(len(self.records)), [len(r.cuts) - 1 for r in self.records])
        self.begins: Vector = np.concatenate([r.cuts[:-1] for r in self.records])
        self.layout = Records(record, self._own(), len(problem.names))
        self._last = np.flatnonzero(self.layout.is_last)
        self._place(problem)
        self.evaluations = 0
        self.observers: dict[Any, Any] = {}  # models that are set to the data, bound

    @cached_property
    def unobserved(self) -> Any:
        """Starts of segments that are free and have no data, shape (n_segment, n_state)."""
        out = np.ones((len(self.begins), len(self.states)), dtype=bool)
        for record, s in zip(self.records, np.flatnonzero(self.layout.is_first).tolist(), strict=True):
            n = len(record.cuts) - 1
            for state, (x, _) in record.observed.items():
                of = np.clip(np.searchsorted(record.cuts, x, side="right") - 1, 0, n - 1)
                out[s + of, self.states.index(state)] = False
            out[s] &= record.unknown_starts
        return out

    def _own(self) -> IntVector:
        """Return the unknowns that are in the equations of each record."""
        start = self.problem.start
        mine = [np.flatnonzero(np.any(r.slopes(start)[self._dyn] != 0, axis=0)) for r in self.records]
        out = np.full((len(mine), max(map(len, mine))), -1, dtype=np.intp)
        for row, own in zip(out, mine, strict=True):
            row[: len(own)] = own
        return out

    def _place(self, problem: BoundaryProblem) -> None:
        """Bind the segments, and set the rows of the observations in them."""
        x, c = problem.x, problem.cost.comparison
        self.obs, self.weights = c.obs, c.weights
        self.size_of_obs = float(np.linalg.norm(c.obs * c.weights))
        bounds, n_obs = [], len(x)
        self._segment = np.empty(n_obs, dtype=np.intp)
        row = np.empty(n_obs, dtype=np.intp)
        s = n_rows = 0
        for record in self.records:
            cuts, model = record.cuts, self.on_engine(record)
            of = np.clip(np.searchsorted(cuts, x[record.rows], side="right") - 1, 0, len(cuts) - 2)
            for k in range(len(cuts) - 1):
                mine = record.rows[of == k]
                is_last = k == len(cuts) - 2
                times = merge_times(x[mine]) if is_last else merge_times(cuts[k + 1 : k + 2], x[mine])
                bounds.append(model.bind(self.names, times=times, start=float(cuts[k])))
                self._segment[mine], row[mine] = s, n_rows + nearest_rows(times, x[mine])
                s, n_rows = s + 1, n_rows + len(times)
        self.runs = SimultaneousRuns(bounds)
        position = {name: k for k, name in enumerate(bounds[0].var_names)}
        variable = np.array([position[n] for n in c.names], dtype=np.intp)
        self._end = self.runs.first[1:] - 1
        self.counts = np.bincount(self._segment, minlength=s)
        order = np.argsort(self._segment, kind="stable")
        self.rows_of_segments = np.split(order, np.cumsum(self.counts)[:-1])
        runs, k = self.runs, len(self.names)
        self._readings = ObservationRows(
            runs.rows, runs.scales, np.ascontiguousarray(runs.places.T).ravel(),
            np.concatenate([[0], np.cumsum(self.counts)]), order, row, variable, self.obs, self.weights,
            np.empty(n_obs), np.empty(n_obs), np.zeros((s, k + 1, k + 1)), int(self.counts.max()),
        )  # fmt: skip
        self._words = packed(self._readings)

    def on_engine(self, record: Experiment) -> Any:
        """Return the opened model of a record on the engine of its first run."""
        chosen = engine_of(record.model.bind(self.names, times=record.closed.times)) or record.model.engine
        self.engine = chosen
        return record.model if chosen == record.model.engine else record.model.replace(engine=chosen)

    # --- evaluation

    def at(self, theta: Vector, X: Matrix) -> Iterate:
        """Return the runs from starts X; SimulationError where one fails or is not finite at an observation."""
        self.evaluations += 1
        full = [r.full(theta)[self._dyn] for r in self.records]
        starts = [r.initial(theta) for r in self.records]
        loop, readings = c_loop(reduce, "the observations of segments"), address(self._words)
        runs, n = self.runs, len(self.states)
        runs.run(np.column_stack([np.array(full)[self.layout.record], X]), partial(loop, readings))
        out = self._readings
        mod, r, squares = out.mod.copy(), out.r.copy(), out.squares.transpose(0, 2, 1).copy()
        ends = runs.rows[self._end][:, runs.places[:, :n]]  # shape (n_segment, 1 + n_dyn + n_state, n_state)
        S_end = (ends[:, 1:] / runs.scales[:, :, None]).transpose(0, 2, 1).copy()
        if not all(np.abs(part).max() < _BEYOND for part in (mod, squares, ends)):
            raise SimulationError("The model is not finite at an observation, or its sensitivities are not.")
        begin = np.array([y for y, _ in starts])
        return Iterate(theta, X, mod, r, ends[:, 0], squares, S_end, begin, [s for _, s in starts])

    def trajectory(self, at: Iterate) -> pd.DataFrame:
        """Return the path at the model's times, of several experiments one below the other; NaN where it fails."""
        tables, first, runs = [], np.flatnonzero(self.layout.is_first), self.runs
        self.at(at.theta, at.X)
        for record, s in zip(self.records, first.tolist(), strict=True):
            times, model = record.closed.times, self.on_engine(record)
            Y = np.full((len(times), len(model.var_names)), np.nan)
            of = np.clip(np.searchsorted(record.cuts, times, side="right") - 1, 0, len(record.cuts) - 2)
            for k in np.unique(of).tolist():
                wanted, has = times[of == k], runs.bounds[s + k].times
                if np.isin(wanted, has).all():
                    Y[of == k] = runs.rows[runs.first[s + k] + np.searchsorted(has, wanted)][:, runs.places[0]]
                    continue
                bound = model.bind(self.names, times=wanted, start=float(record.cuts[k]))
                with contextlib.suppress(SimulationError):
                    Y[of == k] = bound.simulate(np.concatenate([record.full(at.theta)[self._dyn], at.X[s + k]]))
            tables.append(pd.DataFrame(Y, columns=list(model.var_names)))
            tables[-1].insert(0, "time", times)
        cost = self.problem.cost
        if cost.experiments is None:
            return tables[0]
        which = [int(cost.cases.apart[1][cost.cases.run_of(k, {})]) for k in range(len(cost.experiments.column.labels))]
        out = [tables[k].copy() for k in which]
        for table, label in zip(out, cost.experiments.column.labels, strict=True):
            table.insert(0, str(cost.entity), label)
        return pd.concat(out, ignore_index=True)

    def growth(self, at: Iterate) -> Vector:
        """Return the logarithm of how much an error of the state grows over each segment.

        That of the spectral radius of its derivative.
        """
        radius: Vector = np.abs(np.linalg.eigvals(at.S_end[:, :, len(self._dyn) :])).max(axis=1)
        return np.log(np.maximum(radius, 1e-300))

    def growth_of_records(self, at: Iterate) -> tuple[Vector, Vector]:
        """Return the logarithm of how much an error of the state grows over each record, and its observations.

        Segments begin anew: what is a gain's in a few samples of each adds up.
        """
        growth, n = np.zeros(len(self.records)), np.zeros(len(self.records))
        P = np.eye(len(self.states))
        for s, A in enumerate(at.S_end[:, :, len(self._dyn) :]):
            k = self.layout.record[s]
            P = A @ (np.eye(len(A)) if self.layout.is_first[s] else P)
            size = float(np.abs(P).max()) or 1.0
            P, growth[k], n[k] = P / size, growth[k] + np.log(size), n[k] + self.counts[s]
            if self.layout.is_last[s]:
                growth[k] += np.log(max(float(np.abs(np.linalg.eigvals(P)).max()), 1e-300))
        return growth, n

    def gaps(self, at: Iterate, scale: Vector) -> tuple[Matrix, Matrix]:
        """Return the defects of continuity, scaled: behind every segment but the last, and at the model's start."""
        gap = np.zeros_like(at.X)
        inner = ~self.layout.is_last
        gap[inner] = (at.ends[inner] - at.X[1:][inner[:-1]]) / scale
        return gap, (at.begin - at.X[self.layout.is_first]) / scale

    def linear(self, at: Iterate, state_scale: Vector, scale: Vector, size: float) -> Linear:
        """Return the linear problem at an iterate.

        state_scale, scale : ndarray, shape (n_state,) and (n_par,)
            Sizes of starts and unknowns.
        size : float
            Of a weighted residual.
        """
        own, record, k = self.layout.own, self.layout.record, len(self._dyn)
        D = [r.slopes(at.theta) * scale for r in self.records]
        D_dyn = np.zeros((len(D), k, own.shape[1]))
        for mine, into, slopes in zip(own, D_dyn, D, strict=True):
            into[:, mine >= 0] = slopes[self._dyn][:, mine[mine >= 0]]
        S = at.squares / size
        rows = np.concatenate([S[:, :, k:-1] * state_scale, S[:, :, :k] @ D_dyn[record], -S[:, :, -1:]], axis=2)
        A = at.S_end[:, :, k:] * state_scale / state_scale[:, None]
        B = (at.S_end[:, :, :k] @ D_dyn[record]) / state_scale[:, None]
        X0 = np.array([s @ d for s, d in zip(at.begin_slopes, D, strict=True)]) / state_scale[:, None]
        gap, gap0 = self.gaps(at, state_scale)
        return Linear(self.layout, rows, A, B, gap, X0, gap0)
