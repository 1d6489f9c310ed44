"""The rightmost eigenvalue of a sparse matrix: whether a system at rest returns there when it is disturbed.

The states fall into parts that depend on each other both ways (strongly connected components); in their order the
matrix is block triangular, and its eigenvalues are those of the blocks. Small blocks are solved as dense ones. Of a
large one Arnoldi's method finds the rightmost eigenvalues, and, shifted and inverted, those next to zero, which the
first finds slowly where others are far to the left (Lehoucq, Sorensen and Yang 1998).

References
----------
Lehoucq, R. B., Sorensen, D. C. and Yang, C. (1998). ARPACK Users' Guide. SIAM.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy  # its rooms are loaded where they are asked for

from fmepy.numerics.structure import Structure
from fmepy.types import Vector

_DENSE = 400  # states up to which a block is solved as a dense one
_SOUGHT = 6  # eigenvalues of a large block
_SHIFT = 1e-8  # of the largest entry: right of zero
_MOST_RESTARTS = 200


def rightmost(structure: Structure, values: Vector) -> complex:
    """Return the eigenvalue with the largest real part, of a pair the one above the axis; NaN where none is found.

    Examples
    --------
    >>> complex(np.round(rightmost(Structure.dense(2), np.array([-1.0, 2.0, -2.0, -1.0])), 9))  # column by column
    (-1+2j)
    """
    if not np.isfinite(values).all():
        return complex(np.nan)
    n = structure.n
    J = scipy.sparse.csc_array((values, (structure.rows, structure.columns)), shape=(n, n))
    J.eliminate_zeros()
    count, part = scipy.sparse.csgraph.connected_components(J, directed=True, connection="strong")
    members = np.split(np.argsort(part, kind="stable"), np.cumsum(np.bincount(part, minlength=count))[:-1])
    alone = [own[0] for own in members if len(own) == 1]
    found = [J.diagonal()[alone].astype(complex)]
    found += [_eigenvalues(J[own][:, own]) for own in members if len(own) > 1]
    every = np.concatenate(found)
    if not len(every) or np.isnan(every).any():
        return complex(np.nan)
    best = every[np.argmax(every.real)]
    return complex(best.real, abs(best.imag))


def _eigenvalues(block: Any) -> Any:
    """Return the eigenvalues of a block, of a large one those that may be the rightmost; NaN where there are none."""
    n = block.shape[0]
    if n <= _DENSE or block.nnz > 0.5 * n * n:
        return np.linalg.eigvals(block.toarray()).astype(complex)
    begin = np.random.default_rng(1).uniform(0.5, 1.0, n)
    found = []
    for words in ({"which": "LR"}, {"sigma": _SHIFT * float(np.abs(block.data).max()), "which": "LM"}):
        try:
            found.append(
                scipy.sparse.linalg.eigs(
                    block, _SOUGHT, v0=begin, maxiter=_MOST_RESTARTS, return_eigenvectors=False, **words
                )
            )
        except scipy.sparse.linalg.ArpackNoConvergence as error:
            found.append(error.eigenvalues)
        except (scipy.sparse.linalg.ArpackError, RuntimeError):  # the shifted matrix is singular
            continue
    values = np.concatenate([*found, np.empty(0, complex)])
    return values if len(values) else np.array([complex(np.nan)])
