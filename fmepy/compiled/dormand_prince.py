"""The loop of the explicit engine: Dormand and Prince's pair of orders 5 and 4, written for numba.

This is plain Python. What stands below the line "compiled from here on" is compiled once and kept (`explicit.py` puts
the decorators in) and serves every model: rates and conditions come in as functions, for the compiled loop as
addresses.

One step from (t, y) of size h, with k_1 = f(t, y) the last stage of the step before (FSAL)::

    k_i = f(t + c_i h, y + h sum_j a_ij k_j)      i = 2, ..., 7;  the argument of k_7 is the new y
    error = h sum_i e_i k_i                       the difference between orders 5 and 4

The error is measured in units of atol + rtol max(|y|, |y_new|), root mean square over the states, and over the block
of every sensitivity; the largest counts. The next step is ``h 0.9 error^-0.17 last_error^0.04`` (a PI controller), a
fifth to ten times the present one. Rows lie anywhere: between t and t + h the solution is Shampine's polynomial of
order 4, which meets both ends with its slope.

References
----------
Dormand, J. R. and Prince, P. J. (1980). A family of embedded Runge-Kutta formulae. J. Comp. Appl. Math. 6, 19-26.
Hairer, E., Norsett, S. P. and Wanner, G. (1993). Solving Ordinary Differential Equations I, 2nd ed., sections II.4
(starting step, controller), II.6 (dense output); II, section IV.2 (finding out that a problem is stiff).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fmepy.types import Matrix, Vector

__all__ = [
    "CROSSED",
    "DONE",
    "EXPLODED",
    "NO_RATES",
    "STEP_TOO_SMALL",
    "STIFF",
    "TOO_MANY_STEPS",
    "drive",
    "has_exploded",
]


def call(function: Any, t: float, z: Vector, q: Vector, out: Vector) -> None:
    """Call rates or conditions; the compiled loop has another `call`, for addresses."""
    function(t, z, q, out)


# --- compiled from here on

DONE = 0
CROSSED = 1
TOO_MANY_STEPS = 2
STEP_TOO_SMALL = 3
STIFF = 4
NO_RATES = 5
EXPLODED = 6

FIRST_LOOK = 1000
"""Accepted steps before the loop looks for stiffness: a run of fewer is over before another engine has begun."""
STIFF_STEPS = 15
"""Steps at the border of stability that make a run stiff."""
BORDER = 3.25
"""The border of stability on the negative real axis, about: h |lambda|."""


MOST_GROWTH = 1e3
"""A state that has grown by more, of its start or of atol/rtol, and grows as fast as SHORTEST says, has exploded."""
SHORTEST = 1e-8
"""Part of the run within which a state that has exploded grows by a factor of e."""
ENDLESS = 1e100
"""A state that has grown by more has exploded, however fast it grows."""


def has_exploded(
    start: Vector, y: Vector, slope: Vector, n_states: int, span: float, rtol: float, atol: Vector
) -> bool:
    """Tell whether a state where a solver gave up, and its rate, are beyond all bounds.

    That a step became too small says nothing by itself: it does so too where rates jump or have no value.
    """
    for i in range(n_states):
        size, scale = abs(y[i]), max(abs(start[i]), atol[i] / rtol)
        is_fast = size > ENDLESS * scale or size < SHORTEST * span * abs(slope[i])
        if is_fast and size > MOST_GROWTH * scale and (y[i] > 0.0) == (slope[i] > 0.0):
            return True
    return False


def size_of_error(e: Vector, y: Vector, y_new: Vector, rtol: float, atol: Vector, n_states: int) -> float:
    """Return the largest root mean square of e / (atol + rtol max(|y|, |y_new|)) over the blocks of n_states."""
    largest = 0.0
    for start in range(0, len(y), n_states):
        total = 0.0
        for i in range(start, start + n_states):
            ratio = e[i] / (atol[i] + rtol * max(abs(y[i]), abs(y_new[i])))
            total += ratio * ratio
        if not total <= largest:  # also if it is NaN, which stays
            largest = total
    return math.sqrt(largest / n_states)


def first_step(
    rates: Any,
    t: float,
    y: Vector,
    q: Vector,
    k1: Vector,
    span: float,
    rtol: float,
    atol: Vector,
    work: Vector,
    k2: Vector,
) -> float:
    """Return a first step that a step of Euler's method finds small enough (Hairer et al., section II.4)."""
    size = slope = 0.0
    for i in range(len(y)):
        scale = atol[i] + rtol * abs(y[i])
        size += (y[i] / scale) ** 2
        slope += (k1[i] / scale) ** 2
    h = 1e-6 if size < 1e-10 or slope < 1e-10 else 0.01 * math.sqrt(size / slope)
    h = min(h, span)
    for i in range(len(y)):
        work[i] = y[i] + h * k1[i]
    call(rates, t + h, work, q, k2)
    bend = 0.0
    for i in range(len(y)):
        bend += ((k2[i] - k1[i]) / (atol[i] + rtol * abs(y[i]))) ** 2
    steepest = max(math.sqrt(bend) / h, math.sqrt(slope))
    if not steepest < math.inf:
        return 1e-3 * h
    other = max(1e-6, 1e-3 * h) if steepest <= 1e-15 else (0.01 / steepest) ** 0.2
    return min(100.0 * h, other, span)


def prepare_dense(
    h: float,
    y: Vector,
    y_new: Vector,
    k1: Vector,
    k3: Vector,
    k4: Vector,
    k5: Vector,
    k6: Vector,
    k7: Vector,
    c: Matrix,
) -> None:
    """Set the coefficients c, shape (4, n), of the polynomial within a step."""
    for i in range(len(y)):
        rise = y_new[i] - y[i]
        bow = h * k1[i] - rise
        c[0, i] = rise
        c[1, i] = bow
        c[2, i] = rise - h * k7[i] - bow
        c[3, i] = h * (
            -12715105075.0 / 11282082432.0 * k1[i]
            + 87487479700.0 / 32700410799.0 * k3[i]
            - 10690763975.0 / 1880347072.0 * k4[i]
            + 701980252875.0 / 199316789632.0 * k5[i]
            - 1453857185.0 / 822651844.0 * k6[i]
            + 69997945.0 / 29380423.0 * k7[i]
        )


def dense(s: float, y: Vector, c: Matrix, row: Vector) -> None:
    """Set row to the solution at the fraction s of a step that began at y."""
    r = 1.0 - s
    for i in range(len(y)):
        row[i] = y[i] + s * (c[0, i] + r * (c[1, i] + s * (c[2, i] + r * c[3, i])))


def has_crossed(before: Vector, now: Vector) -> bool:
    """Tell whether any condition has changed its sign."""
    for i in range(len(before)):  # noqa: SIM110    # numba has no any()
        if before[i] * now[i] < 0.0 or (now[i] == 0.0 and before[i] != 0.0):
            return True
    return False


def first_crossing(
    watch: Any, t: float, h: float, y: Vector, c: Matrix, q: Vector, before: Vector, now: Vector, row: Vector
) -> float:
    """Return the fraction of the step right after its first crossing, to the last bit, by halving."""
    low, high = 0.0, 1.0
    while True:
        s = 0.5 * (low + high)
        if s <= low or s >= high:
            return high
        dense(s, y, c, row)
        call(watch, t + s * h, row, q, now)
        if has_crossed(before, now):
            high = s
        else:
            low = s
        if t + low * h == t + high * h:
            return high


def drive(
    rates: Any,
    watch: Any,
    n_watched: int,
    t: float,
    start: Vector,
    q: Vector,
    times: Vector,
    n_states: int,
    rtol: float,
    atol: Vector,
    max_step: float,
    most_steps: int,
    out: Matrix,
) -> tuple[int, int, float]:
    """Carry the solution from (t, start) over `times`; return (status, rows written, time reached).

    rates, watch : functions of (t, z, q, out), or their addresses
        The rates, and the conditions whose crossings end the run.
    times : increasing, the first not before t; the last is the end.
    out : array, shape (n_times, n_z)
        Rows. If the run ends at a crossing, the last one written is the crossing's.
    """
    n, end = len(start), times[-1]
    span, status = end - t, TOO_MANY_STEPS
    y, y_new, work, error = start.copy(), np.empty(n), np.empty(n), np.empty(n)
    k1, k2, k3, k4 = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    k5, k6, k7 = np.empty(n), np.empty(n), np.empty(n)
    c = np.empty((4, n))
    before, now = np.empty(n_watched), np.empty(n_watched)
    row = 0
    if times[0] == t:
        for i in range(n):
            out[0, i] = y[i]
        row = 1
    call(rates, t, y, q, k1)
    for i in range(n):
        if not abs(k1[i]) < math.inf:
            return NO_RATES, row, t
    if n_watched:
        call(watch, t, y, q, before)
    h = min(first_step(rates, t, y, q, k1, end - t, rtol, atol, work, k2), max_step)
    last_error, accepted, at_border, inside, rejected = 1e-4, 0, 0, 0, False
    for _ in range(most_steps):
        is_last = t + 1.01 * h >= end and end - t <= max_step
        if is_last:
            h = end - t
        elif t + 0.1 * h == t:
            status = STEP_TOO_SMALL
            break
        for i in range(n):
            work[i] = y[i] + h * (1.0 / 5.0) * k1[i]
        call(rates, t + h / 5.0, work, q, k2)
        for i in range(n):
            work[i] = y[i] + h * (3.0 / 40.0 * k1[i] + 9.0 / 40.0 * k2[i])
        call(rates, t + 3.0 / 10.0 * h, work, q, k3)
        for i in range(n):
            work[i] = y[i] + h * (44.0 / 45.0 * k1[i] - 56.0 / 15.0 * k2[i] + 32.0 / 9.0 * k3[i])
        call(rates, t + 4.0 / 5.0 * h, work, q, k4)
        for i in range(n):
            work[i] = y[i] + h * (
                19372.0 / 6561.0 * k1[i] - 25360.0 / 2187.0 * k2[i] + 64448.0 / 6561.0 * k3[i] - 212.0 / 729.0 * k4[i]
            )
        call(rates, t + 8.0 / 9.0 * h, work, q, k5)
        for i in range(n):
            work[i] = y[i] + h * (
                9017.0 / 3168.0 * k1[i]
                - 355.0 / 33.0 * k2[i]
                + 46732.0 / 5247.0 * k3[i]
                + 49.0 / 176.0 * k4[i]
                - 5103.0 / 18656.0 * k5[i]
            )
        t_new = end if is_last else t + h
        call(rates, t_new, work, q, k6)
        for i in range(n):
            y_new[i] = y[i] + h * (
                35.0 / 384.0 * k1[i]
                + 500.0 / 1113.0 * k3[i]
                + 125.0 / 192.0 * k4[i]
                - 2187.0 / 6784.0 * k5[i]
                + 11.0 / 84.0 * k6[i]
            )
        call(rates, t_new, y_new, q, k7)
        for i in range(n):
            error[i] = h * (
                71.0 / 57600.0 * k1[i]
                - 71.0 / 16695.0 * k3[i]
                + 71.0 / 1920.0 * k4[i]
                - 17253.0 / 339200.0 * k5[i]
                + 22.0 / 525.0 * k6[i]
                - 1.0 / 40.0 * k7[i]
            )
        size = size_of_error(error, y, y_new, rtol, atol, n_states)
        if not size <= 1.0:
            h *= max(0.2, 0.9 * size**-0.17) if size < math.inf else 0.2
            rejected = True
            continue
        accepted += 1
        if accepted >= FIRST_LOOK and (at_border > 0 or accepted % FIRST_LOOK == 0):
            change = distance = 0.0
            for i in range(n):
                change += (k7[i] - k6[i]) ** 2
                distance += (y_new[i] - work[i]) ** 2
            if distance > 0.0 and h * math.sqrt(change / distance) > BORDER:
                inside = 0
                at_border += 1
                if at_border == STIFF_STEPS:
                    status = STIFF
                    break
            else:
                inside += 1
                if inside == 6:
                    at_border = inside = 0
        has_dense = False
        if n_watched:
            call(watch, t_new, y_new, q, now)
            if has_crossed(before, now):
                prepare_dense(h, y, y_new, k1, k3, k4, k5, k6, k7, c)
                s = first_crossing(watch, t, h, y, c, q, before, now, work)
                crossing = min(t + s * h, end)
                while times[row] < crossing:
                    dense((times[row] - t) / h, y, c, out[row])
                    row += 1
                dense(s, y, c, out[row])
                return CROSSED, row + 1, crossing
            for i in range(n_watched):
                before[i] = now[i]
        while row < len(times) and times[row] < t_new:
            if not has_dense:
                prepare_dense(h, y, y_new, k1, k3, k4, k5, k6, k7, c)
                has_dense = True
            dense((times[row] - t) / h, y, c, out[row])
            row += 1
        if row < len(times) and times[row] == t_new:
            for i in range(n):
                out[row, i] = y_new[i]
            row += 1
        if is_last:
            return DONE, row, end
        factor = min(10.0, max(0.2, 0.9 * max(size, 1e-10) ** -0.17 * last_error**0.04))
        h = min(h * (min(1.0, factor) if rejected else factor), max_step)
        last_error, rejected = max(size, 1e-4), False
        t = t_new
        for i in range(n):
            y[i] = y_new[i]
            k1[i] = k7[i]
    if has_exploded(start, y, k1, n_states, span, rtol, atol):
        status = EXPLODED
    return status, row, t
