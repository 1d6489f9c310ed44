"""Differential equations between two nodes: state, tangent and noise integral together, by a solver or exactly.

In the letters of the code, F = df/dx along the run and A A' = G Q G'::

    ode       x' = f,  Phi' = F Phi, Phi(0) = I,   Qd' = F Qd + Qd F' + A A', Qd(0) = 0      P+ = Phi P Phi' + Qd
    moment    x' = f,  Phi' = F Phi,  P' = F P + P F' + A A'
              of second order: x' = f + 1/2 sum_jk f_jk P_jk

They are one system of first order. An explicit method is tried first, in the compiled loop (`filtering.transition`).
Steps that it cannot take are taken in Python: the system, in symbols and compiled as a model is, is run by the compiled
engine, its parameters as inputs; if that fails, or if the model has no equations, by LSODA, with the same rates in
numbers. A run is cut at the kinks of forcings and where a condition of
time alone changes, so that neither is stepped over. Systems with conditions, and those of second order, stay in the
compiled loop, too (`CrossingSteps`): `compiled.switching` flips their modes where they cross, and steps are cut where
conditions of time and parameters alone do, which is found once a pass. Noise integrals and covariances are carried in
units of their size, so that one absolute tolerance fits them. Linear equations with constant coefficients need no
solver.

References
----------
Jazwinski (1970), ch. 6 and 9.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from fmepy.compiled.c_loops import address, loop_address
from fmepy.compiled.explicit_runs import Course, ExplicitRuns, Stretch
from fmepy.compiled.kernels import packed
from fmepy.compiled.llvm_code import NotWritableError
from fmepy.compiled.switching import Switches, run_stretch, with_room
from fmepy.errors import SimulationError
from fmepy.filtering.loop_arguments import CrossingWorkspace
from fmepy.filtering.run import FilterFunctions
from fmepy.filtering.statespace import PythonFunction, StateSpace
from fmepy.filtering.transition import ADAPTIVE, BY_FUNCTION, EXACT, MOMENTS, MOMENTS_BY_FUNCTION, StepTolerances
from fmepy.language.derivatives import derivative
from fmepy.language.equations import Equations, symbol
from fmepy.language.functions import holds_choices
from fmepy.language.nodes import ZERO
from fmepy.models.engines.base import SolverOptions
from fmepy.models.engines.explicit import CompiledStepper
from fmepy.models.engines.scipy_steppers import LsodaStepper
from fmepy.models.running.forcings import Forcing
from fmepy.models.running.system import InputLayout, System, build_system
from fmepy.models.running.time_switches import planned_crossings, planned_modes
from fmepy.models.running.timeline import Segment, Timeline, known_crossings, run_segments
from fmepy.models.running.tolerances import RELATIVE
from fmepy.models.running.watch_table import watch_table
from fmepy.types import Matrix, Vector

RTOL, ATOL = 1e-8, 1e-12
"""Largest tolerances; ATOL of a state of size one."""
_SIZE = "size of the noise"
_MOST_FLIPS = 1000
"""Most crossings of one step; a step with more is left to other solvers."""


@dataclass(frozen=True, slots=True, eq=False)
class SolverTolerances:
    """Tolerances of the solver: relative, absolute for a state of size one; sizes of the states; longest step."""

    rtol: float
    atol: float
    sizes: Vector
    max_step: float

    @classmethod
    def of(cls, options: SolverOptions, n: int, tightness: float = 1.0) -> SolverTolerances:
        """Return those of a model's own options, no larger than `RTOL` and `ATOL`.

        Parameters
        ----------
        n : int
            States of the filter: the model's, then sums over time.
        tightness : float
            Factor of all tolerances.
        """
        own = np.minimum(options.atol / RELATIVE, 1.0)
        own[np.isnan(own)] = 1.0  # fixed steps outside the filter
        rest = np.full(n - len(own), own.min())  # sums over time
        sizes = np.concatenate([own, rest])
        return cls(min(RTOL, options.rtol) * tightness, ATOL * tightness, sizes, options.max_step)

    @property
    def of_states(self) -> Vector:
        """Absolute tolerances of the state."""
        return np.asarray(self.atol * self.sizes)

    @property
    def of_tangent(self) -> Matrix:
        """Absolute tolerances of Phi, whose entry (i, j) has the size of state i over that of state j."""
        return np.asarray(self.atol * np.minimum(self.sizes[:, None] / self.sizes, 1.0))

    @property
    def of_noise(self) -> Matrix:
        """Absolute tolerances of the noise integral, or the covariance, in units of the largest."""
        relative = self.sizes / self.sizes.max()
        return np.asarray(self.atol * relative[:, None] * relative)


def is_exact(space: Any) -> bool:
    """Tell whether the transition of a model has a closed form: the matrix exponential."""
    return isinstance(space, StateSpace) and _is_constant(space)


def adaptive_functions(
    space: Any, forcings: tuple[Forcing, ...], moments: bool, curved: bool, tolerances: SolverTolerances
) -> FilterFunctions:
    """Return the functions of a filter that integrates its states adaptively (propagation "ode" and "moment").

    Parameters
    ----------
    space : StateSpace or UntracedSpace
    moments : bool
        The covariance is integrated with the state; else its tangent and a noise integral.
    curved : bool
        The mean includes the effect of the curvature of the rates.
    """
    advance, observe = space.functions()
    if not moments and is_exact(space):
        return FilterFunctions(advance, observe, EXACT, space.n_noise)
    n = len(space.states)
    inputs = [(n,), (len(space.parameters),), (len(space.forcings),)]
    by_solver = _BySolver(space, forcings, moments, curved, tolerances)
    solver = PythonFunction(by_solver.advance, 2, inputs, [(n,), (n, n), (n, n)])
    explicit = None if curved else _step_tolerances(space, tolerances)
    crossings = CrossingSteps.of(by_solver.compiled[1]) if explicit is None and advance.is_compiled else None
    if explicit is None and crossings is None:
        return FilterFunctions(solver, observe, MOMENTS_BY_FUNCTION if moments else BY_FUNCTION, n)
    kind = MOMENTS if moments else ADAPTIVE
    return FilterFunctions(advance, observe, kind, space.n_noise, explicit, solver, crossings)


# --- exactly


def _is_constant(space: StateSpace) -> bool:
    """Tell whether the rates are M x + b, and M, b and the noise depend on parameters alone.

    Of a choice between constants (a relay) the slopes alone are constant.
    """
    parts = [e for _, _, e in (*space.slopes(), *space.gains)]
    states = {symbol(s) for s in space.states}
    known = {symbol(k) for k in space.parameters}
    is_one_line = not holds_choices(e for e in space.rates if not e.free_symbols.isdisjoint(states))
    is_constant = all(e.free_symbols <= known for e in parts)
    return is_one_line and is_constant and all(e.free_symbols <= known | states for e in space.rates)


def covariance_factor(Q: Matrix) -> Matrix:
    """Return C with C C' = Q, of a covariance that may be singular; what rounding made negative is zero."""
    size = np.sqrt(np.maximum(np.diag(Q), 0.0))
    inverse = np.divide(1.0, size, out=np.zeros_like(size), where=size > 0)
    if not np.isfinite(Q).all():
        return np.full_like(Q, np.nan)
    values, vectors = np.linalg.eigh(0.5 * (Q + Q.T) * np.outer(inverse, inverse))
    factor: Matrix = size[:, None] * vectors * np.sqrt(np.maximum(values, 0.0))
    return factor


# --- by a solver


class _BySolver:
    """State, tangent and noise integral (or covariance) over a step by an adaptive solver.

    z = [x, Phi by rows, lower triangle of Qd or P by rows in units of size^2].
    """

    def __init__(
        self, space: Any, forcings: tuple[Forcing, ...], moments: bool, curved: bool, tolerances: SolverTolerances
    ) -> None:
        self._n, self._forcings, self._moments = len(space.states), forcings, moments
        self._low = np.tril_indices(self._n)
        self._space, self._curved = space, curved
        self._layout = InputLayout(len(space.parameters) + 1, len(forcings))
        self._tolerances = tolerances
        tangent, noise = tolerances.of_tangent.ravel(), tolerances.of_noise[self._low]
        self._atol: Vector = np.concatenate([tolerances.of_states, tangent, noise])
        self._timelines: dict[tuple[float, float], tuple[Timeline, tuple[Segment, ...]]] = {}

    @cached_property
    def _rates(self) -> _NumericRates:
        return _NumericRates(self._space, self._curved)

    @cached_property
    def _lsoda(self) -> LsodaStepper:
        own = self._tolerances
        return LsodaStepper(self._rates, SolverOptions("lsoda", own.rtol, self._atol, max_step=own.max_step))

    def advance(self, t: float, h: float, x: Vector, p: Vector, u: Vector, f: Vector, F: Matrix, A: Matrix) -> None:
        """Set f to the next state, F to Phi, A to a factor of Qd (or from P to the next P); NaN if all solvers fail."""
        n = self._n
        z = np.zeros(n + n * n + len(self._low[0]))
        z[:n], z[n : n + n * n] = x, np.eye(n).ravel()
        spread = self._rates.spread(t, x, p, u)
        size = float(np.sqrt(max(spread * h, np.diag(A).max() if self._moments else 0.0)))
        size = size if np.isfinite(size) and size > 0 else 1.0
        if self._moments:
            z[n + n * n :] = A[self._low] / size**2
        try:
            z = self._run(t, t + h, z, np.append(p, size))
        except SimulationError:
            f[:] = np.nan
            return
        f[:], F[:] = z[:n], z[n : n + n * n].reshape(n, n)
        covariance = np.zeros((n, n))
        covariance[self._low] = z[n + n * n :] * size**2
        covariance += np.tril(covariance, -1).T
        A[:] = covariance if self._moments else covariance_factor(covariance)

    def _run(self, start: float, end: float, z: Vector, p: Vector) -> Vector:
        timeline, segments = self._cut(start, end)
        system, stepper = self.compiled
        if stepper is not None and system is not None:
            inputs = np.zeros(system.layout.size + (len(system.watched) if stepper.watches_switches else 0))
            inputs[: len(p)] = p
            known = None if system.planned else segments
            try:
                return _last(run_segments(stepper, system, system.layout, timeline, known, z, inputs, None))
            except SimulationError:
                pass
        inputs = np.zeros(self._layout.size)
        inputs[: len(p)] = p
        if system is not None and system.planned:
            segments = timeline.segments([(at, -1) for at, _ in known_crossings(system, inputs, timeline)])
        return _last(run_segments(self._lsoda, None, self._layout, timeline, segments, z, inputs, None))

    @cached_property
    def compiled(self) -> tuple[System | None, CompiledStepper | None]:
        """The augmented system, and what runs it; None where it cannot be compiled."""
        if not self._space.is_traced:
            return None, None
        system = _augmented(self._space, self._curved)
        try:
            return system, CompiledStepper(system, self._tolerances.rtol, self._atol, self._tolerances.max_step)
        except NotWritableError:  # LSODA goes through the same system, its stops known
            return system, None

    def _cut(self, start: float, end: float) -> tuple[Timeline, tuple[Segment, ...]]:
        if (segments_of_step := self._timelines.get((start, end))) is None:
            timeline = Timeline.of(start, np.array([end]), self._forcings, np.empty(0))
            segments_of_step = self._timelines[start, end] = (timeline, timeline.segments())
        return segments_of_step


# --- through conditions


class CrossingSteps:
    """Workspaces for passes through the conditions of one augmented system; threads may share it.

    Parameters
    ----------
    stepper : CompiledStepper
        Of the augmented system, whose last parameter is the size of the noise.
    switches : Switches
        Its conditions.
    """

    def __init__(self, stepper: CompiledStepper, switches: Switches) -> None:
        self._stepper, self._switches, self._free = stepper, switches, list[tuple[CrossingWorkspace, Any]]()

    @classmethod
    def of(cls, stepper: CompiledStepper | None) -> CrossingSteps | None:
        """Return those of a system whose conditions, if any, can be watched in the compiled loop; None of others."""
        if stepper is None:
            return None
        switches = watch_table(stepper.system).switches
        return None if switches is None else cls(stepper, switches)

    @contextmanager
    def workspace(self, p: Vector, times: Vector) -> Iterator[CrossingWorkspace]:
        """Provide the workspace of a pass over times at the parameters p, which may be the first entries of more."""
        try:
            workspace, references = self._free.pop()  # of no other thread's
        except IndexError:
            workspace, references = self._build()
        system, start, last = self._stepper.system, float(times[0]), float(times[-1])
        if system.planned:
            theta = np.append(p[: workspace.n_parameters], 1.0)
            cuts = np.unique([at for at, _ in planned_crossings(system, theta, start, last)])
            ends = np.concatenate([[start], cuts, [max(last, start)]])
            modes = planned_modes(system, theta, list(itertools.pairwise(ends)))
            workspace = workspace._replace(cuts=cuts, modes=np.ascontiguousarray(modes))
        workspace.ended[:] = 0.0  # no step is known
        yield workspace
        self._free.append((workspace, references))

    def _build(self) -> tuple[CrossingWorkspace, Any]:
        """Return a workspace, and the objects that must live as long."""
        s, at = self._stepper, np.zeros(1)
        course = Course(0.0, at, 0, (Stretch(0.0, at, 1),))
        runs = ExplicitRuns(replace(s.functions, stiff=None), s.solver, course, s.n_inputs)
        arrays, at_arrays, references = runs.arrays(np.zeros((1, runs.n_inputs)))
        own = with_room(self._switches, _MOST_FLIPS)
        words, layout = packed(own), s.system.layout
        workspace = CrossingWorkspace(
            loop_address(run_stretch, "the filter through conditions"), runs.at_course, at_arrays, address(words),
            layout.n_parameters - 1, layout.lines.start, layout.origin, layout.modes.start, runs.tables.begins,
            runs.tables.times, arrays.inputs, arrays.values, arrays.ended, np.array(s.system.planned, dtype=np.int64),
            np.zeros(0), np.zeros((1, 0)),
        )  # fmt: skip
        return workspace, (runs, arrays, references, own, words)


def _step_tolerances(space: Any, tolerances: SolverTolerances) -> StepTolerances | None:
    """Return the tolerances of the explicit method; None without equations or with conditions."""
    if not space.is_traced or holds_choices([*space.rates, *(e for _, _, e in space.gains)]):
        return None
    atol = np.concatenate([tolerances.of_states, tolerances.of_tangent.ravel(), tolerances.of_noise.ravel()])
    return StepTolerances(tolerances.rtol, float(tolerances.max_step), atol)


def _last(rows: Matrix) -> Vector:
    row: Vector = rows[-1]
    return row


class _NumericRates:
    """The augmented right-hand side in numbers, from a model's own functions: ``rates(t, z, inputs)``."""

    def __init__(self, space: Any, curved: bool) -> None:
        self._n, self._k, self._prepared = len(space.states), len(space.parameters), space.prepared
        self._advance = space.functions()[0]
        self._bend = space.curvatures()[0] if curved else None
        self._layout = InputLayout(self._k + 1, len(space.forcings))
        self._q, self._low = space.n_noise, np.tril_indices(self._n)

    def spread(self, t: float, x: Vector, p: Vector, u: Vector) -> float:
        """Return the largest variance of the noise in a unit of time."""
        return float(np.max(np.sum(self._at(t, x, p, u)[2] ** 2, axis=1), initial=0.0))

    def _at(self, t: float, x: Vector, p: Vector, u: Vector) -> tuple[Vector, Matrix, Matrix]:
        """Return f, F and A."""
        f, F, A = np.zeros(self._n), np.zeros((self._n, self._n)), np.zeros((self._n, self._q))
        self._advance(t, 0.0, x, self._prepared(p), u, f, F, A)
        return f, F, A

    def __call__(self, t: float, z: Vector, inputs: list[float]) -> Vector:
        n, k = self._n, self._k
        x, p = np.ascontiguousarray(z[:n]), np.array(inputs[:k])
        u = np.array(self._layout.forcing_values(t, inputs), dtype=float)
        f, F, A = self._at(t, x, p, u)
        P = np.zeros((n, n))
        P[self._low] = z[n + n * n :]
        P += np.tril(P, -1).T
        FP = F @ P
        rate = FP + FP.T + A @ A.T / inputs[k] ** 2
        out = np.concatenate([f, (F @ z[n : n + n * n].reshape(n, n)).ravel(), rate[self._low]])
        if self._bend is not None:
            FF = np.zeros((n, n, n))
            self._bend(t, 0.0, x, self._prepared(p), u, FF)
            out[:n] += 0.5 * np.einsum("ijk,jk->i", FF, P) * inputs[k] ** 2
        if not np.isfinite(out).all():
            out[:] = np.nan  # LSODA accepts a step of which only some components have no value
        return out


@lru_cache(maxsize=32)
def _augmented(space: StateSpace, curved: bool) -> System:
    """Return the augmented system."""
    return build_system(_equations(space, curved), (), True)


def _equations(space: StateSpace, curved: bool) -> Equations:
    """Return x, Phi and the noise integral or covariance as one model."""
    n = len(space.states)
    size = symbol(_SIZE)
    F = np.full((n, n), ZERO, dtype=object)
    for i, j, e in space.slopes():
        F[i, j] = e
    A = np.full((n, space.n_noise), ZERO, dtype=object)
    for i, j, e in space.gains:
        A[i, j] = e / size
    names = [[f"tangent {i} {j}" for j in range(n)] for i in range(n)]
    low = [(i, j) for i in range(n) for j in range(i + 1)]
    spread = {(i, j): f"spread {i} {j}" for i, j in low}
    Phi = np.array([[symbol(name) for name in row] for row in names], dtype=object)
    P = np.array([[symbol(spread[max(i, j), min(i, j)]) for j in range(n)] for i in range(n)], dtype=object)
    FP, noise = F @ P, A @ A.T
    rates = list(space.rates)
    if curved:
        for i, j, e in space.slopes():
            for k, s in enumerate(space.states):
                rates[i] += derivative(e, symbol(s)) * P[j, k] * size**2 / 2
    rates += list((F @ Phi).ravel())
    rates += [FP[i, j] + FP[j, i] + noise[i, j] for i, j in low]
    states = (*space.states, *(name for row in names for name in row), *spread.values())
    return Equations("ode", states, (*space.parameters, _SIZE), space.forcings, tuple(rates), (), space.time)
