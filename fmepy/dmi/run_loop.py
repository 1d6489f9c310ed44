# mypy: ignore-errors
"""The loop of a run: steps, series, levels, statements, loops, histories, rows. What is compiled of it.

Statements are C functions ``void f(double t, double** p, i64 first, i64 last)`` whose addresses stand in a table of
tasks. What a run consists of is data: which task after which (`RunPlan`, the same in all runs), and where values,
series, rows are (`State`, of one run). A module that is a Python function is a C function that calls it. The loop is
left where a group of statements does not settle or something is wrong (`at[STATUS]`), and entered again where it was
left.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from fmepy.compiled.kernels import call
from fmepy.types import IntMatrix, IntVector, Matrix, Vector

STATUS, STEP, STAGE, SECTION, ROW, LOGGED, LOG, ABOUT, UNTIL, ERRORS = range(10)
"""What stands in `State.at`: why the run was left; the step, its stage, the section of its schedule where it is; rows
written; loops logged, and those before this step; what the status is about; the last step for now; 1 where a Python
module raised an error."""
DONE, RAISED, UNSETTLED, NOT_FINITE, NEGATIVE_LAG, SHORT_DELAY = range(6)
"""Why a run was left."""


class RunPlan(NamedTuple):
    """What all runs of a program share."""

    tasks: IntMatrix
    """Of each task: 0, 1 for a look into a history, 2 for a Python module; address, or number of the lag; its first
    pointer; its first element, and the one after its last."""
    order: IntVector
    """Tasks, section by section."""
    sections: IntMatrix
    """Of each section: its first in `order`, and the one after its last; its loop, or -1; which of the loops of its
    schedule it is."""
    schedules: IntVector
    """Of each schedule its first section, and at the end their number; then of each its number of loops."""
    loops: IntVector
    """Of each loop the first of its places, and at the end their number."""
    places: IntVector
    """The places of values, loop by loop."""
    levels: IntMatrix
    """Of each element of a level: its place, that of its rate, its module's step, 1 if it stays at 0 or above."""
    kept: IntMatrix
    """Of what is kept for the next step: from where, to where, the step."""
    lags: IntMatrix
    """Of each lag: places of x, tau, before, result; how far their elements are apart (0 or 1, three numbers); how many
    x has; the module's step; where its history begins."""
    delays: IntMatrix
    """Of each smooth or delay: the place of tau, how many elements it has, the module's step."""
    least: Vector
    """Of each the shortest tau."""
    columns: IntVector
    """The places of the columns of the result."""
    forced: IntVector
    """The places of the series."""
    n_schedules: int
    """Schedules; the last one is that of RK4's later stages."""
    common_step: int
    """Of RK4: the step of all modules; 0: Euler."""
    max_iterations: int
    goes_on: int
    """1: a loop that does not settle keeps its last values."""
    tol: float
    dt: float


class State(NamedTuple):
    """One run."""

    at: IntVector
    z: Vector
    """All values."""
    pointers: IntVector
    """Where they are, task by task."""
    schedule: IntVector
    """The schedule of each step."""
    keep: IntVector
    """The steps that are rows, increasing, and -1 behind them."""
    series: Matrix
    """One row a step, of RK4 two."""
    history: Vector
    old: Vector
    before: Vector
    """What a loop began with, where it does not settle."""
    saved: Vector
    total: Vector
    moves: Vector
    """Of every element of a level, what it moves by at the next step of its module."""
    log: Matrix
    """Of every step and loop: step, loop, executions, 2 if its values were kept unsettled, largest move."""
    rows: Matrix
    start: float


def run(p: RunPlan, s: State):
    """Run on from where `s.at` says, to the end or to where Python is needed."""
    at, z = s.at, s.z
    sections, levels = p.sections, p.levels
    k, stage, section, last = at[STEP], at[STAGE], at[SECTION], len(s.schedule) - 1
    per_step = 2 if p.common_step > 0 else 1
    at[STATUS] = DONE
    while k <= at[UNTIL]:
        schedule = s.schedule[k] if stage == 0 else p.n_schedules - 1
        part = 0.0 if stage == 0 else 1.0 if stage == 3 else 0.5
        t = s.start + k * p.dt + part * p.common_step * p.dt
        if section < 0:
            if stage == 0 and k > 0 and _move(levels, z, s.moves, at, k):
                return
            row = per_step * k + int(2.0 * part) * p.common_step
            for j in range(len(p.forced)):
                z[p.forced[j]] = s.series[row, j]
            section = p.schedules[schedule]
            if stage == 0:
                at[LOG] = at[LOGGED]
                at[LOGGED] += p.schedules[p.n_schedules + 1 + schedule]
        while section < p.schedules[schedule + 1]:
            a, b, loop = sections[section, 0], sections[section, 1], sections[section, 2]
            if loop < 0:
                status = _execute(a, b, t, k, p, s)
            else:
                status = _settle(a, b, loop, s.log[at[LOG] + sections[section, 3]], t, k, p, s)
            if status != DONE:
                at[STATUS], at[STEP], at[STAGE], at[SECTION] = status, k, stage, section
                return
            section += 1
        section = -1
        if stage == 0:
            if k == 0:
                for i in range(len(levels)):
                    if not abs(z[levels[i, 0]]) < math.inf:
                        at[STATUS], at[STEP], at[STAGE], at[ABOUT] = NOT_FINITE, k, 0, i
                        return
            if k < last and _is_too_short(p, z, at, k):
                at[STATUS], at[STEP], at[STAGE] = SHORT_DELAY, k, 0
                return
            _end_step(z, at, k, p, s)
        if p.common_step == 0 or (stage == 0 and (k % p.common_step != 0 or k + p.common_step > last)):
            k += 1
        else:
            stage = _stage(levels, z, stage, p, s)
            if stage == 0:
                k += 1
    at[STATUS], at[STEP], at[STAGE], at[SECTION] = DONE, k, stage, section


def execute(p: RunPlan, s: State, first: int, last: int):
    """Execute the tasks first to last - 1 of `order` once, at the time of `s.at`."""
    part = 0.0 if s.at[STAGE] == 0 else 1.0 if s.at[STAGE] == 3 else 0.5
    t = s.start + s.at[STEP] * p.dt + part * p.common_step * p.dt
    s.at[STATUS] = _execute(first, last, t, s.at[STEP], p, s)


def _execute(first, last, t, k, p, s):
    """Execute tasks one after the other; return DONE, RAISED, or NEGATIVE_LAG."""
    out, tasks = DONE, p.tasks
    for i in range(first, last):
        task = p.order[i]
        if tasks[task, 0] != 1:
            call(tasks[task, 1], t, s.pointers[tasks[task, 2] :], tasks[task, 3], tasks[task, 4])
            if s.at[ERRORS] != 0:
                return RAISED
        elif not _look_back(p.lags[tasks[task, 1]], tasks[task, 3], tasks[task, 4], k, p.dt, s.z, s.history):
            s.at[ABOUT] = tasks[task, 1]
            out = NEGATIVE_LAG
    return out


def _look_back(lag, first, last, k, dt, z, history):
    """Set what x was tau ago, between the steps of its module by a line; tell whether tau is not negative."""
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


def _settle(first, last, loop, line, t, k, p, s):
    """Execute a loop again and again until nothing moves; return DONE, UNSETTLED, or what is wrong."""
    z, begin, end = s.z, p.loops[loop], p.loops[loop + 1]
    settled, count, most = False, 0, 0.0
    for i in range(begin, end):
        s.before[i - begin] = z[p.places[i]]
    while count < p.max_iterations and not settled:
        for i in range(begin, end):
            s.old[i - begin] = z[p.places[i]]
        status = _execute(first, last, t, k, p, s)
        if status != DONE:
            return status
        count += 1
        settled, most = True, 0.0
        for i in range(begin, end):
            v, u = z[p.places[i]], s.old[i - begin]
            move = abs(v - u) if v != u else 0.0
            if not move <= p.tol * max(1.0, abs(v)):
                settled = False
            if not move <= most:
                most = move
    line[0], line[1], line[2], line[4] = k, loop, max(line[2], float(count)), max(line[4], most)
    if settled:
        return DONE
    if p.goes_on == 1:
        line[3] = 2.0
        return DONE
    return UNSETTLED


def _move(levels, z, moves, at, k):
    """Move the levels of active modules; tell whether one is not finite."""
    for i in range(len(levels)):
        if k % levels[i, 2] == 0:
            z[levels[i, 0]] += moves[i]
            if levels[i, 3] == 1 and z[levels[i, 0]] < 0.0:
                z[levels[i, 0]] = 0.0
            if not abs(z[levels[i, 0]]) < math.inf:
                at[STATUS], at[STEP], at[STAGE], at[ABOUT] = NOT_FINITE, k, 0, i
                return True
    return False


def _is_too_short(p, z, at, k):
    """Tell whether the tau of a smooth or delay that moves on is shorter than it may be."""
    for i in range(len(p.least)):
        if k % p.delays[i, 2] == 0:
            for j in range(p.delays[i, 1]):
                if not z[p.delays[i, 0] + j] >= p.least[i]:
                    at[ABOUT] = i
                    return True
    return False


def _end_step(z, at, k, p, s):
    """Write the row, what is remembered, and what levels will move by."""
    if s.keep[at[ROW]] == k:
        for j in range(len(p.columns)):
            s.rows[at[ROW], j] = z[p.columns[j]]
        at[ROW] += 1
    levels, kept, lags = p.levels, p.kept, p.lags
    for i in range(len(kept)):
        if k % kept[i, 2] == 0:
            z[kept[i, 1]] = z[kept[i, 0]]
    for i in range(len(lags)):
        if k % lags[i, 8] == 0:
            for j in range(lags[i, 7]):
                s.history[lags[i, 9] + k // lags[i, 8] * lags[i, 7] + j] = z[lags[i, 0] + j]
    for i in range(len(levels)):
        if k % levels[i, 2] == 0:
            s.moves[i] = levels[i, 2] * p.dt * z[levels[i, 1]]


def _stage(levels, z, stage, p, s):
    """Go to the next stage of RK4, the last time to the next step; return it."""
    if stage == 0:
        for i in range(len(z)):
            s.saved[i] = z[i]
    h, weight = p.common_step * p.dt, 1.0 if stage == 0 or stage == 3 else 2.0
    to = h if stage == 2 else 0.5 * h
    for i in range(len(levels)):
        slope = z[levels[i, 1]]
        s.total[i] = weight * slope if stage == 0 else s.total[i] + weight * slope
        z[levels[i, 0]] = s.saved[levels[i, 0]] + to * slope
        if levels[i, 3] == 1 and z[levels[i, 0]] < 0.0:
            z[levels[i, 0]] = 0.0
    if stage < 3:
        return stage + 1
    for i in range(len(z)):
        z[i] = s.saved[i]
    for i in range(len(levels)):
        s.moves[i] = h / 6.0 * s.total[i]
    return 0
