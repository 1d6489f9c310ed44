# mypy: ignore-errors
"""The compiled loop of a run: steps, series, levels, statements, loops, histories, rows.

Statements are C functions ``void f(double t, double** p, i64 first, i64 last)``, whose addresses are in a table of
tasks. A run is described by data: the order of tasks (`RunPlan`, the same in all runs), and places of values, series
and rows (`State`, of one run). C functions also call Python modules, and the minimisation for a group of statements
that does not settle. After an error the loop ends with `at[STATUS]`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from fmepy.compiled.kernels import call
from fmepy.types import IntMatrix, IntVector, Matrix, Vector

STATUS, STEP, STAGE, ROW, SUBJECT, UNTIL = range(6)
"""Entries of `State.at`: the status; the step and its stage; rows written so far; the subject of the status (level, lag
or delay); the last step of this call."""
DONE, RAISED, NOT_FINITE, NEGATIVE_LAG, SHORT_DELAY = range(5)
"""Values of the status; RAISED is set by Python."""


class RunPlan(NamedTuple):
    """The part of a program that all runs share; a row an item in matrices, places are positions in `State.z`.

    Attributes
    ----------
    tasks : matrix of int
        Kind (0: compiled statement, 1: lag, 2: Python module), address or number of the lag, first pointer, first
        element, end of elements.
    order : vector of int
        Tasks, section by section.
    sections : matrix of int
        First and end in `order`; loop, or -1.
    schedules : vector of int
        First section of each schedule, then the number of sections; the last schedule is for the later stages of RK4.
    loops : vector of int
        First place of each loop, then the number of places.
    places : vector of int
        The places of values, loop by loop.
    levels : matrix of int
        By element of levels: its place, the place of its rate, the step of its module, 1 if it is nonnegative.
    previous : matrix of int
        Values copied for the next step: from, to, the step of the module.
    lags : matrix of int
        Places of x, tau, before, result; strides of the first three (0 or 1); number of elements of x; the step of the
        module; begin of the history.
    delays : matrix of int
        Smooths and delays: the place of tau, its number of elements, the step of the module.
    least : vector
        The shortest tau of each of them.
    columns, forced : vector of int
        The places of the columns of the result, and of the series.
    common_step : int
        The step of all modules for RK4; 0 for Euler.
    max_iterations : int
    keeps_unsettled : int
        1: a loop that does not settle keeps its last values.
    tol, dt : float
    """

    tasks: IntMatrix
    order: IntVector
    sections: IntMatrix
    schedules: IntVector
    loops: IntVector
    places: IntVector
    levels: IntMatrix
    previous: IntMatrix
    lags: IntMatrix
    delays: IntMatrix
    least: Vector
    columns: IntVector
    forced: IntVector
    common_step: int
    max_iterations: int
    keeps_unsettled: int
    tol: float
    dt: float


class State(NamedTuple):
    """The arrays of one run.

    Attributes
    ----------
    at : vector of int
        See `STATUS` and the other entries.
    z : vector
        All values.
    pointers : vector of int
        Addresses of the values that each task uses, task by task.
    schedule : vector of int
        The schedule of each step.
    keep : vector of int
        The steps that are rows, increasing, then -1.
    series : matrix
        One row a step, two for RK4.
    history : vector
        The values of x of the lags.
    old, before : vector
        Values of a loop before an execution, and before its first one, for loops that do not settle.
    saved, total : vector
        All values at the beginning of a step of RK4, and the sum of its slopes.
    log : matrix
        By step and loop: executions; 1 if it was minimised, 2 if it stayed unsettled; the largest move.
    rows : matrix
        The result.
    unsettled : int
        The address of the C function that is called for a loop that does not settle.
    start : float
    """

    at: IntVector
    z: Vector
    pointers: IntVector
    schedule: IntVector
    keep: IntVector
    series: Matrix
    history: Vector
    old: Vector
    before: Vector
    saved: Vector
    total: Vector
    log: Matrix
    rows: Matrix
    unsettled: int
    start: float


def run(p: RunPlan, s: State):
    """Run from the step in `s.at` to the last step of this call, or to an error."""
    at, last = s.at, len(s.schedule) - 1
    while at[STEP] <= at[UNTIL]:
        k = at[STEP]
        has_stages = p.common_step > 0 and k % p.common_step == 0 and k + p.common_step <= last
        if k > 0:
            _advance_levels(k, p, s)
        for stage in range(4 if has_stages else 1):
            at[STAGE] = stage
            if at[STATUS] == DONE:
                _evaluate(s.schedule[k] if stage == 0 else len(p.schedules) - 2, p, s)
            if at[STATUS] == DONE and stage == 0:
                if k == 0:
                    _advance_levels(k, p, s)
                if k < last:
                    _check_delays(k, p, s)
                if at[STATUS] == DONE:
                    _end_step(k, p, s)
            if at[STATUS] != DONE:
                return
            if has_stages:
                _end_stage(stage, p, s)
        at[STEP] += 1


def _fraction(p, s):
    """Return the fraction of the common step at which a stage is."""
    return 0.0 if s.at[STAGE] == 0 else 1.0 if s.at[STAGE] == 3 else 0.5


def _evaluate(schedule, p, s):
    """Set the series, and execute the sections of a schedule; loops repeatedly, until nothing moves."""
    row = (2 if p.common_step > 0 else 1) * s.at[STEP] + int(2.0 * _fraction(p, s)) * p.common_step
    for j in range(len(p.forced)):
        s.z[p.forced[j]] = s.series[row, j]
    for i in range(p.schedules[schedule], p.schedules[schedule + 1]):
        if p.sections[i, 2] < 0:
            execute(p, s, p.sections[i, 0], p.sections[i, 1])
        else:
            _settle(p.sections[i, 0], p.sections[i, 1], p.sections[i, 2], p, s)
        if s.at[STATUS] != DONE:
            return


def execute(p: RunPlan, s: State, first: int, last: int):
    """Execute the tasks first to last - 1 of `order` once, at the time of `s.at`."""
    k, tasks = s.at[STEP], p.tasks
    t = s.start + k * p.dt + _fraction(p, s) * p.common_step * p.dt
    for i in range(first, last):
        task = p.order[i]
        if tasks[task, 0] != 1:
            call(tasks[task, 1], t, s.pointers[tasks[task, 2] :], tasks[task, 3], tasks[task, 4])
            if s.at[STATUS] == RAISED:
                return
        elif not _delayed_values(p.lags[tasks[task, 1]], tasks[task, 3], tasks[task, 4], k, p.dt, s.z, s.history):
            s.at[STATUS], s.at[SUBJECT] = NEGATIVE_LAG, tasks[task, 1]


def _delayed_values(lag, first, last, k, dt, z, history):
    """Set the values of x a time tau ago, linear between steps of its module; return whether no tau is negative."""
    step, count, begin = lag[8], lag[7], lag[9]
    now, holds = k // step, True
    for i in range(first, last):
        x = i if count > 1 else 0
        tau = z[lag[1] + i * lag[5]]
        holds = holds and tau >= 0.0
        place = now - tau / (step * dt)
        if not tau >= 0.0:
            z[lag[3] + i] = math.nan
        elif place < -1e-6:
            z[lag[3] + i] = z[lag[2] + i * lag[6]]
        else:
            j = int(min(max(place + 1e-6, 0.0), float(now)))
            a = history[begin + j * count + x] if j < now else z[lag[0] + x]
            rest = place - j
            if rest > 1e-6 and j < now:
                b = history[begin + (j + 1) * count + x] if j + 1 < now else z[lag[0] + x]
                a = a + rest * (b - a)
            z[lag[3] + i] = a
    return holds


def _settle(first, last, loop, p, s):
    """Execute a loop repeatedly until nothing moves."""
    z, begin, end = s.z, p.loops[loop], p.loops[loop + 1]
    settled, count, most = False, 0, 0.0
    for i in range(begin, end):
        s.before[i - begin] = z[p.places[i]]
    while count < p.max_iterations and not settled:
        for i in range(begin, end):
            s.old[i - begin] = z[p.places[i]]
        execute(p, s, first, last)
        if s.at[STATUS] != DONE:
            return
        count += 1
        settled, most = True, 0.0
        for i in range(begin, end):
            v, u = z[p.places[i]], s.old[i - begin]
            move = abs(v - u) if v != u else 0.0
            if not move <= p.tol * max(1.0, abs(v)):
                settled = False
            if not move <= most:
                most = move
    line = s.log[s.at[STEP] * (len(p.loops) - 1) + loop]
    line[0], line[2] = max(line[0], float(count)), max(line[2], most)
    if not settled and p.keeps_unsettled == 1:
        line[1] = 2.0
    elif not settled:
        call(s.unsettled, first, last, loop)


def _advance_levels(k, p, s):
    """Advance the levels of active modules, except at the start, and check that they are finite."""
    z, levels = s.z, p.levels
    for i in range(len(levels)):
        if k % levels[i, 2] == 0:
            x = levels[i, 0]
            if k > 0:
                z[x] += levels[i, 2] * p.dt / (6.0 if p.common_step > 0 else 1.0) * z[levels[i, 1]]
                if levels[i, 3] == 1 and z[x] < 0.0:
                    z[x] = 0.0
            if not abs(z[x]) < math.inf:
                s.at[STATUS], s.at[SUBJECT] = NOT_FINITE, i
                return


def _check_delays(k, p, s):
    """Check that no active smooth or delay has a tau below its least."""
    for i in range(len(p.least)):
        if k % p.delays[i, 2] == 0:
            for j in range(p.delays[i, 1]):
                if s.at[STATUS] == DONE and not s.z[p.delays[i, 0] + j] >= p.least[i]:
                    s.at[STATUS], s.at[SUBJECT] = SHORT_DELAY, i


def _end_step(k, p, s):
    """Write the row, the previous values and the histories."""
    at, z, previous, lags = s.at, s.z, p.previous, p.lags
    if s.keep[at[ROW]] == k:
        for j in range(len(p.columns)):
            s.rows[at[ROW], j] = z[p.columns[j]]
        at[ROW] += 1
    for i in range(len(previous)):
        if k % previous[i, 2] == 0:
            z[previous[i, 1]] = z[previous[i, 0]]
    for i in range(len(lags)):
        if k % lags[i, 8] == 0:
            for j in range(lags[i, 7]):
                s.history[lags[i, 9] + k // lags[i, 8] * lags[i, 7] + j] = z[lags[i, 0] + j]


def _end_stage(stage, p, s):
    """Move levels to the next stage of RK4; after the last, restore all values, with the sum of slopes as rates."""
    z, levels, h = s.z, p.levels, p.common_step * p.dt
    if stage == 0:
        for i in range(len(z)):
            s.saved[i] = z[i]
    weight, to = 1.0 if stage == 0 or stage == 3 else 2.0, h if stage == 2 else 0.5 * h
    for i in range(len(levels)):
        slope = z[levels[i, 1]]
        s.total[i] = weight * slope if stage == 0 else s.total[i] + weight * slope
        z[levels[i, 0]] = s.saved[levels[i, 0]] + to * slope
        if levels[i, 3] == 1 and z[levels[i, 0]] < 0.0:
            z[levels[i, 0]] = 0.0
    if stage == 3:
        for i in range(len(z)):
            z[i] = s.saved[i]
        for i in range(len(levels)):
            z[levels[i, 1]] = s.total[i]
