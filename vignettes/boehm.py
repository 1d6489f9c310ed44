"""
STAT5 dimers: a published problem, from its files to its profiles
=================================================================

STAT5A and STAT5B are phosphorylated when erythropoietin arrives, pair up as homodimers and heterodimers, and go into
the nucleus and back. Boehm et al. (2014, J. Proteome Res. 13, 5685) measured by mass spectrometry which part of each is
phosphorylated, and fitted a model of eight species. The collection Benchmark-Models-PEtab has the problem as files in
PEtab: the model in SBML, and tables of readings, observables, conditions and parameters. They lie in ``data/boehm``.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import fmepy as fme

# %%
# The problem
# -----------
# One line reads it. Its log likelihood at the published parameters is known: -138.222.

here = (Path(__file__).parent if "__file__" in globals() else Path()).resolve().parent / "data" / "boehm"
problem = fme.read_petab(here / "Boehm_JProteomeRes2014.yaml")
print(problem)
print(problem.parameters[["estimated", "scale", "lower", "upper", "nominal"]])
assert len(problem.measurements) == 48
assert np.isclose(problem.loglik(), -138.221997, atol=1e-5)

# %%
# What the SBML file says is an ordinary model, whose equations can be read, changed, and run by themselves.

print(problem.model.equations)
assert len(problem.model.states) == 8

# %%
# The fit
# -------
# ``fit_cost`` has the nine estimated parameters as PEtab wants them: as decimal logarithms, within their bounds. A fit
# that begins beside the published values comes back to them. (The basin is narrow: from random starts in the box most
# fits end on plateaus, so that a search from nothing takes many.)

start = problem.fit_cost.parms + 0.05 * np.array([1, 0, -1, 1, 0, -1, 1, -1, 1])
fit = fme.modFit(problem.fit_cost, start)
print(fit.summary())
assert np.isclose(fit.minus2loglik, 276.443952, atol=1e-3)
assert np.isclose(fit.par["k_phos"], 4.1977, atol=2e-3)

# %%
# Readings and predictions, in per cent, side by side:

measured, predicted = problem.measurements, problem.simulations(10**fit.par)
figure, panels = plt.subplots(1, 3, figsize=(11, 3.4), sharex=True)
for ax, (name, rows) in zip(panels, measured.groupby("observableId"), strict=True):
    time = rows["time"].astype(float)
    ax.plot(time, rows["measurement"].astype(float), "o", label="measured")
    ax.plot(time, predicted.loc[rows.index, "simulation"], label="fitted")
    ax.set(title=name, xlabel="time (min)", ylabel="per cent" if ax is panels[0] else "")
panels[0].legend()
figure.tight_layout()

# %%
# What the data determine
# -----------------------
# Two rates stand on their bounds: what leaves them open is seen in profiles of the likelihood, in which one parameter
# is held at a value and all others are fitted again.

profile = fme.profile(problem.fit_cost, fit, num=13)
print(profile.intervals.round(3))
profile.plot()
assert np.isclose(profile.intervals.loc["k_exp_homo", "upper"], -1.9229, atol=5e-3)

# %%
# The export of heterodimers from the nucleus may be anything below 0.001 a minute, the import of one kind of homodimer
# anything above 1.4: each is at most, or at least, so fast. The other seven are known within a factor of two or so.

assert np.isclose(10 ** profile.intervals.loc["k_imp_homo", "lower"], 1.4477, rtol=5e-3)

# %%
# ``problem.write`` gives the same tables with the fitted values, for any tool that reads PEtab. On the command line all
# of this is ``fmepy calibrate Boehm_JProteomeRes2014.yaml``.
