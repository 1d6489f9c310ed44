"""Profiles of predictions: a prediction that is a parameter after all has the parameter's interval."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import t

import fmepy as fme
from fmepy.errors import ArgumentError
from fmepy.fitting import modFit, profile
from tests.fitting.test_profiles import DATA, decay, line

ENDS = ["estimate", "lower", "upper"]


@pytest.fixture(scope="module")
def cost():
    return fme.SimulationCost(decay(), DATA)


@pytest.fixture(scope="module")
def fit(cost):
    return modFit(cost)


def test_a_linear_prediction_has_the_textbook_interval():
    fit = modFit(line, {"a": 0.0, "b": 1.0})
    prof = profile(line, fit, prediction={"at 10": lambda p: p["a"] + 10 * p["b"], "at 0": lambda p: p["a"]})
    at = np.array([[1.0, 10.0], [1.0, 0.0]])
    half = t.ppf(0.975, 6) * np.sqrt(np.einsum("ij,jk,ik->i", at, fit.cov_scaled.to_numpy(), at))
    np.testing.assert_allclose(prof.intervals["upper"] - prof.intervals["estimate"], half, rtol=1e-6)
    np.testing.assert_allclose(prof.intervals["estimate"] - prof.intervals["lower"], half, rtol=1e-6)


def test_a_models_prediction_has_the_interval_of_the_parameter_that_it_is_in_other_terms(cost, fit):
    prof = profile(cost, fit, "N0", prediction=("N", [0.0, 5.5]))
    np.testing.assert_allclose(prof.intervals.loc["N at 0", ENDS], prof.intervals.loc["N0", ENDS], rtol=1e-6)
    time, value = DATA["time"].to_numpy(), DATA["N"].to_numpy()
    in_other_terms = lambda p: p["z"] * np.exp(-p["k"] * (time - 5.5)) - value  # noqa: E731
    other = profile(in_other_terms, modFit(in_other_terms, {"z": 0.2, "k": 0.5}), "z")
    np.testing.assert_allclose(prof.intervals.loc["N at 5.5", ENDS], other.intervals.loc["z", ENDS], rtol=1e-6)
    assert prof.intervals.index.tolist() == ["N0", "N at 0", "N at 5.5"]


def test_the_cost_at_a_place_is_the_lowest_that_gives_the_prediction(cost, fit):
    prof = profile(cost, fit, prediction=("N", 2.0))
    row = prof.frame.iloc[2]
    for k in (0.98 * row["k"], 1.02 * row["k"]):  # other parameters with the same prediction cost more
        assert cost({"k": k, "N0": row["value"] * np.exp(2 * k)}).model > row["cost"]
    assert row["value"] == pytest.approx(row["N0"] * np.exp(-2 * row["k"]), rel=1e-7)


def test_transformed_costs_sums_and_scored_costs_predict_too(cost, fit):
    plain = profile(cost, fit, prediction=("N", 5.5)).intervals[ENDS]
    on_logs = fme.transformed(cost, "log")
    logs = profile(on_logs, modFit(on_logs), prediction=("N", 5.5))
    np.testing.assert_allclose(logs.intervals[ENDS], plain, rtol=1e-6)
    model = decay()
    summed = fme.SimulationCost(model, DATA.iloc[:3]) + fme.SimulationCost(model, DATA.iloc[3:])
    np.testing.assert_allclose(profile(summed, modFit(summed), prediction=("N", 5.5)).intervals[ENDS], plain, rtol=1e-6)
    step = fme.DifferenceModel("next(N) = r * N", state={"N": "N0"}, times=np.arange(7.0), parms={"r": 0.6, "N0": 2.0})
    data = pd.DataFrame({"time": [0, 1, 2, 3, 4, 5], "N": [2.02, 1.16, 0.76, 0.47, 0.2, 0.12]})
    scored = fme.FimlofCost(step, data, process_noise={}, measurement_noise={"N": 0.05})
    prof = profile(scored, modFit(scored, ["r", "N0"]), "N0", prediction=("N", 0.0))
    np.testing.assert_allclose(prof.intervals.loc["N at 0", ENDS], prof.intervals.loc["N0", ENDS], rtol=1e-5)


def test_entities_have_predictions_of_their_own():
    vessels = pd.concat([DATA.assign(vessel="a"), DATA.assign(vessel="b", N=0.5 * DATA["N"] + 0.01)])
    cost = fme.SimulationCost(decay(), vessels, entity="vessel", entity_parms=["N0"])
    fit = modFit(cost)
    prof = profile(cost, fit, ["N0[a]", "N0[b]"], prediction=[("N", 0.0, "a"), ("N", 0.0, "b")])
    for v in "ab":
        np.testing.assert_allclose(prof.intervals.loc[f"N at 0, {v}", ENDS], prof.intervals.loc[f"N0[{v}]", ENDS],
                                   rtol=1e-6)  # fmt: skip
    with pytest.raises(ArgumentError, match=r"none was given; its entities are 'a', 'b'"):
        profile(cost, fit, prediction=("N", 1.0))
    with pytest.raises(ArgumentError, match="got 'c'"):
        profile(cost, fit, prediction=("N", 1.0, "c"))


def test_a_prediction_that_no_parameter_moves_is_a_point():
    fixed = fme.OdeModel("d(N)/dt = -k * N", state={"N": 2.0}, times=np.linspace(0, 6, 13), parms={"k": 0.5})
    cost = fme.SimulationCost(fixed, DATA)
    prof = profile(cost, modFit(cost), prediction=("N", 0.0))
    assert prof.intervals.loc["N at 0", ENDS].tolist() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize(
    ("prediction", "told"),
    [
        (("M", 1.0), "no variable 'M'. It has 'N'"),
        (("N", 7.0), "time 7 lies outside those of the model, 0 to 6"),
        (("N", -1.0), "outside"),
        (("N", "late"), "the times of 'N' must hold numbers.*got 'late'"),
        (("N", pd.Timestamp("2020-01-03")), "the times of 'N' must hold numbers|holds dates"),
        (("N", 1.0, "a"), "has no entities"),
        ("N", "must be a tuple"),
        (("N",), "must be a tuple"),
        ([], "must be a tuple"),
        ({"x": 1.0}, "functions of p"),
        (lambda p: "high", "one number"),
    ],
)
def test_misuse_is_told(cost, fit, prediction, told):
    with pytest.raises(ArgumentError, match=f"(?i){told}"):
        profile(cost, fit, prediction=prediction)


def test_of_a_function_of_ones_own_a_prediction_is_a_function():
    fit = modFit(line, {"a": 0.0, "b": 1.0})
    with pytest.raises(ArgumentError, match="give a function of p"):
        profile(line, fit, prediction=("y", 1.0))
