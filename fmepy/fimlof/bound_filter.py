"""Specification -> a filter that runs: the loop, the model's functions, the start, at some parameters.

A `BoundFilter` is made once for a bound cost and used for all evaluations; compiled parts are not pickled with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from fmepy.errors import ModelError, SimulationError
from fmepy.filtering.likelihood import Likelihood, unknown_part
from fmepy.filtering.loop import TangentArguments
from fmepy.filtering.loop_arguments import START_NOT_SETTLED, VARIANCE_NOT_POSITIVE
from fmepy.filtering.paths import draw_paths
from fmepy.filtering.run import FilterFunctions, LoopInputs, Pass, Scheme, Start, has_tangents, passes_with_slopes
from fmepy.filtering.schedule import EVENT_KINDS, FilterReadings, Schedule, StateChange, build_schedule
from fmepy.filtering.square_root_loop import EKF, UPDATES
from fmepy.filtering.statespace import StateSpace
from fmepy.filtering.tangents import EXACT_STEPS, Directions
from fmepy.filtering.transition import DIFFERENCE, EULER, RK4, RK4_MOMENTS
from fmepy.fimlof.filter_model import FIXED, Accumulator, Specification
from fmepy.fimlof.stationary import stationary_start
from fmepy.language.equations import names_in
from fmepy.language.functions import holds_choices
from fmepy.models.definition.values import ValueTable
from fmepy.numerics.covariance import semidefinite_factor
from fmepy.parameters.maps import TRANSFORMS
from fmepy.types import BoolVector, Cube, IntVector, Matrix, Vector


def kind_of_steps(spec: Specification) -> str:
    """Return how a schedule goes from node to node: "difference", "fixed" or "adaptive"."""
    if spec.propagation == "difference":
        return "difference"
    return "fixed" if spec.propagation in FIXED else "adaptive"


def schedule_of(
    spec: Specification, readings: FilterReadings, rows: Vector | None = None
) -> tuple[Schedule, FilterReadings | None]:
    """Return the schedule of one entity, and the readings that its start uses up (initial="data").

    rows : ndarray, optional
        Further times at which the state is wanted.
    """
    start, used = float(spec.grid[0]), None
    if spec.initial == "data":
        start = float(readings.times[0])
        first = readings.times == start
        used, readings = readings.only(first), readings.only(~first)
    changes = [StateChange(e.time, e.state, EVENT_KINDS[e.method], k) for k, e in enumerate(spec.events)]
    for accumulator in spec.accumulators:
        changes += _resets(accumulator, readings, start)
    forcings = spec.definition.forcings
    schedule = build_schedule(
        kind_of_steps(spec),
        start,
        readings,
        changes,
        forcings,
        rows=np.empty(0) if rows is None else rows[rows >= start],
        grid=spec.grid,
        dt=spec.dt,
        stages=1 if spec.propagation in ("difference", "euler") else 3,
    )
    return schedule, used


def _resets(accumulator: Accumulator, readings: FilterReadings, start: float) -> list[StateChange]:
    """Return the resets of an accumulator: one length before each of its readings."""
    times = np.unique(readings.times[readings.variables == accumulator.variable])
    at = np.maximum(times - accumulator.length, start)
    return [StateChange(float(t), accumulator.state, EVENT_KINDS["replace"]) for t in np.unique(at)]


Side: TypeAlias = tuple[float, Vector, Vector | None]
"""A point of a difference: its distance from the parameter's value, and there the parameters of the filter, and the
initial values where they are not those that the model gives."""


class BoundFilter:
    """A filter of a specification, ready to run.

    Parameters
    ----------
    spec : Specification
    """

    def __init__(self, spec: Specification) -> None:
        self.spec = spec
        self._start_places = [spec.definition.states.index(k) for k in spec.start.keys]
        self._free = np.array(spec.free_states, dtype=np.intp)
        self._n, self._total = len(spec.definition.states), len(spec.space.states)

    def tightened(self) -> BoundFilter:
        """Return the same at tolerances a hundred times smaller."""
        return BoundFilter(replace(self.spec, tightness=0.01 * self.spec.tightness))

    @cached_property
    def _initial(self) -> ValueTable:
        return ValueTable(self.spec.definition.initial, self.spec.parameters)

    @cached_property
    def _events(self) -> ValueTable:
        return ValueTable([e.value for e in self.spec.events], self.spec.parameters)

    @cached_property
    def _of_noise(self) -> Callable[[list[float]], Matrix]:
        return self.spec.noise.matrix(self.spec.parameters)

    @cached_property
    def _of_errors(self) -> Callable[[list[float]], Matrix]:
        return self.spec.errors.matrix(self.spec.parameters)

    @cached_property
    def _of_states(self) -> Callable[[list[float]], Matrix]:
        """The covariance of the start as a function of the parameters; NaN where they make none of a table."""
        matrix = self.spec.start.matrix(self.spec.parameters)
        if self.spec.start.covariance is None or not self.spec.start.names():
            return matrix

        def covariance(p: list[float]) -> Matrix:
            P = matrix(p)
            return P if np.isfinite(semidefinite_factor(P)).all() else np.full_like(P, np.nan)

        return covariance

    @cached_property
    def _first(self) -> dict[FilterReadings, FirstData]:
        return {}

    @property
    def scheme(self) -> Scheme:
        """The loop and the model's functions."""
        is_safe = self.spec.update != "ekf" or self.spec.algorithm == "sqrt"
        return self.safe_scheme if is_safe else self.linear_scheme

    @cached_property
    def linear_scheme(self) -> Scheme:
        """The extended filter in the plain loop, whatever the settings: its tangents are the model's own."""
        return self._scheme((None, None), EKF, False, lambda: self.safe_scheme)

    @cached_property
    def safe_scheme(self) -> Scheme:
        """The loop that keeps factors of covariances."""
        bends = self.spec.space.curvatures() if self.spec.update == "second_order" else (None, None)
        return self._scheme(bends, UPDATES.index(self.spec.update), True, None)

    def _scheme(self, bends: tuple[Any, Any], update: int, is_safe: bool, safe: Callable[[], Scheme] | None) -> Scheme:
        spec = self.spec
        return Scheme(self._functions, bends, update, spec.per_step, len(spec.variables), is_safe, safe)

    def observe_at(self, t: float, x: Vector, p: Vector, u: Vector) -> tuple[Vector, Matrix, Vector]:
        """Return the readings of a state, their derivatives to it, and the sds of their errors."""
        m = len(self.spec.variables)
        z, H, sd = np.empty(m), np.zeros((m, self._total)), np.empty(m)
        inputs = np.zeros(len(self.spec.space.parameters))  # the noise of the process has no part in it
        inputs[: len(p)] = p
        self._functions.observe(t, x, self.spec.space.prepared(inputs), u, z, H, sd)
        return z, H, sd

    @property
    def exact(self) -> bool:
        """Whether derivatives of innovations go along and are exact, but for those of a start."""
        scheme, space = self.scheme, self.spec.space
        if len(self._free) or self.spec.errors.covariance is not None or not isinstance(space, StateSpace):
            return False
        has_steps = has_tangents(scheme) and scheme.functions.kind in EXACT_STEPS
        return has_steps and space.partials() is not None

    @cached_property
    def _functions(self) -> FilterFunctions:
        spec = self.spec
        if spec.definition.is_closed:
            raise ModelError(f"This follows the rates of a model from a state on, and {spec.definition.note}.")
        if spec.propagation in ("ode", "moment"):
            from fmepy.filtering.continuous_transition import (  # brings in the solvers
                SolverTolerances,
                adaptive_functions,
            )

            tolerances = SolverTolerances.of(spec.model.scaled_options(), self._total, spec.tightness)
            curved = spec.update == "second_order"
            return adaptive_functions(spec.space, spec.definition.forcings, spec.takes_moments, curved, tolerances)
        kinds = {"difference": DIFFERENCE, "euler": EULER, "rk4": RK4, "rk4_moment": RK4_MOMENTS}
        advance, observe = spec.space.functions()
        return FilterFunctions(advance, observe, kinds[spec.propagation], spec.space.n_noise)

    def paths(self, schedule: Schedule, start: Start, p: Vector, n: int, rng: np.random.Generator) -> Cube:
        """Return n noisy paths at the nodes of a schedule, see `fmepy.filtering.paths`."""
        return draw_paths(self.linear_scheme, schedule, start, self.inputs(p), n, rng)

    def inputs(self, p: Vector, inflation: float = 1.0) -> LoopInputs:
        """Return the inputs of the loop besides schedule and start; all process noise is multiplied by `inflation`."""
        factor: Vector = np.empty(0)
        if self.spec.noise.covariance is not None:
            C = semidefinite_factor(self._of_noise(p.tolist()))
            factor = C[np.tril_indices(len(C))]
        seen = np.empty(len(p) + len(factor) + 1)
        seen[: len(p)], seen[len(p) : -1], seen[-1] = p, factor, inflation
        values = np.zeros(len(self.spec.events) + 1)
        if self.spec.events:
            values[:-1] = self._events.value(p.tolist())
        return LoopInputs(self.spec.space.prepared(seen), values, self.correlation(p))

    def correlation(self, p: Vector) -> Matrix:
        """Return the correlation of the measurement errors by observed variable; empty if they are independent."""
        errors = self.spec.errors
        if errors.covariance is None:
            return np.empty((0, 0))
        matrix = self._of_errors(p.tolist())
        sd = np.sqrt(np.diag(matrix))
        with np.errstate(divide="ignore", invalid="ignore"):
            own = np.where(np.outer(sd, sd) > 0, matrix / np.outer(sd, sd), 0.0)
        out = np.eye(len(self.spec.variables))
        at = [self.spec.variables.index(k) for k in errors.keys]
        out[np.ix_(at, at)] = own
        out[np.diag_indices_from(out)] = 1.0
        return np.ascontiguousarray(out)

    def start(
        self,
        p: Vector,
        used: FilterReadings | None,
        schedule: Schedule,
        *,
        states: Vector | None = None,
        shift: Vector | None = None,
    ) -> Start:
        """Return the start at the parameters.

        used : Readings, optional
            Data that directly measured states start from.
        schedule : Schedule
            With the forcings and the time there.
        states : ndarray, optional
            The initial values, where they are not those that the model gives.
        shift : ndarray, optional
            To be added to the free components.
        """
        plain = p.tolist()
        x, P = np.zeros(self._total), np.zeros((self._total, self._total))
        x[: self._n] = self._initial.value(plain) if states is None else states
        at, shocks = self._start_places, range(self._total - len(self.spec.correlations.keys), self._total)
        P[shocks, shocks] = 1.0
        P[np.ix_(at, at)] = self._of_states(plain)
        if self.spec.initial == "stationary":
            x, P = stationary_start(self.spec.space, float(schedule.times[0]), self.inputs(p).p, schedule.inputs[0])
        if used is not None:
            self._from_data(x, P, p, used, schedule.inputs[0], float(schedule.times[0]))
        if shift is not None:
            x[self._free] += shift
        return Start(x, P, self._free)

    def moves_start(self, moved: BoolVector) -> bool:
        """Tell whether the start changes with any of these parameters."""
        return bool((moved & self._of_start).any())

    @cached_property
    def _of_start(self) -> BoolVector:
        spec = self.spec
        names = names_in(spec.definition.initial) | spec.start.names()
        if spec.initial == "stationary":
            names |= set(spec.parameters)
        if spec.initial == "data":
            names |= names_in(spec.space.sds) | spec.errors.names()
        return np.array([k in names for k in spec.parameters], dtype=bool)

    def _from_data(self, x: Vector, P: Matrix, p: Vector, used: FilterReadings, u: Vector, t: float) -> None:
        """Set directly measured states to their first data, with the covariance of the errors."""
        if used not in self._first:
            self._first[used] = first_data(self.spec, used)
        first = self._first[used]
        at, variables, guess = first.states, first.variables, x.copy()
        guess[at] = first.guesses
        sds = np.abs(self.observe_at(t, guess, p, u)[2][variables]) * first.errors
        x[at], P[at], P[:, at] = first.values, 0.0, 0.0
        if len(correlation := self.correlation(p)):
            P[np.ix_(at, at)] = correlation[np.ix_(variables, variables)] * np.outer(sds, sds)
        else:
            P[at, at] = sds * sds

    def passes_with_slopes(
        self,
        schedule: Schedule,
        used: FilterReadings | None,
        p: Vector,
        states: Vector | None,
        inflation: float,
        sides: Sequence[tuple[Side, Side, BoolVector]],
    ) -> list[TangentArguments] | None:
        """Return the passes, to be run, that carry the derivatives of innovations along; None where none can.

        Parameters
        ----------
        used : Readings, optional
            Data that the start uses up.
        p, states : ndarray
            The parameters, and the initial values where they are not those that the model gives.
        sides : sequence of (Side, Side, ndarray)
            By parameter the points ahead and behind, and which of p move with it.
        """
        inputs = self.inputs(p, inflation)
        if not (sides and has_tangents(self.scheme)) or len(inputs.correlation):
            return None
        space = self.spec.space
        if not isinstance(space, StateSpace) or (partials := space.partials()) is None:
            return None
        n, rows = len(space.states), []
        for (ahead, q_up, y_up), (behind, q_down, y_down), moved in sides:
            width, x, P = ahead - behind, np.zeros(n), np.zeros((n, n))
            p_up, events_up, _ = self.inputs(q_up, inflation)
            p_down, events_down, _ = self.inputs(q_down, inflation)
            if states is not None or self.moves_start(moved):
                up = self.start(q_up, used, schedule, states=y_up)
                down = self.start(q_down, used, schedule, states=y_down)
                x, P = (up.x - down.x) / width, (up.P - down.P) / width
            of_events = ((events_up - events_down) / width)[schedule.event_places]
            rows.append((ahead, behind, p_up, p_down, of_events, x, P))
        at = Directions(*(np.ascontiguousarray(np.array(part, dtype=float)) for part in zip(*rows, strict=True)))
        start = self.start(p, used, schedule, states=states)
        return passes_with_slopes(self.scheme, schedule, start, inputs, at, partials)

    def __getstate__(self) -> dict[str, Any]:
        made = {k for k, v in vars(type(self)).items() if isinstance(v, cached_property)}
        return {k: v for k, v in self.__dict__.items() if k not in made}


class FirstData(NamedTuple):
    """The first data of the states that are measured directly and start from them, one entry a state.

    Attributes
    ----------
    states, variables : ndarray of int
    values : ndarray
        The states: of several readings of one the mean weighted by their errors.
    errors : ndarray
        Their sds, where the readings have the sd one times the errors of their own.
    guesses : ndarray
        Values good enough for the sds of the readings.
    """

    states: IntVector
    variables: IntVector
    values: Vector
    errors: Vector
    guesses: Vector


def first_data(spec: Specification, used: FilterReadings) -> FirstData:
    """Return the first data of an entity, by directly measured state."""
    each = []
    for variable, state in spec.direct:
        rows, how = used.variables == variable, spec.transforms[variable]
        if rows.any():
            z, weights = used.values[rows], used.errors[rows] ** -2.0
            x, slope = _back(float(np.average(z, weights=weights)), how)
            guess = float(np.mean([_back(value, how)[0] for value in z.tolist()]))
            each.append((state, variable, x, slope * float(weights.sum() ** -0.5), guess))
    table = np.array(each).reshape(-1, 5)
    return FirstData(*table[:, :2].T.astype(np.intp), *table[:, 2:].T)


def _back(z: float, how: str | None) -> tuple[float, float]:
    """Return the state whose transform is z, and dx/dz."""
    if how is None:
        return z, 1.0
    x = float(TRANSFORMS[how].back(z))
    return x, float(TRANSFORMS[how].slope(x))


_WHY = {
    1: "a predicted state became NaN or infinite",
    VARIANCE_NOT_POSITIVE: "the variance of an innovation is not positive",
    3: "the covariance of a predicted state became NaN or infinite",
    START_NOT_SETTLED: "the start, of which nothing is known, does not settle where the data have it. Give its sd "
    "in `initial_sd`, or initial values nearer to it",
}


def undetermined(spec: Specification, likelihood: Likelihood) -> str:
    """Return the sentence for a likelihood that is not finite, and the part of the start that is not determined."""
    if not spec.free_states:
        return "The likelihood is not finite."
    states = [spec.definition.states[i] for i in spec.free_states]
    return (
        f"The likelihood is not finite: the data say nothing of {unknown_part(likelihood.A, states)} at the start, "
        "which initial='diffuse' leaves to them. Give its sd in `initial_sd`, or measure more."
    )


def broken(spec: Specification, label: Any, run: Pass, schedule: Schedule, p: Vector) -> SimulationError:
    """Return the error of a pass that broke down: where, and why.

    Parameters
    ----------
    spec : Specification
    label : any
        The entity; None if there is but one.
    run : Pass
    schedule : Schedule
    p : ndarray
        Its parameters.
    """
    time = float(schedule.times[run.node])
    who = "" if label is None else f" of entity {label!r}"
    what = ""
    if run.reason == VARIANCE_NOT_POSITIVE:
        what = f" ({spec.variables[schedule.readings.variables[run.row]]!r})"
    elif spec.space.is_traced and holds_choices(spec.space.rates):
        what = (
            ". If the rates on both sides of a condition lead back to it, the state slides along it, which a run "
            "cannot follow by stops: propagation='rk4' with a small dt steps over it"
        )
    noises = {"process_noise": spec.noise, "measurement_noise": spec.errors, "initial_sd": spec.start}
    for argument, noise in noises.items():
        if noise.covariance and np.isnan(semidefinite_factor(noise.matrix(spec.parameters)(p.tolist()))).any():
            what = f". At these parameters `{argument}` is not a covariance: it has a negative eigenvalue"
    sample = int(np.sum(np.unique(schedule.readings.times) <= time))
    return SimulationError(
        f"The filter{who} broke down at time {time:.6g} (sample {sample}): {_WHY[run.reason]}{what}.",
        parameters=dict(zip(spec.parameters, p.tolist(), strict=True)),
        time=time,
    )


STEP, ROUGH_STEP = 6e-6, 1e-7
"""Relative step of central differences of the filter, the cube root of the machine epsilon, and of forward ones."""


def points_of_differences(
    theta: Vector, typical: Vector, lower: Vector, upper: Vector, rough: bool
) -> dict[int, tuple[float, float]]:
    """Return by parameter the distances ahead of and behind theta of differences, within bounds.

    A parameter without a typical size, which needs steps that are found by trying, has none.
    """
    out = {}
    for j, value in enumerate(theta):
        h = (ROUGH_STEP if rough else STEP) * max(abs(value), 1e-3 * abs(float(typical[j])))
        h = min(h, 0.25 * float(upper[j] - lower[j]))
        ahead = h if value + h <= upper[j] else 0.0
        behind = 0.0 if (rough and ahead > 0.0) or value - h < lower[j] else -h
        if typical[j] != 0.0 and value + ahead != value + behind:
            out[j] = ahead, behind
    return out
