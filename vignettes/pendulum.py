"""
A pendulum whose length is sought: a landscape with one minimum
===============================================================

A simulation with a wrong length runs out of step with the data, and the sum of squares goes up and down with the number
of swings that it has gained or lost: of a record of 20 s it has seventeen minima in the length. A model that its data
correct while it runs never loses its step; what is left is how well it predicts the next reading, and that has one
minimum. Two ways to correct it are shown, and what becomes of them with noise, and with gains that are fitted too.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import fmepy as fme

# %%
# The pendulum and its readings
# -----------------------------
# One metre long, 1,000 readings of the angle within 20 s; every search begins at 0.7 m.


def rates(t, theta, omega, *, L=0.7, g=9.82):
    """Return the rates of angle and speed."""
    return omega, -g / L * np.sin(theta)


times = np.linspace(0.1, 20.0, 1000)
model = fme.OdeModel(rates, state={"theta": 0.0, "omega": 3.0}, times=times, outputs={"y": "theta"})
exact = model.replace(rtol=1e-10, atol=1e-12)({"L": 1.0})[["time", "y"]]
noisy = exact.assign(y=exact["y"] + 0.1 * np.random.default_rng(2).standard_normal(len(times)))

# %%
# Three costs
# -----------
# * Simulation: the path from the start is compared with the data.
# * The observer, theta' = omega + K (y(t) - theta), K = 1 per second, y(t) a straight line between the readings. It
#   uses y(t) while it predicts y(t). With a gain that is given this does no harm; a gain that is fitted would grow
#   without end, and so fmepy refuses it.
# * Correction at every reading: predict it, score, then correct the angle and the speed by a part of the error. It
#   predicts a reading before it sees it, and so its gains can be fitted.


def costs(data):
    """Return the three ways to hold the model against the data."""
    at_readings = {"theta": {"y": 0.05}, "omega": {"y": 0.1}}
    return {
        "simulation": fme.SimulationCost(model, data),
        "observer, K = 1": fme.PredictionErrorCost(model, data, gain={"theta": {"y": 1.0}}, form="observer"),
        "corrected at every reading": fme.PredictionErrorCost(model, data, gain=at_readings),
    }


# %%
# The landscapes: sums of squares over the length. Simulation has seventeen minima (dots), both predictions have one.

landscapes = {name: fme.landscape(cost, {"L": (0.01, 2.0)}, num=200) for name, cost in costs(exact).items()}
_, panels = plt.subplots(3, 1, figsize=(7, 7), sharex=True, layout="constrained")
for ax, (name, found) in zip(panels, landscapes.items(), strict=True):
    found.plot(ax=ax)
    ax.axvline(0.7, color="0.5", lw=0.8, ls=":")
    ax.set(xlabel="", ylabel="sum of squares, rad²")
    ax.set_title(f"{name}: minima (dots): {len(found.minima)}", loc="left", fontsize=10)
    if ax.get_legend() is not None:
        ax.get_legend().remove()
panels[0].annotate("start", (0.7, 0.06), (4, 0), xycoords=("data", "axes fraction"), textcoords="offset points")
panels[-1].set_xlabel("length L, m")
assert [len(found.minima) for found in landscapes.values()] == [17, 1, 1]
plt.show()

# %%
# What a search finds
# -------------------
# From 0.7 m, with exact readings: simulation stays in the valley where it begins, predictions find the metre (the
# observer but for its straight lines between the readings). With an error of 0.1 rad in every reading, predictions find
# it within one standard error; simulation is as sure of its wrong length as ever.

fits = {name: fme.modFit(cost, ["L"]) for name, cost in costs(exact).items()}
fits_noisy = {name: fme.modFit(cost, ["L"]) for name, cost in costs(noisy).items()}
table = pd.DataFrame({
    "L": {name: fit.par["L"] for name, fit in fits.items()},
    "L, noise 0.1": {name: fit.par["L"] for name, fit in fits_noisy.items()},
    "standard error": {name: fit.std_error["L"] for name, fit in fits_noisy.items()},
})  # fmt: skip
print(table.to_string(float_format="{:.5f}".format))
assert np.allclose(table["L"], [0.67768, 1.000067, 1.0000], rtol=3e-4)
assert np.allclose(table["L, noise 0.1"][1:], [0.99936, 0.99877], rtol=2e-4)
assert np.allclose(table["standard error"], [0.00143, 0.001630, 0.004238], rtol=4e-3)

# %%
# What is compared with the data at 0.7 m, at the start of the search: the simulated angle is soon out of step, the
# predicted one follows the readings.

free = fme.PredictionErrorCost(model, noisy, gain={"theta": {"y": "K1"}, "omega": {"y": "K2"}},
                               parms={"K1": 0.1, "K2": 0.1})  # fmt: skip
_, panels = plt.subplots(2, 1, figsize=(7, 5), sharex=True, sharey=True, layout="constrained")
for ax, name, cost in zip(panels, ("simulated", "predicted"), (costs(noisy)["simulation"], free), strict=True):
    run = cost.run({"L": 0.7})
    ax.plot(noisy["time"], noisy["y"], ".", ms=2, color="0.7", label="readings, sd 0.1")
    ax.plot(run["time"], run["y"], lw=1.2, color="#2f5d8a", label=f"{name}, L = 0.7")
    ax.set(ylabel="angle, rad", ylim=(-1.7, 2.1))
    ax.legend(loc="upper right", ncols=2, fontsize=9)
panels[0].set_title("At a wrong length: what is compared with the readings")
panels[-1].set_xlabel("time, s")
plt.show()

# %%
# Gains that are fitted
# ---------------------
# The pendulum has no noise of its own, so that the best correction is none: both gains come out as nothing, within
# two standard errors, and the residual standard error is that of the readings.

fit = fme.modFit(free, ["L", "K1", "K2"])
print(fit.summary())
assert (fit.par[["K1", "K2"]].abs() < 3 * fit.std_error[["K1", "K2"]]).all()
assert np.isclose(fit.par["L"], 0.99991, rtol=1e-4)
assert np.isclose(np.sqrt(fit.ssr / fit.df_residual), 0.10121, rtol=1e-3)
