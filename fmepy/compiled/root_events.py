# mypy: ignore-errors
"""Root events along whole runs: where a root crosses zero, states change, and the run goes on, without Python.

What happens at a hit is what `models.running.crossings` does and explains. What is not simple is not done here: a root
that touches zero or stands on it, hits at ever shorter distances, one that ends a run, conditions (`when`) that begin
or cross together with others.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from fmepy.compiled.courses import make_change
from fmepy.compiled.kernels import call, new
from fmepy.types import IntMatrix, IntVector, Matrix, Vector

MOST_HITS, PACE = 100_000, 1000
"""Hits in one run after which it counts as one that does not end; how many their pace is taken from."""
MANY, MANY_WITHIN = 20, 1e-6
"""So many crossings of one switch or root within such a part of the run until now are enough."""
ENDLESS = 1e-8
"""Part of the run until now below which hits at ever shorter distances have no end (a ball that comes to rest)."""
STILL = 1e-12
"""A root whose speed is less than this part of its terms only touches zero."""
SLOW, TURN = 1e3, 1e-8
"""A root that is so many times slower than it has been only touches zero if its speed, such a part of the run until now
later, has another sign and is so many times as large."""
NOTHING, FIRED, REFUSED = 0, 1, -1
PLAIN, CONDITIONAL, TERMINAL = range(3)


class Roots(NamedTuple):
    """The root events of a system.

    Attributes
    ----------
    slopes : int
        Address of ``slopes(t, z, inputs, nothing, out)``: of every root g, g_t, g_y and scaled g_p.
    changes : ndarray of int
        Of every root the address of the same of the values of its changes.
    ends : ndarray of int
        Of every root, the end of its changes in `made`.
    made : ndarray of int, shape (n_changes, 3)
        State, how it changes, order.
    directions, order : ndarray of int
        Of every root; the roots as they fire at one time.
    holding : int
        Address of ``holding(t, z, inputs, nothing, out)``: 1 of a root whose condition holds, and then 1 of one that is
        strict; 0: no root says a condition.
    kinds : ndarray of int
        Of every root `PLAIN`, `CONDITIONAL` or `TERMINAL`.
    """

    slopes: int
    changes: IntVector
    ends: IntVector
    made: IntMatrix
    directions: IntVector
    order: IntVector
    holding: int
    kinds: IntVector


class RootsSeen(NamedTuple):
    """What is seen of the roots at a time, and what a run remembers of them.

    Attributes
    ----------
    at, rates : ndarray
        The time, and the rates of all z there.
    table, speeds, sizes : ndarray
        What `slopes` returns; the speeds of the roots, and the sizes of their terms.
    sides, crossed_at, fastest, fires : ndarray, shape (n_roots,)
        On which side of zero every root is; how far off zero it crossed; its largest speed; whether it is to fire.
    values, moved, shifts : ndarray
        Of changes what `changes` return; values and slopes along the parameters; derivatives of the times of hits.
    times, count : ndarray
        Of the last `MANY` hits and the one before the last `PACE`; how many there were.
    z_later, rates_later, table_later : ndarray
        What is seen right behind a hit.
    held, holds : ndarray, shape (2 n_roots,)
        What `holding` returns before changes and behind them.
    """

    at: Vector
    rates: Vector
    table: Matrix
    speeds: Vector
    sizes: Vector
    sides: Vector
    crossed_at: Vector
    fastest: Vector
    fires: Vector
    values: Matrix
    moved: Matrix
    shifts: Matrix
    times: Vector
    count: Vector
    z_later: Vector
    rates_later: Vector
    table_later: Matrix
    held: Vector
    holds: Vector


def roots_room(c, r):
    """Return room for what is seen of the roots."""
    n, k, most = len(r.directions), len(c.atol) // c.n_states - 1, len(r.made)
    width = 2 + c.n_states + k
    return RootsSeen(
        new(1), new(len(c.atol)), new(n, width), new(n), new(n), new(n), new(n), new(n), new(n), new(most, width),
        new(most, 1 + k), new(n, k), new(MANY + 1), new(1), new(len(c.atol)), new(len(c.atol)), new(n, width),
        new(2 * n), new(2 * n),
    )  # fmt: skip


def begin_roots(s):
    """Forget the run before."""
    s.count[0] = 0.0
    for j in range(len(s.sides)):
        s.fastest[j] = s.crossed_at[j] = 0.0


def look_at_roots(c, r, s, t, z, inputs):
    """Set the rates, the table of slopes, and the speeds of the roots with the sizes of their terms."""
    call(c.rates, t, z, inputs, s.rates)
    s.at[0] = t
    call(r.slopes, s.at, z, inputs, s.at, s.table)
    for j in range(len(s.sides)):
        s.speeds[j] = s.table[j, 1]
        s.sizes[j] = abs(s.table[j, 1])
        for i in range(c.n_states):
            term = s.table[j, 2 + i] * s.rates[i]
            s.speeds[j] += term
            s.sizes[j] += abs(term)


def read_sides(c, r, s, t, z, inputs, near, offsets):
    """Find out on which side of zero every root is, and shift those a hair off it; False: it is not here to do.

    near : the time within which two times are one; offsets : where those of the roots begin in the inputs.
    """
    look_at_roots(c, r, s, t, z, inputs)
    for j in range(len(s.sides)):
        g, speed = s.table[j, 0], s.speeds[j]
        if not abs(g) < math.inf:
            return False
        if abs(speed) > s.fastest[j]:
            s.fastest[j] = abs(speed)
        rounding = abs(s.table[j, 1] * t)
        for i in range(c.n_states):
            rounding += abs(s.table[j, 2 + i] * z[i])
        hair = max(1e-14 * rounding, 1e-300)
        if 2.0 * near * abs(speed) > hair:
            hair = 2.0 * near * abs(speed)
        if abs(g) > max(hair, s.crossed_at[j]):
            s.sides[j] = 1.0 if g > 0.0 else -1.0
        elif abs(speed) > STILL * s.sizes[j]:
            s.sides[j] = 1.0 if speed > 0.0 else -1.0
        elif r.kinds[j] == CONDITIONAL:  # what stands on its border holds, or does not
            look_at_conditions(r, s, t, z, inputs, s.holds)
            s.sides[j] = 1.0 if s.holds[j] > 0.5 else -1.0
        elif r.directions[j] != 0:
            s.sides[j] = float(r.directions[j])
        else:
            return False
        inputs[offsets + j] = g - s.sides[j] * hair if s.sides[j] * g < hair else 0.0
        s.crossed_at[j] = 0.0
    return True


def polished(c, r, s, j, t, z, inputs, near, least, most):
    """Return the time of the crossing of root j, which a step ended beside by its own rounding, and carry z there."""
    look_at_roots(c, r, s, t, z, inputs)
    g, speed = s.table[j, 0], s.speeds[j]
    if not abs(speed) > STILL * s.sizes[j] or abs(g) > 1000.0 * near * abs(speed):
        return t
    at = min(max(t - g / speed, least), most)
    if abs(at - t) < 1e-3 * near:
        return t
    for i in range(len(z)):
        z[i] += (at - t) * s.rates[i]
    return at


def ready_to_fire(c, r, s, t, z, inputs, near, lasted, end, first):
    """Mark the roots that fire at t, and set the shifts of their times: root `first` (or none) and those beside it.

    Return whether there are any, whether none crosses, or `REFUSED`: it is not here to do.
    """
    n, n_names, is_any, n_crossing = c.n_states, s.shifts.shape[1], False, 0
    look_at_roots(c, r, s, t, z, inputs)
    for j in range(len(s.sides)):
        side, g, speed = s.sides[j], s.table[j, 0], s.speeds[j]
        s.fires[j] = 0.0
        if r.kinds[j] == CONDITIONAL and not abs(speed) > STILL * s.sizes[j] and abs(g) < near * s.fastest[j]:
            return REFUSED  # it came to zero and stands there
        if j != first and not (side * speed < 0.0 and side * g <= abs(speed) * near):
            continue
        is_slow = abs(speed) * SLOW < s.fastest[j]  # as no other is
        if not abs(speed) < math.inf or (is_slow and _turns(c, r, s, j, t, z, inputs, lasted)):
            return REFUSED
        if r.kinds[j] == CONDITIONAL and _holds_later(c, r, s, j, t, z, inputs, lasted) != (side < 0.0):
            return REFUSED  # it touches zero, and its condition stays as it was by another of its parts
        n_crossing += 1
        s.crossed_at[j] = 2.0 * abs(g)
        if side * speed > STILL * s.sizes[j]:  # no crossing, but the error of a state at rest
            continue
        if r.directions[j] == 0 or float(r.directions[j]) == -side:
            if r.kinds[j] == TERMINAL or (n_names > 0 and not abs(speed) > STILL * s.sizes[j]):
                return REFUSED
            is_any, s.fires[j] = True, 1.0
            for k in range(n_names):
                moved = s.table[j, 2 + n + k]
                for i in range(n):
                    moved += s.table[j, 2 + i] * z[n * (1 + k) + i]
                s.shifts[j, k] = -moved / speed
    if n_crossing > 0 and ((n_crossing > 1 and r.holding != 0) or not _is_noted(s, t, lasted, end)):
        return REFUSED
    return FIRED if is_any else NOTHING


def _turns(c, r, s, j, t, z, inputs, lasted):
    """Tell whether a root that rounding has carried over zero turns back at once: it touches zero."""
    n = c.n_states
    h = _look_ahead(s, n, t, z, lasted)
    call(c.rates, t + h, s.z_later, inputs, s.rates_later)
    call(r.slopes, s.at, s.z_later, inputs, s.at, s.table_later)
    later = s.table_later[j, 1]
    for i in range(n):
        later += s.table_later[j, 2 + i] * s.rates_later[i]
    return later * s.speeds[j] < 0.0 and abs(later) > SLOW * abs(s.speeds[j])


def _look_ahead(s, n, t, z, lasted):
    """Go on a little by the present rates; return how far."""
    h = TURN * lasted
    for i in range(len(z)):
        s.z_later[i] = z[i] + h * s.rates[i] if i < n else z[i]
    s.at[0] = t + h
    return h


def _holds_later(c, r, s, j, t, z, inputs, lasted):
    """Tell whether the condition of a root holds right behind a crossing."""
    _look_ahead(s, c.n_states, t, z, lasted)
    call(r.holding, s.at, s.z_later, inputs, s.at, s.holds)
    return s.holds[j] > 0.5


def look_at_conditions(r, s, t, z, inputs, out):
    """Set which conditions of roots hold."""
    if r.holding != 0:
        s.at[0] = t
        call(r.holding, s.at, z, inputs, s.at, out)


def begins_another(s, j):
    """Tell whether the changes of root j have made a condition hold that did not; its own has begun already."""
    for k in range(len(s.sides)):  # noqa: SIM110    # a kernel has no any()
        if k != j and s.holds[k] > 0.5 and s.held[k] < 0.5:
            return True
    return False


def _is_noted(s, t, lasted, end):
    """Note a hit at t; False where hits may have no end."""
    n = int(s.count[0])
    if n > 0 and t - s.times[(n + MANY - 1) % MANY] < ENDLESS * lasted:
        return False
    if n >= MANY - 1 and t - s.times[(n + 1) % MANY] < MANY_WITHIN * lasted:
        return False
    s.times[n % MANY] = t
    if n % PACE == 0:
        if n > 0 and n + PACE * (end - t) / max(t - s.times[MANY], 1e-300) > MOST_HITS:
            return False
        s.times[MANY] = t
    s.count[0] = n + 1.0
    return True


def change(c, r, s, j, t, z, inputs):
    """Make the changes of root j, those of one order at once; sensitivities are then of the time of the hit.

    They get the rates after it from elsewhere. False where a value is not finite.
    """
    n, n_names, e, last = c.n_states, s.shifts.shape[1], r.ends[j - 1] if j > 0 else 0, r.ends[j]
    begin = e
    for k in range(n_names):
        for i in range(n):
            z[n * (1 + k) + i] += s.shifts[j, k] * s.rates[i]
    while e < last:
        end = e
        s.at[0] = t
        call(r.changes[j], s.at, z, inputs, s.at, s.values)
        while end < last and r.made[end, 2] == r.made[e, 2]:
            row = end - begin
            if not abs(s.values[row, 0]) < math.inf:
                return False
            s.moved[row, 0] = s.values[row, 0]
            for k in range(n_names):
                dv = s.values[row, 2 + n + k] + s.values[row, 1] * s.shifts[j, k]
                for i in range(n):
                    dv += s.values[row, 2 + i] * z[n * (1 + k) + i]
                s.moved[row, 1 + k] = dv
            end += 1
        for one in range(e, end):
            make_change(z, n, r.made[one, 0], r.made[one, 1], s.moved[one - begin])
        e = end
    return True


def settle(c, s, j, t, z, inputs):
    """Set the rates after the changes of root j, and give the sensitivities what hangs on them."""
    call(c.rates, t, z, inputs, s.rates)
    for k in range(s.shifts.shape[1]):
        for i in range(c.n_states):
            z[c.n_states * (1 + k) + i] -= s.shifts[j, k] * s.rates[i]
