"""
Delays: a population that feels its past
========================================

Animals that hatched feed weeks later, infected people recover after some days, blood cells ripen. Rates then depend on
what the states were some time ago: ``lag(N, tau)`` is N at t - tau. The delay is a parameter like any other, so it can
be fitted, and its sensitivities are exact.
"""

import matplotlib.pyplot as plt
import numpy as np

import fmepy as fme

# %%
# Hutchinson's equation
# ---------------------
# A population grows to what feeds it, K, but feels its own size of a time tau ago. Before the first time it was what
# ``history`` says.

model = fme.OdeModel(
    "d(N)/dt = r*N*(1 - lag(N, tau)/K)",
    state={"N": "N0"},
    history={"N": "N0"},
    parms={"r": 1.0, "tau": 1.5, "K": 10.0, "N0": 1.0},
    times=np.linspace(0, 40, 401),
)
print(model)
runs = {tau: model({"tau": tau}) for tau in (0.3, 1.2, 1.8)}

# %%
# Up to r tau = 1/e it approaches K from one side, up to pi/2 it swings and settles; beyond, it swings for ever.

fme.plot_model(*runs.values(), labels=[f"tau = {tau}" for tau in runs])
plt.show()

peaks = [run.N.max() for run in runs.values()]
print(np.round(peaks, 3))
assert np.allclose(peaks, [10.0, 14.7274, 24.1849], rtol=1e-3)

# %%
# A delay from data
# -----------------
# Forty counts, each wrong by a tenth or so; growth, delay, capacity and start are unknown.

truth = {"r": 0.9, "tau": 1.6, "K": 100.0, "N0": 10.0}
rng = np.random.default_rng(2)
counts = model.replace(parms=truth)(times=np.arange(0.5, 20.5, 0.5))
counts["N"] *= np.exp(0.1 * rng.standard_normal(len(counts)))
cost = fme.SimulationCost(model, counts, transform="log")
fit = fme.modFit(cost, p={"r": 1.0, "tau": 1.0, "K": 80.0, "N0": 5.0}, lower=0.01)
print(fit.summary())
assert np.allclose(fit.par, [0.91562, 1.59958, 101.044, 9.5077], rtol=1e-3)
sd = np.sqrt(np.diag(fit.cov_scaled))
assert np.all(np.abs(fit.par - list(truth.values())) < 3 * sd)

# %%
# Growth and delay tell themselves apart: the collinearity of all four is far below 20, where estimates lose their
# meaning.

sens = fme.sensFun(cost, fit.par)
collinearity = fme.collin(sens, parset=list(truth)).value
print(collinearity)
assert np.isclose(collinearity, 2.12404, rtol=1e-3)

fit.predict(model, times=np.linspace(0, 21, 211)).plot(obs=counts)
plt.show()

# %%
# Mackey and Glass
# ----------------
# Blood cells, made at a rate that depends on how many there were, and lost: with a delay of 17 days their number is
# chaotic. An output may read the past as well; against it, the run draws an attractor.

cells = fme.OdeModel(
    "d(x)/dt = beta*ago/(1 + ago**n) - gamma*x\nago = lag(x, tau)",
    state={"x": 0.5},
    parms={"beta": 0.2, "gamma": 0.1, "n": 10, "tau": 17},
    times=np.arange(0, 1001, 1.0),
)
run = cells()
print(run.iloc[[50, 100, 150]].round(4))
assert np.allclose(run.x[[50, 100, 150]], [0.6441197, 1.0500205, 0.8634145], rtol=1e-4)  # deSolve's dede
assert np.allclose(run.ago[17:151], run.x[:134], rtol=1e-4)

_, (left, right) = plt.subplots(1, 2, figsize=(9, 4), width_ratios=[2, 1])
left.plot(run.time[300:], run.x[300:], lw=0.8)
left.set(xlabel="time (days)", ylabel="x")
right.plot(run.x[300:], run.ago[300:], lw=0.5)
right.set(xlabel="x(t)", ylabel="x(t - 17)")
plt.tight_layout()
plt.show()
