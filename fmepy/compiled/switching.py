# mypy: ignore-errors
"""Runs of systems with switches: where one crosses, its mode flips, and the run goes on, without Python.

What happens at a crossing is what `models.running.crossings` does and explains; root events fire on the way
(`compiled.root_events`). A run comes back after as many flips as there is room for, and where it slides along a switch.
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
    RootsSeen,
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
from fmepy.compiled.status import ALONE, CROSSED, DONE, STIFF
from fmepy.types import IntVector, Matrix, Vector

MOST_OF_WHOLE = 50_000
"""Flips after which a run comes back, for somebody to see whether it slides along a switch."""
MOST_FLIPS = 200_000
"""How many flips a run may have at the pace of its last: of more it slides along a switch."""
FAR = 1e-4
"""Part of a state by which none may move within two times that are one: a switch may cross there unseen."""


class Switches(NamedTuple):
    """The switches of a system, and what is noted of a run.

    Attributes
    ----------
    along : int
        Address of ``along(t, z, inputs, way, out)``: g of all switches, and their derivatives along a way.
    n_switches, n_moving : int
        How many g there are; how many numbers a way has: of the time, the states, and the parameters of z.
    modes, scales, offsets : int
        Where in the inputs they begin.
    began, near : float
        The start of the run; the part of it until now within which two times are one.
    watched, read_again : ndarray of int
        Which switches are; whose modes are read where a stretch begins that is not the first.
    are_levels : ndarray of int, shape (n_switches,)
        1 of a floor.
    are_of_time : ndarray of int, shape (n_switches,)
        1 of what no state stands in: the rates behind it may be of another kind.
    ends, dependents : ndarray of int
        Of every switch, the end of those that hang on it in `dependents`; those that are watched.
    unknown : ndarray, shape (n_switches,)
        1 of a condition without a value, which is read again at every flip.
    flips : ndarray, shape (most, 3)
        Times, which of the watched, and the speed of its g.
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
    """Return switches for one call, with room for so many flips."""
    return w._replace(unknown=np.zeros(w.n_switches), flips=np.empty((most, 3)), n_flips=np.zeros(1))


class _Seen(NamedTuple):
    """What is seen at a time: the rates of z, a way, g and its speeds, the conditions, room, the rates before it.

    And by what a crossing moves with the parameters, modes, values of g at which these stay as they are (NaN: of none),
    and what is seen of the roots.
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
    known: Vector
    roots: RootsSeen


def _room(c, w):
    n, n_watched = len(c.atol), len(w.watched) + len(w.roots.directions)
    seen = _Seen(
        new(1), new(n), new(w.n_moving), new(2 * w.n_switches), new(n_watched), new(n_watched), new(n), new(n),
        new(w.n_moving), new(w.n_switches), new(w.n_switches), roots_room(c, w.roots),
    )  # fmt: skip
    _forget(seen.known)
    return seen


def _forget(known):
    for i in range(len(known)):
        known[i] = math.nan


def run_through(c: CourseTables, runs: RunArrays, w: Switches):
    """Run a model many times, through the crossings of its switches; ALONE: it is not here to do."""
    plan, seen = integers(c.plan, 3), _room(c, w)
    stiff = Stiff(plan[0], c.plan, new(plan[1]))
    for r in range(len(runs.inputs)):
        begin_stiff(stiff, c, plan)
        runs.ended[r, 0] = _run_through(c, runs, w, seen, runs.inputs[r], runs.out[r], stiff)


def _run_through(c, runs, w, seen, inputs, rows, stiff):
    """Return how a run ended."""
    z, row, h = runs.values[: len(c.atol)], c.n_at_start, 0.0
    prepare(c, runs, inputs)
    call(c.values, c.start, runs.work[0], inputs, runs.values)
    if row > 0:
        copy(z, rows[0])
    change = make_changes(c, runs, inputs, 0, -1, c.start)
    w.n_flips[0] = 0.0
    begin_roots(seen.roots)
    for k in range(len(c.bounds)):
        if change < 0 or not are_finite(z):
            return ALONE
        _begin_stretch(c, w, seen, inputs, k)
        status, h = _stretch_through(c, runs, w, seen, inputs, rows[row:], stiff, k, h)
        if status != DONE:
            return STIFF if status == STIFF else ALONE
        row += c.bounds[k, 2]
        before, change = change, make_changes(c, runs, inputs, change, k, c.times[c.bounds[k, 1] - 1])
        if change != before or not is_on(stiff):  # the first step of a stretch is found anew
            h = 0.0
    if change < 0:
        return ALONE
    for i in range(len(rows)):
        set_outputs(c, runs, inputs, None, i, rows[i])
    return DONE


def _begin_stretch(c, w, seen, inputs, k):
    """Set the inputs that are constant along stretch k, but for the modes that go on."""
    modes = inputs[w.modes : w.modes + w.n_switches]
    copy(modes, seen.modes)
    copy(c.constants[k], inputs[c.n_parameters :])
    if k > 0:
        for m in range(len(w.watched)):
            modes[w.watched[m]] = seen.modes[w.watched[m]]


def _stretch_through(c, runs, w, seen, inputs, rows, stiff, k, h):
    """Carry z through a stretch; return how it ended, and the next step."""
    z, t, row, times = runs.values[: len(c.atol)], c.begins[k], 0, c.times[c.bounds[k, 0] : c.bounds[k, 1]]
    n_roots, seen.at[0] = len(w.roots.directions), t
    read = w.watched if k == 0 else w.read_again
    _read(w, seen, read, 0, len(read), c, t, z, inputs)
    if not _set_offsets(c, w, seen, t, z, inputs):
        return ALONE, h
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
            crossed = _crossed(c, w, seen, reached, z, inputs)
        if n_roots > 0:
            reached, row, fired = _through_roots(
                c, w, seen, reached, z, inputs, times, rows, row, crossed - len(w.watched), c.begins[k]
            )
        if fired == REFUSED:
            return ALONE, h
        is_flip = is_early and fired == NOTHING and crossed < len(w.watched)
        is_of_time = is_flip and w.are_of_time[w.watched[crossed]] == 1
        if is_of_time:
            row = _rows_before(w, reached, z, times, rows, row)
        if is_flip and (w.n_flips[0] == len(w.flips) or not _flip(c, w, seen, crossed, reached, z, inputs)):
            return ALONE, h
        if fired == FIRED or is_of_time:
            h = 0.0  # the first step is found anew
        if not is_early or row == len(times):
            return DONE, h
        if not _set_offsets(c, w, seen, reached, z, inputs) or (
            is_flip and _comes_back(c, w, seen, reached, z, inputs)
        ):
            return ALONE, h
        stiff.room[IS_KNOWN] = -1.0
        t = reached


def _through_roots(c, w, seen, t, z, inputs, times, rows, row, root, begin):
    """Fire the roots that cross at t; return the time of that, the next row, and whether any fired.

    root : that which has crossed; below zero where none is known to have
    """
    r, s = w.roots, seen.roots
    if root >= 0:
        least, most = times[row - 1] if row > 0 else begin, times[min(row, len(times) - 1)]
        t = polished(c, r, s, root, t, z, inputs, _near(w, t), least, most)
    near, end, row = _near(w, t), c.times[len(c.times) - 1], _rows_before(w, t, z, times, rows, row)
    fired = ready_to_fire(c, r, s, t, z, inputs, near, near / w.near, end, root)
    if fired == FIRED:
        look_at_conditions(r, s, t, z, inputs, s.held)
    for at in range(len(r.order)):
        j = r.order[at]
        if fired == FIRED and s.fires[j] > 0.0:
            seen.at[0] = t
            call(w.along, seen.at, z, inputs, seen.way, seen.g)
            copy(seen.g[: w.n_switches], seen.known)  # what the changes do not move crosses by itself
            if not change(c, r, s, j, t, z, inputs):
                fired = REFUSED
            _read(w, seen, w.watched, 0, len(w.watched), c, t, z, inputs)
            _forget(seen.known)
            settle(c, s, j, t, z, inputs)
            look_at_conditions(r, s, t, z, inputs, s.holds)
            if r.holding != 0 and begins_another(s, j):
                fired = REFUSED
            i = row - 1
            if r.kinds[j] == CONDITIONAL and s.held[len(s.sides) + j] < 0.5:  # one that is not strict is seen at once
                while i >= 0 and times[i] >= t - near:
                    copy(z, rows[i])
                    i -= 1
    return t, row, fired


def _rows_before(w, t, z, times, rows, row):
    """Let rows at t show the state before what happens there; return the next one."""
    while row < len(times) and times[row] <= t + _near(w, t):
        copy(z, rows[row])
        row += 1
    return row


def _near(w, t):
    """Return the time within which two times are one."""
    return w.near * max(t - w.began, 1e-4 * abs(t))


def run_stretch(c: CourseTables, runs: RunArrays, w: Switches):
    """Run once along the one stretch of a course, from a given z, through its crossings.

    How it ended and the next step stand in `ended`, where the first step is read.
    """
    plan, ended = integers(c.plan, 3), runs.ended[0]
    stiff = Stiff(plan[0], c.plan, new(plan[1]))
    begin_stiff(stiff, c, plan)
    prepare(c, runs, runs.inputs[0])
    w.n_flips[0] = 0.0
    ended[0], ended[1] = _stretch_through(c, runs, w, _room(c, w), runs.inputs[0], runs.out[0], stiff, 0, ended[1])


def _look(c, w, seen, t, z, inputs):
    """Set the rates, g and its speeds."""
    call(c.rates, t, z, inputs, seen.rates)
    seen.at[0], seen.way[0] = t, 1.0
    for i in range(1, w.n_moving):
        seen.way[i] = seen.rates[i - 1] if i <= c.n_states else 0.0
    if w.n_switches > 0:
        call(w.along, seen.at, z, inputs, seen.way, seen.g)


def _crossed(c, w, seen, t, z, inputs):
    """Return which of the watched has crossed at t; behind switches stand roots.

    That is the one nearest to its crossing, in time, of those that have crossed: others may touch zero nearby.
    """
    _look(c, w, seen, t, z, inputs)
    if len(w.roots.directions) > 0:
        look_at_roots(c, w.roots, seen.roots, t, z, inputs)
    call(c.watch, t, z, inputs, seen.watched)
    k, least, is_past = 0, math.inf, False
    for i in range(len(seen.watched)):
        side = _side(w, seen, i, inputs)
        speed = seen.g[w.n_switches + w.watched[i]] if i < len(w.watched) else seen.roots.speeds[i - len(w.watched)]
        away = abs(seen.watched[i]) / (abs(speed) + 1e-300)
        has_crossed = side * seen.watched[i] <= 0.0
        if (has_crossed and not is_past) or (has_crossed == is_past and away < least):
            k, least, is_past = i, away, has_crossed
    return k


def _side(w, seen, i, inputs):
    """Return on which side of zero the i-th of the watched is, 1 or -1."""
    if i >= len(w.watched):
        return seen.roots.sides[i - len(w.watched)]
    return 1.0 if w.are_levels[w.watched[i]] == 1 or inputs[w.modes + w.watched[i]] == 1.0 else -1.0


def _flip(c, w, seen, k, t, z, inputs):
    """Flip the mode of the k-th watched switch, give the sensitivities their jump, and note it.

    To be called behind `_crossed`, which has looked. False: it is not here to do.
    """
    n, n_names = c.n_states, w.n_moving - 1 - c.n_states
    if not are_finite(z[:n]):
        return False
    i, speed = w.watched[k], seen.g[w.n_switches + w.watched[k]]
    copy(seen.rates, seen.before)
    mode = inputs[w.modes + i]
    n_flips = int(w.n_flips[0])
    w.flips[n_flips, 0], w.flips[n_flips, 1], w.flips[n_flips, 2] = t, k, speed
    n_flips += 1
    w.n_flips[0] = n_flips
    if n_flips % PACE == 0:
        lasted = max(t - w.flips[n_flips - PACE, 0], 1e-300)
        if n_flips + PACE * (c.times[len(c.times) - 1] - t) / lasted > MOST_FLIPS:
            return False
    _mark_alike(w, seen, i, speed)
    _set_shifts(c, w, seen, i, speed, z, inputs)
    inputs[w.modes + i] = 1.0 - mode if w.are_levels[i] == 0 else mode + 1.0 if speed > 0.0 else mode - 1.0
    for m in range(len(w.watched)):
        if seen.later[m] != 0.0:
            inputs[w.modes + w.watched[m]] = 1.0 if seen.later[m] > 0.0 else 0.0
    _read(w, seen, w.dependents, w.ends[i - 1] if i > 0 else 0, w.ends[i], c, t, z, inputs)
    for m in range(len(w.watched)):
        if seen.later[m] != 0.0:
            j = w.watched[m]
            _read(w, seen, w.dependents, w.ends[j - 1] if j > 0 else 0, w.ends[j], c, t, z, inputs)
        elif w.unknown[w.watched[m]] > 0.0:
            _read(w, seen, w.watched, m, m + 1, c, t, z, inputs)
    if n_names > 0 and speed != 0.0:
        call(c.rates, t, z, inputs, seen.rates)
        for j in range(n_names):
            for q in range(n):
                z[n * (1 + j) + q] -= seen.shifts[j] * (seen.before[q] - seen.rates[q])
    return True


def _mark_alike(w, seen, i, speed):
    """Mark by its way, 1 or -1, what may cross as one with switch i, as x > 0 and 0 > x do."""
    for m in range(len(w.watched)):
        j, seen.later[m] = w.watched[m], 0.0
        is_alike = j != i and w.are_levels[i] == w.are_levels[j] == 0 and abs(seen.g[j]) == abs(seen.g[i])
        rises = seen.g[w.n_switches + j]
        if is_alike and abs(rises) == abs(speed) and speed != 0.0:
            for at in range(w.ends[i - 1] if i > 0 else 0, w.ends[i]):
                is_alike = is_alike and w.dependents[at] != j
            if is_alike:
                seen.later[m] = 1.0 if rises > 0.0 else -1.0


def _set_shifts(c, w, seen, i, speed, z, inputs):
    """Set what the time of the crossing of switch i moves by with the parameters.

    What moves by something else crosses by itself, and is marked no longer: between the two are rates of no time.
    """
    n = c.n_states
    for j in range(w.n_moving - 1 - n):
        for q in range(w.n_moving):
            seen.way[q] = z[n * (1 + j) + q - 1] if 0 < q <= n else 0.0
        seen.way[1 + n + j] = inputs[w.scales + j]
        call(w.along, seen.at, z, inputs, seen.way, seen.g)
        slope = seen.g[w.n_switches + i]
        seen.shifts[j] = slope / speed
        for m in range(len(w.watched)):
            if abs(seen.g[w.n_switches + w.watched[m]]) != abs(slope):
                seen.later[m] = 0.0


def _read(w, seen, switches, begin, end, c, t, z, inputs):
    """Set the modes of some switches from their g, inner ones first; at zero (or a whole number) from where it goes."""
    if not _read_values(w, seen, switches, begin, end, z, inputs):
        return
    is_old = True
    for at in range(begin, end):
        if is_old:
            _look(c, w, seen, t, z, inputs)
            is_old = False
        j = switches[at]
        g, rises, is_level = seen.g[j], seen.g[w.n_switches + j], w.are_levels[j] == 1
        mode = _mode(w, j, g)
        if not abs(g) < math.inf or g != (mode if is_level else 0.0) or g == seen.known[j]:
            continue
        mode = (mode - 1.0 if rises < 0.0 else mode) if is_level else 1.0 if rises > 0.0 else 0.0
        if mode != inputs[w.modes + j]:  # what hangs on it decides where others are going
            inputs[w.modes + j] = mode
            _read_values(w, seen, w.dependents, w.ends[j - 1] if j > 0 else 0, w.ends[j], z, inputs)
            is_old = True


def _read_values(w, seen, switches, begin, end, z, inputs):
    """Set modes from their g, as if what stands on its border stayed there; tell whether any does."""
    is_old, is_border = True, False
    for at in range(begin, end):
        if is_old:
            call(w.along, seen.at, z, inputs, seen.way, seen.g)
            is_old = False
        j = switches[at]
        g, before = seen.g[j], inputs[w.modes + j]
        if g == seen.known[j]:
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


def _set_offsets(c, w, seen, t, z, inputs):
    """Shift what is watched a hair off zero where the run stands on one, towards the side of its mode.

    False: where a root is, is not known here.
    """
    later, behind = _near(w, t), w.offsets + len(w.watched)
    if len(w.roots.directions) > 0 and not read_sides(c, w.roots, seen.roots, t, z, inputs, later, behind):
        return False
    if len(w.watched) == 0:
        return True
    _look(c, w, seen, t, z, inputs)
    for i in range(len(z)):
        seen.moved[i] = z[i] + later * seen.rates[i] if i < c.n_states else z[i]
    call(c.watch, t, z, inputs, seen.watched)
    call(c.watch, t + later, seen.moved, inputs, seen.later)
    for i in range(len(w.watched)):
        hair, change = 2.0 * abs(seen.later[i] - seen.watched[i]), later * abs(seen.g[w.n_switches + w.watched[i]])
        if not hair < math.inf or change < hair:  # a root begins with an infinite slope
            hair = change
        if not hair < math.inf:
            hair = 0.0
        hair = max(hair, 1e-14)
        value = seen.watched[i] + inputs[w.offsets + i]
        side = _side(w, seen, i, inputs)
        inputs[w.offsets + i] = value - side * hair if side * value < hair else 0.0
    return True


def _comes_back(c, w, seen, t, z, inputs):
    """Tell whether the rates behind the switch that a run has crossed lead back, and far at once: it slides along it.

    To be called behind `_set_offsets`, which has looked.
    """
    last, later = w.flips[int(w.n_flips[0]) - 1], _near(w, t)
    j = w.watched[int(last[1])]
    side = 1.0 if inputs[w.modes + j] == 1.0 else -1.0
    if w.are_levels[j] == 1 or not (side * last[2] > 0.0 and side * seen.g[w.n_switches + j] < 0.0):
        return False
    most = 0.0
    for i in range(c.n_states):
        most = max(most, later * abs(seen.rates[i]) - FAR * abs(z[i]))
    return most > 0.0
