"""The row of multiple shooting: an iteration on a long chaotic record, beside scipy on odeint by hand."""

from __future__ import annotations

import time
from typing import Any
from unittest.mock import patch

import numpy as np
from scipy.integrate import odeint
from scipy.optimize import least_squares
from scipy.sparse import lil_array

import fmepy as fme
from benchmarks.row import Row, at_least, at_most
from fmepy.boundary.shooting_segments import Segments

SAMPLES, SEGMENTS, SD = 10_000, 100, 0.1
TRUE = {"s": 10.0, "r": 28.0, "b": 8 / 3, "x0": -8.0, "y0": 7.0, "z0": 27.0}
STEPS = 8  # of a search that is cut short, to be timed
REPEATS = 10


def lorenz(t, x, y, z, *, s=10.0, r=28.0, b=8 / 3):
    """Return the rates of Lorenz's equations."""
    return s * (y - x), x * (r - z) - y, x * y - b * z


def by_hand(u: Any, t: float, s: float, r: float, b: float) -> list[float]:
    """Return the same as a user of odeint writes it."""
    x, y, z = u
    return [s * (y - x), x * (r - z) - y, x * y - b * z]


def record() -> tuple[Any, dict[str, Any], np.ndarray]:
    """Return the model, the data of x and z, and the path."""
    times = 0.005 * np.arange(SAMPLES)
    starts = {k: TRUE[k] for k in ("x0", "y0", "z0")}
    model = fme.OdeModel(lorenz, state={"x": "x0", "y": "y0", "z": "z0"}, parms=starts, times=times)
    path = model()[["x", "y", "z"]].to_numpy()
    noise = SD * np.random.default_rng(0).standard_normal(path.shape)
    data = {"time": times, "x": path[:, 0] + noise[:, 0], "z": path[:, 2] + noise[:, 2], "err": np.full(SAMPLES, SD)}
    return model, data, path


def iteration(model: Any, data: dict[str, Any], path: np.ndarray, segments: int) -> tuple[float, float]:
    """Return the seconds from one run of all segments to the next, and those of a simulation, each in a fast search.

    What comes before the first run of the segments and after the last one belongs to a fit, not to an iteration.
    """
    begin = dict(zip(("time", "x", "y", "z"), (data["time"], *path.T), strict=True))
    guess = {k: 1.05 * v for k, v in TRUE.items()}
    bound, run_segments, ran, runs, between = model.bind(), Segments.at, [], [], []
    bound.simulate(bound.theta0)

    def at(*words: Any) -> Any:
        ran.append(time.perf_counter())
        return run_segments(*words)

    for _ in range(REPEATS):
        ran.clear()
        with patch.object(Segments, "at", at):
            fme.fit_boundary(model, data, guess, segments=segments, err="err", max_iter=STEPS, path=begin)
        between.append((ran[-1] - ran[0]) / (len(ran) - 1))
        for _ in range(5):
            began = time.perf_counter()
            bound.simulate(bound.theta0)
            runs.append(time.perf_counter() - began)
    return min(between), min(runs)


def of_scipy(data: dict[str, Any], path: np.ndarray) -> float:
    """Return the seconds of an iteration of least_squares with a sparse Jacobian, every segment run by odeint."""
    m, times = SAMPLES // SEGMENTS, data["time"]
    seen = np.column_stack([data["x"], data["z"]])

    def residuals(u: np.ndarray) -> np.ndarray:
        starts, out, ends = u[3:].reshape(SEGMENTS, 3), [], []
        for k in range(SEGMENTS):
            rows = slice(k * m, min((k + 1) * m + 1, SAMPLES))
            Y = odeint(by_hand, starts[k], times[rows], args=tuple(u[:3]), rtol=1e-6, atol=1e-6)
            out.append((Y[:m, [0, 2]] - seen[k * m : (k + 1) * m]).ravel() / SD)
            ends.append(Y[-1])
        return np.concatenate([*out, ((np.array(ends[:-1]) - starts[1:]) / SD).ravel()])

    sparsity = lil_array((2 * SAMPLES + 3 * (SEGMENTS - 1), 3 + 3 * SEGMENTS), dtype=int)
    sparsity[:, :3] = 1
    for k in range(SEGMENTS):
        sparsity[2 * m * k : 2 * m * (k + 1), 3 + 3 * k : 6 + 3 * k] = 1
        for at in {max(k - 1, 0), min(k, SEGMENTS - 2)}:
            first = 2 * SAMPLES + 3 * at
            sparsity[first : first + 3, 3 + 3 * k : 6 + 3 * k] = 1
    begin = np.concatenate([[1.05 * TRUE[k] for k in "srb"], path[::m].ravel()])
    began = time.perf_counter()
    done = least_squares(residuals, begin, jac_sparsity=sparsity, x_scale=np.maximum(np.abs(begin), 1), max_nfev=2)
    return (time.perf_counter() - began) / done.njev


def shooting() -> Row:
    """Time an iteration of 10,000 samples in 100 segments, half and twice as many, beside scipy's."""
    model, data, path = record()
    fit = fme.fit_boundary(model, data, {k: 1.05 * v for k, v in TRUE.items()}, segments=SEGMENTS, err="err")
    assert fit.converged, fit.message
    assert max(abs(fit.par[k] - TRUE[k]) for k in "srb") < 0.01, fit.par
    (half, _), (ours, simulation), (twice, _) = (
        iteration(model, data, path, n) for n in (SEGMENTS // 2, SEGMENTS, 2 * SEGMENTS)
    )
    theirs = of_scipy(data, path)
    return Row(
        f"multiple shooting, an iteration: {SAMPLES:,} samples in {SEGMENTS} segments, 3 states, 6 unknowns",
        ours,
        "least_squares with a sparse Jacobian, segments by odeint by hand",
        theirs,
        [
            at_most(ours / simulation, 10, "{:.1f} simulations"),
            at_most(twice / half, 4, "{:.2f} times as long with four times the segments"),
            at_least(theirs / ours, 10, "{:.0f} x"),
        ],
    )


ROWS = [shooting]
