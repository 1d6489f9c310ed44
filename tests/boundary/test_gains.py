"""Segments that are corrected by their data: what plain least squares on plain segments give, and when it has none."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pandas as pd
import pytest
from scipy.linalg import expm
from scipy.optimize import least_squares

import fmepy as fme
from fmepy.errors import ArgumentError, ParameterError

# --- plain segments: predict, score, correct; starts of segments are unknowns, continuity is heavy residuals

HEAVY = 1e4


def plain_fit(step, y, start, theta, gain, segments):
    """Return unknowns and sum of squares by scipy; start(theta), step(x, theta), gain(theta) for errors of state 1."""
    n, own = len(y), start(theta)
    cuts = [(k * n) // segments for k in range(segments)] + [n]

    def residuals(u):
        p, X = u[: len(theta)], u[len(theta) :].reshape(segments, len(own))
        e, gap = [], [HEAVY * (X[0] - start(p))]
        for s in range(segments):
            x = X[s]
            for i in range(cuts[s], cuts[s + 1]):
                e.append(y[i] - x[0])
                x = step(x + gain(p) * e[-1], p)
            if s < segments - 1:
                gap.append(HEAVY * (x - X[s + 1]))
        return np.concatenate([e, *gap])

    first = np.concatenate([theta, np.tile(own, segments)])
    found = least_squares(residuals, first, method="lm", xtol=1e-12, ftol=1e-12)
    return found.x[: len(theta)], float((found.fun[:n] ** 2).sum())


# --- one linear model, of differential equations, and one nonlinear one, of difference equations

TIMES = np.arange(0, 8.1, 0.2)


def spring(t, x, v, *, k=2.0, c=0.3):
    return v, -k * x - c * v


@lru_cache
def transition(k, c):
    return expm(np.array([[0, 1], [-k, -c]]) * 0.2)


def pushed(seed, x0=1.0):
    """Return readings of a spring with noise in it and in them."""
    rng, x, out = np.random.default_rng(seed), np.array([x0, 0.0]), []
    for _ in TIMES:
        out.append(x[0] + 0.05 * rng.standard_normal())
        x = transition(2.0, 0.3) @ x + np.array([0.0, 0.1]) * rng.standard_normal(2)
    return np.array(out)


@pytest.fixture(scope="module")
def springy():
    model = fme.OdeModel(
        spring, state={"x": "x0", "v": 0.0}, parms={"x0": 1.0}, times=TIMES, rtol=1e-9, atol=1e-10, engine="explicit"
    )
    return model, {"time": TIMES, "x": pushed(4)}


def ricker(n, N, *, r=2.0, B=1.0):
    return N * np.exp(r * (1 - N / B))


@pytest.fixture(scope="module")
def rickers():
    rng, x, y = np.random.default_rng(5), 0.6, []
    for _ in range(40):
        y.append(x + 0.02 * rng.standard_normal())
        x = ricker(0, x, r=2.6) * np.exp(0.05 * rng.standard_normal())
    model = fme.DifferenceModel(ricker, state={"N": 0.6}, times=np.arange(40))
    return model, {"time": np.arange(40), "N": np.array(y)}


def test_a_linear_model_with_gains_given_and_found(springy):
    model, data = springy
    plain = {"step": lambda x, p: transition(p[0], p[1]) @ x, "y": data["x"], "segments": 4}
    start = {"start": lambda p: np.array([p[2], 0.0])}
    u, ssr = plain_fit(theta=[1.5, 0.5, 0.9], gain=lambda p: np.array([0.3, 0.4]), **plain, **start)
    guess = {"k": 1.5, "c": 0.5, "x0": 0.9}
    fit = fme.fit_boundary(model, data, guess, segments=4, gain=[0.3, 0.4])
    assert fit.converged
    assert fit.par.to_numpy() == pytest.approx(u, rel=1e-5)
    assert fit.ssr == pytest.approx(ssr, rel=1e-6)

    u, ssr = plain_fit(theta=[*u, 0.3, 0.4], gain=lambda p: p[3:], **plain, **start)
    for segments, first in ((4, 0.0), (41, 0.3)):
        guess |= {"K1": first, "K2": first}
        fit = fme.fit_boundary(model, data, guess, segments=segments, gain={"x": {"x": "K1"}, "v": {"x": "K2"}})
        assert fit.converged, fit.message
        assert fit.defect <= 1e-8
        assert fit.par.to_numpy() == pytest.approx(u, rel=1e-4)
        assert fit.ssr == pytest.approx(ssr, rel=1e-6)


def test_a_nonlinear_model_with_gains_given_and_found(rickers):
    model, data = rickers
    plain = {"step": lambda x, p: ricker(0, x, r=p[0], B=p[1]), "y": data["N"], "segments": 8}
    start = {"start": lambda p: np.array([0.6])}
    u, ssr = plain_fit(theta=[2.5, 1.1], gain=lambda p: np.array([0.6]), **plain, **start)
    fit = fme.fit_boundary(model, data, {"r": 2.5, "B": 1.1}, segments=8, gain=0.6)
    assert fit.converged
    assert fit.par.to_numpy() == pytest.approx(u, rel=1e-5)
    assert fit.ssr == pytest.approx(ssr, rel=1e-6)

    u, ssr = plain_fit(theta=[*u, 0.6], gain=lambda p: p[2:], **plain, **start)
    fit = fme.fit_boundary(model, data, {"r": 2.5, "B": 1.1, "K": 0.4}, segments=8, gain="K")
    assert fit.converged
    assert fit.par.to_numpy() == pytest.approx(u, rel=1e-4)
    assert fit.ssr == pytest.approx(ssr, rel=1e-6)


# --- limits and agreements

GUESS = {"k": 1.5, "c": 0.5, "x0": 0.9}


def test_small_gains_come_to_the_fit_without_one(springy, rickers):
    for (model, data), guess in ((springy, GUESS), (rickers, {"r": 2.58, "B": 1.01})):
        if model is rickers[0]:  # a chaotic record, of which a single path follows a piece without noise of its own
            data = {"time": np.arange(12), "N": model({"r": 2.6}).N[:12] + 0.02 * np.cos(3 * np.arange(12))}
        without = fme.fit_boundary(model, data, guess, segments=3)
        away = []
        for size in (1e-2, 1e-4):
            gain = np.full(len(model.states), size)
            fit = fme.fit_boundary(model, data, guess, segments=3, gain=gain)
            assert fit.converged
            away.append(float(np.abs(fit.par / without.par - 1).max()))
        assert away[1] == pytest.approx(0.01 * away[0], rel=0.2)  # at first order


NOISE = {"process_noise": {"v": 0.25}, "measurement_noise": {"x": 0.05}}


def test_the_stationary_gain_is_that_of_prediction_errors_and_the_same_as_its_numbers(springy):
    model, data = springy
    cost = fme.PredictionErrorCost(model, data, gain="stationary", **NOISE)
    fit = fme.fit_boundary(model, data, GUESS, segments=4, gain="stationary", **NOISE)
    K = [value for *_, value in cost.stationary.gain]
    table = {**data, "sd": np.full(41, cost.stationary.sds["x"])}
    same = fme.fit_boundary(model, table, GUESS, segments=4, gain=K, err="sd")
    assert fit.converged
    assert fit.par.to_numpy() == pytest.approx(same.par.to_numpy(), rel=1e-9)
    assert fit.cov_scaled.to_numpy() == pytest.approx(same.cov_scaled.to_numpy(), rel=1e-6)
    reference = fme.modFit(cost, GUESS)
    assert fit.par.to_numpy() == pytest.approx(reference.par.to_numpy(), rel=1e-5)
    assert fit.fit.minus2loglik == pytest.approx(reference.minus2loglik, rel=1e-7)


def test_the_stationary_gain_weighs_variables_by_their_errors_of_prediction(springy):
    model = springy[0].replace(outputs={"pull": "-k*x"})
    rng = np.random.default_rng(2)
    data = {**springy[1], "pull": -2 * springy[1]["x"] + 0.2 * rng.standard_normal(41)}
    data["pull"][1::2] = np.nan
    data["x"] = np.where(np.arange(41) == 8, np.nan, data["x"])
    noise = {"process_noise": {"v": 0.25}, "measurement_noise": {"x": 0.05, "pull": 0.2}}
    fit = fme.fit_boundary(model, data, GUESS, segments=5, gain="stationary", **noise)
    reference = fme.modFit(fme.PredictionErrorCost(model, data, gain="stationary", **noise), GUESS)
    assert fit.par.to_numpy() == pytest.approx(reference.par.to_numpy(), rel=1e-5)


# --- experiments


@pytest.fixture(scope="module")
def two_springs(springy):
    starts, seeds = {"a": 1.0, "b": 2.0}, {"a": 4, "b": 7}
    tables = [pd.DataFrame({"who": w, "time": TIMES, "x": pushed(seeds[w], x0)}) for w, x0 in starts.items()]
    return springy[0], pd.concat(tables)


@pytest.mark.parametrize("own", [False, True])
def test_a_gain_is_shared_by_experiments_or_each_has_its_own(two_springs, own):
    model, data = two_springs
    gain, rest = {"x": {"x": "K1"}, "v": {"x": "2*K1"}}, {"k": 1.8, "c": 0.4}
    of_gain = {"K1[a]": 0.3, "K1[b]": 0.3} if own else {"K1": 0.3}
    fit = fme.fit_boundary(model, data, rest | of_gain | {"x0": 1.5}, segments=4, gain=gain, entity="who")
    local = ["x0", "K1"] if own else ["x0"]
    starts = {"x0[a]": 1.0, "x0[b]": 2.0}
    cost = fme.PredictionErrorCost(model, data, gain=gain, parms=of_gain, entity="who", entity_parms=local)
    reference = fme.modFit(cost, rest | of_gain | starts)
    assert fit.converged, fit.message
    assert set(fit.par.index) == {*rest, *of_gain, *starts}
    assert fit.par[reference.par.index].to_numpy() == pytest.approx(reference.par.to_numpy(), rel=1e-4)
    names = list(reference.par.index)
    theirs = reference.cov_scaled.to_numpy()
    size = np.sqrt(np.outer(theirs.diagonal(), theirs.diagonal()))
    assert fit.cov_scaled.loc[names, names].to_numpy() / size == pytest.approx(theirs / size, abs=1e-3)
    assert fit.ssr == pytest.approx(reference.ssr, rel=1e-7)


def test_experiments_have_the_stationary_gain_too(two_springs):
    model, data = two_springs
    fit = fme.fit_boundary(model, data, GUESS, segments=4, gain="stationary", entity="who", **NOISE)
    cost = fme.PredictionErrorCost(model, data, gain="stationary", entity="who", entity_parms=["x0"], **NOISE)
    reference = fme.modFit(cost, fit.par.to_dict())
    assert fit.converged
    assert fit.par.to_numpy() == pytest.approx(reference.par.to_numpy(), rel=1e-5)


# --- chaos, which no gain is to blame for


def lorenz(t, x, y, z, *, s=10.0, r=28.0, b=8 / 3):
    return s * (y - x), x * (r - z) - y, x * y - b * z


def test_a_chaotic_record_is_corrected_too():
    true = {"s": 10.0, "r": 28.0, "b": 8 / 3, "x0": -8.0, "y0": 7.0, "z0": 27.0}
    starts = {name: true[name] for name in ("x0", "y0", "z0")}
    model = fme.OdeModel(
        lorenz, state={"x": "x0", "y": "y0", "z": "z0"}, parms=starts, times=np.linspace(0, 10, 201), engine="explicit",
        rtol=1e-10, atol=1e-10,
    )  # fmt: skip
    data = {"time": model.times, "x": model().x + 0.1 * np.random.default_rng(3).standard_normal(201)}
    guess = {name: 1.1 * value for name, value in true.items()}
    given = fme.fit_boundary(model, data, guess, segments=20, gain={"x": {"x": 0.1}})
    fit = fme.fit_boundary(model, data, guess | {"K": 0.1}, segments=20, gain={"x": {"x": "K"}})
    for each in (given, fit):
        assert each.converged
        assert each.defect <= 1e-8
        assert each.par[list(true)].to_dict() == pytest.approx(true, rel=0.05)
    assert fit.ssr < given.ssr


# --- where a gain has no answer


def test_from_a_free_start_an_unstable_predictor_follows_any_data():
    """Why an unknown gain is held while continuity is soft: e[n] = (e[n+1] - (y[n+1] - y[n])) / (1 - K), backwards."""
    y = np.random.default_rng(0).standard_normal(8)
    model = fme.DifferenceModel("next(x) = x", state={"x": "x0"}, parms={"x0": 0.0}, times=np.arange(8))
    cost = fme.PredictionErrorCost(model, {"time": np.arange(8), "x": y}, gain="K", parms={"K": 0.5})
    for K in (-9.0, -99.0):
        e = 0.0
        for n in range(6, -1, -1):
            e = (e - (y[n + 1] - y[n])) / (1 - K)
        assert cost({"K": K, "x0": y[0] - e}).model < 1.1 * np.sum(np.diff(y) ** 2) / K**2


def test_an_unknown_gain_is_not_let_into_instability(springy):
    model, data = springy[0], {"time": TIMES, "x": pushed(3)}
    gain, guess = {"x": {"x": "K1"}, "v": {"x": "K2"}}, GUESS | {"K1": 0.4, "K2": 0.4}
    fit = fme.fit_boundary(model, data, guess, segments=4, gain=gain)
    assert not fit.converged
    assert "make the predictor unstable" in fit.message
    assert "gain='stationary'" in fit.message
    assert fit.par["K1"] > -0.3


def test_gains_hold_their_bounds(springy):
    fit = fme.fit_boundary(
        *springy, GUESS | {"K": 0.1}, segments=4, gain={"x": {"x": "K"}}, lower={"K": 0}, upper={"K": 0.15}
    )
    held = fme.fit_boundary(*springy, GUESS, segments=4, gain={"x": {"x": 0.15}})
    assert fit.converged
    assert fit.par["K"] == 0.15
    assert fit.par[list(GUESS)].to_numpy() == pytest.approx(held.par.to_numpy(), rel=1e-5)


def test_gains_alone_can_be_unknown(springy):
    fit = fme.fit_boundary(*springy, {"K": 0.1}, segments=4, gain={"x": {"x": "K"}})
    cost = fme.PredictionErrorCost(*springy, gain={"x": {"x": "K"}}, parms={"K": 0.1})
    assert fit.par["K"] == pytest.approx(fme.modFit(cost, {"K": 0.1}).par["K"], rel=1e-5)


@pytest.mark.parametrize("segments", [1, 4, 41])
def test_a_gain_that_makes_the_predictor_unstable_is_told_wherever_it_adds_up(springy, segments):
    with pytest.raises(ArgumentError, match=r"over the segment.*unstable"):
        fme.fit_boundary(*springy, GUESS | {"K": 5.0}, segments=segments, gain={"x": {"x": "K"}})


NAMED = {"x": {"x": "K"}}


@pytest.mark.parametrize(
    ("p", "words", "kind", "told"),
    [
        (GUESS, {"gain": NAMED}, ArgumentError, r"uses 'K'.*first guess: add \{'K': 0.0\} to `p`"),
        (["k", "K"], {"gain": NAMED}, ArgumentError, "first guess"),
        (None, {"gain": NAMED}, ArgumentError, "first guess"),
        (GUESS | {"K2": 0.1}, {"gain": {"x": {"x": "K1"}}}, ParameterError, "no parameter 'K2'"),
        (GUESS | {"K": np.nan}, {"gain": NAMED}, ParameterError, "`p`: 'K' is nan"),
        (GUESS, {"gain": {"x": {"x": "v"}}}, ArgumentError, "uses 'v', a state of the model"),
        (GUESS | {"t": 0.1}, {"gain": {"x": {"x": "t"}}}, ArgumentError, "uses 't', the time"),
        (GUESS | {"x_at_start": 0.1}, {"gain": {"x": {"x": "x_at_start"}}}, ValueError, "give it another name"),
        (GUESS, {"gain": {"x": {"v": 0.1}}}, ArgumentError, "'v' is not observed"),
        (GUESS, {"gain": [0.1, 0.2, 0.3]}, ArgumentError, r"shape \(2, 1\)"),
        (GUESS | {"K": 0.1}, {"gain": {"x": {"x": "K["}}}, ValueError, "gain"),
        (GUESS, {"gain": "stationary"}, ArgumentError, "say process_noise"),
        (GUESS, {"gain": "stationry", **NOISE}, ArgumentError, "Did you mean 'stationary'"),
        (GUESS, {"gain": 0.1, **NOISE}, ArgumentError, "a gain of your own needs none"),
        (GUESS, NOISE, ArgumentError, "there is no gain here"),
        (GUESS, {"gain": "stationary", "weight": "std", **NOISE}, ArgumentError, "weight"),
    ],
)
def test_gains_that_cannot_be(springy, p, words, kind, told):
    with pytest.raises(kind, match=told):
        fme.fit_boundary(*springy, p, segments=3, **words)


def test_a_gain_that_only_some_experiments_have(two_springs):
    with pytest.raises(ArgumentError, match=r"add \{'K\[b\]': 0.0\}"):
        fme.fit_boundary(*two_springs, GUESS | {"K[a]": 0.1}, segments=3, gain=NAMED, entity="who")
    with pytest.raises(ArgumentError, match=r"as 'K\[a\]' alone.*entity_parms"):
        fme.PredictionErrorCost(*two_springs, gain=NAMED, parms={"K[a]": 0.1}, entity="who", entity_parms=["K"])
