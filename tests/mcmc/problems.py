"""Targets whose posterior is known, and the errors of what a chain says of them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd

import fmepy as fme

FOLDER = Path(__file__).parent.parent / "reference" / "fme"


def cases(file: str) -> dict:
    """Return the cases of a reference file by id."""
    return {c["id"]: c for c in json.loads((FOLDER / f"{file}.json").read_text(encoding="utf-8"))["cases"]}


MONOD = pd.read_csv(FOLDER / "data" / "monod.csv")


def normal3(p):
    return float(np.sum(((p - np.array([1.0, 2.0, 3.0])) / 0.1) ** 2))


def box_normal(p):
    return float(np.sum((p - np.array([1.0, 2.0, 2.5])) ** 2) / 0.25)


BOX = {"lower": [0, 2, 1], "upper": [1, 3, 3]}


def banana(p):
    a, b = p[0], p[1] - p[0] ** 2 - 1
    return float((a * a - 1.8 * a * b + b * b) / 0.19)


def monod_residuals(p):
    mumax, ks = (p["mumax"], p["ks"]) if isinstance(p, dict) else p
    return MONOD["y"].to_numpy() - mumax * MONOD["x"].to_numpy() / (MONOD["x"].to_numpy() + ks)


def two_monods(case):
    """Return the cost of two tables, and the cost in R's order (the newest call first)."""
    q = case["inputs"]["problem"]
    first = pd.DataFrame({"x": q["x"], "y": q["y"]})
    second = pd.DataFrame({"x": q["x2"], "z": q["z"]})

    def parts(p):
        def curve(x, name):
            x = np.asarray(x, dtype=float)
            return pd.DataFrame({"x": x, name: p["mumax"] * x / (x + p["ks"])})

        return fme.modCost(curve(q["x"], "y"), first, x="x"), fme.modCost(curve(q["x2"], "z"), second, x="x")

    return lambda p: parts(p)[0] + parts(p)[1]


def quick_two_monods(case):
    """Return the same as a prepared cost: arrays only, which is what takes the time of a chain."""
    q = case["inputs"]["problem"]
    x = {"y": np.array(q["x"], float), "z": np.array(q["x2"], float)}
    obs = {"y": np.array(q["y"]), "z": np.array(q["z"])}
    return PlainCost(
        lambda t: np.concatenate([t[0] * x[k] / (x[k] + t[1]) - obs[k] for k in ("y", "z")]),
        {"mumax": 0.1, "ks": 40.0},
        np.repeat([0, 1], [len(x["y"]), len(x["z"])]),
        ("y", "z"),
    )


class PlainCost:
    """A cost with fmepy's face made of a function of a vector."""

    is_scalar = has_jacobian = False
    retries = 0

    def __init__(self, residuals, parms, groups, group_names, weights=None):
        self.parms = pd.Series(parms)
        self.residuals, self.group_names, self.groups = residuals, tuple(group_names), np.asarray(groups)
        n = len(self.groups)
        self.weights = np.ones(n) if weights is None else weights
        self.x, self.scales = np.arange(float(n)), np.ones(len(self.group_names))
        self.names = [self.group_names[g] for g in self.groups]

    def bind(self, names=None, *, hold_engine=False):
        self.parameter_names = tuple(names)
        self.theta0 = self.parms[list(names)].to_numpy(dtype=float)
        self.lower, self.upper = np.full(len(names), -np.inf), np.full(len(names), np.inf)
        return self


# --- Monte Carlo errors, by batch means


def batch_error(x):
    """Return the standard error of the mean of one series or of several chains (n_chain, n_draw).

    25 batches a chain; the larger of what chains say that are independent, and what their common mean says, since the
    members of an ensemble are not.
    """
    x = np.atleast_2d(x)
    size = max(x.shape[1] // 25, 1)

    def error(rows):
        means = np.concatenate([row[: len(row) // size * size].reshape(-1, size).mean(axis=1) for row in rows])
        return float(np.std(means, ddof=1) / np.sqrt(len(means)))

    return max(error(x), error(x.mean(axis=0)[None, :]))


def assert_agrees(x, mean=None, sd=None, errors=5.0):
    """Assert that mean and sd of draws are those of the target, within so many Monte Carlo standard errors."""
    x = np.atleast_2d(np.asarray(x, dtype=float))
    if mean is not None:
        error = batch_error(x)
        assert abs(x.mean() - mean) < errors * error, (x.mean(), mean, error)
        assert error < 0.2 * x.std()  # a chain that says nothing agrees with everything
    if sd is not None:
        centre = x.mean() if mean is None else mean
        error = batch_error((x - centre) ** 2) / (2 * sd)
        assert abs(np.sqrt(np.mean((x - centre) ** 2)) - sd) < errors * error, (x.std(), sd, error)


def by_chain(column):
    """Return a column of draws as (n_chain, n_draw)."""
    return np.stack([v.to_numpy() for _, v in column.groupby(level=0)])
