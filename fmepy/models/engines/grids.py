"""The compiled engine for functions of arrays: the same loop, with rates and Jacobian as loops over entries."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from fmepy.compiled import array_loop, rosenbrock, status
from fmepy.compiled.array_code import MOST_BAND
from fmepy.compiled.band_lu import band_code
from fmepy.compiled.c_loops import address, loop_address
from fmepy.compiled.explicit_runs import Course, ExplicitRuns, ModelFunctions, Solver, Stretch
from fmepy.compiled.sparse_lu import Pattern
from fmepy.compiled.stiff_plan import Entries, plan_of
from fmepy.errors import SimulationError
from fmepy.models.definition.definition import Definition
from fmepy.models.engines.base import MOST_STEPS, failure_of
from fmepy.models.engines.stiff import StiffCode
from fmepy.models.running.problem import InitialValueProblem, code_of
from fmepy.types import Matrix, Vector

MOST_WORK = 200_000_000
"""Most steps x states x (1 + directions) of a stretch before the run is given up: some ten seconds."""


class GridStepper:
    """The compiled loop on a function of arrays, see `engines.base`.

    Parameters
    ----------
    problem : InitialValueProblem
    rtol : float
    atol : float or sequence of float
    max_step : float
    only : {"", "explicit", "stiff"}
        The only method to use; empty: both.
    """

    name = "compiled"
    watches_switches = False

    def __init__(
        self, problem: InitialValueProblem, rtol: float, atol: Any, max_step: float = np.inf, only: str = ""
    ) -> None:
        definition, names = problem.definition, problem.names
        assert definition.arrays is not None, "it is a function of arrays"
        self._arguments = (problem, rtol, atol, max_step, only)
        self._layout, self._states, m = problem.layout, definition.states, len(names)
        self._code, n = code_of(definition.arrays), len(definition.states)
        self._places = np.array([definition.parameters.index(k) for k in names], dtype=np.intp)
        order, *band = self._code.structure.band
        entries = Entries(n, (), (), n_params=m, band=(band[0], band[1]), order=order.tolist())
        self._plan = array_loop.plan_of(self._code, entries)
        self._last: tuple[Any, Any] = (None, None)
        all_atol = np.tile(np.broadcast_to(np.asarray(atol, dtype=float), (n,)), 1 + m)
        most = int(min(MOST_STEPS, max(MOST_WORK / (n * (1 + m)), 1000)))
        self._solver = Solver(n, rtol, all_atol, max_step, most)
        stiff = None if only == "explicit" else StiffCode(partial(_stiff_plan, entries), only == "stiff")
        self._functions = ModelFunctions(_address("rates"), 0, 0, (), stiff=stiff)
        self._lines = slice(2, 2 + 2 * definition.arrays.n_forcings)

    def advance(self, start: float, z: Vector, inputs: Vector, times: Vector) -> tuple[Vector, Matrix]:
        """Return (times reached, z at them); see `engines.base`."""
        return times, self.advance_into(None, start, z, inputs, times)

    def advance_into(self, rows: Matrix | None, start: float, z: Vector, inputs: Vector, times: Vector) -> Matrix:
        """Write z at all times into `rows` (None: a new array), and return it."""
        block, key = self._inputs(inputs), (start, times.tobytes())
        last_key, runs = self._last
        if last_key != key:  # most runs repeat the same stretch
            course = Course(start, times, 0, (Stretch(start, times, len(times)),))
            runs = ExplicitRuns(self._functions, self._solver, course, len(block))
            self._last = key, runs
        out, (ended, _, reached, *worst) = runs.one(block, z, into=rows)
        if ended != status.DONE:
            raise failure_of(ended, reached, self._states, self._solver.most_steps, worst)
        result: Matrix = out
        return result

    def _inputs(self, inputs: Vector) -> Vector:
        """Return the inputs and working blocks of the loops, see `compiled.array_loop`."""
        code, layout, m = self._code, self._layout, len(self._places)
        n_blocks = array_loop.n_blocks(m)
        out = np.zeros(self._lines.stop + n_blocks * code.size)
        out[:1].view(np.int64)[0] = address(self._plan)
        out[1], out[self._lines] = inputs[layout.origin], inputs[layout.lines]
        blocks = out[self._lines.stop :].reshape(n_blocks, code.size)
        w, tangents = blocks[0], blocks[n_blocks - 2 * m :]
        w[:] = code.block()
        w[code.at("p")] = inputs[: layout.n_parameters]
        code.function("prepare", w)()
        if m:
            tangents[np.arange(2 * m), code.at("p").start + np.tile(self._places, 2)] = np.tile(
                inputs[layout.scales], 2
            )
            code.function("prepare_along", w, tangents)()
            blocks[2] = w
        if not w[code.own_checks].all():
            raise SimulationError("the function behaves differently at these parameters than when it was compiled")
        return out

    def __reduce__(self) -> tuple[Any, ...]:
        return GridStepper, self._arguments


def _address(name: str) -> int:
    return loop_address(getattr(array_loop, name), "the solver of grids")


def _stiff_plan(entries: Entries) -> Any:
    """Return the plan of the stiff method for a model, and None: it refers to no further code."""
    names = ("field", "jacobian", "slopes", "bend", "advance")[: 5 if entries.n_params else 2]
    functions = [*map(_address, names), *[0] * (5 - len(names))]
    functions += band_code(*entries.band, list(entries.order) != list(range(entries.n)))
    pattern = Pattern(*[np.zeros(0, dtype=np.int64)] * 5)
    return plan_of(entries, pattern, functions, loop_address(rosenbrock.run, "the stiff solver")), None


def why_no_band(definition: Definition) -> str:
    """Return why the compiled loop does not run a function of arrays, or an empty string."""
    d = definition
    if d.arrays is None or d.algebraic or d.roots:
        return d.note
    width = code_of(d.arrays).band_width
    if width > MOST_BAND:
        wide = f"a band of {width} diagonals, and the compiled engine takes at most {MOST_BAND}"
        return f"{d.note}; its Jacobian is {wide}"
    return ""
