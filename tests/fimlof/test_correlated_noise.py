"""Noise of a step that is correlated with the error of the reading before it: against the joint density of all data."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import multivariate_normal

from fmepy import DifferenceModel, FimlofCost, OdeModel, SimulationCost, modFit, sector
from fmepy.errors import ArgumentError, DataError, ModelError
from tests.plain import plain

N = 9
MODEL = DifferenceModel(
    "next(x) = a * x + 0.3 * y\nnext(y) = b * y + c\nz = x + 0.5 * y", state={"x": 1.0, "y": 0.5}, times=range(N),
    parms={"a": 0.8, "b": 0.6, "c": 0.2},
)  # fmt: skip
rng = np.random.default_rng(4)
DATA = pd.DataFrame({"time": range(N), "z": rng.standard_normal(N), "y": rng.standard_normal(N)})
DATA.loc[[2, 5, 6], "z"] = np.nan
DATA.loc[[0, 3, 5], "y"] = np.nan
PARMS = {"q": 0.5, "r": 0.3, "rho": 0.6}
WORDS = {
    "process_noise": {"x": "q", "y": 0.4}, "measurement_noise": {"z": "r", "y": "2 * r"}, "parms": PARMS,
    "initial_sd": {"x": 0.7}, "noise_correlation": {("x", "z"): "rho", ("y", "y"): -0.4},
}  # fmt: skip


def cost(data: pd.DataFrame = DATA, **words: object) -> FimlofCost:
    return FimlofCost(MODEL, data, **{**WORDS, **words})


def log_density(a=0.8, b=0.6, c=0.2, q=0.5, r=0.3, rho=0.6, other=-0.4) -> float:
    """Return the log density of the whole sample, from the covariance of everything that is drawn."""
    F, H = np.array([[a, 0.3], [0.0, b]]), np.array([[1.0, 0.5], [0.0, 1.0]])
    n = 1 + 4 * N  # the start of x, then of every time the noises of x and y and the errors of z and y
    C = np.eye(n)
    for k in range(N):
        for i, value in ((0, rho), (1, other)):
            C[1 + 4 * k + i, 3 + 4 * k + i] = C[3 + 4 * k + i, 1 + 4 * k + i] = value
    sds = np.array([0.7, *([q, 0.4, r, 2 * r] * N)])
    x, S = np.array([1.0, 0.5]), np.zeros((2, n))
    S[0, 0] = 1.0
    means, rows = [], []
    for k in range(N):
        E = np.zeros((2, n))
        E[[0, 1], [3 + 4 * k, 4 + 4 * k]] = 1.0
        means.append(H @ x)
        rows.append(H @ S + E)
        W = np.zeros((2, n))
        W[[0, 1], [1 + 4 * k, 2 + 4 * k]] = 1.0
        x, S = F @ x + [0.0, c], F @ S + W
    seen, z = np.isfinite(DATA[["z", "y"]].to_numpy()).ravel(), DATA[["z", "y"]].to_numpy().ravel()
    G = np.concatenate(rows)[seen]
    return float(multivariate_normal.logpdf(z[seen], np.concatenate(means)[seen], G @ (C * np.outer(sds, sds)) @ G.T))


@pytest.mark.parametrize("words", [{}, {"algorithm": "sqrt"}, {"update": "iterated"}, {"update": "unscented"}])
def test_the_likelihood_is_the_joint_density(words: dict) -> None:
    assert cost(**words).filter().loglik == pytest.approx(log_density(), abs=1e-9)
    assert abs(log_density() - log_density(rho=0.0)) > 0.1
    assert cost(**words)({"rho": 1.2}) == np.inf


def test_the_score_is_that_of_the_joint_density() -> None:
    bound, h = cost().bind(), 1e-5
    theta = dict(zip(bound.parameter_names, bound.theta0, strict=True))
    ends = [[log_density(**{**theta, k: v + d}) for k, v in theta.items()] for d in (h, -h)]
    slopes = (np.array(ends[0]) - ends[1]) / (2 * h)
    np.testing.assert_allclose(bound.score(bound.theta0), slopes, rtol=1e-6, atol=1e-6)


def test_without_correlation_nothing_changes() -> None:
    none = cost(noise_correlation={("x", "z"): 0.0}, parms={"q": 0.5, "r": 0.3})
    plain = cost(noise_correlation=None, parms={"q": 0.5, "r": 0.3})
    assert none() == pytest.approx(plain(), abs=1e-12)
    a, b = none.filter(), plain.filter()
    np.testing.assert_allclose(a.smoothed[["x", "y", "z"]], b.smoothed[["x", "y", "z"]], atol=1e-12)
    assert list(a.smoothed.columns) == ["time", "x", "y", "noise of x", "z"]


def test_without_process_noise_the_errors_stay_as_large() -> None:
    one = FimlofCost(MODEL, DATA[["time", "z"]], process_noise={"x": 0.0}, measurement_noise={"z": "r"},
                     parms={"r": 0.3}, noise_correlation={"x, z": 0.9})  # fmt: skip
    plain = SimulationCost(MODEL, DATA[["time", "z"]], measurement_noise={"z": "r"}, parms={"r": 0.3}).bind()
    assert one() == pytest.approx(plain.minus2loglik(plain.theta0), abs=1e-10)


def test_drawn_histories_have_the_correlation_and_a_fit_finds_it() -> None:
    model = DifferenceModel("next(x) = a * x", state={"x": 0.0}, times=range(801), parms={"a": 0.7})
    blank = pd.DataFrame({"time": range(801), "x": 0.0})
    truth = {"a": 0.7, "q": 0.5, "r": 0.5, "rho": 0.7}
    one = FimlofCost(model, blank, process_noise={"x": "q"}, measurement_noise={"x": "r"},
                     parms={"q": 0.3, "r": 0.3, "rho": 0.0}, noise_correlation={("x", "x"): "rho"})  # fmt: skip
    assert one.lower["rho"] == -1.0
    assert one.upper["rho"] == 1.0
    fitted = one.replace(obs=one.simulate(truth, seed=2))
    fit = modFit(fitted.replace(parms={"r": 0.5}), {"a": 0.5, "q": 0.3, "rho": 0.0})
    error = (fit.par - pd.Series(truth)[fit.par.index]) / fit.std_error
    assert (error.abs() < 2.5).all(), error


def test_forecasts_and_sectors_go_along() -> None:
    ahead = cost().filter().forecast(3)
    assert np.isfinite(ahead[ahead["name"] == "z"]["reading_sd"]).all()
    part = sector(cost(DATA.fillna(0.1)), ["y"]).cost
    assert part.noise_correlation == {("y", "y"): -0.4}


@pytest.mark.parametrize(
    ("words", "error", "told"),
    [
        ({"noise_correlation": {("x", "w"): 0.5}}, ArgumentError, "'w' is no key of `measurement_noise`"),
        ({"noise_correlation": {("c", "z"): 0.5}}, ArgumentError, "'c' is no key of `process_noise`"),
        ({"noise_correlation": {("x", "z"): 1.5}}, ArgumentError, "1.5; a number from -1 to 1"),
        ({"noise_correlation": {"x": 0.5}}, ArgumentError, r"must be a dict such as \{\('state', 'reading'\): 0.5\}"),
        ({"noise_correlation": {("x", "z"): "roh"}, "parms": {"q": 0.5, "r": 0.3}}, ArgumentError, "'roh'.* no value"),
        ({"noise_correlation": {("x", "z"): 0.1, ("x", "y"): 0.1}}, ArgumentError, "stands in two pairs"),
        ({"initial": "data", "initial_sd": None}, ArgumentError, "first errors are part of the start"),
        ({"process_noise": pd.DataFrame([[1.0]], ["x"], ["x"])}, ArgumentError, "not with tables"),
        ({"data": pd.concat([DATA, DATA[1:2]])}, DataError, "several readings of 'z' at 1"),
    ],
)
def test_what_cannot_be_is_refused(words: dict, error: type, told: str) -> None:
    with pytest.raises(error, match=told):
        cost(**words)


def test_of_differential_equations_it_is_refused() -> None:
    model = OdeModel("dx/dt = -k * x", state={"x": 1.0}, times=[0, 1], parms={"k": 1.0})
    words = {"process_noise": {"x": 0.1}, "measurement_noise": {"x": 0.1}, "noise_correlation": {("x", "x"): 0.5}}
    with pytest.raises(ArgumentError, match="white between the readings"):
        FimlofCost(model, {"time": [1.0], "x": [0.4]}, **words)
    untraced = DifferenceModel(lambda t, x: plain(x), state={"x": 1.0}, times=[0, 1])
    with pytest.raises(ModelError, match="`noise_correlation` needs the model's equations"):
        FimlofCost(untraced, {"time": [1.0], "x": [0.4]}, **words)
