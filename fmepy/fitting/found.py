"""What came of one search, in plain numbers: it travels from workers, and lies in checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from fmepy.types import BoolVector, Matrix, Vector


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """Where a search ended, and what is said of it; see `fmepy.fitting.result.ModFit` for the words.

    Attributes
    ----------
    theta : ndarray, shape (n_par,)
    value : float
        What was minimised, a prior's part included.
    deviance : float
        That of the data alone: the sum of squares, or -2 log L.
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

    def record(self) -> dict[str, Any]:
        """Return it as `fmepy.parallel.kept` keeps it."""
        return {k: v for k, v in asdict(self).items() if v is not None}

    @classmethod
    def of(cls, record: Mapping[str, Any], n_par: int) -> Self:
        """Return what a record says; raise ValueError or KeyError if it cannot be."""
        table = {f.name: record[f.name] for f in fields(cls) if f.name != "curvature"}
        found = cls(**table, curvature=record.get("curvature"))
        H = found.curvature
        if found.theta.shape != (n_par,) or not (H is None or H.shape == (n_par, n_par)):
            raise ValueError("it is of other parameters")
        return found
