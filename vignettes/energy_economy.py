"""
An energy economy: demand, supply and prices in modules
=======================================================

Three modules that three people might own: ``demand.fme`` says what is used at a price, ``supply.fme`` what mines at
home give at it and what is imported, ``prices.fme`` what the two cost together. Price, demand and supply hang together
at every moment: a loop across the modules, which is solved in every step. Yearly statistics stand apart, in CSV files;
the model runs in steps of a month. In the end, policies are compared as scenarios. The country is made up.
"""

# %%
# Modules and data
# ----------------
# The files lie in the folder ``energy_economy`` beside this script. A module is a list of statements in any order; a
# name that it does not assign comes from another module, or from the data base.
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import fmepy as fme

here = (Path(__file__).parent if "__file__" in globals() else Path()) / "energy_economy"
print((here / "supply.fme").read_text())

data = fme.dmi.Database(here / "data")
print(data.items.drop(columns=["source", "extrapolate"]))

economy = fme.dmi.ModularModel(
    fme.dmi.read_modules(here), data, times=np.arange(1990, 2021), dt=1 / 12, max_iterations=60
)
assert len(economy.parms) == 23
# noted are the circle of which the map tells, and "1990 = 1", which is no unit
assert set(economy.diagnostics["level"]) == {"note"}

# %%
# The map
# -------
# Who gives what to whom was found from the texts alone. Demand needs the price, supply needs demand, and the price
# needs what both come to: a circle.
print(economy.variable_map)
economy.plot_map()
plt.show()

# %%
# A run
# -----
# Rows stand at whole years; between them the model makes twelve steps, and statistics are interpolated.
out = economy()
print(out[["time", "price", "D", "imports", "mines", "emissions"]].iloc[::5].round(2).to_string(index=False))

# %%
# The loop of price, demand and supply was solved in each of the 361 steps by executing its statements again and again.
# It takes few executions where little has changed since the month before, and more where the price jumps about.
loops = out.attrs["convergence"]
print(loops["executions"].describe().round(1))
assert len(loops) == 361
assert (loops["method"] == "repeated").all()

# %%
# Whatever has settled is a solution: put back into the statement of ``prices.fme``, it gives the price again.
p = economy.parms
cost = p["cost0"] * (1 + p["steep"] * (out["home"] / out["mines"]) ** 4)
world = data["world"].sampled(out["time"].to_numpy(float), [()])[:, 0]
assert np.allclose((out["home"] * cost + out["imports"] * world) / out["D"], out["price"], rtol=1e-7)
assert np.allclose(out["price"].iloc[[0, 18, 30]], [4.57376, 8.56047, 5.79068], rtol=1e-4)

# %%
# The dear years from 2004 on are seen at once in the price, later in demand, and last in the mines that they paid for.
units = {
    "price": "price, $ a GJ",
    "D": "demand, PJ a year",
    "imports": "imports, PJ a year",
    "mines": "mines, PJ a year",
}
fme.plot_model(out, which=list(units), ylabel=list(units.values()), xlabel="year")
plt.show()

# %%
# What matters
# ------------
# How much does each parameter move emissions, in percent for one percent of its own? What mining costs at home does
# most, by way of the price; of what consumers do in the long run industry's part, ``later[1]``, counts most.
sens = fme.sensFun(economy, [*(f"later[{i}]" for i in range(3)), "habit", "cost0", "building"], sensvar="emissions")
print(sens.summary())
assert np.isclose(sens["later[1]"].iloc[-1], -0.07991, rtol=1e-3)

# %%
# Policies
# --------
# A row a policy, a column a parameter: a tax on carbon from 2000 on, shorter times to open a mine, and consumers who
# answer sooner. Elasticities are not well known; every policy is run with the same twelve draws of them, so that what
# is uncertain about the country does not blur the difference between policies.
policies = pd.DataFrame(
    {
        "scenario": ["as it is", "carbon tax", "quick mines", "quick consumers"],
        "tax": [0, 30, 0, 0],
        "building": [6, 6, 2, 6],
        "habit": [5, 5, 5, 1],
    }
)
draws = fme.Latinhyper({"later[0]": (0.1, 0.3), "later[1]": (0.2, 0.6), "later[2]": (0.15, 0.45)}, 12, seed=1)
runs = fme.scenarios(economy, policies, parInput=draws, sensvar=["price", "imports", "emissions"], num=12, seed=1)
difference = runs.difference("as it is").summary()
last = difference.frame.query("x == 2020").set_index(["scenario", "var"])[["Mean", "q05", "q95"]]
print(last.round(2))
assert len(runs.failures) == 0
assert np.allclose(last["Mean"].loc["carbon tax"], [2.24833, -681.918, -26.6935], rtol=1e-4)

# %%
# Under the tax 682 PJ less are imported in 2020. Of these 381 PJ (26.7 Mt of carbon dioxide) are saved, in every draw;
# the rest is dug at home, for the price pays for mines, too. Consumers who answer sooner save while energy is dear, and
# use more when it is cheap again.
difference.plot(xlabel="year", ylabel=["price, $ a GJ", "imports, PJ a year", "emissions, Mt a year"])
plt.show()
