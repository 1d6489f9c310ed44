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
the delay (`models.running.switches`). In `inputs`, behind everything else that a stretch sets, stand the lagged values
x(t - tau_k), and then L of them for each parameter.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from fmepy.compiled.courses import advance, set_outputs
from fmepy.compiled.delayed_rates import (
    APART,
    BEFORE,
    FIRST,
    IS_MOVING,
    LAST,
    LOST,
    N_STEPS,
    OF_DELAY,
    PART,
    PRESENT,
    READ,
    STATE,
    VARIES,
    VARYING,
    WATCHES,
    keep_step,
    look_up,
    moves,
    rates,
)
from fmepy.compiled.kernels import call, copy, new
from fmepy.compiled.status import CROSSED, DONE, LOST_DELAY, NO_DELAY, NO_RATES, SHORT_DELAY, STEP_TOO_SMALL

LEVELS = 5
"""Sums of so many delays are stops: the order of the method."""
MOST_STOPS = 2000
"""Of one run; what is further delayed then is left to the control of errors. The first level is never left out."""
MOST_SHORTEST = 100_000
"""A run may be so many times as long as its shortest delay."""


N_STOPS, STOP, N_PARTS = range(3)
"""In `Room.at`: how many stops there are, the next of them, how many parts of the past."""


class Room(NamedTuple):
    """Room to work in.

    Attributes
    ----------
    at : array
        What the names above say. (All are whole numbers, in an array of floats.)
    stops, these, following : array
        The stops of a run, and those of a level and of the next.
    parts : array, shape (n_parts, 2)
        See `_aim`.
    wanted : array
        Times up to a stop.
    kept : array, shape (2, n)
        Rates.
    apart : float
        Distance below which two times are one.
    """

    at: Any
    stops: Any
    these: Any
    following: Any
    parts: Any
    wanted: Any
    kept: Any
    apart: Any


def room_of(c, n_delays):
    """Return room for runs along a course."""
    most = (len(c.bounds) + 1) * (1 + n_delays) + MOST_STOPS
    return Room(
        new(3), new(most), new(most), new(most), new(most + len(c.bounds) + 1, 2), new(len(c.times) + 1),
        new(2, len(c.atol)), APART * max(abs(c.start), abs(_end(c))),
    )  # fmt: skip


def _end(c):
    """Return the end of a run."""
    return c.times[-1] if len(c.times) > 0 else c.start


def begin(watcher, c, runs, m, w):
    """Begin a run from z: its delays, and its stops; return DONE, or why it cannot be run."""
    n_delays, z = len(m.tables.states), runs.values[: len(c.atol)]
    call(m.tables.values, c.start, z, m.inputs, m.now)
    rest = m.delays[n_delays]
    rest[N_STEPS] = rest[IS_MOVING] = rest[LOST] = rest[VARYING] = 0.0
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
        _aim(m, k, c.start, c.start, c.start, w.apart, w.parts, -1)
    copy(c.begins, w.stops)
    w.at[N_STOPS] = _find_stops(w.stops, len(c.begins), _end(c), m, w.apart, w.these, w.following)
    w.at[STOP] = w.at[N_PARTS] = 0.0
    if watcher is not None and len(c.begins) == 0:
        look_up(c.start, z, m)
    return DONE


def _aim(m, k, a, b, start, apart, parts, n_parts):
    """Set which steps delay k reads between the stops a and b; tell whether a part of the past begins at a - tau.

    parts : array, shape (n_parts + 1, 2)
        Where the smooth parts of the past begin, and their first steps; the last one is that from a on.
    """
    delay = m.delays[k]
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


def _find_stops(stops, n_bases, end, m, apart, these, following):
    """Add to the first n_bases of `stops` what follows from them by delays; return how many there are then."""
    count, n_these = n_bases, n_bases
    copy(stops[:n_bases], these)
    for level in range(LEVELS):
        n_following = 0
        for i in range(n_these):
            for k in range(len(m.delays) - 1):
                t = these[i] + m.delays[k, OF_DELAY]
                if int(m.delays[k, FIRST]) == VARIES:
                    continue
                if t > these[i] and t < end - apart and count < len(stops):
                    if level > 0 and count >= MOST_STOPS:
                        break
                    before = count
                    count = _insert(stops, count, t, apart)
                    if count > before:
                        following[n_following] = t
                        n_following += 1
        n_these = n_following
        copy(following[:n_these], these)
    return count


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
    is_moving = n_parts > 0 and int(m.delays[k, FIRST]) != VARIES and moves(m, k)
    if is_moving:
        rates(a, z, m, w.kept[0])
    is_edge = _aim(m, k, a, b, c.start, w.apart, w.parts, n_parts)
    if is_moving and is_edge:
        rates(a, z, m, w.kept[1])
        for block in range(1, len(m.now)):
            for i in range(c.n_states):
                z[block * c.n_states + i] += (w.kept[0, i] - w.kept[1, i]) * m.delays[k, OF_DELAY + block]


def run_stretch(watcher, c, runs, m, w, k, h, rows, row):
    """Run along stretch k from stop to stop; return how that ended, its rows (from `row` on), the time reached, a step.

    No step is longer than the shortest delay, but a stretch as long as that is one step, rounded or not.
    """
    longest, rest = min(_shortest(m) * (1.0 + 1e-9), c.max_step), m.delays[len(m.delays) - 1]
    z = runs.values[: len(c.atol)]
    rest[WATCHES] = 1.0 if k >= m.watched else 0.0
    t, at_row, ends_at, first = c.begins[k], c.bounds[k, 0], c.times[c.bounds[k, 1] - 1], row
    while t < ends_at:
        until = _next_stop(w, t, ends_at)
        until, n_wanted, n_here, at_row = _rows_until(c, w, k, at_row, until, ends_at)
        n_parts = int(w.at[N_PARTS])
        w.parts[n_parts, 0], w.parts[n_parts, 1] = t, rest[N_STEPS]
        for d in range(len(m.delays) - 1):
            _pass(c, z, m, w, d, t, until)
        w.at[N_PARTS] += 1.0
        here = rows[row : row + n_wanted]
        status, came, reached, h = advance(
            rates, watcher, m, c, runs, t, h, longest, w.wanted[:n_wanted], here, keep_step, None
        )  # fmt: skip
        if watcher is not None and status == CROSSED:
            copy(here[came - 1, : len(z)], z)
            look_up(reached, z, m)
        if status != DONE:
            is_lost = rest[LOST] > 0.0 and status in (NO_RATES, STEP_TOO_SMALL)
            return LOST_DELAY if is_lost else status, row + came - first, reached, h
        for i in range(n_here):
            set_outputs(c, runs, m.inputs, m, row + i, here[i])
        row += n_here
        t = until
    return DONE, row - first, t, h


def _next_stop(w, t, ends_at):
    """Return the next stop behind t, or the end of the stretch."""
    stop, n_stops = int(w.at[STOP]), int(w.at[N_STOPS])
    while stop < n_stops and w.stops[stop] <= t + w.apart:
        stop += 1
    w.at[STOP] = stop
    return w.stops[stop] if stop < n_stops and w.stops[stop] < ends_at - w.apart else ends_at


def _rows_until(c, w, k, at_row, until, ends_at):
    """Set the times of rows of stretch k up to a stop, from the row `at_row` on, and the stop itself.

    Return the stop (a row that it misses by rounding is the stop), how many times those are, how many of them are
    rows, and the next row.
    """
    count, last, wanted = 0, c.bounds[k, 1] - 1, w.wanted
    while at_row <= last and c.times[at_row] <= until + w.apart:
        wanted[count] = c.times[at_row]
        count += 1
        at_row += 1
    n_here = count
    if count > 0 and wanted[count - 1] >= until - w.apart:
        until = wanted[count - 1]
    else:
        wanted[count] = until
        count += 1
    if until == ends_at and c.bounds[k, 2] < c.bounds[k, 1] - c.bounds[k, 0]:  # where no row is
        n_here = count - 1
    return until, count, n_here, at_row
