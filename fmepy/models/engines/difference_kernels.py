"""The compiled loops of a difference model: states, outputs, and their exact sensitivities.

With x[n] = f(x[n-1], u[n], n; p) and outputs h(x[n], u[n], n; p)::

    S[n] = F S[n-1] + df/dp,  F = df/dx at x[n-1]          dh/dp = (dh/dx) S[n] + dh/dp

The loops (`compiled.difference_loop`) serve all models; of a model two functions are compiled, the step and the
outputs. Of F and the other matrices they compute the entries that are not zero.
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np

from fmepy.compiled import difference_loop
from fmepy.compiled.c_loops import address, c_loop
from fmepy.compiled.llvm_code import LlvmProgram, Place
from fmepy.compiled.machine import Code, compiled
from fmepy.language.derivatives import entries_of
from fmepy.language.equations import Equations, symbol
from fmepy.language.nodes import Node
from fmepy.types import Cube, Matrix, Vector

_Entry = tuple[int, int, Node]


class Kernels:
    """Compiled loops, made at first use; they return -1, or the step at which a state became NaN or infinite."""

    def __init__(self, equations: Equations, names: tuple[str, ...]) -> None:
        self._equations, self._names = equations, names
        self._sizes = len(equations.states), len(equations.outputs), len(equations.parameters), len(equations.forcings)

    def run(self, y: Vector, p: Vector, U: Matrix, t0: float, keep: Any, out: Matrix) -> int:
        """Run the model.

        Parameters
        ----------
        y : array, shape (n_state,)
            Initial states.
        p : array
            All parameters.
        U : array, shape (n_step + 1, n_forcing)
        t0 : float
        keep : array of int
            The steps that are rows, increasing.
        out : array, shape (n_row, n_var)
            The result.
        """
        n, m = self._sizes[:2]
        return self._run(self._plain, y, np.empty((n, 0)), p, U, t0, keep, out, np.empty((len(keep), n + m, 0)))

    def run_sens(
        self, y: Vector, S: Matrix, p: Vector, U: Matrix, t0: float, keep: Any, out: Matrix, slopes: Cube
    ) -> int:
        """Run the model with sensitivities.

        S are the derivatives of y, shape (n_state, n_par), `slopes` is the result, shape (n_row, n_var, n_par); the
        rest as in `run`.
        """
        return self._run(self._sensitive, y, S, p, U, t0, keep, out, slopes)

    def _run(
        self, model: _Model, y: Vector, S: Matrix, p: Vector, U: Matrix, t0: float, keep: Any, out: Matrix, slopes: Cube
    ) -> int:
        step, write, counts, places, _ = model
        n_par, (n, m) = S.shape[1], self._sizes[:2]
        x, both = np.array(y, dtype=float), np.concatenate([S, S])
        v, w = np.empty(n + counts[0] + counts[1]), np.empty(m + counts[2] + counts[3])
        q, told, keep = np.concatenate([p, np.empty(U.shape[1])]), np.empty(1), np.asarray(keep, dtype=np.int64)
        loop = c_loop(difference_loop.run, "the loop of difference models")
        arrays = (q, U, keep, places, x, both, v, w, out, slopes, told)
        loop(step, write, *self._sizes, n_par, *counts, len(keep), t0, *map(address, arrays))
        return int(told[0])

    @cached_property
    def _plain(self) -> _Model:
        return _compiled(self._equations, ())

    @cached_property
    def _sensitive(self) -> _Model:
        return _compiled(self._equations, self._names)


class _Model(NamedTuple):
    """A model's functions by address, how many entries each matrix has, and their rows and columns."""

    step: int
    write: int
    counts: list[int]
    places: Any
    code: Code


@lru_cache(maxsize=64)
def _compiled(equations: Equations, names: tuple[str, ...]) -> _Model:
    """Return the functions ``step`` and ``write`` of a model, and the entries of F, df/dp, dh/dx and dh/dp.

    q holds parameters and forcings; behind the next states, or the outputs, stand the entries of the matrices.
    """
    states, p = [symbol(s) for s in equations.states], [symbol(k) for k in names]
    rates, outputs = equations.rates, list(e for _, e in equations.outputs)
    where: dict[Any, Place] = {symbol(equations.time): "t"}
    where |= {s: ("x", i) for i, s in enumerate(states)}
    where |= {symbol(k): ("q", i) for i, k in enumerate([*equations.parameters, *equations.forcings])}
    matrices = tuple(
        entries_of(expressions, symbols)
        for expressions in (rates, outputs)
        for symbols in (states if names else [], p)
    )  # fmt: skip
    program = LlvmProgram(["t"], ["x", "q", "out"])
    for name, expressions, (own, others) in (("step", rates, matrices[:2]), ("write", outputs, matrices[2:])):
        listed = [*expressions, *(e for _, _, e in own), *(e for _, _, e in others)]
        program.function(name, [("out", i, e) for i, e in enumerate(listed)], where)
    code = compiled(program.text())
    places = np.array([(i, j) for m in matrices for i, j, _ in m], dtype=np.int64)
    return _Model(code.address("step"), code.address("write"), [len(m) for m in matrices], places, code)
