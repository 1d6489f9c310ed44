# mypy: disallow-untyped-defs=false, allow-untyped-calls
"""The first crossing of zero within a step, of any of several conditions, seen along the step's dense polynomial.

A condition g may cross zero and come back within one step, so its signs at the ends are not enough. Along a piece of
the step (at first the whole) let p be g times its sign where the step began. Its values at 0, 1/3, 2/3 and 1 give a
cubic, that at `CHECK` the next term, c s (s - 1/3) (s - 2/3) (s - 1): of a condition that is linear in time and states,
on a dense polynomial of order 4, this is g itself. A polynomial lies in the hull of its coefficients in Bernstein's
basis, and changes its sign at most as often as they do; those of the cubic, of order 4, are taken as uncertain by
`UNSURE` times what the next term adds to them, and what is wrong at a further place, `AGAIN`. So a piece has no
crossing, or one, or it is not sure; then it is halved, down to `LEAST` of a step. A condition that bends more than such
a polynomial shows it there, and its pieces are halved too. What is on the other side for a shorter time than `LEAST` of
a step only grazes zero, and counts as crossed or not as it happens to be seen.

What is here knows no method: `dense(s, y, c, row)` sets `row` to the states at the fraction s of the step, and
``watch(t, row, model, out)`` the conditions. It is a kernel (`compiled.kernels`), and also runs as it stands.

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
"""Where the next term is looked at: near its largest, and at no simple part of the step, which a period might fit."""
AGAIN = 0.2217
"""Where it is looked once more whether a condition is such a polynomial; what swings often in a step is none."""
PLACES = (1.0 / 3.0, 2.0 / 3.0, CHECK, AGAIN)
"""What is looked at first in every step, beside its ends."""
UNSURE = 2.0
LEAST = 2.0**-10
NEVER = 2.0
"""No fraction of a step: nothing crosses."""

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
"""Lagrange's polynomials and the next term, at these places."""
_NONE, _ONE, _MANY = 0, 1, 2


def has_crossed(before: Any, now: Any) -> bool:
    """Tell whether any condition is on another side of zero than before; one that is NaN is on none."""
    for i in range(len(before)):  # noqa: SIM110    # a kernel has no any()
        if before[i] * now[i] < 0.0 or (now[i] == 0.0 and abs(before[i]) > 0.0):
            return True
    return False


def first_crossing(
    dense: Any, watch: Any, model: Any, t: float, h: float, y: Any, c: Any, seen: Any, row: Any
) -> float:
    """Return the fraction of a step from t of length h right after the first crossing in it, or `NEVER`.

    seen : array, shape (`status.SEEN`, n_watched)
        The conditions: [0] on the sides from which they may cross, [1] at the end of the step; the rest is room.
    row : array
        Room for the states.
    """
    at, width = 0.0, 1.0
    for i in range(seen.shape[1]):
        seen[2, i] = seen[0, i]
    while at < 1.0:
        end = at + width
        _look(dense, watch, model, t, h, y, c, at + width / 3.0, row, seen[3])
        _look(dense, watch, model, t, h, y, c, at + width * (2.0 / 3.0), row, seen[4])
        _look(dense, watch, model, t, h, y, c, at + width * CHECK, row, seen[5])
        _look(dense, watch, model, t, h, y, c, at + width * AGAIN, row, seen[7])
        if end < 1.0:
            _look(dense, watch, model, t, h, y, c, end, row, seen[6])
        else:
            for i in range(seen.shape[1]):
                seen[6, i] = seen[1, i]
        how_many = _crossings(seen)
        if how_many == _MANY and width > LEAST:
            width *= 0.5
            continue
        if how_many == _ONE:
            return located(dense, watch, model, t, h, y, c, at, end, seen, row)
        if how_many == _MANY:  # it is not looked at more closely
            for j in range(3, 7):
                if has_crossed(seen[0], seen[j]):
                    return located(dense, watch, model, t, h, y, c, at, _place(at, width, j), seen, row)
        at = end
        if np.floor(at / (2.0 * width)) * 2.0 * width == at:
            width *= 2.0
        for i in range(seen.shape[1]):
            seen[2, i] = seen[6, i]
    return NEVER


def _place(at, width, j):
    """Return the place in the step of what stands in row j of `seen`."""
    if j == 6:
        return at + width
    return at + width * (CHECK if j == 5 else (j - 2) / 3.0)


def _look(dense, watch, model, t, h, y, c, s, row, out):
    dense(s, y, c, row)
    watch(t + s * h, row, model, out)


def located(
    dense: Any, watch: Any, model: Any, t: float, h: float, y: Any, c: Any, low: float, high: float, seen: Any, row: Any
) -> float:
    """Return the fraction of a step right after the first crossing, to the last bit.

    Secants of what crosses first narrow the bracket, each second of twice the length, so that both ends move (as
    Alefeld, Potra and Shi do); where they are of no use, each third look is in its middle.
    """
    _look(dense, watch, model, t, h, y, c, low, row, seen[4])
    _look(dense, watch, model, t, h, y, c, high, row, seen[5])
    turn = 0
    while True:
        s = 0.5 * (low + high)
        if s <= low or s >= high or t + low * h == t + high * h:
            return high
        if turn < 2:
            s = _by_secant(seen, low, high, s, turn == 1)
            least = 2.3e-16 * max(high, abs(t + high * h) / abs(h))
            s = min(max(s, low + least), high - least)
            if not low < s < high:
                s = 0.5 * (low + high)
        turn = turn + 1 if turn < 2 else 0
        _look(dense, watch, model, t, h, y, c, s, row, seen[3])
        is_high = has_crossed(seen[0], seen[3])
        low, high = (low, s) if is_high else (s, high)
        end = seen[5] if is_high else seen[4]
        for i in range(seen.shape[1]):
            end[i] = seen[3, i]


def _by_secant(seen, low, high, middle, is_double):
    """Return where what has crossed first at `high` is zero on its secant, or go twice as far; middle: neither."""
    least, k = 2.0, 0
    for i in range(seen.shape[1]):
        if seen[0, i] * seen[5, i] < 0.0 or (seen[5, i] == 0.0 and abs(seen[0, i]) > 0.0):
            part = seen[4, i] / (seen[4, i] - seen[5, i])
            if part < least:  # False of NaN
                least, k = part, i
    if not 0.0 <= least <= 1.0:
        return middle
    if not is_double:
        return low + least * (high - low)
    if abs(seen[4, k]) < abs(seen[5, k]):
        return low + min(2.0 * least, 1.0) * (high - low)
    return high - min(2.0 * (1.0 - least), 1.0) * (high - low)


def _crossings(seen):
    """Tell whether in a piece no condition crosses zero, each at most once, or whether that is not sure."""
    found = _NONE
    for i in range(seen.shape[1]):
        if not abs(seen[0, i]) > 0.0:  # it has no side
            continue
        side = 1.0 if seen[0, i] > 0.0 else -1.0
        p0, p1, p2 = side * float(seen[2, i]), side * float(seen[3, i]), side * float(seen[4, i])
        p, p3, again = side * float(seen[5, i]), side * float(seen[6, i]), side * float(seen[7, i])
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
            found = _ONE
        else:
            return _MANY
    return found
