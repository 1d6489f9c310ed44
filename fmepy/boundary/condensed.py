# mypy: disallow-untyped-defs=false, allow-untyped-calls
"""The chain of segments of a record, made one stretch from its first node to its last; translated, see `compiled`.

A stretch from node a to node c is rows in (dx_a, dx_c, dp, 1): constraints C, and triangular squares V. Where two meet,
in node b, orthogonal matrices make the rows of both triangular in dx_b; its first rows say what dx_b is in terms of the
rest, and those below are the stretch from a to c.
"""

from __future__ import annotations

from math import sqrt
from typing import NamedTuple

from fmepy.compiled.kernels import new
from fmepy.types import Cube, IntVector, Matrix


class Chain(NamedTuple):
    """The stretches of all records.

    Attributes
    ----------
    C : ndarray, shape (n_stretch, n_state, w) or (n_stretch, 0, w)
        Constraints; at the end the first of a record holds those of the whole.
    V : ndarray, shape (n_stretch, w, w)
        Squares; so these.
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


def triangular(W, rows, columns):
    """Make the first columns of the first rows of W upper triangular by reflections (Householder)."""
    width = W.shape[1]
    for j in range(min(rows - 1, columns)):
        length = 0.0
        for i in range(j, rows):
            length += W[i, j] * W[i, j]
        length = sqrt(length)
        if length > 0.0:
            if W[j, j] > 0.0:
                length = -length
            first = W[j, j] - length
            scale = -length * first  # half the squared length of the reflecting vector
            W[j, j] = first
            for k in range(j + 1, width):
                total = 0.0
                for i in range(j, rows):
                    total += W[i, j] * W[i, k]
                total /= scale
                for i in range(j, rows):
                    W[i, k] -= total * W[i, j]
            W[j, j] = length
            for i in range(j + 1, rows):
                W[i, j] = 0.0


def _put(M, rows, n, place, W, below):
    """Write rows in (dx_a, dx_c, dp, 1) below others in (dx_b, dx_a, dx_c, dp, 1); b is c (place 1) or a (place 0)."""
    w = M.shape[1]
    for i in range(rows):
        for j in range(w + n):
            W[below + i, j] = 0.0
        for j in range(n):
            W[below + i, j] = M[i, place * n + j]
            W[below + i, (1 if place == 1 else 2) * n + j] = M[i, (1 - place) * n + j]
        for j in range(2 * n, w):
            W[below + i, n + j] = M[i, j]


def _relate(W, n, relation):
    """Solve the first rows, triangular in dx_b, for it."""
    w = relation.shape[1]
    for k in range(w):
        for i in range(n - 1, -1, -1):
            total = W[i, n + k]
            for j in range(i + 1, n):
                total -= W[i, j] * relation[j, k]
            relation[i, k] = total / W[i, i]


def condense(chain: Chain) -> None:
    """Make one stretch of every record's."""
    C, V = chain.C, chain.V
    m, w, n = C.shape[1], V.shape[1], chain.relation.shape[1]
    W, D = new(2 * w, w + n), new(2 * n, w + n)
    for record in range(chain.begins.shape[0] - 1):
        first = chain.begins[record]
        for s in range(first + 1, chain.begins[record + 1]):
            relation = chain.relation[s]
            _put(V[first], w, n, 1, W, 0)
            _put(V[s], w, n, 0, W, w)
            if m == 0:
                triangular(W, 2 * w, w + n)
                _relate(W, n, relation)
                for i in range(w):
                    for j in range(w):
                        V[first, i, j] = W[n + i, n + j]
                continue
            _put(C[first], n, n, 1, D, 0)
            _put(C[s], n, n, 0, D, n)
            triangular(D, 2 * n, n)
            _relate(D, n, relation)
            for i in range(n):
                for j in range(w):
                    C[first, i, j] = D[n + i, n + j]
            for i in range(2 * w):
                for k in range(w):
                    total = W[i, n + k]
                    for j in range(n):
                        total -= W[i, j] * relation[j, k]
                    W[i, n + k] = total
                for j in range(n):
                    W[i, j] = 0.0
            _moved_left(W, n)
            triangular(W, 2 * w, w)
            for i in range(w):
                for j in range(w):
                    V[first, i, j] = W[i, j]


def _moved_left(W, n):
    for i in range(W.shape[0]):
        for j in range(n, W.shape[1]):
            W[i, j - n] = W[i, j]
        for j in range(W.shape[1] - n, W.shape[1]):
            W[i, j] = 0.0


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
