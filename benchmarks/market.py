"""A filter of ten states and ten measurements, market growth with a tenth level; its peers in numpy and filterpy."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pandas as pd

import fmepy as fme
from tests.fimlof.market import FOLDER, THIRTEEN, market, stored

FIRMS = 5
LN_2PI = np.log(2 * np.pi)


def ten_levels(
    t, SM, BL, DRA, DDRC, DDRM, L1, L2, L3, PC, TD, *, SEM=400.0, SED1=-0.0281, SED2=-0.0295, SED3=0.00228,
    PCE1=0.61782, PCE2=-0.13244, PCE3=0.00973, CEF1=-0.0698, CEF2=0.12442, CEF3=-0.08138, CEF4=0.027704, DRAT=1.0,
    SAT=20.0, w_SM=0.0, w_OB=0.0, w_DR=0.0, w_DRA=0.0, w_DDI=0.0, w_DDRM=0.0, w_PCO=0.0,
):  # fmt: skip
    """Return the rates of market growth, and of the traditional delay TD that smooths the delay seen by the company."""
    nine = market(
        t, SM, BL, DRA, DDRC, DDRM, L1, L2, L3, PC, SEM=SEM, SED1=SED1, SED2=SED2, SED3=SED3, PCE1=PCE1, PCE2=PCE2,
        PCE3=PCE3, CEF1=CEF1, CEF2=CEF2, CEF3=CEF3, CEF4=CEF4, DRAT=DRAT, SAT=SAT, w_SM=w_SM, w_OB=w_OB, w_DR=w_DR,
        w_DRA=w_DRA, w_DDI=w_DDI, w_DDRM=w_DDRM, w_PCO=w_PCO,
    )  # fmt: skip
    return (*nine, (DDRC - TD) / 12)


@cache
def cost() -> fme.FimlofCost:
    """Return the likelihood of five histories of 200 samples, 1,000 in all."""
    reference, data = stored("panel20")
    data = data[data.firm <= FIRMS]
    levels = [*reference["state_order"], "TD"]
    rng = np.random.default_rng(1)
    parts = []
    for _, firm in data.groupby("firm"):
        smooth = np.empty(len(firm))
        smooth[0] = firm["DDRC"].iloc[0]
        for k in range(1, len(firm)):
            smooth[k] = smooth[k - 1] + 0.5 * (firm["DDRC"].iloc[k - 1] - smooth[k - 1]) / 12
        parts.append(firm.assign(TD=smooth + 0.2 * rng.standard_normal(len(firm))))
    panel = pd.concat(parts)
    error, measurement = reference["equation_error"], reference["measurement"]
    model = fme.OdeModel(
        ten_levels, state=dict(panel.iloc[0][levels]), times=np.arange(0, 100.5, 0.5), method="euler", dt=0.5
    )
    return fme.FimlofCost(
        model,
        panel,
        entity="firm",
        initial="data",
        process_noise=dict(zip(error["names"], error["sd_per_step"], strict=True)),
        noise_kind="per_step",
        measurement_noise={**dict(zip(measurement["measured"], measurement["sd"], strict=True)), "TD": 0.2},
    )


def START() -> dict[str, float]:  # noqa: N802    # a constant that needs the cost
    """Return thirteen parameters ten per cent off (log-normal)."""
    rng = np.random.default_rng(3)
    return {k: float(cost().parms[k] * np.exp(0.1 * rng.standard_normal())) for k in THIRTEEN}


def _pieces() -> tuple[Callable[..., None], np.ndarray, list[np.ndarray]]:
    """Return the compiled model function, the sds of the measurements, and the histories."""
    one = cost()
    advance, _ = one.specification.space.functions()
    sd = np.array([float(one.measurement_noise[s]) for s in one.model.states])
    tables = [e.raw.reshape(-1, 10) for e in one.entities]
    return advance, sd, tables


def numpy_minus2loglik(parms: dict[str, float]) -> float:
    """Return -2 log L by a filter as one writes it in numpy: all readings of a sample at once, the model compiled."""
    advance, sd, tables = _pieces()
    p = np.append(np.array([{**cost().parms, **parms}[k] for k in cost().parms.index]), 1.0)
    R, unit, u, h = np.diag(sd**2), np.eye(10), np.empty(0), 0.5
    f, F, A = np.empty(10), np.zeros((10, 10)), np.zeros((10, 7))
    total = 0.0
    for table in tables:
        x, P = table[0].copy(), R.copy()
        for z in table[1:]:
            advance(0.0, h, x, p, u, f, F, A)
            Phi, G = unit + h * F, h * A
            x, P = x + h * f, Phi @ P @ Phi.T + G @ G.T
            delta, S = z - x, P + R
            C = np.linalg.cholesky(S)
            K = np.linalg.solve(S, P).T
            total += 2 * np.log(np.diag(C)).sum() + delta @ np.linalg.solve(S, delta) + 10 * LN_2PI
            x = x + K @ delta
            P = (unit - K) @ P @ (unit - K).T + K @ R @ K.T
    return float(total)


def filterpy_minus2loglik(parms: dict[str, float]) -> float:
    """Return -2 log L by filterpy's extended Kalman filter in its own words, the model compiled."""
    from filterpy.kalman import ExtendedKalmanFilter

    class Filter(ExtendedKalmanFilter):  # type: ignore[misc]  # no types
        def predict_x(self, u: float = 0.0) -> None:
            """Move the state by an Euler step."""
            self.x = self.x + h * f

    advance, sd, tables = _pieces()
    p = np.append(np.array([{**cost().parms, **parms}[k] for k in cost().parms.index]), 1.0)
    u, h, unit = np.empty(0), 0.5, np.eye(10)
    f, F, A = np.empty(10), np.zeros((10, 10)), np.zeros((10, 7))
    total = 0.0
    for table in tables:
        ekf = Filter(dim_x=10, dim_z=10)
        ekf.x, ekf.P, ekf.R = table[0].copy(), np.diag(sd**2), np.diag(sd**2)
        for z in table[1:]:
            advance(0.0, h, ekf.x, p, u, f, F, A)
            ekf.F, ekf.Q = unit + h * F, h**2 * A @ A.T
            ekf.predict()
            ekf.update(z, lambda x: unit, lambda x: x)
            total -= 2 * ekf.log_likelihood
    return float(total)


assert FOLDER.exists(), "the benchmarks read the test-suite's histories"
