"""Diagnostics meet coda's and ArviZ's numbers, and theory where it is known; where they cannot say, they say NaN."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy import signal, stats

from fmepy.errors import ArgumentError
from fmepy.mcmc.coda import SHORTEST, geweke, raftery_lewis, spectrum0_ar
from fmepy.mcmc.convergence import ess_bulk, ess_tail, mcse, rhat
from fmepy.mcmc.diagnostics import chain_diagnostics, draws_by_chain
from fmepy.numerics.draw_statistics import autocorrelation, rank_counts, running_mean, running_quantiles


@pytest.fixture(scope="module")
def coda(reference):
    cases = json.loads((reference / "fme" / "modMCMC_exact.json").read_text())["cases"]
    return next(c for c in cases if c["id"] == "coda")


@pytest.fixture(scope="module")
def series(coda):
    """Return a and b, each of shape (2, 400)."""
    chains = np.array([coda["inputs"][k]["matrix"] for k in ("chain1", "chain2")])
    return {"a": chains[:, :, 0], "b": chains[:, :, 1]}


def autoregression(phi, n, n_chain=1, seed=1):
    """Return draws of x[t] = phi x[t-1] + e, of variance 1, from its stationary distribution."""
    rng = np.random.default_rng(seed)
    e = rng.normal(scale=np.sqrt(1 - phi**2), size=(n_chain, n))
    start = phi * rng.normal(size=(n_chain, 1))
    return signal.lfilter([1.0], [1.0, -phi], e, axis=1, zi=start)[0]


# --- coda's numbers


@pytest.mark.parametrize("name", ["a", "b"])
def test_the_spectral_density_at_zero_and_its_order_are_codas(series, coda, name):
    density, order = spectrum0_ar(series[name][0])
    assert density == pytest.approx(coda["outputs"]["spectrum0.ar"][name], rel=1e-10)
    assert order == coda["outputs"]["ar_order"][name]
    assert np.sqrt(density / 400) == pytest.approx(coda["outputs"]["timeseries_se"][name], rel=1e-10)


@pytest.mark.parametrize("name", ["a", "b"])
def test_gewekes_z_is_codas(series, coda, name):
    assert geweke(series[name])[0] == pytest.approx(coda["outputs"]["geweke_z"][name], rel=1e-10)


@pytest.mark.parametrize(("row", "name"), [(0, "a"), (1, "b")])
def test_raftery_and_lewis_length_is_codas(series, coda, row, name):
    stacked = np.tile(series[name].ravel(), 5)
    expected = coda["outputs"]["raftery_on_5x_stacked"]["matrix"][row]
    assert raftery_lewis(stacked) == expected[1]
    assert expected[2] == SHORTEST


@pytest.mark.parametrize("name", ["a", "b"])
def test_autocorrelations_are_codas(series, coda, name):
    found = autocorrelation(series[name], 50)[0, [0, 1, 5, 10, 50]]
    np.testing.assert_allclose(found, coda["outputs"]["autocorr_lags_0_1_5_10_50"][name], rtol=1e-9, atol=1e-12)


# --- ArviZ's numbers: arviz-stats 0.8.0, methods rank, bulk, tail (0.05, 0.95) and mean, on the same draws


ARVIZ = {
    "a": (1.0123026640539998, 282.19588646097327, 499.0872867526371, 0.06472950052615246),
    "b": (0.9991877080623203, 61.43005248261932, 132.95788885167497, 0.25241343420572904),
    "odd": (1.0032900487875387, 56.21790162246377, 117.27849741519887, 0.2645395816509644),
    "ties": (1.0113616048911378, 284.17661523411016, 447.8336966398403, 0.06757972407929251),
    "antithetic": (1.0003241476074518, 2322.471989593555, 892.3927877341301, 0.014682037552458086),
    "apart": (1.5330737595654025, 3.6931498743528968, 270.31411260525533, 0.8389086970554315),
    "scale": (1.1695100282824311, 262.8750504158001, 394.7756559747687, 0.14865093249476774),
}


@pytest.mark.parametrize("name", ARVIZ)
def test_rhat_effective_sizes_and_mcse_are_arvizs(series, name):
    i = np.arange(400.0)
    x = {
        **series,
        "odd": series["b"][:, :377],
        "ties": np.round(series["a"]),
        "antithetic": np.stack([np.cos(2.9 * i) + 0.01 * np.sin(i), np.sin(2.9 * i)]),
        "apart": series["a"] + [[0.0], [2.0]],
        "scale": series["a"] * [[1.0], [3.0]],
    }[name]
    np.testing.assert_allclose([rhat(x), ess_bulk(x), ess_tail(x), mcse(x)], ARVIZ[name], rtol=1e-9)


# --- theory


@pytest.mark.parametrize("phi", [-0.3, 0.0, 0.5, 0.9])
def test_the_effective_size_of_an_autoregression_is_what_theory_says(phi):
    x = autoregression(phi, 20_000, n_chain=2)
    expected = x.size * (1 - phi) / (1 + phi)
    # the spread of such estimates over seeds is 2 to 4 % here
    assert ess_bulk(x) == pytest.approx(expected, rel=0.15)
    assert mcse(x) == pytest.approx(1 / np.sqrt(expected), rel=0.1)


def test_the_spectral_density_of_an_autoregression_of_order_two_is_what_theory_says():
    e = np.random.default_rng(3).normal(size=50_000)
    x = signal.lfilter([1.0], [1.0, -0.5, 0.3], e)
    density, order = spectrum0_ar(x)
    assert order >= 2
    assert density == pytest.approx(1 / (1 - 0.5 + 0.3) ** 2, rel=0.05)


def test_gewekes_z_is_standard_normal_for_stationary_chains():
    z = geweke(autoregression(0.5, 1000, n_chain=400))
    assert stats.kstest(z, "norm").pvalue > 0.001
    assert z.std() == pytest.approx(1.0, abs=0.15)


def test_gewekes_z_is_large_for_a_chain_that_starts_far_away():
    x = autoregression(0.5, 1000)
    x[0, :100] += 2.0
    assert geweke(x)[0] > 5


def test_independent_draws_need_the_minimum_length():
    assert int(np.ceil(0.025 * 0.975 * (stats.norm.ppf(0.975) / 0.005) ** 2)) == SHORTEST
    assert raftery_lewis(np.random.default_rng(2).normal(size=20_000)) == pytest.approx(SHORTEST, rel=0.1)


def test_folding_sees_chains_that_differ_in_spread_alone():
    x = np.random.default_rng(4).normal(size=(2, 2000)) * [[1.0], [4.0]]
    assert rhat(x) > 1.1
    assert rhat(x / [[1.0], [4.0]]) < 1.01


def test_halves_see_a_single_chain_that_drifts():
    x = np.random.default_rng(5).normal(size=2000)
    assert rhat(x) < 1.01
    assert rhat(x + np.linspace(0, 3, 2000)) > 1.1


def test_ranks_make_rhat_and_bulk_indifferent_to_monotone_transforms():
    x = autoregression(0.5, 400, n_chain=2)
    # the folded part depends on distances, so chains that differ in place are taken, where the bulk part is larger
    apart = x + np.array([[0.0], [1.0]])
    assert rhat(np.exp(apart)) == pytest.approx(rhat(apart), rel=1e-12)
    assert ess_bulk(np.exp(x)) == pytest.approx(ess_bulk(x), rel=1e-12)
    assert ess_tail(np.exp(x)) == pytest.approx(ess_tail(x), rel=1e-12)


# --- where they cannot say


@pytest.mark.parametrize("function", [rhat, ess_bulk, ess_tail, mcse])
@pytest.mark.parametrize(
    "x",
    [np.full((2, 100), 0.1), [[1.0]], [[0.0, np.nan] * 20], [[0.0, np.inf] * 20]],
    ids=["constant", "one draw", "nan", "inf"],
)
def test_what_cannot_be_said_is_nan(function, x):
    assert np.isnan(function(x))


@pytest.mark.parametrize("function", [rhat, ess_bulk, ess_tail, mcse])
def test_three_draws_are_too_few_and_four_are_not(function):
    assert np.isnan(function([1.0, 2.0, 4.0]))
    assert np.isfinite(function([1.0, 3.0, 2.0, 4.0]))


def test_constant_chains_that_differ_have_an_infinite_rhat_and_hardly_any_draws():
    x = np.repeat([[0.1], [0.3]], 100, axis=1)
    assert rhat(x) == np.inf
    assert ess_bulk(x) < 5
    assert np.isnan(geweke(x)).all()


def test_one_constant_chain_of_two_is_seen(series):
    x = series["a"].copy()
    x[1] = 0.1
    assert rhat(x) > 1.1
    assert np.isnan(autocorrelation(x)[1]).all()
    assert np.isfinite(autocorrelation(x)[0]).all()


def test_a_tail_of_ties_is_left_out_of_the_tail_size(series):
    x = np.minimum(series["a"], 0.5)  # a third of the draws on the upper bound: its 95 % quantile is the bound
    lower = ess_tail(series["a"])
    assert np.isfinite(ess_tail(x))
    assert ess_tail(x) >= lower


def test_short_and_constant_series_have_no_geweke_z():
    rng = np.random.default_rng(6)
    assert np.isnan(geweke(rng.normal(size=49))[0])
    assert np.isfinite(geweke(rng.normal(size=50))[0])
    assert np.isnan(geweke(np.ones(100))[0])


def test_chains_shorter_than_the_minimum_have_no_raftery_lewis_length():
    x = np.random.default_rng(7).normal(size=3746)
    assert np.isfinite(raftery_lewis(x))
    assert np.isnan(raftery_lewis(x[:-1]))
    assert np.isnan(raftery_lewis(np.ones(4000)))


def test_a_constant_series_has_no_spectrum():
    assert spectrum0_ar(np.full(50, 0.1)) == (0.0, 0)


def test_a_straight_line_and_an_alternation_raise_no_warning():
    for x in (np.arange(100.0), np.resize([0.0, 1.0], 5000)):
        assert np.isfinite(rhat(x))
        assert ess_bulk(x) > 0
        geweke(x)
        raftery_lewis(x)


def test_wrong_arguments_are_told():
    with pytest.raises(ArgumentError, match=r"shape is \(1, 2, 2\)"):
        rhat(np.zeros((1, 2, 2)))
    with pytest.raises(ArgumentError, match="hold draws"):
        ess_bulk([])
    with pytest.raises(ArgumentError, match="max_lag"):
        autocorrelation(np.zeros(10), -1)
    with pytest.raises(ArgumentError, match="bins"):
        rank_counts(np.zeros(10), 0)


# --- numbers of pictures


def test_running_quantiles_are_quantiles_of_the_first_draws(series):
    counts, quantiles = running_quantiles(series["a"], n_point=7)
    assert counts[-1] == 400
    assert len(counts) == 7
    for k, found in zip(counts, quantiles[1], strict=True):
        np.testing.assert_allclose(found, np.quantile(series["a"][1, :k], [0.025, 0.5, 0.975]))


def test_running_means_end_at_the_mean(series):
    np.testing.assert_allclose(running_mean(series["a"])[:, -1], series["a"].mean(axis=1))


def test_rank_counts_share_out_all_draws(series):
    edges, counts = rank_counts(series["b"], 16)
    assert len(edges) == 17
    np.testing.assert_allclose(counts.sum(axis=1), 400)
    np.testing.assert_allclose(counts.sum(axis=0), 50)


# --- the table


def frame_of(chains):
    """Return chains (a list of arrays (n_draw, 2)) as modMCMC's table."""
    index = pd.MultiIndex.from_tuples(
        [(c, i) for c, x in enumerate(chains) for i in range(len(x))], names=["chain", "iteration"]
    )
    return pd.DataFrame(np.concatenate(chains), index=index, columns=["a", "b"])


def test_the_table_has_a_row_per_parameter_with_the_functions_numbers(series):
    table = chain_diagnostics(frame_of([np.column_stack([series["a"][c], series["b"][c]]) for c in (0, 1)]))
    assert list(table.index) == ["a", "b"]
    for name, x in series.items():
        row = table.loc[name]
        expected = [x.mean(), x.std(ddof=1), mcse(x), ess_bulk(x), ess_tail(x), rhat(x)]
        np.testing.assert_allclose(row[["mean", "sd", "mcse", "ess_bulk", "ess_tail", "rhat"]], expected)
        z = geweke(x)
        assert row["geweke_z"] == z[np.abs(z).argmax()]
    assert table["raftery_lewis"].isna().all()  # 400 draws are too few


def test_the_table_takes_the_neediest_chain_for_the_length():
    quick, slow = autoregression(0.0, 5000)[0], autoregression(0.9, 5000)[0]
    table = chain_diagnostics(frame_of([np.column_stack([x, x]) for x in (quick, slow)]))
    assert table.loc["a", "raftery_lewis"] == raftery_lewis(slow) > raftery_lewis(quick)


def test_the_table_takes_gewekes_z_that_is_farthest_from_zero_either_way(series):
    x = np.stack([series["a"][0], series["b"][0]])  # both z are positive
    low = chain_diagnostics(frame_of([np.column_stack([c, -c]) for c in x]))["geweke_z"]
    assert low["a"] == -low["b"] == geweke(x).max()


def test_chains_of_different_length_count_with_their_first_draws():
    long, short = np.arange(20.0).reshape(10, 2), 100 + np.arange(12.0).reshape(6, 2)
    cube = draws_by_chain(frame_of([long, short]))
    np.testing.assert_array_equal(cube, [long[:6], short])


def test_a_table_without_chains_is_one_chain(series):
    table = chain_diagnostics(pd.DataFrame({"a": series["a"][0]}))
    assert table.loc["a", "rhat"] == rhat(series["a"][0])


def test_a_constant_or_missing_parameter_has_nan_in_the_table():
    table = chain_diagnostics(pd.DataFrame({"c": np.full(100, 0.1), "n": [np.nan] * 100}))
    assert table.loc["c", "mean"] == pytest.approx(0.1)
    assert table.loc["c", "sd"] == pytest.approx(0.0, abs=1e-15)
    assert table.iloc[:, 2:].isna().all(axis=None)
    assert table.loc["n"].isna().all()
    with pytest.raises(ArgumentError, match="no rows"):
        chain_diagnostics(pd.DataFrame({"a": []}))
