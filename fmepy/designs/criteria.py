"""Criteria of optimal designs: functions of an information matrix, and their slopes.

=====  =============================================  ==================================
D      log det M; of some parameters -log det C_ss    M^-1 (less that of the others)
A      -trace C_ss                                    C P C
E      the smallest eigenvalue of M (or of C_ss^-1)   v v'
ME     -log of the ratio of eigenvalues (modified E)  -
G      -largest variance of a prediction, in units     -
       of that of its reading
c      -g' C g, g the gradient of a prediction        C g g' C
=====  =============================================  ==================================

C = M^-1, P selects the parameters in question (Atkinson, Donev and Tobias 2007, Optimum
Experimental Designs, chapter 10).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fmepy.types import Cube, IntVector, Matrix, Vector

CRITERIA = ("D", "A", "E", "ME", "G", "c")


@dataclass(frozen=True)
class Criterion:
    """A criterion; larger is better.

    Attributes
    ----------
    kind : str
        One of `CRITERIA`.
    chosen : ndarray of int
        The parameters in question.
    gradient : ndarray or None
        Of the prediction, of "c".
    candidates : ndarray or None
        Information of all candidates, of "G".
    """

    kind: str
    chosen: IntVector
    gradient: Any = None
    candidates: Any = None

    def of(self, M: Cube) -> Vector:
        """Return the values of many matrices, shape (n,); -inf of singular ones."""
        scale = np.sqrt(np.maximum(np.diagonal(M, axis1=-2, axis2=-1), 1e-300))
        N = M / (scale[..., :, None] * scale[..., None, :])
        value, V = np.linalg.eigh(N)
        good = value[..., 0] > 1e-12
        value = np.maximum(value, 1e-12)
        s, n = self.chosen, M.shape[-1]
        if self.kind == "D" and len(s) == n:
            return np.where(good, np.log(value).sum(-1) + 2 * np.log(scale).sum(-1), -np.inf)
        W = V / scale[..., :, None]  # C = W diag(1/value) W'
        if self.kind == "G":
            C = (W / value[..., None, :]) @ np.swapaxes(W, -1, -2)
            found = -np.einsum("...ij,kij->...k", C, self.candidates).max(-1)
        elif self.kind == "c":
            g = np.einsum("...ij,i->...j", W, self.gradient)
            found = -(g**2 / value).sum(-1)
        else:
            C = ((W / value[..., None, :]) @ np.swapaxes(W, -1, -2))[..., s[:, None], s[None, :]]
            ends = np.linalg.eigvalsh(C)
            low, high = np.maximum(ends[..., 0], 1e-300), np.maximum(ends[..., -1], 1e-300)
            values = {"D": -np.log(np.maximum(ends, 1e-300)).sum(-1), "A": -ends.sum(-1), "E": 1 / high}
            found = values.get(self.kind, -np.log(high / low))
        return np.where(good, found, -np.inf)

    def slope(self, M: Matrix) -> Matrix | None:
        """Return the derivative with respect to M, None for a criterion without a bound by it."""
        C: Matrix = np.asarray(np.linalg.inv(M), dtype=float)
        s = self.chosen
        if self.kind == "D":
            rest = np.setdiff1d(np.arange(len(M)), s)
            out: Matrix = C.copy()
            out[np.ix_(rest, rest)] -= np.linalg.inv(M[np.ix_(rest, rest)]) if len(rest) else 0.0
            return out
        if self.kind == "A":
            return np.asarray(C[:, s] @ C[s])
        if self.kind == "c":
            return np.asarray(np.outer(C @ self.gradient, C @ self.gradient))
        if self.kind == "E":
            value, V = np.linalg.eigh(C[np.ix_(s, s)])
            w = C[:, s] @ V[:, -1] / value[-1]
            return np.asarray(np.outer(w, w))
        return None

    def efficiency(self, M: Matrix, gap: float) -> float:
        """Return a lower bound of the efficiency of M, relative to the best, from the gap that the slope bounds."""
        best, now = float(self.of(M[None])[0]), max(gap, 0.0)
        if self.kind == "D":
            return float(np.exp(-now / len(self.chosen)))
        if self.kind == "E":
            return best / (best + now)
        return max((best + now) / best, 0.0) if best else 1.0
