"""
World3: The Limits to Growth in modules
=======================================

The model behind *The Limits to Growth* (1972): people, capital, land, pollution and resources of the whole world from
1900 to 2100, in 149 equations that its authors numbered and explained (D. L. Meadows et al., *Dynamics of Growth in a
Finite World*, Wright-Allen Press, 1974). Here it is a folder of ten modules and a data base. It is run, policies are
compared, and then it is asked what an old model is seldom asked: which of its parameters do data determine, and how far
do those that they do not determine move the end of growth?
"""

# %%
# Modules and data
# ----------------
# The files lie in the folder ``world3`` beside this script. Every equation bears its number and its short name in the
# book, constants and tables stand in two CSV files, with units.
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import fmepy as fme

here = (Path(__file__).parent if "__file__" in globals() else Path()) / "world3"
print((here / "resources.fme").read_text())
data = fme.dmi.Database(here / "data")
print(data.items.loc[["resource_usage_table", "initial_nonrenewable_resources"], ["unit", "comment"]])

world = fme.dmi.ModularModel(fme.dmi.read_modules(here), data, times=np.arange(1900, 2101), dt=0.5)
assert len(world.var_names) == 149

# %%
# Nothing is missing, defined twice, or left over, and the units of all equations fit.
print(world.diagnostics)
assert len(world.diagnostics) == 0
print(world.units[["food_per_capita", "marginal_productivity_of_land_development", "industrial_output"]])

# %%
# Who gives what to whom: everything hangs together. Of the feedback loops, those that reinforce make the world grow.
world.plot_map()
plt.show()
loops = world.feedback_loops()
print(loops["kind"].value_counts())
assert len(loops) == 85

# %%
# The standard run
# ----------------
# Industry grows until it has used up so many of the resources that capital is needed to obtain the rest; then services
# and food go down with it, and at last people.
out = world()
SHOWN = {
    "population": "people",
    "industrial_output_per_capita": "industrial output, $ a head",
    "food_per_capita": "food, kg a head",
    "service_output_per_capita": "services, $ a head",
    "nonrenewable_resource_fraction_remaining": "resources left",
    "index_of_persistent_pollution": "pollution, 1970 = 1",
}
fme.plot_model(out, which=list(SHOWN), ylabel=list(SHOWN.values()), xlabel="year")
plt.show()

peak = pd.DataFrame({"year": out[list(SHOWN)].idxmax() + 1900, "most": out[list(SHOWN)].max()})
print(peak)
assert np.allclose(peak["most"].iloc[:2], [7.06948e9, 395.048], rtol=1e-5)
assert peak["year"].tolist() == [2027, 2013, 2009, 2019, 1900, 2035]

# %%
# Policies
# --------
# A row a policy. With twice the resources the world grows for twenty more years, until pollution stops it. If from 1975
# on all is made of a quarter of the resources, and leaves a quarter of the pollution, growth lasts until there is too
# little food, half a century later. If births equal deaths from then on, too, there is no such end before 2100.
policies = pd.DataFrame(
    {
        "scenario": ["standard run", "twice the resources", "and clean", "and births = deaths"],
        "initial_nonrenewable_resources": [1e12, 2e12, 2e12, 2e12],
        "nonrenewable_resource_usage_factor_2": [1, 1, 0.25, 0.25],
        "persistent_pollution_generation_factor_2": [1, 1, 0.25, 0.25],
        "population_equilibrium_time": [4000, 4000, 4000, 1975],
    }
)
runs = fme.scenarios(world, policies, sensvar=list(SHOWN)[:3] + list(SHOWN)[-1:])
runs.plot(xlabel="year", ylabel=[SHOWN[v] for v in runs.var])
plt.show()
last = runs.frame.query("x == 2100").set_index("scenario")[list(runs.var)]
print(last.T.round(1).to_string())
assert np.allclose(last["population"] / 1e9, [3.983624, 3.914144, 10.146205, 3.927454], rtol=1e-5)

# %%
# What data tell
# --------------
# How many people there were is known (United Nations, World Population Prospects 2019). The standard run is not far
# from it, 45 years after the book. Which parameters move it in those years, in percent for one percent?
people = pd.DataFrame(
    {
        "year": np.arange(1950, 2016, 5),
        "population": 1e9 * np.array(
            [2.536, 2.773, 3.035, 3.340, 3.700, 4.079, 4.458, 4.871, 5.327, 5.744, 6.143, 6.542, 6.957, 7.380]
        ),
    }
)  # fmt: skip
readings = fme.cross2long(people, "year").assign(sd=lambda d: 0.01 * d["y"])
cost = fme.SimulationCost(world, readings, x="x", y="y", err="sd")
names = [
    "life_expectancy_normal", "desired_completed_family_size_normal", "reproductive_lifetime",
    "industrial_capital_output_ratio_1", "initial_nonrenewable_resources", "lifetime_perception_delay",
]  # fmt: skip
sens = fme.sensFun(cost, names)
print(sens.summary())

# %%
# Resources do not: until 2015 so few of them are used up that it does not matter how many there are. Two of the others
# can be told apart, three hardly: beyond a collinearity of 20 one parameter makes up for another.
two, three = (fme.collin(sens, names[:n]).value for n in (2, 3))
print(f"collinearity of two {two:.2f}, of three {three:.1f}")
assert np.allclose([two, three], [8.4138, 125.65], rtol=2e-3)

# %%
# Fitted
# ------
fit = fme.modFit(cost, names[:2])
print(fit.summary())
assert np.allclose(fit.par, [25.1366, 4.68271], rtol=1e-4)

# %%
# With a shorter life, all else equal, and more children wanted, the model follows the data. What they do not say is
# left open: let there be any amount of resources between that of the book and its double, and the other two parameters
# be as uncertain as the fit has them.
draws = fme.Norm(fit.par, fit.cov_scaled, num=200, seed=1)
draws[names[4]] = fme.Unif({names[4]: (1e12, 2e12)}, num=200, seed=2)
ranges = fme.sensRange(world, parInput=draws, num=200, sensvar=["population", "index_of_persistent_pollution"])
band = ranges.summary()
axes = band.plot(xlabel="year", ylabel=["people", "pollution, 1970 = 1"], quant=True)
axes[0].plot(people["year"], people["population"], "o", color="black", markersize=3, label="United Nations")
axes[0].legend()
plt.show()

# %%
# What has been is known within a percent, and the year 2050 within billions: data of growth do not tell where it ends.
wide = band.frame.set_index(["var", "x"]).loc["population", ["q05", "q95"]] / 1e9
print(wide.loc[[1950, 2000, 2050, 2100]].round(3))
assert np.allclose(wide.loc[2000], [6.05443, 6.14681], rtol=1e-3)
assert np.allclose(wide.loc[2050], [7.31075, 9.32100], rtol=1e-3)
