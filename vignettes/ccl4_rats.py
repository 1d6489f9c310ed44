"""
Carbon tetrachloride in twelve rats: shared chemistry, rats of their own
========================================================================

Rats breathe air that holds carbon tetrachloride (Evans et al. 1994; the data set ``ccl4data`` of R); its concentration
in a closed chamber falls as the gas goes into blood, fat, muscle, liver and the rest of the body, and as the liver
breaks it down (Michaelis and Menten). The model is that of FME's vignette on dynamic models (FME "dynamic"). Here all
twelve chambers are one experiment each of the same model, and we ask what they share: with a breathing rate and a loss
of the chamber for every rat, a fifteenth of the sum of squares is left.
"""

import matplotlib.pyplot as plt
import numpy as np

import fmepy as fme

# %%
# The model
# ---------
# Weight in kg; flows in l/h; volumes as parts of the weight, the chamber's in l; partition coefficients; rates in mg/h
# and 1/h. The start depends on the parameters: a chamber begins with CONC ppm.

equations = """
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
CP = conc * 24450 / MW
AI(0) = VCH * CONC * MW / 24450
AAM(0) = 0
AT(0) = 0
AF(0) = 0
AL(0) = 0
"""
parms = dict(
    BW=0.182, QP=4.0, QC=4.0, VFC=0.08, VLC=0.04, VMC=0.74, QFC=0.05, QLC=0.15, QMC=0.32, PLA=16.17, PFA=281.48,
    PMA=13.3, PTA=16.17, PB=5.487, MW=153.8, VMAX=0.04, KM=0.4, CONC=1000.0, KL=0.02, RATS=1.0, VCHC=3.8,
)  # fmt: skip
model = fme.OdeModel(equations, times=np.linspace(0, 6, 61), parms=parms)

# %%
# Everything shared
# -----------------
# ``entity="animal"`` splits the data, and a table of conditions says with how many ppm each chamber began. Rats that
# began alike share a run: four runs serve twelve rats. The size of the errors, of the logarithms, is estimated with the
# model, so that likelihoods can be compared.

rats = fme.datasets.load("ccl4")
began = rats.groupby("animal").first()[["initconc"]].rename(columns={"initconc": "CONC"})
readings = rats[["animal", "time", "ChamberConc"]].rename(columns={"ChamberConc": "CP"})
shared = fme.SimulationCost(
    model, readings, entity="animal", conditions=began, transform="log", measurement_noise={"CP": "estimate"}
)
names = ["VMAX", "KM", "sd_v_CP"]
fit = fme.modFit(shared, names, lower=0)
print(fit.summary())
assert len(shared.models) == 4
assert fit.converged

# %%
# FME's fit stops at VMAX 0.209, KM 3.83 with the sum of squares 1.7359 of the logarithms; the two are nearly collinear,
# and the valley goes on to a little less.

of_fme = shared({"VMAX": 0.209206777547771, "KM": 3.82958236534001, "sd_v_CP": 1.0}).model
ssr = len(readings) * fit.par["sd_v_CP"] ** 2
print(f"Sum of squares where FME stops: {of_fme:.4f}, at the minimum: {ssr:.4f}")
assert np.isclose(of_fme, 1.735901, rtol=1e-4)
assert np.isclose(ssr, 1.7204, rtol=1e-3)

# %%
# A breathing rate and a chamber for every rat
# --------------------------------------------
# QP and KL become local parameters. The rest is a fifteenth: the rats (and their chambers) differ, and the chemistry
# can be shared.

own = shared.replace(entity_parms=["QP", "KL"])
local = [name for name in own.parms.index if name.startswith(("QP[", "KL["))]
fit_own = fme.modFit(own, names + local, lower=0)
print(fit_own.by_entity().round(4))
print(f"\nShared: {fit_own.par[names].round(4).to_dict()}")
ssr_own = len(readings) * fit_own.par["sd_v_CP"] ** 2
comparison = fme.compare_fits({"shared": fit, "own": fit_own})
print(comparison)
assert len(local) == 24
assert fit_own.converged
assert np.isclose(ssr_own, 0.1130, rtol=3e-3)
assert comparison.frame["dAIC"]["shared"] > 300

# %%
# Readings and curves, a panel a rat: with everything shared (orange) and with breathing rates and losses of their own
# (blue), which run through the dots.

labels = {"xlabel": "time, h", "ylabel": "ppm"}
curves = shared.plot(fit.par, color="C1", **labels)
own.plot(fit_own.par, axes=curves, color="C0", **labels)
for ax in curves:
    ax.label_outer()
    for line in ax.lines:
        line.set(markersize=2, zorder=2 if line.get_marker() in ("o", ".") else 3)
plt.show()

# %%
# Residuals of the logarithms with everything shared: those of a rat keep together.

fit.plot()
plt.show()

# %%
# With rates of their own they no longer do, but for the first quarter of an hour, where the model begins too high.

fit_own.plot()
plt.show()
