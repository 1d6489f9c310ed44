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
from fmepy.compiled.numba_code import HEADER, load, straight_line
from fmepy.errors import SimulationError
from fmepy.expressions.derivatives import derivative
from fmepy.expressions.equations import Equations, symbol
from fmepy.models.engines.base import Engine, SolverOptions, steps_of
from fmepy.models.running.problem import Problem
from fmepy.models.running.system import System, build_system
from fmepy.types import BoolVector, Cube, Matrix, Vector

__all__ = ["ENGINE", "DopriStepper", "NotWritableError", "rates_source"]

MOST_STEPS = 100_000
"""Steps of one segment, rejected ones included, before a run is given back."""
MOST_STRAIGHT = 300
"""Most expressions of one function; more are computed in functions of `BLOCK`, which compile in proportion."""
BLOCK = 40

_RATES = (  # as `call` in the loop calls it
    '@cfunc(types.void(types.float64, *[types.CPointer(types.float64)] * 3), cache=True, error_model="numpy")'
)
_QUICK = '@njit(error_model="numpy")\n'
_WHY = {
    status.STEP_TOO_SMALL: "the step became too small",
    status.STIFF: "the model is stiff here",
    status.NO_RATES: "the rates are not finite",
    status.EXPLODED: "a state runs to infinity",
}


class NotWritableError(ValueError):
    """An expression that numba's code has no word for."""


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
        code = load(rates_source(system), f"a model of {len(system.z)} equations")
        functions = Functions(code.rates.address, code.watch.address, len(system.watched), code)
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
def rates_source(system: System) -> str:
    """Return the module that computes the rates of a system, ``rates(t, z, q, out)``, and its conditions, ``watch``.

    `q` are the inputs; the conditions are g - offset, the offsets standing behind the inputs.

    Raises
    ------
    NotWritableError
        A function that numba does not have.
    """
    import sympy

    n = system.n_states
    offsets = [sympy.Dummy(f"offset{k}") for k in range(len(system.watched))]
    names = {system.time: "t"}
    names |= {s: f"y{i}" for i, s in enumerate(system.z[:n])}
    names |= {s: f"q{i}" for i, s in enumerate([*system.inputs, *offsets])}
    rates = system.model_rates
    targets = [(f"out[{i}]", e) for i, e in enumerate(rates)]
    of_states = _entries("f", rates, system.z[:n]) if system.names else []
    of_parameters = _entries("d", rates, [symbol(k) for k in system.names])
    targets += [(name, e) for _, _, name, e in (*of_states, *of_parameters)]
    blocks: list[str] = []
    if len(targets) > MOST_STRAIGHT:
        body, blocks = _in_blocks(targets, names)
    else:
        body = _computed(targets, names)
    if system.names:
        body += _sensitivities(n, len(system.names), of_states, of_parameters, system.layout.scales.start)
    conditions = [system.switches[i].watched - o for i, o in zip(system.watched, offsets, strict=True)]
    watch = _computed([(f"out[{k}]", g) for k, g in enumerate(conditions)], names)
    parts = [*blocks, *_function("rates", body), *_function("watch", watch or ["pass"])]
    return HEADER + "\n".join(parts)


_Entry = tuple[int, int, str, Any]


def _entries(letter: str, expressions: Sequence[Any], symbols: Sequence[Any]) -> list[_Entry]:
    """Return (row, column, name, expression) of the derivatives that are not zero."""
    used = [e.free_symbols for e in expressions]
    pairs = [(i, j) for i, has in enumerate(used) for j, s in enumerate(symbols) if s in has]
    found = [(i, j, f"{letter}{i}_{j}", derivative(expressions[i], symbols[j])) for i, j in pairs]
    return [entry for entry in found if entry[3] != 0]


def _computed(targets: Sequence[tuple[str, Any]], names: dict[Any, str]) -> list[str]:
    """Return the lines that read what is used of z and q, and compute the targets."""
    used = {s for _, e in targets for s in e.free_symbols}
    read = [f"{k} = {'z' if k[0] == 'y' else 'q'}[{k[1:]}]" for s, k in names.items() if s in used and k != "t"]
    lines = straight_line(targets, names)
    for line in lines:
        if "Not supported" in line:
            raise NotWritableError(f"{line.split()[-1].split('(')[0]}()")
    return read + lines


def _in_blocks(targets: Sequence[tuple[str, Any]], names: dict[Any, str]) -> tuple[list[str], list[str]]:
    """Return the lines that compute many targets through functions of some each, and these functions."""
    calls, functions = [f"v = np.empty({len(targets)})"], []
    for start in range(0, len(targets), BLOCK):
        some = [(f"out[{start + i}]", e) for i, (_, e) in enumerate(targets[start : start + BLOCK])]
        functions += _function(f"part{start}", _computed(some, names), _QUICK.strip())
        calls.append(f"part{start}(t, z, q, v)")
    return calls + [f"{name} = v[{i}]" for i, (name, _) in enumerate(targets)], functions


def _sensitivities(n: int, n_par: int, F: list[_Entry], D: list[_Entry], scales: int) -> list[str]:
    """Return the lines of s_j' = F s_j + k_j D_j."""
    loop = [f"s{k} = z[b + {k}]" for k in sorted({k for _, k, _, _ in F})]
    for i in range(n):
        terms = " + ".join(f"{name} * s{k}" for row, k, name, _ in F if row == i) or "0.0"
        loop.append(f"out[b + {i}] = {terms}")
    lines = [f"for b in range({n}, {n * (1 + n_par)}, {n}):", *(f"    {line}" for line in loop)]
    return lines + [f"out[{n * (1 + j) + i}] += q[{scales + j}] * {name}" for i, j, name, _ in D]


def _function(name: str, body: list[str], decorator: str = _RATES) -> list[str]:
    return ["", "", decorator, f"def {name}(t, z, q, out):", *(f"    {line}" for line in body), ""]


# --- what is known of the engine


def _refuses(equations: Equations) -> str:
    try:
        rates_source(build_system(equations, (), True))
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
