"""The compiled engine: whole runs in machine code, by an explicit method and, where a run is stiff, a stiff one.

A run of a small model takes 20 to 200 us, as nothing has to be set up. It begins with Dormand and Prince's method, and
changes to Rodas5P where stability limits the explicit steps, and back (`compiled.dormand_prince.drive`). The number of
steps is limited; a run that cannot be finished is returned with the reason, and another engine takes it over.

The loops are compiled once for all models and cached. For each model only its rates z' = F(t, z; inputs) are compiled,
as straight-line code. With sensitivities this code computes the nonzero entries of df/dy and df/dp, and one loop over
the parameters sums ``s_j' = (df/dy) s_j + k_j df/dp_j``. What the stiff method needs besides (the Jacobian and df/dt,
with sensitivities also second derivatives, see `compiled.rosenbrock`) is compiled when a run first needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np

from fmepy.compiled import status
from fmepy.compiled.delay_loop import MOST_SHORTEST
from fmepy.compiled.delayed_rates import DelayTables
from fmepy.compiled.explicit_runs import Course, ExplicitRuns, ModelFunctions, RunByHits, Solver, Stretch
from fmepy.compiled.llvm_code import ExpressionWriter, LlvmProgram, NotWritableError, Place
from fmepy.compiled.llvm_operations import of_lanes
from fmepy.compiled.machine import Code, compiled
from fmepy.compiled.python_code import scalar_function
from fmepy.compiled.statements import slow_parts
from fmepy.errors import SimulationError
from fmepy.language.derivatives import derivatives_of, entries_of, gradients
from fmepy.language.equations import Equations, symbol, symbols
from fmepy.language.nodes import ONE, ZERO, Node, add, as_node, call, choose_above, fresh, substituted
from fmepy.models.definition.definition import Definition
from fmepy.models.engines import stiff
from fmepy.models.engines.adjoint import SweptRuns, is_swept
from fmepy.models.engines.base import MOST_STEPS, Engine, NotWholeError, SolverOptions, failure_of
from fmepy.models.engines.grids import GridStepper, why_no_band
from fmepy.models.engines.stiff import StiffCode
from fmepy.models.running.events import EVENT_VALUE, Root, kinds_of
from fmepy.models.running.problem import InitialValueProblem
from fmepy.models.running.system import System, build_system, delays_of, scales_of
from fmepy.models.running.watch_table import watch_table
from fmepy.types import BoolVector, Cube, Matrix, Vector

MOST_IN_LANES = 500_000
"""Longest program of rates (in characters) that is also compiled for lanes: about 12,000 operations, or a second."""


class CompiledStepper:
    """The compiled loop on one system.

    Parameters
    ----------
    system : System
        With its conditions replaced by modes.
    rtol : float
    atol : float or sequence of float
        One value, or one for each state.
    max_step : float
        Longest step.
    only : {"", "explicit", "stiff"}
        The only method to use; "explicit" returns a stiff run unfinished. Empty: both.
    """

    name = "compiled"

    def __init__(self, system: System, rtol: float, atol: Any, max_step: float = np.inf, only: str = "") -> None:
        self._arguments, self.system = (system, rtol, atol, max_step, only), system
        self.watches_switches = system.n_watched > 0
        blocks = len(system.z) // system.n_states
        all_atol = np.tile(np.broadcast_to(np.asarray(atol, dtype=float), (system.n_states,)), blocks)
        self.solver = Solver(system.n_states, rtol, all_atol, max_step, MOST_STEPS)
        self.functions, self.n_inputs = _functions(system), _n_inputs(system)
        if only:
            jacobian = (
                StiffCode(partial(stiff.stiff_plan, system, _prepared(system)), only=True) if only == "stiff" else None
            )
            self.functions = replace(self.functions, stiff=jacobian)
        self._free: dict[int, list[ExplicitRuns]] = {}

    def advance(self, start: float, z: Vector, inputs: Vector, times: Vector) -> tuple[Vector, Matrix]:
        """Return (times reached, z at them); see `engines.base`."""
        free = self._free.setdefault(len(times), [])
        try:
            runs = free.pop()  # no other thread holds it
            runs.go_along(start, times)
        except IndexError:
            course = Course(start, times, 0, (Stretch(start, times, len(times)),))
            runs = ExplicitRuns(self.functions, self.solver, course, self.n_inputs)
        out, (ended, n, reached, *worst) = runs.one(inputs, z)
        free.append(runs)
        if ended == status.DONE:
            return times, out
        if ended == status.CROSSED:
            return np.append(times[: int(n) - 1], reached), out[: int(n)]
        raise failure_of(ended, reached, self.system.z, MOST_STEPS, worst)

    def along(self, course: Course, definition: Definition) -> WholeRuns:
        """Return whole runs along a course, from parameters to outputs; see `engines.base`."""
        return WholeRuns(self, course, definition)

    def __reduce__(self) -> tuple[Any, ...]:
        return CompiledStepper, self._arguments  # addresses mean nothing to another process


class WholeRuns:
    """Whole runs of a model, without Python between its start and its outputs.

    Raises
    ------
    NotWritableError
        An initial value, the value of an event, or an output has a function that cannot be compiled.
    """

    def __init__(self, stepper: CompiledStepper, course: Course, definition: Definition) -> None:
        self._arguments, self._definition = (stepper, course, definition), definition
        self._system, d = stepper.system, definition
        system = self._system
        n, m, k = system.n_states, len(d.outputs), len(system.names)
        kinds, past = kinds_of(d.events)[0], d.past if system.delays else ()
        code = _surrounding_code(system, d.groups, (d.initial, tuple(e for _, e in d.outputs), past), kinds)
        functions = replace(
            stepper.functions,
            code=(stepper.functions.code, code),
            values=code.address("values"),
            outputs=code.address("outputs") if m else 0,
            n_outputs=m * (1 + k),
            changes=tuple(code.address(f"change{i}") for i in range(len(kinds))),
        )
        delays = _delays(system, code) if system.delays else None
        self._table = watch_table(system) if system.n_watched and not system.delays else None  # it owns its code
        switches = None if self._table is None else self._table.switches
        if self._table is not None and switches is None:
            raise NotWritableError("a condition of a switch, or what a root event does")
        switches = switches and switches._replace(began=course.start)
        self._runs = ExplicitRuns(functions, stepper.solver, course, stepper.n_inputs, delays, switches)
        # a row holds states, their slopes, outputs, their slopes; reordered: all values, then the slopes of each
        of_states = np.arange(n * (1 + k)).reshape(1 + k, n)
        of_outputs = of_states.size + np.arange(m * (1 + k)).reshape(1 + k, m)
        self._in_row = both = np.concatenate([of_states, of_outputs], axis=1)
        self._order, self._shape = np.concatenate([both[0], both[1:].T.ravel()]), (len(course.rows), n + m, k)
        self._inputs, self._scales = np.zeros(stepper.n_inputs), system.layout.scales
        self._places = np.array([d.parameters.index(name) for name in system.names], dtype=np.intp)

    def one(self, p: Vector) -> Matrix:
        """Return states and outputs, shape (n_time, n_var); p holds all parameters of the model."""
        out, (ended, _, reached, *worst) = self._runs.one(p)
        if ended != status.DONE:
            raise NotWholeError if self.has_switches else self._failure(ended, reached, p, worst)
        return out

    @property
    def has_switches(self) -> bool:
        """Whether modes flip within a run; an unfinished run is then repeated stretch by stretch."""
        return self._table is not None

    def _failure(self, ended: float, reached: float, p: Vector, worst: Sequence[float] = ()) -> SimulationError:
        of_delay = _delay_failure(ended, reached, self._system, self._definition, p)
        return of_delay or failure_of(ended, reached, self._system.z, MOST_STEPS, worst)

    def by_hits(self, p: Vector) -> tuple[RunByHits, Callable[[list[float]], SimulationError]]:
        """Return a run of a model with delays from hit to hit of its root events, and the error of one that failed."""
        return self._runs.by_hits(self._inputs_at(p)), lambda ended: self._failure(ended[0], ended[2], p)

    def grow(self) -> None:
        """Give further runs more room for their past."""
        self._runs.grow()

    def _inputs_at(self, p: Vector) -> Vector:
        inputs = self._inputs.copy()
        inputs[: len(p)], inputs[self._scales] = p, scales_of(p[self._places])
        return inputs

    def with_slopes(self, p: Vector) -> tuple[Matrix, Cube]:
        """Return them, and their derivatives to the parameters that the system was made for, (n_time, n_var, n_par)."""
        return self.parts_of(self.one(self._inputs_at(p)), p)

    def parts_of(self, rows: Matrix, p: Vector) -> tuple[Matrix, Any]:
        """Return values and derivatives from the rows of a run (None without)."""
        out, (_, n_var, k) = rows.take(self._order, axis=1), self._shape
        if not k:
            return out, None
        S = out[:, n_var:].reshape(len(out), n_var, k) / scales_of(p[self._places])
        return out[:, :n_var], S

    def many_with_slopes(self, P: Matrix) -> tuple[Cube, Any, BoolVector]:
        """Return the runs of `many`, their derivatives as in `with_slopes`, and which runs are complete."""
        inputs, scales = np.tile(self._inputs, (len(P), 1)), scales_of(P[:, self._places])
        inputs[:, : P.shape[1]], inputs[:, self._scales] = P, scales
        out, ended = self._runs.many(inputs)
        out, (n_time, n_var, k) = out.take(self._order, axis=2), self._shape
        S = out[:, :, n_var:].reshape(len(P), n_time, n_var, k) / scales[:, None, None, :]
        return out[:, :, :n_var], S, ended[:, 0] == status.DONE

    def many(self, P: Matrix) -> tuple[Cube, BoolVector]:
        """Return states and outputs of many runs, shape (n_run, n_time, n_var), and which runs are complete."""
        out, ended = self._runs.many(P)
        return out, ended[:, 0] == status.DONE

    def swept(self, names: tuple[str, ...]) -> SweptRuns | None:
        """Return runs with an adjoint sweep to these parameters (no sensitivities); None if the model allows none."""
        if not is_swept(self._system, self._definition):
            return None
        stepper, course, definition = self._arguments
        changes = [int(change[4]) for change in course.changes]
        try:
            return SweptRuns(self._runs, changes, stepper.n_inputs, self._system, definition, names)
        except NotWritableError:
            return None

    @property
    def for_simultaneous_runs(self) -> Any:
        """Runs, inputs, places of parameters and scales, places in a row, for `boundary.simultaneous_runs`."""
        inputs, parms = self._inputs.copy(), self._definition.parms
        inputs[: len(parms)] = parms
        return self._runs, inputs, self._places, self._scales, self._in_row

    def __reduce__(self) -> tuple[Any, ...]:
        return WholeRuns, self._arguments


@lru_cache(maxsize=64)
def _surrounding_code(
    system: System, groups: tuple[tuple[str, ...], ...], of_states: tuple[tuple[Any, ...], ...], kinds: tuple[Any, ...]
) -> Code:
    """Compile what is computed around the solver: ``values``, ``outputs``, ``change0``, ...; see `ModelFunctions`.

    `of_states` are the initial values, the outputs and the past.

    Initial values, outputs and the value of every kind of event are followed by their derivatives by each requested
    parameter, times its scale. Delays add ``delays`` and ``history``, see `delayed_rates.DelayTables`.
    """
    n, ((time,), _, parameters, forcings, _), (initial, outputs, past) = system.n_states, groups, of_states
    lags, n_delays = list(system.inputs[system.layout.lags]), len(system.delays)
    y, p = [*system.z[:n], *lags[:n_delays]], [symbol(name) for name in system.names]
    sources = [[as_node(v) for v in initial], substituted(outputs, system.lags), [d.tau for d in system.delays]]
    sources += [[as_node(e) for e in past], *([e] for e in kinds)]
    slopes = [gradients(expressions, [*y, *p]) for expressions in sources]  # of all at once: common parts are shared
    columns = [list(expressions) for expressions in sources]
    for j, k in enumerate(p, start=1):
        scale = choose_above(call("abs", k), ZERO, call("abs", k), ONE)  # as in `scales_of`
        moved = dict(zip(y, [*system.z[j * n : (j + 1) * n], *lags[j * n_delays : (j + 1) * n_delays]], strict=True))
        moved[k] = scale
        for out, gradients_of in zip(columns, slopes, strict=True):
            out += [add(ZERO, *(d * moved[x] for x, d in g.items() if x in moved)) for g in gradients_of]
    values, rows, delays, history, *changed = columns
    where: dict[Any, Place] = {symbol(name): ("q", i) for i, name in enumerate((*parameters, *forcings))}
    program = LlvmProgram(["t"], ["z", "q", "out"])
    program.function("values", [("out", i, v) for i, v in enumerate(values)], where)
    where = {**where, symbol(time): "t"}
    if past:
        history += derivatives_of(sources[3], symbol(time))
        program.function("history", [("out", i, e) for i, e in enumerate(history)], where)
    where |= {z: ("z", i) for i, z in enumerate(system.z)}
    program.function("delays", [("out", i, e) for i, e in enumerate(delays)], where)
    n_read = len(parameters) + len(forcings)
    where |= {lag: ("q", n_read + i) for i, lag in enumerate(lags)}
    program.function("outputs", [("out", i, e) for i, e in enumerate(rows)], where)
    n_inputs = _n_inputs(system)
    where |= {symbol(name): ("q", n_inputs + i) for i, name in enumerate((*forcings, EVENT_VALUE))}
    for i, column in enumerate(changed):
        program.function(f"change{i}", [("out", j, e) for j, e in enumerate(column)], where)
    return compiled(program.text())


def _delays(system: System, around: Code) -> DelayTables:
    states, varies = (np.array(a, dtype=np.int64) for a in ([d.state for d in system.delays], system.varying_delays))
    return DelayTables(around.address("delays"), around.address("history"), system.layout.lags.start, states, varies)


def _delay_failure(
    ended: float, reached: float, system: System, definition: Definition, p: Vector
) -> SimulationError | None:
    """Return the error of a run that a delay ended, with the delay's name; None if it ended otherwise."""
    if system.delays and ended == status.STIFF:
        why = "the model is stiff here, and models with delays run on the explicit solver alone"
        return SimulationError(why, time=reached)
    varying = [d for d, varies in zip(system.delays, system.varying_delays, strict=True) if varies]
    if ended == status.LOST_DELAY:
        names = " or ".join(dict.fromkeys(str(d.tau) for d in varying))
        why = f"the delay {names} becomes zero here, or has no value: a delay that varies in a run must stay positive"
        return SimulationError(why, time=reached)
    if ended not in (status.NO_DELAY, status.SHORT_DELAY):
        return None
    fixed = [d for d in system.delays if d not in varying]
    taus = scalar_function(symbols(definition.parameters), [d.tau for d in fixed])(p.tolist())
    if ended == status.NO_DELAY:
        k = next(i for i, tau in enumerate(taus) if not 0 <= tau < np.inf)
        return SimulationError(f"the delay {fixed[k].tau} is {taus[k]:g}; a delay must be finite and not negative")
    k = min((i for i in range(len(taus)) if taus[i] > 0), key=lambda i: float(taus[i]))
    return SimulationError(
        f"the delay {fixed[k].tau} is {taus[k]:g}, which is less than one part in {MOST_SHORTEST} of the run, "
        "and no step may be longer than a delay: make it 0, or the run shorter"
    )


# --- the rates of a model


@lru_cache(maxsize=64)
def _functions(system: System) -> ModelFunctions:
    """Return the rates and conditions of a system, compiled."""
    code, n_prepared = compiled(_program(system)), len(_entries(system).slow)
    jacobian = None if system.delays else StiffCode(partial(stiff.stiff_plan, system, _prepared(system)))
    if system.algebraic and (jacobian is None or jacobian() is None):
        raise SimulationError("the model has algebraic states, and its Jacobian is too large or cannot be compiled")
    rates, watch, prepare = (code.address(name) for name in ("rates", "watch", "prepare"))
    lanes = None if system.delays or system.algebraic or system.n_watched else partial(_lanes, system)
    return ModelFunctions(rates, watch, system.n_watched, code, prepare, n_prepared, stiff=jacobian, lanes=lanes)


class _Entries(NamedTuple):
    """Expressions from which the rates and conditions of a system are computed.

    Attributes
    ----------
    F, G, D : list of (int, int, Node)
        Row, column and expression of the nonzero entries of df/dy, df/dlag and df/dp.
    conditions : list of Node
        The watched conditions; their offsets follow the inputs.
    slow : list of Node
        Parts of all these that depend on the parameters alone, computed once a run; they follow the offsets.
    """

    F: list[tuple[int, int, Node]]
    G: list[tuple[int, int, Node]]
    D: list[tuple[int, int, Node]]
    conditions: list[Node]
    slow: list[Node]


@lru_cache(maxsize=64)
def _entries(system: System) -> _Entries:
    rates, conditions = system.model_rates, list(system.watched_expressions)
    F = entries_of(rates, system.z[: system.n_states]) if system.names else []
    G = entries_of(rates, list(system.lags.values())) if system.names else []
    D = entries_of(rates, [symbol(k) for k in system.names])
    expressions = [*rates, *(e for _, _, e in (*F, *G, *D)), *conditions]
    slow = slow_parts(expressions, system.inputs[: system.layout.n_parameters])
    return _Entries(F, G, D, conditions, slow)


def _n_inputs(system: System) -> int:
    return system.layout.size + system.n_watched + len(_entries(system).slow)


def _prepared(system: System) -> tuple[tuple[Node, Place], ...]:
    """Return the parts that are computed once a run, and their places among the inputs."""
    first = system.layout.size + system.n_watched
    return tuple((e, ("q", first + i)) for i, e in enumerate(_entries(system).slow))


@lru_cache(maxsize=64)
def _lanes(system: System) -> Code | None:
    """Return the compiled rates of several runs at once, see `compiled.lanes`; None if they cannot be compiled."""
    program = _program(system, branches=False)
    try:
        return compiled(of_lanes(program)) if len(program) < MOST_IN_LANES else None
    except RuntimeError:  # a user's function, whose LLVM code does not work on vectors
        return None


@lru_cache(maxsize=64)
def _program(system: System, branches: bool = True) -> str:
    """Return the program of a system's rates, ``rates(t, z, q, out)``, and conditions, ``watch``.

    `q` holds the inputs, then the offsets, then the parts that ``prepare`` computes; conditions are g - offset. With
    `branches` False both sides of every choice are computed.

    Raises
    ------
    NotWritableError
        An expression has a function that cannot be compiled.
    """
    n, parts = system.n_states, _entries(system)
    offsets = [fresh(f"offset{k}") for k in range(system.n_watched)]
    where: dict[Any, Place] = {s: ("q", i) for i, s in enumerate([*system.inputs, *offsets])}
    program = LlvmProgram(["t"], ["z", "q", "out"], branches)
    if parts.slow:
        program.function("prepare", [("out", i, e) for i, e in enumerate(parts.slow)], where)
    where |= {system.time: "t", **{s: ("z", i) for i, s in enumerate(system.z[:n])}} | dict(_prepared(system))

    def sensitivities(part: ExpressionWriter) -> None:
        if system.names:
            _add_sensitivities(part, system, parts.F, parts.G, parts.D)

    of_rates = [("out", i, e) for i, e in enumerate(system.model_rates)]
    needed = [e for _, _, e in (*parts.F, *parts.G, *parts.D)]
    program.function("rates", of_rates, where, needed, sensitivities)
    conditions = [g - o for g, o in zip(parts.conditions, offsets, strict=True)]
    program.function("watch", [("out", k, g) for k, g in enumerate(conditions)], where)
    return program.text()


def _add_sensitivities(
    part: ExpressionWriter,
    system: System,
    F: list[tuple[int, int, Node]],
    G: list[tuple[int, int, Node]],
    D: list[tuple[int, int, Node]],
) -> None:
    """Add the loop over the parameters, s_j' = F s_j + G l_j + k_j D_j; block 1 + j of z and out holds s_j.

    G and l_j are df/dlag and the sensitivities of the lagged values, see `compiled.delay_loop`.
    """
    n, layout, n_delays = system.n_states, system.layout, len(system.delays)
    slopes = {(i, k): part.value(e) for i, k, e in F}
    of_lags = {(i, k): part.value(e) for i, k, e in G}
    sources = [(i, j, part.value(e)) for i, j, e in D]
    with part.loop(n, n * (1 + len(system.names)), n) as b:
        s = {k: part.load("z", part.emit(f"add i64 {b}, {k}")) for k in sorted({k for _, k in slopes})}
        read = {}
        if of_lags:
            at = part.emit(f"mul i64 {part.emit(f'udiv i64 {b}, {n}')}, {n_delays}")
            read = {k: part.load("q", part.emit(f"add i64 {at}, {layout.lags.start + k}")) for k in range(n_delays)}
        for i in range(n):
            terms = [part.emit(f"fmul double {v}, {s[k]}") for (row, k), v in slopes.items() if row == i]
            terms += [part.emit(f"fmul double {v}, {read[k]}") for (row, k), v in of_lags.items() if row == i]
            part.store(part.total(terms), "out", part.emit(f"add i64 {b}, {i}"))
    for i, j, v in sources:
        source = part.emit(f"fmul double {part.load('q', layout.scales.start + j)}, {v}")
        part.add(source, "out", n * (1 + j) + i)


# --- the engine's entries in the registry


def _refuses(equations: Equations, roots: tuple[Root, ...] = ()) -> str:
    if equations.algebraic and (len(equations.states) > stiff.MOST_STIFF_STATES or delays_of(equations)):
        return f"its method for algebraic states allows no delays, and at most {stiff.MOST_STIFF_STATES} states"
    try:
        _program(build_system(equations, (), True, roots=roots, watches_lines=True))
    except NotWritableError as error:
        return f"it cannot compile {error}"
    return ""


def _refuses_explicit(equations: Equations, roots: tuple[Root, ...] = ()) -> str:
    if equations.algebraic:
        return "its steps are explicit, and the model has algebraic states"
    return _refuses(equations, roots)


def stepper(problem: InitialValueProblem, options: SolverOptions) -> CompiledStepper | GridStepper:
    """Return the compiled loop on a problem."""
    only = {EXPLICIT.methods[0]: EXPLICIT.name, STIFF.methods[0]: STIFF.name}.get(options.method, "")
    if problem.system is None:
        return GridStepper(problem, options.rtol, options.atol, options.max_step, only)
    return CompiledStepper(problem.system, options.rtol, options.atol, options.max_step, only)


ENGINE = Engine(
    "compiled",
    ("switching",),
    stepper,
    needs_equations=True,
    refuses=_refuses,
    refuses_arrays=why_no_band,
    keeps_past=True,
    watches_switches=True,
    rank=1,
    has_mass=("switching",),
)
EXPLICIT = replace(ENGINE, name="explicit", methods=("dopri5",), rank=None, has_mass=(), refuses=_refuses_explicit)
STIFF = replace(ENGINE, name="stiff", methods=("rodas5p",), rank=None, has_mass=("rodas5p",), keeps_past=False)
"""The same loop, restricted to one of its methods."""
