"""
Oxygen and nitrate in a sediment over a year
============================================

Organic matter settles on the floor of a bay, most of it after the bloom in spring. Animals mix it into the sediment,
where it decays: first with the oxygen that diffuses in from above, deeper down with nitrate. Four times in a year both
were measured from the surface down. A model of profiles in time starts from a steady state, is fitted to all of them at
once, and says how much oxygen the sediment took up over the year, and how much nitrate was lost, with their bands. In
the end one file does the same and writes a report. The readings are made from the model, with noise.
"""

import runpy
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from scipy.integrate import trapezoid

import fmepy as fme

# %%
# Readings by day and depth
# -------------------------
# A row a reading: days since 1 January, centimetres below the surface, mmol/m3.

readings = fme.datasets.load("sediment")
print(readings.groupby(["name", "day"]).agg(n=("value", "size"), from_=("depth", "min"), to=("depth", "max")))
assert len(readings) == 68

# %%
# The model
# ---------
# A function of profiles: it gets organic carbon, oxygen and nitrate as arrays, one number a cell, and returns their
# rates, and what is one number at a time: the uptake of oxygen by the floor, and the nitrate that is lost in all cells.
# Temperature and supply go with the day. A ``SteadyModel`` of the same function, at their means, is the start: each run
# begins at the steady state of its own parameters, a year before the readings.

here = (Path(__file__).parent if "__file__" in globals() else Path()) / "sediment"
print((here / "model.py").read_text())
model = runpy.run_path(str(here / "model.py"))["model"]
print(model)

# %%
# What it gives with a first guess: depth downwards, time to the right. The bloom, in day 115, eats the oxygen down to a
# few millimetres, and with it the nitrate that is made of ammonium where there is oxygen.

year = np.arange(0, 366, 5)
_, panels = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
for ax, (name, top) in zip(panels, {"O2": 300, "NO3": 40}.items(), strict=True):
    model.image(name, times=year, ax=ax, unit="mmol/m3", vmin=0, vmax=top, xlabel="day", ylabel="depth, cm")
    ax.set_ylim(3, 0)
plt.show()

# %%
# What the readings can tell
# --------------------------
# With the columns of days and depths a cost compares the profiles: exact in time, linear between the middles of cells.
# How large the errors are is estimated, too. Four parameters act on all profiles, and yet the readings tell them apart:
# their collinearity is below 20.

cost = fme.SimulationCost(
    model, readings, x=["day", "depth"], y="value", measurement_noise={"O2": "estimate", "NO3": "estimate"},
    parms={"sd_v_O2": 5.0, "sd_v_NO3": 1.0},
)  # fmt: skip
wanted = ["k", "Q10", "Db", "dep", "sd_v_O2", "sd_v_NO3"]
apart = fme.identifiability(fme.sensFun(cost, senspar=wanted))
print(apart)

# %%
# The fit
# -------
# The readings were made with k = 0.03, Q10 = 2, Db = 0.03, dep = 10, and errors of 2 and 0.5.

fit = fme.modFit(cost, wanted, lower=0)
print(fit.summary())
truth = np.array([0.03, 2.0, 0.03, 10.0, 2.0, 0.5])
assert np.all(np.abs(fit.par - truth) < 2 * fit.std_error)
assert np.allclose(fit.par[["k", "Q10", "Db", "dep"]], [0.030301, 2.0534, 0.032155, 10.123], rtol=2e-3)
assert np.isclose(fit.loglik, -113.783, rtol=1e-3)

# %%
# Profiles (lines) and readings (points) of the four days: in winter oxygen goes down for two centimetres, after the
# bloom for half of one.

cost.plot(fit.par, xlabel=["O2, mmol/m3", "NO3, mmol/m3"], ylabel="depth, cm", ylim=(4.2, 0))
plt.show()

# %%
# What the sediment did in a year
# -------------------------------
# ``predict`` gives profiles and single numbers with the band that the uncertainty of the estimates makes. The uptake
# of oxygen, in mmol/m2 a day, follows the bloom; nitrate is lost most when there is little oxygen and much to decay.

band = fme.predict(model, fit, times=year)
flux = band.frame[band.frame["var"].isin(["uptake", "denitrification"])]
_, panels = plt.subplots(1, 2, figsize=(10, 3.4), layout="constrained")
band.plot(which=["uptake", "denitrification"], axes=panels)
for ax, name in zip(panels, ["oxygen taken up", "nitrate lost"], strict=True):
    ax.set(xlabel="day", ylabel=f"{name}, mmol/m2 a day")
plt.show()

# %%
# Over the year, in mmol/m2:

whole = {name: trapezoid(rows["fit"], rows["time"]) for name, rows in flux.groupby("var")}
print({name: round(float(total)) for name, total in whole.items()})
assert np.allclose([whole["uptake"], whole["denitrification"]], [2618.0, 196.19], rtol=2e-3)

# %%
# The same in one file
# --------------------
# ``fmepy calibrate sediment.toml`` does these steps, and writes tables and a report. ``depth`` names the column of
# depths.

print((here / "sediment.toml").read_text())
with tempfile.TemporaryDirectory() as folder:
    done = fme.workflow.calibrate(here / "sediment.toml", output=folder)
    print(done.fit.summary())
    print(sorted(path.name for path in Path(folder).iterdir() if path.is_file()))
assert np.allclose(done.fit.par, fit.par, rtol=1e-2)
