# mypy: disallow-untyped-defs=false, allow-untyped-calls
"""The loop of filters: predict from node to node, update where there are data; compiled once, for all models.

A *node* is a time at which something happens: a sample, an event, a row of the result. The loop receives a model as
small functions (see `filtering.statespace`) by their addresses and a schedule of nodes, steps and rows (see
`filtering.schedule`). `follow` is that loop, whatever is carried along: here the covariance itself, with the arithmetic
of `filtering.kernels`, and if asked its derivatives (`filtering.tangents`); in `filtering.square_root_loop` a factor.
What is here is translated, see `compiled.kernels`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from fmepy.compiled.kernels import are_finite, call, copy, new
from fmepy.filtering.arrays import copy_matrix, error_factor, identity, left_multiply, padded
from fmepy.filtering.kernels import covariance_to_next, independent_rows, sequential_update
from fmepy.filtering.loop_arguments import COVARIANCE_NOT_FINITE, STATE_NOT_FINITE, VARIANCE_NOT_POSITIVE, LoopArguments
from fmepy.filtering.moment_tangents import carry_moments
from fmepy.filtering.partials import Partials
from fmepy.filtering.tangents import Directions, change_slopes, predict_slopes, read_slopes, tangents
from fmepy.filtering.transition import TransitionWorkspace, carries_covariance, is_adaptive, transition, workspace
from fmepy.types import Matrix, Vector


def most_rows(schedule):
    """Return the largest number of rows at one node."""
    most = 1
    for node in range(schedule.times.shape[0]):
        most = max(most, schedule.row_at[node + 1] - schedule.row_at[node])
    return most


def change_state(kind, i, value, x):
    """Replace (0), add to (1) or multiply (2) state i; return what its deviations are multiplied by."""
    if kind == 0:
        x[i] = value
        return 0.0
    if kind == 1:
        x[i] += value
        return 1.0
    x[i] *= value
    return value


def follow(job, x, X, Phi, state, predict, is_sound, write_covariance, correct, change):
    """Go from node to node, and write the record; set `outcome` where it breaks down.

    x : the state;  X : dx/dx0;  Phi : the tangent of the last step;  state : what the functions work on besides:
    predict(job, state, step, x): carry it over a step; return why that is impossible, or 0;
    is_sound(state): whether the predicted covariance is finite;  write_covariance(state, P);
    correct(job, state, node, first, count, x, X): update by rows; return the one whose variance is not positive, or -1;
    change(job, state, event, x): change the state by an event; return what deviations are multiplied by.
    """
    schedule, record, outcome, n, d = job.schedule, job.record, job.outcome, x.shape[0], X.shape[1]
    tangent, work, XW = new(n, n), new(n, n), new(n, d)
    outcome[0], outcome[1], outcome[2] = -1, 0, 0
    identity(tangent)
    for node in range(schedule.times.shape[0]):
        for step in range(schedule.step_at[node], schedule.step_at[node + 1]):
            why = predict(job, state, step, x)
            if why != 0:
                outcome[0], outcome[1] = node, why
                return
            if d > 0:
                left_multiply(Phi, X, XW)
            if job.recorded:
                left_multiply(Phi, tangent, work)
        if not are_finite(x):
            outcome[0], outcome[1] = node, STATE_NOT_FINITE
            return
        if not is_sound(state):
            outcome[0], outcome[1] = node, COVARIANCE_NOT_FINITE
            return
        if job.recorded:
            copy(x, record.x_predicted[node])
            write_covariance(state, record.P_predicted[node])
            copy_matrix(tangent, record.transitions[node])
        first = schedule.row_at[node]
        count = schedule.row_at[node + 1] - first
        if count > 0:
            bad = correct(job, state, node, first, count, x, X)
            if bad >= 0:
                outcome[0], outcome[1], outcome[2] = node, VARIANCE_NOT_POSITIVE, first + bad
                return
        if job.recorded:
            copy(x, record.x_filtered[node])
            write_covariance(state, record.P_filtered[node])
            identity(tangent)
        for e in range(schedule.event_at[node], schedule.event_at[node + 1]):
            factor = change(job, state, e, x)
            if factor != 1.0:
                for j in range(d):
                    X[schedule.event_states[e], j] *= factor
                for j in range(n):
                    tangent[schedule.event_states[e], j] *= factor


class _State(NamedTuple):
    """The covariance and working arrays of the loop; `tangents`, or None. Rows of P, S, M, T, c and k are padded."""

    tangents: Any
    w: TransitionWorkspace
    P: Matrix
    Phi: Matrix
    S: Matrix
    M: Matrix
    T: Matrix
    y: Vector
    z: Vector
    H: Matrix
    sd: Vector
    delta: Vector
    errors: Vector
    variances: Vector
    rows: Matrix
    R: Matrix
    C: Matrix
    x0: Vector
    c: Vector
    k: Vector


def _predict(job, a, step, x):
    schedule, m = job.schedule, job.model
    carried = carries_covariance(m.kind)
    if a.tangents is not None and is_adaptive(m.kind):
        if not carry_moments(job, a.tangents, step, x, a.P, a.y, a.w):
            return STATE_NOT_FINITE
        copy(a.y, x)
        return 0
    if carried:
        copy_matrix(a.P, a.S)
    transition(
        m, schedule.step_times[step], schedule.step_lengths[step], schedule.step_inputs[step],
        x, job.p, a.y, a.Phi, a.S, a.w, None, None,
    )  # fmt: skip
    if carried:
        copy_matrix(a.S, a.P)
    else:
        covariance_to_next(a.P, a.Phi, a.S, a.M, a.T)
    if a.tangents is not None:
        predict_slopes(job, a.tangents, step, x, a.y, a.Phi, a.S, a.w.A[0], a.T)
    copy(a.y, x)
    return 0


def _is_sound(a):
    total = 0.0
    for i in range(a.P.shape[0]):  # what is not finite elsewhere comes to the variances
        total += 0.0 * a.P[i, i]
    return total == 0.0


def _write_covariance(a, P):
    copy_matrix(a.P, P)


def read(job, node, first, count, x, z, H, sd, delta, errors):
    """Set z, H and sd of all variables, the rows' distances from them and the sds of their errors; write the record."""
    schedule, record = job.schedule, job.record
    call(job.model.observe, schedule.times[node], x, job.p, schedule.inputs[node], z, H, sd)
    for i in range(count):
        var = schedule.row_vars[first + i]
        delta[i] = schedule.row_values[first + i] - z[var]
        errors[i] = abs(sd[var] * schedule.row_errors[first + i])
        if job.recorded:
            record.predictions[first + i] = z[var]
            record.sds[first + i] = errors[i]
            copy(H[var], record.gradients[first + i])


def _correct(job, a, node, first, count, x, X):
    variables, r = job.schedule.row_vars, a.variances
    read(job, node, first, count, x, a.z, a.H, a.sd, a.delta, a.errors)
    for i in range(count):
        r[i] = a.errors[i] * a.errors[i]
    if a.tangents is not None:
        read_slopes(job, a.tangents, node, x, a.H)
    if job.correlation.shape[0] == 0:
        return sequential_update(
            job, count, first, x, a.P, X, a.delta, a.H, variables, r, a.x0, a.c, a.k, a.sd, a.tangents
        )
    for i in range(count):
        copy(a.H[variables[first + i]], a.rows[i])
    error_factor(count, first, a.errors, job.correlation, variables, a.R, a.C)
    independent_rows(count, a.delta, a.rows, a.C, r)
    none = variables[:0]  # the rows are in order
    return sequential_update(job, count, first, x, a.P, X, a.delta, a.rows, none, r, a.x0, a.c, a.k, a.sd, None)


def _change(job, a, event, x):
    """Change a state, with its row and column of P."""
    if a.tangents is not None:
        change_slopes(job, a.tangents, event, x, a.P)
    i, n = job.schedule.event_states[event], x.shape[0]
    factor = change_state(job.schedule.event_kinds[event], i, job.event_values[event], x)
    if factor != 1.0:
        for j in range(n):
            a.P[i, j] *= factor
        for j in range(n):
            a.P[j, i] *= factor
    return factor


class TangentArguments(NamedTuple):
    """A pass with derivatives.

    Attributes
    ----------
    job : LoopArguments
    at : Directions
    nu, s : ndarray, shape (n_obs, n_par)
        The derivatives of the innovations and of their variances, to be written.
    of_steps, of_readings : Partials
        Of the model's functions.
    """

    job: LoopArguments
    at: Directions
    nu: Matrix
    s: Matrix
    of_steps: Partials
    of_readings: Partials


def run_with_tangents(whole: TangentArguments) -> None:
    """Run a filter that keeps the covariance and carries derivatives along."""
    _run(whole.job, tangents(whole.job, whole.at, whole.nu, whole.s, whole.of_steps, whole.of_readings))


def run(job: LoopArguments) -> None:
    """Run a filter that keeps the covariance."""
    _run(job, None)


def _run(job, slopes):
    m = job.model
    n, variables, most = job.x.shape[0], m.n_variables, most_rows(job.schedule)
    width = padded(n)
    a = _State(
        slopes, workspace(m.kind, n, m.n_noise, job.schedule.step_inputs.shape[2]),
        new(n, width), new(n, n), new(n, width), new(n, width), new(n, width), new(n),
        new(variables), new(variables, n), new(variables), new(most), new(most), new(most),
        new(most, n), new(most, most), new(most, most), new(n), new(width), new(width),
    )  # fmt: skip
    x, X = new(n), new(n, job.X.shape[1])  # arrays of its own: LLVM knows that they do not overlap
    copy(job.x, x)
    copy_matrix(job.P, a.P)
    copy_matrix(job.X, X)
    follow(job, x, X, a.Phi, a, _predict, _is_sound, _write_covariance, _correct, _change)
