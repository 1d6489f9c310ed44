"""
FME: HIV in the blood, from sensitivities to chains
===================================================

The path of FME's main vignette: a model of the HI virus, what its parameters do, which of them the data can tell apart,
their fit, their posterior, and what the model says of the future. The data are those of FME's own script, drawn in R;
the numbers asserted are R's, where R has them right.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import fmepy as fme

# %%
# The model
# ---------
# Uninfected cells T, infected cells I and free virus V, per day::
#
#     T' = lam - rho T - bet T V        I' = bet T V - delt I        V' = n delt I - c V - bet T V
#
# The start of I follows from the first change of V. The rates are one Python function; fmepy compiles them, where the R
# user writes C. ``logV`` is an output.

parms = dict(bet=2e-5, rho=0.15, delt=0.55, c=5.5, lam=80.0, n=900.0)


def hiv_rates(t, T, I, V, *, bet, rho, delt, c, lam, n):  # noqa: E741    # the field's own letter
    """Return the rates of change."""
    infection = bet * T * V
    return lam - rho * T - infection, infection - delt * I, n * delt * I - c * V - infection


times = np.r_[0, 0.1, 0.2, 0.4, 0.6, 0.8, np.arange(2, 61, 2)]
hiv = fme.OdeModel(
    hiv_rates, state={"T": 100, "I": "(-200750 + c * 50000) / (n * delt)", "V": 50000}, times=times,
    outputs={"logV": "log(V)"}, parms=parms, rtol=1e-8, atol=1e-8,
)  # fmt: skip

# %%
# The data and the cost
# ---------------------
# Virus counts (their logarithm, error 0.45) and T cells (error 4.5). ``modCost`` is FME's own function; a
# `SimulationCost` is the same, prepared once, and knows the sensitivities of its model: two of them are added.

readings = fme.datasets.load("hiv")
log_v, t_cells = (
    readings.loc[readings["name"] == name, ["time", "value", "sd"]].rename(columns={"value": name})
    for name in ("logV", "T")
)
cost = fme.SimulationCost(hiv, log_v, err="sd") + fme.SimulationCost(hiv, t_cells, err="sd")
print(cost())
chained = fme.modCost(hiv(), t_cells, err="sd", cost=fme.modCost(hiv(), log_v, err="sd"))  # as in R
assert np.isclose(cost().model, 47.55426, rtol=1e-6)
assert np.isclose(chained.model, 47.55426, rtol=1e-6)
assert np.isclose(chained.minlogp, 64.45788, rtol=1e-6)
assert np.allclose(chained.var["SSR"], [12.33116, 35.22309], rtol=1e-5)

# %%
# The two records and the model at its nominal parameters, through which they were drawn.

fme.plot_model(hiv(), obs=[log_v.drop(columns="sd"), t_cells.drop(columns="sd")], which=["logV", "T"],
               xlabel="time, days")  # fmt: skip
plt.show()

# %%
# What parameters do
# ------------------
# ``sensFun`` says by how many percent an output changes with one percent of a parameter. R takes differences with a
# small step, here derivatives are exact: R's numbers agree to a part in a thousand.

sens = fme.sensFun(cost)
print(sens.summary())
L2 = sens.summary().frame["L2"]
assert np.allclose(L2, [0.5319288, 0.1449144, 0.05734232, 0.5460415, 0.2744251, 0.5525495], rtol=1e-4)

# %%
# Sensitivities over time, a panel a record: bet, c and n act alike, so that data can hardly tell them apart.

lines = sens.plot(which=["logV", "T"], legpos=None, xlabel="time, days")
lines[-1].legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
plt.show()

# %%
# Which parameters can be told apart
# ----------------------------------
# ``collin`` gives the collinearity of every set of parameters; above 20 or so a set is not identifiable. All six are
# not; five of them, without n, are.

collinearity = fme.collin(sens)
five = ["bet", "rho", "delt", "c", "lam"]
print(collinearity.frame.query("N == 5").to_string())
print(
    f"All six: {fme.collin(sens, list(parms)).value:.1f}, n and delt alone: {fme.collin(sens, ['n', 'delt']).value:.2f}"
)
assert np.isclose(fme.collin(sens, five).value, 12.25675, rtol=1e-3)
assert np.isclose(fme.collin(sens, five, which="logV").value, 60.42551, rtol=1e-3)
assert np.isclose(fme.collin(sens, five, which="T").value, 60.02420, rtol=1e-3)

# %%
# Both records together are needed: each alone has 60. (R's script prints 5829 and 12 there, because its rows of the two
# records are mixed up.) All sets of parameters, by their size:

collinearity.plot(threshold=20)
plt.show()

# %%
# The fit
# -------
# The logarithms of the five are fitted, from twice their values.

log_cost = fme.transformed(cost, "log")
fit = fme.modFit(log_cost, np.log(2 * hiv.parms[five]))
print(fit.summary())
assert np.isclose(fit.ssr, 44.62731, rtol=1e-6)
assert np.allclose(fit.par, [-10.75524, -1.942222, -0.5313995, 1.770060, 4.393735], rtol=1e-4)
assert np.allclose(fit.std_error, [0.05307147, 0.1007191, 0.1032479, 0.05491301, 0.05067691], rtol=2e-3)
assert np.allclose(fit.var_ms_unweighted[["T", "logV"]], [13.28163, 0.1956885], rtol=1e-4)

# %%
# The posterior
# -------------
# ``modMCMC`` samples the five and both error variances, whose prior counts as a tenth of the data. The proposal is the
# covariance of the fit; it adapts. R's chain of 41,000 iterations has the
# means asserted here.

mcmc = fme.modMCMC(
    log_cost, fit.par, jump=fit.cov_scaled * 2.4**2 / 5, var0=fit.var_ms_unweighted, wvar0=0.1, updatecov=50,
    niter=2500, burninlength=500, seed=1,
)  # fmt: skip
print(mcmc.transform(np.exp).summary())
means = mcmc.pars.mean()
assert np.allclose(means[["bet", "rho", "lam"]], [-10.74109, -1.946998, 4.404431], rtol=5e-3)
assert np.isclose(mcmc.pars.corr().loc["bet", "c"], 0.9977157, rtol=2e-3)

# %%
# Traces of the chain after burn-in: parameters on their own scale, and both variances.

mcmc.transform(np.exp).plot(Full=True)
plt.show()

# %%
# Pairs of parameters: bet and c lie on one line.

mcmc.pairs(nsample=500)
plt.show()

# %%
# What the model says
# -------------------
# The model at draws of the chain: bands of 5 to 95 % around the readings (dots).

ahead = fme.sensRange(hiv, parInput=np.exp(mcmc.pars), sensvar=["logV", "T"], num=100, seed=1).summary()
both = pd.concat([log_v.drop(columns="sd"), t_cells.drop(columns="sd")])
ahead.plot(quant=True, obs=both, legpos="topright", xlabel="time, days")
plt.show()

# %%
# Before any data: what do parameters that are known to 25 % make of the mean number of viruses? ``modCRL`` draws them;
# the correlations say which of them matters. (R's own, of 500 runs, lie within a few hundredths of these.)

box = {k: (0.75 * v, 1.25 * v) for k, v in parms.items()}
virus = fme.modCRL(lambda p: {"mean virus": hiv(p)["V"].mean()}, parRange=box, num=300, seed=1)
correlation = virus.frame.corr()["mean virus"].drop("mean virus")
print(correlation.round(3).to_string())
assert correlation["n"] > 0.5 > correlation["bet"] > 0.25 > 0.0 > correlation["rho"] > -0.4

# %%
# The mean number of viruses over every parameter, with a smoothed line.

virus.plot(trace=True)
plt.show()
