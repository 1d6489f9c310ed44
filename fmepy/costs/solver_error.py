"""What the solver's own error is worth at a result: one more evaluation, with tolerances a hundred times smaller."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fmepy.costs.objective import Objective
from fmepy.errors import SimulationError

NOTABLE = 0.1
"""A change of -2 log L that is worth a sentence."""


def solver_error(objective: Objective, value: Callable[[Objective], float]) -> float | None:
    """Return the change of ``value(objective)`` at smaller tolerances, NaN where it fails there, None without a solver.

    value : callable
        What the result is judged by, in units of -2 log L.
    """
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            tight = objective.tightened()
            return None if tight is None else float(abs(value(tight) - value(objective)))
    except (SimulationError, ArithmeticError):
        return np.nan


def told_error(error: float | None) -> str:
    """Return the sentence for a solver's error that is not small, or an empty string."""
    if error is None or error <= NOTABLE:
        return ""
    if np.isnan(error):
        return "What the solver's error is worth is not known: the run with tolerances a hundred times smaller failed."
    return (
        f"The solver's own error is not small beside that of the data: tolerances a hundred times smaller change the "
        f"cost here by {error:.2g}, in units of -2 log L (solver_error). Lower `rtol` and `atol` of the model."
    )
