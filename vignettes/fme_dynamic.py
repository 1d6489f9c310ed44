"""
FME "dynamic": bacteria that grow, and a gas that rats breathe
==============================================================

FME's vignette on dynamic models: bacteria on a substrate, with local and global sensitivities, collinearity, the fit
and a chain; then the physiological model of carbon tetrachloride in rats. The functions bear FME's names and arguments;
the numbers asserted are R's, at tight tolerances.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import fmepy as fme

# %%
# Bacteria
# --------
# ::
#
#     Bact' = gmax eff Sub / (Sub + ks) Bact - (dB + rB) Bact         Sub' = -gmax Sub / (Sub + ks) Bact + dB Bact
#
# Written as Python; fmepy compiles it. The total organic carbon TOC is an output.


def bacteria(t, Bact, Sub, *, gmax=0.5, eff=0.5, ks=0.5, rB=0.01, dB=0.01):
    """Return the rates of change per hour, and TOC."""
    uptake = gmax * Sub / (Sub + ks) * Bact
    return (eff * uptake - (dB + rB) * Bact, -uptake + dB * Bact), {"TOC": Bact + Sub}


bact = fme.OdeModel(bacteria, state={"Bact": 0.1, "Sub": 100}, times=np.arange(0, 50.5, 0.5), rtol=1e-8, atol=1e-8)
out = bact()
print(out.head(3))
assert len(out) == 101

# %%
# Bacteria grow until the substrate is gone, after 27 hours.

fme.plot_model(out, which=["Bact", "Sub"], xlabel="time, hour", ylabel=["Bact, mol C/m3", "Sub, mol C/m3"])
plt.show()

# %%
# Global sensitivity
# ------------------
# ``sensRange`` runs the model over ranges of its parameters: 50 values of rB on a grid, then three parameters together
# by Latin hypercube.

ranges = {"gmax": (0.4, 0.6), "eff": (0.4, 0.6), "rB": (0.0, 0.02)}
grid = fme.sensRange(bact, sensvar=["Bact", "Sub"], dist="grid", parRange={"rB": ranges["rB"]}, num=50).summary()
at_35 = grid.frame.query("var == 'Bact' and x == 35").iloc[0]
print(at_35)
assert np.allclose(at_35[["Mean", "Min", "Max"]].astype(float), [41.87736, 37.70038, 46.9036], rtol=1e-4)

# %%
# Bands of the three together: mean and standard deviation, minimum and maximum.

latin = fme.sensRange(bact, sensvar=["Bact", "Sub"], dist="latin", parRange=ranges, num=30, seed=1)
latin.summary().plot(xlabel="time, hour")
plt.show()

# %%
# Monte Carlo runs
# ----------------
# ``modCRL`` keeps single outputs of every run: what is there at the end, over gmax on a grid.


def at_end(p):
    """Return bacteria and substrate after 50 hours."""
    return bact(p)[["Bact", "Sub"]].iloc[-1]


crl = fme.modCRL(at_end, dist="grid", parRange={"gmax": (0.4, 0.6)}, num=10)
print(crl.frame.round(3).to_string())
assert np.allclose(crl.frame["Bact"].iloc[[0, 1]], [36.533766, 35.628927], rtol=1e-5)

# %%
# Bacteria and substrate at the end fall with gmax: who grows fast starves early.

crl.plot(trace=True)
plt.show()

# %%
# Local sensitivity
# -----------------
# ``sensFun`` with ``varscale=1``: sensitivities in units of the output.

sens = fme.sensFun(bact, sensvar="Bact", varscale=1)
summary = sens.summary()
print(summary)
assert np.allclose(summary.frame["L1"], [29.50675, 37.11817, 0.1745337, 3.465469, 2.061653], rtol=1e-4)
assert np.allclose(summary.frame["L2"], [58.88062, 62.42993, 0.3716212, 4.653310, 2.980223], rtol=1e-4)
correlation = sens.matrix.corr()
assert np.isclose(correlation.loc["gmax", "eff"], 0.9184222, rtol=1e-4)
assert np.isclose(correlation.loc["gmax", "ks"], -0.9879153, rtol=1e-4)

# %%
# Over time: all parameters act most just before the substrate is gone.

sens.plot(xlabel="time, hour", title="Sensitivity of Bact")
plt.show()

# %%
# A ranking: gmax and eff act most on the mean, whichever way it is taken, ks hardly at all.

summary.plot()
plt.show()

# %%
# Two by two: gmax and ks lie on one line.

sens.pairs()
plt.show()

# %%
# ``collin`` of all sets of parameters. (Above a thousand, R's numbers are those of its differences.)

collinearity = fme.collin(sens)
print(collinearity)
assert np.allclose(collinearity.frame["collinearity"][:4], [2.815456, 9.442914, 1.262327, 1.791060], rtol=1e-3)

# %%
# Against data
# ------------
# Seventeen counts of bacteria (Soetaert and Herman 2009), and what they say of all sets of parameters.

data = pd.DataFrame({
    "time": [*range(2, 32, 2), 35, 40],
    "Bact": [0.14, 0.21, 0.31, 0.4, 0.69, 0.97, 1.42, 2, 3, 4.5, 6.5, 9.5, 13.5, 20.5, 29, 65, 61],
})  # fmt: skip
cost = fme.SimulationCost(bact, data)
at_data = fme.collin(fme.sensFun(cost, varscale=1))
assert np.allclose(at_data.frame["collinearity"][:4], [4.474336, 21.08482, 2.057505, 3.679530], rtol=1e-3)

# %%
# gmax and eff together are fitted.

fit = fme.modFit(cost, ["gmax", "eff"], lower=0)
print(fit.summary())
assert np.allclose(fit.par, [0.3003282, 0.7006291], rtol=1e-5)
assert np.isclose(fit.ssr, 0.3514724, rtol=1e-4)
assert np.allclose(fit.std_error, [4.743890e-4, 1.0819247e-3], rtol=2e-3)
assert np.isclose(fit.cost.minlogp, 15.79769, rtol=1e-5)

# %%
# Before and after the fit, and the data.

fme.plot_model(out, bact(fit.par), which="Bact", labels=["at the start", "fitted"], obs=data, xlabel="time, hour",
               ylabel="mol C/m3")  # fmt: skip
plt.show()

# %%
# A chain
# -------
# The variance of the counts is sampled too. R's long chain has the means 0.3003366 and 0.7006095, and 0.0242 of the
# variance.

mcmc = fme.modMCMC(cost, fit.par, jump=fit.cov_scaled * 2.4**2 / 2, var0=fit.ms, wvar0=1, updatecov=100, niter=1000,
                   burninlength=200, seed=1)  # fmt: skip
print(mcmc.summary())
assert np.allclose(mcmc.pars.mean(), [0.3003366, 0.7006095], rtol=5e-4)

# %%
# Traces of both parameters, of the sum of squares and of the variance, with their running means.

mcmc.plot(Full=True)
plt.show()

# %%
# Carbon tetrachloride
# --------------------
# Rats in closed chambers breathe the gas, which goes into fat, muscle, liver and the rest, and is broken down in the
# liver. Twelve rats, four concentrations at the start; the vignette "Carbon tetrachloride in twelve rats" goes on with
# them, and explains the equations.

ccl4 = fme.OdeModel(
    """
    VCH = VCHC - RATS * BW
    VT = (0.91 - (VLC + VFC + VMC)) * BW
    QV = QC * (1 - (QFC + QLC + QMC))
    vm = AAM / (VMC * BW) / (PMA / PB)
    vt = AT / VT / (PTA / PB)
    vf = AF / (VFC * BW) / (PFA / PB)
    vl = AL / (VLC * BW) / (PLA / PB)
    conc = AI / VCH
    CA = (QC * (QFC * vf + QLC * vl + QMC * vm) + QV * vt + QP * conc) / (QC + QP / PB)
    RAM = VMAX * vl / (KM + vl)
    d(AI)/dt = RATS * QP * (CA / PB - conc) - KL * AI
    d(AAM)/dt = QMC * QC * (CA - vm)
    d(AT)/dt = QV * (CA - vt)
    d(AF)/dt = QFC * QC * (CA - vf)
    d(AL)/dt = QLC * QC * (CA - vl) - RAM
    d(AM)/dt = RAM
    CP = conc * 24450 / MW
    AI(0) = VCH * CONC * MW / 24450
    AAM(0) = 0
    AT(0) = 0
    AF(0) = 0
    AL(0) = 0
    AM(0) = 0
    """,
    times=np.linspace(0, 6, 61), rtol=1e-8, atol=1e-8,
    parms=dict(BW=0.182, QP=4.0, QC=4.0, VFC=0.08, VLC=0.04, VMC=0.74, QFC=0.05, QLC=0.15, QMC=0.32, PLA=16.17,
               PFA=281.48, PMA=13.3, PTA=16.17, PB=5.487, MW=153.8, VMAX=0.04321671, KM=0.4027255, CONC=1000.0,
               KL=0.02, RATS=1.0, VCHC=3.8),
)  # fmt: skip
after = ccl4().iloc[-1]
print(after[["AI", "AAM", "AM", "CP"]])
assert np.allclose(after[["AI", "AAM"]], [8.3156017, 4.0715927], rtol=1e-5)

# %%
# Sensitivities of what is measured, the concentration CP in the chamber (ppm), over time.

sens_cp = fme.sensFun(ccl4, sensvar="CP", senspar=["VMAX", "KM"], varscale=1)
last = sens_cp.frame.iloc[-1]
print(sens_cp.summary())
assert np.allclose(last[["VMAX", "KM"]].astype(float), [-4.533167, 0.1308312], rtol=1e-4)
sens_cp.plot(xlabel="time, h", title="Sensitivity of CP, ppm")
plt.show()

# %%
# The fit of VMAX and KM to the logarithms of all 429 readings. The model's state at the start follows from CONC, so
# that four costs, one for each concentration, are added.

rats = fme.datasets.load("ccl4").rename(columns={"ChamberConc": "CP"})
rats_cost = sum(
    fme.SimulationCost(ccl4.replace(parms={"CONC": conc}), part[["time", "CP"]], transform="log")
    for conc, part in rats.groupby("initconc")
)
start = {"VMAX": 0.04, "KM": 0.4}
rats_fit = fme.modFit(rats_cost, start, lower=0)
print(rats_fit.summary())
print(f"Sum of squares at the nominal parameters {rats_cost().model:.4f}")
assert len(rats) == 429
assert np.isclose(rats_cost().model, 2.414494, rtol=1e-5)

# %%
# R's fit stops in a valley, at VMAX 0.209 and KM 3.83, with 1.7359; fmepy goes on to its floor.

at_r = rats_cost({"VMAX": 0.209206777547771, "KM": 3.82958236534001}).model
assert np.isclose(at_r, 1.735901, rtol=1e-5)
assert np.isclose(rats_fit.ssr, 1.7204, rtol=1e-3)

# %%
# Readings and fitted curves of the four concentrations; the axis is logarithmic, as the fit is.

_, ax = plt.subplots(figsize=(7, 5), layout="constrained")
for k, (conc, part) in enumerate(rats.groupby("initconc")):
    run = ccl4({**rats_fit.par, "CONC": conc})
    color = plt.colormaps["viridis"](k / 4)  # darker where there is less
    ax.plot(run["time"], run["CP"], color=color, label=f"{conc} ppm")
    ax.plot(part["time"], part["CP"], ".", color=color, ms=4)
ax.set(xlabel="time, h", ylabel="concentration in the chamber, ppm", yscale="log", title="Carbon tetrachloride")
ax.legend(title="at the start", loc="center left", bbox_to_anchor=(1, 0.5))
plt.show()
