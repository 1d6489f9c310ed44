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
    Delayed,
    keep_step,
    look_up,
    moves,
    rates,
    watch,
)
from fmepy.compiled.dormand_prince import drive
from fmepy.compiled.explicit_loop import _changes, _copy, _first_not_finite
from fmepy.compiled.kernels import call, doubles, integers, new
from fmepy.compiled.status import (
    CROSSED,
    DONE,
    HEAD,
    LOST_DELAY,
    NO_DELAY,
    NO_RATES,
    NO_ROOM,
    NO_VALUE,
    NOT_FINITE,
    SEEN,
    SHORT_DELAY,
    STEP_TOO_SMALL,
    WORK,
)

LEVELS = 5
"""Sums of so many delays are stops: the order of the method."""
MOST_STOPS = 2000
"""Of one run; what is further delayed then is left to the control of errors. The first level is never left out."""
MOST_SHORTEST = 100_000
"""A run may be so many times as long as its shortest delay."""


def _begin(m, states, varies, values):
    """Begin a run, with delays of these values."""
    n_delays, n_varying = len(states), 0
    for k in range(n_delays):
        n_varying += varies[k]
    m.delays[n_delays, N_STEPS] = m.delays[n_delays, IS_MOVING] = m.delays[n_delays, LOST] = 0.0
    m.delays[n_delays, VARYING] = n_varying
    for k in range(n_delays):
        m.delays[k, STATE], m.delays[k, PART], m.delays[k, FIRST] = states[k], 0.0, BEFORE
        if varies[k] != 0:
            m.delays[k, FIRST], m.delays[k, LAST], m.delays[k, READ] = VARIES, -1.0, 0.0
        for b in range(len(values)):
            m.delays[k, OF_DELAY + b] = values[b, k]
        if values[0, k] == 0.0 and varies[k] == 0 and moves(m, k):
            m.delays[n_delays, IS_MOVING] = 1.0


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
    _copy(stops, these, n_bases)
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
        _copy(following, these, n_these)
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


def _pass(g, w, m, k, a, b, n_parts):
    """Aim delay k at what follows a stop; where it passes a jump of the past, give the sensitivities theirs."""
    is_moving = n_parts > 0 and int(m.delays[k, FIRST]) != VARIES and moves(m, k)
    if is_moving:
        rates(a, w.z, m, w.kept[0])
    is_edge = _aim(m, k, a, b, g.start, g.apart, w.parts, n_parts)
    if is_moving and is_edge:
        rates(a, w.z, m, w.kept[1])
        for block in range(1, g.n_blocks):
            for i in range(g.n_states):
                w.z[block * g.n_states + i] += (w.kept[0, i] - w.kept[1, i]) * m.delays[k, OF_DELAY + block]


class RunConstants(NamedTuple):
    """What is the same in all runs, see `compiled.explicit_runs`.

    Attributes
    ----------
    numbers : array
        All that `ExplicitRuns` gives; `rows`, `begins`, `times`, `constants`, `forced` say where in it what begins.
    changes_of : array
        What the changes are computed from.
    behind : int
        Where that stands in the inputs.
    n_blocks : int
        Of z: the states, and their derivatives to each parameter asked for.
    watched : int
        The stretch from which on conditions are watched.
    """

    of_outputs: Any
    n_states: Any
    n_parameters: Any
    n_constants: Any
    n_forced: Any
    n_at_start: Any
    most_steps: Any
    bounds: Any
    changes: Any
    changes_of: Any
    behind: Any
    numbers: Any
    rows: Any
    begins: Any
    times: Any
    constants: Any
    forced: Any
    atol: Any
    n_blocks: Any
    start: Any
    end: Any
    apart: Any
    watched: Any


class Room(NamedTuple):
    """Room to work in.

    Attributes
    ----------
    work, marks : array
        Those of `drive`.
    z, changed : array
        The present, and the values of changes.
    stops, these, following : array
        The stops of a run, and those of a level and of the next.
    parts : array, shape (n_parts, 2)
        See `_aim`.
    wanted : array
        Times up to a stop.
    read : array
        What outputs read.
    kept : array, shape (2, n)
        Rates.
    """

    work: Any
    marks: Any
    z: Any
    changed: Any
    stops: Any
    these: Any
    following: Any
    parts: Any
    wanted: Any
    read: Any
    kept: Any


def run_delayed(
    course: int, stretches: int, changes: int, numbers: int, n_runs: int,
    inputs: int, work: int, seen: int, values: int, out: int, told: int,
    delayed: int, first_run: int, room: int,
):  # fmt: skip
    """Run a model many times, from run `first_run` on; `room` is for so many steps of the past.

    Arrays come as their addresses; see `compiled.explicit_loop` and, for `delayed`, `compiled.delay_runs`.
    """
    _runs(
        None, course, stretches, changes, numbers, n_runs, inputs, work, seen, values, out, told, delayed, first_run,
        room,
    )  # fmt: skip


def run_delayed_watched(
    course: int, stretches: int, changes: int, numbers: int, n_runs: int,
    inputs: int, work: int, seen: int, values: int, out: int, told: int,
    delayed: int, first_run: int, room: int,
):  # fmt: skip
    """Do so up to the first crossing of a condition; the inputs then hold the lagged values there, and `values` z."""
    _runs(
        watch, course, stretches, changes, numbers, n_runs, inputs, work, seen, values, out, told, delayed, first_run,
        room,
    )  # fmt: skip


def _runs(
    watcher, course, stretches, changes, numbers, n_runs, inputs, work, seen, values, out, told, delayed, first_run,
    room,
):  # fmt: skip
    head, said = integers(course, HEAD), integers(delayed, 5)
    n, n_states, n_inputs, n_parameters, n_constants = head[4], head[5], head[6], head[7], head[8]
    n_outputs, n_forced, n_rows, n_stretches = head[9], head[10], head[12], head[14]
    n_changes, n_given, together, n_delays = head[15], head[16], head[17], said[3]
    bounds, of_changes = integers(stretches, n_stretches, 3), integers(changes, n_changes + 1, 5)
    n_times = bounds[n_stretches - 1, 1] if n_stretches > 0 else 0
    begins = 3 + n + n_rows
    times = begins + n_stretches
    constants, forced = times + n_times, times + n_times + n_stretches * n_constants
    at_changes = forced + n_rows * n_forced
    F = doubles(numbers, at_changes + n_changes * n_given)
    start, end, n_blocks = F[2], F[times + n_times - 1] if n_stretches > 0 else F[2], n // n_states
    given = RunConstants(
        head[3], n_states, n_parameters, n_constants, n_forced, head[13], head[18], bounds, of_changes,
        F[at_changes:].reshape((n_changes, n_given)), n_inputs - n_given, F, 3 + n, begins, times, constants, forced,
        F[3 : 3 + n], n_blocks, start, end, APART * max(abs(start), abs(end)), said[4],
    )  # fmt: skip
    V = doubles(values, n + n_parameters + n_forced + together * n_blocks)
    most = (n_stretches + 1) * (1 + n_delays) + MOST_STOPS
    space = Room(
        doubles(work, WORK, n), doubles(seen, SEEN, head[11]), V[:n],
        V[n + n_parameters + n_forced :].reshape((together, n_blocks)), new(most), new(most), new(most),
        new(most + n_stretches + 1, 2), new(n_times + 1), new(n_parameters + n_forced + n_delays * n_blocks), new(2, n),
    )  # fmt: skip
    U, rows = doubles(inputs, n_runs, n_inputs), doubles(out, n_runs * n_rows, n + n_outputs)
    ends, of_states = doubles(told, n_runs, 3), integers(delayed + 40, 2, n_delays)
    delays, of_these_delays = new(n_delays + 1, OF_DELAY + n_blocks), new(n_blocks, n_delays)
    steps, before = new(room, 2 + 5 * n), new(n + n_states)
    for r in range(first_run, n_runs):
        m = Delayed(head[0], said[1], U[r], said[2], delays, steps, before, said[0], of_these_delays, start, head[1])
        call(head[2], start, space.work[0], U[r], V)
        call(said[0], start, V[:n], U[r], of_these_delays)
        _begin(m, of_states[0], of_states[1], of_these_delays)
        ends[r, 0], ends[r, 1], ends[r, 2] = _run(watcher, given, space, m, rows[r * n_rows : (r + 1) * n_rows])
        if ends[r, 0] == NO_ROOM:
            break


def _run(watcher, g, w, m, rows):
    """Run a model once, from its initial values in w.z; return how it ended, the rows written, the time reached."""
    n, n_stretches, shortest = len(w.z), len(g.bounds), _shortest(m)
    for i in range(n):
        if not abs(w.z[i]) < 1e308:
            return NO_VALUE, 0, g.start
    if shortest < 0.0:
        return NO_DELAY, 0, g.start
    if (g.end - g.start) / shortest > MOST_SHORTEST:
        return SHORT_DELAY, 0, g.start
    # a stretch as long as the delay is one step, rounded or not
    longest = min(shortest * (1.0 + 1e-9), g.numbers[1])
    for k in range(len(m.delays) - 1):
        _aim(m, k, g.start, g.start, g.start, g.apart, w.parts, -1)
    for k in range(n_stretches):
        w.stops[k] = g.numbers[g.begins + k]
    n_stops = _find_stops(w.stops, n_stretches, g.end, m, g.apart, w.these, w.following)
    if g.n_at_start > 0:
        _copy(w.z, rows[0], n)
        _show(g, w, m, 0, rows[0])
    change = _changes(
        g.changes, 0, -1, g.start, w.z, m.inputs, g.behind, g.changes_of, w.changed, g.n_states
    )  # fmt: skip
    row, stop, n_parts, h = g.n_at_start, 0, 0, 0.0  # the first step is found, later ones follow
    if watcher is not None and n_stretches == 0:
        look_up(g.start, w.z, m)
    for k in range(n_stretches):
        m.delays[len(m.delays) - 1, WATCHES] = 1.0 if k >= g.watched else 0.0
        if change < 0:
            return NO_VALUE, row, g.numbers[g.begins + k]
        for i in range(g.n_constants):
            m.inputs[g.n_parameters + i] = g.numbers[g.constants + k * g.n_constants + i]
        t, at_row, ends_at = g.numbers[g.begins + k], g.bounds[k, 0], g.numbers[g.times + g.bounds[k, 1] - 1]
        while t < ends_at:
            while stop < n_stops and w.stops[stop] <= t + g.apart:
                stop += 1
            until = w.stops[stop] if stop < n_stops and w.stops[stop] < ends_at - g.apart else ends_at
            until, n_wanted, n_here, at_row = _rows_until(g, w.wanted, k, at_row, until, ends_at)
            w.parts[n_parts, 0], w.parts[n_parts, 1] = t, m.delays[len(m.delays) - 1, N_STEPS]
            for d in range(len(m.delays) - 1):
                _pass(g, w, m, d, t, until, n_parts)
            n_parts += 1
            most = g.most_steps + int(min((until - t) / longest, 1e7))
            here = rows[row : row + n_wanted]
            status, came, reached, h = drive(
                rates, watcher, m, t, h, w.z, w.wanted[:n_wanted], g.n_states, g.numbers[0], g.atol, longest, most,
                here, w.work, w.marks, keep_step, None,
            )  # fmt: skip
            if watcher is not None and status == CROSSED:
                _copy(here[came - 1], w.z, n)
                look_up(reached, w.z, m)
            if status != DONE:
                is_lost = m.delays[len(m.delays) - 1, LOST] > 0.0 and status in (NO_RATES, STEP_TOO_SMALL)
                return LOST_DELAY if is_lost else status, row + came, reached
            bad = _first_not_finite(here, n)
            if bad < n_wanted:
                return NOT_FINITE, row + bad, w.wanted[bad]
            for i in range(n_here):
                _show(g, w, m, row + i, here[i])
            row += n_here
            _copy(w.work[0], w.z, n)
            t = until
        change = _changes(
            g.changes, change, k, t, w.z, m.inputs, g.behind, g.changes_of, w.changed, g.n_states
        )  # fmt: skip
    return NO_VALUE if change < 0 else DONE, row, g.end


def _rows_until(g, wanted, k, at_row, until, ends_at):
    """Set the times of rows of stretch k up to a stop, from the row `at_row` on, and the stop itself.

    Return the stop (a row that it misses by rounding is the stop), how many times those are, how many of them are
    rows, and the next row.
    """
    count, last = 0, g.bounds[k, 1] - 1
    while at_row <= last and g.numbers[g.times + at_row] <= until + g.apart:
        wanted[count] = g.numbers[g.times + at_row]
        count += 1
        at_row += 1
    n_here = count
    if count > 0 and wanted[count - 1] >= until - g.apart:
        until = wanted[count - 1]
    else:
        wanted[count] = until
        count += 1
    if until == ends_at and g.bounds[k, 2] < g.bounds[k, 1] - g.bounds[k, 0]:  # where no row is
        n_here = count - 1
    return until, count, n_here, at_row


def _show(g, w, m, i, row):
    """Set the outputs of row i, which read what the rates read there."""
    n = len(w.z)
    if g.of_outputs != 0:
        t = g.numbers[g.rows + i]
        rates(t, row[:n], m, w.kept[0])
        _copy(m.inputs, w.read, g.n_parameters)
        for j in range(g.n_forced):
            w.read[g.n_parameters + j] = g.numbers[g.forced + i * g.n_forced + j]
        for j in range((len(m.delays) - 1) * g.n_blocks):
            w.read[g.n_parameters + g.n_forced + j] = m.inputs[m.at + j]
        call(g.of_outputs, t, row[:n], w.read, row[n:])
