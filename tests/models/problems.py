"""Models with known answers, shared by the tests of the engines; a new engine joins by its name in ENGINES."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fmepy.models.ode import OdeModel

REFERENCE = Path(__file__).parents[1] / "reference" / "fme"
ENGINES = ["compiled", "explicit", "scipy"]


def cases(file: str) -> dict[str, Any]:
    """Return the cases of a reference file by id."""
    return {c["id"]: c for c in json.loads((REFERENCE / file).read_text())["cases"]}


def table(entry: dict[str, Any]) -> pd.DataFrame:
    """Return a reference table."""
    if "data" in entry:
        return pd.DataFrame(entry["data"], columns=entry["columns"])
    return pd.DataFrame(entry["matrix"], columns=entry["columns"])


def bacteria(t, Bact, Sub, *, gmax=0.5, eff=0.5, ks=0.5, rB=0.01, dB=0.01):
    uptake = gmax * Sub / (Sub + ks) * Bact
    return (eff * uptake - (dB + rB) * Bact, -uptake + dB * Bact), {"TOC": Bact + Sub}


def hiv_rates(t, T, I, V, *, bet, rho, delt, c, lam, n):  # noqa: E741
    return lam - rho * T - bet * T * V, bet * T * V - delt * I, n * delt * I - c * V - bet * T * V


HIV_PARMS = {"bet": 2e-5, "rho": 0.15, "delt": 0.55, "c": 5.5, "lam": 80, "n": 900}
HIV_TIMES = np.r_[0, 0.1, 0.2, 0.4, 0.6, 0.8, np.arange(2, 61, 2)]


def hiv_model(**options: Any) -> OdeModel:
    return OdeModel(
        hiv_rates,
        state={"T": 100, "I": "(-200750 + c * 50000) / (n * delt)", "V": 50000},
        times=HIV_TIMES,
        outputs={"logV": "log(V)"},
        parms=HIV_PARMS,
        **options,
    )


def bacteria_model(**options: Any) -> OdeModel:
    return OdeModel(bacteria, state={"Bact": 0.1, "Sub": 100}, times=np.arange(0, 50.5, 0.5), **options)


CCL4 = """
VTC = 0.91 - (VLC + VFC + VMC)
VCH = VCHC - RATS * BW
VM = VMC * BW
VT = VTC * BW
VF = VFC * BW
VL = VLC * BW
QF = QFC * QC
QL = QLC * QC
QM = QMC * QC
QV = QC - (QF + QL + QM)
vm = AAM / VM / (PMA / PB)
vt = AT / VT / (PTA / PB)
vf = AF / VF / (PFA / PB)
vl = AL / VL / (PLA / PB)
vmix = (QF * vf + QL * vl + QM * vm + QV * vt) / QC
conc = AI / VCH
CA = (QC * vmix + QP * conc) / (QC + QP / PB)
CX = CA / PB
RAM = VMAX * vl / (KM + vl)
d(AI)/dt = RATS * QP * (CX - conc) - KL * AI
d(AAM)/dt = QM * (CA - vm)
d(AT)/dt = QV * (CA - vt)
d(AF)/dt = QF * (CA - vf)
d(AL)/dt = QL * (CA - vl) - RAM
d(CLT)/dt = AL / VL
d(AM)/dt = RAM
DOSE = (VCHC - RATS * BW) * CONC * MW / 24450 - AI
MASS = (AAM + AT + AF + AL + AM) * RATS
CP = conc * 24450 / MW
AI(0) = (VCHC - RATS * BW) * CONC * MW / 24450
AAM(0) = 0
AT(0) = 0
AF(0) = 0
AL(0) = 0
CLT(0) = 0
AM(0) = 0
"""


def ccl4_model(parms: dict[str, float], times: Any, **options: Any) -> OdeModel:
    return OdeModel(CCL4, times=times, parms=parms, **options)


def van_der_pol(t, x, v, *, mu=5.0):
    return v, mu * (1 - x**2) * v - x


def lotka_volterra(t, y, p):
    return np.array([p["a"] * y[0] - p["b"] * y[0] * y[1], p["e"] * p["b"] * y[0] * y[1] - p["m"] * y[1]])


def seasonal(t, N, *, r=0.3, K=10.0, light=1.0):
    return r * (1 + 0.5 * np.sin(t)) * N * (1 - N / K) + np.exp(-np.sqrt(t + 1)) * light


def every_model(engine: str, **options: Any) -> dict[str, OdeModel]:
    """Return every model of the suite on one engine."""
    ccl4 = cases("ode.json")["ccl4_1000"]["inputs"]
    u = pd.Series([1, 3, 0.5, 2, 0, 1.0], index=[0, 2, 5, 9, 14, 20])
    events = pd.DataFrame(
        {"var": ["a", "b", "a"], "time": [2, 2, 5], "value": [1, 0.5, "k1"], "method": ["add", "multiply", "replace"]}
    )

    def model(source: Any, times: Any, **arguments: Any) -> OdeModel:
        return OdeModel(source, times=times, engine=engine, **arguments, **options)

    decay = "d(y)/dt = u - k * y\ny(0) = 1"
    chain = "d(a)/dt = -k1 * a\nd(b)/dt = k1 * a - k2 * b\na(0) = 1\nb(0) = 2"
    kinks = "d(x)/dt = max(y, 0) - abs(x) * k\nd(y)/dt = -w * x * min(1, 2 + y)\nx(0) = 1\ny(0) = 1"
    constant = (u.index, u.to_numpy(), "constant")
    prey = {"a": 0.55, "b": 0.028, "e": 0.86, "m": 0.8, "y0": 4}
    return {
        "bacteria": bacteria_model(engine=engine, **options),
        "hiv": hiv_model(engine=engine, **options),
        "ccl4": ccl4_model(ccl4["parms"], ccl4["times"], engine=engine, **options),
        "van der Pol": model(van_der_pol, np.linspace(0, 20, 41), state={"x": 2, "v": 0}),
        "Lotka-Volterra": model(lotka_volterra, np.arange(0, 21.0), state={"prey": 30, "predator": "y0"}, parms=prey),
        "seasonal": model(seasonal, np.arange(0, 30.0), state={"N": 1}, forcings={"light": u}),
        "forced": model(decay, np.arange(0, 21.0), parms={"k": 0.3}, forcings={"u": u}, outputs={"twice": "2 * y + u"}),
        "stepped": model(decay, np.arange(0, 21.0), parms={"k": 0.3}, forcings={"u": constant}),
        "events": model(chain, np.arange(0, 10.5, 0.5), parms={"k1": 0.5, "k2": 0.2}, events=events),
        "switch": model(
            "d(x)/dt = where(x > theta, -k * x, -0.5 * k * x)\nx(0) = 1",
            np.arange(0, 5.25, 0.25),
            parms={"theta": 0.3, "k": 1.0},
        ),
        "dose": model(
            "d(x)/dt = where(t > lag, dose, 0) - k * x\nx(0) = 0",
            np.arange(0, 10.5, 0.5),
            parms={"lag": 2.3, "dose": 4.0, "k": 0.5},
        ),
        "kinks": model(kinks, np.linspace(0, 6, 25), parms={"k": 0.1, "w": 2.0}),
    }
