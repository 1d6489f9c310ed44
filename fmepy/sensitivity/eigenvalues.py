"""The smallest eigenvalue of many small symmetric matrices at once: the kernel under `collin`.

LAPACK spends most of its time on the overhead of one matrix after the other. Here the stack is the innermost axis, so
that every operation is one pass of numpy over all matrices::

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

import numpy as np

from fmepy.types import Cube, Matrix, Vector

_ARRIVED = 1e-9  # relative to the largest eigenvalue: the next step, cubically smaller, would be below rounding
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
            if not np.any(usable & (step > _ARRIVED * size)):
                break
    return root
