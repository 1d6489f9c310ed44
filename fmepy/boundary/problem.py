"""The problem that `fit_boundary` hands to a solver, and the solution that comes back."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pandas as pd

from fmepy.costs.objective import Objective
from fmepy.costs.simulation import SimulationCost
from fmepy.costs.user_function import as_objective
from fmepy.models.base import keep_within
from fmepy.numerics.differences import magnitudes
from fmepy.types import Cube, Matrix, Vector


@dataclass(frozen=True, eq=False)
class BoundaryProblem:
    """Observations as boundary conditions on the solution of a model's equations.

    Attributes
    ----------
    cost : SimulationCost
        The model and the observations, weighted: ``cost.model``, ``cost.comparison`` (names, x, obs, weights; one flat
        order), ``cost.experiments`` and ``cost.models`` of several experiments, ``cost.bind(names)``.
    names : tuple of str
        The unknowns.
    start, lower, upper : ndarray, shape (n_par,)
        The first guess and the bounds.
    starts_of : dict of str to str
        By state the unknown that is its initial value, where one is; of several experiments by its name within them.
    strategy : {"complementary", "particular"}
    segments : int
    gain, path
        As the user gave them.
    gains : tuple of int
        The unknowns that are in the gain alone.
    tol : float
        Relative corrections of the unknowns below it count as none.
    max_iter : int
    """

    cost: SimulationCost
    names: tuple[str, ...]
    start: Vector
    lower: Vector
    upper: Vector
    starts_of: dict[str, str]
    strategy: str
    segments: int
    gain: Any
    tol: float
    max_iter: int
    path: Any = None
    gains: tuple[int, ...] = ()

    @cached_property
    def objective(self) -> Objective:
        """The cost as a function of the unknowns, bound at first use."""
        given = dict(zip(self.names, self.start.tolist(), strict=True))
        objective = as_objective(self.cost, given, hold_engine=True)
        keep_within(objective.bound, self.lower, self.upper)
        return objective

    @property
    def x(self) -> Vector:
        """Times of the observations, shape (n_obs,)."""
        assert self.cost.places.x is not None, "fit_boundary requires times"
        return self.cost.places.x

    @property
    def method(self) -> str:
        """How it is solved: the strategy, or by multiple shooting."""
        return self.strategy if self.segments == 1 and self.gain is None else "multiple shooting"

    @property
    def scale(self) -> Vector:
        """Sizes of the unknowns at the first guess, shape (n_par,)."""
        return magnitudes(self.start, self.lower, self.upper)


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """The result of a solver.

    Attributes
    ----------
    theta : ndarray, shape (n_par,)
        The unknowns; the last finite iterate where it did not converge.
    modelled : ndarray, shape (n_obs,)
        The path at the observations, in the order of the comparison.
    curvature : ndarray, shape (n_par, n_par), or None
        2 J'J, J the derivatives of the weighted residuals (of segments: after elimination of their starts).
    iterations : DataFrame
        A row a step: ``step``, a column an unknown with its start, further columns, ``correction`` (the largest,
        relative to the unknowns), ``residual`` (root of the weighted sum of squares at the start).
    multipliers : Series
        Of the last step.
    converged : bool
    message : str
    defect : float
        The largest continuity defect between segments, scaled.
    misfit : DataFrame or None
        A row a segment, see `BoundaryFit`.
    trajectory : DataFrame or None
        The path; None: that of one run at theta.
    linearised : ndarray, shape (n_step, n_obs, 1 + n_par), or None
        Of every step the nonlinear solution at the observations and its homogeneous solutions.
    evaluations, retries, failures : int
        Runs; those that a second engine finished; those that failed.
    interrupted : bool
    engine : str
    """

    theta: Vector
    modelled: Vector
    curvature: Matrix | None
    iterations: pd.DataFrame
    multipliers: pd.Series
    converged: bool
    message: str
    defect: float = 0.0
    misfit: pd.DataFrame | None = None
    trajectory: pd.DataFrame | None = None
    linearised: Cube | None = field(default=None, repr=False)
    evaluations: int = 0
    retries: int = 0
    failures: int = 0
    interrupted: bool = False
    engine: str = ""

    def of(self, *names: str) -> dict[str, Any]:
        """Return some attributes by name, for results that have them too."""
        return {name: getattr(self, name) for name in names}
