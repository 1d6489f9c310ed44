# mypy: ignore-errors
"""Root events along whole runs: where a root crosses zero, states change and the run continues, without Python.

The same happens at a hit as in `models.running.crossings`, which explains it. Difficult cases are refused and left to
it: a root that touches zero or stays there, hits at ever shorter intervals, a root that ends the run, conditions
(`when`) that become true or cross together with others.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from fmepy.compiled.courses import make_change
from fmepy.compiled.kernels import call, new
from fmepy.types import IntMatrix, IntVector, Matrix, Vector

MOST_HITS, PACE = 100_000, 1000
"""Hits in one run after which it counts as endless; number of hits over which their pace is measured."""
MANY, MANY_WITHIN = 20, 1e-6
"""So many crossings of one switch or root within this part of the elapsed time are too many."""
ENDLESS = 1e-8
"""Hits closer than this part of the elapsed time have no end (a bouncing ball that comes to rest)."""
STILL = 1e-12
"""A root whose rate of change is less than this part of the sum of its terms' sizes only touches zero."""
SLOW, TURN = 1e3, 1e-8
"""A root SLOW times slower than its maximum only touches zero if its rate of change, after TURN times the elapsed time,
has the other sign and is SLOW times as large."""
NOTHING, FIRED, REFUSED = 0, 1, -1
PLAIN, CONDITIONAL, TERMINAL = range(3)


class Roots(NamedTuple):
    """The root events of a system.

    Attributes
    ----------
    slopes : int
        Address of ``slopes(t, z, inputs, unused, out)``: for every root g, g_t, g_y and scaled g_p.
    changes : ndarray of int
        For every root the address of the same function for the values of its changes.
    ends : ndarray of int
        For every root, where its changes end in `actions`.
    actions : ndarray of int, shape (n_changes, 3)
        Of each change the state, how it changes (`explicit_runs.CHANGES`), its order.
    directions, order : ndarray of int
        Direction of crossing of every root; the order in which roots fire at the same time.
    holding : int
        Address of ``holding(t, z, inputs, unused, out)``: for every root 1 if its condition is true, then for every
        root 1 if that is strict; 0: no root has a condition.
    kinds : ndarray of int
        For every root `PLAIN`, `CONDITIONAL` or `TERMINAL`.
    """

    slopes: int
    changes: IntVector
    ends: IntVector
    actions: IntMatrix
    directions: IntVector
    order: IntVector
    holding: int
    kinds: IntVector


class RootsState(NamedTuple):
    """Values of the roots at the present time, and their history in the run.

    Attributes
    ----------
    at, rates : ndarray
        The time, and the rates of all z there.
    table, speeds, sizes : ndarray
        The output of `slopes`; rates of change of the roots, and the sums of the absolute values of their terms.
    sides, crossed_at, fastest, fires : ndarray, shape (n_roots,)
        Side of zero of every root; its distance from zero when it crossed; its largest speed; whether it will fire.
    values, moved, shifts : ndarray
        The output of `changes`; values with slopes along the parameters; derivatives of the times of hits.
    times, count : ndarray
        Times of the last `MANY` hits, and of the one `PACE` hits ago; the number of hits.
    z_later, rates_later, table_later : ndarray
        State, rates and `slopes` shortly after a hit.
    true_before, true_after : ndarray, shape (2 n_roots,)
        The output of `holding` before and after changes.
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
    true_before: Vector
    true_after: Vector


def roots_room(c, r):
    """Return new arrays for the state of the roots."""
    n, k, most = len(r.directions), len(c.atol) // c.n_states - 1, len(r.actions)
    width = 2 + c.n_states + k
    return RootsState(
        new(1), new(len(c.atol)), new(n, width), new(n), new(n), new(n), new(n), new(n), new(n), new(most, width),
        new(most, 1 + k), new(n, k), new(MANY + 1), new(1), new(len(c.atol)), new(len(c.atol)), new(n, width),
        new(2 * n), new(2 * n),
    )  # fmt: skip


def begin_roots(s):
    """Reset the history at the start of a run."""
    s.count[0] = 0.0
    for j in range(len(s.sides)):
        s.fastest[j] = s.crossed_at[j] = 0.0


def look_at_roots(c, r, s, t, z, inputs):
    """Evaluate the rates, the table of slopes, and the roots' rates of change with the sizes of their terms."""
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
    """Determine the side of zero of every root, and shift roots at zero slightly off it; False: it cannot be decided.

    near : resolution of time; offsets : index among the inputs where the offsets of the roots begin
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
        elif r.kinds[j] == CONDITIONAL:  # on its border, the condition itself decides
            look_at_conditions(r, s, t, z, inputs, s.true_after)
            s.sides[j] = 1.0 if s.true_after[j] > 0.5 else -1.0
        elif r.directions[j] != 0:
            s.sides[j] = float(r.directions[j])
        else:
            return False
        inputs[offsets + j] = g - s.sides[j] * hair if s.sides[j] * g < hair else 0.0
        s.crossed_at[j] = 0.0
    return True


def polished(c, r, s, j, t, z, inputs, near, least, most):
    """Correct the crossing time of root j, found up to rounding, by one Newton step; return it, and move z there."""
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
    """Mark the roots that fire at t (`first`, if not negative, and others that cross with it); set their time shifts.

    Returns FIRED, NOTHING, or REFUSED if the crossing must be handled by the general code.
    """
    n, n_names, is_any, n_crossing = c.n_states, s.shifts.shape[1], False, 0
    look_at_roots(c, r, s, t, z, inputs)
    for j in range(len(s.sides)):
        side, g, speed = s.sides[j], s.table[j, 0], s.speeds[j]
        s.fires[j] = 0.0
        if r.kinds[j] == CONDITIONAL and not abs(speed) > STILL * s.sizes[j] and abs(g) < near * s.fastest[j]:
            return REFUSED  # it has reached zero and stays there
        if j != first and not (side * speed < 0.0 and side * g <= abs(speed) * near):
            continue
        is_slow = abs(speed) * SLOW < s.fastest[j]  # compared with its own maximum
        if not abs(speed) < math.inf or (is_slow and _turns(c, r, s, j, t, z, inputs, lasted)):
            return REFUSED
        if r.kinds[j] == CONDITIONAL and _is_true_later(c, r, s, j, t, z, inputs, lasted) != (side < 0.0):
            return REFUSED  # it touches zero, or another part of the condition decides
        n_crossing += 1
        s.crossed_at[j] = 2.0 * abs(g)
        if side * speed > STILL * s.sizes[j]:  # no crossing, only rounding of a state at rest
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
    if n_crossing > 0 and ((n_crossing > 1 and r.holding != 0) or not _record_hit(s, t, lasted, end)):
        return REFUSED
    return FIRED if is_any else NOTHING


def _turns(c, r, s, j, t, z, inputs, lasted):
    """Tell whether a root that crossed zero by rounding turns back at once, that is, only touches zero."""
    n = c.n_states
    h = _look_ahead(s, n, t, z, lasted)
    call(c.rates, t + h, s.z_later, inputs, s.rates_later)
    call(r.slopes, s.at, s.z_later, inputs, s.at, s.table_later)
    later = s.table_later[j, 1]
    for i in range(n):
        later += s.table_later[j, 2 + i] * s.rates_later[i]
    return later * s.speeds[j] < 0.0 and abs(later) > SLOW * abs(s.speeds[j])


def _look_ahead(s, n, t, z, lasted):
    """Extrapolate the states a little way by their rates; return the time step."""
    h = TURN * lasted
    for i in range(len(z)):
        s.z_later[i] = z[i] + h * s.rates[i] if i < n else z[i]
    s.at[0] = t + h
    return h


def _is_true_later(c, r, s, j, t, z, inputs, lasted):
    """Tell whether the condition of a root is true just after a crossing."""
    _look_ahead(s, c.n_states, t, z, lasted)
    call(r.holding, s.at, s.z_later, inputs, s.at, s.true_after)
    return s.true_after[j] > 0.5


def look_at_conditions(r, s, t, z, inputs, out):
    """Evaluate which conditions of roots are true."""
    if r.holding != 0:
        s.at[0] = t
        call(r.holding, s.at, z, inputs, s.at, out)


def begins_another(s, j):
    """Tell whether the changes of root j made the condition of another root true."""
    for k in range(len(s.sides)):  # noqa: SIM110    # a kernel has no any()
        if k != j and s.true_after[k] > 0.5 and s.true_before[k] < 0.5:
            return True
    return False


def _record_hit(s, t, lasted, end):
    """Record a hit at t; return False if hits come so fast that they may have no end."""
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
    """Apply the changes of root j, all of one order at once; return False if a value is not finite.

    The sensitivities then refer to the moving time of the hit; `settle` adds the part with the rates after it.
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
        while end < last and r.actions[end, 2] == r.actions[e, 2]:
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
            make_change(z, n, r.actions[one, 0], r.actions[one, 1], s.moved[one - begin])
        e = end
    return True


def settle(c, s, j, t, z, inputs):
    """Compute the rates after the changes of root j, and bring the sensitivities back to a fixed time."""
    call(c.rates, t, z, inputs, s.rates)
    for k in range(s.shifts.shape[1]):
        for i in range(c.n_states):
            z[c.n_states * (1 + k) + i] -= s.shifts[j, k] * s.rates[i]
