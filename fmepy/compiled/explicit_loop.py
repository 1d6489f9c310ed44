# mypy: ignore-errors
"""Kernels that run one model as a whole, in one call without Python's lock.

A run computes the initial values, then for each stretch of its course calls the solver and applies the changes at its
end, and finally computes the outputs of all rows. Models with delays are run by `compiled.delay_loop`.
"""

from __future__ import annotations

from fmepy.compiled.courses import CourseTables, RunArrays, advance, make_changes, prepare, set_outputs
from fmepy.compiled.delay_loop import STRETCH, DelayWorkspace, continue_run, model_of
from fmepy.compiled.delayed_rates import DelayTables, rates, watch
from fmepy.compiled.dialect.types import structure
from fmepy.compiled.dormand_prince import LOOK
from fmepy.compiled.kernels import are_finite, call, copy, integers, new
from fmepy.compiled.rosenbrock import ALWAYS, END, IS_KNOWN, IS_STIFF, MEMORY, WAIT, Stiff, is_on
from fmepy.compiled.status import DONE, NO_ROOM, NO_VALUE


def rates_of(t, y, model, out):
    """Set the rates."""
    call(model[0], t, y, model[2], out)


def watch_of(t, y, model, out):
    """Set the conditions."""
    call(model[1], t, y, model[2], out)


def run_once(watcher, keep, steps, c, runs, inputs, rows, stiff):
    """Run a model without delays once; return its status, the rows written and the time reached.

    `keep` receives every step; in its `model` the inputs are followed by `steps`, the stretch and `stiff.room`.
    """
    n, row, reached, h = len(c.atol), c.n_at_start, c.start, 0.0  # h = 0: the solver chooses the first step
    z = runs.values[:n]
    prepare(c, runs, inputs)
    if c.values != 0:
        call(c.values, c.start, runs.work[0], inputs, runs.values)
        if not are_finite(z):
            return NO_VALUE, row, reached
    if row > 0:
        copy(z, rows[0])
    change = make_changes(c, runs, inputs, 0, -1, reached)
    for k in range(len(c.bounds)):
        if change < 0:
            return NO_VALUE, row, reached
        copy(c.constants[k], inputs[c.n_parameters :])
        status, came, reached, h = advance(
            rates_of, watcher, (c.rates, c.watch, inputs, steps, k, stiff.room), c, runs, c.begins[k], h,
            c.max_step, c.times[c.bounds[k, 0] : c.bounds[k, 1]], rows[row:], keep, stiff,
        )  # fmt: skip
        row += c.bounds[k, 2] if status == DONE else came
        if status != DONE:
            return status, row, reached
        before = change
        change = make_changes(c, runs, inputs, change, k, reached)
        if change != before or not is_on(stiff):  # choose the first step of the next stretch anew
            h = 0.0
    if change < 0:
        return NO_VALUE, row, reached
    for i in range(len(rows)):
        set_outputs(c, runs, inputs, None, i, rows[i])
    return DONE, row, reached


def begin_stiff(stiff, c, plan):
    """Reset the memory of the stiff method at the start of a run."""
    for i in range(MEMORY):
        stiff.room[i] = 0.0
    stiff.room[WAIT] = LOOK
    if plan[2] > 0:  # algebraic states have no rates
        stiff.room[IS_STIFF] = stiff.room[ALWAYS] = 1.0
        stiff.room[IS_KNOWN] = -1.0
    if len(c.times) > 0:
        stiff.room[END] = c.times[-1]


def _runs(watcher, c, runs):
    plan = integers(c.plan, 3)
    stiff = Stiff(plan[0], c.plan, new(plan[1]))
    for r in range(len(runs.inputs)):
        begin_stiff(stiff, c, plan)
        ended = runs.ended[r]
        ended[0], ended[1], ended[2] = run_once(watcher, None, None, c, runs, runs.inputs[r], runs.out[r], stiff)


def run_smooth(c: CourseTables, runs: RunArrays):
    """Run a model many times."""
    _runs(None, c, runs)


def run_watched(c: CourseTables, runs: RunArrays):
    """Run a model many times, each up to the first crossing of a condition."""
    _runs(watch_of, c, runs)


def run_delayed(c: CourseTables, runs: RunArrays, d: DelayTables, w: DelayWorkspace, first: int):
    """Run a model with delays many times, from run `first` on, up to one whose steps the workspace cannot hold."""
    for r in range(first, len(runs.inputs)):
        w.progress[STRETCH], ended = -1.0, runs.ended[r]
        ended[0], ended[1], ended[2] = continue_run(None, c, runs, model_of(c, d, w, runs.inputs[r]), w, runs.out[r])
        if ended[0] == NO_ROOM:
            break


def run_to_hit(c: CourseTables, runs: RunArrays, d: DelayTables, w: DelayWorkspace):
    """Continue a model with delays to its start, the next hit of a root, or its end; `values` begin with z there."""
    ended = runs.ended[0]
    ended[0], ended[1], ended[2] = continue_run(watch, c, runs, model_of(c, d, w, runs.inputs[0]), w, runs.out[0])


def rates_at_hit(c: CourseTables, runs: RunArrays, d: DelayTables, w: DelayWorkspace, t: float):
    """Set the fourth row of `work` to the rates of the state in its third row, at a pause of a run."""
    rates(t, runs.work[2], model_of(c, d, w, runs.inputs[0]), runs.work[3])


def run_courses(table: int, first: int, last: int):
    """Run several models, each along its own course; rows first to last - 1 of the table hold their addresses."""
    T = integers(table, last, 2)
    for i in range(first, last):
        _runs(None, structure(T[i, 0], CourseTables), structure(T[i, 1], RunArrays))
