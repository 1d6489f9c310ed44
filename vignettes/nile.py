"""
The Nile at Aswan: a level that wanders, or one that jumped
===========================================================

A hundred years of flow, 1871-1970, are compared with the local level model (Durbin and Koopman 2001, chapter 2): a
level that wanders, read with error. The prediction errors are white and normal, so that nothing speaks against the
model, taken as a whole. But of all jumps of the level the data ask most for one in 1899, when a dam at Aswan was begun.
With a free jump in that year the level needs no other noise; log L rises by 10 for one parameter more, and the
forecasts differ: a level that wanders may be anywhere in ten years, one that has jumped once will stay.
"""

import matplotlib.pyplot as plt
import numpy as np

import fmepy as fme

# %%
# A level that wanders
# --------------------
# With flow in 1e8 m3 a year::
#
#     level(n) = level(n-1) + w,  w of standard deviation sd_w        what the river's regime does
#     flow(n)  = level(n) + v,    v of standard deviation sd_v        the single year's weather
#
# Nothing is known of the level before 1871: the start is diffuse. The estimates are those of the literature, variances
# 1469.1 of the level and 15099 of the flow.

nile = fme.datasets.load("Nile")
years = nile["year"]
settings = {"state": {"level": 1000.0}, "times": years, "outputs": {"flow": "level"}}
river = fme.FimlofCost(
    fme.DifferenceModel("next(level) = level", **settings), nile, x="year",
    process_noise={"level": "sd_w"}, measurement_noise={"flow": "sd_v"},
    parms={"sd_w": 50.0, "sd_v": 100.0}, initial="diffuse",
)  # fmt: skip
fit = fme.modFit(river, seed=1)
print(fit.summary())
assert np.allclose(fit.par[["sd_w", "sd_v"]] ** 2, [1469.1, 15099.0], rtol=2e-4)
assert np.isclose(fit.loglik, -632.5456, rtol=1e-6)

# %%
# What the filter says: no correlation is left in the innovations, and no reading stands out. But the smoothed levels
# ask for jumps; the largest, in its standard deviations, is that of 1899.

wanders = river.filter(fit.par)
print(wanders.summary(fit.par))
assert wanders.correlations(10, estimated=fit.par).p_value > 0.2
shocks = wanders.shocks.set_index("time")["AUXS"]
year = int(shocks.abs().idxmax())
print(f"The largest jump of the level that the data ask for: {year}, {shocks[year]:.2f} sd")
assert year == 1899
assert np.isclose(shocks[year], -3.2337, rtol=1e-3)

# %%
# The diagnostics as a picture: innovations over time, their correlations, their quantiles beside normal ones, and how
# their variance is spread over frequencies; white noise keeps within the lines.

_, panels = plt.subplots(2, 2, figsize=(8, 6), layout="constrained")
wanders.plot_diagnostics(axes=panels)
plt.show()

# %%
# A level that jumped
# -------------------
# The jump is put in as a forcing of one year, its size a parameter. The noise of the level comes out as zero: what is
# left are two means, before and after, and the jump is their difference.

jumped = river.replace(
    model=fme.DifferenceModel(
        "next(level) = level + jump * pulse", parms={"jump": 0.0},
        forcings={"pulse": (np.append(years, 1980), np.append(years == year, 0).astype(float))}, **settings,
    )
)  # fmt: skip
fit_jump = fme.modFit(jumped, seed=1)
comparison = fme.compare_fits({"level": fit, "level with a jump": fit_jump})
print(fit_jump.summary())
print(comparison)
assert fit_jump.par["sd_w"] == 0
assert np.isclose(fit_jump.par["jump"], nile["flow"][years >= 1899].mean() - nile["flow"][years < 1899].mean())
assert np.allclose(fit_jump.par[["jump", "sd_v"]], [-247.778, 127.027], rtol=1e-3)
assert np.isclose(fit_jump.loglik - fit.loglik, 10.172, rtol=1e-3)

# %%
# The year was looked for among all, by these same data. By Bonferroni, the chance that some year looks like this is
# still below one in a thousand.

p_value = float(comparison.tests["p_value"].iloc[0])
print(f"p of the jump {p_value:.2g}, of some jump in {fit.nobs:g} years below {min(1.0, p_value * fit.nobs):.2g}")

# %%
# The smoothed levels with their bands over the data: one wanders down around 1900, the other steps from 1098 to 850.

stays = jumped.filter(fit_jump.par)
titles = {"without a jump": wanders, f"with a jump in {year}": stays}
_, panels = plt.subplots(2, 1, figsize=(7, 6), sharex=True, sharey=True, layout="constrained")
for ax, (title, result) in zip(panels, titles.items(), strict=True):
    result.plot("flow", axes=[ax])
    ax.set(ylabel="flow, 1e8 m3 a year", ylim=(400, 1420))
    ax.set_title(title, loc="right")
panels[0].set_xlabel("")
panels[1].get_legend().remove()
plt.show()

# %%
# For every year the jump of the level that all data ask for, in its standard deviations: without a free jump 1899
# asks most (the dotted lines are the limits beyond which a reading is suspected), with it nothing does.

_, panels = plt.subplots(2, 1, figsize=(7, 4.6), sharex=True, sharey=True, layout="constrained")
for ax, (title, result) in zip(panels, titles.items(), strict=True):
    ax.vlines(result.shocks["time"], 0, result.shocks["AUXS"], color="0.4", lw=1)
    for limit in (0, -result.threshold, result.threshold):
        ax.axhline(limit, color="0.3", lw=0.8, ls=":" if limit else "-")
    ax.set(title=title, ylabel="jump / its sd", ylim=(-4.5, 4.5))
panels[0].annotate(str(year), (year, shocks[year]), (6, 0), textcoords="offset points")
panels[1].set_xlabel("year")
plt.show()

# %%
# Ten years ahead
# ---------------
# Bands of 90 % of the level and of a year's flow: where the level wanders they widen, where it jumped they stay.

ahead = {
    "without a jump": wanders.forecast(10, level=0.9, parm_cov=fit.cov_scaled),
    f"with a jump in {year}": stays.forecast(10, level=0.9, parm_cov=fit_jump.cov_scaled),
}
for title, forecast in ahead.items():
    rows = forecast.frame.query("name == 'flow' and time in (1971, 1980)").set_index("time")
    print(
        f"\n{title}:\n{rows[['mean', 'sd', 'lower', 'upper', 'reading_lower', 'reading_upper']].round(1).to_string()}"
    )
sd = [forecast.frame.query("name == 'flow'")["sd"].to_numpy() for forecast in ahead.values()]
assert np.allclose(sd[0][[0, -1]], [82.53, 141.54], rtol=1e-3)
assert np.allclose(sd[1][[0, -1]], [14.970, 14.970], rtol=1e-3)

# %%
# The last forty years, and ten years ahead: the band of the level (blue) widens on the left and stays on the right; the
# band of a reading (grey) lies around it.

_, panels = plt.subplots(1, 2, figsize=(10, 3.6), sharey=True, layout="constrained")
for ax, (title, forecast) in zip(panels, ahead.items(), strict=True):
    forecast.plot("flow", axes=[ax], legpos="upper left")
    ax.set(ylabel="flow, 1e8 m3 a year", title=title, ylim=(400, 1500))
panels[1].set_ylabel("")
panels[1].get_legend().remove()
plt.show()
