# mypy: ignore-errors
"""Whole runs of one model by the explicit method, in one call without Python's lock: what is compiled of it.

A run goes along a course of stretches: initial values, then for each stretch the solver and the changes at its end, at
last the outputs of all rows. The functions of a model come as addresses of C functions ``void f(double t, double* y,
double* inputs, double* out)``; what `course` and `numbers` hold says `compiled.explicit_runs`.
"""

from __future__ import annotations

import math

from fmepy.compiled.dormand_prince import LOOK, drive
from fmepy.compiled.kernels import call, doubles, integers, new
from fmepy.compiled.rosenbrock import ALWAYS, END, IS_KNOWN, IS_STIFF, MEMORY, WAIT, Stiff, is_on
from fmepy.compiled.status import DONE, HEAD, NO_VALUE, NOT_FINITE, SEEN, WORK


def _rates(t, y, model, out):
    call(model[0], t, y, model[2], out)


def _watch(t, y, model, out):
    call(model[1], t, y, model[2], out)


def _copy(given, taken, n):
    for i in range(n):
        taken[i] = given[i]


def _first_not_finite(rows, n):
    """Return the first row with a state that is not finite; their number if there is none."""
    for i in range(len(rows)):
        for j in range(n):
            if not abs(rows[i, j]) < math.inf:
                return i
    return len(rows)


def _changes(of_changes, e, k, t, z, inputs, at, given, values, n_states):
    """Make the changes at the end of stretch k, e being the first that was not made; return the next, or -1.

    It is -1 where a value is not finite. The values of changes of one order are computed before any of them is made.
    """
    while of_changes[e, 0] == k:
        end = e
        while of_changes[end, 0] == k and of_changes[end, 3] == of_changes[e, 3]:
            _copy(given[end], inputs[at:], given.shape[1])
            call(of_changes[end, 4], t, z, inputs, values[end - e])
            if not abs(values[end - e, 0]) < math.inf:
                return -1
            end += 1
        for c in range(e, end):
            state, how, v = of_changes[c, 1], of_changes[c, 2], values[c - e, 0]
            old = z[state]
            z[state] = v if how == 0 else old + v if how == 1 else old * v
            for b in range(1, values.shape[1]):
                i, dv = b * n_states + state, values[c - e, b]
                z[i] = dv if how == 0 else z[i] + dv if how == 1 else v * z[i] + old * dv
        e = end
    return e


def _runs(watcher, course, stretches, changes, numbers, n_runs, inputs, work, seen, values, out, told):
    head = integers(course, HEAD)
    rates, watch, of_values, of_outputs = head[0], head[1], head[2], head[3]
    n, n_states, n_inputs, n_parameters, n_constants = head[4], head[5], head[6], head[7], head[8]
    n_outputs, n_forced, n_watched = head[9], head[10], head[11]
    n_rows, n_at_start, n_stretches = head[12], head[13], head[14]
    n_changes, n_given, together, most_steps = head[15], head[16], head[17], head[18]
    bounds, of_changes = integers(stretches, n_stretches, 3), integers(changes, n_changes + 1, 5)
    n_times = bounds[n_stretches - 1, 1] if n_stretches > 0 else 0
    begins = 3 + n + n_rows  # of the stretches, in `numbers`
    times = begins + n_stretches
    constants, forced = times + n_times, times + n_times + n_stretches * n_constants
    at_changes = forced + n_rows * n_forced
    F = doubles(numbers, at_changes + n_changes * n_given)
    given = F[at_changes:].reshape((n_changes, n_given))
    rtol, max_step, start, atol = F[0], F[1], F[2], F[3 : 3 + n]
    U, rows = doubles(inputs, n_runs, n_inputs), doubles(out, n_runs * n_rows, n + n_outputs)
    W, marks, ends = doubles(work, WORK, n), doubles(seen, SEEN, n_watched), doubles(told, n_runs, 3)
    n_blocks = n // n_states
    V = doubles(values, n + n_parameters + n_forced + together * n_blocks)
    of_these = V[n + n_parameters + n_forced :].reshape((together, n_blocks))
    plan = integers(head[19], 3)
    stiff = Stiff(plan[0], head[19], new(plan[1]))
    for r in range(n_runs):
        for i in range(MEMORY):
            stiff.room[i] = 0.0
        stiff.room[WAIT] = LOOK
        if plan[2] > 0:  # algebraic states have no rates
            stiff.room[IS_STIFF] = stiff.room[ALWAYS] = 1.0
            stiff.room[IS_KNOWN] = -1.0
        if n_stretches > 0:
            stiff.room[END] = F[times + n_times - 1]
        status, reached, row, first = DONE, start, n_at_start, r * n_rows
        if of_values != 0:
            call(of_values, start, W[0], U[r], V)
            for i in range(n):
                if not abs(V[i]) < math.inf:
                    status = NO_VALUE
        if n_at_start > 0:
            _copy(V, rows[first], n)
        change, behind, h = 0, n_inputs - n_given, 0.0
        if status == DONE:
            change = _changes(of_changes, 0, -1, start, V[:n], U[r], behind, given, of_these, n_states)
        if change < 0:
            status = NO_VALUE
        for k in range(n_stretches):
            if status != DONE:
                break
            for i in range(n_constants):
                U[r, n_parameters + i] = F[constants + k * n_constants + i]
            a, b, kept = bounds[k, 0], bounds[k, 1], bounds[k, 2]
            t, wanted = F[begins + k], F[times + a : times + b]
            most = most_steps + int(min((wanted[-1] - t) / max_step, 1e7))
            status, came, reached, h = drive(
                _rates, watcher, (rates, watch, U[r]), t, h, V[:n], wanted, n_states, rtol, atol, max_step,
                most, rows[first + row : first + row + b - a], W, marks, None, stiff,
            )  # fmt: skip
            if status == DONE:
                bad = _first_not_finite(rows[first + row : first + row + b - a], n)
                if bad < b - a:
                    status, reached = NOT_FINITE, wanted[bad]
            row += kept if status == DONE else came
            _copy(W[0], V, n)
            before = change
            if status == DONE:
                change = _changes(of_changes, change, k, wanted[-1], V[:n], U[r], behind, given, of_these, n_states)
                if change < 0:
                    status = NO_VALUE
            if change != before or not is_on(stiff):  # the first step of a stretch is found anew
                h = 0.0
        if of_outputs != 0 and status == DONE:
            Q = V[n:]
            _copy(U[r], Q, n_parameters)
            for i in range(n_rows):
                for j in range(n_forced):
                    Q[n_parameters + j] = F[forced + i * n_forced + j]
                call(of_outputs, F[3 + n + i], rows[first + i, :n], Q, rows[first + i, n:])
        ends[r, 0], ends[r, 1], ends[r, 2] = status, row, reached


def run_smooth(
    course: int, stretches: int, changes: int, numbers: int, n_runs: int,
    inputs: int, work: int, seen: int, values: int, out: int, told: int,
):  # fmt: skip
    """Run a model many times; arrays come as their addresses."""
    _runs(None, course, stretches, changes, numbers, n_runs, inputs, work, seen, values, out, told)


def run_watched(
    course: int, stretches: int, changes: int, numbers: int, n_runs: int,
    inputs: int, work: int, seen: int, values: int, out: int, told: int,
):  # fmt: skip
    """Do so up to the first crossing of a condition."""
    _runs(_watch, course, stretches, changes, numbers, n_runs, inputs, work, seen, values, out, told)


def run_apart(table: int, first: int, last: int):
    """Run models of several courses once each, those of rows first to last of a table of the addresses."""
    T = integers(table, last, 10)
    for i in range(first, last):
        _runs(None, T[i, 0], T[i, 1], T[i, 2], T[i, 3], 1, T[i, 4], T[i, 5], T[i, 6], T[i, 7], T[i, 8], T[i, 9])
