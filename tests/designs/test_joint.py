"""Readings of a noisy system that hang together, against the normal distribution written down."""

from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import fmepy as fme
from fmepy.designs.joint import JointReadings

WALK = fme.DifferenceModel(
    "next(x) = a * x + b", state={"x": "x0"}, times=range(21), parms={"a": 0.8, "b": 1.0, "x0": 9.0}
)
SEEN = {"time": [1, 2, 4], "x": [7.9, 7.2, 6.1]}
P = {"a": 0.8, "b": 1.0, "sd_w": 0.5, "sd_v": 0.3}


def walk(obs=SEEN, **words):
    noise = {"process_noise": {"x": "sd_w"}, "measurement_noise": {"x": "sd_v"}, "parms": {"sd_w": 0.5, "sd_v": 0.3}}
    return fme.FimlofCost(WALK, obs, **{**noise, **words})


def moments(times, a, b, sd_w, sd_v, x0=9.0):
    """Return mean and covariance of readings: x_n = a^n x0 + sum a^(n-k) (b + w_k)."""
    t = np.asarray(times, dtype=int)
    mean = np.array([a**n * x0 + b * sum(a ** (n - k) for k in range(1, n + 1)) for n in t])
    V = np.array([[sum(a ** (n - k) * a ** (m - k) for k in range(1, min(n, m) + 1)) for m in t] for n in t]) * sd_w**2
    return mean, V + sd_v**2 * np.eye(len(t))


def information(times, p):
    """Return the expected information of a normal distribution, by central differences of its moments."""
    names, h = list(p), 1e-5
    both = [(moments(times, **{**p, n: p[n] + h}), moments(times, **{**p, n: p[n] - h})) for n in names]
    dm = np.array([(up[0] - down[0]) / (2 * h) for up, down in both])
    dV = [(up[1] - down[1]) / (2 * h) for up, down in both]
    G = np.linalg.inv(moments(times, **p)[1])
    return dm @ G @ dm.T + 0.5 * np.array([[np.trace(G @ A @ G @ B) for B in dV] for A in dV])


def test_the_information_of_sets_is_that_of_the_normal_distribution():
    own = JointReadings(walk(), pd.Series(P), None)
    np.testing.assert_allclose(own.present, information([1, 2, 4], P), rtol=1e-6)
    later = pd.DataFrame({"time": [3, 5, 9, 9, 2], "variable": "x"})
    added = own.of(later)
    units = [np.array([k]) for k in range(5)]
    for k, t in enumerate(later["time"]):
        np.testing.assert_allclose(added[k] + own.present, information([1, 2, 4, t], P), rtol=1e-6, atol=1e-6)
    both = own.with_each([2], units[:2])
    np.testing.assert_allclose(both[1], information([1, 2, 4, 9, 5], P), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(own.of_rows([0, 2, 3]), information([1, 2, 4, 3, 9, 9], P), rtol=1e-6, atol=1e-6)
    pairs = own.with_each([4], [np.array([0, 1]), np.array([2, 3])])
    np.testing.assert_allclose(pairs[1], information([1, 2, 4, 2, 9, 9], P), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("criterion", "for_"), [("D", None), ("A", ["a"]), ("c", {"time": 20, "variable": "x"})])
def test_exchanges_come_to_the_best_of_all_sets(criterion, for_):
    p, times = {"a": 0.8, "b": 1.0}, range(5, 16)
    best = fme.design(walk(), p, candidates={"time": times}, n=3, criterion=criterion, for_=for_, seed=1)
    h = 1e-5
    g = [(moments([20], **{**P, k: P[k] + h})[0] - moments([20], **{**P, k: P[k] - h})[0])[0] / (2 * h) for k in p]

    def value(some):
        M = information([1, 2, 4, *some], P)[:2, :2]
        C = np.linalg.inv(M)
        return {"D": np.linalg.slogdet(M)[1], "A": -C[0, 0], "c": -(g @ C @ np.array(g))}[criterion]

    most = max(map(value, combinations(times, 3)))
    assert value(best.chosen["time"]) == pytest.approx(most, rel=1e-6)
    assert best.value == pytest.approx(most, rel=1e-5)
    assert np.isnan(best.efficiency)
    taken = best.sensitivity["time"].isin(best.chosen["time"])
    assert best.sensitivity["sensitivity"].isna().tolist() == taken.tolist()


def test_errors_after_are_those_of_refits():
    cost = walk(process_noise={"x": 0.1}, measurement_noise={"x": 0.05}, parms=None)
    best = fme.design(cost, {"a": 0.8, "b": 1.0}, candidates={"time": range(5, 21)}, n=8, seed=1)
    times = [*SEEN["time"], *best.chosen["time"]]
    whole = cost.replace(obs={"time": times, "x": np.ones(len(times))})
    fits = [fme.modFit(whole.replace(obs=whole.simulate(seed=k)), ["a", "b"]).par for k in range(150)]
    spread = pd.DataFrame([f.to_dict() for f in fits]).std()
    for name in ("a", "b"):
        assert best.after[name] == pytest.approx(spread[name], rel=0.25)
        assert best.after[name] < best.before[name]


def test_times_are_steps_or_a_grid_and_entities_count():
    between = fme.design(walk(), {"a": 0.8}, times=(4.5, 12.5), n=2, seed=1)
    assert set(between.chosen["time"]) <= set(range(5, 13))
    assert between.chosen["time"].nunique() == 2
    model = fme.OdeModel("d(x)/dt = -k*x", state={"x": 5.0}, times=[0, 10], parms={"k": 0.3})
    data = pd.DataFrame({"rat": ["a", "a", "b"], "time": [1.0, 2.0, 1.5], "x": [3.6, 2.8, 3.0]})
    cost = fme.FimlofCost(model, data, entity="rat", entity_parms=["k"], process_noise={"x": 0.1},
                          measurement_noise={"x": 0.1})  # fmt: skip
    p = {"k[a]": 0.3, "k[b]": 0.3}
    alone = fme.design(cost, p, candidates=pd.DataFrame({"rat": ["a", "b"], "time": [3.0, 3.0]}), n=1, seed=1)
    assert alone.chosen["rat"].tolist() == ["b"]
    assert alone.after["k[a]"] == pytest.approx(alone.before["k[a]"], rel=1e-6)
    one = fme.FimlofCost(model, {"time": [1.0], "x": [3.6]}, process_noise={"x": 0.1}, measurement_noise={"x": 0.1})
    grid = fme.design(one, {"k": 0.3}, times=(1, 9), n=2, min_gap=1.0, seed=1)
    assert np.diff(grid.chosen["time"]) >= 1.0
    assert "among 201" in grid.notes[0]


def test_of_a_curved_model_it_is_about_the_path_of_the_mean():
    model = fme.OdeModel("d(N)/dt = r*N*(1 - N/K)", state={"N": 1.0}, times=[0, 20], parms={"r": 0.6, "K": 10.0})
    cost = fme.FimlofCost(model, {"time": [2.0, 4.0], "N": [2.9, 5.6]}, process_noise={"N": 0.02},
                          measurement_noise={"N": 0.2})  # fmt: skip
    plain = fme.SimulationCost(model, {"time": [2.0, 4.0], "N": [2.9, 5.6]}, measurement_noise={"N": 0.2})
    later = {"time": np.arange(5, 20.0)}
    a, b = (fme.design(c, {"r": 0.6, "K": 10.0}, candidates=later, n=3, seed=1) for c in (cost, plain))
    np.testing.assert_allclose(a.before, b.before, rtol=0.05)
    np.testing.assert_allclose(a.after, b.after, rtol=0.15)
    assert (a.after > b.after).all()


WARFARIN = """
d(gut)/dt = -KA*exp(eKA)*gut
d(A)/dt = KA*exp(eKA)*gut - CL*exp(eCL)/(V*exp(eV))*A
d(eCL)/dt = 0
d(eV)/dt = 0
d(eKA)/dt = 0
y = A/(V*exp(eV))
"""


def test_random_effects_have_the_errors_published_with_design_software():
    """Warfarin in 32 subjects, of Nyberg et al. (2015), Br. J. Clin. Pharmacol. 79: relative errors in per cent.

    The figures are those of the full information matrix that PopED's own tests hold (variances have twice the relative
    error of sds).
    """
    parms = {"CL": 0.15, "V": 8.0, "KA": 1.0}
    noise = {"om_CL": 0.07**0.5, "om_V": 0.02**0.5, "om_KA": 0.6**0.5, "sig": 0.1}
    start = {"gut": 70, "A": 0, "eCL": 0, "eV": 0, "eKA": 0}
    model = fme.OdeModel(WARFARIN, state=start, times=[0, 120], parms=parms, rtol=1e-8)
    times = [0.5, 1, 2, 6, 24, 36, 72, 120]
    data = pd.DataFrame({"id": np.repeat(np.arange(4), 8), "time": np.tile(times, 4), "y": 1.0})
    cost = fme.FimlofCost(
        model, data, entity="id", process_noise={}, measurement_noise={"y": "sig*y"}, parms=noise,
        initial_sd={"eCL": "om_CL", "eV": "om_V", "eKA": "om_KA"},
    )  # fmt: skip
    more = fme.design(cost, {**parms, **noise}, candidates={"id": [0, 0], "time": [12.0, 48.0]}, n=1, seed=1)
    relative = 100 * (4 / 32) ** 0.5 * more.before / pd.Series({**parms, **noise}) * [1, 1, 1, 2, 2, 2, 2]
    assert relative.round(1).tolist() == [3.6, 2.6, 4.8, 26.3, 30.9, 26.5, 12.4]


def test_without_process_noise_readings_stand_alone():
    plain = fme.SimulationCost(WALK, SEEN, measurement_noise={"x": 0.3})
    a, b = (
        fme.design(c, {"a": 0.8, "b": 1.0}, candidates={"time": range(5, 12)}, n=2, seed=1)
        for c in (walk(process_noise={}, measurement_noise={"x": 0.3}, parms=None), plain)
    )
    pd.testing.assert_series_equal(a.after, b.after, rtol=1e-6)
    assert a.chosen["time"].tolist() == b.chosen["time"].tolist()


@pytest.mark.parametrize(
    ("words", "asked", "error"),
    [
        ({"initial": "diffuse"}, {}, "initial_sd"),
        ({"accumulate": {"x": 1}}, {}, "take `accumulate` out"),
        ({}, {"sd": 0.1}, "leave `sd` out"),
        ({}, {"candidates": {"time": [5], "sd": [0.1]}}, "no parameters and no noise; these set an sd"),
        ({}, {"candidates": {"time": [5], "b": [0.1]}}, "these set 'b'"),
        ({}, {"candidates": lambda c: c, "controls": {"b": (0, 1)}}, "candidates of a FimlofCost set none"),
        ({}, {"candidates": {"time": [5], "variable": ["z"]}}, "no variable 'z'"),
        ({}, {"candidates": {"time": [5.5]}}, "step"),
        ({}, {"candidates": {"time": range(1, 1200)}}, "1000"),
    ],
)
def test_what_cannot_be_is_told(words, asked, error):
    given = {"candidates": {"time": range(5, 9)}, **asked}
    with pytest.raises(ValueError, match=error):
        fme.design(walk(**words), {"a": 0.8}, n=1, seed=1, **given)


def test_limits_count_as_plain_readings():
    obs = {"time": [1.0, 2.0], "x": [9.0, 8.0]}
    plain, limited = walk(obs), walk({**obs, "mark": ["", "<"]}, censored="mark")
    a, b = (fme.design(c, {"a": 0.9}, candidates={"time": [3.0, 9.0]}, n=1, seed=1) for c in (plain, limited))
    assert a.after["a"] == pytest.approx(b.after["a"])


def test_a_prior_counts_beside_readings_that_hang_together():
    p, table = {"a": 0.8, "b": 1.0}, {"time": [9]}
    now = information([1, 2, 4], P)[:2, :2] + np.diag([1 / 0.05**2, 0.0])
    then = information([1, 2, 4, 9], P)[:2, :2] + np.diag([1 / 0.05**2, 0.0])
    best = fme.design(walk(), p, candidates=table, n=1, prior={"a": stats.norm(0.7, 0.05)}, seed=1)
    np.testing.assert_allclose(best.before, np.sqrt(np.diag(np.linalg.inv(now))), rtol=1e-5)
    np.testing.assert_allclose(best.after, np.sqrt(np.diag(np.linalg.inv(then))), rtol=1e-5)
