# mypy: disallow-untyped-defs=false, allow-untyped-calls
"""Dormand and Prince's pair of orders 5 and 4, the explicit method of all compiled engines and filters.

One step from (t, y) of size h, with k_1 = f(t, y) the last stage of the step before (FSAL)::

    k_i = f(t + c_i h, y + h sum_j a_ij k_j)      i = 2, ..., 7;  the argument of k_7 is the new y
    error = h sum_i e_i k_i                       the difference between orders 5 and 4

The error is measured in units of atol + rtol max(|y|, |y_new|), root mean square over the states, and over the block
of every sensitivity; the largest counts. The next step is ``h 0.9 error^-0.17 last_error^0.04`` (a PI controller), a
fifth to ten times the present one. Rows lie anywhere: between t and t + h the solution is Shampine's polynomial of
order 4, which meets both ends with its slope.

The rates are a kernel ``rates(t, y, model, out)``; `model` is a tuple of whatever arrays and addresses they need. These
functions are translated anew for every such kernel, into the loop that calls them (`compiled.kernels`), so the loop of
a filter can take the same steps with its own rates; nothing here allocates memory.

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
"""Accepted steps before stiffness is looked for: a shorter run is over before another engine would have started."""
STIFF_STEPS = 15
"""Steps at the border of stability after which a run counts as stiff."""
BORDER = 3.25
"""The border of stability on the negative real axis, about: h |lambda|."""
LOOK, MOST_WAIT = 16, 64
"""Where a stiff method is available: steps before |lambda| is estimated first, and most steps between estimates."""
PROBES, PROBE = 8, 0.1
"""Evaluations of the rates for an estimate, and their distance from the state in units of its tolerance."""
SLOW, MOST_LEFT, MANY_LEFT = 2.5, 300.0, 3000.0
"""Change to the stiff method where h |lambda| exceeds SLOW and at least MOST_LEFT such steps remain; |lambda| is also
estimated where stability rejects a step and at least MANY_LEFT steps remain."""
QUIET, QUIET_STEPS = 5.0, 10
"""Change back where h |lambda| was below QUIET in this many stiff steps, each as expensive as several explicit ones."""
SMALL = math.log(1e-4)
"""Lower limit of the logarithm of the last error in the step size controller; also its value before the first step."""

A3 = (3.0 / 40.0, 9.0 / 40.0)
A4 = (44.0 / 45.0, -56.0 / 15.0, 32.0 / 9.0)
A5 = (19372.0 / 6561.0, -25360.0 / 2187.0, 64448.0 / 6561.0, -212.0 / 729.0)
A6 = (9017.0 / 3168.0, -355.0 / 33.0, 46732.0 / 5247.0, 49.0 / 176.0, -5103.0 / 18656.0)
A7 = (35.0 / 384.0, 0.0, 500.0 / 1113.0, 125.0 / 192.0, -2187.0 / 6784.0, 11.0 / 84.0)
"""Coefficients of the arguments of the stages."""
E = (71.0 / 57600.0, 0.0, -71.0 / 16695.0, 71.0 / 1920.0, -17253.0 / 339200.0, 22.0 / 525.0, -1.0 / 40.0)
"""Weights of the difference between orders 5 and 4."""
D = (
    -12715105075.0 / 11282082432.0, 0.0, 87487479700.0 / 32700410799.0, -10690763975.0 / 1880347072.0,
    701980252875.0 / 199316789632.0, -1453857185.0 / 822651844.0, 69997945.0 / 29380423.0,
)  # fmt: skip
"""Weights of the last coefficient of the polynomial within a step."""


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

    On entry `ratios` holds the errors; they are divided first, in a loop of their own that the compiler vectorises.
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
    """Return the factor by which a rejected step, with an error of this size above 1, is shortened."""
    return max(0.2, 0.9 * math.exp(-0.17 * math.log(size))) if size < math.inf else 0.2


def grown(log_size, last):
    """Return the factor of the next step from the logarithms of this error and the one before (PI controller)."""
    return min(10.0, max(0.2, 0.9 * math.exp(0.04 * last - 0.17 * log_size)))


def first_step(rates, model, t, y, k1, span, rtol, atol, arg, k2):
    """Return a first step, estimated by one step of Euler's method (Hairer et al., section II.4).

    It is never so short that rounding of t would hide it, as the default of 1e-6 may be at a large t.
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
    for i in range(len(y)):  # separate loops, which the compiler vectorises
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
    """Tell whether stability limits the step: h |lambda| estimated from the last two stages, both at t + h.

    Growing solutions are excluded, since stability does not limit their steps.
    """
    change = distance = growth = 0.0
    for i in range(len(y_new)):
        dk, dy = k[6, i] - k[5, i], y_new[i] - arg[i]
        change += dk**2
        distance += dy**2
        growth += dk * dy
    return growth < 0.0 < distance and h * math.sqrt(change / distance) > BORDER


def _counted(is_at_border, at_border, inside):
    """Return the counts of steps at the border and of steps inside since; after six inside, both are reset."""
    if is_at_border:
        return at_border + 1, 0
    return (at_border, inside + 1) if inside < 5 else (0, 0)


def _take_step(rates, model, t, h, t_new, y, y_new, arg, k, c, n_states, rtol, atol, is_read, stiff):
    """Take a step by the current method; return the size of its error.

    Sets y_new, the rates there, k[6], and, if the step is accepted and will be read inside, the coefficients c of its
    polynomial. The error of a stiff step includes that of its polynomial.
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
    """Return an estimate of the largest |lambda| of df/dy at (t, y), by power iteration on differences of the rates."""
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
    return math.sqrt(before * size)  # a complex pair makes the last two sizes differ


def _should_change(rates, model, t, h, y, n, rtol, atol, arg, k, rejected, stiff):
    """Tell whether to change the method after a step to (t, y) with rates k[6]; arg, k[1] and k[2] are scratch.

    The decision depends on the step and the run alone, not on whether the stiff method has been compiled yet.
    """
    memory = stiff.room
    if is_on(stiff):
        memory[CALM] = memory[CALM] + 1.0 if h * memory[FASTEST] < QUIET else 0.0
        return memory[CALM] >= QUIET_STEPS and memory[ALWAYS] == 0.0
    return is_looked_at(t, h, rejected, memory) and is_slow(rates, model, t, h, y, n, rtol, atol, arg, k, memory)


def is_looked_at(t, h, rejected, memory):
    """Count an explicit step to t, and tell whether to evaluate `is_slow` after it."""
    memory[STEPS] += 1.0
    if memory[STEPS] < memory[WAIT]:  # before that, look only after a rejection, which stability may have caused
        return rejected and not memory[END] - t < MANY_LEFT * h
    return not memory[END] - t < MOST_LEFT * h


def is_slow(rates, model, t, h, y, n, rtol, atol, arg, k, memory):
    """Tell whether stability limits the explicit steps, see `SLOW`."""
    if memory[STEPS] < memory[WAIT] and not _is_at_border(h, y, arg, k):
        return False
    memory[STEPS], memory[WAIT] = 0.0, min(memory[WAIT] + LOOK, MOST_WAIT)
    return h * _fastest(rates, model, t, y, k[6], n, rtol, atol, k[1], arg, k[2]) > SLOW


def _change_method(stiff, rates, model, t, y, k1):
    """Change to the other method at (t, y); the explicit one needs the rates of all of z, set here."""
    memory = stiff.room
    if is_on(stiff):
        rates(t, y, model, k1)
    memory[IS_STIFF], memory[IS_KNOWN] = 1.0 - memory[IS_STIFF], -1.0
    memory[STEPS] = memory[CALM] = 0.0


def drive(
    rates, watch, model, t, h, start, times, n_states, rtol, atol, max_step, most_steps, out, work, g, keep, stiff
):
    """Integrate from (t, start) over `times`; return (status, rows written, time reached, next step).

    Parameters
    ----------
    rates, watch : compiled functions of (t, y, model, out)
        The rates; the conditions whose crossings end the run (None: no conditions, and no code for them).
    h : float
        First step; 0: choose it.
    times : increasing, the first not before t; the last is the end.
    n_states : int
        Length of the blocks of y over which errors are averaged.
    atol : array, shape (n,)
    out : array, shape (n_times, n)
        Rows. If the run ends at a crossing, the last row written is that of the crossing.
    work : array, shape (WORK, n)
        Working array; at the end row 0 is the state reached, row 3 its rates. Setting the first number of row STOP,
        which is 0, to another value ends the run with TOO_MANY_STEPS.
    g : array, shape (WATCH_ROWS, n_watched)
        Values of the conditions, which read the first n_states of y only; see `first_crossing`.
    keep : compiled function of (model, t, h, y, c), or None
        Receives the polynomial of every step (`prepare_dense`); the run ends with NO_ROOM when it returns False.
    stiff : rosenbrock.Stiff, or None
        The method used where stability limits the explicit one; None: no stiff method, and no code for it.
    """
    end = times[-1]
    began, status = t, TOO_MANY_STEPS
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
        watch(t, y, model, g[0])
    if h == 0.0:
        h = first_step(rates, model, t, y, k[0], end - t, rtol, atol, arg, k[1])
    h = min(h, max_step)
    last, accepted, at_border, inside, rejected = SMALL, 0, 0, 0, False
    for _ in range(most_steps):
        is_last = t + 1.01 * h >= end and end - t <= max_step
        if is_last:
            h = end - t
        elif t + 0.1 * h == t:
            status = STEP_TOO_SMALL
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
            status = STIFF
            break
        s = NEVER
        if keep is not None and not keep(model, t, h, y, c):
            status = NO_ROOM
            break
        if watch is not None:
            watch(t_new, y_new, model, g[1])
            s = first_crossing(dense, watch, model, t, h, y[:n_states], c, g, arg)
        while row < len(times) and times[row] < min(t_new, t + s * h):
            part = (times[row] - t) / h
            dense(part, y, c, out[row])
            if watch is not None:
                watch(times[row], out[row], model, g[2])
                if has_crossed(g[0], g[2]):
                    s = located(dense, watch, model, t, h, y[:n_states], c, 0.0, part, g, arg)
                    break
            row += 1
        if watch is not None:
            if s != NEVER:
                dense(s, y, c, out[row])
                return CROSSED, row + 1, min(t + s * h, end), h
            for i in range(g.shape[1]):
                if g[1, i] == g[1, i]:  # NaN leaves a condition on its side
                    g[0, i] = g[1, i]
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
    if status != STIFF and has_exploded(start, y, k[0], n_states, began, t, rtol, atol):
        status = EXPLODED
    return status, row, t, h
