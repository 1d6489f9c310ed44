"""The summary says in plain sentences what is so: agreement, wrong size, missing lags, suspected data, weak spots."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fmepy.fimlof.cost import FimlofCost
from fmepy.models.difference import DifferenceModel


def text_of(flt, heading=None, estimated=None):
    page = flt.summary(estimated)
    return " ".join(page.sections[heading] if heading else [s for own in page.sections.values() for s in own])


def read_with_errors(n=200, a=0.9, seed=1, **changes):
    """Return a cost of an autoregression read with errors, compared with the truth but for `changes`."""
    rng = np.random.default_rng(seed)
    x, z = 0.0, []
    for _ in range(n):
        x = a * x + rng.normal()
        z.append(x + rng.normal())
    model = DifferenceModel("next(x) = a * x", state={"x": 0.0}, parms={"a": a}, times=[0, n], outputs={"z": "x"})
    data = changes.pop("data", {"time": np.arange(1, n + 1), "z": z})
    settings = {"process_noise": {"x": 1.0}, "measurement_noise": {"z": 1.0}, **changes}
    return FimlofCost(model, data, **settings)


def test_a_right_model_is_told_to_agree():
    page = read_with_errors().filter().summary()
    assert page.agrees
    told = " ".join(page.sections["Do model and data agree?"])
    assert "as large as the model says" in told
    assert "no correlation is left" in told
    assert "nothing speaks against" in told
    assert page.sections["Suspected data"] == ["None beyond 4 sd."]
    assert page.sections["Jumps of states"] == ["None beyond 4 sd."]
    assert page.frame.loc["z", "n"] == 200


@pytest.mark.parametrize(("sd", "words"), [(0.3, "noise is understated"), (3.0, "noise is overstated")])
def test_noise_of_the_wrong_size_is_told(sd, words):
    page = read_with_errors(measurement_noise={"z": sd}, process_noise={"x": sd}).filter().summary()
    assert not page.agrees
    assert words in " ".join(page.sections["Do model and data agree?"])
    assert any("mean square" in s for s in page.sections["Weak spots"])


def test_an_estimated_scale_is_told_to_say_nothing_of_size():
    cost = read_with_errors(
        process_noise={"x": "sd_w"}, measurement_noise={"z": "sd_v"}, parms={"sd_w": 1.0, "sd_v": 1.0}
    )
    assert "says nothing" in text_of(cost.filter(), estimated=["a", "sd_w", "sd_v"])
    assert "says nothing" not in text_of(cost.filter(), estimated=["a", "sd_w"])
    assert "Without noise: sd_w = 0" in text_of(cost.filter({"sd_w": 0.0}), "Weak spots")


def test_a_constant_that_is_missing_is_told():
    cost = read_with_errors(a=0.2)
    data = pd.DataFrame(cost.obs)
    data["z"] += 1.5
    assert "sd above its prediction" in text_of(cost.replace(obs=data).filter(), "Weak spots")
    assert "its prediction" not in text_of(cost.filter(), "Weak spots")


def test_a_missing_lag_is_told_with_its_time_constant():
    page = read_with_errors(process_noise={}, measurement_noise={"z": 2.5}).filter().summary()
    told = " ".join(page.sections["Do model and data agree?"])
    assert "correlated" in told
    assert "first-order lag with the time constant" in told
    assert not page.agrees


def test_a_correlation_of_one_variable_is_told_where_others_hide_it():
    # eight variables whose noise is overstated make the test of all together blind
    rng = np.random.default_rng(5)
    names = [f"s{i}" for i in range(9)]
    text = "\n".join(f"next({name}) = 0 * {name}" for name in names)
    model = DifferenceModel(text, state=dict.fromkeys(names, 0.0), times=[0, 300])
    data = pd.DataFrame({name: 0.4 * rng.normal(size=300) for name in names})
    for t in range(1, 300):
        data.loc[t, "s0"] = 0.5 * data.loc[t - 1, "s0"] + 0.4 * rng.normal()
    data["time"] = np.arange(1, 301)
    flt = FimlofCost(model, data, process_noise={}, measurement_noise=dict.fromkeys(names, 1.0)).filter()
    assert flt.correlations().p_value > 0.5
    told = text_of(flt, "Do model and data agree?")
    assert "single variables are correlated" in told
    assert "s0: serial correlation 0.5" in told
    assert "s1: serial" not in told


def test_errors_of_measurement_taken_for_noise_of_the_system_are_told():
    rng = np.random.default_rng(3)
    model = DifferenceModel("next(x) = x", state={"x": 0.0}, times=[0, 200])
    data = {"time": np.arange(1, 201), "x": rng.normal(size=200)}
    flt = FimlofCost(model, data, process_noise={"x": 1.4}, measurement_noise={"x": 0.01}).filter()
    assert "opposite signs" in text_of(flt)


def test_suspected_data_are_told_with_place_and_size():
    cost = read_with_errors()
    data = pd.DataFrame(cost.obs)
    data.loc[99, "z"] += 15
    told = text_of(cost.replace(obs=data).filter(), "Suspected data")
    assert f"z at time 100: read {data.loc[99, 'z']:.5g}, " in told
    assert "sd above what all other data say of it." in told
    data.loc[99, "z"] -= 30
    alone = text_of(cost.replace(obs=data).filter(smooth=False), "Suspected data")
    assert "sd below what the data until then say of it." in alone
    assert "screen_bad_data" in told


def test_jumps_are_told_before_their_time():
    cost = read_with_errors()
    data = pd.DataFrame(cost.obs)
    data.loc[99:, "z"] += 15 * 0.9 ** np.arange(101)
    told = text_of(cost.replace(obs=data).filter(), "Jumps of states")
    assert "x before time 100: all data ask for a jump upwards, " in told


def test_states_that_no_datum_reaches_and_few_data_are_weak_spots():
    model = DifferenceModel(lambda n, a, b: (a, 0.5 * b), state={"a": 0.0, "b": 1.0}, times=[0, 5])
    data = {"time": np.arange(1, 6), "a": [0.1, 0.3, -0.2, 0.1, 0.0]}
    cost = FimlofCost(model, data, process_noise={"a": 0.2, "b": 0.2}, measurement_noise={"a": 0.2})
    told = text_of(cost.filter(), "Weak spots")
    assert "say nothing of b" in told
    assert "Fewer than 10 data" in told


def test_an_impossible_sample_is_named():
    cost = read_with_errors()
    data = pd.DataFrame(cost.obs)
    data.loc[49, "z"] = 1000.0
    assert "the worst at time 50: chi-squared" in (told := text_of(cost.replace(obs=data).filter(), "Weak spots"))
    assert "on 1 degree of freedom." in told


def test_what_was_filtered_says_where_the_data_went():
    flt = read_with_errors(initial="diffuse").filter()
    assert "1 datum went into an unknown start and does not count" in text_of(flt, "What was filtered")
    flt = read_with_errors(initial="data").filter()
    assert "from the first data" in text_of(flt, "What was filtered")


def test_a_breakdown_is_a_page_too():
    flt = read_with_errors().filter({"a": 1e300})
    page = flt.summary()
    assert not page.agrees
    assert flt.failure in " ".join(repr(page).split())
    assert "broke down" in page._repr_html_()


def test_the_page_prints_and_shows_as_html():
    page = read_with_errors().filter().summary()
    assert repr(page).splitlines()[0].startswith("Filter of z: log-likelihood")
    assert max(map(len, repr(page).splitlines())) <= 100
    assert page._repr_html_().count("<li>") == sum(map(len, page.sections.values()))
