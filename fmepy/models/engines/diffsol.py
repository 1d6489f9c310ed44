"""The compiled engine: pydiffsol (Rust, LLVM), variable-order BDF.

A `System` is written as DiffSL (`engines.diffsl`). Facts that the code rests on, each pinned by a canary test
(pydiffsol 0.6.2): a ``stop`` without ``reset`` ends the solve at the crossing, whose time and state are its last row,
and one that is not reached changes nothing; `t0`, `rtol`, `atol` may be set between solves; failures are RuntimeErrors
whose text carries the time. The ``klu`` solver kills the process and is never used.

What BDF is worth. At one tolerance it is less accurate than LSODA on orbits that magnify errors: at rtol = atol = 1e-9
the largest error is 1.2e-3 against 6e-5 on the Arenstorf orbit, and 1.3e-4 against 1e-5 on the Pleiades. That is the
method and nothing else: other codes of BDF err as much (VODE 1.1e-3 and 2.1e-4, scipy 6e-4 and 1e-4), the error is the
same at the solver's own steps as between them, so interpolation adds none of it, and a fresh Jacobian in every step
with more Newton iterations changes less than a third. LSODA uses Adams' method there, up to order 12.
"""

from __future__ import annotations

import logging
import re
import threading
from functools import lru_cache
from typing import Any

import numpy as np

from fmepy.compiled.status import has_exploded
from fmepy.errors import SimulationError
from fmepy.expressions.equations import Equations
from fmepy.models.engines.base import Engine, SolverOptions
from fmepy.models.engines.diffsl import NotCompilableError, diffsl_code
from fmepy.models.running.problem import Problem
from fmepy.models.running.root_events import Root
from fmepy.models.running.system import System, build_system
from fmepy.types import Matrix, Vector

EXPLICIT = ("tsit45",)
"""Methods that cannot solve algebraic equations."""
MOST_WORK = 4_000_000
"""Steps times equations, some seconds, beyond which a run is given back: the solver has no limit of its own, and cannot
be interrupted."""
TRIED = 50
"""Part of these steps (one in so many) that are made before a run is given back for those that are still to come."""
GROWN = 100.0
"""Growth beyond which a run is stopped and its rest looked into: of the largest state at the start, or of atol/rtol."""
MORE = 10.0
"""The same of the largest state of runs that came to their end."""
FIRST_PIECE, LONGER = 1e-6, 4.0
"""The first piece of what is looked into, part of the whole; how much longer the next may be."""
A_PIECE = 10_000
"""Steps that a piece should take."""
FAST = 3e4
"""Rates that would change a state by more than this many times its size over the run are looked into first."""
FASTER = 10.0
"""Rates that grow by this factor with time alone: all of the run is looked into."""
NEAR = 3.0
"""Parameters within this factor of those of a run that came to its end are not looked into again."""
MOST_ENDS = 64
"""Ends of runs for which such parameters are remembered."""
JUST_BEFORE = 1e-10
"""Part of a failed run that is left out when it is looked at again: at the very end it would fail again."""


def is_available() -> bool:
    """Tell whether pydiffsol can be imported here."""
    try:
        import pydiffsol  # noqa: F401  # asked for nothing but its presence
    except ImportError:
        return False
    return True


class _Solver:
    """A compiled system; its lock keeps threads from mixing their tolerances and start times.

    Attributes
    ----------
    ended : dict of (rtol, time) to ndarray, shape (2, n_parameters)
        By the end of runs the parameters between which they came to it.
    """

    def __init__(self, code: str, method: str) -> None:
        self.lock = threading.RLock()  # that of the states alone is asked within its own runs
        self.ended: dict[tuple[float, float], Matrix] = {}
        self._arguments = (code, method)
        self._settings = (1e-6, 1e-6, 0.0)
        self._compile()

    def _compile(self) -> None:
        import pydiffsol as ds

        code, method = self._arguments
        self._ode = ds.Ode(code, ode_solver=getattr(ds, method))
        if "M_i" in code:  # by an old Jacobian a correction may be small, and no equation of a fast equilibrium solved
            self._ode.options.update_rhs_jacobian_after_steps = 1

    def begin(self, rtol: float, atol: float, start: float) -> None:
        """Set tolerances and the time at which runs start."""
        self._settings = (rtol, atol, start)
        self._ode.rtol, self._ode.atol, self._ode.t0 = self._settings

    def call(self, name: str, *arguments: Any) -> Any:
        """Return what a method of pydiffsol gives; a panic, which is no Exception in Python, is a RuntimeError."""
        try:
            return getattr(self._ode, name)(*arguments)
        except BaseException as error:
            if type(error).__name__ != "PanicException":
                raise
            self._compile()  # a panic leaves pydiffsol's own lock held for ever: no further call would be answered
            self.begin(*self._settings)
            raise RuntimeError(str(error)) from None


@lru_cache(maxsize=32)
def _compiled(code: str, method: str) -> _Solver:
    """Compile DiffSL once a process."""
    for name in ("diffsol", "diffsl"):  # they tell every solve at INFO, which would drown what we say there
        quiet = logging.getLogger(name)
        if quiet.level == logging.NOTSET:
            quiet.setLevel(logging.WARNING)
    return _Solver(code, method)


def _between(p: Vector, ends: Matrix) -> bool:
    return bool(((p >= ends[0]) & (p <= ends[1])).all())


_TIME = re.compile(r"time = ([-+0-9.eE]+)")


class DiffsolStepper:
    """pydiffsol on one system.

    Parameters
    ----------
    system : System
        With its conditions taken out as modes.
    rtol : float
    atol : float or sequence of float
        One for each state where they differ.
    method : {"bdf", "tr_bdf2", "esdirk34", "tsit45"}
    """

    name = "diffsol"

    def __init__(self, system: System, rtol: float, atol: Any, method: str = "bdf") -> None:
        self._arguments = (system, rtol, atol, method)
        self.watches_switches = system.n_watched > 0
        self.rtol = rtol
        each = np.broadcast_to(np.asarray(atol, dtype=float), (system.n_states,))
        self.atol = float(each.max())
        self._of_states = each / self.atol  # 1 where all are alike, which changes no bit
        self._scales = np.tile(self._of_states, len(system.z) // system.n_states)
        self._solver = _compiled(diffsl_code(system), method)
        self._n_parameters = system.layout.n_parameters
        self._moving = np.ones(len(system.z))
        self._moving.reshape(-1, system.n_states)[:, system.algebraic] = 0.0  # these have no rate
        self._near = np.full((2, self._n_parameters), np.nan)  # between these, runs come to their end
        self._largest = 0.0  # state of those

    def advance(self, start: float, z: Vector, inputs: Vector, times: Vector) -> tuple[Vector, Matrix]:
        """Return (times reached, z at them); see `engines.base`."""
        solver, end = self._solver, float(times[-1])
        packed = self._packed(inputs, z)
        with solver.lock:
            p = inputs[: self._n_parameters]
            try:
                is_known = _between(p, self._near)
                solution = self._solved("solve_dense", start, packed, times, is_known)
            except RuntimeError as error:
                found = _TIME.search(str(error))
                reached = float(found.group(1)) if found else None
                why = str(error).removeprefix("ODE solver error: ")
                packed[-1] = np.inf
                if exploded := reached is not None and self._explodes(start, z, packed, reached):
                    why = "a state runs to infinity"
                raise SimulationError(f"the compiled solver gave up: {why}", time=reached, exploded=exploded) from None
            if not is_known:
                self._near = np.sort([p / NEAR, p * NEAR], axis=0)
                if not self._arguments[0].names:
                    if len(solver.ended) >= MOST_ENDS:
                        solver.ended.clear()
                    solver.ended[self.rtol, end] = self._near
        out = solution.ys.T * self._scales
        at: Vector = times if len(out) == len(times) and not self.watches_switches else solution.ts
        if len(at) and at[0] == start:
            out[0] = z  # as given: by its scale and back a number may lose its last bit
        return at, out

    def steps(self, start: float, z: Vector, inputs: Vector, times: Vector) -> int:
        """Return how many steps `advance` takes; it raises what that raises."""
        self.advance(start, z, inputs, times)
        with self._solver.lock:
            return len(self._solved("solve", start, self._packed(inputs, z), float(times[-1]), True).ts)

    def _packed(self, inputs: Vector, z: Vector) -> Vector:
        """Return the inputs of `diffsl_code`, the last of which stops a run that grows by far."""
        z = z / self._scales
        n = len(self._of_states)
        grown = max(GROWN * max(sum(map(abs, z[:n].tolist())), self.atol / self.rtol), MORE * self._largest)
        return np.concatenate((inputs, z, self._of_states, [grown]))

    def _solved(self, how: str, start: float, packed: Vector, times: Any, is_known: bool) -> Any:
        """Return what a method of pydiffsol gives of a run.

        A run that grows by far is begun again, and not stopped, once its rest has been found to end.
        """
        solver, end = self._solver, float(times if how == "solve" else times[-1])
        if not is_known:
            self._refuse_endless(start, packed, end)
        solver.begin(self.rtol, self.atol, start)
        solution = solver.call(how, packed, times)
        if (reached := float(solution.ts[-1])) >= end:
            return solution
        z, n = solution.ys[:, -1], len(self._of_states)
        if np.abs(z[:n]).sum() < packed[-1] * (1 - JUST_BEFORE):  # a switch
            return solution
        self._refuse_long(reached, z, packed, end)
        solver.begin(self.rtol, self.atol, start)
        packed[-1] = np.inf
        solution = solver.call(how, packed, times)
        self._largest = max(self._largest, float(np.abs(solution.ys[:n]).sum(axis=0).max()))
        return solution

    def _refuse_endless(self, start: float, packed: Vector, end: float) -> None:
        """Refuse a run of far too many steps (SimulationError), such as 1e9 oscillations, before it begins.

        Where the rates are fast, at the start or later on, the beginning of the run is tried, unless it is that of
        states that came to their end already.
        """
        n, span = len(self._of_states), end - start
        z = packed[-len(self._scales) - n - 1 : -n - 1]
        size = np.abs(z) + self.atol / self.rtol
        parts = (0.0, 0.13, 0.37, 0.71)
        speeds = [
            float(np.max(np.abs(self._moving * self._solver.call("rhs", packed, start + part * span, z)) / size))
            for part in parts
        ]
        if max(speeds) * span > FAST:
            system, _, _, method = self._arguments
            if system.names:
                near = _compiled(diffsl_code(system.without_sensitivities), method).ended.get((self.rtol, end))
                if near is not None and _between(packed[: self._n_parameters], near):
                    return
            self._refuse_long(start, z, packed, end, 1.0 if max(speeds) > FASTER * speeds[0] else 1e-2)

    def _refuse_long(self, start: float, z: Vector, packed: Vector, end: float, part: float = 1.0) -> None:
        """Refuse a run (SimulationError) of too many steps from z at `start` to its end.

        It is tried up to a part of it, or as long as it does not look short, piece by piece, each as long as promises
        `A_PIECE` steps; the first say nothing, for a stiff run too begins with short steps. Of a system with
        sensitivities the states alone are tried, which take about as many steps in less time. What else may go wrong
        the run itself tells.
        """
        system, _, _, method = self._arguments
        solver, layout, n = self._solver, system.layout, system.n_states
        if system.names:
            solver = _compiled(diffsl_code(system.without_sensitivities), method)
            offsets = packed[layout.size : layout.size + system.n_watched]
            inputs = np.concatenate((packed[: layout.scales.start], offsets))
        else:
            inputs = packed[: layout.size + system.n_watched]
        most, span, z = MOST_WORK / len(self._scales), end - start, z[:n]
        packed = np.concatenate((inputs, z, self._of_states, [np.inf]))
        with solver.lock:
            slope = self._moving[:n] * solver.call("rhs", packed, start, z)
            speed = float(np.max(np.abs(slope) / (np.abs(z) + self.atol / self.rtol)))
            pieces = max(1 / FIRST_PIECE, min(speed * span, 1 / np.finfo(float).eps))  # of no number: the first
            t, length, taken, steps, before = start, span / pieces, 0, 0.0, (start, z)
            while t < start + part * span or (t < end and steps > most / TRIED):
                until = min(t + length, end)
                packed[len(inputs) : len(inputs) + n] = z
                solver.begin(self.rtol, self.atol, t)
                try:
                    piece = solver.call("solve", packed, until)
                except RuntimeError as error:
                    found = _TIME.search(str(error))
                    if until == end or (found and float(found.group(1)) > t):
                        return
                    t, z = before  # no first step could be made from here
                    length = LONGER * (until - t)
                    continue
                if piece.ts[-1] < until:  # a switch
                    return
                n_steps = len(piece.ts)
                taken += n_steps
                steps = taken + n_steps * (end - until) / (until - t)
                if taken > most / TRIED and steps > most:
                    raise SimulationError(
                        f"the compiled solver would take {steps:.1g} steps, more than {most:.1g}", time=t
                    )
                before = t, z
                t, z, length = until, piece.ys[:, -1], length * min(LONGER, max(A_PIECE / n_steps, 0.5))

    def _explodes(self, start: float, began: Vector, packed: Vector, reached: float) -> bool:
        """Tell whether a state has exploded where a run gave up: the run again, until just before it."""
        n = self._arguments[0].n_states
        last = start + (reached - start) * (1 - JUST_BEFORE)
        if not last > start:
            return False
        try:
            solution = self._solver.call("solve_dense", packed, np.array([last]))
            z = solution.ys[:, -1]
            slope = self._moving * self._solver.call("rhs", packed, last, z)
        except RuntimeError:
            return False
        began = began / self._scales
        with np.errstate(all="ignore"):
            return has_exploded(began, z, slope, n, start, last, self.rtol, np.full(n, self.atol))

    def __reduce__(self) -> tuple[Any, ...]:
        return DiffsolStepper, self._arguments  # a lock cannot travel; what is compiled is found or made again


# --- what is known of the engine


def _refuses(equations: Equations, roots: tuple[Root, ...] = ()) -> str:
    if not is_available():
        return "pydiffsol is not installed (it has no wheel for this platform)"
    try:
        diffsl_code(build_system(equations, (), True, roots=roots))
    except NotCompilableError as error:
        return f"the compiled engine does not have {error}"
    return ""


def stepper(problem: Problem, options: SolverOptions) -> DiffsolStepper:
    """Return diffsol on a problem."""
    assert problem.system is not None, "it needs equations"
    return DiffsolStepper(problem.system, options.rtol, options.atol, ENGINE.method_of(options))


ENGINE = Engine(
    "diffsol",
    ("bdf", "tr_bdf2", "esdirk34", "tsit45"),
    stepper,
    needs_equations=True,
    refuses=_refuses,
    limits_steps=False,
    watches_switches=True,
    rank=1,
    has_mass=("bdf",),  # between steps the others give only a guess of algebraic states
)
