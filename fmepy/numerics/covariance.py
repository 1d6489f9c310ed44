"""Covariances: from a Hessian, with what is undetermined if it is singular; correlations; factors of singular ones.

One definition for all least-squares costs, whatever method found the optimum, with J the Jacobian of the scaled
residuals (prior rows included)::

    hessian = 2 J'J,    cov_unscaled = inverse(hessian / 2) = (J'J)^-1

For a number, -2 log L, the Hessian is that of second differences and ``inverse(hessian / 2)`` the covariance itself.

Columns are brought to length one before anything is inverted, so that the size of parameters plays no part in what
counts as singular. A combination of parameters is undetermined if its singular value is below 1e-7 of the largest
(1e-14 in J'J, where double precision ends).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fmepy.types import BoolVector, Matrix, Vector

SINGULAR = 1e-7
"""Of the largest singular value: what lies below it is zero."""


@dataclass(frozen=True, slots=True, eq=False)
class Spectrum:
    """A Hessian in its own axes, its parameters brought to one size: rank, covariance, and what is undetermined.

    Attributes
    ----------
    kept : ndarray of bool, shape (n_par,)
        Parameters that count.
    diagonal, size : ndarray, shape (n_kept,)
        Of the Hessian, and what brings it to one (zero where it is zero).
    values, vectors : ndarray, shape (n_kept,) and (n_kept, n_kept)
        Eigenvalues of the Hessian brought to size, rising, NaN if it is not finite; eigenvectors in columns.
    """

    kept: BoolVector
    diagonal: Vector
    size: Vector
    values: Vector
    vectors: Matrix

    @classmethod
    def of(cls, hessian: Matrix, kept: BoolVector | None = None) -> Spectrum:
        """Return the spectrum of a Hessian, of the parameters `kept` (None: all) that are not NaN in it."""
        diagonal = hessian.diagonal()
        mine = ~np.isnan(diagonal) if kept is None else kept & ~np.isnan(diagonal)
        if not mine.all():
            hessian, diagonal = hessian[mine][:, mine], diagonal[mine]
        root = np.sqrt(np.abs(diagonal))
        size = np.divide(1.0, root, out=np.zeros_like(root), where=root > 0)
        unit = hessian * (size[:, None] * size)
        if not np.isfinite(unit).all():
            return cls(mine, diagonal, size, np.full(root.size, np.nan), np.zeros_like(unit))
        values, vectors = np.linalg.eigh(unit)
        return cls(mine, diagonal, size, values, vectors)

    @property
    def rank(self) -> int:
        """Numerical rank; 0 for a Hessian that is not finite."""
        if not self.values.size or np.isnan(self.values[0]):
            return 0
        values = np.abs(self.values)
        return int(np.count_nonzero(values > SINGULAR**2 * values.max()))

    @property
    def is_definite(self) -> bool:
        """True if it is positive definite, beyond rounding."""
        if not self.values.size or np.isnan(self.values[0]):
            return False
        return bool((self.diagonal > 0).all() and self.values[0] > SINGULAR**2 * self.values[-1])

    @property
    def covariance(self) -> Matrix:
        """inverse(hessian / 2), shape (n_par, n_par); NaN if it is not definite, and where parameters do not count."""
        out = np.full((self.kept.size,) * 2, np.nan)
        if self.is_definite:
            inverse = (self.vectors / self.values) @ self.vectors.T
            out[np.ix_(self.kept, self.kept)] = 2 * inverse * (self.size[:, None] * self.size)
        return out

    def undetermined(self, names: Sequence[str], scale: Vector) -> str:
        """Return the combination of parameters that a singular Hessian leaves undetermined; "" if there is none.

        Parameters
        ----------
        names : sequence of str, length n_par
        scale : ndarray, shape (n_par,)
            Sizes of the parameters; the combination is told in relative changes.

        Examples
        --------
        >>> H = np.array([[2.0, 2.0, 0.0], [2.0, 2.0, 0.0], [0.0, 0.0, 1.0]])
        >>> Spectrum.of(H).undetermined(["a", "b", "c"], np.ones(3))
        '+1.00 a -1.00 b'
        """
        if not self.values.size or np.isnan(self.values[0]):
            return ""
        mine = [name for name, kept in zip(names, self.kept, strict=True) if kept]
        own = scale[self.kept]
        diagonal = self.diagonal * own**2
        dead = diagonal <= 0 if (diagonal <= 0).any() else diagonal <= 1e-28 * diagonal.max()
        if dead.any():
            return ", ".join(n for n, d in zip(mine, dead, strict=True) if d)
        if self.values[0] > SINGULAR**2 * self.values[-1]:
            return ""
        direction = self.vectors[:, 0] * self.size / own
        direction = direction / direction[np.argmax(np.abs(direction))]
        return " ".join(f"{c:+.2f} {n}" for c, n in zip(direction, mine, strict=True) if abs(c) > 0.01)


class Spectra:
    """The spectra of one Hessian by the parameters that count, each found once."""

    def __init__(self, hessian: Matrix) -> None:
        self.hessian = hessian
        self._known: dict[bytes, Spectrum] = {}

    def __call__(self, kept: BoolVector) -> Spectrum:
        """Return the spectrum of the parameters `kept`."""
        key = kept.tobytes()
        if key not in self._known:
            self._known[key] = Spectrum.of(self.hessian, kept)
        return self._known[key]


def covariance_of(hessian: Matrix) -> Matrix:
    """Return inverse(hessian / 2), all NaN if it is singular or not positive definite.

    Parameters
    ----------
    hessian : ndarray, shape (n_par, n_par)
        Rows and columns that are NaN belong to parameters that are left out; they stay NaN.

    Examples
    --------
    >>> covariance_of(np.array([[2.0, 0.0], [0.0, 8.0]]))
    array([[1.  , 0.  ],
           [0.  , 0.25]])
    """
    return Spectrum.of(np.asarray(hessian, dtype=float)).covariance


def rank_of(hessian: Matrix) -> int:
    """Return the numerical rank of a Hessian, its parameters brought to one size; NaN rows are left out.

    Examples
    --------
    >>> rank_of(np.array([[2.0, 2e-6, 0.0], [2e-6, 2e-12, 0.0], [0.0, 0.0, 0.0]]))
    1
    """
    return Spectrum.of(np.asarray(hessian, dtype=float)).rank


def correlation_of(covariance: Matrix) -> Matrix:
    """Return the correlations of a covariance, the diagonal exactly one (NaN stays NaN)."""
    sd = np.sqrt(np.diag(covariance))
    with np.errstate(divide="ignore", invalid="ignore"):
        out = covariance / np.outer(sd, sd)
    out[np.diag_indices_from(out)] = np.where(np.isfinite(sd), 1.0, np.nan)
    return np.asarray(out)


def semidefinite_factor(matrix: Matrix) -> Matrix:
    """Return C with C C' = matrix, lower triangular; a matrix that is not a covariance gives NaN.

    Rows of zero variance are allowed.
    """
    n = len(matrix)
    C = np.zeros((n, n))
    floor = 1e-14 * max(float(np.max(np.diag(matrix), initial=0.0)), 0.0)
    for i in range(n):
        for j in range(i + 1):
            total = matrix[i, j] - C[i, :j] @ C[j, :j]
            if i == j:
                if total < -floor:
                    return np.full((n, n), np.nan)
                C[i, i] = np.sqrt(max(total, 0.0)) if total > floor else 0.0
            elif C[j, j] > 0:
                C[i, j] = total / C[j, j]
    return C
