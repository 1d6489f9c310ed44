"""Readings of which a filter knows only a limit: exact where that can be worked out, and refused where it cannot."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from scipy.stats import multivariate_normal, norm

from fmepy import DifferenceModel, FimlofCost, OdeModel, SimulationCost, modFit, sector
from fmepy.errors import ArgumentError, DataError
from fmepy.filtering.limits import tail
from fmepy.journal.saving import load
from fmepy.numerics.tails import generalised, steepness

WALK = DifferenceModel("next(x) = a * x", state={"x": 1.0}, times=range(6), parms={"a": 0.9})
DATA = pd.DataFrame({
    "time": [1, 2, 3, 4, 5], "x": [1.2, 0.7, 1.0, 0.6, 0.9], "mark": ["", "<", None, ">", "="],
})  # fmt: skip
NOISE = {
    "process_noise": {"x": "q"}, "measurement_noise": {"x": "r"}, "parms": {"q": 0.5, "r": 0.3},
    "initial_sd": {"x": 0.4},
}  # fmt: skip


TABLE = pd.DataFrame([[0.1]], ["x"], ["x"])


def walk(data: pd.DataFrame = DATA, **words: object) -> FimlofCost:
    return FimlofCost(WALK, data, **{**NOISE, "censored": "mark", **words})


def joint(a: float, q: float, r: float, sd: float, times: range) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean of the states from time 0 on, and their covariance."""
    n = len(times)
    F = np.array([[a ** (i - j) if i >= j else 0.0 for j in range(n)] for i in range(n)])
    return F[:, 0].copy(), F @ np.diag([sd**2, *[q**2] * (n - 1)]) @ F.T


def test_the_tail_keeps_its_digits() -> None:
    t = np.concatenate([-np.logspace(5, -3, 60), [0.0], np.linspace(0.01, 30, 60)])
    lam, w, bend = np.array([tail(x) for x in t]).T
    one = np.ones(len(t), dtype=int)
    np.testing.assert_allclose(lam, -generalised(t, one), rtol=1e-12)
    np.testing.assert_allclose(w, steepness(t, one), rtol=1e-11)
    h = 1e-4 * np.maximum(1.0, abs(t))
    near = np.array([(tail(x + d)[1] - tail(x - d)[1]) / (2 * d) for x, d in zip(t, h, strict=True)])
    some = abs(t) < 8
    np.testing.assert_allclose(bend[some], near[some], rtol=3e-6, atol=1e-12)
    np.testing.assert_allclose(bend[t < -50], 2 / t[t < -50] ** 3, rtol=5e-3)


@pytest.mark.parametrize(("mark", "sign"), [("<", 1), (">", -1)])
def test_one_limit_is_exact_and_all_states_have_their_moments_given_it(mark: str, sign: int) -> None:
    data = DATA.assign(mark=["", "", mark, "", ""], x=[1.2, 0.7, 0.1, np.nan, np.nan])
    data.loc[3:, "mark"] = ""
    mean, P = joint(0.9, 0.5, 0.3, 0.4, range(6))
    S = P[1:4, 1:4] + 0.09 * np.eye(3)
    K = S[2, :2] @ np.linalg.inv(S[:2, :2])
    h, s = mean[3] + K @ (data["x"][:2] - mean[1:3]), S[2, 2] - K @ S[:2, 2]
    expected = multivariate_normal.logpdf(data["x"][:2], mean[1:3], S[:2, :2])
    expected += norm.logcdf(sign * (0.1 - h) / np.sqrt(s))
    flt = walk(data).filter()
    assert flt.loglik == pytest.approx(expected, abs=1e-12)
    # states and the reading are normal given the plain data; the reading's truncated moments go on to the states
    C = P[:, 1:3] @ np.linalg.inv(S[:2, :2])
    x, V, c = mean + C @ (data["x"][:2] - mean[1:3]), P - C @ P[1:3], P[:, 3] - C @ P[1:3, 3]
    t = sign * (0.1 - h) / np.sqrt(s)
    lam = norm.pdf(t) / norm.cdf(t)
    np.testing.assert_allclose(flt.smoothed["x"], x - sign * lam * c / np.sqrt(s), atol=1e-12)
    variances = np.diag(V) - lam * (lam + t) * c**2 / s
    np.testing.assert_allclose(flt.sd()["x"], np.sqrt(variances), atol=1e-12)


def test_several_limits_come_near_the_integral() -> None:
    data = DATA.assign(mark=["<", "<", "", "<", "<"])
    mean, P = joint(0.9, 0.5, 0.3, 0.4, range(6))
    m, S, z = mean[1:], P[1:, 1:] + 0.09 * np.eye(5), data["x"].to_numpy()
    K = S[[0, 1, 3, 4], 2] / S[2, 2]
    rest = S[np.ix_([0, 1, 3, 4], [0, 1, 3, 4])] - np.outer(K, K) * S[2, 2]
    exact = norm.logpdf(z[2], m[2], np.sqrt(S[2, 2]))
    behind = m[[0, 1, 3, 4]] + K * (z[2] - m[2])
    exact += np.log(multivariate_normal.cdf(z[[0, 1, 3, 4]], behind, rest, abseps=1e-9, maxpts=2_000_000))
    assert walk(data).filter().loglik == pytest.approx(exact, abs=0.03)


@pytest.mark.parametrize(("a", "near"), [(0.9, 0.02), (0.2, 3e-4), (0.0, 1e-12)])
def test_two_limits_come_the_nearer_the_less_they_have_to_do_with_each_other(a: float, near: float) -> None:
    data, turn = DATA[:2].assign(mark=["<", ">"]), np.diag([1.0, -1.0])
    mean, P = joint(a, 0.5, 0.3, 0.4, range(3))
    exact = multivariate_normal.cdf(turn @ data["x"], turn @ mean[1:], turn @ (P[1:, 1:] + 0.09 * np.eye(2)) @ turn)
    assert walk(data)({"a": a}) == pytest.approx(-2 * np.log(exact), abs=2 * near)


@pytest.mark.parametrize("transform", [None, "log"])
@pytest.mark.parametrize("process_noise", [{}, {"x": "q"}])
def test_without_process_noise_it_is_the_simulation_cost(transform: str | None, process_noise: dict) -> None:
    words = {"measurement_noise": {"x": "r"}, "censored": "mark", "transform": transform}
    plain = SimulationCost(WALK, DATA, parms={"r": 0.3}, **words)
    parms = {"r": 0.3} | dict.fromkeys(process_noise.values(), 0.0)
    cost = FimlofCost(WALK, DATA, process_noise=process_noise, parms=parms, **words)
    a, b = cost.bind(["a", "r"]), plain.bind(["a", "r"])
    np.testing.assert_allclose(a.score(a.theta0), b.score(b.theta0), rtol=1e-7)
    np.testing.assert_allclose(a.information(a.theta0), b.information(b.theta0), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(a.log_densities(a.theta0).sum(), b.log_densities(b.theta0).sum(), rtol=1e-12)
    assert cost() == pytest.approx(b.minus2loglik(b.theta0), abs=1e-12)
    assert a.data.observed.log_jacobian == pytest.approx(b.data.observed.log_jacobian)


GROWTH = OdeModel("dx/dt = r * x * (1 - x / K)\ndy/dt = 0.3 * x - 0.5 * y", state={"x": "x0", "y": 0.2},
                  times=[0, 5], parms={"r": 0.8, "K": 4.0, "x0": 0.5})  # fmt: skip
BOTH = pd.DataFrame({
    "time": [1.0, 2.0, 2.0, 3.0, 4.0], "x": [1.0, 1.5, 1.7, 3.0, 3.2], "y": [0.3, 0.4, np.nan, 0.7, np.nan],
    "of_x": ["", "<", "", ">", ""], "of_y": ["<", ">", "", "", ""],
})  # fmt: skip


def growth(**words: object) -> FimlofCost:
    return FimlofCost(
        GROWTH, BOTH, process_noise={"x": "q", "y": 0.1}, measurement_noise={"x": "s * x", "y": 0.1},
        parms={"q": 0.2, "s": 0.15}, initial_sd={"x": "q"}, censored={"x": "of_x", "y": "of_y"}, **words,
    )  # fmt: skip


@pytest.mark.parametrize(
    "words",
    [
        {},
        {"algorithm": "sqrt"},
        {"propagation": "rk4", "dt": 0.1},
        {"propagation": "rk4", "dt": 0.1, "algorithm": "sqrt"},
        {"propagation": "moment"},
    ],
)
def test_the_score_is_the_slope(words: dict) -> None:
    bound = growth(**words).bind()
    theta, h = bound.theta0, 1e-4
    slopes = [(bound.minus2loglik(theta - d) - bound.minus2loglik(theta + d)) / (4 * h) for d in h * np.eye(len(theta))]
    np.testing.assert_allclose(bound.score(theta), slopes, rtol=2e-4, atol=2e-4)
    np.testing.assert_allclose(bound.sample_scores(theta).sum(axis=0), bound.score(theta), rtol=1e-10)
    rows = bound.sensitivity_rows(theta)[2]
    np.testing.assert_allclose(rows.T @ rows, bound.information(theta), rtol=1e-10, atol=1e-12)


def test_tangents_carry_the_score() -> None:
    bound = growth(propagation="rk4", dt=0.1).bind()
    moved, passes = bound._tangent_passes(bound.theta0, 0, False)
    assert moved == [0, 1, 2, 3, 4]
    assert passes


def test_factors_give_the_same_filter() -> None:
    plain, safe = (growth(propagation="rk4", dt=0.1, algorithm=how).filter() for how in ("sequential", "sqrt"))
    assert plain.loglik == pytest.approx(safe.loglik, abs=1e-10)
    for kind in ("predicted", "filtered", "smoothed"):
        np.testing.assert_allclose(getattr(plain, kind), getattr(safe, kind), atol=1e-9)
        np.testing.assert_allclose(plain.sd(kind), safe.sd(kind), atol=1e-9)


def test_limits_that_say_nothing_change_nothing() -> None:
    far = pd.concat([DATA, pd.DataFrame({"time": [1, 2, 4], "x": [90.0, -1e9, 50.0], "mark": ["<", ">", "<"]})])
    with_them, without = walk(far.reset_index(drop=True)).filter(), walk().filter()
    assert with_them.loglik == pytest.approx(without.loglik, abs=1e-12)
    np.testing.assert_allclose(with_them.smoothed, without.smoothed, atol=1e-12)


def test_far_limits_are_almost_readings() -> None:
    flt = walk(DATA.assign(x=[1.2, -2000.0, 1.0, 0.6, 0.9])).filter()
    assert np.isfinite(flt.loglik)
    assert flt.failure is None
    assert flt.smoothed["x"][2] < -1000


def test_limits_have_a_prediction_and_no_residuals() -> None:
    flt = walk().filter()
    table = flt.residuals
    limits = table["censored"] != ""
    assert table["censored"].tolist() == ["", "<", "", ">", ""]
    assert table.loc[limits, ["innovation", "sd", "standardized", "NUMR", "AUXM"]].isna().all(axis=None)
    assert table.loc[~limits].notna().all(axis=None)
    assert table["mod"].notna().all()
    assert not table["flag"].any()
    assert flt.samples["n"].tolist() == [1, 1, 1]
    assert flt.samples["chi2"].sum() == pytest.approx(flt.sumsq)
    assert flt.sumsq_test().nobs == 3
    assert flt.nobs == 5
    one = flt.contributions.loc["x"]
    assert (one["n"], one["loglik"]) == (5, pytest.approx(flt.loglik))
    assert one["mean_square"] == pytest.approx(flt.sumsq / 3)
    assert "censored" not in walk(DATA.assign(mark="")).filter().residuals


def test_residuals_of_a_fit_are_generalised_ones() -> None:
    bound = walk().bind()
    one = bound.likelihoods(bound.theta0)[0]
    residuals = bound.standardised(bound.theta0)[1]
    t = (0.7 - (0.7 - one.nu[1])) / np.sqrt(one.s[1])
    assert residuals[1] == pytest.approx(norm.pdf(t) / norm.cdf(t))
    assert bound.log_densities(bound.theta0).sum() == pytest.approx(one.loglik)


def test_drawn_data_keep_the_limits_beyond_which_they_lie() -> None:
    drawn = growth().simulate(seed=3)
    for name, mark in (("x", "of_x"), ("y", "of_y")):
        still = drawn[mark].isin(["<", ">"])
        was = BOTH[mark].isin(["<", ">"])
        assert (still <= was).all()
        assert drawn.loc[still, name].equals(BOTH.loc[still, name])
        freed = was & ~still
        inside = np.where(BOTH[mark] == "<", drawn[name] >= BOTH[name], drawn[name] <= BOTH[name])
        assert inside[freed].all()
    assert growth().replace(obs=drawn)() < np.inf
    cost = walk()
    assert {"<", ""} == {cost.simulate(seed=k)["mark"][1] for k in range(30)}


def test_parameters_come_back_from_censored_histories() -> None:
    n, rng = 400, np.random.default_rng(5)
    model = DifferenceModel("next(x) = a * x + b", state={"x": 2.0}, times=range(n + 1), parms={"a": 0.8, "b": 0.4})
    x, z = 2.0, []
    for _ in range(n):
        x = 0.8 * x + 0.4 + 0.5 * rng.standard_normal()
        z.append(x + 0.3 * rng.standard_normal())
    z = np.array(z)
    data = pd.DataFrame({"time": range(1, n + 1), "x": np.maximum(z, 1.7), "mark": np.where(z < 1.7, "<", "")})
    words = {
        "process_noise": {"x": "q"},
        "measurement_noise": {"x": 0.3},
        "parms": {"q": 0.4},
        "initial_sd": {"x": 0.5},
    }
    fit = modFit(FimlofCost(model, data, censored="mark", **words))
    error = (fit.par - pd.Series({"a": 0.8, "b": 0.4, "q": 0.5})) / fit.std_error
    assert (error.abs() < 2.5).all(), error
    wrong = modFit(FimlofCost(model, data.drop(columns="mark"), **words))
    assert abs(wrong.par["q"] - 0.5) > 2 * abs(fit.par["q"] - 0.5)


def test_entities_keep_their_marks() -> None:
    two = pd.concat([DATA.assign(who="a"), DATA.assign(who="b", mark="")])
    cost = walk(two.reset_index(drop=True), entity="who")
    assert cost() == pytest.approx(walk()() + walk(DATA.assign(mark=""))())


def test_the_picture_shows_limits_as_open_triangles() -> None:
    ax = walk().filter().plot()[0]
    markers = {line.get_marker() for line in ax.lines}
    assert {"v", "^"} <= markers
    plt.close("all")


@pytest.mark.parametrize(
    ("words", "error", "told"),
    [
        (
            {"initial": "diffuse", "initial_sd": None},
            ArgumentError,
            r"limits say too little.*initial_sd=\{'x': '...'\}",
        ),
        ({"update": "iterated"}, ArgumentError, "is for update='ekf', not 'iterated'"),
        ({"censored": "marks"}, DataError, "'marks'. is not a column"),
        ({"measurement_noise": TABLE, "parms": {"q": 1.0}}, ArgumentError, "errors of 'x' are correlated"),
        ({"obs": DATA[1:], "initial": "data"}, DataError, "first data, at 2, are limits"),
        ({"obs": DATA.assign(mark="~")}, DataError, "holds '~' in row 0"),
    ],
)
def test_what_cannot_be_is_refused(words: dict, error: type, told: str) -> None:
    with pytest.raises(error, match=told):
        walk(words.pop("obs", DATA), **words)


def test_a_sector_keeps_its_limits_and_takes_none_for_an_input() -> None:
    pair = DifferenceModel("next(x) = 0.9 * x + 0.2 * y\nnext(y) = b * y", state={"x": 1.0, "y": 1.0}, times=range(6),
                           parms={"b": 0.8})  # fmt: skip
    data = DATA.rename(columns={"mark": "of_x"}).assign(y=[0.8, 0.5, 0.6, 0.4, 0.3], of_y=["", "<", "", "", ""])
    cost = FimlofCost(pair, data, process_noise={"x": 0.3, "y": 0.1}, measurement_noise={"x": 0.2, "y": 0.1},
                      censored={"x": "of_x", "y": "of_y"})  # fmt: skip
    part = sector(cost, ["x"])
    assert part.cost.entities[0].readings.marks.tolist() == [0, -1, 0, 1, 0]
    assert part.interpolated["value"].to_numpy()[-1] == pytest.approx(0.7)


def test_the_report_counts_limits() -> None:
    assert "2 readings of them are limits" in repr(walk().filter().summary())


def test_a_filter_that_turns_to_factors_takes_limits_along() -> None:
    model = DifferenceModel("next(x) = x + v\nnext(v) = v", state={"x": 0.0, "v": 0.0}, times=range(6))
    data = {"time": [1, 2, 3, 4, 5], "x": [1.0, 2.0, 3.0, 4.0, 5.0], "mark": ["", "", "<", "", ">"]}
    words = {"process_noise": {"v": 1e-3}, "measurement_noise": {"x": 1e-7}, "initial_sd": {"x": 1e3, "v": 1e3}}
    plain, safe = (FimlofCost(model, data, censored="mark", algorithm=a, **words) for a in ("sequential", "sqrt"))
    bound = plain.bind()
    assert bound.passes(bound.theta0)[0][0].is_safe
    assert plain() == safe()


def test_a_result_with_limits_is_kept(tmp_path: Path) -> None:
    flt = walk().filter()
    flt.save(tmp_path / "filter")
    again = load(tmp_path / "filter")
    pd.testing.assert_frame_equal(again.residuals, flt.residuals)


def test_limits_by_variable_are_drawn_for_a_simulation_too() -> None:
    cost = SimulationCost(WALK, DATA.rename(columns={"mark": "of_x"}), measurement_noise={"x": 0.3},
                          censored={"x": "of_x"})  # fmt: skip
    drawn = pd.concat([cost.simulate(seed=k) for k in range(20)])
    assert set(drawn.loc[[1], "of_x"]) == {"<", ""}
    assert (drawn.loc[[1]].query("of_x == '<'")["x"] == 0.7).all()
