# mypy: ignore-errors
"""Whole runs of one model by the explicit method, in one call without Python's lock: what is compiled of it.

A run goes along a course of stretches: initial values, then for each stretch the solver and the changes at its end, at
last the outputs of all rows. The functions of a model come as addresses of C functions ``void f(double t, double* y,
double* inputs, double* out)``; what `course` and `numbers` hold says `compiled.explicit_runs`.
"""

from __future__ import annotations

import math

from fmepy.compiled.dormand_prince import drive
from fmepy.compiled.kernels import call, doubles, integers
from fmepy.compiled.status import DONE, HEAD, NO_VALUE, NOT_FINITE, WORK


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


def _change(V, of_changes, k):
    """Make the changes at the end of stretch k; V holds the states, and the values of the changes behind them."""
    for e in range(len(of_changes)):
        if of_changes[e, 0] == k:
            state, how, v = of_changes[e, 1], of_changes[e, 2], V[of_changes[e, 3]]
            V[state] = v if how == 0 else V[state] + v if how == 1 else V[state] * v


def _runs(watcher, course, stretches, changes, numbers, n_runs, inputs, work, seen, values, out, told):
    head = integers(course, HEAD)
    rates, watch, of_values, of_outputs = head[0], head[1], head[2], head[3]
    n, n_states, n_inputs, n_parameters, n_constants = head[4], head[5], head[6], head[7], head[8]
    n_values, n_outputs, n_forced, n_watched = head[9], head[10], head[11], head[12]
    n_rows, n_at_start, n_stretches, n_changes, most_steps = head[13], head[14], head[15], head[16], head[17]
    bounds, of_changes = integers(stretches, n_stretches, 3), integers(changes, n_changes, 4)
    n_times = bounds[n_stretches - 1, 1] if n_stretches > 0 else 0
    begins = 3 + n + n_rows  # of the stretches, in `numbers`
    times = begins + n_stretches
    constants, forced = times + n_times, times + n_times + n_stretches * n_constants
    F = doubles(numbers, forced + n_rows * n_forced)
    rtol, max_step, start, atol = F[0], F[1], F[2], F[3 : 3 + n]
    U, rows = doubles(inputs, n_runs, n_inputs), doubles(out, n_runs * n_rows, n + n_outputs)
    W, marks, ends = doubles(work, WORK, n), doubles(seen, 2, n_watched), doubles(told, n_runs, 3)
    V = doubles(values, n_values + n_parameters + n_forced)
    for r in range(n_runs):
        status, reached, row, first = DONE, start, n_at_start, r * n_rows
        if of_values != 0:
            call(of_values, start, W[0], U[r], V)
            for i in range(n_values):
                if not abs(V[i]) < math.inf:
                    status = NO_VALUE
        if n_at_start > 0:
            _copy(V, rows[first], n)
        _change(V, of_changes, -1)
        for k in range(n_stretches):
            if status != DONE:
                break
            for i in range(n_constants):
                U[r, n_parameters + i] = F[constants + k * n_constants + i]
            a, b, kept = bounds[k, 0], bounds[k, 1], bounds[k, 2]
            t, wanted = F[begins + k], F[times + a : times + b]
            most = most_steps + int(min((wanted[-1] - t) / max_step, 1e7))
            status, came, reached, _ = drive(
                _rates, watcher, (rates, watch, U[r]), t, 0.0, V[:n], wanted, n_states, rtol, atol, max_step,
                most, rows[first + row : first + row + b - a], W, marks,
            )  # fmt: skip
            if status == DONE:
                bad = _first_not_finite(rows[first + row : first + row + b - a], n)
                if bad < b - a:
                    status, reached = NOT_FINITE, wanted[bad]
            row += kept if status == DONE else came
            _copy(W[0], V, n)
            _change(V, of_changes, k)
        if of_outputs != 0 and status == DONE:
            Q = V[n_values:]
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
