"""Many runs of one model by the explicit method: one call, which lets other threads run meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fmepy.compiled.c_loops import address, c_loop
from fmepy.compiled.status import WORK
from fmepy.types import Cube, Matrix, Vector

__all__ = ["ExplicitRuns", "Functions"]


@dataclass(frozen=True, slots=True, eq=False)
class Functions:
    """A model's functions, ``void f(double t, double* z, double* inputs, double* out)``, by address.

    Attributes
    ----------
    rates, watch : int
        The rates; the conditions whose crossings end a run.
    n_watched : int
        Conditions.
    code : object
        What must live as long as the addresses are used.
    """

    rates: int
    watch: int
    n_watched: int
    code: Any


class ExplicitRuns:
    """Runs of one model by the explicit method, see `compiled.dormand_prince.drive`; threads may share it.

    Parameters
    ----------
    functions : Functions
    n_states : int
        Length of the blocks of z by which errors are measured.
    rtol : float
    atol : array, shape (n_z,)
    max_step : float
    """

    def __init__(self, functions: Functions, n_states: int, rtol: float, atol: Vector, max_step: float) -> None:
        self._functions, self._n_states, self._rtol, self._max_step = functions, n_states, rtol, max_step
        self._atol = np.array(atol, dtype=float)
        self._atol_at = address(self._atol)
        name = "run_watched" if functions.n_watched else "run_smooth"
        self._loop = c_loop("explicit_loop", name, "i" * 9 + "d" * 3 + "p" * 8, "the explicit solver")
        self._at_times: tuple[Any, int] = (None, 0)

    def one(self, t: float, z: Vector, inputs: Vector, times: Vector, most_steps: int) -> tuple[Matrix, list[float]]:
        """Return z at `times`, shape (n_times, n_z), and how the run ended; see `many`."""
        n, m, n_watched = len(z), len(inputs), self._functions.n_watched
        own = np.empty(n + m + 3 + WORK * n + 2 * n_watched)  # one array, for every address takes time
        own[:n], own[n : n + m] = z, inputs
        out = np.empty((len(times), n))
        start = address(own)
        told, work, marks = start + 8 * (n + m), start + 8 * (n + m + 3), start + 8 * (n + m + 3 + WORK * n)
        self._call(1, n, m, most_steps, t, times, start, start + 8 * n, work, marks, address(out), told)
        return out, own[n + m : n + m + 3].tolist()

    def many(self, t: float, starts: Matrix, inputs: Matrix, times: Vector, most_steps: int) -> tuple[Cube, Matrix]:
        """Run the model from many starts, with inputs of their own; Python's lock is left to other threads.

        Parameters
        ----------
        starts : array, shape (n_run, n_z)
            z at t.
        inputs : array, shape (n_run, n_inputs)
        times : increasing, the first not before t; the last is the end.

        Returns
        -------
        out : array, shape (n_run, n_times, n_z)
            z at the times; NaN where a run did not come.
        told : array, shape (n_run, 3)
            How each run ended (`compiled.status`), the rows written, the time reached.
        """
        starts, inputs = np.ascontiguousarray(starts, dtype=float), np.ascontiguousarray(inputs, dtype=float)
        (n_runs, n), n_watched = starts.shape, self._functions.n_watched
        out, told = np.empty((n_runs, len(times), n)), np.empty((n_runs, 3))
        work = np.empty(WORK * n + 2 * n_watched)
        addresses = [address(a) for a in (starts, inputs, work, work[WORK * n :], out, told)]
        self._call(n_runs, n, inputs.shape[1], most_steps, t, times, *addresses)
        for r in np.flatnonzero(told[:, 1] < len(times)):
            out[r, int(told[r, 1]) :] = np.nan
        return out, told

    def _call(self, n_runs: int, n: int, n_inputs: int, most_steps: int, t: float, times: Vector,
              starts: int, inputs: int, work: int, marks: int, out: int, told: int) -> None:  # fmt: skip
        known, at = self._at_times
        if known is not times:  # a run asks for the same ones again and again
            wanted = np.ascontiguousarray(times, dtype=float)
            at = address(wanted)
            if wanted is times:
                self._at_times = times, at
        f = self._functions
        self._loop(
            f.rates, f.watch, n_runs, n, self._n_states, n_inputs, len(times), f.n_watched, most_steps,
            t, self._rtol, self._max_step, starts, inputs, at, self._atol_at, work, marks, out, told,
        )  # fmt: skip
