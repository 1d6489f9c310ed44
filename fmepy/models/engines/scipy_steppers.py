"""The general engines: scipy's solvers on any callable.

``lsoda`` is `scipy.integrate.odeint` (it switches between Adams and BDF by itself and takes a banded Jacobian); the
others are methods of `scipy.integrate.solve_ivp`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from fmepy.errors import FmepyError, SimulationError
from fmepy.models.engines.base import steps_of
from fmepy.types import Matrix, Vector

__all__ = ["IVP_METHODS", "IvpStepper", "LsodaStepper", "RatesOf"]

IVP_METHODS = ("RK45", "RK23", "DOP853", "Radau", "BDF", "LSODA")
MOST_STEPS = 100_000
"""Internal steps between two rows before a run counts as failed."""

RatesOf = Callable[[float, Any, Any], Any]
"""F(t, z, inputs) -> rates of z."""


def _guarded(rates: RatesOf, inputs: Vector) -> Callable[[float, Vector], Any]:
    """Return F(t, z) on plain floats; arithmetic that has no value gives NaN, which no solver accepts for long."""
    plain = inputs.tolist()

    def function(t: float, z: Vector) -> Any:
        try:
            return rates(t, z, plain)
        except (ValueError, OverflowError, ZeroDivisionError, FloatingPointError):
            return np.full(len(z), np.nan)

    return function


class LsodaStepper:
    """LSODA on one system.

    Parameters
    ----------
    rates : callable
        F(t, z, inputs).
    rtol : float
    atol : float or ndarray
    bandwidth : (int, int), optional
        Lower and upper bandwidth of the Jacobian.
    max_step : float
        Longest step.
    """

    name = "scipy"
    watches_switches = False

    def __init__(
        self,
        rates: RatesOf,
        rtol: float,
        atol: Any,
        bandwidth: tuple[int, int] | None = None,
        max_step: float = np.inf,
    ) -> None:
        self.rates, self.rtol, self.atol, self.max_step = rates, rtol, atol, max_step
        self.ml: int | None = None if bandwidth is None else bandwidth[0]
        self.mu: int | None = None if bandwidth is None else bandwidth[1]

    def advance(self, start: float, z: Vector, inputs: Vector, times: Vector) -> tuple[Vector, Matrix]:
        """Return (times reached, z at them); see `engines.base`."""
        from scipy.integrate import ODEintWarning, odeint

        at_start = bool(times[0] == start)
        grid = times if at_start else np.concatenate(([start], times))
        most = MOST_STEPS + steps_of(float(times[-1]) - start, self.max_step)
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore", ODEintWarning)
            try:
                out, info = odeint(
                    _guarded(self.rates, inputs),
                    z,
                    grid,
                    tfirst=True,
                    rtol=self.rtol,
                    atol=self.atol,
                    tcrit=[times[-1]],
                    mxstep=most,
                    hmax=self.max_step if np.isfinite(self.max_step) else 0.0,
                    ml=self.ml,
                    mu=self.mu,
                    full_output=True,
                )
            except FmepyError:
                raise
            except Exception as error:
                raise SimulationError(f"the model's function failed: {type(error).__name__}: {error}") from error
        if info["message"] != "Integration successful.":
            inside = info["tcur"][(info["tcur"] > start) & (info["tcur"] <= times[-1])]
            reached = float(inside.max()) if len(inside) else start
            why = info["message"].rstrip(".")
            if why.startswith("Excess work"):
                why = f"more than {most} steps between two rows"
            raise SimulationError(f"LSODA gave up: {why}", time=reached)
        return times, out if at_start else out[1:]


class IvpStepper:
    """A method of scipy's solve_ivp on one system; it can watch switches.

    Parameters
    ----------
    rates, rtol, atol, bandwidth, max_step
        As for LsodaStepper.
    method : str
        One of IVP_METHODS.
    watched : callable, optional
        ``watched(t, z, inputs)`` returns the conditions g - offset whose crossings end a run.
    n_watched : int
        How many there are.
    """

    name = "scipy"

    def __init__(
        self,
        rates: RatesOf,
        method: str,
        rtol: float,
        atol: Any,
        bandwidth: tuple[int, int] | None = None,
        watched: RatesOf | None = None,
        n_watched: int = 0,
        max_step: float = np.inf,
    ) -> None:
        self.rates, self.method, self.rtol, self.atol = rates, method, max(rtol, 100 * np.finfo(float).eps), atol
        self.watched, self.n_watched = watched, n_watched
        self.watches_switches = n_watched > 0
        self.options: dict[str, Any] = {"max_step": max_step}
        if bandwidth is not None and method == "LSODA":
            self.options |= {"lband": bandwidth[0], "uband": bandwidth[1]}

    def _conditions(self, inputs: Vector) -> list[Any] | None:
        """Return the crossings to stop at, in the form solve_ivp wants them."""
        if self.watched is None:
            return None
        values, plain = self.watched, inputs.tolist()

        def condition(i: int) -> Any:
            def crossing(t: float, z: Vector) -> float:
                return float(values(t, z.tolist(), plain)[i])

            crossing.terminal = True  # type: ignore[attr-defined]  # the form that solve_ivp asks for
            return crossing

        return [condition(i) for i in range(self.n_watched)]

    def advance(self, start: float, z: Vector, inputs: Vector, times: Vector) -> tuple[Vector, Matrix]:
        """Return (times reached, z at them); see `engines.base`."""
        from scipy.integrate import solve_ivp

        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # LSODA tells its troubles as warnings; they come back as failures
            try:
                out = solve_ivp(
                    _guarded(self.rates, inputs),
                    (start, times[-1]),
                    z,
                    method=self.method,
                    t_eval=times,
                    rtol=self.rtol,
                    atol=self.atol,
                    events=self._conditions(inputs),
                    **self.options,
                )
            except FmepyError:
                raise
            except Exception as error:
                raise SimulationError(f"the model's function failed: {type(error).__name__}: {error}") from error
        if not out.success:
            reached = float(out.t[-1]) if len(out.t) else start
            raise SimulationError(f"{self.method} gave up: {out.message}", time=reached)
        if out.status == 0:
            return times, out.y.T
        at, crossed = min((t[0], y[0].tolist()) for t, y in zip(out.t_events, out.y_events, strict=True) if len(t))
        rows_at = np.asarray(out.t, dtype=float)  # an empty list if there was no row before the crossing
        before = rows_at < at
        rows = out.y.T[before] if before.any() else np.empty((0, len(z)))
        return np.append(rows_at[before], at), np.vstack([rows, crossed])
