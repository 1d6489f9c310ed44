"""Covariances: from a Hessian, with what is undetermined if it is singular; correlations; factors of singular ones.

One definition for all least-squares costs, whatever method found the optimum, with J the Jacobian of the scaled
residuals (prior rows included)::

    hessian = 2 J'J,    cov_unscaled = inverse(hessian / 2) = (J'J)^-1

For a number, -2 log L, the Hessian is that of second differences and ``inverse(hessian / 2)`` the covariance itself.

Columns are brought to length one before anything is inverted, so that the size of parameters plays no part in what
counts as singular. A combination of parameters is undetermined if its singular value is below 1e-7 of the largest
(1e-14 in J'J, where double precision ends).

Entities with parameters of their own make blocks along the diagonal, and what they share a border. With D block
diagonal, B the border and X = D^-1 B::

    inverse of (D  B)  =  (D^-1 + X S^-1 X'   -X S^-1)        S = C - B'X
               (B' C)     (    -S^-1 X'         S^-1 )
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fmepy.types import BoolVector, IntVector, Matrix, Vector

SINGULAR = 1e-7
"""Of the largest singular value: what lies below it is zero."""
MANY = 64
"""Parameters from which on the inverse is tried before the axes are looked for."""
_SAFE = 1e3  # how far from singular it must be then


@dataclass(frozen=True, eq=False)  # no slots: its axes are found when they are first asked for
class Spectrum:
    """A Hessian in its own axes, its parameters brought to one size: rank, covariance, and what is undetermined.

    Of many parameters its inverse alone answers the same questions where the Hessian is well away from singular.

    Attributes
    ----------
    kept : ndarray of bool, shape (n_par,)
        Parameters that count.
    diagonal, size : ndarray, shape (n_kept,)
        Of the Hessian, and what brings it to one (zero where it is zero).
    unit : ndarray, shape (n_kept, n_kept)
        The Hessian brought to size.
    """

    kept: BoolVector
    diagonal: Vector
    size: Vector
    unit: Matrix

    @classmethod
    def of(cls, hessian: Matrix, kept: BoolVector | None = None) -> Spectrum:
        """Return the spectrum of a Hessian, of the parameters `kept` (None: all) that are not NaN in it."""
        diagonal = hessian.diagonal()
        mine = ~np.isnan(diagonal) if kept is None else kept & ~np.isnan(diagonal)
        if not mine.all():
            hessian, diagonal = hessian[mine][:, mine], diagonal[mine]
        root = np.sqrt(np.abs(diagonal))
        size = np.divide(1.0, root, out=np.zeros_like(root), where=root > 0)
        return cls(mine, diagonal, size, hessian * (size[:, None] * size))

    @cached_property
    def _axes(self) -> tuple[Vector, Matrix]:
        if not np.isfinite(self.unit).all():
            return np.full(self.size.size, np.nan), np.zeros_like(self.unit)
        values, vectors = np.linalg.eigh(self.unit)
        return values, vectors

    @property
    def values(self) -> Vector:
        """Eigenvalues of the Hessian brought to size, rising, NaN if it is not finite, shape (n_kept,)."""
        return self._axes[0]

    @property
    def vectors(self) -> Matrix:
        """Its eigenvectors in columns, shape (n_kept, n_kept)."""
        return self._axes[1]

    @cached_property
    def _known_inverse(self) -> Matrix | None:
        """The inverse of one of many parameters that is well away from singular, without its axes; else None."""
        if self.size.size < MANY or not (self.diagonal > 0).all() or not np.isfinite(self.unit).all():
            return None
        inverse = inverse_of_definite(self.unit)
        if inverse is None or _SAFE * SINGULAR**2 * _norm(self.unit) * _norm(inverse) > 1:
            return None
        return inverse

    @property
    def rank(self) -> int:
        """Numerical rank; 0 for a Hessian that is not finite."""
        if self._known_inverse is not None:
            return int(self.size.size)
        if not self.values.size or np.isnan(self.values[0]):
            return 0
        values = np.abs(self.values)
        return int(np.count_nonzero(values > SINGULAR**2 * values.max()))

    @property
    def is_definite(self) -> bool:
        """True if it is positive definite, beyond rounding."""
        if self._known_inverse is not None:
            return True
        if not self.values.size or np.isnan(self.values[0]):
            return False
        return bool((self.diagonal > 0).all() and self.values[0] > SINGULAR**2 * self.values[-1])

    @property
    def covariance(self) -> Matrix:
        """inverse(hessian / 2), shape (n_par, n_par); NaN if it is not definite, and where parameters do not count."""
        out = np.full((self.kept.size,) * 2, np.nan)
        if self.is_definite:
            known = self._known_inverse
            inverse = (self.vectors / self.values) @ self.vectors.T if known is None else known
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
        if self._known_inverse is not None or not self.values.size or np.isnan(self.values[0]):
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


def inverse_of_definite(A: Matrix) -> Matrix | None:
    """Return the inverse of a symmetric matrix, None if it is not positive definite."""
    from scipy.linalg.lapack import dpotrf, dpotri

    bordered = blocks_with_border(A)
    if bordered is not None:
        return inverse_of_bordered(A, *bordered)
    factor, failed = dpotrf(A, lower=1, clean=1)
    lower = None if failed else np.tril(dpotri(factor, lower=1)[0])
    return None if lower is None else np.asarray(lower + np.tril(lower, -1).T)


def _norm(A: Matrix) -> float:
    return float(np.abs(A).sum(axis=0).max(initial=0.0))


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


def root_of(information: Matrix) -> Matrix:
    """Return R with R'R = the matrix, as far as it is not negative."""
    values, vectors = np.linalg.eigh(information)
    return np.asarray(np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T)


# --- blocks with a border

_DENSE = 0.1  # share of a column that is not zero from which on it is of the border
_WIDEST = 0.1  # of the parameters: blocks and borders beyond it are no structure


def blocks_with_border(A: Matrix) -> tuple[list[IntVector], IntVector] | None:
    """Return the places of blocks along the diagonal, those of one size together (n_block, size), and of the border.

    None where the matrix has no such form.
    """
    n = len(A)
    filled = A != 0
    is_border = filled.sum(axis=0) > _DENSE * n
    if is_border.sum() > _WIDEST * n:
        return None
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    inner = np.flatnonzero(~is_border)
    _, label = connected_components(csr_array(filled[np.ix_(inner, inner)]), directed=False)
    sizes = np.bincount(label)
    if sizes.max() > max(_WIDEST * n, 1):
        return None
    of_label = inner[np.argsort(label, kind="stable")]
    ends = np.cumsum([0, *sizes])
    by_size = [
        np.array([of_label[ends[i] : ends[i + 1]] for i in np.flatnonzero(sizes == s)]) for s in np.unique(sizes)
    ]
    return by_size, np.flatnonzero(is_border)


def inverse_of_bordered(A: Matrix, blocks: list[IntVector], border: IntVector) -> Matrix | None:
    """Return the inverse of a matrix of that form, None if it is not positive definite."""
    X = np.zeros((len(A), len(border)))
    inverses = []
    try:
        for places in blocks:
            own = A[places[:, :, None], places[:, None, :]]
            np.linalg.cholesky(own)
            inverses.append(np.linalg.inv(own))
            X[places] = inverses[-1] @ A[places[:, :, None], border]
        S = A[np.ix_(border, border)] - A[:, border].T @ X
        np.linalg.cholesky(S)
        of_border = np.linalg.inv(S)
    except np.linalg.LinAlgError:
        return None
    X[border] = -np.eye(len(border))
    out = X @ of_border @ X.T
    for places, inverse in zip(blocks, inverses, strict=True):
        out[places[:, :, None], places[:, None, :]] += inverse
    return np.asarray(0.5 * (out + out.T))
