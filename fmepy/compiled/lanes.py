# mypy: ignore-errors
"""Whole runs of one model by the explicit method, several at once (SIMD): one run in each lane of a vector.

All lanes take a step together, each from its own time and with its own length; everything after the step, from its
acceptance to the end of a stretch, is done lane by lane, and a lane whose run is over takes the next run. The
operations and their order are those of `compiled.explicit_loop.run_smooth`, so the results of a run do not depend on
the runs beside it. A run that cannot be finished here is left to that loop.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from fmepy.compiled.courses import CourseTables, RunArrays, make_changes, prepare, set_outputs
from fmepy.compiled.dormand_prince import (
    LOOK,
    SMALL,
    dense,
    first_step,
    grown,
    is_looked_at,
    is_slow,
    prepare_dense,
    set_error,
    shrunk,
    size_of_error,
    step,
)
from fmepy.compiled.kernels import are_finite, call, choose_above, copy, in_lanes, inner, lanes_at, new, set_lanes
from fmepy.compiled.llvm_operations import LANES
from fmepy.compiled.rosenbrock import END, MEMORY, WAIT
from fmepy.compiled.status import DONE, FALLBACK, STIFF, STOP


class Lanes(NamedTuple):
    """State of each lane, and the arrays shared by all.

    Attributes
    ----------
    run, stretch, change : array, shape (LANES,)
        The run (-1: none), its current stretch, the next change.
    tries : array
        Steps still allowed in the stretch.
    before, row, next, until : array
        Rows before the stretch, and since it began; times of the next row (infinite: none) and of the stretch's end.
    t, h, t_new, size, last : array
        The step, the size of its error, the logarithm of the last error.
    ends, rejected, moves : array
        1 if the step is the last of the stretch, if the one before was rejected, if this one is accepted; else 0.
    part : array
        Fraction of the step at which a row lies; -1: none.
    memory : array, shape (LANES, MEMORY)
        State of `dormand_prince.is_slow` between steps.
    inputs, y, y_new, arg, k, c : array, shapes (..., LANES)
        See `dormand_prince.step` and `prepare_dense`.
    """

    run: Any
    stretch: Any
    change: Any
    tries: Any
    before: Any
    row: Any
    next: Any
    until: Any
    t: Any
    h: Any
    t_new: Any
    size: Any
    last: Any
    ends: Any
    rejected: Any
    moves: Any
    part: Any
    memory: Any
    inputs: Any
    y: Any
    y_new: Any
    arg: Any
    k: Any
    c: Any


def rates_of_lanes(t, y, model, out):
    """Compute the rates of all lanes."""
    call(model[0], t, y, model[1], out)


def rates_of_run(t, y, model, out):
    """Compute the rates of one run."""
    call(model[0], t, y, model[1], out)


def run_lanes(c: CourseTables, runs: RunArrays, rates: int):
    """Run a model many times; `rates` is the address of the rates of all lanes (`llvm_operations.of_lanes`).

    The status of a run is DONE, STIFF, or FALLBACK: it must be run again by itself.
    """
    n, begun = len(c.atol), 0
    z, inputs = new(14, n, LANES), new(c.behind, LANES)
    of = new(17, LANES)
    m = Lanes(
        of[0], of[1], of[2], of[3], of[4], of[5], of[6], of[7], of[8], of[9], of[10], of[11], of[12], of[13], of[14],
        of[15], of[16], new(LANES, MEMORY), inputs, z[0], z[1], z[2], z[3:10], z[10:14],
    )  # fmt: skip
    y, y_new, arg = in_lanes(z[0], LANES), in_lanes(z[1], LANES), in_lanes(z[2], LANES)
    k, p = in_lanes(z[3:10], LANES), in_lanes(z[10:14], LANES)
    for i in range(LANES):
        m.run[i] = -1.0
    while runs.work[STOP, 0] == 0.0:
        is_busy = False
        for i in range(LANES):
            while m.run[i] < 0.0 and begun < len(runs.inputs):
                m.run[i] = begun
                begun += 1
                _begin_run(c, runs, m, i)
            is_busy = is_busy or m.run[i] >= 0.0
        if not is_busy:
            break
        h = lanes_at(m.h, 0, LANES)
        step(rates_of_lanes, (rates, inputs), lanes_at(m.t, 0, LANES), h, lanes_at(m.t_new, 0, LANES), y, y_new, arg, k)
        set_error(h, k, p[0])
        set_lanes(m.size, 0, size_of_error(y, y_new, c.n_states, c.rtol, c.atol, p[0]))
        is_read = False
        for i in range(LANES):
            m.moves[i] = 0.0
            if m.run[i] >= 0.0 and _is_accepted(c, runs, m, i):
                m.moves[i] = 1.0
                is_read = is_read or m.next[i] < m.t_new[i]
        if is_read:
            prepare_dense(h, y, y_new, k, p)
        while is_read:
            is_read = _set_parts(m)
            dense(lanes_at(m.part, 0, LANES), y, p, arg)
            for i in range(LANES):
                if m.part[i] >= 0.0:
                    _write_row(c, runs, m, i, m.arg)
        moves = lanes_at(m.moves, 0, LANES)
        for j in range(n):
            y[j] = choose_above(moves, 0.0, y_new[j], y[j])
            k[0, j] = choose_above(moves, 0.0, k[6, j], k[0, j])
        for i in range(LANES):
            if m.moves[i] > 0.0:
                _go_on(c, runs, m, i)


def _begin_run(c, runs, m, i):
    """Begin the run of a lane."""
    inputs = runs.inputs[int(m.run[i])]
    prepare(c, runs, inputs)
    call(c.values, c.start, runs.work[0], inputs, runs.values)
    if c.n_at_start > 0:
        copy(runs.values[: len(c.atol)], runs.out[int(m.run[i]), 0])
    for j in range(MEMORY):
        m.memory[i, j] = 0.0
    m.memory[i, WAIT], m.memory[i, END] = LOOK, c.times[-1]
    m.stretch[i], m.change[i], m.before[i] = -1.0, 0.0, c.n_at_start
    _begin_stretch(c, runs, m, i, c.start)


def _begin_stretch(c, runs, m, i, reached):
    """Make the changes where a lane's stretch has ended, with z in `runs.values`, and begin the next one."""
    r, n, before = int(m.run[i]), len(c.atol), int(m.stretch[i])
    inputs, z, rate, s = runs.inputs[r], runs.values[:n], runs.work[3], before + 1
    is_finite = are_finite(z)
    change = make_changes(c, runs, inputs, int(m.change[i]), before, reached)
    if not is_finite or change < 0:
        _end(runs, m, i, FALLBACK)
        return
    if s == len(c.bounds):
        _finish(c, runs, m, i)
        return
    copy(c.constants[s], inputs[c.n_parameters :])
    t, end, model = c.begins[s], c.times[c.bounds[s, 1] - 1], (c.rates, inputs)
    rates_of_run(t, z, model, rate)
    if not are_finite(rate):
        _end(runs, m, i, FALLBACK)
        return
    h = first_step(rates_of_run, model, t, z, rate, end - t, c.rtol, c.atol, runs.work[2], runs.work[4])
    for j in range(c.behind):
        m.inputs[j, i] = inputs[j]
    for j in range(n):
        m.y[j, i], m.k[0, j, i] = z[j], rate[j]
    if before >= 0:
        m.before[i] += c.bounds[before, 2]
    m.stretch[i], m.change[i], m.until[i] = s, change, end
    m.t[i], m.h[i] = t, min(h, c.max_step)
    m.last[i], m.rejected[i] = SMALL, 0.0
    m.tries[i] = c.most_steps + int(min((end - t) / c.max_step, 1e7))
    _set_row(c, m, i, 0)
    if m.next[i] == t:
        _write_row(c, runs, m, i, m.y)
    _set_step(c, runs, m, i)


def _set_step(c, runs, m, i):
    """Set the next step of a lane from its desired length."""
    t, h, end = m.t[i], m.h[i], m.until[i]
    m.tries[i] -= 1.0
    is_last = t + 1.01 * h >= end and end - t <= c.max_step
    if m.tries[i] < 0.0 or (not is_last and t + 0.1 * h == t):
        _end(runs, m, i, FALLBACK)
        return
    m.ends[i] = 1.0 if is_last else 0.0
    if is_last:
        m.h[i], m.t_new[i] = end - t, end
    else:
        m.t_new[i] = t + h


def _is_accepted(c, runs, m, i):
    """Tell whether a lane's step is accepted; if not, set the next one, or end the run if it is stiff."""
    size, h = m.size[i], m.h[i]
    if not size <= 1.0:
        m.h[i], m.rejected[i] = h * shrunk(size), 1.0
        _set_step(c, runs, m, i)
        return False
    return not (is_looked_at(m.t_new[i], h, m.rejected[i] > 0.0, m.memory[i]) and _has_slowed(c, runs, m, i))


def _has_slowed(c, runs, m, i):
    """End the run of a lane if it is stiff at the end of its step; tell whether it is."""
    y, arg, k, model = runs.work[1], runs.work[2], runs.work[3:10], (c.rates, runs.inputs[int(m.run[i])])
    for j in range(len(y)):
        y[j], arg[j], k[5, j], k[6, j] = m.y_new[j, i], m.arg[j, i], m.k[5, j, i], m.k[6, j, i]
    if not is_slow(rates_of_run, model, m.t_new[i], m.h[i], y, c.n_states, c.rtol, c.atol, arg, k, m.memory[i]):
        return False
    _end(runs, m, i, STIFF)
    return True


def _set_parts(m):
    """Set the fraction of the step at which each lane's next row lies; tell whether there is any."""
    has_row = False
    for i in range(LANES):
        m.part[i] = -1.0
        if m.moves[i] > 0.0 and m.next[i] < m.t_new[i]:
            m.part[i] = (m.next[i] - m.t[i]) / m.h[i]
            has_row = True
    return has_row


def _write_row(c, runs, m, i, values):
    row = runs.out[int(m.run[i]), int(m.before[i] + m.row[i])]
    for j in range(len(values)):
        row[j] = values[j, i]
    _set_row(c, m, i, int(m.row[i]) + 1)


def _set_row(c, m, i, row):
    """Set the next row of a lane's stretch."""
    s = int(m.stretch[i])
    m.row[i], m.next[i] = row, c.times[c.bounds[s, 0] + row] if row < c.bounds[s, 2] else math.inf


def _go_on(c, runs, m, i):
    """Set a lane's next step after an accepted one, or begin the next stretch."""
    t_new, h, log_size = m.t_new[i], m.h[i], math.log(max(m.size[i], 1e-10))
    if m.next[i] == t_new:
        _write_row(c, runs, m, i, m.y)
    if m.ends[i] > 0.0:
        for j in range(len(c.atol)):
            runs.values[j] = m.y[j, i]
        _begin_stretch(c, runs, m, i, t_new)
        return
    factor = grown(log_size, m.last[i])
    h = min(h * (min(1.0, factor) if m.rejected[i] > 0.0 else factor), c.max_step)
    m.t[i], m.h[i], m.last[i], m.rejected[i] = t_new, h, max(log_size, SMALL), 0.0
    _set_step(c, runs, m, i)


def _finish(c, runs, m, i):
    """Compute the outputs of a lane's run and end it."""
    r, n = int(m.run[i]), len(c.atol)
    for j in range(len(runs.out[r])):
        row = runs.out[r, j]
        if not inner(row, row, 0, n) < math.inf:
            _end(runs, m, i, FALLBACK)
            return
        set_outputs(c, runs, runs.inputs[r], None, j, row)
    _end(runs, m, i, DONE)


def _end(runs, m, i, status):
    """End the run of a lane; until the next one begins, its steps have no length."""
    runs.ended[int(m.run[i]), 0] = status
    m.run[i], m.h[i], m.t_new[i] = -1.0, 0.0, m.t[i]
