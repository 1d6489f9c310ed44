"""
Market growth in modules: sales, delivery, capacity
===================================================

Forrester's market-growth model (1968), as three departments would write it down: a firm hires salesmen out of what it
delivers; orders that wait make the delivery delay long, which puts off the market, and, later, makes the firm order
capacity. The three modules are files, the tables of the model stand in a data base, and the whole is a model like any
other: it is run, screened and fitted, by simulation and by a filter. What the filter adds is told in the vignette on
market growth, whose model is written in one piece.
"""

# %%
# Three files
# -----------
# They lie in the folder ``market_modules`` beside this script. ``dims`` declares the vectors that come from the data
# base; what begins with ``w_`` is noise, and zero until a filter is told otherwise.
import re
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import fmepy as fme

here = (Path(__file__).parent if "__file__" in globals() else Path()) / "market_modules"
print((here / "sales.fme").read_text())
capacity, delivery, sales = fme.dmi.read_modules(here)

# %%
# The data base is a folder of CSV files: ``constants.csv``, ``noise.csv``, and ``tables.csv``, where
# each table is two vectors.
data = fme.dmi.Database(here / "data")
print(data.items[["kind", "shape", "unit"]])

# %%
# Put together
# ------------
# Neither the order of the statements nor that of the modules matters. Which module gives what to which is found from
# the texts; had one of them read what nobody gives, a warning would say so.
LEVELS = ["SM", "BL", "DRA", "DDRC", "DDRM", "L1", "L2", "L3", "PC"]
firm = fme.dmi.ModularModel([sales, delivery, capacity], data, times=np.arange(0, 100.5, 0.5), dt=0.5, outputs=LEVELS)
firm.plot_map()
plt.show()

# %%
# A run
# -----
# A hundred months in steps of half a month: the backlog grows, customers wait and stay away, until capacity comes that
# was ordered when they did.
out = firm()
labels = ["salesmen", "backlog, orders", "capacity, orders a month", "delay seen by the market, months"]
fme.plot_model(out, which=["SM", "BL", "PC", "DDRM"], xlabel="months", ylabel=labels)
plt.show()

# %%
# The same in one piece, by a loop of numpy: equal to the last digits.
p, x, rows = firm.parms, dict.fromkeys(LEVELS), []
SEDM, PCF, CEF = ([p[f"{name}[{i}]"] for i in range(n)] for name, n in (("SEDM", 11), ("PCF", 11), ("CEF", 6)))
x |= {"SM": 10.0, "BL": 8000.0, "PC": 12000.0}
x["DRA"] = x["PC"] * np.interp(x["BL"] / x["PC"], np.arange(11) / 2, PCF)
x["DDRC"] = x["DDRM"] = x["BL"] / x["DRA"]
x["L1"] = x["L2"] = x["L3"] = 4 * x["PC"] * np.interp(x["DDRC"] / 2 - 0.3, np.arange(6) / 2, CEF)
for _ in firm.times:
    rows.append(list(x.values()))
    SM, BL, DRA, DDRC, DDRM, L1, L2, L3, PC = rows[-1]
    orders = SM * 400 * np.interp(DDRM, np.arange(11), SEDM)
    delivered = PC * np.interp(BL / PC, np.arange(11) / 2, PCF)
    ordered = PC * np.interp(DDRC / 2 - 0.3, np.arange(6) / 2, CEF)
    rates = [(12 * DRA / 2000 - SM) / 20, orders - delivered, delivered - DRA, (BL / DRA - DDRC) / 4, (DDRC - DDRM) / 6]
    rates += [ordered - L1 / 4, (L1 - L2) / 4, (L2 - L3) / 4, L3 / 4]
    x = {name: value + 0.5 * rate for name, value, rate in zip(LEVELS, rows[-1], rates, strict=True)}
assert np.allclose(out[LEVELS], rows, rtol=1e-11)
assert np.allclose(out.loc[200, ["SM", "BL", "PC", "DDRM"]], [123.9008, 73005.06, 34676.59, 3.645106], rtol=1e-5)

# %%
# Another department's version of a module takes its place by name; only that module is read again. With an older
# policy, which orders capacity at a delay of three months, the firm keeps its customers waiting, and grows less.
text = (here / "capacity.fme").read_text().replace("DDRC / DDOG - DDB", "DDRC / 3 - DDB")
with warnings.catch_warnings():
    warnings.simplefilter("ignore", fme.dmi.DiagnosticWarning)  # the goal of two months, DDOG, is not used any more
    older = firm.replace(modules={"capacity": fme.dmi.Module("capacity", text)})
assert older.processed == ("capacity",)
fme.plot_model(
    out, older(), which=["BL", "PC", "SM"], labels=["goal 2 months", "goal 3 months"], xlabel="months",
    ylabel=[labels[1], labels[2], labels[0]],
)  # fmt: skip
plt.show()

# %%
# A history
# ---------
# ``history.csv`` is a noisy history of the firm (seed 101): noise in the rates, a new draw every half month, 6 to 60 %
# of what it disturbs, and errors of 10 % in all readings. It was simulated with polynomials in place of the tables. A
# filter, too, prefers them: at the kinks of a table its derivatives jump. So each department hands in a smooth version.
smooth = {
    "sales": ("table(DDRM, delay, SEDM)", "(1 + SED1 * DDRM + SED2 * DDRM**2 + SED3 * DDRM**3)"),
    "delivery": ("table(BL / PC, backlog, PCF)", "(PCE1 * BL / PC + PCE2 * (BL / PC)**2 + PCE3 * (BL / PC)**3)"),
    "capacity": (
        "table(DDRC / DDOG - DDB, pressure, CEF)",
        "(CEF1 + CEF2 * (DDRC / DDOG - DDB) + CEF3 * (DDRC / DDOG - DDB)**2 + CEF4 * (DDRC / DDOG - DDB)**3)",
    ),
}
coefficients = {
    "SED1": -0.0281, "SED2": -0.0295, "SED3": 0.00228, "PCE1": 0.61782, "PCE2": -0.13244, "PCE3": 0.00973,
    "CEF1": -0.0698, "CEF2": 0.12442, "CEF3": -0.08138, "CEF4": 0.027704,
}  # fmt: skip
versions = {
    m.name: fme.dmi.Module(m.name, re.sub("dims .*", "", m.text.replace(*smooth[m.name]))) for m in firm.modules
}
own = [here / "data" / "constants.csv", here / "data" / "noise.csv", coefficients]
smooth_firm = firm.replace(modules=versions, data=own)

history = pd.read_csv(here / "history.csv")
errors = [5.238095, 4401.290, 1255.241, 0.3266790, 0.3141363, 163.2685, 143.7251, 125.5023, 1526.384]
sd = dict(zip(LEVELS, errors, strict=True))
noise = {
    "w_SM": 0.6880060, "w_OB": 812.1333, "w_DR": 767.7194, "w_DRA": 767.7194, "w_DDI": 1.996787, "w_DDRM": 1.960074,
    "w_PCO": 27.14466,
}  # fmt: skip
long = fme.cross2long(history[["time", *LEVELS]], "time")
cost = fme.SimulationCost(smooth_firm, long.assign(sd=long["name"].map(sd).astype(float)), x="x", y="y", err="sd")

# %%
# Which parameters could one path without noise tell apart? A collinearity beyond 20 says that it cannot: the more each
# salesman sells (SEM), or may cost (RS), the faster the firm grows.
sens = fme.sensFun(cost, ["SEM", "SAT", "DRAT", "RS", "TDDRC", "TDDRM"])
print(sens.summary())
pair, three = (fme.collin(sens, names).value for names in (["SEM", "RS"], ["SEM", "SAT", "DRAT"]))
print(f"collinearity of SEM and RS {pair:.4f}, of SEM, SAT and DRAT {three:.1f}")
assert np.isclose(pair, 39.50, rtol=1e-3)

# %%
# Fitted by simulation
# --------------------
# The one path without noise is compared with the history. The noise has taken the firm somewhere else, and the fit
# makes up for it by wrong parameters.
names, lower = ["SEM", "SAT", "DRAT"], {"SEM": 0, "SAT": 1, "DRAT": 0.3}
by_simulation = fme.modFit(cost, names, lower=lower, hessian=False)
print(by_simulation.par)
assert np.allclose(by_simulation.par, [325.450, 7.51166, 0.3], rtol=2e-3)

# %%
# Fitted by a filter
# ------------------
# A filter follows the modules step by step, by their equations (``smooth_firm.compiled()``), and takes the data at the
# times at which they were read. The noise stands here on constants of the modules; it may stand on a level, or on what
# a module computes, as well: ``process_noise={"OB": 812.1}`` would do without ``w_OB``.
likelihood = fme.FimlofCost(
    smooth_firm,
    history,
    entity="firm",
    initial="data",
    process_noise=noise,
    noise_kind="per_step",
    measurement_noise=sd,
)
assert np.isclose(likelihood(), 2 * 8503.613 + 1800 * np.log(2 * np.pi), rtol=1e-6)  # of another program, at the truth
of_orders = fme.FimlofCost(
    smooth_firm, history, entity="firm", initial="data", measurement_noise=sd,
    process_noise={"OB" if name == "w_OB" else name: value for name, value in noise.items()},
)  # fmt: skip
assert np.isclose(of_orders(), likelihood(), rtol=1e-10)
by_filter = fme.modFit(likelihood, names, lower=lower)
print(by_filter.summary())
assert np.allclose(by_filter.par, [398.2466, 19.4289, 1.3010], rtol=2e-3)
assert np.isclose(by_filter.minus2loglik, 20313.66, rtol=1e-5)

# %%
# The true values are 400, 20 and 1; the filter finds them within its standard errors.
truth = pd.Series({"SEM": 400.0, "SAT": 20.0, "DRAT": 1.0})
found = pd.DataFrame({"truth": truth, "simulation": by_simulation.par, "filter": by_filter.par})
print(found.assign(standard_error=by_filter.std_error).round(3))
