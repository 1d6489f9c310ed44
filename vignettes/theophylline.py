"""
Theophylline in twelve subjects: one curve for all, or a curve each
===================================================================

Twelve subjects took theophylline by mouth, each a dose of its own, and its concentration in the serum was read eleven
times in a day (Boeckmann, Sheiner and Beal 1994; the data set ``Theoph`` of R). All twelve are fitted at once, three
times: as if all were one person; each with parameters of its own; and with errors that grow with the concentration, as
those of assays often do. The size of the errors is estimated with the model (``measurement_noise=``), so that every fit
is a likelihood, and they can be compared.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import fmepy as fme

# %%
# The model, and doses as events
# ------------------------------
# A dose goes into the gut, from there at the rate ka into the blood, and leaves it at the rate ke::
#
#     d(gut)/dt = -ka gut        d(central)/dt = ka gut - ke central        conc = central / V
#
# The table of events has a column ``Subject``, as the data have, so that every dose belongs to its subject.

theo = fme.datasets.load("Theoph")
subjects = theo.groupby("Subject", sort=False).first()
doses = pd.DataFrame({
    "Subject": subjects.index, "var": "gut", "time": 0.0, "value": subjects["Dose"] * subjects["Wt"], "method": "add",
})  # fmt: skip


def rates(t, gut, central, *, ka, ke):
    """First-order absorption and elimination, mg an hour."""
    return -ka * gut, ka * gut - ke * central


model = fme.OdeModel(
    rates, state={"gut": 0, "central": 0}, times=np.linspace(0, 25, 101), parms={"ka": 1.5, "ke": 0.08, "V": 30.0},
    outputs={"conc": "central / V"}, events=doses,
)  # fmt: skip

# %%
# Three fits
# ----------
# With ``entity="Subject"`` the data are split; ``entity_parms`` are the parameters that every subject has of its own.

readings = theo[["Subject", "Time", "conc"]]
pooled = fme.SimulationCost(model, readings, x="Time", entity="Subject", measurement_noise={"conc": "estimate"})
own = pooled.replace(entity_parms=["ka", "ke", "V"])
grows = own.replace(measurement_noise={"conc": "sqrt(a**2 + (b*conc)**2)"}, parms={"a": 0.3, "b": 0.1})
costs = {"pooled": pooled, "by subject": own, "noise that grows": grows}
fits = {name: fme.modFit(cost, lower=0) for name, cost in costs.items()}

print(fits["pooled"].summary())
assert np.allclose(fits["pooled"].par[["ka", "ke", "V"]], [1.5532, 0.079596, 32.861], rtol=1e-3)

# %%
# By subject there are 36 parameters. The likelihood divides the squares by the 132 readings; divided by 96, what is
# left of them, the residual standard error is that of R's ``nlsList`` (Pinheiro and Bates 2000): 0.7002.

sigma = fits["by subject"].par["sd_v_conc"] * np.sqrt(132 / 96)
print(f"Residual standard error by subject: {sigma:.4f} mg/l on {len(readings) - 36} degrees")
assert len(readings) - 36 == 96
assert np.isclose(sigma, 0.7001921, rtol=2e-5)

# %%
# The errors grow: their sd goes from a mg/l near zero to the share b of a high concentration. The likelihoods decide
# against one curve for all, and for errors that grow.

comparison = fme.compare_fits(fits)
print(comparison)
print(fits["noise that grows"].par[["a", "b"]].round(4).to_dict())
assert np.allclose(fits["noise that grows"].par[["a", "b"]], [0.24246, 0.11218], rtol=3e-3)
assert np.allclose(comparison.frame["dAIC"][["pooled", "by subject"]], [164.97, 10.690], rtol=1e-3)

# %%
# The curves: that of all together (orange) and each subject's own (blue) over the readings, a panel a subject.

labels = {"xlabel": "time, h", "ylabel": "mg/l"}
curves = pooled.plot(fits["pooled"].par, color="C1", label="pooled", **labels)
grows.plot(fits["noise that grows"].par, axes=curves, color="C0", label="own", **labels)
for ax in curves:
    ax.label_outer()
lines = {line.get_label(): line for line in curves[0].lines if line.get_label() in ("pooled", "own")}
curves[0].legend(lines.values(), lines.keys(), frameon=False, fontsize="small")
plt.show()

# %%
# The subjects
# ------------
# Estimates by subject, with errors that grow.

table = fits["noise that grows"].by_entity()
print(table.round(3))

# %%
# Estimates of the twelve with 95 % intervals of the logarithms; the lines are the estimates of all together. Absorption
# differs most, by a factor of ten.

_, axes = plt.subplots(1, 3, figsize=(9, 3.4), sharey=True, layout="constrained")
at = np.arange(len(table))
for ax, (name, unit) in zip(axes, {"ka": "1/h", "ke": "1/h", "V": "l"}.items(), strict=True):
    factor = np.exp(1.98 * table[f"{name}.se"] / table[name])
    width = [table[name] * (1 - 1 / factor), table[name] * (factor - 1)]
    ax.errorbar(table[name], at, xerr=width, fmt="o", color="C0", markersize=4, label="own")
    ax.axvline(fits["pooled"].par[name], color="C1", label="pooled")
    ax.set(xlabel=f"{name}, {unit}", yticks=at, yticklabels=table.index)
axes[0].set_ylabel("subject")
axes[0].legend(frameon=False, fontsize="small")
axes[0].set_xscale("log")
plt.show()

# %%
# Residuals of the last fit over time: the large ones are those of the first hour, while the gut gives the drug away.

fits["noise that grows"].plot()
plt.show()
