"""Collinearity of sets of columns: kernels of arrays, no names.

For the sensitivity matrix S (n_obs, n_par) and a set K of its columns (Brun et al. 2001, eq. 5)::

    s_j = S_j / |S_j|                          columns of length 1
    gamma_K = 1 / sqrt(lambda_min(s_K' s_K)) = 1 / sigma_min(s_K)

gamma says by how much a change of one parameter can be made up for by the others of the set: down to a fraction of
1 / gamma of its effect. 1 is orthogonal, infinite is exactly dependent; larger sets that contain K have no smaller one.

Eigenvalues of s's are good to about 1e-15, which is worth little where gamma is large; there sigma_min is taken from a
singular value decomposition of the columns themselves (after one QR of s, which shortens them to n_par rows).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, combinations, islice
from math import comb

import numpy as np
from numpy.typing import NDArray

from fmepy.sensitivity.eigenvalues import smallest_eigenvalues
from fmepy.types import BoolVector, Matrix, Vector

_SVD_BELOW = 1e-6  # eigenvalue; there gamma is above 1000 and its error from the eigenvalue 1e-9
_BLOCK = 1 << 19  # numbers in a stack of matrices: 4 MB, large enough that the passes cost more than their calls
IntMatrix = NDArray[np.intp]


class Normalised:
    """A sensitivity matrix with columns of length 1, prepared for many sets.

    Attributes
    ----------
    s : ndarray, shape (n_obs, n_par)
        Columns of length 1; columns of zeros stay.
    R : ndarray, shape (min(n_obs, n_par), n_par)
        The triangle of its QR factors: the same singular values in fewer rows.
    gram : ndarray, shape (n_par, n_par)
        s's.
    is_zero : ndarray of bool, shape (n_par,)
        Columns of zeros.
    """

    def __init__(self, S: Matrix) -> None:
        self.s, self.is_zero = normalise(S)
        self.R: Matrix = np.asarray(np.linalg.qr(self.s, mode="r"))
        self.gram: Matrix = self.s.T @ self.s

    @property
    def rounding(self) -> float:
        """Relative size below which a singular value is zero (as in numpy's matrix_rank)."""
        return float(max(self.s.shape) * np.finfo(float).eps)


def normalise(S: Matrix) -> tuple[Matrix, BoolVector]:
    """Return S with columns of length 1, and which columns are all zero (they stay zero).

    Examples
    --------
    >>> normalise(np.array([[3.0, 0.0], [4.0, 0.0]]))
    (array([[0.6, 0. ],
           [0.8, 0. ]]), array([False,  True]))
    """
    largest = np.abs(S).max(axis=0, initial=0.0)
    is_zero = largest == 0
    T = S / np.where(is_zero, 1.0, largest)  # no overflow in the squares
    length = np.sqrt(np.einsum("ij,ij->j", T, T))
    return T / np.where(is_zero, 1.0, length), is_zero


def collinearities(matrix: Normalised, subsets: IntMatrix) -> Vector:
    """Return gamma of each set.

    Parameters
    ----------
    matrix : Normalised
    subsets : ndarray of int, shape (n_set, n)
        Positions of columns, one set a row.

    Returns
    -------
    ndarray, shape (n_set,)
        1 for sets of one; infinite for dependent columns and for sets with a column of zeros.

    Examples
    --------
    >>> S = np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0], [0.0, 0.0, 0.0]])
    >>> collinearities(Normalised(S), np.array([[0, 1], [0, 2], [1, 2]])).round(4)
    array([1.8478, 1.    , 1.8478])
    """
    n_set, n = subsets.shape
    if n > matrix.R.shape[0]:  # more columns than rows
        return np.full(n_set, np.inf)
    if n == 1:
        return np.where(matrix.is_zero[subsets[:, 0]], np.inf, 1.0)
    columns = np.ascontiguousarray(subsets.T)
    eigenvalue = smallest_eigenvalues(matrix.gram[columns[:, None], columns[None]])
    with np.errstate(divide="ignore"):
        gamma = np.maximum(1 / np.sqrt(eigenvalue), 1.0)
    unsure = np.flatnonzero(eigenvalue < _SVD_BELOW)
    if unsure.size:
        sigma = np.linalg.svd(matrix.R.T[subsets[unsure]], compute_uv=False)
        with np.errstate(divide="ignore"):
            exact = 1 / sigma[:, -1]
        gamma[unsure] = np.where(sigma[:, -1] <= matrix.rounding * sigma[:, 0], np.inf, exact)
    return gamma


def subset_blocks(n_par: int, n: int) -> Iterator[IntMatrix]:
    """Return all sets of `n` of `n_par` columns in lexicographic order, in blocks of bounded memory.

    Examples
    --------
    >>> [block.tolist() for block in subset_blocks(3, 2)]
    [[[0, 1], [0, 2], [1, 2]]]
    """
    sets = combinations(range(n_par), n)
    left, most = comb(n_par, n), max(1, _BLOCK // n**2)
    while left:
        count = min(most, left)
        flat = np.fromiter(chain.from_iterable(islice(sets, count)), dtype=np.intp, count=count * n)
        yield flat.reshape(count, n)
        left -= count


def membership(subsets: IntMatrix, n_par: int) -> NDArray[np.int8]:
    """Return sets as rows of 0 and 1, shape (n_set, n_par)."""
    out = np.zeros((len(subsets), n_par), dtype=np.int8)
    np.put_along_axis(out, subsets, 1, axis=1)
    return out


def inflation(matrix: Normalised) -> tuple[Vector, Matrix, Vector]:
    """Return singular values, right singular vectors (rows) and variance inflation of the columns.

    Returns
    -------
    sigma : ndarray, shape (n_par,)
        Singular values of s in falling order; those below rounding are 0.
    V : ndarray, shape (n_par, n_par)
        Row k belongs to ``sigma[k]``.
    vif : ndarray, shape (n_par,)
        ``diag(inverse(s's))``: by how much the variance of an estimate exceeds that of the parameter estimated alone.
    """
    n_par = matrix.s.shape[1]
    _, values, V = np.linalg.svd(matrix.R, full_matrices=True)
    sigma = np.zeros(n_par)
    sigma[: values.size] = values
    sigma[sigma <= matrix.rounding * sigma.max(initial=0.0)] = 0.0
    squared = V**2
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(squared > 1e-20, squared / sigma[:, None] ** 2, 0.0)  # 1e-20: rounding of a component of zero
    return sigma, V, terms.sum(axis=0)
