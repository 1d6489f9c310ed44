"""A script as users write it: `make lint` checks its types, a test runs it."""

import numpy as np
import pandas as pd

import fmepy as fme
from fmepy.types import ModFit, SensRange

model = fme.OdeModel("dN/dt = r*N*(1 - N/K)", parms={"r": 0.6, "K": 10.0}, state={"N": 1.0}, times=np.arange(0.0, 11.0))


def rates(t: float, N: float, *, r: float = 0.6, K: float = 10.0) -> float:
    return r * N * (1 - N / K)


other = fme.OdeModel(rates, state={"N": 1.0}, times=np.arange(0.0, 11.0))
data: pd.DataFrame = model()
data["N"] *= 1.01
cost = fme.SimulationCost(model, data)
fit: ModFit = fme.modFit(cost, {"r": 0.5, "K": 9.0}, lower=0)
par: pd.Series = fit.par
table: pd.DataFrame = fit.cov_scaled
print(fit.summary())
sens = fme.sensFun(cost, fit)
print(fme.collin(sens))
chain = fme.modMCMC(cost, fit, niter=100, seed=1)
draws: pd.DataFrame = chain.pars
ranges: SensRange = fme.sensRange(model, parInput=fit, num=10, seed=1)
print(ranges.summary())
crl = fme.modCRL(lambda p: float(model(p)["N"].iloc[-1]), model.parms, parRange={"r": (0.4, 0.6)}, num=5, seed=1)
prof = fme.profile(cost, fit)
ok: bool = fit.converged
axes = fit.plot()
print(fme.modCost(data, data).model)
pred = fme.predict(model, fit)
filt = fme.FimlofCost(model, data, process_noise={"N": 0.1}, measurement_noise={"N": 0.1}).filter(fit)
runs = fme.run_many(lambda p: p, [1, 2])


def explain(f: fme.types.ModMCMC) -> str:
    return f.message
