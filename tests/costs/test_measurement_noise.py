"""Words of noise in a simulation cost: what cannot be is answered by what was given and what to do."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import fmepy as fme
from fmepy.costs.noise import read_noise
from fmepy.errors import ArgumentError, DataError, ModelTextError, ParameterError

WIDE = {"time": [1.0, 2.0, 3.0], "A": [6.0, 4.0, 3.0], "B": [3.0, 5.0, 6.0]}
LONG = pd.DataFrame({
    "name": ["A", "A", "B", "B"],
    "time": [1.0, 2.0, 1.0, 2.0],
    "val": [6.0, 4.0, 3.0, 5.0],
    "err": [np.nan, np.nan, 0.1, 0.2],
})  # fmt: skip


@pytest.fixture(scope="module")
def model() -> fme.OdeModel:
    rates = "d(A)/dt = -k * A + u\nd(B)/dt = k * A"
    return fme.OdeModel(rates, state={"A": 10.0, "B": 0.0}, times=[0, 1, 2, 3, 4], parms={"k": 0.5},
                        forcings={"u": ([0.0, 4.0], [0.0, 1.0])})  # fmt: skip


ONE = {"time": WIDE["time"], "A": WIDE["A"]}
WITH_ERR = {**ONE, "err": [0.1, 0.2, 0.3]}


@pytest.mark.parametrize(
    ("data", "words", "error", "told"),
    [
        (WIDE, {"measurement_noise": {"A": 0.1}}, ArgumentError, "has no entry for 'B'.*'estimate', or name the"),
        (ONE, {"measurement_noise": {"a": 0.1}}, ArgumentError, "'a' is not an observed variable. Did you mean 'A'"),
        (ONE, {"measurement_noise": {"B": 0.1}}, ArgumentError, "'B' is not an observed variable"),
        (ONE, {"measurement_noise": {"A": "sdA"}}, ArgumentError, "uses 'sdA', which has no value. Give it in `parms`"),
        (ONE, {"measurement_noise": {"A": "sd_a"}, "parms": {"sd_A": 1.0}}, ArgumentError, "uses 'sd_a'.*no value"),
        (ONE, {"measurement_noise": {"A": "0.1 * b"}}, ArgumentError, "uses 'b'.*Did you mean 'B'"),
        (ONE, {"measurement_noise": {"A": np.nan}}, ArgumentError, "is nan; a number, an expression"),
        (ONE, {"measurement_noise": {"A": -0.5}}, ArgumentError, "is -0.5; a standard deviation is finite and not bel"),
        (ONE, {"measurement_noise": {"A": None}}, ArgumentError, "is None; a number, an expression"),
        (ONE, {"measurement_noise": {"A": "0.1 *"}}, ModelTextError, "measurement_noise"),
        (ONE, {"measurement_noise": 0.1}, ArgumentError, "must be a dict of names and standard deviations"),
        (ONE, {"measurement_noise": pd.DataFrame({"A": [1.0]}, ["A"])}, ArgumentError, "a FimlofCost's alone"),
        (ONE, {"measurement_noise": {"A": "sd"}, "parms": {"sd": -1.0}}, ParameterError, "'sd' is -1.*not below zero"),
        (ONE, {"measurement_noise": {"A": "sd"}, "parms": {"sd": np.nan}}, ParameterError, "'sd'.*nan"),
        (ONE, {"measurement_noise": {"A": "sd"}, "parms": {"sd": 1, "s": 1}}, ParameterError, "'s' is used nowhere"),
        (ONE, {"measurement_noise": {"A": "sd"}, "parms": {"sd": 1, "k": 1}}, ParameterError, "'k' is a parameter of"),
        (ONE, {"measurement_noise": {"A": "sd"}, "parms": 1.0}, ParameterError, "must be a dict of names and values"),
        (ONE, {"parms": {"sd": 1.0}}, ParameterError, "'sd' is used nowhere"),
        (WITH_ERR, {"err": "err", "measurement_noise": {"A": 0.1}}, ArgumentError, "'A' has errors in the col.*beside"),
        (ONE, {"measurement_noise": {"A": "2 * err"}}, ArgumentError, "uses 'err', but there is no column of errors"),
        (ONE, {"measurement_noise": {"A": 0.1}, "weight": "std"}, ArgumentError, "weight='std'. makes up errors"),
        (ONE, {"measurement_noise": {"A": 0.1}, "scaleVar": True}, ArgumentError, "a likelihood has none"),
        ({**ONE, "m": ["", "", "<"]}, {"censored": "m"}, ArgumentError, "how likely a reading of 'A' is beyond"),
        ({**ONE, "m": ["", "", "~"]}, {"censored": "m", "measurement_noise": {"A": 1}}, DataError, "'~' in row 2"),
        ({"A": [1.0], "m": "<"}, {"censored": "m", "x": None, "measurement_noise": {"A": 1}}, ArgumentError, "x=None"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_told(model, data, words, error, told) -> None:
    with pytest.raises(error, match=f"(?s){told}"):
        fme.SimulationCost(model, data, **words)


@pytest.mark.parametrize("cell", [None, True, np.inf])
def test_a_cell_of_a_covariance_table_that_is_no_number_is_told(cell) -> None:
    table = pd.DataFrame([[cell]], index=["A"], columns=["A"], dtype=object)
    with pytest.raises(ArgumentError, match=rf"`process_noise\['A', 'A'\]` is {cell!r}; a finite number"):
        read_noise(table, "process_noise", ["A"], "a state", "sd_w_")


def test_a_made_parameter_may_not_be_the_models(model) -> None:
    taken = fme.OdeModel("d(A)/dt = -sd_v_A * A", state={"A": 1.0}, times=[0, 4], parms={"sd_v_A": 0.5})
    with pytest.raises(ParameterError, match="'sd_v_A', which the model has already"):
        fme.SimulationCost(taken, ONE, measurement_noise={"A": "estimate"})


def test_errors_of_a_column_serve_the_variables_that_have_no_words(model) -> None:
    cost = fme.SimulationCost(model, LONG, y="val", err="err", measurement_noise={"A": "estimate"}, parms={"sd_v_A": 1})
    assert cost().sds.tolist() == pytest.approx([1.0, 1.0, 0.1, 0.2])
    assert cost.parms.index.tolist() == ["k", "sd_v_A"]


def test_an_expression_may_hold_time_forcings_and_other_variables(model) -> None:
    noise = {"A": "0.1 + 0.1 * t + u", "B": "0.01 * A + 0.1 * k"}
    run = model(times=[0, 1, 2, 3]).iloc[1:]
    sds = fme.SimulationCost(model, WIDE, measurement_noise=noise)().sds
    np.testing.assert_allclose(sds[:3], 0.1 + 0.1 * run["time"] + run["time"] / 4)
    np.testing.assert_allclose(sds[3:], 0.01 * run["A"] + 0.05, rtol=1e-6)


def test_means_may_have_noise(model) -> None:
    cost = fme.SimulationCost(model, {"A": [4.0]}, x=None, measurement_noise={"A": "0.1 * A + 0.01 * B"})
    mean = model().mean()
    assert cost().sds[0] == pytest.approx(0.1 * mean["A"] + 0.01 * mean["B"], rel=1e-6)


def test_the_grid_serves_noise_too(model) -> None:
    data = {"time": [0.5, 1.5], "A": [7.0, 5.0]}
    cost = fme.SimulationCost(model, data, interpolate="grid", measurement_noise={"A": "0.1 * B"})
    run = model()
    expected = np.interp(data["time"], run["time"], run["B"])
    np.testing.assert_allclose(cost().sds, 0.1 * expected, rtol=1e-6)


def test_an_estimate_starts_at_half_the_change_from_reading_to_reading(model) -> None:
    cost = fme.SimulationCost(model, WIDE, measurement_noise={"A": "estimate", "B": "estimate"})
    assert cost.parms["sd_v_A"] == pytest.approx(0.5 * np.sqrt((4 + 1) / 2))
    assert cost.lower.to_dict() == {"k": -np.inf, "sd_v_A": 0.0, "sd_v_B": 0.0}


def test_only_scales_are_kept_above_zero(model) -> None:
    noise = {"A": "sqrt(a**2 + (b*A)**2)", "B": "c * abs(B + 1)**g + d"}
    values = dict.fromkeys("abcdg", 0.5)
    lower = fme.SimulationCost(model, WIDE, measurement_noise=noise, parms=values).lower
    assert lower[["a", "b"]].tolist() == [0.0, 0.0]
    assert np.isinf(lower[["c", "d", "g", "k"]]).all()


def test_noise_without_a_name_and_a_misspelt_word_are_answered_by_what_to_type():
    model = fme.OdeModel("dN/dt = -k * N", state={"N": 1.0}, parms={"k": 0.1}, times=[0, 1, 2])
    data = pd.DataFrame({"time": [1, 2], "N": [0.9, 0.8]})
    with pytest.raises(fme.errors.ArgumentError, match=r"such as measurement_noise=\{'N': 'estimate'\}"):
        fme.SimulationCost(model, data, measurement_noise="estimated")
    with pytest.raises(fme.errors.ArgumentError, match=r"such as measurement_noise=\{'N': 0\.2\}"):
        fme.SimulationCost(model, data, measurement_noise=0.2)
    with pytest.raises(fme.errors.ArgumentError, match="Did you mean 'estimate'"):
        fme.SimulationCost(model, data, measurement_noise={"N": "estimated"})


def test_rows_of_information_are_weighted_whatever_was_asked():
    model = fme.OdeModel("dN/dt = -k * N", state={"N": 1.0}, parms={"k": 0.1}, times=[0, 1, 2])
    cost = fme.SimulationCost(model, pd.DataFrame({"time": [1, 2], "N": [0.9, 0.8]}), measurement_noise={"N": 0.1})
    sens = fme.sensFun(cost, ["k"])
    assert sens.weighted
    assert "weighted=True" not in str(fme.identifiability(sens))
    assert not fme.sensFun(cost, ["k"], varscale=2.0).weighted
