"""
Hare and lynx: a predator-prey model and a century-old record
=============================================================

From 1900 to 1920 the Hudson's Bay Company counted the pelts of hares and of lynx. The model of Lotka and Volterra says
that hares multiply and are eaten, and that lynx multiply by eating and starve without. Its four rates and the two
initial values are fitted; we look at what they are worth, and at what the fitted model says between the counts.

The estimates agree with the posterior means of Carpenter 2018 (Stan case study "Predator-Prey Population Dynamics: the
Lotka-Volterra model in Stan"): alpha 0.55, beta 0.028, gamma 0.80, delta 0.024.

Tables and pictures go to the folder ``results/hare_and_lynx``. ``make calibrate`` asks the same of one file of TOML,
with chains and profiles on top, and writes a report.
"""

import textwrap
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy import stats

import fmepy as fme

output = Path("results/hare_and_lynx")
output.mkdir(parents=True, exist_ok=True)

# %%
# The data and the model
# ----------------------
# Pelts (thousands a year) stand for the animals.

pelts = fme.datasets.load("lynx_hare")
print(textwrap.fill(f"Data: {pelts.attrs['title']}. {pelts.attrs['source']}", 100))

model = fme.OdeModel(
    """
    d(Hare)/dt = alpha * Hare - beta * Hare * Lynx
    d(Lynx)/dt = delta * Hare * Lynx - gamma * Lynx
    Hare(1900) = Hare0
    Lynx(1900) = Lynx0
    """,
    times=np.linspace(1900, 1920, 201),
    parms={"alpha": 0.5, "beta": 0.02, "gamma": 1.0, "delta": 0.02, "Hare0": 30.0, "Lynx0": 4.0},
)

# %%
# Before the fit: data (dots) and the model at its first guess, whose peaks are too high and come too late.

colors = {"Hare": "#b5651d", "Lynx": "#2f5d8a"}
label = "pelts, thousands a year"


def name_axes(axes, title):
    """Write what is drawn on two panels, the hares above the lynx."""
    for ax, species in zip(axes, colors, strict=True):
        ax.set_ylim(bottom=0)
        ax.set_ylabel(f"{species}: {label}")
        ax.set_xticks(range(1900, 1921, 4))
    axes[0].set_title(f"{title}: hare and lynx, Hudson's Bay Company")
    axes[1].set_xlabel("year")


def save(figure, name):
    """Write a figure as PNG and SVG."""
    for suffix in (".png", ".svg"):
        figure.savefig(output / (name + suffix), dpi=150)


initial = model()
figure, axes = plt.subplots(2, 1, sharex=True, figsize=(7, 5.5), layout="constrained")
fme.plot_model(initial, obs=pelts.rename(columns={"year": "time"}), labels=["first guess"], axes=axes, color="0.4",
               xlabel="", legpos="upper right")  # fmt: skip
name_axes(axes, "Before the fit")
save(figure, "first_guess")
plt.show()

# %%
# The fit
# -------
# Errors are multiplicative, so the logarithms of model and data are compared (``transform="log"``). Rates and initial
# values are positive, so they are fitted on the log scale (`fmepy.transformed`), within wide bounds.

cost = fme.SimulationCost(model, pelts, x="year", transform="log")
lower = {"alpha": 0.01, "beta": 0.001, "gamma": 0.01, "delta": 0.001, "Hare0": 1.0, "Lynx0": 1.0}
upper = {"alpha": 2.0, "beta": 0.2, "gamma": 3.0, "delta": 0.2, "Hare0": 100.0, "Lynx0": 100.0}
fit = fme.modFit(
    fme.transformed(cost, "log"), np.log(model.parms), lower=np.log(pd.Series(lower)), upper=np.log(pd.Series(upper))
)
summary = fit.summary()
print("Fit of the logarithms of the parameters:\n")
print(summary)
assert fit.converged
assert np.isclose(fit.ssr, 2.01867, rtol=1e-4)

# %%
# On the natural scale, with 95 % intervals, beside the published estimates: all four rates lie within one standard
# error of them.

logs = summary.par["Estimate"]
half = stats.t.ppf(0.975, fit.df_residual) * summary.par["Std. Error"]
estimates = pd.DataFrame({
    "estimate": np.exp(logs),
    "std_error": np.exp(logs) * summary.par["Std. Error"],  # to first order
    "lower_95": np.exp(logs - half),
    "upper_95": np.exp(logs + half),
    "published": pd.Series({"alpha": 0.55, "beta": 0.028, "gamma": 0.80, "delta": 0.024}),
}).loc[logs.index]  # fmt: skip
print("On the natural scale:\n")
print(estimates.to_string(float_format="{:.4g}".format))
rates = ["alpha", "beta", "gamma", "delta"]
assert np.allclose(estimates["estimate"][rates], [0.5402, 0.02717, 0.7964, 0.02369], rtol=1e-3)
assert np.allclose(estimates["estimate"][["Hare0", "Lynx0"]], [34.60, 5.845], rtol=1e-3)
assert np.allclose(estimates["std_error"][rates], [0.05949, 0.003843, 0.08386, 0.003286], rtol=3e-3)
assert (estimates["estimate"] - estimates["published"]).abs()[rates].lt(estimates["std_error"][rates]).all()

# %%
# The fitted curve, its 95 % band and the first guess over the data: the peaks of 1904 and 1914 are met, and the lynx
# follow the hares by a year or two.

fitted = model(np.exp(fit.par))
band = fme.predict(fme.transformed(model, "log"), fit, level=0.95)
figure, axes = plt.subplots(2, 1, sharex=True, figsize=(7, 5.5), layout="constrained")
for ax, species in zip(axes, colors, strict=True):
    rows = band.frame.query("var == @species")
    ax.fill_between(rows["time"], rows["lower"], rows["upper"], color=colors[species], alpha=0.25, lw=0,
                    label="95 % band")  # fmt: skip
    ax.plot(initial["time"], initial[species], color="0.6", ls=":", label="first guess")
    ax.plot(fitted["time"], fitted[species], color=colors[species], label="fitted")
    ax.plot(pelts["year"], pelts[species], "o", color="black", ms=4, label="observed")
    ax.set_ylim(0, 1.25 * max(pelts[species].max(), rows["upper"].max(), initial[species].max()))
    ax.legend(loc="upper right", ncols=4, fontsize="small", frameon=False)
name_axes(axes, "Fitted")
save(figure, "fit")
plt.show()

# %%
# Lynx against hares: the fitted orbit is run through anticlockwise, hares lead and lynx follow.

figure, ax = plt.subplots(figsize=(5.5, 5), layout="constrained")
ax.plot(fitted["Hare"], fitted["Lynx"], color=colors["Lynx"], label="fitted")
ax.plot(pelts["Hare"], pelts["Lynx"], "o:", color="black", ms=4, lw=0.7, label="observed")
places = {1900: (6, -10), 1904: (6, 4), 1908: (-30, -11), 1912: (-6, 8), 1916: (-32, 3), 1920: (2, 8)}
for year, place in places.items():
    ax.annotate(str(year), pelts.set_index("year").loc[year], place, textcoords="offset points", fontsize="small")
ax.set(
    xlabel=f"Hare: {label}", ylabel=f"Lynx: {label}", title="Hares lead, lynx follow", xlim=(0, None), ylim=(0, None)
)
ax.legend(frameon=False)
save(figure, "phases")
plt.show()

# %%
# What is written
# ---------------
# Everything above as CSV, PNG and SVG.

estimates.to_csv(output / "estimates.csv", index_label="parameter")
summary.par.to_csv(output / "summary_log_scale.csv", index_label="parameter")
cost(np.exp(fit.par)).residuals.to_csv(output / "residuals.csv", index=False)
band.frame.rename(columns={"time": "year"}).to_csv(output / "fitted.csv", index=False)
print(f"Tables (CSV) and pictures (PNG, SVG) are in {output}/:")
print(textwrap.fill("  ".join(sorted(p.name for p in output.iterdir())), 100))
