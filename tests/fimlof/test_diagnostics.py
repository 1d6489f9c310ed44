"""Diagnostics are standard normal under the model, find what is wrong, and agree with independent implementations."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chi2

from fmepy.errors import ArgumentError, ParameterError
from fmepy.fimlof.cost import FimlofCost
from fmepy.fimlof.diagnostics import Correlations
from fmepy.models.difference import DifferenceModel
from fmepy.models.ode import OdeModel
from tests.fimlof.simulated import panel


@pytest.fixture(scope="module")
def right():
    """Return the filter of the true model: 80 entities of 100 samples of three variables."""
    return panel(np.random.default_rng(11), 80, 100).filter()


def autoregression(a, n, seed, **arguments):
    """Return a cost of data that follow x(t) = a x(t-1) + w, compared with a model without memory."""
    rng = np.random.default_rng(seed)
    x, z = 0.0, []
    for _ in range(n):
        x = a * x + rng.normal()
        z.append(x)
    model = OdeModel(lambda t, x: 0.0 * x, state={"x": 0.0}, times=np.arange(0, 0.5 * n, 0.5), method="euler", dt=0.5,
                     outputs={"z": "0 * x"})  # fmt: skip
    sd = (1 / (1 - a**2)) ** 0.5
    data = {"time": 0.5 * np.arange(n), "z": z}
    return FimlofCost(model, data, process_noise={}, measurement_noise={"z": sd}, **arguments)


# --- variance one under the model


def test_numr_nusr_auxm_and_auxs_have_variance_one(right):
    r, s = right.residuals, right.shocks[right.shocks["time"] > 0]
    for values in (r["NUMR"], r["AUXM"], s["NUSR"], s["AUXS"]):
        # 24000 values, sd of a sample variance sqrt(2 / 24000) = 0.009; smoothed ones are correlated
        assert values.var() == pytest.approx(1.0, abs=0.04)
        assert values.mean() == pytest.approx(0.0, abs=0.03)


def test_sumsq_is_chi_squared_with_the_number_of_data(right):
    sums = np.array([right.of(k).sumsq for k in right.entities])
    assert sums.mean() == pytest.approx(300, abs=3 * (2 * 300 / 80) ** 0.5)
    assert sums.std() == pytest.approx(600**0.5, rel=0.25)
    chances = right.samples["p"]
    assert chances.mean() == pytest.approx(0.5, abs=0.02)


def test_the_tests_find_nothing_wrong_with_the_true_model(right):
    assert right.correlations().p_value > 0.01
    assert right.sumsq_test().p_value > 0.01
    assert (right.normality()["p"] > 0.005).all()


# --- where a typo and a jump can be told apart (share of entities with the right type and component)


def located(flt, when, column, what):
    """Return the share of entities whose largest diagnostic at a sample is that of a datum or state."""
    hits = 0
    for who in flt.entities:
        one = flt.of(who)
        data = one.residuals.query("x == @when").set_index("name")[column[0]].abs()
        states = one.shocks.query("time == @when").set_index("state")[column[1]].abs()
        both = pd.concat([data, states], keys=["datum", "state"])
        rest = both.drop(what)
        hits += both[what] > rest.max() * (1 + 1e-9)
    return hits / len(flt.entities)


def test_with_all_states_read_only_the_smoothed_diagnostics_tell_a_typo_from_a_jump():
    typo = panel(np.random.default_rng(5), 60, 20, typo=8.0).filter()
    r, s = typo.residuals, typo.shocks[typo.shocks["time"] > 0]
    np.testing.assert_allclose(r["NUMR"], s["NUSR"], atol=1e-9)  # H = I: the same numbers
    assert located(typo, 10, ("NUMR", "NUSR"), ("datum", "a")) == 0.0
    assert located(typo, 10, ("AUXM", "AUXS"), ("datum", "a")) > 0.95
    jump = panel(np.random.default_rng(6), 60, 20, jump=8.0).filter()
    assert located(jump, 10, ("AUXM", "AUXS"), ("state", "b")) > 0.9


# --- correlations


@pytest.fixture(scope="module")
def two_state(reference):
    case = json.loads((reference / "fimlof" / "two_state_missing.json").read_text(encoding="utf-8"))
    z = np.array(case["data"], dtype=float)
    model = DifferenceModel(lambda n, a, b: (0.9 * a + 0.2 * b, -0.1 * a + 0.8 * b), state={"a": 1.0, "b": -1.0},
                            times=[0, 80], outputs={"y1": "a", "y2": "0.5 * a + b"})  # fmt: skip

    def table(key, names):
        return pd.DataFrame(case[key], index=names, columns=names)

    data = {"time": np.arange(1, 81), "y1": z[:, 0], "y2": z[:, 1]}
    return FimlofCost(model, data, process_noise=table("Q", ["a", "b"]), measurement_noise=table("R", ["y1", "y2"]),
                      initial_sd=table("P0", ["a", "b"])).filter()  # fmt: skip


def test_correlations_and_their_pairs_agree_with_the_reference(two_state, reference):
    expected = json.loads((reference / "fimlof" / "two_state_diagnostics.json").read_text(encoding="utf-8"))
    found = two_state.correlations(max_lag=2)
    for j in range(3):
        values, pairs = expected[f"R{j}"]
        np.testing.assert_allclose(found.values[j], values, atol=1e-8)
        np.testing.assert_array_equal(found.pairs[j], pairs)
    np.testing.assert_allclose(found.limits[1], 2 / np.sqrt(found.pairs[1]))
    assert found.limits[0, 0, 0] == pytest.approx(2 * (2 / found.pairs[0, 0, 0]) ** 0.5)
    statistic = sum((np.array(expected[f"R{j}"][0]) ** 2 * np.array(expected[f"R{j}"][1])).sum() for j in (1, 2))
    assert found.statistic == pytest.approx(statistic, rel=1e-8)
    assert found.p_value == pytest.approx(chi2(8).sf(statistic), rel=1e-8)
    test = two_state.sumsq_test()
    assert (test.expected, test.sd) == (expected["SUMSQ_expected"], pytest.approx(expected["SUMSQ_sd"]))


def test_the_table_of_correlations_says_what_is_beyond_the_limits(two_state):
    found = two_state.correlations(3)
    assert len(found) == 4 * 4
    row = found.frame.query("lag == 2 and variable == 'y2' and `with` == 'y1'").iloc[0]
    assert row["r"] == found.values[2, 1, 0]
    assert row["significant"] == (abs(row["r"]) > row["limit"])


def test_a_missing_lag_is_found_with_its_time_constant():
    flt = autoregression(0.8, 800, 2).filter()
    row = flt.correlations().time_constants.loc["z"]
    assert row["significant"]
    assert row["time_constant"] == pytest.approx(-0.5 / np.log(0.8), rel=0.15)  # dt = 0.5
    assert flt.correlations().p_value < 1e-10
    assert flt.periodogram().summary.loc["z", "significant"]
    low = flt.periodogram().summary.loc["z", "frequency"]
    assert low < 0.25  # slow movements are too strong; the highest frequency is 1


def test_gaps_keep_the_time_between_pairs():
    cost = autoregression(0.8, 400, 3)
    data = pd.DataFrame(cost.obs)
    with_gaps = cost.replace(obs=data.drop(index=range(100, 180)).drop(index=[7, 9, 250])).filter()
    pairs = with_gaps.correlations(1).pairs[:, 0, 0]
    assert pairs.tolist() == [317, 399 - 81 - 6]  # a hole of 80 takes 81 pairs, one of a single datum two


def test_estimated_parameters_of_the_mean_cost_degrees_of_freedom():
    model = DifferenceModel(lambda n, x, *, a=0.9: a * x, state={"x": 1.0}, times=[0, 30])
    data = {"time": np.arange(1, 31), "x": np.sin(np.arange(1, 31))}
    cost = FimlofCost(model, data, process_noise={"x": "sd_w"}, measurement_noise={"x": "sd_v"},
                      parms={"sd_w": 0.5, "sd_v": 0.5})  # fmt: skip
    flt = cost.filter()
    assert flt.correlations(4, estimated=["a", "sd_w"]).df == 4 - 1
    test = flt.sumsq_test(["a", "sd_w"])
    assert (test.expected, test.scale_estimated) == (29, False)
    both = flt.sumsq_test(pd.Series({"a": 0.9, "sd_w": 1.0, "sd_v": 1.0}))
    assert both.scale_estimated
    assert np.isnan(both.p_value)
    assert "no power" in repr(both)
    # an uncertain start that is not scaled gives the test its power back
    started = cost.replace(initial_sd={"x": 1.0}).filter()
    assert not started.sumsq_test(["sd_w", "sd_v"]).scale_estimated
    with pytest.raises(ParameterError, match="sd_u"):
        flt.sumsq_test(["sd_u"])


def test_innovations_that_are_too_large_are_told():
    flt = autoregression(0.0, 200, 4).replace(measurement_noise={"z": 0.7}).filter()
    test = flt.sumsq_test()
    assert test.z > 5
    assert test.p_value < 1e-6
    assert test.squares.sum() == pytest.approx(test.sumsq)


def test_heavy_tails_are_not_normal():
    rng = np.random.default_rng(8)
    model = DifferenceModel("next(x) = x", state={"x": 0.0}, times=[0, 300])
    data = {"time": np.arange(1, 301), "x": rng.standard_t(2, size=300)}
    cost = FimlofCost(model, data, process_noise={}, measurement_noise={"x": 1.0})
    row = cost.filter().normality().frame.loc["x"]
    assert row["test"] == "Shapiro-Wilk"
    assert row["p"] < 1e-6
    assert row["kurtosis"] > 3


def test_a_lag_that_is_longer_than_the_series_is_refused(two_state):
    with pytest.raises(ArgumentError, match="1 to 79"):
        two_state.correlations(80)
    with pytest.raises(ArgumentError, match="max_lag=0"):
        two_state.correlations(0)


def test_the_table_holds_r_of_the_specification_and_the_correlation_proper():
    flt = autoregression(0.6, 80, 3).filter()
    found = flt.correlations(3)
    table = found.frame
    np.testing.assert_allclose(table["r"], found.values.ravel())
    np.testing.assert_allclose(table["rho"], table["r"] / found.values[0, 0, 0])
    assert table["rho"][0] == pytest.approx(1.0)
    assert table["rho"][1] == pytest.approx(found.time_constants["rho"].iloc[0])


def test_every_variable_is_wholly_correlated_with_itself_at_lag_zero(two_state):
    table = two_state.correlations(2).frame
    own = table[(table["lag"] == 0) & (table["variable"] == table["with"])]
    np.testing.assert_allclose(own["rho"], 1.0)
    assert (own["r"] != 1.0).all()


def test_rounding_makes_no_correlation_larger_than_1_but_gaps_may():
    pairs = np.full((1, 2, 2), 10.0)
    rounded = Correlations(np.full((1, 2, 2), 3.0), pairs, ("a", "b"), 1.0, 0)  # 3 > sqrt(3) * sqrt(3) of floats
    assert rounded.frame["rho"].tolist() == [1.0] * 4
    with_gaps = Correlations(np.array([[[1.0, 1.5], [1.5, 1.0]]]), pairs, ("a", "b"), 1.0, 0)
    assert with_gaps.frame["rho"].max() == 1.5
