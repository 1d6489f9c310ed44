# mypy: disallow-untyped-defs=false, allow-untyped-calls
"""Dormand and Prince's pair of orders 5 and 4, the one explicit method of engines and filters.

One step from (t, y) of size h, with k_1 = f(t, y) the last stage of the step before (FSAL)::

    k_i = f(t + c_i h, y + h sum_j a_ij k_j)      i = 2, ..., 7;  the argument of k_7 is the new y
    error = h sum_i e_i k_i                       the difference between orders 5 and 4

The error is measured in units of atol + rtol max(|y|, |y_new|), root mean square over the states, and over the block
of every sensitivity; the largest counts. The next step is ``h 0.9 error^-0.17 last_error^0.04`` (a PI controller), a
fifth to ten times the present one. Rows lie anywhere: between t and t + h the solution is Shampine's polynomial of
order 4, which meets both ends with its slope.

Rates come in as a kernel ``rates(t, y, model, out)`` and `model`, whatever it wants to know: a tuple of arrays and
addresses. For every such kernel what is here is translated into the loop that calls it (`compiled.kernels`), so a
filter's loop may take the step with rates of its own; nothing here allocates.

References
----------
Dormand, J. R. and Prince, P. J. (1980). A family of embedded Runge-Kutta formulae. J. Comp. Appl. Math. 6, 19-26.
Hairer, E., Norsett, S. P. and Wanner, G. (1993). Solving Ordinary Differential Equations I, 2nd ed., sections II.4
(starting step, controller), II.6 (dense output); II, section IV.2 (finding out that a problem is stiff).
"""

from __future__ import annotations

import math

import numpy as np

from fmepy.compiled.crossings import NEVER, first_crossing, has_crossed, located
from fmepy.compiled.kernels import are_finite, choose_above, copy, inner, weighted
from fmepy.compiled.rosenbrock import (
    ALWAYS,
    CALM,
    END,
    FASTEST,
    IS_KNOWN,
    IS_STIFF,
    STEPS,
    WAIT,
    is_on,
    prepare_stiff,
    take_step,
)
from fmepy.compiled.status import (
    CROSSED,
    DONE,
    EXPLODED,
    NO_RATES,
    NO_ROOM,
    STEP_TOO_SMALL,
    STIFF,
    STOP,
    TOO_MANY_STEPS,
    has_exploded,
)

FIRST_LOOK = 1000
"""Accepted steps before the loop looks for stiffness: a run of fewer is over before another engine has begun."""
STIFF_STEPS = 15
"""Steps at the border of stability that make a run stiff."""
BORDER = 3.25
"""The border of stability on the negative real axis, about: h |lambda|."""
LOOK, MOST_WAIT = 16, 64
"""Where a stiff method stands by: steps before the fastest rate is looked at, and at most between two such looks."""
PROBES, PROBE = 8, 0.1
"""Rates that this takes, and how far from the state, in units of its tolerance."""
SLOW, MOST_LEFT, MANY_LEFT = 2.5, 300.0, 3000.0
"""The stiff method goes on where h |lambda| is larger, and so many such steps are left of the run (looked at
out of turn where stability rejects a step and many more are left); and the explicit"""
QUIET, QUIET_STEPS = 5.0, 10
"""one where it was smaller in so many steps of the stiff one, each of which takes the time of several."""
SMALL = math.log(1e-4)
"""The logarithm of the error that the one before the first step counts as, and every smaller one after it."""

A3 = (3.0 / 40.0, 9.0 / 40.0)
A4 = (44.0 / 45.0, -56.0 / 15.0, 32.0 / 9.0)
A5 = (19372.0 / 6561.0, -25360.0 / 2187.0, 64448.0 / 6561.0, -212.0 / 729.0)
A6 = (9017.0 / 3168.0, -355.0 / 33.0, 46732.0 / 5247.0, 49.0 / 176.0, -5103.0 / 18656.0)
A7 = (35.0 / 384.0, 0.0, 500.0 / 1113.0, 125.0 / 192.0, -2187.0 / 6784.0, 11.0 / 84.0)
"""Of the arguments of the stages."""
E = (71.0 / 57600.0, 0.0, -71.0 / 16695.0, 71.0 / 1920.0, -17253.0 / 339200.0, 22.0 / 525.0, -1.0 / 40.0)
"""The difference between orders 5 and 4."""
D = (
    -12715105075.0 / 11282082432.0, 0.0, 87487479700.0 / 32700410799.0, -10690763975.0 / 1880347072.0,
    701980252875.0 / 199316789632.0, -1453857185.0 / 822651844.0, 69997945.0 / 29380423.0,
)  # fmt: skip
"""Of the last coefficient of the polynomial within a step."""


def step(rates, model, t, h, t_new, y, y_new, arg, k):
    """Take one step: from y and k[0], its rates, set y_new and the stages k[1], ..., k[6]; arg is k[5]'s argument."""
    for i in range(len(y)):
        arg[i] = y[i] + h * (1.0 / 5.0) * k[0, i]
    rates(t + h / 5.0, arg, model, k[1])
    _set_argument(A3, h, y, k, arg)
    rates(t + 3.0 / 10.0 * h, arg, model, k[2])
    _set_argument(A4, h, y, k, arg)
    rates(t + 4.0 / 5.0 * h, arg, model, k[3])
    _set_argument(A5, h, y, k, arg)
    rates(t + 8.0 / 9.0 * h, arg, model, k[4])
    _set_argument(A6, h, y, k, arg)
    rates(t_new, arg, model, k[5])
    _set_argument(A7, h, y, k, y_new)
    rates(t_new, y_new, model, k[6])


def _set_argument(weights, h, y, k, arg):
    for i in range(len(y)):
        arg[i] = y[i] + h * weighted(weights, k, i)


def set_error(h, k, error):
    """Set the difference between orders 5 and 4."""
    for i in range(len(error)):
        error[i] = h * weighted(E, k, i)


def size_of_error(y, y_new, n_states, rtol, atol, ratios):
    """Return the largest root mean square of error / (atol + rtol max(|y|, |y_new|)) over the blocks of n_states.

    The ratios come as the errors and are set first, in a loop that the compiler turns into one over several states.
    """
    for i in range(len(y)):
        larger = choose_above(abs(y[i]), abs(y_new[i]), abs(y[i]), abs(y_new[i]))
        ratios[i] /= atol[i] + rtol * larger
    largest = 0.0
    for start in range(0, len(y), n_states):
        total = inner(ratios, ratios, start, start + n_states)
        largest = choose_above(total, largest, total, largest + 0.0 * total)  # NaN stays
    return np.sqrt(largest / n_states)


def shrunk(size):
    """Return by how much a step of such an error, above 1, is made shorter."""
    return max(0.2, 0.9 * math.exp(-0.17 * math.log(size))) if size < math.inf else 0.2


def grown(log_size, last):
    """Return by how much the step behind one whose error and whose last one's have such logarithms is longer."""
    return min(10.0, max(0.2, 0.9 * math.exp(0.04 * last - 0.17 * log_size)))


def first_step(rates, model, t, y, k1, span, rtol, atol, arg, k2):
    """Return a first step that a step of Euler's method finds small enough (Hairer et al., section II.4).

    What rounding of t would hide is none: where nothing is known yet of the times of the model, 1e-6 may be so short.
    """
    size = slope = 0.0
    for i in range(len(y)):
        scale = atol[i] + rtol * abs(y[i])
        size += (y[i] / scale) ** 2
        slope += (k1[i] / scale) ** 2
    h, least = 1e-6 if size < 1e-10 or slope < 1e-10 else 0.01 * math.sqrt(size / slope), 1e-13 * abs(t)
    h = min(max(h, least), span)
    for i in range(len(y)):
        arg[i] = y[i] + h * k1[i]
    rates(t + h, arg, model, k2)
    bend = 0.0
    for i in range(len(y)):
        bend += ((k2[i] - k1[i]) / (atol[i] + rtol * abs(y[i]))) ** 2
    steepest = max(math.sqrt(bend) / h, math.sqrt(slope))
    if not steepest < math.inf:
        return 1e-3 * h
    other = max(1e-6, 1e-3 * h) if steepest <= 1e-15 else (0.01 / steepest) ** 0.2
    return min(max(min(100.0 * h, other), least), span)


def prepare_dense(h, y, y_new, k, c):
    """Set the coefficients c, shape (4, n), of the polynomial within a step."""
    rise, bow, rest, last = c[0], c[1], c[2], c[3]
    for i in range(len(y)):  # a loop for each, which the compiler turns into one over several states at once
        rise[i] = y_new[i] - y[i]
    for i in range(len(y)):
        bow[i] = h * k[0, i] - rise[i]
    for i in range(len(y)):
        rest[i] = rise[i] - h * k[6, i] - bow[i]
    for i in range(len(y)):
        last[i] = h * weighted(D, k, i)


def dense(s, y, c, row):
    """Set row to the solution at the fraction s of a step that began at y."""
    r = 1.0 - s
    for i in range(len(y)):
        row[i] = y[i] + s * (c[0, i] + r * (c[1, i] + s * (c[2, i] + r * c[3, i])))


def _is_at_border(h, y_new, arg, k):
    """Tell whether a step is as long as stability allows: h |lambda| from the last two stages, which are at t + h.

    What grows is no matter of stability.
    """
    change = distance = growth = 0.0
    for i in range(len(y_new)):
        faster, apart = k[6, i] - k[5, i], y_new[i] - arg[i]
        change += faster**2
        distance += apart**2
        growth += faster * apart
    return growth < 0.0 < distance and h * math.sqrt(change / distance) > BORDER


def _counted(is_at_border, at_border, inside):
    """Return the steps at the border, and those inside since the last of them: after six the former are forgotten."""
    if is_at_border:
        return at_border + 1, 0
    return (at_border, inside + 1) if inside < 5 else (0, 0)


def _take_step(rates, model, t, h, t_new, y, y_new, arg, k, c, n_states, rtol, atol, is_read, stiff):
    """Take a step by the present method; return the size of its error.

    It sets y_new, the rates there, k[6], and where the step is read inside and its error is no more than 1 the
    coefficients of its polynomial, c; of a stiff step the error of that counts too.
    """
    if stiff is not None and is_on(stiff):
        take_step(stiff, t, h, t_new, model[2], y, y_new, k, c, rtol, atol)
        size = size_of_error(y, y_new, n_states, rtol, atol, c[0])
        if is_read and size <= 1.0:
            prepare_stiff(stiff, model[2], y, y_new, k, c)
            inside = size_of_error(y, y_new, n_states, rtol, atol, k[1])
            if not inside <= size:  # also if it is NaN
                size = inside
        return size
    step(rates, model, t, h, t_new, y, y_new, arg, k)
    set_error(h, k, c[0])
    size = size_of_error(y, y_new, n_states, rtol, atol, c[0])
    if is_read and size <= 1.0:
        prepare_dense(h, y, y_new, k, c)
    return size


def _fastest(rates, model, t, y, f, n, rtol, atol, v, probe, slope):
    """Return |lambda| of the fastest of n states, about: the rates around (t, y) by powers of their Jacobian."""
    for i in range(len(y)):
        probe[i] = y[i]
    for i in range(n):
        v[i] = 1.0 - 2.0 * (i % 2) + 0.1 * (i % 5)
    size = before = 1.0
    for _ in range(PROBES):
        before, total = size, 0.0
        for i in range(n):
            total += v[i] * v[i]
        for i in range(n):
            probe[i] = y[i] + PROBE * (atol[i] + rtol * abs(y[i])) * v[i] / math.sqrt(total / n)
        rates(t, probe, model, slope)
        total = 0.0
        for i in range(n):
            v[i] = (slope[i] - f[i]) / (PROBE * (atol[i] + rtol * abs(y[i])))
            total += v[i] * v[i]
        size = math.sqrt(total / n)
    return math.sqrt(before * size)  # of a pair of complex numbers the two differ


def _should_change(rates, model, t, h, y, n, rtol, atol, arg, k, rejected, stiff):
    """Tell whether the other method should go on after a step to (t, y), with rates k[6]; arg, k[1], k[2] are room.

    It looks at the step and the run alone, whatever is known of the stiff method by then.
    """
    seen = stiff.room
    if is_on(stiff):
        seen[CALM] = seen[CALM] + 1.0 if h * seen[FASTEST] < QUIET else 0.0
        return seen[CALM] >= QUIET_STEPS and seen[ALWAYS] == 0.0
    return is_looked_at(t, h, rejected, seen) and is_slow(rates, model, t, h, y, n, rtol, atol, arg, k, seen)


def is_looked_at(t, h, rejected, seen):
    """Tell whether an explicit step to t, which is counted, is one after which `is_slow` is evaluated."""
    seen[STEPS] += 1.0
    if seen[STEPS] < seen[WAIT]:  # what stability rejects has errors near the tolerance until then
        return rejected and not seen[END] - t < MANY_LEFT * h
    return not seen[END] - t < MOST_LEFT * h


def is_slow(rates, model, t, h, y, n, rtol, atol, arg, k, seen):
    """Tell whether stability holds back the explicit steps, see `_should_change`."""
    if seen[STEPS] < seen[WAIT] and not _is_at_border(h, y, arg, k):
        return False
    seen[STEPS], seen[WAIT] = 0.0, min(seen[WAIT] + LOOK, MOST_WAIT)
    return h * _fastest(rates, model, t, y, k[6], n, rtol, atol, k[1], arg, k[2]) > SLOW


def _change_method(stiff, rates, model, t, y, k1):
    """Go on with the other method from (t, y); the explicit one needs the rates of everything."""
    seen = stiff.room
    if is_on(stiff):
        rates(t, y, model, k1)
    seen[IS_STIFF], seen[IS_KNOWN] = 1.0 - seen[IS_STIFF], -1.0
    seen[STEPS] = seen[CALM] = 0.0


def drive(
    rates, watch, model, t, h, start, times, n_states, rtol, atol, max_step, most_steps, out, work, marks, keep, stiff
):
    """Carry the solution from (t, start) over `times`; return (status, rows written, time reached, next step).

    Parameters
    ----------
    rates, watch : compiled functions of (t, y, model, out)
        The rates; the conditions whose crossings end the run (None: there are none, and no code for them).
    h : float
        First step; 0: to be found.
    times : increasing, the first not before t; the last is the end.
    n_states : int
        Length of the blocks of y by which errors are measured.
    atol : array, shape (n,)
    out : array, shape (n_times, n)
        Rows. If the run ends at a crossing, the last one written is the crossing's.
    work : array, shape (WORK, n)
        Where it works; at the end row 0 is the state reached, row 3 its rates. Row STOP begins with 0; where that
        changes the run ends, as one of too many steps.
    marks : array, shape (SEEN, n_watched)
        Where conditions are looked at, which read the first n_states alone; see `first_crossing`.
    keep : compiled function of (model, t, h, y, c), or None
        Is given the polynomial of every step (`prepare_dense`); where it returns False the run ends.
    stiff : rosenbrock.Stiff, or None
        The method that goes on where the explicit one is slow, and back; None: there is none, and no code for it.
    """
    end = times[-1]
    began, told = t, TOO_MANY_STEPS
    y, y_new, arg, k, c = work[0], work[1], work[2], work[3:10], work[10:14]
    copy(start, y)
    row = 0
    if times[0] == t:
        copy(start, out[0])
        row = 1
    rates(t, y, model, k[0])
    if not are_finite(k[0]):
        return NO_RATES, row, t, h
    if watch is not None:
        watch(t, y, model, marks[0])
    if h == 0.0:
        h = first_step(rates, model, t, y, k[0], end - t, rtol, atol, arg, k[1])
    h = min(h, max_step)
    last, accepted, at_border, inside, rejected = SMALL, 0, 0, 0, False
    for _ in range(most_steps):
        is_last = t + 1.01 * h >= end and end - t <= max_step
        if is_last:
            h = end - t
        elif t + 0.1 * h == t:
            told = STEP_TOO_SMALL
            break
        t_new = end if is_last else t + h
        is_read = watch is not None or keep is not None or (row < len(times) and times[row] < t_new)
        size = _take_step(
            rates, model, t, h, t_new, y, y_new, arg, k, c, n_states, rtol, atol, is_read, stiff
        )  # fmt: skip
        if work[STOP, 0] != 0.0:
            break
        if not size <= 1.0:
            h *= shrunk(size)
            rejected = True
            continue
        accepted += 1
        changes = False
        if stiff is not None:
            changes = _should_change(rates, model, t_new, h, y_new, n_states, rtol, atol, arg, k, rejected, stiff)
        elif accepted >= FIRST_LOOK and (at_border > 0 or accepted % FIRST_LOOK == 0):
            at_border, inside = _counted(_is_at_border(h, y_new, arg, k), at_border, inside)
            changes = at_border == STIFF_STEPS
        if changes and (stiff is None or stiff.run == 0):
            told = STIFF
            break
        s = NEVER
        if keep is not None and not keep(model, t, h, y, c):
            told = NO_ROOM
            break
        if watch is not None:
            watch(t_new, y_new, model, marks[1])
            s = first_crossing(dense, watch, model, t, h, y[:n_states], c, marks, arg)
        while row < len(times) and times[row] < min(t_new, t + s * h):
            part = (times[row] - t) / h
            dense(part, y, c, out[row])
            if watch is not None:
                watch(times[row], out[row], model, marks[2])
                if has_crossed(marks[0], marks[2]):
                    s = located(dense, watch, model, t, h, y[:n_states], c, 0.0, part, marks, arg)
                    break
            row += 1
        if watch is not None:
            if s != NEVER:
                dense(s, y, c, out[row])
                return CROSSED, row + 1, min(t + s * h, end), h
            for i in range(marks.shape[1]):
                if marks[1, i] == marks[1, i]:  # one without a value stays on its side
                    marks[0, i] = marks[1, i]
        if row < len(times) and times[row] == t_new:
            copy(y_new, out[row])
            row += 1
        log_size = math.log(max(size, 1e-10))
        factor = grown(log_size, last)
        h = min(h * (min(1.0, factor) if rejected else factor), max_step)
        last, rejected = max(log_size, SMALL), False
        t = t_new
        copy(y_new, y)
        copy(k[6], k[0])
        if stiff is not None:
            stiff.room[IS_KNOWN] = 0.0
            if changes:
                _change_method(stiff, rates, model, t, y, k[0])
        if is_last:
            return DONE, row, end, h
    if told != STIFF and has_exploded(start, y, k[0], n_states, began, t, rtol, atol):
        told = EXPLODED
    return told, row, t, h
