"""
Market growth: thirteen parameters from one noisy history, and from four
========================================================================

A firm hires salesmen out of what it delivers; orders that wait make the delivery delay long, which puts off the market,
and, later, makes the firm order capacity (Forrester 1968). The noise is large, 6 % of orders and deliveries, 60 % of
hiring, 60 and 150 % of the delays that are seen, and stays in the system; every level is read with an error of 10 %.
Histories are simulated, so that the truth is known, and fitted by simulation, by one-step least squares and by FIMLOF.

The coefficients of a table function hang together: one history cannot tell them apart, and FIMLOF's standard errors say
so. The functions themselves, where the system has been, are known to a few percent. One-step least squares finds SAT
half as large as it is, however much data there are; its prediction errors remember, and give it away. Simulation goes
astray even from the truth: the path without noise is not where the firm has been.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import fmepy as fme

# %%
# The model
# ---------
# Nine levels; months are the unit of time, and the Euler step of half a month is part of the model::
#
#     SM    salesmen                                 SM'   = (12 DRA / 2000 - SM) / SAT + w_SM
#     BL    backlog of orders                        BL'   = OB - DR
#     DRA   average of the delivery rate             DRA'  = (DR + w_DRA - DRA) / DRAT
#     DDRC  delivery delay as the company sees it    DDRC' = (BL / DRA + w_DDI - DDRC) / 4
#     DDRM  delivery delay as the market sees it     DDRM' = (DDRC + w_DDRM - DDRM) / 6
#     L1-L3, PC  capacity on order, in three stages, and capacity
#     OB    orders      SM SE(DDRM) + w_OB           SE(m) = SEM (1 + SED1 m + SED2 m^2 + SED3 m^3)
#     DR    deliveries  PC PCF(BL / PC) + w_DR       PCF(d) = PCE1 d + PCE2 d^2 + PCE3 d^3
#     PCO   capacity ordered  PC CEF(DDRC / 2 - 0.3) + w_PCO        CEF(q) = CEF1 + CEF2 q + CEF3 q^2 + CEF4 q^3
#
# The noises w are drawn anew every half month.

start = dict(SM=10.0, BL=8000.0, DRA=4270.8, DDRC=1.8732, DDRM=1.8732, L1=-788.52, L2=-788.52, L3=-788.52, PC=12000.0)
noise = dict(w_SM=0.688, w_OB=812.1, w_DR=767.7, w_DRA=767.7, w_DDI=1.997, w_DDRM=4.9, w_PCO=27.14)
levels = list(start)


def market(
    t, SM, BL, DRA, DDRC, DDRM, L1, L2, L3, PC, *, SEM=400.0, SED1=-0.0281, SED2=-0.0295, SED3=0.00228,
    PCE1=0.61782, PCE2=-0.13244, PCE3=0.00973, CEF1=-0.0698, CEF2=0.12442, CEF3=-0.08138, CEF4=0.027704,
    DRAT=1.0, SAT=20.0, w_SM=0.0, w_OB=0.0, w_DR=0.0, w_DRA=0.0, w_DDI=0.0, w_DDRM=0.0, w_PCO=0.0,
):  # fmt: skip
    """Return the rates of change of the nine levels, per month."""
    q, d = DDRC / 2 - 0.3, BL / PC
    OB = SM * SEM * (1 + SED1 * DDRM + SED2 * DDRM**2 + SED3 * DDRM**3) + w_OB
    DR = PC * (PCE1 * d + PCE2 * d**2 + PCE3 * d**3) + w_DR
    PCO = PC * (CEF1 + CEF2 * q + CEF3 * q**2 + CEF4 * q**3) + w_PCO
    return (
        *((12 * DRA / 2000 - SM) / SAT + w_SM, OB - DR, (DR + w_DRA - DRA) / DRAT, (BL / DRA + w_DDI - DDRC) / 4),
        *((DDRC + w_DDRM - DDRM) / 6, PCO - L1 / 4, (L1 - L2) / 4, (L2 - L3) / 4, L3 / 4),
    )


model = fme.OdeModel(market, state=start, times=np.arange(0, 100, 0.5), method="euler", dt=0.5)
truth = model.parms.drop(list(noise))

# %%
# The histories
# -------------
# A history in which something turns negative, or a delay very long, is drawn anew: sixteen are simulated at once, and
# the first four sound ones kept.

rng = np.random.default_rng(1)
x = np.repeat(np.array(list(start.values()))[:, None], 16, axis=1)
path = [x]
with np.errstate(all="ignore"):  # some histories blow up
    for t in model.times[:-1]:
        x = x + 0.5 * np.array(market(t, *x, **{k: sd * rng.standard_normal(16) for k, sd in noise.items()}))
        path.append(x)
    history = np.array(path)  # time, level, history
    sound = (history[:, [0, 1, 2, 3, 4, 8]] > 0).all(axis=(0, 1)) & (history[:, 4] < 12).all(axis=0)
    sound &= (history[:, 1] / history[:, 8] < 8).all(axis=0)
rows = history[:, :, np.flatnonzero(sound)[:4]].transpose(2, 0, 1).reshape(-1, 9)
sd = 0.1 * model()[levels].abs().mean()  # of the errors of readings
data = pd.DataFrame(rows + sd.to_numpy() * rng.standard_normal(rows.shape), columns=levels)
data.insert(0, "time", np.tile(model.times, 4))
data.insert(0, "firm", np.repeat([1, 2, 3, 4], len(model.times)))

# %%
# Readings of the four firms, the first in black, over the path without noise (orange), which is the path of none.

colors = {"simulation": "#b5651d", "one-step": "#7a7a7a", "FIMLOF": "#2f5d8a"}
names = {"BL": "backlog, orders", "DDRM": "delay seen by the market, months", "PC": "capacity, orders a month"}
_, panels = plt.subplots(1, 3, figsize=(11, 3.4), layout="constrained")
quiet = model()
for ax, (name, label) in zip(panels, names.items(), strict=True):
    for firm, part in data.groupby("firm"):
        style = {"color": "black", "lw": 1.0, "zorder": 3} if firm == 1 else {"color": "0.75", "lw": 0.8}
        ax.plot(part["time"], part[name], label={1: "readings of firm 1", 2: "of the others"}.get(firm), **style)
    ax.plot(quiet["time"], quiet[name], color=colors["simulation"], lw=2, zorder=4, label="without noise")
    ax.set(xlabel="months", ylabel=label, ylim=(0, None))
panels[0].legend(loc="upper left", frameon=False, fontsize="small")
plt.show()

# %%
# One history, three ways
# -----------------------
# Every cost starts from the first readings. One-step least squares is FIMLOF whose readings are exact and whose
# equations each have an error, in proportion to the errors of the readings. The simple ways start their search at the
# truth, FIMLOF about 10 % off.

first = data[data["firm"] == 1]
fimlof = fme.FimlofCost(model, first, entity="firm", initial="data", process_noise=noise, noise_kind="per_step",
                        measurement_noise=dict(sd))  # fmt: skip
one_step = fimlof.replace(process_noise=dict(sd), measurement_noise=dict.fromkeys(levels, 0.0))
long = fme.cross2long(first[["time", *levels]], "time")
simulation = fme.SimulationCost(model, long.assign(sd=long["name"].map(sd).astype(float)), x="x", y="y", err="sd")

lower = {"DRAT": 0.3, "SAT": 1.0}  # times are positive; DRAT above half the step, where averaging is stable
off = truth * np.exp(0.1 * np.random.default_rng(3).standard_normal(len(truth)))
fits = {
    "simulation": fme.modFit(simulation, truth, lower=lower, hessian=False, control={"maxiter": 15}),
    "one-step": fme.modFit(one_step, truth, lower=lower, hessian=False),
    "FIMLOF": fme.modFit(fimlof, off, lower=lower, seed=3),
}
errors = pd.DataFrame({way: 100 * (fit.par / truth - 1) for way, fit in fits.items()})
errors["std_error"] = 100 * fits["FIMLOF"].std_error / truth.abs()
print("Errors in percent of the true values, and FIMLOF's standard errors:\n")
print(errors.round(1).to_string())
print(f"\nSimulation: {fits['simulation'].message.split(';')[0]}.")
assert (errors["FIMLOF"].abs() < 3 * errors["std_error"]).all()
assert np.isclose(fits["one-step"].par["SAT"], 10.990, rtol=1e-3)
assert np.isclose(fits["FIMLOF"].par["SAT"], 20.31, rtol=2e-3)

# %%
# The prediction errors tell who is right: where the estimates are, no error remembers the one before. Those of one-step
# least squares alternate, of all levels but the average DRA.

memory = pd.DataFrame({
    way: cost.filter(fits[way].par, smooth=False).correlations(1).time_constants["rho"]
    for way, cost in {"one-step": one_step, "FIMLOF": fimlof}.items()
})  # fmt: skip
print(memory.round(2).T.to_string())
assert (memory["one-step"].drop("DRA") < -0.2).all()
assert (memory["FIMLOF"].abs() < 0.2).all()
assert np.isclose(memory["one-step"].mean(), -0.39580, rtol=2e-3)

# %%
# Four histories
# --------------
# The same thirteen parameters for four firms, from where one left off: standard errors are a sixth (median), far less
# than the half that four times the data would give, for the first history is a dull one.

four = fimlof.replace(obs=data)
fit = fme.modFit(four, fits["FIMLOF"].par, lower=lower, seed=3)
share = fit.std_error / fits["FIMLOF"].std_error
print(pd.DataFrame({"error, %": 100 * (fit.par / truth - 1), "std_error, %": 100 * fit.std_error / truth.abs(),
                    "share of one history's": share}).round(2).to_string())  # fmt: skip
assert fit.converged
assert ((fit.par - truth).abs() < 3 * fit.std_error).all()
assert np.allclose(fit.par[["SEM", "SAT"]], [415.4, 19.79], rtol=2e-3)
assert np.isclose(share.median(), 0.1660, rtol=5e-3)

# %%
# What is known: the functions
# ----------------------------
# Coefficients hang together, the functions that they make are known far better. The three table functions as they are
# (dashed) and as they are found, with FIMLOF's 95 % band (`fmepy.derived`), from one history (above) and from four.

curves = {
    "orders a salesman takes": (
        "delay seen by the market, months", np.linspace(1, 6, 51), (0, 500),
        lambda p, m: p["SEM"] * (1 + p["SED1"] * m + p["SED2"] * m**2 + p["SED3"] * m**3),
    ),
    "share of capacity used": (
        "backlog / capacity, months", np.linspace(0.5, 5, 51), (0, 1.4),
        lambda p, d: p["PCE1"] * d + p["PCE2"] * d**2 + p["PCE3"] * d**3,
    ),
    "capacity ordered, 1 / month": (
        "delay pressure", np.linspace(0.4, 2.4, 51), (-0.1, 0.25),
        lambda p, q: p["CEF1"] + p["CEF2"] * q + p["CEF3"] * q**2 + p["CEF4"] * q**3,
    ),
}  # fmt: skip
_, panels = plt.subplots(2, 3, figsize=(11, 6.4), layout="constrained")
for row, (title, found) in zip(panels, {"one history": fits, "four histories": {"FIMLOF": fit}}.items(), strict=True):
    for ax, (name, (label, at, limits, f)) in zip(row, curves.items(), strict=True):
        band = fme.derived(found["FIMLOF"], lambda p, f=f, at=at: f(p, at))
        ax.fill_between(at, band["lower"], band["upper"], color=colors["FIMLOF"], alpha=0.25, lw=0)
        for way, one in found.items():
            ax.plot(at, f(one.par, at), color=colors[way], lw=1.5, label=way)
        ax.plot(at, f(truth, at), color="black", lw=1, ls="--", label="truth")
        ax.set(xlabel=label, ylabel=name, ylim=limits, title=title)
    row[0].legend(frameon=False, fontsize="small", loc="lower left")
plt.show()
