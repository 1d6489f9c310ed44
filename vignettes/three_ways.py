"""
Three ways to fit a system that is noisy itself
===============================================

A system drifts, and is read with error (the example of Peterson 1976)::

    x(n) = A x(n-1) + w(n),   w of standard deviation sd_w     process noise: it stays in the system
    z(n) = x(n) + v(n),       v of standard deviation sd_v     measurement noise: it is gone with the reading

Wanted is A = 0.8. Simulation compares the readings with one path without noise: right if sd_w = 0. One-step least
squares starts the model again at every reading: right if sd_v = 0. FIMLOF starts it again at the most likely state,
given all readings so far, and estimates both noises beside A. Which is right where? Three kinds of systems are
simulated five times each: how far off are the estimates, and do their 95 % intervals hold the true A?

FIMLOF is right everywhere, and where a simple way is right, agrees with it. Behind measurement noise one-step least
squares finds A too small and is sure of it; where there is process noise, simulation scatters.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import fmepy as fme

# %%
# Three costs of one model
# ------------------------
# Simulation fits A and the start; one-step least squares is FIMLOF without measurement noise, from the first reading
# on; FIMLOF itself fits A, the start and both noises.

A, x0, steps = 0.8, 10.0, 200


def peterson(n, x, *, A=0.5, x0=5.0):
    """Return the next state."""
    return A * x


def simulated(sd_w, sd_v, rng):
    """Return readings of the true system."""
    x, readings = x0, []
    for w, v in zip(sd_w * rng.standard_normal(steps), sd_v * rng.standard_normal(steps), strict=True):
        x = A * x + w
        readings.append(x + v)
    return pd.DataFrame({"time": np.arange(1, steps + 1), "z": readings})


rng = np.random.default_rng(1)
model = fme.DifferenceModel(peterson, state={"x": "x0"}, times=np.arange(steps + 1), outputs={"z": "x"})
fimlof = fme.FimlofCost(model, simulated(1.0, 1.0, rng), process_noise={"x": "sd_w"}, measurement_noise={"z": "sd_v"},
                        parms={"sd_w": 1.0, "sd_v": 1.0})  # fmt: skip
ways = {
    "simulation": (fme.SimulationCost(model, fimlof.obs), ["A", "x0"]),
    "one-step": (fimlof.replace(measurement_noise={"z": 0.0}, initial="data"), ["A", "sd_w"]),
    "FIMLOF": (fimlof, ["A", "x0", "sd_w", "sd_v"]),
}

# %%
# The same data for all three, five times for every kind of system. The costs are prepared once and take new data.

systems = {"noisy readings": (0.0, 2.0), "noisy system": (2.0, 0.0), "both": (2.0, 2.0)}
rows = []
for system, noise in systems.items():
    for run in range(5):
        data = simulated(*noise, rng)
        for way, (cost, names) in ways.items():
            fit = fme.modFit(cost.replace(obs=data), names)
            rows.append((system, way, run, fit.par["A"], fit.std_error["A"]))
estimates = pd.DataFrame(rows, columns=["system", "way", "run", "A", "std_error"])

# %%
# What comes out
# --------------
# Median, scatter (sample standard deviation), the standard error that is claimed, and how many of five 95 % intervals
# hold A.

estimates["holds"] = (estimates["A"] - A).abs() <= 1.96 * estimates["std_error"]
cells = estimates.groupby(["system", "way"], sort=False)
table = pd.DataFrame({
    "median": cells["A"].median(),
    "scatter": cells["A"].std(),
    "claimed": cells["std_error"].median(),
    "of 5 hold A": cells["holds"].sum(),
})  # fmt: skip
print(table.round(3).to_string())

# %%
# With noisy readings of a system without noise, simulation is right and FIMLOF agrees with it. One-step least squares
# takes the noise of a reading for a move of the system: A comes out near zero, and no interval holds it.

median, hold = table["median"], table["of 5 hold A"]
assert np.allclose(median["noisy readings"], [0.7808, 0.1440, 0.7807], rtol=2e-3)
assert hold["noisy readings", "one-step"] == 0

# %%
# With exact readings of a noisy system, one-step least squares is right and FIMLOF agrees with it. One path without
# noise says little of where the system has been: simulation scatters.

assert np.allclose(median["noisy system"], [0.8019, 0.8194, 0.8465], rtol=2e-3)
print(table["scatter"]["noisy system"] / table["scatter"]["noisy system", "FIMLOF"])

# %%
# With both, one-step least squares is off by the share of the readings' noise in what is read, Var v / (Var x + Var v).

size = 4.0 / (1 - A**2) + x0**2 / (1 - A**2) / steps
print(f"Expected of one-step least squares: {A * size / (size + 4.0):.3f}")
assert np.allclose(median["both"], [0.8502, 0.6049, 0.8018], rtol=2e-3)
assert abs(median["both", "one-step"] - A * size / (size + 4.0)) < 0.05
assert list(hold[:, "FIMLOF"]) == [5, 5, 5]

# %%
# All estimates with their 95 % intervals; the line is the truth. FIMLOF is the only one that is right everywhere.

colors = {"simulation": "#b5651d", "one-step": "#7a7a7a", "FIMLOF": "#2f5d8a"}
_, panels = plt.subplots(1, 3, figsize=(10, 3.8), sharey=True, layout="constrained")
for ax, (system, part) in zip(panels, estimates.groupby("system", sort=False), strict=True):
    for k, (way, found) in enumerate(part.groupby("way", sort=False)):
        ax.errorbar(found["run"] + 6 * k, found["A"], 1.96 * found["std_error"], fmt="o", ms=4, lw=1, color=colors[way],
                    label=way)  # fmt: skip
    ax.axhline(A, color="black", lw=0.8)
    ax.set(title="{}: sd_w {:g}, sd_v {:g}".format(system, *systems[system]), xticks=[2, 8, 14], xticklabels=colors)
panels[0].set(ylabel="A, estimate and 95 % interval", ylim=(-0.6, 1.4))
plt.show()
