"""A system as equations computes what the system computes, and says what it cannot be."""

from __future__ import annotations

import numpy as np
import pytest

from fmepy.dmi.equations import as_model
from fmepy.dmi.expressions import module_functions
from fmepy.dmi.model import ModularModel
from fmepy.dmi.modules import Module, module
from fmepy.dmi.variables import system_of
from fmepy.errors import ModelError
from fmepy.models.running.forcings import Forcing
from tests.dmi.runs import program_of, run
from tests.dmi.test_running import CAPACITY, DELIVERY, SALES
from tests.plain import plain

TEXT = """
dims D[2], F[2], A[2,2], xs[3], ys[3]
d(D)/dt = dot(A, F) - D / tau + u
F = table(D, xs, ys) + step(2, 1.5) * 0.1
q = smooth(sum(D), 3) + clip(1, 2, D[0], D[1])
r = where(u > 0.3 and not q > 5, ramp(0.5, 1, 2), t) + delay3(q, 2)
d(L)/dt = r - L
D(0) = [1, u + 0.5]
L(0) = q / 2
"""
VALUES = {
    "A": [[0.1, 0.2], [0.3, -0.1]], "tau": 2.5, "xs": [0.0, 0.8, 2.0], "ys": [0.0, 1.0, 1.5],
}  # fmt: skip
TIMES, U = np.array([0.0, 1.1, 4.0]), np.array([0.2, 0.6, 0.1])
NAMES = ("D", "L", "q", "r", "F")


def _model(kind, *texts, outputs=NAMES, values=VALUES, times=None, dt=0.25, series=None, method="euler"):
    system = system_of([Module(f"m{i}", t) if isinstance(t, str) else t for i, t in enumerate(texts)])
    parms = {}
    for name, value in values.items():
        value = np.asarray(value, dtype=float)
        keys = [f"{name}[{','.join(map(str, i))}]" for i in np.ndindex(value.shape)] if value.shape else [name]
        parms |= dict(zip(keys, value.ravel().tolist(), strict=True))
    times = np.arange(0, 4.1, 0.25) if times is None else times
    series = {k: Forcing(k, *of) for k, of in (series or {}).items()}
    return as_model(system, kind, parms=parms, series=series, times=times, dt=dt, outputs=outputs, method=method)


@pytest.fixture(scope="module")
def difference():
    return _model("difference", TEXT, series={"u": (TIMES, U, "linear")})


def test_the_difference_model_makes_the_steps_of_the_system(difference):
    program = program_of(TEXT, series=("u",), outputs=NAMES, dt=0.25)
    wanted = run(program, 16, series={"u": np.interp(np.arange(17) * 0.25, TIMES, U)}, **VALUES)
    found = difference()
    np.testing.assert_array_equal(found["time"], 0.25 * np.arange(17))
    np.testing.assert_allclose(found[list(program.columns)].to_numpy(), wanted.rows, rtol=1e-10, atol=1e-12)


def test_its_sensitivities_are_exact(difference):
    names = ["tau", "ys[1]", "A[0,1]"]
    bound = difference.bind(names)
    _, S = bound.sensitivities(bound.theta0)
    for j, h in enumerate(1e-6 * bound.theta0):
        up, down = (bound.simulate(bound.theta0 + s * h * np.eye(3)[j]) for s in (1, -1))
        np.testing.assert_allclose(S[:, :, j], (up - down) / (2 * h), rtol=1e-5, atol=1e-7)


def test_the_continuous_model_is_where_smaller_and_smaller_steps_go():
    series = {"u": (TIMES, U, "linear")}
    model = _model("ode", TEXT, series=series, times=np.array([0.0, 1.0, 2.0, 3.0])).replace(engine="scipy")
    found = model()

    def at(dt):
        program = program_of(TEXT, series=("u",), outputs=("L", "q"), dt=dt)
        n = round(3 / dt)
        return run(program, n, series={"u": np.interp(np.arange(n + 1) * dt, TIMES, U)}, **VALUES).rows[-1]

    exact = 2 * at(1 / 1024) - at(1 / 512)
    np.testing.assert_allclose(found[["L", "q"]].to_numpy()[-1], exact, rtol=2e-4)


def test_market_growth_as_equations_has_nine_states():
    model = _model(
        "difference",
        SALES,
        DELIVERY,
        CAPACITY,
        values={"SEM": 400, "SAT": 20},
        outputs=("OB",),
        times=[0, 0.5, 1],
        dt=0.5,
    )
    assert set(model.states) == {"SM", "BL", "DRA", "DDRC", "DDRM", "L1", "L2", "L3", "PC"}
    assert set(model.parms.index) == {"SEM", "SAT"}


def test_an_initial_value_from_outside_is_a_parameter():
    model = _model("difference", "d(x)/dt = -k * x", values={"x": 4.0, "k": 0.5}, outputs=(), times=[0, 1, 2], dt=1.0)
    np.testing.assert_allclose(model()["x"], [4, 2, 1])
    np.testing.assert_allclose(model({"x(0)": 8.0})["x"], [8, 4, 2])


def test_two_hundred_assignments_that_need_one_another_twice_are_equations_too():
    lines = [f"x{i} = 0.5 * x{i - 1} + 0.1 * x{i - 1} ** 2 * k" for i in range(1, 200)]
    text = "\n".join([*lines, "x0 = 1 + L", "d(L)/dt = x199 - L", "L(0) = 1"])
    model = _model("difference", text, values={"k": 1.0}, outputs=("x199",), times=[0, 1, 2], dt=1.0)
    L = 1.0
    for found in model()["L"]:
        assert found == pytest.approx(L)
        x = 1 + L
        for _ in range(199):
            x = 0.5 * x + 0.1 * x**2
        L = x


@module(reads=("x",), assigns=("y",))
def python_module(x):
    return x if plain(x) > 0 else 1.0


@pytest.mark.parametrize(
    ("kind", "texts", "said"),
    [
        ("ode", ("d(x)/dt = lag(x, 1, 0)\nx(0) = 1",), "lag"),
        ("ode", ("d(x)/dt = rate(x)\nx(0) = 1",), "rate"),
        ("ode", ("d(x)/dt = dt\nx(0) = 1",), "dt is not"),
        ("ode", ("d(x)/dt = pulse(1, 0, 2)\nx(0) = 1",), "pulse"),
        ("ode", ("d(x)/dt = y\nx(0) = 1\ny = z + x\nz = y / 2",), "need one another"),
        ("difference", ("d(x)/dt = 1\nx(0) = y\ny = x + 1",), "need one another at the start"),
        ("ode", ("d(x)/dt = 1\nx(0) = 1", "step 2\ny = x"), "steps of '1', '2'"),
        ("ode", ("d(x)/dt = y\nx(0) = 1", python_module), "Python function"),
        ("ode", ("x = t",), "no level"),
    ],
)
def test_what_is_no_equation_is_refused_by_name(kind, texts, said):
    with pytest.raises(ModelError, match=said):
        _model(kind, *texts, values={}, outputs=())


def test_a_system_that_moves_by_rk4_is_no_difference_model():
    with pytest.raises(ModelError, match="rectangle rule"):
        _model("difference", "d(x)/dt = 1\nx(0) = 1", values={}, outputs=(), method="rk4")


SPECIAL = {
    "where": "where(x > 1 and not x > 5, x, 2)", "clip": "clip(1, 2, x, k)", "step": "step(x, 0.5)",
    "ramp": "ramp(k, 0.5, 1.5)", "pulse": "pulse(k, 0.25, 1)", "sum": "sum([x, k])", "prod": "prod([x, k])",
    "mean": "mean([x, k])", "dot": "dot([x, k], [1, 2])",
    "table": "table(x, [0, 1, 2], [0, 2, 3])", "lag": "lag(x, 0.5, 1)", "rate": "rate(x)", "smooth": "smooth(k * t, 2)",
    "delay1": "delay1(k + t, 2)", "smooth3": "smooth3(k * t, 2, x)", "smoothn": "smoothn(k * t, 2, 2)",
    "delayn": "delayn(k + t, 2, 4, x)", "delay_fixed": "delay_fixed(x, 0.5, 1)", "trend": "trend(k + t, 2)",
    "forecast": "forecast(k + t, 2, 3, 0.1)", "delay3": "delay3(k + t, 2)", "min": "min(x, k, t)", "max": "max(x, k)",
    "initial": "initial(2 * x)", "random_uniform": "random_uniform(x, x)", "random_normal": "random_normal(x, 0, 0, 9)",
    "sample": "sample(x > 1, x, k)", "fmod": "fmod(x, 0.7)",
    "pow": "pow(x, k)", "asin": "asin(x / 9)", "acos": "acos(x / 9)", "tan": "tan(x / 9)",
}  # fmt: skip


@pytest.mark.parametrize("kind", ["ode", "difference"])
@pytest.mark.parametrize("name", module_functions())
def test_every_function_becomes_an_equation_or_is_refused_in_words(name, kind):
    text = f"d(x)/dt = 0.1 * y - 0.5 * x\ny = {SPECIAL.get(name, f'{name}(x)')}\nx(0) = x0"
    data = {"x0": 1.3} | ({"k": 0.7} if "k" in SPECIAL.get(name, "") else {})
    model = ModularModel([Module("m", text)], data, times=np.arange(0, 3.25, 0.25), dt=0.25)
    refused = {"lag", "delay_fixed"} | ({"rate", "sample", "pulse"} if kind == "ode" else set())
    if name in refused:
        with pytest.raises(ModelError, match=rf"{name}\(...\) .*module 'm', line 2"):
            model.compiled(kind)
        return
    made = model.compiled(kind)
    if kind == "difference":
        np.testing.assert_allclose(made()[["x", "y"]], model()[["x", "y"]], rtol=1e-11)
        _, S = made.bind(["x0"]).sensitivities(np.array([1.3]))
        assert np.isfinite(S).all()
        return
    np.testing.assert_allclose(made()["x"], model.replace(dt=1 / 256)()["x"], rtol=1e-2)
