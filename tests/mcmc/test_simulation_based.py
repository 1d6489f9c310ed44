"""Ranks of truths are uniform where the likelihood is that of the data, and not where it is wrong."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import fmepy as fme
from fmepy.errors import ArgumentError, FmepyError, InterruptedWarning, ParameterError
from fmepy.mcmc.simulation_based import CalibrationCheck

WORDS = {"num": 100, "niter": 1200, "burninlength": 200, "jump": {"k": 0.06}, "updatecov": 100, "seed": 1}


@pytest.fixture(scope="module")
def cost():
    model = fme.OdeModel("dA/dt = -k * A", state={"A": 10.0}, times=[0, 5], parms={"k": 0.5})
    return fme.SimulationCost(model, {"time": [1, 2, 3, 4], "A": [6, 4, 2, 1]}, measurement_noise={"A": 0.4})


PRIOR = {"k": stats.lognorm(0.4, scale=0.5)}


@pytest.fixture(scope="module")
def check(cost):
    return fme.simulation_based_calibration(cost, PRIOR, **WORDS)


def test_the_ranks_of_a_right_likelihood_are_uniform(check):
    assert check.ranks.shape == check.truth.shape == (100, 1)
    assert check.ranks["k"].between(0, check.n_draws).all()
    assert (check.ranks == check.ranks.round()).all(axis=None)
    row = check.summary().loc["k"]
    assert row["p_value"] > 0.01
    assert row["coverage"] == pytest.approx(0.9, abs=0.09)
    assert row["level"] == 0.9
    assert stats.kstest(check.truth["k"], PRIOR["k"].cdf).pvalue > 0.01
    assert "not uniform" not in check.message


def wrong(p, rng):
    """Return data with three times the noise that the cost believes in."""
    t = np.arange(1.0, 5.0)
    return {"time": t, "A": 10 * np.exp(-p["k"] * t) + 1.2 * rng.standard_normal(4)}


def test_a_wrong_sd_is_seen_with_its_parameter(cost):
    check = fme.simulation_based_calibration(cost, PRIOR, simulate=wrong, **WORDS)
    row = check.summary(level=0.5).loc["k"]
    assert row["p_value"] < 1e-4
    assert row["coverage"] < 0.35
    assert "ranks of 'k' are not uniform" in check.message
    assert "not uniform" in repr(check)


def test_a_filter_draws_its_own_data():
    model = fme.DifferenceModel("next(x) = a * x", state={"x": 4.0}, times=range(13), parms={"a": 0.8})
    cost = fme.FimlofCost(
        model, {"time": range(1, 13), "x": [0.0] * 12}, process_noise={"x": 0.5}, measurement_noise={"x": 0.5}
    )
    check = fme.simulation_based_calibration(
        cost, {"a": stats.uniform(0.4, 0.5)}, num=40, niter=500, burninlength=100, jump=0.1, seed=2
    )
    assert check.n_done == 40
    assert check.summary()["p_value"].iloc[0] > 0.005


def test_workers_and_a_folder_change_nothing(cost, tmp_path):
    few = WORDS | {"num": 6, "niter": 300}
    one = fme.simulation_based_calibration(cost, PRIOR, **few)
    two = fme.simulation_based_calibration(cost, PRIOR, **few, executor=2, checkpoint=tmp_path / "sbc")
    again = fme.simulation_based_calibration(cost, PRIOR, **few, checkpoint=tmp_path / "sbc")
    for other in (two, again):
        pd.testing.assert_frame_equal(one.ranks, other.ranks)
    for other, told in ((cost.replace(measurement_noise={"A": 0.5}), "own values"), (cost, "arguments")):
        words = few if other is not cost else few | {"niter": 400}
        with pytest.raises(ArgumentError, match=told):
            fme.simulation_based_calibration(other, PRIOR, **words, checkpoint=tmp_path / "sbc")
    with pytest.raises(ArgumentError, match="replicates"):
        fme.simulation_based_calibration(cost, PRIOR, **few | {"num": 7}, checkpoint=tmp_path / "sbc")


def test_replicates_that_fail_are_nan_and_told(cost):
    def sometimes(p, rng):
        if p["k"] > 0.5:
            raise RuntimeError("no data today")
        return wrong(p, rng)

    check = fme.simulation_based_calibration(cost, PRIOR, simulate=sometimes, **WORDS | {"num": 10, "niter": 300})
    failed = check.truth["k"] > 0.5
    assert 0 < failed.sum() < 10
    assert (check.ranks["k"].isna() == failed).all()
    assert len(check.failures) == failed.sum()
    assert "no data today" in check.message
    with pytest.raises(FmepyError, match=r"All 3 replicates failed.*division by zero"):
        fme.simulation_based_calibration(cost, PRIOR, simulate=lambda p, rng: 1 / 0, num=3, seed=1)


def test_a_chain_that_stays_ranks_the_truth_anywhere(cost):
    check = fme.simulation_based_calibration(cost, PRIOR, num=20, niter=100, jump=1e3, seed=1)
    assert check.ranks["k"].std() > 10
    assert "effective draws of 'k'" in check.message


def test_the_picture_counts_every_replicate_once(check):
    ax = check.plot().ravel()[0]
    assert ax.patches
    bars = next(p for p in ax.patches if hasattr(p, "get_data"))
    assert bars.get_data().values.sum() == 100
    assert ax.get_xlabel() == "rank of the truth"


def test_the_summary_counts_what_is_as_central_as_the_level_says():
    ranks = pd.DataFrame({"k": np.arange(100.0)})
    nothing = pd.DataFrame(columns=["run", "parameters", "error", "message"])
    check = CalibrationCheck(ranks, ranks, ranks, 99, nothing, "dram")
    for level in (0.5, 0.9, 0.98):
        assert check.summary(level)["coverage"].iloc[0] == pytest.approx(level, abs=1e-12)
    assert check.summary()["p_value"].iloc[0] == pytest.approx(1)


def test_there_are_no_more_bins_than_ranks():
    ranks = pd.DataFrame({"k": np.arange(110.0) % 11})
    nothing = pd.DataFrame(columns=["run", "parameters", "error", "message"])
    check = CalibrationCheck(ranks, ranks, ranks, 10, nothing, "dram")
    assert check.bins() == 10
    assert check.summary()["p_value"].iloc[0] == pytest.approx(1)  # ten of each rank; with 20 bins it was NaN


@pytest.mark.parametrize(
    ("prior", "more", "error", "told"),
    [
        (None, {}, ArgumentError, "dict of scipy.stats"),
        (lambda p: 0.0, {}, ArgumentError, "a function, or no prior"),
        ({"q": stats.norm()}, {}, ParameterError, "'q'"),
        ({"k": 0.5}, {}, ParameterError, "frozen scipy.stats distribution"),
        ({"k": stats.uniform(0, np.inf)}, {}, ParameterError, "that of 'k' draws numbers that are not finite"),
        (PRIOR, {"num": 0}, ArgumentError, "num"),
        (PRIOR, {"method": "gibbs"}, ArgumentError, "method"),
        (PRIOR, {"p": {"k": 1}}, ArgumentError, "start at the truth"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_wrong_words_are_told(cost, prior, more, error, told):
    with pytest.raises(error, match=told):
        fme.simulation_based_calibration(cost, prior, **more)


def test_a_function_and_a_sum_are_refused(cost):
    with pytest.raises(ArgumentError, match="must be a fmepy cost"):
        fme.simulation_based_calibration(lambda p: 0.0, PRIOR)
    with pytest.raises(ArgumentError, match="draws no data of its own"):
        fme.simulation_based_calibration(cost + cost.replace(obs={"time": [1.0], "A": [5.0]}), PRIOR)


def test_the_prior_of_a_local_parameter_is_that_of_every_entity(cost):
    table = pd.concat([pd.DataFrame(cost.obs).assign(vessel=label) for label in "ab"])
    apart = fme.SimulationCost(cost.model, table, entity="vessel", entity_parms=["k"], measurement_noise={"A": 0.5})
    check = fme.simulation_based_calibration(apart, {"k": stats.uniform(0.2, 0.6)}, num=2, niter=60, seed=1)
    assert list(check.truth) == ["k[a]", "k[b]"]
    assert (check.truth["k[a]"] != check.truth["k[b]"]).all()


def test_replicates_that_ctrl_c_left_out_are_no_failures(cost):
    seen = []

    def impatient(p, rng):
        seen.append(p)
        if len(seen) == 3:
            raise KeyboardInterrupt
        return cost.simulate(p, seed=rng)

    with pytest.warns(InterruptedWarning, match=r"2 of 5 replicates are done\.$"):
        check = fme.simulation_based_calibration(
            cost, PRIOR, num=5, niter=300, burninlength=100, jump={"k": 0.06}, seed=1, simulate=impatient
        )
    assert check.n_done == 2
    assert "3 not run (Ctrl-C)" in str(check)
    assert "failed" not in str(check)
