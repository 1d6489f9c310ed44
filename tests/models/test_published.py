"""Published models whose numbers are known from deSolve (tests/reference/desolve), written from their equations."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import fmepy as fme

KNOWN = json.loads((Path(__file__).parent.parent / "reference" / "desolve" / "models.json").read_text(encoding="utf-8"))


def aquaphy(t, DIN, PROTEIN, RESERVE, LMW, *, light=250.0, day=15.0, most=0.125, synthesis=0.136, washed=0.01):
    """Growth of algae by light, nitrogen and low molecular weight sugars (Lancelot et al. 1991)."""
    par = light if t % 24 < day else 0.0
    room = max(0.0, min(1.0, (0.15 - LMW / (PROTEIN + RESERVE + LMW)) / (0.15 - 0.05)))
    photosynthesis = most * room * (1 - np.exp(-0.125 / 150 * par / most)) * PROTEIN
    quotum = max(0.0, LMW / PROTEIN - 0.075)
    proteins, stored, used = synthesis * quotum * DIN / (DIN + 1.0) * PROTEIN, 0.23 * quotum * PROTEIN, 0.06 * RESERVE
    respired = 0.0001 * LMW + 0.4 * proteins
    return (
        -0.2 * proteins - washed * (DIN - 10.0), proteins - washed * PROTEIN, stored - used - washed * RESERVE,
        photosynthesis + used - stored - respired - proteins - washed * LMW,
    )  # fmt: skip


DAY = np.arange(366.0)
LIGHT = 1 + 0.6 * np.sin(2 * np.pi * (DAY - 80) / 365)


def season(t, P, Z, *, r=0.1, K=10.0, e=0.5, m=0.03):
    """Predator and prey in the light of the day of the year."""
    eaten = 0.02 * P * Z / (1 + 0.1 * P)
    return r * np.interp(t % 365, DAY, LIGHT) * P * (1 - P / K) - eaten, e * eaten - m * Z


AMPLIFIER = """
g23 = 1e-6 * (exp((y2 - y3) / UF) - 1)
g56 = 1e-6 * (exp((y5 - y6) / UF) - 1)
f1 = (0.1 * sin(200 * pi * t) - y1) / 1000
f4 = Ub / R - y4 / R - 0.99 * g23
f7 = Ub / R - y7 / R - 0.99 * g56
d(v12)/dt = f1 / 1e-6
d(y3)/dt = (g23 - y3 / R) / 2e-6
d(v45)/dt = f4 / 3e-6
d(y6)/dt = (g56 - y6 / R) / 4e-6
d(v78)/dt = f7 / 5e-6
0 = y1 - y2 - v12
0 = f1 + Ub / R - 2 * y2 / R - 0.01 * g23
0 = y4 - y5 - v45
0 = f4 + Ub / R - 2 * y5 / R - 0.01 * g56
0 = y7 - y8 - v78
0 = f7 - y8 / R
"""
"""The transistor amplifier (Rentrop; Hairer and Wanner): C y' = f of rank 5, as voltages over its five capacitors."""

HUNTED = "eaten = 0.5*N*P/(1 + N)\nd(N)/dt = N*(1 - N/K) - eaten\nd(P)/dt = e*eaten - m*P"


def models():
    """Return the models at tight tolerances, and how far they may be from deSolve (which steps across switches)."""
    tight = {"rtol": 1e-10, "atol": 1e-12}
    voltages = dict(v12=-3, y3=3, v45=3, y6=3, v78=6, y1=0, y2=3, y4=6, y5=3, y7=6, y8=0)
    algae, hunted = {"DIN": 6.0, "PROTEIN": 20.0, "RESERVE": 5.0, "LMW": 1.0}, [{"root": "P - 3", "var": "P"}]
    halved = [{**hunted[0], "value": 0.5, "method": "multiply"}]
    return {
        "aquaphy": (fme.OdeModel(aquaphy, state=algae, times=np.arange(0, 481, 48.0), **tight), 1e-6),
        "season": (fme.OdeModel(season, state={"P": 5, "Z": 1}, times=np.arange(0, 1096, 73.0), **tight), 1e-7),
        "amplifier": (
            fme.OdeModel(
                AMPLIFIER, state=voltages, times=np.linspace(0, 0.2, 11), parms=dict(Ub=6, UF=0.026, R=9000), **tight
            ),
            2e-6,
        ),
        "hunted": (
            fme.OdeModel(
                HUNTED, state={"N": 1, "P": 2}, times=np.arange(0, 101, 10.0), parms=dict(K=10, e=0.6, m=0.1),
                events=halved, **tight,
            ),
            1e-7,
        ),
    }  # fmt: skip


COLUMNS = {
    "aquaphy": ["DIN", "PROTEIN", "RESERVE", "LMW"], "season": ["P", "Z"], "amplifier": [f"y{i}" for i in range(1, 9)],
    "hunted": ["N", "P"],
}  # fmt: skip


@pytest.mark.parametrize("name", COLUMNS)
def test_a_published_model_gives_what_desolve_gives(name):
    model, far = models()[name]
    assert model.engine == "compiled", model.engine_note
    known = np.array(KNOWN[name])[:, 1:]
    size = np.abs(known).max(axis=0)
    np.testing.assert_allclose(model()[COLUMNS[name]] / size, known / size, atol=far)
    defaults = model.replace(rtol=1e-6, atol=None)()[COLUMNS[name]]
    np.testing.assert_allclose(defaults / size, known / size, atol=1e-3)


def test_roots_are_where_desolve_finds_them():
    np.testing.assert_allclose(models()["hunted"][0].hits()["time"], KNOWN["hits"], rtol=1e-8)


def test_a_slow_root_of_a_stiff_model_is_passed_once():
    """Robertson's kinetics with the roots and the tolerances of deSolve's page on lsodar, which finds 2.07e7."""
    text = "d(A)/dt = -k1*A + k3*B*C\nd(B)/dt = k1*A - k3*B*C - k2*B*B\nd(C)/dt = k2*B*B"
    model = fme.OdeModel(
        text, state={"A": 1, "B": 0, "C": 0}, times=np.append(0, 0.4 * 10.0 ** np.arange(11)),
        parms={"k1": 0.04, "k2": 3e7, "k3": 1e4}, events=[{"root": "A - 1e-4"}, {"root": "C - 1e-2"}],
        rtol=1e-4, atol={"A": 1e-6, "B": 1e-10, "C": 1e-6},
    )  # fmt: skip
    hits = model.hits()  # explicit steps made so many crossings of the first that the run failed
    assert hits["root"].tolist() == ["C - 1e-2", "A - 1e-4"]
    np.testing.assert_allclose(hits["time"], [0.264019, 2.0795e7], rtol=1e-3)
