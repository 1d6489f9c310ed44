# mypy: disallow-untyped-defs=false, allow-untyped-calls
# ruff: noqa: N815    # dP and dH, the derivatives of P and H
"""The derivatives of innovations and their variances to parameters, computed by the plain loop along with a pass.

With a dot for the derivative to one parameter, and Phi, S of `filtering.transition`::

    predict     P. <- Phi P. Phi' + Phi. P Phi' + (Phi. P Phi')' + S.
    update      c. = P. h' + P h.',  s. = h. c + h c. + r.,  nu. = delta. - h. (x - x(n|n-1)) - h (x. - x.(n|n-1))
                x. <- x. + (c. - k s.) nu / s + k nu.,   P. <- P. - w k' - k w'  with w = c. - k s. / 2
                (of a limit with nu and the share of `filtering.limits` in the place of nu and 1)

The factors of the recursion are those of the pass itself, shared by all parameters, and the products of the P. run over
all of them at once: a parameter costs half a pass or less, where central differences of passes cost two. What is the
model's own follows from partial derivatives (`filtering.partials`), of an adaptive method in its rates
(`filtering.moment_tangents`). Exact transitions are differenced once for each length of a step; those of Runge and
Kutta along (x., 1): by two points of a parameter, theta + ahead and theta + behind, one of which may be theta itself.
"""

from __future__ import annotations

from typing import NamedTuple

from fmepy.compiled.kernels import call, copy, new
from fmepy.filtering.arrays import (
    add_multiple,
    add_multiples,
    are_equal,
    are_equal_vectors,
    clear,
    copy_matrix,
    move_vector,
    padded,
)
from fmepy.filtering.limits import differentiate_moments
from fmepy.filtering.moment_tangents import MomentWorkspace, moment_workspace
from fmepy.filtering.partials import OF_SLOPE, OF_VALUE, Partials, add_along, multiply_directions, partial
from fmepy.filtering.transition import (
    ADAPTIVE,
    DIFFERENCE,
    EULER,
    EXACT,
    MOMENTS,
    TransitionWorkspace,
    exact_parts,
    factor_of_noise,
    is_adaptive,
    transition,
    workspace,
)
from fmepy.types import Cube, Matrix, Vector

MOST_LENGTHS = 4
"""Lengths of exact steps whose derivatives are stored."""
STEPS_WITH_PARTIALS = (DIFFERENCE, EULER, ADAPTIVE, MOMENTS)
"""Kinds of steps whose derivatives follow from those of the model's functions; others are differenced."""
EXACT_STEPS = (*STEPS_WITH_PARTIALS, EXACT)
"""Kinds whose derivatives are exact, but for rounding."""


class Directions(NamedTuple):
    """Parameters to which derivatives are taken, one a row.

    Attributes
    ----------
    ahead, behind : ndarray, shape (n_par,)
        The points of differences, as distances from theta; 0: theta itself.
    p_ahead, p_behind : ndarray, shape (n_par, n_input)
        What the model's functions see there.
    events : ndarray, shape (n_par, n_event)
        Derivatives of the values of events.
    x : ndarray, shape (n_par, n)
    P : ndarray, shape (n_par, n, n)
        Derivatives of the start.
    """

    ahead: Vector
    behind: Vector
    p_ahead: Matrix
    p_behind: Matrix
    events: Matrix
    x: Matrix
    P: Cube


def _predict_slopes(Phi, dP, source, M):
    """Set dP to Phi dP Phi' + source, of all parameters, lower triangles; clear the source."""
    n = Phi.shape[0]
    for i in range(n):
        clear(M)
        for k in range(n):
            f = Phi[i, k]
            if f != 0.0:
                for j in range(n):
                    add_multiple(M[j], f, dP[max(k, j), min(k, j)])
        for j in range(i + 1):
            for k in range(n):
                f = Phi[j, k]
                if f != 0.0:
                    add_multiple(source[i, j], f, M[k])
    for i in range(n):
        for j in range(i + 1):
            move_vector(source[i, j], dP[i, j])


def _difference_quotients(q, inverse, Phi, S, Phi2, S2, dPhi, nonzero, source):
    """Set Phi. of parameter q where it is not zero, and mark that in `nonzero`; set the source to S., lower part."""
    n = Phi.shape[0]
    for i in range(n):
        if not are_equal_vectors(Phi[i], Phi2[i]):
            for j in range(n):
                f = Phi[i, j] - Phi2[i, j]
                if f != 0.0:
                    dPhi[i, j, q] = f * inverse
                    nonzero[i, j] = 1.0
    if not are_equal(S, S2):
        for i in range(n):
            for j in range(i + 1):
                source[i, j, q] = (S[i, j] - S2[i, j]) * inverse


def _add_tangent_terms(dPhi, nonzero, G, source):
    """Add Phi. G + (Phi. G)' to the source of all parameters, G = P Phi'."""
    n = nonzero.shape[0]
    for i in range(n):
        for k in range(n):
            if nonzero[i, k] != 0.0:
                for j in range(n):
                    add_multiple(source[max(i, j), min(i, j)], G[k, j] * (2.0 if i == j else 1.0), dPhi[i, k])


def _shift(x, distance, dx, q, y):
    for i in range(x.shape[0]):
        y[i] = x[i] + distance * dx[i, q]


def _step_slopes(job, t, step, x, Phi, A):
    """Set dy, Phi. and S. over a step whose next state is x + h f, or f: from the partial derivatives of the model."""
    schedule, d, dx, dp, n = job.schedule, t.of_steps, t.dx, t.dp, x.shape[0]
    h, u = schedule.step_lengths[step], schedule.step_inputs[step]
    width, spread = h if job.model.kind == EULER else 1.0, factor_of_noise(job.model.kind, job.model.per_step, h)
    call(d.function, schedule.step_times[step], h, x, job.p, u[0], d.values)
    multiply_directions(Phi, dx, t.dy)
    for k in range(d.places.shape[0]):
        value, what, i, j, variable = partial(d, k)
        if what == OF_VALUE:
            add_along(t.dy[i], width * value, variable, dx, dp)
        elif what == OF_SLOPE:
            add_along(t.dPhi[i, j], width * value, variable, dx, dp)
            t.nonzero[i, j] = 1.0
        else:
            for m in range(n):
                f = spread * spread * value * A[m, j]
                if f != 0.0:
                    add_along(t.source[max(i, m), min(i, m)], f * (2.0 if i == m else 1.0), variable, dx, dp)


class ExactSlopes(NamedTuple):
    """Derivatives of exact transitions, of lengths of steps that came last.

    Attributes
    ----------
    lengths, known : ndarray, shape (MOST_LENGTHS,), (1,)
        The lengths, and how many of them were computed.
    parts : ndarray, shape (MOST_LENGTHS (2 n + 1), n, width)
        Of Phi, S and the shift, as `transition.exact_parts` returns them.
    nonzero : ndarray, shape (MOST_LENGTHS n, n)
        Not 0 where Phi. is not.
    sides : ndarray, shape (2, 2 n + 1, n)
        Working array: the parts ahead and behind.
    """

    lengths: Vector
    known: Vector
    parts: Cube
    nonzero: Matrix
    sides: Cube


def _exact_slopes(job, t, step, x, Phi, G):
    """Set dy and the source over an exact step; the parts that depend on its length alone are computed once."""
    n, h, e, slot = x.shape[0], job.schedule.step_lengths[step], t.exact, -1
    for i in range(MOST_LENGTHS):
        if e.lengths[i] == h:
            slot = i
    is_new = slot < 0
    if is_new:
        slot = int(e.known[0]) % MOST_LENGTHS
        e.known[0] += 1.0
        e.lengths[slot] = h
    rows = 2 * n + 1
    D, nonzero = e.parts[slot * rows : (slot + 1) * rows], e.nonzero[slot * n : (slot + 1) * n]
    if is_new:
        _difference_exact_parts(job, t, step, D, nonzero)
    multiply_directions(Phi, t.dx, t.dy)
    for i in range(n):
        add_multiple(t.dy[i], 1.0, D[2 * n, i])
        for j in range(n):
            if nonzero[i, j] != 0.0:
                add_multiple(t.dy[i], x[j], D[i, j])
        for j in range(i + 1):
            add_multiple(t.source[i, j], 1.0, D[n + i, j])
    _add_tangent_terms(D, nonzero, G, t.source)


def _difference_exact_parts(job, t, step, D, nonzero):
    """Set the derivatives of the parts of an exact transition, by differences."""
    schedule, n, w, E = job.schedule, t.x2.shape[0], t.ahead.w, t.exact.sides
    time = schedule.step_times[step]
    clear(nonzero)
    for i in range(n):
        t.x2[i] = 0.0  # where f = b
    for q in range(t.at.ahead.shape[0]):
        for side in range(2):
            p = t.at.p_ahead[q] if side == 0 else t.at.p_behind[q]
            call(job.model.advance, time, 0.0, t.x2, p, schedule.step_inputs[step, 0], w.f[0], w.F[0], w.A[0])
            exact_parts(w.F[0], w.f[0], w.A[0], schedule.step_lengths[step], E[side], w.F[1], w.F[2])
        for i in range(D.shape[0]):
            for j in range(n):
                D[i, j, q] = (E[0, i, j] - E[1, i, j]) / (t.at.ahead[q] - t.at.behind[q])
                if i < n and D[i, j, q] != 0.0:
                    nonzero[i, j] = 1.0


class _Moments(NamedTuple):
    """The result of a step from one point."""

    w: TransitionWorkspace
    y: Vector
    Phi: Matrix
    S: Matrix


class Tangents(NamedTuple):
    """The derivatives of a pass, and its working arrays."""

    at: Directions
    nu: Matrix
    s: Matrix
    ahead: _Moments
    behind: _Moments
    exact: ExactSlopes
    dP: Cube
    source: Cube
    M: Matrix
    dPhi: Cube
    nonzero: Matrix
    dx: Matrix
    dy: Matrix
    x2: Vector
    dz: Matrix
    dsd: Matrix
    dH: Cube
    varies: Vector
    dx0: Matrix
    dc: Matrix
    de: Vector
    ds: Vector
    dw: Vector
    moments: MomentWorkspace
    dp: Matrix
    of_steps: Partials
    of_readings: Partials


def _step_beside(job, t, step, x, y, Phi, S, A, distance, q, side, to):
    """Take a step from theta + distance along parameter q, x along with it.

    y, Phi, S are that from theta itself, A the factor of S.
    """
    if distance == 0.0:
        copy(y, to.y)
        copy_matrix(Phi, to.Phi)
        copy_matrix(S, to.S)
        return
    schedule = job.schedule
    _shift(x, distance, t.dx, q, t.x2)
    transition(
        job.model, schedule.step_times[step], schedule.step_lengths[step], schedule.step_inputs[step], t.x2,
        t.at.p_ahead[q] if side == 0 else t.at.p_behind[q], to.y, to.Phi, to.S, to.w, A, S,
    )  # fmt: skip


def predict_slopes(job, t, step, x, y, Phi, S, A, G):
    """Carry the derivatives over a step from x to y, with tangent Phi and noise S of the factor A.

    G is P Phi', of the P before.
    """
    if t.of_steps.function != 0:
        _step_slopes(job, t, step, x, Phi, A)
    elif job.model.kind == EXACT:
        _exact_slopes(job, t, step, x, Phi, G)
    else:
        _differences_of_step(job, t, step, x, y, Phi, S, A)
    if job.model.kind != EXACT:
        _add_tangent_terms(t.dPhi, t.nonzero, G, t.source)
        for i in range(x.shape[0]):
            for j in range(x.shape[0]):
                if t.nonzero[i, j] != 0.0:
                    t.nonzero[i, j] = 0.0
                    for q in range(t.dPhi.shape[2]):
                        t.dPhi[i, j, q] = 0.0
    _predict_slopes(Phi, t.dP, t.source, t.M)
    copy_matrix(t.dy, t.dx)


def _differences_of_step(job, t, step, x, y, Phi, S, A):
    ahead, behind = t.ahead, t.behind
    for q in range(t.at.ahead.shape[0]):
        inverse = 1.0 / (t.at.ahead[q] - t.at.behind[q])
        _step_beside(job, t, step, x, y, Phi, S, A, t.at.ahead[q], q, 0, ahead)
        _step_beside(job, t, step, x, y, Phi, S, A, t.at.behind[q], q, 1, behind)
        for i in range(x.shape[0]):
            t.dy[i, q] = (ahead.y[i] - behind.y[i]) * inverse
        _difference_quotients(q, inverse, ahead.Phi, ahead.S, behind.Phi, behind.S, t.dPhi, t.nonzero, t.source)


def read_slopes(job, t, node, x, H):
    """Set the derivatives of readings, H and sds at a node."""
    schedule, d, dx, dp = job.schedule, t.of_readings, t.dx, t.dp
    call(d.function, schedule.times[node], x, job.p, schedule.inputs[node], d.values)
    copy_matrix(dx, t.dx0)
    clear(t.dsd)
    multiply_directions(H, dx, t.dz)
    for i in range(t.varies.shape[0]):
        if t.varies[i] != 0.0:
            clear(t.dH[i])
        t.varies[i] = 0.0
    for k in range(d.places.shape[0]):
        value, what, i, j, variable = partial(d, k)
        if what == OF_VALUE:
            add_along(t.dz[i], value, variable, dx, dp)
        elif what == OF_SLOPE:
            add_along(t.dH[i, j], value, variable, dx, dp)
            t.varies[i] = 1.0
        else:
            add_along(t.dsd[i], value, variable, dx, dp)


def update_slopes(job, t, row, sd, H, x, x0, P, c, k, e, s, jump, share):
    """Write nu. and s. of a row, and update x. and P.; x and P are those before the update, x0 before all rows.

    jump, share : the result of `filtering.limits.matched_moments` for the innovation e
    """
    var, n, n_par = job.schedule.row_vars[row], x.shape[0], t.at.ahead.shape[0]
    scale, varies_here = job.schedule.row_errors[row] * job.schedule.row_errors[row], t.varies[var] != 0.0
    is_limit = job.schedule.row_marks[row] != 0
    dx, dP, dH, dc, de, ds, dw = t.dx, t.dP, t.dH, t.dc, t.de, t.ds, t.dw
    for q in range(dc.shape[1]):
        de[q], ds[q] = -t.dz[var, q], 2.0 * sd[var] * t.dsd[var, q] * scale
    clear(dc)
    for j in range(n):
        f, moved = H[j], x[j] - x0[j]
        if f != 0.0:
            add_multiples(de, -f, dx[j], f, t.dx0[j])
            for i in range(n):
                add_multiple(dc[i], f, dP[max(i, j), min(i, j)])
        if varies_here:
            for q in range(n_par):
                de[q] -= dH[var, j, q] * moved
                for i in range(n):
                    dc[i, q] += dH[var, j, q] * P[j, i]
    for j in range(n):
        if H[j] != 0.0 or varies_here:
            add_multiples(ds, H[j], dc[j], c[j], dH[var, j])
    for q in range(n_par):
        t.nu[row, q], t.s[row, q], dw[q] = de[q], ds[q], 0.0
    differentiate_moments(job.schedule.row_marks[row], e, s, de, ds, dw)
    moved = jump / s
    for i in range(n):
        add_multiples(dx[i], moved, dc[i], -moved * k[i], ds)
        add_multiple(dx[i], k[i], de)
        add_multiple(dc[i], -0.5 * k[i], ds)  # w
        t.x2[i] = -share * k[i]
    for i in range(n):
        for j in range(i + 1):
            add_multiples(dP[i, j], t.x2[j], dc[i], t.x2[i], dc[j])
    if is_limit:
        for i in range(n):
            for j in range(i + 1):
                add_multiple(dP[i, j], -s * k[i] * k[j], dw)


def change_slopes(job, t, event, x, P):
    """Change the derivatives by an event whose value has derivatives; x and P are those before it."""
    kind, i, value = job.schedule.event_kinds[event], job.schedule.event_states[event], job.event_values[event]
    dx, dP, factor = t.dx, t.dP, 0.0 if kind == 0 else value
    for q in range(t.at.ahead.shape[0]):
        slope = t.at.events[q, event]
        if kind == 1:
            dx[i, q] += slope
        else:  # P's row is multiplied by the value, or by zero
            along = 0.0 if kind == 0 else slope
            for j in range(dx.shape[0]):
                low, high = max(i, j), min(i, j)
                again = factor if i == j else 1.0
                dP[low, high, q] = factor * again * dP[low, high, q] + along * P[i, j] * (
                    2.0 * factor if i == j else 1.0
                )
            dx[i, q] = factor * dx[i, q] + (slope if kind == 0 else slope * x[i])


def tangents(job, at, nu, s, of_steps, of_readings):
    """Return the derivatives at the start of a pass; those of innovations and variances go to nu and s."""
    m, n, n_par = job.model, job.x.shape[0], at.ahead.shape[0]
    width, lengths = padded(n_par), MOST_LENGTHS if m.kind == EXACT else 0
    variables, own = m.n_variables, workspace(m.kind, n, m.n_noise, job.schedule.step_inputs.shape[2])
    t = Tangents(
        at, nu, s, _Moments(own, new(n), new(n, n), new(n, n)), _Moments(own, new(n), new(n, n), new(n, n)),
        ExactSlopes(new(lengths), new(1), new(lengths * (2 * n + 1), n, width), new(lengths * n, n),
                    new(2, 2 * n + 1, n)),
        new(n, n, width), new(n, n, width), new(n, width), new(n, n, width), new(n, n),
        new(n, width), new(n, width), new(n),
        new(variables, width), new(variables, width), new(variables, n, width), new(variables),
        new(n, width), new(n, width), new(width), new(width), new(width),
        moment_workspace(n, width if is_adaptive(m.kind) else 0),
        new(job.p.shape[0], width), of_steps, of_readings,
    )  # fmt: skip
    for i in range(lengths):
        t.exact.lengths[i] = -1.0  # no step is so long
    for q in range(n_par):
        for i in range(job.p.shape[0]):
            t.dp[i, q] = (at.p_ahead[q, i] - at.p_behind[q, i]) / (at.ahead[q] - at.behind[q])
        for i in range(n):
            t.dx[i, q] = at.x[q, i]
            for j in range(i + 1):
                t.dP[i, j, q] = at.P[q, i, j]
    return t
