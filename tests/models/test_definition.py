"""Bad definitions are caught at the door, with words that say what to type."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fmepy.errors import ModelError, ModelTextError, ParameterError
from fmepy.models.ode import OdeModel, ode

LOGISTIC = "d(N)/dt = r * N * (1 - N / K)"


def logistic(t, N, *, r=0.5, K=100):
    return r * N * (1 - N / K)


def model(source=logistic, **changes):
    return OdeModel(source, **{"state": {"N": 1}, "times": [0, 1], **changes})


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"state": None}, ModelError, "`state` is missing"),
        ({"state": {"M": 1}}, ModelError, "'N' is no state"),
        ({"state": {"N": "N0"}}, ModelError, "uses 'N0', which has no value"),
        ({"state": {"N": "N + 1"}}, ModelError, "may only depend on parameters"),
        ({"state": {"N": np.nan}}, ModelError, "finite"),
        ({"state": {"N": "r r"}}, ModelTextError, "between two terms"),
        ({"state": pd.Series([1, 2], index=["N", "N"])}, ModelError, "more than once"),
        ({"parms": {"rr": 1}}, ParameterError, "'rr' is used nowhere in the model. Did you mean 'r'"),
        ({"parms": {"r": "fast"}}, ParameterError, "finite number"),
        ({"parms": [0.5, 100]}, ParameterError, "dict or Series"),
        ({"times": [0, 2, 1]}, ModelError, "must increase: 1 .position 2. comes after 2"),
        ({"times": [0, 0, 1]}, ModelError, "must increase"),
        ({"times": [0, np.inf]}, ModelError, "NaN or infinite"),
        ({"times": []}, ModelError, "at least one"),
        ({"outputs": {"logN": "log(M)"}}, ModelError, "uses 'M', which the model does not have"),
        ({"outputs": {"N": "2 * r"}}, ModelError, "name of something else"),
        ({"outputs": {"a": lambda M: M}}, ModelError, "argument 'M'"),
        ({"outputs": {"a": lambda N: 1 if N > 0 else 0}}, ModelError, "cannot be turned into an expression"),
        ({"forcings": {"u": ([0, 1], [1, 2])}}, ModelError, "forcing 'u' is used nowhere"),
        ({"forcings": {"K": ([1, 0], [1, 2])}}, ModelError, "must increase"),
        ({"forcings": {"K": ([0, 1], [1, np.nan])}}, ModelError, "NaN"),
        ({"forcings": {"K": ([0, 1], [1, 2], "cubic")}}, ModelError, "not known"),
        ({"forcings": {"K": ([0, 1], [1])}}, ModelError, "2 times and 1 values"),
        ({"events": [{"var": "M", "time": 1, "value": 1}]}, ModelError, "'M' is not a state"),
        ({"events": [{"var": "N", "time": 1}]}, ModelError, "'value' missing"),
        ({"events": [{"var": "N", "time": 1, "value": 1, "method": "ad"}]}, ModelError, "Did you mean 'add'"),
        ({"events": [{"var": "N", "time": 1, "value": "q"}]}, ParameterError, "no parameter 'q'"),
        ({"events": [{"var": "N", "tme": 1, "value": 1}]}, ModelError, "Did you mean 'time'"),
        ({"engine": "diffsole"}, ModelError, "Did you mean 'diffsol'"),
        ({"engine": "scipy", "method": "bdf"}, ModelError, "belongs to the engine 'diffsol'"),
        ({"method": "rk45"}, ModelError, "Did you mean"),
        ({"dt": 0.1}, ModelError, "euler"),
        ({"method": "euler", "dt": -1}, ModelError, "positive"),
        ({"rtol": 0}, ModelError, "positive"),
        ({"atol": [1e-6, 1e-6]}, ModelError, "2 values for 1 states"),
        ({"atol": {"M": 1e-6}}, ParameterError, "no state 'M'"),
    ],
)
def test_a_wrong_argument_is_named(changes, error, words):
    expected = {"engine": ValueError, "method": ValueError, "events": ValueError, "forcings": ValueError}
    kind = next((expected[k] for k in changes if k in expected), error)
    with pytest.raises(kind, match=words):
        model(**changes)


@pytest.mark.parametrize(
    ("text", "changes", "words"),
    [
        (LOGISTIC, {}, "line 1: 'K' has no value"),
        (LOGISTIC, {"parms": {"r": 1, "K": 1, "k": 2}}, "'k' is used nowhere"),
        (LOGISTIC, {"parms": {"r": 1, "K": 1}, "state": None}, r"write a line such as `N\(0\) = 1`|Write a line"),
        (LOGISTIC, {"parms": {"r": 1, "K": 1}, "state": {"N": 1, "M": 2}}, "'M' has no equation"),
        (f"{LOGISTIC}\nd(N)/dt = 1", {"parms": {"r": 1, "K": 1}}, "N"),
        (LOGISTIC, {"parms": {"r": 1, "K": 1, "N": 1}}, "both a state and a parameter"),
    ],
)
def test_a_wrong_text_is_told(text, changes, words):
    with pytest.raises(ValueError, match=words):
        model(text, **changes)


def misspelt(t, Bakt, Sub, *, k=1.0):
    return -k * Bakt, k * Bakt


def two_arrays(t, y):
    return -y


def star(t, *states):
    return states


def no_time():
    return 0


def three_rates(t, N, *, r=0.5):
    return r * N, 0, 0


def typo(t, N, *, r=0.5):
    return r * M  # noqa: F821  # the mistake that is tested


@pytest.mark.parametrize(
    ("function", "state", "words"),
    [
        (misspelt, {"Bact": 1, "Sub": 2}, "'Bakt' is no state .* Did you mean 'Bact'"),
        (two_arrays, {"N": 1}, "exactly|f.t, y, p."),
        (star, {"N": 1}, "write them out"),
        (no_time, {"N": 1}, "first argument"),
        (three_rates, {"N": 1}, "3 values for 1 states"),
        (typo, {"N": 1}, "NameError"),
        (3, {"N": 1}, "function, text or Equations"),
    ],
)
def test_a_wrong_function_is_told(function, state, words):
    with pytest.raises(ModelError, match=words):
        OdeModel(function, state=state, times=[0, 1])


def test_a_misspelt_state_is_an_error_and_never_a_change_of_form():
    with pytest.raises(ModelError, match="'Sbu'"):
        OdeModel(lambda t, Bact, Sbu: (Bact, Sbu), state={"Bact": 1, "Sub": 2}, times=[0, 1])


@pytest.mark.compiled
def test_a_bandwidth_is_for_models_that_run_on_scipy():
    with pytest.raises(ModelError, match="Pass engine='scipy'"):
        model(bandwidth=1)


def test_keyword_defaults_are_values_and_parms_override_them():
    m = model(parms={"K": 50})
    assert m.parms.to_dict() == {"r": 0.5, "K": 50}


def test_forcings_outside_their_range_are_held_constant_and_that_is_told_once(caplog):
    with caplog.at_level("INFO", logger="fmepy"):
        m = OdeModel("d(N)/dt = u", state={"N": 0}, times=[0, 4], forcings={"u": ([1, 2], [1, 3])})
        m.replace(times=[0, 5])
    assert [r.getMessage().split(":")[0] for r in caplog.records if "forcing" in r.name] == [
        "The forcing 'u' covers 1 to 2, the model runs from 0 to 4"
    ]
    assert m().N.iloc[-1] == pytest.approx(1 + 2 + 6, rel=1e-5)


def test_ode_refuses_forcings_without_named_parameters():
    with pytest.raises(ModelError, match="must then be a dict"):
        ode([1], [0, 1], lambda t, y, p: -y, [1, 2], forcings={"u": ([0], [1])})


def test_ode_hands_parameters_over_as_they_are():
    out = ode([1.0, 2.0], [0, 1], lambda t, y, p: -p[0] * y, np.array([0.5]))
    assert list(out.columns) == ["time", "1", "2"]
    assert out["2"].iloc[-1] == pytest.approx(2 * np.exp(-0.5), rel=1e-5)
    assert ode(1.0, [0, 1], lambda t, y, p: -y)["1"].iloc[-1] == pytest.approx(np.exp(-1), rel=1e-5)
