"""Paths drawn from the smoother: at all times together they have the distribution of the states given all data."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import fmepy as fme
from fmepy.errors import ArgumentError, SimulationError

A, N = np.array([[0.9, 0.3], [-0.2, 0.8]]), 40_000


def model_of(**words):
    text = "next(x) = a * x + 0.3 * v\nnext(v) = -0.2 * x + 0.8 * v"
    return fme.DifferenceModel(text, state={"x": 1.0, "v": 0.0}, times=range(7), parms={"a": 0.9}, **words)


def dense(Q, R, start, P0, data):
    """Return mean, shape (n_time, 2), and covariance of x_0, ..., x_6 given data of x at some times."""
    mean, blocks = [start], np.zeros((7, 7, 2, 2))
    blocks[0, 0] = P0
    for k in range(1, 7):
        mean.append(A @ mean[-1])
        for j in range(k):
            blocks[k, j] = A @ blocks[k - 1, j]
            blocks[j, k] = blocks[k, j].T
        blocks[k, k] = A @ blocks[k - 1, k - 1] @ A.T + Q
    m, S = np.concatenate(mean), blocks.transpose(0, 2, 1, 3).reshape(14, 14)
    H = np.zeros((len(data), 14))
    H[np.arange(len(data)), [2 * int(t) for t in data["time"]]] = 1.0
    gain = S @ H.T @ np.linalg.inv(H @ S @ H.T + R * np.eye(len(data)))
    return (m + gain @ (data["x"].to_numpy() - H @ m)).reshape(7, 2), S - gain @ H @ S


def check(paths, mean, covariance):
    states = paths[["x", "v"]].to_numpy().reshape(-1, mean.size)
    assert len(states) == N
    spread = np.sqrt(np.diag(covariance))
    np.testing.assert_array_less(np.abs(states.mean(axis=0) - mean.ravel()), 4.5 * spread / np.sqrt(N) + 1e-9)
    own = np.cov(states.T)
    both = np.sqrt(np.outer(np.diag(covariance), np.diag(covariance)) + covariance**2) / np.sqrt(N)
    np.testing.assert_array_less(np.abs(own - covariance), 4.5 * both + 1e-9)


@pytest.mark.parametrize("noise", [{"x": 0.5, "v": 0.2}, {"v": 0.2}], ids=["both", "one state has none"])
def test_draws_have_the_joint_distribution_of_all_times(noise):
    data = pd.DataFrame({"time": [1, 2, 5], "x": [0.8, 1.4, -0.5]})
    rows = pd.concat([data, pd.DataFrame({"time": [3, 4, 6], "x": np.nan})])  # which ask for states alone
    cost = fme.FimlofCost(model_of(), rows, process_noise=noise, measurement_noise={"x": 0.3}, initial_sd={"x": 0.4})
    result = cost.filter()
    Q = np.diag([noise.get("x", 0.0) ** 2, noise["v"] ** 2])
    mean, covariance = dense(Q, 0.09, np.array([1.0, 0.0]), np.diag([0.16, 0.0]), data)
    np.testing.assert_allclose(result.smoothed[["x", "v"]], mean, atol=1e-10)
    check(result.draw(N, seed=1), mean, covariance)


def test_an_unknown_start_is_drawn_too():
    data = pd.DataFrame({"time": [0, 1, 2, 5, 6], "x": [1.1, 0.8, 1.4, -0.5, 0.1]})
    rows = pd.concat([data, pd.DataFrame({"time": [3, 4], "x": np.nan})])
    noise = {"x": 0.5, "v": 0.2}
    cost = fme.FimlofCost(model_of(), rows, process_noise=noise, measurement_noise={"x": 0.3}, initial="diffuse")
    mean, covariance = dense(np.diag([0.25, 0.04]), 0.09, np.zeros(2), 1e6 * np.eye(2), data)
    check(cost.filter().draw(N, seed=2), mean, covariance)


def test_differential_equations_events_and_entities():
    model = fme.OdeModel(
        "dx/dt = -k * x", state={"x": 0.0}, times=[0, 8], parms={"k": 0.5},
        events=pd.DataFrame({"var": ["x"], "time": [3.0], "value": [2.0], "method": ["add"]}),
    )  # fmt: skip
    data = pd.DataFrame({"time": [0.7, 2.9, 4.1, 1.0, 6.0], "x": [0.2, 0.1, 1.5, 0.4, 0.7], "who": list("aaabb")})
    cost = fme.FimlofCost(model, data, process_noise={"x": 0.3}, measurement_noise={"x": 0.2}, entity="who")
    result = cost.filter()
    paths = result.draw(8000, seed=3)
    assert list(paths.columns) == ["draw", "who", "time", "x"]
    assert len(paths) == 8000 * len(result.smoothed)
    pd.testing.assert_frame_equal(
        paths[paths["draw"] == 17][["who", "time"]].reset_index(drop=True), result.smoothed[["who", "time"]]
    )
    each = paths["x"].to_numpy().reshape(8000, -1)
    sd = result.sd()["x"].to_numpy()
    np.testing.assert_allclose(each.mean(axis=0), result.smoothed["x"], atol=4.5 * sd.max() / np.sqrt(8000))
    np.testing.assert_allclose(each.std(axis=0), sd, rtol=0.04, atol=1e-12)
    for who, rows in result.smoothed.groupby("who").indices.items():  # neighbours belong together, entities do not
        inside = np.corrcoef(each[:, rows[1:]].T)
        assert inside[0, 1] > 0.06, who
    across = np.corrcoef(each[:, [1, -1]].T)[0, 1]
    assert abs(across) < 0.05


def test_draws_repeat_by_seed_and_bad_ones_are_refused():
    data = {"time": [1, 2, 5], "x": [0.8, 1.4, -0.5]}
    cost = fme.FimlofCost(
        model_of(), data, process_noise={"x": "sd_w"}, measurement_noise={"x": 0.3}, parms={"sd_w": 1}
    )
    result = cost.filter()
    pd.testing.assert_frame_equal(result.draw(5, seed=4), result.draw(5, seed=4))
    assert not result.draw(5, seed=4).equals(result.draw(5, seed=5))
    assert np.isfinite(result.draw()).all(axis=None)
    assert result.draw()["draw"].max() == 99
    for n in (0, 2.5, "many"):
        with pytest.raises(ArgumentError, match="`n"):
            result.draw(n)
    with pytest.raises(SimulationError, match="no paths to draw"):
        cost.filter({"sd_w": 1e170}).draw(3)
    blind = fme.FimlofCost(
        fme.DifferenceModel("next(x) = x\nnext(z) = z", state={"x": 0.0, "z": 0.0}, times=range(4)),
        {"time": [1, 2], "x": [1.0, 1.1]}, process_noise={"x": 1.0}, measurement_noise={"x": 1.0}, initial="diffuse",
    )  # fmt: skip
    with pytest.raises(SimulationError, match="no paths to draw"):
        blind.filter().draw(3)
