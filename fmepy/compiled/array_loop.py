# mypy: disallow-untyped-defs=false, allow-untyped-calls
"""What the solvers call of a model whose rates are loops over arrays (`compiled.array_code`): rates, band of J, df/dt.

All models share these functions, ``void f(double t, double* z, double* inputs, double* out)``. What they know of one is
its plan (`plan_of`), an array of whole numbers whose address is the first of the inputs. Behind it in the inputs stand
the lines of the forcings, and the blocks that the loops work on.

Columns of J that are a width of the band apart share no row (Curtis, Powell and Reid 1974): one derivative along a
direction gives all of them, exactly, and so as many derivatives as the band is wide give J.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from fmepy.compiled.array_code import ArrayCode, groups_of
from fmepy.compiled.kernels import call, copy, doubles, integers
from fmepy.compiled.stiff_plan import Entries
from fmepy.types import IntVector

N, M, LOWER, UPPER, SIZE, AT_T, AT_Y, AT_U, N_U, AT_RATES, N_CHECKS, MOVES = range(12)
SIZE_OF_GROUP, N_FIRST, RATES, COLUMNS, MOVING, ALONG, ALONG_LESS, BEND, BEND_LESS, TABLE = range(12, 22)
AT_S, AT_X, AT_FLAG, PLAN = range(22, 26)
"""Of a plan: states, parameters with sensitivities, the band, numbers of a block; where time, states, forcings and
rates stand in a block; what must not be zero; whether rates depend on time or forcings; the size of a group of
directions, and how many are of it before those of one less (`array_code.groups_of`); the model's functions and a table
of theirs; where the stiff method has sensitivities where a step begins and at a stage, and a number that is for `bend`.
Behind these stand the order of the states in the band and the places of what must not be zero.
"""


class Blocks(NamedTuple):
    """A model, and where it works.

    Attributes
    ----------
    head, order, checks : ndarray of int
        Of the plan.
    lines : ndarray
        Where they begin, and then value and slope of each forcing.
    w, d : ndarray, shape (size,)
        Values; a direction and the derivatives along it.
    w0 : ndarray, shape (size,)
        Values where a step begins.
    b, D, E : ndarray, shape (m, size)
        For every parameter derivatives of the second order; directions, and the derivatives along them, at w and at w0.
    """

    head: Any
    order: Any
    checks: Any
    lines: Any
    w: Any
    d: Any
    w0: Any
    b: Any
    D: Any
    E: Any


def n_blocks(m: int) -> int:
    """Return how many blocks stand in the inputs: those of `Blocks`, of which only two are for no sensitivities."""
    return 2 if m == 0 else 3 + 3 * m


def plan_of(code: ArrayCode, entries: Entries) -> IntVector:
    """Return the plan of a model."""
    moves = bool({"t", "u"} & code.arrays.inputs[code.arrays.rates])
    at = [code.at(word).start for word in ("t", "y", "u")]
    n, n_u = code.arrays.n_states, code.arrays.n_forcings
    head = [n, entries.n_params, *entries.band, code.size, *at, n_u, code.rates.start, len(code.checks), moves]
    S, X, _, D = entries.places(0)[8:12]
    head += [*groups_of(entries.n_params)[:2], *code.addresses(entries.n_params), S, X, D]
    assert len(head) == PLAN
    return np.concatenate([head, entries.order, code.checks]).astype(np.int64)


def _blocks(inputs):
    plan = integers(inputs, 1)[0]
    head = integers(plan, PLAN)
    end, size, m, at = PLAN + head[N] + head[N_CHECKS], head[SIZE], head[M], 2 + 2 * head[N_U]
    behind = 2 if m == 0 else 3 + 3 * m
    P, Q = integers(plan, end), doubles(inputs, at + behind * size)
    B, more = Q[at:].reshape((behind, size)), 0 if m == 0 else 2
    return Blocks(
        head, P[PLAN : PLAN + head[N]], P[PLAN + head[N] :], Q[1:at], B[0], B[1], B[more], B[more + 1 : more + 1 + m],
        B[behind - 2 * m : behind - m], B[behind - m :],
    )  # fmt: skip


def _set_states(b, x, block):
    """Set the states of a block."""
    copy(x[: b.head[N]], block[b.head[AT_Y] :])


def _read_rates(b, block, out):
    copy(block[b.head[AT_RATES] : b.head[AT_RATES] + b.head[N]], out)


def _add_rates(b, block, out):
    rates = block[b.head[AT_RATES] :]
    for i in range(b.head[N]):
        out[i] += rates[i]


def _evaluate(b, t, y, w):
    """Compute the values at (t, y) in the block w; return whether the traced form holds there."""
    head = b.head
    w[head[AT_T]] = t
    for i in range(head[N_U]):
        w[head[AT_U] + i] = b.lines[1 + 2 * i] + b.lines[2 + 2 * i] * (t - b.lines[0])
    _set_states(b, y, w)
    _compute(b, RATES, w, w, w, w)
    for i in range(len(b.checks)):  # noqa: SIM110    # a kernel has no all()
        if w[b.checks[i]] == 0.0:
            return False
    return True


def _compute(b, what, w, d, e, out):
    """Call a function of the model."""
    call(b.head[what], w, d, e, out, integers(b.head[TABLE], 1))


def _compute_all(b, what, w, d, E):
    """Call a function of the model for all directions, a group at once."""
    p = 0
    while p < len(E):
        # the function of the smaller groups stands behind that of the first ones in the plan
        is_less = 1 if p >= b.head[SIZE_OF_GROUP] * b.head[N_FIRST] else 0
        if d is None:
            _compute(b, what + is_less, w, E[p], w, w)
        else:
            _compute(b, what + is_less, w, d, E[p], b.b[p])
        p += b.head[SIZE_OF_GROUP] - is_less


def field(t: float, z: int, inputs: int, out: int) -> None:
    """Set the rates of the states."""
    b = _blocks(inputs)
    n = b.head[N]
    _field(b, t, doubles(z, n), doubles(out, n))


def _field(b, t, y, out):
    holds = _evaluate(b, t, y, b.w)
    _read_rates(b, b.w, out)
    if not holds:
        out[0] = math.nan


def rates(t: float, z: int, inputs: int, out: int) -> None:
    """Set the rates of states and sensitivities."""
    b = _blocks(inputs)
    n, m = b.head[N], b.head[M]
    Z, R = doubles(z, 1 + m, n), doubles(out, 1 + m, n)
    _field(b, t, Z[0], R[0])
    for p in range(m):
        _set_states(b, Z[1 + p], b.D[p])
    _compute_all(b, ALONG, b.w, None, b.D)
    for p in range(m):
        _read_rates(b, b.D[p], R[1 + p])


def jacobian(t: float, z: int, inputs: int, out: int) -> None:
    """Set the band of J, as `compiled.band_lu` has it, and behind it df/dt."""
    b = _blocks(inputs)
    head, d = b.head, b.d
    n, lower, width = head[N], head[LOWER], head[LOWER] + 1 + head[UPPER]
    y, J, f_t = doubles(z, n), doubles(out, n, width), doubles(out, n * (width + 1))[n * width :]
    _evaluate(b, t, y, b.w)
    for colour in range(width):
        for i in range(n):
            f_t[i] = 0.0
        for j in range(colour, n, width):
            f_t[b.order[j]] = 1.0
        _set_states(b, f_t, d)
        _compute(b, COLUMNS, b.w, d, d, d)
        rates = d[head[AT_RATES] :]
        d_of_row = (colour + lower) % width  # where the one column of this colour is that a row reaches
        for i in range(n):
            J[i, d_of_row] = rates[b.order[i]]
            d_of_row = d_of_row - 1 if d_of_row > 0 else width - 1
    for i in range(n):
        f_t[i] = 0.0
    if head[MOVES] != 0:
        _set_states(b, f_t, d)
        _move(b, b.w, 1.0, d)
        _read_rates(b, d, f_t)


def _move(b, w, speed, d):
    """Set the derivatives along the states in d and time, with the forcings."""
    d[b.head[AT_T]] = speed
    for i in range(b.head[N_U]):
        d[b.head[AT_U] + i] = speed * b.lines[2 + 2 * i]
    _compute(b, MOVING, w, d, d, d)


def slopes(t: float, z: int, inputs: int, out: int) -> None:
    """Compute the values at a stage, where `advance` wants derivatives."""
    b = _blocks(inputs)
    _evaluate(b, t, doubles(z, b.head[N]), b.w)


def bend(t: float, z: int, inputs: int, out: int) -> None:
    """Compute J k + a f_t where the step begins, and what belongs to it; out[0] is 1 at the first stage, then 2."""
    b = _blocks(inputs)
    n = b.head[N]
    point = doubles(z, 2 * n + 2)
    if point[2 * n + 1] == 0.0:  # what belongs to the beginning of a step is kept for its other stages
        _evaluate(b, t, point[:n], b.w0)
    _set_states(b, point[n : 2 * n], b.d)
    _move(b, b.w0, point[2 * n], b.d)
    doubles(out, 1)[0] = 1.0 if point[2 * n + 1] == 0.0 else 2.0


def advance(t: float, z: int, inputs: int, out: int) -> None:
    """Add to the sums of a stage, of every parameter, what depends on the model; z: `Workspace.numbers`."""
    b = _blocks(inputs)
    head = b.head
    n, m, flag = head[N], head[M], doubles(z, head[AT_FLAG] + 1)[head[AT_FLAG]]
    S, X = doubles(z, head[AT_S] + n * m)[head[AT_S] :], doubles(z, head[AT_X] + n * m)[head[AT_X] :]
    for p in range(m):
        _set_states(b, X[p * n :], b.D[p])
        if flag == 1.0:
            _set_states(b, S[p * n :], b.E[p])
    _compute_all(b, ALONG, b.w, None, b.D)
    if flag == 1.0:
        _compute_all(b, ALONG, b.w0, None, b.E)
    if flag > 0.0:
        _compute_all(b, BEND, b.w0, b.d, b.E)
    for p in range(m):
        column = doubles(out, m, n)[p]
        _add_rates(b, b.D[p], column)
        if flag > 0.0:
            _add_rates(b, b.b[p], column)
