# mypy: disallow-untyped-defs=false, allow-untyped-calls
"""The chain of segments of a record, made one stretch from its first node to its last; translated, see `compiled`.

A stretch from node a to node c is rows in (dx_a, dx_c, dp, 1): constraints C, and triangular squares V. Where two meet,
in node b, orthogonal matrices make the rows of both triangular, dx_b first; the first rows say what dx_b is in terms of
the rest, and those below are the stretch from a to c. Everything stands transposed here: a column a row.
"""

from __future__ import annotations

from typing import NamedTuple

from fmepy.compiled.kernels import new
from fmepy.compiled.triangular import lower_factor
from fmepy.types import Cube, IntVector, Matrix


class Stack(NamedTuple):
    """Rows of many squares, transposed, and room for the same made triangular: shape (n, w, n_row) and (n, w, w)."""

    rows: Cube
    made: Cube


class Chain(NamedTuple):
    """The stretches of all records.

    Attributes
    ----------
    C : ndarray, shape (n_stretch, w, n_state) or (n_stretch, w, 0)
        Constraints, transposed; at the end the first of a record holds those of the whole.
    V : ndarray, shape (n_stretch, w, w)
        Squares, transposed; so these.
    begins : ndarray of int, shape (n_chain + 1,)
        The first stretch of every record; at the end how many there are.
    relation : ndarray, shape (n_stretch, n_state, w)
        ``dx_b + relation (dx_a, dx_c, dp, -1) = 0`` of the node where a stretch begins, a being the record's first.
    dx : ndarray, shape (n_stretch + n_chain, n_state)
        The nodes' steps, record after record. `spread` is given the first and the last of each.
    dp : ndarray, shape (n_chain, n_own)
    """

    C: Cube
    V: Cube
    begins: IntVector
    relation: Cube
    dx: Matrix
    dp: Matrix


def triangular(stack: Stack) -> None:
    """Make rows triangular, one square after the other; the rows are overwritten."""
    w, m = stack.rows.shape[1], stack.rows.shape[2]
    for s in range(stack.rows.shape[0]):
        lower_factor(stack.rows[s], w, m)
        for j in range(w):
            for i in range(min(w, m)):
                stack.made[s, j, i] = stack.rows[s, j, i]


def _put(M, n, place, W, at):
    """Write a stretch's columns into (dx_b, dx_a, dx_c, dp, 1), from `at` on; b is its end (1) or its begin (0)."""
    w, rows = M.shape
    for i in range(rows):
        for j in range(n):
            W[j, at + i] = M[place * n + j, i]
            W[(2 - place) * n + j, at + i] = M[(1 - place) * n + j, i]
            W[(1 + place) * n + j, at + i] = 0.0
        for j in range(2 * n, w):
            W[n + j, at + i] = M[j, i]


def _relate(W, n, relation):
    """Solve the first rows, triangular in dx_b, for it."""
    for k in range(relation.shape[1]):
        for i in range(n - 1, -1, -1):
            total = W[n + k, i]
            for j in range(i + 1, n):
                total -= W[j, i] * relation[j, k]
            relation[i, k] = total / W[i, i]


def _kept(W, n, at, M):
    """Write what is left without dx_b, from column `at` on."""
    for j in range(M.shape[0]):
        for i in range(M.shape[1]):
            M[j, i] = W[n + j, at + i]


def condense(chain: Chain) -> None:
    """Make one stretch of every record's."""
    C, V = chain.C, chain.V
    m, w, n = C.shape[2], V.shape[1], chain.relation.shape[1]
    W, D = new(w + n, 2 * w), new(w + n, 2 * n)
    for record in range(chain.begins.shape[0] - 1):
        first = chain.begins[record]
        for s in range(first + 1, chain.begins[record + 1]):
            relation = chain.relation[s]
            _put(V[first], n, 1, W, 0)
            _put(V[s], n, 0, W, w)
            if m == 0:
                lower_factor(W, w + n, 2 * w)
                _relate(W, n, relation)
                _kept(W, n, n, V[first])
                continue
            _put(C[first], n, 1, D, 0)
            _put(C[s], n, 0, D, n)
            lower_factor(D, w + n, 2 * n)
            _relate(D, n, relation)
            _kept(D, n, n, C[first])
            for k in range(w):
                for j in range(n):
                    for i in range(2 * w):
                        W[n + k, i] -= relation[j, k] * W[j, i]
            lower_factor(W[n:], w, 2 * w)
            _kept(W, n, 0, V[first])


def spread(chain: Chain) -> None:
    """Set the steps of the nodes between, from those of the first and last and of the unknowns."""
    dx, n, q = chain.dx, chain.dx.shape[1], chain.dp.shape[1]
    for record in range(chain.begins.shape[0] - 1):
        begin = chain.begins[record]
        node = begin + record  # a record has one node more than stretches
        for s in range(chain.begins[record + 1] - 1, begin, -1):
            b = s + record
            for i in range(n):
                total = -chain.relation[s, i, 2 * n + q]
                for j in range(n):
                    total += chain.relation[s, i, j] * dx[node, j] + chain.relation[s, i, n + j] * dx[b + 1, j]
                for j in range(q):
                    total += chain.relation[s, i, 2 * n + j] * chain.dp[record, j]
                dx[b, i] = -total
