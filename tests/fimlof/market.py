"""The market-growth model (Forrester 1968) with noise inside its rates, and its stored histories."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd

import fmepy as fme

FOLDER = Path(__file__).parents[1] / "reference" / "fimlof" / "market_growth"
THIRTEEN = [
    *("SEM", "SED1", "SED2", "SED3", "PCE1", "PCE2", "PCE3", "CEF1", "CEF2", "CEF3", "CEF4", "DRAT", "SAT"),
]  # fmt: skip


def market(
    t, SM, BL, DRA, DDRC, DDRM, L1, L2, L3, PC, *, SEM=400.0, SED1=-0.0281, SED2=-0.0295, SED3=0.00228,
    PCE1=0.61782, PCE2=-0.13244, PCE3=0.00973, CEF1=-0.0698, CEF2=0.12442, CEF3=-0.08138, CEF4=0.027704,
    DRAT=1.0, SAT=20.0, w_SM=0.0, w_OB=0.0, w_DR=0.0, w_DRA=0.0, w_DDI=0.0, w_DDRM=0.0, w_PCO=0.0,
):  # fmt: skip
    q, d = DDRC / 2 - 0.3, BL / PC
    OB = SM * SEM * (1 + SED1 * DDRM + SED2 * DDRM**2 + SED3 * DDRM**3) + w_OB
    DR = PC * (PCE1 * d + PCE2 * d**2 + PCE3 * d**3) + w_DR
    PCO = PC * (CEF1 + CEF2 * q + CEF3 * q**2 + CEF4 * q**3) + w_PCO
    return (
        *((12 * DRA / 2000 - SM) / SAT + w_SM, OB - DR, (DR + w_DRA - DRA) / DRAT, (BL / DRA + w_DDI - DDRC) / 4),
        *((DDRC + w_DDRM - DDRM) / 6, PCO - L1 / 4, (L1 - L2) / 4, (L2 - L3) / 4, L3 / 4),
    )


def stored(which):
    """Return the reference of "single" or "panel20", and its data."""
    reference = json.loads((FOLDER / f"{which}_all_measured.json").read_text())
    return reference, pd.read_csv(FOLDER / f"{which}_all_measured.csv")


def market_cost(which, **arguments):
    """Return the FimlofCost of a stored data set, and the reference."""
    reference, data = stored(which)
    levels = reference["state_order"]
    model = fme.OdeModel(
        market, state=dict(data.loc[0, levels]), times=np.arange(0, 100.5, 0.5), method="euler", dt=0.5
    )
    error, measurement = reference["equation_error"], reference["measurement"]
    settings = {
        "entity": "firm",
        "initial": "data",
        "process_noise": dict(zip(error["names"], error["sd_per_step"], strict=True)),
        "noise_kind": "per_step",
        "measurement_noise": dict(zip(measurement["measured"], measurement["sd"], strict=True)),
    }
    return fme.FimlofCost(model, data, **{**settings, **arguments}), reference
