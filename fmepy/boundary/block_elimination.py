# mypy: disallow-untyped-defs=false, allow-untyped-calls
"""Block elimination: the segments of a record become one stretch from its first node to its last; compiled code.

A stretch from node a to node c is rows in (dx_a, dx_c, dp, 1): constraints C, and squares V. Where two meet, in node b,
orthogonal matrices make the rows of both triangular, dx_b first; the first rows say what dx_b is in terms of the rest,
and those below are the stretch from a to c. All matrices are transposed here: a column is a row.

Of a segment the weighted derivatives S of its observations and their weighted residuals r matter by R of [S, r] = QR
alone, however many observations there are (`reduce`).
"""

from __future__ import annotations

from typing import NamedTuple

from fmepy.compiled.kernels import new
from fmepy.compiled.triangular import lower_factor
from fmepy.types import Cube, IntVector, Matrix, Vector


class SegmentChain(NamedTuple):
    """The segments of all records, and their steps.

    Attributes
    ----------
    rows, A, B, gap : ndarray
        See `shooting_linear.Linear`.
    begins : ndarray of int, shape (n_record + 1,)
        The first segment of every record; at the end how many there are.
    sigma : float
        Scale of the defects; 0 where continuity is exact.
    root : float
        Of the damping.
    C : ndarray, shape (n_record, w, n_state) or (n_record, w, 0), with w = 2 n_state + n_own + 1
        The constraints of whole records, transposed; output, if there is more than one segment.
    V : ndarray, shape (n_record, w, max(w, n_row + 2 n_state))
        So the squares.
    relation : ndarray, shape (n_segment, n_state, w)
        ``dx_b + relation (dx_a, dx_c, dp, -1) = 0`` of the node where a segment begins, a being the record's first.
    dx : ndarray, shape (n_segment, n_state)
        The nodes' steps. `expand` needs the first and the last of each record.
    dp : ndarray, shape (n_record, n_own)
    """

    rows: Cube
    A: Cube
    B: Cube
    gap: Matrix
    begins: IntVector
    sigma: float
    root: float
    C: Cube
    V: Cube
    relation: Cube
    dx: Matrix
    dp: Matrix


def _continuity(chain, s, size, end, W, at):
    """Write the constraints of a segment, divided by `size`, from column `at` on; see `_squares`."""
    A, B, gap = chain.A[s], chain.B[s], chain.gap[s]
    n, q = B.shape
    for i in range(n):
        for j in range(W.shape[0]):
            W[j, at + i] = 0.0
        for j in range(n):
            W[j, at + i] = A[i, j] / size
        W[end + i, at + i] = -1.0 / size
        for j in range(q):
            W[end + n + j, at + i] = B[i, j] / size
        W[end + n + q, at + i] = -gap[i] / size


def _squares(chain, s, end, W, at):
    """Write the squares of a segment from column `at` on: its start in the first rows, its end and dp from `end` on."""
    rows = chain.rows[s]
    m, n = rows.shape[0], chain.B.shape[1]
    for i in range(m + n):
        for j in range(W.shape[0]):
            W[j, at + i] = 0.0
    for i in range(m):
        for j in range(n):
            W[j, at + i] = rows[i, j]
        for j in range(n, rows.shape[1]):
            W[end + j, at + i] = rows[i, j]
    for j in range(n):
        W[j, at + m + j] = chain.root
    if chain.sigma > 0.0:
        _continuity(chain, s, chain.sigma, end, W, at + m + n)


def _copy_stretch(M, n, columns, W):
    """Copy the columns of a stretch that ends in b into the order (dx_b, dx_a, dx_c, dp, 1)."""
    for i in range(columns):
        for j in range(n):
            W[j, i] = M[n + j, i]
            W[n + j, i] = M[j, i]
            W[2 * n + j, i] = 0.0
        for j in range(2 * n, M.shape[0]):
            W[n + j, i] = M[j, i]


def _relate(W, n, relation):
    """Solve the first rows, triangular in dx_b, for it."""
    for k in range(relation.shape[1]):
        for i in range(n - 1, -1, -1):
            total = W[n + k, i]
            for j in range(i + 1, n):
                total -= W[j, i] * relation[j, k]
            relation[i, k] = total / W[i, i]


def _copy_rest(W, n, at, columns, M):
    """Copy the rows below dx_b, from column `at` on."""
    for j in range(M.shape[0]):
        for i in range(M.shape[1]):
            M[j, i] = W[n + j, at + i] if at + i < columns else 0.0


def condense(chain: SegmentChain) -> None:
    """Make one stretch of every record's segments but the last, which ends nowhere."""
    n, w, most = chain.B.shape[1], chain.V.shape[1], chain.V.shape[2]
    leaf = chain.rows.shape[1] + n
    if chain.sigma > 0.0:
        leaf += n
    W, D = new(w + n, most + leaf), new(w + n, 2 * n)
    for record in range(chain.begins.shape[0] - 1):
        first, last = chain.begins[record], chain.begins[record + 1] - 1
        if first == last:
            continue
        C, V = chain.C[record], chain.V[record]
        columns = leaf
        _squares(chain, first, n, V, 0)
        if chain.sigma == 0.0:
            _continuity(chain, first, 1.0, n, C, 0)
        for s in range(first + 1, last):
            relation = chain.relation[s]
            _copy_stretch(V, n, columns, W)
            _squares(chain, s, 2 * n, W, columns)
            both, columns = columns + leaf, w
            if chain.sigma > 0.0:
                lower_factor(W, w + n, both)
                _relate(W, n, relation)
                _copy_rest(W, n, n, both, V)
                continue
            _copy_stretch(C, n, n, D)
            _continuity(chain, s, 1.0, 2 * n, D, n)
            lower_factor(D, w + n, 2 * n)
            _relate(D, n, relation)
            _copy_rest(D, n, n, 2 * n, C)
            for k in range(w):
                for j in range(n):
                    for i in range(both):
                        W[n + k, i] -= relation[j, k] * W[j, i]
            lower_factor(W[n:], w, both)
            _copy_rest(W, n, 0, both, V)


def expand(chain: SegmentChain) -> None:
    """Set the steps of the nodes between, from those of the first and last and of the unknowns."""
    dx, n, q = chain.dx, chain.dx.shape[1], chain.dp.shape[1]
    for record in range(chain.begins.shape[0] - 1):
        first = chain.begins[record]
        for s in range(chain.begins[record + 1] - 2, first, -1):
            for i in range(n):
                total = -chain.relation[s, i, 2 * n + q]
                for j in range(n):
                    total += chain.relation[s, i, j] * dx[first, j] + chain.relation[s, i, n + j] * dx[s + 1, j]
                for j in range(q):
                    total += chain.relation[s, i, 2 * n + j] * chain.dp[record, j]
                dx[s, i] = -total


# --- the observations of a segment


class ObservationRows(NamedTuple):
    """The observations and the runs.

    Attributes
    ----------
    rows, scales, places
        Of the runs, see `boundary.simultaneous_runs`; the places variable after variable.
    begins : ndarray of int, shape (n_segment + 1,)
        The first observation of every segment in `order`; at the end how many there are.
    order : ndarray of int, shape (n_obs,)
        The observations segment after segment.
    row, variable : ndarray of int, shape (n_obs,)
        Where an observation stands.
    obs, weights : ndarray, shape (n_obs,)
    mod, r : ndarray, shape (n_obs,)
        The modelled values of the observations, and weighted residuals; output, as R is.
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
