# mypy: disallow-untyped-defs=false, allow-untyped-calls
"""What the observations of every segment say of its start and its parameters, made triangular; translated.

Of a segment the weighted derivatives S of its observations and their weighted residuals r matter by R of [S, r] = QR
alone, however many observations there are (see `compiled`).
"""

from __future__ import annotations

from typing import NamedTuple

from fmepy.compiled.kernels import new
from fmepy.compiled.triangular import lower_factor
from fmepy.types import Cube, IntVector, Matrix, Vector


class ObservationRows(NamedTuple):
    """The observations and the runs.

    Attributes
    ----------
    rows, scales, places
        Of the runs, see `models.simultaneous_runs`; the places variable after variable.
    begins : ndarray of int, shape (n_segment + 1,)
        The first observation of every segment in `order`; at the end how many there are.
    order : ndarray of int, shape (n_obs,)
        The observations segment after segment.
    row, variable : ndarray of int, shape (n_obs,)
        Where an observation stands.
    obs, weights : ndarray, shape (n_obs,)
    mod, r : ndarray, shape (n_obs,)
        What the runs say of the observations, and weighted residuals: these come out, and R.
    squares : ndarray, shape (n_segment, n_par + 1, n_par + 1)
        R, transposed.
    most : int
        The most observations of a segment.
    """

    rows: Matrix
    scales: Matrix
    places: IntVector
    begins: IntVector
    order: IntVector
    row: IntVector
    variable: IntVector
    obs: Vector
    weights: Vector
    mod: Vector
    r: Vector
    squares: Cube
    most: int


def reduce(readings: ObservationRows, first: int, last: int) -> None:
    """Set `mod`, `r` and `squares` of the segments from the first to the last, which is left out."""
    at = readings
    k = at.squares.shape[1] - 1
    W, inverse = new(k + 1, at.most), new(k)
    for s in range(first, last):
        begin, n = at.begins[s], at.begins[s + 1] - at.begins[s]
        for j in range(k):
            inverse[j] = 1.0 / at.scales[s, j]
        for i in range(n):
            o = at.order[begin + i]
            place = at.variable[o] * (k + 1)
            value = at.rows[at.row[o], at.places[place]]
            at.mod[o] = value
            at.r[o] = W[k, i] = (value - at.obs[o]) * at.weights[o]
            for j in range(k):
                W[j, i] = at.rows[at.row[o], at.places[place + 1 + j]] * (inverse[j] * at.weights[o])
        lower_factor(W, k + 1, n)
        for j in range(k + 1):
            for i in range(min(n, k + 1)):
                at.squares[s, j, i] = W[j, i]
