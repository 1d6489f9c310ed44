"""Collinearity of sets of columns: kernels of arrays, no names.

For the sensitivity matrix S (n_obs, n_par) and a set K of its columns (Brun et al. 2001, eq. 5)::

    s_j = S_j / |S_j|                          columns of length 1
    gamma_K = 1 / sqrt(lambda_min(s_K' s_K)) = 1 / sigma_min(s_K)

The other parameters of the set can compensate a change of one down to a fraction 1 / gamma of its effect. 1 is
orthogonal, infinite is exactly dependent; larger sets that contain K have no smaller one.

Eigenvalues of s's are good to about 1e-15, which is worth little where gamma is large; there sigma_min is taken from a
singular value decomposition of the columns themselves (after one QR of s, which shortens them to n_par rows).

LAPACK spends most of its time on the overhead of one small matrix after the other. For eigenvalues the stack of the
matrices A of all sets is the innermost axis, so that every operation is one pass of numpy over all of them::

    Householder   A -> tridiagonal with diagonal d and off-diagonal e      (orthogonal: absolute error eps |A|)
    Laguerre      from lambda = 0, left of all roots of f(lambda) = det(T - lambda I):
                  q_1 = d_1 - lambda,  q_i = d_i - lambda - e_{i-1}^2 / q_{i-1},   f = prod q_i
                  s = -f'/f,  h = s^2 - f''/f
                  lambda += n / (s + sqrt((n - 1) (n h - s^2)))

All roots are real, so Laguerre's iteration rises monotonically to the smallest one, with cubic convergence, from any
start below it; for a root of multiplicity n it arrives in one step.

References
----------
Parlett, B. N. (1964). Laguerre's method applied to the matrix eigenvalue problem. Math. Comp. 18, 464-485.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, combinations, islice
from math import comb

import numpy as np
from numpy.typing import NDArray

from fmepy.types import BoolVector, Cube, Matrix, Vector

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


# --- the smallest eigenvalue of many small matrices

_CONVERGED = 1e-9  # relative to the largest eigenvalue: the next step, cubically smaller, would be below rounding
_MOST_STEPS = 40


def smallest_eigenvalues(A: Cube) -> Vector:
    """Return the smallest eigenvalue of each positive semi-definite matrix of a stack.

    Parameters
    ----------
    A : ndarray, shape (n, n, n_stack)
        Symmetric; it is overwritten.

    Returns
    -------
    ndarray, shape (n_stack,)
        Good to about 1e-15 times the largest eigenvalue; never below 0.

    Examples
    --------
    >>> A = np.array([[2.0, 1.0], [1.0, 2.0]])
    >>> smallest_eigenvalues(A[:, :, None].copy())
    array([1.])
    """
    d, e2 = _tridiagonal(A)
    return _smallest_root(d, e2)


def _tridiagonal(A: Cube) -> tuple[Matrix, Matrix]:
    """Return diagonals, shape (n, n_stack), and squared off-diagonals, shape (n - 1, n_stack)."""
    n, _, m = A.shape
    d, e2 = np.empty((n, m)), np.empty((max(n - 1, 0), m))
    for k in range(n - 2):
        d[k] = A[k, k]
        v = A[k + 1 :, k].copy()
        e2[k] = np.einsum("im,im->m", v, v)
        alpha = -np.copysign(np.sqrt(e2[k]), v[0])
        half = e2[k] - alpha * v[0]  # v'v / 2 of the reflection I - v v' / half
        v[0] -= alpha
        beta = np.divide(1.0, half, out=np.zeros(m), where=half > 0)
        B = A[k + 1 :, k + 1 :]
        w = np.einsum("ijm,jm->im", B, v)
        w *= beta
        w -= (0.5 * beta * np.einsum("im,im->m", w, v)) * v
        for i in range(n - k - 1):
            B[i:, i] -= v[i:] * w[i] + w[i:] * v[i]
            B[i, i:] = B[i:, i]
    for k in range(max(n - 2, 0), n):
        d[k] = A[k, k]
    if n > 1:
        e2[n - 2] = A[n - 1, n - 2] ** 2
    return d, e2


def _smallest_root(d: Matrix, e2: Matrix) -> Vector:
    n, m = d.shape
    root = np.zeros(m)
    size = d.max(axis=0)
    with np.errstate(all="ignore"):  # a root met exactly divides by zero: it stays where it is
        for _ in range(_MOST_STEPS):
            q = d[0] - root
            a, b = -1 / q, np.zeros(m)  # q'/q and q''/q
            s, h = -a, a * a
            for i in range(1, n):
                t = e2[i - 1] / q
                q = d[i] - root - t
                a, b = (t * a - 1) / q, t * (b - 2 * a * a) / q
                s, h = s - a, h + a * a - b
            step = n / (s + np.sqrt(np.maximum((n - 1) * (n * h - s * s), 0)))
            usable = np.isfinite(step) & (step > 0) & (s > 0)
            root = np.where(usable, root + step, root)
            if not np.any(usable & (step > _CONVERGED * size)):
                break
    return root
