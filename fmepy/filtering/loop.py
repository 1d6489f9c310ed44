"""The loop of a filter: predict from node to node, update where there are data; compiled once, for all models.

A *node* is a time at which something happens: a sample, an event, a row of the result. The loop receives a model as two
small functions (see `filtering.statespace`) and a schedule of nodes, steps and rows (see `filtering.schedule`); both
functions are called by function pointer, so nothing here is compiled again for a new model. `interpreted` is the same
loop as Python, for models that give no equations and for propagation by an adaptive solver.

A step is one of

    DIFFERENCE   f = next x, F = its derivative, A A' = G Q G'
    EULER        f = rates;  Phi = I + h F;  A A' times h (Brownian), h^2 (per step)
    RK4          f = rates;  Phi = the tangent of Runge and Kutta's step; the noise by the same stages, S' = F S + S F'
                 + A A' from S = 0 (Brownian: of fourth order in h, P stays a covariance), or A A' h^2 (per step)
    RK4_MOMENTS  the same for x; P' = F P + P F' + A A' by the same stages
    TRANSITION   f = next x, F = Phi, A A' = the noise integral over the step: an adaptive solver did it
    MOMENTS      f = next x, F = Phi; A holds P and is replaced by the next P
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numba import types

from fmepy.compiled.kernels import kernel
from fmepy.filtering.kernels import (
    conditional_rows,
    covariance_by_stages,
    covariance_to_next,
    factor_times,
    joint_update,
    sequential_update,
)

__all__ = [
    *(
        "ADVANCE",
        "DIFFERENCE",
        "EULER",
        "JOINT",
        "MOMENTS",
        "OBSERVE",
        "RK4",
        "RK4_MOMENTS",
        "SEQUENTIAL",
        "TRANSITION",
    ),
    *("change_state", "compile_loop", "compiled", "interpreted"),
]

logger = logging.getLogger(__name__)

DIFFERENCE, EULER, RK4, TRANSITION, MOMENTS, RK4_MOMENTS = range(6)
SEQUENTIAL, JOINT = range(2)

STATE_NOT_FINITE, VARIANCE_NOT_POSITIVE, COVARIANCE_NOT_FINITE = 1, 2, 3
"""Why a filter stopped."""

_F, _I = types.float64, types.int64
_V, _M, _C, _W = _F[::1], _F[:, ::1], _F[:, :, ::1], _I[::1]
ADVANCE = types.void(_F, _F, _V, _V, _V, _V, _M, _M)
"""``advance(t, h, x, p, u, f, F, A)``."""
OBSERVE = types.void(_F, _V, _V, _V, _V, _M, _V)
"""``observe(t, x, p, u, z, H, sd)``."""


@kernel
def _copied(a, b):  # type: ignore[no-untyped-def]
    """Write a matrix into another one."""
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            b[i, j] = a[i, j]


@kernel
def _add_scaled(x, h, f, y):  # type: ignore[no-untyped-def]
    for i in range(x.shape[0]):
        y[i] = x[i] + h * f[i]


@kernel
def _tangent(F, T, h, K):  # type: ignore[no-untyped-def]
    """Set K to F (I + h T)."""
    n = F.shape[0]
    for i in range(n):
        for j in range(n):
            K[i, j] = F[i, j]
        for k in range(n):
            f = h * F[i, k]
            if f != 0.0:
                for j in range(n):
                    K[i, j] += f * T[k, j]


@kernel
def change_state(kind, i, value, x):  # type: ignore[no-untyped-def]
    """Replace (0), add to (1) or multiply (2) state i; return what its deviations are multiplied by."""
    if kind == 0:
        x[i] = value
        return 0.0
    if kind == 1:
        x[i] += value
        return 1.0
    x[i] *= value
    return value


@kernel
def _event(kind, i, value, x, P, X):  # type: ignore[no-untyped-def]
    """Change a state, with its row and column of P and its row of X."""
    factor = change_state(kind, i, value, x)
    if factor != 1.0:
        for j in range(x.shape[0]):
            P[i, j] *= factor
        for j in range(x.shape[0]):
            P[j, i] *= factor
        for j in range(X.shape[1]):
            X[i, j] *= factor


def _loop(  # type: ignore[no-untyped-def]
    advance,
    observe,
    runge_kutta,
    joint,
    step_kind,
    per_step,
    algorithm,
    n_noise,
    n_vars,
    x,
    P,
    X,
    p,
    times,
    step_at,
    step_times,
    step_lengths,
    step_inputs,
    row_at,
    row_vars,
    row_values,
    row_errors,
    inputs,
    event_at,
    event_states,
    event_kinds,
    event_values,
    correlation,
    nu,
    s,
    v,
    failed,
    x_predicted,
    P_predicted,
    x_filtered,
    P_filtered,
    transitions,
    row_predictions,
    row_gradients,
    row_sds,
):
    """Run a filter; see `filtering.run` for the arguments. Return the node at which it broke down, or -1."""
    n, m, d = x.shape[0], n_vars, X.shape[1]
    recording = x_predicted.shape[0] > 0
    f, y, x0, c, k = np.empty(n), np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    k2, k3, k4 = np.empty(n), np.empty(n), np.empty(n)
    F, M, T = np.zeros((n, n)), np.empty((n, n)), np.empty((n, n))
    fixed = step_kind in (EULER, RK4, RK4_MOMENTS)
    by_stages = step_kind == RK4_MOMENTS or (step_kind == RK4 and not per_step)
    Phi = np.empty((n, n)) if fixed else F  # F keeps zeros that are never written
    rk = n if step_kind in (RK4, RK4_MOMENTS) else 0
    F2, F3, F4 = np.zeros((rk, rk)), np.zeros((rk, rk)), np.zeros((rk, rk))
    K2, K3, K4 = np.zeros((rk, rk)), np.zeros((rk, rk)), np.zeros((rk, rk))
    A, no_noise = np.zeros((n, n_noise)), np.zeros((n, 0))
    A2, A3, A4 = np.zeros((rk, n_noise)), np.zeros((rk, n_noise)), np.zeros((rk, n_noise))
    S, SK, SW = np.zeros((rk, rk)), np.zeros((rk, rk)), np.zeros((rk, rk))
    XW, TW = np.empty((n, d)), np.empty((n, n))
    z, H, sd = np.empty(m), np.zeros((m, n)), np.empty(m)
    most = 0
    for node in range(times.shape[0]):
        most = max(most, row_at[node + 1] - row_at[node])
    delta, rows, errors, variances, L = (
        np.empty(most),
        np.empty((most, n)),
        np.empty(most),
        np.empty(most),
        np.eye(most),
    )
    transition, nothing = np.zeros((n, n)), np.empty(0, dtype=np.int64)

    for node in range(times.shape[0]):
        if recording:
            for i in range(n):
                for j in range(n):
                    transition[i, j] = 1.0 if i == j else 0.0
            if node > 0:
                for e in range(event_at[node - 1], event_at[node]):  # the map since the last node begins with them
                    if event_kinds[e] != 1:
                        for j in range(n):
                            transition[event_states[e], j] *= 0.0 if event_kinds[e] == 0 else event_values[e]
        for step in range(step_at[node], step_at[node + 1]):
            t, h, u = step_times[step], step_lengths[step], step_inputs[step]
            if step_kind == MOMENTS:
                _copied(P, A)
            advance(t, h, x, p, u[0], f, F, A)
            if not fixed:
                for i in range(n):
                    x[i] = f[i]
            else:
                scale = 1.0 if by_stages else h if per_step else np.sqrt(h)
                for i in range(n):
                    for j in range(n_noise):
                        A[i, j] *= scale
                if step_kind == EULER:
                    for i in range(n):
                        x[i] += h * f[i]
                        for j in range(n):
                            Phi[i, j] = h * F[i, j]
                elif runge_kutta is not None:
                    _add_scaled(x, 0.5 * h, f, y)
                    advance(t + 0.5 * h, h, y, p, u[1], k2, F2, A2)
                    _tangent(F2, F, 0.5 * h, K2)
                    _add_scaled(x, 0.5 * h, k2, y)
                    advance(t + 0.5 * h, h, y, p, u[1], k3, F3, A3)
                    _tangent(F3, K2, 0.5 * h, K3)
                    _add_scaled(x, h, k3, y)
                    advance(t + h, h, y, p, u[2], k4, F4, A4)
                    _tangent(F4, K3, h, K4)
                    for i in range(n):
                        x[i] = x[i] + h / 6 * (f[i] + 2 * (k2[i] + k3[i]) + k4[i])
                        for j in range(n):
                            Phi[i, j] = h / 6 * (F[i, j] + 2 * (K2[i, j] + K3[i, j]) + K4[i, j])
                for i in range(n):
                    Phi[i, i] += 1.0
            if step_kind == MOMENTS:
                _copied(A, P)
            elif runge_kutta is not None and by_stages:
                if step_kind == RK4_MOMENTS:
                    covariance_by_stages(h, F, F2, F3, F4, A, A2, A3, A4, P, M, SK, SW)
                else:
                    for i in range(n):
                        for j in range(n):
                            S[i, j] = 0.0
                    covariance_by_stages(h, F, F2, F3, F4, A, A2, A3, A4, S, M, SK, SW)
                    covariance_to_next(P, Phi, no_noise, M, T)
                    for i in range(n):
                        for j in range(n):
                            P[i, j] += S[i, j]
            else:
                covariance_to_next(P, Phi, A, M, T)
            if d > 0:
                factor_times(Phi, X, XW)
            if recording:
                factor_times(Phi, transition, TW)
        total = 0.0
        for i in range(n):
            total += 0.0 * x[i]
        if total != 0.0:
            failed[0], failed[1] = STATE_NOT_FINITE, 0
            return node
        total = 0.0
        for i in range(n):  # what is not finite elsewhere comes to the variances
            total += 0.0 * P[i, i]
        if total != 0.0:
            failed[0], failed[1] = COVARIANCE_NOT_FINITE, 0
            return node
        if recording:
            _add_scaled(x, 0.0, x, x_predicted[node])
            _copied(P, P_predicted[node])
            _copied(transition, transitions[node])
        first, last = row_at[node], row_at[node + 1]
        count = last - first
        if count > 0:
            observe(times[node], x, p, inputs[node], z, H, sd)
            for i in range(count):
                var = row_vars[first + i]
                delta[i] = row_values[first + i] - z[var]
                errors[i] = abs(sd[var] * row_errors[first + i])
                variances[i] = errors[i] * errors[i]
            if recording:
                for i in range(count):
                    var = row_vars[first + i]
                    row_predictions[first + i] = z[var]
                    row_sds[first + i] = errors[i]
                    for j in range(n):
                        row_gradients[first + i, j] = H[var, j]
            bad = -1
            if algorithm == SEQUENTIAL and correlation.shape[0] == 0:
                bad = sequential_update(count, first, x, P, X, delta, H, row_vars, variances, x0, c, k, nu, s, v)
            else:
                for i in range(count):
                    for j in range(n):
                        rows[i, j] = H[row_vars[first + i], j]
                conditional_rows(count, first, delta, rows, errors, correlation, row_vars, variances, L)
                if joint is not None:
                    bad = joint_update(count, first, x, P, X, delta, rows, variances, nu, s, v)
                else:
                    bad = sequential_update(count, first, x, P, X, delta, rows, nothing, variances, x0, c, k, nu, s, v)
            if bad >= 0:
                failed[0], failed[1] = VARIANCE_NOT_POSITIVE, first + bad
                return node
        if recording:
            _add_scaled(x, 0.0, x, x_filtered[node])
            _copied(P, P_filtered[node])
        for e in range(event_at[node], event_at[node + 1]):
            _event(event_kinds[e], event_states[e], event_values[e], x, P, X)
    return -1


ARGUMENTS = (
    _I, types.boolean, _I, _I, _I,
    _V, _M, _M, _V,
    _V, _W, _V, _V, _C,
    _W, _W, _V, _V, _M,
    _W, _W, _W, _V,
    _M,
    _V, _V, _M, _W,
    _M, _C, _M, _C, _C, _V, _M, _V,
)  # fmt: skip
"""Types of what a loop gets after the model's functions."""

interpreted: Callable[..., int] = _loop
"""The loop as Python: the two functions are any callables."""


@lru_cache(maxsize=4)
def compiled(runge_kutta: bool = False, joint: bool = False) -> Any:
    """Return the loop in machine code: the two functions are given by function pointer.

    What a model does not need (Runge and Kutta's steps, the joint update) is None, and is not compiled.
    """
    options = [types.boolean if wanted else types.none for wanted in (runge_kutta, joint)]
    signature = _I(types.FunctionType(ADVANCE), types.FunctionType(OBSERVE), *options, *ARGUMENTS)
    return compile_loop(_loop, signature, "the filter's loop")


def compile_loop(function: Callable[..., Any], signature: Any, what: str) -> Any:
    """Return a function compiled for one signature; the first time on this machine is told, for it takes seconds."""
    loop = kernel(function)
    if not _is_kept(loop, function):
        logger.info("Compiling %s; this happens once and takes a few seconds.", what)
    loop.compile(signature)
    return loop


def _is_kept(loop: Any, function: Callable[..., Any]) -> bool:
    """Tell whether numba keeps compiled code of a function; what is older than a source that went into it is removed.

    numba itself looks at the function's own file alone, and would go on with old kernels in it; so it would with the
    kernels that call others.
    """
    kept = _kept_since_its_sources(loop, function)
    for part in _called(function):
        _kept_since_its_sources(part, part.py_func)
    return kept


def _called(function: Callable[..., Any]) -> list[Any]:
    """Return the compiled functions of its module and those that they know in turn."""
    found: dict[int, Any] = {}
    waiting = [function]
    while waiting:
        for value in waiting.pop().__globals__.values():
            if getattr(value, "py_func", None) is not None and id(value) not in found:
                found[id(value)] = value
                waiting.append(value.py_func)
    return list(found.values())


def _kept_since_its_sources(compiled: Any, function: Callable[..., Any]) -> bool:
    """Tell whether there is kept code younger than all sources; remove what is older."""
    begins = f"{function.__module__.rpartition('.')[2]}.{function.__qualname__}-"
    sources = {f.__code__.co_filename for f in (function, *(part.py_func for part in _called(function)))}
    if compiled.stats.cache_path is None:
        return False
    try:
        newest = max(os.stat(source).st_mtime for source in sources)
        kept = [
            e for e in os.scandir(compiled.stats.cache_path) if e.name.startswith(begins) and e.name.endswith(".nbi")
        ]
        fresh = [e for e in kept if e.stat().st_mtime >= newest]
        if not fresh:
            for entry in kept:
                os.unlink(entry.path)
    except OSError:
        return False
    return bool(fresh)
