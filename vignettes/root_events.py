"""
What happens when a level is reached: a ball that bounces, a drug that is dosed by what is left of it
=====================================================================================================

Nobody knows beforehand when a ball meets the ground, or when a concentration falls to its trough: these times depend on
the parameters that are sought. fmepy stops its solvers there, and lets the sensitivities go through: the derivatives of
the times, and of all that follows, are exact, so that least squares find the parameters from readings on both sides of
many events.
"""

import matplotlib.pyplot as plt
import numpy as np

import fmepy as fme

# %%
# A ball
# ------
# Where its height falls through zero, its speed is turned round, and a part of it is lost. A `root` is a state, an
# output or any expression of the model; `direction` -1 says that it falls through zero there.


def falling(t, height, speed, *, g=9.81, e=0.82, h0=2.0):
    """Return the rates of height and speed between two bounces."""
    return speed, -g


bounce = dict(root="height", direction=-1, var="speed", value="-e * speed")
ball = fme.OdeModel(falling, state={"height": "h0", "speed": 0}, times=np.linspace(0, 3, 301), events=[bounce])

# %%
# When it bounces, and how the times move with the parameters: the first at sqrt(2 h0 / g), whatever e is.

hits = ball.hits(sensitivities=True)
print(hits)
fall = np.sqrt(2 * 2.0 / 9.81)
assert np.allclose(hits["time"], fall * np.array([1, 1 + 2 * 0.82, 1 + 2 * 0.82 + 2 * 0.82**2]), rtol=1e-5)
assert np.isclose(hits["g"][0], -0.03255, rtol=1e-3)
assert np.isclose(hits["e"][1], 1.277, rtol=1e-3)

# %%
# Sixty readings with an error of 3 cm, fitted from a guess that is out of step after two bounces.

rng = np.random.default_rng(3)
at = np.linspace(0, 3, 61)[1:]
heights = ball(times=at)[["time", "height"]].assign(height=lambda d: d["height"] + 0.03 * rng.standard_normal(60))
first = {"g": 9.3, "e": 0.85, "h0": 2.1}
fit = fme.modFit(fme.SimulationCost(ball, heights), first, lower=0)
print(fit.summary())
assert np.isclose(fit.par["e"], 0.8202, rtol=1e-3)
assert np.isclose(fit.par["g"], 9.765, rtol=1e-3)
assert np.isclose(fit.std_error["g"], 0.04890, rtol=4e-3)

# %%
# A drug
# ------
# Whenever the concentration in the blood has fallen to its trough, the next dose is taken. The trough is not known
# either: it is the patient who feels it.


def absorbed(t, gut, blood, *, ka=1.2, ke=0.15, trough=1.5, V=10.0, dose=60.0):
    """Return the rates of the amount in the gut and of the concentration in the blood."""
    return -ka * gut, ka * gut / V - ke * blood


dosing = dict(root="blood - trough", direction=-1, var="gut", value="dose", method="add")
drug = fme.OdeModel(absorbed, state={"gut": "dose", "blood": 0}, times=np.linspace(0, 36, 217), events=[dosing])
at = np.linspace(0, 36, 37)[1:]
samples = drug(times=at)[["time", "blood"]].assign(blood=lambda d: d["blood"] + 0.1 * rng.standard_normal(36))
guess = {"ka": 1.0, "ke": 0.16, "trough": 1.6}
dosed = fme.modFit(fme.SimulationCost(drug, samples), guess, lower=0)
print(dosed.summary())
doses = drug.hits(dosed.par, sensitivities=True)
print(doses[["time", "ka", "ke", "trough"]])
assert np.isclose(dosed.par["ke"], 0.1509, rtol=1e-3)
assert np.isclose(dosed.par["trough"], 1.489, rtol=1e-3)
assert np.allclose(doses["time"], [10.130, 21.561, 32.991], rtol=1e-3)
assert (abs(dosed.par - [1.2, 0.15, 1.5]) < 3 * dosed.std_error).all()

# %%
# Both fits, and when the events of the fitted models happen.

_, panels = plt.subplots(2, 1, figsize=(7, 6), layout="constrained")
for ax, model, data, begun, found, unit in (
    (panels[0], ball, heights, first, fit, ("height, m", "time, s", "bounces")),
    (panels[1], drug, samples, guess, dosed, ("blood, mg/L", "time, h", "doses")),
):
    name, when = data.columns[1], model.hits(found.par)["time"]
    before, after = model(begun), model(found.par)
    low = min(0.0, data[name].min())
    ax.plot(before["time"], before[name], color="0.6", lw=1, ls="--", label="first guess")
    ax.plot(after["time"], after[name], color="#2f5d8a", label="fitted")
    ax.plot(data["time"], data[name], ".", color="#c1603a", label="readings")
    ax.plot(when, np.full(len(when), low), "^", color="0.2", ms=6, clip_on=False, label=f"{unit[2]}, fitted")
    ax.set(ylabel=unit[0], xlabel=unit[1], ylim=(low, 1.25 * after[name].max()))
    ax.legend(loc="upper right", ncols=4, fontsize=8)
plt.show()
