# mypy: disallow-untyped-defs=false, allow-untyped-calls
"""The first zero crossing of any of several conditions within a step, located on the step's dense polynomial.

A condition g may cross zero and come back within one step, so its signs at the ends are not enough. Along a piece of
the step (at first the whole step) let p be g times its sign at the start of the step. The values of p at 0, 1/3, 2/3
and 1 determine a cubic, and its value at `CHECK` the next term, c s (s - 1/3) (s - 2/3) (s - 1). For a condition that
is linear in time and states, on a dense polynomial of order 4, this is exact. A polynomial lies in the convex hull of
its Bernstein coefficients and has at most as many sign changes as they have. The coefficients of the cubic, raised to
order 4, count as uncertain by `UNSURE` times the next term's share of them plus the error at a further place, `AGAIN`.
So a piece has no crossing, or one, or it is not certain; then it is halved, down to `LEAST` of a step. A condition that
bends more than a polynomial of order 4 shows an error at `AGAIN`, and its pieces are halved too. A condition that is on
the other side for less than `LEAST` of a step only grazes zero, and may or may not count as crossed.

The method of integration does not matter here: `dense(s, y, c, row)` sets `row` to the states at the fraction s of the
step, and ``watch(t, row, model, out)`` evaluates the conditions. These kernels (`compiled.kernels`) also run in Python.

References
----------
Alefeld, G. E., Potra, F. A. and Shi, Y. (1995). Algorithm 748: Enclosing zeros of continuous functions. ACM Trans.
Math. Softw. 21, 327-344.
Lane, J. M. and Riesenfeld, R. F. (1981). Bounds on a polynomial. BIT 21, 112-117.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

CHECK = 0.8731
"""Where the next term is measured: near its maximum, and at no simple fraction, which a periodic g might match."""
AGAIN = 0.2217
"""Where the polynomial is compared with the condition; a condition that oscillates within the step fails there."""
PLACES = (1.0 / 3.0, 2.0 / 3.0, CHECK, AGAIN)
"""Fractions evaluated first in every step, besides its ends."""
UNSURE = 2.0
LEAST = 2.0**-10
NEVER = 2.0
"""Returned in place of a fraction of the step when no condition crosses."""

_AT = tuple(
    (
        -4.5 * (s - 1 / 3) * (s - 2 / 3) * (s - 1),
        13.5 * s * (s - 2 / 3) * (s - 1),
        -13.5 * s * (s - 1 / 3) * (s - 1),
        4.5 * s * (s - 1 / 3) * (s - 2 / 3),
        s * (s - 1 / 3) * (s - 2 / 3) * (s - 1),
    )
    for s in (CHECK, AGAIN)
)
_A0, _A1, _A2, _A3, _A4 = _AT[0]
_B0, _B1, _B2, _B3, _B4 = _AT[1]
"""Lagrange polynomials and the next term at CHECK and AGAIN."""
_NONE, _ONE, _MANY = 0, 1, 2


def has_crossed(before: Any, now: Any) -> bool:
    """Tell whether any condition has changed its side of zero; NaN is on neither side."""
    for i in range(len(before)):  # noqa: SIM110    # a kernel has no any()
        if before[i] * now[i] < 0.0 or (now[i] == 0.0 and abs(before[i]) > 0.0):
            return True
    return False


def first_crossing(dense: Any, watch: Any, model: Any, t: float, h: float, y: Any, c: Any, g: Any, row: Any) -> float:
    """Return the fraction of the step of length h from t just after the first crossing in it, or `NEVER`.

    g : array, shape (`status.WATCH_ROWS`, n_watched)
        Conditions: [0] on the sides from which they may cross, [1] at the end of the step; other rows are scratch.
    row : array
        Scratch for the states.
    """
    at, width = 0.0, 1.0
    for i in range(g.shape[1]):
        g[2, i] = g[0, i]
    while at < 1.0:
        end = at + width
        _look(dense, watch, model, t, h, y, c, at + width / 3.0, row, g[3])
        _look(dense, watch, model, t, h, y, c, at + width * (2.0 / 3.0), row, g[4])
        _look(dense, watch, model, t, h, y, c, at + width * CHECK, row, g[5])
        _look(dense, watch, model, t, h, y, c, at + width * AGAIN, row, g[7])
        if end < 1.0:
            _look(dense, watch, model, t, h, y, c, end, row, g[6])
        else:
            for i in range(g.shape[1]):
                g[6, i] = g[1, i]
        how_many = _crossings(g)
        if how_many == _MANY and width > LEAST:
            width *= 0.5
            continue
        if how_many == _ONE:
            return located(dense, watch, model, t, h, y, c, at, end, g, row)
        if how_many == _MANY:  # the piece is too short to be halved again
            for j in range(3, 7):
                if has_crossed(g[0], g[j]):
                    return located(dense, watch, model, t, h, y, c, at, _place(at, width, j), g, row)
        at = end
        if np.floor(at / (2.0 * width)) * 2.0 * width == at:
            width *= 2.0
        for i in range(g.shape[1]):
            g[2, i] = g[6, i]
    return NEVER


def _place(at, width, j):
    """Return the fraction of the step at which row j of `g` was evaluated."""
    if j == 6:
        return at + width
    return at + width * (CHECK if j == 5 else (j - 2) / 3.0)


def _look(dense, watch, model, t, h, y, c, s, row, out):
    dense(s, y, c, row)
    watch(t + s * h, row, model, out)


def located(
    dense: Any, watch: Any, model: Any, t: float, h: float, y: Any, c: Any, low: float, high: float, g: Any, row: Any
) -> float:
    """Return the fraction of a step just after the first crossing, to the last bit.

    Secants of the condition that crosses first narrow the bracket; every second one is doubled, so that both ends move
    (as in Alefeld, Potra and Shi), and every third evaluation bisects it, in case secants are of no use.
    """
    _look(dense, watch, model, t, h, y, c, low, row, g[4])
    _look(dense, watch, model, t, h, y, c, high, row, g[5])
    turn = 0
    while True:
        s = 0.5 * (low + high)
        if s <= low or s >= high or t + low * h == t + high * h:
            return high
        if turn < 2:
            s = _by_secant(g, low, high, s, turn == 1)
            least = 2.3e-16 * max(high, abs(t + high * h) / abs(h))
            s = min(max(s, low + least), high - least)
            if not low < s < high:
                s = 0.5 * (low + high)
        turn = turn + 1 if turn < 2 else 0
        _look(dense, watch, model, t, h, y, c, s, row, g[3])
        is_high = has_crossed(g[0], g[3])
        low, high = (low, s) if is_high else (s, high)
        end = g[5] if is_high else g[4]
        for i in range(g.shape[1]):
            end[i] = g[3, i]


def _by_secant(g, low, high, middle, is_double):
    """Return the zero of the secant of the condition that crosses first, or a doubled secant step; else `middle`."""
    least, k = 2.0, 0
    for i in range(g.shape[1]):
        if g[0, i] * g[5, i] < 0.0 or (g[5, i] == 0.0 and abs(g[0, i]) > 0.0):
            part = g[4, i] / (g[4, i] - g[5, i])
            if part < least:  # False of NaN
                least, k = part, i
    if not 0.0 <= least <= 1.0:
        return middle
    if not is_double:
        return low + least * (high - low)
    if abs(g[4, k]) < abs(g[5, k]):
        return low + min(2.0 * least, 1.0) * (high - low)
    return high - min(2.0 * (1.0 - least), 1.0) * (high - low)


def _crossings(g):
    """Classify a piece: no condition crosses zero, each crosses at most once, or more crossings cannot be excluded."""
    outcome = _NONE
    for i in range(g.shape[1]):
        if not abs(g[0, i]) > 0.0:  # it has no side
            continue
        side = 1.0 if g[0, i] > 0.0 else -1.0
        p0, p1, p2 = side * float(g[2, i]), side * float(g[3, i]), side * float(g[4, i])
        p, p3, again = side * float(g[5, i]), side * float(g[6, i]), side * float(g[7, i])
        c4 = (p - (_A0 * p0 + _A1 * p1 + _A2 * p2 + _A3 * p3)) / _A4
        wrong = abs(again - (_B0 * p0 + _B1 * p1 + _B2 * p2 + _B3 * p3 + _B4 * c4))
        away = UNSURE * (abs(c4) / 18.0 + wrong)
        if not away < math.inf:
            if p1 <= 0.0 or p2 <= 0.0 or p <= 0.0 or p3 <= 0.0:
                return _MANY
            continue
        b1 = (18.0 * p1 - 9.0 * p2 + 2.0 * p3 - 5.0 * p0) / 6.0  # of the cubic, of order 3
        b2 = (18.0 * p2 - 9.0 * p1 + 2.0 * p0 - 5.0 * p3) / 6.0
        c1, c2, c3, away2 = 0.25 * (p0 + 3.0 * b1), 0.5 * (b1 + b2), 0.25 * (3.0 * b2 + p3), away * (5.0 / 3.0)
        if p3 > 0.0:
            if not (c1 > away and c2 > away2 and c3 > away):
                return _MANY
        elif (c1 > away and c2 > away2) or (c1 > away and c3 < -away) or (c2 < -away2 and c3 < -away):
            outcome = _ONE
        else:
            return _MANY
    return outcome
