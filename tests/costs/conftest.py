"""Small models with closed solutions, that satisfy the contract of a model and count their runs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fmepy.errors import SimulationError
from fmepy.parameters.named import check_names, merge_parameters

REFERENCE = Path(__file__).parents[1] / "reference" / "fme"


class ClosedModel:
    """A model whose solution is a function of time and parameters; sensitivities by complex steps, so exact."""

    engine = "closed"
    engine_note = ""

    def __init__(self, parms, times):
        self.parms = pd.Series(parms, dtype=float)
        self.times = np.array(times, dtype=float)
        self.runs = []  # (kind, times) of every run
        self.bindings = []

    def __call__(self, parms=None, times=None):
        values = dict(merge_parameters(self.parms, parms))
        times = self.times if times is None else np.asarray(times, dtype=float)
        table = pd.DataFrame(np.real(self.solution(times, values)), columns=list(self.var_names))
        table.insert(0, "time", times)
        return table

    def bind(self, names=None, *, times=None, hold_engine=False):
        names = tuple(self.parms.index) if names is None else tuple(names)
        check_names(names, self.parms.index, argument="names")
        self.bindings.append((names, hold_engine))
        return BoundClosedModel(self, names, self.times if times is None else np.array(times, dtype=float))

    def replace(self, *, parms=None, times=None):
        return type(self)({**self.parms, **(parms or {})}, self.times if times is None else times)


class BoundClosedModel:
    def __init__(self, model, names, times):
        self.names, self.times, self.var_names = names, times, model.var_names
        self.theta0 = model.parms[list(names)].to_numpy()
        self.exact, self.retries = True, 0
        self.model = model

    def _values(self, theta):
        return {**self.model.parms, **dict(zip(self.names, theta, strict=True))}

    def simulate(self, theta):
        self.model.runs.append(("run", self.times))
        with np.errstate(all="ignore"):
            return np.real(self.model.solution(self.times, self._values(theta)))

    def sensitivities(self, theta):
        self.model.runs.append(("sensitivities", self.times))
        theta = np.asarray(theta, dtype=complex)
        S = np.empty((len(self.times), len(self.var_names), len(theta)))
        with np.errstate(all="ignore"):
            for k in range(len(theta)):
                moved = theta.copy()
                moved[k] += 1e-30j
                S[:, :, k] = np.imag(self.model.solution(self.times, self._values(moved))) / 1e-30
            Y = np.real(self.model.solution(self.times, self._values(theta)))
        return Y, S


class Decay(ClosedModel):
    """A decays into B: A = A0 exp(-k t), B = A0 - A, logA, and an output that is never finite."""

    states = ("A", "B")
    var_names = ("A", "B", "logA", "broken")

    def __init__(self, parms=None, times=(0.0, 1.0, 2.0, 3.0, 4.0)):
        super().__init__({"A0": 10.0, "k": 0.5, **(parms or {})}, times)

    @staticmethod
    def solution(t, p):
        if np.real(p["k"]) > 100:
            raise SimulationError("The run failed.", parameters=p)
        A = p["A0"] * np.exp(-p["k"] * t)
        return np.stack([A, p["A0"] - A, np.log(A), np.full(len(t), np.nan) * A], axis=1)


class Growth(ClosedModel):
    """Logistic growth, N = K / (1 + (K / N0 - 1) exp(-r t))."""

    states = ("N",)
    var_names = ("N",)

    def __init__(self, parms=None, times=tuple(range(101))):
        super().__init__({"r": 0.5, "K": 100.0, "N0": 0.1, **(parms or {})}, times)

    @staticmethod
    def solution(t, p):
        return (p["K"] / (1 + (p["K"] / p["N0"] - 1) * np.exp(-p["r"] * t)))[:, None]


@pytest.fixture
def decay():
    return Decay()


@pytest.fixture
def growth():
    return Growth()


@pytest.fixture
def make_decay():
    return Decay


def number(value):
    """A number of the reference files, whose missing and infinite ones are text."""
    return {"NA": np.nan, "NaN": np.nan, "Inf": np.inf, "-Inf": -np.inf}.get(value, value)


def table(stored):
    """A table, matrix or named vector of the reference files."""
    if "matrix" in stored:
        return pd.DataFrame(stored["matrix"], columns=stored["columns"])
    if "data" in stored:
        return pd.DataFrame({k: [number(v) for v in stored["data"][k]] for k in stored["columns"]})
    return {k: number(v) for k, v in stored.items()}


@pytest.fixture(scope="session")
def read_table():
    return table


@pytest.fixture(scope="session")
def reference():
    """Return a function that gives a case of a reference file."""
    return ReferenceCases()


class ReferenceCases:
    def __init__(self):
        self.files = {}

    def names(self, topic):
        if topic not in self.files:
            cases = json.loads((REFERENCE / f"{topic}.json").read_text())["cases"]
            self.files[topic] = {c["id"]: c for c in cases}
        return self.files[topic]

    def __call__(self, topic, name):
        return self.names(topic)[name]


@pytest.fixture(scope="session")
def data_folder():
    return REFERENCE / "data"
