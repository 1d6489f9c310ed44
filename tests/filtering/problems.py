"""The models of the reference files, and a textbook filter to hold against the real one."""

import json
from pathlib import Path

import numpy as np
import pandas as pd

from fmepy.fimlof.cost import FimlofCost
from fmepy.models.difference import DifferenceModel
from fmepy.models.ode import OdeModel

FOLDER = Path(__file__).resolve().parent.parent / "reference" / "fimlof"


def read(name):
    return json.loads((FOLDER / f"{name}.json").read_text())


def table(rows, names, start=1.0):
    values = np.array(rows, dtype=float).reshape(len(rows), -1)
    return pd.DataFrame({"time": start + np.arange(len(values)), **dict(zip(names, values.T, strict=True))})


def labelled(matrix, names):
    return pd.DataFrame(matrix, index=names, columns=names)


def outcome(cost):
    """Return the likelihood of a cost's only entity at its own parameters."""
    bound = cost.bind()
    (one,) = bound.likelihoods(bound.theta0)
    return one


def run_of(cost):
    """Return the pass, with its record, of a cost's only entity at its own parameters."""
    bound = cost.bind()
    ((run, _),) = bound.passes(bound.theta0, record=True)
    return run


def kalman(F, Q, H, R, x, P, samples):
    """Return -2 log L by the textbook filter; samples are pairs (rows that are present, values)."""
    total = 0.0
    for rows, z in samples:
        x, P = F @ x, F @ P @ F.T + Q
        if len(rows):
            h, r = H[rows], R[np.ix_(rows, rows)]
            S = h @ P @ h.T + r
            delta, K = z - h @ x, P @ h.T @ np.linalg.inv(S)
            total += np.linalg.slogdet(2 * np.pi * S)[1] + delta @ np.linalg.solve(S, delta)
            x, P = x + K @ delta, (np.eye(len(x)) - K @ h) @ P
    return total


# --- the reference files


def ar1(n, x, *, a):
    return a * x


def ar1_cost(**options):
    ref = read("ar1_noise")
    of = ref["fixed"]
    model = DifferenceModel(ar1, state={"x": of["x0"]}, times=np.arange(201.0), parms={"a": of["a"]})
    return FimlofCost(
        model,
        table(ref["data"], ["x"]),
        process_noise={"x": "sqrt(q)"},
        measurement_noise={"x": "sqrt(r)"},
        parms={"q": of["q"], "r": of["r"]},
        initial_sd={"x": "sqrt(q / (1 - a**2))"},
        **options,
    )


def two_states(n, a, b):
    return 0.9 * a + 0.2 * b, -0.1 * a + 0.8 * b


def two_state_cost(**options):
    ref = read("two_state_missing")
    outputs = {"z1": "a", "z2": "0.5 * a + b"}
    start = dict(zip("ab", ref["x0"], strict=True))
    model = DifferenceModel(two_states, state=start, times=np.arange(81.0), outputs=outputs)
    return FimlofCost(
        model,
        table(ref["data"], ["z1", "z2"]),
        process_noise=labelled(ref["Q"], ["a", "b"]),
        measurement_noise=labelled(ref["R"], ["z1", "z2"]),
        initial_sd=labelled(ref["P0"], ["a", "b"]),
        **options,
    )


def to_mean(n, x, *, a, mean):
    return mean + a * (x - mean)


def accumulator_cost(**options):
    ref = read("accumulator_mixed_sampling")
    parms = {"a": ref["a"], "mean": ref["mean"]}
    model = DifferenceModel(
        to_mean, state={"x": ref["x0"]}, times=np.arange(121.0), parms=parms, outputs={"total": "x"}
    )
    return FimlofCost(
        model,
        table(ref["data"], ["x", "total"]),
        process_noise={"x": float(np.sqrt(ref["q"]))},
        measurement_noise={"x": float(np.sqrt(ref["r_level"])), "total": float(np.sqrt(ref["r_sum"]))},
        initial_sd={"x": float(np.sqrt(ref["P0"]))},
        accumulate={"total": 12},
        **options,
    )


def level(n, flow):
    return flow


def nile_cost(**options):
    ref = read("nile_local_level")
    model = DifferenceModel(level, state={"flow": 0.0}, times=np.arange(1871.0, 1971.0))
    return FimlofCost(
        model,
        table(ref["data"], ["flow"], 1871.0),
        process_noise={"flow": float(np.sqrt(ref["fixed"]["var_w"]))},
        measurement_noise={"flow": float(np.sqrt(ref["fixed"]["var_v"]))},
        **options,
    )


def logistic(n, x, *, r=0.3, K=100.0):
    return x + r * x * (1 - x / K)


def logistic_rate(t, x, *, r=0.3, K=100.0):
    return r * x * (1 - x / K)


def logistic_cost(function=logistic, *, sd_w=2.0, sd_v=3.0, method=None, **options):
    ref = read("logistic_ekf_limits")
    make = DifferenceModel if function in (logistic,) or method == "difference" else OdeModel
    model = make(function, state={"x": ref["x0"]}, times=np.arange(31.0))
    noise = {"process_noise": {"x": sd_w}, "measurement_noise": {"x": sd_v}}
    return FimlofCost(model, table(ref["data"], ["x"]), **noise, **options)


def oscillator(t, x1, x2, *, om=2.0, ze=0.1):
    return x2, -(om**2) * x1 - 2 * ze * om * x2


def driven_oscillator(t, x1, x2, u, *, om=2.0, ze=0.1):
    return x2, -(om**2) * x1 - 2 * ze * om * x2 + u


def oscillator_cost(function=oscillator, forcings=None, **options):
    ref = read("cd_oscillator_irregular")
    start = dict(zip(["x1", "x2"], ref["x0"], strict=True))
    model = OdeModel(function, state=start, times=np.linspace(0, 45, 10), forcings=forcings)
    return FimlofCost(
        model,
        {"time": ref["t"], "x1": np.ravel(ref["data"])},
        process_noise={"x2": "sqrt(qc)"},
        measurement_noise={"x1": "sqrt(r)"},
        parms={"qc": ref["fixed"]["qc"], "r": ref["fixed"]["r"]},
        initial_sd=labelled(ref["P0"], ["x1", "x2"]),
        **options,
    )
