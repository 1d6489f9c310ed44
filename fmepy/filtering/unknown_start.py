"""What data say of a start of which nothing was known (de Jong 1991).

The filter runs from a fixed start and carries, for every quantity, its derivative V to the d unknown components. With
the whitened innovations W and their derivatives, over the data seen so far::

    A = sum V_w' V_w,   b = sum V_w' W,   shift = - A^-1 b,   covariance of the shift = A^-1

While A is singular, quantities whose derivative reaches into its null space are not determined.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fmepy.types import BoolVector, Matrix, Vector

_SINGULAR = 1e-12
"""Eigenvalues of the scaled information below this fraction of the largest are zero."""
_REACHES = 1e-6
"""A derivative lies in the determined space if less than this fraction of it lies outside."""


@dataclass(frozen=True, slots=True, eq=False)
class StartInformation:
    """The information of data on the unknown components of a start.

    Attributes
    ----------
    A : ndarray, shape (d, d)
    b : ndarray, shape (d,)
    shift : ndarray, shape (d,)
        Smallest one that fits the data.
    covariance : ndarray, shape (d, d)
        Of the shift, within the determined space.
    null : ndarray, shape (d, k)
        Directions that the data have said nothing of.
    """

    A: Matrix
    b: Vector
    shift: Vector
    covariance: Matrix
    null: Matrix

    @classmethod
    def none(cls, d: int) -> StartInformation:
        """Return what is known before any data."""
        return cls(np.zeros((d, d)), np.zeros(d), np.zeros(d), np.zeros((d, d)), np.eye(d))

    def with_data(self, V: Matrix, W: Vector) -> StartInformation:
        """Return the information with further whitened innovations W, shape (m,), and their derivatives V, (m, d)."""
        A, b = self.A + V.T @ V, self.b + V.T @ W
        diagonal = np.diag(A)
        size = 1 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
        values, vectors = np.linalg.eigh(A * np.outer(size, size))
        seen = values > _SINGULAR * max(values[-1], 1e-300)
        scaled = size[:, None] * vectors[:, seen]
        covariance = (scaled / values[seen]) @ scaled.T
        return StartInformation(A, b, -covariance @ b, covariance, vectors[:, ~seen] / size[:, None])

    @property
    def is_complete(self) -> bool:
        """Whether every component is determined."""
        return not self.null.shape[1]

    def determines(self, V: Matrix) -> BoolVector:
        """Tell of every row of derivatives, shape (k, d), whether its quantity is determined."""
        if self.is_complete:
            return np.ones(len(V), dtype=bool)
        # `null` holds unit vectors of the scaled space divided by its scale: reach and length in the same units
        diagonal = np.diag(self.A)
        size = 1 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
        scaled = V * size
        reach = np.linalg.norm(scaled @ (self.null * size[:, None]), axis=1)
        return np.asarray(reach <= _REACHES * np.linalg.norm(scaled, axis=1))
