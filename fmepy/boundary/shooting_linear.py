"""The linear problem of multiple shooting, condensed: the starts of the segments are eliminated block by block.

Of segments s = 0, ..., S - 1 of a record, x_s the start of a segment, p the unknowns, everything brought to the size of
one, the linearised problem for the steps dx, dp is::

    sum_s |r_s + J_s dx_s + H_s dp|^2 -> min
    A_s dx_s + B_s dp - dx_(s+1) = -gap_s          gap_s = y_s(end) - x_(s+1), continuity between s and s + 1
    X0 dp - dx_0 = -gap                            gap = x0(p) - x_0, the start of the model itself

or, with continuity soft, its rows divided by `sigma` among the squares.

A stretch from node a to node c is kept as rows in (dx_a, dx_c, dp): triangular ones of the squares, and n constraints.
Two stretches that meet in b are made one by an orthogonal elimination of dx_b (Wright 1992), one after the other, in a
time that grows as S (`fmepy.boundary.block_elimination`). As only orthogonal matrices act on the rows ahead of dx_b,
directions in which solutions grow stay small where products of the A would overflow, so that unstable and chaotic
records are condensed as safely as tame ones. What remains is a dense problem in dp and two nodes of a record; its
squares also give C with ``C C' = (J'J)^-1`` of the unknowns alone, their covariance once the path is continuous.

References
----------
Bock, H. G. and Plitt, K. J. (1984). A multiple shooting algorithm for direct solution of optimal control problems.
Proc. 9th IFAC World Congress, 1603-1608. Wright, S. J. (1992). Stable parallel algorithms for two-point boundary value
problems. SIAM J. Sci. Stat. Comput. 13, 742-764.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fmepy.boundary.block_elimination import SegmentChain, condense, expand
from fmepy.boundary.superposition import collinear, no_observation_depends_on
from fmepy.compiled.c_loops import address, c_loop
from fmepy.compiled.kernels import packed
from fmepy.errors import SimulationError
from fmepy.numerics.covariance import SINGULAR
from fmepy.types import BoolVector, Cube, IntVector, Matrix, Vector

GROWS = "errors of the state grow so far over a segment that double precision leaves nothing: take more segments."

_BEST_KNOWN = 1e-12
"""Smallest eigenvalue of a correlation, relative to the largest."""
_LEAST_EFFECT, _TAKES_PART = 1e-12, 0.01
"""Effect of an unknown, relative to its size and those of states and residuals; share of a direction that is named."""


@dataclass(frozen=True, eq=False)
class Records:
    """The record of every segment, and the unknowns in its equations.

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

    @cached_property
    def is_first(self) -> BoolVector:
        """Segments that begin a record."""
        first: BoolVector = np.append(True, np.diff(self.record) > 0)
        return first

    @cached_property
    def is_last(self) -> BoolVector:
        """Segments that end one."""
        last: BoolVector = np.append(np.diff(self.record) > 0, True)
        return last

    @cached_property
    def begins(self) -> IntVector:
        """The first segment of every record; at the end how many there are."""
        return np.append(np.flatnonzero(self.is_first), len(self.record))

    @cached_property
    def nodes(self) -> IntVector:
        """The first and the last segment of every record."""
        return np.flatnonzero(self.is_first | self.is_last)


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

    def effects(self) -> Vector:
        """Return the effect of every unknown: the length of its columns, shape (n_par,)."""
        n = self.A.shape[1]
        r = self.records
        each = (self.rows[:, :, n:-1] ** 2).sum(axis=1) + (self.B**2).sum(axis=1)
        out = np.zeros(r.n_par + 1)
        np.add.at(out, r.own[r.record], each)
        lengths: Vector = np.sqrt(out[:-1] + (self.X0**2).sum(axis=(0, 1)))
        return lengths

    def _moved(self, step: ShootingStep) -> Matrix:
        """Return the steps in starts and unknowns of every segment, shape (n_segment, n_state + n_own)."""
        own = self.records.own[self.records.record]
        return np.concatenate([step.dx, np.append(step.dp, 0.0)[own]], axis=1)

    def effect(self, step: ShootingStep) -> float:
        """Return by how much a step moves the observations: the length of J dx + H dp."""
        return float(np.linalg.norm(np.einsum("sij,sj->si", self.rows[:, :, :-1], self._moved(step))))

    def predicted(self, step: ShootingStep, sigma: float) -> float:
        """Return the sum of squares after a step, those of soft continuity among them."""
        moved, n, inner = self._moved(step), step.dx.shape[1], ~self.records.is_last
        r = np.einsum("sij,sj->si", self.rows[:, :, :-1], moved) - self.rows[:, :, -1]
        ends = np.einsum("sij,sj->si", self.A, step.dx) + np.einsum("sij,sj->si", self.B, moved[:, n:])
        gap = (self.gap + ends)[inner] - step.dx[1:][inner[:-1]]
        first = self.records.is_first
        gap0 = self.gap0 + self.X0 @ step.dp - step.dx[first]
        return float((r**2).sum() + ((gap**2).sum() + (gap0**2).sum()) / sigma**2)

    def step(self, sigma: float | None, damping: float, held: Mapping[int, float] | None = None) -> ShootingStep:
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
class ShootingStep:
    """A step of starts and unknowns.

    Attributes
    ----------
    dp : ndarray, shape (n_par,)
    dx : ndarray, shape (n_segment, n_state)
    squares : ndarray, shape (m, n_free)
        With exact continuity: the rows that are left when everything but a basis of what is free has been eliminated.
    basis : ndarray, shape (n_par, n_free)
        What it is in the unknowns.
    """

    dp: Vector
    dx: Matrix
    squares: Matrix
    basis: Matrix

    def length(self, units: Vector | float = 1.0) -> float:
        """Return the length of the step in all that moves, in units of its size; of unknowns, times `units`."""
        return float(np.sqrt(((self.dp * units) ** 2).sum() + (self.dx**2).sum()))


def _solve(linear: Linear, sigma: float | None, root: float, held: dict[int, float]) -> ShootingStep:
    records, (m, n, q) = linear.records, linear.B.shape
    w, n_record, columns = 2 * n + q + 1, len(records.own), linear.rows.shape[1] + 2 * n
    chain = SegmentChain(
        linear.rows, linear.A, linear.B, linear.gap, records.begins, sigma or 0.0, root,
        np.zeros((n_record, w, n if sigma is None else 0)), np.zeros((n_record, w, max(w, columns))),
        np.zeros((m, n, w)), np.zeros((m, n)), np.zeros((n_record, q)),
    )  # fmt: skip
    words = packed(chain)
    c_loop(condense, "the elimination of segments")(address(words))
    dp, chain.dx[records.nodes], squares, basis = _solve_ends(linear, chain, held)
    chain.dp[:] = np.append(dp, 0.0)[records.own]
    c_loop(expand, "the steps of segments")(address(words))
    return ShootingStep(dp, chain.dx, squares, basis)


def _solve_ends(linear: Linear, chain: SegmentChain, held: dict[int, float]) -> tuple[Vector, Matrix, Matrix, Matrix]:
    """Return the steps of the unknowns and of the first and last nodes, and the squares of what is free."""
    r, (n, n_par) = linear.records, linear.X0.shape[1:]
    at = np.arange(n * len(r.nodes)).reshape(-1, n)
    unknowns = at.size + np.arange(n_par)
    nothing = at.size + n_par  # the constant column; after it, the one of own = -1
    squares: list[Matrix] = []
    constraints: list[Matrix] = []

    def put(rows: list[Matrix], block: Matrix, *columns: IntVector) -> None:
        rows.append(np.zeros((len(block), nothing + 2)))
        rows[-1][:, np.concatenate([*columns, [nothing]])] = block

    ends = np.searchsorted(r.nodes, np.column_stack([r.begins[:-1], r.begins[1:] - 1]))
    for record, (a, c) in enumerate(ends.tolist()):
        own = np.where(r.own[record] < 0, nothing + 1, at.size + r.own[record])
        if a < c:
            put(squares, chain.V[record].T, at[a], at[c], own)
            put(constraints, chain.C[record].T, at[a], at[c], own)
        put(squares, linear.rows[r.nodes[c]], at[c], own)
        put(constraints, np.column_stack([-np.eye(n), linear.X0[record], -linear.gap0[record]]), at[a], unknowns)
    if chain.root:
        damped = np.concatenate([at[ends[:, 1]].ravel(), unknowns])
        put(squares, np.column_stack([chain.root * np.eye(len(damped)), np.zeros(len(damped))]), damped)
    V, C = np.concatenate(squares)[:, :-1], np.concatenate(constraints)[:, :-1]
    if chain.sigma:
        V, C = np.concatenate([V, C / chain.sigma]), C[:0]
    free = np.delete(np.arange(nothing), [at.size + i for i in held])
    fixed = np.zeros(nothing)
    fixed[[at.size + i for i in held]] = list(held.values())
    try:
        u, reduced, Z = _solve_dense(V, C, free, fixed)
    except np.linalg.LinAlgError:
        raise SimulationError(GROWS) from None
    return u[at.size :], u[at], reduced, Z[at.size :]


def _solve_dense(squares: Matrix, constraints: Matrix, free: IntVector, fixed: Vector) -> tuple[Vector, Matrix, Matrix]:
    """Return the solution of a dense least-squares problem with equality constraints, and its free directions.

    Raises
    ------
    LinAlgError
        Nothing is left of double precision.
    """
    V, C = squares[:, free], constraints[:, free]
    if not (np.isfinite(V).all() and np.isfinite(C).all()):
        raise np.linalg.LinAlgError
    v, c = squares[:, -1] - squares[:, :-1] @ fixed, constraints[:, -1] - constraints[:, :-1] @ fixed
    m = len(C)
    if m:
        Q, R = np.linalg.qr(C.T, mode="complete")
        begin, Z = Q[:, :m] @ np.linalg.solve(R[:m].T, c), Q[:, m:]
    else:
        begin, Z = np.zeros(len(free)), np.eye(len(free))
    reduced = V @ Z
    out, basis = fixed.copy(), np.zeros((fixed.size, Z.shape[1]))
    out[free] = begin + Z @ np.linalg.lstsq(reduced, v - V @ begin, rcond=1e-14)[0]
    basis[free] = Z
    return out, reduced, basis


# --- the information about the unknowns, with a continuous path


def half_covariance(search: Any, known: Collection[int] = ()) -> Matrix:
    """Return C with C C' = (J'J)^-1 of the unknowns, the starts of segments eliminated, shape (n_par, n_free)."""
    effects = search.linear(search.at).effects()
    scale = search.scale(search.at) / np.where(effects > 0, effects, 1.0)
    linear = search.segments.linear(search.at, search.state_scale, scale, search.size)
    step = linear.step(None, 0.0, dict.fromkeys(known, 0.0))
    _, s, V = np.linalg.svd(step.squares, full_matrices=False)
    out: Matrix = scale[:, None] * (step.basis @ (V.T / np.maximum(s, 1e-16 * s[0]))) / search.size
    return out


def curvature(search: Any) -> Matrix | None:
    """Return 2 J'J, the starts of segments eliminated; None where it is singular.

    It is made from the covariance, since J itself grows along chaotic records as their solutions do. A combination of
    unknowns that is known a million times better than any of them is taken to be known so well, and no better: an
    inverse of more does not come back from double precision.
    """
    if undetermined(search):
        return None
    half = half_covariance(search)
    covariance = half @ half.T
    sd = np.sqrt(covariance.diagonal())
    values, vectors = np.linalg.eigh(covariance / np.outer(sd, sd))
    inverse = (vectors / np.maximum(values, _BEST_KNOWN * values[-1])) @ vectors.T
    out: Matrix = 2 * inverse / np.outer(sd, sd)
    return out


def undetermined(search: Any, known: Collection[int] = ()) -> str:
    """Return which unknowns the observations leave undetermined, with exact continuity, as a sentence; "" if none.

    An unknown is if it would be known better by a factor 1/SINGULAR, were all others and the path known.
    """
    names = np.array(search.problem.names)
    if len(known) == len(names):
        return ""
    effects = search.linear(search.at).effects()
    effects[list(known)] = np.inf
    dead = names[~(effects > _LEAST_EFFECT)]
    if len(dead):
        return no_observation_depends_on(dead.tolist())
    effects[list(known)] = 0.0
    try:
        relative = np.linalg.norm(half_covariance(search, known), axis=1) / search.scale(search.at)
    except SimulationError:
        return GROWS
    if (relative * effects * search.size <= 1 / SINGULAR).all():
        return ""
    return collinear(names[~(relative <= _TAKES_PART * relative.max())].tolist())
