"""Conditions and jumps: a branch not taken has no say, no jump is stepped over, no NaN is lost, on any engine."""

import time

import numpy as np
import pytest

from fmepy import DifferenceModel, FimlofCost, OdeModel, SimulationCost, SteadyModel
from fmepy.errors import FmepyError, SimulationError
from fmepy.models.engines.scipy_steppers import RETRY
from tests.plain import plain

ADAPTIVE = ["compiled", "explicit", "scipy"]


def run(engine, text, times, parms, names=None, **kwargs):
    """Return the last row of states, the sensitivities there, and how often a second engine was needed."""
    how = {"method": engine, "dt": 1e-3} if engine in ("rk4", "euler") else {"engine": engine, "rtol": 1e-8}
    bound = OdeModel(text, times=times, parms=parms, **how, **kwargs).bind(names)
    Y, S = bound.sensitivities(bound.theta0)
    np.testing.assert_allclose(bound.simulate(bound.theta0), Y, rtol=1e-4, atol=1e-4)
    return Y[-1], S[-1], bound.retries


# --- the branch that is not taken


GUARDED = {  # text, parameters, x(3), its derivatives
    "lag": (
        "d(x)/dt = where(t > lag, (t - lag)**b, 0)\nx(0) = 0", dict(lag=1.0, b=1.5),
        2**2.5 / 2.5, (-(2**1.5), 2**2.5 * (np.log(2) / 2.5 - 1 / 2.5**2)),
    ),
    "never reached": ("d(x)/dt = where(t > 20, sqrt(t - 20), a)\nx(0) = 0", dict(a=2.0), 6.0, (3.0,)),
    "quotient": ("d(x)/dt = a * where(t > 1, 1/t, 0)\nx(0) = 0", dict(a=1.5), 1.5 * np.log(3), (np.log(3),)),
    "exp": ("d(x)/dt = where(t < 30, a, exp(exp(40 - t)))\nx(0) = 0", dict(a=1.0), 3.0, (3.0,)),
    "inner": (
        "d(x)/dt = where(t > 1, where(k > 5, log(k - 5), k), 0)\nx(0) = 0", dict(k=2.0), 4.0, (2.0,),
    ),
    "and": ("d(x)/dt = where(k > 5 and log(k - 5) > 0, 1, k)\nx(0) = 0", dict(k=2.0), 6.0, (3.0,)),
    "torricelli": ("d(x)/dt = -k * where(x > 0, sqrt(x), 0)\nx(0) = 1", dict(k=1.0), 0.0, (0.0,)),
    "power of a state": (
        "d(x)/dt = where(x > 0.5, -k * (x - 0.4)**0.7, -k)\nx(0) = 1", dict(k=1.0), None, None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", GUARDED)
@pytest.mark.parametrize("engine", [*ADAPTIVE, "rk4"])
def test_a_branch_that_is_not_taken_has_no_say(engine, case):
    text, parms, value, slopes = GUARDED[case]
    Y, S, retries = run(engine, text, [0, 3], parms)
    assert retries == 0
    assert np.isfinite(S).all()
    if value is None:
        Y2, S2, _ = run("scipy", text, [0, 3], parms)
        assert pytest.approx(Y2, abs=2e-3) == Y
        assert engine == "rk4" or np.allclose(S, S2, atol=1e-4)
        return
    close = 2e-3 if engine == "rk4" else 1e-5  # the steps of rk4 know no jumps
    assert Y[0] == pytest.approx(value, rel=close, abs=close)
    assert S[0] == pytest.approx(slopes, rel=close, abs=close)


@pytest.mark.parametrize("engine", ADAPTIVE)
def test_guards_of_states_need_no_second_engine(engine):
    for rate in ("where(x > 0, sqrt(x), 0)", "where(x > 0, x**b, 0)", "where(x >= 0.3, sqrt(x - 0.3) + 0.1, 1)",
                 "where(x < 0.3, 1, sqrt(x - 0.3) + 0.1)", "sqrt(max(x, 0))",
                 "max(0, x)**b"):  # fmt: skip
        text = f"d(x)/dt = -k * {rate}\nx(0) = 1"
        parms = {"k": 1.0, "b": 0.6} if "b" in rate else {"k": 1.0}
        _, S, retries = run(engine, text, [0, 0.5, 1.5, 4], parms)
        assert retries == 0, rate
        assert np.isfinite(S).all(), rate


def test_functions_with_where_are_guarded_too():
    def f(t, x, *, lag=1.0, b=0.5):
        return np.where(t > lag, (np.abs(t - lag) + (t - lag)) ** b / 2**b, 0)

    def g(t, x, *, lag=1.0, b=0.5):
        with np.errstate(all="ignore"):
            return np.where(t > lag, (t - lag) ** b, 0)

    for model in (f, g):
        bound = OdeModel(model, state={"x": 0}, times=[0, 3]).bind()
        Y, S = bound.sensitivities(bound.theta0)
        assert bound.retries == 0
        assert Y[-1, 0] == pytest.approx(2**1.5 / 1.5, rel=1e-5)
        assert S[-1, 0, 0] == pytest.approx(-np.sqrt(2), rel=1e-3)


def test_outputs_initial_values_and_events_are_guarded():
    model = OdeModel(
        "d(x)/dt = -k * x\nx(0) = where(k > 1, sqrt(k - 1), 2 * k)\nz = where(x > 5, log(x - 5), 3 * x)",
        times=[0, 1, 2], parms={"k": 0.5, "v": 2.0},
        events=[{"var": "x", "time": 1, "value": "where(v > 3, sqrt(v - 3), v)", "method": "replace"}],
    )  # fmt: skip
    bound = model.bind()
    Y, S = bound.sensitivities(bound.theta0)
    np.testing.assert_allclose(Y[:, 0], [1, np.exp(-0.5), 2 * np.exp(-0.5)], rtol=1e-5)
    np.testing.assert_allclose(Y[:, 1], 3 * Y[:, 0])
    np.testing.assert_allclose(S[0, 0], [2, 0], atol=1e-12)
    np.testing.assert_allclose(S[2, 0], [-2 * np.exp(-0.5), np.exp(-0.5)], rtol=1e-4)
    np.testing.assert_allclose(S[:, 1], 3 * S[:, 0], rtol=1e-10)


@pytest.mark.parametrize("engine", ["compiled", "python"])
def test_difference_equations_are_guarded(engine):
    model = DifferenceModel(
        "next(x) = where(t > 2, x + (t - 2)**b, x) + 0 * floor(t / 2)\nx(0) = 1\nz = where(x > 5, sqrt(x - 5), a)",
        times=[0, 1, 3, 4], parms={"a": 1.0, "b": 0.5}, engine=engine,
    )  # fmt: skip
    bound = model.bind()
    Y, S = bound.sensitivities(bound.theta0)
    np.testing.assert_allclose(Y[:, 0], [1, 1, 2, 2 + np.sqrt(2)])
    np.testing.assert_allclose(Y[:, 1], 1)
    np.testing.assert_allclose(S[-1, 0], [0, np.sqrt(2) * np.log(2)], atol=1e-8)


@pytest.mark.parametrize("propagation", ["ode", "rk4"])
def test_a_filter_goes_through_guards_and_pulses(propagation):
    text = "d(x)/dt = where(t > lag, sqrt(t - lag), 0) + where(t % 1 < 0.5, a, 0) - 0.2 * x\nx(0) = 1"
    model = OdeModel(text, times=np.arange(0, 4.01, 0.125), parms={"lag": 1.0, "a": 1.0}, rtol=1e-9, atol=1e-10)
    data = model(times=[0.5, 1.5, 2.5, 4.0])
    plain = SimulationCost(model, data, x="time")
    cost = FimlofCost(model, data, process_noise=None, measurement_noise={"x": 0.1},
                      propagation=propagation)  # fmt: skip
    value, moved = cost.bind(("a", "lag")), np.array([1.1, 0.9])
    exact = len(data) * np.log(2 * np.pi * 0.01)
    assert value.minus2loglik(np.array([1.0, 1.0])) == pytest.approx(exact, abs=1e-4 if propagation == "ode" else 0.3)
    r = plain.bind(("a", "lag")).residuals(moved)
    tolerance = 1e-4 if propagation == "ode" else 0.3  # steps across the jumps
    assert value.minus2loglik(moved) - exact == pytest.approx(100 * (r @ r), rel=tolerance)


# --- negative bases, NaN


NO_VALUE = [
    "d(S)/dt = P - k*max(0, (S - S0)**b)\nS(0) = 1",
    "d(S)/dt = P - k*max((S - S0)**b, 0)\nS(0) = 1",
    "d(S)/dt = P - k*min(S, log(S - S0))\nS(0) = 1",
    "d(S)/dt = P - k*abs((S - S0)**b)\nS(0) = 1",
    "d(S)/dt = P - k*where((S - S0)**b > 1, 1, 2)\nS(0) = 1",
    "d(S)/dt = P - k*where(log(S - S0) <= 1 or S > 100, 1, 2)\nS(0) = 1",
    "d(S)/dt = P - k*sign(sqrt(S - S0)) + 0*b\nS(0) = 1",
    "d(S)/dt = P - k*floor(sqrt(S - S0))\nS(0) = 1",
    "d(S)/dt = P - k*(S**b - 0*S0)\nS(0) = (k - S0)**b",
]


@pytest.mark.parametrize("text", NO_VALUE)
@pytest.mark.parametrize("engine", [*ADAPTIVE, "rk4", "euler"])
def test_what_has_no_value_is_a_failed_run(engine, text):
    parms = {k: v for k, v in dict(P=1.0, k=1.0, S0=7.0, b=1.7).items() if k in text.replace("0*b", "")}
    text = text.replace(" + 0*b", "").replace(" - 0*S0", "")
    how = {"method": engine, "dt": 0.01} if engine in ("rk4", "euler") else {"engine": engine}
    bound = OdeModel(text, times=[0, 1], parms=parms, **how).bind()
    with pytest.raises(SimulationError, match=r"The run failed|not finite"):
        bound.simulate(bound.theta0)
    with pytest.raises(SimulationError):
        bound.sensitivities(bound.theta0)


@pytest.mark.parametrize("engine", ADAPTIVE)
@pytest.mark.parametrize("rate", ["max(x, log(x - 5))", "max(log(x - 5), x)", "where(log(x - 5) > 3, 1, 2)",
                                  "min(x, -2 - sqrt(x - 5))"])  # fmt: skip
def test_a_value_that_gets_lost_on_the_way_fails_the_run(engine, rate):
    bound = OdeModel(f"d(x)/dt = -k * {rate}\nx(0) = 6", times=[0, 5], parms={"k": -1.0 if "min" in rate else 1.0},
                     engine=engine).bind()  # fmt: skip
    with pytest.raises(SimulationError):
        bound.simulate(bound.theta0)


def test_an_event_value_without_value_is_a_failed_run():
    model = OdeModel("d(x)/dt = -k*x\nx(0) = 1", times=[0, 2], parms={"k": 1.0, "c": 3.0},
                     events=[{"var": "x", "time": 1, "value": "(k - c)**0.7", "method": "add"}])  # fmt: skip
    with pytest.raises(SimulationError, match="value is not finite"):
        model()


def test_outputs_without_value_are_nan_and_never_complex():
    table = OdeModel("d(x)/dt = -k\nx(0) = 1\na = abs((x - 3)**0.5)\nb = max(x, log(x - 5))\nc = x**k",
                     times=[0, 1, 3], parms={"k": 1.5})()  # fmt: skip
    assert table[["a", "b"]].isna().all(axis=None)
    assert table.c.isna().tolist() == [False, True, True]
    assert all(table[name].dtype.kind == "f" for name in "xabc")


# --- jumps

PULSES = {  # text, parameters, x at 10, derivatives
    "modulo": ("d(x)/dt = a * where(t % P < w, 1, 0)\nx(0) = 0", dict(a=1.0, P=1.0, w=0.1), 1.0, (1.0, 0.0, 10.0)),
    "modulo at the end": (
        "d(x)/dt = a * where(t % P > P - w, 1, 0)\nx(0) = 0", dict(a=2.0, P=1.0, w=0.1), 2.0, (1.0, None, 20.0)
    ),
    "floor": ("d(x)/dt = a * floor(t / P)\nx(0) = 0", dict(a=1.0, P=2.5), 15.0, (15.0, -6.0)),
    "ceil": ("d(x)/dt = a * ceil(t - 0.5)\nx(0) = 0", dict(a=1.0), 50.0, (50.0,)),
    "saw": ("d(x)/dt = a * (t % P)\nx(0) = 0", dict(a=1.0, P=4.0), 18.0, (18.0, 4.0)),
    "sine": (
        "d(x)/dt = where(sin(2*pi*t) > s, 1, 0)\nx(0) = 0", dict(s=0.95), 10 * (0.5 - np.arcsin(0.95) / np.pi),
        (-10 / (np.pi * np.sqrt(1 - 0.95**2)),),
    ),
    "inner": ("d(x)/dt = where(where(t % 2 < 1, -1, 1) > 0, a, 0)\nx(0) = 0", dict(a=1.0), 5.0, (5.0,)),
}  # fmt: skip


@pytest.mark.parametrize("case", PULSES)
@pytest.mark.parametrize("engine", ADAPTIVE)
def test_jumps_of_time_are_stops(engine, case):
    text, parms, value, slopes = PULSES[case]
    Y, S, retries = run(engine, text, [0, 10], parms)
    assert retries == 0
    assert Y[0] == pytest.approx(value, rel=1e-6)
    for found, exact in zip(S[0], slopes, strict=True):
        assert exact is None or found == pytest.approx(exact, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("engine", ADAPTIVE)
def test_pulses_of_numpy_functions_are_stops(engine):
    for rate in (lambda t, x: np.where(t % 1 < 0.1, 1, 0), lambda t, x: np.where(np.mod(t, 1) < 0.1, 1, 0),
                 lambda t, x: (t - np.floor(t) < 0.1) * 1.0, lambda t, x: np.floor(t + 0.1) - np.trunc(t)):  # fmt: skip
        model = OdeModel(rate, state={"x": 0}, times=[0, 10], engine=engine)
        assert model.equations is not None
        assert model().x.iloc[-1] == pytest.approx(1.0, rel=1e-6)


@pytest.mark.parametrize("engine", ADAPTIVE)
def test_floors_of_states_are_watched(engine):
    """x' = 1 + k floor(x) from 0.5 reaches 1 at 0.5, 2 after 1 / (1 + k) more, 3 after 1 / (1 + 2 k) more."""
    Y, S, retries = run(engine, "d(x)/dt = 1 + k * floor(x)\nx(0) = 0.5", [0, 0.25, 1.5], {"k": 1.0})
    assert Y[0] == pytest.approx(3 + 4 / 6, rel=1e-6)
    assert S[0, 0] == pytest.approx(3 / 6 + 4 * (1 / 4 + 2 / 9), rel=1e-5)
    Y, S, _ = run(engine, "d(x)/dt = -k * ceil(x)\nx(0) = 2.5", [0, 1.5], {"k": 1.0})
    assert Y[0] == pytest.approx(1 - (1.5 - 0.5 / 3 - 0.5), rel=1e-5)
    assert retries == 0


def test_modulo_has_the_sign_of_the_divisor_everywhere():
    values = [(7.5, 2.0), (-7.5, 2.0), (7.5, -2.0), (-7.5, -2.0), (-0.3, 0.1)]
    for a, b in values:
        table = OdeModel("d(x)/dt = 0*x\nx(0) = a\nm = x % b\nf = floor(x)\nc = ceil(x)\nq = 5 % 3 + (-7) % 3",
                         times=[0, 1], parms={"a": a, "b": b})()  # fmt: skip
        assert table.m.iloc[-1] == pytest.approx(a % b)
        assert (table.f.iloc[-1], table.c.iloc[-1]) == (np.floor(a), np.ceil(a))
        assert table.q.iloc[-1] == 4


def test_too_many_jumps_are_refused_rather_than_missed():
    with pytest.raises(SimulationError, match="at most 100000 "):
        OdeModel("d(x)/dt = where(t % 1e-6 < 5e-7, 1, 0)\nx(0) = 0", times=[0, 10])()


def test_a_retry_keeps_the_stops_of_time():
    text = "d(x)/dt = where(t % 1 < 0.1, 1, 0)\nd(y)/dt = where(y > 1, 2, 1)\nx(0) = 0\ny(0) = 0"
    bound = OdeModel(text, times=[0, 10]).bind()
    Y, _ = bound._runner(RETRY, "plain").run(np.empty(0))
    assert Y[-1] == pytest.approx([1.0, 19.0], rel=1e-5)


def test_what_stays_python_names_the_risk():
    def f(t, x):
        return 1.0 if plain(t) % 1 < 0.1 else 0.0

    assert "max_step" in OdeModel(f, state={"x": 0}, times=[0, 10]).engine_note


# --- nesting


@pytest.mark.parametrize("engine", [*ADAPTIVE, "rk4"])
def test_nested_choices_cost_what_they_hold(engine):
    start = time.process_time()
    text = "d(x)/dt = " + "max(x,min(a," * 6 + "b" + "))" * 6 + "\nx(0) = 0"
    Y, S, _ = run(engine, text, [0, 1], {"a": 1.0, "b": 2.0})
    assert Y[0] == pytest.approx(1.0, abs=1e-5)
    assert S[0] == pytest.approx([1, 0], abs=1e-5)
    if engine == "scipy":  # no compiler
        assert time.process_time() - start < 3


@pytest.mark.parametrize(
    "text",
    [
        "max(x,min(a," * 40 + "b" + "))" * 40,
        "where(x > 0, " * 40 + "b" + ", a)" * 40,
        "where(" * 30 + "x" + " > 0, a, b)" * 30,
        "max(x,min(a," * 12 + "log(b)" + "))" * 12,
        "abs(a - " * 45 + "x" + ")" * 45,
        "floor(a * " * 45 + "x" + ")" * 45,
        "where(max(x,min(a,x)) > abs(b - x) % 3, sqrt(x), " * 10 + "b" + ")" * 10,
    ],
)
def test_deep_nesting_is_built_or_refused_quickly(text):
    start = time.process_time()
    try:
        bound = OdeModel(f"d(x)/dt = {text} + 0*(a + b)\nx(0) = 0.5".replace(" + 0*(a + b)", ""), times=[0, 0.1],
                         parms={k: v for k, v in {"a": 1.0, "b": 2.0}.items() if k in text.replace("abs", "")},
                         engine="scipy").bind()  # fmt: skip
        bound.sensitivities(bound.theta0)
    except FmepyError:
        pass
    assert time.process_time() - start < 60  # seconds; 2 to the power of the depth would be years


CHAINED = {
    "both": ("where(x > {c}, 0.99 * {v}, {v} + k)", lambda x, k, c, v: 0.99 * v if x > c else v + k),
    "own": ("where({v} > {c}, sqrt({v}), {v} + k)", lambda x, k, c, v: v**0.5 if v > c else v + k),
    "roots": ("where(x > {c}, sqrt({v}), {v} + k)", lambda x, k, c, v: v**0.5 if x > c else v + k),
    "largest": ("max(0.99 * {v}, {c})", lambda x, k, c, v: max(0.99 * v, c)),
}


def chain(kind, n, as_text, **options):
    """Return a model of a chain of n choices, each with the one before in both branches, and its plain Python form."""
    form, plain = CHAINED[kind]
    c = [0.3 + i / n for i in range(n)]

    def f(t, x, *, k):
        v = x
        for ci in c:
            v = plain(x, k / n, ci, v)
        return 1 - 0.1 * x + 0.1 * k * v

    if as_text:
        lines = [
            "v0 = x",
            *(f"v{i + 1} = {form.format(c=ci, v=f'v{i}')}".replace("k", f"k/{n}") for i, ci in enumerate(c)),
        ]
        source = "\n".join([*lines, f"d(x)/dt = 1 - 0.1*x + 0.1*k*v{n}"])
    else:

        def source(t, x, *, k):
            v = x
            words = {"sqrt": np.sqrt, "where": np.where, "max": np.maximum, "x": x, "k": k / n}
            for ci in c:
                v = eval(form.format(c=ci, v="v"), {**words, "v": v})
            return 1 - 0.1 * x + 0.1 * k * v

    common = {"state": {"x": 0.2}, "parms": {"k": 0.3}, "times": [0, 0.5, 1]}
    return OdeModel(source, **common, **options), OdeModel(f, **common, engine="scipy")


SLOW = [(kind, as_text, 120) for kind in CHAINED for as_text in (True, False)] + [("both", True, 1000)]


@pytest.mark.parametrize(
    ("kind", "as_text", "n"),
    [
        ("own", True, 20),
        ("both", False, 20),
        ("roots", True, 10),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW),
    ],
)
def test_chained_choices_cost_what_they_hold(kind, as_text, n):
    model, plain = chain(kind, n, as_text, engine="scipy")
    assert model.equations is not None
    assert plain.equations is None
    bound = model.bind(["k"])
    assert bound.simulate([0.3])[-1, 0] == pytest.approx(plain().x.iloc[-1], rel=1e-4)
    if kind == "both" and n < 1000:
        S = bound.sensitivities([0.3])[1][-1, 0, 0]
        up, down = (bound.simulate([k])[-1, 0] for k in (0.301, 0.299))
        assert pytest.approx((up - down) / 0.002, rel=1e-2) == S


def test_chained_choices_run_alike_on_the_compiled_engine():
    model, plain = chain("both", 3, True)
    assert model.bind().engine == "compiled"
    assert model().x.iloc[-1] == pytest.approx(plain().x.iloc[-1], rel=1e-4)


@pytest.mark.parametrize(
    ("form", "plain"),
    [("max({c}, min(2 - {c}, {v}))", lambda v, c: max(c, min(2 - c, v))), ("abs({v} - {c})", lambda v, c: abs(v - c))],
)
def test_choices_nested_deep_run_at_once_and_alike(form, plain):
    c = [0.02 * (1 + i / 50) for i in range(45)]

    def f(t, x):
        v = x
        for ci in c:
            v = plain(v, ci)
        return -v

    text = "x"
    for ci in c:
        text = form.format(c=ci, v=text)
    OdeModel("d(x)/dt = -max(x, 0.1)\nx(0) = 1", times=[0, 1], engine="scipy")()  # what is imported on first use
    begun = time.process_time()
    model = OdeModel(f"d(x)/dt = -({text})\nx(0) = 1", times=[0, 0.5, 1])
    found = model()
    assert time.process_time() - begun < 1.5  # about 0.3; 5 to 10 where it is wrong
    expected = OdeModel(f, state={"x": 1.0}, times=[0, 0.5, 1], engine="scipy")()
    np.testing.assert_allclose(found, expected, rtol=1e-4)


@pytest.mark.parametrize(
    "condition",
    ["sqrt(where(x > 0, -1, 1)) > 0", "where(x > 0, -1, 1)**0.5 > x", "log(min(x, -1)) < 1 or x > 3",
     "max(x, where(x > 1, 2, 3)) >= where(x < 0, 1, x)", "not (abs(x) % 2 < where(x > 0, 1, sign(x)))"],
)  # fmt: skip
def test_conditions_inside_conditions_are_read_and_run_alike_everywhere(condition):
    text = f"d(x)/dt = where({condition}, 1, 2)\nx(0) = 0.5"
    found = []
    for engine in ("auto", "scipy"):
        try:
            found.append(float(OdeModel(text, times=[0, 0.3], engine=engine)().x.iloc[-1]))
        except SimulationError:
            found.append(np.nan)
    assert found[0] == pytest.approx(found[1], rel=1e-5, nan_ok=True)


def test_a_start_that_is_not_the_runs_or_given_twice_is_told(caplog):
    text, decay = "d(x)/dt = -k * x\nx({}) = 5", {"k": 1.0}
    at_start = OdeModel(text.format(0), times=[10, 11], parms=decay)
    assert "x(0) stands for the start of the run, which is time 10 here. To say so, write x(10) = ..." in caplog.text
    caplog.clear()
    DifferenceModel("next(x) = x\nx(0) = 5", times=[10, 11])
    assert "write x(10)" in caplog.text
    caplog.clear()
    said = OdeModel(text.format("1e1"), times=[10, 11], parms=decay)
    np.testing.assert_array_equal(said(), at_start())
    at_start.replace(parms={"k": 2.0})
    OdeModel(text.format("0.0"), times=[0, 1], parms=decay)
    OdeModel("d(x)/dt = -x", state={"x": 1}, times=[10, 11])
    assert not caplog.text
    for at in ("1", "10"):
        with pytest.raises(
            FmepyError, match=rf"line 2: x\({at}\) is not an initial value, for `times` begin at 0. Write x"
        ):
            OdeModel(text.format(at), times=[0, 1], parms=decay)
    with pytest.raises(FmepyError, match=r"x\(y\) is not understood; an initial value is written x\(0\)"):
        OdeModel(text.format("y"), times=[0, 1], parms=decay)
    with pytest.raises(FmepyError, match=r"line 2: x\(0\) is given in the text and in `state`"):
        OdeModel(text.format(0), state={"x": 1}, times=[0, 1], parms=decay)
    changed = OdeModel(text.format(0), times=[0, 1], parms=decay).replace(state={"x": 2})
    assert changed.replace(parms={"k": 0.0})().x.iloc[-1] == 2


# --- fuzzing

NAMES = ["x", "y", "a", "b", "t", "1", "0.5", "2", "-3", "1e3"]
UNARY = ["exp", "log", "sqrt", "abs", "sign", "floor", "ceil", "tanh", "sin", "-", "not "]
BINARY = ["+", "-", "*", "/", "**", "%", ">", "<=", " and ", " or "]


def wild_text(rng, depth):
    """Return an expression of the language's words that need not make sense."""
    kind = rng.integers(7) if depth > 0 else 0
    part = lambda: wild_text(rng, depth - 1)  # noqa: E731  # short
    if kind == 0:
        return str(rng.choice(NAMES))
    if kind == 1:
        return f"{rng.choice(UNARY)}({part()})"
    if kind == 2:
        return f"{rng.choice(['max', 'min'])}({part()}, {part()})"
    if kind == 3:
        return f"where({part()} {rng.choice(['>', '<', '>=', '<='])} {part()}, {part()}, {part()})"
    return f"({part()} {rng.choice(BINARY)} {part()})"


def build_and_run(text):
    """Build a model of a wild text, and run it; only our own errors may come out."""
    start = time.process_time()
    try:
        bound = OdeModel(f"d(x)/dt = {text} + 0.1*a*b\nd(y)/dt = -x\nx(0) = 0.5\ny(0) = 1", times=[0, 0.1],
                         parms={"a": 1.0, "b": 2.0}, method="euler", dt=0.05).bind()  # fmt: skip
        Y = bound.simulate(bound.theta0)
        assert Y.dtype == float
        assert np.isfinite(Y).all()
    except FmepyError:
        pass
    assert time.process_time() - start < 2, text


@pytest.mark.parametrize("seed", range(30))
def test_wild_texts_give_our_own_errors_only(seed):
    build_and_run(wild_text(np.random.default_rng(seed), 4))


@pytest.mark.slow
def test_ten_thousand_wild_texts():
    rng = np.random.default_rng(9)
    for _ in range(10_000):
        build_and_run(wild_text(rng, int(rng.integers(1, 6))))


@pytest.mark.parametrize("engine", ADAPTIVE)
def test_a_condition_on_a_root_is_not_missed_where_the_root_begins(engine):
    # the slope of the second condition is infinite at the crossing of the first
    text = "d(x)/dt = k + where(v > 0.5, k, 0)\nv = where(x > 0.3, sqrt(x - 0.3), x)\nx(0) = 0"
    Y, _, _ = run(engine, text, [0, 1], {"k": 1.0})
    assert Y[0] == pytest.approx(0.55 + 2 * 0.45, rel=1e-5)


@pytest.mark.parametrize("engine", ["compiled", "scipy"])
@pytest.mark.parametrize(
    ("text", "start", "times", "known"),
    [
        ("d(x)/dt = -max(0.2, where(x >= 2, 0.1, 1.0))", 2.0, [0, 0.1, 0.2], [2, 1.9, 1.8]),
        ("d(x)/dt = -min(0.4, where(x < 2, 0.1, 1.0))", 2.0, [0, 1, 2, 3], [2, 1.9, 1.8, 1.7]),
        ("d(x)/dt = -max(1.5, where(x < 1, 3, x))", 1.0, [0, 0.1, 0.2], [1, 0.7, 0.4]),
        ("d(x)/dt = where(floor(x) > x - 0.5, -1, -0.1)", 2.0, [0, 0.1, 0.5], [2, 1.99, 1.95]),
        ("d(x)/dt = -0.2 - where(where(x < 2, 1, 0) > 0.5*x, 0.3, 0)", 2.0, [0, 1, 2], [2, 1.5, 1]),
        ("d(x)/dt = min(1.5, 2*where(u < 1, 1, 0))", 0.0, [0, 1, 2], [0, 1.5, 3]),
        ("d(x)/dt = min(1.5, floor(2*u))", 0.0, [0, 1, 2], [0, 0.5, 1]),
        ("d(y)/dt = -1\nd(x)/dt = min(sign(abs(y - 0.2)), 0.5)", 0.0, [0, 0.5, 2], [0, 0.25, 1]),
        ("d(x)/dt = abs(sign(x))", -0.5, [0, 1, 2], [-0.5, 0.5, 1.5]),
        ("d(x)/dt = abs(sign(x)) - 0.1", -0.5, [0, 1, 2], [-0.5, 0.4, 1.3]),
        ("d(x)/dt = where((x > 0) or (x < 0), 1, 0)", -0.5, [0, 1, 2], [-0.5, 0.5, 1.5]),
        ("d(x)/dt = where(x == 0, -1, 1)", -0.5, [0, 1, 2], [-0.5, 0.5, 1.5]),
        ("d(x)/dt = -0.5 - 0.5*where(x > 0, floor(x) + 1, 0)", 1.5, [0, 0.5, 1], [1.5, 5 / 6, 1 / 3]),
        ("d(x)/dt = -abs(sign(x))", 0.5, [0, 1, 2], [0.5, -0.5, -1.5]),
        ("d(y)/dt = -1 - 0.3*y\nd(x)/dt = floor(y**2) + where(y > 0, 1, 0)", 0.0, [0, 1.3], [0, np.log1p(0.27) / 0.3]),
    ],
)
def test_conditions_that_hang_on_one_at_its_border_are_read_after_it(engine, text, start, times, known):
    # a start, a kink, or another crossing sets the run onto a border, and where it goes decides for all behind
    state = {"x": start, "y": 0.9} if "d(y)" in text else {"x": start}
    words = {"forcings": {"u": ([0, 1, 2], [0.0, 1.0, 0.0])}} if "u" in text else {}
    found = OdeModel(text, state=state, times=times, parms={}, engine=engine, **words)()["x"]
    np.testing.assert_allclose(found, known, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("engine", ["compiled", "scipy"])
def test_a_root_of_what_is_held_at_zero_does_not_hide_the_switch_that_crosses(engine):
    text = "d(h)/dt = q*t - min(k*sqrt(max(h - h0, 0)) + leak*t, cap)"  # a tank with an overflow
    parms = {"q": 0.3, "k": 0.4, "h0": 3.0, "leak": 0.2, "cap": 0.5}
    model = OdeModel(text, state={"h": 0.5}, times=[0, 2, 4, 6], parms=parms, engine=engine)
    np.testing.assert_allclose(model()["h"], [0.5, 0.7, 1.525, 3.525], rtol=1e-5)


OF_ROOTS = {
    "difference": lambda: DifferenceModel(
        "next(S) = S + r - k*sqrt(max(S - c, 0))",
        state={"S": 1.0},
        times=range(6),
        parms={"r": 0.3, "k": 0.4, "c": 1.7},
    ),
    "fixed steps": lambda: held("d(x)/dt = r - k*sqrt(max(x - c, 0))", method="rk4", dt=0.05),
    "output": lambda: held("d(x)/dt = r - k*x\no = c*max(x - 2, 0)**0.7"),
    "start": lambda: held("d(x)/dt = r - k*x", state={"x": "1 + sqrt(max(k - c, 0))"}),
    "event": lambda: held(
        "d(x)/dt = r - k*x", events=[{"var": "x", "time": 1, "value": "sqrt(max(x - c, 0)) + k", "method": "add"}]
    ),
    "delay": lambda: held("d(x)/dt = r - k*x - sqrt(max(lag(x, 0.5) - c, 0))"),
}


def held(text, **words):
    parms = {"r": 0.3, "k": 0.4, "c": 1.7}
    words = {"state": {"x": 1.0}, "times": [0, 0.5, 1.2, 3], "rtol": 1e-9, "atol": 1e-10, **words}
    return OdeModel(text, parms=parms, **words)


@pytest.mark.parametrize("kind", OF_ROOTS)
def test_the_slope_of_a_root_that_is_held_at_zero_is_zero(kind):
    bound = OF_ROOTS[kind]().bind()
    assert bound.exact
    slopes, step = bound.sensitivities(bound.theta0)[1], 1e-5
    for j, by in enumerate(np.eye(len(bound.theta0)) * step):
        differences = (bound.simulate(bound.theta0 + by) - bound.simulate(bound.theta0 - by)) / (2 * step)
        np.testing.assert_allclose(slopes[..., j], differences, atol=2e-4)


@pytest.mark.parametrize("light", [
    "where(s > 0, exp(-k/s), 0)", "where(s < 0, exp(k/s), 0)", "where(s >= 0, 0, exp(k/s))",
])  # fmt: skip
@pytest.mark.parametrize("engine", ["auto", "scipy"])
def test_a_quotient_whose_divisor_its_condition_gives_a_sign_is_held_there(light, engine):
    """Light by the sine of the sun's height, which is -2e-16 at the end of a night (the problem of Kahaner's ozone)."""
    day = "s = sin(t*pi/12)\ndO/dt = " + light
    model = OdeModel(day, state={"O": 0.0}, times=[0, 24, 48, 72], parms={"k": 0.5}, engine=engine, max_step=1.0)
    sun = np.sin(np.pi * np.linspace(0, 12, 100_001)[1:-1] / 12)
    in_a_day, slope = (np.sum(c * np.exp(-0.5 / sun)) * 12 / 100_000 for c in (1.0, -1 / sun))
    np.testing.assert_allclose(model().O, np.arange(4) * in_a_day, rtol=1e-5)
    slopes = model.bind(["k"]).sensitivities(np.array([0.5]))[1]
    np.testing.assert_allclose(slopes[:, 0, 0], np.arange(4) * slope, rtol=1e-4)


def test_a_steady_state_is_found_from_where_a_root_is_held_at_zero():
    model = SteadyModel("d(A)/dt = s - k*A - sqrt(max(A - 5, 0))", state={"A": 1.0}, parms={"s": 1.0, "k": 0.5})
    assert model()["A"].tolist() == pytest.approx([2.0])


def degree_days(engine="auto", **words):
    text = """
        d(T)/dt = k * (10 + 10 * sin(2 * 3.141592653589793 * t) - T)
        d(g)/dt = 0.01 * max(T - 10, 0)
    """
    phase = np.arctan(2 * np.pi)
    start = 10 - 10 / np.hypot(1, 2 * np.pi) * np.sin(phase)
    return OdeModel(text, state={"T": start, "g": 0.0}, parms={"k": 1.0}, rtol=1e-8, atol=1e-10, engine=engine, **words)


@pytest.mark.parametrize("days", [700, 5000])
def test_a_run_of_years_crosses_its_threshold_twice_a_day(days):
    model = degree_days(times=[0, days // 2, days])
    of_a_day = 0.01 * 10 / np.hypot(1, 2 * np.pi) / np.pi
    np.testing.assert_allclose(model()["g"], of_a_day * np.array([0, days // 2, days]), rtol=1e-6)
    bound = model.bind(["k"])
    h = 1e-3
    more, less = (bound.simulate(np.array([1 + s * h]))[-1, 1] for s in (1, -1))
    assert bound.sensitivities(bound.theta0)[1][-1, 1, 0] == pytest.approx((more - less) / (2 * h), rel=5e-5)


@pytest.mark.parametrize("a", [1e3, 1e5, 1e8, 1e10, 1e12])
def test_however_fast_a_run_comes_back_to_what_it_has_crossed_it_slides(a):
    model = OdeModel("dx/dt = where(x > 1, -a, 1)", state={"x": 0.5}, times=np.linspace(0, 10, 11), parms={"a": a})
    with pytest.raises(SimulationError, match="slides along"):
        model()


def test_a_run_that_would_stop_too_often_says_so_soon():
    text = "dx/dt = y; dy/dt = -a * x + where(x > 0.3, 0.5, 0)".replace("; ", "\n")
    model = OdeModel(text, state={"x": 1.0, "y": 0.0}, times=[0, 10], parms={"a": 1e6})
    many = model({"a": 4e4})  # 637 times
    assert np.isfinite(many.to_numpy()).all()
    with pytest.raises(SimulationError, match=r"crossed switches 1000 times within .* more than 200,000 stops"):
        model({"a": 1e12})


@pytest.mark.parametrize("days", [100, 1000, 8000])
def test_conditions_of_time_are_all_met_however_long_the_run(days):
    text = "dg/dt = where(sin(2 * 3.141592653589793 * t) > 0, 0.01, 0) - 0.001 * g"
    model = OdeModel(text, state={"g": 0.0}, times=[0, days], rtol=1e-10, atol=1e-12)
    half = np.exp(-0.0005)  # of the day it grows, for half of it
    exact = 10 * (1 - half) * half * (1 - half ** (2 * days)) / (1 - half**2)
    assert model()["g"].iloc[-1] == pytest.approx(exact, rel=1e-9)


def test_a_floor_of_time_is_met_every_day_for_years():
    model = OdeModel("dg/dt = t - floor(t)", state={"g": 0.0}, times=[0, 30_000], rtol=1e-9)
    assert model()["g"].iloc[-1] == pytest.approx(15_000, rel=1e-9)


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("(t - 500.3)^2 < 1e-4", 0.02),
        ("cos(2 * 3.141592653589793 * t / 1000 * 7) > 0.99999999", 14 * np.arccos(0.99999999) * 1000 / (14 * np.pi)),
        ("floor(1.0000001 - 1e-3 * (t - 500.3)^2) > 0.5", 0.02),
    ],
)
def test_a_curve_of_time_is_met_where_it_turns_between_two_looks(condition, holds):
    model = OdeModel(f"dx/dt = where({condition}, 1, 0)", state={"x": 0.0}, times=[0, 1000])
    assert model()["x"].iloc[-1] == pytest.approx(holds, rel=1e-6)


@pytest.mark.parametrize("a", [4.0, 1e4])
def test_what_touches_its_threshold_where_it_turns_does_not_slide(a):
    text = "dx/dt = y\ndy/dt = -a * x + where(x > 1, 0.5, 0)"
    model = OdeModel(text, state={"x": 1.0, "y": 0.0}, times=[0, 10], parms={"a": a}, rtol=1e-9, atol=1e-12)
    w = np.sqrt(a)
    end = model().iloc[-1]
    assert (end["x"], end["y"] / w) == pytest.approx((np.cos(10 * w), -np.sin(10 * w)), abs=1e-6 * w * 10)
