"""The linear problem of multiple shooting, condensed: the starts of the segments are eliminated block by block.

Of segments s = 0, ..., S - 1 of a record, x_s the start of a segment, p the unknowns, everything brought to the size of
one, the linearised problem for the steps dx, dp is::

    sum_s |r_s + J_s dx_s + H_s dp|^2 -> min
    A_s dx_s + B_s dp - dx_(s+1) = -gap_s          gap_s = y_s(end) - x_(s+1), continuity between s and s + 1
    X0 dp - dx_0 = -gap                            gap = x0(p) - x_0, the start of the model itself

or, with continuity soft, its rows divided by `sigma` among the squares.

A stretch from node a to node c is kept as rows in (dx_a, dx_c, dp): triangular ones of the squares, and n constraints.
Two stretches that meet in b are made one by an orthogonal elimination of dx_b (Wright 1992), one after the other, in a
time that grows as S (`fmepy.boundary.condensed`). As only orthogonal matrices act on the rows ahead of dx_b, directions
in which solutions grow stay small where products of the A would overflow, so that unstable and chaotic records are
condensed as safely as tame ones. What remains is a dense problem in dp and two nodes of a record.

References
----------
Bock, H. G. and Plitt, K. J. (1984). A multiple shooting algorithm for direct solution of optimal control problems.
Proc. 9th IFAC World Congress, 1603-1608. Wright, S. J. (1992). Stable parallel algorithms for two-point boundary value
problems. SIAM J. Sci. Stat. Comput. 13, 742-764.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fmepy.boundary.condensed import Chain, Stack, condense, spread, triangular
from fmepy.compiled.c_loops import address, c_loop
from fmepy.compiled.kernels import packed
from fmepy.types import BoolVector, Cube, IntVector, Matrix, Vector


@dataclass(frozen=True, slots=True, eq=False)
class Records:
    """Which segments are of which record, and which unknowns are in its equations.

    Attributes
    ----------
    record : ndarray of int, shape (n_segment,)
        The record of every segment; those of one stand together, in order.
    own : ndarray of int, shape (n_record, n_own)
        The unknowns that are in a record's equations; -1 behind those of records with fewer.
    n_par : int
    """

    record: IntVector
    own: IntVector
    n_par: int

    @property
    def is_first(self) -> BoolVector:
        """Segments that begin a record."""
        first: BoolVector = np.append(True, np.diff(self.record) > 0)
        return first

    @property
    def is_last(self) -> BoolVector:
        """Segments that end one."""
        last: BoolVector = np.append(np.diff(self.record) > 0, True)
        return last


@dataclass(frozen=True, eq=False)
class Linear:
    """The linearised problem, in units of the sizes of starts and unknowns.

    Attributes
    ----------
    records : Records
    rows : ndarray, shape (n_segment, n_row, n_state + n_own + 1)
        Of every segment [J, H, -r], or what an orthogonal matrix made of them.
    A, B, gap : ndarray, shape (n_segment, n_state, n_state), (n_segment, n_state, n_own) and (n_segment, n_state)
        Derivatives of the end of a segment to its start and to the unknowns, and how far it lies from the next start;
        of the last segment of a record they do not matter.
    X0, gap0 : ndarray, shape (n_record, n_state, n_par) and (n_record, n_state)
        Of the model's own start, which other unknowns may move.
    """

    records: Records
    rows: Cube
    A: Cube
    B: Cube
    gap: Matrix
    X0: Cube
    gap0: Matrix

    @cached_property
    def squares(self) -> Cube:
        """The rows of every segment, triangular, shape (n_segment, w, w) with w = n_state + n_own + 1."""
        lower: Cube = triangle(self.rows.transpose(0, 2, 1).copy()).transpose(0, 2, 1)
        return lower

    def felt(self) -> Vector:
        """Return how much every unknown moves: the lengths of its columns, shape (n_par,)."""
        n = self.A.shape[1]
        r = self.records
        each = (self.rows[:, :, n:-1] ** 2).sum(axis=1) + (self.B**2).sum(axis=1)
        out = np.zeros(r.n_par + 1)
        np.add.at(out, r.own[r.record], each)
        lengths: Vector = np.sqrt(out[:-1] + (self.X0**2).sum(axis=(0, 1)))
        return lengths

    def _along(self, step: Step) -> Matrix:
        """Return the steps in starts and unknowns of every segment, shape (n_segment, n_state + n_own)."""
        own = self.records.own[self.records.record]
        return np.concatenate([step.dx, np.append(step.dp, 0.0)[own]], axis=1)

    def effect(self, step: Step) -> float:
        """Return by how much a step moves the observations: the length of J dx + H dp."""
        return float(np.linalg.norm(np.einsum("sij,sj->si", self.rows[:, :, :-1], self._along(step))))

    def predicted(self, step: Step, sigma: float) -> float:
        """Return the sum of squares after a step, those of soft continuity among them."""
        moved, n, inner = self._along(step), step.dx.shape[1], ~self.records.is_last
        r = np.einsum("sij,sj->si", self.rows[:, :, :-1], moved) - self.rows[:, :, -1]
        ends = np.einsum("sij,sj->si", self.A, step.dx) + np.einsum("sij,sj->si", self.B, moved[:, n:])
        gap = (self.gap + ends)[inner] - step.dx[1:][inner[:-1]]
        first = self.records.is_first
        gap0 = self.gap0 + self.X0 @ step.dp - step.dx[first]
        return float((r**2).sum() + ((gap**2).sum() + (gap0**2).sum()) / sigma**2)

    def step(self, sigma: float | None, damping: float, held: Mapping[int, float] | None = None) -> Step:
        """Return the step.

        Parameters
        ----------
        sigma : float or None
            Scale of the defects; None: continuity is exact.
        damping : float
            Of Levenberg and Marquardt: ``damping (|dx|^2 + |dp|^2)`` is added to the squares.
        held : mapping of int to float
            Unknowns whose steps are given.
        """
        return _solve(self, sigma, float(np.sqrt(damping)), dict(held or {}))


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """A step, and what is known of it.

    Attributes
    ----------
    dp : ndarray, shape (n_par,)
    dx : ndarray, shape (n_segment, n_state)
    squares : ndarray, shape (m, n_free)
        With exact continuity: the triangular rows that are left when everything but a basis of what is free has been
        eliminated.
    basis : ndarray, shape (n_par, n_free)
        What it is in the unknowns.
    """

    dp: Vector
    dx: Matrix
    squares: Matrix
    basis: Matrix

    @property
    def length(self) -> float:
        """The length of the step in all that moves, in units of its size."""
        return float(np.sqrt((self.dp**2).sum() + (self.dx**2).sum()))


def triangle(rows: Cube) -> Cube:
    """Return L of rows = LQ, lower triangular, shape (n, w, w), padded with zeros.

    rows : shape (n, w, n_row), transposed: a row of R = L' a column
    """
    stack = Stack(np.ascontiguousarray(rows), np.zeros((*rows.shape[:2], rows.shape[1])))
    words = packed(stack)
    c_loop(triangular, "triangular squares")(address(words))
    return stack.made


def _solve(linear: Linear, sigma: float | None, root: float, held: dict[int, float]) -> Step:
    records, (n, q) = linear.records, linear.B.shape[1:]
    inner = ~records.is_last
    n_stretch, n_record = int(inner.sum()), len(records.own)
    C, V = _leaves(linear, np.flatnonzero(inner), sigma, root)
    begins = np.searchsorted(records.record[inner], np.arange(n_record + 1)).astype(np.int64)
    dx, own = np.zeros((len(inner), n)), np.zeros((n_record, q))
    chain = Chain(C, V, begins, np.zeros((n_stretch, n, 2 * n + q + 1)), dx, own)
    words = packed(chain)
    c_loop(condense, "the elimination of segments")(address(words))
    dp, at_nodes, squares, basis = _closed(linear, chain, sigma, root, held)
    own[:] = np.append(dp, 0.0)[records.own]
    for kept, value in at_nodes.items():
        dx[kept] = value
    c_loop(spread, "the steps of segments")(address(words))
    return Step(dp, dx, squares, basis)


def _leaves(linear: Linear, s: IntVector, sigma: float | None, root: float) -> tuple[Cube, Cube]:
    """Return constraints and squares of the segments `s`, those that another one follows, as stretches, transposed."""
    n, q = linear.B.shape[1:]
    w = 2 * n + q + 1
    k = n + q + 1
    C = np.empty((len(s), w, n))
    C[:, :n], C[:, n : 2 * n] = linear.A[s].transpose(0, 2, 1), -np.eye(n)
    C[:, 2 * n : -1], C[:, -1] = linear.B[s].transpose(0, 2, 1), -linear.gap[s]
    V = np.zeros((len(s), w, k + n + (0 if sigma is None else n)))
    lower = linear.squares[s].transpose(0, 2, 1)
    V[:, :n, :k], V[:, 2 * n :, :k] = lower[:, :n], lower[:, n:]
    V[:, :n, k : k + n] = root * np.eye(n)
    if sigma is not None:
        V[:, :, k + n :], C = C / sigma, C[:, :, :0].copy()
    return C, triangle(V)


def _closed(
    linear: Linear, chain: Chain, sigma: float | None, root: float, held: dict[int, float]
) -> tuple[Vector, dict[int, Vector], Matrix, Matrix]:
    """Return the steps of the unknowns and of the nodes that are left, and the squares of what is free."""
    records = linear.records
    n, q = linear.B.shape[1:]
    nodes = np.unique(np.concatenate([np.flatnonzero(records.is_first), np.flatnonzero(records.is_last)]))
    place = {int(node): k * n for k, node in enumerate(nodes)}
    n_x = n * len(nodes)
    width = n_x + records.n_par + 1  # dx of the nodes, dp, and a column of what nothing moves

    def placed(M: Matrix, record: int, *ends: int) -> Matrix:
        out = np.zeros((len(M), width + 1))
        for k, node in enumerate(ends):
            at = place[node]
            out[:, at : at + n] += M[:, k * n : (k + 1) * n]
        mine = records.own[record]
        out[:, n_x + np.where(mine < 0, records.n_par, mine)] = M[:, len(ends) * n : -1]  # twice: of what nothing moves
        out[:, -1] = M[:, -1]
        return out

    C, V = [], []
    for record, (a, c) in enumerate(
        zip(np.flatnonzero(records.is_first).tolist(), np.flatnonzero(records.is_last).tolist(), strict=True)
    ):
        if a < c:
            whole = chain.begins[record]
            C.append(placed(chain.C[whole].T, record, a, c))
            V.append(placed(chain.V[whole].T, record, a, c))
        V.append(placed(linear.squares[c], record, c))
        V.append(placed(np.concatenate([root * np.eye(n), np.zeros((n, q + 1))], axis=1), record, c))
        begin = np.zeros((n, width + 1))
        begin[:, place[a] : place[a] + n] = -np.eye(n)
        begin[:, n_x : n_x + records.n_par], begin[:, -1] = linear.X0[record], -linear.gap0[record]
        C.append(begin)
    on_unknowns = np.zeros((records.n_par, width + 1))
    on_unknowns[:, n_x : n_x + records.n_par] = root * np.eye(records.n_par)
    squares, constraints = np.concatenate([*V, on_unknowns]), np.concatenate(C)
    if sigma is not None:
        squares, constraints = np.concatenate([squares, constraints / sigma]), constraints[:0]
    free = np.delete(np.arange(width - 1), [n_x + i for i in held])
    fixed = np.zeros(width - 1)
    fixed[[n_x + i for i in held]] = list(held.values())
    u, left, Z = _least(squares, constraints, free, fixed)
    at_nodes = {node: u[at : at + n] for node, at in place.items()}
    return u[n_x:], at_nodes, left, Z[n_x:]


def _least(squares: Matrix, constraints: Matrix, free: IntVector, fixed: Vector) -> tuple[Vector, Matrix, Matrix]:
    """Return the solution of a dense least-squares problem with equality constraints, and its free directions."""
    V, C = squares[:, : fixed.size], constraints[:, : fixed.size]
    v, c = squares[:, -1] - V @ fixed, constraints[:, -1] - C @ fixed
    V, C = V[:, free], C[:, free]
    m = len(C)
    if m:
        Q, R = np.linalg.qr(C.T, mode="complete")
        begin, Z = Q[:, :m] @ np.linalg.solve(R[:m].T, c), Q[:, m:]
    else:
        begin, Z = np.zeros(len(free)), np.eye(len(free))
    left: Any = np.linalg.qr(np.column_stack([V @ Z, v - V @ begin]), mode="r")
    k = Z.shape[1]
    w = np.linalg.lstsq(left[:k, :k], left[:k, -1], rcond=1e-14)[0]
    out, basis = fixed.copy(), np.zeros((fixed.size, k))
    out[free] = begin + Z @ w
    basis[free] = Z
    return out, left[:k, :k], basis
