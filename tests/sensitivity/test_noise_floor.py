"""Sensitivities know their own noise: what does not stand out of it is no influence, what does is, however small."""

import numpy as np
import pandas as pd
import pytest
from scipy.integrate import solve_ivp

import fmepy as fme
from tests.plain import plain

T = np.arange(0.0, 11)
P = {"k": 0.3, "y0": 2.0, "z": 1.7}
OBS = pd.DataFrame({"name": "y", "time": T[1:], "y": 2 * np.exp(-0.3 * T[1:]) * (1 + 0.05 * np.sin(7 * T[1:]))})
OBS["err"] = np.linspace(0.03, 0.37, 10)


def decay(p):
    return p["y0"] * np.exp(-p["k"] * T)


def solved(p):
    """Return y by an adaptive solver whose steps follow another state, on which z works."""

    def rates(t, s):
        return [-p["k"] * s[0], p["z"] * np.cos(3 * t) * s[1]]

    return solve_ivp(rates, (0, 10), [p["y0"], 1.0], t_eval=T, rtol=1e-6, atol=1e-8).y[0]


WITHOUT = {
    "unused": decay,
    "cancelled": lambda p: decay(p) * (p["z"] ** 3 / p["z"] / p["z"] ** 2),
    "rounded away": lambda p: (decay(p) + 1e3 * p["z"]) - 1e3 * p["z"],
    "seen by the solver only": solved,
}
FORMS = {
    "table": lambda y: lambda p: {"time": T, "y": y(p)},
    "one row": lambda y: lambda p: pd.Series(y(p), index=[f"y{i}" for i in range(len(T))]),
    "ModCost": lambda y: lambda p: fme.modCost({"time": T, "y": y(p)}, OBS, y="y", err="err"),
    "ModCost, weight": lambda y: lambda p: fme.modCost({"time": T, "y": y(p)}, OBS[["time", "y"]], weight="std"),
    "residuals": lambda y: lambda p: y(p) - 3.0,
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("why", WITHOUT)
def test_a_parameter_without_influence_is_never_identifiable(form, why):
    sens = fme.sensFun(FORMS[form](WITHOUT[why]), P)
    with pytest.warns(UserWarning, match="'z'.*cannot be identified, alone or with others"):
        found = fme.collin(sens)
    for members, gamma in zip(found.sets(), found.frame["collinearity"], strict=True):
        assert np.isinf(gamma) == ("z" in members)
    with pytest.warns(UserWarning, match="'z'.*cannot be identified"):
        together = fme.identifiability(sens)
    assert together.collinearity == np.inf
    assert together.largest == [("k", "y0")]
    assert np.isinf(together.frame.loc["z", "std_error"])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", [1e-4, 1e-7, 1e-10])
def test_a_small_influence_that_is_exact_stays_as_it_is(form, size):
    sens = fme.sensFun(FORMS[form](lambda p: decay(p) + size * p["z"] * np.cos(T)), P, parscale=1, varscale=1)
    cos = np.cos(T if form in ("table", "one row", "residuals") else T[1:])
    np.testing.assert_allclose(sens.values[:, 2], size * cos, rtol=0.05, atol=0.05 * size)
    assert np.isfinite(fme.collin(sens).frame["collinearity"]).all()


def test_a_small_influence_on_small_values_alone_is_one():
    tail = fme.sensFun(lambda p: {"time": T, "y": p["y0"] * np.exp(-5 * p["k"] * T) + 1e-12 * p["z"]}, P)
    assert np.isfinite(fme.collin(tail).frame["collinearity"]).all()


def test_the_noise_is_about_the_error_of_the_sensitivities():
    sens = fme.sensFun(lambda p: {"time": T, "y": solved(p)}, P, parscale=1, varscale=1)
    truth = np.column_stack([-2 * T * np.exp(-0.3 * T), np.exp(-0.3 * T), 0 * T])
    assert (np.abs(sens.values - truth)[:, 2] <= 10 * sens.noise[:, 2]).all()
    assert (np.abs(sens.values)[:, :2].max(axis=0) > 100 * sens.noise[:, :2].max(axis=0)).all()


def test_exact_sensitivities_are_believed_to_their_last_digits():
    def rhs(t, A, B, *, k, z):
        return -k * A + 1e-9 * z * B, k * A - 1e-9 * z * B

    model = fme.OdeModel(rhs, state={"A": "y0", "B": 0.0}, parms=P, times=T)
    sens = fme.sensFun(model, P, sensvar="A")
    assert sens.method == "exact"
    assert np.isfinite(fme.collin(sens).frame["collinearity"]).all()


def test_columns_of_one_value_and_of_zeros_are_what_they_are():
    sens = fme.sensFun(lambda p: {"time": T, "y": 0 * T + p["y0"] + 0 * p["z"]}, {"y0": 2.0, "z": 1.0})
    with pytest.warns(UserWarning, match="sensitivities to 'z' are all zero"):
        assert fme.collin(sens).value == np.inf
    np.testing.assert_allclose(sens.values[:, 0], 1.0)


def test_a_step_that_was_chosen_has_the_noise_of_rounding():
    def rounded(p):
        return {"time": T, "y": decay(p) * (p["z"] / 3 * 3 / p["z"])}

    sens = fme.sensFun(rounded, P, tiny=1e-8)
    assert (sens.noise[:, 2] >= 1e-16 / 1e-8).all()
    with pytest.warns(UserWarning, match="'z'.*cannot be identified"):
        assert fme.collin(sens, ["k", "z"]).value == np.inf


def test_rows_of_some_variables_have_their_own_noise():
    def two(p):
        return {"time": T, "y": decay(p), "w": decay(p) + p["z"]}

    sens = fme.sensFun(two, P)
    assert np.isfinite(fme.collin(sens, which="w").frame["collinearity"]).all()
    with pytest.warns(UserWarning, match="'z'.*cannot be identified"):
        assert np.isinf(fme.collin(sens, which="y").frame["collinearity"]).sum() == 3


@pytest.mark.parametrize("size", [0.0, 1e-6])
@pytest.mark.parametrize("as_cost", [False, True])
def test_differences_that_a_model_takes_itself_are_looked_at_once_more(as_cost, size):
    def rates(t, s, p):  # no equations: the solver's steps follow B, on which z works
        A, B = plain(s[0]), plain(s[1])
        return [-p["k"] * A + size * p["z"] * B, p["z"] * float(np.cos(3 * t)) * B]

    model = fme.OdeModel(rates, state={"A": 2.0, "B": 1.0}, parms={"k": 0.3, "z": 1.7}, times=T, engine="scipy")
    table = {"time": T[1:], "A": 2 * np.exp(-0.3 * T[1:]) + 0.01 * np.sin(7 * T[1:])}
    sens = fme.sensFun(fme.SimulationCost(model, table)) if as_cost else fme.sensFun(model, sensvar="A")
    assert sens.method.startswith("differences")
    if size:
        assert np.isfinite(fme.collin(sens).value)
    else:
        with pytest.warns(UserWarning, match="'z' do not exceed their own noise"):
            assert fme.collin(sens).value == np.inf
