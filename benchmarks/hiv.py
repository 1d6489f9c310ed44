"""The HIV model of FME's vignette, its data, and the same in plain Python."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.integrate import odeint

import fmepy as fme

DATA = Path(__file__).parent.parent / "tests" / "reference" / "fme" / "data"
FITTED = ["bet", "rho", "delt", "c", "lam"]
TRUTH = {"bet": 2e-5, "rho": 0.15, "delt": 0.55, "c": 5.5, "lam": 80.0, "n": 900.0}
TOLERANCE = 1e-6  # relative and absolute, of every solver here
OBS_LOG_V = pd.read_csv(DATA / "hiv_logv.csv")
OBS_T = pd.read_csv(DATA / "hiv_t.csv")


def rates(t, T, I, V, *, bet, rho, delt, c, lam, n):  # noqa: E741    # the letters of the model
    """Return the rates of change, as a user of fmepy writes them."""
    return lam - rho * T - bet * T * V, bet * T * V - delt * I, n * delt * I - c * V - bet * T * V


def model() -> fme.OdeModel:
    """Return the model, as a user defines it: no engine named."""
    return fme.OdeModel(
        rates,
        state={"T": 100, "I": "(-200750 + c * 50000) / (n * delt)", "V": 50000},
        times=np.r_[0, 0.1, 0.2, 0.4, 0.6, 0.8, np.arange(2, 61, 2)],
        outputs={"logV": "log(V)"},
        parms=TRUTH,
    )


def odeint_model() -> fme.OdeModel:
    """Return the same model as a plain Python function through scipy's odeint: what fmepy compiles is taken away."""

    def plain_rates(t, y, p):
        T, I, V = map(float, y)  # noqa: E741    # floats at once: quicker than numpy's scalars
        infection = p["bet"] * T * V
        return [
            p["lam"] - p["rho"] * T - infection,
            infection - p["delt"] * I,
            p["n"] * p["delt"] * I - p["c"] * V - infection,
        ]

    return model().replace(rhs=plain_rates, engine="scipy")


def cost(hiv: fme.OdeModel) -> fme.SimulationCost:
    """Return the cost of the two tables of observations."""
    return fme.SimulationCost(hiv, OBS_LOG_V, err="sd") + fme.SimulationCost(hiv, OBS_T, err="sd")


def observation_times() -> np.ndarray:
    """Return the times of all observations: the grid that one evaluation of the cost needs."""
    return np.union1d(OBS_LOG_V["time"], OBS_T["time"])


def plain_residuals(tolerance: float = TOLERANCE) -> Callable[[dict[str, float]], np.ndarray]:
    """Return the same residuals by hand: plain Python rates, scipy's odeint, rows picked beforehand."""
    times = observation_times()
    rows_v, rows_t = np.searchsorted(times, OBS_LOG_V["time"]), np.searchsorted(times, OBS_T["time"])
    log_v, sd_v = OBS_LOG_V["logV"].to_numpy(), OBS_LOG_V["sd"].to_numpy()
    cells, sd_t = OBS_T["T"].to_numpy(), OBS_T["sd"].to_numpy()

    def right_hand_side(y, t, bet, rho, delt, c, lam, n):
        T, I, V = y  # noqa: E741
        return [lam - rho * T - bet * T * V, bet * T * V - delt * I, n * delt * I - c * V - bet * T * V]

    def residuals(p):
        p = {**TRUTH, **p}
        start = [100.0, (-200750 + p["c"] * 50000) / (p["n"] * p["delt"]), 50000.0]
        y = odeint(right_hand_side, start, times, args=tuple(p[k] for k in TRUTH), rtol=tolerance, atol=tolerance)
        return np.concatenate([(np.log(y[rows_v, 2]) - log_v) / sd_v, (y[rows_t, 0] - cells) / sd_t])

    return residuals


def differences(residuals: Callable[[dict[str, float]], np.ndarray], x: np.ndarray, step: float) -> np.ndarray:
    """Return the Jacobian by central differences: the best there is without derivatives."""
    columns = []
    for j, h in enumerate(step * np.abs(x)):
        up, down = x.copy(), x.copy()
        up[j] += h
        down[j] -= h
        above, below = (residuals(dict(zip(TRUTH, p, strict=True))) for p in (up, down))
        columns.append((above - below) / (2 * h))
    return np.column_stack(columns)
