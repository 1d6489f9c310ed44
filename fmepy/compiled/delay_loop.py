# mypy: ignore-errors
"""Whole runs of a model with delays by the explicit method, ``x' = f(t, x, x(t - tau), p)``.

The past is stored as the polynomials of all steps (`dormand_prince.prepare_dense`); before the start it is a function
of time and parameters. No step is longer than the shortest delay, so the past that a step reads has always been
computed: nothing is extrapolated or iterated. A delay of zero reads the present value.

**Breaking points.** Where x or its slope jumps (at the start, at events, at kinks of a forcing), higher derivatives
jump a delay later, and so on: x at s, x' at s + tau, x'' at s + 2 tau, ... These times, sums of up to `LEVELS` delays
(the order of the method) after each such s, are its breaking points: a step ends at each of them.

**A delay that varies** with time or states is evaluated whenever the rates are, and so is the step that it reads. It
cannot read the step that is being taken: that one is rejected and shortened until it need not. If such a delay becomes
zero, the run ends there, since no step is short enough. The times at which it passes a jump of the past are no breaking
points; the error control finds them.

**Sides of jumps.** Between two breaking points a delay reads one smooth piece of the past. The steps of that piece are
determined once, from the ends of the interval, so that rounding never reads a jump from the wrong side.

**Sensitivities.** With S = dx/dp and tau' = dtau/dp::

    S'    = f_x S + f_xtau L + f_p                 L = S(t - tau) - x'(t - tau) tau'
    S(s+) = S(s-) + (f(s-) - f(s+)) tau'           where x jumps at s - tau, and so f at s

where tau' of a delay that varies is tau_p + tau_x S, and the second is the jump of a condition whose time moves with
the delay (`models.running.switches`). Where x jumps at a hit of a root event, whose time t* moves too, that is
(f(s-) - f(s+)) (tau' + dt*/dp). The lagged values x(t - tau_k), and then their L for each parameter, are the last of
the `inputs`.

**Root events.** A run pauses at its start and at every hit, where the caller may change the states, and continues from
its workspace (`DelayWorkspace`): the past is still there, and the hit has breaking points of its own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fmepy.compiled.courses import CourseTables, advance, make_changes, prepare, set_outputs
from fmepy.compiled.delayed_rates import (
    BEFORE,
    CLOSE,
    FIRST,
    LAST,
    LAST_READ,
    LOST,
    N_STEPS,
    PIECE,
    PRESENT,
    REACHED,
    STATE,
    VALUE,
    VARIES,
    VARYING,
    ZERO_MOVES,
    DelayedRates,
    DelayTables,
    is_sensitive,
    rates,
    store_step,
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
"""Breaking points are sums of at most this many delays, the order of the method."""
MOST_BREAKS = 2000
"""Breaking points of one run; later levels beyond it are left to the error control, the first level never is."""
MOST_SHORTEST = 100_000
"""Largest ratio of the length of a run to its shortest delay."""

N_BREAKS, NEXT_BREAK, N_PIECES, STRETCH, NEXT_TIME, NEXT_ROW, NEXT_CHANGE, HITS_MOVE = range(8)
RESOLUTION, TIME, STEP, SHOW_FROM, SHOW_UNTIL = range(8, 13)
"""Entries of `DelayWorkspace.progress`: numbers of breaking points, of the next one, of pieces of the past; the current
stretch (-1: not started), numbers of the next time, row and change; whether the time of a hit depends on a parameter;
distance below which two times are equal; time, next step; first and last time at which rows show `hit_state`."""


class DelayWorkspace(NamedTuple):
    """Progress of a run with delays, its past, and working arrays.

    Attributes
    ----------
    progress : ndarray
        See the names of its entries above. (All but the last five are whole numbers.)
    delays, steps, history, current : ndarray
        See `DelayedRates`.
    breaks, level, next_level : ndarray
        Breaking points of the run, sorted; those of one level and of the next.
    pieces : ndarray, shape (n_pieces, 1 + n_blocks)
        Smooth pieces of the past: start, first step, derivatives of the start to each parameter, times its scale.
    requested : ndarray
        Times up to the next breaking point.
    slopes : ndarray, shape (2, n)
        Rates on both sides of a jump.
    shift, hit_state : ndarray
        Of a hit: derivatives of its time like those of `pieces`; the state that rows at its time show.
    """

    progress: Vector
    delays: Matrix
    steps: Matrix
    history: Vector
    current: Matrix
    breaks: Vector
    level: Vector
    next_level: Vector
    pieces: Matrix
    requested: Vector
    slopes: Matrix
    shift: Vector
    hit_state: Vector


def workspace_of(c: CourseTables, d: DelayTables, n_steps: int) -> DelayWorkspace:
    """Return the workspace of a run along a course, for at most n_steps steps."""
    n, n_delays = len(c.atol), len(d.states)
    n_blocks, most = n // c.n_states, MOST_BREAKS + n_delays * n_steps
    return DelayWorkspace(
        np.empty(13), np.empty((n_delays + 1, VALUE + n_blocks)), np.empty((n_steps, 2 + 5 * n)),
        np.empty(n + c.n_states), np.empty((n_blocks, n_delays)), np.empty(most), np.empty(most), np.empty(most),
        np.zeros((n_steps + 1, 1 + n_blocks)), np.empty(len(c.times) + 1), np.empty((2, n)), np.zeros(n_blocks - 1),
        np.empty(n),
    )  # fmt: skip


def model_of(c, d, w, inputs):
    """Return the model that `delayed_rates.rates` evaluates."""
    return DelayedRates(d, c.rates, c.watch, c.start, inputs, w.delays, w.steps, w.history, w.current)


def continue_run(watcher, c, runs, m, w, rows):
    """Continue to the end or, if roots are watched, the next pause; return status, rows written, time reached."""
    progress = w.progress
    if progress[STRETCH] < 0.0:
        status = _start(c, runs, m, w, rows)
        if status != DONE or watcher is not None:
            return status if status != DONE else CROSSED, progress[NEXT_ROW], c.start
    elif watcher is not None:
        _rows_at_hit(c, runs, m, w, rows)
    while progress[STRETCH] < len(c.bounds):
        k = int(progress[STRETCH])
        if progress[NEXT_CHANGE] < 0.0:
            return NO_VALUE, progress[NEXT_ROW], progress[TIME]
        copy(c.constants[k], m.inputs[c.n_parameters :])
        status = _run_stretch(watcher, c, runs, m, w, k, rows)
        if status != DONE:
            return status, progress[NEXT_ROW], progress[TIME]
        progress[NEXT_CHANGE] = make_changes(c, runs, m.inputs, int(progress[NEXT_CHANGE]), k, progress[TIME])
        progress[STRETCH] += 1.0
        _start_stretch(c, w)
    return DONE if progress[NEXT_CHANGE] >= 0.0 else NO_VALUE, progress[NEXT_ROW], progress[TIME]


def _start_stretch(c, w):
    k = int(w.progress[STRETCH])
    if k < len(c.bounds):
        w.progress[TIME], w.progress[NEXT_TIME] = c.begins[k], c.bounds[k, 0]


def _start(c, runs, m, w, rows):
    """Initialise a run: states, delays, first row; return DONE, or the status of the failure."""
    z, progress, n_delays = runs.values[: len(c.atol)], w.progress, len(m.tables.states)
    for i in range(len(progress)):
        progress[i] = 0.0
    progress[RESOLUTION], progress[TIME] = CLOSE * max(abs(c.start), abs(_end(c))), c.start
    prepare(c, runs, m.inputs)
    call(c.values, c.start, runs.work[0], m.inputs, runs.values)
    if not are_finite(z):
        return NO_VALUE
    call(m.tables.values, c.start, z, m.inputs, m.current)
    common = m.delays[n_delays]
    common[N_STEPS] = common[ZERO_MOVES] = common[LOST] = common[VARYING] = 0.0
    common[REACHED] = c.start
    for k in range(n_delays):
        delay = m.delays[k]
        delay[STATE], delay[PIECE], delay[FIRST] = m.tables.states[k], 0.0, BEFORE
        if m.tables.varies[k] != 0:
            delay[FIRST], delay[LAST], delay[LAST_READ] = VARIES, -1.0, 0.0
            common[VARYING] += 1.0
        for b in range(len(m.current)):
            delay[VALUE + b] = m.current[b, k]
        if m.current[0, k] == 0.0 and m.tables.varies[k] == 0 and is_sensitive(m, k):
            common[ZERO_MOVES] = 1.0
    shortest = _shortest(m)
    if shortest < 0.0:
        return NO_DELAY
    if (_end(c) - c.start) / shortest > MOST_SHORTEST:
        return SHORT_DELAY
    for k in range(n_delays):
        _set_steps_read(m, k, c.start, c.start, c.start, w, -1)
    if c.n_at_start > 0:
        copy(z, rows[0])
        set_outputs(c, runs, m.inputs, m, 0, rows[0])
    progress[NEXT_ROW], progress[NEXT_CHANGE] = c.n_at_start, make_changes(c, runs, m.inputs, 0, -1, c.start)
    _start_stretch(c, w)
    if len(c.bounds) > 0:
        copy(c.constants[0], m.inputs[c.n_parameters :])
    return DONE if progress[NEXT_CHANGE] >= 0.0 else NO_VALUE


def _rows_at_hit(c, runs, m, w, rows):
    """Write `hit_state` to the rows at the time of a hit; after the last time of a stretch, move to its end."""
    k, progress = int(w.progress[STRETCH]), w.progress
    begin, end = int(c.bounds[k, 0]), int(c.bounds[k, 1])
    while progress[NEXT_TIME] > begin and c.times[int(progress[NEXT_TIME]) - 1] >= progress[SHOW_FROM]:
        progress[NEXT_TIME], progress[NEXT_ROW] = progress[NEXT_TIME] - 1.0, progress[NEXT_ROW] - 1.0
    while progress[NEXT_TIME] < end and c.times[int(progress[NEXT_TIME])] <= progress[SHOW_UNTIL]:
        if progress[NEXT_TIME] - begin < c.bounds[k, 2]:
            row = int(progress[NEXT_ROW])
            copy(w.hit_state, rows[row])
            set_outputs(c, runs, m.inputs, m, row, rows[row])
            progress[NEXT_ROW] += 1.0
        progress[NEXT_TIME] += 1.0
    if progress[NEXT_TIME] == end:
        progress[TIME] = c.times[end - 1]


def _end(c):
    """Return the time at which a run ends."""
    return c.times[-1] if len(c.times) > 0 else c.start


def _set_steps_read(m, k, a, b, start, w, n_pieces):
    """Set the steps that delay k reads between breaking points a and b; tell whether a piece starts at a - tau.

    The piece that starts at a follows n_pieces others.
    """
    delay, pieces, resolution = m.delays[k], w.pieces, w.progress[RESOLUTION]
    if int(delay[FIRST]) == VARIES:
        return False
    tau = delay[VALUE]
    low, high = a - tau, b - tau
    if tau == 0.0:
        delay[FIRST] = PRESENT
        return False
    if low < start - resolution:
        delay[FIRST] = BEFORE
        return False
    p = int(delay[PIECE])
    while p < n_pieces and pieces[p + 1, 0] <= low + resolution:
        p += 1
    q = p
    while q < n_pieces and pieces[q + 1, 0] < high - resolution:
        q += 1
    delay[FIRST], delay[LAST_READ], delay[PIECE] = pieces[p, 1], pieces[p, 1], p
    delay[LAST] = -1 if q == n_pieces else pieces[q + 1, 1] - 1
    return abs(low - pieces[p, 0]) <= resolution


def _insert(times, count, t, resolution):
    """Insert a time into a sorted array unless it is there already; return the new number of times."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if times[middle] < t:
            low = middle + 1
        else:
            high = middle
    if (low < count and times[low] - t <= resolution) or (low > 0 and t - times[low - 1] <= resolution):
        return count
    for i in range(count, low, -1):
        times[i] = times[i - 1]
    times[low] = t
    return count + 1


def _add_breaks(base, end, m, w):
    """Add the breaking points that follow one time by sums of delays."""
    progress, resolution, n_level = w.progress, w.progress[RESOLUTION], 1
    w.level[0] = base
    for level in range(LEVELS):
        n_next = 0
        for i in range(n_level):
            for k in range(len(m.delays) - 1):
                t, n_breaks = w.level[i] + m.delays[k, VALUE], int(progress[N_BREAKS])
                is_inside = int(m.delays[k, FIRST]) != VARIES and t > w.level[i] and t < end - resolution
                if not is_inside or n_breaks == len(w.breaks):
                    continue
                if level > 0 and n_breaks >= MOST_BREAKS:
                    break
                progress[N_BREAKS] = _insert(w.breaks, n_breaks, t, resolution)
                n_next = _insert(w.next_level, n_next, t, resolution)
        n_level = n_next
        copy(w.next_level[:n_level], w.level)


def _shortest(m):
    """Return the shortest fixed delay that is not zero; -1.0 if one is negative or not finite."""
    out = 1e300
    for k in range(len(m.delays) - 1):
        tau = m.delays[k, VALUE]
        if int(m.delays[k, FIRST]) == VARIES:
            continue
        if not (tau >= 0.0 and tau < 1e300):
            return -1.0
        if tau > 0.0 and tau < out:
            out = tau
    return out


def _pass_break(c, z, m, w, k, a, b):
    """Set the steps of delay k after a breaking point; where it passes a jump of the past, sensitivities jump."""
    n_pieces = int(w.progress[N_PIECES])
    is_moving = is_sensitive(m, k) or w.progress[HITS_MOVE] > 0.0
    may_jump = is_moving and n_pieces > 0 and int(m.delays[k, FIRST]) != VARIES
    if may_jump:
        rates(a, z, m, w.slopes[0])
    if _set_steps_read(m, k, a, b, c.start, w, n_pieces) and may_jump:
        rates(a, z, m, w.slopes[1])
        piece = w.pieces[int(m.delays[k, PIECE])]
        for block in range(1, len(m.current)):
            for i in range(c.n_states):
                shift = m.delays[k, VALUE + block] + piece[1 + block]
                z[block * c.n_states + i] += (w.slopes[0, i] - w.slopes[1, i]) * shift


def _run_stretch(watcher, c, runs, m, w, k, rows):
    """Continue along stretch k from one breaking point to the next; return the status.

    No step is longer than the shortest delay, apart from rounding: an interval as long as that takes one step.
    """
    longest, common = min(_shortest(m) * (1.0 + 1e-9), c.max_step), m.delays[len(m.delays) - 1]
    z, progress = runs.values[: len(c.atol)], w.progress
    ends_at = c.times[c.bounds[k, 1] - 1]
    _add_breaks(progress[TIME], _end(c), m, w)
    while progress[TIME] < ends_at:
        t, n_pieces = progress[TIME], int(progress[N_PIECES])
        if n_pieces >= len(w.pieces) - 1:
            return NO_ROOM
        begin, row = int(progress[NEXT_TIME]), int(progress[NEXT_ROW])
        until, n_requested, n_rows, next_time = _request_times(c, w, k, begin, _next_break(w, t, ends_at), ends_at)
        w.pieces[n_pieces, 0], w.pieces[n_pieces, 1] = t, common[N_STEPS]
        for b in range(len(w.shift)):
            w.pieces[n_pieces, 2 + b], w.shift[b] = w.shift[b], 0.0
        for d in range(len(m.delays) - 1):
            _pass_break(c, z, m, w, d, t, until)
        progress[N_PIECES] += 1.0
        out = rows[row : row + n_requested]
        status, n_out, progress[TIME], progress[STEP] = advance(
            rates, watcher, m, c, runs, t, progress[STEP], longest, w.requested[:n_requested], out, store_step, None
        )  # fmt: skip
        is_hit = watcher is not None and status == CROSSED
        if is_hit:
            copy(out[n_out - 1, : len(z)], z)
            n_rows, next_time, common[REACHED] = n_out - 1, begin + n_out - 1, progress[TIME]
        if status == DONE or is_hit:
            for i in range(n_rows):
                set_outputs(c, runs, m.inputs, m, row + i, out[i])
        else:
            n_rows = n_out
        progress[NEXT_TIME], progress[NEXT_ROW] = next_time, row + n_rows
        if is_hit:
            return CROSSED
        if status != DONE:
            is_lost = common[LOST] > 0.0 and status in (NO_RATES, STEP_TOO_SMALL)
            return LOST_DELAY if is_lost else status
        progress[TIME] = until
    return DONE


def _next_break(w, t, ends_at):
    """Return the next breaking point after t, or the end of the stretch if that comes first."""
    i_break, n_breaks = int(w.progress[NEXT_BREAK]), int(w.progress[N_BREAKS])
    while i_break < n_breaks and w.breaks[i_break] <= t + w.progress[RESOLUTION]:
        i_break += 1
    w.progress[NEXT_BREAK] = i_break
    comes_first = i_break < n_breaks and w.breaks[i_break] < ends_at - w.progress[RESOLUTION]
    return w.breaks[i_break] if comes_first else ends_at


def _request_times(c, w, k, first, until, ends_at):
    """Set `requested` to the times of stretch k from index `first` to a breaking point, and the latter.

    Return the breaking point (replaced by the time of a row that it misses by rounding), the number of requested times,
    the number of rows among them, and the index of the next time.
    """
    count, last, requested = 0, c.bounds[k, 1] - 1, w.requested
    while first <= last and c.times[first] <= until + w.progress[RESOLUTION]:
        requested[count] = c.times[first]
        count += 1
        first += 1
    n_rows = count
    if count > 0 and requested[count - 1] >= until - w.progress[RESOLUTION]:
        until = requested[count - 1]
    else:
        requested[count] = until
        count += 1
    if until == ends_at and c.bounds[k, 2] < c.bounds[k, 1] - c.bounds[k, 0]:  # the end is no row
        n_rows = count - 1
    return until, count, n_rows, first
