# mypy: ignore-errors
"""Runs of systems with switches: where a switch crosses zero its mode flips and the run continues, without Python.

The same happens at a crossing as in `models.running.crossings`, which explains it; root events also fire
(`compiled.root_events`). A run returns early when there is no room for more flips, or when it slides along a switch.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fmepy.compiled.courses import CourseTables, RunArrays, advance, make_changes, prepare, set_outputs
from fmepy.compiled.explicit_loop import begin_stiff, rates_of, watch_of
from fmepy.compiled.kernels import are_finite, call, copy, integers, new
from fmepy.compiled.root_events import (
    CONDITIONAL,
    FIRED,
    NOTHING,
    PACE,
    REFUSED,
    Roots,
    RootsState,
    begin_roots,
    begins_another,
    change,
    look_at_conditions,
    look_at_roots,
    polished,
    read_sides,
    ready_to_fire,
    roots_room,
    settle,
)
from fmepy.compiled.rosenbrock import IS_KNOWN, Stiff, is_on
from fmepy.compiled.status import CROSSED, DONE, FALLBACK, STIFF
from fmepy.types import IntVector, Matrix, Vector

MOST_OF_WHOLE = 50_000
"""Flips after which a run returns, so that the caller can find out whether it slides along a switch."""
MOST_FLIPS = 200_000
"""A run that would exceed so many flips at its current pace counts as sliding along a switch."""
FAR = 1e-4
"""Largest relative change of a state within the resolution of time (`near`): beyond it crossings would be missed."""


class Switches(NamedTuple):
    """The switches of a system, and the record of a run.

    Attributes
    ----------
    along : int
        Address of ``along(t, z, inputs, way, out)``: g of all switches, and their directional derivatives along `way`.
    n_switches, n_moving : int
        Number of g; length of `way`: one entry for time, then the states, then the parameters of the sensitivities.
    modes, scales, offsets : int
        Index among the inputs where each begins.
    began, near : float
        Start of the run; times that differ by less than this part of the elapsed time count as equal.
    watched, read_again : ndarray of int
        Switches that are watched; switches whose modes are read at the start of every stretch but the first.
    are_levels : ndarray of int, shape (n_switches,)
        1 for a floor, whose mode is a whole number.
    are_of_time : ndarray of int, shape (n_switches,)
        1 for a condition without states: the rates after it may behave quite differently.
    ends, dependents : ndarray of int
        For every switch, where its dependents end in `dependents`; the watched switches that depend on it.
    unknown : ndarray, shape (n_switches,)
        1 for a condition without a value (NaN), which is read again at every flip.
    flips : ndarray, shape (most, 3)
        Time of each flip, index of the switch among the watched, rate of change of its g.
    n_flips : ndarray, shape (1,)
    roots : Roots
    """

    along: int
    n_switches: int
    n_moving: int
    modes: int
    scales: int
    offsets: int
    began: float
    near: float
    watched: IntVector
    read_again: IntVector
    are_levels: IntVector
    are_of_time: IntVector
    ends: IntVector
    dependents: IntVector
    unknown: Vector
    flips: Matrix
    n_flips: Vector
    roots: Roots


def with_room(w: Switches, most: int) -> Switches:
    """Return a copy of the switches for one call, with room for `most` flips."""
    return w._replace(unknown=np.zeros(w.n_switches), flips=np.empty((most, 3)), n_flips=np.zeros(1))


class _Evaluation(NamedTuple):
    """Scratch of one evaluation: time, rates of z, direction, g with its rates of change, conditions, rates before.

    Also the shifts of the crossing time with the parameters, modes, values of g at which a mode is kept (`pinned`, NaN:
    none), and the state of the roots.
    """

    at: Vector
    rates: Vector
    way: Vector
    g: Vector
    watched: Vector
    later: Vector
    moved: Vector
    before: Vector
    shifts: Vector
    modes: Vector
    pinned: Vector
    roots: RootsState


def _room(c, w):
    n, n_watched = len(c.atol), len(w.watched) + len(w.roots.directions)
    ev = _Evaluation(
        new(1), new(n), new(w.n_moving), new(2 * w.n_switches), new(n_watched), new(n_watched), new(n), new(n),
        new(w.n_moving), new(w.n_switches), new(w.n_switches), roots_room(c, w.roots),
    )  # fmt: skip
    _forget(ev.pinned)
    return ev


def _forget(pinned):
    for i in range(len(pinned)):
        pinned[i] = math.nan


def run_through(c: CourseTables, runs: RunArrays, w: Switches):
    """Run a model many times, through the crossings of its switches; status FALLBACK if this loop cannot finish."""
    plan, ev = integers(c.plan, 3), _room(c, w)
    stiff = Stiff(plan[0], c.plan, new(plan[1]))
    for r in range(len(runs.inputs)):
        begin_stiff(stiff, c, plan)
        runs.ended[r, 0] = _run_through(c, runs, w, ev, runs.inputs[r], runs.out[r], stiff)


def _run_through(c, runs, w, ev, inputs, rows, stiff):
    """Run a model once; return its status."""
    z, row, h = runs.values[: len(c.atol)], c.n_at_start, 0.0
    prepare(c, runs, inputs)
    call(c.values, c.start, runs.work[0], inputs, runs.values)
    if row > 0:
        copy(z, rows[0])
    change = make_changes(c, runs, inputs, 0, -1, c.start)
    w.n_flips[0] = 0.0
    begin_roots(ev.roots)
    for k in range(len(c.bounds)):
        if change < 0 or not are_finite(z):
            return FALLBACK
        _begin_stretch(c, w, ev, inputs, k)
        status, h = _stretch_through(c, runs, w, ev, inputs, rows[row:], stiff, k, h)
        if status != DONE:
            return STIFF if status == STIFF else FALLBACK
        row += c.bounds[k, 2]
        before, change = change, make_changes(c, runs, inputs, change, k, c.times[c.bounds[k, 1] - 1])
        if change != before or not is_on(stiff):  # choose the first step of the next stretch anew
            h = 0.0
    if change < 0:
        return FALLBACK
    for i in range(len(rows)):
        set_outputs(c, runs, inputs, None, i, rows[i])
    return DONE


def _begin_stretch(c, w, ev, inputs, k):
    """Set the inputs that are constant along stretch k; watched modes carry over from the stretch before."""
    modes = inputs[w.modes : w.modes + w.n_switches]
    copy(modes, ev.modes)
    copy(c.constants[k], inputs[c.n_parameters :])
    if k > 0:
        for m in range(len(w.watched)):
            modes[w.watched[m]] = ev.modes[w.watched[m]]


def _stretch_through(c, runs, w, ev, inputs, rows, stiff, k, h):
    """Integrate z through a stretch; return its status and the next step."""
    z, t, row, times = runs.values[: len(c.atol)], c.begins[k], 0, c.times[c.bounds[k, 0] : c.bounds[k, 1]]
    n_roots, ev.at[0] = len(w.roots.directions), t
    read = w.watched if k == 0 else w.read_again
    _read(w, ev, read, 0, len(read), c, t, z, inputs)
    if not _set_offsets(c, w, ev, t, z, inputs):
        return FALLBACK, h
    while True:
        status, came, reached, h = advance(
            rates_of, watch_of, (c.rates, c.watch, inputs), c, runs, t, h, c.max_step, times[row:], rows[row:], None,
            stiff,
        )  # fmt: skip
        row += came
        if status != CROSSED and (status != DONE or n_roots == 0):
            return status, h
        copy(rows[row - 1, : len(z)], z)
        is_early, crossed, fired = status == CROSSED and reached != times[-1], -1, NOTHING
        if not is_early and n_roots == 0:
            return DONE, h
        if is_early:
            row -= 1
            crossed = _crossed(c, w, ev, reached, z, inputs)
        if n_roots > 0:
            reached, row, fired = _through_roots(
                c, w, ev, reached, z, inputs, times, rows, row, crossed - len(w.watched), c.begins[k]
            )
        if fired == REFUSED:
            return FALLBACK, h
        is_flip = is_early and fired == NOTHING and crossed < len(w.watched)
        is_of_time = is_flip and w.are_of_time[w.watched[crossed]] == 1
        if is_of_time:
            row = _rows_before(w, reached, z, times, rows, row)
        if is_flip and (w.n_flips[0] == len(w.flips) or not _flip(c, w, ev, crossed, reached, z, inputs)):
            return FALLBACK, h
        if fired == FIRED or is_of_time:
            h = 0.0  # choose the first step anew
        if not is_early or row == len(times):
            return DONE, h
        if not _set_offsets(c, w, ev, reached, z, inputs) or (is_flip and _comes_back(c, w, ev, reached, z, inputs)):
            return FALLBACK, h
        stiff.room[IS_KNOWN] = -1.0
        t = reached


def _through_roots(c, w, ev, t, z, inputs, times, rows, row, root, begin):
    """Fire the roots that cross at t; return the time of the crossing, the next row, and whether any fired.

    root : index of the root known to have crossed; negative if none is known
    """
    r, s = w.roots, ev.roots
    if root >= 0:
        least, most = times[row - 1] if row > 0 else begin, times[min(row, len(times) - 1)]
        t = polished(c, r, s, root, t, z, inputs, _near(w, t), least, most)
    near, end, row = _near(w, t), c.times[len(c.times) - 1], _rows_before(w, t, z, times, rows, row)
    fired = ready_to_fire(c, r, s, t, z, inputs, near, near / w.near, end, root)
    if fired == FIRED:
        look_at_conditions(r, s, t, z, inputs, s.true_before)
    for at in range(len(r.order)):
        j = r.order[at]
        if fired == FIRED and s.fires[j] > 0.0:
            ev.at[0] = t
            call(w.along, ev.at, z, inputs, ev.way, ev.g)
            copy(ev.g[: w.n_switches], ev.pinned)  # switches that the changes do not move are left to cross later
            if not change(c, r, s, j, t, z, inputs):
                fired = REFUSED
            _read(w, ev, w.watched, 0, len(w.watched), c, t, z, inputs)
            _forget(ev.pinned)
            settle(c, s, j, t, z, inputs)
            look_at_conditions(r, s, t, z, inputs, s.true_after)
            if r.holding != 0 and begins_another(s, j):
                fired = REFUSED
            i = row - 1
            if r.kinds[j] == CONDITIONAL and s.true_before[len(s.sides) + j] < 0.5:  # not strict: already true
                while i >= 0 and times[i] >= t - near:
                    copy(z, rows[i])
                    i -= 1
    return t, row, fired


def _rows_before(w, t, z, times, rows, row):
    """Write the state before an event at t to all rows at t; return the next row."""
    while row < len(times) and times[row] <= t + _near(w, t):
        copy(z, rows[row])
        row += 1
    return row


def _near(w, t):
    """Return the resolution of time at t: closer times count as equal."""
    return w.near * max(t - w.began, 1e-4 * abs(t))


def run_stretch(c: CourseTables, runs: RunArrays, w: Switches):
    """Run once along the single stretch of a course, from the z in `values`, through its crossings.

    The first step is read from `ended[0, 1]`; status and next step are written to `ended[0, :2]`.
    """
    plan, ended = integers(c.plan, 3), runs.ended[0]
    stiff = Stiff(plan[0], c.plan, new(plan[1]))
    begin_stiff(stiff, c, plan)
    prepare(c, runs, runs.inputs[0])
    w.n_flips[0] = 0.0
    ended[0], ended[1] = _stretch_through(c, runs, w, _room(c, w), runs.inputs[0], runs.out[0], stiff, 0, ended[1])


def _look(c, w, ev, t, z, inputs):
    """Evaluate the rates, and g with its rates of change."""
    call(c.rates, t, z, inputs, ev.rates)
    ev.at[0], ev.way[0] = t, 1.0
    for i in range(1, w.n_moving):
        ev.way[i] = ev.rates[i - 1] if i <= c.n_states else 0.0
    if w.n_switches > 0:
        call(w.along, ev.at, z, inputs, ev.way, ev.g)


def _crossed(c, w, ev, t, z, inputs):
    """Return the index of the watched switch (or, after the switches, root) that has crossed at t.

    It is, of those that have crossed, the one nearest in time to its crossing: others may touch zero nearby.
    """
    _look(c, w, ev, t, z, inputs)
    if len(w.roots.directions) > 0:
        look_at_roots(c, w.roots, ev.roots, t, z, inputs)
    call(c.watch, t, z, inputs, ev.watched)
    k, least, is_past = 0, math.inf, False
    for i in range(len(ev.watched)):
        side = _side(w, ev, i, inputs)
        speed = ev.g[w.n_switches + w.watched[i]] if i < len(w.watched) else ev.roots.speeds[i - len(w.watched)]
        away = abs(ev.watched[i]) / (abs(speed) + 1e-300)
        has_crossed = side * ev.watched[i] <= 0.0
        if (has_crossed and not is_past) or (has_crossed == is_past and away < least):
            k, least, is_past = i, away, has_crossed
    return k


def _side(w, ev, i, inputs):
    """Return the side of zero, 1 or -1, of the i-th watched switch or root."""
    if i >= len(w.watched):
        return ev.roots.sides[i - len(w.watched)]
    return 1.0 if w.are_levels[w.watched[i]] == 1 or inputs[w.modes + w.watched[i]] == 1.0 else -1.0


def _flip(c, w, ev, k, t, z, inputs):
    """Flip the mode of the k-th watched switch, apply the jump of the sensitivities, and record the flip.

    To be called after `_crossed`, which evaluates g. Returns False if this loop cannot continue.
    """
    n, n_names = c.n_states, w.n_moving - 1 - c.n_states
    if not are_finite(z[:n]):
        return False
    i, speed = w.watched[k], ev.g[w.n_switches + w.watched[k]]
    copy(ev.rates, ev.before)
    mode = inputs[w.modes + i]
    n_flips = int(w.n_flips[0])
    w.flips[n_flips, 0], w.flips[n_flips, 1], w.flips[n_flips, 2] = t, k, speed
    n_flips += 1
    w.n_flips[0] = n_flips
    if n_flips % PACE == 0:
        lasted = max(t - w.flips[n_flips - PACE, 0], 1e-300)
        if n_flips + PACE * (c.times[len(c.times) - 1] - t) / lasted > MOST_FLIPS:
            return False
    _mark_alike(w, ev, i, speed)
    _set_shifts(c, w, ev, i, speed, z, inputs)
    inputs[w.modes + i] = 1.0 - mode if w.are_levels[i] == 0 else mode + 1.0 if speed > 0.0 else mode - 1.0
    for m in range(len(w.watched)):
        if ev.later[m] != 0.0:
            inputs[w.modes + w.watched[m]] = 1.0 if ev.later[m] > 0.0 else 0.0
    _read(w, ev, w.dependents, w.ends[i - 1] if i > 0 else 0, w.ends[i], c, t, z, inputs)
    for m in range(len(w.watched)):
        if ev.later[m] != 0.0:
            j = w.watched[m]
            _read(w, ev, w.dependents, w.ends[j - 1] if j > 0 else 0, w.ends[j], c, t, z, inputs)
        elif w.unknown[w.watched[m]] > 0.0:
            _read(w, ev, w.watched, m, m + 1, c, t, z, inputs)
    if n_names > 0 and speed != 0.0:
        call(c.rates, t, z, inputs, ev.rates)
        for j in range(n_names):
            for q in range(n):
                z[n * (1 + j) + q] -= ev.shifts[j] * (ev.before[q] - ev.rates[q])
    return True


def _mark_alike(w, ev, i, speed):
    """Mark, by its direction 1 or -1, each switch that may cross together with switch i, as 0 > x does with x > 0."""
    for m in range(len(w.watched)):
        j, ev.later[m] = w.watched[m], 0.0
        is_alike = j != i and w.are_levels[i] == w.are_levels[j] == 0 and abs(ev.g[j]) == abs(ev.g[i])
        rises = ev.g[w.n_switches + j]
        if is_alike and abs(rises) == abs(speed) and speed != 0.0:
            for at in range(w.ends[i - 1] if i > 0 else 0, w.ends[i]):
                is_alike = is_alike and w.dependents[at] != j
            if is_alike:
                ev.later[m] = 1.0 if rises > 0.0 else -1.0


def _set_shifts(c, w, ev, i, speed, z, inputs):
    """Set the derivatives of the crossing time of switch i by the parameters.

    A switch marked by `_mark_alike` whose crossing time moves differently is unmarked: it crosses separately.
    """
    n = c.n_states
    for j in range(w.n_moving - 1 - n):
        for q in range(w.n_moving):
            ev.way[q] = z[n * (1 + j) + q - 1] if 0 < q <= n else 0.0
        ev.way[1 + n + j] = inputs[w.scales + j]
        call(w.along, ev.at, z, inputs, ev.way, ev.g)
        slope = ev.g[w.n_switches + i]
        ev.shifts[j] = slope / speed
        for m in range(len(w.watched)):
            if abs(ev.g[w.n_switches + w.watched[m]]) != abs(slope):
                ev.later[m] = 0.0


def _read(w, ev, switches, begin, end, c, t, z, inputs):
    """Set the modes of some switches from g, inner ones first; on its border (0, or a whole number) from its rate."""
    if not _read_values(w, ev, switches, begin, end, z, inputs):
        return
    is_old = True
    for at in range(begin, end):
        if is_old:
            _look(c, w, ev, t, z, inputs)
            is_old = False
        j = switches[at]
        g, rises, is_level = ev.g[j], ev.g[w.n_switches + j], w.are_levels[j] == 1
        mode = _mode(w, j, g)
        if not abs(g) < math.inf or g != (mode if is_level else 0.0) or g == ev.pinned[j]:
            continue
        mode = (mode - 1.0 if rises < 0.0 else mode) if is_level else 1.0 if rises > 0.0 else 0.0
        if mode != inputs[w.modes + j]:  # the rates of the others depend on it
            inputs[w.modes + j] = mode
            _read_values(w, ev, w.dependents, w.ends[j - 1] if j > 0 else 0, w.ends[j], z, inputs)
            is_old = True


def _read_values(w, ev, switches, begin, end, z, inputs):
    """Set modes from g, taking one on its border as staying there; tell whether any is on its border."""
    is_old, is_border = True, False
    for at in range(begin, end):
        if is_old:
            call(w.along, ev.at, z, inputs, ev.way, ev.g)
            is_old = False
        j = switches[at]
        g, before = ev.g[j], inputs[w.modes + j]
        if g == ev.pinned[j]:
            continue
        w.unknown[j] = 0.0 if abs(g) < math.inf else 1.0
        if w.unknown[j] > 0.0:
            inputs[w.modes + j] = 1.0 if g > 0.0 else 0.0
        else:
            inputs[w.modes + j] = _mode(w, j, g)
            is_border = is_border or g == (inputs[w.modes + j] if w.are_levels[j] == 1 else 0.0)
        is_old = inputs[w.modes + j] != before and w.ends[j] > (w.ends[j - 1] if j > 0 else 0)
    return is_border


def _mode(w, j, g):
    return np.floor(g) if w.are_levels[j] == 1 else 1.0 if g > 0.0 else 0.0


def _set_offsets(c, w, ev, t, z, inputs):
    """Shift watched conditions that are at zero slightly off it, towards the side of their modes.

    Returns False if the side of a root cannot be determined here.
    """
    later, behind = _near(w, t), w.offsets + len(w.watched)
    if len(w.roots.directions) > 0 and not read_sides(c, w.roots, ev.roots, t, z, inputs, later, behind):
        return False
    if len(w.watched) == 0:
        return True
    _look(c, w, ev, t, z, inputs)
    for i in range(len(z)):
        ev.moved[i] = z[i] + later * ev.rates[i] if i < c.n_states else z[i]
    call(c.watch, t, z, inputs, ev.watched)
    call(c.watch, t + later, ev.moved, inputs, ev.later)
    for i in range(len(w.watched)):
        hair, change = 2.0 * abs(ev.later[i] - ev.watched[i]), later * abs(ev.g[w.n_switches + w.watched[i]])
        if not hair < math.inf or change < hair:  # a square root has an infinite slope at 0
            hair = change
        if not hair < math.inf:
            hair = 0.0
        hair = max(hair, 1e-14)
        value = ev.watched[i] + inputs[w.offsets + i]
        side = _side(w, ev, i, inputs)
        inputs[w.offsets + i] = value - side * hair if side * value < hair else 0.0
    return True


def _comes_back(c, w, ev, t, z, inputs):
    """Tell whether the rates beyond the switch just crossed lead back, and fast: the run slides along it.

    To be called after `_set_offsets`, which evaluates g and the rates.
    """
    last, later = w.flips[int(w.n_flips[0]) - 1], _near(w, t)
    j = w.watched[int(last[1])]
    side = 1.0 if inputs[w.modes + j] == 1.0 else -1.0
    if w.are_levels[j] == 1 or not (side * last[2] > 0.0 and side * ev.g[w.n_switches + j] < 0.0):
        return False
    most = 0.0
    for i in range(c.n_states):
        most = max(most, later * abs(ev.rates[i]) - FAR * abs(z[i]))
    return most > 0.0
