"""The outcome of one search in plain numbers: it travels from workers and is kept in checkpoints."""

from __future__ import annotations

from dataclasses import dataclass

from fmepy.journal.encoding import Stored
from fmepy.types import BoolVector, Matrix, Vector


@dataclass(frozen=True, slots=True, eq=False)
class SearchRecord(Stored):
    """Where a search ended, and what is said of it; see `fmepy.fitting.result.ModFit` for the words.

    Attributes
    ----------
    theta : ndarray, shape (n_par,)
    value : float
        What was minimised, a prior's part included.
    deviance : float
        That of the data alone: the sum of squares, or -2 log L.
    curvature : ndarray, shape (n_par, n_par), or None
        Second derivatives of the cost; None if they were not wanted, or could not be taken.
    rank : int
        Its numerical rank, parameters brought to one size; their number where there is no Hessian.
    """

    theta: Vector
    value: float
    deviance: float
    at_bound: BoolVector
    curvature: Matrix | None
    rank: int
    gradient: float
    converged: bool
    message: str
    iterations: int
    engine: str
    trace: Vector
    evaluations: int
    retries: int
    failures: int
    interrupted: bool
    first_failure: str = ""
