# mypy: ignore-errors
"""The loop of a run: steps, series, levels, statements, loops, histories, rows. What is compiled of it.

Statements are C functions ``void f(double t, double** p, i64 first, i64 last)`` whose addresses stand in a table of
tasks. What a run consists of is data: which task after which (`RunPlan`, the same in all runs), and where values,
series, rows are (`State`, of one run). A module that is a Python function is a C function that calls it, and so is what
is done where a group of statements does not settle. The loop is left where something is wrong (`at[STATUS]`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

from fmepy.compiled.kernels import call
from fmepy.types import IntMatrix, IntVector, Matrix, Vector

STATUS, STEP, STAGE, ROW, ABOUT, UNTIL = range(6)
"""What stands in `State.at`: why the run was left; the step and its stage; rows written; what the status is about; the
last step for now."""
DONE, RAISED, NOT_FINITE, NEGATIVE_LAG, SHORT_DELAY = range(5)
"""Why a run was left; RAISED is set by Python."""


class RunPlan(NamedTuple):
    """What all runs of a program share."""

    tasks: IntMatrix
    """Of each task: 0, 1 for a look into a history, 2 for a Python module; address, or number of the lag; its first
    pointer; its first element, and the one after its last."""
    order: IntVector
    """Tasks, section by section."""
    sections: IntMatrix
    """Of each section: its first in `order`, and the one after its last; its loop, or -1."""
    schedules: IntVector
    """Of each schedule its first section, and at the end their number; the last one is that of RK4's later stages."""
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
    log: Matrix
    """Of every step, and in it of every loop: executions, 1 where it was minimised, 2 where it was kept unsettled, and
    the largest move."""
    rows: Matrix
    unsettled: int
    """The C function that is called with a loop that does not settle."""
    start: float


def run(p: RunPlan, s: State):
    """Run on from the step of `s.at`, to the last one for now or to where something is wrong."""
    at, last = s.at, len(s.schedule) - 1
    while at[STEP] <= at[UNTIL]:
        k = at[STEP]
        goes_by_stages = p.common_step > 0 and k % p.common_step == 0 and k + p.common_step <= last
        if k > 0:
            _move(k, p, s)
        for stage in range(4 if goes_by_stages else 1):
            at[STAGE] = stage
            if at[STATUS] == DONE:
                _evaluate(s.schedule[k] if stage == 0 else len(p.schedules) - 2, p, s)
            if at[STATUS] == DONE and stage == 0:
                if k == 0:
                    _move(k, p, s)
                if k < last:
                    _check_delays(k, p, s)
                if at[STATUS] == DONE:
                    _end_step(k, p, s)
            if at[STATUS] != DONE:
                return
            if goes_by_stages:
                _end_stage(stage, p, s)
        at[STEP] += 1


def _part(p, s):
    """Return which part of the common step has gone by at a stage."""
    return 0.0 if s.at[STAGE] == 0 else 1.0 if s.at[STAGE] == 3 else 0.5


def _evaluate(schedule, p, s):
    """Set the series, and execute the sections of a schedule, those that are loops until nothing moves."""
    row = (2 if p.common_step > 0 else 1) * s.at[STEP] + int(2.0 * _part(p, s)) * p.common_step
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
    t = s.start + k * p.dt + _part(p, s) * p.common_step * p.dt
    for i in range(first, last):
        task = p.order[i]
        if tasks[task, 0] != 1:
            call(tasks[task, 1], t, s.pointers[tasks[task, 2] :], tasks[task, 3], tasks[task, 4])
            if s.at[STATUS] == RAISED:
                return
        elif not _look_back(p.lags[tasks[task, 1]], tasks[task, 3], tasks[task, 4], k, p.dt, s.z, s.history):
            s.at[STATUS], s.at[ABOUT] = NEGATIVE_LAG, tasks[task, 1]


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


def _settle(first, last, loop, p, s):
    """Execute a loop again and again until nothing moves."""
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
    if not settled and p.goes_on == 1:
        line[1] = 2.0
    elif not settled:
        call(s.unsettled, first, last, loop)


def _move(k, p, s):
    """Move the levels of active modules but at the start, and see that they are finite."""
    z, levels = s.z, p.levels
    for i in range(len(levels)):
        if k % levels[i, 2] == 0:
            x = levels[i, 0]
            if k > 0:
                z[x] += levels[i, 2] * p.dt / (6.0 if p.common_step > 0 else 1.0) * z[levels[i, 1]]
                if levels[i, 3] == 1 and z[x] < 0.0:
                    z[x] = 0.0
            if not abs(z[x]) < math.inf:
                s.at[STATUS], s.at[ABOUT] = NOT_FINITE, i
                return


def _check_delays(k, p, s):
    """See that the tau of no smooth or delay that moves on is shorter than it may be."""
    for i in range(len(p.least)):
        if k % p.delays[i, 2] == 0:
            for j in range(p.delays[i, 1]):
                if s.at[STATUS] == DONE and not s.z[p.delays[i, 0] + j] >= p.least[i]:
                    s.at[STATUS], s.at[ABOUT] = SHORT_DELAY, i


def _end_step(k, p, s):
    """Write the row, and what is remembered."""
    at, z, kept, lags = s.at, s.z, p.kept, p.lags
    if s.keep[at[ROW]] == k:
        for j in range(len(p.columns)):
            s.rows[at[ROW], j] = z[p.columns[j]]
        at[ROW] += 1
    for i in range(len(kept)):
        if k % kept[i, 2] == 0:
            z[kept[i, 1]] = z[kept[i, 0]]
    for i in range(len(lags)):
        if k % lags[i, 8] == 0:
            for j in range(lags[i, 7]):
                s.history[lags[i, 9] + k // lags[i, 8] * lags[i, 7] + j] = z[lags[i, 0] + j]


def _end_stage(stage, p, s):
    """Go to where the next stage of RK4 is evaluated; after the last, back, with the sum of its slopes as rates."""
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
