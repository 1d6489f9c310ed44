"""
FME "other": fits of formulas, Monod's growth and thirty linear equations
=========================================================================

`fmepy.modFit` minimises any function of parameters that returns residuals, a cost or a number; the model need not be
a differential equation. This page fits a formula (Monod's law of growth) by methods of every kind, another one to the
oxygen demand of R's manuals, and solves a linear system. The numbers are those that R's FME gives. How the parameters
of Monod's law are sampled stands in FME "MCMC".
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import fmepy as fme

# %%
# Monod's law of growth
# ---------------------
# The growth rate of bacteria (per hour) saturates with the concentration x of their substrate (mg COD per litre)::
#
#     y = mumax x / (x + ks)
#
# Seven readings (Berthouex and Brown 2002, Statistics for Environmental Engineers). ``f`` returns the residuals; the
# start has no names, so that the parameters are p1 and p2.

obs = pd.DataFrame({"x": [28, 55, 83, 110, 138, 225, 375], "y": [0.053, 0.06, 0.112, 0.105, 0.099, 0.122, 0.125]})


def monod(p, x):
    """Return growth rates."""
    return p[0] * x / (x + p[1])


def residuals(p):
    """Return model minus readings."""
    return monod(p, obs["x"].to_numpy()) - obs["y"].to_numpy()


fit = fme.modFit(residuals, [0.1, 1])
summary = fit.summary()
print(summary)
assert np.allclose(fit.par, [0.14541969, 49.05294], rtol=1e-6)
assert np.isclose(fit.ssr, 8.167717e-4, rtol=1e-6)
assert np.allclose(summary.par["Std. Error"], [0.01564307, 17.91186], rtol=1e-4)
assert np.allclose(summary.par["Pr(>|t|)"], [2.4233e-4, 0.0408613], rtol=1e-3)
assert np.isclose(summary.modVariance, 1.1668167e-4, rtol=1e-5)

# %%
# The readings, and the curve at the first guess and at the fit.

x = np.arange(1.0, 376.0)
ax = obs.plot.scatter("x", "y", color="black", label="readings")
ax.plot(x, monod([0.1, 1], x), color="0.6", ls=":", label="first guess")
ax.plot(x, monod(fit.par.to_numpy(), x), color="C0", label="fitted")
ax.set(xlabel="substrate, mg COD per litre", ylabel="growth rate, per hour", title="Monod's law")
ax.legend(loc="lower right")
plt.show()

# %%
# By any method
# -------------
# With bounds, and with methods of other families, the minimum is the same. Those that draw random numbers take a seed.

box = {"lower": [0.01, 1], "upper": [1, 500]}
settings = {"Marq": {}, "Port": {}, "Newton": {}, "Nelder-Mead": {}, "BFGS": {}, "CG": {}, "L-BFGS-B": {},
            "bobyqa": {}, "Pseudo": {"seed": 1, "control": {"numiter": 3000}}}  # fmt: skip
fits = {method: fme.modFit(residuals, [0.12, 30], method=method, **box, **more) for method, more in settings.items()}
table = pd.DataFrame(
    {m: [*f.par, f.ssr, f.converged] for m, f in fits.items()}, index=["p1", "p2", "ssr", "converged"]
).T
print(table.to_string())
assert np.allclose(table["ssr"].astype(float), 8.167717e-4, rtol=1e-3)
assert np.allclose(table["p2"].drop("Pseudo").astype(float), 49.0529, rtol=1e-3)

# %%
# Oxygen demand
# -------------
# Another formula, R's data set ``BOD``: the demand for oxygen (mg/l) of organic matter that decays, over days::
#
#     demand = A (1 - exp(-k Time))

bod = fme.datasets.load("BOD")
decay = fme.modFit(lambda p: p["A"] * (1 - np.exp(-p["k"] * bod["Time"])) - bod["demand"], {"A": 20, "k": 1})
print(decay.summary())
assert np.allclose(decay.par, [19.142575, 0.5310914], rtol=1e-5)
assert np.isclose(decay.ssr, 25.990267, rtol=1e-7)
assert np.allclose(decay.std_error, [2.495902, 0.2030834], rtol=1e-3)

# %%
# Residuals, and the sum of squares by iteration.

decay.plot()
plt.show()

# %%
# Thirty linear equations
# -----------------------
# A x = b is solved by least squares; with its Jacobian, which is A itself, methods that use derivatives need no
# differences. FME's example draws its matrix; so does this one, and what can be compared is the error that is left:
# rounding, for Levenberg and Marquardt's method.

rng = np.random.default_rng(1)
A, truth = rng.uniform(0, 1, (30, 30)), rng.uniform(0, 1, 30)
b = A @ truth
start = np.full(30, 0.5)
solved = {
    method: fme.modFit(lambda x: A @ x - b, start, method=method, jac=lambda x: A)
    for method in ("Marq", "Port", "BFGS")
}
for method, one in solved.items():
    print(f"{method}: largest error {np.abs(one.par.to_numpy() - truth).max():.1e}, {one.iterations} iterations")
assert np.allclose(solved["Marq"].par, truth, rtol=1e-8)
assert np.allclose(solved["Port"].par, truth, atol=1e-4)
assert np.allclose(solved["Marq"].hessian, 2 * A.T @ A)
