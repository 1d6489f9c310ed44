"""Square systems of a known structure, factored once and solved often: dense, banded or sparse.

Each is made of a `Structure` and called with the values of its entries; what comes back solves, and says how large its
smallest pivot is beside the largest: zero, or nearly, where the matrix is singular.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.linalg import lapack

from fmepy.types import Matrix, Vector

if TYPE_CHECKING:
    from fmepy.numerics.structure import Structure


def _row_sizes(structure: Structure, values: Vector) -> Vector:
    """Return the largest entry of every row, 1 of empty ones."""
    size = np.zeros(structure.n)
    np.maximum.at(size, structure.rows, np.abs(values))
    size[size == 0] = 1.0
    return size


def _ratio(pivots: Vector) -> float:
    size = np.abs(pivots)
    most = float(size.max(initial=0.0))
    return float(size.min()) / most if most > 0 and np.isfinite(most) else 0.0


class Factored:
    """A matrix, factored by LAPACK or SuperLU: rows scaled, inputs in another order.

    Attributes
    ----------
    pivots : float
        The smallest pivot beside the largest, after rows were scaled to the same size; 0 of a singular matrix.
    """

    def __init__(self, scale: Vector, order: Any, pivots: float, inner: Any) -> None:
        self._scale, self._order, self.pivots, self._inner = scale, order, pivots, inner

    def solve(self, b: Matrix) -> Matrix:
        """Return x of A x = b, for one b or several columns."""
        scaled = b / (self._scale if b.ndim == 1 else self._scale[:, None])
        if self._order is None:
            found: Matrix = self._inner(scaled)
            return found
        out = np.empty_like(scaled)
        out[self._order] = self._inner(scaled[self._order])
        return out


class Dense:
    """Factors by LAPACK's getrf."""

    def __init__(self, structure: Structure) -> None:
        self._structure = structure

    def __call__(self, values: Vector) -> Factored:  # noqa: D102    # told by its class
        s = self._structure
        scale = _row_sizes(s, values)
        full = np.zeros((s.n, s.n), order="F")
        full[s.rows, s.columns] = values / scale[s.rows]
        lu, piv, _ = lapack.dgetrf(full, overwrite_a=True)
        return Factored(scale, None, _ratio(np.diagonal(lu)), lambda b: lapack.dgetrs(lu, piv, b)[0])


class Banded:
    """Factors by LAPACK's gbtrf."""

    def __init__(self, structure: Structure) -> None:
        s, (order, lower, upper) = structure, structure.band
        place = np.empty(s.n, dtype=np.intp)
        place[order] = np.arange(s.n)
        i, j = place[s.rows], place[s.columns]
        self._structure, self._lower, self._upper = s, lower, upper
        self._order = None if (order == np.arange(s.n)).all() else order
        self._at = (lower + upper + i - j, j)

    def __call__(self, values: Vector) -> Factored:  # noqa: D102    # told by its class
        s, lower, upper = self._structure, self._lower, self._upper
        scale = _row_sizes(s, values)
        band = np.zeros((2 * lower + upper + 1, s.n), order="F")
        band[self._at] = values / scale[s.rows]
        lu, piv, _ = lapack.dgbtrf(band, lower, upper, overwrite_ab=True)
        pivots = _ratio(lu[lower + upper])
        return Factored(scale, self._order, pivots, lambda b: lapack.dgbtrs(lu, lower, upper, b, piv)[0])


class Sparse:
    """Factors by SuperLU."""

    def __init__(self, structure: Structure) -> None:
        self._structure = structure

    def __call__(self, values: Vector) -> Factored:  # noqa: D102    # told by its class
        from scipy.sparse import csc_matrix
        from scipy.sparse.linalg import splu

        s = self._structure
        scale = _row_sizes(s, values)
        matrix = csc_matrix((values / scale[s.rows], (s.rows, s.columns)), shape=(s.n, s.n))
        try:
            lu = splu(matrix)
        except (RuntimeError, ValueError):  # exactly singular, or not finite
            return Factored(scale, None, 0.0, lambda b: np.full_like(b, np.nan))
        return Factored(scale, None, _ratio(lu.U.diagonal()), lu.solve)
