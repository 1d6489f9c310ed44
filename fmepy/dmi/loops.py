"""Loops that do not settle: the values that move least, by least squares.

A loop is a map G of its variables, one execution of its statements after the other; it has settled where v = G(v). That
it is executed again and again until nothing moves is done by `run_loop`. Where that does not come to an end, sum
(v - G(v))**2 is made least over what has not settled, and, where that does not settle the rest, over all of the loop
(F. Drepper, Winter Simulation Conference 1978).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fmepy.types import BoolVector, IntVector, Vector

_FAR = 1e100  # what stands for a difference that is no number: its square is one
_CLOSE = 1e-15  # scipy's tolerances: as near as it gets


class LoopResult(NamedTuple):
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

    def from_values(self, values: Vector) -> LoopResult:
        """Return what one execution from values on does."""
        self._z[self._places] = values
        self._execute()
        self._executions += 1
        after = self._z[self._places]
        with np.errstate(invalid="ignore"):
            moves = np.where(after == values, 0.0, after - values)
        return LoopResult(bool(self._is_settled(moves).all()), self._executions, moves)

    def minimise(self, starts: list[Vector]) -> LoopResult:
        """Find values that do not move, from the start at which they move least."""
        best, least = self._z[self._places].copy(), np.inf
        for start in starts:
            size = float(np.sum(self.from_values(start).moves ** 2)) if np.isfinite(start).all() else np.inf
            if size < least:
                best, least = start.copy(), size
        found = self.from_values(best)
        for wanted in (~self._is_settled(found.moves), np.ones(len(best), dtype=bool)):
            best = self._least(best, wanted)
            found = self.from_values(best)
            if found.settled:
                return found
        self._z[self._places] = best
        return found

    def _least(self, values: Vector, wanted: BoolVector) -> Vector:
        """Return values of which those that are wanted move least."""
        from scipy.optimize import least_squares

        out = values.copy()

        def residuals(x: Vector) -> Vector:
            out[wanted] = x
            moves = self.from_values(out).moves[wanted]
            return np.where(np.abs(moves) < _FAR, moves, _FAR)

        if np.isfinite(residuals(values[wanted].copy())).all():
            found = least_squares(residuals, values[wanted], x_scale="jac", xtol=_CLOSE, ftol=_CLOSE, gtol=_CLOSE)
            out[wanted] = found.x
        return out

    def _is_settled(self, moves: Vector) -> BoolVector:
        settled: BoolVector = np.abs(moves) <= self._tol * np.maximum(1.0, np.abs(self._z[self._places]))
        return settled
