"""The explicit engine: Dormand and Prince's method compiled by numba, for models that are not stiff and run often.

A run of a small model takes 20 to 50 us, since nothing is set up and no system of equations is solved. It has a step
limit and finds out when a model is stiff; what it does not finish it gives back with the reason, and another engine
takes the run over.

The loop (`compiled.dormand_prince`) is compiled once for all models and kept; of a model only the rates are compiled:
z' = F(t, z; inputs) as straight code. With sensitivities the code computes the entries of df/dy and df/dp that are not
zero, and one loop over the parameters adds up ``s_j' = (df/dy) s_j + k_j df/dp_j``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from fmepy.compiled import status
from fmepy.compiled.explicit_runs import ExplicitRuns, Functions
from fmepy.compiled.llvm_code import NotWritableError, Part, Place, Program
from fmepy.compiled.machine import compiled
from fmepy.errors import SimulationError
from fmepy.expressions.derivatives import derivative
from fmepy.expressions.equations import Equations, symbol
from fmepy.models.engines.base import Engine, SolverOptions, steps_of
from fmepy.models.running.problem import Problem
from fmepy.models.running.system import System, build_system
from fmepy.types import BoolVector, Cube, Matrix, Vector

__all__ = ["ENGINE", "DopriStepper", "stepper"]

MOST_STEPS = 100_000
"""Steps of one segment, rejected ones included, before a run is given back."""

_WHY = {
    status.STEP_TOO_SMALL: "the step became too small",
    status.STIFF: "the model is stiff here",
    status.NO_RATES: "the rates are not finite",
    status.EXPLODED: "a state runs to infinity",
}


class DopriStepper:
    """Dormand and Prince's method on one system.

    Parameters
    ----------
    system : System
        With its conditions taken out as modes.
    rtol : float
    atol : float or sequence of float
        One for each state where they differ.
    max_step : float
        Longest step.
    """

    name = "numba"

    def __init__(self, system: System, rtol: float, atol: Any, max_step: float = np.inf) -> None:
        self._arguments = (system, rtol, atol, max_step)
        self.watches_switches = bool(system.watched)
        self._max_step = max_step
        self.most_steps = MOST_STEPS
        blocks = len(system.z) // system.n_states
        all_atol = np.tile(np.broadcast_to(np.asarray(atol, dtype=float), (system.n_states,)), blocks)
        functions = _functions(system)
        self._runs = ExplicitRuns(functions, system.n_states, rtol, all_atol, max_step)

    def advance(self, start: float, z: Vector, inputs: Vector, times: Vector) -> tuple[Vector, Matrix]:
        """Return (times reached, z at them); see `engines.base`."""
        most = self._most_steps(start, times)
        out, (ended, n, reached) = self._runs.one(start, z, inputs, times, most)
        if ended == status.DONE:
            return times, out
        if ended == status.CROSSED:
            return np.append(times[: int(n) - 1], reached), out[: int(n)]
        why = _WHY.get(int(ended), f"more than {most} steps")
        exploded = ended == status.EXPLODED
        raise SimulationError(f"the explicit solver gave up: {why}", time=reached, exploded=exploded)

    def advance_many(self, start: float, Z: Matrix, inputs: Matrix, times: Vector) -> tuple[Cube, BoolVector]:
        """Return z at `times` of many runs, shape (n_run, n_times, n_z), and which came to their end; no switches."""
        out, told = self._runs.many(start, Z, inputs, times, self._most_steps(start, times))
        return out, told[:, 0] == status.DONE

    def _most_steps(self, start: float, times: Vector) -> int:
        return self.most_steps + steps_of(times[-1] - start, self._max_step)

    def __reduce__(self) -> tuple[Any, ...]:
        return DopriStepper, self._arguments  # addresses mean nothing to another process


# --- the rates of a model


@lru_cache(maxsize=64)
def _functions(system: System) -> Functions:
    """Return the rates and conditions of a system, compiled."""
    code = compiled(_program(system))
    return Functions(code.address("rates"), code.address("watch"), len(system.watched), code)


@lru_cache(maxsize=64)
def _program(system: System) -> str:
    """Return the program that computes the rates of a system, ``rates(t, z, q, out)``, and its conditions, ``watch``.

    `q` are the inputs; the conditions are g - offset, the offsets standing behind the inputs.

    Raises
    ------
    NotWritableError
        A function that there is no word for.
    """
    import sympy

    n = system.n_states
    offsets = [sympy.Dummy(f"offset{k}") for k in range(len(system.watched))]
    where: dict[Any, Place] = {system.time: "t"}
    where |= {s: ("z", i) for i, s in enumerate(system.z[:n])}
    where |= {s: ("q", i) for i, s in enumerate([*system.inputs, *offsets])}
    rates = system.model_rates
    F = _entries(rates, system.z[:n]) if system.names else []
    D = _entries(rates, [symbol(k) for k in system.names])

    def sensitivities(part: Part) -> None:
        if system.names:
            _add_sensitivities(part, n, len(system.names), F, D, system.layout.scales.start)

    program = Program(["t"], ["z", "q", "out"])
    of_rates = [("out", i, e) for i, e in enumerate(rates)]
    program.function("rates", of_rates, where, [e for _, _, e in (*F, *D)], sensitivities)
    conditions = [system.switches[i].watched - o for i, o in zip(system.watched, offsets, strict=True)]
    program.function("watch", [("out", k, g) for k, g in enumerate(conditions)], where)
    return program.text()


_Entry = tuple[int, int, Any]


def _entries(expressions: Sequence[Any], symbols: Sequence[Any]) -> list[_Entry]:
    """Return (row, column, expression) of the derivatives that are not zero."""
    used = [e.free_symbols for e in expressions]
    pairs = [(i, j) for i, has in enumerate(used) for j, s in enumerate(symbols) if s in has]
    found = [(i, j, derivative(expressions[i], symbols[j])) for i, j in pairs]
    return [entry for entry in found if entry[2] != 0]


def _add_sensitivities(part: Part, n: int, n_par: int, F: list[_Entry], D: list[_Entry], scales: int) -> None:
    """Add the loop over the parameters, s_j' = F s_j + k_j D_j; block b of z and out holds s_j."""
    slopes = {(i, k): part.value(e) for i, k, e in F}
    sources = [(i, j, part.value(e)) for i, j, e in D]
    with part.loop(n, n * (1 + n_par), n) as b:
        s = {k: part.load("z", part.emit(f"add i64 {b}, {k}")) for k in sorted({k for _, k in slopes})}
        for i in range(n):
            terms = [part.emit(f"fmul double {v}, {s[k]}") for (row, k), v in slopes.items() if row == i]
            part.store(part.total(terms), "out", part.emit(f"add i64 {b}, {i}"))
    for i, j, v in sources:
        source = part.emit(f"fmul double {part.load('q', scales + j)}, {v}")
        part.add(source, "out", n * (1 + j) + i)


# --- what is known of the engine


def _refuses(equations: Equations) -> str:
    try:
        _program(build_system(equations, (), True))
    except NotWritableError as error:
        return f"it does not have {error}"
    return ""


def stepper(problem: Problem, options: SolverOptions) -> DopriStepper:
    """Return the explicit solver on a problem."""
    assert problem.system is not None, "it needs equations"
    return DopriStepper(problem.system, options.rtol, options.atol, options.max_step)


ENGINE = Engine(
    "numba",
    ("dopri5",),
    stepper,
    needs_equations=True,
    refuses=_refuses,
    watches_switches=True,
    heirs=("diffsol",),  # for what turns out stiff
)
