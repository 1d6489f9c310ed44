"""R's runs for the tests of this room, and the models and costs they were made with."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pandas as pd

import fmepy as fme
from tests.models.problems import REFERENCE, bacteria_model, cases, hiv_model

TIGHT = {"rtol": 1e-11, "atol": 1e-11}
FIVE = ["bet", "rho", "delt", "c", "lam"]
BACTERIA_TIMES = np.arange(0, 51, 5.0)
DATA = REFERENCE / "data"


def table(entry: dict[str, Any]) -> pd.DataFrame:
    """Return a reference table or matrix; Inf, NaN and NA as numbers."""
    words = {"Inf": np.inf, "-Inf": -np.inf, "NaN": np.nan, "NA": np.nan}
    columns = entry.get("columns")
    out = pd.DataFrame(entry["data"], columns=columns) if "data" in entry else pd.DataFrame(entry["matrix"])
    if "data" not in entry and columns is not None:
        out.columns = pd.Index(columns)
    out = out.map(lambda v: words.get(v, v))
    if "index" in entry:
        out.index = pd.Index(entry["index"])
    return out


@cache
def sensfun_case(name: str) -> dict[str, Any]:
    return cases("sensFun.json")[name]


@cache
def vignette(name: str) -> dict[str, Any]:
    return cases("vignettes.json")[name]["outputs"]


@cache
def bacteria(times: str = "coarse") -> fme.OdeModel:
    """Return the bacteria model, without the extra output, on R's output times."""
    grid = BACTERIA_TIMES if times == "coarse" else np.arange(0, 50.5, 0.5)
    return bacteria_model(**TIGHT).replace(times=grid)


@cache
def bacteria_cost(reverse: bool = False) -> Any:
    """Return the cost of the manual's two data sets, Bact first; `reverse`: Sub first."""
    model = bacteria("fine")
    parts = [
        fme.SimulationCost(model, pd.read_csv(DATA / "bacteria_manual_bact.csv")),
        fme.SimulationCost(model, pd.read_csv(DATA / "bacteria_manual_sub.csv")),
    ]
    return parts[1] + parts[0] if reverse else parts[0] + parts[1]


@cache
def hiv_cost() -> Any:
    """Return the HIV vignette's cost, T first, as R has it (the newest call first)."""
    hiv = hiv_model(**TIGHT)
    t, logv = pd.read_csv(DATA / "hiv_t.csv"), pd.read_csv(DATA / "hiv_logv.csv")
    return fme.SimulationCost(hiv, t, err="sd") + fme.SimulationCost(hiv, logv, err="sd")
