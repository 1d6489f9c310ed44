"""Loops that do not settle: the values that move least, by least squares.

A loop is a map G of its variables, one execution of its statements after the other; it has settled where v = G(v). That
it is executed again and again until nothing moves is done by `run_loop`. Where that does not come to an end, sum
(v - G(v))**2 is made least over what has not settled, and, where that does not settle the rest, over all of the loop
(F. Drepper, Winter Simulation Conference 1978).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fmepy.types import BoolVector, IntVector, Vector

_FAR = 1e100  # what stands for a difference that is no number: its square is one
_CLOSE = 1e-15  # scipy's tolerances: as near as it gets


@dataclass(frozen=True, slots=True, eq=False)
class LoopResult:
    """What became of a loop.

    Attributes
    ----------
    settled : bool
    executions : int
    moves : ndarray
        What each value moves by in one more execution.
    """

    settled: bool
    executions: int
    moves: Vector


class Loop:
    """The values of one loop, and how it is executed once.

    Parameters
    ----------
    z : ndarray
        All values; those of the loop are changed.
    places : ndarray of int
        Where those of the loop stand.
    execute : callable
        Executes the loop once.
    tol : float
        A value v has settled where it moves by no more than tol max(1, |v|).
    """

    def __init__(self, z: Vector, places: IntVector, execute: Callable[[], None], tol: float) -> None:
        self._z, self._places, self._execute, self._tol = z, places, execute, tol
        self._executions = 0

    def execute_again(self) -> LoopResult:
        """Execute it once more, to see what moves."""
        moves = self._moves()
        return LoopResult(bool(self._is_settled(moves).all()), self._executions, moves)

    def minimise(self, starts: list[Vector]) -> LoopResult:
        """Find values that do not move, from the start at which they move least."""
        best, least = self._z[self._places].copy(), np.inf
        for start in starts:
            size = float(np.sum(self._from(start) ** 2)) if np.isfinite(start).all() else np.inf
            if size < least:
                best, least = start.copy(), size
        moves = self._from(best)
        for wanted in (~self._is_settled(moves), np.ones(len(moves), dtype=bool)):
            best = self._least(best, wanted)
            moves = self._from(best)
            if self._is_settled(moves).all():
                return LoopResult(True, self._executions, moves)
        self._z[self._places] = best
        return LoopResult(False, self._executions, moves)

    def _least(self, values: Vector, wanted: BoolVector) -> Vector:
        """Return values of which those that are wanted move least."""
        from scipy.optimize import least_squares

        out = values.copy()

        def residuals(x: Vector) -> Vector:
            out[wanted] = x
            moves = self._from(out)[wanted]
            return np.where(np.abs(moves) < _FAR, moves, _FAR)

        if np.isfinite(residuals(values[wanted].copy())).all():
            found = least_squares(residuals, values[wanted], x_scale="jac", xtol=_CLOSE, ftol=_CLOSE, gtol=_CLOSE)
            out[wanted] = found.x
        return out

    def _from(self, values: Vector) -> Vector:
        """Return the moves of one execution from values on."""
        self._z[self._places] = values
        return self._moves()

    def _moves(self) -> Vector:
        before = self._z[self._places].copy()
        self._execute()
        self._executions += 1
        after = self._z[self._places]
        with np.errstate(invalid="ignore"):
            return np.where(after == before, 0.0, after - before)

    def _is_settled(self, moves: Vector) -> BoolVector:
        settled: BoolVector = np.abs(moves) <= self._tol * np.maximum(1.0, np.abs(self._z[self._places]))
        return settled
