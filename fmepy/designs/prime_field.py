"""Linear algebra over the prime field of `power_series`: echelon form, null space, small fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from fmepy.designs.power_series import PRIME, inverse
from fmepy.types import IntMatrix


def echelon(M: IntMatrix) -> tuple[IntMatrix, list[int]]:
    """Return the reduced row echelon form without its rows of zeros, and the columns of its leading ones."""
    A, pivots, row = np.array(M, dtype=np.int64) % PRIME, list[int](), 0
    for column in range(A.shape[1]):
        below = np.flatnonzero(A[row:, column])
        if not len(below):
            continue
        k = row + int(below[0])
        A[[row, k]] = A[[k, row]]
        A[row] = A[row] * inverse(int(A[row, column])) % PRIME
        others = np.flatnonzero(A[:, column])
        others = others[others != row]
        A[others] = (A[others] - A[others, column][:, None] * A[row] % PRIME) % PRIME
        pivots.append(column)
        row += 1
        if row == len(A):
            break
    return A[:row], pivots


def independent(M: IntMatrix) -> list[int]:
    """Return the columns that are independent of those before them; as many as the rank."""
    return echelon(M)[1]


def null_space(M: IntMatrix) -> IntMatrix:
    """Return a basis of the vectors v with M v = 0, a row each, in echelon form."""
    R, pivots = echelon(M)
    free = [j for j in range(M.shape[1]) if j not in pivots]
    out = np.zeros((len(free), M.shape[1]), dtype=np.int64)
    for i, j in enumerate(free):
        out[i, j] = 1
        out[i, pivots] = -R[:, j] % PRIME
    return echelon(out)[0]


def small_fraction(value: int, most: int = 1000) -> Fraction | None:
    """Return the fraction of small numbers that is a remainder, if there is one (by the Euclidean algorithm)."""
    r, s = (PRIME, int(value) % PRIME), (0, 1)
    while r[1] > most:
        q = r[0] // r[1]
        r, s = (r[1], r[0] - q * r[1]), (s[1], s[0] - q * s[1])
    return Fraction(r[1], s[1]) if s[1] and abs(s[1]) <= most else None
