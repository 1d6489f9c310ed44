"""
FME "MCMC": how sure are we? Chains on targets that are known
=============================================================

What FME's vignette on ``modMCMC`` tries: normal distributions, free, in a box and with a prior; a target bent like a
banana; Monod's law of growth with seven readings, and with two sets of readings. Of each target the answer is known, in
closed form or by quadrature, so that one sees what a chain can do, and which of its settings pays.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy.stats import norm

import fmepy as fme

# %%
# A chain without chance
# ----------------------
# ``f`` returns -2 log density; ``jump`` may be a function that proposes the next point. With proposals that are given,
# each far better or far worse than the point before, nothing is left to chance, and the chain is R's, thinned and after
# a burn-in: 12 moves are accepted, and the best point is kept.

proposals = iter(
    [1, 5, 2, 2.5, 4, 3.4, 3.2, 2.9, 2, 3.05, 6, 3.01, 0, 2.99, 3.3, 3.002, 1, 3.001, 2, 4, 3.0005, 9, 3.0002]
)
told = fme.modMCMC(lambda p: 1e5 * (p["a"] - 3) ** 2, {"a": 0}, jump=lambda p: [next(proposals)], niter=23,
                   burninlength=4, outputlength=6, seed=1)  # fmt: skip
print(told.pars)
assert np.allclose(told.pars["a"], [2.900, 3.010, 3.002, 3.001], rtol=1e-9)
assert told.naccepted.tolist() == [12]
assert np.isclose(told.bestpar["a"], 3.001, rtol=1e-9)

# %%
# Normal distributions
# --------------------
# Three normals with means 1, 2, 3 and sd 0.1, from a start that is ten sd away, with a proposal five times too long
# that adapts to the covariance of the chain (``updatecov``).


def three_normals(p):
    """Return -2 log density, up to a constant."""
    return np.sum(((p - np.array([1.0, 2.0, 3.0])) / 0.1) ** 2)


chain = fme.modMCMC(three_normals, [0, 1, 2], jump=0.5, updatecov=100, niter=5000, burninlength=1000, seed=3)
print(chain.summary())
assert ((chain.pars.mean() - [1, 2, 3]).abs() < 5 * chain.diagnostics()["mcse"]).all()
assert np.allclose(chain.pars.mean()[1:], [2.000, 3.000], rtol=5e-3)

# %%
# Traces: after 1,000 iterations of burn-in the chain moves about the means.

chain.plot()
plt.show()

# %%
# In a box: normals with means 1, 2, 2.5 and sd 0.5, cut off. Truncated normals have closed forms; a rejected try may be
# followed by a shorter one (``ntrydr``). (R's delayed rejection is biased near bounds: its chain gives 0.725 for the
# first.)

box = fme.modMCMC(
    lambda p: np.sum((p - np.array([1.0, 2.0, 2.5])) ** 2) / 0.25, [0.9, 2.1, 2.9], jump=0.5, lower=[0, 2, 1],
    upper=[1, 3, 3], ntrydr=2, niter=5000, seed=4,
)  # fmt: skip
exact = np.array([0.638605, 2.361395, 2.358607])
print(pd.DataFrame({"chain": box.pars.mean(), "exact": exact, "error": box.diagnostics()["mcse"]}))
assert ((box.pars.mean() - exact).abs() < 5 * box.diagnostics()["mcse"]).all()
assert np.allclose(box.pars.mean()[1:], [2.361395, 2.358607], rtol=5e-3)

# %%
# One parameter and a prior: the likelihood says 10, the prior 8, each with sd 1; together they say 9.

one = fme.modMCMC(lambda p: (p[0] - 10) ** 2, 9.5, jump=2.0, prior={"p1": norm(8, 1)}, niter=2500, seed=3)
print(one.summary())
assert np.isclose(one.pars["p1"].mean(), 9.000, rtol=5e-3)

# %%
# A bent target
# -------------
# x1 and x2 - x1^2 - 1 are normal with correlation 0.9, so that the region of high density is a banana. The proposal is
# far too long (5 in both directions). Adaptation learns from the moves that were accepted, delayed rejection follows a
# rejected try by a shorter one, DRAM does both; DE-MC(Z) takes its jumps from the past of its members.


def banana(p):
    """Return -2 log density, up to a constant."""
    a, b = p["x1"], p["x2"] - p["x1"] ** 2 - 1
    return (a * a - 1.8 * a * b + b * b) / 0.19


ways = {
    "fixed proposal": {}, "adaptive": {"updatecov": 100}, "DRAM": {"updatecov": 100, "ntrydr": 2},
    "DE-MC(Z)": {"method": "demcz", "niter": 1500, "burninlength": 500},
}  # fmt: skip
usual = {"jump": 5.0, "niter": 4000, "burninlength": 1000, "seed": 5}
bananas = {way: fme.modMCMC(banana, {"x1": 0.0, "x2": 0.5}, **(usual | more)) for way, more in ways.items()}

# %%
# What counts is the number of effective draws for the evaluations that they cost. Straightened, every chain is the
# normal again.

rows = {}
for way, found in bananas.items():
    bend = found.pars["x2"] - found.pars["x1"] ** 2 - 1
    evaluations = found.iterations.sum() + found.count["dr_steps"].sum()
    effective = found.diagnostics()["ess_bulk"].min()
    rows[way] = {
        "acceptance": found.acceptance_rate.mean(), "correlation": np.corrcoef(found.pars["x1"], bend)[0, 1],
        "evaluations": evaluations, "effective": effective, "per 1000": 1000 * effective / evaluations,
    }  # fmt: skip
table = pd.DataFrame(rows).T
print(table.round(3).to_string())
assert (table["correlation"] - 0.9).abs().max() < 0.05
assert table["per 1000"]["adaptive"] > table["per 1000"]["fixed proposal"]

# %%
# The draws of every way over the lines that hold 50 and 95 % of the density.

_, panels = plt.subplots(1, 4, figsize=(11, 3.4), sharex=True, sharey=True, layout="constrained")
x1, x2 = np.meshgrid(np.linspace(-4, 4, 200), np.linspace(-2.5, 14, 200))
for ax, (way, found) in zip(panels, bananas.items(), strict=True):
    ax.plot(found.pars["x1"], found.pars["x2"], ".", markersize=1.5, alpha=0.3)
    ax.contour(x1, x2, banana({"x1": x1, "x2": x2}), levels=[-2 * np.log(0.5), -2 * np.log(0.05)], colors="black",
               linewidths=0.8)  # fmt: skip
    ax.set(title=way, xlabel="x1", xlim=(-4, 4), ylim=(-2.5, 14), xticks=[-3, 0, 3])
panels[0].set_ylabel("x2")
plt.show()

# %%
# Monod's law
# -----------
# The fit of FME "other", sampled. With the variance of the residuals held at the fit's, quadrature gives
# the means 0.15008 and 55.774: the posterior leans to the right of the fit's 0.14542 and 49.05, for seven readings say
# little about ks.

obs = pd.DataFrame({"x": [28, 55, 83, 110, 138, 225, 375], "y": [0.053, 0.06, 0.112, 0.105, 0.099, 0.122, 0.125]})


def growth(p, x):
    """Return growth rates, per hour."""
    return p["mumax"] * x / (x + p["ks"])


def residuals(p, x=obs["x"].to_numpy(), y=obs["y"].to_numpy()):  # noqa: B008
    """Return model minus readings."""
    return growth(p, x) - y


fit = fme.modFit(residuals, {"mumax": 0.1, "ks": 1})
usual = {"jump": fit.cov_scaled * 2.4**2 / 2, "lower": 0, "burninlength": 500, "updatecov": 100}
held = fme.modMCMC(residuals, fit.par, var0=fit.ms, niter=8000, seed=1, **usual)
print(held.summary())
assert np.allclose(fit.par, [0.1454197, 49.05294], rtol=1e-5)
assert np.isclose(held.pars["mumax"].mean(), 0.150075, rtol=5e-3)

# %%
# The variance is not known: it is sampled beside the parameters, and its prior counts as much as the readings
# (``wvar0=1``). The bands are wider then, and upper bounds are needed, for a line through zero is not ruled out.

sampled = fme.modMCMC(residuals, fit.par, var0=fit.ms, wvar0=1, upper=[0.5, 500], niter=5000, ntrydr=2, seed=1, **usual)
print(sampled.summary())
assert np.isclose(sampled.pars["mumax"].mean(), 0.1525833, rtol=5e-3)

# %%
# Traces of the parameters, the sum of squares and the variance.

sampled.plot(Full=True)
plt.show()

# %%
# Draws two by two: a higher mumax is made up for by a higher ks.

sampled.pairs(nsample=1000)
plt.show()

# %%
# Two bands, 5 to 95 %: of the curve (left), and of the next reading (right), to which every draw adds an error of the
# size that was sampled with it.

at = np.linspace(5, 400, 80)
curves = fme.sensRange(lambda p: pd.DataFrame({"x": at, "y": growth(p, at)}), parInput=sampled.pars, num=500, seed=2)
look = {"quant": True, "obs": obs, "xlabel": "substrate, mg COD per litre", "ylabel": "growth rate, per hour"}
_, panels = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
curves.summary().plot(axes=[panels[0]], title="the curve", legpos=None, **look)
readings = curves.with_error(sampled.sig, seed=3).summary()
readings.plot(axes=[panels[1]], title="the next reading", legpos="bottomright", **look)
panels[1].set_ylabel("")
plt.show()

# %%
# Two sets of readings
# --------------------
# A second set of seven, each set with a variance of its own: the cost is a sum of two, whose variables bear one name,
# and ``var0`` has an entry for each.

obs2 = pd.DataFrame({"x": [20, 55, 83, 110, 138, 240, 325], "y": [0.05, 0.07, 0.09, 0.1, 0.11, 0.122, 0.125]})


def two_sets(p):
    """Return the cost of both."""
    first = fme.modCost(pd.DataFrame({"x": obs["x"], "y": growth(p, obs["x"])}), obs, x="x")
    return fme.modCost(pd.DataFrame({"x": obs2["x"], "y": growth(p, obs2["x"])}), obs2, x="x", cost=first)


fit2 = fme.modFit(two_sets, {"mumax": 0.1, "ks": 1})
print(fit2.summary())
assert np.allclose(fit2.par, [0.1448222, 48.43231], rtol=1e-5)
assert np.isclose(fit2.ssr, 9.386287e-4, rtol=1e-6)
assert np.allclose(fit2.std_error, [7.709564e-3, 8.845742], rtol=1e-3)
assert np.allclose(fit2.var_ms_unweighted, [1.737200e-5, 1.167178e-4], rtol=1e-4)

both = fme.modMCMC(two_sets, fit2.par, jump=fit2.cov_scaled * 2.4**2 / 2, var0=fit2.var_ms_unweighted, wvar0=0.1,
                   lower=0, niter=300, burninlength=50, seed=4)  # fmt: skip
print(both.summary())
