"""Simulation costs whose errors are known: residuals, their squares, and their exact Jacobian."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fmepy.costs.modcost import ModCost, tabulate
from fmepy.costs.observations import Comparison
from fmepy.costs.predictions import OfPredictions, Predictions
from fmepy.numerics.sparse import MANY, sparse_jacobian
from fmepy.types import Matrix, Vector


class BoundSimulation(OfPredictions):
    """Simulation costs of one model as a function of a plain vector: predictions, and residuals of known errors.

    It is what `SimulationCost.bind` returns; see `fmepy.costs.base.BoundCost` for what it offers.

    Parameters
    ----------
    predictions : Predictions
        The model at the observations.
    pieces : sequence of Comparison
        One or more, in the order of the residuals: what the data of the predictions were joined from.
    """

    def __init__(self, predictions: Predictions, pieces: Sequence[Comparison]) -> None:
        super().__init__(predictions, pieces, dict(zip(predictions.parameter_names, predictions.theta0, strict=True)))
        c = predictions.data
        self.is_scalar, self.has_jacobian = False, True
        self._obs, self._weights = c.obs, c.weights
        self._constant = float(len(c) * np.log(2 * np.pi) - 2 * np.log(c.weights).sum())

    @property
    def data(self) -> Comparison:
        """What is fixed of the data."""
        return self.predictions.data

    def residuals(self, theta: Vector) -> Vector:
        """Return r, shape (n_obs,): weighted, not scaled."""
        return (self.predictions.compared(theta) - self._obs) * self._weights

    def residuals_many(self, Theta: Matrix) -> tuple[Matrix, Any]:
        """Return r of many theta, shape (n, n_obs), and why they failed; see `fmepy.costs.base.residuals_many`."""
        mod, why = self.predictions.compared_many(Theta)
        return (mod - self._obs) * self._weights, why

    def jacobian(self, theta: Vector) -> Matrix:
        """Return dr/dtheta, shape (n_obs, n_par), from the model's sensitivities."""
        return self.predictions.compared_with_slopes(theta)[1] * self._weights[:, None]

    @property
    def is_sparse(self) -> bool:
        """True if there are many parameters, and each residual depends on few of them."""
        return len(self.parameter_names) >= MANY and hasattr(self.predictions, "with_local_slopes")

    def sparse_jacobian(self, theta: Vector) -> Any:
        """Return dr/dtheta as a sparse array, where `is_sparse`."""
        predictions: Any = self.predictions  # by entity
        local, columns = predictions.compared_with_local_slopes(theta)
        return sparse_jacobian(local * self._weights[:, None], columns, len(self.parameter_names))

    def minus2loglik(self, theta: Vector) -> float:
        """Return -2 log L for normal errors of the given size."""
        r = self.residuals(theta)
        with np.errstate(over="ignore"):  # residuals beyond 1e154: infinite, and told as such
            return float(r @ r) + self._constant

    def modcost(self, theta: Vector) -> ModCost:
        """Return the `ModCost` at theta; obs and mod are on the scale of comparison."""
        return tabulate(self.data, self.predictions.compared(theta))

    def modcosts(self, theta: Vector) -> list[ModCost]:
        """Return the `ModCost` of every piece, from one run."""
        return [tabulate(c, part) for c, part in self.of_pieces(self.predictions.compared(theta))]


def minus2loglik_of_squares(r: Vector, weights: Vector) -> float:
    """Return -2 log L of weighted residuals whose errors are known up to a factor, which is estimated: ssr / n."""
    squares, n = float(r @ r), r.size
    if not squares > 0:
        return -np.inf
    return float(n * np.log(2 * np.pi * squares / n) + n - 2 * np.log(weights).sum())
