# mypy: ignore-errors
"""Kernels of whole runs: tables of a course, and the steps along it (solver, changes of states, outputs).

The functions of a model are addresses of C functions ``void f(double t, double* y, double* inputs, double* out)``.
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
    """Everything that all runs along a course share, see `compiled.explicit_runs`: functions, limits, times.

    Attributes
    ----------
    plan : int
        Address of the plan of the stiff method.
    prepare, prepared, behind : int
        The function that computes parts of the rates from the parameters (0: none); the index among the inputs where
        these parts begin, and the index where the inputs of changes begin.
    together : int
        The most changes at one time that see the same state.
    n_lags : int
        Number of lagged values, which follow the forcings in the inputs of the outputs.
    atol : ndarray, shape (n_z,)
    begins, times : ndarray
        Start of each stretch; the times of all stretches, one after another.
    bounds : ndarray, shape (n_stretches, 3)
        For each stretch the index of its first time, the index after its last, and how many are rows.
    constants, forced, change_inputs : ndarray
        Inputs of each stretch, forcings at each row, further inputs of each change.
    changes : ndarray, shape (n_changes + 1, 5)
        See `explicit_runs.Course`; the last is a sentinel that is never applied.
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
    change_inputs: Matrix
    changes: IntMatrix


class RunArrays(NamedTuple):
    """Arrays that runs read, work in and write.

    Attributes
    ----------
    inputs : ndarray, shape (n_runs, n_inputs)
    work : ndarray, shape (WORK, n_z)
        Working array of `drive`; its first row becomes the state reached.
    g : ndarray, shape (WATCH_ROWS, n_watched)
        Values of the conditions, see `compiled.crossings`.
    values : ndarray
        The present z, then room for the inputs of outputs, and for the values of changes.
    out : ndarray, shape (n_runs, n_rows, n_z + n_outputs)
    ended : ndarray, shape (n_runs, 3)
        For each run its status, the number of rows written, the time reached.
    """

    inputs: Matrix
    work: Matrix
    g: Matrix
    values: Vector
    out: Cube
    ended: Matrix


def prepare(c, runs, inputs):
    """Compute the parts of the rates that depend on the parameters alone, once a run."""
    if c.prepare != 0:
        call(c.prepare, c.start, runs.work[0], inputs, inputs[c.prepared :])


def advance(rates_of, watcher, model, c, runs, t, h, longest, wanted, rows, keep, stiff):
    """Integrate z over the wanted times; return status, rows written, time reached and next step."""
    n = len(c.atol)
    z = runs.values[:n]
    most = c.most_steps + int(min((wanted[-1] - t) / longest, 1e7))
    status, came, reached, h = drive(
        rates_of, watcher, model, t, h, z, wanted, c.n_states, c.rtol, c.atol, longest, most, rows, runs.work,
        runs.g, keep, stiff,
    )  # fmt: skip
    if status == DONE:
        for i in range(len(wanted)):
            # the squares may overflow although all values are finite
            if not inner(rows[i], rows[i], 0, n) < math.inf and not are_finite(rows[i, :n]):
                return NOT_FINITE, i, wanted[i], h
    copy(runs.work[0], z)
    return status, came, reached, h


def make_changes(c, runs, inputs, e, k, t):
    """Apply the changes at the end of stretch k, from change e on; return the next, or -1 if a value is not finite.

    The values of all changes of one order are computed before any of them is applied.
    """
    n, n_blocks, changes = len(c.atol), len(c.atol) // c.n_states, c.changes
    z = runs.values[:n]
    behind = n + c.n_parameters + c.forced.shape[1] + c.n_lags
    values = runs.values[behind:].reshape((c.together, n_blocks))
    while changes[e, 0] == k:
        end = e
        while changes[end, 0] == k and changes[end, 3] == changes[e, 3]:
            copy(c.change_inputs[end], inputs[c.behind :])
            call(changes[end, 4], t, z, inputs, values[end - e])
            if not abs(values[end - e, 0]) < math.inf:
                return -1
            end += 1
        for one in range(e, end):
            make_change(z, c.n_states, changes[one, 1], changes[one, 2], values[one - e])
        e = end
    return e


def make_change(z, n_states, state, how, values):
    """Replace a state, add to it or multiply it (`explicit_runs.CHANGES`); `values` are a value and its slopes."""
    v, old = values[0], z[state]
    z[state] = v if how == 0 else old + v if how == 1 else old * v
    for b in range(1, len(values)):
        i, dv = b * n_states + state, values[b]
        z[i] = dv if how == 0 else z[i] + dv if how == 1 else v * z[i] + old * dv


def set_outputs(c, runs, inputs, m, i, row):
    """Compute the outputs of row i; with delays (m is not None) they also read the lagged values there."""
    if c.outputs == 0:
        return
    n, n_forced, t, read = len(c.atol), c.forced.shape[1], c.rows[i], runs.values[len(c.atol) :]
    copy(inputs[: c.n_parameters], read)
    copy(c.forced[i], read[c.n_parameters :])
    if m is not None:
        rates(t, row[:n], m, runs.work[1])
        copy(inputs[m.tables.first_lag : m.tables.first_lag + c.n_lags], read[c.n_parameters + n_forced :])
    call(c.outputs, t, row[:n], read, row[n:])
