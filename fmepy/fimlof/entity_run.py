"""One entity filtered once, with everything that its tables, tests and forecasts are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fmepy.filtering.likelihood import Likelihood
from fmepy.filtering.run import Pass
from fmepy.filtering.schedule import Readings, Schedule
from fmepy.journal.encoding import Stored
from fmepy.types import Matrix, Vector


@dataclass(frozen=True, slots=True, eq=False)
class EntityRun(Stored):
    """A recorded pass of one entity.

    Attributes
    ----------
    label : any
        Its name; None if there is but one.
    p : ndarray
        Its parameters, in the order of the specification.
    schedule : Schedule
        With the rows of the table that ask for states, and the model's times until the last row, as further nodes.
    used : Readings or None
        Data that the start used up.
    run : Pass or None
        None if it could not even start.
    likelihood : Likelihood or None
        None if it broke down.
    correlation : ndarray, shape (n_var, n_var) or (0, 0)
        Of the measurement errors.
    failure : str or None
        What went wrong, in a sentence.
    log_jacobian : float
        Of the data that count.
    """

    label: Any
    p: Vector
    schedule: Schedule
    used: Readings | None
    run: Pass | None
    likelihood: Likelihood | None
    correlation: Matrix
    failure: str | None
    log_jacobian: float

    @property
    def end(self) -> int:
        """The node of the last datum: where forecasts begin."""
        return int(self.schedule.nodes_of_rows[-1]) if len(self.schedule.readings) else 0
