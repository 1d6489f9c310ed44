"""What a cost promises, and what a new kind of cost must provide.

A **cost** is a model held against data. Any callable ``f(p)`` that returns a `ModCost`, a residual vector or -2 log L
is one. fmepy's own costs also offer a *fast path*: ``cost.bind(names)`` gives a `BoundCost`, a function of a vector.

A new kind of cost provides

1. ``parms`` (Series), ``lower`` and ``upper`` (Series: declared bounds, infinite where there is none);
2. ``__call__(parms=None)``: a `ModCost` (least squares) or a float, -2 log L;
3. ``bind(names=None, *, hold_engine=False, runs=1)``; both words mean what they mean for a model, and are passed on;
4. ``replace(**arguments)``, and ``a + b`` in the order written.

Costs are immutable. What is fixed at preparation (which observations are used, their weights, their groups) never
changes from one evaluation to the next, so that residual vectors keep their length.

Quantities, for observation i of group j (a group is a row of ``ModCost.var``: one variable of one cost)::

    residuals   r_i = (mod_i - obs_i) * weights_i          weights = 1 / error;  after `transform` on both sides
    scaled      scales_j^(3/2) * r_i                       their sum of squares is FME's field `model`
    -2 log L    sum_i r_i^2 + log(2 pi) - 2 log weights_i  twice FME's `minlogp`

A bound cost that is one number, -2 log L, may be a *scored* one, which has also

* ``score(theta, rough=False)``, d log L / d theta, and ``information(theta, rough=False)``, its expected covariance;
  `rough` may be cheaper and good for a direction only;
* ``nobs``, the data that count, and ``sensitivity_rows(theta) -> (names, x, rows)`` with rows'rows = information;
* ``scale_parameters``, a mask of the parameters that scale noise: a search moves their logarithms, or ends at zero;
* ``inflated(factor)``, the same with the sds of its process noise times `factor` (None where there is none).

Any bound cost may offer ``tightened()``, the same at tolerances a hundred times smaller (None where no solver has any):
fits and chains ask what the solver's error is worth, see `fmepy.costs.solver_error`. It may offer
``residuals_many(Theta)``, as the function of that name here: the members of an ensemble are evaluated together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pandas as pd

from fmepy.errors import SimulationError
from fmepy.types import IntVector, Matrix, UserParameters, Vector

__all__ = ["BoundCost", "Cost"]


class BoundCost(Protocol):
    """A cost as a function of a plain vector.

    Attributes
    ----------
    parameter_names : tuple of str
        The parameters that ``theta`` holds, in order.
    theta0, lower, upper : ndarray, shape (n_par,)
        The cost's own values of them, and the bounds that it declares.
    is_scalar : bool
        True if it only gives `minus2loglik`: there are no residuals, and the constants below are empty.
    has_jacobian : bool
        True if `jacobian` is better than differences of `residuals` (exact, or with a step fit for the solver).
    names : tuple of str, length n_obs
        Variable of every observation.
    x, weights : ndarray, shape (n_obs,)
    groups : ndarray of int, shape (n_obs,)
        Row of ``var`` that the observation belongs to.
    scales : ndarray, shape (n_group,)
        1/n_j under ``scaleVar``, else 1.
    group_names : tuple of str, length n_group
    exact : bool or None, optional
        True if `jacobian` is of the model's exact sensitivities, False if of its differences; None: nobody says.
    data : ObservedData, optional
        Which data the likelihood is of, see `fmepy.costs.data_identity`; without it `compare_fits` cannot tell.
    retries : int
        Runs so far that the first engine could not finish and another one did.
    """

    @property
    def parameter_names(self) -> tuple[str, ...]: ...

    @property
    def theta0(self) -> Vector: ...

    @property
    def lower(self) -> Vector: ...

    @property
    def upper(self) -> Vector: ...

    @property
    def is_scalar(self) -> bool: ...

    @property
    def has_jacobian(self) -> bool: ...

    @property
    def names(self) -> tuple[str, ...]: ...

    @property
    def x(self) -> Vector: ...

    @property
    def weights(self) -> Vector: ...

    @property
    def groups(self) -> IntVector: ...

    @property
    def scales(self) -> Vector: ...

    @property
    def group_names(self) -> tuple[str, ...]: ...

    @property
    def retries(self) -> int: ...

    def residuals(self, theta: Vector) -> Vector:
        """Return r, shape (n_obs,): weighted, not scaled. Raise SimulationError if the model fails there."""
        ...

    def jacobian(self, theta: Vector) -> Matrix:
        """Return dr/dtheta, shape (n_obs, n_par)."""
        ...

    def minus2loglik(self, theta: Vector) -> float:
        """Return -2 log L."""
        ...


@runtime_checkable
class Cost(Protocol):
    """A model held against data, see the module's text."""

    @property
    def parms(self) -> pd.Series: ...

    @property
    def lower(self) -> pd.Series: ...

    @property
    def upper(self) -> pd.Series: ...

    def __call__(self, parms: UserParameters = None) -> Any:
        """Return a ModCost (least squares) or -2 log L (a float)."""
        ...

    def bind(self, names: Sequence[str] | None = None, *, hold_engine: bool = False, runs: int = 1) -> BoundCost:
        """Return the cost as a function of the parameters `names` (None: all)."""
        ...

    def replace(self, **arguments: Any) -> Cost:
        """Return a copy with some arguments of the constructor changed; dicts are merged."""
        ...


def residuals_many(bound: Any, Theta: Matrix) -> tuple[Matrix, Any]:
    """Return r at many theta, shape (n, n_obs), and why they failed, shape (n,): a sentence, "" where they did not.

    A bound cost may offer ``residuals_many(Theta)`` itself; of others it is a loop. The rows of failures are NaN.
    """
    if callable(getattr(bound, "residuals_many", None)):
        found: tuple[Matrix, Any] = bound.residuals_many(Theta)
        return found
    R = np.full((len(Theta), len(bound.weights)), np.nan)
    why = np.full(len(Theta), "", dtype=object)
    for i, theta in enumerate(Theta):
        try:
            R[i] = bound.residuals(theta)
        except (SimulationError, ArithmeticError) as error:
            why[i] = str(error) if isinstance(error, SimulationError) else f"{type(error).__name__}: {error}"
    return R, why
