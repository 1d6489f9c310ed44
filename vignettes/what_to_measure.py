"""
Can it be known, and what should be measured? A drug in blood and tissue
========================================================================

A drug is given into the blood, moves to a tissue and back, and leaves from both. Blood is sampled. Before anybody
measures, two questions can be answered: which of the rates such samples could tell at all, however many and exact they
were; and, once the question can be answered, when to take the few samples that there will be.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import fmepy as fme

# %%
# Can this be known at all?
# -------------------------
# Four rates, and the volume that makes a concentration of an amount.
drug = fme.OdeModel(
    """
    d(blood)/dt = -(leave + bind) * blood + release * tissue
    d(tissue)/dt = bind * blood - (release + decay) * tissue
    seen = blood / V
    """,
    state={"blood": 100, "tissue": 0}, times=np.linspace(0, 24, 97),
    parms=dict(leave=0.2, bind=0.5, release=0.15, decay=0.05, V=5),
)  # fmt: skip
known = fme.structural_identifiability(drug, observed=["seen"], seed=1)
print(known)
assert known.verdicts.to_dict() == {
    "leave": "not", "bind": "not", "release": "not", "decay": "not", "V": "globally",
}  # fmt: skip
assert set(known.combinations) == {"leave + bind", "bind*release", "release + decay"}

# %%
# No sample of blood, however exact, tells the four rates: three functions of them are all there is. The smallest
# remedies are to know one of the rates, or to sample the tissue. A tissue that does not lose the drug is such
# knowledge:
closed = drug.replace(parms={"decay": 0.0})
found = fme.structural_identifiability(closed, observed=["seen"], known=["decay"], seed=1)
assert set(found.verdicts) == {"globally"}

# %%
# What should be measured?
# ------------------------
# Four samples between half an hour and a day, each with an error of 5 % of what is read. The criterion D asks for the
# smallest ellipsoid of all four parameters.
rates = {"leave": 0.2, "bind": 0.5, "release": 0.15, "V": 5.0}
few = pd.DataFrame({"time": [1.0], "seen": [float(np.interp(1.0, drug.times, closed()["seen"]))]})
cost = fme.SimulationCost(closed, few, measurement_noise={"seen": "0.05 * seen"})
best = fme.design(cost, rates, times=(0.5, 24), n=4, min_gap=0.25, seed=1)
print(best)
assert np.allclose(best.chosen["time"], [0.5, 2.7576, 7.6623, 24.0], atol=2e-3)
assert np.isclose(best.after["V"], 0.32786, rtol=1e-3)
best.plot()
plt.show()

# %%
# Against what a protocol often has, samples at even times, it is worth knowing by how much:
even = pd.DataFrame({"time": [6.0, 12.0, 18.0, 24.0]})
habit = fme.design(cost, rates, candidates=even, n=4, seed=1)
table = pd.DataFrame({"even times": habit.after, "best times": best.after})
print(table.assign(ratio=table["even times"] / table["best times"]).round(3))
assert (table["best times"] < table["even times"]).all()
assert np.isclose(table.loc["bind", "even times"] / table.loc["bind", "best times"], 4.637, rtol=3e-3)

# %%
# The errors that are foretold are those of fits to simulated samples.
rng, times = np.random.default_rng(1), np.sort([1.0, *best.chosen["time"]])
exact = closed(times=np.unique([0.0, *times]))["seen"].to_numpy()[1:]
fits = []
for _ in range(100):
    seen = pd.DataFrame({"time": times, "seen": exact * (1 + 0.05 * rng.standard_normal(len(times)))})
    fits.append(fme.modFit(cost.replace(obs=seen), rates, lower=0, hessian=False).par)
spread = pd.DataFrame(fits).std()
print(pd.DataFrame({"foretold": best.after, "of 100 fits": spread}).round(4))
assert np.isclose(spread["V"], 0.3241, rtol=4e-3)
assert np.isclose(spread["leave"], best.after["leave"], rtol=0.35)

# %%
# Rates of an enzyme
# ------------------
# Settings can be chosen like times. The initial rate of an enzyme, Vm S / (Km + S), is measured best at the largest
# substrate there is, and at Km S / (2 Km + S) of it.
enzyme = fme.OdeModel(
    "d(z)/dt = 0*z\nv = Vm*S/(Km + S)", state={"z": 0}, times=[0, 1], parms={"Vm": 2.0, "Km": 1.5, "S": 1.0}
)
two = fme.design(
    enzyme, {"Vm": 2.0, "Km": 1.5}, candidates=lambda c: {"time": [1], "variable": ["v"]}, controls={"S": (0.01, 10)},
    n=2, seed=1,
)  # fmt: skip
print(two.chosen)
assert np.allclose(sorted(two.chosen["S"]), [15 / 13, 10], rtol=1e-3)

# %%
# A virus in the blood
# --------------------
# The model of FME's main vignette: cells T, infected cells I, virus V. Counts of virus alone cannot tell how many cells
# there are: with more of them, each of which releases less, the same virus is seen.
parms = dict(bet=2e-5, rho=0.15, delt=0.55, c=5.5, lam=80.0, n=900.0)


def counted(loss):
    """Return the model; `loss`: whether virus is lost where it infects a cell."""
    return fme.OdeModel(
        f"""
        d(T)/dt = lam - rho*T - bet*T*V
        d(I)/dt = bet*T*V - delt*I
        d(V)/dt = n*delt*I - c*V {"- bet*T*V" if loss else ""}
        logV = log(V)
        """,
        state={"T": "T0", "I": "I0", "V": "V0"}, times=np.arange(61), rtol=1e-8,
        parms={**parms, "T0": 100, "I0": 150, "V0": 50000},
    )  # fmt: skip


simple = fme.structural_identifiability(counted(loss=False), observed=["logV"], seed=1)
print(simple)
assert set(simple.verdicts[simple.verdicts == "not"].index) == {"lam", "n", "T0", "I0"}
assert "lam*n" in simple.combinations

# %%
# In FME's model virus is lost where it infects a cell. That small term is all that fixes the number of cells, and it
# fixes it badly: from FME's counts of virus alone ``lam`` and ``n`` are as good as unknown, their errors larger than
# they are themselves. Six readings more, of virus or of cells (with an error of 4.5): which?
virus = counted(loss=True)
assert "not" not in set(fme.structural_identifiability(virus, observed=["logV"], seed=1).verdicts)
data = fme.datasets.load("hiv").query("name == 'logV'")[["time", "value", "sd"]].rename(columns={"value": "logV"})
kinds = pd.DataFrame({"variable": ["logV", "T"], "sd": [0.45, 4.5]})
later = pd.merge(pd.DataFrame({"time": np.arange(1.0, 61)}), kinds, how="cross")
more = fme.design(fme.SimulationCost(virus, data, err="sd"), parms, candidates=later, n=6, seed=1)
print(more)
assert set(more.chosen["variable"]) == {"T"}
assert np.isclose(more.before["lam"], 142.3, rtol=0.005)
assert np.isclose(more.after["lam"], 5.44, rtol=0.005)
more.plot()
plt.show()
