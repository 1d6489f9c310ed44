"""Symmetric matrices of blocks along the diagonal and a border: what entities have for themselves, and what they share.

With D block diagonal, B the border and X = D^-1 B::

    inverse of (D  B)  =  (D^-1 + X S^-1 X'   -X S^-1)        S = C - B'X
               (B' C)     (    -S^-1 X'         S^-1 )
"""

from __future__ import annotations

import numpy as np

from fmepy.types import IntVector, Matrix

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
