"""One result of every class that can be saved, made the way that a user makes it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import fmepy as fme
from fmepy.workflow.steps.filter import Filtering
from fmepy.workflow.steps.ranges import Bands
from fmepy.workflow.steps.scenarios import WhatIf
from fmepy.workflow.steps.screen import Screened


def global_indices_of_some() -> Any:
    pytest.importorskip("SALib")
    return fme.global_indices(some_fail, {"a": (0, 0.5)}, num=8, seed=1)


__all__ = ["SAMPLES"]

TIMES = np.linspace(0, 5, 11)


@cache
def model():
    return fme.OdeModel("d(N)/dt = r*N*(1 - N/K)", state={"N": "N0"}, parms={"r": 1.0, "K": 10.0, "N0": 1.0},
                        times=TIMES, outputs={"logN": "log(N)"})  # fmt: skip


@cache
def data():
    noise = 0.1 * np.cos(7 * TIMES)
    return pd.DataFrame({"time": TIMES, "N": model()({"r": 1.1})["N"] + noise})


@cache
def cost():
    return fme.SimulationCost(model(), data())


@cache
def fit():
    return fme.modFit(cost(), {"r": 0.8, "K": 8.0}, lower=0)


@cache
def filtered_cost():
    walk = fme.DifferenceModel(
        "next(x) = a*x", state={"x": 0.0}, times=range(30), parms={"a": 0.9}, outputs={"y": "x", "z": "2*x"}
    )
    rng = np.random.default_rng(3)
    x = np.cumsum(rng.standard_normal(29))
    table = pd.DataFrame({"time": range(1, 30), "y": x + rng.standard_normal(29)})
    return fme.FimlofCost(walk, table, process_noise={"x": "q"}, measurement_noise={"y": "s"}, initial_sd={"x": 1.0},
                          parms={"q": 1.0, "s": 1.0})  # fmt: skip


@cache
def chain():
    return fme.modMCMC(
        cost(), fit().par, jump=fit().cov_scaled, var0=fit().var_ms_unweighted, wvar0=1.0, niter=60, chains=2, seed=1
    )


@cache
def sensitivities():
    return fme.sensFun(cost(), {"r": 1.0, "K": 9.0})


@cache
def ranges():
    return fme.sensRange(model(), parInput=chain().pars, num=8, seed=1)


@cache
def what_if():
    return fme.scenarios(model(), {"base": {}, "Größer": {"K": 20.0}}, parInput=chain().pars, num=4, seed=1)


def some_fail(p):
    if p["a"] > 0.8:
        raise ValueError("too much: ü")
    return {"x": [0.0, 1.0], "y": [p["a"], 1.0]}


SAMPLES: dict[str, Callable[[], Any]] = {
    "BadData": lambda: fme.screen_bad_data(filtered_cost()),
    "Bands": lambda: Bands({"1": ranges().summary(), "2": ranges().summary()}, "Tank", 8, 0, "the chain"),
    "BoundaryFit": lambda: fme.fit_boundary(model(), data(), {"r": 0.8, "N0": 2.0}, strategy="particular"),
    "Branch": lambda: fme.continuation(
        fme.SteadyModel("d(x)/dt = p - x**2", state={"x": 1}, parms={"p": 1}), "p", (0.5, 2)
    ),
    "CalibrationCheck": lambda: fme.simulation_based_calibration(
        cost().replace(measurement_noise={"N": 0.1}), {"r": stats.norm(1, 0.1)}, num=4, niter=60, seed=1
    ),
    "ChainSummary": lambda: chain().summary(),
    "Collin": lambda: fme.collin(sensitivities()),
    "Correlations": lambda: filtered_cost().filter().correlations(),
    "FilterResult": lambda: filtered_cost().filter(),
    "FilterSummary": lambda: filtered_cost().filter().summary(),
    "FitComparison": lambda: fme.compare_fits({"all": fit(), "r": fme.modFit(cost(), {"r": 0.8})}),
    "Filtering": lambda: Filtering(filtered_cost().filter(), filtered_cost().filter().forecast(2)),
    "Forecast": lambda: filtered_cost().filter().forecast(3),
    "GlobalIndices": lambda: (
        pytest.importorskip("SALib") and fme.global_indices(some_fail, {"a": (0, 0.5)}, num=8, seed=1)
    ),
    "Identifiability": lambda: fme.identifiability(sensitivities()),
    "IdentifiableFit": lambda: fme.identifiable_fit(cost(), {"r": 0.8, "K": 8.0}),
    "ModCRL": lambda: fme.modCRL(lambda p: p["a"] * 2, parRange={"a": (0, 1)}, num=5, seed=1),
    "ModCost": lambda: cost()(fit().par),
    "Landscape": lambda: fme.landscape(cost(), {str(fit().par.index[0]): (0.5, 2.0)}, num=3),
    "ModFit": fit,
    "ModFitSummary": lambda: fit().summary(),
    "ModMCMC": chain,
    "MultiStart": lambda: fme.modFit(cost(), {"r": 0.8, "K": 8.0}, starts=3, seed=1).multistart,
    "Normality": lambda: filtered_cost().filter().normality(),
    "Periodogram": lambda: filtered_cost().filter().periodogram(),
    "Prediction": lambda: fme.predict(model(), fit()),
    "Profile": lambda: fme.profile(cost(), fit(), num=5),
    "PseudoOptim": lambda: fme.pseudoOptim(
        lambda p: (p["a"] - 1) ** 2, {"a": 0.0}, lower=-2, upper=2, control={"numiter": 50}, seed=1
    ),
    "RangeSummary": lambda: ranges().summary(),
    "Runs": lambda: fme.run_many(lambda p: {"twice": 2 * p, "half": (p / 2, None)}, [1, 2**70, 3.0]),
    "ScenarioSummary": lambda: what_if().summary(),
    "Scenarios": lambda: what_if().difference("base"),
    "Screened": lambda: Screened(sensitivities(), fme.collin(sensitivities()), 3.5),
    "SensFun": sensitivities,
    "SensFunSummary": lambda: sensitivities().summary(),
    "SensRange": lambda: fme.sensRange(some_fail, {"a": 0.1}, parRange={"a": (0, 1)}, num=6, dist="grid"),
    "OptimalDesign": lambda: fme.design(model(), {"r": 1.0}, candidates={"time": [1, 2, 3]}, n=1, seed=1),
    "StructuralIdentifiability": lambda: fme.structural_identifiability(model(), observed=["N"], seed=1),
    "SteadyState": lambda: fme.steady({"N": 1.0}, lambda t, y, p: (2.0 - y, {"twice": 2 * y[0]})).as_stored(),
    "SumsqTest": lambda: filtered_cost().filter().sumsq_test(),
    "WhatIf": lambda: WhatIf({"": what_if()}, None, "the chain"),
}
"""By name of the class; a new result class has its line here."""
