"""Words of system dynamics give the numbers of loops made by hand, in machine code and as difference equations."""

from __future__ import annotations

import numpy as np
import pytest

import fmepy as fme
from fmepy.errors import ModelError, ModelTextError, SimulationError
from tests.dmi.runs import ran

TIMES = np.arange(0, 6.25, 0.25)


def model_of(text, data=None, **words):
    words = {"times": TIMES, "dt": 0.25} | words
    return fme.dmi.ModularModel([fme.dmi.Module("m", text)], data, **words)


def the_same_in_equations(model, *names, rtol=1e-10):
    """Compare a run with that of the difference equations, and the exact slopes with differences of runs."""
    steps = model.compiled("difference")
    np.testing.assert_allclose(steps()[list(model.var_names)], model()[list(model.var_names)], rtol=rtol, atol=1e-12)
    for name in names:
        bound = model.bind([name])
        assert bound.exact
        at, h = bound.theta0, 1e-6
        slope = (bound.simulate(at + h) - bound.simulate(at - h)) / (2 * h)
        np.testing.assert_allclose(bound.sensitivities(at)[1][:, :, 0], slope, rtol=1e-5, atol=1e-6)


def test_equal_and_not_equal():
    got = ran(
        "x = where(t == 2, 5, 1) + where(flag != 1, 10, 0)\ny = where(t % 2 == 0 and not t == 4, 1, 0)", n=5, flag=1.0
    )
    assert got["x"].tolist() == [1, 1, 5, 1, 1, 1]
    assert got["y"].tolist() == [1, 0, 1, 0, 0, 0]


def test_what_is_cut_off_goes_towards_zero():
    got = ran(
        "x = trunc(a) + 10 * trunc(-a)\ny = fmod(-7, 3) + fmod(a, b) - fmod(-a, b)\nz = log(a, b)",
        n=1,
        a=2.7,
        b=2.0,
    )
    np.testing.assert_allclose([got[k][0] for k in "xyz"], [2 - 20, -1 + 1.4, np.log2(2.7)], rtol=1e-14)


def test_the_clock_has_names():
    text = "d(L)/dt = dt\nL(0) = t_start\nleft = t_end - t + L"
    model = model_of(text, times=[1.0, 2.0, 4.0], dt=0.5)
    run = model()
    np.testing.assert_allclose(run["L"], 1 + 0.5 * (run.time - 1))
    np.testing.assert_allclose(run["left"], 4 - run.time + run["L"])
    np.testing.assert_allclose(model(times=[1, 2])["left"], run["left"][:2])  # the end is the model's
    the_same_in_equations(model)
    with pytest.raises(ModelError, match="dt is not an equation of its time alone"):
        model.compiled("ode")


def test_initial_holds_the_first_value():
    model = model_of("d(L)/dt = k - L\nL(0) = initial(2 * k)\ny = initial(L + t)\nz = L / initial(L)", {"k": 3.0})
    run = model()
    assert (run["y"] == 6).all()
    np.testing.assert_allclose(run["z"], run["L"] / 6)
    the_same_in_equations(model, "k")
    np.testing.assert_allclose(model.compiled("ode")()["y"], 6, rtol=1e-9)
    np.testing.assert_allclose(model.replace(method="rk4")()["y"], 6)


def test_sample_keeps_what_was_where_the_condition_held():
    model = model_of("y = sample(t >= 1 and t < 2 or t == 4, k * t, x0)", {"k": 2.0, "x0": -1.0})
    kept, wanted = -1.0, []
    for t in TIMES:
        kept = 2 * t if 1 <= t < 2 or t == 4 else kept
        wanted.append(kept)
    np.testing.assert_allclose(model()["y"], wanted)
    the_same_in_equations(model, "k", "x0")
    np.testing.assert_allclose(model.replace(method="rk4")()["y"], wanted)


def test_sample_of_vectors_and_of_a_module_with_longer_steps():
    got = ran("dims D[2]\nD = sample(t % 3 == 0, [t, 2 * t], 7)", "step 2\ny = sample(t == 2, t, 9)", n=5)
    assert got["D[0]"].tolist() == [0, 0, 0, 3, 3, 3]
    assert got["D[1]"].tolist() == [0, 0, 0, 6, 6, 6]
    assert got["y"].tolist() == [9, 9, 2, 2, 2, 2]


def test_pulses():
    got = ran("a = pulse(2, 3)\nb = pulse(3, 2, 4)\nc = pulse(1, 1, 3, 8)", n=9)
    assert got["a"].tolist() == [0, 0, 1, 1, 1, 0, 0, 0, 0, 0]
    assert got["b"].tolist() == [0, 0, 3, 0, 0, 0, 3, 0, 0, 0]
    assert got["c"].tolist() == [0, 1, 0, 0, 1, 0, 0, 1, 0, 0]
    tenths = ran("a = pulse(0.3, 0.3)", n=8, dt=0.1)["a"]  # 3 * 0.1 is a little more than 0.3
    assert tenths.tolist() == [0, 0, 0, 1, 1, 1, 0, 0, 0]


XS, YS = [0.0, 1.0, 3.0], [2.0, 4.0, -1.0]
AT = np.arange(-1, 4.25, 0.25)
KINDS = {
    "hold": np.interp(AT, XS, YS),
    "extrapolate": np.where(AT < 1, 2 + 2 * AT, 4 - 2.5 * (AT - 1)),
    "step": np.select([AT >= 3, AT >= 1], [-1.0, 4.0], 2.0),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("call", "data"),
    [
        ("table(t, [0, 1, 3], [2, 4, -1], {})", {}),
        ("table(t, [(0, 2), (1, 4), (3, -1)], {})", {}),
        ("table(t, xs, ys, {})", {"xs": XS, "ys": YS}),
        ("table(t, points, {})", {"points": np.column_stack([XS, YS])}),
        ("effect(t, {})", {"effect": np.column_stack([XS, YS])}),
        ("effect(t, {})\neffect = [(0, 2), (1, 4), (3, -1)]", {}),
    ],
)
def test_tables_hold_extrapolate_or_step(kind, call, data):
    model = model_of(f"d(L)/dt = 0\nL(0) = 0\ny = L + {call.format(repr(kind))}", data, times=AT, outputs=["y"])
    np.testing.assert_allclose(model()["y"], KINDS[kind], rtol=1e-13)
    the_same_in_equations(model, *list(model.parms.index)[-1:])


def test_a_table_without_a_word_holds_and_its_points_are_parameters():
    model = model_of("y = effect(t) * 2", {"effect": [[0, 1], [2, 5]]}, times=[0, 1, 3], dt=0.5)
    assert model()["y"].tolist() == [2, 6, 10]
    assert model({"effect[1,1]": 3.0})["y"].tolist() == [2, 4, 6]
    assert model.variable_map.loc["effect", "dims"] == "[2,2]"
    longer = model.replace(data={"effect": [[0, 1], [1, 0], [2, 5]]})
    assert longer()["y"].tolist() == [2, 0, 10]
    assert model.replace(modules={"n": fme.dmi.Module("n", "z = effect(y)")})()["z"].tolist() == [5, 5, 5]


def test_the_points_of_one_module_are_those_of_another():
    first, second = fme.dmi.Module("a", "f = [(0, 0), (10, 5)]"), fme.dmi.Module("b", "y = f(t)")
    model = fme.dmi.ModularModel([second, first], times=[0, 4], dt=1, outputs=["y"])
    assert model()["y"].tolist() == [0, 2]


def test_tables_that_cannot_be_are_refused():
    with pytest.raises(ModelError, match="effect is read"), pytest.warns(UserWarning, match="missing"):
        model_of("y = effect(t)")()
    with pytest.raises(ModelTextError, match="2 xs and 3 ys"):
        model_of("y = table(t, xs, ys)", {"xs": [0, 1], "ys": [0, 1, 2]})
    with pytest.raises(ModelTextError, match="pairs"):
        model_of("y = k(t + 1)", {"k": 3.0})
    with pytest.raises(SimulationError, match="must increase"):
        model_of("y = f(t)", {"f": [[1, 0], [0, 1]]})()
