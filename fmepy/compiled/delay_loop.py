# mypy: ignore-errors
"""Whole runs of a model with delays by the explicit method, ``x' = f(t, x, x(t - tau), p)``.

The past is kept as the polynomials of all steps (`dormand_prince.prepare_dense`); before the start it is a function of
time and parameters. No step is longer than the shortest delay, so what a step reads has always been computed: nothing
is extrapolated or iterated. A delay of zero reads the present value.

**Where a step ends.** Where x or its slope jumps (at the start, at events, at kinks of a forcing), higher derivatives
jump a delay later, and so on: x at s, x' at s + tau, x'' at s + 2 tau, ... These times, `LEVELS` sums of delays from
each such s, are stops of the solver, as many as its order needs.

**A delay that varies** with time or states is computed anew wherever the rates are, and so is the step that it reads;
it may read nothing of the step that is being taken, which is tried again, shorter, until it does not. A run in which
such a delay comes to zero ends there, for no step is short enough. Where it passes a jump of the past is no stop; the
control of errors finds it.

**Which side.** Between two stops a delay reads one smooth part of the past. Which steps belong to it is found once for
the stretch, from its ends, so that rounding never reads a jump from the wrong side.

**Sensitivities.** With S = dx/dp and tau' = dtau/dp::

    S'    = f_x S + f_xtau L + f_p                 L = S(t - tau) - x'(t - tau) tau'
    S(s+) = S(s-) + (f(s-) - f(s+)) tau'           where x jumps at s - tau, and so f at s

where tau' of a delay that varies is tau_p + tau_x S, and the second is the jump of a condition whose time moves with
the delay (`models.running.switches`). Where x jumps at a hit of a root event, whose time t* moves too, that is
(f(s-) - f(s+)) (tau' + dt*/dp). In `inputs`, behind everything else that a stretch sets, stand the lagged values
x(t - tau_k), and then L of them for each parameter.

**Root events.** A run pauses at its start and at every hit (`Room`), for somebody to change the states there, and goes
on: its past is kept, and what follows the hit by delays is stopped at.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fmepy.compiled.courses import CourseTables, advance, make_changes, prepare, set_outputs
from fmepy.compiled.delayed_rates import (
    BEFORE,
    CLOSE,
    FIRST,
    IS_MOVING,
    LAST,
    LOST,
    N_STEPS,
    OF_DELAY,
    PART,
    PRESENT,
    REACHED,
    READ,
    STATE,
    VARIES,
    VARYING,
    Delayed,
    DelayTables,
    keep_step,
    moves,
    rates,
)
from fmepy.compiled.kernels import are_finite, call, copy
from fmepy.compiled.status import (
    CROSSED,
    DONE,
    LOST_DELAY,
    NO_DELAY,
    NO_RATES,
    NO_ROOM,
    NO_VALUE,
    SHORT_DELAY,
    STEP_TOO_SMALL,
)
from fmepy.types import Matrix, Vector

LEVELS = 5
"""Sums of so many delays are stops: the order of the method."""
MOST_STOPS = 2000
"""Of one run; what is further delayed then is left to the control of errors. The first level is never left out."""
MOST_SHORTEST = 100_000
"""A run may be so many times as long as its shortest delay."""


N_STOPS, STOP, N_PARTS, STRETCH, NEXT, ROW, CHANGE, MOVED, APART, TIME, STEP, SHOWN, SHOWN_TO = range(13)
"""In `Room.at`: how many stops there are, the next of them, how many parts of the past; the stretch (-1: the run has
not begun), the next of its times, the next row, the next change; whether a hit has moved with a parameter; the distance
below which two times are one; the time, the next step; from which time to which rows show the state of a hit."""


class Room(NamedTuple):
    """Where a run with delays stands, its past, and room to work in.

    Attributes
    ----------
    at : ndarray
        What the names above say. (All but the last five are whole numbers.)
    delays, steps, before, now : ndarray
        Those of `Delayed`.
    stops, these, following : ndarray
        The stops of a run, and those of a level and of the next.
    parts : ndarray, shape (n_parts, 1 + n_blocks)
        See `_aim`; behind that the derivatives of their beginnings to each parameter asked for, times its scale.
    wanted : ndarray
        Times up to a stop.
    kept : ndarray, shape (2, n)
        Rates.
    shift, shown : ndarray
        Of a hit: the same derivatives of its time; the state that rows at its time show.
    """

    at: Vector
    delays: Matrix
    steps: Matrix
    before: Vector
    now: Matrix
    stops: Vector
    these: Vector
    following: Vector
    parts: Matrix
    wanted: Vector
    kept: Matrix
    shift: Vector
    shown: Vector


def room_of(c: CourseTables, d: DelayTables, n_steps: int) -> Room:
    """Return room for a run along a course of so many steps."""
    n, n_delays = len(c.atol), len(d.states)
    n_blocks, most = n // c.n_states, MOST_STOPS + n_delays * n_steps
    return Room(
        np.empty(13), np.empty((n_delays + 1, OF_DELAY + n_blocks)), np.empty((n_steps, 2 + 5 * n)),
        np.empty(n + c.n_states), np.empty((n_blocks, n_delays)), np.empty(most), np.empty(most), np.empty(most),
        np.zeros((n_steps + 1, 1 + n_blocks)), np.empty(len(c.times) + 1), np.empty((2, n)), np.zeros(n_blocks - 1),
        np.empty(n),
    )  # fmt: skip


def delayed(c, d, w, inputs):
    """Return what rates read beside time and states."""
    return Delayed(d, c.rates, c.watch, c.start, inputs, w.delays, w.steps, w.before, w.now)


def run_on(watcher, c, runs, m, w, rows):
    """Run on to the end or, where roots are watched, to the next pause; return how that ended, its rows, the time."""
    at = w.at
    if at[STRETCH] < 0.0:
        status = _begin(c, runs, m, w, rows)
        if status != DONE or watcher is not None:
            return status if status != DONE else CROSSED, at[ROW], c.start
    elif watcher is not None:
        _show_hit(c, runs, m, w, rows)
    while at[STRETCH] < len(c.bounds):
        k = int(at[STRETCH])
        if at[CHANGE] < 0.0:
            return NO_VALUE, at[ROW], at[TIME]
        copy(c.constants[k], m.inputs[c.n_parameters :])
        status = _run_stretch(watcher, c, runs, m, w, k, rows)
        if status != DONE:
            return status, at[ROW], at[TIME]
        at[CHANGE] = make_changes(c, runs, m.inputs, int(at[CHANGE]), k, at[TIME])
        at[STRETCH] += 1.0
        _begin_stretch(c, w)
    return DONE if at[CHANGE] >= 0.0 else NO_VALUE, at[ROW], at[TIME]


def _begin_stretch(c, w):
    k = int(w.at[STRETCH])
    if k < len(c.bounds):
        w.at[TIME], w.at[NEXT] = c.begins[k], c.bounds[k, 0]


def _begin(c, runs, m, w, rows):
    """Begin a run: its start, its delays, its first row; return DONE, or why it cannot be run."""
    z, at, n_delays = runs.values[: len(c.atol)], w.at, len(m.tables.states)
    for i in range(len(at)):
        at[i] = 0.0
    at[APART], at[TIME] = CLOSE * max(abs(c.start), abs(_end(c))), c.start
    prepare(c, runs, m.inputs)
    call(c.values, c.start, runs.work[0], m.inputs, runs.values)
    if not are_finite(z):
        return NO_VALUE
    call(m.tables.values, c.start, z, m.inputs, m.now)
    rest = m.delays[n_delays]
    rest[N_STEPS] = rest[IS_MOVING] = rest[LOST] = rest[VARYING] = 0.0
    rest[REACHED] = c.start
    for k in range(n_delays):
        delay = m.delays[k]
        delay[STATE], delay[PART], delay[FIRST] = m.tables.states[k], 0.0, BEFORE
        if m.tables.varies[k] != 0:
            delay[FIRST], delay[LAST], delay[READ] = VARIES, -1.0, 0.0
            rest[VARYING] += 1.0
        for b in range(len(m.now)):
            delay[OF_DELAY + b] = m.now[b, k]
        if m.now[0, k] == 0.0 and m.tables.varies[k] == 0 and moves(m, k):
            rest[IS_MOVING] = 1.0
    shortest = _shortest(m)
    if shortest < 0.0:
        return NO_DELAY
    if (_end(c) - c.start) / shortest > MOST_SHORTEST:
        return SHORT_DELAY
    for k in range(n_delays):
        _aim(m, k, c.start, c.start, c.start, w, -1)
    if c.n_at_start > 0:
        copy(z, rows[0])
        set_outputs(c, runs, m.inputs, m, 0, rows[0])
    at[ROW], at[CHANGE] = c.n_at_start, make_changes(c, runs, m.inputs, 0, -1, c.start)
    _begin_stretch(c, w)
    if len(c.bounds) > 0:
        copy(c.constants[0], m.inputs[c.n_parameters :])
    return DONE if at[CHANGE] >= 0.0 else NO_VALUE


def _show_hit(c, runs, m, w, rows):
    """Let rows at the time of a hit show what they are to; where it stands at the end of its stretch, end that."""
    k, at = int(w.at[STRETCH]), w.at
    begin, end = int(c.bounds[k, 0]), int(c.bounds[k, 1])
    while at[NEXT] > begin and c.times[int(at[NEXT]) - 1] >= at[SHOWN]:
        at[NEXT], at[ROW] = at[NEXT] - 1.0, at[ROW] - 1.0
    while at[NEXT] < end and c.times[int(at[NEXT])] <= at[SHOWN_TO]:
        if at[NEXT] - begin < c.bounds[k, 2]:
            row = int(at[ROW])
            copy(w.shown, rows[row])
            set_outputs(c, runs, m.inputs, m, row, rows[row])
            at[ROW] += 1.0
        at[NEXT] += 1.0
    if at[NEXT] == end:
        at[TIME] = c.times[end - 1]


def _end(c):
    """Return the end of a run."""
    return c.times[-1] if len(c.times) > 0 else c.start


def _aim(m, k, a, b, start, w, n_parts):
    """Set which steps delay k reads between the stops a and b; tell whether a part of the past begins at a - tau.

    Of the smooth parts of the past `w.parts` holds where they begin, and their first steps; the last one, behind
    n_parts others, is that from a on.
    """
    delay, parts, apart = m.delays[k], w.parts, w.at[APART]
    if int(delay[FIRST]) == VARIES:
        return False
    tau = delay[OF_DELAY]
    low, high = a - tau, b - tau
    if tau == 0.0:
        delay[FIRST] = PRESENT
        return False
    if low < start - apart:
        delay[FIRST] = BEFORE
        return False
    p = int(delay[PART])
    while p < n_parts and parts[p + 1, 0] <= low + apart:
        p += 1
    q = p
    while q < n_parts and parts[q + 1, 0] < high - apart:
        q += 1
    delay[FIRST], delay[READ], delay[PART] = parts[p, 1], parts[p, 1], p
    delay[LAST] = -1 if q == n_parts else parts[q + 1, 1] - 1
    return abs(low - parts[p, 0]) <= apart


def _insert(times, count, t, apart):
    """Put a time into a sorted array, unless it is there; return how many there are."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if times[middle] < t:
            low = middle + 1
        else:
            high = middle
    if (low < count and times[low] - t <= apart) or (low > 0 and t - times[low - 1] <= apart):
        return count
    for i in range(count, low, -1):
        times[i] = times[i - 1]
    times[low] = t
    return count + 1


def _add_stops(base, end, m, w):
    """Add to the stops of a run what follows from one time by delays."""
    at, apart, n_these = w.at, w.at[APART], 1
    w.these[0] = base
    for level in range(LEVELS):
        n_following = 0
        for i in range(n_these):
            for k in range(len(m.delays) - 1):
                t, n_stops = w.these[i] + m.delays[k, OF_DELAY], int(at[N_STOPS])
                is_one = int(m.delays[k, FIRST]) != VARIES and t > w.these[i] and t < end - apart
                if not is_one or n_stops == len(w.stops):
                    continue
                if level > 0 and n_stops >= MOST_STOPS:
                    break
                at[N_STOPS] = _insert(w.stops, n_stops, t, apart)
                n_following = _insert(w.following, n_following, t, apart)
        n_these = n_following
        copy(w.following[:n_these], w.these)


def _shortest(m):
    """Return the shortest fixed delay that is not zero; -1.0 if one is negative or no finite number."""
    out = 1e300
    for k in range(len(m.delays) - 1):
        tau = m.delays[k, OF_DELAY]
        if int(m.delays[k, FIRST]) == VARIES:
            continue
        if not (tau >= 0.0 and tau < 1e300):
            return -1.0
        if tau > 0.0 and tau < out:
            out = tau
    return out


def _pass(c, z, m, w, k, a, b):
    """Aim delay k at what follows a stop; where it passes a jump of the past, give the sensitivities theirs."""
    n_parts = int(w.at[N_PARTS])
    is_moving = n_parts > 0 and int(m.delays[k, FIRST]) != VARIES and (moves(m, k) or w.at[MOVED] > 0.0)
    if is_moving:
        rates(a, z, m, w.kept[0])
    is_edge = _aim(m, k, a, b, c.start, w, n_parts)
    if is_moving and is_edge:
        rates(a, z, m, w.kept[1])
        part = w.parts[int(m.delays[k, PART])]
        for block in range(1, len(m.now)):
            for i in range(c.n_states):
                moved = m.delays[k, OF_DELAY + block] + part[1 + block]
                z[block * c.n_states + i] += (w.kept[0, i] - w.kept[1, i]) * moved


def _run_stretch(watcher, c, runs, m, w, k, rows):
    """Run along stretch k from stop to stop, from where the run stands; return how that ended.

    No step is longer than the shortest delay, but a stretch as long as that is one step, rounded or not.
    """
    longest, rest = min(_shortest(m) * (1.0 + 1e-9), c.max_step), m.delays[len(m.delays) - 1]
    z, at = runs.values[: len(c.atol)], w.at
    ends_at = c.times[c.bounds[k, 1] - 1]
    _add_stops(at[TIME], _end(c), m, w)
    while at[TIME] < ends_at:
        t, begin, row, n_parts = at[TIME], int(at[NEXT]), int(at[ROW]), int(at[N_PARTS])
        if n_parts >= len(w.parts) - 1:
            return NO_ROOM
        until, n_wanted, n_here, following = _rows_until(c, w, k, begin, _next_stop(w, t, ends_at), ends_at)
        w.parts[n_parts, 0], w.parts[n_parts, 1] = t, rest[N_STEPS]
        for b in range(len(w.shift)):
            w.parts[n_parts, 2 + b], w.shift[b] = w.shift[b], 0.0
        for d in range(len(m.delays) - 1):
            _pass(c, z, m, w, d, t, until)
        at[N_PARTS] += 1.0
        here = rows[row : row + n_wanted]
        status, came, at[TIME], at[STEP] = advance(
            rates, watcher, m, c, runs, t, at[STEP], longest, w.wanted[:n_wanted], here, keep_step, None
        )  # fmt: skip
        is_hit = watcher is not None and status == CROSSED
        if is_hit:
            copy(here[came - 1, : len(z)], z)
            n_here, following, rest[REACHED] = came - 1, begin + came - 1, at[TIME]
        if status == DONE or is_hit:
            for i in range(n_here):
                set_outputs(c, runs, m.inputs, m, row + i, here[i])
        else:
            n_here = came
        at[NEXT], at[ROW] = following, row + n_here
        if is_hit:
            return CROSSED
        if status != DONE:
            is_lost = rest[LOST] > 0.0 and status in (NO_RATES, STEP_TOO_SMALL)
            return LOST_DELAY if is_lost else status
        at[TIME] = until
    return DONE


def _next_stop(w, t, ends_at):
    """Return the next stop behind t, or the end of the stretch."""
    stop, n_stops = int(w.at[STOP]), int(w.at[N_STOPS])
    while stop < n_stops and w.stops[stop] <= t + w.at[APART]:
        stop += 1
    w.at[STOP] = stop
    return w.stops[stop] if stop < n_stops and w.stops[stop] < ends_at - w.at[APART] else ends_at


def _rows_until(c, w, k, at_row, until, ends_at):
    """Set the times of rows of stretch k up to a stop, from the row `at_row` on, and the stop itself.

    Return the stop (a row that it misses by rounding is the stop), how many times those are, how many of them are
    rows, and the next row.
    """
    count, last, wanted = 0, c.bounds[k, 1] - 1, w.wanted
    while at_row <= last and c.times[at_row] <= until + w.at[APART]:
        wanted[count] = c.times[at_row]
        count += 1
        at_row += 1
    n_here = count
    if count > 0 and wanted[count - 1] >= until - w.at[APART]:
        until = wanted[count - 1]
    else:
        wanted[count] = until
        count += 1
    if until == ends_at and c.bounds[k, 2] < c.bounds[k, 1] - c.bounds[k, 0]:  # where no row is
        n_here = count - 1
    return until, count, n_here, at_row
