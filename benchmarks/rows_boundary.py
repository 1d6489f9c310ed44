"""The rows of observations as boundary conditions: each asserts what was found, then times it beside its peer."""

from __future__ import annotations

import numpy as np
from scipy.integrate import odeint
from scipy.optimize import least_squares

import fmepy as fme
from benchmarks.row import Row, at_least
from benchmarks.timing import side_by_side

EQUATIONS = """
    d(Hare)/dt = alpha * Hare - beta * Hare * Lynx
    d(Lynx)/dt = delta * Hare * Lynx - gamma * Lynx
    Hare(1900) = Hare0
    Lynx(1900) = Lynx0
    log_hare = log(Hare)
    log_lynx = log(Lynx)
"""
GUESS = {"alpha": 0.5, "beta": 0.02, "gamma": 1.0, "delta": 0.02, "Hare0": 30.0, "Lynx0": 4.0}
SSR = 2.018661


def rates(y, t, alpha, beta, gamma, delta):
    """Return the rates, as a user of odeint writes them."""
    hare, lynx = y
    return alpha * hare - beta * hare * lynx, delta * hare * lynx - gamma * lynx


def lynx_hare() -> Row:
    """Time the fit of four rates and both starts to the pelts, beside least_squares on odeint by hand."""
    pelts = fme.datasets.load("lynx_hare")
    years, logs = pelts["year"].to_numpy(dtype=float), np.log(pelts[["Hare", "Lynx"]].to_numpy())
    table = {"time": years, "log_hare": logs[:, 0], "log_lynx": logs[:, 1]}
    model = fme.OdeModel(EQUATIONS, times=np.linspace(1900, 1920, 21), parms=GUESS)

    def residuals(q):
        path = odeint(rates, q[4:], years, tuple(q[:4]), rtol=1e-6, atol=1e-6)
        return (np.log(path) - logs).ravel()

    def by_hand() -> float:
        found = least_squares(residuals, list(GUESS.values()), x_scale=list(GUESS.values()))
        return float(2 * found.cost)

    fit = fme.fit_boundary(model, table)
    assert fit.converged
    assert abs(fit.ssr - SSR) < 1e-3, fit.ssr
    assert abs(by_hand() - SSR) < 1e-3
    ours, peer = side_by_side(lambda: fme.fit_boundary(model, table), by_hand, rounds=5)
    goals = [at_least(peer / ours, 2, "{:.1f} times the speed of odeint by hand")]
    name = "scipy's least_squares on odeint by hand"
    return Row("fit_boundary of hare and lynx, 4 rates and both starts, 42 data", ours, name, peer, goals)


ROWS = [lynx_hare]
