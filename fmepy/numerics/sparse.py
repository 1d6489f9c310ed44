"""Jacobians of many parameters that are nearly all zero, as `scipy.sparse` arrays, and what is asked of any Jacobian.

Those of several experiments with parameters of their own: a row knows its entity's parameters and the shared ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fmepy.types import IntVector, Matrix, Vector

MANY = 64
"""Parameters from which on it pays."""


def sparse_jacobian(local: Matrix, columns: IntVector, n_par: int) -> Any:
    """Return J, shape (n_row, n_par), from its entries by row and their columns, -1 of none; doubles add up."""
    from scipy.sparse import coo_array

    rows, at = np.nonzero(columns >= 0)
    return coo_array((local[rows, at], (rows, columns[rows, at])), shape=(len(local), n_par)).tocsr()


def dense_jacobian(local: Matrix, columns: IntVector, n_par: int) -> Matrix:
    """Return the same as an array of numpy."""
    rows, at = np.nonzero(columns >= 0)
    out = np.zeros((len(local), n_par))
    np.add.at(out, (rows, columns[rows, at]), local[rows, at])
    return out


def is_sparse(J: Any) -> bool:
    """Tell whether a Jacobian is a sparse array."""
    return not isinstance(J, np.ndarray)


def dense(J: Any) -> Matrix:
    """Return a Jacobian as an array of numpy."""
    return np.asarray(J.toarray() if is_sparse(J) else J)


def as_sparse(J: Matrix) -> Any:
    """Return a Jacobian as a sparse array."""
    from scipy.sparse import csr_array

    return csr_array(J)


def entries(J: Any) -> Any:
    """Return the entries of a Jacobian, of a sparse one those that are kept."""
    return J.data if is_sparse(J) else J


def scaled_rows(J: Any, factors: Vector) -> Any:
    """Return diag(factors) J."""
    if not is_sparse(J):
        return J * factors[:, None]
    out = J.copy()
    out.data *= np.repeat(factors, np.diff(out.indptr))
    return out


def rows_at(J: Any, rows: IntVector, n_row: int) -> Any:
    """Return a sparse array with n_row rows, those of a sparse J where `rows` says, each once."""
    from scipy.sparse import csr_array

    place = np.arange(len(rows))
    return csr_array((np.ones(len(rows)), (rows, place)), shape=(n_row, len(rows))) @ J


def columns_at(J: Any, columns: IntVector, n_column: int) -> Any:
    """Return a Jacobian with n_column columns, those of J where `columns` says, each once."""
    if is_sparse(J):
        from scipy.sparse import csr_array

        place = np.arange(len(columns))
        return J @ csr_array((np.ones(len(columns)), (place, columns)), shape=(len(columns), n_column))
    out = np.zeros((len(J), n_column))
    out[:, columns] = J
    return out


def scaled_columns(J: Any, factors: Vector) -> Any:
    """Return J diag(factors)."""
    return (J * factors).tocsr() if is_sparse(J) else J * factors


def stacked(parts: Sequence[Any]) -> Any:
    """Return Jacobians one below the other; a sparse array if the first one is."""
    if len(parts) == 1 or not is_sparse(parts[0]):
        return parts[0] if len(parts) == 1 else np.concatenate(parts)
    from scipy.sparse import csr_array, vstack

    return vstack([csr_array(part) for part in parts], format="csr")


def normal_matrix(J: Any) -> Matrix:
    """Return J'J, dense."""
    return dense(J.T @ J)


def column_lengths(J: Any) -> Vector:
    """Return the length of every column."""
    squares = (J * J).sum(axis=0) if is_sparse(J) else np.einsum("ij,ij->j", J, J)
    return np.asarray(np.sqrt(squares))


def sparse_factor(A: Any) -> Any:
    """Return the factors of a symmetric matrix, with ``solve``; None if it is not positive definite."""
    from scipy.sparse import csc_array
    from scipy.sparse.linalg import splu

    try:
        factor = splu(csc_array(A), permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})
    except RuntimeError:  # exactly singular
        return None
    return factor if np.array_equal(factor.perm_r, factor.perm_c) and (factor.U.diagonal() > 0).all() else None


def projected_length(J: Any, r: Vector) -> float | None:
    """Return the length of the projection of r on the columns of a sparse J, None where these are all but dependent."""
    lengths = column_lengths(J)
    if not (lengths > 0).all():
        return None
    J = scaled_columns(J, 1 / lengths)
    N, g = J.T @ J, J.T @ r
    factor = sparse_factor(N)
    if factor is None:
        return None
    x = factor.solve(g)
    squares = float(g @ x)
    solved = np.abs(N @ x - g).max() <= 1e-8 * np.abs(g).max() and np.abs(x).max() <= 1e6 * np.abs(g).max()
    return float(squares**0.5) if solved and squares >= 0 else None
