"""Runs of one model that begin at different times, or of several experiments, all with their sensitivities at once.

Where every run is compiled whole (`models.engines.base`, 5.) they are one call without Python between them, spread over
threads; else they are a loop. The numbers are the same whatever the number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fmepy.types import Cube, IntVector, Matrix


class RunsApart:
    """Bound models of the same names, evaluated together.

    Parameters
    ----------
    bounds : sequence of BoundModel
        Of the same names and variables, each with rows of its own.

    Attributes
    ----------
    first : ndarray of int, shape (n_run + 1,)
        Where the rows of each begin.
    """

    def __init__(self, bounds: Sequence[Any]) -> None:
        self.bounds = tuple(bounds)
        self.first: IntVector = np.cumsum([0, *(len(b.times) for b in self.bounds)])
        self._together: Any = _whole_runs(self.bounds)

    @property
    def retries(self) -> int:
        """Runs so far that a second engine finished."""
        return sum(int(b.retries) for b in self.bounds)

    @property
    def is_compiled(self) -> bool:
        """Whether all of them are one call."""
        return self._together is not None

    def sensitivities(self, Theta: Matrix) -> tuple[Matrix, Cube]:
        """Return the rows of all runs one after the other, and their derivatives.

        Parameters
        ----------
        Theta : ndarray, shape (n_run, n_par)

        Returns
        -------
        Y : ndarray, shape (n_rows, n_var)
        S : ndarray, shape (n_rows, n_var, n_par)

        Raises
        ------
        SimulationError
            A run failed.
        """
        if self._together is None:
            found = [b.sensitivities(theta) for b, theta in zip(self.bounds, Theta, strict=True)]
            return np.concatenate([Y for Y, _ in found]), np.concatenate([S for _, S in found])
        Y, S, ok = self._together.with_slopes([b.parameters_at(t) for b, t in zip(self.bounds, Theta, strict=True)])
        for i in np.flatnonzero(~ok).tolist():
            rows = slice(self.first[i], self.first[i + 1])
            Y[rows], S[rows] = self.bounds[i].sensitivities(Theta[i])
        return Y, S


def _whole_runs(bounds: Sequence[Any]) -> Any:
    """Return the whole runs of bound models as one call; None where one of them has none."""
    runs: list[Any] = [getattr(b, "whole_with_slopes", None) for b in bounds]
    if any(r is None for r in runs):
        return None
    return runs[0].together(runs)
