"""STAT5 dimerisation (Boehm et al. 2014, J. Proteome Res. 13, 5685): eight states, three observables, 48 data.

Equations and data as the Benchmark-Models-PEtab collection gives them (BSD 3-Clause, Boehm_JProteomeRes2014); -2 log L
at its nominal parameters is 276.443994.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pandas as pd

import fmepy as fme

MINUS2LOGLIK = 2 * 138.221997031
RATES = ["Epo_degradation", "k_exp_hetero", "k_exp_homo", "k_imp_hetero", "k_imp_homo", "k_phos"]
NOMINAL = [
    0.026982514033029,
    1.00067973851508e-05,
    0.006170228086381,
    0.0163679184468,
    97749.3794024716,
    15766.5070195731,
]
SDS = {"pSTAT5A_rel": 3.85261197844677, "pSTAT5B_rel": 6.59147818673419, "rSTAT5A_rel": 3.15271275648527}
CYTOPLASM, NUCLEUS = 1.4, 0.45
TIMES = [0, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 80, 100, 120, 160, 200, 240]
DATA = {
    "pSTAT5A_rel": [7.90107299873911, 66.3634939682528, 81.1713239165337, 94.7303080627876, 95.1164830493244,
                    91.44171655392, 91.2570992263545, 93.672297840992, 88.754232823019, 85.2697032178279,
                    81.1323953369608, 76.135928475796, 65.2480591250229, 42.5996587097166, 25.1577975445976,
                    15.4301823994994],
    "pSTAT5B_rel": [4.59653334288927, 29.6345459874189, 46.0438064695701, 81.9747336191685, 80.5716092952489,
                    79.0357196371442, 75.6723803658298, 71.6247198618303, 69.0628632755742, 67.1473843168934,
                    60.8994762938824, 54.8092577721492, 43.9812899778025, 29.7714581636675, 20.089016562771,
                    10.961845166698],
    "rSTAT5A_rel": [14.7231682180584, 33.762342293107, 36.7998512942493, 49.7176022859654, 46.9281200952955,
                    47.8365745550135, 46.9287272497385, 40.5977529351181, 43.783663885071, 44.4573876523855,
                    41.3271592618297, 41.0627332148332, 39.2358300289377, 36.6194605442418, 34.8937144010561,
                    32.2110771608676],
}  # fmt: skip


def dimers(
    t, A, B, pApB, pApA, pBpB, nApA, nApB, nBpB, *, Epo_degradation, k_exp_hetero, k_exp_homo, k_imp_hetero,
    k_imp_homo, k_phos,
):  # fmt: skip
    """Return the rates of change of concentrations in cytoplasm and nucleus."""
    phos = 1.25e-7 * np.exp(-Epo_degradation * t) * k_phos
    out = NUCLEUS / CYTOPLASM
    aa, ab, bb = phos * A**2, phos * A * B, phos * B**2
    home_aa, home_ab, home_bb = k_exp_homo * nApA, k_exp_hetero * nApB, k_exp_homo * nBpB
    return (
        -2 * aa - ab + out * (2 * home_aa + home_ab),
        -2 * bb - ab + out * (2 * home_bb + home_ab),
        ab - k_imp_hetero * pApB,
        aa - k_imp_homo * pApA,
        bb - k_imp_homo * pBpB,
        k_imp_homo * pApA / out - home_aa,
        k_imp_hetero * pApB / out - home_ab,
        k_imp_homo * pBpB / out - home_bb,
    )


def observed(A: Any, B: Any, pApB: Any, pApA: Any, pBpB: Any) -> list[Any]:
    """Return the three observables, in per cent, as a user writes them by hand."""
    s = 0.107
    a, b = s * (A + 2 * pApA), (1 - s) * (B + 2 * pBpB)
    return [
        (100 * pApB + 200 * s * pApA) / (pApB + a),
        (100 * pApB + 200 * (1 - s) * pBpB) / (pApB + b),
        (100 * pApB + 100 * s * (A + 2 * pApA)) / (2 * pApB + a + b),
    ]


@cache
def model() -> fme.OdeModel:
    """Return the model with its three observables."""
    s = 0.107
    b = f"(STAT5B * {1 - s} + 2 * pBpB * {1 - s})".replace("STAT5B", "B")
    a = f"(A * {s} + 2 * pApA * {s})"
    return fme.OdeModel(
        dimers,
        state={"A": 207.6 * 0.693, "B": 207.6 * (1 - 0.693), **dict.fromkeys(["pApB", "pApA", "pBpB"], 0.0),
               **dict.fromkeys(["nApA", "nApB", "nBpB"], 0.0)},
        times=TIMES,
        outputs={
            "pSTAT5A_rel": f"(100 * pApB + 200 * pApA * {s}) / (pApB + {a})",
            "pSTAT5B_rel": f"(100 * pApB + 200 * pBpB * {1 - s}) / (pApB + {b})",
            "rSTAT5A_rel": f"(100 * pApB + 100 * A * {s} + 200 * pApA * {s}) / (2 * pApB + {a} + {b})",
        },
        parms=dict(zip(RATES, NOMINAL, strict=True)),
    )  # fmt: skip


@cache
def noisy_cost() -> fme.SimulationCost:
    """Return the simulation cost whose sds are parameters: nine of them are estimated."""
    data, sds = pd.DataFrame({"time": TIMES, **DATA}), {f"sd_{k}": value for k, value in SDS.items()}
    return fme.SimulationCost(model(), data, measurement_noise={k: f"sd_{k}" for k in SDS}, parms=sds)


@cache
def cost() -> fme.FimlofCost:
    """Return -2 log L of the data: no process noise, a known start."""
    data = pd.DataFrame({"time": TIMES, **DATA})
    return fme.FimlofCost(model(), data, process_noise={}, measurement_noise=SDS)
