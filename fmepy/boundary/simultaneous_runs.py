"""Simultaneous runs of one model from different times, or of several experiments, with their sensitivities.

Where every run is compiled whole (`models.engines.base`, 5.) they are one call without Python between them, spread over
threads; else they are a loop. The numbers are the same whatever the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fmepy.compiled.explicit_runs import RunsOfCourses
from fmepy.compiled.status import DONE
from fmepy.models.running.system import scales_of
from fmepy.types import IntVector, Matrix, Vector


class SimultaneousRuns:
    """Bound models with the same names, evaluated together.

    Parameters
    ----------
    bounds : sequence of BoundModel
        Of the same names and variables, each with rows of its own.

    Attributes
    ----------
    first : ndarray of int, shape (n_run + 1,)
        Where the rows of each begin.
    rows : ndarray, shape (n_rows, n_var (1 + n_par))
        Those of all runs one after the other, as `run` leaves them.
    scales : ndarray, shape (n_run, n_par)
        Derivatives in `rows` are those to the parameters, times these.
    places : ndarray of int, shape (1 + n_par, n_var)
        Where in a row the value of a variable stands, and its derivatives.
    """

    def __init__(self, bounds: Sequence[Any]) -> None:
        self.bounds = tuple(bounds)
        self.first: IntVector = np.cumsum([0, *(len(b.times) for b in self.bounds)])
        n_par, n_var = len(bounds[0].names), len(bounds[0].var_names)
        self.scales: Matrix = np.ones((len(bounds), n_par))
        whole: list[Any] = [getattr(b, "whole_with_slopes", None) for b in self.bounds]
        self._courses: RunsOfCourses | None = None
        if any(w is None for w in whole):
            self.places: Any = np.arange((1 + n_par) * n_var).reshape(1 + n_par, n_var)
            self.rows: Matrix = np.empty((int(self.first[-1]), self.places.size))
            return
        runs, inputs, (self._moved, *_), (self._at_scales, *_), (self.places, *_) = zip(
            *(w.for_simultaneous_runs for w in whole), strict=True
        )
        self._courses, self._inputs = RunsOfCourses(runs), np.array(inputs)
        self.rows = self._courses.rows

    @property
    def retries(self) -> int:
        """Runs so far that a second engine finished."""
        return sum(int(b.retries) for b in self.bounds)

    def run(self, Theta: Matrix, then: Callable[[int, int], None]) -> None:
        """Run all, and call `then` with ranges of runs whose rows are complete.

        Parameters
        ----------
        Theta : ndarray, shape (n_run, n_par)
        then : callable
            Compiled, as it is called on several threads; called once more for a run that a second engine finished.

        Raises
        ------
        SimulationError
            A run failed.
        """
        if self._courses is None:
            for i in range(len(Theta)):
                self._run_alone(i, Theta[i])
            then(0, len(Theta))
            return
        self.scales[:] = scales_of(Theta)
        self._inputs[:, self._moved], self._inputs[:, self._at_scales] = Theta, self.scales
        status = self._courses.run(self._inputs, then)
        for i in np.flatnonzero(status[:, 0] != DONE).tolist():
            self._run_alone(i, Theta[i])
            then(i, i + 1)

    def _run_alone(self, i: int, theta: Vector) -> None:
        Y, S = self.bounds[i].sensitivities(theta)
        rows = self.rows[self.first[i] : self.first[i + 1]]
        rows[:, self.places[0]] = Y
        rows[:, self.places[1:]] = S.transpose(0, 2, 1) * self.scales[i][:, None]
