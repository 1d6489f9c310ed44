"""Twelve rats in closed chambers: one model of carbon tetrachloride in the body, four starting concentrations.

Rats breathe air that holds carbon tetrachloride (Evans et al. 1994); its concentration in the chamber falls as the gas
goes into blood, fat, muscle, liver and the rest of the body, and as the liver breaks it down (Michaelis and Menten)::

    d(AM)/dt = VMAX vl / (KM + vl)          vl: concentration in the blood that leaves the liver

The model is that of FME's vignette. All twelve chambers are one experiment each of the same model: ``entity="animal"``
splits the data, and a table of conditions says with how many ppm each of them began. Rats that began alike share a run.

* Shared: VMAX and KM of all rats together. FME's fit stops at VMAX 0.209, KM 3.83 with the sum of squares 1.7359 of
  the logarithms; the two are nearly collinear, and the valley goes on to a little less.
* Local: with a breathing rate QP and a loss of the chamber KL for every rat, the rest is a fifteenth of that: the rats
  (and their chambers) differ, and the chemistry can be shared.

The size of the errors, of the logarithms, is estimated with the model (``measurement_noise=``): the likelihoods say
what the further parameters are worth.

Run it by ``python vignettes/ccl4_rats.py [folder]``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

import fmepy as fme

EQUATIONS = """
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
PARMS = {
    **{"BW": 0.182, "QP": 4.0, "QC": 4.0, "VFC": 0.08, "VLC": 0.04, "VMC": 0.74, "QFC": 0.05, "QLC": 0.15, "QMC": 0.32},
    **{"PLA": 16.17, "PFA": 281.48, "PMA": 13.3, "PTA": 16.17, "PB": 5.487, "MW": 153.8, "VMAX": 0.04, "KM": 0.4},
    **{"CONC": 1000.0, "KL": 0.02, "RATS": 1.0, "VCHC": 3.8},
}
"""Weight kg; flows l/h; volumes parts of the weight, the chamber in l; partition coefficients; rates mg/h and 1/h."""


def main(output: Path = Path("results/ccl4_rats")) -> dict[str, Any]:
    """Fit the rats with everything shared and with two local parameters, draw both, and return what was found."""
    rats = fme.datasets.load("ccl4")
    began = rats.groupby("animal").first()[["initconc"]].rename(columns={"initconc": "CONC"})
    readings = rats[["animal", "time", "ChamberConc"]].rename(columns={"ChamberConc": "CP"})
    model = fme.OdeModel(EQUATIONS, times=np.linspace(0, 6, 61), parms=PARMS)

    shared = fme.SimulationCost(
        model, readings, entity="animal", conditions=began, transform="log", measurement_noise={"CP": "estimate"}
    )
    own = shared.replace(entity_parms=["QP", "KL"])
    names = ["VMAX", "KM", "sd_v_CP"]
    local = [n for n in own.parms.index if n.startswith(("QP[", "KL["))]
    fits = {"shared": fme.modFit(shared, names, lower=0), "own": fme.modFit(own, names + local, lower=0)}
    comparison, table = fme.compare_fits(fits), fits["own"].by_entity()
    ssr = {name: len(readings) * fit.par["sd_v_CP"] ** 2 for name, fit in fits.items()}

    print(f"Data: {rats.attrs.get('title', 'ccl4')}\n      {rats.attrs.get('source', '')}\n")
    print(f"{shared!r}\nRuns of the model for twelve rats: {len(shared.models)}\n\n{fits['shared'].summary()}\n")
    print(f"With a breathing rate (l/h) and a loss of the chamber (1/h) for every rat:\n\n{table.round(4)}\n")
    print(f"Shared: {fits['own'].par[names].round(4).to_dict()}\n")
    print(f"Sums of squares of the logarithms: {ssr['shared']:.4f} and {ssr['own']:.4f}\n\n{comparison}")

    output.mkdir(parents=True, exist_ok=True)
    table.to_csv(output / "by_animal.csv")
    labels = {"xlabel": "time, h", "ylabel": "ppm"}
    curves = shared.plot(fits["shared"].par, color="C1", **labels)
    own.plot(fits["own"].par, axes=curves, color="C0", **labels)
    for ax in curves:
        ax.label_outer()
    save(curves, output / "curves")
    save(fits["shared"].plot(), output / "residuals_shared")
    save(fits["own"].plot(), output / "residuals_own")
    print(f"\nTables (CSV) and pictures (PNG, SVG) are in {output}/:")
    print("  " + "  ".join(sorted(p.name for p in output.iterdir())))
    return {"cost": shared, "fits": fits, "by_animal": table, "comparison": comparison, "ssr": ssr}


def save(axes: object, path: Path) -> None:
    """Write the figure of some Axes as PNG and SVG, and close it."""
    figure = np.ravel(np.asarray(axes, dtype=object))[0].figure
    for suffix in (".png", ".svg"):
        figure.savefig(path.with_suffix(suffix), dpi=150)
    plt.close(figure)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
