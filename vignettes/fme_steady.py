"""
FME "steady": oxygen in a sediment, oxygen in a river
=====================================================

Models whose answer is a steady state: nothing changes in time any more, and what is computed is a profile in space. The
sediment is that of FME's vignette on steady-state models, with its numbers: sensitivities, collinearity, a cost of two
kinds of data, the fit, its posterior, and profiles with bands. The river, of biochemical oxygen demand, is from FME's
older examples.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import fmepy as fme

# %%
# The sediment
# ------------
# Oxygen diffuses into a sediment and is consumed there; at the surface it is that of the water, at the bottom nothing
# flows::
#
#     dO2/dt = D d2O2/dx2 - cons O2 / (O2 + ks)
#
# A hundred cells of half a millimetre. A `SteadyModel` is a model like any other: it is called with parameters, and its
# rows are the depths. `fmepy.transport_1d` gives the rates of transport and the fluxes; that through the surface is
# an output.

grid = fme.Grid1D(np.linspace(0, 5, 101))


def oxygen(t, O2, *, upO2=360.0, cons=80.0, ks=1.0, D=1.0):
    """Return the rate of change, and the flux through the surface."""
    flow = fme.transport_1d(O2, grid, D=D, up=upO2)
    return flow.rate - cons * O2 / (O2 + ks), {"UpFlux": flow.flux[0]}


sediment = fme.SteadyModel(oxygen, state={"O2": 100.0}, grid=grid, positive=True)
profile = sediment()
print(profile.head())
assert np.allclose(profile["O2"][:4], [354.04942, 342.34768, 330.84537, 319.54245], rtol=1e-6)
assert np.isclose(profile["UpFlux"][0], 238.02336, rtol=1e-6)

# %%
# As R users write it, with ``steady_1d`` and rates of an array: the same state.

widths = np.r_[0.025, np.full(99, 0.05), 0.025]


def oxygen_rates(t, O2, p):
    """Return the rates of change and the flux through the surface, as in R."""
    flux = -p["D"] * np.diff(np.r_[p["upO2"], O2, O2[-1]]) / widths
    return -np.diff(flux) / 0.05 - p["cons"] * O2 / (O2 + p["ks"]), {"UpFlux": flux[0]}


of_r = fme.steady_1d(np.full(100, 0.5), oxygen_rates, dict(upO2=360, cons=80, ks=1, D=1), positive=True)
assert np.allclose(of_r.state, profile["O2"], rtol=1e-5)

# %%
# What parameters do
# ------------------
# Relative sensitivities of the profile. Consumption and diffusion act with opposite signs and else alike, for a profile
# depends on their quotient alone: their collinearity is infinite, but for rounding. (R's, in the ten thousands, is a
# number of its differences; here derivatives are exact.)

sens = fme.sensFun(sediment, sensvar="O2")
print(sens.summary())
pairs = fme.collin(sens)
print(pairs)
summary = sens.summary().frame.loc[["upO2", "cons", "ks", "D"]]
assert np.allclose(summary["L2"], [8.767505, 11.41874, 3.708403, 11.42070], rtol=1e-3)
assert np.allclose(summary["Mean"], [6.959635, -8.128017, 2.169441, 8.129252], rtol=1e-3)
assert np.allclose(pairs.frame["collinearity"][:4], [7.703292, 2.857328, 7.701732, 4.350282], rtol=1e-3)
assert pairs.frame["collinearity"][4] > 10_000

# %%
# Sensitivities over depth: D is the mirror image of cons.

sens.plot(xlabel="depth, cm", title="Relative sensitivity of oxygen")
plt.show()

# %%
# Profile and flux
# ----------------
# The data: 35 concentrations (mmol/m3) by depth (cm), and one flux through the surface, 170. The flux has no
# independent variable: ``x=None``. A sum of costs is one cost, as in R a cost is chained to another.

o2_data = pd.DataFrame({"depth": np.arange(1, 36) / 10, "O2": [
    279, 260, 256, 220, 200, 203, 189, 179, 165, 140, 138, 127, 116, 109, 92, 87, 78, 72, 62, 55, 49, 43, 35, 32, 27,
    20, 15, 15, 10, 8, 5, 3, 2, 1, 0]})  # fmt: skip
cost = fme.SimulationCost(sediment, o2_data, x="depth") + fme.SimulationCost(sediment, {"UpFlux": 170.0}, x=None)
print(cost())
assert np.isclose(cost().model, 21636.307, rtol=1e-6)
assert np.allclose(cost().var["SSR"], [17009.129, 4627.1776], rtol=1e-6)

# %%
# With the flux, D and cons can be told apart better, though not well: their collinearity is 51. (Of FME's, the
# sensitivities are those of the modelled values at the data.)

at_data = fme.collin(fme.sensFun(cost))
print(at_data)
assert np.isclose(at_data.frame["collinearity"][4], 50.58392, rtol=5e-3)
assert np.allclose(at_data.frame["collinearity"][:4], [8.605722, 3.057440, 8.736013, 4.175773], rtol=2e-3)

# %%
# The fit of three parameters, D held.

fit = fme.modFit(cost, dict(upO2=360, cons=80, ks=1), lower=0)
print(fit.summary())
assert np.isclose(fit.ssr, 639.08840, rtol=1e-6)
assert np.allclose(fit.par, [292.93705, 49.685946, 1.296582], rtol=3e-4)
assert np.allclose(fit.std_error, [2.103804, 2.367025, 1.363166], rtol=2e-3)

# %%
# Data (dots), the profile at the start and the fitted one; depth goes down.

_, ax = plt.subplots(figsize=(5, 5.5), layout="constrained")
fitted = sediment(fit.par)
ax.plot(profile["O2"], profile["x"], color="0.6", ls=":", label="at the start")
ax.plot(fitted["O2"], fitted["x"], color="C0", label=f"fitted, flux {fitted['UpFlux'][0]:.1f}")
ax.plot(o2_data["O2"], o2_data["depth"], "o", color="black", ms=4, label="readings, flux 170")
ax.set(xlabel="oxygen, mmol/m3", ylabel="depth, cm", title="Oxygen in a sediment", ylim=(5, 0))
ax.legend()
plt.show()

# %%
# How sure are we?
# ----------------
# The standard error of ks is larger than ks, so that the straight line behind it says little. The chain samples the
# parameters and one variance of all 36 residuals, within bounds. R's long chain (one variance too) has the means 293.28
# and 51.10, and 2.38 of ks.

mcmc = fme.modMCMC(
    cost, fit.par, jump=fit.cov_scaled * 2.4**2 / 3, var0=fit.ms, wvar0=1, updatecov=100, lower=0, upper=[600, 300, 50],
    niter=800, burninlength=200, seed=1,
)  # fmt: skip
print(mcmc.summary())
assert np.isclose(mcmc.pars["upO2"].mean(), 293.27595, rtol=2e-3)
assert abs(mcmc.pars["cons"].mean() - 51.10) < 5 * mcmc.diagnostics()["mcse"]["cons"]

# %%
# Profiles at draws of the chain are known to some 3 mmol/m3, hardly more than the width of a line. What is drawn, 5 to
# 95 % and 25 to 75 %, is where the next reading will lie: to every draw an error is added, of the size sampled with it.

profiles = fme.sensRange(sediment, parInput=mcmc.pars, sensvar="O2", num=100, seed=1)
known = profiles.summary().frame.query("x < 3")
assert 2 < (known["q95"] - known["q05"]).median() < 5
_, ax = plt.subplots(figsize=(5, 5.5), layout="constrained")
profiles.with_error(mcmc.sig, seed=2).summary().plot(
    axes=[ax], quant=True, xyswap=True, obs=o2_data, xlabel="oxygen, mmol/m3", ylabel="depth, cm"
)
plt.show()

# %%
# A river
# -------
# Organic matter (BOD) is carried down a river and decays, which takes oxygen; oxygen comes in from the air. Ten
# kilometres in cells of a hundred metres, two states::
#
#     rate = r BOD O2 / (O2 + ks)
#     dBOD/dt = -v dBOD/dx - rate         dO2/dt = -v dO2/dx - rate + p (O2sat - O2)


def river_rates(t, BOD, O2, *, r=0.5, p=0.5, ks=1.0, v=100.0, O2sat=300.0, O2_0=50.0, BOD_0=1500.0):
    """Return the rates of change of both."""
    rate = r * BOD * O2 / (O2 + ks)
    carried = [-v * np.diff(np.r_[up, C]) / 100 for C, up in ((BOD, BOD_0), (O2, O2_0))]
    return carried[0] - rate, carried[1] - rate + p * (O2sat - O2)


river = fme.SteadyModel(river_rates, state={"BOD": 1.0, "O2": 1.0}, grid=fme.Grid1D(np.arange(0, 10001, 100)),
                        positive=True)  # fmt: skip
readings = pd.DataFrame({"dist": 50 + 1000 * np.arange(10.0),
                         "O2": [9.5, 3.5, 5.3, 10.5, 35.7, 112.1, 180.6, 236.1, 268.2, 284.8]})  # fmt: skip
river_cost = fme.SimulationCost(river, readings, x="dist")
wanted = ["r", "p", "ks"]
told_apart = fme.collin(fme.sensFun(river_cost, senspar=wanted, varscale=1))
print(told_apart)
assert np.allclose(told_apart.frame["collinearity"], [2.429841, 1.823330, 3.712102, 4.636972], rtol=1e-3)

river_fit = fme.modFit(river_cost, wanted, lower=0)
print(river_fit.summary())
assert np.isclose(river_fit.ssr, 27.46735, rtol=1e-6)
assert np.allclose(river_fit.par, [0.08845172, 0.1004188, 7.178922], rtol=1e-4)
assert np.allclose(river_fit.std_error, [0.004093094, 3.779908e-4, 1.477170], rtol=1e-3)

# %%
# Oxygen along the river: data, and the model before and after the fit.

fme.plot_model(river(), river(river_fit.par), which="O2", labels=["at the start", "fitted"], xlabel="distance, m",
               ylabel="oxygen, mmol/m3", obs=readings.rename(columns={"dist": "x"}))  # fmt: skip
plt.show()
