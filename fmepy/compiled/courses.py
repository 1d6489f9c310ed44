# mypy: ignore-errors
"""What whole runs of a model go along and what happens on the way: the solver, changes of states, outputs.

The functions of a model come as addresses of C functions ``void f(double t, double* y, double* inputs, double* out)``.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from fmepy.compiled.delayed_rates import rates
from fmepy.compiled.dormand_prince import drive
from fmepy.compiled.kernels import are_finite, call, copy, inner
from fmepy.compiled.status import DONE, NOT_FINITE
from fmepy.types import Cube, IntMatrix, Matrix, Vector


class CourseTables(NamedTuple):
    """What is the same in all runs along a course, see `compiled.explicit_runs`: a model's functions, limits, times.

    Attributes
    ----------
    plan : int
        Where that of the stiff method stands.
    prepare, prepared, behind : int
        The function that computes parts of the rates from the parameters, 0 if there are none; where in the inputs
        they stand, and behind them what changes are computed from.
    together : int
        The most changes at one time that see the same state.
    n_lags : int
        Lagged values that outputs read behind the forcings.
    atol : ndarray, shape (n_z,)
    begins, times : ndarray
        Of the stretches: where they begin; the times of all, one stretch after the other.
    bounds : ndarray, shape (n_stretches, 3)
        Of each the first of its times, the one after its last, how many are rows.
    constants, forced, given : ndarray
        Inputs of each stretch, forcings at each row, what each change is computed from.
    changes : ndarray, shape (n_changes + 1, 5)
        The last is never made.
    """

    plan: int
    rates: int
    watch: int
    values: int
    outputs: int
    n_states: int
    n_parameters: int
    prepare: int
    prepared: int
    behind: int
    n_at_start: int
    together: int
    n_lags: int
    most_steps: int
    rtol: float
    max_step: float
    start: float
    atol: Vector
    rows: Vector
    begins: Vector
    times: Vector
    bounds: IntMatrix
    constants: Matrix
    forced: Matrix
    given: Matrix
    changes: IntMatrix


class RunArrays(NamedTuple):
    """Where runs read, work and write.

    Attributes
    ----------
    inputs : ndarray, shape (n_runs, n_inputs)
    work : ndarray, shape (WORK, n_z)
        That of `drive`; the state reached comes to its first row.
    seen : ndarray, shape (SEEN, n_watched)
    values : ndarray
        The present z, room for what outputs read, and for the values of changes.
    out : ndarray, shape (n_runs, n_rows, n_z + n_outputs)
    ended : ndarray, shape (n_runs, 3)
        How each run ended, its rows, the time reached.
    """

    inputs: Matrix
    work: Matrix
    seen: Matrix
    values: Vector
    out: Cube
    ended: Matrix


def prepare(c, runs, inputs):
    """Set the parts of the rates that depend on the parameters of a run alone."""
    if c.prepare != 0:
        call(c.prepare, c.start, runs.work[0], inputs, inputs[c.prepared :])


def advance(rates_of, watcher, model, c, runs, t, h, longest, wanted, rows, keep, stiff):
    """Carry z over the wanted times; return how that ended, the rows written, the time reached, the next step."""
    n = len(c.atol)
    z = runs.values[:n]
    most = c.most_steps + int(min((wanted[-1] - t) / longest, 1e7))
    status, came, reached, h = drive(
        rates_of, watcher, model, t, h, z, wanted, c.n_states, c.rtol, c.atol, longest, most, rows, runs.work,
        runs.seen, keep, stiff,
    )  # fmt: skip
    if status == DONE:
        for i in range(len(wanted)):
            # their squares may be too large with all of them finite
            if not inner(rows[i], rows[i], 0, n) < math.inf and not are_finite(rows[i, :n]):
                return NOT_FINITE, i, wanted[i], h
    copy(runs.work[0], z)
    return status, came, reached, h


def make_changes(c, runs, inputs, e, k, t):
    """Make the changes at the end of stretch k, e being the first that was not made; return the next, or -1.

    It is -1 where a value is not finite. The values of changes of one order are computed before any of them is made.
    """
    n, n_blocks, changes = len(c.atol), len(c.atol) // c.n_states, c.changes
    z = runs.values[:n]
    behind = n + c.n_parameters + c.forced.shape[1] + c.n_lags
    values = runs.values[behind:].reshape((c.together, n_blocks))
    while changes[e, 0] == k:
        end = e
        while changes[end, 0] == k and changes[end, 3] == changes[e, 3]:
            copy(c.given[end], inputs[c.behind :])
            call(changes[end, 4], t, z, inputs, values[end - e])
            if not abs(values[end - e, 0]) < math.inf:
                return -1
            end += 1
        for one in range(e, end):
            make_change(z, c.n_states, changes[one, 1], changes[one, 2], values[one - e])
        e = end
    return e


def make_change(z, n_states, state, how, values):
    """Set a state, add to it or multiply it (`explicit_runs.CHANGES`): by a value, and behind that its slopes."""
    v, old = values[0], z[state]
    z[state] = v if how == 0 else old + v if how == 1 else old * v
    for b in range(1, len(values)):
        i, dv = b * n_states + state, values[b]
        z[i] = dv if how == 0 else z[i] + dv if how == 1 else v * z[i] + old * dv


def set_outputs(c, runs, inputs, m, i, row):
    """Set the outputs of row i; of a model with delays, m, they read what the rates read there."""
    if c.outputs == 0:
        return
    n, n_forced, t, read = len(c.atol), c.forced.shape[1], c.rows[i], runs.values[len(c.atol) :]
    copy(inputs[: c.n_parameters], read)
    copy(c.forced[i], read[c.n_parameters :])
    if m is not None:
        rates(t, row[:n], m, runs.work[1])
        copy(inputs[m.tables.at : m.tables.at + c.n_lags], read[c.n_parameters + n_forced :])
    call(c.outputs, t, row[:n], read, row[n:])
