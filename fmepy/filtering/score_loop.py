# mypy: disallow-untyped-defs=false, allow-untyped-calls
# ruff: noqa: N815    # dP and dH, the derivatives of P and H
"""A pass of a filter with the derivatives of its innovations and their variances to parameters.

With a dot for the derivative to one parameter, and Phi, S of `filtering.transition`::

    predict     P. <- Phi P. Phi' + Phi. P Phi' + (Phi. P Phi')' + S.
    update      c. = P. h' + P h.',  s. = h. c + h c. + r.,  nu. = delta. - h. (x - x(n|n-1)) - h (x. - x.(n|n-1))
                x. <- x. + (c. - k s.) nu / s + k nu.,   P. <- P. - w k' - k w'  with w = c. - k s. / 2

The factors of the recursion are those of the pass itself, shared by all parameters, and the products of the P. run over
all of them at once: a parameter costs half a pass or less, where central differences of passes cost two. Only what is
the model's own (x, Phi, S of a step; readings, H and sds) is differenced, along (x., 1): by two points of a parameter,
theta + ahead and theta + behind, one of which may be theta itself.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fmepy.compiled.kernels import call, new
from fmepy.filtering.arrays import copied, copied_vector
from fmepy.filtering.kernels import covariance_to_next
from fmepy.filtering.loop import change_state, follow
from fmepy.filtering.loop_arguments import LoopArguments
from fmepy.filtering.transition import EXACT, TransitionSpace, space, transition
from fmepy.types import Cube, Matrix, Vector


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


def _predicted(Phi, dP, source, M):
    """Set dP to Phi dP Phi' + source, of all parameters, lower triangles."""
    n, n_par = Phi.shape[0], dP.shape[2]
    for i in range(n):
        for j in range(n):
            for q in range(n_par):
                M[i, j, q] = 0.0
        for k in range(n):
            f = Phi[i, k]
            if f != 0.0:
                for j in range(n):
                    a, b = max(k, j), min(k, j)
                    for q in range(n_par):
                        M[i, j, q] += f * dP[a, b, q]
    for i in range(n):
        for j in range(i + 1):
            for q in range(n_par):
                dP[i, j, q] = source[i, j, q]
            for k in range(n):
                f = Phi[j, k]
                if f != 0.0:
                    for q in range(n_par):
                        dP[i, j, q] += f * M[i, k, q]


def _source(q, width, Phi, S, Phi2, S2, G, D, source):
    """Set the source of parameter q, Phi. G + (Phi. G)' + S., G = P Phi'."""
    n = Phi.shape[0]
    for i in range(n):
        for j in range(n):
            D[i, j] = 0.0
        for k in range(n):
            f = (Phi[i, k] - Phi2[i, k]) / width
            if f != 0.0:
                for j in range(n):
                    D[i, j] += f * G[k, j]
    for i in range(n):
        for j in range(i + 1):
            source[i, j, q] = D[i, j] + D[j, i] + (S[i, j] - S2[i, j]) / width


def _shifted(x, distance, dx, q, y):
    for i in range(x.shape[0]):
        y[i] = x[i] + distance * dx[i, q]


def _recall(w, kept, at):
    """Give an exact transition its last one at these parameters; `kept` is empty for other kinds."""
    if kept.shape[0] > 0:
        for i in range(kept.shape[1]):
            for j in range(kept.shape[2]):
                w.exact[0, i, j] = kept[at, i, j]
        w.last[1] = 1.0


def _remember(w, kept, at):
    if kept.shape[0] > 0:
        slot = int(w.last[1]) - 1
        for i in range(kept.shape[1]):
            for j in range(kept.shape[2]):
                kept[at, i, j] = w.exact[slot, i, j]


class ScoreJob(NamedTuple):
    """A pass with derivatives: of the pass itself nothing is kept.

    Attributes
    ----------
    job : Job
    at : Directions
    nu, s : ndarray, shape (n_obs, n_par)
        Derivatives of the innovations and of their variances: the result.
    """

    job: LoopArguments
    at: Directions
    nu: Matrix
    s: Matrix


class _Moments(NamedTuple):
    """A step from one point."""

    w: TransitionSpace
    y: Vector
    Phi: Matrix
    S: Matrix


class _State(NamedTuple):
    """The pass, its derivatives, and where the loop works."""

    at: Directions
    nu: Matrix
    s: Matrix
    here: _Moments
    ahead: _Moments
    behind: _Moments
    kept: Cube
    P: Matrix
    dP: Cube
    source: Cube
    M: Cube
    dx: Matrix
    dy: Matrix
    x2: Vector
    G: Matrix
    D: Matrix
    z: Matrix
    sd: Matrix
    H: Cube
    dz: Matrix
    dH: Cube
    dsd: Matrix
    bends: Vector
    c: Vector
    k: Vector
    x0: Vector
    dx0: Matrix
    dc: Matrix
    de: Vector
    ds: Vector


def _moments(w, n):
    return _Moments(w, new(n), new(n, n), new(n, n))


def _taken(job, a, step, x, distance, q, side, to):
    """Take a step from theta + distance along parameter q, x along with it."""
    if distance == 0.0:
        copied_vector(a.here.y, to.y)
        copied(a.here.Phi, to.Phi)
        copied(a.here.S, to.S)
        return
    schedule = job.schedule
    _shifted(x, distance, a.dx, q, a.x2)
    _recall(to.w, a.kept, 2 * q + side)
    transition(
        job.model, schedule.step_times[step], schedule.step_lengths[step], schedule.step_inputs[step], a.x2,
        a.at.p_ahead[q] if side == 0 else a.at.p_behind[q], to.y, to.Phi, to.S, to.w,
    )  # fmt: skip
    _remember(to.w, a.kept, 2 * q + side)


def _predict(job, a, step, x):
    """Carry the state, P and all derivatives over a step."""
    schedule, n, n_par, here, P, G, D = job.schedule, x.shape[0], a.at.ahead.shape[0], a.here, a.P, a.G, a.D
    t, h, u = schedule.step_times[step], schedule.step_lengths[step], schedule.step_inputs[step]
    transition(job.model, t, h, u, x, job.p, here.y, here.Phi, here.S, here.w)
    covariance_to_next(P, here.Phi, here.S, D, G)  # G is P Phi' then, of the P before
    for q in range(n_par):
        ahead, behind, width = a.ahead, a.behind, a.at.ahead[q] - a.at.behind[q]
        _taken(job, a, step, x, a.at.ahead[q], q, 0, ahead)
        _taken(job, a, step, x, a.at.behind[q], q, 1, behind)
        for i in range(n):
            a.dy[i, q] = (ahead.y[i] - behind.y[i]) / width
        _source(q, width, ahead.Phi, ahead.S, behind.Phi, behind.S, G, D, a.source)
    _predicted(here.Phi, a.dP, a.source, a.M)
    copied_vector(here.y, x)
    copied(a.dy, a.dx)
    return 0


def _is_sound(a):
    return True  # what is not finite comes to the variances


def _write_covariance(a, P):
    copied(a.P, P)


def _read(job, a, node, x):
    """Set readings, H and sds with their derivatives."""
    schedule, n, n_par, m = job.schedule, x.shape[0], a.at.ahead.shape[0], a.bends.shape[0]
    t, u, z, H, sd = schedule.times[node], schedule.inputs[node], a.z, a.H, a.sd
    call(job.model.observe, t, x, job.p, u, z[0], H[0], sd[0])
    for i in range(m):
        a.bends[i] = 0.0
    for q in range(n_par):
        width = a.at.ahead[q] - a.at.behind[q]
        _shifted(x, a.at.ahead[q], a.dx, q, a.x2)
        call(job.model.observe, t, a.x2, a.at.p_ahead[q], u, z[1], H[1], sd[1])
        _shifted(x, a.at.behind[q], a.dx, q, a.x2)
        call(job.model.observe, t, a.x2, a.at.p_behind[q], u, z[2], H[2], sd[2])
        for i in range(m):
            a.dz[i, q], a.dsd[i, q] = (z[1, i] - z[2, i]) / width, (sd[1, i] - sd[2, i]) / width
            for j in range(n):
                bend = H[1, i, j] - H[2, i, j]
                a.dH[i, j, q] = bend / width
                a.bends[i] += abs(bend)


def _innovation(a, var, H, x):
    """Set c, dc and add to de, ds what is due to the rows before; return what is to be added to e and to s."""
    n, n_par, P, dP, dH, c, dc, de, ds = x.shape[0], a.de.shape[0], a.P, a.dP, a.dH, a.c, a.dc, a.de, a.ds
    e, s, is_bent = 0.0, 0.0, a.bends[var] != 0.0
    for i in range(n):
        c[i] = 0.0
        for q in range(n_par):
            dc[i, q] = 0.0
    for j in range(n):
        f, moved = H[j], x[j] - a.x0[j]
        if f != 0.0:
            e -= f * moved
            for q in range(n_par):
                de[q] -= f * (a.dx[j, q] - a.dx0[j, q])
            for i in range(n):
                low, high = max(i, j), min(i, j)
                c[i] += f * P[j, i]
                for q in range(n_par):
                    dc[i, q] += f * dP[low, high, q]
        if is_bent:
            for q in range(n_par):
                de[q] -= dH[var, j, q] * moved
                for i in range(n):
                    dc[i, q] += dH[var, j, q] * P[j, i]
    for j in range(n):
        f = H[j]
        s += f * c[j]
        if f != 0.0 or is_bent:
            for q in range(n_par):
                ds[q] += f * dc[j, q] + dH[var, j, q] * c[j]
    return e, s


def _correct(job, a, node, first, count, x, X):
    """Update by the rows of a node, one after the other; return the one whose variance is not positive, or -1."""
    schedule, n, n_par, P, dP, c, k, dc, de, ds = (
        job.schedule, x.shape[0], a.at.ahead.shape[0], a.P, a.dP, a.c, a.k, a.dc, a.de, a.ds
    )  # fmt: skip
    _read(job, a, node, x)
    z, H, sd = a.z[0], a.H[0], a.sd[0]
    copied_vector(x, a.x0)
    copied(a.dx, a.dx0)
    for row in range(first, first + count):
        var, scale = schedule.row_vars[row], schedule.row_errors[row] * schedule.row_errors[row]
        for q in range(n_par):
            de[q], ds[q] = -a.dz[var, q], 2.0 * sd[var] * a.dsd[var, q] * scale
        more, spread = _innovation(a, var, H[var], x)
        e, s = schedule.row_values[row] - z[var] + more, sd[var] * sd[var] * scale + spread
        if not (s > 0.0 and s < np.inf):
            return row - first
        for q in range(n_par):
            a.nu[row, q], a.s[row, q] = de[q], ds[q]
        for i in range(n):
            k[i] = c[i] / s
            x[i] += k[i] * e
            for q in range(n_par):
                a.dx[i, q] += (dc[i, q] - k[i] * ds[q]) / s * e + k[i] * de[q]
                dc[i, q] -= 0.5 * k[i] * ds[q]  # w
        for i in range(n):
            for j in range(i + 1):
                P[i, j] -= k[i] * c[j]
                P[j, i] = P[i, j]
                for q in range(n_par):
                    dP[i, j, q] -= dc[i, q] * k[j] + k[i] * dc[j, q]
    return -1


def _change(job, a, event, x):
    """Change a state by an event whose value has derivatives."""
    schedule, P, dx, dP, n, n_par = job.schedule, a.P, a.dx, a.dP, a.dx.shape[0], a.dx.shape[1]
    kind, i, before = schedule.event_kinds[event], schedule.event_states[event], x[schedule.event_states[event]]
    factor = change_state(kind, i, job.event_values[event], x)
    for q in range(n_par):
        slope = a.at.events[q, event]
        if kind == 1:
            dx[i, q] += slope
        else:  # P's row is multiplied by the value, or by zero
            along = 0.0 if kind == 0 else slope
            for j in range(n):
                low, high = max(i, j), min(i, j)
                again = factor if i == j else 1.0
                dP[low, high, q] = factor * again * dP[low, high, q] + along * P[i, j] * (
                    2.0 * factor if i == j else 1.0
                )
            dx[i, q] = factor * dx[i, q] + (slope if kind == 0 else slope * before)
    for j in range(n):
        P[i, j] *= factor
    for j in range(n):
        P[j, i] *= factor
    return factor


def run(whole: ScoreJob) -> None:
    """Run a filter with derivatives."""
    job, at = whole.job, whole.at
    m, schedule, n, n_par = job.model, job.schedule, job.x.shape[0], at.ahead.shape[0]
    variables, n_forcings, is_exact = m.n_variables, schedule.step_inputs.shape[2], m.kind == EXACT
    beside = space(m.kind, n, m.n_noise, n_forcings)
    a = _State(
        at, whole.nu, whole.s,
        _moments(space(m.kind, n, m.n_noise, n_forcings), n), _moments(beside, n), _moments(beside, n),
        new(2 * n_par if is_exact else 0, 2 * n + 2, n),
        new(n, n), new(n, n, n_par), new(n, n, n_par), new(n, n, n_par), new(n, n_par), new(n, n_par),
        new(n), new(n, n), new(n, n), new(3, variables), new(3, variables), new(3, variables, n),
        new(variables, n_par), new(variables, n, n_par), new(variables, n_par), new(variables),
        new(n), new(n), new(n), new(n, n_par), new(n, n_par), new(n_par), new(n_par),
    )  # fmt: skip
    for q in range(a.kept.shape[0]):
        a.kept[q, 2 * n + 1, 0] = -1.0  # no step is so long
    for q in range(n_par):
        for i in range(n):
            a.dx[i, q] = at.x[q, i]
            for j in range(i + 1):
                a.dP[i, j, q] = at.P[q, i, j]
    x = new(n)
    copied_vector(job.x, x)
    copied(job.P, a.P)
    follow(job, x, new(n, 0), a.here.Phi, a, _predict, _is_sound, _write_covariance, _correct, _change)
