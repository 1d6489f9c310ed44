"""What the solver's own error is worth at a result: one more evaluation, with tolerances a hundred times smaller."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fmepy.costs.objective import Objective
from fmepy.errors import SimulationError
from fmepy.types import Vector

NOTABLE = 0.1
"""A change of -2 log L that is worth a sentence."""
EXACT = 1e-10
"""Of the sum of squares of the observations: data without noise."""
TOO_LARGE = 1.0
"""A change that moves a result beyond what the data say: a fit with a larger one has not converged."""


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
    large = error > TOO_LARGE
    return (
        f"The solver's own error is {'as large as' if large else 'not small beside'} that of the data: tolerances a "
        f"hundred times smaller change the cost here by {error:.2g}, in units of -2 log L (solver_error). Lower `rtol` "
        f"and `atol` of the model{', such as rtol=1e-9, and run this again: it is no result yet' if large else ''}."
    )


def is_too_large(error: float | None) -> bool:
    """Tell whether a fit with this error of the solver has not converged; one that is not known does not tell."""
    return error is not None and error > TOO_LARGE


def is_exact(ssr: float, values: Vector, weights: Vector) -> bool:
    """Tell whether residuals are nothing but the solver's error, so that they are no measure for it."""
    return ssr <= EXACT * float(np.sum(np.square(values * weights)))
