"""Words of system dynamics give the numbers of loops made by hand, in machine code and as difference equations."""

from __future__ import annotations

import numpy as np
import pytest

import fmepy as fme
from fmepy.dmi.foreign_words import FOREIGN
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
        "x = trunc(a) + 10 * trunc(-a)\ny = fmod(-7, 3) + fmod(a, b) - fmod(-a, b)\nz = log(a, b)", n=1, a=2.7, b=2.0
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
    with_unit = model_of("y = f(t) [kg]\nf = [(0, 1), (2, 5)] [kg]", times=[0, 1, 3], dt=0.5)
    assert with_unit()["y"].tolist() == [1, 3, 5]
    assert with_unit.variable_map["unit"].to_dict() == {"y": "kg", "f": "kg"}
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


# --- smooths and delays

U = 3 + np.sin(2 * TIMES)
INFLOW = "u = 3 + sin(2 * t)\n"


def row_of_levels(n, tau, start, is_delay):
    """Return a chain of n levels by Euler's steps."""
    levels, out = np.full(n, start * tau / n if is_delay else start, dtype=float), []
    for u in U:
        flows = [u, *(levels * n / tau if is_delay else levels)]
        out.append(flows[-1])
        rates = -np.diff(flows)
        levels = levels + 0.25 * (rates if is_delay else rates * n / tau)
    return out


@pytest.mark.parametrize(
    ("call", "n", "start", "is_delay"),
    [
        ("smooth(u, tau)", 1, 3, False), ("smooth(u, tau, x0)", 1, 5, False), ("smooth3(u, tau)", 3, 3, False),
        ("smooth3(u, tau, 7)", 3, 7, False), ("smoothn(u, tau, 5, x0)", 5, 5, False),
        ("delay1(u, tau, x0)", 1, 5, True), ("delay3(u, tau, 2 * x0)", 3, 10, True), ("delayn(u, tau, 4)", 4, 3, True),
        ("delayn(u, tau, 2, x0)", 2, 5, True),
    ],
)  # fmt: skip
def test_smooths_and_delays_of_any_order_and_start(call, n, start, is_delay):
    data = {k: v for k, v in {"tau": 4.0, "x0": 5.0}.items() if k in call}
    model = model_of(f"{INFLOW}y = {call}", data, outputs=["y"])
    np.testing.assert_allclose(model()["y"], row_of_levels(n, 4.0, start, is_delay), rtol=1e-12)
    the_same_in_equations(model, *data)
    fine = model.replace(dt=1 / 64, method="rk4")()["y"]
    np.testing.assert_allclose(model.compiled("ode")()["y"], fine, rtol=1e-4)


def test_delays_of_vectors_with_a_tau_and_a_start_each():
    got = ran("dims D[2], T[2], S[2]\nD = delayn([t, 2 * t], T, 2, S)", n=8, T=[4.0, 6.0], S=[1.0, 2.0])
    for i, tau in enumerate((4.0, 6.0)):
        one = ran("D = delayn(k * t, T, 2, S)", n=8, T=tau, S=1.0 + i, k=1.0 + i)["D"]
        np.testing.assert_allclose(got[f"D[{i}]"], one, rtol=1e-13)


def test_trend_and_forecast():
    model = model_of(f"{INFLOW}y = trend(u, tau, g)\nz = forecast(u, tau, 2)", {"tau": 4.0, "g": 0.1})
    s, r, y, z = U[0] / (1 + 0.1 * 4), U[0], [], []
    for u in U:
        y.append((u - s) / (4 * abs(s)))
        z.append(u * (1 + (u - r) / (4 * r) * 2))
        s, r = s + 0.25 * (u - s) / 4, r + 0.25 * (u - r) / 4
    np.testing.assert_allclose(model()["y"], y, rtol=1e-12)
    np.testing.assert_allclose(model()["z"], z, rtol=1e-12)
    assert y[0] == pytest.approx(0.1)
    the_same_in_equations(model, "tau", "g")
    below = model_of(f"{INFLOW}z = forecast(-u, tau, 2)", {"tau": 4.0})  # a debt that grows goes on growing
    np.testing.assert_allclose(below()["z"], np.negative(z), rtol=1e-12)
    assert model_of("y = trend(t, 3)")()["y"].iloc[0] == 0  # of nothing


@pytest.mark.parametrize(("tau", "n"), [(1.0, 4), (0.9, 4), (0.01, 1), (0.0, 1), (0.375, 2), (50.0, 200)])
def test_a_fixed_delay_is_a_pipe_of_whole_steps(tau, n):
    text = f"{INFLOW}y = delay_fixed(u, tau, x0)\nz = delay_fixed(u, tau * (1 + t))"
    run = model_of(text, {"tau": tau, "x0": -1.0})()
    np.testing.assert_allclose(run["y"], np.r_[np.full(n, -1.0), U][: len(U)], rtol=1e-14)
    np.testing.assert_allclose(run["z"], np.r_[np.full(n, U[0]), U][: len(U)], rtol=1e-14)


def test_a_fixed_delay_breaks_a_circle():
    got = ran("x = 1 + delay_fixed(y, T, 0)\ny = 2 * x", n=6, T=2.0)
    assert got["x"].tolist() == [1, 1, 3, 3, 7, 7, 15]
    wide = ran("dims D[2], E[2]\nD = delay_fixed([t, 2 * t], E, [7, 8])", n=4, E=[1.0, 2.0])
    assert wide["D[0]"].tolist() == [7, 0, 1, 2, 3]
    assert wide["D[1]"].tolist() == [8, 8, 0, 2, 4]
    with pytest.raises(ModelError, match=r"delay_fixed\(...\) is not an equation"):
        model_of("y = delay_fixed(t, 1, 0)").compiled()
    with pytest.raises(ModelError, match="method='rk4' evaluates between the steps"):
        model_of("y = delay_fixed(t, 1, 0)", method="rk4")()


@pytest.mark.parametrize("n", ["k", "0", "1.5", "101"])
def test_the_number_of_levels_is_plain(n):
    with pytest.raises(ModelTextError, match="a plain number from 1 to 100"):
        model_of(f"y = delayn(t, 3, {n})", {"k": 2})


# --- levels that stay at 0


@pytest.mark.parametrize("method", ["euler", "rk4"])
def test_a_nonnegative_level_stays_at_zero(method):
    text = "nonnegative S\nd(S)/dt = 3 * sin(t) - out\nS(0) = k\nout = sqrt(S) + 1\nd(T)/dt = out\nT(0) = 0"
    model = model_of(text, {"k": 1.0}, method=method)
    run = model()
    assert run["S"].min() == 0
    assert (run["S"] > 0).any()
    if method == "euler":
        s, wanted = 1.0, []
        for t in TIMES:
            wanted.append(s)
            s = max(s + 0.25 * (3 * np.sin(t) - np.sqrt(s) - 1), 0)
        np.testing.assert_allclose(run["S"], wanted, rtol=1e-12)
        the_same_in_equations(model)
    else:
        plain = model_of(text.replace("sqrt(S)", "S / 2"), {"k": 1.0}, method=method)
        fine = plain.replace(dt=1 / 256)()["S"]
        np.testing.assert_allclose(plain.compiled("ode")()["S"], fine, atol=2e-2)


def test_only_elements_that_are_declared_stay():
    got = ran("dims A[2,2]\nnonnegative A[0,1], A[1,:]\nd(A)/dt = -1\nA(0) = 1", n=3)
    assert [got[f"A[{i}]"][-1] for i in ("0,0", "0,1", "1,0", "1,1")] == [-2, 0, 0, 0]
    with pytest.raises(ModelTextError, match="declared nonnegative, but it is no level here"):
        model_of("nonnegative stok\nd(stock)/dt = 1\nstock(0) = 1")


# --- random numbers

NOISE = "d(x)/dt = u - x\nx(0) = 0\nu = random_normal(m, sd)\nv = random_uniform(a, 3) + 100 * random_uniform(0, 1)"


def test_random_numbers_are_those_of_the_seed():
    data = {"m": 2.0, "sd": 0.5, "a": 1.0}
    model = model_of(NOISE, data, times=np.arange(0, 2000), dt=1.0)
    run = model()
    assert run["u"].mean() == pytest.approx(2, abs=0.05)
    assert run["u"].std() == pytest.approx(0.5, abs=0.03)
    assert np.corrcoef(run["u"], run["v"])[0, 1] == pytest.approx(0, abs=0.1)
    first = (run["v"] - 1) % 100
    assert run["v"].min() >= 1
    assert first.max() > 2
    assert model().equals(run)
    assert not model.replace(seed=1)()["u"].equals(run["u"])
    other = model_of(f"w = random_normal(0, 1)\n{NOISE}", data, times=np.arange(0, 100), dt=1.0)()
    assert other["u"].equals(run["u"][:100])  # whatever else there is, however long the run
    assert not np.allclose(other["w"], (other["u"] - 2) / 0.5)


def test_random_numbers_have_exact_slopes_and_are_the_same_in_equations():
    model = model_of(NOISE, {"m": 2.0, "sd": 0.5, "a": 1.0})
    the_same_in_equations(model, "m", "sd", "a")
    shifted = model.replace(times=TIMES + 0.3)
    the_same_in_equations(shifted)
    np.testing.assert_allclose(shifted()["u"], model()["u"])


def test_random_numbers_between_bounds_of_vectors_and_in_modules_of_longer_steps():
    text = "dims D[3], M[3]\nD = random_normal(M, 1, 0, 9)"
    run = model_of(text, {"M": [0.0, 1.0, 5.0]}, times=np.arange(0, 500), dt=1.0)()
    assert run.min().min() == 0
    assert run.iloc[:, 1:].corr().abs().to_numpy()[0, 1:].max() < 0.2
    slow = model_of("step 2\ny = random_uniform(0, 1)", times=np.arange(0, 8), dt=1.0)()["y"]
    assert (slow[::2].to_numpy() == slow[1::2].to_numpy()).all()
    assert slow.nunique() == 4
    with pytest.raises(ModelTextError, match="3 arguments given"):
        model_of("y = random_normal(0, 1, 2)")
    with pytest.raises(fme.errors.ArgumentError, match="seed"):
        model_of("y = t", seed=-1)


# --- words of others


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = IF THEN ELSE(a > 1, 2, 3)", r"IF THEN ELSE\(c, a, b\) is written where\(c, a, b\) here"),
        ("x = INTEG(a, 3)", r"d\(x\)/dt = flow, x\(0\) = start"),
        ("x = if_then_else(a > 1, 2, 3)", r"where\(c, a, b\)"),
        ("x = DELAY3I(a, 2, 3)", r"delay3\(x, tau, x0\)"),
        ("x = 2 * MODULO(a, 2)", r"fmod\(a, b\)"),
        ("x = XIDZ(a, 2, 0)", r"where\(b == 0, c, a / b\)"),
        ("x = a * TIME STEP", "is written dt here"),
        ("x = (1 +\n  ZIDZ(a, 2))", r"line 2: ZIDZ"),
    ],
)
def test_words_of_others_are_answered_with_ours(text, says):
    with pytest.raises(ModelTextError, match=says) as told:
        fme.dmi.Module("m", text)
    assert len(str(told.value).splitlines()) == 3


def test_names_that_begin_like_words_of_others_are_names():
    assert ran("x = TIME_STEPS + initial_time_x + zidz", n=1, TIME_STEPS=1.0, initial_time_x=2.0, zidz=3.0)["x"][0] == 6


def test_the_page_on_vensim_has_all_words_of_others(root):
    page = (root / "docs" / "from_vensim.md").read_text(encoding="utf-8")
    assert [a for a, b in FOREIGN.items() if f"| `{a}` | `{b}` |" not in page] == []


@pytest.mark.parametrize("ours", FOREIGN.values())
def test_what_is_answered_can_be_read(ours):
    text = ours.replace("d(x)/dt = flow, x(0)", "d(z)/dt = flow\nz(0)").replace("y = x, y(0)", "z = x\nz(0)")
    text = f"subscripts r: a, b\ndims x[r]\nz = {text}" if "[:]" in text else text if "(0) =" in text else f"z = {text}"
    for theirs, example in (("(c,", "(c > 0,"), (", n,", ", 3,")):
        text = text.replace(theirs, example)
    fme.dmi.Module("m", text)
