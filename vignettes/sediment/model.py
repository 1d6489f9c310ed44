"""Oxygen and nitrate in a sediment over a year: what organic matter, mixed in from above, takes as it decays."""

import numpy as np

import fmepy as fme

grid = fme.Grid1D.growing(0, 8, 40, first=0.04)  # cm, finer at the surface


def sediment(t, OM, O2, NO3, T, supply, *, k=0.02, Q10=2.5, Db=0.02, dep=8.0, DO=1.2, DN=1.0, KO=3.0, KN=5.0):
    """Return the rates of organic carbon, oxygen and nitrate, mmol/m3 of porewater a day; T in degrees Celsius."""
    mixing = fme.transport_1d(OM, grid, D=Db, v=0.001, flux_up=100 * dep * supply)  # 1 mmol/m2 is 100 mmol/m3 cm
    decay = k * Q10 ** ((T - 10) / 10) * OM
    oxic = decay * O2 / (O2 + KO)
    denitrified = 0.8 * (decay - oxic) * NO3 / (NO3 + KN)
    oxygen = fme.transport_1d(O2, grid, D=DO, up=330 - 6 * T)
    nitrate = fme.transport_1d(NO3, grid, D=DN, up=20.0)
    rates = mixing.rate - decay, oxygen.rate - 1.3 * oxic, nitrate.rate + 0.15 * oxic - denitrified
    return rates, {"uptake": oxygen.flux[0] / 100, "denitrification": (denitrified * grid.width).sum() / 100}


start = {"OM": 1e4, "O2": 100.0, "NO3": 10.0}
rest = fme.SteadyModel(sediment, state=start, grid=grid, parms={"T": 10.0, "supply": 1.0}, positive=True)

days = np.linspace(-365, 365, 61)  # the first year forgets the start
T = 10 - 6 * np.cos(2 * np.pi * (days - 30) / 365)
bloom = 0.5 + 3 * np.exp(-((np.mod(days, 365) - 115) ** 2) / (2 * 18**2))
supply = bloom / bloom.mean()
model = fme.OdeModel(sediment, state=rest, grid=grid, times=days, forcings={"T": (days, T), "supply": (days, supply)})
