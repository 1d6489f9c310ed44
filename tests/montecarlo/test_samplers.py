"""Samplers: grids equal R's, random points have the distribution they claim, bad ranges and covariances are told."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fmepy.errors import ArgumentError, ParameterError
from fmepy.montecarlo import Grid, Halton, Latinhyper, Norm, Sobol, Unif
from tests.models.problems import cases, table

CASES = cases("samplers.json")
R3 = {"gmax": (0.4, 0.6), "eff": (0.4, 0.6), "rB": (0.0, 0.02)}
C = np.array([[0.5, -0.2], [-0.2, 1.0]])
RANDOM = [Unif, Latinhyper, Sobol, Halton]


def ranges(entry):
    given = entry["inputs"]["parRange"]
    frame = table(given)
    frame.index = given.get("index", given.get("rows"))
    return frame


@pytest.mark.parametrize("case", ["one_11", "one_1", "two_100", "two_9m", "three_100", "four_500", "three_2"])
def test_grid_is_that_of_r(case):
    entry = CASES[case]
    grid = Grid(ranges(entry), entry["inputs"]["num"])
    assert len(grid) == entry["outputs"]["nrow"]
    if entry["outputs"]["grid"] is not None:
        pd.testing.assert_frame_equal(grid, table(entry["outputs"]["grid"]).astype(float), rtol=1e-13)
    np.testing.assert_allclose(grid.mean(), list(entry["outputs"]["colmeans"].values()), rtol=1e-13)


def test_quirk_15_grid_keeps_every_level_of_an_exact_power():
    assert len(Grid(R3, 64)) == 64
    assert len(Grid(R3, 125)) == 125
    powers = table(CASES["quirk_powers"]["outputs"]["table"])
    assert (powers["rows"] < powers["num"]).any()  # R falls short
    for npar, num in zip(powers["npar"], powers["num"], strict=True):
        assert len(Grid({f"p{i}": (0, 1) for i in range(int(npar))}, num)) == num


@given(npar=st.integers(1, 6), num=st.integers(1, 3000))
@settings(max_examples=60, deadline=None)
def test_a_grid_has_as_many_levels_as_fit(npar, num):
    n = len(Grid({f"a{i}": (0, 1) for i in range(npar)}, num))
    k = round(n ** (1 / npar))
    assert k**npar == n <= num < (k + 1) ** npar


@pytest.mark.parametrize("sampler", RANDOM)
def test_random_points_stay_in_range_and_fill_it(sampler):
    points = sampler(R3, 512, seed=1)
    assert list(points.columns) == list(R3)
    assert points.shape == (512, 3)
    for name, (low, high) in R3.items():
        assert points[name].between(low, high).all()
        assert stats.kstest(points[name], stats.uniform(low, high - low).cdf).pvalue > 1e-3
    assert np.abs(np.corrcoef(points.T) - np.eye(3)).max() < 0.2


@pytest.mark.parametrize("sampler", [*RANDOM, lambda r, n, seed: Norm([0, 0, 0], np.eye(3), r, num=n, seed=seed)])
def test_the_seed_decides_and_zero_counts(sampler):
    box = [(-1, 1), (-1, 1), (-1, 1)]
    np.testing.assert_array_equal(sampler(box, 20, seed=0), sampler(box, 20, seed=0))
    assert (sampler(box, 20, seed=0).to_numpy() != sampler(box, 20, seed=1).to_numpy()).any()
    rng = np.random.default_rng(0)
    np.testing.assert_array_equal(sampler(box, 20, seed=rng), sampler(box, 20, seed=0))
    assert (
        sampler(box, 20, seed=rng).to_numpy() != sampler(box, 20, seed=0).to_numpy()
    ).any()  # the generator moved on


def test_a_latin_hypercube_hits_each_stratum_once():
    points = Latinhyper(R3, 50, seed=3)
    for name, (low, high) in R3.items():
        strata = np.floor((points[name] - low) / (high - low) * 50).astype(int)
        assert sorted(strata) == list(range(50))


@pytest.mark.parametrize("sampler", [Sobol, Halton])
def test_space_filling_points_integrate_better_than_chance(sampler):
    def error(points):
        return abs(np.prod(points.to_numpy(), axis=1).mean() - 1 / 8)

    box = {"a": (0, 1), "b": (0, 1), "c": (0, 1)}
    ours = np.mean([error(sampler(box, 256, seed=s)) for s in range(10)])
    chance = np.mean([error(Unif(box, 256, seed=s)) for s in range(10)])
    assert ours < chance / 4


def test_normal_draws_have_mean_and_covariance():
    case = CASES["norm_moments"]["inputs"]
    cov = np.array(case["parCovar"]["matrix"])
    draws = Norm(case["parMean"], cov, num=40_000, seed=1)
    sd = np.sqrt(np.diag(cov))
    assert (np.abs(draws.mean() - list(case["parMean"].values())) < 5 * sd / 200).all()
    assert (np.abs(draws.cov().to_numpy() - cov) < 5 * np.outer(sd, sd) * np.sqrt(2) / 200).all()


def test_quirk_16_norm_truncates_and_clamps_on_request():
    case = CASES["quirk_norm_clamp"]
    cov = np.array(case["inputs"]["parCovar"]["matrix"])
    box = {"a": (0, 4.2), "b": (0, np.inf), "c": (0, np.inf), "d": (0, 2)}
    clamped = Norm(case["inputs"]["parMean"], cov, box, num=20_000, outside="clamp", seed=1)
    expected = list(case["outputs"]["expected_at_min"].values())
    np.testing.assert_allclose((clamped == 0).mean(), expected, atol=5 * np.sqrt(0.25 / 20_000))
    truncated = Norm(case["inputs"]["parMean"], cov, box, num=20_000, seed=1)
    assert len(truncated) == 20_000
    for name, (low, high) in box.items():
        assert truncated[name].between(low, high, inclusive="neither").all()


def test_quirk_16_one_parameter_keeps_its_range_and_its_name():
    draws = Norm({"k": 80}, 100, {"k": (79, 81)}, num=2000, seed=1)
    assert list(draws.columns) == ["k"]
    exact = stats.truncnorm(-0.1, 0.1, loc=80, scale=10)
    assert stats.kstest(draws["k"], exact.cdf).pvalue > 1e-3


def test_quirk_16_a_covariance_that_is_not_symmetric_is_refused():
    case = CASES["norm_asymmetric"]["inputs"]
    with pytest.raises(ParameterError, match=r"not symmetric: the covariance of 'a' and 'd' is 1 above .* 0.4 below"):
        Norm(case["parMean"], case["parCovar"]["matrix"], num=5)


def test_a_covariance_is_matched_by_its_labels():
    labelled = pd.DataFrame(C, index=["a", "b"], columns=["a", "b"])
    plain = Norm({"b": 3, "a": 4}, C[::-1, ::-1], num=5, seed=1)
    pd.testing.assert_frame_equal(Norm({"b": 3, "a": 4}, labelled, num=5, seed=1), plain)
    assert list(Norm([4, 3], labelled, num=5).columns) == ["a", "b"]
    assert list(Norm([4, 3], C, num=5).columns) == ["p1", "p2"]
    with pytest.raises(ParameterError, match="no parameter 'a'"):
        Norm({"x": 1, "b": 2}, labelled, num=5)


def test_parameters_of_very_different_size_are_no_reason_to_refuse_a_covariance():
    cov = np.diag([1e-14, 1e8])
    cov[0, 1] = cov[1, 0] = 0.9 * np.sqrt(1e-14 * 1e8)
    assert Norm({"a": 2e-5, "b": 1e5}, cov, num=2000, seed=1).corr().iloc[0, 1] == pytest.approx(0.9, abs=0.02)


@pytest.mark.parametrize(
    ("cov", "message"),
    [
        ([[1, 2], [2, 1]], r"smallest eigenvalue is -1 \(eigenvalue 1 of 2"),
        ([[1, 1], [1, 1]], "not positive definite"),
        ([[1, 0], [0, -1]], "variance of 'b' is -1"),
        ([1, 2], r"np.diag\(variances\)"),
        (np.eye(3), r"shape \(3, 3\); 2 parameters"),
        ([[1, np.nan], [np.nan, 1]], "without finite values"),
        (None, "`parCovar` is missing"),
    ],
)
def test_a_covariance_that_is_none_is_told(cov, message):
    with pytest.raises(ParameterError, match=message):
        Norm({"a": 0, "b": 0}, cov, num=5)


def test_a_truncation_that_accepts_nothing_ends_and_tells_the_rate():
    with pytest.raises(ArgumentError, match=r"of 5,0\d\d,\d\d\d draws 0 fell within it \(acceptance rate below"):
        Norm({"a": 0.0}, 1.0, {"a": (20, 21)}, num=3, seed=1)


def test_an_unlikely_truncation_is_still_exact():
    draws = Norm({"a": 0.0}, 1.0, {"a": (3, np.inf)}, num=400, seed=2)
    assert stats.kstest(draws["a"], stats.truncnorm(3, np.inf).cdf).pvalue > 1e-3


@pytest.mark.parametrize("sampler", [Grid, *RANDOM])
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"a": (1, 0)}, "'a' has min 1 above max 0"),
        ({"a": (0, np.inf)}, "both ends must be finite"),
        ({"a": (0, np.nan)}, "both ends must be finite"),
        ({"a": 3}, "two numbers"),
        ({}, "empty"),
        (None, "`parRange` is missing"),
        (pd.DataFrame({"low": [0], "max": [1]}), "needs the columns 'min' and 'max'"),
        (pd.DataFrame({"name": ["a"], "min": [0], "max": [1]}), r"'name' is not read: pass table\.set_index\('name'\)"),
    ],
)
def test_a_range_that_is_none_is_told(sampler, given, message):
    with pytest.raises(ParameterError, match=message):
        sampler(given, 5)


@pytest.mark.parametrize("num", [0, -1, 2.5, "10", True, None])
def test_num_must_be_a_number_of_sets(num):
    for sampler in (Grid, *RANDOM):
        with pytest.raises(ArgumentError, match="`num="):
            sampler({"a": (0, 1)}, num)


def test_a_range_without_width_gives_its_value():
    for sampler in (Grid, *RANDOM):
        assert set(sampler({"a": (2.5, 2.5)}, 4)["a"]) == {2.5}


def test_a_bad_seed_is_told():
    with pytest.raises(ArgumentError, match="`seed=-1`"):
        Unif({"a": (0, 1)}, 3, seed=-1)
