"""A name is found however its letters were typed: Python takes a micro sign for a Greek letter, and so do we."""

import lmfit
import numpy as np
import pandas as pd
import pytest
import scipy.stats

import fmepy as fme
from fmepy.errors import ModelError, ParameterError
from fmepy.parameters.named import check_names
from fmepy.parameters.names import ByName, normal_name, split_local

MICRO, GREEK = "\u00b5", "\u03bc"
TEXT = {"micro": f"d(N)/dt = {MICRO} * N", "greek": f"d(N)/dt = {GREEK} * N"}
SPELLINGS = [MICRO, GREEK]
DATA = {"time": [1.0, 2, 3], "N": [1.6, 2.8, 4.4]}


def growing(t, N, *, µ=0.5):  # the point of this file
    return µ * N


def of_arrays(key):
    return lambda t, y, p: p[key] * y


@pytest.mark.parametrize("given", SPELLINGS)
@pytest.mark.parametrize("source", [*TEXT.values(), growing, of_arrays(MICRO), of_arrays(GREEK)])
def test_a_parameter_is_found_under_both_spellings(source, given):
    model = fme.OdeModel(source, state={"N": 1}, times=[0, 1], parms={given: 0.5})
    assert list(model.parms.index) == [GREEK]
    for key in SPELLINGS:
        assert model({key: 1.0})["N"].iloc[-1] == pytest.approx(np.e, rel=1e-4)
        assert model.replace(parms={key: 1.0})()["N"].iloc[-1] == pytest.approx(np.e, rel=1e-4)
        assert model.bind([key]).simulate(np.array([1.0]))[-1, 0] == pytest.approx(np.e, rel=1e-4)


@pytest.mark.parametrize("given", SPELLINGS)
def test_states_outputs_forcings_and_events_are_found_under_both_spellings(given):
    other = GREEK if given == MICRO else MICRO
    text = f"d({other}A)/dt = {given}u\n{other}out = 2 * {given}A"
    model = fme.OdeModel(
        text,
        state={f"{given}A": 1},
        times=[0, 1, 2],
        forcings={f"{other}u": ([0, 2], [1, 1])},
        outputs={f"{given}more": f"{other}A + 1"},
        events=[{"var": f"{other}A", "time": 1, "value": 10, "method": "add"}],
        atol={f"{given}A": 1e-8},
    )
    np.testing.assert_allclose(model().iloc[-1], [2, 13, 26, 14], rtol=1e-6)
    assert model.replace(state={f"{other}A": 2})().iloc[0, 1] == 2
    data = pd.DataFrame({"time": [1.0, 2], f"{other}A": [2.0, 13.0]})
    cost = fme.SimulationCost(model, data, transform={f"{given}A": "log"})
    assert cost().model == pytest.approx(0, abs=1e-9)
    long = pd.DataFrame({"name": [f"{given}out"], "time": [2.0], "val": [26.0]})
    assert fme.SimulationCost(model, long, y="val")().model == pytest.approx(0, abs=1e-7)


@pytest.mark.filterwarnings("ignore:Nothing is known of the errors")  # the plain residuals state none
@pytest.mark.parametrize("given", SPELLINGS)
def test_fits_bounds_and_priors_take_both_spellings(given):
    model = fme.OdeModel(TEXT["micro"], state={"N": 1}, times=[0, 3], parms={given: 0.4})
    cost = fme.SimulationCost(model, pd.DataFrame(DATA))
    fit = fme.modFit(cost, {given: 0.4}, lower={given: 0.1}, upper={given: 2}, prior={given: scipy.stats.norm(0.5, 9)})
    assert fit.par[GREEK] == pytest.approx(0.5, abs=0.02)
    tied = lmfit.Parameters()
    tied.add(given, value=0.4, min=0.1, max=2)
    assert fme.modFit(cost, tied).par.iloc[0] == pytest.approx(fit.par[GREEK], abs=1e-3)
    with pytest.raises(ParameterError, match="more than once"):
        fme.modFit(cost, [MICRO, GREEK])


@pytest.mark.parametrize("given", SPELLINGS)
def test_filters_take_both_spellings(given):
    model = fme.DifferenceModel(
        f"next({MICRO}x) = r * {GREEK}x", state={f"{given}x": 1.0}, times=[0, 3], parms={"r": 1.6}
    )
    data = pd.DataFrame({"time": [1.0, 2, 3], f"{given}x": [1.6, 2.7, 4.2]})
    cost = fme.FimlofCost(model, data, process_noise={f"{given}x": f"{given}s"}, measurement_noise={f"{given}x": 0.1},
                          parms={f"{given}s": 0.2})  # fmt: skip
    assert cost.bind([f"{given}s"]).minus2loglik(np.array([0.2])) == pytest.approx(cost({f"{MICRO}s": 0.2}), rel=1e-12)


def test_a_function_of_the_user_gets_the_names_that_it_was_given():
    fit = fme.modFit(lambda p: np.array([p[MICRO] - 2.0, 0.0]), {MICRO: 1.0})
    assert fit.par[MICRO] == pytest.approx(2)


def test_both_spellings_at_once_are_one_name_given_twice():
    with pytest.raises(ParameterError, match="more than once"):
        fme.OdeModel(TEXT["greek"], state={"N": 1}, times=[0, 1], parms={MICRO: 1, GREEK: 2})
    with pytest.raises(ModelError, match="more than once"):
        fme.OdeModel(f"d({MICRO})/dt = 1", state={MICRO: 1, GREEK: 2}, times=[0, 1])


def test_names_are_given_back_as_they_are_known():
    assert check_names([MICRO, "b"], ["a", "b", GREEK], argument="p") == (GREEK, "b")
    assert check_names([GREEK], [MICRO], argument="p") == (MICRO,)
    assert normal_name("x1") == "x1"
    values = ByName({GREEK: 1.0})
    assert values[MICRO] == 1
    with pytest.raises(KeyError, match="b"):
        values["b"]


def test_a_name_beside_all_that_are_known_is_to_be_left_out():
    with pytest.raises(ParameterError) as told:
        check_names(["a", "sd_v_y", "b"], ["a", "b"], argument="parms")
    assert "leave it out, such as p[['a', 'b']]" in str(told.value)
    with pytest.raises(ParameterError, match="Did you mean 'a1'"):
        check_names(["a11"], ["a1", "b"], argument="parms")


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("k", ("k", None)), ("k[3]", ("k", "3")), ("D[1][a]", ("D[1]", "a")), ("P[n](0)[a]", ("P[n](0)", "a")),
        ("k[rat [4]]", ("k", "rat [4]")), ("k[a[b]", ("k", "a[b")), ("k[a]b]", ("k", "a]b")),
        ("P[n](0)", ("P[n](0)", None)),
    ],
)  # fmt: skip
def test_a_local_name_is_that_of_a_parameter_and_an_entity(name, parts):
    assert split_local(name) == parts
    assert split_local(name, [name]) == (name, None)
