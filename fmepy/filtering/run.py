"""One pass of a filter over one entity: arrays in, arrays out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from fmepy.compiled.c_loops import address, c_loop
from fmepy.compiled.kernels import packed, packed_once
from fmepy.filtering import loop, square_root_loop
from fmepy.filtering.loop_arguments import (
    NO_CROSSINGS,
    VARIANCE_NOT_POSITIVE,
    CrossingWorkspace,
    LoopArguments,
    LoopModel,
    PassRecord,
)
from fmepy.filtering.partials import NO_PARTIALS
from fmepy.filtering.schedule import Schedule
from fmepy.filtering.statespace import PartialsFunction
from fmepy.filtering.tangents import STEPS_WITH_PARTIALS, Directions
from fmepy.filtering.transition import CARRYING, StepTolerances
from fmepy.journal.encoding import Stored
from fmepy.parallel.threads import on_threads
from fmepy.types import IntVector, Matrix, Vector


@dataclass(frozen=True, slots=True, eq=False)
class FilterFunctions:
    """A model's functions, ready for a loop; each is a `CompiledFunction` or a `PythonFunction`.

    Attributes
    ----------
    advance, observe : CompiledFunction or PythonFunction
        See `filtering.statespace`.
    kind : int
        What a step is, see `filtering.transition`.
    n_noise : int
        Columns of A.
    explicit : Tolerances or None
        Of the explicit method, for the kinds that are steps of it.
    solver : PythonFunction or None
        Takes a step that the explicit method cannot take.
    crossings : CrossingSteps or None
        Steps through the conditions of the model.
    """

    advance: Any
    observe: Any
    kind: int
    n_noise: int
    explicit: StepTolerances | None = None
    solver: Any = None
    crossings: Any = None

    def workspace(self, p: Vector, times: Vector) -> AbstractContextManager[CrossingWorkspace]:
        """Return the workspace of a pass through conditions."""
        return nullcontext(NO_CROSSINGS) if self.crossings is None else self.crossings.workspace(p, times)

    def raise_errors(self) -> None:
        """Raise the error that a Python function raised within a loop."""
        for function in (self.advance, self.observe, self.solver):
            if function is not None:
                function.raise_error()


@dataclass(frozen=True, slots=True, eq=False)
class Scheme:
    """Functions and arithmetic of a filter.

    Attributes
    ----------
    functions : Functions
    curvatures : tuple
        Second derivatives of rates and readings, or None.
    update : int
        Of `filtering.square_root_loop`; the plain loop has but one.
    per_step : bool
        Fixed steps: noise is drawn once a step; else it is Brownian.
    n_variables : int
        Observed variables.
    is_safe : bool
        Factors of covariances are kept.
    safe : callable or None
        Returns the scheme for a pass that broke down here.
    """

    functions: FilterFunctions
    curvatures: tuple[Any, Any]
    update: int
    per_step: bool
    n_variables: int
    is_safe: bool
    safe: Callable[[], Scheme] | None = None

    def model(self, crossings: CrossingWorkspace = NO_CROSSINGS) -> LoopModel:
        """Return the model in the form that loops take."""
        f = self.functions
        of_rates, of_readings, solver = (0 if g is None else g.address for g in (*self.curvatures, f.solver))
        tolerances = _NO_TOLERANCES if f.explicit is None else f.explicit
        options = f.kind, self.per_step, f.n_noise, self.n_variables, *tolerances
        return LoopModel(f.advance.address, f.observe.address, of_rates, of_readings, solver, *options, crossings)


_NO_TOLERANCES = StepTolerances(1.0, np.inf, np.empty(0))


@dataclass(frozen=True, slots=True, eq=False)
class Start:
    """Start of a filter.

    Attributes
    ----------
    x : ndarray, shape (n,)
    P : ndarray, shape (n, n)
    free : ndarray of int, shape (d,)
        States of whose start nothing is known; default: none.
    """

    x: Vector
    P: Matrix
    free: IntVector = field(default_factory=lambda: np.empty(0, dtype=np.intp))


class LoopInputs(NamedTuple):
    """Inputs of a loop besides model, schedule and start.

    Attributes
    ----------
    p : ndarray
        The parameters that the model's functions see.
    event_values : ndarray
        Values of the model's events; a last entry 0 stands for the resets.
    correlation : ndarray, shape (n_var, n_var) or (0, 0)
        Of the measurement errors; empty: independent.
    """

    p: Vector
    event_values: Vector
    correlation: Matrix


@dataclass(frozen=True, slots=True, eq=False)
class Pass(Stored):
    """Result of a pass.

    Attributes
    ----------
    nu, s : ndarray, shape (n_obs,)
        Conditional innovations and their variances.
    v : ndarray, shape (n_obs, d)
        Derivatives of nu to the free components of the start.
    node : int
        Where it broke down, -1 if it did not.
    reason, row : int
        Why (see `filtering.loop_arguments`), and at which row if it was one.
    record : Record or None
    is_safe : bool
        Square roots of covariances were kept, as asked or because the plain pass broke down.
    """

    nu: Vector
    s: Vector
    v: Matrix
    node: int
    reason: int
    row: int
    record: PassRecord | None
    is_safe: bool = False


def _empty_record(nodes: int, rows: int, n: int, together: int) -> PassRecord:
    return PassRecord(
        *(np.empty((nodes, n)), np.empty((nodes, n, n)), np.empty((nodes, n)), np.empty((nodes, n, n))),
        *(np.empty((nodes, n, n)), np.empty(rows), np.empty((rows, n)), np.empty(rows)),
        np.zeros((rows if together else 0, together)),
    )


_NO_RECORD = packed_once(_empty_record(0, 0, 0, 0))


def run_filter(scheme: Scheme, schedule: Schedule, start: Start, inputs: LoopInputs, record: bool = False) -> Pass:
    """Run a filter once; where it loses its digits, once more with factors of covariances.

    With `record` states, covariances and transitions are kept. A reading without error of a free state has no variance
    given the start; free states then get one of their own, on which what is not known at all does not depend.
    """
    run = _one_pass(scheme, schedule, start, inputs, record)
    if run.node >= 0 and run.reason == VARIANCE_NOT_POSITIVE and scheme.safe is not None:
        run = _one_pass(scheme.safe(), schedule, start, inputs, record)
    if run.node >= 0 and run.reason == VARIANCE_NOT_POSITIVE and len(start.free):
        spread = start.P.copy()
        spread[start.free, start.free] += np.mean(schedule.readings.values**2) or 1.0
        scheme = scheme if scheme.safe is None else scheme.safe()
        run = _one_pass(scheme, schedule, replace(start, P=spread), inputs, record)
    return run


def _one_pass(scheme: Scheme, schedule: Schedule, start: Start, inputs: LoopInputs, record: bool) -> Pass:
    written = None
    if record:
        together = int(np.max(np.diff(schedule.row_at), initial=0)) if scheme.is_safe else 0
        written = _empty_record(len(schedule.times), len(schedule.readings), len(start.x), together)
    with scheme.functions.workspace(inputs.p, schedule.times) as crossings:
        job = _job(scheme.model(crossings), scheme.update, schedule, start, inputs, written)
        words = packed(job)
        if scheme.is_safe:
            c_loop(square_root_loop.run, "the filter that keeps factors of covariances")(address(words))
        else:
            c_loop(loop.run, "the filter")(address(words))
    scheme.functions.raise_errors()
    node, reason, row = job.outcome.tolist()
    return Pass(job.nu, job.s, job.v, node, reason, row, written, scheme.is_safe)


def _job(
    model: LoopModel, update: int, schedule: Schedule, start: Start, inputs: LoopInputs, record: PassRecord | None
) -> LoopArguments:
    """Return the arguments of the loop for a pass, with the arrays nu, s and v that it writes."""
    p, event_values, correlation = inputs
    d, n_obs = len(start.free), len(schedule.readings)
    X = np.zeros((len(start.x), d))
    X[start.free, np.arange(d)] = 1.0
    return LoopArguments(
        *(model, schedule.arrays, update, _contiguous(start.x), _contiguous(start.P), X, _contiguous(p)),
        *(event_values[schedule.event_places], correlation, np.empty(n_obs), np.empty(n_obs), np.empty((n_obs, d))),
        *(np.empty(3, dtype=np.int64), record is not None, _NO_RECORD if record is None else record),
    )


def _contiguous(array: Vector) -> Vector:
    return np.ascontiguousarray(array, dtype=float)


# --- derivatives

TOGETHER = 16
"""Most parameters of one pass; of more there are several passes, on several threads."""
WORTH_THREADS = 5000
"""Least number of derivatives of innovations that is computed on several threads."""


def has_tangents(scheme: Scheme) -> bool:
    """Tell whether passes with derivatives can follow a scheme: the plain loop, compiled."""
    f = scheme.functions
    is_smooth = f.crossings is None and (f.explicit is not None or f.kind not in CARRYING)
    return f.advance.is_compiled and not scheme.is_safe and is_smooth


def passes_with_slopes(
    scheme: Scheme,
    schedule: Schedule,
    start: Start,
    inputs: LoopInputs,
    at: Directions,
    partials: tuple[PartialsFunction, PartialsFunction],
) -> list[loop.TangentArguments]:
    """Return the passes, to be run, that carry the derivatives of one entity's innovations and their variances along.

    The start is known, the errors are independent; the rest as in `run_filter`. The passes are the same whatever the
    number of threads; each takes what has no derivative once more. `partials` are those of the model's functions.
    """
    n_obs, n_par, n = len(schedule.readings), len(at.ahead), len(start.x)
    moved = np.append(np.ones(n, dtype=bool), (at.p_ahead != at.p_behind).any(axis=0))
    of_steps, of_readings = partials
    has_partials, out = scheme.functions.kind in STEPS_WITH_PARTIALS, []
    for first in range(0, n_par, TOGETHER):
        job = _job(scheme.model(), scheme.update, schedule, start, inputs, None)
        own = Directions(*(a[first : first + TOGETHER] for a in at))
        nu, s = np.empty((2, n_obs, len(own.ahead)))
        steps = of_steps.along(moved) if has_partials else NO_PARTIALS
        out.append(loop.TangentArguments(job, own, nu, s, steps, of_readings.along(moved)))
    return out


def run_with_slopes(passes: Sequence[loop.TangentArguments]) -> None:
    """Run passes with derivatives, of several entities, on the threads of this machine where that is worth it."""
    words = [packed(one) for one in passes]
    run = c_loop(loop.run_with_tangents, "the filter with derivatives")
    if sum(one.nu.size for one in passes) < WORTH_THREADS:
        for word in words:
            run(address(word))
    else:
        on_threads(run, [address(word) for word in words])


def innovation_slopes(passes: Sequence[loop.TangentArguments]) -> tuple[Vector, Vector, Matrix, Matrix] | None:
    """Return innovations, variances and the derivatives of both, (n_obs, n_par), of passes that `run_with_slopes` ran.

    None where one broke down.
    """
    if any(one.job.outcome[0] >= 0 for one in passes):
        return None
    nu, s = (np.concatenate([getattr(one, name) for one in passes], axis=1) for name in ("nu", "s"))
    slopes = passes[0].job.nu, passes[0].job.s, nu, s
    return slopes if all(np.isfinite(part).all() for part in slopes) else None
