"""The limit: LSODA in C, the HIV model's rates behind a function pointer, no Python between two steps.

scijit brings ODEPACK as a shared library, called here as its own `odeint` calls it, but with the address of rates that
write where they are told to: a function that returns an array would have one made at every call.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from benchmarks import hiv
from fmepy.compiled.python_code import StatementWriter
from fmepy.language.equations import symbol


@cache
def solver() -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """Return ``solve(theta, times) -> Y``, shape (n_time, 3), compiled; ImportError where scijit is not installed."""
    import numba
    from scijit.integrate import _odepack  # type: ignore[import-not-found, unused-ignore]

    run, doubles = _odepack._run_odeint, numba.types.CPointer(numba.types.double)

    @numba.cfunc(numba.types.void(numba.types.double, doubles, doubles, doubles))
    def rates(t, y, dy, p):
        infection = p[0] * y[0] * y[2]
        dy[0] = p[4] - p[1] * y[0] - infection
        dy[1] = infection - p[2] * y[1]
        dy[2] = p[5] * p[2] * y[1] - p[3] * y[2] - infection

    address, tolerance = rates.address, np.full(1, hiv.TOLERANCE)

    @numba.njit
    def solve(theta, times, tolerance):
        start = np.array([100.0, (-200750.0 + theta[3] * 50000.0) / (theta[5] * theta[2]), 50000.0])
        none = np.empty(0)
        return run(address, 1, start, times, tolerance, tolerance, 1, 0, none, 0.0, 0.0, 0.0, 0, 5000, 0, 12, 5, theta)

    def solved(theta: np.ndarray, times: np.ndarray) -> np.ndarray:
        return solve(theta, times, tolerance)[0]

    solved.keep = rates  # type: ignore[attr-defined]    # its machine code lives as long as the object
    return solved


def residuals() -> Callable[[np.ndarray], np.ndarray]:
    """Return the residuals of the HIV cost from that solver, the few lines around it in numpy."""
    solve, times = solver(), hiv.observation_times()
    rows_v, rows_t = np.searchsorted(times, hiv.OBS_LOG_V["time"]), np.searchsorted(times, hiv.OBS_T["time"])
    log_v, sd_v = hiv.OBS_LOG_V["logV"].to_numpy(), hiv.OBS_LOG_V["sd"].to_numpy()
    cells, sd_t = hiv.OBS_T["T"].to_numpy(), hiv.OBS_T["sd"].to_numpy()

    def at(theta: np.ndarray) -> np.ndarray:
        y = solve(theta, times)
        return np.concatenate([(np.log(y[rows_v, 2]) - log_v) / sd_v, (y[rows_t, 0] - cells) / sd_t])

    return at


def of_model(model: Any, atol: float, rtol: float) -> Callable[[np.ndarray], np.ndarray]:
    """Return ``solve(theta) -> Y`` at the model's own times, its rates written out and compiled; its start is fixed."""
    import numba
    from scijit.integrate import _odepack  # type: ignore[import-not-found, unused-ignore]

    equations, doubles = model.equations, numba.types.CPointer(numba.types.double)
    names = {symbol(s): f"y[{i}]" for i, s in enumerate(equations.states)}
    names |= {symbol(s): f"p[{i}]" for i, s in enumerate(equations.parameters)} | {symbol(equations.time): "t"}
    lines = StatementWriter(names).written([(f"dy[{i}]", e) for i, e in enumerate(equations.rates)])
    known: dict[str, Any] = {k: v for k, v in vars(math).items() if not k.startswith("_")}
    exec("\n".join(["def rates(t, y, dy, p):", *(f"    {line}" for line in lines)]), known)
    compiled = numba.cfunc(numba.types.void(numba.types.double, doubles, doubles, doubles))(known["rates"])
    run, address, none = _odepack._run_odeint, compiled.address, np.empty(0)
    start, times = np.array([float(v) for v in model.definition.initial]), np.asarray(model.times, dtype=float)
    of_rtol, of_atol = np.full(1, rtol), np.full(1, atol)

    @numba.njit
    def solve(theta, start, times, rtol, atol, none):
        return run(address, 1, start, times, rtol, atol, 1, 0, none, 0.0, 0.0, 0.0, 0, 50000, 0, 12, 5, theta)

    def solved(theta: np.ndarray) -> np.ndarray:
        return solve(theta, start.copy(), times, of_rtol, of_atol, none)[0]

    solved.keep = compiled  # type: ignore[attr-defined]
    return solved
