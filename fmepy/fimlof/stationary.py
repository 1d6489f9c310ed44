"""The stationary distribution of a linear model with noise: a start of which nothing else is known.

With x' = F x + c + A w of steps, or dx = (F x + c) dt + A dw, mean m and covariance P fulfil::

    m = F m + c      P = F P F' + A A'          of steps
    0 = F m + c      0 = F P + P F' + A A'      in continuous time

(Lyapunov's equations; Hamilton, Time Series Analysis, 1994, section 13.2). They exist where all eigenvalues of F lie
within the unit circle, or in the left half-plane.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fmepy.errors import ArgumentError, SimulationError
from fmepy.filtering.statespace import StateSpace
from fmepy.types import Matrix, Vector

NEAR_ONE = 1e-12
"""Distance from the border of stability below which an eigenvalue lies on it."""


def check_stationary(space: Any, n: int, start: tuple[str, ...], per_step: bool) -> None:
    """Refuse `initial="stationary"` where there is no such start in closed form.

    Parameters
    ----------
    space : StateSpace or UntracedSpace
    n : int
        States of the model; behind them stand sums over time, and errors that correlate with the noise.
    start : tuple of str
        States in `initial_sd`.
    per_step : bool
        Whether the noise of a differential equation is constant during a step.
    """
    where = "initial='stationary'"
    if start:
        raise ArgumentError(f"{where} computes the spread of the start; leave `initial_sd` out, or pass 'known'.")
    if per_step and space.kind == "ode":
        raise ArgumentError(f"{where} takes the noise of a differential equation as noise_kind='brownian'.")
    if not isinstance(space, StateSpace) or not space.is_linear or n != len(space.states):
        raise ArgumentError(
            f"{where} is for models that are linear in their states, with noise that does not depend on them, without "
            "`accumulate` and `noise_correlation`. Pass initial='known' with initial_sd, or 'diffuse'."
        )


def stationary_start(space: Any, t: float, p: Vector, u: Vector) -> tuple[Vector, Matrix]:
    """Return mean and covariance of the stationary distribution, by the coefficients and forcings at a time.

    Parameters
    ----------
    space : StateSpace
    p : ndarray
        As `StateSpace.prepared` returns it.

    Raises
    ------
    SimulationError
        An eigenvalue is not within the border of stability.
    """
    from scipy.linalg import solve_continuous_lyapunov, solve_discrete_lyapunov  # takes a moment to import

    n, is_ode = len(space.states), space.kind == "ode"
    f, F, A = np.zeros(n), np.zeros((n, n)), np.zeros((n, space.n_noise))
    space.functions()[0](t, 0.0, np.zeros(n), p, u, f, F, A)
    eigenvalues = np.linalg.eigvals(F)
    largest = eigenvalues.real.max() if is_ode else np.abs(eigenvalues).max()
    if not largest < (-NEAR_ONE if is_ode else 1.0 - NEAR_ONE):
        what = "a real part of" if is_ode else "the size"
        raise SimulationError(
            f"the model has no stationary start at these parameters: an eigenvalue has {what} {largest:.6g}, not below "
            f"{0 if is_ode else 1}",
            time=t,
        )
    x = np.linalg.solve(-F if is_ode else np.eye(n) - F, f)
    P = solve_continuous_lyapunov(F, -A @ A.T) if is_ode else solve_discrete_lyapunov(F, A @ A.T)
    return np.asarray(x, dtype=float), np.asarray(0.5 * (P + P.T), dtype=float)
